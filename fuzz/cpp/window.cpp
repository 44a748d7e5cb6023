// Files of window filters (20), and what they hold after any additions at any times.
//
//     input ──▶ a file, as in every target
//          └──▶ a shape, then additions and questions while time goes on, jumps ahead and back: each answer is that of a
//               map from fingerprints to the step of their last addition
#include "evenbins/window.hpp"

#include <map>

#include "evenbins/parallel.hpp"
#include "filter_harness.hpp"

using namespace evenbins;
using namespace evenbins::fuzz;

namespace {

void look(Filter& filter, Dice& dice) {
  if (SupportsExpiry* expiry = filter.expiry()) expiry->tell_time(static_cast<int64_t>(dice.word()));
  ask(filter, dice);
  for (uint32_t level = 0; level < 4; ++level) filter.level_histogram(level);
}

void change(Filter& filter, Dice& dice) {
  const auto twin = filter.copy();
  require(*twin == filter, "a copy differs");
  for (int i = 0; i < 4; ++i) {
    uint64_t digests[kKeys];
    uint8_t found[kKeys];
    for (uint64_t& each : digests) each = dice.word();
    if (SupportsExpiry* expiry = filter.expiry())
      expiry->tell_time(static_cast<int64_t>(dice.word() >> dice.below(60)));
    const size_t added = filter.add_many(digests, kKeys);
    filter.contains_many(digests, kKeys, found);
    if (filter.expiry() == nullptr) continue;  // later additions may have made them expire
    for (size_t j = 0; j < added; ++j) require(found[j] != 0, "a key that was added now is absent");
  }
}

// A window of time, and what it must answer.
class Model {
 public:
  Model(WindowFilter& filter, const std::vector<uint64_t>& core, Dice& dice)
      : filter_(filter),
        most_(core[0] * core[2] << core[1]),
        steps_(static_cast<int64_t>(core[6])),
        window_(static_cast<int64_t>(core[7])),
        range_(1 + dice.below(most_)),
        dice_(dice) {}

  void step() {
    if (dice_.below(3) == 0) move_time();
    const size_t n = 1 + dice_.below(kKeys);
    std::vector<uint64_t> prints, digests;
    for (size_t i = 0; i < n; ++i) {
      prints.push_back(any());
      digests.push_back(least_word_of(prints.back(), most_));
    }
    uint8_t answers[kKeys];
    switch (dice_.below(4)) {
      case 0: {
        go_on();
        const AddOutcome outcome = filter_.add_new(digests[0]);
        if (outcome == AddOutcome::full) break;
        require((outcome == AddOutcome::present) == contains(prints[0]), "add_new: new or not");
        last_[prints[0]] = now_;
        break;
      }
      case 1: {
        go_on();
        const size_t treated = filter_.add_many(digests.data(), n);
        for (size_t i = 0; i < treated; ++i) last_[prints[i]] = now_;
        break;
      }
      case 2: {
        go_on();
        const size_t treated = filter_.add_new_many(digests.data(), n, answers);
        for (size_t i = 0; i < treated; ++i) {
          require((answers[i] != 0) == !contains(prints[i]), "add_new_many: new or not");
          last_[prints[i]] = now_;
        }
        break;
      }
      default:
        filter_.contains_many(digests.data(), n, answers);
        for (size_t i = 0; i < n; ++i)
          require((answers[i] != 0) == contains(prints[i]), "contains_many is not what is in the window");
    }
  }

 private:
  // A fingerprint of few; every second time one that was added once.
  uint64_t any() {
    const uint64_t drawn = dice_.below(range_);
    if (last_.empty() || dice_.below(2) == 0) return drawn;
    const auto next = last_.lower_bound(drawn);
    return next == last_.end() ? last_.begin()->first : next->first;
  }
  void move_time() {
    const auto by = static_cast<int64_t>(dice_.below(static_cast<uint64_t>(window_) + 1));
    switch (dice_.below(16)) {
      case 0: time_ += 40 * by; break;
      case 1: time_ -= by; break;  // a clock that is set back: nothing expires early
      default: time_ += by / (1 + static_cast<int64_t>(dice_.below(16)));
    }
    filter_.tell_time(time_);
  }
  int64_t present() const {
    const int64_t product = time_ * steps_, step = product / window_ - (product % window_ < 0);
    return has_begun_ ? std::max(step, now_) : step;
  }
  // An addition moves time on, also if there is no room for its key.
  void go_on() {
    now_ = present();
    has_begun_ = true;
  }
  bool contains(uint64_t fingerprint) const {
    const auto found = last_.find(fingerprint);
    return found != last_.end() && present() - found->second <= steps_;
  }

  WindowFilter& filter_;
  uint64_t most_;
  int64_t steps_, window_;
  uint64_t range_;
  Dice& dice_;
  int64_t time_ = 0, now_ = 0;
  bool has_begun_ = false;
  std::map<uint64_t, int64_t> last_;
};

// A shape from the first bytes, and a step for each byte of the input.
void operate(const uint8_t* data, size_t size, Dice& dice) {
  if (size < 8) return;
  const uint64_t steps = 1 + data[0] % 40, group = 1 + data[1] % 16;
  Spec spec{Kind::window,
            Hashing::lanes,
            1,
            100,
            {16 * group, 4 + data[2] % 12u, 32 + data[3] % 33u, group, data[4] % 64u, 1 + 8 * uint64_t{data[5]}, steps,
             steps + 7 * uint64_t{data[6]}, 0}};
  const std::vector<uint64_t> core = spec.core;
  const uint64_t bytes = payload_bytes(spec);
  const auto filter = make_filter(std::move(spec), Bits::zeroed(bytes));
  Model model(static_cast<WindowFilter&>(*filter), core, dice);
  for (size_t i = 0; i < size; ++i) model.step();
  require_sound(*filter, "after operations");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return run_or_operate(data, size, 20, operate, look, change);
}

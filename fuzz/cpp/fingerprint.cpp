// Files of fingerprint filters (18), and what they hold after any sequence of operations.
//
//     input ──▶ a file, as in every target
//          └──▶ a shape, then operations on few lines, so that runs overflow into every level: each answer is that of an
//               ordered multiset of fingerprints, and `check` compares the bytes with those of a fresh build
#include "evenbins/fingerprint.hpp"

#include <set>

#include "evenbins/parallel.hpp"
#include "filter_harness.hpp"

using namespace evenbins;
using namespace evenbins::fuzz;

namespace {

void look(Filter& filter, Dice& dice) {
  const Asked asked = ask(filter, dice);
  for (uint32_t level = 0; level < 3; ++level) filter.level_histogram(level);
  if (const SupportsCounting* counting = filter.counting()) {
    int64_t counts[kKeys];
    counting->count_many(asked.digests.data(), kKeys, counts);
    for (size_t i = 0; i < kKeys; ++i)
      require((counts[i] > 0) == (asked.found[i] != 0), "a count is not what `in` answers");
  }
}

// Fingerprints of a filter, and all that can be asked of it.
class Model {
 public:
  Model(FingerprintFilter& filter, const std::vector<uint64_t>& core, Dice& dice)
      : filter_(filter), is_set_(core[6] != 0), most_(core[0] * core[2] << core[1]), dice_(dice) {
    run_ = core[1];
    first_ = dice.below(core[0]) * core[2];
    runs_ = 1 + dice.below(2 * core[2]);
    std::vector<uint64_t> block;
    for (uint64_t i = 0; i < filter.blocks(); ++i) {
      filter.fingerprints(i, block);
      all_.insert(block.begin(), block.end());
    }
  }

  void step() {
    const size_t n = 1 + dice_.below(kKeys);
    std::vector<uint64_t> found, digests;
    for (size_t i = 0; i < n; ++i) {
      found.push_back(any());
      digests.push_back(least_word_of(found.back(), most_));
    }
    switch (dice_.below(8)) {
      case 0: {
        const AddOutcome outcome = filter_.add(digests[0]);
        const bool there = is_set_ && all_.contains(found[0]);
        require(outcome != AddOutcome::present || there, "present, and it was not");
        if (outcome == AddOutcome::added) all_.insert(found[0]);
        break;
      }
      case 1: {
        const size_t added = filter_.add_many(digests.data(), n);
        for (size_t i = 0; i < added; ++i)
          if (!is_set_ || !all_.contains(found[i])) all_.insert(found[i]);
        break;
      }
      case 2: {
        uint8_t added[kKeys];
        const size_t treated = filter_.add_new_many(digests.data(), n, added);
        for (size_t i = 0; i < treated; ++i) {
          require((added[i] != 0) == !all_.contains(found[i]), "add_new_many: new or not");
          if (added[i] != 0) all_.insert(found[i]);
        }
        break;
      }
      case 3: {
        uint8_t removed[kKeys];
        filter_.remove_many(digests.data(), n, removed);
        for (size_t i = 0; i < n; ++i) remove(found[i], removed[i] != 0);
        break;
      }
      case 4: remove(found[0], filter_.remove(digests[0])); break;
      case 5: {
        if (dice_.below(8) != 0) break;  // it builds every line anew
        const auto other = filter_.copy();
        other->clear();
        const size_t added = other->add_many(digests.data(), n);
        try {
          filter_.merge(*other);
        } catch (const SpecError&) {
          break;
        }
        for (size_t i = 0; i < added; ++i)
          if (!is_set_ || !all_.contains(found[i])) all_.insert(found[i]);
        break;
      }
      default: {
        uint8_t there[kKeys];
        filter_.contains_many(digests.data(), n, there);
        for (size_t i = 0; i < n; ++i)
          require((there[i] != 0) == all_.contains(found[i]), "contains_many is not what is in");
        if (filter_.counting() == nullptr) break;
        int64_t counts[kKeys];
        filter_.count_many(digests.data(), n, counts);
        for (size_t i = 0; i < n; ++i)
          require(static_cast<uint64_t>(counts[i]) == all_.count(found[i]), "count_many is not what is in");
      }
    }
  }

  void compare() const {
    filter_.settle(1);
    std::vector<uint64_t> block, found;
    for (uint64_t i = 0; i < filter_.blocks(); ++i) {
      filter_.fingerprints(i, block);
      found.insert(found.end(), block.begin(), block.end());
    }
    require(std::equal(found.begin(), found.end(), all_.begin(), all_.end()), "other fingerprints than were added");
    require_sound(filter_, "after operations");
  }

 private:
  // A fingerprint of a few lines; every second time one that is in, or nearly so.
  uint64_t any() {
    const uint64_t drawn = (first_ + dice_.below(runs_)) % (most_ >> run_) << run_ | (dice_.word() >> (64 - run_));
    if (all_.empty() || dice_.below(2) == 0) return drawn;
    const auto next = all_.lower_bound(drawn);
    return next == all_.end() ? *all_.begin() : *next;
  }
  void remove(uint64_t fingerprint, bool removed) {
    const auto at = all_.find(fingerprint);
    require(removed == (at != all_.end()), "removed, and it was not in; or the other way round");
    if (removed) all_.erase(at);
  }

  FingerprintFilter& filter_;
  bool is_set_;
  uint64_t most_, run_, first_, runs_;
  Dice& dice_;
  std::multiset<uint64_t> all_;
};

void change(Filter& filter, Dice& dice) {
  auto& found = static_cast<FingerprintFilter&>(filter);
  const auto twin = filter.copy();
  require(*twin == filter, "a copy differs");
  Model model(found, filter.spec().core, dice);
  for (int i = 0; i < 8; ++i) model.step();
  model.compare();
}

// A shape from the first bytes, and a step for each byte of the input.
void operate(const uint8_t* data, size_t size, Dice& dice) {
  if (size < 8) return;
  const uint64_t bits = 4 + data[0] % 25, quotients = 32 + data[1] % 33, group = 1 + data[2] % 16;
  Spec spec{Kind::fingerprint,
            Hashing::lanes,
            1,
            100,
            {16 * group * (1 + data[3] % 2), bits, quotients, group, data[4] % 64u, 1 + 8 * uint64_t{data[5]},
             data[6] % 2u, 0}};
  if (data[7] % 4 == 0) spec.core[7] = std::min<uint64_t>(data[7] / 64, bits - 4);  // it grows, up to three times
  const std::vector<uint64_t> core = spec.core;
  const uint64_t bytes = payload_bytes(spec);
  const auto filter = make_filter(std::move(spec), Bits::zeroed(bytes));
  Model model(static_cast<FingerprintFilter&>(*filter), core, dice);
  for (size_t i = 0; i < size; ++i) model.step();
  model.compare();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return run_or_operate(data, size, 18, operate, look, change);
}

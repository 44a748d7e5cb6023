#include "evenbins/window.hpp"

#include <algorithm>
#include <bit>

#include "evenbins/stretches.hpp"
#include "fingerprint_blocks.hpp"

namespace evenbins {

using namespace fingerprints;

namespace {

constexpr size_t kCoreSize = 9;
constexpr uint64_t kBlocksSwept = 8;             // by a thread at a time
constexpr int64_t kMostTime = int64_t{1} << 56;  // either way: two thousand years

struct Core {
  uint64_t lines, remainder, quotients, group, rest, limit, steps, window, counted;
  explicit Core(const Spec& spec)
      : lines(spec.core[0]),
        remainder(spec.core[1]),
        quotients(spec.core[2]),
        group(spec.core[3]),
        rest(spec.core[4]),
        limit(spec.core[5]),
        steps(spec.core[6]),
        window(spec.core[7]),
        counted(spec.core[8]) {}
  // Steps of two windows and of what lies between two turns must be told apart.
  uint32_t age_bits() const { return static_cast<uint32_t>(std::bit_width(2 * steps + 2)); }
  uint32_t slot_bits() const { return static_cast<uint32_t>(remainder) + age_bits(); }
};

FingerprintView view_of(const Spec& spec, uint64_t* words) {
  const Core core(spec);
  return fingerprints::view_of(core.lines, core.slot_bits(), core.quotients, core.group, core.limit, core.age_bits(),
                               words);
}

// a·b / c, rounded down; b and c are above 0.
int64_t scaled_down(int64_t a, uint64_t b, uint64_t c) {
  const auto size = uint128{a < 0 ? -static_cast<uint64_t>(a) : static_cast<uint64_t>(a)} * b;
  return a < 0 ? -static_cast<int64_t>((size + c - 1) / c) : static_cast<int64_t>(size / c);
}

}  // namespace

uint64_t WindowFilter::payload_bytes(const Spec& spec) {
  if (spec.hashing != Hashing::lanes) throw SpecError("a window filter needs lane hashing");
  if (spec.core.size() != kCoreSize) throw SpecError("a window filter has nine numbers in its core");
  const Core core(spec);
  constexpr uint64_t kMost = uint64_t{1} << 48;
  if (core.steps < 1 || core.steps > 1000) throw SpecError("steps must be 1 … 1000");
  if (core.remainder < 4 || core.remainder > 28 || core.slot_bits() > 28)
    throw SpecError("remainder must be 4 or more, 28 at most with the bits of an age");
  if (core.quotients < 32 || core.quotients > 64) throw SpecError("quotients must be 32 … 64");
  if (core.group < 1 || core.group > 16) throw SpecError("group must be 1 … 16");
  if (core.lines < 1 || core.lines > kMost || core.lines % (16 * core.group) != 0)
    throw SpecError("lines must be a multiple of 16 groups, 2^48 at most");
  if (static_cast<uint128>(core.lines) * core.quotients << core.slot_bits() > uint64_t{1} << 63)
    throw SpecError("there may be 2^63 fingerprints with ages at most");
  if (core.rest > kMost) throw SpecError("rest must be 0 … 2^48");
  if (core.limit < 1 || core.limit > kMost) throw SpecError("limit must be 1 … 2^48");
  if (core.window < core.steps || core.window > kMostTime)
    throw SpecError("window must be at least 1 for each step, 2^56 at most");
  if (core.counted > 1) throw SpecError("counted must be 0 or 1");
  return 8 * (kStateWords + kLineWords * (core.lines + core.lines / core.group + core.lines / (16 * core.group)) +
              core.rest);
}

// A turn takes D steps at most. When one begins, less than 2·D steps may have passed since the one before it began, and
// the oldest slot may be `steps` steps older: all that must be less than 2^p.
WindowFilter::WindowFilter(Spec spec, Bits bits)
    : Filter(std::move(spec), std::move(bits)),
      steps_(spec_.core[6]),
      steps_of_turn_(((int64_t{1} << Core(spec_).age_bits()) - static_cast<int64_t>(steps_)) / 3),
      window_(static_cast<int64_t>(spec_.core[7])),
      counted_(spec_.core[8] != 0),
      view_(view_of(spec_, bits_.words())),
      rest_(rest_words(view_), view_.state + kInRest, spec_.core[4]),
      loops_(kernel().window(Core(spec_).slot_bits())) {
  view_.rest = &rest_;
  if (!bits_.read_only()) rest_.reserve_for(1);
  const auto add = [](const void* self, uint64_t digest) {
    auto& filter = *static_cast<WindowFilter*>(const_cast<void*>(self));
    uint8_t is_new = 0;
    if (filter.add_keys(&digest, 1, &is_new) == 0) return AddOutcome::full;
    return is_new != 0 ? AddOutcome::added : AddOutcome::present;
  };
  const auto contains = [](const void* self, uint64_t digest) {
    uint8_t found;
    static_cast<const WindowFilter*>(self)->contains_many(&digest, 1, &found);
    return found != 0;
  };
  set_one({.add_to = add, .add_new_to = add, .contained_in = contains, .view = this});
}

void WindowFilter::tell_time(int64_t time) {
  present_.store(std::clamp(time, -kMostTime, kMostTime), std::memory_order_relaxed);
}
int64_t WindowFilter::step_of(int64_t time) const { return scaled_down(time, steps_, static_cast<uint64_t>(window_)); }
int64_t WindowFilter::time_step() const {
  return step_of(counted_ ? step(kAdditions) : present_.load(std::memory_order_relaxed));
}
int64_t WindowFilter::present_step() const { return std::max(time_step(), step(kNow)); }
LiveAges WindowFilter::live_at(int64_t present) const {
  const uint64_t later = static_cast<uint64_t>(present) - view_.state[kNow];
  const int64_t most = later > steps_ ? -1 : static_cast<int64_t>(steps_ - later);
  return {static_cast<uint32_t>(view_.state[kNow]), (1u << view_.payload) - 1, most};
}

void WindowFilter::end_turn() {
  uint64_t* state = view_.state;
  state[kTurn] = state[kBegan];
  if (state[kBegan] == state[kNow]) return;  // nothing has expired since: no other one is needed
  state[kBegan] = state[kNow];
  state[kNextLine] = 0;
}

void WindowFilter::sweep_to(uint64_t line, const LiveAges& live) {
  uint64_t& next = view_.state[kNextLine];
  if (next >= line) return;
  if (threads_ == 1) {
    loops_.sweep(view_, live, next, line);
  } else {
    const uint64_t per_block = 16 * view_.group, block = next / per_block;
    const auto sweep_some = [&](uint64_t start, uint64_t count) {
      const uint64_t first = (block + start) * per_block, last = first + count * per_block;
      loops_.sweep(view_, live, std::max(first, next), std::min(last, line));
    };
    for_stretches((line - 1) / per_block + 1 - block, threads_, kBlocksSwept, [] { return true; }, sweep_some);
  }
  next = line;
}

bool WindowFilter::finish_turn() {
  if (view_.state[kNextLine] == view_.lines) return false;
  sweep_to(view_.lines, live_at(step(kNow)));
  end_turn();
  return true;
}

void WindowFilter::advance(int64_t now) {
  uint64_t* state = view_.state;
  if (is_new() || now - step(kNow) > static_cast<int64_t>(steps_)) {
    if (state[kSlots] != 0) {
      std::fill(view_.level1, rest_words(view_) + spec_.core[4], 0);
      state[kSlots] = state[kInRest] = 0;
    }
    state[kNow] = state[kTurn] = state[kBegan] = static_cast<uint64_t>(now);
    state[kNextLine] = view_.lines;
    return;
  }
  // Ages are still those of the last step; what expires until `now` is swept.
  const LiveAges live = live_at(now);
  const auto share = [&](int64_t steps) {
    return static_cast<uint64_t>(static_cast<uint128>(view_.lines) * static_cast<uint64_t>(steps) /
                                 static_cast<uint64_t>(steps_of_turn_));
  };
  int64_t passed = now - step(kBegan);
  if (state[kNextLine] < view_.lines) sweep_to(share(std::min(passed, steps_of_turn_)), live);
  if (state[kNextLine] == view_.lines) {
    state[kTurn] = state[kBegan];
    state[kBegan] = static_cast<uint64_t>(now);
    state[kNextLine] = 0;
    passed -= steps_of_turn_;
    if (passed > 0) sweep_to(share(std::min(passed, steps_of_turn_)), live);
  }
  state[kNow] = static_cast<uint64_t>(now);
  if (state[kNextLine] == view_.lines) end_turn();
}

void WindowFilter::prepare(uint64_t keys) {
  uint64_t* state = view_.state;
  if (const int64_t now = time_step(); is_new() || now > step(kNow)) advance(now);
  for (uint64_t lines = keys; lines > 0 && state[kNextLine] < view_.lines;) {
    const uint64_t next = state[kNextLine], more = std::min(lines, view_.lines - next);
    sweep_to(next + more, live_at(step(kNow)));
    lines -= more;
    if (state[kNextLine] == view_.lines) end_turn();
  }
}

uint64_t WindowFilter::keys_at_once() const {
  if (!counted_) return std::numeric_limits<uint64_t>::max();
  const auto time = static_cast<int64_t>(view_.state[kAdditions]);
  // times `steps`: the next step begins
  const uint128 next = uint128{static_cast<uint64_t>(step_of(time) + 1)} * static_cast<uint64_t>(window_);
  return static_cast<uint64_t>((next + steps_ - 1) / steps_) - view_.state[kAdditions];
}

size_t WindowFilter::add_keys(const uint64_t* digests, size_t n, uint8_t* out) {
  size_t done = 0;
  while (done < n) {
    const size_t count = static_cast<size_t>(std::min<uint64_t>(n - done, keys_at_once()));
    prepare(count);
    const size_t end = done + count;
    do {
      const size_t added = loops_.add_many(view_, live_at(step(kNow)), digests + done, end - done,
                                           out == nullptr ? nullptr : out + done);
      if (counted_) view_.state[kAdditions] += added;
      done += added;
    } while (done < end && finish_turn());
    if (done < end) return done;
  }
  return n;
}

void WindowFilter::begin_items(uint64_t keys, uint32_t threads) {
  rest_.reserve_for(threads);
  refused_.store(false, std::memory_order_relaxed);
  threads_ = threads;
  prepare(keys);
  threads_ = 1;
}
void WindowFilter::add_items(const uint64_t* digests, size_t n) {
  if (is_overfull() || loops_.add_many(view_, live_at(step(kNow)), digests, n, nullptr) < n)
    refused_.store(true, std::memory_order_relaxed);
}
void WindowFilter::add_new_items(const uint64_t* digests, size_t n, uint8_t* added) {
  const size_t treated = is_overfull() ? 0 : loops_.add_many(view_, live_at(step(kNow)), digests, n, added);
  if (treated == n) return;
  refused_.store(true, std::memory_order_relaxed);
  std::fill(added + treated, added + n, uint8_t{0});
}
void WindowFilter::remove_items(const uint64_t* digests, size_t n) {
  for (size_t i = 0; i < n; ++i) loops_.remove(view_, digests[i]);
}
void WindowFilter::end_items(uint64_t keys) {
  if (counted_) view_.state[kAdditions] += keys;
  if (view_.state[kSlots] == 0) std::fill_n(view_.state, kStateWords, 0);  // as if it had not begun
  refused_.store(false, std::memory_order_relaxed);
}

std::unique_ptr<Filter> WindowFilter::copy() const {
  auto twin = std::make_unique<WindowFilter>(spec_, bits_.copy());
  twin->tell_time(present_.load(std::memory_order_relaxed));
  return twin;
}

// Calls act(payload) for every slot; false if a line is damaged.
template <typename Act>
bool WindowFilter::each_slot(const Act& act) const {
  bool sound = true;
  const auto look = [&](uint64_t fingerprint) {
    act(static_cast<uint32_t>(fingerprint) & ((1u << view_.payload) - 1));
  };
  for (uint64_t block = 0; block < blocks(); ++block) sound &= each_of_block(view_, rest_.stored(), block, look, look);
  return sound;
}

uint64_t WindowFilter::set_bits() const {
  const LiveAges live = live_at(present_step());
  uint64_t count = 0;
  each_slot([&](uint32_t age) { count += live(age); });
  return count;
}

std::vector<uint64_t> WindowFilter::level_histogram(uint32_t level) const {
  if (level < 3) return fingerprints::level_histogram(view_, level);
  if (level > 3) throw SpecError("a window filter has three levels, and ages");
  const int64_t present = present_step();
  const LiveAges live = live_at(present);
  std::vector<uint64_t> slots(uint64_t{1} << view_.payload), histogram;
  each_slot([&](uint32_t age) { ++slots[live.steps_since(age)]; });
  for (uint64_t since = 0; since < slots.size(); ++since)
    if (slots[since] != 0)
      histogram.insert(histogram.end(), {since + static_cast<uint64_t>(present - step(kNow)),
                                         static_cast<int64_t>(since) <= live.most, slots[since]});
  return histogram;
}

std::vector<uint64_t> WindowFilter::state() const { return {view_.state, view_.state + kStateWords}; }

std::string WindowFilter::check(bool thorough) const {
  const uint64_t* state = view_.state;
  if (state[kSlots] > view_.limit) return "more fingerprints than the filter takes";
  if (state[kInRest] > spec_.core[4]) return "more entries of the rest than there is room for";
  if (state[kNextLine] > view_.lines) return "the line to be swept next does not exist";
  for (const Word word : {kAdditions, kNow, kTurn, kBegan})
    if (step(word) < (word == kAdditions ? 0 : -kMostTime) || step(word) > kMostTime)
      return "a time of the state is impossible";
  const bool is_idle = state[kNextLine] == view_.lines;
  if (state[kUnused] != 0 || (!counted_ && state[kAdditions] != 0)) return "unused words of the state are set";
  if (is_new()) {
    if (std::any_of(state, state + kStateWords, [](uint64_t word) { return word != 0; }))
      return "a filter without additions has a state";
  } else if (counted_ && (step(kNow) < step_of(step(kAdditions) - 1) || step(kNow) > step_of(step(kAdditions)))) {
    return "the step is not that of the last addition";
  }
  if (step(kTurn) > step(kBegan) || step(kBegan) > step(kNow) || (is_idle && state[kTurn] != state[kNow]) ||
      step(kBegan) - step(kTurn) >= 2 * steps_of_turn_ || step(kNow) - step(kBegan) >= steps_of_turn_)
    return "the steps of the turns are impossible";
  if (!thorough) return {};
  if (std::string broken = broken_levels(view_, rest_.stored(), spec_.core[4], state[kSlots], true); !broken.empty())
    return broken;
  const LiveAges live = live_at(step(kNow));
  const auto most = static_cast<uint64_t>(step(kNow) - step(kTurn)) + steps_;
  bool possible = true;
  each_slot([&](uint32_t age) { possible &= live.steps_since(age) <= most; });
  return possible ? std::string() : "a fingerprint is older than those that the last turn left";
}

extern constinit const KindRow kWindowKind = {
    .kind = Kind::window,
    .name = "window",
    .payload_bytes = WindowFilter::payload_bytes,
    .make_filter = make_family<WindowFilter>,
};

}  // namespace evenbins

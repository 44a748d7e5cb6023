// The window filter: a key is found until the window after its last addition has passed, and one step of it.
//
// The fingerprints of a fingerprint filter (fingerprint.hpp), each once, and beside each its age: the number of the step
// in which its key was added last, modulo 2^p. The age is the payload of a slot (kernels/fingerprint_payload.hpp); lines,
// levels and the rest hold remainder and age as one number of w + p bits.
//
// Time is a number x: microseconds of the clock, or the additions so far. A window has `steps` steps, and x is in step
// t = floor(x·steps / window). A key of step e has not expired in step t if t − e ≤ steps. So it is found at least for a
// window, and at most for a step longer. The state has the step of the last addition; a look-up in a later one counts the
// difference, and changes nothing. Time never goes back: an earlier x is taken for the last one.
//
//     |<-------------- window, 8 steps -------------->|
//   e |     |     |     |     |     |     |     |     |  expired here if it was added at the end of e: window
//     |     |     |     |     |     |     |     |     |     |  and here if at its beginning: window + step
//
// Expired slots answer "absent", and are removed line by line, in turns: each addition sweeps one line (the slots of its
// keys on all levels), until all have been swept since the step began. So a step's keys leave while the next come. Ages
// are modulo 2^p: every slot must have been looked at before 2^p steps have passed. If there are few additions, a new step
// sweeps more: so many that a turn takes steps_of_turn_ steps at most. If all keys have expired since the last
// addition, all is cleared at once.
//
// Invariants. A turn that began in step b and is complete leaves no slot from before step b − steps. `turn` is the step
// in which the last complete one began, so now − turn + steps < 2^p, and no age is ambiguous. With the same keys in the
// same steps come the same bytes, whatever the batches and the threads, unless there is no room.
//
// Core: [lines, remainder w, quotients, group, rest, limit, steps, window, counted]. Payload: that of a fingerprint filter
// with slots of w + p bits. State: slots in use, additions (0 in a window of time), entries of the rest, now (the step of
// the last addition), turn, the step in which the turn under way began, its next line (or `lines`: none is under way), 0.
#pragma once

#include <atomic>

#include "evenbins/filter.hpp"
#include "evenbins/fingerprint.hpp"
#include "evenbins/kernel.hpp"
#include "evenbins/window_view.hpp"

namespace evenbins {

class WindowFilter final : public Filter, public ByRange, public SupportsExpiry {
 public:
  static uint64_t payload_bytes(const Spec& spec);
  WindowFilter(Spec spec, Bits bits);

  size_t add_many(const uint64_t* digests, size_t n) override { return add_keys(digests, n, nullptr); }
  size_t add_new_many(const uint64_t* digests, size_t n, uint8_t* out) override { return add_keys(digests, n, out); }
  void contains_many(const uint64_t* digests, size_t n, uint8_t* out) const override {
    loops_.contains_many(view_, live_at(present_step()), digests, n, out);
  }
  uint64_t keys_left() const override { return view_.limit - view_.state[0]; }
  Concurrency concurrency() const override { return Concurrency::readers_or_writer; }

  SupportsExpiry* expiry() override { return counted_ ? nullptr : this; }
  void tell_time(int64_t time) override;

  ByRange* by_range() override { return this; }
  uint32_t items_per_key() const override { return 0; }
  void items(const uint64_t*, size_t, uint64_t*) const override {}
  Address address() const override { return {.scale = blocks(), .shift = 0, .lines = blocks()}; }
  void add_items(const uint64_t* digests, size_t n) override;
  bool tells_new_items() const override { return true; }
  void add_new_items(const uint64_t* digests, size_t n, uint8_t* added) override;
  bool can_be_overfull() const override { return true; }
  bool is_overfull() const override { return refused_.load(std::memory_order_relaxed); }
  bool adds_every_item() const override { return false; }
  void remove_items(const uint64_t* digests, size_t n) override;
  uint64_t keys_at_once() const override;
  void begin_items(uint64_t keys, uint32_t threads) override;
  void end_items(uint64_t keys) override;

  std::vector<uint64_t> merge_space(const Filter&) const override {
    throw SpecError("window filters cannot be merged");
  }
  std::unique_ptr<Filter> copy() const override;
  uint64_t set_bits() const override;  // fingerprints that have not expired
  // Levels 0, 1 and 2 as in a fingerprint filter. 3: (steps since the addition, 1 if that has not expired, slots) again
  // and again.
  std::vector<uint64_t> level_histogram(uint32_t level) const override;
  std::vector<uint64_t> state() const override;  // all eight words
  std::string check(bool thorough) const override;

 private:
  enum Word { kSlots, kAdditions, kInRest, kNow, kTurn, kBegan, kNextLine, kUnused };

  uint64_t blocks() const { return view_.lines / (16 * view_.group); }
  int64_t step(Word word) const { return static_cast<int64_t>(view_.state[word]); }
  int64_t step_of(int64_t time) const;
  bool is_new() const { return view_.state[kNextLine] == 0 && view_.state[kBegan] == view_.state[kTurn]; }
  int64_t time_step() const;     // by clock or additions
  int64_t present_step() const;  // the same, not before the last addition
  LiveAges live_at(int64_t step) const;

  size_t add_keys(const uint64_t* digests, size_t n, uint8_t* out);
  void prepare(uint64_t keys);  // moves time on, and sweeps as many lines as there are keys to add
  void advance(int64_t step);   // to a later step
  void sweep_to(uint64_t line, const LiveAges& live);
  void end_turn();
  bool finish_turn();  // false: none is under way
  template <typename Act>
  bool each_slot(const Act& act) const;

  uint64_t steps_;
  int64_t steps_of_turn_, window_;
  bool counted_;
  FingerprintView view_;
  FingerprintRest rest_;
  const WindowLoops& loops_;  // of the kernel in force when the filter was made
  std::atomic<int64_t> present_ = 0;
  std::atomic<bool> refused_ = false;
  uint32_t threads_ = 1;  // that sweep
};

}  // namespace evenbins

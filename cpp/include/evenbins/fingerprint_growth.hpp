// A fingerprint filter that doubles as it fills, without its keys.
//
//     old   │  0  │  1  │  2  │  3  │ …     blocks: those below `moved_` are in the filter itself by now
//              ╲     ╲
//     filter │ 0 1 │ 2 3 │     │     │ …    twice the lines, remainders one bit shorter: a block becomes two blocks, and
//                                           no fingerprint changes
//
// A filter for n keys begins to double when it is to hold more than 95 % of n, and becomes the larger one at once, with
// nothing in it: the core, the bits and the plan are those of the new size from then on. With every few hundred keys a
// block moves; the last one has moved when there are n keys. A digest leads to one block, and this to one side, so a
// look-up still reads one line. `settle` moves what is left: before the filter is written.
//
// How it doubles is a function of the core alone (doubled_spec), so the sizes that a filter goes through are known when
// it is made. The same fingerprints in a filter of the same size are the same bytes, whatever it grew from.
//
// Invariants: every block is on one side; an exception leaves each where it was. Memory for the new size is claimed
// before anything changes. Pages of blocks that have moved go back to the system part by part; their addresses stay
// reserved, because a buffer of the old bits may be in somebody's hands.
#pragma once

#include <memory>
#include <vector>

#include "evenbins/fingerprint.hpp"

namespace evenbins {

// Keys that a filter with this limit was planned for.
uint64_t fingerprint_keys(uint64_t limit);
// The spec after one more doubling: the slots of all lines together say how many more keys it holds.
Spec doubled_spec(const Spec& spec);

class GrowingFingerprintFilter final : public FingerprintFilter {
 public:
  GrowingFingerprintFilter(Spec spec, Bits bits);
  ~GrowingFingerprintFilter() override;

  size_t add_many(const uint64_t* digests, size_t n) override;
  size_t add_new_many(const uint64_t* digests, size_t n, uint8_t* out) override;
  void contains_many(const uint64_t* digests, size_t n, uint8_t* out) const override;
  void count_many(const uint64_t* digests, size_t n, int64_t* out) const override;
  bool remove(uint64_t digest) override;
  void remove_many(const uint64_t* digests, size_t n, uint8_t* out) override;
  // Before it doubles, or is full.
  uint64_t keys_left() const override;
  Address address() const override;

  uint64_t most_keys() const override { return most_keys_; }
  bool grows() const override { return true; }
  bool is_settled() const override { return old_ == nullptr; }
  void settle(uint32_t threads) override;
  uint64_t nbytes() const override;
  bool grow(uint32_t threads);  // to the next size; false if there is none

  void merge_in(const Filter& other, std::vector<uint64_t>& space) override;
  void clear() override;
  std::unique_ptr<Filter> copy() const override;
  std::vector<uint64_t> level_histogram(uint32_t level) const override;
  std::vector<uint64_t> state() const override;
  std::string check(bool thorough) const override;
  void fingerprints(uint64_t block, std::vector<uint64_t>& out) const override;

 private:
  // One key: digests below `bound` are in `now`. If nothing grows, both are the same.
  struct Sides {
    OneKey now, old;
    uint64_t bound;
    GrowingFingerprintFilter* filter;
    const OneKey& of(uint64_t digest) const { return digest < bound ? now : old; }
  };
  struct Mover;
  template <bool OnlyNew>
  static AddOutcome add_one(const void* sides, uint64_t digest);
  static bool contains_one(const void* sides, uint64_t digest);
  uint64_t copies() const { return state()[0]; }
  uint64_t begin_at() const;  // keys with which the next one makes it double
  bool is_due() const { return old_ == nullptr && spec_.core[7] != 0 && view_.state[0] >= begin_at(); }
  void prepare();  // before a key is added: begins to double, moves blocks; sets until_step_
  void begin();
  void move_blocks(uint64_t end);
  void finish();
  void widen_rest();
  void route();
  void leave_old();
  void release(uint64_t least);
  template <bool OnlyNew>
  size_t add_in_steps(const uint64_t* digests, size_t n, uint8_t* out);
  template <typename Answer, typename Act>
  void each_side(const uint64_t* digests, size_t n, Answer* out, const Act& act) const;

  uint64_t most_keys_;
  Sides sides_{};
  std::unique_ptr<FingerprintFilter> old_;  // what has not moved; null if nothing has to
  std::unique_ptr<Mover> mover_;
  uint64_t moved_ = 0;                       // blocks
  uint64_t until_step_ = 0;                  // keys that can be added before prepare()
  uint64_t first_step_ = 0, last_step_ = 0;  // copies when the growth began, and when it has to be over
  std::vector<Bits> retired_;
};

}  // namespace evenbins

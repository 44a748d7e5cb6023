// The count-min sketch: how often did this key come? Never too few (kirsch, section 3.8; Cormode and
// Muthukrishnan 2005).
//
//     row 0   │ . 3 . . 9 . . │     a key has one counter in each row; an addition adds its weight to all of them,
//     row 1   │ 7 . . 3 . 2 . │     the least of them is the estimate: other keys can only have added to it
//     row 2   │ . . 3 . . . 9 │
//
// Positions of a digest, from the halves of SplitMix64's words seeded by it, scaled to the width w ≤ 2^32 (two keys
// meet with probability 1/w, but for a relative error of w²/2^66):
//
//     classic    row r: a half of word ⌊r/2⌋, the high one first   a hash for each row; any w
//     two-hash   copy c: h1, h2 = the halves of word c;            w prime, so that two keys which meet in two tables
//                table j of it: h1 + j·h2 mod w                    of a copy meet in all: Theorem 3.8.1
//
// Integer core: [construction (1 two-hash, 2 classic), width, depth, copies, conservative (0, 1), epsilon, delta (the
// bits of IEEE doubles)]; rows = depth·copies. Payload: the rows, then the total of the weights and the number of
// additions with a weight above 0.
//
// Invariants: the counters of a row sum to the total, or to at most that in a conservative sketch (which raises a
// counter only as far as the estimate needs). So no counter exceeds the total, and one test, of the total, finds every
// overflow before it happens: the total ends at 2^64 − 1. Likewise additions ≤ total, and an inner product fits 128
// bits.
//
// Threads that add own ranges of the counters: each computes the positions of all keys in the rows where it has some,
// and adds to its own. Additions commute, so the bytes are those of one thread; and what a counter holds just after a
// key was added depends on that counter alone, so the estimates are too. A conservative counter depends on the others
// of its keys: such a sketch is filled by one thread, in order.
//
// Tried and dropped: key by key in bulk, all rows of a key together. Row by row over a batch keeps one row in the
// first-level cache and needs no more than two arrays of positions. A word for each row, scaled by a 128-bit product:
// classic sketches took twice as long without AVX-512.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "evenbins/bits.hpp"
#include "evenbins/countmin_view.hpp"
#include "evenbins/kernel.hpp"
#include "evenbins/spec.hpp"

namespace evenbins {

class CountMinSketch {
 public:
  static constexpr uint64_t kMaxRows = 1024, kMaxWidth = uint64_t{1} << 32, kStateWords = 2;

  static uint64_t payload_bytes(const Spec& spec);  // validates the spec (SpecError)

  CountMinSketch(Spec spec, Bits bits);

  const Spec& spec() const { return spec_; }
  const Bits& bits() const { return bits_; }
  uint64_t total() const { return state_[0]; }
  uint64_t updates() const { return state_[1]; }

  // Adds keys in order, each with its weight (null: 1), until the total would pass 2^64 − 1; returns how many went in.
  // With `estimates`, each key's estimate just after it was added. Threads: as many as pay, `threads` at most.
  size_t add_many(const uint64_t* digests, const uint64_t* weights, size_t n, uint64_t* estimates = nullptr,
                  uint32_t threads = 1);
  // Keys that one call of it should have: for several threads more, since all wait for the slowest.
  uint64_t keys_per_call(uint32_t threads) const;
  void count_many(const uint64_t* digests, size_t n, uint64_t* out) const { loops_.count(view_, digests, n, out); }

  // They throw SpecError with the reason when the sketches do not fit; merge and add_counters throw
  // std::overflow_error, and then nothing has changed. merge leaves the sketch of both streams, and refuses conservative
  // ones, which are not the sum of their parts. add_counters adds these too: each row of the sum still has at least the
  // key's count, and at most what plain counters would have, so the promise holds.
  void merge(const CountMinSketch& other);
  void add_counters(const CountMinSketch& other);
  uint128 inner_product(const CountMinSketch& other) const;

  void clear() { bits_.clear(); }
  std::unique_ptr<CountMinSketch> copy() const { return std::make_unique<CountMinSketch>(spec_, bits_.copy()); }
  bool operator==(const CountMinSketch& other) const {
    return spec_.same_structure(other.spec_) && bits_ == other.bits_;
  }

  std::vector<uint64_t> above(uint64_t value) const;  // for each row: how many counters exceed the value
  std::string check(bool thorough) const;             // as Filter's

 private:
  void add_by_owners(const uint64_t* digests, const uint64_t* weights, size_t n, uint64_t* estimates, uint32_t owners);
  // Without a reason why not, conservative sketches fit too.
  void require_fitting(const CountMinSketch& other, const char* action, const char* why_not_conservative) const;

  Spec spec_;
  Bits bits_;
  bool conservative_;
  CountMinView view_;
  uint64_t* state_;                                 // total, updates
  const CountMinLoops& loops_ = kernel().countmin;  // of the kernel in force when the sketch was made
};

}  // namespace evenbins

// Two simulations for the papers: balls into bins with a limit, the balancing schemes of Kanizo, Hay and
// Keslassy; and, at the end, Bloom filters with little hashing, the schemes of Kirsch's thesis, chapter 3.
//
//     key ──▶ bin of level 0 ──full──▶ bin of level 1 ──full──▶ … ──full──▶ overflow list ──full──▶ spill
//
// A bin of load below its threshold accepts; one at the threshold accepts with probability coin / 2^32.
// SINGLE (section 5) has one level; SEQUENTIAL (section 6) has several in one table, and may have a budget
// of accesses; MHT (section 7) has a table for each level. Bins are numbers here, no bits: what a scheme
// does to a filter is measured on the filter itself.
//
// Invariants
// - Trial t depends on `seed` and t alone: neither on the number of threads nor on the number of trials.
// - An earlier checkpoint tells what the same trial, ended there, would tell.
//
// Instead of the histogram of loads the inner loop keeps one counter for each load i: how many bins have
// grown beyond i. That is one increment a key; the histogram is the difference of neighbours, so that a
// checkpoint costs nothing like a pass over the bins.
//
// Random numbers: xoshiro256++ (Blackman, Vigna 2021), its state from SplitMix64, both from their published
// definition. Two generators a trial: one gives the bins of level 0 and runs ahead of the bins, so that these
// can be prefetched; the other gives all else.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "evenbins/hash.hpp"

namespace evenbins::study {

class Xoshiro {
 public:
  explicit Xoshiro(uint64_t seed) {
    for (uint64_t i = 0; i < 4; ++i) s_[i] = splitmix(seed, i);
  }

  uint64_t operator()() {
    const uint64_t out = std::rotl(s_[0] + s_[3], 23) + s_[0], shifted = s_[1] << 17;
    s_[2] ^= s_[0];
    s_[3] ^= s_[1];
    s_[1] ^= s_[2];
    s_[0] ^= s_[3];
    s_[2] ^= shifted;
    s_[3] = std::rotl(s_[3], 45);
    return out;
  }

 private:
  std::array<uint64_t, 4> s_;
};

inline constexpr uint32_t kMostChoices = 8;
inline constexpr uint64_t kMostThreshold = 65534;
inline constexpr uint64_t kNoLimit = UINT64_MAX;

// Where a key goes when its bins are full and the list is too.
enum class Spill { random, least };  // to any of its bins; to the one of least load, ties to the earlier

struct Balance {
  std::vector<uint64_t> bins;        // of each table
  std::vector<uint64_t> thresholds;  // of each table
  uint64_t coin = 0;                 // accepts at the threshold with probability coin / 2^32
  uint32_t choices = 1;              // levels: all in the one table, or one table each
  uint64_t budget = kNoLimit;        // accesses; a key that comes when they are spent goes to the list unread
  uint64_t overflow_limit = kNoLimit;
  Spill spill = Spill::random;

  void check() const;  // throws std::invalid_argument
};

// One trial at one checkpoint. loads[t][i]: bins of table t that hold i keys.
struct Snapshot {
  uint64_t overflow = 0, spilled = 0, accesses = 0;
  std::vector<std::vector<uint64_t>> loads;
};

// Snapshots of every trial, at the numbers of keys `checkpoints` (not descending). `pulse` is called by the
// calling thread some times a second; once it answers false the work stops and the result is empty.
std::vector<std::vector<Snapshot>> simulate(const Balance& balance, const std::vector<uint64_t>& checkpoints,
                                            uint64_t trials, uint64_t seed, uint32_t threads,
                                            const std::function<bool()>& pulse);

// A filter of `bits` bits is filled with `keys` keys and asked for `queries` others; how many does it take for
// its own? Keys are no keys here: each draws its h1, h2, h3, fully random, and that is all a filter sees of it.
//
//     independent       k draws
//     partition         part i: h1 + i h2 mod m/k; m/k is rounded down, bits that are left over stay unused
//     double            h1 + i h2 mod m
//     enhanced_double   h1 + i h2 + f(i) mod m, f(i) = i^2, i^3 or (i^3 - i) / 6
//     triple            h1 + i h2 + i(i-1)/2 h3 mod m
//
// h2 = 0 and common divisors with m are drawn like everything else. Trial t depends on seed and t alone.
enum class Hashing { independent, partition, double_, enhanced_square, enhanced_cube, enhanced_tetrahedral, triple };

inline constexpr uint32_t kMostHashes = 64;

struct HashingTrial {
  uint64_t positives = 0;  // of the queries
  uint64_t set_bits = 0;
};

std::vector<HashingTrial> simulate_hashing(Hashing hashing, uint64_t bits, uint32_t hashes, uint64_t keys,
                                           uint64_t queries, uint64_t trials, uint64_t seed, uint32_t threads,
                                           const std::function<bool()>& pulse);

}  // namespace evenbins::study

// Summaries of multilevel tables, by simulation: Kirsch's thesis, chapter 4.
//
//     key ──▶ T_1 ──taken──▶ T_2 ──taken──▶ … ──taken──▶ T_d ──taken──▶ crisis      buckets of one slot
//
// S_i are the keys not placed in T_1 … T_i; a key has type i if it is in T_i. Hashing is fully random, and a key is
// nothing but its hash values. So the table needs no keys: |S_i| is what |S_{i-1}| throws into m_i buckets leave over.
//
//     simulate_summaries   do the filters tell every key's type? (sections 4.7, 4.9)
//     simulate_counters    the largest counter of each filter (4.10.2)
//     simulate_rebuilds    how many keys does a rebuild move, after deletions? (4.10.1)
//     simulate_song        Song et al.'s counters with pruning: where are two keys in a bucket? (4.3)
//
// Invariant: trial t depends on `seed` and t alone: neither on the number of threads nor on the number of trials.
//
// Random numbers: one Xoshiro a trial (simulate.hpp), one word for each hash value, in the order said below; hash
// values that nothing depends on are not drawn. That is what makes a million trials cheap: nine of ten keys are of type
// 1 and are told right by the first of their cells that no key of a higher type has.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace evenbins::study {

using Counts = std::vector<uint64_t>;
using TrialPulse = std::function<bool(uint64_t)>;  // told the trials done; false stops the work, the result is empty

// Filters that give types. `shared`: one filter, cells of the largest type (4.7.1), filters[0]. Else B_0 … B_{d-1}
// (4.7.2): B_i has the keys of S_i, and a key of type i fails if B_i has it.
//
// Draws: the buckets, level by level. Shared: from the highest type to the lowest, all positions of each key (of type 1
// only up to the first cell of no higher type, unless there are queries). Else for i = 1 … d-1, if S_i is not empty:
// its keys' positions, and those of each key of type i up to the first that is not set. Then the queries, in B_0 or
// the shared filter, each up to the first that is not set; before them, without `shared`, the keys of B_0.
struct SummarySimulation {
  struct Filter {
    uint64_t cells = 1;
    uint32_t hashes = 1;
  };
  uint64_t keys = 0;
  std::vector<uint64_t> sizes;  // of the sub-tables
  std::vector<Filter> filters;
  bool shared = true;
  bool partitioned = true;  // hash h has cells of its own, cells / hashes of them
  uint64_t queries = 0;     // of absent keys

  void check() const;  // throws std::invalid_argument
};

// [trial * levels + i]: |S_{i+1}|, and keys of type i+1 whose type is not told right. positives: of the queries.
struct SummaryCounts {
  Counts passed, failures, positives;
};

SummaryCounts simulate_summaries(const SummarySimulation& simulation, uint64_t trials, uint64_t seed, uint32_t threads,
                                 const TrialPulse& pulse);

// Counting filters B_0 … B_{d-1}, never partitioned; where once[i] a key moves a counter by one though several of its
// hash values fall there. [trial * levels + i]: the largest counter of B_i, 65535 if it is more. Draws: the buckets,
// then filter by filter all positions of all its keys.
Counts simulate_counters(const SummarySimulation& simulation, const std::vector<bool>& once, uint64_t trials,
                         uint64_t seed, uint32_t threads, const TrialPulse& pulse);

// `keys` insertions, `deleted` deletions, of random keys or (first_only) of random keys of T_1, of all of these if they
// are fewer; then the rebuild: for i = 2 … d, for the keys in the buckets of T_i in turn, each moves to its leftmost
// empty bucket left of T_i, if there is one. Draws: key by key its buckets up to the one that takes it; then the
// deletions, a shuffle's first steps.
struct RebuildCounts {
  Counts moves, into_first, crisis;  // [trial]: keys moved; of these, into T_1; keys that found no place at all
};

RebuildCounts simulate_rebuilds(uint64_t keys, const std::vector<uint64_t>& sizes, uint64_t deleted, bool first_only,
                                uint64_t trials, uint64_t seed, uint32_t threads, const TrialPulse& pulse);

// Each key moves the counters of `hashes` buckets, equal ones several times, and is then kept in the one of the least
// counter, ties to the lowest bucket.
struct SongCounts {
  Counts largest;  // [trial]: keys in the fullest bucket
  Counts crowded;  // keys beyond the first of their bucket
  Counts counted;  // counters that are not zero
  Counts highest;  // the largest counter
  Counts stuck;    // keys whose counters are all at least `full`, which counters of few bits cannot tell apart
};

SongCounts simulate_song(uint64_t keys, uint64_t buckets, uint32_t hashes, uint64_t full, uint64_t trials,
                         uint64_t seed, uint32_t threads, const TrialPulse& pulse);

}  // namespace evenbins::study

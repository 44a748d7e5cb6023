// Hash rings with bounded loads, by simulation: the experiments of Chen, Coleman and Shrivastava (appendices J, L–R).
//
//     key ──first probe──▶ a place with a bin ──full──▶ the policy's next ──full──▶ … ──▶ a bin with room
//
//     layouts   sparse   bins · copies places, drawn at random in an array of 2^array_bits, a taken one drawn again
//                        (Appendix M)
//               dense    bins · copies slots and `empty` slots without a bin, in a random order; a draw is f(w, slots)
//                        (below), which is uniform: on it the arcs are equal
//     policies  plain        the bin of the first probe, full or not
//               clockwise    CH-BL: from the first probe upwards, cyclic, to the first bin with room
//               rehash       Appendix Q: on a full bin the key draws a new index and takes the next bin upwards
//               rehash_bin   section 2.5: bin i overflows to h(i); the places in one random cyclic order
//               jump         RJ-CH: the key draws indices until one has a bin with room
//
// A *search* is a place with a bin that is looked at, the first and repeats counted; a *step* is an index looked at,
// with or without a bin. Steps are of an array of 2^step_bits into which the small one is mapped: a bin of place p sits
// at the last of the indices that p became, so that "the next bin" is the same in both. On the dense layout steps are
// slots.
//
// A sparse array is nearly empty, and a jump into it ends on an occupied place only once in 2^array_bits / places
// draws. These draws are independent and uniform, so the occupied place where one ends is uniform too and independent
// of how many went before: it is drawn directly, and the number of draws is geometric of mean 2^step_bits / places.
// (The twin has a literal version; a test compares the two.)
//
// Full bins are skipped by pointers (union-find); searches and steps are counted as if one had walked.
//
// What happens in a trial
// - churn (Appendix P): `keys` and `bins` are first changed. Events until `keys` of them were about keys; an event is
//   about a bin with probability bins / (keys + bins); it is an arrival or a departure with probability 1/2 each. The
//   limit stays. If no room is left for one key more, the walk is drawn again. Then keys are placed from scratch.
// - bias (Appendix N): a draw gives one fixed index with this probability, a place with a bin (`bias_on_bin`) or one
//   without, else any. Once a biased bin is full, jump ignores it: it would only be searched again.
// - All keys are placed; counts are taken; one more key is looked after, not placed: `searches`, `steps`.
// - remove (Figures 20–22): a random bin is removed, its keys are placed anew, by their old draws and by the same
//   limit.
//
// Invariants
// - Trial t depends on `seed` and t alone: neither on the number of threads nor on the number of trials.
// - No load is above the limit, except by `plain`.
//
// Random numbers: one Xoshiro a trial (simulate.hpp): churn; places; for rehash_bin their order; a word d for each key,
// whose draw c is splitmix(d, c); then what is measured. Draw c is biased if and only if
// (splitmix(its word, 62) >> 11) < chance · 2^53.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "evenbins/dense_slot.hpp"
#include "evenbins/hash.hpp"

namespace evenbins::study {

struct RingSimulation {
  enum class Policy { plain, clockwise, rehash, rehash_bin, jump };
  enum class Layout { sparse, dense };

  Policy policy = Policy::jump;
  Layout layout = Layout::sparse;
  uint64_t bins = 1;
  uint64_t copies = 1;  // places of a bin
  uint64_t keys = 0;
  uint64_t limit = 1;  // keys of a bin; for plain only what counts as full
  uint64_t empty = 0;  // slots without a bin, dense only
  uint32_t array_bits = 20;
  uint32_t step_bits = 32;
  double bias = 0;
  bool bias_on_bin = false;
  bool churn = false;
  bool remove = false;

  void check() const;  // throws std::invalid_argument
};

// One entry a trial; loads[t * (limit + 1) + i]: bins with i keys, the last: with `limit` or more.
struct RingCounts {
  std::vector<uint64_t> keys, bins;                // after churn
  std::vector<double> variance;                    // of the loads, over the bins
  std::vector<uint64_t> max_load;                  //
  std::vector<uint64_t> first_full;                // keys placed when the first bin became full; UINT64_MAX: none did
  std::vector<uint64_t> searches, steps;           // of one key more
  std::vector<uint64_t> all_searches, all_hashes;  // of all placements; hash evaluations, dense only
  std::vector<uint64_t> removed, removed_searches, removed_steps;  // keys of the removed bin; sums over them
  std::vector<uint64_t> loads;
};

// `pulse` is called by the calling thread some times a second with the number of trials done; once it answers
// false the work stops and the result is empty.
using RingPulse = std::function<bool(uint64_t)>;
RingCounts simulate_rings(const RingSimulation& simulation, uint64_t trials, uint64_t seed, uint32_t threads,
                          const RingPulse& pulse);

// The variance of the bins' chances to get the next key, over the bins that are not full, when j = 0 … bins − 1 are
// full (Figure 7): [trial * bins + j]. Arcs are equal, or those of `bins` random points. Bins fill by keys, clockwise,
// with this limit; or, with limit 0, in random order, as Theorem 6 assumes.
std::vector<double> simulate_ring_shares(uint64_t bins, uint64_t limit, bool random_arcs, uint64_t trials,
                                         uint64_t seed, uint32_t threads, const RingPulse& pulse);

// Nanoseconds for one key more (Figures 6, 13, 19), and for one key of a removed bin (Figure 22): an array of
// 2^array_bits places is walked literally, hash by hash. The mean over up to `probes` keys, of each trial;
// removed: negative if the removed bin had no key. The only numbers here that no seed decides.
struct RingTimes {
  std::vector<double> insert, removed;
};
RingTimes time_rings(const RingSimulation& simulation, uint64_t probes, uint64_t trials, uint64_t seed,
                     const RingPulse& pulse);

}  // namespace evenbins::study

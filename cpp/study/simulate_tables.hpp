// Multilevel hash tables that move at most one key, by simulation: the schemes of Kirsch's thesis, chapter 5.
//
//     key x ──▶ T_1[h_1(x)] ──full──▶ T_2[h_2(x)] ──full──▶ … ──full──▶ T_d[h_d(x)] ──full──▶ overflow list
//                    └── y, already there, may move to a bucket of its own further right: x takes its cell
//
// A key here is nothing but its hash values, one bucket for each level, drawn when it arrives; that is all a
// scheme sees of a key. Buckets have `slots` cells.
//
//     standard        the leftmost level with room (section 5.2; 5.7 for two slots)
//     conservative    if there is none, the leftmost unmarked cell of x's buckets, the last level's left out, is
//                     marked and its y moves to the leftmost level right of it with room, if there is one (5.4)
//     second_chance   at each level i, if neither T_i nor T_{i+1} has room for x: the first y in x's bucket of T_i
//                     that finds room in T_{i+1} moves there (Figure 5.1; 5.7 for two slots)
//     extreme_any     of x and all y in its full buckets, the one whose leftmost level with room is leftmost goes
//                     there, ties to x and then to the leftmost y (5.6)
//     extreme_right   the same, but a y may only move to the right of where it is
//
// Without deletions the two extremes are the same: a bucket that was full when y passed it stays full. The thesis
// has one cell in a bucket for the conservative and the extreme scheme; with more cells a mark belongs to a cell,
// and y are tried in the order of their cells.
//
// Processes, from an empty table:
//     insert    `keys` insertions, then one sample
//     replace   `keys` insertions, then steps: a new key is inserted and a random other one deleted (model 1 of 5.9);
//               burn_in * keys of them, then samples after step 1, 1 + interval, …
//     poisson   arrivals at rate `keys`, lifetimes exponential of mean 1 (model 2); from time burn_in on, samples
//               after transition 1, 1 + interval, …; a transition is an arrival or a departure
//
// A deleted key is removed from its cell or from the list, and that is all: nobody takes its place until a later
// insertion does. A mark is cleared when its cell becomes empty. A key takes the first empty cell of a bucket.
//
// Invariants
// - Trial t depends on `seed` and t alone: neither on the number of threads nor on the number of trials.
// - keys of the levels + overflow = keys in the system.
//
// Random numbers: one Xoshiro a trial (simulate.hpp). An insertion draws one word for each level, whether it looks
// there or not, so that a key's hash values do not depend on the scheme; a step of `replace` then draws its victim;
// a transition of `poisson` draws its time, then one word for its sort and its victim.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace evenbins::study {

inline constexpr uint32_t kMostLevels = 16;
inline constexpr uint32_t kMostSlots = 8;

struct TableSimulation {
  enum class Scheme { standard, conservative, second_chance, extreme_any, extreme_right };
  enum class Process { insert, replace, poisson };

  Scheme scheme = Scheme::standard;
  std::vector<uint64_t> buckets;  // of each level
  uint32_t slots = 1;
  Process process = Process::insert;
  uint64_t keys = 0;
  double burn_in = 30;  // in units of `keys` steps, or of mean lifetimes
  uint64_t samples = 1;
  uint64_t interval = 1;

  void check() const;  // throws std::invalid_argument
};

// Counts of all trials, trial by trial, in each sample by sample. arrivals: keys inserted so far; moves: of these,
// insertions that moved a key; overflow: keys on the list now; held: keys in the levels now, level by level.
struct TableCounts {
  std::vector<uint64_t> arrivals, moves, overflow, held;
};

// `pulse` is called by the calling thread some times a second with the number of trials done; once it answers
// false the work stops and the result is empty.
TableCounts simulate_tables(const TableSimulation& simulation, uint64_t trials, uint64_t seed, uint32_t threads,
                            const std::function<bool(uint64_t)>& pulse);

}  // namespace evenbins::study

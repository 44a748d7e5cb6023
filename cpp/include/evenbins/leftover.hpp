// How many keys a sub-table turns away: the exact law, for any law of the keys that come to it.
//
//     |S_{i-1}| keys ──▶ T_i, one slot a bucket ──bucket taken──▶ |S_i| keys
//
// Kirsch's thesis, section 4.11.3. After j keys l of them were turned away, so j - l buckets are taken; the next key
// finds its bucket taken with chance (j - l) / m:
//
//     p_{j+1}[l] = p_j[l] (m - j + l) / m  +  p_j[l-1] (j - l + 1) / m
//
// All terms are positive and the numerators are exact, so nothing cancels. 1/m is rounded, the same for all l: dividing
// p by its sum every few steps takes that out again, and what remains is the rounding of neighbours, which averages
// out. Only the band of entries of at least `tiny` is kept; the mass dropped is summed in `lost`, so that every
// probability is too small by at most that.
//
// Tried and dropped: NumPy, 2.4 s for 100,000 keys, too slow for a calculator that asks many times; the closed
// form by Stirling numbers and a contour integral, whose phases lose digits in proportion to the keys.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace evenbins {

struct Leftover {
  uint64_t first = 0;          // chance[0] belongs to this many keys
  std::vector<double> chance;  // P(|S_i| = first + t)
  std::vector<double> held;    // E[keys in T_i; |S_i| = first + t], the sum over j of P(j) P(l | j) (j - l)
  double lost = 0;             // mass dropped, at most
};

// `prior[t]` is P(|S_{i-1}| = first + t). `pulse` is called now and then; once it answers false the work stops and the
// result is empty.
Leftover leftover(uint64_t first, const std::vector<double>& prior, uint64_t buckets, double tiny,
                  const std::function<bool()>& pulse);

}  // namespace evenbins

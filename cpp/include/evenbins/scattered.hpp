// The numbers 0 … n−1 in a random order, always the same one, without memory for it.
//
// Multiplications by odd numbers and shifts permute the numbers below the next power of two; a number that lands at n
// or above is permuted again until it lands below, twice in the mean at most. For items that must not be stored in the
// order in which they lie: a table's slots are sorted by hashes, and another table of the same seed that is filled in
// this order fills unevenly (least-loaded: 2.5 times the overflow).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace evenbins {

class Scattered {
 public:
  explicit Scattered(uint64_t n)
      : n_(n),
        bits_(static_cast<uint32_t>(std::bit_width(n > 0 ? n - 1 : 0))),
        mask_(bits_ == 64 ? ~uint64_t{0} : (uint64_t{1} << bits_) - 1) {}

  uint64_t operator()(uint64_t i) const {  // i < n
    do i = permuted(i);
    while (i >= n_);
    return i;
  }

 private:
  uint64_t permuted(uint64_t i) const {
    const uint32_t shift = std::max(1u, (bits_ + 1) / 2);
    for (const uint64_t factor : {0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu}) {
      i = (i * factor + (factor >> 32)) & mask_;
      i ^= i >> shift;
    }
    return i;
  }

  uint64_t n_;
  uint32_t bits_;
  uint64_t mask_;
};

}  // namespace evenbins

// A count-min sketch (countmin.hpp) as its inner loops see it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace evenbins {

struct CountMinView {
  uint64_t* counters;  // row by row
  uint64_t width, depth, rows;
  bool two_hash;
};

struct CountMinLoops {
  // Adds the keys' weights (null: 1) to those of their counters that are among first … last−1, numbered from the first
  // row on. With `least`, least[i] becomes at most what each of these holds just after key i was added.
  void (*add)(const CountMinView&, uint64_t first, uint64_t last, const uint64_t* digests, const uint64_t* weights,
              size_t n, uint64_t* least);
  // Raises the counters of one key after the other, only as far as its estimate needs; with `estimates`, these.
  void (*add_conservatively)(const CountMinView&, const uint64_t* digests, const uint64_t* weights, size_t n,
                             uint64_t* estimates);
  void (*count)(const CountMinView&, const uint64_t* digests, size_t n, uint64_t* out);
};

}  // namespace evenbins

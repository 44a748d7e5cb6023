// A counting filter (counting.hpp) as its inner loops see it, and these loops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenbins/one_key.hpp"

namespace evenbins {

inline constexpr uint32_t kMaxFlatHashes = 64;

struct CountingView {  // counters in place of bits (counting.hpp)
  uint64_t* words;
  uint64_t size;  // counters, or blocks of 512 bits if a key's counters lie in one
  uint32_t hashes;
};

struct CountingLoops {  // for one width of counters and layout
  OneKey one;           // of a CountingView still to be named
  bool (*remove)(const CountingView&, uint64_t digest);
  void (*add_many)(const CountingView&, const uint64_t* digests, size_t n);
  void (*add_new_many)(const CountingView&, const uint64_t* digests, size_t n, uint8_t* out);
  void (*contains_many)(const CountingView&, const uint64_t* digests, size_t n, uint8_t* out);
  void (*remove_many)(const CountingView&, const uint64_t* digests, size_t n, uint8_t* out);
  void (*count_many)(const CountingView&, const uint64_t* digests, size_t n, int64_t* out);
  // Counters anywhere: the distinct positions of the keys, kNoCounter for each that repeats one of its key; null
  // where a key's counters lie in one block.
  void (*positions)(const CountingView&, const uint64_t* digests, size_t n, uint64_t* out);
  void (*add_positions)(const CountingView&, const uint64_t* positions, size_t n);
};

}  // namespace evenbins

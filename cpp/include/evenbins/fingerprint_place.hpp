// Where the runs of a line of a fingerprint filter are, as text for every kernel and for the GPU
// (cpp/cuda/fingerprint.cuh): fingerprint.hpp says what a line is.
#pragma once

#include <type_traits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "evenbins/fingerprint_view.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

// Entry [n][byte]: the n-th set bit of a byte.
struct BitsOfBytes {
  uint8_t nth[8][256];
};
constexpr BitsOfBytes kBitsOfBytes = [] {
  BitsOfBytes table{};
  for (uint32_t byte = 0; byte < 256; ++byte)
    for (uint32_t bit = 0, n = 0; bit < 8; ++bit)
      if ((byte >> bit & 1) != 0) table.nth[n++][byte] = static_cast<uint8_t>(1u << bit);
  return table;
}();

// By sums over bytes (Vigna, "Broadword implementation of rank/select queries", 2008), and a table for the last byte.
EVENBINS_INLINE uint64_t nth_bit_by_sums(uint64_t x, uint32_t n) {
  constexpr uint64_t kOnes = 0x0101010101010101, kTops = 0x8080808080808080;
  uint64_t sums = x - (x >> 1 & 0x5555555555555555);
  sums = (sums & 0x3333333333333333) + (sums >> 2 & 0x3333333333333333);
  sums = ((sums + (sums >> 4)) & 0x0F0F0F0F0F0F0F0F) * kOnes;  // byte j: set bits in bytes 0 … j
  if (n >= sums >> 56) return 0;
  const uint64_t reached = ((sums | kTops) - (n + 1) * kOnes) & kTops;
  const auto at = static_cast<uint32_t>(__builtin_ctzll(reached)) - 7;
  const uint64_t before = sums << 8 >> at & 0xFF;
  return uint64_t{kBitsOfBytes.nth[n - before][x >> at & 0xFF]} << at;
}

// The n-th set bit of x (n = 0: the lowest; n < 64) alone, or 0.
EVENBINS_INLINE uint64_t nth_bit(uint64_t x, uint32_t n, [[maybe_unused]] bool slow_pdep) {
#if defined(__AVX512BW__)
  return _pdep_u64(uint64_t{1} << n, x);  // no processor with AVX-512 is slow at it
#elif defined(__BMI2__)
  return slow_pdep ? nth_bit_by_sums(x, n) : _pdep_u64(uint64_t{1} << n, x);
#else
  return nth_bit_by_sums(x, n);
#endif
}

EVENBINS_INLINE uint32_t ones(uint64_t x) { return static_cast<uint32_t>(__builtin_popcountll(x)); }
EVENBINS_INLINE uint32_t ones(RunEnds x) {
  return ones(static_cast<uint64_t>(x)) + ones(static_cast<uint64_t>(x >> 64));
}
EVENBINS_INLINE uint32_t lowest(uint64_t x) { return static_cast<uint32_t>(__builtin_ctzll(x)); }  // not of 0
EVENBINS_INLINE uint32_t lowest(RunEnds x) {
  const auto low = static_cast<uint64_t>(x);
  return low != 0 ? lowest(low) : 64 + lowest(static_cast<uint64_t>(x >> 64));
}
EVENBINS_INLINE RunEnds nth_bit(RunEnds x, uint32_t n, bool slow_pdep) {
  const auto low = static_cast<uint64_t>(x), high = static_cast<uint64_t>(x >> 64);
  const uint32_t below = ones(low);
  return n < below ? RunEnds{nth_bit(low, n, slow_pdep)} : RunEnds{nth_bit(high, n - below, slow_pdep)} << 64;
}

EVENBINS_INLINE uint32_t used_slots(uint64_t ends) {
  return ends == 0 ? 0 : 64 - static_cast<uint32_t>(__builtin_clzll(ends));
}
EVENBINS_INLINE uint32_t used_slots(RunEnds ends) {
  const auto high = static_cast<uint64_t>(ends >> 64);
  return high != 0 ? 64 + used_slots(high) : used_slots(static_cast<uint64_t>(ends));
}

enum class Removal : uint8_t { absent, removed, makes_room, elsewhere };

// A line without byte planes may have more than 64 slots.
template <uint32_t Planes>
struct LinePlaces {
  using Mask = std::conditional_t<Planes == 0, RunEnds, uint64_t>;

  EVENBINS_INLINE static Mask ends_of(const uint64_t* line, const FingerprintShape& g) {
    if constexpr (Planes == 0) return load_ends(line, g);
    uint64_t word;  // 53 slots at most: they lie in eight bytes from the first on
    __builtin_memcpy(&word, reinterpret_cast<const uint8_t*>(line) + g.quotients / 8, 8);
    return word >> g.quotients % 8 & ((uint64_t{1} << g.slots) - 1);
  }
  EVENBINS_INLINE static void set_head(uint64_t* line, const FingerprintShape& g, uint64_t occupied, Mask ends) {
    if constexpr (Planes == 0) return store_head(line, g, occupied, ends);
    line[0] = (line[0] & ~g.head[0]) | occupied | static_cast<uint64_t>(ends) << 32 << (g.quotients - 32);
    line[1] = (line[1] & ~g.head[1]) | static_cast<uint64_t>(ends >> (64 - g.quotients));
  }

  // Where a quotient's run is. `start`: the first slot of the run, or where it would begin; 0 if the line does not reach
  // so far. `end`: behind its last slot, if it is occupied, else `start`; 0 if the line does not hold it.
  struct Place {
    uint64_t occupied;
    Mask ends, start, end;
    bool is_occupied;

    EVENBINS_INLINE Place(const uint64_t* line, const FingerprintShape& g, uint32_t quotient, bool slow_pdep)
        : occupied(load_occupied(line, g)), ends(ends_of(line, g)), is_occupied((line[0] >> quotient & 1) != 0) {
      const uint32_t rank = ones(line[0] & ((uint64_t{1} << quotient) - 1));
      const Mask marks = 2 * ends + 1;
#if defined(__AVX512BW__)
      if constexpr (Planes != 0) {
        const uint64_t one = uint64_t{1} << rank;
        start = _pdep_u64(one, marks);
        end = _pdep_u64(one << is_occupied, marks);
        return;
      }
#endif
      start = nth_bit(marks, rank, slow_pdep);
      const Mask behind = marks & -(start << is_occupied);
      end = behind & -behind;
    }
    // The run ends with a slot more, or `count` less. A run grows by a 0 at its start, wherever the new slot is; a new run
    // is a 1 there.
    EVENBINS_INLINE Mask ends_with_slot() const { return ends + (ends & -start) + (end == start ? start : Mask{0}); }
    EVENBINS_INLINE Mask ends_without(uint32_t count) const { return (ends & (start - 1)) | (ends >> count & -start); }
    EVENBINS_INLINE bool is_elsewhere() const { return is_occupied && end == 0; }
    EVENBINS_INLINE Mask run() const { return end - start; }  // unless it is elsewhere
  };
};

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

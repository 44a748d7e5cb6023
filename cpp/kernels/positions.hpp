// Positions anywhere in a memory, as text for every kernel (body.hpp): of the standard filter, of counters, of sketches.
#pragma once

#include "evenbins/hash.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

// mulhi(x, m) from 32-bit products, which vectorise, when m has at most 32 bits.
EVENBINS_INLINE uint64_t mulhi_narrow(uint64_t x, uint64_t m) {
  return ((x >> 32) * m + ((x & 0xFFFFFFFF) * m >> 32)) >> 32;
}

// The same for any m, where there are vectors: 8 positions in a filter of 1 GiB take 5 ns instead of 14 (AVX-512).
EVENBINS_INLINE uint64_t mulhi_wide(uint64_t x, uint64_t m) {
#if defined(__AVX2__)
  const uint64_t high = x >> 32, low = x & 0xFFFFFFFF, m_high = m >> 32, m_low = m & 0xFFFFFFFF;
  const uint64_t middle = high * m_low + (low * m_low >> 32), other = low * m_high + (middle & 0xFFFFFFFF);
  return high * m_high + (middle >> 32) + (other >> 32);
#else
  return mulhi(x, m);
#endif
}

// Position i of n digests.
template <bool Narrow>
EVENBINS_INLINE void column(uint64_t bits, uint64_t i, const uint64_t* digests, size_t n, uint64_t* out) {
  for (size_t j = 0; j < n; ++j) {
    const uint64_t word = splitmix(digests[j], i);
    out[j] = Narrow ? mulhi_narrow(word, bits) : mulhi_wide(word, bits);
  }
}
void column(uint64_t bits, uint64_t i, const uint64_t* digests, size_t n, uint64_t* out) {
  if (bits <= 0xFFFFFFFF)
    column<true>(bits, i, digests, n, out);
  else
    column<false>(bits, i, digests, n, out);
}

// Both halves of word i of n digests, scaled to 0 … width−1; width ≤ 2^32.
void pair_positions(uint64_t width, uint64_t i, const uint64_t* digests, size_t n, uint64_t* first, uint64_t* second) {
  for (size_t j = 0; j < n; ++j) {
    const uint64_t word = splitmix(digests[j], i);
    first[j] = scale_high_half(word, width);
    second[j] = scale_low_half(word, width);
  }
}

// Keys that a standard filter treats together, column by column: long enough that the few reads which
// start a column, and nobody has asked for in time, do not count. Tried and dropped: 128 keys with all
// reads of a column requested at once. That is more than a core can keep in flight, and takes 1.6 times as
// long at 256 MiB.
constexpr size_t kGroup = 1024;

// Where to prefetch for a position. By a number, not a pointer: there is no pointer for kNoCounter.
template <uint32_t WordLog>
EVENBINS_INLINE const void* near_word(const uint64_t* words, uint64_t position) {
  return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(words) + 8 * (position >> WordLog));
}

// Calls f(j, position) for j = 0 … n−1, with the words of the next positions on their way: 2^WordLog positions to a
// word.
template <int ForWriting, uint32_t WordLog, typename F>
EVENBINS_INLINE void each_position(const uint64_t* words, const uint64_t* positions, size_t n, F&& f) {
  const auto at = [&](size_t j) { return near_word<WordLog>(words, positions[j]); };
  for (size_t j = 0; j < kAhead && j < n; ++j) __builtin_prefetch(at(j), ForWriting);
  for (size_t j = 0; j < n; ++j) {
    if (j + kAhead < n) __builtin_prefetch(at(j + kAhead), ForWriting);
    f(j, positions[j]);
  }
}

// Column i tests position i of every key that is still alive, and keeps those whose bit is set: an absent
// key costs about two reads, a present one k. `has(position)`; `f` is a view of `size` bits or counters.
template <uint32_t WordLog, typename View, typename Has>
EVENBINS_INLINE void flat_contains(const View& f, uint64_t size, const uint64_t* digests, size_t n, uint8_t* out,
                                   Has&& has) {
  uint64_t alive[kGroup], positions[kGroup];
  uint16_t index[kGroup];
  for (; n > 0;) {
    const size_t g = n < kGroup ? n : kGroup;
    for (size_t j = 0; j < g; ++j) {
      alive[j] = digests[j];
      index[j] = static_cast<uint16_t>(j);
      out[j] = 0;
    }
    size_t left = g;
    for (uint32_t i = 0; i < f.hashes && left > 0; ++i) {
      column(size, i, alive, left, positions);
      size_t kept = 0;
      each_position<0, WordLog>(f.words, positions, left, [&](size_t j, uint64_t p) {
        alive[kept] = alive[j];
        index[kept] = index[j];
        kept += has(p);
      });
      left = kept;
    }
    for (size_t j = 0; j < left; ++j) out[index[j]] = 1;
    digests += g;
    out += g;
    n -= g;
  }
}

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

// NumPy's strings of fixed width: the end of an element's padding, and code points of 32 bits as bytes.
//
//     S   bytes, padded with NULs           used_bytes: from the end, 16 bytes at a time
//     U   code points, padded with NULs     narrow: many elements at once, by vector; if every code point is ASCII, the
//                                           result is an `S` array of the same keys (Padded reads both, arrays.hpp)
//
// Everything reads inside the element only: it may be the last one before an unmapped page.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace evenbins::python {

template <typename T>
T load_as(const char* p) {
  T word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

inline uint64_t word_of_bytes(const char* p, size_t n) {  // n ≤ 8, the rest 0
  if (n == 8) return load_as<uint64_t>(p);
  if (n >= 4) return load_as<uint32_t>(p) | uint64_t{load_as<uint32_t>(p + n - 4)} << 8 * (n - 4);
  uint64_t word = 0;
  for (size_t i = 0; i < n; ++i) word |= uint64_t{static_cast<uint8_t>(p[i])} << 8 * i;
  return word;
}
inline size_t bytes_of_word(uint64_t word) { return static_cast<size_t>(std::bit_width(word) + 7) / 8; }

inline bool is_zero_line(const char* p) {  // of 64 bytes
  uint64_t any = 0;
  for (size_t i = 0; i < 64; i += 8) any |= load_as<uint64_t>(p + i);
  return any == 0;
}

// The length of an element without its padding. Branches depend on the width, or on whether the element is full.
inline size_t used_bytes(const char* p, size_t width) {
  if (width == 0 || p[width - 1] != 0) return width;
  while (width > 64 && is_zero_line(p + width - 64)) width -= 64;
  if (width <= 8) return bytes_of_word(word_of_bytes(p, width));
  const size_t before = width > 64 ? width - 64 : 0;
#if defined(__SSE2__)
  const auto nonzero = [](__m128i bytes) {  // a bit for each byte that is not 0
    const auto zeros = static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128())));
    return static_cast<uint64_t>(~zeros & 0xFFFF);
  };
  uint64_t mask = 0;
  if (width <= 16) {  // the first eight and the last eight bytes, which may overlap
    const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i last = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + width - 8));
    const uint64_t both = nonzero(_mm_unpacklo_epi64(first, last));
    mask = (both & 0xFF) | both >> 8 << (width - 8);
  } else {
    const auto at = [&](size_t i) { return nonzero(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i))); };
    for (size_t i = before; i + 16 < width; i += 16) mask |= at(i) << (i - before);
    mask |= at(width - 16) << (width - 16 - before);
  }
  return mask == 0 ? 0 : before + static_cast<size_t>(std::bit_width(mask));
#else
  size_t used = 0;
  for (size_t at = before; at < width; at += 8) {
    const size_t from = at + 8 < width ? at : width - 8;  // overlaps the one before
    const uint64_t word = load_as<uint64_t>(p + from);
    used = word == 0 ? used : from + bytes_of_word(word);
  }
  return used;
#endif
}

// Narrows n code points, in the other byte order if `swapped`, to bytes; false if one of them is not ASCII. The loops
// have no branch, so that the compiler vectorises them.
inline bool narrow(const char* from, size_t n, bool swapped, char* to) {
  uint32_t any = 0;
  const auto at = [from](size_t i) { return load_as<uint32_t>(from + 4 * i); };
  if (swapped) {
    for (size_t i = 0; i < n; ++i) {
      any |= at(i);
      to[i] = static_cast<char>(at(i) >> 24);
    }
    return (any & 0x80FFFFFF) == 0;
  }
  for (size_t i = 0; i < n; ++i) {
    any |= at(i);
    to[i] = static_cast<char>(at(i));
  }
  return any < 0x80;
}

}  // namespace evenbins::python

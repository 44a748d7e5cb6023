// AVX-512 (F, DQ, BW, VL): one multiplication makes all sixteen positions, one permutation fetches their
// words from the block, one masked test answers.
#define EVENBINS_KERNEL_NAMESPACE avx512_kernel
#define EVENBINS_KERNEL_NAME "avx512"
#include <immintrin.h>

#include "evenbins/lanes.hpp"
#include "evenbins/shared_words.hpp"

namespace evenbins::avx512_kernel {
namespace {

template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE __m512i positions(uint64_t r, uint32_t range) {
  const __m512i odd = _mm512_loadu_si512(kOdd.lane);
  const __m512i x = _mm512_mullo_epi32(_mm512_set1_epi64(static_cast<int64_t>(r)), odd);
  if constexpr (!Scaled) return _mm512_srli_epi32(x, 32 - BlockLog);
  const __m512i scale = _mm512_set1_epi32(static_cast<int>(range));
  return _mm512_srli_epi32(_mm512_mullo_epi32(_mm512_srli_epi32(x, 9), scale), 23);
}

EVENBINS_INLINE __mmask16 first_lanes(uint32_t count) {
  return static_cast<__mmask16>(count < kLanes ? (1u << count) - 1 : 0xFFFF);
}

EVENBINS_INLINE __mmask16 missing_lanes(__m512i words, __m512i p, __mmask16 lanes) {
  const __m512i word = _mm512_permutexvar_epi32(_mm512_srli_epi32(p, 5), words);
  const __m512i bit = _mm512_rolv_epi32(_mm512_set1_epi32(1), p);  // rotates by p mod 32
  return _mm512_mask_testn_epi32_mask(lanes, word, bit);
}

template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE uint32_t missing_bits(const uint64_t* block, uint64_t word, uint32_t hashes, uint32_t range) {
  const __m512i words = BlockLog == 9
                            ? _mm512_loadu_si512(block)
                            : _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block)));
  const uint64_t r = remix(word);
  uint32_t missing = missing_lanes(words, positions<BlockLog, Scaled>(r, range), first_lanes(hashes));
  if (hashes > kLanes) {
    const __m512i others = positions<BlockLog, Scaled>(remix_again(r), range);
    missing |= uint32_t{missing_lanes(words, others, first_lanes(hashes - kLanes))} << kLanes;
  }
  return missing;
}
template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE bool has_bits(const uint64_t* block, uint64_t word, uint32_t hashes, uint32_t range) {
  return missing_bits<BlockLog, Scaled>(block, word, hashes, range) == 0;
}

// Adding: each position becomes one bit of a 512-bit mask, in registers. Lane j gets 1 << (p − 32j), and a
// shift by less than 0 or more than 31 gives nothing. Tried, at 9 hashes and 1 MiB: setting the bits one by one in
// memory takes 1.5 times as long, broadcasting each position from memory 1.1, vpconflictd with gather and scatter 5.
EVENBINS_INLINE __m512i mask_of(__m512i p, uint32_t count) {
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i origin = _mm512_slli_epi32(lane, 5);
  __m512i bits = _mm512_setzero_si512();
  EVENBINS_UNROLL(16)
  for (uint32_t i = 0; i < kLanes; ++i) {
    if (i >= count) break;
    const __m512i position = _mm512_permutexvar_epi32(_mm512_set1_epi32(static_cast<int>(i)), p);
    bits = _mm512_or_si512(bits, _mm512_sllv_epi32(_mm512_set1_epi32(1), _mm512_sub_epi32(position, origin)));
  }
  return bits;
}

template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE __m512i key_bits(uint64_t word, uint32_t hashes, uint32_t range) {
  const uint64_t r = remix(word);
  __m512i bits = mask_of(positions<BlockLog, Scaled>(r, range), hashes);
  if (hashes > kLanes)
    bits = _mm512_or_si512(bits, mask_of(positions<BlockLog, Scaled>(remix_again(r), range), hashes - kLanes));
  return bits;
}

template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE void set_bits(uint64_t* block, uint64_t word, uint32_t hashes, uint32_t range) {
  const __m512i bits = key_bits<BlockLog, Scaled>(word, hashes, range);
  if constexpr (BlockLog == 9) {
    _mm512_storeu_si512(block, _mm512_or_si512(bits, _mm512_loadu_si512(block)));
  } else {
    auto* b = reinterpret_cast<__m256i*>(block);
    _mm256_storeu_si256(b, _mm256_or_si256(_mm512_castsi512_si256(bits), _mm256_loadu_si256(b)));
  }
}

constexpr bool kMaskByWords = false;

template <uint32_t BlockLog>
EVENBINS_INLINE void mask_bits(uint64_t* mask, uint64_t word, uint32_t hashes) {
  const __m512i bits = key_bits<BlockLog, false>(word, hashes, 0);
  if constexpr (BlockLog == 9)
    _mm512_storeu_si512(mask, bits);
  else
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(mask), _mm512_castsi512_si256(bits));
}

size_t split(const uint64_t* items, size_t n, uint64_t bound, uint64_t* low, uint64_t* high) {
  const __m512i limit = _mm512_set1_epi64(static_cast<int64_t>(bound));
  size_t below = 0, above = 0;
  for (size_t i = 0; i < n; i += 8) {
    const auto valid = static_cast<__mmask8>(n - i < 8 ? (1u << (n - i)) - 1 : 0xFF);
    const __m512i words = _mm512_maskz_loadu_epi64(valid, items + i);
    const __mmask8 is_low = _mm512_mask_cmplt_epu64_mask(valid, words, limit);
    const auto is_high = static_cast<__mmask8>(valid & ~is_low);
    // Compressed in a register, then stored whole: compressing into memory is microcode on some machines.
    _mm512_storeu_si512(low + below, _mm512_maskz_compress_epi64(is_low, words));
    _mm512_storeu_si512(high + above, _mm512_maskz_compress_epi64(is_high, words));
    below += static_cast<size_t>(__builtin_popcount(is_low));
    above += static_cast<size_t>(__builtin_popcount(is_high));
  }
  return below;
}

EVENBINS_INLINE uint64_t line_is_zero(const uint64_t* line) {
  const __m512i words = _mm512_loadu_si512(line);
  return _mm512_test_epi64_mask(words, words) == 0;
}

EVENBINS_INLINE uint32_t match8(const uint64_t* line, uint64_t word) {
  return _mm512_cmpeq_epi64_mask(_mm512_loadu_si512(line), _mm512_set1_epi64(static_cast<int64_t>(word)));
}

EVENBINS_INLINE void lower8(uint64_t* values, const uint64_t* words, const uint64_t* at) {
  const auto word = [&](int i) { return static_cast<int64_t>(load_word(words + at[i])); };
  const __m512i found = _mm512_set_epi64(word(7), word(6), word(5), word(4), word(3), word(2), word(1), word(0));
  _mm512_storeu_si512(values, _mm512_min_epu64(found, _mm512_loadu_si512(values)));
}

}  // namespace
}  // namespace evenbins::avx512_kernel

#include "body.hpp"

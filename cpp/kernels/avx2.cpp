// AVX2: eight positions at a time; a 512-bit block is two registers, and bit 3 of the word's index picks
// the register.
#define EVENBINS_KERNEL_NAMESPACE avx2_kernel
#define EVENBINS_KERNEL_NAME "avx2"
#include <immintrin.h>

#include "evenbins/lanes.hpp"
#include "evenbins/shared_words.hpp"

namespace evenbins::avx2_kernel {
namespace {

template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE __m256i positions(uint64_t r, uint32_t first, uint32_t range) {
  const __m256i odd = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kOdd.lane + first % kLanes));
  const __m256i x = _mm256_mullo_epi32(_mm256_set1_epi64x(static_cast<int64_t>(r)), odd);
  if constexpr (!Scaled) return _mm256_srli_epi32(x, 32 - BlockLog);
  const __m256i scale = _mm256_set1_epi32(static_cast<int>(range));
  return _mm256_srli_epi32(_mm256_mullo_epi32(_mm256_srli_epi32(x, 9), scale), 23);
}

// A word for each lane that has the bit of its position, if the block does; and that bit.
struct Lanes {
  __m256i words, bits;
};
template <uint32_t BlockLog>
EVENBINS_INLINE Lanes lanes_at(__m256i low, __m256i high, __m256i p) {
  const __m256i index = _mm256_srli_epi32(p, 5);
  __m256i words = _mm256_permutevar8x32_epi32(low, index);
  if constexpr (BlockLog == 9) {
    const __m256i upper = _mm256_permutevar8x32_epi32(high, index);
    words = _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(words), _mm256_castsi256_ps(upper),
                                                 _mm256_castsi256_ps(_mm256_slli_epi32(index, 28))));
  }
  return {words, _mm256_sllv_epi32(_mm256_set1_epi32(1), _mm256_and_si256(p, _mm256_set1_epi32(31)))};
}

// Are the bits at these positions set, in the first `count` lanes?
template <uint32_t BlockLog>
EVENBINS_INLINE bool present(__m256i low, __m256i high, __m256i p, uint32_t count) {
  const Lanes at = lanes_at<BlockLog>(low, high, p);
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i ignore = _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(static_cast<int>(count) - 1));
  return _mm256_testc_si256(_mm256_or_si256(at.words, ignore), at.bits) != 0;
}

template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE bool has_bits(const uint64_t* block, uint64_t word, uint32_t hashes, uint32_t range) {
  const auto* b = reinterpret_cast<const __m256i*>(block);
  const __m256i low = _mm256_loadu_si256(b);
  const __m256i high = BlockLog == 9 ? _mm256_loadu_si256(b + 1) : low;
  uint64_t r = remix(word);
  EVENBINS_UNROLL(4)
  for (uint32_t first = 0; first < hashes; first += 8) {
    if (first == kLanes) r = remix_again(r);
    if (!present<BlockLog>(low, high, positions<BlockLog, Scaled>(r, first, range), hashes - first)) return false;
  }
  return true;
}

template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE uint32_t missing_bits(const uint64_t* block, uint64_t word, uint32_t hashes, uint32_t range) {
  const auto* b = reinterpret_cast<const __m256i*>(block);
  const __m256i low = _mm256_loadu_si256(b);
  const __m256i high = BlockLog == 9 ? _mm256_loadu_si256(b + 1) : low;
  uint64_t r = remix(word);
  uint32_t missing = 0;
  EVENBINS_UNROLL(4)
  for (uint32_t first = 0; first < hashes; first += 8) {
    if (first == kLanes) r = remix_again(r);
    const Lanes at = lanes_at<BlockLog>(low, high, positions<BlockLog, Scaled>(r, first, range));
    const __m256i absent = _mm256_cmpeq_epi32(_mm256_and_si256(at.words, at.bits), _mm256_setzero_si256());
    missing |= static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(absent))) << first;
  }
  return missing & static_cast<uint32_t>((uint64_t{1} << hashes) - 1);
}

// Adding: the positions by vector, the bits one by one.
template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE void set_bits(uint64_t* block, uint64_t word, uint32_t hashes, uint32_t range) {
  alignas(32) uint32_t p[kMaxBlockedHashes];
  uint64_t r = remix(word);
  EVENBINS_UNROLL(4)
  for (uint32_t first = 0; first < hashes; first += 8) {
    if (first == kLanes) r = remix_again(r);
    _mm256_store_si256(reinterpret_cast<__m256i*>(p + first), positions<BlockLog, Scaled>(r, first, range));
  }
  for (uint32_t i = 0; i < hashes; ++i) block[p[i] >> 6] |= uint64_t{1} << (p[i] & 63);
}

#include "mask.hpp"
#include "split.hpp"

EVENBINS_INLINE uint64_t line_is_zero(const uint64_t* line) {
  const auto* v = reinterpret_cast<const __m256i*>(line);
  const __m256i any = _mm256_or_si256(_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1));
  return static_cast<uint64_t>(_mm256_testz_si256(any, any));
}

EVENBINS_INLINE uint32_t match8(const uint64_t* line, uint64_t word) {
  const __m256i wanted = _mm256_set1_epi64x(static_cast<int64_t>(word));
  const auto half = [&](const uint64_t* p) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(words, wanted))));
  };
  return half(line) | half(line + 4) << 4;
}

EVENBINS_INLINE void lower8(uint64_t* values, const uint64_t* words, const uint64_t* at) {
  const __m256i sign = _mm256_set1_epi64x(INT64_MIN);  // there is a comparison of signed words alone
  const auto word = [&](int i) { return static_cast<int64_t>(load_word(words + at[i])); };
  for (int i = 0; i < 8; i += 4) {
    auto* four = reinterpret_cast<__m256i*>(values + i);
    const __m256i now = _mm256_loadu_si256(four);
    const __m256i found = _mm256_set_epi64x(word(i + 3), word(i + 2), word(i + 1), word(i));
    const __m256i is_less = _mm256_cmpgt_epi64(_mm256_xor_si256(now, sign), _mm256_xor_si256(found, sign));
    _mm256_storeu_si256(four, _mm256_blendv_epi8(now, found, is_less));
  }
}

}  // namespace
}  // namespace evenbins::avx2_kernel

#include "body.hpp"

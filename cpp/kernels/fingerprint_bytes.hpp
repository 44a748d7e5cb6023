// What the lines of a fingerprint filter need of an instruction set, as text for every kernel (fingerprint_line.hpp).
//
//     kFindsBytes                   whether find_equal and find_less exist; else slots are compared one by one
//     find_equal(line, byte)        a bit for each of the 64 bytes of a line that equals `byte`
//     find_less(line, byte)         a bit for each that is less
//     open_bytes(line, to)          every byte whose bit in `to` is set becomes the byte before it
//     close_bytes(line, to, zero)   every byte whose bit in `to` is set becomes the byte behind it; then those in `zero` become 0
//     open_bits(line, x, first, end)    bits first … end−1 become those x before them
//     close_bits(line, x, first, end)   bits first … end−x−1 become those x behind them, and the last x become 0
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "evenbins/fingerprint_view.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

#if defined(__AVX512BW__)

constexpr bool kFindsBytes = true;

EVENBINS_INLINE uint64_t find_equal(const uint64_t* line, uint32_t byte) {
  return _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(line), _mm512_set1_epi8(static_cast<char>(byte)));
}
EVENBINS_INLINE uint64_t find_less(const uint64_t* line, uint32_t byte) {
  return _mm512_cmplt_epu8_mask(_mm512_loadu_si512(line), _mm512_set1_epi8(static_cast<char>(byte)));
}

// The line by one byte up or down: by 16 bytes across, and then back within each 16.
EVENBINS_INLINE void open_bytes(uint64_t* line, uint64_t to) {
  const __m512i v = _mm512_loadu_si512(line);
  const __m512i up = _mm512_alignr_epi8(v, _mm512_alignr_epi64(v, _mm512_setzero_si512(), 6), 15);
  _mm512_storeu_si512(line, _mm512_mask_mov_epi8(v, to, up));
}
EVENBINS_INLINE void close_bytes(uint64_t* line, uint64_t to, uint64_t zero) {
  const __m512i v = _mm512_loadu_si512(line);
  const __m512i down = _mm512_alignr_epi8(_mm512_alignr_epi64(_mm512_setzero_si512(), v, 2), v, 1);
  _mm512_storeu_si512(line, _mm512_maskz_mov_epi8(~zero, _mm512_mask_mov_epi8(v, to, down)));
}

// Ones from a bit of the line on.
EVENBINS_INLINE __m512i ones_from(uint32_t at) {
  const __m512i first = _mm512_setr_epi64(0, 64, 128, 192, 256, 320, 384, 448);
  const __m512i below = _mm512_sub_epi64(_mm512_set1_epi64(at), first);  // a shift by 64 and more leaves nothing
  return _mm512_sllv_epi64(_mm512_set1_epi64(-1), _mm512_max_epi64(below, _mm512_setzero_si512()));
}
// a where a bit of `mask` is set, b elsewhere.
EVENBINS_INLINE __m512i choose_bits(__m512i mask, __m512i a, __m512i b) {
  return _mm512_ternarylogic_epi64(mask, a, b, 0xCA);
}
EVENBINS_INLINE void open_bits(uint64_t* line, uint32_t x, uint32_t first, uint32_t end) {
  const __m512i v = _mm512_loadu_si512(line);
  const __m512i before = _mm512_alignr_epi64(v, _mm512_setzero_si512(), 7);
  const __m512i up = _mm512_or_si512(_mm512_sll_epi64(v, _mm_cvtsi32_si128(static_cast<int>(x))),
                                     _mm512_srl_epi64(before, _mm_cvtsi32_si128(static_cast<int>(64 - x))));
  const __m512i to = _mm512_andnot_si512(ones_from(end), ones_from(first));
  _mm512_storeu_si512(line, choose_bits(to, up, v));
}
EVENBINS_INLINE void close_bits(uint64_t* line, uint32_t x, uint32_t first, uint32_t end) {
  const __m512i v = _mm512_loadu_si512(line);
  const __m512i behind = _mm512_alignr_epi64(_mm512_setzero_si512(), v, 1);
  const __m512i down = _mm512_or_si512(_mm512_srl_epi64(v, _mm_cvtsi32_si128(static_cast<int>(x))),
                                       _mm512_sll_epi64(behind, _mm_cvtsi32_si128(static_cast<int>(64 - x))));
  const __m512i last = ones_from(end - x), moved = _mm512_andnot_si512(last, down);
  const __m512i to = _mm512_andnot_si512(ones_from(end), ones_from(first));
  _mm512_storeu_si512(line, choose_bits(to, moved, v));
}

#elif defined(__AVX2__)

constexpr bool kFindsBytes = true;

EVENBINS_INLINE __m256i half_line(const uint64_t* line, uint32_t half) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line + 4 * half));
}
EVENBINS_INLINE void store_half(uint64_t* line, uint32_t half, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(line + 4 * half), value);
}
EVENBINS_INLINE uint64_t top_bits(__m256i low, __m256i high) {
  return static_cast<uint32_t>(_mm256_movemask_epi8(low)) | uint64_t{static_cast<uint32_t>(_mm256_movemask_epi8(high))}
                                                                << 32;
}
EVENBINS_INLINE uint64_t find_equal(const uint64_t* line, uint32_t byte) {
  const __m256i all = _mm256_set1_epi8(static_cast<char>(byte));
  return top_bits(_mm256_cmpeq_epi8(half_line(line, 0), all), _mm256_cmpeq_epi8(half_line(line, 1), all));
}
EVENBINS_INLINE uint64_t find_less(const uint64_t* line, uint32_t byte) {
  const __m256i all = _mm256_set1_epi8(static_cast<char>(byte));
  const __m256i low = half_line(line, 0), high = half_line(line, 1);  // not less: the larger of both is the line's
  return ~top_bits(_mm256_cmpeq_epi8(_mm256_max_epu8(low, all), low),
                   _mm256_cmpeq_epi8(_mm256_max_epu8(high, all), high));
}

// A byte of ones for each set bit.
EVENBINS_INLINE __m256i spread_bits(uint64_t bits) {
  const __m256i which = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), which);
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
}
EVENBINS_INLINE void open_bytes(uint64_t* line, uint64_t to) {
  const __m256i low = half_line(line, 0), high = half_line(line, 1);
  const __m256i low_up = _mm256_alignr_epi8(low, _mm256_permute2x128_si256(low, low, 0x08), 15);
  const __m256i high_up = _mm256_alignr_epi8(high, _mm256_permute2x128_si256(low, high, 0x21), 15);
  store_half(line, 0, _mm256_blendv_epi8(low, low_up, spread_bits(to)));
  store_half(line, 1, _mm256_blendv_epi8(high, high_up, spread_bits(to >> 32)));
}
EVENBINS_INLINE void close_bytes(uint64_t* line, uint64_t to, uint64_t zero) {
  const __m256i low = half_line(line, 0), high = half_line(line, 1);
  const __m256i low_down = _mm256_alignr_epi8(_mm256_permute2x128_si256(low, high, 0x21), low, 1);
  const __m256i high_down = _mm256_alignr_epi8(_mm256_permute2x128_si256(high, high, 0x81), high, 1);
  const __m256i low_after = _mm256_blendv_epi8(low, low_down, spread_bits(to));
  const __m256i high_after = _mm256_blendv_epi8(high, high_down, spread_bits(to >> 32));
  store_half(line, 0, _mm256_andnot_si256(spread_bits(zero), low_after));
  store_half(line, 1, _mm256_andnot_si256(spread_bits(zero >> 32), high_after));
}

#elif defined(__ARM_NEON)

constexpr bool kFindsBytes = true;

EVENBINS_INLINE uint8x16x4_t whole_line(const uint64_t* line) {
  return vld1q_u8_x4(reinterpret_cast<const uint8_t*>(line));
}
// The top bits of 64 bytes that are all ones or all zeros.
EVENBINS_INLINE uint64_t top_bits(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d) {
  const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  const uint8x16_t ab = vpaddq_u8(vandq_u8(a, bit), vandq_u8(b, bit));
  const uint8x16_t cd = vpaddq_u8(vandq_u8(c, bit), vandq_u8(d, bit));
  const uint8x16_t abcd = vpaddq_u8(ab, cd);
  return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(abcd, abcd)), 0);
}
EVENBINS_INLINE uint64_t find_equal(const uint64_t* line, uint32_t byte) {
  const uint8x16x4_t v = whole_line(line);
  const uint8x16_t all = vdupq_n_u8(static_cast<uint8_t>(byte));
  return top_bits(vceqq_u8(v.val[0], all), vceqq_u8(v.val[1], all), vceqq_u8(v.val[2], all), vceqq_u8(v.val[3], all));
}
EVENBINS_INLINE uint64_t find_less(const uint64_t* line, uint32_t byte) {
  const uint8x16x4_t v = whole_line(line);
  const uint8x16_t all = vdupq_n_u8(static_cast<uint8_t>(byte));
  return top_bits(vcltq_u8(v.val[0], all), vcltq_u8(v.val[1], all), vcltq_u8(v.val[2], all), vcltq_u8(v.val[3], all));
}

// Bytes of ones for 16 of 64 bits.
EVENBINS_INLINE uint8x16_t spread_bits(uint64_t bits, uint32_t part) {
  const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  const auto low = static_cast<uint8_t>(bits >> 16 * part), high = static_cast<uint8_t>(bits >> (16 * part + 8));
  return vtstq_u8(vcombine_u8(vdup_n_u8(low), vdup_n_u8(high)), bit);
}
EVENBINS_INLINE void open_bytes(uint64_t* line, uint64_t to) {
  auto* bytes = reinterpret_cast<uint8_t*>(line);
  const uint8x16x4_t v = whole_line(line);
  uint8x16_t before = vdupq_n_u8(0);
  for (uint32_t i = 0; i < 4; ++i) {
    vst1q_u8(bytes + 16 * i, vbslq_u8(spread_bits(to, i), vextq_u8(before, v.val[i], 15), v.val[i]));
    before = v.val[i];
  }
}
EVENBINS_INLINE void close_bytes(uint64_t* line, uint64_t to, uint64_t zero) {
  auto* bytes = reinterpret_cast<uint8_t*>(line);
  const uint8x16x4_t v = whole_line(line);
  for (uint32_t i = 0; i < 4; ++i) {
    const uint8x16_t down = vextq_u8(v.val[i], i < 3 ? v.val[i + 1] : vdupq_n_u8(0), 1);
    vst1q_u8(bytes + 16 * i, vbicq_u8(vbslq_u8(spread_bits(to, i), down, v.val[i]), spread_bits(zero, i)));
  }
}

#else

constexpr bool kFindsBytes = false;

EVENBINS_INLINE uint64_t find_equal(const uint64_t*, uint32_t) { return 0; }
EVENBINS_INLINE uint64_t find_less(const uint64_t*, uint32_t) { return 0; }

// A byte of ones for each set bit.
EVENBINS_INLINE uint64_t spread_bits(uint64_t bits) {
  const uint64_t kept = (bits & 0xFF) * 0x0101010101010101 & 0x8040201008040201;
  return (kept + 0x7F7F7F7F7F7F7F7F) >> 7 & 0x0101010101010101;
}
EVENBINS_INLINE void open_bytes(uint64_t* line, uint64_t to) {
  for (uint32_t i = 8; i-- > 1;) {
    const uint64_t mask = spread_bits(to >> 8 * i) * 0xFF;
    line[i] = (line[i] & ~mask) | ((line[i] << 8 | line[i - 1] >> 56) & mask);
  }
}
EVENBINS_INLINE void close_bytes(uint64_t* line, uint64_t to, uint64_t zero) {
  for (uint32_t i = 0; i < 8; ++i) {  // of 24 bits the first slot may be in the first word
    const uint64_t mask = spread_bits(to >> 8 * i) * 0xFF, next = i < 7 ? line[i + 1] : 0;
    line[i] = ((line[i] & ~mask) | ((line[i] >> 8 | next << 56) & mask)) & ~(spread_bits(zero >> 8 * i) * 0xFF);
  }
}

#endif

#if !defined(__AVX512BW__)

// Of a word of a line, the bits at or behind a bit of the line.
EVENBINS_INLINE uint64_t ones_from(uint32_t at, uint32_t word) {
  return at <= 64 * word ? ~uint64_t{0} : at >= 64 * word + 64 ? 0 : ~uint64_t{0} << (at & 63);
}
EVENBINS_INLINE void open_bits(uint64_t* line, uint32_t x, uint32_t first, uint32_t end) {
  for (uint32_t j = ((end - 1) >> 6) + 1; j-- > first >> 6;) {
    const uint64_t to = ones_from(first, j) & ~ones_from(end, j), before = j > 0 ? line[j - 1] : 0;
    line[j] = (line[j] & ~to) | ((line[j] << x | before >> (64 - x)) & to);
  }
}
EVENBINS_INLINE void close_bits(uint64_t* line, uint32_t x, uint32_t first, uint32_t end) {
  for (uint32_t j = first >> 6; j <= (end - 1) >> 6; ++j) {
    const uint64_t to = ones_from(first, j) & ~ones_from(end, j), next = j < 7 ? line[j + 1] : 0;
    const uint64_t down = (line[j] >> x | next << (64 - x)) & ~ones_from(end - x, j);
    line[j] = (line[j] & ~to) | (down & to);
  }
}

#endif

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

// NEON (aarch64): four positions at a time, narrowed to sixteen byte indices, so that one table look-up
// (TBL over four registers: exactly 64 bytes) fetches the byte of every position.
#define EVENBINS_KERNEL_NAMESPACE neon_kernel
#define EVENBINS_KERNEL_NAME "neon"
#include <arm_neon.h>

#include "evenbins/lanes.hpp"
#include "evenbins/shared_words.hpp"

namespace evenbins::neon_kernel {
namespace {

template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE uint32x4_t positions(uint64_t r, uint32_t first, uint32_t range) {
  const uint32x4_t halves = vreinterpretq_u32_u64(vdupq_n_u64(r));
  const uint32x4_t x = vmulq_u32(halves, vld1q_u32(kOdd.lane + first % kLanes));
  if constexpr (!Scaled) return vshrq_n_u32(x, 32 - BlockLog);
  return vshrq_n_u32(vmulq_u32(vshrq_n_u32(x, 9), vdupq_n_u32(range)), 23);
}

// A byte of ones for each of sixteen lanes whose bit is set.
template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE uint8x16_t set_lanes(const uint64_t* block, uint64_t r, uint32_t range) {
  const auto at = [&](uint32_t first) { return vmovn_u32(positions<BlockLog, Scaled>(r, first, range)); };
  const uint16x8_t a = vcombine_u16(at(0), at(4)), b = vcombine_u16(at(8), at(12));
  const uint8x16_t byte = vcombine_u8(vshrn_n_u16(a, 3), vshrn_n_u16(b, 3));
  const uint8x16_t bit = vandq_u8(vcombine_u8(vmovn_u16(a), vmovn_u16(b)), vdupq_n_u8(7));
  const auto* bytes = reinterpret_cast<const uint8_t*>(block);
  uint8x16_t found;
  if constexpr (BlockLog == 9)
    found = vqtbl4q_u8(vld1q_u8_x4(bytes), byte);
  else
    found = vqtbl2q_u8(vld1q_u8_x2(bytes), byte);
  return vtstq_u8(found, vshlq_u8(vdupq_n_u8(1), vreinterpretq_s8_u8(bit)));
}

// Are the bits of the first `count` lanes set?
template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE bool present(const uint64_t* block, uint64_t r, uint32_t count, uint32_t range) {
  static constexpr uint8_t lane[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const uint8x16_t ignore = vcgeq_u8(vld1q_u8(lane), vdupq_n_u8(static_cast<uint8_t>(count < kLanes ? count : kLanes)));
  const auto set = set_lanes<BlockLog, Scaled>(block, r, range);  // a macro of Clang would read the comma
  return vminvq_u8(vorrq_u8(set, ignore)) != 0;
}

template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE uint32_t missing_bits(const uint64_t* block, uint64_t word, uint32_t hashes, uint32_t range) {
  static constexpr uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const auto missing = [&](uint64_t r) {
    const auto set = set_lanes<BlockLog, Scaled>(block, r, range);
    const uint8x16_t absent = vbicq_u8(vld1q_u8(bit), set);
    return uint32_t{vaddv_u8(vget_low_u8(absent))} | uint32_t{vaddv_u8(vget_high_u8(absent))} << 8;
  };
  const uint64_t r = remix(word);
  const uint32_t all = hashes <= kLanes ? missing(r) : missing(r) | missing(remix_again(r)) << kLanes;
  return all & static_cast<uint32_t>((uint64_t{1} << hashes) - 1);
}

template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE bool has_bits(const uint64_t* block, uint64_t word, uint32_t hashes, uint32_t range) {
  const uint64_t r = remix(word);
  if (!present<BlockLog, Scaled>(block, r, hashes, range)) return false;
  return hashes <= kLanes || present<BlockLog, Scaled>(block, remix_again(r), hashes - kLanes, range);
}

// Adding: the positions by vector, the bits one by one.
template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE void set_bits(uint64_t* block, uint64_t word, uint32_t hashes, uint32_t range) {
  alignas(16) uint32_t p[kMaxBlockedHashes];
  uint64_t r = remix(word);
  for (uint32_t first = 0; first < hashes; first += 4) {
    if (first == kLanes) r = remix_again(r);
    const auto found = positions<BlockLog, Scaled>(r, first, range);  // a macro of Clang would read the comma
    vst1q_u32(p + first, found);
  }
  for (uint32_t i = 0; i < hashes; ++i) block[p[i] >> 6] |= uint64_t{1} << (p[i] & 63);
}

#include "lower8.hpp"
#include "mask.hpp"
#include "split.hpp"

EVENBINS_INLINE uint64_t line_is_zero(const uint64_t* line) {
  const auto* p = reinterpret_cast<const uint32_t*>(line);
  const uint32x4_t any =
      vorrq_u32(vorrq_u32(vld1q_u32(p), vld1q_u32(p + 4)), vorrq_u32(vld1q_u32(p + 8), vld1q_u32(p + 12)));
  return vmaxvq_u32(any) == 0;
}

EVENBINS_INLINE uint32_t match8(const uint64_t* line, uint64_t word) {
  static constexpr uint16_t bit[8] = {1, 2, 4, 8, 16, 32, 64, 128};
  const uint64x2_t wanted = vdupq_n_u64(word);
  const auto pair = [&](uint32_t i) { return vmovn_u64(vceqq_u64(vld1q_u64(line + i), wanted)); };
  const uint32x4_t low = vcombine_u32(pair(0), pair(2)), high = vcombine_u32(pair(4), pair(6));
  return vaddvq_u16(vandq_u16(vcombine_u16(vmovn_u32(low), vmovn_u32(high)), vld1q_u16(bit)));
}

}  // namespace
}  // namespace evenbins::neon_kernel

#include "body.hpp"

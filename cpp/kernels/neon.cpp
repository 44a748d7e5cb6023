// NEON (aarch64): four positions at a time, narrowed to sixteen byte indices, so that one table look-up
// (TBL over four registers: exactly 64 bytes) fetches the byte of every position.
#define EVENBINS_KERNEL_NAMESPACE neon_kernel
#define EVENBINS_KERNEL_NAME "neon"
#include <arm_neon.h>

#include "evenbins/lanes.hpp"

namespace evenbins::neon_kernel {
namespace {

template <uint32_t BlockLog>
EVENBINS_INLINE uint32x4_t positions(uint64_t r, uint32_t first) {
  const uint32x4_t halves = vreinterpretq_u32_u64(vdupq_n_u64(r));
  return vshrq_n_u32(vmulq_u32(halves, vld1q_u32(kOdd.data() + first % kLanes)), 32 - BlockLog);
}

template <uint32_t BlockLog, uint32_t Hashes>
struct Reader {
  EVENBINS_INLINE bool contains(const uint64_t* block, uint64_t digest) const {
    const uint64_t r = remix(digest);
    if (!present<Hashes>(block, r)) return false;
    if constexpr (Hashes > kLanes) return present<Hashes - kLanes>(block, remix_again(r));
    return true;
  }

 private:
  template <uint32_t Count>
  EVENBINS_INLINE static bool present(const uint64_t* block, uint64_t r) {
    static constexpr uint8_t lane[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint16x8_t a = vcombine_u16(vmovn_u32(positions<BlockLog>(r, 0)), vmovn_u32(positions<BlockLog>(r, 4)));
    const uint16x8_t b = vcombine_u16(vmovn_u32(positions<BlockLog>(r, 8)), vmovn_u32(positions<BlockLog>(r, 12)));
    const uint8x16_t byte = vcombine_u8(vshrn_n_u16(a, 3), vshrn_n_u16(b, 3));
    const uint8x16_t bit = vandq_u8(vcombine_u8(vmovn_u16(a), vmovn_u16(b)), vdupq_n_u8(7));
    const auto* bytes = reinterpret_cast<const uint8_t*>(block);
    uint8x16_t found;
    if constexpr (BlockLog == 9)
      found = vqtbl4q_u8(vld1q_u8_x4(bytes), byte);
    else
      found = vqtbl2q_u8(vld1q_u8_x2(bytes), byte);
    const uint8x16_t wanted = vshlq_u8(vdupq_n_u8(1), vreinterpretq_s8_u8(bit));
    const uint8x16_t ignore = vcgeq_u8(vld1q_u8(lane), vdupq_n_u8(Count < kLanes ? Count : kLanes));
    return vminvq_u8(vorrq_u8(vtstq_u8(found, wanted), ignore)) != 0;
  }
};

// Adding: the positions by vector, the bits one by one.
template <uint32_t BlockLog, uint32_t Hashes>
struct Writer {
  EVENBINS_INLINE void add(uint64_t* block, uint64_t digest) const {
    alignas(16) uint32_t p[kMaxBlockedHashes];
    uint64_t r = remix(digest);
    for (uint32_t first = 0; first < Hashes; first += 4) {
      if (first == kLanes) r = remix_again(r);
      vst1q_u32(p + first, positions<BlockLog>(r, first));
    }
    for (uint32_t i = 0; i < Hashes; ++i) block[p[i] >> 6] |= uint64_t{1} << (p[i] & 63);
  }
};

#include "split.hpp"

EVENBINS_INLINE uint64_t line_is_zero(const uint64_t* line) {
  const auto* p = reinterpret_cast<const uint32_t*>(line);
  const uint32x4_t any =
      vorrq_u32(vorrq_u32(vld1q_u32(p), vld1q_u32(p + 4)), vorrq_u32(vld1q_u32(p + 8), vld1q_u32(p + 12)));
  return vmaxvq_u32(any) == 0;
}

}  // namespace
}  // namespace evenbins::neon_kernel

#include "body.hpp"

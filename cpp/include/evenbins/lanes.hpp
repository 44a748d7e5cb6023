// Where a key's bits lie inside its block.
//
// Sixteen lanes hold the two 32-bit halves of the remixed digest in turn; each is multiplied by its own
// odd constant, and the top bits of the product are the position. One vector multiplication gives all
// sixteen; a second remix gives sixteen more. Positions are drawn with replacement.
//
//     digest ──remix──▶ [lo|hi|lo|hi| … |lo|hi]  ×  [odd0|odd1| … |odd15]  >>  23   (512-bit blocks)
//
// A block that keeps a counter has fewer bits for keys, 512 − b say: then the top 23 bits of the product are
// scaled to that range, (x >> 9)·range >> 23. For a range of 512 or 256 this is the plain shift.
//
// Tried and dropped: two 9-bit numbers (h1 + i·h2): a floor of 1e-4 (DESIGN.md). Four different 32-bit
// words for sixteen lanes: no measurable gain over two, down to a false-positive rate of 5e-6.
#pragma once

#include <cstdint>

#include "evenbins/hash.hpp"

namespace evenbins {

inline constexpr uint32_t kLanes = 16;
inline constexpr uint32_t kMaxBlockedHashes = 2 * kLanes;

// A plain array: an inline function of std::array might be left to others by a kernel, in its instructions.
struct OddConstants {
  uint32_t lane[kLanes];
};
inline constexpr OddConstants kOdd = [] {
  OddConstants odd{};
  for (uint32_t i = 0; i < kLanes; ++i) odd.lane[i] = static_cast<uint32_t>(splitmix(0, i) >> 32) | 1;
  return odd;
}();

EVENBINS_INLINE constexpr uint64_t remix(uint64_t digest) {
  const uint64_t r = digest * kPhi;
  return r ^ (r >> 32);
}
EVENBINS_INLINE constexpr uint64_t remix_again(uint64_t r) {
  r *= 0xD1342543DE82EF95;
  return r ^ (r >> 32);
}

// Position of lane `i` (0 … 15) among `range` bits, at most 512.
EVENBINS_INLINE constexpr uint32_t lane_position(uint64_t r, uint32_t i, uint32_t range) {
  const auto half = static_cast<uint32_t>(i % 2 == 0 ? r : r >> 32);
  return (half * kOdd.lane[i] >> 9) * range >> 23;
}

// Calls f(position) for each of the k positions until it answers false; true if it never did.
template <typename F>
EVENBINS_INLINE constexpr bool every_position(uint64_t digest, uint32_t range, uint32_t hashes, F&& f) {
  uint64_t r = remix(digest);
  for (uint32_t i = 0; i < hashes; ++i) {
    if (i == kLanes) r = remix_again(r);
    if (!f(lane_position(r, i % kLanes, range))) return false;
  }
  return true;
}

}  // namespace evenbins

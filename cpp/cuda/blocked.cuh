// Kernels of a blocked filter (blocked.hpp): look-ups, and additions by atomic operations.
//
// Look-ups are limited by the memory, so as many lines as possible must be on their way. A warp takes 32 keys at a time:
//
//     lane     digest, block        of a key of its own
//     4 lanes  16 bytes each        fetch the lines of their four keys, one after the other, into shared memory:
//                                   four copies of each lane are on their way at once, and no register waits for them
//     lane     k positions          tests the line of its own key
//
// Two lanes for blocks of 256 bits. A line lies where the lanes that fetch lines together write side by side.
//
// Tried and dropped: see docs/gpu.md for the figures of each.
#pragma once

#include "evenbins/lanes.hpp"
#include "keys.cuh"

namespace evenbins::gpu {

template <uint32_t BlockLog>
struct Line {
  static constexpr uint32_t kWords = 1u << (BlockLog - 6);  // of 64 bits
  static constexpr uint32_t kHalves = 2 * kWords;           // words of 32 bits, which one thread reads at once
  static constexpr uint32_t kLanes = kWords / 2;            // that fetch it, 16 bytes each
};

// Whether a line has the key's bits. All of them are tested: lanes that stop early would wait for the others.
template <uint32_t Hashes>
EVENBINS_INLINE bool line_has(const uint32_t* line, uint64_t digest, uint32_t range) {
  uint32_t all = 1;
  every_position(digest, range, Hashes, [&](uint32_t p) {
    all &= line[p >> 5] >> (p & 31);
    return true;
  });
  return all != 0;
}

// Fetches the lines of the blocks that the warp's lanes name, and returns the own one; for `lines` of one warp, which
// begin `Stride` words apart.
template <uint32_t BlockLog, uint32_t Stride = Line<BlockLog>::kHalves>
EVENBINS_INLINE const uint32_t* fetch_lines(const uint64_t* words, uint64_t block, uint32_t* lines) {
  using L = Line<BlockLog>;
  const uint32_t lane = threadIdx.x % kWarp, part = lane % L::kLanes, group = lane / L::kLanes;
  constexpr uint32_t kGroups = kWarp / L::kLanes;
#pragma unroll
  for (uint32_t j = 0; j < L::kLanes; ++j) {
    const uint64_t its = shuffle(block, group * L::kLanes + j);
    copy16(lines + (j * kGroups + group) * Stride + 4 * part, words + its * L::kWords + 2 * part);
  }
  return lines + (part * kGroups + group) * Stride;
}

// Calls act(i, digest, line) for key i of n and the line of its block: 32 keys at a time, Depth of these at once. All
// lanes call; those with i ≥ n have no key.
template <uint32_t BlockLog, uint32_t Depth, uint32_t Stride = Line<BlockLog>::kHalves, typename Keys, typename Act>
EVENBINS_INLINE void each_line(const uint64_t* words, uint64_t blocks, const Keys& keys, uint64_t n, Act&& act) {
  __shared__ __align__(16) uint32_t lines[256 / kWarp][Depth][kWarp * Stride];
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  for (uint64_t first = (thread_number() - lane) * Depth; first < n; first += thread_count() * Depth) {
    uint64_t digest[Depth];
    const uint32_t* line[Depth];
#pragma unroll
    for (uint32_t d = 0; d < Depth; ++d) {
      const uint64_t i = first + d * kWarp + lane;
      digest[d] = i < n ? keys.digest(i) : 0;
      line[d] = fetch_lines<BlockLog, Stride>(words, mulhi(digest[d], blocks), lines[warp][d]);
    }
    wait_for_copies();
    __syncwarp();
#pragma unroll
    for (uint32_t d = 0; d < Depth; ++d) act(first + d * kWarp + lane, digest[d], line[d]);
    __syncwarp();
  }
}

template <uint32_t BlockLog, uint32_t Hashes, typename Keys, uint32_t Depth>
__global__ void __launch_bounds__(256)
    blocked_contains(const uint64_t* words, uint64_t blocks, const void* data, const void* more, const KeyHash* hash,
                     uint64_t n, uint8_t* out) {
  each_line<BlockLog, Depth>(words, blocks, Keys(data, more, hash), n,
                             [=](uint64_t i, uint64_t digest, const uint32_t* line) {
                               const bool has = line_has<Hashes>(line, digest, 1u << BlockLog);
                               if (i < n) store_once(out + i, static_cast<uint8_t>(has));
                             });
}

// Sets a key's bits in a line that belongs to one thread.
template <uint32_t Hashes>
EVENBINS_INLINE void line_set(uint32_t* line, uint64_t digest, uint32_t range) {
  every_position(digest, range, Hashes, [&](uint32_t p) {
    line[p >> 5] |= 1u << (p & 31);
    return true;
  });
}

// Adds by one atomic operation for each word of the filter that a key touches. Each lane makes the bits of its own key
// in shared memory; then eight lanes (four) have the words of one line, so that the memory gets one request for it.
template <uint32_t BlockLog, uint32_t Hashes, typename Keys>
__global__ void __launch_bounds__(256)
    blocked_add(uint64_t* words, uint64_t blocks, const void* data, const void* more, const KeyHash* hash, uint64_t n) {
  using L = Line<BlockLog>;
  __shared__ __align__(16) uint64_t masks[256 / kWarp][kWarp * L::kWords];
  const Keys keys(data, more, hash);
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  uint64_t* mine = masks[warp] + lane * L::kWords;
  for (uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + warp * kWarp; first < n;
       first += thread_count()) {
    const uint64_t i = first + lane;
    const uint64_t digest = i < n ? keys.digest(i) : 0;
    for (uint32_t w = 0; w < L::kWords; ++w) mine[w] = 0;
    if (i < n) line_set<Hashes>(reinterpret_cast<uint32_t*>(mine), digest, 1u << BlockLog);
    const uint64_t block = mulhi(digest, blocks);
    __syncwarp();
#pragma unroll
    for (uint32_t w = lane; w < kWarp * L::kWords; w += kWarp) {
      const uint64_t its = shuffle(block, w / L::kWords), mask = masks[warp][w];
      if (mask != 0) set_bits(words + its * L::kWords + w % L::kWords, mask);
    }
    __syncwarp();
  }
}

}  // namespace evenbins::gpu

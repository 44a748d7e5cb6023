// What the memory gives without a filter, and variants of kernels that were tried: for benchmarks alone.
#pragma once

#include "partition.cuh"
#include "standard.cuh"

namespace evenbins::gpu {

// Reads the lines that look-ups read, with as many on their way, and tests nothing.
template <uint32_t BlockLog, typename Keys, uint32_t Depth>
__global__ void __launch_bounds__(256)
    raw_lines(const uint64_t* words, uint64_t blocks, const void* data, const void* more, const KeyHash* hash,
              uint64_t n, uint8_t* out) {
  using L = Line<BlockLog>;
  __shared__ __align__(16) uint32_t lines[256 / kWarp][Depth][kWarp * L::kHalves];
  const Keys keys(data, more, hash);
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x * Depth;
  for (uint64_t first = (static_cast<uint64_t>(blockIdx.x) * blockDim.x + warp * kWarp) * Depth; first < n;
       first += step) {
    const uint32_t* line[Depth];
#pragma unroll
    for (uint32_t d = 0; d < Depth; ++d) {
      const uint64_t i = first + d * kWarp + lane;
      line[d] = fetch_lines<BlockLog>(words, mulhi(i < n ? keys.digest(i) : 0, blocks), lines[warp][d]);
    }
    wait_for_copies();
    __syncwarp();
#pragma unroll
    for (uint32_t d = 0; d < Depth; ++d) {
      const uint64_t i = first + d * kWarp + lane;
      if (i < n) store_once(out + i, static_cast<uint8_t>(line[d][0]));
    }
    __syncwarp();
  }
}

// Reads `reads` random sectors of 32 bytes for each key, all at once.
template <typename Keys, uint32_t Reads>
__global__ void __launch_bounds__(256)
    raw_sectors(const uint64_t* words, uint64_t bits, const void* data, const void* more, const KeyHash* hash,
                uint64_t n, uint8_t* out) {
  const Keys keys(data, more, hash);
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const uint64_t digest = keys.digest(i);
    uint32_t all = 0;
#pragma unroll
    for (uint32_t r = 0; r < Reads; ++r)
      all ^= __ldcg(reinterpret_cast<const uint32_t*>(words) + (mulhi(splitmix(digest, r), bits) >> 5));
    store_once(out + i, static_cast<uint8_t>(all));
  }
}

// Look-ups by one thread per key, the line in registers.
template <uint32_t BlockLog, uint32_t Hashes, typename Keys>
__global__ void __launch_bounds__(256)
    contains_by_thread(const uint64_t* words, uint64_t blocks, const void* data, const void* more, const KeyHash* hash,
                       uint64_t n, uint8_t* out) {
  const Keys keys(data, more, hash);
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const uint64_t digest = keys.digest(i);
    const auto* line = reinterpret_cast<const uint32_t*>(words + mulhi(digest, blocks) * Line<BlockLog>::kWords);
    uint32_t all = 1;
    every_position(digest, 1u << BlockLog, Hashes, [&](uint32_t p) {
      all &= __ldg(line + (p >> 5)) >> (p & 31);
      return true;
    });
    store_once(out + i, static_cast<uint8_t>(all));
  }
}

// Look-ups by four threads per key, each testing a quarter of the positions of four keys.
template <uint32_t Hashes, typename Keys>
__global__ void __launch_bounds__(256)
    contains_by_quarters(const uint64_t* words, uint64_t blocks, const void* data, const void* more,
                         const KeyHash* hash, uint64_t n, uint8_t* out) {
  __shared__ __align__(16) uint32_t lines[256 / kWarp][kWarp * 16];
  const Keys keys(data, more, hash);
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, part = lane % 4, group = lane / 4;
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  uint32_t odd[(Hashes + 3) / 4];
#pragma unroll
  for (uint32_t i = 0; i < Hashes; i += 4) odd[i / 4] = kOdd.lane[i + part < kLanes ? i + part : 0];
  for (uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + warp * kWarp; first < n; first += step) {
    const uint64_t i = first + lane, digest = i < n ? keys.digest(i) : 0, r = remix(digest);
    fetch_lines<9>(words, mulhi(digest, blocks), lines[warp]);
    wait_for_copies();
    __syncwarp();
    uint32_t answer = 0;
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      const uint64_t its = shuffle(r, group * 4 + j);
      const uint32_t half = part % 2 == 0 ? static_cast<uint32_t>(its) : static_cast<uint32_t>(its >> 32);
      const uint32_t* line = lines[warp] + (j * 8 + group) * 16;
      uint32_t all = 1;
#pragma unroll
      for (uint32_t h = 0; h < Hashes; h += 4)
        if (h + part < Hashes) {
          const uint32_t p = half * odd[h / 4] >> 23;
          all &= line[p >> 5] >> (p & 31);
        }
      const uint32_t votes = __ballot_sync(kAllLanes, all != 0) >> (group * 4) & 15;
      if (part == j) answer = votes == 15;
    }
    if (i < n) store_once(out + i, static_cast<uint8_t>(answer));
    __syncwarp();
  }
}

// Additions by the copy engine: one reduction of a whole line (sm_90 and newer).
template <uint32_t Hashes, typename Keys>
__global__ void __launch_bounds__(256)
    add_by_bulk(uint64_t* words, uint64_t blocks, const void* data, const void* more, const KeyHash* hash, uint64_t n) {
  __shared__ __align__(128) uint64_t masks[256 / kWarp][kWarp * 8];
  const Keys keys(data, more, hash);
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  uint64_t* mine = masks[warp] + lane * 8;
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const uint64_t digest = keys.digest(i);
    for (uint32_t w = 0; w < 8; ++w) mine[w] = 0;
    line_set<Hashes>(reinterpret_cast<uint32_t*>(mine), digest, 512);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.or.b64 [%0], [%1], 64;"
                 :
                 : "l"(words + mulhi(digest, blocks) * 8), "r"(static_cast<uint32_t>(__cvta_generic_to_shared(mine)))
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace evenbins::gpu

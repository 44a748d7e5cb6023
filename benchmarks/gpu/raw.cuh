// What the memory gives without a filter: for benchmarks alone.
#pragma once

#include "blocked.cuh"
#include "standard.cuh"

namespace evenbins::gpu {

// Reads the lines that look-ups read, with as many on their way, and tests nothing.
template <uint32_t BlockLog, typename Keys, uint32_t Depth>
__global__ void __launch_bounds__(256) raw_lines(const uint64_t* words, uint64_t blocks, const void* data,
                                                 const void* more, const KeyHash* hash, uint64_t n, uint8_t* out) {
  each_line<BlockLog, Depth>(words, blocks, Keys(data, more, hash), n, [=](uint64_t i, uint64_t, const uint32_t* line) {
    if (i < n) store_once(out + i, static_cast<uint8_t>(line[0]));
  });
}

// Reads `reads` random sectors of 32 bytes for each key, all at once.
template <typename Keys, uint32_t Reads>
__global__ void __launch_bounds__(256) raw_sectors(const uint64_t* words, uint64_t bits, const void* data,
                                                   const void* more, const KeyHash* hash, uint64_t n, uint8_t* out) {
  const Keys keys(data, more, hash);
  for (uint64_t i = thread_number(); i < n; i += thread_count()) {
    const uint64_t digest = keys.digest(i);
    uint32_t all = 0;
#pragma unroll
    for (uint32_t r = 0; r < Reads; ++r)
      all ^= __ldcg(reinterpret_cast<const uint32_t*>(words) + (mulhi(splitmix(digest, r), bits) >> 5));
    store_once(out + i, static_cast<uint8_t>(all));
  }
}

}  // namespace evenbins::gpu

// What the stats of a filter count, for each of its blocks.
#pragma once

#include "device.cuh"

namespace evenbins::gpu {

// Of each block: the load that it keeps from bit `shift` of its last word on (64: none), times 2^16, plus the set bits of
// its other bits.
__global__ void measure_blocks(const uint64_t* words, uint64_t blocks, uint32_t block_words, uint32_t shift,
                               uint32_t* out) {
  for (uint64_t block = thread_number(); block < blocks; block += thread_count()) {
    const uint64_t* own = words + block * block_words;
    const uint64_t load = shift == 64 ? 0 : own[block_words - 1] >> shift;
    uint32_t bits = 0;
    for (uint32_t i = 0; i < block_words; ++i) bits += static_cast<uint32_t>(__popcll(own[i]));
    out[block] = static_cast<uint32_t>(load << 16) + bits - static_cast<uint32_t>(__popcll(load));
  }
}

}  // namespace evenbins::gpu

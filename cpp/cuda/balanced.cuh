// Look-ups in a balanced filter (balanced.hpp): the walk of the core, a thread for each key.
#pragma once

#include "evenbins/balanced_layout.hpp"
#include "evenbins/lanes.hpp"
#include "keys.cuh"

namespace evenbins::gpu {
namespace {

template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE bool has_bits(const uint64_t* block, uint64_t word, uint32_t hashes, uint32_t range) {
  return every_position(word, Scaled ? range : 1u << BlockLog, hashes,
                        [block](uint32_t p) { return has_bit(block, p); });
}
template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE void set_bits(uint64_t* block, uint64_t word, uint32_t hashes, uint32_t range) {
  every_position(word, Scaled ? range : 1u << BlockLog, hashes, [block](uint32_t p) {
    set_bit(block, p);
    return true;
  });
}

}  // namespace
}  // namespace evenbins::gpu

#include "evenbins/balanced_block.hpp"

namespace evenbins::gpu {

template <uint32_t BlockLog, Rule R, typename Keys>
__global__ void __launch_bounds__(256)
    balanced_contains(uint64_t* payload, const uint64_t* core, uint32_t core_words, const void* data, const void* more,
                      const KeyHash* hash, uint64_t n, uint8_t* out) {
  __shared__ BalancedView f;
  if (threadIdx.x == 0) f = view_of(core, core_words, payload);
  __syncthreads();
  const Keys keys(data, more, hash);
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    store_once(out + i, static_cast<uint8_t>(balanced_walk<BlockLog, R>(f, keys.digest(i))));
}

}  // namespace evenbins::gpu

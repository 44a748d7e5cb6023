// The bits of a key in its block, position by position: text for kernels that have no faster way (kernels/generic.cpp)
// and for the GPU (cpp/cuda/balanced.cuh).
#pragma once

#include "evenbins/lanes.hpp"
#include "evenbins/shared_words.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE bool has_bits(const uint64_t* block, uint64_t word, uint32_t hashes, uint32_t range) {
  return every_position(word, Scaled ? range : 1u << BlockLog, hashes,
                        [block](uint32_t p) { return has_bit(block, p); });
}

template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE uint32_t missing_bits(const uint64_t* block, uint64_t word, uint32_t hashes, uint32_t range) {
  uint32_t missing = 0, lane = 1;
  every_position(word, Scaled ? range : 1u << BlockLog, hashes, [&](uint32_t p) {
    missing |= has_bit(block, p) ? 0 : lane;
    lane <<= 1;
    return true;
  });
  return missing;
}

template <uint32_t BlockLog, bool Scaled>
EVENBINS_INLINE void set_bits(uint64_t* block, uint64_t word, uint32_t hashes, uint32_t range) {
  every_position(word, Scaled ? range : 1u << BlockLog, hashes, [block](uint32_t p) {
    set_bit(block, p);
    return true;
  });
}

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

// Setting a key's bits from an array of its positions: what every kernel does in the end, since a block's
// words are hit in any order and more than once. Tried and dropped on AVX-512: building the 512-bit mask
// in registers (no faster), and vpconflictd + scatter (slower).
#pragma once

#include <cstdint>

#include "evenbins/hash.hpp"

namespace evenbins {

EVENBINS_INLINE void set_positions(uint64_t* block, const uint32_t* positions, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) block[positions[i] >> 6] |= uint64_t{1} << (positions[i] & 63);
}

}  // namespace evenbins

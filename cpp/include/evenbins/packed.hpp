// Numbers of any width up to 64 bits, one after the other in 64-bit words, the first in the lowest bits.
#pragma once

#include <cstdint>

#include "evenbins/hash.hpp"

namespace evenbins {

struct Packed {
  static constexpr uint64_t bytes(uint64_t count, uint64_t width) { return (count * width + 63) / 64 * 8; }
  static constexpr uint64_t most(uint32_t width) { return width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1; }

  EVENBINS_INLINE static uint64_t at(const uint64_t* words, uint64_t i, uint32_t width) {
    const uint64_t bit = i * width, word = bit / 64;
    const auto shift = static_cast<uint32_t>(bit % 64);
    uint64_t value = words[word] >> shift;
    if (shift + width > 64) value |= words[word + 1] << (64 - shift);
    return value & most(width);
  }
  EVENBINS_INLINE static void set(uint64_t* words, uint64_t i, uint32_t width, uint64_t value) {
    const uint64_t bit = i * width, word = bit / 64;
    const auto shift = static_cast<uint32_t>(bit % 64);
    words[word] = (words[word] & ~(most(width) << shift)) | value << shift;
    if (shift + width <= 64) return;
    const uint64_t rest = most(shift + width - 64);
    words[word + 1] = (words[word + 1] & ~rest) | value >> (64 - shift);
  }
};

}  // namespace evenbins

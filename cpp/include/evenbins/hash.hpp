// From a key's integer value, or from its digest, to well-mixed 64-bit words.
//
//     int ──int_digest──▶ digest ──splitmix──▶ as many independent words as a structure needs
//
// Strings reach their digest by XXH3 (xxh3.hpp). Everything here is arithmetic modulo 2^64, the same on
// every platform, and always inlined: the kernels are compiled with different instruction sets, and an
// out-of-line copy of such a function would be shared between them by the linker.
//
// NVRTC compiles this text too, for the GPU (cpp/cuda): there every function is one of the device.
//
// Sources: SplitMix64 (Steele, Lea, Flood 2014) with Stafford's mixer 13; "moremur" (Evensen 2019) for
// integers, keyed before each of its two multiplications.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "evenbins/compiler.hpp"

namespace evenbins {

inline constexpr uint64_t kPhi = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio, odd

EVENBINS_INLINE constexpr uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// The i-th output (from 0) of SplitMix64 seeded with `s`.
EVENBINS_INLINE constexpr uint64_t splitmix(uint64_t s, uint64_t i) { return mix(s + (i + 1) * kPhi); }

// x / 2^64 of m: maps a uniform 64-bit word to 0 … m−1 without a division, monotone in x.
EVENBINS_INLINE constexpr uint64_t mulhi(uint64_t x, uint64_t m) {
  return static_cast<uint64_t>((static_cast<uint128>(x) * m) >> 64);
}

// The same for the halves of a word, and m ≤ 2^32: two numbers from one word.
EVENBINS_INLINE constexpr uint64_t scale_high_half(uint64_t x, uint64_t m) { return (x >> 32) * m >> 32; }
EVENBINS_INLINE constexpr uint64_t scale_low_half(uint64_t x, uint64_t m) { return (x & 0xFFFFFFFF) * m >> 32; }

// a + b modulo m, both below it; m ≤ 2^63.
EVENBINS_INLINE constexpr uint64_t add_mod(uint64_t a, uint64_t b, uint64_t m) {
  const uint64_t sum = a + b;
  return sum < m ? sum : sum - m;
}

// The seed's part of an integer's digest. Negative numbers get a key of their own, so that −1 and
// 2^64−1, which are the same 64 bits, are different keys.
struct IntHash {
  uint64_t natural, middle, negative;

  explicit constexpr IntHash(uint64_t seed)
      : natural(splitmix(seed, 0)), middle(splitmix(seed, 1)), negative(splitmix(seed, 2)) {}

  EVENBINS_INLINE constexpr uint64_t digest(uint64_t bits, bool is_negative) const {
    uint64_t z = bits ^ (is_negative ? negative : natural);
    z = (z ^ (z >> 27)) * 0x3C79AC492BA7B653 + middle;
    z = (z ^ (z >> 33)) * 0x1C69B3F74AC4AE35;
    return z ^ (z >> 27);
  }
};

// Word j of a key: what level j hashes by. The same everywhere but in the blocked filter, which has one.
EVENBINS_INLINE constexpr uint64_t word_of(uint64_t digest, uint32_t level) {
  return level == 0 ? digest : splitmix(digest, level);
}

// The least word w with mulhi(w, blocks) = block.
inline uint64_t least_word_of(uint64_t block, uint64_t blocks) {
  const uint128 scaled = static_cast<uint128>(block) << 64;
  return static_cast<uint64_t>((scaled + blocks - 1) / blocks);
}

}  // namespace evenbins

// XXH3 of medium and long inputs. Its functions are not inline: included once in each program, by xxh3.cpp in the core
// and by the text of the GPU's kernels (cpp/cuda).
#pragma once

#include "evenbins/xxh3.hpp"

namespace evenbins::xxh3 {

inline constexpr size_t kStripe = 64, kStripesPerBlock = (kSecretSize - 64) / 8, kBlock = kStripe * kStripesPerBlock;

struct Long {  // the eight accumulators after all input has gone in, and the secret used
  uint64_t acc[8] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3, kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
  alignas(64) uint8_t secret[kSecretSize];

  Long(const uint8_t* p, size_t n, uint64_t seed) {
    for (size_t i = 0; i < kSecretSize; i += 16) {
      const uint64_t words[2] = {secret64(i) + seed, secret64(i + 8) - seed};
      std::memcpy(secret + i, words, sizeof words);
    }
    const size_t full_blocks = (n - 1) / kBlock;
    for (size_t block = 0; block < full_blocks; ++block, p += kBlock) {
      for (size_t stripe = 0; stripe < kStripesPerBlock; ++stripe) accumulate(p + stripe * kStripe, stripe * 8);
      scramble();
    }
    const size_t rest = n - full_blocks * kBlock;
    for (size_t stripe = 0; stripe < (rest - 1) / kStripe; ++stripe) accumulate(p + stripe * kStripe, stripe * 8);
    accumulate(p + rest - kStripe, kSecretSize - kStripe - 7);
  }

  void accumulate(const uint8_t* stripe, size_t offset) {
    for (size_t i = 0; i < 8; i += 2) {
      const uint64_t a = read64(stripe + 8 * i), b = read64(stripe + 8 * i + 8);
      const uint64_t x = a ^ read64(secret + offset + 8 * i), y = b ^ read64(secret + offset + 8 * i + 8);
      acc[i] += b + (x & 0xFFFFFFFF) * (x >> 32);
      acc[i + 1] += a + (y & 0xFFFFFFFF) * (y >> 32);
    }
  }

  void scramble() {
    for (size_t i = 0; i < 8; ++i) {
      acc[i] ^= acc[i] >> 47;
      acc[i] ^= read64(secret + kSecretSize - kStripe + 8 * i);
      acc[i] *= kPrime32_1;
    }
  }

  uint64_t merge(uint64_t result, size_t offset) const {
    for (size_t i = 0; i < 4; ++i)
      result +=
          fold(acc[2 * i] ^ read64(secret + offset + 16 * i), acc[2 * i + 1] ^ read64(secret + offset + 16 * i + 8));
    return avalanche(result);
  }
};

uint64_t hash64_medium(const uint8_t* p, size_t n, uint64_t seed) {
  switch ((n - 1) >> 5) {
    case 0: return hash64_pairs<1>(p, n, seed);
    case 1: return hash64_pairs<2>(p, n, seed);
    case 2: return hash64_pairs<3>(p, n, seed);
    case 3: return hash64_pairs<4>(p, n, seed);
    default: break;
  }
  uint64_t acc = n * kPrime64_1;
  for (size_t i = 0; i < 8; ++i) acc += mix_step(p + 16 * i, 16 * i, seed);
  acc = avalanche(acc);
  for (size_t i = 8; i < n >> 4; ++i) acc += mix_step(p + 16 * i, 16 * (i - 8) + 3, seed);
  return avalanche(acc + mix_step(p + n - 16, 119, seed));
}

uint64_t hash64_long(const uint8_t* p, size_t n, uint64_t seed) { return Long(p, n, seed).merge(n * kPrime64_1, 11); }

}  // namespace evenbins::xxh3

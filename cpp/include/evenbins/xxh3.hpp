// XXH3, 64 and 128 bit, with seed; written from the published specification (xxhash_spec.md of the
// xxHash project) and checked bit for bit against the PyPI package `xxhash` in the tests. The names
// are the specification's.
//
//     0 … 16 bytes    a few multiplications          (inline up to 32 bytes: most keys are short)
//     17 … 240 bytes  16-byte chunks, mixed pairwise
//     241 … bytes     64-byte stripes into eight accumulators
//
// `xxh3_64_many` has the digests of many keys at once (xxh3_many.cpp).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "evenbins/compiler.hpp"

namespace evenbins {

static_assert(std::endian::native == std::endian::little, "evenbins stores and hashes little endian");

struct Hash128 {
  uint64_t low, high;
};

struct ByteSpan {  // the bytes of a key, which lie elsewhere
  const char* data;
  size_t size;
};

namespace xxh3 {

inline constexpr uint64_t kPrime32_1 = 0x9E3779B1, kPrime32_2 = 0x85EBCA77, kPrime32_3 = 0xC2B2AE3D;
inline constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87, kPrime64_2 = 0xC2B2AE3D27D4EB4F,
                          kPrime64_3 = 0x165667B19E3779F9, kPrime64_4 = 0x85EBCA77C2B2AE63,
                          kPrime64_5 = 0x27D4EB2F165667C5;
inline constexpr uint64_t kPrimeMx1 = 0x165667919E3779F9, kPrimeMx2 = 0x9FB21C651E98DF25;

inline constexpr size_t kSecretSize = 192;
alignas(64) inline constexpr uint8_t kSecret[kSecretSize] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4,
    0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
    0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43,
    0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
    0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
    0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
    0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
    0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16,
    0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

inline uint32_t read32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline uint64_t read64(const uint8_t* p) {
  uint64_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline uint64_t secret64(size_t offset) { return read64(kSecret + offset); }

inline uint64_t fold(uint64_t a, uint64_t b) {  // lower half xor higher half of the 128-bit product
  const uint128 product = static_cast<uint128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}
inline uint64_t avalanche(uint64_t x) {
  x = (x ^ (x >> 37)) * kPrimeMx1;
  return x ^ (x >> 32);
}
inline uint64_t avalanche_xxh64(uint64_t x) {
  x = (x ^ (x >> 33)) * kPrime64_2;
  x = (x ^ (x >> 29)) * kPrime64_3;
  return x ^ (x >> 32);
}

// ---- 0 … 16 bytes -----------------------------------------------------------------------------------

inline uint64_t hash64_empty(uint64_t seed) { return avalanche_xxh64(seed ^ secret64(56) ^ secret64(64)); }
inline uint32_t combine_1to3(const uint8_t* p, size_t n) {
  return uint32_t{p[n - 1]} | static_cast<uint32_t>(n << 8) | (uint32_t{p[0]} << 16) | (uint32_t{p[n >> 1]} << 24);
}
inline uint64_t modified_seed(uint64_t seed) {
  return seed ^ (static_cast<uint64_t>(__builtin_bswap32(static_cast<uint32_t>(seed))) << 32);
}

inline uint64_t hash64_1to3(const uint8_t* p, size_t n, uint64_t seed) {
  return avalanche_xxh64((uint64_t{read32(kSecret) ^ read32(kSecret + 4)} + seed) ^ combine_1to3(p, n));
}
inline uint64_t hash64_4to8(const uint8_t* p, size_t n, uint64_t seed) {
  const uint64_t combined = uint64_t{read32(p + n - 4)} | (uint64_t{read32(p)} << 32);
  uint64_t v = ((secret64(8) ^ secret64(16)) - modified_seed(seed)) ^ combined;
  v ^= std::rotl(v, 49) ^ std::rotl(v, 24);
  v *= kPrimeMx2;
  v ^= (v >> 35) + n;
  v *= kPrimeMx2;
  return v ^ (v >> 28);
}
inline uint64_t hash64_9to16(const uint8_t* p, size_t n, uint64_t seed) {
  const uint64_t low = ((secret64(24) ^ secret64(32)) + seed) ^ read64(p);
  const uint64_t high = ((secret64(40) ^ secret64(48)) - seed) ^ read64(p + n - 8);
  return avalanche(n + __builtin_bswap64(low) + high + fold(low, high));
}

// ---- 17 … 240 bytes ---------------------------------------------------------------------------------

inline uint64_t mix_step(const uint8_t* p, size_t secret, uint64_t seed) {
  return fold(read64(p) ^ (secret64(secret) + seed), read64(p + 8) ^ (secret64(secret + 8) - seed));
}

// `pairs` chunks from the beginning and as many from the end: 1 for up to 32 bytes, 2 for up to 64, … 4.
template <size_t pairs>
inline uint64_t hash64_pairs(const uint8_t* p, size_t n, uint64_t seed) {
  uint64_t acc = n * kPrime64_1;
  for (size_t i = pairs; i-- > 0;)
    acc += mix_step(p + 16 * i, 32 * i, seed) + mix_step(p + n - 16 * i - 16, 32 * i + 16, seed);
  return avalanche(acc);
}

uint64_t hash64_medium(const uint8_t* p, size_t n, uint64_t seed);  // 17 … 240 bytes
uint64_t hash64_long(const uint8_t* p, size_t n, uint64_t seed);

}  // namespace xxh3

inline uint64_t xxh3_64(const void* data, size_t n, uint64_t seed) {
  const auto* p = static_cast<const uint8_t*>(data);
  if (n <= 16) {
    if (n > 8) return xxh3::hash64_9to16(p, n, seed);
    if (n >= 4) return xxh3::hash64_4to8(p, n, seed);
    if (n > 0) return xxh3::hash64_1to3(p, n, seed);
    return xxh3::hash64_empty(seed);
  }
  if (n <= 32) return xxh3::hash64_pairs<1>(p, n, seed);
  if (n <= 240) return xxh3::hash64_medium(p, n, seed);
  return xxh3::hash64_long(p, n, seed);
}

// out[i] = xxh3_64 of key i.
void xxh3_64_many(const ByteSpan* keys, size_t n, uint64_t seed, uint64_t* out);

Hash128 xxh3_128(const void* data, size_t n, uint64_t seed);

}  // namespace evenbins

// The parts of XXH3 that are too long to inline: medium and long inputs (xxh3_long.hpp), and the whole 128-bit variant.
#include "evenbins/xxh3_long.hpp"

namespace evenbins {
namespace xxh3 {
namespace {

Hash128 hash128_1to3(const uint8_t* p, size_t n, uint64_t seed) {
  const uint32_t combined = combine_1to3(p, n);
  const uint32_t swapped = std::rotl(__builtin_bswap32(combined), 13);
  const uint64_t low = (uint64_t{read32(kSecret) ^ read32(kSecret + 4)} + seed) ^ combined;
  const uint64_t high = (uint64_t{read32(kSecret + 8) ^ read32(kSecret + 12)} - seed) ^ swapped;
  return {avalanche_xxh64(low), avalanche_xxh64(high)};
}

Hash128 hash128_4to8(const uint8_t* p, size_t n, uint64_t seed) {
  const uint64_t combined = uint64_t{read32(p)} | (uint64_t{read32(p + n - 4)} << 32);
  const uint64_t v = ((secret64(16) ^ secret64(24)) + modified_seed(seed)) ^ combined;
  const uint128 product = static_cast<uint128>(v) * (kPrime64_1 + (n << 2));
  uint64_t low = static_cast<uint64_t>(product), high = static_cast<uint64_t>(product >> 64);
  high += low << 1;
  low ^= high >> 3;
  low = (low ^ (low >> 35)) * kPrimeMx2;
  return {low ^ (low >> 28), avalanche(high)};
}

Hash128 hash128_9to16(const uint8_t* p, size_t n, uint64_t seed) {
  const uint64_t first = read64(p), last = read64(p + n - 8);
  const uint64_t a = ((secret64(32) ^ secret64(40)) - seed) ^ first ^ last;
  const uint64_t b = ((secret64(48) ^ secret64(56)) + seed) ^ last;
  const uint128 product = static_cast<uint128>(a) * kPrime64_1;
  uint64_t low = static_cast<uint64_t>(product) + ((uint64_t{n} - 1) << 54);
  uint64_t high = static_cast<uint64_t>(product >> 64) + b + (b & 0xFFFFFFFF) * (kPrime32_2 - 1);
  low ^= __builtin_bswap64(high);
  const uint128 second = static_cast<uint128>(low) * kPrime64_2;
  high = static_cast<uint64_t>(second >> 64) + high * kPrime64_2;
  return {avalanche(static_cast<uint64_t>(second)), avalanche(high)};
}

Hash128 hash128_medium(const uint8_t* p, size_t n, uint64_t seed) {
  uint64_t acc[2] = {n * kPrime64_1, 0};
  const auto mix_two = [&acc](const uint8_t* one, const uint8_t* two, size_t secret, uint64_t s) {
    acc[0] = (acc[0] + mix_step(one, secret, s)) ^ (read64(two) + read64(two + 8));
    acc[1] = (acc[1] + mix_step(two, secret + 16, s)) ^ (read64(one) + read64(one + 8));
  };
  if (n <= 128) {
    for (size_t i = ((n - 1) >> 5) + 1; i-- > 0;) mix_two(p + 16 * i, p + n - 16 * i - 16, 32 * i, seed);
  } else {
    for (size_t i = 0; i < 4; ++i) mix_two(p + 32 * i, p + 32 * i + 16, 32 * i, seed);
    acc[0] = avalanche(acc[0]);
    acc[1] = avalanche(acc[1]);
    for (size_t i = 4; i < n >> 5; ++i) mix_two(p + 32 * i, p + 32 * i + 16, 32 * (i - 4) + 3, seed);
    mix_two(p + n - 16, p + n - 32, 103, 0 - seed);
  }
  const uint64_t high = acc[0] * kPrime64_1 + acc[1] * kPrime64_4 + (n - seed) * kPrime64_2;
  return {avalanche(acc[0] + acc[1]), 0 - avalanche(high)};
}

}  // namespace
}  // namespace xxh3

Hash128 xxh3_128(const void* data, size_t n, uint64_t seed) {
  using namespace xxh3;
  const auto* p = static_cast<const uint8_t*>(data);
  if (n == 0)
    return {avalanche_xxh64(seed ^ secret64(64) ^ secret64(72)), avalanche_xxh64(seed ^ secret64(80) ^ secret64(88))};
  if (n <= 3) return hash128_1to3(p, n, seed);
  if (n <= 8) return hash128_4to8(p, n, seed);
  if (n <= 16) return hash128_9to16(p, n, seed);
  if (n <= 240) return hash128_medium(p, n, seed);
  const Long state(p, n, seed);
  return {state.merge(n * kPrime64_1, 11), state.merge(~(n * kPrime64_2), kSecretSize - kStripe - 11)};
}

}  // namespace evenbins

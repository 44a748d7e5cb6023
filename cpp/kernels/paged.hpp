// The search of a page for a key, as text for every kernel (body.hpp includes it): eight words at a time, by match8.
#pragma once

#include "evenbins/shared_words.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

// Bits of the keys at `keys` that are the one wanted, eight of one word or four of two, each at its first word.
template <uint32_t Words>
EVENBINS_INLINE uint32_t match_keys(const uint64_t* keys, uint64_t low, uint64_t high) {
  uint32_t mask = match8(keys, low);
  if constexpr (Words == 2) {
    mask &= 0x55;
    if (mask != 0) mask &= match8(keys, high) >> 1;
  }
  return mask;
}

template <uint32_t Words>
EVENBINS_INLINE uint32_t find_in_row(const uint64_t* keys, uint32_t n, uint64_t low, uint64_t high) {
  constexpr uint32_t kKeys = 8 / Words;
  if (n < kKeys) {
    for (uint32_t i = 0; i < n; ++i)
      if (keys[Words * i] == low && (Words == 1 || keys[Words * i + Words - 1] == high)) return i;
    return n;
  }
  for (uint32_t i = 0;; i += kKeys) {
    i = i + kKeys <= n ? i : n - kKeys;  // the last group overlaps the one before it
    if (const uint32_t mask = match_keys<Words>(keys + Words * i, low, high); mask != 0)
      return i + static_cast<uint32_t>(__builtin_ctz(mask)) / Words;
    if (i + kKeys == n) return n;
  }
}

uint32_t find_key(const uint64_t* keys, uint32_t words, uint32_t n, uint64_t low, uint64_t high) {
  return words == 1 ? find_in_row<1>(keys, n, low, high) : find_in_row<2>(keys, n, low, high);
}

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

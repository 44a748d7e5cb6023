// The slot of a draw among m dense ones: f(w, m) is uniform on 0 … m−1, and f(w, m+1) is f(w, m) or m.
//
//     slots   0 │ 1 │ 2 3 │ 4 5 6 7 │ 8 … 15 │ …      level b: slots of b bits
//
// Of the kind of BinomialHash (Coluzzi et al. 2024). The low bits of w choose a level, and a hash for that level the
// slot in it. A draw that misses the last level, which may not be full, is made again until it hits or falls below;
// then the lower bits of the *first* word decide, as if that level did not exist: so nothing changes between two old
// slots when one more comes. The hash for each level, a product with an odd number of its own whose bits from 38 on are
// uniform whatever the low bits of w are, spreads the draws of a missing slot over all others.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "evenbins/hash.hpp"

namespace evenbins {

inline constexpr auto kSlotLevels = [] {
  std::array<uint64_t, 33> odd{};
  for (uint64_t b = 0; b < odd.size(); ++b) odd[b] = splitmix(0, b) | 1;
  return odd;
}();

// `hashed` is called for each hash that is computed.
template <typename Count>
EVENBINS_INLINE constexpr uint32_t dense_slot(uint64_t w, uint32_t m, Count&& hashed) {
  if (m == 1) return 0;
  const int e = std::bit_width(m - 1);
  const uint64_t half = uint64_t{1} << (e - 1), all = 2 * half - 1;
  uint64_t h = w;
  for (int i = 0; i < 64 && (h & all) >= half; ++i) {
    hashed();
    const uint64_t x = half + ((h * kSlotLevels[static_cast<size_t>(e)] >> 38) & (half - 1));
    if (x < m) return static_cast<uint32_t>(x);
    hashed();
    h = splitmix(h, 63);
  }
  const uint64_t y = w & (half - 1);
  if (y < 2) return static_cast<uint32_t>(y);
  hashed();
  const int b = std::bit_width(y);
  const uint64_t level = uint64_t{1} << (b - 1);
  return static_cast<uint32_t>(level + ((w * kSlotLevels[static_cast<size_t>(b)] >> 38) & (level - 1)));
}

EVENBINS_INLINE constexpr uint32_t dense_slot(uint64_t w, uint32_t m) {
  return dense_slot(w, m, [] {});
}

}  // namespace evenbins

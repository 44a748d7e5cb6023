// Where the parts of a balanced filter lie in its payload (balanced.hpp): for the core, and for the GPU's kernels.
#pragma once

#include "evenbins/balanced_view.hpp"

namespace evenbins {

enum class Policy : uint64_t { single = 1, sequential = 2, multilevel = 3, fill = 4, two_choice = 5 };

inline constexpr size_t kCoreWords = 8;  // of a core, before two for each table: blocks, threshold

EVENBINS_INLINE constexpr bool is_counted(Policy policy) {
  return policy != Policy::fill && policy != Policy::two_choice;
}
EVENBINS_INLINE constexpr uint64_t table_bytes(uint64_t blocks, uint64_t block_bits) {
  return (blocks * (block_bits / 8) + 63) / 64 * 64;
}
EVENBINS_INLINE constexpr uint64_t list_slots(uint64_t limit) {
  return limit == 0 ? 0 : (limit + limit / 3 + 15) / 8 * 8;
}
EVENBINS_INLINE constexpr uint32_t counter_bits(uint64_t threshold) {  // for the loads 0 … threshold + 1
  uint32_t bits = 0;
  for (uint64_t most = threshold + 1; most != 0; most >>= 1) ++bits;
  return bits;
}

// The view of a payload whose core is valid: all that look-ups need, and the numbers that additions need.
EVENBINS_INLINE BalancedView view_of(const uint64_t* core, size_t core_words, uint64_t* payload) {
  const auto policy = static_cast<Policy>(core[0]);
  const uint64_t block_bits = core[1], tables = (core_words - kCoreWords) / 2;
  BalancedView f{};
  f.hashes = static_cast<uint32_t>(core[2]);
  f.choices = static_cast<uint32_t>(core[3]);
  f.coin = core[4];
  f.limit = core[5];
  f.spill_at_random = core[6] == 1;
  f.budget = core[7];
  for (uint32_t t = 0; t < tables; ++t) {
    const uint64_t blocks = core[kCoreWords + 2 * t], threshold = core[kCoreWords + 2 * t + 1];
    const uint32_t counter = is_counted(policy) ? counter_bits(threshold) : 0;
    f.levels[t] = {payload, blocks, static_cast<uint32_t>(block_bits) - counter, static_cast<uint32_t>(threshold),
                   64 - counter};
    payload += table_bytes(blocks, block_bits) / 8;
  }
  for (uint32_t j = static_cast<uint32_t>(tables); j < f.choices; ++j) f.levels[j] = f.levels[0];
  if (is_counted(policy)) {
    f.slots = payload;
    f.slot_count = list_slots(f.limit);
    f.state = payload + f.slot_count;
  }
  return f;
}

}  // namespace evenbins

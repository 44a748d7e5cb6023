// One block of a balanced filter under its rule, and the walk of a look-up: text for every kernel (kernels/body.hpp) and
// for the GPU (cpp/cuda/balanced.cuh), each of which has defined has_bits and set_bits in its namespace.
#pragma once

#include "evenbins/balanced_view.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

template <uint32_t BlockLog>
EVENBINS_INLINE uint64_t* block_of(const Level& level, uint64_t word) {
  return level.words + (mulhi(word, level.blocks) << (BlockLog - 6));
}

// Tried and dropped: a kernel with avx512_vpopcntdq, which counts eight words in one instruction. To add up the eight
// counts takes longer than it saves: on Zen 4 a filter of rule `fill` adds in 1.1 times the time, a two-choice filter in
// 1.05, and look-ups take the same.
template <uint32_t BlockLog>
EVENBINS_INLINE uint32_t popcount_of(const uint64_t* block) {
  uint32_t count = 0;
  EVENBINS_UNROLL(8)
  for (uint32_t i = 0; i < 1u << (BlockLog - 6); ++i)
    count += static_cast<uint32_t>(__builtin_popcountll(load_word(block + i)));
  return count;
}

// One block under one rule: does it have a key's bits, is it full for this key, put the key in.
template <uint32_t BlockLog, Rule R>
struct BalancedBlock {
  static constexpr bool kCounted = R == Rule::counted;
  static constexpr uint32_t kLast = (1u << (BlockLog - 6)) - 1;

  EVENBINS_INLINE static bool has(const BalancedView& f, const Level& level, const uint64_t* block, uint64_t word) {
    return has_bits<BlockLog, kCounted>(block, word, f.hashes, level.range);
  }
  EVENBINS_INLINE static bool full(const BalancedView& f, const Level& level, const uint64_t* block, uint64_t word) {
    if constexpr (R == Rule::two_choice) return true;  // to a query, which goes on to the other block
    if constexpr (kCounted)
      return (load_word(block + kLast) >> level.counter_shift) + coin_rejects(word, f.coin) > level.threshold;
    else
      return popcount_of<BlockLog>(block) >= level.threshold;
  }
  // Whether a query goes on from here. A branch on `hit` is mostly foreseen, and spares the hits the test; but of
  // two choices either is as likely.
  EVENBINS_INLINE static bool goes_on(const BalancedView& f, const Level& level, const uint64_t* block, uint64_t word,
                                      bool hit) {
    if constexpr (R == Rule::two_choice) return !hit;
    return !hit && full(f, level, block, word);
  }
  EVENBINS_INLINE static void put(const BalancedView& f, const Level& level, uint64_t* block, uint64_t word) {
    set_bits<BlockLog, kCounted>(block, word, f.hashes, level.range);
    if constexpr (kCounted) store_word(block + kLast, block[kLast] + (uint64_t{1} << level.counter_shift));
  }
};

template <uint32_t BlockLog, Rule R>
EVENBINS_INLINE bool balanced_walk(const BalancedView& f, uint64_t digest) {
  using Block = BalancedBlock<BlockLog, R>;
  if constexpr (R == Rule::two_choice) __builtin_prefetch(block_of<BlockLog>(f.levels[1], word_of(digest, 1)));
  for (uint32_t j = 0; j < f.choices; ++j) {
    const uint64_t word = word_of(digest, j);
    const uint64_t* block = block_of<BlockLog>(f.levels[j], word);
    if (Block::has(f, f.levels[j], block, word)) return true;
    if (!Block::full(f, f.levels[j], block, word)) {
      if constexpr (R == Rule::counted)
        if (load_word(f.state + 3) & kBudgetSpent) break;
      return false;
    }
  }
  if constexpr (R == Rule::counted) return list_has(f, digest);
  return false;
}

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

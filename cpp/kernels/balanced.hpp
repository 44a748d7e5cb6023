// The loops of a balanced filter, as text for every kernel (body.hpp).
#pragma once

#include "evenbins/balanced_block.hpp"
#include "positions.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

// While a merge moves keys from the list to the blocks, a walk may miss one: then it is made again.
template <uint32_t BlockLog, Rule R>
bool balanced_contains_key(const void* view, uint64_t digest) {
  const auto& f = *static_cast<const BalancedView*>(view);
  if constexpr (R != Rule::counted) return balanced_walk<BlockLog, R>(f, digest);
  while (true) {
    const uint64_t version = list_version(f);
    if (balanced_walk<BlockLog, R>(f, digest)) return true;
    if (list_unchanged(f, version)) return false;
  }
}

template <uint32_t BlockLog, Rule R>
AddOutcome balanced_add_key(const void* view, uint64_t digest) {
  using Block = BalancedBlock<BlockLog, R>;
  const auto& f = *static_cast<const BalancedView*>(view);
  if constexpr (R == Rule::counted)
    if (f.budget != 0 && f.state[2] >= f.budget && f.state[1] < f.limit) {
      if (balanced_contains_key<BlockLog, R>(view, digest)) return AddOutcome::present;
      f.add_unread(f, digest);
      return AddOutcome::added;
    }
  for (uint32_t j = 0; j < f.choices; ++j) {
    const uint64_t word = word_of(digest, j);
    uint64_t* block = block_of<BlockLog>(f.levels[j], word);
    if (Block::has(f, f.levels[j], block, word)) return AddOutcome::present;
    if (Block::full(f, f.levels[j], block, word)) continue;
    if constexpr (R == Rule::counted)  // it may be on the list all the same: it went there unread
      if ((f.state[3] & kBudgetSpent) != 0 && list_has(f, digest)) return AddOutcome::present;
    Block::put(f, f.levels[j], block, word);
    if constexpr (R == Rule::counted) {
      f.state[0] += 1;
      f.state[2] += j + 1;
    }
    return AddOutcome::added;
  }
  return f.overflow(f, digest);
}

// Two-choice: the block whose rate of false positives grows less takes the key.
template <uint32_t BlockLog>
AddOutcome two_choice_add_key(const void* view, uint64_t digest) {
  constexpr uint32_t kWords = 1u << (BlockLog - 6);
  const auto& f = *static_cast<const BalancedView*>(view);
  uint64_t masks[2][kWords];
  uint64_t* blocks[2];
  uint64_t harm[2];
  EVENBINS_UNROLL(2)
  for (uint32_t j = 0; j < 2; ++j) {
    const uint64_t word = word_of(digest, j);
    blocks[j] = block_of<BlockLog>(f.levels[j], word);
    mask_bits<BlockLog>(masks[j], word, f.hashes);
    uint32_t before = 0, after = 0;
    for (uint32_t i = 0; i < kWords; ++i) {
      before += static_cast<uint32_t>(__builtin_popcountll(blocks[j][i]));
      after += static_cast<uint32_t>(__builtin_popcountll(blocks[j][i] | masks[j][i]));
    }
    if (after == before) return AddOutcome::present;
    harm[j] = f.harm[after] - f.harm[before];
  }
  const uint32_t chosen = harm[0] <= harm[1] ? 0 : 1;
  for (uint32_t i = 0; i < kWords; ++i) store_word(blocks[chosen] + i, blocks[chosen][i] | masks[chosen][i]);
  return AddOutcome::added;
}

// Keys whose order matters across levels: one by one, their blocks on the way before their turn.
template <uint32_t BlockLog, AddOutcome Add(const void*, uint64_t)>
void balanced_add_in_order(const BalancedView& f, const uint64_t* digests, size_t n, uint8_t* added) {
  // Always inlined, here and below: gcc takes a function that only prefetches for one that does nothing.
  const auto ask = [&](uint64_t digest) EVENBINS_INLINE_LAMBDA {
    for (uint32_t j = 0; j < f.choices; ++j) __builtin_prefetch(block_of<BlockLog>(f.levels[j], word_of(digest, j)), 1);
  };
  for (size_t i = 0; i < kKeysAhead && i < n; ++i) ask(digests[i]);
  for (size_t i = 0; i < n; ++i) {
    if (i + kKeysAhead < n) ask(digests[i + kKeysAhead]);
    const AddOutcome outcome = Add(&f, digests[i]);
    if (added != nullptr) added[i] = outcome == AddOutcome::added;
  }
}

// Calls act(i, word, block) for i = 0 … n−1, with the next blocks of this level on their way.
template <uint32_t BlockLog, int ForWriting, typename F>
EVENBINS_INLINE void each_block(const Level& level, const uint64_t* words, size_t n, F&& act) {
  for (size_t i = 0; i < kAhead && i < n; ++i) __builtin_prefetch(block_of<BlockLog>(level, words[i]), ForWriting);
  for (size_t i = 0; i < n; ++i) {
    if (i + kAhead < n) __builtin_prefetch(block_of<BlockLog>(level, words[i + kAhead]), ForWriting);
    act(i, words[i], block_of<BlockLog>(level, words[i]));
  }
}

template <uint32_t BlockLog, Rule R>
size_t balanced_add_level(const BalancedView& f, uint32_t j, const uint64_t* words, size_t n, uint8_t* passed,
                          PlacedKey* log) {
  using Block = BalancedBlock<BlockLog, R>;
  const Level level = f.levels[j];
  size_t placed = 0;
  each_block<BlockLog, 1>(level, words, n, [&](size_t i, uint64_t word, uint64_t* block) {
    passed[i] = 0;
    const uint32_t missing = missing_bits<BlockLog, Block::kCounted>(block, word, f.hashes, level.range);
    if (missing == 0) return;
    if (Block::full(f, level, block, word)) {
      passed[i] = 1;
      return;
    }
    if (log != nullptr) *log++ = {word, missing};
    Block::put(f, level, block, word);
    ++placed;
  });
  return placed;
}

// Level by level: the keys that a level neither has nor would have taken go on to the next.
template <uint32_t BlockLog, Rule R>
void balanced_contains_loop(const BalancedView& f, const uint64_t* digests, size_t n, uint8_t* out) {
  using Block = BalancedBlock<BlockLog, R>;
  uint64_t words[kGroup];
  uint16_t index[kGroup];
  for (; n > 0;) {
    const size_t g = n < kGroup ? n : kGroup;
    size_t left = 0;
    const uint64_t version = R == Rule::counted ? list_version(f) : 0;
    const Level first = f.levels[0];
    each_block<BlockLog, 0>(first, digests, g, [&](size_t i, uint64_t word, const uint64_t* block) {
      const bool hit = Block::has(f, first, block, word);
      out[i] = hit;
      index[left] = static_cast<uint16_t>(i);
      left += Block::goes_on(f, first, block, word, hit);
    });
    for (uint32_t j = 1; j < f.choices && left > 0; ++j) {
      const Level level = f.levels[j];
      for (size_t i = 0; i < left; ++i) words[i] = splitmix(digests[index[i]], j);
      size_t kept = 0;
      each_block<BlockLog, 0>(level, words, left, [&](size_t i, uint64_t word, const uint64_t* block) {
        const bool hit = Block::has(f, level, block, word);
        out[index[i]] = hit;
        index[kept] = index[i];
        kept += Block::goes_on(f, level, block, word, hit);
      });
      left = kept;
    }
    if constexpr (R == Rule::counted) {
      if (load_word(f.state + 1) > 0) {
        if (load_word(f.state + 3) & kBudgetSpent) {  // then every miss must ask
          left = 0;
          for (size_t i = 0; i < g; ++i) {
            index[left] = static_cast<uint16_t>(i);
            left += !out[i];
          }
        }
        for (size_t i = 0; i < left; ++i) {
          words[i] = digests[index[i]];
          __builtin_prefetch(f.slots + list_home(f, words[i]));
        }
        for (size_t i = 0; i < left; ++i) out[index[i]] = list_has(f, words[i]);
      }
      if (!list_unchanged(f, version))  // see balanced_contains_key
        for (size_t i = 0; i < g; ++i)
          if (!out[i]) out[i] = balanced_contains_key<BlockLog, R>(&f, digests[i]);
    }
    digests += g;
    out += g;
    n -= g;
  }
}

template <uint32_t BlockLog, Rule R, AddOutcome Add(const void*, uint64_t)>
constexpr BalancedLoops balanced_loops_of(decltype(BalancedLoops::add_level) add_level) {
  return {
      .one = {.add_to = Add, .add_new_to = Add, .contained_in = balanced_contains_key<BlockLog, R>, .view = nullptr},
      .add_in_order = balanced_add_in_order<BlockLog, Add>,
      .add_level = add_level,
      .contains_many = balanced_contains_loop<BlockLog, R>};
}

template <uint32_t BlockLog>
const BalancedLoops& balanced_loops(Rule rule) {
  static constexpr BalancedLoops counted =
      balanced_loops_of<BlockLog, Rule::counted, balanced_add_key<BlockLog, Rule::counted>>(
          balanced_add_level<BlockLog, Rule::counted>);
  static constexpr BalancedLoops fill = balanced_loops_of<BlockLog, Rule::fill, balanced_add_key<BlockLog, Rule::fill>>(
      balanced_add_level<BlockLog, Rule::fill>);
  static constexpr BalancedLoops two_choice =
      balanced_loops_of<BlockLog, Rule::two_choice, two_choice_add_key<BlockLog>>(nullptr);
  return rule == Rule::counted ? counted : rule == Rule::fill ? fill : two_choice;
}

const BalancedLoops& balanced(uint32_t block_log, Rule rule) {
  return block_log == 9 ? balanced_loops<9>(rule) : balanced_loops<8>(rule);
}

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

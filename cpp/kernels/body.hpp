// The loops all kernels share, as text: each kernel's file defines EVENBINS_KERNEL_NAMESPACE and the
// classes below, and includes this. The compiler then builds (and vectorises) them for its instructions.
//
// Every loop that touches a filter runs behind its own prefetches: a random cache line takes 20 … 100 ns
// to arrive, and a core can wait for many of them at once.
//
//     Reader<block_log, hashes>    contains(block, digest) for one block
//     Writer<block_log, hashes>    add(block, digest)
//     has_bits<block_log, scaled>(block, word, hashes, range)    the same with numbers known at run time;
//     set_bits<block_log, scaled>(block, word, hashes, range)    scaled: positions among `range` bits only
//     mask_bits<block_log>(mask, word, hashes)                   the key's bits in an empty block
//     split(…)                     see Kernel
//     line_is_zero(line)           for the raw limit
//     match8(line, word)           for tables (table.hpp)
#include <utility>

#include "evenbins/counters.hpp"
#include "evenbins/kernel.hpp"
#include "evenbins/lanes.hpp"
#include "evenbins/shared_words.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

constexpr size_t kAhead = 24;      // lines in flight: 24 … 48 alike on Zen 4; 8 costs half as much again at 32 MiB
constexpr size_t kKeysAhead = 16;  // keys, where each has two lines or more in flight

void digest_u64(const IntHash& hash, const uint64_t* keys, size_t n, uint64_t* out) {
  const IntHash h = hash;
  for (size_t i = 0; i < n; ++i) out[i] = h.digest(keys[i], false);
}

void digest_i64(const IntHash& hash, const int64_t* keys, size_t n, uint64_t* out) {
  const IntHash h = hash;
  for (size_t i = 0; i < n; ++i) out[i] = h.digest(static_cast<uint64_t>(keys[i]), keys[i] < 0);
}

// mulhi(x, m) from 32-bit products, which vectorise, when m has at most 32 bits.
EVENBINS_INLINE uint64_t mulhi_narrow(uint64_t x, uint64_t m) {
  return ((x >> 32) * m + ((x & 0xFFFFFFFF) * m >> 32)) >> 32;
}

// Position i of n digests.
template <bool Narrow>
EVENBINS_INLINE void column(uint64_t bits, uint64_t i, const uint64_t* digests, size_t n, uint64_t* out) {
  for (size_t j = 0; j < n; ++j) {
    const uint64_t word = splitmix(digests[j], i);
    out[j] = Narrow ? mulhi_narrow(word, bits) : mulhi(word, bits);
  }
}
void column(uint64_t bits, uint64_t i, const uint64_t* digests, size_t n, uint64_t* out) {
  if (bits <= 0xFFFFFFFF)
    column<true>(bits, i, digests, n, out);
  else
    column<false>(bits, i, digests, n, out);
}

void standard_positions(const StandardView& f, const uint64_t* digests, size_t n, uint64_t* out) {
  if (f.extra != nullptr) {
    for (size_t j = 0; j < n; ++j) {
      Progression p(f, digests[j]);
      for (uint32_t i = 0; i < f.hashes; ++i) {
        out[i * n + j] = p.position + i * f.stride;
        p.advance(f, i);
      }
    }
    return;
  }
  for (uint32_t i = 0; i < f.hashes; ++i) column(f.bits, i, digests, n, out + i * n);
}

// Both halves of word i of n digests, scaled to 0 … width−1; width ≤ 2^32.
void pair_positions(uint64_t width, uint64_t i, const uint64_t* digests, size_t n, uint64_t* first, uint64_t* second) {
  for (size_t j = 0; j < n; ++j) {
    const uint64_t word = splitmix(digests[j], i);
    first[j] = (word >> 32) * width >> 32;
    second[j] = (word & 0xFFFFFFFF) * width >> 32;
  }
}

// Keys that a standard filter treats together, column by column: long enough that the few reads which
// start a column, and nobody has asked for in time, do not count. Tried and dropped: 128 keys with all
// reads of a column requested at once. That is more than a core can keep in flight, and takes 1.6 times as
// long at 256 MiB.
constexpr size_t kGroup = 1024;

// Where to prefetch for a position. By a number, not a pointer: a position that is none (kNoCounter) has no pointer.
template <uint32_t WordLog>
EVENBINS_INLINE const void* near_word(const uint64_t* words, uint64_t position) {
  return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(words) + 8 * (position >> WordLog));
}

// Calls f(j, position) for j = 0 … n−1, with the words of the next positions on their way: 2^WordLog positions to a
// word.
template <int ForWriting, uint32_t WordLog, typename F>
EVENBINS_INLINE void each_position(const uint64_t* words, const uint64_t* positions, size_t n, F&& f) {
  const auto at = [&](size_t j) { return near_word<WordLog>(words, positions[j]); };
  for (size_t j = 0; j < kAhead && j < n; ++j) __builtin_prefetch(at(j), ForWriting);
  for (size_t j = 0; j < n; ++j) {
    if (j + kAhead < n) __builtin_prefetch(at(j + kAhead), ForWriting);
    f(j, positions[j]);
  }
}

// The same for keys with fewer hashes than positions: a column is made from the one before.
struct Columns {
  uint64_t position[kGroup], step[kGroup], third[kGroup], shifted[kGroup];

  Columns(const StandardView& f, const uint64_t* digests, size_t n) {
    for (size_t j = 0; j < n; ++j) {
      const Progression p(f, digests[j]);
      position[j] = p.position;
      step[j] = p.step;
      third[j] = p.third;
    }
  }
  const uint64_t* positions(const StandardView& f, uint32_t i, size_t n) {
    if (f.stride == 0) return position;
    for (size_t j = 0; j < n; ++j) shifted[j] = position[j] + i * f.stride;
    return shifted;
  }
  void advance(const StandardView& f, uint32_t i, size_t n) {
    const uint64_t range = f.range, extra = f.extra[i];
    for (size_t j = 0; j < n; ++j) position[j] = add_mod(add_mod(position[j], step[j], range), extra, range);
    if (f.third)
      for (size_t j = 0; j < n; ++j) step[j] = add_mod(step[j], third[j], range);
  }
};

void progression_add(const StandardView& f, const uint64_t* digests, size_t n) {
  for (size_t g; n > 0; digests += g, n -= g) {
    g = n < kGroup ? n : kGroup;
    Columns columns(f, digests, g);
    for (uint32_t i = 0; i < f.hashes; ++i) {
      each_position<1, 6>(f.words, columns.positions(f, i, g), g, [&](size_t, uint64_t p) { set_bit(f.words, p); });
      columns.advance(f, i, g);
    }
  }
}

void progression_contains(const StandardView& f, const uint64_t* digests, size_t n, uint8_t* out) {
  uint16_t index[kGroup];
  for (size_t g; n > 0; digests += g, out += g, n -= g) {
    g = n < kGroup ? n : kGroup;
    Columns columns(f, digests, g);
    for (size_t j = 0; j < g; ++j) {
      index[j] = static_cast<uint16_t>(j);
      out[j] = 0;
    }
    size_t left = g;
    for (uint32_t i = 0; i < f.hashes && left > 0; ++i) {
      size_t kept = 0;
      each_position<0, 6>(f.words, columns.positions(f, i, left), left, [&](size_t j, uint64_t p) {
        const bool set = has_bit(f.words, p);
        columns.position[kept] = columns.position[j];
        columns.step[kept] = columns.step[j];
        columns.third[kept] = columns.third[j];
        index[kept] = index[j];
        kept += set;
      });
      left = kept;
      columns.advance(f, i, left);
    }
    for (size_t j = 0; j < left; ++j) out[index[j]] = 1;
  }
}

void standard_add(const StandardView& f, const uint64_t* digests, size_t n) {
  if (f.extra != nullptr) return progression_add(f, digests, n);
  uint64_t positions[kGroup];
  for (; n > 0;) {
    const size_t g = n < kGroup ? n : kGroup;
    for (uint32_t i = 0; i < f.hashes; ++i) {
      column(f.bits, i, digests, g, positions);
      each_position<1, 6>(f.words, positions, g, [&](size_t, uint64_t p) { set_bit(f.words, p); });
    }
    digests += g;
    n -= g;
  }
}

// Column i tests position i of every key that is still alive, and keeps those whose bit is set: an absent
// key costs about two reads, a present one k. `has(position)`; `f` is a view of `size` bits or counters.
template <uint32_t WordLog, typename View, typename Has>
EVENBINS_INLINE void flat_contains(const View& f, uint64_t size, const uint64_t* digests, size_t n, uint8_t* out,
                                   Has&& has) {
  uint64_t alive[kGroup], positions[kGroup];
  uint16_t index[kGroup];
  for (; n > 0;) {
    const size_t g = n < kGroup ? n : kGroup;
    for (size_t j = 0; j < g; ++j) {
      alive[j] = digests[j];
      index[j] = static_cast<uint16_t>(j);
      out[j] = 0;
    }
    size_t left = g;
    for (uint32_t i = 0; i < f.hashes && left > 0; ++i) {
      column(size, i, alive, left, positions);
      size_t kept = 0;
      each_position<0, WordLog>(f.words, positions, left, [&](size_t j, uint64_t p) {
        alive[kept] = alive[j];
        index[kept] = index[j];
        kept += has(p);
      });
      left = kept;
    }
    for (size_t j = 0; j < left; ++j) out[index[j]] = 1;
    digests += g;
    out += g;
    n -= g;
  }
}

void standard_contains(const StandardView& f, const uint64_t* digests, size_t n, uint8_t* out) {
  if (f.extra != nullptr) return progression_contains(f, digests, n, out);
  flat_contains<6>(f, f.bits, digests, n, out, [&](uint64_t p) { return has_bit(f.words, p); });
}

template <uint32_t BlockLog>
EVENBINS_INLINE uint64_t* block_of(const BlockedView& f, uint64_t digest) {
  return f.words + (mulhi(digest, f.blocks) << (BlockLog - 6));
}

template <uint32_t BlockLog, uint32_t Hashes>
void blocked_add_loop(const BlockedView& f, const uint64_t* digests, size_t n) {
  constexpr Writer<BlockLog, Hashes> writer;
  for (size_t j = 0; j < kAhead && j < n; ++j) __builtin_prefetch(block_of<BlockLog>(f, digests[j]), 1);
  for (size_t j = 0; j < n; ++j) {
    if (j + kAhead < n) __builtin_prefetch(block_of<BlockLog>(f, digests[j + kAhead]), 1);
    writer.add(block_of<BlockLog>(f, digests[j]), digests[j]);
  }
}

template <uint32_t BlockLog, uint32_t Hashes>
void blocked_contains_loop(const BlockedView& f, const uint64_t* digests, size_t n, uint8_t* out) {
  constexpr Reader<BlockLog, Hashes> reader;
  for (size_t j = 0; j < kAhead && j < n; ++j) __builtin_prefetch(block_of<BlockLog>(f, digests[j]));
  for (size_t j = 0; j < n; ++j) {
    if (j + kAhead < n) __builtin_prefetch(block_of<BlockLog>(f, digests[j + kAhead]));
    out[j] = reader.contains(block_of<BlockLog>(f, digests[j]), digests[j]);
  }
}

template <uint32_t BlockLog, uint32_t Hashes>
bool blocked_contains_key(const void* view, uint64_t digest) {
  const auto& f = *static_cast<const BlockedView*>(view);
  return Reader<BlockLog, Hashes>().contains(block_of<BlockLog>(f, digest), digest);
}

template <uint32_t BlockLog, uint32_t Hashes>
AddOutcome blocked_add_key(const void* view, uint64_t digest) {
  const auto& f = *static_cast<const BlockedView*>(view);
  Writer<BlockLog, Hashes>().add(block_of<BlockLog>(f, digest), digest);
  return AddOutcome::added;
}

template <uint32_t BlockLog, uint32_t Hashes>
constexpr BlockedLoops blocked_loops() {
  return {{blocked_add_key<BlockLog, Hashes>, blocked_contains_key<BlockLog, Hashes>, nullptr},
          blocked_add_loop<BlockLog, Hashes>,
          blocked_contains_loop<BlockLog, Hashes>};
}

template <uint32_t BlockLog, uint32_t... I>
const BlockedLoops& loops_of(uint32_t hashes, std::integer_sequence<uint32_t, I...>) {
  static constexpr BlockedLoops loops[] = {blocked_loops<BlockLog, I + 1>()...};
  return loops[hashes - 1];
}

const BlockedLoops& blocked(uint32_t block_log, uint32_t hashes) {
  constexpr auto all = std::make_integer_sequence<uint32_t, kMaxBlockedHashes>();
  return block_log == 9 ? loops_of<9>(hashes, all) : loops_of<8>(hashes, all);
}

// --- balanced filters (balanced.hpp) ----------------------------------------------------------------------

template <uint32_t BlockLog>
EVENBINS_INLINE uint64_t* block_of(const Level& level, uint64_t word) {
  return level.words + (mulhi(word, level.blocks) << (BlockLog - 6));
}

template <uint32_t BlockLog>
EVENBINS_INLINE uint32_t popcount_of(const uint64_t* block) {
  uint32_t count = 0;
#pragma GCC unroll 8
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
#pragma GCC unroll 2
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
void balanced_add_in_order(const BalancedView& f, const uint64_t* digests, size_t n) {
  // Always inlined, here and below: gcc takes a function that only prefetches for one that does nothing.
  const auto ask = [&](uint64_t digest) __attribute__((always_inline)) {
    for (uint32_t j = 0; j < f.choices; ++j) __builtin_prefetch(block_of<BlockLog>(f.levels[j], word_of(digest, j)), 1);
  };
  for (size_t i = 0; i < kKeysAhead && i < n; ++i) ask(digests[i]);
  for (size_t i = 0; i < n; ++i) {
    if (i + kKeysAhead < n) ask(digests[i + kKeysAhead]);
    Add(&f, digests[i]);
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
                          uint64_t* undo) {
  using Block = BalancedBlock<BlockLog, R>;
  const Level level = f.levels[j];
  size_t placed = 0;
  each_block<BlockLog, 1>(level, words, n, [&](size_t i, uint64_t word, uint64_t* block) {
    passed[i] = 0;
    if (Block::has(f, level, block, word)) return;
    if (Block::full(f, level, block, word)) {
      passed[i] = 1;
      return;
    }
    if (undo != nullptr) {
      *undo++ = static_cast<uint64_t>(block - level.words);
      for (uint32_t w = 0; w <= Block::kLast; ++w) *undo++ = block[w];
    }
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

template <uint32_t BlockLog>
const BalancedLoops& balanced_loops(Rule rule) {
  static constexpr BalancedLoops counted = {
      {balanced_add_key<BlockLog, Rule::counted>, balanced_contains_key<BlockLog, Rule::counted>, nullptr},
      balanced_add_in_order<BlockLog, balanced_add_key<BlockLog, Rule::counted>>,
      balanced_add_level<BlockLog, Rule::counted>,
      balanced_contains_loop<BlockLog, Rule::counted>};
  static constexpr BalancedLoops fill = {
      {balanced_add_key<BlockLog, Rule::fill>, balanced_contains_key<BlockLog, Rule::fill>, nullptr},
      balanced_add_in_order<BlockLog, balanced_add_key<BlockLog, Rule::fill>>,
      balanced_add_level<BlockLog, Rule::fill>,
      balanced_contains_loop<BlockLog, Rule::fill>};
  static constexpr BalancedLoops two_choice = {
      {two_choice_add_key<BlockLog>, balanced_contains_key<BlockLog, Rule::two_choice>, nullptr},
      balanced_add_in_order<BlockLog, two_choice_add_key<BlockLog>>,
      nullptr,
      balanced_contains_loop<BlockLog, Rule::two_choice>};
  return rule == Rule::counted ? counted : rule == Rule::fill ? fill : two_choice;
}

const BalancedLoops& balanced(uint32_t block_log, Rule rule) {
  return block_log == 9 ? balanced_loops<9>(rule) : balanced_loops<8>(rule);
}

// --- counting filters (counting.hpp) -----------------------------------------------------------------------

// Counters anywhere: positions as a standard filter's, without the repeats of a key.
template <uint32_t WidthLog>
struct FlatCounters {
  using C = Counters<WidthLog>;
  static constexpr size_t kItems = 4096;  // positions of the keys that are treated together

  static void positions(const CountingView& f, const uint64_t* digests, size_t n, uint64_t* out) {
    for (uint32_t i = 0; i < f.hashes; ++i) column(f.size, i, digests, n, out + i * n);
    // Repeats are rare, and to know that there is none takes no writing.
    uint64_t any = 0;
    for (uint32_t i = 1; i < f.hashes; ++i)
      for (uint32_t h = 0; h < i; ++h)
        for (size_t j = 0; j < n; ++j) any |= out[i * n + j] == out[h * n + j] ? 1 : 0;
    if (any == 0) [[likely]]
      return;
    for (uint32_t i = 1; i < f.hashes; ++i)
      for (uint32_t h = 0; h < i; ++h)
        for (size_t j = 0; j < n; ++j)
          if (out[i * n + j] == out[h * n + j]) out[i * n + j] = kNoCounter;
  }
  static void add_positions(const CountingView& f, const uint64_t* positions, size_t n) {
    each_position<1, C::kWordLog>(f.words, positions, n, [&](size_t, uint64_t p) {
      if (p != kNoCounter) [[likely]]
        C::raise(f.words, p);
    });
  }
  // Calls act(start, keys, positions) for groups of keys.
  template <typename F>
  EVENBINS_INLINE static void each_group(const CountingView& f, const uint64_t* digests, size_t n, F&& act) {
    uint64_t items[kItems];
    const size_t most = kItems / f.hashes;
    for (size_t start = 0; start < n; start += most) {
      const size_t g = n - start < most ? n - start : most;
      positions(f, digests + start, g, items);
      act(start, g, items);
    }
  }
  // Takes one key away, or nothing if a counter is zero.
  EVENBINS_INLINE static bool remove_at(const CountingView& f, const uint64_t* p) {
    uint64_t zero = 0;
    for (uint32_t i = 0; i < f.hashes; ++i)
      if (p[i] != kNoCounter) [[likely]]
        zero |= C::at(f.words, p[i]) == 0 ? 1 : 0;
    if (zero != 0) return false;
    for (uint32_t i = 0; i < f.hashes; ++i)
      if (p[i] != kNoCounter) [[likely]]
        C::lower(f.words, p[i]);
    return true;
  }

  static AddOutcome add_key(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const CountingView*>(view);
    uint64_t p[kMaxFlatHashes];
    positions(f, &digest, 1, p);
    for (uint32_t i = 0; i < f.hashes; ++i)
      if (p[i] != kNoCounter) C::raise(f.words, p[i]);
    return AddOutcome::added;
  }
  static bool contains_key(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const CountingView*>(view);
    for (uint32_t i = 0; i < f.hashes; ++i)
      if (C::at(f.words, mulhi(splitmix(digest, i), f.size)) == 0) return false;
    return true;
  }
  static bool remove(const CountingView& f, uint64_t digest) {
    uint64_t p[kMaxFlatHashes];
    positions(f, &digest, 1, p);
    return remove_at(f, p);
  }
  static void add_many(const CountingView& f, const uint64_t* digests, size_t n) {
    each_group(f, digests, n, [&](size_t, size_t g, const uint64_t* p) { add_positions(f, p, g * f.hashes); });
  }
  static void contains_many(const CountingView& f, const uint64_t* digests, size_t n, uint8_t* out) {
    flat_contains<C::kWordLog>(f, f.size, digests, n, out, [&](uint64_t p) { return C::at(f.words, p) != 0; });
  }
  // Key by key, so the positions of a key are put side by side. Tried and dropped: column by column, as a key is
  // added, which is taken back where a counter was zero: meanwhile a look-up could miss a key that is in.
  static void remove_many(const CountingView& f, const uint64_t* digests, size_t n, uint8_t* out) {
    const uint32_t k = f.hashes;
    const size_t ahead = 1 + (kAhead - 1) / k;  // keys
    uint64_t rows[kItems];
    each_group(f, digests, n, [&](size_t start, size_t g, const uint64_t* p) {
      for (size_t j = 0; j < g; ++j)
        for (uint32_t i = 0; i < k; ++i) rows[j * k + i] = p[i * g + j];
      const auto ask = [&](size_t j) {
        for (uint32_t i = 0; i < k; ++i) __builtin_prefetch(near_word<C::kWordLog>(f.words, rows[j * k + i]), 1);
      };
      for (size_t j = 0; j < ahead && j < g; ++j) ask(j);
      for (size_t j = 0; j < g; ++j) {
        if (j + ahead < g) ask(j + ahead);
        out[start + j] = remove_at(f, rows + j * k);
      }
    });
  }
  static void count_many(const CountingView& f, const uint64_t* digests, size_t n, int64_t* out) {
    uint64_t positions[kGroup];
    for (size_t start = 0; start < n; start += kGroup, out += kGroup) {
      const size_t g = n - start < kGroup ? n - start : kGroup;
      for (size_t j = 0; j < g; ++j) out[j] = C::kMost;
      for (uint32_t i = 0; i < f.hashes; ++i) {
        column(f.size, i, digests + start, g, positions);
        each_position<0, C::kWordLog>(f.words, positions, g, [&](size_t j, uint64_t p) {
          const auto count = static_cast<int64_t>(C::at(f.words, p));
          out[j] = count < out[j] ? count : out[j];
        });
      }
    }
  }

  static constexpr CountingLoops loops = {{add_key, contains_key, nullptr},
                                          remove,
                                          add_many,
                                          contains_many,
                                          remove_many,
                                          count_many,
                                          positions,
                                          add_positions};
};

// Counters in one block: the key's step is the bits that a blocked filter would set, folded to the counters' lowest.
template <uint32_t WidthLog>
struct BlockCounters {
  using C = Counters<WidthLog>;
  static constexpr uint32_t kWords = 8;

  EVENBINS_INLINE static uint64_t* block_of(const CountingView& f, uint64_t digest) {
    return f.words + mulhi(digest, f.size) * kWords;
  }
  struct Step {
    alignas(64) uint64_t words[kWords];
    EVENBINS_INLINE Step(const CountingView& f, uint64_t digest) {
      mask_bits<9>(words, digest, f.hashes);
      for (uint32_t i = 0; i < kWords; ++i) {
        uint64_t word = words[i];
        if constexpr (kMaskByWords) asm("" : "+r"(word));  // read by itself, not as part of a vector
        words[i] = C::used(word);
      }
    }
    EVENBINS_INLINE bool fits(const uint64_t* block) const {  // no counter of the key is zero
      uint64_t missing = 0;
      for (uint32_t i = 0; i < kWords; ++i) missing |= words[i] & ~C::used(load_word(block + i));
      return missing == 0;
    }
  };
  EVENBINS_INLINE static void put(const CountingView& f, uint64_t* block, uint64_t digest) {
    const Step step(f, digest);
    for (uint32_t i = 0; i < kWords; ++i) store_word(block + i, block[i] + (step.words[i] & ~C::full(block[i])));
  }
  EVENBINS_INLINE static bool take(const CountingView& f, uint64_t* block, uint64_t digest) {
    const Step step(f, digest);
    if (!step.fits(block)) return false;
    for (uint32_t i = 0; i < kWords; ++i) store_word(block + i, block[i] - (step.words[i] & ~C::full(block[i])));
    return true;
  }
  // Calls act(i, block) for i = 0 … n−1, with the next blocks on their way.
  template <int ForWriting, typename F>
  EVENBINS_INLINE static void each(const CountingView& f, const uint64_t* digests, size_t n, F&& act) {
    for (size_t i = 0; i < kAhead && i < n; ++i) __builtin_prefetch(block_of(f, digests[i]), ForWriting);
    for (size_t i = 0; i < n; ++i) {
      if (i + kAhead < n) __builtin_prefetch(block_of(f, digests[i + kAhead]), ForWriting);
      act(i, block_of(f, digests[i]));
    }
  }

  static AddOutcome add_key(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const CountingView*>(view);
    put(f, block_of(f, digest), digest);
    return AddOutcome::added;
  }
  static bool contains_key(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const CountingView*>(view);
    return Step(f, digest).fits(block_of(f, digest));
  }
  static bool remove(const CountingView& f, uint64_t digest) { return take(f, block_of(f, digest), digest); }
  static void add_many(const CountingView& f, const uint64_t* digests, size_t n) {
    each<1>(f, digests, n, [&](size_t i, uint64_t* block) { put(f, block, digests[i]); });
  }
  static void contains_many(const CountingView& f, const uint64_t* digests, size_t n, uint8_t* out) {
    each<0>(f, digests, n, [&](size_t i, const uint64_t* block) { out[i] = Step(f, digests[i]).fits(block); });
  }
  static void remove_many(const CountingView& f, const uint64_t* digests, size_t n, uint8_t* out) {
    each<1>(f, digests, n, [&](size_t i, uint64_t* block) { out[i] = take(f, block, digests[i]); });
  }
  static void count_many(const CountingView& f, const uint64_t* digests, size_t n, int64_t* out) {
    each<0>(f, digests, n, [&](size_t i, const uint64_t* block) {
      uint64_t least = C::kMost;
      every_position(digests[i], 512 >> WidthLog, f.hashes, [&](uint32_t p) {
        const uint64_t count = C::at(block, p);
        least = count < least ? count : least;
        return least != 0;
      });
      out[i] = static_cast<int64_t>(least);
    });
  }

  static constexpr CountingLoops loops = {
      {add_key, contains_key, nullptr}, remove, add_many, contains_many, remove_many, count_many, nullptr, nullptr};
};

template <uint32_t WidthLog>
const CountingLoops& counting_loops(bool blocked) {
  return blocked ? BlockCounters<WidthLog>::loops : FlatCounters<WidthLog>::loops;
}

const CountingLoops& counting(uint32_t counter_bits, bool blocked) {
  switch (counter_bits) {
    case 2: return counting_loops<1>(blocked);
    case 4: return counting_loops<2>(blocked);
    case 8: return counting_loops<3>(blocked);
    default: return counting_loops<4>(blocked);
  }
}

uint64_t line_reads(const IntHash& hash, const uint64_t* words, uint64_t lines, const uint64_t* keys, size_t n) {
  constexpr size_t kBatch = 1024;
  uint64_t digests[kBatch], zero_lines = 0;
  for (; n > 0;) {
    const size_t g = n < kBatch ? n : kBatch;
    digest_u64(hash, keys, g, digests);
    for (size_t j = 0; j < kAhead && j < g; ++j) __builtin_prefetch(words + (mulhi(digests[j], lines) << 3));
    for (size_t j = 0; j < g; ++j) {
      if (j + kAhead < g) __builtin_prefetch(words + (mulhi(digests[j + kAhead], lines) << 3));
      zero_lines += line_is_zero(words + (mulhi(digests[j], lines) << 3));
    }
    keys += g;
    n -= g;
  }
  return zero_lines;
}

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

#include "table.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {

extern const Kernel table;
const Kernel table = {EVENBINS_KERNEL_NAME, digest_u64,     digest_i64, standard_positions, standard_add,
                      standard_contains,    blocked,        balanced,   counting,           split,
                      line_reads,           pair_positions, multilevel};

}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

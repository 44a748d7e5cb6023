// The inner loops that exist once for each instruction set, behind one table.
//
// Every kernel gives the same bits and the same answers; they differ in speed alone. The table is chosen
// once, at import (dispatch.cpp), or forced by EVENBINS_KERNEL. A kernel sees only plain views and plain
// arrays: it includes nothing that could leave code of its instruction set in a shared inline function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "evenbins/hash.hpp"
#include "evenbins/one_key.hpp"
#include "evenbins/shared_words.hpp"

namespace evenbins {

struct StandardView {  // k positions anywhere in m bits
  uint64_t* words;
  uint64_t bits;
  uint32_t hashes;
  // Fewer hashes than positions (bloom.hpp): position i+1 is position i + step + extra[i] modulo `range`, and step
  // grows by a third hash if there is one. Null: every position has a hash of its own.
  const uint64_t* extra = nullptr;
  uint64_t range = 0;
  uint64_t stride = 0;  // position i is moved by i·stride: into its own part of the bits
  bool third = false;
};

EVENBINS_INLINE constexpr uint64_t add_mod(uint64_t a, uint64_t b, uint64_t range) {  // both below range
  const uint64_t sum = a + b;
  return sum < range ? sum : sum - range;
}

// The positions of a key that has fewer hashes than positions, one after the other.
struct Progression {
  uint64_t position, step, third;

  EVENBINS_INLINE Progression(const StandardView& f, uint64_t digest)
      : position(mulhi(splitmix(digest, 0), f.range)),
        step(mulhi(splitmix(digest, 1), f.range)),
        third(f.third ? mulhi(splitmix(digest, 2), f.range) : 0) {}
  EVENBINS_INLINE void advance(const StandardView& f, uint32_t i) {  // from position i to i + 1
    position = add_mod(add_mod(position, step, f.range), f.extra[i], f.range);
    step = add_mod(step, third, f.range);
  }
};

struct BlockedView {  // one block of 2^block_log bits for each key
  uint64_t* words;
  uint64_t blocks;
  uint32_t block_log;  // 8 or 9
  uint32_t hashes;
};

struct CountingView {  // counters in place of bits (counting.hpp)
  uint64_t* words;
  uint64_t size;  // counters, or blocks of 512 bits if a key's counters lie in one
  uint32_t hashes;
};

// One table of a balanced filter (balanced.hpp), as one of a key's choices sees it. A counted block keeps its
// load in the top bits of its last word; otherwise the load is the number of set bits.
struct Level {
  uint64_t* words;
  uint64_t blocks;
  uint32_t range;          // bits of a block that belong to keys
  uint32_t threshold;      // full: a load above it, or at it if the key's coin says so; set bits: at it
  uint32_t counter_shift;  // of the counter in the last word
};

inline constexpr uint32_t kMaxChoices = 8, kMaxFlatHashes = 64;
inline constexpr uint64_t kZeroListed = 1, kBudgetSpent = 2;  // flags in BalancedView::state[3]

struct BalancedView {
  Level levels[kMaxChoices];  // the same table again and again where all choices share one
  uint32_t choices, hashes;
  uint64_t coin;         // of 2^32: a block at its threshold accepts
  const uint64_t* harm;  // two-choice: the rate of a block with 0, 1, … set bits
  uint64_t budget;       // sequential: block reads that insertions may spend; 0 without
  uint64_t* state;       // counted: eight words (balanced.hpp)
  // The rare paths, which need no kernel (balanced.cpp): a key whose blocks are all full; a key to be added
  // without reading a block, once the budget is spent.
  AddOutcome (*overflow)(const BalancedView&, uint64_t digest);
  void (*add_unread)(const BalancedView&, uint64_t digest);
  uint64_t* slots;  // of the overflow list
  uint64_t slot_count, limit;
  bool spill_at_random;
  const uint64_t* version;  // of the list: odd while a merge rebuilds it
};

// A look-up that found nothing is right only if no merge rebuilt the list meanwhile: the version was even before it
// read anything, and is the same after it has read everything (a seqlock; balanced.cpp has the writer's half).
EVENBINS_INLINE uint64_t list_version(const BalancedView& f) { return __atomic_load_n(f.version, __ATOMIC_ACQUIRE); }
EVENBINS_INLINE bool list_unchanged(const BalancedView& f, uint64_t version) {
  __atomic_thread_fence(__ATOMIC_ACQUIRE);  // no load of the look-up may move behind the next one
  return version % 2 == 0 && __atomic_load_n(f.version, __ATOMIC_RELAXED) == version;
}
// The overflow list: digests in lines of eight slots, 0 for an empty one. A key is looked for from the start of
// its home line (found by a word that no level has biased) to the first line that has an empty slot.
inline constexpr uint64_t kLineSlots = 8;
EVENBINS_INLINE constexpr uint64_t list_home(const BalancedView& f, uint64_t digest) {
  return mulhi(splitmix(digest, f.choices), f.slot_count / kLineSlots) * kLineSlots;
}
EVENBINS_INLINE bool list_has(const BalancedView& f, uint64_t digest) {
  if (load_word(f.state + 1) == 0) return false;
  if (digest == 0) return (load_word(f.state + 3) & kZeroListed) != 0;
  uint64_t home = list_home(f, digest);
  for (uint64_t seen = 0; seen < f.slot_count; seen += kLineSlots) {  // an end even in a file that lies
    uint64_t found = 0, empty = 0;
    for (uint64_t i = 0; i < kLineSlots; ++i) {
      const uint64_t slot = load_word(f.slots + home + i);
      found |= slot == digest ? 1 : 0;
      empty |= slot == 0 ? 1 : 0;
    }
    if (found | empty) return found != 0;
    home = home + kLineSlots == f.slot_count ? 0 : home + kLineSlots;
  }
  return false;
}
// 1 if this key's coin at this level says "reject".
EVENBINS_INLINE constexpr uint64_t coin_rejects(uint64_t word, uint64_t coin) {
  return (splitmix(word, 0) >> 32) >= coin ? 1 : 0;
}

struct BlockedLoops {  // for one block size and number of hashes
  OneKey one;          // of a BlockedView still to be named
  void (*add_many)(const BlockedView&, const uint64_t* digests, size_t n);
  void (*contains_many)(const BlockedView&, const uint64_t* digests, size_t n, uint8_t* out);
};

enum class Rule { counted, fill, two_choice };  // when a block is full, and which block takes a key

struct BalancedLoops {  // for one block size and rule
  OneKey one;           // of a BalancedView still to be named
  void (*add_in_order)(const BalancedView&, const uint64_t* digests, size_t n);
  // Adds to one level the keys with these words, in order; passed[i] = 1 for each that goes on to the next.
  // Returns how many were placed here. For each of those `undo`, unless it is null, gets the block's number of
  // words from the table's start and the words it had before.
  size_t (*add_level)(const BalancedView&, uint32_t level, const uint64_t* words, size_t n, uint8_t* passed,
                      uint64_t* undo);
  void (*contains_many)(const BalancedView&, const uint64_t* digests, size_t n, uint8_t* out);
};

struct CountingLoops {  // for one width of counters and layout
  OneKey one;           // of a CountingView still to be named
  bool (*remove)(const CountingView&, uint64_t digest);
  void (*add_many)(const CountingView&, const uint64_t* digests, size_t n);
  void (*contains_many)(const CountingView&, const uint64_t* digests, size_t n, uint8_t* out);
  void (*remove_many)(const CountingView&, const uint64_t* digests, size_t n, uint8_t* out);
  void (*count_many)(const CountingView&, const uint64_t* digests, size_t n, int64_t* out);
  // Counters anywhere: the distinct positions of the keys, kNoCounter for each that repeats one of its key; null
  // where a key's counters lie in one block.
  void (*positions)(const CountingView&, const uint64_t* digests, size_t n, uint64_t* out);
  void (*add_positions)(const CountingView&, const uint64_t* positions, size_t n);
};

struct TableView;  // table_view.hpp
struct TableLoops;

inline constexpr size_t kSplitSlack = 8;  // words that `split` may write behind the end of its outputs

struct Kernel {
  const char* name;
  void (*digest_u64)(const IntHash&, const uint64_t* keys, size_t n, uint64_t* out);
  void (*digest_i64)(const IntHash&, const int64_t* keys, size_t n, uint64_t* out);
  void (*standard_positions)(const StandardView&, const uint64_t* digests, size_t n, uint64_t* out);
  void (*standard_add)(const StandardView&, const uint64_t* digests, size_t n);
  void (*standard_contains)(const StandardView&, const uint64_t* digests, size_t n, uint8_t* out);
  const BlockedLoops& (*blocked)(uint32_t block_log, uint32_t hashes);
  const BalancedLoops& (*balanced)(uint32_t block_log, Rule rule);
  const CountingLoops& (*counting)(uint32_t counter_bits, bool blocked);
  // Items below `bound` go to `low`, the others to `high`, both in order; returns how many went to `low`.
  size_t (*split)(const uint64_t* items, size_t n, uint64_t bound, uint64_t* low, uint64_t* high);
  // The raw limit of any one-read filter: hash, prefetch, read one 64-byte line a key, and nothing else.
  uint64_t (*line_reads)(const IntHash&, const uint64_t* words, uint64_t lines, const uint64_t* keys, size_t n);
  // A count-min sketch's: both halves of word i of each digest, scaled to 0 … width−1; width ≤ 2^32.
  void (*pair_positions)(uint64_t width, uint64_t i, const uint64_t* digests, size_t n, uint64_t* first,
                         uint64_t* second);
  const TableLoops& (*multilevel)(uint32_t slots, uint32_t key_words);
};

// The kernel in force, and the ones this machine can run, slowest first.
const Kernel& kernel();
std::span<const Kernel* const> kernels();
// False when the machine has no kernel of that name.
bool use_kernel(const char* name);

}  // namespace evenbins

// A balanced filter (balanced.hpp) as its inner loops see it, its overflow list, and these loops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenbins/hash.hpp"
#include "evenbins/one_key.hpp"
#include "evenbins/shared_words.hpp"

namespace evenbins {

// One table of a balanced filter (balanced.hpp), as one of a key's choices sees it. A counted block keeps its
// load in the top bits of its last word; otherwise the load is the number of set bits.
struct Level {
  uint64_t* words;
  uint64_t blocks;
  uint32_t range;          // bits of a block that belong to keys
  uint32_t threshold;      // full: a load above it, or at it if the key's coin says so; set bits: at it
  uint32_t counter_shift;  // of the counter in the last word
};

inline constexpr uint32_t kMaxChoices = 8;
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

enum class Rule : uint8_t { counted, fill, two_choice };  // when a block is full, and which block takes a key

// A key in its block, and which of its bits were not there before: a bit has one such key, so that keys can be taken back
// in any order. (A copy of the block, as it was before each key, is 72 bytes long, and drove what is needed out of the
// caches: two threads added to a filter of 1 GiB hardly faster than one.)
struct PlacedKey {
  uint64_t word;
  uint64_t new_bits;  // bit i: that of the key's position i
};

struct BalancedLoops {  // for one block size and rule
  OneKey one;           // of a BalancedView still to be named
  // `added`, unless it is null, gets 1 for each key that was absent, and 0 for the others.
  void (*add_in_order)(const BalancedView&, const uint64_t* digests, size_t n, uint8_t* added);
  // Adds to one level the keys with these words, in order; passed[i] = 1 for each that goes on to the next.
  // Returns how many were placed here: these go to `log`, unless it is null.
  size_t (*add_level)(const BalancedView&, uint32_t level, const uint64_t* words, size_t n, uint8_t* passed,
                      PlacedKey* log);
  void (*contains_many)(const BalancedView&, const uint64_t* digests, size_t n, uint8_t* out);
};

}  // namespace evenbins

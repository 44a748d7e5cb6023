// A multilevel table as its inner loops see it (multilevel.hpp says what it means): plain pointers and numbers.
//
// A bucket has `slots` keys in a row (of digests the low words, then the high words), so that one vector comparison
// looks at all of them, and behind them their values; a set has none. Its number counts through all levels; a slot's number is
// bucket · slots + slot.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "evenbins/hash.hpp"
#include "evenbins/kernel.hpp"
#include "evenbins/table_keys.hpp"

namespace evenbins {

enum class Scheme : uint64_t {
  standard = 1,
  conservative = 2,
  second_chance = 3,
  extreme_second_chance = 4,
  least_loaded = 5
};

inline constexpr uint32_t kMaxLevels = 8;
inline constexpr uint64_t kAbsent = ~uint64_t{0};

// The words of a table's state, at the start of its payload.
enum StateWord : uint32_t {
  kInsertions,      // of keys that were not there
  kMoves,           // insertions that moved a resident
  kInsertionReads,  // buckets read by insertions
  kDeletions,       // that freed a slot
  kReturns,         // keys that came back from the overflow list
  kReturnMoves,     // of these, by moving a resident
  kListed,          // keys on the list
  kOldest,          // its ends: numbers of entries, from 1; 0 is none
  kYoungest,
  kFreed,        // the first of the entries that were used and are free
  kUsed,         // entries 1 … kUsed have been used
  kPlaced = 16,  // keys of each level
  kStateWords = kPlaced + kMaxLevels
};

// One entry's links; entries count from 1.
struct ListLinks {
  uint32_t next, previous;  // in order of age: the next is younger. A free entry: the next free one
  uint32_t chain;           // the next with the same place in the index
  uint32_t unused;
};

class TableGuide;

struct TableView {
  explicit TableView(const KeyHash& h) : hash(h) {}

  uint64_t* records = nullptr;  // `stride` words a bucket: keys, then values
  uint8_t* occupied = nullptr;  // one bit a slot
  uint8_t* marks = nullptr;     // likewise; of the conservative scheme alone
  uint32_t* next = nullptr;     // next_words numbers of buckets a slot, or none
  uint64_t* state = nullptr;
  uint64_t* list_keys = nullptr;
  uint64_t* list_values = nullptr;  // null in a set
  ListLinks* links = nullptr;
  uint32_t* index = nullptr;  // of the list: the first entry of each place
  uint64_t index_size = 0, limit = 0;

  uint64_t buckets[kMaxLevels] = {}, first[kMaxLevels] = {};  // of each level: how many, and the number of its first
  uint64_t stride = 0;                                        // slots · (words + value_words)
  uint32_t levels = 0, slots = 0, words = 0, next_words = 0;  // words of a key
  uint32_t value_words = 1;                                   // 0 in a set
  Scheme scheme = Scheme::standard;
  bool occupancy_bits = true;
  KeyHash hash;
  // Of a table with a summary alone (guided.hpp), else null: who keeps it; one bit a slot, and a digest a slot, if
  // deletions are lazy.
  TableGuide* guide = nullptr;
  uint8_t* deleted = nullptr;
  uint64_t* hashes = nullptr;
  // Of a table that several threads change (table_rounds.cpp), else null: called with the number of a bucket that is
  // not the inserted key's own before an insertion looks at it. False: it must not look, and takes it for full.
  bool (*before_look)(void* round, uint64_t bucket) = nullptr;
  void* round = nullptr;
  // The rare path of an insertion (multilevel.cpp): no bucket was found by the fast rule. False: no room at all.
  bool (*place)(const TableView&, const StoredKey& key, uint64_t value, uint64_t digest, bool is_new) = nullptr;
};

EVENBINS_INLINE uint64_t bucket_of(const TableView& t, uint64_t digest, uint32_t level) {
  return t.first[level] + mulhi(word_of(digest, level), t.buckets[level]);
}
template <uint32_t Slots>
EVENBINS_INLINE uint32_t occupied_in(const uint8_t* bits, uint64_t bucket) {  // one bit for each slot
  if constexpr (Slots == 8) return bits[bucket];
  const uint64_t bit = bucket * Slots;
  return static_cast<uint32_t>(bits[bit / 8] >> (bit % 8)) & ((1u << Slots) - 1);
}
EVENBINS_INLINE void set_bit(uint8_t* bits, uint64_t slot) {
  bits[slot / 8] = static_cast<uint8_t>(bits[slot / 8] | 1u << (slot % 8));
}
EVENBINS_INLINE void clear_bit(uint8_t* bits, uint64_t slot) {
  bits[slot / 8] = static_cast<uint8_t>(bits[slot / 8] & ~(1u << (slot % 8)));
}
EVENBINS_INLINE uint64_t list_place(const TableView& t, uint64_t digest) {
  return mulhi(word_of(digest, kMaxLevels), t.index_size);  // by a word that no level uses
}
// The entry of a key on the list, or 0. Ends even in a file that lies.
EVENBINS_INLINE uint64_t list_find(const TableView& t, uint64_t low, uint64_t high, uint64_t digest) {
  if (t.state[kListed] == 0 || t.limit == 0) return 0;
  uint64_t entry = t.index[list_place(t, digest)];
  for (uint64_t seen = 0; entry != 0 && entry <= t.limit && seen < t.limit; ++seen) {
    const uint64_t* key = t.list_keys + (entry - 1) * t.words;
    if (key[0] == low && (t.words == 1 || key[1] == high)) return entry;
    entry = t.links[entry - 1].chain;
  }
  return 0;
}
// Where a resident of a slot may go besides: the numbers of its buckets in other levels, for next_hashes.
EVENBINS_INLINE void write_next(const TableView& t, uint64_t slot, uint32_t level, uint64_t digest) {
  if (t.next_words == 0) return;
  uint32_t* out = t.next + slot * t.next_words;
  if (t.scheme == Scheme::second_chance) {
    out[0] = level + 1 < t.levels ? static_cast<uint32_t>(mulhi(word_of(digest, level + 1), t.buckets[level + 1])) : 0;
    return;
  }
  for (uint32_t j = 0; j < t.levels; ++j)
    if (j != level) *out++ = static_cast<uint32_t>(mulhi(word_of(digest, j), t.buckets[j]));
}

// A key of a round (table_rounds.cpp). Those that are `later` are left out by an insertion of many keys, and become so
// when they find no bucket by the fast rule.
enum class KeyStatus : uint8_t { free, later, placed, replaced };

// What an insertion of many keys reports of each, where the pointer is not null.
struct InsertReport {
  uint8_t* added = nullptr;     // 1 for a key that was not in before, else 0
  KeyStatus* status = nullptr;  // in and out
  uint64_t* undo = nullptr;     // with status: the slot of a key that was placed, the old value of one that was there
};

struct TableLoops {  // for one number of slots, of words of a key and of words of a value
  // The slot of a key in the levels, or kAbsent.
  uint64_t (*find)(const TableView&, uint64_t low, uint64_t high, uint64_t digest);
  // The values of keys, `missing` where there is none; found[i] = 1 where there is one. Returns how many there are.
  size_t (*get_many)(const TableView&, const uint64_t* keys, size_t n, uint64_t missing, uint64_t* out, uint8_t* found);
  void (*contains_many)(const TableView&, const uint64_t* keys, size_t n, uint8_t* found);
  // Stores keys with their values in order; returns how many are in: fewer than n when there was no room for one. Of a
  // set `values` is ignored.
  size_t (*insert_many)(const TableView&, const uint64_t* keys, const uint64_t* values, size_t n, bool are_new,
                        const InsertReport& report);
};

}  // namespace evenbins

// The parts of a multilevel table's memory (table_view.hpp), one at a time: slots, marks, and the overflow list. Shared
// by multilevel.cpp and guided.cpp.
#pragma once

#include <cstring>

#include "evenbins/table_view.hpp"

namespace evenbins {

// ---- slots ------------------------------------------------------------------------------------------------

inline uint32_t occupied_in(const TableView& t, const uint8_t* bits, uint64_t bucket) {
  const uint64_t bit = bucket * t.slots;
  return static_cast<uint32_t>(bits[bit / 8] >> (bit % 8)) & ((1u << t.slots) - 1);
}
// One bit for each slot of a bucket that no key may take.
inline uint32_t taken_in(const TableView& t, uint64_t bucket) {
  return occupied_in(t, t.occupied, bucket) | (t.deleted == nullptr ? 0 : occupied_in(t, t.deleted, bucket));
}
inline uint32_t full_mask(const TableView& t) { return (1u << t.slots) - 1; }
inline bool has_bit(const uint8_t* bits, uint64_t slot) { return (bits[slot / 8] >> (slot % 8) & 1) != 0; }

inline uint64_t* record_at(const TableView& t, uint64_t slot) {
  return t.records + slot / t.slots * t.stride + slot % t.slots;
}
inline StoredKey key_at(const TableView& t, uint64_t slot) {
  const uint64_t* line = record_at(t, slot);
  return {line[0], t.words == 2 ? line[t.slots] : 0};
}
inline uint64_t* value_at(const TableView& t, uint64_t slot) {  // not of a set
  return record_at(t, slot) + t.slots * t.words;
}
inline uint64_t value_of(const TableView& t, uint64_t slot) { return t.value_words == 0 ? 0 : *value_at(t, slot); }
inline void set_value(const TableView& t, uint64_t slot, uint64_t value) {
  if (t.value_words != 0) *value_at(t, slot) = value;
}
inline void put(const TableView& t, uint64_t slot, uint32_t level, const StoredKey& key, uint64_t value,
                uint64_t digest) {
  uint64_t* line = record_at(t, slot);
  line[0] = key.low;
  if (t.words == 2) line[t.slots] = key.high;
  set_value(t, slot, value);
  set_bit(t.occupied, slot);
  if (t.hashes != nullptr) t.hashes[slot] = digest;
  write_next(t, slot, level, digest);
}
inline uint32_t level_of(const TableView& t, uint64_t bucket) {
  uint32_t level = t.levels - 1;
  while (bucket < t.first[level]) --level;
  return level;
}
inline void clear_slot(const TableView& t, uint64_t slot) {
  uint64_t* line = record_at(t, slot);
  line[0] = 0;
  if (t.words == 2) line[t.slots] = 0;
  set_value(t, slot, 0);
  clear_bit(t.occupied, slot);
  if (t.scheme == Scheme::conservative) clear_bit(t.marks, slot);
  for (uint32_t i = 0; i < t.next_words; ++i) t.next[slot * t.next_words + i] = 0;
  --t.state[kPlaced + level_of(t, slot / t.slots)];
}

// ---- where a key goes -------------------------------------------------------------------------------------

struct Choice {
  enum class Way { direct, move, list } way = Way::list;
  uint64_t slot = 0;         // which x takes
  uint32_t level = 0;        // of that slot
  uint64_t destination = 0;  // of the resident of that slot, if it moves: a bucket,
  uint32_t to = 0;           // of this level
  bool mark = false;         // the slot is marked (also if x goes to the list)
};

// By the table's scheme. `read`: a bit for each level whose bucket of the key was read already; `reads`: how many
// reads that took, and then how many they are with those of the choice.
Choice choose_place(const TableView& t, uint64_t digest, uint32_t read, uint64_t& reads);
// Puts a key there, or on the list; false if that is full.
bool place_as_chosen(const TableView& t, const Choice& choice, const StoredKey& key, uint64_t value, uint64_t digest,
                     uint64_t reads);

// ---- the list ---------------------------------------------------------------------------------------------

inline void link_youngest(const TableView& t, uint32_t entry) {
  ListLinks& links = t.links[entry - 1];
  links.next = 0;
  links.previous = static_cast<uint32_t>(t.state[kYoungest]);
  if (links.previous != 0)
    t.links[links.previous - 1].next = entry;
  else
    t.state[kOldest] = entry;
  t.state[kYoungest] = entry;
}

inline void unlink(const TableView& t, uint32_t entry) {
  const ListLinks links = t.links[entry - 1];
  if (links.previous != 0)
    t.links[links.previous - 1].next = links.next;
  else
    t.state[kOldest] = links.next;
  if (links.next != 0)
    t.links[links.next - 1].previous = links.previous;
  else
    t.state[kYoungest] = links.previous;
}

inline StoredKey listed_key(const TableView& t, uint64_t entry) {
  const uint64_t* key = t.list_keys + (entry - 1) * t.words;
  return {key[0], t.words == 2 ? key[1] : 0};
}
inline uint64_t listed_value(const TableView& t, uint64_t entry) {
  return t.value_words == 0 ? 0 : t.list_values[entry - 1];
}
inline void set_listed_value(const TableView& t, uint64_t entry, uint64_t value) {
  if (t.value_words != 0) t.list_values[entry - 1] = value;
}

inline void list_add(const TableView& t, const StoredKey& key, uint64_t value, uint64_t digest) {
  auto entry = static_cast<uint32_t>(t.state[kFreed]);
  if (entry != 0)
    t.state[kFreed] = t.links[entry - 1].next;
  else
    entry = static_cast<uint32_t>(++t.state[kUsed]);
  uint64_t* words = t.list_keys + (entry - 1) * t.words;
  words[0] = key.low;
  if (t.words == 2) words[1] = key.high;
  set_listed_value(t, entry, value);
  uint32_t& place = t.index[list_place(t, digest)];
  t.links[entry - 1].chain = place;
  place = entry;
  link_youngest(t, entry);
  ++t.state[kListed];
}

inline void list_remove(const TableView& t, uint32_t entry) {
  uint32_t* chain = &t.index[list_place(t, t.hash.digest(listed_key(t, entry)))];
  while (*chain != entry) chain = &t.links[*chain - 1].chain;
  *chain = t.links[entry - 1].chain;
  unlink(t, entry);
  std::memset(t.list_keys + (entry - 1) * t.words, 0, 8 * t.words);
  set_listed_value(t, entry, 0);
  t.links[entry - 1] = {static_cast<uint32_t>(t.state[kFreed]), 0, 0, 0};
  t.state[kFreed] = entry;
  --t.state[kListed];
}

}  // namespace evenbins

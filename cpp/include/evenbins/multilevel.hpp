// The multilevel hash table: where is this key's record? In one of d buckets, or on a small list (kirsch, chapter 5).
//
//     level 1   │ ▪▪▪▪▪▪▫▫ │ ▪▪▪▪▪▪▪▪ │ ▪▪▪▪▪▪▪▫ │ …    a key has one bucket in each level; a bucket holds `slots` keys
//     level 2   │ ▪▪▪▪▪▪▪▫ │ ▪▪▪▪▪▫▫▫ │ …               an insertion moves one resident at most,
//     list      ▪ ▪ ▪                                  and puts the key on the overflow list if all that fails
//
// A look-up reads the buckets in order of levels, then the list unless it is empty. Everything about a key follows
// from what is stored of it and the seed (table_keys.hpp): word j of its digest, scaled to the buckets of level j.
//
// Schemes, for a key x:
//     standard                the leftmost of its buckets with room, else the list (5.2)
//     conservative            the same; if all are full, the first unmarked resident y of the leftmost bucket that has
//                             one (not of the last level) is marked, and moves to its leftmost bucket with room further
//                             right; x takes its place, which stays marked. Else the list. (5.4)
//     second-chance           Figure 5.1: at a full bucket of level i, if x's bucket of level i + 1 is full too, the
//                             first resident whose bucket of level i + 1 has room moves there (5.5, 5.7)
//     extreme-second-chance   x, or a resident of one of its full buckets, whichever has room furthest to the left, x
//                             first, then by level and slot (5.6; "leftmost" is on any side)
//     least-loaded            its least loaded bucket, the left one of equals; if all are full, the resident that has a
//                             least loaded bucket elsewhere moves there (of equals the first by level and slot). Not in
//                             the thesis; with 8 slots and two levels the best on today's machines: a bucket's keys are
//                             a cache line.
// A deletion clears the slot and its mark. With least-loaded, every eighth deletion that frees a slot tries the oldest
// key of the list again (placed, or by one move); if it finds no room it becomes the youngest.
//
// Integer core: [scheme, slots, key type, value type (0: a set, no values), flags (1 occupancy bits, 2 next hashes), overflow limit, buckets
// of each level]. Payload, each part from a cache line on:
//     state (StateWord) │ occupancy, one bit a slot │ marks │ keys │ values │ next hashes │
//     the list: keys, values, links, index
// Marks exist in the conservative scheme alone. Next hashes (T' of section 5.5): for each slot the numbers, within
// their level, of its resident's bucket in the next level (second-chance) or in all others (the rest), so that an
// insertion need not read residents to learn where they may go. The list: entries linked by age, and by chains of a
// hash index of at least twice the limit.
//
// The flags change what is counted, never what is stored where: `insertion_reads` counts the buckets that insertions of
// new keys read. The check that a key is new reads its buckets (all of them, none with assume_unique). Without occupancy
// bits a look at a bucket's occupancy is a read, unless that bucket was read already by the same insertion (for x's own
// buckets). Without next hashes the residents of a bucket are a read, with the same exception. Moving a resident is
// counted in `moves`, not here.
//
// Invariants (check): a bit of occupancy for each key and none besides; free slots are 0; every key lies in one of its
// buckets or on the list, once; the counts of levels and list are right; marks lie on occupied slots. Memory is taken
// once: no operation allocates (a rebuild of lazy deletions does, see guided.hpp).
//
// Tried and dropped: see the end of multilevel.cpp.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "evenbins/bits.hpp"
#include "evenbins/guided.hpp"
#include "evenbins/scattered.hpp"
#include "evenbins/spec.hpp"
#include "evenbins/table_keys.hpp"
#include "evenbins/table_view.hpp"

namespace evenbins {

class MultilevelTable {
 public:
  static constexpr uint64_t kMaxLimit = uint64_t{1} << 30, kMaxBuckets = uint64_t{1} << 32;
  static constexpr uint64_t kOccupancyBits = 1, kNextHashes = 2, kMostCounted = uint64_t{1} << 62;
  static constexpr size_t kCoreHead = 6;

  static uint64_t payload_bytes(const Spec& spec);  // validates the spec (SpecError)

  MultilevelTable(Spec spec, Bits bits);
  MultilevelTable(const MultilevelTable&) = delete;
  MultilevelTable& operator=(const MultilevelTable&) = delete;

  const Spec& spec() const { return spec_; }
  const Bits& bits() const { return bits_; }
  const TableView& view() const { return view_; }
  const TableLoops& loops() const { return loops_; }
  const Kernel& kernel() const { return kernel_; }
  KeyType key_type() const { return view_.hash.type; }
  ValueType value_type() const { return static_cast<ValueType>(spec_.core[3]); }
  uint64_t keys() const;  // how many
  uint64_t digest(const StoredKey& key) const { return view_.hash.digest(key); }

  // Where a key's value lies, or null; of a set where the key lies.
  uint64_t* find(const StoredKey& key) const;
  size_t get_many(const uint64_t* keys, size_t n, uint64_t missing, uint64_t* out, uint8_t* found) const {
    if (guide_ != nullptr) return get_guided(keys, n, missing, out, found);
    return loops_.get_many(view_, keys, n, missing, out, found);
  }
  void contains_many(const uint64_t* keys, size_t n, uint8_t* found) const {
    if (guide_ != nullptr)
      get_guided(keys, n, 0, nullptr, found);
    else
      loops_.contains_many(view_, keys, n, found);
  }
  // Stores in key order; returns how many are in: fewer than n when the next one has no room. `added`: see TableLoops.
  size_t insert_many(const uint64_t* keys, const uint64_t* values, size_t n, bool are_new, uint8_t* added = nullptr) {
    if (guide_ != nullptr) return insert_guided(keys, values, n, are_new, added);
    return loops_.insert_many(view_, keys, values, n, are_new, {.added = added});
  }
  bool erase(const StoredKey& key);
  bool can_delete() const { return guide_ == nullptr || guide_->can_delete(); }
  size_t erase_many(const uint64_t* keys, size_t n);  // returns how many there were

  // How a look-up of the key goes: the level that has it, from 1, or 0; buckets read; was the list asked?
  struct Probe {
    uint32_t level, reads;
    bool list;
  };
  Probe probe(const StoredKey& key) const;

  // The keys and values from a position on, in order of slots and then of the list's age; the position after them.
  // Positions begin at 0; the number of slots and more are the list's, whose entry follows as a number from 1.
  struct Position {
    uint64_t slot, entry;
  };
  size_t page(Position& position, size_t most, uint64_t* keys, uint64_t* values) const;
  // The same with the slots in a random order: Scattered(slot_count()).
  size_t page(const Scattered& order, Position& position, size_t most, uint64_t* keys, uint64_t* values) const;
  uint64_t slot_count() const;

  // Gives the table a summary, empty at first, filled by one scan; null: none from now on. `due`: see guided.hpp.
  void attach(std::unique_ptr<Summary> summary, uint64_t due);
  const TableGuide* guide() const { return guide_.get(); }
  void rebuild() {
    if (guide_ != nullptr) guide_->rebuild(view_);
  }

  void clear() {
    bits_.clear();
    if (guide_ != nullptr) guide_->clear();
  }
  std::unique_ptr<MultilevelTable> copy() const;
  bool operator==(const MultilevelTable& other) const {
    return spec_.same_structure(other.spec_) && bits_ == other.bits_;
  }

  // Names the first broken invariant, or nothing. Not `thorough`: in constant time. `unique`: no key is there twice.
  // Before it is written: a counter that a forged file began near the limit must not make the next file unreadable.
  void settle() {
    if (bits_.read_only()) return;
    uint64_t* s = view_.state;
    for (const StateWord each : {kInsertions, kInsertionReads, kDeletions, kReturns})
      s[each] = std::min(s[each], kMostCounted);
    s[kMoves] = std::min(s[kMoves], s[kInsertions]);
    s[kReturnMoves] = std::min(s[kReturnMoves], s[kReturns]);
  }
  std::string check(bool thorough) const { return check(thorough, false); }
  std::string check(bool thorough, bool unique) const;

 private:
  uint64_t* place_of(uint64_t slot, uint64_t entry) const;
  size_t page_of_list(Position& position, size_t most, uint64_t* keys, uint64_t* values) const;
  void take(std::unique_ptr<TableGuide> guide);
  template <typename F>
  void guided(const uint64_t* keys, size_t n, F&& f) const;
  size_t get_guided(const uint64_t* keys, size_t n, uint64_t missing, uint64_t* out, uint8_t* found) const;
  size_t insert_guided(const uint64_t* keys, const uint64_t* values, size_t n, bool are_new, uint8_t* added);
  std::string check_levels() const;
  std::string check_list() const;

  Spec spec_;
  Bits bits_;
  TableView view_;
  const Kernel& kernel_ = evenbins::kernel();  // in force when the table was made
  const TableLoops& loops_;
  std::unique_ptr<TableGuide> guide_;  // of a table with a summary
};

// Look-ups by several threads; each returns the number of keys looked up: all, unless the pulse stopped the work. The
// first missing key's number goes to `first_missing` (n if there is none), their count to `missing_count`.
uint64_t get_all(const MultilevelTable& table, const uint64_t* keys, uint64_t n, uint64_t missing, uint64_t* out,
                 uint32_t threads, const std::function<bool()>& pulse, uint64_t* first_missing,
                 uint64_t* missing_count);
uint64_t contains_all(const MultilevelTable& table, const uint64_t* keys, uint64_t n, uint8_t* found, uint32_t threads,
                      const std::function<bool()>& pulse);

}  // namespace evenbins

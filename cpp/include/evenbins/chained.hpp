// A hash table of chains: every key is an entry in one of the chains (bins) that it may use.
//
//     bins      │ head load passed │ head load passed │ …      three numbers of 32 bits a bin
//                    │
//     entries     link key ──▶ link key ──▶ 0                  an arena for `capacity` of them; values lie apart
//
// Which of its bins takes a key (kanizo, Appendix C; kirsch, section 2.1.3):
//
//     single, sequential, multilevel   the first with fewer than `threshold` keys, or with exactly so many if the key's
//                                      coin says so; else an overflow chain
//     least-loaded, d-left             the one of least load, the first of several
//
// Bin of level j: mulhi(w_j, bins of its table), w_0 = digest, w_j = splitmix(digest, j); the coin of level j accepts
// iff splitmix(w_j, 0) >> 32 < coin; overflow chain: mulhi(splitmix(digest, choices), overflow_bins): as in
// balanced.hpp.
//
// Where a look-up may stop. Loads fall when keys are deleted, so "this bin has room, the key cannot have passed it"
// would lose keys. `passed` counts the *stored* keys that were refused by the bin on their way to where they are: they
// are few, a deletion takes back what its insertion counted, and a look-up goes on exactly while passed > 0. So no
// sequence of operations loses a key; and no look-up reads more than one by the load would, since a bin that nobody
// passed ends it even when it is full. (A count that reached 2^32 - 1 stays there: then look-ups go on, which is safe.)
// The shortest of d chains says nothing of where other keys went: look-ups of least-loaded and d-left read all d bins.
//
// Integer core: [policy, choices, coin, key type, value type, overflow_bins, (bins, threshold) of each table]; policies
// 1 single, 2 sequential, 3 multilevel, 6 least-loaded, 7 d-left; `capacity` of the spec is the number of entries.
// Payload, each part in whole 64-byte lines: state, bins (those of the tables, then overflow chains; two numbers a bin,
// without `passed`, for policies 6 and 7), entries (link, key: 3 or 5 numbers), values (64 bits each). State, words of
// 64 bits: keys, entries ever used, first free entry, keys in overflow chains, insertions, bins looked at by
// insertions, 0, 0.
//
// Invariants
// - Entries are numbered from 1; link 0 ends a chain. New entries come first in a chain. A freed entry is zero but for
//   its link to the next free one, which has bit 31 set; the last freed is the first used again.
// - A key that could stand in one bin by several levels counts as one of the first of these.
// - Nothing is allocated after construction. When all entries are in use an insertion is refused and changes nothing.
// - Chains are walked for at most `load` steps, and at most `capacity`; links are compared with the capacity: a damaged
//   file that is opened unverified cannot lead astray.
//
// Tried and dropped: bulk look-ups that prefetch bins and first entries and then walk key by key; taking a step with
// each key of a batch in turn is two to three times as fast. Considered: a high-water mark of each bin's load, with the
// coin, instead of `passed`; it never falls, so that after much churn every look-up would read all its bins. The value
// inside the entry: most entries compared are of other keys, whose values nobody wants.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "evenbins/bits.hpp"
#include "evenbins/spec.hpp"
#include "evenbins/table_keys.hpp"

namespace evenbins {

class ChainedTable {
 public:
  static constexpr uint64_t kMaxKeys = (uint64_t{1} << 31) - 2, kMaxBins = uint64_t{1} << 40, kStateWords = 8;
  static constexpr uint32_t kMaxChoices = 8;
  static constexpr uint64_t kNeverFull = uint64_t{1} << 31, kMaxThreshold = 1000000;
  static constexpr uint64_t kMostCounted = uint64_t{1} << 62;  // else a counter would wrap one day

  static uint64_t payload_bytes(const Spec& spec);  // validates the spec (SpecError)

  ChainedTable(Spec spec, Bits bits);

  const Spec& spec() const { return spec_; }
  const Bits& bits() const { return bits_; }
  KeyType key_type() const { return hash_.type; }
  ValueType value_type() const { return static_cast<ValueType>(spec_.core[4]); }
  uint64_t size() const { return state_[0]; }
  uint64_t capacity() const { return capacity_; }
  std::string full_text() const {
    return "the table is full: all its " + std::to_string(capacity_) +
           " entries are in use. Make a larger one with grown(capacity), or delete keys";
  }

  // The value of a key, or null. No longer valid once the table changes.
  const uint64_t* find(const StoredKey& key) const {
    const Place place = locate(key, hash_.digest(key));
    return place.entry == 0 ? nullptr : values_ + place.entry - 1;
  }

  enum class Put { full, replaced, inserted };
  // `fresh`: the caller promises that the key is not in the table, and it is not looked for.
  Put put(const StoredKey& key, uint64_t value, bool fresh = false);
  bool erase(const StoredKey& key, uint64_t* value = nullptr);  // the value it had

  // Many keys, as words in a row, in key order; `put_many` stops at the first that finds no room and returns how many
  // went before; `inserted` of them were new.
  size_t put_many(const uint64_t* keys, const uint64_t* values, size_t n, bool fresh, uint64_t& inserted);
  void find_many(const uint64_t* keys, size_t n, uint64_t* values, uint8_t* found) const;  // values of those found
  uint64_t erase_many(const uint64_t* keys, size_t n, uint8_t* found);                     // found may be null

  void clear() { bits_.clear(); }
  std::unique_ptr<ChainedTable> copy() const { return std::make_unique<ChainedTable>(spec_, bits_.copy()); }
  bool operator==(const ChainedTable& other) const {
    return spec_.same_structure(other.spec_) && spec_.capacity == other.spec_.capacity && bits_ == other.bits_;
  }

  // The entry in use behind `entry` (0: the first), in the order of the arena; 0 when there is none.
  uint32_t next(uint32_t entry) const;
  StoredKey key_of(uint32_t entry) const;
  bool in_use(uint32_t number) const { return (entry(number)[0] & kFree) == 0; }
  uint64_t used() const { return std::min(state_[1], capacity_); }  // entries ever used: 1 … used
  uint64_t value_of(uint32_t entry) const { return values_[entry - 1]; }

  // What a look-up of a key does: where it ended.
  struct Probe {
    uint32_t level = 0;     // of the bin that has it, from 1; choices + 1: an overflow chain; 0: absent
    uint32_t reads = 0;     // bins read, overflow chains not counted
    uint64_t compared = 0;  // entries
    bool overflow = false;  // an overflow chain was read
  };
  Probe probe(const StoredKey& key) const;

  // For each table, and at last for the overflow chains: how many bins have i keys, and how many of these were passed.
  struct Loads {
    std::vector<uint64_t> all, passed;
  };
  std::vector<Loads> loads() const;

  // Sums over all keys in the table: bins read, entries compared, and their squares.
  struct Queries {
    uint64_t reads = 0, compared = 0;
    uint128 squares = 0;
  };
  Queries queries() const;
  std::vector<uint64_t> state() const { return {state_, state_ + kStateWords}; }

  // Names the first broken invariant, or nothing. Not `thorough`: in constant time. `unique`: no key twice.
  void settle();  // before it is written, as a multilevel table
  std::string check(bool thorough, bool unique = false) const;

 private:
  static constexpr uint32_t kFree = uint32_t{1} << 31;
  static constexpr size_t kBatch = 32;

  struct Place {
    uint32_t entry = 0;   // 0: absent
    uint32_t before = 0;  // the entry that links to it; 0: the bin does
    uint64_t bin = 0;
    uint32_t level = 0;  // choices: an overflow chain
  };

  EVENBINS_INLINE uint64_t word(uint64_t digest, uint32_t level) const {
    return level == 0 ? digest : splitmix(digest, level);
  }
  EVENBINS_INLINE uint64_t bin_of(uint64_t word, uint32_t level) const {
    const uint32_t table = tables_ == 1 ? 0 : level;
    return first_[table] + mulhi(word, sizes_[table]);
  }
  EVENBINS_INLINE uint64_t overflow_bin(uint64_t digest) const {
    return bins_in_tables_ + mulhi(splitmix(digest, choices_), overflow_bins_);
  }
  uint64_t bin_at(uint64_t digest, uint32_t level) const {
    return level == choices_ ? overflow_bin(digest) : bin_of(word(digest, level), level);
  }
  EVENBINS_INLINE uint32_t* bin(uint64_t index) const { return bins_ + index * bin_words_; }
  EVENBINS_INLINE uint32_t* entry(uint32_t number) const { return entries_ + uint64_t{number - 1} * entry_words_; }
  // How far a chain is followed: what the bin says, and no more than there are entries.
  EVENBINS_INLINE uint32_t steps(const uint32_t* b) const {
    return static_cast<uint32_t>(std::min<uint64_t>(b[1], capacity_));
  }
  EVENBINS_INLINE bool holds(const uint32_t* e, const StoredKey& key) const {
    uint64_t low, high = 0;
    std::memcpy(&low, e + 1, 8);
    if (low != key.low) return false;
    if (entry_words_ == 5) std::memcpy(&high, e + 3, 8);
    return high == key.high;
  }
  StoredKey key_at(const uint64_t* words, size_t i) const {
    return key_words_ == 1 ? StoredKey{words[i], 0} : StoredKey{words[2 * i], words[2 * i + 1]};
  }

  Place locate(const StoredKey& key, uint64_t digest) const;
  Put put(const StoredKey& key, uint64_t digest, uint64_t value, bool fresh);
  bool erase(const StoredKey& key, uint64_t digest, uint64_t* value);
  uint32_t first_level(uint64_t digest, uint64_t bin, uint32_t level) const;
  void approach(const uint64_t* digests, size_t n) const;  // brings the bins of new keys near
  std::string check_chains(bool unique) const;
  std::string check_free() const;

  Spec spec_;
  Bits bits_;
  bool balanced_;
  uint32_t choices_, tables_, bin_words_, entry_words_, key_words_;
  uint64_t coin_, capacity_, overflow_bins_, bins_in_tables_ = 0;
  uint64_t first_[kMaxChoices], sizes_[kMaxChoices], thresholds_[kMaxChoices];
  KeyHash hash_;
  uint64_t* state_;
  uint32_t* bins_;
  uint32_t* entries_;
  uint64_t* values_;
  const Kernel& kernel_ = kernel();  // in force when the table was made
};

}  // namespace evenbins

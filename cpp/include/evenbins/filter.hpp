// What every membership filter is to the rest of the library.
//
// A filter is a function of the digests it was given. It knows its `Spec`, owns its bits, and answers for
// one digest or many. A new family implements this interface and has bulk calls, threads, files, pickling
// and the Python methods from then on.
//
// What a family can do beyond that, it declares:
//     AddOutcome::full, keys_left    adding may fail for want of room; then nothing has changed
//     SupportsRemoval                keys can be removed
//     SupportsCounting, is_multiset  a key is in as often as it was added, and can be counted
//     SupportsExpiry                 keys expire
//     Concurrency                    whether look-ups may run while somebody writes
//
// Threads that add divide the memory, so that each part is written by one thread, in the order of the keys,
// no atomic operation is needed, and the bytes do not depend on the threads. A family says how it can be
// divided: by ranges (`ByRange`), level by level (`ByLevel`), or not at all.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "evenbins/bits.hpp"
#include "evenbins/hash.hpp"
#include "evenbins/one_key.hpp"
#include "evenbins/spec.hpp"

namespace evenbins {

// Where in a table a number leads: its unit is the number itself, or the number scaled to the units there are; 2^shift
// units lie in one cache line. So numbers grow with the address, and a range of them is a range of memory.
struct Address {
  uint64_t scale;  // 0: the number is the unit; else the unit is mulhi(number, scale)
  uint32_t shift;
  uint64_t lines;  // of the table; at least one
};

// The address of words that are scaled to blocks of 256 or 512 bits.
inline Address block_address(uint64_t blocks, uint32_t block_log) {
  const uint32_t shift = 9 - block_log;
  return {.scale = blocks, .shift = shift, .lines = ((blocks - 1) >> shift) + 1};
}

// Lines that are needed next: some of them are asked for with every kItems items.
struct Upcoming {
  static constexpr size_t kItems = 16;
  const uint64_t *next, *end;  // whole lines
  uint64_t lines;              // with every kItems items
  EVENBINS_INLINE void prefetch() {
    for (uint64_t i = 0; i < lines && next != end; ++i, next += 8) __builtin_prefetch(next, 1, 2);
  }
};

// A filter whose work can be cut into *items* (a digest or a bit position), numbers that lead to what they touch. The
// items of several keys may be added in any order.
class ByRange {
 public:
  virtual ~ByRange() = default;
  virtual uint32_t items_per_key() const = 0;  // 0: the digests themselves are the items
  virtual void items(const uint64_t* digests, size_t n, uint64_t* out) const = 0;
  virtual Address address() const = 0;                          // of items
  virtual void add_items(const uint64_t* items, size_t n) = 0;  // of no more keys than keys_left()
  // The same for items first + offsets[i] that lie in the cache (partitioned.hpp), while other lines are on their way.
  virtual void add_near_items(uint64_t first, const uint32_t* offsets, size_t n, Upcoming& upcoming) {
    uint64_t items[Upcoming::kItems];
    for (size_t i = 0; i < n; i += Upcoming::kItems) {
      upcoming.prefetch();
      const size_t some = std::min(Upcoming::kItems, n - i);
      for (size_t j = 0; j < some; ++j) items[j] = first + offsets[i + j];
      add_items(items, some);
    }
  }
  // The same, with added[i] = 1 if item i changed something: a key was absent if one of its items did. Only where items
  // may be added before the others of their key are known; a family that has it says so.
  virtual bool tells_new_items() const { return false; }
  virtual void add_new_items(const uint64_t* /*items*/, size_t /*n*/, uint8_t* /*added*/) {}
  // Where keys_left() is no promise: whether items were added for which there is no room. They are in nevertheless; to
  // remove those that changed something leaves the filter as it was.
  virtual bool can_be_overfull() const { return false; }
  virtual bool is_overfull() const { return false; }
  virtual bool adds_every_item() const { return true; }  // or can never be overfull
  virtual void remove_items(const uint64_t* /*items*/, size_t /*n*/) {}
  // Called by one thread around the adding of so many keys, at most keys_at_once(): how many are in afterwards.
  virtual uint64_t keys_at_once() const { return std::numeric_limits<uint64_t>::max(); }
  virtual void begin_items(uint64_t /*keys*/, uint32_t /*threads*/) {}
  virtual void end_items(uint64_t /*keys*/) {}
};

struct PlacedKey;  // balanced_view.hpp

// A filter whose levels can take a batch of keys one after the other: what level j does with a key depends on
// the keys before it at that level alone, unless more keys pass all levels than there is room for. At each level
// a key is a *word* that leads to its block.
class ByLevel {
 public:
  virtual ~ByLevel() = default;
  virtual uint32_t levels() const = 0;
  virtual bool takes_rounds() const = 0;  // false: the next keys had better be added one by one
  virtual uint64_t room() const = 0;      // keys that may pass every level
  virtual void words(uint32_t level, const uint64_t* digests, size_t n, uint64_t* out) const = 0;
  virtual Address address(uint32_t level) const = 0;  // of words
  // passed[i] = 1 for each key that goes on; returns how many were placed. Touches nothing but their blocks. What was
  // placed goes to `log`, unless it is null; `take_back` reverses that.
  virtual size_t add_level(uint32_t level, const uint64_t* words, size_t n, uint8_t* passed, PlacedKey* log) = 0;
  virtual void take_back(uint32_t level, const PlacedKey* log, size_t placed) = 0;
  virtual void count_placed(uint32_t level, uint64_t keys) = 0;    // by one thread, afterwards
  virtual void add_passed(const uint64_t* digests, size_t n) = 0;  // those that passed every level, in key order
};

// A filter from which keys can be removed.
class SupportsRemoval {
 public:
  virtual ~SupportsRemoval() = default;
  // False, and nothing is changed, for a key that is not there. Many: in the order of the keys, one answer for each.
  virtual bool remove(uint64_t digest) = 0;
  virtual void remove_many(const uint64_t* digests, size_t n, uint8_t* out) = 0;
};

// A filter that knows how often a key was added.
class SupportsCounting {
 public:
  virtual ~SupportsCounting() = default;
  virtual void count_many(const uint64_t* digests, size_t n, int64_t* out) const = 0;
};

// A filter whose keys expire by time.
class SupportsExpiry {
 public:
  virtual ~SupportsExpiry() = default;
  // What time it is from now on, in microseconds. Several threads may tell it, and others look keys up meanwhile.
  virtual void tell_time(int64_t time) = 0;
};

// What look-ups may do while the filter changes. Writers take turns in both cases.
enum class Concurrency : uint8_t {
  // A look-up needs no lock: whatever it reads of a change, it finds every key that was in before it began and was not
  // removed meanwhile. So it is where bits are only ever set, and counters only moved by the keys that they belong to.
  lock_free_lookups,
  // A change may hide a key until it is complete: look-ups wait for writers, and writers for look-ups.
  readers_or_writer
};

class Filter {
 public:
  Filter(Spec spec, Bits bits) : spec_(std::move(spec)), bits_(std::move(bits)) {}
  virtual ~Filter() = default;
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;

  const Spec& spec() const { return spec_; }
  const Bits& bits() const { return bits_; }

  AddOutcome add(uint64_t digest) { return one_.add(digest); }
  AddOutcome add_new(uint64_t digest) { return one_.add_new(digest); }
  bool contains(uint64_t digest) const { return one_.contains(digest); }
  const OneKey& one() const { return one_; }
  // Adds in key order; returns how many keys are in: all, or those before the first for which there was no room.
  virtual size_t add_many(const uint64_t* digests, size_t n) = 0;
  virtual void contains_many(const uint64_t* digests, size_t n, uint8_t* out) const = 0;

  // So many more keys can certainly be added, whatever they are, unless a filter can be overfull (ByRange). Several
  // threads never add more than that at once.
  virtual uint64_t keys_left() const { return std::numeric_limits<uint64_t>::max(); }

  // Adds in key order the keys that are absent: out[i] = 1 for those it added, 0 for those that were present, also if an
  // equal key of the same call came before. Returns how many keys it treated: all, or those before the first for which
  // there was no room.
  virtual size_t add_new_many(const uint64_t* digests, size_t n, uint8_t* out) {
    for (size_t i = 0; i < n; ++i) {
      const AddOutcome outcome = add_new(digests[i]);
      if (outcome == AddOutcome::full) return i;
      out[i] = outcome == AddOutcome::added;
    }
    return n;
  }

  // A filter may grow as keys come. Keys of all sizes that it can have; whether growth is under way, part by part, in
  // memory beside its bits; and the end of that, by threads, which needs the filter to itself. An error leaves it usable.
  virtual uint64_t most_keys() const { return spec_.capacity; }
  virtual bool grows() const { return false; }
  virtual bool is_settled() const { return true; }
  virtual void settle(uint32_t /*threads*/) {}
  virtual uint64_t nbytes() const { return bits_.bytes(); }

  // How several threads can add to it at once; null: not in this way.
  virtual ByRange* by_range() { return nullptr; }
  virtual ByLevel* by_level() { return nullptr; }

  // Null: keys cannot be removed; cannot be counted.
  virtual SupportsRemoval* removal() { return nullptr; }
  virtual const SupportsCounting* counting() const { return nullptr; }
  virtual SupportsExpiry* expiry() { return nullptr; }  // null: time does not matter
  // A key is in as often as it was added, so that a union with itself is another filter.
  virtual bool is_multiset() const { return false; }

  virtual Concurrency concurrency() const { return Concurrency::lock_free_lookups; }

  // Throws SpecError with the difference when the structures differ. An error leaves the filter as it was. To merge
  // several filters or none, ask all of them for their space first: merge_in then fails no more.
  void merge(const Filter& other) {
    std::vector<uint64_t> space = merge_space(other);
    merge_in(other, space);
  }
  virtual std::vector<uint64_t> merge_space(const Filter& other) const {
    require_same_structure(other);
    return {};
  }
  virtual void merge_in(const Filter& other, std::vector<uint64_t>& /*space*/) { bits_.merge(other.bits_); }
  // The bits are those of the keys, each key's the same whatever else was added: so filters can be intersected, which
  // keeps every key that both hold, and compared bit by bit.
  virtual bool has_bits_of_keys() const { return false; }
  // Adds the bits of another filter of the same structure, words first … end−1 of both.
  void unite_bits(const Filter& other, uint64_t first, uint64_t end) { bits_.merge(other.bits_, first, end); }
  void intersect(const Filter& other) {
    require_bits_of_keys(other);
    bits_.intersect(other.bits_);
  }
  bool is_subset_of(const Filter& other) const {
    require_bits_of_keys(other);
    return bits_.is_subset_of(other.bits_);
  }
  bool is_empty() const { return bits_.none(); }
  virtual void clear() { bits_.clear(); }
  virtual std::unique_ptr<Filter> copy() const = 0;
  bool operator==(const Filter& other) const { return spec_.same_structure(other.spec_) && holds_the_same(other); }

  virtual uint64_t set_bits() const {
    uint64_t total = 0;
    for (uint64_t i = 0, n = bits_.size(); i < n; ++i) total += std::popcount(bits_.words()[i]);
    return total;
  }
  // How many blocks of `block_bits` (a multiple of 64) have 0, 1, … block_bits bits set.
  virtual std::vector<uint64_t> set_bits_histogram(uint64_t block_bits) const {
    std::vector<uint64_t> histogram(block_bits + 1, 0);
    const uint64_t step = block_bits / 64;
    for (uint64_t i = 0, n = bits_.size(); i + step <= n; i += step) {
      uint32_t count = 0;
      for (uint64_t j = 0; j < step; ++j) count += std::popcount(bits_.words()[i + j]);
      ++histogram[count];
    }
    return histogram;
  }

  // How many counters are 0, 1, … full.
  virtual std::vector<uint64_t> counter_histogram() const { throw SpecError("this filter has no counters"); }
  // Of a filter with levels, of one of them: (load, set bits, how many blocks have both) again and again, in no order;
  // loads that are not counted are 0.
  virtual std::vector<uint64_t> level_histogram(uint32_t /*level*/) const {
    throw SpecError("this filter has no levels");
  }
  // What it remembers beside its blocks (balanced.hpp); empty for most.
  virtual std::vector<uint64_t> state() const { return {}; }

  // Names the first broken invariant, or nothing. Not `thorough`: in constant time.
  virtual std::string check(bool /*thorough*/) const { return {}; }

 protected:
  // Whether a filter of the same structure holds the same keys; of different bytes only if a family says so.
  virtual bool holds_the_same(const Filter& other) const { return bits_ == other.bits_; }

  void require_same_structure(const Filter& other) const {
    const Spec &a = spec_, &b = other.spec_;
    if (a.same_structure(b)) return;
    std::string difference;
    if (a.kind != b.kind || a.hashing != b.hashing) {
      difference = "the two filters are of different kinds";
    } else if (a.seed != b.seed) {
      difference = "their seeds differ";  // not which: a seed may be a secret
    } else {
      const auto show = [](const Spec& s) {
        std::string text = "[";
        for (uint64_t x : s.core) text += (text.size() > 1 ? ", " : "") + std::to_string(x);
        return text + "]";
      };
      difference = "their sizes differ (integer cores " + show(a) + " and " + show(b) + ")";
    }
    throw SpecError("cannot merge: " + difference + ". Build both with the same arguments");
  }

  void require_bits_of_keys(const Filter& other) const {
    require_same_structure(other);
    if (!has_bits_of_keys()) throw SpecError("filters of this kind cannot be intersected or compared bit by bit");
  }

  // Said once by every family, when it is made: how it treats one key.
  void set_one(const OneKey& one) { one_ = one; }

  Spec spec_;
  Bits bits_;

 private:
  OneKey one_{};
};

// Makes a filter of any kind from its payload; SpecError if that has another size, or if the kind is no filter.
std::unique_ptr<Filter> make_filter(Spec spec, Bits bits);

// `make_filter` of a family's registry row.
template <typename Family>
std::unique_ptr<Filter> make_family(Spec spec, Bits bits) {
  return std::make_unique<Family>(std::move(spec), std::move(bits));
}

}  // namespace evenbins

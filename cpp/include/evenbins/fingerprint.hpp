// The fingerprint filter: keys can be removed, one cache line per operation, and the bytes are a function of the multiset
// of keys alone.
//
// A key is its fingerprint F = floor(digest · M / 2^64) in 0 … M−1, M = lines · quotients · 2^remainder, cut into a line,
// a quotient and a remainder. A filter is the exact multiset (or set) of the fingerprints of its keys.
//
//     level 1   lines of 64 bytes (fingerprint_view.hpp): for each quotient whether it occurs (its *run*, the remainders of
//               its keys in ascending order, may be elsewhere), a bit for each slot that ends a run, and the slots: runs
//               in the order of their quotients. A line holds the first runs, as many as fit, whole: T is the largest
//               t for which all runs of quotients below t have no more remainders than there are slots
//     level 2   the other runs, cut anew: one line for `group` lines of level 1. Same code, four more bits of remainder
//     level 3   one line for 16 of level 2: the largest of what these cannot hold, exactly, in descending order
//     rest      what is left, of all lines: fingerprints in ascending order
//
// 16·group lines of level 1, 16 of level 2 and one of level 3 are a *block*, which no key of another block touches; only
// the rest is common to all. A run is in one place, so a look-up reads one line, and another one only if the quotient
// occurs and its run is not there. A removal that makes room brings runs back at once.
//
// Invariants. Every level is a function of the multiset that reaches it, unused bits are zero, hence the same keys leave
// the same bytes whatever the order, the batches, the threads, and what was added and removed in between. `check` builds
// every block again from its own fingerprints, and compares.
//
// Full: `limit` copies, or a rest that would not fit. To see the latter a key is added, with the rest beyond its room in
// ordinary memory that was there before, and removed again: that leaves the bytes as they were.
//
// Core: [lines, remainder, quotients, group, rest, limit, set, doublings]. Payload: a line of state (copies, 0, entries of
// the rest, 0 …), the lines of the three levels, the rest.
#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <stdexcept>
#include <vector>

#include "evenbins/filter.hpp"
#include "evenbins/fingerprint_view.hpp"
#include "evenbins/kernel.hpp"

namespace evenbins {

// The fingerprints for which the lines have no room: in the payload, and beyond its room in `excess`, until the key that
// moved them there is taken out again.
class FingerprintRest {
 public:
  static constexpr uint64_t kMostMoved = 256;  // fingerprints that one key can push into the rest

  FingerprintRest(uint64_t* words, uint64_t* count, uint64_t room) : words_(words), count_(count), room_(room) {}
  // Memory for so many fingerprints beyond the room, or for what the keys of so many threads can push there.
  void reserve(uint64_t fingerprints) { excess_.reserve(fingerprints); }
  void reserve_for(uint64_t threads) { reserve(kMostMoved * threads); }

  void swap(FingerprintRest& other) noexcept {
    std::swap(words_, other.words_);
    std::swap(count_, other.count_);
    std::swap(room_, other.room_);
    excess_.swap(other.excess_);
    beyond_.store(excess_.size(), std::memory_order_relaxed);
    other.beyond_.store(other.excess_.size(), std::memory_order_relaxed);
  }

  void add(uint64_t fingerprint) noexcept;
  bool remove(uint64_t fingerprint);
  // Where the fingerprint first … last is that comes first, or null.
  uint64_t* find(uint64_t first, uint64_t last);
  bool is_overfull() const { return beyond_.load(std::memory_order_relaxed) != 0; }
  std::span<const uint64_t> stored() const { return {words_, *count_}; }
  const std::vector<uint64_t>& excess() const { return excess_; }
  std::mutex mutex;  // of whatever threads do that add or remove

 private:
  uint64_t *words_, *count_;
  uint64_t room_;
  std::vector<uint64_t> excess_;
  std::atomic<uint64_t> beyond_ = 0;  // its size
};

// Keys that threads could not add: the call that they belong to takes the others back.
class RefusedKeys {
 public:
  bool any() const { return any_.load(std::memory_order_relaxed); }
  void note() { any_.store(true, std::memory_order_relaxed); }
  void reserve(uint64_t keys) { keys_.reserve(keys_.size() + keys); }
  void add(const uint64_t* digests, size_t n);  // no more than there is memory for
  bool take(uint64_t digest);                   // whether it is one; each once
  void clear();

 private:
  struct Key {
    uint64_t digest, taken;  // of the first of equal ones: how many of them were taken
  };
  std::atomic<bool> any_ = false;
  bool sorted_ = false;
  std::vector<Key> keys_;
};

class FingerprintsDoNotFit : public std::runtime_error {
 public:
  FingerprintsDoNotFit() : std::runtime_error("the filter has no room for so many fingerprints") {}
};

// What becomes of two multisets, or of two sets (all but `add`).
enum class SetOperation : uint8_t { add, unite, subtract, differ };

class FingerprintFilter : public Filter, public ByRange, public SupportsRemoval, public SupportsCounting {
 public:
  static uint64_t payload_bytes(const Spec& spec);
  FingerprintFilter(Spec spec, Bits bits);

  size_t add_many(const uint64_t* digests, size_t n) override {
    refused_.clear();
    return is_set_ ? loops_->add_new_many(view_, digests, n, nullptr) : loops_->add_many(view_, digests, n);
  }
  size_t add_new_many(const uint64_t* digests, size_t n, uint8_t* out) override {
    refused_.clear();
    return loops_->add_new_many(view_, digests, n, out);
  }
  void contains_many(const uint64_t* digests, size_t n, uint8_t* out) const override {
    loops_->contains_many(view_, digests, n, out);
  }
  uint64_t keys_left() const override { return view_.limit - view_.state[0]; }

  // A set has fingerprints, not keys: to remove one might remove another key. The class in Python refuses it;
  // add_all_or_none takes out what a call that did not fit has added, and no more.
  bool is_multiset() const override { return !is_set_; }
  SupportsRemoval* removal() override { return this; }
  const SupportsCounting* counting() const override { return is_set_ ? nullptr : this; }
  bool remove(uint64_t digest) override { return loops_->remove(view_, digest); }
  void remove_many(const uint64_t* digests, size_t n, uint8_t* out) override {
    loops_->remove_many(view_, digests, n, out);
  }
  void count_many(const uint64_t* digests, size_t n, int64_t* out) const override {
    loops_->count_many(view_, digests, n, out);
  }
  Concurrency concurrency() const override { return Concurrency::readers_or_writer; }

  ByRange* by_range() override { return this; }
  uint32_t items_per_key() const override { return 0; }
  void items(const uint64_t*, size_t, uint64_t*) const override {}
  Address address() const override { return {.scale = blocks(), .shift = 0, .lines = blocks()}; }
  void add_items(const uint64_t* digests, size_t n) override;
  bool tells_new_items() const override { return true; }
  void add_new_items(const uint64_t* digests, size_t n, uint8_t* added) override;
  // No number of keys certainly fits: all copies of one key but a few go to the rest. From the first key on for which a
  // thread finds no room none is added; the call takes the others back, and one thread begins anew.
  bool can_be_overfull() const override { return true; }
  bool is_overfull() const override { return refused_.any(); }
  bool adds_every_item() const override { return !is_set_; }
  void remove_items(const uint64_t* digests, size_t n) override;

  // The sum of multisets, the union of sets; SpecError if it does not fit.
  std::vector<uint64_t> merge_space(const Filter& other) const override;
  void merge_in(const Filter& other, std::vector<uint64_t>& space) override;
  std::unique_ptr<Filter> copy() const override { return std::make_unique<FingerprintFilter>(spec_, bits_.copy()); }
  uint64_t set_bits() const override;  // different fingerprints
  // Of level 0, 1 or 2 (those above): fingerprints in a line, runs that it does not hold, how many lines have both.
  std::vector<uint64_t> level_histogram(uint32_t level) const override;
  std::vector<uint64_t> state() const override;  // copies, entries of the rest
  std::string check(bool thorough) const override;

  uint64_t blocks() const { return view_.lines / (16 * view_.group); }
  // The fingerprints of a block, in ascending order; those of the next block are all larger.
  virtual void fingerprints(uint64_t block, std::vector<uint64_t>& out) const;
  // Replaces the fingerprints by those of an operation. FingerprintsDoNotFit, and nothing has changed, if they are too
  // many.
  void combine(const Filter& other, SetOperation operation);
  // Fills an empty filter with all fingerprints of another one, which has as many possible ones in more lines or fewer.
  // If they do not fit, FingerprintsDoNotFit, and this filter is of no use.
  void refill(const FingerprintFilter& from, uint32_t threads);

 protected:
  bool holds_the_same(const Filter& other) const override;

 private:
  friend class GrowingFingerprintFilter;

  // A thread that adds, with memory for what its keys can push beyond the room of the rest.
  class Adding;

  std::vector<uint64_t> combined(const Filter& other, SetOperation operation) const;
  void swap_content(FingerprintFilter& other) noexcept;  // of the same semantics
  OneKey own_one() const;                                // of this filter's lines

  bool is_set_;
  FingerprintView view_;
  FingerprintRest rest_;
  RefusedKeys refused_;
  uint64_t adding_ = 0;            // threads, under the mutex of the rest
  uint64_t may_refuse_ = 0;        // keys that they work on, likewise
  const FingerprintLoops* loops_;  // of the kernel in force when the filter was made
};

}  // namespace evenbins

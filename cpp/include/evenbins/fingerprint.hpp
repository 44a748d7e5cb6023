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
// ordinary memory, and removed again: that leaves the bytes as they were.
//
// Core: [lines, remainder, quotients, group, rest, limit, set, doublings]. Payload: a line of state (copies, 0, entries of
// the rest, 0 …), the lines of the three levels, the rest.
#pragma once

#include <mutex>
#include <span>
#include <vector>

#include "evenbins/filter.hpp"
#include "evenbins/fingerprint_view.hpp"
#include "evenbins/kernel.hpp"

namespace evenbins {

// The fingerprints for which the lines have no room: in the payload, and beyond its room in `excess`.
class FingerprintRest {
 public:
  static constexpr uint64_t kMostMoved = 256;  // fingerprints that one key can push into the rest

  FingerprintRest(uint64_t* words, uint64_t* count, uint64_t room) : words_(words), count_(count), room_(room) {}
  // Memory for what so many fingerprints need beyond the room, and one key beyond that; for the keys of one of several
  // threads, as far as they are likely to need it.
  void reserve(uint64_t fingerprints) { excess_.reserve(excess_.size() + fingerprints + kMostMoved); }
  void expect(uint64_t keys) {
    const std::lock_guard lock(mutex);
    if (*count_ == room_) reserve(keys);
  }

  void add(uint64_t fingerprint) noexcept;
  bool remove(uint64_t fingerprint);
  bool is_overfull() const { return !excess_.empty(); }
  std::span<const uint64_t> stored() const { return {words_, *count_}; }
  const std::vector<uint64_t>& excess() const { return excess_; }
  std::mutex mutex;  // of whatever threads do that add or remove

 private:
  uint64_t *words_, *count_;
  uint64_t room_;
  std::vector<uint64_t> excess_;
};

class FingerprintFilter final : public Filter, public ByRange, public SupportsRemoval, public SupportsCounting {
 public:
  static uint64_t payload_bytes(const Spec& spec);
  FingerprintFilter(Spec spec, Bits bits);

  size_t add_many(const uint64_t* digests, size_t n) override {
    return is_set_ ? loops_.add_new_many(view_, digests, n, nullptr, true) : loops_.add_many(view_, digests, n, true);
  }
  size_t add_new_many(const uint64_t* digests, size_t n, uint8_t* out) override {
    return loops_.add_new_many(view_, digests, n, out, true);
  }
  void contains_many(const uint64_t* digests, size_t n, uint8_t* out) const override {
    loops_.contains_many(view_, digests, n, out);
  }
  uint64_t keys_left() const override { return view_.limit - view_.state[0]; }

  // A set has fingerprints, not keys: to remove one might remove another key. The class in Python refuses it, and takes
  // out only what a call that did not fit has added.
  bool is_multiset() const override { return !is_set_; }
  SupportsRemoval* removal() override { return this; }
  const SupportsCounting* counting() const override { return is_set_ ? nullptr : this; }
  bool remove(uint64_t digest) override { return loops_.remove(view_, digest); }
  void remove_many(const uint64_t* digests, size_t n, uint8_t* out) override {
    loops_.remove_many(view_, digests, n, out);
  }
  void count_many(const uint64_t* digests, size_t n, int64_t* out) const override {
    loops_.count_many(view_, digests, n, out);
  }
  Concurrency concurrency() const override { return Concurrency::readers_or_writer; }

  ByRange* by_range() override { return this; }
  uint32_t items_per_key() const override { return 0; }
  void items(const uint64_t*, size_t, uint64_t*) const override {}
  Address address() const override { return {.scale = blocks(), .shift = 0, .lines = blocks()}; }
  void add_items(const uint64_t* digests, size_t n) override;
  bool tells_new_items() const override { return true; }
  void add_new_items(const uint64_t* digests, size_t n, uint8_t* added) override;
  // No number of keys certainly fits: all copies of one key but a few go to the rest.
  bool is_overfull() const override { return rest_.is_overfull(); }
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
  void fingerprints(uint64_t block, std::vector<uint64_t>& out) const;
  // Adds fingerprints as add_many adds their keys.
  size_t add_fingerprints(const uint64_t* fingerprints, size_t n);

 private:
  // A whole filter of this shape, block by block.
  class Builder;

  bool is_set_;
  FingerprintView view_;
  FingerprintRest rest_;
  const FingerprintLoops& loops_;  // of the kernel in force when the filter was made
};

}  // namespace evenbins

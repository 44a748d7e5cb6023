// The counting Bloom filter: a counter where a Bloom filter has a bit, so that keys can be removed (kirsch, section
// 2.1.2; Fan, Cao, Almeida, Broder, "Summary cache", 1998).
//
//     layout    a key's counters                                                        hashing
//     flat      k positions anywhere among m counters, as the standard filter's bits    independent
//     blocked   k positions in one cache line of 512 bits, 512/counter_bits counters    lanes
//
// A key moves each of its *distinct* positions by one, up when it is added, down when it is removed: where two of its
// k positions coincide that counter moves once. So "every counter is above zero" is both what a look-up asks and
// what a removal needs, and the least counter bounds the number of times the key was added.
//
// Invariants. A counter that never was full is the exact number of keys in the filter that have it, repeats counted.
// A full counter sticks for ever, but for clear(). Hence no false negative, whatever was added and removed,
// provided that no key is removed more often than it was added. A removal that finds a zero among the key's counters
// changes nothing. Additions commute, full counters included, so bytes do not depend on order, batches or threads;
// removals are done in the order of the keys.
//
// In a block the distinct positions cost nothing: the key's bits as a blocked filter would set them (lanes.hpp), folded
// so that the bits of one counter become its lowest, are the step to add, eight words at a time.
//
// Tried and dropped: one step for each hash rather than for each distinct position. Then a look-up that finds
// every counter above zero does not say that a removal is possible (a counter of 1 may be due to move by 2), and
// a key whose k positions are all one is counted k times.
//
// Core: [counters, counter_bits, hashes, block_bits], block_bits being 0 or 512. Payload: the counters, packed as
// counters.hpp says; those beyond the last are zero.
#pragma once

#include "evenbins/counting_view.hpp"
#include "evenbins/filter.hpp"
#include "evenbins/kernel.hpp"

namespace evenbins {

class CountingBloomFilter final : public Filter, public ByRange, public SupportsRemoval, public SupportsCounting {
 public:
  static uint64_t payload_bytes(const Spec& spec);
  CountingBloomFilter(Spec spec, Bits bits);

  size_t add_many(const uint64_t* digests, size_t n) override {
    loops_.add_many(view_, digests, n);
    return n;
  }
  size_t add_new_many(const uint64_t* digests, size_t n, uint8_t* out) override {
    loops_.add_new_many(view_, digests, n, out);
    return n;
  }
  void contains_many(const uint64_t* digests, size_t n, uint8_t* out) const override {
    loops_.contains_many(view_, digests, n, out);
  }

  bool is_multiset() const override { return true; }
  SupportsRemoval* removal() override { return this; }
  const SupportsCounting* counting() const override { return this; }
  bool remove(uint64_t digest) override { return loops_.remove(view_, digest); }
  void remove_many(const uint64_t* digests, size_t n, uint8_t* out) override {
    loops_.remove_many(view_, digests, n, out);
  }
  void count_many(const uint64_t* digests, size_t n, int64_t* out) const override {
    loops_.count_many(view_, digests, n, out);
  }
  std::vector<uint64_t> counter_histogram() const override;

  ByRange* by_range() override { return this; }
  uint32_t items_per_key() const override { return blocked_ ? 0 : view_.hashes; }
  void items(const uint64_t* digests, size_t n, uint64_t* out) const override {
    loops_.positions(view_, digests, n, out);
  }
  Address address() const override {
    if (blocked_) return block_address(view_.size, 9);
    const auto shift = static_cast<uint32_t>(std::countr_zero(512 / spec_.core[1]));  // counters of a line
    return {.scale = 0, .shift = shift, .lines = (bits_.bytes() + 63) / 64};
  }
  void add_items(const uint64_t* items, size_t n) override {
    blocked_ ? loops_.add_many(view_, items, n) : loops_.add_positions(view_, items, n);
  }
  bool tells_new_items() const override { return blocked_; }  // elsewhere a key that is present must raise nothing
  void add_new_items(const uint64_t* digests, size_t n, uint8_t* added) override { add_new_many(digests, n, added); }

  void merge_in(const Filter& other, std::vector<uint64_t>& space) override;  // counters add, and stop when full
  std::unique_ptr<Filter> copy() const override { return std::make_unique<CountingBloomFilter>(spec_, bits_.copy()); }
  uint64_t set_bits() const override;  // counters that are not zero
  std::vector<uint64_t> set_bits_histogram(uint64_t block_bits) const override;
  std::string check(bool thorough) const override;

 private:
  bool blocked_;
  CountingView view_;
  const CountingLoops& loops_;  // of the kernel in force when the filter was made
};

}  // namespace evenbins

// The balanced Bloom filter (kanizo): a key has a few blocks it may go to, and a full block sends it on.
//
//     digest ──▶ word 0 ──▶ block of level 0 ──full──▶ word 1 ──▶ block of level 1 ──full──▶ … ──▶ overflow list
//                              │ room                             │ room                          (or: spill)
//                              ▼                                  ▼
//                           k bits                             k bits
//
//     policy       tables   a block is full                                   and when all are
//     single       1        load ≥ threshold, but at the threshold a coin     the list
//     sequential   1        … d words into the same table                     the list; a budget of reads
//     multilevel   d        … a table for each level (the paper's MHT)        the list
//     fill         d        its set bits reach a threshold                    spill
//     two-choice   1        never: the block takes the key whose rate of
//                           false positives grows less; a query reads both
//
// The first three count the load in the top bits of each block's last word, saturating at threshold + 1. The
// coin is a hash of the key and the level, so a filter is a function of its keys in their order, and a query
// knows what the coin said.
//
// Invariants. Loads, set bits and flags never fall, so a block that once sent a key on does so for ever: a
// query that walks as the insertion did finds the key (no false negative). It may stop early only at a block
// that would have taken the key: below the threshold, or at it if the coin says yes. A key that already
// answers "present" changes nothing.
//
// Without a list, or when it is full, a key *spills*: into the block of least popcount among its own (the
// saturated counters cannot tell), or into one at random as in the paper (section 9.2). So no level takes all
// that the others send on, and a filter that gets more keys than planned degrades as a standard one does. A last
// threshold of block_bits + 1, which "fill" filters of older files have, means: never full.
//
// Sequential's budget: once the insertions have read `budget` blocks, keys go to the list unread, and from then
// on every miss must consult it (flag kBudgetSpent). When the list is full they are read again: a key must
// not spill past a block that has room for it, since a query would stop there.
//
// Core: [policy, block_bits, hashes, choices, coin·2^32, overflow_limit, spill, budget, blocks, threshold, …].
// Payload: the tables, each padded to a cache line; then, if counted, the list's slots and eight words of
// state: keys, entries on the list, block reads spent by insertions, flags, spilled keys, 0, 0, 0.
#pragma once

#include "evenbins/balanced_layout.hpp"
#include "evenbins/filter.hpp"
#include "evenbins/kernel.hpp"

namespace evenbins {

// Two choices: the rate of false positives of a block with 0, 1, … set bits, in units of 2^-62, rounded down at each
// step.
std::vector<uint64_t> harm_table(uint32_t block_bits, uint32_t hashes);

class BalancedBloomFilter final : public Filter, public ByLevel {
 public:
  static uint64_t payload_bytes(const Spec& spec);
  BalancedBloomFilter(Spec spec, Bits bits);

  size_t add_many(const uint64_t* digests, size_t n) override;
  size_t add_new_many(const uint64_t* digests, size_t n, uint8_t* out) override {
    loops_->add_in_order(view_, digests, n, out);
    return n;
  }
  void contains_many(const uint64_t* digests, size_t n, uint8_t* out) const override {
    loops_->contains_many(view_, digests, n, out);
  }

  ByLevel* by_level() override { return in_turn_ ? this : nullptr; }
  uint32_t levels() const override { return view_.choices; }
  bool takes_rounds() const override;
  uint64_t room() const override;
  void words(uint32_t level, const uint64_t* digests, size_t n, uint64_t* out) const override;
  Address address(uint32_t level) const override {
    return block_address(view_.levels[level].blocks, block_bits_ == 512 ? 9 : 8);
  }
  size_t add_level(uint32_t level, const uint64_t* words, size_t n, uint8_t* passed, PlacedKey* log) override {
    return loops_->add_level(view_, level, words, n, passed, log);
  }
  void take_back(uint32_t level, const PlacedKey* log, size_t placed) override;
  void count_placed(uint32_t level, uint64_t keys) override;
  void add_passed(const uint64_t* digests, size_t n) override;

  std::vector<uint64_t> merge_space(const Filter& other) const override;
  void merge_in(const Filter& other, std::vector<uint64_t>& space) override;
  std::unique_ptr<Filter> copy() const override { return std::make_unique<BalancedBloomFilter>(spec_, bits_.copy()); }
  uint64_t set_bits() const override;
  std::vector<uint64_t> level_histogram(uint32_t level) const override;
  std::vector<uint64_t> state() const override;
  std::string check(bool thorough) const override;

 private:
  bool add_group(const uint64_t* digests, size_t n, PlacedKey* log);
  void merge_lists(const BalancedBloomFilter& other, std::vector<uint64_t>& all);

  Policy policy_;
  uint32_t block_bits_;
  bool counted_;
  bool in_turn_;                  // levels may take a batch one after the other
  uint32_t groups_in_order_ = 0;  // add_many: how many groups go key by key before levels are tried again
  std::vector<Level> tables_;
  std::vector<uint64_t> harm_;
  BalancedView view_{};
  uint64_t list_version_ = 0;
  const BalancedLoops* loops_;  // of the kernel in force when the filter was made
};

}  // namespace evenbins

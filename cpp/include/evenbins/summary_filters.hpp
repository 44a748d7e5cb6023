// Summaries made of Bloom filters (kirsch, sections 4.7 and 4.10.2), and Song et al.'s counters (4.3).
//
// SingleFilterSummary (4.7.1): cells in k groups, one for each hash; a cell holds the greatest level of the keys that
// have it. A key's answer is the least of its cells: never below its level, and 0 only for a key that is not in. Cells
// are packed by the number of levels: 2 bits up to 3, three cells a byte up to 5 (6^3 = 216), 3 bits up to 7, else 4.
// Counting (4.10.2): a cell has one counter for each level; its value is the greatest level with a counter above 0.
//     core     [levels, cells, hashes] and, counting, the bits of each level's counters; hashes divide cells
//     payload  8 words of state (keys, 0 …), the cells
//
// MultipleBloomSummary (4.7.2): filter B_j holds the keys of levels above j, so the skew of the table makes each
// smaller than the one before. The answer is the least j whose filter does not know the key. Positions are from
// independent hashes: with double hashing a filter's rate has a floor of about 1/bits^2 (study/theory/hashing_law.py), and
// B_1 … need rates far below. Options, both of the thesis: *wide* hashing, the same words for all filters, each reduced
// modulo the filter's size (what is predicted needs independence within a filter alone); an exact *list* of digests for
// a small filter (its hashes are 0). A list that is full counts what it could not take, and until that is 0 again knows
// every key: a wrong level, never a lost key. Counting: B_j has counters. A key that has one counter by two of its
// hashes moves it once (the thesis' rule for small tables, here for all: the counter then says how many keys have it).
//     core     [levels, flags (1 wide, 2 counting), then for each filter: bits (counters; keys of a list), hashes
//               (0: a list), bits of a counter (1 if not counting)]
//     payload  8 words of state (keys, 0 …), the filters, each from a cache line on; a list: 8 words (entries, lost,
//              0 …) and bits + bits/3 + 8 slots of 8 bytes, 0 being free, linear probing
//
// A full counter sticks: it moves neither up nor down. So B_0, and a cell of a single filter, never forget a key.
//
// CounterSummary (Song et al. 2005, here 4.3): a counter for each bucket of a table, which counts the hashes of keys
// to it; a key's bucket is that of its least counter (of equals the first bucket), 0 where a counter is 0. Built once.
//     core     [choices, buckets, counter bits]; `level` answers which choice, from 1
//     payload  8 words of state (keys, 0 …), the counters
#pragma once

#include "evenbins/packed.hpp"
#include "evenbins/summary.hpp"

namespace evenbins {

class SingleFilterSummary final : public Summary {
 public:
  static uint64_t payload_bytes(const Spec& spec);
  SingleFilterSummary(Spec spec, Bits bits);

  uint32_t level(uint64_t digest) const override;
  void prefetch(uint64_t digest) const override;
  void add(uint64_t digest, uint32_t level) override;
  bool can_remove() const override { return counting_; }
  bool remove(uint64_t digest, uint32_t level) override;
  std::vector<double> fills() const override;  // of each group
  double false_positives() const override;
  uint64_t saturated() const override;
  std::unique_ptr<Summary> copy() const override { return std::make_unique<SingleFilterSummary>(spec_, bits_.copy()); }
  std::string check(bool thorough) const override;

 private:
  uint64_t position(uint64_t word, uint32_t i) const { return i * group_ + mulhi(splitmix(word, i), group_); }
  uint64_t cell(uint64_t i) const;
  void set_cell(uint64_t i, uint64_t value);
  uint32_t level_of(uint64_t cell) const;
  uint64_t counter(uint64_t cell, uint32_t level) const {
    return cell >> shifts_[level] & Packed::most(widths_[level]);
  }

  uint64_t* cells_;
  uint64_t count_, group_;
  uint32_t hashes_, width_ = 0;  // bits of a cell; 0: three cells a byte
  bool counting_;
  uint32_t widths_[kMaxSummaryLevels + 1] = {}, shifts_[kMaxSummaryLevels + 1] = {};  // by level, from 1
};

class MultipleBloomSummary final : public Summary {
 public:
  static constexpr uint64_t kWide = 1, kCounting = 2;
  static constexpr uint32_t kMaxHashes = 64;

  static uint64_t payload_bytes(const Spec& spec);
  MultipleBloomSummary(Spec spec, Bits bits);

  uint32_t level(uint64_t digest) const override;
  void prefetch(uint64_t digest) const override;
  void add(uint64_t digest, uint32_t level) override;
  bool can_remove() const override { return counting_; }
  bool remove(uint64_t digest, uint32_t level) override;
  void move(uint64_t digest, uint32_t from, uint32_t to) override;
  std::vector<double> fills() const override;  // of each filter
  double false_positives() const override;
  uint64_t saturated() const override;
  std::unique_ptr<Summary> copy() const override { return std::make_unique<MultipleBloomSummary>(spec_, bits_.copy()); }
  std::string check(bool thorough) const override;

 private:
  struct Part {
    uint64_t* words;
    uint64_t size, slots;    // slots: of a list
    uint32_t hashes, width;  // hashes 0: a list
  };
  uint64_t position(uint32_t j, const Part& part, uint64_t word, uint32_t i) const {
    return wide_ ? splitmix(word, i) % part.size : mulhi(splitmix(word, 64 * uint64_t{j} + i), part.size);
  }
  uint32_t distinct(uint32_t j, uint64_t word, uint64_t* out) const;
  bool knows(uint32_t j, uint64_t word) const;
  void add_to(uint32_t j, uint64_t word);
  bool remove_from(uint32_t j, uint64_t word);

  std::vector<Part> parts_;
  bool wide_, counting_;
};

class CounterSummary final : public Summary {
 public:
  static uint64_t payload_bytes(const Spec& spec);
  CounterSummary(Spec spec, Bits bits);

  uint32_t level(uint64_t digest) const override;
  uint64_t bucket(uint64_t digest, uint32_t choice) const {
    return mulhi(splitmix(summary_word(digest), choice), buckets_);
  }
  void add(uint64_t digest, uint32_t level) override;  // whatever the level: counters alone decide it
  std::vector<double> fills() const override;
  double false_positives() const override;
  uint64_t saturated() const override;
  std::unique_ptr<Summary> copy() const override { return std::make_unique<CounterSummary>(spec_, bits_.copy()); }
  std::string check(bool thorough) const override;

 private:
  uint64_t* counters_;
  uint64_t buckets_;
  uint32_t width_;
};

}  // namespace evenbins

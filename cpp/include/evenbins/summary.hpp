// A summary of a multilevel table: is this key in it, and in which level? (kirsch, chapter 4)
//
//     key ──▶ summary, small, in fast memory ──▶ 0: absent │ 1 … d: read that one bucket │ d + 1: the overflow list
//
// What must hold: a summary never answers 0 for a key that is in. It may answer a wrong level, which costs reads,
// and a level for a key that is not in (a false positive). It is keyed by the table's 64-bit digests; from a digest
// it takes words of its own (`summary_word`), so that it is independent of the buckets.
//
//     kind             file                       insert   delete   a key moves up / down
//     interpolation    summary_interpolation.hpp  yes      yes      yes / yes
//     single filter    summary_filters.hpp        yes      no       yes / no: the old level stays
//       counting       summary_filters.hpp        yes      yes      yes / yes
//     multiple Bloom   summary_filters.hpp        yes      no       yes / no
//       counting       summary_filters.hpp        yes      yes      yes / yes
//     counters         summary_filters.hpp        built once, for comparison (Song et al., section 4.3)
//
// `levels` counts the list as one, where there is one: 1 … 9 (1 … 64 choices of a counter summary).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "evenbins/bits.hpp"
#include "evenbins/hash.hpp"
#include "evenbins/spec.hpp"

namespace evenbins {

inline constexpr uint32_t kMaxSummaryLevels = 9;

// The word from which a summary's own words follow; no table uses it.
EVENBINS_INLINE constexpr uint64_t summary_word(uint64_t digest) { return splitmix(digest, 31); }

class Summary {
 public:
  Summary(Spec spec, Bits bits) : spec_(std::move(spec)), bits_(std::move(bits)) {}
  virtual ~Summary() = default;
  Summary(const Summary&) = delete;
  Summary& operator=(const Summary&) = delete;

  const Spec& spec() const { return spec_; }
  const Bits& bits() const { return bits_; }
  uint32_t levels() const { return static_cast<uint32_t>(spec_.core[0]); }
  uint64_t keys() const { return bits_.words()[0]; }  // the first word of every payload

  virtual uint32_t level(uint64_t digest) const = 0;
  virtual void prefetch(uint64_t /*digest*/) const {}
  virtual void add(uint64_t digest, uint32_t level) = 0;
  virtual bool can_remove() const { return false; }
  // False, and nothing is changed, for what is not there. Of a kind that cannot: nothing happens.
  virtual bool remove(uint64_t /*digest*/, uint32_t /*level*/) { return false; }
  virtual void move(uint64_t digest, uint32_t from, uint32_t to) {
    add(digest, to);
    if (can_remove()) remove(digest, from);
  }

  // The fraction of its cells, bits or slots in use, for each part; the probability that an absent key answers a level.
  virtual std::vector<double> fills() const = 0;
  virtual double false_positives() const = 0;
  virtual uint64_t saturated() const { return 0; }  // counters that are full, and stick

  virtual void clear() { bits_.clear(); }
  virtual std::unique_ptr<Summary> copy() const = 0;
  bool operator==(const Summary& other) const { return spec_.same_structure(other.spec_) && bits_ == other.bits_; }
  virtual std::string check(bool thorough) const = 0;  // names the first broken invariant, or nothing

  void level_many(const uint64_t* digests, size_t n, uint8_t* out) const {
    constexpr size_t kAhead = 8;
    for (size_t i = 0; i < n && i < kAhead; ++i) prefetch(digests[i]);
    for (size_t i = 0; i < n; ++i) {
      if (i + kAhead < n) prefetch(digests[i + kAhead]);
      out[i] = static_cast<uint8_t>(level(digests[i]));
    }
  }

 protected:
  uint64_t& keys_word() { return bits_.words()[0]; }

  Spec spec_;
  Bits bits_;
};

bool is_summary(Kind kind);
// Makes a summary of any kind from its payload; SpecError if that has another size, or if the kind is no summary.
std::unique_ptr<Summary> make_summary(Spec spec, Bits bits);

// `make_summary` of a kind's registry row.
template <typename Family>
std::unique_ptr<Summary> make_summary_as(Spec spec, Bits bits) {
  return std::make_unique<Family>(std::move(spec), std::move(bits));
}

}  // namespace evenbins

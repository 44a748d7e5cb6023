// The interpolation search summary (kirsch, section 4.6): the sorted b-bit digests of all keys, each with its level.
//
//     slots    . a b . . c d e f . g . .      sorted from end to end, with gaps
//              home(x) = x · slots / 2^b: where linear interpolation expects x; x lies there or behind it
//
// A sorted array that can be changed without copying it ("linear probing sort", Gonnet and Munro 1984): entries lie in
// order, each at its home or as little behind it as the order allows. A search looks at the home and walks on. An
// insertion shifts what is larger by one, as far as the next gap; a deletion shifts back what is not at home. The
// layout depends on the entries alone, not on their history.
//
// Cost. With keys = 0.8 · slots a search walks 2 entries in the mean, an insertion shifts 12. The chance that a
// walk is longer than w falls as exp(-0.43 w) (the waiting time of a queue with load 0.8), that a stretch without a gap
// is longer than r as exp(-0.023 r) (its busy period): for r = 2048 below 1e-20. That is a hard bound here: an entry
// which would make a longer stretch, or fall behind the last slot, is not stored but *spilled*: counted. While the
// count is above 0, a key that is not found is answered 1, not 0: so reads may be wasted and no key is lost.
//
// A multiset of (digest, level): equal digests never lose a key. The answer is the least level of an equal digest;
// the table tries the others. A deletion takes one entry of that very level, or else one from the spilled.
//
// Core: [levels, digest bits b, slots]. An entry has b bits and as many as the level needs; 0 is a gap, since levels
// begin at 1. Payload: 8 words of state (keys, spilled, 0 …), then slots + kReach entries, packed.
//
// Tried and dropped: blocks of a fixed number of entries, found by the top bits. For no block of 64 to overflow, a
// third of the memory must stay empty, against a fifth here.
#pragma once

#include "evenbins/packed.hpp"
#include "evenbins/summary.hpp"

namespace evenbins {

class InterpolationSummary final : public Summary {
 public:
  static constexpr uint64_t kReach = 1024;    // slots behind the last home
  static constexpr uint64_t kStretch = 2048;  // entries without a gap, at most
  static constexpr uint64_t kMaxSlots = uint64_t{1} << 40;

  static uint64_t payload_bytes(const Spec& spec);
  InterpolationSummary(Spec spec, Bits bits);

  uint32_t level(uint64_t digest) const override;
  void prefetch(uint64_t digest) const override {
    __builtin_prefetch(entries_ + home(short_digest(digest)) * width_ / 64);
  }
  void add(uint64_t digest, uint32_t level) override;
  bool can_remove() const override { return true; }
  bool remove(uint64_t digest, uint32_t level) override;

  std::vector<double> fills() const override;
  double false_positives() const override;
  uint64_t spilled() const { return bits_.words()[1]; }
  std::unique_ptr<Summary> copy() const override { return std::make_unique<InterpolationSummary>(spec_, bits_.copy()); }
  std::string check(bool thorough) const override;

 private:
  uint64_t short_digest(uint64_t digest) const { return summary_word(digest) >> (64 - digest_bits_); }
  uint64_t home(uint64_t short_digest) const { return mulhi(short_digest << (64 - digest_bits_), slots_); }
  uint64_t at(uint64_t i) const { return Packed::at(entries_, i, width_); }
  void set(uint64_t i, uint64_t entry) { Packed::set(entries_, i, width_, entry); }

  uint64_t* entries_;
  uint32_t digest_bits_, level_bits_, width_;
  uint64_t slots_, all_;  // all: with those behind the last home
};

}  // namespace evenbins

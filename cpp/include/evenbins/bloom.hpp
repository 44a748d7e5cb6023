// The standard Bloom filter: k positions anywhere in m bits (kirsch, section 2.1), by one of several hashing
// schemes (kirsch, chapter 3). Integer core: [bits, hashes].
//
//     independent   position i is SplitMix64's word i, scaled to m: as good as k hash functions, for any m
//     double        h1 + i·h2 mod m, from words 0 and 1
//     enhanced      h1 + i·h2 + f(i) mod m, f(i) = i² (square), i³ (cube) or (i³ − i)/6 (tetrahedral)
//     triple        h1 + i·h2 + i(i−1)/2·h3 mod m
//     partition     h1 + i·h2 mod m/k, in part i of k equal parts: k divides m
//
// h2 may be 0, and may share a divisor with m, as the thesis' framework allows: a key then has fewer different
// positions. What that costs is in the predicted rate (study/theory/hashing_law.py).
#pragma once

#include <vector>

#include "evenbins/filter.hpp"
#include "evenbins/kernel.hpp"
#include "evenbins/standard_view.hpp"

namespace evenbins {

class BloomFilter final : public Filter, public ByRange {
 public:
  static constexpr uint64_t kMaxHashes = 64, kMaxBits = uint64_t{1} << 56;

  static uint64_t payload_bytes(const Spec& spec) {
    if (spec.hashing == Hashing::lanes || spec.hashing < Hashing::independent || spec.hashing > Hashing::triple)
      throw SpecError("a standard filter has no such hashing");
    if (spec.core.size() != 2) throw SpecError("a standard filter has two numbers in its core");
    if (spec.core[0] < 1 || spec.core[0] > kMaxBits) throw SpecError("bits must be 1 … 2^56");
    if (spec.core[1] < 1 || spec.core[1] > kMaxHashes) throw SpecError("hashes must be 1 … 64");
    if (spec.hashing == Hashing::partition && spec.core[0] % spec.core[1] != 0)
      throw SpecError("the parts of a partitioned filter must be equal: hashes must divide bits");
    return (spec.core[0] + 63) / 64 * 8;
  }

  BloomFilter(Spec spec, Bits bits)
      : Filter(std::move(spec), std::move(bits)),
        view_{bits_.words(), spec_.core[0], static_cast<uint32_t>(spec_.core[1]), nullptr, spec_.core[0], 0, false} {
    set_one({add_key, add_new_key, contains_key, &view_});
    if (spec_.hashing == Hashing::independent) return;
    if (spec_.hashing == Hashing::partition) view_.range = view_.stride = view_.bits / view_.hashes;
    view_.third = spec_.hashing == Hashing::triple;
    extra_.resize(view_.hashes);
    for (uint64_t i = 0; i < view_.hashes; ++i) extra_[i] = (shift(i + 1) - shift(i)) % view_.range;
    view_.extra = extra_.data();
    set_one({add_progression, add_new_progression, contains_progression, &view_});
  }

  size_t add_many(const uint64_t* digests, size_t n) override {
    kernel_.standard_add(view_, digests, n);
    return n;
  }
  size_t add_new_many(const uint64_t* digests, size_t n, uint8_t* out) override {
    kernel_.standard_add_new(view_, digests, n, out);
    return n;
  }
  void contains_many(const uint64_t* digests, size_t n, uint8_t* out) const override {
    kernel_.standard_contains(view_, digests, n, out);
  }

  bool has_bits_of_keys() const override { return true; }
  ByRange* by_range() override { return this; }
  uint32_t items_per_key() const override { return view_.hashes; }
  void items(const uint64_t* digests, size_t n, uint64_t* out) const override {
    kernel_.standard_positions(view_, digests, n, out);
  }
  Address address() const override { return {.scale = 0, .shift = 9, .lines = (view_.bits + 511) / 512}; }
  void add_items(const uint64_t* positions, size_t n) override {
    each_position(positions, n, [&](size_t i) { set_bit(view_.words, positions[i]); });
  }
  void add_near_items(uint64_t first, const uint32_t* offsets, size_t n, Upcoming& upcoming) override {
    uint64_t* const words = view_.words;
    Upcoming lines = upcoming;
    for (size_t i = 0; i < n;) {
      lines.prefetch();
      for (const size_t end = std::min(n, i + Upcoming::kItems); i < end; ++i) set_bit(words, first + offsets[i]);
    }
    upcoming = lines;
  }
  bool tells_new_items() const override { return true; }
  void add_new_items(const uint64_t* positions, size_t n, uint8_t* added) override {
    each_position(positions, n, [&](size_t i) { added[i] = exchange_bit(view_.words, positions[i]) == 0; });
  }

  std::unique_ptr<Filter> copy() const override { return std::make_unique<BloomFilter>(spec_, bits_.copy()); }

  std::string check(bool) const override {
    const uint64_t spare = view_.bits % 64;
    if (spare != 0 && (view_.words[view_.bits / 64] >> spare) != 0) return "bits beyond the last are set";
    return {};
  }

 private:
  template <typename Act>
  void each_position(const uint64_t* positions, size_t n, const Act& act) {
    constexpr size_t kAhead = 32;
    for (size_t i = 0; i < n; ++i) {
      if (i + kAhead < n) __builtin_prefetch(view_.words + (positions[i + kAhead] >> 6), 1);
      act(i);
    }
  }

  static AddOutcome add_key(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const StandardView*>(view);
    for (uint32_t i = 0; i < f.hashes; ++i) {
      set_bit(f.words, mulhi(splitmix(digest, i), f.bits));
    }
    return AddOutcome::added;
  }
  static AddOutcome add_new_key(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const StandardView*>(view);
    uint64_t before = 1;
    for (uint32_t i = 0; i < f.hashes; ++i) before &= exchange_bit(f.words, mulhi(splitmix(digest, i), f.bits));
    return before == 0 ? AddOutcome::added : AddOutcome::present;
  }
  static bool contains_key(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const StandardView*>(view);
    for (uint32_t i = 0; i < f.hashes; ++i) {
      if (!has_bit(f.words, mulhi(splitmix(digest, i), f.bits))) return false;
    }
    return true;
  }

  uint64_t shift(uint64_t i) const {  // f(i)
    switch (spec_.hashing) {
      case Hashing::enhanced_square: return i * i;
      case Hashing::enhanced_cube: return i * i * i;
      case Hashing::enhanced_tetrahedral: return (i * i * i - i) / 6;
      default: return 0;
    }
  }
  static AddOutcome add_progression(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const StandardView*>(view);
    Progression key(f, digest);
    for (uint32_t i = 0; i < f.hashes; ++i) {
      set_bit(f.words, key.position + i * f.stride);
      key.advance(f, i);
    }
    return AddOutcome::added;
  }
  static AddOutcome add_new_progression(const void* view, uint64_t digest) {
    if (contains_progression(view, digest)) return AddOutcome::present;
    return add_progression(view, digest);
  }
  static bool contains_progression(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const StandardView*>(view);
    Progression key(f, digest);
    for (uint32_t i = 0; i < f.hashes; ++i) {
      if (!has_bit(f.words, key.position + i * f.stride)) return false;
      key.advance(f, i);
    }
    return true;
  }

  std::vector<uint64_t> extra_;
  StandardView view_;
  const Kernel& kernel_ = kernel();  // in force when the filter was made
};

}  // namespace evenbins

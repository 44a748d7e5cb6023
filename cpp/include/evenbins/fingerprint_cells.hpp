// A fingerprint as each level of a filter sees it, and level 3, as text for every kernel and for the GPU
// (cpp/cuda/fingerprint.cuh).
#pragma once

#include "evenbins/fingerprint_view.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

struct Cell {
  uint64_t line;
  uint32_t quotient, remainder;
};

template <uint32_t Level>
EVENBINS_INLINE uint64_t* line_at(const FingerprintView& f, uint64_t line) {
  return (Level == 1 ? f.level1 : f.level2) + 8 * line;
}
template <uint32_t Level>
EVENBINS_INLINE const FingerprintShape& shape_at(const FingerprintView& f) {
  return Level == 1 ? f.one : f.two;
}
EVENBINS_INLINE uint64_t mask_of_bits(uint32_t bits) { return (uint64_t{1} << bits) - 1; }

EVENBINS_INLINE Cell cell_of_key(const FingerprintView& f, const FingerprintKey& k) {
  return {16 * k.block + (k.key >> f.two.bits >> 6), static_cast<uint32_t>(k.key >> f.two.bits & 63),
          static_cast<uint32_t>(k.key & mask_of_bits(f.two.bits))};
}
EVENBINS_INLINE FingerprintKey key_of_cell(const FingerprintView& f, const Cell& c) {
  return {c.line / 16, ((c.line % 16 << 6 | c.quotient) << f.two.bits) + c.remainder};
}
EVENBINS_INLINE FingerprintKey key_of_first(const FingerprintView& f, const Cell& c) {
  return fingerprint_key(f, {c.line, c.quotient, c.remainder});
}

// Level 3: the largest keys of a block, each plus one, in descending order; 0 is no key.
struct Entries {
  uint64_t* line;
  bool wide;

  EVENBINS_INLINE Entries(const FingerprintView& f, uint64_t block)
      : line(f.level3 + 8 * block), wide(f.wide_entries) {}
  EVENBINS_INLINE uint32_t size() const { return wide ? 8 : 16; }
  EVENBINS_INLINE uint64_t at(uint32_t i) const { return wide ? line[i] : line[i / 2] >> 32 * (i % 2) & 0xFFFFFFFF; }
  EVENBINS_INLINE void set(uint32_t i, uint64_t entry) {
    if (wide)
      line[i] = entry;
    else
      line[i / 2] = (line[i / 2] & ~(uint64_t{0xFFFFFFFF} << 32 * (i % 2))) | entry << 32 * (i % 2);
  }
  EVENBINS_INLINE bool is_full() const { return at(size() - 1) != 0; }
  // May the rest hold keys as small as this?
  EVENBINS_INLINE bool may_miss(uint64_t key) const { return key < at(size() - 1); }
  // How often a key is here.
  EVENBINS_INLINE uint64_t count(uint64_t key) const {
    uint64_t found = 0;
    for (uint32_t i = 0; i < size(); ++i) found += at(i) == key + 1;
    return found;
  }
};

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

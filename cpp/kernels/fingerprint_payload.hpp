// A set of fingerprints each of which has a payload, as text for every kernel: the last f.payload bits of a slot.
//
//     slot   | remainder of the fingerprint | payload |      all of it is the "remainder" of the levels
//
// Lines and levels move slots and do not know what they hold, so all of their code serves. Only to find a fingerprint
// is different: its payload is not known. A fingerprint is in once, so that runs are ordered by remainders alone, and
// another payload is written over the old one wherever the slot is. The bytes are a function of the set of pairs.
//
//     find    the payload, or -1                     put     gives a fingerprint a payload, and adds it if need be
//     erase   removes a fingerprint                  sweep   removes those of a line whose payload is to go
#pragma once

#include "fingerprint_levels.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

EVENBINS_INLINE uint32_t payload_mask(const FingerprintView& f) { return (1u << f.payload) - 1; }

// The payload of a fingerprint whose run is not in its line, or -1; the cell's payload is 0. With `put` it gets another.
EVENBINS_NOINLINE int64_t exchange_elsewhere(const FingerprintView& f, const Cell& c, const uint32_t* put,
                                             bool locked) {
  const FingerprintKey key = key_of_first(f, c);
  const Cell next = cell_of_key(f, key);
  uint64_t* there = line_at<2>(f, next.line);
  using Code = LineCode<1, false>;  // whose places are those of any line with 64 slots at most
  const typename Code::Place at(there, f.two, next.quotient, f.slow_pdep);
  if (!at.is_elsewhere()) {
    for (uint64_t run = at.run(); run != 0; run &= run - 1) {
      const uint32_t slot = load_slot(there, f.two, lowest(run));
      if (slot >> f.payload != next.remainder >> f.payload) continue;
      if (put != nullptr) store_slot(there, f.two, lowest(run), next.remainder | *put);
      return slot & payload_mask(f);
    }
    return -1;
  }
  Entries entries(f, key.block);
  for (uint32_t i = 0; i < entries.size(); ++i) {
    const uint64_t entry = entries.at(i);
    if (entry == 0 || (entry - 1) >> f.payload != key.key >> f.payload) continue;
    if (put != nullptr) entries.set(i, key.key + *put + 1);
    return static_cast<int64_t>((entry - 1) & payload_mask(f));
  }
  return entries.may_miss(key.key) ? kFingerprintRest.exchange(f, key, put, locked) : -1;
}

// Removes what `must_go` of the keys first … last of a block; of any number of them, some at a time.
template <typename MustGo>
uint64_t sweep_keys(const FingerprintView& f, uint64_t block, uint64_t first, uint64_t last, const MustGo& must_go) {
  constexpr uint32_t kMost = 64;
  uint64_t keys[kMost];
  const uint32_t n = find_keys(f, block, first, last, keys, kMost);
  if (n == kMost && first < last) {  // there may be more
    const uint64_t middle = first + (last - first) / 2;
    return sweep_keys(f, block, first, middle, must_go) + sweep_keys(f, block, middle + 1, last, must_go);
  }
  uint64_t removed = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (!must_go(static_cast<uint32_t>(keys[i]) & payload_mask(f))) continue;
    const FingerprintParts parts = fingerprint_parts_of(f, FingerprintKey{block, keys[i]});
    removed += levels_of(f).remove_at(f, {parts.line, parts.quotient, parts.remainder});
  }
  return removed;
}

template <uint32_t Planes, bool Low>
struct Payloads {
  using Code = LineCode<Planes, Low>;
  using Place = typename Code::Place;
  using Mask = typename Code::Mask;
  static constexpr int64_t kAbsent = -1, kFull = -2;

  // A key in its line; its remainder has payload 0.
  struct Key {
    uint64_t* line;
    uint32_t quotient, remainder;

    EVENBINS_INLINE Key(const FingerprintView& f, uint64_t* line, uint64_t digest) : line(line) {
      const uint128 product = static_cast<uint128>(digest * f.lines) * f.quotients;
      quotient = static_cast<uint32_t>(product >> 64);
      remainder = static_cast<uint32_t>(static_cast<uint64_t>(product) >> f.shift) << f.payload;
    }
    EVENBINS_INLINE Cell cell(const FingerprintView& f, uint32_t payload = 0) const {
      return {static_cast<uint64_t>(line - f.level1) / 8, quotient, remainder | payload};
    }
  };
  EVENBINS_INLINE static uint64_t* line_of(const FingerprintView& f, uint64_t digest) {
    return f.level1 + (mulhi(digest, f.lines) << 3);
  }

  // The slot of a run that has a remainder, or 0: byte planes above the payload are compared at once, the rest of a slot
  // only where they agree.
  EVENBINS_INLINE static Mask find_slot(const uint64_t* line, const FingerprintView& f, Mask run, uint32_t remainder) {
    const FingerprintShape& g = f.one;
    const uint32_t bits = g.bits - f.payload;
    if constexpr (Planes != 0 && kFindsBytes) {
      EVENBINS_UNROLL(4)
      for (uint32_t p = 0; p < Planes; ++p)
        if (8 * (p + 1) <= bits)
          run &= find_equal(line, remainder >> (g.bits - 8 * (p + 1)) & 0xFF) >> (g.plane_at + p * g.slots);
      if (bits % 8 == 0) return run;
    }
    for (; run != 0; run &= run - 1)
      if (load_slot(line, g, lowest(run)) >> f.payload == remainder >> f.payload) return run & -run;
    return 0;
  }

  EVENBINS_INLINE static int64_t find(const FingerprintView& f, const Key& key, bool locked = false) {
    const Place at(key.line, f.one, key.quotient, f.slow_pdep);
    if (at.is_elsewhere()) [[unlikely]]
      return exchange_elsewhere(f, key.cell(f), nullptr, locked);
    const Mask found = find_slot(key.line, f, at.run(), key.remainder);
    return found == 0 ? kAbsent : load_slot(key.line, f.one, lowest(found)) & payload_mask(f);
  }

  // The payload before; kAbsent if it was absent, and is in now; kFull if there was no room, and nothing has changed.
  EVENBINS_INLINE static int64_t put(const FingerprintView& f, const Key& key, uint32_t payload, bool has_room) {
    const Place at(key.line, f.one, key.quotient, f.slow_pdep);
    if (at.is_elsewhere()) [[unlikely]] {
      if (const int64_t before = exchange_elsewhere(f, key.cell(f), &payload, true); before >= 0) return before;
    } else if (const Mask found = find_slot(key.line, f, at.run(), key.remainder); found != 0) {
      const uint32_t before = load_slot(key.line, f.one, lowest(found)) & payload_mask(f);
      if (before != payload) store_slot(key.line, f.one, lowest(found), key.remainder | payload);
      return before;
    }
    if (!has_room) return kFull;
    if (Code::insert(key.line, f.one, at, key.quotient, key.remainder | payload)) [[likely]]
      return kAbsent;
    return add_elsewhere(f, key.cell(f, payload)) ? kAbsent : kFull;
  }
  EVENBINS_COLD static bool add_elsewhere(const FingerprintView& f, const Cell& cell) {
    levels_of(f).add_overflowing(f, cell);
    if (!kFingerprintRest.is_overfull(f)) return true;
    levels_of(f).remove_at(f, cell);
    return false;
  }

  static bool erase(const FingerprintView& f, const Key& key) {
    const int64_t payload = find(f, key, true);
    return payload >= 0 && levels_of(f).remove_at(f, key.cell(f, static_cast<uint32_t>(payload)));
  }

  // Removes the fingerprints of a line of level 1, wherever their slots are, for whose payload must_go(payload) is true.
  // Returns how many.
  template <typename MustGo>
  EVENBINS_INLINE static uint64_t sweep(const FingerprintView& f, uint64_t index, const MustGo& must_go) {
    const uint64_t* line = f.level1 + 8 * index;
    uint64_t quotients = load_occupied(line, f.one);
    if (quotients == 0) return 0;
    Cell gone[kMaxFingerprintSlots];
    uint32_t n = 0;
    Mask ends = Code::ends_of(line, f.one);
    for (uint32_t slot = 0; ends != 0; ++slot, ends >>= 1) {
      if (must_go(payload_at(f, line, slot))) gone[n++] = {index, lowest(quotients), load_slot(line, f.one, slot)};
      if ((ends & 1) != 0) quotients &= quotients - 1;
    }
    for (uint32_t i = 0; i < n; ++i) levels_of(f).remove_at(f, gone[i]);
    uint64_t removed = n;
    for (; quotients != 0; quotients &= quotients - 1) removed += sweep_run(f, index, lowest(quotients), must_go);
    return removed;
  }

 private:
  // Often all of it is among the low bits, so that one load has it.
  EVENBINS_INLINE static uint32_t payload_at(const FingerprintView& f, const uint64_t* line, uint32_t slot) {
    if (Low && f.payload <= f.one.low_bits)
      return static_cast<uint32_t>(load_bits(line, f.one.low_at + slot * f.one.low_bits, f.payload));
    return load_slot(line, f.one, slot) & payload_mask(f);
  }

  // The same for a run that was not in its line; it may have come back.
  template <typename MustGo>
  EVENBINS_NOINLINE static uint64_t sweep_run(const FingerprintView& f, uint64_t index, uint32_t quotient,
                                              const MustGo& must_go) {
    constexpr uint32_t kMost = kMaxFingerprintSlots + 1;  // more than a line has
    const uint64_t* line = f.level1 + 8 * index;
    const Place at(line, f.one, quotient, f.slow_pdep);
    uint64_t found[kMost];
    uint32_t n = 0;
    if (at.is_elsewhere())
      n = levels_of(f).find_run(f, index, quotient, found, kMost);
    else
      for (Mask run = at.run(); run != 0; run &= run - 1) found[n++] = load_slot(line, f.one, lowest(run));
    if (n == kMost) {
      const FingerprintKey first = key_of_first(f, {index, quotient, 0});
      return sweep_keys(f, first.block, first.key, first.key + mask_of_bits(f.one.bits), must_go);
    }
    uint64_t removed = 0;
    for (uint32_t i = 0; i < n; ++i) {
      const auto value = static_cast<uint32_t>(found[i]);
      if (must_go(value & payload_mask(f))) removed += levels_of(f).remove_at(f, {index, quotient, value});
    }
    return removed;
  }
};

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

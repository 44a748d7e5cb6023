// A fingerprint filter (fingerprint.hpp) as its inner loops see it, these loops, and where its parts lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenbins/one_key.hpp"

namespace evenbins {

// The lines of one level. A slot holds a remainder of `bits` bits: its upper bytes one in each of `planes` byte planes, its
// last low_bits = bits mod 8 bits packed in front of the planes.
//
//     bit 0        quotients     quotients+slots   low_at            8·plane_at                        512
//     | occupied   | run ends    | zero …          | low bits        | plane 0 (highest) | plane 1 …    |
struct FingerprintShape {
  uint32_t quotients, bits, slots, planes, low_bits, low_at, plane_at;
  uint64_t occupied;  // mask of the quotients
  uint64_t head[3];   // of each of the first words: mask of quotients and run ends
  // Low bits as bytes, and back: the last eight slots fill the last low_bits bytes in front of the planes, and so on. Of
  // slots as bytes that end the line (slot i is byte 64 − slots + i), in eights: from which bytes of the line the bits of
  // eight slots come; and from which of eight bytes a byte of the line comes, when the bits of eight slots are packed at
  // their beginning, or, if low_bits is even, those of each four slots at the beginning of four.
  alignas(64) uint8_t low_from[64];
  alignas(64) uint8_t low_to[64];
};

inline constexpr uint32_t kMaxFingerprintSlots = 480 / 5;  // with 32 quotients and remainders of four bits

EVENBINS_INLINE constexpr FingerprintShape fingerprint_shape(uint32_t quotients, uint32_t bits) {
  const uint32_t slots = (512 - quotients) / (bits + 1), planes = bits / 8, low_bits = bits % 8;
  const uint32_t plane_at = 64 - planes * slots, head = quotients + slots;
  const auto below = [](uint32_t end, uint32_t word) {
    return end >= 64 * word + 64 ? ~uint64_t{0} : end > 64 * word ? (uint64_t{1} << (end - 64 * word)) - 1 : 0;
  };
  FingerprintShape g{quotients,
                     bits,
                     slots,
                     planes,
                     low_bits,
                     8 * plane_at - low_bits * slots,
                     plane_at,
                     below(quotients, 0),
                     {below(head, 0), below(head, 1), below(head, 2)},
                     {},
                     {}};
  for (uint32_t i = 0; i < 8 * low_bits; ++i) {
    const uint32_t eight = 8 * (i / low_bits), part = i % low_bits, half = low_bits / 2;
    const uint32_t byte = plane_at - 8 * low_bits + i;
    if (byte >= 64) continue;  // in front of the line
    g.low_from[eight + part] = static_cast<uint8_t>(byte);
    g.low_to[byte] = static_cast<uint8_t>(eight + (low_bits % 2 == 0 && part >= half ? 4 + part - half : part));
  }
  return g;
}

class FingerprintRest;

struct FingerprintView {
  uint64_t* state;  // copies, 0, entries of the rest, 0 …
  uint64_t *level1, *level2, *level3;
  uint64_t lines, quotients, group, limit;
  uint32_t shift;    // 64 − bits of a remainder
  uint32_t payload;  // last bits of a slot that are no part of the fingerprint: window.hpp
  FingerprintShape one, two;
  bool wide_entries;  // of level 3: eight of 64 bits, not sixteen of 32
  bool slow_pdep;     // this processor deposits bits by microcode
  FingerprintRest* rest;
};

// A fingerprint, cut for level 1: F = (line·quotients + quotient)·2^bits + remainder.
struct FingerprintParts {
  uint64_t line;
  uint32_t quotient, remainder;
};

EVENBINS_INLINE FingerprintParts fingerprint_parts(const FingerprintView& f, uint64_t digest) {
  const uint64_t low = digest * f.lines;
  return {mulhi(digest, f.lines), static_cast<uint32_t>(mulhi(low, f.quotients)),
          static_cast<uint32_t>(low * f.quotients >> f.shift)};
}
EVENBINS_INLINE uint64_t fingerprint_of(const FingerprintView& f, const FingerprintParts& p) {
  return ((p.line * f.quotients + p.quotient) << f.one.bits) + p.remainder;
}
EVENBINS_INLINE FingerprintParts fingerprint_parts_of(const FingerprintView& f, uint64_t fingerprint) {
  const uint64_t run = fingerprint >> f.one.bits;
  return {run / f.quotients, static_cast<uint32_t>(run % f.quotients),
          static_cast<uint32_t>(fingerprint & ((uint64_t{1} << f.one.bits) - 1))};
}

// The same fingerprint, cut for level 2: `key` orders those of a block by line, quotient and remainder of level 2.
struct FingerprintKey {
  uint64_t block, key;
};

// line / group without a division: there are fewer than 2^48 lines, and groups of at most 16.
struct GroupInverses {
  uint64_t of[17];  // 2^60 / group, rounded up
};
inline constexpr GroupInverses kGroupInverses = [] {
  GroupInverses inverses{};
  for (uint64_t group = 1; group <= 16; ++group) inverses.of[group] = ((uint64_t{1} << 60) + group - 1) / group;
  return inverses;
}();
EVENBINS_INLINE uint64_t fingerprint_column(const FingerprintView& f, uint64_t line) {
  return static_cast<uint64_t>(static_cast<uint128>(line) * kGroupInverses.of[f.group] >> 60);
}

EVENBINS_INLINE FingerprintKey fingerprint_key(const FingerprintView& f, const FingerprintParts& p) {
  const uint64_t column = fingerprint_column(f, p.line), member = p.line - column * f.group;
  const uint64_t line = (column + p.quotient) % 16, quotient = 4 * member + p.quotient % 4;
  return {column / 16, (((line << 6 | quotient) << 4 | p.quotient / 4) << f.one.bits) + p.remainder};
}
EVENBINS_INLINE FingerprintParts fingerprint_parts_of(const FingerprintView& f, const FingerprintKey& k) {
  const auto remainder = static_cast<uint32_t>(k.key & ((uint64_t{1} << f.one.bits) - 1));
  const uint64_t line = k.key >> f.two.bits >> 6, quotient = k.key >> f.two.bits & 63;
  const uint64_t first = 4 * (k.key >> f.one.bits & 15) + quotient % 4;
  return {(16 * k.block + (line - first) % 16) * f.group + quotient / 4, static_cast<uint32_t>(first), remainder};
}

EVENBINS_INLINE uint64_t fingerprint_of_key(const FingerprintView& f, const FingerprintKey& k) {
  return fingerprint_of(f, fingerprint_parts_of(f, k));
}

namespace fingerprints {
inline constexpr uint64_t kLineWords = 8, kStateWords = 8;
}

// The view of a payload without its rest. `bits` of a slot; the last `payload` of them are no part of the fingerprint.
EVENBINS_INLINE FingerprintView fingerprint_view(uint64_t lines, uint32_t bits, uint64_t quotients, uint64_t group,
                                                 uint64_t limit, uint32_t payload, uint64_t* words) {
  FingerprintView f{};
  f.state = words;
  f.level1 = words + fingerprints::kStateWords;
  f.level2 = f.level1 + fingerprints::kLineWords * lines;
  f.level3 = f.level2 + fingerprints::kLineWords * (lines / group);
  f.lines = lines;
  f.quotients = quotients;
  f.group = group;
  f.limit = limit;
  f.shift = 64 - (bits - payload);
  f.payload = payload;
  f.one = fingerprint_shape(static_cast<uint32_t>(f.quotients), bits);
  f.two = fingerprint_shape(64, bits + 4);
  f.wide_entries = bits > 17;
  return f;
}
EVENBINS_INLINE uint64_t* rest_words(const FingerprintView& f) {
  return f.level3 + fingerprints::kLineWords * (f.lines / (16 * f.group));
}

// What the lines of a block cannot hold, of all blocks: in fingerprint.cpp. All but `count` and
// `exchange` that is not `locked` may be called by several threads at once.
struct FingerprintRestCalls {
  void (*add)(const FingerprintView&, const FingerprintKey&);
  bool (*remove)(const FingerprintView&, const FingerprintKey&);
  // Removes the largest key of a block; false if it has none.
  bool (*take_largest)(const FingerprintView&, uint64_t block, uint64_t& key);
  // Writes the keys first … last of a block to `out`, in no order and not more than `most`; returns how many.
  uint32_t (*find)(const FingerprintView&, uint64_t block, uint64_t first, uint64_t last, uint64_t* out, uint32_t most);
  uint64_t (*count)(const FingerprintView&, const FingerprintKey&, bool locked);
  // The payload of a fingerprint (its key has payload 0), or -1 if it is not there; with `put`, it gets another one.
  int64_t (*exchange)(const FingerprintView&, const FingerprintKey&, const uint32_t* put, bool locked);
  bool (*is_overfull)(const FingerprintView&);  // it holds more than it has room for
};
extern const FingerprintRestCalls kFingerprintRest;

struct FingerprintLoops {  // for one number of planes, and with or without low bits
  OneKey one;              // of a FingerprintView still to be named
  bool (*remove)(const FingerprintView&, uint64_t digest);
  void (*contains_many)(const FingerprintView&, const uint64_t* digests, size_t n, uint8_t* out);
  void (*count_many)(const FingerprintView&, const uint64_t* digests, size_t n, int64_t* out);
  void (*remove_many)(const FingerprintView&, const uint64_t* digests, size_t n, uint8_t* out);
  // Both return how many keys they treated: all, or those before the first for which there was no room. `out` may be null.
  size_t (*add_many)(const FingerprintView&, const uint64_t* digests, size_t n);
  size_t (*add_new_many)(const FingerprintView&, const uint64_t* digests, size_t n, uint8_t* out);
};

// Slot by slot, for everything that need not be fast. Bytes may lie anywhere, and the last slot may end the line.
// What is loaded from beyond the line is any number: bulk look-ups look before they know that a run is elsewhere.
EVENBINS_INLINE uint64_t load_bits(const uint64_t* line, uint32_t at, uint32_t bits) {
  const uint32_t byte = at / 8 < 56 ? at / 8 : 56;
  uint64_t word;
  __builtin_memcpy(&word, reinterpret_cast<const uint8_t*>(line) + byte, 8);
  return word >> (at - 8 * byte) % 64 & ((uint64_t{1} << bits) - 1);
}
EVENBINS_INLINE void store_bits(uint64_t* line, uint32_t at, uint32_t bits, uint64_t value) {
  const uint32_t byte = at / 8 < 56 ? at / 8 : 56, shift = at - 8 * byte;
  uint64_t word;
  __builtin_memcpy(&word, reinterpret_cast<uint8_t*>(line) + byte, 8);
  word = (word & ~(((uint64_t{1} << bits) - 1) << shift)) | value << shift;
  __builtin_memcpy(reinterpret_cast<uint8_t*>(line) + byte, &word, 8);
}

EVENBINS_INLINE uint32_t load_slot(const uint64_t* line, const FingerprintShape& g, uint32_t slot) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(line) + g.plane_at + slot;
  uint32_t value = 0;
  for (uint32_t p = 0; p < g.planes; ++p) value = value << 8 | bytes[p * g.slots];
  if (g.low_bits == 0) return value;
  return value << g.low_bits | static_cast<uint32_t>(load_bits(line, g.low_at + slot * g.low_bits, g.low_bits));
}
EVENBINS_INLINE void store_slot(uint64_t* line, const FingerprintShape& g, uint32_t slot, uint32_t value) {
  auto* bytes = reinterpret_cast<uint8_t*>(line) + g.plane_at + slot;
  const uint32_t upper = value >> g.low_bits;
  for (uint32_t p = 0; p < g.planes; ++p) bytes[p * g.slots] = static_cast<uint8_t>(upper >> 8 * (g.planes - 1 - p));
  if (g.low_bits != 0) store_bits(line, g.low_at + slot * g.low_bits, g.low_bits, value & ((1u << g.low_bits) - 1));
}

using RunEnds = uint128;  // more than 64 slots only with remainders of less than seven bits

EVENBINS_INLINE uint64_t load_occupied(const uint64_t* line, const FingerprintShape& g) { return line[0] & g.occupied; }
EVENBINS_INLINE RunEnds load_ends(const uint64_t* line, const FingerprintShape& g) {
  const RunEnds words = (RunEnds{line[1]} << 64 | line[0]) >> g.quotients | RunEnds{line[2]} << (128 - g.quotients);
  return words & ((RunEnds{1} << g.slots) - 1);
}
EVENBINS_INLINE void store_head(uint64_t* line, const FingerprintShape& g, uint64_t occupied, RunEnds ends) {
  line[0] = (line[0] & ~g.head[0]) | occupied | static_cast<uint64_t>(ends) << 32 << (g.quotients - 32);
  line[1] = (line[1] & ~g.head[1]) | static_cast<uint64_t>(ends >> (64 - g.quotients));
  if (g.head[2] != 0) line[2] = (line[2] & ~g.head[2]) | static_cast<uint64_t>(ends >> (128 - g.quotients));
}
EVENBINS_INLINE void store_ends(uint64_t* line, const FingerprintShape& g, RunEnds ends) {
  store_head(line, g, load_occupied(line, g), ends);
}

// Fills an empty line: of n ascending cells, at(i) = quotient · 2^bits + remainder, the first runs, as many as fit, whole.
// Returns how many cells that are.
template <typename At>
EVENBINS_INLINE uint64_t fill_line(uint64_t* line, const FingerprintShape& g, uint64_t n, const At& at) {
  uint64_t occupied = 0, held = 0;
  const auto ends_run = [&](uint64_t i) { return i + 1 == n || at(i + 1) >> g.bits != at(i) >> g.bits; };
  for (uint64_t i = 0; i < n; ++i) {
    occupied |= uint64_t{1} << (at(i) >> g.bits);
    if (i < g.slots && ends_run(i)) held = i + 1;
  }
  RunEnds ends = 0;
  for (uint32_t i = 0; i < held; ++i) {
    store_slot(line, g, i, static_cast<uint32_t>(at(i) & ((uint64_t{1} << g.bits) - 1)));
    if (ends_run(i)) ends |= RunEnds{1} << i;
  }
  store_head(line, g, occupied, ends);
  return held;
}

// Calls act(quotient, remainder) for what a line holds, in order; false if its runs are not those of its quotients.
template <typename Act>
EVENBINS_INLINE bool each_slot(const uint64_t* line, const FingerprintShape& g, const Act& act) {
  uint64_t occupied = load_occupied(line, g);
  RunEnds ends = load_ends(line, g);
  for (uint32_t slot = 0; ends != 0; ++slot, ends >>= 1) {
    if (occupied == 0) return false;
    act(static_cast<uint32_t>(__builtin_ctzll(occupied)), load_slot(line, g, slot));
    if ((ends & 1) != 0) occupied &= occupied - 1;
  }
  return true;
}

}  // namespace evenbins

// What a line of a fingerprint filter cannot hold: levels 2 and 3 and the rest, as text for every kernel. All of it is
// rare: about one key in 25 of a full filter is not in its line, and one operation in three moves something here.
//
// Level 1 and level 2 have the same rules, so the same templates: a level sends single fingerprints on to the next, and
// asks it for all fingerprints of a run when there is room for them.
#pragma once

#include "evenbins/fingerprint_cells.hpp"
#include "fingerprint_line.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

// Prefetches the line of level 2 with the runs of a quotient of a line; that of its last run that is here, or of the
// next (then there must be one).
template <int ForWriting>
EVENBINS_INLINE void prefetch_next(const FingerprintView& f, uint64_t line, uint32_t quotient) {
  const uint64_t column = fingerprint_column(f, line);
  __builtin_prefetch(line_at<2>(f, (column & ~uint64_t{15}) + (column + quotient) % 16), ForWriting);
}
EVENBINS_INLINE void prefetch_boundary(const FingerprintView& f, uint64_t index, uint32_t last) {
  const uint64_t* line = line_at<1>(f, index);
  const uint32_t runs = ones(load_ends(line, f.one));
  const uint64_t run = runs < last ? 0 : nth_bit(load_occupied(line, f.one), runs - last, f.slow_pdep);
  if (run != 0) prefetch_next<1>(f, index, lowest(run));
}
void add_key(const FingerprintView& f, const FingerprintKey& k) {
  Entries entries(f, k.block);
  uint64_t entry = k.key + 1;
  uint32_t i = 0;
  while (i < entries.size() && entries.at(i) >= entry) ++i;
  for (; i < entries.size() && entry != 0; ++i) {
    const uint64_t next = entries.at(i);
    entries.set(i, entry);
    entry = next;
  }
  if (entry != 0) kFingerprintRest.add(f, {k.block, entry - 1});
}

bool remove_key(const FingerprintView& f, const FingerprintKey& k) {
  Entries entries(f, k.block);
  const uint64_t entry = k.key + 1;
  const bool was_full = entries.is_full();
  uint32_t i = 0;
  while (i < entries.size() && entries.at(i) > entry) ++i;
  if (i == entries.size()) return kFingerprintRest.remove(f, k);
  if (entries.at(i) != entry) return false;
  for (; i + 1 < entries.size(); ++i) entries.set(i, entries.at(i + 1));
  uint64_t largest = 0;
  entries.set(i, was_full && kFingerprintRest.take_largest(f, k.block, largest) ? largest + 1 : 0);
  return true;
}

uint64_t count_key(const FingerprintView& f, const FingerprintKey& k, bool locked) {
  const Entries entries(f, k.block);
  const uint64_t count = entries.count(k.key);
  return entries.may_miss(k.key) ? count + kFingerprintRest.count(f, k, locked) : count;
}

// The keys first … last, at most `most` of them, in no order.
uint32_t find_keys(const FingerprintView& f, uint64_t block, uint64_t first, uint64_t last, uint64_t* out,
                   uint32_t most) {
  const Entries entries(f, block);
  uint32_t n = 0;
  for (uint32_t i = 0; i < entries.size() && n < most; ++i)
    if (const uint64_t entry = entries.at(i); entry > first && entry - 1 <= last) out[n++] = entry - 1;
  if (n < most && entries.may_miss(first)) n += kFingerprintRest.find(f, block, first, last, out + n, most - n);
  return n;
}

template <uint32_t Level>
void add_at(const FingerprintView& f, const Cell& c);
template <uint32_t Level>
bool remove_at(const FingerprintView& f, const Cell& c);
template <uint32_t Level>
void restore(const FingerprintView& f, uint64_t index);

// The next level's part of a fingerprint that level `Level` does not hold.
template <uint32_t Level>
void send_on(const FingerprintView& f, const Cell& c) {
  if constexpr (Level == 1)
    add_at<2>(f, cell_of_key(f, key_of_first(f, c)));
  else
    add_key(f, key_of_cell(f, c));
}
template <uint32_t Level>
bool take_back(const FingerprintView& f, const Cell& c) {
  if constexpr (Level == 1)
    return remove_at<2>(f, cell_of_key(f, key_of_first(f, c)));
  else
    return remove_key(f, key_of_cell(f, c));
}

// The remainders of a run that level `Level` does not hold, ascending: at most `most` of them.
template <uint32_t Level>
uint32_t find_run(const FingerprintView& f, uint64_t line, uint32_t quotient, uint64_t* out, uint32_t most) {
  const uint32_t bits = shape_at<Level>(f).bits;
  const Cell c{line, quotient, 0};
  const FingerprintKey first = Level == 1 ? key_of_first(f, c) : key_of_cell(f, c);
  const uint64_t last = first.key + mask_of_bits(bits);
  uint32_t n = 0;
  if constexpr (Level == 1) {
    const Cell next = cell_of_key(f, first);
    const uint64_t* there = line_at<2>(f, next.line);
    if ((there[0] >> next.quotient & 1) == 0) return 0;
    using Code = LineCode<1, false>;  // whose places are those of any line with 64 slots at most
    const typename Code::Place at(there, f.two, next.quotient, f.slow_pdep);
    if (!at.is_elsewhere()) {
      for (uint64_t run = at.run(); run != 0 && n < most; run &= run - 1) {
        const uint32_t remainder = load_slot(there, f.two, lowest(run));
        if (remainder >> bits == next.remainder >> bits) out[n++] = remainder & mask_of_bits(bits);
      }
      return n;
    }
  }
  n = find_keys(f, first.block, first.key, last, out, most);
  for (uint32_t i = 0; i < n; ++i) {
    const uint64_t remainder = out[i] & mask_of_bits(bits);
    uint32_t j = i;
    for (; j > 0 && out[j - 1] > remainder; --j) out[j] = out[j - 1];
    out[j] = remainder;
  }
  return n;
}

// Takes a run that level `Level` does not hold out of the next, if it has at most `most` remainders, and writes them in
// ascending order; returns how many it has.
template <uint32_t Level>
uint32_t take_run(const FingerprintView& f, uint64_t line, uint32_t quotient, uint32_t* out, uint32_t most) {
  const uint64_t below = mask_of_bits(shape_at<Level>(f).bits);
  if constexpr (Level == 1) {
    const Cell next = cell_of_key(f, key_of_first(f, {line, quotient, 0}));
    uint64_t* there = line_at<2>(f, next.line);
    const int32_t n = line_calls(f.two).take(there, f.two, next.quotient, next.remainder,
                                             next.remainder + static_cast<uint32_t>(below), out, most, f.slow_pdep);
    if (n >= 0) {
      for (int32_t i = 0; i < n && n <= static_cast<int32_t>(most); ++i) out[i] &= below;
      if (n <= static_cast<int32_t>(most) && ones(there[0]) != ones(load_ends(there, f.two))) restore<2>(f, next.line);
      return static_cast<uint32_t>(n);
    }
  }
  uint64_t run[kMaxFingerprintSlots + 1];
  const uint32_t n = find_run<Level>(f, line, quotient, run, most + 1);
  if (n > most) return n;
  for (uint32_t i = 0; i < n; ++i) {
    out[i] = static_cast<uint32_t>(run[i]);
    take_back<Level>(f, {line, quotient, out[i]});
  }
  return n;
}

// Brings back the runs that fit: the first that is not here, then the next.
template <uint32_t Level>
EVENBINS_NOINLINE void restore(const FingerprintView& f, uint64_t index) {
  uint64_t* line = line_at<Level>(f, index);
  const FingerprintShape& g = shape_at<Level>(f);
  for (;;) {
    const RunEnds ends = load_ends(line, g);
    const uint32_t here = ones(ends), used = used_slots(ends), room = g.slots - used;
    const uint64_t occupied = load_occupied(line, g);
    if (room == 0 || ones(occupied) <= here) return;
    const uint32_t quotient = lowest(nth_bit(occupied, here, f.slow_pdep));
    uint32_t run[kMaxFingerprintSlots];
    const uint32_t n = take_run<Level>(f, index, quotient, run, room);
    if (n > room || n == 0) return;
    line_calls(g).append(line, g, used, run, n, ends | RunEnds{1} << (used + n - 1));
  }
}

// Adds a fingerprint for which its line has no room.
template <uint32_t Level>
EVENBINS_NOINLINE void add_overflowing(const FingerprintView& f, const Cell& c) {
  uint64_t* line = line_at<Level>(f, c.line);
  const FingerprintShape& g = shape_at<Level>(f);
  const uint64_t occupied = load_occupied(line, g);
  const RunEnds ends = load_ends(line, g);
  const uint32_t here = ones(ends), rank = ones(occupied & mask_of_bits(c.quotient));
  if (rank >= here) {  // its run is behind those that are here
    line[0] |= uint64_t{1} << c.quotient;
    return send_on<Level>(f, c);
  }
  // The last run leaves, which makes room, unless the fingerprint belongs to it. Its quotient stays occupied.
  const uint32_t last = lowest(nth_bit(occupied, here - 1, f.slow_pdep)), used = used_slots(ends);
  const RunEnds others = ends & ~(RunEnds{1} << (used - 1));
  const uint32_t first = used_slots(others);
  uint32_t run[kMaxFingerprintSlots];
  for (uint32_t slot = first; slot < used; ++slot) run[slot - first] = load_slot(line, g, slot);
  line_calls(g).cut(line, g, first, others);
  if (c.quotient == last)
    send_on<Level>(f, c);
  else
    line_calls(g).insert(line, g, c.quotient, c.remainder, f.slow_pdep);
  for (uint32_t i = 0; i < used - first; ++i) send_on<Level>(f, {c.line, last, run[i]});
}

template <uint32_t Level>
void add_at(const FingerprintView& f, const Cell& c) {
  const FingerprintShape& g = shape_at<Level>(f);
  if (!line_calls(g).insert(line_at<Level>(f, c.line), g, c.quotient, c.remainder, f.slow_pdep))
    add_overflowing<Level>(f, c);
}

// Removes a fingerprint whose run is not in its line.
template <uint32_t Level>
EVENBINS_NOINLINE bool remove_elsewhere(const FingerprintView& f, const Cell& c) {
  if (!take_back<Level>(f, c)) return false;
  uint64_t other;
  if (find_run<Level>(f, c.line, c.quotient, &other, 1) == 0)
    line_at<Level>(f, c.line)[0] &= ~(uint64_t{1} << c.quotient);
  restore<Level>(f, c.line);
  return true;
}

template <uint32_t Level>
bool remove_at(const FingerprintView& f, const Cell& c) {
  const FingerprintShape& g = shape_at<Level>(f);
  switch (line_calls(g).remove(line_at<Level>(f, c.line), g, c.quotient, c.remainder, f.slow_pdep)) {
    case Removal::absent: return false;
    case Removal::elsewhere: return remove_elsewhere<Level>(f, c);
    case Removal::makes_room: restore<Level>(f, c.line); return true;
    default: return true;
  }
}

// How often a fingerprint is in level 2 or behind it. `locked`: while other threads may add.
EVENBINS_NOINLINE uint64_t count_elsewhere(const FingerprintView& f, const Cell& c, bool locked) {
  const FingerprintKey key = key_of_first(f, c);
  const Cell next = cell_of_key(f, key);
  const int32_t found =
      line_calls(f.two).count(line_at<2>(f, next.line), f.two, next.quotient, next.remainder, f.slow_pdep);
  return found >= 0 ? static_cast<uint64_t>(found) : count_key(f, key, locked);
}

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

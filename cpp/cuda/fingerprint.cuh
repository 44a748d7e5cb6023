// Kernels of a fingerprint filter (fingerprint.hpp): look-ups, and lines from sorted fingerprints.
//
// Look-ups are those of blocked.cuh: the lines of 32 keys are fetched together, and each lane searches its own. The few
// keys whose run is not in its line read level 2, level 3 and the rest from the memory.
//
// Building. A level is a function of the multiset that reaches it, so all of its lines can be made at once from the
// sorted cells, each by a thread of its own. A cell is a number whose upper part is the line:
//
//     level 1   the fingerprint itself                               lines · quotients · 2^bits
//     level 2   line of level 2, quotient, remainder of level 2      2^(6 + two.bits) for each line
//     level 3   the same number: 16 lines of level 2 are a block     2^(10 + two.bits) for each block
//
//     sorted cells ──fill──▶ lines, and how many cells each of them sends on
//                    send──▶ these cells as the next level has them, in the order of the lines
//
// What level 3 sends on are fingerprints again: the rest.
#pragma once

#include "blocked.cuh"
#include "evenbins/fingerprint_cells.hpp"
#include "evenbins/fingerprint_place.hpp"

namespace evenbins::gpu {

inline constexpr uint32_t kViewBytes = 1024;
static_assert(sizeof(FingerprintView) <= kViewBytes);

__global__ void make_fingerprint_view(uint64_t* words, uint64_t lines, uint32_t bits, uint64_t quotients,
                                      uint64_t group, uint64_t limit, FingerprintView* out) {
  *out = fingerprint_view(lines, bits, quotients, group, limit, 0, words);
}

// Every block of threads reads the view at its start.
EVENBINS_INLINE void load_view(FingerprintView& f, const FingerprintView* from) {
  auto* to = reinterpret_cast<uint64_t*>(&f);
  for (uint32_t i = threadIdx.x; i < sizeof(FingerprintView) / 8; i += blockDim.x)
    to[i] = reinterpret_cast<const uint64_t*>(from)[i];
  __syncthreads();
}

// --- look-ups ----------------------------------------------------------------------------------------------

// The first of n ascending numbers for which reaches(number) is true; n if there is none.
template <typename Reaches>
EVENBINS_INLINE uint64_t first_of(const uint64_t* numbers, uint64_t n, const Reaches& reaches) {
  uint64_t first = 0;
  while (n > 0) {
    const uint64_t half = n / 2;
    if (reaches(numbers[first + half])) {
      n = half;
    } else {
      first += half + 1;
      n -= half + 1;
    }
  }
  return first;
}

template <typename Mask>
EVENBINS_INLINE uint32_t count_in_run(const uint64_t* line, const FingerprintShape& g, Mask run, uint32_t remainder) {
  uint32_t count = 0;
  for (; run != 0; run &= run - 1) count += load_slot(line, g, lowest(run)) == remainder;
  return count;
}

// How often a fingerprint is in level 2 or behind it.
EVENBINS_INLINE uint64_t count_elsewhere(const FingerprintView& f, const Cell& c) {
  const FingerprintKey key = key_of_first(f, c);
  const Cell next = cell_of_key(f, key);
  const uint64_t* line = line_at<2>(f, next.line);
  const LinePlaces<1>::Place at(line, f.two, next.quotient, false);  // no line of level 2 has more than 64 slots
  if (!at.is_elsewhere()) return count_in_run(line, f.two, at.run(), next.remainder);
  const Entries entries(f, key.block);
  if (!entries.may_miss(key.key)) return entries.count(key.key);
  const uint64_t fingerprint = fingerprint_of_key(f, key), n = f.state[2], *rest = rest_words(f);
  return entries.count(key.key) + first_of(rest, n, [=](uint64_t other) { return other > fingerprint; }) -
         first_of(rest, n, [=](uint64_t other) { return other >= fingerprint; });
}

// Lines lie 80 bytes apart, so that lanes which read the same part of their lines do not all use the same banks.
inline constexpr uint32_t kLineStride = 20;

// `Out` is uint8_t, for whether a key is in, or int64_t, for how often. Planes: 0 if lines may have more than 64 slots.
template <uint32_t Planes, typename Out, typename Keys>
__global__ void __launch_bounds__(256) fingerprint_count(const uint64_t*, const FingerprintView* view, const void* data,
                                                         const void* more, const KeyHash* hash, uint64_t n, Out* out) {
  __shared__ FingerprintView f;
  load_view(f, view);
  each_line<9, 1, kLineStride>(
      f.level1, f.lines, Keys(data, more, hash), n, [&](uint64_t i, uint64_t digest, const uint32_t* halves) {
        if (i >= n) return;
        const auto* line = reinterpret_cast<const uint64_t*>(halves);
        const FingerprintParts parts = fingerprint_parts(f, digest);
        const typename LinePlaces<Planes>::Place at(line, f.one, parts.quotient, false);
        const uint64_t count = at.is_elsewhere() ? count_elsewhere(f, {parts.line, parts.quotient, parts.remainder})
                                                 : count_in_run(line, f.one, at.run(), parts.remainder);
        store_once(out + i, static_cast<Out>(sizeof(Out) == 1 ? count != 0 : count));
      });
}

// --- fingerprints of keys, and those that a filter holds ----------------------------------------------------

template <typename Keys>
__global__ void __launch_bounds__(256)
    make_fingerprints(const uint64_t*, const FingerprintView* view, const void* data, const void* more,
                      const KeyHash* hash, uint64_t n, uint64_t* out) {
  __shared__ FingerprintView f;
  load_view(f, view);
  const Keys keys(data, more, hash);
  for (uint64_t i = thread_number(); i < n; i += thread_count())
    out[i] = fingerprint_of(f, fingerprint_parts(f, keys.digest(i)));
}

template <uint32_t Level>
struct Cells {
  const FingerprintView& f;

  EVENBINS_INLINE uint64_t lines() const {
    return Level == 1 ? f.lines : Level == 2 ? f.lines / f.group : f.lines / (16 * f.group);
  }
  EVENBINS_INLINE uint64_t line_of(uint64_t cell) const {
    return Level == 1 ? (cell >> f.one.bits) / f.quotients : cell >> (f.two.bits + (Level == 2 ? 6 : 10));
  }
  // Quotient and remainder in one number.
  EVENBINS_INLINE uint64_t slot_of(uint64_t line, uint64_t cell) const {
    return Level == 1 ? cell - (line * f.quotients << f.one.bits) : cell & mask_of_bits(f.two.bits + 6);
  }
  EVENBINS_INLINE FingerprintKey key_of(uint64_t cell) const {  // not of level 1
    return {cell >> (f.two.bits + 10), cell & mask_of_bits(f.two.bits + 10)};
  }
  // A cell that this level does not hold, as the next one has it.
  EVENBINS_INLINE uint64_t sent(uint64_t cell) const {
    if constexpr (Level == 1) {
      const FingerprintKey key = fingerprint_key(f, fingerprint_parts_of(f, cell));
      return (key.block << (f.two.bits + 10)) + key.key;
    }
    return Level == 2 ? cell : fingerprint_of_key(f, key_of(cell));
  }
};

// Which of n sorted cells are of a line.
struct CellRange {
  uint64_t first, last;
};
template <uint32_t Level>
EVENBINS_INLINE CellRange cells_of(const Cells<Level>& cells, const uint64_t* sorted, uint64_t n, uint64_t line) {
  const uint64_t first = first_of(sorted, n, [&](uint64_t cell) { return cells.line_of(cell) >= line; });
  uint64_t near = 64;  // mostly a line has fewer
  while (near < n - first && cells.line_of(sorted[first + near - 1]) == line) near *= 2;
  const uint64_t left = n - first < near ? n - first : near;
  return {first, first + first_of(sorted + first, left, [&](uint64_t cell) { return cells.line_of(cell) > line; })};
}

// Fills the lines of a level, which are empty, with sorted cells; sent[line]: how many cells it sends on.
template <uint32_t Level>
__global__ void __launch_bounds__(128)
    fill_lines(const FingerprintView* view, const uint64_t* sorted, uint64_t n, uint32_t* sent) {
  __shared__ FingerprintView f;
  __shared__ uint64_t made[128][9];  // nine words, so that lanes use different banks
  load_view(f, view);
  const Cells<Level> cells{f};
  const uint64_t lines = cells.lines();
  for (uint64_t line = thread_number(); line < lines; line += thread_count()) {
    const CellRange range = cells_of(cells, sorted, n, line);
    const uint64_t here = range.last - range.first;
    uint64_t held = 0;
    if constexpr (Level == 3) {
      Entries entries(f, line);
      held = here < entries.size() ? here : entries.size();
      for (uint32_t i = 0; i < held; ++i) entries.set(i, cells.key_of(sorted[range.last - 1 - i]).key + 1);
    } else if (here > 0) {
      uint64_t* to = made[threadIdx.x];
      for (uint32_t i = 0; i < 8; ++i) to[i] = 0;
      held = fill_line(to, shape_at<Level>(f), here,
                       [&](uint64_t i) { return cells.slot_of(line, sorted[range.first + i]); });
      for (uint32_t i = 0; i < 8; ++i) line_at<Level>(f, line)[i] = to[i];
    }
    sent[line] = static_cast<uint32_t>(here - held);
  }
}

// Writes what the lines of a level send on; ends[line]: of all up to and with this line, how many cells that are. A line
// holds its first cells; level 3 its last ones.
template <uint32_t Level>
__global__ void __launch_bounds__(128)
    send_cells(const FingerprintView* view, const uint64_t* sorted, uint64_t n, const uint32_t* ends, uint64_t* out) {
  __shared__ FingerprintView f;
  load_view(f, view);
  const Cells<Level> cells{f};
  const uint64_t lines = cells.lines();
  for (uint64_t line = thread_number(); line < lines; line += thread_count()) {
    const uint32_t start = line == 0 ? 0 : ends[line - 1], count = ends[line] - start;
    if (count == 0) continue;
    const CellRange range = cells_of(cells, sorted, n, line);
    const uint64_t from = Level == 3 ? range.first : range.last - count;
    for (uint32_t i = 0; i < count; ++i) out[start + i] = cells.sent(sorted[from + i]);
  }
}

// The fingerprints that the lines of a level hold: how many each line has, and then the fingerprints themselves.
template <uint32_t Level, typename Act>
EVENBINS_INLINE void each_fingerprint(const FingerprintView& f, uint64_t line, const Act& act) {
  if constexpr (Level == 3) {
    const Entries entries(f, line);
    for (uint32_t i = 0; i < entries.size() && entries.at(i) != 0; ++i)
      act(fingerprint_of_key(f, {line, entries.at(i) - 1}));
  } else {
    each_slot(line_at<Level>(f, line), shape_at<Level>(f), [&](uint32_t quotient, uint32_t remainder) {
      if constexpr (Level == 1)
        act(fingerprint_of(f, {line, quotient, remainder}));
      else
        act(fingerprint_of_key(f, key_of_cell(f, {line, quotient, remainder})));
    });
  }
}
template <uint32_t Level>
__global__ void __launch_bounds__(128) count_held(const FingerprintView* view, uint32_t* counts) {
  __shared__ FingerprintView f;
  load_view(f, view);
  const uint64_t lines = Cells<Level>{f}.lines();
  for (uint64_t line = thread_number(); line < lines; line += thread_count()) {
    uint32_t count = 0;
    each_fingerprint<Level>(f, line, [&](uint64_t) { ++count; });
    counts[line] = count;
  }
}
template <uint32_t Level>
__global__ void __launch_bounds__(128) write_held(const FingerprintView* view, const uint32_t* ends, uint64_t* out) {
  __shared__ FingerprintView f;
  load_view(f, view);
  const uint64_t lines = Cells<Level>{f}.lines();
  for (uint64_t line = thread_number(); line < lines; line += thread_count()) {
    uint64_t* to = out + (line == 0 ? 0 : ends[line - 1]);
    each_fingerprint<Level>(f, line, [&](uint64_t fingerprint) { *to++ = fingerprint; });
  }
}

// Of each line: the fingerprints that it holds, times 2^16, plus the runs that it does not hold.
template <uint32_t Level>
__global__ void __launch_bounds__(128) measure_lines(const FingerprintView* view, uint32_t* out) {
  __shared__ FingerprintView f;
  load_view(f, view);
  const uint64_t lines = Cells<Level>{f}.lines();
  for (uint64_t line = thread_number(); line < lines; line += thread_count()) {
    uint32_t held = 0, missing = 0;
    each_fingerprint<Level>(f, line, [&](uint64_t) { ++held; });
    if constexpr (Level != 3) {
      const uint64_t* words = line_at<Level>(f, line);
      missing = ones(load_occupied(words, shape_at<Level>(f))) - ones(load_ends(words, shape_at<Level>(f)));
    }
    out[line] = held << 16 | missing;
  }
}

}  // namespace evenbins::gpu

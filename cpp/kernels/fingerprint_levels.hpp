// What a line of a fingerprint filter cannot hold: levels 2 and 3 and the rest, as text for every kernel. All of it is
// rare: about one key in 25 of a full filter is not in its line, and one operation in three moves something here.
//
// Level 1 and level 2 have the same rules, so the same templates: a level sends single fingerprints on to the next, and
// asks it for all fingerprints of a run when there is room for them. One pointer leads to all of it (LevelCalls): with
// one to each operation on a line removals took 8 % longer.
#pragma once

#include <array>
#include <utility>

#include "evenbins/fingerprint_cells.hpp"
#include "fingerprint_line.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

// Prefetches the line of level 2 with the runs of a quotient of a line.
template <int ForWriting>
EVENBINS_INLINE void prefetch_next(const FingerprintView& f, uint64_t line, uint32_t quotient) {
  const uint64_t column = fingerprint_column(f, line);
  __builtin_prefetch(line_at<2>(f, (column & ~uint64_t{15}) + (column + quotient) % 16), ForWriting);
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

// Levels 1 and 2 of lines of some codes (fingerprint_line.hpp).
template <typename One, typename Two>
struct Levels {
  template <uint32_t Level>
  using Code = std::conditional_t<Level == 1, One, Two>;

  // The next level's part of a fingerprint that level `Level` does not hold.
  template <uint32_t Level>
  static void send_on(const FingerprintView& f, const Cell& c) {
    if constexpr (Level == 1)
      add_at<2>(f, cell_of_key(f, key_of_first(f, c)));
    else
      add_key(f, key_of_cell(f, c));
  }
  template <uint32_t Level>
  static bool take_back(const FingerprintView& f, const Cell& c) {
    if constexpr (Level == 1)
      return remove_at<2>(f, cell_of_key(f, key_of_first(f, c)));
    else
      return remove_key(f, key_of_cell(f, c));
  }

  // The remainders of a run that level `Level` does not hold, ascending: at most `most` of them.
  template <uint32_t Level>
  static uint32_t find_run(const FingerprintView& f, uint64_t line, uint32_t quotient, uint64_t* out, uint32_t most) {
    const uint32_t bits = shape_at<Level>(f).bits;
    const Cell c{line, quotient, 0};
    const FingerprintKey first = Level == 1 ? key_of_first(f, c) : key_of_cell(f, c);
    const uint64_t last = first.key + mask_of_bits(bits);
    uint32_t n = 0;
    if constexpr (Level == 1) {
      const Cell next = cell_of_key(f, first);
      const uint64_t* there = line_at<2>(f, next.line);
      const typename Two::Place at(there, f.two, next.quotient, f.slow_pdep);
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
  static uint32_t take_run(const FingerprintView& f, uint64_t line, uint32_t quotient, uint32_t* out, uint32_t most) {
    if constexpr (Level == 1) {
      const auto below = static_cast<uint32_t>(mask_of_bits(f.one.bits));
      const Cell next = cell_of_key(f, key_of_first(f, {line, quotient, 0}));
      uint64_t* there = line_at<2>(f, next.line);
      const typename Two::Place at(there, f.two, next.quotient, f.slow_pdep);
      if (!at.is_elsewhere()) {
        const uint32_t n =
            Two::take(there, f.two, at, next.quotient, next.remainder, next.remainder + below, out, most, f.slow_pdep);
        if (n > most) return n;
        for (uint32_t i = 0; i < n; ++i) out[i] &= below;
        if (ones(at.occupied) != ones(at.ends)) restore<2>(f, next.line);
        return n;
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
  EVENBINS_NOINLINE static void restore(const FingerprintView& f, uint64_t index) {
    using Mask = typename Code<Level>::Mask;
    uint64_t* line = line_at<Level>(f, index);
    const FingerprintShape& g = shape_at<Level>(f);
    const uint64_t occupied = load_occupied(line, g);
    for (;;) {
      const Mask ends = Code<Level>::ends_of(line, g);
      const uint32_t here = ones(ends), used = used_slots(ends), room = g.slots - used;
      if (room == 0 || ones(occupied) <= here) return;
      const uint32_t quotient = lowest(nth_bit(occupied, here, f.slow_pdep));
      uint32_t run[kMaxFingerprintSlots];
      const uint32_t n = take_run<Level>(f, index, quotient, run, room);
      if (n > room || n == 0) return;
      Code<Level>::append(line, g, used, run, n, ends | Mask{1} << (used + n - 1));
    }
  }

  // Adds a fingerprint for which its line has no room.
  template <uint32_t Level>
  EVENBINS_NOINLINE static void add_overflowing(const FingerprintView& f, const Cell& c) {
    using Mask = typename Code<Level>::Mask;
    uint64_t* line = line_at<Level>(f, c.line);
    const FingerprintShape& g = shape_at<Level>(f);
    const uint64_t occupied = load_occupied(line, g);
    const Mask ends = Code<Level>::ends_of(line, g);
    const uint32_t here = ones(ends), rank = ones(occupied & mask_of_bits(c.quotient));
    if (rank >= here) {  // its run is behind those that are here
      line[0] |= uint64_t{1} << c.quotient;
      return send_on<Level>(f, c);
    }
    // The last run leaves, which makes room, unless the fingerprint belongs to it. Its quotient stays occupied.
    const uint32_t last = lowest(nth_bit(occupied, here - 1, f.slow_pdep)), used = used_slots(ends);
    const Mask others = ends & ~(Mask{1} << (used - 1));
    const uint32_t first = used_slots(others);
    uint32_t run[kMaxFingerprintSlots];
    for (uint32_t slot = first; slot < used; ++slot) run[slot - first] = load_slot(line, g, slot);
    Code<Level>::cut(line, g, first, others);
    if (c.quotient == last)
      send_on<Level>(f, c);
    else
      Code<Level>::insert(line, g, place<Level>(f, c), c.quotient, c.remainder);
    for (uint32_t i = 0; i < used - first; ++i) send_on<Level>(f, {c.line, last, run[i]});
  }

  template <uint32_t Level>
  static void add_at(const FingerprintView& f, const Cell& c) {
    if (!Code<Level>::insert(line_at<Level>(f, c.line), shape_at<Level>(f), place<Level>(f, c), c.quotient,
                             c.remainder))
      add_overflowing<Level>(f, c);
  }

  // Removes a fingerprint whose run is not in its line.
  template <uint32_t Level>
  EVENBINS_NOINLINE static bool remove_elsewhere(const FingerprintView& f, const Cell& c) {
    if (!take_back<Level>(f, c)) return false;
    uint64_t others[2];  // gcc takes one for too few
    if (find_run<Level>(f, c.line, c.quotient, others, 1) == 0)
      line_at<Level>(f, c.line)[0] &= ~(uint64_t{1} << c.quotient);
    restore<Level>(f, c.line);
    return true;
  }

  template <uint32_t Level>
  static bool remove_at(const FingerprintView& f, const Cell& c) {
    switch (Code<Level>::remove(line_at<Level>(f, c.line), shape_at<Level>(f), place<Level>(f, c), c.quotient,
                                c.remainder)) {
      case Removal::absent: return false;
      case Removal::elsewhere: return remove_elsewhere<Level>(f, c);
      case Removal::makes_room: restore<Level>(f, c.line); return true;
      default: return true;
    }
  }

  // How often a fingerprint is in level 2 or behind it. `locked`: while other threads may add.
  static uint64_t count_elsewhere(const FingerprintView& f, const Cell& c, bool locked) {
    const FingerprintKey key = key_of_first(f, c);
    const Cell next = cell_of_key(f, key);
    const auto at = place<2>(f, next);
    if (at.is_elsewhere()) return count_key(f, key, locked);
    return ones(Two::find(line_at<2>(f, next.line), f.two, at.run(), next.remainder));
  }

 private:
  template <uint32_t Level>
  static typename Code<Level>::Place place(const FingerprintView& f, const Cell& c) {
    return {line_at<Level>(f, c.line), shape_at<Level>(f), c.quotient, f.slow_pdep};
  }
};

// What fingerprints that are not in their line need, for fingerprints of level 1.
struct LevelCalls {
  void (*add_overflowing)(const FingerprintView&, const Cell&);
  bool (*remove_at)(const FingerprintView&, const Cell&);
  bool (*remove_elsewhere)(const FingerprintView&, const Cell&);
  void (*restore)(const FingerprintView&, uint64_t line);
  uint64_t (*count_elsewhere)(const FingerprintView&, const Cell&, bool locked);
  uint32_t (*find_run)(const FingerprintView&, uint64_t line, uint32_t quotient, uint64_t* out, uint32_t most);
};

template <uint32_t Bits>
struct LevelsOfBits {
  template <uint32_t B>
  using LineOf = LineCode<B / 8, B % 8 != 0>;
  using Both = Levels<LineOf<Bits>, LineOf<Bits + 4>>;
  static constexpr LevelCalls calls = {
      &Both::template add_overflowing<1>, &Both::template remove_at<1>, &Both::template remove_elsewhere<1>,
      &Both::template restore<1>,         &Both::count_elsewhere,       &Both::template find_run<1>,
  };
};

// Of a filter whose slots have 4 to 28 bits.
EVENBINS_INLINE const LevelCalls& levels_of(const FingerprintView& f) {
  static constexpr auto all = []<size_t... I>(std::index_sequence<I...>) {
    return std::array{&LevelsOfBits<4 + I>::calls...};
  }(std::make_index_sequence<25>());
  return *all[f.one.bits - 4];
}

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

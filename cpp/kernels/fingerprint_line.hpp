// One line of a fingerprint filter, as text for every kernel: fingerprint.hpp in include/ says what a line is.
#pragma once

#include <type_traits>

#include "fingerprint_bytes.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

EVENBINS_INLINE uint32_t ones(uint64_t x) { return static_cast<uint32_t>(__builtin_popcountll(x)); }
EVENBINS_INLINE uint32_t ones(RunEnds x) {
  return ones(static_cast<uint64_t>(x)) + ones(static_cast<uint64_t>(x >> 64));
}
EVENBINS_INLINE uint32_t lowest(uint64_t x) { return static_cast<uint32_t>(__builtin_ctzll(x)); }  // not of 0
EVENBINS_INLINE uint32_t lowest(RunEnds x) {
  const auto low = static_cast<uint64_t>(x);
  return low != 0 ? lowest(low) : 64 + lowest(static_cast<uint64_t>(x >> 64));
}
EVENBINS_INLINE RunEnds nth_bit(RunEnds x, uint32_t n, bool slow_pdep) {
  const auto low = static_cast<uint64_t>(x), high = static_cast<uint64_t>(x >> 64);
  const uint32_t below = ones(low);
  return n < below ? RunEnds{nth_bit(low, n, slow_pdep)} : RunEnds{nth_bit(high, n - below, slow_pdep)} << 64;
}

// The low bits of all slots from `slot` on, by one slot up or down; the last one drops out, or becomes 0.
EVENBINS_INLINE void open_low_bits(uint64_t* line, const FingerprintShape& g, uint32_t slot) {
  const uint32_t x = g.low_bits;
  open_bits(line, x, g.low_at + (slot + 1) * x, g.low_at + g.slots * x);
}
EVENBINS_INLINE void close_low_bits(uint64_t* line, const FingerprintShape& g, uint32_t slot) {
  const uint32_t x = g.low_bits;
  close_bits(line, x, g.low_at + slot * x, g.low_at + g.slots * x);
}

enum class Removal : uint8_t { absent, removed, makes_room, elsewhere };

// Lines of a shape: Planes is that of the shape, and Low whether it has low bits. A line without byte planes may have
// more than 64 slots.
template <uint32_t Planes, bool Low>
struct LineCode {
  using Mask = std::conditional_t<Planes == 0, RunEnds, uint64_t>;

  EVENBINS_INLINE static Mask ends_of(const uint64_t* line, const FingerprintShape& g) {
    if constexpr (Planes == 0)
      return load_ends(line, g);
    else  // 53 slots at most: they lie in eight bytes from the first on
      return load_bits(line, g.quotients, g.slots);
  }
  EVENBINS_INLINE static void set_head(uint64_t* line, const FingerprintShape& g, uint64_t occupied, Mask ends) {
    if constexpr (Planes == 0) return store_head(line, g, occupied, ends);
    line[0] = (line[0] & ~g.head[0]) | occupied | static_cast<uint64_t>(ends) << 32 << (g.quotients - 32);
    line[1] = (line[1] & ~g.head[1]) | static_cast<uint64_t>(ends >> (64 - g.quotients));
  }

  // Where a quotient's run is. `start`: the first slot of the run, or where it would begin; 0 if the line does not reach
  // so far. `end`: behind its last slot, if it is occupied; 0 if the line does not hold it.
  struct Place {
    uint64_t occupied;
    Mask ends, start, end;
    bool is_occupied;

    EVENBINS_INLINE Place(const uint64_t* line, const FingerprintShape& g, uint32_t quotient, bool slow_pdep)
        : occupied(load_occupied(line, g)), ends(ends_of(line, g)), is_occupied((occupied >> quotient & 1) != 0) {
      const uint32_t rank = ones(occupied & ((uint64_t{1} << quotient) - 1));
      const Mask marks = 2 * ends + 1;
#if defined(__AVX512BW__)
      if constexpr (Planes != 0) {
        const uint64_t one = uint64_t{1} << rank;
        start = _pdep_u64(one, marks);
        end = _pdep_u64(2 * one, marks);
        return;
      }
#endif
      start = nth_bit(marks, rank, slow_pdep);
      const Mask behind = marks & -(2 * start);
      end = behind & -behind;
    }
    EVENBINS_INLINE bool is_elsewhere() const { return is_occupied && end == 0; }
    EVENBINS_INLINE Mask run() const { return is_occupied ? end - start : 0; }  // unless it is elsewhere
  };

  // The slots of a run that hold a remainder; how many hold a lesser one.
  EVENBINS_INLINE static Mask find(const uint64_t* line, const FingerprintShape& g, Mask run, uint32_t remainder) {
    Mask found = 0;
    if constexpr (Planes == 0 || !kFindsBytes) {
      for (; run != 0; run &= run - 1)
        if (load_slot(line, g, lowest(run)) == remainder) found |= run & -run;
      return found;
    } else {
      const uint32_t upper = Low ? remainder >> g.low_bits : remainder;
#pragma GCC unroll 4
      for (uint32_t p = 0; p < Planes; ++p)
        run &= find_equal(line, upper >> 8 * (Planes - 1 - p)) >> (g.plane_at + p * g.slots);
      if constexpr (!Low) return run;
      const uint32_t low = remainder & ((1u << g.low_bits) - 1);
      for (; run != 0; run &= run - 1)
        if (load_bits(line, g.low_at + lowest(run) * g.low_bits, g.low_bits) == low) found |= run & -run;
      return found;
    }
  }
  EVENBINS_INLINE static uint32_t count_less(const uint64_t* line, const FingerprintShape& g, Mask run,
                                             uint32_t remainder) {
    uint32_t count = 0;
    if constexpr (Planes == 0 || !kFindsBytes) {
      for (; run != 0; run &= run - 1) count += load_slot(line, g, lowest(run)) < remainder;
    } else {
      const uint32_t upper = Low ? remainder >> g.low_bits : remainder;
      Mask less = 0;
#pragma GCC unroll 4
      for (uint32_t p = 0; p < Planes; ++p) {
        const uint32_t byte = upper >> 8 * (Planes - 1 - p), at = g.plane_at + p * g.slots;
        less |= run & find_less(line, byte) >> at;
        if (p + 1 < Planes || Low) run &= find_equal(line, byte) >> at;
      }
      count = ones(less);
      if constexpr (Low) {
        const uint32_t low = remainder & ((1u << g.low_bits) - 1);
        for (; run != 0; run &= run - 1)
          count += load_bits(line, g.low_at + lowest(run) * g.low_bits, g.low_bits) < low;
      }
    }
    return count;
  }

  // False: the line is full, or does not reach so far, and has not changed.
  EVENBINS_INLINE static bool insert(uint64_t* line, const FingerprintShape& g, const Place& at, uint32_t quotient,
                                     uint32_t remainder) {
    const bool is_full = (at.ends >> (g.slots - 1) & 1) != 0;
    if (is_full || at.start == 0 || at.is_elsewhere()) [[unlikely]]
      return false;
    const uint32_t slot = lowest(at.start) + count_less(line, g, at.run(), remainder);
    open(line, g, slot);
    write(line, g, slot, remainder);
    // A run grows by a 0 at its start, wherever the new slot is; a new run is a 1 there.
    set_head(line, g, at.occupied | uint64_t{1} << quotient,
             at.ends + (at.ends & -at.start) + (at.is_occupied ? Mask{0} : at.start));
    return true;
  }

  EVENBINS_INLINE static Removal remove(uint64_t* line, const FingerprintShape& g, const Place& at, uint32_t quotient,
                                        uint32_t remainder) {
    if (at.is_elsewhere()) [[unlikely]]
      return Removal::elsewhere;
    const Mask run = at.run(), found = find(line, g, run, remainder);
    if (found == 0) return Removal::absent;
    close(line, g, lowest(found));
    const Mask ends = (at.ends & (at.start - 1)) | (at.ends >> 1 & -at.start);
    const uint64_t occupied = at.occupied & ~(uint64_t{(run & (run - 1)) == 0} << quotient);
    set_head(line, g, occupied, ends);
    return ones(occupied) == ones(ends) ? Removal::removed : Removal::makes_room;
  }

 private:
  EVENBINS_INLINE static uint64_t in_planes(const FingerprintShape& g, uint64_t slots) {
    uint64_t bytes = 0;
#pragma GCC unroll 4
    for (uint32_t p = 0; p < Planes; ++p) bytes |= slots << (g.plane_at + p * g.slots);
    return bytes;
  }
  EVENBINS_INLINE static void open(uint64_t* line, const FingerprintShape& g, uint32_t slot) {
    if constexpr (Planes != 0) open_bytes(line, in_planes(g, (uint64_t{1} << g.slots) - (uint64_t{2} << slot)));
    if constexpr (Low) open_low_bits(line, g, slot);
  }
  EVENBINS_INLINE static void close(uint64_t* line, const FingerprintShape& g, uint32_t slot) {
    if constexpr (Planes != 0) {
      const uint64_t last = uint64_t{1} << (g.slots - 1);
      close_bytes(line, in_planes(g, last - (uint64_t{1} << slot)), in_planes(g, last));
    }
    if constexpr (Low) close_low_bits(line, g, slot);
  }
  EVENBINS_INLINE static void write(uint64_t* line, const FingerprintShape& g, uint32_t slot, uint32_t remainder) {
    auto* bytes = reinterpret_cast<uint8_t*>(line) + g.plane_at + slot;
    const uint32_t upper = Low ? remainder >> g.low_bits : remainder;
#pragma GCC unroll 4
    for (uint32_t p = 0; p < Planes; ++p) bytes[p * g.slots] = static_cast<uint8_t>(upper >> 8 * (Planes - 1 - p));
    if constexpr (Low) store_bits(line, g.low_at + slot * g.low_bits, g.low_bits, remainder & ((1u << g.low_bits) - 1));
  }
};

// The same behind pointers, for lines that are rarely touched.
struct LineCalls {
  // -1: elsewhere.
  int32_t (*count)(const uint64_t*, const FingerprintShape&, uint32_t quotient, uint32_t remainder, bool slow_pdep);
  bool (*insert)(uint64_t*, const FingerprintShape&, uint32_t quotient, uint32_t remainder, bool slow_pdep);
  Removal (*remove)(uint64_t*, const FingerprintShape&, uint32_t quotient, uint32_t remainder, bool slow_pdep);
};

template <uint32_t Planes, bool Low>
struct LineCallsOf {
  using Code = LineCode<Planes, Low>;
  static int32_t count(const uint64_t* line, const FingerprintShape& g, uint32_t q, uint32_t r, bool slow) {
    const typename Code::Place at(line, g, q, slow);
    return at.is_elsewhere() ? -1 : static_cast<int32_t>(ones(Code::find(line, g, at.run(), r)));
  }
  static bool insert(uint64_t* line, const FingerprintShape& g, uint32_t q, uint32_t r, bool slow) {
    return Code::insert(line, g, typename Code::Place(line, g, q, slow), q, r);
  }
  static Removal remove(uint64_t* line, const FingerprintShape& g, uint32_t q, uint32_t r, bool slow) {
    return Code::remove(line, g, typename Code::Place(line, g, q, slow), q, r);
  }
  static constexpr LineCalls calls = {count, insert, remove};
};

const LineCalls& line_calls(const FingerprintShape& g) {
  static constexpr const LineCalls* all[] = {
      nullptr,
      &LineCallsOf<0, true>::calls,
      &LineCallsOf<1, false>::calls,
      &LineCallsOf<1, true>::calls,
      &LineCallsOf<2, false>::calls,
      &LineCallsOf<2, true>::calls,
      &LineCallsOf<3, false>::calls,
      &LineCallsOf<3, true>::calls,
      &LineCallsOf<4, false>::calls,
  };
  return *all[2 * g.planes + (g.low_bits != 0)];
}

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

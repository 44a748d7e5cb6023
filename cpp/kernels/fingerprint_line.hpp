// One line of a fingerprint filter, as text for every kernel: fingerprint.hpp in include/ says what a line is.
#pragma once

#include "evenbins/fingerprint_place.hpp"
#include "fingerprint_bytes.hpp"
#if defined(__AVX512VBMI__)
#include "fingerprint_vector.hpp"
#endif

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

// The low bits of all slots from `slot` on, by one slot up or down; the last one drops out, or becomes 0.
EVENBINS_INLINE void open_low_bits(uint64_t* line, const FingerprintShape& g, uint32_t slot) {
  const uint32_t x = g.low_bits;
  open_bits(line, x, g.low_at + (slot + 1) * x, g.low_at + g.slots * x);
}
EVENBINS_INLINE void close_low_bits(uint64_t* line, const FingerprintShape& g, uint32_t slot) {
  const uint32_t x = g.low_bits;
  close_bits(line, x, g.low_at + slot * x, g.low_at + g.slots * x);
}

// Lines of a shape: Planes is that of the shape, and Low whether it has low bits.
template <uint32_t Planes, bool Low>
struct WordCode : LinePlaces<Planes> {
  using typename LinePlaces<Planes>::Mask;
  using typename LinePlaces<Planes>::Place;
  using LinePlaces<Planes>::set_head;

  // The slots of a run that hold a remainder; how many hold a lesser one.
  EVENBINS_INLINE static Mask find(const uint64_t* line, const FingerprintShape& g, Mask run, uint32_t remainder) {
    Mask found = 0;
    if constexpr (Planes == 0 || !kFindsBytes) {
      for (; run != 0; run &= run - 1)
        if (load_slot(line, g, lowest(run)) == remainder) found |= run & -run;
      return found;
    } else {
      const uint32_t upper = Low ? remainder >> g.low_bits : remainder;
      EVENBINS_UNROLL(4)
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
      EVENBINS_UNROLL(4)
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
    if (is_full || at.end == 0) [[unlikely]]
      return false;
    const uint32_t slot = lowest(at.start) + count_less(line, g, at.run(), remainder);
    open(line, g, slot);
    write(line, g, slot, remainder);
    set_head(line, g, at.occupied | uint64_t{1} << quotient, at.ends_with_slot());
    return true;
  }

  EVENBINS_INLINE static Removal remove(uint64_t* line, const FingerprintShape& g, const Place& at, uint32_t quotient,
                                        uint32_t remainder) {
    if (at.is_elsewhere()) [[unlikely]]
      return Removal::elsewhere;
    const Mask run = at.run(), found = find(line, g, run, remainder);
    if (found == 0) return Removal::absent;
    const Mask ends = at.ends_without(1);
    const uint64_t occupied = at.occupied & ~(uint64_t{(run & (run - 1)) == 0} << quotient);
    close(line, g, lowest(found));
    set_head(line, g, occupied, ends);
    return ones(occupied) == ones(ends) ? Removal::removed : Removal::makes_room;
  }

  // Takes the remainders first … last of a run out of a line that holds it, if there are at most `most`; returns how many
  // there are.
  static uint32_t take(uint64_t* line, const FingerprintShape& g, const Place& at, uint32_t quotient, uint32_t first,
                       uint32_t last, uint32_t* out, uint32_t most, bool slow_pdep) {
    uint32_t n = 0;
    for (Mask run = at.run(); run != 0; run &= run - 1) {
      const uint32_t remainder = load_slot(line, g, lowest(run));
      if (remainder < first || remainder > last) continue;
      if (n < most) out[n] = remainder;
      ++n;
    }
    if (n <= most)
      for (uint32_t i = 0; i < n; ++i) remove(line, g, Place(line, g, quotient, slow_pdep), quotient, out[i]);
    return n;
  }
  // Clears all slots from `first` on; fills n slots from `first` on. `ends` are the run ends then.
  static void cut(uint64_t* line, const FingerprintShape& g, uint32_t first, Mask ends) {
    for (uint32_t slot = first, used = used_slots(load_ends(line, g)); slot < used; ++slot)
      store_slot(line, g, slot, 0);
    store_ends(line, g, ends);
  }
  static void append(uint64_t* line, const FingerprintShape& g, uint32_t first, const uint32_t* remainders, uint32_t n,
                     Mask ends) {
    for (uint32_t i = 0; i < n; ++i) store_slot(line, g, first + i, remainders[i]);
    store_ends(line, g, ends);
  }

 private:
  EVENBINS_INLINE static uint64_t in_planes(const FingerprintShape& g, uint64_t slots) {
    uint64_t bytes = 0;
    EVENBINS_UNROLL(4)
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
    EVENBINS_UNROLL(4)
    for (uint32_t p = 0; p < Planes; ++p) bytes[p * g.slots] = static_cast<uint8_t>(upper >> 8 * (Planes - 1 - p));
    if constexpr (Low) store_bits(line, g.low_at + slot * g.low_bits, g.low_bits, remainder & ((1u << g.low_bits) - 1));
  }
};

#if defined(__AVX512VBMI__)
template <uint32_t Planes, bool Low>
using LineCode = std::conditional_t<Planes == 0, WordCode<Planes, Low>, VectorCode<Planes, Low>>;
#else
template <uint32_t Planes, bool Low>
using LineCode = WordCode<Planes, Low>;
#endif

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

// A line of a fingerprint filter in registers, for kernels that permute bytes (AVX-512 VBMI): one load, no loop and no
// branch, one store. Text for fingerprint_line.hpp.
//
//     bytes   the line
//     low     the low bits of slot i, as byte 64 − slots + i: where the last plane has its byte
//
// vpermb and vpmultishiftqb unpack the low bits of all slots at once; two multiply-adds and a shift pack them again.
// Then a new slot is a permutation of bytes, of both.
#pragma once

#include <immintrin.h>

#include "evenbins/fingerprint_place.hpp"
#include "fingerprint_bytes.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

template <uint32_t Planes, bool Low>
struct VectorLine {
  static_assert(Planes != 0);
  __m512i bytes, low;

  EVENBINS_INLINE VectorLine(const uint64_t* line, const FingerprintShape& g)
      : bytes(_mm512_loadu_si512(line)), low(_mm512_setzero_si512()) {
    if constexpr (Low) {
      const uint64_t x = g.low_bits;
      const __m512i eights = _mm512_permutexvar_epi8(_mm512_load_si512(g.low_from), bytes);
      const __m512i shifts = _mm512_set1_epi64(static_cast<int64_t>(x * 0x0706050403020100));
      const __m512i parts = _mm512_maskz_multishift_epi64_epi8(last_plane(g), shifts, eights);
      low = _mm512_and_si512(parts, _mm512_set1_epi8(static_cast<char>((1u << x) - 1)));
    }
  }

  // A remainder in every slot.
  struct Remainder {
    __m512i bytes, low;
    EVENBINS_INLINE Remainder(const FingerprintShape& g, uint32_t remainder) : low(_mm512_setzero_si512()) {
      const uint32_t upper = Low ? remainder >> g.low_bits : remainder;
      bytes = _mm512_set1_epi8(static_cast<char>(upper >> 8 * (Planes - 1)));
      EVENBINS_UNROLL(4)
      for (uint32_t p = 1; p < Planes; ++p)
        bytes =
            _mm512_mask_set1_epi8(bytes, ~uint64_t{0} << plane(g, p), static_cast<char>(upper >> 8 * (Planes - 1 - p)));
      if constexpr (Low) low = _mm512_set1_epi8(static_cast<char>(remainder & ((1u << g.low_bits) - 1)));
    }
  };

  // A bit for each slot that is equal, or less; behind the last slot anything.
  EVENBINS_INLINE uint64_t find_equal(const FingerprintShape& g, const Remainder& r) const {
    uint64_t equal = _mm512_cmpeq_epi8_mask(bytes, r.bytes);
    if constexpr (Planes == 1 && Low) return _mm512_mask_cmpeq_epi8_mask(equal, low, r.low) >> plane(g, 0);
    uint64_t slots = equal >> plane(g, 0);
    EVENBINS_UNROLL(4)
    for (uint32_t p = 1; p < Planes; ++p) slots &= equal >> plane(g, p);
    if constexpr (Low) slots &= uint64_t{_mm512_cmpeq_epi8_mask(low, r.low)} >> plane(g, Planes - 1);
    return slots;
  }
  EVENBINS_INLINE uint64_t find_less(const FingerprintShape& g, const Remainder& r) const {
    const uint64_t less = _mm512_cmplt_epu8_mask(bytes, r.bytes);
    if constexpr (Planes == 1 && !Low) return less >> plane(g, 0);
    const uint64_t equal = _mm512_cmpeq_epi8_mask(bytes, r.bytes);
    if constexpr (Planes == 1) return (less | _mm512_mask_cmplt_epu8_mask(equal, low, r.low)) >> plane(g, 0);
    uint64_t slots = less >> plane(g, 0), so_far = equal >> plane(g, 0);
    EVENBINS_UNROLL(4)
    for (uint32_t p = 1; p < Planes; ++p) {
      slots |= so_far & less >> plane(g, p);
      so_far &= equal >> plane(g, p);
    }
    if constexpr (Low) slots |= so_far & uint64_t{_mm512_cmplt_epu8_mask(low, r.low)} >> plane(g, Planes - 1);
    return slots;
  }

  // From here on `bytes` are the planes alone. `at`: the bit of a slot. Behind a new slot the last one drops out; without
  // one the last becomes 0.
  EVENBINS_INLINE void open(const FingerprintShape& g, uint64_t at, const Remainder& r) {
    const __m512i from = _mm512_mask_sub_epi8(each_byte(), in_planes(g, (uint64_t{1} << g.slots) - 2 * at), each_byte(),
                                              _mm512_set1_epi8(1));
    bytes = _mm512_maskz_permutexvar_epi8(planes(g), from, bytes);
    if constexpr (Low) low = _mm512_permutexvar_epi8(from, low);
    put(g, at, r);
  }
  EVENBINS_INLINE void close(const FingerprintShape& g, uint64_t at) {
    const uint64_t last = uint64_t{1} << (g.slots - 1);
    const __m512i from = _mm512_mask_add_epi8(each_byte(), in_planes(g, last - at), each_byte(), _mm512_set1_epi8(1));
    bytes = _mm512_maskz_permutexvar_epi8(planes(g) & ~in_planes(g, last), from, bytes);
    if constexpr (Low) low = _mm512_maskz_permutexvar_epi8(~uint64_t{0} >> 1, from, low);
  }
  // Keeps the slots in front of the bit `end` only.
  EVENBINS_INLINE void keep(const FingerprintShape& g, uint64_t end) {
    const uint64_t slots = in_planes(g, end - 1);
    bytes = _mm512_maskz_mov_epi8(slots, bytes);
    if constexpr (Low) low = _mm512_maskz_mov_epi8(slots, low);
  }
  EVENBINS_INLINE void put(const FingerprintShape& g, uint64_t at, const Remainder& r) {
    bytes = _mm512_mask_mov_epi8(bytes, in_planes(g, at), r.bytes);
    if constexpr (Low) low = _mm512_mask_mov_epi8(low, at << plane(g, Planes - 1), r.low);
  }

  EVENBINS_INLINE void store(uint64_t* line, const FingerprintShape& g, uint64_t occupied, uint64_t ends) const {
    const uint64_t first = occupied | ends << 32 << (g.quotients - 32), second = ends >> (64 - g.quotients);
    __m512i head = _mm512_maskz_set1_epi64(1, static_cast<int64_t>(first));
    head = _mm512_mask_set1_epi64(head, 2, static_cast<int64_t>(second));
    _mm512_storeu_si512(line,
                        Low ? _mm512_ternarylogic_epi64(head, bytes, packed(g), 0xFE) : _mm512_or_si512(head, bytes));
  }

 private:
  EVENBINS_INLINE static uint32_t plane(const FingerprintShape& g, uint32_t p) {
    return Planes == 1 || p + 1 == Planes ? 64 - g.slots : g.plane_at + p * g.slots;
  }
  EVENBINS_INLINE static uint64_t planes(const FingerprintShape& g) { return ~uint64_t{0} << g.plane_at; }
  EVENBINS_INLINE static uint64_t last_plane(const FingerprintShape& g) { return ~uint64_t{0} << plane(g, Planes - 1); }
  EVENBINS_INLINE static uint64_t in_planes(const FingerprintShape& g, uint64_t slots) {
    uint64_t at = 0;
    EVENBINS_UNROLL(4)
    for (uint32_t p = 0; p < Planes; ++p) at |= slots << plane(g, p);
    return at;
  }
  EVENBINS_INLINE static __m512i each_byte() {
    return _mm512_set_epi8(63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, 41,
                           40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18,
                           17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  }
  // The low bits, each where the line has it; zero elsewhere.
  EVENBINS_INLINE __m512i packed(const FingerprintShape& g) const {
    const uint32_t x = g.low_bits;
    const __m512i twos = _mm512_maddubs_epi16(_mm512_set1_epi16(static_cast<int16_t>(1 | 256 << x)), low);
    const __m512i fours = _mm512_madd_epi16(twos, _mm512_set1_epi32(static_cast<int32_t>(1 | 65536 << 2 * x)));
    __m512i eights = fours;
    if (x % 2 != 0) {
      const __m512i moved = _mm512_srl_epi64(fours, _mm_cvtsi32_si128(static_cast<int>(32 - 4 * x)));
      eights = _mm512_ternarylogic_epi64(_mm512_set1_epi64((int64_t{1} << 4 * x) - 1), fours, moved, 0xCA);
    }
    const uint64_t from = ~uint64_t{0} << (g.low_at / 8), end = uint64_t{1} << g.plane_at;
    return _mm512_maskz_permutexvar_epi8(from & (end - 1), _mm512_load_si512(g.low_to), eights);
  }
};

// Lines as WordCode has them.
template <uint32_t Planes, bool Low>
struct VectorCode : LinePlaces<Planes> {
  using typename LinePlaces<Planes>::Mask;
  using typename LinePlaces<Planes>::Place;
  using Line = VectorLine<Planes, Low>;
  using Remainder = typename Line::Remainder;

  EVENBINS_INLINE static uint64_t find(const uint64_t* line, const FingerprintShape& g, uint64_t run,
                                       uint32_t remainder) {
    return run & Line(line, g).find_equal(g, Remainder(g, remainder));
  }

  EVENBINS_INLINE static bool insert(uint64_t* line, const FingerprintShape& g, const Place& at, uint32_t quotient,
                                     uint32_t remainder) {
    const bool fits = (at.ends >> (g.slots - 1) & 1) == 0 && at.end != 0;
    Line v(line, g);
    const Remainder r(g, remainder);
    const uint64_t after = (at.run() & ~v.find_less(g, r)) | at.end;
    v.open(g, after & -after, r);
    if (fits) [[likely]]
      v.store(line, g, at.occupied | uint64_t{1} << quotient, _pdep_u64(at.ends, ~at.start) | (at.start & at.end));
    return fits;
  }
  EVENBINS_INLINE static Removal remove(uint64_t* line, const FingerprintShape& g, const Place& at, uint32_t quotient,
                                        uint32_t remainder) {
    const uint64_t run = at.end == 0 ? 0 : at.run();
    Line v(line, g);
    const uint64_t found = run & v.find_equal(g, Remainder(g, remainder));
    if (found == 0) [[unlikely]]
      return at.is_elsewhere() ? Removal::elsewhere : Removal::absent;
    v.close(g, found & -found);
    v.store(line, g, at.occupied & ~(uint64_t{(run & (run - 1)) == 0} << quotient), _pext_u64(at.ends, ~at.start));
    return static_cast<Removal>(1 + (ones(at.occupied) != ones(at.ends)));
  }

  static uint32_t take(uint64_t* line, const FingerprintShape& g, const Place& at, uint32_t quotient, uint32_t first,
                       uint32_t last, uint32_t* out, uint32_t most, bool) {
    Line v(line, g);
    const uint64_t run = at.run();
    uint64_t found = run & ~v.find_less(g, Remainder(g, first));
    if (uint64_t{last} + 1 < uint64_t{1} << g.bits) found &= v.find_less(g, Remainder(g, last + 1));
    const uint32_t n = ones(found);
    if (n > most || n == 0) return n;
    const uint32_t slot = lowest(found);
    for (uint32_t i = 0; i < n; ++i) {
      out[i] = load_slot(line, g, slot + i);
      v.close(g, found & -found);
    }
    v.store(line, g, at.occupied & ~(uint64_t{found == run} << quotient), at.ends_without(n));
    return n;
  }
  static void cut(uint64_t* line, const FingerprintShape& g, uint32_t first, uint64_t ends) {
    Line v(line, g);
    v.keep(g, uint64_t{1} << first);
    v.store(line, g, load_occupied(line, g), ends);
  }
  static void append(uint64_t* line, const FingerprintShape& g, uint32_t first, const uint32_t* remainders, uint32_t n,
                     uint64_t ends) {
    Line v(line, g);
    v.keep(g, uint64_t{1} << first);
    for (uint32_t i = 0; i < n; ++i) v.put(g, uint64_t{1} << (first + i), Remainder(g, remainders[i]));
    v.store(line, g, load_occupied(line, g), ends);
  }
};

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

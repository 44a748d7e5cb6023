// Small counters packed in 64-bit words, 2, 4, 8 or 16 bits each, the first in the lowest bits.
//
// All counters of a word are treated at once, by ordinary arithmetic: a step of +1 or −1 is a word with a one in the
// lowest bit of each counter that moves. A counter that is full sticks: it moves neither up nor down, so no carry
// ever leaves a counter. (Sticking down too is what keeps a filter without false negatives: a full counter may
// stand for more keys than it can say.)
#pragma once

#include <cstdint>

#include "evenbins/hash.hpp"
#include "evenbins/shared_words.hpp"

namespace evenbins {

inline constexpr uint64_t kNoCounter = ~uint64_t{0};  // a position that is to be passed over

template <uint32_t WidthLog>
struct Counters {
  static constexpr uint32_t kWidth = 1u << WidthLog, kWordLog = 6 - WidthLog;  // counters in a word, as a power of 2
  static constexpr uint64_t kMost = (uint64_t{1} << kWidth) - 1;
  static constexpr uint64_t kLowest = ~uint64_t{0} / kMost;  // the lowest bit of each counter

  // The lowest bit of each counter that is not zero, and of each that is full.
  EVENBINS_INLINE static constexpr uint64_t used(uint64_t word) {
    for (uint32_t shift = 1; shift < kWidth; shift *= 2) word |= word >> shift;
    return word & kLowest;
  }
  EVENBINS_INLINE static constexpr uint64_t full(uint64_t word) {
    for (uint32_t shift = 1; shift < kWidth; shift *= 2) word &= word >> shift;
    return word & kLowest;
  }
  EVENBINS_INLINE static constexpr uint64_t sum(uint64_t a, uint64_t b) {  // each counter stops at its most
    return halves(a, b) | halves(a >> kWidth, b >> kWidth) << kWidth;
  }

  EVENBINS_INLINE static uint64_t* word(uint64_t* words, uint64_t p) { return words + (p >> kWordLog); }
  EVENBINS_INLINE static constexpr uint32_t shift(uint64_t p) { return static_cast<uint32_t>(p << WidthLog) & 63; }
  EVENBINS_INLINE static uint64_t at(const uint64_t* words, uint64_t p) {
    return load_word(words + (p >> kWordLog)) >> shift(p) & kMost;
  }
  EVENBINS_INLINE static void raise(uint64_t* words, uint64_t p) {
    store_word(word(words, p), *word(words, p) + (uint64_t{at(words, p) != kMost} << shift(p)));
  }
  EVENBINS_INLINE static void lower(uint64_t* words, uint64_t p) {  // of one that is not zero
    store_word(word(words, p), *word(words, p) - (uint64_t{at(words, p) != kMost} << shift(p)));
  }

 private:
  // The sum of every other counter, each with an empty one above it that takes the carry.
  EVENBINS_INLINE static constexpr uint64_t halves(uint64_t a, uint64_t b) {
    constexpr uint64_t kEven = ~uint64_t{0} / (kMost + 2);
    const uint64_t total = (a & kEven) + (b & kEven), over = total >> kWidth & kLowest & kEven;
    return (total | over * kMost) & kEven;
  }
};

}  // namespace evenbins

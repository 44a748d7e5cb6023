// Words that look-ups read while a writer changes them (docs/concurrency.md).
//
// Look-ups of filters and sketches never wait for a writer. A bit that is set stays set, and a counter of a key that is
// in never falls below its count: whichever of two words a look-up gets, it finds every key that was in before it
// began. Their loads are relaxed atomic loads. Writers take turns, so that a read-modify-write is a load and a store.
//
// Two things are left to the processor, which reads and writes an aligned word whole, and are atomic only in a build
// for ThreadSanitizer, so that it can check everything else without suppressions:
//   - Stores: plain ones let loops over whole blocks vectorise, and `words[i] |= bit` be one instruction. With atomic
//     stores a standard filter in the cache adds 8 % slower, and a two-choice filter 20 %.
//   - The vector kernels load and store whole lines, for which there is no atomic instruction: that build runs the
//     generic kernel only (dispatch.cpp).
//
// Builtins instead of std::atomic_ref: a kernel must not leave inline functions of its instruction set to others.
#pragma once

#include <cstdint>

#include "evenbins/hash.hpp"

#if defined(__SANITIZE_THREAD__)
#define EVENBINS_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EVENBINS_THREAD_SANITIZER 1
#endif
#endif
#ifndef EVENBINS_THREAD_SANITIZER
#define EVENBINS_THREAD_SANITIZER 0
#endif

namespace evenbins {

EVENBINS_INLINE uint64_t load_word(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
EVENBINS_INLINE void store_word(uint64_t* word, uint64_t value) {
#if EVENBINS_THREAD_SANITIZER
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
#else
  *word = value;
#endif
}

EVENBINS_INLINE bool has_bit(const uint64_t* words, uint64_t position) {
  return (load_word(words + (position >> 6)) >> (position & 63) & 1) != 0;
}
EVENBINS_INLINE void set_bit(uint64_t* words, uint64_t position) {
  uint64_t* word = words + (position >> 6);
  store_word(word, *word | uint64_t{1} << (position & 63));
}
EVENBINS_INLINE void clear_bit(uint64_t* words, uint64_t position) {
  uint64_t* word = words + (position >> 6);
  store_word(word, *word & ~(uint64_t{1} << (position & 63)));
}
// Sets a bit and returns what it was.
EVENBINS_INLINE uint64_t exchange_bit(uint64_t* words, uint64_t position) {
  uint64_t* word = words + (position >> 6);
  const uint64_t before = *word;
  store_word(word, before | uint64_t{1} << (position & 63));
  return before >> (position & 63) & 1;
}

}  // namespace evenbins

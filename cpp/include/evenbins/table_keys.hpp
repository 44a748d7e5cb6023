// What a table stores of a key, and the 64-bit digest from which its buckets follow.
//
//     "int64", "uint64"    the integer itself, one word: told apart exactly
//     "digest"             str or bytes as XXH3-128 with the seed, two words: told apart but for a chance of n²/2^129;
//                          an integer as its 64-bit digest with the seed and its two's complement, told apart exactly
//                          from other integers (-1 and 2^64-1 differ in the first word), from text with that chance
//
// Everything about a key that a table needs follows from what it stores and the seed, so a resident can be moved, and
// a file checked, without the key's first form. Many keys are words in a row: key i begins at word i·key_words.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenbins/hash.hpp"
#include "evenbins/kernel.hpp"

namespace evenbins {

enum class KeyType : uint64_t { int64 = 1, uint64 = 2, digest = 3 };
// Always one word; `none` for a set, which has keys alone (the multilevel table's).
enum class ValueType : uint64_t { none = 0, int64 = 1, uint64 = 2, float64 = 3 };

struct StoredKey {
  uint64_t low = 0, high = 0;  // high: of digests alone, else 0
  bool operator==(const StoredKey&) const = default;
};

EVENBINS_INLINE constexpr uint32_t key_words(KeyType type) { return type == KeyType::digest ? 2 : 1; }
EVENBINS_INLINE constexpr uint32_t value_words(ValueType type) { return type == ValueType::none ? 0 : 1; }

// Names in numbers of a file; false for a number that is none.
EVENBINS_INLINE constexpr bool is_key_type(uint64_t number) { return number >= 1 && number <= 3; }
EVENBINS_INLINE constexpr bool is_value_type(uint64_t number) { return number >= 1 && number <= 3; }

struct KeyHash {
  IntHash ints;
  KeyType type;

  constexpr KeyHash(KeyType t, uint64_t seed) : ints(seed), type(t) {}

  // Integers: as evenbins.digest(key, seed). Digests: their low word, which is uniform already.
  EVENBINS_INLINE constexpr uint64_t digest(uint64_t low) const {
    if (type == KeyType::digest) return low;
    return ints.digest(low, type == KeyType::int64 && static_cast<int64_t>(low) < 0);
  }
  EVENBINS_INLINE constexpr uint64_t digest(const StoredKey& key) const { return digest(key.low); }
  // Of many, one after the other in `words`, by the kernel's loops.
  EVENBINS_INLINE void digests(const Kernel& k, const uint64_t* words, size_t n, uint64_t* out) const {
    switch (type) {
      case KeyType::int64: return k.digest_i64(ints, reinterpret_cast<const int64_t*>(words), n, out);
      case KeyType::uint64: return k.digest_u64(ints, words, n, out);
      case KeyType::digest:
        for (size_t i = 0; i < n; ++i) out[i] = words[2 * i];
    }
  }
};

}  // namespace evenbins

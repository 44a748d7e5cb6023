// A window filter (window.hpp) as its inner loops see it, and these loops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenbins/fingerprint_view.hpp"

namespace evenbins {

// Which ages are those of keys that have not expired. An age is the step in which a key was added, modulo a power of two.
struct LiveAges {
  uint32_t now, mask;  // the step of the last addition
  int64_t most;        // steps before it at which a key has not expired yet; -1: all have

  EVENBINS_INLINE uint32_t steps_since(uint32_t age) const { return (now - age) & mask; }
  EVENBINS_INLINE bool operator()(uint32_t age) const { return int64_t{steps_since(age)} <= most; }
};

struct WindowLoops {  // for one number of bits of a slot
  void (*contains_many)(const FingerprintView&, const LiveAges&, const uint64_t* digests, size_t n, uint8_t* out);
  // Adds keys now, or renews them. Returns how many it treated: all, or those before the first for which there was no
  // room. out[i] = 1 for those that were absent or had expired; it may be null.
  size_t (*add_many)(const FingerprintView&, const LiveAges&, const uint64_t* digests, size_t n, uint8_t* out);
  bool (*remove)(const FingerprintView&, uint64_t digest);
  // Removes what has expired from lines first … last−1; returns how much.
  uint64_t (*sweep)(const FingerprintView&, const LiveAges&, uint64_t first, uint64_t last);
};

}  // namespace evenbins

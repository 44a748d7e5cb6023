// A standard filter (bloom.hpp) as its inner loops see it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenbins/hash.hpp"

namespace evenbins {

struct StandardView {  // k positions anywhere in m bits
  uint64_t* words;
  uint64_t bits;
  uint32_t hashes;
  // Fewer hashes than positions (bloom.hpp): position i+1 is position i + step + extra[i] modulo `range`, and step
  // grows by a third hash if there is one. Null: every position has a hash of its own.
  const uint64_t* extra = nullptr;
  uint64_t range = 0;
  uint64_t stride = 0;  // position i is moved by i·stride: into its own part of the bits
  bool third = false;
};

// The positions of a key that has fewer hashes than positions, one after the other.
struct Progression {
  uint64_t position, step, third;

  EVENBINS_INLINE Progression(const StandardView& f, uint64_t digest)
      : position(mulhi(splitmix(digest, 0), f.range)),
        step(mulhi(splitmix(digest, 1), f.range)),
        third(f.third ? mulhi(splitmix(digest, 2), f.range) : 0) {}
  EVENBINS_INLINE void advance(const StandardView& f, uint32_t i) {  // from position i to i + 1
    position = add_mod(add_mod(position, step, f.range), f.extra[i], f.range);
    step = add_mod(step, third, f.range);
  }
};

}  // namespace evenbins

// A blocked filter (blocked.hpp) as its inner loops see it, and these loops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenbins/one_key.hpp"

namespace evenbins {

struct BlockedView {  // one block of 2^block_log bits for each key
  uint64_t* words;
  uint64_t blocks;
  uint32_t block_log;  // 8 or 9
  uint32_t hashes;
};

struct BlockedLoops {  // for one block size and number of hashes
  OneKey one;          // of a BlockedView still to be named
  void (*add_many)(const BlockedView&, const uint64_t* digests, size_t n);
  void (*add_new_many)(const BlockedView&, const uint64_t* digests, size_t n, uint8_t* out);
  void (*contains_many)(const BlockedView&, const uint64_t* digests, size_t n, uint8_t* out);
};

}  // namespace evenbins

// Digests of many keys, hashed by several threads: for calls whose other work must be done in the order of the keys.
#pragma once

#include <algorithm>
#include <cstdint>

#include "evenbins/parallel.hpp"
#include "evenbins/stretches.hpp"

namespace evenbins {

// Writes the digests of keys start … start+n−1. If a key has none, throws its BadKey; those before it are written.
inline void read_digests(const Digests& keys, uint64_t start, uint64_t n, uint64_t* out, uint32_t threads) {
  constexpr uint64_t kKeysOfThread = 8192;  // that pay for a thread
  threads = static_cast<uint32_t>(std::min<uint64_t>(threads, n / kKeysOfThread));
  if (threads < 2) return keys.read(start, n, out);
  const auto go_on = [] { return true; };
  for_stretches(n, threads, kKeysOfThread / 2, go_on,
                [&](uint64_t from, uint64_t count) { keys.read(start + from, count, out + from); });
}

}  // namespace evenbins

// Digests that several threads read: for look-ups, whose order does not matter, and for what is done in order afterwards.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "evenbins/parallel.hpp"
#include "evenbins/stretches.hpp"

namespace evenbins {

inline constexpr size_t kDigestBatch = 1024;                   // digests that stay in the first-level cache
inline constexpr uint64_t kDigestStretch = 64 * kDigestBatch;  // what a thread takes at a time
inline constexpr uint64_t kKeysPerThread = 8 * kDigestBatch;   // that pay for a thread

// Whole batches, several for each thread where there are as many.
inline uint64_t digest_stretch(uint64_t size, uint32_t threads) {
  return std::clamp<uint64_t>(size / (uint64_t{4} * threads), kDigestBatch, kDigestStretch) / kDigestBatch *
         kDigestBatch;
}

// Calls ask(start, n, digests) for batches of all keys, on several threads and in no order. Returns how many keys were
// asked for: all, unless the pulse stopped it. Throws what `ask` threw, or BadKey, for the first such key.
template <typename Ask>
uint64_t for_digests(const Digests& keys, uint32_t threads, const Pulse& pulse, const Ask& ask) {
  const uint64_t size = keys.size();
  threads = static_cast<uint32_t>(std::clamp<uint64_t>(size / kKeysPerThread, 1, threads));
  const uint64_t stretch = digest_stretch(size, threads);
  return for_stretches(size, threads, stretch, pulse, [&](uint64_t start, uint64_t count) {
    uint64_t digests[kDigestBatch];
    for (const uint64_t end = start + count; start < end; start += kDigestBatch) {
      const size_t n = std::min<uint64_t>(kDigestBatch, end - start);
      keys.read(start, n, digests);
      ask(start, n, digests);
    }
  });
}

// Reads the digests of keys start … start+n−1 by several threads. If a key has none, throws its BadKey; those before it
// are there.
inline void read_digests(const Digests& keys, uint64_t start, uint64_t n, uint64_t* out, uint32_t threads) {
  threads = static_cast<uint32_t>(std::min<uint64_t>(threads, n / kKeysPerThread));
  if (threads < 2) return keys.read(start, n, out);
  const auto go_on = [] { return true; };
  for_stretches(n, threads, digest_stretch(n, threads), go_on,
                [&](uint64_t first, uint64_t count) { keys.read(start + first, count, out + first); });
}

// The same, with a pulse. Returns how many can be used, the first ones: all;
// those before a bad key, which is then in `bad`; or none, if the pulse stopped it (`stopped`).
inline uint64_t read_digests(const Digests& keys, uint64_t start, uint64_t n, uint64_t* out, uint32_t threads,
                             const Pulse& pulse, std::optional<BadKey>& bad, bool& stopped) {
  threads = static_cast<uint32_t>(std::clamp<uint64_t>(n / kKeysPerThread, 1, threads));
  try {
    const auto read = [&](uint64_t first, uint64_t count) { keys.read(start + first, count, out + first); };
    if (threads > 1) {
      stopped = for_stretches(n, threads, digest_stretch(n, threads), pulse, read) < n;
    } else {
      stopped = !pulse();
      if (!stopped) read(0, n);
    }
  } catch (const BadKey& error) {
    bad = error;
    return error.index - start;
  }
  return stopped ? 0 : n;
}

}  // namespace evenbins

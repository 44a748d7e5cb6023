// Keys in the memory of the GPU, and their digests: integers of every width, digests, strings as Arrow lays them out.
#pragma once

#include "device.cuh"
#include "evenbins/xxh3_long.hpp"

namespace evenbins::gpu {

// What a digest depends on apart from the key; made once for each filter, by the device.
struct KeyHash {
  IntHash integers;
  uint64_t seed;
};

template <typename T>
struct Integers {
  const T* keys;
  IntHash hash;

  EVENBINS_INLINE Integers(const void* data, const void*, const KeyHash* h)
      : keys(static_cast<const T*>(data)), hash(h->integers) {}
  EVENBINS_INLINE uint64_t digest(uint64_t i) const {
    const T key = load_once(keys + i);
    return hash.digest(static_cast<uint64_t>(key), key < T{1} && key != 0);
  }
};

struct Digests {
  const uint64_t* digests;

  EVENBINS_INLINE Digests(const void* data, const void*, const KeyHash*)
      : digests(static_cast<const uint64_t*>(data)) {}
  EVENBINS_INLINE uint64_t digest(uint64_t i) const { return load_once(digests + i); }
};

// Key i has the bytes from offsets[i] to offsets[i + 1].
template <typename Offset>
struct Strings {
  const uint8_t* bytes;
  const Offset* offsets;
  uint64_t seed;

  EVENBINS_INLINE Strings(const void* data, const void* more, const KeyHash* h)
      : bytes(static_cast<const uint8_t*>(data)), offsets(static_cast<const Offset*>(more)), seed(h->seed) {}
  EVENBINS_INLINE uint64_t digest(uint64_t i) const {
    const Offset first = offsets[i];
    return xxh3_64(bytes + first, static_cast<size_t>(offsets[i + 1] - first), seed);
  }
};

__global__ void make_key_hash(uint64_t seed, KeyHash* out) { *out = {IntHash(seed), seed}; }

// The digests themselves, for what needs them more than once.
template <typename Keys>
__global__ void make_digests(const void* data, const void* more, const KeyHash* hash, uint64_t n, uint64_t* out) {
  const Keys keys(data, more, hash);
  for (uint64_t i = thread_number(); i < n; i += thread_count()) out[i] = keys.digest(i);
}

}  // namespace evenbins::gpu

// Kernels of a standard filter (bloom.hpp): k positions anywhere in its bits.
#pragma once

#include "evenbins/standard_view.hpp"
#include "keys.cuh"

namespace evenbins::gpu {

// Calls f(position) for each position of the key until it answers false; true if it never did.
template <typename F>
EVENBINS_INLINE bool each_position(const StandardView& f, uint64_t digest, F&& act) {
  if (f.extra == nullptr) {
    for (uint32_t i = 0; i < f.hashes; ++i)
      if (!act(mulhi(splitmix(digest, i), f.bits))) return false;
    return true;
  }
  Progression key(f, digest);
  for (uint32_t i = 0; i < f.hashes; ++i) {
    if (!act(key.position + i * f.stride)) return false;
    key.advance(f, i);
  }
  return true;
}

EVENBINS_INLINE bool reads_bit(const uint64_t* words, uint64_t position) {
  return (__ldg(reinterpret_cast<const uint32_t*>(words) + (position >> 5)) >> (position & 31) & 1) != 0;
}

template <typename Keys>
__global__ void __launch_bounds__(256) standard_add(uint64_t* words, uint64_t bits, uint32_t hashes, const void* data,
                                                    const void* more, const KeyHash* hash, uint64_t n) {
  const Keys keys(data, more, hash);
  const StandardView f{words, bits, hashes};
  for (uint64_t i = thread_number(); i < n; i += thread_count())
    each_position(f, keys.digest(i), [&](uint64_t p) {
      set_bits(reinterpret_cast<uint32_t*>(words) + (p >> 5), 1u << (p & 31));
      return true;
    });
}

// A lane reads the bits of its key one after the other, and stops at the first that is not set: an absent key needs
// about two reads. Then it takes the next key of its warp's tile, so that none is idle while the others read on. Enough
// threads run at once to keep the memory busy. Tried and dropped: a thread that strides over the keys by itself, whose
// warp waits for the slowest of its lanes (absent keys 17.6 instead of 18.2 G/s in 4 GiB on an H200).
inline constexpr uint32_t kQueue = 256;  // keys of a tile
template <typename Keys>
__global__ void __launch_bounds__(256)
    standard_contains(const uint64_t* words, uint64_t bits, uint32_t hashes, const void* data, const void* more,
                      const KeyHash* hash, uint64_t n, uint8_t* out) {
  const Keys keys(data, more, hash);
  __shared__ uint64_t digests[256 / kWarp][kQueue];
  __shared__ uint8_t answers[256 / kWarp][kQueue];
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * (256 / kWarp) * kQueue;
  for (uint64_t first = (static_cast<uint64_t>(blockIdx.x) * (256 / kWarp) + warp) * kQueue; first < n; first += step) {
    const uint32_t size = n - first < kQueue ? static_cast<uint32_t>(n - first) : kQueue;
    for (uint32_t i = lane; i < size; i += kWarp) digests[warp][i] = keys.digest(first + i);
    __syncwarp();
    uint32_t next = kWarp, mine = lane, at = 0;
    uint64_t digest = mine < size ? digests[warp][mine] : 0;
    while (true) {
      const bool busy = mine < size;
      if (__ballot_sync(kAllLanes, busy) == 0) break;
      bool done = false;
      if (busy) {
        const bool set = reads_bit(words, mulhi(splitmix(digest, at), bits));
        ++at;
        done = !set || at == hashes;
        if (done) answers[warp][mine] = static_cast<uint8_t>(set);
      }
      const uint32_t finished = __ballot_sync(kAllLanes, done);
      if (done) {
        mine = next + static_cast<uint32_t>(__popc(finished & ((1u << lane) - 1)));
        digest = mine < size ? digests[warp][mine] : 0;
        at = 0;
      }
      next += static_cast<uint32_t>(__popc(finished));
    }
    __syncwarp();
    for (uint32_t i = lane; i < size; i += kWarp) store_once(out + first + i, answers[warp][i]);
    __syncwarp();
  }
}

// --- keys that are new ---------------------------------------------------------------------------------------
//
// A key is new if a bit of it is set neither in the filter as it was nor by a key before it: if it is the first of all
// keys to have some bit that was not set. So the order of the keys is needed only to find, for each such bit, the lowest
// number of a key that has it, and that is a minimum, which may be taken in any order. A table with open addressing has
// it: an entry is the position above the key's number, so that the least entry of a position is the one wanted.
// Three kernels, one after the other: claim, decide, add.

inline constexpr uint32_t kNumberBits = 24;
inline constexpr uint64_t kNoClaim = ~uint64_t{0};

EVENBINS_INLINE uint64_t claim_slot(uint64_t position, uint64_t slots) { return mix(position) & (slots - 1); }

template <typename Keys>
__global__ void __launch_bounds__(256)
    standard_new_claim(const uint64_t* words, uint64_t bits, uint32_t hashes, const void* data, const void* more,
                       const KeyHash* hash, uint64_t n, uint64_t* claims, uint64_t slots, uint8_t*) {
  const Keys keys(data, more, hash);
  const StandardView f{const_cast<uint64_t*>(words), bits, hashes};
  for (uint64_t i = thread_number(); i < n; i += thread_count())
    each_position(f, keys.digest(i), [&](uint64_t p) {
      if (reads_bit(words, p)) return true;
      const unsigned long long mine = p << kNumberBits | i;
      for (uint64_t slot = claim_slot(p, slots);; slot = (slot + 1) & (slots - 1)) {
        auto* entry = reinterpret_cast<unsigned long long*>(claims + slot);
        const unsigned long long found = atomicCAS(entry, static_cast<unsigned long long>(kNoClaim), mine);
        if (found == kNoClaim) return true;
        if (found >> kNumberBits == p) {
          atomicMin(entry, mine);
          return true;
        }
      }
    });
}

template <typename Keys>
__global__ void __launch_bounds__(256)
    standard_new_decide(const uint64_t* words, uint64_t bits, uint32_t hashes, const void* data, const void* more,
                        const KeyHash* hash, uint64_t n, uint64_t* claims, uint64_t slots, uint8_t* out) {
  const Keys keys(data, more, hash);
  const StandardView f{const_cast<uint64_t*>(words), bits, hashes};
  for (uint64_t i = thread_number(); i < n; i += thread_count()) {
    const bool known = each_position(f, keys.digest(i), [&](uint64_t p) {
      if (reads_bit(words, p)) return true;
      uint64_t slot = claim_slot(p, slots);
      while (claims[slot] >> kNumberBits != p) slot = (slot + 1) & (slots - 1);
      return (claims[slot] & ((uint64_t{1} << kNumberBits) - 1)) != i;
    });
    out[i] = known ? 0 : 1;
  }
}

}  // namespace evenbins::gpu

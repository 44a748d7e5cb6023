// Keys brought into the order of the memory that they touch.
//
//     keys ──hash──▶ digests in buckets ──▶ digests in regions, of 64 KiB of the filter ──▶ a region at a time, in shared memory
//                    (coarse)              (fine)
//
// A tile of keys is sorted by bucket in shared memory, space in each bucket is reserved by one atomic addition, and
// runs of keys are written together. The order of the keys within a bucket is that of the reservations, which nobody
// knows in advance; where order matters, each digest has its key's number beside it.
//
// Buckets have a fixed capacity, a little more than a uniform hash fills: `ends` says where. What does not fit, since
// some key came again and again, is added at once by atomic operations; or, where order matters, `starts` and `ends`
// come from exact counts (`count_buckets`), and everything fits.
#pragma once

#include "blocked.cuh"

namespace evenbins::gpu {

// A bucket is a power of two of blocks; `first` is subtracted for buckets within a bucket.
struct Buckets {
  uint64_t blocks;
  uint32_t shift, count;

  EVENBINS_INLINE uint32_t of(uint64_t digest) const { return static_cast<uint32_t>(mulhi(digest, blocks) >> shift); }
};

inline constexpr uint32_t kTileThreads = 512, kPerThread = 16, kTile = kTileThreads * kPerThread;

// Adds one key by one atomic operation per bit: for the few that have no place.
template <uint32_t BlockLog, uint32_t Hashes>
EVENBINS_INLINE void add_one(uint64_t* words, uint64_t blocks, uint64_t digest) {
  uint64_t* block = words + (mulhi(digest, blocks) << (BlockLog - 6));
  every_position(digest, 1u << BlockLog, Hashes, [&](uint32_t p) {
    set_bits(block + (p >> 6), uint64_t{1} << (p & 63));
    return true;
  });
}

// The input of a pass: keys, or the digests of an earlier pass's bucket, blockIdx.y.
template <typename Keys>
struct KeyInput {
  Keys keys;
  uint64_t n;
  EVENBINS_INLINE uint64_t size() const { return n; }
  EVENBINS_INLINE uint64_t digest(uint64_t i) const { return keys.digest(i); }
  EVENBINS_INLINE uint32_t number(uint64_t i) const { return static_cast<uint32_t>(i); }
  EVENBINS_INLINE uint32_t first_bucket() const { return 0; }
};
struct BucketInput {
  const uint64_t* digests;
  const uint32_t* numbers;
  uint64_t n;
  uint32_t first;
  EVENBINS_INLINE uint64_t size() const { return n; }
  EVENBINS_INLINE uint64_t digest(uint64_t i) const { return load_once(digests + i); }
  EVENBINS_INLINE uint32_t number(uint64_t i) const { return load_once(numbers + i); }
  EVENBINS_INLINE uint32_t first_bucket() const { return first; }
};

struct Pass {  // where a pass writes
  Buckets buckets;
  uint32_t* cursors;     // of all buckets
  const uint32_t* ends;  // of all buckets
  uint64_t* digests;
  uint32_t* numbers;
};

extern __shared__ __align__(16) unsigned char shared_memory[];

// One tile of input into `here` buckets from input.first_bucket() on.
template <bool Numbered, typename Input, typename Overflow>
EVENBINS_INLINE void scatter_tile(const Input& input, uint64_t tile, const Pass& out, uint32_t here,
                                  Overflow&& overflow) {
  auto* staged = reinterpret_cast<uint64_t*>(shared_memory);
  auto* staged_numbers = reinterpret_cast<uint32_t*>(staged + kTile);
  uint32_t* counts = staged_numbers + (Numbered ? kTile : 0);  // then where each bucket begins in the tile
  uint32_t* places = counts + here;                            // place in the output minus place in the tile
  __shared__ uint32_t warp_sums[kTileThreads / kWarp];
  const uint32_t first = input.first_bucket(), tid = threadIdx.x;
  for (uint32_t b = tid; b < here; b += kTileThreads) counts[b] = 0;
  __syncthreads();
  const uint64_t left = input.size() - tile * kTile;
  const uint32_t size = left < kTile ? static_cast<uint32_t>(left) : kTile;
  uint64_t digest[kPerThread];
  uint32_t rank[kPerThread];
#pragma unroll
  for (uint32_t u = 0; u < kPerThread; ++u) {
    const uint32_t i = u * kTileThreads + tid;
    if (i < size) {
      digest[u] = input.digest(tile * kTile + i);
      rank[u] = atomicAdd(counts + (out.buckets.of(digest[u]) - first), 1u);
    }
  }
  __syncthreads();
  // Exclusive sums of the counts, a contiguous piece for each thread.
  const uint32_t piece = (here + kTileThreads - 1) / kTileThreads, from = min(tid * piece, here),
                 to = min(from + piece, here);
  uint32_t sum = 0;
  for (uint32_t b = from; b < to; ++b) sum += counts[b];
  uint32_t before = sum;
  for (uint32_t d = 1; d < kWarp; d *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, before, d);
    if (tid % kWarp >= d) before += other;
  }
  if (tid % kWarp == kWarp - 1) warp_sums[tid / kWarp] = before;
  __syncthreads();
  before -= sum;
  for (uint32_t w = 0; w < tid / kWarp; ++w) before += warp_sums[w];
  for (uint32_t b = from; b < to; ++b) {
    const uint32_t count = counts[b];
    counts[b] = before;
    places[b] = (count == 0 ? 0 : atomicAdd(out.cursors + first + b, count)) - before;
    before += count;
  }
  __syncthreads();
#pragma unroll
  for (uint32_t u = 0; u < kPerThread; ++u) {
    const uint32_t i = u * kTileThreads + tid;
    if (i < size) {
      const uint32_t at = counts[out.buckets.of(digest[u]) - first] + rank[u];
      staged[at] = digest[u];
      if constexpr (Numbered) staged_numbers[at] = input.number(tile * kTile + i);
    }
  }
  __syncthreads();
  for (uint32_t i = tid; i < size; i += kTileThreads) {
    const uint64_t its = staged[i];
    const uint32_t b = out.buckets.of(its) - first, at = places[b] + i;
    if (at < out.ends[first + b]) {
      store_once(out.digests + at, its);
      if constexpr (Numbered) store_once(out.numbers + at, staged_numbers[i]);
    } else {
      overflow(its);
    }
  }
}

template <uint32_t BlockLog, uint32_t Hashes, bool Numbered, typename Keys>
__global__ void __launch_bounds__(kTileThreads)
    scatter_keys(uint64_t* words, uint64_t blocks, const void* data, const void* more, const KeyHash* hash, uint64_t n,
                 uint32_t shift, uint32_t buckets, uint32_t* cursors, const uint32_t* ends, uint64_t* digests,
                 uint32_t* numbers) {
  const Pass out{{blocks, shift, buckets}, cursors, ends, digests, numbers};
  const KeyInput<Keys> input{Keys(data, more, hash), n};
  scatter_tile<Numbered>(input, blockIdx.x, out, buckets,
                         [&](uint64_t digest) { add_one<BlockLog, Hashes>(words, blocks, digest); });
}

// From coarse buckets, one for each blockIdx.y, to fine ones, 2^fine_log in each.
template <uint32_t BlockLog, uint32_t Hashes, bool Numbered>
__global__ void __launch_bounds__(kTileThreads)
    scatter_buckets(uint64_t* words, uint64_t blocks, const uint32_t* starts, const uint32_t* coarse_cursors,
                    const uint32_t* coarse_ends, const uint64_t* in, const uint32_t* in_numbers, uint32_t fine_log,
                    uint32_t shift, uint32_t buckets, uint32_t* cursors, const uint32_t* ends, uint64_t* digests,
                    uint32_t* numbers) {
  const uint32_t coarse = blockIdx.y, start = starts[coarse];
  const uint64_t n = min(coarse_cursors[coarse], coarse_ends[coarse]) - start;
  if (static_cast<uint64_t>(blockIdx.x) * kTile >= n) return;
  const uint32_t first = coarse << fine_log, here = min(1u << fine_log, buckets - first);
  const Pass out{{blocks, shift, buckets}, cursors, ends, digests, numbers};
  const BucketInput input{in + start, in_numbers + (Numbered ? start : 0), n, first};
  scatter_tile<Numbered>(input, blockIdx.x, out, here,
                         [&](uint64_t digest) { add_one<BlockLog, Hashes>(words, blocks, digest); });
}

// Exact sizes of buckets, for a pass that must fit.
template <typename Input>
EVENBINS_INLINE void count_tile(const Input& input, uint64_t tile, const Buckets& buckets, uint32_t here,
                                uint32_t* counts) {
  auto* local = reinterpret_cast<uint32_t*>(shared_memory);
  const uint32_t first = input.first_bucket();
  for (uint32_t b = threadIdx.x; b < here; b += blockDim.x) local[b] = 0;
  __syncthreads();
  const uint64_t begin = tile * kTile, end = input.size() < begin + kTile ? input.size() : begin + kTile;
  for (uint64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    atomicAdd(local + (buckets.of(input.digest(i)) - first), 1u);
  __syncthreads();
  for (uint32_t b = threadIdx.x; b < here; b += blockDim.x)
    if (local[b] != 0) atomicAdd(counts + first + b, local[b]);
}
template <typename Keys>
__global__ void __launch_bounds__(kTileThreads)
    count_keys(uint64_t blocks, const void* data, const void* more, const KeyHash* hash, uint64_t n, uint32_t shift,
               uint32_t buckets, uint32_t* counts) {
  count_tile(KeyInput<Keys>{Keys(data, more, hash), n}, blockIdx.x, Buckets{blocks, shift, buckets}, buckets, counts);
}
__global__ void __launch_bounds__(kTileThreads)
    count_buckets(uint64_t blocks, const uint32_t* starts, const uint32_t* coarse_ends, const uint64_t* in,
                  uint32_t fine_log, uint32_t shift, uint32_t buckets, uint32_t* counts) {
  const uint32_t coarse = blockIdx.y, start = starts[coarse];
  const uint64_t n = coarse_ends[coarse] - start;
  if (static_cast<uint64_t>(blockIdx.x) * kTile >= n) return;
  const uint32_t first = coarse << fine_log, here = min(1u << fine_log, buckets - first);
  count_tile(BucketInput{in + start, nullptr, n, first}, blockIdx.x, Buckets{blocks, shift, buckets}, here, counts);
}

// --- a region at a time, in shared memory ------------------------------------------------------------------

inline constexpr uint32_t kRegionBytes = 65536, kRegionThreads = 512;

template <uint32_t BlockLog>
struct Region {
  static constexpr uint32_t kBlocks = kRegionBytes * 8 >> BlockLog;
  uint64_t first;    // block
  uint32_t vectors;  // of 16 bytes
  uint32_t* bits;    // in shared memory

  EVENBINS_INLINE Region(const uint64_t* words, uint64_t blocks, uint32_t number)
      : first(static_cast<uint64_t>(number) * kBlocks), bits(reinterpret_cast<uint32_t*>(shared_memory)) {
    const uint64_t left = blocks - first;
    vectors = (left < kBlocks ? static_cast<uint32_t>(left) : kBlocks) << (BlockLog - 7);
    const uint64_t* from = words + (first << (BlockLog - 6));
    for (uint32_t i = threadIdx.x; i < vectors; i += blockDim.x) copy16(bits + 4 * i, from + 2 * i);
    wait_for_copies();
    __syncthreads();
  }
  EVENBINS_INLINE void store(uint64_t* words) const {
    __syncthreads();
    uint64_t* to = words + (first << (BlockLog - 6));
    for (uint32_t i = threadIdx.x; i < vectors; i += blockDim.x)
      *reinterpret_cast<uint4*>(to + 2 * i) = *reinterpret_cast<const uint4*>(bits + 4 * i);
  }
  EVENBINS_INLINE uint32_t block(uint64_t digest, uint64_t blocks) const {  // within the region
    return static_cast<uint32_t>(mulhi(digest, blocks) - first);
  }
  EVENBINS_INLINE uint32_t* line(uint32_t block) const { return bits + block * Line<BlockLog>::kHalves; }
};

template <uint32_t BlockLog, uint32_t Hashes>
__global__ void __launch_bounds__(kRegionThreads)
    add_regions(uint64_t* words, uint64_t blocks, const uint32_t* starts, const uint32_t* cursors, const uint32_t* ends,
                const uint64_t* digests) {
  const uint32_t start = starts[blockIdx.x], end = min(cursors[blockIdx.x], ends[blockIdx.x]);
  if (start >= end) return;
  const Region<BlockLog> region(words, blocks, blockIdx.x);
  for (uint32_t i = start + threadIdx.x; i < end; i += kRegionThreads) {
    const uint64_t digest = load_once(digests + i);
    uint32_t* line = region.line(region.block(digest, blocks));
    every_position(digest, 1u << BlockLog, Hashes, [&](uint32_t p) {
      set_bits(line + (p >> 5), 1u << (p & 31));
      return true;
    });
  }
  region.store(words);
}

// Adds the keys that are not present, and says which; the answers are those of one key after the other.
//
// A key is new if a bit of it is set neither in the filter as it was nor by a key before it. In rounds: among the keys
// of a block that are still open, all that the block's bits cover by now are present: only keys with lower numbers have
// set bits so far, since of those that are not covered the one with the lowest number wins the round. It is new, and
// sets its bits. So a round needs no order of the keys in memory; each sets a bit in each block that has open keys
// left, and there are at most as many rounds as a block has bits, however often a key comes again.
//
// A claim has the round above the key's number, counted down: a claim of an earlier round never wins.
template <uint32_t BlockLog, uint32_t Hashes>
__global__ void __launch_bounds__(kRegionThreads)
    add_new_regions(uint64_t* words, uint64_t blocks, const uint32_t* starts, const uint32_t* ends, uint64_t* digests,
                    uint32_t* numbers, uint8_t* out) {
  uint32_t start = starts[blockIdx.x], open = ends[blockIdx.x] - start;
  if (open == 0) return;
  digests += start;
  numbers += start;
  const Region<BlockLog> region(words, blocks, blockIdx.x);
  auto* claims = reinterpret_cast<unsigned long long*>(shared_memory + kRegionBytes);
  __shared__ uint32_t kept;
  for (uint32_t b = threadIdx.x; b < Region<BlockLog>::kBlocks; b += kRegionThreads) claims[b] = ~0ull;
  // Moves the keys for which decide(digest, number, block) to the front of the list. A piece of the list is read by all
  // threads before any of them writes, and what is written is never ahead of what was read.
  const auto sift = [&](const auto& decide) {
    if (threadIdx.x == 0) kept = 0;
    __syncthreads();
    for (uint32_t piece = 0; piece < open; piece += kRegionThreads) {
      const uint32_t i = piece + threadIdx.x;
      const bool is_key = i < open;
      const uint64_t digest = is_key ? digests[i] : 0;
      const uint32_t number = is_key ? numbers[i] : 0;
      const bool stays = is_key && decide(digest, number, region.block(digest, blocks));
      __syncthreads();
      if (stays) {
        const uint32_t at = atomicAdd(&kept, 1u);
        digests[at] = digest;
        numbers[at] = number;
      }
      __syncthreads();
    }
    open = kept;
    __syncthreads();
  };
  for (uint32_t round = 0; open > 0; ++round) {
    const uint64_t tag = static_cast<uint64_t>(~round) << 32;
    // Which are covered? The others stay, and claim their block.
    sift([&](uint64_t digest, uint32_t number, uint32_t block) {
      const bool stays = !line_has<Hashes>(region.line(block), digest, 1u << BlockLog);
      if (stays)
        atomicMin(claims + block, static_cast<unsigned long long>(tag | number));
      else
        out[number] = 0;
      return stays;
    });
    // The winners are new; the losers stay.
    sift([&](uint64_t digest, uint32_t number, uint32_t block) {
      const bool stays = claims[block] != (tag | number);
      if (!stays) {
        line_set<Hashes>(region.line(block), digest, 1u << BlockLog);
        out[number] = 1;
      }
      return stays;
    });
  }
  region.store(words);
}

}  // namespace evenbins::gpu

// Which shard a key belongs to: a word of its own, cut into as many equal ranges as there are shards.
//
//     digest ──splitmix(·, kShardWord)──▶ word ──mulhi(·, shards)──▶ shard
//
// The word must not be the digest. A shard is an ordinary filter and takes the block mulhi(digest, blocks): had the
// shard been mulhi(digest, shards), all keys of a shard would share their leading bits and crowd into 1/shards of its
// blocks. kShardWord is an index that no filter, table, summary or ring draws from a digest.
//
// splitmix is a bijection of the digest, so words stand for digests; sorted words are the keys shard by shard, and
// within a shard in an order that has nothing to do with the blocks (cluster/dask.py fills shards in that order).
#pragma once

#include <cstdint>

#include "evenbins/hash.hpp"

namespace evenbins {

inline constexpr uint64_t kShardWord = 0x73686172;  // "shar"

EVENBINS_INLINE constexpr uint64_t shard_word(uint64_t digest) { return splitmix(digest, kShardWord); }

// The inverse of x ^ (x >> shift), for 22 <= shift.
EVENBINS_INLINE constexpr uint64_t unshift(uint64_t x, int shift) {
  return x ^ (x >> shift) ^ (2 * shift < 64 ? x >> (2 * shift) : 0);
}

EVENBINS_INLINE constexpr uint64_t digest_of_shard_word(uint64_t z) {
  z = unshift(z, 31) * 0x319642B2D24D8EC3;  // the inverses of mix's factors modulo 2^64
  z = unshift(z, 27) * 0x96DE1B173F119089;
  return unshift(z, 30) - (kShardWord + 1) * kPhi;
}

static_assert(digest_of_shard_word(shard_word(0)) == 0);
static_assert(digest_of_shard_word(shard_word(0x0123456789ABCDEF)) == 0x0123456789ABCDEF);

}  // namespace evenbins

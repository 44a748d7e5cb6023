// The inner loops that exist once for each instruction set, behind one table.
//
// Every kernel gives the same bits and the same answers; they differ in speed alone. The table is chosen
// once, at import (dispatch.cpp), or forced by EVENBINS_KERNEL. A kernel sees only plain views and plain
// arrays: it includes nothing that could leave code of its instruction set in a shared inline function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "evenbins/hash.hpp"

namespace evenbins {

struct StandardView {  // k positions anywhere in m bits
  uint64_t* words;
  uint64_t bits;
  uint32_t hashes;
};

struct BlockedView {  // one block of 2^block_log bits for each key
  uint64_t* words;
  uint64_t blocks;
  uint32_t block_log;  // 8 or 9
  uint32_t hashes;
};

// How a filter treats one key. `view` is what the functions were made for; its type is erased, so that a
// single look-up costs one indirect call and no detour.
struct OneKey {
  void (*add_to)(const void* view, uint64_t digest);
  bool (*contained_in)(const void* view, uint64_t digest);
  const void* view;

  EVENBINS_INLINE void add(uint64_t digest) const { add_to(view, digest); }
  EVENBINS_INLINE bool contains(uint64_t digest) const { return contained_in(view, digest); }
  OneKey of(const void* v) const { return {add_to, contained_in, v}; }
};

struct BlockedLoops {  // for one block size and number of hashes
  OneKey one;          // of a BlockedView still to be named
  void (*add_many)(const BlockedView&, const uint64_t* digests, size_t n);
  void (*contains_many)(const BlockedView&, const uint64_t* digests, size_t n, uint8_t* out);
};

inline constexpr size_t kSplitSlack = 8;  // words that `split` may write behind the end of its outputs

struct Kernel {
  const char* name;
  void (*digest_u64)(const IntHash&, const uint64_t* keys, size_t n, uint64_t* out);
  void (*digest_i64)(const IntHash&, const int64_t* keys, size_t n, uint64_t* out);
  void (*standard_positions)(const StandardView&, const uint64_t* digests, size_t n, uint64_t* out);
  void (*standard_add)(const StandardView&, const uint64_t* digests, size_t n);
  void (*standard_contains)(const StandardView&, const uint64_t* digests, size_t n, uint8_t* out);
  const BlockedLoops& (*blocked)(uint32_t block_log, uint32_t hashes);
  // Items below `bound` go to `low`, the others to `high`, both in order; returns how many went to `low`.
  size_t (*split)(const uint64_t* items, size_t n, uint64_t bound, uint64_t* low, uint64_t* high);
  // The raw limit of any one-read filter: hash, prefetch, read one 64-byte line a key, and nothing else.
  uint64_t (*line_reads)(const IntHash&, const uint64_t* words, uint64_t lines, const uint64_t* keys, size_t n);
};

// The kernel in force, and the ones this machine can run, slowest first.
const Kernel& kernel();
std::span<const Kernel* const> kernels();
// False when the machine has no kernel of that name.
bool use_kernel(const char* name);

}  // namespace evenbins

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

// A family's view of its memory, and its loops: <family>_view.hpp.
struct StandardView;
struct BlockedLoops;
struct BalancedLoops;
struct CountingLoops;
struct FingerprintLoops;
struct WindowLoops;
struct CountMinLoops;
struct TableLoops;
enum class Rule : uint8_t;

inline constexpr size_t kSplitSlack = 8;  // words that `split` may write behind the end of its outputs

struct Kernel {
  const char* name;
  void (*digest_u64)(const IntHash&, const uint64_t* keys, size_t n, uint64_t* out);
  void (*digest_i64)(const IntHash&, const int64_t* keys, size_t n, uint64_t* out);
  void (*standard_positions)(const StandardView&, const uint64_t* digests, size_t n, uint64_t* out);
  void (*standard_add)(const StandardView&, const uint64_t* digests, size_t n);
  void (*standard_add_new)(const StandardView&, const uint64_t* digests, size_t n, uint8_t* out);
  void (*standard_contains)(const StandardView&, const uint64_t* digests, size_t n, uint8_t* out);
  const BlockedLoops& (*blocked)(uint32_t block_log, uint32_t hashes);
  const BalancedLoops& (*balanced)(uint32_t block_log, Rule rule);
  const CountingLoops& (*counting)(uint32_t counter_bits, bool blocked);
  const FingerprintLoops& (*fingerprint)(uint32_t remainder_bits);
  // Items below `bound` go to `low`, the others to `high`, both in order; returns how many went to `low`.
  size_t (*split)(const uint64_t* items, size_t n, uint64_t bound, uint64_t* low, uint64_t* high);
  // The raw limit of any one-read filter: hash, prefetch, read one 64-byte line a key, and nothing else.
  uint64_t (*line_reads)(const IntHash&, const uint64_t* words, uint64_t lines, const uint64_t* keys, size_t n);
  // The same of one that changes the line: a word of it is written too.
  void (*line_updates)(const IntHash&, uint64_t* words, uint64_t lines, const uint64_t* keys, size_t n);
  const CountMinLoops& countmin;
  const TableLoops& (*multilevel)(uint32_t slots, uint32_t key_words, uint32_t value_words);
  // The number of the first of n keys in a row that is (low, high), or n. A key has 1 or 2 words; of one it is `low`.
  uint32_t (*find_key)(const uint64_t* keys, uint32_t key_words, uint32_t n, uint64_t low, uint64_t high);
  const WindowLoops& (*window)(uint32_t slot_bits);
};

// The kernel in force, and the ones this machine can run, slowest first.
const Kernel& kernel();
std::span<const Kernel* const> kernels();
// False when the machine has no kernel of that name.
bool use_kernel(const char* name);

}  // namespace evenbins

// The loops all kernels share, as text. A kernel's file defines EVENBINS_KERNEL_NAMESPACE, EVENBINS_KERNEL_NAME and the
// primitives below, and includes this; the compiler then builds (and vectorises) the loops for its instructions.
//
//     has_bits<block_log, scaled>(block, word, hashes, range)    whether a block of 2^block_log bits has the key's bits;
//     missing_bits<block_log, scaled>(block, word, hashes, range)  those that it does not have: bit i for position i
//     set_bits<block_log, scaled>(block, word, hashes, range)    sets them; scaled: positions among `range` bits only
//     mask_bits<block_log>(mask, word, hashes)                   the key's bits in an empty block
//     kMaskByWords                                               whether mask_bits writes word by word (mask.hpp)
//     split(items, n, bound, low, high)                          see Kernel
//     line_is_zero(line)                                         for the raw limit
//     match8(line, word)                                         a bit for each of eight words that equals the word
//     lower8(values, words, at)                                  values[i] = min(values[i], words[at[i]]) for i < 8
//
// A family's loops are a fragment of their own: standard.hpp, blocked.hpp, balanced.hpp, counting.hpp, multilevel.hpp,
// fingerprint.hpp, window.hpp, countmin.hpp, paged.hpp.
//
// Every loop that touches a filter runs behind its own prefetches: a random cache line takes 20 … 100 ns
// to arrive, and a core can wait for many of them at once.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "evenbins/kernel.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

// Templates, so that a primitive that is missing makes the concept false instead of breaking its definition.
template <typename Word>
concept HasBits = requires(const Word* block, Word word, uint32_t n) {
  { has_bits<8, false>(block, word, n, n) } -> std::same_as<bool>;
  { has_bits<9, true>(block, word, n, n) } -> std::same_as<bool>;
};
template <typename Word>
concept MissesBits = requires(const Word* block, Word word, uint32_t n) {
  { missing_bits<8, false>(block, word, n, n) } -> std::same_as<uint32_t>;
  { missing_bits<9, true>(block, word, n, n) } -> std::same_as<uint32_t>;
};
template <typename Word>
concept SetsBits = requires(Word* block, Word word, uint32_t n) {
  set_bits<8, false>(block, word, n, n);
  set_bits<9, true>(block, word, n, n);
};
template <typename Word>
concept MasksBits = requires(Word* mask, Word word, uint32_t n) {
  mask_bits<8>(mask, word, n);
  mask_bits<9>(mask, word, n);
};
template <typename Word>
concept Splits = requires(const Word* items, Word bound, Word* out) {
  { split(items, size_t{1}, bound, out, out) } -> std::same_as<size_t>;
};
template <typename Word>
concept ReadsLines = requires(const Word* line, Word word) {
  { line_is_zero(line) } -> std::same_as<uint64_t>;
  { match8(line, word) } -> std::same_as<uint32_t>;
};
template <typename Word>
concept LowersWords = requires(Word* values, const Word* words) { lower8(values, words, words); };
static_assert(HasBits<uint64_t>,
              "a kernel needs bool has_bits<block_log, scaled>(const uint64_t* block, uint64_t word, uint32_t hashes, "
              "uint32_t range)");
static_assert(MissesBits<uint64_t>,
              "a kernel needs uint32_t missing_bits<block_log, scaled>(const uint64_t* block, uint64_t word, uint32_t "
              "hashes, uint32_t range)");
static_assert(SetsBits<uint64_t>,
              "a kernel needs set_bits<block_log, scaled>(uint64_t* block, uint64_t word, uint32_t hashes, uint32_t "
              "range)");
static_assert(
    MasksBits<uint64_t>,
    "a kernel needs mask_bits<block_log>(uint64_t* mask, uint64_t word, uint32_t hashes): include mask.hpp, or "
    "define a faster one, and kMaskByWords");
static_assert(Splits<uint64_t>,
              "a kernel needs size_t split(const uint64_t* items, size_t n, uint64_t bound, uint64_t* low, uint64_t* "
              "high): include split.hpp, or define a faster one");
static_assert(ReadsLines<uint64_t>,
              "a kernel needs uint64_t line_is_zero(const uint64_t* line) and uint32_t match8(const uint64_t* line, "
              "uint64_t word)");
static_assert(LowersWords<uint64_t>,
              "a kernel needs lower8(uint64_t* values, const uint64_t* words, const uint64_t* at): include lower8.hpp, "
              "or define a faster one");

constexpr size_t kAhead = 24;      // lines in flight: 24 … 48 alike on Zen 4; 8 costs half as much again at 32 MiB
constexpr size_t kKeysAhead = 16;  // keys, where each has two lines or more in flight

void digest_u64(const IntHash& hash, const uint64_t* keys, size_t n, uint64_t* out) {
  const IntHash h = hash;
  for (size_t i = 0; i < n; ++i) out[i] = h.digest(keys[i], false);
}

void digest_i64(const IntHash& hash, const int64_t* keys, size_t n, uint64_t* out) {
  const IntHash h = hash;
  for (size_t i = 0; i < n; ++i) out[i] = h.digest(static_cast<uint64_t>(keys[i]), keys[i] < 0);
}

// act(line, digest) for the line of each key, the next ones on their way; nothing else: the raw limit of a filter.
template <int ForWriting, typename Word, typename Act>
EVENBINS_INLINE void each_line(const IntHash& hash, Word* words, uint64_t lines, const uint64_t* keys, size_t n,
                               Act&& act) {
  constexpr size_t kBatch = 1024;
  uint64_t digests[kBatch];
  const auto line = [&](size_t j) EVENBINS_INLINE_LAMBDA { return words + (mulhi(digests[j], lines) << 3); };
  for (; n > 0;) {
    const size_t g = n < kBatch ? n : kBatch;
    digest_u64(hash, keys, g, digests);
    for (size_t j = 0; j < kAhead && j < g; ++j) __builtin_prefetch(line(j), ForWriting);
    for (size_t j = 0; j < g; ++j) {
      if (j + kAhead < g) __builtin_prefetch(line(j + kAhead), ForWriting);
      act(line(j), digests[j]);
    }
    keys += g;
    n -= g;
  }
}

uint64_t line_reads(const IntHash& hash, const uint64_t* words, uint64_t lines, const uint64_t* keys, size_t n) {
  uint64_t zero_lines = 0;
  each_line<0>(hash, words, lines, keys, n,
               [&](const uint64_t* line, uint64_t) EVENBINS_INLINE_LAMBDA { zero_lines += line_is_zero(line); });
  return zero_lines;
}
void line_updates(const IntHash& hash, uint64_t* words, uint64_t lines, const uint64_t* keys, size_t n) {
  each_line<1>(hash, words, lines, keys, n,
               [](uint64_t* line, uint64_t digest) EVENBINS_INLINE_LAMBDA { line[digest & 7] ^= digest; });
}

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

#include "balanced.hpp"
#include "blocked.hpp"
#include "counting.hpp"
#include "countmin.hpp"
#include "fingerprint.hpp"
#include "multilevel.hpp"
#include "paged.hpp"
#include "positions.hpp"
#include "standard.hpp"
#include "window.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {

extern const Kernel table;
const Kernel table = {
    .name = EVENBINS_KERNEL_NAME,
    .digest_u64 = digest_u64,
    .digest_i64 = digest_i64,
    .standard_positions = standard_positions,
    .standard_add = standard_add,
    .standard_add_new = standard_add_new,
    .standard_contains = standard_contains,
    .blocked = blocked,
    .balanced = balanced,
    .counting = counting,
    .fingerprint = fingerprint,
    .split = split,
    .line_reads = line_reads,
    .line_updates = line_updates,
    .countmin = countmin,
    .multilevel = multilevel,
    .find_key = find_key,
    .window = window,
};

}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

// The loops all kernels share, as text: each kernel's file defines EVENBINS_KERNEL_NAMESPACE and the
// classes below, and includes this. The compiler then builds (and vectorises) them for its instructions.
//
// Every loop that touches a filter runs behind its own prefetches: a random cache line takes 20 … 100 ns
// to arrive, and a core can wait for many of them at once.
//
//     Reader<block_log, hashes>    contains(block, digest) for one block
//     Writer<block_log, hashes>    add(block, digest)
//     split(…)                     see Kernel
//     line_is_zero(line)           for the raw limit
#include <utility>

#include "evenbins/kernel.hpp"
#include "evenbins/lanes.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

constexpr size_t kAhead = 24;  // lines in flight: 24 … 48 alike on Zen 4; 8 costs half as much again at 32 MiB

void digest_u64(const IntHash& hash, const uint64_t* keys, size_t n, uint64_t* out) {
  const IntHash h = hash;
  for (size_t i = 0; i < n; ++i) out[i] = h.digest(keys[i], false);
}

void digest_i64(const IntHash& hash, const int64_t* keys, size_t n, uint64_t* out) {
  const IntHash h = hash;
  for (size_t i = 0; i < n; ++i) out[i] = h.digest(static_cast<uint64_t>(keys[i]), keys[i] < 0);
}

// mulhi(x, m) from 32-bit products, which vectorise, when m has at most 32 bits.
EVENBINS_INLINE uint64_t mulhi_narrow(uint64_t x, uint64_t m) {
  return ((x >> 32) * m + ((x & 0xFFFFFFFF) * m >> 32)) >> 32;
}

// Position i of n digests.
template <bool Narrow>
EVENBINS_INLINE void column(uint64_t bits, uint64_t i, const uint64_t* digests, size_t n, uint64_t* out) {
  for (size_t j = 0; j < n; ++j) {
    const uint64_t word = splitmix(digests[j], i);
    out[j] = Narrow ? mulhi_narrow(word, bits) : mulhi(word, bits);
  }
}
void column(uint64_t bits, uint64_t i, const uint64_t* digests, size_t n, uint64_t* out) {
  if (bits <= 0xFFFFFFFF)
    column<true>(bits, i, digests, n, out);
  else
    column<false>(bits, i, digests, n, out);
}

void standard_positions(const StandardView& f, const uint64_t* digests, size_t n, uint64_t* out) {
  for (uint32_t i = 0; i < f.hashes; ++i) column(f.bits, i, digests, n, out + i * n);
}

// Keys that a standard filter treats together, column by column: long enough that the few reads which
// start a column, and nobody has asked for in time, do not count. Tried and dropped: 128 keys with all
// reads of a column requested at once. That is more than a core can keep in flight, and takes 1.6 times as
// long at 256 MiB.
constexpr size_t kGroup = 1024;

// Calls f(j, position) for j = 0 … n−1, with the words of the next positions on their way.
template <int ForWriting, typename F>
EVENBINS_INLINE void each_position(const uint64_t* words, const uint64_t* positions, size_t n, F&& f) {
  for (size_t j = 0; j < kAhead && j < n; ++j) __builtin_prefetch(words + (positions[j] >> 6), ForWriting);
  for (size_t j = 0; j < n; ++j) {
    if (j + kAhead < n) __builtin_prefetch(words + (positions[j + kAhead] >> 6), ForWriting);
    f(j, positions[j]);
  }
}

void standard_add(const StandardView& f, const uint64_t* digests, size_t n) {
  uint64_t positions[kGroup];
  for (; n > 0;) {
    const size_t g = n < kGroup ? n : kGroup;
    for (uint32_t i = 0; i < f.hashes; ++i) {
      column(f.bits, i, digests, g, positions);
      each_position<1>(f.words, positions, g, [&](size_t, uint64_t p) { f.words[p >> 6] |= uint64_t{1} << (p & 63); });
    }
    digests += g;
    n -= g;
  }
}

// Column i tests position i of every key that is still alive, and keeps those whose bit is set: an absent
// key costs about two reads, a present one k.
void standard_contains(const StandardView& f, const uint64_t* digests, size_t n, uint8_t* out) {
  uint64_t alive[kGroup], positions[kGroup];
  uint16_t index[kGroup];
  for (; n > 0;) {
    const size_t g = n < kGroup ? n : kGroup;
    for (size_t j = 0; j < g; ++j) {
      alive[j] = digests[j];
      index[j] = static_cast<uint16_t>(j);
      out[j] = 0;
    }
    size_t left = g;
    for (uint32_t i = 0; i < f.hashes && left > 0; ++i) {
      column(f.bits, i, alive, left, positions);
      size_t kept = 0;
      each_position<0>(f.words, positions, left, [&](size_t j, uint64_t p) {
        alive[kept] = alive[j];
        index[kept] = index[j];
        kept += f.words[p >> 6] >> (p & 63) & 1;
      });
      left = kept;
    }
    for (size_t j = 0; j < left; ++j) out[index[j]] = 1;
    digests += g;
    out += g;
    n -= g;
  }
}

template <uint32_t BlockLog>
EVENBINS_INLINE uint64_t* block_of(const BlockedView& f, uint64_t digest) {
  return f.words + (mulhi(digest, f.blocks) << (BlockLog - 6));
}

template <uint32_t BlockLog, uint32_t Hashes>
void blocked_add_loop(const BlockedView& f, const uint64_t* digests, size_t n) {
  constexpr Writer<BlockLog, Hashes> writer;
  for (size_t j = 0; j < kAhead && j < n; ++j) __builtin_prefetch(block_of<BlockLog>(f, digests[j]), 1);
  for (size_t j = 0; j < n; ++j) {
    if (j + kAhead < n) __builtin_prefetch(block_of<BlockLog>(f, digests[j + kAhead]), 1);
    writer.add(block_of<BlockLog>(f, digests[j]), digests[j]);
  }
}

template <uint32_t BlockLog, uint32_t Hashes>
void blocked_contains_loop(const BlockedView& f, const uint64_t* digests, size_t n, uint8_t* out) {
  constexpr Reader<BlockLog, Hashes> reader;
  for (size_t j = 0; j < kAhead && j < n; ++j) __builtin_prefetch(block_of<BlockLog>(f, digests[j]));
  for (size_t j = 0; j < n; ++j) {
    if (j + kAhead < n) __builtin_prefetch(block_of<BlockLog>(f, digests[j + kAhead]));
    out[j] = reader.contains(block_of<BlockLog>(f, digests[j]), digests[j]);
  }
}

template <uint32_t BlockLog, uint32_t Hashes>
bool blocked_contains_key(const void* view, uint64_t digest) {
  const auto& f = *static_cast<const BlockedView*>(view);
  return Reader<BlockLog, Hashes>().contains(block_of<BlockLog>(f, digest), digest);
}

template <uint32_t BlockLog, uint32_t Hashes>
void blocked_add_key(const void* view, uint64_t digest) {
  const auto& f = *static_cast<const BlockedView*>(view);
  Writer<BlockLog, Hashes>().add(block_of<BlockLog>(f, digest), digest);
}

template <uint32_t BlockLog, uint32_t Hashes>
constexpr BlockedLoops blocked_loops() {
  return {{blocked_add_key<BlockLog, Hashes>, blocked_contains_key<BlockLog, Hashes>, nullptr},
          blocked_add_loop<BlockLog, Hashes>,
          blocked_contains_loop<BlockLog, Hashes>};
}

template <uint32_t BlockLog, uint32_t... I>
const BlockedLoops& loops_of(uint32_t hashes, std::integer_sequence<uint32_t, I...>) {
  static constexpr BlockedLoops loops[] = {blocked_loops<BlockLog, I + 1>()...};
  return loops[hashes - 1];
}

const BlockedLoops& blocked(uint32_t block_log, uint32_t hashes) {
  constexpr auto all = std::make_integer_sequence<uint32_t, kMaxBlockedHashes>();
  return block_log == 9 ? loops_of<9>(hashes, all) : loops_of<8>(hashes, all);
}

uint64_t line_reads(const IntHash& hash, const uint64_t* words, uint64_t lines, const uint64_t* keys, size_t n) {
  constexpr size_t kBatch = 1024;
  uint64_t digests[kBatch], zero_lines = 0;
  for (; n > 0;) {
    const size_t g = n < kBatch ? n : kBatch;
    digest_u64(hash, keys, g, digests);
    for (size_t j = 0; j < kAhead && j < g; ++j) __builtin_prefetch(words + (mulhi(digests[j], lines) << 3));
    for (size_t j = 0; j < g; ++j) {
      if (j + kAhead < g) __builtin_prefetch(words + (mulhi(digests[j + kAhead], lines) << 3));
      zero_lines += line_is_zero(words + (mulhi(digests[j], lines) << 3));
    }
    keys += g;
    n -= g;
  }
  return zero_lines;
}

}  // namespace

extern const Kernel table;
const Kernel table = {EVENBINS_KERNEL_NAME, digest_u64, digest_i64, standard_positions, standard_add,
                      standard_contains,    blocked,    split,      line_reads};

}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

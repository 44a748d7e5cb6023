// The loops of a blocked filter, as text for every kernel (body.hpp): for each number of hashes its own.
#pragma once

#include "evenbins/blocked_view.hpp"
#include "evenbins/lanes.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

// has_bits and set_bits with a number of hashes that is known to the compiler.
template <uint32_t BlockLog, uint32_t Hashes>
struct Reader {
  EVENBINS_INLINE bool contains(const uint64_t* block, uint64_t digest) const {
    return has_bits<BlockLog, false>(block, digest, Hashes, 0);
  }
};

template <uint32_t BlockLog, uint32_t Hashes>
struct Writer {
  EVENBINS_INLINE void add(uint64_t* block, uint64_t digest) const {
    set_bits<BlockLog, false>(block, digest, Hashes, 0);
  }
};

template <uint32_t BlockLog>
EVENBINS_INLINE uint64_t* block_of(const BlockedView& f, uint64_t digest) {
  return f.words + (mulhi(digest, f.blocks) << (BlockLog - 6));
}

// Calls act(j, block) for j = 0 … n−1, with the next blocks on their way. An address is computed once and kept until its
// turn: look-ups in the cache take 0.9 of the time (0.8 with AVX2 and four hashes) that they take if it is computed
// again. Tried and dropped for the levels of balanced filters, where some loops gain as much and others lose it.
template <uint32_t BlockLog, int ForWriting, typename Act>
EVENBINS_INLINE void each_block(const BlockedView& f, const uint64_t* digests, size_t n, Act&& act) {
  constexpr size_t kKept = 32;
  static_assert(kAhead < kKept);
  uint64_t* kept[kKept];
  const auto prefetch = [&](size_t j) EVENBINS_INLINE_LAMBDA {
    kept[j % kKept] = block_of<BlockLog>(f, digests[j]);
    __builtin_prefetch(kept[j % kKept], ForWriting);
  };
  for (size_t j = 0; j < kAhead && j < n; ++j) prefetch(j);
  for (size_t j = 0; j < n; ++j) {
    uint64_t* const block = kept[j % kKept];
    if (j + kAhead < n) prefetch(j + kAhead);
    act(j, block);
  }
}

template <uint32_t BlockLog, uint32_t Hashes>
void blocked_add_loop(const BlockedView& f, const uint64_t* digests, size_t n) {
  constexpr Writer<BlockLog, Hashes> writer;
  each_block<BlockLog, 1>(f, digests, n, [&](size_t j, uint64_t* block) { writer.add(block, digests[j]); });
}

// The bits are set in any case: to spare the keys that are present the store would cost a branch that nobody foresees.
template <uint32_t BlockLog, uint32_t Hashes>
EVENBINS_INLINE bool add_new_to_block(uint64_t* block, uint64_t digest) {
  const bool present = Reader<BlockLog, Hashes>().contains(block, digest);
  Writer<BlockLog, Hashes>().add(block, digest);
  return !present;
}

template <uint32_t BlockLog, uint32_t Hashes>
void blocked_add_new_loop(const BlockedView& f, const uint64_t* digests, size_t n, uint8_t* out) {
  each_block<BlockLog, 1>(f, digests, n, [&](size_t j, uint64_t* block) {
    out[j] = add_new_to_block<BlockLog, Hashes>(block, digests[j]);
  });
}

template <uint32_t BlockLog, uint32_t Hashes>
void blocked_contains_loop(const BlockedView& f, const uint64_t* digests, size_t n, uint8_t* out) {
  constexpr Reader<BlockLog, Hashes> reader;
  each_block<BlockLog, 0>(f, digests, n,
                          [&](size_t j, const uint64_t* block) { out[j] = reader.contains(block, digests[j]); });
}

template <uint32_t BlockLog, uint32_t Hashes>
bool blocked_contains_key(const void* view, uint64_t digest) {
  const auto& f = *static_cast<const BlockedView*>(view);
  return Reader<BlockLog, Hashes>().contains(block_of<BlockLog>(f, digest), digest);
}

template <uint32_t BlockLog, uint32_t Hashes>
AddOutcome blocked_add_key(const void* view, uint64_t digest) {
  const auto& f = *static_cast<const BlockedView*>(view);
  Writer<BlockLog, Hashes>().add(block_of<BlockLog>(f, digest), digest);
  return AddOutcome::added;
}

template <uint32_t BlockLog, uint32_t Hashes>
AddOutcome blocked_add_new_key(const void* view, uint64_t digest) {
  const auto& f = *static_cast<const BlockedView*>(view);
  const bool added = add_new_to_block<BlockLog, Hashes>(block_of<BlockLog>(f, digest), digest);
  return added ? AddOutcome::added : AddOutcome::present;
}

template <uint32_t BlockLog, uint32_t Hashes>
constexpr BlockedLoops blocked_loops() {
  return {.one = {.add_to = blocked_add_key<BlockLog, Hashes>,
                  .add_new_to = blocked_add_new_key<BlockLog, Hashes>,
                  .contained_in = blocked_contains_key<BlockLog, Hashes>,
                  .view = nullptr},
          .add_many = blocked_add_loop<BlockLog, Hashes>,
          .add_new_many = blocked_add_new_loop<BlockLog, Hashes>,
          .contains_many = blocked_contains_loop<BlockLog, Hashes>};
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

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

// Kernels of a balanced filter (balanced.hpp). Look-ups are the walk of the core, a thread for each key.
//
// Additions go level by level, which leaves the same bytes as key by key as long as no key spills: what a block takes
// depends on the keys that come to it, in their order, and on nothing else. The keys of a level are sorted by block,
// equal blocks in the order of the keys, and one thread takes the keys of a block. Those that pass every level go on to
// the overflow list, all at once: where keys meet at a slot, the one with the lower number has it and the other goes on to
// the next, so that the list is the one that keys in their order leave, whichever thread came first.
#pragma once

#include "keys.cuh"
// The rest is text for the namespace that device.cuh names.
#include "evenbins/balanced_layout.hpp"
#include "evenbins/plain_bits.hpp"
// It needs what plain_bits.hpp defines.
#include "evenbins/balanced_block.hpp"

namespace evenbins::gpu {

template <uint32_t BlockLog, Rule R, typename Keys>
__global__ void __launch_bounds__(256)
    balanced_contains(uint64_t* payload, const uint64_t* core, uint32_t core_words, const void* data, const void* more,
                      const KeyHash* hash, uint64_t n, uint8_t* out) {
  __shared__ BalancedView f;
  if (threadIdx.x == 0) f = view_of(core, core_words, payload);
  __syncthreads();
  const Keys keys(data, more, hash);
  for (uint64_t i = thread_number(); i < n; i += thread_count())
    store_once(out + i, static_cast<uint8_t>(balanced_walk<BlockLog, R>(f, keys.digest(i))));
}

__global__ void level_blocks(const uint64_t* digests, uint64_t n, uint32_t level, uint64_t blocks, uint32_t* out) {
  for (uint64_t i = thread_number(); i < n; i += thread_count())
    out[i] = static_cast<uint32_t>(mulhi(word_of(digests[i], level), blocks));
}

enum class Step : uint8_t { present, added, passed };

// Adds keys to one level. `order` has their numbers by block; starts[r] is where the keys of run r begin there.
template <uint32_t BlockLog, Rule R>
__global__ void __launch_bounds__(256)
    add_level(uint64_t* payload, const uint64_t* core, uint32_t core_words, uint32_t level, const uint64_t* digests,
              uint64_t n, const int64_t* order, const int64_t* starts, uint64_t runs, uint8_t* steps) {
  using Block = BalancedBlock<BlockLog, R>;
  __shared__ BalancedView f;
  if (threadIdx.x == 0) f = view_of(core, core_words, payload);
  __syncthreads();
  const Level here = f.levels[level];
  for (uint64_t run = thread_number(); run < runs; run += thread_count()) {
    const uint64_t last = run + 1 < runs ? static_cast<uint64_t>(starts[run + 1]) : n;
    for (uint64_t i = static_cast<uint64_t>(starts[run]); i < last; ++i) {
      const auto key = static_cast<uint64_t>(order[i]);
      const uint64_t word = word_of(digests[key], level);
      uint64_t* block = block_of<BlockLog>(here, word);
      Step result = Step::present;
      if (!Block::has(f, here, block, word)) {
        result = Block::full(f, here, block, word) ? Step::passed : Step::added;
        if (result == Step::added) Block::put(f, here, block, word);
      }
      steps[key] = static_cast<uint8_t>(result);
    }
  }
}

__global__ void on_list(uint64_t* payload, const uint64_t* core, uint32_t core_words, const uint64_t* digests,
                        uint64_t n, uint8_t* out) {
  const BalancedView f = view_of(core, core_words, payload);
  for (uint64_t i = thread_number(); i < n; i += thread_count()) out[i] = static_cast<uint8_t>(list_has(f, digests[i]));
}

// Finds slots for keys that are not on the list and have room there; claims[slot]: the number of the key that gets it.
inline constexpr uint32_t kNobody = 0xFFFFFFFF;
__global__ void claim_slots(uint64_t* payload, const uint64_t* core, uint32_t core_words, const uint64_t* digests,
                            uint64_t n, uint32_t* claims) {
  const BalancedView f = view_of(core, core_words, payload);
  for (uint64_t i = thread_number(); i < n; i += thread_count()) {
    auto mine = static_cast<uint32_t>(i);
    if (digests[mine] == 0) continue;  // a flag, which is in no slot
    for (uint64_t slot = list_home(f, digests[mine]); mine != kNobody; slot = slot + 1 == f.slot_count ? 0 : slot + 1)
      if (f.slots[slot] == 0) {
        const uint32_t other = atomicMin(claims + slot, mine);
        if (other > mine) mine = other;  // which goes on, or is nobody
      }
  }
}
__global__ void fill_slots(uint64_t* payload, const uint64_t* core, uint32_t core_words, const uint64_t* digests,
                           const uint32_t* claims) {
  const BalancedView f = view_of(core, core_words, payload);
  for (uint64_t i = thread_number(); i < f.slot_count; i += thread_count())
    if (claims[i] != kNobody) f.slots[i] = digests[claims[i]];
}

}  // namespace evenbins::gpu

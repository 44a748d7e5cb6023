// The blocked Bloom filter: one block of 256 or 512 bits for each key, so one cache line for each look-up
// (kanizo, section 9.1, "blocked"). Where the bits lie in the block: lanes.hpp.
//
// The block is the top of the digest scaled to the number of blocks; so digests in ascending order visit
// the memory in ascending order. Integer core: [blocks, block_bits, hashes].
#pragma once

#include "evenbins/blocked_view.hpp"
#include "evenbins/filter.hpp"
#include "evenbins/kernel.hpp"
#include "evenbins/lanes.hpp"

namespace evenbins {

class BlockedBloomFilter final : public Filter, public ByRange {
 public:
  static constexpr uint64_t kMaxBlocks = uint64_t{1} << 47;

  static uint64_t payload_bytes(const Spec& spec) {
    if (spec.hashing != Hashing::lanes) throw SpecError("a blocked filter needs lane hashing");
    if (spec.core.size() != 3) throw SpecError("a blocked filter has three numbers in its core");
    if (spec.core[0] < 1 || spec.core[0] > kMaxBlocks) throw SpecError("blocks must be 1 … 2^47");
    if (spec.core[1] != 256 && spec.core[1] != 512) throw SpecError("block_bits must be 256 or 512");
    if (spec.core[2] < 1 || spec.core[2] > kMaxBlockedHashes) throw SpecError("hashes must be 1 … 32");
    return spec.core[0] * spec.core[1] / 8;
  }

  BlockedBloomFilter(Spec spec, Bits bits)
      : Filter(std::move(spec), std::move(bits)),
        view_{bits_.words(), spec_.core[0], spec_.core[1] == 512 ? 9u : 8u, static_cast<uint32_t>(spec_.core[2])},
        loops_(kernel().blocked(view_.block_log, view_.hashes)) {
    set_one(loops_.one.of(&view_));
  }

  size_t add_many(const uint64_t* digests, size_t n) override {
    loops_.add_many(view_, digests, n);
    return n;
  }
  size_t add_new_many(const uint64_t* digests, size_t n, uint8_t* out) override {
    loops_.add_new_many(view_, digests, n, out);
    return n;
  }
  void contains_many(const uint64_t* digests, size_t n, uint8_t* out) const override {
    loops_.contains_many(view_, digests, n, out);
  }

  bool has_bits_of_keys() const override { return true; }
  ByRange* by_range() override { return this; }
  uint32_t items_per_key() const override { return 0; }
  void items(const uint64_t*, size_t, uint64_t*) const override {}
  Address address() const override { return block_address(view_.blocks, view_.block_log); }
  void add_items(const uint64_t* digests, size_t n) override { add_many(digests, n); }
  bool tells_new_items() const override { return true; }
  void add_new_items(const uint64_t* digests, size_t n, uint8_t* added) override { add_new_many(digests, n, added); }

  std::unique_ptr<Filter> copy() const override { return std::make_unique<BlockedBloomFilter>(spec_, bits_.copy()); }

 private:
  BlockedView view_;
  const BlockedLoops& loops_;  // of the kernel in force when the filter was made
};

}  // namespace evenbins

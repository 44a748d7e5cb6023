// The fuse filter: a filter for a set that never changes, in 1.13 times the bits of its remainders (Graf and Lemire,
// "Binary Fuse Filters: Fast and Smaller Than Xor Filters", 2022; here with three slots per key, and in blocks).
//
//     digest ──mix──▶ hash ──▶ block │ segment s     segment s+1    segment s+2 │
//                                    │   slot a   ⊕    slot b    ⊕    slot c    │  =  remainder of the key
//
// Building is solving one such equation per key. A slot that only one key has can be filled last, so that key is set
// aside; then others are alone in a slot (peeling). Neighbouring keys share segments, which lets the peeling run from
// both ends of a block to its middle with 13 % of spare slots.
//
// Blocks, which the paper does not have, hold one to two million keys and are solved each by itself: so threads share
// the work, its memory is that of a few blocks, and stays in the cache. A block that cannot be solved is tried again with
// other slots; the number of the attempt that succeeded is stored, a byte per block.
//
// The order of the keys leaves no trace: what a slot gathers is a sum (counts and exclusive ors), and slots are peeled
// in their own order. Equal digests are removed before.
//
// A key's rate is 2^-bits whatever the slots hold, since its remainder does not follow from its slots. A filter of
// no keys answers "absent" to all.
//
// Instead of digests d it can hold fingerprints F = floor(d·M / 2^64), as another filter stores them: then a look-up
// asks for the fingerprint of its digest, and an absent key whose fingerprint is in the set is found too.
//
// Core: [blocks, segment_length, segments (of a block), bits, keys, M (0: digests as they are)]. Payload: the slots of
// all blocks, `bits` each, packed as packed.hpp says, in whole words; then the attempts, one byte per block, in whole
// words. So eight bytes can be read from any slot on.
//
// Tried and dropped: one chain of segments for all keys. It takes 27 bytes per key while it is built, its peeling
// is a chain that threads cannot share without rounds, and one pair of keys with equal slots fails all of it. Slots
// that become free in a queue instead of a stack: slower by a quarter, since the peeling then sweeps over the block.
#pragma once

#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evenbins/filter.hpp"
#include "evenbins/packed.hpp"
#include "evenbins/parallel.hpp"

namespace evenbins {

// An odd factor for each attempt. (With those of an arithmetic sequence, a pair of keys that has met meets again.)
inline constexpr std::array<uint64_t, 256> kFuseFactors = [] {
  std::array<uint64_t, 256> factors{};
  for (uint64_t i = 0; i < factors.size(); ++i) factors[i] = splitmix(0, i) | 1;
  return factors;
}();

// Where the slots of a key are, and what they must yield.
struct FuseSlots {
  uint64_t at[3];
  uint32_t remainder;
};

struct FuseView {
  const uint64_t* words;
  const uint8_t* attempts;
  uint64_t blocks, starts, block_slots;  // a key's first slot is one of `starts` of its block
  uint64_t fingerprints;                 // M
  uint32_t length_log, bits;

  // Of a number, which is a digest, or the fingerprint of one.
  EVENBINS_INLINE static uint64_t hash(uint64_t number) { return splitmix(number, 0); }
  EVENBINS_INLINE uint64_t number(uint64_t digest) const {
    return fingerprints == 0 ? digest : mulhi(digest, fingerprints);
  }

  // Blocks, and the first slots in them, grow with the hash. The other slots depend on the attempt.
  EVENBINS_INLINE FuseSlots slots(uint64_t hash, uint64_t block, uint32_t attempt) const {
    const uint64_t first = mulhi(hash * blocks, starts), length = uint64_t{1} << length_log;
    const uint64_t scattered = hash * kFuseFactors[attempt];
    const uint64_t second = scattered >> (64 - length_log);
    const uint64_t third = (scattered >> (64 - 2 * length_log)) & (length - 1);
    const uint64_t base = block * block_slots;
    return {{base + first, base + ((first + length) ^ second), base + ((first + 2 * length) ^ third)},
            static_cast<uint32_t>(((hash ^ (hash >> 32)) * 0xA0761D6478BD642F) >> (64 - bits))};
  }
  EVENBINS_INLINE FuseSlots slots(uint64_t hash) const {
    const uint64_t block = mulhi(hash, blocks);
    return slots(hash, block, attempts[block]);
  }

  // A slot in the lowest bits of a `Load`, with others above it: 7 + bits are at most those of a Load, or slots lie on
  // its boundaries.
  EVENBINS_INLINE const uint8_t* address(uint64_t slot) const {
    return reinterpret_cast<const uint8_t*>(words) + (slot * bits >> 3);
  }
  template <typename Load>
  EVENBINS_INLINE Load load(uint64_t slot) const {
    Load value;
    std::memcpy(&value, address(slot), sizeof value);
    return static_cast<Load>(value >> (slot * bits & 7));
  }
  template <typename Load>
  EVENBINS_INLINE bool holds(const FuseSlots& key) const {
    const auto sum = static_cast<Load>(load<Load>(key.at[0]) ^ load<Load>(key.at[1]) ^ load<Load>(key.at[2]));
    return ((sum ^ key.remainder) & Packed::most(bits)) == 0;
  }
};

class FuseFilter final : public Filter {
 public:
  static constexpr uint64_t kMinBits = 4, kMaxBits = 32, kMaxLength = uint64_t{1} << 18;
  static constexpr uint64_t kMaxBlocks = uint64_t{1} << 32, kMaxSlots = uint64_t{1} << 51;

  static uint64_t payload_bytes(const Spec& spec);
  FuseFilter(Spec spec, Bits bits);

  // It never changes: nothing is added, and it is not merged or cleared.
  size_t add_many(const uint64_t*, size_t) override { return 0; }
  uint64_t keys_left() const override { return 0; }
  std::vector<uint64_t> merge_space(const Filter& other) const override;
  void clear() override;

  void contains_many(const uint64_t* digests, size_t n, uint8_t* out) const override {
    if (keys() == 0)
      std::memset(out, 0, n);
    else
      contains_many_(view_, digests, n, out);
  }
  std::unique_ptr<Filter> copy() const override { return std::make_unique<FuseFilter>(spec_, bits_.copy()); }
  uint64_t set_bits() const override;                                            // slots that are not zero
  std::vector<uint64_t> state() const override { return {slots(), retried()}; }  // and blocks of a later attempt
  std::string check(bool thorough) const override;

  uint64_t keys() const { return spec_.core[4]; }
  uint64_t slots() const { return view_.blocks * view_.block_slots; }

  // Fills the slots, once, so that the filter holds the keys of these hashes: ascending, all different, keys() of them.
  // Returns false if the pulse stopped it, and throws SpecError if a block has no solution; then it is of no use.
  bool solve(const uint64_t* hashes, uint32_t threads, const Pulse& pulse);

 private:
  uint64_t retried() const;

  FuseView view_;
  void (*contains_many_)(const FuseView&, const uint64_t*, size_t, uint8_t*) = nullptr;
};

// The different keys of a fuse filter: the hashes of their numbers, in ascending order. The numbers are read twice, so
// that no more than 8 bytes per key are needed: `count` all of them, `take` all of them, then `finish`.
class FuseKeys {
 public:
  FuseKeys() : ends_(kParts + 1) {}

  // Both return how many numbers were read: all, unless the pulse stopped it. Throws BadKey.
  uint64_t count(const Digests& numbers, uint32_t threads, const Pulse& pulse);
  uint64_t take(const Digests& numbers, uint32_t threads, const Pulse& pulse);
  // Sorts, and removes repeated ones. False if the pulse stopped it.
  bool finish(uint32_t threads, const Pulse& pulse);

  uint64_t size() const { return size_; }  // after finish(): of different keys
  const uint64_t* hashes() const { return hashes_ ? hashes_->words() : nullptr; }

 private:
  static constexpr uint32_t kPartBits = 11;
  static constexpr size_t kParts = size_t{1} << kPartBits;

  static size_t part_of(uint64_t hash) { return hash >> (64 - kPartBits); }
  static std::vector<uint64_t> counted(const uint64_t* hashes, size_t n);
  [[noreturn]] static void throw_changed();
  void begin();  // when all are counted

  uint64_t size_ = 0;
  std::vector<uint64_t> ends_;     // part p is ends_[p] … ends_[p+1]; before begin(), their counts
  std::vector<uint64_t> cursors_;  // where a part is filled to
  std::optional<Bits> hashes_;
};

}  // namespace evenbins

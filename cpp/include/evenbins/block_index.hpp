// Which of up to 64 nodes was sent which block: four bytes for a block at a node, expiring as the nodes' LRU caches do.
//
//     slot   | fingerprint 19 | node 6 | age 7 |       0: none         line   | slot × 15 | link |      64 bytes
//
// A block has two lines, each of which is known from the other and the fingerprint (Fan et al., Cuckoo Filter, CoNEXT
// 2014). An entry goes into the first one that has room. If neither has, one of their entries moves to its other line; if
// none can, a chain of more lines behind the block's first one takes it: so a block may be at every node. A line from which
// an entry went elsewhere says so for ever, so that as long as the index is not nearly full a block costs one line. A block
// that is not there is found with a chance of 2^-19 for each live entry of its lines, 5.7e-5 in all; then a request goes to
// the wrong node, and nothing else happens.
//
// Ages. A node counts steps. A block that it is sent gets the present step, which ends when it has capacity / 32 blocks.
// A step knows how many blocks it still has, so the node knows how many are more recent than any step: when it has more
// than `capacity`, its oldest step expires. That is LRU in units of a step. A block is also dropped when 84 steps have
// ended since it was sent, which takes at least 84 / 32 of the capacity in blocks sent.
//
// Expired entries are dead at once, by a bit of their node and step, and their slots are free. But 127 steps have names,
// and before a name is used again the last entries that have it must go: lines are swept, a few with each request, so
// that all are swept once while any node ends 20 steps. 84 + 2 * 20 < 127.
//
// Not the payloads of fingerprint_payload.hpp: there a fingerprint is in once, with one payload, and here a block has one
// age for each of its nodes; to put the node into the fingerprint would make a look-up for each node out of one; and lines
// there are swept by one clock, whereas each node has its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "evenbins/bits.hpp"
#include "evenbins/hash.hpp"

namespace evenbins {

class BlockIndex {
 public:
  static constexpr uint32_t kMostNodes = 64;

  // For `nodes` nodes that hold `capacity` blocks each; AllocationError if there is no memory for that.
  BlockIndex(uint32_t nodes, uint64_t capacity);

  // The nodes that hold a block, as bits.
  uint64_t holders(uint64_t digest) const {
    const uint32_t fingerprint = fingerprint_of(digest);
    const Line* line = first_line(digest);
    uint64_t nodes = holders_in(*line, fingerprint);
    if (line->link == 0) return nodes;
    if (line->has_spilled()) nodes |= holders_in(*other_line(line, fingerprint), fingerprint);
    for (uint32_t at = line->chain(); at != 0; at = more_[at - 1].chain())
      nodes |= holders_in(more_[at - 1], fingerprint);
    return nodes;
  }
  // A block's first line; and then its second one, if that is needed.
  void prefetch(uint64_t digest) const { __builtin_prefetch(first_line(digest), 1); }
  void prefetch_more(uint64_t digest) const {
    const Line* line = first_line(digest);
    if (line->has_spilled()) __builtin_prefetch(other_line(line, fingerprint_of(digest)), 1);
  }

  // Makes blocks the most recently used ones of a node, the first one last.
  void note(const uint64_t* digests, size_t n, uint32_t node);

  // A number for a new node, whose blocks are none; -1 if all are in use.
  int add_node();
  void remove_node(uint32_t node);
  bool is_empty() const { return used_ == 0; }

  uint64_t entries() const;
  uint64_t nbytes() const;

 private:
  static constexpr uint32_t kSlots = 15, kAgeBits = 7, kNodeBits = 6, kPayloadBits = kAgeBits + kNodeBits;
  static constexpr uint32_t kAges = (1u << kAgeBits) - 1;  // ages are 1 … 127
  static constexpr uint64_t kParts = 32, kMostSteps = 84, kTurnSteps = 20;
  static_assert(kMostSteps + 2 * kTurnSteps < kAges);

  struct alignas(64) Line {
    uint32_t slots[kSlots];
    uint32_t link;  // two times the next line in `more_`, from 1 (0: none); and 1 if it has spilled
    // Whether entries whose first line this is may be in their second line.
    bool has_spilled() const { return (link & 1) != 0; }
    uint32_t chain() const { return link >> 1; }
    void set_chain(uint32_t next) { link = next << 1 | (link & 1); }
  };
  struct Clock {
    uint64_t step = 0, oldest = 0, turn = 0, total = 0;  // turn: the step when this turn of the sweep began
    std::array<uint32_t, kAges + 1> count = {};          // live entries by age
    static uint32_t age(uint64_t step) { return static_cast<uint32_t>(step % kAges) + 1; }
  };

  static uint32_t fingerprint_of(uint64_t digest) { return static_cast<uint32_t>(digest) >> kPayloadBits; }
  Line* first_line(uint64_t digest) const { return lines_ + mulhi(digest, line_count_); }
  // Of the two lines of a fingerprint the one that `line` is not; the same rule leads back.
  Line* other_line(const Line* line, uint32_t fingerprint) const {
    const uint64_t sum = mulhi(fingerprint * kPhi, line_count_), at = static_cast<uint64_t>(line - lines_);
    return lines_ + (sum >= at ? sum - at : sum + line_count_ - at);
  }
  bool is_live(uint32_t slot) const {
    const uint32_t payload = slot & ((1u << kPayloadBits) - 1);
    return (live_[payload >> 6] >> (payload & 63) & 1) != 0;
  }
  void set_live(uint32_t node, uint32_t age, bool live);
  uint32_t clear_dead(Line& line);
  uint64_t holders_in(const Line& line, uint32_t fingerprint) const;
  uint32_t* find(Line* line, uint32_t wanted);
  void note_one(uint64_t digest, uint32_t node);
  void insert(uint64_t digest, uint32_t slot);
  uint32_t make_room(Line& line);
  void expire_oldest(uint32_t node);
  void begin_step(uint32_t node);
  void sweep_for(const Clock& clock);
  void sweep_to(uint64_t end);
  void sweep(Line& line);
  void sweep_chain(Line& line);
  uint32_t new_line();

  uint64_t capacity_, step_blocks_, line_count_;
  Bits memory_;
  Line* lines_;
  std::vector<Line> more_;  // lines of chains
  uint32_t free_ = 0;       // those that are not in use, linked as chains are
  uint64_t swept_ = 0;      // lines, in this turn
  uint64_t used_ = 0;       // nodes, as bits
  uint32_t nodes_;
  std::vector<Clock> clocks_;
  std::array<uint64_t, (size_t{kMostNodes} << kAgeBits) / 64> live_ = {};  // one bit for each age of each node
};

}  // namespace evenbins

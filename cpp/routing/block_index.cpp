#include "evenbins/block_index.hpp"

#include <algorithm>
#include <bit>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace evenbins {

namespace {

constexpr uint64_t kFill = 68, kOutOf = 5;  // entries in lines: 13.6 per line when all nodes are full

uint64_t lines_for(uint64_t nodes, uint64_t capacity) {
  if (capacity > (uint64_t{1} << 52) / nodes) throw AllocationError(uint64_t{1} << 56);
  return nodes * capacity * kOutOf / kFill + 1;
}

// Bits of the slots whose upper bits are `wanted`.
template <uint32_t Shift>
EVENBINS_INLINE uint32_t equal_slots(const uint32_t* slots, uint32_t wanted) {
  uint32_t found = 0;
#ifdef __SSE2__
  const __m128i pattern = _mm_set1_epi32(static_cast<int>(wanted));
  for (int i = 0; i < 4; ++i) {
    const __m128i four = _mm_load_si128(reinterpret_cast<const __m128i*>(slots) + i);
    const __m128i equal = _mm_cmpeq_epi32(_mm_srli_epi32(four, Shift), pattern);
    found |= static_cast<uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(equal))) << 4 * i;
  }
#else
  for (uint32_t i = 0; i < 15; ++i) found |= static_cast<uint32_t>(slots[i] >> Shift == wanted) << i;
#endif
  return found & 0x7FFF;
}

}  // namespace

BlockIndex::BlockIndex(uint32_t nodes, uint64_t capacity)
    : capacity_(capacity),
      step_blocks_((capacity + kParts - 1) / kParts),
      line_count_(lines_for(nodes, capacity)),
      memory_(Bits::zeroed(line_count_ * sizeof(Line))),
      lines_(reinterpret_cast<Line*>(memory_.words())),
      nodes_(nodes),
      clocks_(nodes) {}

void BlockIndex::set_live(uint32_t node, uint32_t age, bool live) {
  const uint32_t payload = node << kAgeBits | age;
  const uint64_t bit = uint64_t{1} << (payload & 63);
  live_[payload >> 6] = live ? live_[payload >> 6] | bit : live_[payload >> 6] & ~bit;
}

// Returns the bits of the slots that are free then.
uint32_t BlockIndex::clear_dead(Line& line) {
  for (uint32_t& slot : line.slots) slot &= -static_cast<uint32_t>(is_live(slot));
  return equal_slots<0>(line.slots, 0);
}

uint64_t BlockIndex::holders_in(const Line& line, uint32_t fingerprint) const {
  uint64_t nodes = 0;
  for (uint32_t found = equal_slots<kPayloadBits>(line.slots, fingerprint); found != 0; found &= found - 1) {
    const uint32_t slot = line.slots[std::countr_zero(found)];
    nodes |= static_cast<uint64_t>(is_live(slot)) << (slot >> kAgeBits & (kMostNodes - 1));
  }
  return nodes;
}

// --- what a node is sent ---------------------------------------------------------------------------------------------

void BlockIndex::note(const uint64_t* digests, size_t n, uint32_t node) {
  for (size_t i = n; i-- > 0;) note_one(digests[i], node);
  sweep_for(clocks_[node]);
}

// The slot of a fingerprint and node; null if there is none.
uint32_t* BlockIndex::find(Line* line, uint32_t wanted) {
  const auto in = [&](Line& at) -> uint32_t* {
    const uint32_t found = equal_slots<kAgeBits>(at.slots, wanted);
    return found == 0 ? nullptr : at.slots + std::countr_zero(found);
  };
  uint32_t* slot = in(*line);
  if (slot == nullptr && line->has_spilled()) slot = in(*other_line(line, wanted >> kNodeBits));
  for (uint32_t at = line->chain(); slot == nullptr && at != 0; at = more_[at - 1].chain()) slot = in(more_[at - 1]);
  return slot;
}

void BlockIndex::note_one(uint64_t digest, uint32_t node) {
  Clock& clock = clocks_[node];
  if (clock.count[Clock::age(clock.step)] >= step_blocks_) begin_step(node);
  const uint32_t now = Clock::age(clock.step);
  const uint32_t wanted = fingerprint_of(digest) << kNodeBits | node, slot = wanted << kAgeBits | now;
  if (uint32_t* held = find(first_line(digest), wanted); held != nullptr) {
    if (is_live(*held)) {
      --clock.count[*held & kAges];
      --clock.total;
    }
    *held = slot;
  } else {
    insert(digest, slot);
  }
  ++clock.count[now];
  ++clock.total;
  while (clock.total > capacity_) expire_oldest(node);
}

void BlockIndex::insert(uint64_t digest, uint32_t slot) {
  Line *const first = first_line(digest), *const second = other_line(first, fingerprint_of(digest));
  const auto put = [&](Line* line, uint32_t none) {
    if (none == 0) return false;
    line->slots[std::countr_zero(none)] = slot;
    if (line != first) first->link |= 1;
    return true;
  };
  for (Line* line : {first, second})
    if (put(line, equal_slots<0>(line->slots, 0))) return;
  for (Line* line : {first, second})
    if (put(line, clear_dead(*line))) return;
  for (Line* line : {first, second})
    if (put(line, make_room(*line))) return;
  uint32_t at = first->chain();
  while (at != 0 && clear_dead(more_[at - 1]) == 0) at = more_[at - 1].chain();
  if (at == 0) {
    at = new_line();
    more_[at - 1].set_chain(first->chain());
    first->set_chain(at);
  }
  Line& line = more_[at - 1];
  line.slots[std::countr_zero(equal_slots<0>(line.slots, 0))] = slot;
}

// Moves an entry of a full line to its other line. Returns the bit of its slot; 0 if none can move.
uint32_t BlockIndex::make_room(Line& line) {
  for (uint32_t i = 0; i < kSlots; ++i) {
    Line* to = other_line(&line, line.slots[i] >> kPayloadBits);
    const uint32_t none = clear_dead(*to);
    if (none == 0) continue;
    to->slots[std::countr_zero(none)] = line.slots[i];
    line.link |= 1;
    return 1u << i;
  }
  return 0;
}

void BlockIndex::expire_oldest(uint32_t node) {
  Clock& clock = clocks_[node];
  const uint32_t age = Clock::age(clock.oldest++);
  clock.total -= clock.count[age];
  clock.count[age] = 0;
  set_live(node, age, false);
}

void BlockIndex::begin_step(uint32_t node) {
  Clock& clock = clocks_[node];
  if (clock.step + 1 - clock.oldest >= kMostSteps) expire_oldest(node);
  ++clock.step;
  sweep_for(clock);
  set_live(node, Clock::age(clock.step), true);
}

// --- the sweep -------------------------------------------------------------------------------------------------------

// As much of a turn as this node has ended of its steps.
void BlockIndex::sweep_for(const Clock& clock) {
  const uint64_t steps = clock.step - clock.turn;
  const uint64_t blocks =
      std::min<uint64_t>(steps * step_blocks_ + clock.count[Clock::age(clock.step)], kTurnSteps * step_blocks_);
  const auto end = static_cast<uint64_t>(static_cast<uint128>(line_count_) * blocks / (kTurnSteps * step_blocks_));
  if (end > swept_) sweep_to(end);
}

void BlockIndex::sweep_to(uint64_t end) {
  for (; swept_ < end; ++swept_) sweep(lines_[swept_]);
  if (swept_ < line_count_) return;
  swept_ = 0;
  for (Clock& each : clocks_) each.turn = each.step;
}

void BlockIndex::sweep(Line& line) {
  clear_dead(line);
  if (line.chain() != 0) [[unlikely]]
    sweep_chain(line);
}

// Moves the live entries of a chain as far to its front as they fit, and gives back the lines that are left over.
void BlockIndex::sweep_chain(Line& line) {
  std::vector<uint32_t> kept;
  for (uint32_t at = line.chain(); at != 0; at = more_[at - 1].chain())
    for (const uint32_t slot : more_[at - 1].slots)
      if (is_live(slot)) kept.push_back(slot);
  const auto take = [&] {
    if (kept.empty()) return 0u;
    const uint32_t slot = kept.back();
    kept.pop_back();
    return slot;
  };
  for (uint32_t& slot : line.slots)
    if (slot == 0) slot = take();
  Line* last = &line;
  while (!kept.empty()) {
    last = &more_[last->chain() - 1];
    for (uint32_t& slot : last->slots) slot = take();
  }
  uint32_t at = last->chain();
  last->set_chain(0);
  while (at != 0) {
    Line& gone = more_[at - 1];
    const uint32_t next = gone.chain();
    gone = Line{};
    gone.set_chain(free_);
    free_ = at;
    at = next;
  }
}

uint32_t BlockIndex::new_line() {
  if (free_ == 0) {
    if (more_.size() == more_.capacity()) more_.reserve(more_.size() + more_.size() / 4 + 4);
    more_.push_back(Line{});
    return static_cast<uint32_t>(more_.size());
  }
  const uint32_t at = free_;
  free_ = more_[at - 1].chain();
  more_[at - 1].set_chain(0);
  return at;
}

// --- nodes -----------------------------------------------------------------------------------------------------------

int BlockIndex::add_node() {
  const auto node = static_cast<uint32_t>(std::countr_one(used_));
  if (node >= nodes_) return -1;
  used_ |= uint64_t{1} << node;
  clocks_[node] = Clock();
  set_live(node, Clock::age(0), true);
  return static_cast<int>(node);
}

void BlockIndex::remove_node(uint32_t node) {
  used_ &= ~(uint64_t{1} << node);
  for (uint32_t age = 1; age <= kAges; ++age) set_live(node, age, false);
  clocks_[node] = Clock();
  sweep_to(line_count_);  // the rest of this turn,
  sweep_to(line_count_);  // and the lines that it had passed
}

uint64_t BlockIndex::entries() const {
  uint64_t total = 0;
  for (const Clock& each : clocks_) total += each.total;
  return total;
}

uint64_t BlockIndex::nbytes() const {
  return sizeof(*this) + (line_count_ + more_.capacity()) * sizeof(Line) + clocks_.capacity() * sizeof(Clock);
}

}  // namespace evenbins

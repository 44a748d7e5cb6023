#include "evenbins/ring.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "evenbins/xxh3.hpp"

namespace evenbins {
namespace {

constexpr uint64_t kTail = 0x7A3D5C19E2B84F61, kSecond = 0x51ED270B9F3A6C85;
constexpr uint64_t kMostDraws = uint64_t{1} << 27;  // in a sparse array, before the tail: some seconds at most

uint64_t place_word(std::string_view name, uint64_t seed, uint64_t copy) {
  return splitmix(xxh3_64(name.data(), name.size(), seed), copy);
}

// Room for so many more. Grows by a quarter: a ring's members take 8 to 10 bytes per key, not 16.
template <typename T>
void make_room(std::vector<T>& list, uint64_t more) {
  if (list.capacity() - list.size() >= more) [[likely]]
    return;
  list.reserve(list.size() + std::max<uint64_t>(more, list.size() / 4 + 4));
}
template <typename T>
void make_capacity(std::vector<T>& list, uint64_t size) {
  if (list.capacity() < size) list.reserve(size + size / 4);
}

}  // namespace

Ring::Ring(RingConfig config) : config_(config) {
  if (!dense()) places_.assign(size_t{1} << config_.array_bits, kNone);
}

uint32_t Ring::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? kNone : found->second;
}

// ---- walks ----------------------------------------------------------------------------------------------

template <typename Visit>
uint64_t Ring::walk(uint64_t digest, Visit&& visit) const {
  if (serving_ == 0) return 0;
  return draws_on() ? walk_draws(digest, visit) : walk_circle(digest, visit);
}

// Whether to look at all nodes takes less time than to come to one of them: a sparse array of few nodes.
bool Ring::visits_are_dear() const {
  return !dense() && config_.policy == RingPolicy::jump && slots() * order_.size() <= places_.size();
}

template <typename HasRoom>
bool Ring::none_takes(HasRoom&& has_room) const {
  return std::none_of(order_.begin(), order_.end(), [&](uint32_t id) { return nodes_[id].serving() && has_room(id); });
}

template <typename Visit>
uint64_t Ring::walk_draws(uint64_t digest, Visit&& visit) const {
  const auto m = static_cast<uint32_t>(slots());
  const uint32_t shift = 64 - config_.array_bits;
  const bool exact = !dense() && config_.policy == RingPolicy::jump;
  uint64_t budget = 2 * uint64_t{m} + 64;
  if (exact) budget = std::min(budget * (((uint64_t{1} << config_.array_bits) + m - 1) / m), kMostDraws);
  uint64_t visits = 0;
  std::vector<bool> refused;  // by id, of an exact walk that is long
  uint64_t refusals = 0;
  for (uint64_t c = 0; c < budget; ++c) {
    const uint64_t w = splitmix(digest, c);
    uint32_t slot;
    if (dense())
      slot = dense_slot(w, m);
    else
      slot = exact ? static_cast<uint32_t>(w >> shift) : circle_[next_place(static_cast<uint32_t>(w >> shift))];
    const uint32_t id = owner(slot);
    if (id == kNone || !nodes_[id].serving() || !accepts(slot, id, w)) continue;
    if (visit(id)) return c + 1;
    if (!exact || ++visits <= serving_) continue;
    refused.resize(nodes_.size());
    if (!refused[id] && ++refusals == serving_) return c + 1;  // all have said no, and would again
    refused[id] = true;
  }
  const uint64_t t = digest ^ kTail, start = mulhi(splitmix(t, 0), m);
  uint64_t stride = m == 1 ? 1 : 1 + mulhi(splitmix(t, 1), m - 1);
  while (std::gcd(stride, uint64_t{m}) != 1) stride = stride + 1 == m ? 1 : stride + 1;
  for (uint64_t i = 0, at = start; i < m; ++i, at = (at + stride) % m) {
    const uint32_t id = dense() ? slots_[at] : places_[circle_[at]];
    if (id != kNone && nodes_[id].serving() && visit(id)) break;
  }
  return budget;
}

template <typename Visit>
uint64_t Ring::walk_circle(uint64_t digest, Visit&& visit) const {
  const auto m = static_cast<uint32_t>(slots());
  const uint32_t shift = 64 - config_.array_bits;
  const uint64_t budget = 2 * uint64_t{m} + 64;
  uint32_t slot = kNone;
  uint64_t c = 0;
  while (slot == kNone && c < budget) {
    const uint64_t w = splitmix(digest, c++);
    const uint32_t drawn = dense() ? dense_slot(w, m) : circle_[next_place(static_cast<uint32_t>(w >> shift))];
    if (const uint32_t id = owner(drawn); id != kNone && accepts(drawn, id, w)) slot = drawn;
  }
  const bool other = config_.policy == RingPolicy::rehash_bin;
  const std::vector<uint32_t>* circle = other ? &second_ : dense() ? nullptr : &circle_;
  const uint32_t length = circle == nullptr ? m : static_cast<uint32_t>(circle->size());
  uint32_t index = 0;
  if (slot == kNone) {  // every coin refused
    slot = dense() ? 0 : circle_[0];
    while (owner(slot) == kNone) ++slot;
  }
  if (other)
    index = static_cast<uint32_t>(std::lower_bound(second_.begin(), second_.end(), slot,
                                                   [&](uint32_t a, uint32_t b) { return comes_before(a, b); }) -
                                  second_.begin());
  else
    index = dense() ? slot : next_place(slot);
  const auto visited = [&](uint32_t s) {
    const uint32_t id = owner(s);
    return id != kNone && nodes_[id].serving() && visit(id);
  };
  if (visited(slot)) return c;
  for (int round = 1; round <= 2; ++round)
    for (uint32_t i = 1; i < length + (round == 2); ++i) {
      const uint32_t at = (index + i) % length, s = circle == nullptr ? at : (*circle)[at];
      if (round == 1) {
        const uint32_t id = owner(s);
        if (id == kNone) continue;
        const Node& node = nodes_[id];
        if (node.slots.back() == s && fraction(node) != kWhole &&
            (splitmix(digest, (uint64_t{1} << 32) + s) >> 44) >= fraction(node))
          continue;
      }
      if (visited(s)) return c;
    }
  return c;
}

uint32_t Ring::next_place(uint32_t place) const {
  const auto found = std::lower_bound(circle_.begin(), circle_.end(), place);
  return found == circle_.end() ? 0 : static_cast<uint32_t>(found - circle_.begin());
}

uint32_t Ring::first_by_walk(uint64_t digest) const {
  uint32_t found = kNone;
  walk(digest, [&](uint32_t id) {
    found = id;
    return true;
  });
  return found;
}

std::vector<uint32_t> Ring::candidates(uint64_t digest, uint64_t most) const {
  std::vector<uint32_t> found;
  most = std::min(most, serving_);
  if (most == 0) return found;
  std::vector<bool> seen(most > 8 ? nodes_.size() : 0);
  walk(digest, [&](uint32_t id) {
    if (seen.empty() ? std::find(found.begin(), found.end(), id) != found.end() : seen[id]) return false;
    if (!seen.empty()) seen[id] = true;
    found.push_back(id);
    return found.size() == most;
  });
  return found;
}

// ---- the bound ------------------------------------------------------------------------------------------

uint64_t Ring::limit_of(uint32_t id, uint64_t keys) const {
  if (config_.policy == RingPolicy::plain) return ~uint64_t{0};
  if (config_.rate == 0) return nodes_[id].cap;
  if (!nodes_[id].serving() || keys == 0) return 0;
  const Room r = room(keys);
  if (r.limit != 0) return r.limit;
  uint64_t low = 0, high = static_cast<uint64_t>(r.right / kBillion + 1);  // the least load that takes nothing more
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (takes(r, id, middle))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void Ring::require_serving() const {
  if (serving_ == 0)
    throw NoNodes(order_.empty() ? "the ring has no nodes: add one with add_node"
                                 : "no node of the ring serves: all are down or drained. Use mark_up or add_node");
}

std::string Ring::full_text(const char* what) const {
  if (config_.policy == RingPolicy::plain || config_.rate != 0)
    return "the ring is full: every serving node holds " + std::to_string(node_keys_) +
           " keys, the most that a node can hold. Add a node; nothing was changed";
  uint64_t caps = 0;
  for (const uint32_t id : order_) caps += nodes_[id].serving() ? nodes_[id].cap : 0;
  return "the ring is full: every serving node is at its limit, " + std::to_string(caps) + " " + what +
         " in all. Add a node, raise a weight or release some; nothing was changed";
}

Ring::Counters Ring::counters() const {
  Counters all = counters_;
  all.placements += at_once_;
  all.searches += at_once_;
  all.draws += at_once_;
  all.longest = std::max<uint64_t>(all.longest, at_once_ != 0);
  all.histogram[1] += at_once_;
  return all;
}

void Ring::count(uint64_t searches, uint64_t draws) {
  ++counters_.placements;
  counters_.searches += searches;
  counters_.draws += draws;
  counters_.longest = std::max(counters_.longest, searches);
  ++counters_.histogram[std::min<uint64_t>(searches, kHistogram - 1)];
}

void Ring::find_even_limit(uint64_t n) const {
  const uint128 nodes = static_cast<uint128>(kBillion) * serving_;
  const uint128 limit = (static_cast<uint128>(config_.rate) * n + nodes - 1) / nodes;
  even_limit_ = static_cast<uint64_t>(limit);  // above 0, as n is
  even_from_ = n;
  even_to_ = static_cast<uint64_t>(even_limit_ * nodes / config_.rate);  // the last n with this limit
}

uint32_t Ring::place(uint64_t digest, uint64_t n, uint32_t from) {
  const Room r = room(n);
  if (fast_ && r.limit != 0 && from == kNone) {  // nearly all placements end here, at the first or second draw
    const auto m = static_cast<uint32_t>(routes_.size());
    uint64_t searches = 0;
    for (uint32_t c = 0; c < 64; ++c) {
      const uint32_t id = routes_[dense_slot(splitmix(digest, c), m)];
      if (id == kNone) continue;
      if (id == kNone - 1) break;
      ++searches;
      if (members_[id].size() < r.limit) {
        if (c == 0) [[likely]]
          ++at_once_;
        else
          count(searches, c + 1);
        return id;
      }
    }
  }
  const auto has_room = [&](uint32_t id) { return takes(r, id, members_[id].size() - (id == from)); };
  if (visits_are_dear() && none_takes(has_room)) return kNone;
  uint64_t searches = 0;
  uint32_t found = kNone;
  const uint64_t draws = walk(digest, [&](uint32_t id) {
    ++searches;
    if (!has_room(id)) return false;
    found = id;
    return true;
  });
  if (found != kNone) count(searches, draws);
  return found;
}

double Ring::expected_searches(uint64_t samples) const {
  const Room r = room(map_.size() + 1);
  if (none_takes([&](uint32_t id) { return takes(r, id, members_[id].size()); })) return 0;
  uint64_t searches = 0, draws = 0, i = 0;
  for (; i < samples && draws < kMostDraws / 8; ++i)  // a sparse array may ask for millions of draws a visit
    draws += walk(splitmix(~config_.seed, i), [&](uint32_t id) {
      ++searches;
      return takes(r, id, members_[id].size());
    });
  return static_cast<double>(searches) / static_cast<double>(i);
}

// ---- keys -----------------------------------------------------------------------------------------------

void Ring::put(KeyMapEntry& entry, uint32_t id) noexcept {
  entry.node = id + 1;
  entry.position = static_cast<uint32_t>(members_[id].size());
  members_[id].push_back(entry.digest);
}

void Ring::take_out(KeyMapEntry& entry) noexcept {
  std::vector<uint64_t>& members = members_[entry.node - 1];
  if (const uint64_t last = members.back(); last != entry.digest) {
    members[entry.position] = last;
    map_.find(last)->position = entry.position;
  }
  members.pop_back();
}

// The weight of all that serve and of one node, summed anew: no limit, sum or part that was kept is used.
std::pair<Wide, Wide> Ring::weights_anew(const Node& node) const {
  int finest = node.decimal.exponent;
  for (const uint32_t each : order_) finest = std::min(finest, nodes_[each].decimal.exponent);
  Wide total;
  for (const uint32_t each : order_)
    if (nodes_[each].serving()) total += in_units(nodes_[each].decimal, finest);
  return {total, in_units(node.decimal, finest)};
}

void Ring::audit_placement(uint32_t id, uint64_t n, uint64_t load) {
  ++audit_.placements;
  const Node& node = nodes_[id];
  bool allowed = node.serving();
  if (config_.policy != RingPolicy::plain && config_.rate == 0) allowed = allowed && load + 1 <= node.cap;
  if (audit_.rate != 0) {
    const auto [total, own] = weights_anew(node);
    const Wide share = own * (static_cast<uint128>(audit_.rate) * n);
    allowed = allowed && total * (static_cast<uint128>(kBillion) * load) < share;
  }
  audit_.broken += !allowed;
}

// Whether a lease of this load keeps the bound there.
bool Ring::may_lease(uint32_t id, uint64_t load) const {
  const Node& node = nodes_[id];
  const uint64_t after = node.lease_load + load;
  if (!node.serving()) return false;
  if (config_.policy != RingPolicy::plain && config_.rate == 0)
    return after <= static_cast<uint128>(node.cap) * kLeaseUnit;
  if (audit_.rate == 0) return true;
  uint64_t all = load;
  for (const uint32_t each : order_) all += nodes_[each].lease_load;
  const auto [total, own] = weights_anew(node);
  return !(own * (static_cast<uint128>(audit_.rate) * all) < total * (static_cast<uint128>(kBillion) * after));
}

void Ring::move(KeyMapEntry& entry, uint32_t to, RingMoves& moves) {
  if (audit_.on) audit_placement(to, map_.size(), members_[to].size() - (entry.node - 1 == to));
  if (entry.node - 1 != to) {
    make_room(members_[to], 1);
    moves.push_back({entry.digest, entry.node - 1, to});
    ++counters_.moved;
  }
  take_out(entry);
  put(entry, to);
}

void Ring::undo_moves(RingMoves& moves, size_t keep) noexcept {
  for (; moves.size() > keep; moves.pop_back()) {
    KeyMapEntry& entry = *map_.find(moves.back().digest);
    take_out(entry);
    put(entry, moves.back().from);  // where it was: there is room
  }
}

uint32_t Ring::assign(uint64_t digest) {
  KeyMapEntry* entry = map_.probe(digest);
  if (entry->node != 0) {
    if (lazy_ != 0) settle_lazily(*entry);
    return entry->node - 1;
  }
  if (map_.size() >= kMaxKeys) throw RingFull("a ring holds at most 2**36 keys; nothing was changed");
  require_serving();
  const uint32_t id = place(digest, map_.size() + 1);
  if (id == kNone) throw RingFull(full_text("keys"));
  if (audit_.on) audit_placement(id, map_.size() + 1, members_[id].size());
  make_room(members_[id], 1);
  put(map_.insert(digest, entry), id);
  return id;
}

uint32_t Ring::locate(uint64_t digest) const {
  const KeyMapEntry* entry = map_.find(digest);
  return entry == nullptr ? kNone : entry->node - 1;
}

bool Ring::release(uint64_t digest) {
  KeyMapEntry* entry = map_.find(digest);
  if (entry == nullptr) return false;
  take_out(*entry);
  map_.erase(entry);
  if (!homes_.empty()) homes_.erase(digest);
  return true;
}

void Ring::make_room_for(uint64_t more) {
  if (config_.policy != RingPolicy::plain && config_.rate == 0) {
    uint64_t room = 0;
    for (const uint32_t id : order_)
      if (const uint64_t load = members_[id].size(); nodes_[id].serving() && nodes_[id].cap > load)
        room += nodes_[id].cap - load;
    more = std::min(more, room);
  }
  if (more == 0 || serving_ == 0) return;
  map_.reserve(map_.size() + more);
  double weights = 0;
  for (const uint32_t id : order_) weights += nodes_[id].serving() ? nodes_[id].weight : 0;
  for (const uint32_t id : order_) {
    if (!nodes_[id].serving()) continue;
    const double part = static_cast<double>(more) * (nodes_[id].weight / weights);
    if (part > 64) members_[id].reserve(members_[id].size() + static_cast<uint64_t>(part + 2 * std::sqrt(part)));
  }
}

void Ring::release_all() {
  map_.clear();
  for (Node& node : nodes_) std::vector<uint64_t>().swap(node.away);
  for (std::vector<uint64_t>& each : members_) std::vector<uint64_t>().swap(each);
  std::unordered_map<uint64_t, uint32_t>().swap(homes_);
}

void Ring::settle_lazily(KeyMapEntry& entry) {
  const uint32_t now = entry.node - 1;
  if (!nodes_[now].serving()) return;
  const Room r = room(map_.size());
  uint32_t to = kNone;
  walk(entry.digest, [&](uint32_t id) {
    if (id == now) return true;
    if (!nodes_[id].lazy || !takes(r, id, members_[id].size())) return false;
    to = id;
    return true;
  });
  if (to != kNone) move(entry, to, lazy_moves_);
}

// ---- slots ----------------------------------------------------------------------------------------------

void Ring::reserve_slots(uint64_t taken, uint64_t freed) {
  if (dense()) {
    make_room(slots_, taken);
    make_capacity(routes_, slots_.size() + taken);
    make_room(free_, freed);
  } else {
    make_room(circle_, taken);
  }
  if (config_.policy == RingPolicy::rehash_bin) make_capacity(second_, slots() + taken);
}

// `scratch` has room for all free slots and those that are missing.
void Ring::take_slots(uint32_t id, std::vector<uint32_t>& scratch) noexcept {
  Node& node = nodes_[id];
  const uint64_t wanted = slots_for(node.quanta);
  if (node.slots.size() >= wanted) return free_slots(id, wanted);
  uint64_t missing = wanted - node.slots.size();
  if (!dense()) {
    for (; missing > 0; --missing) {
      const uint64_t word = place_word(*node.name, config_.seed, node.slots.size());
      uint32_t place;
      for (uint64_t t = 0;; ++t) {
        place = static_cast<uint32_t>(splitmix(word, t) >> (64 - config_.array_bits));
        if (places_[place] == kNone) break;
      }
      places_[place] = id;
      circle_.insert(std::lower_bound(circle_.begin(), circle_.end(), place), place);
      node.slots.push_back(place);
    }
    return;
  }
  std::vector<uint32_t>& own = scratch;
  for (const FreeSlot& each : free_)
    if (*each.name == *node.name) own.push_back(each.slot);
  std::sort(own.begin(), own.end());
  own.resize(std::min<uint64_t>(own.size(), missing));
  std::erase_if(free_, [&](const FreeSlot& each) { return std::binary_search(own.begin(), own.end(), each.slot); });
  missing -= own.size();
  const auto oldest = static_cast<ptrdiff_t>(std::min<uint64_t>(missing, free_.size()));
  for (auto each = free_.begin(); each != free_.begin() + oldest; ++each) own.push_back(each->slot);
  free_.erase(free_.begin(), free_.begin() + oldest);
  for (uint64_t i = static_cast<uint64_t>(oldest); i < missing; ++i) {
    own.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.push_back(kNone);
  }
  for (const uint32_t slot : own) {
    slots_[slot] = id;
    node.slots.push_back(slot);
  }
}

void Ring::free_slots(uint32_t id, uint64_t keep) noexcept {
  Node& node = nodes_[id];
  const auto first = node.slots.begin() + static_cast<ptrdiff_t>(keep);
  std::sort(first, node.slots.end());
  for (auto slot = first; slot != node.slots.end(); ++slot) {
    if (dense()) {
      slots_[*slot] = kNone;
      free_.push_back({*slot, node.name});
    } else {
      places_[*slot] = kNone;
      circle_.erase(std::lower_bound(circle_.begin(), circle_.end(), *slot));
    }
  }
  node.slots.resize(keep);
}

void Ring::unfree_slots(uint32_t id, std::vector<uint32_t> slots) noexcept {
  for (const uint32_t slot : slots) {
    if (dense()) {
      slots_[slot] = id;
      free_.pop_back();  // they are the last that came
    } else {
      places_[slot] = id;
      circle_.insert(std::lower_bound(circle_.begin(), circle_.end(), slot), slot);
    }
  }
  nodes_[id].slots = std::move(slots);
}

void Ring::changed() noexcept {
  ++version_;
  serving_ = lazy_ = 0;
  even_ = true;
  even_from_ = 1, even_to_ = 0;
  constexpr int kDigits = 48;  // of a part: 10^48 < 2^160
  int finest = 1000, magnitude = -1000;
  const Node* other = nullptr;
  for (uint32_t rank = 0; rank < order_.size(); ++rank) {
    Node& node = nodes_[order_[rank]];
    node.rank = rank;
    if (!node.serving()) continue;
    ++serving_;
    lazy_ += node.lazy;
    even_ = even_ && (other == nullptr || node.weight == other->weight);
    other = &node;
    finest = std::min(finest, node.decimal.exponent);
    magnitude = std::max(magnitude, node.decimal.magnitude);
  }
  finest = std::max(finest, magnitude - kDigits);  // of a file with weights that differ more than the class allows
  total_ = Wide();
  for (const uint32_t id : order_) {
    Node& node = nodes_[id];
    if (!node.serving()) continue;
    node.part = even_ ? Wide(1) : in_units(node.decimal, finest);
    parts_[id] = node.part.low();
    total_ += node.part;
  }
  narrow_ = total_.below(uint64_t{1} << 41);  // times a rate below 2^50 and 2^36 keys
  fast_ = dense() && draws_on() && serving_ != 0;
  if (dense()) {
    routes_.assign(slots_.size(), kNone);
    for (const uint32_t id : order_) {
      const Node& node = nodes_[id];
      if (!node.serving()) continue;
      for (const uint32_t slot : node.slots) routes_[slot] = id;
      if (fraction(node) != kWhole) routes_[node.slots.back()] = kNone - 1;
    }
  }
  if (config_.policy == RingPolicy::rehash_bin) {
    second_.clear();
    for (const uint32_t id : order_) second_.insert(second_.end(), nodes_[id].slots.begin(), nodes_[id].slots.end());
    std::sort(second_.begin(), second_.end(), [&](uint32_t a, uint32_t b) { return comes_before(a, b); });
  }
}

bool Ring::comes_before(uint32_t a, uint32_t b) const {
  const auto key = [&](uint32_t s) { return std::pair(splitmix(config_.seed ^ kSecond, s), s); };
  return key(a) < key(b);
}

// ---- churn ----------------------------------------------------------------------------------------------

void Ring::reserve_ids(uint64_t more) {
  make_room(nodes_, more);
  make_room(parts_, more);
  make_room(members_, more);
  make_room(order_, more);
  make_capacity(free_ids_, nodes_.size() + more);
}

uint32_t Ring::new_id() noexcept {
  if (!free_ids_.empty()) {
    const uint32_t id = free_ids_.back();
    free_ids_.pop_back();
    return id;
  }
  nodes_.emplace_back();
  parts_.push_back(0);
  members_.emplace_back();
  return static_cast<uint32_t>(nodes_.size() - 1);
}

void Ring::release_id(uint32_t id) noexcept {
  Node dead;
  dead.label = nodes_[id].label;  // moves off it may still be told
  nodes_[id] = std::move(dead);
  std::vector<uint64_t>().swap(members_[id]);
  free_ids_.push_back(id);
}

void Ring::check_ratio(uint32_t but, double weight) const {
  double least = weight, most = weight;
  for (const uint32_t id : order_)
    if (id != but) {
      least = std::min(least, nodes_[id].weight);
      most = std::max(most, nodes_[id].weight);
    }
  if (most / least <= kMaxRatio) return;
  char text[120];
  std::snprintf(text, sizeof text, "weights of one ring must differ by a factor of at most 1e30; got %g and %g", least,
                most);
  throw std::invalid_argument(text);
}

uint32_t Ring::make_node(NewNode wanted, uint64_t occupied) {
  if (by_name_.contains(wanted.name)) throw std::invalid_argument("the ring has a node '" + wanted.name + "' already");
  const uint64_t most = dense() ? kMaxSlots : (uint64_t{1} << config_.array_bits) / 2;
  const uint64_t count = slots_for(wanted.quanta);
  occupied += count;
  if (order_.size() >= kMaxNodes || occupied > most)
    throw std::invalid_argument("with node '" + wanted.name + "' the ring would have " + std::to_string(occupied) +
                                " slots; it can have " + std::to_string(most) +
                                ". Use fewer copies, or weights that differ less");
  Node node;
  node.name = std::make_shared<const std::string>(std::move(wanted.name));
  node.weight = wanted.weight;
  node.decimal = shortest_decimal(wanted.weight);
  node.quanta = wanted.quanta;
  node.cap = wanted.cap;
  node.live = true;
  node.label = wanted.label;
  node.slots.reserve(count);
  std::vector<uint32_t> scratch;
  scratch.reserve(count + free_.size());
  reserve_ids(1);
  reserve_slots(count, 0);
  const auto place = by_name_.emplace(*node.name, kNone).first;
  const uint32_t id = place->second = new_id();
  order_.push_back(id);
  nodes_[id] = std::move(node);
  take_slots(id, scratch);
  return id;
}

uint32_t Ring::add_node(NewNode node, bool lazy, RingMoves& moves) {
  check_ratio(kNone, node.weight);
  const uint32_t id = make_node(std::move(node), slots() - free_.size());
  nodes_[id].lazy = lazy;
  changed();
  if (!lazy) pull(id, moves);
  return id;
}

void Ring::add_nodes(std::vector<NewNode> nodes) {
  for (NewNode& each : nodes) make_node(std::move(each), slots() - free_.size());
  for (const uint32_t id : order_)
    if (nodes_[id].weight != nodes_[order_[0]].weight) {
      const auto less = [&](uint32_t a, uint32_t b) { return nodes_[a].weight < nodes_[b].weight; };
      check_ratio(kNone, nodes_[*std::max_element(order_.begin(), order_.end(), less)].weight);
      break;
    }
  changed();
}

void Ring::pull(uint32_t target, RingMoves& moves) {
  if (map_.size() == 0 || !nodes_[target].serving()) return;
  const Room r = room(map_.size());
  for (const uint32_t now : order_) {
    if (now == target || !nodes_[now].serving()) continue;
    const std::vector<uint64_t> members = members_[now];
    for (const uint64_t digest : members) {
      if (!takes(r, target, members_[target].size())) return;
      bool meets = false;
      walk(digest, [&](uint32_t id) {
        meets = id == target;
        return meets || id == now;
      });
      if (meets) move(*map_.find(digest), target, moves);
    }
  }
}

void Ring::forget_home(uint32_t id) noexcept {
  for (const uint64_t digest : nodes_[id].away)
    if (const auto home = homes_.find(digest); home != homes_.end() && home->second == id) homes_.erase(home);
  nodes_[id].away.clear();
}

void Ring::remove_node(uint32_t id, RingMoves& moves) {
  Node& node = nodes_[id];
  if (!members_[id].empty()) {
    uint64_t others = 0, free_room = 0;
    for (const uint32_t each : order_)
      if (each != id && nodes_[each].serving()) {
        ++others;
        const uint64_t load = members_[each].size(), cap = nodes_[each].cap;
        free_room += cap > load ? cap - load : 0;
      }
    const std::string keys = std::to_string(members_[id].size()) + " keys of node '" + *node.name + "'";
    if (others == 0)
      throw NoNodes("no other node serves that could take the " + keys + ": release them first; nothing was changed");
    if (config_.policy != RingPolicy::plain && config_.rate == 0 && free_room < members_[id].size())
      throw RingFull("the other nodes have room for " + std::to_string(free_room) + " keys, not for the " + keys +
                     ": add a node first; nothing was changed");
  }
  const std::vector<uint64_t> members = members_[id];
  std::vector<uint32_t> slots = node.slots;
  reserve_slots(0, slots.size());
  const Counters counted = counters_;
  const uint64_t at_once = at_once_, version = version_;
  const size_t made = moves.size();

  node.live = false;
  leases_ -= node.leases;  // those under way end by themselves
  lease_load_ -= node.lease_load;
  free_slots(id, 0);
  auto name = by_name_.extract(*node.name);
  order_.erase(order_.begin() + node.rank);
  changed();
  try {
    for (const uint64_t digest : members) {
      const uint32_t to = place(digest, map_.size());
      if (to == kNone) throw RingFull(full_text("keys"));
      move(*map_.find(digest), to, moves);
    }
  } catch (...) {
    undo_moves(moves, made);
    for (size_t i = 0; i < members.size(); ++i) {  // in the order that they had
      members_[id][i] = members[i];
      map_.find(members[i])->position = static_cast<uint32_t>(i);
    }
    node.live = true;
    leases_ += node.leases;
    lease_load_ += node.lease_load;
    unfree_slots(id, std::move(slots));
    by_name_.insert(std::move(name));
    order_.insert(order_.begin() + node.rank, id);
    changed();
    counters_ = counted;
    at_once_ = at_once;
    version_ = version;
    throw;
  }
  forget_home(id);
  if (node.leases == 0) release_id(id);
}

void Ring::drain(uint32_t id) {
  nodes_[id].draining = true;
  changed();
}

void Ring::mark_down(uint32_t id, RingMoves& moves) {
  Node& node = nodes_[id];
  const std::vector<uint64_t> members = members_[id];
  make_room(node.away, members.size());
  node.down = true;
  changed();
  for (const uint64_t digest : members) {
    const uint32_t to = place(digest, map_.size());
    if (to == kNone) continue;
    const bool is_home = homes_.emplace(digest, id).second;  // an older home stays
    try {
      move(*map_.find(digest), to, moves);
    } catch (...) {
      if (is_home) homes_.erase(digest);
      throw;
    }
    if (is_home) node.away.push_back(digest);
  }
}

void Ring::mark_up(uint32_t id, RingMoves& moves) {
  Node& node = nodes_[id];
  if (node.serving()) return;
  node.down = node.draining = false;
  changed();
  const Room r = room(map_.size());
  std::vector<uint64_t> away = std::exchange(node.away, {});
  std::erase_if(away, [&](uint64_t digest) {
    const auto home = homes_.find(digest);
    if (home == homes_.end() || home->second != id) return true;
    homes_.erase(home);
    return false;
  });
  for (const uint64_t digest : away)
    if (takes(r, id, members_[id].size())) move(*map_.find(digest), id, moves);
}

void Ring::set_weight(uint32_t id, double weight, uint64_t quanta, uint64_t cap, RingMoves& moves) {
  Node& node = nodes_[id];
  const uint64_t most = dense() ? kMaxSlots : (uint64_t{1} << config_.array_bits) / 2;
  const uint64_t count = slots_for(quanta), before = node.slots.size();
  uint64_t occupied = count;
  for (const uint32_t each : order_)
    if (each != id) occupied += nodes_[each].slots.size();
  if (occupied > most)
    throw std::invalid_argument("with this weight the ring would have " + std::to_string(occupied) +
                                " slots; it can have " + std::to_string(most));
  check_ratio(id, weight);
  const bool grows = weight > node.weight;
  std::vector<uint64_t> first_here;
  if (!grows)
    for (const uint64_t digest : members_[id])
      if (first(digest) == id) first_here.push_back(digest);
  std::vector<uint32_t> scratch;
  scratch.reserve(count + free_.size());
  node.slots.reserve(count);
  reserve_slots(count > before ? count - before : 0, before > count ? before - count : 0);
  node.weight = weight;
  node.decimal = shortest_decimal(weight);
  node.quanta = quanta;
  node.cap = cap;
  take_slots(id, scratch);
  changed();
  if (grows) return pull(id, moves);
  for (const uint64_t digest : first_here) {
    if (first(digest) == id) continue;
    const uint32_t to = place(digest, map_.size(), id);
    if (to != kNone) move(*map_.find(digest), to, moves);  // to itself: it goes to the end of the members
  }
}

void Ring::rebalance(uint64_t most, RingMoves& moves) {
  if (config_.policy == RingPolicy::plain) return;
  const Room r = room(map_.size());
  for (const uint32_t id : order_) {
    if (!nodes_[id].serving()) continue;
    const uint64_t limit = limit_of(id, map_.size());
    for (int pass = 1; pass <= 2; ++pass) {
      std::vector<uint64_t>& members = members_[id];
      for (size_t i = members.size(); i-- > 0 && members.size() > limit && moves.size() < most;) {
        const uint64_t digest = members[i];
        if (pass == 1 && first(digest) == id) continue;
        uint32_t to = kNone;
        walk(digest, [&](uint32_t other) {
          if (other == id || !takes(r, other, members_[other].size())) return false;
          to = other;
          return true;
        });
        if (to != kNone) move(*map_.find(digest), to, moves);
      }
    }
  }
}

void Ring::compact(RingMoves& moves) {
  if (dense()) renumber();
  changed();
  const Room r = room(map_.size());
  for (const uint32_t now : order_) {
    if (!nodes_[now].serving()) continue;
    const std::vector<uint64_t> members = members_[now];
    for (const uint64_t digest : members) {
      uint32_t to = kNone;
      walk(digest, [&](uint32_t id) {
        if (id == now) return true;
        if (!takes(r, id, members_[id].size())) return false;
        to = id;
        return true;
      });
      if (to != kNone) move(*map_.find(digest), to, moves);
    }
  }
}

void Ring::renumber() {
  std::vector<uint32_t> gaps, high;
  const uint64_t occupied = slots_.size() - free_.size();
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slot < occupied && slots_[slot] == kNone) gaps.push_back(slot);
    if (slot >= occupied && slots_[slot] != kNone) high.push_back(slot);
  }
  for (size_t i = 0; i < high.size(); ++i) {
    const uint32_t id = slots_[high[i]];
    std::vector<uint32_t>& own = nodes_[id].slots;
    *std::find(own.begin(), own.end(), high[i]) = gaps[i];
    slots_[gaps[i]] = id;
  }
  slots_.resize(occupied);
  free_.clear();
}

// ---- leases ---------------------------------------------------------------------------------------------

template <typename HasRoom>
uint32_t Ring::first_with_room(uint64_t digest, HasRoom&& has_room) const {
  uint32_t found = kNone;
  if (!visits_are_dear() || !none_takes(has_room))
    walk(digest, [&](uint32_t id) {
      if (has_room(id)) found = id;
      return found != kNone;
    });
  return found;
}

uint32_t Ring::count_lease(uint32_t id, uint64_t load) {
  ++nodes_[id].leases;
  ++leases_;
  nodes_[id].lease_load += load;
  lease_load_ += load;
  return id;
}

uint32_t Ring::lease(uint64_t digest, const uint32_t* avoid, size_t avoided) {
  require_serving();
  const Room r = room(leases_ + 1);
  const uint32_t found = first_with_room(digest, [&](uint32_t id) {
    return takes(r, id, nodes_[id].leases) && std::find(avoid, avoid + avoided, id) == avoid + avoided;
  });
  if (found == kNone || lease_load_ >= kMostLeaseLoad - kLeaseUnit)
    throw RingFull(avoided == 0 ? full_text("leases") : "every serving node is avoided or at its limit of leases");
  if (audit_.on) audit_placement(found, leases_ + 1, nodes_[found].leases);
  return count_lease(found, kLeaseUnit);
}

bool Ring::takes_load(uint32_t id, uint64_t load) const {
  if (config_.policy == RingPolicy::plain) return true;
  const uint64_t after = nodes_[id].lease_load + load;
  if (config_.rate == 0) return after / kLeaseUnit + (after % kLeaseUnit != 0) <= nodes_[id].cap;
  const Wide most = nodes_[id].part * (static_cast<uint128>(config_.rate) * (lease_load_ + load));
  return !(most < total_ * (static_cast<uint128>(kBillion) * after));
}

uint32_t Ring::lease(uint64_t digest, uint64_t load, const uint32_t* avoid, size_t avoided) {
  require_serving();
  if (load >= kMostLeaseLoad - lease_load_)
    throw RingFull("the weights of all leases together would be 2^63 millionths or more; nothing was changed");
  const auto is_avoided = [&](uint32_t id) { return std::find(avoid, avoid + avoided, id) != avoid + avoided; };
  if (const uint32_t found =
          first_with_room(digest, [&](uint32_t id) { return !is_avoided(id) && takes_load(id, load); });
      found != kNone) {
    audit_.placements += audit_.on;
    audit_.broken += audit_.on && !may_lease(found, load);
    return count_lease(found, load);
  }
  uint32_t least = kNone;
  for (const uint32_t id : order_) {
    if (!nodes_[id].serving() || is_avoided(id)) continue;
    if (least == kNone || nodes_[least].part * nodes_[id].lease_load < nodes_[id].part * nodes_[least].lease_load)
      least = id;
  }
  if (least == kNone || config_.rate == 0)
    throw RingFull(avoided == 0 ? full_text("leases") : "every serving node is avoided or at its limit of leases");
  if (audit_.on) {
    ++audit_.placements;
    audit_.broken +=
        std::any_of(order_.begin(), order_.end(), [&](uint32_t id) { return !is_avoided(id) && may_lease(id, load); });
  }
  ++forced_leases_;
  return count_lease(least, load);
}

void Ring::unlease(uint32_t id, uint64_t load) {
  Node& node = nodes_[id];
  leases_ -= node.live;
  lease_load_ -= node.live ? load : 0;
  node.lease_load -= load;
  if (--node.leases == 0 && !node.live) release_id(id);
}

uint64_t Ring::nbytes() const {
  constexpr uint64_t kListNode = 16;  // of a hash table, beside its content
  uint64_t bytes = sizeof(Ring) + map_.nbytes() +
                   4 * (slots_.capacity() + routes_.capacity() + places_.capacity() + circle_.capacity() +
                        second_.capacity() + free_ids_.capacity() + order_.capacity());
  bytes += sizeof(FreeSlot) * free_.capacity() + 8 * parts_.capacity() + sizeof(RingMove) * lazy_moves_.capacity();
  bytes += 8 * by_name_.bucket_count() + (sizeof(std::string_view) + 8 + kListNode) * by_name_.size();
  bytes += 8 * homes_.bucket_count() + (16 + kListNode) * homes_.size();
  bytes += sizeof(Node) * nodes_.capacity() + sizeof(std::vector<uint64_t>) * members_.capacity();
  const auto name_bytes = [](const std::shared_ptr<const std::string>& name) -> uint64_t {
    return name == nullptr ? 0 : sizeof(std::string) + kListNode + name->capacity();
  };
  for (const Node& node : nodes_) bytes += name_bytes(node.name) + 4 * node.slots.capacity() + 8 * node.away.capacity();
  const std::string* last = nullptr;  // slots freed together share a name
  for (const FreeSlot& each : free_)
    if (each.name.get() != std::exchange(last, each.name.get())) bytes += name_bytes(each.name);
  for (const std::vector<uint64_t>& each : members_) bytes += 8 * each.capacity();
  return bytes;
}

}  // namespace evenbins

#include "evenbins/ring.hpp"

#include <algorithm>

#include "evenbins/xxh3.hpp"

namespace evenbins {
namespace {

constexpr uint64_t kTail = 0x7A3D5C19E2B84F61, kSecond = 0x51ED270B9F3A6C85;
constexpr uint64_t kMostDraws = uint64_t{1} << 27;  // in a sparse array, before the tail: some seconds at most

uint64_t place_word(std::string_view name, uint64_t seed, uint64_t copy) {
  return splitmix(xxh3_64(name.data(), name.size(), seed), copy);
}

}  // namespace

Ring::Ring(RingConfig config) : config_(config) {
  if (!dense()) places_.assign(size_t{1} << config_.array_bits, kNone);
}

uint32_t Ring::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
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
    index = second_index_.at(slot);
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
  return static_cast<uint64_t>((r.right * quanta_[id] + r.left - 1) / r.left);
}

void Ring::require_serving() const {
  if (serving_ == 0)
    throw NoNodes(order_.empty() ? "the ring has no nodes: add one with add_node"
                                 : "no node of the ring serves: all are down or drained. Use mark_up or add_node");
}

std::string Ring::full_text(const char* what) const {
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
  const unsigned __int128 nodes = static_cast<unsigned __int128>(kBillion) * serving_;
  const unsigned __int128 limit = (static_cast<unsigned __int128>(config_.rate) * n + nodes - 1) / nodes;
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

void Ring::put(KeyMapEntry& entry, uint32_t id) {
  entry.node = id + 1;
  entry.position = static_cast<uint32_t>(members_[id].size());
  members_[id].push_back(entry.digest);
}

void Ring::take_out(KeyMapEntry& entry) {
  std::vector<uint64_t>& members = members_[entry.node - 1];
  if (const uint64_t last = members.back(); last != entry.digest) {
    members[entry.position] = last;
    map_.find(last)->position = entry.position;
  }
  members.pop_back();
}

void Ring::judge(uint32_t id, uint64_t n, uint64_t load) {
  ++audit_.placements;
  uint64_t total = 0;
  for (const uint32_t each : order_) total += nodes_[each].serving() ? nodes_[each].quanta : 0;
  const Node& node = nodes_[id];
  bool allowed = node.serving();
  if (config_.policy != RingPolicy::plain && config_.rate == 0) allowed = allowed && load + 1 <= node.cap;
  if (audit_.rate != 0) {
    const unsigned __int128 whole = static_cast<unsigned __int128>(kBillion) * total;
    const unsigned __int128 share = static_cast<unsigned __int128>(audit_.rate) * n * node.quanta;
    allowed = allowed && load + 1 <= static_cast<uint64_t>(share / whole + (share % whole != 0));
  }
  audit_.broken += !allowed;
}

void Ring::move(KeyMapEntry& entry, uint32_t to, RingMoves& moves) {
  if (audit_.on) judge(to, map_.size(), members_[to].size() - (entry.node - 1 == to));
  if (entry.node - 1 != to) {
    moves.push_back({entry.digest, entry.node - 1, to});
    ++counters_.moved;
  }
  take_out(entry);
  put(entry, to);
}

uint32_t Ring::assign(uint64_t digest) {
  KeyMapEntry* entry = map_.probe(digest);
  if (entry->node != 0) {
    if (lazy_ != 0) settle_lazily(*entry);
    return entry->node - 1;
  }
  if (map_.size() >= kMaxKeys) throw RingFull("a ring holds at most 2^36 keys");
  require_serving();
  const uint32_t id = place(digest, map_.size() + 1);
  if (id == kNone) throw RingFull(full_text("keys"));
  if (audit_.on) judge(id, map_.size() + 1, members_[id].size());
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

void Ring::reserve(uint64_t more) {
  map_.reserve(map_.size() + more);
  if (serving_ == 0 || more < 64 * serving_) return;
  for (const uint32_t id : order_) {
    if (!nodes_[id].serving()) continue;
    const double share = static_cast<double>(quanta_[id]) / static_cast<double>(serving_quanta_);
    members_[id].reserve(members_[id].size() + static_cast<size_t>(1.05 * share * static_cast<double>(more)) + 16);
  }
}

void Ring::release_all() {
  map_.clear();
  for (Node& node : nodes_) {
    node.away.clear();
  }
  for (std::vector<uint64_t>& each : members_) each.clear();
  homes_.clear();
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

void Ring::take_slots(uint32_t id) {
  Node& node = nodes_[id];
  const uint64_t wanted = slots_for(node.quanta);
  if (node.slots.size() >= wanted) return free_slots(id, wanted);
  uint64_t missing = wanted - node.slots.size();
  if (!dense()) {
    for (; missing > 0; --missing) {
      const uint64_t word = place_word(node.name, config_.seed, node.slots.size());
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
  std::vector<uint32_t> own;
  for (const FreeSlot& each : free_)
    if (each.name == node.name) own.push_back(each.slot);
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

void Ring::free_slots(uint32_t id, uint64_t keep) {
  Node& node = nodes_[id];
  std::vector<uint32_t> freed(node.slots.begin() + static_cast<ptrdiff_t>(keep), node.slots.end());
  node.slots.resize(keep);
  std::sort(freed.begin(), freed.end());
  for (const uint32_t slot : freed) {
    if (dense()) {
      slots_[slot] = kNone;
      free_.push_back({slot, node.name});
    } else {
      places_[slot] = kNone;
      circle_.erase(std::lower_bound(circle_.begin(), circle_.end(), slot));
    }
  }
}

void Ring::changed() {
  ++version_;
  serving_ = serving_quanta_ = lazy_ = 0;
  even_quanta_ = true;
  even_from_ = 1, even_to_ = 0;
  uint64_t quanta = 0;
  for (uint32_t rank = 0; rank < order_.size(); ++rank) {
    Node& node = nodes_[order_[rank]];
    node.rank = rank;
    if (!node.serving()) continue;
    if (++serving_ == 1) quanta = node.quanta;
    even_quanta_ = even_quanta_ && node.quanta == quanta;
    serving_quanta_ += node.quanta;
    lazy_ += node.lazy;
  }
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
    const auto key = [&](uint32_t s) { return std::pair(splitmix(config_.seed ^ kSecond, s), s); };
    std::sort(second_.begin(), second_.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    second_index_.clear();
    for (uint32_t i = 0; i < second_.size(); ++i) second_index_[second_[i]] = i;
  }
}

// ---- churn ----------------------------------------------------------------------------------------------

uint32_t Ring::new_id() {
  if (!free_ids_.empty()) {
    const uint32_t id = free_ids_.back();
    free_ids_.pop_back();
    return id;
  }
  nodes_.emplace_back();
  quanta_.push_back(0);
  members_.emplace_back();
  return static_cast<uint32_t>(nodes_.size() - 1);
}

uint32_t Ring::make_node(NewNode wanted, uint64_t occupied) {
  if (by_name_.contains(wanted.name)) throw std::invalid_argument("the ring has a node '" + wanted.name + "' already");
  const uint64_t most = dense() ? kMaxSlots : (uint64_t{1} << config_.array_bits) / 2;
  occupied += slots_for(wanted.quanta);
  if (order_.size() >= kMaxNodes || occupied > most)
    throw std::invalid_argument("with node '" + wanted.name + "' the ring would have " + std::to_string(occupied) +
                                " slots; it can have " + std::to_string(most) +
                                ". Use fewer copies, or weights that differ less");
  const uint32_t id = new_id();
  by_name_.emplace(wanted.name, id);
  order_.push_back(id);
  Node& node = nodes_[id];
  node = Node{};
  node.name = std::move(wanted.name);
  node.weight = wanted.weight;
  node.quanta = quanta_[id] = wanted.quanta;
  node.cap = wanted.cap;
  node.live = true;
  node.label = wanted.label;
  take_slots(id);
  return id;
}

uint32_t Ring::add_node(NewNode node, bool lazy, RingMoves& moves) {
  const uint32_t id = make_node(std::move(node), slots() - free_.size());
  nodes_[id].lazy = lazy;
  changed();
  if (!lazy) pull(id, moves);
  return id;
}

void Ring::add_nodes(std::vector<NewNode> nodes) {
  for (NewNode& each : nodes) make_node(std::move(each), slots() - free_.size());
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

void Ring::forget_home(uint32_t id) {
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
    const std::string keys = std::to_string(members_[id].size()) + " keys of node '" + node.name + "'";
    if (others == 0)
      throw NoNodes("no other node serves that could take the " + keys + ": release them first; nothing was changed");
    if (config_.policy != RingPolicy::plain && config_.rate == 0 && free_room < members_[id].size())
      throw RingFull("the other nodes have room for " + std::to_string(free_room) + " keys, not for the " + keys +
                     ": add a node first; nothing was changed");
  }
  forget_home(id);
  node.live = false;
  leases_ -= node.leases;  // those under way end by themselves
  free_slots(id, 0);
  by_name_.erase(node.name);
  std::erase(order_, id);
  changed();
  const std::vector<uint64_t> members = members_[id];
  for (const uint64_t digest : members) {
    const uint32_t to = place(digest, map_.size());
    move(*map_.find(digest), to, moves);
  }
  if (node.leases == 0) free_ids_.push_back(id);
}

void Ring::drain(uint32_t id) {
  nodes_[id].draining = true;
  changed();
}

void Ring::mark_down(uint32_t id, RingMoves& moves) {
  Node& node = nodes_[id];
  node.down = true;
  changed();
  const std::vector<uint64_t> members = members_[id];
  for (const uint64_t digest : members) {
    const uint32_t to = place(digest, map_.size());
    if (to == kNone) continue;
    if (homes_.emplace(digest, id).second) node.away.push_back(digest);  // an older home stays
    move(*map_.find(digest), to, moves);
  }
}

void Ring::mark_up(uint32_t id, RingMoves& moves) {
  Node& node = nodes_[id];
  if (node.serving()) return;
  node.down = node.draining = false;
  changed();
  const Room r = room(map_.size());
  const std::vector<uint64_t> away = std::exchange(node.away, {});
  for (const uint64_t digest : away) {
    const auto home = homes_.find(digest);
    if (home == homes_.end() || home->second != id) continue;
    homes_.erase(home);
    if (takes(r, id, members_[id].size())) move(*map_.find(digest), id, moves);
  }
}

void Ring::set_weight(uint32_t id, double weight, uint64_t quanta, uint64_t cap, RingMoves& moves) {
  Node& node = nodes_[id];
  const uint64_t most = dense() ? kMaxSlots : (uint64_t{1} << config_.array_bits) / 2;
  uint64_t occupied = slots_for(quanta);
  for (const uint32_t each : order_)
    if (each != id) occupied += nodes_[each].slots.size();
  if (occupied > most)
    throw std::invalid_argument("with this weight the ring would have " + std::to_string(occupied) +
                                " slots; it can have " + std::to_string(most));
  const bool grows = quanta > node.quanta;
  std::vector<uint64_t> first_here;
  if (quanta < node.quanta)
    for (const uint64_t digest : members_[id])
      if (first(digest) == id) first_here.push_back(digest);
  node.weight = weight;
  node.quanta = quanta_[id] = quanta;
  node.cap = cap;
  take_slots(id);
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

uint32_t Ring::lease(uint64_t digest, const uint32_t* avoid, size_t avoided) {
  require_serving();
  const Room r = room(leases_ + 1);
  const auto has_room = [&](uint32_t id) {
    return takes(r, id, nodes_[id].leases) && std::find(avoid, avoid + avoided, id) == avoid + avoided;
  };
  uint32_t found = kNone;
  if (!visits_are_dear() || !none_takes(has_room))
    walk(digest, [&](uint32_t id) {
      if (has_room(id)) found = id;
      return found != kNone;
    });
  if (found == kNone)
    throw RingFull(avoided == 0 ? full_text("leases") : "every serving node is avoided or at its limit of leases");
  if (audit_.on) judge(found, leases_ + 1, nodes_[found].leases);
  ++nodes_[found].leases;
  ++leases_;
  return found;
}

void Ring::unlease(uint32_t id) {
  leases_ -= nodes_[id].live;
  if (--nodes_[id].leases == 0 && !nodes_[id].live) free_ids_.push_back(id);
}

uint64_t Ring::nbytes() const {
  uint64_t bytes = map_.nbytes() + 4 * (slots_.capacity() + routes_.capacity() + places_.capacity() +
                                        circle_.capacity() + second_.capacity());
  for (const Node& node : nodes_)
    bytes += sizeof(Node) + node.name.capacity() + 4 * node.slots.capacity() + 8 * node.away.capacity();
  for (const std::vector<uint64_t>& each : members_) bytes += sizeof each + 8 * each.capacity();
  return bytes;
}

}  // namespace evenbins

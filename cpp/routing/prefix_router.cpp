#include "evenbins/prefix_router.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace evenbins {

namespace {

// The work of the blocks that a node lacks; the last one is never for nothing.
double missing_work(double work, size_t n, uint32_t depth) {
  if (n == 0) return work;
  return work * static_cast<double>(n - std::min<size_t>(depth, n - 1)) / static_cast<double>(n);
}

}  // namespace

// --- nodes -----------------------------------------------------------------------------------------------------------

void PrefixRouter::reserve(uint32_t nodes) {
  while (nodes > 0) {
    const uint32_t count = std::min(nodes, BlockIndex::kMostNodes);
    indexes_.push_back(std::make_unique<BlockIndex>(count, rules_.cache_blocks));
    places_.emplace_back(count);
    active_.push_back(0);
    nodes -= count;
  }
}

uint32_t PrefixRouter::add_node(double weight) {
  int number = -1;
  uint32_t index = 0;
  while (index < indexes_.size() && (number = indexes_[index]->add_node()) < 0) ++index;
  if (number < 0) {
    const auto half = static_cast<uint32_t>((order_.size() + 1) / 2);
    reserve(std::clamp(half, 1u, BlockIndex::kMostNodes));
    number = indexes_[index]->add_node();
  }
  uint32_t place = 0;
  while (place < nodes_.size() && nodes_[place].id != 0) ++place;
  if (place == nodes_.size()) nodes_.emplace_back();
  Node& node = nodes_[place];
  node = Node();
  node.id = ++ids_ << kPlaceBits | place;
  node.weight = weight;
  node.index = index;
  node.number = static_cast<uint32_t>(number);
  places_[index][node.number] = place;
  order_.push_back(place);
  update_serving();
  return place;
}

void PrefixRouter::remove_node(uint32_t place) {
  Node& node = nodes_[place];
  indexes_[node.index]->remove_node(node.number);
  node.id = 0;
  std::erase(order_, place);
  update_serving();
}

void PrefixRouter::set_serving(uint32_t place, bool serves) {
  nodes_[place].serves = serves;
  update_serving();
}

void PrefixRouter::update_serving() {
  serving_.clear();
  for (const uint32_t place : order_)
    if (nodes_[place].serves) serving_.push_back(place);
}

// --- requests --------------------------------------------------------------------------------------------------------

bool PrefixRouter::can_route(const std::vector<uint32_t>& avoid) {
  candidates_ = serving_;
  for (const uint32_t place : avoid) std::erase(candidates_, place);
  return !candidates_.empty();
}

Route PrefixRouter::route(const uint64_t* digests, size_t n, double work, const std::vector<uint32_t>& probes) {
  if (rules_.counts_requests) work = 1;
  find_depths(digests, n);
  Route route = choose(n, work, probes);
  Node& node = nodes_[route.place];
  route.depth = node.depth;
  route.load = rules_.counts_requests ? work : missing_work(work, n, node.depth);
  indexes_[node.index]->note(digests, n, node.number);
  node.load += route.load;
  ++node.requests;
  ++routed_;
  ++in_flight_;
  ++reasons_[static_cast<uint32_t>(route.reason)];
  return route;
}

void PrefixRouter::done(uint64_t id, double load) {
  --in_flight_;
  const auto place = static_cast<uint32_t>(id & ((uint64_t{1} << kPlaceBits) - 1));
  if (!has_node(place) || nodes_[place].id != id) return;  // it has left
  Node& node = nodes_[place];
  --node.requests;
  node.load = node.requests != 0 ? std::max(0.0, node.load - load) : 0.0;  // no rounding errors pile up
}

// How many first blocks each candidate holds.
void PrefixRouter::find_depths(const uint64_t* digests, size_t n) {
  std::fill(active_.begin(), active_.end(), 0);
  for (const uint32_t place : candidates_) {
    Node& node = nodes_[place];
    node.depth = 0;
    active_[node.index] |= uint64_t{1} << node.number;
  }
  const auto set_depths = [&](size_t index, uint64_t numbers, size_t depth) {
    for (; numbers != 0; numbers &= numbers - 1)
      nodes_[places_[index][static_cast<size_t>(std::countr_zero(numbers))]].depth = static_cast<uint32_t>(depth);
  };
  for (size_t i = 0; i < std::min(n, kAhead / 2); ++i) prefetch_more(digests[i]);
  bool any = true;
  for (size_t i = 0; i < n; ++i) {
    if (i + kAhead < n) prefetch(digests[i + kAhead]);
    if (i + kAhead / 2 < n) prefetch_more(digests[i + kAhead / 2]);
    if (!any) continue;
    any = false;
    for (size_t index = 0; index < indexes_.size(); ++index) {
      const uint64_t before = active_[index];
      if (before == 0) continue;
      const uint64_t held = before & indexes_[index]->holders(digests[i]);
      if (i > 0) set_depths(index, before & ~held, i);
      active_[index] = held;
      any |= held != 0;
    }
  }
  if (any && n > 0)
    for (size_t index = 0; index < indexes_.size(); ++index) set_depths(index, active_[index], n);
}

// Of equally good nodes the first one from here on is taken.
size_t PrefixRouter::first_candidate() const {
  return rules_.spreads ? splitmix(rules_.seed, routed_) % candidates_.size() : 0;
}

bool PrefixRouter::is_within_bound(const Node& node, double work) const {
  double loads = 0, weights = 0;
  for (const uint32_t place : candidates_) {
    loads += nodes_[place].load;
    weights += nodes_[place].weight;
  }
  return node.load < rules_.rate * (loads + work) * node.weight / weights;
}

// Of the candidates that hold so many blocks at least.
uint32_t PrefixRouter::least_loaded(uint32_t depth) const {
  const size_t first = first_candidate();
  uint32_t best = candidate(first);
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = first; i < first + candidates_.size(); ++i) {
    const Node& node = nodes_[candidate(i)];
    if (node.depth < depth) continue;
    if (const double load = node.load / node.weight; load < least) {
      least = load;
      best = candidate(i);
    }
  }
  return best;
}

Route PrefixRouter::choose(size_t n, double work, const std::vector<uint32_t>& probes) const {
  if (rules_.policy == RoutePolicy::hash && n > 0) {
    for (size_t i = 0; i < probes.size(); ++i)
      if (is_within_bound(nodes_[probes[i]], work))
        return {probes[i], 0, i == 0 ? RouteReason::hash : RouteReason::load, 0};
    return {least_loaded(0), 0, probes.empty() ? RouteReason::hash : RouteReason::load, 0};
  }
  uint32_t deepest = 0;
  for (const uint32_t place : candidates_) deepest = std::max(deepest, nodes_[place].depth);
  if (rules_.policy == RoutePolicy::score) {
    const size_t first = first_candidate();
    const double all = missing_work(work, n, 0);
    uint32_t best = candidate(first);
    double least = std::numeric_limits<double>::infinity(), least_load = least;
    for (size_t i = first; i < first + candidates_.size(); ++i) {
      const Node& node = nodes_[candidate(i)];
      const double score = (node.load + (node.depth == 0 ? all : missing_work(work, n, node.depth))) / node.weight;
      if (score > least) continue;
      const double load = node.load / node.weight;
      if (score < least || load < least_load) {
        least = score;
        least_load = load;
        best = candidate(i);
      }
    }
    return {best, 0,
            deepest == 0                    ? RouteReason::fresh
            : nodes_[best].depth == deepest ? RouteReason::prefix
                                            : RouteReason::load,
            0};
  }
  if (deepest > 0) {
    const uint32_t place = least_loaded(deepest);
    if (is_within_bound(nodes_[place], work)) return {place, 0, RouteReason::prefix, 0};
  }
  return {least_loaded(0), 0, deepest > 0 ? RouteReason::load : RouteReason::fresh, 0};
}

// --- what it knows ---------------------------------------------------------------------------------------------------

uint64_t PrefixRouter::entries() const {
  uint64_t total = 0;
  for (const auto& index : indexes_) total += index->entries();
  return total;
}

uint64_t PrefixRouter::nbytes() const {
  uint64_t total = sizeof(*this) + nodes_.capacity() * sizeof(Node);
  for (const auto& index : indexes_) total += index->nbytes();
  return total;
}

}  // namespace evenbins

// Which node gets a request: one that holds much of its prefix, and does not have too much to do.
//
//     digests ──index──▶ depth of the prefix at each node ──policy──▶ node ──▶ its load and its index grow
//
// The rules are those of evenbins/routing/router.py, and tests/reference/routing.py has them as a readable twin: sums are
// formed in the order of the nodes, so that both make the same choices to the last bit. Nodes are known by places, small
// numbers that are used again, and by ids, which are not. A block index has at most 64 nodes, so there may be several of
// them; the first ones are made for the nodes of the constructor, later ones for half as many nodes as there are.
//
// Not safe for threads: the bindings call it under the GIL, and nothing in it gives the GIL away.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "evenbins/block_index.hpp"

namespace evenbins {

enum class RoutePolicy : uint8_t { hash, prefix, score };
enum class RouteReason : uint8_t { prefix, hash, load, fresh };
inline constexpr uint32_t kRouteReasons = 4;

struct RouteRules {
  RoutePolicy policy;
  double rate;  // 1 + epsilon
  uint64_t cache_blocks;
  bool counts_requests, spreads;
  uint64_t seed;
};

struct Route {
  uint32_t place, depth;
  RouteReason reason;
  double load;
};

class PrefixRouter {
 public:
  explicit PrefixRouter(const RouteRules& rules) : rules_(rules) {}
  PrefixRouter(const PrefixRouter&) = delete;
  PrefixRouter& operator=(const PrefixRouter&) = delete;

  // Makes room for so many nodes in few indexes.
  void reserve(uint32_t nodes);
  uint32_t add_node(double weight);
  void remove_node(uint32_t place);
  void set_serving(uint32_t place, bool serves);
  void set_weight(uint32_t place, double weight) { nodes_[place].weight = weight; }

  // The first lines of a block: of the first kAhead blocks before `route`, which does it for the others.
  static constexpr size_t kAhead = 64;
  void prefetch(uint64_t digest) const {
    for (const auto& index : indexes_) index->prefetch(digest);
  }

  // Whether a node can be chosen if these are not to be.
  bool can_route(const std::vector<uint32_t>& avoid);
  // The choice for a chain of blocks; can_route(avoid) has been called, and said yes. `probes` are the nodes of a request
  // in their order for policy "hash".
  Route route(const uint64_t* digests, size_t n, double work, const std::vector<uint32_t>& probes);
  void done(uint64_t id, double load);

  bool has_node(uint32_t place) const { return place < nodes_.size() && nodes_[place].id != 0; }
  uint64_t id(uint32_t place) const { return nodes_[place].id; }
  double load(uint32_t place) const { return nodes_[place].load; }
  uint64_t serving() const { return serving_.size(); }
  uint64_t in_flight() const { return in_flight_; }
  uint64_t reasons(uint32_t reason) const { return reasons_[reason]; }
  uint64_t entries() const;
  uint64_t nbytes() const;

 private:
  static constexpr uint32_t kPlaceBits = 24;

  struct Node {
    uint64_t id = 0;  // its place in the lower bits
    double load = 0, weight = 1;
    uint64_t requests = 0;
    uint32_t index = 0, number = 0;  // which index has its blocks, and as which of its nodes
    uint32_t depth = 0;              // of the request under way
    bool serves = true;
  };

  void update_serving();
  void find_depths(const uint64_t* digests, size_t n);
  uint32_t candidate(size_t i) const { return candidates_[i < candidates_.size() ? i : i - candidates_.size()]; }
  size_t first_candidate() const;
  void prefetch_more(uint64_t digest) const {
    for (const auto& index : indexes_) index->prefetch_more(digest);
  }
  bool is_within_bound(const Node& node, double work) const;
  uint32_t least_loaded(uint32_t depth) const;
  Route choose(size_t n, double work, const std::vector<uint32_t>& probes) const;

  RouteRules rules_;
  std::vector<Node> nodes_;           // by place
  std::vector<uint32_t> order_;       // places, as they were added
  std::vector<uint32_t> serving_;     // of these the ones that are not drained
  std::vector<uint32_t> candidates_;  // of these the ones that the request under way may go to
  std::vector<std::unique_ptr<BlockIndex>> indexes_;
  std::vector<std::vector<uint32_t>> places_;  // by index and number
  std::vector<uint64_t> active_;               // by index: nodes that hold the blocks so far, as bits
  uint64_t routed_ = 0, in_flight_ = 0, ids_ = 0;
  uint64_t reasons_[kRouteReasons] = {};
};

}  // namespace evenbins

// Consistent-hash rings with bounded loads: which node owns a key, and no node owns too many.
//
//     digest ──draw c──▶ slot ──▶ its owner ──▶ full, down or drained? then on:
//
//     jump (RJ-CH, chen section 3)      another draw, for this key alone
//     clockwise (CH-BL, section 2.3)    the next slot of the circle
//     rehash (Appendix Q)               another draw, and clockwise from there: the same as jump when dense
//     rehash-bin (section 2.5)          h(i): the next slot of the circle put in another order
//     plain                             no bound: the first that serves
//
// Layouts. Sparse is the paper's array of 2^s places, each node in a few of them by hash; a draw of `jump` must hit an
// occupied one, which takes 2^s / nodes draws. Dense has m slots, nearly all occupied; draw c is slot
// f(splitmix(digest, c), m), where f is uniform on 0 … m−1 and f(w, m+1) is f(w, m) or m. So a node that joins takes
// its share from all and nothing else changes; a node that leaves leaves an empty slot, which draws skip. O(1), and the
// same balance (dense_slot.hpp).
//
// Weights. A node has `quanta` = weight in units of 2^-20; it owns ⌈copies·quanta/2^20⌉ slots, of which the last
// accepts a draw only with the probability of the remainder, by a coin that is a hash. So its share of first probes is
// exactly its share of the quanta; a weight below half a quantum has one. A slot of this kind that is new takes draws
// from others and refuses some: only then do first probes change between two old nodes, at most (1 − fraction) / slots
// of them.
//
// The bound. No placement lifts a node above ⌈(1+ε)·n·w/W⌉, the new key counted, W over nodes that serve; in integers,
// with rate = 10^9·(1+ε): load·10^9·W < rate·n·w before the key comes. Or above its own absolute cap. Weights are exact
// here, whatever their quanta: integers in units of the finest decimal digit of any of them (wide.hpp), for weights
// whose ratio is at most 10^30: then w < 10^48 < 2^160, W < 2^182, and both products are below 2^256.
//
// Leases have weights too, in units of a millionth. One with a weight keeps (load + x) / (w/W) ≤ (1+ε)·(L + x), where L is
// the load of all; if no node can, the one with the least load / w takes it, and that is counted as forced. L + x is
// below 2^63, the products below 2^275.
//
// State: an exact map digest → node (open addressing, entries in place), and for each node the digests it has. Two keys
// of one 64-bit digest are one key here. The map stores a key's place among those of its node in 32 bits, so a node
// holds at most 2^32 − 1 keys.
//
// Memory that cannot be had (std::bad_alloc) never breaks an invariant. `assign`, `lease`, `remove_node` change nothing
// then. Of the others, the change of nodes and slots is made whole or not at all, and each key that was to move has
// moved or not.
//
// Invariants (check())
// - A slot has one owner or none; a node has as many slots as its quanta say, all but the last of them whole.
// - members of all nodes are the entries of the map, and each entry knows its place among them.
// - A removed node has neither slots nor keys; its id is used again once its last lease is back.
//
// reference/ring.py is the readable twin: the same slots, moves and order of members.
//
// Tried and dropped: a list of entry numbers per node (one more cache miss a placement than digests); a division of 128
// bits for each placement's limit.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "evenbins/bits.hpp"
#include "evenbins/dense_slot.hpp"
#include "evenbins/hash.hpp"
#include "evenbins/key_map.hpp"
#include "evenbins/spec.hpp"
#include "evenbins/wide.hpp"

namespace evenbins {

class RingFull : public std::runtime_error {  // the sum of the limits does not allow it; nothing has been changed
  using std::runtime_error::runtime_error;
};
class NoNodes : public std::runtime_error {  // no node serves
  using std::runtime_error::runtime_error;
};

enum class RingPolicy : uint32_t { plain = 1, clockwise = 2, rehash = 3, rehash_bin = 4, jump = 5 };
enum class RingLayout : uint32_t { dense = 1, sparse = 2 };

struct RingConfig {
  RingPolicy policy = RingPolicy::jump;
  RingLayout layout = RingLayout::dense;
  uint32_t copies = 1, array_bits = 20;
  uint64_t rate = 0;   // 10^9·(1+ε); 0: caps, or no bound (plain)
  double unit = 1;     // weight of a node with 2^20 quanta: for people, and for files
  double epsilon = 0;  // as it was given; rate decides
  uint64_t limit = 0;  // of a node of weight 1, as it was given; caps decide
  uint64_t seed = 0;
};

struct RingMove {
  uint64_t digest;
  uint32_t from, to;  // ids
};
using RingMoves = std::vector<RingMove>;

class Ring {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr uint32_t kWhole = 1 << 20;
  static constexpr uint64_t kBillion = 1000000000;
  static constexpr uint64_t kMaxSlots = uint64_t{1} << 26, kMaxNodes = uint64_t{1} << 22, kMaxName = 4096;
  static constexpr uint64_t kMaxQuanta = uint64_t{1} << 44, kMaxKeys = uint64_t{1} << 36;
  static constexpr uint64_t kMaxNodeKeys = ~uint32_t{0};
  static constexpr double kMaxRatio = 1e30;  // of two weights
  static constexpr size_t kHistogram = 65;   // searches of a placement: 0 … 63, and more

  struct Node {
    std::shared_ptr<const std::string> name;
    double weight = 1;
    Decimal decimal;               // the weight, exactly
    Wide part;                     // the same, in the unit of all that serve (changed())
    uint64_t quanta = 0, cap = 0;  // cap 0: none
    bool live = false, down = false, draining = false, lazy = false;
    std::vector<uint32_t> slots;  // dense: slots; sparse: places; in the order taken
    std::vector<uint64_t> away;   // digests that were placed elsewhere when it went down
    uint64_t leases = 0, lease_load = 0;
    uint32_t label = 0, rank = 0;  // whatever the owner of the ring calls it; its position in order()
    bool serving() const { return live && !down && !draining; }
  };

  explicit Ring(RingConfig config);

  const RingConfig& config() const { return config_; }
  uint64_t size() const { return map_.size(); }
  uint64_t slots() const { return dense() ? slots_.size() : circle_.size(); }
  uint64_t version() const { return version_; }
  const std::vector<uint32_t>& order() const { return order_; }  // ids of the nodes, as they were created
  const Node& node(uint32_t id) const { return nodes_[id]; }
  uint32_t id_limit() const { return static_cast<uint32_t>(nodes_.size()); }
  uint32_t find(std::string_view name) const;
  void set_label(uint32_t id, uint32_t label) { nodes_[id].label = label; }
  const std::vector<uint64_t>& members(uint32_t id) const { return members_[id]; }  // digests
  uint64_t limit_of(uint32_t id, uint64_t keys) const;                              // 2^64−1: none

  // ---- without state
  EVENBINS_INLINE uint32_t first(uint64_t digest) const {  // kNone if no node serves
    if (fast_) [[likely]] {
      const auto m = static_cast<uint32_t>(routes_.size());
      for (uint32_t c = 0; c < 32; ++c)
        if (const uint32_t id = routes_[dense_slot(splitmix(digest, c), m)]; id < kNone - 1) [[likely]]
          return id;
        else if (id == kNone - 1)  // a slot with a coin
          break;
    }
    return first_by_walk(digest);
  }
  std::vector<uint32_t> candidates(uint64_t digest, uint64_t most) const;

  // ---- with state
  uint32_t assign(uint64_t digest);        // RingFull, NoNodes
  uint32_t locate(uint64_t digest) const;  // kNone if it is not assigned
  bool release(uint64_t digest);
  bool has_room_for(uint64_t more) const { return map_.has_room_for(more); }
  void make_room_for(uint64_t more);  // new keys are coming, about so many: memory at once rather than step by step
  void near(uint64_t digest) const { map_.prefetch(digest); }
  void release_all();
  RingMoves take_lazy_moves() { return std::exchange(lazy_moves_, {}); }  // made by `assign` since the last call
  bool has_lazy_moves() const { return !lazy_moves_.empty(); }

  // ---- churn; each tells the keys it moved
  struct NewNode {
    std::string name;
    double weight;
    uint64_t quanta, cap;
    uint32_t label = 0;
  };
  uint32_t add_node(NewNode node, bool lazy, RingMoves& moves);
  // Many at once, to a ring without keys. A name that is taken, or too many slots: std::invalid_argument, and the ring
  // is not to be used.
  void add_nodes(std::vector<NewNode> nodes);
  void remove_node(uint32_t id, RingMoves& moves);  // RingFull, NoNodes: nothing is changed
  void drain(uint32_t id);
  void mark_down(uint32_t id, RingMoves& moves);
  void mark_up(uint32_t id, RingMoves& moves);
  void set_weight(uint32_t id, double weight, uint64_t quanta, uint64_t cap, RingMoves& moves);
  void rebalance(uint64_t most, RingMoves& moves);
  void compact(RingMoves& moves);

  // ---- leases: loads of their own
  static constexpr uint64_t kLeaseUnit = 1000000, kMostLeaseLoad = uint64_t{1} << 63;
  // Of weight 1, within the limit of leases, counted one by one. RingFull, NoNodes.
  uint32_t lease(uint64_t digest, const uint32_t* avoid, size_t avoided);
  // By their load; RingFull only if nodes have caps, all are to be avoided, or the load of all is too large.
  uint32_t lease(uint64_t digest, uint64_t load, const uint32_t* avoid, size_t avoided);
  void unlease(uint32_t id, uint64_t load);
  uint64_t leases() const { return leases_; }
  uint64_t forced_leases() const { return forced_leases_; }

  struct Counters {
    uint64_t moved = 0, placements = 0, searches = 0, draws = 0, longest = 0;
    std::array<uint64_t, kHistogram> histogram{};
  };
  Counters counters() const;
  void limit_node_keys(uint64_t most) { node_keys_ = most; }  // for tests: nobody has 2^32 keys
  // From now on every placement is checked by a second reading of the bound, slow and independent of the first.
  struct Audit {
    bool on = false;
    uint64_t rate = 0, placements = 0, broken = 0;  // rate: the ring's, or another, to see that an audit can fail
  };
  void start_audit(uint64_t rate = 0) { audit_ = {true, rate != 0 ? rate : config_.rate, 0, 0}; }
  const Audit& audit() const { return audit_; }
  // Nodes that one key more would look at: the mean over so many random keys. Changes nothing.
  double expected_searches(uint64_t samples) const;
  // Of everything that decides `first` and `candidates`; with `assigned` of the keys and their nodes too.
  uint64_t fingerprint(bool assigned) const;
  uint64_t nbytes() const;

  // ---- files: a picture of the ring, in words
  static uint64_t payload_bytes(const Spec& spec);
  struct Image {
    Spec spec_;
    Bits bits_;
    const Spec& spec() const { return spec_; }
    const Bits& bits() const { return bits_; }
  };
  Image image(bool with_counters = true) const;
  Ring(const Spec& spec, const Bits& bits);  // throws SpecError for a picture of nothing
  std::string check(bool thorough) const;

 private:
  struct FreeSlot {
    uint32_t slot;
    std::shared_ptr<const std::string> name;  // of its last owner
  };
  bool dense() const { return config_.layout == RingLayout::dense; }
  bool draws_on() const {  // another draw after each visit, rather than a circle
    return config_.policy == RingPolicy::jump || config_.policy == RingPolicy::rehash ||
           (config_.policy == RingPolicy::plain && dense());
  }
  uint32_t fraction(const Node& node) const {  // of its last slot
    return static_cast<uint32_t>(config_.copies * node.quanta - (node.slots.size() - 1) * uint64_t{kWhole});
  }
  uint64_t slots_for(uint64_t quanta) const { return (config_.copies * quanta + kWhole - 1) / kWhole; }
  uint32_t owner(uint32_t slot) const { return dense() ? slots_[slot] : places_[slot]; }
  bool accepts(uint32_t slot, uint32_t id, uint64_t word) const {  // the coin of a draw
    const Node& node = nodes_[id];
    if (node.slots.back() != slot) return true;
    const uint32_t f = fraction(node);
    return f == kWhole || (splitmix(word, 62) >> 44) < f;
  }

  // visit(id) of each serving node that the key comes to, until it says true. Gives the number of draws.
  template <typename Visit>
  uint64_t walk(uint64_t digest, Visit&& visit) const;
  template <typename Visit>
  uint64_t walk_draws(uint64_t digest, Visit&& visit) const;
  bool visits_are_dear() const;
  template <typename HasRoom>
  bool none_takes(HasRoom&& has_room) const;
  template <typename Visit>
  uint64_t walk_circle(uint64_t digest, Visit&& visit) const;
  uint32_t next_place(uint32_t place) const;  // index in circle_ of the first occupied place from there
  uint32_t first_by_walk(uint64_t digest) const;

  // Who takes one more of n. Nodes of one weight have one limit, which stays for a while as n grows: most comparisons
  // are with that.
  struct Room {
    uint64_t limit;  // of every node; 0: it depends on the node
    uint128 left, right;
  };
  Room room(uint64_t n) const {
    if (config_.policy == RingPolicy::plain) return {node_keys_, 0, 0};
    if (even_ && config_.rate != 0 && serving_ != 0 && n != 0) {
      if (n < even_from_ || n > even_to_) [[unlikely]]
        find_even_limit(n);
      return {std::min(even_limit_, node_keys_), 0, 0};
    }
    return {0, static_cast<uint128>(kBillion) * total_.low(), static_cast<uint128>(config_.rate) * n};
  }
  EVENBINS_INLINE bool takes(const Room& r, uint32_t id, uint64_t load) const {
    if (r.limit != 0) [[likely]]
      return load < r.limit;
    if (load >= node_keys_) [[unlikely]]
      return false;
    if (config_.rate == 0) return load < nodes_[id].cap;
    if (narrow_) [[likely]]
      return r.left * load < r.right * parts_[id];
    return total_ * (static_cast<uint128>(kBillion) * load) < nodes_[id].part * r.right;
  }
  // Whether a node takes a lease of this load, by its weight among those that serve.
  bool takes_load(uint32_t id, uint64_t load) const;
  template <typename HasRoom>
  uint32_t first_with_room(uint64_t digest, HasRoom&& has_room) const;
  uint32_t count_lease(uint32_t id, uint64_t load);
  void find_even_limit(uint64_t n) const;
  void require_serving() const;
  std::string full_text(const char* what) const;
  // Who takes it, one of n; kNone: nobody. `from` has it now, and may keep it.
  uint32_t place(uint64_t digest, uint64_t n, uint32_t from = kNone);
  void count(uint64_t searches, uint64_t draws);
  void audit_placement(uint32_t id, uint64_t n, uint64_t load);  // a node of this load takes one of n
  bool may_lease(uint32_t id, uint64_t load) const;
  std::pair<Wide, Wide> weights_anew(const Node& node) const;
  void put(KeyMapEntry& entry, uint32_t id) noexcept;  // needs room among the members
  void take_out(KeyMapEntry& entry) noexcept;
  void undo_moves(RingMoves& moves, size_t keep) noexcept;
  void move(KeyMapEntry& entry, uint32_t to, RingMoves& moves);
  void pull(uint32_t target, RingMoves& moves);  // keys that meet the target before their own node
  void settle_lazily(KeyMapEntry& entry);

  // First everything that allocates, then what changes the ring and cannot fail.
  uint32_t make_node(NewNode node, uint64_t occupied);
  void reserve_ids(uint64_t more);
  void reserve_slots(uint64_t taken, uint64_t freed);
  void take_slots(uint32_t id, std::vector<uint32_t>& scratch) noexcept;  // as many as its quanta say
  void free_slots(uint32_t id, uint64_t keep) noexcept;
  void unfree_slots(uint32_t id, std::vector<uint32_t> slots) noexcept;  // undoes free_slots(id, 0)
  void renumber();                                                       // dense: no empty slots
  void changed() noexcept;                                               // after every change of slots or flags
  bool comes_before(uint32_t a, uint32_t b) const;                       // in the order of second_
  uint32_t new_id() noexcept;
  void release_id(uint32_t id) noexcept;
  void forget_home(uint32_t id) noexcept;
  void check_ratio(uint32_t but, double weight) const;

  RingConfig config_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> parts_;                 // of each id, if narrow_
  std::vector<std::vector<uint64_t>> members_;  // of each id
  std::vector<uint32_t> free_ids_;
  std::vector<uint32_t> order_;
  std::unordered_map<std::string_view, uint32_t> by_name_;

  std::vector<uint32_t> slots_;   // dense: owner of each, or kNone
  std::vector<FreeSlot> free_;    // the longest free first
  std::vector<uint32_t> places_;  // sparse: owner of each
  std::vector<uint32_t> circle_;  // sparse: occupied places, ascending
  std::vector<uint32_t> second_;  // rehash-bin: occupied slots or places in the other order

  std::vector<uint32_t> routes_;  // dense: owner if it serves; kNone−1: by a coin; else kNone
  bool fast_ = false;             // routes_ decide first probes
  bool even_ = false;             // all serving nodes have the same weight
  bool narrow_ = true;            // the bound can be computed in 128 bits
  mutable uint64_t even_limit_ = 0, even_from_ = 1, even_to_ = 0;  // their limit, for so many keys
  uint64_t serving_ = 0, lazy_ = 0, node_keys_ = kMaxNodeKeys;
  Wide total_;  // parts of the nodes that serve

  KeyMap map_;                                    // position: among the members of the node
  std::unordered_map<uint64_t, uint32_t> homes_;  // digest → the node it returns to
  RingMoves lazy_moves_;
  uint64_t leases_ = 0, lease_load_ = 0, forced_leases_ = 0, version_ = 0;
  Counters counters_;     // without those that found a node at the first draw
  uint64_t at_once_ = 0;  // these
  Audit audit_;
};

}  // namespace evenbins

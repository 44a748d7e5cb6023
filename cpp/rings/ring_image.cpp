// A ring as words, for files and comparisons; and back, believing nothing.
//
//     core     policy layout copies array_bits rate unit epsilon limit version nodes slots free words keys away
//     payload  nodes: [weight quanta cap flags slots… name] as they were created │ free slots: [slot name], the
//              longest free first │ moved placements searches draws longest histogram │ members of each node │
//              away of each node
//
// Numbers are 64 bits; unit, epsilon and weight are IEEE doubles; a list is its length and its items, a name its length
// and its bytes, padded with zeros to whole words; flags: 1 down, 2 draining, 4 lazy. `words` counts everything but the
// digests of members and away.
#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "evenbins/ring.hpp"
#include "evenbins/xxh3.hpp"

namespace evenbins {
namespace {

enum Core : size_t {
  kPolicy,
  kLayout,
  kCopies,
  kArrayBits,
  kRate,
  kUnit,
  kEpsilon,
  kLimit,
  kVersion,
  kNodes,
  kSlots,
  kFree,
  kWords,
  kKeys,
  kAway,
  kCoreWords
};

class Writer {
 public:
  std::vector<uint64_t> words;
  void number(uint64_t x) { words.push_back(x); }
  void real(double x) { words.push_back(std::bit_cast<uint64_t>(x)); }
  void text(const std::string& s) {
    number(s.size());
    const size_t at = words.size();
    words.resize(at + (s.size() + 7) / 8);
    if (!s.empty()) std::memcpy(words.data() + at, s.data(), s.size());
  }
};

// As Python's encoder writes text: no overlong forms, no surrogates. A name must become a str again.
bool is_utf8(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    const auto byte = [&](size_t at) { return at < s.size() ? static_cast<uint8_t>(s[at]) : 0u; };
    const uint32_t first = byte(i);
    const size_t more = first < 0x80 ? 0 : first >= 0xC2 && first < 0xE0 ? 1 : (first & 0xF0) == 0xE0 ? 2 : 3;
    if (first >= 0x80 && (first < 0xC2 || first > 0xF4)) return false;
    const uint32_t second = byte(i + 1);
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
        (first == 0xF4 && second > 0x8F))
      return false;
    for (size_t j = 1; j <= more; ++j)
      if ((byte(i + j) & 0xC0) != 0x80) return false;
    i += more + 1;
  }
  return true;
}

class Reader {
 public:
  Reader(const uint64_t* words, uint64_t n) : at_(words), end_(words + n) {}
  uint64_t number() {
    if (at_ == end_) throw SpecError("the ring's description ends too early");
    return *at_++;
  }
  uint64_t number(uint64_t most, const char* what) {
    const uint64_t x = number();
    if (x > most) throw SpecError(std::string("a ring cannot have so many ") + what);
    return x;
  }
  double real() { return std::bit_cast<double>(number()); }
  std::string text(uint64_t most) {
    const uint64_t n = number(most, "bytes in a name"), w = (n + 7) / 8;
    if (w > static_cast<uint64_t>(end_ - at_)) throw SpecError("the ring's description ends too early");
    std::string s(reinterpret_cast<const char*>(at_), n);
    for (uint64_t i = n; i < 8 * w; ++i)
      if (reinterpret_cast<const char*>(at_)[i] != 0) throw SpecError("a name's padding is not zero");
    at_ += w;
    if (!is_utf8(s)) throw SpecError("a name is no UTF-8");
    return s;
  }
  const uint64_t* digests(uint64_t n) {
    if (n > static_cast<uint64_t>(end_ - at_)) throw SpecError("the ring's digests end too early");
    return std::exchange(at_, at_ + n);
  }
  bool done() const { return at_ == end_; }

 private:
  const uint64_t *at_, *end_;
};

bool is_positive(double x) { return std::isfinite(x) && x > 0; }

RingConfig config_of(const Spec& spec) {
  const std::vector<uint64_t>& core = spec.core;
  if (spec.hashing != Hashing::independent) throw SpecError("a ring needs independent hashing");
  if (core.size() != kCoreWords) throw SpecError("a ring has fifteen numbers in its core");
  RingConfig config;
  if (core[kPolicy] < 1 || core[kPolicy] > 5) throw SpecError("no such policy of a ring");
  if (core[kLayout] < 1 || core[kLayout] > 2) throw SpecError("no such layout of a ring");
  config.policy = static_cast<RingPolicy>(core[kPolicy]);
  config.layout = static_cast<RingLayout>(core[kLayout]);
  const bool sparse = config.layout == RingLayout::sparse;
  if (core[kCopies] < 1 || core[kCopies] > 65536) throw SpecError("copies must be 1 … 65536");
  if (sparse ? core[kArrayBits] < 8 || core[kArrayBits] > 26 : core[kArrayBits] != 20)
    throw SpecError("array_bits must be 8 … 26, and 20 for a dense ring");
  if (core[kRate] != 0 && (core[kRate] < 1000000000 || core[kRate] > uint64_t{1} << 50))
    throw SpecError("the rate must be 10^9 or more");
  if (config.policy == RingPolicy::plain && (core[kRate] != 0 || core[kLimit] != 0))
    throw SpecError("a plain ring has no limit");
  if (config.policy != RingPolicy::plain && (core[kRate] == 0) != (core[kLimit] != 0))
    throw SpecError("a ring has either a rate or a limit");
  config.copies = static_cast<uint32_t>(core[kCopies]);
  config.array_bits = static_cast<uint32_t>(core[kArrayBits]);
  config.rate = core[kRate];
  config.unit = std::bit_cast<double>(core[kUnit]);
  config.epsilon = std::bit_cast<double>(core[kEpsilon]);
  config.limit = core[kLimit];
  config.seed = spec.seed;
  if (!is_positive(config.unit)) throw SpecError("the unit of weights must be positive");
  if (!std::isfinite(config.epsilon) || config.epsilon < 0) throw SpecError("epsilon must be 0 or more");
  if (core[kNodes] > Ring::kMaxNodes || core[kSlots] > Ring::kMaxSlots || core[kFree] > core[kSlots] ||
      core[kKeys] > Ring::kMaxKeys || core[kAway] > core[kKeys] || core[kWords] > uint64_t{1} << 40)
    throw SpecError("a ring cannot be so large");
  // A node takes seven words at least, each slot of it and each free slot one more: so memory follows the file's size.
  if (7 * core[kNodes] > core[kWords] || core[kSlots] > core[kWords])
    throw SpecError("the ring's description is too short for its nodes and slots");
  if (spec.capacity != std::max<uint64_t>(core[kKeys], 1)) throw SpecError("a ring's capacity is its number of keys");
  return config;
}

}  // namespace

uint64_t Ring::payload_bytes(const Spec& spec) {
  config_of(spec);
  return 8 * (spec.core[kWords] + spec.core[kKeys] + spec.core[kAway]);
}

Ring::Image Ring::image(bool with_counters) const {
  Writer out;
  std::vector<std::vector<uint64_t>> away;
  uint64_t away_count = 0;
  for (const uint32_t id : order_) {
    const Node& node = nodes_[id];
    out.real(node.weight);
    out.number(node.quanta);
    out.number(node.cap);
    out.number((node.down ? 1 : 0) | (node.draining ? 2 : 0) | (node.lazy ? 4 : 0));
    out.number(node.slots.size());
    for (const uint32_t slot : node.slots) out.number(slot);
    out.number(members_[id].size());
    std::vector<uint64_t>& left = away.emplace_back();
    std::unordered_set<uint64_t> seen;  // a key that was released, came and went away again stands there twice
    for (const uint64_t digest : node.away)
      if (const auto home = homes_.find(digest);
          home != homes_.end() && home->second == id && seen.insert(digest).second)
        left.push_back(digest);
    out.number(left.size());
    away_count += left.size();
    out.text(*node.name);
  }
  for (const FreeSlot& each : free_) {
    out.number(each.slot);
    out.text(*each.name);
  }
  const Counters counted = with_counters ? counters() : Counters{};
  for (const uint64_t x : {counted.moved, counted.placements, counted.searches, counted.draws, counted.longest})
    out.number(x);
  for (const uint64_t x : counted.histogram) out.number(x);

  const std::vector<uint64_t> core{static_cast<uint64_t>(config_.policy),
                                   static_cast<uint64_t>(config_.layout),
                                   config_.copies,
                                   config_.array_bits,
                                   config_.rate,
                                   std::bit_cast<uint64_t>(config_.unit),
                                   std::bit_cast<uint64_t>(config_.epsilon),
                                   config_.limit,
                                   with_counters ? version_ : 0,
                                   order_.size(),
                                   slots(),
                                   free_.size(),
                                   out.words.size(),
                                   map_.size(),
                                   away_count};
  // One after the other: gcc 12 destroys the first member of an aggregate twice if the second throws.
  Bits bits = Bits::zeroed(8 * (out.words.size() + map_.size() + away_count));
  Spec spec{Kind::ring, Hashing::independent, config_.seed, std::max<uint64_t>(map_.size(), 1), core};
  Image image{std::move(spec), std::move(bits)};
  uint64_t* at = std::copy(out.words.begin(), out.words.end(), image.bits_.words());
  for (const uint32_t id : order_) at = std::copy(members_[id].begin(), members_[id].end(), at);
  for (const std::vector<uint64_t>& each : away) at = std::copy(each.begin(), each.end(), at);
  return image;
}

Ring::Ring(const Spec& spec, const Bits& bits) : Ring(config_of(spec)) {
  const std::vector<uint64_t>& core = spec.core;
  Reader in(bits.words(), core[kWords]);
  Reader digests(bits.words() + core[kWords], core[kKeys] + core[kAway]);
  const uint64_t places = dense() ? core[kSlots] : uint64_t{1} << config_.array_bits;
  if (dense()) slots_.assign(places, kNone);
  uint64_t keys = 0, away = 0, occupied = 0;
  std::vector<uint64_t> members, aways;
  for (uint64_t i = 0; i < core[kNodes]; ++i) {
    reserve_ids(1);
    const uint32_t id = new_id();
    order_.push_back(id);
    Node& node = nodes_[id];
    node.live = true;
    node.weight = in.real();
    if (!is_positive(node.weight)) throw SpecError("a node's weight must be positive");
    node.decimal = shortest_decimal(node.weight);
    node.quanta = in.number(kMaxQuanta, "quanta of weight");
    if (node.quanta == 0) throw SpecError("a node's quanta must be positive");
    node.cap = in.number();
    const bool caps = config_.rate == 0 && config_.policy != RingPolicy::plain;
    if ((node.cap != 0) != caps || node.cap > uint64_t{1} << 60) throw SpecError("a node's limit is impossible");
    const uint64_t flags = in.number(7, "flags");
    node.down = flags & 1;
    node.draining = flags & 2;
    node.lazy = flags & 4;
    const uint64_t count = in.number(kMaxSlots, "slots");
    if (count != slots_for(node.quanta)) throw SpecError("a node's slots do not fit its weight");
    occupied += count;
    for (uint64_t j = 0; j < count; ++j) {
      const uint64_t slot = in.number();
      if (slot >= places || owner(static_cast<uint32_t>(slot)) != kNone)
        throw SpecError("a slot is impossible or taken");
      (dense() ? slots_ : places_)[slot] = id;
      node.slots.push_back(static_cast<uint32_t>(slot));
      if (!dense()) circle_.push_back(static_cast<uint32_t>(slot));
    }
    members.push_back(in.number(std::min(core[kKeys] - keys, kMaxNodeKeys), "keys"));
    keys += members.back();
    aways.push_back(in.number(core[kAway] - away, "keys away"));
    away += aways.back();
    node.name = std::make_shared<const std::string>(in.text(kMaxName));
    if (node.name->empty() || !by_name_.emplace(*node.name, id).second)
      throw SpecError("a node's name is empty or taken");
  }
  if (keys != core[kKeys] || away != core[kAway]) throw SpecError("the numbers of keys contradict each other");
  for (uint64_t i = 0; i < core[kFree]; ++i) {
    const uint64_t slot = in.number();
    if (!dense() || slot >= places || slots_[slot] != kNone) throw SpecError("a free slot is impossible");
    free_.push_back({static_cast<uint32_t>(slot), std::make_shared<const std::string>(in.text(kMaxName))});
  }
  std::vector<uint32_t> free;
  for (const FreeSlot& each : free_) free.push_back(each.slot);
  std::sort(free.begin(), free.end());
  if (std::adjacent_find(free.begin(), free.end()) != free.end() || occupied + free.size() != core[kSlots])
    throw SpecError("the numbers of slots contradict each other");
  std::sort(circle_.begin(), circle_.end());
  for (uint64_t* x :
       {&counters_.moved, &counters_.placements, &counters_.searches, &counters_.draws, &counters_.longest})
    *x = in.number();
  for (uint64_t& x : counters_.histogram) x = in.number();
  if (!in.done()) throw SpecError("something follows the ring's description");

  map_.reserve(core[kKeys]);
  for (size_t i = 0; i < order_.size(); ++i) {
    const uint64_t* d = digests.digests(members[i]);
    members_[order_[i]].reserve(members[i]);
    for (uint64_t j = 0; j < members[i]; ++j) {
      if (map_.find(d[j]) != nullptr) throw SpecError("a key has two nodes");
      put(map_.insert(d[j]), order_[i]);
    }
  }
  for (size_t i = 0; i < order_.size(); ++i) {
    const uint64_t* d = digests.digests(aways[i]);
    for (uint64_t j = 0; j < aways[i]; ++j) {
      const KeyMapEntry* entry = map_.find(d[j]);
      if (entry == nullptr || entry->node == order_[i] + 1 || !homes_.emplace(d[j], order_[i]).second)
        throw SpecError("a key that is away from its node is impossible");
    }
    nodes_[order_[i]].away.assign(d, d + aways[i]);
  }
  reserve_slots(0, 0);
  changed();
  version_ = core[kVersion];
}

uint64_t Ring::fingerprint(bool assigned) const {
  Writer out;
  for (const uint64_t x : {static_cast<uint64_t>(config_.policy), static_cast<uint64_t>(config_.layout),
                           uint64_t{config_.copies}, uint64_t{config_.array_bits}, config_.seed, slots()})
    out.number(x);
  std::vector<uint32_t> ids = order_;
  std::sort(ids.begin(), ids.end(), [&](uint32_t a, uint32_t b) { return *nodes_[a].name < *nodes_[b].name; });
  for (const uint32_t id : ids) {
    const Node& node = nodes_[id];
    out.text(*node.name);
    out.number(node.quanta);
    out.number(node.serving());
    for (const uint32_t slot : node.slots) out.number(slot);
  }
  uint64_t print = xxh3_64(out.words.data(), 8 * out.words.size(), 0);
  if (!assigned) return print;
  for (const uint32_t id : order_) {  // a sum: the order of a node's keys does not count
    const uint64_t salt = xxh3_64(nodes_[id].name->data(), nodes_[id].name->size(), 1);
    for (const uint64_t digest : members_[id]) print += mix(digest ^ salt);
  }
  return print;
}

std::string Ring::check(bool thorough) const {
  if (!thorough) return {};
  uint64_t occupied = 0, keys = 0;
  for (const uint32_t id : order_) {
    const Node& node = nodes_[id];
    if (!node.live || find(*node.name) != id) return "a node is not known by its name";
    if (node.slots.size() != slots_for(node.quanta)) return "a node's slots do not fit its weight";
    for (const uint32_t slot : node.slots)
      if (owner(slot) != id) return "a slot has another owner";
    occupied += node.slots.size();
    keys += members_[id].size();
    for (size_t i = 0; i < members_[id].size(); ++i) {
      const KeyMapEntry* entry = map_.find(members_[id][i]);
      if (entry == nullptr || entry->node != id + 1 || entry->position != i) return "a key is not where the map says";
    }
  }
  for (const auto& [digest, home] : homes_)
    if (map_.find(digest) == nullptr || !nodes_[home].live || !nodes_[home].down) return "a key's home is impossible";
  if (keys != map_.size()) return "the map has other keys than the nodes";
  if (occupied + free_.size() != slots()) return "slots are lost";
  if (by_name_.size() != order_.size()) return "names are lost";
  uint64_t leases = 0;
  for (uint32_t id = 0; id < nodes_.size(); ++id) {
    const Node& node = nodes_[id];
    leases += node.live ? node.leases : 0;
    if (!node.live && (!members_[id].empty() || !node.slots.empty())) return "a removed node has keys or slots";
  }
  if (leases != leases_) return "leases are lost";
  return {};
}

extern constinit const KindRow kRingKind = {
    .kind = Kind::ring,
    .name = "ring",
    .payload_bytes = Ring::payload_bytes,
};

}  // namespace evenbins

#include "evenbins/multilevel.hpp"

#include <algorithm>
#include <atomic>

#include "evenbins/stretches.hpp"
#include "table_parts.hpp"

namespace evenbins {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kRetryEvery = 8;  // deletions that free a slot, for each try of the oldest key on the list

uint64_t lines(uint64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// Where the parts of a payload begin, in bytes.
struct Layout {
  uint64_t slots_total = 0, index_size = 0;
  uint64_t occupied = 0, marks = 0, records = 0, next = 0, list_keys = 0, list_values = 0, links = 0, index = 0,
           end = 0;
  uint32_t slots, levels, words, value_words, next_words = 0;

  explicit Layout(const Spec& spec) {
    const auto& core = spec.core;
    const auto scheme = static_cast<Scheme>(core[0]);
    slots = static_cast<uint32_t>(core[1]);
    levels = static_cast<uint32_t>(core.size() - MultilevelTable::kCoreHead);
    words = key_words(static_cast<KeyType>(core[2]));
    value_words = evenbins::value_words(static_cast<ValueType>(core[3]));
    const uint64_t limit = core[5];
    if ((core[4] & MultilevelTable::kNextHashes) != 0 && scheme != Scheme::standard)
      next_words = scheme == Scheme::second_chance ? 1 : levels - 1;
    uint64_t buckets = 0;
    for (size_t j = MultilevelTable::kCoreHead; j < core.size(); ++j) buckets += core[j];
    slots_total = buckets * slots;
    if (limit > 0) index_size = std::bit_ceil(2 * limit);

    uint64_t at = 0;
    const auto part = [&at](uint64_t bytes) {
      const uint64_t start = at;
      at += lines(bytes);
      return start;
    };
    part(8 * kStateWords);
    occupied = part((slots_total + 7) / 8);
    marks = part(scheme == Scheme::conservative ? (slots_total + 7) / 8 : 0);
    records = part(8 * slots_total * (words + value_words));
    next = part(4 * slots_total * next_words);
    list_keys = part(8 * limit * words);
    list_values = part(8 * limit * value_words);
    links = part(sizeof(ListLinks) * limit);
    index = part(4 * index_size);
    end = at;
  }
};

// ---- where a key goes -----------------------------------------------------------------------------------

// The number of bits of a bucket's occupancy: without the instruction, which not every machine has, std::popcount is a
// call.
uint32_t count_of(uint32_t bits) {
  bits -= bits >> 1 & 0x55;
  bits = (bits & 0x33) + (bits >> 2 & 0x33);
  return (bits + (bits >> 4)) & 0x0F;
}

class Chooser {
 public:
  // `read`: a bit for each level whose bucket of x was read already; `reads`: how many reads that took.
  Chooser(const TableView& t, uint64_t digest, uint32_t read, uint64_t reads) : t_(t), read_(read), reads_(reads) {
    for (uint32_t j = 0; j < t.levels; ++j) own_[j] = bucket_of(t, digest, j);
  }

  Choice choose() {
    switch (t_.scheme) {
      case Scheme::standard: return leftmost();
      case Scheme::conservative: return conservative();
      case Scheme::second_chance: return second_chance();
      case Scheme::extreme_second_chance: return extreme();
      case Scheme::least_loaded: return least_loaded();
    }
    return {};
  }
  uint64_t reads() const { return reads_; }

 private:
  uint32_t look_own(uint32_t level) {
    if (!t_.occupancy_bits) read_own(level);
    return taken_in(t_, own_[level]);
  }
  void read_residents(uint32_t level) {
    if (t_.next_words == 0) read_own(level);
  }
  void read_own(uint32_t level) {
    if ((read_ >> level & 1) != 0) return;
    read_ |= 1u << level;
    ++reads_;
  }
  bool is_full(uint32_t level) { return look_own(level) == full_mask(t_); }
  uint32_t look_there(uint64_t bucket) {
    if (t_.round != nullptr && !t_.before_look(t_.round, bucket)) return full_mask(t_);
    if (!t_.occupancy_bits) ++reads_;
    return occupied_in(t_, t_.occupied, bucket);
  }
  // The bucket of level `to` of the resident of slot s of x's bucket of a level.
  uint64_t bucket_there(uint32_t level, uint32_t s, uint32_t to) const {
    const uint64_t slot = own_[level] * t_.slots + s;
    if (t_.next_words == 0) return bucket_of(t_, t_.hash.digest(key_at(t_, slot)), to);
    const uint32_t* next = t_.next + slot * t_.next_words;
    const uint32_t i = t_.scheme == Scheme::second_chance ? 0 : to - (to > level ? 1 : 0);
    return t_.first[to] + std::min<uint64_t>(next[i], t_.buckets[to] - 1);  // in range even in a file that lies
  }

  Choice direct(uint32_t level) const {
    const auto s = static_cast<uint32_t>(std::countr_one(taken_in(t_, own_[level])));
    return {Choice::Way::direct, own_[level] * t_.slots + s, level};
  }
  Choice move(uint32_t level, uint32_t s, uint32_t to, uint64_t destination) const {
    return {Choice::Way::move, own_[level] * t_.slots + s, level, destination, to};
  }

  Choice leftmost() {
    for (uint32_t j = 0; j < t_.levels; ++j)
      if (!is_full(j)) return direct(j);
    return {};
  }
  Choice conservative() {
    if (const Choice found = leftmost(); found.way == Choice::Way::direct) return found;
    for (uint32_t j = 0; j + 1 < t_.levels; ++j) {
      const uint32_t marked = occupied_in(t_, t_.marks, own_[j]);
      if (marked == full_mask(t_)) continue;
      const auto s = static_cast<uint32_t>(std::countr_one(marked));
      read_residents(j);
      Choice found{Choice::Way::list, own_[j] * t_.slots + s, j};
      for (uint32_t k = j + 1; k < t_.levels && found.way == Choice::Way::list; ++k)
        if (const uint64_t there = bucket_there(j, s, k); look_there(there) != full_mask(t_))
          found = move(j, s, k, there);
      found.mark = true;
      return found;
    }
    return {};
  }
  Choice second_chance() {
    for (uint32_t i = 0; i + 1 < t_.levels; ++i) {
      if (!is_full(i)) return direct(i);
      if (!is_full(i + 1)) continue;
      read_residents(i);
      for (uint32_t s = 0; s < t_.slots; ++s)
        if (const uint64_t there = bucket_there(i, s, i + 1); look_there(there) != full_mask(t_))
          return move(i, s, i + 1, there);
    }
    if (!is_full(t_.levels - 1)) return direct(t_.levels - 1);
    return {};
  }
  Choice extreme() {
    if (!is_full(0)) return direct(0);
    uint32_t best = t_.levels;
    for (uint32_t j = t_.levels; j-- > 0;)
      if (!is_full(j)) best = j;
    Choice found;
    if (best < t_.levels) found = direct(best);
    for (uint32_t j = 0; j < t_.levels && best > 0; ++j) {
      if (occupied_in(t_, t_.occupied, own_[j]) != full_mask(t_)) continue;
      read_residents(j);
      for (uint32_t s = 0; s < t_.slots; ++s) {
        for (uint32_t k = 0; k < best; ++k) {
          if (k == j) continue;  // where it is, which is full
          const uint64_t there = bucket_there(j, s, k);
          if (look_there(there) == full_mask(t_)) continue;
          found = move(j, s, k, there);
          best = k;
        }
      }
    }
    return found;
  }
  Choice least_loaded() {
    uint32_t best = t_.levels, load = t_.slots;
    for (uint32_t j = 0; j < t_.levels; ++j) {
      const auto other = count_of(look_own(j));
      if (other < load) best = j, load = other;
    }
    if (best < t_.levels) return direct(best);
    Choice found;
    uint32_t least = t_.slots;
    for (uint32_t j = 0; j < t_.levels; ++j) {
      read_residents(j);
      for (uint32_t s = 0; s < t_.slots; ++s) {
        for (uint32_t k = 0; k < t_.levels; ++k) {
          if (k == j) continue;
          const uint64_t there = bucket_there(j, s, k);
          const auto other = count_of(look_there(there));
          if (other < least) least = other, found = move(j, s, k, there);
        }
      }
    }
    return found;
  }

  const TableView& t_;
  uint64_t own_[kMaxLevels];
  uint32_t read_;  // own buckets that this insertion has read
  uint64_t reads_;
};

// Puts x where the choice says; not for the list.
void apply(const TableView& t, const Choice& choice, const StoredKey& key, uint64_t value, uint64_t digest) {
  if (choice.way == Choice::Way::move) {
    const StoredKey resident = key_at(t, choice.slot);
    const auto s = static_cast<uint32_t>(std::countr_one(occupied_in(t, t.occupied, choice.destination)));
    const uint64_t moved = t.hash.digest(resident);
    put(t, choice.destination * t.slots + s, choice.to, resident, value_of(t, choice.slot), moved);
    ++t.state[kPlaced + choice.to];
    if (t.guide != nullptr) t.guide->moved(moved, choice.level + 1, choice.to + 1);
  } else {
    ++t.state[kPlaced + choice.level];
  }
  put(t, choice.slot, choice.level, key, value, digest);
  if (choice.mark) set_bit(t.marks, choice.slot);
  if (t.guide != nullptr) t.guide->added(digest, choice.level + 1, choice.slot);
}

// Tries the oldest key of the list again.
void retry_oldest(const TableView& t) {
  const auto entry = static_cast<uint32_t>(t.state[kOldest]);
  const StoredKey key = listed_key(t, entry);
  const uint64_t digest = t.hash.digest(key);
  const Choice choice = Chooser(t, digest, ~0u, t.levels).choose();
  if (choice.way == Choice::Way::list) {
    unlink(t, entry);
    link_youngest(t, entry);
    return;
  }
  const uint64_t value = listed_value(t, entry);
  list_remove(t, entry);
  apply(t, choice, key, value, digest);
  if (t.guide != nullptr) t.guide->removed(digest, t.levels + 1);
  ++t.state[kReturns];
  if (choice.way == Choice::Way::move) ++t.state[kReturnMoves];
}

bool place(const TableView& t, const StoredKey& key, uint64_t value, uint64_t digest, bool is_new) {
  return place_key(t, key, value, digest, is_new ? 0 : ~0u, is_new ? 0 : t.levels);
}

}  // namespace

bool place_key(const TableView& t, const StoredKey& key, uint64_t value, uint64_t digest, uint32_t read,
               uint64_t reads) {
  const Choice choice = choose_place(t, digest, read, reads);
  return place_as_chosen(t, choice, key, value, digest, reads);
}

Choice choose_place(const TableView& t, uint64_t digest, uint32_t read, uint64_t& reads) {
  Chooser chooser(t, digest, read, reads);
  const Choice choice = chooser.choose();
  reads = chooser.reads();
  return choice;
}

bool place_as_chosen(const TableView& t, const Choice& choice, const StoredKey& key, uint64_t value, uint64_t digest,
                     uint64_t reads) {
  if (choice.way == Choice::Way::list) {
    if (t.state[kListed] == t.limit) return false;
    if (choice.mark) set_bit(t.marks, choice.slot);
    list_add(t, key, value, digest);
    if (t.guide != nullptr) t.guide->added(digest, t.levels + 1, kAbsent);
  } else {
    apply(t, choice, key, value, digest);
    if (choice.way == Choice::Way::move) ++t.state[kMoves];
  }
  ++t.state[kInsertions];
  t.state[kInsertionReads] += reads;
  return true;
}

uint64_t MultilevelTable::payload_bytes(const Spec& spec) {
  const auto& core = spec.core;
  if (spec.hashing != Hashing::independent) throw SpecError("a table needs independent hashing");
  if (core.size() <= kCoreHead || core.size() > kCoreHead + kMaxLevels) throw SpecError("a table has 1 … 8 levels");
  if (core[0] < 1 || core[0] > 5) throw SpecError("scheme must be 1 … 5");
  if (core[1] != 1 && core[1] != 2 && core[1] != 4 && core[1] != 8) throw SpecError("slots must be 1, 2, 4 or 8");
  if (!is_key_type(core[2])) throw SpecError("the type of keys must be 1 … 3");
  if (core[3] != static_cast<uint64_t>(ValueType::none) && !is_value_type(core[3]))
    throw SpecError("the type of values must be 0 … 3");
  if (core[4] > 3) throw SpecError("flags must be 0 … 3");
  if (core[5] > kMaxLimit) throw SpecError("overflow_limit must be at most 2^30");
  for (size_t j = kCoreHead; j < core.size(); ++j)
    if (core[j] < 1 || core[j] > kMaxBuckets) throw SpecError("a level must have 1 … 2^32 buckets");
  // As theory/fluid.py demands: else the table would have no plan.
  for (size_t j = kCoreHead; j < core.size(); ++j)
    if (core[j] * 1000000 < spec.capacity || core[j] > spec.capacity * 1000000)
      throw SpecError("a level must have 10^-6 … 10^6 buckets for each key of the capacity");
  if (static_cast<Scheme>(core[0]) == Scheme::least_loaded && core.size() < kCoreHead + 2)
    throw SpecError("least-loaded needs two levels or more");
  return Layout(spec).end;
}

MultilevelTable::MultilevelTable(Spec spec, Bits bits)
    : spec_(std::move(spec)),
      bits_(std::move(bits)),
      view_(KeyHash(static_cast<KeyType>(spec_.core[2]), spec_.seed)),
      loops_(kernel_.multilevel(static_cast<uint32_t>(spec_.core[1]), key_words(view_.hash.type),
                                value_words(static_cast<ValueType>(spec_.core[3])))) {
  if (bits_.bytes() != payload_bytes(spec_)) throw SpecError("the bits do not fit the plan");
  const Layout layout(spec_);
  auto* base = reinterpret_cast<uint8_t*>(bits_.words());
  const auto words_at = [base](uint64_t offset) { return reinterpret_cast<uint64_t*>(base + offset); };
  const auto halves_at = [base](uint64_t offset) { return reinterpret_cast<uint32_t*>(base + offset); };
  view_.state = bits_.words();
  view_.occupied = base + layout.occupied;
  view_.marks = base + layout.marks;
  view_.records = words_at(layout.records);
  view_.next = halves_at(layout.next);
  view_.list_keys = words_at(layout.list_keys);
  view_.list_values = layout.value_words == 0 ? nullptr : words_at(layout.list_values);
  view_.links = reinterpret_cast<ListLinks*>(base + layout.links);
  view_.index = halves_at(layout.index);
  view_.index_size = layout.index_size;
  view_.limit = spec_.core[5];
  view_.stride = uint64_t{layout.slots} * (layout.words + layout.value_words);
  view_.levels = layout.levels;
  view_.slots = layout.slots;
  view_.words = layout.words;
  view_.value_words = layout.value_words;
  view_.next_words = layout.next_words;
  view_.scheme = static_cast<Scheme>(spec_.core[0]);
  view_.occupancy_bits = (spec_.core[4] & kOccupancyBits) != 0;
  view_.place = place;
  uint64_t first = 0;
  for (uint32_t j = 0; j < view_.levels; ++j) {
    view_.buckets[j] = spec_.core[kCoreHead + j];
    view_.first[j] = first;
    first += view_.buckets[j];
  }
}

uint64_t MultilevelTable::keys() const {
  uint64_t total = view_.state[kListed];
  for (uint32_t j = 0; j < view_.levels; ++j) total += view_.state[kPlaced + j];
  return total;
}

uint64_t MultilevelTable::slot_count() const {
  return (view_.first[view_.levels - 1] + view_.buckets[view_.levels - 1]) * view_.slots;
}

uint64_t* MultilevelTable::find(const StoredKey& key) const {
  const uint64_t d = digest(key);
  if (guide_ != nullptr) {
    const TableGuide::Found found = guide_->find(view_, key, d);
    TableGuide::Counts counts;
    guide_->count(view_, found, counts);
    guide_->count(counts);
    return found.is_in() ? place_of(found.slot, found.entry) : nullptr;
  }
  const uint64_t slot = loops_.find(view_, key.low, key.high, d);
  if (slot != kAbsent) return place_of(slot, 0);
  const uint64_t entry = list_find(view_, key.low, key.high, d);
  return entry == 0 ? nullptr : place_of(kAbsent, entry);
}

// Where the value of a slot, or of an entry of the list if that is not 0, lies; of a set its key.
uint64_t* MultilevelTable::place_of(uint64_t slot, uint64_t entry) const {
  if (view_.value_words == 0) return entry != 0 ? view_.list_keys + (entry - 1) * view_.words : record_at(view_, slot);
  return entry != 0 ? view_.list_values + entry - 1 : value_at(view_, slot);
}

bool MultilevelTable::erase(const StoredKey& key) {
  const uint64_t d = digest(key);
  TableGuide::Found found;
  if (guide_ != nullptr)
    found = guide_->find(view_, key, d);
  else if (found.slot = loops_.find(view_, key.low, key.high, d); found.slot == kAbsent)
    found.entry = list_find(view_, key.low, key.high, d);
  if (!found.is_in()) return false;
  if (found.entry != 0) {
    list_remove(view_, static_cast<uint32_t>(found.entry));
    if (guide_ != nullptr) guide_->removed(d, view_.levels + 1);
  } else {
    clear_slot(view_, found.slot);
    if (guide_ != nullptr) guide_->cleared(view_, found.slot, d);
    const uint64_t deletions = ++view_.state[kDeletions];
    if (view_.scheme == Scheme::least_loaded && view_.state[kListed] > 0 && deletions % kRetryEvery == 0)
      retry_oldest(view_);
  }
  if (guide_ != nullptr) guide_->step(view_);
  return true;
}

// ---- with a summary -----------------------------------------------------------------------------------------

void MultilevelTable::attach(std::unique_ptr<Summary> summary, uint64_t due) {
  std::unique_ptr<TableGuide> guide;  // made whole before the old one goes: an error changes nothing
  if (summary != nullptr) {
    if (summary->levels() < view_.levels + (view_.limit > 0 ? 1 : 0))
      throw SpecError("the summary has fewer levels than the table, its list counted");
    if (due > 0 && view_.scheme != Scheme::standard) throw SpecError("lazy deletions need the scheme standard");
    guide = std::make_unique<TableGuide>(std::move(summary), view_, due);
    guide->fill(view_);
  }
  take(std::move(guide));
}

void MultilevelTable::take(std::unique_ptr<TableGuide> guide) {
  guide_ = std::move(guide);
  view_.guide = guide_.get();
  view_.deleted = guide_ == nullptr ? nullptr : guide_->reserved();
  view_.hashes = guide_ == nullptr ? nullptr : guide_->hashes();
}

std::unique_ptr<MultilevelTable> MultilevelTable::copy() const {
  auto twin = std::make_unique<MultilevelTable>(spec_, bits_.copy());
  if (guide_ != nullptr) twin->take(guide_->copy(twin->view_));
  return twin;
}

// f(number, key, digest, what the summary says) for each key, their memory brought near before.
template <typename F>
void MultilevelTable::guided(const uint64_t* keys, size_t n, F&& f) const {
  constexpr size_t kBatch = 32;
  uint64_t copied[2 * kBatch], digests[kBatch];
  uint8_t hints[kBatch];
  for (size_t start = 0; start < n; start += kBatch) {
    const size_t g = std::min(kBatch, n - start);
    std::copy_n(keys + start * view_.words, g * view_.words, copied);
    view_.hash.digests(kernel_, copied, g, digests);
    guide_->hints(view_, digests, g, hints);
    for (size_t i = 0; i < g; ++i)
      if (hints[i] != 0 && hints[i] <= view_.levels)
        __builtin_prefetch(view_.records + bucket_of(view_, digests[i], hints[i] - 1) * view_.stride);
    for (size_t i = 0; i < g; ++i) {
      const uint64_t* key = copied + i * view_.words;
      f(start + i, StoredKey{key[0], view_.words == 2 ? key[1] : 0}, digests[i], hints[i]);
    }
  }
}

size_t MultilevelTable::get_guided(const uint64_t* keys, size_t n, uint64_t missing, uint64_t* out,
                                   uint8_t* found) const {
  TableGuide::Counts counts;
  guided(keys, n, [&](size_t i, const StoredKey& key, uint64_t digest, uint32_t hint) {
    const TableGuide::Found where = guide_->find(view_, key, digest, hint);
    guide_->count(view_, where, counts);
    found[i] = where.is_in();
    if (out == nullptr) return;
    out[i] = !where.is_in()     ? missing
             : where.entry != 0 ? listed_value(view_, where.entry)
                                : value_of(view_, where.slot);
  });
  guide_->count(counts);
  return counts.hits;
}

size_t MultilevelTable::insert_guided(const uint64_t* keys, const uint64_t* values, size_t n, bool are_new,
                                      uint8_t* added) {
  constexpr size_t kAhead = 8;
  const auto key_of = [&](size_t i) {
    const uint64_t* words = keys + i * view_.words;
    return StoredKey{words[0], view_.words == 2 ? words[1] : 0};
  };
  for (size_t i = 0; i < n; ++i) {  // one by one: what the summary says changes with each
    if (i + kAhead < n) {
      const uint64_t later = digest(key_of(i + kAhead));
      guide_->summary().prefetch(later);
      for (uint32_t j = 0; j < view_.levels && j < 2; ++j) {
        const uint64_t bucket = bucket_of(view_, later, j);
        __builtin_prefetch(view_.occupied + bucket * view_.slots / 8, 1);
        __builtin_prefetch(view_.records + bucket * view_.stride, 1);
      }
    }
    const StoredKey key = key_of(i);
    const uint64_t d = digest(key);
    TableGuide::Found found;
    const uint64_t value = view_.value_words == 0 ? 0 : values[i];
    if (!are_new) found = guide_->find(view_, key, d);
    const bool is_in = found.is_in();
    if (found.entry != 0)
      set_listed_value(view_, found.entry, value);
    else if (found.slot != kAbsent)
      set_value(view_, found.slot, value);
    else if (!guide_->insert(view_, key, value, d, found))
      return i;
    if (added != nullptr) added[i] = !is_in;
  }
  return n;
}

size_t MultilevelTable::erase_many(const uint64_t* keys, size_t n) {
  constexpr size_t kBatch = 32;
  uint64_t digests[kBatch];
  size_t erased = 0;
  for (size_t start = 0; start < n; start += kBatch) {
    const size_t g = std::min(kBatch, n - start);
    const uint64_t* batch = keys + start * view_.words;
    view_.hash.digests(kernel_, batch, g, digests);
    for (size_t i = 0; i < g; ++i)
      for (uint32_t j = 0; j < view_.levels; ++j)
        __builtin_prefetch(view_.records + bucket_of(view_, digests[i], j) * view_.stride, 1);
    for (size_t i = 0; i < g; ++i) {
      const uint64_t* key = batch + i * view_.words;
      erased += erase({key[0], view_.words == 2 ? key[1] : 0});
    }
  }
  return erased;
}

MultilevelTable::Probe MultilevelTable::probe(const StoredKey& key) const {
  const uint64_t d = digest(key);
  if (guide_ != nullptr) {
    const TableGuide::Found found = guide_->find(view_, key, d);
    const uint32_t level = found.slot == kAbsent ? 0 : level_of(view_, found.slot / view_.slots) + 1;
    return {level, found.reads, found.list};
  }
  const uint64_t slot = loops_.find(view_, key.low, key.high, d);
  if (slot == kAbsent) return {0, view_.levels, view_.state[kListed] > 0};
  const uint32_t level = level_of(view_, slot / view_.slots) + 1;
  return {level, level, false};
}

namespace {

// Writes an item as words, at number n.
void write_item(uint32_t words, const StoredKey& key, uint64_t value, size_t n, uint64_t* keys, uint64_t* values) {
  keys[n * words] = key.low;
  if (words == 2) keys[n * words + 1] = key.high;
  values[n] = value;
}

}  // namespace

size_t MultilevelTable::page(Position& position, size_t most, uint64_t* keys, uint64_t* values) const {
  const uint64_t slots = slot_count();
  const bool in_slots = position.slot < slots;
  size_t n = 0;
  for (; n < most && position.slot < slots; ++position.slot) {
    if (position.slot % 8 == 0 && view_.occupied[position.slot / 8] == 0) {
      position.slot += 7;
      continue;
    }
    if (!has_bit(view_.occupied, position.slot)) continue;
    write_item(view_.words, key_at(view_, position.slot), value_of(view_, position.slot), n++, keys, values);
  }
  if (in_slots) position.slot = std::min(position.slot, slots);  // eight were skipped at a time
  return n + page_of_list(position, most - n, keys + n * view_.words, values + n);
}

size_t MultilevelTable::page(const Scattered& order, Position& position, size_t most, uint64_t* keys,
                             uint64_t* values) const {
  constexpr uint64_t kBatch = 32;
  uint64_t chosen[kBatch];
  const uint64_t slots = slot_count();
  size_t n = 0;
  while (n < most && position.slot < slots) {
    const uint64_t batch = std::min({kBatch, slots - position.slot, uint64_t{most - n}});
    for (uint64_t i = 0; i < batch; ++i) {
      chosen[i] = order(position.slot + i);
      __builtin_prefetch(view_.occupied + chosen[i] / 8);
      __builtin_prefetch(record_at(view_, chosen[i]));
      if (view_.value_words != 0) __builtin_prefetch(value_at(view_, chosen[i]));
    }
    for (uint64_t i = 0; i < batch; ++i)
      if (has_bit(view_.occupied, chosen[i]))
        write_item(view_.words, key_at(view_, chosen[i]), value_of(view_, chosen[i]), n++, keys, values);
    position.slot += batch;
  }
  return n + page_of_list(position, most - n, keys + n * view_.words, values + n);
}

// The part of a page that is on the list: from the number of slots on.
size_t MultilevelTable::page_of_list(Position& position, size_t most, uint64_t* keys, uint64_t* values) const {
  const uint64_t slots = slot_count();
  if (position.slot < slots) return 0;
  if (position.slot == slots) position = {slots + 1, view_.state[kOldest]};
  size_t n = 0;
  for (; n < most && position.entry != 0 && position.entry <= view_.limit && position.slot <= slots + view_.limit;
       ++position.slot) {
    write_item(view_.words, listed_key(view_, position.entry), listed_value(view_, position.entry), n++, keys, values);
    position.entry = view_.links[position.entry - 1].next;
  }
  return n;
}

// ---- invariants ---------------------------------------------------------------------------------------------

std::string MultilevelTable::check_levels() const {
  const TableView& t = view_;
  const uint64_t slots = slot_count();
  for (uint64_t slot = slots; slot % 8 != 0; ++slot)
    if (has_bit(t.occupied, slot)) return "a bit of occupancy lies behind the last slot";
  for (uint32_t j = 0; j < t.levels; ++j) {
    uint64_t placed = 0;
    const uint64_t end = (t.first[j] + t.buckets[j]) * t.slots;
    for (uint64_t slot = t.first[j] * t.slots; slot < end; ++slot) {
      const StoredKey key = key_at(t, slot);
      const bool marked = t.scheme == Scheme::conservative && has_bit(t.marks, slot);
      const uint32_t* next = t.next + slot * t.next_words;
      if (!has_bit(t.occupied, slot)) {
        if (!(key == StoredKey{}) || value_of(t, slot) != 0) return "a free slot is not zero";
        if (marked) return "a free slot is marked";
        for (uint32_t i = 0; i < t.next_words; ++i)
          if (next[i] != 0) return "a free slot has next hashes";
        continue;
      }
      ++placed;
      const uint64_t d = t.hash.digest(key);
      if (bucket_of(t, d, j) != slot / t.slots) return "a key lies in a bucket that is not its own";
      if (marked && j + 1 == t.levels) return "a slot of the last level is marked";
      if (t.next_words == 0) continue;
      for (uint32_t k = 0, i = 0; k < t.levels; ++k) {
        if (k == j || (t.scheme == Scheme::second_chance && k != j + 1)) continue;
        if (t.first[k] + next[i++] != bucket_of(t, d, k)) return "a next hash is wrong";
      }
      if (t.scheme == Scheme::second_chance && j + 1 == t.levels && next[0] != 0) return "a next hash is wrong";
    }
    if (placed != t.state[kPlaced + j]) return "a level's number of keys is not that of its occupied slots";
  }
  return {};
}

std::string MultilevelTable::check_list() const {
  const TableView& t = view_;
  const uint64_t used = t.state[kUsed];
  std::vector<bool> seen(used, false);
  uint64_t entry = t.state[kOldest], before = 0, listed = 0, freed = 0, chained = 0;
  for (; entry != 0; before = entry, entry = t.links[entry - 1].next, ++listed) {
    if (entry > used || seen[entry - 1]) return "the overflow list's links are broken";
    seen[entry - 1] = true;
    if (t.links[entry - 1].previous != before) return "the overflow list's links are broken";
    const StoredKey key = listed_key(t, entry);
    if (list_find(t, key.low, key.high, t.hash.digest(key)) == 0) return "the overflow list's index lacks a key";
  }
  if (before != t.state[kYoungest] || listed != t.state[kListed]) return "the overflow list's ends are wrong";
  for (entry = t.state[kFreed]; entry != 0; entry = t.links[entry - 1].next, ++freed) {
    if (entry > used || seen[entry - 1]) return "the overflow list's free entries are broken";
    seen[entry - 1] = true;
    if (t.links[entry - 1].previous != 0 || t.links[entry - 1].chain != 0 || listed_value(t, entry) != 0 ||
        !(listed_key(t, entry) == StoredKey{}))
      return "a free entry of the overflow list is not zero";
  }
  if (listed + freed != used) return "the overflow list has lost an entry";
  for (uint64_t place = 0; place < t.index_size; ++place) {
    for (entry = t.index[place]; entry != 0; entry = t.links[entry - 1].chain) {
      if (entry > used || ++chained > listed) return "the overflow list's index is broken";
      if (list_place(t, t.hash.digest(listed_key(t, entry))) != place) return "the overflow list's index is broken";
    }
  }
  return chained == listed ? "" : "the overflow list's index is broken";
}

std::string MultilevelTable::check(bool thorough, bool unique) const {
  const TableView& t = view_;
  const uint64_t* s = t.state;
  for (uint32_t j = 0; j < kMaxLevels; ++j)
    if (s[kPlaced + j] > (j < t.levels ? t.buckets[j] * t.slots : 0)) return "a level has more keys than slots";
  for (uint32_t i = kUsed + 1; i < kPlaced; ++i)
    if (s[i] != 0) return "a spare word of the state is not zero";
  if (s[kListed] > s[kUsed] || s[kUsed] > t.limit || s[kOldest] > s[kUsed] || s[kYoungest] > s[kUsed] ||
      s[kFreed] > s[kUsed] || (s[kListed] == 0) != (s[kOldest] == 0) || (s[kListed] == 0) != (s[kYoungest] == 0))
    return "the overflow list's ends are wrong";
  if (s[kMoves] > s[kInsertions] || s[kReturnMoves] > s[kReturns]) return "the counters contradict each other";
  for (const StateWord each : {kInsertions, kInsertionReads, kDeletions, kReturns})  // else they would wrap one day
    if (s[each] > kMostCounted) return "a counter is impossible";
  if (!thorough) return {};
  if (std::string broken = check_levels(); !broken.empty()) return broken;
  if (std::string broken = check_list(); !broken.empty()) return broken;
  if (guide_ != nullptr)
    if (std::string broken = guide_->check(t); !broken.empty()) return broken;
  if (!unique) return {};
  for (uint64_t slot = 0, n = slot_count(); slot < n; ++slot) {
    if (!has_bit(t.occupied, slot)) continue;
    const StoredKey key = key_at(t, slot);
    const uint64_t d = t.hash.digest(key);
    if (loops_.find(t, key.low, key.high, d) != slot || list_find(t, key.low, key.high, d) != 0)
      return "a key is stored twice: assume_unique=True was promised and not kept";
  }
  uint64_t entry = s[kOldest];
  for (uint64_t i = 0; i < s[kListed]; ++i, entry = t.links[entry - 1].next) {
    const StoredKey key = listed_key(t, entry);
    const uint64_t d = t.hash.digest(key);
    if (loops_.find(t, key.low, key.high, d) != kAbsent || list_find(t, key.low, key.high, d) != entry)
      return "a key is stored twice: assume_unique=True was promised and not kept";
  }
  return {};
}

// ---- many threads -----------------------------------------------------------------------------------------------

namespace {

constexpr uint64_t kStretch = uint64_t{1} << 14;

}  // namespace

uint64_t get_all(const MultilevelTable& table, const uint64_t* keys, uint64_t n, uint64_t missing, uint64_t* out,
                 uint32_t threads, const std::function<bool()>& pulse, uint64_t* first_missing,
                 uint64_t* missing_count) {
  const uint32_t words = table.view().words;
  std::atomic<uint64_t> first = n, count = 0;
  const uint64_t done = for_stretches(n, threads, kStretch, pulse, [&](uint64_t start, uint64_t size) {
    uint8_t found[kStretch];
    const size_t there = table.get_many(keys + start * words, size, missing, out + start, found);
    if (there == size) return;
    count += size - there;
    const uint64_t at = start + static_cast<uint64_t>(std::find(found, found + size, 0) - found);
    uint64_t known = first.load();
    while (at < known && !first.compare_exchange_weak(known, at)) {
    }
  });
  *first_missing = first;
  *missing_count = count;
  return done;
}

uint64_t contains_all(const MultilevelTable& table, const uint64_t* keys, uint64_t n, uint8_t* found, uint32_t threads,
                      const std::function<bool()>& pulse) {
  const uint32_t words = table.view().words;
  return for_stretches(n, threads, kStretch, pulse, [&](uint64_t start, uint64_t size) {
    table.contains_many(keys + start * words, size, found + start);
  });
}

extern constinit const KindRow kMultilevelKind = {
    .kind = Kind::multilevel,
    .name = "multilevel-table",
    .payload_bytes = MultilevelTable::payload_bytes,
};

}  // namespace evenbins

// Tried and dropped (1M or 10M keys, 8 slots, 2 levels, load 0.95; g++ 12, AVX-512):
// - The first resident that has room elsewhere moves, whatever the load there: 5.6e-5 of the keys overflow instead of
//   2.0e-5, and 2.1 % of the insertions move instead of 1.9 %; the time is the same.
// - A retry of the list on every deletion, on every fourth, on every 32nd: the same list under endless insertions and
//   deletions as with every eighth. None at all: 4.6e-3 of the keys are on it, a hundred times as many.
// - Keys and values in arrays of their own: insertions and look-ups take 5 … 10 % longer than with the values behind
//   the keys, absent keys 5 % less; below eight slots a bucket then takes two lines instead of one.
// - Groups of 16 and 32 keys in the look-up's pipeline instead of 64: absent keys take up to a fifth longer.

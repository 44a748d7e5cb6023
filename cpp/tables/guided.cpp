#include "evenbins/guided.hpp"

#include <algorithm>
#include <new>

#include "table_parts.hpp"

namespace evenbins {
namespace {

uint64_t bucket_count(const TableView& t) { return t.first[t.levels - 1] + t.buckets[t.levels - 1]; }

// The slot of a bucket that holds the key, or kAbsent.
uint64_t slot_in(const TableView& t, uint64_t bucket, const StoredKey& key) {
  const uint64_t* line = t.records + bucket * t.stride;
  for (uint32_t s = 0; s < t.slots; ++s) {
    if (line[s] != key.low || (t.words == 2 && line[t.slots + s] != key.high)) continue;
    if ((key.low | key.high) != 0 || has_bit(t.occupied, bucket * t.slots + s)) return bucket * t.slots + s;
  }
  return kAbsent;
}

std::unique_ptr<Summary> empty_like(const Summary& summary) {
  return make_summary(summary.spec(), Bits::zeroed(summary.bits().bytes()));
}

}  // namespace

bool TableGuide::Found::is_wrong(const TableView& t) const {
  if (entry != 0) return hint != t.levels + 1;
  return hint != level_of(t, slot / t.slots) + 1;
}

TableGuide::TableGuide(std::unique_ptr<Summary> summary, const TableView& table, uint64_t due)
    : summary_(std::move(summary)), due_(due), buckets_(bucket_count(table)), slots_(table.slots) {
  if (due == 0) return;
  reserved_.resize((buckets_ * slots_ + 7) / 8);
  hashes_.resize(buckets_ * slots_);
  steps_ = 1 + 2 * (buckets_ + table.limit) / due;  // so that a rebuild ends long before the next is due
}

std::unique_ptr<TableGuide> TableGuide::copy(const TableView& table) const {
  auto twin = std::make_unique<TableGuide>(summary_->copy(), table, due_);
  if (next_ != nullptr) twin->next_ = next_->copy();
  twin->reserved_ = reserved_;
  twin->hashes_ = hashes_;
  twin->cursor_ = cursor_;
  twin->listed_left_ = listed_left_;
  twin->reserved_count_ = reserved_count_;
  twin->rebuilds_ = rebuilds_;
  twin->rebuild_moves_ = rebuild_moves_;
  twin->count(state().counts);
  return twin;
}

void TableGuide::fill(const TableView& t) {
  for (uint64_t bucket = 0; bucket < buckets_; ++bucket) {
    const uint32_t level = level_of(t, bucket) + 1;
    for (uint32_t bits = occupied_in(t, t.occupied, bucket); bits != 0; bits &= bits - 1) {
      const uint64_t slot = bucket * slots_ + static_cast<uint32_t>(std::countr_zero(bits));
      const uint64_t digest = t.hash.digest(key_at(t, slot));
      summary_->add(digest, level);
      if (lazy()) hashes_[slot] = digest;
    }
  }
  uint64_t entry = t.state[kOldest];
  for (uint64_t i = 0; i < t.state[kListed] && entry != 0 && entry <= t.limit; ++i) {
    summary_->add(t.hash.digest(listed_key(t, entry)), t.levels + 1);
    entry = t.links[entry - 1].next;
  }
}

void TableGuide::clear() {
  summary_->clear();
  next_.reset();
  std::fill(reserved_.begin(), reserved_.end(), 0);
  std::fill(hashes_.begin(), hashes_.end(), 0);
  cursor_ = listed_left_ = reserved_count_ = rebuilds_ = rebuild_moves_ = 0;
  for (auto* each : {&counts_.hits, &counts_.hit_reads, &counts_.wrong, &counts_.misses, &counts_.miss_reads,
                     &counts_.false_positives})
    *each = 0;
}

// ---- look-ups -------------------------------------------------------------------------------------------------

uint32_t TableGuide::hint(const TableView& t, uint64_t digest) const {
  const uint32_t old = summary_->level(digest);
  if (next_ == nullptr || old == 0) return old;
  if (old > t.levels) {  // on the list, or brought from there by the rebuild
    const uint32_t fresh = cursor_ == buckets_ ? next_->level(digest) : old;
    return fresh == 0 ? old : fresh;
  }
  return bucket_of(t, digest, old - 1) < cursor_ ? next_->level(digest) : old;
}

void TableGuide::hints(const TableView& t, const uint64_t* digests, size_t n, uint8_t* out) const {
  if (next_ == nullptr) return summary_->level_many(digests, n, out);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(hint(t, digests[i]));
}

TableGuide::Found TableGuide::find(const TableView& t, const StoredKey& key, uint64_t digest, uint32_t hint) const {
  Found found;
  found.hint = hint;
  if (hint == 0) return found;
  const auto look = [&](uint32_t level) {
    found.mask |= 1u << level;
    ++found.reads;
    found.slot = slot_in(t, bucket_of(t, digest, level), key);
  };
  const auto ask_list = [&] {
    if (t.state[kListed] == 0) return;
    found.list = true;
    found.entry = list_find(t, key.low, key.high, digest);
  };
  if (hint > t.levels)
    ask_list();
  else
    look(hint - 1);
  for (uint32_t j = 0; j < t.levels && !found.is_in(); ++j)
    if (j + 1 != hint) look(j);
  if (!found.is_in() && !found.list) ask_list();
  return found;
}

void TableGuide::count(const TableView& t, const Found& found, Counts& counts) const {
  if (found.is_in()) {
    ++counts.hits;
    counts.hit_reads += found.reads;
    counts.wrong += found.is_wrong(t);
  } else {
    ++counts.misses;
    counts.miss_reads += found.reads;
    counts.false_positives += found.hint != 0;
  }
}

void TableGuide::count(const Counts& c) const {
  const auto more = [](std::atomic<uint64_t>& total, uint64_t n) {
    if (n != 0) total.fetch_add(n, std::memory_order_relaxed);
  };
  more(counts_.hits, c.hits);
  more(counts_.hit_reads, c.hit_reads);
  more(counts_.wrong, c.wrong);
  more(counts_.misses, c.misses);
  more(counts_.miss_reads, c.miss_reads);
  more(counts_.false_positives, c.false_positives);
}

TableGuide::State TableGuide::state() const {
  State state{};
  state.counts = {counts_.hits,   counts_.hit_reads,  counts_.wrong,
                  counts_.misses, counts_.miss_reads, counts_.false_positives};
  state.reserved = reserved_count_;
  state.due = due_;
  state.steps = steps_;
  state.rebuilds = rebuilds_;
  state.rebuild_moves = rebuild_moves_;
  state.cursor = cursor_;
  state.bytes = summary_->bits().bytes() * (next_ == nullptr ? 1 : 2) + reserved_.size() + 8 * hashes_.size();
  state.rebuilding = next_ != nullptr;
  return state;
}

// ---- changes --------------------------------------------------------------------------------------------------

bool TableGuide::insert(const TableView& t, const StoredKey& key, uint64_t value, uint64_t digest, const Found& found) {
  if (reserved_count_ > 0 && summary_->level(digest) != 0) {  // perhaps it returns
    for (uint32_t j = 0; j < t.levels; ++j) {
      const uint64_t bucket = bucket_of(t, digest, j);
      for (uint32_t bits = occupied_in(t, reserved_.data(), bucket); bits != 0; bits &= bits - 1) {
        const uint64_t slot = bucket * slots_ + static_cast<uint32_t>(std::countr_zero(bits));
        if (hashes_[slot] != digest) continue;
        clear_bit(reserved_.data(), slot);
        --reserved_count_;
        put(t, slot, j, key, value, digest);
        ++t.state[kPlaced + j];
        ++t.state[kInsertions];
        t.state[kInsertionReads] += found.reads;
        step(t);
        return true;
      }
    }
  }
  if (!place_key(t, key, value, digest, found.mask, found.reads)) return false;
  step(t);
  return true;
}

void TableGuide::cleared(const TableView& t, uint64_t slot, uint64_t digest) {
  if (!lazy()) return removed(digest, level_of(t, slot / slots_) + 1);
  set_bit(reserved_.data(), slot);  // its digest stays
  ++reserved_count_;
}

void TableGuide::begin() {
  next_ = empty_like(*summary_);
  cursor_ = listed_left_ = 0;
}

void TableGuide::step(const TableView& t) {
  if (!lazy()) return;
  if (next_ == nullptr) {
    if (reserved_count_ < due_) return;
    try {
      begin();
    } catch (const std::bad_alloc&) {  // the change that this step follows is made: a later one begins the rebuild
      return;
    }
  }
  for (uint64_t i = 0; i < steps_; ++i) {
    if (cursor_ < buckets_) {
      scan_bucket(t, cursor_++);
      if (cursor_ == buckets_) listed_left_ = t.state[kListed];
      continue;
    }
    if (listed_left_ > 0 && t.state[kListed] > 0) {
      --listed_left_;
      scan_listed(t);
      continue;
    }
    summary_ = std::move(next_);
    cursor_ = listed_left_ = 0;
    ++rebuilds_;
    return;
  }
}

void TableGuide::rebuild(const TableView& t) {
  if (!lazy()) return;
  if (next_ == nullptr) begin();
  while (next_ != nullptr) step(t);
}

void TableGuide::scan_bucket(const TableView& t, uint64_t bucket) {
  for (uint32_t bits = occupied_in(t, reserved_.data(), bucket); bits != 0; bits &= bits - 1) {
    const uint64_t slot = bucket * slots_ + static_cast<uint32_t>(std::countr_zero(bits));
    clear_bit(reserved_.data(), slot);
    hashes_[slot] = 0;
    --reserved_count_;
  }
  const uint32_t level = level_of(t, bucket);
  for (uint32_t bits = occupied_in(t, t.occupied, bucket); bits != 0; bits &= bits - 1) {
    const uint64_t slot = bucket * slots_ + static_cast<uint32_t>(std::countr_zero(bits));
    const uint64_t digest = hashes_[slot];
    uint32_t to = 0;
    uint64_t there = 0;
    for (; to < level; ++to) {
      there = bucket_of(t, digest, to);
      if (taken_in(t, there) != full_mask(t)) break;
    }
    next_->add(digest, to + 1);
    if (to == level) continue;
    const auto s = static_cast<uint32_t>(std::countr_one(taken_in(t, there)));
    put(t, there * slots_ + s, to, key_at(t, slot), value_of(t, slot), digest);
    ++t.state[kPlaced + to];
    clear_slot(t, slot);
    hashes_[slot] = 0;
    ++rebuild_moves_;
  }
}

void TableGuide::scan_listed(const TableView& t) {
  const auto entry = static_cast<uint32_t>(t.state[kOldest]);
  const StoredKey key = listed_key(t, entry);
  const uint64_t digest = t.hash.digest(key), value = listed_value(t, entry);
  for (uint32_t to = 0; to < t.levels; ++to) {
    const uint64_t there = bucket_of(t, digest, to);
    if (taken_in(t, there) == full_mask(t)) continue;
    const auto s = static_cast<uint32_t>(std::countr_one(taken_in(t, there)));
    list_remove(t, entry);
    put(t, there * slots_ + s, to, key, value, digest);
    ++t.state[kPlaced + to];
    ++t.state[kReturns];
    next_->add(digest, to + 1);
    return;
  }
  unlink(t, entry);
  link_youngest(t, entry);
  next_->add(digest, t.levels + 1);
}

// ---- invariants -----------------------------------------------------------------------------------------------

std::string TableGuide::check(const TableView& t) const {
  if (std::string broken = summary_->check(true); !broken.empty()) return broken;
  uint64_t reserved = 0;
  for (uint64_t slot = 0; slot < buckets_ * slots_; ++slot) {
    const bool is_reserved = lazy() && has_bit(reserved_.data(), slot);
    reserved += is_reserved;
    if (!has_bit(t.occupied, slot)) {
      if (lazy() && !is_reserved && hashes_[slot] != 0) return "a free slot has a digest";
      continue;
    }
    if (is_reserved) return "an occupied slot is reserved";
    const uint64_t digest = t.hash.digest(key_at(t, slot));
    if (lazy() && hashes_[slot] != digest) return "the digest kept for a slot is not that of its key";
    if (summary_->level(digest) == 0 || hint(t, digest) == 0) return "the summary has lost a key";
    if (lazy() && summary_->level(digest) < level_of(t, slot / slots_) + 1) return "the summary's level is too low";
  }
  if (reserved != reserved_count_) return "the number of reserved slots is wrong";
  uint64_t entry = t.state[kOldest];
  for (uint64_t i = 0; i < t.state[kListed] && entry != 0 && entry <= t.limit; ++i) {
    if (hint(t, t.hash.digest(listed_key(t, entry))) == 0) return "the summary has lost a key of the list";
    entry = t.links[entry - 1].next;
  }
  return {};
}

}  // namespace evenbins

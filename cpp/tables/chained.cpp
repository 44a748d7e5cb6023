#include "evenbins/chained.hpp"

#include <algorithm>

namespace evenbins {
namespace {

constexpr uint64_t kSingle = 1, kSequential = 2, kMultilevel = 3, kLeastLoaded = 6, kDLeft = 7;
constexpr uint32_t kMostPassed = ~uint32_t{0};

enum State : uint32_t { kKeys, kUsed, kFirstFree, kOverflowing, kInsertions, kReads, kReserved };

bool is_balanced(uint64_t policy) { return policy <= kMultilevel; }
uint64_t lines(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

struct Sizes {
  uint64_t bins, entries, values;  // bytes

  explicit Sizes(const Spec& spec) {
    uint64_t count = spec.core[5];
    for (size_t i = 6; i < spec.core.size(); i += 2) count += spec.core[i];
    const uint64_t bin_words = is_balanced(spec.core[0]) ? 3 : 2;
    const uint64_t entry_words = static_cast<KeyType>(spec.core[3]) == KeyType::digest ? 5 : 3;
    bins = lines(4 * bin_words * count);
    entries = lines(4 * entry_words * spec.capacity);
    values = lines(8 * spec.capacity);
  }
};

}  // namespace

uint64_t ChainedTable::payload_bytes(const Spec& spec) {
  const std::vector<uint64_t>& core = spec.core;
  if (spec.hashing != Hashing::independent) throw SpecError("a chained table needs independent hashing");
  if (spec.capacity < 1 || spec.capacity > kMaxKeys) throw SpecError("a chained table holds 1 … 2^31 - 2 keys");
  if (core.size() < 8 || core.size() % 2 != 0)
    throw SpecError("a chained table has six numbers in its core and two for each table");
  const uint64_t policy = core[0], choices = core[1], tables = (core.size() - 6) / 2;
  if (policy != kSingle && policy != kSequential && policy != kMultilevel && policy != kLeastLoaded && policy != kDLeft)
    throw SpecError("no such policy of a chained table");
  const bool balanced = is_balanced(policy);
  if (policy == kSingle ? choices != 1 : choices < 2 || choices > kMaxChoices)
    throw SpecError("a chained table has 2 … 8 choices, and 1 for the policy single");
  if (tables != (policy == kMultilevel || policy == kDLeft ? choices : 1))
    throw SpecError("the number of tables does not fit the policy");
  if (core[2] > (balanced ? uint64_t{1} << 32 : 0)) throw SpecError("the coin must be 0 … 2^32");
  if (!is_key_type(core[3]) || !is_value_type(core[4])) throw SpecError("no such type of keys or values");
  if (balanced ? core[5] < 1 || core[5] > kMaxBins : core[5] != 0)
    throw SpecError("overflow chains must be 1 … 2^40, and none without thresholds");
  for (size_t i = 6; i < core.size(); i += 2) {
    if (core[i] < 1 || core[i] > kMaxBins) throw SpecError("a table must have 1 … 2^40 bins");
    const uint64_t threshold = core[i + 1];
    const bool never = policy == kSingle && threshold == kNeverFull;
    if (threshold > (balanced ? kMaxThreshold : 0) && !never) throw SpecError("a threshold must be 0 … 10^6");
  }
  const Sizes sizes(spec);
  return 8 * kStateWords + sizes.bins + sizes.entries + sizes.values;
}

ChainedTable::ChainedTable(Spec spec, Bits bits)
    : spec_(std::move(spec)),
      bits_(std::move(bits)),
      balanced_(is_balanced(spec_.core[0])),
      choices_(static_cast<uint32_t>(spec_.core[1])),
      tables_(static_cast<uint32_t>((spec_.core.size() - 6) / 2)),
      bin_words_(balanced_ ? 3 : 2),
      coin_(spec_.core[2]),
      capacity_(spec_.capacity),
      overflow_bins_(spec_.core[5]),
      hash_(static_cast<KeyType>(spec_.core[3]), spec_.seed) {
  key_words_ = key_words(hash_.type);
  entry_words_ = 1 + 2 * key_words_;
  for (uint32_t t = 0; t < tables_; ++t) {
    first_[t] = bins_in_tables_;
    sizes_[t] = spec_.core[6 + 2 * t];
    thresholds_[t] = spec_.core[7 + 2 * t];
    bins_in_tables_ += sizes_[t];
  }
  const Sizes sizes(spec_);
  state_ = bits_.words();
  bins_ = reinterpret_cast<uint32_t*>(state_ + kStateWords);
  entries_ = bins_ + sizes.bins / 4;
  values_ = reinterpret_cast<uint64_t*>(entries_ + sizes.entries / 4);
}

// ---- one key --------------------------------------------------------------------------------------------

ChainedTable::Place ChainedTable::locate(const StoredKey& key, uint64_t digest) const {
  for (uint32_t level = 0;; ++level) {
    const uint64_t index = bin_at(digest, level);
    const uint32_t* b = bin(index);
    uint32_t before = 0, number = b[0];
    for (uint32_t n = steps(b); n != 0 && number - 1 < capacity_; --n) {
      const uint32_t* e = entry(number);
      if (holds(e, key)) return {number, before, index, level};
      before = number;
      number = e[0];
    }
    if (balanced_ ? level == choices_ || b[2] == 0 : level + 1 == choices_) return {};
  }
}

// The first level by which a key could stand in that bin; `level` is one.
uint32_t ChainedTable::first_level(uint64_t digest, uint64_t index, uint32_t level) const {
  if (tables_ > 1 || level == choices_) return level;
  for (uint32_t j = 0; j < level; ++j)
    if (bin_at(digest, j) == index) return j;
  return level;
}

ChainedTable::Put ChainedTable::put(const StoredKey& key, uint64_t digest, uint64_t value, bool fresh) {
  if (!fresh) {
    const Place place = locate(key, digest);
    if (place.entry != 0) {
      values_[place.entry - 1] = value;
      return Put::replaced;
    }
  }
  if (state_[kKeys] >= capacity_) return Put::full;

  uint64_t index = 0;
  uint32_t level = 0;
  if (balanced_) {
    for (; level < choices_; ++level) {
      const uint64_t w = word(digest, level), threshold = thresholds_[tables_ == 1 ? 0 : level];
      index = bin_of(w, level);
      const uint32_t load = bin(index)[1];
      if (load < threshold || (load == threshold && (splitmix(w, 0) >> 32) < coin_)) break;
    }
    state_[kReads] += std::min(level + 1, choices_);
    if (level == choices_) index = overflow_bin(digest);
    level = first_level(digest, index, level);
    for (uint32_t j = 0; j < level; ++j) {
      uint32_t& passed = bin(bin_at(digest, j))[2];
      passed += passed != kMostPassed;
    }
    state_[kOverflowing] += level == choices_;
  } else {
    uint32_t least = ~uint32_t{0};
    for (; level < choices_; ++level) {
      const uint64_t at = bin_at(digest, level);
      if (const uint32_t load = bin(at)[1]; load < least) least = load, index = at;
    }
    state_[kReads] += choices_;
  }

  uint32_t number = static_cast<uint32_t>(state_[kFirstFree]);
  if (number != 0)
    state_[kFirstFree] = entry(number)[0] & ~kFree;
  else
    number = static_cast<uint32_t>(++state_[kUsed]);
  uint32_t *b = bin(index), *e = entry(number);
  e[0] = b[0];
  std::memcpy(e + 1, &key.low, 8);
  if (key_words_ == 2) std::memcpy(e + 3, &key.high, 8);
  values_[number - 1] = value;
  b[0] = number;
  ++b[1];
  ++state_[kKeys];
  ++state_[kInsertions];
  return Put::inserted;
}

bool ChainedTable::erase(const StoredKey& key, uint64_t digest, uint64_t* value) {
  const Place place = locate(key, digest);
  if (place.entry == 0) return false;
  uint32_t *b = bin(place.bin), *e = entry(place.entry);
  if (value != nullptr) *value = values_[place.entry - 1];
  (place.before == 0 ? b : entry(place.before))[0] = e[0];
  --b[1];
  if (balanced_) {
    for (uint32_t j = 0; j < place.level; ++j) {
      uint32_t& passed = bin(bin_at(digest, j))[2];
      passed -= passed != kMostPassed;
    }
    state_[kOverflowing] -= place.level == choices_;
  }
  std::memset(e, 0, 4 * entry_words_);
  e[0] = static_cast<uint32_t>(state_[kFirstFree]) | kFree;
  values_[place.entry - 1] = 0;
  state_[kFirstFree] = place.entry;
  --state_[kKeys];
  return true;
}

ChainedTable::Put ChainedTable::put(const StoredKey& key, uint64_t value, bool fresh) {
  return put(key, hash_.digest(key), value, fresh);
}

bool ChainedTable::erase(const StoredKey& key, uint64_t* value) { return erase(key, hash_.digest(key), value); }

// ---- many keys ------------------------------------------------------------------------------------------

void ChainedTable::approach(const uint64_t* digests, size_t n) const {
  for (uint32_t level = 0, levels = balanced_ ? 1 : choices_; level < levels; ++level)
    for (size_t i = 0; i < n; ++i) __builtin_prefetch(bin(bin_at(digests[i], level)), 1);
}

size_t ChainedTable::put_many(const uint64_t* keys, const uint64_t* values, size_t n, bool fresh, uint64_t& inserted) {
  uint64_t digests[kBatch];
  uint8_t found[kBatch];
  for (size_t start = 0; start < n; start += kBatch) {
    const size_t m = std::min(kBatch, n - start);
    hash_.digests(kernel_, keys + start * key_words_, m, digests);
    if (fresh)
      approach(digests, m);
    else
      find_many(keys + start * key_words_, m, nullptr, found);  // brings near what each will read; answers may change
    for (size_t i = 0; i < m; ++i) {
      const Put done = put(key_at(keys, start + i), digests[i], values[start + i], fresh);
      if (done == Put::full) return start + i;
      inserted += done == Put::inserted;
    }
  }
  return n;
}

// All keys of a batch take one step in turn, so that the memory that each waits for comes while the others are looked
// at.
void ChainedTable::find_many(const uint64_t* keys, size_t n, uint64_t* values, uint8_t* found) const {
  struct Walk {
    const uint32_t* bin;    // where it is
    uint32_t number, left;  // the entry to compare next; how many there are
    uint32_t level, key;    // of the batch
    bool entered;           // the bin has been read
  };
  uint64_t digests[kBatch];
  Walk walks[kBatch];
  uint32_t hits[kBatch];
  for (size_t start = 0; start < n; start += kBatch) {
    const auto m = static_cast<uint32_t>(std::min(kBatch, n - start));
    hash_.digests(kernel_, keys + start * key_words_, m, digests);
    for (uint32_t i = 0; i < m; ++i) {
      walks[i] = {bin(bin_at(digests[i], 0)), 0, 0, 0, i, false};
      __builtin_prefetch(walks[i].bin);
      hits[i] = 0;
    }
    for (uint32_t active = m; active > 0;) {
      uint32_t kept = 0;
      for (uint32_t i = 0; i < active; ++i) {
        Walk w = walks[i];
        if (!w.entered) {
          w.entered = true;
          w.number = w.bin[0];
          w.left = steps(w.bin);
        } else {
          const uint32_t* e = entry(w.number);
          if (holds(e, key_at(keys, start + w.key))) {
            hits[w.key] = w.number;
            if (values != nullptr) __builtin_prefetch(values_ + w.number - 1);
            continue;
          }
          w.number = e[0];
          --w.left;
        }
        if (w.left != 0 && w.number - 1 < capacity_) {
          __builtin_prefetch(entry(w.number));
        } else {
          if (balanced_ ? w.level == choices_ || w.bin[2] == 0 : w.level + 1 == choices_) continue;
          ++w.level;
          w.bin = bin(bin_at(digests[w.key], w.level));
          w.entered = false;
          __builtin_prefetch(w.bin);
        }
        walks[kept++] = w;
      }
      active = kept;
    }
    for (uint32_t i = 0; i < m; ++i) {
      found[start + i] = hits[i] != 0;
      if (values != nullptr && hits[i] != 0) values[start + i] = values_[hits[i] - 1];
    }
  }
}

uint64_t ChainedTable::erase_many(const uint64_t* keys, size_t n, uint8_t* found) {
  uint64_t digests[kBatch], erased = 0;
  uint8_t near[kBatch];
  for (size_t start = 0; start < n; start += kBatch) {
    const size_t m = std::min(kBatch, n - start);
    hash_.digests(kernel_, keys + start * key_words_, m, digests);
    find_many(keys + start * key_words_, m, nullptr, near);
    for (size_t i = 0; i < m; ++i) {
      const bool was_there = erase(key_at(keys, start + i), digests[i], nullptr);
      erased += was_there;
      if (found != nullptr) found[start + i] = was_there;
    }
  }
  return erased;
}

// ---- the table as a whole -------------------------------------------------------------------------------

uint32_t ChainedTable::next(uint32_t number) const {
  const uint64_t used = std::min(state_[kUsed], capacity_);
  while (number < used)
    if ((entry(++number)[0] & kFree) == 0) return number;
  return 0;
}

StoredKey ChainedTable::key_of(uint32_t number) const {
  StoredKey key;
  const uint32_t* e = entry(number);
  std::memcpy(&key.low, e + 1, 8);
  if (key_words_ == 2) std::memcpy(&key.high, e + 3, 8);
  return key;
}

ChainedTable::Probe ChainedTable::probe(const StoredKey& key) const {
  const uint64_t digest = hash_.digest(key);
  Probe found;
  for (uint32_t level = 0;; ++level) {
    const uint32_t* b = bin(bin_at(digest, level));
    found.overflow = level == choices_;
    found.reads += !found.overflow;
    uint32_t number = b[0];
    for (uint32_t n = steps(b); n != 0 && number - 1 < capacity_; --n, number = entry(number)[0]) {
      ++found.compared;
      if (!holds(entry(number), key)) continue;
      found.level = level + 1;
      return found;
    }
    if (balanced_ ? level == choices_ || b[2] == 0 : level + 1 == choices_) return found;
  }
}

std::vector<ChainedTable::Loads> ChainedTable::loads() const {
  std::vector<Loads> result;
  uint64_t index = 0;
  for (uint32_t t = 0; t < tables_ + (overflow_bins_ != 0); ++t) {
    Loads& seen = result.emplace_back();
    for (const uint64_t end = index + (t < tables_ ? sizes_[t] : overflow_bins_); index < end; ++index) {
      const uint32_t* b = bin(index);
      const uint64_t load = std::min<uint64_t>(b[1], capacity_);
      if (load >= seen.all.size()) seen.all.resize(load + 1), seen.passed.resize(load + 1);
      ++seen.all[load];
      seen.passed[load] += balanced_ && b[2] != 0;
    }
  }
  return result;
}

ChainedTable::Queries ChainedTable::queries() const {
  Queries sums;
  uint64_t left = state_[kKeys];  // of all chains together: a file that lies costs no more than one that does not
  for (uint64_t index = 0; index < bins_in_tables_ + overflow_bins_; ++index) {
    const uint32_t* b = bin(index);
    uint32_t number = b[0];
    for (uint32_t n = steps(b), place = 1; n != 0 && left != 0 && number - 1 < capacity_;
         --n, --left, ++place, number = entry(number)[0]) {
      const uint64_t digest = hash_.digest(key_of(number));
      uint64_t compared = place;
      uint32_t level = 0;
      for (uint64_t at; level < choices_ && (at = bin_at(digest, level)) != index; ++level) compared += bin(at)[1];
      sums.reads += std::min(level + 1, choices_);
      sums.compared += compared;
      sums.squares += static_cast<uint128>(compared) * compared;
    }
  }
  return sums;
}

void ChainedTable::settle() {
  if (!bits_.read_only()) state_[kInsertions] = std::min(state_[kInsertions], kMostCounted);
}

std::string ChainedTable::check(bool thorough, bool unique) const {
  const uint64_t keys = state_[kKeys], used = state_[kUsed], first_free = state_[kFirstFree];
  if (used > capacity_ || keys > used) return "the numbers of keys and entries contradict each other";
  if (first_free > used || (first_free == 0) != (keys == used))
    return "the list of free entries contradicts their number";
  if (state_[kOverflowing] > keys || (!balanced_ && state_[kOverflowing] != 0))
    return "the number of keys in overflow chains is impossible";
  if (state_[kInsertions] < keys) return "there are more keys than insertions";
  if (state_[kInsertions] > kMostCounted) return "a counter is impossible";
  for (uint32_t i = kReserved; i < kStateWords; ++i)
    if (state_[i] != 0) return "a reserved word of the state is not zero";
  if (!thorough) return {};
  if (std::string broken = check_free(); !broken.empty()) return broken;
  return check_chains(unique);
}

// Free entries, entries never used, and padding.
std::string ChainedTable::check_free() const {
  const uint64_t used = state_[kUsed];
  uint64_t free = 0;
  for (uint64_t number = state_[kFirstFree]; number != 0; ++free) {
    if (number > used || free == used) return "the list of free entries leads astray";
    const uint32_t* e = entry(static_cast<uint32_t>(number));
    if ((e[0] & kFree) == 0) return "an entry on the list of free ones is in use";
    if (std::any_of(e + 1, e + entry_words_, [](uint32_t x) { return x != 0; }) || values_[number - 1] != 0)
      return "a free entry is not zero";
    number = e[0] & ~kFree;
  }
  if (free != used - state_[kKeys]) return "the list of free entries does not have all of them";
  const Sizes sizes(spec_);
  const uint32_t* end = reinterpret_cast<const uint32_t*>(values_);
  for (const uint32_t* p = entries_ + used * entry_words_; p < end; ++p)
    if (*p != 0) return "an entry that was never used is not zero";
  for (uint64_t i = used; i < sizes.values / 8; ++i)
    if (values_[i] != 0) return "a value that was never used is not zero";
  for (const uint32_t* p = bin(bins_in_tables_ + overflow_bins_); p < entries_; ++p)
    if (*p != 0) return "padding behind the bins is not zero";
  return {};
}

std::string ChainedTable::check_chains(bool unique) const {
  const uint64_t bins = bins_in_tables_ + overflow_bins_;
  std::vector<bool> seen(state_[kUsed] + 1, false);
  std::vector<uint32_t> passed(balanced_ ? bins : 0, 0);
  uint64_t keys = 0, overflowing = 0;
  for (uint64_t index = 0; index < bins; ++index) {
    const uint32_t* b = bin(index);
    uint32_t number = b[0];
    for (uint32_t n = b[1]; n != 0; --n, number = entry(number)[0]) {
      if (number == 0 || number > state_[kUsed]) return "a chain is shorter than its bin says, or leads astray";
      if (seen[number]) return "two chains share an entry, or one runs in a circle";
      if ((entry(number)[0] & kFree) != 0) return "a chain holds a free entry";
      seen[number] = true;
      ++keys;
      const uint64_t digest = hash_.digest(key_of(number));
      uint32_t level = 0;
      const uint32_t last = balanced_ ? choices_ : choices_ - 1;
      while (level < last && bin_at(digest, level) != index) ++level;
      if (bin_at(digest, level) != index) return "a key stands in a bin that is none of its own";
      for (uint32_t j = 0; balanced_ && j < level; ++j) {
        uint32_t& count = passed[bin_at(digest, j)];
        count += count != kMostPassed;
      }
      overflowing += level == choices_;
    }
    if (number != 0) return "a chain is longer than its bin says";
  }
  if (keys != state_[kKeys]) return "the chains do not hold as many keys as were counted";
  if (overflowing != state_[kOverflowing]) return "the overflow chains do not hold as many keys as were counted";
  for (uint64_t index = 0; index < passed.size(); ++index)
    if (const uint32_t count = bin(index)[2]; count != passed[index] && count != kMostPassed)
      return "a bin's count of the keys that passed it is wrong";
  for (uint32_t number = next(0); unique && number != 0; number = next(number)) {
    const StoredKey key = key_of(number);
    if (locate(key, hash_.digest(key)).entry != number) return "a key is stored twice (was assume_unique=True true?)";
  }
  return {};
}

extern constinit const KindRow kChainedKind = {
    .kind = Kind::chained,
    .name = "chained-table",
    .payload_bytes = ChainedTable::payload_bytes,
};

}  // namespace evenbins

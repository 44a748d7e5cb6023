// The loops of a multilevel table, as text for every kernel (body.hpp includes it). A kernel gives
//
//     match8(line, word)    a bit for each of eight words in a row that equals the word
//
// A look-up of many keys is a pipeline over groups: while one group's first lines are on their way from memory, the
// group before it is compared and asks for its values or for its second lines, and the one before that is finished.
// Nothing in it depends on a branch that random keys make unpredictable. Occupancy is looked at for the key 0 alone:
// a free slot holds 0.
//
// Tried and dropped: see multilevel.hpp.
#pragma once

#include "evenbins/table_view.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

constexpr size_t kTableGroup = 64;  // keys of a look-up in each stage
constexpr size_t kInsertGroup = 8;  // the same of an insertion: 16 and 32 take a tenth longer

template <uint32_t Slots>
EVENBINS_INLINE uint32_t match(const uint64_t* line, uint64_t word) {
  if constexpr (Slots == 8) return match8(line, word);
  uint32_t mask = 0;
  for (uint32_t s = 0; s < Slots; ++s) mask |= static_cast<uint32_t>(line[s] == word) << s;
  return mask;
}

// Where the keys of a bucket begin; its values lie behind them. Value: words of a value, 0 in a set.
template <uint32_t Slots, uint32_t Words, uint32_t Value>
EVENBINS_INLINE uint64_t* keys_of(const TableView& t, uint64_t bucket) {
  return t.records + bucket * (Slots * (Words + Value));
}
template <uint32_t Slots, uint32_t Words, uint32_t Value>
EVENBINS_INLINE uint64_t* values_of(const TableView& t, uint64_t bucket) {
  return keys_of<Slots, Words, Value>(t, bucket) + Slots * Words;
}
template <uint32_t Slots, uint32_t Words, uint32_t Value>
EVENBINS_INLINE uint64_t* value_at(const TableView& t, uint64_t slot) {
  return values_of<Slots, Words, Value>(t, slot / Slots) + slot % Slots;
}

// The slots of a bucket that hold the key: one bit at most, unless a caller broke the promise of assume_unique=True.
template <uint32_t Slots, uint32_t Words, uint32_t Value>
EVENBINS_INLINE uint32_t match_key(const TableView& t, uint64_t bucket, uint64_t low, uint64_t high) {
  const uint64_t* line = keys_of<Slots, Words, Value>(t, bucket);
  uint32_t mask = match<Slots>(line, low);
  if constexpr (Words == 2)
    if (mask != 0) mask &= match<Slots>(line + Slots, high);
  if ((low | high) == 0) [[unlikely]]
    mask &= occupied_in<Slots>(t.occupied, bucket);
  return mask;
}

template <uint32_t Slots, uint32_t Words, uint32_t Value>
uint64_t table_find(const TableView& t, uint64_t low, uint64_t high, uint64_t digest) {
  for (uint32_t j = 0; j < t.levels; ++j) {
    const uint64_t bucket = bucket_of(t, digest, j);
    const uint32_t mask = match_key<Slots, Words, Value>(t, bucket, low, high);
    if (mask != 0) return bucket * Slots + static_cast<uint32_t>(__builtin_ctz(mask));
  }
  return kAbsent;
}

template <uint32_t Slots, uint32_t Words, uint32_t Value, int Write = 0>
EVENBINS_INLINE void prefetch_keys(const TableView& t, uint64_t bucket) {
  const uint64_t* line = keys_of<Slots, Words, Value>(t, bucket);
  __builtin_prefetch(line, Write);
  if constexpr (Words == 2 && Slots == 8) __builtin_prefetch(line + 8, Write);
}

// The slots of a bucket that may hold the key. Of a digest the low word is compared alone: it decides but for a chance of
// 2^-64, and the line of the high words is asked for only where it matched (is_key_at).
template <uint32_t Slots, uint32_t Words, uint32_t Value>
EVENBINS_INLINE uint32_t match_candidates(const TableView& t, uint64_t bucket, uint64_t low) {
  if constexpr (Words == 1) return match_key<Slots, Words, Value>(t, bucket, low, 0);
  return match<Slots>(keys_of<Slots, Words, Value>(t, bucket), low);
}
template <uint32_t Slots, uint32_t Words, uint32_t Value>
EVENBINS_INLINE const uint64_t* high_at(const TableView& t, uint64_t slot) {
  return keys_of<Slots, Words, Value>(t, slot / Slots) + Slots + slot % Slots;
}
template <uint32_t Slots, uint32_t Words, uint32_t Value>
EVENBINS_INLINE bool is_key_at(const TableView& t, uint64_t slot, uint64_t low, uint64_t high) {
  if constexpr (Words == 1) return true;
  return *high_at<Slots, Words, Value>(t, slot) == high && (low | high) != 0;  // a free slot holds 0
}

struct TableGroup {
  uint64_t keys[2 * kTableGroup], digests[kTableGroup];
  uint64_t at[kTableGroup];      // the bucket to be looked at, then the slot found
  uint8_t pending[kTableGroup];  // keys not found yet
  size_t n, left;
};

// Levels: their number where the compiler should know it, the default's; 0 for any.
template <uint32_t Slots, uint32_t Words, uint32_t Value, uint32_t Levels, bool Values>
EVENBINS_INLINE size_t table_look(const TableView& t, const uint64_t* keys, size_t n, uint64_t missing, uint64_t* out,
                                  uint8_t* found) {
  const uint32_t levels = Levels == 0 ? t.levels : Levels;
  TableGroup groups[3];
  size_t total = 0;
  const size_t count = (n + kTableGroup - 1) / kTableGroup;
  const auto begin = [&](size_t number) {  // hash; ask for the first lines
    TableGroup& g = groups[number % 3];
    const size_t start = number * kTableGroup;
    g.n = n - start < kTableGroup ? n - start : kTableGroup;
    for (size_t i = 0; i < g.n * Words; ++i) g.keys[i] = keys[start * Words + i];
    if (t.hash.type == KeyType::int64)
      digest_i64(t.hash.ints, reinterpret_cast<const int64_t*>(g.keys), g.n, g.digests);
    else if (t.hash.type == KeyType::uint64)
      digest_u64(t.hash.ints, g.keys, g.n, g.digests);
    else
      for (size_t i = 0; i < g.n; ++i) g.digests[i] = g.keys[Words * i];
    for (size_t i = 0; i < g.n; ++i) {
      g.at[i] = mulhi(g.digests[i], t.buckets[0]);
      __builtin_prefetch(keys_of<Slots, Words, Value>(t, g.at[i]));
    }
  };
  // Asks for what is still to be read of the key in a slot.
  const auto prefetch_slot = [&](uint64_t slot) {
    if constexpr (Words == 2) __builtin_prefetch(high_at<Slots, Words, Value>(t, slot));
    if constexpr (Values) __builtin_prefetch(value_at<Slots, Words, Value>(t, slot));
  };
  const auto middle = [&](TableGroup& g) {  // compare; ask for the values or for the second lines
    g.left = 0;
    for (size_t i = 0; i < g.n; ++i) {
      const uint32_t mask = match_candidates<Slots, Words, Value>(t, g.at[i], g.keys[Words * i]);
      const bool hit = mask != 0;
      const uint64_t slot = g.at[i] * Slots + static_cast<uint32_t>(__builtin_ctz(mask | 1u << Slots));
      const uint64_t second = levels > 1 ? bucket_of(t, g.digests[i], 1) : 0;
      const uint64_t* line = keys_of<Slots, Words, Value>(t, second);
      const uint64_t* value = value_at<Slots, Words, Value>(t, hit ? slot : 0);
      const uint64_t* high = high_at<Slots, Words, Value>(t, hit ? slot : 0);
      __builtin_prefetch(hit && (Values || Words == 2) ? (Values ? value : high) : line);
      if constexpr (Words == 2 && Values) __builtin_prefetch(hit ? high : line);
      g.at[i] = hit ? slot : second;
      g.pending[g.left] = static_cast<uint8_t>(i);
      g.left += !hit;
    }
  };
  const auto finish = [&](TableGroup& g, size_t start) {
    for (uint32_t j = 1; j < levels && g.left > 0; ++j) {
      size_t kept = 0;
      for (size_t p = 0; p < g.left; ++p) {
        const size_t i = g.pending[p];
        const uint32_t mask = match_candidates<Slots, Words, Value>(t, g.at[i], g.keys[Words * i]);
        const bool hit = mask != 0;
        const uint64_t slot = g.at[i] * Slots + static_cast<uint32_t>(__builtin_ctz(mask | 1u << Slots));
        g.at[i] = slot;
        prefetch_slot(hit ? slot : 0);
        if (!hit && j + 1 < levels) {
          g.at[i] = bucket_of(t, g.digests[i], j + 1);
          __builtin_prefetch(keys_of<Slots, Words, Value>(t, g.at[i]));
        }
        g.pending[kept] = static_cast<uint8_t>(i);
        kept += !hit;
      }
      g.left = kept;
    }
    for (size_t p = 0; p < g.left; ++p) g.at[g.pending[p]] = kAbsent;
    for (size_t i = 0; i < g.n; ++i) {
      const uint64_t low = g.keys[Words * i], high = Words == 2 ? g.keys[Words * i + 1] : 0;
      bool hit = g.at[i] != kAbsent;
      if (hit && !is_key_at<Slots, Words, Value>(t, g.at[i], low, high)) [[unlikely]] {
        g.at[i] = table_find<Slots, Words, Value>(t, low, high, g.digests[i]);
        hit = g.at[i] != kAbsent;
        if (!hit) g.pending[g.left++] = static_cast<uint8_t>(i);
      }
      found[start + i] = hit;
      if constexpr (Values) out[start + i] = hit ? *value_at<Slots, Words, Value>(t, g.at[i]) : missing;
    }
    total += g.n - g.left;
    if (t.state[kListed] > 0) {
      for (size_t p = 0; p < g.left; ++p) {
        const size_t i = g.pending[p];
        const uint64_t entry = list_find(t, g.keys[Words * i], g.keys[Words * (i + 1) - 1], g.digests[i]);
        if (entry == 0) continue;
        ++total;
        found[start + i] = 1;
        if constexpr (Values) out[start + i] = t.list_values[entry - 1];
      }
    }
  };
  if (count > 0) begin(0);
  for (size_t number = 0; number < count; ++number) {
    if (number + 1 < count) begin(number + 1);
    middle(groups[number % 3]);
    if (number > 0) finish(groups[(number - 1) % 3], (number - 1) * kTableGroup);
  }
  if (count > 0) finish(groups[(count - 1) % 3], (count - 1) * kTableGroup);
  return total;
}

template <uint32_t Slots, uint32_t Words, uint32_t Value>
size_t table_get_many(const TableView& t, const uint64_t* keys, size_t n, uint64_t missing, uint64_t* out,
                      uint8_t* found) {
  if constexpr (Value == 0) {  // there are no values
    for (size_t i = 0; i < n; ++i) out[i] = missing;
    return table_look<Slots, Words, Value, 0, false>(t, keys, n, missing, out, found);
  }
  if constexpr (Slots == 8)
    if (t.levels == 2) return table_look<Slots, Words, Value, 2, true>(t, keys, n, missing, out, found);
  return table_look<Slots, Words, Value, 0, true>(t, keys, n, missing, out, found);
}
template <uint32_t Slots, uint32_t Words, uint32_t Value>
void table_contains_many(const TableView& t, const uint64_t* keys, size_t n, uint8_t* found) {
  if constexpr (Slots == 8)
    if (t.levels == 2)
      return static_cast<void>(table_look<Slots, Words, Value, 2, false>(t, keys, n, 0, nullptr, found));
  table_look<Slots, Words, Value, 0, false>(t, keys, n, 0, nullptr, found);
}

// The level that takes a key without a second thought, or `levels`: what the rare path would choose too.
template <uint32_t Slots>
EVENBINS_INLINE uint32_t fast_level(const TableView& t, uint32_t levels, const uint64_t* buckets) {
  constexpr uint32_t kFull = (1u << Slots) - 1;
  if (!t.occupancy_bits) return levels;  // there every look is counted, one by one
  if (t.scheme == Scheme::least_loaded) {
    uint32_t best = 0, load = static_cast<uint32_t>(__builtin_popcount(occupied_in<Slots>(t.occupied, buckets[0])));
    for (uint32_t j = 1; j < levels; ++j) {
      const auto other = static_cast<uint32_t>(__builtin_popcount(occupied_in<Slots>(t.occupied, buckets[j])));
      best = other < load ? j : best;
      load = other < load ? other : load;
    }
    return load < Slots ? best : levels;
  }
  const uint32_t simple = t.scheme == Scheme::extreme_second_chance ? 1
                          : t.scheme == Scheme::second_chance       ? 2
                                                                    : levels;
  for (uint32_t j = 0; j < simple && j < levels; ++j)
    if (occupied_in<Slots>(t.occupied, buckets[j]) != kFull) return j;
  return levels;
}

template <uint32_t Slots, uint32_t Words, uint32_t Value, uint32_t Levels>
EVENBINS_INLINE size_t table_insert(const TableView& t, const uint64_t* keys, const uint64_t* values, size_t n,
                                    bool are_new, const InsertReport& report) {
  const uint32_t levels = Levels == 0 ? t.levels : Levels;
  constexpr size_t kGroup = kInsertGroup;
  struct Group {
    uint64_t keys[2 * kGroup], values[kGroup], digests[kGroup], buckets[kGroup][Levels == 0 ? kMaxLevels : Levels];
    size_t n;
  } groups[3];
  // Of a set of digests, whose buckets are two lines, the line of the high words is asked for only where a key goes or
  // where its low word is: three lines for each key instead of four.
  constexpr bool kLowFirst = Value == 0 && Words == 2 && Slots == 8;
  const uint64_t reads = are_new ? 0 : levels;
  const size_t count = (n + kGroup - 1) / kGroup;
  const auto begin = [&](size_t number) {
    Group& g = groups[number % 3];
    const size_t start = number * kGroup;
    g.n = n - start < kGroup ? n - start : kGroup;
    for (size_t i = 0; i < g.n * Words; ++i) g.keys[i] = keys[start * Words + i];
    for (size_t i = 0; i < g.n; ++i) g.values[i] = Value == 0 ? 0 : values[start + i];
    if (t.hash.type == KeyType::int64)
      digest_i64(t.hash.ints, reinterpret_cast<const int64_t*>(g.keys), g.n, g.digests);
    else if (t.hash.type == KeyType::uint64)
      digest_u64(t.hash.ints, g.keys, g.n, g.digests);
    else
      for (size_t i = 0; i < g.n; ++i) g.digests[i] = g.keys[Words * i];
    for (size_t i = 0; i < g.n; ++i) {
      for (uint32_t j = 0; j < levels; ++j) {
        const uint64_t bucket = bucket_of(t, g.digests[i], j);
        g.buckets[i][j] = bucket;
        if (!are_new && kLowFirst)
          __builtin_prefetch(keys_of<Slots, Words, Value>(t, bucket), 1);
        else if (!are_new)
          prefetch_keys<Slots, Words, Value, 1>(t, bucket);
        __builtin_prefetch(t.occupied + bucket * Slots / 8, 1);
      }
    }
  };
  // Where most of them will go: ask for the line of the value, if any. The buckets of a key whose turn comes later may
  // be another thread's.
  const auto middle = [&](const Group& g, size_t start) {
    for (size_t i = 0; i < g.n; ++i) {
      if (report.status != nullptr && report.status[start + i] == KeyStatus::later) continue;
      const uint32_t level = fast_level<Slots>(t, levels, g.buckets[i]);
      const uint64_t bucket = g.buckets[i][level < levels ? level : 0];
      if (are_new) __builtin_prefetch(keys_of<Slots, Words, Value>(t, bucket), 1);
      if constexpr (Value != 0) __builtin_prefetch(values_of<Slots, Words, Value>(t, bucket), 1);
      if constexpr (kLowFirst) {
        __builtin_prefetch(keys_of<Slots, Words, Value>(t, bucket) + Slots, 1);
        for (uint32_t j = 0; j < levels && !are_new; ++j) {
          const uint64_t* line = keys_of<Slots, Words, Value>(t, g.buckets[i][j]);
          if (match<Slots>(line, g.keys[Words * i]) != 0) __builtin_prefetch(line + Slots, 1);
        }
      }
    }
  };
  const auto store = [&](const Group& g, size_t start) -> size_t {  // in order
    for (size_t i = 0; i < g.n; ++i) {
      const uint64_t low = g.keys[Words * i], high = Words == 2 ? g.keys[Words * i + 1] : 0;
      const uint64_t digest = g.digests[i];
      KeyStatus* status = report.status == nullptr ? nullptr : report.status + start + i;
      if (status != nullptr && *status == KeyStatus::later) continue;
      if (!are_new) {
        uint64_t* present = nullptr;  // of a set: some place
        for (uint32_t j = 0; j < levels; ++j) {
          const uint32_t mask = match_key<Slots, Words, Value>(t, g.buckets[i][j], low, high);
          if (mask == 0) continue;
          present = values_of<Slots, Words, Value>(t, g.buckets[i][j]) + __builtin_ctz(mask);
          break;
        }
        if (present == nullptr && t.state[kListed] > 0)
          if (const uint64_t entry = list_find(t, low, high, digest); entry != 0)
            present = (Value == 0 ? t.list_keys : t.list_values) + entry - 1;
        if (present != nullptr) {
          if (report.added != nullptr) report.added[start + i] = 0;
          if (status != nullptr) {
            *status = KeyStatus::replaced;
            report.undo[start + i] = Value == 0 ? 0 : *present;
          }
          if constexpr (Value != 0) *present = g.values[i];
          continue;
        }
      }
      const uint32_t level = fast_level<Slots>(t, levels, g.buckets[i]);
      if (level == levels) [[unlikely]] {
        if (status != nullptr) {
          *status = KeyStatus::later;
          continue;
        }
        if (!t.place(t, StoredKey{low, high}, g.values[i], digest, are_new)) return i;
        if (report.added != nullptr) report.added[start + i] = 1;
        continue;
      }
      const uint64_t bucket = g.buckets[i][level];
      const auto s = static_cast<uint32_t>(__builtin_ctz(~occupied_in<Slots>(t.occupied, bucket)));
      uint64_t* line = keys_of<Slots, Words, Value>(t, bucket);
      line[s] = low;
      if constexpr (Words == 2) line[Slots + s] = high;
      if constexpr (Value != 0) values_of<Slots, Words, Value>(t, bucket)[s] = g.values[i];
      set_bit(t.occupied, bucket * Slots + s);
      write_next(t, bucket * Slots + s, level, digest);
      if (status != nullptr) {
        *status = KeyStatus::placed;
        report.undo[start + i] = bucket * Slots + s;
      }
      if (report.added != nullptr) report.added[start + i] = 1;
      ++t.state[kInsertions];
      t.state[kInsertionReads] += reads;
      ++t.state[kPlaced + level];
    }
    return g.n;
  };
  if (count > 0) begin(0);
  if (count > 1) begin(1);
  if (count > 0) middle(groups[0], 0);
  for (size_t number = 0; number < count; ++number) {
    if (number + 2 < count) begin(number + 2);
    if (number + 1 < count) middle(groups[(number + 1) % 3], (number + 1) * kGroup);
    const size_t done = store(groups[number % 3], number * kGroup);
    if (done < groups[number % 3].n) return number * kGroup + done;
  }
  return n;
}

template <uint32_t Slots, uint32_t Words, uint32_t Value>
size_t table_insert_many(const TableView& t, const uint64_t* keys, const uint64_t* values, size_t n, bool are_new,
                         const InsertReport& report) {
  if constexpr (Slots == 8)
    if (t.levels == 2) return table_insert<Slots, Words, Value, 2>(t, keys, values, n, are_new, report);
  return table_insert<Slots, Words, Value, 0>(t, keys, values, n, are_new, report);
}

template <uint32_t Slots, uint32_t Words, uint32_t Value>
constexpr TableLoops table_loops = {table_find<Slots, Words, Value>, table_get_many<Slots, Words, Value>,
                                    table_contains_many<Slots, Words, Value>, table_insert_many<Slots, Words, Value>};

template <uint32_t Words, uint32_t Value>
const TableLoops& table_of(uint32_t slots) {
  switch (slots) {
    case 1: return table_loops<1, Words, Value>;
    case 2: return table_loops<2, Words, Value>;
    case 4: return table_loops<4, Words, Value>;
    default: return table_loops<8, Words, Value>;
  }
}

const TableLoops& multilevel(uint32_t slots, uint32_t words, uint32_t value) {
  if (value == 0) return words == 2 ? table_of<2, 0>(slots) : table_of<1, 0>(slots);
  return words == 2 ? table_of<2, 1>(slots) : table_of<1, 1>(slots);
}

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

#include "evenbins/balanced.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <span>
#include <unordered_map>

#include "evenbins/lanes.hpp"

namespace evenbins {
namespace {

constexpr uint64_t kMaxBlocks = uint64_t{1} << 47, kMaxTotalBits = uint64_t{1} << 56;
constexpr uint64_t kMaxThreshold = 65534, kMaxLimit = uint64_t{1} << 40;
constexpr size_t kStateWords = 8;
enum StateWord : size_t { kKeys, kListed, kReads, kFlags, kSpilled, kReserved };
constexpr size_t kGroup = 1024;         // keys that go through the levels together
constexpr uint32_t kGroupsInOrder = 7;  // after a group with a key that spilled: the next ones likely have some too

// The core by name. Made from a valid core only; `parse` checks.
struct Core {
  Policy policy;
  uint64_t block_bits, hashes, choices, coin, limit, spill, budget;
  std::vector<uint64_t> blocks, thresholds;

  explicit Core(const std::vector<uint64_t>& c)
      : policy(static_cast<Policy>(c[0])),
        block_bits(c[1]),
        hashes(c[2]),
        choices(c[3]),
        coin(c[4]),
        limit(c[5]),
        spill(c[6]),
        budget(c[7]) {
    for (size_t i = kCoreWords; i + 1 < c.size(); i += 2) {
      blocks.push_back(c[i]);
      thresholds.push_back(c[i + 1]);
    }
  }
  bool counted() const { return is_counted(policy); }
  bool one_table() const { return policy != Policy::fill && policy != Policy::multilevel; }
};

Core parse(const Spec& spec) {
  const auto need = [](bool holds, const char* rule) {
    if (!holds) throw SpecError(rule);
  };
  need(spec.hashing == Hashing::lanes, "a balanced filter needs lane hashing");
  const size_t words = spec.core.size();
  need(words >= 10 && words % 2 == 0 && words <= 8 + 2 * kMaxChoices,
       "a balanced filter has eight numbers in its core and two for each table");
  need(spec.core[0] >= 1 && spec.core[0] <= 5, "the policy must be 1 … 5");
  Core core(spec.core);
  need(core.block_bits == 256 || core.block_bits == 512, "block_bits must be 256 or 512");
  need(core.hashes >= 1 && core.hashes <= kMaxBlockedHashes, "hashes must be 1 … 32");
  need(core.choices >= 1 && core.choices <= kMaxChoices, "choices must be 1 … 8");
  need(core.blocks.size() == (core.one_table() ? 1 : core.choices), "the tables do not fit the choices");
  need(core.policy != Policy::single || core.choices == 1, "a single-choice filter has one choice");
  need(core.policy != Policy::two_choice || core.choices == 2, "a two-choice filter has two choices");
  uint64_t total = 0;
  for (const uint64_t blocks : core.blocks) {
    need(blocks >= 1 && blocks <= kMaxBlocks, "blocks must be 1 … 2^47");
    total += blocks * core.block_bits;
  }
  need(total <= kMaxTotalBits, "all blocks together must have at most 2^56 bits");
  for (size_t i = 0; i < core.thresholds.size(); ++i) {
    const uint64_t threshold = core.thresholds[i];
    if (core.counted())
      need(threshold <= kMaxThreshold, "thresholds must be 0 … 65534 keys");
    else if (core.policy == Policy::two_choice)
      need(threshold == 0, "a two-choice filter has no threshold");
    else
      need(threshold >= 1 && threshold <= core.block_bits + (i + 1 == core.thresholds.size() ? 1 : 0),
           "thresholds must be 1 … block_bits set bits, of the last level also block_bits + 1");
  }
  need(core.coin <= (core.counted() ? uint64_t{1} << 32 : 0), "the coin must be 0 … 2^32, and 0 if not used");
  need(core.limit <= (core.counted() ? kMaxLimit : 0), "the list must hold 0 … 2^40 keys, and 0 if not used");
  need(core.spill <= (core.counted() ? 1 : 0), "spill must be 0 or 1, and 0 if not used");
  need(core.budget == 0 || (core.policy == Policy::sequential && core.limit > 0),
       "only a sequential filter with a list has a budget");
  return core;
}

// --- one block, without a kernel ----------------------------------------------------------------------------

uint64_t* block_of(const Level& level, uint64_t word, uint32_t block_words) {
  return level.words + mulhi(word, level.blocks) * block_words;
}

uint64_t counter_mask(const Level& level) {  // in the last word; nothing if not counted
  return level.counter_shift == 64 ? 0 : ~uint64_t{0} << level.counter_shift;
}

uint32_t key_bits_in(const Level& level, const uint64_t* block, uint32_t block_words) {
  uint32_t count = 0;
  for (uint32_t i = 0; i + 1 < block_words; ++i) count += static_cast<uint32_t>(std::popcount(block[i]));
  return count + static_cast<uint32_t>(std::popcount(block[block_words - 1] & ~counter_mask(level)));
}

uint64_t load_of(const Level& level, const uint64_t* block, uint32_t block_words) {
  return level.counter_shift == 64 ? 0 : block[block_words - 1] >> level.counter_shift;
}

// --- a key that no block takes ----------------------------------------------------------------------------

void put_on_list(const BalancedView& f, uint64_t digest) {  // there is room, and it is not there
  store_word(f.state + kListed, f.state[kListed] + 1);
  if (digest == 0) {
    store_word(f.state + kFlags, f.state[kFlags] | kZeroListed);
    return;
  }
  uint64_t slot = list_home(f, digest);
  while (f.slots[slot] != 0) slot = slot + 1 == f.slot_count ? 0 : slot + 1;
  store_word(f.slots + slot, digest);
}

void put(const BalancedView& f, uint32_t j, uint64_t digest, uint32_t block_words) {
  const Level& level = f.levels[j];
  const uint64_t word = word_of(digest, j);
  uint64_t* block = block_of(level, word, block_words);
  every_position(word, level.range, f.hashes, [block](uint32_t p) {
    set_bit(block, p);
    return true;
  });
  if (level.counter_shift < 64 && load_of(level, block, block_words) <= level.threshold)
    store_word(block + block_words - 1, block[block_words - 1] + (uint64_t{1} << level.counter_shift));
}

void spill(const BalancedView& f, uint64_t digest, uint32_t block_words) {
  uint32_t chosen = 0;
  if (f.spill_at_random) {
    chosen = static_cast<uint32_t>(mulhi(splitmix(digest, f.choices + 1), f.choices));
  } else {
    uint32_t least = std::numeric_limits<uint32_t>::max();
    for (uint32_t j = 0; j < f.choices; ++j) {
      const Level& level = f.levels[j];
      const uint32_t count = key_bits_in(level, block_of(level, word_of(digest, j), block_words), block_words);
      if (count < least) {
        least = count;
        chosen = j;
      }
    }
  }
  put(f, chosen, digest, block_words);
}

// A key that no longer fits the list: the walk of an insertion, at the end of which it spills. (A key that
// went to the list unread may find a block with room.)
void add_off_list(const BalancedView& f, uint64_t digest, uint32_t block_words) {
  for (uint32_t j = 0; j < f.choices; ++j) {
    const Level& level = f.levels[j];
    const uint64_t word = word_of(digest, j);
    const uint64_t* block = block_of(level, word, block_words);
    if (every_position(word, level.range, f.hashes, [block](uint32_t p) { return has_bit(block, p); })) return;
    if (load_of(level, block, block_words) + coin_rejects(word, f.coin) <= level.threshold)
      return put(f, j, digest, block_words);
  }
  spill(f, digest, block_words);
  f.state[kSpilled] += 1;
}

template <uint32_t BlockWords>
AddOutcome overflow(const BalancedView& f, uint64_t digest) {
  if (list_has(f, digest)) return AddOutcome::present;
  f.state[kKeys] += 1;
  f.state[kReads] += f.choices;
  if (f.state[kListed] < f.limit) {
    put_on_list(f, digest);
  } else {
    spill(f, digest, BlockWords);
    f.state[kSpilled] += 1;
  }
  return AddOutcome::added;
}

template <uint32_t BlockWords>
AddOutcome spill_uncounted(const BalancedView& f, uint64_t digest) {
  spill(f, digest, BlockWords);
  return AddOutcome::added;
}

void add_unread(const BalancedView& f, uint64_t digest) {  // the list has room
  store_word(f.state + kFlags, f.state[kFlags] | kBudgetSpent);
  f.state[kKeys] += 1;
  put_on_list(f, digest);
}

}  // namespace

uint64_t BalancedBloomFilter::payload_bytes(const Spec& spec) {
  const Core core = parse(spec);
  uint64_t bytes = core.counted() ? 8 * (list_slots(core.limit) + kStateWords) : 0;
  for (const uint64_t blocks : core.blocks) bytes += table_bytes(blocks, core.block_bits);
  return bytes;
}

std::vector<uint64_t> harm_table(uint32_t block_bits, uint32_t hashes) {
  std::vector<uint64_t> harm(block_bits + 1);
  for (uint64_t x = 0; x <= block_bits; ++x) {
    uint64_t rate = uint64_t{1} << 62;
    for (uint32_t i = 0; i < hashes; ++i) rate = static_cast<uint64_t>(static_cast<uint128>(rate) * x / block_bits);
    harm[x] = rate;
  }
  return harm;
}

BalancedBloomFilter::BalancedBloomFilter(Spec spec, Bits bits) : Filter(std::move(spec), std::move(bits)) {
  const Core core(spec_.core);
  policy_ = core.policy;
  block_bits_ = static_cast<uint32_t>(core.block_bits);
  counted_ = core.counted();
  in_turn_ =
      policy_ == Policy::fill || ((policy_ == Policy::single || policy_ == Policy::multilevel) && core.limit > 0);

  view_ = view_of(spec_.core.data(), spec_.core.size(), bits_.words());
  tables_.assign(view_.levels, view_.levels + core.blocks.size());
  view_.version = &list_version_;
  if (policy_ == Policy::two_choice) {
    harm_ = harm_table(block_bits_, view_.hashes);
    view_.harm = harm_.data();
  }
  if (counted_)
    view_.overflow = block_bits_ == 512 ? overflow<8> : overflow<4>;
  else
    view_.overflow = block_bits_ == 512 ? spill_uncounted<8> : spill_uncounted<4>;
  view_.add_unread = add_unread;
  loops_ = &kernel().balanced(block_bits_ == 512 ? 9 : 8, counted_                  ? Rule::counted
                                                          : policy_ == Policy::fill ? Rule::fill
                                                                                    : Rule::two_choice);
  set_one(loops_->one.of(&view_));
}

// --- adding many --------------------------------------------------------------------------------------------

bool BalancedBloomFilter::takes_rounds() const { return in_turn_ && (counted_ ? room() > 0 : groups_in_order_ == 0); }

uint64_t BalancedBloomFilter::room() const {
  if (counted_) return view_.limit - view_.state[kListed];
  return tables_.back().threshold > block_bits_ ? std::numeric_limits<uint64_t>::max() : 0;
}

void BalancedBloomFilter::words(uint32_t level, const uint64_t* digests, size_t n, uint64_t* out) const {
  for (size_t i = 0; i < n; ++i) out[i] = word_of(digests[i], level);
}

void BalancedBloomFilter::take_back(uint32_t level, const PlacedKey* log, size_t placed) {
  const Level& table = view_.levels[level];
  const uint64_t block_words = block_bits_ / 64;
  for (const PlacedKey& key : std::span(log, placed)) {
    uint64_t* block = table.words + mulhi(key.word, table.blocks) * block_words;
    uint64_t new_bits = key.new_bits;
    every_position(key.word, counted_ ? table.range : block_bits_, view_.hashes, [&](uint32_t position) {
      if ((new_bits & 1) != 0) clear_bit(block, position);
      new_bits >>= 1;
      return true;
    });
    if (!counted_) continue;
    uint64_t* last = block + block_words - 1;
    store_word(last, *last - (uint64_t{1} << table.counter_shift));
  }
}

void BalancedBloomFilter::count_placed(uint32_t level, uint64_t keys) {
  if (!counted_) return;
  view_.state[kKeys] += keys;
  view_.state[kReads] += keys * (level + 1);
}

void BalancedBloomFilter::add_passed(const uint64_t* digests, size_t n) {
  if (!counted_) return;
  for (size_t i = 0; i < n; ++i) view_.overflow(view_, digests[i]);
}

size_t BalancedBloomFilter::add_many(const uint64_t* digests, size_t n) {
  const size_t all = n;
  const bool logged = !counted_ && in_turn_ && room() == 0;  // a key that passes every level spills: order matters
  std::unique_ptr<PlacedKey[]> log;
  if (logged) log = std::make_unique_for_overwrite<PlacedKey[]>(std::min(n, kGroup));
  for (size_t g; n > 0; digests += g, n -= g) {
    g = std::min(n, kGroup);
    if (!takes_rounds() || (counted_ && room() < g)) {
      loops_->add_in_order(view_, digests, g, nullptr);
      groups_in_order_ -= groups_in_order_ > 0 ? 1 : 0;
    } else if (!add_group(digests, g, log.get())) {
      loops_->add_in_order(view_, digests, g, nullptr);
      groups_in_order_ = kGroupsInOrder;
    }
  }
  return all;
}

// Takes the keys through the levels together. With a log, false if one passed every level: then nothing has changed.
bool BalancedBloomFilter::add_group(const uint64_t* digests, size_t g, PlacedKey* log) {
  std::array<uint64_t, kGroup> alive, words_here;
  std::array<uint8_t, kGroup> passed;
  std::array<size_t, kMaxChoices> placed{};
  std::span<const uint64_t> keys(digests, g);
  PlacedKey* next = log;
  for (uint32_t level = 0; level < view_.choices && !keys.empty(); ++level) {
    const uint64_t* here = keys.data();
    if (level > 0) {
      words(level, keys.data(), keys.size(), words_here.data());
      here = words_here.data();
    }
    placed[level] = add_level(level, here, keys.size(), passed.data(), next);
    if (next != nullptr) next += placed[level];
    size_t left = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      alive[left] = keys[i];
      left += passed[i];
    }
    keys = {alive.data(), left};
  }
  if (log != nullptr && !keys.empty()) {
    for (uint32_t level = 0; level < view_.choices; ++level) {
      take_back(level, log, placed[level]);
      log += placed[level];
    }
    return false;
  }
  for (uint32_t level = 0; level < view_.choices; ++level) count_placed(level, placed[level]);
  add_passed(keys.data(), keys.size());
  return true;
}

// --- the filter as a whole ------------------------------------------------------------------------------------

std::vector<uint64_t> BalancedBloomFilter::merge_space(const Filter& other) const {
  std::vector<uint64_t> space = Filter::merge_space(other);
  if (counted_) space.reserve(2 * (view_.slot_count + 1));  // both lists, however full they are by then
  return space;
}

void BalancedBloomFilter::merge_in(const Filter& other_filter, std::vector<uint64_t>& space) {
  const auto& other = static_cast<const BalancedBloomFilter&>(other_filter);
  if (!counted_) return bits_.merge(other.bits_);
  const uint32_t block_words = block_bits_ / 64;
  for (size_t t = 0; t < tables_.size(); ++t) {
    const Level &mine = tables_[t], &theirs = other.tables_[t];
    const uint64_t counter = counter_mask(mine);
    for (uint64_t b = 0; b < mine.blocks; ++b) {
      uint64_t* block = mine.words + b * block_words;
      const uint64_t* from = theirs.words + b * block_words;
      for (uint32_t i = 0; i + 1 < block_words; ++i) store_word(block + i, block[i] | from[i]);
      const uint64_t load = std::min<uint64_t>(load_of(mine, block, block_words) + load_of(theirs, from, block_words),
                                               mine.threshold + 1);
      uint64_t& last = block[block_words - 1];
      store_word(&last, ((last | from[block_words - 1]) & ~counter) | load << mine.counter_shift);
    }
  }
  merge_lists(other, space);
}

void BalancedBloomFilter::merge_lists(const BalancedBloomFilter& other, std::vector<uint64_t>& all) {
  all.clear();
  for (const BalancedView* f : {static_cast<const BalancedView*>(&view_), &other.view_}) {
    if (f->state[kFlags] & kZeroListed) all.push_back(0);
    for (uint64_t i = 0; i < f->slot_count; ++i)
      if (f->slots[i] != 0) all.push_back(f->slots[i]);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());

  // Look-ups may be under way. While the version is odd, the blocks take what the list will not hold and the list is
  // rebuilt: a look-up that finds nothing meanwhile notices the version, and starts again (list_unchanged).
  uint64_t* state = view_.state;
  const uint64_t* theirs = other.view_.state;
  const size_t kept = std::min<size_t>(all.size(), view_.limit);
  for (const StateWord word : {kKeys, kReads, kSpilled}) state[word] += theirs[word];
  store_word(state + kFlags, state[kFlags] | (theirs[kFlags] & kBudgetSpent));
  const uint64_t version = list_version_;
  __atomic_store_n(&list_version_, version + 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);  // no store below may be seen before the odd version
  for (size_t i = kept; i < all.size(); ++i) add_off_list(view_, all[i], block_bits_ / 64);
  store_word(state + kFlags, state[kFlags] & ~kZeroListed);
  store_word(state + kListed, 0);
  for (uint64_t i = 0; i < view_.slot_count; ++i) store_word(view_.slots + i, 0);
  for (size_t i = 0; i < kept; ++i) put_on_list(view_, all[i]);
  __atomic_store_n(&list_version_, version + 2, __ATOMIC_RELEASE);
}

uint64_t BalancedBloomFilter::set_bits() const {
  const uint32_t block_words = block_bits_ / 64;
  uint64_t total = 0;
  for (const Level& table : tables_)
    for (uint64_t b = 0; b < table.blocks; ++b) total += key_bits_in(table, table.words + b * block_words, block_words);
  return total;
}

std::vector<uint64_t> BalancedBloomFilter::level_histogram(uint32_t level) const {
  if (level >= tables_.size()) throw SpecError("this filter has fewer levels");
  const Level& table = tables_[level];
  const uint32_t block_words = block_bits_ / 64;
  std::unordered_map<uint64_t, uint64_t> found;  // a file may say any load: no memory for those that no block has
  for (uint64_t b = 0; b < table.blocks; ++b) {
    const uint64_t* block = table.words + b * block_words;
    ++found[load_of(table, block, block_words) << 32 | key_bits_in(table, block, block_words)];
  }
  std::vector<uint64_t> triples;
  triples.reserve(3 * found.size());
  for (const auto& [which, blocks] : found) triples.insert(triples.end(), {which >> 32, which & 0xFFFFFFFF, blocks});
  return triples;
}

std::vector<uint64_t> BalancedBloomFilter::state() const {
  return counted_ ? std::vector<uint64_t>(view_.state, view_.state + kStateWords) : std::vector<uint64_t>{};
}

std::string BalancedBloomFilter::check(bool thorough) const {
  if (counted_) {
    const uint64_t* state = view_.state;
    if (state[kListed] > view_.limit) return "the overflow list holds more keys than its limit";
    if (state[kFlags] > (view_.budget != 0 ? kZeroListed | kBudgetSpent : kZeroListed)) return "unknown flags are set";
    for (size_t i = kReserved; i < kStateWords; ++i)
      if (state[i] != 0) return "reserved words are not zero";
  }
  if (!thorough) return {};
  const uint32_t block_words = block_bits_ / 64;
  for (const Level& table : tables_) {
    if (counted_)
      for (uint64_t b = 0; b < table.blocks; ++b)
        if (load_of(table, table.words + b * block_words, block_words) > table.threshold + 1)
          return "a block's load is above its threshold + 1";
    const uint64_t used = table.blocks * block_words;
    for (uint64_t i = used; i % 8 != 0; ++i)
      if (table.words[i] != 0) return "the padding of a table is not zero";
  }
  if (!counted_) return {};
  uint64_t entries = (view_.state[kFlags] & kZeroListed) != 0 ? 1 : 0;
  for (uint64_t i = 0; i < view_.slot_count; ++i) entries += view_.slots[i] != 0 ? 1 : 0;
  if (entries != view_.state[kListed]) return "the overflow list does not hold as many keys as it says";
  // Each entry lies where putting it there left it: no empty slot and no equal entry on its way from home.
  for (uint64_t i = 0; i < view_.slot_count; ++i) {
    const uint64_t digest = view_.slots[i];
    if (digest == 0) continue;
    for (uint64_t slot = list_home(view_, digest); slot != i; slot = slot + 1 == view_.slot_count ? 0 : slot + 1) {
      if (view_.slots[slot] == 0) return "a key on the overflow list cannot be found from its home";
      if (view_.slots[slot] == digest) return "a key is on the overflow list twice";
    }
  }
  return {};
}

extern constinit const KindRow kBalancedKind = {
    .kind = Kind::balanced,
    .name = "balanced",
    .payload_bytes = BalancedBloomFilter::payload_bytes,
    .make_filter = make_family<BalancedBloomFilter>,
};

}  // namespace evenbins

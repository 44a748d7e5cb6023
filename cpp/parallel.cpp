#include "evenbins/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "evenbins/balanced_view.hpp"
#include "evenbins/digest_stretches.hpp"
#include "evenbins/kernel.hpp"
#include "evenbins/partitioned.hpp"
#include "evenbins/rounds.hpp"

namespace evenbins {
namespace {

constexpr size_t kSortItems = 2 * kDigestBatch;    // items that are sorted by owner together
constexpr size_t kSliceItems = 16 * kDigestBatch;  // what an adding thread prepares at a time
constexpr size_t kLevelItems = 4 * kDigestBatch;   // the same with a log, which stays in the cache

// Digests of keys start … end−1; if one is bad, those before it, and the error in `bad`.
size_t read_until_bad(const Digests& keys, uint64_t start, size_t n, uint64_t* out, std::optional<BadKey>& bad) {
  try {
    keys.read(start, n, out);
    return n;
  } catch (const BadKey& error) {
    bad = error;
    return static_cast<size_t>(error.index - start);
  }
}

// Calls act(start, n, digests) for the keys from `start` on, one batch after the other.
template <typename Act>
uint64_t in_order(const Digests& keys, const Pulse& pulse, uint64_t start, const Act& act) {
  uint64_t digests[kDigestBatch];
  std::optional<BadKey> bad;
  const uint64_t size = keys.size();
  for (uint64_t batch = 0; start < size; ++batch) {
    if (batch % (kDigestStretch / kDigestBatch) == 0 && !pulse()) return start;
    const size_t n = read_until_bad(keys, start, std::min<uint64_t>(kDigestBatch, size - start), digests, bad);
    act(start, n, digests);
    if (bad) throw *bad;
    start += n;
  }
  return size;
}

// The same, where threads share the hashing.
template <typename Act>
uint64_t in_order(const Digests& keys, const Pulse& pulse, uint64_t start, uint32_t threads, const Act& act) {
  const uint64_t size = keys.size();
  if (threads < 2 || size - start < 2 * kKeysPerThread) return in_order(keys, pulse, start, act);
  std::vector<uint64_t> digests(std::min(size - start, kDigestStretch));
  for (; start < size; start += kDigestStretch) {
    if (!pulse()) return start;
    std::optional<BadKey> bad;
    uint64_t n = std::min(kDigestStretch, size - start);
    try {
      read_digests(keys, start, n, digests.data(), threads);
    } catch (const BadKey& error) {
      bad = error;
      n = error.index - start;
    }
    for (uint64_t i = 0; i < n; i += kDigestBatch)
      act(start + i, std::min<uint64_t>(kDigestBatch, n - i), digests.data() + i);
    if (bad) throw *bad;
  }
  return size;
}

uint64_t add_alone(Filter& filter, const Digests& keys, const Pulse& pulse, uint64_t start = 0, uint32_t threads = 1) {
  return in_order(keys, pulse, start, threads, [&](uint64_t first, size_t n, const uint64_t* digests) {
    if (const size_t added = filter.add_many(digests, n); added < n) throw FilterFull(first + added);
  });
}

uint64_t add_new_alone(Filter& filter, const Digests& keys, uint8_t* out, const Pulse& pulse, uint64_t start,
                       uint32_t threads) {
  return in_order(keys, pulse, start, threads, [&](uint64_t first, size_t n, const uint64_t* digests) {
    if (const size_t treated = filter.add_new_many(digests, n, out + first); treated < n)
      throw FilterFull(first + treated);
  });
}

// Who owns an item: parts divide the lines of a table evenly, owner o has the items from bound o to bound o+1.
class Owners {
 public:
  Owners() = default;
  Owners(const Address& address, uint32_t count) : address_(address), bounds_(count + 1, ~uint64_t{0}) {
    for (uint32_t o = 0; o < count; ++o) {
      const auto line = static_cast<uint64_t>(static_cast<uint128>(address.lines) * o / count);
      const uint64_t unit = line << address.shift;
      bounds_[o] = address.scale == 0 ? unit : least_word_of(unit, address.scale);
    }
    factor_ = static_cast<uint64_t>((static_cast<uint128>(count) << 64) / (address.lines + 1));
  }
  uint32_t count() const { return static_cast<uint32_t>(bounds_.size()) - 1; }
  uint64_t bound(uint32_t owner) const { return bounds_[owner]; }
  // By one multiplication, which may be one owner too low.
  EVENBINS_INLINE uint32_t of(uint64_t item) const {
    const uint64_t unit = address_.scale == 0 ? item : mulhi(item, address_.scale);
    auto owner = static_cast<uint32_t>(mulhi(unit >> address_.shift, factor_));
    while (item >= bounds_[owner + 1] && owner + 1 < count()) ++owner;
    return owner;
  }

 private:
  Address address_{};
  std::vector<uint64_t> bounds_;
  uint64_t factor_ = 0;
};

// A share of a round: its keys, and their items sorted by owner, in key order within each.
struct Slice {
  std::vector<uint64_t> digests, items, rows;
  std::vector<std::span<const uint64_t>> owned;
  std::vector<std::vector<uint8_t>> passed;  // for each owner: which of its items go on to the next level
  std::vector<const uint8_t*> next;
  std::optional<BadKey> bad;

  void read(const Digests& keys, uint64_t start, size_t n) {
    bad.reset();
    digests.resize(n);
    n = read_until_bad(keys, start, n, digests.data(), bad);
    digests.resize(n);
  }

  // Sorts all items by owner, and keeps them: the items of a key side by side, so that each owner gets its items in the
  // order of the keys.
  template <typename Make>
  void sort_by_key(const Owners& owners, uint32_t per_key, const Make& make) {
    const size_t n = digests.size();
    rows.resize(n * per_key);
    const uint64_t* columns = make(0, n, rows.data());
    items.resize(n * per_key);
    for (size_t j = 0; j < n; ++j)
      for (uint32_t i = 0; i < per_key; ++i) items[j * per_key + i] = columns[i * n + j];
    sort_kept(owners);
  }
  // Sorts `items` by owner, and keeps them.
  void sort_kept(const Owners& owners) {
    sort_items(owners, items.size(), [&](size_t start) {
      return std::span<const uint64_t>(items.data() + start, std::min(kSortItems, items.size() - start));
    });
    expect_flags();
  }
  // After that, and after every owner said which of its items changed something: out[j] = 1 if one of key j's did.
  void collect_new(const Owners& owners, uint32_t per_key, uint8_t* out) {
    for (size_t o = 0; o < passed.size(); ++o) next[o] = passed[o].data();
    for (size_t j = 0, at = 0; j < digests.size(); ++j) {
      uint8_t changed = 0;
      for (uint32_t i = 0; i < per_key; ++i) changed |= *next[owners.of(items[at++])]++;
      out[j] = changed;
    }
  }

  // make(i, n, out) writes the items of the digests i … i+n−1, `per_key` for each.
  template <typename Make>
  void sort(const Owners& owners, uint32_t per_key, const Make& make) {
    items.resize(kSortItems);
    const size_t group = std::max<size_t>(kSortItems / per_key, 1);
    sort_items(owners, digests.size() * per_key, [&](size_t start) {
      const size_t first = start / per_key, keys = std::min(group, digests.size() - first);
      return std::span<const uint64_t>(make(first, keys, items.data()), keys * per_key);
    });
  }

  // Room for a flag of each item.
  void expect_flags() {
    passed.resize(owned.size());
    next.resize(owned.size());
    for (size_t o = 0; o < owned.size(); ++o) passed[o].resize(owned[o].size());
  }
  // Keeps the digests that passed, in order: every owner told it of its own, in that order too. Allocates nothing.
  void keep_passed(const Owners& owners) {
    for (size_t o = 0; o < passed.size(); ++o) next[o] = passed[o].data();
    size_t kept = 0;
    for (size_t i = 0; i < digests.size(); ++i) {
      digests[kept] = digests[i];
      kept += *next[owners.of(items[i])]++;
    }
    digests.resize(kept);
  }

 private:
  // What one owner gets: grows, and is never initialised.
  struct Area {
    std::unique_ptr<uint64_t[]> words;
    size_t room = 0, size = 0;

    uint64_t* end() { return words.get() + size; }
    void reserve(size_t wanted) {
      if (wanted <= room) return;
      wanted = std::max(wanted, 2 * room);
      auto grown = std::make_unique_for_overwrite<uint64_t[]>(wanted);
      std::copy_n(words.get(), size, grown.get());
      words = std::move(grown);
      room = wanted;
    }
  };

  // Sorts `total` items, of which group(start) returns the next few from `start` on: by halving the owners again and
  // again, with everything but the result in the first-level cache. (A scatter, item by item, to its owner's end took
  // twice as long for up to eight owners: a chain of a load and a store for each item, where a split treats eight.)
  template <typename Group>
  void sort_items(const Owners& owners, size_t total, const Group& group) {
    const uint32_t count = owners.count();
    areas_.resize(count);
    for (Area& area : areas_) {
      area.size = 0;
      area.reserve(total / count + kSortItems + kSplitSlack);
    }
    halves_.resize(2 * std::bit_width(count) * (kSortItems + kSplitSlack));
    for (size_t start = 0; start < total;) {
      const std::span<const uint64_t> part = group(start);
      for (Area& area : areas_) area.reserve(area.size + part.size() + kSplitSlack);
      distribute(owners, 0, count, part.data(), part.size(), halves_.data());
      start += part.size();
    }
    owned.clear();
    for (const Area& area : areas_) owned.emplace_back(area.words.get(), area.size);
  }

  // Appends items of the owners first … last−1 to what these have.
  void distribute(const Owners& owners, uint32_t first, uint32_t last, const uint64_t* part, size_t n,
                  uint64_t* scratch) {
    if (last - first == 1) {
      std::copy_n(part, n, areas_[first].end());
      areas_[first].size += n;
      return;
    }
    const uint32_t middle = (first + last) / 2;
    const bool low_ends = middle - first == 1, high_ends = last - middle == 1;
    uint64_t* low = low_ends ? areas_[first].end() : scratch;
    uint64_t* high = high_ends ? areas_[middle].end() : scratch + kSortItems + kSplitSlack;
    uint64_t* deeper = scratch + 2 * (kSortItems + kSplitSlack);
    const size_t below = kernel().split(part, n, owners.bound(middle), low, high);
    if (low_ends)
      areas_[first].size += below;
    else
      distribute(owners, first, middle, low, below, deeper);
    if (high_ends)
      areas_[middle].size += n - below;
    else
      distribute(owners, middle, last, high, n - below, deeper);
  }

  std::vector<Area> areas_;       // of each owner
  std::vector<uint64_t> halves_;  // items between two splits
};

// How a call is cut into rounds, rounds into slices of keys, and the memory into parts.
struct Cut {
  uint64_t size, slice_keys, rounds;
  uint32_t slices, parts;

  Cut(uint64_t size, uint64_t most, uint32_t threads)
      : size(size),
        slice_keys(std::clamp<uint64_t>((size - 1) / (2 * uint64_t{threads}) + 1, 64, std::max<uint64_t>(most, 64))),
        slices(2 * threads),
        parts(threads) {
    rounds = (size + slices * slice_keys - 1) / (slices * slice_keys);
  }
  uint64_t first(uint64_t round, uint32_t slice) const { return std::min(size, (round * slices + slice) * slice_keys); }
  size_t keys(uint64_t round, uint32_t slice) const {
    return static_cast<size_t>(first(round, slice + 1) - first(round, slice));
  }
  // How many keys are in after `done` rounds.
  uint64_t before(uint64_t done) const { return first(done, 0); }
};

using Slices = std::vector<Slice>;

// Calls act(slice) for those that count: behind a bad key, none does.
template <typename Act>
void each_useful(Slices& slices, const Act& act) {
  for (Slice& slice : slices) {
    act(slice);
    if (slice.bad) return;
  }
}

// Throws the bad key at which the last round ended, if it did.
void throw_bad(const Slices& slices) {
  for (const Slice& slice : slices)
    if (slice.bad) throw BadKey(*slice.bad);
}

// Adds the first `size` keys. With `out`, out[i] = 1 for those that were absent: each part says which items changed
// something, and each slice then collects the answers for its keys.
uint64_t add_by_range(ByRange& filter, const Digests& keys, uint64_t size, uint8_t* out, uint32_t threads,
                      const Pulse& pulse) {
  const uint32_t per_key = std::max(filter.items_per_key(), 1u);
  const Cut cut(size, kSliceItems / per_key, threads);
  const Owners owners(filter.address(), cut.parts);
  std::vector<uint32_t> tasks = {cut.slices, cut.parts};
  if (out != nullptr) tasks.push_back(cut.slices);
  Rounds rounds(std::move(tasks), cut.rounds);
  std::vector<Slices> buffers(rounds.buffers());
  for (Slices& slices : buffers) slices.resize(cut.slices);

  const auto sort = [&](Slice& slice, uint64_t round, uint32_t s) {
    slice.read(keys, cut.first(round, s), cut.keys(round, s));
    if (slice.bad) rounds.end_after(round);
    const auto make = [&](size_t i, size_t n, uint64_t* items) -> const uint64_t* {
      if (filter.items_per_key() == 0) return slice.digests.data() + i;
      filter.items(slice.digests.data() + i, n, items);
      return items;
    };
    if (out != nullptr)
      slice.sort_by_key(owners, per_key, make);
    else
      slice.sort(owners, per_key, make);
  };
  rounds.run(threads, pulse, [&](uint32_t step, uint64_t round, uint32_t task) {
    Slices& slices = buffers[round % buffers.size()];
    if (step == 0) return sort(slices[task], round, task);
    if (step == 2) return slices[task].collect_new(owners, per_key, out + cut.first(round, task));
    each_useful(slices, [&](Slice& slice) {
      const std::span<const uint64_t> mine = slice.owned[task];
      if (out != nullptr)
        filter.add_new_items(mine.data(), mine.size(), slice.passed[task].data());
      else
        filter.add_items(mine.data(), mine.size());
    });
  });
  const uint64_t done = rounds.end();
  if (done > 0) throw_bad(buffers[(done - 1) % buffers.size()]);
  return cut.before(done);
}

// What was done at one level to the blocks of one part, in one round, so that it can be taken back.
struct Undo {
  std::unique_ptr<PlacedKey[]> log;  // never initialised
  size_t room = 0;
  uint64_t placed = 0;  // keys that are in, and neither counted nor taken back

  void add(ByLevel& filter, uint32_t level, Slices& slices, uint32_t part, bool logged) {
    size_t items = 0;
    each_useful(slices, [&](const Slice& slice) { items += slice.owned[part].size(); });
    if (logged && items > room) {
      log = std::make_unique_for_overwrite<PlacedKey[]>(items);
      room = items;
    }
    each_useful(slices, [&](Slice& slice) {
      PlacedKey* const next = logged ? log.get() + placed : nullptr;
      const auto& mine = slice.owned[part];
      placed += filter.add_level(level, mine.data(), mine.size(), slice.passed[part].data(), next);
    });
  }
  void take_back(ByLevel& filter, uint32_t level) { filter.take_back(level, log.get(), std::exchange(placed, 0)); }
  void count(ByLevel& filter, uint32_t level) { filter.count_placed(level, std::exchange(placed, 0)); }
};

// What a round through levels needs.
struct LevelRound {
  Slices slices;
  std::vector<std::vector<Undo>> undo;  // of each level, of each part

  template <typename Act>
  void each_undo(const Act& act) {
    for (uint32_t level = 0; level < undo.size(); ++level)
      for (Undo& part : undo[level]) act(part, level);
  }
};

// A round goes through the levels: each slice is sorted by owner, each part adds what is its own, the slice keeps what
// passed. What passed all levels is added at the end, round by round. If that is more than there is room for, the order
// of the keys would have mattered: the round, and what was done of those behind it, is taken back. Returns the first key
// that must be added alone for this reason, or because too few are left.
uint64_t add_by_level(ByLevel& filter, const Digests& keys, uint32_t threads, const Pulse& pulse, bool& stopped) {
  if (!filter.takes_rounds()) return 0;
  const uint32_t levels = filter.levels();
  const Cut cut(keys.size(), kLevelItems, threads);
  const bool logged = filter.room() < cut.size;
  std::vector<Owners> owners;   // of each level
  std::vector<uint32_t> tasks;  // step 2j: the slices for level j; step 2j+1: the parts of level j; then what is left
  for (uint32_t level = 0; level < levels; ++level) {
    owners.emplace_back(filter.address(level), cut.parts);
    tasks.insert(tasks.end(), {cut.slices, cut.parts});
  }
  tasks.insert(tasks.end(), {cut.slices, 1});
  Rounds rounds(std::move(tasks), cut.rounds);
  std::vector<LevelRound> buffers(rounds.buffers());
  for (LevelRound& buffer : buffers) {
    buffer.slices.resize(cut.slices);
    buffer.undo.resize(levels);
    for (std::vector<Undo>& parts : buffer.undo) parts.resize(cut.parts);
  }

  const auto sort = [&](Slice& slice, uint32_t level) {
    slice.items.resize(slice.digests.size());
    filter.words(level, slice.digests.data(), slice.digests.size(), slice.items.data());
    slice.sort_kept(owners[level]);
  };
  // In the order of the rounds, by whoever takes it.
  const auto finish = [&](LevelRound& buffer, uint64_t round) {
    size_t passed = 0;
    each_useful(buffer.slices, [&](const Slice& slice) { passed += slice.digests.size(); });
    if (passed > filter.room()) return rounds.drop(round);
    buffer.each_undo([&](Undo& part, uint32_t level) { part.count(filter, level); });
    each_useful(buffer.slices,
                [&](const Slice& slice) { filter.add_passed(slice.digests.data(), slice.digests.size()); });
  };
  const auto act = [&](uint32_t step, uint64_t round, uint32_t task) {
    LevelRound& buffer = buffers[round % buffers.size()];
    const uint32_t level = step / 2;
    if (level == levels && step % 2 == 1) return finish(buffer, round);
    if (step % 2 == 1) return buffer.undo[level][task].add(filter, level, buffer.slices, task, logged);
    Slice& slice = buffer.slices[task];
    if (level == 0) {
      slice.read(keys, cut.first(round, task), cut.keys(round, task));
      if (slice.bad) rounds.end_after(round);
    } else {
      slice.keep_passed(owners[level - 1]);
    }
    if (level < levels) sort(slice, level);
  };

  std::exception_ptr failure;
  try {
    rounds.run(threads, [&] { return !(stopped = !pulse()); }, act);
  } catch (...) {
    failure = std::current_exception();
  }
  // The last round first: what a later one did was done on top of it. Without a log nothing is taken back, which is so
  // only after a failure: then keys are in that nobody asks for.
  const uint64_t done = rounds.end();
  for (uint64_t round = std::min(cut.rounds, done + buffers.size()); round-- > done;)
    buffers[round % buffers.size()].each_undo(
        [&](Undo& part, uint32_t level) { logged ? part.take_back(filter, level) : part.count(filter, level); });
  if (failure) std::rethrow_exception(failure);
  if (done > 0) throw_bad(buffers[(done - 1) % buffers.size()].slices);
  return cut.before(done);
}

// A filter that fits into a core's own cache, and whose bits are those of its keys: each thread adds to an empty copy,
// then each unites a part of all copies with the filter. So no digest goes from one core to another. (By ranges, four
// threads took 1.7 times the CPU time of one for a blocked filter of 2 MiB and added 147 million keys a second; so they
// take 1.2 times and add 246.)
constexpr uint64_t kCopyBytes = uint64_t{4} << 20;
constexpr uint64_t kCopyKeys = uint64_t{1} << 22;  // that are added before the copies are united with the filter

// As many as get four keys for each line of their copy, or two where a key has many bits: to clear and to unite a line
// takes about as long as one key does.
uint32_t useful_copies(Filter& filter, const Digests& keys, uint32_t threads) {
  const uint64_t lines = filter.bits().bytes() / 64;
  if (!filter.has_bits_of_keys() || lines > kCopyBytes / 64) return 0;
  const uint64_t keys_of_line = filter.by_range()->items_per_key() < 8 ? 4 : 2;
  return static_cast<uint32_t>(std::min<uint64_t>(threads, keys.size() / (keys_of_line * lines)));
}

uint64_t add_in_copies(Filter& filter, const Digests& keys, uint32_t threads, const Pulse& pulse) {
  std::vector<std::unique_ptr<Filter>> copies(threads);
  const uint64_t size = keys.size(), words = filter.bits().size();
  for (uint64_t start = 0; start < size;) {
    const uint64_t end = start + std::min(size - start, kCopyKeys);
    const uint64_t stretch = digest_stretch(end - start, threads);
    std::atomic<uint64_t> next = start;
    std::atomic<bool> stopped = false;
    try {
      run_on_threads(threads, [&](uint32_t t) {
        uint64_t digests[kDigestBatch];
        if (copies[t] == nullptr) copies[t] = make_filter(filter.spec(), Bits::zeroed(filter.bits().bytes()));
        for (uint64_t at; !stopped && (at = next.fetch_add(stretch)) < end;) {
          if (t == 0 && !pulse()) stopped = true;
          for (const uint64_t last = std::min(end, at + stretch); at < last; at += kDigestBatch) {
            const size_t n = std::min<uint64_t>(kDigestBatch, last - at);
            keys.read(at, n, digests);
            copies[t]->add_many(digests, n);
          }
        }
      });
    } catch (const BadKey&) {
      return add_alone(filter, keys, pulse, start);  // up to that key, and throws it
    }
    if (stopped) return start;
    std::atomic<uint32_t> next_part = 0;  // fewer threads than parts may have started
    run_on_threads(threads, [&](uint32_t) {
      for (uint32_t part; (part = next_part++) < threads;)
        for (const auto& copy : copies)
          if (copy != nullptr) filter.unite_bits(*copy, words * part / threads, words * (part + 1) / threads);
    });
    start = end;
  }
  return size;
}

}  // namespace

namespace {
uint32_t useful_threads(const Filter& filter, const Digests& keys, uint32_t threads) {
  return static_cast<uint32_t>(std::min<uint64_t>({threads, filter.bits().bytes() / 64, keys.size() / kKeysPerThread}));
}
}  // namespace

namespace {
// Adds the keys for which there is room by ranges. Returns how many are in. If it was too many, all are taken back, and
// none is in: then `alone` says that they must be added by one thread, which stops at the first that finds no room.
// `out` as for add_by_range; of a filter that can be overfull it may be null only if every key changes something.
uint64_t add_at_once(Filter& filter, ByRange& by_range, const Digests& keys, uint8_t* out, uint32_t threads,
                     const Pulse& pulse, bool& alone) {
  by_range.begin_items(keys.size(), threads);
  const uint64_t certain = std::min(keys.size(), filter.keys_left());
  std::optional<BadKey> bad;
  uint64_t in = 0;
  try {
    in = add_by_range(by_range, keys, certain, out, threads, pulse);
  } catch (const BadKey& error) {
    bad = error;
    in = error.index;
  }
  alone = !bad && in == certain && in < keys.size();
  if (by_range.is_overfull()) {
    alone = bad || in == certain;  // else the pulse stopped it
    uint64_t digests[kDigestBatch];
    for (uint64_t start = 0; start < in; start += kDigestBatch) {
      const size_t n = std::min<uint64_t>(kDigestBatch, in - start);
      keys.read(start, n, digests);
      size_t added = 0;
      for (size_t i = 0; i < n; ++i)
        if (out == nullptr || out[start + i] != 0) digests[added++] = digests[i];
      by_range.remove_items(digests, added);
    }
    in = 0;
    bad.reset();
  }
  by_range.end_items(in);
  if (bad) throw BadKey(*bad);
  return in;
}

// Some of the keys of a call.
class Piece final : public Digests {
 public:
  Piece(const Digests& keys, uint64_t first, uint64_t size) : keys_(keys), first_(first), size_(size) {}
  uint64_t size() const override { return size_; }
  void read(uint64_t start, size_t n, uint64_t* out) const override {
    try {
      keys_.read(first_ + start, n, out);
    } catch (const BadKey& bad) {
      throw BadKey(bad.index - first_, bad.type, bad.what());
    }
  }
  bool stay() const override { return keys_.stay(); }

 private:
  const Digests& keys_;
  uint64_t first_, size_;
};

constexpr uint64_t kOwnKeys = 16 * kDigestStretch;  // whose digests are copied at a time

// A copy of the digests of some keys: what was added can be taken back, whatever happens to the keys meanwhile.
class OwnDigests {
 public:
  // Those from `start` on, up to a bad key, which is then in `bad`.
  DigestSpan read(const Digests& keys, uint64_t start, uint64_t n, uint32_t threads) {
    digests_.resize(n);
    try {
      read_digests(keys, start, n, digests_.data(), threads);
    } catch (const BadKey& error) {
      bad = error;
      n = error.index - start;
    }
    return {digests_.data(), n};
  }
  uint64_t* data() { return digests_.data(); }
  std::optional<BadKey> bad;

 private:
  std::vector<uint64_t> digests_;
};

// The same with as many keys at a time as the filter takes; if these are few, one thread adds them.
uint64_t add_by_range(Filter& filter, ByRange& by_range, const Digests& keys, uint8_t* out, uint32_t threads,
                      const Pulse& pulse, bool& alone) {
  const uint64_t size = keys.size();
  const bool copied = by_range.can_be_overfull() && !keys.stay();
  OwnDigests own;
  for (uint64_t start = 0; start < size;) {
    uint64_t count = std::min({size - start, by_range.keys_at_once(), copied ? kOwnKeys : size});
    const Piece piece(keys, start, count);
    const DigestSpan copy = copied ? own.read(keys, start, count, threads) : DigestSpan(nullptr, 0);
    const Digests& some = copied ? static_cast<const Digests&>(copy) : piece;
    count = some.size();
    uint8_t* answers = out == nullptr ? nullptr : out + start;
    uint64_t in;
    try {
      if (count < size && count < 2 * kKeysPerThread)
        in = answers == nullptr ? add_alone(filter, some, pulse) : add_new_alone(filter, some, answers, pulse, 0, 1);
      else
        in = add_at_once(filter, by_range, some, answers, threads, pulse, alone);
    } catch (const BadKey& bad) {
      throw BadKey(bad.index + start, bad.type, bad.what());
    } catch (const FilterFull& full) {
      throw FilterFull(full.index + start);
    }
    start += in;
    if (in < count) return start;
    if (own.bad) throw BadKey(*own.bad);
  }
  return size;
}
}  // namespace

namespace {
// Adds to a filter that grows, by add(piece, first, threads): threads add as many keys as it certainly has room for, one
// thread those around the key that makes it grow. So it grows at the same key whatever the threads.
template <typename Add>
uint64_t add_in_pieces(Filter& filter, const Digests& keys, uint32_t threads, const Add& add) {
  constexpr uint64_t kAlone = 8 * kDigestBatch;
  const uint64_t size = keys.size();
  for (uint64_t start = 0, n; start < size; start += n) {
    filter.settle(threads);
    const uint64_t left = filter.keys_left();
    const bool together = left >= kAlone;
    n = std::min(size - start, together ? left : kAlone);
    try {
      const uint64_t done = add(Piece(keys, start, n), start, together ? threads : 1);
      if (done < n) return start + done;
    } catch (const BadKey& bad) {
      throw BadKey(bad.index + start, bad.type, bad.what());
    } catch (const FilterFull& full) {
      throw FilterFull(full.index + start);
    }
  }
  return size;
}

uint64_t add_new_to_fixed(Filter& filter, const Digests& keys, uint8_t* out, uint32_t threads, const Pulse& pulse) {
  threads = useful_threads(filter, keys, threads);
  uint64_t start = 0;
  if (ByRange* by_range = filter.by_range(); by_range != nullptr && by_range->tells_new_items() && threads > 1) {
    bool alone = false;
    start = add_by_range(filter, *by_range, keys, out, threads, pulse, alone);
    if (!alone) return start;
  }
  return add_new_alone(filter, keys, out, pulse, start, threads);
}

uint64_t add_to_fixed(Filter& filter, const Digests& keys, uint32_t threads, const Pulse& pulse) {
  threads = useful_threads(filter, keys, threads);
  if (pays_to_partition(filter, keys.size())) {
    bool stopped = false;
    const uint64_t in = add_partitioned(filter, keys, std::max(threads, 1u), pulse, stopped);
    return stopped || in == keys.size() ? in : add_alone(filter, keys, pulse, in, threads);
  }
  if (threads < 2) return add_alone(filter, keys, pulse);
  if (const uint32_t copies = useful_copies(filter, keys, threads); copies > 1)
    return add_in_copies(filter, keys, copies, pulse);
  uint64_t start = 0;
  if (ByRange* by_range = filter.by_range()) {
    bool alone = false;
    std::vector<uint8_t> added(by_range->adds_every_item() ? 0 : keys.size());
    start = add_by_range(filter, *by_range, keys, added.empty() ? nullptr : added.data(), threads, pulse, alone);
    if (!alone) return start;
  } else if (ByLevel* by_level = filter.by_level()) {
    bool stopped = false;
    start = add_by_level(*by_level, keys, threads, pulse, stopped);
    if (stopped) return start;
  }
  return add_alone(filter, keys, pulse, start, threads);
}

}  // namespace

uint64_t add_new_all(Filter& filter, const Digests& keys, uint8_t* out, uint32_t threads, const Pulse& pulse) {
  if (!filter.grows() || useful_threads(filter, keys, threads) < 2)
    return add_new_to_fixed(filter, keys, out, threads, pulse);
  return add_in_pieces(filter, keys, threads, [&](const Digests& piece, uint64_t first, uint32_t most) {
    return add_new_to_fixed(filter, piece, out + first, most, pulse);
  });
}

uint64_t add_all(Filter& filter, const Digests& keys, uint32_t threads, const Pulse& pulse) {
  if (!filter.grows() || useful_threads(filter, keys, threads) < 2) return add_to_fixed(filter, keys, threads, pulse);
  return add_in_pieces(filter, keys, threads, [&](const Digests& piece, uint64_t, uint32_t most) {
    return add_to_fixed(filter, piece, most, pulse);
  });
}

namespace {
// Tells whether digests are those that were there before.
uint64_t checksum(const uint64_t* digests, size_t n) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n; ++i) sum += digests[i] * (2 * i + 1);
  return sum;
}

// Takes back n keys that a call has added, or those of them that were new; changes the digests.
void take_back(SupportsRemoval& removal, uint64_t* digests, size_t n, const uint8_t* is_new) {
  size_t added = 0;
  for (size_t i = 0; i < n; ++i)
    if (is_new == nullptr || is_new[i] != 0) digests[added++] = digests[i];
  uint8_t removed[kDigestBatch];
  for (size_t i = 0; i < added; i += kDigestBatch)
    removal.remove_many(digests + i, std::min(kDigestBatch, added - i), removed);
}
}  // namespace

uint64_t add_all_or_none(Filter& filter, const Digests& keys, uint64_t limit, uint32_t threads, const Pulse& pulse) {
  const uint64_t size = keys.size(), copies = filter.state().front();
  if (size > limit - std::min(limit, copies)) throw FilterFull(0);
  std::vector<uint8_t> is_new(filter.is_multiset() ? 0 : size);
  std::vector<uint64_t> sums;
  sums.reserve(size / kOwnKeys + 1);
  OwnDigests own;
  const auto answers = [&](uint64_t start) { return is_new.empty() ? nullptr : is_new.data() + start; };
  for (uint64_t start = 0; start < size; start += kOwnKeys) {
    const DigestSpan some = own.read(keys, start, std::min(kOwnKeys, size - start), threads);
    sums.push_back(checksum(own.data(), some.size()));
    uint64_t done;
    try {
      done = is_new.empty() ? add_all(filter, some, threads, pulse)
                            : add_new_all(filter, some, answers(start), threads, pulse);
    } catch (const FilterFull& full) {
      take_back(*filter.removal(), own.data(), full.index, answers(start));
      while (start > 0) {
        start -= kOwnKeys;
        const uint64_t n = own.read(keys, start, kOwnKeys, 1).size();
        if (n == kOwnKeys && checksum(own.data(), n) == sums[start / kOwnKeys])
          take_back(*filter.removal(), own.data(), n, answers(start));
      }
      throw FilterFull(0);
    }
    if (done < some.size()) return start + done;
    if (own.bad) throw BadKey(*own.bad);
  }
  return size;
}

uint64_t contains_all(const Filter& filter, const Digests& keys, uint8_t* out, uint32_t threads, const Pulse& pulse) {
  return for_digests(keys, threads, pulse, [&](uint64_t start, size_t n, const uint64_t* digests) {
    filter.contains_many(digests, n, out + start);
  });
}

uint64_t count_all(const SupportsCounting& filter, const Digests& keys, int64_t* out, uint32_t threads,
                   const Pulse& pulse) {
  return for_digests(keys, threads, pulse, [&](uint64_t start, size_t n, const uint64_t* digests) {
    filter.count_many(digests, n, out + start);
  });
}

namespace {
// Removal where all that a key touches lies where its digest leads: keys of other lines do not matter for it, and
// those of the same line go to the same owner, in their order.
class Removing final : public ByRange {
 public:
  Removing(const ByRange& filter, SupportsRemoval& removal) : filter_(filter), removal_(removal) {}
  uint32_t items_per_key() const override { return 0; }
  void items(const uint64_t*, size_t, uint64_t*) const override {}
  Address address() const override { return filter_.address(); }
  void add_items(const uint64_t*, size_t) override {}
  bool tells_new_items() const override { return true; }
  void add_new_items(const uint64_t* digests, size_t n, uint8_t* removed) override {
    removal_.remove_many(digests, n, removed);
  }

 private:
  const ByRange& filter_;
  SupportsRemoval& removal_;
};
}  // namespace

uint64_t remove_all(Filter& filter, const Digests& keys, uint8_t* out, uint32_t threads, const Pulse& pulse) {
  SupportsRemoval& removal = *filter.removal();
  threads = useful_threads(filter, keys, threads);
  if (const ByRange* by_range = filter.by_range();
      threads > 1 && by_range != nullptr && by_range->items_per_key() == 0) {
    Removing removing(*by_range, removal);
    return add_by_range(removing, keys, keys.size(), out, threads, pulse);
  }
  // Elsewhere whether a key can be removed depends on all keys before it.
  return in_order(keys, pulse, 0, threads, [&](uint64_t start, size_t n, const uint64_t* digests) {
    removal.remove_many(digests, n, out + start);
  });
}

}  // namespace evenbins

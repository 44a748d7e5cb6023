#include "evenbins/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "evenbins/kernel.hpp"
#include "evenbins/read_digests.hpp"
#include "evenbins/stretches.hpp"
#include "evenbins/threads.hpp"

namespace evenbins {
namespace {

constexpr size_t kBatch = 1024;                 // digests that stay in the first-level cache
constexpr uint64_t kStretch = 64 * kBatch;      // what a querying thread takes at a time
constexpr uint64_t kKeysOfThread = 8 * kBatch;  // that pay for a thread
constexpr size_t kSortItems = 2 * kBatch;       // items that are sorted by owner together
constexpr size_t kRoundItems = 32 * kBatch;     // what an adding thread prepares in a round
constexpr size_t kLevelItems = 64 * kBatch;     // the same where a round takes several steps: fewer waits

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
  uint64_t digests[kBatch];
  std::optional<BadKey> bad;
  const uint64_t size = keys.size();
  for (uint64_t batch = 0; start < size; ++batch) {
    if (batch % (kStretch / kBatch) == 0 && !pulse()) return start;
    const size_t n = read_until_bad(keys, start, std::min<uint64_t>(kBatch, size - start), digests, bad);
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
  if (threads < 2 || size - start < 2 * kKeysOfThread) return in_order(keys, pulse, start, act);
  std::vector<uint64_t> digests(std::min(size - start, kStretch));
  for (; start < size; start += kStretch) {
    if (!pulse()) return start;
    std::optional<BadKey> bad;
    uint64_t n = std::min(kStretch, size - start);
    try {
      read_digests(keys, start, n, digests.data(), threads);
    } catch (const BadKey& error) {
      bad = error;
      n = error.index - start;
    }
    for (uint64_t i = 0; i < n; i += kBatch) act(start + i, std::min<uint64_t>(kBatch, n - i), digests.data() + i);
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

// Lets all threads pass when the last has arrived. Waits by spinning for some tens of microseconds, about
// what the slowest thread of a round is behind, before it sleeps: to wake a sleeping thread takes as long.
class Barrier {
 public:
  void expect(uint32_t threads) { threads_ = threads; }  // before anybody arrives
  void arrive_and_wait() {
    const uint32_t phase = phase_;
    if (arrived_.fetch_add(1) + 1 == threads_) {
      arrived_ = 0;
      phase_ = phase + 1;
      phase_.notify_all();
      return;
    }
    for (int spin = 0; spin < kSpins; ++spin) {
      if (phase_ != phase) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield");
#endif
    }
    phase_.wait(phase);
  }

 private:
  static constexpr int kSpins = 2000;
  uint32_t threads_ = 1;
  std::atomic<uint32_t> arrived_ = 0, phase_ = 0;
};

// Who owns an item: threads divide the lines of a table evenly, owner o has the items from bound o to bound o+1.
class Owners {
 public:
  Owners() = default;
  Owners(const Address& address, uint32_t count) : address_(address), bounds_(count + 1, ~uint64_t{0}) {
    for (uint32_t o = 0; o < count; ++o) {
      const auto line = static_cast<uint64_t>(static_cast<unsigned __int128>(address.lines) * o / count);
      const uint64_t unit = line << address.shift;
      bounds_[o] = address.scale == 0 ? unit : least_word_of(unit, address.scale);
    }
    factor_ = static_cast<uint64_t>((static_cast<unsigned __int128>(count) << 64) / (address.lines + 1));
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

// One thread's share of a round: its items, sorted by owner, in key order within each.
struct Slice {
  std::vector<uint64_t> digests, items, rows;
  std::vector<std::span<const uint64_t>> owned;
  std::vector<std::vector<uint8_t>> passed;  // for each owner: which of its items go on to the next level
  std::vector<const uint8_t*> next;
  std::optional<BadKey> bad;

  void read(const Digests& keys, uint64_t start, size_t n) {
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
  void keep_passed(const Owners& owners, const std::vector<uint64_t>& words) {
    for (size_t o = 0; o < passed.size(); ++o) next[o] = passed[o].data();
    size_t kept = 0;
    for (size_t i = 0; i < digests.size(); ++i) {
      digests[kept] = digests[i];
      kept += *next[owners.of(words[i])]++;
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

// What the threads know of a round. There are two, used in turn: while a slow thread still adds the items
// of one round, a fast one prepares the next; so one barrier a round is enough.
struct Round {
  std::vector<Slice> slices;  // one of each thread
  std::exception_ptr failure;
  std::mutex failure_lock;
  bool stop = false;
};

// Adds the first `size` keys. With `out`, out[i] = 1 for those that were absent: each owner says which items changed
// something, and each slice then collects the answers for its keys.
uint64_t add_by_range(ByRange& filter, const Digests& keys, uint64_t size, uint8_t* out, uint32_t threads,
                      const Pulse& pulse) {
  const uint32_t per_key = std::max(filter.items_per_key(), 1u);
  const uint64_t slice_keys = std::max<uint64_t>(kRoundItems / per_key, 64);
  uint64_t round_keys = 0, done = size;
  Owners owners;
  Round rounds[2];
  Barrier barrier;
  std::exception_ptr failure;

  const auto prepare = [&](uint32_t started) {
    round_keys = started * slice_keys;
    owners = Owners(filter.address(), started);
    for (Round& round : rounds) round.slices.resize(started);
    barrier.expect(started);
  };
  run_on_threads(threads, prepare, [&](uint32_t t) {
    for (uint64_t start = 0, r = 0; start < size; start += round_keys, ++r) {
      Round& round = rounds[r % 2];
      try {
        const uint64_t from = std::min(size, start + t * slice_keys);
        Slice& mine = round.slices[t];
        mine.read(keys, from, std::min(slice_keys, size - from));
        const auto make = [&](size_t i, size_t n, uint64_t* items) -> const uint64_t* {
          if (filter.items_per_key() == 0) return mine.digests.data() + i;
          filter.items(mine.digests.data() + i, n, items);
          return items;
        };
        if (out != nullptr)
          mine.sort_by_key(owners, per_key, make);
        else
          mine.sort(owners, per_key, make);
        if (t == 0) round.stop = !pulse();
      } catch (...) {
        const std::lock_guard hold(round.failure_lock);
        round.failure = std::current_exception();
      }
      barrier.arrive_and_wait();
      if (round.failure || round.stop) {
        if (t == 0) {
          done = start;
          failure = round.failure;
        }
        return;
      }
      for (Slice& slice : round.slices) {
        const std::span<const uint64_t> mine = slice.owned[t];
        if (out != nullptr)
          filter.add_new_items(mine.data(), mine.size(), slice.passed[t].data());
        else
          filter.add_items(mine.data(), mine.size());
        if (!slice.bad) continue;
        if (t == 0) failure = std::make_exception_ptr(*slice.bad);
        return;  // the slices behind it hold keys that come after the bad one
      }
      if (out == nullptr) continue;
      barrier.arrive_and_wait();
      if (const uint64_t from = start + t * slice_keys; from < size)
        round.slices[t].collect_new(owners, per_key, out + from);
    }
  });
  if (failure) std::rethrow_exception(failure);
  return done;
}

// What one thread did at the levels of a round, so that it can be taken back.
struct Undo {
  struct Log {  // never initialised: nine words for each key
    std::unique_ptr<uint64_t[]> words;
    size_t room = 0;
  };
  std::vector<Log> log;          // for each level
  std::vector<uint64_t> placed;  // keys that are in blocks of each level, and neither counted nor taken back

  explicit Undo(uint32_t levels) : log(levels), placed(levels) {}
  void add_level(ByLevel& filter, uint32_t level, std::vector<Slice>& slices, uint32_t owner, bool logged) {
    size_t items = 0, done = 0;
    for (const Slice& slice : slices) items += slice.owned[owner].size();
    Log& here = log[level];
    if (const size_t words = items * filter.undo_words(); logged && words > here.room) {
      here.words = std::make_unique_for_overwrite<uint64_t[]>(words);
      here.room = words;
    }
    for (Slice& slice : slices) {
      uint64_t* undo = logged ? here.words.get() + done * filter.undo_words() : nullptr;
      const auto& mine = slice.owned[owner];
      done += filter.add_level(level, mine.data(), mine.size(), slice.passed[owner].data(), undo);
    }
    placed[level] = done;
  }
  void take_back(ByLevel& filter) {
    for (uint32_t level = 0; level < log.size(); ++level)
      filter.take_back(level, log[level].words.get(), std::exchange(placed[level], 0));
  }
  void count(ByLevel& filter) {
    for (uint32_t level = 0; level < placed.size(); ++level)
      filter.count_placed(level, std::exchange(placed[level], 0));
  }
};

// A round goes through the levels: each thread sorts its slice by owner, each owner adds what is its own, the
// slice keeps what passed. What passed all levels is added at the end, by one thread. If that is more than there
// is room for, the order of the keys would have mattered: the round is taken back. Returns the first key that
// must be added alone for this reason, or because too few are left.
uint64_t add_by_level(ByLevel& filter, const Digests& keys, uint32_t threads, const Pulse& pulse, bool& stopped) {
  const uint64_t size = keys.size();
  const uint32_t levels = filter.levels();
  std::vector<Owners> owners;  // of each level
  std::vector<Slice> slices;
  std::vector<Undo> undos;
  Barrier barrier;
  uint64_t start = 0, slice_keys = 0, room = 0;
  bool too_many = false;
  std::mutex failure_lock;
  std::exception_ptr failures[2];  // of the even and the odd steps, so that no thread sees the next step's

  // How many slices count: those behind a bad key hold keys that come after it.
  const auto useful = [&] {
    size_t n = 1;
    while (n < threads && !slices[n - 1].bad) ++n;
    return n;
  };

  const auto prepare = [&](uint32_t started) {
    threads = started;
    for (uint32_t level = 0; level < levels; ++level) owners.emplace_back(filter.address(level), threads);
    slices.resize(threads);
    for (uint32_t t = 0; t < threads; ++t) undos.emplace_back(levels);
    barrier.expect(threads);
  };
  run_on_threads(threads, prepare, [&](uint32_t t) {
    Slice& mine = slices[t];
    std::vector<uint64_t> words;
    std::optional<BadKey> bad;
    uint64_t steps = 0;
    // Runs a step on every thread and waits for all; false if one of them failed.
    const auto together = [&](const auto& step) {
      std::exception_ptr& failure = failures[steps++ % 2];
      try {
        step();
      } catch (...) {
        const std::lock_guard hold(failure_lock);
        failure = std::current_exception();
      }
      barrier.arrive_and_wait();
      return failure == nullptr;
    };
    while (true) {
      const bool ready = together([&] {
        if (t != 0) return;
        if (bad) throw *bad;
        stopped = !pulse();
        room = filter.room();
        slice_keys = std::min<uint64_t>(kLevelItems, (size - start + threads - 1) / threads);
        if (stopped || !filter.takes_rounds() || slice_keys < kBatch) slice_keys = 0;
      });
      if (!ready || slice_keys == 0) return;
      const bool logged = room < threads * slice_keys;
      const uint64_t from = std::min(size, start + t * slice_keys);
      if (!together([&] { mine.read(keys, from, std::min(slice_keys, size - from)); })) return;
      if (t >= useful()) mine.digests.clear();

      for (uint32_t level = 0; level < levels; ++level) {
        const bool sorted = together([&] {
          words.resize(mine.digests.size());
          filter.words(level, mine.digests.data(), words.size(), words.data());
          mine.sort(owners[level], 1, [&](size_t i, size_t, uint64_t*) { return words.data() + i; });
          mine.expect_flags();
        });
        if (!sorted) return;  // no memory
        if (!together([&] { undos[t].add_level(filter, level, slices, t, logged); })) return;
        mine.keep_passed(owners[level], words);
      }
      barrier.arrive_and_wait();  // every slice has kept what passed
      together([&] {
        if (t != 0) return;
        size_t passed = 0;
        for (const Slice& slice : slices) passed += slice.digests.size();
        too_many = passed > room;
        if (too_many) return;
        for (Undo& undo : undos) undo.count(filter);
        for (const Slice& slice : slices) filter.add_passed(slice.digests.data(), slice.digests.size());
        bad = slices[useful() - 1].bad;
        start = std::min(size, start + threads * slice_keys);
      });
      if (!too_many) continue;
      undos[t].take_back(filter);  // each thread its own blocks
      return;
    }
  });
  for (Undo& undo : undos) undo.count(filter);  // of a round that failed after some of its levels
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return start;
}

// Calls ask(start, n, digests) for stretches of the keys, on several threads and in no order.
template <typename Ask>
uint64_t ask_all(const Digests& keys, uint32_t threads, const Pulse& pulse, const Ask& ask) {
  const uint64_t size = keys.size();
  threads = static_cast<uint32_t>(std::clamp<uint64_t>(size / kKeysOfThread, 1, threads));
  const uint64_t stretch = std::clamp<uint64_t>(size / (uint64_t{4} * threads), kBatch, kStretch) / kBatch * kBatch;
  return for_stretches(size, threads, stretch, pulse, [&](uint64_t start, uint64_t count) {
    uint64_t digests[kBatch];
    for (const uint64_t end = start + count; start < end; start += kBatch) {
      const size_t n = std::min<uint64_t>(kBatch, end - start);
      keys.read(start, n, digests);
      ask(start, n, digests);
    }
  });
}

}  // namespace

namespace {
uint32_t useful_threads(const Filter& filter, const Digests& keys, uint32_t threads) {
  return static_cast<uint32_t>(std::min<uint64_t>({threads, filter.bits().bytes() / 64, keys.size() / kKeysOfThread}));
}
}  // namespace

uint64_t add_new_all(Filter& filter, const Digests& keys, uint8_t* out, uint32_t threads, const Pulse& pulse) {
  threads = useful_threads(filter, keys, threads);
  uint64_t start = 0;
  if (ByRange* by_range = filter.by_range(); by_range != nullptr && by_range->tells_new_items() && threads > 1) {
    const uint64_t certain = std::min(keys.size(), filter.keys_left());
    start = add_by_range(*by_range, keys, certain, out, threads, pulse);
    if (start < certain || start == keys.size()) return start;
  }
  return add_new_alone(filter, keys, out, pulse, start, threads);
}

uint64_t add_all(Filter& filter, const Digests& keys, uint32_t threads, const Pulse& pulse) {
  threads = useful_threads(filter, keys, threads);
  if (threads < 2) return add_alone(filter, keys, pulse);
  uint64_t start = 0;
  if (ByRange* by_range = filter.by_range()) {
    // Keys that may find no room are added by one thread, which stops at the first of them.
    const uint64_t certain = std::min(keys.size(), filter.keys_left());
    start = add_by_range(*by_range, keys, certain, nullptr, threads, pulse);
    if (start < certain || start == keys.size()) return start;
  } else if (ByLevel* by_level = filter.by_level()) {
    bool stopped = false;
    start = add_by_level(*by_level, keys, threads, pulse, stopped);
    if (stopped) return start;
  }
  return add_alone(filter, keys, pulse, start, threads);
}

uint64_t contains_all(const Filter& filter, const Digests& keys, uint8_t* out, uint32_t threads, const Pulse& pulse) {
  return ask_all(keys, threads, pulse, [&](uint64_t start, size_t n, const uint64_t* digests) {
    filter.contains_many(digests, n, out + start);
  });
}

uint64_t count_all(const SupportsCounting& filter, const Digests& keys, int64_t* out, uint32_t threads,
                   const Pulse& pulse) {
  return ask_all(keys, threads, pulse, [&](uint64_t start, size_t n, const uint64_t* digests) {
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

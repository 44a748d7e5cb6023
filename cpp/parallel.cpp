#include "evenbins/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "evenbins/kernel.hpp"

namespace evenbins {
namespace {

constexpr size_t kBatch = 1024;              // digests that stay in the first-level cache
constexpr uint64_t kStretch = 64 * kBatch;   // what a querying thread takes at a time
constexpr size_t kRoundItems = 32 * kBatch;  // what an adding thread prepares in a round

// Runs body(0) here and body(1) … body(threads−1) on threads of their own; waits for all. `body` must
// not throw. The bodies wait for one another, so they all start or, if the system refuses a thread, none.
template <typename Body>
void on_threads(uint32_t threads, const Body& body) {
  enum : int { kWait, kGo, kGiveUp };
  std::atomic<int> gate = kWait;
  std::vector<std::thread> others;
  const auto open_gate = [&](int state) {
    gate = state;
    gate.notify_all();
  };
  try {
    others.reserve(threads - 1);
    for (uint32_t t = 1; t < threads; ++t)
      others.emplace_back([&body, &gate, t] {
        gate.wait(kWait);
        if (gate == kGo) body(t);
      });
  } catch (...) {
    open_gate(kGiveUp);
    for (std::thread& other : others) other.join();
    throw;
  }
  open_gate(kGo);
  body(0);
  for (std::thread& other : others) other.join();
}

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

uint64_t add_alone(Filter& filter, const Digests& keys, const Pulse& pulse) {
  uint64_t digests[kBatch];
  std::optional<BadKey> bad;
  const uint64_t size = keys.size();
  for (uint64_t start = 0; start < size;) {
    if (start % kStretch == 0 && !pulse()) return start;
    const size_t n = read_until_bad(keys, start, std::min<uint64_t>(kBatch, size - start), digests, bad);
    filter.add_many(digests, n);
    if (bad) throw *bad;
    start += n;
  }
  return size;
}

// Lets all threads pass when the last has arrived. Waits by spinning for some tens of microseconds, about
// what the slowest thread of a round is behind, before it sleeps: to wake a sleeping thread takes as long.
class Barrier {
 public:
  explicit Barrier(uint32_t threads) : threads_(threads) {}
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
  const uint32_t threads_;
  std::atomic<uint32_t> arrived_ = 0, phase_ = 0;
};

// Where each owner's items begin: owner o has the items from bound o to bound o+1.
std::vector<uint64_t> owner_bounds(const Filter& filter, uint32_t owners) {
  std::vector<uint64_t> bounds(owners);
  for (uint32_t o = 0; o < owners; ++o)
    bounds[o] =
        filter.first_item_of(static_cast<uint64_t>(static_cast<unsigned __int128>(filter.lines()) * o / owners));
  return bounds;
}

// One thread's share of a round: its items, sorted by owner, in key order within each.
struct Slice {
  std::vector<uint64_t> digests, items, sorted, rest;
  std::vector<std::span<const uint64_t>> owned;
  std::optional<BadKey> bad;

  void prepare(const Filter& filter, const Digests& keys, uint64_t start, size_t n,
               const std::vector<uint64_t>& bounds) {
    digests.resize(n);
    n = read_until_bad(keys, start, n, digests.data(), bad);
    digests.resize(n);
    bounds.size() == 2 ? sort_in_two(filter, bounds[1]) : sort_in_many(filter, bounds);
  }

 private:
  // The items of some keys: the digests themselves, or what the filter makes of them, in `items`.
  std::span<const uint64_t> items_of(const Filter& filter, size_t start, size_t n) {
    const uint32_t per_key = filter.items_per_key();
    if (per_key == 0) return {digests.data() + start, n};
    items.resize(n * per_key);
    filter.items(digests.data() + start, n, items.data());
    return items;
  }

  void sort_in_two(const Filter& filter, uint64_t bound) {
    constexpr size_t kStep = 256;  // keys whose items stay in the cache until they are split
    const size_t most = digests.size() * std::max(filter.items_per_key(), 1u) + kSplitSlack;
    sorted.resize(most);
    rest.resize(most);
    size_t low = 0, high = 0;
    for (size_t start = 0; start < digests.size(); start += kStep) {
      const auto part = items_of(filter, start, std::min(kStep, digests.size() - start));
      const size_t below = kernel().split(part.data(), part.size(), bound, sorted.data() + low, rest.data() + high);
      low += below;
      high += part.size() - below;
    }
    owned = {{sorted.data(), low}, {rest.data(), high}};
  }

  void sort_in_many(const Filter& filter, const std::vector<uint64_t>& bounds) {
    const auto all = items_of(filter, 0, digests.size());
    const auto owner_of = [&](uint64_t item) {
      return static_cast<size_t>(std::upper_bound(bounds.begin(), bounds.end(), item) - bounds.begin()) - 1;
    };
    std::vector<size_t> at(bounds.size() + 1, 0);
    for (const uint64_t item : all) ++at[owner_of(item) + 1];
    for (size_t o = 0; o < bounds.size(); ++o) at[o + 1] += at[o];
    sorted.resize(all.size());
    owned.clear();
    for (size_t o = 0; o < bounds.size(); ++o) owned.emplace_back(sorted.data() + at[o], at[o + 1] - at[o]);
    for (const uint64_t item : all) sorted[at[owner_of(item)]++] = item;
  }
};

// What the threads know of a round. There are two, used in turn: while a slow thread still adds the items
// of one round, a fast one prepares the next; so one barrier a round is enough.
struct Round {
  explicit Round(uint32_t threads) : slices(threads) {}
  std::vector<Slice> slices;
  std::exception_ptr failure;
  std::mutex failure_lock;
  bool stop = false;
};

uint64_t add_together(Filter& filter, const Digests& keys, uint32_t threads, const Pulse& pulse) {
  const uint64_t slice_keys = std::max<uint64_t>(kRoundItems / std::max(filter.items_per_key(), 1u), 64);
  const uint64_t round_keys = threads * slice_keys, size = keys.size();
  const std::vector<uint64_t> bounds = owner_bounds(filter, threads);
  Round rounds[2] = {Round(threads), Round(threads)};
  Barrier barrier(threads);
  uint64_t done = size;
  std::exception_ptr failure;

  on_threads(threads, [&](uint32_t t) {
    for (uint64_t start = 0, r = 0; start < size; start += round_keys, ++r) {
      Round& round = rounds[r % 2];
      try {
        const uint64_t from = std::min(size, start + t * slice_keys);
        round.slices[t].prepare(filter, keys, from, std::min(slice_keys, size - from), bounds);
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
      for (const Slice& slice : round.slices) {
        filter.add_items(slice.owned[t].data(), slice.owned[t].size());
        if (!slice.bad) continue;
        if (t == 0) failure = std::make_exception_ptr(*slice.bad);
        return;  // the slices behind it hold keys that come after the bad one
      }
    }
  });
  if (failure) std::rethrow_exception(failure);
  return done;
}

}  // namespace

uint64_t add_all(Filter& filter, const Digests& keys, uint32_t threads, const Pulse& pulse) {
  const uint64_t useful = std::min<uint64_t>(filter.lines(), keys.size() / kBatch);
  threads = static_cast<uint32_t>(std::min<uint64_t>(threads, useful));
  return threads > 1 ? add_together(filter, keys, threads, pulse) : add_alone(filter, keys, pulse);
}

uint64_t contains_all(const Filter& filter, const Digests& keys, uint8_t* out, uint32_t threads, const Pulse& pulse) {
  const uint64_t size = keys.size();
  const uint64_t stretch = std::clamp<uint64_t>(size / (uint64_t{4} * threads), kBatch, kStretch) / kBatch * kBatch;
  threads = static_cast<uint32_t>(std::clamp<uint64_t>(size / stretch, 1, threads));
  std::atomic<uint64_t> next = 0, done = 0;
  std::atomic<bool> stop = false;
  std::mutex lock;
  std::optional<BadKey> first_bad;
  std::exception_ptr failure;

  on_threads(threads, [&](uint32_t t) {
    uint64_t digests[kBatch];
    try {
      while (!stop) {
        if (t == 0 && !pulse()) stop = true;
        if (stop) return;
        uint64_t start = next.fetch_add(stretch);
        if (start >= size) return;
        const uint64_t end = std::min(size, start + stretch);
        done += end - start;
        for (; start < end; start += kBatch) {
          const size_t n = std::min<uint64_t>(kBatch, end - start);
          keys.read(start, n, digests);
          filter.contains_many(digests, n, out + start);
        }
      }
    } catch (const BadKey& error) {
      const std::lock_guard hold(lock);
      if (!first_bad || error.index < first_bad->index) first_bad = error;
      stop = true;
    } catch (...) {
      const std::lock_guard hold(lock);
      failure = std::current_exception();
      stop = true;
    }
  });
  if (failure) std::rethrow_exception(failure);
  if (first_bad) throw *first_bad;
  return std::min<uint64_t>(done, size);
}

}  // namespace evenbins

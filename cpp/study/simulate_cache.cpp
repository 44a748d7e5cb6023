#include "study/simulate_cache.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "evenbins/hash.hpp"
#include "study/trials.hpp"

namespace evenbins::study {
namespace {

using Policy = CacheSimulation::Policy;

constexpr uint32_t kNone = UINT32_MAX;
constexpr uint32_t kArrayBits = 20;
constexpr uint64_t kMostSlots = 1 << 18;
constexpr int64_t kMostTime = int64_t{1} << 61;
constexpr uint64_t kTailKey = 0x7A3D5C19E2B84F61;

// The urls of a trace, numbered in the order in which they first appear.
class Urls {
 public:
  explicit Urls(std::span<const uint64_t> digests) : cells_(1 << 12, kNone) {
    numbers.reserve(digests.size());
    for (const uint64_t digest : digests) numbers.push_back(number(digest));
  }

  std::vector<uint32_t> numbers;    // of each request
  std::vector<uint64_t> digest_of;  // each number

 private:
  uint32_t number(uint64_t digest) {
    const size_t at = find(digest);
    if (cells_[at] != kNone) return cells_[at];
    const auto fresh = static_cast<uint32_t>(digest_of.size());
    cells_[at] = fresh;
    digest_of.push_back(digest);
    if (digest_of.size() * 2 > cells_.size()) grow();
    return fresh;
  }

  size_t find(uint64_t digest) const {
    const size_t mask = cells_.size() - 1;
    size_t at = mix(digest) & mask;
    while (cells_[at] != kNone && digest_of[cells_[at]] != digest) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    cells_.assign(cells_.size() * 2, kNone);
    for (uint32_t i = 0; i < digest_of.size(); ++i) cells_[find(digest_of[i])] = i;
  }

  std::vector<uint32_t> cells_;
};

// Where the servers are, and in which order a url meets them.
class Circle {
 public:
  Circle(uint32_t servers, uint32_t copies, uint64_t seed) {
    std::vector<bool> taken(size_t{1} << kArrayBits);
    std::vector<std::pair<uint32_t, uint32_t>> slots;
    const uint64_t names = splitmix(seed, 0);
    for (uint32_t i = 0; i < servers; ++i)
      for (uint32_t j = 0; j < copies; ++j) {
        const uint64_t word = splitmix(splitmix(names, i), j);
        uint64_t t = 0;
        while (taken[splitmix(word, t) >> (64 - kArrayBits)]) ++t;
        const auto place = static_cast<uint32_t>(splitmix(word, t) >> (64 - kArrayBits));
        taken[place] = true;
        slots.emplace_back(place, i);
      }
    std::sort(slots.begin(), slots.end());
    for (const auto& [place, server] : slots) {
      places_.push_back(place);
      owners_.push_back(server);
    }
  }

  // Calls visit(server) along the walk of d until it answers true. False if it never did.
  template <Policy policy, typename Visit>
  bool walk(uint64_t d, const Visit& visit) const {
    const size_t m = owners_.size();
    if constexpr (policy == Policy::plain || policy == Policy::clockwise) {
      const size_t first = next(splitmix(d, 0));
      for (size_t i = first; i < m; ++i)
        if (visit(owners_[i])) return true;
      for (size_t i = 0; i < first; ++i)
        if (visit(owners_[i])) return true;
      return false;
    } else {
      for (uint64_t c = 0; c < 2 * m + 64; ++c) {
        const uint64_t w = splitmix(d, c);
        if (visit(owners_[policy == Policy::jump ? mulhi(w, m) : next(w)])) return true;
      }
      const uint64_t t = d ^ kTailKey;
      size_t at = mulhi(splitmix(t, 0), m), stride = m == 1 ? 1 : 1 + mulhi(splitmix(t, 1), m - 1);
      while (std::gcd(stride, m) != 1) stride = stride == m ? 1 : stride + 1;
      for (size_t i = 0; i < m; ++i, at = (at + stride) % m)
        if (visit(owners_[at])) return true;
      return false;
    }
  }

 private:
  size_t next(uint64_t word) const {
    const auto place = static_cast<uint32_t>(word >> (64 - kArrayBits));
    const size_t i = static_cast<size_t>(std::lower_bound(places_.begin(), places_.end(), place) - places_.begin());
    return i == places_.size() ? 0 : i;
  }

  std::vector<uint32_t> places_, owners_;  // of the slots, ascending
};

// A url in a server's cache. It is on three lists: all copies in the order of use, the server's, the url's.
struct Copy {
  uint32_t url, server;
  int64_t used;
  uint32_t older, newer;    // in the order of use
  uint32_t previous, next;  // on the server
  uint32_t beside;          // of the same url, elsewhere
};

struct Server {
  bool up = true;
  uint64_t load = 0, requests = 0;
  uint64_t since = 0;  // requests before this one were dropped when it failed
  uint32_t first = kNone;
};

class Replay {
 public:
  Replay(std::span<const int64_t> times, const Urls& urls, const CacheSimulation& simulation, uint64_t seed)
      : times_(times),
        urls_(urls),
        s_(simulation),
        circle_(simulation.servers, simulation.copies, seed),
        key_(splitmix(seed, 1)),
        servers_(simulation.servers),
        holders_(urls.digest_of.size(), kNone),
        taken_by_(times.size(), kNone),
        open_(simulation.cache_size == 0 ? 0 : simulation.servers) {}

  template <Policy policy>
  void run(const std::atomic<bool>& stop, std::atomic<uint64_t>& done) {
    for (uint64_t r = 0; r < times_.size(); ++r) {
      if (r % kStretch == 0 && r != 0) {
        done += kStretch;
        if (stop) return;
      }
      const int64_t now = times_[r];
      pass_time(r, now);
      const uint32_t server = route<policy>(urls_.numbers[r], now);
      if (server != kNone) take(r, server, now);
    }
    done += times_.empty() ? 0 : (times_.size() - 1) % kStretch + 1;
  }

  CacheCounts counts;

 private:
  void pass_time(uint64_t r, int64_t now) {
    while (oldest_ != kNone && copies_[oldest_].used + s_.stale <= now) evict(oldest_);
    for (; ended_ < r && times_[ended_] + s_.served <= now; ++ended_) {
      const uint32_t server = taken_by_[ended_];
      if (server != kNone && ended_ >= servers_[server].since) --servers_[server].requests;
    }
    for (; !down_.empty() && down_.front().second <= now; down_.pop_front()) {
      Server& server = servers_[down_.front().first];
      server.up = true;
      open_ += s_.cache_size != 0;
    }
  }

  // The server that takes the request, or kNone.
  template <Policy policy>
  uint32_t route(uint32_t url, int64_t now) {
    if constexpr (policy != Policy::plain)
      if (open_ == 0 && holders_[url] == kNone) return drop();
    uint64_t searches = 0;
    uint32_t found = kNone;
    circle_.walk<policy>(mix(urls_.digest_of[url] ^ key_), [&](uint32_t server) {
      if (!servers_[server].up) return false;
      ++searches;
      const uint32_t copy = copy_on(url, server);
      if (copy != kNone) {
        use(copy, now);
      } else if (servers_[server].load < s_.cache_size) {
        ++counts.misses;
        store(url, server, now);
      } else if (policy == Policy::plain) {
        drop();
      } else {
        return false;
      }
      found = server;
      return true;
    });
    if (found == kNone) return drop();
    ++counts.routed;
    counts.searches += searches;
    counts.longest = std::max(counts.longest, searches);
    return found;
  }

  uint32_t drop() {
    ++counts.misses;
    ++counts.dropped;
    return kNone;
  }

  void take(uint64_t r, uint32_t at, int64_t now) {
    Server& server = servers_[at];
    taken_by_[r] = at;
    counts.max_requests = std::max(counts.max_requests, ++server.requests);
    if (server.requests <= s_.limit) return;
    ++counts.failures;
    open_ -= server.load < s_.cache_size;
    server.up = false;
    while (server.first != kNone) remove(server.first);
    server.load = 0;
    server.requests = 0;
    server.since = r + 1;
    down_.emplace_back(at, now + s_.recovery);
  }

  // --- copies

  uint32_t copy_on(uint32_t url, uint32_t server) const {
    uint32_t copy = holders_[url];
    while (copy != kNone && copies_[copy].server != server) copy = copies_[copy].beside;
    return copy;
  }

  void store(uint32_t url, uint32_t at, int64_t now) {
    Server& server = servers_[at];
    uint32_t copy;
    if (free_.empty()) {
      copy = static_cast<uint32_t>(copies_.size());
      copies_.emplace_back();
    } else {
      copy = free_.back();
      free_.pop_back();
    }
    copies_[copy] = {url, at, now, kNone, kNone, kNone, server.first, holders_[url]};
    if (server.first != kNone) copies_[server.first].previous = copy;
    server.first = copy;
    holders_[url] = copy;
    append(copy);
    counts.max_load = std::max(counts.max_load, ++server.load);
    open_ -= server.load == s_.cache_size;
  }

  void use(uint32_t copy, int64_t now) {
    unlink(copy);
    copies_[copy].used = now;
    append(copy);
  }

  void evict(uint32_t copy) {
    Server& server = servers_[copies_[copy].server];
    open_ += server.load == s_.cache_size;
    --server.load;
    remove(copy);
  }

  // Takes it from all lists.
  void remove(uint32_t copy) {
    const Copy& c = copies_[copy];
    uint32_t* at = &holders_[c.url];
    while (*at != copy) at = &copies_[*at].beside;
    *at = c.beside;
    (c.previous == kNone ? servers_[c.server].first : copies_[c.previous].next) = c.next;
    if (c.next != kNone) copies_[c.next].previous = c.previous;
    unlink(copy);
    free_.push_back(copy);
  }

  void append(uint32_t copy) {
    copies_[copy].older = newest_;
    copies_[copy].newer = kNone;
    (newest_ == kNone ? oldest_ : copies_[newest_].newer) = copy;
    newest_ = copy;
  }

  void unlink(uint32_t copy) {
    const Copy& c = copies_[copy];
    (c.older == kNone ? oldest_ : copies_[c.older].newer) = c.newer;
    (c.newer == kNone ? newest_ : copies_[c.newer].older) = c.older;
  }

  std::span<const int64_t> times_;
  const Urls& urls_;
  const CacheSimulation& s_;
  const Circle circle_;
  const uint64_t key_;
  std::vector<Server> servers_;
  std::vector<uint32_t> holders_;                  // of each url: the first copy
  std::vector<uint32_t> taken_by_;                 // of each request: the server
  uint64_t open_;                                  // servers that are up and have room
  uint64_t ended_ = 0;                             // requests before this one are over
  std::deque<std::pair<uint32_t, int64_t>> down_;  // and when it comes back
  std::vector<Copy> copies_;
  std::vector<uint32_t> free_;
  uint32_t oldest_ = kNone, newest_ = kNone;
};

uint64_t baseline(std::span<const int64_t> times, const Urls& urls, int64_t stale) {
  std::vector<int64_t> last(urls.digest_of.size());
  std::vector<bool> seen(last.size());
  uint64_t misses = 0;
  for (size_t r = 0; r < times.size(); ++r) {
    const uint32_t url = urls.numbers[r];
    misses += !seen[url] || last[url] + stale <= times[r];
    seen[url] = true;
    last[url] = times[r];
  }
  return misses;
}

void must(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument(what);
}

}  // namespace

void CacheSimulation::check() const {
  must(servers >= 1, "servers must be 1 or more");
  must(copies >= 1 && uint64_t{servers} * copies <= kMostSlots, "servers times copies must be 1 to 2^18");
  for (const int64_t each : {stale, served, recovery})
    must(0 <= each && each <= kMostTime, "stale, served and recovery must be 0 to 2^61");
}

CacheResult simulate_cache(std::span<const int64_t> times, std::span<const uint64_t> digests,
                           const CacheSimulation& simulation, std::span<const CacheRun> runs, uint32_t threads,
                           const std::function<bool(uint64_t)>& pulse) {
  simulation.check();
  must(times.size() == digests.size(), "times and digests must have the same length");
  must(times.size() < kNone, "a trace must have less than 2^32 - 1 requests");
  must(std::is_sorted(times.begin(), times.end()), "times must ascend");
  must(times.empty() || (-kMostTime <= times.front() && times.back() <= kMostTime), "times must be -2^61 to 2^61");
  const Urls urls(digests);
  CacheResult result{baseline(times, urls, simulation.stale), urls.digest_of.size(), {}};
  result.runs.resize(runs.size());
  std::atomic<uint64_t> done = 0;
  const bool whole = share_trials(
      runs.size(), threads, [&](uint64_t) { return pulse(done); },
      [&](uint64_t i, const std::atomic<bool>& stop) {
        Replay replay(times, urls, simulation, runs[i].seed);
        switch (runs[i].policy) {
          case Policy::plain: replay.run<Policy::plain>(stop, done); break;
          case Policy::clockwise: replay.run<Policy::clockwise>(stop, done); break;
          case Policy::rehash: replay.run<Policy::rehash>(stop, done); break;
          case Policy::jump: replay.run<Policy::jump>(stop, done); break;
        }
        result.runs[i] = replay.counts;
      });
  if (!whole) result.runs.clear();
  return result;
}

}  // namespace evenbins::study

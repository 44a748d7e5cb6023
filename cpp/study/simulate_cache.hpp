// A log of requests, replayed through cache servers that fill up and fail: Chen, Coleman and Shrivastava,
// "Revisiting consistent hashing with bounded loads", sections 5.2 and 5.3, Appendix K.
//
//     request (time, url) ──policy──▶ server ──full, without the url──▶ the policy's next server ──▶ … ──▶ dropped
//                                        ├── holds the url: a hit
//                                        └── has room: it stores the url, a miss
//
// A server's cache holds at most `cache_size` urls. A url that nobody asked this server for in the last `stale` is
// evicted; each request renews it. A server works on a request for `served`; with more than `limit` requests at once,
// the new one counted, it fails: its cache is empty, its requests are gone, it is skipped for `recovery` and comes back
// empty. The request that brought it down counts as the hit or miss it was. What happens at one moment happens in
// this order: urls go stale, requests end, servers come back, the request is served.
//
// Policies: the walk of a url, of which servers that are down are left out. w_c = splitmix(d, c) is its draw c.
//     plain       the first server at or after place w_0, and nobody else: when that one is full the url is not stored
//                 (a miss, dropped), but the server still works on it
//     clockwise   the first server at or after place w_0, then round the circle (CH-BL)
//     rehash      the first server at or after place w_c, for c = 0, 1, … (Appendix Q)
//     jump        the server of slot w_c * slots / 2^64, for c = 0, 1, … (RJ-CH)
// Servers have `copies` places each in an array of 2^20, drawn at random, another if one is taken. Jumping in
// that array until a place is taken gives a uniform one of the slots: that is what is drawn here, in one step. After
// 2 * slots + 64 draws rehash and jump go through all slots once, by a stride of their own.
//
// A walk so meets every server that is up. Hence a request is dropped if and only if nobody who is up has room and
// nobody holds its url, which is known without a walk.
//
// The paper calls a miss "a request for an object from a non-full bin where it has not already been cached": by that
// definition dropped requests are none; here misses count them, and `dropped` says how many they are.
//
// Cost: O(1) a request and its searches. All urls of a replay go stale after the same time, so a list in the order of
// use is a list in the order of expiry; requests end in the order in which they began, so that the window's end is a
// position in the trace; and servers come back in the order in which they failed. Dropped: a heap of expiries, and a
// set of urls for each server (a url has one or two holders: it keeps the list).
//
// Invariants
// - A run depends on the trace, the configuration, its policy and its seed alone, not on threads or other runs.
// - misses >= baseline: what is not stored in an unlimited cache is stored in no limited one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace evenbins::study {

struct CacheSimulation {
  enum class Policy { plain, clockwise, rehash, jump };

  uint32_t servers = 1;
  uint32_t copies = 1;
  uint64_t cache_size = 0;                      // urls of a server, at most
  uint64_t limit = 0;                           // requests at once, at most
  int64_t stale = 0, served = 0, recovery = 0;  // in the unit of the times

  void check() const;  // throws std::invalid_argument
};

struct CacheRun {
  CacheSimulation::Policy policy = CacheSimulation::Policy::jump;
  uint64_t seed = 0;
};

struct CacheCounts {
  uint64_t misses = 0;        // requests not answered from a cache
  uint64_t dropped = 0;       // of these, not stored either
  uint64_t failures = 0;      // of servers
  uint64_t routed = 0;        // requests that a server took
  uint64_t searches = 0;      // servers these walked to, the last one included, those that are down not
  uint64_t longest = 0;       // of these walks
  uint64_t max_load = 0;      // urls in a cache
  uint64_t max_requests = 0;  // at once on a server; limit + 1 is a failure
};

struct CacheResult {
  uint64_t baseline = 0;  // misses of one cache without limits that never fails
  uint64_t distinct = 0;  // urls
  std::vector<CacheCounts> runs;
};

// Times ascend. `pulse` is called by the calling thread some times a second with the number of requests done, of all
// runs; once it answers false the work stops and the result has no runs.
CacheResult simulate_cache(std::span<const int64_t> times, std::span<const uint64_t> digests,
                           const CacheSimulation& simulation, std::span<const CacheRun> runs, uint32_t threads,
                           const std::function<bool(uint64_t)>& pulse);

}  // namespace evenbins::study

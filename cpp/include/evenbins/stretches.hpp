// Work on many items by several threads, none of which depends on another: stretch after stretch, each taken by
// whoever is free. The calling thread listens to `pulse` between its stretches; when it answers false all stop.
// (threads.hpp has the other fan-out, share_items, whose calling thread only listens.)
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "evenbins/threads.hpp"

namespace evenbins {

// Runs body(start, count) for stretches of 0 … n−1, and returns for how many of these numbers: all, unless the pulse
// stopped the work. If a body throws, no further stretch begins; when all have ended, the exception of the first
// stretch that failed is thrown. Stretches begin in order, so none before it is left out.
template <typename Pulse, typename Body>
uint64_t for_stretches(uint64_t n, uint32_t threads, uint64_t stretch, Pulse&& pulse, const Body& body) {
  std::atomic<uint64_t> next = 0, done = 0;
  std::atomic<bool> stopped = false;
  std::mutex lock;
  std::exception_ptr failure;
  uint64_t failed_at = n;
  const auto take = [&] {
    const uint64_t start = next.fetch_add(stretch);
    if (start >= n || stopped) return false;
    const uint64_t count = std::min(stretch, n - start);
    try {
      body(start, count);
      done.fetch_add(count, std::memory_order_relaxed);
    } catch (...) {
      const std::lock_guard hold(lock);
      stopped = true;
      if (start < failed_at) {
        failed_at = start;
        failure = std::current_exception();
      }
    }
    return true;
  };
  const uint64_t useful = (n + stretch - 1) / stretch;
  run_on_threads(static_cast<uint32_t>(std::min<uint64_t>(threads, useful)), [&](uint32_t t) {
    do {
      if (t == 0 && !pulse()) stopped = true;
    } while (!stopped && take());
  });
  if (failure) std::rethrow_exception(failure);
  return done;
}

}  // namespace evenbins

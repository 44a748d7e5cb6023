// Work on many items by several threads, none of which depends on another: stretch after stretch, each taken by
// whoever is free. The calling thread listens to `pulse` between its stretches; when it answers false all stop.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "evenbins/threads.hpp"

namespace evenbins {

// Runs body(start, count). False if the pulse stopped the work.
template <typename Pulse, typename Body>
bool for_stretches(uint64_t n, uint32_t threads, uint64_t stretch, Pulse&& pulse, const Body& body) {
  std::atomic<uint64_t> next = 0;
  std::atomic<bool> stopped = false;
  const auto take = [&] {
    const uint64_t start = next.fetch_add(stretch);
    if (start >= n || stopped) return false;
    body(start, std::min(stretch, n - start));
    return true;
  };
  const uint64_t useful = (n + stretch - 1) / stretch;
  run_on_threads(static_cast<uint32_t>(std::min<uint64_t>(threads, useful)), [&](uint32_t t) {
    do {
      if (t == 0 && !pulse()) stopped = true;
    } while (!stopped && take());
  });
  return !stopped;
}

}  // namespace evenbins

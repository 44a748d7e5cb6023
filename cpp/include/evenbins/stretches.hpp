// Work on many items by several threads, none of which depends on another: stretch after stretch, each taken by
// whoever is free. The calling thread listens to `pulse` between its stretches; when it answers false all stop.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace evenbins {

// body(start, count), which must not throw. False if the pulse stopped the work. If the system refuses a thread, the
// others do its share.
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
  std::vector<std::thread> others;
  const uint64_t useful = (n + stretch - 1) / stretch;
  try {
    for (uint64_t t = 1; t < std::min<uint64_t>(threads, useful); ++t)
      others.emplace_back([&] {
        while (take()) {
        }
      });
  } catch (const std::system_error&) {
  }
  do {
    if (!pulse()) stopped = true;
  } while (!stopped && take());
  for (std::thread& other : others) other.join();
  return !stopped;
}

}  // namespace evenbins

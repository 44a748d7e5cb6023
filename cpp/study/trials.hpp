// Many independent trials of a simulation, shared by threads.
//
// A trial's numbers may depend on a seed and its own position alone: then neither the number of threads nor
// the order in which they finish changes a result.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "evenbins/threads.hpp"

namespace evenbins::study {

inline constexpr uint64_t kStretch = 1 << 16;  // keys between two looks at the stop flag

// Lets the threads do trial(0, stop) … trial(trials-1, stop). False if the pulse, which is told how many trials are
// done, stopped it.
template <typename One>
bool share_trials(uint64_t trials, uint32_t threads, const std::function<bool(uint64_t)>& pulse, const One& trial) {
  return share_items(trials, threads, pulse,
                     [&](uint64_t i, const std::atomic<bool>& stop, uint32_t) { trial(i, stop); });
}

}  // namespace evenbins::study

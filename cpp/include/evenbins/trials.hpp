// Many independent trials of a simulation, shared by threads.
//
// A trial's numbers may depend on a seed and its own position alone: then neither the number of threads nor
// the order in which they finish changes a result.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace evenbins {

inline constexpr uint64_t kStretch = 1 << 16;  // keys between two looks at the stop flag
inline constexpr std::chrono::milliseconds kPulse(50);

// Lets the threads do trial(0, stop) … trial(trials-1, stop). False if the pulse stopped it.
// The calling thread only listens to the pulse, so that it hears it whatever the others do; the pulse is told
// how many trials are done.
template <typename One>
bool share_trials(uint64_t trials, uint32_t threads, const std::function<bool(uint64_t)>& pulse, const One& trial) {
  std::atomic<uint64_t> next = 0, done = 0;
  std::atomic<bool> stop = false;
  std::mutex lock;
  std::condition_variable finished;
  std::exception_ptr failure;
  size_t running = 0;

  const auto work = [&] {
    try {
      for (uint64_t t; !stop && (t = next++) < trials; ++done) trial(t, stop);
    } catch (...) {
      const std::lock_guard hold(lock);
      failure = std::current_exception();
      stop = true;
    }
    const std::lock_guard hold(lock);
    --running;
    finished.notify_one();
  };

  std::vector<std::thread> workers;
  const size_t wanted = std::min<uint64_t>(threads, trials);
  workers.reserve(wanted);
  std::unique_lock hold(lock);
  try {
    for (; workers.size() < wanted; ++running) workers.emplace_back(work);
  } catch (...) {  // the system refuses a thread: those that run do all the work
    if (workers.empty()) throw;
  }
  bool stopped = false;
  while (!finished.wait_for(hold, kPulse, [&] { return running == 0; })) {
    hold.unlock();
    if (!stopped && !pulse(done)) stopped = stop = true;
    hold.lock();
  }
  hold.unlock();
  for (std::thread& worker : workers) worker.join();
  if (failure) std::rethrow_exception(failure);
  return !stopped;
}

}  // namespace evenbins

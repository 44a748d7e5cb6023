// Work on several threads, also when the system refuses some of them: a limit on processes, or no memory for a stack.
//
// Every kind of work goes on with the threads that could be started, and the calling thread is always one of them, so
// a refusal costs time and never the result.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace evenbins {

// Runs body(0) on the calling thread and body(1), body(2), … on others, `most` in all or as many as can be started, and
// waits for all of them. Before any body runs, prepare(n) is told how many there are: bodies that wait for one another
// must know. Throws what prepare threw, or one of the bodies.
template <typename Prepare, typename Body>
void run_on_threads(uint32_t most, const Prepare& prepare, const Body& body) {
  enum : int { kWait, kGo, kGiveUp };
  std::atomic<int> gate = kWait;
  std::mutex lock;
  std::exception_ptr failure;
  const auto run = [&](uint32_t t) {
    try {
      body(t);
    } catch (...) {
      const std::lock_guard hold(lock);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  const auto finish = [&](int state) {
    gate = state;
    gate.notify_all();
    if (state == kGo) run(0);
    for (std::thread& other : others) other.join();
  };
  try {
    if (most > 1) others.reserve(most - 1);
    for (uint32_t t = 1; t < most; ++t)
      others.emplace_back([&run, &gate, t] {
        gate.wait(kWait);
        if (gate == kGo) run(t);
      });
  } catch (...) {  // those that run do all the work
  }
  try {
    prepare(static_cast<uint32_t>(others.size()) + 1);
  } catch (...) {
    finish(kGiveUp);
    throw;
  }
  finish(kGo);
  if (failure) std::rethrow_exception(failure);
}

template <typename Body>
void run_on_threads(uint32_t most, const Body& body) {
  run_on_threads(most, [](uint32_t) {}, body);
}

inline constexpr std::chrono::milliseconds kPulse(50);

// Runs item(i, stop, thread) for i < n, each on whichever of `threads` threads is free. The calling thread only listens
// to pulse(items done), some times a second, so that it hears it whatever the others do; when that answers false,
// `stop` is set and no further item begins. If every other thread is refused, the calling thread does the items (thread
// 0), and listens between them. False if the pulse stopped it.
template <typename Pulse, typename Item>
bool share_items(uint64_t n, uint32_t threads, const Pulse& pulse, const Item& item) {
  std::atomic<uint64_t> next = 0, done = 0;
  std::atomic<bool> stop = false;
  bool stopped = false;
  std::mutex lock;
  std::condition_variable finished;
  uint32_t running = 0;
  bool alone = false;

  const auto take = [&](uint32_t thread) {
    const uint64_t i = stop ? n : next++;
    if (i >= n) return false;
    item(i, std::as_const(stop), thread);
    ++done;
    return true;
  };
  const auto listen = [&] {
    if (!stopped && !pulse(done.load())) stopped = stop = true;
  };
  const auto work = [&](uint32_t thread) {
    std::exception_ptr failure;
    try {
      while (take(thread)) {
      }
    } catch (...) {
      failure = std::current_exception();
      stop = true;
    }
    {
      const std::lock_guard hold(lock);
      --running;
      finished.notify_one();
    }
    if (failure) std::rethrow_exception(failure);
  };
  const auto wait = [&] {
    std::unique_lock hold(lock);
    while (!finished.wait_for(hold, kPulse, [&] { return running == 0; })) {
      hold.unlock();
      listen();
      hold.lock();
    }
  };
  const auto prepare = [&](uint32_t started) {
    running = started - 1;
    alone = started == 1;
  };
  run_on_threads(static_cast<uint32_t>(std::min<uint64_t>(threads, n)) + 1, prepare, [&](uint32_t thread) {
    if (thread != 0) return work(thread);
    if (!alone) return wait();
    while (take(0)) listen();
  });
  return !stopped;
}

}  // namespace evenbins

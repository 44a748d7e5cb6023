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

// Threads of the process's pool, for one call: workers that sleep until they get a job. The pool starts with the first
// call and grows to what calls ask for at the same time. A child made by fork() begins with an empty pool.
class Workers {
 public:
  // Takes `wanted` workers, or as many as there are and can be started. Never waits for another call to return its own.
  explicit Workers(uint32_t wanted) noexcept;
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  uint32_t count() const noexcept { return count_; }
  // Runs run(context, 1) … run(context, count()), each on a worker of its own. Once, and wait() must follow.
  void start(void (*run)(void*, uint32_t), void* context) noexcept;
  // Returns when all of them have returned. Throws if this is a child process and the workers are its parent's.
  void wait();

  struct Worker;

 private:
  void take(Worker* worker) noexcept;
  bool lost() const noexcept;

  Worker* first_ = nullptr;
  uint32_t count_ = 0, forks_ = 0;
};

// How many times this process has been forked from the one that loaded the module: 0 there, 1 in its children, …
uint32_t forks() noexcept;

// On how many cores the calling thread may run; at least 1.
uint32_t allowed_cores() noexcept;

// Runs body(0) on the calling thread and body(1), body(2), … on others, `most` in all or as many as can be started, and
// waits for all of them. Before any body runs, prepare(n) is told how many there are: bodies that wait for one another
// must know. Throws what prepare threw, or one of the bodies.
template <typename Prepare, typename Body>
void run_on_threads(uint32_t most, const Prepare& prepare, const Body& body) {
  std::mutex lock;
  std::exception_ptr failure;
  auto run = [&](uint32_t t) {
    try {
      body(t);
    } catch (...) {
      const std::lock_guard hold(lock);
      if (!failure) failure = std::current_exception();
    }
  };
  Workers workers(most > 1 ? most - 1 : 0);
  prepare(workers.count() + 1);
  workers.start([](void* context, uint32_t t) { (*static_cast<decltype(run)*>(context))(t); }, &run);
  run(0);
  workers.wait();
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
  const uint32_t generation = forks();

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
      if (forks() != generation) return;  // a signal handler has forked: the workers are the parent's
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

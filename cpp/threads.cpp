// The process's pool of worker threads.
//
//     pool      idle -> worker -> worker -> …      workers that no call has
//     a call    first -> worker -> …               those it has taken or started; it returns them at its end
//
// Invariants. A worker is in the pool's list or belongs to one call. It is never freed, and its thread never ends, so
// that it can be woken at any time. The mutex is held for a few instructions, in which nothing is allocated, started or
// called: so fork() can take it, and the child never inherits it locked by a thread that it does not have.
//
// Tried and dropped: one queue of jobs for all workers. Bodies that wait for one another need to run at the same time,
// and a queue that two calls share can give each of them half of what it needs, for ever.
#include "evenbins/threads.hpp"

#include <bit>
#include <memory>
#include <stdexcept>

#include "evenbins/platform.hpp"

namespace evenbins {

struct Workers::Worker {
  std::atomic<uint32_t> busy = 0;     // 1 from the moment that it has a job until it has done it
  std::atomic<uint32_t> pending = 0;  // of the first worker of a call: how many of them are busy
  Worker* first = nullptr;
  Worker* next = nullptr;
  void (*run)(void*, uint32_t) = nullptr;
  void* context = nullptr;
  uint32_t number = 0;
  platform::Thread thread{};
  platform::CoreSet cores;  // where it may run

  [[noreturn]] void work() {
    while (true) {
      busy.wait(0);
      run(context, number);
      Worker* const leader = first;
      busy = 0;
      // Once this is 0, the call may have ended, and others may have all these workers.
      if (leader->pending.fetch_sub(1) == 1) leader->pending.notify_one();
    }
  }
};

namespace {

using Worker = Workers::Worker;

constexpr uint32_t kMostWorkers = 4096;  // of all calls that run at the same time

struct Pool {
  std::mutex lock;
  Worker* idle = nullptr;
  uint32_t workers = 0;
  uint32_t forks = 0;  // between this process and the one that loaded the module
};
constinit Pool pool;  // has no destructor: threads may use it until the process ends

// A child has no thread but the one that called fork(): the workers, idle or not, exist in the parent alone.
const bool safe_to_fork = platform::at_fork([] { pool.lock.lock(); }, [] { pool.lock.unlock(); },
                                            [] {
                                              pool.idle = nullptr;
                                              pool.workers = 0;
                                              ++pool.forks;
                                              pool.lock.unlock();
                                            });

// Returns a new worker; throws if there is no memory, or no thread to be had.
Worker* start_worker() {
  auto worker = std::make_unique<Worker>();
  const platform::BlockSignals block;
  std::thread thread([&it = *worker] { it.work(); });
  worker->thread = thread.native_handle();
  platform::name_thread(worker->thread, "evenbins");
  thread.detach();
  return worker.release();
}

// Lets the workers run where the calling thread may run, as threads that it starts would.
void inherit_cores(Worker* first) {
  platform::CoreSet cores;
  if (!platform::read_cores(cores)) return;
  for (Worker* worker = first; worker != nullptr; worker = worker->next) {
    if (worker->cores == cores) continue;
    if (platform::set_cores(worker->thread, cores)) worker->cores = cores;
  }
}

}  // namespace

uint32_t forks() noexcept { return pool.forks; }

uint32_t allowed_cores() noexcept {
  if (platform::CoreSet cores; platform::read_cores(cores)) {
    int count = 0;
    for (const uint64_t bits : cores.bits) count += std::popcount(bits);
    return static_cast<uint32_t>(count);
  }
  return std::max(std::thread::hardware_concurrency(), 1u);
}

Workers::Workers(uint32_t wanted) noexcept {
  if (wanted == 0 || !safe_to_fork) return;
  uint32_t missing = 0;
  {
    const std::lock_guard hold(pool.lock);
    forks_ = pool.forks;
    while (count_ < wanted && pool.idle != nullptr) {
      Worker* const worker = pool.idle;
      pool.idle = worker->next;
      take(worker);
    }
    missing = std::min(wanted - count_, kMostWorkers - pool.workers);
    pool.workers += missing;
  }
  try {
    for (; missing > 0; --missing) take(start_worker());
  } catch (...) {  // those that there are do all the work
    const std::lock_guard hold(pool.lock);
    pool.workers -= missing;
  }
  inherit_cores(first_);
}

void Workers::take(Worker* worker) noexcept {
  worker->next = first_;
  first_ = worker;
  ++count_;
}

void Workers::start(void (*run)(void*, uint32_t), void* context) noexcept {
  if (first_ == nullptr) return;
  first_->pending = count_;
  uint32_t number = 0;
  for (Worker* worker = first_; worker != nullptr; worker = worker->next) {
    worker->first = first_;
    worker->run = run;
    worker->context = context;
    worker->number = ++number;
    worker->busy = 1;
    worker->busy.notify_one();
  }
}

void Workers::wait() {
  if (first_ == nullptr) return;
  if (lost())
    throw std::runtime_error("the process was forked in the middle of this call, whose other threads are gone");
  while (const uint32_t pending = first_->pending) first_->pending.wait(pending);
}

bool Workers::lost() const noexcept { return first_ != nullptr && forks_ != pool.forks; }

Workers::~Workers() {
  if (first_ == nullptr || lost()) return;
  Worker* last = first_;
  while (last->next != nullptr) last = last->next;
  const std::lock_guard hold(pool.lock);
  last->next = std::exchange(pool.idle, first_);
}

}  // namespace evenbins

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

#include <pthread.h>

#include <csignal>
#include <memory>
#include <stdexcept>

#if defined(__linux__)
#include <sched.h>
#endif

namespace evenbins {

struct Workers::Worker {
  std::atomic<uint32_t> busy = 0;     // 1 from the moment that it has a job until it has done it
  std::atomic<uint32_t> pending = 0;  // of the first worker of a call: how many of them are busy
  Worker* first = nullptr;
  Worker* next = nullptr;
  void (*run)(void*, uint32_t) = nullptr;
  void* context = nullptr;
  uint32_t number = 0;
#if defined(__linux__)
  pthread_t thread{};
  cpu_set_t cores{};  // where it may run
#endif

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
const bool safe_to_fork = pthread_atfork([] { pool.lock.lock(); }, [] { pool.lock.unlock(); },
                                         [] {
                                           pool.idle = nullptr;
                                           pool.workers = 0;
                                           ++pool.forks;
                                           pool.lock.unlock();
                                         }) == 0;

// Blocks signals in this thread, and so in the threads that it starts: Python's handlers run where the user expects
// them. Not those that a thread raises by what it does, which would end the process without a word.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&all, own);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// Returns a new worker; throws if there is no memory, or no thread to be had.
Worker* start_worker() {
  auto worker = std::make_unique<Worker>();
  const BlockSignals block;
  std::thread thread([&it = *worker] { it.work(); });
#if defined(__linux__)
  worker->thread = thread.native_handle();
  pthread_setname_np(worker->thread, "evenbins");
#endif
  thread.detach();
  return worker.release();
}

#if defined(__linux__)
bool read_cores(cpu_set_t& cores) {
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof cores, &cores) == 0;  // not if there are more than the set can hold
}

// Lets the workers run where the calling thread may run, as threads that it starts would.
void inherit_cores(Worker* first) {
  cpu_set_t cores;
  if (!read_cores(cores)) return;
  for (Worker* worker = first; worker != nullptr; worker = worker->next) {
    if (CPU_EQUAL(&worker->cores, &cores)) continue;
    if (pthread_setaffinity_np(worker->thread, sizeof cores, &cores) == 0) worker->cores = cores;
  }
}
#else
void inherit_cores(Worker*) {}
#endif

}  // namespace

uint32_t forks() noexcept { return pool.forks; }

uint32_t allowed_cores() noexcept {
#if defined(__linux__)
  if (cpu_set_t cores; read_cores(cores)) return static_cast<uint32_t>(CPU_COUNT(&cores));
#endif
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

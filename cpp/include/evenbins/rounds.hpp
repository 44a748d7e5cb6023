// Work in rounds, each of several steps, on several threads and without barriers.
//
// A step of a round is a number of tasks that may run at the same time. A task begins when
//     every task of the step before has ended, of the same round;
//     the same task has ended of the round before: what it owns it owns alone, and in the order of the rounds;
//     the round that had its buffer has ended: round r uses buffer r mod buffers().
// Threads take the tasks from one queue: step 0 of round r, step 1 of round r−1, step 2 of round r−2, and so on, then
// the same of round r+1. So what a task waits for was taken a whole turn before it, and a thread that is slower, or was
// interrupted, takes fewer tasks instead of keeping the others waiting. (With a barrier after each step, sixteen threads
// spent a quarter of their time at barriers.)
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "evenbins/compiler.hpp"
#include "evenbins/threads.hpp"

namespace evenbins {

class Rounds {
 public:
  // `tasks` of each step; every step has at least one.
  Rounds(std::vector<uint32_t> tasks, uint64_t rounds)
      : tasks_(std::move(tasks)), rounds_(rounds), buffers_(tasks_.size() + 1), end_(rounds) {
    for (const uint32_t n : tasks_) {
      steps_.emplace_back(n, buffers_);
      turn_ += n;
    }
  }

  size_t buffers() const { return buffers_; }
  // The first round that is not carried out, as far as is known; all of them when there is no such round.
  uint64_t end() const { return end_.load(); }

  // The rounds behind this one are not carried out; neither is it.
  void end_after(uint64_t round) { lower_end(round + 1); }
  void drop(uint64_t round) { lower_end(round); }

  // Runs act(step, round, task) for all tasks, on `threads` threads or as many as can be started. What is said in step
  // 0 of a round, of that round, is known to all its other tasks: none is run of a round that was dropped there. The
  // calling thread asks pulse() between its tasks; if that answers false, a round that has not yet begun is dropped.
  // So is one of whose tasks one throws; then that is thrown when all threads have ended.
  template <typename Pulse, typename Act>
  void run(uint32_t threads, const Pulse& pulse, const Act& act) {
    run_on_threads(threads, [&](uint32_t thread) {
      while (true) {
        if (thread == 0 && !stop_ && !pulse()) stop_ = true;
        uint64_t turn = next_++;
        uint64_t task = turn % turn_;
        turn /= turn_;
        if (turn >= end() + tasks_.size()) return;
        uint32_t step = 0;
        for (; task >= tasks_[step]; ++step) task -= tasks_[step];
        if (turn < step || turn - step >= rounds_) continue;
        run_task(step, turn - step, static_cast<uint32_t>(task), act);
      }
    });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct Step {
    Step(uint32_t tasks, size_t buffers)
        : done(std::make_unique<std::atomic<uint64_t>[]>(tasks)),
          ended(std::make_unique<std::atomic<uint64_t>[]>(buffers)) {}
    std::unique_ptr<std::atomic<uint64_t>[]> done;   // of each task: rounds
    std::unique_ptr<std::atomic<uint64_t>[]> ended;  // of each buffer: tasks, over all rounds
  };

  void lower_end(uint64_t round) {
    uint64_t end = end_.load();
    while (round < end && !end_.compare_exchange_weak(end, round)) {
    }
  }

  // Waits until a counter has come so far, or the round turns out not to be carried out: what it waits for then may
  // never be. Spins for some tens of microseconds before it sleeps: to wake a sleeping thread takes as long.
  void wait_for(const std::atomic<uint64_t>& counter, uint64_t least, uint64_t round) const {
    for (int spin = 0; counter.load() < least && round < end(); ++spin) {
      if (spin >= 2000) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        continue;
      }
      EVENBINS_PAUSE();
    }
  }
  void wait_for_step(uint32_t step, uint64_t of, uint64_t round) const {
    wait_for(steps_[step].ended[of % buffers_], (of / buffers_ + 1) * tasks_[step], round);
  }

  template <typename Act>
  void run_task(uint32_t step, uint64_t round, uint32_t task, const Act& act) {
    const auto last = static_cast<uint32_t>(tasks_.size() - 1);
    if (step > 0) wait_for_step(step - 1, round, round);
    if (step == 0 && round >= buffers_) wait_for_step(last, round - buffers_, round);
    wait_for(steps_[step].done[task], round, round);
    if (step == 0 && task == 0 && stop_) drop(round);
    if (round >= end()) return;  // not counted: no task of a round that is carried out waits for it
    try {
      act(step, round, task);
      ++steps_[step].done[task];
      ++steps_[step].ended[round % buffers_];
    } catch (...) {
      const std::lock_guard hold(lock_);
      if (!failure_ || round < end()) failure_ = std::current_exception();
      drop(round);
    }
  }

  std::vector<uint32_t> tasks_;
  uint64_t rounds_;
  size_t buffers_;
  uint64_t turn_ = 0;  // tasks of a turn, one of each step
  std::vector<Step> steps_;
  std::atomic<uint64_t> next_ = 0, end_;
  std::atomic<bool> stop_ = false;
  std::mutex lock_;
  std::exception_ptr failure_;
};

}  // namespace evenbins

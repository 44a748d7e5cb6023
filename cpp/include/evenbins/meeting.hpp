// Where the threads of one call wait for each other between two rounds, while the last to arrive ends the round.
#pragma once

#include <atomic>
#include <cstdint>

#include "evenbins/compiler.hpp"

namespace evenbins {

class Meeting {
 public:
  void expect(uint32_t threads) { threads_ = threads; }  // before anybody arrives

  // Every thread calls it once in a round. The last to arrive runs last(), which must not throw; then all go on.
  template <typename Last>
  void meet(const Last& last) {
    const uint32_t round = round_;
    if (arrived_.fetch_add(1) + 1 < threads_) return wait(round);
    last();
    arrived_ = 0;
    round_ = round + 1;
    round_.notify_all();
  }

 private:
  static constexpr int kSpins = 2000;  // some tens of microseconds: to wake a sleeping thread takes as long

  void wait(uint32_t round) const {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (round_ != round) return;
      EVENBINS_PAUSE();
    }
    round_.wait(round);
  }

  uint32_t threads_ = 1;
  std::atomic<uint32_t> arrived_ = 0, round_ = 0;
};

}  // namespace evenbins

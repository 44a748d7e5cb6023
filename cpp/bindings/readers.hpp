// Many readers or one writer, for structures whose look-ups must not see a change half done.
//
// access.hpp lets writers take turns; here bulk look-ups, which release the GIL, are counted, and a writer waits for
// them. Single calls hold the GIL: they go ahead unless somebody works without it.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "access.hpp"

namespace evenbins::python {

struct ReadersAndWriter : Turns {
  std::atomic<uint32_t> readers = 0;  // bulk look-ups under way; grows under the GIL
  // A single call may look (write) at once.
  bool may_read() const { return !busy; }
  bool may_write() const { return !busy && readers == 0; }
};

// A bulk look-up: no GIL, and no writer, until the end of the scope. Must be made with the GIL held.
class Reading {
 public:
  explicit Reading(ReadersAndWriter& turns) : turns_(turns), outer_(innermost_) {
    if (turns.busy && under_way(turns) == 0) {
      const Access wait(turns);  // until the writer is done; it ends with the GIL
      ++turns.readers;
    } else {
      ++turns.readers;
    }
    innermost_ = this;
    free_.emplace();
  }
  ~Reading() {
    innermost_ = outer_;
    --turns_.readers;
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  // How many bulk look-ups of the structure this thread is in the middle of, when a signal handler or a callback asks.
  // If there is one, a writer that is `busy` waits for this thread: another look-up goes ahead, and a change would wait
  // for itself.
  static uint32_t under_way(const ReadersAndWriter& turns) {
    uint32_t count = 0;
    for (const Reading* each = innermost_; each != nullptr; each = each->outer_) count += &each->turns_ == &turns;
    return count;
  }

 private:
  static inline thread_local const Reading* innermost_ = nullptr;
  ReadersAndWriter& turns_;
  const Reading* outer_;
  std::optional<GilRelease> free_;
};

// For whoever is about to take Access and then wait for the look-ups under way: one of this very thread never ends.
inline ReadersAndWriter& unless_reading(ReadersAndWriter& turns) {
  if (Reading::under_way(turns) != 0)
    throw std::runtime_error("this structure is in the middle of a bulk call of the same thread");
  return turns;
}
inline void wait_for_readers(const ReadersAndWriter& turns) {  // with Access, which lets no new one begin
  while (turns.readers != 0) {
    if (is_finalizing())
      throw std::runtime_error("the interpreter exits while another thread is in a bulk call of this structure");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// Exclusive use, and no GIL, until the end of the scope. Must be made with the GIL held.
class Writing {
 public:
  explicit Writing(ReadersAndWriter& turns) : access_(unless_reading(turns)) { wait_for_readers(turns); }

 private:
  Access access_;
};

// f() in a single call: at once if nobody works without the GIL, else alone, after them.
template <typename F>
auto in_turn(ReadersAndWriter& turns, bool at_once, F&& f) {
  std::optional<Writing> alone;
  if (!at_once) [[unlikely]]
    alone.emplace(turns);
  return f();
}
template <typename F>
auto read_in_turn(ReadersAndWriter& turns, F&& f) {
  return in_turn(turns, turns.may_read() || Reading::under_way(turns) != 0, std::forward<F>(f));
}

}  // namespace evenbins::python

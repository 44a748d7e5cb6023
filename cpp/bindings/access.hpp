// Writers take turns.
//
// Bulk calls release the GIL, so two Python threads could write to a structure at once and lose something. Whoever
// writes, or reads the structure as a whole, without the GIL holds `Access`; it begins and ends under the GIL, so
// whoever has the GIL and finds nobody `busy` may write, as a single `add` does. Look-ups never wait. No Python code
// runs while `Access` is held, but for signal handlers.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

#include "gil.hpp"

namespace evenbins::python {

struct Turns {
  std::mutex lock;
  std::atomic<bool> busy = false;  // somebody holds the lock; set and read under the GIL
  std::atomic<std::thread::id> writer;
};

// Exclusive use of a structure, and no GIL, until the end of the scope. Must be made with the GIL held.
class Access {
 public:
  explicit Access(Turns& turns) : turns_(turns) {
    if (turns.busy && turns.writer == std::this_thread::get_id())  // a signal handler, in the middle of a bulk call
      throw std::runtime_error("this structure is in the middle of a bulk call of the same thread");
    if (!turns.lock.try_lock()) {
      if (is_finalizing())  // the other thread gets no GIL any more, and may keep the lock for ever
        throw std::runtime_error("the interpreter exits while another thread is in a bulk call of this structure");
      const GilRelease free;  // whoever holds the lock may need the GIL to let it go
      turns.lock.lock();
    }
    turns.writer = std::this_thread::get_id();
    turns.busy = true;
    free_.emplace();
  }
  ~Access() {
    turns_.busy = false;
    turns_.lock.unlock();
  }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

 private:
  Turns& turns_;
  std::optional<GilRelease> free_;  // destroyed, and the GIL taken again, after the lock is free
};

// Two structures at once: the one with the lower address first, so that two such calls cannot wait for each
// other. Only the first gives up the GIL; then the second waits for a lock whose holder may need it, and
// finds it free.
template <typename F>
auto with_both(Turns& a, Turns& b, F&& f) {
  const Access first(&a < &b ? a : b);
  std::optional<GilAcquire> hold(std::in_place);
  const Access second(&a < &b ? b : a);
  return f();
}

// f() in a single call, at once unless somebody works without the GIL; then after them.
template <typename F>
auto in_turn(Turns& turns, F&& f) {
  std::optional<Access> alone;
  if (turns.busy) [[unlikely]]
    alone.emplace(turns);
  return f();
}

}  // namespace evenbins::python

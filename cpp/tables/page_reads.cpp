#include "evenbins/page_reads.hpp"

#include <algorithm>
#include <atomic>
#include <semaphore>
#include <vector>

#include "evenbins/threads.hpp"

namespace evenbins {
namespace {

constexpr uint64_t kPagesPerThread = 1024;  // that are cached: 2 ms of work, against 0.1 ms for a thread that wakes up

class RunReader {
 public:
  RunReader(const PageStore& store, const std::function<PageRun(uint64_t)>& run_of,
            const std::function<void(uint64_t, const uint8_t*)>& use)
      : store_(store), run_of_(run_of), use_(use) {}

  // Waits for the disk if it must.
  void read(uint64_t i) {
    const PageRun run = run_of_(i);
    store_.read_raw(run.first, run.count, buffer_for(run));
    use_(i, buffer_.data());
  }
  // False: it is not in the cache, and with `request` the system fetches it.
  bool read_cached(uint64_t i, bool request) {
    const PageRun run = run_of_(i);
    if (!store_.read_cached(run.first, run.count, buffer_for(run))) {
      if (request) store_.request(run.first, run.count);
      return false;
    }
    use_(i, buffer_.data());
    return true;
  }

 private:
  uint8_t* buffer_for(const PageRun& run) {
    buffer_.resize(std::max<size_t>(buffer_.size(), run.count * store_.page_bytes()));
    return buffer_.data();
  }

  const PageStore& store_;
  const std::function<PageRun(uint64_t)>& run_of_;
  const std::function<void(uint64_t, const uint8_t*)>& use_;
  std::vector<uint8_t> buffer_;
};

class Queue {  // first in, first out; at most `most` runs
 public:
  explicit Queue(uint32_t most) : runs_(most) {}
  bool full() const { return size_ == runs_.size(); }
  bool empty() const { return size_ == 0; }
  void push(uint64_t run) { runs_[(first_ + size_++) % runs_.size()] = run; }
  uint64_t pop() {
    const uint64_t run = runs_[first_];
    first_ = (first_ + 1) % runs_.size();
    --size_;
    return run;
  }

 private:
  std::vector<uint64_t> runs_;
  size_t first_ = 0, size_ = 0;
};

}  // namespace

bool read_runs(const PageStore& store, uint64_t n, const Reads& reads, const std::function<bool()>& pulse,
               const std::function<PageRun(uint64_t)>& run_of,
               const std::function<void(uint64_t, const uint8_t*)>& use) {
  if (n == 0) return true;
  const auto in_flight = static_cast<uint32_t>(std::clamp<uint64_t>(reads.in_flight, 1, n));
  if (!store.knows_cache() && in_flight > 1) {
    std::counting_semaphore<> turns(std::max(1u, reads.threads));
    const std::function<void(uint64_t, const uint8_t*)> use_in_turn = [&](uint64_t i, const uint8_t* pages) {
      turns.acquire();
      try {
        use(i, pages);
      } catch (...) {
        turns.release();
        throw;
      }
      turns.release();
    };
    std::vector<RunReader> readers(in_flight + 1, RunReader(store, run_of, use_in_turn));
    return share_items(
        n, in_flight, [&](uint64_t) { return pulse(); },
        [&](uint64_t i, const std::atomic<bool>&, uint32_t thread) { readers[thread].read(i); });
  }
  uint64_t pages = 0;
  for (uint64_t i = 0; i < n; ++i) pages += run_of(i).count;
  const uint64_t useful = std::min<uint64_t>(std::min(reads.threads, in_flight), pages / kPagesPerThread);
  const auto threads = static_cast<uint32_t>(std::max<uint64_t>(1, useful));
  std::atomic<uint64_t> next = 0;
  std::atomic<bool> stop = false;
  bool stopped = false;
  uint32_t most = in_flight;
  const auto work = [&](uint32_t thread) {
    RunReader reader(store, run_of, use);
    Queue queue(most);
    const auto goes_on = [&] {
      if (thread == 0 && !stop && !pulse()) stopped = stop = true;
      return !stop;
    };
    while (goes_on()) {
      const uint64_t i = next++;
      if (i >= n) break;
      if (store.knows_cache() && reader.read_cached(i, most > 1)) continue;
      queue.push(i);
      if (queue.full()) reader.read(queue.pop());
    }
    while (!queue.empty() && goes_on()) reader.read(queue.pop());
  };
  run_on_threads(
      threads, [&](uint32_t started) { most = std::max(1u, in_flight / started); },
      [&](uint32_t thread) {
        try {
          work(thread);
        } catch (...) {
          stop = true;
          throw;
        }
      });
  return !stopped;
}

}  // namespace evenbins

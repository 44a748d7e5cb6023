// Look-ups beside a writer of a fingerprint filter: what the two ways cost that keep a look-up from a half-moved run.
//
//     cmake -S . -B build/cores -DEVENBINS_BENCH=ON && cmake --build build/cores -j && build/cores/bench_readers [seconds]
//
//     turns      readers or a writer, as the library does it: a call of either waits for those of the others
//     versions   a counter for each block, odd while the writer is in it; a look-up reads it before and after, and looks
//                again if it has changed. A block is all that a key can touch but the rest of the filter
//
// One thread asks for keys that stay, `kLook` in a call. One adds and removes others, `write` of them in a call, and rests
// as long as it worked. A key that is not found is counted as wrong. Lines are read plainly while they are written, so
// that this is a measurement on processors with ordered loads and stores, not a way to do it everywhere.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "evenbins/fingerprint.hpp"
#include "evenbins/kernel.hpp"

using namespace evenbins;

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kLook = 1024, kBatch = 64;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Turns {
 public:
  explicit Turns(FingerprintFilter& filter) : filter_(filter) {}
  void look(const uint64_t* digests, size_t n, uint8_t* out) {
    for (;;) {
      ++readers_;
      if (!writing_) break;
      --readers_;
      while (writing_) std::this_thread::yield();
    }
    filter_.contains_many(digests, n, out);
    --readers_;
  }
  template <typename F>
  void write(const uint64_t* digests, size_t n, const F& act) {
    writing_ = true;
    while (readers_ != 0) std::this_thread::yield();
    act(digests, n);
    writing_ = false;
  }

 private:
  FingerprintFilter& filter_;
  std::atomic<uint32_t> readers_ = 0;
  std::atomic<bool> writing_ = false;
};

class Versions {
 public:
  explicit Versions(FingerprintFilter& filter) : filter_(filter), versions_(filter.blocks()) {}
  void look(const uint64_t* digests, size_t n, uint8_t* out) {
    uint32_t before[kBatch];
    for (size_t first = 0; first < n; first += kBatch) {
      const size_t count = n - first < kBatch ? n - first : kBatch;
      for (size_t i = 0; i < count; ++i) before[i] = of(digests[first + i]).load(std::memory_order_acquire);
      filter_.contains_many(digests + first, count, out + first);
      std::atomic_thread_fence(std::memory_order_acquire);
      for (size_t i = 0; i < count; ++i) {
        while (before[i] % 2 != 0 || of(digests[first + i]).load(std::memory_order_relaxed) != before[i]) {
          before[i] = of(digests[first + i]).load(std::memory_order_acquire);
          filter_.contains_many(digests + first + i, 1, out + first + i);
          std::atomic_thread_fence(std::memory_order_acquire);
        }
      }
    }
  }
  template <typename F>
  void write(const uint64_t* digests, size_t n, const F& act) {
    for (size_t i = 0; i < n; ++i) {
      std::atomic<uint32_t>& version = of(digests[i]);
      version.store(version.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_release);
      act(digests + i, 1);
      version.store(version.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
  }

 private:
  std::atomic<uint32_t>& of(uint64_t digest) { return versions_[mulhi(digest, versions_.size())]; }
  FingerprintFilter& filter_;
  std::vector<std::atomic<uint32_t>> versions_;
};

template <typename Way>
void measure(const char* name, FingerprintFilter& filter, const std::vector<uint64_t>& stay,
             const std::vector<uint64_t>& move, size_t write, double seconds) {
  Way way(filter);
  std::atomic<bool> end = false;
  uint64_t written = 0, looked = 0, wrong = 0;
  double longest = 0;
  std::thread writer([&] {
    std::vector<uint8_t> removed(write);
    for (size_t at = 0; write != 0 && !end; at = (at + write) % (move.size() - write)) {
      const auto begun = Clock::now();
      way.write(&move[at], write, [&](const uint64_t* keys, size_t n) { filter.add_many(keys, n); });
      way.write(&move[at], write, [&](const uint64_t* keys, size_t n) { filter.remove_many(keys, n, removed.data()); });
      written += 2 * write;
      for (const double pause = since(begun), until = since(begun) + pause; since(begun) < until;)
        std::this_thread::yield();
    }
  });
  const auto begun = Clock::now();
  uint8_t found[kLook];
  for (size_t at = 0; since(begun) < seconds; at = (at + kLook) % (stay.size() - kLook)) {
    const auto call = Clock::now();
    way.look(&stay[at], kLook, found);
    if (const double took = since(call); took > longest) longest = took;
    looked += kLook;
    for (const uint8_t each : found) wrong += each == 0;
  }
  const double took = since(begun);
  end = true;
  writer.join();
  std::printf("%-10s %12zu | %12.1f %14.2f | %14.2f | %6llu\n", name, write, double(looked) / took / 1e6, longest * 1e3,
              double(written) / took / 1e6, static_cast<unsigned long long>(wrong));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1.0;
  const Spec spec{Kind::fingerprint, Hashing::lanes, 7, 10000000, {252896, 10, 39, 14, 2064, 10100000, 0, 0}};
  FingerprintFilter filter(spec, Bits::zeroed(FingerprintFilter::payload_bytes(spec)));
  std::vector<uint64_t> stay(9500000), move(400000);
  for (size_t i = 0; i < stay.size(); ++i) stay[i] = splitmix(i, 3);
  for (size_t i = 0; i < move.size(); ++i) move[i] = splitmix(i, 4);
  filter.add_many(stay.data(), stay.size());
  std::printf("kernel %s, 10 million keys, 17 MiB\n", kernel().name);
  std::printf("%-10s %12s | %12s %14s | %14s | %6s\n", "way", "write", "look-ups M/s", "longest ms", "changes M/s", "wrong");
  for (const size_t write : {0, 1, 1024}) {
    measure<Turns>("turns", filter, stay, move, write, seconds);
    measure<Versions>("versions", filter, stay, move, write, seconds);
  }
  return 0;
}

// Bulk calls of the core by threads: million keys per second of wall time, and CPU nanoseconds per key.
//
//     cmake -S . -B build/cores -DEVENBINS_BENCH=ON && cmake --build build/cores -j && build/cores/bench_cores [seconds]
//
// Needs cmake and a C++20 compiler alone, so that it runs on machines without this project's Python packages. The
// integer cores are those of plans for a rate of 1e-3. Every filter gets the same random digests, as int64 keys would
// give; a call adds as many as `kCall`, and a filter is never filled beyond its capacity. Filters that can remove are
// filled to their capacity by one call, asked when they are full, and emptied by one call. "lines" is what nothing that
// touches one line a key can beat: the same keys read, or change, a word of a random line of as much memory; of changes
// each thread has its own share of the lines.
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "evenbins/kernel.hpp"
#include "evenbins/parallel.hpp"
#include "evenbins/threads.hpp"

using namespace evenbins;

namespace {

struct Case {
  const char* name;
  uint64_t mebibytes;
  Kind kind;
  Hashing hashing;
  uint64_t capacity;
  std::vector<uint64_t> core;
};

const Case kCases[] = {
    {"blocked", 2, Kind::blocked, Hashing::lanes, 1079205, {32768, 512, 9}},
    {"standard", 2, Kind::standard, Hashing::independent, 1166892, {16777155, 10}},
    {"fill", 2, Kind::balanced, Hashing::lanes, 1100101, {4, 512, 10, 2, 0, 0, 0, 0, 31091, 267, 1677, 267}},
    {"multilevel", 2, Kind::balanced, Hashing::lanes, 1083698, {3, 512, 10, 2, 0, 195, 0, 0, 31393, 38, 1340, 34}},
    {"fingerprint", 2, Kind::fingerprint, Hashing::lanes, 1000000, {25312, 10, 39, 14, 264, 1010000, 0, 0}},
    {"fingerprint", 166, Kind::fingerprint, Hashing::lanes, 100000000, {2527840, 10, 39, 14, 20064, 101000000, 0, 0}},
    {"blocked", 256, Kind::blocked, Hashing::lanes, 138141769, {4194304, 512, 9}},
    {"standard", 256, Kind::standard, Hashing::independent, 149362742, {2147483641, 10}},
    {"fill", 256, Kind::balanced, Hashing::lanes, 140787855, {4, 512, 10, 2, 0, 0, 0, 0, 3979690, 267, 214614, 267}},
    {"blocked", 1024, Kind::blocked, Hashing::lanes, 552567147, {16777216, 512, 9}},
    {"standard", 1024, Kind::standard, Hashing::independent, 597450968, {8589934584, 10}},
    {"fill", 1024, Kind::balanced, Hashing::lanes, 563151383, {4, 512, 10, 2, 0, 0, 0, 0, 15918759, 267, 858457, 267}},
    {"multilevel",
     1024,
     Kind::balanced,
     Hashing::lanes,
     555241044,
     {3, 512, 10, 2, 0, 64212, 0, 0, 16077668, 38, 688844, 33}},
};

constexpr uint64_t kCall = uint64_t{1} << 26;  // keys of a call, at most

class Numbers final : public Digests {  // keys that lie in memory
 public:
  Numbers(const int64_t* keys, uint64_t n) : keys_(keys), n_(n) {}
  uint64_t size() const override { return n_; }
  void read(uint64_t start, size_t n, uint64_t* out) const override {
    kernel().digest_i64(hash_, keys_ + start, n, out);
  }

 private:
  const int64_t* keys_;
  uint64_t n_;
  IntHash hash_{7};
};

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return double(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * double(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

struct Rate {
  double millions = 0, cpu_ns = 0;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <typename F>
Rate time_of(uint64_t keys, const F& call) {
  const double cpu = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  call();
  const double wall = seconds_since(start);
  return {double(keys) / wall / 1e6, (cpu_seconds() - cpu) / double(keys) * 1e9};
}

template <typename F>
Rate best_of(double seconds, uint64_t keys, const F& call) {
  Rate best;
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < 2 || (seconds_since(begin) < seconds && round < 20); ++round) {
    const Rate rate = time_of(keys, [&] { call(round); });
    if (rate.millions > best.millions) best = rate;
  }
  return best;
}

// Changes a word of the line of each key, in lines first … first+lines−1.
void change_lines(uint64_t* words, uint64_t first, uint64_t lines, const Numbers& keys, uint64_t start, uint64_t end) {
  constexpr size_t kBatch = 1024, kAhead = 32;
  uint64_t digests[kBatch];
  const auto word = [&](uint64_t digest) { return words + 8 * (first + mulhi(digest, lines)) + digest % 8; };
  for (; start < end; start += kBatch) {
    const size_t n = std::min<uint64_t>(kBatch, end - start);
    keys.read(start, n, digests);
    for (size_t i = 0; i < kAhead && i < n; ++i) __builtin_prefetch(word(digests[i]), 1);
    for (size_t i = 0; i < n; ++i) {
      if (i + kAhead < n) __builtin_prefetch(word(digests[i + kAhead]), 1);
      ++*word(digests[i]);
    }
  }
}

void print_rates(const Case& each, const char* name, uint32_t threads, const std::vector<Rate>& rates) {
  std::printf("%-11s %6llu %8u", name, static_cast<unsigned long long>(each.mebibytes), threads);
  for (const Rate& rate : rates) std::printf(" | %10.1f %10.2f", rate.millions, rate.cpu_ns);
  std::printf("\n");
  std::fflush(stdout);
}

void measure_lines(const Case& each, uint64_t bytes, const std::vector<int64_t>& keys, uint32_t threads,
                   double seconds) {
  Bits bits = Bits::zeroed(bytes);
  std::fill(bits.words(), bits.words() + bits.size(), 1);  // touches every page
  const uint64_t lines = bytes / 64, n = std::min<uint64_t>(keys.size(), each.capacity);
  const auto by_threads = [&](const auto& act) {
    run_on_threads(threads, [&](uint32_t t) { act(t, n * t / threads, n * (t + 1) / threads); });
  };
  const Numbers numbers(keys.data(), n);
  const Rate change = best_of(seconds, n, [&](int) {
    by_threads([&](uint32_t t, uint64_t start, uint64_t end) {
      const uint64_t first = lines * t / threads;
      change_lines(bits.words(), first, lines * (t + 1) / threads - first, numbers, start, end);
    });
  });
  std::atomic<uint64_t> zero_lines = 0;
  const Rate read = best_of(seconds / 2, n, [&](int) {
    by_threads([&](uint32_t, uint64_t start, uint64_t end) {
      zero_lines += kernel().line_reads(IntHash(7), bits.words(), lines,
                                        reinterpret_cast<const uint64_t*>(keys.data()) + start, end - start);
    });
  });
  if (zero_lines != 0) std::printf("no line is zero\n");
  print_rates(each, "lines", threads, {change, read});
}

// Empty to full, and back.
void measure_removal(const Case& each, const Spec& spec, const std::vector<int64_t>& keys, uint32_t threads,
                     double seconds) {
  const uint64_t n = std::min<uint64_t>(keys.size(), each.capacity);
  const Numbers numbers(keys.data(), n);
  const Pulse pulse = [] { return true; };
  std::unique_ptr<Filter> filter = make_filter(spec, Bits::zeroed(payload_bytes(spec)));
  filter->clear();  // touches every page
  std::vector<uint8_t> answers(n);
  Rate rates[3];
  const auto better = [](Rate& best, const Rate& found) {
    if (found.millions > best.millions) best = found;
  };
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < 2 || seconds_since(begin) < seconds; ++round) {
    better(rates[0], time_of(n, [&] { add_all(*filter, numbers, threads, pulse); }));
    better(rates[1], time_of(n, [&] { contains_all(*filter, numbers, answers.data(), threads, pulse); }));
    better(rates[2], time_of(n, [&] { remove_all(*filter, numbers, answers.data(), threads, pulse); }));
    if (!filter->is_empty()) std::printf("%s: keys are left\n", each.name);
  }
  print_rates(each, each.name, threads, {rates[0], rates[1], rates[2]});
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1.0;
  const uint64_t only = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;  // MiB
  const char* named = argc > 4 ? argv[4] : nullptr;
  const uint32_t first = argc > 5 ? std::atoi(argv[5]) : 1;
  const uint32_t cores = argc > 3 ? std::atoi(argv[3]) : std::max(1u, std::thread::hardware_concurrency());
  std::printf("kernel %s, %u cores\n", kernel().name, cores);
  std::printf("%-11s %6s %8s | %10s %10s | %10s %10s | %10s %10s\n", "filter", "MiB", "threads", "add M/s", "CPU ns",
              "query M/s", "CPU ns", "remove M/s", "CPU ns");
  std::vector<int64_t> keys(2 * kCall);
  for (uint64_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(splitmix(i, 3));
  const Pulse pulse = [] { return true; };
  for (const Case& each : kCases) {
    if (only != 0 && each.mebibytes != only) continue;
    if (named != nullptr && std::strcmp(named, each.name) != 0) continue;
    const uint64_t n = std::min(kCall, each.capacity / 2);
    std::vector<uint8_t> answers(n);
    const Spec spec{each.kind, each.hashing, 7, each.capacity, each.core};
    std::unique_ptr<Filter> expected;
    for (uint32_t threads = first; threads <= cores; threads *= 2) {
      const uint64_t bytes = payload_bytes(spec);
      if (each.kind == Kind::fingerprint) {
        measure_lines(each, bytes, keys, threads, seconds);
        measure_removal(each, spec, keys, threads, seconds);
        continue;
      }
      std::unique_ptr<Filter> filter = make_filter(spec, Bits::zeroed(bytes));
      filter->clear();  // touches every page
      const Rate add = best_of(seconds, n, [&](int round) {
        if (round % 2 == 0) filter->clear();
        add_all(*filter, Numbers(keys.data() + (round % 2) * kCall, n), threads, pulse);
      });
      filter->clear();
      add_all(*filter, Numbers(keys.data(), n), threads, pulse);
      if (threads == first)
        expected = filter->copy();
      else if (!(*filter == *expected))
        return std::printf("%s: %u threads leave other bytes\n", each.name, threads), 1;
      const Rate query = best_of(
          seconds / 2, n, [&](int) { contains_all(*filter, Numbers(keys.data(), n), answers.data(), threads, pulse); });
      print_rates(each, each.name, threads, {add, query});
    }
  }
  return 0;
}

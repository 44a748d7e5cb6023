// Bulk calls of the core by threads: million keys per second of wall time, and CPU nanoseconds per key.
//
//     cmake -S . -B build/cores -DEVENBINS_BENCH=ON && cmake --build build/cores -j && build/cores/bench_cores [seconds]
//
// Needs cmake and a C++20 compiler alone, so that it runs on machines without this project's Python packages. The
// integer cores are those of plans for a rate of 1e-3, of fingerprint filters with 100 million keys those for 2.8e-3,
// 1e-3, 1.2e-4 and 6e-6 (remainders of 8, 10, 12 and 16 bits). Every filter gets the same random digests, as int64 keys would
// give; a call adds as many as `kCall`, and a filter is never filled beyond its capacity.
//
//     build/cores/bench_cores SECONDS MIB THREADS fingerprint
//
// measures fingerprint filters of MIB MiB (0: of all sizes) with one thread and with THREADS, a row for each operation: filled from
// empty, asked for its keys and for others, churned at full load (a sixteenth of the keys removed, as many others added),
// emptied. "line" is what nothing that touches one line per key can beat: the same keys read, or change, a word of a random
// line of as much memory; of changes each thread has its own share of the lines. "blocked" is a blocked filter of as many
// bytes with the same keys, and 0.6 hashes per bit of a key. The operations of a round follow each other, the best of the rounds counts, and the last
// column is the rate as a share of that of the lines.
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
    {"fingerprint", 0, Kind::fingerprint, Hashing::lanes, 10000, {256, 10, 39, 16, 72, 10100, 0, 0}},
    {"fingerprint", 2, Kind::fingerprint, Hashing::lanes, 1000000, {25312, 10, 39, 14, 264, 1010000, 0, 0}},
    {"fingerprint", 17, Kind::fingerprint, Hashing::lanes, 10000000, {252896, 10, 39, 14, 2064, 10100000, 0, 0}},
    {"fingerprint", 142, Kind::fingerprint, Hashing::lanes, 100000000, {2181120, 8, 64, 15, 20064, 101000000, 0, 0}},
    {"fingerprint", 166, Kind::fingerprint, Hashing::lanes, 100000000, {2527840, 10, 39, 14, 20064, 101000000, 0, 0}},
    {"fingerprint", 209, Kind::fingerprint, Hashing::lanes, 100000000, {3184384, 12, 64, 14, 20064, 101000000, 0, 0}},
    {"fingerprint", 278, Kind::fingerprint, Hashing::lanes, 100000000, {4210128, 16, 64, 13, 20064, 101000000, 0, 0}},
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

// The operations on a fingerprint filter, beside what bounds them.
void measure_fingerprint(const Case& each, const Spec& spec, const std::vector<int64_t>& keys, uint32_t threads,
                         double seconds) {
  const uint64_t bytes = payload_bytes(spec), lines = bytes / 64, n = std::min<uint64_t>(keys.size(), each.capacity);
  const uint64_t others = std::min<uint64_t>(n, keys.size() - n), part = std::min(n / 16, others);
  const Numbers present(keys.data(), n), absent(keys.data() + n, others);
  const Numbers leaving(keys.data(), part), coming(keys.data() + n, part);
  const Pulse pulse = [] { return true; };
  Bits bits = Bits::zeroed(bytes);
  std::fill(bits.words(), bits.words() + bits.size(), 1);  // touches every page
  const Spec blocked_spec{Kind::blocked, Hashing::lanes, 7, n, {lines, 512, 512 * lines * 3 / (5 * n)}};
  std::unique_ptr<Filter> blocked = make_filter(blocked_spec, Bits::zeroed(payload_bytes(blocked_spec)));
  add_all(*blocked, present, threads, pulse);
  std::unique_ptr<Filter> filter = make_filter(spec, Bits::zeroed(bytes));
  filter->clear();  // touches every page
  std::vector<uint8_t> answers(n);
  const auto by_threads = [&](const auto& act) {
    run_on_threads(threads, [&](uint32_t t) { act(t, n * t / threads, n * (t + 1) / threads); });
  };
  const auto check = [&](uint64_t count, bool expected) {
    if (std::find(answers.data(), answers.data() + count, uint8_t{!expected}) != answers.data() + count)
      std::printf("%s: a wrong answer\n", each.name);
  };

  struct Row {
    const char* name;
    int bound;  // the row of the lines
    Rate rate;
  };
  enum { line_read, line_update, found, missing, insert, remove, churn, blocked_found, blocked_missing, kRows };
  Row rows[kRows] = {{"line read", line_read, {}},
                     {"line update", line_update, {}},
                     {"look-up, present", line_read, {}},
                     {"look-up, absent", line_read, {}},
                     {"insert, to full", line_update, {}},
                     {"remove, to empty", line_update, {}},
                     {"churn at full load", line_update, {}},
                     {"blocked, present", line_read, {}},
                     {"blocked, absent", line_read, {}}};
  const auto measure = [&](int row, uint64_t count, const auto& call) {
    const Rate rate = time_of(count, call);
    if (rate.millions > rows[row].rate.millions) rows[row].rate = rate;
  };
  std::atomic<uint64_t> zero_lines = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < 2 || seconds_since(begin) < seconds; ++round) {
    measure(line_update, n, [&] {
      by_threads([&](uint32_t t, uint64_t start, uint64_t end) {
        const uint64_t first = lines * t / threads;
        change_lines(bits.words(), first, lines * (t + 1) / threads - first, present, start, end);
      });
    });
    measure(insert, n, [&] { add_all(*filter, present, threads, pulse); });
    measure(line_read, n, [&] {
      by_threads([&](uint32_t, uint64_t start, uint64_t end) {
        zero_lines += kernel().line_reads(IntHash(7), bits.words(), lines,
                                          reinterpret_cast<const uint64_t*>(keys.data()) + start, end - start);
      });
    });
    measure(found, n, [&] { contains_all(*filter, present, answers.data(), threads, pulse); });
    check(n, true);
    measure(blocked_found, n, [&] { contains_all(*blocked, present, answers.data(), threads, pulse); });
    measure(missing, others, [&] { contains_all(*filter, absent, answers.data(), threads, pulse); });
    measure(blocked_missing, others, [&] { contains_all(*blocked, absent, answers.data(), threads, pulse); });
    for (const bool back : {false, true})  // the second time as it was
      measure(churn, 2 * part, [&] {
        remove_all(*filter, back ? coming : leaving, answers.data(), threads, pulse);
        add_all(*filter, back ? leaving : coming, threads, pulse);
      });
    measure(remove, n, [&] { remove_all(*filter, present, answers.data(), threads, pulse); });
    check(n, true);
    if (!filter->is_empty()) std::printf("%s: keys are left\n", each.name);
  }
  if (zero_lines != 0) std::printf("a line became zero\n");
  for (const Row& row : rows)
    std::printf("%-18s %6llu %8u | %10.1f %10.2f | %8.2f\n", row.name, static_cast<unsigned long long>(each.mebibytes),
                threads, row.rate.millions, row.rate.cpu_ns, row.rate.millions / rows[row.bound].rate.millions);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1.0;
  const uint64_t only = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;  // MiB
  const char* named = argc > 4 ? argv[4] : nullptr;
  const uint32_t first = argc > 5 ? std::atoi(argv[5]) : 1;
  const uint32_t cores = argc > 3 ? std::atoi(argv[3]) : std::max(1u, std::thread::hardware_concurrency());
  std::printf("kernel %s, %u cores\n", kernel().name, cores);
  const bool by_operation = named != nullptr && std::strcmp(named, "fingerprint") == 0;
  if (by_operation)
    std::printf("%-18s %6s %8s | %10s %10s | %8s\n", "operation", "MiB", "threads", "M/s", "CPU ns", "of lines");
  else
    std::printf("%-11s %6s %8s | %10s %10s | %10s %10s\n", "filter", "MiB", "threads", "add M/s", "CPU ns", "query M/s",
                "CPU ns");
  std::vector<int64_t> keys(2 * kCall);
  for (uint64_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(splitmix(i, 3));
  const Pulse pulse = [] { return true; };
  for (const Case& each : kCases) {
    if ((each.kind == Kind::fingerprint) != by_operation) continue;
    if (only != 0 && each.mebibytes != only) continue;
    if (named != nullptr && std::strcmp(named, each.name) != 0) continue;
    const Spec spec{each.kind, each.hashing, 7, each.capacity, each.core};
    if (by_operation) {
      measure_fingerprint(each, spec, keys, first, seconds);
      if (cores != first) measure_fingerprint(each, spec, keys, cores, seconds);
      continue;
    }
    const uint64_t n = std::min(kCall, each.capacity / 2);
    std::vector<uint8_t> answers(n);
    std::unique_ptr<Filter> expected;
    for (uint32_t threads = first; threads <= cores; threads *= 2) {
      const uint64_t bytes = payload_bytes(spec);
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

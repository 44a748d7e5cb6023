#include "study/simulate.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

#include "study/trials.hpp"

namespace evenbins::study {
namespace {

constexpr size_t kBatch = 64;            // bins of level 0 that are drawn and prefetched ahead
constexpr uint64_t kMostBins = 1 << 30;  // of all tables, in one trial
constexpr uint64_t kMostBits = uint64_t{1} << 32;

// Load is the type of a bin's counter: small, so that more bins stay in the cache, if the loads allow it.
template <typename Load>
class Trial {
 public:
  Trial(const Balance& balance, uint64_t seed)
      : b_(balance), first_(splitmix(seed, 0)), rest_(splitmix(seed, 1)), state_(balance.bins.size()) {
    for (size_t t = 0; t < b_.bins.size(); ++t) {
      state_[t].loads.resize(b_.bins[t]);
      state_[t].beyond.resize(b_.thresholds[t] + 2);
    }
  }

  // Inserts until `keys` are in; false if told to stop.
  bool run_to(uint64_t keys, const std::atomic<bool>& stop) {
    uint32_t bins[kBatch];
    while (done_ < keys) {
      const uint64_t end = std::min(keys, done_ + kStretch);
      while (done_ < end) {
        const size_t n = std::min<uint64_t>(kBatch, end - done_);
        for (size_t i = 0; i < n; ++i) {
          bins[i] = static_cast<uint32_t>(mulhi(first_(), b_.bins[0]));
          __builtin_prefetch(&state_[0].loads[bins[i]], 1);
        }
        for (size_t i = 0; i < n; ++i) insert(bins[i]);
        done_ += n;
      }
      if (stop) return false;
    }
    return true;
  }

  Snapshot snapshot() const {
    Snapshot out{overflow_, spilled_, accesses_, {}};
    for (size_t t = 0; t < state_.size(); ++t) {
      auto& loads = out.loads.emplace_back();
      uint64_t not_below = b_.bins[t];
      for (size_t i = 0; not_below != 0; ++i) {
        const uint64_t beyond = i < state_[t].beyond.size() ? state_[t].beyond[i] : 0;
        loads.push_back(not_below - beyond);
        not_below = beyond;
      }
    }
    return out;
  }

 private:
  struct Table {
    std::vector<Load> loads;
    std::vector<uint64_t> beyond;  // [i]: bins that hold more than i keys
  };

  size_t table_of(uint32_t level) const { return state_.size() == 1 ? 0 : level; }
  uint32_t draw_bin(uint32_t level) { return static_cast<uint32_t>(mulhi(rest_(), b_.bins[table_of(level)])); }

  bool accepted(size_t t, uint32_t bin) {
    Table& table = state_[t];
    Load& load = table.loads[bin];
    const uint64_t threshold = b_.thresholds[t];
    if (load >= threshold && (load > threshold || rest_() >> 32 >= b_.coin)) return false;
    ++table.beyond[load++];
    return true;
  }

  void insert(uint32_t bin) {
    if (accesses_ >= b_.budget) [[unlikely]] {
      if (overflow_ < b_.overflow_limit)
        ++overflow_;
      else
        accesses_ += b_.choices, spill({bin}, 1);
      return;
    }
    ++accesses_;
    if (accepted(0, bin)) return;
    std::array<uint32_t, kMostChoices> bins{bin};
    for (uint32_t level = 1; level < b_.choices; ++level) {
      ++accesses_;
      bins[level] = draw_bin(level);
      if (accepted(table_of(level), bins[level])) return;
    }
    if (overflow_ < b_.overflow_limit)
      ++overflow_;
    else
      spill(bins, b_.choices);
  }

  // Into one of the key's bins, of which `known` have been drawn, whatever it holds.
  void spill(std::array<uint32_t, kMostChoices> bins, uint32_t known) {
    for (; known < b_.choices; ++known) bins[known] = draw_bin(known);
    const auto load = [&](uint32_t level) -> Load& { return state_[table_of(level)].loads[bins[level]]; };
    uint32_t best = 0;
    if (b_.spill == Spill::random)
      best = static_cast<uint32_t>(mulhi(rest_(), b_.choices));
    else
      for (uint32_t level = 1; level < b_.choices; ++level)
        if (load(level) < load(best)) best = level;
    auto& beyond = state_[table_of(best)].beyond;
    const Load held = load(best)++;
    if (held >= beyond.size()) beyond.resize(held + 1);
    ++beyond[held];
    ++spilled_;
  }

  const Balance& b_;
  Xoshiro first_, rest_;
  std::vector<Table> state_;
  uint64_t done_ = 0, overflow_ = 0, spilled_ = 0, accesses_ = 0;
};

template <typename Load>
std::vector<Snapshot> run_trial(const Balance& balance, const std::vector<uint64_t>& checkpoints, uint64_t seed,
                                const std::atomic<bool>& stop) {
  Trial<Load> trial(balance, seed);
  std::vector<Snapshot> out;
  for (const uint64_t keys : checkpoints) {
    if (!trial.run_to(keys, stop)) break;
    out.push_back(trial.snapshot());
  }
  return out;
}

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::invalid_argument(otherwise);
}

// One filter, one generator: first the keys' words, then the queries', each in the order h1, h2, h3.
template <Hashing hashing>
class HashingRun {
 public:
  HashingRun(uint64_t bits, uint32_t hashes, uint64_t seed)
      : size_(hashing == Hashing::partition ? bits / hashes : bits),
        hashes_(hashes),
        random_(seed),
        words_(bits / 64 + 1) {
    for (uint64_t i = 0; i < hashes; ++i)
      offset_[i] = hashing == Hashing::partition              ? i * size_
                   : hashing == Hashing::enhanced_square      ? i * i % size_
                   : hashing == Hashing::enhanced_cube        ? i * i * i % size_
                   : hashing == Hashing::enhanced_tetrahedral ? (i * i * i - i) / 6 % size_
                                                              : 0;
  }

  HashingTrial run(uint64_t keys, uint64_t queries, const std::atomic<bool>& stop) {
    HashingTrial out;
    for (uint64_t i = 0; i < keys; ++i) {
      if (i % kStretch == 0 && stop) return out;
      visit([&](uint64_t at) {
        words_[at / 64] |= uint64_t{1} << at % 64;
        return true;
      });
    }
    for (uint64_t i = 0; i < queries; ++i) {
      if (i % kStretch == 0 && stop) return out;
      out.positives += visit([&](uint64_t at) { return (words_[at / 64] >> at % 64 & 1) != 0; });
    }
    for (const uint64_t word : words_) out.set_bits += static_cast<uint64_t>(std::popcount(word));
    return out;
  }

 private:
  uint64_t draw() { return mulhi(random_(), size_); }
  uint64_t reduced(uint64_t x) const { return x >= size_ ? x - size_ : x; }  // x < 2 size_

  // The positions of a new key, until `use` answers false; true if it never does.
  template <typename Use>
  bool visit(const Use& use) {
    if constexpr (hashing == Hashing::independent) {
      for (uint32_t i = 0; i < hashes_; ++i)
        if (!use(draw())) return false;
    } else {
      uint64_t at = draw(), step = draw();
      const uint64_t turn = hashing == Hashing::triple ? draw() : 0;
      for (uint32_t i = 0; i < hashes_; ++i) {
        uint64_t here = at;
        if constexpr (hashing == Hashing::partition)
          here = at + offset_[i];
        else if constexpr (hashing != Hashing::double_ && hashing != Hashing::triple)
          here = reduced(at + offset_[i]);
        if (!use(here)) return false;
        at = reduced(at + step);
        if constexpr (hashing == Hashing::triple) step = reduced(step + turn);
      }
    }
    return true;
  }

  uint64_t size_;  // what positions are taken modulo
  uint32_t hashes_;
  std::array<uint64_t, kMostHashes> offset_;
  Xoshiro random_;
  std::vector<uint64_t> words_;
};

HashingTrial run_hashing_trial(Hashing hashing, uint64_t bits, uint32_t hashes, uint64_t keys, uint64_t queries,
                               uint64_t seed, const std::atomic<bool>& stop) {
  const auto run = [&]<Hashing which>() { return HashingRun<which>(bits, hashes, seed).run(keys, queries, stop); };
  switch (hashing) {
    case Hashing::independent: return run.template operator()<Hashing::independent>();
    case Hashing::partition: return run.template operator()<Hashing::partition>();
    case Hashing::double_: return run.template operator()<Hashing::double_>();
    case Hashing::enhanced_square: return run.template operator()<Hashing::enhanced_square>();
    case Hashing::enhanced_cube: return run.template operator()<Hashing::enhanced_cube>();
    case Hashing::enhanced_tetrahedral: return run.template operator()<Hashing::enhanced_tetrahedral>();
    case Hashing::triple: return run.template operator()<Hashing::triple>();
  }
  throw std::invalid_argument("hashing must be one of those of simulate.hpp");
}

}  // namespace

void Balance::check() const {
  require(choices >= 1 && choices <= kMostChoices,
          "choices must be 1 to " + std::to_string(kMostChoices) + ", not " + std::to_string(choices));
  require(bins.size() == 1 || bins.size() == choices,
          "bins must have one number (one table) or choices = " + std::to_string(choices) +
              " (one for each level), not " + std::to_string(bins.size()));
  require(thresholds.size() == bins.size(), "thresholds must have as many numbers as bins, " +
                                                std::to_string(bins.size()) + ", not " +
                                                std::to_string(thresholds.size()));
  uint64_t all = 0;
  for (const uint64_t each : bins) {
    require(each >= 1 && each <= kMostBins,
            "bins must be 1 to 2**30 in each table, not " + std::to_string(each) + ": give each level a bin at least");
    all += each;
  }
  require(all <= kMostBins, "bins must be at most 2**30 in all tables, not " + std::to_string(all));
  for (const uint64_t each : thresholds)
    require(each <= kMostThreshold,
            "thresholds must be 0 to " + std::to_string(kMostThreshold) + ", not " + std::to_string(each));
  require(coin <= uint64_t{1} << 32, "coin must be 0 to 2**32, not " + std::to_string(coin));
}

std::vector<std::vector<Snapshot>> simulate(const Balance& balance, const std::vector<uint64_t>& checkpoints,
                                            uint64_t trials, uint64_t seed, uint32_t threads,
                                            const std::function<bool()>& pulse) {
  balance.check();
  require(!checkpoints.empty(), "checkpoints must not be empty: give the number of keys");
  require(std::is_sorted(checkpoints.begin(), checkpoints.end()), "checkpoints must not descend: sort them");
  require(trials >= 1, "trials must be 1 or more, not 0");
  require(threads >= 1, "threads must be 1 or more, not 0");
  const bool small = balance.overflow_limit == kNoLimit &&
                     *std::max_element(balance.thresholds.begin(), balance.thresholds.end()) < UINT8_MAX;

  std::vector<std::vector<Snapshot>> out(trials);
  const auto tell = [&](uint64_t) { return pulse(); };
  const bool done = share_trials(trials, threads, tell, [&](uint64_t t, const std::atomic<bool>& stop) {
    out[t] = small ? run_trial<uint8_t>(balance, checkpoints, splitmix(seed, t), stop)
                   : run_trial<uint32_t>(balance, checkpoints, splitmix(seed, t), stop);
  });
  if (!done) out.clear();
  return out;
}

std::vector<HashingTrial> simulate_hashing(Hashing hashing, uint64_t bits, uint32_t hashes, uint64_t keys,
                                           uint64_t queries, uint64_t trials, uint64_t seed, uint32_t threads,
                                           const std::function<bool()>& pulse) {
  require(bits >= 1 && bits <= kMostBits, "bits must be 1 to 2**32, not " + std::to_string(bits));
  require(hashes >= 1 && hashes <= kMostHashes,
          "hashes must be 1 to " + std::to_string(kMostHashes) + ", not " + std::to_string(hashes));
  require(hashing != Hashing::partition || bits >= hashes,
          "bits must be one for each of " + std::to_string(hashes) + " parts at least, not " + std::to_string(bits));
  require(trials >= 1, "trials must be 1 or more, not 0");
  require(threads >= 1, "threads must be 1 or more, not 0");
  std::vector<HashingTrial> out(trials);
  const auto tell = [&](uint64_t) { return pulse(); };
  const bool done = share_trials(trials, threads, tell, [&](uint64_t t, const std::atomic<bool>& stop) {
    out[t] = run_hashing_trial(hashing, bits, hashes, keys, queries, splitmix(seed, t), stop);
  });
  if (!done) out.clear();
  return out;
}

}  // namespace evenbins::study

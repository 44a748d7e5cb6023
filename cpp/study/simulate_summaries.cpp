#include "study/simulate_summaries.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

#include "study/simulate.hpp"
#include "study/trials.hpp"

namespace evenbins::study {
namespace {

constexpr uint64_t kMostKeys = 1 << 26;
constexpr uint64_t kMostCells = uint64_t{1} << 32;
constexpr uint32_t kMostTypes = 16;
constexpr uint32_t kMostPositions = 256;
constexpr uint32_t kNobody = UINT32_MAX;

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::invalid_argument(otherwise);
}

void check_sizes(uint64_t keys, const std::vector<uint64_t>& sizes) {
  require(keys <= kMostKeys, "keys must be 0 to 2**26, not " + std::to_string(keys));
  require(!sizes.empty() && sizes.size() <= kMostTypes,
          "sizes must be of 1 to " + std::to_string(kMostTypes) + " sub-tables, not " + std::to_string(sizes.size()));
  for (const uint64_t each : sizes)
    require(each >= 1 && each <= 1 << 30, "sizes must be 1 to 2**30 each, not " + std::to_string(each));
}

void check_trials(uint64_t trials, uint32_t threads) {
  require(trials >= 1 && trials <= uint64_t{1} << 32, "trials must be 1 to 2**32, not " + std::to_string(trials));
  require(threads >= 1, "threads must be 1 or more, not 0");
}

class Bits {
 public:
  void clear(uint64_t bits) { words_.assign((bits + 63) / 64, 0); }
  bool has(uint64_t i) const { return words_[i / 64] >> (i % 64) & 1; }
  void set(uint64_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  bool put(uint64_t i) {  // whether it was there
    uint64_t& word = words_[i / 64];
    const uint64_t bit = uint64_t{1} << (i % 64);
    const bool was = (word & bit) != 0;
    word |= bit;
    return was;
  }

 private:
  std::vector<uint64_t> words_;
};

// Position h of a key that draws.
struct Positions {
  Positions(const SummarySimulation::Filter& filter, bool partitioned)
      : span(partitioned ? filter.cells / filter.hashes : filter.cells),
        stride(partitioned ? span : 0),
        hashes(filter.hashes) {}
  uint64_t operator()(Xoshiro& random, uint32_t h) const { return h * stride + mulhi(random(), span); }
  uint64_t span, stride;
  uint32_t hashes;
};

// |S_0| … |S_d|. Here and below a loop draws from a copy of the generator, which stays in registers: the compiler
// cannot know that no set bit changes the original.
std::vector<uint64_t> throw_keys(uint64_t keys, const std::vector<uint64_t>& sizes, Xoshiro& random, Bits& taken,
                                 const std::atomic<bool>& stop) {
  std::vector<uint64_t> left{keys};
  for (const uint64_t size : sizes) {
    taken.clear(size);
    uint64_t passed = 0;
    Xoshiro draw = random;
    for (uint64_t x = 0; x < left.back(); ++x) {
      if (x % kStretch == 0 && stop) return std::vector<uint64_t>(sizes.size() + 1);
      passed += taken.put(mulhi(draw(), size));
    }
    random = draw;
    left.push_back(passed);
  }
  return left;
}

class SummaryTrial {
 public:
  SummaryTrial(const SummarySimulation& simulation, uint64_t seed) : s_(simulation), random_(seed) {}

  void run(const std::atomic<bool>& stop, uint64_t* passed, uint64_t* failures, uint64_t* positives) {
    const std::vector<uint64_t> left = throw_keys(s_.keys, s_.sizes, random_, set_, stop);
    std::copy(left.begin() + 1, left.end(), passed);
    if (s_.shared)
      shared(left, failures);
    else
      separate(left, failures);
    if (s_.queries == 0 || stop) return;
    const Positions at(s_.filters[0], s_.partitioned);
    *positives = count(s_.queries, at);
  }

 private:
  void shared(const std::vector<uint64_t>& left, uint64_t* failures) {
    const Positions at(s_.filters[0], s_.partitioned);
    const size_t types = s_.sizes.size();
    set_.clear(s_.filters[0].cells);
    insert(left[types], at);  // keys of a crisis, if there are any: of a higher type than all
    for (size_t type = types; type >= 1; --type) {
      const uint64_t held = left[type - 1] - left[type];
      if (type == 1 && s_.queries == 0) {
        failures[0] = left[1] == 0 ? 0 : count(held, at);
        return;
      }
      pending_.resize(held * at.hashes);
      uint64_t* next = pending_.data();
      Xoshiro draw = random_;
      for (uint64_t x = 0; x < held; ++x) {
        bool covered = true;
        for (uint32_t h = 0; h < at.hashes; ++h, ++next) {
          *next = at(draw, h);
          covered = covered && set_.has(*next);
        }
        failures[type - 1] += covered;
      }
      random_ = draw;
      for (const uint64_t cell : pending_) set_.set(cell);
    }
  }

  void separate(const std::vector<uint64_t>& left, uint64_t* failures) {
    for (size_t i = 1; i < s_.sizes.size(); ++i) {
      if (left[i] == 0) break;  // then none of the later ones has a key either
      const Positions at(s_.filters[i], s_.partitioned);
      set_.clear(s_.filters[i].cells);
      insert(left[i], at);
      failures[i - 1] = count(left[i - 1] - left[i], at);
    }
    if (s_.queries == 0) return;
    set_.clear(s_.filters[0].cells);
    insert(s_.keys, Positions(s_.filters[0], s_.partitioned));
  }

  void insert(uint64_t keys, const Positions& at) {
    Xoshiro draw = random_;
    for (uint64_t x = 0; x < keys; ++x)
      for (uint32_t h = 0; h < at.hashes; ++h) set_.set(at(draw, h));
    random_ = draw;
  }

  uint64_t count(uint64_t keys, const Positions& at) {
    uint64_t found = 0;
    Xoshiro draw = random_;
    for (uint64_t x = 0; x < keys; ++x) {
      uint32_t h = 0;
      while (h < at.hashes && set_.has(at(draw, h))) ++h;
      found += h == at.hashes;
    }
    random_ = draw;
    return found;
  }

  const SummarySimulation& s_;
  Xoshiro random_;
  Bits set_;
  std::vector<uint64_t> pending_;
};

// The largest counter after the keys' hash values; found at the end, which is cheaper than to look at each step.
uint64_t largest_counter(uint64_t keys, const SummarySimulation::Filter& filter, bool once, Xoshiro& random,
                         std::vector<uint16_t>& counters) {
  counters.assign(filter.cells, 0);
  Xoshiro draw = random;
  if (once) {
    uint64_t seen[kMostPositions];
    for (uint64_t x = 0; x < keys; ++x)
      for (uint32_t h = 0; h < filter.hashes; ++h) {
        seen[h] = mulhi(draw(), filter.cells);
        if (std::find(seen, seen + h, seen[h]) == seen + h && counters[seen[h]] != UINT16_MAX) ++counters[seen[h]];
      }
  } else {
    for (uint64_t i = 0; i < keys * filter.hashes; ++i) {
      uint16_t& counter = counters[mulhi(draw(), filter.cells)];
      counter = static_cast<uint16_t>(counter + (counter != UINT16_MAX));
    }
  }
  random = draw;
  uint32_t largest = 0;
  for (const uint16_t each : counters) largest = std::max<uint32_t>(largest, each);
  return largest;
}

class RebuildTrial {
 public:
  uint64_t moves = 0, into_first = 0, crisis = 0;

  void run(const std::vector<uint64_t>& sizes, uint64_t seed, uint64_t keys, uint64_t deleted, bool first_only) {
    moves = into_first = crisis = 0;
    Xoshiro random(seed);
    const size_t levels = sizes.size();
    first_.clear();
    uint64_t all = 0;
    for (const uint64_t size : sizes) {
      first_.push_back(all);
      all += size;
    }
    cells_.assign(all, kNobody);
    where_.resize(keys * levels);
    level_.resize(keys);
    std::vector<uint32_t>& victims = victims_;
    victims.clear();
    for (uint32_t x = 0; x < keys; ++x) {
      size_t i = 0;
      for (; i < levels; ++i) {
        const uint64_t cell = first_[i] + mulhi(random(), sizes[i]);
        where_[x * levels + i] = static_cast<uint32_t>(cell);
        if (cells_[cell] == kNobody) {
          cells_[cell] = x;
          break;
        }
      }
      level_[x] = static_cast<uint8_t>(i);
      crisis += i == levels;
      if (!first_only || i == 0) victims.push_back(x);
    }
    for (uint64_t t = 0; t < std::min<uint64_t>(deleted, victims.size()); ++t) {
      std::swap(victims[t], victims[t + mulhi(random(), victims.size() - t)]);
      const uint32_t x = victims[t];
      if (level_[x] < levels) cells_[where_[x * levels + level_[x]]] = kNobody;
    }
    for (size_t i = 1; i < levels; ++i)
      for (uint64_t cell = first_[i]; cell < first_[i] + sizes[i]; ++cell) {
        const uint32_t x = cells_[cell];
        if (x == kNobody) continue;
        for (size_t j = 0; j < i; ++j) {
          uint32_t& to = cells_[where_[x * levels + j]];
          if (to != kNobody) continue;
          to = x;
          cells_[cell] = kNobody;
          ++moves;
          into_first += j == 0;
          break;
        }
      }
  }

 private:
  std::vector<uint64_t> first_;  // cell of each sub-table
  std::vector<uint32_t> cells_, where_, victims_;
  std::vector<uint8_t> level_;
};

}  // namespace

void SummarySimulation::check() const {
  check_sizes(keys, sizes);
  require(filters.size() == (shared ? 1 : sizes.size()), "filters must be " +
                                                             std::string(shared ? "one" : "one for each sub-table") +
                                                             ", not " + std::to_string(filters.size()));
  for (const Filter& each : filters) {
    require(each.hashes >= 1 && each.hashes <= kMostPositions,
            "hashes must be 1 to 256, not " + std::to_string(each.hashes));
    require(each.cells >= (partitioned ? each.hashes : 1) && each.cells <= kMostCells,
            "cells must be one for each hash at least and at most 2**32, not " + std::to_string(each.cells));
  }
}

SummaryCounts simulate_summaries(const SummarySimulation& simulation, uint64_t trials, uint64_t seed, uint32_t threads,
                                 const TrialPulse& pulse) {
  simulation.check();
  check_trials(trials, threads);
  const size_t levels = simulation.sizes.size();
  SummaryCounts out{Counts(trials * levels), Counts(trials * levels), Counts(trials)};
  const bool done = share_trials(trials, threads, pulse, [&](uint64_t t, const std::atomic<bool>& stop) {
    SummaryTrial(simulation, splitmix(seed, t))
        .run(stop, &out.passed[t * levels], &out.failures[t * levels], &out.positives[t]);
  });
  return done ? out : SummaryCounts{};
}

Counts simulate_counters(const SummarySimulation& simulation, const std::vector<bool>& once, uint64_t trials,
                         uint64_t seed, uint32_t threads, const TrialPulse& pulse) {
  require(!simulation.shared && !simulation.partitioned, "counters must be those of separate, unpartitioned filters");
  simulation.check();
  require(once.size() == simulation.sizes.size(), "once must be one for each filter");
  check_trials(trials, threads);
  const size_t levels = simulation.sizes.size();
  Counts out(trials * levels);
  const bool done = share_trials(trials, threads, pulse, [&](uint64_t t, const std::atomic<bool>& stop) {
    Xoshiro random(splitmix(seed, t));
    thread_local Bits taken;  // large ones: new memory for every trial would take longer than the trial
    thread_local std::vector<uint16_t> counters;
    const std::vector<uint64_t> left = throw_keys(simulation.keys, simulation.sizes, random, taken, stop);
    for (size_t i = 0; i < levels && !stop; ++i)
      out[t * levels + i] = largest_counter(left[i], simulation.filters[i], once[i], random, counters);
  });
  return done ? out : Counts{};
}

RebuildCounts simulate_rebuilds(uint64_t keys, const std::vector<uint64_t>& sizes, uint64_t deleted, bool first_only,
                                uint64_t trials, uint64_t seed, uint32_t threads, const TrialPulse& pulse) {
  check_sizes(keys, sizes);
  require(deleted <= keys, "deleted must be at most keys, not " + std::to_string(deleted));
  check_trials(trials, threads);
  RebuildCounts out{Counts(trials), Counts(trials), Counts(trials)};
  const bool done = share_trials(trials, threads, pulse, [&](uint64_t t, const std::atomic<bool>&) {
    thread_local RebuildTrial trial;
    trial.run(sizes, splitmix(seed, t), keys, deleted, first_only);
    out.moves[t] = trial.moves;
    out.into_first[t] = trial.into_first;
    out.crisis[t] = trial.crisis;
  });
  return done ? out : RebuildCounts{};
}

SongCounts simulate_song(uint64_t keys, uint64_t buckets, uint32_t hashes, uint64_t full, uint64_t trials,
                         uint64_t seed, uint32_t threads, const TrialPulse& pulse) {
  check_sizes(keys, {buckets});
  require(hashes >= 1 && hashes <= kMostPositions, "hashes must be 1 to 256, not " + std::to_string(hashes));
  check_trials(trials, threads);
  SongCounts out{Counts(trials), Counts(trials), Counts(trials), Counts(trials), Counts(trials)};
  const bool done = share_trials(trials, threads, pulse, [&](uint64_t t, const std::atomic<bool>& stop) {
    Xoshiro random(splitmix(seed, t));
    thread_local std::vector<uint32_t> at, counters, loads;
    at.resize(keys * hashes);
    counters.assign(buckets, 0);
    loads.assign(buckets, 0);
    for (size_t i = 0; i < at.size(); ++i) {
      if (i % kStretch == 0 && stop) return;
      ++counters[at[i] = static_cast<uint32_t>(mulhi(random(), buckets))];
    }
    for (const uint32_t each : counters) {
      out.counted[t] += each != 0;
      out.highest[t] = std::max<uint64_t>(out.highest[t], each);
    }
    for (uint64_t x = 0; x < keys; ++x) {
      const uint32_t* const own = &at[x * hashes];
      uint32_t best = own[0];
      for (uint32_t h = 1; h < hashes; ++h)
        if (counters[own[h]] < counters[best] || (counters[own[h]] == counters[best] && own[h] < best)) best = own[h];
      out.stuck[t] += counters[best] >= full;
      out.crowded[t] += loads[best] != 0;
      out.largest[t] = std::max<uint64_t>(out.largest[t], ++loads[best]);
    }
  });
  return done ? out : SongCounts{};
}

}  // namespace evenbins::study

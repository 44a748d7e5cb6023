#include "study/simulate_tables.hpp"

#include <array>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>

#include "study/simulate.hpp"
#include "study/trials.hpp"

namespace evenbins::study {
namespace {

using Scheme = TableSimulation::Scheme;
using Process = TableSimulation::Process;

constexpr uint64_t kMostCells = 1 << 30;
constexpr uint64_t kMostKeys = 1 << 28;
constexpr uint32_t kNone = UINT32_MAX;  // no key in a cell; no cell

// Two sorts of numbers: a key's id, 0 … (used again when the key is deleted), and a cell's index, over all levels.
// kSlots is the number of slots, or 0 if it is known at run time only.
template <Scheme scheme, uint32_t kSlots>
class TableTrial {
 public:
  TableTrial(const TableSimulation& simulation, uint64_t seed)
      : s_(simulation), levels_(static_cast<uint32_t>(simulation.buckets.size())), random_(seed) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < levels_; ++i) {
      first_[i] = all;
      all += s_.buckets[i];
    }
    cells_.assign(all * slots(), kNone);
    if constexpr (scheme == Scheme::conservative) marked_.assign(cells_.size(), 0);
    where_.reserve((s_.keys + 1) * levels_);
    level_.reserve(s_.keys + 1);
    if (s_.process != Process::insert) live_.reserve(s_.keys + 1);
  }

  // sample() is called for every sample. Stops early if told to.
  template <typename Sample>
  void run(const std::atomic<bool>& stop, const Sample& sample) {
    switch (s_.process) {
      case Process::insert: return run_insert(stop, sample);
      case Process::replace: return run_replace(stop, sample);
      case Process::poisson: return run_poisson(stop, sample);
    }
  }

  uint64_t arrivals = 0, moves = 0, overflow = 0;
  std::array<uint64_t, kMostLevels> held{};

 private:
  // --- the processes

  template <typename Sample>
  void run_insert(const std::atomic<bool>& stop, const Sample& sample) {
    if (grow(stop)) sample();
  }

  template <typename Sample>
  void run_replace(const std::atomic<bool>& stop, const Sample& sample) {
    if (!grow(stop)) return;
    const auto steps = static_cast<uint64_t>(std::llround(s_.burn_in * static_cast<double>(s_.keys)));
    const uint64_t all = steps + 1 + (s_.samples - 1) * s_.interval;
    for (uint64_t step = 0; step < all; ++step) {
      if (step % kStretch == 0 && stop) return;
      arrive();
      depart(static_cast<size_t>(mulhi(random_(), live_.size() - 1)));  // the last one is the new one
      if (step >= steps && (step - steps) % s_.interval == 0) sample();
    }
  }

  template <typename Sample>
  void run_poisson(const std::atomic<bool>& stop, const Sample& sample) {
    double time = 0;
    uint64_t left = s_.samples, since = 0;
    for (uint64_t step = 0; left != 0; ++step) {
      if (step % kStretch == 0 && stop) return;
      const uint64_t rate = s_.keys + live_.size();
      const double uniform = static_cast<double>((random_() >> 11) + 1) * 0x1p-53;  // above 0, at most 1
      time += -std::log(uniform) / static_cast<double>(rate);
      const uint64_t which = mulhi(random_(), rate);
      if (which < s_.keys)
        arrive();
      else
        depart(which - s_.keys);
      if (time > s_.burn_in && since++ % s_.interval == 0) sample(), --left;
    }
  }

  bool grow(const std::atomic<bool>& stop) {
    for (uint64_t i = 0; i < s_.keys; ++i) {
      if (i % kStretch == 0 && stop) return false;
      arrive();
    }
    return true;
  }

  void arrive() {
    uint32_t id;
    if (free_.empty()) {
      id = static_cast<uint32_t>(level_.size());
      level_.push_back(0);
      where_.resize(where_.size() + levels_);
    } else {
      id = free_.back();
      free_.pop_back();
    }
    if (s_.process != Process::insert) live_.push_back(id);
    uint32_t* const at = &where_[size_t{id} * levels_];
    for (uint32_t i = 0; i < levels_; ++i)
      at[i] = static_cast<uint32_t>((first_[i] + mulhi(random_(), s_.buckets[i])) * slots());
    ++arrivals;
    insert(id, at);
  }

  void depart(size_t position) {
    const uint32_t id = live_[position];
    live_[position] = live_.back();
    live_.pop_back();
    free_.push_back(id);
    const uint32_t level = level_[id];
    if (level == levels_) {
      --overflow;
      return;
    }
    uint32_t cell = where_[size_t{id} * levels_ + level];
    while (cells_[cell] != id) ++cell;
    cells_[cell] = kNone;
    if constexpr (scheme == Scheme::conservative) marked_[cell] = 0;
    --held[level];
  }

  // --- the schemes

  void insert(uint32_t x, const uint32_t* at) {
    bool in = false;
    if constexpr (scheme == Scheme::second_chance)
      in = second_chance(x, at);
    else if constexpr (scheme == Scheme::extreme_any || scheme == Scheme::extreme_right)
      in = extreme(x, at);
    else
      in = leftmost(x, at) || (scheme == Scheme::conservative && bump(x, at));
    if (!in) {
      level_[x] = static_cast<uint8_t>(levels_);
      ++overflow;
    }
  }

  bool leftmost(uint32_t x, const uint32_t* at) {
    for (uint32_t i = 0; i < levels_; ++i)
      if (const uint32_t cell = room(at[i]); cell != kNone) return put(x, cell, i);
    return false;
  }

  // Section 5.4, when x has found all its buckets full.
  bool bump(uint32_t x, const uint32_t* at) {
    for (uint32_t i = 0; i + 1 < levels_; ++i)
      for (uint32_t cell = at[i]; cell < at[i] + slots(); ++cell) {
        if (marked_[cell]) continue;
        marked_[cell] = 1;
        const uint32_t* const own = bucket_of(cells_[cell]);
        for (uint32_t k = i + 1; k < levels_; ++k)
          if (const uint32_t to = room(own[k]); to != kNone) return move(cell, to, k, x, i);
        return false;
      }
    return false;
  }

  // Figure 5.1.
  bool second_chance(uint32_t x, const uint32_t* at) {
    uint32_t cell = room(at[0]);
    for (uint32_t i = 0; i + 1 < levels_; ++i) {
      if (cell != kNone) return put(x, cell, i);
      cell = room(at[i + 1]);
      if (cell != kNone) continue;
      for (uint32_t from = at[i]; from < at[i] + slots(); ++from)
        if (const uint32_t to = room(bucket_of(cells_[from])[i + 1]); to != kNone) return move(from, to, i + 1, x, i);
    }
    return cell != kNone && put(x, cell, levels_ - 1);
  }

  // Section 5.6: z is the leftmost level found so far with room, for x or for a y, and `to` the cell there.
  bool extreme(uint32_t x, const uint32_t* at) {
    uint32_t z = 0, to = kNone, from = kNone, from_level = 0;
    for (; z < levels_; ++z)
      if ((to = room(at[z])) != kNone) break;
    for (uint32_t i = 0; i < levels_; ++i) {
      if constexpr (scheme == Scheme::extreme_right)
        if (i >= z) break;
      if (room(at[i]) != kNone) continue;
      for (uint32_t cell = at[i]; cell < at[i] + slots(); ++cell) {
        const uint32_t* const own = bucket_of(cells_[cell]);
        for (uint32_t k = scheme == Scheme::extreme_right ? i + 1 : 0; k < z; ++k)
          if (const uint32_t found = room(own[k]); found != kNone) {
            z = k, to = found, from = cell, from_level = i;
            break;
          }
      }
    }
    if (z == levels_) return false;
    return from == kNone ? put(x, to, z) : move(from, to, z, x, from_level);
  }

  // --- cells

  uint32_t slots() const {
    if constexpr (kSlots != 0)
      return kSlots;
    else
      return s_.slots;
  }

  const uint32_t* bucket_of(uint32_t id) const { return &where_[size_t{id} * levels_]; }

  // The first empty cell of the bucket that begins at this cell.
  uint32_t room(uint32_t bucket) const {
    for (uint32_t cell = bucket; cell < bucket + slots(); ++cell)
      if (cells_[cell] == kNone) return cell;
    return kNone;
  }

  bool put(uint32_t id, uint32_t cell, uint32_t level) {
    cells_[cell] = id;
    level_[id] = static_cast<uint8_t>(level);
    ++held[level];
    return true;
  }

  // y goes from one cell to another, x takes its place.
  bool move(uint32_t from, uint32_t to, uint32_t to_level, uint32_t x, uint32_t level) {
    put(cells_[from], to, to_level);
    cells_[from] = x;
    level_[x] = static_cast<uint8_t>(level);
    ++moves;
    return true;
  }

  const TableSimulation& s_;
  uint32_t levels_;
  Xoshiro random_;
  std::array<uint64_t, kMostLevels> first_{};  // bucket of each level
  std::vector<uint32_t> cells_;                // the key in each
  std::vector<uint8_t> marked_;                // cells, conservative only
  std::vector<uint32_t> where_;                // [id * levels + i]: the first cell of the key's bucket in level i
  std::vector<uint8_t> level_;                 // [id]: where the key is; levels_ is the list
  std::vector<uint32_t> live_, free_;          // ids
};

template <Scheme scheme, uint32_t kSlots>
void run_trial(const TableSimulation& simulation, uint64_t seed, const std::atomic<bool>& stop, size_t at,
               TableCounts& out) {
  TableTrial<scheme, kSlots> trial(simulation, seed);
  const size_t levels = simulation.buckets.size();
  trial.run(stop, [&] {
    out.arrivals[at] = trial.arrivals;
    out.moves[at] = trial.moves;
    out.overflow[at] = trial.overflow;
    for (size_t i = 0; i < levels; ++i) out.held[at * levels + i] = trial.held[i];
    ++at;
  });
}

template <Scheme scheme>
auto runner(uint32_t slots) {
  return slots == 1 ? run_trial<scheme, 1> : slots == 2 ? run_trial<scheme, 2> : run_trial<scheme, 0>;
}

auto runner(Scheme scheme, uint32_t slots) {
  switch (scheme) {
    case Scheme::standard: return runner<Scheme::standard>(slots);
    case Scheme::conservative: return runner<Scheme::conservative>(slots);
    case Scheme::second_chance: return runner<Scheme::second_chance>(slots);
    case Scheme::extreme_any: return runner<Scheme::extreme_any>(slots);
    case Scheme::extreme_right: return runner<Scheme::extreme_right>(slots);
  }
  throw std::invalid_argument("scheme must be one of those of simulate_tables.hpp");
}

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::invalid_argument(otherwise);
}

}  // namespace

void TableSimulation::check() const {
  require(!buckets.empty() && buckets.size() <= kMostLevels,
          "buckets must be of 1 to " + std::to_string(kMostLevels) + " levels, not " + std::to_string(buckets.size()));
  require(slots >= 1 && slots <= kMostSlots,
          "slots must be 1 to " + std::to_string(kMostSlots) + ", not " + std::to_string(slots));
  uint64_t all = 0;
  for (const uint64_t each : buckets) {
    require(each >= 1 && each <= kMostCells,
            "buckets must be 1 to 2**30 in each level, not " + std::to_string(each) + ": give each level a bucket");
    all += each;
  }
  require(all * slots <= kMostCells,
          "buckets must have at most 2**30 slots in all, not " + std::to_string(all * slots));
  require(keys <= kMostKeys, "keys must be 0 to 2**28, not " + std::to_string(keys));
  require(process == Process::insert || keys >= 1, "keys must be 1 or more for a process with deletions, not 0");
  require(burn_in >= 0 && burn_in <= 1e6, "burn_in must be 0 to 1000000, not " + std::to_string(burn_in));
  require(samples >= 1 && samples <= 1 << 24, "samples must be 1 to 2**24, not " + std::to_string(samples));
  require(process != Process::insert || samples == 1, "samples must be 1 without deletions: there is one end");
  require(interval >= 1 && interval <= uint64_t{1} << 32,
          "interval must be 1 to 2**32, not " + std::to_string(interval));
}

TableCounts simulate_tables(const TableSimulation& simulation, uint64_t trials, uint64_t seed, uint32_t threads,
                            const std::function<bool(uint64_t)>& pulse) {
  simulation.check();
  require(trials >= 1 && trials <= uint64_t{1} << 32, "trials must be 1 to 2**32, not " + std::to_string(trials));
  require(threads >= 1, "threads must be 1 or more, not 0");
  const auto run = runner(simulation.scheme, simulation.slots);
  const size_t rows = trials * simulation.samples;
  TableCounts out;
  for (auto* counts : {&out.arrivals, &out.moves, &out.overflow}) counts->resize(rows);
  out.held.resize(rows * simulation.buckets.size());
  const bool done = share_trials(trials, threads, pulse, [&](uint64_t t, const std::atomic<bool>& stop) {
    run(simulation, splitmix(seed, t), stop, t * simulation.samples, out);
  });
  return done ? out : TableCounts{};
}

}  // namespace evenbins::study

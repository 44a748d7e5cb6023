#include "study/simulate_rings.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "study/simulate.hpp"
#include "study/trials.hpp"

namespace evenbins::study {
namespace {

using Policy = RingSimulation::Policy;
using Layout = RingSimulation::Layout;

constexpr uint64_t kNever = UINT64_MAX;
constexpr uint32_t kNoBin = UINT32_MAX;
constexpr uint32_t kNoPlace = UINT32_MAX;
constexpr uint64_t kCoin = 62;  // the word of a draw that decides whether it is biased
constexpr uint64_t kMostPlaces = 1 << 22;
constexpr uint64_t kMostKeys = 1 << 28;
constexpr uint64_t kMostLimit = 1 << 20;

struct Cost {
  uint64_t searches = 0, steps = 0;
};

// Places are known by their rank, 0 … m−1, in ascending order of where they are; slots too.
class RingTrial {
 public:
  RingTrial(const RingSimulation& simulation, uint64_t seed)
      : s_(simulation), random_(seed), bins(simulation.bins), keys(simulation.keys) {
    if (s_.churn) change();
    places_ = static_cast<uint32_t>(bins * s_.copies);
    if (s_.layout == Layout::sparse)
      draw_places();
    else
      draw_slots();
    if (s_.policy == Policy::rehash_bin) draw_order();
    next_.resize(places_);
    std::iota(next_.begin(), next_.end(), 0U);
    first_of_.assign(bins + 1, 0);
    for (const uint32_t bin : owner_) ++first_of_[bin + 1];
    std::partial_sum(first_of_.begin(), first_of_.end(), first_of_.begin());
    places_of_.resize(places_);
    std::vector<uint32_t> at(first_of_.begin(), first_of_.end() - 1);
    for (uint32_t i = 0; i < places_; ++i) places_of_[at[owner_[i]]++] = i;
    loads.assign(bins, 0);
    if (s_.bias > 0) draw_bias();
  }

  // Places all keys. Stops early if told to.
  void fill(const std::atomic<bool>& stop) {
    if (s_.remove) digests_.resize(keys), bin_of_.resize(keys);
    for (uint64_t i = 0; i < keys; ++i) {
      if (i % 1024 == 0 && stop) return;
      const uint64_t d = random_();
      const uint32_t bin = owner_[place(d)];
      if (s_.remove) digests_[i] = d, bin_of_[i] = bin;
      if (put(bin) && first_full == kNever) first_full = i + 1;
    }
  }

  // What one more key costs; it is not placed.
  Cost look() {
    Cost cost;
    walk(random_(), kNoBin, cost);
    return cost;
  }

  // Removes a random bin and places its keys anew: how many there were, and their cost.
  uint64_t remove(Cost& cost) {
    const auto gone = static_cast<uint32_t>(mulhi(random_(), bins));
    uint64_t count = 0;
    for (uint64_t i = 0; i < keys; ++i)
      if (bin_of_[i] == gone) {
        ++count;
        ++loads[owner_[walk(digests_[i], gone, cost)]];
      }
    return count;
  }

  // The same by the clock, in the array itself.
  std::pair<double, double> time(uint64_t probes) {
    std::vector<uint32_t> array(s_.layout == Layout::sparse ? size_t{1} << s_.array_bits : slots_, kNoBin);
    for (uint32_t i = 0; i < places_; ++i) array[at_[i]] = owner_[i];
    std::vector<uint64_t> fresh(probes);
    for (uint64_t& d : fresh) d = random_();
    const double insert = nanoseconds(array, fresh, false);
    const auto gone = static_cast<uint32_t>(mulhi(random_(), bins));
    std::vector<uint64_t> old;
    for (uint64_t i = 0; i < keys && old.size() < probes; ++i)
      if (bin_of_[i] == gone) old.push_back(digests_[i]);
    for (uint32_t& bin : array)
      if (bin == gone) bin = kNoBin;
    return {insert, nanoseconds(array, old, true)};
  }

 private:
  const RingSimulation& s_;
  Xoshiro random_;

 public:
  uint64_t bins, keys;
  uint64_t first_full = kNever, all_searches = 0, all_hashes = 0;
  std::vector<uint32_t> loads;

 private:
  // --- what a trial begins with

  void change() {
    for (;;) {
      auto k = static_cast<int64_t>(s_.keys), b = static_cast<int64_t>(s_.bins);
      bool possible = true;
      for (uint64_t left = s_.keys; left != 0;) {
        const uint64_t which = mulhi(random_(), s_.keys + s_.bins);
        const int64_t change = random_() >> 63 != 0 ? 1 : -1;
        if (which < s_.keys)
          k += change, --left;
        else
          b += change;
        possible = possible && k >= 0 && b >= 1;
      }
      const int64_t others = b - (s_.remove ? 1 : 0);
      if (!possible || others < 1 || others * static_cast<int64_t>(s_.limit) <= k) continue;
      if (s_.layout == Layout::sparse && static_cast<uint64_t>(b) * s_.copies > uint64_t{1} << (s_.array_bits - 1))
        continue;
      keys = static_cast<uint64_t>(k), bins = static_cast<uint64_t>(b);
      return;
    }
  }

  // Copy j of bin i is the (j · bins + i)-th place drawn.
  void draw_places() {
    const uint32_t shift = 64 - s_.array_bits;
    std::vector<std::pair<uint32_t, uint32_t>> drawn;  // where, bin
    drawn.reserve(places_);
    std::vector<uint64_t> taken((uint64_t{1} << s_.array_bits) / 64 + 1);
    for (uint32_t i = 0; i < places_; ++i) {
      uint64_t p;
      do p = random_() >> shift;
      while ((taken[p / 64] >> (p % 64) & 1) != 0);
      taken[p / 64] |= uint64_t{1} << (p % 64);
      drawn.emplace_back(static_cast<uint32_t>(p), static_cast<uint32_t>(i % bins));
    }
    std::sort(drawn.begin(), drawn.end());
    for (const auto& [p, bin] : drawn) at_.push_back(p), owner_.push_back(bin);
    // stretch_[b]: the rank of the first place in or after stretch b of the array
    while ((uint64_t{1} << stretch_bits_) < places_ && stretch_bits_ < s_.array_bits) ++stretch_bits_;
    const uint64_t stretches = uint64_t{1} << stretch_bits_;
    stretch_.resize(stretches);
    uint32_t rank = 0;
    for (uint64_t b = 0; b < stretches; ++b) {
      while (rank < places_ && at_[rank] < b << (s_.array_bits - stretch_bits_)) ++rank;
      stretch_[b] = rank;
    }
  }

  // Bins in the order of their copies, then the empty slots; shuffled only if there are empty ones.
  void draw_slots() {
    slots_ = places_ + s_.empty;
    std::vector<uint32_t> order(slots_);
    std::iota(order.begin(), order.end(), 0U);
    if (s_.empty != 0) shuffle(order);
    rank_.assign(slots_, kNoPlace);
    for (uint32_t slot = 0; slot < slots_; ++slot)
      if (order[slot] < places_) {
        rank_[slot] = static_cast<uint32_t>(at_.size());
        at_.push_back(slot);
        owner_.push_back(static_cast<uint32_t>(order[slot] % bins));
      }
  }

  void draw_order() {
    order_.resize(places_);
    std::iota(order_.begin(), order_.end(), 0U);
    shuffle(order_);
    turn_.resize(places_);
    for (uint32_t t = 0; t < places_; ++t) turn_[order_[t]] = t;
  }

  void draw_bias() {
    if (s_.layout == Layout::dense || s_.bias_on_bin) {
      biased_rank_ = static_cast<uint32_t>(mulhi(random_(), places_));
      biased_at_ = at_[biased_rank_];
    } else {
      do biased_at_ = random_() >> (64 - s_.array_bits);
      while (std::binary_search(at_.begin(), at_.end(), static_cast<uint32_t>(biased_at_)));
    }
    // of a jump that ends on an occupied place: the chance that it was a biased one
    const double uniform =
        (1 - s_.bias) * static_cast<double>(places_) /
        (s_.layout == Layout::sparse ? std::ldexp(1.0, static_cast<int>(s_.array_bits)) : static_cast<double>(slots_));
    jump_bias_ = biased_rank_ == kNoPlace ? 0 : s_.bias / (s_.bias + uniform);
  }

  void shuffle(std::vector<uint32_t>& order) {
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[mulhi(random_(), i)]);
  }

  // --- places

  bool open(uint32_t rank) const { return loads[owner_[rank]] < s_.limit; }
  uint32_t after(uint32_t rank) const { return rank + 1 == places_ ? 0 : rank + 1; }

  // The first place at or after an index of the array, cyclic.
  uint32_t next_place(uint64_t index) const {
    uint32_t rank = stretch_[index >> (s_.array_bits - stretch_bits_)];
    while (rank < places_ && at_[rank] < index) ++rank;
    return rank == places_ ? 0 : rank;
  }

  static bool chosen(uint64_t word, double chance) {
    return static_cast<double>(splitmix(word, kCoin) >> 11) < chance * 0x1p53;
  }

  // Draw c of a key into the sparse array: an index.
  uint64_t index(uint64_t word) const {
    return s_.bias > 0 && chosen(word, s_.bias) ? biased_at_ : word >> (64 - s_.array_bits);
  }

  // --- placement, fast

  // The rank of a place for a key, by the policy; counts searches and hashes.
  uint32_t place(uint64_t d) {
    uint64_t c = 0;
    uint32_t rank = probe(d, c);
    ++all_searches;
    if (s_.policy == Policy::plain || open(rank)) return rank;
    switch (s_.policy) {
      case Policy::clockwise: return skip(rank);
      case Policy::rehash_bin: return order_[skip(turn_[rank])];
      default:
        do {
          rank = probe(d, c);
          ++all_searches;
        } while (!open(rank));
        return rank;
    }
  }

  // The occupied place of the next draw that has one.
  uint32_t probe(uint64_t d, uint64_t& c) {
    for (;;) {
      const uint64_t word = splitmix(d, c++);
      ++all_hashes;
      if (s_.layout == Layout::dense) {
        if (s_.bias > 0 && chosen(word, s_.bias) && (s_.policy != Policy::jump || open(biased_rank_)))
          return biased_rank_;
        const uint32_t rank = rank_[dense_slot(word, static_cast<uint32_t>(slots_), [&] { ++all_hashes; })];
        if (rank != kNoPlace) return rank;
      } else if (s_.policy == Policy::jump) {
        if (jump_bias_ > 0 && open(biased_rank_) && chosen(word, jump_bias_)) return biased_rank_;
        return static_cast<uint32_t>(mulhi(word, places_));
      } else {
        return next_place(index(word));
      }
    }
  }

  // From a place (clockwise) or a turn (rehash_bin) to the next one open; there is one.
  uint32_t skip(uint32_t from) {
    uint32_t to = from;
    while (next_[to] != to) to = next_[to] = next_[next_[to]];
    all_searches += to >= from ? to - from : to + places_ - from;
    return to;
  }

  // One key into a bin; whether it is full now.
  bool put(uint32_t bin) {
    if (++loads[bin] != s_.limit) return false;
    if (s_.policy == Policy::clockwise || s_.policy == Policy::rehash_bin)
      for (uint32_t i = first_of_[bin]; i < first_of_[bin + 1]; ++i) {
        const uint32_t at = s_.policy == Policy::clockwise ? places_of_[i] : turn_[places_of_[i]];
        next_[at] = after(at);
      }
    return true;
  }

  // --- placement, as one walks, one bin left out

  uint64_t far(uint64_t index, bool last) const {  // in the array of 2^step_bits
    const uint32_t more = s_.step_bits - s_.array_bits;
    return last ? ((index + 1) << more) - 1 : index << more;
  }

  // Where the draw is in the large array, and the first place from there that is not of the bin `gone`.
  uint32_t upwards(uint64_t word, uint32_t gone, Cost& cost) const {
    const bool biased = s_.bias > 0 && chosen(word, s_.bias);
    const uint64_t from = biased ? far(biased_at_, false) : word >> (64 - s_.step_bits);
    uint32_t rank = next_place(index(word));
    while (owner_[rank] == gone) rank = after(rank);
    cost.steps += distance(from, rank) + 1;
    return rank;
  }

  uint64_t distance(uint64_t from, uint32_t rank) const {
    return (far(at_[rank], true) - from) & ((uint64_t{1} << s_.step_bits) - 1);
  }

  // The occupied place, not of `gone`, of the next draw that has one.
  uint32_t draw(uint64_t d, uint64_t& c, uint32_t gone, Cost& cost) {
    for (;;) {
      const uint64_t word = splitmix(d, c++);
      uint32_t rank;
      if (s_.layout == Layout::dense) {
        uint64_t hashes = 0;
        ++cost.steps;
        if (s_.bias > 0 && chosen(word, s_.bias) && (s_.policy != Policy::jump || open(biased_rank_)))
          rank = biased_rank_;
        else
          rank = rank_[dense_slot(word, static_cast<uint32_t>(slots_), [&] { ++hashes; })];
        if (rank == kNoPlace) continue;
      } else if (s_.policy == Policy::jump) {
        cost.steps += geometric(std::ldexp(static_cast<double>(places_), -static_cast<int>(s_.step_bits)));
        rank = jump_bias_ > 0 && open(biased_rank_) && chosen(word, jump_bias_)
                   ? biased_rank_
                   : static_cast<uint32_t>(mulhi(word, places_));
      } else {
        return upwards(word, gone, cost);
      }
      if (owner_[rank] != gone) return rank;
    }
  }

  uint64_t geometric(double chance) {
    const double uniform = static_cast<double>((random_() >> 11) + 1) * 0x1p-53;  // above 0, at most 1
    return 1 + static_cast<uint64_t>(std::log(uniform) / std::log1p(-chance));
  }

  uint32_t walk(uint64_t d, uint32_t gone, Cost& cost) {
    uint64_t c = 0;
    uint32_t rank = draw(d, c, gone, cost);
    ++cost.searches;
    while (s_.policy != Policy::plain && !open(rank)) {
      const uint32_t from = rank;
      switch (s_.policy) {
        case Policy::clockwise:
          do rank = after(rank);
          while (owner_[rank] == gone);
          if (s_.layout == Layout::dense)
            cost.steps += at_[rank] > at_[from] ? at_[rank] - at_[from] : at_[rank] + slots_ - at_[from];
          else
            cost.steps += distance(far(at_[from], true), rank);
          break;
        case Policy::rehash_bin:
          do rank = order_[after(turn_[rank])];
          while (owner_[rank] == gone);
          ++cost.steps;
          break;
        default: rank = draw(d, c, gone, cost);
      }
      ++cost.searches;
    }
    return rank;
  }

  // --- by the clock

  double nanoseconds(const std::vector<uint32_t>& array, const std::vector<uint64_t>& digests, bool keep) {
    if (digests.empty()) return -1;
    const auto begun = std::chrono::steady_clock::now();
    uint64_t sum = 0;
    for (const uint64_t d : digests) {
      const uint32_t bin = literal(array, d);
      sum += bin;
      if (keep) ++loads[bin];
    }
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begun;
    sink_ = sum;
    return taken.count() / static_cast<double>(digests.size());
  }

  uint32_t literal(const std::vector<uint32_t>& array, uint64_t d) const {
    const uint64_t size = array.size();
    const bool dense = s_.layout == Layout::dense, jumps = s_.policy == Policy::jump;
    const auto takes = [&](uint32_t bin) { return s_.policy == Policy::plain || loads[bin] < s_.limit; };
    uint64_t hashes = 0;
    for (uint64_t c = 0;;) {
      const uint64_t word = splitmix(d, c++);
      uint64_t i =
          dense ? dense_slot(word, static_cast<uint32_t>(size), [&] { ++hashes; }) : word >> (64 - s_.array_bits);
      if (array[i] == kNoBin && (dense || jumps)) continue;
      while (array[i] == kNoBin) i = i + 1 == size ? 0 : i + 1;
      if (takes(array[i])) return array[i];
      if (s_.policy == Policy::clockwise)
        for (;;) {
          i = i + 1 == size ? 0 : i + 1;
          if (array[i] != kNoBin && takes(array[i])) return array[i];
        }
    }
  }

  uint32_t places_ = 0;
  uint64_t slots_ = 0;             // dense
  std::vector<uint32_t> at_;       // [rank]: index in the array, or slot
  std::vector<uint32_t> owner_;    // [rank]: bin
  std::vector<uint32_t> rank_;     // [slot], dense
  std::vector<uint32_t> stretch_;  // sparse
  uint32_t stretch_bits_ = 0;
  std::vector<uint32_t> order_, turn_;          // rehash_bin: place of each turn, turn of each place
  std::vector<uint32_t> next_;                  // by rank or turn: itself if open, else one nearer to an open one
  std::vector<uint32_t> first_of_, places_of_;  // places of each bin
  std::vector<uint64_t> digests_;
  std::vector<uint32_t> bin_of_;
  uint64_t biased_at_ = 0;
  uint32_t biased_rank_ = kNoPlace;
  double jump_bias_ = 0;
  volatile uint64_t sink_ = 0;
};

void count(RingTrial& trial, const RingSimulation& s, uint64_t t, RingCounts& out) {
  double squares = 0;
  uint64_t* const histogram = &out.loads[t * (s.limit + 1)];
  uint32_t most = 0;
  for (const uint32_t load : trial.loads) {
    squares += static_cast<double>(load) * load;
    most = std::max(most, load);
    ++histogram[std::min<uint64_t>(load, s.limit)];
  }
  const auto bins = static_cast<double>(trial.bins);
  const double mean = static_cast<double>(trial.keys) / bins;
  out.keys[t] = trial.keys;
  out.bins[t] = trial.bins;
  out.variance[t] = squares / bins - mean * mean;
  out.max_load[t] = most;
  out.first_full[t] = trial.first_full;
  out.all_searches[t] = trial.all_searches;
  out.all_hashes[t] = s.layout == Layout::dense ? trial.all_hashes : 0;
  const Cost cost = trial.look();
  out.searches[t] = cost.searches;
  out.steps[t] = cost.steps;
  if (!s.remove) return;
  Cost removal;
  out.removed[t] = trial.remove(removal);
  out.removed_searches[t] = removal.searches;
  out.removed_steps[t] = removal.steps;
}

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::invalid_argument(otherwise);
}

void require_trials(uint64_t trials, uint32_t threads) {
  require(trials >= 1 && trials <= 1 << 24, "trials must be 1 to 2**24, not " + std::to_string(trials));
  require(threads >= 1, "threads must be 1 or more, not 0");
}

}  // namespace

void RingSimulation::check() const {
  require(array_bits >= 4 && array_bits <= 26, "array_bits must be 4 to 26, not " + std::to_string(array_bits));
  require(step_bits >= array_bits && step_bits <= 40,
          "step_bits must be array_bits to 40, not " + std::to_string(step_bits));
  require(bins >= 1 && copies >= 1 && bins <= kMostPlaces && copies <= kMostPlaces && bins * copies <= kMostPlaces,
          "bins and copies must be 1 or more, and at most 2**22 places together, not " + std::to_string(bins) +
              " and " + std::to_string(copies));
  require(layout == Layout::dense || bins * copies <= uint64_t{1} << (array_bits - 1),
          "bins * copies must fill at most half of the array, not " + std::to_string(bins * copies) +
              ": raise array_bits or use the dense layout");
  require(empty <= kMostPlaces && (empty == 0 || layout == Layout::dense),
          "empty must be 0 to 2**22, and 0 for the sparse layout, not " + std::to_string(empty));
  require(keys <= kMostKeys, "keys must be 0 to 2**28, not " + std::to_string(keys));
  require(limit >= 1 && limit <= kMostLimit, "limit must be 1 to 2**20, not " + std::to_string(limit));
  const uint64_t others = bins - (remove ? 1 : 0);
  require(others >= 1, "bins must be 2 or more if one is removed, not 1");
  require(policy == Policy::plain || others * limit > keys, "limit must leave room for one key more than " +
                                                                std::to_string(keys) + ", not " +
                                                                std::to_string(limit) + ": raise it");
  require(bias >= 0 && bias < 1, "bias must be 0 to 1, 1 excluded, not " + std::to_string(bias));
}

RingCounts simulate_rings(const RingSimulation& simulation, uint64_t trials, uint64_t seed, uint32_t threads,
                          const RingPulse& pulse) {
  simulation.check();
  require_trials(trials, threads);
  RingCounts out;
  for (auto* counts : {&out.keys, &out.bins, &out.max_load, &out.first_full, &out.searches, &out.steps,
                       &out.all_searches, &out.all_hashes, &out.removed, &out.removed_searches, &out.removed_steps})
    counts->resize(trials);
  out.variance.resize(trials);
  out.loads.resize(trials * (simulation.limit + 1));
  const bool done = share_trials(trials, threads, pulse, [&](uint64_t t, const std::atomic<bool>& stop) {
    RingTrial trial(simulation, splitmix(seed, t));
    trial.fill(stop);
    if (!stop) count(trial, simulation, t, out);
  });
  return done ? out : RingCounts{};
}

std::vector<double> simulate_ring_shares(uint64_t bins, uint64_t limit, bool random_arcs, uint64_t trials,
                                         uint64_t seed, uint32_t threads, const RingPulse& pulse) {
  require(bins >= 2 && bins <= 1 << 20, "bins must be 2 to 2**20, not " + std::to_string(bins));
  require(limit <= kMostLimit, "limit must be 0 to 2**20, not " + std::to_string(limit));
  require_trials(trials, threads);
  std::vector<double> out(trials * bins);
  const bool done = share_trials(trials, threads, pulse, [&](uint64_t t, const std::atomic<bool>& stop) {
    Xoshiro random(splitmix(seed, t));
    // Bin i owns the words above end[i − 1], up to end[i]; what lies above the last one is the first one's.
    std::vector<uint64_t> end(bins);
    for (uint64_t i = 0; i < bins; ++i) end[i] = random_arcs ? random() : UINT64_MAX / bins * (i + 1);
    std::sort(end.begin(), end.end());
    std::vector<double> arc(bins);  // of the open bin that owns it; a full one's is the next open one's
    for (uint64_t i = 0; i < bins; ++i)
      arc[i] = random_arcs ? static_cast<double>(end[i] - end[i == 0 ? bins - 1 : i - 1]) * 0x1p-64
                           : 1.0 / static_cast<double>(bins);
    std::vector<uint32_t> next(bins), order(bins);
    std::vector<uint64_t> load(bins);
    std::iota(next.begin(), next.end(), 0U);
    std::iota(order.begin(), order.end(), 0U);
    if (limit == 0)
      for (size_t i = bins; i > 1; --i) std::swap(order[i - 1], order[mulhi(random(), i)]);
    const auto find = [&](uint32_t i) {
      while (next[i] != i) i = next[i] = next[next[i]];
      return i;
    };
    double squares = 0;
    for (const double each : arc) squares += each * each;
    for (uint64_t full = 0; full < bins && !stop; ++full) {
      const auto left = static_cast<double>(bins - full);
      out[t * bins + full] = std::max(0.0, squares / left - 1 / (left * left));
      if (full + 1 == bins) break;
      uint32_t bin = order[full];
      if (limit != 0) do {
          const uint64_t word = random();
          const uint64_t at = random_arcs
                                  ? static_cast<uint64_t>(std::lower_bound(end.begin(), end.end(), word) - end.begin())
                                  : mulhi(word, bins);
          bin = find(static_cast<uint32_t>(at == bins ? 0 : at));
        } while (++load[bin] < limit);
      next[bin] = bin + 1 == bins ? 0 : bin + 1;
      const uint32_t heir = find(next[bin]);
      squares += 2 * arc[bin] * arc[heir];
      arc[heir] += arc[bin];
    }
  });
  if (!done) out.clear();
  return out;
}

RingTimes time_rings(const RingSimulation& simulation, uint64_t probes, uint64_t trials, uint64_t seed,
                     const RingPulse& pulse) {
  simulation.check();
  require_trials(trials, 1);
  require(probes >= 1 && probes <= 1 << 24, "probes must be 1 to 2**24, not " + std::to_string(probes));
  require(simulation.policy != Policy::rehash_bin && simulation.bias == 0 && simulation.remove,
          "policy must not be rehash-bin, bias must be 0 and remove true for times");
  RingTimes out;
  out.insert.resize(trials);
  out.removed.resize(trials);
  const bool done = share_trials(trials, 1, pulse, [&](uint64_t t, const std::atomic<bool>& stop) {
    RingTrial trial(simulation, splitmix(seed, t));
    trial.fill(stop);
    if (!stop) std::tie(out.insert[t], out.removed[t]) = trial.time(probes);
  });
  return done ? out : RingTimes{};
}

}  // namespace evenbins::study

#include "evenbins/countmin.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <stdexcept>

#include "evenbins/stretches.hpp"

namespace evenbins {
namespace {

constexpr uint64_t kTwoHash = 1, kClassic = 2;
constexpr uint64_t kCountersPerThread = 1 << 15;  // additions that pay for a thread
constexpr uint64_t kRoundCounters = 1 << 20, kRoundKeys = 1 << 17;

bool is_fraction(uint64_t bits) {
  const auto x = std::bit_cast<double>(bits);
  return x > 0 && x < 1;
}

}  // namespace

uint64_t CountMinSketch::payload_bytes(const Spec& spec) {
  if (spec.hashing != Hashing::independent) throw SpecError("a count-min sketch needs independent hashing");
  if (spec.capacity != 1) throw SpecError("a count-min sketch has no capacity: the field must be 1");
  if (spec.core.size() != 7) throw SpecError("a count-min sketch has seven numbers in its core");
  const uint64_t construction = spec.core[0], width = spec.core[1], depth = spec.core[2], copies = spec.core[3];
  if (construction != kTwoHash && construction != kClassic) throw SpecError("construction must be 1 or 2");
  if (width < 1 || width > kMaxWidth) throw SpecError("width must be 1 … 2^32");
  if (depth < 1 || copies < 1 || depth > kMaxRows || copies > kMaxRows || depth * copies > kMaxRows)
    throw SpecError("a count-min sketch must have 1 … 1024 rows");
  if (construction == kClassic && copies != 1) throw SpecError("a classic sketch has one copy");
  if (spec.core[4] > 1) throw SpecError("conservative must be 0 or 1");
  if (!is_fraction(spec.core[5]) || !is_fraction(spec.core[6]))
    throw SpecError("epsilon and delta must lie between 0 and 1");
  return 8 * (width * depth * copies + kStateWords);
}

CountMinSketch::CountMinSketch(Spec spec, Bits bits)
    : spec_(std::move(spec)),
      bits_(std::move(bits)),
      conservative_(spec_.core[4] != 0),
      view_{.counters = bits_.words(),
            .width = spec_.core[1],
            .depth = spec_.core[2],
            .rows = spec_.core[2] * spec_.core[3],
            .two_hash = spec_.core[0] == kTwoHash},
      state_(bits_.words() + view_.rows * view_.width) {}

uint64_t CountMinSketch::keys_per_call(uint32_t threads) const {
  return threads < 2 ? 1024 : std::clamp<uint64_t>(kRoundCounters / view_.rows, 1024, kRoundKeys);
}

size_t CountMinSketch::add_many(const uint64_t* digests, const uint64_t* weights, size_t n, uint64_t* estimates,
                                uint32_t threads) {
  uint64_t total = state_[0], updates = 0;
  size_t taken = 0;
  if (weights == nullptr) {
    taken = updates = std::min<uint64_t>(n, ~uint64_t{0} - total);
    total += taken;
  }
  for (; weights != nullptr && taken < n && weights[taken] <= ~uint64_t{0} - total; ++taken) {
    total += weights[taken];
    updates += weights[taken] != 0;
  }
  // The counters first: a look-up that runs meanwhile finds them no later than the total.
  const uint64_t counters = view_.rows * view_.width;
  const uint64_t owners = std::min<uint64_t>({threads, taken * view_.rows / kCountersPerThread, counters / 64});
  if (conservative_)
    loops_.add_conservatively(view_, digests, weights, taken, estimates);
  else if (owners > 1)
    add_by_owners(digests, weights, taken, estimates, static_cast<uint32_t>(owners));
  else {
    if (estimates != nullptr) std::fill_n(estimates, taken, ~uint64_t{0});
    loops_.add(view_, 0, counters, digests, weights, taken, estimates);
  }
  state_[0] = total;
  state_[1] += updates;
  return taken;
}

void CountMinSketch::add_by_owners(const uint64_t* digests, const uint64_t* weights, size_t n, uint64_t* estimates,
                                   uint32_t owners) {
  const auto bound = [&](uint64_t owner) {  // at the beginning of a cache line
    const uint64_t counters = view_.rows * view_.width;
    return owner == owners ? counters : counters * owner / owners / 8 * 8;  // below 2^42 · 2^10
  };
  const auto always = [] { return true; };  // a round is made whole
  // The least counters of each owner; those of the first in `estimates`.
  const size_t words = estimates == nullptr ? 0 : (owners - 1) * n;
  const auto others = std::make_unique_for_overwrite<uint64_t[]>(words);
  for_stretches(owners, owners, 1, always, [&](uint64_t owner, uint64_t) {
    uint64_t* least = estimates == nullptr || owner == 0 ? estimates : others.get() + (owner - 1) * n;
    if (least != nullptr) std::fill_n(least, n, ~uint64_t{0});
    loops_.add(view_, bound(owner), bound(owner + 1), digests, weights, n, least);
  });
  if (estimates == nullptr) return;
  for_stretches(n, owners, (n + owners - 1) / owners, always, [&](uint64_t start, uint64_t count) {
    for (size_t at = start; at < words; at += n)
      for (uint64_t i = 0; i < count; ++i) estimates[start + i] = std::min(estimates[start + i], others[at + i]);
  });
}

void CountMinSketch::require_fitting(const CountMinSketch& other, const char* action,
                                     const char* why_not_conservative) const {
  const Spec &a = spec_, &b = other.spec_;
  const std::string cannot = std::string("cannot ") + action + ": ";
  if (a.core != b.core)
    throw SpecError(cannot + "the two sketches have different parameters. Build both with the same arguments");
  if (a.seed != b.seed)  // not which: a seed may be a secret
    throw SpecError(cannot + "their seeds differ. Build both with the same arguments");
  if (conservative_ && why_not_conservative != nullptr)
    throw SpecError(cannot + why_not_conservative + ". Build both with conservative=False");
}

void CountMinSketch::merge(const CountMinSketch& other) {
  require_fitting(other, "merge",
                  "conservative counters depend on the order of the keys, and those of two streams do not add up");
  add_counters(other);
}

void CountMinSketch::add_counters(const CountMinSketch& other) {
  require_fitting(other, "merge", nullptr);
  if (other.state_[0] > ~uint64_t{0} - state_[0])
    throw std::overflow_error("cannot merge: the total of the weights would exceed 2**64 - 1; nothing was changed");
  for (uint64_t i = 0, n = bits_.size(); i < n; ++i)
    store_word(view_.counters + i, view_.counters[i] + other.view_.counters[i]);  // total and updates too
}

uint128 CountMinSketch::inner_product(const CountMinSketch& other) const {
  require_fitting(other, "take the inner product",
                  "a conservative counter may hold less than its keys together, and the product would be too small");
  auto least = ~static_cast<uint128>(0);
  for (uint64_t j = 0; j < view_.rows; ++j) {
    const uint64_t *a = view_.counters + j * view_.width, *b = other.view_.counters + j * view_.width;
    uint128 sum = 0;
    for (uint64_t i = 0; i < view_.width; ++i) sum += static_cast<uint128>(a[i]) * b[i];
    least = std::min(least, sum);
  }
  return least;
}

std::vector<uint64_t> CountMinSketch::above(uint64_t value) const {
  std::vector<uint64_t> found(view_.rows, 0);
  for (uint64_t j = 0; j < view_.rows; ++j)
    for (uint64_t i = 0; i < view_.width; ++i) found[j] += view_.counters[j * view_.width + i] > value;
  return found;
}

std::string CountMinSketch::check(bool thorough) const {
  if (state_[1] > state_[0]) return "there are more additions than their weights allow";
  if ((state_[0] == 0) != (state_[1] == 0)) return "weights without an addition";
  if (!thorough) return {};
  for (uint64_t j = 0; j < view_.rows; ++j) {
    uint128 sum = 0;
    for (uint64_t i = 0; i < view_.width; ++i) sum += view_.counters[j * view_.width + i];
    const bool sound = conservative_ ? sum <= state_[0] && (sum == 0) == (state_[0] == 0) : sum == state_[0];
    if (!sound) return "the counters of row " + std::to_string(j) + " do not fit the total";
  }
  return {};
}

extern constinit const KindRow kCountMinKind = {
    .kind = Kind::count_min,
    .name = "count-min",
    .payload_bytes = CountMinSketch::payload_bytes,
};

}  // namespace evenbins

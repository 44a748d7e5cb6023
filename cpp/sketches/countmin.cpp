#include "evenbins/countmin.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace evenbins {
namespace {

constexpr uint64_t kTwoHash = 1, kClassic = 2;
constexpr uint64_t kNear = 1 << 15;  // counters of a row that the near caches hold: no prefetch up to here

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
      two_hash_(spec_.core[0] == kTwoHash),
      conservative_(spec_.core[4] != 0),
      width_(spec_.core[1]),
      depth_(spec_.core[2]),
      rows_(spec_.core[2] * spec_.core[3]),
      counters_(bits_.words()),
      state_(bits_.words() + rows_ * width_) {}

class CountMinSketch::Walk {
 public:
  Walk(const CountMinSketch& sketch, const uint64_t* digests, size_t n) : s_(sketch), digests_(digests), n_(n) {}

  // Positions in the next row, from 0 on; at most kBatch keys.
  const uint64_t* next() {
    const uint64_t row = row_++, j = s_.two_hash_ ? row % s_.depth_ : row % 2;
    if (j == 0) {
      s_.kernel_.pair_positions(s_.width_, row / (s_.two_hash_ ? s_.depth_ : 2), digests_, n_, first_, second_);
    } else if (!s_.two_hash_) {
      return second_;
    } else {
      for (size_t i = 0; i < n_; ++i) {
        const uint64_t at = first_[i] + second_[i];
        first_[i] = at >= s_.width_ ? at - s_.width_ : at;
      }
    }
    return first_;
  }

 private:
  const CountMinSketch& s_;
  const uint64_t* digests_;
  size_t n_;
  uint64_t row_ = 0;
  uint64_t first_[kBatch], second_[kBatch];
};

size_t CountMinSketch::add_many(const uint64_t* digests, const uint64_t* weights, size_t n, uint64_t* estimates) {
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
  if (estimates != nullptr || conservative_) {
    const size_t batch = std::max<size_t>(1, std::min<size_t>(kBatch, 4096 / rows_));
    for (size_t i = 0; i < taken; i += batch)
      add_in_order(digests + i, weights ? weights + i : nullptr, std::min(batch, taken - i),
                   estimates ? estimates + i : nullptr);
  } else {
    for (size_t i = 0; i < taken; i += kBatch)
      add_by_row(digests + i, weights ? weights + i : nullptr, std::min(kBatch, taken - i));
  }
  state_[0] = total;
  state_[1] += updates;
  return taken;
}

void CountMinSketch::add_by_row(const uint64_t* digests, const uint64_t* weights, size_t n) {
  Walk walk(*this, digests, n);
  uint64_t* row = counters_;
  for (uint64_t j = 0; j < rows_; ++j, row += width_) {
    const uint64_t* at = walk.next();
    if (width_ > kNear)
      for (size_t i = 0; i < n; ++i) __builtin_prefetch(row + at[i], 1);
    if (weights == nullptr)
      for (size_t i = 0; i < n; ++i) store_word(row + at[i], row[at[i]] + 1);
    else
      for (size_t i = 0; i < n; ++i) store_word(row + at[i], row[at[i]] + weights[i]);
  }
}

void CountMinSketch::add_in_order(const uint64_t* digests, const uint64_t* weights, size_t n, uint64_t* estimates) {
  Walk walk(*this, digests, n);
  uint64_t places[4096];  // n·rows of them; of row j and key i at j·n + i
  for (uint64_t j = 0; j < rows_; ++j) {
    std::copy_n(walk.next(), n, places + j * n);
    if (width_ > kNear)
      for (size_t i = 0; i < n; ++i) __builtin_prefetch(counters_ + j * width_ + places[j * n + i], 1);
  }
  for (size_t i = 0; i < n; ++i) {
    uint64_t least = ~uint64_t{0};
    for (uint64_t j = 0; j < rows_; ++j) least = std::min(least, counters_[j * width_ + places[j * n + i]]);
    const uint64_t weight = weights ? weights[i] : 1, estimate = least + weight;
    for (uint64_t j = 0; j < rows_; ++j) {
      uint64_t& counter = counters_[j * width_ + places[j * n + i]];
      store_word(&counter, conservative_ ? std::max(counter, estimate) : counter + weight);
    }
    if (estimates != nullptr) estimates[i] = estimate;
  }
}

void CountMinSketch::count_many(const uint64_t* digests, size_t n, uint64_t* out) const {
  std::fill_n(out, n, ~uint64_t{0});
  for (size_t start = 0; start < n; start += kBatch) {
    const size_t m = std::min(kBatch, n - start);
    Walk walk(*this, digests + start, m);
    const uint64_t* row = counters_;
    for (uint64_t j = 0; j < rows_; ++j, row += width_) {
      const uint64_t* at = walk.next();
      if (width_ > kNear)
        for (size_t i = 0; i < m; ++i) __builtin_prefetch(row + at[i]);
      for (size_t i = 0; i < m; ++i) out[start + i] = std::min(out[start + i], load_word(row + at[i]));
    }
  }
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
    store_word(counters_ + i, counters_[i] + other.counters_[i]);  // total and updates too
}

unsigned __int128 CountMinSketch::inner_product(const CountMinSketch& other) const {
  require_fitting(other, "take the inner product",
                  "a conservative counter may hold less than its keys together, and the product would be too small");
  auto least = ~static_cast<unsigned __int128>(0);
  for (uint64_t j = 0; j < rows_; ++j) {
    const uint64_t *a = counters_ + j * width_, *b = other.counters_ + j * width_;
    unsigned __int128 sum = 0;
    for (uint64_t i = 0; i < width_; ++i) sum += static_cast<unsigned __int128>(a[i]) * b[i];
    least = std::min(least, sum);
  }
  return least;
}

std::vector<uint64_t> CountMinSketch::above(uint64_t value) const {
  std::vector<uint64_t> found(rows_, 0);
  for (uint64_t j = 0; j < rows_; ++j)
    for (uint64_t i = 0; i < width_; ++i) found[j] += counters_[j * width_ + i] > value;
  return found;
}

std::string CountMinSketch::check(bool thorough) const {
  if (state_[1] > state_[0]) return "there are more additions than their weights allow";
  if ((state_[0] == 0) != (state_[1] == 0)) return "weights without an addition";
  if (!thorough) return {};
  for (uint64_t j = 0; j < rows_; ++j) {
    unsigned __int128 sum = 0;
    for (uint64_t i = 0; i < width_; ++i) sum += counters_[j * width_ + i];
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

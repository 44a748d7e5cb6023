#include "evenbins/leftover.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

namespace evenbins {
namespace {

constexpr uint64_t kMostKeys = 1 << 26;
constexpr uint64_t kBetweenSums = 64;  // steps
constexpr double kSmallest = 1e-300;
constexpr uint64_t kBetweenPulses = 4096;

double sum(const double* p, uint64_t n) {
  double parts[8] = {};
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (uint64_t k = 0; k < 8; ++k) parts[k] += p[i + k];
  for (; i < n; ++i) parts[0] += p[i];
  return ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}

// One key more, after j: entries l = low … high of `from` give entries low … high + 1 of `to`.
// number[l] is l: to convert it each time takes as long as the rest.
void step(const double* __restrict from, double* __restrict to, const double* __restrict number, uint64_t low,
          uint64_t high, double j, double buckets) {
  const double inverse = 1 / buckets, free = buckets - j, one_more = j + 1;
  to[low] = from[low] * (free + number[low]) * inverse;
  for (uint64_t l = low + 1; l <= high; ++l)
    to[l] = (from[l] * (free + number[l]) + from[l - 1] * (one_more - number[l])) * inverse;
  to[high + 1] = from[high] * (j - number[high]) * inverse;
}

}  // namespace

Leftover leftover(uint64_t first, const std::vector<double>& prior, uint64_t buckets, double tiny,
                  const std::function<bool()>& pulse) {
  if (prior.empty()) throw std::invalid_argument("prior must have an entry at least");
  const uint64_t most = first + prior.size() - 1;
  if (most > kMostKeys)
    throw std::invalid_argument("keys must be at most 2**26 for the exact law, not " + std::to_string(most));
  if (buckets < 1 || buckets > uint64_t{1} << 48)
    throw std::invalid_argument("buckets must be 1 to 2**48, not " + std::to_string(buckets));
  const auto m = static_cast<double>(buckets);
  std::vector<double> from(most + 2), to(most + 2), number(most + 2);
  std::vector<double> chance(most + 1), held(most + 1);
  uint64_t low = 0, high = 0, lowest = most, highest = 0;
  double lost = 0;
  std::iota(number.begin(), number.end(), 0.0);
  from[0] = 1;
  for (uint64_t j = 0;; ++j) {
    if (j >= first) {
      const double weight = prior[j - first];
      if (weight > 0) {
        const auto keys = static_cast<double>(j);
        const double least = kSmallest / weight;  // so that no product is subnormal: those are slow
        uint64_t begin = low, end = high + 1;
        for (; begin < end && from[begin] < least; ++begin) lost += kSmallest;
        for (; begin < end && from[end - 1] < least; --end) lost += kSmallest;
        for (uint64_t l = begin; l < end; ++l) {
          const double part = weight * from[l];
          chance[l] += part;
          held[l] += part * (keys - number[l]);
        }
        if (begin < end) lowest = std::min(lowest, begin), highest = std::max(highest, end - 1);
      }
    }
    if (j == most) break;
    if (j % kBetweenPulses == kBetweenPulses - 1 && !pulse()) return {};
    step(from.data(), to.data(), number.data(), low, high, static_cast<double>(j), m);
    from.swap(to);
    for (++high; high > low && from[high] < tiny; --high) lost += from[high];
    for (; low < high && from[low] < tiny; ++low) lost += from[low];
    if (j % kBetweenSums == 0 || j + 1 == first) {
      const double scale = 1 / sum(&from[low], high - low + 1);
      for (uint64_t l = low; l <= high; ++l) from[l] *= scale;
    }
  }
  if (lowest > highest) lowest = highest = 0;  // a prior of zeros
  return {lowest,
          {chance.begin() + static_cast<ptrdiff_t>(lowest), chance.begin() + static_cast<ptrdiff_t>(highest) + 1},
          {held.begin() + static_cast<ptrdiff_t>(lowest), held.begin() + static_cast<ptrdiff_t>(highest) + 1},
          lost};
}

}  // namespace evenbins

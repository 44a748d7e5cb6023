// What the targets of filters share: keys, asked one by one and together.
#pragma once

#include <array>

#include "evenbins/filter.hpp"
#include "harness.hpp"

namespace evenbins::fuzz {

constexpr size_t kKeys = 12;

class Keys final : public Digests {
 public:
  std::vector<uint64_t> all;
  uint64_t size() const override { return all.size(); }
  void read(uint64_t start, size_t n, uint64_t* out) const override {
    std::copy_n(all.begin() + static_cast<int64_t>(start), n, out);
  }
};

struct Asked {
  std::array<uint64_t, kKeys> digests;
  std::array<uint8_t, kKeys> found;
};

// Some keys, and what the filter answers.
inline Asked ask(Filter& filter, Dice& dice) {
  Asked asked;
  for (uint64_t& each : asked.digests) each = dice.word();
  filter.contains_many(asked.digests.data(), kKeys, asked.found.data());
  for (size_t i = 0; i < kKeys; ++i)
    require(filter.contains(asked.digests[i]) == (asked.found[i] != 0), "one key and many keys get different answers");
  filter.set_bits();
  filter.state();
  return asked;
}

// Every second input is a sequence of operations, the others are files of a kind.
template <typename Operate, typename Look, typename Change>
int run_or_operate(const uint8_t* data, size_t size, uint32_t kind, Operate&& operate, Look&& look, Change&& change) {
  Dice dice(data, size);
  if (dice.below(2) != 0) return run(data, size, {kind}, make_filter, look, change);
  use_any_kernel(dice);
  operate(data, std::min<size_t>(size, 256), dice);
  return 0;
}

}  // namespace evenbins::fuzz

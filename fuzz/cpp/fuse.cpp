// Files of fuse filters (19): any slots are a filter, and it never changes. Some inputs are keys, of which one is built.
#include "evenbins/fuse.hpp"

#include <algorithm>

#include "filter_harness.hpp"

using namespace evenbins;
using namespace evenbins::fuzz;

namespace {

void look(Filter& filter, Dice& dice) { ask(filter, dice); }

void change(Filter& filter, Dice& dice) {
  uint64_t digests[kKeys];
  for (uint64_t& each : digests) each = dice.word();
  const auto twin = filter.copy();
  require(*twin == filter, "a copy differs");
  require(filter.keys_left() == 0, "a filter that never changes has room");
  require(filter.add_many(digests, kKeys) == 0, "keys were added to a filter that never changes");
  require(filter.add(digests[0]) == AddOutcome::full, "a key was added to a filter that never changes");
  require(filter.removal() == nullptr, "keys can be removed from a filter that never changes");
  require(*twin == filter, "a refusal has changed the filter");
  try {
    filter.merge(*twin);
  } catch (const SpecError&) {
  }
}

// The filter of words of the input, some of which are equal: all are found, also in another order.
void build(const uint8_t* data, size_t size, Dice& dice) {
  const auto pulse = [] { return true; };
  Keys keys;
  for (size_t i = 0; i + 1 < size; i += 2) keys.all.push_back(splitmix(data[i], data[i + 1] % 16));
  const uint64_t bits = FuseFilter::kMinBits + dice.below(29), length = uint64_t{4} << dice.below(5);
  std::unique_ptr<Filter> made[2];
  for (auto& each : made) {
    FuseKeys found;
    require(found.count(keys, 1, pulse) == keys.all.size(), "keys that were not counted");
    require(found.take(keys, 1, pulse) == keys.all.size(), "keys that were not taken");
    require(found.finish(1, pulse), "the end was not reached");
    Spec spec{Kind::fuse,
              Hashing::independent,
              0,
              std::max<uint64_t>(found.size(), 1),
              {1, length, 3 + 2 * found.size() / length, bits, found.size(), 0}};
    const uint64_t bytes = payload_bytes(spec);
    each = make_filter(std::move(spec), Bits::zeroed(bytes));
    try {
      static_cast<FuseFilter&>(*each).solve(found.hashes(), 1, pulse);
    } catch (const SpecError&) {
      return;
    }
    for (const uint64_t digest : keys.all) require(each->contains(digest), "a key is not found");
    std::reverse(keys.all.begin(), keys.all.end());
  }
  require(*made[0] == *made[1], "the order of the keys leaves a trace");
  require_sound(*made[0], "built");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Dice dice(data, size);
  use_any_kernel(dice);
  if (dice.below(4) == 0) {
    build(data, std::min<size_t>(size, 512), dice);
    return 0;
  }
  return run(data, size, {19}, make_filter, look, change);
}

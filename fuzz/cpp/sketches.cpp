// Files of count-min sketches (6).
#include "evenbins/countmin.hpp"
#include "harness.hpp"

using namespace evenbins;
using namespace evenbins::fuzz;

namespace {

constexpr size_t kKeys = 12;

std::unique_ptr<CountMinSketch> make(Spec spec, Bits bits) {
  return std::make_unique<CountMinSketch>(std::move(spec), std::move(bits));
}

void look(const CountMinSketch& sketch, Dice& dice) {
  uint64_t digests[kKeys], counts[kKeys];
  for (uint64_t& each : digests) each = dice.word();
  sketch.count_many(digests, kKeys, counts);
  sketch.above(dice.below(4) == 0 ? dice.word() : dice.below(8));
}

void change(CountMinSketch& sketch, Dice& dice) {
  uint64_t digests[kKeys], weights[kKeys], before[kKeys], after[kKeys];
  for (uint64_t& each : digests) each = dice.word();
  for (uint64_t& each : weights) each = dice.below(3) == 0 ? dice.word() >> dice.below(64) : dice.below(9);
  const auto twin = sketch.copy();
  require(*twin == sketch, "a copy differs");
  sketch.count_many(digests, kKeys, before);
  const size_t done = sketch.add_many(digests, weights, kKeys);
  sketch.count_many(digests, kKeys, after);
  for (size_t i = 0; i < done; ++i) require(after[i] >= before[i] + weights[i], "a count is too low");
  require(sketch.total() >= twin->total(), "the total has wrapped");
  require(twin->add_many(digests, weights, kKeys, after) == done, "estimates change how many fit");
  require(*twin == sketch, "estimates change the counters");
  require_sound(sketch, "after additions");
  try {
    sketch.inner_product(*twin);
    sketch.merge(*twin);
  } catch (const SpecError&) {
  } catch (const std::overflow_error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return run(data, size, {6}, make, look, change);
}

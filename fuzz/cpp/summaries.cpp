// Files of summaries: interpolation (9), single filter (10), multiple Bloom (11), counters (12).
#include "evenbins/summary.hpp"
#include "harness.hpp"

using namespace evenbins;
using namespace evenbins::fuzz;

namespace {

constexpr size_t kKeys = 12;

void look(const Summary& summary, Dice& dice) {
  uint64_t digests[kKeys];
  uint8_t levels[kKeys];
  for (uint64_t& each : digests) each = dice.word();
  summary.level_many(digests, kKeys, levels);
  for (size_t i = 0; i < kKeys; ++i)
    require(summary.level(digests[i]) == levels[i], "one key and many keys get different answers");
  summary.fills();
  summary.false_positives();
  summary.saturated();
  summary.keys();
}

void change(Summary& summary, Dice& dice) {
  if (summary.spec().kind == Kind::counters) return;  // built once, from a table
  uint64_t digests[kKeys];
  uint32_t levels[kKeys];
  const auto twin = summary.copy();
  require(*twin == summary, "a copy differs");
  for (size_t i = 0; i < kKeys; ++i) {
    digests[i] = dice.word();
    levels[i] = static_cast<uint32_t>(1 + dice.below(summary.levels()));
    summary.add(digests[i], levels[i]);
  }
  for (const uint64_t each : digests) require(summary.level(each) != 0, "a key that was added is absent");
  require_sound(summary, "after additions");
  for (size_t i = 0; i < kKeys / 3; ++i) {
    const auto to = static_cast<uint32_t>(1 + dice.below(summary.levels()));
    summary.move(digests[i], levels[i], to);
    levels[i] = to;
  }
  require_sound(summary, "after moves");
  if (summary.can_remove())
    for (size_t i = 0; i < kKeys / 2; ++i) summary.remove(digests[i], levels[i]);
  for (size_t i = kKeys / 2; i < kKeys; ++i)
    require(summary.level(digests[i]) != 0, "a key that was added is absent after removals of others");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return run(data, size, {9, 10, 11, 12}, make_summary, look, change);
}

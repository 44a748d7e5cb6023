// Files of filters: standard (1), blocked (2), balanced (3), growing (4, as its stages), counting (5).
#include <algorithm>

#include "evenbins/parallel.hpp"
#include "filter_harness.hpp"

using namespace evenbins;
using namespace evenbins::fuzz;

namespace {

void look(Filter& filter, Dice& dice) {
  const Asked asked = ask(filter, dice);
  filter.set_bits_histogram(64 * (1 + dice.below(16)));
  if (ByLevel* levels = filter.by_level())
    for (uint32_t i = 0; i < levels->levels(); ++i) filter.level_histogram(i);
  if (const SupportsCounting* counting = filter.counting()) {
    int64_t found[kKeys];
    counting->count_many(asked.digests.data(), kKeys, found);
    filter.counter_histogram();
  }
}

void change(Filter& filter, Dice& dice) {
  Keys keys;
  for (size_t i = 0; i < kKeys; ++i) keys.all.push_back(dice.word());
  const auto twin = filter.copy();
  require(*twin == filter, "a copy differs");
  add_all(filter, keys, 1, [] { return true; });
  for (const uint64_t each : keys.all) require(filter.contains(each), "a key that was added is absent");
  for (const uint64_t each : keys.all) twin->add(each);
  require(*twin == filter, "keys one by one leave other bits than many at once");
  if (SupportsRemoval* removal = filter.removal()) {
    for (size_t i = 0; i < kKeys / 2; ++i) removal->remove(keys.all[i]);
    for (size_t i = kKeys / 2; i < kKeys; ++i) require(filter.contains(keys.all[i]), "a removal took another key");
  }
  try {
    filter.merge(*twin);
    for (const uint64_t each : keys.all) require(filter.contains(each), "a merge lost a key");
  } catch (const SpecError&) {
  }
}

void growing(const File& file) {
  Header header;
  try {
    header = read_header(file.data(), file.size());
    if (header.spec.kind != Kind::growing) return;
    verify_payload(header, file.data() + header.payload_offset);
  } catch (const FormatError&) {
    return;
  }
  uint64_t at = header.payload_offset;  // sizes were checked against the file's
  for (size_t i = 6; i < header.spec.core.size(); i += 2) {
    const uint64_t bytes = header.spec.core[i];
    const File stage(file.begin() + static_cast<int64_t>(at), file.begin() + static_cast<int64_t>(at + bytes));
    if (auto found = read(stage, false, true, make_filter)) require_sound(*found, "a stage");
    at += (bytes + 63) / 64 * 64;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > kCore && data[kKind] == 4) {
    growing(forged(data, size, {4}, true));
    return 0;
  }
  return run(data, size, {1, 2, 3, 5}, make_filter, look, change);
}

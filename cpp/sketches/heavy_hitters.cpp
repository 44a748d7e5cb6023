// Heavy hitters as files: a count-min sketch's own file, and the keys that are tracked beside it, which Python reads
// (src/evenbins/sketches/tracked_file.py).
#include "evenbins/spec.hpp"

namespace evenbins {
namespace {

constexpr uint64_t kMostKeys = uint64_t{1} << 20, kMostBytes = uint64_t{1} << 56, kKeyHead = 16;

// Core: k, keys, the bound of a merge, bytes of the sketch's file, bytes of the keys.
uint64_t heavy_hitters_bytes(const Spec& spec) {
  if (spec.hashing != Hashing::independent) throw SpecError("heavy hitters need independent hashing");
  if (spec.capacity != 1) throw SpecError("heavy hitters have no capacity: the field must be 1");
  if (spec.core.size() != 5) throw SpecError("heavy hitters have five numbers in their core");
  const uint64_t k = spec.core[0], keys = spec.core[1], sketch = spec.core[3], bytes = spec.core[4];
  if (k < 1 || k > kMostKeys) throw SpecError("k must be 1 … 2^20");
  if (keys > k) throw SpecError("no more than k keys are tracked");
  if (sketch > kMostBytes || bytes > kMostBytes)
    throw SpecError("the sketch and the keys must have at most 2^56 bytes");
  if (bytes % 8 != 0 || bytes < keys * kKeyHead) throw SpecError("the tracked keys do not fit their bytes");
  return (sketch + 63) / 64 * 64 + bytes;
}

}  // namespace

extern constinit const KindRow kHeavyHittersKind = {
    .kind = Kind::heavy_hitters,
    .name = "heavy-hitters",
    .payload_bytes = heavy_hitters_bytes,
};

}  // namespace evenbins

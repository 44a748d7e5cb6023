// Growing filters as files: the filters in them are made one by one (src/evenbins/filters/growing.py), from the parts of
// the payload (format.hpp).
#include "evenbins/spec.hpp"

namespace evenbins {
namespace {

uint64_t growing_bytes(const Spec& spec) {
  if (spec.hashing != Hashing::lanes) throw SpecError("a growing filter needs lane hashing");
  if (spec.core.size() < 7 || spec.core.size() % 2 == 0)
    throw SpecError("a growing filter has five numbers in its core and two for each stage");
  uint64_t bytes = 0;
  for (size_t i = 6; i < spec.core.size(); i += 2) {
    if (spec.core[i] > uint64_t{1} << 56) throw SpecError("a stage must have at most 2^56 bytes");
    bytes += (spec.core[i] + 63) / 64 * 64;
    if (bytes > uint64_t{1} << 62) throw SpecError("all stages together must have at most 2^62 bytes");
  }
  return bytes;
}

}  // namespace

extern constinit const KindRow kGrowingKind = {
    .kind = Kind::growing,
    .name = "growing",
    .payload_bytes = growing_bytes,
};

}  // namespace evenbins

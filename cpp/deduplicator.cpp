// Deduplicators as files: the filters or sets in them are made one by one (src/evenbins/deduplication), from the parts
// of the payload. Its core is [exact, fpr, capacity, rows, kept, expected_wrong, parts, bytes of the payload].
#include "evenbins/spec.hpp"

namespace evenbins {
namespace {

uint64_t deduplicator_bytes(const Spec& spec) {
  if (spec.hashing != Hashing::independent) throw SpecError("a Deduplicator needs independent hashing");
  if (spec.core.size() != 8) throw SpecError("a Deduplicator has eight numbers in its core");
  if (spec.core[7] > uint64_t{1} << 62 || spec.core[7] % 64 != 0)
    throw SpecError("the payload of a Deduplicator must have at most 2^62 bytes, in whole lines");
  return spec.core[7];
}

}  // namespace

extern constinit const KindRow kDeduplicatorKind = {
    .kind = Kind::deduplicator,
    .name = "deduplicator",
    .payload_bytes = deduplicator_bytes,
};

}  // namespace evenbins

// The kinds of structures: one row each, defined beside the family that it describes (spec.hpp).
#include <string>
#include <utility>

#include "evenbins/bits.hpp"
#include "evenbins/filter.hpp"
#include "evenbins/spec.hpp"
#include "evenbins/summary.hpp"

namespace evenbins {

extern const KindRow kStandardKind, kBlockedKind, kBalancedKind, kGrowingKind, kCountingKind;  // filters/
extern const KindRow kFingerprintKind, kFuseKind, kWindowKind;
extern const KindRow kCountMinKind, kHyperLogLogKind, kHeavyHittersKind;  // sketches/
extern const KindRow kMultilevelKind, kChainedKind, kPagedKind;           // tables/
extern const KindRow kInterpolationKind, kSingleFilterKind, kMultipleBloomKind, kCountersKind;
extern const KindRow kRingKind;  // rings/
extern const KindRow kDeduplicatorKind;

namespace {

constexpr const KindRow* kRows[] = {
    &kStandardKind,      &kBlockedKind,      &kBalancedKind,    &kGrowingKind,       &kCountingKind,
    &kCountMinKind,      &kMultilevelKind,   &kChainedKind,     &kInterpolationKind, &kSingleFilterKind,
    &kMultipleBloomKind, &kCountersKind,     &kPagedKind,       &kRingKind,          &kHyperLogLogKind,
    &kHeavyHittersKind,  &kDeduplicatorKind, &kFingerprintKind, &kFuseKind,          &kWindowKind,
};

const KindRow& row_of(Kind kind) {
  if (const KindRow* row = find_kind(kind)) return *row;
  throw SpecError("unknown kind " + std::to_string(static_cast<uint32_t>(kind)));
}

}  // namespace

std::span<const KindRow* const> kind_rows() { return kRows; }

const KindRow* find_kind(Kind kind) {
  for (const KindRow* row : kRows)
    if (row->kind == kind) return row;
  return nullptr;
}

uint64_t payload_bytes(const Spec& spec) {
  if (spec.capacity < 1 || spec.capacity > uint64_t{1} << 48) throw SpecError("capacity must be 1 … 2^48");
  return row_of(spec.kind).payload_bytes(spec);
}

std::unique_ptr<Filter> make_filter(Spec spec, Bits bits) {
  if (bits.bytes() != payload_bytes(spec)) throw SpecError("the bits do not fit the plan");
  const KindRow& row = row_of(spec.kind);
  if (row.make_filter == nullptr)
    throw SpecError("a growing filter is made of several filters, and a sketch or a table is not a filter");
  return row.make_filter(std::move(spec), std::move(bits));
}

bool is_summary(Kind kind) {
  const KindRow* row = find_kind(kind);
  return row != nullptr && row->make_summary != nullptr;
}

std::unique_ptr<Summary> make_summary(Spec spec, Bits bits) {
  const KindRow& row = row_of(spec.kind);
  if (row.make_summary == nullptr) throw SpecError("this kind is no summary");
  if (bits.bytes() != payload_bytes(spec)) throw SpecError("the bits do not fit the plan");
  return row.make_summary(std::move(spec), std::move(bits));
}

}  // namespace evenbins

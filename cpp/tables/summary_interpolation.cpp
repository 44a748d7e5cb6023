#include "evenbins/summary_interpolation.hpp"

#include <bit>

namespace evenbins {

uint64_t InterpolationSummary::payload_bytes(const Spec& spec) {
  const auto& core = spec.core;
  if (spec.hashing != Hashing::independent) throw SpecError("a summary needs independent hashing");
  if (core.size() != 3) throw SpecError("an interpolation summary has three numbers in its core");
  if (core[0] < 1 || core[0] > kMaxSummaryLevels) throw SpecError("levels must be 1 … 9");
  const auto level_bits = static_cast<uint64_t>(std::bit_width(core[0]));
  if (core[1] < 8 || core[1] > 64 - level_bits) throw SpecError("digest_bits must be 8 … 64 less the bits of a level");
  if (core[2] < 1 || core[2] > kMaxSlots) throw SpecError("slots must be 1 … 2^40");
  return 64 + Packed::bytes(core[2] + kReach, core[1] + level_bits);
}

InterpolationSummary::InterpolationSummary(Spec spec, Bits bits)
    : Summary(std::move(spec), std::move(bits)),
      entries_(bits_.words() + 8),
      digest_bits_(static_cast<uint32_t>(spec_.core[1])),
      level_bits_(static_cast<uint32_t>(std::bit_width(spec_.core[0]))),
      width_(digest_bits_ + level_bits_),
      slots_(spec_.core[2]),
      all_(slots_ + kReach) {}

uint32_t InterpolationSummary::level(uint64_t digest) const {
  const uint64_t wanted = short_digest(digest);
  const uint64_t end = home(wanted) + kStretch < all_ ? home(wanted) + kStretch : all_;
  for (uint64_t i = home(wanted); i < end; ++i) {
    const uint64_t entry = at(i);
    if (entry == 0 || entry >> level_bits_ > wanted) break;
    if (entry >> level_bits_ == wanted) return static_cast<uint32_t>(entry & Packed::most(level_bits_));
  }
  return spilled() > 0 ? 1 : 0;
}

void InterpolationSummary::add(uint64_t digest, uint32_t level) {
  const uint64_t wanted = short_digest(digest), entry = wanted << level_bits_ | level;
  ++keys_word();
  uint64_t place = home(wanted), start = place, other;
  while (start > 0 && place - start <= kStretch && at(start - 1) != 0) --start;
  while (place < all_ && place - start <= kStretch && (other = at(place)) != 0 && other <= entry) ++place;
  uint64_t gap = place;
  while (gap < all_ && gap - start <= kStretch && at(gap) != 0) ++gap;
  uint64_t end = gap + 1;
  while (end < all_ && end - start <= kStretch && at(end) != 0) ++end;
  if (gap >= all_ || end - start > kStretch) {
    ++bits_.words()[1];
    return;
  }
  for (uint64_t i = gap; i > place; --i) set(i, at(i - 1));
  set(place, entry);
}

bool InterpolationSummary::remove(uint64_t digest, uint32_t level) {
  const uint64_t wanted = short_digest(digest), entry = wanted << level_bits_ | level;
  uint64_t i = home(wanted), other = 0;
  while (i < all_ && (other = at(i)) != 0 && other < entry) ++i;
  if (i == all_ || other != entry) {
    if (spilled() == 0) return false;
    --bits_.words()[1];
    --keys_word();
    return true;
  }
  for (; i + 1 < all_; ++i) {
    other = at(i + 1);
    if (other == 0 || home(other >> level_bits_) == i + 1) break;
    set(i, other);
  }
  set(i, 0);
  --keys_word();
  return true;
}

std::vector<double> InterpolationSummary::fills() const {
  return {static_cast<double>(keys() - spilled()) / static_cast<double>(slots_)};
}

double InterpolationSummary::false_positives() const {
  if (spilled() > 0) return 1;
  double distinct = 0;
  uint64_t before = ~uint64_t{0};
  for (uint64_t i = 0; i < all_; ++i) {
    const uint64_t entry = at(i);
    if (entry == 0 || entry >> level_bits_ == before) continue;
    before = entry >> level_bits_;
    ++distinct;
  }
  for (uint32_t i = 0; i < digest_bits_; ++i) distinct /= 2;
  return distinct;
}

std::string InterpolationSummary::check(bool thorough) const {
  const uint64_t* state = bits_.words();
  if (state[1] > state[0] || state[0] - state[1] > all_) return "the summary's counts contradict each other";
  for (uint32_t i = 2; i < 8; ++i)
    if (state[i] != 0) return "a spare word of the summary's state is not zero";
  if (!thorough) return {};
  uint64_t before = 0, count = 0, stretch = 0;
  for (uint64_t i = 0; i < all_; ++i) {
    const uint64_t entry = at(i);
    stretch = entry == 0 ? 0 : stretch + 1;
    if (entry == 0) continue;
    const uint64_t number = entry & Packed::most(level_bits_);
    ++count;
    if (number < 1 || number > levels()) return "an entry of the summary has no level";
    if (entry < before) return "the entries of the summary are not sorted";
    const uint64_t ideal = home(entry >> level_bits_);
    if (ideal > i || (ideal < i && at(i - 1) == 0)) return "an entry of the summary lies too far from its home";
    if (stretch > kStretch) return "the summary has a stretch without a gap";
    before = entry;
  }
  if (const uint64_t spare = all_ * width_ % 64; spare != 0 && entries_[all_ * width_ / 64] >> spare != 0)
    return "bits beyond the last entry are set";
  return count == state[0] - state[1] ? "" : "the summary's count is not that of its entries";
}

extern constinit const KindRow kInterpolationKind = {
    .kind = Kind::interpolation,
    .name = "interpolation-summary",
    .payload_bytes = InterpolationSummary::payload_bytes,
    .make_summary = make_summary_as<InterpolationSummary>,
};

}  // namespace evenbins

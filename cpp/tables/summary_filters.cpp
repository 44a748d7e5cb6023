#include "evenbins/summary_filters.hpp"

#include <algorithm>
#include <cmath>

namespace evenbins {
namespace {

constexpr uint64_t kStateWords8 = 8;
constexpr uint64_t kMaxCells = uint64_t{1} << 48;
constexpr uint32_t kMaxWidth = 16;

uint64_t lines(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

uint32_t cell_width(uint64_t levels) {  // 0: three cells a byte
  return levels <= 3 ? 2 : levels <= 5 ? 0 : levels <= 7 ? 3 : 4;
}

void check_levels(const Spec& spec) {
  if (spec.hashing != Hashing::independent) throw SpecError("a summary needs independent hashing");
  if (spec.core.empty() || spec.core[0] < 1 || spec.core[0] > kMaxSummaryLevels)
    throw SpecError("levels must be 1 … 9");
}

std::string spare_words(const uint64_t* state) {
  for (uint32_t i = 1; i < kStateWords8; ++i)
    if (state[i] != 0) return "a spare word of the summary's state is not zero";
  return {};
}

}  // namespace

// ---- the single filter -----------------------------------------------------------------------------------------

uint64_t SingleFilterSummary::payload_bytes(const Spec& spec) {
  check_levels(spec);
  const auto& core = spec.core;
  const uint64_t levels = core[0];
  if (core.size() != 3 && core.size() != 3 + levels)
    throw SpecError("a single filter has three numbers in its core, and one for each level if it counts");
  if (core[1] < 1 || core[1] > kMaxCells) throw SpecError("cells must be 1 … 2^48");
  if (core[2] < 1 || core[2] > 64 || core[1] % core[2] != 0) throw SpecError("hashes must be 1 … 64, and divide cells");
  if (core.size() == 3) {
    const uint32_t width = cell_width(levels);
    return 8 * kStateWords8 + (width == 0 ? (core[1] + 23) / 24 * 8 : Packed::bytes(core[1], width));
  }
  uint64_t width = 0;
  for (size_t j = 3; j < core.size(); ++j) {
    if (core[j] < 1 || core[j] > kMaxWidth) throw SpecError("a counter must have 1 … 16 bits");
    width += core[j];
  }
  if (width > 64) throw SpecError("the counters of a cell must have at most 64 bits");
  return 8 * kStateWords8 + Packed::bytes(core[1], width);
}

SingleFilterSummary::SingleFilterSummary(Spec spec, Bits bits)
    : Summary(std::move(spec), std::move(bits)),
      cells_(bits_.words() + kStateWords8),
      count_(spec_.core[1]),
      group_(spec_.core[1] / spec_.core[2]),
      hashes_(static_cast<uint32_t>(spec_.core[2])),
      counting_(spec_.core.size() > 3) {
  if (!counting_) {
    width_ = cell_width(spec_.core[0]);
    return;
  }
  for (uint32_t j = 1; j <= levels(); ++j) {
    widths_[j] = static_cast<uint32_t>(spec_.core[2 + j]);
    shifts_[j] = width_;
    width_ += widths_[j];
  }
}

uint64_t SingleFilterSummary::cell(uint64_t i) const {
  if (width_ != 0) return Packed::at(cells_, i, width_);
  static constexpr uint32_t kPowers[3] = {1, 6, 36};
  return reinterpret_cast<const uint8_t*>(cells_)[i / 3] / kPowers[i % 3] % 6;
}

void SingleFilterSummary::set_cell(uint64_t i, uint64_t value) {
  if (width_ != 0) return Packed::set(cells_, i, width_, value);
  static constexpr uint32_t kPowers[3] = {1, 6, 36};
  uint8_t& byte = reinterpret_cast<uint8_t*>(cells_)[i / 3];
  const uint32_t power = kPowers[i % 3], old = byte / power % 6;
  byte = static_cast<uint8_t>(byte + (static_cast<uint32_t>(value) - old) * power);
}

uint32_t SingleFilterSummary::level_of(uint64_t cell) const {
  if (!counting_) return static_cast<uint32_t>(cell);
  for (uint32_t j = levels(); j > 0; --j)
    if (counter(cell, j) != 0) return j;
  return 0;
}

void SingleFilterSummary::prefetch(uint64_t digest) const {
  const uint64_t word = summary_word(digest);
  const auto* bytes = reinterpret_cast<const uint8_t*>(cells_);
  for (uint32_t i = 0; i < hashes_ && i < 8; ++i)
    __builtin_prefetch(bytes + (width_ == 0 ? position(word, i) / 3 : position(word, i) * width_ / 8));
}

uint32_t SingleFilterSummary::level(uint64_t digest) const {
  const uint64_t word = summary_word(digest);
  uint32_t least = levels();
  for (uint32_t i = 0; i < hashes_ && least > 0; ++i) least = std::min(least, level_of(cell(position(word, i))));
  return least;
}

void SingleFilterSummary::add(uint64_t digest, uint32_t level) {
  const uint64_t word = summary_word(digest);
  bool was_absent = counting_;
  for (uint32_t i = 0; i < hashes_; ++i) {
    const uint64_t p = position(word, i), old = cell(p);
    if (counting_) {
      if (counter(old, level) != Packed::most(widths_[level])) set_cell(p, old + (uint64_t{1} << shifts_[level]));
      continue;
    }
    was_absent |= old == 0;
    if (old < level) set_cell(p, level);
  }
  keys_word() += was_absent;
}

bool SingleFilterSummary::remove(uint64_t digest, uint32_t level) {
  if (!counting_) return false;
  const uint64_t word = summary_word(digest);
  for (uint32_t i = 0; i < hashes_; ++i)
    if (counter(cell(position(word, i)), level) == 0) return false;
  for (uint32_t i = 0; i < hashes_; ++i) {
    const uint64_t p = position(word, i), old = cell(p);
    if (counter(old, level) != Packed::most(widths_[level])) set_cell(p, old - (uint64_t{1} << shifts_[level]));
  }
  keys_word() -= keys_word() > 0;
  return true;
}

std::vector<double> SingleFilterSummary::fills() const {
  std::vector<double> found(hashes_);
  for (uint32_t i = 0; i < hashes_; ++i) {
    uint64_t used = 0;
    for (uint64_t p = i * group_; p < (i + 1) * group_; ++p) used += level_of(cell(p)) != 0;
    found[i] = static_cast<double>(used) / static_cast<double>(group_);
  }
  return found;
}

double SingleFilterSummary::false_positives() const {
  double rate = 1;
  for (const double fill : fills()) rate *= fill;
  return rate;
}

uint64_t SingleFilterSummary::saturated() const {
  uint64_t full = 0;
  if (counting_)
    for (uint64_t p = 0; p < count_; ++p)
      for (uint32_t j = 1; j <= levels(); ++j) full += counter(cell(p), j) == Packed::most(widths_[j]);
  return full;
}

std::string SingleFilterSummary::check(bool thorough) const {
  if (std::string broken = spare_words(bits_.words()); !broken.empty()) return broken;
  if (!thorough) return {};
  if (width_ == 0) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(cells_);
    static constexpr uint32_t kEnds[3] = {216, 6, 36};
    for (uint64_t i = 0, n = bits_.bytes() - 8 * kStateWords8; i < n; ++i) {
      const uint32_t end = i < count_ / 3 ? 216 : i == count_ / 3 && count_ % 3 != 0 ? kEnds[count_ % 3] : 1;
      if (bytes[i] >= end) return "bytes of the summary's cells are out of range";
    }
  } else if (const uint64_t spare = count_ * width_ % 64; spare != 0 && cells_[count_ * width_ / 64] >> spare != 0) {
    return "bits beyond the last cell are set";
  }
  for (uint64_t p = 0; p < count_; ++p)
    if (level_of(cell(p)) > levels()) return "a cell of the summary has no such level";
  return {};
}

// ---- many filters ------------------------------------------------------------------------------------------------

namespace {

uint64_t list_slots(uint64_t keys) { return keys + keys / 3 + 8; }

uint64_t part_bytes(uint64_t size, uint64_t hashes, uint64_t width) {
  return lines(hashes == 0 ? 64 + 8 * list_slots(size) : Packed::bytes(size, width));
}

uint64_t list_word(uint64_t word) { return word == 0 ? kPhi : word; }  // 0 is a free slot

}  // namespace

uint64_t MultipleBloomSummary::payload_bytes(const Spec& spec) {
  check_levels(spec);
  const auto& core = spec.core;
  if (core.size() != 2 + 3 * core[0]) throw SpecError("multiple filters have two numbers in their core and three each");
  if (core[1] > 3) throw SpecError("flags must be 0 … 3");
  uint64_t bytes = 8 * kStateWords8;
  for (size_t j = 0; j < core[0]; ++j) {
    const uint64_t size = core[2 + 3 * j], hashes = core[3 + 3 * j], width = core[4 + 3 * j];
    if (size < 1 || size > kMaxCells) throw SpecError("a filter must have 1 … 2^48 bits");
    if (hashes > kMaxHashes) throw SpecError("hashes must be 0 … 64");
    if (hashes == 0 && j == 0) throw SpecError("the first filter cannot be a list");
    if (hashes == 0 && size > uint64_t{1} << 32) throw SpecError("a list must have at most 2^32 keys");
    const bool counts = (core[1] & kCounting) != 0 && hashes > 0;
    if (counts ? width < 1 || width > kMaxWidth : width != 1)
      throw SpecError("a counter must have 1 … 16 bits, and 1 where nothing is counted");
    bytes += part_bytes(size, hashes, width);
  }
  return bytes;
}

MultipleBloomSummary::MultipleBloomSummary(Spec spec, Bits bits)
    : Summary(std::move(spec), std::move(bits)),
      wide_((spec_.core[1] & kWide) != 0),
      counting_((spec_.core[1] & kCounting) != 0) {
  uint64_t* words = bits_.words() + kStateWords8;
  for (uint32_t j = 0; j < levels(); ++j) {
    const uint64_t* part = spec_.core.data() + 2 + 3 * j;
    parts_.push_back(
        {words, part[0], list_slots(part[0]), static_cast<uint32_t>(part[1]), static_cast<uint32_t>(part[2])});
    words += part_bytes(part[0], part[1], part[2]) / 8;
  }
}

bool MultipleBloomSummary::knows(uint32_t j, uint64_t word) const {
  const Part& part = parts_[j];
  if (part.hashes == 0) {
    if (part.words[1] != 0) return true;  // it has lost some
    const uint64_t* slots = part.words + 8;
    const uint64_t wanted = list_word(word);
    for (uint64_t i = mulhi(wanted, part.slots), seen = 0; slots[i] != 0 && seen < part.slots; ++seen) {
      if (slots[i] == wanted) return true;
      if (++i == part.slots) i = 0;
    }
    return false;
  }
  for (uint32_t i = 0; i < part.hashes; ++i)
    if (Packed::at(part.words, position(j, part, word, i), part.width) == 0) return false;
  return true;
}

void MultipleBloomSummary::prefetch(uint64_t digest) const {
  const uint64_t word = summary_word(digest);
  const Part& part = parts_[0];
  for (uint32_t i = 0; i < part.hashes && i < 8; ++i)
    __builtin_prefetch(part.words + position(0, part, word, i) * part.width / 64);
}

uint32_t MultipleBloomSummary::level(uint64_t digest) const {
  const uint64_t word = summary_word(digest);
  uint32_t j = 0;
  while (j < levels() && knows(j, word)) ++j;
  return j;
}

// The positions of a key in a filter, each once.
uint32_t MultipleBloomSummary::distinct(uint32_t j, uint64_t word, uint64_t* out) const {
  const Part& part = parts_[j];
  uint32_t n = 0;
  for (uint32_t i = 0; i < part.hashes; ++i) {
    const uint64_t p = position(j, part, word, i);
    if (std::find(out, out + n, p) == out + n) out[n++] = p;
  }
  return n;
}

void MultipleBloomSummary::add_to(uint32_t j, uint64_t word) {
  Part& part = parts_[j];
  if (part.hashes == 0) {
    if (!counting_ && knows(j, word)) return;
    if (part.words[0] == part.size) {
      ++part.words[1];
      return;
    }
    uint64_t* slots = part.words + 8;
    uint64_t i = mulhi(list_word(word), part.slots);
    while (slots[i] != 0) i = i + 1 == part.slots ? 0 : i + 1;
    slots[i] = list_word(word);
    ++part.words[0];
    return;
  }
  if (!counting_) {
    for (uint32_t i = 0; i < part.hashes; ++i) {
      const uint64_t p = position(j, part, word, i);
      part.words[p / 64] |= uint64_t{1} << (p % 64);
    }
    return;
  }
  uint64_t positions[kMaxHashes];
  const uint32_t n = distinct(j, word, positions);
  for (uint32_t i = 0; i < n; ++i) {
    const uint64_t old = Packed::at(part.words, positions[i], part.width);
    if (old != Packed::most(part.width)) Packed::set(part.words, positions[i], part.width, old + 1);
  }
}

bool MultipleBloomSummary::remove_from(uint32_t j, uint64_t word) {
  Part& part = parts_[j];
  if (part.hashes == 0) {
    uint64_t* slots = part.words + 8;
    const uint64_t wanted = list_word(word);
    uint64_t i = mulhi(wanted, part.slots), seen = 0;
    for (; slots[i] != 0 && slots[i] != wanted && seen < part.slots; ++seen) i = i + 1 == part.slots ? 0 : i + 1;
    if (slots[i] != wanted) {
      if (part.words[1] == 0) return false;
      --part.words[1];
      return true;
    }
    const auto behind = [&part](uint64_t from, uint64_t to) { return to >= from ? to - from : to + part.slots - from; };
    for (uint64_t next = i;;) {  // what lies behind the hole and may lie in it moves there
      next = next + 1 == part.slots ? 0 : next + 1;
      if (slots[next] == 0) break;
      if (behind(mulhi(slots[next], part.slots), next) < behind(i, next)) continue;
      slots[i] = slots[next];
      i = next;
    }
    slots[i] = 0;
    --part.words[0];
    return true;
  }
  uint64_t positions[kMaxHashes];
  const uint32_t n = distinct(j, word, positions);
  for (uint32_t i = 0; i < n; ++i)
    if (Packed::at(part.words, positions[i], part.width) == 0) return false;
  for (uint32_t i = 0; i < n; ++i) {
    const uint64_t old = Packed::at(part.words, positions[i], part.width);
    if (old != Packed::most(part.width)) Packed::set(part.words, positions[i], part.width, old - 1);
  }
  return true;
}

void MultipleBloomSummary::add(uint64_t digest, uint32_t level) {
  const uint64_t word = summary_word(digest);
  keys_word() += counting_ || !knows(0, word);
  for (uint32_t j = 0; j < level; ++j) add_to(j, word);
}

bool MultipleBloomSummary::remove(uint64_t digest, uint32_t level) {
  if (!counting_) return false;
  const uint64_t word = summary_word(digest);
  for (uint32_t j = 0; j < level; ++j)
    if (!knows(j, word)) return false;
  for (uint32_t j = 0; j < level; ++j) remove_from(j, word);
  keys_word() -= keys_word() > 0;
  return true;
}

void MultipleBloomSummary::move(uint64_t digest, uint32_t from, uint32_t to) {
  const uint64_t word = summary_word(digest);
  for (uint32_t j = from; j < to; ++j) add_to(j, word);
  if (!counting_) return;
  for (uint32_t j = to; j < from; ++j) remove_from(j, word);
}

std::vector<double> MultipleBloomSummary::fills() const {
  std::vector<double> found;
  for (const Part& part : parts_) {
    uint64_t used = 0;
    if (part.hashes == 0)
      used = part.words[0];
    else
      for (uint64_t p = 0; p < part.size; ++p) used += Packed::at(part.words, p, part.width) != 0;
    found.push_back(static_cast<double>(used) / static_cast<double>(part.size));
  }
  return found;
}

double MultipleBloomSummary::false_positives() const { return std::pow(fills()[0], parts_[0].hashes); }

uint64_t MultipleBloomSummary::saturated() const {
  uint64_t full = 0;
  for (const Part& part : parts_)
    if (counting_ && part.hashes != 0)
      for (uint64_t p = 0; p < part.size; ++p)
        full += Packed::at(part.words, p, part.width) == Packed::most(part.width);
  return full;
}

std::string MultipleBloomSummary::check(bool thorough) const {
  if (std::string broken = spare_words(bits_.words()); !broken.empty()) return broken;
  for (const Part& part : parts_) {
    if (part.hashes != 0) continue;
    if (part.words[0] > part.size) return "a list of the summary has too many entries";
    for (uint32_t i = 2; i < 8; ++i)
      if (part.words[i] != 0) return "a spare word of the summary's list is not zero";
  }
  if (!thorough) return {};
  for (uint32_t j = 0; j < levels(); ++j) {
    const Part& part = parts_[j];
    const uint64_t end = part_bytes(part.size, part.hashes, part.width) / 8;
    uint64_t used = part.hashes == 0 ? 8 + part.slots : Packed::bytes(part.size, part.width) / 8;
    for (; used < end; ++used)
      if (part.words[used] != 0) return "words beyond the last of a filter are set";
    if (part.hashes != 0) {
      const uint64_t spare = part.size * part.width % 64;
      if (spare != 0 && part.words[part.size * part.width / 64] >> spare != 0)
        return "bits beyond the last of a filter are set";
      continue;
    }
    uint64_t entries = 0;
    for (uint64_t i = 0; i < part.slots; ++i) {
      if (part.words[8 + i] == 0) continue;
      ++entries;
      uint64_t at = mulhi(part.words[8 + i], part.slots);
      while (at != i && part.words[8 + at] != 0) at = at + 1 == part.slots ? 0 : at + 1;
      if (at != i) return "an entry of the summary's list cannot be found";
    }
    if (entries != part.words[0]) return "the count of the summary's list is not that of its entries";
  }
  return {};
}

// ---- Song et al. ---------------------------------------------------------------------------------------------------

uint64_t CounterSummary::payload_bytes(const Spec& spec) {
  const auto& core = spec.core;
  if (spec.hashing != Hashing::independent) throw SpecError("a summary needs independent hashing");
  if (core.size() != 3) throw SpecError("a counter summary has three numbers in its core");
  if (core[0] < 1 || core[0] > 64) throw SpecError("choices must be 1 … 64");
  if (core[1] < 1 || core[1] > kMaxCells) throw SpecError("buckets must be 1 … 2^48");
  if (core[2] < 1 || core[2] > kMaxWidth) throw SpecError("a counter must have 1 … 16 bits");
  return 8 * kStateWords8 + Packed::bytes(core[1], core[2]);
}

CounterSummary::CounterSummary(Spec spec, Bits bits)
    : Summary(std::move(spec), std::move(bits)),
      counters_(bits_.words() + kStateWords8),
      buckets_(spec_.core[1]),
      width_(static_cast<uint32_t>(spec_.core[2])) {}

uint32_t CounterSummary::level(uint64_t digest) const {
  uint64_t least = ~uint64_t{0}, where = 0;
  uint32_t answer = 0;
  for (uint32_t i = 0; i < levels(); ++i) {
    const uint64_t p = bucket(digest, i), count = Packed::at(counters_, p, width_);
    if (count == 0) return 0;
    if (count < least || (count == least && p < where)) least = count, where = p, answer = i + 1;
  }
  return answer;
}

void CounterSummary::add(uint64_t digest, uint32_t) {
  ++keys_word();
  for (uint32_t i = 0; i < levels(); ++i) {
    const uint64_t p = bucket(digest, i), old = Packed::at(counters_, p, width_);
    if (old != Packed::most(width_)) Packed::set(counters_, p, width_, old + 1);
  }
}

std::vector<double> CounterSummary::fills() const {
  uint64_t used = 0;
  for (uint64_t p = 0; p < buckets_; ++p) used += Packed::at(counters_, p, width_) != 0;
  return {static_cast<double>(used) / static_cast<double>(buckets_)};
}

double CounterSummary::false_positives() const { return std::pow(fills()[0], levels()); }

uint64_t CounterSummary::saturated() const {
  uint64_t full = 0;
  for (uint64_t p = 0; p < buckets_; ++p) full += Packed::at(counters_, p, width_) == Packed::most(width_);
  return full;
}

std::string CounterSummary::check(bool thorough) const {
  if (std::string broken = spare_words(bits_.words()); !broken.empty()) return broken;
  const uint64_t spare = buckets_ * width_ % 64;
  if (thorough && spare != 0 && counters_[buckets_ * width_ / 64] >> spare != 0)
    return "bits beyond the last counter are set";
  return {};
}

// ---- the kinds ------------------------------------------------------------------------------------------------------

extern constinit const KindRow kSingleFilterKind = {
    .kind = Kind::single_filter,
    .name = "single-filter-summary",
    .payload_bytes = SingleFilterSummary::payload_bytes,
    .make_summary = make_summary_as<SingleFilterSummary>,
};

extern constinit const KindRow kMultipleBloomKind = {
    .kind = Kind::multiple_bloom,
    .name = "multiple-bloom-summary",
    .payload_bytes = MultipleBloomSummary::payload_bytes,
    .make_summary = make_summary_as<MultipleBloomSummary>,
};

extern constinit const KindRow kCountersKind = {
    .kind = Kind::counters,
    .name = "counter-summary",
    .payload_bytes = CounterSummary::payload_bytes,
    .make_summary = make_summary_as<CounterSummary>,
};

}  // namespace evenbins

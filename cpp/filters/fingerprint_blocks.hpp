// The blocks of a fingerprint filter as a whole: what they hold, and lines from fingerprints. For everything that treats
// all keys: merging, resizing, growth, checks.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "evenbins/fingerprint.hpp"
#include "evenbins/stretches.hpp"

namespace evenbins::fingerprints {

// Processors that deposit bits by microcode, a hundred times slower than others.
inline bool deposits_slowly() {
  static const bool slowly = platform::processor().deposits_slowly;
  return slowly;
}

// The view of a payload without its rest. `bits` of a slot; the last `payload` of them are no part of the fingerprint.
inline FingerprintView view_of(uint64_t lines, uint32_t bits, uint64_t quotients, uint64_t group, uint64_t limit,
                               uint32_t payload, uint64_t* words) {
  FingerprintView f = fingerprint_view(lines, bits, quotients, group, limit, payload, words);
  f.slow_pdep = deposits_slowly();
  return f;
}

// The least fingerprint of a block.
inline uint64_t least_of_block(const FingerprintView& f, uint64_t block) {
  return block * 16 * f.group * f.quotients << f.one.bits;
}

inline std::span<const uint64_t> of_block(const FingerprintView& f, std::span<const uint64_t> ascending,
                                          uint64_t block) {
  const auto first = std::lower_bound(ascending.begin(), ascending.end(), least_of_block(f, block));
  const auto last = std::lower_bound(first, ascending.end(), least_of_block(f, block + 1));
  return ascending.subspan(static_cast<size_t>(first - ascending.begin()), static_cast<size_t>(last - first));
}

inline uint32_t ones(RunEnds x) {
  return static_cast<uint32_t>(std::popcount(static_cast<uint64_t>(x)) + std::popcount(static_cast<uint64_t>(x >> 64)));
}

// A fingerprint as a level sees it: the line, and remainders ordered by quotient.
struct Cell {
  uint64_t line, slot;
};

inline uint64_t entry_at(const FingerprintView& f, const uint64_t* line, uint32_t i) {
  return f.wide_entries ? line[i] : line[i / 2] >> 32 * (i % 2) & 0xFFFFFFFF;
}
inline void set_entry(const FingerprintView& f, uint64_t* line, uint32_t i, uint64_t entry) {
  line[f.wide_entries ? i : i / 2] |= f.wide_entries ? entry : entry << 32 * (i % 2);
}
inline uint32_t entries_of(const FingerprintView& f) { return f.wide_entries ? 8 : 16; }

// Calls act(fingerprint) for all of a block that level 2, level 3 and the rest hold, in no order, and for those of level 1
// first, in order; false if a line is damaged.
template <typename Act, typename ActElsewhere>
bool each_of_block(const FingerprintView& f, std::span<const uint64_t> rest, uint64_t block, const Act& act,
                   const ActElsewhere& act_elsewhere) {
  bool sound = true;
  const uint64_t lines = 16 * f.group;
  for (uint64_t i = block * lines; i < (block + 1) * lines; ++i)
    sound &=
        each_slot(f.level1 + kLineWords * i, f.one, [&](uint32_t q, uint32_t r) { act(fingerprint_of(f, {i, q, r})); });
  const auto act_key = [&](uint64_t key) {
    act_elsewhere(fingerprint_of(f, fingerprint_parts_of(f, FingerprintKey{block, key})));
  };
  for (uint64_t i = 0; i < 16; ++i)
    sound &= each_slot(f.level2 + kLineWords * (16 * block + i), f.two,
                       [&](uint64_t q, uint32_t r) { act_key(((i << 6 | q) << f.two.bits) + r); });
  const uint64_t* entries = f.level3 + kLineWords * block;
  for (uint32_t i = 0; i < entries_of(f); ++i)
    if (const uint64_t entry = entry_at(f, entries, i); entry != 0) act_key(entry - 1);
  for (const uint64_t fingerprint : of_block(f, rest, block)) act_elsewhere(fingerprint);
  return sound;
}

inline uint64_t key_of(const FingerprintView& f, uint64_t fingerprint) {
  return fingerprint_key(f, fingerprint_parts_of(f, fingerprint)).key;
}

// The fingerprints of a block, in ascending order.
inline void ascending_of_block(const FingerprintView& f, std::span<const uint64_t> rest, uint64_t block,
                               std::vector<uint64_t>& out) {
  std::vector<uint64_t> elsewhere;
  out.clear();
  each_of_block(
      f, rest, block, [&](uint64_t fingerprint) { out.push_back(fingerprint); },
      [&](uint64_t fingerprint) { elsewhere.push_back(fingerprint); });
  std::sort(elsewhere.begin(), elsewhere.end());
  const auto middle = out.insert(out.end(), elsewhere.begin(), elsewhere.end());
  std::inplace_merge(out.begin(), middle, out.end());
}

// Of level 0, 1 or 2: fingerprints in a line, runs that it does not hold, how many lines have both.
inline std::vector<uint64_t> level_histogram(const FingerprintView& f, uint32_t level) {
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> lines;
  const uint64_t blocks = f.lines / (16 * f.group);
  const uint64_t count = level == 0 ? f.lines : level == 1 ? f.lines / f.group : blocks;
  const uint64_t* line = level == 0 ? f.level1 : level == 1 ? f.level2 : f.level3;
  for (uint64_t i = 0; i < count; ++i, line += kLineWords) {
    uint32_t load = 0, missing = 0;
    if (level == 2) {
      while (load < entries_of(f) && entry_at(f, line, load) != 0) ++load;
    } else {
      const FingerprintShape& g = level == 0 ? f.one : f.two;
      const RunEnds ends = load_ends(line, g);
      load = static_cast<uint32_t>(ends >> 64 != 0 ? 64 + std::bit_width(static_cast<uint64_t>(ends >> 64))
                                                   : std::bit_width(static_cast<uint64_t>(ends)));
      missing = static_cast<uint32_t>(std::popcount(load_occupied(line, g))) - ones(ends);
    }
    ++lines[{load, missing}];
  }
  std::vector<uint64_t> histogram;
  for (const auto& [what, times] : lines) histogram.insert(histogram.end(), {what.first, what.second, times});
  return histogram;
}

// Lines from fingerprints, without a look at how they came.
class FingerprintBuilder {
 public:
  explicit FingerprintBuilder(const FingerprintView& f) : f_(f) {
    lines1_.resize(kLineWords * 16 * f.group);
    lines2_.resize(kLineWords * 16);
    lines3_.resize(kLineWords);
  }

  // From the ascending fingerprints of a block.
  void build(uint64_t block, std::span<const uint64_t> fingerprints) {
    std::fill(lines1_.begin(), lines1_.end(), 0);
    std::fill(lines2_.begin(), lines2_.end(), 0);
    std::fill(lines3_.begin(), lines3_.end(), 0);
    rest_.clear();
    keys_.clear();
    cells_.clear();
    const uint64_t first_line = block * 16 * f_.group;
    for (const uint64_t fingerprint : fingerprints) {
      const uint64_t run = fingerprint >> f_.one.bits;
      cells_.push_back({run / f_.quotients - first_line,
                        run % f_.quotients << f_.one.bits | (fingerprint & ((uint64_t{1} << f_.one.bits) - 1))});
    }
    fill(lines1_.data(), f_.one, [&](const Cell& c) {
      const auto quotient = static_cast<uint32_t>(c.slot >> f_.one.bits);
      const auto remainder = static_cast<uint32_t>(c.slot & ((uint64_t{1} << f_.one.bits) - 1));
      keys_.push_back(fingerprint_key(f_, {first_line + c.line, quotient, remainder}).key);
    });
    std::sort(keys_.begin(), keys_.end());
    cells_.clear();
    for (const uint64_t key : keys_) {
      const uint32_t bits = f_.two.bits + 6;
      cells_.push_back({key >> bits, key & ((uint64_t{1} << bits) - 1)});
    }
    keys_.clear();
    fill(lines2_.data(), f_.two, [&](const Cell& c) { keys_.push_back((c.line << (f_.two.bits + 6)) + c.slot); });
    for (size_t i = 0, n = keys_.size(); i < n; ++i) {
      const uint64_t key = keys_[n - 1 - i];
      if (i < entries_of(f_))
        set_entry(f_, lines3_.data(), static_cast<uint32_t>(i), key + 1);
      else
        rest_.push_back(fingerprint_of_key(f_, {block, key}));
    }
    std::sort(rest_.begin(), rest_.end());
  }

  // What was built; the rest of the block, ascending.
  const std::vector<uint64_t>& rest() const { return rest_; }
  bool is_equal(uint64_t block) const {
    return is_at(f_.level1, lines1_, block) && is_at(f_.level2, lines2_, block) && is_at(f_.level3, lines3_, block);
  }
  void write(uint64_t block, const FingerprintView& to) const {
    std::copy(lines1_.begin(), lines1_.end(), to.level1 + block * lines1_.size());
    std::copy(lines2_.begin(), lines2_.end(), to.level2 + block * lines2_.size());
    std::copy(lines3_.begin(), lines3_.end(), to.level3 + block * lines3_.size());
  }

 private:
  static bool is_at(const uint64_t* level, const std::vector<uint64_t>& lines, uint64_t block) {
    return std::memcmp(level + block * lines.size(), lines.data(), lines.size() * sizeof(uint64_t)) == 0;
  }

  // Fills lines with cells_, which are ascending; calls send(cell) for those that are not in.
  template <typename Send>
  void fill(uint64_t* lines, const FingerprintShape& g, const Send& send) const {
    for (size_t first = 0; first < cells_.size();) {
      size_t last = first + 1;
      while (last < cells_.size() && cells_[last].line == cells_[first].line) ++last;
      const size_t end = first + fill_line(lines + kLineWords * cells_[first].line, g, last - first,
                                           [&](uint64_t i) { return cells_[first + i].slot; });
      for (size_t i = end; i < last; ++i) send(cells_[i]);
      first = last;
    }
  }

  const FingerprintView& f_;
  std::vector<uint64_t> lines1_, lines2_, lines3_, rest_, keys_;
  std::vector<Cell> cells_;
};

// Names what is wrong with levels and rest, if they are not those that their fingerprints leave, `copies` of them.
inline std::string broken_levels(const FingerprintView& f, std::span<const uint64_t> rest, uint64_t room,
                                 uint64_t copies, bool is_set) {
  const uint64_t blocks = f.lines / (16 * f.group);
  const uint64_t *unused = rest_words(f) + rest.size(), *end = rest_words(f) + room;
  if (std::any_of(unused, end, [](uint64_t word) { return word != 0; })) return "unused words of the rest are set";
  if (!std::is_sorted(rest.begin(), rest.end())) return "the rest is not in order";
  if (!rest.empty() && rest.back() >= least_of_block(f, blocks)) return "a fingerprint of the rest is too large";
  FingerprintBuilder builder(f);
  std::vector<uint64_t> all;
  const auto are_same = [&](uint64_t a, uint64_t b) { return a >> f.payload == b >> f.payload; };
  uint64_t found = 0;
  for (uint64_t block = 0; block < blocks; ++block) {
    const auto name = [&] { return "block " + std::to_string(block) + " is damaged"; };
    bool in_range = true;
    const uint64_t least = least_of_block(f, block), next = least_of_block(f, block + 1);
    const auto look = [&](uint64_t fingerprint) { in_range &= fingerprint >= least && fingerprint < next; };
    if (!each_of_block(f, rest, block, look, look) || !in_range) return name();
    ascending_of_block(f, rest, block, all);
    found += all.size();
    if (is_set && std::adjacent_find(all.begin(), all.end(), are_same) != all.end())
      return name() + ": repeated fingerprints";
    if (!std::is_sorted(all.begin(), all.end())) return name();
    builder.build(block, all);
    if (!builder.is_equal(block) || !std::ranges::equal(builder.rest(), of_block(f, rest, block))) return name();
  }
  return found == copies ? std::string() : "the number of copies is wrong";
}

// Fingerprints of a block, and memory to find them.
struct BlockKeys {
  std::vector<uint64_t> all, mine, theirs;
};

// Fills an empty filter, by blocks that threads share: make(block, keys) leaves in keys.all the fingerprints of a block,
// in ascending order. `room` is that of the rest. Throws FingerprintsDoNotFit if they are too many; then the memory is of no use.
template <typename Make>
void build_blocks(const FingerprintView& to, uint64_t room, uint32_t threads, const Make& make) {
  constexpr uint64_t kBlocks = 16;
  std::mutex lock;
  std::vector<uint64_t> rest;
  uint64_t copies = 0;
  const auto build_some = [&](uint64_t start, uint64_t count) {
    FingerprintBuilder builder(to);
    BlockKeys keys;
    for (uint64_t block = start; block < start + count; ++block) {
      make(block, keys);
      builder.build(block, keys.all);
      builder.write(block, to);
      const std::lock_guard hold(lock);
      copies += keys.all.size();
      rest.insert(rest.end(), builder.rest().begin(), builder.rest().end());
      if (copies > to.limit || rest.size() > room) throw FingerprintsDoNotFit();
    }
  };
  for_stretches(to.lines / (16 * to.group), threads, kBlocks, [] { return true; }, build_some);
  std::sort(rest.begin(), rest.end());
  std::copy(rest.begin(), rest.end(), rest_words(to));
  to.state[0] = copies;
  to.state[2] = rest.size();
}

}  // namespace evenbins::fingerprints

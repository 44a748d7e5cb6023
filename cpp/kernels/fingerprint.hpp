// The loops of a fingerprint filter, as text for every kernel (body.hpp).
#pragma once

#include "evenbins/fingerprint_view.hpp"
#include "fingerprint_levels.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

template <uint32_t Planes, bool Low>
struct Fingerprints {
  using Code = LineCode<Planes, Low>;
  using Place = typename Code::Place;

  // A key in its line.
  struct Key {
    uint64_t* line;
    uint32_t quotient, remainder;

    EVENBINS_INLINE Key(const FingerprintView& f, uint64_t* line, uint64_t digest) : line(line) {
      const unsigned __int128 product = static_cast<unsigned __int128>(digest * f.lines) * f.quotients;
      quotient = static_cast<uint32_t>(product >> 64);
      remainder = static_cast<uint32_t>(static_cast<uint64_t>(product) >> f.shift);
    }
    EVENBINS_INLINE Place place(const FingerprintView& f) const { return Place(line, f.one, quotient, f.slow_pdep); }
    EVENBINS_INLINE Cell cell(const FingerprintView& f) const {
      return {static_cast<uint64_t>(line - f.level1) / 8, quotient, remainder};
    }
  };
  EVENBINS_INLINE static uint64_t* line_of(const FingerprintView& f, uint64_t digest) {
    return f.level1 + (mulhi(digest, f.lines) << 3);
  }

  EVENBINS_INLINE static bool contains(const FingerprintView& f, const Key& key, bool locked = false) {
    const Place at = key.place(f);
    if (at.is_elsewhere()) [[unlikely]]
      return count_elsewhere(f, key.cell(f), locked) != 0;
    return Code::find(key.line, f.one, at.run(), key.remainder) != 0;
  }
  EVENBINS_INLINE static uint64_t count(const FingerprintView& f, const Key& key) {
    const Place at = key.place(f);
    if (at.is_elsewhere()) [[unlikely]]
      return count_elsewhere(f, key.cell(f), false);
    return ones(Code::find(key.line, f.one, at.run(), key.remainder));
  }

  // False: there was no room, and nothing has changed. What a key moves depends on all keys together alone: to remove it
  // again leaves the filter as it was.
  [[gnu::noinline, gnu::cold]] static bool add_elsewhere(const FingerprintView& f, const Cell& cell) {
    add_overflowing<1>(f, cell);
    if (!kFingerprintRest.is_overfull(f)) return true;
    remove_at<1>(f, cell);
    return false;
  }
  EVENBINS_INLINE static bool add(const FingerprintView& f, const Key& key, const Place& at) {
    if (Code::insert(key.line, f.one, at, key.quotient, key.remainder)) [[likely]]
      return true;
    return add_elsewhere(f, key.cell(f));
  }
  EVENBINS_INLINE static AddOutcome add_new(const FingerprintView& f, const Key& key, bool has_room) {
    const Place at = key.place(f);
    if (at.is_elsewhere()) [[unlikely]] {
      if (count_elsewhere(f, key.cell(f), true) != 0) return AddOutcome::present;
    } else if (Code::find(key.line, f.one, at.run(), key.remainder) != 0) {
      return AddOutcome::present;
    }
    return has_room && add(f, key, at) ? AddOutcome::added : AddOutcome::full;
  }
  EVENBINS_INLINE static bool remove(const FingerprintView& f, const Key& key) {
    const Removal removal = Code::remove(key.line, f.one, key.place(f), key.quotient, key.remainder);
    if (removal == Removal::makes_room) [[unlikely]] {
      restore<1>(f, key.cell(f).line);
      return true;
    }
    if (removal == Removal::elsewhere) [[unlikely]]
      return remove_elsewhere<1>(f, key.cell(f));
    return removal == Removal::removed;
  }

  // Copies that still fit; threads that add at the same time count theirs once.
  EVENBINS_INLINE static uint64_t room(const FingerprintView& f) {
    const uint64_t copies = __atomic_load_n(f.state, __ATOMIC_RELAXED);
    return copies < f.limit ? f.limit - copies : 0;
  }
  static void count_copies(const FingerprintView& f, uint64_t more) {
    __atomic_fetch_add(f.state, more, __ATOMIC_RELAXED);
  }

  // Calls act(j, key) for j = 0 … n−1 until it returns false, with the next lines on their way: one is asked for with each
  // key. (Asking for 32 lines at once, again and again, takes twice as long in memory.) Returns how often it was called
  // and returned true.
  template <int ForWriting, typename Act>
  EVENBINS_INLINE static size_t each(const FingerprintView& view, const uint64_t* digests, size_t n, Act&& act) {
    constexpr size_t kLinesAhead = 32;
    const FingerprintView& f = view;
    uint64_t* lines[kLinesAhead];
    const auto prefetch = [&](size_t j) __attribute__((always_inline)) {
      lines[j % kLinesAhead] = line_of(f, digests[j]);
      __builtin_prefetch(lines[j % kLinesAhead], ForWriting);
    };
    for (size_t j = 0; j < kLinesAhead && j < n; ++j) prefetch(j);
    for (size_t j = 0; j < n; ++j) {
      const Key key(f, lines[j % kLinesAhead], digests[j]);
      if (j + kLinesAhead < n) prefetch(j + kLinesAhead);
      if (!act(j, key)) return j;
    }
    return n;
  }

  static void contains_many(const FingerprintView& f, const uint64_t* digests, size_t n, uint8_t* out) {
    each<0>(f, digests, n, [&](size_t j, const Key& key) __attribute__((always_inline)) {
      out[j] = contains(f, key);
      return true;
    });
  }
  static void count_many(const FingerprintView& f, const uint64_t* digests, size_t n, int64_t* out) {
    each<0>(f, digests, n, [&](size_t j, const Key& key) __attribute__((always_inline)) {
      out[j] = static_cast<int64_t>(count(f, key));
      return true;
    });
  }
  static void remove_many(const FingerprintView& f, const uint64_t* digests, size_t n, uint8_t* out) {
    uint64_t removed = 0;
    each<1>(f, digests, n, [&](size_t j, const Key& key) __attribute__((always_inline)) {
      removed += out[j] = remove(f, key);
      return true;
    });
    count_copies(f, -removed);
  }
  static size_t add_many(const FingerprintView& f, const uint64_t* digests, size_t n) {
    const uint64_t fit = room(f);
    const size_t added =
        each<1>(f, digests, n < fit ? n : fit,
                [&](size_t, const Key& key) __attribute__((always_inline)) { return add(f, key, key.place(f)); });
    count_copies(f, added);
    return added;
  }
  static size_t add_new_many(const FingerprintView& f, const uint64_t* digests, size_t n, uint8_t* out) {
    const uint64_t fit = room(f);
    uint64_t added = 0;
    const size_t treated = each<1>(f, digests, n, [&](size_t j, const Key& key) __attribute__((always_inline)) {
      const AddOutcome outcome = add_new(f, key, added < fit);
      const bool is_new = outcome == AddOutcome::added;
      added += is_new;
      if (out != nullptr) out[j] = is_new;
      return outcome != AddOutcome::full;
    });
    count_copies(f, added);
    return treated;
  }

  static AddOutcome add_one(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const FingerprintView*>(view);
    const Key key(f, line_of(f, digest), digest);
    if (f.state[0] >= f.limit || !add(f, key, key.place(f))) return AddOutcome::full;
    ++f.state[0];
    return AddOutcome::added;
  }
  static AddOutcome add_new_one(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const FingerprintView*>(view);
    const AddOutcome outcome = add_new(f, Key(f, line_of(f, digest), digest), f.state[0] < f.limit);
    f.state[0] += outcome == AddOutcome::added;
    return outcome;
  }
  static bool contains_one(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const FingerprintView*>(view);
    return contains(f, Key(f, line_of(f, digest), digest));
  }
  static bool remove_one(const FingerprintView& f, uint64_t digest) {
    const bool removed = remove(f, Key(f, line_of(f, digest), digest));
    f.state[0] -= removed;
    return removed;
  }

  static constexpr FingerprintLoops loops = {
      .one = {.add_to = add_one, .add_new_to = add_new_one, .contained_in = contains_one, .view = nullptr},
      .remove = remove_one,
      .contains_many = contains_many,
      .count_many = count_many,
      .remove_many = remove_many,
      .add_many = add_many,
      .add_new_many = add_new_many,
  };
};

const FingerprintLoops& fingerprint(uint32_t remainder_bits) {
  static constexpr const FingerprintLoops* all[] = {
      nullptr,
      &Fingerprints<0, true>::loops,
      &Fingerprints<1, false>::loops,
      &Fingerprints<1, true>::loops,
      &Fingerprints<2, false>::loops,
      &Fingerprints<2, true>::loops,
      &Fingerprints<3, false>::loops,
      &Fingerprints<3, true>::loops,
  };
  return *all[2 * (remainder_bits / 8) + (remainder_bits % 8 != 0)];
}

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

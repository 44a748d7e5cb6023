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

    Key() = default;
    EVENBINS_INLINE Key(const FingerprintView& f, uint64_t digest) {
      const uint128 cut = static_cast<uint128>(digest) * f.lines;
      line = f.level1 + (static_cast<uint64_t>(cut >> 64) << 3);
      const uint128 product = static_cast<uint128>(static_cast<uint64_t>(cut)) * f.quotients;
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

  EVENBINS_INLINE static Key key_of(const FingerprintView& f, uint64_t digest) { return {f, digest}; }

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
  EVENBINS_COLD static bool add_elsewhere(const FingerprintView& f, const Cell& cell) {
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

  // One line is asked for with each key: 32 at once, again and again, take twice as long.
  static constexpr size_t kLinesAhead = 32;
  static constexpr size_t kChunk = 256;  // keys whose overflow waits until all of them have been in their lines

  // Keys of a chunk that need level 2, in their order. They wait, so that the loop over lines has no branch that depends on
  // them, and so that what they need of level 2 is on its way when they get their turn.
  struct Waiting {
    size_t first;
    uint32_t count;
    uint32_t keys[kChunk];  // 2·key + what is to be done, the last 32 bits of it
    EVENBINS_INLINE void add(size_t key, uint32_t what, bool is_waiting) {
      keys[count] = static_cast<uint32_t>(2 * key + what);
      count += is_waiting;
    }
    size_t key(uint32_t i) const { return first + (keys[i] - static_cast<uint32_t>(2 * first)) / 2; }
  };

  // Calls act(f, j, key, waiting) for n keys, chunk by chunk, with the next lines on their way, and after each chunk
  // finish(count, waiting) until it returns false. Returns the keys of chunks for which it returned true.
  template <int ForWriting, typename Act, typename Finish>
  EVENBINS_INLINE static size_t each(const FingerprintView& view, const uint64_t* digests, size_t n, Act&& act,
                                     Finish&& finish) {
    const FingerprintView f = view;  // a copy that no store can change: what is constant stays in registers
    Key keys[kChunk + kLinesAhead];
    Waiting waiting;
    size_t cut = 0;  // keys that are cut, up to those of the next lines
    for (size_t first = 0, count; first < n; first += count) {
      count = n - first < kChunk ? n - first : kChunk;
      const size_t left = n - first, ahead = left < kChunk + kLinesAhead ? left : kChunk + kLinesAhead;
      if (first != 0) __builtin_memcpy(keys, keys + kChunk, sizeof(Key) * kLinesAhead);
      for (; cut < first + ahead; ++cut) keys[cut - first] = key_of(f, digests[cut]);
      if (first == 0)
        for (size_t j = 0; j < kLinesAhead && j < ahead; ++j) __builtin_prefetch(keys[j].line, ForWriting);
      for (size_t j = ahead; j < kChunk + kLinesAhead; ++j) keys[j].line = f.level1;
      waiting.first = first;
      waiting.count = 0;
      for (size_t j = 0; j < count; ++j) {
        __builtin_prefetch(keys[j + kLinesAhead].line, ForWriting);
        act(f, first + j, keys[j], waiting);
      }
      if (!finish(count, waiting)) return first;
    }
    return n;
  }
  // Prefetches what the keys of a chunk need of level 2: their own runs, and the last run of their lines, or the next.
  template <int ForWriting>
  static void prefetch_waiting(const FingerprintView& f, const uint64_t* digests, const Waiting& waiting,
                               uint32_t last) {
    for (uint32_t i = 0; i < waiting.count; ++i) {
      const uint64_t digest = digests[waiting.key(i)];
      const Cell cell = key_of(f, digest).cell(f);
      prefetch_next<ForWriting>(f, cell.line, cell.quotient);
      if (ForWriting) prefetch_boundary(f, cell.line, last);
    }
  }

  static void contains_many(const FingerprintView& view, const uint64_t* digests, size_t n, uint8_t* out) {
    each<0>(
        view, digests, n,
        [&](const FingerprintView& f, size_t j, const Key& key, Waiting& waiting) EVENBINS_INLINE_LAMBDA {
          const Place at = key.place(f);
          out[j] = Code::find(key.line, f.one, at.run(), key.remainder) != 0;
          waiting.add(j, 0, at.end == 0);
        },
        [&](size_t, const Waiting& waiting) EVENBINS_INLINE_LAMBDA {
          if (waiting.count != 0) contain_waiting(view, digests, waiting, out);
          return true;
        });
  }
  EVENBINS_NOINLINE static void contain_waiting(const FingerprintView& f, const uint64_t* digests,
                                                const Waiting& waiting, uint8_t* out) {
    prefetch_waiting<0>(f, digests, waiting, 0);
    for (uint32_t i = 0; i < waiting.count; ++i) {
      const size_t j = waiting.key(i);
      out[j] = contains(f, key_of(f, digests[j]));
    }
  }
  static void count_many(const FingerprintView& view, const uint64_t* digests, size_t n, int64_t* out) {
    each<0>(
        view, digests, n,
        [&](const FingerprintView&, size_t j, const Key& key, Waiting&)
            EVENBINS_INLINE_LAMBDA { out[j] = static_cast<int64_t>(count(view, key)); },
        [](size_t, const Waiting&) { return true; });
  }
  static void remove_many(const FingerprintView& view, const uint64_t* digests, size_t n, uint8_t* out) {
    uint64_t removed = 0;
    each<1>(
        view, digests, n,
        [&](const FingerprintView& f, size_t j, const Key& key, Waiting& waiting) EVENBINS_INLINE_LAMBDA {
          const Removal removal = Code::remove(key.line, f.one, key.place(f), key.quotient, key.remainder);
          const bool is_elsewhere = removal == Removal::elsewhere,
                     is_here = !is_elsewhere && removal != Removal::absent;
          out[j] = is_here;
          removed += is_here;
          waiting.add(j, is_elsewhere, removal >= Removal::makes_room);
        },
        [&](size_t, const Waiting& waiting) EVENBINS_INLINE_LAMBDA {
          if (waiting.count != 0) removed += remove_waiting(view, digests, waiting, out);
          return true;
        });
    count_copies(view, -removed);
  }
  EVENBINS_NOINLINE static uint64_t remove_waiting(const FingerprintView& f, const uint64_t* digests,
                                                   const Waiting& waiting, uint8_t* out) {
    uint64_t removed = 0;
    prefetch_waiting<1>(f, digests, waiting, 0);
    for (uint32_t i = 0; i < waiting.count; ++i) {
      const size_t j = waiting.key(i);
      const Key key = key_of(f, digests[j]);
      if (waiting.keys[i] % 2 == 0)
        restore<1>(f, key.cell(f).line);
      else
        removed += out[j] = remove(f, key);
    }
    return removed;
  }
  static size_t add_many(const FingerprintView& view, const uint64_t* digests, size_t n) {
    const uint64_t fit = room(view);
    if (n > fit) n = fit;
    size_t added = each<1>(
        view, digests, n,
        [&](const FingerprintView& f, size_t j, const Key& key, Waiting& waiting) EVENBINS_INLINE_LAMBDA {
          waiting.add(j, 0, !Code::insert(key.line, f.one, key.place(f), key.quotient, key.remainder));
        },
        [&](size_t count, const Waiting& waiting)
            EVENBINS_INLINE_LAMBDA { return waiting.count == 0 || add_waiting(view, digests, count, waiting); });
    while (added < n) {  // of a chunk that does not fit, key by key
      const Key key = key_of(view, digests[added]);
      if (!add(view, key, key.place(view))) break;
      ++added;
    }
    count_copies(view, added);
    return added;
  }
  EVENBINS_NOINLINE static bool add_waiting(const FingerprintView& f, const uint64_t* digests, size_t count,
                                            const Waiting& waiting) {
    prefetch_waiting<1>(f, digests, waiting, 1);
    for (uint32_t i = 0; i < waiting.count; ++i) {
      const Key key = key_of(f, digests[waiting.key(i)]);
      if (!add(f, key, key.place(f))) return take_back_chunk(f, digests, count, waiting, i);
    }
    return true;
  }
  // Removes the keys of a chunk again, of those that waited only the first `done`.
  EVENBINS_COLD static bool take_back_chunk(const FingerprintView& f, const uint64_t* digests, size_t count,
                                            const Waiting& waiting, uint32_t done) {
    uint32_t i = 0;
    for (size_t j = waiting.first; j < waiting.first + count; ++j) {
      const bool waited = i < waiting.count && waiting.key(i) == j;
      if (!waited || i < done) remove(f, key_of(f, digests[j]));
      i += waited;
    }
    return false;
  }
  static size_t add_new_many(const FingerprintView& view, const uint64_t* digests, size_t n, uint8_t* out) {
    const uint64_t fit = room(view);
    uint64_t added = 0;
    for (size_t j = 0; j < kLinesAhead && j < n; ++j) __builtin_prefetch(line_of(view, digests[j]), 1);
    size_t j = 0;
    for (; j < n; ++j) {
      if (j + kLinesAhead < n) __builtin_prefetch(line_of(view, digests[j + kLinesAhead]), 1);
      const AddOutcome outcome = add_new(view, key_of(view, digests[j]), added < fit);
      if (outcome == AddOutcome::full) break;
      const bool is_new = outcome == AddOutcome::added;
      added += is_new;
      if (out != nullptr) out[j] = is_new;
    }
    count_copies(view, added);
    return j;
  }

  static AddOutcome add_one(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const FingerprintView*>(view);
    const Key key = key_of(f, digest);
    if (f.state[0] >= f.limit || !add(f, key, key.place(f))) return AddOutcome::full;
    ++f.state[0];
    return AddOutcome::added;
  }
  static AddOutcome add_new_one(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const FingerprintView*>(view);
    const AddOutcome outcome = add_new(f, key_of(f, digest), f.state[0] < f.limit);
    f.state[0] += outcome == AddOutcome::added;
    return outcome;
  }
  static bool contains_one(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const FingerprintView*>(view);
    return contains(f, key_of(f, digest));
  }
  static bool remove_one(const FingerprintView& f, uint64_t digest) {
    const bool removed = remove(f, key_of(f, digest));
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

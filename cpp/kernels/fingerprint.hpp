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
      return levels_of(f).count_elsewhere(f, key.cell(f), locked) != 0;
    return Code::find(key.line, f.one, at.run(), key.remainder) != 0;
  }
  // False: there was no room, and nothing has changed. What a key moves depends on all keys together alone: to remove it
  // again leaves the filter as it was.
  EVENBINS_COLD static bool add_elsewhere(const FingerprintView& f, const Cell& cell) {
    levels_of(f).add_overflowing(f, cell);
    if (!kFingerprintRest.is_overfull(f)) return true;
    levels_of(f).remove_at(f, cell);
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
      if (levels_of(f).count_elsewhere(f, key.cell(f), true) != 0) return AddOutcome::present;
    } else if (Code::find(key.line, f.one, at.run(), key.remainder) != 0) {
      return AddOutcome::present;
    }
    return has_room && add(f, key, at) ? AddOutcome::added : AddOutcome::full;
  }
  EVENBINS_INLINE static bool remove(const FingerprintView& f, const Key& key) {
    const Removal removal = Code::remove(key.line, f.one, key.place(f), key.quotient, key.remainder);
    if (removal == Removal::makes_room) [[unlikely]] {
      levels_of(f).restore(f, key.cell(f).line);
      return true;
    }
    if (removal == Removal::elsewhere) [[unlikely]]
      return levels_of(f).remove_elsewhere(f, key.cell(f));
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

  // Lines in flight. One is asked for with each key: many at once, again and again, take twice as long. On Zen 4, 166 MiB,
  // ns per key with 8, 16, 24, 48 lines: look-ups 15.6, 11.1, 11.9, 12.6 (a short loop has others in flight by itself),
  // insertions with 16, 24, 32: 15.7, 13.7, 13.7.
  static constexpr size_t kReadsAhead = 16, kWritesAhead = 24;
  static constexpr size_t kChunk = 1024;  // keys whose overflow waits until all of them have been in their lines

  // A key that needs level 2. It waits until the end of its chunk, in the order of the keys, while that is on its way.
  enum class Wait : uint8_t { no, for_level2, for_runs };
  struct Waiting {
    uint32_t key;  // of the chunk
    Wait reason;
  };

  // Calls act(f, j, key) for n keys, with the next lines on their way, and after each chunk
  // finish(first, count, waiting, number) with those keys for which it returned a reason to wait, until that is false.
  // Returns the keys of chunks for which it was true. Tried and dropped: to cut the keys of a chunk in advance. Nothing
  // is in flight then, which costs a third.
  template <int ForWriting, typename Act, typename Finish>
  EVENBINS_INLINE static size_t each(const FingerprintView& view, const uint64_t* digests, size_t n, Act&& act,
                                     Finish&& finish) {
    // A copy that no store can change, and no call sees: what is constant stays in registers.
    const FingerprintView f = view;
    constexpr size_t kAhead = ForWriting ? kWritesAhead : kReadsAhead;
    Waiting waiting[kChunk];
    for (size_t j = 0; j < kAhead && j < n; ++j) __builtin_prefetch(line_of(f, digests[j]), ForWriting);
    for (size_t first = 0, end; first < n; first = end) {
      end = n - first < kChunk ? n : first + kChunk;
      uint32_t number = 0;
      for (size_t j = first; j < end; ++j) {
        if (j + kAhead < n) __builtin_prefetch(line_of(f, digests[j + kAhead]), ForWriting);
        if (const Wait reason = act(f, j, key_of(f, digests[j])); reason != Wait::no) [[unlikely]]
          waiting[number++] = {static_cast<uint32_t>(j - first), reason};
      }
      if (number != 0 && !finish(first, end - first, waiting, number)) return first;
    }
    return n;
  }
  // Prefetches what a key needs of level 2: its own run; the run of a rank among those that occur in its line.
  template <int ForWriting>
  EVENBINS_INLINE static void prefetch_own(const FingerprintView& f, const Key& key) {
    prefetch_next<ForWriting>(f, key.cell(f).line, key.quotient);
  }
  EVENBINS_INLINE static void prefetch_run(const FingerprintView& f, const Key& key, const Place& at, uint32_t rank) {
    prefetch_next<1>(f, key.cell(f).line, lowest(nth_bit(at.occupied, rank, f.slow_pdep)));
  }

  // out[j] = answer(copies of key j that are here, as a mask; or how many there are elsewhere).
  template <typename Out, typename Here>
  EVENBINS_INLINE static void ask_many(const FingerprintView& view, const uint64_t* digests, size_t n, Out* out,
                                       Here&& here) {
    each<0>(
        view, digests, n,
        [&](const FingerprintView& f, size_t j, const Key& key) EVENBINS_INLINE_LAMBDA {
          const Place at = key.place(f);
          if (at.is_elsewhere()) [[unlikely]] {
            prefetch_own<0>(f, key);
            return Wait::for_level2;
          }
          out[j] = here(Code::find(key.line, f.one, at.run(), key.remainder));
          return Wait::no;
        },
        [&](size_t first, size_t, const Waiting* waiting, uint32_t number) EVENBINS_INLINE_LAMBDA {
          ask_waiting(view, digests + first, waiting, number, out + first);
          return true;
        });
  }
  template <typename Out>
  EVENBINS_NOINLINE static void ask_waiting(const FingerprintView& f, const uint64_t* digests, const Waiting* waiting,
                                            uint32_t number, Out* out) {
    for (uint32_t i = 0; i < number; ++i) {
      const uint32_t j = waiting[i].key;
      const uint64_t copies = levels_of(f).count_elsewhere(f, key_of(f, digests[j]).cell(f), false);
      out[j] = static_cast<Out>(sizeof(Out) == 1 ? copies != 0 : copies);
    }
  }
  static void contains_many(const FingerprintView& view, const uint64_t* digests, size_t n, uint8_t* out) {
    ask_many(view, digests, n, out, [](auto found) EVENBINS_INLINE_LAMBDA { return found != 0; });
  }
  static void count_many(const FingerprintView& view, const uint64_t* digests, size_t n, int64_t* out) {
    ask_many(view, digests, n, out, [](auto found) EVENBINS_INLINE_LAMBDA { return int64_t{ones(found)}; });
  }

  static void remove_many(const FingerprintView& view, const uint64_t* digests, size_t n, uint8_t* out) {
    uint64_t removed = 0;
    each<1>(
        view, digests, n,
        [&](const FingerprintView& f, size_t j, const Key& key) EVENBINS_INLINE_LAMBDA {
          const Place at = key.place(f);
          const Removal removal = Code::remove(key.line, f.one, at, key.quotient, key.remainder);
          const bool is_here = removal == Removal::removed || removal == Removal::makes_room;
          out[j] = is_here;
          removed += is_here;
          if (removal < Removal::makes_room) [[likely]]
            return Wait::no;
          prefetch_run(f, key, at, ones(at.ends));
          if (is_here) return Wait::for_runs;
          prefetch_own<1>(f, key);
          return Wait::for_level2;
        },
        [&](size_t first, size_t, const Waiting* waiting, uint32_t number) EVENBINS_INLINE_LAMBDA {
          removed += remove_waiting(view, digests + first, waiting, number, out + first);
          return true;
        });
    count_copies(view, -removed);
  }
  EVENBINS_NOINLINE static uint64_t remove_waiting(const FingerprintView& f, const uint64_t* digests,
                                                   const Waiting* waiting, uint32_t number, uint8_t* out) {
    uint64_t removed = 0;
    for (uint32_t i = 0; i < number; ++i) {
      const uint32_t j = waiting[i].key;
      const Key key = key_of(f, digests[j]);
      if (waiting[i].reason == Wait::for_runs)
        levels_of(f).restore(f, key.cell(f).line);
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
        [&](const FingerprintView& f, size_t, const Key& key) EVENBINS_INLINE_LAMBDA {
          const Place at = key.place(f);
          if (Code::insert(key.line, f.one, at, key.quotient, key.remainder)) [[likely]]
            return Wait::no;
          const uint32_t here = ones(at.ends);  // the last run leaves, or the key belongs behind it
          if (here != 0 && ones(at.occupied & mask_of_bits(key.quotient)) < here)
            prefetch_run(f, key, at, here - 1);
          else
            prefetch_own<1>(f, key);
          return Wait::for_level2;
        },
        [&](size_t first, size_t count, const Waiting* waiting, uint32_t number)
            EVENBINS_INLINE_LAMBDA { return add_waiting(view, digests + first, count, waiting, number); });
    while (added < n) {  // of a chunk that does not fit, key by key
      const Key key = key_of(view, digests[added]);
      if (!add(view, key, key.place(view))) break;
      ++added;
    }
    count_copies(view, added);
    return added;
  }
  EVENBINS_NOINLINE static bool add_waiting(const FingerprintView& f, const uint64_t* digests, size_t count,
                                            const Waiting* waiting, uint32_t number) {
    for (uint32_t i = 0; i < number; ++i) {
      const Key key = key_of(f, digests[waiting[i].key]);
      if (!add(f, key, key.place(f))) return take_back_chunk(f, digests, count, waiting, number, i);
    }
    return true;
  }
  // Removes the keys of a chunk again, of those that waited only the first `done`.
  EVENBINS_COLD static bool take_back_chunk(const FingerprintView& f, const uint64_t* digests, size_t count,
                                            const Waiting* waiting, uint32_t number, uint32_t done) {
    uint32_t i = 0;
    for (size_t j = 0; j < count; ++j) {
      const bool waited = i < number && waiting[i].key == j;
      if (!waited || i < done) remove(f, key_of(f, digests[j]));
      i += waited;
    }
    return false;
  }
  static size_t add_new_many(const FingerprintView& view, const uint64_t* digests, size_t n, uint8_t* out) {
    const uint64_t fit = room(view);
    uint64_t added = 0;
    for (size_t j = 0; j < kWritesAhead && j < n; ++j) __builtin_prefetch(line_of(view, digests[j]), 1);
    size_t j = 0;
    for (; j < n; ++j) {
      if (j + kWritesAhead < n) __builtin_prefetch(line_of(view, digests[j + kWritesAhead]), 1);
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

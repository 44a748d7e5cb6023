// The loops of a counting filter, as text for every kernel (body.hpp).
#pragma once

#include "evenbins/counters.hpp"
#include "evenbins/counting_view.hpp"
#include "evenbins/lanes.hpp"
#include "positions.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

// Counters anywhere: positions as a standard filter's, without the repeats of a key.
template <uint32_t WidthLog>
struct FlatCounters {
  using C = Counters<WidthLog>;
  static constexpr size_t kItems = 4096;  // positions of the keys that are treated together

  static void positions(const CountingView& f, const uint64_t* digests, size_t n, uint64_t* out) {
    for (uint32_t i = 0; i < f.hashes; ++i) column(f.size, i, digests, n, out + i * n);
    // Repeats are rare, and to know that there is none takes no writing.
    uint64_t any = 0;
    for (uint32_t i = 1; i < f.hashes; ++i)
      for (uint32_t h = 0; h < i; ++h)
        for (size_t j = 0; j < n; ++j) any |= out[i * n + j] == out[h * n + j] ? 1 : 0;
    if (any == 0) [[likely]]
      return;
    for (uint32_t i = 1; i < f.hashes; ++i)
      for (uint32_t h = 0; h < i; ++h)
        for (size_t j = 0; j < n; ++j)
          if (out[i * n + j] == out[h * n + j]) out[i * n + j] = kNoCounter;
  }
  static void add_positions(const CountingView& f, const uint64_t* positions, size_t n) {
    each_position<1, C::kWordLog>(f.words, positions, n, [&](size_t, uint64_t p) {
      if (p != kNoCounter) [[likely]]
        C::raise(f.words, p);
    });
  }
  // Calls act(start, keys, positions) for groups of keys.
  template <typename F>
  EVENBINS_INLINE static void each_group(const CountingView& f, const uint64_t* digests, size_t n, F&& act) {
    uint64_t items[kItems];
    const size_t most = kItems / f.hashes;
    for (size_t start = 0; start < n; start += most) {
      const size_t g = n - start < most ? n - start : most;
      positions(f, digests + start, g, items);
      act(start, g, items);
    }
  }
  // Whether a counter of the key is zero; its k positions are p[0], p[stride], …
  EVENBINS_INLINE static bool any_zero(const CountingView& f, const uint64_t* p, size_t stride) {
    uint64_t zero = 0;
    for (uint32_t i = 0; i < f.hashes; ++i, p += stride)
      if (*p != kNoCounter) [[likely]]
        zero |= C::at(f.words, *p) == 0 ? 1 : 0;
    return zero != 0;
  }
  // Takes one key away, or nothing if a counter is zero.
  EVENBINS_INLINE static bool remove_at(const CountingView& f, const uint64_t* p, size_t stride) {
    if (any_zero(f, p, stride)) return false;
    for (uint32_t i = 0; i < f.hashes; ++i, p += stride)
      if (*p != kNoCounter) [[likely]]
        C::lower(f.words, *p);
    return true;
  }
  // Adds one key, or nothing if no counter is zero: then it is present.
  EVENBINS_INLINE static bool add_new_at(const CountingView& f, const uint64_t* p, size_t stride) {
    if (!any_zero(f, p, stride)) return false;
    for (uint32_t i = 0; i < f.hashes; ++i, p += stride)
      if (*p != kNoCounter) [[likely]]
        C::raise(f.words, *p);
    return true;
  }
  // out[j] = act(p, stride) for one key after the other, with the counters of the next ones on their way.
  template <typename F>
  EVENBINS_INLINE static void each_key(const CountingView& f, const uint64_t* digests, size_t n, uint8_t* out,
                                       F&& act) {
    const size_t ahead = 1 + (kAhead - 1) / f.hashes;  // keys
    each_group(f, digests, n, [&](size_t start, size_t g, const uint64_t* p) {
      const auto ask = [&](size_t j) EVENBINS_INLINE_LAMBDA {
        for (size_t i = j; i < f.hashes * g; i += g) __builtin_prefetch(near_word<C::kWordLog>(f.words, p[i]), 1);
      };
      for (size_t j = 0; j < ahead && j < g; ++j) ask(j);
      for (size_t j = 0; j < g; ++j) {
        if (j + ahead < g) ask(j + ahead);
        out[start + j] = act(p + j, g);
      }
    });
  }

  static AddOutcome add_key(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const CountingView*>(view);
    uint64_t p[kMaxFlatHashes];
    positions(f, &digest, 1, p);
    for (uint32_t i = 0; i < f.hashes; ++i)
      if (p[i] != kNoCounter) C::raise(f.words, p[i]);
    return AddOutcome::added;
  }
  static AddOutcome add_new_key(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const CountingView*>(view);
    uint64_t p[kMaxFlatHashes];
    positions(f, &digest, 1, p);
    return add_new_at(f, p, 1) ? AddOutcome::added : AddOutcome::present;
  }
  static bool contains_key(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const CountingView*>(view);
    for (uint32_t i = 0; i < f.hashes; ++i)
      if (C::at(f.words, mulhi(splitmix(digest, i), f.size)) == 0) return false;
    return true;
  }
  static bool remove(const CountingView& f, uint64_t digest) {
    uint64_t p[kMaxFlatHashes];
    positions(f, &digest, 1, p);
    return remove_at(f, p, 1);
  }
  static void add_many(const CountingView& f, const uint64_t* digests, size_t n) {
    each_group(f, digests, n, [&](size_t, size_t g, const uint64_t* p) { add_positions(f, p, g * f.hashes); });
  }
  static void contains_many(const CountingView& f, const uint64_t* digests, size_t n, uint8_t* out) {
    flat_contains<C::kWordLog>(f, f.size, digests, n, out, [&](uint64_t p) { return C::at(f.words, p) != 0; });
  }
  // Key by key. Tried and dropped: column by column, as a key is added, which is taken back where a counter was zero:
  // meanwhile a look-up could miss a key that is in.
  static void remove_many(const CountingView& f, const uint64_t* digests, size_t n, uint8_t* out) {
    each_key(f, digests, n, out, [&](const uint64_t* p, size_t stride) { return remove_at(f, p, stride); });
  }
  static void add_new_many(const CountingView& f, const uint64_t* digests, size_t n, uint8_t* out) {
    each_key(f, digests, n, out, [&](const uint64_t* p, size_t stride) { return add_new_at(f, p, stride); });
  }
  static void count_many(const CountingView& f, const uint64_t* digests, size_t n, int64_t* out) {
    uint64_t positions[kGroup];
    for (size_t start = 0; start < n; start += kGroup, out += kGroup) {
      const size_t g = n - start < kGroup ? n - start : kGroup;
      for (size_t j = 0; j < g; ++j) out[j] = C::kMost;
      for (uint32_t i = 0; i < f.hashes; ++i) {
        column(f.size, i, digests + start, g, positions);
        each_position<0, C::kWordLog>(f.words, positions, g, [&](size_t j, uint64_t p) {
          const auto count = static_cast<int64_t>(C::at(f.words, p));
          out[j] = count < out[j] ? count : out[j];
        });
      }
    }
  }

  static constexpr CountingLoops loops = {
      .one = {.add_to = add_key, .add_new_to = add_new_key, .contained_in = contains_key, .view = nullptr},
      .remove = remove,
      .add_many = add_many,
      .add_new_many = add_new_many,
      .contains_many = contains_many,
      .remove_many = remove_many,
      .count_many = count_many,
      .positions = positions,
      .add_positions = add_positions,
  };
};

// Counters in one block: the key's step is the bits that a blocked filter would set, folded to the counters' lowest.
template <uint32_t WidthLog>
struct BlockCounters {
  using C = Counters<WidthLog>;
  static constexpr uint32_t kWords = 8;

  EVENBINS_INLINE static uint64_t* block_of(const CountingView& f, uint64_t digest) {
    return f.words + mulhi(digest, f.size) * kWords;
  }
  struct Step {
    alignas(64) uint64_t words[kWords];
    EVENBINS_INLINE Step(const CountingView& f, uint64_t digest) {
      mask_bits<9>(words, digest, f.hashes);
      for (uint32_t i = 0; i < kWords; ++i) {
        uint64_t word = words[i];
        if constexpr (kMaskByWords) EVENBINS_OPAQUE(word);  // read by itself, not as part of a vector
        words[i] = C::used(word);
      }
    }
    EVENBINS_INLINE bool fits(const uint64_t* block) const {  // no counter of the key is zero
      uint64_t missing = 0;
      for (uint32_t i = 0; i < kWords; ++i) missing |= words[i] & ~C::used(load_word(block + i));
      return missing == 0;
    }
  };
  EVENBINS_INLINE static void raise(uint64_t* block, const Step& step) {
    for (uint32_t i = 0; i < kWords; ++i) store_word(block + i, block[i] + (step.words[i] & ~C::full(block[i])));
  }
  EVENBINS_INLINE static void put(const CountingView& f, uint64_t* block, uint64_t digest) {
    raise(block, Step(f, digest));
  }
  EVENBINS_INLINE static bool put_new(const CountingView& f, uint64_t* block, uint64_t digest) {
    const Step step(f, digest);
    if (step.fits(block)) return false;
    raise(block, step);
    return true;
  }
  EVENBINS_INLINE static bool take(const CountingView& f, uint64_t* block, uint64_t digest) {
    const Step step(f, digest);
    if (!step.fits(block)) return false;
    for (uint32_t i = 0; i < kWords; ++i) store_word(block + i, block[i] - (step.words[i] & ~C::full(block[i])));
    return true;
  }
  // Calls act(i, block) for i = 0 … n−1, with the next blocks on their way.
  template <int ForWriting, typename F>
  EVENBINS_INLINE static void each(const CountingView& f, const uint64_t* digests, size_t n, F&& act) {
    for (size_t i = 0; i < kAhead && i < n; ++i) __builtin_prefetch(block_of(f, digests[i]), ForWriting);
    for (size_t i = 0; i < n; ++i) {
      if (i + kAhead < n) __builtin_prefetch(block_of(f, digests[i + kAhead]), ForWriting);
      act(i, block_of(f, digests[i]));
    }
  }

  static AddOutcome add_key(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const CountingView*>(view);
    put(f, block_of(f, digest), digest);
    return AddOutcome::added;
  }
  static AddOutcome add_new_key(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const CountingView*>(view);
    return put_new(f, block_of(f, digest), digest) ? AddOutcome::added : AddOutcome::present;
  }
  static bool contains_key(const void* view, uint64_t digest) {
    const auto& f = *static_cast<const CountingView*>(view);
    return Step(f, digest).fits(block_of(f, digest));
  }
  static bool remove(const CountingView& f, uint64_t digest) { return take(f, block_of(f, digest), digest); }
  static void add_many(const CountingView& f, const uint64_t* digests, size_t n) {
    each<1>(f, digests, n, [&](size_t i, uint64_t* block) { put(f, block, digests[i]); });
  }
  static void add_new_many(const CountingView& f, const uint64_t* digests, size_t n, uint8_t* out) {
    each<1>(f, digests, n, [&](size_t i, uint64_t* block) { out[i] = put_new(f, block, digests[i]); });
  }
  static void contains_many(const CountingView& f, const uint64_t* digests, size_t n, uint8_t* out) {
    each<0>(f, digests, n, [&](size_t i, const uint64_t* block) { out[i] = Step(f, digests[i]).fits(block); });
  }
  static void remove_many(const CountingView& f, const uint64_t* digests, size_t n, uint8_t* out) {
    each<1>(f, digests, n, [&](size_t i, uint64_t* block) { out[i] = take(f, block, digests[i]); });
  }
  static void count_many(const CountingView& f, const uint64_t* digests, size_t n, int64_t* out) {
    each<0>(f, digests, n, [&](size_t i, const uint64_t* block) {
      uint64_t least = C::kMost;
      every_position(digests[i], 512 >> WidthLog, f.hashes, [&](uint32_t p) {
        const uint64_t count = C::at(block, p);
        least = count < least ? count : least;
        return least != 0;
      });
      out[i] = static_cast<int64_t>(least);
    });
  }

  static constexpr CountingLoops loops = {
      .one = {.add_to = add_key, .add_new_to = add_new_key, .contained_in = contains_key, .view = nullptr},
      .remove = remove,
      .add_many = add_many,
      .add_new_many = add_new_many,
      .contains_many = contains_many,
      .remove_many = remove_many,
      .count_many = count_many,
      .positions = nullptr,
      .add_positions = nullptr,
  };
};

template <uint32_t WidthLog>
const CountingLoops& counting_loops(bool blocked) {
  return blocked ? BlockCounters<WidthLog>::loops : FlatCounters<WidthLog>::loops;
}

const CountingLoops& counting(uint32_t counter_bits, bool blocked) {
  switch (counter_bits) {
    case 2: return counting_loops<1>(blocked);
    case 4: return counting_loops<2>(blocked);
    case 8: return counting_loops<3>(blocked);
    default: return counting_loops<4>(blocked);
  }
}

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

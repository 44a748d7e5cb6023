// The loops of a count-min sketch, as text for every kernel (body.hpp).
//
// Row by row over a group of keys: one row has their attention at a time, and the counters of the next keys are on
// their way. Additions to a row are made in the order of the keys, so what a counter holds just after a key was added
// is known without looking at the other rows; its estimate then is the least of that.
//
// Tried and dropped: all reads of 256 keys requested at once (at 145 MiB 1.2 to 1.4 times as long; positions.hpp says
// why). For `count`, gather instructions in place of eight loads: no faster on Zen 4, in the cache or out of it.
#pragma once

#include "evenbins/countmin_view.hpp"
#include "evenbins/shared_words.hpp"
#include "positions.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

constexpr uint64_t kNearCounters = 1 << 15;  // of a row that the near caches hold: no prefetch up to here

// The positions of at most kGroup keys, in one row after the other.
class RowPositions {
 public:
  RowPositions(const CountMinView& f, const uint64_t* digests, size_t n) : f_(f), digests_(digests), n_(n) {}

  // In a row that is none before the last one asked for.
  const uint64_t* in_row(uint64_t row) {
    const uint64_t per_word = f_.two_hash ? f_.depth : 2, word = row / per_word, j = row % per_word;
    if (word != word_) {
      pair_positions(f_.width, word, digests_, n_, first_, second_);
      word_ = word;
      step_ = 0;
    }
    if (!f_.two_hash) return j == 0 ? first_ : second_;
    for (; step_ < j; ++step_)
      for (size_t i = 0; i < n_; ++i) first_[i] = add_mod(first_[i], second_[i], f_.width);
    return first_;
  }

 private:
  const CountMinView& f_;
  const uint64_t* digests_;
  size_t n_;
  uint64_t word_ = ~uint64_t{0}, step_ = 0;
  uint64_t first_[kGroup], second_[kGroup];
};

// Calls f(i, position) for i = 0 … n−1, with the counters of the next positions on their way if the row is long.
template <int ForWriting, typename F>
EVENBINS_INLINE void each_counter(const CountMinView& f, const uint64_t* row, const uint64_t* at, size_t n, F&& act) {
  if (f.width > kNearCounters) return each_position<ForWriting, 0>(row, at, n, act);
  for (size_t i = 0; i < n; ++i) act(i, at[i]);
}

template <bool Weighted, bool Least>
void countmin_add_keys(const CountMinView& f, uint64_t first, uint64_t last, const uint64_t* digests,
                       const uint64_t* weights, size_t n, uint64_t* least) {
  const uint64_t end = (last + f.width - 1) / f.width;  // of the rows
  uint64_t kept_at[kGroup];
  uint16_t index[kGroup];
  for (size_t g; n > 0; n -= g, digests += g, weights += Weighted ? g : 0, least += Least ? g : 0) {
    g = n < kGroup ? n : kGroup;
    RowPositions positions(f, digests, g);
    const auto add = [&](uint64_t* row, size_t i, uint64_t position) EVENBINS_INLINE_LAMBDA {
      const uint64_t value = row[position] + (Weighted ? weights[i] : 1);
      store_word(row + position, value);
      if constexpr (Least) least[i] = value < least[i] ? value : least[i];
    };
    for (uint64_t j = first / f.width; j < end; ++j) {
      uint64_t* row = f.counters + j * f.width;
      const uint64_t* at = positions.in_row(j);
      const uint64_t from = first > j * f.width ? first - j * f.width : 0;
      const uint64_t range = (last < (j + 1) * f.width ? last - j * f.width : f.width) - from;
      if (range == f.width) {
        each_counter<1>(f, row, at, g, [&](size_t i, uint64_t position) { add(row, i, position); });
        continue;
      }
      size_t kept = 0;
      for (size_t i = 0; i < g; ++i) {
        kept_at[kept] = at[i];
        index[kept] = static_cast<uint16_t>(i);
        kept += at[i] - from < range;
      }
      each_counter<1>(f, row, kept_at, kept, [&](size_t i, uint64_t position) { add(row, index[i], position); });
    }
  }
}

void countmin_add(const CountMinView& f, uint64_t first, uint64_t last, const uint64_t* digests,
                  const uint64_t* weights, size_t n, uint64_t* least) {
  if (weights == nullptr)
    least == nullptr ? countmin_add_keys<false, false>(f, first, last, digests, weights, n, least)
                     : countmin_add_keys<false, true>(f, first, last, digests, weights, n, least);
  else
    least == nullptr ? countmin_add_keys<true, false>(f, first, last, digests, weights, n, least)
                     : countmin_add_keys<true, true>(f, first, last, digests, weights, n, least);
}

void countmin_add_conservatively(const CountMinView& f, const uint64_t* digests, const uint64_t* weights, size_t n,
                                 uint64_t* estimates) {
  constexpr size_t kItems = 4096;
  uint64_t items[kItems];  // the counter of key i in row j at j·g + i, numbered from the first row on
  const size_t most = f.rows * kGroup <= kItems ? kGroup : kItems / f.rows;
  const size_t ahead = 1 + (kAhead - 1) / f.rows;  // keys
  const bool prefetches = f.width > kNearCounters;
  for (size_t start = 0, g; start < n; start += g) {
    g = n - start < most ? n - start : most;
    RowPositions positions(f, digests + start, g);
    for (uint64_t j = 0; j < f.rows; ++j) {
      const uint64_t* at = positions.in_row(j);
      for (size_t i = 0; i < g; ++i) items[j * g + i] = j * f.width + at[i];
    }
    const auto prefetch = [&](size_t i) EVENBINS_INLINE_LAMBDA {
      for (size_t at = i; at < f.rows * g; at += g) __builtin_prefetch(f.counters + items[at], 1);
    };
    for (size_t i = 0; prefetches && i < ahead && i < g; ++i) prefetch(i);
    for (size_t i = 0; i < g; ++i) {
      if (prefetches && i + ahead < g) prefetch(i + ahead);
      uint64_t least = ~uint64_t{0};
      for (size_t at = i; at < f.rows * g; at += g)
        least = f.counters[items[at]] < least ? f.counters[items[at]] : least;
      const uint64_t estimate = least + (weights == nullptr ? 1 : weights[start + i]);
      for (size_t at = i; at < f.rows * g; at += g) {
        uint64_t* counter = f.counters + items[at];
        store_word(counter, *counter > estimate ? *counter : estimate);
      }
      if (estimates != nullptr) estimates[start + i] = estimate;
    }
  }
}

void countmin_count(const CountMinView& f, const uint64_t* digests, size_t n, uint64_t* out) {
  for (size_t g; n > 0; n -= g, digests += g, out += g) {
    g = n < kGroup ? n : kGroup;
    RowPositions positions(f, digests, g);
    for (size_t i = 0; i < g; ++i) out[i] = ~uint64_t{0};
    for (uint64_t j = 0; j < f.rows; ++j) {
      const uint64_t* row = f.counters + j * f.width;
      const uint64_t* at = positions.in_row(j);
      const size_t ahead = f.width > kNearCounters ? kAhead : g;
      for (size_t i = 0; ahead < g && i < ahead; ++i) __builtin_prefetch(row + at[i]);
      size_t i = 0;
      for (; i + ahead + 8 <= g; i += 8) {
        for (size_t k = 0; k < 8; ++k) __builtin_prefetch(row + at[i + ahead + k]);
        lower8(out + i, row, at + i);
      }
      for (; i + 8 <= g; i += 8) lower8(out + i, row, at + i);
      for (; i < g; ++i) {
        const uint64_t value = load_word(row + at[i]);
        out[i] = value < out[i] ? value : out[i];
      }
    }
  }
}

constexpr CountMinLoops countmin = {
    .add = countmin_add, .add_conservatively = countmin_add_conservatively, .count = countmin_count};

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

// The loops of a standard filter, as text for every kernel (body.hpp).
#pragma once

#include "evenbins/shared_words.hpp"
#include "evenbins/standard_view.hpp"
#include "positions.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

void standard_positions(const StandardView& f, const uint64_t* digests, size_t n, uint64_t* out) {
  if (f.extra != nullptr) {
    for (size_t j = 0; j < n; ++j) {
      Progression p(f, digests[j]);
      for (uint32_t i = 0; i < f.hashes; ++i) {
        out[i * n + j] = p.position + i * f.stride;
        p.advance(f, i);
      }
    }
    return;
  }
  for (uint32_t i = 0; i < f.hashes; ++i) column(f.bits, i, digests, n, out + i * n);
}

// Columns of positions for keys with fewer hashes than positions: a column is made from the one before.
struct Columns {
  uint64_t position[kGroup], step[kGroup], third[kGroup], shifted[kGroup];

  Columns(const StandardView& f, const uint64_t* digests, size_t n) {
    for (size_t j = 0; j < n; ++j) {
      const Progression p(f, digests[j]);
      position[j] = p.position;
      step[j] = p.step;
      third[j] = p.third;
    }
  }
  const uint64_t* positions(const StandardView& f, uint32_t i, size_t n) {
    if (f.stride == 0) return position;
    for (size_t j = 0; j < n; ++j) shifted[j] = position[j] + i * f.stride;
    return shifted;
  }
  void advance(const StandardView& f, uint32_t i, size_t n) {
    const uint64_t range = f.range, extra = f.extra[i];
    for (size_t j = 0; j < n; ++j) position[j] = add_mod(add_mod(position[j], step[j], range), extra, range);
    if (f.third)
      for (size_t j = 0; j < n; ++j) step[j] = add_mod(step[j], third[j], range);
  }
};

void progression_add(const StandardView& f, const uint64_t* digests, size_t n) {
  for (size_t g; n > 0; digests += g, n -= g) {
    g = n < kGroup ? n : kGroup;
    Columns columns(f, digests, g);
    for (uint32_t i = 0; i < f.hashes; ++i) {
      each_position<1, 6>(f.words, columns.positions(f, i, g), g, [&](size_t, uint64_t p) { set_bit(f.words, p); });
      columns.advance(f, i, g);
    }
  }
}

void progression_contains(const StandardView& f, const uint64_t* digests, size_t n, uint8_t* out) {
  uint16_t index[kGroup];
  for (size_t g; n > 0; digests += g, out += g, n -= g) {
    g = n < kGroup ? n : kGroup;
    Columns columns(f, digests, g);
    for (size_t j = 0; j < g; ++j) {
      index[j] = static_cast<uint16_t>(j);
      out[j] = 0;
    }
    size_t left = g;
    for (uint32_t i = 0; i < f.hashes && left > 0; ++i) {
      size_t kept = 0;
      each_position<0, 6>(f.words, columns.positions(f, i, left), left, [&](size_t j, uint64_t p) {
        const bool set = has_bit(f.words, p);
        columns.position[kept] = columns.position[j];
        columns.step[kept] = columns.step[j];
        columns.third[kept] = columns.third[j];
        index[kept] = index[j];
        kept += set;
      });
      left = kept;
      columns.advance(f, i, left);
    }
    for (size_t j = 0; j < left; ++j) out[index[j]] = 1;
  }
}

void standard_add(const StandardView& f, const uint64_t* digests, size_t n) {
  if (f.extra != nullptr) return progression_add(f, digests, n);
  uint64_t positions[kGroup];
  for (; n > 0;) {
    const size_t g = n < kGroup ? n : kGroup;
    for (uint32_t i = 0; i < f.hashes; ++i) {
      column(f.bits, i, digests, g, positions);
      each_position<1, 6>(f.words, positions, g, [&](size_t, uint64_t p) { set_bit(f.words, p); });
    }
    digests += g;
    n -= g;
  }
}

// Key by key, since a key is new if one of its bits was not set before: column by column, keys behind it would have
// set some of them.
void standard_add_new(const StandardView& f, const uint64_t* digests, size_t n, uint8_t* out) {
  constexpr size_t kItems = 2048;
  uint64_t items[kItems];
  const size_t most = kItems / f.hashes, ahead = 1 + (kAhead - 1) / f.hashes;  // keys
  for (size_t g; n > 0; digests += g, out += g, n -= g) {
    g = n < most ? n : most;
    standard_positions(f, digests, g, items);
    const auto ask = [&](size_t j) EVENBINS_INLINE_LAMBDA {
      for (size_t i = j; i < f.hashes * g; i += g) __builtin_prefetch(f.words + (items[i] >> 6), 1);
    };
    for (size_t j = 0; j < ahead && j < g; ++j) ask(j);
    for (size_t j = 0; j < g; ++j) {
      if (j + ahead < g) ask(j + ahead);
      uint64_t before = 1;
      for (size_t i = j; i < f.hashes * g; i += g) before &= exchange_bit(f.words, items[i]);
      out[j] = before == 0;
    }
  }
}

void standard_contains(const StandardView& f, const uint64_t* digests, size_t n, uint8_t* out) {
  if (f.extra != nullptr) return progression_contains(f, digests, n, out);
  flat_contains<6>(f, f.bits, digests, n, out, [&](uint64_t p) { return has_bit(f.words, p); });
}

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

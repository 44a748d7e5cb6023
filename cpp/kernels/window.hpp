// The loops of a window filter, as text for every kernel (body.hpp): fingerprints whose payload is their age.
#pragma once

#include "evenbins/window_view.hpp"
#include "fingerprint_payload.hpp"

namespace evenbins::EVENBINS_KERNEL_NAMESPACE {
namespace {

template <uint32_t Planes, bool Low>
struct Windows {
  using Set = Payloads<Planes, Low>;
  using Key = typename Set::Key;

  // As in fingerprint.hpp: one line is asked for with each key.
  template <int ForWriting, typename Act>
  EVENBINS_INLINE static size_t each(const FingerprintView& f, const uint64_t* digests, size_t n, Act&& act) {
    constexpr size_t kLinesAhead = 32;
    for (size_t j = 0; j < kLinesAhead && j < n; ++j) __builtin_prefetch(Set::line_of(f, digests[j]), ForWriting);
    for (size_t j = 0; j < n; ++j) {
      if (j + kLinesAhead < n) __builtin_prefetch(Set::line_of(f, digests[j + kLinesAhead]), ForWriting);
      if (!act(j, Key(f, Set::line_of(f, digests[j]), digests[j]))) return j;
    }
    return n;
  }

  static void contains_many(const FingerprintView& f, const LiveAges& live, const uint64_t* digests, size_t n,
                            uint8_t* out) {
    each<0>(f, digests, n, [&](size_t j, const Key& key) EVENBINS_INLINE_LAMBDA {
      const int64_t age = Set::find(f, key);
      out[j] = age >= 0 && live(static_cast<uint32_t>(age));
      return true;
    });
  }

  static size_t add_many(const FingerprintView& f, const LiveAges& live, const uint64_t* digests, size_t n,
                         uint8_t* out) {
    const uint64_t before = __atomic_load_n(f.state, __ATOMIC_RELAXED);
    const uint64_t room = before < f.limit ? f.limit - before : 0;
    const uint32_t now = live.now & live.mask;
    uint64_t added = 0;
    const size_t treated = each<1>(f, digests, n, [&](size_t j, const Key& key) EVENBINS_INLINE_LAMBDA {
      const int64_t age = Set::put(f, key, now, added < room);
      if (age == Set::kFull) [[unlikely]]
        return false;
      added += age == Set::kAbsent;
      if (out != nullptr) out[j] = age == Set::kAbsent || !live(static_cast<uint32_t>(age));
      return true;
    });
    __atomic_fetch_add(f.state, added, __ATOMIC_RELAXED);  // by several threads at once
    return treated;
  }

  static bool remove(const FingerprintView& f, uint64_t digest) {
    if (!Set::erase(f, Key(f, Set::line_of(f, digest), digest))) return false;
    --f.state[0];
    return true;
  }

  static uint64_t sweep(const FingerprintView& f, const LiveAges& live, uint64_t first, uint64_t last) {
    uint64_t removed = 0;
    for (uint64_t line = first; line < last; ++line)
      removed += Set::sweep(f, line, [&](uint32_t age) EVENBINS_INLINE_LAMBDA { return !live(age); });
    __atomic_fetch_sub(f.state, removed, __ATOMIC_RELAXED);
    return removed;
  }

  static constexpr WindowLoops loops = {contains_many, add_many, remove, sweep};
};

const WindowLoops& window(uint32_t slot_bits) {
  static constexpr const WindowLoops* all[] = {
      nullptr,
      &Windows<0, true>::loops,
      &Windows<1, false>::loops,
      &Windows<1, true>::loops,
      &Windows<2, false>::loops,
      &Windows<2, true>::loops,
      &Windows<3, false>::loops,
      &Windows<3, true>::loops,
  };
  return *all[2 * (slot_bits / 8) + (slot_bits % 8 != 0)];
}

}  // namespace
}  // namespace evenbins::EVENBINS_KERNEL_NAMESPACE

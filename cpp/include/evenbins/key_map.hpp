// A growing map from digests to a node and a position: linear probing, entries in place, no tombstones.
//
//     home = the top bits of digest·PHI;  an entry stands at its home or behind it, with no gap between
//
// Erasing shifts later entries back into the gap (Knuth, vol. 3, 6.4, algorithm R), so that the map after any sequence
// of operations is a map that insertions alone could have made. At most 5/8 of the places are in use. Memory comes from
// the system in one piece (bits.hpp: huge pages). A reference to an entry is valid until something is inserted or
// erased.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "evenbins/bits.hpp"
#include "evenbins/hash.hpp"

namespace evenbins {

struct KeyMapEntry {  // four in a cache line
  uint64_t digest;
  uint32_t node;  // plus one; 0: this place is empty
  uint32_t position;
};

class KeyMap {
 public:
  using Entry = KeyMapEntry;
  uint64_t size() const { return size_; }
  uint64_t nbytes() const { return places_.bytes(); }

  bool has_room_for(uint64_t more) const { return (size_ + more) * 8 <= (mask_ + 1) * 5; }

  void prefetch(uint64_t digest) const { __builtin_prefetch(at(home(digest)), 1); }

  Entry* find(uint64_t digest) const {
    Entry* e = probe(digest);
    return e->node == 0 ? nullptr : e;
  }

  // The entry of a digest, or the empty place where it would stand.
  Entry* probe(uint64_t digest) const {
    for (uint64_t i = home(digest);; i = (i + 1) & mask_)
      if (Entry* e = at(i); e->node == 0 || e->digest == digest) return e;
  }

  // The digest must not be there, and `node` must be set by the caller at once. `place`: what `probe` said. If memory
  // cannot be had, std::bad_alloc, and nothing has changed.
  Entry& insert(uint64_t digest, Entry* place = nullptr) {
    if (!has_room_for(1)) [[unlikely]] {
      resize(2 * (mask_ + 1));
      place = nullptr;
    }
    ++size_;
    if (place == nullptr) return fill(digest);
    place->digest = digest;
    return *place;
  }

  void erase(Entry* entry) {
    uint64_t gap = static_cast<uint64_t>(entry - at(0));
    for (uint64_t i = (gap + 1) & mask_; at(i)->node != 0; i = (i + 1) & mask_) {
      if (((i - home(at(i)->digest)) & mask_) < ((i - gap) & mask_)) continue;  // it would stand before its home
      *at(gap) = *at(i);
      gap = i;
    }
    *at(gap) = Entry{};
    --size_;
  }

  void reserve(uint64_t entries) {
    const uint64_t places = std::bit_ceil(entries * 8 / 5 + 1);
    if (places > mask_ + 1) resize(places);
  }

  void clear() { *this = KeyMap(); }

 private:
  static constexpr uint64_t kFirst = 64;

  uint64_t home(uint64_t digest) const { return (digest * kPhi) >> shift_; }
  Entry* at(uint64_t i) const { return reinterpret_cast<Entry*>(const_cast<uint64_t*>(places_.words())) + i; }
  Entry& fill(uint64_t digest) {
    uint64_t i = home(digest);
    while (at(i)->node != 0) i = (i + 1) & mask_;
    at(i)->digest = digest;
    return *at(i);
  }
  void resize(uint64_t places) {
    Bits old = std::exchange(places_, Bits::zeroed(places * sizeof(Entry)));
    const uint64_t before = mask_ + 1;
    mask_ = places - 1;
    shift_ = 64 - std::bit_width(mask_);
    const auto* entries = reinterpret_cast<const Entry*>(old.words());
    for (uint64_t i = 0; i < before; ++i)
      if (entries[i].node != 0) fill(entries[i].digest) = entries[i];
  }

  Bits places_ = Bits::zeroed(kFirst * sizeof(Entry));
  uint64_t mask_ = kFirst - 1, size_ = 0;
  int shift_ = 64 - 6;
};

}  // namespace evenbins

// How a filter treats one key, at the cost of one indirect call.
#pragma once

#include <cstdint>

#include "evenbins/hash.hpp"

namespace evenbins {

// What became of a key that was to be added.
enum class AddOutcome : uint8_t {
  added,    // it is in; also from a family that does not look whether it was in before
  present,  // the filter answered "present" before, and nothing has changed
  full      // there is no room for it, and nothing has changed
};

// `view` is what the functions were made for; its type is erased, so that a single look-up costs one indirect call and
// no detour.
struct OneKey {
  AddOutcome (*add_to)(const void* view, uint64_t digest);
  AddOutcome (*add_new_to)(const void* view, uint64_t digest);  // only if it is absent: `added` says that it was
  bool (*contained_in)(const void* view, uint64_t digest);
  const void* view;

  EVENBINS_INLINE AddOutcome add(uint64_t digest) const { return add_to(view, digest); }
  EVENBINS_INLINE AddOutcome add_new(uint64_t digest) const { return add_new_to(view, digest); }
  EVENBINS_INLINE bool contains(uint64_t digest) const { return contained_in(view, digest); }
  OneKey of(const void* v) const { return {add_to, add_new_to, contained_in, v}; }
};

}  // namespace evenbins

// What is behind a Python filter (_core.Filter): filters.cpp; stages.cpp and sharding.cpp add to several of them.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "evenbins/filter.hpp"
#include "keys.hpp"
#include "readers.hpp"

namespace evenbins::python {

// Writers take turns. Look-ups wait for them only where the family says so (Concurrency): then bulk look-ups hold
// `Reading`, and are counted; of any other filter `readers` is always 0.
struct FilterObject : ReadersAndWriter {
  static constexpr const char* kReadOnly =
      "this filter is open read-only: use load() or copy() for one that can be changed";
  using Copy = std::pair<std::unique_ptr<Filter>, uint64_t>;  // and its stage_keys

  explicit FilterObject(std::unique_ptr<Filter> f) : one(f->one()), hasher(f->spec().seed), filter(std::move(f)) {}
  explicit FilterObject(Copy copy) : FilterObject(std::move(copy.first)) { stage_keys = copy.second; }
  ~FilterObject();
  static uint64_t payload_bytes(const Spec& spec) { return evenbins::payload_bytes(spec); }
  static std::unique_ptr<Filter> make(Spec spec, Bits bits) { return make_filter(std::move(spec), std::move(bits)); }
  Filter& structure() const { return *filter; }
  Copy copied() const { return {filter->copy(), stage_keys}; }
  OneKey one;  // the filter's, at hand
  Hasher hasher;
  std::unique_ptr<Filter> filter;
  const bool read_only = filter->bits().read_only();
  const bool lookups_wait = filter->concurrency() == Concurrency::readers_or_writer;
  const bool adds_in_turn = read_only || lookups_wait;  // a single add: even if nobody is busy
  SupportsExpiry* const expiry = filter->expiry();
  nb::object clock;  // of a filter whose keys expire: called for the time in seconds; none: the system's
  std::atomic<uint64_t> stage_keys = 0;  // keys that a stage of a growing filter holds, at least; changes with its bits
};

// Tells a filter whose keys expire what time it is, before it is used. With the GIL; throws what its clock raises.
void tell_time(FilterObject& object);

// One key of a filter, with the GIL: -1, or null, with a Python exception set if the call fails. (filters.cpp)
int contains_digest(FilterObject& object, uint64_t digest);
PyObject* add_digest(FilterObject& object, uint64_t digest);
PyObject* add_new_digest(FilterObject& object, uint64_t digest);

// A bulk look-up, without the GIL, until the end of the scope.
class LookingUp {
 public:
  explicit LookingUp(FilterObject& object) {
    if (object.lookups_wait)
      reading_.emplace(object);
    else
      free_.emplace();
  }

 private:
  std::optional<Reading> reading_;
  std::optional<GilRelease> free_;
};

}  // namespace evenbins::python

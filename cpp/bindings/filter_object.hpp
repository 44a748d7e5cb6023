// What is behind a Python filter (_core.Filter): filters.cpp; stages.cpp and sharding.cpp add to several of them.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <utility>

#include "access.hpp"
#include "evenbins/filter.hpp"
#include "keys.hpp"

namespace evenbins::python {

struct FilterObject : Turns {
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
  std::atomic<uint64_t> stage_keys = 0;  // keys that a stage of a growing filter holds, at least; changes with its bits
};

}  // namespace evenbins::python

// What is behind a Python filter (_core.Filter): filters.cpp; stages.cpp and sharding.cpp add to several of them.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>

#include "access.hpp"
#include "evenbins/filter.hpp"
#include "keys.hpp"

namespace evenbins::python {

struct FilterObject : Turns {
  explicit FilterObject(std::unique_ptr<Filter> f) : one(f->one()), hasher(f->spec().seed), filter(std::move(f)) {}
  ~FilterObject();
  OneKey one;  // the filter's, at hand
  Hasher hasher;
  std::unique_ptr<Filter> filter;
  const bool read_only = filter->bits().read_only();
  std::atomic<uint64_t> stage_keys = 0;  // keys that a stage of a growing filter holds, at least; changes with its bits
};

inline void require_writable(const FilterObject& object) {
  if (object.filter->bits().read_only())
    throw nb::value_error("this filter is open read-only: use load() or copy() for one that can be changed");
}

}  // namespace evenbins::python

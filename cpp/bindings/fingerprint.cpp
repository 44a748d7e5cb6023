// What fingerprint filters (src/evenbins/filters/fingerprint.py) can do beyond other filters: set operations, other
// sizes, and the fingerprints themselves.
#include "evenbins/fingerprint.hpp"

#include <nanobind/nanobind.h>

#include <algorithm>

#include "evenbins/fingerprint_growth.hpp"
#include "filter_object.hpp"
#include "module.hpp"
#include "sources.hpp"
#include "structure.hpp"

namespace evenbins::python {
namespace {

FingerprintFilter& fingerprints_behind(FilterObject& object) {
  auto* filter = dynamic_cast<FingerprintFilter*>(object.filter.get());
  if (filter == nullptr) throw nb::type_error("this is no fingerprint filter");
  return *filter;
}

// False: the result has no room, and nothing has changed.
bool combine(FilterObject& self, FilterObject& other, bool symmetric) {
  FingerprintFilter& mine = fingerprints_behind(self);
  const FingerprintFilter& theirs = fingerprints_behind(other);
  require_writable(self);
  const auto change = [&] {
    try {
      mine.combine(theirs, symmetric ? SetOperation::differ : SetOperation::subtract);
      return true;
    } catch (const FingerprintsDoNotFit&) {
      return false;
    }
  };
  if (&self == &other) {
    const Writing alone(self);
    return change();
  }
  return with_both(unless_reading(self), other, [&] {
    wait_for_readers(self);
    return change();
  });
}

// False: they do not fit, and the new filter is of no use.
bool refill(FilterObject& self, FilterObject& from, uint32_t threads) {
  FingerprintFilter& mine = fingerprints_behind(self);
  const FingerprintFilter& theirs = fingerprints_behind(from);
  require_writable(self);
  if (&self == &from) throw nb::value_error("a filter cannot be refilled from itself");
  return with_both(unless_reading(self), from, [&] {
    wait_for_readers(self);
    try {
      mine.refill(theirs, threads);
      return true;
    } catch (const FingerprintsDoNotFit&) {
      return false;
    }
  });
}

// To the next size; False if there is none.
bool grow(FilterObject& self) {
  require_writable(self);
  auto* filter = dynamic_cast<GrowingFingerprintFilter*>(&fingerprints_behind(self));
  const Writing alone(self);
  return filter != nullptr && filter->grow(1);
}

// The different fingerprints of the blocks first … end−1, ascending.
auto different(FilterObject& self, uint64_t first, uint64_t end) {
  const FingerprintFilter& filter = fingerprints_behind(self);
  Answers<uint64_t> found;
  {
    const Access access(self);
    if (first > end || end > filter.blocks()) throw nb::value_error("there are no such blocks");
    std::vector<uint64_t> keys;
    for (uint64_t block = first; block < end; ++block) {
      filter.fingerprints(block, keys);
      const auto last = std::unique(keys.begin(), keys.end());
      std::copy(keys.begin(), last, found.extend(static_cast<uint64_t>(last - keys.begin())));
    }
  }
  return found.release<uint64_t>();
}

}  // namespace

void bind_fingerprint(nb::module_& m) {
  m.def("subtract_fingerprints", &combine, nb::arg("filter"), nb::arg("other"), nb::arg("symmetric"),
        "Leaves in a set the fingerprints that another one does not have, or those that one of them has; False, and "
        "nothing has changed, if they do not fit.");
  m.def("refill_fingerprints", &refill, nb::arg("filter"), nb::arg("source"), nb::arg("threads"),
        "Fills an empty filter with the fingerprints of one of another size; False if they do not fit.");
  m.def("grow_fingerprints", &grow, nb::arg("filter"),
        "Doubles a filter that grows by itself; False if it cannot grow any more.");
  m.def(
      "different_fingerprints", &different, nb::arg("filter"), nb::arg("first"), nb::arg("end"),
      nb::sig("def different_fingerprints(filter: Filter, first: int, end: int) -> numpy.typing.NDArray[numpy.uint64]"),
      "The different fingerprints of some blocks, in ascending order.");
}

}  // namespace evenbins::python

// The law of the keys that a sub-table turns away (leftover.hpp), as NumPy arrays.
#include "evenbins/leftover.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <utility>
#include <vector>

#include "gil.hpp"
#include "module.hpp"

namespace nb = nanobind;

namespace evenbins::python {
namespace {

using Chances = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The numbers as an array that owns them.
nb::ndarray<nb::numpy, double> array_of(std::vector<double>&& numbers) {
  auto kept = std::make_unique<std::vector<double>>(std::move(numbers));
  double* const first = kept->data();
  const size_t size = kept->size();
  const nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<std::vector<double>*>(p); });
  kept.release();
  return nb::ndarray<nb::numpy, double>(first, {size}, owner);
}

nb::tuple leftover_law(uint64_t first, const Chances& prior, uint64_t buckets, double tiny) {
  const std::vector<double> chances(prior.data(), prior.data() + prior.size());
  const auto pulse = [] {
    const GilAcquire hold;
    return PyErr_CheckSignals() == 0;
  };
  auto law = [&] {
    const GilRelease free;
    return leftover(first, chances, buckets, tiny, pulse);
  }();
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return nb::make_tuple(law.first, array_of(std::move(law.chance)), array_of(std::move(law.held)), law.lost);
}

}  // namespace

#define EVENBINS_CHANCES "numpy.typing.NDArray[numpy.float64]"

void bind_leftover(nb::module_& m) {
  m.def("leftover", &leftover_law, nb::arg("first"), nb::arg("prior"), nb::arg("buckets"), nb::arg("tiny"),
        nb::sig("def leftover(first: int, prior: " EVENBINS_CHANCES
                ", buckets: int, tiny: float) -> tuple[int, " EVENBINS_CHANCES ", " EVENBINS_CHANCES ", float]"),
        "Return the law of the keys that a sub-table turns away: leftover.hpp.");
}

}  // namespace evenbins::python

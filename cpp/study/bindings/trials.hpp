// What the bindings of all simulators share: counts as arrays, and work without the GIL that hears Ctrl-C.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/gil.hpp"

namespace evenbins::study::python {

namespace nb = nanobind;
using evenbins::python::GilAcquire;
using evenbins::python::GilRelease;

// The value of this name; ValueError for one that is not among the names.
template <typename Value>
Value named(const std::map<std::string, Value>& names, const char* what, const std::string& name) {
  const auto found = names.find(name);
  if (found == names.end()) throw nb::value_error((std::string("unknown ") + what + ": " + name).c_str());
  return found->second;
}

using Progress = std::optional<nb::callable>;  // called with (trials done, trials)

// The numbers as an array that owns them.
template <typename Number>
nb::ndarray<nb::numpy, Number> array(std::vector<Number>&& numbers, std::initializer_list<size_t> shape) {
  auto kept = std::make_unique<std::vector<Number>>(std::move(numbers));
  Number* const first = kept->data();
  const nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<std::vector<Number>*>(p); });
  kept.release();
  return nb::ndarray<nb::numpy, Number>(first, shape, owner);
}

// What work(pulse) gives, without the GIL; signals and the progress are looked after in between.
template <typename Work>
auto run(uint64_t trials, const Progress& progress, const Work& work) {
  const auto pulse = [&](uint64_t done) {
    const GilAcquire hold;
    if (PyErr_CheckSignals() != 0) return false;
    if (!progress) return true;
    try {
      (*progress)(done, trials);
      return true;
    } catch (nb::python_error& error) {
      error.restore();
      return false;
    }
  };
  auto counts = [&] {
    const GilRelease free;
    return work(pulse);
  }();
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return counts;
}

}  // namespace evenbins::study::python

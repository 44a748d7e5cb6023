// std::string and std::vector as arguments, in place of nanobind/stl/string.h and nanobind/stl/vector.h.
//
// nanobind's casters are noexcept: an argument for which there is no memory ends the process. These throw
// std::bad_alloc, which becomes MemoryError. (Whoever includes nanobind's headers too gets a compiler's error.)
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/detail/nb_list.h>

#include <string>
#include <vector>

namespace nanobind::detail {

template <>
struct type_caster<std::string> {
  NB_TYPE_CASTER(std::string, const_name("str"))

  bool from_python(handle source, uint32_t, cleanup_list*) {
    if (!PyUnicode_Check(source.ptr())) return false;
    Py_ssize_t size;
    const char* text = PyUnicode_AsUTF8AndSize(source.ptr(), &size);
    if (text == nullptr) {
      PyErr_Clear();
      return false;
    }
    value.assign(text, static_cast<size_t>(size));
    return true;
  }
  static handle from_cpp(const std::string& text, rv_policy, cleanup_list*) noexcept {
    return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  }
};

template <typename Entry>
struct type_caster<std::vector<Entry>> : list_caster<std::vector<Entry>, Entry> {
  bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) {
    if (!PySequence_Check(source.ptr()) || PyUnicode_Check(source.ptr()) || PyBytes_Check(source.ptr())) return false;
    const object items = steal(PySequence_Tuple(source.ptr()));
    if (!items.is_valid()) {
      PyErr_Clear();
      return false;
    }
    const auto size = static_cast<size_t>(PyTuple_GET_SIZE(items.ptr()));
    this->value.clear();
    this->value.reserve(size);
    flags = flags_for_local_caster<Entry>(flags);
    make_caster<Entry> caster;
    for (size_t i = 0; i < size; ++i) {
      const handle item = PyTuple_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i));
      if (!caster.from_python(item, flags, cleanup) || !caster.template can_cast<Entry>()) return false;
      this->value.push_back(caster.operator cast_t<Entry>());
    }
    return true;
  }
};

}  // namespace nanobind::detail

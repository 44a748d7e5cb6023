// What every structure in memory has in Python: made from a file or as a copy; compared, cleared, checked, written.
//
// `Object` derives from Turns or ReadersAndWriter and has structure(), which has spec(), bits(), check, clear, copy and
// ==; make(spec, bits), which returns such a structure; read_only, known without the structure's memory, which a call
// without the GIL may be replacing; and kReadOnly, what a change of a read-only one says. With kKind only files of that
// kind are read, else the caller says which. If it has `version`, that grows when it is cleared; if it has copied(),
// what that returns makes the copy.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "access.hpp"
#include "casters.hpp"
#include "evenbins/format.hpp"
#include "files.hpp"
#include "readers.hpp"

namespace evenbins::python {

// Exclusive use: without look-ups where these must not see a change half done.
template <typename Object>
using Alone = std::conditional_t<std::is_base_of_v<ReadersAndWriter, Object>, Writing, Access>;

template <typename Object>
void require_writable(const Object& object) {
  if (object.read_only) throw nb::value_error(Object::kReadOnly);
}

// An empty structure.
template <typename Object>
void init_new(Object* self, Spec spec) {
  const uint64_t bytes = Object::payload_bytes(spec);
  new (self) Object(Object::make(std::move(spec), Bits::zeroed(bytes)));
}

template <typename Object>
void init_copy(Object* self, Object& other) {
  auto copy = [&] {
    const Access access(other);
    if constexpr (requires { other.copied(); })
      return other.copied();
    else
      return other.structure().copy();
  }();
  new (self) Object(std::move(copy));
}

template <typename Object>
void init_from_file(Object* self, nb::handle data, uint32_t kind, bool mapped, bool verify) {
  new (self) Object(from_file(data, kind, mapped, verify, Object::make));
}

template <typename Object>
bool are_equal(Object& a, Object& b) {
  return &a == &b || with_both(a, b, [&] { return a.structure() == b.structure(); });
}

template <typename Object>
void clear(Object& self) {
  require_writable(self);
  const Alone<Object> alone(self);
  self.structure().clear();
  if constexpr (requires { self.version; }) ++self.version;
}

// The first broken invariant, or nothing.
template <typename Object>
std::string broken_invariant(Object& self) {
  const Access access(self);
  if constexpr (requires { self.structure().check(true, true); })
    return self.structure().check(true, true);
  else
    return self.structure().check(true);
}

// What a method of the structure returns, between two changes.
template <auto Method, typename Object, typename... Arguments>
auto call_alone(Object& self, Arguments... arguments) {
  const Access access(self);
  return (self.structure().*Method)(arguments...);
}

// What f(structure) reads of the spec, which changes only where a structure grows: there between two changes.
template <typename Object, typename F>
auto read_spec(Object& self, F&& f) {
  if constexpr (requires { self.structure().grows(); }) {
    if (self.structure().grows()) {
      const Access access(self);
      return f(self.structure());
    }
  }
  return f(self.structure());
}

template <typename Object>
void bind_spec(nb::class_<Object>& cls) {
  cls.def_prop_ro("_seed", [](const Object& self) { return self.structure().spec().seed; })
      .def_prop_ro("_capacity",
                   [](Object& self) { return read_spec(self, [](const auto& s) { return s.spec().capacity; }); })
      .def_prop_ro("_core", [](Object& self) { return read_spec(self, [](const auto& s) { return s.spec().core; }); });
}

template <typename Object>
void bind_structure(nb::class_<Object>& cls, const char* about_nbytes) {
  if constexpr (requires { Object::kKind; })
    cls.def(
        "__init__",
        [](Object* self, nb::handle data, bool mapped, bool verify) {
          init_from_file(self, data, static_cast<uint32_t>(Object::kKind), mapped, verify);
        },
        nb::arg("data"), nb::arg("mapped"), nb::arg("verify"));
  else
    cls.def("__init__", &init_from_file<Object>, nb::arg("data"), nb::arg("kind"), nb::arg("mapped"),
            nb::arg("verify"));
  cls.def("__init__", &init_copy<Object>, nb::arg("other"))
      .def("_equal", &are_equal<Object>, nb::arg("other"))
      .def("_clear", &clear<Object>)
      .def("_invariant", &broken_invariant<Object>)
      .def(
          "_to_bytes", [](Object& self) { return file_bytes(self, self.structure()); },
          nb::sig("def _to_bytes(self) -> bytes"))
      .def(
          "_write_to", [](Object& self, int descriptor) { write_file(self, self.structure(), descriptor); },
          nb::arg("descriptor"))
      .def_prop_ro("_read_only", [](const Object& self) { return self.read_only; })
      .def_prop_ro(
          "nbytes",
          [](Object& self) {
            return read_spec(self, [](const auto& structure) {
              if constexpr (requires { structure.nbytes(); })
                return structure.nbytes();
              else
                return structure.bits().bytes();
            });
          },
          about_nbytes);
  bind_spec(cls);
}

}  // namespace evenbins::python

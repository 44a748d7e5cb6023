// The Python object asked last, and what is behind it: calls come in runs, and asking nanobind takes a tenth of one.
//
// Guarded by the GIL; forgotten when the object dies: its destructor must call `forget`.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

namespace evenbins::python {

template <typename Object>
class Recent {
 public:
  // The object behind a Python one, or null with an exception: `Class.__new__(Class)` has none yet.
  static Object* of(PyObject* self) {
#ifndef Py_GIL_DISABLED
    if (self == self_) [[likely]]
      return object_;
#endif
    if (!nanobind::inst_ready(self)) {
      PyErr_Format(PyExc_RuntimeError, "%.100s.__init__() has not been called", Py_TYPE(self)->tp_name);
      return nullptr;
    }
    auto* object = nanobind::inst_ptr<Object>(self);
#ifndef Py_GIL_DISABLED
    self_ = self;
    object_ = object;
#endif
    return object;
  }

  static void forget(const Object* object) {
    if (object_ != object) return;
    self_ = nullptr;
    object_ = nullptr;
  }

 private:
  static inline PyObject* self_ = nullptr;
  static inline Object* object_ = nullptr;
};

// Gives a subclass raw methods of its own: CPython calls a method faster when it belongs to the very type of the
// object.
inline void add_methods(nanobind::handle type, PyMethodDef* methods) {
  for (; methods->ml_name != nullptr; ++methods) {
    const nanobind::object method =
        nanobind::steal(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), methods));
    if (!method.is_valid()) throw nanobind::python_error();
    type.attr(methods->ml_name) = method;
  }
}

}  // namespace evenbins::python

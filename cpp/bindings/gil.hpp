// Releasing the GIL and taking it again, also while the interpreter exits.
//
// A thread that asks for the GIL during finalisation is ended by CPython (up to 3.13) with pthread_exit, which unwinds
// the stack: through destructors, which are noexcept (std::terminate), and into nanobind's `catch (...)` (abort). So a
// daemon thread in a bulk call would end the whole process. Every place of the bindings where a thread may ask for the
// GIL therefore goes through this file, and a thread that cannot have it any more sleeps until the process ends, as
// Python 3.14 does.
//
//     GilRelease, GilAcquire   in place of nanobind's classes of similar names
//     call_python(f)           for f that runs Python code, in which the interpreter itself switches threads. Nothing
//                              in f may need its destructor: unwinding runs it, without the GIL
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <chrono>
#include <exception>
#include <thread>

#include "evenbins/compiler.hpp"

namespace evenbins::python {

namespace nb = nanobind;

// Whether the interpreter has begun to end: then only the thread that ends it can have the GIL.
inline bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return !Py_IsInitialized() || Py_IsFinalizing();
#else
  return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

[[noreturn]] inline void sleep_until_exit() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

// f(), with the GIL or to take it; if CPython ends the thread meanwhile, sleeps instead.
template <typename F>
decltype(auto) call_python(F&& f) {
  try {
    return f();
  } catch (const std::exception&) {
    throw;
  } catch (...) {  // pthread_exit: of all that is thrown here, this alone is no std::exception
    sleep_until_exit();
  }
}

// Releases the GIL until the end of the scope.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() { take(state_); }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  EVENBINS_NOINLINE static void take(PyThreadState* state) {
    // The thread that ends the interpreter may release the GIL too, in a destructor: it gets it back.
    call_python([&] { PyEval_RestoreThread(state); });
  }
  PyThreadState* state_;
};

// Holds the GIL until the end of the scope, in a thread that has released it or never had it.
class GilAcquire {
 public:
  GilAcquire() : state_(take()) {}
  ~GilAcquire() { PyGILState_Release(state_); }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  EVENBINS_NOINLINE static PyGILState_STATE take() {
    // A thread that Python does not know, or no longer knows: there may be no interpreter left to make it known to.
    if (PyGILState_GetThisThreadState() == nullptr && is_finalizing()) sleep_until_exit();
    return call_python([] { return PyGILState_Ensure(); });
  }
  PyGILState_STATE state_;
};

// Calls a Python object with the arguments.
template <typename... Handles>
nb::object call_object(nb::handle callable, const Handles&... arguments) {
  PyObject* result =
      call_python([&] { return PyObject_CallFunctionObjArgs(callable.ptr(), arguments.ptr()..., nullptr); });
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

// Runs the handlers of pending signals; false with an exception set if one has raised.
inline bool poll_signals() {
  return call_python([] { return PyErr_CheckSignals(); }) == 0;
}

}  // namespace evenbins::python

// Keys that go in, with an answer for each: whether it was new. An exception has the answers of the keys that are in.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <new>
#include <stdexcept>

#include "sources.hpp"

namespace evenbins::python {

// Where a caller wants his answers.
using MarkArray = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// `in`: how many keys are in, the first ones, also when it throws; these have answers.
class AnsweredSink : public Sink {
 public:
  const char* verb() const override { return "added"; }
  Answers<uint8_t> answers;
  uint64_t in = 0;
};

// The Python exception that is set, with the answers so far as its attribute `answers`.
[[noreturn]] inline void raise_answered(AnsweredSink& sink) {
  nb::python_error error;
  sink.answers.truncate(sink.in);
  error.value().attr("answers") = nb::cast(sink.answers.release<bool>());
  throw error;
}

inline nb::object answers_from(KeySource& keys, const Hasher& hasher, AnsweredSink& sink) {
  try {
    keys.run(hasher, sink);
  } catch (nb::python_error& error) {
    error.restore();
    raise_answered(sink);
  } catch (const nb::builtin_exception&) {  // of the keys' reader
    throw;
  } catch (const std::bad_alloc& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
    raise_answered(sink);
  } catch (const std::runtime_error& error) {  // a shard is full, or the call is inside another one
    PyErr_SetString(PyExc_RuntimeError, error.what());
    raise_answered(sink);
  }
  return nb::cast(sink.answers.release<bool>());
}

}  // namespace evenbins::python

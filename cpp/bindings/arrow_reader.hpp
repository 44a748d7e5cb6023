// Arrow capsules from Python: a stream, or a schema with an array, read array by array (arrow.hpp has the columns).
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <utility>

#include "arrow.hpp"
#include "gil.hpp"

namespace evenbins::python {

class ArrowReader {
 public:
  explicit ArrowReader(nb::handle stream) { stream_.take(pointer<arrow::Stream>(stream, "arrow_array_stream")); }
  ArrowReader(nb::handle schema, nb::handle array) {
    schema_.take(pointer<arrow::Schema>(schema, "arrow_schema"));
    array_.emplace().take(pointer<arrow::Array>(array, "arrow_array"));
  }

  // The next array as words that `hasher` makes, or null; it may be read until the next call. If the stream fails,
  // fail() is called with the Python exception set, and throws it.
  template <typename H, typename Fail>
  std::unique_ptr<arrow::Reader<H>> next(const H& hasher, const Fail& fail) {
    const bool begins = !std::exchange(begun_, true);
    try {
      if (stream_.value.release != nullptr) {
        if (begins) {
          require("get_schema", fail,
                  [&](arrow::Stream* s) { return call_python([&] { return s->get_schema(s, &schema_.value); }); });
          arrow::maker<H>(schema_.value);  // refuses a wrong type even if no array follows
        }
        array_.emplace();
        require("get_next", fail, [&](arrow::Stream* s) {
          const GilRelease free;  // a producer may wait for a Python thread
          return call_python([&] { return s->get_next(s, &array_->value); });
        });
        if (array_->value.release == nullptr) return nullptr;
      } else if (!begins) {
        return nullptr;
      }
      const GilRelease free;  // a dictionary's values are digested
      return arrow::maker<H>(schema_.value)(schema_.value, array_->value, hasher);
    } catch (const arrow::UnsupportedColumn& error) {
      throw nb::type_error(error.what());
    } catch (const arrow::BrokenColumn& error) {
      throw nb::value_error(error.what());
    }
  }

 private:
  template <typename T>
  static T* pointer(nb::handle capsule, const char* name) {
    auto* p = static_cast<T*>(PyCapsule_GetPointer(capsule.ptr(), name));
    if (p == nullptr) throw nb::python_error();
    if (p->release == nullptr) throw nb::value_error("this Arrow capsule has been used already");
    return p;
  }
  template <typename Fail, typename Call>
  void require(const char* name, const Fail& fail, const Call& call) {
    arrow::Stream* stream = &stream_.value;
    if (call(stream) == 0) return;
    if (!PyErr_Occurred()) {
      const char* text = stream->get_last_error(stream);
      PyErr_Format(PyExc_OSError, "the Arrow stream failed in %s: %s", name,
                   text == nullptr ? "no reason given" : text);
    }
    fail();
  }

  arrow::Owned<arrow::Stream> stream_;
  arrow::Owned<arrow::Schema> schema_;
  std::optional<arrow::Owned<arrow::Array>> array_;  // the one, or the stream's latest
  bool begun_ = false;
};

}  // namespace evenbins::python

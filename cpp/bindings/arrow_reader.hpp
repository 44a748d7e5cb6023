// Arrow capsules from Python: a stream, or a schema with an array, read array by array (arrow.hpp has the map).
//
// A table of one column, as an array or a stream of tables, is read as this column. Another table is a TypeError that
// names its columns; chosen_column() makes a stream of one of them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <utility>

#include "arrow.hpp"
#include "arrow_fields.hpp"
#include "arrow_types.hpp"
#include "gil.hpp"

namespace evenbins::python {

// What a capsule holds; it must not have been used.
template <typename T>
T* arrow_pointer(nb::handle capsule, const char* name) {
  auto* p = static_cast<T*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (p == nullptr) throw nb::python_error();
  if (p->release == nullptr) throw nb::value_error("this Arrow capsule has been used already");
  return p;
}

// Calls a function of a stream, whose name this is. If it fails, fail() is called with the Python exception set, and
// throws it.
template <typename Fail, typename Call>
void call_stream(arrow::Stream* stream, const char* name, const Fail& fail, const Call& call) {
  if (call(stream) == 0) return;
  if (!PyErr_Occurred()) {
    const char* text = stream->get_last_error(stream);
    PyErr_Format(PyExc_OSError, "the Arrow stream failed in %s: %s", name, text == nullptr ? "no reason given" : text);
  }
  fail();
}
template <typename Fail>
void get_schema(arrow::Stream* stream, arrow::Schema* schema, const Fail& fail) {
  call_stream(stream, "get_schema", fail,
              [&](arrow::Stream* s) { return call_python([&] { return s->get_schema(s, schema); }); });
}

// f(), with what is wrong with an Arrow column as a Python exception.
template <typename F>
decltype(auto) with_arrow_errors(const F& f) {
  try {
    return f();
  } catch (const arrow::UnsupportedColumn& error) {
    throw nb::type_error(error.what());
  } catch (const arrow::NoSuchColumn& error) {
    throw nb::key_error(error.what());
  } catch (const arrow::BrokenColumn& error) {
    throw nb::value_error(error.what());
  }
}

class ArrowReader {
 public:
  explicit ArrowReader(nb::handle stream) { stream_.take(arrow_pointer<arrow::Stream>(stream, "arrow_array_stream")); }
  ArrowReader(nb::handle schema, nb::handle array) {
    schema_.take(arrow_pointer<arrow::Schema>(schema, "arrow_schema"));
    latest_->array.take(arrow_pointer<arrow::Array>(array, "arrow_array"));
  }

  // The next array as words that `hasher` makes, or null; it may be read until the next call. If the stream fails,
  // fail() is called with the Python exception set, and throws it.
  template <typename H, typename Fail>
  std::unique_ptr<arrow::Reader<H>> next(const H& hasher, const Fail& fail) {
    return with_arrow_errors([&]() -> std::unique_ptr<arrow::Reader<H>> {
      const bool begins = !std::exchange(begun_, true);
      const bool is_stream = stream_.value.release != nullptr;
      if (begins) {
        if (is_stream) get_schema(&stream_.value, &schema_.value, fail);
        if (arrow::is_table(schema_.value)) field_ = arrow::only_field(schema_.value);
        arrow::maker<H>(column_schema());  // refuses a wrong type even if no array follows
      }
      if (is_stream) {
        latest_ = std::make_shared<Latest>();
        call_stream(&stream_.value, "get_next", fail, [&](arrow::Stream* s) {
          const GilRelease free;  // a producer may wait for a Python thread
          return call_python([&] { return s->get_next(s, &latest_->array.value); });
        });
        if (latest_->array.value.release == nullptr) return nullptr;
      } else if (!begins) {
        return nullptr;
      }
      const GilRelease free;
      if (field_ >= 0) latest_->field = std::make_unique<arrow::Field>(latest_->array.value, field_);
      const arrow::Array& column = field_ >= 0 ? latest_->field->array : latest_->array.value;
      return arrow::maker<H>(column_schema())(column_schema(), column, hasher, {&dictionary_, latest_});
    });
  }

 private:
  struct Latest {
    arrow::Owned<arrow::Array> array;
    std::unique_ptr<arrow::Field> field;  // of a table: its column
  };
  const arrow::Schema& column_schema() const {
    return field_ < 0 ? schema_.value : arrow::field_of(schema_.value, field_);
  }

  arrow::Owned<arrow::Stream> stream_;
  arrow::Owned<arrow::Schema> schema_;
  int64_t field_ = -1;                                           // of a table: the number of its column
  std::shared_ptr<Latest> latest_ = std::make_shared<Latest>();  // the only array, or the stream's latest
  arrow::DictionaryCache dictionary_;
  bool begun_ = false;
};

// The stream, as a capsule, of the column with this name: of a stream of tables, or of a schema and a table.
inline nb::object chosen_column(nb::handle stream, nb::handle schema, nb::handle array, const std::string& name) {
  using namespace arrow;
  const auto owned = std::make_shared<Owned<Schema>>();
  Owned<Stream> tables;
  Owned<Array> table;
  if (stream.is_none()) {
    owned->take(arrow_pointer<Schema>(schema, "arrow_schema"));
    table.take(arrow_pointer<Array>(array, "arrow_array"));
  } else {
    tables.take(arrow_pointer<Stream>(stream, "arrow_array_stream"));
    get_schema(&tables.value, &owned->value, [] { throw nb::python_error(); });
  }
  auto column =
      std::make_unique<FieldStream>(owned, with_arrow_errors([&] { return field_named(owned->value, name); }));
  if (tables.value.release != nullptr) column->tables.take(&tables.value);
  if (table.value.release != nullptr) column->table.take(&table.value);
  auto out = std::make_unique<Stream>();
  FieldStream::to_stream(std::move(column), out.get());
  PyObject* capsule = PyCapsule_New(out.get(), "arrow_array_stream", [](PyObject* self) {
    const std::unique_ptr<Stream> held(static_cast<Stream*>(PyCapsule_GetPointer(self, "arrow_array_stream")));
    if (held != nullptr && held->release != nullptr) held->release(held.get());
  });
  if (capsule == nullptr) {
    out->release(out.get());
    throw nb::python_error();
  }
  out.release();
  return nb::steal(capsule);
}

}  // namespace evenbins::python

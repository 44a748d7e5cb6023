// A table as a Python mapping: what every class of tables offers to its Python class, whatever is behind it.
//
//     one key     raw type slots: table[key], table[key] = value, del table[key], key in table, len(table)
//     many keys   words of keys and values (table_keys.hpp), the GIL released, Ctrl-C heard between stretches
//     iteration   stretches of items from a cursor on; `version` tells whether keys came or went meanwhile
//
// `Table` has spec(), bits(), key_type(), value_type(), size(), find, put, erase, put_many, find_many, erase_many,
// clear, copy, ==, next, key_of, value_of, check and full_text(). Writers take turns: access.hpp. Look-ups do not wait:
// they may run side by side, but not beside a writer, as with any container; what they find then may be wrong, never
// outside the table's memory.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "access.hpp"
#include "evenbins/stretches.hpp"
#include "files.hpp"
#include "table_keys.hpp"

namespace evenbins::python {

template <typename Table>
struct MappingObject : Turns {
  explicit MappingObject(std::unique_ptr<Table> t)
      : maker{t->key_type(), t->spec().seed}, read_only(t->bits().read_only()), table(std::move(t)) {}
  KeyMaker maker;
  bool read_only;
  std::unique_ptr<Table> table;
  uint64_t version = 0;  // changes whenever a key comes or goes
};

template <typename Table>
class Mapping {
 public:
  using Object = MappingObject<Table>;

  static void require_writable(const Object& object) {
    if (object.read_only)
      throw nb::value_error("this table is open read-only: use load() or copy() for one that can be changed");
  }

  static StoredKey key_from(const Object& object, nb::handle key) {
    StoredKey stored;
    if (!stored_key_of(key.ptr(), object.maker, stored)) throw nb::python_error();
    return stored;
  }

  static nb::object value_from(const Object& object, uint64_t word) {
    nb::object value = nb::steal(value_object(object.table->value_type(), word));
    if (!value.is_valid()) throw nb::python_error();
    return value;
  }

  // ---- one key ------------------------------------------------------------------------------------------

  static nb::object get(const Object& self, nb::handle key, nb::handle other) {
    const uint64_t* value = self.table->find(key_from(self, key));
    return value == nullptr ? nb::borrow(other) : value_from(self, *value);
  }

  // The value, and the key is gone; or `other`.
  static nb::object take(Object& self, nb::handle key, nb::handle other) {
    const StoredKey stored = key_from(self, key);
    require_writable(self);
    uint64_t value = 0;
    std::optional<Access> access;
    if (self.busy) access.emplace(self);
    const bool erased = self.table->erase(stored, &value);
    self.version += erased;
    access.reset();
    return erased ? value_from(self, value) : nb::borrow(other);
  }

  static void put(Object& self, PyObject* key, PyObject* value) {
    const StoredKey stored = key_from(self, key);
    uint64_t word;
    if (!stored_value_of(value, self.table->value_type(), word)) throw nb::python_error();
    require_writable(self);
    std::optional<Access> access;
    if (self.busy) access.emplace(self);
    const auto done = self.table->put(stored, word);
    self.version += done == Table::Put::inserted;
    access.reset();
    if (done == Table::Put::full) raise_table_full(self.table->full_text() + "; nothing was changed", 0);
  }

  // ---- many keys ----------------------------------------------------------------------------------------

  static void put_from(Object& self, WordArray keys, WordArray values, bool fresh) {
    const uint64_t n = count_of(self, keys);
    if (values.size() != n) throw nb::value_error("there must be as many values as keys");
    require_writable(self);
    uint64_t done = 0, inserted = 0;
    bool full = false, stopped = false;
    {
      const Access access(self);
      SignalPulse pulse;
      while (done < n && !full && !stopped) {
        const uint64_t step = std::min(kStretch, n - done);
        const uint64_t* words = keys.data() + done * key_words(self.maker.type);
        const uint64_t taken = self.table->put_many(words, values.data() + done, step, fresh, inserted);
        full = taken < step;
        done += taken;
        stopped = !pulse();
      }
    }
    self.version += inserted != 0;
    if (stopped) raise_interrupted(done);
    if (full)
      raise_table_full("keys[" + std::to_string(done) + "]: " + self.table->full_text() +
                           "; the keys before it are in (error.inserted)",
                       done);
  }

  // Values of the keys found, 0 for others, and which were found; no values if they are not wanted.
  static nb::object find_from(const Object& self, WordArray keys, uint32_t threads, bool with_values) {
    const uint64_t n = count_of(self, keys);
    Answers<uint64_t> values;
    Answers<uint8_t> found;
    uint64_t* out = with_values ? values.extend(n) : nullptr;
    uint8_t* there = found.extend(n);
    bool finished;
    {
      const nb::gil_scoped_release free;
      if (out != nullptr) std::fill_n(out, n, 0);
      finished =
          for_stretches(n, std::max<uint32_t>(threads, 1), kStretch, SignalPulse(), [&](uint64_t at, uint64_t m) {
            self.table->find_many(keys.data() + at * key_words(self.maker.type), m, out == nullptr ? out : out + at,
                                  there + at);
          });
    }
    if (!finished) throw nb::python_error();
    if (!with_values) return nb::cast(found.release<bool>());
    return nb::make_tuple(values.release<uint64_t>(), found.release<bool>());
  }

  static nb::object erase_from(Object& self, WordArray keys) {
    const uint64_t n = count_of(self, keys);
    require_writable(self);
    uint64_t done = 0, erased = 0;
    bool stopped = false;
    {
      const Access access(self);
      SignalPulse pulse;
      while (done < n && !stopped) {
        const uint64_t step = std::min(kStretch, n - done);
        erased += self.table->erase_many(keys.data() + done * key_words(self.maker.type), step, nullptr);
        done += step;
        stopped = !pulse();
      }
    }
    self.version += erased != 0;
    if (stopped) raise_interrupted(done);
    return nb::int_(erased);
  }

  // At most `most` items behind the cursor (0: from the first): words of keys, words of values, the next cursor (0: the
  // end).
  static nb::tuple items(const Object& self, uint64_t cursor, uint64_t most) {
    Answers<uint64_t> keys, values;
    auto number = static_cast<uint32_t>(std::min<uint64_t>(cursor, UINT32_MAX));
    for (uint64_t i = 0; i < most && (number = self.table->next(number)) != 0; ++i) {
      append_key(keys, self.maker, self.table->key_of(number));
      *values.extend(1) = self.table->value_of(number);
    }
    return nb::make_tuple(keys.template release<uint64_t>(), values.template release<uint64_t>(), number);
  }

  // ---- the class ----------------------------------------------------------------------------------------

  static void init_file(Object* self, nb::handle data, uint32_t kind, bool mapped, bool verify) {
    new (self) Object(from_file(data, kind, mapped, verify, [](Spec spec, Bits bits) {
      return std::make_unique<Table>(std::move(spec), std::move(bits));
    }));
  }

  static void init_copy(Object* self, Object& other) {
    std::unique_ptr<Table> table;
    {
      const Access access(other);
      table = other.table->copy();
      if (other.read_only)  // it may have been opened unverified, and what can be changed must be sound
        if (const std::string broken = table->check(true); !broken.empty()) throw FormatError(broken);
    }
    new (self) Object(std::move(table));
  }

  static bool equal(Object& a, Object& b) {
    return &a == &b || with_both(a, b, [&] { return *a.table == *b.table; });
  }

  // Defines everything but the constructor of an empty table.
  static nb::class_<Object> bind(nb::module_& m, const char* name, uint32_t kind, const char* doc) {
    static uint32_t file_kind;
    file_kind = kind;
    const nb::object typing = nb::module_::import_("typing");
    nb::class_<Object> cls(m, name, nb::type_slots(slots), nb::is_weak_referenceable(), doc);
    cls.def(
           "__init__",
           [](Object* self, nb::handle data, bool mapped, bool verify) {
             init_file(self, data, file_kind, mapped, verify);
           },
           nb::arg("data"), nb::arg("mapped"), nb::arg("verify"))
        .def("__init__", &init_copy, nb::arg("other"))
        .def("_get", &get, nb::arg("key").none(), nb::arg("other").none(),
             nb::sig("def _get(self, key: object, other: typing.Any) -> typing.Any"))
        .def("_take", &take, nb::arg("key").none(), nb::arg("other").none(),
             nb::sig("def _take(self, key: object, other: typing.Any) -> typing.Any"))
        .def("_put_from", &put_from, nb::arg("keys"), nb::arg("values"), nb::arg("new"),
             nb::sig("def _put_from(self, keys: numpy.typing.NDArray[numpy.uint64], values: "
                     "numpy.typing.NDArray[numpy.uint64], new: bool) -> None"))
        .def(
            "_find_from",
            [](const Object& self, WordArray keys, uint32_t threads) { return find_from(self, keys, threads, true); },
            nb::arg("keys"), nb::arg("threads"),
            nb::sig("def _find_from(self, keys: numpy.typing.NDArray[numpy.uint64], threads: int) -> "
                    "tuple[numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.bool_]]"))
        .def(
            "_contains_from",
            [](const Object& self, WordArray keys, uint32_t threads) { return find_from(self, keys, threads, false); },
            nb::arg("keys"), nb::arg("threads"),
            nb::sig("def _contains_from(self, keys: numpy.typing.NDArray[numpy.uint64], threads: int) -> "
                    "numpy.typing.NDArray[numpy.bool_]"))
        .def("_erase_from", &erase_from, nb::arg("keys"),
             nb::sig("def _erase_from(self, keys: numpy.typing.NDArray[numpy.uint64]) -> int"))
        .def("_items", &items, nb::arg("cursor"), nb::arg("most"),
             nb::sig("def _items(self, cursor: int, most: int) -> tuple[numpy.typing.NDArray[numpy.uint64], "
                     "numpy.typing.NDArray[numpy.uint64], int]"))
        .def("_equal", &equal, nb::arg("other"))
        .def("_clear",
             [](Object& self) {
               require_writable(self);
               const Access access(self);
               self.table->clear();
               ++self.version;
             })
        .def(
            "_to_bytes", [](Object& self) { return file_bytes(self, *self.table); },
            nb::sig("def _to_bytes(self) -> bytes"))
        .def(
            "_write_to", [](Object& self, int descriptor) { write_file(self, *self.table, descriptor); },
            nb::arg("descriptor"))
        .def("_invariant",
             [](Object& self) {
               const Access access(self);
               return self.table->check(true, true);
             })
        .def_prop_ro("_version", [](const Object& self) { return self.version; })
        .def_prop_ro("_seed", [](const Object& self) { return self.table->spec().seed; })
        .def_prop_ro("_capacity", [](const Object& self) { return self.table->spec().capacity; })
        .def_prop_ro("_core", [](const Object& self) { return self.table->spec().core; })
        .def_prop_ro("_key_type", [](const Object& self) { return static_cast<uint64_t>(self.table->key_type()); })
        .def_prop_ro("_value_type", [](const Object& self) { return static_cast<uint64_t>(self.table->value_type()); })
        .def_prop_ro("_read_only", [](const Object& self) { return self.read_only; })
        .def_prop_ro(
            "nbytes", [](const Object& self) { return self.table->bits().bytes(); },
            "Bytes of the table, everything counted.");
    return cls;
  }

 private:
  static constexpr uint64_t kStretch = 1 << 14;

  static uint64_t count_of(const Object& self, const WordArray& keys) {
    const uint32_t words = key_words(self.maker.type);
    if (keys.size() % words != 0) throw nb::value_error("a key of this table has two words");
    return keys.size() / words;
  }

  // The object behind a Python table, or null with an exception: `Table.__new__(Table)` has none yet.
  static Object* object_of(PyObject* self) {
    if (nb::inst_ready(self)) [[likely]]
      return nb::inst_ptr<Object>(self);
    PyErr_Format(PyExc_RuntimeError, "%.100s.__init__() has not been called", Py_TYPE(self)->tp_name);
    return nullptr;
  }

  // Runs f where exceptions of C++ may not leave: false with a Python exception set if one was thrown.
  template <typename F>
  static bool guarded(F&& f) {
    try {
      f();
      return true;
    } catch (nb::python_error& error) {
      error.restore();
    } catch (const nb::builtin_exception& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return false;
  }

  static int slot_contains(PyObject* self, PyObject* key) {
    const Object* object = object_of(self);
    StoredKey stored;
    if (object == nullptr || !stored_key_of(key, object->maker, stored)) return -1;
    return object->table->find(stored) != nullptr;
  }
  static Py_ssize_t slot_length(PyObject* self) {
    const Object* object = object_of(self);
    return object == nullptr ? -1 : static_cast<Py_ssize_t>(object->table->size());
  }
  static PyObject* slot_subscript(PyObject* self, PyObject* key) {
    const Object* object = object_of(self);
    StoredKey stored;
    if (object == nullptr || !stored_key_of(key, object->maker, stored)) return nullptr;
    const uint64_t* value = object->table->find(stored);
    if (value != nullptr) return value_object(object->table->value_type(), *value);
    PyErr_SetObject(PyExc_KeyError, key);
    return nullptr;
  }
  static int slot_ass_subscript(PyObject* self, PyObject* key, PyObject* value) {
    Object* object = object_of(self);
    if (object == nullptr) return -1;
    const bool done = guarded([&] {
      if (value != nullptr) return put(*object, key, value);
      if (!take(*object, key, nb::handle()).is_valid()) {
        PyErr_SetObject(PyExc_KeyError, key);
        throw nb::python_error();
      }
    });
    return done ? 0 : -1;
  }

  static inline PyType_Slot slots[] = {
      {Py_sq_contains, reinterpret_cast<void*>(slot_contains)},
      {Py_mp_length, reinterpret_cast<void*>(slot_length)},
      {Py_mp_subscript, reinterpret_cast<void*>(slot_subscript)},
      {Py_mp_ass_subscript, reinterpret_cast<void*>(slot_ass_subscript)},
      {0, nullptr},
  };
};

}  // namespace evenbins::python

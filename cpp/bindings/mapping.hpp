// A table as the core of a Python mapping (src/evenbins/tables/mapping.py), whatever is behind it.
//
//     one key     raw type slots and a raw method: table[key], table[key] = value, del, in, len, get
//     many keys   words of keys and values (table_keys.hpp), the GIL released, Ctrl-C heard between stretches
//     iteration   pages of items from a cursor on; `version` tells whether keys came or went meanwhile
//
// `Table` has spec(), bits(), key_type(), value_type(), size(), find, put, erase, put_many, find_many, erase_many,
// clear, copy, ==, next, key_of, value_of, check and full_text(). Readers and writers: readers.hpp. Keys and values of
// a bulk call are copied stretch by stretch before they are used: an array that somebody changes meanwhile does no
// harm.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "batches.hpp"
#include "evenbins/scattered.hpp"
#include "evenbins/stretches.hpp"
#include "files.hpp"
#include "readers.hpp"
#include "table_keys.hpp"

namespace evenbins::python {

template <typename Table>
struct MappingObject : ReadersAndWriter {
  explicit MappingObject(std::unique_ptr<Table> t)
      : maker{t->key_type(), t->spec().seed},
        finder(maker.finder()),
        values(t->value_type()),
        read_only(t->bits().read_only()),
        table(std::move(t)) {}
  KeyMaker maker, finder;  // of keys that are stored, and that are looked up or deleted
  ValueType values;
  bool read_only;
  std::unique_ptr<Table> table;
  uint64_t version = 0;  // changes whenever a key comes or goes; not stored
};

template <typename Table>
class Mapping {
 public:
  using Object = MappingObject<Table>;

  static constexpr const char* kReadOnly =
      "this table is open read-only: use load() or copy() for one that can be changed";

  static StoredKey key_from(const KeyMaker& maker, nb::handle key) {
    StoredKey stored;
    if (!stored_key_of(key.ptr(), maker, stored)) throw nb::python_error();
    return stored;
  }

  // Defines everything but the constructor of an empty table.
  static nb::class_<Object> bind(nb::module_& m, const char* name, Kind kind, const char* doc) {
    static uint32_t file_kind;
    file_kind = static_cast<uint32_t>(kind);
    nb::class_<Object> cls(m, name, nb::type_slots(slots), nb::is_weak_referenceable(), doc);
    cls.def(
           "__init__",
           [](Object* self, nb::handle data, bool mapped, bool verify) {
             new (self) Object(from_file(data, file_kind, mapped, verify, [](Spec spec, Bits bits) {
               return std::make_unique<Table>(std::move(spec), std::move(bits));
             }));
           },
           nb::arg("data"), nb::arg("mapped"), nb::arg("verify"))
        .def("__init__", &init_copy, nb::arg("other"))
        .def("_insert_many", &insert_many, nb::arg("keys"), nb::arg("values"), nb::arg("are_new"),
             nb::arg("before") = 0,
             nb::sig("def _insert_many(self, keys: numpy.typing.NDArray[numpy.uint64], values: "
                     "numpy.typing.NDArray[numpy.uint64], are_new: bool, before: int = 0) -> None"))
        .def("_erase_many", &erase_many, nb::arg("keys"), nb::arg("strict"),
             nb::sig("def _erase_many(self, keys: numpy.typing.NDArray[numpy.uint64], strict: bool) -> "
                     "tuple[int, int, int]"),
             "The number erased; strict: of keys that are not there, and the first of them, and then none is erased.")
        .def("_pop", &pop, nb::arg("key").none(), nb::arg("default").none(),
             nb::sig("def _pop(self, key: object, default: object) -> object"))
        .def("_setdefault", &set_default, nb::arg("key").none(), nb::arg("default").none(),
             nb::sig("def _setdefault(self, key: object, default: object) -> int | float"))
        .def("_get_many", &get_many, nb::arg("keys"), nb::arg("missing"), nb::arg("threads"),
             nb::sig("def _get_many(self, keys: numpy.typing.NDArray[numpy.uint64], missing: int, threads: int) -> "
                     "tuple[numpy.typing.NDArray[numpy.uint64], int, int]"),
             "The values, the number of keys that are missing, and the first of them.")
        .def("_contains_many", &contains_many, nb::arg("keys"), nb::arg("threads"),
             nb::sig("def _contains_many(self, keys: numpy.typing.NDArray[numpy.uint64], threads: int) -> "
                     "numpy.typing.NDArray[numpy.bool_]"))
        .def("_page", &page, nb::arg("slot"), nb::arg("entry"), nb::arg("most"),
             nb::sig("def _page(self, slot: int, entry: int, most: int) -> tuple[numpy.typing.NDArray[numpy.uint64], "
                     "numpy.typing.NDArray[numpy.uint64], int, int]"),
             "Keys and values from a position on, (0, 0) at first, and the position after them.")
        .def("_each_batch", &each_batch, nb::arg("store"), nb::arg("most"),
             nb::sig("def _each_batch(self, store: collections.abc.Callable[[numpy.typing.NDArray[numpy.uint64], "
                     "numpy.typing.NDArray[numpy.uint64]], object], most: int) -> None"),
             "Calls store(keys, values) with all items, `most` at a time, in a random order that is always the same; "
             "nobody changes the table meanwhile.")
        .def("_equal", &equal, nb::arg("other"))
        .def("_clear",
             [](Object& self) {
               require_writable(self);
               const Writing alone(self);
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
        .def_prop_ro("_version", [](Object& self) { return read_in_turn(self, [&] { return self.version; }); })
        .def_prop_ro("_seed", [](const Object& self) { return self.table->spec().seed; })
        .def_prop_ro("_capacity", [](const Object& self) { return self.table->spec().capacity; })
        .def_prop_ro("_core", [](const Object& self) { return self.table->spec().core; })
        .def_prop_ro("_read_only", [](const Object& self) { return self.read_only; })
        .def_prop_ro(
            "nbytes", [](const Object& self) { return self.table->bits().bytes(); },
            "Bytes of the table, everything counted.");
    return cls;
  }

 private:
  static constexpr uint64_t kStretch = 1 << 14;

  static void require_writable(const Object& object) {
    if (object.read_only) throw nb::value_error(kReadOnly);
  }

  // ---- one key ------------------------------------------------------------------------------------------

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
    } catch (const std::bad_alloc&) {
      PyErr_NoMemory();
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return false;
  }

  // 1 and the value's word, 0 if there is none, −1 with an exception.
  static int look_up(PyObject* self, PyObject* key, Object*& object, uint64_t& word) {
    object = object_of(self);
    StoredKey stored;
    if (object == nullptr || !stored_key_of(key, object->finder, stored)) return -1;
    if (object->finder.is_out_of_range(stored)) return 0;
    bool found = false;
    const bool done = guarded([&] {
      read_in_turn(*object, [&] {
        const uint64_t* value = object->table->find(stored);
        found = value != nullptr;
        if (found) word = *value;
      });
    });
    return !done ? -1 : found ? 1 : 0;
  }

  static int slot_contains(PyObject* self, PyObject* key) {
    Object* object;
    uint64_t word;
    return look_up(self, key, object, word);
  }
  static Py_ssize_t slot_length(PyObject* self) {
    Object* object = object_of(self);
    Py_ssize_t size = -1;
    if (object != nullptr) guarded([&] { size = read_in_turn(*object, [&] { return object->table->size(); }); });
    return size;
  }
  static PyObject* slot_subscript(PyObject* self, PyObject* key) {
    Object* object;
    uint64_t word;
    const int found = look_up(self, key, object, word);
    if (found > 0) return value_object(object->values, word);
    if (found == 0) PyErr_SetObject(PyExc_KeyError, key);
    return nullptr;
  }
  static PyObject* method_get(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
    if (n < 1 || n > 2) {
      PyErr_Format(PyExc_TypeError, "get expected 1 or 2 arguments, got %zd", n);
      return nullptr;
    }
    Object* object;
    uint64_t word;
    const int found = look_up(self, arguments[0], object, word);
    if (found > 0) return value_object(object->values, word);
    return found < 0 ? nullptr : Py_NewRef(n == 2 ? arguments[1] : Py_None);
  }
  static int slot_assign(PyObject* self, PyObject* key, PyObject* value) {  // value null: del
    Object* object = object_of(self);
    StoredKey stored;
    uint64_t word = 0;
    if (object == nullptr) return -1;
    if (!stored_key_of(key, value == nullptr ? object->finder : object->maker, stored)) return -1;
    if (value != nullptr && !stored_value_of(value, object->values, word)) return -1;
    const bool done = guarded([&] {
      require_writable(*object);
      bool is_full = false, is_missing = false;
      in_turn(*object, object->may_write(), [&] {
        if (value == nullptr) {
          is_missing = object->finder.is_out_of_range(stored) || !object->table->erase(stored);
          object->version += !is_missing;
        } else {
          const auto put = object->table->put(stored, word);
          object->version += put == Table::Put::inserted;
          is_full = put == Table::Put::full;
        }
      });
      if (is_full) raise_table_full(object->table->full_text() + "; nothing was changed", 0);
      if (is_missing) {
        PyErr_SetObject(PyExc_KeyError, key);
        throw nb::python_error();
      }
    });
    return done ? 0 : -1;
  }

  // Takes a key out, in one step; its value, or `fallback` if it is not there.
  static nb::object pop(Object& self, nb::handle key, nb::handle fallback) {
    const StoredKey wanted = key_from(self.finder, key);
    if (self.finder.is_out_of_range(wanted)) return nb::borrow(fallback);
    uint64_t word = 0;
    bool found = false;
    in_turn(self, self.may_write(), [&] {
      if (self.table->find(wanted) == nullptr) return;
      require_writable(self);
      found = self.table->erase(wanted, &word);
      ++self.version;
    });
    return found ? nb::steal(value_object(self.values, word)) : nb::borrow(fallback);
  }

  // The value of a key, which is stored first if it is not there: one step.
  static nb::object set_default(Object& self, nb::handle key, nb::handle value) {
    const StoredKey wanted = key_from(self.maker, key);
    uint64_t word;
    if (!stored_value_of(value.ptr(), self.values, word)) throw nb::python_error();
    bool is_full = false;
    in_turn(self, self.may_write(), [&] {
      if (const uint64_t* present = self.table->find(wanted); present != nullptr) {
        word = *present;
        return;
      }
      require_writable(self);
      is_full = self.table->put(wanted, word, true) == Table::Put::full;
      self.version += !is_full;
    });
    if (is_full) raise_table_full(self.table->full_text() + "; nothing was changed", 0);
    return nb::steal(value_object(self.values, word));
  }

  static inline PyMethodDef methods[] = {
      {"get", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(method_get)), METH_FASTCALL,
       "get($self, key, default=None, /)\n--\n\nThe value of a key, or the default."},
      {nullptr, nullptr, 0, nullptr},
  };
  static inline PyType_Slot slots[] = {
      {Py_sq_contains, reinterpret_cast<void*>(slot_contains)},
      {Py_mp_length, reinterpret_cast<void*>(slot_length)},
      {Py_mp_subscript, reinterpret_cast<void*>(slot_subscript)},
      {Py_mp_ass_subscript, reinterpret_cast<void*>(slot_assign)},
      {Py_tp_methods, methods},
      {0, nullptr},
  };

  // ---- many keys ----------------------------------------------------------------------------------------

  static uint64_t count_of(const Object& self, const WordArray& keys) {
    const uint32_t words = key_words(self.maker.type);
    if (keys.size() % words != 0) throw nb::value_error("the words of the keys are not whole keys");
    return keys.size() / words;
  }

  // `before`: keys of the same call that are in already, for what is reported.
  static void insert_many(Object& self, WordArray keys, WordArray values, bool are_new, uint64_t before) {
    const uint64_t n = count_of(self, keys);
    if (values.size() != n) throw nb::value_error("there must be as many values as keys");
    require_writable(self);
    uint64_t done = 0, inserted = 0;
    bool is_full = false;
    {
      const Writing alone(self);
      const uint32_t words = key_words(self.maker.type);
      std::vector<uint64_t> k, v;  // reserved here: no error of memory once keys are in
      k.reserve(std::min(kStretch, n) * words);
      v.reserve(std::min(kStretch, n));
      SignalPulse pulse;
      while (done < n && !is_full && pulse()) {
        const uint64_t step = std::min(kStretch, n - done);
        k.assign(keys.data() + done * words, keys.data() + (done + step) * words);
        v.assign(values.data() + done, values.data() + done + step);
        const uint64_t taken = self.table->put_many(k.data(), v.data(), step, are_new, inserted);
        is_full = taken < step;
        done += taken;
      }
      self.version += inserted != 0;
    }
    done += before;
    if (PyErr_Occurred()) raise_interrupted(done);
    if (is_full)
      raise_table_full("keys[" + std::to_string(done) + "]: " + self.table->full_text() +
                           "; the keys before it are in (error.inserted)",
                       done);
  }

  // Keys erased; keys that are not there, and the first of them: with `strict` none is erased if there is one.
  static nb::tuple erase_many(Object& self, WordArray keys, bool strict) {
    const uint64_t n = count_of(self, keys);
    require_writable(self);
    uint64_t done = 0, erased = 0, absent = 0, first = n;
    {
      const Writing alone(self);
      const uint32_t words = key_words(self.maker.type);
      std::vector<uint64_t> k;
      k.reserve(std::min(kStretch, n) * words);
      SignalPulse pulse;
      if (strict) {
        std::vector<uint8_t> found(n);
        for_stretches(n, 1, kStretch, pulse, [&](uint64_t at, uint64_t count) {
          self.table->find_many(keys.data() + at * words, count, nullptr, found.data() + at);
        });
        absent = static_cast<uint64_t>(std::count(found.begin(), found.end(), 0));
        first = static_cast<uint64_t>(std::find(found.begin(), found.end(), 0) - found.begin());
      }
      while (absent == 0 && done < n && pulse()) {
        const uint64_t step = std::min(kStretch, n - done);
        k.assign(keys.data() + done * words, keys.data() + (done + step) * words);
        erased += self.table->erase_many(k.data(), step, nullptr);
        done += step;
      }
      self.version += erased != 0;
    }
    if (PyErr_Occurred()) raise_interrupted(done);
    return nb::make_tuple(erased, absent, first);
  }

  // Values (none wanted: null) and which keys are there, by several threads.
  static void find_all(Object& self, const WordArray& keys, uint64_t n, uint32_t threads, uint64_t* values,
                       uint8_t* found) {
    const Reading reading(self);
    const uint32_t words = key_words(self.maker.type);
    SignalPulse pulse;
    for_stretches(n, threads, kStretch, pulse, [&](uint64_t at, uint64_t count) {
      self.table->find_many(keys.data() + at * words, count, values == nullptr ? nullptr : values + at, found + at);
    });
  }

  static nb::object get_many(Object& self, WordArray keys, uint64_t missing, uint32_t threads) {
    const uint64_t n = count_of(self, keys);
    Answers<uint64_t> answers;
    uint64_t *out = answers.extend(n), absent = 0, first = 0;
    std::fill_n(out, n, missing);
    std::vector<uint8_t> found(n);
    find_all(self, keys, n, threads, out, found.data());
    if (PyErr_Occurred()) throw nb::python_error();
    for (uint64_t i = n; i-- > 0;)
      if (found[i] == 0) ++absent, first = i;
    return nb::make_tuple(answers.release<uint64_t>(), absent, first);
  }

  static nb::object contains_many(Object& self, WordArray keys, uint32_t threads) {
    const uint64_t n = count_of(self, keys);
    Answers<uint8_t> answers;
    find_all(self, keys, n, threads, nullptr, answers.extend(n));
    if (PyErr_Occurred()) throw nb::python_error();
    return nb::cast(answers.release<bool>());
  }

  // A position is the entry before, and nothing else.
  static nb::object page(Object& self, uint64_t, uint64_t entry, uint64_t most) {
    Answers<uint64_t> keys, values;
    auto number = static_cast<uint32_t>(std::min<uint64_t>(entry, UINT32_MAX));
    read_in_turn(self, [&] {
      for (uint64_t i = 0; i < most; ++i) {
        const uint32_t next = self.table->next(number);
        if (next == 0) break;
        number = next;
        append_key(keys, self.maker, self.table->key_of(number));
        *values.extend(1) = self.table->value_of(number);
      }
    });
    return nb::make_tuple(keys.release<uint64_t>(), values.release<uint64_t>(), 0, number);
  }

  static void each_batch(Object& self, nb::callable store, uint64_t most) {
    std::optional<Scattered> order;
    uint64_t at = 0;
    store_batches(
        self, std::move(store), most, key_words(self.maker.type),
        [&] {
          order.emplace(self.table->used());
          return self.table->size();
        },
        [&](uint64_t n, uint64_t* keys, uint64_t* values) {
          uint64_t copied = 0;
          for (const uint64_t end = self.table->used(); at < end && copied < n; ++at) {
            const auto number = static_cast<uint32_t>((*order)(at) + 1);
            if (!self.table->in_use(number)) continue;
            const StoredKey key = self.table->key_of(number);
            *keys++ = key.low;
            if (self.maker.type == KeyType::digest) *keys++ = key.high;
            values[copied++] = self.table->value_of(number);
          }
          return copied;
        });
  }

  // ---- the table as a whole -------------------------------------------------------------------------------

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
};

}  // namespace evenbins::python

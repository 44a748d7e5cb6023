// A table as the core of a Python mapping (src/evenbins/tables/mapping.py), whatever is behind it.
//
//     one key     raw type slots and a raw method: table[key], table[key] = value, del, in, len, get, because the call
//                 is most of the cost
//     many keys   words of keys and values (table_keys.hpp), the GIL released, signals polled for between stretches
//     iteration   pages of items from a position on; `version` tells whether keys came or went meanwhile
//
// `Mapping<Object>` defines the Python class; tables.cpp, chained.cpp and paged.cpp have an Object each, which adds
// what differs. One key: find, put, erase. Many keys, without the GIL: get_all, find_all, insert_all, erase_all.
// Iteration: page, Cursor, next_pop (the position from which popitem goes on, valid after any change). How it is locked: look_up, read and alone for one key; require_own, require_open and
// require_writable before any lock is taken, require_still_open after. Readers and writers: readers.hpp.
//
// Keys and values of a bulk call are copied, stretch by stretch, before they are used: an array that somebody changes
// meanwhile does no harm.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "batches.hpp"
#include "readers.hpp"
#include "recent.hpp"
#include "structure.hpp"
#include "table_keys.hpp"

namespace evenbins::python {

enum class Put { full, replaced, inserted };

// How a bulk insertion into a table in memory goes: see its insert_many; `threads` at most.
struct InsertOption {
  bool are_new;
  uint32_t threads;
};

struct BulkProgress {  // of a bulk change: keys dealt with; keys that are new, or were deleted
  uint64_t done = 0, changed = 0;
  bool full = false;  // the next key finds no room
};

template <typename Table>
struct MappingObject : ReadersAndWriter {
  explicit MappingObject(std::unique_ptr<Table> t)
      : maker{t->key_type(), t->spec().seed}, finder(maker.finder()), values(value_type_of(*t)), table(std::move(t)) {}
  KeyMaker maker, finder;  // of keys that are stored, and that are looked up or deleted
  ValueType values;
  std::unique_ptr<Table> table;
  uint64_t version = 0;           // changes whenever a key comes or goes; not stored
  uint64_t pop_from[2] = {0, 0};  // the position from which popitem searches; not stored

  Table& structure() const { return *table; }
  bool is_set() const { return values == ValueType::none; }
  void require_values() const {
    if (is_set()) throw nb::type_error(kNoValues);
  }
  uint32_t words() const { return key_words(maker.type); }

 protected:
  static constexpr uint64_t kStretch = 1 << 14;

  static ValueType value_type_of(const Table& t) {
    if constexpr (requires { t.value_type(); })
      return t.value_type();
    else
      return t.shape().value_type;
  }
  // The number of keys that were not found, and the first of them.
  static void count_missing(const std::vector<uint8_t>& found, uint64_t n, uint64_t& first, uint64_t& absent) {
    for (uint64_t i = n; i-- > 0;)
      if (found[i] == 0) {
        first = i;
        ++absent;
      }
  }

  // step(start, count, changed) deals with a stretch of the keys, and returns how many of them found room.
  template <typename Step>
  static BulkProgress in_stretches(uint64_t n, const Pulse& pulse, Step&& step) {
    BulkProgress progress;
    while (progress.done < n && !progress.full && pulse()) {
      const uint64_t count = std::min(kStretch, n - progress.done);
      const uint64_t taken = step(progress.done, count, progress.changed);
      progress.done += taken;
      progress.full = taken < count;
    }
    return progress;
  }
};

// A table in memory: it is always open.
template <typename Table>
struct MemoryObject : MappingObject<Table> {
  static constexpr const char* kReadOnly =
      "this table is open read-only: use load() or copy() for one that can be changed";

  explicit MemoryObject(std::unique_ptr<Table> t) : MappingObject<Table>(std::move(t)) {}
  const bool read_only = this->table->bits().read_only();

  static uint64_t payload_bytes(const Spec& spec) { return evenbins::payload_bytes(spec); }
  static std::unique_ptr<Table> make(Spec spec, Bits bits) {
    return std::make_unique<Table>(std::move(spec), std::move(bits));
  }
  void require_own() const {}
  void require_open() const {}
  void require_still_open() const {}
  void require_deletable() const {}
  void require_writable() const {
    if (read_only) throw nb::value_error(kReadOnly);
  }
  bool find(const StoredKey& key, uint64_t& word) const {
    const uint64_t* value = this->table->find(key);
    if (value == nullptr) return false;
    word = *value;
    return true;
  }
  bool look_up(const StoredKey& key, uint64_t& word) {
    return read_in_turn(*this, [&] { return find(key, word); });
  }
  template <typename F>
  auto read(F&& f) {
    return read_in_turn(*this, f);
  }
  template <typename F>
  auto alone(F&& f) {
    return in_turn(*this, this->may_write(), f);
  }
  bool erase(const StoredKey& key) { return this->table->erase(key); }
  // Sets the Python exception of an error of the table's own kind; false if it is none.
  static bool set_exception(const std::exception&) { return false; }
};

template <typename Object>
class Mapping {
 public:
  static StoredKey key_from(const KeyMaker& maker, nb::handle key) {
    StoredKey stored;
    if (!stored_key_of(key.ptr(), maker, stored)) throw nb::python_error();
    return stored;
  }

  // The class; `option` names the argument of bulk look-ups that says how many threads or reads.
  static nb::class_<Object> bind(nb::module_& m, const char* name, const char* option, const char* doc) {
    const auto words = [](const std::string& before, const std::string& after) {
      return before + "numpy.typing.NDArray[numpy.uint64]" + after;
    };
    const std::string keys = words("(self, keys: ", ""), arrays = words("", words(", ", ""));
    nb::class_<Object> cls(m, name, nb::type_slots(slots), nb::is_weak_referenceable(), doc);
    cls.def("_pop", &pop, nb::arg("key").none(), nb::arg("default").none(),
            nb::sig("def _pop(self, key: object, default: object) -> object"))
        .def("_pop_item", &pop_item, nb::sig("def _pop_item(self) -> tuple[int, int | float] | None"),
             "Takes out some key; it and its value, or None if there is none.")
        .def("_setdefault", &set_default, nb::arg("key").none(), nb::arg("default").none(),
             nb::sig("def _setdefault(self, key: object, default: object) -> int | float"))
        .def("_get_many", &get_many, nb::arg("keys"), nb::arg("missing"), nb::arg(option),
             nb::sig(
                 ("def _get_many" + keys + ", missing: int, " + option + ": int) -> tuple[" + words("", ", int, int]"))
                     .c_str()),
             "The values, the number of keys that are missing, and the first of them.")
        .def("_contains_many", &contains_many, nb::arg("keys"), nb::arg(option),
             nb::sig(
                 ("def _contains_many" + keys + ", " + option + ": int) -> numpy.typing.NDArray[numpy.bool_]").c_str()))
        .def("_page", &page, nb::arg("slot"), nb::arg("entry"), nb::arg("most"),
             nb::sig(("def _page(self, slot: int, entry: int, most: int) -> tuple[" + arrays + ", int, int]").c_str()),
             "Keys and values from a position on, (0, 0) at first, and the position after them.")
        .def_prop_ro("_version", [](Object& self) {
          self.require_own();
          return read_in_turn(self, [&] { return self.version; });
        });
    return cls;
  }

  static uint64_t count_of(const Object& self, const WordArray& keys) {
    const uint32_t words = self.words();
    if (keys.size() % words != 0) throw nb::value_error("the words of the keys are not whole keys");
    return keys.size() / words;
  }
  static const uint64_t* data_of(const WordArray& words) {
    static const uint64_t none[2] = {0, 0};  // an empty array may have no address
    return words.size() == 0 ? none : words.data();
  }

  // `before`: keys of the same call that are in already, for what is reported. `option`: what insert_all takes.
  template <typename Option>
  static void insert_many(Object& self, WordArray keys, WordArray values, Option option, uint64_t before) {
    const uint64_t n = count_of(self, keys);
    if (values.size() != n) throw nb::value_error("there must be as many values as keys");
    self.require_writable();
    BulkProgress progress;
    {
      const Writing alone(self);
      self.require_still_open();
      SignalPulse pulse;
      ++self.version;
      progress = self.insert_all(data_of(keys), data_of(values), n, option, std::ref(pulse));
      if (progress.changed == 0) --self.version;
    }
    progress.done += before;
    if (PyErr_Occurred()) raise_interrupted(progress.done);
    if (progress.full) raise_table_full(self.full_text(progress.done), progress.done);
  }

  // Keys erased; keys that are not there, and the first of them: with `strict` none is erased if there is one.
  static nb::tuple erase_many(Object& self, WordArray keys, bool strict, uint32_t option) {
    const uint64_t n = count_of(self, keys);
    self.require_writable();
    BulkProgress progress;
    uint64_t absent = 0, first = n;
    {
      const Writing alone(self);
      self.require_still_open();
      self.require_deletable();
      SignalPulse pulse;
      if (strict) {
        std::vector<uint8_t> found(n);
        self.find_all(data_of(keys), n, found.data(), option, std::ref(pulse));
        absent = static_cast<uint64_t>(std::count(found.begin(), found.end(), 0));
        first = static_cast<uint64_t>(std::find(found.begin(), found.end(), 0) - found.begin());
      }
      if (absent == 0) {
        ++self.version;
        progress = self.erase_all(data_of(keys), n, option, std::ref(pulse));
        if (progress.changed == 0) --self.version;
      }
    }
    if (PyErr_Occurred()) raise_interrupted(progress.done);
    return nb::make_tuple(progress.changed, absent, first);
  }

  // A signal handler has raised in the middle of a bulk look-up.
  [[noreturn]] static void raise_stopped(uint64_t done) {
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) raise_interrupted(done);
    throw nb::python_error();
  }

  static void each_batch(Object& self, nb::callable store, uint64_t most) {
    self.require_open();
    std::optional<typename Object::Cursor> cursor;
    store_batches(
        self, std::move(store), most, self.words(),
        [&] {
          self.require_still_open();
          cursor.emplace(*self.table);
          return self.size();
        },
        [&](uint64_t n, uint64_t* keys, uint64_t* values) { return cursor->next(n, keys, values); });
  }

 private:
  // ---- one key ------------------------------------------------------------------------------------------

  // Runs f where exceptions of C++ may not leave: false with a Python exception set if one was thrown.
  template <typename F>
  static bool guarded(F&& f) {
    try {
      f();
      return true;
    } catch (const std::exception&) {
      set_exception();
      return false;
    }
  }
  // Turns the C++ exception that is being handled into a Python one.
  EVENBINS_COLD static void set_exception() {
    try {
      throw;
    } catch (nb::python_error& error) {
      error.restore();
    } catch (const nb::builtin_exception& error) {
      const bool is_type = error.type() == nb::exception_type::type_error;
      PyErr_SetString(is_type ? PyExc_TypeError : PyExc_ValueError, error.what());
    } catch (const std::bad_alloc&) {
      PyErr_NoMemory();
    } catch (const std::exception& error) {
      if (!Object::set_exception(error)) PyErr_SetString(PyExc_RuntimeError, error.what());
    }
  }

  // 1 and the value's word, 0 if there is none, −1 with an exception.
  static int look_up(PyObject* self, PyObject* key, Object*& object, uint64_t& word) {
    object = Recent<Object>::of(self);
    StoredKey stored;
    if (object == nullptr || !stored_key_of(key, object->finder, stored)) return -1;
    bool found = false;
    const bool done = guarded([&] {
      object->require_open();
      if (!object->finder.is_out_of_range(stored)) found = object->look_up(stored, word);
    });
    return !done ? -1 : found ? 1 : 0;
  }

  static int slot_contains(PyObject* self, PyObject* key) {
    Object* object;
    uint64_t word;
    return look_up(self, key, object, word);
  }
  static Py_ssize_t slot_length(PyObject* self) {
    Object* object = Recent<Object>::of(self);
    Py_ssize_t size = -1;
    if (object != nullptr)
      guarded([&] {
        object->require_own();
        size = static_cast<Py_ssize_t>(read_in_turn(*object, [&] { return object->size(); }));
      });
    return size;
  }
  // As look_up, for the value.
  static int look_up_value(PyObject* self, PyObject* key, Object*& object, uint64_t& word) {
    object = Recent<Object>::of(self);
    if (object != nullptr && object->is_set()) [[unlikely]] {
      PyErr_SetString(PyExc_TypeError, kNoValues);
      return -1;
    }
    return look_up(self, key, object, word);
  }
  static PyObject* slot_subscript(PyObject* self, PyObject* key) {
    Object* object;
    uint64_t word;
    const int found = look_up_value(self, key, object, word);
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
    const int found = look_up_value(self, arguments[0], object, word);
    if (found > 0) return value_object(object->values, word);
    return found < 0 ? nullptr : Py_NewRef(n == 2 ? arguments[1] : Py_None);
  }
  static int slot_assign(PyObject* self, PyObject* key, PyObject* value) {  // value null: del
    Object* object = Recent<Object>::of(self);
    if (object == nullptr) return -1;
    if (object->is_set()) [[unlikely]] {
      PyErr_SetString(PyExc_TypeError, kNoValues);
      return -1;
    }
    StoredKey stored;
    uint64_t word = 0;
    if (!stored_key_of(key, value == nullptr ? object->finder : object->maker, stored)) return -1;
    if (value != nullptr && !stored_value_of(value, object->values, word)) return -1;
    bool is_done = false;
    const bool ran = guarded([&] {
      object->require_writable();
      object->alone([&] {
        if (value == nullptr) {
          object->require_deletable();
          is_done = !object->finder.is_out_of_range(stored) && object->erase(stored);
          object->version += is_done;
        } else {
          const Put put = object->put(stored, word, false);
          is_done = put != Put::full;
          object->version += put == Put::inserted;
        }
      });
      if (!is_done && value != nullptr) raise_table_full(object->full_text(), 0);
    });
    if (ran && !is_done) PyErr_SetObject(PyExc_KeyError, key);
    return is_done ? 0 : -1;
  }

  // Takes a key out, in one step; its value, or `fallback` if it is not there.
  static nb::object pop(Object& self, nb::handle key, nb::handle fallback) {
    self.require_values();
    const StoredKey wanted = key_from(self.finder, key);
    self.require_open();
    if (self.finder.is_out_of_range(wanted)) return nb::borrow(fallback);
    uint64_t word = 0;
    bool found = false;
    self.alone([&] {
      if (!self.find(wanted, word)) return;
      self.require_writable();
      self.require_deletable();
      found = self.erase(wanted);
      ++self.version;
    });
    return found ? nb::steal(value_object(self.values, word)) : nb::borrow(fallback);
  }

  // Takes out the first key from where the one before was found, in one step; None if the table is empty.
  static nb::object pop_item(Object& self) {
    self.require_values();
    self.require_open();
    uint64_t words[2] = {0, 0}, value = 0;
    bool found = false;
    self.alone([&] {
      if (self.size() == 0) return;
      self.require_writable();
      self.require_deletable();
      typename Object::Position position{self.pop_from[0], self.pop_from[1]};
      if (self.page(position, 1, words, &value) == 0) {
        position = {0, 0};
        if (self.page(position, 1, words, &value) == 0) return;
      }
      found = self.erase({words[0], words[1]});
      self.version += found;
      const auto [slot, entry] = self.next_pop(position);
      self.pop_from[0] = slot;
      self.pop_from[1] = entry;
    });
    if (!found) return nb::none();
    const nb::object key = nb::steal(key_object(self.maker.type, {words[0], words[1]}));
    if (!key.is_valid()) throw nb::python_error();
    return nb::make_tuple(key, nb::steal(value_object(self.values, value)));
  }

  // The value of a key, which is stored first if it is not there: one step.
  static nb::object set_default(Object& self, nb::handle key, nb::handle value) {
    self.require_values();
    const StoredKey wanted = key_from(self.maker, key);
    uint64_t word;
    if (!stored_value_of(value.ptr(), self.values, word)) throw nb::python_error();
    self.require_open();
    bool is_full = false;
    self.alone([&] {
      if (uint64_t present; self.find(wanted, present)) {
        word = present;
        return;
      }
      self.require_writable();
      is_full = self.put(wanted, word, true) == Put::full;
      self.version += !is_full;
    });
    if (is_full) raise_table_full(self.full_text(), 0);
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

  static nb::object get_many(Object& self, WordArray keys, uint64_t missing, uint32_t option) {
    self.require_values();
    const uint64_t n = count_of(self, keys);
    self.require_open();
    Answers<uint64_t> answers;
    uint64_t *out = answers.extend(n), done = 0, first = n, absent = 0;
    answers.use_huge_pages();
    {
      const Reading reading(self);
      self.require_still_open();
      SignalPulse pulse;
      done = self.get_all(data_of(keys), n, missing, out, option, std::ref(pulse), first, absent);
    }
    if (PyErr_Occurred()) raise_stopped(done);
    return nb::make_tuple(answers.release<uint64_t>(), absent, first);
  }

  static nb::object contains_many(Object& self, WordArray keys, uint32_t option) {
    const uint64_t n = count_of(self, keys);
    self.require_open();
    Answers<uint8_t> answers;
    uint8_t* out = answers.extend(n);
    uint64_t done = 0;
    {
      const Reading reading(self);
      self.require_still_open();
      SignalPulse pulse;
      done = self.find_all(data_of(keys), n, out, option, std::ref(pulse));
    }
    if (PyErr_Occurred()) raise_stopped(done);
    return nb::cast(answers.release<bool>());
  }

  static nb::object page(Object& self, uint64_t slot, uint64_t entry, uint64_t most) {
    self.require_open();
    typename Object::Position position{slot, entry};
    const uint32_t words = self.words();
    std::vector<uint64_t> k, v;
    const size_t found = self.read([&] {
      const uint64_t n = std::min<uint64_t>(most, self.size());
      k.resize(n * words);
      v.resize(n);
      return self.page(position, n, k.data(), v.data());
    });
    Answers<uint64_t> keys, values;
    std::copy_n(k.data(), found * words, keys.extend(found * words));
    std::copy_n(v.data(), found, values.extend(found));
    const auto [next_slot, next_entry] = position;
    return nb::make_tuple(keys.release<uint64_t>(), values.release<uint64_t>(), next_slot, next_entry);
  }
};

// The rest, for tables in memory.
template <typename Object>
nb::class_<Object> bind_mapping(nb::module_& m, const char* name, const char* doc) {
  using Table = Mapping<Object>;
  auto cls = Table::bind(m, name, "threads", doc);
  cls.def(
         "__init__",
         [](Object* self, uint64_t capacity, uint64_t seed, std::vector<uint64_t> core) {
           init_new(self, Spec{Object::kKind, Hashing::independent, seed, capacity, std::move(core)});
         },
         nb::arg("capacity"), nb::arg("seed"), nb::arg("core"))
      .def(
          "_insert_many",
          [](Object& self, WordArray keys, WordArray values, bool are_new, uint64_t before, uint32_t threads) {
            Table::insert_many(self, std::move(keys), std::move(values), InsertOption{are_new, threads}, before);
          },
          nb::arg("keys"), nb::arg("values"), nb::arg("are_new"), nb::arg("before") = 0, nb::arg("threads") = 1,
          nb::sig("def _insert_many(self, keys: numpy.typing.NDArray[numpy.uint64], values: "
                  "numpy.typing.NDArray[numpy.uint64], are_new: bool, before: int = 0, threads: int = 1) -> None"))
      .def("_erase_many", &Table::erase_many, nb::arg("keys"), nb::arg("strict"), nb::arg("threads") = 1,
           nb::sig("def _erase_many(self, keys: numpy.typing.NDArray[numpy.uint64], strict: bool, threads: int = 1) -> "
                   "tuple[int, int, int]"),
           "The number erased; strict: of keys that are not there, and the first of them, and then none is erased.")
      .def("_each_batch", &Table::each_batch, nb::arg("store"), nb::arg("most"),
           nb::sig("def _each_batch(self, store: collections.abc.Callable[[numpy.typing.NDArray[numpy.uint64], "
                   "numpy.typing.NDArray[numpy.uint64]], object], most: int) -> None"),
           "Calls store(keys, values) with all items, `most` at a time, in a random order that is always the same; "
           "nobody changes the table meanwhile.");
  bind_structure(cls, "Bytes of the table, everything counted.");
  return cls;
}

}  // namespace evenbins::python

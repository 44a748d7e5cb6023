// The Python class `_core.Pages`: the base of evenbins.PagedTable (src/evenbins/tables/paged.py).
//
// A single look-up asks the summary under the GIL: an absent key, mostly, is answered there. Whoever reads or writes
// the file gives the GIL up. Readers and the writer: readers.hpp.
//
// In a child process made by fork, `require_own` comes before any lock, since nobody may be left to open it: a writable
// table refuses every call but `close`, a read-only one goes on with locks of its own.
#include "evenbins/paged.hpp"

#include <fcntl.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "batches.hpp"
#include "files.hpp"
#include "module.hpp"
#include "readers.hpp"
#include "table_keys.hpp"

namespace evenbins::python {
namespace {

struct PagedObject : ReadersAndWriter {
  explicit PagedObject(std::unique_ptr<PagedTable> t)
      : maker{t->key_type(), t->spec().seed},
        finder(maker.finder()),
        values(t->shape().value_type),
        table(std::move(t)) {}
  KeyMaker maker, finder;  // of keys that are stored, and that are looked up or deleted
  ValueType values;
  std::unique_ptr<PagedTable> table;
  uint64_t version = 0;  // grows whenever the set of keys changes
  pid_t locks_of = process_id();

  // The locks as they are in a child process: of its threads only the one that called fork is left.
  void renew_locks() {
    const auto self = std::this_thread::get_id();
    if (busy && writer != self) {
      new (&lock) std::mutex;
      busy = false;
    }
    readers = Reading::under_way(*this);
    locks_of = process_id();
  }
};

PyObject* os_error(const IoError& error) {
  return PyObject_CallFunction(PyExc_OSError, "iss", error.code, error.what(), error.file.c_str());
}

void set_os_error(const IoError& error) {
  PyObject* made = os_error(error);
  if (made == nullptr) return;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made)), made);
  Py_DECREF(made);
}

nb::object format_error;

// f() in a raw slot: false with a Python exception set.
template <typename F>
bool guarded(F&& f) {
  try {
    f();
    return !PyErr_Occurred();
  } catch (const IoError& error) {
    set_os_error(error);
  } catch (const FormatError& error) {
    PyErr_SetString(format_error.ptr(), error.what());
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

PagedObject* object_of(PyObject* self) {
  if (!nb::inst_ready(self)) {
    PyErr_Format(PyExc_RuntimeError, "%.100s.__init__() has not been called", Py_TYPE(self)->tp_name);
    return nullptr;
  }
  return nb::inst_ptr<PagedObject>(self);
}

constexpr const char* kClosed = "this table is closed: open it anew";
constexpr const char* kReadOnly = "this table is open for reading: open it with writable=True to change it";

// Must be called with the GIL held, before any lock is taken.
void require_own(PagedObject& object) {
  if (object.locks_of == process_id()) [[likely]]
    return;
  if (object.table->writable())
    throw std::runtime_error(
        "this table is open for writing in process " + std::to_string(object.table->owner()) +
        ", and this is process " + std::to_string(process_id()) +
        ", made from it by fork: only the process that opened it can use it. Close it here, which writes nothing, and "
        "open it again when the other has closed it");
  object.renew_locks();
}
void require_open(PagedObject& object) {
  require_own(object);
  if (!object.table->is_open()) throw nb::value_error(kClosed);
}
void require_writable(PagedObject& object) {
  require_open(object);
  if (!object.table->writable()) throw nb::value_error(kReadOnly);
}

// f() on the table: at once, or after the change under way.
template <typename F>
auto ask(PagedObject& object, F&& f) {
  require_own(object);
  return read_in_turn(object, [&] { return f(*object.table); });
}
// f() on the table, alone, without the GIL.
template <typename F>
auto alone_with(PagedObject& object, F&& f) {
  require_own(object);
  const Writing alone(object);
  return f(*object.table);
}

std::string full_text(const PagedTable& table) {
  return "the table is full: the next key finds no room in its pages, and the overflow pages are full. It was planned "
         "for " +
         std::to_string(table.spec().capacity) + " keys and holds " + std::to_string(table.keys()) +
         ". Create a larger one and update() it from this";
}

// ---- single keys ------------------------------------------------------------------------------------------

// 1 and the value's word, 0 if there is none, −1 with an exception.
int look_up(PyObject* self, PyObject* key, PagedObject*& object, uint64_t& word) {
  object = object_of(self);
  StoredKey stored;
  if (object == nullptr || !stored_key_of(key, object->finder, stored)) return -1;
  bool found = false;
  const bool fine = guarded([&] {
    require_open(*object);
    if (object->finder.is_out_of_range(stored)) return;
    if (object->may_read() && !object->table->may_contain(stored)) {
      object->table->count_absent();
      return;
    }
    const Reading reading(*object);
    if (!object->table->is_open()) throw std::runtime_error(kClosed);
    found = object->table->find(stored, word);
  });
  return fine ? (found ? 1 : 0) : -1;
}

int slot_contains(PyObject* self, PyObject* key) {
  PagedObject* object;
  uint64_t word;
  return look_up(self, key, object, word);
}

PyObject* slot_subscript(PyObject* self, PyObject* key) {
  PagedObject* object;
  uint64_t word;
  const int found = look_up(self, key, object, word);
  if (found > 0) return value_object(object->values, word);
  if (found == 0) PyErr_SetObject(PyExc_KeyError, key);
  return nullptr;
}

PyObject* method_get(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  if (n < 1 || n > 2) {
    PyErr_Format(PyExc_TypeError, "get expected 1 or 2 arguments, got %zd", n);
    return nullptr;
  }
  PagedObject* object;
  uint64_t word;
  const int found = look_up(self, arguments[0], object, word);
  if (found > 0) return value_object(object->values, word);
  return found < 0 ? nullptr : Py_NewRef(n == 2 ? arguments[1] : Py_None);
}

int slot_assign(PyObject* self, PyObject* key, PyObject* value) {  // value null: del
  PagedObject* object = object_of(self);
  StoredKey stored;
  if (object == nullptr) return -1;
  if (!stored_key_of(key, value == nullptr ? object->finder : object->maker, stored)) return -1;
  uint64_t word = 0;
  if (value != nullptr && !stored_value_of(value, object->values, word)) return -1;
  bool done = false;
  const bool fine = guarded([&] {
    require_writable(*object);
    const Writing alone(*object);
    if (!object->table->is_open()) throw std::runtime_error(kClosed);
    PagedTable& table = *object->table;
    if (value == nullptr) {
      done = !object->finder.is_out_of_range(stored) && table.erase(stored);
      object->version += done;
    } else {
      const PagedTable::Outcome outcome = table.insert(stored, word);
      done = outcome != PagedTable::Outcome::full;
      object->version += outcome == PagedTable::Outcome::stored;
    }
  });
  if (!fine) return -1;
  if (done) return 0;
  if (value == nullptr) {
    PyErr_SetObject(PyExc_KeyError, key);
    return -1;
  }
  guarded([&] { raise_table_full(full_text(*object->table), 0); });
  return -1;
}

Py_ssize_t slot_length(PyObject* self) {
  PagedObject* object = object_of(self);
  Py_ssize_t size = -1;
  if (object != nullptr) guarded([&] { size = ask(*object, [](PagedTable& table) { return table.keys(); }); });
  return size;
}

PyMethodDef methods[] = {
    {"get", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(method_get)), METH_FASTCALL,
     "get($self, key, default=None, /)\n--\n\nThe value of a key, or the default."},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_sq_contains, reinterpret_cast<void*>(slot_contains)},
    {Py_mp_subscript, reinterpret_cast<void*>(slot_subscript)},
    {Py_mp_ass_subscript, reinterpret_cast<void*>(slot_assign)},
    {Py_mp_length, reinterpret_cast<void*>(slot_length)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

// Takes a key out, in one step; its value, or `fallback` if it is not there.
nb::object pop(PagedObject& self, nb::handle key, nb::handle fallback) {
  StoredKey stored;
  if (!stored_key_of(key.ptr(), self.finder, stored)) throw nb::python_error();
  require_open(self);
  if (self.finder.is_out_of_range(stored)) return nb::borrow(fallback);
  uint64_t word = 0;
  bool found = false;
  {
    const Writing alone(self);
    if (!self.table->is_open()) throw std::runtime_error(kClosed);
    found = self.table->find(stored, word);
    if (found) {
      require_writable(self);
      self.table->erase(stored);
      ++self.version;
    }
  }
  return found ? nb::steal(value_object(self.values, word)) : nb::borrow(fallback);
}

// The value of a key, which is stored first if it is not there: one step.
nb::object set_default(PagedObject& self, nb::handle key, nb::handle value) {
  StoredKey stored;
  uint64_t word;
  if (!stored_key_of(key.ptr(), self.maker, stored)) throw nb::python_error();
  if (!stored_value_of(value.ptr(), self.values, word)) throw nb::python_error();
  require_open(self);
  bool is_full = false;
  {
    const Writing alone(self);
    if (!self.table->is_open()) throw std::runtime_error(kClosed);
    if (uint64_t present; self.table->find(stored, present)) {
      word = present;
    } else {
      require_writable(self);
      is_full = self.table->insert(stored, word) == PagedTable::Outcome::full;
      self.version += !is_full;
    }
  }
  if (is_full) raise_table_full(full_text(*self.table), 0);
  return nb::steal(value_object(self.values, word));
}

nb::object probe(PagedObject& self, nb::handle key) {
  StoredKey stored;
  if (!stored_key_of(key.ptr(), self.finder, stored)) throw nb::python_error();
  require_open(self);
  PagedTable::Probe p{0, 0};
  if (!self.finder.is_out_of_range(stored)) {
    const Reading reading(self);
    if (!self.table->is_open()) throw std::runtime_error(kClosed);
    p = self.table->probe(stored);
  }
  return nb::make_tuple(p.level, p.reads);
}

// ---- many keys --------------------------------------------------------------------------------------------

uint64_t count_of(const PagedObject& self, const WordArray& keys) {
  const uint32_t words = self.table->shape().words;
  if (keys.size() % words != 0) throw nb::value_error("the words of the keys are not whole keys");
  return keys.size() / words;
}

const uint64_t* data_of(const WordArray& words) {
  static const uint64_t none[2] = {0, 0};
  return words.size() == 0 ? none : words.data();
}

[[noreturn]] void raise_stopped(uint64_t done) {
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) raise_interrupted(done);
  throw nb::python_error();
}

// `before`: keys of the same call that are in already, for what is reported.
void insert_many(PagedObject& self, WordArray keys, WordArray values, uint32_t in_flight, uint64_t before) {
  const uint64_t n = count_of(self, keys);
  if (values.size() != n) throw nb::value_error("there must be as many values as keys");
  require_writable(self);
  PagedTable::Progress progress;
  {
    const Writing alone(self);
    if (!self.table->is_open()) throw std::runtime_error(kClosed);
    SignalPulse pulse;
    ++self.version;
    progress = self.table->insert_many(data_of(keys), data_of(values), n, in_flight, std::ref(pulse));
    if (progress.changed == 0) --self.version;
  }
  progress.done += before;
  if (PyErr_Occurred()) raise_stopped(progress.done);
  if (progress.full) raise_table_full(full_text(*self.table), progress.done);
}

// Keys erased; keys that are not there, and the first of them: with `strict` none is erased if there is one.
nb::tuple erase_many(PagedObject& self, WordArray keys, uint32_t in_flight, bool strict) {
  const uint64_t n = count_of(self, keys);
  require_writable(self);
  PagedTable::Progress progress{0, 0, false};
  uint64_t absent = 0, first = n;
  {
    const Writing alone(self);
    if (!self.table->is_open()) throw std::runtime_error(kClosed);
    SignalPulse pulse;
    if (strict) {
      std::vector<uint8_t> found(n);
      self.table->get_many(data_of(keys), n, 0, nullptr, found.data(), in_flight, std::ref(pulse));
      absent = static_cast<uint64_t>(std::count(found.begin(), found.end(), 0));
      first = static_cast<uint64_t>(std::find(found.begin(), found.end(), 0) - found.begin());
    }
    if (absent == 0) {
      ++self.version;
      progress = self.table->erase_many(data_of(keys), n, in_flight, std::ref(pulse));
      if (progress.changed == 0) --self.version;
    }
  }
  if (PyErr_Occurred()) raise_stopped(progress.done);
  return nb::make_tuple(progress.changed, absent, first);
}

nb::object get_many(PagedObject& self, WordArray keys, uint64_t missing, uint32_t in_flight) {
  const uint64_t n = count_of(self, keys);
  require_open(self);
  Answers<uint64_t> answers;
  uint64_t *out = answers.extend(n), done = 0, first = n, absent = 0;
  {
    const Reading reading(self);
    if (!self.table->is_open()) throw std::runtime_error(kClosed);
    SignalPulse pulse;
    std::vector<uint8_t> found(n);
    done = self.table->get_many(data_of(keys), n, missing, out, found.data(), in_flight, std::ref(pulse));
    for (uint64_t i = done; i-- > 0;)
      if (!found[i]) {
        first = i;
        ++absent;
      }
  }
  if (PyErr_Occurred()) raise_stopped(done);
  return nb::make_tuple(answers.release<uint64_t>(), absent, first);
}

nb::object contains_many(PagedObject& self, WordArray keys, uint32_t in_flight) {
  const uint64_t n = count_of(self, keys);
  require_open(self);
  Answers<uint8_t> answers;
  uint8_t* out = answers.extend(n);
  uint64_t done = 0;
  {
    const Reading reading(self);
    if (!self.table->is_open()) throw std::runtime_error(kClosed);
    SignalPulse pulse;
    done = self.table->get_many(data_of(keys), n, 0, nullptr, out, in_flight, std::ref(pulse));
  }
  if (PyErr_Occurred()) raise_stopped(done);
  return nb::cast(answers.release<bool>());
}

nb::object page(PagedObject& self, uint64_t page, uint64_t index, uint64_t most) {
  require_open(self);
  Answers<uint64_t> keys, values;
  PagedTable::Position position{page, index};
  const uint32_t words = self.table->shape().words;
  std::vector<uint64_t> k, v;
  size_t found;
  {
    const Reading reading(self);
    if (!self.table->is_open()) throw std::runtime_error(kClosed);
    const uint64_t n = std::min<uint64_t>(most, self.table->keys());
    k.resize(n * words);
    v.resize(n);
    found = self.table->scan(position, n, k.data(), v.data());
  }
  std::copy_n(k.data(), found * words, keys.extend(found * words));
  std::copy_n(v.data(), found, values.extend(found));
  return nb::make_tuple(keys.release<uint64_t>(), values.release<uint64_t>(), position.page, position.index);
}

// In the order of pages, since a random one would read each page many times: the caller shuffles.
void each_batch(PagedObject& self, nb::callable store, uint64_t most) {
  require_open(self);
  PagedTable::Position position{0, 0};
  store_batches(
      self, std::move(store), most, self.table->shape().words,
      [&] {
        if (!self.table->is_open()) throw std::runtime_error(kClosed);
        return self.table->keys();
      },
      [&](uint64_t n, uint64_t* keys, uint64_t* values) { return self.table->scan(position, n, keys, values); });
}

// ---- the table as a whole -----------------------------------------------------------------------------------

void init(PagedObject* self, Descriptor& table, Descriptor* journal, const char* path, bool writable, bool durable) {
  Descriptor none(-1);
  new (self)
      PagedObject(std::make_unique<PagedTable>(table, journal == nullptr ? none : *journal, path, writable, durable));
}

void init_descriptor(Descriptor* self, const nb::bytes& path, int flags, int mode) {
  if (std::strlen(path.c_str()) != path.size()) throw nb::value_error("embedded null byte");
  int number, error;
  do {
    const GilRelease free;
    number = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    error = errno;
  } while (number < 0 && error == EINTR);
  if (number < 0) {
    errno = error;
    const nb::object name =
        nb::steal(PyUnicode_DecodeFSDefaultAndSize(path.c_str(), static_cast<Py_ssize_t>(path.size())));
    PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, name.ptr());
    throw nb::python_error();
  }
  new (self) Descriptor(number);
}

nb::object steps_of(PagedObject& self) {
  nb::list out;
  for (const Tape::Step& step : self.table->tape().steps)
    out.append(nb::make_tuple(step.file, std::string(1, step.what), step.offset,
                              nb::bytes(step.data.data(), step.data.size())));
  return std::move(out);
}

}  // namespace

void bind_paged(nb::module_& m) {
  format_error = m.attr("FormatError");
  format_error.inc_ref();  // for as long as the process: no order of destruction to think about
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const IoError& error) {
      set_os_error(error);
    }
  });
  m.def(
      "create_pages",
      [](Descriptor& file, const char* path, uint64_t capacity, uint64_t seed, std::vector<uint64_t> core,
         uint64_t uid) {
        const Spec spec{Kind::paged, Hashing::independent, seed, capacity, std::move(core)};
        const GilRelease free;
        PagedTable::create(file, path, spec, uid);
      },
      nb::arg("file"), nb::arg("path"), nb::arg("capacity"), nb::arg("seed"), nb::arg("core"), nb::arg("uid"),
      "Write an empty table in pages to a new file, and close it.");
  nb::class_<Descriptor>(m, "Descriptor",
                         "An open file, closed with the object: an exception between two steps of Python leaks none.")
      .def("__init__", &init_descriptor, nb::arg("path"), nb::arg("flags"), nb::arg("mode") = 0666,
           nb::sig("def __init__(self, path: bytes, flags: int, mode: int = 438) -> None"))
      .def("fileno", &Descriptor::number, "Return the number of the descriptor; -1 after it was handed over.")
      .def("close", &Descriptor::close, "Close the file; nothing happens if it was handed over.");
  nb::class_<PagedObject>(m, "Pages", nb::type_slots(slots), nb::is_weak_referenceable(),
                          "Base of the table in pages: a file, its journal, and the summary in memory.")
      .def("__init__", &init, nb::arg("table"), nb::arg("journal").none(), nb::arg("path"), nb::arg("writable"),
           nb::arg("durable"), "Take two open files over; there may be no journal.")
      .def("_probe", &probe, nb::arg("key").none(), nb::sig("def _probe(self, key: object) -> tuple[int, int]"))
      .def("_groups_due",
           [](PagedObject& self) {
             require_open(self);
             const Reading reading(self);
             return self.table->groups_due();
           })
      .def("_recover",
           [](PagedObject& self) { return alone_with(self, [](PagedTable& table) { return table.recover(); }); })
      .def(
          "_read_summary",
          [](PagedObject& self, nb::bytes data) {
            const auto* bytes = static_cast<const uint8_t*>(data.data());
            const size_t size = data.size();
            return alone_with(self, [&](PagedTable& table) { return table.read_summary(bytes, size); });
          },
          nb::arg("data"), "Whether it is this table's, of this very state.")
      .def("_build_summary",
           [](PagedObject& self) {
             alone_with(self, [](PagedTable& table) {
               SignalPulse pulse;
               table.build_summary(std::ref(pulse));
             });
             if (PyErr_Occurred()) throw nb::python_error();
           })
      .def(
          "_summary_file",
          [](PagedObject& self) {
            const std::vector<uint8_t> out = alone_with(self, [](PagedTable& table) { return table.summary_file(); });
            return nb::bytes(out.data(), out.size());
          },
          nb::sig("def _summary_file(self) -> bytes"))
      .def("_checkpoint",
           [](PagedObject& self) {
             require_writable(self);
             const Writing alone(self);
             if (!self.table->is_open()) throw std::runtime_error(kClosed);
             self.table->checkpoint();
           })
      .def("_close",
           [](PagedObject& self) {
             if (self.table->writable() && !self.table->is_own())
               self.table->close();  // in a child: nobody else uses this copy of it, and the lock may be taken
             else
               alone_with(self, [](PagedTable& table) { table.close(); });
           })
      .def("_insert_words", &insert_many, nb::arg("keys"), nb::arg("values"), nb::arg("in_flight"),
           nb::arg("before") = 0,
           nb::sig("def _insert_words(self, keys: numpy.typing.NDArray[numpy.uint64], values: "
                   "numpy.typing.NDArray[numpy.uint64], in_flight: int, before: int = 0) -> None"))
      .def("_erase_words", &erase_many, nb::arg("keys"), nb::arg("in_flight"), nb::arg("strict"),
           nb::sig("def _erase_words(self, keys: numpy.typing.NDArray[numpy.uint64], in_flight: int, strict: bool) -> "
                   "tuple[int, int, int]"))
      .def("_pop", &pop, nb::arg("key").none(), nb::arg("default").none(),
           nb::sig("def _pop(self, key: object, default: object) -> object"))
      .def("_setdefault", &set_default, nb::arg("key").none(), nb::arg("default").none(),
           nb::sig("def _setdefault(self, key: object, default: object) -> int | float"))
      .def(
          "_page_batches", &each_batch, nb::arg("store"), nb::arg("most"),
          nb::sig("def _page_batches(self, store: collections.abc.Callable[[numpy.typing.NDArray[numpy.uint64], "
                  "numpy.typing.NDArray[numpy.uint64]], object], most: int) -> None"),
          "Calls store(keys, values) with all items, `most` at a time, in the order of pages; nobody changes the table "
          "meanwhile.")
      .def("_get_many", &get_many, nb::arg("keys"), nb::arg("missing"), nb::arg("in_flight"),
           nb::sig("def _get_many(self, keys: numpy.typing.NDArray[numpy.uint64], missing: int, in_flight: int) -> "
                   "tuple[numpy.typing.NDArray[numpy.uint64], int, int]"))
      .def("_contains_many", &contains_many, nb::arg("keys"), nb::arg("in_flight"),
           nb::sig("def _contains_many(self, keys: numpy.typing.NDArray[numpy.uint64], in_flight: int) -> "
                   "numpy.typing.NDArray[numpy.bool_]"))
      .def("_page", &page, nb::arg("slot"), nb::arg("entry"), nb::arg("most"),
           nb::sig("def _page(self, slot: int, entry: int, most: int) -> tuple[numpy.typing.NDArray[numpy.uint64], "
                   "numpy.typing.NDArray[numpy.uint64], int, int]"))
      .def(
          "_counters",
          [](PagedObject& self) {
            const PagedTable::Counters c = ask(self, [](PagedTable& table) { return table.counters(); });
            return std::vector<uint64_t>{c.found, c.found_reads, c.missed, c.missed_reads, c.wrong, c.fetched};
          },
          "Look-ups that found a key, pages they read, look-ups that did not, theirs, wrong pages, pages fetched.")
      .def(
          "_level_keys",
          [](PagedObject& self) { return ask(self, [](PagedTable& table) { return table.level_keys(); }); },
          "Keys of each level, then of the overflow pages together.")
      .def("_invariant",
           [](PagedObject& self) {
             require_open(self);
             const Writing alone(self);
             return self.table->check();
           })
      .def(
          "_record",
          [](PagedObject& self, bool on) {
            self.table->tape().on = on;
            self.table->tape().steps.clear();
          },
          nb::arg("on"), "For tests: records every change to the files from now on.")
      .def("_steps", &steps_of, nb::sig("def _steps(self) -> list[tuple[int, str, int, bytes]]"),
           "For tests: file (0 table, 1 journal), what (w write, s sync, t truncate, a acknowledged), offset, bytes.")
      .def(
          "_fail_after",
          [](PagedObject& self, int64_t steps, int code) {
            self.table->tape().fail_after = steps;
            self.table->tape().fail_code = code;
          },
          nb::arg("steps"), nb::arg("code"), "For tests: so many changes succeed, the next fails with this errno.")
      .def_prop_ro("_seed", [](const PagedObject& self) { return self.table->spec().seed; })
      .def_prop_ro("_capacity", [](const PagedObject& self) { return self.table->spec().capacity; })
      .def_prop_ro("_core", [](const PagedObject& self) { return self.table->spec().core; })
      .def_prop_ro("_uid", [](const PagedObject& self) { return self.table->store().head().uid; })
      .def_prop_ro("_owner", [](const PagedObject& self) { return static_cast<int>(self.table->owner()); })
      .def_prop_ro("_is_own", [](const PagedObject& self) { return self.table->is_own(); })
      .def_prop_ro("_generation",
                   [](PagedObject& self) {
                     return ask(self, [](PagedTable& table) { return table.store().head().generation; });
                   })
      .def_prop_ro("_version", [](PagedObject& self) { return ask(self, [&](PagedTable&) { return self.version; }); })
      .def_prop_ro(
          "_journal_bytes",
          [](PagedObject& self) { return ask(self, [](PagedTable& table) { return table.store().journal_bytes(); }); })
      .def_prop_ro(
          "_failed",
          [](PagedObject& self) { return ask(self, [](PagedTable& table) { return table.store().failed(); }); })
      .def_prop_ro(
          "writable", [](const PagedObject& self) { return self.table->writable(); }, "Whether it can be changed.")
      .def_prop_ro(
          "closed", [](const PagedObject& self) { return !self.table->is_open(); }, "Whether it has been closed.")
      .def_prop_ro(
          "nbytes", [](const PagedObject& self) { return self.table->store().file_bytes(); }, "Bytes of the file.")
      .def_prop_ro(
          "summary_bytes",
          [](PagedObject& self) { return ask(self, [](PagedTable& table) { return table.summary_bytes(); }); },
          "Bytes of the summary, in memory.");
}

}  // namespace evenbins::python

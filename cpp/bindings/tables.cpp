// The Python class `_core.Table`: the base of evenbins.MultilevelTable (src/evenbins/tables.py).
//
// `in`, `[]`, `[] =`, `del` and `len` are raw type slots, `get` a raw method, because the call is most of the cost.
// Bulk calls take words (table_keys.hpp), made and checked before; the loops copy each group of them before they use
// it, so an array that somebody changes meanwhile does no harm. Readers and writers: readers.hpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <optional>

#include "batches.hpp"
#include "evenbins/multilevel.hpp"
#include "files.hpp"
#include "module.hpp"
#include "readers.hpp"
#include "recent.hpp"
#include "table_keys.hpp"

namespace evenbins::python {
namespace {

struct TableObject : ReadersAndWriter {
  explicit TableObject(std::unique_ptr<MultilevelTable> t)
      : maker{t->key_type(), t->spec().seed}, finder(maker.finder()), values(t->value_type()), table(std::move(t)) {}
  ~TableObject();
  KeyMaker maker, finder;  // of keys that are stored, and that are looked up or deleted
  ValueType values;
  std::unique_ptr<MultilevelTable> table;
  const bool read_only = table->bits().read_only();
  uint64_t version = 0;  // grows whenever the set of keys changes; not stored
};

TableObject::~TableObject() { Recent<TableObject>::forget(this); }

TableObject* object_of(PyObject* self) { return Recent<TableObject>::of(self); }

constexpr const char* kReadOnly = "this table is open read-only: use load() or copy() for one that can be changed";

void require_writable(const TableObject& object) {
  if (object.read_only) throw nb::value_error(kReadOnly);
}

std::string full_text(const MultilevelTable& table) {
  return "the table is full: the next key finds no room in its buckets, and the overflow list has reached its limit "
         "of " +
         std::to_string(table.view().limit) +
         " keys. Use table.grown(capacity) for a larger copy, or plan with a larger overflow_limit";
}

// ---- single keys ------------------------------------------------------------------------------------------

// f() where exceptions of C++ may not leave: false with a Python exception set.
template <typename F>
bool guarded(F&& f) {
  try {
    f();
    return true;
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return false;
}

// 1 and the value's word, 0 if there is none, −1 with an exception.
int look_up(PyObject* self, PyObject* key, TableObject*& object, uint64_t& word) {
  object = object_of(self);
  StoredKey stored;
  if (object == nullptr || !stored_key_of(key, object->finder, stored)) return -1;
  if (object->finder.is_out_of_range(stored)) return 0;
  bool found = false;
  const auto look = [&] {
    const uint64_t* value = object->table->find(stored);
    found = value != nullptr;
    if (found) word = *value;
  };
  if (!guarded([&] { read_in_turn(*object, look); })) return -1;
  return found ? 1 : 0;
}

int slot_contains(PyObject* self, PyObject* key) {
  TableObject* object;
  uint64_t word;
  return look_up(self, key, object, word);
}

PyObject* slot_subscript(PyObject* self, PyObject* key) {
  TableObject* object;
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
  TableObject* object;
  uint64_t word;
  const int found = look_up(self, arguments[0], object, word);
  if (found > 0) return value_object(object->values, word);
  return found < 0 ? nullptr : Py_NewRef(n == 2 ? arguments[1] : Py_None);
}

bool refuse_read_only(const TableObject& object) {
  if (!object.read_only) [[likely]]
    return false;
  PyErr_SetString(PyExc_ValueError, kReadOnly);
  return true;
}

constexpr const char* kCannotForget =
    "the summary of this table cannot forget a key, so none can be deleted: make the table with deletions='lazy' "
    "(scheme 'standard'), or with summary='interpolation' or a counting one";

// Stores one key; false if there is no room. Nobody else may use the table.
bool insert_alone(TableObject& object, const StoredKey& key, uint64_t value) {
  const uint64_t* state = object.table->view().state;
  const uint64_t before = state[kInsertions];
  const uint64_t words[2] = {key.low, key.high};
  const bool done = object.table->insert_many(words, &value, 1, false) == 1;
  object.version += state[kInsertions] != before;
  return done;
}

int delete_one(TableObject& object, PyObject* key) {
  StoredKey stored;
  if (!stored_key_of(key, object.finder, stored)) return -1;
  if (refuse_read_only(object)) return -1;
  bool done = false, can_delete = true;
  const auto change = [&] {
    can_delete = object.table->can_delete();
    done = can_delete && !object.finder.is_out_of_range(stored) && object.table->erase(stored);
    object.version += done;
  };
  if (!guarded([&] { in_turn(object, object.may_write(), change); })) return -1;
  if (!can_delete)
    PyErr_SetString(PyExc_TypeError, kCannotForget);
  else if (!done)
    PyErr_SetObject(PyExc_KeyError, key);
  return done ? 0 : -1;
}

int slot_assign(PyObject* self, PyObject* key, PyObject* value) {  // value null: del
  TableObject* object = object_of(self);
  if (object == nullptr) return -1;
  if (value == nullptr) return delete_one(*object, key);
  StoredKey stored;
  uint64_t word = 0;
  if (!stored_key_of(key, object->maker, stored) || !stored_value_of(value, object->values, word)) return -1;
  if (refuse_read_only(*object)) return -1;
  bool done = false;
  const auto change = [&] { done = insert_alone(*object, stored, word); };
  if (!guarded([&] { in_turn(*object, object->may_write(), change); })) return -1;
  if (done) return 0;
  try {
    raise_table_full(full_text(*object->table), 0);
  } catch (nb::python_error& error) {
    error.restore();
  }
  return -1;
}

Py_ssize_t slot_length(PyObject* self) {
  TableObject* object = object_of(self);
  Py_ssize_t size = -1;
  if (object != nullptr) guarded([&] { size = read_in_turn(*object, [&] { return object->table->keys(); }); });
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

StoredKey key_from(const KeyMaker& maker, nb::handle key) {
  StoredKey stored;
  if (!stored_key_of(key.ptr(), maker, stored)) throw nb::python_error();
  return stored;
}

// Takes a key out, in one step; its value, or `fallback` if it is not there.
nb::object pop(TableObject& self, nb::handle key, nb::handle fallback) {
  const StoredKey wanted = key_from(self.finder, key);
  if (self.finder.is_out_of_range(wanted)) return nb::borrow(fallback);
  std::optional<uint64_t> word;
  in_turn(self, self.may_write(), [&] {
    if (const uint64_t* value = self.table->find(wanted); value != nullptr) word = *value;
    if (!word) return;
    require_writable(self);
    if (!self.table->can_delete()) throw nb::type_error(kCannotForget);
    self.table->erase(wanted);
    ++self.version;
  });
  return word ? nb::steal(value_object(self.values, *word)) : nb::borrow(fallback);
}

// The value of a key, which is stored first if it is not there: one step.
nb::object set_default(TableObject& self, nb::handle key, nb::handle value) {
  const StoredKey wanted = key_from(self.maker, key);
  uint64_t word;
  if (!stored_value_of(value.ptr(), self.values, word)) throw nb::python_error();
  bool is_in = true;
  in_turn(self, self.may_write(), [&] {
    if (const uint64_t* present = self.table->find(wanted); present != nullptr) {
      word = *present;
      return;
    }
    require_writable(self);
    is_in = insert_alone(self, wanted, word);
  });
  if (!is_in) raise_table_full(full_text(*self.table), 0);
  return nb::steal(value_object(self.values, word));
}

nb::object probe(TableObject& self, nb::handle key) {
  const StoredKey wanted = key_from(self.finder, key);
  if (self.finder.is_out_of_range(wanted)) return nb::make_tuple(0, 0, false);
  const MultilevelTable::Probe p = read_in_turn(self, [&] { return self.table->probe(wanted); });
  return nb::make_tuple(p.level, p.reads, p.list);
}

// ---- many keys --------------------------------------------------------------------------------------------

uint64_t count_of(const TableObject& self, const WordArray& keys) {
  const uint32_t words = self.table->view().words;
  if (keys.size() % words != 0) throw nb::value_error("the words of the keys are not whole keys");
  return keys.size() / words;
}

const uint64_t* data_of(const WordArray& words) {
  static const uint64_t none[2] = {0, 0};  // an empty array may have no address
  return words.size() == 0 ? none : words.data();
}

// `before`: keys of the same call that are in already, for what is reported.
void insert_many(TableObject& self, WordArray keys, WordArray values, bool are_new, uint64_t before) {
  const uint64_t n = count_of(self, keys);
  if (values.size() != n) throw nb::value_error("there must be as many values as keys");
  require_writable(self);
  uint64_t done = 0;
  bool is_full = false;
  {
    const Writing alone(self);
    MultilevelTable& table = *self.table;
    const uint32_t words = table.view().words;
    const uint64_t insertions = table.view().state[kInsertions];
    constexpr uint64_t kStep = 1 << 14;
    SignalPulse pulse;
    while (done < n && !is_full && pulse()) {
      const uint64_t step = std::min(kStep, n - done);
      const size_t taken = table.insert_many(data_of(keys) + done * words, data_of(values) + done, step, are_new);
      done += taken;
      is_full = taken < step;
    }
    self.version += table.view().state[kInsertions] != insertions;
  }
  done += before;
  if (PyErr_Occurred()) raise_interrupted(done);
  if (is_full) raise_table_full("keys[" + std::to_string(done) + "]: " + full_text(*self.table), done);
}

// Keys erased; keys that are not there, and the first of them: with `strict` none is erased if there is one.
nb::tuple erase_many(TableObject& self, WordArray keys, bool strict) {
  const uint64_t n = count_of(self, keys);
  require_writable(self);
  uint64_t done = 0, erased = 0, absent = 0, first = n;
  {
    const Writing alone(self);
    if (!self.table->can_delete()) throw nb::type_error(kCannotForget);
    const uint32_t words = self.table->view().words;
    constexpr uint64_t kStep = 1 << 14;
    SignalPulse pulse;
    if (strict) {
      std::vector<uint8_t> found(n);
      done = contains_all(*self.table, data_of(keys), n, found.data(), 1, std::ref(pulse));
      absent = static_cast<uint64_t>(std::count(found.begin(), found.end(), 0));
      first = static_cast<uint64_t>(std::find(found.begin(), found.end(), 0) - found.begin());
    }
    if (absent == 0) {
      for (done = 0; done < n && pulse();) {
        const uint64_t step = std::min(kStep, n - done);
        erased += self.table->erase_many(data_of(keys) + done * words, step);
        done += step;
      }
    }
    self.version += erased > 0;
  }
  if (PyErr_Occurred()) raise_interrupted(absent == 0 ? done : 0);
  return nb::make_tuple(erased, absent, first);
}

[[noreturn]] void raise_stopped(uint64_t done) {
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) raise_interrupted(done);
  throw nb::python_error();
}

// Answers of many megabytes in huge pages: faults of small ones would take a tenth of the call.
void ask_for_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] uint64_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr uint64_t kHugePage = uint64_t{2} << 20;
  const auto start = (reinterpret_cast<uintptr_t>(data) + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = (reinterpret_cast<uintptr_t>(data) + bytes) / kHugePage * kHugePage;
  if (start < end) ::madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
#endif
}

nb::object get_many(TableObject& self, WordArray keys, uint64_t missing, uint32_t threads) {
  const uint64_t n = count_of(self, keys);
  Answers<uint64_t> answers;
  uint64_t *out = answers.extend(n), done = 0, first = 0, absent = 0;
  ask_for_huge_pages(out, n * sizeof *out);
  {
    const Reading reading(self);
    SignalPulse pulse;
    done = get_all(*self.table, data_of(keys), n, missing, out, threads, std::ref(pulse), &first, &absent);
  }
  if (PyErr_Occurred()) raise_stopped(done);
  return nb::make_tuple(answers.release<uint64_t>(), absent, first);
}

nb::object contains_many(TableObject& self, WordArray keys, uint32_t threads) {
  const uint64_t n = count_of(self, keys);
  Answers<uint8_t> answers;
  uint8_t* out = answers.extend(n);
  uint64_t done = 0;
  {
    const Reading reading(self);
    SignalPulse pulse;
    done = contains_all(*self.table, data_of(keys), n, out, threads, std::ref(pulse));
  }
  if (PyErr_Occurred()) raise_stopped(done);
  return nb::cast(answers.release<bool>());
}

nb::object page(TableObject& self, uint64_t slot, uint64_t entry, uint64_t most) {
  Answers<uint64_t> keys, values;
  MultilevelTable::Position position{slot, entry};
  const uint32_t words = self.table->view().words;
  std::vector<uint64_t> k, v;
  const size_t found = read_in_turn(self, [&] {
    const uint64_t n = std::min<uint64_t>(most, self.table->keys());
    k.resize(n * words);
    v.resize(n);
    return self.table->page(position, n, k.data(), v.data());
  });
  std::copy_n(k.data(), found * words, keys.extend(found * words));
  std::copy_n(v.data(), found, values.extend(found));
  return nb::make_tuple(keys.release<uint64_t>(), values.release<uint64_t>(), position.slot, position.entry);
}

void each_batch(TableObject& self, nb::callable store, uint64_t most) {
  const Scattered order(self.table->slot_count());
  MultilevelTable::Position position{0, 0};
  store_batches(
      self, std::move(store), most, self.table->view().words, [&] { return self.table->keys(); },
      [&](uint64_t n, uint64_t* keys, uint64_t* values) { return self.table->page(order, position, n, keys, values); });
}

// ---- the table as a whole -----------------------------------------------------------------------------------

std::unique_ptr<MultilevelTable> make_table(Spec spec, Bits bits) {
  return std::make_unique<MultilevelTable>(std::move(spec), std::move(bits));
}

void init_new(TableObject* self, uint64_t capacity, uint64_t seed, std::vector<uint64_t> core) {
  Spec spec{Kind::multilevel, Hashing::independent, seed, capacity, std::move(core)};
  const uint64_t bytes = payload_bytes(spec);
  new (self) TableObject(make_table(std::move(spec), Bits::zeroed(bytes)));
}

void init_from_file(TableObject* self, nb::handle data, bool mapped, bool verify) {
  const auto kind = static_cast<uint32_t>(Kind::multilevel);
  new (self) TableObject(from_file(data, kind, mapped, verify, make_table));
}

void init_copy(TableObject* self, TableObject& other) {
  std::unique_ptr<MultilevelTable> table;
  {
    const Access access(other);
    table = other.table->copy();
  }
  new (self) TableObject(std::move(table));
}

void attach(TableObject& self, uint32_t kind, std::vector<uint64_t> core, uint64_t due) {
  std::unique_ptr<Summary> summary;
  if (kind != 0) {
    const Spec& own = self.table->spec();
    Spec spec{static_cast<Kind>(kind), Hashing::independent, own.seed, own.capacity, std::move(core)};
    if (!is_summary(spec.kind) || spec.kind == Kind::counters) throw SpecError("this kind is no summary of a table");
    const uint64_t bytes = payload_bytes(spec);
    summary = make_summary(std::move(spec), Bits::zeroed(bytes));
  }
  const Writing alone(self);
  self.table->attach(std::move(summary), due);
}

std::vector<uint64_t> state_of(const MultilevelTable& table) {
  const uint64_t* state = table.view().state;
  return {state, state + kStateWords};
}

std::vector<uint64_t> guide_state(const MultilevelTable& table) {
  if (table.guide() == nullptr) return {};
  const TableGuide::State s = table.guide()->state();
  const TableGuide::Counts& c = s.counts;
  return {c.hits,          c.hit_reads,
          c.wrong,         c.misses,
          c.miss_reads,    c.false_positives,
          s.reserved,      s.due,
          s.steps,         s.rebuilds,
          s.rebuild_moves, s.cursor,
          s.bytes,         static_cast<uint64_t>(s.rebuilding)};
}

bool equal(TableObject& a, TableObject& b) {
  if (&a == &b) return true;
  return with_both(a, b, [&] { return *a.table == *b.table; });
}

}  // namespace

void bind_tables(nb::module_& m) {
  bind_table_keys(m);
  nb::class_<TableObject>(m, "Table", nb::type_slots(slots), nb::is_weak_referenceable(),
                          "Base of the multilevel table: a plan's integer core and its memory.")
      .def("__init__", &init_new, nb::arg("capacity"), nb::arg("seed"), nb::arg("core"))
      .def("__init__", &init_from_file, nb::arg("data"), nb::arg("mapped"), nb::arg("verify"))
      .def("__init__", &init_copy, nb::arg("other"))
      .def("_probe", &probe, nb::arg("key").none(), nb::sig("def _probe(self, key: object) -> tuple[int, int, bool]"))
      .def("_insert_many", &insert_many, nb::arg("keys"), nb::arg("values"), nb::arg("are_new"), nb::arg("before") = 0,
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
      .def("_clear",
           [](TableObject& self) {
             require_writable(self);
             const Writing alone(self);
             self.table->clear();
             ++self.version;
           })
      .def("_equal", &equal, nb::arg("other"))
      .def(
          "_to_bytes", [](TableObject& self) { return file_bytes(self, *self.table); },
          nb::sig("def _to_bytes(self) -> bytes"))
      .def(
          "_write_to", [](TableObject& self, int descriptor) { write_file(self, *self.table, descriptor); },
          nb::arg("descriptor"))
      .def("_invariant",
           [](TableObject& self) {
             const Access access(self);
             return self.table->check(true, true);
           })
      .def(
          "_state", [](TableObject& self) { return read_in_turn(self, [&] { return state_of(*self.table); }); },
          "The words of the state (StateWord in table_view.hpp).")
      .def(
          "_measure",
          [](TableObject& self) {
            return read_in_turn(self, [&] {
              const TableGuide* guide = self.table->guide();
              return std::tuple(state_of(*self.table), guide_state(*self.table),
                                guide == nullptr ? 0 : static_cast<uint32_t>(guide->summary().spec().kind),
                                guide != nullptr && guide->summary().can_remove());
            });
          },
          nb::sig("def _measure(self) -> tuple[list[int], list[int], int, bool]"),
          "At one moment: _state, _guide_state, the kind of the summary (0: none), whether it can forget.")
      .def("_attach", &attach, nb::arg("kind"), nb::arg("core"), nb::arg("due"),
           "Gives the table a summary of this kind, filled by one scan; kind 0: none.")
      .def("_rebuild",
           [](TableObject& self) {
             require_writable(self);
             const Writing alone(self);
             self.table->rebuild();
             ++self.version;
           })
      .def(
          "_guide_state",
          [](TableObject& self) { return read_in_turn(self, [&] { return guide_state(*self.table); }); },
          "What its guide counts: look-ups of present keys, their reads, wrong levels; look-ups of absent keys, their "
          "reads, false positives; reserved slots, how many begin a rebuild, buckets a step, rebuilds, keys they "
          "moved, buckets scanned, bytes, whether one is under way. Empty without a summary.")
      .def(
          "_summary_bytes",
          [](TableObject& self) {
            return file_bytes_of(self, [&]() -> const Summary& {
              if (self.table->guide() == nullptr) throw nb::value_error("this table has no summary");
              return self.table->guide()->summary();
            });
          },
          nb::sig("def _summary_bytes(self) -> bytes"), "Its summary, as the bytes of a file.")
      .def_prop_ro("_seed", [](const TableObject& self) { return self.table->spec().seed; })
      .def_prop_ro("_capacity", [](const TableObject& self) { return self.table->spec().capacity; })
      .def_prop_ro("_core", [](const TableObject& self) { return self.table->spec().core; })
      .def_prop_ro("_read_only", [](const TableObject& self) { return self.read_only; })
      .def_prop_ro("_version", [](TableObject& self) { return read_in_turn(self, [&] { return self.version; }); })
      .def_prop_ro(
          "nbytes", [](const TableObject& self) { return self.table->bits().bytes(); },
          "Bytes of the table, everything counted.");
}

}  // namespace evenbins::python

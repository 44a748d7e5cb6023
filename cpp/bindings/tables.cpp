// The Python class `_core.Table`: the base of evenbins.MultilevelTable (src/evenbins/tables/multilevel.py).
//
// Bulk calls hand the caller's words to the core, whose loops copy each group of them before they use it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include "answered.hpp"
#include "evenbins/multilevel.hpp"
#include "evenbins/table_rounds.hpp"
#include "mapping.hpp"
#include "module.hpp"
#include "stored_source.hpp"

namespace evenbins::python {
namespace {

struct TableObject : MemoryObject<MultilevelTable> {
  static constexpr Kind kKind = Kind::multilevel;
  using Position = MultilevelTable::Position;

  using MemoryObject::MemoryObject;
  ~TableObject() { Recent<TableObject>::forget(this); }

  uint64_t size() const { return table->keys(); }
  std::string full_text(std::optional<uint64_t> index = {}) const {
    return (index ? "keys[" + std::to_string(*index) + "]: " : "") +
           "the table is full: the next key finds no room in its buckets, and the overflow list has reached its limit "
           "of " +
           std::to_string(table->view().limit) +
           " keys. Use table.grown(capacity) for a larger copy, or plan with a larger overflow_limit";
  }
  void require_deletable() const {
    if (!table->can_delete())
      throw nb::type_error(
          "the summary of this table cannot forget a key, so none can be deleted: make the table with deletions='lazy' "
          "(scheme 'standard'), or with summary='interpolation' or a counting one");
  }
  Put put(const StoredKey& key, uint64_t value, bool) {
    const uint64_t before = insertions(), pair[2] = {key.low, key.high};
    if (table->insert_many(pair, &value, 1, false) == 0) return Put::full;
    return insertions() == before ? Put::replaced : Put::inserted;
  }

  uint64_t get_all(const uint64_t* keys, uint64_t n, uint64_t missing, uint64_t* out, uint32_t threads,
                   const Pulse& pulse, uint64_t& first, uint64_t& absent) const {
    return evenbins::get_all(*table, keys, n, missing, out, threads, pulse, &first, &absent);
  }
  uint64_t find_all(const uint64_t* keys, uint64_t n, uint8_t* found, uint32_t threads, const Pulse& pulse) const {
    return contains_all(*table, keys, n, found, threads, pulse);
  }
  // `added`: of a set alone, where whether each key is new goes, or null.
  BulkProgress insert_all(const uint64_t* keys, const uint64_t* inserted, uint64_t n, const InsertOption& option,
                          const Pulse& pulse, uint8_t* added = nullptr) {
    return progress_of(evenbins::insert_all(*table, keys, inserted, n, option.are_new, added, option.threads, pulse));
  }
  BulkProgress erase_all(const uint64_t* keys, uint64_t n, uint32_t threads, const Pulse& pulse) {
    return progress_of(evenbins::erase_all(*table, keys, n, threads, pulse));
  }

  size_t page(Position& position, uint64_t n, uint64_t* keys, uint64_t* found) const {
    return table->page(position, n, keys, found);
  }
  Position next_pop(const Position& after) const {  // an entry of the list may be gone by then
    return {std::min(after.slot, table->slot_count()), 0};
  }
  struct Cursor {
    explicit Cursor(const MultilevelTable& t) : table(t), order(t.slot_count()) {}
    uint64_t next(uint64_t n, uint64_t* keys, uint64_t* found) { return table.page(order, position, n, keys, found); }
    const MultilevelTable& table;
    Scattered order;
    Position position{0, 0};
  };

 private:
  static BulkProgress progress_of(const TableProgress& progress) {
    return {progress.done, progress.changed, progress.full};
  }
  uint64_t insertions() const { return table->view().state[kInsertions]; }
};

// ---- sets ---------------------------------------------------------------------------------------------

void require_set(const TableObject& self) {
  if (!self.is_set())
    throw nb::type_error(
        "this table has values: use table[key] = value, table.setdefault(key, value) or del table[key]. For a set of "
        "keys make it with value_dtype=None");
}

bool add_new(TableObject& self, nb::handle key) {
  require_set(self);
  const StoredKey stored = Mapping<TableObject>::key_from(self.maker, key);
  self.require_writable();
  Put put = Put::full;
  self.alone([&] {
    put = self.put(stored, 0, false);
    self.version += put == Put::inserted;
  });
  if (put == Put::full) raise_table_full(self.full_text(), 0);
  return put == Put::inserted;
}

bool discard(TableObject& self, nb::handle key) {
  require_set(self);
  const StoredKey stored = Mapping<TableObject>::key_from(self.finder, key);
  self.require_writable();
  if (self.finder.is_out_of_range(stored)) return false;
  bool erased = false;
  self.alone([&] {
    self.require_deletable();
    erased = self.erase(stored);
    self.version += erased;
  });
  return erased;
}

void remove(TableObject& self, nb::handle key) {
  if (discard(self, key)) return;
  PyErr_SetObject(PyExc_KeyError, key.ptr());
  throw nb::python_error();
}

// Adds keys to a set. An exception is set if that ended it.
BulkProgress add_each(TableObject& self, WordArray keys, uint64_t n, uint8_t* out, uint32_t threads) {
  const Writing alone(self);
  SignalPulse pulse;
  ++self.version;
  const BulkProgress progress =
      self.insert_all(Mapping<TableObject>::data_of(keys), nullptr, n, {false, threads}, std::ref(pulse), out);
  if (progress.changed == 0) --self.version;
  return progress;
}

[[noreturn]] void raise_after(TableObject& self, const BulkProgress& progress) {
  if (PyErr_Occurred()) raise_interrupted(progress.done);
  raise_table_full(self.full_text(progress.done), progress.done);
}

// Whether each key is new. An error after some of them carries the answers for these as `answers`.
nb::object add_new_many(TableObject& self, WordArray keys, uint32_t threads) {
  require_set(self);
  const uint64_t n = Mapping<TableObject>::count_of(self, keys);
  self.require_writable();
  Answers<uint8_t> answers;
  const BulkProgress progress = add_each(self, keys, n, answers.extend(n), threads);
  if (!PyErr_Occurred() && !progress.full) return nb::cast(answers.release<bool>());
  answers.truncate(progress.done);
  try {
    raise_after(self, progress);
  } catch (nb::python_error& error) {
    error.value().attr("answers") = nb::cast(answers.release<bool>());
    throw;
  }
}

// The answers go to the caller's memory: those of the keys that are in, at any moment, and no others.
void add_new_into(TableObject& self, WordArray keys, MarkArray out, uint32_t threads) {
  require_set(self);
  const uint64_t n = Mapping<TableObject>::count_of(self, keys);
  if (n > out.size()) throw nb::value_error("there are more keys than places for answers");
  self.require_writable();
  const BulkProgress progress = add_each(self, keys, n, out.data(), threads);
  if (PyErr_Occurred() || progress.full) raise_after(self, progress);
}

// ---- look-ups of keys that are read in place ----------------------------------------------------------

// For each array of the source: extend(n) makes room for the answers of its n keys; then look(i, words, count) answers
// for the keys from number i on, on several threads; then unfit(i) for those of them that no such table can hold. The
// numbers count through all arrays.
template <typename Extend, typename Look, typename Unfit>
void look_up_all(TableObject& self, StoredSource& source, uint32_t threads, const Extend& extend, const Look& look,
                 const Unfit& unfit) {
  if (source.maker.type != self.maker.type || source.maker.seed != self.maker.seed)
    throw nb::value_error("these keys were made for another table");
  uint64_t before = 0;
  while (const StoredWords* keys = source.next()) {
    extend(keys->size());
    uint64_t done = 0;
    try {
      const Reading reading(self);
      done = each_thousand(*keys, threads, [&](uint64_t start, StoredKey* batch, size_t n) {
        std::vector<uint64_t> out_of_range;
        look(before + start, words_of(source.maker, batch, n, out_of_range), n);
        for (const uint64_t i : out_of_range) unfit(before + start + i);
      });
    } catch (const BadKey& bad) {
      raise_unfit(bad, before);
    }
    before += done;
    if (PyErr_Occurred()) Mapping<TableObject>::raise_stopped(before);
  }
}

// The values; which keys are there.
nb::tuple get_from(TableObject& self, StoredSource& source, uint64_t missing, uint32_t threads) {
  self.require_values();
  Answers<uint64_t> values;
  Answers<uint8_t> found;
  uint64_t* out = nullptr;
  uint8_t* marks = nullptr;
  const auto extend = [&](uint64_t n) {
    out = values.extend(n) + n - values.size();
    marks = found.extend(n) + n - found.size();
    values.use_huge_pages();
  };
  look_up_all(
      self, source, threads, extend,
      [&](uint64_t start, const uint64_t* words, size_t n) {
        self.table->get_many(words, n, missing, out + start, marks + start);
      },
      [&](uint64_t i) { out[i] = missing, marks[i] = 0; });
  return nb::make_tuple(values.release<uint64_t>(), found.release<bool>());
}

nb::object contains_from(TableObject& self, StoredSource& source, uint32_t threads) {
  Answers<uint8_t> found;
  uint8_t* marks = nullptr;
  look_up_all(
      self, source, threads, [&](uint64_t n) { marks = found.extend(n) + n - found.size(); },
      [&](uint64_t start, const uint64_t* words, size_t n) { self.table->contains_many(words, n, marks + start); },
      [&](uint64_t i) { marks[i] = 0; });
  return nb::cast(found.release<bool>());
}

nb::object probe(TableObject& self, nb::handle key) {
  const StoredKey wanted = Mapping<TableObject>::key_from(self.finder, key);
  if (self.finder.is_out_of_range(wanted)) return nb::make_tuple(0, 0, false);
  const MultilevelTable::Probe p = read_in_turn(self, [&] { return self.table->probe(wanted); });
  return nb::make_tuple(p.level, p.reads, p.list);
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

}  // namespace

void bind_tables(nb::module_& m) {
  bind_table_keys(m);
  bind_stored_sources(m);
  bind_mapping<TableObject>(m, "Table", "Base of the multilevel table: a plan's integer core and its memory.")
      .def(
          "add", [](TableObject& self, nb::handle key) { add_new(self, key); }, nb::arg("key").none(),
          nb::sig("def add(self, key: object) -> None"),
          "Add a key to an exact set (value_dtype=None); a key that is there changes nothing.")
      .def("add_new", &add_new, nb::arg("key").none(), nb::sig("def add_new(self, key: object) -> bool"),
           "Add a key to an exact set and return whether it was new. Of several threads that add it, one gets True.")
      .def("discard", &discard, nb::arg("key").none(), nb::sig("def discard(self, key: object) -> bool"),
           "Remove a key from an exact set, if it is there; return whether it was.")
      .def("remove", &remove, nb::arg("key").none(), nb::sig("def remove(self, key: object) -> None"),
           "Remove a key from an exact set; KeyError if it is not there.")
      .def("_add_new_many", &add_new_many, nb::arg("keys"), nb::arg("threads") = 1,
           nb::sig("def _add_new_many(self, keys: numpy.typing.NDArray[numpy.uint64], threads: int = 1) -> "
                   "numpy.typing.NDArray[numpy.bool_]"),
           "Adds keys to a set, in order; whether each is new. An error carries the answers so far as `answers`.")
      .def("_add_new_into", &add_new_into, nb::arg("keys"), nb::arg("out").noconvert(), nb::arg("threads") = 1,
           nb::sig("def _add_new_into(self, keys: numpy.typing.NDArray[numpy.uint64], "
                   "out: numpy.typing.NDArray[numpy.uint8], threads: int = 1) -> None"),
           "The same with the answers in `out`, where the places of keys that are not in stay as they are.")
      .def("_get_from", &get_from, nb::arg("source"), nb::arg("missing"), nb::arg("threads"),
           nb::sig("def _get_from(self, source: StoredKeys, missing: int, threads: int) -> "
                   "tuple[numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.bool_]]"),
           "The values of keys that are read in place, and whether each is there.")
      .def("_contains_from", &contains_from, nb::arg("source"), nb::arg("threads"),
           nb::sig("def _contains_from(self, source: StoredKeys, threads: int) -> numpy.typing.NDArray[numpy.bool_]"))
      .def("_probe", &probe, nb::arg("key").none(), nb::sig("def _probe(self, key: object) -> tuple[int, int, bool]"))
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
             self.require_writable();
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
          nb::sig("def _summary_bytes(self) -> bytes"), "Its summary, as the bytes of a file.");
}

}  // namespace evenbins::python

// The Python class `_core.Pages`: the base of evenbins.PagedTable (src/evenbins/tables/paged.py).
//
// A single look-up asks the summary under the GIL: an absent key, mostly, is answered there. Whoever reads or writes
// the file gives the GIL up. Readers and the writer: readers.hpp.
//
// What a bulk call may do at the same time comes in one number, `reads` (page_reads.hpp, Reads).
//
// In a child process made by fork, `require_own` comes before any lock, since nobody may be left to open it: a writable
// table refuses every call but `close`, a read-only one goes on with locks of its own.
#include "evenbins/paged.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "mapping.hpp"
#include "module.hpp"

namespace evenbins::python {
namespace {

void set_os_error(const IoError& error) {
  const nb::object made =
      nb::steal(PyObject_CallFunction(PyExc_OSError, "iss", error.code, error.what(), error.file.c_str()));
  if (made.is_valid()) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
}

nb::object format_error;

struct PagedObject : MappingObject<PagedTable> {
  using Position = PagedTable::Position;

  using MappingObject::MappingObject;
  ~PagedObject() { Recent<PagedObject>::forget(this); }
  int locks_of = process_id();

  // Must be called with the GIL held, before any lock is taken.
  void require_own() {
    if (locks_of == process_id()) [[likely]]
      return;
    if (table->writable())
      throw std::runtime_error(
          "this table is open for writing in process " + std::to_string(table->owner()) + ", and this is process " +
          std::to_string(process_id()) +
          ", made from it by fork: only the process that opened it can use it. Close it here, which writes nothing, "
          "and open it again when the other has closed it");
    renew_locks();
  }
  void require_open() {
    require_own();
    if (!table->is_open()) throw nb::value_error(kClosed);
  }
  void require_writable() {
    require_open();
    if (!table->writable())
      throw nb::value_error("this table is open for reading: open it with writable=True to change it");
  }
  void require_still_open() const {  // with the lock: somebody may have closed it meanwhile
    if (!table->is_open()) throw std::runtime_error(kClosed);
  }
  void require_deletable() const {}

  // f() without the GIL, beside other look-ups, or alone.
  template <typename F>
  auto read(F&& f) {
    const Reading reading(*this);
    require_still_open();
    return f();
  }
  template <typename F>
  auto alone(F&& f) {
    const Writing alone(*this);
    require_still_open();
    return f();
  }
  // f(table), with the GIL if nobody changes the table.
  template <typename F>
  auto ask(F&& f) {
    require_own();
    return read_in_turn(*this, [&] { return f(*table); });
  }

  uint64_t size() const { return table->keys(); }
  std::string full_text(std::optional<uint64_t> = {}) const {
    return "the table is full: the next key finds no room in its pages, and the overflow pages are full. It was "
           "planned for " +
           std::to_string(table->spec().capacity) + " keys and holds " + std::to_string(table->keys()) +
           ". Create a larger one and update() it from this";
  }
  bool find(const StoredKey& key, uint64_t& word) const { return table->find(key, word); }
  bool look_up(const StoredKey& key, uint64_t& word) {
    if (may_read() && !table->may_contain(key)) {
      table->count_absent();
      return false;
    }
    return read([&] { return find(key, word); });
  }
  Put put(const StoredKey& key, uint64_t value, bool) {
    switch (table->insert(key, value)) {
      case PagedTable::Outcome::full: return Put::full;
      case PagedTable::Outcome::changed: return Put::replaced;
      default: return Put::inserted;
    }
  }
  bool erase(const StoredKey& key) { return table->erase(key); }

  uint64_t get_all(const uint64_t* keys, uint64_t n, uint64_t missing, uint64_t* out, uint32_t reads,
                   const Pulse& pulse, uint64_t& first, uint64_t& absent) const {
    std::vector<uint8_t> found(n);
    const uint64_t done = table->get_many(keys, n, missing, out, found.data(), Reads::of_word(reads), pulse);
    count_missing(found, done, first, absent);
    return done;
  }
  uint64_t find_all(const uint64_t* keys, uint64_t n, uint8_t* found, uint32_t reads, const Pulse& pulse) const {
    return table->get_many(keys, n, 0, nullptr, found, Reads::of_word(reads), pulse);
  }
  BulkProgress insert_all(const uint64_t* keys, const uint64_t* inserted, uint64_t n, uint32_t reads,
                          const Pulse& pulse) {
    const auto [done, changed, full] = table->insert_many(keys, inserted, n, Reads::of_word(reads), pulse);
    return {done, changed, full};
  }
  BulkProgress erase_all(const uint64_t* keys, uint64_t n, uint32_t reads, const Pulse& pulse) {
    const auto [done, changed, full] = table->erase_many(keys, n, Reads::of_word(reads), pulse);
    return {done, changed, full};
  }

  size_t page(Position& position, uint64_t n, uint64_t* keys, uint64_t* found) const {
    return table->scan(position, n, keys, found);
  }
  Position next_pop(const Position& after) const { return {after.page, 0}; }
  struct Cursor {  // in the order of pages, since a random one would read each page many times: the caller shuffles
    explicit Cursor(const PagedTable& t) : table(t) {}
    uint64_t next(uint64_t n, uint64_t* keys, uint64_t* found) { return table.scan(position, n, keys, found); }
    const PagedTable& table;
    Position position{0, 0};
  };

  static bool set_exception(const std::exception& error) {
    if (const auto* io = dynamic_cast<const IoError*>(&error))
      set_os_error(*io);
    else if (dynamic_cast<const FormatError*>(&error) != nullptr)
      PyErr_SetString(format_error.ptr(), error.what());
    else
      return false;
    return true;
  }

 private:
  static constexpr const char* kClosed = "this table is closed: open it anew";

  // The locks as they are in a child process: of its threads only the one that called fork is left.
  void renew_locks() {
    if (busy && writer != std::this_thread::get_id()) {
      new (&lock) std::mutex;
      busy = false;
    }
    readers = Reading::under_way(*this);
    locks_of = process_id();
  }
};

using PagedMapping = Mapping<PagedObject>;

// f() on the table, alone, without the GIL, open or not.
template <typename F>
auto alone_with(PagedObject& object, F&& f) {
  object.require_own();
  const Writing alone(object);
  return f(*object.table);
}

nb::object probe(PagedObject& self, nb::handle key) {
  const StoredKey wanted = PagedMapping::key_from(self.finder, key);
  self.require_open();
  PagedTable::Probe p{0, 0};
  if (!self.finder.is_out_of_range(wanted)) p = self.read([&] { return self.table->probe(wanted); });
  return nb::make_tuple(p.level, p.reads);
}

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
    number = platform::open_file(path.c_str(), flags, mode);
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

void lock_file(int descriptor, bool exclusive) {
  if (platform::lock_file(descriptor, exclusive) == 0) return;
  PyErr_SetFromErrno(PyExc_OSError);
  throw nb::python_error();
}

// Straight from the core's copy to the file: a summary may be of gigabytes.
void write_summary(PagedObject& self, int descriptor) {
  const std::vector<uint8_t> out = alone_with(self, [](PagedTable& table) { return table.summary_file(); });
  const GilRelease free;
  for (size_t done = 0; done < out.size();) {
    const int64_t n = platform::write_on(descriptor, out.data() + done, std::min<size_t>(out.size() - done, 1 << 30));
    if (n < 0 && errno != EINTR) throw IoError(errno, "the summary");
    done += static_cast<size_t>(std::max<int64_t>(n, 0));
  }
}

nb::object steps_of(PagedObject& self) {
  nb::list out;
  for (const Tape::Step& step : self.table->tape().steps)
    out.append(nb::make_tuple(step.file, std::string(1, step.what), step.offset,
                              nb::bytes(step.data.data(), step.data.size())));
  return out;
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
  m.def("lock_file", &lock_file, nb::arg("descriptor"), nb::arg("exclusive"),
        "Lock an open file until it is closed; BlockingIOError if another process has it.");
  nb::class_<Descriptor>(m, "Descriptor",
                         "An open file, closed with the object: an exception between two steps of Python leaks none.")
      .def("__init__", &init_descriptor, nb::arg("path"), nb::arg("flags"), nb::arg("mode") = 0666,
           nb::sig("def __init__(self, path: bytes, flags: int, mode: int = 438) -> None"))
      .def("fileno", &Descriptor::number, "Return the number of the descriptor; -1 after it was handed over.")
      .def("close", &Descriptor::close, "Close the file; nothing happens if it was handed over.");
  auto cls = PagedMapping::bind(m, "Pages", "reads",
                                "Base of the table in pages: a file, its journal, and the summary in memory.");
  cls.def("__init__", &init, nb::arg("table"), nb::arg("journal").none(), nb::arg("path"), nb::arg("writable"),
          nb::arg("durable"), "Take two open files over; there may be no journal.")
      .def("_probe", &probe, nb::arg("key").none(), nb::sig("def _probe(self, key: object) -> tuple[int, int]"))
      .def("_groups_due",
           [](PagedObject& self) {
             self.require_open();
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
      .def("_write_summary", &write_summary, nb::arg("descriptor"), "Write the summary's file, also of a closed table.")
      .def("_checkpoint",
           [](PagedObject& self) {
             self.require_writable();
             self.alone([&] { self.table->checkpoint(); });
           })
      .def("_close",
           [](PagedObject& self) {
             if (self.table->writable() && !self.table->is_own())
               self.table->close();  // in a child: nobody else uses this copy of it, and the lock may be taken
             else
               alone_with(self, [](PagedTable& table) { table.close(); });
           })
      .def("_insert_words", &PagedMapping::insert_many<uint32_t>, nb::arg("keys"), nb::arg("values"), nb::arg("reads"),
           nb::arg("before") = 0,
           nb::sig("def _insert_words(self, keys: numpy.typing.NDArray[numpy.uint64], values: "
                   "numpy.typing.NDArray[numpy.uint64], reads: int, before: int = 0) -> None"))
      .def(
          "_erase_words",
          [](PagedObject& self, WordArray keys, uint32_t reads, bool strict) {
            return PagedMapping::erase_many(self, std::move(keys), strict, reads);
          },
          nb::arg("keys"), nb::arg("reads"), nb::arg("strict"),
          nb::sig("def _erase_words(self, keys: numpy.typing.NDArray[numpy.uint64], reads: int, strict: bool) -> "
                  "tuple[int, int, int]"))
      .def("_page_batches", &PagedMapping::each_batch, nb::arg("store"), nb::arg("most"),
           nb::sig("def _page_batches(self, store: collections.abc.Callable[[numpy.typing.NDArray[numpy.uint64], "
                   "numpy.typing.NDArray[numpy.uint64]], object], most: int) -> None"),
           "Calls store(keys, values) with all items, `most` at a time, in the order of pages; nobody changes the "
           "table meanwhile.")
      .def(
          "_counters",
          [](PagedObject& self) {
            const PagedTable::Counters c = self.ask([](PagedTable& table) { return table.counters(); });
            return std::vector<uint64_t>{c.found, c.found_reads, c.missed, c.missed_reads, c.wrong, c.fetched};
          },
          "Look-ups that found a key, pages they read, look-ups that did not, theirs, wrong pages, pages fetched.")
      .def(
          "_level_keys",
          [](PagedObject& self) { return self.ask([](PagedTable& table) { return table.level_keys(); }); },
          "Keys of each level, then of the overflow pages together.")
      .def("_invariant",
           [](PagedObject& self) {
             self.require_open();
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
      .def(
          "_set_knows_cache", [](PagedObject& self, bool known) { self.table->set_knows_cache(known); },
          nb::arg("known"), "For tests: whether look-ups ask the system what its cache holds, or use threads.")
      .def_prop_ro("_knows_cache", [](const PagedObject& self) { return self.table->store().knows_cache(); })
      .def_prop_ro("_uid", [](const PagedObject& self) { return self.table->store().head().uid; })
      .def_prop_ro("_owner", [](const PagedObject& self) { return static_cast<int>(self.table->owner()); })
      .def_prop_ro("_is_own", [](const PagedObject& self) { return self.table->is_own(); })
      .def_prop_ro(
          "_generation",
          [](PagedObject& self) { return self.ask([](PagedTable& table) { return table.store().head().generation; }); })
      .def_prop_ro(
          "_journal_bytes",
          [](PagedObject& self) { return self.ask([](PagedTable& table) { return table.store().journal_bytes(); }); })
      .def_prop_ro("_failed",
                   [](PagedObject& self) { return self.ask([](PagedTable& table) { return table.store().failed(); }); })
      .def_prop_ro(
          "writable", [](const PagedObject& self) { return self.table->writable(); }, "Whether it can be changed.")
      .def_prop_ro(
          "closed", [](const PagedObject& self) { return !self.table->is_open(); }, "Whether it has been closed.")
      .def_prop_ro(
          "nbytes", [](const PagedObject& self) { return self.table->store().file_bytes(); }, "Bytes of the file.")
      .def_prop_ro(
          "summary_bytes",
          [](PagedObject& self) { return self.ask([](PagedTable& table) { return table.summary_bytes(); }); },
          "Bytes of the summary, in memory.");
  bind_spec(cls);
}

}  // namespace evenbins::python

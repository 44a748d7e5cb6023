// The Python class `_core.Filter`: the base of every public filter class (src/evenbins/filters).
//
// Single keys go through raw type slots (`in`: sq_contains, `add`: METH_O), because the call is most of
// the cost. Everything else is thin nanobind.
//
// Writers take turns: access.hpp. Whether look-ups wait for them: filter_object.hpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <chrono>
#include <cmath>
#include <optional>

#include "answered.hpp"
#include "evenbins/filter.hpp"
#include "evenbins/format.hpp"
#include "filter_object.hpp"
#include "keys.hpp"
#include "module.hpp"
#include "recent.hpp"
#include "sources.hpp"
#include "structure.hpp"

namespace evenbins::python {

FilterObject::~FilterObject() { Recent<FilterObject>::forget(this); }

namespace {
// The time by the clock of a filter whose keys expire; 0 for any other.
int64_t read_clock(FilterObject& object) {
  if (object.expiry == nullptr) return 0;
  if (!object.clock.is_valid() || object.clock.is_none()) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  }
  const nb::object clock = object.clock;  // it may be replaced meanwhile
  const nb::object seconds = clock();
  const double now = PyFloat_AsDouble(seconds.ptr());
  if (now == -1.0 && PyErr_Occurred()) throw nb::python_error();
  if (!(std::abs(now) < 7.2e10)) throw nb::value_error("clock must return seconds, from -7.2e10 to 7.2e10");
  return static_cast<int64_t>(std::floor(now * 1e6));
}
// Writers do so in their turn: else another thread, whose clock was slow, could set an earlier time while they wait, and
// their keys would expire early.
void set_time(FilterObject& object, int64_t time) {
  if (object.expiry != nullptr) object.expiry->tell_time(time);
}
}  // namespace

void tell_time(FilterObject& object) { set_time(object, read_clock(object)); }

namespace {

FilterObject* object_of(PyObject* self) { return Recent<FilterObject>::of(self); }

// Runs a call in its turn, and reports whether it could: if not, a Python exception is set.
template <typename F>
bool with_errors_set(F&& call) {
  try {
    call();
    return true;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const nb::builtin_exception& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::bad_alloc& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return false;
}

EVENBINS_COLD PyObject* refuse_add() {
  set_filter_full(0, "this key");
  return nullptr;
}

// Changes the filter in a single call, when no other call works without the GIL; false with an exception if that cannot
// be.
template <typename F>
bool change_in_turn(FilterObject& object, F&& change) {
  return with_errors_set([&] {
    require_writable(object);
    const int64_t time = read_clock(object);
    in_turn(object, object.may_write(), [&] {
      set_time(object, time);
      change();
    });
  });
}

// The rare paths of single calls, out of line: the common ones are a few instructions around an indirect call.
EVENBINS_COLD int contains_in_turn(FilterObject& object, uint64_t digest) {
  bool found = false;
  const auto look = [&] {
    tell_time(object);
    read_in_turn(object, [&] { found = object.one.contains(digest); });
  };
  return with_errors_set(look) ? found : -1;
}
EVENBINS_COLD PyObject* add_in_turn(FilterObject& object, uint64_t digest) {
  AddOutcome outcome = AddOutcome::added;
  if (!change_in_turn(object, [&] { outcome = object.one.add(digest); })) return nullptr;
  if (outcome == AddOutcome::full) return refuse_add();
  Py_RETURN_NONE;
}

EVENBINS_COLD PyObject* add_new_in_turn(FilterObject& object, uint64_t digest) {
  AddOutcome outcome = AddOutcome::added;
  if (!change_in_turn(object, [&] { outcome = object.one.add_new(digest); })) return nullptr;
  if (outcome == AddOutcome::full) return refuse_add();
  return PyBool_FromLong(outcome == AddOutcome::added);
}

}  // namespace

int contains_digest(FilterObject& object, uint64_t digest) {
  if (object.lookups_wait) [[unlikely]]
    return contains_in_turn(object, digest);
  return object.one.contains(digest) ? 1 : 0;
}

PyObject* add_digest(FilterObject& object, uint64_t digest) {
  if (object.busy || object.adds_in_turn) [[unlikely]]
    return add_in_turn(object, digest);
  if (object.one.add(digest) == AddOutcome::full) [[unlikely]]
    return refuse_add();
  Py_RETURN_NONE;
}

PyObject* add_new_digest(FilterObject& object, uint64_t digest) {
  if (object.busy || object.adds_in_turn) [[unlikely]]
    return add_new_in_turn(object, digest);
  const AddOutcome outcome = object.one.add_new(digest);
  if (outcome == AddOutcome::full) [[unlikely]]
    return refuse_add();
  return PyBool_FromLong(outcome == AddOutcome::added);
}

namespace {

int slot_contains(PyObject* self, PyObject* key) {
  FilterObject* object = object_of(self);
  uint64_t digest;
  if (object == nullptr || !digest_of(key, object->hasher, digest)) return -1;
  return contains_digest(*object, digest);
}

PyObject* method_add(PyObject* self, PyObject* key) {
  FilterObject* object = object_of(self);
  uint64_t digest;
  if (object == nullptr || !digest_of(key, object->hasher, digest)) return nullptr;
  return add_digest(*object, digest);
}

PyObject* method_add_new(PyObject* self, PyObject* key) {
  FilterObject* object = object_of(self);
  uint64_t digest;
  if (object == nullptr || !digest_of(key, object->hasher, digest)) return nullptr;
  return add_new_digest(*object, digest);
}

// The parts of a filter that can remove or count; a public class without one has no method that leads here.
SupportsRemoval& removal_of(FilterObject& object) {
  SupportsRemoval* removal = object.filter->removal();
  if (removal == nullptr) throw nb::type_error("this filter cannot remove keys: use CountingBloomFilter");
  return *removal;
}
const SupportsCounting& counting_of(const FilterObject& object) {
  const SupportsCounting* counting = object.filter->counting();
  if (counting == nullptr) throw nb::type_error("this filter does not count its keys: use CountingBloomFilter");
  return *counting;
}

bool remove_one(FilterObject& object, nb::handle key) {
  SupportsRemoval& removal = removal_of(object);
  uint64_t digest;
  if (!digest_of(key.ptr(), object.hasher, digest)) throw nb::python_error();
  bool removed = false;
  if (!change_in_turn(object, [&] { removed = removal.remove(digest); })) throw nb::python_error();
  return removed;
}

int64_t count_one(FilterObject& object, nb::handle key) {
  const SupportsCounting& counting = counting_of(object);
  uint64_t digest;
  int64_t count;
  if (!digest_of(key.ptr(), object.hasher, digest)) throw nb::python_error();
  const auto look = [&] { counting.count_many(&digest, 1, &count); };
  if (object.lookups_wait)
    read_in_turn(object, look);
  else
    look();
  return count;
}

int slot_buffer(PyObject* self, Py_buffer* view, int flags) {
  FilterObject* object = object_of(self);
  if (object == nullptr) {
    view->obj = nullptr;
    return -1;
  }
  if (object->filter->grows() && !with_errors_set([&] {
        const Writing alone(*object);
        object->filter->settle(1);
      })) {
    view->obj = nullptr;
    return -1;
  }
  const Bits& bits = object->filter->bits();
  return PyBuffer_FillInfo(view, self, const_cast<uint64_t*>(bits.words()), static_cast<Py_ssize_t>(bits.bytes()), 1,
                           flags);
}

// Slots of the garbage collector: a clock may refer to the filter, by way of whoever owns both.
int slot_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<FilterObject>(self)->clock.ptr());
  return 0;
}
int slot_clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<FilterObject>(self)->clock.reset();
  return 0;
}

PyMethodDef methods[] = {
    {"add", method_add, METH_O,
     "add($self, key, /)\n--\n\nAdds one key: a str (as UTF-8), bytes, or an int in -2**63 ... 2**64-1."},
    {"add_new", method_add_new, METH_O,
     "add_new($self, key, /)\n--\n\nAdds the key unless it is present, and returns whether it was new. Of several "
     "threads that call it with one key, exactly one gets True."},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_sq_contains, reinterpret_cast<void*>(slot_contains)}, {Py_tp_methods, methods},
    {Py_bf_getbuffer, reinterpret_cast<void*>(slot_buffer)},  {Py_tp_traverse, reinterpret_cast<void*>(slot_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(slot_clear)},       {0, nullptr},
};

class AddSink final : public Sink {
 public:
  AddSink(FilterObject& object, uint32_t threads) : object_(object), threads_(threads) {}
  const char* verb() const override { return "added"; }
  uint64_t take_all(const Digests& keys, const Pulse& pulse) override {
    const int64_t time = read_clock(object_);
    const Writing alone(object_);
    set_time(object_, time);
    return add_all(*object_.filter, keys, threads_, pulse);
  }
  void take(const uint64_t* digests, size_t n, bool let_others_run) override {
    const int64_t time = read_clock(object_);
    in_turn(object_, object_.may_write() && !let_others_run, [&] {
      set_time(object_, time);
      if (const size_t added = object_.filter->add_many(digests, n); added < n) throw FilterFull(added);
    });
  }

 private:
  FilterObject& object_;
  uint32_t threads_;
};

// All keys or none, in one step: they must lie in one stretch.
class AllOrNoneSink final : public Sink {
 public:
  AllOrNoneSink(FilterObject& object, uint64_t limit, uint32_t threads)
      : object_(object), limit_(limit), threads_(threads) {}
  const char* verb() const override { return "added"; }
  uint64_t take_all(const Digests& keys, const Pulse& pulse) override {
    if (taken != 0) throw nb::type_error("the keys must lie in one stretch");
    const Writing alone(object_);
    return add_all_or_none(*object_.filter, keys, limit_, threads_, pulse);
  }
  void take(const uint64_t*, size_t, bool) override { throw nb::type_error("the keys must lie in one stretch"); }

 private:
  FilterObject& object_;
  uint64_t limit_;
  uint32_t threads_;
};

class AddNewSink final : public AnsweredSink {
 public:
  AddNewSink(FilterObject& object, uint32_t threads) : object_(object), threads_(threads) {}
  uint64_t take_all(const Digests& keys, const Pulse& pulse) override {
    const int64_t time = read_clock(object_);
    uint8_t* out = answers.extend(keys.size());
    try {
      const Writing alone(object_);
      set_time(object_, time);
      const uint64_t done = add_new_all(*object_.filter, keys, out, threads_, pulse);
      in = taken + done;
      return done;
    } catch (const BadKey& bad) {
      in = taken + bad.index;
      throw;
    } catch (const FilterFull& full) {
      in = taken + full.index;
      throw;
    }
  }
  void take(const uint64_t* digests, size_t n, bool let_others_run) override {
    const int64_t time = read_clock(object_);
    uint8_t* out = answers.extend(n);
    in_turn(object_, object_.may_write() && !let_others_run, [&] {
      set_time(object_, time);
      const size_t treated = object_.filter->add_new_many(digests, n, out);
      in = taken + treated;
      if (treated < n) throw FilterFull(treated);
    });
  }

 private:
  FilterObject& object_;
  uint32_t threads_;
};

// The answers go to the caller's memory: those of the keys that are in, at any moment, and no others.
class MarkingSink final : public Sink {
 public:
  MarkingSink(FilterObject& object, uint32_t threads, uint8_t* out, uint64_t size)
      : object_(object), threads_(threads), out_(out), size_(size) {}
  const char* verb() const override { return "added"; }
  uint64_t take_all(const Digests& keys, const Pulse& pulse) override {
    const int64_t time = read_clock(object_);
    if (keys.size() > size_ - taken) throw nb::value_error("there are more keys than places for answers");
    const Writing alone(object_);
    set_time(object_, time);
    return add_new_all(*object_.filter, keys, out_ + taken, threads_, pulse);
  }
  void take(const uint64_t*, size_t, bool) override { throw nb::type_error("keys must be an array of digests"); }

 private:
  FilterObject& object_;
  uint32_t threads_;
  uint8_t* out_;
  uint64_t size_;
};

class RemoveSink final : public Sink {
 public:
  RemoveSink(FilterObject& object, uint32_t threads)
      : object_(object), removal_(removal_of(object)), threads_(threads) {}
  const char* verb() const override { return "removed"; }
  uint64_t take_all(const Digests& keys, const Pulse& pulse) override {
    const Writing alone(object_);
    return remove_all(*object_.filter, keys, answers.extend(keys.size()), threads_, pulse);
  }
  void take(const uint64_t* digests, size_t n, bool let_others_run) override {
    in_turn(object_, object_.may_write() && !let_others_run,
            [&] { removal_.remove_many(digests, n, answers.extend(n)); });
  }
  Answers<uint8_t> answers;

 private:
  FilterObject& object_;
  SupportsRemoval& removal_;
  uint32_t threads_;
};

void add_from(FilterObject& object, KeySource& keys, uint32_t threads) {
  require_writable(object);
  AddSink sink(object, threads);
  keys.run(object.hasher, sink);
}

void add_all_or_none_from(FilterObject& object, KeySource& keys, uint64_t limit, uint32_t threads) {
  require_writable(object);
  removal_of(object);
  AllOrNoneSink sink(object, limit, threads);
  keys.run(object.hasher, sink);
}

nb::object add_new_from(FilterObject& object, KeySource& keys, uint32_t threads) {
  require_writable(object);
  AddNewSink sink(object, threads);
  return answers_from(keys, object.hasher, sink);
}

void add_new_into(FilterObject& object, KeySource& keys, uint32_t threads, MarkArray out) {
  require_writable(object);
  MarkingSink sink(object, threads, out.data(), out.size());
  keys.run(object.hasher, sink);
}

nb::object contains_from(FilterObject& object, KeySource& keys, uint32_t threads) {
  tell_time(object);
  const Filter& filter = *object.filter;
  return look_up_from<bool, uint8_t>(
      keys, object.hasher,
      [&](const Digests& all, uint8_t* out, const Pulse& pulse) {
        return contains_all(filter, all, out, threads, pulse);
      },
      [&](const uint64_t* digests, size_t n, uint8_t* out) { filter.contains_many(digests, n, out); },
      [&] { return LookingUp(object); }, object.lookups_wait);
}

nb::object remove_from(FilterObject& object, KeySource& keys, uint32_t threads) {
  RemoveSink sink(object, threads);
  require_writable(object);
  keys.run(object.hasher, sink);
  return nb::cast(sink.answers.release<bool>());
}

nb::object count_from(FilterObject& object, KeySource& keys, uint32_t threads) {
  const SupportsCounting& counting = counting_of(object);
  return look_up_from<int64_t>(
      keys, object.hasher,
      [&](const Digests& all, int64_t* out, const Pulse& pulse) {
        return count_all(counting, all, out, threads, pulse);
      },
      [&](const uint64_t* digests, size_t n, int64_t* out) { counting.count_many(digests, n, out); },
      [&] { return LookingUp(object); }, object.lookups_wait);
}

void merge(FilterObject& self, FilterObject& other) {
  require_writable(self);
  if (&self != &other) {
    with_both(unless_reading(self), other, [&] {
      wait_for_readers(self);
      self.filter->merge(*other.filter);
    });
  } else if (self.filter->is_multiset()) {  // to any other filter its own keys are nothing new
    const Writing alone(self);
    self.filter->merge(*self.filter);
  }
}

void intersect(FilterObject& self, FilterObject& other) {
  require_writable(self);
  if (&self == &other) return;
  with_both(unless_reading(self), other, [&] {
    wait_for_readers(self);
    self.filter->intersect(*other.filter);
  });
}

bool is_subset(FilterObject& self, FilterObject& other) {
  return &self == &other || with_both(self, other, [&] { return self.filter->is_subset_of(*other.filter); });
}

}  // namespace

void bind_filters(nb::module_& m) {
  nb::exception<FormatError>(m, "FormatError", nb::make_tuple(nb::handle(types.error), nb::handle(PyExc_ValueError)))
      .doc() = "A file, or bytes, that evenbins did not write, or that was damaged since.";
  m.attr("FormatError").attr("__module__") = "evenbins";
  bind_filter_full(m);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const SpecError& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    }
  });

  nb::class_<FilterObject> cls(m, "Filter", nb::type_slots(slots), nb::is_weak_referenceable(),
                               "Base of all filters: a plan's integer core and its bits.");
  types.filter = cls.inc_ref().ptr();
  cls.def(
         "__init__",
         [](FilterObject* self, uint32_t kind, uint32_t hashing, uint64_t seed, uint64_t capacity,
            std::vector<uint64_t> core) {
           init_new(self, {static_cast<Kind>(kind), static_cast<Hashing>(hashing), seed, capacity, std::move(core)});
         },
         nb::arg("kind"), nb::arg("hashing"), nb::arg("seed"), nb::arg("capacity"), nb::arg("core"))
      .def("_add_from", &add_from, nb::arg("keys"), nb::arg("threads"))
      .def("_add_all_or_none", &add_all_or_none_from, nb::arg("keys"), nb::arg("limit"), nb::arg("threads"))
      .def("_add_new_from", &add_new_from, nb::arg("keys"), nb::arg("threads"),
           nb::sig("def _add_new_from(self, keys: KeySource, threads: int) -> numpy.typing.NDArray[numpy.bool_]"))
      .def("_add_new_into", &add_new_into, nb::arg("keys"), nb::arg("threads"), nb::arg("out").noconvert(),
           nb::sig("def _add_new_into(self, keys: KeySource, threads: int, out: numpy.typing.NDArray[numpy.uint8]) -> "
                   "None"))
      .def("_contains_from", &contains_from, nb::arg("keys"), nb::arg("threads"),
           nb::sig("def _contains_from(self, keys: KeySource, threads: int) -> numpy.typing.NDArray[numpy.bool_]"))
      .def("_remove", &remove_one, nb::arg("key").none(), nb::sig("def _remove(self, key: object) -> bool"))
      .def("_remove_from", &remove_from, nb::arg("keys"), nb::arg("threads"),
           nb::sig("def _remove_from(self, keys: KeySource, threads: int) -> numpy.typing.NDArray[numpy.bool_]"))
      .def("_count", &count_one, nb::arg("key").none(), nb::sig("def _count(self, key: object) -> int"))
      .def("_count_from", &count_from, nb::arg("keys"), nb::arg("threads"),
           nb::sig("def _count_from(self, keys: KeySource, threads: int) -> numpy.typing.NDArray[numpy.int64]"))
      .def("_counter_histogram",
           [](FilterObject& self) {
             counting_of(self);
             const Access access(self);
             return self.filter->counter_histogram();
           })
      .def("_merge", &merge, nb::arg("other"))
      .def("_intersect", &intersect, nb::arg("other"))
      .def("_is_subset", &is_subset, nb::arg("other"))
      .def("_is_empty", &call_alone<&Filter::is_empty, FilterObject>)
      .def("_set_bits", &call_alone<&Filter::set_bits, FilterObject>)
      .def(
          "_set_bits_histogram",
          [](FilterObject& self, uint32_t block_bits) {
            if (block_bits == 0 || block_bits % 64 != 0) throw nb::value_error("block_bits must be a multiple of 64");
            const Access access(self);
            return self.filter->set_bits_histogram(block_bits);
          },
          nb::arg("block_bits"))
      .def("_level_histogram", &call_alone<&Filter::level_histogram, FilterObject, uint32_t>, nb::arg("level"))
      .def("_state", &call_alone<&Filter::state, FilterObject>)
      .def("_tell_time", &tell_time)
      .def_prop_rw(
          "_clock", [](const FilterObject& self) { return self.clock.is_valid() ? self.clock : nb::none(); },
          [](FilterObject& self, nb::object clock) { std::swap(self.clock, clock); }, nb::arg("clock").none(),
          "What tells a filter whose keys expire the time; None: the system's clock.")
      .def(
          "_settle",
          [](FilterObject& self) {
            if (!self.filter->grows()) return;
            const Writing alone(self);
            self.filter->settle(1);
          },
          "Completes the growth of a filter, if some is under way.")
      .def_prop_ro("_most_keys", [](const FilterObject& self) { return self.filter->most_keys(); })
      .def_prop_rw(
          "_stage_keys", [](const FilterObject& self) { return self.stage_keys.load(); },
          [](FilterObject& self, uint64_t keys) { self.stage_keys = keys; },
          "Keys of a stage of a growing filter; 0 in any other filter.")
      .def_prop_ro("_hashing",
                   [](const FilterObject& self) { return static_cast<uint32_t>(self.filter->spec().hashing); });
  bind_structure(cls, "Bytes of the filter's bits, everything counted.");

  m.def(
      "bind_add", [](nb::handle type) { add_methods(type, methods); }, nb::arg("type"),
      nb::sig("def bind_add(type: type[Filter]) -> None"),
      "Gives a subclass of Filter an `add` of its own: CPython calls a method faster when it belongs to the "
      "very type of the object.");

  m.def(
      "file_header",
      [](uint32_t kind, uint32_t hashing, uint64_t seed, uint64_t capacity, std::vector<uint64_t> core,
         nb::handle payload) {
        Buffer buffer;
        if (!buffer.acquire(payload.ptr(), PyBUF_SIMPLE)) throw nb::python_error();
        const Spec spec{static_cast<Kind>(kind), static_cast<Hashing>(hashing), seed, capacity, std::move(core)};
        const auto bytes = static_cast<uint64_t>(buffer.view.len);
        if (payload_bytes(spec) != bytes) throw SpecError("the payload does not fit the plan");
        std::vector<uint8_t> header;
        {
          const GilRelease free;
          header = write_header(spec, buffer.view.buf, bytes);
        }
        return nb::bytes(reinterpret_cast<const char*>(header.data()), header.size());
      },
      nb::arg("kind"), nb::arg("hashing"), nb::arg("seed"), nb::arg("capacity"), nb::arg("core"), nb::arg("payload"),
      nb::sig("def file_header(kind: int, hashing: int, seed: int, capacity: int, core: Sequence[int], payload: "
              "object) -> bytes"),
      "The header of a file with this payload.");

  m.def(
      "file_parts",
      [](nb::handle data, bool verify) {
        Buffer buffer;
        if (!buffer.acquire(data.ptr(), PyBUF_SIMPLE)) throw nb::python_error();
        const auto* bytes = static_cast<const uint8_t*>(buffer.view.buf);
        Header header;
        {
          const GilRelease free;
          header = read_header(bytes, static_cast<uint64_t>(buffer.view.len));
          if (verify) verify_payload(header, bytes + header.payload_offset);
        }
        return nb::make_tuple(static_cast<uint32_t>(header.spec.kind), header.spec.seed, header.spec.capacity,
                              header.spec.core, header.payload_offset);
      },
      nb::arg("data"), nb::arg("verify"),
      nb::sig("def file_parts(data: object, verify: bool) -> tuple[int, int, int, list[int], int]"),
      "Kind, seed, capacity, core and the payload's offset of a file, after checking it.");

  m.def(
      "file_kind",
      [](nb::handle data) {
        Buffer buffer;
        if (!buffer.acquire(data.ptr(), PyBUF_SIMPLE)) throw nb::python_error();
        return static_cast<uint32_t>(
            read_header(static_cast<const uint8_t*>(buffer.view.buf), static_cast<uint64_t>(buffer.view.len))
                .spec.kind);
      },
      nb::arg("data"), "The kind of structure in a file's bytes, after checking the header.");
}

}  // namespace evenbins::python

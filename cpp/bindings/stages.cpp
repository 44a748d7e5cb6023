// Growing filters (src/evenbins/filters/growing.py): a key goes into the newest stage, unless some stage has it
// already. `_core.Stages` is the base of the Python class.
//
// The bits of a stage and its count of keys change in one step, with no Python code in between: an exception from a
// signal handler finds both changed or neither. The newest stage is never full: the key that fills it goes in
// together with the next stage, which Python makes beforehand. If that fails, the key is not in.
//
// Writers hold a re-entrant lock (WriterLock), which also says under the GIL whether somebody holds it: a single key
// that finds it free goes in at once, under the GIL. It takes the lock, and asks Python, only where the newest stage
// comes near its end: `_plan_ahead(keys)` works on the plan of the next stage, before the lock is taken, and returns the
// number of keys at which it wants to be called again; `_next_stage(number)` makes a stage or raises. A signal handler
// may add to the same filter while the outer call waits for `_next_stage` or polls for signals, so the stages are read
// again after both.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "answered.hpp"
#include "composite_object.hpp"
#include "module.hpp"
#include "sources.hpp"

namespace evenbins::python {
namespace {

constexpr size_t kBatch = 1024;
constexpr uint64_t kMostKeys = uint64_t{1} << 48;  // of a stage; counts of filters merged again and again stop there

// A re-entrant lock of Python, with a count of those who hold it that whoever has the GIL can read.
class WriterLock {
 public:
  WriterLock() : lock_(call_object(nb::module_::import_("threading").attr("RLock"))) {}
  void acquire() {  // waiting, it runs signal handlers
    call_object(lock_.attr("acquire"));
    ++depth_;
  }
  void release() {
    --depth_;
    call_object(lock_.attr("release"));
  }
  bool is_free() const { return depth_ == 0; }

 private:
  nb::object lock_;
  uint64_t depth_ = 0;
};

class Locked {
 public:
  explicit Locked(WriterLock& lock) : lock_(lock) { lock.acquire(); }
  ~Locked() {
    const nb::error_scope pending;  // an exception may be on its way
    lock_.release();
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  WriterLock& lock_;
};

struct StagesObject : CompositeObject {
  explicit StagesObject(uint64_t seed)
      : CompositeObject(seed), lock_owner(nb::cast(new WriterLock, nb::rv_policy::take_ownership)) {
    lock = nb::inst_ptr<WriterLock>(lock_owner);
  }
  ~StagesObject() { Recent<StagesObject>::forget(this); }

  void set_parts(nb::tuple all) {
    std::vector<OneKey> keys;
    keys.reserve(all.size());
    for (nb::handle part : all) keys.push_back(filter_behind(part).one);
    CompositeObject::set_parts(std::move(all));
    ones.swap(keys);
    next_stop = filters.empty() ? 0 : capacity() / 2;
  }
  FilterObject& newest() const { return *filters.back(); }
  uint64_t capacity() const { return newest().filter->most_keys(); }
  void require_stage() const {
    if (filters.empty()) throw std::runtime_error("this filter has no stage: its __init__() has not been called");
  }

  std::vector<OneKey> ones;  // of the stages
  uint64_t next_stop = 0;    // a single key waits for Python when the newest stage has so many keys
  nb::object lock_owner;
  WriterLock* lock;
};

nb::tuple extended(const nb::tuple& parts, nb::handle next) {
  nb::list all;
  for (nb::handle part : parts) all.append(part);
  all.append(next);
  return nb::tuple(all);
}

// Leaves of the digests those that no stage has: places[i] says where digests[i] stood.
size_t keep_absent(const std::vector<const Filter*>& stages, uint64_t* digests, uint32_t* places, size_t n) {
  uint8_t present[kBatch];
  for (const Filter* stage : stages) {
    stage->contains_many(digests, n, present);
    size_t absent = 0;
    for (size_t i = 0; i < n; ++i) {
      digests[absent] = digests[i], places[absent] = places[i];
      absent += !present[i];
    }
    n = absent;
  }
  return n;
}

// Adds the keys that are new, in order, as long as the newest stage stays below its capacity; out[i] = 1 for them, 0
// for the others. Returns how many keys are done: all, or the place of a new key that would fill the stage.
size_t add_below_capacity(const std::vector<const Filter*>& older, FilterObject& newest, const uint64_t* digests,
                          size_t n, uint8_t* out) {
  Filter& filter = *newest.filter;
  uint64_t fresh[kBatch];
  uint32_t places[kBatch];
  uint8_t added[kBatch];
  for (size_t start = 0; start < n; start += kBatch) {
    size_t left = std::min(kBatch, n - start);
    for (size_t i = 0; i < left; ++i) fresh[i] = digests[start + i], places[i] = static_cast<uint32_t>(i);
    left = keep_absent(older, fresh, places, left);
    std::fill_n(out + start, std::min(kBatch, n - start), uint8_t{0});
    const uint64_t keys = newest.stage_keys, limit = filter.most_keys() - 1;
    uint64_t room = keys < limit ? limit - keys : 0;
    size_t seen = 0;
    while (seen < left && room > 0) {
      const size_t step = std::min<size_t>(left - seen, room), treated = filter.add_new_many(fresh + seen, step, added);
      for (size_t i = 0; i < treated; ++i) {
        out[start + places[seen + i]] = added[i];
        room -= added[i];
      }
      seen += treated;
      if (treated < step) break;
    }
    newest.stage_keys = std::max(keys, limit - room);
    for (; seen < left; ++seen)
      if (!filter.contains(fresh[seen])) return start + places[seen];
  }
  return n;
}

// The same by several threads: they ask the older stages, and share the newest where its family can be divided.
class ThreadedAdd {
 public:
  size_t operator()(const std::vector<const Filter*>& older, FilterObject& newest, const uint64_t* digests, size_t n,
                    uint8_t* out, uint32_t threads) {
    if (threads == 1 || n < kWorthThreads) return add_below_capacity(older, newest, digests, n, out);
    fresh_.resize(n), places_.resize(n), absent_.resize((n + kBatch - 1) / kBatch), added_.resize(n);
    for_stretches(n, threads, kBatch, go_on, [&](uint64_t start, uint64_t count) {
      for (uint64_t i = start; i < start + count; ++i) fresh_[i] = digests[i], places_[i] = static_cast<uint32_t>(i);
      absent_[start / kBatch] = keep_absent(older, fresh_.data() + start, places_.data() + start, count);
    });
    size_t left = 0;
    for (size_t start = 0; start < n; start += kBatch) {
      const size_t count = absent_[start / kBatch];
      std::copy_n(fresh_.begin() + start, count, fresh_.begin() + left);
      std::copy_n(places_.begin() + start, count, places_.begin() + left);
      left += count;
    }
    std::fill_n(out, n, uint8_t{0});
    for (size_t seen = 0; seen < left;) {
      const size_t step = step_of(newest, left - seen);
      const size_t treated = step < kWorthThreads ? add_below_capacity({}, newest, fresh_.data() + seen,
                                                                       std::min(left - seen, kBatch), added_.data())
                                                  : add_new(newest, fresh_.data() + seen, step, threads);
      for (size_t i = 0; i < treated; ++i) out[places_[seen + i]] = added_[i];
      seen += treated;
      if (treated == 0) return places_[seen];
    }
    return n;
  }

 private:
  static constexpr size_t kWorthThreads = 1 << 14;  // keys
  static bool go_on() { return true; }

  // So many keys can be added whatever they are.
  static size_t step_of(const FilterObject& newest, size_t left) {
    const uint64_t keys = newest.stage_keys, limit = newest.filter->most_keys() - 1;
    return keys < limit ? std::min<uint64_t>(left, limit - keys) : 0;
  }
  size_t add_new(FilterObject& newest, const uint64_t* digests, size_t n, uint32_t threads) {
    const uint64_t keys = newest.stage_keys;
    newest.stage_keys = keys + n;  // if memory ends in the middle, the count is too high, and never too low
    size_t treated = n;
    try {
      add_new_all(*newest.filter, DigestSpan(digests, n), added_.data(), threads, go_on);
    } catch (const FilterFull& full) {
      treated = full.index;
    }
    newest.stage_keys = keys + std::count(added_.begin(), added_.begin() + treated, 1);
    return treated;
  }

  std::vector<uint64_t> fresh_;   // digests that no older stage has
  std::vector<uint32_t> places_;  // where they stood
  std::vector<size_t> absent_;    // how many there are in each batch
  std::vector<uint8_t> added_;
};

// Adds the keys; `done` counts them, also when it throws. out[i] = 1 for those that were new. The caller holds the lock.
void add_digests(nb::handle owner, StagesObject& object, ThreadedAdd& add, const uint64_t* digests, size_t n,
                 uint8_t* out, bool let_others_run, uint32_t threads, size_t& done) {
  while (done < n) {
    object.require_stage();
    const nb::tuple parts = object.parts;  // stay alive while others run
    FilterObject& newest = object.newest();
    std::vector<const Filter*> older;
    for (size_t i = parts.size() - 1; i-- > 0;) older.push_back(object.filters[i]->filter.get());
    done += in_turn(newest, newest.may_write() && !let_others_run,
                    [&] { return add(older, newest, digests + done, n - done, out + done, threads); });
    if (done == n) return;
    const nb::object next = call_object(owner.attr("_next_stage"), nb::int_(parts.size()));
    if (!object.parts.is(parts)) continue;  // a signal handler added keys meanwhile
    object.set_parts(extended(parts, next));
    in_turn(newest, newest.may_write(), [&] {
      if (newest.filter->add(digests[done]) == AddOutcome::full) return;  // the next stage takes it
      ++newest.stage_keys;
      out[done++] = 1;
    });
  }
}

// Has Python work on the plan of the next stage if `keys` more may fill the newest; the lock need not be held.
void plan_ahead(nb::handle owner, StagesObject& object, uint64_t keys) {
  const nb::tuple parts = object.parts;
  const uint64_t in = object.newest().stage_keys, last = object.capacity() - 1;
  if (in + keys < object.next_stop) return;
  const auto stop = nb::cast<uint64_t>(call_object(owner.attr("_plan_ahead"), nb::int_(in), nb::int_(keys)));
  if (object.parts.is(parts)) object.next_stop = std::min(stop, last);
}

class GrowingSink final : public AnsweredSink {  // without answers_wanted only those of the last piece are there
 public:
  GrowingSink(nb::handle owner, StagesObject& object, uint32_t threads, bool answers_wanted)
      : owner_(owner), object_(object), threads_(threads), answers_wanted_(answers_wanted) {}
  uint64_t take_all(const Digests& keys, const Pulse& pulse) override {
    prepare(keys.size());
    const Locked locked(*object_.lock);
    return take_in_pieces(keys, pulse, threads_ == 1 ? kPiece : 4 * kPiece, threads_,
                          [&](uint64_t start, const uint64_t* digests, size_t n) { add(start, digests, n, true); });
  }
  void take(const uint64_t* digests, size_t n, bool let_others_run) override {
    prepare(n);
    const Locked locked(*object_.lock);
    add(0, digests, n, let_others_run);
  }

 private:
  static constexpr uint64_t kPiece = 1 << 16;  // keys

  template <typename F>
  void with_position(uint64_t before, const size_t& done, F&& call) {
    try {
      call();
    } catch (nb::python_error& error) {
      error.restore();
      in = taken + before + done;
      raise_interrupted(in, verb());
    } catch (...) {
      in = taken + before + done;
      throw;
    }
    in = taken + before + done;
  }
  void prepare(uint64_t keys) {
    const size_t none = 0;
    with_position(0, none, [&] {
      object_.require_stage();
      plan_ahead(owner_, object_, keys);
    });
  }
  void add(uint64_t before, const uint64_t* digests, size_t n, bool let_others_run) {
    size_t done = 0;
    if (!answers_wanted_) answers.truncate(0);
    uint8_t* out = answers.extend(n);
    with_position(before, done,
                  [&] { add_digests(owner_, object_, add_, digests, n, out, let_others_run, threads_, done); });
  }

  nb::handle owner_;
  StagesObject& object_;
  uint32_t threads_;
  bool answers_wanted_;
  ThreadedAdd add_;
};

// --- single keys ----------------------------------------------------------------------------------------------

StagesObject* object_of(PyObject* self) { return Recent<StagesObject>::of(self); }

enum class Single : uint8_t { present, added, rare };

EVENBINS_INLINE Single add_to_newest(StagesObject& object, FilterObject& newest, uint64_t digest) {
  const size_t older = object.ones.size() - 1;
  for (size_t i = older; i-- > 0;)
    if (object.ones[i].contains(digest)) return Single::present;
  const uint64_t keys = newest.stage_keys.load(std::memory_order_relaxed);
  if (keys >= object.next_stop) [[unlikely]]
    return newest.one.contains(digest) ? Single::present : Single::rare;
  switch (newest.one.add_new(digest)) {
    case AddOutcome::present: return Single::present;
    case AddOutcome::full: return Single::rare;
    case AddOutcome::added: break;
  }
  newest.stage_keys.store(keys + 1, std::memory_order_relaxed);
  return Single::added;
}

// The same for a stage that grows, and may find no memory: the key is not in then, and the rare path says why.
EVENBINS_NOINLINE Single add_to_growing(StagesObject& object, FilterObject& newest, uint64_t digest) {
  try {
    return add_to_newest(object, newest, digest);
  } catch (const std::bad_alloc&) {
    return Single::rare;
  }
}

// Adds a key that nothing stands in the way of, under the GIL.
EVENBINS_INLINE Single add_at_once(StagesObject& object, uint64_t digest) {
  if (!object.lock->is_free() || object.filters.empty()) [[unlikely]]
    return Single::rare;
  FilterObject& newest = object.newest();
  if (newest.read_only || !newest.may_write()) [[unlikely]]
    return Single::rare;
  return newest.lookups_wait ? add_to_growing(object, newest, digest) : add_to_newest(object, newest, digest);
}

EVENBINS_COLD PyObject* add_rarely(PyObject* self, StagesObject& object, uint64_t digest, bool answer_wanted) {
  return with_python_errors([&]() -> PyObject* {
    object.require_stage();
    require_writable(object.newest());
    plan_ahead(self, object, 0);
    const Locked locked(*object.lock);
    ThreadedAdd add;
    size_t done = 0;
    uint8_t added = 0;
    add_digests(self, object, add, &digest, 1, &added, false, 1, done);
    if (answer_wanted) return PyBool_FromLong(added);
    Py_RETURN_NONE;
  });
}

int slot_contains(PyObject* self, PyObject* key) {
  StagesObject* object = object_of(self);
  uint64_t digest;
  if (object == nullptr || !digest_of(key, object->hasher, digest)) return -1;
  for (size_t i = object->ones.size(); i-- > 0;) {
    FilterObject& stage = *object->filters[i];
    const int found = stage.lookups_wait ? contains_digest(stage, digest) : object->ones[i].contains(digest);
    if (found != 0) return found;
  }
  return 0;
}

PyObject* method_add(PyObject* self, PyObject* key) {
  StagesObject* object = object_of(self);
  uint64_t digest;
  if (object == nullptr || !digest_of(key, object->hasher, digest)) return nullptr;
  if (add_at_once(*object, digest) == Single::rare) [[unlikely]]
    return add_rarely(self, *object, digest, false);
  Py_RETURN_NONE;
}

PyObject* method_add_new(PyObject* self, PyObject* key) {
  StagesObject* object = object_of(self);
  uint64_t digest;
  if (object == nullptr || !digest_of(key, object->hasher, digest)) return nullptr;
  const Single outcome = add_at_once(*object, digest);
  if (outcome == Single::rare) [[unlikely]]
    return add_rarely(self, *object, digest, true);
  return PyBool_FromLong(outcome == Single::added);
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
    {Py_sq_contains, reinterpret_cast<void*>(slot_contains)},
    {Py_tp_methods, methods},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_parts<StagesObject>)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_parts<StagesObject>)},
    {0, nullptr},
};

// --- the filter as a whole ------------------------------------------------------------------------------------

void add_from(nb::pointer_and_handle<StagesObject> self, KeySource& keys, uint32_t threads) {
  GrowingSink sink(self.h, *self.p, threads, false);
  keys.run(self.p->hasher, sink);
}

nb::object add_new_from(nb::pointer_and_handle<StagesObject> self, KeySource& keys, uint32_t threads) {
  GrowingSink sink(self.h, *self.p, threads, true);
  return answers_from(keys, self.p->hasher, sink);
}

// Bulk look-ups in all stages, without the GIL, until the end of the scope. Whoever changes a stage holds no other one
// and waits for no reader of another one, so nobody waits for ever.
class LookingUpStages {
 public:
  explicit LookingUpStages(const std::vector<FilterObject*>& stages) {
    try {
      for (FilterObject* stage : stages) {
        if (!stage->lookups_wait) continue;
        if (!readings_.empty()) between_.push_back(std::make_unique<GilAcquire>());
        readings_.push_back(std::make_unique<Reading>(*stage));
      }
      if (readings_.empty()) free_.emplace();
    } catch (...) {
      end();
      throw;
    }
  }
  ~LookingUpStages() { end(); }
  LookingUpStages(const LookingUpStages&) = delete;
  LookingUpStages& operator=(const LookingUpStages&) = delete;

 private:
  void end() {
    while (!readings_.empty()) {
      if (between_.size() == readings_.size()) between_.pop_back();
      readings_.pop_back();
    }
  }
  std::vector<std::unique_ptr<Reading>> readings_;
  std::vector<std::unique_ptr<GilAcquire>> between_;  // each reading but the first begins with the GIL
  std::optional<GilRelease> free_;
};

nb::object contains_from(StagesObject& object, KeySource& keys, uint32_t threads) {
  const nb::tuple parts = object.parts;  // stay alive while others run
  const std::vector<FilterObject*> filters = object.filters;
  const bool wait = std::any_of(filters.begin(), filters.end(), [](const FilterObject* f) { return f->lookups_wait; });
  std::vector<const Filter*> stages;
  for (size_t i = object.filters.size(); i-- > 0;) stages.push_back(object.filters[i]->filter.get());
  const auto ask = [&](uint64_t* digests, size_t n, uint8_t* out) {  // up to kBatch, which it overwrites
    uint32_t places[kBatch];
    for (size_t i = 0; i < n; ++i) places[i] = static_cast<uint32_t>(i);
    std::fill_n(out, n, uint8_t{1});
    const size_t absent = keep_absent(stages, digests, places, n);
    for (size_t i = 0; i < absent; ++i) out[places[i]] = 0;
  };
  return look_up_from<bool, uint8_t>(
      keys, object.hasher,
      [&](const Digests& all, uint8_t* out, const Pulse& pulse) {
        constexpr uint64_t kStretch = 16 * kBatch;
        return for_stretches(all.size(), threads, kStretch, pulse, [&](uint64_t start, uint64_t count) {
          uint64_t digests[kBatch];
          for (uint64_t at = start, n; at < start + count; at += n) {
            n = std::min<uint64_t>(kBatch, start + count - at);
            all.read(at, n, digests);
            ask(digests, n, out + at);
          }
        });
      },
      [&](const uint64_t* some, size_t count, uint8_t* out) {
        uint64_t digests[kBatch];
        for (size_t at = 0, n; at < count; at += n) {
          n = std::min(kBatch, count - at);
          std::copy_n(some + at, n, digests);
          ask(digests, n, out + at);
        }
      },
      [&] { return LookingUpStages(filters); }, wait);
}

// Merges stage by stage, all or none; `theirs` belongs to nobody else, and stages that the filter does not have yet are
// adopted from it. The caller holds the lock. Returns false, and does nothing, if a signal handler has changed the
// filter since the caller read its stages `mine` and made, or did not make, the stage `next`, which follows the newest
// if that becomes full.
bool merge(StagesObject& object, nb::tuple mine, nb::tuple theirs, nb::handle next) {
  const size_t stages = std::max(mine.size(), theirs.size()), common = std::min(mine.size(), theirs.size());
  uint64_t keys = 0, capacity = 0;
  for (const nb::tuple& parts : {mine, theirs}) {
    if (parts.size() < stages) continue;
    const FilterObject& newest = filter_behind(parts[stages - 1]);
    keys += newest.stage_keys;
    capacity = newest.filter->most_keys();
  }
  if (!object.parts.is(mine) || (keys >= capacity) == next.is_none()) return false;
  nb::list all;
  for (nb::handle part : mine) all.append(part);
  for (size_t i = mine.size(); i < theirs.size(); ++i) all.append(theirs[i]);
  if (!next.is_none()) all.append(next);
  nb::tuple merged(all);
  std::vector<FilterObject*> into, from;
  for (size_t i = 0; i < common; ++i) {
    into.push_back(&filter_behind(mine[i]));
    from.push_back(&filter_behind(theirs[i]));
  }
  MergeOfParts merge_of_parts(into, from);
  object.set_parts(std::move(merged));
  for (size_t i = 0; i < common; ++i)
    into[i]->stage_keys = std::min(into[i]->stage_keys + from[i]->stage_keys, kMostKeys);
  merge_of_parts.run();
  return true;
}

}  // namespace

void bind_stages(nb::module_& m) {
  nb::class_<WriterLock>(m, "WriterLock", "A re-entrant lock that the writers of a growing filter hold.")
      .def(nb::init<>())
      .def("__enter__", &WriterLock::acquire)
      .def(
          "__exit__", [](WriterLock& self, nb::args) { self.release(); },
          nb::sig("def __exit__(self, *args: object) -> None"));
  nb::class_<StagesObject>(m, "Stages", nb::type_slots(slots), nb::is_weak_referenceable(),
                           "Base of growing filters: the stages, and the calls for single keys.")
      .def(nb::init<uint64_t>(), nb::arg("seed"))
      .def_prop_ro("_seed", [](const StagesObject& self) { return self.hasher.seed; })
      .def_prop_ro(
          "_writing", [](const StagesObject& self) { return self.lock_owner; },
          nb::sig("def _writing(self) -> WriterLock"))
      .def_prop_rw(
          "_stages", [](const StagesObject& self) { return self.parts; }, &StagesObject::set_parts,
          nb::for_getter(nb::sig("def _stages(self) -> tuple[Filter, ...]")),
          nb::for_setter(nb::sig("def _stages(self, stages: tuple[Filter, ...], /) -> None")),
          "The stages, replaced as a whole.")
      .def("_add_from", &add_from, nb::arg("keys"), nb::arg("threads"),
           nb::sig("def _add_from(self, keys: KeySource, threads: int) -> None"))
      .def("_add_new_from", &add_new_from, nb::arg("keys"), nb::arg("threads"),
           nb::sig("def _add_new_from(self, keys: KeySource, threads: int) -> numpy.typing.NDArray[numpy.bool_]"))
      .def("_contains_from", &contains_from, nb::arg("keys"), nb::arg("threads"),
           nb::sig("def _contains_from(self, keys: KeySource, threads: int) -> numpy.typing.NDArray[numpy.bool_]"))
      .def("_merge_stages", &merge, nb::arg("mine"), nb::arg("theirs"), nb::arg("next").none(),
           nb::sig("def _merge_stages(self, mine: tuple[Filter, ...], theirs: tuple[Filter, ...], "
                   "next: Filter | None) -> bool"),
           "Merges stages into those of the filter, unless these have changed; `next` follows the newest if that "
           "becomes full.");
  m.def(
      "bind_add_to_stages", [](nb::handle type) { add_methods(type, methods); }, nb::arg("type"),
      nb::sig("def bind_add_to_stages(type: type[Stages]) -> None"), "The same as bind_add, for growing filters.");
}

}  // namespace evenbins::python

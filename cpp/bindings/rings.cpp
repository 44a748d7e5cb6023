// The Python class `_core.Ring`: the base of evenbins.HashRing (src/evenbins/rings).
//
//     one key     raw methods: node, assign, release, _locate; they give the name's own str object, nothing is made
//     many keys   int32 numbers, and the names that they stand for, of one moment (−1: none); the GIL released
//     churn       by name; each call gives its moves as [(digest, old, new)]
//
// Readers and writers: readers.hpp. So the bound holds whatever threads do: a placement is alone with the ring.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <array>
#include <exception>

#include "evenbins/digest_stretches.hpp"
#include "evenbins/ring.hpp"
#include "files.hpp"
#include "keys.hpp"
#include "module.hpp"
#include "readers.hpp"
#include "recent.hpp"
#include "sources.hpp"
#include "structure.hpp"

namespace evenbins::python {
namespace {

// Names are Python objects, and nodes come and go while other threads work without the GIL. So the core knows a node by
// a number in `labels`, which changes and is read under the GIL only. Every call that turns numbers into names holds a
// `Pin` from before it asks the ring until it has the names; the number of a node that left, and its name, are given up
// once all calls have ended that may have seen it. Calls are counted in two periods: the next begins when all calls of
// the one before the current have ended, and then numbers that were retired in that one are free.
struct RingObject : ReadersAndWriter {
  explicit RingObject(std::unique_ptr<Ring> r) : ring(std::move(r)), hasher(ring->config().seed) {
    for (const uint32_t id : ring->order()) ring->set_label(id, new_label(*ring->node(id).name));
  }
  ~RingObject() { Recent<RingObject>::forget(this); }
  Ring& structure() const { return *ring; }
  uint32_t new_label(const std::string& name) {  // under the GIL
    nb::object text = nb::str(name.data(), name.size());
    for (std::vector<uint32_t>* list : {&retired[0], &retired[1], &free_labels})  // so that `retire` cannot fail
      if (list->capacity() <= labels.size()) list->reserve(2 * labels.size() + 8);
    names_changed();
    if (free_labels.empty()) {
      labels.push_back(std::move(text));
      return static_cast<uint32_t>(labels.size() - 1);
    }
    const uint32_t label = free_labels.back();
    free_labels.pop_back();
    labels[label] = std::move(text);
    return label;
  }
  void retire(uint32_t label) {  // under the GIL
    retired[period & 1].push_back(label);
    give_up();
  }
  void give_up() {
    for (int i = 0; i < 2 && calls[(period + 1) & 1] == 0; ++i) {
      std::vector<uint32_t>& old = retired[(period + 1) & 1];
      for (const uint32_t label : old) {
        labels[label] = nb::none();
        free_labels.push_back(label);
      }
      if (!old.empty()) names_changed();
      old.clear();
      if (retired[period & 1].empty()) return;
      ++period;
    }
  }
  void names_changed() {
    name_array = nb::object();
    ++name_changes;
  }
  uint32_t label(uint32_t id) const { return ring->node(id).label; }  // with exclusive use, or under the GIL
  PyObject* name(uint32_t label) const { return Py_NewRef(labels[label].ptr()); }
  uint64_t label_bytes() const {  // under the GIL
    uint64_t bytes = sizeof(*this) + sizeof(nb::object) * labels.capacity();
    bytes += 4 * (free_labels.capacity() + retired[0].capacity() + retired[1].capacity());
    for (const nb::object& each : labels)
      if (!each.is_none()) bytes += sizeof(PyASCIIObject) + 1 + static_cast<uint64_t>(PyUnicode_GET_LENGTH(each.ptr()));
    return bytes;
  }
  // An array of all names by their numbers, and None, for the number −1. Call it while a Pin is held.
  nb::object names_by_label() {
    if (name_array.is_valid()) return name_array;
    nb::list all;
    for (const nb::object& each : labels) all.append(each);
    all.append(nb::none());
    const uint64_t changes = name_changes;
    nb::object made = nb::module_::import_("numpy").attr("array")(all, nb::arg("dtype") = "O");
    if (changes == name_changes) name_array = made;
    return made;
  }

  std::unique_ptr<Ring> ring;
  Hasher hasher;
  std::vector<nb::object> labels;
  std::vector<uint32_t> free_labels;
  std::array<std::vector<uint32_t>, 2> retired;
  std::array<uint64_t, 2> calls{};
  uint64_t period = 0, name_changes = 0;
  nb::object name_array;  // or nothing, if names have changed
};

// Keeps the numbers of nodes valid. Must be made and end with the GIL held.
class Pin {
 public:
  explicit Pin(RingObject& object) : object_(object), period_(object.period & 1) { ++object.calls[period_]; }
  ~Pin() {
    if (--object_.calls[period_] == 0) object_.give_up();
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

 private:
  RingObject& object_;
  size_t period_;
};

struct NoSuchNode : std::out_of_range {
  using std::out_of_range::out_of_range;
};

void set_ring_error(const char* name, const char* text, int64_t assigned = -1) {
  const nb::object type = nb::module_::import_("evenbins.rings.errors").attr(name);
  const nb::object error = type(text);
  if (assigned >= 0) error.attr("assigned") = assigned;
  PyErr_SetObject(type.ptr(), error.ptr());
}

// Runs f; what it throws becomes a Python exception, and false is returned.
template <typename F>
bool guarded(F&& f) {
  try {
    f();
    return true;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const RingFull& error) {
    set_ring_error("RingFullError", error.what());
  } catch (const NoNodes& error) {
    set_ring_error("NoNodesError", error.what());
  } catch (const NoSuchNode& error) {
    PyErr_SetObject(PyExc_KeyError, nb::str(error.what()).ptr());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return false;
}
template <typename F>
void guarded_call(F&& f) {
  if (!guarded(f)) throw nb::python_error();
}

// ---- one key --------------------------------------------------------------------------------------------

RingObject* object_of(PyObject* self) { return Recent<RingObject>::of(self); }

constexpr uint32_t kNobody = Ring::kNone;

constexpr const char* kNobodyServes = "no node of the ring serves: use add_node, or mark_up if all are down or drained";

PyObject* no_nodes() {
  set_ring_error("NoNodesError", kNobodyServes);
  return nullptr;
}

PyObject* method_node(PyObject* self, PyObject* key) {
  RingObject* object = object_of(self);
  uint64_t digest;
  if (object == nullptr || !digest_of(key, object->hasher, digest)) return nullptr;
  const Pin pin(*object);
  uint32_t label = kNobody;
  const auto find = [&] {
    if (const uint32_t id = object->ring->first(digest); id != Ring::kNone) label = object->label(id);
  };
  if (object->may_read()) [[likely]]
    find();
  else if (!guarded([&] { in_turn(*object, false, find); }))
    return nullptr;
  return label == kNobody ? no_nodes() : object->name(label);
}

PyObject* method_assign(PyObject* self, PyObject* key) {
  RingObject* object = object_of(self);
  uint64_t digest;
  if (object == nullptr || !digest_of(key, object->hasher, digest)) return nullptr;
  const Pin pin(*object);
  uint32_t label = kNobody;
  bool has_moved = false;
  const bool done = guarded([&] {
    in_turn(*object, object->may_write(), [&] {
      label = object->label(object->ring->assign(digest));
      has_moved = object->ring->has_lazy_moves();
    });
  });
  if (!done) return nullptr;
  if (has_moved) [[unlikely]] {
    PyObject* result = call_python([&] { return PyObject_CallMethod(self, "_report_lazy_moves", nullptr); });
    if (result == nullptr) return nullptr;
    Py_DECREF(result);
  }
  return object->name(label);
}

PyObject* method_locate(PyObject* self, PyObject* key) {
  RingObject* object = object_of(self);
  uint64_t digest;
  if (object == nullptr || !digest_of(key, object->hasher, digest)) return nullptr;
  const Pin pin(*object);
  uint32_t label = kNobody;
  const bool done = guarded([&] {
    read_in_turn(*object, [&] {
      if (const uint32_t id = object->ring->locate(digest); id != Ring::kNone) label = object->label(id);
    });
  });
  if (!done) return nullptr;
  return label == kNobody ? Py_NewRef(Py_None) : object->name(label);
}

PyObject* method_release(PyObject* self, PyObject* key) {
  RingObject* object = object_of(self);
  uint64_t digest;
  if (object == nullptr || !digest_of(key, object->hasher, digest)) return nullptr;
  bool was_there = false;
  if (!guarded([&] { in_turn(*object, object->may_write(), [&] { was_there = object->ring->release(digest); }); }))
    return nullptr;
  return PyBool_FromLong(was_there);
}

// `name in ring`: as in a set of strings, anything else is not in it.
int slot_contains(PyObject* self, PyObject* name) {
  RingObject* object = object_of(self);
  if (object == nullptr) return -1;
  if (!PyUnicode_Check(name)) return 0;
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(name, &size);
  if (text == nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return -1;
    PyErr_Clear();  // a lone surrogate, which no name has
    return 0;
  }
  int found = -1;
  guarded([&] {
    const std::string wanted(text, static_cast<size_t>(size));
    found = read_in_turn(*object, [&] { return object->ring->find(wanted) != Ring::kNone; });
  });
  return found;
}

// `len(ring)`: nodes.
Py_ssize_t slot_length(PyObject* self) {
  RingObject* object = object_of(self);
  Py_ssize_t size = -1;
  if (object != nullptr)
    guarded(
        [&] { size = static_cast<Py_ssize_t>(read_in_turn(*object, [&] { return object->ring->order().size(); })); });
  return size;
}

PyMethodDef methods[] = {
    {"node", method_node, METH_O,
     "node($self, key, /)\n--\n\nThe node of a key, without state: the first node of its probe order that serves."},
    {"get_node", method_node, METH_O, "get_node($self, key, /)\n--\n\nThe same as `node`, as other libraries call it."},
    {"assign", method_assign, METH_O,
     "assign($self, key, /)\n--\n\nPlace a key, if it is not assigned yet, and give its node. The limit holds."},
    {"release", method_release, METH_O, "release($self, key, /)\n--\n\nLet a key go; tells whether it was assigned."},
    {"_locate", method_locate, METH_O, "_locate($self, key, /)\n--\n\nThe node of an assigned key, or None."},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_sq_contains, reinterpret_cast<void*>(slot_contains)},
    {Py_mp_length, reinterpret_cast<void*>(slot_length)},
    {Py_mp_subscript, reinterpret_cast<void*>(method_node)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

// ---- many keys ------------------------------------------------------------------------------------------

struct Stopped {  // a bulk assignment, by a key that found no place
  bool full;
  std::string text;
};

// Digests in, one answer for each: op(digests, n, out) does n of them, or fewer and sets `stopped`.
template <typename Answer, typename Op>
class RingSink final : public Sink {
 public:
  RingSink(RingObject& object, bool writes, bool indices, uint32_t threads, Op op)
      : object_(object), writes_(writes), indices_(indices), threads_(threads), op_(std::move(op)) {}

  uint64_t take_all(const Digests& keys, const Pulse& pulse) override {
    if (writes_) {
      const Writing alone(object_);
      return run(keys, pulse);
    }
    const Reading reading(object_);
    Answer* const out = room_for(keys);
    return for_digests(keys, threads_, pulse, [&](uint64_t start, size_t n, const uint64_t* digests) {
      std::optional<Stopped> never;
      op_(digests, n, out + start, never);
    });
  }
  void take(const uint64_t* digests, size_t n, bool let_others_run) override {
    const bool at_once = !let_others_run && (writes_ ? object_.may_write() : object_.may_read());
    in_turn(object_, at_once, [&] {
      Answer* out = answers.extend(n);
      count_ += n;
      step(digests, n, out);
      if (indices_) take_snapshot();
    });
    if (stopped) throw *stopped;
  }
  // From numbers of names to positions among the nodes of the moment of the last answer; −1 for a node that has left
  // since (an iterable is read in several pieces, an array or an Arrow chunk in one).
  void number_by_position() {
    std::vector<int32_t> positions(object_.labels.size(), -1);
    for (size_t i = 0; i < order_.size(); ++i) positions[order_[i]] = static_cast<int32_t>(i);
    Answer* const end = answers.extend(0);
    for (Answer* each = end - count_; each != end; ++each)
      if (*each >= 0) *each = static_cast<Answer>(positions[static_cast<size_t>(*each)]);
  }
  Answers<Answer> answers;
  std::optional<Stopped> stopped;

 private:
  static constexpr uint64_t kStep = 1 << 12, kRound = 1 << 17, kSample = 61;  // kSample: a word that nothing else draws
  static constexpr int kSampleBits = 5;

  void step(const uint64_t* digests, size_t n, Answer* out) {
    const size_t done = op_(digests, n, out, stopped);
    if (stopped) taken += done;
  }
  void take_snapshot() {
    const Ring& ring = *object_.ring;
    if (has_snapshot_ && version_ == ring.version()) return;
    order_.clear();
    for (const uint32_t id : ring.order()) order_.push_back(object_.label(id));
    version_ = ring.version();
    has_snapshot_ = true;
  }
  // Makes room in the ring for the keys from `first` on that are new, repeated or not. Of how many there are it counts
  // a thirty-second, chosen by a hash: an extra reading of the keys (1 to 10 ns each), where to grow in many steps
  // takes 20 to 40 ns a key. Returns false if the caller is to stop.
  bool make_room(const Digests& keys, uint64_t first, const Pulse& pulse, std::vector<uint64_t>& digests) {
    if (keys.size() - first < 2 * kStep) return true;
    const Ring& ring = *object_.ring;
    try {
      KeyMap sample;
      for (uint64_t start = first; start < keys.size(); start += digests.size()) {
        std::optional<BadKey> bad;
        bool was_stopped = false;
        const uint64_t wanted = std::min(digests.size(), keys.size() - start);
        const uint64_t n = read_digests(keys, start, wanted, digests.data(), threads_, pulse, bad, was_stopped);
        if (was_stopped) return false;
        if (bad) return true;  // the keys before it come one by one
        for (uint64_t i = 0; i < n; ++i) {
          const uint64_t digest = digests[i];
          if (splitmix(digest, kSample) >> (64 - kSampleBits) != 0) continue;
          KeyMapEntry* place = sample.probe(digest);
          if (place->node == 0 && ring.locate(digest) == Ring::kNone) sample.insert(digest, place).node = 1;
        }
      }
      object_.ring->make_room_for(std::min(sample.size() << kSampleBits, keys.size() - first));
    } catch (const std::bad_alloc&) {  // it may do with less, and says so if not
    }
    return true;
  }
  Answer* room_for(const Digests& keys) {  // for all answers, before anything is done
    if (indices_) take_snapshot();
    Answer* const out = answers.extend(keys.size());
    count_ += keys.size();
    return out;
  }
  // In the order of the keys: what a key finds depends on those before it. Threads read them.
  uint64_t run(const Digests& keys, const Pulse& pulse) {
    Answer* const out = room_for(keys);
    std::vector<uint64_t> digests(std::min<uint64_t>(keys.size(), threads_ > 1 ? kRound : kStep));
    bool may_grow = std::is_same_v<Answer, int32_t>;  // an assignment
    for (uint64_t start = 0; start < keys.size(); start += digests.size()) {
      const uint64_t wanted = std::min<uint64_t>(digests.size(), keys.size() - start);
      if (may_grow && !object_.ring->has_room_for(wanted)) {
        if (!make_room(keys, start, pulse, digests)) return start;
        may_grow = false;
      }
      std::optional<BadKey> bad;
      bool was_stopped = false;
      const uint64_t n = read_digests(keys, start, wanted, digests.data(), threads_, pulse, bad, was_stopped);
      if (was_stopped) return start;
      step(digests.data(), n, out + start);  // those before a bad key are to be taken
      if (stopped) {
        taken += start;
        throw *stopped;
      }
      if (bad) throw *bad;
    }
    return keys.size();
  }

  RingObject& object_;
  bool writes_, indices_;
  uint32_t threads_;
  Op op_;
  uint64_t count_ = 0, version_ = 0;
  bool has_snapshot_ = false;
  std::vector<uint32_t> order_;  // labels of the nodes, in their order
};

template <typename Answer, typename Op>
void run_sink(RingObject& self, KeySource& keys, RingSink<Answer, Op>& sink) {
  try {
    keys.run(self.hasher, sink);
  } catch (const Stopped& stopped) {
    const std::string text = "keys[" + std::to_string(sink.taken) + "]: " + stopped.text +
                             (stopped.full ? " by it" : "") + "; the keys before it are assigned (error.assigned)";
    set_ring_error(stopped.full ? "RingFullError" : "NoNodesError", text.c_str(), static_cast<int64_t>(sink.taken));
    throw nb::python_error();
  } catch (const NoNodes& error) {
    set_ring_error("NoNodesError", error.what());
    throw nb::python_error();
  } catch (const std::bad_alloc&) {
    PyErr_SetString(PyExc_MemoryError,
                    "there is not enough memory for the answers, or for the ring's map of keys; keys before the one "
                    "that found none have been processed. Pass fewer keys in one call");
    throw nb::python_error();
  }
}

// The nodes of many keys: with `indices` their positions, else numbers and the names that they stand for.
template <typename Op>
nb::object nodes_of_many(RingObject& self, KeySource& keys, bool writes, bool indices, uint32_t threads, Op op) {
  const Pin pin(self);
  RingSink<int32_t, Op> sink(self, writes, indices, threads, std::move(op));
  run_sink(self, keys, sink);
  if (indices) sink.number_by_position();
  nb::object found = nb::cast(sink.answers.template release<int32_t>());
  return indices ? found : nb::make_tuple(found, self.names_by_label());
}

nb::object node_from(RingObject& self, KeySource& keys, bool indices, uint32_t threads) {
  return nodes_of_many(self, keys, false, indices, threads,
                       [&](const uint64_t* d, size_t n, int32_t* out, std::optional<Stopped>&) {
                         const Ring& ring = *self.ring;
                         for (size_t i = 0; i < n; ++i) {
                           const uint32_t id = ring.first(d[i]);
                           if (id == Ring::kNone) throw NoNodes(kNobodyServes);
                           out[i] = static_cast<int32_t>(self.label(id));
                         }
                         return n;
                       });
}

nb::object assign_from(RingObject& self, KeySource& keys, bool indices, uint32_t threads) {
  return nodes_of_many(self, keys, true, indices, threads,
                       [&](const uint64_t* d, size_t n, int32_t* out, std::optional<Stopped>& stopped) {
                         Ring& ring = *self.ring;
                         constexpr size_t kAhead = 64;
                         for (size_t i = 0; i < std::min(n, kAhead); ++i) ring.near(d[i]);
                         size_t i = 0;
                         try {
                           for (; i < n; ++i) {
                             if (i + kAhead < n) ring.near(d[i + kAhead]);
                             out[i] = static_cast<int32_t>(self.label(ring.assign(d[i])));
                           }
                         } catch (const RingFull& error) {
                           stopped = Stopped{true, error.what()};
                         } catch (const NoNodes& error) {
                           stopped = Stopped{false, error.what()};
                         }
                         return i;
                       });
}

nb::object locate_from(RingObject& self, KeySource& keys, bool indices, uint32_t threads) {
  return nodes_of_many(self, keys, false, indices, threads,
                       [&](const uint64_t* d, size_t n, int32_t* out, std::optional<Stopped>&) {
                         const Ring& ring = *self.ring;
                         for (size_t i = 0; i < n; ++i) {
                           if (i + 16 < n) ring.near(d[i + 16]);
                           const uint32_t id = ring.locate(d[i]);
                           out[i] = id == Ring::kNone ? -1 : static_cast<int32_t>(self.label(id));
                         }
                         return n;
                       });
}

nb::object release_from(RingObject& self, KeySource& keys, uint32_t threads) {
  const auto op = [&](const uint64_t* d, size_t n, uint8_t* out, std::optional<Stopped>&) {
    Ring& ring = *self.ring;
    for (size_t i = 0; i < n; ++i) {
      if (i + 16 < n) ring.near(d[i + 16]);
      out[i] = ring.release(d[i]);
    }
    return n;
  };
  RingSink<uint8_t, decltype(op)> sink(self, true, false, threads, op);
  run_sink(self, keys, sink);
  return nb::cast(sink.answers.template release<bool>());
}

// ---- nodes ----------------------------------------------------------------------------------------------

uint32_t id_of(const RingObject& self, const std::string& name) {  // with exclusive use
  const uint32_t id = self.ring->find(name);
  if (id == Ring::kNone) throw NoSuchNode("the ring has no node '" + name + "'");
  return id;
}

struct LabelledMove {
  uint64_t digest;
  uint32_t from, to;
};

// With exclusive use: names may be others later.
std::vector<LabelledMove> labelled(const RingObject& self, const RingMoves& moves) {
  std::vector<LabelledMove> result;
  result.reserve(moves.size());
  for (const RingMove& each : moves) result.push_back({each.digest, self.label(each.from), self.label(each.to)});
  return result;
}

nb::list list_of(const RingObject& self, const std::vector<LabelledMove>& moves) {
  nb::list result;
  for (const LabelledMove& each : moves)
    result.append(nb::make_tuple(each.digest, self.labels[each.from], self.labels[each.to]));
  return result;
}

// f(ring, moves), alone with the ring.
template <typename F>
nb::list change(RingObject& self, F&& f) {
  const Pin pin(self);
  std::vector<LabelledMove> moved;
  guarded_call([&] {
    const Writing alone(self);
    RingMoves moves;
    f(*self.ring, moves);
    moved = labelled(self, moves);
  });
  return list_of(self, moved);
}

nb::list add(RingObject& self, const std::string& name, double weight, uint64_t quanta, uint64_t cap, bool lazy) {
  const uint32_t label = self.new_label(name);
  bool is_in = false;
  try {
    return change(self, [&](Ring& ring, RingMoves& moves) {
      const uint64_t before = ring.version();
      try {
        ring.add_node({name, weight, quanta, cap, label}, lazy, moves);
      } catch (...) {
        is_in = ring.version() != before;  // memory ran out when keys moved: the node is there
        throw;
      }
      is_in = true;
    });
  } catch (...) {
    if (!is_in) self.retire(label);
    throw;
  }
}

nb::list remove(RingObject& self, const std::string& name) {
  uint32_t label = kNobody;
  nb::list moves = change(self, [&](Ring& ring, RingMoves& made) {
    const uint32_t id = id_of(self, name);
    const uint32_t its_label = self.label(id);
    ring.remove_node(id, made);
    label = its_label;
  });
  self.retire(label);
  return moves;
}

// The nodes as they were created; numbers first, then Python objects.
std::vector<uint32_t> node_labels(RingObject& self) {
  std::vector<uint32_t> found;
  read_in_turn(self, [&] {
    for (const uint32_t id : self.ring->order()) found.push_back(self.label(id));
  });
  return found;
}

nb::tuple names(RingObject& self) {
  const Pin pin(self);
  nb::list result;
  for (const uint32_t label : node_labels(self)) result.append(self.labels[label]);
  return nb::tuple(result);
}

nb::list node_rows(RingObject& self) {
  struct Row {
    uint32_t label;
    double weight;
    uint64_t quanta, cap;
    bool down, draining, lazy;
    uint64_t load, leases, limit, lease_load;
    std::vector<uint32_t> slots;
  };
  const Pin pin(self);
  std::vector<Row> rows;
  {
    const Access access(self);
    const Ring& ring = *self.ring;
    for (const uint32_t id : ring.order()) {
      const Ring::Node& node = ring.node(id);
      rows.push_back({node.label, node.weight, node.quanta, node.cap, node.down, node.draining, node.lazy,
                      ring.members(id).size(), node.leases, ring.limit_of(id, ring.size()), node.lease_load,
                      node.slots});
    }
  }
  nb::list result;
  for (const Row& row : rows)
    result.append(nb::make_tuple(self.labels[row.label], row.weight, row.quanta, row.cap, row.down, row.draining,
                                 row.lazy, row.load, row.leases, row.limit, row.lease_load, row.slots));
  return result;
}

nb::object members(RingObject& self, const std::string& name) {
  Answers<uint64_t> digests;
  guarded_call([&] {
    const Access access(self);
    const std::vector<uint64_t>& all = self.ring->members(id_of(self, name));
    std::copy(all.begin(), all.end(), digests.extend(all.size()));
  });
  return nb::cast(digests.release<uint64_t>());
}

// A load of 0: within the limit of leases, counted one by one.
nb::tuple lease(RingObject& self, nb::handle key, const std::vector<std::string>& avoid, uint64_t load) {
  uint64_t digest;
  if (!digest_of(key.ptr(), self.hasher, digest)) throw nb::python_error();
  const Pin pin(self);
  uint32_t id = Ring::kNone, label = kNobody;
  guarded_call([&] {
    in_turn(self, self.may_write(), [&] {
      std::vector<uint32_t> ids;
      for (const std::string& name : avoid)
        if (const uint32_t other = self.ring->find(name); other != Ring::kNone) ids.push_back(other);
      id = load == 0 ? self.ring->lease(digest, ids.data(), ids.size())
                     : self.ring->lease(digest, load, ids.data(), ids.size());
      label = self.label(id);
    });
  });
  return nb::make_tuple(self.labels[label], id);
}

std::unique_ptr<Ring> ring_from(Spec spec, Bits bits) {
  try {
    return std::make_unique<Ring>(spec, bits);
  } catch (const SpecError& error) {
    throw FormatError(std::string("the file describes no possible ring: ") + error.what());
  }
}

// The ring as it is in a file.
std::unique_ptr<Ring::Image> image_of(RingObject& self) {
  const Access access(self);
  return std::make_unique<Ring::Image>(self.ring->image());
}

}  // namespace

void bind_rings(nb::module_& m) {
  using Object = RingObject;
  const auto moves = [](const char* name, const char* arguments) {
    return "def " + std::string(name) + "(self" + arguments + ") -> list[tuple[int, str, str]]";
  };
  const auto nodes_signature = [](const char* name) {
    return "def " + std::string(name) +
           "(self, keys: KeySource, indices: bool, threads: int) -> numpy.typing.NDArray[numpy.int32] | "
           "tuple[numpy.typing.NDArray[numpy.int32], numpy.typing.NDArray[numpy.object_]]";
  };
  const std::string one = ", name: str";
  nb::class_<Object> cls(m, "Ring", nb::type_slots(slots), nb::is_weak_referenceable(),
                         "Base of the ring: slots, nodes, keys.");
  cls.def(
         "__init__",
         [](Object* self, uint32_t policy, uint32_t layout, uint32_t copies, uint32_t array_bits, uint64_t rate,
            double unit, double epsilon, uint64_t limit, uint64_t seed) {
           new (self) Object(
               std::make_unique<Ring>(RingConfig{static_cast<RingPolicy>(policy), static_cast<RingLayout>(layout),
                                                 copies, array_bits, rate, unit, epsilon, limit, seed}));
         },
         nb::arg("policy"), nb::arg("layout"), nb::arg("copies"), nb::arg("array_bits"), nb::arg("rate"),
         nb::arg("unit"), nb::arg("epsilon"), nb::arg("limit"), nb::arg("seed"))
      .def(
          "__init__",
          [](Object* self, Object& other) {
            std::unique_ptr<Ring> ring;
            {
              const Access access(other);
              const Ring::Image image = other.ring->image();
              ring = std::make_unique<Ring>(image.spec(), image.bits());
            }
            new (self) Object(std::move(ring));
          },
          nb::arg("other"))
      .def(
          "__init__",
          [](Object* self, nb::handle data) {
            new (self) Object(from_file(data, static_cast<uint32_t>(Kind::ring), false, true, ring_from));
          },
          nb::arg("data"))
      .def("_node_from", &node_from, nb::arg("keys"), nb::arg("indices"), nb::arg("threads"),
           nb::sig(nodes_signature("_node_from").c_str()))
      .def("_assign_from", &assign_from, nb::arg("keys"), nb::arg("indices"), nb::arg("threads"),
           nb::sig(nodes_signature("_assign_from").c_str()))
      .def("_locate_from", &locate_from, nb::arg("keys"), nb::arg("indices"), nb::arg("threads"),
           nb::sig(nodes_signature("_locate_from").c_str()))
      .def("_release_from", &release_from, nb::arg("keys"), nb::arg("threads"),
           nb::sig("def _release_from(self, keys: KeySource, threads: int) -> numpy.typing.NDArray[numpy.bool_]"))
      .def(
          "_candidates",
          [](Object& self, nb::handle key, uint64_t most) {
            uint64_t digest;
            if (!digest_of(key.ptr(), self.hasher, digest)) throw nb::python_error();
            const Pin pin(self);
            std::vector<uint32_t> found;
            read_in_turn(self, [&] {
              found = self.ring->candidates(digest, most);
              for (uint32_t& each : found) each = self.label(each);
            });
            nb::list result;
            for (const uint32_t label : found) result.append(self.labels[label]);
            return nb::tuple(result);
          },
          nb::arg("key").none(), nb::arg("most"),
          nb::sig("def _candidates(self, key: object, most: int) -> tuple[str, ...]"))
      .def("_add", &add, nb::arg("name"), nb::arg("weight"), nb::arg("quanta"), nb::arg("cap"), nb::arg("lazy"),
           nb::sig("def _add(self, name: str, weight: float, quanta: int, cap: int, lazy: bool) -> list[tuple[int, "
                   "str, str]]"))
      .def(
          "_add_all",
          [](Object& self, const std::vector<std::tuple<std::string, double, uint64_t, uint64_t>>& nodes) {
            std::vector<Ring::NewNode> wanted;
            for (const auto& [name, weight, quanta, cap] : nodes)
              wanted.push_back({name, weight, quanta, cap, self.new_label(name)});
            change(self, [&](Ring& ring, RingMoves&) { ring.add_nodes(std::move(wanted)); });
          },
          nb::arg("nodes"), nb::sig("def _add_all(self, nodes: Sequence[tuple[str, float, int, int]]) -> None"),
          "Name, weight, quanta and cap of the nodes of a new ring.")
      .def(
          "_has",
          [](Object& self, const std::string& name) {
            bool found = false;
            read_in_turn(self, [&] { found = self.ring->find(name) != Ring::kNone; });
            return found;
          },
          nb::arg("name"))
      .def("_remove", &remove, nb::arg("name"), nb::sig(moves("_remove", one.c_str()).c_str()))
      .def(
          "_drain",
          [](Object& self, const std::string& name) {
            change(self, [&](Ring& ring, RingMoves&) { ring.drain(id_of(self, name)); });
          },
          nb::arg("name"))
      .def(
          "_mark_down",
          [](Object& self, const std::string& name) {
            return change(self, [&](Ring& ring, RingMoves& moves) { ring.mark_down(id_of(self, name), moves); });
          },
          nb::arg("name"), nb::sig(moves("_mark_down", one.c_str()).c_str()))
      .def(
          "_mark_up",
          [](Object& self, const std::string& name) {
            return change(self, [&](Ring& ring, RingMoves& moves) { ring.mark_up(id_of(self, name), moves); });
          },
          nb::arg("name"), nb::sig(moves("_mark_up", one.c_str()).c_str()))
      .def(
          "_set_weight",
          [](Object& self, const std::string& name, double weight, uint64_t quanta, uint64_t cap) {
            return change(self, [&](Ring& ring, RingMoves& moves) {
              ring.set_weight(id_of(self, name), weight, quanta, cap, moves);
            });
          },
          nb::arg("name"), nb::arg("weight"), nb::arg("quanta"), nb::arg("cap"),
          nb::sig(moves("_set_weight", ", name: str, weight: float, quanta: int, cap: int").c_str()))
      .def(
          "_rebalance",
          [](Object& self, uint64_t most) {
            return change(self, [&](Ring& ring, RingMoves& moves) { ring.rebalance(most, moves); });
          },
          nb::arg("most"), nb::sig(moves("_rebalance", ", most: int").c_str()))
      .def(
          "_compact",
          [](Object& self) { return change(self, [&](Ring& ring, RingMoves& moves) { ring.compact(moves); }); },
          nb::sig(moves("_compact", "").c_str()))
      .def(
          "_take_lazy_moves",
          [](Object& self) {
            const Pin pin(self);
            std::vector<LabelledMove> made;
            in_turn(self, self.may_write(), [&] { made = labelled(self, self.ring->take_lazy_moves()); });
            return list_of(self, made);
          },
          nb::sig(moves("_take_lazy_moves", "").c_str()))
      .def("_release_all",
           [](Object& self) {
             const Writing alone(self);
             self.ring->release_all();
           })
      .def("_lease", &lease, nb::arg("key").none(), nb::arg("avoid"), nb::arg("load"),
           nb::sig("def _lease(self, key: object, avoid: Sequence[str], load: int) -> tuple[str, int]"))
      .def(
          "_unlease",
          [](Object& self, uint32_t id, uint64_t load) {
            in_turn(self, self.may_write(), [&] { self.ring->unlease(id, load); });
          },
          nb::arg("id"), nb::arg("load"))
      .def_prop_ro(
          "key_count", [](Object& self) { return read_in_turn(self, [&] { return self.ring->size(); }); },
          "The number of assigned keys.")
      .def("_names", &names, nb::sig("def _names(self) -> tuple[str, ...]"))
      .def_prop_ro(
          "_label_count", [](const Object& self) { return self.labels.size(); }, "Names that are kept; for tests.")
      .def(
          "_rows", &node_rows,
          nb::sig("def _rows(self) -> list[tuple[str, float, int, int, bool, bool, bool, int, int, int, int, "
                  "list[int]]]"),
          "For each node: name, weight, quanta, cap, down, draining, lazy, load, leases, limit, load of leases, slots.")
      .def("_members", &members, nb::arg("name"),
           nb::sig("def _members(self, name: str) -> numpy.typing.NDArray[numpy.uint64]"))
      .def(
          "_counters",
          [](Object& self) {
            const Access access(self);
            const Ring::Counters c = self.ring->counters();
            std::vector<uint64_t> all{c.moved, c.placements, c.searches, c.draws, c.longest};
            all.insert(all.end(), c.histogram.begin(), c.histogram.end());
            return all;
          },
          "moved, placements, searches, draws, the longest search; then placements by their searches.")
      .def("_start_audit", &call_alone<&Ring::start_audit, Object, uint64_t>, nb::arg("rate") = 0,
           "From now on every placement is checked by a second reading of the bound; for tests.")
      .def(
          "_audit",
          [](Object& self) {
            const Access access(self);
            return std::tuple<uint64_t, uint64_t>(self.ring->audit().placements, self.ring->audit().broken);
          },
          "Placements checked, and how many broke the bound.")
      .def("_expected_searches", &call_alone<&Ring::expected_searches, Object, uint64_t>, nb::arg("samples"))
      .def("_equal",
           [](Object& self, Object& other) {
             return &self == &other || with_both(self, other, [&] {
               const Ring::Image a = self.ring->image(false), b = other.ring->image(false);
               return a.spec().same_structure(b.spec()) && a.bits() == b.bits();
             });
           })
      .def(
          "_to_bytes", [](Object& self) { return file_bytes(self, *image_of(self)); },
          nb::sig("def _to_bytes(self) -> bytes"))
      .def(
          "_write_to", [](Object& self, int descriptor) { write_file(self, *image_of(self), descriptor); },
          nb::arg("descriptor"))
      .def("_fingerprint", &call_alone<&Ring::fingerprint, Object, bool>, nb::arg("assigned"))
      .def("_invariant", &broken_invariant<Object>)
      .def(
          "_config",
          [](Object& self) {
            const RingConfig& c = self.ring->config();
            return nb::make_tuple(static_cast<uint32_t>(c.policy), static_cast<uint32_t>(c.layout), c.copies,
                                  c.array_bits, c.rate, c.unit, c.epsilon, c.limit, c.seed);
          },
          nb::sig("def _config(self) -> tuple[int, int, int, int, int, float, float, int, int]"))
      .def_prop_ro("_slots", [](Object& self) { return read_in_turn(self, [&] { return self.ring->slots(); }); })
      .def_prop_ro("_leases", [](Object& self) { return read_in_turn(self, [&] { return self.ring->leases(); }); })
      .def_prop_ro("_forced_leases",
                   [](Object& self) { return read_in_turn(self, [&] { return self.ring->forced_leases(); }); })
      .def_prop_ro("_version", [](Object& self) { return read_in_turn(self, [&] { return self.ring->version(); }); })
      .def_prop_ro(
          "nbytes",
          [](Object& self) {
            const uint64_t bytes = read_in_turn(self, [&] { return self.ring->nbytes(); });
            return bytes + self.label_bytes();
          },
          "Bytes that the ring takes.")
      .def(
          "_limit_node_keys",
          [](Object& self, uint64_t most) {
            const Writing alone(self);
            self.ring->limit_node_keys(most);
          },
          nb::arg("most"), "Let a node hold so many keys at most, instead of 2**32 - 1; for tests.");

  m.def(
      "bind_ring", [](nb::handle type) { add_methods(type, methods); }, nb::arg("type"),
      nb::sig("def bind_ring(type: type[Ring]) -> None"),
      "Gives a subclass of Ring its own node, assign and release (see bind_add).");
  m.def(
      "dense_slot", [](uint64_t word, uint32_t slots) { return dense_slot(word, slots); }, nb::arg("word"),
      nb::arg("slots"), "The slot of a draw among so many dense ones.");
}

}  // namespace evenbins::python

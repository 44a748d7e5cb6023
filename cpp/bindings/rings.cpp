// The Python class `_core.Ring`: the base of evenbins.HashRing (src/evenbins/rings.py).
//
//     one key     raw methods: node, assign, release, _locate; they give the name's own str object, nothing is made
//     many keys   int32 numbers of names (−1: none), which stay whatever nodes come and go; the GIL released
//     churn       by name; each call gives its moves as [(digest, old, new)]
//
// Readers and writers: readers.hpp. So the bound holds whatever threads do: a placement is alone with the ring.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <unordered_map>

#include "evenbins/ring.hpp"
#include "files.hpp"
#include "keys.hpp"
#include "module.hpp"
#include "readers.hpp"
#include "recent.hpp"
#include "sources.hpp"

namespace evenbins::python {
namespace {

// Names are Python objects, and nodes come and go while other threads work without the GIL. So every name that the ring
// has ever had stays in `labels`, which grows under the GIL and is read under it; the core knows a node by its number
// there.
struct RingObject : ReadersAndWriter {
  explicit RingObject(std::unique_ptr<Ring> r) : ring(std::move(r)), hasher(ring->config().seed) {
    for (const uint32_t id : ring->order()) ring->set_label(id, label_of(ring->node(id).name));
  }
  ~RingObject() { Recent<RingObject>::forget(this); }
  uint32_t label_of(const std::string& name) {
    const auto [place, is_new] = numbers.try_emplace(name, static_cast<uint32_t>(labels.size()));
    if (is_new) labels.push_back(nb::str(name.data(), name.size()));
    return place->second;
  }
  uint32_t label(uint32_t id) const { return ring->node(id).label; }  // with exclusive use, or under the GIL
  PyObject* name(uint32_t label) const { return Py_NewRef(labels[label].ptr()); }

  std::unique_ptr<Ring> ring;
  Hasher hasher;
  std::vector<nb::object> labels;
  std::unordered_map<std::string, uint32_t> numbers;
};

struct NoSuchNode : std::out_of_range {
  using std::out_of_range::out_of_range;
};

void set_ring_error(const char* name, const char* text, int64_t assigned = -1) {
  const nb::object type = nb::module_::import_("evenbins._ring_errors").attr(name);
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

PyObject* no_nodes() {
  guarded([] { throw NoNodes("no node of the ring serves: use add_node, or mark_up if all are down or drained"); });
  return nullptr;
}

PyObject* method_node(PyObject* self, PyObject* key) {
  RingObject* object = object_of(self);
  uint64_t digest;
  if (object == nullptr || !digest_of(key, object->hasher, digest)) return nullptr;
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
    PyObject* told = PyObject_CallMethod(self, "_report_lazy_moves", nullptr);
    if (told == nullptr) return nullptr;
    Py_DECREF(told);
  }
  return object->name(label);
}

PyObject* method_locate(PyObject* self, PyObject* key) {
  RingObject* object = object_of(self);
  uint64_t digest;
  if (object == nullptr || !digest_of(key, object->hasher, digest)) return nullptr;
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

int slot_contains(PyObject* self, PyObject* key) {
  PyObject* name = method_locate(self, key);
  if (name == nullptr) return -1;
  Py_DECREF(name);
  return name != Py_None;
}

Py_ssize_t slot_length(PyObject* self) {
  RingObject* object = object_of(self);
  Py_ssize_t size = -1;
  if (object != nullptr) guarded([&] { size = read_in_turn(*object, [&] { return object->ring->size(); }); });
  return size;
}

PyMethodDef methods[] = {
    {"node", method_node, METH_O,
     "node($self, key, /)\n--\n\nThe node of a key, without state: the first node of its probe order that serves."},
    {"assign", method_assign, METH_O,
     "assign($self, key, /)\n--\n\nPlace a key, if it is not assigned yet, and give its node. The limit holds."},
    {"release", method_release, METH_O, "release($self, key, /)\n--\n\nLet a key go; tells whether it was assigned."},
    {"_locate", method_locate, METH_O, "_locate($self, key, /)\n--\n\nThe node of an assigned key, or None."},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_sq_contains, reinterpret_cast<void*>(slot_contains)},
    {Py_mp_length, reinterpret_cast<void*>(slot_length)},
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
  RingSink(RingObject& object, bool writes, Op op) : object_(object), writes_(writes), op_(std::move(op)) {}

  uint64_t take_all(const Digests& keys, const Pulse& pulse) override {
    if (writes_) {
      const Writing alone(object_);
      if (std::is_same_v<Answer, int32_t>) object_.ring->reserve(keys.size());  // an assignment
      return run(keys, pulse);
    }
    const Reading reading(object_);
    return run(keys, pulse);
  }
  void take(const uint64_t* digests, size_t n, bool let_others_run) override {
    const bool at_once = !let_others_run && (writes_ ? object_.may_write() : object_.may_read());
    in_turn(object_, at_once, [&] { step(digests, n); });
    if (stopped) throw *stopped;
  }
  Answers<Answer> answers;
  std::optional<Stopped> stopped;

 private:
  static constexpr uint64_t kStep = 1 << 12;

  void step(const uint64_t* digests, size_t n) {
    Answer* out = answers.extend(n);
    const size_t done = op_(digests, n, out, stopped);
    if (stopped) taken += done;
  }
  uint64_t run(const Digests& keys, const Pulse& pulse) {
    uint64_t digests[kStep];
    for (uint64_t start = 0; start < keys.size(); start += kStep) {
      if (!pulse()) return start;
      const uint64_t n = std::min(kStep, keys.size() - start);
      try {
        keys.read(start, n, digests);
      } catch (const BadKey& bad) {  // those before it are to be taken
        keys.read(start, bad.index - start, digests);
        step(digests, bad.index - start);
        if (!stopped) throw;
      }
      if (!stopped) step(digests, n);
      if (stopped) {
        taken += start;
        throw *stopped;
      }
    }
    return keys.size();
  }

  RingObject& object_;
  bool writes_;
  Op op_;
};

template <typename Answer, typename Element, typename Op>
nb::object run_many(RingObject& self, KeySource& keys, bool writes, Op op) {
  RingSink<Answer, Op> sink(self, writes, std::move(op));
  try {
    keys.run(self.hasher, sink);
  } catch (const Stopped& stopped) {
    const std::string text = "keys[" + std::to_string(sink.taken) + "]: " + stopped.text +
                             " by it; the keys before it are assigned (error.assigned)";
    set_ring_error(stopped.full ? "RingFullError" : "NoNodesError", text.c_str(), static_cast<int64_t>(sink.taken));
    throw nb::python_error();
  }
  return nb::cast(sink.answers.template release<Element>());
}

nb::object node_from(RingObject& self, KeySource& keys) {
  return run_many<int32_t, int32_t>(self, keys, false,
                                    [&](const uint64_t* d, size_t n, int32_t* out, std::optional<Stopped>&) {
                                      const Ring& ring = *self.ring;
                                      for (size_t i = 0; i < n; ++i) {
                                        const uint32_t id = ring.first(d[i]);
                                        out[i] = id == Ring::kNone ? -1 : static_cast<int32_t>(self.label(id));
                                      }
                                      return n;
                                    });
}

nb::object assign_from(RingObject& self, KeySource& keys) {
  return run_many<int32_t, int32_t>(self, keys, true,
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

nb::object locate_from(RingObject& self, KeySource& keys) {
  return run_many<int32_t, int32_t>(self, keys, false,
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

nb::object release_from(RingObject& self, KeySource& keys) {
  return run_many<uint8_t, bool>(self, keys, true,
                                 [&](const uint64_t* d, size_t n, uint8_t* out, std::optional<Stopped>&) {
                                   Ring& ring = *self.ring;
                                   for (size_t i = 0; i < n; ++i) {
                                     if (i + 16 < n) ring.near(d[i + 16]);
                                     out[i] = ring.release(d[i]);
                                   }
                                   return n;
                                 });
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
  const uint32_t label = self.label_of(name);
  return change(self,
                [&](Ring& ring, RingMoves& moves) { ring.add_node({name, weight, quanta, cap, label}, lazy, moves); });
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
  nb::list result;
  for (const uint32_t label : node_labels(self)) result.append(self.labels[label]);
  return nb::tuple(result);
}

nb::list node_rows(RingObject& self) {
  struct Row {
    Ring::Node node;
    uint64_t load, limit;
  };
  std::vector<Row> rows;
  {
    const Access access(self);
    const Ring& ring = *self.ring;
    for (const uint32_t id : ring.order()) {
      rows.push_back({ring.node(id), ring.members(id).size(), ring.limit_of(id, ring.size())});
      rows.back().node.away.clear();
    }
  }
  nb::list result;
  for (const auto& [node, load, limit] : rows)
    result.append(nb::make_tuple(self.labels[node.label], node.weight, node.quanta, node.cap, node.down, node.draining,
                                 node.lazy, load, node.leases, limit, node.slots));
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

nb::tuple lease(RingObject& self, nb::handle key, const std::vector<std::string>& avoid) {
  uint64_t digest;
  if (!digest_of(key.ptr(), self.hasher, digest)) throw nb::python_error();
  uint32_t id = Ring::kNone, label = kNobody;
  guarded_call([&] {
    in_turn(self, self.may_write(), [&] {
      std::vector<uint32_t> ids;
      for (const std::string& name : avoid)
        if (const uint32_t other = self.ring->find(name); other != Ring::kNone) ids.push_back(other);
      id = self.ring->lease(digest, ids.data(), ids.size());
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

}  // namespace

void bind_rings(nb::module_& m) {
  using Object = RingObject;
  const auto moves = [](const char* name, const char* arguments) {
    return "def " + std::string(name) + "(self" + arguments + ") -> list[tuple[int, str, str]]";
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
      .def("_node_from", &node_from, nb::arg("keys"),
           nb::sig("def _node_from(self, keys: KeySource) -> numpy.typing.NDArray[numpy.int32]"))
      .def("_assign_from", &assign_from, nb::arg("keys"),
           nb::sig("def _assign_from(self, keys: KeySource) -> numpy.typing.NDArray[numpy.int32]"))
      .def("_locate_from", &locate_from, nb::arg("keys"),
           nb::sig("def _locate_from(self, keys: KeySource) -> numpy.typing.NDArray[numpy.int32]"))
      .def("_release_from", &release_from, nb::arg("keys"),
           nb::sig("def _release_from(self, keys: KeySource) -> numpy.typing.NDArray[numpy.bool_]"))
      .def(
          "_candidates",
          [](Object& self, nb::handle key, uint64_t most) {
            uint64_t digest;
            if (!digest_of(key.ptr(), self.hasher, digest)) throw nb::python_error();
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
              wanted.push_back({name, weight, quanta, cap, self.label_of(name)});
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
      .def(
          "_remove",
          [](Object& self, const std::string& name) {
            return change(self, [&](Ring& ring, RingMoves& moves) { ring.remove_node(id_of(self, name), moves); });
          },
          nb::arg("name"), nb::sig(moves("_remove", one.c_str()).c_str()))
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
      .def("_lease", &lease, nb::arg("key").none(), nb::arg("avoid"),
           nb::sig("def _lease(self, key: object, avoid: Sequence[str]) -> tuple[str, int]"))
      .def(
          "_unlease",
          [](Object& self, uint32_t id) { in_turn(self, self.may_write(), [&] { self.ring->unlease(id); }); },
          nb::arg("id"))
      .def("_names", &names, nb::sig("def _names(self) -> tuple[str, ...]"))
      .def("_labels", &node_labels, "For each node the number by which bulk calls call it.")
      .def(
          "_label_names",
          [](const Object& self) {
            nb::list result;
            for (const nb::object& each : self.labels) result.append(each);
            return nb::tuple(result);
          },
          nb::sig("def _label_names(self) -> tuple[str, ...]"), "Every name the ring has had, by these numbers.")
      .def_prop_ro("_label_count", [](const Object& self) { return self.labels.size(); })
      .def("_rows", &node_rows,
           nb::sig("def _rows(self) -> list[tuple[str, float, int, int, bool, bool, bool, int, int, int, list[int]]]"),
           "For each node: name, weight, quanta, cap, down, draining, lazy, load, leases, limit, slots.")
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
      .def(
          "_start_audit",
          [](Object& self, uint64_t rate) {
            const Access access(self);
            self.ring->start_audit(rate);
          },
          nb::arg("rate") = 0, "From now on every placement is checked by a second reading of the bound; for tests.")
      .def(
          "_audit",
          [](Object& self) {
            const Access access(self);
            return std::tuple<uint64_t, uint64_t>(self.ring->audit().placements, self.ring->audit().broken);
          },
          "Placements checked, and how many broke the bound.")
      .def(
          "_expected_searches",
          [](Object& self, uint64_t samples) {
            const Access access(self);
            return self.ring->expected_searches(samples);
          },
          nb::arg("samples"))
      .def("_equal",
           [](Object& self, Object& other) {
             return &self == &other || with_both(self, other, [&] {
               const Ring::Image a = self.ring->image(false), b = other.ring->image(false);
               return a.spec().same_structure(b.spec()) && a.bits() == b.bits();
             });
           })
      .def(
          "_to_bytes",
          [](Object& self) {
            std::unique_ptr<Ring::Image> image;
            {
              const Access access(self);
              image = std::make_unique<Ring::Image>(self.ring->image());
            }
            return file_bytes(self, *image);
          },
          nb::sig("def _to_bytes(self) -> bytes"))
      .def(
          "_write_to",
          [](Object& self, int descriptor) {
            std::unique_ptr<Ring::Image> image;
            {
              const Access access(self);
              image = std::make_unique<Ring::Image>(self.ring->image());
            }
            write_file(self, *image, descriptor);
          },
          nb::arg("descriptor"))
      .def("_fingerprint",
           [](Object& self) {
             const Access access(self);
             return self.ring->fingerprint();
           })
      .def("_invariant",
           [](Object& self) {
             const Access access(self);
             return self.ring->check(true);
           })
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
      .def_prop_ro("_version", [](Object& self) { return read_in_turn(self, [&] { return self.ring->version(); }); })
      .def_prop_ro(
          "nbytes", [](Object& self) { return read_in_turn(self, [&] { return self.ring->nbytes(); }); },
          "Bytes that the ring takes, about.");

  m.def(
      "bind_ring",
      [](nb::handle type) {
        for (PyMethodDef* each = methods; each->ml_name != nullptr; ++each) {
          nb::object method = nb::steal(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), each));
          if (!method.is_valid()) throw nb::python_error();
          type.attr(each->ml_name) = method;
        }
      },
      nb::arg("type"), nb::sig("def bind_ring(type: type[Ring]) -> None"),
      "Gives a subclass of Ring its own node, assign and release (see bind_add).");
  m.def(
      "dense_slot", [](uint64_t word, uint32_t slots) { return dense_slot(word, slots); }, nb::arg("word"),
      nb::arg("slots"), "The slot of a draw among so many dense ones.");
}

}  // namespace evenbins::python

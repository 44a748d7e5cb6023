// The Python class `_core.Router`: the decisions of evenbins.routing.PrefixRouter (prefix_router.hpp).
//
// Blocks become digests first, which may run Python code (__index__, an iterator). What follows is one step under the
// GIL, in which nothing waits and no Python code runs: that is its lock, also for forks and for signal handlers.
#include <nanobind/nanobind.h>

#include <vector>

#include "evenbins/prefix_router.hpp"
#include "keys.hpp"
#include "module.hpp"

namespace evenbins::python {
namespace {

constexpr const char* kReasons[kRouteReasons] = {"prefix", "hash", "load", "new"};
constexpr double kMostWork = 1e100;

struct RouterObject {
  explicit RouterObject(const RouteRules& rules) : router(rules), hasher(rules.seed) {
    for (const char* reason : kReasons) reasons.emplace_back(nb::steal<nb::str>(PyUnicode_InternFromString(reason)));
  }
  // Lines are fetched while the next blocks are converted.
  void take(uint64_t digest, std::vector<uint64_t>& digests) const {
    if (digests.size() < PrefixRouter::kAhead) router.prefetch(digest);
    digests.push_back(digest);
  }

  PrefixRouter router;
  Hasher hasher;
  std::vector<nb::object> names;  // by place
  std::vector<nb::str> reasons;
};

// A place that a node has.
uint32_t checked(const RouterObject& self, uint32_t place) {
  if (!self.router.has_node(place)) throw nb::index_error("no node has this place");
  return place;
}

[[noreturn]] void refuse(const char* what) { throw nb::type_error(what); }

double work_of(PyObject* work) {
  double value = -1;
  if (PyFloat_CheckExact(work))
    value = PyFloat_AS_DOUBLE(work);
  else if (PyLong_CheckExact(work))
    value = PyLong_AsDouble(work);
  PyErr_Clear();
  if (!(value > 0 && value <= kMostWork)) refuse("work");
  return value;
}

// `with_int` of keys.hpp takes three times as long for the half of all digests that are above 2^63.
bool digest_block(PyObject* block, const Hasher& hasher, uint64_t& out) {
  if (!PyLong_Check(block)) [[unlikely]] {
    PyObject* number = index_of(block);
    if (number == nullptr) return false;
    const bool ok = int_digest(number, hasher, out);
    Py_DECREF(number);
    return ok;
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(block, &overflow);
  if (overflow == 0)
    out = hasher.integer(static_cast<uint64_t>(value), value < 0);
  else if (overflow > 0 && _PyLong_NumBits(block) <= 64)
    out = hasher.integer(PyLong_AsUnsignedLongLongMask(block), false);
  else
    return int_digest(block, hasher, out);  // which raises the error
  return true;
}

// An array of 64-bit integers; false if it is another object, or another array.
bool digest_array(PyObject* blocks, const RouterObject& self, std::vector<uint64_t>& out) {
  if (!PyObject_TypeCheck(blocks, reinterpret_cast<PyTypeObject*>(types.ndarray))) return false;
  Py_buffer view;
  if (PyObject_GetBuffer(blocks, &view, PyBUF_CONTIG_RO | PyBUF_FORMAT) < 0) {
    PyErr_Clear();
    return false;
  }
  const char kind = view.format != nullptr && view.format[0] != 0 && view.format[1] == 0 ? view.format[0] : 0;
  const bool is_signed = kind == 'l' || kind == 'q';
  const bool fits = view.ndim == 1 && view.itemsize == 8 && (is_signed || kind == 'L' || kind == 'Q');
  if (fits) {
    const auto* words = static_cast<const uint64_t*>(view.buf);
    out.reserve(static_cast<size_t>(view.len) / 8);
    for (Py_ssize_t i = 0; i < view.len / 8; ++i)
      self.take(self.hasher.integer(words[i], is_signed && static_cast<int64_t>(words[i]) < 0), out);
  }
  PyBuffer_Release(&view);
  return fits;
}

std::vector<uint64_t> digests_of(PyObject* blocks, const RouterObject& self) {
  std::vector<uint64_t> digests;
  if (digest_array(blocks, self, digests)) return digests;
  if (PyUnicode_Check(blocks) || PyBytes_Check(blocks) || PyByteArray_Check(blocks) || PyMemoryView_Check(blocks))
    refuse("blocks");
  PyObject* list = call_python([&] { return PySequence_Fast(blocks, "blocks"); });
  if (list == nullptr) throw nb::python_error();
  const nb::object owner = nb::steal(list);
  digests.reserve(static_cast<size_t>(PySequence_Fast_GET_SIZE(list)));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); ++i) {  // __index__ may change the list
    const nb::object block = nb::borrow(PySequence_Fast_GET_ITEM(list, i));
    uint64_t digest = 0;
    if (!digest_block(block.ptr(), self.hasher, digest)) throw nb::python_error();
    self.take(digest, digests);
  }
  return digests;
}

nb::object route_among(RouterObject& self, nb::handle blocks, nb::handle work, const std::vector<uint32_t>& avoid,
                       const std::vector<uint32_t>& probes) {
  const double amount = work_of(work.ptr());
  const std::vector<uint64_t> digests = digests_of(blocks.ptr(), self);
  for (const uint32_t place : probes) checked(self, place);
  PrefixRouter& router = self.router;
  if (!router.can_route(avoid)) return nb::none();
  const Route found = router.route(digests.data(), digests.size(), amount, probes);
  return nb::make_tuple(self.names[found.place], found.depth, self.reasons[static_cast<size_t>(found.reason)],
                        found.load, router.id(found.place));
}

nb::object route(RouterObject& self, nb::handle blocks, nb::handle work) {
  return route_among(self, blocks, work, {}, {});
}

}  // namespace

#define EVENBINS_FOUND "tuple[str, int, str, float, int] | None"

void bind_routing(nb::module_& m) {
  nb::class_<RouterObject>(m, "Router", "Decides for evenbins.routing.PrefixRouter.")
      .def(
          "__init__",
          [](RouterObject* self, uint8_t policy, double epsilon, uint64_t cache_blocks, bool counts_requests,
             bool spreads, uint64_t seed) {
            if (policy > static_cast<uint8_t>(RoutePolicy::score) || cache_blocks == 0)
              throw nb::value_error("no such policy, or no blocks");
            new (self) RouterObject(
                {static_cast<RoutePolicy>(policy), 1 + epsilon, cache_blocks, counts_requests, spreads, seed});
          },
          nb::arg("policy"), nb::arg("epsilon"), nb::arg("cache_blocks"), nb::arg("counts_requests"),
          nb::arg("spreads"), nb::arg("seed"))
      .def(
          "reserve", [](RouterObject& self, uint32_t nodes) { self.router.reserve(nodes); }, nb::arg("nodes"),
          "Make an index for so many nodes, which are added next.")
      .def(
          "add_node",
          [](RouterObject& self, nb::str name, double weight) {
            const uint32_t place = self.router.add_node(weight);
            if (self.names.size() <= place) self.names.resize(place + 1);
            self.names[place] = name;
            return place;
          },
          nb::arg("name"), nb::arg("weight"), "Return the place of a new node.")
      .def(
          "remove_node", [](RouterObject& self, uint32_t place) { self.router.remove_node(checked(self, place)); },
          nb::arg("place"))
      .def(
          "set_serving",
          [](RouterObject& self, uint32_t place, bool on) { self.router.set_serving(checked(self, place), on); },
          nb::arg("place"), nb::arg("serves"))
      .def(
          "set_weight",
          [](RouterObject& self, uint32_t place, double weight) {
            self.router.set_weight(checked(self, place), weight);
          },
          nb::arg("place"), nb::arg("weight"))
      .def(
          "route", &route, nb::arg("blocks").none(), nb::arg("work").none(),
          nb::sig("def route(self, blocks: object, work: object) -> " EVENBINS_FOUND),
          "Return node, depth, reason, load and the node's id; None if no node serves. A TypeError means that `blocks` "
          "or `work` is wrong.")
      .def("route_among", &route_among, nb::arg("blocks").none(), nb::arg("work").none(), nb::arg("avoid"),
           nb::arg("probes"),
           nb::sig("def route_among(self, blocks: object, work: object, avoid: Sequence[int], probes: Sequence[int]) "
                   "-> " EVENBINS_FOUND),
           "The same without some places; policy 0 takes the first of `probes` that is within the bound.")
      .def(
          "done", [](RouterObject& self, uint64_t id, double load) { self.router.done(id, load); }, nb::arg("id"),
          nb::arg("load"))
      .def(
          "load", [](RouterObject& self, uint32_t place) { return self.router.load(checked(self, place)); },
          nb::arg("place"))
      .def_prop_ro("serving", [](RouterObject& self) { return self.router.serving(); })
      .def_prop_ro("in_flight", [](RouterObject& self) { return self.router.in_flight(); })
      .def_prop_ro("entries", [](RouterObject& self) { return self.router.entries(); })
      .def_prop_ro("nbytes", [](RouterObject& self) { return self.router.nbytes(); })
      .def_prop_ro(
          "reasons",
          [](RouterObject& self) {
            nb::dict counts;
            for (uint32_t i = 0; i < kRouteReasons; ++i) counts[self.reasons[i]] = self.router.reasons(i);
            return counts;
          },
          nb::sig("def reasons(self) -> dict[str, int]"));
}

}  // namespace evenbins::python

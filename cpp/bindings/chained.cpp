// The Python class `_core.Chains`: the base of evenbins.ChainedTable (src/evenbins/chained.py).
#include "evenbins/chained.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "mapping.hpp"
#include "module.hpp"

namespace evenbins::python {
namespace {

using ChainMapping = Mapping<ChainedTable>;
using Object = ChainMapping::Object;

void init_new(Object* self, uint64_t capacity, uint64_t seed, std::vector<uint64_t> core) {
  Spec spec{Kind::chained, Hashing::independent, seed, capacity, std::move(core)};
  const uint64_t bytes = ChainedTable::payload_bytes(spec);
  new (self) Object(std::make_unique<ChainedTable>(std::move(spec), Bits::zeroed(bytes)));
}

nb::tuple probe(Object& self, nb::handle key) {
  const StoredKey wanted = ChainMapping::key_from(self, key);
  ChainedTable::Probe found;
  read_in_turn(self, [&] { found = self.table->probe(wanted); });
  return nb::make_tuple(found.level, found.reads, found.compared, found.overflow);
}

nb::list loads(Object& self) {
  std::vector<ChainedTable::Loads> seen;
  {
    const Access access(self);
    seen = self.table->loads();
  }
  nb::list result;
  for (const ChainedTable::Loads& each : seen) result.append(nb::make_tuple(each.all, each.passed));
  return result;
}

nb::tuple queries(Object& self) {
  ChainedTable::Queries sums;
  {
    const Access access(self);
    sums = self.table->queries();
  }
  const nb::object squares = (nb::int_(static_cast<uint64_t>(sums.squares >> 64)) << nb::int_(64)) |
                             nb::int_(static_cast<uint64_t>(sums.squares));
  return nb::make_tuple(sums.reads, sums.compared, squares);
}

}  // namespace

void bind_chained(nb::module_& m) {
  ChainMapping::bind(m, "Chains", Kind::chained,
                     "Base of the chained table: a plan's integer core, its bins and entries.")
      .def("__init__", &init_new, nb::arg("capacity"), nb::arg("seed"), nb::arg("core"))
      .def(
          "_probe", &probe, nb::arg("key").none(),
          nb::sig("def probe(self, key: str | typing_extensions.Buffer | typing.SupportsIndex) -> tuple[int, int, int, "
                  "bool]"),
          "Level that has the key from 1 (0: absent), bins read, entries compared, whether an overflow chain was read.")
      .def("_loads", &loads, nb::sig("def _loads(self) -> list[tuple[list[int], list[int]]]"),
           "For each table, then the overflow chains: bins by load, and how many of them were passed.")
      .def("_queries", &queries, nb::sig("def _queries(self) -> tuple[int, int, int]"),
           "Sums over all keys: bins read, entries compared, squares of these.")
      .def("_state", [](Object& self) {
        const Access access(self);
        return self.table->state();
      });
}

}  // namespace evenbins::python

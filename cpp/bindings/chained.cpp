// The Python class `_core.Chains`: the base of evenbins.ChainedTable (src/evenbins/tables/chained.py).
#include "evenbins/chained.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

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
  const StoredKey wanted = ChainMapping::key_from(self.finder, key);
  ChainedTable::Probe found;
  if (!self.finder.is_out_of_range(wanted)) read_in_turn(self, [&] { found = self.table->probe(wanted); });
  return nb::make_tuple(found.level, found.reads, found.compared, found.overflow);
}

nb::tuple measure(Object& self) {
  std::vector<uint64_t> state;
  std::vector<ChainedTable::Loads> seen;
  ChainedTable::Queries sums;
  {
    const Access access(self);
    state = self.table->state();
    seen = self.table->loads();
    sums = self.table->queries();
  }
  nb::list loads;
  for (const ChainedTable::Loads& each : seen) loads.append(nb::make_tuple(each.all, each.passed));
  const nb::object squares = (nb::int_(static_cast<uint64_t>(sums.squares >> 64)) << nb::int_(64)) |
                             nb::int_(static_cast<uint64_t>(sums.squares));
  return nb::make_tuple(state, loads, nb::make_tuple(sums.reads, sums.compared, squares));
}

}  // namespace

void bind_chained(nb::module_& m) {
  ChainMapping::bind(m, "Chains", Kind::chained,
                     "Base of the chained table: a plan's integer core, its bins and entries.")
      .def("__init__", &init_new, nb::arg("capacity"), nb::arg("seed"), nb::arg("core"))
      .def("_probe", &probe, nb::arg("key").none(),
           nb::sig("def _probe(self, key: object) -> tuple[int, int, int, bool]"))
      .def(
          "_measure", &measure,
          nb::sig("def _measure(self) -> tuple[list[int], list[tuple[list[int], list[int]]], tuple[int, int, int]]"),
          "At one moment: the words of the state; for each table, then the overflow chains, bins by load, and how many "
          "of them were passed; sums over all keys of bins read, entries compared, and squares of these.");
}

}  // namespace evenbins::python

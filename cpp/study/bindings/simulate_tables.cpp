// Simulations of multilevel tables, as NumPy arrays.
#include "study/simulate_tables.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "study/bindings/module.hpp"
#include "study/bindings/trials.hpp"

namespace evenbins::study::python {
namespace {

using Counts = nb::ndarray<nb::numpy, uint64_t>;

nb::tuple simulate_table(const std::string& scheme, std::vector<uint64_t> buckets, uint32_t slots,
                         const std::string& process, uint64_t keys, double burn_in, uint64_t samples, uint64_t interval,
                         uint64_t trials, uint64_t seed, uint32_t threads,
                         const std::optional<nb::callable>& progress) {
  using Scheme = TableSimulation::Scheme;
  using Process = TableSimulation::Process;
  const size_t levels = buckets.size();
  const TableSimulation simulation{
      named<Scheme>({{"standard", Scheme::standard},
                     {"conservative", Scheme::conservative},
                     {"second-chance", Scheme::second_chance},
                     {"extreme-second-chance any", Scheme::extreme_any},
                     {"extreme-second-chance right", Scheme::extreme_right}},
                    "scheme", scheme),
      std::move(buckets),
      slots,
      named<Process>({{"insert", Process::insert}, {"replace", Process::replace}, {"poisson", Process::poisson}},
                     "process", process),
      keys,
      burn_in,
      samples,
      interval};
  TableCounts counts = run(
      trials, progress, [&](const auto& pulse) { return simulate_tables(simulation, trials, seed, threads, pulse); });
  return nb::make_tuple(
      array(std::move(counts.arrivals), {trials, samples}), array(std::move(counts.moves), {trials, samples}),
      array(std::move(counts.overflow), {trials, samples}), array(std::move(counts.held), {trials, samples, levels}));
}

}  // namespace

void bind_simulate_tables(nb::module_& m) {
  m.def("simulate_table", &simulate_table, nb::arg("scheme"), nb::arg("buckets"), nb::arg("slots"), nb::arg("process"),
        nb::arg("keys"), nb::arg("burn_in"), nb::arg("samples"), nb::arg("interval"), nb::arg("trials"),
        nb::arg("seed"), nb::arg("threads"), nb::arg("progress").none(),
        nb::sig("def simulate_table(scheme: str, buckets: collections.abc.Sequence[int], slots: int, process: str, "
                "keys: int, burn_in: "
                "float, samples: int, interval: int, trials: int, seed: int, threads: int, progress: "
                "collections.abc.Callable[[int, int], object] | None) -> tuple[numpy.typing.NDArray[numpy.uint64], "
                "numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.uint64], "
                "numpy.typing.NDArray[numpy.uint64]]"),
        "Arrivals, moves, overflow (trial, sample) and keys held (trial, sample, level): simulate_tables.hpp.");
}

}  // namespace evenbins::study::python

// Simulations of the balancing schemes, as NumPy arrays.
#include "evenbins/simulate.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "module.hpp"

namespace nb = nanobind;

namespace evenbins::python {
namespace {

// A new array of zeros of this shape, and where its elements lie.
std::pair<nb::ndarray<nb::numpy, uint64_t>, uint64_t*> zeros(std::initializer_list<size_t> shape) {
  size_t size = 1;
  for (const size_t n : shape) size *= n;
  auto data = std::make_unique<uint64_t[]>(size);
  const nb::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<uint64_t*>(p); });
  uint64_t* const first = data.release();
  return {nb::ndarray<nb::numpy, uint64_t>(first, shape, owner), first};
}

nb::tuple simulate_balance(std::vector<uint64_t> bins, std::vector<uint64_t> thresholds, uint64_t coin,
                           uint32_t choices, std::optional<uint64_t> budget, std::optional<uint64_t> overflow_limit,
                           bool spill_least, const std::vector<uint64_t>& checkpoints, uint64_t trials, uint64_t seed,
                           uint32_t threads) {
  const Balance balance{std::move(bins),
                        std::move(thresholds),
                        coin,
                        choices,
                        budget.value_or(kNoLimit),
                        overflow_limit.value_or(kNoLimit),
                        spill_least ? Spill::least : Spill::random};
  std::vector<std::vector<Snapshot>> runs;
  {
    const nb::gil_scoped_release free;
    runs = simulate(balance, checkpoints, trials, seed, threads, [] {
      const nb::gil_scoped_acquire hold;
      return PyErr_CheckSignals() == 0;  // else the exception stays set
    });
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();

  size_t most = 0;
  for (const auto& run : runs)
    for (const Snapshot& each : run)
      for (const auto& table : each.loads) most = std::max(most, table.size());
  const size_t times = checkpoints.size(), tables = balance.bins.size();
  auto [loads, load] = zeros({runs.size(), times, tables, most});
  auto [overflow, listed] = zeros({runs.size(), times});
  auto [spilled, spill] = zeros({runs.size(), times});
  auto [accesses, access] = zeros({runs.size(), times});
  for (const auto& run : runs)
    for (const Snapshot& each : run) {
      for (const auto& table : each.loads) {
        std::copy(table.begin(), table.end(), load);
        load += most;
      }
      *listed++ = each.overflow;
      *spill++ = each.spilled;
      *access++ = each.accesses;
    }
  return nb::make_tuple(loads, overflow, spilled, accesses);
}

}  // namespace

void bind_simulate(nb::module_& m) {
  m.def("simulate_balance", &simulate_balance, nb::arg("bins"), nb::arg("thresholds"), nb::arg("coin"),
        nb::arg("choices"), nb::arg("budget").none(), nb::arg("overflow_limit").none(), nb::arg("spill_least"),
        nb::arg("checkpoints"), nb::arg("trials"), nb::arg("seed"), nb::arg("threads"),
        nb::sig("def simulate_balance(bins: Sequence[int], thresholds: Sequence[int], coin: int, choices: int, budget: "
                "int | None, overflow_limit: int | None, spill_least: bool, checkpoints: Sequence[int], trials: int, "
                "seed: int, threads: int) -> tuple[numpy.typing.NDArray[numpy.uint64], "
                "numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.uint64], "
                "numpy.typing.NDArray[numpy.uint64]]"),
        "Loads (trial, checkpoint, table, load), overflow, spilled and accesses (trial, checkpoint): simulate.hpp.");
}

}  // namespace evenbins::python

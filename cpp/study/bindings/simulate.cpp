// Simulations of balancing and of hashing schemes, as NumPy arrays.
#include "study/simulate.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "bindings/gil.hpp"
#include "study/bindings/module.hpp"

namespace evenbins::study::python {
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

// Whether to go on; if not, a Python exception is set.
bool go_on() {
  const evenbins::python::GilAcquire hold;
  return PyErr_CheckSignals() == 0;
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
    const evenbins::python::GilRelease free;
    runs = simulate(balance, checkpoints, trials, seed, threads, go_on);
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

nb::tuple simulate_hashing_trials(const std::string& hashing, uint64_t bits, uint32_t hashes, uint64_t keys,
                                  uint64_t queries, uint64_t trials, uint64_t seed, uint32_t threads) {
  static const std::map<std::string, Hashing, std::less<>> names{
      {"independent", Hashing::independent},
      {"partition", Hashing::partition},
      {"double", Hashing::double_},
      {"enhanced-double square", Hashing::enhanced_square},
      {"enhanced-double cube", Hashing::enhanced_cube},
      {"enhanced-double tetrahedral", Hashing::enhanced_tetrahedral},
      {"triple", Hashing::triple},
  };
  const auto named = names.find(hashing);
  if (named == names.end()) throw nb::value_error(("unknown hashing: " + hashing).c_str());
  std::vector<HashingTrial> runs;
  {
    const evenbins::python::GilRelease free;
    runs = simulate_hashing(named->second, bits, hashes, keys, queries, trials, seed, threads, go_on);
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  auto [positives, positive] = zeros({runs.size()});
  auto [set_bits, set] = zeros({runs.size()});
  for (const HashingTrial& each : runs) *positive++ = each.positives, *set++ = each.set_bits;
  return nb::make_tuple(positives, set_bits);
}

}  // namespace

void bind_simulate(nb::module_& m) {
  m.def("simulate_balance", &simulate_balance, nb::arg("bins"), nb::arg("thresholds"), nb::arg("coin"),
        nb::arg("choices"), nb::arg("budget").none(), nb::arg("overflow_limit").none(), nb::arg("spill_least"),
        nb::arg("checkpoints"), nb::arg("trials"), nb::arg("seed"), nb::arg("threads"),
        nb::sig("def simulate_balance(bins: collections.abc.Sequence[int], thresholds: collections.abc.Sequence[int], "
                "coin: int, choices: int, budget: "
                "int | None, overflow_limit: int | None, spill_least: bool, checkpoints: "
                "collections.abc.Sequence[int], trials: int, "
                "seed: int, threads: int) -> tuple[numpy.typing.NDArray[numpy.uint64], "
                "numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.uint64], "
                "numpy.typing.NDArray[numpy.uint64]]"),
        "Loads (trial, checkpoint, table, load), overflow, spilled and accesses (trial, checkpoint): simulate.hpp.");
  m.def("simulate_hashing", &simulate_hashing_trials, nb::arg("hashing"), nb::arg("bits"), nb::arg("hashes"),
        nb::arg("keys"), nb::arg("queries"), nb::arg("trials"), nb::arg("seed"), nb::arg("threads"),
        nb::sig("def simulate_hashing(hashing: str, bits: int, hashes: int, keys: int, queries: int, trials: int, "
                "seed: int, threads: int) -> tuple[numpy.typing.NDArray[numpy.uint64], "
                "numpy.typing.NDArray[numpy.uint64]]"),
        "False positives and set bits of each trial: simulate.hpp.");
}

}  // namespace evenbins::study::python

// Simulations of summaries, as NumPy arrays.
#include "study/simulate_summaries.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <memory>
#include <optional>

#include "study/bindings/module.hpp"
#include "study/bindings/trials.hpp"

namespace evenbins::study::python {
namespace {

using Filters = std::vector<std::pair<uint64_t, uint32_t>>;  // cells, hashes

SummarySimulation simulation_of(uint64_t keys, std::vector<uint64_t> sizes, const Filters& filters, bool shared,
                                bool partitioned, uint64_t queries) {
  SummarySimulation out{keys, std::move(sizes), {}, shared, partitioned, queries};
  for (const auto& [cells, hashes] : filters) out.filters.push_back({cells, hashes});
  return out;
}

nb::tuple summary(uint64_t keys, std::vector<uint64_t> sizes, const Filters& filters, bool shared, bool partitioned,
                  uint64_t queries, uint64_t trials, uint64_t seed, uint32_t threads, const Progress& progress) {
  const auto simulation = simulation_of(keys, std::move(sizes), filters, shared, partitioned, queries);
  const size_t levels = simulation.sizes.size();
  auto counts = run(trials, progress,
                    [&](const auto& pulse) { return simulate_summaries(simulation, trials, seed, threads, pulse); });
  return nb::make_tuple(array(std::move(counts.passed), {trials, levels}),
                        array(std::move(counts.failures), {trials, levels}),
                        array(std::move(counts.positives), {trials}));
}

nb::ndarray<nb::numpy, uint64_t> counters(uint64_t keys, std::vector<uint64_t> sizes, const Filters& filters,
                                          const std::vector<bool>& once, uint64_t trials, uint64_t seed,
                                          uint32_t threads, const Progress& progress) {
  const auto simulation = simulation_of(keys, std::move(sizes), filters, false, false, 0);
  const size_t levels = simulation.sizes.size();
  return array(
      run(trials, progress,
          [&](const auto& pulse) { return simulate_counters(simulation, once, trials, seed, threads, pulse); }),
      {trials, levels});
}

nb::tuple rebuild(uint64_t keys, const std::vector<uint64_t>& sizes, uint64_t deleted, bool first_only, uint64_t trials,
                  uint64_t seed, uint32_t threads, const Progress& progress) {
  auto counts = run(trials, progress, [&](const auto& pulse) {
    return simulate_rebuilds(keys, sizes, deleted, first_only, trials, seed, threads, pulse);
  });
  return nb::make_tuple(array(std::move(counts.moves), {trials}), array(std::move(counts.into_first), {trials}),
                        array(std::move(counts.crisis), {trials}));
}

nb::tuple song(uint64_t keys, uint64_t buckets, uint32_t hashes, uint64_t full, uint64_t trials, uint64_t seed,
               uint32_t threads, const Progress& progress) {
  auto counts = run(trials, progress, [&](const auto& pulse) {
    return simulate_song(keys, buckets, hashes, full, trials, seed, threads, pulse);
  });
  return nb::make_tuple(array(std::move(counts.largest), {trials}), array(std::move(counts.crowded), {trials}),
                        array(std::move(counts.counted), {trials}), array(std::move(counts.highest), {trials}),
                        array(std::move(counts.stuck), {trials}));
}

#define EVENBINS_COUNTS "numpy.typing.NDArray[numpy.uint64]"
#define EVENBINS_RUN \
  "trials: int, seed: int, threads: int, progress: collections.abc.Callable[[int, int], object] | None) -> "

}  // namespace

void bind_simulate_summaries(nb::module_& m) {
  m.def("simulate_summary", &summary, nb::arg("keys"), nb::arg("sizes"), nb::arg("filters"), nb::arg("shared"),
        nb::arg("partitioned"), nb::arg("queries"), nb::arg("trials"), nb::arg("seed"), nb::arg("threads"),
        nb::arg("progress").none(),
        nb::sig("def simulate_summary(keys: int, sizes: collections.abc.Sequence[int], filters: "
                "collections.abc.Sequence[tuple[int, int]], shared: bool, "
                "partitioned: bool, queries: int, " EVENBINS_RUN "tuple[" EVENBINS_COUNTS ", " EVENBINS_COUNTS
                ", " EVENBINS_COUNTS "]"),
        "Keys passed and failures (trial, level), positives (trial): simulate_summaries.hpp.");
  m.def("simulate_counters", &counters, nb::arg("keys"), nb::arg("sizes"), nb::arg("filters"), nb::arg("once"),
        nb::arg("trials"), nb::arg("seed"), nb::arg("threads"), nb::arg("progress").none(),
        nb::sig("def simulate_counters(keys: int, sizes: collections.abc.Sequence[int], filters: "
                "collections.abc.Sequence[tuple[int, int]], once: "
                "collections.abc.Sequence[bool], " EVENBINS_RUN EVENBINS_COUNTS),
        "The largest counters (trial, filter): simulate_summaries.hpp.");
  m.def("simulate_rebuild", &rebuild, nb::arg("keys"), nb::arg("sizes"), nb::arg("deleted"), nb::arg("first_only"),
        nb::arg("trials"), nb::arg("seed"), nb::arg("threads"), nb::arg("progress").none(),
        nb::sig("def simulate_rebuild(keys: int, sizes: collections.abc.Sequence[int], deleted: int, first_only: "
                "bool, " EVENBINS_RUN "tuple[" EVENBINS_COUNTS ", " EVENBINS_COUNTS ", " EVENBINS_COUNTS "]"),
        "Moves, those into the first sub-table, keys without a place (trial): simulate_summaries.hpp.");
  m.def(
      "simulate_song", &song, nb::arg("keys"), nb::arg("buckets"), nb::arg("hashes"), nb::arg("full"),
      nb::arg("trials"), nb::arg("seed"), nb::arg("threads"), nb::arg("progress").none(),
      nb::sig("def simulate_song(keys: int, buckets: int, hashes: int, full: int, " EVENBINS_RUN
              "tuple[" EVENBINS_COUNTS ", " EVENBINS_COUNTS ", " EVENBINS_COUNTS ", " EVENBINS_COUNTS
              ", " EVENBINS_COUNTS "]"),
      "Largest load, crowded keys, counters above zero, largest counter, stuck keys (trial): simulate_summaries.hpp.");
}

}  // namespace evenbins::study::python

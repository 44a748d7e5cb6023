// Simulations of hash rings, as NumPy arrays.
#include "study/simulate_rings.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "study/bindings/module.hpp"
#include "study/bindings/trials.hpp"

namespace evenbins::study::python {
namespace {

RingSimulation simulation_of(const std::string& policy, const std::string& layout, uint64_t bins, uint64_t copies,
                             uint64_t keys, uint64_t limit, uint64_t empty, uint32_t array_bits) {
  using Policy = RingSimulation::Policy;
  using Layout = RingSimulation::Layout;
  RingSimulation out;
  out.policy = named<Policy>({{"plain", Policy::plain},
                              {"clockwise", Policy::clockwise},
                              {"rehash", Policy::rehash},
                              {"rehash-bin", Policy::rehash_bin},
                              {"jump", Policy::jump}},
                             "policy", policy);
  out.layout = named<Layout>({{"sparse", Layout::sparse}, {"dense", Layout::dense}}, "layout", layout);
  out.bins = bins;
  out.copies = copies;
  out.keys = keys;
  out.limit = limit;
  out.empty = empty;
  out.array_bits = array_bits;
  return out;
}

nb::tuple simulate_ring(const std::string& policy, const std::string& layout, uint64_t bins, uint64_t copies,
                        uint64_t keys, uint64_t limit, uint64_t empty, uint32_t array_bits, uint32_t step_bits,
                        double bias, bool bias_on_bin, bool churn, bool remove, uint64_t trials, uint64_t seed,
                        uint32_t threads, const Progress& progress) {
  RingSimulation simulation = simulation_of(policy, layout, bins, copies, keys, limit, empty, array_bits);
  simulation.step_bits = step_bits;
  simulation.bias = bias;
  simulation.bias_on_bin = bias_on_bin;
  simulation.churn = churn;
  simulation.remove = remove;
  RingCounts counts = run(trials, progress, [&](const RingPulse& pulse) {
    return simulate_rings(simulation, trials, seed, threads, pulse);
  });
  nb::dict out;
  const auto give = [&](const char* name, std::vector<uint64_t>& numbers) {
    out[name] = array(std::move(numbers), {trials});
  };
  give("keys", counts.keys);
  give("bins", counts.bins);
  give("max_load", counts.max_load);
  give("first_full", counts.first_full);
  give("searches", counts.searches);
  give("steps", counts.steps);
  give("all_searches", counts.all_searches);
  give("all_hashes", counts.all_hashes);
  give("removed", counts.removed);
  give("removed_searches", counts.removed_searches);
  give("removed_steps", counts.removed_steps);
  out["loads"] = array(std::move(counts.loads), {trials, limit + 1});
  return nb::make_tuple(out, array(std::move(counts.variance), {trials}));
}

nb::ndarray<nb::numpy, double> ring_shares(uint64_t bins, uint64_t limit, bool random_arcs, uint64_t trials,
                                           uint64_t seed, uint32_t threads, const Progress& progress) {
  return array(run(trials, progress,
                   [&](const RingPulse& pulse) {
                     return simulate_ring_shares(bins, limit, random_arcs, trials, seed, threads, pulse);
                   }),
               {trials, bins});
}

nb::tuple ring_times(const std::string& policy, const std::string& layout, uint64_t bins, uint64_t copies,
                     uint64_t keys, uint64_t limit, uint32_t array_bits, uint64_t probes, uint64_t trials,
                     uint64_t seed, const Progress& progress) {
  RingSimulation simulation = simulation_of(policy, layout, bins, copies, keys, limit, 0, array_bits);
  simulation.remove = true;
  RingTimes times = run(trials, progress,
                        [&](const RingPulse& pulse) { return time_rings(simulation, probes, trials, seed, pulse); });
  return nb::make_tuple(array(std::move(times.insert), {trials}), array(std::move(times.removed), {trials}));
}

}  // namespace

void bind_simulate_rings(nb::module_& m) {
  m.def("simulate_ring", &simulate_ring, nb::arg("policy"), nb::arg("layout"), nb::arg("bins"), nb::arg("copies"),
        nb::arg("keys"), nb::arg("limit"), nb::arg("empty"), nb::arg("array_bits"), nb::arg("step_bits"),
        nb::arg("bias"), nb::arg("bias_on_bin"), nb::arg("churn"), nb::arg("remove"), nb::arg("trials"),
        nb::arg("seed"), nb::arg("threads"), nb::arg("progress").none(),
        nb::sig("def simulate_ring(policy: str, layout: str, bins: int, copies: int, keys: int, limit: int, empty: "
                "int, array_bits: int, step_bits: int, bias: float, bias_on_bin: bool, churn: bool, remove: bool, "
                "trials: int, seed: int, threads: int, progress: collections.abc.Callable[[int, int], object] | None) "
                "-> tuple[dict[str, numpy.typing.NDArray[numpy.uint64]], numpy.typing.NDArray[numpy.float64]]"),
        "Counts of each trial by name, and the loads' variance: simulate_rings.hpp.");
  m.def("ring_shares", &ring_shares, nb::arg("bins"), nb::arg("limit"), nb::arg("random_arcs"), nb::arg("trials"),
        nb::arg("seed"), nb::arg("threads"), nb::arg("progress").none(),
        nb::sig("def ring_shares(bins: int, limit: int, random_arcs: bool, trials: int, seed: int, threads: int, "
                "progress: collections.abc.Callable[[int, int], object] | None) -> "
                "numpy.typing.NDArray[numpy.float64]"),
        "Variance of the open bins' chances (trial, full bins): simulate_rings.hpp.");
  m.def("ring_times", &ring_times, nb::arg("policy"), nb::arg("layout"), nb::arg("bins"), nb::arg("copies"),
        nb::arg("keys"), nb::arg("limit"), nb::arg("array_bits"), nb::arg("probes"), nb::arg("trials"), nb::arg("seed"),
        nb::arg("progress").none(),
        nb::sig("def ring_times(policy: str, layout: str, bins: int, copies: int, keys: int, limit: int, array_bits: "
                "int, probes: int, trials: int, seed: int, progress: collections.abc.Callable[[int, int], object] | "
                "None) -> tuple[numpy.typing.NDArray[numpy.float64], numpy.typing.NDArray[numpy.float64]]"),
        "Nanoseconds of one more key, and of a removed bin's key (trial): simulate_rings.hpp.");
}

}  // namespace evenbins::study::python

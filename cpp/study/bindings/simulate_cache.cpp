// Replays of a trace through cache servers, as tuples of counts.
#include "study/simulate_cache.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <map>
#include <optional>
#include <string>

#include "study/bindings/module.hpp"
#include "study/bindings/trials.hpp"

namespace evenbins::study::python {
namespace {

using Policy = CacheSimulation::Policy;
template <typename T>
using Numbers = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

const std::map<std::string, Policy> kPolicies = {
    {"plain", Policy::plain}, {"clockwise", Policy::clockwise}, {"rehash", Policy::rehash}, {"jump", Policy::jump}};

nb::tuple simulate_cache_runs(const Numbers<int64_t>& times, const Numbers<uint64_t>& digests, uint32_t servers,
                              uint32_t copies, std::optional<uint64_t> cache_size, std::optional<uint64_t> limit,
                              int64_t stale, int64_t served, int64_t recovery,
                              const std::vector<std::pair<std::string, uint64_t>>& runs, uint32_t threads,
                              const Progress& progress) {
  const CacheSimulation simulation{servers, copies,  cache_size.value_or(UINT64_MAX), limit.value_or(UINT64_MAX), stale,
                                   served,  recovery};
  std::vector<CacheRun> wanted;
  for (const auto& [name, seed] : runs) {
    const auto policy = kPolicies.find(name);
    if (policy == kPolicies.end()) throw nb::value_error(("unknown policy: " + name).c_str());
    wanted.push_back({policy->second, seed});
  }
  const uint64_t all = times.size() * runs.size();
  const CacheResult result = run(all, progress, [&](const auto& pulse) {
    return simulate_cache({times.data(), times.size()}, {digests.data(), digests.size()}, simulation, wanted, threads,
                          pulse);
  });
  nb::list counts;
  for (const CacheCounts& c : result.runs)
    counts.append(
        nb::make_tuple(c.misses, c.dropped, c.failures, c.routed, c.searches, c.longest, c.max_load, c.max_requests));
  return nb::make_tuple(result.baseline, result.distinct, counts);
}

}  // namespace

void bind_simulate_cache(nb::module_& m) {
  m.def("simulate_cache", &simulate_cache_runs, nb::arg("times"), nb::arg("digests"), nb::arg("servers"),
        nb::arg("copies"), nb::arg("cache_size").none(), nb::arg("limit").none(), nb::arg("stale"), nb::arg("served"),
        nb::arg("recovery"), nb::arg("runs"), nb::arg("threads"), nb::arg("progress").none(),
        nb::sig("def simulate_cache(times: numpy.typing.NDArray[numpy.int64], digests: "
                "numpy.typing.NDArray[numpy.uint64], servers: int, copies: int, cache_size: int | None, limit: int | "
                "None, stale: int, served: int, recovery: int, runs: collections.abc.Sequence[tuple[str, int]], "
                "threads: int, "
                "progress: collections.abc.Callable[[int, int], object] | None) -> tuple[int, int, "
                "list[tuple[int, int, int, int, int, int, int, int]]]"),
        "Baseline misses, distinct urls, and of each run misses, dropped, failures, routed, searches, longest walk, "
        "max_load, max_requests: simulate_cache.hpp.");
}

}  // namespace evenbins::study::python

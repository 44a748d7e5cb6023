// Times single insertions, for the benchmark: one call after the other, from C++, so that nothing of Python is in
// between. Beside our table one that grows as it fills, std::unordered_map.
//
// The table's pages are touched before: its memory is taken once, so that a user can do the same. A table that grows
// cannot. A time includes that of the clock itself.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "evenbins/format.hpp"
#include "evenbins/multilevel.hpp"
#include "filter_object.hpp"
#include "module.hpp"
#include "structure.hpp"
#include "table_keys.hpp"

namespace nb = nanobind;

namespace evenbins::python {
namespace {

using Times = nb::ndarray<nb::numpy, uint32_t, nb::ndim<1>>;

// The time that this thread has worked: without that in which others had its core.
struct ThreadClock {
  static std::chrono::nanoseconds now() { return platform::thread_time(); }
};

// Nanoseconds of each call insert(i), at most 2^32 − 1, while what free() returns is there.
template <typename Clock = std::chrono::steady_clock, typename Free, typename Insert>
Times timed(size_t n, Free&& free, Insert&& insert) {
  auto times = std::make_unique<std::vector<uint32_t>>(n);
  std::fill(times->begin(), times->end(), 1);  // touched before the clock runs
  {
    [[maybe_unused]] const auto released = free();
    for (size_t i = 0; i < n; ++i) {
      const auto begun = Clock::now();
      insert(i);
      const auto spent = Clock::now() - begun;
      const int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
      (*times)[i] = static_cast<uint32_t>(std::clamp<int64_t>(ns, 0, 0xFFFFFFFF));
    }
  }
  uint32_t* const first = times->data();
  const nb::capsule owner(times.get(), [](void* p) noexcept { delete static_cast<std::vector<uint32_t>*>(p); });
  times.release();
  return Times(first, {n}, owner);
}

GilRelease without_gil() { return GilRelease(); }

void require_pairs(const WordArray& keys, const WordArray& values) {
  if (keys.size() != values.size()) throw nb::value_error("there must be a value for each key");
}

Times time_insertions(uint64_t capacity, uint64_t seed, std::vector<uint64_t> core, const WordArray& keys,
                      const WordArray& values) {
  require_pairs(keys, values);
  Spec spec{Kind::multilevel, Hashing::independent, seed, capacity, std::move(core)};
  MultilevelTable table(spec, Bits::zeroed(payload_bytes(spec)));
  if (table.view().words != 1) throw nb::value_error("the table must have keys of one word");
  table.clear();
  bool full = false;
  Times times = timed(keys.size(), without_gil,
                      [&](size_t i) { full |= table.insert_many(keys.data() + i, values.data() + i, 1, false) == 0; });
  if (full) throw std::runtime_error("the table is full");
  return times;
}

Times time_growing_insertions(const WordArray& keys, const WordArray& values) {
  require_pairs(keys, values);
  std::unordered_map<uint64_t, uint64_t> table;
  return timed(keys.size(), without_gil, [&](size_t i) { table[keys.data()[i]] = values.data()[i]; });
}

Times time_additions(FilterObject& object, const WordArray& digests, bool alone) {
  require_writable(object);
  bool full = false;
  const auto begin = [&] { return Writing(object); };
  const auto add = [&](size_t i) { full |= object.one.add(digests.data()[i]) == AddOutcome::full; };
  Times times = alone ? timed<ThreadClock>(digests.size(), begin, add) : timed(digests.size(), begin, add);
  if (full) throw std::runtime_error("the filter is full");
  return times;
}

}  // namespace

void bind_latency(nb::module_& m) {
  m.def("time_insertions", &time_insertions, nb::arg("capacity"), nb::arg("seed"), nb::arg("core"), nb::arg("keys"),
        nb::arg("values"), "Nanoseconds of each insertion into a new table of this core.");
  m.def("time_growing_insertions", &time_growing_insertions, nb::arg("keys"), nb::arg("values"),
        "Nanoseconds of each insertion into a std::unordered_map.");
  m.def("time_additions", &time_additions, nb::arg("filter"), nb::arg("digests"), nb::arg("alone"),
        nb::sig("def time_additions(filter: Filter, digests: numpy.typing.NDArray[numpy.uint64], alone: bool) -> "
                "numpy.typing.NDArray[numpy.uint32]"),
        "Nanoseconds of each single addition to a filter; `alone`: without those that other threads took.");
}

}  // namespace evenbins::python

// The Python class `_core.Summary`: the base of the summaries (src/evenbins/tables/summaries.py). Digests in, levels
// out: keys become digests before. Look-ups and writers take turns as those of tables do (readers.hpp).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <optional>

#include "evenbins/digest_stretches.hpp"
#include "evenbins/summary_filters.hpp"
#include "module.hpp"
#include "readers.hpp"
#include "sources.hpp"
#include "structure.hpp"

namespace evenbins::python {
namespace {

using Levels = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

struct SummaryObject : ReadersAndWriter {
  static constexpr const char* kReadOnly =
      "this summary is open read-only: use load() or copy() for one that can be changed";

  explicit SummaryObject(std::unique_ptr<Summary> s) : summary(std::move(s)) {}
  static uint64_t payload_bytes(const Spec& spec) { return evenbins::payload_bytes(spec); }
  static std::unique_ptr<Summary> make(Spec spec, Bits bits) { return make_summary(std::move(spec), std::move(bits)); }
  Summary& structure() const { return *summary; }
  std::unique_ptr<Summary> summary;
  const bool read_only = summary->bits().read_only();
};

void check_level(const SummaryObject& self, uint64_t level, uint64_t index) {
  if (level >= 1 && level <= self.summary->levels()) return;
  throw nb::value_error(("levels[" + std::to_string(index) + "] must be 1 to " +
                         std::to_string(self.summary->levels()) + "; got " + std::to_string(level))
                            .c_str());
}

nb::object level_many(SummaryObject& self, WordArray digests) {
  Answers<uint8_t> answers;
  const uint64_t n = digests.size();
  uint8_t* out = answers.extend(n);
  {
    const Reading reading(self);
    if (n > 0) self.summary->level_many(digests.data(), n, out);
  }
  return nb::cast(answers.release<uint8_t>());
}

nb::object level_from(SummaryObject& self, KeySource& keys, uint32_t threads) {
  const Summary& summary = *self.summary;
  const auto some = [&](const uint64_t* digests, size_t n, uint8_t* out) { summary.level_many(digests, n, out); };
  const auto all = [&](const Digests& digests, uint8_t* out, const Pulse& pulse) {
    return for_digests(digests, threads, pulse,
                       [&](uint64_t start, size_t n, const uint64_t* batch) { some(batch, n, out + start); });
  };
  return look_up_from<uint8_t>(keys, Hasher(summary.spec().seed), all, some, [&] { return Reading(self); }, true);
}

void add_many(SummaryObject& self, WordArray digests, Levels levels) {
  const uint64_t n = digests.size();
  if (levels.size() != n) throw nb::value_error("there must be as many levels as keys");
  require_writable(self);
  const std::vector<uint8_t> copied(levels.data(), levels.data() + n);
  for (uint64_t i = 0; i < n; ++i) check_level(self, copied[i], i);
  const Writing alone(self);
  for (uint64_t i = 0; i < n; ++i) self.summary->add(digests.data()[i], copied[i]);
}

nb::object remove_many(SummaryObject& self, WordArray digests, Levels levels) {
  const uint64_t n = digests.size();
  if (levels.size() != n) throw nb::value_error("there must be as many levels as keys");
  require_writable(self);
  const std::vector<uint8_t> copied(levels.data(), levels.data() + n);
  for (uint64_t i = 0; i < n; ++i) check_level(self, copied[i], i);
  Answers<uint8_t> answers;
  uint8_t* out = answers.extend(n);
  {
    const Writing alone(self);
    for (uint64_t i = 0; i < n; ++i) out[i] = self.summary->remove(digests.data()[i], copied[i]);
  }
  return nb::cast(answers.release<bool>());
}

void move_one(SummaryObject& self, uint64_t digest, uint32_t from, uint32_t to) {
  require_writable(self);
  check_level(self, from, 0);
  check_level(self, to, 0);
  const Writing alone(self);
  self.summary->move(digest, from, to);
}

// Takes a key out of a level, or of the one that it is answered (0), in one step: false if it is not there.
bool remove_one(SummaryObject& self, uint64_t digest, uint32_t level) {
  require_writable(self);
  if (level != 0) check_level(self, level, 0);
  const Writing alone(self);
  const uint32_t where = level == 0 ? self.summary->level(digest) : level;
  return where != 0 && self.summary->remove(digest, where);
}

nb::object buckets(SummaryObject& self, WordArray digests) {
  const auto* counters = dynamic_cast<const CounterSummary*>(self.summary.get());
  if (counters == nullptr) throw nb::type_error("this summary has no buckets");
  Answers<uint64_t> answers;
  const uint64_t n = digests.size();
  uint64_t* out = answers.extend(n);
  {
    const Reading reading(self);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t digest = digests.data()[i];
      const uint32_t choice = counters->level(digest);
      out[i] = choice == 0 ? ~uint64_t{0} : counters->bucket(digest, choice - 1);
    }
  }
  return nb::cast(answers.release<uint64_t>());
}

}  // namespace

void bind_summaries(nb::module_& m) {
  nb::class_<SummaryObject> cls(m, "Summary", nb::is_weak_referenceable(),
                                "Base of the summaries: a plan's integer core and its memory.");
  cls.def(
         "__init__",
         [](SummaryObject* self, uint32_t kind, uint64_t seed, uint64_t capacity, std::vector<uint64_t> core) {
           Spec spec{static_cast<Kind>(kind), Hashing::independent, seed, capacity, std::move(core)};
           if (!is_summary(spec.kind)) throw SpecError("this kind is no summary");
           init_new(self, std::move(spec));
         },
         nb::arg("kind"), nb::arg("seed"), nb::arg("capacity"), nb::arg("core"))
      .def("_level_many", &level_many, nb::arg("digests"),
           nb::sig("def _level_many(self, digests: numpy.typing.NDArray[numpy.uint64]) -> "
                   "numpy.typing.NDArray[numpy.uint8]"))
      .def("_level_from", &level_from, nb::arg("keys"), nb::arg("threads"),
           nb::sig("def _level_from(self, keys: KeySource, threads: int) -> numpy.typing.NDArray[numpy.uint8]"))
      .def("_add_many", &add_many, nb::arg("digests"), nb::arg("levels"),
           nb::sig("def _add_many(self, digests: numpy.typing.NDArray[numpy.uint64], levels: "
                   "numpy.typing.NDArray[numpy.uint8]) -> None"))
      .def("_remove_many", &remove_many, nb::arg("digests"), nb::arg("levels"),
           nb::sig("def _remove_many(self, digests: numpy.typing.NDArray[numpy.uint64], levels: "
                   "numpy.typing.NDArray[numpy.uint8]) -> numpy.typing.NDArray[numpy.bool_]"))
      .def("_remove", &remove_one, nb::arg("digest"), nb::arg("level"))
      .def("_move", &move_one, nb::arg("digest"), nb::arg("origin"), nb::arg("target"))
      .def("_buckets", &buckets, nb::arg("digests"),
           nb::sig("def _buckets(self, digests: numpy.typing.NDArray[numpy.uint64]) -> "
                   "numpy.typing.NDArray[numpy.uint64]"))
      .def(
          "_measure",
          [](SummaryObject& self) {
            const Access access(self);
            const Summary& s = *self.summary;
            return std::tuple(s.keys(), s.fills(), s.false_positives(), s.saturated());
          },
          nb::sig("def _measure(self) -> tuple[int, list[float], float, int]"),
          "At one moment: the keys, the fill of each part, the rate of false positives, the number of full counters.")
      .def_prop_ro("_keys",
                   [](SummaryObject& self) { return read_in_turn(self, [&] { return self.summary->keys(); }); })
      .def_prop_ro("_can_remove", [](const SummaryObject& self) { return self.summary->can_remove(); });
  bind_structure(cls, "Bytes of the summary, everything counted.");
}

}  // namespace evenbins::python

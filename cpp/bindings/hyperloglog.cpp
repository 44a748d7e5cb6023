// The Python class `_core.Distinct`: the base of evenbins.HyperLogLog (src/evenbins/sketches/hyperloglog.py).
//
// A change may replace the sketch's memory, so calls of all kinds take turns.
#include "evenbins/hyperloglog.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>

#include "access.hpp"
#include "keys.hpp"
#include "module.hpp"
#include "sources.hpp"
#include "structure.hpp"

namespace evenbins::python {
namespace {

struct DistinctObject : Turns {
  static constexpr const char* kReadOnly =
      "this sketch is open read-only: use load() or copy() for one that can be changed";
  static constexpr Kind kKind = Kind::hyperloglog;

  explicit DistinctObject(std::unique_ptr<HyperLogLog> s) : hasher(s->spec().seed), sketch(std::move(s)) {}
  static uint64_t payload_bytes(const Spec& spec) { return HyperLogLog::payload_bytes(spec); }
  static std::unique_ptr<HyperLogLog> make(Spec spec, Bits bits) {
    return std::make_unique<HyperLogLog>(std::move(spec), std::move(bits));
  }
  HyperLogLog& structure() const { return *sketch; }
  Hasher hasher;
  std::unique_ptr<HyperLogLog> sketch;
  const bool read_only = sketch->bits().read_only();
};

class AddSink final : public Sink {
 public:
  AddSink(DistinctObject& object, uint32_t threads) : object_(object), threads_(threads) {}
  const char* verb() const override { return "added"; }
  uint64_t take_all(const Digests& keys, const Pulse& pulse) override {
    const Access access(object_);
    return object_.sketch->add_all(keys, threads_, pulse);
  }
  void take(const uint64_t* digests, size_t n, bool let_others_run) override {
    std::optional<Access> access;
    if (object_.busy || let_others_run) access.emplace(object_);
    object_.sketch->add_many(digests, n);
  }

 private:
  DistinctObject& object_;
  uint32_t threads_;
};

void add(DistinctObject& self, nb::handle key) {
  uint64_t digest;
  if (!digest_of(key.ptr(), self.hasher, digest)) throw nb::python_error();
  require_writable(self);
  in_turn(self, [&] { self.sketch->add_many(&digest, 1); });
}

void add_from(DistinctObject& self, KeySource& keys, uint32_t threads) {
  require_writable(self);
  AddSink sink(self, threads);
  keys.run(self.hasher, sink);
}

void merge(DistinctObject& self, DistinctObject& other) {
  require_writable(self);
  if (&self != &other) with_both(self, other, [&] { self.sketch->merge(*other.sketch); });
}

}  // namespace

void bind_hyperloglog(nb::module_& m) {
  nb::class_<DistinctObject> cls(m, "Distinct", nb::is_weak_referenceable(),
                                 "Base of HyperLogLog: a plan's integer core and its registers.");
  cls.def(
         "__init__",
         [](DistinctObject* self, uint64_t seed, uint64_t precision) {
           init_new(self, {DistinctObject::kKind, Hashing::independent, seed, 1, {precision, 0}});
         },
         nb::arg("seed"), nb::arg("precision"))
      .def("add", &add, nb::arg("key").none(),
           nb::sig("def add(self, key: str | typing_extensions.Buffer | typing.SupportsIndex) -> None"),
           "Adds one key: a str (as UTF-8), bytes, or an int in -2**63 ... 2**64-1.")
      .def("_add_from", &add_from, nb::arg("keys"), nb::arg("threads"))
      .def("_merge", &merge, nb::arg("other"))
      .def(
          "_state",
          [](DistinctObject& self) {
            const Access access(self);
            const HyperLogLog& s = *self.sketch;
            const auto registers = s.dense() ? s.histogram() : std::vector<uint64_t>();
            return std::tuple(s.dense(), s.entries(), registers, s.bits().bytes());
          },
          nb::sig("def _state(self) -> tuple[bool, int, list[int], int]"),
          "Whether it is dense; the entries of a sparse one; the histogram of the registers of a dense one; its "
          "bytes.");
  bind_structure(cls, "Bytes of the sketch: it grows once, when it becomes dense.");
  // In place of those that look at the memory or the form at any time.
  cls.def_prop_ro("_read_only", [](const DistinctObject& self) { return self.read_only; })
      .def_prop_ro("_core",
                   [](DistinctObject& self) { return in_turn(self, [&] { return self.sketch->spec().core; }); })
      .def_prop_ro(
          "nbytes", [](DistinctObject& self) { return in_turn(self, [&] { return self.sketch->bits().bytes(); }); },
          "Bytes of the sketch: it grows once, when it becomes dense.");
}

}  // namespace evenbins::python

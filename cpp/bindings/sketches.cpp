// The Python class `_core.Sketch`: the base of evenbins.CountMinSketch (src/evenbins/sketches).
//
// Keys come by the same sources as those of filters, and writers take turns in the same way (access.hpp). Weights are
// copied batch by batch before they are used: an array that somebody changes meanwhile cannot make the counters and
// the total disagree.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <optional>

#include "access.hpp"
#include "evenbins/countmin.hpp"
#include "evenbins/digest_stretches.hpp"
#include "keys.hpp"
#include "module.hpp"
#include "sources.hpp"
#include "structure.hpp"

namespace evenbins::python {
namespace {

constexpr const char* kFull = "the total of the weights would exceed 2**64 - 1, where counters end";

struct SketchObject : Turns {
  static constexpr const char* kReadOnly =
      "this sketch is open read-only: use load() or copy() for one that can be changed";
  static constexpr Kind kKind = Kind::count_min;

  explicit SketchObject(std::unique_ptr<CountMinSketch> s) : hasher(s->spec().seed), sketch(std::move(s)) {}
  static uint64_t payload_bytes(const Spec& spec) { return CountMinSketch::payload_bytes(spec); }
  static std::unique_ptr<CountMinSketch> make(Spec spec, Bits bits) {
    return std::make_unique<CountMinSketch>(std::move(spec), std::move(bits));
  }
  CountMinSketch& structure() const { return *sketch; }
  Hasher hasher;
  std::unique_ptr<CountMinSketch> sketch;
  const bool read_only = sketch->bits().read_only();
};

uint64_t digest_of_key(const SketchObject& object, nb::handle key) {
  uint64_t digest;
  if (!digest_of(key.ptr(), object.hasher, digest)) throw nb::python_error();
  return digest;
}

// The weight of a single key. A bool is no number; a float is none either.
uint64_t weight_of(nb::handle weight) {
  if (PyBool_Check(weight.ptr()) || !PyIndex_Check(weight.ptr())) {
    PyErr_Format(PyExc_TypeError, "weight must be an int, not %.100s", Py_TYPE(weight.ptr())->tp_name);
    throw nb::python_error();
  }
  const nb::object number = nb::steal(index_of(weight.ptr()));
  if (!number.is_valid()) throw nb::python_error();
  const unsigned long long value = PyLong_AsUnsignedLongLong(number.ptr());
  if (value != static_cast<unsigned long long>(-1) || !PyErr_Occurred()) return value;
  PyErr_Clear();
  int overflow = 0;
  const bool negative = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow) < 0 && overflow <= 0;
  if (!negative) throw std::overflow_error("weight must be at most 2**64 - 1, where counters end");
  PyErr_Format(PyExc_ValueError,
               "weight must not be negative; got %S. A count-min sketch cannot take back: an estimate "
               "would be too small",
               number.ptr());
  throw nb::python_error();
}

uint64_t add_digest(SketchObject& self, uint64_t digest, nb::handle weight) {
  const uint64_t w = weight_of(weight);
  require_writable(self);
  uint64_t estimate;
  std::optional<Access> access;
  if (self.busy) access.emplace(self);
  if (self.sketch->add_many(&digest, &w, 1, &estimate) == 0)
    throw std::overflow_error(std::string(kFull) + "; this key was not added");
  return estimate;
}

void add(SketchObject& self, nb::handle key, nb::handle weight) { add_digest(self, digest_of_key(self, key), weight); }

uint64_t count(const SketchObject& self, nb::handle key) {
  const uint64_t digest = digest_of_key(self, key);
  uint64_t estimate;
  self.sketch->count_many(&digest, 1, &estimate);
  return estimate;
}

struct Stopped : std::exception {  // by a key that has no place, or no weight; `taken` keys are in
  Stopped(uint64_t taken, bool is_full) : taken(taken), is_full(is_full) {}
  uint64_t taken;
  bool is_full;
};

class AddSink final : public Sink {
 public:
  // `weights` has `count` of them; if it is null, every key has the weight `each`.
  AddSink(SketchObject& object, const uint64_t* weights, uint64_t count, uint64_t each, bool with_estimates,
          uint32_t threads)
      : object_(object),
        weights_(weights),
        count_(count),
        each_(each),
        with_estimates_(with_estimates),
        threads_(threads) {}
  const char* verb() const override { return "added"; }

  uint64_t take_all(const Digests& keys, const Pulse& pulse) override {
    const Access access(object_);
    const uint64_t size = keys.size(), round = std::min(size, object_.sketch->keys_per_call(threads_));
    std::vector<uint64_t> digests(round);
    for (uint64_t start = 0; start < size; start += round) {
      std::optional<BadKey> bad;
      bool stopped = false;
      const uint64_t wanted = std::min(round, size - start);
      const uint64_t n = read_digests(keys, start, wanted, digests.data(), threads_, pulse, bad, stopped);
      if (stopped) return start;
      add(digests.data(), n);
      if (bad) throw *bad;
    }
    return size;
  }
  void take(const uint64_t* digests, size_t n, bool let_others_run) override {
    std::optional<Access> access;
    if (object_.busy || let_others_run) access.emplace(object_);
    add(digests, n);
  }

  uint64_t seen = 0;
  Answers<uint64_t> estimates;

 private:
  void add(const uint64_t* digests, size_t n) {
    const size_t weighted = weights_ == nullptr ? n : std::min<uint64_t>(n, count_ - seen);
    const bool all_one = weights_ == nullptr && each_ == 1;
    if (weights_ != nullptr)
      copied_.assign(weights_ + seen, weights_ + seen + weighted);
    else if (!all_one)
      copied_.assign(weighted, each_);
    uint64_t* out = with_estimates_ ? estimates.extend(weighted) : nullptr;
    const size_t taken = object_.sketch->add_many(digests, all_one ? nullptr : copied_.data(), weighted, out, threads_);
    seen += taken;
    if (taken < n) throw Stopped(seen, taken < weighted);
  }

  SketchObject& object_;
  const uint64_t* weights_;
  uint64_t count_, each_;
  bool with_estimates_;
  uint32_t threads_;
  std::vector<uint64_t> copied_;  // weights of the keys that are being added
};

// Adds the keys; gives their estimates just after each was added, or nothing.
nb::object add_from(SketchObject& self, KeySource& keys, std::optional<WordArray> weights, uint64_t each,
                    bool estimates, uint32_t threads) {
  require_writable(self);
  static const uint64_t none = 0;  // an empty array may have no address
  const uint64_t* data = !weights ? nullptr : weights->size() == 0 ? &none : weights->data();
  const uint64_t n = weights ? weights->size() : 0;
  AddSink sink(self, data, n, each, estimates, threads);
  try {
    keys.run(self.hasher, sink);
  } catch (const Stopped& stopped) {
    if (stopped.is_full) raise_key_error(PyExc_OverflowError, stopped.taken, kFull, sink.verb());
    raise_key_error(PyExc_ValueError, stopped.taken, "weights must be as many as the keys, and there are no more",
                    sink.verb());
  }
  if (weights && sink.seen < n) {
    PyErr_Format(PyExc_ValueError,
                 "weights must be as many as the keys; got %llu weights for %llu keys, which have "
                 "all been added",
                 static_cast<unsigned long long>(n), static_cast<unsigned long long>(sink.seen));
    throw nb::python_error();
  }
  return estimates ? nb::cast(sink.estimates.release<uint64_t>()) : nb::none();
}

nb::object count_from(const SketchObject& self, KeySource& keys, uint32_t threads) {
  const CountMinSketch& sketch = *self.sketch;
  const auto count_some = [&](const uint64_t* digests, size_t n, uint64_t* out) { sketch.count_many(digests, n, out); };
  const auto count_all = [&](const Digests& all, uint64_t* out, const Pulse& pulse) {
    return for_digests(all, threads, pulse,
                       [&](uint64_t start, size_t n, const uint64_t* digests) { count_some(digests, n, out + start); });
  };
  return look_up_from<uint64_t>(keys, self.hasher, count_all, count_some);
}

// f(one, other), alone with both; they may be the same.
template <typename F>
auto together(SketchObject& a, SketchObject& b, F&& f) {
  if (&a != &b) return with_both(a, b, [&] { return f(*a.sketch, *b.sketch); });
  const Access access(a);
  return f(*a.sketch, *a.sketch);
}

}  // namespace

void bind_sketches(nb::module_& m) {
  nb::class_<SketchObject> cls(m, "Sketch", nb::is_weak_referenceable(),
                               "Base of the count-min sketch: a plan's integer core and its counters.");
  cls.def(
         "__init__",
         [](SketchObject* self, uint64_t seed, std::vector<uint64_t> core) {
           init_new(self, {SketchObject::kKind, Hashing::independent, seed, 1, std::move(core)});
         },
         nb::arg("seed"), nb::arg("core"))
      .def("add", &add, nb::arg("key").none(), nb::arg("weight").none() = nb::int_(1),
           nb::sig("def add(self, key: str | typing_extensions.Buffer | typing.SupportsIndex, weight: "
                   "typing.SupportsIndex = 1) -> None"),
           "Adds `weight`, 1 if not given, to the count of one key: a str (as UTF-8), bytes, or an int in "
           "-2**63 ... 2**64-1.\n\nRaises OverflowError, and changes nothing, when the total of all weights would "
           "exceed "
           "2**64-1; ValueError when the weight is negative.")
      .def("count", &count, nb::arg("key").none(),
           nb::sig("def count(self, key: str | typing_extensions.Buffer | typing.SupportsIndex) -> int"),
           "Estimates how often a key was added, weights counted: never too small; too large by more than "
           "epsilon * total with a probability of at most delta.")
      .def("_add_digest", &add_digest, nb::arg("digest"), nb::arg("weight").none(),
           nb::sig("def _add_digest(self, digest: int, weight: typing.SupportsIndex) -> int"))
      .def("_add_from", &add_from, nb::arg("keys"), nb::arg("weights").none(), nb::arg("each"), nb::arg("estimates"),
           nb::arg("threads"),
           nb::sig("def _add_from(self, keys: KeySource, weights: numpy.typing.NDArray[numpy.uint64] | None, "
                   "each: int, estimates: bool, threads: int) -> numpy.typing.NDArray[numpy.uint64] | None"))
      .def("_count_from", &count_from, nb::arg("keys"), nb::arg("threads"),
           nb::sig("def _count_from(self, keys: KeySource, threads: int) -> numpy.typing.NDArray[numpy.uint64]"))
      .def(
          "_merge",
          [](SketchObject& self, SketchObject& other) {
            require_writable(self);
            together(self, other, [](CountMinSketch& a, CountMinSketch& b) { a.merge(b); });
          },
          nb::arg("other"))
      .def(
          "_add_counters",
          [](SketchObject& self, SketchObject& other) {
            require_writable(self);
            together(self, other, [](CountMinSketch& a, CountMinSketch& b) { a.add_counters(b); });
          },
          nb::arg("other"), "Adds the counters of another sketch; conservative ones too, which `_merge` refuses.")
      .def(
          "_inner_product",
          [](SketchObject& self, SketchObject& other) {
            const auto product =
                together(self, other, [](CountMinSketch& a, CountMinSketch& b) { return a.inner_product(b); });
            return std::pair(static_cast<uint64_t>(product >> 64), static_cast<uint64_t>(product));
          },
          nb::arg("other"), nb::sig("def _inner_product(self, other: Sketch) -> tuple[int, int]"),
          "The high and the low word.")
      .def(
          "_state",
          [](SketchObject& self, double epsilon) {
            const Access access(self);
            const CountMinSketch& s = *self.sketch;
            const auto bound = static_cast<uint64_t>(epsilon * static_cast<double>(s.total()));  // below 2^64
            return std::tuple(s.total(), s.updates(), s.above(0), s.above(bound));
          },
          nb::arg("epsilon"), "Total, additions, and for each row the counters above 0 and above epsilon * total.")
      .def_prop_ro(
          "total", [](SketchObject& self) { return in_turn(self, [&] { return self.sketch->total(); }); },
          "The sum of all weights added.");
  bind_structure(cls, "Bytes of the sketch's counters, everything counted.");
}

}  // namespace evenbins::python

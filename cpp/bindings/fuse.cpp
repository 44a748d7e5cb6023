// Building a fuse filter: keys are counted, taken and sorted (_core.FuseKeys); then they fill an empty _core.Filter.
#include "evenbins/fuse.hpp"

#include <nanobind/nanobind.h>

#include <algorithm>
#include <functional>

#include "filter_object.hpp"
#include "keys.hpp"
#include "module.hpp"
#include "sources.hpp"
#include "structure.hpp"

namespace evenbins::python {
namespace {

struct FuseKeysObject : Turns {
  explicit FuseKeysObject(uint64_t seed) : hasher(seed) {}
  Hasher hasher;
  FuseKeys keys;
};

using Pass = uint64_t (FuseKeys::*)(const Digests&, uint32_t, const Pulse&);

class PassSink final : public Sink {
 public:
  PassSink(FuseKeysObject& object, Pass pass, uint32_t threads) : object_(object), pass_(pass), threads_(threads) {}
  const char* verb() const override { return "read"; }
  uint64_t take_all(const Digests& keys, const Pulse& pulse) override {
    const Access access(object_);
    return (object_.keys.*pass_)(keys, threads_, pulse);
  }
  void take(const uint64_t* digests, size_t n, bool) override {
    const Access access(object_);
    (object_.keys.*pass_)(Batch(digests, n), 1, [] { return true; });
  }

 private:
  class Batch final : public Digests {
   public:
    Batch(const uint64_t* digests, size_t n) : digests_(digests), size_(n) {}
    uint64_t size() const override { return size_; }
    void read(uint64_t start, size_t n, uint64_t* out) const override { std::copy_n(digests_ + start, n, out); }

   private:
    const uint64_t* digests_;
    uint64_t size_;
  };

  FuseKeysObject& object_;
  Pass pass_;
  uint32_t threads_;
};

template <Pass pass>
void read_keys(FuseKeysObject& self, KeySource& keys, uint32_t threads) {
  PassSink sink(self, pass, threads);
  keys.run(self.hasher, sink);
}

// Throws what a signal's handler has raised, if it has.
void throw_if_stopped() {
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
}

uint64_t finish(FuseKeysObject& self, uint32_t threads) {
  {
    const Access access(self);
    SignalPulse pulse;
    self.keys.finish(threads, std::ref(pulse));
  }
  throw_if_stopped();
  return self.keys.size();
}

void fill(FuseKeysObject& self, FilterObject& object, uint32_t threads) {
  auto* filter = dynamic_cast<FuseFilter*>(object.filter.get());
  if (filter == nullptr || object.read_only || filter->keys() != self.keys.size())
    throw nb::value_error("the filter is not one for these keys");
  {
    const Writing alone(object);
    SignalPulse pulse;
    filter->solve(self.keys.hashes(), threads, std::ref(pulse));
  }
  throw_if_stopped();
}

}  // namespace

void bind_fuse(nb::module_& m) {
  nb::class_<FuseKeysObject>(m, "FuseKeys", "The different keys of a fuse filter: count, take, finish, fill.")
      .def(nb::init<uint64_t>(), nb::arg("seed"))
      .def("count", &read_keys<&FuseKeys::count>, nb::arg("keys"), nb::arg("threads"),
           "Reads the keys for the first time: how many there are.")
      .def("take", &read_keys<&FuseKeys::take>, nb::arg("keys"), nb::arg("threads"),
           "Reads the same keys once more, and stores their hashes.")
      .def("finish", &finish, nb::arg("threads"), "Removes repeated keys; returns how many are left.")
      .def("fill", &fill, nb::arg("filter"), nb::arg("threads"), "Fills an empty fuse filter for so many keys.");
}

}  // namespace evenbins::python

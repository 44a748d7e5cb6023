// Shards (evenbins/sharding.hpp): words of digests and back, digests put in order of their shards, and `_core.Shards`,
// the base of sharded filters, which adds keys to the shards they belong to and asks these for them.
#include "evenbins/sharding.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "answered.hpp"
#include "composite_object.hpp"
#include "module.hpp"
#include "sources.hpp"

namespace evenbins::python {
namespace {

template <uint64_t (*F)(uint64_t)>
auto each(WordArray words) {
  Answers<uint64_t> found;
  {
    const GilRelease free;
    uint64_t* out = found.extend(words.size());
    for (size_t i = 0; i < words.size(); ++i) out[i] = F(words.data()[i]);
  }
  return found.release<uint64_t>();
}

// A counting sort, stable: keys of one shard keep their order. The shard is computed twice, which is cheaper than
// keeping it: the memory it would take costs more than the mixing. `digests` is private: if somebody changed it in
// between, the second pass would write behind the end of a shard, and of the memory. Shard s has grouped[starts[s]] …
// grouped[starts[s+1]]; place(at, i) hears where digest i goes.
template <typename Place>
void group_by_shard(const uint64_t* digests, size_t n, std::vector<uint64_t>& starts, uint64_t* grouped,
                    const Place& place) {
  const uint64_t shards = starts.size() - 1;
  std::fill(starts.begin(), starts.end(), 0);
  for (size_t i = 0; i < n; ++i) ++starts[mulhi(shard_word(digests[i]), shards) + 1];
  for (uint64_t s = 0; s < shards; ++s) starts[s + 1] += starts[s];
  std::vector<uint64_t> next(starts.begin(), starts.end() - 1);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t at = next[mulhi(shard_word(digests[i]), shards)]++;
    grouped[at] = digests[i];
    place(at, i);
  }
}

nb::tuple split_by_shard(WordArray digests, uint32_t shards, bool positions) {
  if (shards == 0) throw nb::value_error("shards must be 1 at least");
  Answers<uint64_t> grouped, starts;
  Answers<int64_t> origin;
  {
    const GilRelease free;
    const size_t n = digests.size();
    const std::vector<uint64_t> own(digests.data(), digests.data() + n);
    std::vector<uint64_t> begins(uint64_t{shards} + 1);
    int64_t* from = origin.extend(positions ? n : 0);
    group_by_shard(own.data(), n, begins, grouped.extend(n), [&](uint64_t at, size_t i) {
      if (positions) from[at] = static_cast<int64_t>(i);
    });
    std::copy(begins.begin(), begins.end(), starts.extend(begins.size()));
  }
  return nb::make_tuple(grouped.release<uint64_t>(), starts.release<uint64_t>(), origin.release<int64_t>());
}

// A shard has no room. Keys of other shards may be in, so no position in the caller's keys says which.
struct ShardFull : std::runtime_error {
  ShardFull()
      : runtime_error("a shard of this filter is full; some keys of this call have been added. Plan for more keys") {}
};

// Adds keys to the shards they belong to, piece by piece: between two pieces all keys before are in, and no other.
class ShardedSink final : public AnsweredSink {
 public:
  ShardedSink(const CompositeObject& object, uint32_t threads, bool answers_wanted)
      : parts_(object.parts),
        threads_(threads),
        answers_wanted_(answers_wanted),
        shards_(object.filters),
        starts_(object.filters.size() + 1) {}
  uint64_t take_all(const Digests& keys, const Pulse& pulse) override {
    return take_in_pieces(keys, pulse, 1 << 18, threads_, [&](uint64_t, const uint64_t* digests, size_t n) {
      {
        const GilRelease free;
        group(digests, n);
      }
      add_grouped();
      collect(n);
    });
  }
  void take(const uint64_t* digests, size_t n, bool let_others_run) override {
    group(digests, n);
    for (size_t s = 0; s < shards_.size(); ++s) {
      if (starts_[s] == starts_[s + 1]) continue;
      const size_t size = starts_[s + 1] - starts_[s];
      in_turn(*shards_[s], shards_[s]->may_write() && !let_others_run, [&] {
        Filter& filter = *shards_[s]->filter;
        const uint64_t* mine = grouped_.data() + starts_[s];
        const size_t done =
            answers_wanted_ ? filter.add_new_many(mine, size, added_.data() + starts_[s]) : filter.add_many(mine, size);
        if (done < size) throw ShardFull();
      });
    }
    collect(n);
  }

 private:
  void group(const uint64_t* digests, size_t n) {
    if (grouped_.size() < n) grouped_.resize(n);
    if (!answers_wanted_) return group_by_shard(digests, n, starts_, grouped_.data(), [](uint64_t, size_t) {});
    if (added_.size() < n) added_.resize(n), origin_.resize(n);
    group_by_shard(digests, n, starts_, grouped_.data(),
                   [&](uint64_t at, size_t i) { origin_[at] = static_cast<uint32_t>(i); });
  }
  void collect(size_t n) {
    if (!answers_wanted_) return;
    uint8_t* out = answers.extend(n);
    for (size_t at = 0; at < n; ++at) out[origin_[at]] = added_[at];
    in += n;
  }
  // Threads take one shard after the other; where shards are fewer than threads, they share each shard.
  void add_grouped() {
    for (const FilterObject* shard : shards_) refuse_reentry(*shard);
    const uint64_t shards = shards_.size(), pay_off = starts_.back() / kKeysOfThread;
    const auto threads = static_cast<uint32_t>(std::clamp<uint64_t>(pay_off, 1, threads_));
    const uint32_t inner = shards < threads ? threads : 1, outer = shards < threads ? 1 : threads;
    const GilRelease free;
    for_stretches(
        shards, outer, 1, [] { return true; },
        [&](uint64_t s, uint64_t) {
          if (starts_[s] == starts_[s + 1]) return;
          try {
            const GilAcquire hold;  // an Access begins under the GIL, and gives it up
            const Writing alone(*shards_[s]);
            const DigestSpan mine(grouped_.data() + starts_[s], starts_[s + 1] - starts_[s]);
            const auto go_on = [] { return true; };
            if (answers_wanted_)
              add_new_all(*shards_[s]->filter, mine, added_.data() + starts_[s], inner, go_on);
            else
              add_all(*shards_[s]->filter, mine, inner, go_on);
          } catch (const FilterFull&) {
            throw ShardFull();
          }
        });
  }
  static constexpr uint64_t kKeysOfThread = 8192;  // that pay for a thread

  const nb::tuple parts_;  // stay alive while others run
  uint32_t threads_;
  bool answers_wanted_;
  std::vector<FilterObject*> shards_;
  std::vector<uint64_t> starts_, grouped_;
  std::vector<uint8_t> added_;    // for each of `grouped_`
  std::vector<uint32_t> origin_;  // where each of them stood in its piece
};

// --- the class ------------------------------------------------------------------------------------------------

struct ShardsObject : CompositeObject {
  explicit ShardsObject(nb::tuple all) : CompositeObject(seed_of(all)) { set_parts(std::move(all)); }
  ~ShardsObject() { Recent<ShardsObject>::forget(this); }
  FilterObject& shard_of(uint64_t digest) const { return *filters[mulhi(shard_word(digest), filters.size())]; }

 private:
  static uint64_t seed_of(const nb::tuple& all) {
    if (all.size() == 0) throw nb::value_error("a sharded filter must have one shard at least");
    return filter_behind(all[0]).filter->spec().seed;
  }
};

// The shard of a key, for a single call. Null if the key is refused: a Python exception is set then.
EVENBINS_INLINE FilterObject* find_shard(PyObject* self, PyObject* key, uint64_t& digest) {
  ShardsObject* object = Recent<ShardsObject>::of(self);
  if (object == nullptr || !digest_of(key, object->hasher, digest)) return nullptr;
  if (object->filters.empty()) [[unlikely]] {  // the garbage collector has cleared it
    PyErr_SetString(PyExc_RuntimeError, "this filter has no shard");
    return nullptr;
  }
  return &object->shard_of(digest);
}

int slot_contains(PyObject* self, PyObject* key) {
  uint64_t digest;
  FilterObject* shard = find_shard(self, key, digest);
  return shard == nullptr ? -1 : contains_digest(*shard, digest);
}
PyObject* method_add(PyObject* self, PyObject* key) {
  uint64_t digest;
  FilterObject* shard = find_shard(self, key, digest);
  return shard == nullptr ? nullptr : add_digest(*shard, digest);
}
PyObject* method_add_new(PyObject* self, PyObject* key) {
  uint64_t digest;
  FilterObject* shard = find_shard(self, key, digest);
  return shard == nullptr ? nullptr : add_new_digest(*shard, digest);
}

PyMethodDef methods[] = {
    {"add", method_add, METH_O,
     "add($self, key, /)\n--\n\nAdds one key: a str (as UTF-8), bytes, or an int in -2**63 ... 2**64-1."},
    {"add_new", method_add_new, METH_O,
     "add_new($self, key, /)\n--\n\nAdds the key unless it is present, and returns whether it was new. Of several "
     "threads that call it with one key, exactly one gets True."},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_sq_contains, reinterpret_cast<void*>(slot_contains)},
    {Py_tp_methods, methods},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_parts<ShardsObject>)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_parts<ShardsObject>)},
    {0, nullptr},
};

// Makes a call that adds; FilterFullError with the number of keys that are certainly in if a shard is full.
template <typename Call>
auto adding(ShardedSink& sink, const Call& call) {
  try {
    return call();
  } catch (const ShardFull& full) {
    const nb::object error = nb::handle(filter_full_error)(full.what());
    error.attr("added") = sink.taken;
    PyErr_SetObject(filter_full_error, error.ptr());
    throw nb::python_error();
  }
}

void add_from(ShardsObject& object, KeySource& keys, uint32_t threads) {
  ShardedSink sink(object, threads, false);
  adding(sink, [&] { keys.run(object.hasher, sink); });
}

nb::object add_new_from(ShardsObject& object, KeySource& keys, uint32_t threads) {
  ShardedSink sink(object, threads, true);
  return adding(sink, [&] { return answers_from(keys, object.hasher, sink); });
}

// Which of the digests are in their shards; without the GIL, by one thread.
class ShardedLookUp {
 public:
  explicit ShardedLookUp(const std::vector<FilterObject*>& shards) : shards_(shards), starts_(shards.size() + 1) {}
  void operator()(const uint64_t* digests, size_t n, uint8_t* out) {
    grouped_.resize(n), found_.resize(n), origin_.resize(n);
    group_by_shard(digests, n, starts_, grouped_.data(),
                   [&](uint64_t at, size_t i) { origin_[at] = static_cast<uint32_t>(i); });
    for (size_t s = 0; s < shards_.size(); ++s) {
      if (starts_[s] == starts_[s + 1]) continue;
      const auto look = [&] {
        shards_[s]->filter->contains_many(grouped_.data() + starts_[s], starts_[s + 1] - starts_[s],
                                          found_.data() + starts_[s]);
      };
      if (shards_[s]->lookups_wait) {
        const GilAcquire hold;  // Reading begins under the GIL, and gives it up
        const Reading reading(*shards_[s]);
        look();
      } else {
        look();
      }
    }
    for (size_t at = 0; at < n; ++at) out[origin_[at]] = found_[at];
  }

 private:
  const std::vector<FilterObject*>& shards_;
  std::vector<uint64_t> starts_, grouped_;
  std::vector<uint8_t> found_;    // for each of `grouped_`
  std::vector<uint32_t> origin_;  // where each of them stood
};

nb::object contains_from(ShardsObject& object, KeySource& keys, uint32_t threads) {
  const nb::tuple parts = object.parts;  // stay alive while others run
  const std::vector<FilterObject*> shards = object.filters;
  ShardedLookUp look_up(shards);
  return look_up_from<bool, uint8_t>(
      keys, object.hasher,
      [&](const Digests& all, uint8_t* out, const Pulse& pulse) {
        // Large enough for some keys of each shard, small enough for all threads to have one.
        const uint64_t stretch = std::clamp<uint64_t>(all.size() / threads, 1 << 14, 1 << 18);
        return for_stretches(all.size(), threads, stretch, pulse, [&](uint64_t start, uint64_t count) {
          std::vector<uint64_t> digests(count);
          all.read(start, count, digests.data());
          ShardedLookUp own(shards);
          own(digests.data(), count, out + start);
        });
      },
      [&](const uint64_t* digests, size_t n, uint8_t* out) { look_up(digests, n, out); }, [] { return GilRelease(); },
      true);
}

// Merges shard by shard, all or none.
void merge(ShardsObject& self, ShardsObject& other) {
  if (self.filters.size() != other.filters.size()) throw nb::value_error("the numbers of shards differ");
  const nb::tuple mine = self.parts, theirs = other.parts;
  MergeOfParts(self.filters, other.filters).run();
}

uint64_t word_of(uint64_t digest) { return shard_word(digest); }
uint64_t inverse_of(uint64_t word) { return digest_of_shard_word(word); }

}  // namespace

void bind_sharding(nb::module_& m) {
  m.def(
      "shard_of", [](uint64_t digest, uint32_t shards) { return mulhi(shard_word(digest), shards); }, nb::arg("digest"),
      nb::arg("shards"), "The shard of a digest.");
  m.def("shard_words", &each<word_of>, nb::arg("digests"),
        nb::sig("def shard_words(digests: numpy.typing.NDArray[numpy.uint64]) -> numpy.typing.NDArray[numpy.uint64]"),
        "The words that choose the shards.");
  m.def("shard_digests", &each<inverse_of>, nb::arg("words"),
        nb::sig("def shard_digests(words: numpy.typing.NDArray[numpy.uint64]) -> numpy.typing.NDArray[numpy.uint64]"),
        "The inverse of shard_words.");
  m.def("split_by_shard", &split_by_shard, nb::arg("digests"), nb::arg("shards"), nb::arg("positions"),
        nb::sig("def split_by_shard(digests: numpy.typing.NDArray[numpy.uint64], shards: int, positions: bool) -> "
                "tuple[numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.uint64], "
                "numpy.typing.NDArray[numpy.int64]]"),
        "The digests shard by shard, where each shard begins, and where each digest stood (if asked for).");
  nb::class_<ShardsObject>(m, "Shards", nb::type_slots(slots), nb::is_weak_referenceable(),
                           "Base of sharded filters: the shards, and the calls for single keys.")
      .def(nb::init<nb::tuple>(), nb::arg("parts"), nb::sig("def __init__(self, parts: tuple[Filter, ...]) -> None"))
      .def_prop_ro("_seed", [](const ShardsObject& self) { return self.hasher.seed; })
      .def_prop_ro(
          "_parts", [](const ShardsObject& self) { return self.parts; },
          nb::sig("def _parts(self) -> tuple[Filter, ...]"))
      .def("_add_from", &add_from, nb::arg("keys"), nb::arg("threads"))
      .def("_add_new_from", &add_new_from, nb::arg("keys"), nb::arg("threads"),
           nb::sig("def _add_new_from(self, keys: KeySource, threads: int) -> numpy.typing.NDArray[numpy.bool_]"))
      .def("_contains_from", &contains_from, nb::arg("keys"), nb::arg("threads"),
           nb::sig("def _contains_from(self, keys: KeySource, threads: int) -> numpy.typing.NDArray[numpy.bool_]"))
      .def("_merge_shards", &merge, nb::arg("other"));
  m.def(
      "bind_add_to_shards", [](nb::handle type) { add_methods(type, methods); }, nb::arg("type"),
      nb::sig("def bind_add_to_shards(type: type[Shards]) -> None"), "The same as bind_add, for sharded filters.");
}

}  // namespace evenbins::python

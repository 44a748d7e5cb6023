// Growing filters (src/evenbins/filters/growing.py): a key goes into the newest stage, unless some stage has it
// already.
//
// The bits of a stage and its count of keys change in one step, with no Python code in between: an exception from a
// signal handler finds both changed or neither. The newest stage is never full: the key that fills it goes in
// together with the next stage, which Python plans beforehand. If that fails, the key is not in.
//
// The Python object has `_stages`, a tuple of the stages, replaced as a whole; `_writing`, a re-entrant lock that
// writers hold; and `_next_stage(number)`, which makes a stage or raises. A signal handler may add to the same filter
// while the outer call waits for `_next_stage` or polls for signals, so `_stages` is read again after both.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "answered.hpp"
#include "filter_object.hpp"
#include "module.hpp"
#include "sources.hpp"

namespace evenbins::python {
namespace {

constexpr size_t kBatch = 1024;
constexpr uint64_t kMostKeys = uint64_t{1} << 48;  // of a stage; counts of filters merged again and again stop there

// Holds a Python lock until the end of the scope.
class Locked {
 public:
  explicit Locked(nb::handle lock) : lock_(nb::borrow(lock)) { call_object(lock_.attr("acquire")); }
  ~Locked() {
    const nb::error_scope pending;  // an exception may be on its way
    call_object(lock_.attr("release"));
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  nb::object lock_;
};

FilterObject& stage_of(nb::handle part) { return nb::cast<FilterObject&>(part); }

nb::tuple extended(const nb::tuple& parts, nb::handle next) {
  nb::list all;
  for (nb::handle part : parts) all.append(part);
  all.append(next);
  return nb::tuple(all);
}

// Adds the keys that are new, in order, as long as the newest stage stays below its capacity; out[i] = 1 for them, 0
// for the others. Returns how many keys are done: all, or the place of a new key that would fill the stage.
size_t add_below_capacity(const std::vector<const Filter*>& older, FilterObject& newest, const uint64_t* digests,
                          size_t n, uint8_t* out) {
  Filter& filter = *newest.filter;
  uint64_t fresh[kBatch];
  uint32_t places[kBatch];
  uint8_t present[kBatch], added[kBatch];
  for (size_t start = 0; start < n; start += kBatch) {
    size_t left = std::min(kBatch, n - start);
    for (size_t i = 0; i < left; ++i) fresh[i] = digests[start + i], places[i] = static_cast<uint32_t>(i);
    for (const Filter* stage : older) {
      stage->contains_many(fresh, left, present);
      size_t absent = 0;
      for (size_t i = 0; i < left; ++i) {
        fresh[absent] = fresh[i], places[absent] = places[i];
        absent += !present[i];
      }
      left = absent;
    }
    std::fill_n(out + start, std::min(kBatch, n - start), uint8_t{0});
    const uint64_t keys = newest.stage_keys, limit = filter.spec().capacity - 1;
    uint64_t room = keys < limit ? limit - keys : 0;
    size_t seen = 0;
    while (seen < left && room > 0) {
      const size_t step = std::min<size_t>(left - seen, room), treated = filter.add_new_many(fresh + seen, step, added);
      for (size_t i = 0; i < treated; ++i) {
        out[start + places[seen + i]] = added[i];
        room -= added[i];
      }
      seen += treated;
      if (treated < step) break;
    }
    newest.stage_keys = std::max(keys, limit - room);
    for (; seen < left; ++seen)
      if (!filter.contains(fresh[seen])) return start + places[seen];
  }
  return n;
}

// Adds the keys; `done` counts them, also when it throws. out[i] = 1 for those that were new.
void add_digests(nb::handle owner, const uint64_t* digests, size_t n, uint8_t* out, bool let_others_run, size_t& done) {
  while (done < n) {
    const nb::tuple parts = nb::cast<nb::tuple>(owner.attr("_stages"));
    FilterObject& newest = stage_of(parts[parts.size() - 1]);
    std::vector<const Filter*> older;
    for (size_t i = parts.size() - 1; i-- > 0;) older.push_back(stage_of(parts[i]).filter.get());
    {
      done += in_turn(newest, newest.may_write() && !let_others_run,
                      [&] { return add_below_capacity(older, newest, digests + done, n - done, out + done); });
    }
    if (done == n) return;
    const nb::object next = call_object(owner.attr("_next_stage"), nb::int_(parts.size()));
    if (!owner.attr("_stages").is(parts)) continue;  // a signal handler added keys meanwhile
    owner.attr("_stages") = extended(parts, next);
    in_turn(newest, newest.may_write(), [&] {
      if (newest.filter->add(digests[done]) == AddOutcome::full) return;  // the next stage takes it
      ++newest.stage_keys;
      out[done++] = 1;
    });
  }
}

class GrowingSink final : public AnsweredSink {  // without answers_wanted only those of the last piece are there
 public:
  GrowingSink(nb::handle owner, uint32_t threads, bool answers_wanted)
      : owner_(owner), threads_(threads), answers_wanted_(answers_wanted) {}
  uint64_t take_all(const Digests& keys, const Pulse& pulse) override {
    const Locked locked(owner_.attr("_writing"));
    return take_in_pieces(keys, pulse, kPiece, threads_,
                          [&](uint64_t start, const uint64_t* digests, size_t n) { add(start, digests, n, true); });
  }
  void take(const uint64_t* digests, size_t n, bool let_others_run) override {
    const Locked locked(owner_.attr("_writing"));
    add(0, digests, n, let_others_run);
  }

 private:
  static constexpr uint64_t kPiece = 1 << 16;  // keys

  void add(uint64_t before, const uint64_t* digests, size_t n, bool let_others_run) {
    size_t done = 0;
    if (!answers_wanted_) answers.truncate(0);
    uint8_t* out = answers.extend(n);
    try {
      add_digests(owner_, digests, n, out, let_others_run, done);
    } catch (nb::python_error& error) {
      error.restore();
      in = taken + before + done;
      raise_interrupted(in, verb());
    } catch (...) {
      in = taken + before + done;
      throw;
    }
    in = taken + before + done;
  }

  nb::handle owner_;
  uint32_t threads_;  // that hash: keys are added in their order
  bool answers_wanted_;
};

void add_from(nb::handle owner, KeySource& keys, uint64_t seed, uint32_t threads) {
  GrowingSink sink(owner, threads, false);
  keys.run(Hasher(seed), sink);
}

nb::object add_new_from(nb::handle owner, KeySource& keys, uint64_t seed, uint32_t threads) {
  GrowingSink sink(owner, threads, true);
  return answers_from(keys, Hasher(seed), sink);
}

bool add_one(nb::handle owner, uint64_t digest) {
  const Locked locked(owner.attr("_writing"));
  size_t done = 0;
  uint8_t added = 0;
  add_digests(owner, &digest, 1, &added, false, done);
  return added != 0;
}

// Merges stage by stage; `theirs` belongs to nobody else, and stages that `owner` does not have yet are adopted from
// it. Counts rise before bits are merged: if memory ends in between, no count is too low. The caller holds `_writing`.
// Returns false, and does nothing, if a signal handler has changed the filter since the caller read its stages `mine`
// and made, or did not make, the stage `next`, which follows the newest if that becomes full.
bool merge(nb::handle owner, nb::tuple mine, nb::tuple theirs, nb::handle next) {
  const size_t stages = std::max(mine.size(), theirs.size());
  uint64_t keys = 0, capacity = 0;
  for (const nb::tuple& parts : {mine, theirs}) {
    if (parts.size() < stages) continue;
    const FilterObject& newest = stage_of(parts[stages - 1]);
    keys += newest.stage_keys;
    capacity = newest.filter->spec().capacity;
  }
  if (!owner.attr("_stages").is(mine) || (keys >= capacity) == next.is_none()) return false;
  nb::list all;
  for (nb::handle part : mine) all.append(part);
  for (size_t i = mine.size(); i < theirs.size(); ++i) all.append(theirs[i]);
  if (!next.is_none()) all.append(next);
  const size_t common = std::min(mine.size(), theirs.size());
  owner.attr("_stages") = nb::tuple(all);
  for (size_t i = 0; i < common; ++i) {
    FilterObject &stage = stage_of(mine[i]), &other = stage_of(theirs[i]);
    stage.stage_keys = std::min(stage.stage_keys + other.stage_keys, kMostKeys);
  }
  for (size_t i = 0; i < common; ++i) {
    FilterObject &stage = stage_of(mine[i]), &other = stage_of(theirs[i]);
    const Writing alone(stage);
    stage.filter->merge(*other.filter);
  }
  return true;
}

}  // namespace

void bind_stages(nb::module_& m) {
  m.def("add_to_stages", &add_from, nb::arg("owner"), nb::arg("keys"), nb::arg("seed"), nb::arg("threads"),
        nb::sig("def add_to_stages(owner: object, keys: KeySource, seed: int, threads: int) -> None"),
        "Adds the keys of a source to a growing filter.");
  m.def("add_new_to_stages", &add_new_from, nb::arg("owner"), nb::arg("keys"), nb::arg("seed"), nb::arg("threads"),
        nb::sig("def add_new_to_stages(owner: object, keys: KeySource, seed: int, threads: int) -> "
                "numpy.typing.NDArray[numpy.bool_]"),
        "The same, with an answer for each key: whether it was new.");
  m.def("add_digest_to_stages", &add_one, nb::arg("owner"), nb::arg("digest"),
        nb::sig("def add_digest_to_stages(owner: object, digest: int) -> bool"),
        "Adds one key to a growing filter; returns whether it was new.");
  m.def("merge_stages", &merge, nb::arg("owner"), nb::arg("mine"), nb::arg("theirs"), nb::arg("next").none(),
        nb::sig("def merge_stages(owner: object, mine: tuple[Filter, ...], theirs: tuple[Filter, ...], "
                "next: Filter | None) -> bool"),
        "Merges stages into those of a growing filter, unless these have changed; `next` follows the newest if that "
        "becomes full.");
}

}  // namespace evenbins::python

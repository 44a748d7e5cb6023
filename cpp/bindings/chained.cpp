// The Python class `_core.Chains`: the base of evenbins.ChainedTable (src/evenbins/tables/chained.py).
#include "evenbins/chained.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include "evenbins/scattered.hpp"
#include "evenbins/stretches.hpp"
#include "mapping.hpp"
#include "module.hpp"

namespace evenbins::python {
namespace {

struct ChainObject : MemoryObject<ChainedTable> {
  static constexpr Kind kKind = Kind::chained;
  struct Position {  // the entry before, and nothing else
    uint64_t slot, entry;
  };

  using MemoryObject::MemoryObject;
  ~ChainObject() { Recent<ChainObject>::forget(this); }

  static uint64_t payload_bytes(const Spec& spec) { return ChainedTable::payload_bytes(spec); }
  uint64_t size() const { return table->size(); }
  std::string full_text(std::optional<uint64_t> index = {}) const {
    if (!index) return table->full_text() + "; nothing was changed";
    return "keys[" + std::to_string(*index) + "]: " + table->full_text() +
           "; the keys before it are in (error.inserted)";
  }
  std::unique_ptr<ChainedTable> copied() const {
    auto copy = table->copy();
    if (read_only)  // it may have been opened unverified, and what can be changed must be sound
      if (const std::string broken = copy->check(true); !broken.empty()) throw FormatError(broken);
    return copy;
  }
  Put put(const StoredKey& key, uint64_t value, bool is_new) {
    switch (table->put(key, value, is_new)) {
      case ChainedTable::Put::full: return Put::full;
      case ChainedTable::Put::replaced: return Put::replaced;
      default: return Put::inserted;
    }
  }

  uint64_t get_all(const uint64_t* keys, uint64_t n, uint64_t missing, uint64_t* out, uint32_t threads,
                   const Pulse& pulse, uint64_t& first, uint64_t& absent) const {
    std::fill_n(out, n, missing);
    std::vector<uint8_t> found(n);
    const uint64_t done = find_all(keys, n, found.data(), threads, pulse, out);
    count_missing(found, n, first, absent);
    return done;
  }
  uint64_t find_all(const uint64_t* keys, uint64_t n, uint8_t* found, uint32_t threads, const Pulse& pulse,
                    uint64_t* out = nullptr) const {
    std::atomic<uint64_t> done = 0;
    for_stretches(n, threads, kStretch, pulse, [&](uint64_t at, uint64_t count) {
      table->find_many(keys + at * words(), count, out == nullptr ? nullptr : out + at, found + at);
      done += count;
    });
    return done;
  }
  BulkProgress insert_all(const uint64_t* keys, const uint64_t* inserted, uint64_t n, const InsertOption& option,
                          const Pulse& pulse) {
    std::vector<uint64_t> k, v;  // reserved here: no error of memory once keys are in
    k.reserve(std::min(kStretch, n) * words());
    v.reserve(std::min(kStretch, n));
    return in_stretches(n, pulse, [&](uint64_t start, uint64_t count, uint64_t& changed) {
      k.assign(keys + start * words(), keys + (start + count) * words());
      v.assign(inserted + start, inserted + start + count);
      return table->put_many(k.data(), v.data(), count, option.are_new, changed);
    });
  }
  BulkProgress erase_all(const uint64_t* keys, uint64_t n, uint32_t, const Pulse& pulse) {
    std::vector<uint64_t> k;
    k.reserve(std::min(kStretch, n) * words());
    return in_stretches(n, pulse, [&](uint64_t start, uint64_t count, uint64_t& erased) {
      k.assign(keys + start * words(), keys + (start + count) * words());
      erased += table->erase_many(k.data(), count, nullptr);
      return count;
    });
  }

  static uint64_t* append(const StoredKey& key, uint32_t words, uint64_t* out) {
    *out++ = key.low;
    if (words == 2) *out++ = key.high;
    return out;
  }
  size_t page(Position& position, uint64_t n, uint64_t* keys, uint64_t* found) const {
    auto number = static_cast<uint32_t>(std::min<uint64_t>(position.entry, UINT32_MAX));
    size_t copied = 0;
    for (uint32_t next; copied < n && (next = table->next(number)) != 0; number = next) {
      keys = append(table->key_of(next), words(), keys);
      found[copied++] = table->value_of(next);
    }
    position = {0, number};
    return copied;
  }
  Position next_pop(const Position& after) const { return after; }
  struct Cursor {
    explicit Cursor(const ChainedTable& t) : table(t), order(t.used()), words(key_words(t.key_type())) {}
    uint64_t next(uint64_t n, uint64_t* keys, uint64_t* found) {
      uint64_t copied = 0;
      for (const uint64_t end = table.used(); at < end && copied < n; ++at) {
        const auto number = static_cast<uint32_t>(order(at) + 1);
        if (!table.in_use(number)) continue;
        keys = append(table.key_of(number), words, keys);
        found[copied++] = table.value_of(number);
      }
      return copied;
    }
    const ChainedTable& table;
    Scattered order;
    uint32_t words;
    uint64_t at = 0;
  };
};

nb::tuple probe(ChainObject& self, nb::handle key) {
  const StoredKey wanted = Mapping<ChainObject>::key_from(self.finder, key);
  ChainedTable::Probe found;
  if (!self.finder.is_out_of_range(wanted)) read_in_turn(self, [&] { found = self.table->probe(wanted); });
  return nb::make_tuple(found.level, found.reads, found.compared, found.overflow);
}

nb::tuple measure(ChainObject& self) {
  std::vector<uint64_t> state;
  std::vector<ChainedTable::Loads> seen;
  ChainedTable::Queries sums;
  {
    const Access access(self);
    state = self.table->state();
    seen = self.table->loads();
    sums = self.table->queries();
  }
  nb::list loads;
  for (const ChainedTable::Loads& each : seen) loads.append(nb::make_tuple(each.all, each.passed));
  const nb::object squares = (nb::int_(static_cast<uint64_t>(sums.squares >> 64)) << nb::int_(64)) |
                             nb::int_(static_cast<uint64_t>(sums.squares));
  return nb::make_tuple(state, loads, nb::make_tuple(sums.reads, sums.compared, squares));
}

}  // namespace

void bind_chained(nb::module_& m) {
  bind_mapping<ChainObject>(m, "Chains", "Base of the chained table: a plan's integer core, its bins and entries.")
      .def("_probe", &probe, nb::arg("key").none(),
           nb::sig("def _probe(self, key: object) -> tuple[int, int, int, bool]"))
      .def(
          "_measure", &measure,
          nb::sig("def _measure(self) -> tuple[list[int], list[tuple[list[int], list[int]]], tuple[int, int, int]]"),
          "At one moment: the words of the state; for each table, then the overflow chains, bins by load, and how many "
          "of them were passed; sums over all keys of bins read, entries compared, and squares of these.");
}

}  // namespace evenbins::python

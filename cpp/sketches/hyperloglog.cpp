#include "evenbins/hyperloglog.hpp"

#include <algorithm>
#include <bit>
#include <mutex>
#include <optional>

#include "evenbins/digest_stretches.hpp"

namespace evenbins {
namespace {

constexpr uint64_t kRankBits = 6;

uint8_t rank_of(uint64_t rest, uint64_t bits) {  // of the `bits` upper bits of `rest`; those below are 0
  return static_cast<uint8_t>(rest == 0 ? bits + 1 : static_cast<uint64_t>(std::countl_zero(rest)) + 1);
}

uint32_t entry_of(uint64_t digest) {
  constexpr uint64_t p = HyperLogLog::kSparsePrecision;
  return static_cast<uint32_t>((digest >> (64 - p)) << kRankBits | rank_of(digest << p, 64 - p));
}

void add_to(uint8_t* registers, uint64_t precision, const uint64_t* digests, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const uint8_t rank = rank_of(digests[i] << precision, 64 - precision);
    uint8_t& found = registers[digests[i] >> (64 - precision)];
    if (rank > found) found = rank;
  }
}

}  // namespace

uint64_t HyperLogLog::payload_bytes(const Spec& spec) {
  if (spec.hashing != Hashing::independent) throw SpecError("a HyperLogLog needs independent hashing");
  if (spec.capacity != 1) throw SpecError("a HyperLogLog has no capacity: the field must be 1");
  if (spec.core.size() != 2) throw SpecError("a HyperLogLog has two numbers in its core");
  const uint64_t p = spec.core[0];
  if (p < kLeastPrecision || p > kMostPrecision) throw SpecError("precision must be 4 … 18");
  if (spec.core[1] > 1) throw SpecError("the form must be 0 or 1");
  return spec.core[1] == 0 ? 8 + 4 * entries_of(p) : uint64_t{1} << p;
}

void HyperLogLog::add_many(const uint64_t* digests, size_t n) {
  size_t i = 0;
  for (; i < n && !dense(); ++i) {
    if (add_sparse(entry_of(digests[i]))) continue;
    become_dense();
    break;
  }
  if (i < n) add_to(dense_registers(), precision(), digests + i, n - i);
}

// A sketch of its own for as many stretches as are under way, so that threads share none; then all merged. The form and
// the registers follow from the keys alone: which thread had which stretch leaves no trace.
uint64_t HyperLogLog::add_all(const Digests& keys, uint32_t threads, const Pulse& pulse) {
  const uint64_t size = keys.size();
  threads = static_cast<uint32_t>(std::min<uint64_t>(threads, size / kKeysPerThread));
  const auto add_in_order = [&] {
    uint64_t digests[kDigestBatch];
    for (uint64_t start = 0; start < size; start += kDigestBatch) {
      std::optional<BadKey> bad;
      bool stopped = false;
      const uint64_t wanted = std::min<uint64_t>(kDigestBatch, size - start);
      const uint64_t n = read_digests(keys, start, wanted, digests, 1, pulse, bad, stopped);
      if (stopped) return start;
      add_many(digests, n);
      if (bad) throw *bad;
    }
    return size;
  };
  if (threads < 2) return add_in_order();
  std::vector<std::unique_ptr<HyperLogLog>> free;
  std::mutex lock;
  const auto take = [&] {
    {
      const std::lock_guard hold(lock);
      if (!free.empty()) {
        auto taken = std::move(free.back());
        free.pop_back();
        return taken;
      }
    }
    return std::make_unique<HyperLogLog>(spec_, Bits::zeroed(payload_bytes(spec_)));
  };
  uint64_t done = 0;
  try {
    free.reserve(threads);
    const uint64_t stretch = digest_stretch(size, threads);
    done = for_stretches(size, threads, stretch, pulse, [&](uint64_t start, uint64_t count) {
      auto mine = take();
      uint64_t digests[kDigestBatch];
      for (const uint64_t end = start + count; start < end; start += kDigestBatch) {
        const size_t n = std::min<uint64_t>(kDigestBatch, end - start);
        keys.read(start, n, digests);
        mine->add_many(digests, n);
      }
      const std::lock_guard hold(lock);
      free.push_back(std::move(mine));
    });
  } catch (const BadKey&) {
    return add_in_order();  // and throws it, with the keys before it in
  }
  if (done < size) return 0;
  for (const auto& each : free) merge(*each);
  return size;
}

void HyperLogLog::raise_to(const uint8_t* registers_of_another) {
  uint8_t* mine = dense_registers();
  for (uint64_t i = 0; i < registers(); ++i) mine[i] = std::max(mine[i], registers_of_another[i]);
}

bool HyperLogLog::add_sparse(uint32_t entry) {
  uint64_t& count = bits_.words()[0];
  auto* first = reinterpret_cast<uint32_t*>(bits_.words() + 1);
  uint32_t* last = first + count;
  uint32_t* at = std::lower_bound(first, last, entry >> kRankBits << kRankBits);
  if (at != last && *at >> kRankBits == entry >> kRankBits) {
    *at = std::max(*at, entry);
    return true;
  }
  if (count == entries_of(precision())) return false;
  std::copy_backward(at, last, last + 1);
  *at = entry;
  ++count;
  return true;
}

template <typename F>
void HyperLogLog::each_register_of_entries(F&& f) const {
  const uint64_t more = kSparsePrecision - precision();
  for (uint64_t i = 0, n = entries(); i < n; ++i) {
    const uint64_t entry = sparse_entries()[i], index = entry >> kRankBits, low = index & ((uint64_t{1} << more) - 1);
    const uint64_t rank = low == 0 ? more + (entry & ((1 << kRankBits) - 1)) : more - std::bit_width(low) + 1;
    f(index >> more, static_cast<uint8_t>(rank));
  }
}

void HyperLogLog::become_dense() {
  Bits fresh = Bits::zeroed(registers());
  auto* found = reinterpret_cast<uint8_t*>(fresh.words());
  each_register_of_entries([&](uint64_t i, uint8_t rank) { found[i] = std::max(found[i], rank); });
  bits_ = std::move(fresh);
  spec_.core[1] = 1;
}

void HyperLogLog::merge(const HyperLogLog& other) {
  if (precision() != other.precision())
    throw SpecError("cannot merge: the two have different precisions. Build both with the same arguments");
  if (spec_.seed != other.spec_.seed)  // not which: a seed may be a secret
    throw SpecError("cannot merge: their seeds differ. Build both with the same arguments");
  if (!other.dense() && !dense()) {
    uint64_t i = 0;
    const uint64_t n = other.entries();
    while (i < n && add_sparse(other.sparse_entries()[i])) ++i;
    if (i == n) return;
    become_dense();
  } else if (!dense()) {
    become_dense();
  }
  if (other.dense()) return raise_to(other.dense_registers());
  uint8_t* mine = dense_registers();
  other.each_register_of_entries([&](uint64_t i, uint8_t rank) { mine[i] = std::max(mine[i], rank); });
}

void HyperLogLog::clear() {
  Spec empty = spec_;
  empty.core[1] = 0;
  bits_ = Bits::zeroed(payload_bytes(empty));
  spec_.core[1] = 0;
}

std::vector<uint64_t> HyperLogLog::histogram() const {
  std::vector<uint64_t> found(66 - precision(), 0);
  if (dense()) {
    const uint64_t most = found.size() - 1;  // a file that nobody verified may say more
    for (uint64_t i = 0; i < registers(); ++i) ++found[std::min<uint64_t>(dense_registers()[i], most)];
    return found;
  }
  std::vector<uint8_t> all(registers());
  each_register_of_entries([&](uint64_t i, uint8_t rank) { all[i] = std::max(all[i], rank); });
  for (const uint8_t rank : all) ++found[rank];
  return found;
}

std::string HyperLogLog::check(bool thorough) const {
  if (!dense() && entries() > entries_of(precision())) return "there are more entries than room for them";
  if (!thorough && !dense()) thorough = true;  // they are few, and the next addition relies on their order
  if (!thorough) return {};
  if (dense()) {
    for (uint64_t i = 0; i < registers(); ++i)
      if (dense_registers()[i] > 65 - precision()) return "a register is greater than a digest can make it";
    return {};
  }
  const uint32_t* entry = sparse_entries();
  for (uint64_t i = 0; i < entries_of(precision()); ++i) {
    const uint32_t rank = entry[i] & ((1 << kRankBits) - 1);
    if (i >= entries() && entry[i] != 0) return "there is something behind the last entry";
    if (i >= entries()) continue;
    if (rank < 1 || rank > 65 - kSparsePrecision || entry[i] >> (kRankBits + kSparsePrecision) != 0)
      return "no digest can make an entry like one of these";
    if (i > 0 && entry[i] >> kRankBits <= entry[i - 1] >> kRankBits) return "the entries are not in order";
  }
  return {};
}

extern constinit const KindRow kHyperLogLogKind = {
    .kind = Kind::hyperloglog,
    .name = "hyperloglog",
    .payload_bytes = HyperLogLog::payload_bytes,
};

}  // namespace evenbins

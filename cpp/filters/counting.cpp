#include "evenbins/counting.hpp"

#include "evenbins/bloom.hpp"
#include "evenbins/counters.hpp"
#include "evenbins/lanes.hpp"

namespace evenbins {
namespace {

constexpr uint64_t kBlockBits = 512;

// Calls f with the Counters of a width that is known at run time.
template <typename F>
auto with_counters(uint64_t counter_bits, F&& f) {
  switch (counter_bits) {
    case 2: return f(Counters<1>());
    case 4: return f(Counters<2>());
    case 8: return f(Counters<3>());
    default: return f(Counters<4>());
  }
}

CountingView view_of(const Spec& spec, Bits& bits) {
  const uint64_t counters = spec.core[0], counter_bits = spec.core[1], block_bits = spec.core[3];
  const uint64_t size = block_bits == 0 ? counters : counters * counter_bits / block_bits;
  return {bits.words(), size, static_cast<uint32_t>(spec.core[2])};
}

}  // namespace

uint64_t CountingBloomFilter::payload_bytes(const Spec& spec) {
  if (spec.core.size() != 4) throw SpecError("a counting filter has four numbers in its core");
  const uint64_t counters = spec.core[0], counter_bits = spec.core[1], hashes = spec.core[2];
  if (counter_bits != 2 && counter_bits != 4 && counter_bits != 8 && counter_bits != 16)
    throw SpecError("counter_bits must be 2, 4, 8 or 16");
  if (counters < 1 || counters > BloomFilter::kMaxBits / counter_bits)
    throw SpecError("counters must be 1 … 2^56/counter_bits");
  if (spec.core[3] == kBlockBits) {
    if (spec.hashing != Hashing::lanes) throw SpecError("a blocked counting filter needs lane hashing");
    if (counters * counter_bits % kBlockBits != 0) throw SpecError("counters must fill whole blocks");
    if (hashes < 1 || hashes > kMaxBlockedHashes) throw SpecError("hashes must be 1 … 32");
  } else {
    if (spec.core[3] != 0) throw SpecError("block_bits must be 0 or 512");
    if (spec.hashing != Hashing::independent) throw SpecError("a flat counting filter needs independent hashing");
    if (hashes < 1 || hashes > BloomFilter::kMaxHashes) throw SpecError("hashes must be 1 … 64");
  }
  return (counters * counter_bits + 63) / 64 * 8;
}

CountingBloomFilter::CountingBloomFilter(Spec spec, Bits bits)
    : Filter(std::move(spec), std::move(bits)),
      blocked_(spec_.core[3] != 0),
      view_(view_of(spec_, bits_)),
      loops_(kernel().counting(static_cast<uint32_t>(spec_.core[1]), blocked_)) {
  set_one(loops_.one.of(&view_));
}

void CountingBloomFilter::merge_in(const Filter& other, std::vector<uint64_t>& /*space*/) {
  uint64_t* mine = bits_.words();
  const uint64_t* theirs = other.bits().words();
  with_counters(spec_.core[1], [&](auto counters) {
    for (uint64_t i = 0, n = bits_.size(); i < n; ++i) store_word(mine + i, counters.sum(mine[i], theirs[i]));
  });
}

uint64_t CountingBloomFilter::set_bits() const {
  return with_counters(spec_.core[1], [&](auto counters) {
    uint64_t total = 0;
    for (uint64_t i = 0, n = bits_.size(); i < n; ++i) total += std::popcount(counters.used(bits_.words()[i]));
    return total;
  });
}

std::vector<uint64_t> CountingBloomFilter::set_bits_histogram(uint64_t block_bits) const {
  std::vector<uint64_t> histogram(block_bits / spec_.core[1] + 1, 0);
  const uint64_t step = block_bits / 64;
  with_counters(spec_.core[1], [&](auto counters) {
    for (uint64_t i = 0, n = bits_.size(); i + step <= n; i += step) {
      uint32_t count = 0;
      for (uint64_t j = 0; j < step; ++j) count += std::popcount(counters.used(bits_.words()[i + j]));
      ++histogram[count];
    }
  });
  return histogram;
}

std::vector<uint64_t> CountingBloomFilter::counter_histogram() const {
  std::vector<uint64_t> histogram(uint64_t{1} << spec_.core[1], 0);
  with_counters(spec_.core[1], [&](auto counters) {
    for (uint64_t p = 0; p < spec_.core[0]; ++p) ++histogram[counters.at(bits_.words(), p)];
  });
  return histogram;
}

std::string CountingBloomFilter::check(bool) const {
  const uint64_t spare = spec_.core[0] * spec_.core[1] % 64;
  if (spare != 0 && (bits_.words()[bits_.size() - 1] >> spare) != 0) return "counters beyond the last are set";
  return {};
}

extern constinit const KindRow kCountingKind = {
    .kind = Kind::counting,
    .name = "counting",
    .payload_bytes = CountingBloomFilter::payload_bytes,
    .make_filter = make_family<CountingBloomFilter>,
};

}  // namespace evenbins

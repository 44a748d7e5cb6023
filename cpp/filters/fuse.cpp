#include "evenbins/fuse.hpp"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "evenbins/digest_stretches.hpp"
#include "evenbins/stretches.hpp"

namespace evenbins {
namespace {

constexpr uint32_t kAttempts = 256;  // their number is a byte
constexpr char kFixed[] = "a fuse filter never changes: build another from all keys";

AddOutcome refuse(const void*, uint64_t) { return AddOutcome::full; }
bool contains_nothing(const void*, uint64_t) { return false; }

template <typename Load>
bool contains_key(const void* view, uint64_t digest) {
  const auto& f = *static_cast<const FuseView*>(view);
  return f.holds<Load>(f.slots(f.hash(f.number(digest))));
}

// One group of keys is prefetched while the group before it is looked up.
template <typename Load>
void contains_keys(const FuseView& f, const uint64_t* digests, size_t n, uint8_t* out) {
  constexpr size_t kGroup = 16;
  FuseSlots groups[2][kGroup];
  const auto prefetch = [&](size_t start, FuseSlots* group) {
    for (size_t i = 0, end = std::min(kGroup, n - start); i < end; ++i) {
      group[i] = f.slots(f.hash(f.number(digests[start + i])));
      for (const uint64_t slot : group[i].at) __builtin_prefetch(f.address(slot));
    }
  };
  if (n > 0) prefetch(0, groups[0]);
  for (size_t start = 0, which = 0; start < n; start += kGroup, which ^= 1) {
    if (start + kGroup < n) prefetch(start + kGroup, groups[which ^ 1]);
    for (size_t i = 0, end = std::min(kGroup, n - start); i < end; ++i)
      out[start + i] = f.holds<Load>(groups[which][i]);
  }
}

// Calls f with a number of the narrowest type that holds a slot wherever it begins: a wider one is in two lines more
// often.
template <typename F>
void with_load(uint64_t bits, F&& f) {
  if (bits == 8) return f(uint8_t{});
  if (bits <= 9 || bits == 16) return f(uint16_t{});
  if (bits <= 25 || bits == 32) return f(uint32_t{});
  return f(uint64_t{});
}

FuseView view_of(const Spec& spec, const Bits& bits) {
  const std::vector<uint64_t>& core = spec.core;
  const uint64_t block_slots = core[1] * core[2];
  const uint64_t slot_bytes = Packed::bytes(core[0] * block_slots, core[3]);
  return {.words = bits.words(),
          .attempts = reinterpret_cast<const uint8_t*>(bits.words()) + slot_bytes,
          .blocks = core[0],
          .starts = block_slots - 2 * core[1],
          .block_slots = block_slots,
          .fingerprints = core[5],
          .length_log = static_cast<uint32_t>(std::countr_zero(core[1])),
          .bits = static_cast<uint32_t>(core[3])};
}

// Solves one block after the other, in memory of its own.
class Solver {
 public:
  Solver(const FuseView& view, uint64_t* words) : view_(view), words_(words) {}

  // The slots of the block are zero; they remain so if it fails.
  bool solve(uint64_t block, const uint64_t* hashes, size_t n, uint32_t attempt) {
    block_ = block;
    attempt_ = attempt;
    if (!gather(hashes, n) || peel() < n) return false;
    for (size_t i = n; i-- > 0;) {  // the slot of a key is its own among the keys that were peeled after it
      const FuseSlots key = view_.slots(sums_[order_[i]], block, attempt);
      uint64_t value = key.remainder;
      for (const uint64_t slot : key.at) value ^= Packed::at(words_, slot, view_.bits);  // its own is still zero
      put(block * view_.block_slots + order_[i], value);
    }
    return true;
  }

 private:
  // What the keys that are left have in a slot: four times their number, and in the two bits below the exclusive or of
  // which of a key's slots it is; and the exclusive or of their hashes.
  static constexpr uint8_t kOne = 4;

  bool gather(const uint64_t* hashes, size_t n) {
    counts_.assign(view_.block_slots, 0);
    sums_.assign(view_.block_slots, 0);
    const uint64_t base = block_ * view_.block_slots;
    bool overflow = false;
    for (size_t i = 0; i < n; ++i) {
      const FuseSlots key = view_.slots(hashes[i], block_, attempt_);
      for (uint32_t j = 0; j < 3; ++j) {
        const uint64_t slot = key.at[j] - base;
        overflow |= counts_[slot] >= 256 - kOne;
        counts_[slot] = static_cast<uint8_t>((counts_[slot] + kOne) ^ j);
        sums_[slot] ^= hashes[i];
      }
    }
    return !overflow;
  }

  // Returns how many keys could be peeled. order_[i] is then the slot in which key i was alone, and the sum there its
  // hash. Slots are taken in their order, but one in which a key has just become alone is next: it is near, so that
  // memory is read by neighbourhoods. Such slots wait at the end of order_: no slot is in it twice.
  size_t peel() {
    const uint64_t base = block_ * view_.block_slots;
    order_.resize(view_.block_slots + 3);  // one is taken, and two are written whether they wait or not
    size_t peeled = 0;
    for (uint64_t start = 0; start < view_.block_slots; ++start) {
      if (counts_[start] / kOne != 1) continue;
      uint32_t* waiting = order_.data() + order_.size() - 1;
      *waiting = static_cast<uint32_t>(start);
      while (waiting != order_.data() + order_.size()) {
        const uint32_t slot = *waiting++;
        if (counts_[slot] / kOne != 1) continue;  // its key was peeled in another slot
        order_[peeled++] = slot;
        const uint64_t hash = sums_[slot];
        const uint32_t which = counts_[slot] % kOne;
        const FuseSlots key = view_.slots(hash, block_, attempt_);
        counts_[slot] = 0;
        for (uint32_t step = 1; step < 3; ++step) {
          const uint32_t j = which + step < 3 ? which + step : which + step - 3;
          const uint64_t other = key.at[j] - base;
          sums_[other] ^= hash;
          counts_[other] = static_cast<uint8_t>((counts_[other] - kOne) ^ j);
          waiting[-1] = static_cast<uint32_t>(other);
          waiting -= counts_[other] / kOne == 1;
        }
      }
    }
    return peeled;
  }

  // A slot that is zero. Blocks of several begin at words, so no other thread has the word.
  void put(uint64_t slot, uint64_t value) {
    const uint64_t bit = slot * view_.bits;
    words_[bit / 64] |= value << (bit % 64);
    if (bit % 64 + view_.bits > 64) words_[bit / 64 + 1] |= value >> (64 - bit % 64);
  }

  const FuseView& view_;
  uint64_t* words_;
  uint64_t block_ = 0;
  uint32_t attempt_ = 0;
  std::vector<uint8_t> counts_;
  std::vector<uint64_t> sums_;
  std::vector<uint32_t> order_;
};

// Sorts n words that agree in their top `known` bits: two passes by the next bits, then by insertion, since few are out
// of order. `scratch` has room for them. Chosen hashes, of which many agree in more bits, are sorted by comparison.
void sort_part(uint64_t* words, size_t n, uint32_t known, std::vector<uint64_t>& scratch) {
  constexpr uint32_t kBits = 8;
  constexpr size_t kFew = 64, kMoves = 32;
  if (n > kFew) {
    scratch.resize(n);
    uint64_t *from = words, *to = scratch.data();
    for (uint32_t pass = 2; pass-- > 0;) {
      const uint32_t shift = 64 - known - kBits * (pass + 1);
      uint32_t next[size_t{1} << kBits] = {};
      // Lowest digit first: pass 1 is the lower one.
      for (size_t i = 0; i < n; ++i) ++next[(from[i] >> shift) & 0xFF];
      uint32_t sum = 0;
      for (uint32_t& each : next) each = std::exchange(sum, sum + each);
      for (size_t i = 0; i < n; ++i) to[next[(from[i] >> shift) & 0xFF]++] = from[i];
      std::swap(from, to);
    }
  }
  size_t moves = 0;
  for (size_t i = 1; i < n; ++i) {
    const uint64_t word = words[i];
    size_t j = i;
    for (; j > 0 && words[j - 1] > word; --j) words[j] = words[j - 1];
    words[j] = word;
    moves += i - j;
    if (moves > kMoves * n) return std::sort(words, words + n);
  }
}

}  // namespace

uint64_t FuseFilter::payload_bytes(const Spec& spec) {
  if (spec.hashing != Hashing::independent) throw SpecError("a fuse filter needs independent hashing");
  if (spec.core.size() != 6) throw SpecError("a fuse filter has six numbers in its core");
  const uint64_t blocks = spec.core[0], length = spec.core[1], segments = spec.core[2], bits = spec.core[3];
  if (blocks < 1 || blocks > kMaxBlocks) throw SpecError("blocks must be 1 … 2^32");
  if (length < 4 || length > kMaxLength || !std::has_single_bit(length))
    throw SpecError("segment_length must be a power of two, 4 … 2^18");
  if (segments < 3 || segments > (uint64_t{1} << 32) / length)
    throw SpecError("segments must be 3 or more, and those of a block have at most 2^32 slots");
  if (blocks > 1 && length < 64) throw SpecError("segment_length must be 64 or more where there are several blocks");
  if (blocks > kMaxSlots / (segments * length)) throw SpecError("the blocks must have at most 2^51 slots");
  if (bits < kMinBits || bits > kMaxBits) throw SpecError("bits must be 4 … 32");
  if (spec.core[4] > blocks * segments * length) throw SpecError("keys must be at most the slots");
  if (spec.core[5] != 0 && spec.core[4] > spec.core[5]) throw SpecError("keys must be at most the fingerprints");
  if (spec.capacity != std::max<uint64_t>(spec.core[4], 1)) throw SpecError("capacity must be the number of keys");
  return Packed::bytes(blocks * segments * length, bits) + (blocks + 7) / 8 * 8;
}

FuseFilter::FuseFilter(Spec spec, Bits bits) : Filter(std::move(spec), std::move(bits)), view_(view_of(spec_, bits_)) {
  with_load(view_.bits, [&]<typename Load>(Load) {
    set_one({refuse, refuse, keys() == 0 ? contains_nothing : contains_key<Load>, &view_});
    contains_many_ = contains_keys<Load>;
  });
}

std::vector<uint64_t> FuseFilter::merge_space(const Filter&) const { throw SpecError(kFixed); }
void FuseFilter::clear() { throw SpecError(kFixed); }

uint64_t FuseFilter::set_bits() const {
  uint64_t total = 0;
  for (uint64_t slot = 0, n = slots(); slot < n; ++slot) total += Packed::at(bits_.words(), slot, view_.bits) != 0;
  return total;
}

uint64_t FuseFilter::retried() const {
  return view_.blocks - static_cast<uint64_t>(std::count(view_.attempts, view_.attempts + view_.blocks, 0));
}

std::string FuseFilter::check(bool) const {
  const uint64_t spare = slots() * view_.bits % 64;
  const auto* end = reinterpret_cast<const uint8_t*>(bits_.words() + bits_.size());
  if (spare != 0 && (bits_.words()[slots() * view_.bits / 64] >> spare) != 0)
    return "bits beyond the last slot are set";
  if (std::any_of(view_.attempts + view_.blocks, end, [](uint8_t byte) { return byte != 0; }))
    return "attempts beyond the last block are set";
  return {};
}

bool FuseFilter::solve(const uint64_t* hashes, uint32_t threads, const Pulse& pulse) {
  auto* attempts = const_cast<uint8_t*>(view_.attempts);
  const uint64_t *end = hashes + keys(), blocks = view_.blocks;
  std::vector<const uint64_t*> firsts(blocks + 1, end);
  for (uint64_t block = 0; block < blocks; ++block)
    firsts[block] = std::lower_bound(hashes, end, least_word_of(block, blocks));
  std::mutex lock;
  std::vector<std::unique_ptr<Solver>> idle;  // one for each thread that works
  const auto solver = [&] {
    const std::lock_guard hold(lock);
    if (idle.empty()) return std::make_unique<Solver>(view_, bits_.words());
    std::unique_ptr<Solver> last = std::move(idle.back());
    idle.pop_back();
    return last;
  };
  const uint64_t solved = for_stretches(blocks, threads, 1, pulse, [&](uint64_t block, uint64_t) {
    std::unique_ptr<Solver> mine = solver();
    const auto n = static_cast<size_t>(firsts[block + 1] - firsts[block]);
    uint32_t attempt = 0;
    while (attempt < kAttempts && !mine->solve(block, firsts[block], n, attempt)) ++attempt;
    if (attempt == kAttempts)
      throw SpecError("no fuse filter holds these keys: were their digests chosen? Pass the keys, and another seed");
    attempts[block] = static_cast<uint8_t>(attempt);
    const std::lock_guard hold(lock);
    idle.push_back(std::move(mine));
  });
  return solved == blocks;
}

// --- the keys ----------------------------------------------------------------------------------------------

namespace {

// Calls act(hashes, n) for stretches of all numbers, on several threads.
template <typename Act>
uint64_t for_hashes(const Digests& numbers, uint32_t threads, const Pulse& pulse, const Act& act) {
  return for_stretches(numbers.size(), threads, kDigestStretch, pulse, [&](uint64_t start, uint64_t n) {
    const auto hashes = std::make_unique_for_overwrite<uint64_t[]>(n);
    numbers.read(start, n, hashes.get());
    for (uint64_t i = 0; i < n; ++i) hashes[i] = FuseView::hash(hashes[i]);
    act(hashes.get(), n);
  });
}

}  // namespace

uint64_t FuseKeys::count(const Digests& numbers, uint32_t threads, const Pulse& pulse) {
  std::mutex lock;
  return for_hashes(numbers, threads, pulse, [&](const uint64_t* hashes, size_t n) {
    const auto counts = counted(hashes, n);
    const std::lock_guard hold(lock);
    for (size_t part = 0; part < kParts; ++part) ends_[part + 1] += counts[part];
  });
}

void FuseKeys::begin() {
  for (size_t part = 0; part < kParts; ++part) ends_[part + 1] += ends_[part];
  size_ = ends_[kParts];
  hashes_.emplace(Bits::zeroed(8 * std::max<uint64_t>(size_, 1)));
  cursors_ = ends_;
}

uint64_t FuseKeys::take(const Digests& numbers, uint32_t threads, const Pulse& pulse) {
  if (!hashes_) begin();
  std::mutex lock;
  uint64_t* all = hashes_->words();
  return for_hashes(numbers, threads, pulse, [&](const uint64_t* hashes, size_t n) {
    auto next = counted(hashes, n);
    {
      const std::lock_guard hold(lock);
      for (size_t part = 0; part < kParts; ++part) {
        if (next[part] > ends_[part + 1] - cursors_[part]) throw_changed();
        next[part] = std::exchange(cursors_[part], cursors_[part] + next[part]);
      }
    }
    for (size_t i = 0; i < n; ++i) all[next[part_of(hashes[i])]++] = hashes[i];
  });
}

bool FuseKeys::finish(uint32_t threads, const Pulse& pulse) {
  if (!hashes_) begin();
  for (size_t part = 0; part < kParts; ++part)
    if (cursors_[part] != ends_[part + 1]) throw_changed();
  uint64_t* all = hashes_->words();
  threads = static_cast<uint32_t>(std::clamp<uint64_t>(size_ / kKeysPerThread, 1, threads));
  const uint64_t stretch = std::max<uint64_t>(kParts / (uint64_t{8} * threads), 1);
  const uint64_t sorted = for_stretches(kParts, threads, stretch, pulse, [&](uint64_t first, uint64_t n) {
    std::vector<uint64_t> scratch;
    for (uint64_t part = first; part < first + n; ++part) {
      uint64_t *begin = all + ends_[part], *end = all + ends_[part + 1];
      sort_part(begin, static_cast<size_t>(end - begin), kPartBits, scratch);
      cursors_[part] = static_cast<uint64_t>(std::unique(begin, end) - all);
    }
  });
  if (sorted < kParts) return false;
  size_ = 0;
  for (size_t part = 0; part < kParts; ++part) {
    const uint64_t n = cursors_[part] - ends_[part];
    if (size_ != ends_[part]) std::memmove(all + size_, all + ends_[part], 8 * n);
    size_ += n;
  }
  return true;
}

std::vector<uint64_t> FuseKeys::counted(const uint64_t* hashes, size_t n) {
  std::vector<uint64_t> counts(kParts, 0);
  for (size_t i = 0; i < n; ++i) ++counts[part_of(hashes[i])];
  return counts;
}

void FuseKeys::throw_changed() {
  throw std::runtime_error("the keys have changed while they were read: copy them, or build before they change");
}

extern constinit const KindRow kFuseKind = {
    .kind = Kind::fuse,
    .name = "fuse",
    .payload_bytes = FuseFilter::payload_bytes,
    .make_filter = make_family<FuseFilter>,
};

}  // namespace evenbins

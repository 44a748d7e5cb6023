// The core checks itself, without Python: every kernel of this build against the generic one, and a
// checksum of what they leave behind.
//
//     every kernel × {standard, blocked 256, blocked 512, balanced by each policy} × every number of hashes,
//     and every other kind of file: hashing schemes, counters, count-min sketches, tables, chains, summaries, rings and
//     the pages of the one-read table:
//         the same bytes as the generic kernel, the same answers, no false negative,
//         and a present key is gone when any one of its bits is cleared
//     a family that may be full, and removes: what filter.hpp says of it
//     every line of output but the first is a checksum of fixed work, equal on every platform
//
// tests/packaging/test_aarch64.py builds it twice, for this machine and for aarch64 (run by qemu-user),
// and compares the output: then x86 and ARM leave the same digests, bits and files.
#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "evenbins/blocked_view.hpp"
#include "evenbins/chained.hpp"
#include "evenbins/countmin.hpp"
#include "evenbins/filter.hpp"
#include "evenbins/format.hpp"
#include "evenbins/kernel.hpp"
#include "evenbins/multilevel.hpp"
#include "evenbins/paged.hpp"
#include "evenbins/parallel.hpp"
#include "evenbins/platform.hpp"
#include "evenbins/ring.hpp"
#include "evenbins/standard_view.hpp"
#include "evenbins/summary.hpp"
#include "evenbins/xxh3.hpp"

namespace {

using namespace evenbins;
using Words = std::vector<uint64_t>;
constexpr uint64_t kHalf = uint64_t{1} << 31;  // a coin of one half

void require(bool truth, const char* promise, const char* kernel, const char* where, uint64_t size, uint32_t hashes) {
  if (truth) return;
  std::printf("FAILED %s: kernel %s, %s of %llu, %u hashes\n", promise, kernel, where,
              static_cast<unsigned long long>(size), hashes);
  std::exit(1);
}

class Checksum {
 public:
  void add(const void* data, size_t bytes) { state_ = xxh3_64(data, bytes, state_); }
  void add(const Words& words) { add(words.data(), 8 * words.size()); }
  void print(const char* name) const { std::printf("%s %016llx\n", name, static_cast<unsigned long long>(state_)); }

 private:
  uint64_t state_ = 0;
};

Words random_words(uint64_t seed, size_t n) {
  Words words(n);
  for (size_t i = 0; i < n; ++i) words[i] = splitmix(seed, i);
  return words;
}

// What a kernel does with one filter, behind one face for both kinds.
class Standard {
 public:
  static constexpr const char* kName = "standard bits";
  static constexpr uint32_t kMostHashes = 64;
  Standard(const Kernel& kernel, uint64_t bits, uint32_t hashes)
      : words((bits + 63) / 64, 0), kernel_(kernel), view_{words.data(), bits, hashes} {}
  void add(const Words& digests) { kernel_.standard_add(view_, digests.data(), digests.size()); }
  void add_singly(const Words& digests) {  // by positions, as several threads do it
    Words positions(view_.hashes * digests.size());
    kernel_.standard_positions(view_, digests.data(), digests.size(), positions.data());
    for (const uint64_t p : positions) words[p / 64] |= uint64_t{1} << p % 64;
  }
  std::vector<uint8_t> contains(const Words& digests) const {
    std::vector<uint8_t> answers(digests.size());
    kernel_.standard_contains(view_, digests.data(), digests.size(), answers.data());
    return answers;
  }
  bool contains_singly(uint64_t digest) const { return contains({digest})[0] != 0; }
  Words words;

 private:
  const Kernel& kernel_;
  StandardView view_;
};

template <uint32_t BlockLog>
class Blocked {
 public:
  static constexpr const char* kName = BlockLog == 9 ? "512-bit blocks" : "256-bit blocks";
  static constexpr uint32_t kMostHashes = 32;
  Blocked(const Kernel& kernel, uint64_t blocks, uint32_t hashes)
      : words(blocks << (BlockLog - 6), 0),
        loops_(kernel.blocked(BlockLog, hashes)),
        view_{words.data(), blocks, BlockLog, hashes} {}
  void add(const Words& digests) { loops_.add_many(view_, digests.data(), digests.size()); }
  void add_singly(const Words& digests) {
    for (const uint64_t digest : digests) loops_.one.add_to(&view_, digest);
  }
  std::vector<uint8_t> contains(const Words& digests) const {
    std::vector<uint8_t> answers(digests.size());
    loops_.contains_many(view_, digests.data(), digests.size(), answers.data());
    return answers;
  }
  bool contains_singly(uint64_t digest) const { return loops_.one.contained_in(&view_, digest); }
  Words words;

 private:
  const BlockedLoops& loops_;
  BlockedView view_;
};

// A filter that is half full, so that absent keys have some of their bits set and some not.
template <typename Filter>
void compare_kernels(uint64_t size, Checksum& checksum) {
  const Kernel& generic = *kernels().front();
  for (uint32_t hashes = 1; hashes <= Filter::kMostHashes; ++hashes) {
    Filter expected(generic, size, hashes);
    const size_t n = 64 * expected.words.size() * 7 / 10 / hashes + 1;
    const Words present = random_words(hashes, n), absent = random_words(1000 + hashes, 2000);
    expected.add(present);
    const std::vector<uint8_t> answers = expected.contains(absent);
    checksum.add(expected.words);
    checksum.add(answers.data(), answers.size());

    for (const Kernel* kernel : kernels()) {
      const auto check = [&](bool truth, const char* promise) {
        require(truth, promise, kernel->name, Filter::kName, size, hashes);
      };
      Filter bulk(*kernel, size, hashes), single(*kernel, size, hashes);
      bulk.add(present);
      single.add_singly(present);
      check(bulk.words == expected.words, "the bits of the generic kernel (bulk)");
      check(single.words == expected.words, "the bits of the generic kernel (one by one)");
      check(bulk.contains(absent) == answers, "the answers of the generic kernel");
      for (const uint8_t yes : bulk.contains(present)) check(yes != 0, "no false negative");
      for (size_t i = 0; i < absent.size(); ++i)
        check(bulk.contains_singly(absent[i]) == (answers[i] != 0), "single look-ups answer as bulk does");

      for (size_t i = 0; i < 4; ++i) {
        Filter lonely(*kernel, size, hashes);
        lonely.add({absent[i]});
        for (uint64_t& word : lonely.words) {
          for (uint64_t left = word; left != 0; left &= left - 1) {
            const uint64_t bit = left & (~left + 1);
            word ^= bit;
            check(!lonely.contains_singly(absent[i]) && lonely.contains({absent[i]})[0] == 0, "every bit counts");
            word ^= bit;
          }
        }
        check(lonely.contains_singly(absent[i]), "a key is present when its bits are");
      }
    }
  }
}

void compare_digests() {
  Checksum checksum;
  Words keys = random_words(7, 5000);
  for (uint64_t i = 0; i < 64; ++i) keys.push_back(uint64_t{1} << i);
  for (uint64_t i = 0; i < 64; ++i) keys.push_back(~i);
  for (const uint64_t seed : {uint64_t{0}, uint64_t{12345}, ~uint64_t{0}}) {
    const IntHash hash(seed);
    const auto* as_signed = reinterpret_cast<const int64_t*>(keys.data());
    Words expected(keys.size()), expected_signed(keys.size()), found(keys.size());
    kernels().front()->digest_u64(hash, keys.data(), keys.size(), expected.data());
    kernels().front()->digest_i64(hash, as_signed, keys.size(), expected_signed.data());
    for (const Kernel* kernel : kernels()) {
      kernel->digest_u64(hash, keys.data(), keys.size(), found.data());
      require(found == expected, "the generic digests of uint64", kernel->name, "keys", keys.size(), 0);
      kernel->digest_i64(hash, as_signed, keys.size(), found.data());
      require(found == expected_signed, "the generic digests of int64", kernel->name, "keys", keys.size(), 0);
    }
    checksum.add(expected);
    checksum.add(expected_signed);
  }
  checksum.print("integer-digests");
}

void hash_strings() {
  Checksum checksum;
  const Words text = random_words(9, 512);
  for (size_t n = 0; n <= 2048; ++n) {
    for (const uint64_t seed : {uint64_t{0}, uint64_t{0x9E3779B97F4A7C15}}) {
      const Hash128 wide = xxh3_128(text.data(), n, seed);
      checksum.add({xxh3_64(text.data(), n, seed), wide.low, wide.high});
    }
  }
  checksum.print("xxh3");
}

class Array final : public Digests {
 public:
  explicit Array(Words digests) : digests_(std::move(digests)) {}
  uint64_t size() const override { return digests_.size(); }
  void read(uint64_t start, size_t n, uint64_t* out) const override {
    for (size_t i = 0; i < n; ++i) out[i] = digests_[start + i];
  }

 private:
  Words digests_;
};

// A balanced filter of every policy, too small for its keys: blocks, list and spills are all used.
void compare_balanced() {
  Checksum checksum;
  const Words present = random_words(13, 3000), absent = random_words(14, 2000);
  for (const uint64_t block_bits : {256, 512}) {
    for (uint64_t hashes = 1; hashes <= 32; ++hashes) {
      const uint64_t h = 6, x = block_bits / 3, never = block_bits + 1;
      const Words cores[] = {
          {1, block_bits, hashes, 1, kHalf, 200, 0, 0, 200, h},
          {2, block_bits, hashes, 3, kHalf, 300, 1, 1500, 200, h},
          {3, block_bits, hashes, 3, kHalf, 200, 0, 0, 160, h, 40, h + 1, 9, h + 3},
          {4, block_bits, hashes, 3, 0, 0, 0, 0, 150, x, 40, x + 9, 11, never},
          {5, block_bits, hashes, 2, 0, 0, 0, 0, 200, 0},
      };
      for (const Words& core : cores) {
        Words expected;
        std::vector<uint8_t> answers;
        for (const Kernel* kernel : kernels()) {
          use_kernel(kernel->name);
          const auto check = [&](bool truth, const char* promise) {
            require(truth, promise, kernel->name, "policy", core[0], static_cast<uint32_t>(hashes));
          };
          const Spec spec{Kind::balanced, Hashing::lanes, 0, 3000, core};
          const auto bulk = make_filter(spec, Bits::zeroed(payload_bytes(spec)));
          const auto single = make_filter(spec, Bits::zeroed(payload_bytes(spec)));
          bulk->add_many(present.data(), present.size());
          for (const uint64_t digest : present) single->add(digest);
          check(bulk->bits() == single->bits(), "bulk leaves what one by one leaves");
          check(bulk->check(true).empty(), "all invariants");
          for (const uint64_t digest : present) check(bulk->contains(digest), "no false negative");
          std::vector<uint8_t> found(present.size());
          bulk->contains_many(present.data(), present.size(), found.data());
          for (const uint8_t yes : found) check(yes != 0, "no false negative in bulk");
          found.resize(absent.size());
          bulk->contains_many(absent.data(), absent.size(), found.data());
          for (size_t i = 0; i < absent.size(); ++i)
            check(bulk->contains(absent[i]) == (found[i] != 0), "single look-ups answer as bulk does");
          const Words words(bulk->bits().words(), bulk->bits().words() + bulk->bits().size());
          if (expected.empty()) {
            expected = words;
            answers = found;
            checksum.add(words);
            checksum.add(found.data(), found.size());
          }
          check(words == expected && found == answers, "the bits and answers of the generic kernel");
        }
      }
    }
  }
  checksum.print("balanced");
}

// Whole files, built by one thread and by three, with every kernel.
void build_files() {
  Checksum checksum;
  const Array keys(random_words(11, 20'000));
  const Spec specs[] = {
      {Kind::standard, Hashing::independent, 5, 20'000, {199'999, 7}},
      {Kind::standard, Hashing::partition, 5, 20'000, {199'997, 7}},
      {Kind::standard, Hashing::double_hashing, 5, 20'000, {199'999, 7}},
      {Kind::standard, Hashing::enhanced_cube, 5, 20'000, {199'999, 7}},
      {Kind::standard, Hashing::triple, 5, 20'000, {199'999, 7}},
      {Kind::counting, Hashing::independent, 10, 20'000, {199'999, 4, 7, 0}},
      {Kind::counting, Hashing::lanes, 11, 20'000, {128 * 2400, 4, 8, 512}},
      {Kind::blocked, Hashing::lanes, 6, 20'000, {401, 512, 8}},
      {Kind::blocked, Hashing::lanes, 7, 20'000, {803, 256, 20}},
      {Kind::balanced, Hashing::lanes, 8, 20'000, {3, 512, 9, 3, kHalf, 9000, 0, 0, 520, 24, 90, 24, 15, 24}},
      {Kind::balanced, Hashing::lanes, 9, 20'000, {4, 256, 7, 2, 0, 0, 0, 0, 1000, 120, 303, 257}},
  };
  for (const Spec& spec : specs) {
    Words expected;
    for (const Kernel* kernel : kernels()) {
      use_kernel(kernel->name);
      for (const uint32_t threads : {1u, 3u}) {
        const auto filter = make_filter(spec, Bits::zeroed(payload_bytes(spec)));
        add_all(*filter, keys, threads, [] { return true; });
        const Bits& bits = filter->bits();
        const Words words(bits.words(), bits.words() + bits.size());
        if (expected.empty()) {
          expected = words;
          const std::vector<uint8_t> header = write_header(spec, bits.words(), bits.bytes());
          checksum.add(header.data(), header.size());
          checksum.add(words);
        }
        require(words == expected, "the same file", kernel->name, "threads", threads,
                static_cast<uint32_t>(spec.core.back()));
      }
    }
  }
  checksum.print("files");
}

// A family that does what none of the others does: it may be full, removes without counters, and has look-ups that must
// wait for writers. Buckets of kRoom sorted digests, those of the same top bits; 0 is a free slot.
class Exact final : public Filter, public ByRange, public SupportsRemoval {
 public:
  static constexpr uint64_t kBuckets = 16, kRoom = 512;
  static constexpr Kind kKind = static_cast<Kind>(99);

  Exact() : Exact({kKind, Hashing::independent, 0, kBuckets * kRoom, {}}, Bits::zeroed(8 * kBuckets * kRoom)) {}
  Exact(Spec spec, Bits bits) : Filter(std::move(spec), std::move(bits)) {
    set_one({add_key, add_key, contains_key, this});
  }

  size_t add_many(const uint64_t* digests, size_t n) override {
    for (size_t i = 0; i < n; ++i)
      if (add(digests[i]) == AddOutcome::full) return i;
    return n;
  }
  void contains_many(const uint64_t* digests, size_t n, uint8_t* out) const override {
    for (size_t i = 0; i < n; ++i) out[i] = contains(digests[i]);
  }
  uint64_t keys_left() const override {
    uint64_t least = kRoom;
    for (uint64_t b = 0; b < kBuckets; ++b) least = std::min(least, kRoom - load(b));
    return least;
  }
  ByRange* by_range() override { return this; }
  uint32_t items_per_key() const override { return 0; }
  void items(const uint64_t*, size_t, uint64_t*) const override {}
  Address address() const override { return {.scale = kBuckets, .shift = 0, .lines = kBuckets}; }
  void add_items(const uint64_t* digests, size_t n) override {
    require(add_many(digests, n) == n, "threads get no more keys than there is room for", "any", "keys", n, 0);
  }
  SupportsRemoval* removal() override { return this; }
  bool remove(uint64_t digest) override {
    uint64_t *first = bucket(digest), *last = first + kRoom, *at = std::find(first, last, digest);
    if (at == last) return false;
    std::copy(at + 1, last, at);
    last[-1] = 0;
    return true;
  }
  void remove_many(const uint64_t* digests, size_t n, uint8_t* out) override {
    for (size_t i = 0; i < n; ++i) out[i] = remove(digests[i]);
  }
  Concurrency concurrency() const override { return Concurrency::readers_or_writer; }
  void clear() override {
    ++cleared;
    Filter::clear();
  }
  std::unique_ptr<Filter> copy() const override { return std::make_unique<Exact>(spec_, bits_.copy()); }
  int cleared = 0;

 private:
  uint64_t* bucket(uint64_t digest) const {
    return const_cast<uint64_t*>(bits_.words()) + mulhi(digest, kBuckets) * kRoom;
  }
  uint64_t load(uint64_t b) const {
    const uint64_t* first = bits_.words() + b * kRoom;
    return static_cast<uint64_t>(std::find(first, first + kRoom, 0) - first);
  }
  static AddOutcome add_key(const void* view, uint64_t digest) {
    uint64_t *first = static_cast<const Exact*>(view)->bucket(digest), *last = std::find(first, first + kRoom, 0);
    uint64_t* at = std::lower_bound(first, last, digest);
    if (at != last && *at == digest) return AddOutcome::present;
    if (last == first + kRoom) return AddOutcome::full;
    std::copy_backward(at, last, last + 1);
    *at = digest;
    return AddOutcome::added;
  }
  static bool contains_key(const void* view, uint64_t digest) {
    const uint64_t* first = static_cast<const Exact*>(view)->bucket(digest);
    return std::find(first, first + kRoom, digest) != first + kRoom;
  }
};

// What filter.hpp promises of a family that may be full: exactly the keys before the first without room are in.
void fill_up() {
  const auto check = [](bool truth, const char* promise) { require(truth, promise, "any", "filter", 99, 0); };
  const auto go_on = [] { return true; };
  const Words digests = random_words(31, 20'000);
  const Array keys(digests);
  Exact one;
  size_t room = 0;
  while (one.add(digests[room]) == AddOutcome::added) ++room;
  check(room > Exact::kRoom && room < Exact::kBuckets * Exact::kRoom, "full at the first bucket without room");
  check(one.add(digests[room]) == AddOutcome::full && !one.contains(digests[room]), "a full filter stays as it was");
  check(one.add(digests[0]) == AddOutcome::present, "a key that is in needs no room");
  for (const uint32_t threads : {1u, 2u, 3u}) {
    Exact many;
    uint64_t full_at = 0;
    try {
      add_all(many, keys, threads, go_on);
    } catch (const FilterFull& full) {
      full_at = full.index;
    }
    check(full_at == room && many == one, "the same place, the same bytes, by any number of threads");
  }
  Exact fresh;
  std::vector<uint8_t> added(digests.size());
  const size_t seen = fresh.add_new_many(digests.data(), digests.size(), added.data());
  check(seen == room && fresh == one, "new keys until it is full");
  check(std::count(added.begin(), added.begin() + static_cast<std::ptrdiff_t>(room), 1) ==
            static_cast<std::ptrdiff_t>(room),
        "each of them was new");

  std::vector<uint8_t> removed(digests.size());
  const Array first(Words(digests.begin(), digests.begin() + 1000));
  check(remove_all(one, first, removed.data(), 1, go_on) == 1000, "removes all");
  check(std::count(removed.begin(), removed.begin() + 1000, 1) == 1000, "every key was there");
  check(!one.removal()->remove(digests[0]) && !(one == fresh), "and is there no longer");
  check(one.counting() == nullptr && !one.is_multiset(), "removal without counters");
  Filter& base = one;
  base.clear();
  check(one.cleared == 1 && one == Exact(), "clear is the family's own");
}

// Keys added with weights and estimated, by both constructions, with every kernel.
void count_streams() {
  Checksum checksum;
  const Words digests = random_words(12, 5'000);
  Words weights(digests.size());
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = i % 7;
  for (const uint64_t construction : {1u, 2u}) {
    for (const uint64_t conservative : {0u, 1u}) {
      const Spec spec{Kind::count_min,
                      Hashing::independent,
                      13,
                      1,
                      {construction, 283, 4, construction == 1 ? 2u : 1u, conservative, std::bit_cast<uint64_t>(0.01),
                       std::bit_cast<uint64_t>(0.05)}};
      Words expected;
      for (const Kernel* kernel : kernels()) {
        use_kernel(kernel->name);
        CountMinSketch sketch(spec, Bits::zeroed(payload_bytes(spec)));
        sketch.add_many(digests.data(), weights.data(), digests.size());
        Words found(digests.size());
        sketch.count_many(digests.data(), digests.size(), found.data());
        const auto require_it = [&](bool truth, const char* promise) {
          require(truth, promise, kernel->name, "construction", construction, 0);
        };
        for (size_t i = 0; i < found.size(); ++i) require_it(found[i] >= weights[i], "no underestimate");
        found.insert(found.end(), sketch.bits().words(), sketch.bits().words() + sketch.bits().size());
        if (expected.empty()) checksum.add(expected = found);
        require_it(found == expected, "the counters and estimates of the generic kernel");
      }
    }
  }
  checksum.print("count-min");
}

// Keys stored, overwritten, deleted and looked up in tables of every scheme, with every kernel.
void keep_tables() {
  Checksum checksum;
  for (const uint64_t scheme : {1u, 2u, 3u, 4u, 5u}) {
    for (const uint64_t slots : {1u, 2u, 4u, 8u}) {
      for (const uint64_t key_type : {1u, 3u}) {
        const size_t words = key_type == 3 ? 2 : 1, n = 1500;
        const Spec spec{Kind::multilevel,
                        Hashing::independent,
                        14,
                        n,
                        {scheme, slots, key_type, 2, 1, 600, 900 / slots + 1, 900 / slots + 1}};
        const Words keys = random_words(15, n * words), values = random_words(16, n);
        Words expected;
        for (const Kernel* kernel : kernels()) {
          use_kernel(kernel->name);
          const auto require_it = [&](bool truth, const char* promise) {
            require(truth, promise, kernel->name, "scheme", scheme, static_cast<uint32_t>(slots));
          };
          MultilevelTable table(spec, Bits::zeroed(payload_bytes(spec)));
          require_it(table.insert_many(keys.data(), values.data(), n, false) == n, "room for all keys");
          require_it(table.insert_many(keys.data(), values.data() + 7, n / 2, false) == n / 2, "values overwritten");
          const size_t gone = n / 3;
          require_it(table.erase_many(keys.data(), gone) == gone, "keys deleted");
          Words found(n);
          std::vector<uint8_t> present(n);
          const size_t hits = table.get_many(keys.data(), n, 0, found.data(), present.data());
          require_it(hits == n - gone, "the keys that are left are found");
          for (size_t i = 0; i < n; ++i) {
            const uint64_t wanted = i < gone ? 0 : i < n / 2 ? values[i + 7] : values[i];
            require_it(present[i] == (i >= gone) && found[i] == wanted, "every key has its value");
          }
          require_it(table.check(true).empty(), "the invariants");
          const Words state(table.bits().words(), table.bits().words() + table.bits().size());
          if (expected.empty()) checksum.add(expected = state);
          require_it(state == expected, "the bytes of the generic kernel");
        }
      }
    }
  }
  checksum.print("tables");
}

// Rings of every policy and layout, after churn: their files.
void turn_rings() {
  Checksum checksum;
  for (const uint32_t layout : {1u, 2u})
    for (const uint32_t policy : {1u, 2u, 3u, 4u, 5u}) {
      RingConfig config;
      config.policy = static_cast<RingPolicy>(policy);
      config.layout = static_cast<RingLayout>(layout);
      config.copies = 2;
      config.array_bits = layout == 2 ? 12 : 20;
      config.rate = policy == 1 ? 0 : 1100000000;
      config.seed = 17;
      Ring ring(config);
      RingMoves moves;
      for (uint32_t i = 0; i < 20; ++i)
        ring.add_node({"node" + std::to_string(i), 1.0, Ring::kWhole * (1 + i % 3) - i, 0}, i == 19, moves);
      ring.start_audit();
      for (const uint64_t digest : random_words(18, 2000)) ring.assign(digest);
      ring.remove_node(ring.find("node7"), moves);
      ring.mark_down(ring.find("node3"), moves);
      ring.add_node({"another", 1.0, Ring::kWhole, 0}, false, moves);
      for (const uint64_t digest : random_words(18, 500)) ring.release(digest);
      ring.rebalance(100, moves);
      ring.mark_up(ring.find("node3"), moves);
      ring.compact(moves);
      require(ring.check(true).empty(), "the invariants", "ring", "policy", policy, layout);
      require(ring.audit().broken == 0, "the bound", "ring", "policy", policy, layout);
      const Ring::Image image = ring.image();
      checksum.add(image.bits().words(), image.bits().bytes());
      for (const RingMove& each : moves) checksum.add(&each.digest, sizeof each.digest);
    }
  checksum.print("rings");
}

// Keys stored, overwritten and deleted in chained tables of every policy.
void keep_chains() {
  Checksum checksum;
  const size_t n = 1500;
  const Words cores[] = {
      {1, 1, kHalf, 1, 1, 50, 600, 2},
      {2, 3, kHalf / 2, 2, 1, 40, 350, 3},
      {3, 3, kHalf, 3, 3, 30, 400, 2, 100, 2, 40, 2},
      {6, 2, 0, 1, 2, 0, 320, 0},
      {7, 4, 0, 3, 1, 0, 90, 0, 90, 0, 90, 0, 80, 0},
  };
  for (const Words& core : cores) {
    const Spec spec{Kind::chained, Hashing::independent, 19, n, core};
    const size_t words = core[3] == 3 ? 2 : 1;
    const Words keys = random_words(20, n * words), values = random_words(21, n);
    Words expected;
    for (const Kernel* kernel : kernels()) {
      use_kernel(kernel->name);
      const auto require_it = [&](bool truth, const char* promise) {
        require(truth, promise, kernel->name, "policy", core[0], 0);
      };
      ChainedTable table(spec, Bits::zeroed(payload_bytes(spec)));
      uint64_t inserted = 0;
      require_it(table.put_many(keys.data(), values.data(), n, false, inserted) == n && inserted == n, "room for all");
      const size_t gone = n / 3;
      require_it(table.erase_many(keys.data(), gone, nullptr) == gone, "keys deleted");
      require_it(table.put_many(keys.data(), values.data() + 1, 100, true, inserted) == 100, "room again");
      Words found(n);
      std::vector<uint8_t> present(n);
      table.find_many(keys.data(), n, found.data(), present.data());
      for (size_t i = 0; i < n; ++i) {
        require_it(present[i] == (i < 100 || i >= gone), "the keys that are left are found");
        if (present[i]) require_it(found[i] == values[i + (i < 100)], "every key has its value");
      }
      require_it(table.check(true, true).empty(), "the invariants");
      const Words state(table.bits().words(), table.bits().words() + table.bits().size());
      if (expected.empty()) checksum.add(expected = state);
      require_it(state == expected, "the bytes of the generic kernel");
    }
  }
  checksum.print("chains");
}

// Summaries of every kind: keys of several levels, some of which go.
void summarise() {
  Checksum checksum;
  const Words digests = random_words(22, 900);
  const std::pair<Kind, Words> specs[] = {
      {Kind::interpolation, {5, 55, 1200}},
      {Kind::interpolation, {9, 14, 1100}},
      {Kind::single_filter, {5, 9000, 15}},
      {Kind::single_filter, {7, 4400, 11}},
      {Kind::single_filter, {4, 2400, 6, 4, 3, 3, 2}},
      {Kind::multiple_bloom, {4, 0, 9000, 7, 1, 6000, 13, 1, 3000, 9, 1, 300, 0, 1}},
      {Kind::multiple_bloom, {3, 1, 9001, 7, 1, 6000, 13, 1, 3097, 33, 1}},
      {Kind::multiple_bloom, {3, 2, 9000, 7, 4, 6000, 13, 3, 400, 0, 1}},
      {Kind::counters, {10, 9170, 3}},
  };
  for (const auto& [kind, core] : specs) {
    const Spec spec{kind, Hashing::independent, 23, digests.size(), core};
    const auto summary = make_summary(spec, Bits::zeroed(payload_bytes(spec)));
    const auto check = [&](bool truth, const char* promise) {
      require(truth, promise, "any", "kind", static_cast<uint64_t>(spec.kind), 0);
    };
    const auto level_of = [&](size_t i) {
      return kind == Kind::counters ? 1 : static_cast<uint32_t>(i * i % summary->levels() + 1);
    };
    for (size_t i = 0; i < digests.size(); ++i) summary->add(digests[i], level_of(i));
    if (summary->can_remove())
      for (size_t i = 0; i < 200; ++i) check(summary->remove(digests[i], level_of(i)), "keys go");
    const Words asked = random_words(24, 500);
    std::vector<uint8_t> levels(asked.size());
    summary->level_many(asked.data(), asked.size(), levels.data());
    for (size_t i = 200; i < digests.size(); ++i) check(summary->level(digests[i]) != 0, "no key is lost");
    check(summary->check(true).empty(), "the invariants");
    checksum.add(summary->bits().words(), summary->bits().bytes());
    checksum.add(levels.data(), levels.size());
  }
  checksum.print("summaries");
}

// A one-read table on disk: its pages and its summary, but for what is random in them (headers, stamps).
void turn_pages() {
  Checksum checksum;
  const std::string path =
      (std::filesystem::temp_directory_path() / ("evenbins-selftest-" + std::to_string(process_id()))).string();
  const auto opened = [&](int flags) { return Descriptor(platform::open_file(path.c_str(), flags, 0600)); };
  for (const uint64_t key_type : {1u, 3u}) {
    const size_t words = key_type == 3 ? 2 : 1, n = 3000;
    const Words keys = random_words(25, n * words), values = random_words(26, n);
    const Spec spec{Kind::paged, Hashing::independent, 27, n, {key_type, 1, 4096, 2, 2, 6, 14 * words, 3, 2}};
    const auto check = [&](bool truth, const char* promise) { require(truth, promise, "any", "pages", key_type, 0); };
    Descriptor fresh = opened(O_RDWR | O_CREAT | O_TRUNC);
    PagedTable::create(fresh, path, spec, 28);
    Descriptor file = opened(O_RDWR), no_journal(-1);
    PagedTable table(file, no_journal, path, true, false);
    const auto go_on = [] { return true; };
    table.build_summary(go_on);
    const PagedTable::Progress in = table.insert_many(keys.data(), values.data(), n, {2, 2}, go_on);
    check(in.done == n && in.changed == n && !in.full, "room for all keys");
    check(table.erase_many(keys.data(), n / 3, {2, 2}, go_on).changed == n / 3, "keys deleted");
    Words found(n);
    std::vector<uint8_t> present(n);
    table.get_many(keys.data(), n, 0, found.data(), present.data(), {2, 2}, go_on);
    for (size_t i = 0; i < n; ++i)
      check(present[i] == (i >= n / 3) && found[i] == (present[i] ? values[i] : 0), "every key has its value");
    check(table.check().empty(), "the invariants");
    table.checkpoint();
    std::vector<uint8_t> page(4096);
    for (uint64_t number = 0; number < table.shape().total_pages; ++number) {
      table.store().read(number, page.data());
      checksum.add(page.data(), page.size());
    }
    const std::vector<uint8_t> summary = table.summary_file();
    checksum.add(summary.data() + 24, summary.size() - 32);
    table.close();
    std::filesystem::remove(path);
  }
  checksum.print("pages");
}

// What structures rely on: locks that exclude each other, and pages that are zeros when they come back.
void ask_the_platform() {
  const auto check = [](bool truth, const char* promise) { require(truth, promise, "any", "platform", 0, 0); };
  const std::string path =
      (std::filesystem::temp_directory_path() / ("evenbins-locked-" + std::to_string(process_id()))).string();
  {
    const Descriptor one(platform::open_file(path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
    const Descriptor two(platform::open_file(path.c_str(), O_RDWR, 0600));
    check(one.number() >= 0 && two.number() >= 0, "a new file, opened twice");
    check(platform::open_file(path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600) < 0 && errno == EEXIST, "it is there");
    check(platform::lock_file(one.number(), true) == 0, "a lock");
    check(platform::lock_file(two.number(), false) < 0 && errno == EWOULDBLOCK, "excludes others");
    check(platform::write_at(two.number(), 5, "abc", 3) == 3, "but not from the bytes");
    check(platform::unlock_file(one.number()) == 0 && platform::lock_file(two.number(), false) == 0, "and ends");
    check(platform::lock_file(one.number(), false) == 0, "shared by many");
    char bytes[9] = {};
    check(platform::file_size(one.number()) == 8 && platform::read_at(one.number(), 3, bytes, 9) == 5, "a short read");
    check(std::string(bytes, 5) == std::string("\0\0abc", 5), "zeros before what was written");
    check(platform::read_at(one.number(), 8, bytes, 9) == 0, "the end of the file");
    check(platform::resize_file(one.number(), 6) == 0 && platform::flush_file(one.number()) == 0, "cut, and flushed");
    check(platform::file_size(two.number()) == 6, "for everybody");
  }
  std::filesystem::remove(path);
  constexpr uint64_t kBytes = uint64_t{6} << 20;
  Bits bits = Bits::zeroed(kBytes);
  for (uint64_t i = 0; i < bits.size(); i += 512) bits.words()[i] = ~i;
  bits.release(0, bits.size() / 2);
  uint64_t zeros = 0;
  for (uint64_t i = 0; i < bits.size(); i += 512) zeros += bits.words()[i] == 0;
  check(2 * zeros >= kBytes / 4096 - 32 && 2 * zeros <= kBytes / 4096, "pages that were dropped are zeros");
}

}  // namespace

int main() {
  std::printf("kernels");
  for (const Kernel* kernel : kernels()) std::printf(" %s", kernel->name);
  std::printf("\n");
  compare_digests();
  hash_strings();
  Checksum standard, blocked;
  for (const uint64_t bits : {uint64_t{1}, uint64_t{1003}, uint64_t{65'536}}) compare_kernels<Standard>(bits, standard);
  standard.print("standard");
  for (const uint64_t blocks : {uint64_t{1}, uint64_t{37}}) {
    compare_kernels<Blocked<8>>(blocks, blocked);
    compare_kernels<Blocked<9>>(blocks, blocked);
  }
  blocked.print("blocked");
  compare_balanced();
  build_files();
  fill_up();
  count_streams();
  keep_tables();
  turn_rings();
  keep_chains();
  summarise();
  turn_pages();
  ask_the_platform();
}

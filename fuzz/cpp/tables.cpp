// Files of multilevel tables (7); with a summary attached too (guided.hpp).
#include "evenbins/guided.hpp"
#include "evenbins/multilevel.hpp"
#include "harness.hpp"

using namespace evenbins;
using namespace evenbins::fuzz;

namespace {

constexpr size_t kKeys = 12;

std::unique_ptr<MultilevelTable> make(Spec spec, Bits bits) {
  return std::make_unique<MultilevelTable>(std::move(spec), std::move(bits));
}

// Keys, some of which are in: from a page of the table, and new ones.
std::vector<uint64_t> keys_for(const MultilevelTable& table, Dice& dice) {
  const uint32_t words = key_words(table.key_type());
  std::vector<uint64_t> keys(words * kKeys), values(kKeys);
  MultilevelTable::Position position{0, 0};
  table.page(position, kKeys / 2, keys.data(), values.data());
  for (size_t i = words * kKeys / 2; i < keys.size(); ++i) keys[i] = dice.word();
  return keys;
}

StoredKey key_at(const std::vector<uint64_t>& keys, uint32_t words, size_t i) {
  return words == 1 ? StoredKey{keys[i], 0} : StoredKey{keys[2 * i], keys[2 * i + 1]};
}

void look(const MultilevelTable& table, Dice& dice) {
  const uint32_t words = key_words(table.key_type());
  const std::vector<uint64_t> keys = keys_for(table, dice);
  uint64_t values[kKeys];
  uint8_t found[kKeys];
  table.get_many(keys.data(), kKeys, 7, values, found);
  for (size_t i = 0; i < kKeys; ++i) {
    const uint64_t* one = table.find(key_at(keys, words, i));
    require((one != nullptr) == (found[i] != 0), "one key and many keys get different answers");
    require(one == nullptr || *one == values[i], "one key and many keys get different values");
    table.probe(key_at(keys, words, i));
  }
  table.contains_many(keys.data(), kKeys, found);
  MultilevelTable::Position position{0, 0};
  std::vector<uint64_t> page(words * 64), all(64);
  uint64_t rounds = 0;
  while (table.page(position, 64, page.data(), all.data()) != 0) require(++rounds < 1 << 16, "pages never end");
  table.keys();
}

void change(MultilevelTable& table, Dice& dice) {
  const uint32_t words = key_words(table.key_type());
  if (!table.check(true, true).empty()) return;  // keys that are there twice: a forger's table, read but not trusted
  if (dice.below(4) == 0) {  // a summary that can delete: counting single filter (summary_filters.hpp)
    const uint64_t levels = table.view().levels + 1;
    std::vector<uint64_t> core{levels, 64 + 64 * dice.below(4), uint64_t{1} << dice.below(3)};
    for (uint64_t i = 0; i < levels; ++i) core.push_back(2 + dice.below(6));
    Spec spec{Kind::single_filter, Hashing::independent, table.spec().seed, table.spec().capacity, std::move(core)};
    const uint64_t bytes = payload_bytes(spec);
    table.attach(make_summary(std::move(spec), Bits::zeroed(bytes)), 0);
  }
  std::vector<uint64_t> keys = keys_for(table, dice), values(kKeys);
  for (uint64_t& each : values) each = dice.word();
  const auto twin = table.copy();
  require(*twin == table, "a copy differs");
  const size_t done = table.insert_many(keys.data(), values.data(), kKeys, false);
  for (size_t i = 0; i < done; ++i)
    require(table.find(key_at(keys, words, i)) != nullptr, "a key that was inserted is absent");
  table.settle();
  if (const std::string broken = table.check(true, true); !broken.empty()) fail("after insertions: " + broken);
  const uint64_t before = table.keys();
  if (table.guide() == nullptr || table.guide()->can_delete()) {
    const size_t gone = table.erase_many(keys.data(), kKeys / 2);
    require(table.keys() == before - gone, "deletions are miscounted");
    for (size_t i = 0; i < kKeys / 2; ++i)
      require(table.find(key_at(keys, words, i)) == nullptr, "a key that was deleted is there");
    for (size_t i = kKeys / 2; i < done; ++i)
      require(table.find(key_at(keys, words, i)) != nullptr, "a deletion took another key");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return run(data, size, {7}, make, look, change);
}

// Files of chained tables (8).
#include "evenbins/chained.hpp"

#include "harness.hpp"

using namespace evenbins;
using namespace evenbins::fuzz;

namespace {

constexpr size_t kKeys = 12;

std::unique_ptr<ChainedTable> make(Spec spec, Bits bits) {
  return std::make_unique<ChainedTable>(std::move(spec), std::move(bits));
}

std::vector<uint64_t> keys_for(const ChainedTable& table, Dice& dice) {
  const uint32_t words = key_words(table.key_type());
  std::vector<uint64_t> keys;
  uint32_t entry = 0;
  while (keys.size() < words * kKeys / 2 && (entry = table.next(entry)) != 0) {
    const StoredKey key = table.key_of(entry);
    keys.push_back(key.low);
    if (words == 2) keys.push_back(key.high);
  }
  while (keys.size() < words * kKeys) keys.push_back(dice.word());
  return keys;
}

StoredKey key_at(const std::vector<uint64_t>& keys, uint32_t words, size_t i) {
  return words == 1 ? StoredKey{keys[i], 0} : StoredKey{keys[2 * i], keys[2 * i + 1]};
}

void look(const ChainedTable& table, Dice& dice) {
  const uint32_t words = key_words(table.key_type());
  const std::vector<uint64_t> keys = keys_for(table, dice);
  uint64_t values[kKeys] = {};
  uint8_t found[kKeys];
  table.find_many(keys.data(), kKeys, values, found);
  for (size_t i = 0; i < kKeys; ++i) {
    const uint64_t* one = table.find(key_at(keys, words, i));
    require((one != nullptr) == (found[i] != 0), "one key and many keys get different answers");
    require(one == nullptr || *one == values[i], "one key and many keys get different values");
    table.probe(key_at(keys, words, i));
  }
  for (uint32_t entry = 0; (entry = table.next(entry)) != 0;) table.value_of(entry);
  table.loads();
  table.queries();
  table.state();
}

void change(ChainedTable& table, Dice& dice) {
  const uint32_t words = key_words(table.key_type());
  if (!table.check(true, true).empty()) return;  // keys that are there twice: a forger's table, read but not trusted
  const std::vector<uint64_t> keys = keys_for(table, dice);
  std::vector<uint64_t> values(kKeys);
  for (uint64_t& each : values) each = dice.word();
  const auto twin = table.copy();
  require(*twin == table, "a copy differs");
  uint64_t inserted = 0;
  const uint64_t before = table.size();
  const size_t done = table.put_many(keys.data(), values.data(), kKeys, false, inserted);
  require(table.size() == before + inserted, "insertions are miscounted");
  for (size_t i = 0; i < done; ++i) {
    require(table.find(key_at(keys, words, i)) != nullptr, "a key that was inserted is absent");
    require(twin->put(key_at(keys, words, i), values[i]) != ChainedTable::Put::full, "one by one, less room");
  }
  require(*twin == table, "keys one by one leave another table than many at once");
  table.settle();
  if (const std::string broken = table.check(true, true); !broken.empty()) fail("after insertions: " + broken);
  uint8_t gone[kKeys];
  table.erase_many(keys.data(), kKeys / 2, gone);
  for (size_t i = 0; i < done; ++i)
    require((table.find(key_at(keys, words, i)) != nullptr) == (i >= kKeys / 2), "a deletion took the wrong keys");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return run(data, size, {8}, make, look, change);
}

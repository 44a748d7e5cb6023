// Placement of keys in blocks that lie elsewhere, on servers: one block under the rules of a balanced filter
// (evenbins/balanced.hpp), by the same inner loops. A blocked filter is one whose blocks are never full.
//
// Each block is copied to memory of our own and back: the caller's may lie at any address. A table of one block has
// every key in it, whatever its word says.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "evenbins/balanced.hpp"
#include "evenbins/lanes.hpp"
#include "module.hpp"
#include "sources.hpp"

namespace evenbins::python {
namespace {

using Blocks = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Words = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

enum Outcome : uint8_t { passed, placed, present };  // as _blocks.py numbers them; of two choices 0, 1, and present

// Computed once: the table takes longer than a hundred placements.
const uint64_t* harm_of(uint32_t block_bits, uint32_t hashes) {
  static std::mutex filling;
  static std::map<std::pair<uint32_t, uint32_t>, std::vector<uint64_t>> tables;
  const std::lock_guard<std::mutex> lock(filling);
  const std::pair key(block_bits, hashes);
  auto table = tables.find(key);
  if (table == tables.end()) table = tables.emplace(key, harm_table(block_bits, hashes)).first;
  return table->second.data();
}

class Placement {
 public:
  // One choice: the block is full at the threshold, of keys if it counts them, else of set bits.
  Placement(size_t block_bytes, uint32_t hashes, uint32_t threshold, uint32_t counter_bits, uint64_t coin)
      : Placement(block_bytes, hashes, counter_bits > 0 ? Rule::counted : Rule::fill) {
    if (counter_bits > 24) throw nb::value_error("counter_bits must be 0 … 24");
    const auto range = static_cast<uint32_t>(8 * block_bytes - counter_bits);
    view_.coin = coin;
    view_.choices = 1;
    view_.levels[0] = {copies_[0].data(), 1, range, threshold, 64 - counter_bits};
  }
  // Two choices: the block whose rate of false positives grows less takes the key.
  Placement(size_t block_bytes, uint32_t hashes) : Placement(block_bytes, hashes, Rule::two_choice) {
    const auto bits = static_cast<uint32_t>(8 * block_bytes);
    view_.harm = harm_of(bits, hashes);
    view_.choices = 2;
    for (uint32_t j = 0; j < 2; ++j) view_.levels[j] = {copies_[j].data(), 1, bits, bits + 1, 64};
  }
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  Outcome place(uint8_t* block, uint64_t word) {
    std::memcpy(copies_[0].data(), block, bytes_);
    uint8_t goes_on = 0;
    const size_t count = loops_.add_level(view_, 0, &word, 1, &goes_on, nullptr);
    if (count > 0) std::memcpy(block, copies_[0].data(), bytes_);
    return goes_on != 0 ? passed : count > 0 ? placed : present;
  }
  uint8_t choose(uint8_t* first, uint8_t* second, uint64_t digest) {
    uint8_t* const blocks[] = {first, second};
    for (uint32_t j = 0; j < 2; ++j) std::memcpy(copies_[j].data(), blocks[j], bytes_);
    (void)loops_.one.add_to(&view_, digest);
    for (uint8_t j = 0; j < 2; ++j)
      if (std::memcmp(copies_[j].data(), blocks[j], bytes_) != 0) {
        std::memcpy(blocks[j], copies_[j].data(), bytes_);
        return j;
      }
    return present;
  }

 private:
  Placement(size_t block_bytes, uint32_t hashes, Rule rule)
      : bytes_(checked(block_bytes)), loops_(kernel().balanced(block_bytes == 64 ? 9 : 8, rule)) {
    if (hashes < 1 || hashes > kMaxBlockedHashes) throw nb::value_error("hashes must be 1 … 32");
    view_.hashes = hashes;
  }
  static size_t checked(size_t block_bytes) {
    if (block_bytes != 32 && block_bytes != 64) throw nb::value_error("a block must have 32 or 64 bytes");
    return block_bytes;
  }

  size_t bytes_;
  const BalancedLoops& loops_;
  alignas(64) std::array<std::array<uint64_t, 8>, 2> copies_{};
  BalancedView view_{};
};

uint8_t* block_at(const Blocks& blocks, int64_t row) {
  if (row < 0 || static_cast<uint64_t>(row) >= blocks.shape(0)) throw nb::index_error("there is no such block");
  return blocks.data() + static_cast<size_t>(row) * blocks.shape(1);
}

auto place_in_blocks(const Blocks& blocks, const Rows& rows, const Words& words, uint32_t hashes, uint32_t threshold,
                     uint32_t counter_bits, uint64_t coin) {
  if (rows.size() != words.size()) throw nb::value_error("there must be as many rows as words");
  Placement placement(blocks.shape(1), hashes, threshold, counter_bits, coin);
  Answers<uint8_t> outcomes;
  uint8_t* out = outcomes.extend(words.size());
  for (size_t i = 0; i < words.size(); ++i) out[i] = placement.place(block_at(blocks, rows.data()[i]), words.data()[i]);
  return outcomes.release<uint8_t>();
}

auto choose_blocks(const Blocks& blocks, const Rows& first, const Rows& second, const Words& digests, uint32_t hashes) {
  if (first.size() != digests.size() || second.size() != digests.size())
    throw nb::value_error("there must be as many rows as digests");
  Placement placement(blocks.shape(1), hashes);
  Answers<uint8_t> chosen;
  uint8_t* out = chosen.extend(digests.size());
  for (size_t i = 0; i < digests.size(); ++i)
    out[i] = placement.choose(block_at(blocks, first.data()[i]), block_at(blocks, second.data()[i]), digests.data()[i]);
  return chosen.release<uint8_t>();
}

uint8_t look_at_block(const nb::bytes& block, uint64_t word, uint32_t hashes, uint32_t threshold, uint32_t counter_bits,
                      uint64_t coin) {
  Placement placement(block.size(), hashes, threshold, counter_bits, coin);
  std::array<uint8_t, 64> copy;
  std::memcpy(copy.data(), block.c_str(), block.size());
  return placement.place(copy.data(), word);
}

}  // namespace

void bind_placement(nb::module_& m) {
  m.def("place_in_blocks", &place_in_blocks, nb::arg("blocks"), nb::arg("rows"), nb::arg("words"), nb::arg("hashes"),
        nb::arg("threshold"), nb::arg("counter_bits"), nb::arg("coin"),
        nb::sig("def place_in_blocks(blocks: numpy.typing.NDArray[numpy.uint8], rows: "
                "numpy.typing.NDArray[numpy.int64], words: numpy.typing.NDArray[numpy.uint64], hashes: int, threshold: "
                "int, counter_bits: int, coin: int) -> numpy.typing.NDArray[numpy.uint8]"),
        "Adds each key to the block in its row, in order: 0 it passed, 1 it was placed, 2 it was present.");
  m.def("choose_blocks", &choose_blocks, nb::arg("blocks"), nb::arg("first"), nb::arg("second"), nb::arg("digests"),
        nb::arg("hashes"),
        nb::sig("def choose_blocks(blocks: numpy.typing.NDArray[numpy.uint8], first: "
                "numpy.typing.NDArray[numpy.int64], second: numpy.typing.NDArray[numpy.int64], digests: "
                "numpy.typing.NDArray[numpy.uint64], hashes: int) -> numpy.typing.NDArray[numpy.uint8]"),
        "Adds each key to one of its two blocks, in order: 0 to the first, 1 to the second, 2 it was present.");
  m.def("look_at_block", &look_at_block, nb::arg("block"), nb::arg("word"), nb::arg("hashes"), nb::arg("threshold"),
        nb::arg("counter_bits"), nb::arg("coin"),
        nb::sig("def look_at_block(block: bytes, word: int, hashes: int, threshold: int, counter_bits: int, coin: int) "
                "-> int"),
        "What `place_in_blocks` would answer for one key and this block, which stays as it is.");
}

}  // namespace evenbins::python

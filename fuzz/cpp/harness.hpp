// What the fuzz targets of the core share: forging, reading as the bindings do, and dice.
//
//     input ──▶ as it is ─────────────────────────────────▶ read ──▶ nearly always refused: the checksums
//          └──▶ forged: sizes fitted, checksums made right ─▶ read ──▶ accepted? looked up, changed, saved again
//
// Checksums keep out accidents, not attackers: who writes a file can write its checksum. A fuzzer cannot guess one, so
// the target makes them right itself, and what is behind them meets every input. An input is a file: golden files are
// the seeds, and what is found is a file again.
//
// What must hold of every input
// - FormatError, or a structure; nothing else is thrown, no sanitizer speaks, memory stays small.
// - A structure that was read verified is saved as the very bytes it came from; it keeps its invariants and its
//   promise (no false negative, no lost key) through what `Dice` does to it.
// - A structure that was opened unverified (constant-time checks alone) may answer nonsense, but answers.
//
// Tried and dropped: a custom mutator that seals after each mutation (the same inputs, and corpus files that no longer
// show what was mutated); a build of the core without checksums (it would fuzz another program).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "evenbins/format.hpp"
#include "evenbins/kernel.hpp"
#include "evenbins/xxh3.hpp"

namespace evenbins::fuzz {

using File = std::vector<uint8_t>;
constexpr uint64_t kMostPayload = 1 << 16;

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "evenbins: broken promise: %s\n", what.c_str());
  std::abort();
}
inline void require(bool holds, const char* what) {
  if (!holds) fail(what);
}

// Numbers that follow from the input: a target does the same whenever it sees the same bytes.
class Dice {
 public:
  Dice(const uint8_t* data, size_t size) : seed_(xxh3_64(data, size, 1)) {}
  uint64_t word() { return splitmix(seed_, count_++); }
  uint64_t below(uint64_t n) { return word() % n; }

 private:
  uint64_t seed_, count_ = 0;
};

inline void use_any_kernel(Dice& dice) {
  const auto all = kernels();
  use_kernel(all[dice.below(all.size())]->name);
}

template <typename T>
T get(const File& file, size_t at) {
  T value;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}
template <typename T>
void set(File& file, size_t at, T value) {
  std::memcpy(file.data() + at, &value, sizeof value);
}

constexpr size_t kVersion = 8, kKind = 12, kHashId = 16, kHashing = 20, kSeed = 24, kCapacity = 32, kOffset = 40,
                 kSize = 48, kChecksum = 56, kWords = 64, kCore = 72;  // docs/format.md

inline Spec spec_of(const File& file, uint64_t words) {
  Spec spec{static_cast<Kind>(get<uint32_t>(file, kKind)), static_cast<Hashing>(get<uint32_t>(file, kHashing)),
            get<uint64_t>(file, kSeed), get<uint64_t>(file, kCapacity), std::vector<uint64_t>(words)};
  if (words != 0) std::memcpy(spec.core.data(), file.data() + kCore, 8 * words);
  return spec;
}

// The file as its forger would have it: of one of the kinds wanted, sizes that fit, right checksums. `fit`: the
// payload is cut or filled with zeros to what the header says.
inline File forged(const uint8_t* data, size_t size, const std::vector<uint32_t>& kinds, bool fit) {
  File file(data, data + size);
  if (file.size() < kCore) file.resize(kCore);
  std::memcpy(file.data(), "EVENBINS", 8);
  set<uint32_t>(file, kVersion, 1);
  set<uint32_t>(file, kHashId, 1);
  const uint32_t kind = get<uint32_t>(file, kKind);
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) set(file, kKind, kinds[kind % kinds.size()]);
  uint64_t words = get<uint64_t>(file, kWords);
  if (words > 64) words %= 32;
  const uint64_t offset = (kCore + 8 * words + 8 + 63) / 64 * 64;
  if (file.size() < offset) file.resize(offset);
  std::memset(file.data() + kCore + 8 * words, 0, offset - kCore - 8 * words);
  set(file, kWords, words);
  set(file, kOffset, offset);
  if (fit) {
    try {
      const uint64_t expected = payload_bytes(spec_of(file, words));
      if (expected <= kMostPayload) file.resize(offset + expected);
    } catch (const SpecError&) {
    }
  }
  if (get<uint32_t>(file, kKind) == static_cast<uint32_t>(Kind::growing) && words >= 7) {  // files in a file
    uint64_t at = offset;
    for (uint64_t i = 6; i < words; i += 2) {
      const uint64_t bytes = get<uint64_t>(file, kCore + 8 * i);
      if (at > file.size() || bytes > file.size() - at) break;
      const File inner = forged(file.data() + at, bytes, {2, 3}, false);
      if (inner.size() == bytes && bytes != 0) std::memcpy(file.data() + at, inner.data(), bytes);
      at += (bytes + 63) / 64 * 64;
    }
  }
  set<uint64_t>(file, kSize, file.size() - offset);
  set<uint64_t>(file, kChecksum, xxh3_64(file.data() + offset, file.size() - offset, 0));
  set<uint64_t>(file, offset - 8, xxh3_64(file.data(), offset - 8, 0));
  return file;
}

// As bindings/files.hpp reads: nothing if it is refused. Whatever is thrown but FormatError is a finding.
template <typename Make>
auto read(const File& file, bool mapped, bool verify, Make&& make)
    -> decltype(make(std::declval<Spec>(), std::declval<Bits>())) {
  try {
    Header header = read_header(file.data(), file.size());
    if (verify) verify_payload(header, file.data() + header.payload_offset);
    const uint8_t* payload = file.data() + header.payload_offset;
    std::shared_ptr<uint64_t[]> words;
    Bits bits = Bits::zeroed(mapped ? 8 : header.payload_bytes);
    if (mapped) {  // exactly as long as the payload, so that a read behind its end is seen
      words.reset(new uint64_t[(header.payload_bytes + 7) / 8]());
      std::memcpy(words.get(), payload, header.payload_bytes);
      bits = Bits::borrowed(words.get(), header.payload_bytes, words);
    } else {
      std::memcpy(bits.words(), payload, header.payload_bytes);
    }
    auto made = make(std::move(header.spec), std::move(bits));
    if (const std::string broken = made->check(verify); !broken.empty()) return nullptr;
    return made;
  } catch (const FormatError&) {
  }
  return nullptr;
}

template <typename Structure>
File saved(const Structure& structure) {
  const Bits& bits = structure.bits();
  File file = write_header(structure.spec(), bits.words(), bits.bytes());
  const auto* payload = reinterpret_cast<const uint8_t*>(bits.words());
  file.insert(file.end(), payload, payload + bits.bytes());
  return file;
}

template <typename Structure>
void require_sound(const Structure& structure, const char* after) {
  if (const std::string broken = structure.check(true); !broken.empty()) fail(std::string(after) + ": " + broken);
}

// The whole of a target: `look` may only ask, `change` may do everything.
template <typename Make, typename Look, typename Change>
int run(const uint8_t* data, size_t size, const std::vector<uint32_t>& kinds, Make&& make, Look&& look,
        Change&& change) {
  Dice dice(data, size);
  use_any_kernel(dice);
  const File raw(data, data + size);
  if (auto found = read(raw, false, true, make)) look(*found, dice);
  const File file = forged(data, size, kinds, dice.below(16) != 0);
  if (file.size() > 2 * kMostPayload) return 0;
  if (auto found = read(file, true, false, make)) look(*found, dice);
  if (auto found = read(file, false, true, make)) {
    require(saved(*found) == file, "saved again, other bytes");
    look(*found, dice);
    change(*found, dice);
    if constexpr (requires { found->settle(); }) found->settle();  // as before it is written
    require_sound(*found, "after changes");
  }
  return 0;
}

}  // namespace evenbins::fuzz

#include "evenbins/format.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "evenbins/xxh3.hpp"

namespace evenbins {
namespace {

constexpr char kMagic[8] = {'E', 'V', 'E', 'N', 'B', 'I', 'N', 'S'};
constexpr uint32_t kVersion = 1, kHashId = 1;
constexpr uint64_t kMaxCore = 1024;

struct Fixed {  // the first 72 bytes, as they lie in the file
  char magic[8];
  uint32_t version, kind, hash_id, hashing;
  uint64_t seed, capacity, payload_offset, payload_bytes, payload_checksum, core_words;
};
static_assert(sizeof(Fixed) == 72);

uint64_t header_bytes(uint64_t core_words) { return (sizeof(Fixed) + 8 * core_words + 8 + 63) / 64 * 64; }

}  // namespace

uint64_t header_bytes(const Spec& spec) { return header_bytes(spec.core.size()); }

std::vector<uint8_t> write_header(const Spec& spec, const void* payload, uint64_t bytes) {
  Fixed fixed{};
  std::memcpy(fixed.magic, kMagic, sizeof kMagic);
  fixed.version = kVersion;
  fixed.kind = static_cast<uint32_t>(spec.kind);
  fixed.hash_id = kHashId;
  fixed.hashing = static_cast<uint32_t>(spec.hashing);
  fixed.seed = spec.seed;
  fixed.capacity = spec.capacity;
  fixed.payload_offset = header_bytes(spec.core.size());
  fixed.payload_bytes = bytes;
  fixed.payload_checksum = xxh3_64(payload, bytes, 0);
  fixed.core_words = spec.core.size();

  std::vector<uint8_t> header(fixed.payload_offset, 0);
  std::memcpy(header.data(), &fixed, sizeof fixed);
  std::memcpy(header.data() + sizeof fixed, spec.core.data(), 8 * spec.core.size());
  const uint64_t checksum = xxh3_64(header.data(), header.size() - 8, 0);
  std::memcpy(header.data() + header.size() - 8, &checksum, 8);
  return header;
}

Header read_header(const uint8_t* file, uint64_t size) {
  // What is checked is a copy: somebody may write to the file meanwhile.
  const std::vector<uint8_t> head(file, file + std::min(size, header_bytes(kMaxCore)));
  const uint8_t* data = head.data();
  Fixed fixed;
  if (size < sizeof kMagic || std::memcmp(data, kMagic, sizeof kMagic) != 0)
    throw FormatError("this is not an evenbins file: it does not begin with EVENBINS");
  if (size < sizeof fixed) throw FormatError("the file ends within its header");
  std::memcpy(&fixed, data, sizeof fixed);
  if (fixed.version != kVersion)
    throw FormatError("the file has format version " + std::to_string(fixed.version) +
                      "; this evenbins reads version 1. Install a newer evenbins, or the file is damaged");
  if (const KindRow* row = find_kind(static_cast<Kind>(fixed.kind)); row != nullptr && row->other_format != nullptr)
    throw FormatError(std::string("the file holds ") + row->other_format);
  if (fixed.core_words > kMaxCore || fixed.payload_offset != header_bytes(fixed.core_words))
    throw FormatError("the header's sizes contradict each other: the file is damaged");
  if (size < fixed.payload_offset) throw FormatError("the file ends within its header");
  uint64_t checksum;
  std::memcpy(&checksum, data + fixed.payload_offset - 8, 8);
  if (checksum != xxh3_64(data, fixed.payload_offset - 8, 0))
    throw FormatError("the header's checksum is wrong: the file is damaged");

  // From here on the header is what some program wrote; it may still not be ours.
  const uint64_t core_end = sizeof fixed + 8 * fixed.core_words;
  for (uint64_t i = core_end; i < fixed.payload_offset - 8; ++i)
    if (data[i] != 0) throw FormatError("the header's padding is not zero");
  if (fixed.hash_id != kHashId)
    throw FormatError("the file uses hash " + std::to_string(fixed.hash_id) + ", which this evenbins does not know");
  Header header{{static_cast<Kind>(fixed.kind), static_cast<Hashing>(fixed.hashing), fixed.seed, fixed.capacity,
                 std::vector<uint64_t>(fixed.core_words)},
                fixed.payload_offset,
                fixed.payload_bytes,
                fixed.payload_checksum};
  if (fixed.core_words > 0) std::memcpy(header.spec.core.data(), data + sizeof fixed, 8 * fixed.core_words);
  uint64_t expected;
  try {
    expected = payload_bytes(header.spec);
  } catch (const SpecError& error) {
    throw FormatError(std::string("the header describes no possible filter: ") + error.what());
  }
  if (fixed.payload_bytes != expected) throw FormatError("the payload's size does not fit the plan in the header");
  if (size - fixed.payload_offset != fixed.payload_bytes)
    throw FormatError(
        "the file has " + std::to_string(size) + " bytes and should have " +
        std::to_string(fixed.payload_offset + fixed.payload_bytes) +
        (size - fixed.payload_offset < fixed.payload_bytes ? ": it was cut short" : ": something follows it"));
  return header;
}

void verify_payload(const Header& header, const void* payload) {
  if (xxh3_64(payload, header.payload_bytes, 0) != header.payload_checksum)
    throw FormatError("the payload's checksum is wrong: the file is damaged");
}

}  // namespace evenbins

// Files, version 1 (docs/format.md has the table; tests/reference/format.py is the readable twin).
//
//     magic version kind hash hashing seed capacity offset size checksum │ core │ 0…0 │ checksum ║ payload
//     └──────────────────── 72 bytes ────────────────────────────────┘   8·c    to 64·x   8 bytes
//
// A growing filter (Python's affair) is a file whose payload is one such file for each stage, padded to lines; its
// core is [fpr, growth, first, policy, block_bits] and [keys, bytes] for each stage.
//
// Nothing is believed before it is checked: the magic and the version first (so that a newer file is
// refused by name), then the header's own checksum, then each field, then the sizes against each other
// and against the length of the data. Nothing is allocated here.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "evenbins/spec.hpp"

namespace evenbins {

class FormatError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Header {
  Spec spec;
  uint64_t payload_offset, payload_bytes, payload_checksum;
};

uint64_t header_bytes(const Spec& spec);  // a multiple of 64

// The header of a file with this payload.
std::vector<uint8_t> write_header(const Spec& spec, const void* payload, uint64_t bytes);

// `data` is the whole file, `size` its length. Throws FormatError.
Header read_header(const uint8_t* data, uint64_t size);
void verify_payload(const Header& header, const void* payload);

}  // namespace evenbins

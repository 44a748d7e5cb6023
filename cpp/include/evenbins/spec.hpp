// What describes a structure apart from its memory, and what the library knows of each kind of structure.
//
//     Spec ──kind──▶ KindRow ──▶ payload_bytes, make_filter, make_summary
//
// A family defines its row in its own source file, and registry.cpp lists the rows: nothing else in the core treats all
// kinds. (The list is explicit, because a linker drops an object of a static library that nobody refers to.)
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

namespace evenbins {

class Bits;
class Filter;
class Summary;

enum class Kind : uint32_t {
  standard = 1,
  blocked = 2,
  balanced = 3,
  growing = 4,
  counting = 5,
  count_min = 6,
  multilevel = 7,
  chained = 8,
  interpolation = 9,
  single_filter = 10,
  multiple_bloom = 11,
  counters = 12,
  paged = 13,
  ring = 14,
  hyperloglog = 15,
  heavy_hitters = 16,
  deduplicator = 17,
  fingerprint = 18,
  fuse = 19,
  window = 20
};

// How positions follow from a digest.
enum class Hashing : uint32_t {
  independent = 1,
  lanes = 2,
  partition = 3,
  double_hashing = 4,
  enhanced_square = 5,
  enhanced_cube = 6,
  enhanced_tetrahedral = 7,
  triple = 8
};

// Everything about a structure except its memory. The integer core decides equality and merging, with the seed;
// `capacity` is what the plan was made for, and nothing else depends on it.
struct Spec {
  Kind kind;
  Hashing hashing;
  uint64_t seed;
  uint64_t capacity;
  std::vector<uint64_t> core;

  bool same_structure(const Spec& other) const {
    return kind == other.kind && hashing == other.hashing && seed == other.seed && core == other.core;
  }
};

// Thrown for a Spec that no structure can have; the text names the rule that it breaks.
class SpecError : public std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// What the library knows of a kind.
struct KindRow {
  Kind kind;
  const char* name;  // as in src/evenbins/structure.py
  // Validates the spec (SpecError) and returns the bytes of the payload.
  uint64_t (*payload_bytes)(const Spec&);
  // Make the structure from a valid spec and a payload of that size; null for kinds of other types.
  std::unique_ptr<Filter> (*make_filter)(Spec, Bits) = nullptr;
  std::unique_ptr<Summary> (*make_summary)(Spec, Bits) = nullptr;
  // If its files have another header than format.hpp's: what a file holds, and what opens it.
  const char* other_format = nullptr;
};

std::span<const KindRow* const> kind_rows();
const KindRow* find_kind(Kind kind);  // null: this version does not know it

// Validates the spec (SpecError) and returns the bytes of the payload.
uint64_t payload_bytes(const Spec& spec);

}  // namespace evenbins

// The Arrow C data interface: its structs, and what a schema says (published specification; no Arrow library is needed).
//
//     arrow.hpp              the structs, types and extension types
//     arrow_columns.hpp      columns as sources of digests
//     arrow_dictionary.hpp   a dictionary's words, kept from one array of a stream to the next
//     arrow_types.hpp        from a type to its column
//     arrow_fields.hpp       one column of a table
//     arrow_reader.hpp       capsules, array by array
//
// An extension type is a TypeError, unless its storage is the value itself (kKeyExtensions): the same ordinal may be a
// day or a month, and storage may even be an address. A null is a BadKey with its position. The producer's memory is
// trusted as far as the interface demands (buffers are as long as the offsets say; they need not be aligned);
// everything that can be checked is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace evenbins::python::arrow {

// The ABI of the Arrow C data interface.
struct Schema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  Schema** children;
  Schema* dictionary;
  void (*release)(Schema*);
  void* private_data;
};
struct Array {
  int64_t length, null_count, offset, n_buffers, n_children;
  const void** buffers;
  Array** children;
  Array* dictionary;
  void (*release)(Array*);
  void* private_data;
};
struct Stream {
  int (*get_schema)(Stream*, Schema*);
  int (*get_next)(Stream*, Array*);
  const char* (*get_last_error)(Stream*);
  void (*release)(Stream*);
  void* private_data;
};

// A struct of the interface that is ours to release.
template <typename T>
class Owned {
 public:
  Owned() { value.release = nullptr; }
  ~Owned() {
    if (value.release != nullptr) value.release(&value);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  void take(T* from) {  // moves, as the specification says: the source is marked released
    value = *from;
    from->release = nullptr;
  }
  T value{};
};

struct UnsupportedColumn : std::runtime_error {  // becomes a TypeError
  using std::runtime_error::runtime_error;
};
struct BrokenColumn : std::runtime_error {  // becomes a ValueError
  using std::runtime_error::runtime_error;
};

inline std::string type_name(std::string_view format) {
  static constexpr std::pair<std::string_view, const char*> names[] = {
      {"n", "null"},  {"e", "float16"},     {"f", "float32"},          {"g", "float64"}, {"+s", "struct"},
      {"+l", "list"}, {"+L", "large_list"}, {"+r", "run-end encoded"}, {"+m", "map"}};
  for (const auto& [code, name] : names)
    if (format == code) return name;
  if (format.starts_with("d")) return "decimal";
  if (format.starts_with("t")) return "a time type";
  return "format '" + std::string(format) + "'";
}

// Extension types whose storage is the value itself: the 16 bytes of a UUID, the text of a JSON document.
inline constexpr std::string_view kKeyExtensions[] = {"arrow.uuid", "arrow.json"};

// The value of a field's metadata for `key`; empty if it has none. Metadata is a number of pairs, then the length and
// the bytes of each key and each value; numbers are of 32 bits and need not be aligned.
inline std::string_view metadata_value(const char* metadata, std::string_view key) {
  if (metadata == nullptr) return {};
  const auto number = [&] {
    int32_t n;
    std::memcpy(&n, metadata, sizeof n);
    metadata += sizeof n;
    if (n < 0) throw BrokenColumn("the Arrow schema has metadata of a negative length");
    return static_cast<size_t>(n);
  };
  const auto text = [&] {
    const size_t n = number();
    metadata += n;
    return std::string_view(metadata - n, n);
  };
  for (size_t pairs = number(); pairs > 0; --pairs) {
    const std::string_view name = text(), value = text();
    if (name == key) return value;
  }
  return {};
}

inline void require_key_extension(const Schema& schema) {
  const std::string_view name = metadata_value(schema.metadata, "ARROW:extension:name");
  if (name.empty() || std::ranges::find(kKeyExtensions, name) != std::end(kKeyExtensions)) return;
  throw UnsupportedColumn("keys must be an Arrow column of strings, binary or integers, not the extension type '" +
                          std::string(name) +
                          "': convert it before, for example with .astype(str) in pandas; if its storage is the key, "
                          "pass column.cast(column.type.storage_type) of pyarrow");
}

// A key takes a byte of memory or more, and nobody has so many: what says so lies.
inline void require_possible(const Array& array) {
  constexpr int64_t most = int64_t{1} << 48;
  if (array.length < 0 || array.offset < 0) throw BrokenColumn("the Arrow array has a negative length or offset");
  if (array.length > most || array.offset > most)
    throw BrokenColumn("the Arrow array's length or offset exceeds 2^48: no memory holds that");
}

}  // namespace evenbins::python::arrow

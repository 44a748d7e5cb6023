// From the type of an Arrow array to the column that reads it.
#pragma once

#include <charconv>
#include <memory>
#include <string>
#include <string_view>

#include "arrow_columns.hpp"
#include "arrow_dictionary.hpp"

namespace evenbins::python::arrow {

// What a dictionary's words are kept in: `cache` may be null, `owner` keeps the array in place.
struct KeepWords {
  DictionaryCache* cache = nullptr;
  std::shared_ptr<const void> owner;
};

// Makes the words of one array, which must outlive them.
template <typename H>
using MakeColumn = std::unique_ptr<Column<H>> (*)(const Schema&, const Array&, const H&, const KeepWords&);

template <typename H, typename C>
std::unique_ptr<Column<H>> make(const Schema&, const Array& array, const H& hasher, const KeepWords&) {
  return std::make_unique<C>(array, hasher);
}

template <typename H>
std::unique_ptr<Column<H>> make_null(const Schema&, const Array& array, const H&, const KeepWords&) {
  return std::make_unique<NullColumn<H>>(array);
}

template <typename H>
std::unique_ptr<Column<H>> make_fixed(const Schema& schema, const Array& array, const H& hasher, const KeepWords&) {
  const std::string_view format = schema.format;
  size_t width = 0;
  const auto [end, error] = std::from_chars(format.data() + 2, format.data() + format.size(), width);
  if (error != std::errc() || end != format.data() + format.size() || width > (size_t{1} << 31))
    throw BrokenColumn("the Arrow fixed-size binary has no sensible width");
  return std::make_unique<FixedColumn<H>>(array, hasher, width);
}

template <typename H>
MakeColumn<H> maker(const Schema& schema);

template <typename H, typename Index>
std::unique_ptr<Column<H>> make_dictionary(const Schema& schema, const Array& array, const H& hasher,
                                           const KeepWords& keep) {
  if (array.dictionary == nullptr) throw BrokenColumn("the Arrow dictionary array has no dictionary");
  auto values = maker<H>(*schema.dictionary)(*schema.dictionary, *array.dictionary, hasher, {});
  std::shared_ptr<KnownWords<typename H::Word>> words;
  if (keep.cache != nullptr) words = keep.cache->words_of(array, hasher, keep.owner);
  return std::make_unique<DictionaryColumn<H, Index>>(array, hasher, std::move(values), std::move(words));
}

// How to read a column of this type; throws UnsupportedColumn if it holds no keys.
template <typename H>
MakeColumn<H> maker(const Schema& schema) {
  require_key_extension(schema);
  struct Format {
    std::string_view code;
    MakeColumn<H> plain, dictionary;  // with dictionary: the type of its indices
  };
  static constexpr Format formats[] = {
      {"c", make<H, IntColumn<H, int8_t>>, make_dictionary<H, int8_t>},
      {"C", make<H, IntColumn<H, uint8_t>>, make_dictionary<H, uint8_t>},
      {"s", make<H, IntColumn<H, int16_t>>, make_dictionary<H, int16_t>},
      {"S", make<H, IntColumn<H, uint16_t>>, make_dictionary<H, uint16_t>},
      {"i", make<H, IntColumn<H, int32_t>>, make_dictionary<H, int32_t>},
      {"I", make<H, IntColumn<H, uint32_t>>, make_dictionary<H, uint32_t>},
      {"l", make<H, IntColumn<H, int64_t>>, make_dictionary<H, int64_t>},
      {"L", make<H, IntColumn<H, uint64_t>>, make_dictionary<H, uint64_t>},
      {"b", make<H, BoolColumn<H>>, nullptr},
      {"u", make<H, BytesColumn<H, int32_t>>, nullptr},
      {"z", make<H, BytesColumn<H, int32_t>>, nullptr},
      {"U", make<H, BytesColumn<H, int64_t>>, nullptr},
      {"Z", make<H, BytesColumn<H, int64_t>>, nullptr},
      {"vu", make<H, ViewColumn<H>>, nullptr},
      {"vz", make<H, ViewColumn<H>>, nullptr},
      {"n", make_null<H>, nullptr},
  };
  const std::string_view format = schema.format == nullptr ? "" : schema.format;
  for (const Format& known : formats) {
    if (format != known.code) continue;
    if (schema.dictionary == nullptr) return known.plain;
    if (known.dictionary == nullptr) throw BrokenColumn("the Arrow dictionary has no integer indices");
    maker<H>(*schema.dictionary);
    return known.dictionary;
  }
  if (format.starts_with("w:") && schema.dictionary == nullptr) return make_fixed<H>;
  throw UnsupportedColumn("keys must be an Arrow column of strings, binary or integers, not " + type_name(format) +
                          (format == "+s" ? ": pass one of its fields" : ": cast it before"));
}

}  // namespace evenbins::python::arrow

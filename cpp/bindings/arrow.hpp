// Arrow columns as sources of digests, read in place through the Arrow C data interface and the PyCapsule
// protocol (published specifications; no Arrow library is needed).
//
//     integers, bool      widened and hashed as ints          l L i I s S c C b
//     (large) utf8/binary offsets into one data buffer        u U z Z
//     string/binary view  16-byte views, inline up to 12      vu vz
//     fixed-size binary                                       w:N
//     dictionary          its values are digested once, then looked up
//
// An extension type is a TypeError, unless its storage is the value itself (kKeyExtensions): the same ordinal may be a
// day or a month, and storage may even be an address. A null is a BadKey with its position. The producer's memory is
// trusted as far as the interface demands (buffers are as long as the offsets say; they need not be aligned);
// everything that can be checked is.
#pragma once

#include <Python.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "evenbins/kernel.hpp"
#include "evenbins/parallel.hpp"
#include "keys.hpp"

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

struct UnfitKey : std::runtime_error {  // thrown by `H` for a key it has no word for
  UnfitKey(BadKey::Type type, const std::string& what) : std::runtime_error(what), type(type) {}
  BadKey::Type type;
};

// What reads keys as words: digests for a filter, what a table stores of them (table_keys.hpp) for a table.
template <typename Word>
class Words {
 public:
  virtual ~Words() = default;
  virtual uint64_t size() const = 0;
  virtual void read(uint64_t start, size_t n, Word* out) const = 0;
};
template <typename H>
using Reader = std::conditional_t<std::is_same_v<typename H::Word, uint64_t>, Digests, Words<typename H::Word>>;

// A key takes a byte of memory or more, and nobody has so many: what says so lies.
inline void require_possible(const Array& array) {
  constexpr int64_t most = int64_t{1} << 48;
  if (array.length < 0 || array.offset < 0) throw BrokenColumn("the Arrow array has a negative length or offset");
  if (array.length > most || array.offset > most)
    throw BrokenColumn("the Arrow array's length or offset exceeds 2^48: no memory holds that");
}

// Elements of a buffer, which need not be aligned.
template <typename T>
class Unaligned {
 public:
  explicit Unaligned(const void* data) : data_(static_cast<const char*>(data)) {}
  T operator[](uint64_t i) const {
    T element;
    std::memcpy(&element, data_ + i * sizeof(T), sizeof element);
    return element;
  }
  bool missing() const { return data_ == nullptr; }
  // The elements from `start` on as an array, in place if they are aligned, else copied to `copies`.
  const T* at(uint64_t start, size_t n, T* copies) const {
    const char* from = data_ + start * sizeof(T);
    if (reinterpret_cast<uintptr_t>(from) % alignof(T) == 0) return reinterpret_cast<const T*>(from);
    std::memcpy(copies, from, n * sizeof(T));
    return copies;
  }

 private:
  const char* data_;
};

// The part that all columns have: length, offset, validity. `H` makes words of bytes and of integers.
template <typename H>
class Column : public Reader<H> {
 public:
  using Word = typename H::Word;
  Column(const Array& array, const H& hasher) : array_(array), hasher_(hasher) {
    require_possible(array);
    if (array.n_buffers < 1 || array.buffers == nullptr) throw BrokenColumn("the Arrow array has no buffers");
    if (array.null_count != 0) validity_ = static_cast<const uint8_t*>(array.buffers[0]);
  }
  uint64_t size() const override { return static_cast<uint64_t>(array_.length); }

 protected:
  const void* buffer(int64_t i) const {
    if (i >= array_.n_buffers || (array_.length > 0 && array_.buffers[i] == nullptr))
      throw BrokenColumn("the Arrow array lacks buffer " + std::to_string(i));
    return array_.buffers[i];
  }
  uint64_t absolute(uint64_t i) const { return i + static_cast<uint64_t>(array_.offset); }
  void require_no_null(uint64_t start, size_t n) const {
    if (validity_ == nullptr) return;
    for (uint64_t i = start; i < start + n; ++i)
      if ((validity_[absolute(i) / 8] >> (absolute(i) % 8) & 1) == 0) throw null_key(i);
  }
  static BadKey null_key(uint64_t i) {
    return BadKey(i, BadKey::Type::value, "the key is null: drop nulls before, for example with drop_nulls()");
  }
  // The keys before the first null get their digests; then the null is thrown.
  template <typename F>
  void each(uint64_t start, size_t n, F&& f) const {
    for (size_t i = 0; i < n; ++i) {
      if (validity_ != nullptr) require_no_null(start + i, 1);
      try {
        f(absolute(start + i), i);
      } catch (const UnfitKey& unfit) {
        throw BadKey(start + i, unfit.type, unfit.what());
      }
    }
  }
  static void require_length(int64_t length, uint64_t i) {
    if (length < 0) throw BadKey(i, BadKey::Type::value, "the Arrow column is broken: a key has a negative length");
  }

  const Array& array_;
  H hasher_;
  const uint8_t* validity_ = nullptr;
};

template <typename H, typename T>
class IntColumn final : public Column<H> {
 public:
  IntColumn(const Array& array, const H& hasher) : Column<H>(array, hasher), values_(this->buffer(1)) {}
  void read(uint64_t start, size_t n, typename H::Word* out) const override {
    if constexpr (sizeof(T) == 8 && std::is_same_v<H, Hasher>) {
      if (this->validity_ == nullptr) {
        constexpr size_t kBatch = 1024;
        T copies[kBatch];
        for (size_t done = 0; done < n; done += kBatch) {
          const size_t count = std::min(kBatch, n - done);
          const T* values = values_.at(this->absolute(start + done), count, copies);
          if constexpr (std::is_signed_v<T>)
            kernel().digest_i64(this->hasher_.ints, values, count, out + done);
          else
            kernel().digest_u64(this->hasher_.ints, values, count, out + done);
        }
        return;
      }
    }
    this->each(start, n, [&](uint64_t at, size_t i) {
      const auto value = static_cast<int64_t>(values_[at]);
      out[i] = this->hasher_.integer(static_cast<uint64_t>(value), std::is_signed_v<T> && value < 0);
    });
  }

 private:
  Unaligned<T> values_;
};

template <typename H>
class BoolColumn final : public Column<H> {
 public:
  BoolColumn(const Array& array, const H& hasher)
      : Column<H>(array, hasher), bits_(static_cast<const uint8_t*>(this->buffer(1))) {}
  void read(uint64_t start, size_t n, typename H::Word* out) const override {
    this->each(start, n,
               [&](uint64_t at, size_t i) { out[i] = this->hasher_.integer(bits_[at / 8] >> (at % 8) & 1, false); });
  }

 private:
  const uint8_t* bits_;
};

template <typename H, typename Offset>
class BytesColumn final : public Column<H> {
 public:
  BytesColumn(const Array& array, const H& hasher) : Column<H>(array, hasher), offsets_(this->buffer(1)) {
    if (array.n_buffers < 3) throw BrokenColumn("the Arrow array lacks buffer 2");
    data_ = static_cast<const char*>(array.buffers[2]);
  }
  void read(uint64_t start, size_t n, typename H::Word* out) const override {
    this->each(start, n, [&](uint64_t at, size_t i) {
      const int64_t begin = offsets_[at], end = offsets_[at + 1];
      this->require_length(begin < 0 || end < begin || (end > begin && data_ == nullptr) ? -1 : end - begin, start + i);
      out[i] = this->hasher_.bytes(data_ == nullptr ? "" : data_ + begin, static_cast<size_t>(end - begin));
    });
  }

 private:
  Unaligned<Offset> offsets_;
  const char* data_;
};

template <typename H>
class FixedColumn final : public Column<H> {
 public:
  FixedColumn(const Array& array, const H& hasher, size_t width)
      : Column<H>(array, hasher), width_(width), data_(width == 0 ? "" : static_cast<const char*>(this->buffer(1))) {}
  void read(uint64_t start, size_t n, typename H::Word* out) const override {
    this->each(start, n, [&](uint64_t at, size_t i) { out[i] = this->hasher_.bytes(data_ + at * width_, width_); });
  }

 private:
  size_t width_;
  const char* data_;
};

template <typename H>
class ViewColumn final : public Column<H> {  // length, then 12 bytes of text, or prefix, buffer and offset
 public:
  ViewColumn(const Array& array, const H& hasher)
      : Column<H>(array, hasher), views_(this->buffer(1)), variadic_(array.n_buffers - 3), sizes_(nullptr) {
    if (variadic_ < 0) throw BrokenColumn("the Arrow view array lacks its buffer sizes");
    sizes_ = Unaligned<int64_t>(array.buffers[array.n_buffers - 1]);
  }
  void read(uint64_t start, size_t n, typename H::Word* out) const override {
    this->each(start, n, [&](uint64_t at, size_t i) {
      const View view = views_[at];
      this->require_length(view.length, start + i);
      if (view.length <= 12) {
        out[i] = this->hasher_.bytes(view.inlined, static_cast<size_t>(view.length));
        return;
      }
      int32_t where[2];  // buffer, offset
      std::memcpy(where, view.inlined + 4, sizeof where);
      if (where[0] < 0 || where[0] >= variadic_ || where[1] < 0 || sizes_.missing() ||
          int64_t{where[1]} + view.length > sizes_[static_cast<uint64_t>(where[0])])
        throw BadKey(start + i, BadKey::Type::value, "the Arrow column is broken: a view points outside its buffers");
      const auto* data = static_cast<const char*>(this->array_.buffers[2 + where[0]]);
      if (data == nullptr)
        throw BadKey(start + i, BadKey::Type::value, "the Arrow column is broken: a view points into no buffer");
      out[i] = this->hasher_.bytes(data + where[1], static_cast<size_t>(view.length));
    });
  }

 private:
  struct View {
    int32_t length;
    char inlined[12];
  };
  Unaligned<View> views_;
  int64_t variadic_;
  Unaligned<int64_t> sizes_;
};

template <typename H, typename Index>
class DictionaryColumn final : public Column<H> {
 public:
  DictionaryColumn(const Array& array, const H& hasher, const Reader<H>& values)
      : Column<H>(array, hasher), indices_(this->buffer(1)), digests_(values.size()) {
    valid_.assign(values.size(), true);
    for (uint64_t i = 0; i < values.size(); ++i) {
      try {
        values.read(i, 1, &digests_[i]);
      } catch (const BadKey& bad) {
        valid_[i] = false;  // a null among the values counts only where a key uses it
        refused_.emplace(i, bad);
      }
    }
  }
  void read(uint64_t start, size_t n, typename H::Word* out) const override {
    this->each(start, n, [&](uint64_t at, size_t i) {
      const auto index = static_cast<uint64_t>(indices_[at]);  // a negative one becomes too large
      if (index >= digests_.size())
        throw BadKey(start + i, BadKey::Type::value, "the Arrow column is broken: an index is outside the dictionary");
      if (!valid_[index]) throw BadKey(start + i, refused_.at(index).type, refused_.at(index).what());
      out[i] = digests_[index];
    });
  }

 private:
  Unaligned<Index> indices_;
  std::vector<typename H::Word> digests_;
  std::vector<bool> valid_;
  std::unordered_map<uint64_t, BadKey> refused_;
};

template <typename H>
class NullColumn final : public Reader<H> {
 public:
  explicit NullColumn(const Array& array) : length_(static_cast<uint64_t>(array.length)) { require_possible(array); }
  uint64_t size() const override { return length_; }
  void read(uint64_t start, size_t, typename H::Word*) const override {
    throw BadKey(start, BadKey::Type::value, "the key is null: the column has type null");
  }

 private:
  uint64_t length_;
};

// Makes the words of one array, which must outlive them.
template <typename H>
using MakeColumn = std::unique_ptr<Reader<H>> (*)(const Schema&, const Array&, const H&);

template <typename H, typename C>
std::unique_ptr<Reader<H>> make(const Schema&, const Array& array, const H& hasher) {
  return std::make_unique<C>(array, hasher);
}

template <typename H>
std::unique_ptr<Reader<H>> make_null(const Schema&, const Array& array, const H&) {
  return std::make_unique<NullColumn<H>>(array);
}

template <typename H>
std::unique_ptr<Reader<H>> make_fixed(const Schema& schema, const Array& array, const H& hasher) {
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
std::unique_ptr<Reader<H>> make_dictionary(const Schema& schema, const Array& array, const H& hasher) {
  if (array.dictionary == nullptr) throw BrokenColumn("the Arrow dictionary array has no dictionary");
  const auto values = maker<H>(*schema.dictionary)(*schema.dictionary, *array.dictionary, hasher);
  return std::make_unique<DictionaryColumn<H, Index>>(array, hasher, *values);
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
                          (format == "+s" ? ": pass one column of the table" : ": cast it before"));
}

}  // namespace evenbins::python::arrow

// Arrow columns as sources of digests, read in place.
//
//     integers, bool      widened, then hashed by the kernel    l L i I s S c C b
//     (large) utf8/binary offsets into one data buffer          u U z Z
//     string/binary view  16-byte views, inline up to 12        vu vz
//     fixed-size binary                                         w:N
//
// A column is read in batches, by row: read() has consecutive rows, read_at() those that a dictionary's indices name.
// The keys before the first that has no digest get theirs; then it is thrown.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "arrow.hpp"
#include "evenbins/parallel.hpp"
#include "keys.hpp"

namespace evenbins::python::arrow {

struct UnfitKey
    : std::runtime_error {  // thrown by `H` for a key it has no word for; one that refuses bytes refuses all
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

inline constexpr const char* kNullKey = "the key is null: drop nulls before, for example with drop_nulls()";

template <typename H>
class Column : public Reader<H> {
 public:
  // The words of n rows. A BadKey has the number of the first without one among these n.
  virtual void read_at(const uint64_t* rows, size_t n, typename H::Word* out) const = 0;
};

// Elements of a buffer, which need not be aligned.
template <typename T>
class Unaligned {
 public:
  explicit Unaligned(const void* data) : data_(static_cast<const char*>(data)) {}
  T operator[](uint64_t i) const {
    T element;
    std::memcpy(&element, address(i), sizeof element);
    return element;
  }
  const char* address(uint64_t i) const { return data_ + i * sizeof(T); }
  bool missing() const { return data_ == nullptr; }

 private:
  const char* data_;
};

// Rows, with the array's offset: consecutive ones, and those of a list.
struct RowsFrom {
  uint64_t first;
  uint64_t operator()(size_t i) const { return first + i; }
};
struct RowsOf {
  const uint64_t* rows;
  uint64_t offset;
  uint64_t operator()(size_t i) const { return rows[i] + offset; }
};

// The part that all columns have: length, offset, validity. `Derived` has read_rows(row, n, out), which makes words of
// the rows row(0), …, row(n−1), and throws BadKey with one of 0 … n−1.
template <typename H, typename Derived>
class ArrayColumn : public Column<H> {
 public:
  using Word = typename H::Word;
  ArrayColumn(const Array& array, const H& hasher) : array_(array), hasher_(hasher) {
    require_possible(array);
    if (array.n_buffers < 1 || array.buffers == nullptr) throw BrokenColumn("the Arrow array has no buffers");
    if (array.null_count != 0) validity_ = static_cast<const uint8_t*>(array.buffers[0]);
  }
  uint64_t size() const final { return static_cast<uint64_t>(array_.length); }
  void read(uint64_t start, size_t n, Word* out) const final {
    try {
      derived().read_rows(RowsFrom{start + static_cast<uint64_t>(array_.offset)}, n, out);
    } catch (const BadKey& bad) {
      throw BadKey(start + bad.index, bad.type, bad.what());
    }
  }
  void read_at(const uint64_t* rows, size_t n, Word* out) const final {
    derived().read_rows(RowsOf{rows, static_cast<uint64_t>(array_.offset)}, n, out);
  }

 protected:
  static constexpr size_t kBatch = 256;

  const void* buffer(int64_t i) const {
    if (i >= array_.n_buffers || (array_.length > 0 && array_.buffers[i] == nullptr))
      throw BrokenColumn("the Arrow array lacks buffer " + std::to_string(i));
    return array_.buffers[i];
  }
  bool is_null(uint64_t row) const { return validity_ != nullptr && (validity_[row / 8] >> (row % 8) & 1) == 0; }

  // Reads the rows in batches: one(row, i) prepares the i-th of a batch and returns null, or what is wrong with it;
  // all(first, count, out) makes words of those that are prepared.
  template <typename Row, typename One, typename All>
  void in_batches(const Row& row, size_t n, Word* out, const One& one, const All& all) const {
    for (size_t first = 0; first < n; first += kBatch) {
      const size_t count = std::min(kBatch, n - first);
      const char* wrong = nullptr;
      size_t good = 0;
      for (; good < count; ++good) {
        const uint64_t at = row(first + good);
        wrong = is_null(at) ? kNullKey : one(at, good);
        if (wrong != nullptr) break;
      }
      all(first, good, out + first);
      if (wrong != nullptr) throw BadKey(first + good, BadKey::Type::value, wrong);
    }
  }
  // The same for strings: span(row, key) sets the key.
  template <typename Row, typename Span>
  void read_spans(const Row& row, size_t n, Word* out, const Span& span) const {
    ByteSpan keys[kBatch];
    in_batches(
        row, n, out, [&](uint64_t at, size_t i) { return span(at, keys[i]); },
        [&](size_t first, size_t count, Word* words) {
          try {
            hash_spans(hasher_, keys, count, words);
          } catch (const UnfitKey& unfit) {
            throw BadKey(first, unfit.type, unfit.what());
          }
        });
  }
  // And for integers: value(row) is one of type T.
  template <typename T, typename Row, typename Value>
  void read_integers(const Row& row, size_t n, Word* out, const Value& value) const {
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    Wide numbers[kBatch];
    in_batches(
        row, n, out,
        [&](uint64_t at, size_t i) {
          numbers[i] = value(at);
          return static_cast<const char*>(nullptr);
        },
        [&](size_t first, size_t count, Word* words) { hash_integers(numbers, count, first, words); });
  }

  template <typename Wide>
  void hash_integers(const Wide* numbers, size_t n, size_t first, Word* out) const {
    if constexpr (std::is_same_v<H, Hasher>) {
      hasher_.integers(numbers, n, out);
    } else {
      for (size_t i = 0; i < n; ++i) {
        try {
          out[i] = hasher_.integer(static_cast<uint64_t>(numbers[i]), std::is_signed_v<Wide> && numbers[i] < 0);
        } catch (const UnfitKey& unfit) {
          throw BadKey(first + i, unfit.type, unfit.what());
        }
      }
    }
  }

  const Array& array_;
  H hasher_;
  const uint8_t* validity_ = nullptr;

 private:
  const Derived& derived() const { return static_cast<const Derived&>(*this); }
};

template <typename H, typename T>
class IntColumn final : public ArrayColumn<H, IntColumn<H, T>> {
 public:
  IntColumn(const Array& array, const H& hasher) : ArrayColumn<H, IntColumn>(array, hasher), values_(this->buffer(1)) {}

 private:
  friend ArrayColumn<H, IntColumn>;
  static constexpr size_t kWidened = 1024;

  template <typename Row>
  void read_rows(const Row& row, size_t n, typename H::Word* out) const {
    if constexpr (std::is_same_v<Row, RowsFrom>)
      if (this->validity_ == nullptr) return widen(row.first, n, out);
    this->template read_integers<T>(row, n, out, [&](uint64_t at) { return values_[at]; });
  }

  void widen(uint64_t start, size_t n, typename H::Word* out) const {
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    Wide numbers[kWidened];
    for (size_t first = 0; first < n; first += kWidened) {
      const size_t count = std::min(kWidened, n - first);
      const char* from = values_.address(start + first);
      if (sizeof(T) == sizeof(Wide) && reinterpret_cast<uintptr_t>(from) % alignof(Wide) == 0) {
        this->hash_integers(reinterpret_cast<const Wide*>(from), count, first, out + first);
        continue;
      }
      const Unaligned<T> some(from);
      for (size_t i = 0; i < count; ++i) numbers[i] = some[i];  // vectorised
      this->hash_integers(numbers, count, first, out + first);
    }
  }

  Unaligned<T> values_;
};

template <typename H>
class BoolColumn final : public ArrayColumn<H, BoolColumn<H>> {
 public:
  BoolColumn(const Array& array, const H& hasher)
      : ArrayColumn<H, BoolColumn>(array, hasher), bits_(static_cast<const uint8_t*>(this->buffer(1))) {}

 private:
  friend ArrayColumn<H, BoolColumn>;
  template <typename Row>
  void read_rows(const Row& row, size_t n, typename H::Word* out) const {
    this->template read_integers<uint64_t>(row, n, out, [&](uint64_t at) { return bits_[at / 8] >> (at % 8) & 1; });
  }

  const uint8_t* bits_;
};

inline constexpr const char* kNegativeLength = "the Arrow column is broken: a key has a negative length";

template <typename H, typename Offset>
class BytesColumn final : public ArrayColumn<H, BytesColumn<H, Offset>> {
 public:
  BytesColumn(const Array& array, const H& hasher)
      : ArrayColumn<H, BytesColumn>(array, hasher), offsets_(this->buffer(1)) {
    if (array.n_buffers < 3) throw BrokenColumn("the Arrow array lacks buffer 2");
    data_ = static_cast<const char*>(array.buffers[2]);
  }

 private:
  friend ArrayColumn<H, BytesColumn>;
  template <typename Row>
  void read_rows(const Row& row, size_t n, typename H::Word* out) const {
    this->read_spans(row, n, out, [&](uint64_t at, ByteSpan& key) {
      const int64_t begin = offsets_[at], end = offsets_[at + 1];
      if (begin < 0 || end < begin || (end > begin && data_ == nullptr)) return kNegativeLength;
      key = {data_ == nullptr ? "" : data_ + begin, static_cast<size_t>(end - begin)};
      return static_cast<const char*>(nullptr);
    });
  }

  Unaligned<Offset> offsets_;
  const char* data_;
};

template <typename H>
class FixedColumn final : public ArrayColumn<H, FixedColumn<H>> {
 public:
  FixedColumn(const Array& array, const H& hasher, size_t width)
      : ArrayColumn<H, FixedColumn>(array, hasher),
        width_(width),
        data_(width == 0 ? "" : static_cast<const char*>(this->buffer(1))) {}

 private:
  friend ArrayColumn<H, FixedColumn>;
  template <typename Row>
  void read_rows(const Row& row, size_t n, typename H::Word* out) const {
    this->read_spans(row, n, out, [&](uint64_t at, ByteSpan& key) {
      key = {data_ + at * width_, width_};
      return static_cast<const char*>(nullptr);
    });
  }

  size_t width_;
  const char* data_;
};

template <typename H>
class ViewColumn final
    : public ArrayColumn<H, ViewColumn<H>> {  // length, then 12 bytes of text, or prefix, buffer and offset
 public:
  ViewColumn(const Array& array, const H& hasher)
      : ArrayColumn<H, ViewColumn>(array, hasher),
        views_(this->buffer(1)),
        variadic_(array.n_buffers - 3),
        sizes_(nullptr) {
    if (variadic_ < 0) throw BrokenColumn("the Arrow view array lacks its buffer sizes");
    sizes_ = Unaligned<int64_t>(array.buffers[array.n_buffers - 1]);
  }

 private:
  friend ArrayColumn<H, ViewColumn>;
  template <typename Row>
  void read_rows(const Row& row, size_t n, typename H::Word* out) const {
    this->read_spans(row, n, out, [&](uint64_t at, ByteSpan& key) -> const char* {
      const View view = views_[at];
      if (view.length < 0) return kNegativeLength;
      const auto length = static_cast<size_t>(view.length);
      if (length <= sizeof view.inlined) {
        key = {views_.address(at) + offsetof(View, inlined), length};
        return nullptr;
      }
      int32_t where[2];  // buffer, offset
      std::memcpy(where, view.inlined + 4, sizeof where);
      if (where[0] < 0 || where[0] >= variadic_ || where[1] < 0 || sizes_.missing() ||
          int64_t{where[1]} + view.length > sizes_[static_cast<uint64_t>(where[0])])
        return "the Arrow column is broken: a view points outside its buffers";
      const auto* data = static_cast<const char*>(this->array_.buffers[2 + where[0]]);
      if (data == nullptr) return "the Arrow column is broken: a view points into no buffer";
      key = {data + where[1], length};
      return nullptr;
    });
  }

  struct View {
    int32_t length;
    char inlined[12];
  };
  Unaligned<View> views_;
  int64_t variadic_;
  Unaligned<int64_t> sizes_;
};

template <typename H>
class NullColumn final : public Column<H> {
 public:
  explicit NullColumn(const Array& array) : length_(static_cast<uint64_t>(array.length)) { require_possible(array); }
  uint64_t size() const override { return length_; }
  void read(uint64_t start, size_t, typename H::Word*) const override { throw null_key(start); }
  void read_at(const uint64_t*, size_t, typename H::Word*) const override { throw null_key(0); }

 private:
  static BadKey null_key(uint64_t i) {
    return BadKey(i, BadKey::Type::value, "the key is null: the column has type null");
  }
  uint64_t length_;
};

}  // namespace evenbins::python::arrow

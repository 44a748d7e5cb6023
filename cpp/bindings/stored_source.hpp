// Keys of a table's bulk call, read in place by several threads without the GIL: NumPy arrays and Arrow columns.
//
//     StoredSource::next   the next array of keys; any thread reads any of them, as StoredKeys (table_keys.hpp)
//     all_words            all keys as words, for calls that convert every key before the first is used
//
// The readers are those of filters (arrays.hpp, arrow.hpp), with a KeyMaker in the place of a Hasher.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "arrow_reader.hpp"
#include "evenbins/stretches.hpp"
#include "sources.hpp"
#include "table_keys.hpp"

namespace evenbins::python {

using StoredWords = arrow::Words<StoredKey>;

class StoredSource {
 public:
  explicit StoredSource(const KeyMaker& m) : maker(m) {}
  virtual ~StoredSource() = default;
  // The next keys, or null; with the GIL. They may be read until the next call.
  virtual const StoredWords* next() = 0;

  const KeyMaker maker;
};

class StoredArray final : public StoredSource, private StoredWords {
 public:
  StoredArray(nb::handle array, Elements elements, bool swapped, const KeyMaker& m) : StoredSource(m) {
    if (!buffer_.acquire(array.ptr(), PyBUF_STRIDES)) throw nb::python_error();
    require_elements(buffer_.view, elements);
    if (elements == Elements::digests) throw nb::type_error("digests of 64 bits are no keys");
    if (m.type != KeyType::digest) throw nb::type_error("only the keys of a table of digests are read in place");
    reader_.emplace(buffer_.view, elements, swapped, maker);
  }
  const StoredWords* next() override { return std::exchange(read_, true) ? nullptr : this; }

 private:
  uint64_t size() const override { return reader_->size(); }
  void read(uint64_t start, size_t n, StoredKey* out) const override { reader_->read(start, n, out); }

  Buffer buffer_;
  std::optional<ArrayReader<KeyMaker>> reader_;
  bool read_ = false;
};

class StoredColumn final : public StoredSource {
 public:
  StoredColumn(nb::handle stream, nb::handle schema, nb::handle array, const KeyMaker& m) : StoredSource(m) {
    if (stream.is_none())
      reader_.emplace(schema, array);
    else
      reader_.emplace(stream);
  }
  const StoredWords* next() override {
    column_.reset();  // it refers to the array that goes
    column_ = reader_->next(maker, [] { throw nb::python_error(); });
    return column_.get();
  }

 private:
  std::optional<ArrowReader> reader_;
  std::unique_ptr<StoredWords> column_;
};

// A key that has no place in the table: nothing has been done with the others.
[[noreturn]] inline void raise_unfit(const BadKey& bad, uint64_t before) {
  raise_unfit(bad.type == BadKey::Type::type ? PyExc_TypeError : PyExc_ValueError, before + bad.index, bad.what());
}

// Calls act(start, keys, n) for the keys of an array, a thousand at a time and in no order, on several threads and
// without the GIL. Returns how many keys that were: all, unless a signal handler raised.
template <typename Act>
uint64_t each_thousand(const StoredWords& keys, uint32_t threads, const Act& act) {
  constexpr uint64_t kStretch = uint64_t{1} << 14;
  constexpr size_t kBatch = 1024;
  SignalPulse pulse;
  return for_stretches(keys.size(), threads, kStretch, pulse, [&](uint64_t start, uint64_t count) {
    StoredKey batch[kBatch];
    for (const uint64_t end = start + count; start < end; start += kBatch) {
      const size_t n = std::min<uint64_t>(kBatch, end - start);
      keys.read(start, n, batch);
      act(start, batch, n);
    }
  });
}

// Keys as words of the table, in place; numbers of those that are out of range, whose words are 0, go to `unfit`.
inline const uint64_t* words_of(const KeyMaker& maker, StoredKey* keys, size_t n, std::vector<uint64_t>& unfit) {
  static_assert(sizeof(StoredKey) == 16);
  auto* words = reinterpret_cast<uint64_t*>(keys);
  unfit.clear();
  if (maker.type == KeyType::digest) return words;
  for (size_t i = 0; i < n; ++i) {
    const StoredKey key = keys[i];
    if (maker.is_out_of_range(key)) unfit.push_back(i);
    words[i] = key.low;
  }
  return words;
}

// All keys as words; the numbers of those that are out of the table's range (of a `finder` alone).
struct AllWords {
  Answers<uint64_t> words, out_of_range;
  nb::tuple release() { return nb::make_tuple(words.release<uint64_t>(), out_of_range.release<uint64_t>()); }
};

inline AllWords all_words(StoredSource& source, uint32_t threads) {
  AllWords all;
  const uint32_t each = key_words(source.maker.type);
  uint64_t before = 0;
  while (const StoredWords* keys = source.next()) {
    uint64_t* out = all.words.extend(keys->size() * each);
    all.words.use_huge_pages();
    std::vector<uint64_t> out_of_range;
    std::mutex lock;
    uint64_t done = 0;
    try {
      const GilRelease free;
      done = each_thousand(*keys, threads, [&](uint64_t start, StoredKey* batch, size_t n) {
        std::vector<uint64_t> unfit;
        std::copy_n(words_of(source.maker, batch, n, unfit), n * each, out + start * each);
        if (unfit.empty()) return;
        const std::lock_guard hold(lock);
        for (const uint64_t i : unfit) out_of_range.push_back(before + start + i);
      });
    } catch (const BadKey& bad) {
      raise_unfit(bad, before);
    }
    if (PyErr_Occurred()) throw nb::python_error();
    std::sort(out_of_range.begin(), out_of_range.end());
    std::copy(out_of_range.begin(), out_of_range.end(), all.out_of_range.extend(out_of_range.size()));
    before += done;
  }
  return all;
}

inline void bind_stored_sources(nb::module_& m) {
  nb::class_<StoredSource>(m, "StoredKeys", "Keys of a look-up in a table, which are read in place.");
  m.def(
      "array_words",
      [](nb::handle array, char elements, bool swapped, uint64_t seed) -> StoredSource* {
        return new StoredArray(array, static_cast<Elements>(elements), swapped, KeyMaker{KeyType::digest, seed});
      },
      nb::arg("array"), nb::arg("elements"), nb::arg("swapped"), nb::arg("seed"), nb::rv_policy::take_ownership,
      nb::sig("def array_words(array: object, elements: str, swapped: bool, seed: int) -> StoredKeys"),
      "An array of integers or strings as keys to look up in a table of digests.");
  m.def(
      "arrow_words",
      [](nb::handle stream, nb::handle schema, nb::handle array, uint64_t key_type, uint64_t seed) -> StoredSource* {
        return new StoredColumn(stream, schema, array, KeyMaker{key_type_of(key_type), seed}.finder());
      },
      nb::arg("stream").none(), nb::arg("schema").none(), nb::arg("array").none(), nb::arg("key_type"), nb::arg("seed"),
      nb::rv_policy::take_ownership,
      nb::sig("def arrow_words(stream: object, schema: object, array: object, key_type: int, seed: int) -> StoredKeys"),
      "The same of an Arrow stream, or of a schema and an array; for a table of any key_type.");
  m.def(
      "stored_array",
      [](nb::handle array, char elements, bool swapped, uint64_t seed, uint32_t threads) {
        StoredArray source(array, static_cast<Elements>(elements), swapped, KeyMaker{KeyType::digest, seed});
        return all_words(source, threads).words.release<uint64_t>();
      },
      nb::arg("array"), nb::arg("elements"), nb::arg("swapped"), nb::arg("seed"), nb::arg("threads") = 1,
      nb::sig("def stored_array(array: object, elements: str, swapped: bool, seed: int, threads: int = 1) -> "
              "numpy.typing.NDArray[numpy.uint64]"),
      "What a table of digests stores of an array of integers or strings: two words a key.");
  m.def(
      "stored_arrow",
      [](nb::handle stream, nb::handle schema, nb::handle array, uint64_t key_type, uint64_t seed, uint32_t threads) {
        StoredColumn source(stream, schema, array, KeyMaker{key_type_of(key_type), seed});
        return all_words(source, threads).words.release<uint64_t>();
      },
      nb::arg("stream").none(), nb::arg("schema").none(), nb::arg("array").none(), nb::arg("key_type"), nb::arg("seed"),
      nb::arg("threads") = 1,
      nb::sig("def stored_arrow(stream: object, schema: object, array: object, key_type: int, seed: int, "
              "threads: int = 1) -> numpy.typing.NDArray[numpy.uint64]"),
      "As stored_items, of an Arrow stream, or of a schema and an array.");
  m.def(
      "wanted_arrow",
      [](nb::handle stream, nb::handle schema, nb::handle array, uint64_t key_type, uint64_t seed, uint32_t threads) {
        StoredColumn source(stream, schema, array, KeyMaker{key_type_of(key_type), seed}.finder());
        return all_words(source, threads).release();
      },
      nb::arg("stream").none(), nb::arg("schema").none(), nb::arg("array").none(), nb::arg("key_type"), nb::arg("seed"),
      nb::arg("threads") = 1,
      nb::sig("def wanted_arrow(stream: object, schema: object, array: object, key_type: int, seed: int, "
              "threads: int = 1) -> tuple[numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.uint64]]"),
      "As wanted_items, of an Arrow stream, or of a schema and an array.");
}

}  // namespace evenbins::python

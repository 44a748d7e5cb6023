// Columns with a dictionary: a key is an index into values that each occur once (categoricals, Parquet's dictionaries).
//
//     index ──▶ word of this value, if it is known ──▶ out
//                 │ else: read the value, and keep its word
//
// A value is digested when a key first uses it, by whichever thread needs it. So neither a large dictionary costs much
// where few rows use it, nor a dictionary that comes with every array of a stream: a DictionaryCache keeps the words
// from one array to the next, as long as these have the dictionary at the same addresses. It keeps the array that it
// knows the addresses from, too: else another dictionary could lie there.
//
// Words are kept when the rows so far are kRowsPerValue times the values or more. With fewer, every row reads its value:
// to keep a word that is used once costs more (10 ns per row instead of 7, for 200,000 different strings).
#pragma once

#include <cstdlib>
#include <memory>
#include <type_traits>
#include <utility>

#include "arrow_columns.hpp"

namespace evenbins::python::arrow {

// Words that several threads look up and add. All threads add the same word for the same value.
template <typename Word>
class KnownWords {
 public:
  // Null if there is no memory for n words.
  static std::shared_ptr<KnownWords> make(uint64_t n) {
    void* parts = std::calloc(n, sizeof(Word));
    if (parts == nullptr) return nullptr;
    return std::shared_ptr<KnownWords>(new KnownWords(static_cast<uint64_t*>(parts)));
  }
  ~KnownWords() { std::free(parts_); }
  KnownWords(const KnownWords&) = delete;
  KnownWords& operator=(const KnownWords&) = delete;

  // False if the word is not known. One whose last part is 0 never is.
  bool find(uint64_t i, Word& word) const {
    uint64_t parts[kParts];
    const uint64_t* from = parts_ + i * kParts;
    parts[kParts - 1] = __atomic_load_n(from + kParts - 1, __ATOMIC_ACQUIRE);
    for (size_t part = 0; part + 1 < kParts; ++part) parts[part] = __atomic_load_n(from + part, __ATOMIC_RELAXED);
    std::memcpy(&word, parts, sizeof word);
    return parts[kParts - 1] != 0;
  }
  void add(uint64_t i, const Word& word) {
    uint64_t parts[kParts];
    std::memcpy(parts, &word, sizeof word);
    uint64_t* to = parts_ + i * kParts;
    for (size_t part = 0; part + 1 < kParts; ++part) __atomic_store_n(to + part, parts[part], __ATOMIC_RELAXED);
    __atomic_store_n(to + kParts - 1, parts[kParts - 1], __ATOMIC_RELEASE);
  }

 private:
  static constexpr size_t kParts = sizeof(Word) / sizeof(uint64_t);
  static_assert(sizeof(Word) % sizeof(uint64_t) == 0 && std::is_trivially_copyable_v<Word>);
  explicit KnownWords(uint64_t* parts) : parts_(parts) {}
  uint64_t* parts_;
};

// Whether two arrays, both alive, have the same elements because they are the same memory.
inline bool is_same_memory(const Array& a, const Array& b) {
  if (a.length != b.length || a.offset != b.offset || a.n_buffers != b.n_buffers || a.n_children != b.n_children ||
      (a.null_count == 0) != (b.null_count == 0) || (a.dictionary == nullptr) != (b.dictionary == nullptr))
    return false;
  if (a.n_children != 0 || (a.n_buffers > 0 && (a.buffers == nullptr || b.buffers == nullptr))) return false;
  for (int64_t i = 0; i < a.n_buffers; ++i)
    if (a.buffers[i] != b.buffers[i]) return false;
  return a.dictionary == nullptr || is_same_memory(*a.dictionary, *b.dictionary);
}

// The words of the dictionary that a stream's latest array has.
class DictionaryCache {
 public:
  // The words to use for an array with this dictionary, or null if none should be kept. `owner` keeps `array` in place.
  template <typename H>
  std::shared_ptr<KnownWords<typename H::Word>> words_of(const Array& array, const H& hasher,
                                                         std::shared_ptr<const void> owner) {
    using Known = KnownWords<typename H::Word>;
    constexpr uint64_t kRowsPerValue = 2;
    const Array& dictionary = *array.dictionary;
    require_possible(dictionary);
    require_possible(array);
    const bool is_known = dictionary_ != nullptr && seed_ == hasher.seed && word_bytes_ == sizeof(typename H::Word) &&
                          is_same_memory(*dictionary_, dictionary);
    if (!is_known) {
      rows_ = 0;
      words_ = nullptr;
    }
    dictionary_ = &dictionary;
    owner_ = std::move(owner);
    seed_ = hasher.seed;
    word_bytes_ = sizeof(typename H::Word);
    rows_ += static_cast<uint64_t>(array.length);
    const auto values = static_cast<uint64_t>(dictionary.length);
    if (words_ == nullptr && rows_ / kRowsPerValue >= values) words_ = Known::make(values);
    return std::static_pointer_cast<Known>(words_);
  }

 private:
  std::shared_ptr<const void> owner_;  // of the array with this dictionary
  const Array* dictionary_ = nullptr;
  uint64_t seed_ = 0;
  size_t word_bytes_ = 0;
  uint64_t rows_ = 0;            // that have used it
  std::shared_ptr<void> words_;  // KnownWords<Word>, of word_bytes_
};

template <typename H, typename Index>
class DictionaryColumn final : public ArrayColumn<H, DictionaryColumn<H, Index>> {
 public:
  using Word = typename H::Word;
  DictionaryColumn(const Array& array, const H& hasher, std::unique_ptr<const Column<H>> values,
                   std::shared_ptr<KnownWords<Word>> words)
      : ArrayColumn<H, DictionaryColumn>(array, hasher),
        indices_(this->buffer(1)),
        values_(std::move(values)),
        words_(std::move(words)),
        size_(values_->size()) {}

 private:
  friend ArrayColumn<H, DictionaryColumn>;

  template <typename Row>
  void read_rows(const Row& row, size_t n, Word* out) const {
    uint64_t indices[this->kBatch];
    this->in_batches(
        row, n, out,
        [&](uint64_t at, size_t i) -> const char* {
          indices[i] = static_cast<uint64_t>(indices_[at]);  // a negative one becomes too large
          return indices[i] < size_ ? nullptr : "the Arrow column is broken: an index is outside the dictionary";
        },
        [&](size_t first, size_t count, Word* words) { look_up(indices, count, first, words); });
  }

  void look_up(uint64_t* indices, size_t n, size_t first, Word* out) const {
    if (words_ == nullptr) {
      try {
        return values_->read_at(indices, n, out);
      } catch (const BadKey& bad) {
        throw BadKey(first + bad.index, bad.type, bad.what());
      }
    }
    uint16_t unknown[this->kBatch];
    size_t count = 0;
    for (size_t i = 0; i < n; ++i) {
      unknown[count] = static_cast<uint16_t>(i);
      count += words_->find(indices[i], out[i]) ? 0 : 1;
    }
    if (count > 0) read_unknown(indices, unknown, count, first, out);
  }

  EVENBINS_NOINLINE void read_unknown(const uint64_t* indices, const uint16_t* unknown, size_t n, size_t first,
                                      Word* out) const {
    uint64_t rows[this->kBatch];
    Word found[this->kBatch];
    for (size_t i = 0; i < n; ++i) rows[i] = indices[unknown[i]];
    size_t good = n;
    const auto keep = [&] {
      for (size_t i = 0; i < good; ++i) words_->add(rows[i], out[unknown[i]] = found[i]);
    };
    try {
      values_->read_at(rows, n, found);
    } catch (const BadKey& bad) {  // a null among the values counts only where a key uses it
      good = bad.index;
      keep();
      throw BadKey(first + unknown[good], bad.type, bad.what());
    }
    keep();
  }

  Unaligned<Index> indices_;
  std::unique_ptr<const Column<H>> values_;
  std::shared_ptr<KnownWords<Word>> words_;
  uint64_t size_;
};

}  // namespace evenbins::python::arrow

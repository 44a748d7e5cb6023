// NumPy arrays as sources of digests, read in place: any shape, strides and byte order.
//
// Elements are visited in C order. Nothing here touches Python once constructed, so several threads may
// read at once without the GIL; the Py_buffer keeps the memory alive and in place.
#pragma once

#include <Python.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "evenbins/parallel.hpp"
#include "keys.hpp"
#include "padded.hpp"

namespace evenbins::python {

class Buffer {  // an acquired Py_buffer; must be made and destroyed with the GIL held
 public:
  Buffer() { view.obj = nullptr; }
  ~Buffer() { PyBuffer_Release(&view); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  bool acquire(PyObject* object, int flags) { return PyObject_GetBuffer(object, &view, flags) == 0; }
  Py_buffer view;
};

// What the elements of an array mean: NumPy's dtype.kind, or 'd' for ready digests.
enum class Elements : char {
  signed_int = 'i',
  unsigned_int = 'u',
  boolean = 'b',
  bytes = 'S',
  text = 'U',
  digests = 'd'
};

// The elements as words of `H`: a Hasher's digests, or what a table stores of them (KeyMaker).
template <typename H>
class ArrayReader {
 public:
  using Word = typename H::Word;
  ArrayReader(const Py_buffer& view, Elements elements, bool swapped, const H& hasher)
      : base_(static_cast<const char*>(view.buf)),
        item_(static_cast<size_t>(view.itemsize)),
        elements_(elements),
        swapped_(swapped),
        hasher_(hasher),
        shape_(view.shape, view.shape + view.ndim),
        strides_(view.strides, view.strides + view.ndim) {
    for (const Py_ssize_t n : shape_) size_ *= static_cast<uint64_t>(n);
    contiguous_ = PyBuffer_IsContiguous(&view, 'C') != 0;
  }

  uint64_t size() const { return size_; }

  void read(uint64_t start, size_t n, Word* out) const {
    switch (elements_) {
      case Elements::digests:
        if constexpr (std::is_same_v<Word, uint64_t>) widen<uint64_t>(start, n, out);
        return;
      case Elements::bytes: return read_bytes(start, n, out);
      case Elements::text: return read_text(start, n, out);
      default: return read_ints(start, n, out);
    }
  }

 private:
  static constexpr size_t kBatch = 1024;
  static constexpr size_t kSpans = 256;  // strings that are hashed together
  // Code points that are narrowed together: they stay in the first-level cache.
  static constexpr size_t kNarrowed = 2048;

  // Calls f(address, i) for element start + i, i = 0 … n−1.
  template <typename F>
  void walk(uint64_t start, size_t n, F&& f) const {
    if (contiguous_) {
      const char* p = base_ + start * item_;
      for (size_t i = 0; i < n; ++i, p += item_) f(p, i);
      return;
    }
    std::vector<Py_ssize_t> at(shape_.size());
    const char* p = base_;
    for (size_t d = shape_.size(); d-- > 0;) {
      at[d] = static_cast<Py_ssize_t>(start % static_cast<uint64_t>(shape_[d]));
      start /= static_cast<uint64_t>(shape_[d]);
      p += at[d] * strides_[d];
    }
    for (size_t i = 0; i < n; ++i) {
      f(p, i);
      for (size_t d = shape_.size(); d-- > 0;) {
        p += strides_[d];
        if (++at[d] < shape_[d]) break;
        p -= shape_[d] * strides_[d];
        at[d] = 0;
      }
    }
  }

  template <typename T>
  static T load(const char* p, bool swapped) {
    T value;
    std::memcpy(&value, p, sizeof value);
    if constexpr (sizeof(T) > 1) {
      if (swapped) {
        char* bytes = reinterpret_cast<char*>(&value);
        std::reverse(bytes, bytes + sizeof value);
      }
    }
    return value;
  }

  template <typename Narrow, typename Word>
  void widen(uint64_t start, size_t n, Word* out) const {
    if (contiguous_ && !swapped_) {  // a loop that the compiler vectorises
      const char* p = base_ + start * sizeof(Narrow);
      for (size_t i = 0; i < n; ++i) out[i] = static_cast<Word>(load<Narrow>(p + i * sizeof(Narrow), false));
      return;
    }
    walk(start, n, [&](const char* p, size_t i) { out[i] = static_cast<Word>(load<Narrow>(p, swapped_)); });
  }

  void read_ints(uint64_t start, size_t n, Word* out) const {
    for (size_t done = 0; done < n; done += kBatch)
      read_int_batch(start + done, std::min(kBatch, n - done), out + done);
  }

  void read_int_batch(uint64_t start, size_t n, Word* out) const {
    const bool in_place = contiguous_ && !swapped_ && item_ == 8 && reinterpret_cast<uintptr_t>(base_) % 8 == 0;
    if (elements_ == Elements::signed_int) {
      if (in_place) return hasher_.integers(reinterpret_cast<const int64_t*>(base_) + start, n, out);
      int64_t words[kBatch];
      switch (item_) {
        case 1: widen<int8_t>(start, n, words); break;
        case 2: widen<int16_t>(start, n, words); break;
        case 4: widen<int32_t>(start, n, words); break;
        default: widen<int64_t>(start, n, words);
      }
      return hasher_.integers(words, n, out);
    }
    if (in_place) return hasher_.integers(reinterpret_cast<const uint64_t*>(base_) + start, n, out);
    uint64_t words[kBatch];
    switch (item_) {
      case 1: widen<uint8_t>(start, n, words); break;
      case 2: widen<uint16_t>(start, n, words); break;
      case 4: widen<uint32_t>(start, n, words); break;
      default: widen<uint64_t>(start, n, words);
    }
    if (elements_ == Elements::boolean)
      for (size_t i = 0; i < n; ++i) words[i] = words[i] != 0;
    hasher_.integers(words, n, out);
  }

  // NumPy pads strings with NULs, and drops them again on reading.
  void read_bytes(uint64_t start, size_t n, Word* out) const {
    ByteSpan keys[kSpans];
    for (size_t done = 0; done < n; done += kSpans) {
      const size_t count = std::min(kSpans, n - done);
      walk(start + done, count, [&](const char* p, size_t i) { keys[i] = {p, used_bytes(p, item_)}; });
      hash_spans(hasher_, keys, count, out + done);
    }
  }

  void read_text(uint64_t start, size_t n, Word* out) const {
    const size_t width = item_ / 4, most = std::clamp<size_t>(kNarrowed / std::max<size_t>(width, 1), 1, kSpans);
    std::vector<char> bytes(std::min(n, most) * width), utf8;
    ByteSpan keys[kSpans];
    for (size_t done = 0; done < n; done += most) {
      const size_t count = std::min(most, n - done);
      size_t good = count;
      if (narrow_elements(start + done, count, bytes.data()))
        for (size_t i = 0; i < count; ++i) {
          const char* p = bytes.data() + i * width;
          keys[i] = {p, used_bytes(p, width)};
        }
      else
        good = encode(start + done, count, bytes.data(), utf8, keys);
      hash_spans(hasher_, keys, good, out + done);
      if (good < count) throw BadKey(start + done + good, BadKey::Type::value, kSurrogate);
    }
  }

  // Whether all code points of these elements are ASCII; then `out` has them as bytes.
  bool narrow_elements(uint64_t start, size_t n, char* out) const {
    const size_t width = item_ / 4;
    if (contiguous_) return narrow(base_ + start * item_, n * width, swapped_, out);
    bool is_ascii = true;
    walk(start, n, [&](const char* p, size_t i) { is_ascii &= narrow(p, width, swapped_, out + i * width); });
    return is_ascii;
  }

  // The same elements if some are not ASCII: these as UTF-8 in `utf8`. Returns how many have no surrogate before them.
  size_t encode(uint64_t start, size_t n, char* bytes, std::vector<char>& utf8, ByteSpan* keys) const {
    const size_t width = item_ / 4;
    std::vector<uint32_t> text(width);
    utf8.resize(4 * n * width);
    char* end = utf8.data();
    size_t good = n;
    walk(start, n, [&](const char* p, size_t i) {
      if (good < n) return;
      if (char* element = bytes + i * width; narrow(p, width, swapped_, element)) {
        keys[i] = {element, used_bytes(element, width)};
        return;
      }
      const size_t length = (used_bytes(p, item_) + 3) / 4;
      for (size_t c = 0; c < length; ++c) text[c] = load<uint32_t>(p + 4 * c, swapped_);
      char* const begin = end;
      end = write_utf8(text.data(), length, begin);
      if (end == nullptr)
        good = i;
      else
        keys[i] = {begin, static_cast<size_t>(end - begin)};
    });
    return good;
  }

  const char* base_;
  size_t item_;
  Elements elements_;
  bool swapped_, contiguous_;
  H hasher_;
  std::vector<Py_ssize_t> shape_, strides_;
  uint64_t size_ = 1;
};

class ArrayDigests final : public Digests {
 public:
  ArrayDigests(const Py_buffer& view, Elements elements, bool swapped, const Hasher& hasher)
      : reader_(view, elements, swapped, hasher) {}
  uint64_t size() const override { return reader_.size(); }
  void read(uint64_t start, size_t n, uint64_t* out) const override { reader_.read(start, n, out); }

 private:
  ArrayReader<Hasher> reader_;
};

}  // namespace evenbins::python

// Bulk calls: a source of keys meets a sink that takes their digests.
//
//     KeySource   an array, an Arrow stream or array, or any iterable   ──digests──▶   Sink   add, contains, collect
//
// `run` reads all keys, `run_some` a number of them; the next call goes on where it ended.
//
// Sources that can be read without Python hand the sink a `Digests` and release the GIL; an iterable is
// hashed under the GIL, in batches. In both cases signals are polled for, the keys before a failure have been
// taken, and the error says where it was and what has happened to them (Sink::verb).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "arrow_reader.hpp"
#include "evenbins/digest_stretches.hpp"
#include "evenbins/parallel.hpp"
#include "keys.hpp"
#include "lines.hpp"

namespace evenbins::python {

namespace nb = nanobind;

using WordArray = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Answers of a bulk call; grows, and becomes a NumPy array without a copy.
template <typename T>
class Answers {
 public:
  ~Answers() { std::free(data_); }
  T* extend(uint64_t n) {  // room for n more; filled by the caller
    if (size_ + n > room_) {
      const uint64_t room = std::max<uint64_t>(size_ + n, 2 * room_);
      void* grown = std::realloc(data_, room * sizeof(T));
      if (grown == nullptr) throw AllocationError(room * sizeof(T));
      data_ = static_cast<T*>(grown);
      room_ = room;
    }
    size_ += n;
    return data_ + size_ - n;
  }
  uint64_t size() const { return size_; }
  // Answers of many megabytes in huge pages: faults of small ones would take a tenth of the call.
  void use_huge_pages() {
    constexpr uint64_t kHugePage = uint64_t{2} << 20;
    const auto start = (reinterpret_cast<uintptr_t>(data_) + kHugePage - 1) / kHugePage * kHugePage;
    const auto end = (reinterpret_cast<uintptr_t>(data_) + room_ * sizeof(T)) / kHugePage * kHugePage;
    if (start < end) platform::advise_huge_pages(reinterpret_cast<void*>(start), end - start);
  }
  void truncate(uint64_t n) { size_ = n; }  // to the first n
  template <typename Element>
  nb::ndarray<nb::numpy, Element, nb::ndim<1>> release() {
    if (data_ == nullptr) extend(0), data_ = static_cast<T*>(std::malloc(1));
    T* data = std::exchange(data_, nullptr);
    const nb::capsule owner(data, [](void* p) noexcept { std::free(p); });
    return nb::ndarray<nb::numpy, Element, nb::ndim<1>>(data, {static_cast<size_t>(size_)}, owner);
  }

 private:
  T* data_ = nullptr;
  uint64_t size_ = 0, room_ = 0;
};

class Sink {
 public:
  virtual ~Sink() = default;
  // Both are called with the GIL. `take_all` releases it; `take` does when other Python threads should run.
  virtual uint64_t take_all(const Digests& keys, const Pulse& pulse) = 0;
  virtual void take(const uint64_t* digests, size_t n, bool let_others_run) = 0;
  // What has happened to the keys that were taken; messages say it.
  virtual const char* verb() const { return "taken"; }
  uint64_t taken = 0;  // keys of earlier stretches: where the next one starts
};

// Calls take(start, digests, n), with the GIL, for one piece of the keys after the other; they are read without it. The
// keys before a bad one are taken. Returns how many keys were taken when the pulse ended it. Threads share the hashing.
template <typename Take>
uint64_t take_in_pieces(const Digests& keys, const Pulse& pulse, uint64_t piece, uint32_t threads, Take&& take) {
  const uint64_t size = keys.size();
  std::vector<uint64_t> digests(std::min(piece, size));
  for (uint64_t start = 0; start < size; start += piece) {
    if (!pulse()) return start;
    std::optional<BadKey> bad;
    uint64_t n = std::min(piece, size - start);
    {
      const GilRelease free;
      try {
        read_digests(keys, start, n, digests.data(), threads);
      } catch (const BadKey& error) {
        bad = error;
        n = error.index - start;
      }
    }
    take(start, digests.data(), n);
    if (bad) throw *bad;
  }
  return size;
}

// Polls for pending signals every 50 ms while the GIL is released.
class SignalPulse {
 public:
  bool operator()() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return true;
    last_ = now;
    const GilAcquire hold;
    return poll_signals();  // else the exception stays set for the caller
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// A Python exception is set; adds where it happened, and throws it on.
[[noreturn]] inline void raise_at(uint64_t index, const std::string& verb = "taken") {
  nb::python_error error;
  nb::object value = nb::borrow(error.value());
  value.attr("add_note")("evenbins: this came from item " + std::to_string(index) +
                         " of the keys; the keys before it have been " + verb);
  throw error;
}

// The same for errors of our own, which carry the position in their text.
[[noreturn]] inline void raise_key_error(PyObject* type, uint64_t index, const std::string& text,
                                         const std::string& verb = "taken") {
  PyErr_SetString(
      type, ("keys[" + std::to_string(index) + "]: " + text + " (the keys before it have been " + verb + ")").c_str());
  throw nb::python_error();
}

[[noreturn]] inline void raise_interrupted(uint64_t taken, const std::string& verb = "taken") {
  if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) raise_at(taken, verb);
  PyErr_Clear();
  PyErr_SetString(PyExc_KeyboardInterrupt, ("stopped after " + std::to_string(taken) + " keys; these have been " +
                                            verb + ", the structure is usable")
                                               .c_str());
  throw nb::python_error();
}

// evenbins.FilterFullError; its attribute `added` is the number of keys of the call that are in.
inline PyObject* filter_full_error = nullptr;

inline void bind_filter_full(nb::module_& m) {  // called once
  filter_full_error = PyErr_NewExceptionWithDoc(
      "evenbins.FilterFullError", "A filter has no room for a key; `added` keys of the call are in.",
      nb::make_tuple(nb::handle(types.error), nb::handle(PyExc_RuntimeError)).ptr(), nullptr);
  if (filter_full_error == nullptr) throw nb::python_error();
  m.attr("FilterFullError") = nb::handle(filter_full_error);
}

inline void set_filter_full(uint64_t added, const std::string& which_key) {
  const std::string text = "the filter is full: it has no room for " + which_key + ". Plan for more keys";
  const nb::object error = nb::handle(filter_full_error)(nb::str(text.c_str(), text.size()));
  error.attr("added") = added;
  PyErr_SetObject(filter_full_error, error.ptr());
}
[[noreturn]] inline void raise_filter_full(uint64_t added) {
  set_filter_full(added, "keys[" + std::to_string(added) + "]; the keys before it have been added");
  throw nb::python_error();
}

class KeySource {
 public:
  virtual ~KeySource() = default;
  void run(const Hasher& hasher, Sink& sink) { run_some(hasher, sink, ~uint64_t{0}); }
  // Whether all keys lie in one stretch of memory, and are handed over by one call of `take_all`.
  virtual bool is_one_stretch() const { return false; }
  // Reads at most `limit` more keys; false if there are none after them. `sink.taken` is the number of the first.
  virtual bool run_some(const Hasher& hasher, Sink& sink, uint64_t limit) = 0;
};

// A source whose keys lie in memory, in one stretch or in several.
class StretchSource : public KeySource {
 public:
  bool run_some(const Hasher& hasher, Sink& sink, uint64_t limit) override {
    while (limit > 0) {
      if (keys_ == nullptr) {
        keys_ = next_stretch(hasher, sink);
        begin_ = 0;
      }
      if (keys_ == nullptr) return false;
      const uint64_t left = keys_->size() - begin_;
      if (left > limit) {
        const uint64_t begin = std::exchange(begin_, begin_ + limit);
        run_digests(Part(*keys_, begin, limit), sink);
        return true;
      }
      limit -= left;
      const std::unique_ptr<const Digests> last = std::move(keys_);
      if (begin_ == 0)
        run_digests(*last, sink);
      else
        run_digests(Part(*last, begin_, left), sink);
    }
    return true;
  }

 protected:
  // The next stretch of keys, or null. What it refers to must stay until the next call.
  virtual std::unique_ptr<const Digests> next_stretch(const Hasher& hasher, const Sink& sink) = 0;

 private:
  class Part final : public Digests {
   public:
    Part(const Digests& whole, uint64_t begin, uint64_t size) : whole_(whole), begin_(begin), size_(size) {}
    uint64_t size() const override { return size_; }
    void read(uint64_t start, size_t n, uint64_t* out) const override {
      try {
        whole_.read(begin_ + start, n, out);
      } catch (const BadKey& bad) {
        throw BadKey(bad.index - begin_, bad.type, bad.what());
      }
    }

   private:
    const Digests& whole_;
    uint64_t begin_, size_;
  };

  static void run_digests(const Digests& keys, Sink& sink) {
    uint64_t done = 0;
    SignalPulse pulse;
    try {
      done = sink.take_all(keys, std::ref(pulse));
    } catch (const BadKey& bad) {
      if (PyErr_Occurred()) raise_interrupted(sink.taken + bad.index, sink.verb());  // a signal came as well
      raise_key_error(bad.type == BadKey::Type::type ? PyExc_TypeError : PyExc_ValueError, sink.taken + bad.index,
                      bad.what(), sink.verb());
    } catch (const FilterFull& full) {
      if (PyErr_Occurred()) raise_interrupted(sink.taken + full.index, sink.verb());  // a signal came as well
      raise_filter_full(sink.taken + full.index);
    }
    sink.taken += done;
    if (PyErr_Occurred()) raise_interrupted(sink.taken, sink.verb());
  }

  std::unique_ptr<const Digests> keys_;
  uint64_t begin_ = 0;  // keys of it that have been read
};

inline void require_elements(const Py_buffer& view, Elements elements) {
  const Py_ssize_t item = view.itemsize;
  bool sound = false;
  switch (elements) {
    case Elements::signed_int:
    case Elements::unsigned_int: sound = item == 1 || item == 2 || item == 4 || item == 8; break;
    case Elements::boolean: sound = item == 1; break;
    case Elements::digests: sound = item == 8; break;
    case Elements::bytes: sound = true; break;
    case Elements::text: sound = item % 4 == 0; break;
  }
  if (!sound || view.ndim < 1) throw nb::type_error("the array's elements do not fit their description");
}

class ArraySource final : public StretchSource {
 public:
  ArraySource(nb::handle array, char elements, bool swapped)
      : elements_(static_cast<Elements>(elements)), swapped_(swapped) {
    if (!buffer_.acquire(array.ptr(), PyBUF_STRIDES)) throw nb::python_error();
    require_elements(buffer_.view, elements_);
  }
  bool is_one_stretch() const override { return true; }

 private:
  std::unique_ptr<const Digests> next_stretch(const Hasher& hasher, const Sink&) override {
    if (std::exchange(read_, true)) return nullptr;
    return std::make_unique<ArrayDigests>(buffer_.view, elements_, swapped_, hasher);
  }

  Buffer buffer_;
  Elements elements_;
  bool swapped_, read_ = false;
};

class LineSource final : public StretchSource {
 public:
  LineSource(nb::handle text, char separator, bool crlf) : separator_(separator), crlf_(crlf) {
    if (!buffer_.acquire(text.ptr(), PyBUF_SIMPLE)) throw nb::python_error();
  }

 private:
  std::unique_ptr<const Digests> next_stretch(const Hasher& hasher, const Sink&) override {
    if (std::exchange(read_, true)) return nullptr;
    const Py_buffer& view = buffer_.view;
    const GilRelease free;  // the lines are searched for
    return std::make_unique<LineDigests>(static_cast<const char*>(view.buf), static_cast<size_t>(view.len), separator_,
                                         crlf_, hasher);
  }

  Buffer buffer_;
  char separator_;
  bool crlf_, read_ = false;
};

class ArrowSource final : public StretchSource {
 public:
  explicit ArrowSource(nb::handle stream) : reader_(stream) {}
  ArrowSource(nb::handle schema, nb::handle array) : reader_(schema, array), is_one_stretch_(true) {}
  bool is_one_stretch() const override { return is_one_stretch_; }

 private:
  std::unique_ptr<const Digests> next_stretch(const Hasher& hasher, const Sink& sink) override {
    return reader_.next(hasher, [&] { raise_at(sink.taken, sink.verb()); });
  }

  ArrowReader reader_;
  bool is_one_stretch_ = false;
};

// Any iterable. A list or tuple is read by index: its objects are prefetched, and its strings are hashed together.
class ItemSource final : public KeySource {
 public:
  explicit ItemSource(nb::handle items)
      : items_(nb::borrow(items)), listed_(PyList_CheckExact(items.ptr()) || PyTuple_CheckExact(items.ptr())) {}

  bool run_some(const Hasher& hasher, Sink& sink, uint64_t limit) override {
    if (!listed_ && !iterator_.is_valid())
      iterator_ = nb::steal(call_python([&] { return PyObject_GetIter(items_.ptr()); }));
    if (!listed_ && !iterator_.is_valid()) throw nb::python_error();
    uint64_t digests[kBatch];
    auto last_release = std::chrono::steady_clock::now();
    while (limit > 0) {
      const size_t wanted = static_cast<size_t>(std::min<uint64_t>(kBatch, limit));
      bool good = true;
      const size_t n = call_python(
          [&] { return listed_ ? read_listed(hasher, digests, wanted, good) : read(hasher, digests, wanted, good); });
      const bool ended = n < wanted;
      std::optional<nb::python_error> failure;
      if (PyErr_Occurred()) failure.emplace();
      // Other Python threads get the GIL now and then, not with every batch: they would keep it for 5 ms.
      const auto now = std::chrono::steady_clock::now();
      const bool due = now - last_release > std::chrono::milliseconds(5);
      if (due) last_release = now;
      try {
        if (n > 0) sink.take(digests, n, due);
      } catch (const FilterFull& full) {
        raise_filter_full(sink.taken + full.index);
      }
      sink.taken += n;
      if (failure) rethrow(*failure, good, sink);
      if (!poll_signals()) raise_interrupted(sink.taken, sink.verb());
      if (ended) return false;
      limit -= n;
    }
    return true;
  }

 private:
  static constexpr size_t kBatch = 1024;
  static constexpr Py_ssize_t kAhead = 16;  // items that are prefetched

  // Digests of the next keys, `wanted` or fewer; returns how many. `good`: the key after them is not to blame.
  size_t read(const Hasher& hasher, uint64_t* digests, size_t wanted, bool& good) const {
    size_t n = 0;
    for (; n < wanted; ++n) {
      PyObject* item = PyIter_Next(iterator_.ptr());
      if (item == nullptr) break;
      good = digest_of(item, hasher, digests[n]);
      Py_DECREF(item);
      if (!good) break;
    }
    return n;
  }

  // The same of a list or tuple, which a key's __index__ may change. Strings are hashed when the next item is none: no
  // Python code runs before, so that they stay where they are.
  size_t read_listed(const Hasher& hasher, uint64_t* digests, size_t wanted, bool& good) {
    PyObject* const items = items_.ptr();
    ByteSpan strings[kBatch];
    size_t n = 0, hashed = 0;
    const auto hash = [&] {
      hasher.many_bytes(strings + hashed, n - hashed, digests + hashed);
      hashed = n;
    };
    for (; n < wanted && index_ < PySequence_Fast_GET_SIZE(items); ++n, ++index_) {
      if (index_ + kAhead < PySequence_Fast_GET_SIZE(items)) {
        const PyObject* later = PySequence_Fast_GET_ITEM(items, index_ + kAhead);
        __builtin_prefetch(later);
        __builtin_prefetch(reinterpret_cast<const char*>(later) + 64);
      }
      PyObject* item = PySequence_Fast_GET_ITEM(items, index_);
      if (PyUnicode_Check(item) && PyUnicode_IS_COMPACT_ASCII(item)) {
        const auto* ascii = reinterpret_cast<PyASCIIObject*>(item);
        strings[n] = {reinterpret_cast<const char*>(ascii + 1), static_cast<size_t>(ascii->length)};
        continue;
      }
      if (PyBytes_Check(item)) {
        strings[n] = {PyBytes_AS_STRING(item), static_cast<size_t>(PyBytes_GET_SIZE(item))};
        continue;
      }
      if (hashed < n) hash();
      Py_INCREF(item);
      good = digest_of(item, hasher, digests[n]);
      Py_DECREF(item);
      if (!good) return n;
      hashed = n + 1;
    }
    if (hashed < n) hash();
    return n;
  }

  [[noreturn]] static void rethrow(nb::python_error& error, bool from_iterator, const Sink& sink) {
    const nb::object type = nb::borrow(error.type());
    if (!from_iterator && (type.is(PyExc_TypeError) || type.is(PyExc_ValueError) || type.is(types.key_range_error))) {
      const std::string text = nb::cast<std::string>(nb::str(error.value()));
      raise_key_error(type.ptr(), sink.taken, text, sink.verb());
    }
    error.restore();
    raise_at(sink.taken, sink.verb());
  }

  nb::object items_, iterator_;
  bool listed_;
  Py_ssize_t index_ = 0;  // of the next item of a list or tuple
};

// A look-up: all(digests, out, pulse) answers many keys and returns how many of them, some(digests, n, out) answers a
// batch. free() gives up the GIL, until what it returns ends; with `always` for every batch: it waits for writers too.
template <typename Answer, typename All, typename Some, typename Free>
class LookUpSink final : public Sink {
 public:
  LookUpSink(const All& all, const Some& some, const Free& free, bool always)
      : all_(all), some_(some), free_(free), always_(always) {}
  const char* verb() const override { return "looked up"; }
  uint64_t take_all(const Digests& keys, const Pulse& pulse) override {
    const auto free = free_();
    return all_(keys, answers.extend(keys.size()), pulse);
  }
  void take(const uint64_t* digests, size_t n, bool let_others_run) override {
    Answer* out = answers.extend(n);
    if (!always_ && !let_others_run) return some_(digests, n, out);
    const auto free = free_();
    some_(digests, n, out);
  }
  Answers<Answer> answers;

 private:
  const All& all_;
  const Some& some_;
  const Free& free_;
  bool always_;
};

// The answers, as an array of `Element`.
template <typename Element, typename Answer = Element, typename All, typename Some, typename Free>
nb::object look_up_from(KeySource& keys, const Hasher& hasher, const All& all, const Some& some, const Free& free,
                        bool always) {
  LookUpSink<Answer, All, Some, Free> sink(all, some, free, always);
  keys.run(hasher, sink);
  return nb::cast(sink.answers.template release<Element>());
}
// The same for a structure whose look-ups wait for nobody.
template <typename Element, typename Answer = Element, typename All, typename Some>
nb::object look_up_from(KeySource& keys, const Hasher& hasher, const All& all, const Some& some) {
  return look_up_from<Element, Answer>(keys, hasher, all, some, [] { return GilRelease(); }, false);
}

}  // namespace evenbins::python

// Lines and records of a block of bytes, for the command line: counted, digested, selected, without a Python object for
// each of them. (LineDigests in lines.hpp hands lines to bulk calls.)
//
//     count_byte      lines of a block, before it is read as such
//     stored_lines    what a table of digests stores of lines
//     select_lines    the lines that a mask names, with their separators: memcpy of runs
//     keep_lines      the same in the block itself, for one that is not needed afterwards
//     csv_column      where the records of a block of CSV are, and one field of each without its quotes
//     span_keys       pieces of one buffer as keys; stored_spans, select_spans: as for lines
//     first_of_digests  which of some digests is the first of its kind, for parts of them that fit into memory
//
// CSV is that of RFC 4180: a field that begins with a quote ends with one, and two quotes within mean one; records end
// with \n or \r\n; empty lines are no records. A quote inside a bare field is an ordinary byte. Nothing is decoded.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "evenbins/xxh3.hpp"
#include "module.hpp"
#include "sources.hpp"

namespace evenbins::python {
namespace {

using Mask = nb::ndarray<const bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class Text {  // any object with a plain buffer
 public:
  explicit Text(nb::handle object) {
    if (!buffer_.acquire(object.ptr(), PyBUF_SIMPLE)) throw nb::python_error();
  }
  const char* data() const { return static_cast<const char*>(buffer_.view.buf); }
  size_t size() const { return static_cast<size_t>(buffer_.view.len); }

 private:
  Buffer buffer_;
};

uint64_t count_byte(nb::handle block, char byte) {
  const Text text(block);
  const GilRelease free;
  const char *p = text.data(), *end = p + text.size();
  uint64_t total = 0;
  while (p < end) {  // in strides that a vector of bytes can count, so that the compiler uses one
    const size_t n = std::min<size_t>(255, static_cast<size_t>(end - p));
    uint8_t found = 0;
    for (size_t i = 0; i < n; ++i) found = static_cast<uint8_t>(found + (p[i] == byte));
    total += found;
    p += n;
  }
  return total;
}

void store_digest(const char* data, size_t n, uint64_t seed, uint64_t* out) {
  const Hash128 hash = xxh3_128(data, n, seed);
  out[0] = hash.low;
  out[1] = hash.high;
}

nb::ndarray<nb::numpy, uint64_t, nb::ndim<1>> stored_lines(nb::handle block, char separator, bool crlf, uint64_t seed) {
  const Text text(block);
  Answers<uint64_t> words;
  {
    const GilRelease free;
    const char *p = text.data(), *end = p + text.size();
    while (p < end) {
      const auto* stop = static_cast<const char*>(std::memchr(p, separator, static_cast<size_t>(end - p)));
      const bool complete = stop != nullptr;
      if (!complete) stop = end;
      auto n = static_cast<size_t>(stop - p);
      if (crlf && complete && n > 0 && p[n - 1] == '\r') --n;
      store_digest(p, n, seed, words.extend(2));
      p = stop + 1;
    }
  }
  return words.release<uint64_t>();
}

// A bytes object that is filled without the GIL, then cut to what was used.
class Output {
 public:
  explicit Output(size_t room) : bytes_(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(room))) {
    if (bytes_ == nullptr) throw nb::python_error();
    at_ = start_ = PyBytes_AS_STRING(bytes_);
  }
  ~Output() { Py_XDECREF(bytes_); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  void append(const char* from, const char* to) {
    std::memcpy(at_, from, static_cast<size_t>(to - from));
    at_ += to - from;
  }
  nb::bytes release() {
    if (_PyBytes_Resize(&bytes_, at_ - start_) != 0) throw nb::python_error();
    return nb::steal<nb::bytes>(std::exchange(bytes_, nullptr));
  }

 private:
  PyObject* bytes_;
  char *start_, *at_;
};

nb::bytes select_lines(nb::handle block, char separator, const Mask& chosen, bool invert) {
  const Text text(block);
  Output out(text.size());
  uint64_t lines = 0;
  {
    const GilRelease free;
    const char *p = text.data(), *end = p + text.size(), *run = nullptr;
    while (p < end) {
      if (lines == chosen.size()) break;
      const auto* stop = static_cast<const char*>(std::memchr(p, separator, static_cast<size_t>(end - p)));
      if ((chosen.data()[lines++] != invert) != (run != nullptr)) {
        if (run != nullptr) out.append(run, p);
        run = run == nullptr ? p : nullptr;
      }
      p = stop == nullptr ? end : stop + 1;
    }
    if (run != nullptr) out.append(run, p);
    if (p < end) lines = chosen.size() + 1;
  }
  if (lines != chosen.size()) throw nb::value_error("chosen must have one answer for each line of the block");
  return out.release();
}

// The same in the block itself, whose beginning holds the lines afterwards; returns their bytes.
size_t keep_lines(nb::handle block, char separator, const Mask& chosen) {
  Buffer buffer;
  if (!buffer.acquire(block.ptr(), PyBUF_WRITABLE)) throw nb::python_error();
  auto* start = static_cast<char*>(buffer.view.buf);
  uint64_t lines = 0;
  char *out = start, *p = start, *end = start + buffer.view.len, *run = nullptr;
  {
    const GilRelease free;
    const auto append = [&] {
      out = static_cast<char*>(std::memmove(out, run, static_cast<size_t>(p - run))) + (p - run);
    };
    while (p < end && lines < chosen.size()) {
      auto* stop = static_cast<char*>(std::memchr(p, separator, static_cast<size_t>(end - p)));
      if (chosen.data()[lines++] != (run != nullptr)) {
        if (run != nullptr) append();
        run = run == nullptr ? p : nullptr;
      }
      p = stop == nullptr ? end : stop + 1;
    }
    if (run != nullptr) append();
  }
  if (p < end || lines != chosen.size())
    throw nb::value_error("chosen must have one answer for each line of the block");
  return static_cast<size_t>(out - start);
}

// --- CSV -------------------------------------------------------------------------------------------------------------

struct Records {
  std::string keys;                    // the wanted fields, one after the other
  std::vector<uint64_t> offsets{0};    // of each field in `keys`, and the end
  std::vector<uint64_t> starts, ends;  // of each record in the block; its newline belongs to it
  size_t consumed = 0;                 // bytes of whole records
  int64_t columns_of_bad = -1;         // the first record that lacks the column ends the search

  // One record from p; the byte behind it, or nullptr if it is not whole. `columns`: how many fields it has; 0 for an
  // empty line.
  const char* record(const char* p, const char* end, char delimiter, uint64_t wanted, uint64_t& columns) {
    columns = 0;
    if (*p == '\n') return p + 1;
    if (*p == '\r' && p + 1 < end && p[1] == '\n') return p + 2;
    while (true) {
      const bool keep = columns == wanted;
      if (p < end && *p == '"') {
        for (++p;;) {
          const auto* quote = static_cast<const char*>(std::memchr(p, '"', static_cast<size_t>(end - p)));
          if (quote == nullptr) return nullptr;
          if (keep) keys.append(p, quote);
          p = quote + 1;
          if (p == end || *p != '"') break;
          if (keep) keys.push_back('"');
          ++p;
        }
      }
      const char* rest = p;
      while (p < end && *p != delimiter && *p != '\n') ++p;
      if (p == end) return nullptr;
      ++columns;
      if (keep) keys.append(rest, p - (*p == '\n' && p > rest && p[-1] == '\r' ? 1 : 0));
      if (*p++ == '\n') return p;
    }
  }

  void read(const Text& text, char delimiter, uint64_t wanted) {
    const char *base = text.data(), *end = base + text.size();
    for (const char* p = base; p < end;) {
      uint64_t columns = 0;
      const char* next = record(p, end, delimiter, wanted, columns);
      if (next == nullptr) {
        keys.resize(offsets.back());  // what the unfinished record left
        break;
      }
      if (columns > 0) {
        if (columns <= wanted) {
          columns_of_bad = static_cast<int64_t>(columns);
          break;
        }
        offsets.push_back(keys.size());
        starts.push_back(static_cast<uint64_t>(p - base));
        ends.push_back(static_cast<uint64_t>(next - base));
      }
      p = next;
      consumed = static_cast<size_t>(p - base);
    }
  }
};

nb::ndarray<nb::numpy, uint64_t, nb::ndim<1>> array_of(const std::vector<uint64_t>& words) {
  Answers<uint64_t> out;
  if (!words.empty()) std::memcpy(out.extend(words.size()), words.data(), words.size() * sizeof(uint64_t));
  return out.release<uint64_t>();
}

nb::tuple csv_column(nb::handle block, char delimiter, uint64_t column) {
  const Text text(block);
  Records found;
  {
    const GilRelease free;
    found.read(text, delimiter, column);
  }
  return nb::make_tuple(nb::bytes(found.keys.data(), found.keys.size()), array_of(found.offsets),
                        array_of(found.starts), array_of(found.ends), found.consumed, found.columns_of_bad);
}

// --- spans: pieces of one buffer -------------------------------------------------------------------------------------

// A copy of offsets, one more than pieces; refuses those that do not rise or lead out of the buffer. Somebody may write
// to the caller's array while the copy is used.
std::vector<uint64_t> checked_offsets(const WordArray& offsets, size_t size) {
  std::vector<uint64_t> copy(offsets.data(), offsets.data() + offsets.size());
  if (copy.empty() || !std::is_sorted(copy.begin(), copy.end()) || copy.back() > size)
    throw nb::value_error("offsets must rise, and end within the buffer");
  return copy;
}

class SpanDigests final : public Digests {
 public:
  SpanDigests(const char* data, const std::vector<uint64_t>& offsets, const Hasher& hasher)
      : data_(data), offsets_(offsets), hasher_(hasher) {}
  uint64_t size() const override { return offsets_.size() - 1; }
  void read(uint64_t start, size_t n, uint64_t* out) const override {
    const uint64_t* at = offsets_.data() + start;
    hash_strings(hasher_, n, out, [&](size_t i) { return ByteSpan{data_ + at[i], at[i + 1] - at[i]}; });
  }

 private:
  const char* data_;
  const std::vector<uint64_t>& offsets_;
  Hasher hasher_;
};

class SpanSource final : public StretchSource {
 public:
  SpanSource(nb::handle data, const WordArray& offsets)
      : text_(data), offsets_(checked_offsets(offsets, text_.size())) {}

 private:
  std::unique_ptr<const Digests> next_stretch(const Hasher& hasher, const Sink&) override {
    if (std::exchange(read_, true)) return nullptr;
    return std::make_unique<SpanDigests>(text_.data(), offsets_, hasher);
  }

  Text text_;
  std::vector<uint64_t> offsets_;
  bool read_ = false;
};

nb::ndarray<nb::numpy, uint64_t, nb::ndim<1>> stored_spans(nb::handle data, const WordArray& offsets, uint64_t seed) {
  const Text text(data);
  Answers<uint64_t> words;
  {
    const GilRelease free;
    const std::vector<uint64_t> at = checked_offsets(offsets, text.size());
    uint64_t* out = words.extend(2 * (at.size() - 1));
    for (size_t i = 0; i + 1 < at.size(); ++i) store_digest(text.data() + at[i], at[i + 1] - at[i], seed, out + 2 * i);
  }
  return words.release<uint64_t>();
}

nb::bytes select_spans(nb::handle block, const WordArray& starts, const WordArray& ends, const Mask& chosen,
                       bool invert) {
  const Text text(block);
  const size_t n = chosen.size();
  bool sound = starts.size() == n && ends.size() == n;
  Output out(text.size());
  {
    const GilRelease free;
    uint64_t last =
        0;  // where the piece before ended; every number is read once, since somebody may write to the arrays
    for (size_t i = 0; sound && i < n; ++i) {
      const uint64_t start = starts.data()[i], end = ends.data()[i];
      sound = last <= start && start <= end && end <= text.size();
      if (sound && chosen.data()[i] != invert) out.append(text.data() + start, text.data() + end);
      last = end;
    }
  }
  if (!sound) throw nb::value_error("starts and ends must rise, one of each for each answer, within the block");
  return out.release();
}

// --- digests ---------------------------------------------------------------------------------------------------------

// For each of the digests, two words each, whether none before it is equal: a table of their numbers, by the low word.
nb::ndarray<nb::numpy, bool, nb::ndim<1>> first_of_digests(const WordArray& words) {
  const size_t n = words.size() / 2;
  if (words.size() % 2 != 0 || n >= 0xffffffff) throw nb::value_error("words must be two for each of 2**32-2 digests");
  Answers<uint8_t> answers;
  {
    const GilRelease free;
    constexpr uint32_t kEmpty = 0xffffffff;
    constexpr size_t kAhead = 16;
    std::vector<uint32_t> slots(std::bit_ceil(2 * n + 1), kEmpty);
    const size_t mask = slots.size() - 1;
    const uint64_t* word = words.data();
    uint8_t* out = answers.extend(n);
    for (size_t i = 0; i < n; ++i) {
      if (i + kAhead < n) __builtin_prefetch(&slots[word[2 * (i + kAhead)] & mask]);
      size_t at = word[2 * i] & mask;
      while (slots[at] != kEmpty && (word[2 * slots[at]] != word[2 * i] || word[2 * slots[at] + 1] != word[2 * i + 1]))
        at = (at + 1) & mask;
      out[i] = slots[at] == kEmpty;
      if (out[i]) slots[at] = static_cast<uint32_t>(i);
    }
  }
  return answers.release<bool>();
}

}  // namespace

void bind_lines(nb::module_& m) {
  m.def("count_byte", &count_byte, nb::arg("block"), nb::arg("byte"), "How often a byte comes in a block of them.");
  m.def("stored_lines", &stored_lines, nb::arg("block"), nb::arg("separator"), nb::arg("crlf"), nb::arg("seed"),
        nb::sig("def stored_lines(block: object, separator: str, crlf: bool, seed: int) -> "
                "numpy.typing.NDArray[numpy.uint64]"),
        "What a table of digests stores of the lines of a block: two words a line.");
  m.def("select_lines", &select_lines, nb::arg("block"), nb::arg("separator"), nb::arg("chosen"), nb::arg("invert"),
        nb::sig("def select_lines(block: object, separator: str, chosen: numpy.typing.NDArray[numpy.bool_], "
                "invert: bool) -> bytes"),
        "The lines of a block that `chosen` names (with `invert`: the others), as they are.");
  m.def("keep_lines", &keep_lines, nb::arg("block"), nb::arg("separator"), nb::arg("chosen"),
        nb::sig("def keep_lines(block: object, separator: str, chosen: numpy.typing.NDArray[numpy.bool_]) -> int"),
        "Moves the lines that `chosen` names to the beginning of a writable block; returns their number of bytes.");
  m.def("csv_column", &csv_column, nb::arg("block"), nb::arg("delimiter"), nb::arg("column"),
        nb::sig("def csv_column(block: object, delimiter: str, column: int) -> tuple[bytes, "
                "numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.uint64], "
                "numpy.typing.NDArray[numpy.uint64], int, int]"),
        "The whole records of a block of CSV: one field of each and its offsets, starts and ends of the records, the "
        "bytes consumed; -1, or how many columns the record has that lacks this one, at which the search ended.");
  m.def(
      "span_keys", [](nb::handle data, WordArray offsets) -> KeySource* { return new SpanSource(data, offsets); },
      nb::arg("data"), nb::arg("offsets"), nb::rv_policy::take_ownership,
      nb::sig("def span_keys(data: object, offsets: numpy.typing.NDArray[numpy.uint64]) -> KeySource"),
      "Keys that are pieces of one buffer, read in place; piece i goes from offsets[i] to offsets[i+1].");
  m.def("stored_spans", &stored_spans, nb::arg("data"), nb::arg("offsets"), nb::arg("seed"),
        nb::sig("def stored_spans(data: object, offsets: numpy.typing.NDArray[numpy.uint64], seed: int) -> "
                "numpy.typing.NDArray[numpy.uint64]"),
        "What a table of digests stores of pieces of one buffer: two words each.");
  m.def("select_spans", &select_spans, nb::arg("block"), nb::arg("starts"), nb::arg("ends"), nb::arg("chosen"),
        nb::arg("invert"),
        nb::sig("def select_spans(block: object, starts: numpy.typing.NDArray[numpy.uint64], "
                "ends: numpy.typing.NDArray[numpy.uint64], chosen: numpy.typing.NDArray[numpy.bool_], invert: bool) -> "
                "bytes"),
        "The pieces of a block that `chosen` names (with `invert`: the others), as they are.");
  m.def("first_of_digests", &first_of_digests, nb::arg("words"),
        nb::sig("def first_of_digests(words: numpy.typing.NDArray[numpy.uint64]) -> numpy.typing.NDArray[numpy.bool_]"),
        "For each of some 128-bit digests, two words each, whether none before it is equal.");
}

}  // namespace evenbins::python

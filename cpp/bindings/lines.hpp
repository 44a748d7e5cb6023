// The lines of a block of text as a source of digests, read in place: for the command line, where a
// Python object for each line would cost more than everything else.
#pragma once

#include <Python.h>

#include <cstring>
#include <vector>

#include "evenbins/parallel.hpp"
#include "keys.hpp"

namespace evenbins::python {

// Every line ends with `separator`; what follows the last one is a line too unless it is empty. With
// `crlf`, one '\r' before the separator does not belong to the key.
class LineDigests final : public Digests {
 public:
  LineDigests(const char* text, size_t n, char separator, bool crlf, const Hasher& hasher)
      : text_(text), crlf_(crlf), hasher_(hasher) {
    const char* end = text + n;
    for (const char* p = text; p < end;) {
      const auto* stop = static_cast<const char*>(std::memchr(p, separator, static_cast<size_t>(end - p)));
      if (stop == nullptr) stop = end;
      starts_.push_back(static_cast<size_t>(p - text));
      p = stop + 1;
      ends_with_separator_ = stop < end;
    }
    starts_.push_back(n + (ends_with_separator_ ? 0 : 1));
  }

  uint64_t size() const override { return starts_.size() - 1; }

  void read(uint64_t start, size_t n, uint64_t* out) const override {
    hash_strings(hasher_, n, out, [&](size_t i) {
      const char* line = text_ + starts_[start + i];
      size_t length = starts_[start + i + 1] - starts_[start + i] - 1;
      const bool complete = start + i + 1 < size() || ends_with_separator_;
      if (crlf_ && complete && length > 0 && line[length - 1] == '\r') --length;
      return ByteSpan{line, length};
    });
  }

 private:
  const char* text_;
  bool crlf_, ends_with_separator_ = true;
  Hasher hasher_;
  std::vector<size_t> starts_;  // of each line, and one behind the last separator
};

}  // namespace evenbins::python

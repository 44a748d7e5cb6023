// From one Python object to its digest: what counts as a key (DESIGN.md, "A key is …").
//
//     str                      its UTF-8 bytes, so "a" and b"a" are one key       XXH3
//     bytes, bytearray, …      the bytes                                          XXH3
//     int, __index__, NumPy    −2^63 … 2^64−1; True is 1                          keyed moremur
//     anything else            TypeError that says what to pass instead
//
// Raw C API, because `in` and `add` spend most of their time here. Every function that can fail returns
// false with a Python exception set.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "evenbins/hash.hpp"
#include "evenbins/kernel.hpp"
#include "evenbins/xxh3.hpp"
#include "gil.hpp"

namespace evenbins::python {

struct Hasher {  // a seed, ready to use
  using Word = uint64_t;
  uint64_t seed;
  IntHash ints;
  explicit Hasher(uint64_t s) : seed(s), ints(s) {}
  uint64_t bytes(const void* data, size_t n) const { return xxh3_64(data, n, seed); }
  void many_bytes(const ByteSpan* keys, size_t n, uint64_t* out) const { xxh3_64_many(keys, n, seed, out); }
  uint64_t integer(uint64_t bits, bool is_negative) const { return ints.digest(bits, is_negative); }
  void integers(const int64_t* numbers, size_t n, uint64_t* out) const { kernel().digest_i64(ints, numbers, n, out); }
  void integers(const uint64_t* numbers, size_t n, uint64_t* out) const { kernel().digest_u64(ints, numbers, n, out); }
};

// The words of strings: by `many_bytes` of an `H` that has it, else one by one.
template <typename H>
void hash_spans(const H& hasher, const ByteSpan* keys, size_t n, typename H::Word* out) {
  if constexpr (requires { hasher.many_bytes(keys, n, out); })
    hasher.many_bytes(keys, n, out);
  else
    for (size_t i = 0; i < n; ++i) out[i] = hasher.bytes(keys[i].data, keys[i].size);
}

// The same for n strings of which key(i) is one.
template <typename H, typename Key>
void hash_strings(const H& hasher, size_t n, typename H::Word* out, const Key& key) {
  constexpr size_t kBatch = 256;
  ByteSpan keys[kBatch];
  for (size_t done = 0; done < n; done += kBatch) {
    const size_t count = n - done < kBatch ? n - done : kBatch;
    for (size_t i = 0; i < count; ++i) keys[i] = key(done + i);
    hash_spans(hasher, keys, count, out + done);
  }
}

// Set once, when the module is imported; they live as long as the interpreter.
struct Types {
  PyObject *ndarray = nullptr, *generic = nullptr, *numpy_bool = nullptr;  // of numpy
  PyObject* filter = nullptr;  // our own: it exports its bits as a buffer, and is no key
  PyObject* error = nullptr;   // evenbins.EvenbinsError, the base of all our exceptions
  PyObject* key_range_error = nullptr;
};
inline Types types;

// Writes code points as UTF-8, at most four bytes each, and returns the end; null (no exception set) at a surrogate or
// beyond U+10FFFF.
template <typename Char>
char* write_utf8(const Char* text, size_t n, char* out) {
  const auto put = [&out](uint32_t byte) { *out++ = static_cast<char>(byte); };
  for (size_t i = 0; i < n; ++i) {
    const auto c = static_cast<uint32_t>(text[i]);
    if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xC0 | c >> 6);
      put(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
      if (c >= 0xD800 && c < 0xE000) return nullptr;
      put(0xE0 | c >> 12);
      put(0x80 | (c >> 6 & 0x3F));
      put(0x80 | (c & 0x3F));
    } else {
      if (c > 0x10FFFF) return nullptr;
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
      put(0x80 | (c >> 6 & 0x3F));
      put(0x80 | (c & 0x3F));
    }
  }
  return out;
}

inline constexpr const char* kSurrogate =
    "a str key must be valid Unicode: this one holds a lone surrogate. Pass its bytes instead, "
    "for example key.encode('utf-8', 'surrogatepass')";

// Calls f(data, size) with the UTF-8 bytes of a str. Python would keep its own encoding of a non-ASCII
// str for ever; keys pass by in millions, so this one is thrown away.
template <typename F>
bool with_utf8(PyObject* text, F&& f) {
  if (PyUnicode_IS_COMPACT_ASCII(text)) [[likely]] {
    const auto* ascii = reinterpret_cast<PyASCIIObject*>(text);
    f(static_cast<const void*>(ascii + 1), static_cast<size_t>(ascii->length));
    return true;
  }
#if PY_VERSION_HEX < 0x030C0000
  if (PyUnicode_READY(text) < 0) return false;
#endif
  const auto n = static_cast<size_t>(PyUnicode_GET_LENGTH(text));
  char few[512];
  std::unique_ptr<char[]> many;
  if (4 * n > sizeof few) many.reset(new char[4 * n]);
  char *const utf8 = many ? many.get() : few, *end = nullptr;
  switch (PyUnicode_KIND(text)) {
    case PyUnicode_1BYTE_KIND: end = write_utf8(PyUnicode_1BYTE_DATA(text), n, utf8); break;
    case PyUnicode_2BYTE_KIND: end = write_utf8(PyUnicode_2BYTE_DATA(text), n, utf8); break;
    default: end = write_utf8(PyUnicode_4BYTE_DATA(text), n, utf8);
  }
  if (end == nullptr) {
    PyErr_SetString(PyExc_ValueError, kSurrogate);
    return false;
  }
  f(static_cast<const void*>(utf8), static_cast<size_t>(end - utf8));
  return true;
}

// An object as an int; null with an exception set.
inline PyObject* index_of(PyObject* object) {
  return call_python([&] { return PyNumber_Index(object); });
}

inline constexpr const char* kIntRange =
    "an int key must lie in -2**63 ... 2**64-1; pass a larger number as bytes, for example key.to_bytes(32, 'little', "
    "signed=True)";

// Calls f(bits, is_negative) with an int of 64 bits; for a larger one a KeyRangeError with this text is set.
template <typename F>
EVENBINS_INLINE bool with_int(PyObject* number, const char* range_rule, F&& f) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow == 0) [[likely]] {
    if (value == -1 && PyErr_Occurred()) return false;
    f(static_cast<uint64_t>(value), value < 0);
    return true;
  }
  if (overflow > 0) {
    const unsigned long long large = PyLong_AsUnsignedLongLong(number);
    if (!(large == static_cast<unsigned long long>(-1) && PyErr_Occurred())) {
      f(large, false);
      return true;
    }
    PyErr_Clear();
  }
  PyErr_SetString(types.key_range_error, range_rule);
  return false;
}

inline bool int_digest(PyObject* number, const Hasher& hasher, uint64_t& out) {
  return with_int(number, kIntRange, [&](uint64_t bits, bool is_negative) { out = hasher.integer(bits, is_negative); });
}

// A TypeError, with a hint for arrays, for filters, and for collections.
inline bool refuse_key(PyObject* key, const char* array, const char* filter, const char* collection) {
  const char* hint = "pass its str, bytes or int form";
  if (PyFloat_Check(key)) hint = "pass int(key) if it is whole, or repr(key)";
  if (key == Py_None) hint = "drop missing keys before";
  if (PyObject_TypeCheck(key, reinterpret_cast<PyTypeObject*>(types.ndarray))) hint = array;
  if (PyObject_TypeCheck(key, reinterpret_cast<PyTypeObject*>(types.filter))) hint = filter;
  if (PyList_Check(key) || PyTuple_Check(key) || PySet_Check(key)) hint = collection;
  PyErr_Format(PyExc_TypeError, "a key must be str, bytes or int, not %.100s: %s", Py_TYPE(key)->tp_name, hint);
  return false;
}

// A key that is not a str, int or bytes: integer(int) or bytes(data, n), if takes_bytes(), makes something of it, or
// refuse(key) sets an exception.
template <typename Integer, typename TakesBytes, typename Bytes, typename Refuse>
bool rare_key(PyObject* key, const Integer& integer, const TakesBytes& takes_bytes, const Bytes& bytes,
              const Refuse& refuse) {
  for (PyObject* none : {types.ndarray, types.filter})
    if (PyObject_TypeCheck(key, reinterpret_cast<PyTypeObject*>(none))) return refuse(key);
  if (PyObject_TypeCheck(key, reinterpret_cast<PyTypeObject*>(types.numpy_bool))) {
    const int truth = PyObject_IsTrue(key);
    return truth >= 0 && integer(truth ? Py_True : Py_False);
  }
  if (PyIndex_Check(key)) {
    PyObject* number = index_of(key);
    if (number == nullptr) return false;
    const bool ok = integer(number);
    Py_DECREF(number);
    return ok;
  }
  if (PyObject_CheckBuffer(key) && !PyObject_TypeCheck(key, reinterpret_cast<PyTypeObject*>(types.generic))) {
    if (!takes_bytes()) return false;
    Py_buffer view;
    if (PyObject_GetBuffer(key, &view, PyBUF_FULL_RO) < 0) return false;
    bool ok = view.itemsize == 1;
    if (ok && PyBuffer_IsContiguous(&view, 'C')) {
      bytes(view.buf, static_cast<size_t>(view.len));
    } else if (ok) {
      std::vector<char> packed(static_cast<size_t>(view.len));
      ok = PyBuffer_ToContiguous(packed.data(), &view, view.len, 'C') == 0;
      if (ok) bytes(packed.data(), packed.size());
    } else {
      PyErr_Format(PyExc_TypeError, "a bytes-like key must have items of one byte, not %zd: pass bytes(key)",
                   view.itemsize);
    }
    PyBuffer_Release(&view);
    return ok;
  }
  return refuse(key);
}

EVENBINS_NOINLINE inline bool rare_digest(PyObject* key, const Hasher& hasher, uint64_t& out) {
  return rare_key(
      key, [&](PyObject* number) { return int_digest(number, hasher, out); }, [] { return true; },
      [&](const void* data, size_t n) { out = hasher.bytes(data, n); },
      [](PyObject* none) {
        return refuse_key(none, "an array holds many keys: pass it to add_many or contains_many",
                          "to unite two filters use |=",
                          "for many keys call add_many, update or contains_many; for one compound key pass bytes, such "
                          "as repr(key)");
      });
}

inline bool digest_of(PyObject* key, const Hasher& hasher, uint64_t& out) {
  if (PyUnicode_Check(key)) [[likely]]
    return with_utf8(key, [&](const void* data, size_t n) { out = hasher.bytes(data, n); });
  if (PyLong_Check(key)) [[likely]]
    return int_digest(key, hasher, out);
  if (PyBytes_Check(key)) {
    out = hasher.bytes(PyBytes_AS_STRING(key), static_cast<size_t>(PyBytes_GET_SIZE(key)));
    return true;
  }
  return rare_digest(key, hasher, out);
}

}  // namespace evenbins::python

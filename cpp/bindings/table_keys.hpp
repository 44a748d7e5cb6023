// Keys and values of tables on their way in and out (evenbins/table_keys.hpp says what is stored).
//
//     one key      stored_key_of: a Python object to a StoredKey, or an exception
//     many keys    stored_items: an iterable to a NumPy array of words; arrays and Arrow columns: stored_source.hpp;
//                  arrays of integers are converted by NumPy (src/evenbins/tables/_keys.py). Every key is converted
//                  before the first is stored: a key that does not fit is refused, and nothing has been stored.
//     a value      stored_value_of, value_object: one word, an int or a double
//
// A key that does not fit says so, and which key_dtype would take it. An int that is a key of some table (-2**63 ...
// 2**64-1, docs/keys.md) but outside the range of this one is an error where it would be stored, and absent where it is
// looked up or deleted: there its StoredKey carries a mark (KeyMaker::finder, is_out_of_range).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <bit>
#include <cstring>
#include <string>

#include "casters.hpp"
#include "evenbins/table_keys.hpp"
#include "evenbins/xxh3.hpp"
#include "keys.hpp"
#include "sources.hpp"

namespace evenbins::python {

inline constexpr const char* kWantsInt64 =
    "an int key of this table must lie in -2**63 ... 2**63-1 (key_dtype='int64'): for those up to 2**64-1 make the "
    "table with key_dtype='uint64'; for others use key_dtype='digest' and bytes, such as key.to_bytes(32, 'little', "
    "signed=True)";
inline constexpr const char* kWantsUint64 =
    "an int key of this table must lie in 0 ... 2**64-1 (key_dtype='uint64'): for negative ones make the table with "
    "key_dtype='int64'; for larger ones use key_dtype='digest' and bytes, such as key.to_bytes(32, 'little')";
inline constexpr const char* kNoDigest =
    "an int key must lie in -2**63 ... 2**64-1; pass a larger number as bytes, for example key.to_bytes(32, 'little', "
    "signed=True). The 128-bit digests that a table with key_dtype='digest' yields are not its keys";

inline KeyType key_type_of(uint64_t number) {
  if (!is_key_type(number)) throw nb::value_error("no such type of keys");
  return static_cast<KeyType>(number);
}

// Makes stored keys of bytes and integers; the `H` of Arrow columns and of arrays (arrow.hpp, arrays.hpp).
struct KeyMaker {
  using Word = StoredKey;
  KeyType type;
  uint64_t seed;
  bool marks_out_of_range;  // instead of refusing
  IntHash ints;

  KeyMaker(KeyType t, uint64_t s, bool marks = false) : type(t), seed(s), marks_out_of_range(marks), ints(s) {}
  KeyMaker finder() const { return {type, seed, true}; }
  static StoredKey out_of_range() { return {0, 1}; }
  bool is_out_of_range(const StoredKey& key) const { return type != KeyType::digest && key.high != 0; }

  StoredKey digest(const void* data, size_t n) const {
    const Hash128 hash = xxh3_128(data, n, seed);
    return {hash.low, hash.high};
  }
  bool fits(uint64_t bits, bool is_negative) const {
    return type == KeyType::uint64 ? !is_negative : is_negative || static_cast<int64_t>(bits) >= 0;
  }
  const char* range_rule() const { return type == KeyType::int64 ? kWantsInt64 : kWantsUint64; }
  std::string bytes_rule() const {
    return "a key of this table must be an int (key_dtype='" +
           std::string(type == KeyType::int64 ? "int64" : "uint64") +
           "'), not str or bytes: make the table with key_dtype='digest'";
  }
  StoredKey bytes(const void* data, size_t n) const {
    if (type != KeyType::digest) throw arrow::UnfitKey(BadKey::Type::type, bytes_rule());
    return digest(data, n);
  }
  StoredKey digest_of_int(uint64_t bits, bool is_negative) const { return {ints.digest(bits, is_negative), bits}; }
  StoredKey integer(uint64_t bits, bool is_negative) const {
    if (type == KeyType::digest) return digest_of_int(bits, is_negative);
    if (fits(bits, is_negative)) return {bits, 0};
    if (marks_out_of_range) return out_of_range();
    throw arrow::UnfitKey(BadKey::Type::value, range_rule());
  }
  // Many, of digests alone.
  void integers(const int64_t* numbers, size_t n, StoredKey* out) const {
    for (size_t i = 0; i < n; ++i) out[i] = digest_of_int(static_cast<uint64_t>(numbers[i]), numbers[i] < 0);
  }
  void integers(const uint64_t* numbers, size_t n, StoredKey* out) const {
    for (size_t i = 0; i < n; ++i) out[i] = digest_of_int(numbers[i], false);
  }
};

// ---- one key ----------------------------------------------------------------------------------------

inline bool stored_int(PyObject* number, const KeyMaker& maker, StoredKey& out) {  // `number` is an int
  if (maker.type == KeyType::digest)
    return with_int(number, kNoDigest,
                    [&](uint64_t bits, bool is_negative) { out = maker.digest_of_int(bits, is_negative); });
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow == 0) [[likely]] {
    if (value == -1 && PyErr_Occurred()) return false;
    out = {static_cast<uint64_t>(value), 0};
    if (maker.fits(out.low, value < 0)) [[likely]]
      return true;
    if (maker.marks_out_of_range) {
      out = KeyMaker::out_of_range();
      return true;
    }
  } else if (overflow > 0 && (maker.type == KeyType::uint64 || maker.marks_out_of_range)) {
    out = {PyLong_AsUnsignedLongLong(number), 0};
    if (!(out.low == ~uint64_t{0} && PyErr_Occurred())) {
      if (maker.type != KeyType::uint64) out = KeyMaker::out_of_range();
      return true;
    }
    PyErr_Clear();
  }
  PyErr_SetString(types.key_range_error, maker.range_rule());
  return false;
}

inline bool refuse_table_key(PyObject* key) {
  return refuse_key(key, "an array holds many keys: pass it to insert_many, get_many or contains_many",
                    "pass its str, bytes or int form",
                    "for many keys call insert_many, get_many or contains_many; for one compound key pass bytes, such "
                    "as repr(key), to a table with key_dtype='digest'");
}

inline bool refuse_bytes(const KeyMaker& maker) {
  PyErr_SetString(PyExc_TypeError, maker.bytes_rule().c_str());
  return false;
}

EVENBINS_NOINLINE inline bool rare_stored_key(PyObject* key, const KeyMaker& maker, StoredKey& out) {
  return rare_key(
      key, [&](PyObject* number) { return stored_int(number, maker, out); },
      [&] { return maker.type == KeyType::digest || refuse_bytes(maker); },
      [&](const void* data, size_t n) { out = maker.digest(data, n); }, refuse_table_key);
}

// False with a Python exception set when the object is no key of such a table.
inline bool stored_key_of(PyObject* key, const KeyMaker& maker, StoredKey& out) {
  if (PyLong_Check(key)) [[likely]]
    return stored_int(key, maker, out);
  if (PyUnicode_Check(key)) {
    if (maker.type != KeyType::digest) return refuse_bytes(maker);
    return with_utf8(key, [&](const void* data, size_t n) { out = maker.digest(data, n); });
  }
  if (PyBytes_Check(key)) {
    if (maker.type != KeyType::digest) return refuse_bytes(maker);
    out = maker.digest(PyBytes_AS_STRING(key), static_cast<size_t>(PyBytes_GET_SIZE(key)));
    return true;
  }
  return rare_stored_key(key, maker, out);
}

// What iterating a table yields for a key; null with an exception set.
inline PyObject* key_object(KeyType type, const StoredKey& key) {
  if (type == KeyType::int64) return PyLong_FromLongLong(static_cast<int64_t>(key.low));
  if (type == KeyType::uint64) return PyLong_FromUnsignedLongLong(key.low);
  const uint64_t words[2] = {key.low, key.high};
  return _PyLong_FromByteArray(reinterpret_cast<const unsigned char*>(words), 16, 1, 0);
}

// ---- one value ---------------------------------------------------------------------------------------

// For messages: the digits of an int, or its size if Python would refuse to print it. Null with an exception set.
inline PyObject* number_text(PyObject* number) {
  if (PyObject* text = PyObject_Str(number)) return text;
  PyErr_Clear();
  PyObject* bits = PyObject_CallMethod(number, "bit_length", nullptr);
  if (bits == nullptr) return nullptr;
  PyObject* text = PyUnicode_FromFormat("an int of %S bits", bits);
  Py_DECREF(bits);
  return text;
}

// Sets the ValueError of a format with one %U: the number.
inline void refuse_number(const char* format, PyObject* number) {
  if (PyObject* text = number_text(number)) {
    PyErr_Format(PyExc_ValueError, format, text);
    Py_DECREF(text);
  }
}

// An int as a double, if there is one that equals it.
inline bool stored_float_of_int(PyObject* number, uint64_t& out) {
  constexpr long long kExact = 1LL << 53;
  int overflow = 0;
  const long long small = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow == 0 && small >= -kExact && small <= kExact) {
    out = std::bit_cast<uint64_t>(static_cast<double>(small));
    return true;
  }
  const double nearest = PyLong_AsDouble(number);
  if (nearest == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();  // beyond the largest double
  } else {
    PyObject* back = PyLong_FromDouble(nearest);
    if (back == nullptr) return false;
    const int equal = PyObject_RichCompareBool(back, number, Py_EQ);
    Py_DECREF(back);
    if (equal < 0) return false;
    if (equal > 0) {
      out = std::bit_cast<uint64_t>(nearest);
      return true;
    }
  }
  refuse_number(
      "a value of this table must be exact as a float (value_dtype='float64'), and %U is not: make the table with "
      "value_dtype='int64' or 'uint64', or pass float(value) to round it",
      number);
  return false;
}

inline bool stored_value_of(PyObject* value, ValueType type, uint64_t& out) {
  const bool is_array = PyObject_TypeCheck(value, reinterpret_cast<PyTypeObject*>(types.ndarray));
  if (type == ValueType::float64) {
    if (PyIndex_Check(value) && !is_array && !PyFloat_Check(value)) {
      PyObject* number = index_of(value);
      if (number == nullptr) return false;
      const bool ok = stored_float_of_int(number, out);
      Py_DECREF(number);
      return ok;
    }
    if (PyFloat_Check(value) || (PyNumber_Check(value) && !is_array && !PyComplex_Check(value))) {
      const double number = PyFloat_AsDouble(value);
      if (number == -1.0 && PyErr_Occurred()) return false;
      out = std::bit_cast<uint64_t>(number);
      return true;
    }
    PyErr_Format(PyExc_TypeError, "a value of this table must be a number (value_dtype='float64'), not %.100s",
                 Py_TYPE(value)->tp_name);
    return false;
  }
  const bool is_signed = type == ValueType::int64;
  if (!PyIndex_Check(value) || is_array) {
    PyErr_Format(PyExc_TypeError,
                 "a value of this table must be an int (value_dtype='%s'), not %.100s: make the table with "
                 "value_dtype='float64' for floats",
                 is_signed ? "int64" : "uint64", Py_TYPE(value)->tp_name);
    return false;
  }
  PyObject* number = index_of(value);
  if (number == nullptr) return false;
  bool ok;
  if (is_signed) {
    int overflow = 0;
    const long long small = PyLong_AsLongLongAndOverflow(number, &overflow);
    ok = overflow == 0;
    out = static_cast<uint64_t>(small);
  } else {
    out = PyLong_AsUnsignedLongLong(number);
    ok = !(out == ~uint64_t{0} && PyErr_Occurred());
    if (!ok) PyErr_Clear();
  }
  if (!ok)
    refuse_number(is_signed ? "a value of this table must lie in -2**63 ... 2**63-1 (value_dtype='int64'), not %U: "
                              "make the table with value_dtype='uint64' or 'float64'"
                            : "a value of this table must lie in 0 ... 2**64-1 (value_dtype='uint64'), not %U: make "
                              "the table with value_dtype='int64' or 'float64'",
                  number);
  Py_DECREF(number);
  return ok;
}

inline constexpr const char* kNoValues =
    "this table is an exact set (value_dtype=None): it has keys and no values. Use add(key), add_new(key), key in "
    "table, discard(key) or remove(key)";

inline PyObject* value_object(ValueType type, uint64_t word) {
  if (type == ValueType::int64) return PyLong_FromLongLong(static_cast<int64_t>(word));
  if (type == ValueType::uint64) return PyLong_FromUnsignedLongLong(word);
  return PyFloat_FromDouble(std::bit_cast<double>(word));
}

// ---- many keys -----------------------------------------------------------------------------------------

[[noreturn]] inline void raise_unfit(PyObject* type, uint64_t index, const std::string& text) {
  PyErr_SetString(type, ("keys[" + std::to_string(index) + "]: " + text + " (no key has been taken)").c_str());
  throw nb::python_error();
}

inline void append_key(Answers<uint64_t>& words, const KeyMaker& maker, const StoredKey& key) {
  uint64_t* out = words.extend(key_words(maker.type));
  out[0] = key.low;
  if (maker.type == KeyType::digest) out[1] = key.high;
}

// Words of many keys, and the numbers of those that are out of the table's range (of a `finder` alone; their words are
// 0).
struct KeyWords {
  Answers<uint64_t> words, out_of_range;
  uint64_t size = 0;

  void append(const KeyMaker& maker, const StoredKey& key) {
    append_key(words, maker, key);
    if (maker.is_out_of_range(key)) *out_of_range.extend(1) = size;
    ++size;
  }
  nb::tuple release() { return nb::make_tuple(words.release<uint64_t>(), out_of_range.release<uint64_t>()); }
};

// The keys of any iterable.
inline void append_items(nb::handle items, const KeyMaker& maker, KeyWords& words) {
  const nb::object iterator = nb::steal(PyObject_GetIter(items.ptr()));
  if (!iterator.is_valid()) throw nb::python_error();
  for (uint64_t index = 0;; ++index) {
    const nb::object item = nb::steal(call_python([&] { return PyIter_Next(iterator.ptr()); }));
    if (!item.is_valid()) break;
    StoredKey key;
    if (!stored_key_of(item.ptr(), maker, key)) {
      nb::python_error error;
      const nb::object type = nb::borrow(error.type());
      if (!type.is(PyExc_TypeError) && !type.is(PyExc_ValueError) && !type.is(types.key_range_error)) throw error;
      raise_unfit(type.ptr(), index, nb::cast<std::string>(nb::str(error.value())));
    }
    words.append(maker, key);
    if (index % 4096 == 4095 && !poll_signals()) throw nb::python_error();
  }
  if (PyErr_Occurred()) throw nb::python_error();
}

// evenbins.TableFullError; its attribute `inserted` is the number of keys of a bulk call that are in.
inline PyObject* table_full_error = nullptr;

[[noreturn]] inline void raise_table_full(const std::string& text, uint64_t inserted) {
  const nb::object error = nb::borrow(table_full_error)(text);
  error.attr("inserted") = inserted;
  PyErr_SetObject(table_full_error, error.ptr());
  throw nb::python_error();
}

// What all tables need of `_core`: words of many keys and values, and TableFullError. Called once.
inline void bind_table_keys(nb::module_& m) {
  table_full_error = PyErr_NewExceptionWithDoc(
      "evenbins.TableFullError",
      "A table has no room for one more key.\n\n`inserted` is the number of keys of the call that are in: exactly the "
      "first ones.",
      nb::make_tuple(nb::handle(types.error), nb::handle(PyExc_RuntimeError)).ptr(), nullptr);
  if (table_full_error == nullptr) throw nb::python_error();
  nb::handle(table_full_error).attr("inserted") = 0;
  m.attr("TableFullError") = nb::handle(table_full_error);
  m.def(
      "stored_number_words",
      [](nb::list numbers, uint64_t value_type) {
        if (!is_value_type(value_type)) throw nb::value_error("no such type of values");
        Answers<uint64_t> words;
        uint64_t* out = words.extend(numbers.size());
        for (size_t i = 0; i < numbers.size(); ++i) {
          if (stored_value_of(numbers[i].ptr(), static_cast<ValueType>(value_type), out[i])) continue;
          nb::python_error error;
          error.value().attr("add_note")("evenbins: this came from item " + std::to_string(i) + " of the values");
          throw error;
        }
        return words.release<uint64_t>();
      },
      nb::arg("numbers"), nb::arg("value_type"),
      nb::sig("def stored_number_words(numbers: list[object], value_type: int) -> "
              "numpy.typing.NDArray[numpy.uint64]"),
      "What a table stores of the values in a list.");
  m.def(
      "stored_items",
      [](nb::handle items, uint64_t key_type, uint64_t seed) {
        KeyWords keys;
        append_items(items, {key_type_of(key_type), seed}, keys);
        return keys.words.release<uint64_t>();
      },
      nb::arg("items"), nb::arg("key_type"), nb::arg("seed"),
      nb::sig("def stored_items(items: object, key_type: int, seed: int) -> numpy.typing.NDArray[numpy.uint64]"),
      "What a table stores of the keys of an iterable: one word a key, two for digests.");
  m.def(
      "wanted_items",
      [](nb::handle items, uint64_t key_type, uint64_t seed) {
        KeyWords keys;
        append_items(items, KeyMaker{key_type_of(key_type), seed}.finder(), keys);
        return keys.release();
      },
      nb::arg("items"), nb::arg("key_type"), nb::arg("seed"),
      nb::sig("def wanted_items(items: object, key_type: int, seed: int) -> "
              "tuple[numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.uint64]]"),
      "The same for keys that are looked up, and the numbers of those that no such table can hold.");
}

}  // namespace evenbins::python

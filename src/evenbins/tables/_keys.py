"""Keys and values of tables on their way in: from whatever a bulk call is given to words of the core.

    keys      one uint64 word for an integer (its two's complement), two for a digest (low, high)
    values    one uint64 word: an integer, or the bits of a double

Arrays of integers are converted by NumPy, without a copy where they fit as they are; Arrow columns, iterables
and whatever becomes a digest by the core. Everything is converted before anything is stored: a key or value
that does not fit is refused, and the table is as it was. An integer that is a key of some other table
(docs/keys.md) is refused where it would be stored, and absent where it is looked up or deleted.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _core
from evenbins._bulk import Lines, Spans, arrow_stream, is_array_like
from evenbins._core import KeyRangeError
from evenbins._digests import one_column

__all__ = [
    "KEY_TYPES", "NO_VALUES", "VALUE_DTYPES", "VALUE_TYPES", "Words", "array_of", "checked_dtypes",
    "dtype_names", "stored_keys", "stored_values", "values_of", "wanted_keys",
]  # fmt: skip

Words = npt.NDArray[np.uint64]
_Array = np.ndarray[Any, np.dtype[Any]]
_Mask = npt.NDArray[np.bool_]

KEY_TYPES: Final = {"int64": 1, "uint64": 2, "digest": 3}
VALUE_TYPES: Final = {"int64": 1, "uint64": 2, "float64": 3}
NO_VALUES: Final = 0
"""The type of values of an exact set: it has none."""
VALUE_DTYPES: Final = {1: np.dtype(np.int64), 2: np.dtype(np.uint64), 3: np.dtype(np.float64)}


_ITEMS = _core.stored_items, _core.wanted_items
_ARROW = _core.stored_arrow, _core.wanted_arrow


def checked_dtypes(key_dtype: object, value_dtype: object, *, can_be_set: bool = False) -> tuple[int, int]:
    """Check both arguments; return their numbers in a core. `can_be_set`: value_dtype may be None."""
    keys = arguments.one_of("key_dtype", key_dtype, tuple(KEY_TYPES), 'Pass "digest" for str and bytes')
    if can_be_set and value_dtype is None:
        return KEY_TYPES[keys], NO_VALUES
    values = arguments.one_of("value_dtype", value_dtype, tuple(VALUE_TYPES), 'Pass "float64" for floats')
    return KEY_TYPES[keys], VALUE_TYPES[values]


def dtype_names(key_type: int, value_type: int) -> tuple[str, str]:
    """Return the names of a core's types: not of a set."""
    return tuple(KEY_TYPES)[key_type - 1], tuple(VALUE_TYPES)[value_type - 1]


def stored_keys(keys: object, key_type: int, seed: int, threads: int = 1) -> Words:
    """Return keys to store as words; arrays and Arrow columns are converted by so many threads."""
    return _keys_as_words(keys, key_type, seed, threads, refuse=True)[0]


def wanted_keys(
    keys: object, key_type: int, seed: int, threads: int = 1
) -> tuple[Words, tuple[int, ...] | None, _Mask | None]:
    """Return keys to look up as words, their shape if not one-dimensional, and which cannot be there."""
    return _keys_as_words(keys, key_type, seed, threads, refuse=False)


def _keys_as_words(
    keys: object, key_type: int, seed: int, threads: int, *, refuse: bool
) -> tuple[Words, tuple[int, ...] | None, _Mask | None]:
    if isinstance(keys, str | bytes | bytearray | memoryview):
        raise TypeError(
            f"keys must be many keys, not one {type(keys).__name__}: use table[key], or put it into a list"
        )
    if isinstance(keys, Lines | Spans):
        return _of_text(keys, key_type, seed), None, None
    if isinstance(keys, array.array) or is_array_like(keys):
        return _of_array(keys, key_type, seed, threads, refuse)
    if isinstance(keys, range):
        info = np.iinfo(np.int64)
        if len(keys) and info.min <= min(keys[0], keys[-1]) and max(keys[0], keys[-1]) <= info.max:
            numbers = np.arange(keys.start, keys.stop, keys.step, dtype=np.int64)
            words, _, unfit = _of_array(numbers, key_type, seed, threads, refuse)
            return words, None, unfit
    if hasattr(keys, "__arrow_c_stream__"):
        source = arrow_stream(keys), None, None, key_type, seed, threads
        words, unfit = _of_core(*_ARROW, *source, refuse=refuse)
    elif hasattr(keys, "__arrow_c_array__"):
        source = None, *keys.__arrow_c_array__(), key_type, seed, threads
        words, unfit = _of_core(*_ARROW, *source, refuse=refuse)
    elif hasattr(keys, "__array__") and not isinstance(keys, Iterable):
        return _of_array(keys, key_type, seed, threads, refuse)
    elif isinstance(keys, Iterable):
        words, unfit = _of_core(*_ITEMS, keys, key_type, seed, refuse=refuse)
    else:
        raise TypeError(
            "keys must be an array, an Arrow column or an iterable of str, bytes or int, "
            f"not {type(keys).__name__}"
        )
    return words, None, unfit


def _of_core(
    stored: Callable[..., Words], wanted: Callable[..., tuple[Words, Words]], *source: Any, refuse: bool
) -> tuple[Words, _Mask | None]:
    if refuse:
        return stored(*source), None
    words, numbers = wanted(*source)
    if not numbers.size:
        return words, None
    unfit = np.zeros(words.size, bool)
    unfit[numbers] = True
    return words, unfit


def _of_text(keys: Lines | Spans, key_type: int, seed: int) -> Words:
    if key_type != KEY_TYPES["digest"]:
        raise TypeError("keys of this table must be integers, not lines: make it with key_dtype='digest'")
    if isinstance(keys, Spans):
        return _core.stored_spans(keys.data, keys.offsets, seed)
    return _core.stored_lines(keys.block, keys.separator.decode(), keys.crlf, seed)


def array_of(keys: Any) -> _Array:
    """Return keys that NumPy reads as an array of at least one dimension, without a mask."""
    if isinstance(keys, np.ma.MaskedArray):
        masked = np.flatnonzero(np.ma.getmaskarray(keys).ravel())
        if masked.size:
            raise ValueError(f"keys[{masked[0]}] is masked: drop masked keys before, with keys.compressed()")
        keys = keys.data
    found: _Array = np.asarray(keys)  # of a subclass too, which may reshape in its own way
    if found.ndim == 0:
        raise TypeError("keys must have at least one dimension: for one key use table[key] or `key in table`")
    return found


def _of_array(
    keys: Any, key_type: int, seed: int, threads: int, refuse: bool
) -> tuple[Words, tuple[int, ...], _Mask | None]:
    found = array_of(keys)
    kind = found.dtype.kind
    digest = key_type == KEY_TYPES["digest"]
    if digest and kind in "iubSU":  # NumPy drops trailing NULs of S and U, here as in the filters
        return _core.stored_array(found, kind, not found.dtype.isnative, seed, threads), found.shape, None
    if kind in "OTSU":
        words, unfit = _of_core(*_ITEMS, found.ravel().tolist(), key_type, seed, refuse=refuse)
        return words, found.shape, unfit
    if kind not in "iub":
        raise TypeError(
            f"keys must be integers, strings or bytes, not an array of {found.dtype}: "
            "convert it before, for example with .astype('int64') or .astype(str)"
        )
    flat = found.reshape(-1)
    unfit, way_out = None, ""
    if key_type == KEY_TYPES["int64"] and kind == "u" and found.dtype.itemsize == 8:
        unfit, way_out = flat > np.uint64(2**63 - 1), "uint64"
    elif key_type == KEY_TYPES["uint64"] and kind == "i":
        unfit, way_out = flat < 0, "int64"
    if unfit is not None and not unfit.any():
        unfit = None
    if unfit is not None and refuse:
        first = int(np.argmax(unfit))
        raise KeyRangeError(
            f"keys[{first}] is {flat[first]}, which a table with key_dtype="
            f"{'int64' if way_out == 'uint64' else 'uint64'!r} cannot hold: make it with "
            f"key_dtype={way_out!r} (no key has been taken)"
        )
    wide = np.int64 if kind == "i" else np.uint64  # by way of the wide type of the same sign: exact
    return np.ascontiguousarray(flat, dtype=wide).view(np.uint64), found.shape, unfit


def stored_values(values: object, value_type: int, count: int, *, name: str = "values") -> Words:
    """Return values as words: `count` of them, from one number for all or as many as keys."""
    dtype = VALUE_DTYPES[value_type]
    rule = f"{dtype} numbers (value_dtype={str(dtype)!r})"
    way_out = "Pass one number, or as many as keys"
    if isinstance(values, str | bytes | bytearray) or values is None:
        raise arguments.type_error(name, rule, values, way_out)
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} must not be a masked array: drop what is masked, or fill it, before")
    values = one_column(values, name)
    if nulls := _count_missing(values):
        raise ValueError(f"{name} must hold no nulls; got {nulls}: drop or fill them before")
    if hasattr(values, "__array__"):
        found: _Array = np.asarray(values)
    elif isinstance(values, Iterable):
        items = values if isinstance(values, list | tuple) else list(values)
        found = np.fromiter(items, object, len(items)) if items else np.empty(0, dtype)
    else:
        found = np.empty((), object)
        found[()] = values
    found = _of_dtype(found, dtype, name)
    if found.ndim == 0:
        return np.full(count, found.view(np.uint64)[()], np.uint64)
    if found.size != count:
        raise ValueError(f"{name} must be one number or as many as keys, {count}; got {found.size}")
    return np.ascontiguousarray(found.reshape(-1)).view(np.uint64)


def _count_missing(values: Any) -> int:
    """Count the nulls of a column of Arrow (in a dictionary or in runs too) or Polars, or NA of pandas.

    NaN in a column of NumPy floats is a value.
    """
    if hasattr(values, "is_null"):
        return int(np.count_nonzero(values.is_null()))
    dtype = getattr(values, "dtype", None)
    if dtype is None or isinstance(dtype, np.dtype) or not hasattr(values, "isna"):
        return 0
    return int(np.count_nonzero(values.isna()))


def _inexact(numbers: _Array) -> _Mask:
    """Return which 64-bit integers are not exact as floats: over 53 bits from the first 1 to the last."""
    numbers = np.atleast_1d(numbers)
    if not numbers.size or (numbers.min() >= -(2**53) and numbers.max() <= 2**53):
        return np.zeros(0, bool)
    magnitude = np.where(numbers < 0, -numbers, numbers).astype(np.uint64)
    lowest_bit = magnitude & (~magnitude + np.uint64(1))
    return (magnitude >> np.uint64(53)) > lowest_bit - np.uint64(1)


def _of_dtype(found: _Array, dtype: np.dtype[Any], name: str) -> _Array:
    """Convert exactly, or refuse."""
    kind = found.dtype.kind
    if kind == "O":
        value_type = VALUE_TYPES[str(dtype)]
        return (
            _core.stored_number_words(found.reshape(-1).tolist(), value_type).view(dtype).reshape(found.shape)
        )
    if kind not in ("iubf" if dtype.kind == "f" else "iub"):
        raise TypeError(
            f"{name} must be {dtype} (value_dtype={str(dtype)!r}), not an array of {found.dtype}: convert it "
            "before, with .astype, or make the table with another value_dtype"
        )
    unfit, way_out = np.zeros(0, bool), "int64"
    if dtype.kind == "f" and kind in "iu" and found.dtype.itemsize == 8:
        unfit, way_out = _inexact(found), str(found.dtype.newbyteorder("="))
    elif dtype.kind == "i" and kind == "u" and found.dtype.itemsize == 8:
        unfit, way_out = found > np.uint64(2**63 - 1), "uint64"
    elif dtype.kind == "u" and kind == "i":
        unfit = found < 0
    elif kind == "f" and found.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            rounded = found.astype(dtype)
        unfit, way_out = (rounded != found) & ~np.isnan(found), ""
    if unfit.any():
        first = int(np.argmax(unfit))
        exactly = " exactly" if dtype.kind == "f" else ""
        other = f"make the table with value_dtype={way_out!r}" if way_out else "round it before, with .astype"
        raise ValueError(
            f"{name}[{first}] is {found.reshape(-1)[first]!s}, which value_dtype={str(dtype)!r} cannot hold"
            f"{exactly}: {other}"
        )
    return np.ascontiguousarray(found, dtype=dtype) if found.ndim else found.astype(dtype)


def values_of(words: Words, value_type: int) -> _Array:
    """Return words as the values that they are, without a copy; those of a set are zeros."""
    return words.view(VALUE_DTYPES.get(value_type, np.dtype(np.uint64)))

"""Keys and values of tables on their way in: from whatever a bulk call is given to words of the core.

    keys      one uint64 word for an integer (its two's complement), two for a digest (low, high)
    values    one uint64 word: an integer, or the bits of a double

Arrays of integers are converted by NumPy, without a copy where they fit as they are; Arrow columns and
iterables by the core. Everything is converted before anything is stored: a key or value that does not fit is
refused, and the table is as it was.
"""

from __future__ import annotations

import array
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from evenbins import _core
from evenbins._bulk import Lines, Spans, arrow_stream, is_array_like
from evenbins._core import KeyRangeError
from evenbins.theory import _arguments as arguments

__all__ = ["KEY_TYPES", "VALUE_DTYPES", "VALUE_TYPES", "Words", "stored_keys", "stored_values", "values_of"]

Words = npt.NDArray[np.uint64]
_Array = np.ndarray[Any, np.dtype[Any]]

KEY_TYPES: Final = {"int64": 1, "uint64": 2, "digest": 3}
VALUE_TYPES: Final = {"int64": 1, "uint64": 2, "float64": 3}
VALUE_DTYPES: Final = {1: np.dtype(np.int64), 2: np.dtype(np.uint64), 3: np.dtype(np.float64)}


def stored_keys(keys: object, key_type: int, seed: int) -> tuple[Words, tuple[int, ...] | None]:
    """Give the keys as words, and the shape that answers should have (None: one dimension)."""
    if isinstance(keys, str | bytes | bytearray | memoryview):
        raise TypeError(
            f"keys must be many keys, not one {type(keys).__name__}: use table[key], or put it into a list"
        )
    if isinstance(keys, np.ndarray):
        return _of_array(keys, key_type, seed), keys.shape
    if isinstance(keys, Lines | Spans):
        return _of_text(keys, key_type, seed), None
    if isinstance(keys, array.array) or is_array_like(keys):
        found = np.asarray(keys)
        return _of_array(found, key_type, seed), found.shape
    if isinstance(keys, range):
        info = np.iinfo(np.int64)
        if len(keys) and info.min <= min(keys[0], keys[-1]) and max(keys[0], keys[-1]) <= info.max:
            return _of_array(
                np.arange(keys.start, keys.stop, keys.step, dtype=np.int64), key_type, seed
            ), None
    if hasattr(keys, "__arrow_c_stream__"):
        return _core.stored_arrow(arrow_stream(keys), None, None, key_type, seed), None
    if hasattr(keys, "__arrow_c_array__"):
        schema, column = keys.__arrow_c_array__()
        return _core.stored_arrow(None, schema, column, key_type, seed), None
    if hasattr(keys, "__array__") and not isinstance(keys, Iterable):
        found = np.asarray(keys)
        return _of_array(found, key_type, seed), found.shape
    if not isinstance(keys, Iterable):
        raise TypeError(
            "keys must be an array, an Arrow column or an iterable of str, bytes or int, "
            f"not {type(keys).__name__}"
        )
    return _core.stored_items(keys, key_type, seed), None


def _of_text(keys: Lines | Spans, key_type: int, seed: int) -> Words:
    if key_type != KEY_TYPES["digest"]:
        raise TypeError("keys of this table must be integers, not lines: make it with key_dtype='digest'")
    if isinstance(keys, Spans):
        return _core.stored_spans(keys.data, keys.offsets, seed)
    return _core.stored_lines(keys.block, keys.separator.decode(), keys.crlf, seed)


def _of_array(keys: _Array, key_type: int, seed: int) -> Words:
    if keys.ndim == 0:
        raise TypeError("keys must have at least one dimension: for one key use table[key] or `key in table`")
    if isinstance(keys, np.ma.MaskedArray):
        masked = np.flatnonzero(np.ma.getmaskarray(keys).ravel())
        if masked.size:
            raise ValueError(f"keys[{masked[0]}] is masked: drop masked keys before, with keys.compressed()")
        keys = keys.data
    keys = np.asarray(keys)  # a matrix would keep its two dimensions
    kind = keys.dtype.kind
    if kind in "OTSU":  # NumPy drops trailing NULs of S and U, here as in the filters
        return _core.stored_items(keys.ravel().tolist(), key_type, seed)
    if kind not in "iub":
        raise TypeError(
            f"keys must be integers, strings or bytes, not an array of {keys.dtype}: "
            "convert it before, for example with .astype('int64') or .astype(str)"
        )
    if key_type == KEY_TYPES["digest"]:
        raise TypeError(
            f"keys of this table must be str or bytes (key_dtype='digest'), not an array of {keys.dtype}: "
            "make the table with key_dtype='int64' or 'uint64'"
        )
    flat = keys.reshape(-1)
    unfit, way_out = None, ""
    if key_type == KEY_TYPES["int64"] and kind == "u" and keys.dtype.itemsize == 8:
        unfit, way_out = flat > np.uint64(2**63 - 1), "uint64"
    elif key_type == KEY_TYPES["uint64"] and kind == "i":
        unfit, way_out = flat < 0, "int64"
    if unfit is not None and unfit.any():
        first = int(np.argmax(unfit))
        raise KeyRangeError(
            f"keys[{first}] is {flat[first]}, which a table with key_dtype="
            f"{'int64' if way_out == 'uint64' else 'uint64'!r} cannot hold: make it with "
            f"key_dtype={way_out!r} (no key has been taken)"
        )
    wide = np.int64 if kind == "i" else np.uint64  # by way of the wide type of the same sign: exact
    return np.ascontiguousarray(flat, dtype=wide).view(np.uint64)


def stored_values(values: object, value_type: int, count: int, *, name: str = "values") -> Words:
    """Give values as words: `count` of them, from one number for all or as many as keys."""
    dtype = VALUE_DTYPES[value_type]
    rule = f"{dtype} numbers (value_dtype={str(dtype)!r})"
    way_out = "Pass one number, or as many as keys"
    if isinstance(values, str | bytes | bytearray) or values is None:
        raise TypeError(arguments.problem(name, rule, values, way_out))
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} must not be a masked array: drop what is masked, or fill it, before")
    nulls = getattr(values, "null_count", 0)  # of Arrow and Polars
    if nulls := nulls() if callable(nulls) else nulls:
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
    if dtype.kind == "i" and kind == "u" and found.dtype.itemsize == 8:
        unfit = found > np.uint64(2**63 - 1)
    elif dtype.kind == "u" and kind == "i":
        unfit = found < 0
    else:
        unfit = np.zeros(0, bool)
    if unfit.any():
        first = int(np.argmax(unfit))
        raise ValueError(
            f"{name}[{first}] is {found.reshape(-1)[first]}, which value_dtype={str(dtype)!r} cannot hold: "
            f"make the table with value_dtype={'uint64' if dtype.kind == 'i' else 'int64'!r}"
        )
    return np.ascontiguousarray(found, dtype=dtype) if found.ndim else found.astype(dtype)


def values_of(words: Words, value_type: int) -> _Array:
    """Give words as the values that they are, without a copy."""
    return words.view(VALUE_DTYPES[value_type])

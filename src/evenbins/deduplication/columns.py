"""One column as keys: values that bulk calls take are keys, others become records, nulls as the caller says.

    integers, str, bytes             the key itself, as in every other structure
    floats, dates, lists, …          their record (fields.py) and a word 0: 32 bytes, as no row of several
                                     fields has, with 24 bytes per field
    tuples                           rows of several fields
    null                             refused, always kept, or one more value

What becomes of a value depends on that value, not on the others of its batch, so that equal ones in different
batches are equal.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

import numpy as np

from evenbins import _arguments as arguments
from evenbins._bulk import Lines, Spans
from evenbins.deduplication.arrow_columns import is_text, readable
from evenbins.deduplication.fields import (
    Fields,
    is_null,
    pandas_series,
    records_of,
    row_bytes,
    table_columns,
)
from evenbins.deduplication.libraries import library_of
from evenbins.deduplication.pieces import Mask, Words
from evenbins.hashing import digest_many
from evenbins.tables.exact_sets import digest_words

__all__ = ["NULLS", "Keys", "checked_nulls", "keys_of_column", "null_digest"]

NULLS: Final = ("error", "keep", "one")

_PLAIN = (int, str, bytes, bytearray, memoryview, np.integer, np.bool_)
_NULL_SEED: Final = 0x6E756C6C6E756C6C  # "nullnull"


class Keys(NamedTuple):
    """Keys of a bulk call, and where nulls were between them (None: there were none)."""

    keys: Any
    nulls: Mask | None


def checked_nulls(value: object) -> str:
    """Check the argument `nulls`."""
    return arguments.one_of("nulls", value, NULLS, 'Pass "one" to treat nulls as equal')


def null_digest(seed: int, *, exact: bool) -> Words:
    """Return the digest of a null, where nulls are one value: 128 bits in a row of two words, or 64.

    It is made with a seed of its own, so that no key can be the same: only its digest, by chance.
    """
    other = seed ^ _NULL_SEED
    return digest_words([b""], other) if exact else np.ravel(digest_many([b""], other))


def keys_of_column(column: Any, seed: int) -> Keys:
    """Return the keys of a column: of its values that are not null."""
    if isinstance(column, Lines | Spans | Fields) or table_columns(column) is not None:
        return Keys(column, None)
    readers: dict[str, Callable[[Any, int], Keys]] = {
        "numpy": _of_array, "pandas": _of_pandas, "polars": _of_polars, "pyarrow": _of_arrow,
    }  # fmt: skip
    reader = readers.get("numpy" if isinstance(column, np.ndarray) else library_of(column))
    if reader is not None:
        return reader(column, seed)
    return _of_items(column if isinstance(column, list | tuple) else list(column), seed)


def _of_polars(column: Any, seed: int) -> Keys:
    polars: Any = sys.modules["polars"]
    nulls = column.is_null().to_numpy() if column.null_count() else None
    there = column if nulls is None else column.drop_nulls()
    dtype = column.dtype
    wide = "128" in str(dtype)
    texts = (polars.String, polars.Binary, polars.Boolean, polars.Categorical, polars.Enum)
    plain = (dtype.is_integer() and not wide) or dtype in texts
    return Keys(there if plain else _records(there, seed), nulls)


def _records(column: Any, seed: int) -> Spans:
    """Return the records of a column of values that are no keys by themselves, as keys."""
    records = records_of(column, seed)
    wide = np.zeros((len(records), 4), dtype="<u8")
    wide[:, :3] = records
    return Spans(wide.tobytes(), np.arange(len(records) + 1, dtype=np.uint64) * np.uint64(32))


def _of_array(column: Any, seed: int) -> Keys:
    if column.ndim != 1:
        raise ValueError(f"a column of keys must have one dimension, not {column.ndim}")
    if isinstance(column, np.ma.MaskedArray):
        nulls = np.ma.getmaskarray(column).copy()
        there = _of_array(column.data[~nulls], seed)
        if there.nulls is not None:  # None or NaT, not masked
            nulls[~nulls] = there.nulls
        return Keys(there.keys, nulls if nulls.any() else None)
    kind = column.dtype.kind
    if kind in "iubSU":
        return Keys(column, None)
    if kind in "mM":
        nulls = np.isnat(column)
        return Keys(_records(column[~nulls], seed), nulls if nulls.any() else None)
    if kind == "f":
        return Keys(_records(column, seed), None)
    return _of_items(column.tolist(), seed)


def _of_pandas(column: Any, seed: int) -> Keys:
    pandas: Any = sys.modules["pandas"]
    column = pandas_series(column)
    dtype = column.dtype
    if isinstance(dtype, pandas.ArrowDtype):
        return _of_arrow(column.array.__arrow_array__(), seed)
    if isinstance(dtype, pandas.SparseDtype):
        return _of_pandas(column.sparse.to_dense(), seed)
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        return _of_array(column.to_numpy(), seed)
    nulls = np.asarray(column.isna(), dtype=np.bool_)
    found = nulls if nulls.any() else None
    there = column if found is None else column[~nulls]
    if isinstance(dtype, np.dtype | pandas.CategoricalDtype):  # of objects
        return Keys(_of_items(there.tolist(), seed).keys, found)
    numpy_dtype = getattr(dtype, "numpy_dtype", None)  # Int64, Float64, boolean
    plain = isinstance(dtype, pandas.StringDtype) or getattr(numpy_dtype, "kind", "") in ("i", "u", "b")
    return Keys(there if plain else _records(there, seed), found)


def _of_arrow(column: Any, seed: int) -> Keys:
    types = import_module("pyarrow").types
    column = readable(column)
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_null(kind):
        return Keys([], np.ones(len(column), dtype=np.bool_))
    nulls = None
    if column.null_count:
        found = column.is_null()
        nulls = np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)
        column = column.drop_null()
    plain = types.is_integer(kind) or types.is_boolean(kind) or is_text(kind)
    return Keys(column if plain else _records(column, seed), nulls)


def _of_items(items: Sequence[Any], seed: int) -> Keys:
    """Return Python objects as keys, each by its own type."""
    if all(map(_is_plain, items)) or all(isinstance(each, tuple) for each in items):
        return Keys(items, None)
    nulls = np.fromiter((is_null(each) for each in items), np.bool_, len(items))
    there = [each for each, null in zip(items, nulls, strict=True) if not null]
    keys = [each if _is_plain(each) else _one_key(each, seed) for each in there]
    return Keys(keys, nulls if nulls.any() else None)


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) and not isinstance(
        value, np.timedelta64
    )  # which NumPy has as an integer


def _one_key(value: Any, seed: int) -> bytes | int:
    """Return the key that stands for a value of another type: its bytes, or the integer that it is."""
    if isinstance(value, tuple):
        return row_bytes(value, seed)
    if hasattr(value, "__index__") and not isinstance(value, np.ndarray | np.timedelta64):
        return operator.index(value)
    return row_bytes((value,), seed) + bytes(8)

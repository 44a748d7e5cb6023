"""Rows of several fields as keys: an encoding that has the type of every field, the same in every container.

    row ──▶ a record of 24 bytes for each field ──▶ the key: the bytes of all records, hashed as bytes are

    record    type (8 bytes) │ value (16 bytes), all little-endian

     0  null                       0
     1  integer, bool              its 128-bit two's complement
     2  str, bytes                 XXH3 of the bytes with the seed, 128 bits
     3  float                      the bits of the double (-0.0 as 0.0, every NaN as one), then 0
     4  date and time              seconds since 1970, then nanoseconds (times.py)
     5  the same with a time zone  in UTC
     6  date                       days since 1970, then 0
     7  time of day                seconds, then nanoseconds
     8  duration                   seconds, then nanoseconds
     9  decimal                    XXH3 of its digits as text, without trailing zeros
    10  list, tuple                XXH3 of the records of its items
    11  dict, struct               XXH3 of the records of its keys and values, sorted by the key's record
    12  time of day with an offset seconds in UTC, then nanoseconds

So ("a", "bc") and ("ab", "c") differ, and 1, "1", 1.0 and None. As with all keys a str is its UTF-8 bytes,
and True is 1. A row without fields is eight bytes 0xFF. Columns of NumPy, pandas, Polars and Arrow are
encoded without Python code for each row, their lists and structs too; Python objects, decimals and maps value
by value.
"""

from __future__ import annotations

import datetime
import decimal
import operator
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from evenbins._bulk import Spans
from evenbins.deduplication.arrow_columns import days_of, is_text, readable
from evenbins.deduplication.libraries import library_of
from evenbins.deduplication.times import PER_SECOND, time_words, words_of_ticks, words_of_time_of_day
from evenbins.tables.exact_sets import digest_words

__all__ = ["Fields", "is_null", "keys_of", "records_of", "row_bytes", "table_columns"]

Records = npt.NDArray[np.uint64]
"""One row of three words for each value: type, low word, high word."""

_Array = np.ndarray[Any, np.dtype[Any]]

(
    NULL, INTEGER, TEXT, FLOAT, MOMENT, UTC_MOMENT, DATE, TIME, DURATION, DECIMAL, LIST, MAPPING, UTC_TIME,
) = range(13)  # fmt: skip
_WORDS: Final = 3
_NAN_BITS: Final = 0x7FF8000000000000
_EPOCH = datetime.datetime(1970, 1, 1)
_UTC_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LONG_DOUBLE: Final = np.dtype(np.longdouble).itemsize > 8


class Fields:
    """Columns whose rows are keys of several fields, for `Deduplicator.keep`.

    Parameters
    ----------
    *columns
        One for each field, of equal length: NumPy arrays, pandas, Polars or Arrow columns, lists.

    Examples
    --------
    >>> from evenbins import Deduplicator
    >>> Deduplicator().keep(Fields(["a", "ab", "a"], ["bc", "c", "bc"]))
    array([ True,  True, False])
    """

    __slots__ = ("columns",)

    def __init__(self, *columns: object) -> None:
        if not columns:
            raise ValueError("columns must be one or more columns; got none. Pass one for each field")
        self.columns = columns

    def keys(self, seed: int) -> Spans:
        """Return the rows as keys."""
        found = [records_of(column, seed) for column in self.columns]
        lengths = {len(each) for each in found}
        if len(lengths) > 1:
            shown = ", ".join(str(len(each)) for each in found)
            raise ValueError(f"columns must have the same number of rows; got {shown}")
        return _spans(np.concatenate(found, axis=1) if len(found) > 1 else found[0])


def _spans(records: Records) -> Spans:
    """Return rows of records as keys."""
    size = 8 * records.shape[1]
    offsets = np.arange(len(records) + 1, dtype=np.uint64) * np.uint64(size)
    return Spans(records.astype("<u8", copy=False).tobytes(), offsets)


def table_columns(table: Any) -> list[Any] | None:
    """Return the columns of a table or dataframe; None if it is not one."""
    library = library_of(table)
    if library == "pandas" and hasattr(table, "columns"):
        return [table.iloc[:, i] for i in range(table.shape[1])]
    if library == "polars" and hasattr(table, "get_columns"):
        columns: list[Any] = table.get_columns()
        return columns
    if library == "pyarrow" and hasattr(table, "column_names"):
        return [table.column(i) for i in range(table.num_columns)]
    if isinstance(table, np.ndarray) and table.dtype.names is not None:
        return [table[name] for name in table.dtype.names]
    return None


def keys_of(batch: Any, seed: int) -> Any:
    """Return a batch as keys of a bulk call: rows of several fields are encoded, all else is as it was."""
    if isinstance(batch, Fields):
        return batch.keys(seed)
    columns = table_columns(batch)
    if columns is not None:
        if not columns:
            raise ValueError("batch must have one or more columns; got none")
        return columns[0] if len(columns) == 1 else Fields(*columns).keys(seed)
    if isinstance(batch, list | tuple) and any(isinstance(each, tuple) for each in batch[:1]):
        return _keys_of_tuples(batch, seed)
    return batch


def _keys_of_tuples(rows: Sequence[Any], seed: int) -> Any:
    for number, row in enumerate(rows):
        if not isinstance(row, tuple):
            raise TypeError(f"row {number} must be a tuple, as the first is, not {type(row).__name__}")
    lengths = {len(row) for row in rows}
    if len(lengths) == 1 and 0 not in lengths:
        return Fields(*(list(column) for column in zip(*rows, strict=True))).keys(seed)
    pieces = [row_bytes(row, seed) for row in rows]
    ends = np.cumsum([0, *map(len, pieces)], dtype=np.uint64)
    return Spans(b"".join(pieces), ends)


def row_bytes(row: Sequence[Any], seed: int) -> bytes:
    """Return the key of one row: its records in order; of a row without fields eight bytes 0xFF."""
    return _of_values(row, seed).astype("<u8", copy=False).tobytes() if row else b"\xff" * 8


# --- columns ------------------------------------------------------------------------------------------


def records_of(column: Any, seed: int) -> Records:
    """Return the values of a column as records."""
    library = library_of(column)
    if isinstance(column, np.ndarray):
        return _of_array(column, seed)
    if library == "pandas":
        return _of_pandas(column, seed)
    if library == "polars":
        return _of_polars(column, seed)
    if library == "pyarrow":
        return _of_arrow(column, seed)
    if hasattr(column, "__arrow_c_stream__") or hasattr(column, "__arrow_c_array__"):
        return _of_arrow(import_module("pyarrow").chunked_array(column), seed)
    if isinstance(column, str | bytes) or not isinstance(column, Iterable):
        raise TypeError(f"a column must be an array, an Arrow column or a list, not {type(column).__name__}")
    return _of_values(column if isinstance(column, list | tuple) else list(column), seed)


def _records_of(tag: int, low: _Array, high: _Array | int = 0) -> Records:
    records = np.empty((len(low), _WORDS), dtype=np.uint64)
    records[:, 0], records[:, 1], records[:, 2] = tag, low, high
    return records


def _with_nulls(nulls: npt.NDArray[np.bool_], others: Records) -> Records:
    """Return records with nulls where they are, and the others in between."""
    records = np.zeros((len(nulls), _WORDS), dtype=np.uint64)
    records[~nulls] = others
    return records


def _integers(numbers: _Array) -> Records:
    if numbers.dtype.kind in "ub":
        return _records_of(INTEGER, numbers.astype(np.uint64))
    wide = numbers.astype(np.int64)
    return _records_of(INTEGER, wide.view(np.uint64), (wide >> 63).view(np.uint64))


def _floats(numbers: _Array) -> Records:
    if _LONG_DOUBLE and numbers.dtype.type is np.longdouble:
        raise TypeError(
            f"a column of floats must have at most 64 bits, not {numbers.dtype}: "
            'convert it before, with .astype("float64")'
        )
    wide = numbers.astype(np.float64) + 0.0  # -0.0 becomes 0.0
    bits = np.ascontiguousarray(wide).view(np.uint64).copy()
    bits[np.isnan(wide)] = _NAN_BITS
    return _records_of(FLOAT, bits)


def _texts(values: Any, seed: int) -> Records:
    words = digest_words(values, seed)
    return _records_of(TEXT, words[:, 0], words[:, 1])


def _ticks(tag: int, ticks: _Array, per_second: int) -> Records:
    """Return moments or durations from whole numbers of a unit."""
    return _records_of(tag, *words_of_ticks(ticks, per_second))


def _days(days: _Array) -> Records:
    return _records_of(DATE, days.astype(np.int64).view(np.uint64))


def _of_array(column: _Array, seed: int) -> Records:
    if column.ndim != 1:
        raise ValueError(f"a column must have one dimension, not {column.ndim}")
    if isinstance(column, np.ma.MaskedArray):
        nulls = np.ma.getmaskarray(column)
        return _with_nulls(nulls, _of_array(column.data[~nulls], seed))
    kind = column.dtype.kind
    if kind in "iub":
        return _integers(column)
    if kind == "f":
        return _floats(column)
    if kind in "SU":
        return _texts(column, seed)
    if kind in "mM":
        nulls = np.isnat(column)
        return _with_nulls(nulls, _of_time(column[~nulls]))
    return _of_values(column.tolist(), seed)


def _of_time(column: _Array) -> Records:
    """Return the records of datetime64 or timedelta64 without NaT."""
    return _records_of(MOMENT if column.dtype.kind == "M" else DURATION, *time_words(column))


def _of_pandas(column: Any, seed: int) -> Records:
    pandas: Any = sys.modules["pandas"]
    column = pandas_series(column)
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        return _of_array(column.to_numpy(), seed)
    nulls = np.asarray(column.isna(), dtype=np.bool_)
    there = column[~nulls] if nulls.any() else column
    return _with_nulls(nulls, _of_pandas_values(there, dtype, pandas, seed))


def pandas_series(column: Any) -> Any:
    """Return a Series, an Index or an array of pandas as a Series; rows of a MultiIndex are tuples."""
    pandas: Any = sys.modules["pandas"]
    if isinstance(column, pandas.Series):
        return column
    return pandas.Series(column.to_flat_index() if isinstance(column, pandas.MultiIndex) else column)


def _of_pandas_values(column: Any, dtype: Any, pandas: Any, seed: int) -> Records:
    """Return the records of a column without nulls, of one of pandas' own types or of objects."""
    if isinstance(dtype, pandas.CategoricalDtype):
        codes = np.asarray(column.cat.codes)
        categories = records_of(pandas.Series(dtype.categories), seed)
        records: Records = categories[codes]
        return records
    if isinstance(dtype, pandas.DatetimeTZDtype):
        naive = _of_time(column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
        naive[:, 0] = UTC_MOMENT
        return naive
    if isinstance(dtype, pandas.ArrowDtype):
        return _of_arrow(column.array.__arrow_array__(), seed)
    if isinstance(dtype, pandas.StringDtype):
        return _texts(column.tolist(), seed)
    numpy_dtype = getattr(dtype, "numpy_dtype", None)  # Int64, Float64, boolean
    if numpy_dtype is not None and numpy_dtype.kind in "iubf":
        return _of_array(column.to_numpy(dtype=numpy_dtype), seed)
    return _of_values(column.tolist(), seed)


def _of_polars(column: Any, seed: int) -> Records:
    polars = sys.modules["polars"]
    nulls = column.is_null().to_numpy()
    there = column.drop_nulls() if nulls.any() else column
    return _with_nulls(nulls, _of_polars_values(there, column.dtype, polars, seed))


def _of_polars_values(column: Any, dtype: Any, polars: Any, seed: int) -> Records:
    if dtype.is_integer() and dtype not in (
        getattr(polars, "Int128", None),
        getattr(polars, "UInt128", None),
    ):
        return _integers(column.to_numpy())
    if dtype.is_float():
        return _floats(column.to_numpy())
    if dtype == polars.Boolean:
        return _integers(column.to_numpy())
    if dtype in (polars.String, polars.Binary):
        return _texts(column, seed)
    if dtype in (polars.Categorical, polars.Enum):
        return _texts(column.cast(polars.String), seed)
    if dtype == polars.Date:
        return _days(column.to_physical().to_numpy())
    if dtype == polars.Datetime:
        tag = MOMENT if dtype.time_zone is None else UTC_MOMENT
        return _ticks(tag, column.to_physical().to_numpy(), PER_SECOND[dtype.time_unit])
    if dtype == polars.Duration:
        return _ticks(DURATION, column.to_physical().to_numpy(), PER_SECOND[dtype.time_unit])
    if dtype == polars.Time:
        return _ticks(TIME, column.to_physical().to_numpy(), 10**9)
    # Nested values column by column: Python's dates and times have no nanoseconds.
    if dtype == polars.Array:
        column, dtype = column.arr.to_list(), polars.List
    if dtype == polars.List:
        lengths = column.list.len().to_numpy()
        return _lists(_of_polars(column.filter(lengths > 0).explode(), seed), lengths, seed)
    if dtype == polars.Struct:
        names = [field.name for field in dtype.fields]
        return _structs(
            names, [_of_polars(column.struct.field(each), seed) for each in names], len(column), seed
        )
    return _of_values(column.to_list(), seed)


def _of_arrow(column: Any, seed: int) -> Records:
    pyarrow = import_module("pyarrow")
    column = readable(column)
    chunks = column if isinstance(column, pyarrow.ChunkedArray) else pyarrow.chunked_array([column])
    if pyarrow.types.is_null(chunks.type):
        return np.zeros((len(chunks), _WORDS), dtype=np.uint64)
    nulls = chunks.is_null().to_numpy()
    there = chunks.drop_null() if nulls.any() else chunks
    return _with_nulls(nulls, _of_arrow_values(there, pyarrow, seed))


def _of_arrow_values(column: Any, pyarrow: Any, seed: int) -> Records:
    kind, types = column.type, pyarrow.types
    if types.is_dictionary(kind):
        return _of_arrow(column.cast(kind.value_type), seed)
    if types.is_integer(kind) or types.is_boolean(kind):
        return _integers(column.to_numpy())
    if types.is_floating(kind):
        return _floats(column.to_numpy())
    if is_text(kind):
        return _texts(column, seed)
    if types.is_date(kind):
        return _days(days_of(column))
    if types.is_timestamp(kind) or types.is_duration(kind):
        tag = DURATION if types.is_duration(kind) else MOMENT if kind.tz is None else UTC_MOMENT
        return _ticks(tag, column.cast(pyarrow.int64()).to_numpy(), PER_SECOND[kind.unit])
    if types.is_time(kind):
        number = pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64()
        return _ticks(TIME, column.cast(number).to_numpy(), PER_SECOND[kind.unit])
    if any(check(kind) for check in (types.is_list, types.is_large_list, types.is_fixed_size_list)):
        chunks = [each.flatten() for each in column.chunks]
        lengths = np.concatenate([_list_lengths(each) for each in column.chunks] or [np.zeros(0, np.int64)])
        return _lists(_of_arrow(pyarrow.chunked_array(chunks, kind.value_type), seed), lengths, seed)
    if types.is_struct(kind) and len(names := [field.name for field in kind]) == len(set(names)):
        parts = column.flatten()
        return _structs(names, [_of_arrow(each, seed) for each in parts], len(column), seed)
    return _of_values(_python_values(column, pyarrow), seed)


def _list_lengths(chunk: Any) -> npt.NDArray[np.int64]:
    lengths = import_module("pyarrow.compute").list_value_length(chunk)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), dtype=np.int64)


def _python_values(column: Any, pyarrow: Any) -> list[Any]:
    """Return Arrow's values as Python objects; times of day of nanoseconds would lose digits."""
    if "time64[ns]" in str(column.type):
        raise TypeError(
            f"a column of {column.type} has times of day in nanoseconds, which are read in plain columns, "
            'lists and structs only: cast them to time64("us") before'
        )
    values: list[Any] = column.to_pylist()
    return values


# --- nested columns -----------------------------------------------------------------------------------


def _lists(items: Records, lengths: _Array, seed: int) -> Records:
    """Return the records of lists from those of all their items and how many each list has."""
    ends = np.zeros(len(lengths) + 1, dtype=np.uint64)
    np.cumsum(lengths, out=ends[1:])
    data = items.astype("<u8", copy=False).tobytes()
    words = digest_words(Spans(data, ends * np.uint64(8 * _WORDS)), seed)
    return _records_of(LIST, words[:, 0], words[:, 1])


def _structs(names: list[str], fields: list[Records], rows: int, seed: int) -> Records:
    """Return the records of structs from those of each field, in the order of `_of_mapping`."""
    keys = _of_values(names, seed)
    order = np.lexsort(keys.T[::-1]).tolist()
    both = np.empty((rows, len(names), 2, _WORDS), dtype=np.uint64)
    for place, field in enumerate(order):
        both[:, place, 0], both[:, place, 1] = keys[field], fields[field]
    words = digest_words(_spans(both.reshape(rows, 2 * _WORDS * len(names))), seed)
    return _records_of(MAPPING, words[:, 0], words[:, 1])


# --- values of Python ---------------------------------------------------------------------------------


def _of_values(values: Sequence[Any], seed: int) -> Records:
    """Return Python objects as records; those with bytes to hash are hashed together."""
    records = np.zeros((len(values), _WORDS), dtype=np.uint64)
    hashed: list[Any] = []
    rows: list[int] = []
    for row, value in enumerate(values):
        tag, found = _plain(value, row, seed)
        records[row, 0] = tag
        if isinstance(found, tuple):
            records[row, 1:] = found
        else:
            hashed.append(found)
            rows.append(row)
    if hashed:
        records[rows, 1:] = digest_words(hashed, seed)
    return records


def _plain(value: Any, row: int, seed: int) -> tuple[int, tuple[int, int] | str | bytes]:
    """Return the type of a value, and its two words or the bytes to hash for them."""
    if isinstance(value, str):
        return TEXT, value
    if isinstance(value, np.datetime64 | np.timedelta64) and not np.isnat(value):
        tag, low, high = _of_time(np.array([value]))[0].tolist()
        return tag, (low, high)
    if isinstance(value, int | np.integer | np.bool_) and not isinstance(value, np.timedelta64):
        return INTEGER, _two_words(int(value), row)
    if isinstance(value, bytes | bytearray | memoryview):
        return TEXT, bytes(value)
    if is_null(value):
        return NULL, (0, 0)
    if isinstance(value, np.longdouble) and _LONG_DOUBLE:
        raise TypeError(
            f"row {row}: a float must have at most 64 bits, not longdouble: convert it with float()"
        )
    if isinstance(value, float | np.floating):
        number = float(value) + 0.0
        (bits,) = struct.unpack("<Q", struct.pack("<d", number))
        return FLOAT, (_NAN_BITS if number != number else bits, 0)
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        return _of_calendar(value)
    if isinstance(value, decimal.Decimal):
        return DECIMAL, _digits(value)
    if isinstance(value, list | tuple | np.ndarray):
        items = value.tolist() if isinstance(value, np.ndarray) else value
        return LIST, _of_values(items, seed).astype("<u8").tobytes()
    if isinstance(value, Mapping):
        return MAPPING, _of_mapping(value, seed)
    if hasattr(value, "__index__"):
        return INTEGER, _two_words(operator.index(value), row)
    raise TypeError(
        f"row {row}: a field must be str, bytes, a number, a date or time, None, or a list or dict of these, "
        f"not {type(value).__name__}. Convert it before, for example with str()"
    )


def _of_mapping(value: Mapping[Any, Any], seed: int) -> bytes:
    """Return the records of keys and values, in an order that does not depend on that of the mapping."""
    keys, values = (_of_values(list(part), seed) for part in (value.keys(), value.values()))
    both = np.concatenate([keys, values], axis=1)
    return both[np.lexsort(both.T[::-1])].astype("<u8", copy=False).tobytes()


def _digits(value: decimal.Decimal) -> str:
    """Return all digits of a decimal, without trailing zeros; the context of decimals has no effect."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return str(value)  # infinite, or not a number
    if digits[-1]:
        return str(value).upper()
    text = "".join(map(str, digits)).rstrip("0")
    if not text:
        return "0"
    exponent += len(digits) - len(text)
    return str(decimal.Decimal((sign, tuple(map(int, text)), exponent))).upper()


def is_null(value: Any) -> bool:
    """Return whether an object means that there is no value: None, pandas' NA and NaT, NumPy's masked."""
    if value is None or value is np.ma.masked:
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    pandas = sys.modules.get("pandas")
    return pandas is not None and (value is pandas.NA or value is pandas.NaT)


def _two_words(number: int, row: int) -> tuple[int, int]:
    if not -(2**127) <= number < 2**127:
        raise ValueError(f"row {row}: an integer field must have at most 128 bits: pass str(number)")
    bits = number % 2**128
    return bits % 2**64, bits >> 64


def _of_calendar(value: Any) -> tuple[int, tuple[int, int]]:
    nanoseconds = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)  # pandas has them
    if isinstance(value, datetime.datetime):
        aware = value.tzinfo is not None and value.utcoffset() is not None
        span = value - (_UTC_EPOCH if aware else _EPOCH)
        return (UTC_MOMENT if aware else MOMENT), _seconds(span, nanoseconds)
    if isinstance(value, datetime.date):
        return DATE, _two_words((value - _EPOCH.date()).days % 2**64, 0)
    if isinstance(value, datetime.timedelta):
        return DURATION, _seconds(value, nanoseconds)
    aware, words = words_of_time_of_day(value)
    return (UTC_TIME if aware else TIME), words


def _seconds(span: datetime.timedelta, nanoseconds: int) -> tuple[int, int]:
    whole = span.days * 86_400 + span.seconds
    return whole % 2**64, span.microseconds * 1000 + nanoseconds

"""`dedup`: the first occurrences of rows, in a container of the same type.

    list, tuple                                    the same, at once
    any other iterable                             a generator, chunk by chunk; of tables: table by table
    NumPy array (of structured rows too)           an array
    pandas Series, Index, DataFrame                the same, with its index
    Polars Series, DataFrame                       the same;  LazyFrame: stays lazy
    pyarrow Array, ChunkedArray, RecordBatch, Table    the same;  RecordBatchReader: a reader, batch by batch

What has rows in memory is masked once; keys are made of slices of it, so that they take little memory beside.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import chain, islice
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from evenbins.deduplication.arrow_columns import filtered
from evenbins.deduplication.columns import checked_nulls, keys_of_column, null_digest
from evenbins.deduplication.deduplicator import Deduplicator
from evenbins.deduplication.fields import Fields, table_columns
from evenbins.deduplication.libraries import is_of_library, library_of, rows_error

__all__ = ["dedup", "item_keys", "keep_rows", "row_keys"]

Mask = npt.NDArray[np.bool_]
_T = TypeVar("_T")
_SLICE = 1 << 19  # rows whose keys are made at a time
_FIRST_CHUNK, _MOST_CHUNK = 64, 8192  # elements of an iterable that are read before the first comes out


@overload
def dedup(source: list[_T], *, key: Any = None, exact: bool = False, fpr: float = 1e-9,
          capacity: int | None = None, nulls: str = "error", seed: int = 0) -> list[_T]: ...  # fmt: skip
@overload
def dedup(source: Any, *, key: Any = None, exact: bool = False, fpr: float = 1e-9,
          capacity: int | None = None, nulls: str = "error", seed: int = 0) -> Any: ...  # fmt: skip
def dedup(
    source: Any, *, key: Any = None, exact: bool = False, fpr: float = 1e-9, capacity: int | None = None,
    nulls: str = "error", seed: int = 0,
) -> Any:  # fmt: skip
    """Return the first occurrences of the rows of `source`, in their order, in a container of the same type.

    Parameters
    ----------
    source
        A list, a tuple, any other iterable (the result is a generator, which reads ahead by up to 8,192
        elements; of tables or dataframes the rows are deduplicated), a NumPy array, a pandas, Polars or
        pyarrow column or table, a Polars LazyFrame (the result is lazy), a `RecordBatchReader` or another
        Arrow stream of rows (the result is a reader).
    key
        What makes rows equal: a column's name, several names in a list or tuple, or for iterables a function
        of an element. Without it the whole row.
    exact, fpr, capacity, seed
        As for `Deduplicator`: by default a row is dropped by mistake with a probability of at most 1e-9.
    nulls
        What a null is as the key of a row, where the key is one column or value: "error" raises ValueError
        with the row's number, "keep" keeps all these rows, "one" keeps the first. Among several fields a null
        is a value like others.

    Raises
    ------
    KeyError
        There is no such column.

    Examples
    --------
    >>> dedup(["b", "a", "b"])
    ['b', 'a']
    >>> list(dedup((n % 3 for n in range(10))))
    [0, 1, 2]
    >>> dedup([{"url": "x", "n": 1}, {"url": "x", "n": 2}], key="url")
    [{'url': 'x', 'n': 1}]
    >>> import numpy as np
    >>> dedup(np.array([3, 1, 3, 2, 1]), exact=True)
    array([3, 1, 2])
    """
    rule = checked_nulls(nulls)

    def new() -> Deduplicator:
        return Deduplicator(exact=exact, fpr=fpr, capacity=capacity, seed=seed)

    if isinstance(source, np.ndarray) and source.ndim == 0:
        raise TypeError("source must have one or two dimensions; got an array of none. Put it into a list")
    if isinstance(source, str | bytes | bytearray | memoryview):
        raise TypeError(f"source must be many rows, not one {type(source).__name__}: put it into a list")
    error = rows_error(source)
    if error is not None:
        raise error
    library = library_of(source)
    if library == "polars" and hasattr(source, "collect_schema") and hasattr(source, "collect"):
        return _lazy(source, key, new, rule)
    if library == "pyarrow" and hasattr(source, "read_next_batch"):
        return _reader(source, key, new(), rule)
    if isinstance(source, np.ndarray) or library in ("pandas", "polars", "pyarrow"):
        return _select(source, _mask_of(new(), source, key, rule))
    if hasattr(source, "__arrow_c_stream__"):
        return _reader(import_module("pyarrow").RecordBatchReader.from_stream(source), key, new(), rule)
    if not isinstance(source, Iterable):
        raise TypeError(f"source must be a container with rows or an iterable, not {type(source).__name__}")
    elements = _of_iterable(iter(source), key, _key_function(key), new(), rule)
    if isinstance(source, list):
        return list(elements)
    return tuple(elements) if type(source) is tuple else elements


# --- keys of rows --------------------------------------------------------------------------------------


def keep_rows(seen: Deduplicator, column: Any, nulls: str, first_row: int = 0) -> Mask:
    """Return which rows of a column, or of `Fields`, are first occurrences; a null raises with its row."""
    keys, is_null = keys_of_column(column, seen.seed)
    if is_null is None:
        return seen.keep(keys)
    if nulls == "error":
        row = first_row + int(np.argmax(is_null))
        raise ValueError(
            f'row {row} has a null as its key: drop it before, or pass nulls="keep" or nulls="one"'
        )
    if nulls == "one":
        return seen._keep_with(keys, is_null, null_digest(seen.seed, exact=seen.exact))
    mask = np.ones(len(is_null), dtype=np.bool_)
    try:
        mask[~is_null] = seen.keep(keys)
    except BaseException as error:
        error.answers = _with_null_rows(error.answers, is_null)  # type: ignore[attr-defined]
        raise
    return mask


def _with_null_rows(answers: Mask, is_null: Mask) -> Mask:
    """Return the answers of the first keys as those of the first rows, of which nulls are kept."""
    if not len(answers):
        return answers
    others = np.flatnonzero(~is_null)
    mask = np.ones(len(is_null) if len(answers) == len(others) else int(others[len(answers)]), dtype=np.bool_)
    mask[others[: len(answers)]] = answers
    return mask


def _mask_of(seen: Deduplicator, source: Any, key: Any, nulls: str) -> Mask:
    if isinstance(source, np.ndarray) and source.ndim == 2 and key is None:
        source_columns: list[Any] | None = list(source.T)
    else:
        source_columns = _columns(source, key)
    columns = [source] if source_columns is None else source_columns
    rows = len(source)
    mask = np.ones(rows, dtype=np.bool_)
    for start in range(0, rows, _SLICE):
        parts = [_slice(column, start) for column in columns]
        keys = parts[0] if len(parts) == 1 else Fields(*parts)
        mask[start : start + _SLICE] = keep_rows(seen, keys, nulls, start)
    return mask


def row_keys(source: Any, key: Any) -> Any:
    """Return what makes the rows of a table or column equal: a column, or `Fields` of several."""
    columns = _columns(source, key)
    if columns is None:
        return source
    return columns[0] if len(columns) == 1 else Fields(*columns)


def _slice(column: Any, start: int) -> Any:
    if library_of(column) == "pandas" and hasattr(column, "iloc"):
        return column.iloc[start : start + _SLICE]
    if library_of(column) in ("pyarrow", "polars"):
        return column.slice(start, _SLICE)
    return column[start : start + _SLICE]


def _names(key: Any) -> list[Any]:
    names = list(key) if isinstance(key, list | tuple) else [key]
    if not names:
        raise ValueError("key must name one or more columns; got none. Leave it out for whole rows")
    _refuse_expressions(names)
    if callable(names[0]):
        raise TypeError("key must be column names, not a function: functions are for iterables")
    return names


def _refuse_expressions(names: list[Any]) -> None:
    for name in names:
        if is_of_library(name) or not isinstance(name, Hashable):
            raise TypeError(
                f"key must be a column's name or several, not {type(name).__name__}: "
                "compute what it stands for as a column before"
            )


def _columns(source: Any, key: Any) -> list[Any] | None:
    """Return the columns that make rows equal; None if the source itself is the column."""
    every = table_columns(source)
    if every is None:
        if key is not None:
            raise ValueError(
                f"key is for rows with named columns, and a {type(source).__name__} has none; got {key!r}. "
                "Leave it out"
            )
        return None
    if key is None:
        if not every:
            raise ValueError("source must have one or more columns; got none")
        return every
    there = _column_names(source)
    found = []
    for name in _names(key):
        if library_of(source) != "pandas" and not isinstance(name, str):
            raise TypeError(f"key must be a column's name, a str, or several; got {name!r}")
        places = [place for place, each in enumerate(there) if each == name]
        if len(places) != 1:
            what = "there is no such column" if not places else f"{len(places)} columns have this name"
            raise KeyError(f"key {name!r}: {what}. There are {', '.join(map(repr, there[:20]))}")
        found.append(every[places[0]])
    return found


def _column_names(source: Any) -> list[Any]:
    if isinstance(source, np.ndarray):
        return list(source.dtype.names or ())
    return list(source.column_names if library_of(source) == "pyarrow" else source.columns)


# --- containers ----------------------------------------------------------------------------------------


def _select(source: Any, mask: Mask) -> Any:
    library = library_of(source)
    if library == "pyarrow":
        return filtered(source, mask)
    if library == "polars":
        polars = import_module("polars")
        found = source.filter(polars.Series(mask))
        is_subclass = isinstance(source, polars.DataFrame) and type(source) is not polars.DataFrame
        return type(source)(found) if is_subclass else found
    return source[mask]


def _reader(reader: Any, key: Any, seen: Deduplicator, nulls: str) -> Any:
    pyarrow = import_module("pyarrow")
    _columns(reader.schema.empty_table(), key)  # a wrong name raises now, not when the first batch is read

    def batches() -> Iterator[Any]:
        rows = 0
        for batch in reader:
            yield filtered(batch, keep_rows(seen, row_keys(batch, key), nulls, rows))
            rows += batch.num_rows

    return pyarrow.RecordBatchReader.from_batches(reader.schema, batches())


def _lazy(frame: Any, key: Any, new: Callable[[], Deduplicator], nulls: str) -> Any:
    """Return a LazyFrame whose rows are deduplicated when it is collected: anew each time, batch by batch."""
    register_io_source = import_module("polars.io.plugins").register_io_source
    schema = frame.collect_schema()
    _columns(schema.to_frame(), key)

    def run(columns: list[str] | None, predicate: Any, limit: int | None, size: int | None) -> Iterator[Any]:
        seen, rows = new(), 0
        for batch in frame.collect_batches(maintain_order=True):
            kept = _select(batch, keep_rows(seen, row_keys(batch, key), nulls, rows))
            rows += batch.height
            if limit is not None:  # it is of the rows before the predicate
                kept = kept.head(limit)
                limit -= kept.height
            if predicate is not None:
                kept = kept.filter(predicate)
            yield kept if columns is None else kept.select(columns)
            if limit == 0:
                return

    return register_io_source(run, schema=schema)


def item_keys(items: Sequence[Any], key: Any) -> Sequence[Any]:
    """Return what makes elements equal: themselves, or what a function or names find in each."""
    function = _key_function(key)
    return items if function is None else [function(each) for each in items]


def _key_function(key: Any) -> Callable[[Any], Any] | None:
    if key is None:
        return None
    if callable(key):
        _refuse_expressions([key])
        return key  # type: ignore[no-any-return]
    find = operator.itemgetter(*_names(key))

    def found(element: Any) -> Any:
        try:
            return find(element)
        except TypeError as error:
            raise TypeError(
                f"key must be names that can be looked up in every element, and {key!r} cannot in a "
                f"{type(element).__name__} ({error}): pass a function"
            ) from error

    return found


def _of_iterable(
    elements: Iterator[Any], key: Any, function: Callable[[Any], Any] | None, seen: Deduplicator, nulls: str
) -> Iterator[Any]:
    """Yield the first occurrences, those before an error of the source or of a key too."""
    start = list(islice(elements, 1))
    elements = chain(start, elements)
    if start and not callable(key) and table_columns(start[0]) is not None:
        yield from _of_tables(elements, key, seen, nulls)
        return
    rows, size = 0, _FIRST_CHUNK
    failure: Exception | None = None
    while failure is None:
        chunk, keys, failure = _read(elements, size, function)
        if not chunk:
            break
        try:
            mask = keep_rows(seen, keys, nulls, rows)
        except Exception as error:
            mask, failure = _answers_before(error, keys, seen, nulls), error
        for element, kept in zip(chunk, mask.tolist(), strict=False):
            if kept:
                yield element
        rows += len(chunk)
        size = min(2 * size, _MOST_CHUNK)
    if failure is not None:
        raise failure


def _read(
    elements: Iterator[Any], size: int, function: Callable[[Any], Any] | None
) -> tuple[list[Any], list[Any], Exception | None]:
    """Return the next elements, their keys, and the error that ended them before there were `size`."""
    chunk: list[Any] = []
    keys: list[Any] = []
    try:
        for element in islice(elements, size):
            keys.append(element if function is None else function(element))
            chunk.append(element)
    except Exception as error:
        return chunk, keys, error
    return chunk, keys, None


def _answers_before(error: Exception, keys: list[Any], seen: Deduplicator, nulls: str) -> Mask:
    """Return the answers for the keys before the one that was refused, or those that the error has."""
    if len(known := getattr(error, "answers", ())):
        return np.asarray(known, dtype=np.bool_)
    answers = []  # nothing has been added: a key was refused
    for key in keys:
        try:
            answers.append(bool(keep_rows(seen, [key], nulls)[0]))
        except Exception:
            break
    return np.array(answers, dtype=np.bool_)


def _of_tables(tables: Iterator[Any], key: Any, seen: Deduplicator, nulls: str) -> Iterator[Any]:
    """Yield the first occurrences of the rows of tables or dataframes, table by table."""
    rows = 0
    for number, table in enumerate(tables):
        if table_columns(table) is None:
            raise TypeError(
                f"element {number} must be a table or dataframe, as the first is, not {type(table).__name__}"
            )
        yield _select(table, keep_rows(seen, row_keys(table, key), nulls, rows))
        rows += len(table)

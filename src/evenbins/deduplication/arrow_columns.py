"""Arrow's columns in the types that can be read, filtered and hashed.

string_view, binary_view       large_string, large_binary: pyarrow has no filter for views
run-end encoded                the values; its null_count is that of the runs
dictionary with a null in it   the values; its null_count is that of the indices
arrow.uuid, arrow.json         what they store: 16 bytes, text
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["days_of", "filtered", "is_text", "readable"]

_STORED = ("arrow.uuid", "arrow.json")
_DAY = 86_400_000


def is_text(kind: Any) -> bool:
    """Return whether values of this type are keys by their bytes."""
    types: Any = import_module("pyarrow").types
    return any(
        check(kind)
        for check in (
            types.is_string, types.is_large_string, types.is_binary, types.is_large_binary,
            types.is_fixed_size_binary,
        )
    )  # fmt: skip


def readable(column: Any) -> Any:
    """Return an Array or ChunkedArray with the same values, of a type that Arrow's functions take."""
    pyarrow: Any = import_module("pyarrow")
    types, kind = pyarrow.types, column.type
    if getattr(kind, "extension_name", None) in _STORED:
        return readable(_stored(column, kind, pyarrow))
    if types.is_run_end_encoded(kind):
        decode = import_module("pyarrow.compute").run_end_decode
        try:
            return readable(decode(column))
        except NotImplementedError as error:
            raise _unknown(kind, "decode") from error
    if types.is_dictionary(kind):
        chunks = column.chunks if isinstance(column, pyarrow.ChunkedArray) else [column]
        if types.is_string_view(kind.value_type) or types.is_binary_view(kind.value_type):
            return readable(_joined([_looked_up(each) for each in chunks], column, pyarrow))
        if any(each.dictionary.null_count for each in chunks):
            return _joined([each.dictionary_decode() for each in chunks], column, pyarrow)
        return column
    if types.is_string_view(kind):
        return column.cast(pyarrow.large_string())
    return column.cast(pyarrow.large_binary()) if types.is_binary_view(kind) else column


def _unknown(kind: Any, verb: str) -> TypeError:
    return TypeError(
        f"pyarrow cannot {verb} a column of {kind}: cast it before, views to string or binary for example"
    )


def _stored(column: Any, kind: Any, pyarrow: Any) -> Any:
    if not isinstance(column, pyarrow.ChunkedArray):
        return column.storage
    return pyarrow.chunked_array([each.storage for each in column.chunks], kind.storage_type)


def _looked_up(chunk: Any) -> Any:
    """Return the values of a dictionary of views."""
    return readable(chunk.dictionary).take(chunk.indices)


def _joined(chunks: list[Any], column: Any, pyarrow: Any) -> Any:
    """Return the chunks as the column was: one array, or chunks of which all have one type."""
    if not isinstance(column, pyarrow.ChunkedArray):
        return chunks[0]
    return pyarrow.chunked_array(chunks, None if chunks else column.type.value_type)


def _is_filtered_by_arrow(kind: Any, types: Any) -> bool:
    return not (types.is_string_view(kind) or types.is_binary_view(kind) or types.is_run_end_encoded(kind))


def filtered(source: Any, mask: npt.NDArray[np.bool_]) -> Any:
    """Return the rows of a mask: of an Array, ChunkedArray, RecordBatch or Table, with its type."""
    pyarrow: Any = import_module("pyarrow")
    chosen, types = pyarrow.array(mask), pyarrow.types
    if not hasattr(source, "schema"):
        return _filtered_column(source, chosen, types)
    if all(_is_filtered_by_arrow(each.type, types) for each in source.schema):
        with contextlib.suppress(pyarrow.ArrowNotImplementedError):  # the column that cannot is named below
            return source.filter(chosen)
    columns = [_filtered_column(each, chosen, types) for each in source.columns]
    return type(source).from_arrays(columns, schema=source.schema)


def _filtered_column(column: Any, chosen: Any, types: Any) -> Any:
    kind = column.type
    if _is_filtered_by_arrow(kind, types):
        try:
            return column.filter(chosen)
        except NotImplementedError as error:
            raise _unknown(kind, "filter") from error
    found = readable(column).filter(chosen)
    if types.is_run_end_encoded(kind):
        compute = import_module("pyarrow.compute")
        return compute.run_end_encode(found.cast(kind.value_type), run_end_type=kind.run_end_type)
    return found.cast(kind)


def days_of(column: Any) -> npt.NDArray[np.int64]:
    """Return the days of a column of dates without nulls.

    Raises
    ------
    ValueError
        A date64 is not at midnight, as Arrow demands.
    """
    pyarrow: Any = import_module("pyarrow")
    if pyarrow.types.is_date32(column.type):
        return np.asarray(column.cast(pyarrow.int32()).to_numpy(), dtype=np.int64)
    days, rest = np.divmod(column.cast(pyarrow.int64()).to_numpy(), _DAY)
    if rest.any():
        found = int(rest[rest != 0][0])
        raise ValueError(
            f"a date64 must be a whole number of days; got one {found} ms after midnight. "
            'Cast the column to timestamp("ms") before'
        )
    return np.asarray(days, dtype=np.int64)

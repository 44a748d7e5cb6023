"""Arrays that are what they hold: digests that the caller has computed, and the column of a table."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

__all__ = ["digest_array", "one_column"]


def one_column(values: Any, name: str) -> Any:
    """Return the column of a table of pyarrow, Polars or pandas that has one; what is no table as it is.

    Raises
    ------
    TypeError
        The table has several columns, or none.
    """
    columns = getattr(values, "columns", None)
    if columns is None or hasattr(values, "dtype"):
        return values
    if len(columns) != 1:
        raise TypeError(f"{name} must be one column, not a table of {len(columns)}: pass table['name']")
    return columns[0] if hasattr(columns[0], "null_count") else values[columns[0]]


def digest_array(digests: object) -> np.ndarray[Any, np.dtype[Any]]:
    """Return digests as the uint64 array that they must be."""
    if isinstance(digests, list | tuple | range):
        try:
            return np.fromiter((_one_digest(each) for each in digests), np.uint64, len(digests))
        except OverflowError:
            raise ValueError("digests must be 0 to 2**64-1, as digest returns them") from None
    found: np.ndarray[Any, np.dtype[Any]] = np.asanyarray(one_column(digests, "digests"))
    if found.ndim == 0 and found.dtype == object:
        raise TypeError(
            f"digests must be a uint64 array or a list of integers, not {type(digests).__name__}: collect "
            "them in one, as digest_many does"
        )
    if found.dtype.kind != "u" or found.dtype.itemsize != 8:
        raise TypeError(
            f"digests must be uint64, as digest_many returns them, not {found.dtype}: "
            "leave out digests=True if these are keys"
        )
    return found


def _one_digest(value: object) -> int:
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise TypeError(f"digests must be integers, as digest gives them, not {type(value).__name__}")
    return operator.index(value)

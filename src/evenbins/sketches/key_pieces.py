"""Keys of a bulk addition, cut into pieces whose elements can be kept; and additions under way."""

from __future__ import annotations

import itertools
import operator
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sized
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evenbins import _bulk, _core

__all__ = ["Addition", "counted", "key_pieces", "note_added", "unchanging"]

_PIECE = 1 << 16  # keys treated together
_Words = npt.NDArray[np.uint64]
_PLAIN = frozenset((str, bytes, int))


class Addition(NamedTuple):
    """Keys on their way into a sketch: its total before; their weights, or one for all."""

    before: int
    digests: _Words
    keys: Any
    weights: _Words | None
    each: int

    def added(self, total: int) -> int:
        """Return how many of the keys are in, from the sketch's total now."""
        grown = total - self.before
        if self.weights is not None:
            sums = itertools.accumulate(self.weights.tolist())
            return bisect_right(list(sums), grown) if grown else 0
        return min(grown // self.each if self.each else int(grown > 0), len(self.digests))


def note_added(error: BaseException, number: int) -> None:
    """Replace the core's note, which counts the keys of a piece, by one that counts those of the call."""
    ours = "evenbins: this came from"
    notes = [note for note in getattr(error, "__notes__", ()) if not note.startswith(ours)]
    notes.append(f"{ours} item {number} of the keys; the keys before it have been added")
    error.__notes__ = notes


def key_pieces(keys: object) -> Iterator[Any]:
    """Cut keys into arrays or lists, whose elements are keys."""
    if isinstance(keys, str | bytes | bytearray | memoryview):
        _bulk.key_source(keys)  # refuses them
    if isinstance(getattr(keys, "dtype", None), np.dtype) and hasattr(keys, "__array__"):
        _bulk.key_source(keys)  # refuses what is no array of keys, with the reason
        flat = np.asarray(keys).ravel()
        if flat.dtype.kind == "O":
            yield from _pieces_of_items(flat)
            return
        # Copies: a key is read twice, for its digest and to be kept, and the caller may change the array.
        yield from (flat[i : i + _PIECE].copy() for i in range(0, flat.size, _PIECE))
    elif hasattr(keys, "columns") and hasattr(keys, "__arrow_c_stream__"):  # a table or dataframe
        yield from key_pieces(_only_column(keys))
    elif hasattr(keys, "read_next_batch"):  # a stream of tables
        for batch in keys:  # type: ignore[attr-defined]
            yield from key_pieces(batch)
    elif hasattr(keys, "__arrow_c_stream__") and not isinstance(keys, Iterable):  # evenbins.column
        yield from key_pieces(import_module("pyarrow").chunked_array(keys))
    elif hasattr(keys, "to_pylist") and isinstance(keys, Sized):  # pyarrow
        for i in range(0, len(keys), _PIECE):
            yield keys[i : i + _PIECE].to_pylist()  # type: ignore[index]
    elif isinstance(keys, Iterable):
        yield from _pieces_of_items(keys)
    else:
        _bulk.key_source(keys)  # says what keys are
        raise TypeError("keys must be an array or an iterable of str, bytes or int")


def _only_column(table: Any) -> Any:
    """Return the column of a table that has one; of others a bulk call says what to do."""
    names = list(getattr(table, "column_names", table.columns))
    if len(names) != 1:
        _core.digest_from(_bulk.key_source(table)[0], 0)  # raises, and says how to choose one
    return table.iloc[:, 0] if hasattr(table, "iloc") else table[names[0]]


def unchanging(key: Any) -> Any:
    """Return a key that is the same whenever it is read; what is no key is returned as it is.

    A key is read twice, for its digest and to be kept: a buffer may be written to in between, and an object
    may have another `__index__`.
    """
    if isinstance(key, str | bytes | int | np.generic | np.ndarray):
        return key
    if hasattr(type(key), "__index__"):
        return operator.index(key)
    try:
        view = memoryview(key)
    except (TypeError, ValueError):  # no buffer, or a view that was released
        return key
    return view.tobytes() if view.itemsize == 1 else key


def _pieces_of_items(keys: Iterable[Any]) -> Iterator[list[Any]]:
    rest, done = iter(keys), 0
    while True:
        piece: list[Any] = []
        try:
            for key in itertools.islice(rest, _PIECE):  # each as it comes: an iterator may reuse a buffer
                piece.append(key if type(key) in _PLAIN else unchanging(key))
        except BaseException as error:
            yield piece  # what came before the failure
            note_added(error, done + len(piece))
            raise
        if piece:
            yield piece
        if len(piece) < _PIECE:
            return
        done += len(piece)


def counted(keys: object) -> tuple[object, list[object] | None]:
    """Return the keys and weights of a mapping from keys to counts, such as a Counter; of others no weights.

    A table that is an exact set has no values: its keys come once each.
    """
    if not isinstance(keys, Mapping) or getattr(getattr(keys, "plan", None), "value_dtype", "") is None:
        return keys, None
    return list(keys), list(keys.values())

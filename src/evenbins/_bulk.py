"""From the argument of a bulk call to a source of keys that the core can read.

    NumPy array              read in place, any integer width, shape, strides, byte order; S and U
    Arrow column or stream   read in place (PyCapsule protocol: pyarrow, Polars, pandas, DuckDB, …)
    anything iterable        item by item, under the GIL

A NumPy `S` or `U` element is the key that indexing gives: NumPy pads these arrays with NULs and drops
trailing NULs when it reads them, so keys that themselves end in NUL cannot be distinguished from shorter
ones there. Pass such keys as a list, an object array or an Arrow column.
"""

from __future__ import annotations

import array
import sys
from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins import _core, _newlines
from evenbins._cores import available_threads, checked_threads, useful_threads
from evenbins._digests import digest_array

__all__ = [
    "Key", "Lines", "Spans", "arrow_stream", "available_threads", "checked_threads", "digest_array",
    "digest_chunks", "is_array_like", "key_source", "useful_threads",
]  # fmt: skip

Key = str | bytes | bytearray | memoryview | SupportsIndex


class Lines:
    """The lines of a block of bytes as keys, for the command line: no Python object for each of them.

    A line ends with the separator, b"\\n" or b"\\0"; before "\\n" one "\\r" goes too unless `binary`.
    """

    __slots__ = ("binary", "block", "separator")

    def __init__(self, block: bytes | memoryview, separator: bytes, binary: bool = False) -> None:
        self.block, self.separator, self.binary = block, separator, binary

    @property
    def crlf(self) -> bool:
        """Whether a "\\r" before the separator is not part of the key."""
        return self.separator == b"\n" and not self.binary


class Spans:
    """Pieces of one buffer as keys: piece i goes from offsets[i] to offsets[i+1]."""

    __slots__ = ("data", "offsets")

    def __init__(self, data: bytes, offsets: npt.NDArray[np.uint64]) -> None:
        self.data, self.offsets = data, offsets


def key_source(
    keys: object, *, digests: bool = False, single: str = "add(key)"
) -> tuple[_core.KeySource, tuple[int, ...] | None]:
    """Return the keys as a source, and the shape that answers should have (None: one dimension).

    `single` is the call for one key, for the message about a string.
    """
    if isinstance(keys, str | bytes | bytearray | memoryview):
        raise TypeError(
            f"keys must be many keys, not one {type(keys).__name__}: use {single}, or put it into a list"
        )
    if isinstance(keys, Lines):
        return _core.line_keys(keys.block, keys.separator.decode(), keys.crlf), None
    if isinstance(keys, Spans):
        return _core.span_keys(keys.data, keys.offsets), None
    if digests:
        return _array_source(digest_array(keys), digests=True)
    if isinstance(keys, np.ndarray):
        return _array_source(keys)
    if isinstance(keys, array.array):
        return _array_source(np.asarray(keys))
    if is_array_like(keys):
        return _array_source(np.asarray(keys))
    if hasattr(keys, "__arrow_c_stream__"):
        return _core.arrow_stream_keys(arrow_stream(keys)), None
    if hasattr(keys, "__arrow_c_array__"):
        return _core.arrow_array_keys(*keys.__arrow_c_array__()), None
    if hasattr(keys, "__array__") and not isinstance(keys, Iterable):
        return _array_source(np.asarray(keys))
    if not isinstance(keys, Iterable):
        raise TypeError(
            "keys must be an array, an Arrow column or an iterable of str, bytes or int, "
            f"not {type(keys).__name__}"
        )
    return _core.item_keys(_newlines.watched(keys)), None


def digest_chunks(
    keys: object,
    seed: int,
    *,
    verb: str = "added",
    digests: bool = False,
    chunk: int = 65_536,
    threads: int = 1,
) -> Iterator[npt.NDArray[np.uint64]]:
    """Yield the digests of the keys in arrays of at most `chunk`.

    `keys` is what bulk calls take, or a source that `key_source` made; anything else raises at once.
    `threads` of them share the hashing of a chunk.

    An error of a key, or of the source, is raised after the digests of all keys before it have been yielded.
    So a caller that adds each array before it asks for the next makes the error's message true: the keys
    before it have been added (`verb`).

    Examples
    --------
    >>> [each.size for each in digest_chunks(iter(range(5)), 0, chunk=2)]
    [2, 2, 1]
    """
    source = keys if isinstance(keys, _core.KeySource) else key_source(keys, digests=digests)[0]
    return _chunks(source, seed, chunk, verb, threads)


def _chunks(
    source: _core.KeySource, seed: int, chunk: int, verb: str, threads: int
) -> Iterator[npt.NDArray[np.uint64]]:
    first, more = 0, True
    while more:
        found, more, failure = _core.digest_next(source, seed, first, chunk, verb, threads)
        first += found.size
        if found.size:
            yield found
        if failure is not None:
            raise failure


def is_array_like(keys: object) -> bool:
    """Return whether NumPy reads the keys: a pandas column that it holds or that is sparse, a tensor."""
    dtype = getattr(keys, "dtype", None)
    if isinstance(dtype, np.dtype):
        return hasattr(keys, "__array__")
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(dtype, pandas.SparseDtype)


def arrow_stream(keys: Any, name: str | None = None) -> object:
    """Return the Arrow stream of a column, or of a table of which the column `name` will be read.

    Raises
    ------
    TypeError
        It is a Polars column of Python objects: its stream holds their addresses, as binary of eight
        bytes, and nothing in the stream says so.
    """
    polars: Any = sys.modules.get("polars")
    dtype = None
    if polars is not None and isinstance(keys, polars.Series):
        dtype = keys.dtype
    elif polars is not None and isinstance(keys, polars.DataFrame):
        dtype = keys.schema.get(name) if name is not None or keys.width != 1 else keys.dtypes[0]
    if dtype is not None and dtype == polars.Object:
        raise TypeError(
            "keys must be strings, bytes or integers, not a Polars column of Python objects (dtype Object): "
            "pass [str(each) for each in column], or column.to_list() if the objects are str, bytes or int"
        )
    return keys.__arrow_c_stream__()


def _array_source(
    keys: np.ndarray[Any, np.dtype[Any]], *, digests: bool = False
) -> tuple[_core.KeySource, tuple[int, ...]]:
    if keys.ndim == 0:
        raise TypeError("keys must have at least one dimension: for one key use add(key) or `key in f`")
    if isinstance(keys, np.ma.MaskedArray):
        masked = np.flatnonzero(np.ma.getmaskarray(keys).ravel())
        if masked.size:
            raise ValueError(f"keys[{masked[0]}] is masked: drop masked keys before, with keys.compressed()")
        keys = keys.data
    kind = keys.dtype.kind
    if kind in "OT":
        return _core.item_keys(keys.flat), keys.shape
    if kind not in "iubSU":
        raise TypeError(
            f"keys must be integers, strings or bytes, not an array of {keys.dtype}: "
            "convert it before, for example with .astype('int64') or .astype(str)"
        )
    swapped = not keys.dtype.isnative
    return _core.array_keys(keys, "d" if digests else kind, swapped), keys.shape

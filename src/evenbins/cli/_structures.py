"""What a file of evenbins holds, opened: as a set of lines for `query`, as itself for `inspect` and `merge`.

    kind of the file ──▶ Members    "is this line in it?", straight from the core: no plan, no theory, so that
                                    `query` starts as fast as NumPy
                     ──▶ open_structure   the library's own class

A kind that cannot say what is in it (a sketch, a summary, a ring) is refused, in one line.
"""

from __future__ import annotations

import os
import stat
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from evenbins import _bulk, _core, _files
from evenbins.cli._inputs import check_readable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from evenbins.cli._inputs import Batch

__all__ = ["KINDS", "Members", "kind_of", "open_members", "open_structure"]

# What a file of each kind holds, and the class that opens it.
KINDS = {
    1: ("a standard filter", "evenbins.filters", "BloomFilter"),
    2: ("a blocked filter", "evenbins.filters", "BlockedBloomFilter"),
    3: ("a balanced filter", "evenbins.filters", "BalancedBloomFilter"),
    4: ("a growing filter", "evenbins.growing", "GrowingFilter"),
    5: ("a counting filter", "evenbins.counting", "CountingBloomFilter"),
    6: ("a count-min sketch", "evenbins.sketches", "CountMinSketch"),
    7: ("a multilevel table", "evenbins.tables", "MultilevelTable"),
    8: ("a chained table", "evenbins.chained", "ChainedTable"),
    9: ("a summary", "evenbins.summaries", "InterpolationSummary"),
    10: ("a summary", "evenbins.summaries", "SingleFilterSummary"),
    11: ("a summary", "evenbins.summaries", "MultipleBloomSummary"),
    12: ("a summary", "evenbins.summaries", "CounterSummary"),
    13: ("a table in pages", "evenbins.paged", "PagedTable"),
    14: ("a hash ring", "evenbins.rings", "HashRing"),
    0: ("a filter in shards", "evenbins.sharded", "ShardedFilter"),
}
SHARDED, TABLE, CHAINED, PAGED, RING = 0, 7, 8, 13, 14
_PLAIN_FILTERS = (1, 2, 3, 5)
_DIGEST = 3  # the number of key_dtype "digest"


class Members:
    """A set of lines."""

    def __init__(self, structure: Any, kind: int) -> None:
        self._structure, self._kind = structure, kind

    @property
    def exact(self) -> bool:
        """Whether it is a table: keys are text, and nothing is found that is not there."""
        return self._kind in (TABLE, CHAINED, PAGED)

    def contains(self, batch: Batch, *, threads: int = 1) -> npt.NDArray[np.bool_]:
        """Tell of each key of a batch whether it is there."""
        keys = batch.keys(as_text=self.exact)
        if self._kind in _PLAIN_FILTERS:
            source, _ = _bulk.key_source(keys)
            found: npt.NDArray[np.bool_] = self._structure._contains_from(source, threads)
        elif self._kind == TABLE:
            found = self._structure._contains_many(_words(keys, self._structure._seed), threads)
        elif self._kind == PAGED:
            found = self._structure.contains_many(keys)
        else:
            found = self._structure.contains_many(keys, threads=threads)
        return found


def _words(keys: object, seed: int) -> npt.NDArray[np.uint64]:
    if isinstance(keys, _bulk.Lines):
        return _core.stored_lines(keys.block, keys.separator.decode(), keys.crlf, seed)
    if isinstance(keys, _bulk.Spans):
        return _core.stored_spans(keys.data, keys.offsets, seed)
    column: Any = keys
    schema, array = column.__arrow_c_array__()
    return _core.stored_arrow(None, schema, array, _DIGEST, seed)


def kind_of(path: str) -> int:
    """Tell what a file holds, by its number in KINDS; FormatError if that is nothing of ours."""
    if os.path.isfile(os.path.join(path, "manifest.json")):
        return SHARDED
    if not stat.S_ISREG(check_readable(path)):
        raise click.ClickException(f"{path}: not a regular file, and cannot be mapped: copy it to one first")
    try:
        data = _files.map_file(path)
        head = next((data[at : at + 16] for at in (0, 4096) if data[at : at + 8] == b"EVENBINS"), b"")
        if int.from_bytes(head[12:16], "little") == PAGED:  # it has two headers, of which one may be damaged
            return PAGED
        found = _core.file_kind(data)
    except _core.FormatError as error:
        raise _core.FormatError(f"{path}: {error}") from None
    if found not in KINDS:
        raise _core.FormatError(f"{path}: it holds kind {found}, which this version does not know")
    return found


def open_structure(path: str, *, verify: bool) -> tuple[int, Any]:
    """Open a file of any kind, read-only; give its kind and the library's object."""
    kind = kind_of(path)
    _, module, name = KINDS[kind]
    return kind, getattr(import_module(module), name).open(path, verify=verify)


def open_members(path: str, *, verify: bool) -> Members:
    """Open a file as a set of lines."""
    kind = kind_of(path)
    what, module, name = KINDS[kind]
    if kind in (6, 9, 10, 11, 12, 14):
        raise click.ClickException(
            f"{path}: it holds {what}, which cannot say what is in it: name a filter or a table, or use "
            "'evenbins inspect'"
        )
    try:
        if kind in _PLAIN_FILTERS:
            return Members(_core.Filter(_files.map_file(path), kind, True, verify), kind)
        if kind == TABLE:
            table = _core.Table(_files.map_file(path), True, verify)
            return Members(_of_text(table, table._core[2], path, what), kind)
    except _core.FormatError as error:
        raise _core.FormatError(f"{path}: {error}") from None
    opened = getattr(import_module(module), name).open(path, verify=verify)
    return Members(opened if kind in (0, 4) else _of_text(opened, opened._key_type, path, what), kind)


def _of_text(table: Any, key_type: int, path: str, what: str) -> Any:
    if key_type != _DIGEST:
        raise click.ClickException(
            f"{path}: it holds {what} of integers, and lines are text: name a filter, or a table with "
            "key_dtype='digest'"
        )
    return table

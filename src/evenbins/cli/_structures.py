"""What a file of evenbins holds, opened: as a set of lines for `query`, as itself for `inspect` and `merge`.

    kind of the file ──▶ Members    "is this line in it?", straight from the core: no plan, no theory, so that
                                    `query` starts as fast as NumPy
                     ──▶ open_structure   the library's own class

A kind without membership (a sketch, a summary, a ring) raises a one-line error.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import click

from evenbins import _bulk, _core, _mapped_files, structure
from evenbins._console import check_readable
from evenbins.structure import Kind

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from evenbins.cli._inputs import Batch

__all__ = ["Members", "kind_of", "open_members", "open_structure"]

_DIGEST = 3  # the number of key_dtype "digest"


class Members:
    """A set of lines."""

    def __init__(self, structure: Any, kind: Kind) -> None:
        self._structure, self._kind = structure, kind

    @property
    def exact(self) -> bool:
        """Whether it is a table: keys are text, and nothing is found that is not there."""
        return self._kind.family == "tables"

    def contains(self, batch: Batch, *, threads: int | None = None) -> npt.NDArray[np.bool_]:
        """Return for each key of a batch whether it is there."""
        keys, threads = batch.keys(as_text=self.exact), _bulk.checked_threads(threads)
        if isinstance(self._structure, _core.Filter):
            source, _ = _bulk.key_source(keys)
            found: npt.NDArray[np.bool_] = self._structure._contains_from(source, threads)
        elif isinstance(self._structure, _core.Table):
            found = self._structure._contains_many(_words_of(keys, self._structure._seed), threads)
        else:
            found = self._structure.contains_many(keys, threads=threads)
        return found


def _words_of(keys: object, seed: int) -> npt.NDArray[np.uint64]:
    if isinstance(keys, _bulk.Lines):
        return _core.stored_lines(keys.block, keys.separator.decode(), keys.crlf, seed)
    if isinstance(keys, _bulk.Spans):
        return _core.stored_spans(keys.data, keys.offsets, seed)
    column: Any = keys
    schema, array = column.__arrow_c_array__()
    return _core.stored_arrow(None, schema, array, _DIGEST, seed)


def kind_of(path: str) -> Kind:
    """Return what a file holds; FormatError if that is nothing of ours."""
    if not os.path.isdir(path) and not stat.S_ISREG(check_readable(path)):
        raise click.ClickException(f"{path}: not a regular file, and cannot be mapped: copy it to one first")
    return structure.kind_of_file(path)


def open_structure(path: str, *, verify: bool) -> tuple[Kind, Any]:
    """Open a file of any kind, read-only; return its kind and the library's object."""
    kind = kind_of(path)
    return kind, kind.cls.open(path, verify=verify)


def open_members(path: str, *, verify: bool, preload: bool = False) -> Members:
    """Open a file as a set of lines."""
    kind = kind_of(path)
    if "members" not in kind.can:
        raise click.ClickException(
            f"{path}: it holds {kind.title}, which has no membership test: name a filter or a table, or "
            "use 'evenbins inspect'"
        )
    try:
        if kind.policies:  # one filter of the core
            data = _mapped_files.map_file(path)
            with _mapped_files.advised(data, path, whole=verify, preload=preload):
                return Members(_core.Filter(data, kind.number, True, verify), kind)
        if kind.name == "multilevel-table":
            data = _mapped_files.map_file(path)
            with _mapped_files.advised(data, path, whole=verify, preload=preload):
                table = _core.Table(data, True, verify)
            _, _, key_type, *_ = table._core
            return Members(_check_text_keys(table, key_type, path, kind.title), kind)
    except _core.FormatError as error:
        raise _core.FormatError(f"{path}: {error}") from None
    opened = kind.cls.open(path, verify=verify, preload=preload)
    if kind.family == "tables":
        _check_text_keys(opened, opened._key_type, path, kind.title)
    return Members(opened, kind)


def _check_text_keys(table: Any, key_type: int, path: str, what: str) -> Any:
    if key_type != _DIGEST:
        raise click.ClickException(
            f"{path}: it holds {what} of integers, and lines are text: name a filter, or a table with "
            "key_dtype='digest'"
        )
    return table

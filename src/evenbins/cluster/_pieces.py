"""Keys in pieces: files cut so that workers can read them apart, partitions of Dask collections.

    'data/*.parquet'  ──▶ row groups          'lines/*.txt' ──▶ ranges of 64 MB, cut at line ends
    'data/*.csv'      ──▶ files               bags, dataframes ──▶ their partitions

A piece is a few words (path and range): a task that gets it reads the file itself, so every worker must see
the path. Reading a piece again gives the same keys: a task that is repeated changes nothing.

Keys are what they are elsewhere in the library: a Parquet column's strings, bytes or integers; a line's
bytes; of CSV always the text of the field, never a guessed number, since the guess would depend on the
file. A null is an error that says so.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evenbins import _arguments as arguments
from evenbins import _core
from evenbins._bulk import Lines
from evenbins.cluster.libraries import library

__all__ = [
    "ColumnPiece", "Piece", "TextPiece", "count_of", "file_pieces", "group_by_weight", "key_batches",
    "one_column",
]  # fmt: skip

TEXT_PIECE = 64 << 20
_BATCH_ROWS = 1 << 18
_SUFFIXES = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".csv.gz": "csv", ".txt": "text", ".text": "text",
    ".lst": "text", ".list": "text", ".keys": "text",
}  # fmt: skip
_FORMATS = ("parquet", "csv", "text")


@dataclass(frozen=True, slots=True)
class ColumnPiece:
    """One column: of a row group of a Parquet file, or of a CSV file with a header line."""

    path: str
    column: str
    weight: int
    rows: int | None = None
    row_group: int | None = None

    def batches(self) -> Iterator[Any]:
        """Yield the keys, batch by batch."""
        with contextlib.ExitStack() as stack:
            if self.row_group is None:
                pa, csv = library("pyarrow", "dask"), library("pyarrow.csv", "dask")
                types = {self.column: pa.string()}
                text = csv.ConvertOptions(include_columns=[self.column], column_types=types)
                found = stack.enter_context(csv.open_csv(self.path, convert_options=text))
            else:
                file = stack.enter_context(library("pyarrow.parquet", "dask").ParquetFile(self.path))
                groups, columns = [self.row_group], [self.column]
                found = file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=columns, use_threads=False)
            for batch in found:
                yield batch.column(0)


@dataclass(frozen=True, slots=True)
class TextPiece:
    """The lines of a file that begin in a range of its bytes."""

    path: str
    start: int
    stop: int
    rows: int | None = None

    @property
    def weight(self) -> int:
        """The work, as bytes."""
        return self.stop - self.start

    def batches(self) -> Iterator[Any]:
        """Yield the keys: one block of lines."""
        with open(self.path, "rb") as file:
            if self.start:  # the line that crosses into this piece belongs to the one before
                file.seek(self.start - 1)
                file.readline()
            begin = file.tell()
            if begin >= self.stop:
                return
            block = file.read(self.stop - begin)
            if not block.endswith(b"\n"):
                block += file.readline()
            if block and not block.endswith(b"\n"):
                block += b"\n"  # the file's last line
        if block:
            yield Lines(block, b"\n")


Piece = ColumnPiece | TextPiece


def key_batches(part: object, column: str | None) -> Iterator[Any]:
    """Yield the keys of a piece or of a partition that was computed, as bulk calls take them."""
    if isinstance(part, Piece):
        yield from part.batches()
    elif type(part).__module__.partition(".")[0] == "pandas":
        pa = library("pyarrow", "dask")
        dtype = part.dtype  # type: ignore[attr-defined]
        plain = getattr(dtype, "kind", "O") in "iub" and type(dtype).__module__.startswith("numpy")
        yield part if plain else pa.Array.from_pandas(part)
    else:
        items: Iterable[Any] = part  # type: ignore[assignment]  # of a bag
        yield [item[column] for item in items] if column is not None else list(items)


def count_of(batch: Any) -> int:
    """Count the keys of a batch."""
    if isinstance(batch, Lines):
        return _core.count_byte(batch.block, batch.separator.decode())
    return len(batch)


def file_pieces(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    column: str | None = None,
    format: str | None = None,
) -> list[Piece]:
    """Cut files, named by paths and globs, into pieces; the same in whatever order they are named."""
    if format is not None:
        arguments.one_of("format", format, _FORMATS, "Leave it out for the suffix")
    found: set[str] = set()
    for each in [paths] if isinstance(paths, str | os.PathLike) else paths:
        name = os.fspath(each)
        matches = [name] if os.path.exists(name) else sorted(glob.glob(name, recursive=True))
        for match in matches:
            found |= set(_files_in(match)) if os.path.isdir(match) else {match}
        if not matches:
            raise FileNotFoundError(f"there is no file {name}")
    pieces: list[Piece] = []
    for path in sorted(found):
        path = os.path.abspath(path)  # a worker may stand elsewhere
        how = format or _format_of(path)
        if how == "parquet":
            pieces += _parquet(path, column)
        elif how == "csv":
            with library("pyarrow.csv", "dask").open_csv(path) as reader:
                name = one_column(column, reader.schema.names, f" in {path}")
            pieces.append(ColumnPiece(path, name, os.path.getsize(path)))
        else:
            if column is not None:
                raise arguments.unmet("column", f" is for Parquet and CSV; {path} holds lines. Leave it out")
            size = os.path.getsize(path)
            starts = range(0, size, TEXT_PIECE)
            pieces += [TextPiece(path, at, min(at + TEXT_PIECE, size)) for at in starts]
    return pieces


def _files_in(folder: str) -> list[str]:
    return [
        os.path.join(base, name)
        for base, _, names in os.walk(folder)
        for name in names
        if not name.startswith(("_", "."))
    ]


def _format_of(path: str) -> str:
    name = path.lower()
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if name.endswith(suffix):
            return _SUFFIXES[suffix]
    raise ValueError(f"format must be given for {path}: its suffix is not one of {', '.join(_SUFFIXES)}")


def _parquet(path: str, column: str | None) -> list[Piece]:
    pq = library("pyarrow.parquet", "dask")
    with pq.ParquetFile(path) as file:
        name = one_column(column, file.schema_arrow.names, f" in {path}")
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        return [
            ColumnPiece(path, name, g.num_rows, g.num_rows, i) for i, g in enumerate(groups) if g.num_rows
        ]


def one_column(column: str | None, names: Sequence[str], where: str = "") -> str:
    """Return the column that was asked for, or the only one there is."""
    if column is None and len(names) == 1:
        return names[0]
    if column is None or column not in names:
        text = f" must be one of {', '.join(names)}{where}; got {column!r}. Name one of them"
        raise arguments.unmet("column", text)
    return column


def group_by_weight(parts: Sequence[Any], groups: int) -> list[list[Any]]:
    """Cut a sequence into about `groups` runs of about equal weight."""
    weights = [each.weight if isinstance(each, Piece) else 1 for each in parts]
    total, done = max(1, sum(weights)), 0
    found: list[list[Any]] = [[] for _ in range(groups)]
    for each, weight in zip(parts, weights, strict=True):
        found[min(groups - 1, (2 * done + weight) * groups // (2 * total))].append(each)
        done += weight
    return [each for each in found if each]

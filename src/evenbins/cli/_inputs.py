"""Keys in: lines, or a column of CSV or Parquet, compressed or not, in batches that meet the core in bulk.

    a file, a pipe, - ──▶ name, first bytes: gzip, zstd, Parquet? ──▶ blocks ──▶ batches of lines or records

A batch has its keys and their number, and returns what it read for those that a mask selects: lines and
records of CSV byte for byte; of Parquet the keys, one per line.

Invariants
- A line from a slow pipe is not kept waiting: what is there is read, answered and written.
- Plain lines lie in one buffer, which is filled again and again: a batch is good until the next one is asked
  for. (Fresh blocks, cut and joined, took half as long again for a whole query.)
- What cannot be rewound (a pipe, whatever its name) is copied to a temporary file if it must be counted
  first or is Parquet.
- A name that says Parquet, gzip, zstd or text decides; without one the first bytes do, and of Parquet the
  last.
- Whatever is wrong with an input is one line that names it.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

import click

from evenbins import _compressed, _core
from evenbins._bulk import Lines, Spans
from evenbins.cli._blocks import (
    BLOCK_BYTES,
    PlainBytes,
    arrow_modules,
    ends_as_parquet,
    first_bytes,
    read_blocks,
    read_of,
    readinto_of,
)  # fmt: skip
from evenbins.cli._names import readable_names

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Mask = npt.NDArray[np.bool_]

__all__ = ["LINES", "Batch", "How", "Input", "binary_option", "null_option", "open_inputs"]

LINES = click.Path(readable=False, allow_dash=True)
null_option = click.option(
    "-0", "--null", is_flag=True, help="Lines end with a NUL byte; newlines are ordinary bytes."
)
binary_option = click.option(
    "-U", "--binary", is_flag=True, help=r"Bytes as they are: no \r is dropped, nothing unpacked."
)

_MOST_RECORD_BYTES = 1 << 26  # of CSV: a longer one is a quote that was never closed
_BATCH_ROWS = 1 << 16
_SUFFIXES = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".parquet": "parquet", ".pq": "parquet"}
_TEXT_SUFFIXES = (".txt", ".text", ".csv", ".tsv", ".lst", ".list", ".log")
_CONTROL_BYTES = [bytes([code]) for code in range(32) if code not in b"\t\n\r"]  # no text holds them
_OPEN_QUOTE = "a quote is opened and never closed: repair it"


class How:
    """How inputs are read: lines by their separator, or a column."""

    __slots__ = ("binary", "column", "separator")

    def __init__(self, separator: bytes = b"\n", binary: bool = False, column: str | None = None) -> None:
        self.separator, self.binary, self.column = separator, binary, column


class LineBatch:
    """Whole lines."""

    __slots__ = ("block", "how")

    def __init__(self, block: bytes | memoryview, how: How) -> None:
        self.block, self.how = block, how

    def keys(self, *, as_text: bool = False) -> object:
        """Return the keys as bulk calls take them."""
        return Lines(self.block, self.how.separator, self.how.binary)

    def __len__(self) -> int:
        return _core.count_byte(self.block, self.how.separator.decode())

    def select(self, chosen: Mask, *, invert: bool) -> bytes:
        """Return the lines that were chosen, or the others."""
        return _core.select_lines(self.block, self.how.separator.decode(), chosen, invert)


class CsvBatch:
    """Whole records of CSV, and one field of each."""

    __slots__ = ("block", "ends", "fields", "starts")

    def __init__(
        self, block: bytes, fields: Spans, starts: npt.NDArray[np.uint64], ends: npt.NDArray[np.uint64]
    ) -> None:
        self.block, self.fields, self.starts, self.ends = block, fields, starts, ends

    def keys(self, *, as_text: bool = False) -> object:
        """Return the keys as bulk calls take them."""
        return self.fields

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, chosen: Mask, *, invert: bool) -> bytes:
        """Return the records that were chosen, or the others."""
        return _core.select_spans(self.block, self.starts, self.ends, chosen, invert)


class ColumnBatch:
    """Rows of a Parquet file's column, without nulls."""

    __slots__ = ("column", "how")

    def __init__(self, column: Any, how: How) -> None:
        self.column, self.how = column, how

    def keys(self, *, as_text: bool = False) -> object:
        """Return the keys as bulk calls take them: integers stay integers unless text is wanted."""
        arrow = import_module("pyarrow")
        is_integer = arrow.types.is_integer(self.column.type)
        return self.column.cast("string") if as_text and is_integer else self.column

    def __len__(self) -> int:
        return len(self.column)

    def select(self, chosen: Mask, *, invert: bool) -> bytes:
        """Return the keys that were chosen, or the others, as lines."""
        arrow = import_module("pyarrow")
        found = self.column.filter(arrow.array(chosen != invert))
        kind = arrow.types
        if kind.is_integer(found.type):
            found = found.cast("string")
        if kind.is_string(found.type) or kind.is_large_string(found.type):  # as bytes: it may be no UTF-8
            found = found.cast("binary" if kind.is_string(found.type) else "large_binary")
        texts = found.to_pylist()
        return b"".join(each + self.how.separator for each in texts)


Batch = LineBatch | CsvBatch | ColumnBatch


class Input:
    """A file or standard input ("-"), which can be counted before it is read.

    Attributes
    ----------
    nulls
        Rows without a key, which were left out; of Parquet alone.
    one_line_of_many
        It has carriage returns and no newline, and was read as a single line.
    """

    def __init__(self, name: str, how: How) -> None:
        self.name = name
        self.nulls = 0
        self.one_line_of_many = False
        self._how = how
        self._title = "standard input" if name == "-" else name
        self._suffix = os.path.splitext(name)[1].lower()
        self._copy: IO[bytes] | None = None

    def count(self, advance: Callable[[int], None]) -> int:
        """Count the keys; `batches` can still be called."""
        with self._open() as opened:
            file = opened if opened.seekable() else self._spool(b"", opened)
            start = file.tell()
            file, chunks, format = self._chunks(file, advance)
            if self._how.column is not None or format == "parquet":
                total = sum(len(batch) for batch in self._batches(file, chunks, format))
            else:
                total = self._count_lines(chunks)
            self.nulls, self.one_line_of_many = 0, False
            file.seek(start)
        return total

    def batches(self, advance: Callable[[int], None] = lambda _: None) -> Iterator[Batch]:
        """Return the keys in batches; to a last line that has no newline one is added."""
        with self._open() as opened:
            file, chunks, format = self._chunks(opened, advance)
            yield from self._batches(file, chunks, format)

    def _error(self, text: str, *, record: int | None = None) -> click.ClickException:
        where = self._title if record is None else f"{self._title}, record {record}"
        return click.ClickException(f"{where}: {text}")

    # --- bytes ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        if self._copy is not None:
            yield self._copy
        elif self.name != "-":
            with open(self.name, "rb") as file:
                yield file
        elif sys.stdin is None:
            raise OSError(errno.EBADF, "it is closed", "standard input")
        else:
            yield sys.stdin.buffer

    def _spool(self, first: bytes, file: IO[bytes]) -> IO[bytes]:
        """Copy what cannot be rewound: the bytes read already, and the rest."""
        import tempfile

        copy: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (it goes with this object)
        for block in itertools.chain([first], read_blocks(file)):
            try:
                copy.write(block)
                copy.flush()
            except OSError as error:
                raise OSError(error.errno, f"{error.strerror} (the copy of a pipe; TMPDIR says where)",
                              tempfile.gettempdir()) from None  # fmt: skip
        copy.seek(0)
        self._copy = copy
        return copy

    def _chunks(
        self, file: IO[bytes], advance: Callable[[int], None]
    ) -> tuple[IO[bytes], Iterator[bytes], str | None]:
        """Return the file or its copy, what is in it, unpacked, and its format."""
        first = first_bytes(file)
        format = None if self._how.binary else _compressed.format_of(first)
        if format == "parquet" and self._suffix not in _TEXT_SUFFIXES and not file.seekable():
            file = self._spool(first, file)
            first = first_bytes(file)
        if first and not self._how.binary:
            format = self._check_format(format, first, file)
        plain = PlainBytes(first, file, advance)
        if format in (None, "parquet"):
            return file, plain, format
        return file, self._unpack(plain, format or ""), format

    def _check_format(self, format: str | None, first: bytes, file: IO[bytes]) -> str | None:
        """Return the format, by the name before the content; refuse the two if they contradict each other."""
        named = _SUFFIXES.get(self._suffix)
        if named is not None and format != named:
            raise self._error(
                f"by its name {named}, but it does not begin as such a file does: check it, "
                "rename it, or read it as lines with -U"
            )
        if named is not None or format != "parquet":
            return format
        is_text = first[4:5] not in _CONTROL_BYTES
        if self._suffix in _TEXT_SUFFIXES:
            if is_text:
                return None
            raise self._error(
                "by its name text, but it begins as Parquet does: rename it, or read it as lines with -U"
            )
        return None if is_text and not ends_as_parquet(file) else format

    def _unpack(self, chunks: Iterator[bytes], format: str) -> Iterator[bytes]:
        try:
            yield from _compressed.unpack(read_of(chunks), format, self._title)
        except _compressed.CompressedError as error:
            if self._suffix in _SUFFIXES:
                raise
            raise _compressed.CompressedError(f"{error}, or read it as lines with -U") from None

    # --- lines ----------------------------------------------------------------------------------------

    def _count_lines(self, chunks: Iterator[bytes]) -> int:
        lines, ends, separator = 0, self._how.separator, self._how.separator.decode()
        readinto, buffer = readinto_of(chunks), memoryview(bytearray(BLOCK_BYTES))
        while size := readinto(buffer):
            lines += _core.count_byte(buffer[:size], separator)
            ends = bytes(buffer[size - 1 : size])
        return lines + (ends != self._how.separator)

    def _batches(self, file: IO[bytes], chunks: Iterator[bytes], format: str | None) -> Iterator[Batch]:
        if format == "parquet":
            return self._rows(file)
        if self._how.column is not None:
            return self._records(chunks, self._how.column)
        return self._lines(chunks)

    def _lines(self, chunks: Iterator[bytes]) -> Iterator[Batch]:
        """Fill one buffer again and again; yield the whole lines in it, and move the rest to its start."""
        separator, whole, filled = self._how.separator, 0, 0
        readinto, buffer = readinto_of(chunks), bytearray(BLOCK_BYTES)
        while size := readinto(memoryview(buffer)[filled:]):
            end = buffer.rfind(separator, filled, filled + size) + 1
            filled += size
            if end:
                yield LineBatch(memoryview(buffer)[:end], self._how)
                whole += 1
                buffer[: filled - end] = buffer[end:filled]
                filled -= end
            if filled == len(buffer):
                buffer = buffer + bytes(len(buffer))  # a long line; a new one, since a batch may hold the old
        if filled:
            last = bytes(buffer[:filled]) + separator
            returns = not whole and separator == b"\n" and not self._how.binary
            self.one_line_of_many = returns and b"\r" in last[:-2]
            yield LineBatch(last, self._how)

    # --- CSV ------------------------------------------------------------------------------------------

    def _records(self, chunks: Iterator[bytes], column: str) -> Iterator[Batch]:
        layout: tuple[str, int] | None = None
        pending, records = b"", 0
        for chunk in itertools.chain(chunks, [None]):
            block = pending + chunk if chunk is not None else pending + b"\n" * (not pending.endswith(b"\n"))
            if layout is None:
                found = self._header(block, column, whole=chunk is None)
                if found is None:
                    if len(block) > _MOST_RECORD_BYTES:
                        raise self._error(
                            f"no line of names in {len(block):,} bytes: is it CSV? Leave out --column"
                        )
                    pending = block
                    continue
                layout, block = found[:2], block[found[2] :]
            delimiter, index = layout
            data, offsets, starts, ends, consumed, bad = _core.csv_column(block, delimiter, index)
            if len(starts):
                yield CsvBatch(block, Spans(data, offsets), starts, ends)
            records += len(starts)
            if bad >= 0:
                columns = f"{bad} column{'s' * (bad != 1)}, but {column!r} is number {index + 1}"
                raise self._error(f"{columns}: repair or remove it", record=records + 1)
            pending = block[consumed:]
            if len(pending) > _MOST_RECORD_BYTES or (chunk is None and pending):
                raise self._error(_OPEN_QUOTE, record=records + 1)

    def _header(self, block: bytes, column: str, *, whole: bool) -> tuple[str, int, int] | None:
        """Return the delimiter, the column's number and where records begin; None if names are missing."""
        found = self._line_of_names(block, whole=whole)
        return found and (found[0], self._column_number(found[1], column, "--column"), found[2])

    def _column_number(self, names: list[str], column: str, option: str) -> int:
        if column not in names:
            there = ", ".join(names).encode("utf-8", "backslashreplace").decode()
            raise self._error(f"no column {column!r}: {option} must be one of {there}")
        if (number := names.count(column)) > 1:
            raise self._error(f"{number} columns {column!r}: rename all but one")
        return names.index(column)

    def _line_of_names(self, block: bytes, *, whole: bool) -> tuple[str, list[str], int] | None:
        """Return the delimiter, the names and where records begin; None if the line is not whole yet."""
        import csv

        bom = 3 if block.startswith(b"\xef\xbb\xbf") else 0
        line = block[bom:].lstrip(b"\r\n").partition(b"\n")[0]
        if b"\0" in line or block.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise self._error("UTF-16 or no text: convert it, as iconv -f UTF-16 -t UTF-8 does")
        delimiter = next((each for each in "\t,;" if each.encode() in line), ",")
        _, _, starts, ends, _, _ = _core.csv_column(memoryview(block)[bom:], delimiter, 0)
        if not len(ends):
            if whole and block.strip():
                raise self._error(_OPEN_QUOTE)
            if whole:
                raise self._error("empty: CSV begins with a line of names")
            return None
        end = bom + int(ends[0])
        text = block[bom + int(starts[0]) : end].decode("utf-8", "surrogateescape")
        try:
            names = next(csv.reader([text], delimiter=delimiter))
        except csv.Error as error:  # a bare carriage return, a name of 128 KiB
            raise self._error(f"its line of names cannot be read ({error}): repair it") from None
        return delimiter, names, end

    # --- Parquet --------------------------------------------------------------------------------------

    def _rows(self, file: IO[bytes]) -> Iterator[Batch]:
        arrow, parquet = arrow_modules(self._error)
        try:
            file.seek(0)
            opened = parquet.ParquetFile(file)
            names = opened.schema_arrow.names
            column = self._how.column if self._how.column is not None or len(names) != 1 else names[0]
            if column not in names:
                missing = "Parquet: --column is missing; it"
                what = missing if column is None else f"no column {column!r}: --column"
                raise self._error(f"{what} must be one of {', '.join(names)}")
            for batch in opened.iter_batches(_BATCH_ROWS, columns=[column], use_threads=False):
                found = batch.column(0)
                if arrow.types.is_dictionary(found.type):
                    found = found.dictionary_decode()
                if found.null_count:
                    self.nulls += found.null_count
                    found = found.drop_null()
                if not any(check(found.type) for check in (
                    arrow.types.is_integer, arrow.types.is_string, arrow.types.is_large_string,
                    arrow.types.is_binary, arrow.types.is_large_binary,
                )):  # fmt: skip
                    raise self._error(
                        f"column {column!r} holds {found.type}, and keys are text, bytes or "
                        "integers: name another column, or convert it"
                    )
                yield ColumnBatch(found, self._how)
        except (
            arrow.ArrowException,
            OSError,
            UnicodeDecodeError,
        ) as error:  # of names
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise self._error(
                f"not a whole Parquet file ({error}): check it, or read it as lines with -U"
            ) from None


def open_inputs(names: Sequence[str], how: How) -> list[Input]:
    """Check that all inputs can be read, before anything is done; folders and patterns become files."""
    names = readable_names(names)
    if how.column is not None and how.binary:
        raise click.ClickException("-U is for lines, --column for CSV and Parquet: leave out one of the two")
    return [Input(name, how) for name in names]

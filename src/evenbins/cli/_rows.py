"""Rows in: lines, JSONL, CSV or Parquet in batches of whole rows, each with its keys, its nulls, and itself.

    blocks of bytes ──▶ Rows: keys (of the rows that have one), nulls, select(mask) ──▶ a sink (_sinks.py)

A batch returns the rows that a mask selects: lines, lines of JSON and records of CSV byte for byte, of
Parquet a table with all columns. A format's head (the line of names of CSV, the schema of Parquet) comes with
the first batch of the first input; an input with another head is an error.

Invariants
- A batch owns its bytes until `release`, so that one thread reads, one decides and one writes.
- Whatever is wrong with a row is one line that names file and row: lines of JSONL are counted from 1, records
  of CSV and rows of Parquet too, the line of names not.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Protocol

import click
import numpy as np

from evenbins import _compressed, _core
from evenbins._bulk import Lines, Spans
from evenbins._console import check_readable
from evenbins.cli import _names
from evenbins.cli._blocks import readinto_of
from evenbins.cli._inputs import How, Input
from evenbins.cli._keys import BadValueError, KeyRule, json_parser, normalized
from evenbins.cli._output import describe
from evenbins.deduplication.fields import Fields

if TYPE_CHECKING:
    import numpy.typing as npt

    Mask = npt.NDArray[np.bool_]

__all__ = ["FORMATS", "ROW_BLOCK_BYTES", "Buffers", "Head", "RowInput", "Rows", "open_rows"]

FORMATS = ("lines", "jsonl", "csv", "parquet")
ROW_BLOCK_BYTES = 1 << 22
_MOST_RECORD_BYTES = 1 << 26  # of CSV: a longer one is a quote that was never closed


class Rows(Protocol):
    """A batch of whole rows.

    Attributes
    ----------
    keys : those of the rows that have one, as bulk calls take them
    nulls : which rows have none; None if all have one
    head : what comes before the first row of an output; None in all batches but the first
    """

    keys: object
    nulls: Mask | None
    head: Any

    def count(self) -> int:
        """Return the number of rows, by counting them if it is not known yet."""

    def select(self, chosen: Mask) -> Any:
        """Return the rows of a mask, as a sink takes them."""

    def take(self, chosen: Mask) -> Any:
        """Return the rows of a mask; nothing else can be selected afterwards."""

    def release(self) -> None:
        """Declare that its bytes are no longer needed."""


class Buffers:
    """Buffers that are filled again and again; as many as are under way at once.

    In large blocks the keys of a batch are looked up faster, since more reads of memory overlap: 46 ns per
    row in blocks of 4 MiB, 65 in those of 1 MiB (filters; exactly 115 and 146).
    """

    def __init__(self, nbytes: int | None = None) -> None:
        self._nbytes, self._free = nbytes or ROW_BLOCK_BYTES, list[bytearray]()

    def take(self, least: int = 0) -> bytearray:
        """Return a buffer of at least this size, and of a block."""
        size = max(self._nbytes, least)
        with contextlib.suppress(IndexError):
            buffer = self._free.pop()
            if len(buffer) >= size:
                return buffer
        return bytearray(size)

    def give(self, buffer: bytearray) -> None:
        """Take a buffer back, unless it was made for a very long line."""
        if len(buffer) <= 2 * self._nbytes:
            self._free.append(buffer)


class Head:
    """What all inputs have in common: the names of CSV, the schema of Parquet. One for each pass."""

    def __init__(self) -> None:
        self._first: tuple[str, object] | None = None

    def compare(self, source: str, head: object, what: str) -> bool:
        """Return whether this is the first head; raise an error if it differs from the first."""
        if self._first is None:
            self._first = source, head
            return True
        if self._first[1] != head:
            raise click.ClickException(
                f"{source}: its {what} differ from those of {self._first[0]}: one output has one set of "
                "columns, so convert the file, or give it an output of its own"
            )
        return False


class LineRows:
    """Lines, or lines of JSON, in a buffer of its own."""

    def __init__(
        self, buffer: bytearray, end: int, how: How, buffers: Buffers, *, lines: Mask | None = None
    ) -> None:
        self.block, self._buffer, self._buffers = memoryview(buffer)[:end], buffer, buffers
        self._separator, self.lines = how.separator.decode(), lines
        self.keys: object = Lines(self.block, how.separator, how.binary)
        self.nulls: Mask | None = None
        self.head: Any = None

    def count(self) -> int:
        """Return the number of rows, by counting them."""
        return _core.count_byte(self.block, self._separator) if self.lines is None else int(self.lines.sum())

    def select(self, chosen: Mask) -> bytes:
        """Return the rows of a mask, byte for byte."""
        return _core.select_lines(self.block, self._separator, self._of_lines(chosen), False)

    def take(self, chosen: Mask) -> memoryview:
        """Return the rows of a mask, moved to the beginning of the buffer."""
        return self.block[: _core.keep_lines(self.block, self._separator, self._of_lines(chosen))]

    def _of_lines(self, chosen: Mask) -> Mask:
        """Return the mask of lines: empty lines of JSON are no rows."""
        if self.lines is None:
            return chosen
        every = self.lines.copy()
        every[self.lines] = chosen
        return every

    def release(self) -> None:
        """Let the buffer be filled again."""
        self.keys = None  # which may refer to it
        self.block.release()
        self._buffers.give(self._buffer)


class CsvRows:
    """Records of CSV."""

    def __init__(
        self, block: bytes, starts: npt.NDArray[np.uint64], ends: npt.NDArray[np.uint64], keys: object,
        nulls: Mask | None,
    ) -> None:  # fmt: skip
        self._block, self._starts, self._ends = block, starts, ends
        self.keys, self.nulls, self.size = keys, nulls, len(starts)
        self.head: Any = None

    def count(self) -> int:
        """Return the number of records."""
        return self.size

    def select(self, chosen: Mask) -> bytes:
        """Return the records of a mask, byte for byte."""
        return _core.select_spans(self._block, self._starts, self._ends, chosen, False)

    take = select

    def release(self) -> None:
        """Do nothing: its bytes are not used again."""


class RowInput(Input):
    """A file or standard input as rows; it can be read again if it is a file or was copied to one.

    Attributes
    ----------
    format : one of FORMATS
    rows, kept : what the caller has counted so far
    """

    def __init__(self, name: str, how: How, format: str, rule: KeyRule) -> None:
        super().__init__(name, how)
        self.format, self.rule = format, rule
        self.rows = self.kept = 0
        self._start: int | None = None

    @property
    def title(self) -> str:
        """The name as messages show it."""
        return self._title

    @property
    def can_be_read_twice(self) -> bool:
        """Whether it is a regular file, or was copied to one."""
        if self._copy is not None:
            return True
        return self.name != "-" and stat.S_ISREG(check_readable(self.name))

    @property
    def is_regular(self) -> bool:
        """Whether it is a regular file, standard input included."""
        try:
            if self.name != "-":  # a named pipe can be opened once: its writer would go
                return self._copy is not None or stat.S_ISREG(os.stat(self.name).st_mode)
            with self._open() as file:
                return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        except (OSError, ValueError):  # no descriptor
            return False

    @property
    def separator(self) -> bytes:
        """What ends a line."""
        return self._how.separator

    @contextlib.contextmanager
    def reopened(self) -> Iterator[IO[bytes]]:
        """Open what can be read twice, at its beginning."""
        with self._open() as file:
            if self._copy is not None:
                file.seek(0)
            yield file

    def is_packed(self, file: IO[bytes]) -> bool:
        """Return whether a file that was just opened is compressed, by its first bytes."""
        first = file.read(4)
        file.seek(0)
        return not self._how.binary and _compressed.format_of(first) in ("gzip", "zstd")

    def unpacked(self, file: IO[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
        """Return what is in a file, unpacked."""
        return self._chunks(file, advance)[1]

    def make_readable_twice(self) -> None:
        """Copy what comes from a pipe to a temporary file."""
        if not self.can_be_read_twice:
            with self._open() as opened:
                self._spool(b"", opened)

    def batches_of_rows(
        self, advance: Callable[[int], None], head: Head, buffers: Buffers, *, keys: bool = True
    ) -> Iterator[Rows]:
        """Yield the rows; without `keys` they are only selected."""
        try:
            with self.reopened() as opened:
                if self.format == "parquet":
                    from evenbins.cli._parquet import table_rows

                    file = opened if opened.seekable() else self._spool(b"", opened)
                    yield from table_rows(self, file, advance, head, keys=keys)
                    return
                _, chunks, format = self._chunks(opened, advance)
                if format == "parquet":
                    raise self._error("it is Parquet: name it .parquet, or use --format parquet")
                if self.format == "csv":
                    yield from self._csv_rows(chunks, head, keys=keys)
                else:
                    yield from self._line_rows(chunks, buffers, keys=keys)
        except OSError as error:
            raise click.ClickException(describe(error, self._title)) from None

    def error(self, text: str) -> click.ClickException:
        """Return the error that names this input."""
        return self._error(text)

    def row_error(self, unit: str, number: int, text: str) -> click.ClickException:
        """Return the error that names a row."""
        return click.ClickException(f"{self._title}, {unit} {number}: {text}")

    def null_error(self, unit: str, number: int) -> click.ClickException:
        """Return the error for a row without a key."""
        return self.row_error(
            unit,
            number,
            f"no value for {self.rule.option} {self.rule.title}: repair it, or choose --nulls keep or one",
        )

    # --- lines and JSON -------------------------------------------------------------------------------

    def _blocks(self, chunks: Iterator[bytes], buffers: Buffers) -> Iterator[tuple[bytearray, int]]:
        """Yield buffers with whole lines from their start, and where these end."""
        separator, readinto = self._how.separator, readinto_of(chunks)
        buffer, filled, whole = buffers.take(), 0, 0
        while size := readinto(memoryview(buffer)[filled:]):
            end = buffer.rfind(separator, filled, filled + size) + 1
            filled += size
            if end:
                rest = filled - end
                following = buffers.take(2 * rest)
                following[:rest] = memoryview(buffer)[end:filled]
                yield buffer, end
                buffer, filled, whole = following, rest, whole + 1
            elif filled == len(buffer):
                buffer = buffer + bytes(len(buffer))  # a long line
        if filled:
            returns = not whole and self.format == "lines" and separator == b"\n" and not self._how.binary
            self.one_line_of_many = returns and b"\r" in buffer[: filled - 1]
            buffer[filled : filled + 1] = separator
            yield buffer, filled + 1

    def _line_rows(self, chunks: Iterator[bytes], buffers: Buffers, *, keys: bool) -> Iterator[Rows]:
        as_json = self.format == "jsonl" and bool(self.rule.fields)
        parse = json_parser(self.rule) if as_json and keys else None
        before, lines = 0, None
        for buffer, end in self._blocks(chunks, buffers):
            if as_json:
                found = bytes(memoryview(buffer)[:end]).split(self._how.separator)[:-1]
                blank = np.fromiter((not line or line.isspace() for line in found), np.bool_, len(found))
                lines = ~blank
            rows = LineRows(buffer, end, self._how, buffers, lines=lines)
            if parse is not None:
                self._parse(rows, found, parse, before)
                before += len(found)
            elif keys and self.rule.normalize is not None:
                separator, crlf = self._how.separator, Lines(b"", self._how.separator, self._how.binary).crlf
                texts = bytes(rows.block).split(separator)[:-1]
                rows.keys = [
                    self.rule.normalize(each.removesuffix(b"\r") if crlf else each) for each in texts
                ]
            yield rows

    def _parse(
        self, rows: LineRows, lines: Sequence[bytes], parse: Callable[[bytes], Any], before: int
    ) -> None:
        keys: list[Any] = []
        for number, line in enumerate(lines, before + 1):
            if not line or line.isspace():
                continue
            try:
                keys.append(parse(line))
            except BadValueError as error:
                raise self.row_error("line", number, str(error)) from None
        if None in keys:
            nulls = np.fromiter((key is None for key in keys), np.bool_, len(keys))
            if self.rule.nulls == "error":
                assert rows.lines is not None
                first = int(np.flatnonzero(rows.lines)[int(np.argmax(nulls))])
                raise self.null_error("line", before + 1 + first)
            rows.nulls = nulls
            keys = [key for key in keys if key is not None]
        several = len(self.rule.fields) > 1 and keys
        rows.keys = Fields(*map(list, zip(*keys, strict=True))) if several else keys

    # --- CSV ------------------------------------------------------------------------------------------

    def _csv_rows(self, chunks: Iterator[bytes], head: Head, *, keys: bool) -> Iterator[Rows]:
        layout: tuple[str, list[int]] | None = None
        pending, records = b"", 0
        for chunk in itertools.chain(chunks, [None]):
            block = pending + chunk if chunk is not None else pending + b"\n" * (not pending.endswith(b"\n"))
            first: bytes | None = None
            if layout is None:
                found = self._line_of_names(block, whole=chunk is None)
                if found is None:
                    if len(block) > _MOST_RECORD_BYTES:
                        raise self._error(
                            f"no line of names in {len(block):,} bytes: is it CSV? Use --format"
                        )
                    pending = block
                    continue
                delimiter, names, end = found
                columns = [self._column_number(names, each, self.rule.option) for each in self.rule.fields]
                layout = delimiter, columns or [0]
                first = block[:end] if head.compare(self._title, (delimiter, names), "columns") else None
                block = block[end:]
            rows, consumed = self._records_of(block, *layout, records, keys=keys)
            rows.head = first
            if rows.size or first is not None:
                yield rows
            records += rows.size
            pending = block[consumed:]
            if len(pending) > _MOST_RECORD_BYTES or (chunk is None and pending):
                raise self.row_error("record", records + 1, "a quote is opened and never closed: repair it")

    def _records_of(
        self, block: bytes, delimiter: str, columns: list[int], before: int, *, keys: bool
    ) -> tuple[CsvRows, int]:
        fields: list[tuple[bytes, npt.NDArray[np.uint64]]] = []
        for index in columns if keys else columns[:1]:
            data, offsets, starts, ends, consumed, bad = _core.csv_column(block, delimiter, index)
            if bad >= 0:
                name = self.rule.fields[columns.index(index)] if self.rule.fields else ""
                count = f"{bad} column{'s' * (bad != 1)}, but {name!r} is number {index + 1}"
                raise self.row_error("record", before + len(starts) + 1, f"{count}: repair or remove it")
            fields.append((data, offsets))
        rows = CsvRows(block, starts, ends, None, None)
        if keys and self.rule.fields:
            self._add_fields(rows, fields, before)
        elif keys:
            rows.keys = self._whole_records(block[:consumed], starts, ends)
        return rows, consumed

    def _add_fields(
        self, rows: CsvRows, fields: Sequence[tuple[bytes, npt.NDArray[np.uint64]]], before: int
    ) -> None:
        """Set keys and nulls: a field without a character is null."""
        nulls = np.full(rows.size, self.rule.empty_is_null)
        for _, offsets in fields:
            nulls &= offsets[1:] == offsets[:-1]
        if nulls.any():
            if self.rule.nulls == "error":
                raise self.null_error("record", before + 1 + int(np.argmax(nulls)))
            rows.nulls = nulls
        if len(fields) == 1 and self.rule.normalize is None:
            data, offsets = fields[0]
            if rows.nulls is not None:  # they take no bytes, so their offsets can be left out
                offsets = np.append(offsets[:-1][~nulls], offsets[-1])
            rows.keys = Spans(data, offsets)
            return
        there = ~nulls
        columns = [
            normalized(list(itertools.compress(_pieces(data, offsets), there)), self.rule)
            for data, offsets in fields
        ]
        several = [[each or None for each in column] for column in columns]
        rows.keys = Fields(*several) if len(several) > 1 else columns[0]

    def _whole_records(
        self, block: bytes, starts: npt.NDArray[np.uint64], ends: npt.NDArray[np.uint64]
    ) -> object:
        """Return the records as keys, without what ends their lines."""
        normalize = self.rule.normalize
        if normalize is None and _core.count_byte(block, "\n") == len(starts):
            return Lines(block, b"\n", self._how.binary)
        records = (block[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True))
        texts = (each.removesuffix(b"\n").removesuffix(b"\r") for each in records)
        return [each if normalize is None else normalize(each) for each in texts]


def _pieces(data: bytes, offsets: npt.NDArray[np.uint64]) -> Iterator[bytes]:
    return (data[start:end] for start, end in itertools.pairwise(offsets.tolist()))


# --- which format ------------------------------------------------------------------------------------------


def _format_of(name: str, *, has_key: bool) -> str:
    """Return the format of an input by its name, else by its first bytes where these can be read twice."""
    suffix, packed = _names.suffixes_of(name)
    if suffix in _names.PARQUET_SUFFIXES:
        return "parquet"
    if suffix in _names.JSON_SUFFIXES:
        return "jsonl"
    if suffix in _names.CSV_SUFFIXES:
        return "csv"
    first = b"" if packed else _peek(name)
    if first.startswith(b"PAR1") and suffix == "":
        return "parquet"
    if not has_key:
        return "lines"
    if first.lstrip().startswith(b"{"):
        return "jsonl"
    if not first or first.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        title = "standard input" if name == "-" else name
        raise click.ClickException(
            f"{title}: its name does not tell its format, which --key needs: give --format jsonl, csv or "
            "parquet"
        )
    return "csv"


def _peek(name: str) -> bytes:
    import sys

    if name == "-":
        peek: Callable[[int], bytes] | None = getattr(getattr(sys.stdin, "buffer", None), "peek", None)
        return b"" if peek is None else peek(1)
    if not stat.S_ISREG(check_readable(name)):
        return b""
    with open(name, "rb") as file:
        return file.read(4096)


def open_rows(names: Sequence[str], how: How, rule: KeyRule, format: str | None) -> list[RowInput]:
    """Check that all inputs can be read and have one format, before anything is done."""
    names = _names.readable_names(names)
    formats = [format or _format_of(name, has_key=bool(rule.fields)) for name in names]
    for name, found in zip(names, formats, strict=True):
        if found != formats[0]:
            raise click.ClickException(
                f"{name} is {found}, but {names[0]} is {formats[0]}: the inputs of one output have one "
                "format, so name one kind, or give --format"
            )
    found = formats[0]
    if found == "lines" and rule.fields:
        raise click.ClickException(
            f"{rule.option} is for JSONL, CSV and Parquet, not for lines: leave it out"
        )
    if found != "lines" and (how.binary or how.separator != b"\n") and found != "jsonl":
        raise click.ClickException(f"-0 and -U are for lines, and {names[0]} is {found}: leave them out")
    return [RowInput(name, how, found, rule) for name in names]

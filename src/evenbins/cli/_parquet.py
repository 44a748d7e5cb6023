"""Rows of Parquet, in and out: batches of all columns, and a file with the same schema and compression.

    a row group ──▶ batches of 2**16 rows, keys from the key's columns ──▶ filter by a mask ──▶ row groups
    again

Decoding, filtering and encoding release the GIL, so that reader, decision and writer work side by side. A
column that the input did not encode by a dictionary is written without one: the attempt took a third of the
time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from evenbins.cli._blocks import arrow_modules
from evenbins.cli._keys import normalized
from evenbins.deduplication.arrow_columns import filtered, is_text, readable
from evenbins.deduplication.fields import Fields

if TYPE_CHECKING:
    import numpy.typing as npt

    from evenbins.cli._rows import Head, RowInput, Rows

    Mask = npt.NDArray[np.bool_]

__all__ = ["ParquetHead", "ParquetSink", "table_rows"]

_BATCH_ROWS = 1 << 16
_GROUP_ROWS = 1 << 20  # of an output, at most; fewer if they have many bytes
_GROUP_BYTES = 1 << 24
_BUFFER_BYTES = 1 << 20
_WIDTHS = {"BOOLEAN": 0.125, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
_TEXT_WIDTH = 16  # of text a dictionary is worth while that takes less
_WORTH_IT = 0.9


class ParquetHead:
    """What an output takes over from the first input: schema, compression, dictionaries."""

    def __init__(self, schema: Any, metadata: Any) -> None:
        self.schema = schema
        self.compression: dict[str, str] = {}
        self.dictionary: list[str] = []
        if not metadata.num_row_groups:
            return
        group = metadata.row_group(0)
        for index in range(group.num_columns):
            column = group.column(index)
            name = column.path_in_schema
            self.compression[name] = "NONE" if column.compression == "UNCOMPRESSED" else column.compression
            # A dictionary that grew too large was given up: the values then take as much as they do plainly.
            plain = _WIDTHS.get(column.physical_type, _TEXT_WIDTH) * column.num_values
            if column.has_dictionary_page and column.total_uncompressed_size < _WORTH_IT * plain:
                self.dictionary.append(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ParquetHead) and bool(self.schema.equals(other.schema))

    __hash__ = None  # type: ignore[assignment]


class TableRows:
    """Rows of a Parquet file, with all columns."""

    def __init__(self, batch: Any, keys: object, nulls: Mask | None) -> None:
        self._batch, self.keys, self.nulls = batch, keys, nulls
        self._size: int = batch.num_rows
        self.head: Any = None

    def count(self) -> int:
        """Return the number of rows."""
        return self._size

    def select(self, chosen: Mask) -> Any:
        """Return the rows of a mask, with all columns."""
        return self._batch if chosen.all() else filtered(self._batch, chosen)

    take = select

    def release(self) -> None:
        """Let Arrow have its memory back."""
        self._batch = self.keys = None


def table_rows(
    source: RowInput, file: IO[bytes], advance: Callable[[int], None], head: Head, *, keys: bool
) -> Iterator[Rows]:
    """Yield the rows of a file of Parquet."""
    arrow, parquet = arrow_modules(source.error)
    arrow.set_memory_pool(arrow.system_memory_pool())  # as fast, and it needs less
    try:
        opened = parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        schema, rows = opened.schema_arrow, 0
        fields = source.rule.fields
        for name in fields:
            if name not in schema.names:
                there = ", ".join(schema.names)
                raise source.error(f"no column {name!r}: {source.rule.option} must be one of {there}")
            if schema.names.count(name) > 1:
                raise source.error(f"{schema.names.count(name)} columns {name!r}: rename all but one")
        if source.rule.option == "--column" and not fields and len(schema.names) != 1:
            there = ", ".join(schema.names)
            raise source.error(f"Parquet: --column is missing; it must be one of {there}")
        own = ParquetHead(schema, opened.metadata)
        first = own if head.compare(source.title, own, "columns or their types") else None
        total, size, done = opened.metadata.num_rows, os.fstat(file.fileno()).st_size, 0
        if first is not None:
            empty = TableRows(arrow.RecordBatch.from_pylist([], schema=schema), [], None)
            empty.head = first
            yield empty
        for batch in opened.iter_batches(_BATCH_ROWS, use_threads=False):
            found = TableRows(batch, None, None)
            if keys:
                numbers = [schema.names.index(name) for name in fields] or list(range(batch.num_columns))
                _add_keys(source, found, batch, numbers, rows)
            rows += batch.num_rows
            share = size * rows // max(total, 1)
            advance(share - done)
            done = share
            yield found
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        text = " ".join(str(error).split())
        raise source.error(f"not a whole Parquet file ({text}): check it") from None


def _add_keys(source: RowInput, rows: TableRows, batch: Any, numbers: list[int], before: int) -> None:
    """Set keys and nulls of a batch: all columns of the key are null."""
    columns = [readable(batch.column(number)) for number in numbers]
    nulls: Any = None
    for column in columns:
        if source.rule.fields or len(numbers) == 1:
            missing = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else False
            nulls = missing if nulls is None else nulls & missing
    if nulls is not None and nulls is not False and np.any(nulls):
        if source.rule.nulls == "error":
            raise source.null_error("row", before + 1 + int(np.argmax(nulls)))
        rows.nulls = nulls
        chosen = import_module("pyarrow").array(~nulls)
        columns = [column.filter(chosen) for column in columns]
    rows.keys = _keys_of(source, columns)


def _keys_of(source: RowInput, columns: list[Any]) -> object:
    """Return a single column of text, bytes or integers as it is; all else as fields with their types."""
    kinds: Any = import_module("pyarrow").types
    decoded = [each.dictionary_decode() if kinds.is_dictionary(each.type) else each for each in columns]
    if source.rule.normalize is not None:
        decoded = [
            normalized(each.to_pylist(), source.rule)
            if is_text(each.type) and not kinds.is_fixed_size_binary(each.type)
            else each
            for each in decoded
        ]
    column = decoded[0]
    if len(decoded) == 1 and (
        isinstance(column, list) or kinds.is_integer(column.type) or is_text(column.type)
    ):
        return column
    return Fields(*decoded)


class ParquetSink:
    """A file of Parquet that is written in row groups."""

    def __init__(self, descriptor: int) -> None:
        self._arrow: Any = import_module("pyarrow")
        self._file = os.fdopen(os.dup(descriptor), "wb")
        self._writer: Any = None
        self._pending: list[Any] = []
        self._rows = self._bytes = 0

    def begin(self, head: ParquetHead) -> None:
        """Write what comes before the first row."""
        parquet: Any = import_module("pyarrow.parquet")
        self._writer = parquet.ParquetWriter(
            self._file,
            head.schema,
            compression=head.compression or "snappy",
            use_dictionary=head.dictionary or False,
            write_batch_size=1 << 14,
        )

    def write(self, batch: Any) -> None:
        """Append rows."""
        if batch.num_rows:
            self._pending.append(batch)
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
            if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
                self._write_group()

    def _write_group(self) -> None:
        table = self._arrow.Table.from_batches(self._pending)
        self._writer.write_table(table, row_group_size=self._rows)
        self._pending, self._rows, self._bytes = [], 0, 0

    def finish(self) -> None:
        """Write what comes behind the last row."""
        if self._pending:
            self._write_group()
        self._writer.close()
        self._file.close()

    def abandon(self) -> None:
        """Close what is open; the file is of no use."""
        if self._writer is not None:
            self._writer.is_open = False  # or it would write a footer when it is collected
        with contextlib.suppress(OSError):
            self._file.close()

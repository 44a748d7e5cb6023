"""One column of a table, as keys of a bulk call.

A bulk call reads one column. What has several (a pyarrow `RecordBatchReader`, a DuckDB query, a Polars
`DataFrame`) says which with `column(source, name)`. The result speaks Arrow's PyCapsule protocol, so every
bulk call reads it, batch by batch and in place; so does any other consumer of Arrow streams.

A column keeps the batches that are being read alive as a whole: choose columns where the source can do so
cheaply (`frame["url"]`, `SELECT url`), and here where it cannot.
"""

from __future__ import annotations

from typing import Any

from evenbins import _arguments as arguments
from evenbins import _core
from evenbins._bulk import arrow_stream

__all__ = ["Column", "column"]


class Column:
    """A column of a table or of a stream of tables; see `column`."""

    __slots__ = ("_name", "_source")

    def __init__(self, source: Any, name: str) -> None:
        self._source, self._name = source, name

    @property
    def name(self) -> str:
        """The column's name."""
        return self._name

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the Arrow stream of the column: what a bulk call reads.

        Raises
        ------
        KeyError
            The table has no column of this name.
        TypeError
            The source is not a table, or the column holds Python objects (Polars).
        ValueError
            Two columns have this name, or the source refuses to be read again: a stream of pyarrow does not,
            and has no keys the second time.
        """
        if hasattr(self._source, "__arrow_c_stream__"):
            return _core.chosen_column(arrow_stream(self._source, self._name), None, None, self._name)
        schema, table = self._source.__arrow_c_array__()
        return _core.chosen_column(None, schema, table, self._name)

    def __repr__(self) -> str:
        return f"column({type(self._source).__name__}, {self._name!r})"


def column(source: object, name: str) -> Column:
    """Return one column of a table, to pass to any bulk call.

    Parameters
    ----------
    source
        What offers Arrow's PyCapsule protocol and has columns: a pyarrow `Table`, `RecordBatch` or
        `RecordBatchReader`, a DuckDB relation, a Polars or pandas `DataFrame`, a struct column.
    name
        The name of the column.

    Notes
    -----
    Nothing is read before the bulk call, which also checks the name. A stream (`RecordBatchReader`) can be
    read once, a table any number of times. A table of one column needs no choice: pass it as it is.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from evenbins import BlockedBloomFilter, column
    >>> table = pa.table({"url": ["x", "y"], "day": [1, 2]})
    >>> f = BlockedBloomFilter(1000)
    >>> f.add_many(column(table.to_reader(), "url"))
    >>> f.contains_many(column(table, "url"))
    array([ True,  True])
    """
    if not isinstance(name, str):
        raise arguments.type_error("name", "a column's name, a str", name, "Pass the name")
    if "\0" in name or any("\ud800" <= each <= "\udfff" for each in name):
        raise arguments.error("name", "text without NUL and surrogates", name, "Arrow has no other names")
    if not hasattr(source, "__arrow_c_stream__") and not hasattr(source, "__arrow_c_array__"):
        raise arguments.type_error(
            "source", "a table with Arrow's PyCapsule protocol", source,
            "Pass a pyarrow table or reader, a DuckDB relation, or a Polars or pandas DataFrame",
        )  # fmt: skip
    return Column(source, name)

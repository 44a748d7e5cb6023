"""One column of a table as keys: tables of one column, and `column(source, name)`, from every library."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from evenbins import (
    ArgumentError,
    BlockedBloomFilter,
    BloomFilter,
    CountMinSketch,
    Deduplicator,
    HashRing,
    HeavyHitters,
    HyperLogLog,
    MultilevelTable,
    column,
    digest,
    digest_many,
)

URLS = [f"page {i}" for i in range(700)]
DAYS = [i * 3 - 50 for i in range(700)]
TABLE = pa.table({"day": pa.array(DAYS, pa.int32()), "url": URLS, "score": [0.5] * 700})


def batches() -> list[pa.RecordBatch]:
    """The table in batches of which each is a slice, and one is empty."""
    parts = TABLE.to_batches()[0]
    return [parts.slice(0, 3), parts.slice(3, 0), parts.slice(3, 400), parts.slice(403)]


class OnlyArray:
    """What offers `__arrow_c_array__` and nothing else."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.values.__arrow_c_array__(requested_schema)


def query(text: str) -> Any:
    """A DuckDB relation over the table."""
    connection = duckdb.connect()
    connection.register("pages", TABLE)
    return connection.sql(text)


SOURCES: dict[str, Callable[[], Any]] = {
    "table": lambda: TABLE,
    "chunked table": lambda: pa.Table.from_batches(batches()),
    "reader": lambda: pa.RecordBatchReader.from_batches(TABLE.schema, batches()),
    "batch": lambda: TABLE.to_batches()[0],
    "array alone": lambda: OnlyArray(TABLE.to_batches()[0]),
    "structs": lambda: TABLE.to_struct_array(),
    "struct": lambda: TABLE.to_struct_array().combine_chunks(),
    "polars": lambda: pl.from_arrow(TABLE),
    "pandas": lambda: TABLE.to_pandas(),
    "pandas, named rows": lambda: TABLE.to_pandas().set_index("score"),
    "duckdb": lambda: query("SELECT * FROM pages"),
    "a column of a column": lambda: column(pa.table({"row": TABLE.to_struct_array()}), "row"),
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES.keys())
def test_a_column_is_its_keys_in_every_call(make: Callable[[], Any]) -> None:
    assert digest_many(column(make(), "url")).tolist() == [digest(url) for url in URLS]
    assert digest_many(column(make(), "day")).tolist() == [digest(day) for day in DAYS]
    f, expected = BlockedBloomFilter(1000, seed=1), BlockedBloomFilter(1000, seed=1)
    f.add_many(column(make(), "url"), threads=3)
    expected.add_many(URLS)
    assert f == expected
    assert f.contains_many(column(make(), "url")).all()


def test_every_structure_takes_a_column() -> None:
    urls, days = column(TABLE, "url"), column(TABLE, "day")
    assert Deduplicator().keep(urls).all()
    assert len(BloomFilter.from_keys(urls).contains_many(urls)) == 700
    table = MultilevelTable(700, key_dtype="int64")
    table.insert_many(days, np.arange(700))
    assert table.get_many(days).tolist() == list(range(700))
    assert set(MultilevelTable.from_keys(urls, key_dtype="digest")) == set(MultilevelTable.from_keys(URLS))
    sketch, counted = CountMinSketch(0.01, 0.01), HyperLogLog(10)
    sketch.add_many(urls)
    counted.add_many(urls)
    assert sketch.total == 700
    assert round(counted.count()) == pytest.approx(700, rel=0.2)
    ring = HashRing(list("abc"))
    assert list(ring.node_many(urls)) == [ring.node(url) for url in URLS]


def test_other_consumers_read_a_column() -> None:
    chosen = column(pa.RecordBatchReader.from_batches(TABLE.schema, batches()), "url")
    assert pa.chunked_array(chosen).to_pylist() == URLS
    assert pl.Series(column(TABLE, "day")).to_list() == DAYS
    structs = TABLE.to_struct_array().combine_chunks()
    assert pa.chunked_array(column(structs.slice(5, 9), "day")).to_pylist() == DAYS[5:14]


ONE_COLUMN: dict[str, Callable[[], Any]] = {
    "table": lambda: TABLE.select(["url"]),
    "batch": lambda: TABLE.select(["url"]).to_batches()[0],
    "reader": lambda: TABLE.select(["url"]).to_reader(max_chunksize=99),
    "struct": lambda: TABLE.select(["url"]).to_struct_array(),
    "array alone": lambda: OnlyArray(TABLE.select(["url"]).to_batches()[0]),
    "polars": lambda: pl.from_arrow(TABLE.select(["url"])),
    "pandas": lambda: pd.DataFrame({"url": URLS}),
    "duckdb": lambda: query("SELECT url FROM pages"),
    "dictionary": lambda: pa.table({"url": pa.array(URLS).dictionary_encode()}),
}


@pytest.mark.parametrize("make", ONE_COLUMN.values(), ids=ONE_COLUMN.keys())
def test_a_table_of_one_column_is_this_column(make: Callable[[], Any]) -> None:
    assert digest_many(make()).tolist() == [digest(url) for url in URLS]
    table = MultilevelTable(700, key_dtype="digest")
    table.insert_many(make(), 1)
    assert len(table) == 700


def test_nulls_of_the_rows_are_nulls_of_the_column() -> None:
    rows = pa.StructArray.from_arrays(
        [pa.array(["a", "b", "c", "d", None]), pa.array([1, 2, 3, 4, 5])], names=["text", "number"],
        mask=pa.array([False, False, True, False, False]),
    )  # fmt: skip
    assert digest_many(column(rows.slice(0, 2), "text")).tolist() == [digest("a"), digest("b")]
    assert digest_many(column(rows.slice(3, 1), "text")).tolist() == [digest("d")]
    assert digest_many(column(rows.slice(3), "number")).tolist() == [digest(4), digest(5)]
    for part, name, position in (
        (rows, "text", 2), (rows, "number", 2), (rows.slice(1), "number", 1), (rows.slice(3), "text", 1),
    ):  # fmt: skip
        f, expected = BloomFilter(10), BloomFilter(10)
        with pytest.raises(ValueError, match=rf"^keys\[{position}\]: the key is null"):
            f.add_many(column(part, name))
        expected.add_many(part.field(name)[:position])
        assert f == expected
    wide = pa.chunked_array([rows.slice(i) for i in range(5)])
    assert pa.chunked_array(column(wide, "text")).to_pylist() == [
        text for i in range(5) for text in ["a", "b", None, "d", None][i:]
    ]


def test_what_cannot_be_chosen_is_an_error_that_says_why() -> None:
    f = BloomFilter(10)
    with pytest.raises(KeyError, match=r"name 'page': no such column. There are 'day', 'url', 'score'"):
        f.add_many(column(TABLE, "page"))
    with pytest.raises(TypeError, match="source must be a table, not a column"):
        f.add_many(column(pa.array(["a"]), "page"))
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ValueError, match="two are named 'a'"):
        f.add_many(column(twice, "a"))
    with pytest.raises(TypeError, match="not float64: cast it before"):
        f.add_many(column(TABLE, "score"))
    with pytest.raises(TypeError, match="a table without columns"):
        f.add_many(pa.table({}))
    with pytest.raises(TypeError, match=r"and 3 more\)"):
        f.add_many(pa.table({f"c{i}": [1] for i in range(23)}))
    with pytest.raises(TypeError, match="name must be a column's name"):
        column(TABLE, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="source must be a table with Arrow's"):
        column([{"a": 1}], "a")
    assert f == BloomFilter(10)
    assert repr(column(TABLE, "url")) == "column(Table, 'url')"
    assert column(TABLE, "url").name == "url"


def test_a_stream_is_read_once_and_its_failure_is_raised() -> None:
    reader = TABLE.to_reader(max_chunksize=100)
    assert len(digest_many(column(reader, "url"))) == 700
    assert len(digest_many(column(reader, "url"))) == 0  # as pyarrow itself does

    def failing() -> Any:
        yield batches()[0]
        raise RuntimeError("the source failed")

    f = BloomFilter(10)
    with pytest.raises(OSError, match="the source failed") as found:
        f.add_many(column(pa.RecordBatchReader.from_batches(TABLE.schema, failing()), "url"))
    assert "item 3 of the keys" in found.value.__notes__[0]
    assert all(url in f for url in URLS[:3])


def test_what_has_been_read_is_released() -> None:
    class Memory(bytearray):
        __slots__ = ("__weakref__",)

    memory = Memory(8 * 10)
    gone = weakref.ref(memory)
    batch = pa.record_batch(
        {"a": pa.Array.from_buffers(pa.int64(), 10, [None, pa.py_buffer(memory)]), "b": [1] * 10}
    )
    del memory
    chosen = column(batch, "a")
    assert len(digest_many(chosen)) == 10
    stream = chosen.__arrow_c_stream__()  # never read
    del batch, chosen, stream
    gc.collect()
    assert gone() is None


def test_a_producer_may_wait_for_another_python_thread() -> None:
    """The GIL is free while a stream is asked for its next batch."""
    asked, answered = threading.Event(), threading.Event()

    def waiting() -> Any:
        asked.set()
        assert answered.wait(60)
        yield TABLE.to_batches()[0]

    helper = threading.Thread(target=lambda: asked.wait(60) and answered.set())
    helper.start()
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, waiting())
    assert len(digest_many(column(reader, "url"))) == 700
    helper.join()


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_names_that_no_column_can_have(name: str) -> None:
    with pytest.raises(ArgumentError, match="without NUL and surrogates"):
        column(pa.table({"a": [1]}), name)


def test_digests_of_tables() -> None:
    digests = digest_many(range(5))
    f = BlockedBloomFilter(100, fpr=1e-9)
    for table in (pa.table({"d": digests}), pl.DataFrame({"d": digests}), pd.DataFrame({"d": digests})):
        f.clear()
        f.add_many(table, digests=True)
        assert f.contains_many(table, digests=True).tolist() == [True] * 5
        assert f.contains_many(range(5)).all()
    with pytest.raises(TypeError, match="one column, not a table of 2"):
        f.add_many(pa.table({"d": digests, "e": digests}), digests=True)
    for stream in (column(pa.table({"d": digests}), "d"), iter([1]), {1, 2}):
        with pytest.raises(TypeError, match="a uint64 array or a list of integers, not"):
            f.add_many(stream, digests=True)


COLUMNS = {"url": ["x", "x", "y"], "n": [1, 2, 3]}
MAKERS = [pd.DataFrame, pl.DataFrame, pa.table, pa.record_batch, lambda data: pa.table(data).to_reader()]


@pytest.mark.parametrize("make", MAKERS, ids=["pandas", "Polars", "table", "batch", "reader"])
def test_heavy_hitters_take_the_column_of_a_table_as_sketches_do(make: Any) -> None:
    for keys in (make({"url": COLUMNS["url"]}), column(make(COLUMNS), "url")):
        h = HeavyHitters(3)
        h.add_many(keys)
        assert h.top() == [("x", 2), ("y", 1)]
    h = HeavyHitters(3)
    for taker in (h, CountMinSketch()):
        with pytest.raises(TypeError, match=r"one column, not a table of 2 .* evenbins\.column"):
            taker.add_many(make(COLUMNS))
    assert h.total == 0

"""dedup and Deduplicator against a plain set: every container, dtype, chunk size and mode."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import size

from evenbins import Deduplicator, dedup
from evenbins.deduplication import Fields, containers
from evenbins.deduplication.fields import records_of

SETTINGS = settings(max_examples=size(10, 20), deadline=None)


def token(value: Any) -> Any:
    """What makes values equal: type and value; NaN is one value, -0.0 is 0.0, bool is int, text is UTF-8."""
    if isinstance(value, bool | int | np.integer | np.bool_):
        return "int", int(value)
    if isinstance(value, float):
        return "float", "nan" if value != value else value + 0.0
    if isinstance(value, str):
        return "text", value.encode()
    if isinstance(value, bytes):
        return "text", value
    if isinstance(value, tuple):
        return "row", *map(token, value)
    if isinstance(value, list):
        return "list", *map(token, value)
    if isinstance(value, dict):
        return "dict", *((token(key), token(value[key])) for key in sorted(value))
    return type(value).__name__, value


def oracle(rows: list[Any], *, nulls: str = "one") -> list[int]:
    """The places of first occurrences, by a set."""
    seen: set[Any] = set()
    kept = []
    for place, row in enumerate(rows):
        if row is None and nulls == "keep":
            kept.append(place)
        elif token(row) not in seen:
            seen.add(token(row))
            kept.append(place)
    return kept


ints = st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63)])
texts = st.sampled_from(["", "a", "b", "ab", "ключ", "1"])
floats = st.sampled_from([0.0, -0.0, 1.0, 1.5, float("nan"), float("inf"), -float("inf")])
moments = st.sampled_from(
    [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime.datetime(2020, 1, 1)]
)
dates = st.sampled_from([datetime.date(1960, 1, 1), datetime.date(2020, 1, 1)])
COLUMNS = {
    "int64": (ints, pa.int64(), pl.Int64, "Int64"),
    "string": (texts, pa.string(), pl.String, "str"),
    "binary": (texts.map(str.encode), pa.binary(), pl.Binary, object),
    "float": (floats, pa.float64(), pl.Float64, None),
    "bool": (st.booleans(), pa.bool_(), pl.Boolean, "boolean"),
    "datetime": (moments, pa.timestamp("us"), pl.Datetime("us"), "datetime64[us]"),
    "date": (dates, pa.date32(), pl.Date, object),
    "list": (st.lists(st.integers(0, 2), max_size=2), pa.list_(pa.int64()), pl.List(pl.Int64), object),
    "struct": (
        st.fixed_dictionaries({"a": st.integers(0, 1), "b": texts}),
        pa.struct({"a": pa.int64(), "b": pa.string()}),
        pl.Struct({"a": pl.Int64, "b": pl.String}),
        object,
    ),
}
PANDAS = [name for name in COLUMNS if COLUMNS[name][3] is not None]


@pytest.fixture(params=[3, 1 << 19], ids=["slices of 3", "one slice"])
def slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(containers, "_SLICE", request.param)
    monkeypatch.setattr(containers, "_FIRST_CHUNK", min(request.param, 64))
    return int(request.param)


def polars_series(values: list[Any], dtype: Any) -> pl.Series:
    return pl.Series("x", values, dtype=dtype, strict=True)


# --- one column --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.usefixtures("slices")
def test_columns(name: str, exact: bool) -> None:
    values_of, arrow_type, polars_type, pandas_type = COLUMNS[name]

    @SETTINGS
    @given(st.lists(values_of | st.none(), max_size=30), st.sampled_from(["keep", "one"]), st.integers(1, 9))
    def run(values: list[Any], nulls: str, chunk: int) -> None:
        kept = oracle(values, nulls=nulls)
        wanted = [token(values[place]) for place in kept]
        how: dict[str, Any] = {"exact": exact, "nulls": nulls}

        def same(found: list[Any]) -> None:
            assert [token(each) for each in found] == wanted

        array = pa.array(values, arrow_type)
        same(dedup(values, **how))
        same(list(dedup(iter(values), **how)))
        same(dedup(array, **how).to_pylist())
        chunks = pa.chunked_array([array[i : i + chunk] for i in range(0, len(values), chunk)], arrow_type)
        same(dedup(chunks, **how).to_pylist())
        table = pa.table({"n": range(len(values)), "x": chunks})
        assert dedup(table, key="x", **how)["n"].to_pylist() == kept
        reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=chunk))
        found = dedup(reader, key="x", **how)
        assert isinstance(found, pa.RecordBatchReader)
        assert found.read_all()["n"].to_pylist() == kept
        series = polars_series(values, polars_type)
        same(dedup(series, **how).to_list())
        frame = pl.DataFrame({"n": range(len(values)), "x": series})
        assert dedup(frame, key="x", **how)["n"].to_list() == kept
        if pandas_type is not None:
            column = pd.Series(values, dtype=pandas_type, index=range(100, 100 + len(values)))
            assert dedup(column, **how).index.tolist() == [100 + place for place in kept]
            both = pd.DataFrame({"x": column})
            result = dedup(both, key="x", **how)
            assert isinstance(result, pd.DataFrame)
            assert result.index.tolist() == [100 + place for place in kept]

    run()


@SETTINGS
@given(st.lists(texts | st.none(), max_size=30))
def test_lazy_frames_stay_lazy(values: list[Any]) -> None:
    frame = pl.LazyFrame({"n": range(len(values)), "x": polars_series(values, pl.String)})
    result = dedup(frame, key="x", nulls="one")
    assert isinstance(result, pl.LazyFrame)
    for _ in range(2):  # anew each time
        assert result.collect()["n"].to_list() == oracle(values)
    assert result.select("n").head(2).collect()["n"].to_list() == oracle(values)[:2]
    with_n = result.filter(pl.col("n") > 3).collect()["n"].to_list()
    assert with_n == [place for place in oracle(values) if place > 3]


@pytest.mark.parametrize(
    "dtype",
    ["i1", "i8", "u2", "u8", ">i4", "?", "f4", "f8", "U3", "S3", "M8[s]", "M8[ns]", "M8[D]", "m8[ms]", "O"],
)
@pytest.mark.usefixtures("slices")
def test_numpy_arrays(dtype: str) -> None:
    @SETTINGS
    @given(st.lists(st.integers(0, 5), max_size=30))
    def run(numbers: list[int]) -> None:
        array = np.array(numbers, dtype="i8").astype(dtype)
        found = dedup(array)
        assert found.dtype == array.dtype
        assert found.tolist() == array[oracle(array.tolist())].tolist()
        turned = array[::-1]
        assert dedup(turned, exact=True).tolist() == turned[oracle(turned.tolist())].tolist()

    run()


def test_numpy_nulls_rows_and_structures() -> None:
    times = np.array(["2020-01-01", "NaT", "2020-01-01", "NaT"], "M8[D]")
    assert len(dedup(times, nulls="one")) == 2
    with pytest.raises(ValueError, match="row 1 has a null as its key"):
        dedup(times)
    masked = np.ma.masked_array([1, 2, 1, 2], [False, True, False, True])
    assert dedup(masked, nulls="keep").tolist() == [1, None, None]
    assert dedup(np.array([[1, 2], [2, 1], [1, 2]])).tolist() == [[1, 2], [2, 1]]
    rows = np.array([("a", 1), ("a", 2), ("b", 1), ("a", 1)], dtype=[("x", "U3"), ("y", "i4")])
    assert dedup(rows).tolist() == [("a", 1), ("a", 2), ("b", 1)]
    assert dedup(rows, key="x").tolist() == [("a", 1), ("b", 1)]
    assert dedup(rows, key=["y"]).tolist() == [("a", 1), ("a", 2)]


# --- elements of any type ----------------------------------------------------------------------------------

values = st.recursive(
    ints | texts | floats | moments | dates | st.none() | st.booleans() | texts.map(str.encode),
    lambda inner: st.lists(inner, max_size=2) | st.tuples(inner, inner) | st.tuples(inner) | st.just(()),
    max_leaves=4,
)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.usefixtures("slices")
def test_lists_of_anything(exact: bool) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.lists(values, max_size=25))
    def run(items: list[Any]) -> None:
        kept = oracle(items)
        found = dedup(items, exact=exact, nulls="one")
        assert len(found) == len(kept)
        assert all(a is items[place] for a, place in zip(found, kept, strict=True))
        assert dedup(tuple(items), exact=exact, nulls="one") == tuple(found)

    run()


def test_keys_of_elements() -> None:
    rows = [{"u": "a", "n": 1}, {"u": "b", "n": 1}, {"u": "a", "n": 2}, {"u": "b", "n": 1}]
    assert dedup(rows, key="u") == rows[:2]
    assert dedup(rows, key=("u", "n")) == rows[:3]
    assert dedup(rows, key=lambda row: row["n"]) == [rows[0], rows[2]]
    assert dedup(rows) == rows[:3]
    assert dedup([3, 1, 3]) == [3, 1]
    assert dedup(()) == ()
    with pytest.raises(KeyError):
        dedup(rows, key="missing")


def test_an_iterable_is_read_as_it_is_needed() -> None:
    read = []

    def source() -> Any:
        for number in range(10**9):
            read.append(number)
            yield number % 100

    result = dedup(source())
    assert next(result) == 0
    assert len(read) == 64
    assert [next(result) for _ in range(99)] == list(range(1, 100))
    assert len(read) == 64 + 128


# --- several fields ----------------------------------------------------------------------------------------

FIELDS = st.lists(st.tuples(ints | st.none(), texts | st.none(), floats | st.none()), min_size=1, max_size=25)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.usefixtures("slices")
def test_rows_of_several_fields_are_the_same_in_every_container(exact: bool) -> None:
    @SETTINGS
    @given(FIELDS)
    def run(rows: list[tuple[Any, ...]]) -> None:
        kept = oracle(rows)
        a, b, c = (list(column) for column in zip(*rows, strict=True))
        types = {"a": pa.int64(), "b": pa.string(), "c": pa.float64()}
        table = pa.table({"a": a, "b": b, "c": c}, schema=pa.schema(types))
        frame = pl.DataFrame(table)
        mapped = table.to_pandas(types_mapper=pd.ArrowDtype)
        assert len(dedup(rows, exact=exact)) == len(kept)
        numbered = table.append_column("n", pa.array(range(len(rows))))
        names = ["a", "b", "c"]
        assert dedup(numbered, key=names, exact=exact)["n"].to_pylist() == kept
        assert dedup(frame.with_columns(n=pl.Series(range(len(rows)))), key=names)["n"].to_list() == kept
        assert dedup(mapped, exact=exact).index.tolist() == kept
        assert dedup(table, exact=exact).num_rows == len(kept)
        d = Deduplicator(exact=exact)
        assert np.flatnonzero(d.keep(rows)).tolist() == kept
        for same in (table, frame, mapped, Fields(a, b, c), Fields(*table.columns), table.to_batches()[0]):
            assert not d.keep(same).any(), type(same)  # the very same keys

    run()


@pytest.mark.parametrize("name", COLUMNS)
def test_records_are_the_same_from_every_column(name: str) -> None:
    values_of, arrow_type, polars_type, pandas_type = COLUMNS[name]

    @SETTINGS
    @given(st.lists(values_of | st.none(), max_size=20), st.sampled_from([0, 7]))
    def run(items: list[Any], seed: int) -> None:
        wanted = records_of(items, seed)
        array = pa.array(items, arrow_type)
        columns = [array, pa.chunked_array([array]), polars_series(items, polars_type)]
        if pandas_type is not None:
            columns.append(pd.Series(items, dtype=pandas_type))
            columns.append(pd.Series(items, dtype=pd.ArrowDtype(arrow_type)))
        if name in ("string", "int64"):
            columns.append(array.dictionary_encode())
            columns.append(pd.Series(items, dtype=pandas_type).astype("category"))
        for column in columns:
            assert (records_of(column, seed) == wanted).all(), type(column)

    run()


def test_what_differs_differs() -> None:
    rows: list[tuple[Any, ...]] = [
        ("a", "bc"), ("ab", "c"), ("abc", ""), ("", "abc"), (1, "1"), ("1", 1), (1, 1), (1.0, 1), (None, 1),
        (0, 1), ("", 1), ("None", 1), (float("nan"), 1), (-1, 1), (2**64 - 1, 1), (2**100, 1), (-(2**100), 1),
        (1, 1, None),
        (datetime.date(1970, 1, 2), 1), (datetime.timedelta(days=1), 1), (datetime.datetime(1970, 1, 2), 1),
        (datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC), 1), (datetime.time(0, 0, 1), 1),
        (decimal.Decimal("1"), 1), (decimal.Decimal("1.5"), 1), ([1], 1), ([1, 1],), ([[1], 1],),
        ({"a": 1}, 1),
        ({"a": 2}, 1), ({"b": 1}, 1), (), ((),), (b"\xff" * 8, 1), (1,), (None,),
    ]  # fmt: skip
    assert Deduplicator(exact=True).keep(rows).all()
    assert Deduplicator().keep(rows).all()
    equal: list[tuple[Any, Any]] = [
        (("a", 1), (b"a", True)), ((decimal.Decimal("1.50"),), (decimal.Decimal("1.5"),)), ((0.0,), (-0.0,)),
        ((float("nan"),), (float("-nan"),)), (({"a": 1, "b": 2},), ({"b": 2, "a": 1},)),
        (((1, 2),), ([1, 2],)),
        ((np.int8(3), np.float32(0.5)), (3, 0.5)), ((pd.NaT, pd.NA), (None, None)),
        ((datetime.datetime(2020, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),),
         (datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),)),
        ((pd.Timestamp(2020, 1, 1),), (np.datetime64("2020-01-01"),)),
    ]  # fmt: skip
    for one, other in equal:
        assert Deduplicator().keep([one, other]).tolist() == [True, False], (one, other)


# --- many batches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda: Deduplicator(fpr=1e-12, capacity=20), lambda: Deduplicator(exact=True, capacity=20),
    lambda: Deduplicator(exact=True), Deduplicator,
], ids=["capacity", "exact capacity", "exact", "plain"])  # fmt: skip
def test_batches_saved_and_loaded_between(make: Callable[[], Deduplicator]) -> None:
    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.lists(ints | texts | st.integers(0, 200), max_size=40), max_size=6))
    def run(batches: list[list[Any]]) -> None:
        d, seen = make(), set()
        for batch in batches:
            wanted = []
            for each in batch:
                wanted.append(token(each) not in seen)
                seen.add(token(each))
            assert d.keep(batch).tolist() == wanted
            assert d.contains_many(batch).all()
            d = Deduplicator.from_bytes(d.to_bytes())
        stats = d.stats()
        assert (stats.rows, stats.keys, stats.kept) == (sum(map(len, batches)), len(seen), len(seen))
        d._check()

    run()

"""dedup: what testers found to be wrong once, container by container."""

from __future__ import annotations

import datetime
import decimal
import itertools
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cli import run

from evenbins import Deduplicator, dedup
from evenbins.deduplication import Fields
from evenbins.deduplication.columns import keys_of_column, null_digest
from evenbins.deduplication.containers import keep_rows
from evenbins.deduplication.fields import records_of
from evenbins.deduplication.partitions import decide, final_mask, local_rows
from evenbins.deduplication.stages import DeduplicatorFullError

both_modes = pytest.mark.parametrize("exact", [False, True], ids=["approximate", "exact"])


# --- Polars, lazy ------------------------------------------------------------------------------------------

BEFORE = pl.DataFrame({"u": ["x", "y", "x", "z", "w", "y"], "n": [1, 2, 3, 4, 5, 6]})
LARGE = pl.col("n") > 1
QUERIES = {
    "head, filter": lambda f: f.head(2).filter(LARGE),
    "filter, head": lambda f: f.filter(LARGE).head(2),
    "head, filter, head": lambda f: f.head(3).filter(LARGE).head(1),
    "filter, head, filter": lambda f: f.filter(LARGE).head(2).filter(pl.col("u") == "z"),
    "head, filter, select": lambda f: f.head(2).filter(LARGE).select("u"),
    "select, head, filter": lambda f: f.select("n").head(2).filter(LARGE),
    "slice, filter": lambda f: f.slice(1, 2).filter(LARGE),
    "nothing": lambda f: f.head(0).filter(LARGE),
    "tail": lambda f: f.filter(LARGE).tail(2).select("n"),
}


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_lazy_queries_are_those_of_the_eager_frame(query: Any, engine: Any) -> None:
    lazy = query(dedup(BEFORE.lazy(), key="u")).collect(engine=engine)
    assert lazy.rows() == query(dedup(BEFORE, key="u")).rows()


# --- decimals ----------------------------------------------------------------------------------------------


def test_decimals_keep_all_their_digits() -> None:
    large = [Decimal(10**37), Decimal(10**37 + 1)]
    assert dedup(pa.array(large, pa.decimal128(38, 0)), exact=True).to_pylist() == large
    assert dedup(large) == large
    zeros = [Decimal("0"), Decimal("-0"), Decimal("0E+7"), Decimal("-0.00")]
    assert dedup(zeros, exact=True) == zeros[:1]
    with decimal.localcontext(decimal.Context(prec=2, capitals=0)):
        found = records_of([Decimal("1.2345"), Decimal("12E+5"), Decimal("100000000")], 0)
    assert (found == records_of([Decimal("1.2345"), Decimal("1200000"), Decimal("1E+8")], 0)).all()


ZEROS = [Decimal("1.50"), Decimal("1.5"), Decimal("15E-1"), Decimal("-0"), Decimal(0)]
finite = st.decimals(allow_nan=False, allow_infinity=False) | st.sampled_from(ZEROS)


@settings(max_examples=200, deadline=None)
@given(st.lists(finite, max_size=10))
def test_decimals_are_equal_as_python_says(values: list[Decimal]) -> None:
    assert dedup(values, exact=True) == list(dict.fromkeys(values))


# --- times of NumPy ----------------------------------------------------------------------------------------

UNITS = [
    "M8[100ns]", "m8[25us]", "M8[ps]", "m8[as]", "M8[7us]", "m8[3fs]", "M8[2D]", "m8[90m]", "M8[3M]", "M8[Y]",
    "m8[s]",
]  # fmt: skip


@pytest.mark.parametrize("dtype", UNITS)
def test_every_unit_of_time_is_exact(dtype: str) -> None:
    values = np.array([0, 1, 2, -1, 1, 10**6, 10**6 + 1], "i8").view(dtype)
    assert dedup(values, exact=True).view("i8").tolist() == [0, 1, 2, -1, 10**6, 10**6 + 1]
    turned = values.astype(values.dtype.newbyteorder())
    assert (records_of(turned, 0) == records_of(values, 0)).all()
    assert (records_of(list(values), 0) == records_of(values, 0)).all()


def test_equal_times_of_different_units_are_equal() -> None:
    pairs: list[tuple[tuple[int, str], tuple[int, str]]] = [
        ((7, "M8[100ns]"), (700, "M8[ns]")), ((-3_000_000, "M8[ps]"), (-3, "M8[us]")),
        ((7 * 10**9, "M8[as]"), (1, "M8[7ns]")), ((50, "M8[Y]"), (18_262, "M8[D]")),
        ((-1, "M8[Y]"), (-365, "M8[D]")), ((120, "M8[5M]"), (18_262 * 24, "M8[h]")),
        ((3, "m8[25us]"), (75_000, "m8[ns]")), ((-1, "m8[7us]"), (-7_000_000, "m8[ps]")),
        ((1, "m8[W]"), (7, "m8[D]")), ((-1, "m8[3fs]"), (-3000, "m8[as]")),
    ]  # fmt: skip
    for pair in pairs:
        one, other = (records_of(np.array([value], "i8").view(dtype), 0).tolist() for value, dtype in pair)
        assert one == other, pair
    # the words of a nanosecond and coarser units are as they were
    assert records_of(np.array([-1], "M8[ns]"), 0).tolist() == [[4, 2**64 - 1, 999_999_999]]


def test_times_without_an_exact_number_of_seconds_are_refused() -> None:
    for dtype in ("m8[M]", "m8[Y]", "m8"):
        with pytest.raises(TypeError, match="a unit of fixed length"):
            dedup(np.array([1, 2], "i8").view(dtype))
    for dtype, value in (("M8[D]", 2**57), ("m8[W]", 2**60), ("M8[Y]", 2**61), ("M8[M]", -(2**62)),
                         ("m8[2s]", 2**62), ("M8[3s]", -(2**62)), ("m8[2000000001ns]", 2**62)):  # fmt: skip
        with pytest.raises(ValueError, match=r"within 2\*\*63 seconds"):
            dedup(np.array([1, value], "i8").view(dtype))
    assert len(dedup(np.array([], "m8"))) == 0
    assert len(dedup(np.array(["NaT", "NaT"], "m8"), nulls="one")) == 1


# --- nulls -------------------------------------------------------------------------------------------------


def test_nan_in_objects_of_pandas_is_null() -> None:
    column = pd.Series(["a", np.nan, "b", np.nan, None, pd.NA, Decimal("NaN")], dtype=object)
    assert dedup(column, nulls="keep").index.tolist() == list(range(7))
    assert dedup(column, nulls="one").index.tolist() == [0, 1, 2]
    assert dedup(pd.DataFrame({"x": column}), key="x", nulls="one").index.tolist() == [0, 1, 2]
    index = pd.Index(column)
    assert len(dedup(index, nulls="keep")) == 7
    assert len(dedup(index, nulls="one")) == 3
    for each in (column, index):
        with pytest.raises(ValueError, match="row 1 has a null as its key"):
            dedup(each)
    assert len(dedup(np.array([np.nan, np.nan], dtype=object))) == 1  # a float in NumPy


def test_a_null_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for exact in (False, True):
        for others in ([bytes(32)], [bytes(24)], [b""], [""], [0], [(None,)], [b"\0null\0"]):
            for rows in itertools.permutations([None, *others]):
                assert dedup(list(rows), nulls="one", exact=exact) == list(rows)
                assert dedup([*rows, *rows], nulls="one", exact=exact) == list(rows)
        seen = Deduplicator(exact=exact, seed=9)
        assert keep_rows(seen, ["a", None, "a", None], "one").tolist() == [True, True, False, False]
        assert keep_rows(seen, [None, "b"], "one").tolist() == [False, True]
        assert (seen.stats().rows, seen.stats().kept, seen.stats().keys) == (6, 3, 3)
        assert null_digest(1, exact=exact).tolist() != null_digest(2, exact=exact).tolist()


@both_modes
def test_a_null_is_no_key_in_partitions(exact: bool) -> None:
    parts: list[list[Any]] = [["a", bytes(32), None, None], [None, "b", bytes(32)]]
    for buckets in (1, 3):
        found = [local_rows(part, buckets, seed=4, exact=exact, nulls="one") for part in parts]
        decided = [decide([each.buckets[number] for each in found]) for number in range(buckets)]
        masks = [final_mask(each, [d[place] for d in decided]).tolist() for place, each in enumerate(found)]
        assert masks == [[True, True, True, False], [False, True, False]]


# --- subclasses, and what has no rows ----------------------------------------------------------------------


class PandasFrame(pd.DataFrame):
    @property
    def _constructor(self) -> Any:
        return PandasFrame


class PandasSeries(pd.Series):
    @property
    def _constructor(self) -> Any:
        return PandasSeries


class PolarsFrame(pl.DataFrame):
    pass


class PolarsSeries(pl.Series):
    pass


class Matrix(np.ndarray):
    pass


def test_subclasses_are_recognised_and_kept() -> None:
    for frame in (PandasFrame({"a": [1, 1, 2]}), PolarsFrame({"a": [1, 1, 2]})):
        found = dedup(frame, key="a")
        assert type(found) is type(frame)
        assert len(found) == 2
        assert Deduplicator().keep(frame).tolist() == [True, False, True]
    for column in (PandasSeries([1, 1, 2]), PolarsSeries([1, 1, 2]), np.array([1, 1, 2]).view(Matrix)):
        found = dedup(column)
        assert type(found) is type(column)
        assert len(found) == 2
    stream = pa.ipc.open_stream(_stream_of(pa.table({"a": [1, 1, 2]})))
    assert dedup(stream, key="a").read_all().num_rows == 2


def _stream_of(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_what_has_no_rows_is_refused() -> None:
    frame = pl.DataFrame({"a": [1]})
    for source in (
        pl.col("a"), frame.group_by("a"), pd.DataFrame({"a": [1]}).groupby("a"), pa.schema({"a": pa.int64()}),
        pa.scalar(1), pa.scalar([1]), pa.int64(),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="source must be a column or a table with rows"):
            dedup(source)


def test_keys_that_are_no_names_are_refused() -> None:
    table = pa.table({"a": [1]})
    for source in (table, pl.DataFrame(table), pl.LazyFrame({"a": [1]}), table.to_pandas(), table.to_reader(),
                   np.zeros(2, [("a", "i4")])):  # fmt: skip
        for key in (pl.col("a"), [pl.col("a")], pl.col, pa.scalar("a"), [["a"]]):
            with pytest.raises(TypeError, match="key must be a column's name or several, not"):
                dedup(source, key=key)
    for source in (table, pl.DataFrame(table), pl.LazyFrame({"a": [1]}), table.to_reader()):
        with pytest.raises(TypeError, match="key must be a column's name, a str, or several; got 5"):
            dedup(source, key=5)
    with pytest.raises(TypeError, match="key must be a column's name or several, not Expr"):
        dedup([{"a": 1}], key=pl.col("a"))
    with pytest.raises(TypeError, match=r"key must be names that can be looked up .* and 5 cannot in a int"):
        dedup([1, 2], key=5)
    assert dedup(pd.DataFrame({5: [1, 1]}), key=5).shape == (1, 1)
    assert dedup([(1, 2), (3, 2)], key=1) == [(1, 2)]


# --- types of pandas and Arrow -----------------------------------------------------------------------------


def test_indexes_of_pandas() -> None:
    zoned = pd.date_range("2020-01-01", periods=3, tz="Europe/Rome").repeat(2)
    assert dedup(zoned).equals(zoned[::2])
    assert records_of(zoned, 0).tolist() == records_of(pd.Series(zoned), 0).tolist()
    rows = pd.MultiIndex.from_tuples([(1, "a"), (1, "b"), (1, "a")])
    assert dedup(rows).tolist() == [(1, "a"), (1, "b")]
    assert dedup(pd.RangeIndex(3)).tolist() == [0, 1, 2]
    assert dedup(pd.array([1, 1, None], dtype="Int64"), nulls="one").tolist() == [1, pd.NA]
    categories = pd.CategoricalIndex(["b", "a", "b"])
    assert dedup(categories).tolist() == ["b", "a"]
    sparse = pd.Series(pd.arrays.SparseArray([0, 1, 0, 1]))
    assert dedup(sparse).tolist() == [0, 1]


WITH_NULLS = {
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, None]), pa.array(["x", None])),
    "dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 0, None]), pa.array(["x", None], pa.string_view())
    ),
    "runs": pc.run_end_encode(pa.array(["x", None, "x", None])),
    "string_view": pa.array(["x", None, "x", None], pa.string_view()),
    "binary_view": pa.array([b"x", None, b"x", None], pa.binary_view()),
}


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("name", WITH_NULLS)
def test_nulls_inside_arrow_columns(name: str, chunked: bool) -> None:
    column: Any = WITH_NULLS[name]
    wanted = records_of(["x", None, "x", None], 3)
    if chunked:
        column = pa.chunked_array([column[:1], column[1:]])
    assert (records_of(column, 3) == wanted).all()
    keys = keys_of_column(column, 0)
    assert keys.nulls is not None
    assert keys.nulls.tolist() == [False, True, False, True]
    found = dedup(column, nulls="one")
    assert found.type == column.type
    assert found.to_pylist() == column[:2].to_pylist()
    table = pa.table({"a": column, "n": [1, 2, 1, 2]})
    both = dedup(table)
    assert both.schema == table.schema
    assert both["n"].to_pylist() == [1, 2]
    assert dedup(table.to_reader(), key="a", nulls="keep").read_all()["n"].to_pylist() == [1, 2, 2]
    with pytest.raises(ValueError, match="row 1 has a null"):
        dedup(table, key="a")


def test_identifiers_and_integers_of_other_types() -> None:
    ids = [uuid.UUID(int=number) for number in (1, 2, 1)]
    column = pa.array([each.bytes for each in ids], pa.uuid())
    assert dedup(column).to_pylist() == ids[:2]
    assert dedup(pa.table({"a": column, "b": [1, 1, 1]})).num_rows == 2
    assert records_of(column, 0).tolist() == records_of([each.bytes for each in ids], 0).tolist()
    assert dedup(pa.chunked_array([pa.array(["{}", "{}"], pa.json_())])).to_pylist() == ["{}"]

    class Index:
        def __init__(self, number: int) -> None:
            self.number = number

        def __index__(self) -> int:
            return self.number

    items = [Index(1), Index(2), 1, Index(2)]
    assert dedup(items) == items[:2]
    assert dedup([(each,) for each in items]) == [(each,) for each in items[:2]]
    with pytest.raises(TypeError, match="a field must be str, bytes, a number"):
        dedup([object()])


def test_columns_that_arrow_cannot_filter_are_named() -> None:
    inside = pa.array([["x"], ["x"]], pa.list_(pa.string_view()))
    for source in (inside, pa.table({"n": [1, 1], "a": inside})):
        with pytest.raises(
            TypeError, match=r"pyarrow cannot filter a column of list<.*string_view>: cast it"
        ):
            dedup(source)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array(["a"], pa.string_view()))
    with pytest.raises(TypeError, match="pyarrow cannot decode a column of run_end_encoded"):
        dedup(runs)


def test_dates_off_midnight_are_refused() -> None:
    good = pa.array([0, 86_400_000, 0], pa.int64()).view(pa.date64())
    assert len(dedup(good)) == 2
    assert records_of(good, 0).tolist() == records_of(good.cast(pa.date32()), 0).tolist()
    with pytest.raises(ValueError, match="whole number of days; got one 1 ms after midnight"):
        dedup(pa.array([0, 1], pa.int64()).view(pa.date64()))


PLAIN = {
    "fixed_size_binary": (pa.array([b"ab", None, b"cd"], pa.binary(2)), b"ab"),
    "uuid": (pa.array([bytes(16), None], pa.uuid()), bytes(16)),
    "string_view": (pa.array(["ab", None], pa.string_view()), "ab"),
    "Polars Enum": (pl.Series(["ab", None], dtype=pl.Enum(["ab"])), "ab"),
    "Polars Categorical": (pl.Series(["ab", None], dtype=pl.Categorical), "ab"),
    "pandas large_string": (pd.Series(["ab", None], dtype=pd.ArrowDtype(pa.large_string())), "ab"),
    "pandas binary": (pd.Series([b"ab", None], dtype=pd.ArrowDtype(pa.binary())), b"ab"),
    "pandas dictionary": (
        pd.Series(pd.array(["ab", None], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string())))), "ab",
    ),
    "pandas sparse": (pd.Series(pd.arrays.SparseArray([7, 0])), 7),
    "pandas Int64": (pd.Series([7, None], dtype="Int64"), 7),
}  # fmt: skip


@both_modes
@pytest.mark.parametrize("name", PLAIN)
def test_texts_and_integers_are_plain_keys_in_every_container(name: str, exact: bool) -> None:
    column, key = PLAIN[name]
    seen = Deduplicator(exact=exact)
    assert keep_rows(seen, column, "one").all()
    loaded = Deduplicator.from_bytes(seen.to_bytes())
    assert key in loaded
    assert keep_rows(loaded, [key], "one").tolist() == [False]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view(), pa.binary(1)], ids=str)
@pytest.mark.parametrize("keys", ["u", "u,n"])
def test_the_command_reads_these_columns_of_parquet(kind: pa.DataType, keys: str, tmp_path: Any) -> None:
    values = ["x", "y", None, "x", None]
    plain = [None if each is None else each.encode() for each in values]
    column = pa.array(values if kind == pa.string_view() else plain, kind)
    pq.write_table(pa.table({"u": column, "n": [1, 1, 1, 1, 1]}), tmp_path / "in.parquet")
    state = tmp_path / "seen.evb"
    out = tmp_path / "out.parquet"
    done = run("dedup", tmp_path / "in.parquet", "-k", keys, "--nulls", "one", "-o", out, "--state", state)
    assert done.status == 0, done.err
    found = pq.read_table(tmp_path / "out.parquet")
    assert [each if each is None else each[:1] for each in found["u"].to_pylist()] == column[:3].to_pylist()
    assert ("x" in Deduplicator.load(state)) is (keys == "u")


@pytest.mark.parametrize("mode", [(), ("--exact",)], ids=["approximate", "exact"])
def test_a_null_is_no_key_of_the_command(mode: tuple[str, ...], tmp_path: Any) -> None:
    rows = [r'{"u": "\u0000null\u0000"}', '{"u": null}', '{"u": ""}', '{"u": null}', '{"u": ""}']
    (tmp_path / "in.jsonl").write_text("\n".join(rows) + "\n")
    out, state = tmp_path / "out.jsonl", tmp_path / "seen.evb"
    for kept in (rows[:3], []):
        done = run(
            "dedup", tmp_path / "in.jsonl", "-k", "u", "--nulls", "one", "-o", out, "--state", state, *mode
        )
        assert done.status == 0, done.err
        assert out.read_text().splitlines() == kept


# --- values of Python --------------------------------------------------------------------------------------


def test_long_doubles_are_refused() -> None:
    one = np.longdouble(1)
    if np.dtype(np.longdouble).itemsize == 8:  # as double
        return
    for source in (np.array([one, one + np.finfo(np.longdouble).eps]), [one], [(one, 1)]):
        with pytest.raises(TypeError, match="at most 64 bits"):
            dedup(source)


def test_times_of_day_with_offsets() -> None:
    rome = datetime.timezone(datetime.timedelta(hours=1))
    noon, there = datetime.time(12, tzinfo=datetime.UTC), datetime.time(12, tzinfo=rome)
    same = datetime.time(13, tzinfo=rome)
    named = datetime.time(12, tzinfo=ZoneInfo("Europe/Rome"))  # has no offset without a date
    early = datetime.time(0, 30, tzinfo=rome)
    values = [datetime.time(12), noon, there, same, named, early]
    assert dedup(values, exact=True) == [values[0], noon, there, early]
    assert dedup(values) == list(dict.fromkeys(values))


def test_mappings_are_equal_whatever_their_order() -> None:
    one, other = {1: "a", "1": "b"}, {"1": "b", 1: "a"}
    assert dedup([one, other]) == [one]
    assert len(dedup([one, {1: "b", "1": "a"}, {1: "a"}, {}, {None: 1}, {1.5: 1, (1, 2): 3}])) == 6
    assert len(dedup([{"a": 1, b"a": 2}, {b"a": 2, "a": 1}])) == 1  # text is its bytes


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.none() | st.integers(-3, 3) | st.text(max_size=2), st.integers(0, 3)), st.randoms())
def test_mappings_in_any_order(mapping: dict[Any, int], random: Any) -> None:
    items = list(mapping.items())
    random.shuffle(items)
    assert (records_of([mapping], 0) == records_of([dict(items)], 0)).all()
    assert (Fields([mapping]).keys(0).data) == Fields([dict(items)]).keys(0).data


# --- generators --------------------------------------------------------------------------------------------


def read(rows: Iterator[Any]) -> tuple[list[Any], BaseException | None]:
    found = []
    try:
        for row in rows:
            found.append(row)
    except Exception as error:
        return found, error
    return found, None


def broken(rows: int) -> Iterator[int]:
    yield from range(rows)
    raise OSError("the source ended")


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 500])
def test_rows_before_an_error_come_out(rows: int) -> None:
    found, error = read(dedup(broken(rows)))
    assert found == list(range(rows))
    assert isinstance(error, OSError)

    def key(number: int) -> int:
        if number == rows:
            raise LookupError("no key")
        return number

    found, error = read(dedup(iter(range(1000)), key=key))
    assert found == list(range(rows))
    assert isinstance(error, LookupError)
    for bad, kind in ((None, ValueError), (object(), TypeError), (2**70, (ValueError, OverflowError))):
        found, error = read(dedup(itertools.chain(range(rows), [0] if rows else [], [bad, 1, 2])))
        assert found == list(range(rows))
        assert isinstance(error, kind), error


# --- iterables of tables -----------------------------------------------------------------------------------


def test_iterables_of_tables(tmp_path: Any) -> None:
    table = pa.table({"u": ["x", "y", "x", "z", "y"], "n": [1, 2, 3, 4, 5]})
    pq.write_table(table, tmp_path / "in.parquet")
    batches = list(dedup(pq.ParquetFile(tmp_path / "in.parquet").iter_batches(batch_size=2), key="u"))
    assert all(isinstance(each, pa.RecordBatch) for each in batches)
    assert pa.Table.from_batches(batches)["n"].to_pylist() == [1, 2, 4]
    assert [each.num_rows for each in dedup(table.to_batches(max_chunksize=2), key="u")] == [2, 1, 0]
    frames = [table.slice(0, 3).to_pandas(), table.slice(3).to_pandas()]
    assert pd.concat(dedup(iter(frames), key="u"))["n"].tolist() == [1, 2, 4]
    table.to_pandas().to_csv(tmp_path / "in.csv", index=False)
    chunks = dedup(pd.read_csv(tmp_path / "in.csv", chunksize=2), key="u")
    assert pd.concat(chunks)["n"].tolist() == [1, 2, 4]
    assert len(list(dedup(iter(frames)))) == 2
    with pytest.raises(KeyError, match="there is no such column"):
        list(dedup(iter(frames), key="v"))
    with pytest.raises(TypeError, match="element 1 must be a table or dataframe, as the first is, not int"):
        list(dedup(iter([frames[0], 1]), key="u"))
    assert len(dedup(frames, key=len)) == 2  # a function is one of elements
    nulls = pa.RecordBatch.from_pydict({"u": ["q", None]})
    with pytest.raises(ValueError, match="row 6 has a null"):
        list(dedup(iter([*table.to_batches(), nulls]), key="u"))


# --- nested columns ----------------------------------------------------------------------------------------

LEAF = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
STRUCT = st.fixed_dictionaries(
    {"b": st.none() | st.lists(LEAF, max_size=3), "a": st.none() | st.text(max_size=3)}
)
ROWS = st.lists(st.none() | STRUCT, min_size=1, max_size=8)
NESTED = pa.struct([("b", pa.list_(pa.int64())), ("a", pa.string())])


@given(rows=ROWS, seed=st.integers(0, 3))
def test_nested_columns_are_encoded_as_python_values_are(rows: list[Any], seed: int) -> None:
    expected = records_of(rows, seed)
    column = pa.array([None, *rows], NESTED)[1:]  # with an offset
    halves = pa.chunked_array([column[:1], column[1:]], NESTED)
    large = column.cast(pa.struct([("b", pa.large_list(pa.int64())), ("a", pa.large_string())]))
    frame = pl.Series(rows, dtype=pl.Struct({"b": pl.List(pl.Int64), "a": pl.String}))
    for each in (column, halves, large, frame, pd.Series(column, dtype=pd.ArrowDtype(NESTED))):
        assert (records_of(each, seed) == expected).all()
    lists = [[row, None] for row in rows]
    for each in (pa.array(lists, pa.list_(NESTED, 2)), pa.array(lists, pa.list_(NESTED))):
        assert (records_of(each, seed) == records_of(lists, seed)).all()
    assert (
        records_of(pl.Series(lists, dtype=pl.Array(frame.dtype, 2)), seed) == records_of(lists, seed)
    ).all()


@pytest.mark.parametrize(
    "empty", [pa.array([{}, {}], pa.struct([])), pa.array([[], []], pa.list_(pa.time64("ns")))]
)
def test_empty_nested_values(empty: Any) -> None:
    assert (records_of(empty, 0) == records_of(empty.to_pylist(), 0)).all()
    assert len(records_of(empty[:0], 0)) == 0
    assert len(records_of(pa.chunked_array([], empty.type), 0)) == 0


TICKS = {
    "time of day": (pl.Time, pa.time64("ns")),
    "moment": (pl.Datetime("ns"), pa.timestamp("ns")),
    "moment in UTC": (pl.Datetime("ns", "UTC"), pa.timestamp("ns", "UTC")),
    "duration": (pl.Duration("ns"), pa.duration("ns")),
}


@both_modes
@pytest.mark.parametrize("name", TICKS)
def test_nanoseconds_inside_lists_and_structs_tell_rows_apart(name: str, exact: bool) -> None:
    dtype, kind = TICKS[name]
    plain = pl.Series("x", [1, 2, 1], dtype=pl.Int64).cast(dtype)
    ticks = pa.array([1, 2, 1], pa.int64()).cast(kind)
    for column in (
        plain.to_frame().to_struct("s"),
        plain.to_frame().select(pl.concat_list("x")).to_series(),
        plain.reshape((3, 1)),
        pa.StructArray.from_arrays([ticks], ["x"]),
        pa.ListArray.from_arrays([0, 1, 2, 3], ticks),
        pa.ListArray.from_arrays([0, 1, 2, 3], pa.StructArray.from_arrays([ticks], ["x"])),
    ):
        assert len(dedup(column, exact=exact)) == 2
        assert Deduplicator(exact=exact).keep(Fields(column, ["a"] * 3)).tolist() == [True, True, False]


def test_nanoseconds_that_cannot_be_read_are_refused() -> None:
    column = pa.array([[(1, None)]], pa.map_(pa.int64(), pa.time64("ns")))
    with pytest.raises(TypeError, match=r"nanoseconds.*cast them to time64\(\"us\"\)"):
        dedup(column, exact=True)


def test_nested_nanoseconds_in_parquet(tmp_path: Any) -> None:
    ticks = pa.array([1, 2, 1], pa.int64()).cast(pa.time64("ns"))
    pq.write_table(pa.table({"a": pa.StructArray.from_arrays([ticks], ["x"])}), tmp_path / "in.parquet")
    done = run("dedup", "--exact", tmp_path / "in.parquet", "-o", tmp_path / "out.parquet")
    assert done.status == 0
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 2


# --- nulls -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nulls", ["keep", "one"])
def test_what_comes_before_a_full_filter_is_right(nulls: str) -> None:
    rows: list[Any] = []
    for i in range(3000):
        rows += [f"k{i}", None, f"k{i}"] if i % 3 == 0 else [f"k{i}", f"k{i}"]
    expected = dedup(rows, exact=True, nulls=nulls)
    found: list[Any] = []
    with pytest.raises(DeduplicatorFullError):
        found.extend(dedup(iter(rows), fpr=1e-13, capacity=700, nulls=nulls))
    assert found == expected[: len(found)]
    assert len(found) >= 700


def test_masked_arrays_with_other_nulls() -> None:
    mixed = np.ma.array([None, "a", "b"], mask=[0, 0, 1], dtype=object)
    assert dedup(mixed, exact=True, nulls="one").tolist() == [None, "a"]
    assert len(dedup(mixed, exact=True, nulls="keep")) == 3
    with pytest.raises(ValueError, match="row 0 has a null"):
        dedup(mixed, exact=True)
    assert mixed.mask.tolist() == [False, False, True]
    days = np.ma.array(
        np.array(["2020-01-01", "NaT", "2020-01-01", "2020-01-02"], "M8[D]"), mask=[0, 0, 0, 1]
    )
    assert len(dedup(days, exact=True, nulls="keep")) == 3
    assert len(dedup(days, exact=True, nulls="one")) == 2

"""Traces: what is read from logs of all sorts, what is refused and how, what is drawn, what is written."""

from __future__ import annotations

import doctest
import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenbins
from evenbins.study import traces
from evenbins.study.traces import SYNTHETIC, Trace, TraceError, read_trace, synthetic_trace, write_trace


def read(folder: Path, data: bytes | str, name: str = "log.csv", **options: Any) -> Trace:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_trace(path, **options)


def digests(*keys: str | bytes) -> list[int]:
    return [evenbins.digest(key) for key in keys]


# --- what is read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "times"),
    [
        ("0,a\n2,b\n", {}, [0, 2000]),
        ("0.5,a\n1.25,b\n", {}, [500, 1250]),
        ("time,url\n0,a\n2,b\n", {}, [0, 2000]),
        ("url,time\na,0\nb,2\n", {}, [0, 2000]),
        ("x,TIMESTAMP,y,Key\n,0,,a\n,2,,b\n", {}, [0, 2000]),
        ("0;a\n2;b\n", {}, [0, 2000]),
        ("0\ta\n2\tb", {}, [0, 2000]),
        ("when it was,what\r\n0,a\r\n2,b\r\n", {}, [0, 2000]),
        ("a,x,0\nb,x,2\n", {"time_column": 2, "key_column": 0}, [0, 2000]),
        ("k,t\na,0\nb,2\n", {"time_column": "T", "key_column": "K"}, [0, 2000]),
        ("\n0,a\n\n2,b\n", {}, [0, 2000]),
        ("\ufefftime,url\n0,a\n2,b\n", {}, [0, 2000]),
        ('"0","a"\n"2","b"\n', {}, [0, 2000]),
        ("1700000000000,a\n1700000000001,b\n", {}, [1700000000000, 1700000000001]),
        ("1700000000000000,a\n1700000000001999,b\n", {}, [1700000000000, 1700000000001]),
        ("1700000000000000000,a\n1700000000001000000,b\n", {}, [1700000000000, 1700000000001]),
        ("5,a\n7,b\n", {"time_format": "ms"}, [5, 7]),
        ("time_ms,url\n5,a\n7,b\n", {}, [5, 7]),
        ("5000,a\n7999,b\n", {"time_format": "us"}, [5, 7]),
        ("-3,a\n-1.5,b\n", {}, [-3000, -1500]),
        ("1970-01-01 00:00:01,a\n1970-01-01T00:00:02.5Z,b\n", {}, [1000, 2500]),
        ("1970-01-01T02:00:00+01:00,a\n1970-01-01T02:00:01+01:00,b\n", {"time_format": "iso"},
         [3600000, 3601000]),
        ("01/Jan/1970:00:00:05 +0000,a\n01/Jan/1970:00:00:06 +0000,b\n",
         {"time_format": "%d/%b/%Y:%H:%M:%S %z"}, [5000, 6000]),
    ],
)  # fmt: skip
def test_times_keys_and_columns_are_found(
    tmp_path: Path, text: str, options: dict[str, Any], times: list[int]
) -> None:
    trace = read(tmp_path, text, **options)
    assert trace.times.tolist() == times
    assert trace.digests.tolist() == digests("a", "b")
    assert (trace.requests, trace.distinct, trace.skipped, trace.name) == (2, 2, 0, "log.csv")


def test_the_aol_log_is_read_as_it_is(tmp_path: Path) -> None:
    """By user, not by time; quotes are ordinary; queries without a click are skipped."""
    text = (
        "AnonID\tQuery\tQueryTime\tItemRank\tClickURL\n"
        '142\t"a quote\t2006-03-01 07:17:12\t1\thttp://b\n'
        "142\tno click\t2006-03-01 07:18:00\t\t\n"
        "217\tx\t2006-03-01 07:00:12\t3\thttp://a\n"
    )
    trace = read(tmp_path, text, "user-ct-test-collection-02.txt")
    assert trace.digests.tolist() == digests("http://a", "http://b")
    assert trace.minutes == 17
    assert trace.skipped == 1


def test_keys_are_bytes_whatever_their_encoding(tmp_path: Path) -> None:
    trace = read(tmp_path, b"0,\xe9t\xe9\n1,\xc3\xa9\n2,\xff\n3,a\0b\n")
    assert trace.digests.tolist() == digests(b"\xe9t\xe9", "é", b"\xff", b"a\0b")


def test_requests_of_one_time_keep_their_order(tmp_path: Path) -> None:
    trace = read(tmp_path, "5,c\n1,a\n5,d\n1,b\n")
    assert trace.digests.tolist() == digests("a", "b", "c", "d")
    assert trace.times.tolist() == [1000, 1000, 5000, 5000]


def test_many_rows_are_read_in_batches(tmp_path: Path) -> None:
    rows = 2 * traces._BATCH + 7
    told: list[int] = []
    trace = read(tmp_path, "".join(f"{i},k{i % 1000}\n" for i in range(rows)), progress=told.append)
    assert trace.requests == rows
    assert trace.distinct == 1000
    assert told == [traces._BATCH, 2 * traces._BATCH]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst"])
def test_a_written_trace_is_read_back(tmp_path: Path, suffix: str) -> None:
    trace = synthetic_trace(requests=3000, urls=500, minutes=60, seed=2)
    path = tmp_path / f"trace{suffix}"
    write_trace(trace, path)
    again = read_trace(path)
    assert (again.times == trace.times).all()
    assert (again.digests == trace.digests).all()
    with pytest.raises(ValueError, match=r"path must be a name that ends in .csv or .tsv"):
        write_trace(trace, tmp_path / "trace.bin")


@pytest.mark.parametrize(
    "when",
    [
        pa.array([2000, 1000, 1000], pa.timestamp("us")),
        pa.array([0.002, 0.001, 0.001]),
        pa.array(["1970-01-01 00:00:00.002", "1970-01-01 00:00:00.001", "1970-01-01 00:00:00.001"]),
    ],
    ids=["timestamp", "seconds", "text"],
)
def test_parquet_is_read(tmp_path: Path, when: pa.Array) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"time": when, "more": [1, 2, 3], "url": ["b", "a", None]}), path)
    trace = read_trace(path)
    assert trace.times.tolist() == [1, 2]
    assert trace.digests.tolist() == digests("a", "b")
    assert trace.skipped == 1


# --- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (b"", {}, "empty: a trace needs at least one row"),
        (b"time,url\n", {}, "only a line of names"),
        (b"0,a\nx,b\n", {}, r"line 2: the time \(column 0, from 0\) must be a number.*got 'x'.*time_format"),
        (b"0,a\nnan,b\n", {}, "line 2: the time"),
        (b"0,a\n1e300,b\n", {}, "line 2: the time"),
        (b"0,a\n\n2006-03-01,b\n", {}, "line 3: the time"),
        (b"a,b\nc,d\n", {}, "line 2: the time .* got 'c'"),
        (b"\xff\xfex,a\n\xffy,a\n", {"time_column": 0}, "UTF-16 or no text"),
        ("0,a\n".encode("utf-16"), {}, "line 1: UTF-16 or no text: convert it"),
        (b"0,a\n1\n", {}, "line 2: 1 columns, but column 1 is needed"),
        (b"0\n1\n", {}, "line 1: 1 column, and key_column is 1 .*commas, tabs"),
        (b"0,a\n", {"key_column": 5}, "line 1: 2 columns, and key_column is 5"),
        (b"time,url\n0,a\n", {"key_column": "uri"}, "no column 'uri': key_column must be one of time, url"),
        (b"0,\n1,\n", {}, "all 2 rows have an empty key"),
        (b"5,a\n", {"time_format": "iso"}, "only a line of names"),
        (b"time,digest\n0,xyz\n", {}, "column 'digest' must hold 64 bits in hexadecimal"),
        (b"0," + b"x" * 200_000 + b"\n", {}, "line 1: field larger than field limit"),
        (b"0,a\n" + b"1" * 5000 + b",b\n", {}, "line 2: the time"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused_with_its_line(
    tmp_path: Path, data: bytes, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        read(tmp_path, data, **options)
    assert str(caught.value).startswith(str(tmp_path / "log.csv"))
    assert "\n" not in str(caught.value)


def test_broken_archives_are_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"0,a\n" * 1000)
    with pytest.raises(TraceError, match="gzip -t"):
        read(tmp_path, whole[:-9], "log.csv.gz")
    with pytest.raises(TraceError, match="gzip -t"):
        read(tmp_path, b"0,a\n", "log.csv.gz")
    with pytest.raises(TraceError, match="zstd -t"):
        read(tmp_path, b"0,a\n", "log.csv.zst")
    with pytest.raises(TraceError, match="not a Parquet file"):
        read(tmp_path, b"0,a\n", "log.parquet")
    for name in ("none.csv", "none.csv.gz", "none.csv.zst", "none.parquet"):
        with pytest.raises(FileNotFoundError):
            read_trace(tmp_path / name)
    with pytest.raises(ValueError, match=r"time_format must be one of s, ms.*got 'xyz'"):
        read(tmp_path, "0,a\n", time_format="xyz")


def test_parquet_without_times_or_keys_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    for columns, message in (
        ({"time": [1, None], "url": ["a", "b"]}, "1 rows of 'time' have no time"),
        ({"time": [1.0, float("inf")], "url": ["a", "b"]}, "must hold finite times"),
        ({"time": [1], "url": [1.5]}, "'url' holds no keys"),
        ({"time": [1], "url": pa.array([None], pa.string())}, "no row with a key"),
        ({"time": ["x"], "url": ["a"]}, "the time"),
    ):
        pq.write_table(pa.table(columns), path)
        with pytest.raises(TraceError, match=message):
            read_trace(path)


def test_a_package_that_is_missing_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['pyarrow', 'zstandard', 'compression.zstd']));"
        "from evenbins.study.traces import read_trace, TraceError\n"
        "for name in ('a.csv.zst', 'a.parquet'):\n"
        "    try: read_trace(name)\n"
        "    except TraceError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install zstandard" in done.stdout.splitlines()[0]
    assert "pip install 'evenbins[arrow]'" in done.stdout.splitlines()[1]


@pytest.mark.parametrize(
    ("times", "keys", "error", "message"),
    [
        ([0, 1], [1], ValueError, "two arrays of one length"),
        ([1, 0], [1, 2], ValueError, r"times must ascend; got 0 at 1 after 1"),
        ([0.5], [1], TypeError, "whole numbers"),
        ([2**61], [1], ValueError, "times must be"),
    ],
)
def test_a_trace_that_is_none_is_refused(times: Any, keys: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Trace(times, keys)


# --- what is drawn ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [pytest.param("aol", marks=pytest.mark.long), "indiana"])
def test_the_papers_counts_are_exact(name: str) -> None:
    trace = synthetic_trace(**SYNTHETIC[name], seed=1)
    requests, urls = {"aol": (3_826_181, 607_782), "indiana": (1_000_000, 26_062)}[name]
    assert (trace.requests, trace.distinct) == (requests, urls)
    assert 0.99 * SYNTHETIC[name]["minutes"] < trace.minutes <= SYNTHETIC[name]["minutes"]


@pytest.mark.parametrize("more", [{}, {"swing": 1.0}, {"bursts": 1.0}, {"exponent": 0}, {"minutes": 0}])
def test_synthetic_traces_keep_their_promises(more: dict[str, Any]) -> None:
    arguments = {"requests": 2000, "urls": 700, "minutes": 3000} | more
    trace = synthetic_trace(**arguments, seed=7)
    assert (trace.requests, trace.distinct) == (2000, 700)
    assert (np.diff(trace.times) >= 0).all()
    assert 0 <= trace.times[0] <= trace.times[-1] <= arguments["minutes"] * 60_000
    again, other = synthetic_trace(**arguments, seed=7), synthetic_trace(**arguments, seed=8)
    assert (again.times == trace.times).all()
    assert (again.digests == trace.digests).all()
    assert not (other.digests == trace.digests).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [("requests", 0), ("urls", 0), ("urls", 11), ("minutes", -1), ("exponent", float("nan")), ("swing", 1.1),
     ("bursts", -0.1), ("burst_minutes", float("inf")), ("seed", -1)],
)  # fmt: skip
def test_wrong_arguments_are_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        synthetic_trace(**({"requests": 10, "urls": 10, "minutes": 1} | {name: value}))


def test_the_examples_in_the_docstrings_run() -> None:
    results = doctest.testmod(traces)
    assert results.failed == 0
    assert results.attempted >= 3

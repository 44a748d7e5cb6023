"""First occurrences over partitions: what pandas keeps, whatever partitions, schedulers and workers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.bag
import dask.dataframe
import distributed
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenbins.cluster.dask import dedup

RANDOM = random.Random(8)
ROWS = [(f"https://example.org/{RANDOM.randrange(700)}", RANDOM.randrange(3), n) for n in range(3000)]
FRAME = pd.DataFrame(ROWS, columns=["url", "group", "n"])
both_modes = pytest.mark.parametrize("exact", [False, True], ids=["64 bits", "128 bits"])


@pytest.fixture(scope="module")
def client() -> Iterator[distributed.Client]:
    """Two worker processes, one thread each."""
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        distributed.Client(cluster) as found,
    ):
        yield found


def _keys_and_partitions() -> Iterator[Any]:
    """Every key with every number of partitions; in a short run each once at least."""
    keys: list[Any] = ["url", ["url"], ["url", "group"], ("group",)]
    for (i, key), (j, partitions) in itertools.product(enumerate(keys), enumerate((1, 23, 2))):
        yield pytest.param(key, partitions, marks=[] if i % 3 == j else [pytest.mark.long])


@both_modes
@pytest.mark.parametrize(("key", "partitions"), list(_keys_and_partitions()))
def test_a_dataframe_keeps_what_pandas_keeps(exact: bool, partitions: int, key: Any) -> None:
    frame = dask.dataframe.from_pandas(FRAME, npartitions=partitions)
    result = dedup(frame, key=key, exact=exact)
    expected = frame.compute().drop_duplicates(subset=key if isinstance(key, str) else list(key))
    assert result.npartitions == frame.npartitions
    assert result.divisions == frame.divisions
    pd.testing.assert_frame_equal(result.compute(scheduler="threads"), expected)


def test_whole_rows_series_and_bags() -> None:
    doubled = pd.concat([FRAME, FRAME[::-1]])
    frame = dask.dataframe.from_pandas(doubled, npartitions=7, sort=False)
    found = dedup(frame).compute(scheduler="threads")
    pd.testing.assert_frame_equal(found, frame.compute().drop_duplicates())
    series = dedup(frame["url"], exact=True).compute(scheduler="threads")
    assert series.tolist() == doubled["url"].drop_duplicates().tolist()
    bag = dask.bag.from_sequence([{"u": url, "n": n} for url, _, n in ROWS], npartitions=9)
    firsts = list({row["u"]: row for row in reversed(bag.compute(scheduler="sync"))}.values())[::-1]
    for key in ("u", lambda row: row["u"]):
        rows = dedup(bag, key=key).compute(scheduler="threads")
        assert [row["n"] for row in rows] == sorted(row["n"] for row in firsts)
    words = dask.bag.from_sequence(["a", "b", "a", "a"], npartitions=4)
    assert dedup(words).compute(scheduler="sync") == ["a", "b"]


@both_modes
def test_a_cluster_of_processes(exact: bool, client: distributed.Client, tmp_path: Path) -> None:
    for number in range(6):
        piece = FRAME[number * 500 : (number + 1) * 500]
        pq.write_table(pa.Table.from_pandas(piece, preserve_index=False), tmp_path / f"{number}.parquet")
    frame = dask.dataframe.read_parquet(str(tmp_path / "*.parquet"))
    expected = FRAME.drop_duplicates(subset="url")
    result = dedup(frame, key="url", exact=exact)
    assert client.compute(result).result()["n"].tolist() == expected["n"].tolist()
    lengths = client.compute(result.map_partitions(len)).result()
    assert sum(lengths) == len(expected)


def test_nulls() -> None:
    values = ["a", None, "b", None, "a", None]
    frame = dask.dataframe.from_pandas(pd.DataFrame({"x": values, "n": range(6)}), npartitions=3)
    with pytest.raises(ValueError, match=r"row 1 of partition [012] has a null as its key"):
        dedup(frame, key="x").compute(scheduler="sync")
    kept = {
        rule: dedup(frame, key="x", nulls=rule).compute(scheduler="sync")["n"].tolist()
        for rule in ("keep", "one")
    }
    assert kept == {"keep": [0, 1, 2, 3, 5], "one": [0, 1, 2]}
    assert dedup(frame, key=["x", "n"]).compute(scheduler="sync")["n"].tolist() == [*range(6)]


def test_what_is_refused() -> None:
    frame = dask.dataframe.from_pandas(FRAME, npartitions=2)
    for call, error, text in [
        (lambda: dedup(FRAME), TypeError, "use evenbins.dedup"),
        (lambda: dedup(frame, key="missing"), KeyError, "no such column"),
        (lambda: dedup(frame, key="url", nulls="x"), ValueError, "nulls must be"),
        (lambda: dedup(frame, key="url", exact=1), TypeError, "exact must be"),
        (lambda: dedup(frame, key=len), TypeError, "column names"),
    ]:  # fmt: skip
        with pytest.raises(error, match=text):
            call()


def test_empty_partitions() -> None:
    frame = dask.dataframe.from_pandas(FRAME, npartitions=5)
    few = frame[frame["n"] > 2900]
    assert dedup(few, key="group").compute(scheduler="sync")["group"].nunique() == 3
    none = frame[frame["n"] < 0]
    assert len(dedup(none, key="url").compute(scheduler="sync")) == 0

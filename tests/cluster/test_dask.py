"""Filters built by many workers: the bytes do not depend on workers, partitions, files or a worker's death.

A cluster of two processes is started once, on loopback; most tests run in threads, by the same code.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.bag
import dask.dataframe
import distributed
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import evenbins
from evenbins import FormatError, digest_many
from evenbins.cluster import _pieces
from evenbins.cluster import dask as cluster_dask
from evenbins.cluster.dask import build, build_files
from evenbins.filters.sharded import ShardedFilter
from reference.sharded import canonical

POLICIES = ["standard", "blocked", "single", "sequential", "multilevel", "fill", "two-choice"]
each_policy = pytest.mark.parametrize("policy", POLICIES)
KEYS = [f"https://example.org/{i * i}/{i}" for i in range(3000)]
ANY_PORT = "127.0.0.1:0"
REPEATED = random.Random(3).sample(KEYS * 2, 6000)


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


def bag(keys: list[Any], partitions: int) -> Any:
    return dask.bag.from_sequence(keys, npartitions=partitions)


def by_hand(made: Any, keys: list[Any] = KEYS) -> Any:
    """The same filter, its keys added here in the canonical order."""
    expected = made.copy()
    expected.clear()
    digests = canonical(digest_many(keys, made.seed).tolist())
    expected.add_many(np.array(digests, dtype=np.uint64), digests=True)
    return expected


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    """Four files, with repeats across files and several row groups."""
    for number in range(4):
        table = pa.table({"url": REPEATED[number::4], "size": list(range(1500))})
        pq.write_table(table, tmp_path / f"part-{number}.parquet", row_group_size=400)
    return tmp_path


# --- the bytes -----------------------------------------------------------------------------------------


@each_policy
def test_the_bytes_depend_on_the_keys_alone(policy: str) -> None:
    first = build(bag(KEYS, 1), policy=policy, fpr=1e-3, keys=3000, seed=5, scheduler="synchronous")
    assert first == by_hand(first)
    assert first.contains_many(KEYS).all()
    for partitions, scheduler in [(2, "synchronous"), (13, "threads"), (40, "threads")]:
        shuffled = random.Random(partitions).sample(REPEATED, len(REPEATED))
        other = build(
            bag(shuffled, partitions), policy=policy, fpr=1e-3, keys=3000, seed=5, scheduler=scheduler
        )
        assert other.to_bytes() == first.to_bytes()


@pytest.mark.parametrize("policy", ["blocked", "multilevel", "two-choice"])
@pytest.mark.parametrize("shards", [1, 50])
def test_shards_are_those_of_the_sharded_filter(policy: str, shards: int) -> None:
    made = [
        build(bag(keys, n), policy=policy, fpr=1e-3, keys=3000, shards=shards, scheduler="threads")
        for keys, n in ((KEYS, 1), (REPEATED, 9))
    ]
    assert isinstance(made[0], ShardedFilter)
    assert made[0] == by_hand(made[0])
    assert made[0].to_bytes() == made[1].to_bytes()
    assert made[0].plan == ShardedFilter(3000, fpr=1e-3, policy=policy, shards=shards).plan


@pytest.mark.parametrize("policy", ["standard", "blocked", "sequential", "fill"])
def test_a_cluster_of_processes_builds_what_threads_build(
    policy: str, client: distributed.Client, parquet: Path
) -> None:
    paths = str(parquet / "*.parquet")
    for shards in (None, 7):
        arguments: dict[str, Any] = {"policy": policy, "fpr": 1e-3, "keys": 3000, "shards": shards}
        expected = build(paths, "url", scheduler="threads", **arguments)
        assert build(paths, "url", scheduler=client, **arguments) == expected
    assert build(paths, "url", scheduler=client.scheduler.address, **arguments) == expected


@pytest.mark.parametrize(
    ("policy", "shards", "dies"),
    [
        ("blocked", None, 0),
        pytest.param("blocked", None, 11, marks=pytest.mark.long),
        pytest.param("multilevel", None, 0, marks=pytest.mark.long),
        ("multilevel", None, 11),
        ("multilevel", 9, 0),
        pytest.param("multilevel", 9, 11, marks=pytest.mark.long),
    ],
)
def test_a_worker_that_is_killed_changes_nothing(
    policy: str, shards: int | None, dies: int, client: distributed.Client, tmp_path: Path
) -> None:
    """SIGKILL, by a partition that kills the process that first computes it: the first and a late one."""
    marker = tmp_path / "killed"

    def deadly(keys: Any, number: int) -> Any:
        if number == dies and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return keys

    delayed = [dask.delayed(deadly)(KEYS[i::12], i) for i in range(12)]
    collection = dask.bag.from_delayed(delayed)
    found = build(collection, policy=policy, fpr=1e-3, keys=3000, shards=shards, scheduler=client)
    assert marker.exists()
    assert found == build(
        bag(KEYS, 3), policy=policy, fpr=1e-3, keys=3000, shards=shards, scheduler="threads"
    )


def test_processes_of_our_own_are_the_default(parquet: Path, tmp_path: Path) -> None:
    made = build_files(parquet / "*.parquet", column="url", output=tmp_path / "out.evb", fpr=1e-3, workers=1)
    assert made.rows == 6000
    assert made.filter == build(parquet / "*.parquet", "url", fpr=1e-3, scheduler="threads")
    assert evenbins.load(tmp_path / "out.evb") == made.filter


# --- where keys come from ------------------------------------------------------------------------------


def test_files_bags_and_frames_hold_the_same_keys(parquet: Path, tmp_path: Path) -> None:
    table = pa.table({"url": REPEATED, "size": list(range(6000))})
    pyarrow.csv.write_csv(table, tmp_path / "all.csv")
    (tmp_path / "all.txt").write_text("\n".join(REPEATED))  # the last line has no end
    frame = pandas.DataFrame({"url": REPEATED, "size": range(6000)})
    sources: list[tuple[Any, str | None]] = [
        (parquet / "*.parquet", "url"),
        ([str(parquet / f"part-{i}.parquet") for i in (3, 0, 2, 1, 1)], "url"),
        (tmp_path / "all.csv", "url"),
        (tmp_path / "all.txt", None),
        (bag(REPEATED, 5), None),
        (bag([{"url": key} for key in REPEATED], 4), "url"),
        (dask.dataframe.from_pandas(frame, npartitions=6), "url"),
        (dask.dataframe.from_pandas(frame, npartitions=3)["url"], None),
        (dask.dataframe.from_pandas(frame.astype({"url": object}), npartitions=3), "url"),
    ]
    made = [build(source, column, policy="fill", fpr=1e-3, scheduler="threads") for source, column in sources]
    assert all(each == made[0] for each in made)
    assert {each.capacity for each in made} == {6000}  # the rows, from metadata or counted
    assert made[0] == by_hand(made[0])


def test_integers_are_keys_too_and_csv_holds_text(tmp_path: Path) -> None:
    numbers = list(range(1000))
    pq.write_table(pa.table({"n": numbers}), tmp_path / "n.parquet")
    (tmp_path / "n.csv").write_text("n\n" + "".join(f"{n}\n" for n in numbers))
    frame = dask.dataframe.from_pandas(pandas.DataFrame({"n": numbers}), npartitions=2)
    for source in (str(tmp_path / "n.parquet"), frame, bag(numbers, 3)):
        assert build(source, fpr=1e-3, scheduler="threads").contains_many(numbers).all()
    text = build(tmp_path / "n.csv", fpr=1e-6, scheduler="threads")
    assert text.contains_many([str(n) for n in numbers]).all()
    assert not text.contains_many(numbers).any()


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_lines_are_cut_anywhere_and_none_is_lost(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{i}" * (i % 7) for i in range(300)]  # empty ones too
    (tmp_path / "a.txt").write_text(ending.join(lines) + ending, newline="")
    for size in (1, 2, 7, 64, 10_000):
        monkeypatch.setattr(_pieces, "TEXT_PIECE", size)
        pieces = _pieces.file_pieces(tmp_path / "a.txt")
        blocks = [batch for piece in pieces for batch in piece.batches()]
        assert sum(map(_pieces.count_of, blocks)) == 300
        found = build(tmp_path / "a.txt", fpr=1e-6, scheduler="synchronous")
        assert found.contains_many(lines).all()
        assert found.capacity == 300


def test_the_distinct_keys_are_estimated() -> None:
    few = build(bag(REPEATED, 7), keys="distinct", fpr=1e-3, scheduler="threads")
    assert few.capacity == 3000  # fewer than the sample: exact
    numbers = np.arange(400_000)
    many = dask.bag.from_delayed(
        [dask.delayed(np.concatenate)([numbers[i::3], numbers[:999]]) for i in range(3)]
    )
    found = {
        build(each, keys="distinct", scheduler="threads").capacity for each in (many, many.repartition(2))
    }
    assert len(found) == 1  # whatever the partitions
    assert 400_000 < found.pop() < 400_000 * 1.04  # 2 % are added to what is within 0.4 % (one sigma)


def test_pieces_are_grouped_by_weight() -> None:
    pieces = [_pieces.TextPiece("x", 0, size) for size in (100, 1, 1, 1, 97, 50, 50)]
    groups = _pieces.group_by_weight(pieces, 3)
    assert [each for group in groups for each in group] == pieces
    assert [sum(each.weight for each in group) for group in groups] == [100, 100, 100]
    assert len(_pieces.group_by_weight(pieces, 100)) <= 7
    assert _pieces.group_by_weight([], 3) == []


# --- files out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["blocked", "two-choice"])
def test_workers_write_the_shards(
    policy: str, client: distributed.Client, parquet: Path, tmp_path: Path
) -> None:
    arguments: dict[str, Any] = {"policy": policy, "fpr": 1e-3, "shard_bytes": 1000, "column": "url"}
    expected = build(parquet / "*.parquet", scheduler="threads", **arguments)
    for scheduler in (client, "threads"):
        made = build_files(parquet / "*.parquet", output=tmp_path / "out", scheduler=scheduler, **arguments)
        assert made.filter == expected
        assert made.rows == 6000
        assert len(list((tmp_path / "out").glob("shards-*"))) == 1
        assert ShardedFilter.load(tmp_path / "out") == expected


def test_a_build_that_fails_leaves_the_old_directory(parquet: Path, tmp_path: Path) -> None:
    old = build(bag(KEYS, 2), fpr=1e-3, shards=4, output=tmp_path / "out", scheduler="threads")
    bad = bag([*KEYS, 1.5], 4)
    with pytest.raises(TypeError, match="float"):
        build(bad, fpr=1e-3, shards=4, output=tmp_path / "out", scheduler="threads")
    assert ShardedFilter.load(tmp_path / "out") == old
    assert len(list((tmp_path / "out").glob("shards-*"))) == 1


# --- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "arguments", "error", "what"),
    [
        ("*.parquet", {}, ValueError, "column must be one of url, size"),
        ("*.parquet", {"column": "name"}, ValueError, "column must be one of url, size"),
        ("none-*.parquet", {"column": "url"}, FileNotFoundError, "none-"),
        ("part-0.dat", {}, ValueError, "format must be given"),
        ("part-0.dat", {"format": "avro"}, ValueError, "format must be one of"),
        ("part-0.dat", {"format": "text", "column": "url"}, ValueError, "column is for"),
        ("*.parquet", {"column": "url", "policy": "best"}, ValueError, "policy must be"),
        ("*.parquet", {"column": "url", "keys": "all"}, ValueError, "keys must be"),
        ("*.parquet", {"column": "url", "fpr": 2}, ValueError, "fpr must be"),
        ("*.parquet", {"column": "url", "shards": 2, "shard_bytes": 99}, ValueError, "exclude"),
        ("*.parquet", {"column": "url", "hashes": 99}, ValueError, "hashes must be"),
        ("*.parquet", {"column": "url", "colour": 3}, TypeError, "colour"),
        ("*.parquet", {"column": "url", "workers": 2}, ValueError, "workers is for"),
        ("*.parquet", {"column": "url", "scheduler": "host:1"}, ValueError, "scheduler must be"),
    ],
)
def test_a_bad_argument_is_an_error_that_names_it(
    source: str, arguments: dict[str, Any], error: type[Exception], what: str, parquet: Path
) -> None:
    (parquet / "part-0.dat").write_text("a\n")
    with pytest.raises(error, match=what):
        build(str(parquet / source), **({"scheduler": "threads"} | arguments))


def test_what_is_no_collection_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="collection must be"):
        build({"a", "b"}, scheduler="threads")
    frame = dask.dataframe.from_pandas(pandas.DataFrame({"a": ["x"], "b": ["y"]}), npartitions=1)
    with pytest.raises(ValueError, match="column must be one of a, b"):
        build(frame, scheduler="threads")
    with pytest.raises(ValueError, match="format is for files"):
        build(frame, "a", format="csv", scheduler="threads")


def test_a_null_is_an_error(tmp_path: Path, client: distributed.Client) -> None:
    pq.write_table(pa.table({"a": ["x", None, "z"]}), tmp_path / "n.parquet")
    for scheduler in ("threads", client):
        with pytest.raises((TypeError, ValueError), match="null"):
            build(tmp_path / "n.parquet", scheduler=scheduler)


def test_no_scheduler_and_no_worker_are_errors_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_dask, "_CONNECT_SECONDS", 0.5)
    with pytest.raises(TimeoutError, match="no scheduler answers at tcp://127"):
        build(bag(KEYS, 2), scheduler="tcp://127.0.0.1:9")
    with (
        distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as empty,
        pytest.raises(TimeoutError, match="no worker"),
    ):
        build(bag(KEYS, 2), scheduler=empty.scheduler_address)


def test_work_that_takes_too_long_is_an_error(client: distributed.Client) -> None:
    def slow(key: str) -> str:
        import time

        time.sleep(0.01)
        return key

    with pytest.raises(TimeoutError, match="timeout"):
        build(bag(KEYS[:400], 2).map(slow), keys=400, scheduler=client, timeout=0.3)


def test_a_missing_library_is_named_with_its_extra(run_python: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a\n")
    done = run_python(
        "import sys; sys.modules['distributed'] = sys.modules['dask'] = None\n"
        "import evenbins.cluster, evenbins.cluster.dask as d\n"
        "try: d.build([sys.argv[1]])\n"
        "except ImportError as error: print(error)\n",
        str(tmp_path / "x.txt"),
    )
    assert "pip install 'evenbins[dask]'" in done.stdout, done.stderr


def test_a_damaged_shard_of_a_build_is_refused(tmp_path: Path) -> None:
    build(bag(KEYS, 2), fpr=1e-3, shards=4, output=tmp_path / "out", scheduler="threads")
    (path,) = (tmp_path / "out").glob("shards-*/00002.evb")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"00002\.evb"):
        ShardedFilter.load(tmp_path / "out")

"""The one-read table against LMDB and SQLite: the same keys in files, the page cache cold.

    contender                 one by one                   a batch
    evenbins one-read         table[key]                   get_many(array)
    lmdb readahead=False      txn.get(key)                 cursor.getmulti(keys)
    lmdb default              txn.get(key)                 cursor.getmulti(keys)
    sqlite3                   SELECT ... WHERE k = ?       SELECT ... WHERE k IN (500 of them)

Ten million random 63-bit keys with 64-bit values. LMDB gets them sorted, as eight bytes each (append), so
that its tree is as dense as can be; SQLite as INTEGER PRIMARY KEY, sorted. Before each run a contender is
opened anew, and its files are dropped from the page cache (posix_fadvise); mincore says how much of them was
left, which stands beside the time. What a contender reads into its own memory on opening, our summary and
the others' headers, is off the clock.

The first case counts reads, and needs no clock. One case is not cold: a few keys whose pages are cached.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import (
    Case,
    Contender,
    Limit,
    MissingPeerError,
    Target,
    import_peer,
    publish,
    run,
)
from benchmarks.shared import FULL, QUICK, SEED, Sizes, count_text
from evenbins.tables.paged import PagedTable

__all__ = ["drop_cache", "main_paged", "paged_cases", "resident"]

_OURS = "evenbins one-read"
_PEERS = {"lmdb": "lmdb"}
_FEW = 10
_COLD = "Page cache dropped before each run; `resident` is the fraction of the files that was left in it."

Words = npt.NDArray[np.uint64]


def drop_cache(paths: list[Path]) -> None:
    """Ask the system to forget the files' pages; they must be clean, so they are synced first."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def resident(paths: list[Path]) -> float:
    """Measure the fraction of the files' pages that the page cache holds, by mincore."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    there = total = 0
    for path in paths:
        size = path.stat().st_size
        if size == 0:
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
            pages = -(-size // mmap.PAGESIZE)
            flags = (ctypes.c_ubyte * pages)()
            start = (ctypes.c_char * size).from_buffer(mapped)
            failed = libc.mincore(ctypes.addressof(start), size, ctypes.addressof(flags))
            del start
            if failed:
                raise OSError(ctypes.get_errno(), "mincore failed", str(path))
            there += int((np.frombuffer(bytes(flags), np.uint8) & 1).sum())
            total += pages
    return there / max(1, total)


class _Contestant:
    """Keys and values in files; `one` looks keys up one after the other, `many` all together."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts: dict[str, float] = {}
        folder.mkdir(exist_ok=True)

    def build(self, keys: Words, values: Words) -> None:
        raise NotImplementedError

    def open(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def one(self, keys: list[int]) -> list[int | None]:
        raise NotImplementedError

    def many(self, keys: Words) -> list[int | None]:
        raise NotImplementedError

    def files(self) -> list[Path]:
        return [path for path in self.folder.iterdir() if path.is_file()]

    def cold(self) -> None:
        self.close()
        self.open()
        drop_cache(self.files())
        self.facts["resident"] = resident(self.files())


class _Ours(_Contestant):
    table: PagedTable | None = None

    def build(self, keys: Words, values: Words) -> None:
        path = self.folder / "table"
        options: Any = {"key_dtype": "uint64", "value_dtype": "uint64", "durable": False}
        with PagedTable.create(path, len(keys), **options) as table:
            table.insert_many(keys, values)

    def open(self) -> None:
        self.table = PagedTable.open(self.folder / "table")

    def close(self) -> None:
        if self.table is not None:
            self.table.close()

    def one(self, keys: list[int]) -> list[int | None]:
        assert self.table is not None
        get: Any = self.table.get
        return [get(key) for key in keys]

    def many(self, keys: Words) -> list[int | None]:
        assert self.table is not None
        return self.table.get_many(keys, default=0)  # type: ignore[return-value]


class _Lmdb(_Contestant):
    readahead = True
    environment: Any = None

    def build(self, keys: Words, values: Words) -> None:
        lmdb = import_peer("lmdb", "lmdb")
        environment = lmdb.open(str(self.folder), map_size=1 << 36, sync=False, lock=False)
        order = np.argsort(keys)
        for part in np.array_split(order, max(1, len(order) // 500_000)):
            names, data = keys[part].astype(">u8").tobytes(), values[part].tobytes()
            items = [(names[i : i + 8], data[i : i + 8]) for i in range(0, len(names), 8)]
            with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(items, append=True)
        environment.sync(True)
        environment.close()

    def open(self) -> None:
        lmdb = import_peer("lmdb", "lmdb")
        self.environment = lmdb.open(
            str(self.folder), map_size=1 << 36, readonly=True, lock=False, readahead=self.readahead
        )
        self.transaction = self.environment.begin()

    def close(self) -> None:
        if self.environment is not None:
            self.transaction.abort()
            self.environment.close()
            self.environment = None

    def one(self, keys: list[int]) -> list[int | None]:
        get, found = self.transaction.get, []
        for key in keys:
            data = get(key.to_bytes(8, "big"))
            found.append(None if data is None else int.from_bytes(data, "little"))
        return found

    def many(self, keys: Words) -> list[int | None]:
        names = keys.astype(">u8").tobytes()
        with self.transaction.cursor() as cursor:
            pairs = cursor.getmulti([names[i : i + 8] for i in range(0, len(names), 8)])
        return np.frombuffer(b"".join([data for _, data in pairs]), np.uint64)  # type: ignore[return-value]


class _LmdbRandom(_Lmdb):
    readahead = False


class _Sqlite(_Contestant):
    connection: sqlite3.Connection | None = None

    def build(self, keys: Words, values: Words) -> None:
        connection = sqlite3.connect(self.folder / "db")
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v INTEGER)")
        order = np.argsort(keys)
        for part in np.array_split(order, max(1, len(order) // 500_000)):
            rows = zip(keys[part].tolist(), values[part].tolist(), strict=True)
            connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
        connection.commit()
        connection.close()

    def open(self) -> None:
        self.connection = sqlite3.connect(f"file:{self.folder / 'db'}?mode=ro", uri=True)

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def one(self, keys: list[int]) -> list[int | None]:
        assert self.connection is not None
        cursor, found = self.connection.cursor(), []
        for key in keys:
            row = cursor.execute("SELECT v FROM t WHERE k = ?", (key,)).fetchone()
            found.append(None if row is None else row[0])
        return found

    def many(self, keys: Words) -> list[int | None]:
        assert self.connection is not None
        items = keys.tolist()
        found: dict[int, int] = {}
        for start in range(0, len(items), 500):
            part = items[start : start + 500]
            marks = ",".join("?" * len(part))
            found.update(self.connection.execute(f"SELECT k, v FROM t WHERE k IN ({marks})", part))
        return [found.get(key) for key in items]


def _microseconds_cached(ours: _Contestant, keys: Words) -> float:
    """Measure a call for a few keys whose pages the page cache holds."""
    ours.close()
    ours.open()
    calls = keys[: 200 * _FEW].reshape(-1, _FEW)
    ours.many(calls.ravel())
    times = []
    for asked in calls:
        start = time.perf_counter()
        ours.many(asked)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


_KINDS: dict[str, type[_Contestant]] = {
    _OURS: _Ours, "lmdb readahead=False": _LmdbRandom, "lmdb default": _Lmdb, "sqlite3": _Sqlite
}  # fmt: skip


def paged_cases(sizes: Sizes = FULL, *, folder: Path, peers: bool = True) -> Iterator[Case]:
    """Return the cases of this module, one at a time; the files go to `folder`, hundreds of MB."""
    count = sizes.bulk_keys
    single, batches = (2_000, (10_000, 100_000)) if count >= 5_000_000 else (500, (1_000, 10_000))
    rng = np.random.default_rng(SEED)
    both = np.unique(rng.integers(0, 2**63 - 1, 2 * count + count // 100, dtype=np.uint64))
    both = rng.permutation(both)
    keys, absent = both[:count], both[count : 2 * count]
    values = np.arange(count, dtype=np.uint64)
    folders = {"lmdb readahead=False": "lmdb", "lmdb default": "lmdb"}
    contestants: dict[str, _Contestant] = {}
    for label, kind in _KINDS.items():
        if not peers and label != _OURS:
            continue
        contestants[label] = made = kind(folder / folders.get(label, label.split()[0]))
        if not made.files():
            made.build(keys, values)
    ours = contestants[_OURS]
    ours.open()
    assert isinstance(ours, _Ours)
    assert ours.table is not None

    def counted(asked: Words, name: str) -> Callable[[], float]:
        def measure() -> float:
            ours.cold()
            assert isinstance(ours, _Ours)
            assert ours.table is not None
            ours.table.contains_many(asked)
            return float(getattr(ours.table.stats(), name))

        return measure

    plan = ours.table.plan
    yield Case(
        name=f"page reads of a present key, {count_text(count)} keys, counted",
        contenders={_OURS: Contender(run=counted(keys, "reads"), facts={"plan": plan.reads})},
        unit="reads",
        targets=[Limit(text="1.000 for present keys", at_most=1.0005)],
        once=True,
    )
    yield Case(
        name=f"page reads of an absent key, {count_text(count)} keys, counted",
        contenders={_OURS: Contender(run=counted(absent, "miss_reads"), facts={"plan": plan.miss_reads})},
        unit="reads",
        targets=[Limit(text="≤ 0.01 for absent keys", at_most=0.01)],
        once=True,
    )
    summary_bytes = ours.table.summary_bytes
    yield Case(
        name=f"memory of the summary, {count_text(count)} keys",
        contenders={
            _OURS: Contender(run=lambda: summary_bytes / count, facts={"plan": plan.summary_bytes / count})
        },
        unit="bytes/key",
        targets=[Limit(text="≤ 4 bytes per key", at_most=4.0)],
        once=True,
        notes=f"The file has {plan.nbytes / count:.1f} bytes a key.",
    )

    yield Case(
        name=f"{_FEW} present keys of {count_text(count)}, in one batch, cached",
        contenders={_OURS: Contender(run=lambda: _microseconds_cached(ours, keys))},
        unit="µs",
        targets=[Limit(text="≤ 60 µs", at_most=60.0)],
        notes="A whole call, the median of 200; its pages are in the page cache, so no thread is needed.",
    )

    def case(
        name: str, amount: int, source: Words, targets: list[Target], how: str, expected: Words | None
    ) -> Case:
        turn = dict.fromkeys(contestants, 0)

        def asked(label: str) -> Words:  # other keys each round, the same for all
            start = turn[label] * amount % (len(source) - amount)
            return source[start : start + amount]

        def contender(label: str, each: _Contestant) -> Contender:
            prepared: dict[str, Any] = {}

            def prepare() -> None:
                each.cold()
                prepared["keys"] = asked(label).tolist() if how == "one" else asked(label)

            def work() -> object:
                return each.one(prepared["keys"]) if how == "one" else each.many(prepared["keys"])

            def check(found: Any) -> bool:
                each.close()  # LMDB opens a file once in a process, and two contenders share it
                start = turn[label] * amount % (len(source) - amount)
                turn[label] += 1
                if expected is None:
                    return all(value is None for value in found)
                return bool((np.asarray(found, np.uint64) == expected[start : start + amount]).all())

            return Contender(run=work, prepare=prepare, check=check, facts=each.facts)

        made = {label: contender(label, each) for label, each in contestants.items()}
        return Case(name=name, contenders=made, operations=amount, targets=targets, notes=_COLD)

    text = count_text(count)
    yield case(
        f"{single:,} present keys of {text}, one by one, cold", single, keys,
        [Target(text="no slower than LMDB, readahead=False", against=["lmdb readahead=False"], at_least=1.0)],
        "one", values,
    )  # fmt: skip
    for size in batches:
        yield case(
            f"{size:,} present keys of {text}, in one batch, cold", size, keys,
            [Target(text="≥ 3 × default LMDB", against=["lmdb default"], at_least=3.0)],
            "many", values,
        )  # fmt: skip
    yield case(
        f"{10 * single:,} absent keys of {text}, one by one, cold", 10 * single, absent,  # some read
        [Target(text="≥ 30 × LMDB", against=["lmdb default", "lmdb readahead=False"], at_least=30.0)],
        "one", None,
    )  # fmt: skip
    for each in contestants.values():
        each.close()


def main_paged(
    quick: bool = False,
    rounds: int | None = None,
    json_path: str | None = None,
    markdown: bool = False,
    folder: str | None = None,
) -> int:
    """Run the cases, print the tables, write the JSON; the exit status: 0, or 2 if it cannot run.

    `folder` is on the disk to measure and is kept, files and all; by default a temporary one.
    """
    try:
        for module, name in _PEERS.items():
            import_peer(module, name)
    except MissingPeerError as error:
        print(error, file=sys.stderr)
        return 2
    place = Path(folder or tempfile.mkdtemp(prefix="evenbins-bench-"))
    place.mkdir(parents=True, exist_ok=True)
    try:
        report = run(
            paged_cases(QUICK if quick else FULL, folder=place), rounds or 3, seconds=0.0,
            packages=list(_PEERS), quick=quick,
        )  # fmt: skip
        publish(report, "paged", json_path=json_path, markdown=markdown, whole=not quick)
    finally:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
    return 0

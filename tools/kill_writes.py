"""SIGKILL in the middle of writing: the old state or the new one, and all that was acknowledged.

    make crash                                                2,000 saves and 2,000 writes: three minutes
    python tools/kill_writes.py --saves 32 --writes 30        fewer

*Saves*: a process saves two structures of a kind to one path in turn, as fast as it can, and is killed at a
random moment; the file must be one of the two, bit for bit. All kinds of files take part, tables that are
written as pages, and a sharded filter's folder. A temporary file or folder that is left behind tells that
the kill came in the midst of a save; loads and later saves must not mind it. *Writes*: a process changes a
one-read table (`PagedTable`), reporting each change when it is acknowledged; after the kill every reported
change is there, and at most the one under way beside.

A kill does not test durability, since the page cache survives it: for that tests/unit/test_paged_crash.py and
tests/unit/test_power_cut.py replay recorded writes as power cuts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import records

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit"))

from test_paged_crash import _apply, _write_until_killed

from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    ChainedTable,
    CountingBloomFilter,
    CountMinSketch,
    Deduplicator,
    FingerprintFilter,
    FuseFilter,
    GrowingFilter,
    HashRing,
    HeavyHitters,
    HyperLogLog,
    MultilevelTable,
    PagedTable,
    ShardedFilter,
    WindowFilter,
)
from evenbins.study import counter_summary
from evenbins.tables import summaries

KEYS = 20_000


def _fill(made: Any, first: int, count: int) -> Any:
    keys = np.arange(first, first + count, dtype=np.uint64)
    if isinstance(made, FuseFilter):
        return FuseFilter.from_keys(keys)
    if hasattr(made, "insert_many"):
        made.insert_many(keys, keys)
    elif isinstance(made, HashRing):
        made.assign_many(keys)
    elif isinstance(made, Deduplicator):
        made.keep(keys)
    elif isinstance(made, summaries.Summary):
        made.add_many(keys, 1)
    else:
        made.add_many(keys)
    return made


MAKERS: dict[str, Callable[[], Any]] = {
    "standard": lambda: BloomFilter(KEYS),
    "blocked": lambda: BlockedBloomFilter(KEYS),
    "balanced": lambda: BalancedBloomFilter(KEYS),
    "growing": lambda: GrowingFilter(1e-3, first=2_000),
    "counting": lambda: CountingBloomFilter(KEYS),
    "fingerprint": lambda: FingerprintFilter(3 * KEYS),
    "fuse": lambda: FuseFilter.from_keys([]),
    "window": lambda: WindowFilter(10 * KEYS, 3 * KEYS),
    "sketch": lambda: CountMinSketch(epsilon=1e-3, delta=1e-3),
    "heavy-hitters": lambda: HeavyHitters(100, epsilon=1e-3, delta=1e-3),
    "hyperloglog": lambda: HyperLogLog(),
    "deduplicator": lambda: Deduplicator(exact=True),
    "table": lambda: MultilevelTable(KEYS, key_dtype="uint64", value_dtype="uint64"),
    "chained": lambda: ChainedTable(KEYS, key_dtype="uint64", value_dtype="uint64"),
    "ring": lambda: HashRing([f"server{i}" for i in range(20)]),
    "interpolation": lambda: summaries.InterpolationSummary(KEYS),
    "single-filter": lambda: summaries.SingleFilterSummary(KEYS),
    "multiple-bloom": lambda: summaries.MultipleBloomSummary(KEYS, counting=True),
    "counters": lambda: counter_summary.CounterSummary(KEYS),
    "sharded": lambda: ShardedFilter(KEYS, shards=4),
    "pages": lambda: MultilevelTable(2_000, key_dtype="uint64", value_dtype="uint64"),
}


def _save(name: str, made: Any, path: Path) -> None:
    made.save(path, **({"layout": "pages"} if name == "pages" else {}))


def _same(name: str, path: Path, made: Any) -> bool:
    if name != "pages":
        return bool(type(made).load(path).to_bytes() == made.to_bytes())
    with PagedTable.open(path, verify=True) as table:
        table._check()
        return dict(table.items()) == dict(made.items())


def _leftovers(path: Path) -> int:
    """Count, and take away, what a save that was killed has left beside the target or in its folder."""
    folders = [path.parent, *([path, *path.glob("shards-*")] if path.is_dir() else [])]
    found = [each for folder in folders for each in folder.glob(".evenbins-*.tmp")]
    for each in found:
        each.unlink()
    if path.is_dir():  # the manifest names one; others are of saves that were not finished
        named = json.loads((path / "manifest.json").read_text())["folder"]
        return len(found) + sum(each.name != named for each in path.glob("shards-*"))
    return len(found)


def kill_saves(folder: Path, kills: int, rng: random.Random) -> dict[str, dict[str, int]]:
    """Kill processes that save; give, for each kind, how often which state was found."""
    found = {}
    names = list(MAKERS)
    for place, name in enumerate(names):
        old, new = (_fill(MAKERS[name](), first, KEYS // 20 if name == "pages" else KEYS // 2)
                    for first in (0, 10**6))  # fmt: skip
        path = folder / name
        _save(name, old, path)
        counts = {"old": 0, "new": 0, "midst": 0}
        for _ in range(kills // len(names) + (place < kills % len(names))):
            child = _fork(lambda name=name, path=path, old=old, new=new: _save_for_ever(name, path, old, new))
            time.sleep(rng.uniform(0.0, 0.012))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if _same(name, path, old):
                counts["old"] += 1
            elif _same(name, path, new):
                counts["new"] += 1
            else:
                raise SystemExit(f"{name}: neither the old nor the new state")
            counts["midst"] += _leftovers(path) > 0
        found[name] = counts
        print(f"{name:14} {counts['old']:5} old {counts['new']:5} new, {counts['midst']:5} in the midst",
              flush=True)  # fmt: skip
    return found


def _save_for_ever(name: str, path: Path, old: Any, new: Any) -> None:
    while True:
        _save(name, new, path)
        _save(name, old, path)


def _fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    return child


def kill_table_writes(folder: Path, kills: int, rng: random.Random) -> dict[str, int]:
    """Kill processes that change a table on disk; return how many changes were reported, and survived."""
    path = str(folder / "written")
    with PagedTable.create(path, 20_000) as table:
        table.insert_many(range(10_000), 0)
    expected = dict.fromkeys(range(10_000), 0)
    acknowledged = under_way = 0
    for number in range(kills):
        read_end, write_end = os.pipe()
        child = _fork(lambda number=number, end=write_end: _write_until_killed(path, number, end))
        os.close(write_end)
        with os.fdopen(read_end, "rb") as reports:
            first = reports.read(8)  # it is under way
            time.sleep(rng.uniform(0.0, 0.03))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            done = np.frombuffer(first + reports.read(), np.uint64)
        with PagedTable.open(path) as table:
            found = dict(table.items())
        count = int(done[-1])
        for step in range(count):
            _apply(expected, number, step)
        one_more = dict(expected)
        _apply(one_more, number, count)
        if found not in (expected, one_more):
            raise SystemExit(f"kill {number}: not the state after {count} or {count + 1} changes")
        acknowledged += count
        under_way += found != expected
        expected = found
    with PagedTable.open(path, verify=True) as table:
        table._check()
    return {"kills": kills, "acknowledged": acknowledged, "under way and there": under_way}


def main() -> None:
    """Run both, and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--saves", type=int, default=2_000)
    parser.add_argument("--writes", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
    begun = time.perf_counter()
    try:
        saves = kill_saves(folder, options.saves, random.Random(options.seed))
        writes = kill_table_writes(folder, options.writes, random.Random(options.seed + 1))
    finally:
        shutil.rmtree(folder)
    survived = sum(counts["old"] + counts["new"] for counts in saves.values()) + writes["kills"]
    seconds = time.perf_counter() - begun
    asked = options.saves + options.writes
    said = (
        f"{survived:,} of {asked:,} kills survived: {options.saves:,} in saves, {options.writes:,} in writes"
    )
    result = {"saves": saves, "writes": writes, "kills": survived, "seconds": seconds}
    print(json.dumps(result) if options.json else f"{writes}\n{said}, {seconds:.0f} s")
    if len(sys.argv) == 1:
        records.keep("crash", "make crash", [said], seconds)


if __name__ == "__main__":
    main()

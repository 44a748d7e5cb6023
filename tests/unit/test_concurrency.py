"""Threads of the user on every structure: overlapping bulk calls lose and tear nothing, and never hang.

    writers    three threads, each with bulk calls on keys that the others write too: the state at the end is
               that of one of the sequential orders of the calls, byte for byte
    readers    while somebody writes, every key that was in before is found, with a value stored for it
    crossing   calls that need two structures, or a whole one, in both directions at once, beside writers

docs/concurrency.md states the rules. test_threads.py goes deeper for filters (every shape, single calls,
merges) and test_rings.py for rings (the bound under churn); tools/sanitize.py runs this file under
ThreadSanitizer.
"""

from __future__ import annotations

import functools
import itertools
import operator
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from together import together

from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    ChainedTable,
    CountingBloomFilter,
    CountMinSketch,
    GrowingFilter,
    HashRing,
    HeavyHitters,
    MultilevelTable,
    PagedTable,
    ShardedFilter,
)
from evenbins.summaries import (
    CounterSummary,
    InterpolationSummary,
    MultipleBloomSummary,
    SingleFilterSummary,
)

KEYS = np.random.default_rng(21).integers(0, 2**62, 12_000)
WRITERS = [KEYS[:5000], KEYS[3000:8000], KEYS[6000:11_000]]  # neighbours share two thousand keys
CAPACITY = len(KEYS)


@dataclass(frozen=True)
class Structure:
    """How to make one, write to it in bulk, and ask it.

    whole   a bulk call on an array is one step for others; else it is several, in order
    """

    name: str
    make: Callable[[Path], Any]
    write: Callable[[Any, Any, int], object]
    holds: Callable[[Any, Any], Any]
    state: Callable[[Any], Any] = operator.methodcaller("to_bytes")
    erase: Callable[[Any, Any], object] | None = None
    whole: bool = True

    def new(self, folder: Path) -> Any:
        """Make an empty one; planning is done once."""
        if self.name in ("PagedTable", "HeavyHitters"):
            return self.make(folder)
        return _first(self.name).copy()

    def filled(self, folder: Path, keys: Any) -> Any:
        made = self.new(folder)
        self.write(made, keys, 0)
        return made


@functools.cache
def _first(name: str) -> Any:
    return BY_NAME[name].make(Path())


def _filter(name: str, make: Callable[[], Any], *, whole: bool = True, threads: int = 1) -> Structure:
    return Structure(
        name,
        lambda _: make(),
        lambda f, keys, _: f.add_many(keys, threads=threads),
        lambda f, keys: f.contains_many(keys, threads=threads),
        whole=whole,
    )


def _table(name: str, make: Callable[[Path], Any], **more: Any) -> Structure:
    return Structure(
        name,
        make,
        lambda t, keys, writer: t.insert_many(keys, writer),
        lambda t, keys: t.contains_many(keys),
        erase=lambda t, keys: t.delete_many(keys),
        **more,
    )


def _summary(cls: Any, **arguments: Any) -> Structure:
    return Structure(
        cls.__name__,
        lambda _: cls(3 * CAPACITY, **arguments),
        lambda s, keys, _: s.add_many(keys, 1),
        lambda s, keys: s.level_many(keys) > 0,
    )


def _sketch(name: str, **arguments: Any) -> Structure:
    return Structure(
        name,
        lambda _: CountMinSketch(0.01, 0.01, **arguments),
        lambda s, keys, writer: s.add_many(keys, writer + 1),
        lambda s, keys: s.count_many(keys) > 0,
    )


_paths = itertools.count()


def _pages(folder: Path) -> PagedTable:
    return PagedTable.create(str(folder / f"pages{next(_paths)}"), CAPACITY, durable=False)


def _guided(_: Path) -> MultilevelTable:
    return MultilevelTable(
        CAPACITY, levels=4, slots=1, scheme="standard", summary="multiple-bloom", deletions="lazy"
    )


STRUCTURES = [
    _filter("BloomFilter", lambda: BloomFilter(CAPACITY)),
    _filter("BlockedBloomFilter", lambda: BlockedBloomFilter(CAPACITY)),
    _filter("BalancedBloomFilter", lambda: BalancedBloomFilter(CAPACITY, bits_per_key=16, policy="fill")),
    _filter("BalancedBloomFilter-sequential", lambda: BalancedBloomFilter(CAPACITY, policy="sequential")),
    _filter("CountingBloomFilter", lambda: CountingBloomFilter(CAPACITY)),
    _filter("BloomFilter-threads", lambda: BloomFilter(CAPACITY), threads=2),
    _filter("CountingBloomFilter-threads", lambda: CountingBloomFilter(CAPACITY), threads=2),
    _filter("GrowingFilter", lambda: GrowingFilter(1e-3, first=1000, policy="blocked")),
    _filter("ShardedFilter", lambda: ShardedFilter(CAPACITY, shards=4), whole=False),
    _filter("ShardedFilter-threads", lambda: ShardedFilter(CAPACITY, shards=4), whole=False, threads=2),
    _sketch("CountMinSketch"),
    _sketch("CountMinSketch-conservative", conservative=True, construction="classic"),
    Structure(
        "HeavyHitters",
        lambda _: HeavyHitters(50, epsilon=0.01, delta=0.01),
        lambda h, keys, writer: h.add_many(keys, writer + 1),
        lambda h, keys: np.array([h.count(int(key)) > 0 for key in keys[::50]]),
        state=lambda h: h.sketch.to_bytes(),
        whole=False,
    ),
    _table("MultilevelTable", lambda _: MultilevelTable(CAPACITY)),
    _table("MultilevelTable-with-summary", _guided),
    _table("ChainedTable", lambda _: ChainedTable(CAPACITY)),
    _table("PagedTable", _pages, state=lambda t: dict(t.items())),
    _summary(InterpolationSummary, levels=3),
    _summary(SingleFilterSummary, levels=3),
    _summary(MultipleBloomSummary, levels=3),
    _summary(CounterSummary),
    Structure(
        "HashRing",
        lambda _: HashRing([f"server{i}" for i in range(9)], epsilon=0.1),
        lambda r, keys, _: r.assign_many(keys, indices=True),
        lambda r, keys: r.locate_many(keys, indices=True) >= 0,
        erase=lambda r, keys: r.release_many(keys),
    ),
]
BY_NAME = {each.name: each for each in STRUCTURES}


@pytest.fixture(params=STRUCTURES, ids=lambda each: each.name)
def structure(request: pytest.FixtureRequest) -> Structure:
    found: Structure = request.param
    return found


@pytest.fixture(autouse=True)
def _eager_switching() -> Iterator[None]:
    """Let Python switch between threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


# --- writers ------------------------------------------------------------------------------------------


def test_overlapping_bulk_writes_end_in_the_state_of_some_order(structure: Structure, tmp_path: Path) -> None:
    """Three bulk calls at once, twice: one of the six orders explains every byte, or every shard's bytes."""

    def after(order: tuple[int, ...]) -> Any:
        made = structure.new(tmp_path)
        for writer in order:
            structure.write(made, WRITERS[writer], writer)
        return made

    explained = [after(order) for order in itertools.permutations(range(3))]
    for _ in range(2):
        made = structure.new(tmp_path)
        together(*(lambda w=w, made=made: structure.write(made, WRITERS[w], w) for w in range(3)))
        if hasattr(made, "_check"):
            made._check()
        assert np.asarray(structure.holds(made, KEYS[:11_000])).all()
        if structure.whole:
            assert structure.state(made) in [structure.state(each) for each in explained]
        elif isinstance(made, ShardedFilter):
            for shard, part in enumerate(made.parts):
                assert part.to_bytes() in [each.parts[shard].to_bytes() for each in explained]


def test_bulk_writes_from_iterables_end_with_every_key(structure: Structure, tmp_path: Path) -> None:
    """Keys of a list come in batches between which others have their turn; beside them an array."""
    made = structure.new(tmp_path)
    lists = [part.tolist() for part in WRITERS[:2]]
    together(
        lambda: structure.write(made, lists[0], 0),
        lambda: structure.write(made, lists[1], 1),
        lambda: structure.write(made, WRITERS[2], 2),
    )
    if hasattr(made, "_check"):
        made._check()
    assert np.asarray(structure.holds(made, KEYS[:11_000])).all()


# --- readers beside writers --------------------------------------------------------------------------------


def test_readers_find_every_key_that_was_in_before(structure: Structure, tmp_path: Path) -> None:
    """One writer of forty bulk calls that add, and remove where that can be; two readers meanwhile."""
    made = structure.filled(tmp_path, KEYS[:2000])
    done = threading.Event()
    rounds = [0, 0]

    def write() -> None:
        try:
            for i, part in enumerate(np.array_split(KEYS[2000:11_000], 40)):
                structure.write(made, part, 1)
                if structure.erase and i % 2:
                    structure.erase(made, part)
        finally:
            done.set()

    def read(number: int) -> Callable[[], None]:
        keys = KEYS[:2000] if number else KEYS[:300]

        def work() -> None:
            while not done.is_set() or not rounds[number]:
                assert np.asarray(structure.holds(made, keys)).all(), "a key that was in is not found"
                rounds[number] += 1

        return work

    together(write, read(0), read(1))
    assert all(rounds)
    if hasattr(made, "_check"):
        made._check()


def _count(made: Any) -> int:
    """How many keys it says it has; a sketch, the sum of the weights."""
    if isinstance(made, CountMinSketch):
        return int(made.total)
    return len(made) if hasattr(type(made), "__len__") else int(made._keys)


COUNTED = ("Table", "Summary", "Ring", "Sketch")


@pytest.mark.parametrize("name", [name for name in BY_NAME if any(word in name for word in COUNTED)])
def test_a_count_is_of_a_moment_between_two_changes(name: str, tmp_path: Path) -> None:
    """Twenty bulk calls: whoever asks meanwhile gets one of the twenty-one sizes, and they never fall."""
    structure = BY_NAME[name]
    made = structure.new(tmp_path)
    done = threading.Event()
    seen: list[int] = []

    def write() -> None:
        try:
            for part in np.split(KEYS, 20):
                structure.write(made, part, 0)
        finally:
            done.set()

    def ask() -> None:
        while not done.is_set():
            seen.append(_count(made))
        seen.append(_count(made))

    together(write, ask)
    assert seen == sorted(seen)
    assert seen[-1] == len(KEYS)
    assert not {*seen} - {*range(0, len(KEYS) + 1, len(KEYS) // 20)}


@pytest.mark.parametrize("name", [each.name for each in STRUCTURES if "Table" in each.name])
def test_a_value_is_one_that_was_stored(name: str, tmp_path: Path) -> None:
    """Bulk calls overwrite all values by turns: a reader sees, for each key, the old or a new one."""
    structure = BY_NAME[name]
    table = structure.filled(tmp_path, KEYS[:3000])
    done = threading.Event()

    def write() -> None:
        try:
            for value in range(1, 30):
                table.insert_many(KEYS[:3000], value * 0x0101_0101_0101)
        finally:
            done.set()

    def read() -> None:
        before = np.zeros(3000, np.int64)
        while not done.is_set():
            found = table.get_many(KEYS[:3000])
            assert (found % 0x0101_0101_0101 == 0).all(), "a torn value"
            assert (found >= before).all(), "an older value came back"
            before = found
            assert table[int(KEYS[5])] % 0x0101_0101_0101 == 0

    together(write, read, read)
    assert (table.get_many(KEYS[:3000]) == 29 * 0x0101_0101_0101).all()


# --- calls on whole structures -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [each.name for each in STRUCTURES if each.name not in ("PagedTable", "HeavyHitters")]
)
def test_calls_on_whole_structures_cross_without_a_deadlock(name: str, tmp_path: Path) -> None:
    """Comparisons in both directions, copies, pickles, files and statistics, beside a writer on each."""
    structure = BY_NAME[name]
    a, b = structure.filled(tmp_path, KEYS[:1000]), structure.filled(tmp_path, KEYS[500:1500])
    writers = 2
    left = threading.Semaphore(0)

    def write(made: Any) -> Callable[[], None]:
        def work() -> None:
            try:
                for part in np.array_split(KEYS[2000:6000], 10):
                    structure.write(made, part, 2)
            finally:
                left.release()

        return work

    def cross(x: Any, y: Any) -> Callable[[], None]:
        def work() -> None:
            while left._value < writers:  # type: ignore[attr-defined]
                assert (x == y) in (True, False)
                twin = x.copy()
                assert np.asarray(structure.holds(twin, KEYS[500:1000])).all()
                twin._check()
                assert np.asarray(structure.holds(pickle.loads(pickle.dumps(y)), KEYS[500:1000])).all()
                y.stats()
                repr(x)

        return work

    together(write(a), write(b), cross(a, b), cross(b, a))
    for made in (a, b):
        made._check()
        assert np.asarray(structure.holds(made, KEYS[2000:6000])).all()


def test_every_structure_of_the_package_is_here() -> None:
    """A new public structure must say how it behaves under threads."""
    import evenbins

    writing = ("add_many", "insert_many", "assign_many")
    classes = {
        each for each in (getattr(evenbins, name) for name in evenbins.__all__) if isinstance(each, type)
    }
    stores = {each.__name__ for each in classes if any(hasattr(each, name) for name in writing)}
    assert stores - {"Filter"} <= {each.name.split("-")[0] for each in STRUCTURES}

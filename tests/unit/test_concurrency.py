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

import itertools
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structures import BY_NAME, KEYS, STRUCTURES, WRITERS, Structure
from together import together

from evenbins import CountMinSketch, ShardedFilter


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

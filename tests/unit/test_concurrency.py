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

import contextlib
import itertools
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from structures import BY_NAME, FIXED, KEYS, STRUCTURES, WRITERS, Structure
from together import together

from evenbins import ChainedTable, CountMinSketch, HashRing, MultilevelTable, PagedTable, ShardedFilter
from evenbins.tables import mapping as _mapping
from evenbins.tables.summaries import MultipleBloomSummary


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
    if isinstance(made, HashRing):
        return made.key_count
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


TABLES = [each.name for each in STRUCTURES if "Table" in each.name and "set" not in each.name]


@pytest.mark.parametrize("name", TABLES)
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


@pytest.mark.parametrize("name", [each.name for each in STRUCTURES if each.name != "PagedTable"])
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


# --- tables: one step, one moment --------------------------------------------------------------------------

TABLES: dict[str, Callable[[Path, int], Any]] = {
    "MultilevelTable": lambda _, n: MultilevelTable(n),
    "MultilevelTable-with-summary": lambda _, n: MultilevelTable(n, summary="interpolation"),
    "ChainedTable": lambda _, n: ChainedTable(n),
    "PagedTable": lambda folder, n: PagedTable.create(folder / f"pages{n}", n, durable=False),
}


def _meanwhile(change: Callable[[], object], *works: Callable[[], object]) -> None:
    """Run the works at once, and the change again and again until they are done."""
    left = [len(works)]

    def until_done() -> None:
        while left[0]:
            change()

    def counted(work: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            try:
                work()
            finally:
                left[0] -= 1

        return run

    together(until_done, *map(counted, works))


@pytest.mark.parametrize("name", TABLES)
def test_of_several_that_pop_a_key_one_gets_it_and_the_others_the_default(name: str, tmp_path: Path) -> None:
    """Bulk look-ups go on meanwhile: without the GIL, so that single calls have to wait their turn."""
    table = TABLES[name](tmp_path, 400)
    bulk = np.arange(100_000)
    for _ in range(2):
        table.insert_many(range(300), range(300))
        popped: list[list[Any]] = [[], [], []]

        def pop(number: int, table: Any = table, popped: Any = popped) -> Callable[[], None]:
            return lambda: popped[number].extend(table.pop(key, None) for key in range(300))

        _meanwhile(lambda: table.contains_many(bulk), pop(0), pop(1), pop(2))
        assert sorted(value for part in popped for value in part if value is not None) == list(range(300))
        assert len(table) == 0
    table._check()


@pytest.mark.parametrize("name", TABLES)
def test_all_that_set_a_default_get_the_same_value(name: str, tmp_path: Path) -> None:
    table = TABLES[name](tmp_path, 400)
    bulk = np.arange(100_000)
    seen: list[list[Any]] = [[], [], []]

    def set_defaults(number: int) -> Callable[[], None]:
        return lambda: seen[number].extend(table.setdefault(key, number) for key in range(300))

    _meanwhile(lambda: table.contains_many(bulk), set_defaults(0), set_defaults(1), set_defaults(2))
    assert seen[0] == seen[1] == seen[2] == table.get_many(range(300)).tolist()
    table._check()


@pytest.mark.parametrize("name", TABLES)
def test_a_strict_deletion_deletes_all_or_nothing(name: str, tmp_path: Path) -> None:
    """Two delete the same keys, and a KeyError says that nothing was deleted: exactly one may succeed."""
    table = TABLES[name](tmp_path, 4000)
    keys = np.arange(3000)
    for _ in range(20):
        table.insert_many(keys, 0)
        deleted: list[int] = []

        def delete(table: Any = table, deleted: list[int] = deleted) -> None:
            try:
                deleted.append(table.delete_many(keys, missing="error"))
            except KeyError:
                deleted.append(0)

        together(delete, delete)
        assert sorted(deleted) == [0, 3000]
    table._check()


@pytest.mark.parametrize("way", ["grown", "update", "pages"])
def test_a_table_goes_into_another_as_it_is_between_two_changes(way: str, tmp_path: Path) -> None:
    """A writer adds and deletes other keys, which moves residents: none of those that stay may be missed."""
    stay, others = np.arange(1_060_000), np.arange(10**7, 10**7 + 60_000)
    table = MultilevelTable(1_130_000)
    table.insert_many(stay, stay)
    missed: list[int] = []

    def churn() -> None:
        table.insert_many(others, 0)
        table.delete_many(others)

    def go() -> None:
        if way == "grown":
            missed.append(int((~table.grown(1_400_000).contains_many(stay)).sum()))
        elif way == "update":
            other = MultilevelTable(1_400_000)
            other.update(table)
            missed.append(int((~other.contains_many(stay)).sum()))
        else:
            table.save(tmp_path / "pages", layout="pages")
            with PagedTable.open(tmp_path / "pages") as pages:
                missed.append(int((~pages.contains_many(stay)).sum()))

    _meanwhile(churn, lambda: [go() for _ in range(1 if way == "pages" else 2)])
    assert not any(missed)
    assert table.contains_many(stay).all()


@pytest.mark.parametrize("name", TABLES)
def test_a_change_waits_until_all_batches_are_stored(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In batches of 100 keys, the writer is eager between them: old or new values, never both."""
    monkeypatch.setattr(_mapping, "_BATCH", 100)
    table = TABLES[name](tmp_path, 3000)
    keys = np.arange(2000)
    table.insert_many(keys, 0)
    value = itertools.count(1)
    seen: list[npt.NDArray[np.int64]] = []

    def copy() -> None:
        for _ in range(5):
            other = ChainedTable(3000)
            other.update(table)
            seen.append(other.get_many(keys))

    _meanwhile(lambda: table.insert_many(keys, next(value)), copy)
    assert all((each == each[0]).all() for each in seen)


def test_updates_in_both_directions_and_in_a_circle_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_mapping, "_BATCH", 50)
    made = [TABLES[name](tmp_path, 7000 + i) for i, name in enumerate(TABLES)]
    for i, table in enumerate(made):
        table.insert_many(range(1000 * i, 1000 * i + 1000), i)
    pairs = [(0, 1), (1, 0), (1, 2), (2, 0), (0, 3), (3, 1)]
    together(*(lambda pair=pair: made[pair[0]].update(made[pair[1]]) for pair in pairs))
    for table in made:
        table._check()
        table.update(table)
    assert made[0].contains_many([*range(2000), *range(3000, 4000)]).all()


def test_a_table_that_is_being_read_refuses_its_own_change_and_answers() -> None:
    """The call that stores a batch runs while the source is held: it may ask the source, not change it."""
    table = MultilevelTable(1000)
    table.insert_many(range(500), 1)
    waiting = threading.Thread(target=lambda: table.insert_many([600], 6))

    def store(keys: Any, values: Any) -> None:
        if not waiting.ident:
            waiting.start()
            while not waiting.is_alive():
                pass
        for _ in range(100):  # the writer waits for us: an answer must not wait for the writer
            assert table[5] == 1
            assert table.contains_many([5, 600]).tolist() == [True, False]
            assert len(table) == 500
        for change in (lambda: table.insert_many([1], 2), lambda: table.__setitem__(1, 2)):
            with pytest.raises(RuntimeError, match="in the middle of a bulk call"):
                change()

    table._each_batch(store, 200)
    waiting.join(60)
    assert table[600] == 6


@pytest.mark.parametrize("summary", ["multiple-bloom", "single-filter"])
def test_the_summary_is_that_of_one_moment(summary: str) -> None:
    """Lazy deletions replace it by a new one: a copy knows every key that never left."""
    n = 60_000
    table = MultilevelTable(n, scheme="standard", summary=summary, deletions="lazy")
    keys = np.arange(n)
    table.insert_many(keys, 1)

    def churn() -> None:
        for _ in range(4):
            table.delete_many(keys[: n // 4])
            table.insert_many(keys[: n // 4], 0)

    def copy() -> None:
        found = table.summary
        assert found is not None
        assert found.level_many(keys[n // 4 :]).all()

    _meanwhile(copy, churn)
    assert table.stats().rebuilds > 4
    table._check()


def test_a_summary_may_be_attached_and_asked_for_at_once() -> None:
    table = MultilevelTable(2000, scheme="standard")
    table.insert_many(range(2000), 0)
    kinds = ["interpolation", None, "multiple-bloom", "counting-single-filter", None, "single-filter"]

    def ask() -> None:
        found = table.summary
        assert found is None or found.level_many(range(2000)).all()
        stats = table.stats()
        assert stats.summary in kinds
        assert stats.keys == 2000
        with contextlib.suppress(TypeError):  # a summary that cannot forget
            table.pop(5, None)
        table[5] = 0

    _meanwhile(ask, lambda: [table.attach_summary(kind) for kind in kinds * 3])
    table._check()


def test_statistics_are_those_of_one_moment() -> None:
    """A chained table's sums over bins and over keys, a table's over levels: they agree with each other."""
    chained, keys = ChainedTable(6000), np.arange(5000)
    summary = MultipleBloomSummary(6000, levels=3, counting=True)

    def churn() -> None:
        chained.insert_many(keys, 0)
        chained.delete_many(keys)
        summary.add_many(keys, 1)
        summary.remove_many(keys, 1)

    def ask() -> None:
        for _ in range(40):
            stats = chained.stats()
            in_bins = sum(load * bins for load, bins in enumerate(stats.loads))
            in_overflow = sum(load * bins for load, bins in enumerate(stats.overflow_loads))
            assert stats.keys == in_bins + in_overflow
            measured = summary.stats()
            assert (measured.keys == 0) == (max(measured.fills) == 0)

    _meanwhile(churn, ask)


def test_every_structure_of_the_package_is_here() -> None:
    """A new public structure must say how it behaves under threads."""
    import evenbins

    writing = ("add_many", "insert_many", "assign_many")
    classes = {
        each for each in (getattr(evenbins, name) for name in evenbins.__all__) if isinstance(each, type)
    }
    stores = {each.__name__ for each in classes if any(hasattr(each, name) for name in writing)}
    assert stores - {"Filter"} <= {each.name.split("-")[0] for each in (*STRUCTURES, *FIXED)}


def test_tables_of_a_child_do_not_wait_for_copies_of_the_parents_threads() -> None:
    """Between two tables items go under locks that many tables share; a child process has its own."""
    held, done = threading.Event(), threading.Event()

    def copy_all() -> None:
        with contextlib.ExitStack() as stack:
            for lock in _mapping._TRANSFERS:
                stack.enter_context(lock)
            held.set()
            done.wait()

    copier = threading.Thread(target=copy_all, daemon=True)
    copier.start()
    assert held.wait(20), "an earlier copy has left a lock taken"
    child = os.fork()
    if child == 0:
        signal.alarm(100)  # ends a child that waits for ever
        source, target = MultilevelTable(10), MultilevelTable(10)
        source[1] = 2
        target.update(source)
        os._exit(0 if target[1] == 2 else 1)
    done.set()
    copier.join()
    assert os.waitpid(child, 0)[1] == 0


def test_an_update_in_the_middle_of_another_does_not_wait_for_locks() -> None:
    """A signal handler that copies while its thread copies: another thread may hold the locks it needs."""
    source, target = MultilevelTable(10), MultilevelTable(10)
    source[1] = 2
    held, done = threading.Event(), threading.Event()

    def copy_others() -> None:
        with contextlib.ExitStack() as stack:
            for lock in _mapping._TRANSFERS:
                stack.enter_context(lock)
            held.set()
            done.wait(10)

    copier = threading.Thread(target=copy_others)
    copier.start()
    held.wait()
    _mapping._this_thread.copies = True  # as in a handler
    try:
        target.update(source)
        assert copier.is_alive()  # and still has the locks
        assert target[1] == 2
    finally:
        _mapping._this_thread.copies = False
        done.set()
        copier.join()

"""Messages are promises: what an error of a bulk call says of its keys is true, and what it advises works.

    keys ──the source fails at item i──▶ the error says that n are in ──▶ the state is that of the first n,
                                                                          and going on from there ends the job

States are compared as bytes with those of a structure that was given the first n keys and nothing else.
Sources fail by a bad key, by an exception of their own, and by signal handlers that raise, inside the source
and between two batches of the core.
"""

from __future__ import annotations

import _thread
import itertools
import operator
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import KINDS

import evenbins
from evenbins import (
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
    RingFullError,
    ShardedFilter,
    TableFullError,
)
from evenbins.filters import plan_balanced, plan_blocked, plan_standard

MOST = 2600  # keys: more than two batches of the core


class HandlerError(Exception):
    pass


class SourceError(Exception):
    pass


# --- what is tested ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A bulk call: how to make the structure for it, the call, and the state that is compared."""

    name: str
    make: Callable[[Sequence[Any]], Any]  # of the keys that will come
    call: Callable[[Any, Any], object]
    state: Callable[[Any], object] = lambda made: made.to_bytes()
    all_or_nothing: bool = False  # keys are converted before the first goes in


def filled(made: Any, keys: Sequence[Any]) -> Any:
    made.add_many(list(keys))
    return made


def stored(made: Any, keys: Sequence[Any]) -> Any:
    made.insert_many(list(keys), 7)
    return made


def adds(made: Any, keys: Any) -> None:
    made.add_many(keys)


def hitters_state(made: HeavyHitters) -> object:
    made._check()
    return sorted(made.top(), key=repr), made.sketch.to_bytes()


def ring() -> HashRing:
    return HashRing(["a", "b", "c"], epsilon=0.3)


FILTERS = [Subject(kind.name, lambda _, kind=kind: kind(2000), adds) for kind in KINDS]
OTHERS = [
    Subject("growing", lambda _: GrowingFilter(1e-3, first=300, policy="blocked"), adds),
    Subject("growing, two-choice", lambda _: GrowingFilter(1e-2, first=900, policy="two-choice"), adds),
    Subject("sharded", lambda _: ShardedFilter(2000, shards=5), adds),
    Subject("sharded, balanced", lambda _: ShardedFilter(2000, shards=2, policy="fill"), adds),
    Subject(
        "sharded, threads", lambda _: ShardedFilter(2000, shards=3), lambda f, k: f.add_many(k, threads=2)
    ),
    Subject(
        "counting, remove",
        lambda keys: filled(CountingBloomFilter(5000), keys),
        lambda f, keys: f.remove_many(keys),
    ),
    Subject("count-min", lambda _: CountMinSketch(epsilon=1e-2), adds),
    Subject("count-min, conservative", lambda _: CountMinSketch(epsilon=1e-2, conservative=True), adds),
    Subject("heavy hitters", lambda _: HeavyHitters(2 * MOST), adds, hitters_state),
    Subject("ring", lambda _: ring(), lambda r, keys: r.assign_many(keys)),
]
TABLES = [
    subject
    for cls in (MultilevelTable, ChainedTable)
    for subject in (
        Subject(
            f"{cls.__name__}, insert",
            lambda _, cls=cls: cls(4000, key_dtype="digest"),
            lambda table, keys: table.insert_many(keys, 7),
            all_or_nothing=True,
        ),
        Subject(
            f"{cls.__name__}, delete",
            lambda keys, cls=cls: stored(cls(4000, key_dtype="digest"), keys),
            lambda table, keys: table.delete_many(keys),
            all_or_nothing=True,
        ),
    )
]
ONE_OF_EACH = [
    *(each for each in FILTERS if each.name in ("standard", "blocked-512", "balanced", "counting")),
    *OTHERS,
]


# --- sources that fail ---------------------------------------------------------------------------------


def items(keys: Sequence[Any], i: int, bad: Any) -> list[Any]:
    return [*keys[:i], bad, *keys[i:]]


def raising(keys: Sequence[Any], i: int, fail: Callable[[], object]) -> Iterator[Any]:
    yield from keys[:i]
    fail()
    yield from keys[i:]


def fails() -> None:
    raise SourceError


def of_objects(keys: Sequence[Any], i: int) -> Any:
    found = np.empty(len(keys) + 1, dtype=object)
    found[:] = items(keys, i, 2.5)
    return found


def of_arrow(keys: Sequence[Any], i: int) -> Any:
    """A chunked column whose item i is null."""
    whole = items(keys, i, None)
    cuts = [0, len(whole) // 3, len(whole) // 2, len(whole)]
    return pa.chunked_array([pa.array(whole[a:b], pa.string()) for a, b in itertools.pairwise(cuts)])


# The source, by keys and position, and whether the item there is one to leave out when going on.
SOURCES: dict[
    str, tuple[Callable[[Sequence[Any], int], Any], type[BaseException] | tuple[Any, ...], bool]
] = {
    "list": (lambda keys, i: items(keys, i, None), (TypeError, ValueError), True),
    "list, lone surrogate": (lambda keys, i: items(keys, i, "\ud800"), (TypeError, ValueError), True),
    "generator": (lambda keys, i: iter(items(keys, i, [1])), (TypeError, ValueError), True),
    "array of objects": (of_objects, (TypeError, ValueError), True),
    "Arrow": (of_arrow, (TypeError, ValueError), True),
    "raises": (lambda keys, i: raising(keys, i, fails), SourceError, False),
    "handler": (
        lambda keys, i: raising(keys, i, lambda: signal.raise_signal(signal.SIGUSR1)),
        HandlerError,
        False,
    ),
    "Ctrl-C": (
        lambda keys, i: raising(keys, i, lambda: signal.raise_signal(signal.SIGUSR2)),
        KeyboardInterrupt,
        False,
    ),
}


@contextmanager
def handlers() -> Iterator[None]:
    def raise_error(*_: object) -> None:
        raise HandlerError

    before = [
        (signal.SIGUSR1, signal.signal(signal.SIGUSR1, raise_error)),
        (signal.SIGUSR2, signal.signal(signal.SIGUSR2, signal.default_int_handler)),
    ]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


CLAIMS = [
    r"^keys\[(\d+)\]: .*\(the keys before it have been \w+\)",
    r"evenbins: this came from item (\d+) of the keys; the keys before it have been \w+",
    r"stopped after (\d+) keys; these have been \w+",
    r"^keys\[\d+\]: .*\((no) key has been \w+\)",
]


def claim(error: BaseException) -> int | None:
    """How many keys are done, by what the error says: one number, or nothing."""
    texts = [str(error), *getattr(error, "__notes__", ())]
    found = {m[1] for text in texts for pattern in CLAIMS for m in re.finditer(pattern, text, re.DOTALL)}
    assert len(found) <= 1, texts
    if not found:
        return None
    number = found.pop()
    return 0 if number == "no" else int(number)


def check(subject: Subject, keys: Sequence[str], i: int, how: str) -> None:
    make_source, kind_of_error, skip = SOURCES[how]
    made = subject.make(keys)
    with handlers(), pytest.raises(kind_of_error) as caught:
        subject.call(made, make_source(keys, i))
    number = claim(caught.value)
    if skip:
        assert number is not None, caught.value
    if subject.all_or_nothing:
        assert number in (None, 0), "the source had been read to its end before the first key went in"
        number = 0
    assert number is not None, (caught.value, getattr(caught.value, "__notes__", None))
    assert number == (0 if subject.all_or_nothing else i)
    only = subject.make(keys)
    if number:
        subject.call(only, list(keys[:number]))
    assert subject.state(made) == subject.state(only)
    subject.call(made, list(keys[number:]))  # a bad key is left out
    whole = subject.make(keys)
    subject.call(whole, list(keys))
    assert subject.state(made) == subject.state(whole)


sizes = st.one_of(st.integers(0, 40), st.integers(1000, 1050), st.integers(2040, MOST))


@pytest.mark.parametrize("subject", FILTERS, ids=lambda each: each.name)
@settings(max_examples=6)
@given(data=st.data())
def test_errors_of_filters_say_which_keys_are_in(subject: Subject, data: st.DataObject) -> None:
    size = data.draw(sizes)
    keys = [f"key-{k}" for k in range(size)]
    check(subject, keys, data.draw(st.integers(0, size)), data.draw(st.sampled_from(sorted(SOURCES))))


@pytest.mark.parametrize("subject", [*OTHERS, *TABLES], ids=lambda each: each.name)
@settings(max_examples=15)
@given(data=st.data())
def test_errors_of_other_structures_say_which_keys_are_in(subject: Subject, data: st.DataObject) -> None:
    size = data.draw(sizes)
    keys = [f"key-{k}" for k in range(size)]
    check(subject, keys, data.draw(st.integers(0, size)), data.draw(st.sampled_from(sorted(SOURCES))))


@pytest.mark.parametrize("how", sorted(SOURCES))
@pytest.mark.parametrize("subject", [*ONE_OF_EACH, *TABLES], ids=lambda each: each.name)
def test_each_source_may_fail_anywhere_in_a_batch(subject: Subject, how: str) -> None:
    keys = [f"key-{k}" for k in range(1500)]
    for i in (0, 1024, 1500):
        check(subject, keys, i, how)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
@pytest.mark.parametrize(
    "subject", [each for each in ONE_OF_EACH if each.name != "heavy hitters"], ids=lambda each: each.name
)
def test_signals_between_two_batches_of_the_core(subject: Subject, number: int) -> None:
    """The source is C code throughout, so that the handler runs when the core polls, after a whole batch."""
    keys = list(range(3000))
    for i in (0, 1023, 1024, 2500):
        signals = map(operator.truth, map(_thread.interrupt_main, [number]))  # yields False, which is 0
        effects = itertools.chain(itertools.repeat(0, i), signals, itertools.repeat(0))
        made = subject.make(keys)
        with handlers(), pytest.raises((HandlerError, KeyboardInterrupt)) as caught:
            subject.call(made, map(operator.add, keys, effects))
        done = claim(caught.value)
        assert done is not None
        assert (0 if "growing" in subject.name else i + 1) <= done <= 3000  # a stage is planned by Python
        only = subject.make(keys)
        subject.call(only, keys[:done])
        assert subject.state(made) == subject.state(only)
        subject.call(made, keys[done:])
        whole = subject.make(keys)
        subject.call(whole, keys)
        assert subject.state(made) == subject.state(whole)


def test_heavy_hitters_interrupted_at_every_line_keep_their_promise() -> None:
    """An exception at the n-th line of Python that runs, for every n: as a signal handler may raise there."""
    keys = [f"key-{k % 40}" for k in range(300)]
    base = HeavyHitters(25)
    base.add_many([f"old-{k % 15}" for k in range(100)])
    for n in range(0, 400, 3):
        hitters = base.copy()
        left = n

        def trace(frame: Any, event: str, _: Any) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.endswith(("hitters_stream.py", "tracked_keys.py")):
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    sys.settrace(None)
                    raise HandlerError
            return trace

        done: int | None = len(keys)
        before = sys.gettrace()
        try:
            sys.settrace(trace)
            hitters.add_many(keys)
        except HandlerError as error:
            done = claim(error)
        finally:
            sys.settrace(before)
        total = hitters.total - base.total
        assert done in (None, total)
        hitters._check()
        least = min(estimate for _, estimate in hitters.top())
        outside = {*keys} - {key for key, _ in hitters.top()}
        true = {key: keys[:total].count(key) for key in outside}
        assert len(hitters.top()) < 25 or all(count <= least for count in true.values())
        hitters.add_many(keys[total:])
        assert hitters.total == base.total + len(keys)
        hitters._check()


# --- structures that are full --------------------------------------------------------------------------


@settings(max_examples=20)
@given(limit=st.integers(1, 40), keys=st.integers(0, 300), array=st.booleans())
def test_a_full_ring_says_how_many_keys_are_assigned(limit: int, keys: int, array: bool) -> None:
    made, wanted = HashRing(["a", "b"], limit=limit), np.arange(keys)
    source = wanted if array else iter(wanted.tolist())
    if keys <= 2 * limit:
        made.assign_many(source)
        return
    with pytest.raises(RingFullError) as caught:
        made.assign_many(source)
    done = caught.value.assigned
    assert f"keys[{done}]" in str(caught.value)
    assert [made.locate(int(key)) is not None for key in wanted] == [k < done for k in range(keys)]
    made.add_node("c")
    made.add_node("d")
    if keys <= 3 * limit:
        made.assign_many(wanted[done:])
        assert all(made.locate(int(key)) for key in wanted)


@pytest.mark.parametrize("cls", [MultilevelTable, ChainedTable])
def test_a_full_table_says_how_many_keys_are_in(cls: Any) -> None:
    made = cls(50)
    with pytest.raises(TableFullError) as caught:
        made.insert_many(np.arange(100_000), np.arange(100_000))
    done = caught.value.inserted
    assert f"keys[{done}]" in str(caught.value)
    assert len(made) == done
    assert made.contains_many(np.arange(done)).all()
    assert not made.contains_many(np.arange(done, 100_000)).any()


@pytest.mark.parametrize("make", [lambda: CountMinSketch(epsilon=1e-2), lambda: HeavyHitters(5000)])
@settings(max_examples=10)
@given(i=st.integers(0, 3000))
def test_a_sketch_at_its_largest_total_says_how_many_keys_are_in(make: Callable[[], Any], i: int) -> None:
    made, weights = make(), np.ones(3001, dtype=np.uint64)
    made.add("before", 2**64 - 1 - 5000)
    weights[i] = 2**63
    with pytest.raises(OverflowError) as caught:
        made.add_many(np.arange(3001), weights)
    assert claim(caught.value) == i
    assert made.total == 2**64 - 1 - 5000 + i
    made.add_many(np.arange(i + 1, 3001), weights[i + 1 :])
    assert made.total == 2**64 - 1 - 2000


# --- advice --------------------------------------------------------------------------------------------


def saved(tmp_path: Path, made: Any) -> Path:
    made.save(tmp_path / "saved")
    return tmp_path / "saved"


def after(pattern: str, error: BaseException) -> str:
    found = re.search(pattern, str(error))
    assert found, str(error)
    return found[1]


ADVICE: dict[str, tuple[Callable[[Path], Any], str, Callable[[Path, BaseException], Any]]] = {
    "one key is not many": (
        lambda _: BloomFilter(10).add_many("abc"),
        r"use add\(key\), or put it into a list",
        lambda _, error: (BloomFilter(10).add("abc"), BloomFilter(10).add_many(["abc"])),
    ),
    "threads": (
        lambda _: GrowingFilter().add_many([1], threads=0),
        r"1 to (\d+), not 0: leave it out to use the cores that there are",
        lambda _, error: [
            ShardedFilter(10, shards=2).add_many(range(9), threads=n)
            for n in (1, None, int(after(r"1 to (\d+)", error)))
        ],
    ),
    "a growing filter's rate": (
        lambda _: GrowingFilter(1e-17, first=100),
        r"fpr must be at least",
        lambda _, error: GrowingFilter(float(after(r"at least (\S+) ", error)), first=100),
    ),
    "a balanced filter's rate": (
        lambda _: plan_balanced(10**6, policy="fill", fpr=1e-14),
        r"fpr must be at least",
        lambda _, error: plan_balanced(10**6, policy="fill", fpr=float(after(r"at least (\S+) ", error))),
    ),
    "a standard filter's rate": (
        lambda _: plan_standard(10**6, fpr=1e-15),
        r"fpr",
        lambda _, error: plan_standard(10**6, fpr=float(after(r"([\d.]+e-\d+)", error))),
    ),
    "read-only": (
        lambda path: BlockedBloomFilter.open(saved(path, BlockedBloomFilter(10))).add(1),
        r"use load\(\) or copy\(\)",
        lambda path, error: (
            BlockedBloomFilter.load(path / "saved").add(1),
            BlockedBloomFilter.open(path / "saved").copy().add(1),
        ),
    ),
    "read-only, growing": (
        lambda path: GrowingFilter.open(saved(path, GrowingFilter())).add_many([1]),
        r"use load\(\) or copy\(\)",
        lambda path, error: (
            GrowingFilter.load(path / "saved").add(1),
            GrowingFilter.open(path / "saved").copy().add(1),
        ),
    ),
    "masked": (
        lambda _: BloomFilter(10).add_many(np.ma.array([1, 2], mask=[0, 1])),
        r"keys.compressed\(\)",
        lambda _, error: BloomFilter(10).add_many(np.ma.array([1, 2], mask=[0, 1]).compressed()),
    ),
    "floats": (
        lambda _: BloomFilter(10).add_many(np.array([1.0, 2.0])),
        r"\.astype\('int64'\) or \.astype\(str\)",
        lambda _, error: [BloomFilter(10).add_many(np.array([1.0, 2.0]).astype(to)) for to in ("int64", str)],
    ),
    "nulls": (
        lambda _: GrowingFilter().add_many(pa.array([1, None])),
        r"drop_nulls\(\)",
        lambda _, error: GrowingFilter().add_many(pa.array([1, None]).drop_null()),
    ),
    "digests": (
        lambda _: ShardedFilter(10, shards=2).add_many(np.array([1, 2]), digests=True),
        r"leave out digests=True",
        lambda _, error: ShardedFilter(10, shards=2).add_many(np.array([1, 2])),
    ),
    "another kind of file": (
        lambda path: GrowingFilter.load(saved(path, BloomFilter(10))),
        r"use evenbins.load or evenbins.open",
        lambda path, error: (evenbins.load(path / "saved"), evenbins.open(path / "saved")),
    ),
    "another class's plan": (
        lambda _: BloomFilter.from_plan(plan_blocked(10)),
        r"Use (\w+).from_plan",
        lambda _, error: getattr(evenbins, after(r"Use (\w+)\.", error)).from_plan(plan_blocked(10)),
    ),
    "merging": (
        lambda _: GrowingFilter(1e-2) | GrowingFilter(1e-3),
        r"Build both with the same arguments",
        lambda _, error: GrowingFilter(1e-2) | GrowingFilter(1e-2),
    ),
    "missing keys of a table": (
        lambda _: MultilevelTable(10).get_many([1]),
        r"pass default=",
        lambda _, error: MultilevelTable(10).get_many([1], default=0),
    ),
    "large integers in a table": (
        lambda _: MultilevelTable(10).insert_many(np.array([2**64 - 1], dtype=np.uint64), 1),
        r"make it with key_dtype='(\w+)'",
        lambda _, error: MultilevelTable(10, key_dtype=after(r"key_dtype='(\w+)'[^']*$", error)).insert_many(
            np.array([2**64 - 1], dtype=np.uint64), 1
        ),
    ),
    "masked weights": (
        lambda _: CountMinSketch().add_many([1], np.ma.array([1], mask=[1])),
        r"weights.filled\(0\)",
        lambda _, error: CountMinSketch().add_many([1], np.ma.array([1], mask=[1]).filled(0)),
    ),
    "a filter that does not count": (
        lambda _: BlockedBloomFilter(100)._remove(1),
        r"use CountingBloomFilter",
        lambda _, error: filled(CountingBloomFilter(100), [1]).remove(1),
    ),
}


@pytest.mark.parametrize("name", ADVICE)
def test_the_advice_of_an_error_works(name: str, tmp_path: Path) -> None:
    bad, advice, good = ADVICE[name]
    with pytest.raises((TypeError, ValueError, KeyError, MemoryError), match=advice) as caught:
        bad(tmp_path)
    good(tmp_path, caught.value)


def test_a_paged_table_says_how_many_keys_are_in(tmp_path: Path) -> None:
    with PagedTable.create(tmp_path / "t", 2000, key_dtype="digest") as table:
        for how in ("list", "generator", "array of objects", "Arrow"):
            make_source, error, _ = SOURCES[how]
            with pytest.raises(error) as caught:
                table.insert_many(make_source([f"key-{k}" for k in range(500)], 300), 1)
            assert claim(caught.value) == 0
            assert len(table) == 0

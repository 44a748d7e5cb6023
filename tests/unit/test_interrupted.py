"""Signals in the middle of `keep` and `add_new_many`: what is in has an answer, and no change is nested."""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    CountingBloomFilter,
    Deduplicator,
    GrowingFilter,
    OverfilledWarning,
    ShardedFilter,
)

ROWS = 600_000
KEYS = np.random.default_rng(5).integers(0, 2**40, ROWS).astype(np.uint64)
KEYS[ROWS // 2 :: 3] = KEYS[: len(KEYS[ROWS // 2 :: 3])]  # repeats


def first_occurrences(keys: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    found = np.zeros(len(keys), dtype=np.bool_)
    found[np.unique(keys, return_index=True)[1]] = True
    return found


EXPECTED = first_occurrences(KEYS)


class Stop(Exception):
    """Raised by a signal handler."""


@contextmanager
def alarms(handler: Callable[[], None], first: float, then: float = 0.0) -> Iterator[None]:
    """Call the handler after some seconds, and then again and again."""
    before = signal.signal(signal.SIGALRM, lambda *_: handler())
    signal.setitimer(signal.ITIMER_REAL, first, then)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


KINDS: list[dict[str, Any]] = [
    {"capacity": 700_000},
    {},  # many stages
    {"exact": True},  # one set, and then 64
    {"exact": True, "capacity": 1_100_000},  # 64 sets
]
kinds = pytest.mark.parametrize("arguments", KINDS, ids=["planned", "grows", "exact", "64 sets"])


@kinds
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt])
def test_the_rows_that_are_in_have_their_answers(
    arguments: dict[str, Any], threads: int, error: type[BaseException]
) -> None:
    """Signals come at random moments, and `keep` goes on behind the answers: all of them are right."""

    def stop() -> None:
        raise error

    choose = random.Random(f"{arguments}{threads}{error}")
    d = Deduplicator(**arguments)
    done, stops = 0, 0
    answers = []
    while done < ROWS:
        found = None
        try:
            with alarms(stop, choose.uniform(0.0005, 0.03) if stops < 12 else 100.0):
                found = d.keep(KEYS[done:], threads=threads)
        except (error, RuntimeError) as caught:
            # Python's own locks, interrupted, may say "release unlocked lock" instead.
            if not isinstance(caught, error) and not isinstance(caught.__context__, error):
                raise
            found = getattr(caught, "answers", found)  # none of its own: it came before or after `keep`
            stops += 1
        found = np.zeros(0, dtype=np.bool_) if found is None else found
        answers.append(found)
        done += len(found)
        assert d.stats().rows == done
    assert (np.concatenate(answers) == EXPECTED).all()
    assert d.stats().kept == EXPECTED.sum()
    d._check()
    assert Deduplicator.from_bytes(d.to_bytes()) == d


@kinds
def test_a_call_inside_a_call_is_refused(arguments: dict[str, Any], tmp_path: Path) -> None:
    """As docs/concurrency.md promises. Nothing of it happens; the outer call goes on."""
    d, other = Deduplicator(**arguments), Deduplicator(**arguments)
    other.keep(np.arange(10))
    calls: list[Callable[[], object]] = [
        lambda: d.keep(np.arange(2**50, 2**50 + 40_000)),
        lambda: d.save(tmp_path / "inner.evb"),
        lambda: d.merge(other),
        d.clear,
        d.copy,
        d.stats,
        lambda: d == other,
    ]
    numbers = itertools.cycle(range(len(calls)))
    refused: list[int] = []
    inside = False

    def handler() -> None:
        if not inside:
            return
        number = next(numbers)  # the timer may interrupt this handler: both have a number of their own
        with pytest.raises(RuntimeError, match=r"in the middle of a call of the same thread") as caught:
            calls[number]()
        if not number:
            assert caught.value.answers.tolist() == []  # type: ignore[attr-defined]
        refused.append(number)

    outer = d._state.add_new

    def watched(*args: Any) -> Any:
        nonlocal inside
        inside = True
        try:
            while len(set(refused)) < len(calls):  # each at least once; two signals at once are one call
                signal.raise_signal(signal.SIGALRM)
            return outer(*args)
        finally:
            inside = False

    d._state.add_new = watched  # type: ignore[method-assign]
    with alarms(handler, 0.002, 0.004):
        answers = d.keep(KEYS)
    del d._state.add_new
    assert set(refused) == set(range(len(calls)))
    assert (answers == EXPECTED).all()
    assert not list(tmp_path.iterdir())
    twin = Deduplicator(**arguments)
    twin.keep(KEYS)
    assert d == twin
    assert Deduplicator.from_bytes(d.to_bytes()) == d


@pytest.mark.parametrize("exact", [False, True])
def test_keep_inside_save_is_refused(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    d = Deduplicator(exact=exact)
    d.keep(["a"])
    to_parts = d._state.to_parts

    def parts() -> Any:
        with pytest.raises(RuntimeError, match="in the middle of a call of the same thread"):
            d.keep(["b"])
        yield from to_parts()

    monkeypatch.setattr(d._state, "to_parts", parts)
    assert "b" not in Deduplicator.from_bytes(d.to_bytes())


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("batch", "options"),
    [(["a", None], {}), (["a", 1.5], {}), (7, {}), (["a"], {"threads": 0}), (["a"], {"threads": "x"})],
)
def test_every_exception_has_answers(exact: bool, batch: object, options: dict[str, Any]) -> None:
    d = Deduplicator(exact=exact)
    with pytest.raises((TypeError, ValueError)) as caught:
        d.keep(batch, **options)
    answers = caught.value.answers  # type: ignore[union-attr]
    assert (answers.dtype, answers.tolist()) == (np.dtype(bool), [])
    assert d.stats().rows == 0


# --- filters ------------------------------------------------------------------------------------------------

FILTERS: dict[str, Callable[[int], Any]] = {
    "standard": lambda keys: BloomFilter(keys, fpr=1e-9),
    "blocked": lambda keys: BlockedBloomFilter(keys, fpr=1e-9),
    "counting": lambda keys: CountingBloomFilter(keys, fpr=1e-9),
    "balanced": lambda keys: BalancedBloomFilter(keys, fpr=1e-9),
    "growing": lambda keys: GrowingFilter(fpr=1e-9),
    "sharded": lambda keys: ShardedFilter(keys, fpr=1e-9, shards=3),
}
filters = pytest.mark.parametrize("kind", FILTERS)


@filters
def test_a_bad_key_leaves_the_answers_of_those_before(kind: str) -> None:
    f = FILTERS[kind](100_000)
    with pytest.raises(TypeError, match="keys\\[3\\]") as caught:
        f.add_new_many(["a", "b", "a", None, "c"])
    assert caught.value.answers.tolist() == [True, True, False]  # type: ignore[attr-defined]
    assert ("a" in f, "b" in f, "c" in f) == (True, True, False)


@filters
def test_an_iterator_that_fails_leaves_the_answers(kind: str) -> None:
    def keys() -> Iterator[int]:
        yield from KEYS[:3000].tolist()
        raise Stop

    f = FILTERS[kind](100_000)
    with pytest.raises(Stop) as caught:
        f.add_new_many(keys())
    assert caught.value.answers.tolist() == [True] * 3000  # type: ignore[attr-defined]
    assert f.contains_many(KEYS[:3000]).all()


@filters
def test_a_null_in_a_column_leaves_the_answers(kind: str) -> None:
    column = pa.chunked_array([[1, 2, 1], [5, 2, None, 7]])
    f = FILTERS[kind](100_000)
    with pytest.raises((TypeError, ValueError)) as caught:
        f.add_new_many(column)
    assert caught.value.answers.tolist() == [True, True, False, True, False]  # type: ignore[union-attr]
    assert f.contains_many([1, 2, 5]).all()
    assert 7 not in f


@filters
@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_leaves_the_answers(kind: str, threads: int) -> None:
    """The core asks for signals every 50 ms; the keys of an array are enough for that."""

    def stop() -> None:
        raise KeyboardInterrupt

    keys = np.arange(6_000_000, dtype=np.uint64)
    f = FILTERS[kind](len(keys))
    answers = np.zeros(0, dtype=np.bool_)
    try:
        with alarms(stop, 0.02):
            answers = f.add_new_many(keys, threads=threads)
    except KeyboardInterrupt as caught:  # without answers: it came before or after the call
        answers = getattr(caught, "answers", answers)
    assert answers.all()
    assert f.contains_many(keys[: len(answers)]).all()
    assert f.contains_many(keys[len(answers) : len(answers) + 1000]).sum() == 0


@filters
def test_arguments_that_are_refused_leave_no_answers(kind: str) -> None:
    with pytest.raises(TypeError) as caught:
        FILTERS[kind](100).add_new_many(7)
    assert caught.value.answers.tolist() == []  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("error")
def test_a_warning_that_is_an_error_has_the_answers() -> None:
    f = BlockedBloomFilter(10, fpr=0.01)
    with pytest.raises(OverfilledWarning) as caught:
        f.add_new_many(np.arange(3000))
    answers = caught.value.answers  # type: ignore[attr-defined]
    assert len(answers) == 3000
    assert answers[:10].all()

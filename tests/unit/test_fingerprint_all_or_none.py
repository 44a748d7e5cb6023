"""An array that does not fit into a fingerprint filter: none of its keys is in, and no other key is lost."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import evenbins
from evenbins import FilterFullError, FingerprintFilter, GrowingFilter

SECONDS = 0.6
SEMANTICS = pytest.mark.parametrize("semantics", ["set", "multiset"])
THREADS = pytest.mark.parametrize("threads", [1, 2])


@contextmanager
def beside(work: Any) -> Iterator[None]:
    """Call `work` again and again on another thread."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def too_many(semantics: str, count: int) -> np.ndarray:
    """Return keys of which a filter for half of them finds too late that they do not fit."""
    if semantics == "set":
        return np.arange(10**6, 10**6 + count)
    return np.concatenate(
        [np.arange(10**6, 10**6 + count // 3), np.full(count // 10, 10**7)]
    )  # one key often


@THREADS
def test_a_key_that_is_added_meanwhile_stays(threads: int) -> None:
    """The array was taken out in a second step, and with it keys that other threads had added in between."""
    f = FingerprintFilter(20_000, 1e-6, semantics="set")
    many = np.arange(40_000)
    added = []

    def fail() -> None:
        with suppress(FilterFullError):
            f.add_many(many, threads=threads)

    with beside(fail):
        end = time.monotonic() + SECONDS
        for key in range(2000):
            with suppress(FilterFullError):
                f.add(key)
                added.append(key)
            time.sleep(0.0002)
            if time.monotonic() > end:
                break
    assert f.contains_many(added).all()


@SEMANTICS
@THREADS
@pytest.mark.parametrize("call", ["add_many", "add_new_many"])
def test_an_array_that_changes_meanwhile_takes_no_other_key_along(
    semantics: str, threads: int, call: str
) -> None:
    """What was taken out were the keys that the array had by then."""
    old = np.arange(1000)
    f = FingerprintFilter(100_000, 1e-6, semantics=semantics)  # type: ignore[arg-type]
    f.add_many(old)
    fresh = too_many(semantics, 200_000)
    stale = np.resize(old, fresh.size)
    keys = fresh.copy()

    def change() -> None:
        keys[:] = stale
        keys[:] = fresh

    with beside(change):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with suppress(FilterFullError):
                getattr(f, call)(keys, threads=threads)
            assert f.contains_many(old).all()
            if call == "add_new_many" or semantics == "set":
                f.clear()
                f.add_many(old)
    f._check()


@SEMANTICS
@THREADS
def test_many_pieces_are_taken_back(semantics: str, threads: int) -> None:
    """The core adds a million keys at a time, and reads those before again."""
    f = FingerprintFilter(2_200_000, 1e-3, semantics=semantics)  # type: ignore[arg-type]
    f.add_many(np.arange(1000))
    before = f.to_bytes()
    keys = np.arange(2_600_000) if semantics == "set" else np.append(np.arange(2_150_000), [7] * 10_000)
    with pytest.raises(FilterFullError, match="none was added") as caught:
        f.add_many(keys, threads=threads)
    assert caught.value.added == 0  # type: ignore[attr-defined]
    assert f.to_bytes() == before


class Exported:
    """A column that has nothing but Arrow's protocol."""

    def __init__(self, column: Any) -> None:
        self.column = column

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self.column.__arrow_c_array__(requested_schema)


FORMS = {
    "objects": lambda keys: np.array(keys, object),
    "Arrow": pa.array,
    "chunks": lambda keys: pa.chunked_array([keys[:70], keys[70:]]),
    "pandas": lambda keys: pd.Series(keys, dtype="Int64"),
    "no length": lambda keys: Exported(pa.array(keys)),
}


@SEMANTICS
@pytest.mark.parametrize("form", FORMS)
def test_a_bad_key_behind_the_last_that_fits(semantics: str, form: str) -> None:
    """The keys before it stayed in, and the error was that of the key."""
    f = FingerprintFilter(100, 1e-6, semantics=semantics)  # type: ignore[arg-type]
    f.add_many(np.arange(5))
    before = f.to_bytes()
    with pytest.raises(FilterFullError, match="none was added"):
        f.add_many(FORMS[form]([*range(200), None]))
    assert f.to_bytes() == before
    with pytest.raises((TypeError, ValueError), match=r"keys\[50\].*keys before it have been added"):
        f.add_many(FORMS[form]([*range(1000, 1050), None]))
    assert f.contains_many(range(1000, 1050)).all()
    assert f.stats().keys == 55


@SEMANTICS
def test_interrupts_leave_all_keys_or_a_prefix_or_none(semantics: str) -> None:
    """A handler that raises while the keys were taken out left them in, without a word."""
    f = FingerprintFilter(250_000, 1e-3, semantics=semantics)  # type: ignore[arg-type]
    keys = too_many(semantics, 600_000)

    class Stop(Exception):
        pass

    def stop(number: int, frame: object) -> None:
        raise Stop

    old = signal.signal(signal.SIGALRM, stop)
    try:
        for attempt in range(60):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + attempt * 0.0005)
                f.add_many(keys)
            except FilterFullError:
                signal.setitimer(signal.ITIMER_REAL, 0)
                assert f.stats().keys == 0
            except Stop as error:
                notes = "".join(getattr(error, "__notes__", ()))
                taken = re.search(r"item (\d+)", notes)
                twin = FingerprintFilter(250_000, 1e-3, semantics=semantics)  # type: ignore[arg-type]
                twin.add_many(keys[: int(taken[1]) if taken else 0])
                assert f == twin, notes
                f.clear()
    except Stop:
        pass  # between two calls
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    f._check()


def test_what_is_wrong_comes_before_what_does_not_fit(tmp_path: Any) -> None:
    f = FingerprintFilter(100)
    f.save(tmp_path / "f")
    with pytest.raises(TypeError, match="array of float64"):
        f.add_many(np.zeros(1000))
    with pytest.raises(ValueError, match="masked"):
        f.add_many(np.ma.masked_array(np.arange(1000), [1] * 1000))
    with pytest.raises(ValueError, match="threads must be"):
        f.add_many(np.arange(1000), threads=0)
    with pytest.raises(TypeError, match="digests must be uint64"):
        f.add_many(np.arange(1000), digests=True)
    with pytest.raises(TypeError, match="one column, not a table of 2"):
        f.add_many(pa.record_batch({"a": range(80), "b": range(80)}))
    with pytest.raises(ValueError, match="read-only"):
        evenbins.open(tmp_path / "f").add_many(np.arange(1000))
    with pytest.raises(FilterFullError, match="1000 more do not fit"):
        f.add_many(np.arange(1000))


@pytest.mark.parametrize("numbers", [(20_000, 20_000), (8_000, 24_000), (3_000, 25_599)])
def test_a_merge_of_growing_filters_that_fails_changes_nothing(numbers: tuple[int, int]) -> None:
    """The stage grew before it was known that the other one does not fit."""
    a, b = (GrowingFilter(1e-3, first=100, policy="fingerprint") for _ in range(2))
    a.add_many(range(numbers[0]))
    b.add_many(range(10**6, 10**6 + numbers[1]))
    before = a.to_bytes()
    with pytest.raises(ValueError, match="cannot merge"):
        a |= b
    assert a.to_bytes() == before

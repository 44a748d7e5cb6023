"""Bulk calls of the multilevel table on several threads: the bytes, answers and errors of one thread.

The tables here are large enough for rounds (cpp/include/evenbins/table_rounds.hpp): 131,072 slots, and 8192
keys for each thread.
"""

from __future__ import annotations

import re
import signal
import threading
from types import FrameType
from typing import Any

import numpy as np
import pytest

from evenbins import MultilevelTable, TableFullError
from evenbins.tables.multilevel import plan_multilevel

THREADS = (1, 2, 3, 7, 16)
KEYS = 140_000
SCHEMES = ("least-loaded", "standard", "conservative", "second-chance", "extreme-second-chance")
TYPES: tuple[tuple[str, str | None], ...] = (("uint64", "uint64"), ("digest", None), ("digest", "int64"))


def words_for(key_dtype: str, count: int, seed: int) -> Any:
    """Return keys as words, one in twenty of which comes twice."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(1, 2**62, count, dtype=np.uint64)
    keys[rng.integers(0, count, count // 20)] = keys[rng.integers(0, count, count // 20)]
    if key_dtype != "digest":
        return keys
    return np.column_stack([keys * np.uint64(0x9E3779B97F4A7C15), keys]).ravel()


@pytest.mark.parametrize("load", [0.97, 1.2], ids=["room", "full"])
@pytest.mark.parametrize(("scheme", "types"), [
    (scheme, types) for i, scheme in enumerate(SCHEMES) for types in (TYPES if i == 0 else TYPES[i % 3:][:1])
])  # fmt: skip
def test_threads_leave_the_bytes_of_one(scheme: str, types: tuple[str, str | None], load: float) -> None:
    """Insertions, also into a table that gets full, and deletions: bytes, counters, answers and errors."""
    key_dtype, value_dtype = types
    empty = MultilevelTable(KEYS, scheme=scheme, key_dtype=key_dtype, value_dtype=value_dtype)
    count = int(KEYS * load)
    words, values = words_for(key_dtype, count, 1), np.arange(count, dtype=np.uint64)
    gone = words.reshape(count, -1)[count // 3 :].ravel()
    expected: Any = None
    for threads in THREADS if scheme == "least-loaded" else (1, 3):
        table, inserted = empty.copy(), -1
        answers = np.full(count, 9, np.uint8)
        try:
            if value_dtype is None:
                table._add_new_into(words, answers, threads)
            else:
                table._insert_many(words, values, False, 0, threads)
        except TableFullError as error:
            inserted = error.inserted
        filled = table.to_bytes()
        table._check()
        deleted = table._erase_many(gone, False, threads)
        table._check()
        found = (filled, inserted, answers.tobytes(), deleted, table.to_bytes())
        expected = expected or found
        assert found == expected
    assert (expected[1] >= 0) == (load > 1)


@pytest.mark.parametrize("scheme", SCHEMES[1:])
def test_threads_leave_the_bytes_of_one_with_next_hashes(scheme: str) -> None:
    """Several buckets share a byte of occupancy, and residents are moved by their next hashes."""
    plan = plan_multilevel(KEYS, scheme=scheme, slots=2, levels=3, next_hashes=True, key_dtype="uint64")
    words, values = words_for("uint64", KEYS, 8), np.arange(KEYS)
    alone, shared = (MultilevelTable.from_plan(plan) for _ in range(2))
    alone.insert_many(words, values, threads=1)
    shared.insert_many(words, values, threads=3)
    assert shared.same_bytes(alone)
    shared._check()


def test_keys_in_any_number_of_calls_leave_the_same_bytes() -> None:
    words, values = words_for("uint64", KEYS, 2), np.arange(KEYS)
    once, often, single = (MultilevelTable(KEYS, key_dtype="uint64") for _ in range(3))
    once.insert_many(words, values, threads=2)
    for start in range(0, KEYS, 33_333):
        often.insert_many(words[start : start + 33_333], values[start : start + 33_333], threads=3)
    single.insert_many(words, values, threads=1)
    assert once.same_bytes(often)
    assert once.same_bytes(single)


def test_unique_keys_and_overwritten_values_on_threads() -> None:
    keys = np.unique(words_for("uint64", KEYS, 3)) + np.uint64(5)
    values = np.arange(len(keys))
    table, alone = (MultilevelTable(KEYS, key_dtype="uint64") for _ in range(2))
    table.insert_many(keys, values, assume_unique=True, threads=4)
    alone.insert_many(keys, values, assume_unique=True, threads=1)
    assert table.same_bytes(alone)
    table.insert_many(keys[::-1], values, threads=4)
    assert (table.get_many(keys, threads=3) == values[::-1]).all()


def test_one_key_over_and_over_on_threads() -> None:
    """Every key of a round touches the same buckets: they are stored one after the other."""
    table = MultilevelTable(KEYS)
    table.insert_many(np.full(50_000, 7), np.arange(50_000), threads=4)
    assert list(table.items()) == [(7, 49_999)]
    assert table.delete_many(np.full(50_000, 7), threads=4) == 1
    assert not len(table)
    table._check()


@pytest.mark.parametrize("summary", ["interpolation", "counting-single-filter"])
def test_a_table_with_a_summary_takes_the_argument(summary: str) -> None:
    keys = np.arange(20_000)
    table, alone = (MultilevelTable(20_000, scheme="standard", summary=summary) for _ in range(2))
    table.insert_many(keys, keys, threads=2)
    alone.insert_many(keys, keys, threads=1)
    assert table.delete_many(keys[:9000], threads=2) == alone.delete_many(keys[:9000], threads=1) == 9000
    assert table.same_bytes(alone)
    table._check()


def test_sets_update_and_union_on_threads() -> None:
    keys = words_for("uint64", KEYS, 4)
    one, two = (MultilevelTable(KEYS, key_dtype="uint64", value_dtype=None) for _ in range(2))
    assert one.add_new_many(keys, threads=2).sum() == len(one) == len(np.unique(keys))
    two.update(one)
    assert one == two
    assert two.discard_many(keys[:50_000], threads=2) == len(np.unique(keys[:50_000]))
    one.add_many(keys, threads=3)
    assert len(one) == len(np.unique(keys))
    one._check()
    two._check()


def test_delete_many_refuses_on_threads_and_deletes_nothing() -> None:
    keys = np.arange(KEYS)
    table = MultilevelTable(KEYS)
    table.insert_many(keys, 0, threads=2)
    before = table.to_bytes()
    with pytest.raises(KeyError, match=r"1 of 100001 keys are not in the table, the first at index 100000"):
        table.delete_many(np.append(keys[:100_000], -1), missing="error", threads=2)
    assert table.to_bytes() == before


@pytest.mark.parametrize("call", ["insert_many", "delete_many", "get_many", "contains_many"])
@pytest.mark.parametrize(
    ("threads", "error", "text"),
    [(0, ValueError, "threads must be 1 to 1024, not 0"),
     (True, TypeError, "threads must be an int or None, not bool"),
     (1.5, TypeError, "threads must be an int or None, not float")],
)  # fmt: skip
def test_wrong_threads_are_refused(call: str, threads: Any, error: type[Exception], text: str) -> None:
    table = MultilevelTable(10)
    arguments = ([1], 2) if call == "insert_many" else ([1],)
    with pytest.raises(error, match=text):
        getattr(table, call)(*arguments, threads=threads)
    assert not len(table)


def test_an_array_that_changes_meanwhile_does_no_harm() -> None:
    """Every key is copied before it is used: the table is sound, whichever of its values a key had."""
    keys = words_for("uint64", KEYS, 6)
    table = MultilevelTable(2 * KEYS, key_dtype="uint64")
    running = True

    def change() -> None:
        while running:
            np.bitwise_xor(keys, np.uint64(0xFFFF), out=keys)

    writer = threading.Thread(target=change)
    writer.start()
    try:
        for _ in range(5):
            table.insert_many(keys, 1, threads=2)
            table._check()
            table.delete_many(keys, threads=2)
            table._check()
            table.clear()
    finally:
        running = False
        writer.join()


def test_ctrl_c_stops_an_insertion_on_threads() -> None:
    """The keys that the message counts are in, and no others.

    A timer comes again and again, and its handler raises once it has come a few times during the call.
    """
    distinct = np.unique(words_for("uint64", KEYS, 7))
    keys = np.tile(distinct, 100)
    values = np.arange(keys.size)
    table = MultilevelTable(KEYS, key_dtype="uint64")
    ticks = 0

    def tick(_: int, frame: FrameType | None) -> None:
        nonlocal ticks
        ticks += frame is not None and frame.f_code.co_name == "insert_many"
        if ticks == 2:
            ticks += 1  # once: the timer goes on while the test catches it
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        with pytest.raises(
            KeyboardInterrupt, match=r"stopped after \d+ keys; these have been taken"
        ) as caught:
            table.insert_many(keys, values, threads=2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    count = int(re.findall(r"\d+", str(caught.value))[0])
    assert 0 < count < keys.size
    alone = MultilevelTable(KEYS, key_dtype="uint64")
    alone.insert_many(keys[:count], values[:count], threads=1)
    assert table.same_bytes(alone)

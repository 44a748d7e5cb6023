"""What an error of a bulk call says about keys is true: the keys it names are in the filter, and no other."""

from __future__ import annotations

import asyncio
import functools
import itertools
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import redis
import redis.asyncio
from filter_servers import HOST, Server, running
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbins.cluster import AsyncRedisFilter, RedisFilter, _many_keys
from evenbins.filters import plan_balanced, plan_blocked, plan_standard

BATCH, MOST = 32, 150
CTRL_C = "Ctrl-C in an endless generator"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as found:
        yield found


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_many_keys, "BATCH", BATCH)


def named_count(error: BaseException) -> int:
    """Read the number of added keys that an error names, in its text or in a note."""
    texts = "\n".join([str(error), *getattr(error, "__notes__", ())])
    patterns = (
        r"keys\[(\d+)\]: .*the keys before it have been added",
        r"item (\d+) of the keys; the keys before it have been added",
        r"stopped after (\d+) keys; these have been added",
        r"the first (\d+) keys have been added",
    )
    found = {int(match[1]) for pattern in patterns for match in re.finditer(pattern, texts)}
    assert len(found) == 1, texts
    return found.pop()


def names(first: int, last: int) -> list[str]:
    return [f"key {number}" for number in range(first, last)]


def bad_item(position: int, bad: object) -> Iterable[object]:
    return [*names(0, position), bad, *names(position + 1, MOST + 20)]


def raising(position: int, error: BaseException) -> Iterator[str]:
    yield from names(0, position)
    raise error


def signalled(position: int) -> Iterator[str]:
    for number in itertools.count():
        if number == position:
            signal.raise_signal(signal.SIGINT)
        yield f"key {number}"


SOURCES: dict[str, Callable[[int], object]] = {
    "an item of a bad type": lambda i: bad_item(i, None),
    "an item without a digest": lambda i: iter(bad_item(i, "\ud800")),
    "an element of an array": lambda i: np.array(bad_item(i, "\ud800")),
    "a null of a column": lambda i: pa.array(bad_item(i, None)),
    "a null of a stream": lambda i: pa.chunked_array(
        [names(0, i), [], [None, *names(i + 1, i + 40)]], pa.string()
    ),
    "a generator that raises": lambda i: raising(i, OSError("lost")),
    "a generator that is interrupted": lambda i: raising(i, KeyboardInterrupt()),
    CTRL_C: signalled,
}  # fmt: skip


def contents(shared: RedisFilter) -> list[bool]:
    found: list[bool] = shared.contains_many(names(0, MOST + 60)).tolist()
    return found


# (asyncio.run makes its own KeyboardInterrupt of Ctrl-C, which names no keys.)
@pytest.mark.parametrize(
    ("kind", "twin"),
    [(kind, twin) for kind in SOURCES for twin in ("sync", "async") if (kind, twin) != (CTRL_C, "async")],
)
@settings(max_examples=6)
@given(
    position=st.one_of(st.integers(0, MOST), st.sampled_from([0, 1, BATCH - 1, BATCH, BATCH + 1, 2 * BATCH]))
)
def test_exactly_the_keys_that_the_message_names_are_in(
    server: Server, twin: str, kind: str, position: int
) -> None:
    with server.client() as client:
        client.flushall()
        shared = RedisFilter.create(client, "x", plan_blocked(1000, fpr=1e-9), segment_bytes=256)
        add_many = shared.add_many if twin == "sync" else functools.partial(add_many_async, server)
        with pytest.raises((TypeError, ValueError, OSError, KeyboardInterrupt)) as caught:
            add_many(SOURCES[kind](position))
        count = named_count(caught.value)
        assert contents(shared) == [number < count for number in range(MOST + 60)]
        if kind != CTRL_C:  # which comes when Python looks for signals
            assert count == position


def add_many_async(server: Server, keys: object) -> None:
    async def run() -> None:
        async with redis.asyncio.Redis(host=HOST, port=server.port) as client:
            await (await AsyncRedisFilter.open(client, "x")).add_many(keys)

    asyncio.run(run())


@pytest.mark.parametrize("policy", ["standard", "blocked", "multilevel"])
@pytest.mark.parametrize("failing", [1, 3, 7])
def test_after_an_error_of_the_server_a_note_says_how_many_are_in(
    server: Server, monkeypatch: pytest.MonkeyPatch, policy: str, failing: int
) -> None:
    plans = {"standard": plan_standard, "blocked": plan_blocked}
    with server.client() as client:
        client.flushall()
        plan = (
            plans[policy](1000, fpr=1e-9) if policy in plans else plan_balanced(1000, fpr=1e-9, policy=policy)
        )
        shared = RedisFilter.create(client, "x", plan)
        run, calls = shared._servers.run, itertools.count(1)

        def failing_run(requests: Any) -> Any:
            if next(calls) == failing:
                raise redis.ConnectionError("gone")
            return run(requests)

        monkeypatch.setattr(shared._servers, "run", failing_run)
        with pytest.raises(redis.ConnectionError, match="gone") as caught:
            shared.add_many(names(0, 10 * BATCH))
        monkeypatch.undo()
        count = named_count(caught.value)
        assert count % BATCH == 0
        present = shared.contains_many(names(0, 10 * BATCH))
        assert present[:count].all()
        assert not present[count + BATCH :].any()
        shared.add_many(names(count, 10 * BATCH))  # what the note is for
        assert shared.contains_many(names(0, 10 * BATCH)).all()


def test_keys_of_an_endless_source_are_added_while_it_goes_on(server: Server) -> None:
    """Whatever was read more than two batches ago is on the server: memory is that of a batch."""
    with server.client() as client, server.client() as other:
        client.flushall()
        shared = RedisFilter.create(client, "x", plan_blocked(1000, fpr=1e-9))
        witness = RedisFilter.open(other, "x")
        seen = []

        def endless() -> Iterator[int]:
            for number in itertools.count():
                if number % BATCH == 5 and number > BATCH:
                    seen.append(witness.contains_many(range(number // BATCH * BATCH)).all())
                if number == 20 * BATCH:
                    raise EOFError
                yield number

        with pytest.raises(EOFError):
            shared.add_many(endless())
        assert len(seen) == 19
        assert all(seen)


def test_answers_of_many_batches_keep_order_and_shape(server: Server) -> None:
    with server.client() as client:
        client.flushall()
        shared = RedisFilter.create(client, "x", plan_blocked(1000, fpr=1e-9))
        shared.add_many(range(0, 300, 3))
        expected = [number % 3 == 0 for number in range(300)]
        assert shared.contains_many(iter(range(300))).tolist() == expected
        assert (
            shared.contains_many(np.arange(300).reshape(20, 15)).tolist()
            == np.reshape(expected, (20, 15)).tolist()
        )
        assert shared.contains_many(np.arange(300)[::-1]).tolist() == expected[::-1]
        assert shared.contains_many(np.empty((0, 3), int)).shape == (0, 3)
        assert shared.stats().bulk_keys == 100 + 900

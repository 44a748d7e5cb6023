"""Blocking and asyncio methods from one source: equal results, errors and signatures; nothing stays open."""

from __future__ import annotations

import asyncio
import inspect
import sys
from typing import Any

import pytest
from interruptions import InterruptError, before_line, lines_in

from evenbins.cluster import AsyncRedisFilter, RedisFilter
from evenbins.cluster._steps import Steps, awaitable, blocking, run, run_async
from evenbins.cluster.fleet import AsyncFleet, Fleet
from evenbins.cluster.sharded_redis import AsyncPipeline, AsyncShardedRedis, Pipeline, ShardedRedis
from evenbins.cluster.shared_loads import AsyncRedisLoads, RedisLoads


class Counter:
    """Counts what is open: every call opens one, waits twice, and closes it."""

    def __init__(self) -> None:
        self.opened = 0

    def _double(self, number: int, *, fail: bool = False) -> Steps[int]:
        """Return twice the number."""
        self.opened += 1
        try:
            first = yield self.wait(number, fail)
            second = yield self.wait(number, False)
            return int(first + second)
        finally:
            self.opened -= 1

    def wait(self, number: int, fail: bool) -> Any:
        raise NotImplementedError


class Blocking(Counter):
    double = blocking(Counter._double)

    def wait(self, number: int, fail: bool) -> int:
        if fail:
            raise OSError("refused")
        return number


class Waiting(Counter):
    double = awaitable(Counter._double)

    async def wait(self, number: int, fail: bool) -> int:
        await asyncio.sleep(0)
        if fail:
            raise OSError("refused")
        return number


def test_both_return_the_same() -> None:
    assert Blocking().double(21) == 42
    assert asyncio.run(Waiting().double(21)) == 42


def test_an_error_comes_out_of_the_step_that_met_it() -> None:
    first, second = Blocking(), Waiting()
    with pytest.raises(OSError, match="refused"):
        first.double(1, fail=True)
    with pytest.raises(OSError, match="refused"):
        asyncio.run(second.double(1, fail=True))
    assert first.opened == second.opened == 0


def test_an_error_may_be_caught_and_the_steps_go_on() -> None:
    def twice() -> Steps[list[object]]:
        met: list[object] = []
        for fail in (True, False):
            try:
                met.append((yield waiting.wait(1, fail)))
            except OSError as error:
                met.append(type(error))
            assert sys.exc_info()[1] is None  # an error that was caught is not being handled any more
        return met

    waiting: Any = Blocking()
    assert run(twice()) == [OSError, 1]
    waiting = Waiting()
    assert asyncio.run(run_async(twice())) == [OSError, 1]


def test_a_cancelled_task_closes_what_is_open() -> None:
    async def main() -> None:
        counter = Waiting()
        task = asyncio.create_task(counter.double(1))
        await asyncio.sleep(0)
        assert counter.opened == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert counter.opened == 0

    asyncio.run(main())


def test_a_handler_that_raises_leaves_nothing_open() -> None:
    """Before every line, those of the driver too; the exception is kept, and with it all frames."""

    def interrupt() -> None:
        raise InterruptError

    counter = Blocking()
    lines = lines_in(lambda: counter.double(1))
    assert lines > 5
    kept = []
    for line in range(1, lines + 1):
        with pytest.raises(InterruptError) as met:
            before_line(line, lambda: counter.double(1), interrupt)
        kept.append(met)
        assert counter.opened == 0, line


def test_methods_show_the_name_signature_and_text_of_their_source() -> None:
    for cls in (Blocking, Waiting):
        method: Any = cls.double
        assert method.__name__ == "double"
        assert method.__doc__ == "Return twice the number."
        assert str(inspect.signature(method)) == "(self, number: 'int', *, fail: 'bool' = False) -> 'int'"
    assert inspect.iscoroutinefunction(Waiting.double)
    assert not inspect.iscoroutinefunction(Blocking.double)


@pytest.mark.parametrize(
    ("plain", "asynchronous"),
    [
        (Fleet, AsyncFleet),
        (ShardedRedis, AsyncShardedRedis),
        (Pipeline, AsyncPipeline),
        (RedisFilter, AsyncRedisFilter),
        (RedisLoads, AsyncRedisLoads),
    ],
)
def test_twins_have_the_same_methods_with_the_same_parameters(plain: type, asynchronous: type) -> None:
    def methods(cls: type) -> dict[str, list[str]]:
        found = inspect.getmembers(cls, callable)
        return {name: list(inspect.signature(each).parameters) for name, each in found if name[0] != "_"}

    only_blocking = {"close"} if plain is RedisFilter else set()  # asyncio keeps no connection of its own
    first, second = methods(plain), methods(asynchronous)
    assert {name: value for name, value in first.items() if name not in only_blocking} == second

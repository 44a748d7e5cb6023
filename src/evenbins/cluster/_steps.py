"""One source for blocking and asyncio code: generators that yield what must be waited for.

    def _get(self, key) -> Steps[bytes]:              the rules, once
        reply = yield self._client.get(key)
        return reply

    class Client:       get = blocking(_Shared._get)      client.get(key)
    class AsyncClient:  get = awaitable(_Shared._get)     await client.get(key)

`self._client` is a blocking client in one class and an asyncio client in the other. The blocking one has
finished its work when it returns, so `run` sends the value back to the generator. The asyncio one returns an
awaitable: `run_async` awaits it, and sends its result or throws its exception into the generator.

Invariant: when `run` or `run_async` ends, the generator is closed. An exception of a signal's handler leaves
nothing suspended that holds a lease.

Tried and dropped: generating the blocking modules from the asyncio ones (`unasync`): the same number of lines
as two copies. Coroutines that never suspend, for the blocking classes: an interrupted call leaves coroutines
that were never awaited, and Python warns of each.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast

__all__ = [
    "AsyncClosing",
    "Closing",
    "Steps",
    "awaitable",
    "awaitable_maker",
    "blocking",
    "blocking_maker",
    "run",
    "run_async",
]

T = TypeVar("T")
S = TypeVar("S")
P = ParamSpec("P")

Steps = Generator[Any, Any, T]


def run(steps: Steps[T]) -> T:
    """Return the result of steps that yield values.

    >>> def add(first):
    ...     second = yield first + 1
    ...     return first + second
    >>> run(add(1))
    3
    """
    try:
        value = next(steps)
        while True:
            value = steps.send(value)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


async def run_async(steps: Steps[T]) -> T:
    """Return the result of steps that yield awaitables."""
    resume: Callable[[Any], Any] = steps.send
    argument: Any = None
    try:
        while True:
            step = resume(argument)
            try:
                resume, argument = steps.send, await step
            except BaseException as error:  # a cancelled task's too: the steps release what they hold
                resume, argument = steps.throw, error
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        argument = None  # an exception holds this frame
        steps.close()


def blocking(method: Callable[Concatenate[S, P], Steps[T]]) -> Callable[Concatenate[S, P], T]:
    """Make a blocking method of one that returns steps."""

    @wraps(method)
    def call(self: S, /, *arguments: P.args, **options: P.kwargs) -> T:
        return run(method(self, *arguments, **options))

    _describe(call, method)
    return call


def awaitable(
    method: Callable[Concatenate[S, P], Steps[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make a coroutine method of one that returns steps."""

    @wraps(method)
    async def call(self: S, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await run_async(method(self, *arguments, **options))

    _describe(call, method)
    return call


class Closing:
    """A context manager of itself: its block ends with `close`."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncClosing:
    """An asynchronous context manager of itself: its block ends with `close`."""

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class _BlockingMaker(Protocol[P]):
    def __get__(self, instance: object, owner: type[S]) -> Callable[P, S]: ...


class _AwaitableMaker(Protocol[P]):
    def __get__(self, instance: object, owner: type[S]) -> Callable[P, Coroutine[Any, Any, S]]: ...


def blocking_maker(method: Callable[P, Steps[Any]]) -> _BlockingMaker[P]:
    """Make a blocking class method of one whose steps return an object of the class."""
    made: Any = classmethod(blocking(cast("Any", method).__func__))
    return cast("_BlockingMaker[P]", made)


def awaitable_maker(method: Callable[P, Steps[Any]]) -> _AwaitableMaker[P]:
    """Make a coroutine class method of one whose steps return an object of the class."""
    made: Any = classmethod(awaitable(cast("Any", method).__func__))
    return cast("_AwaitableMaker[P]", made)


def _describe(call: Any, method: Any) -> None:
    """Set the name and signature that users see: `_get`, which returns Steps[int], becomes `get`, int."""
    del call.__wrapped__
    call.__name__ = call.__qualname__ = method.__name__.removeprefix("_")
    signature = inspect.signature(method)
    returned = str(signature.return_annotation).removeprefix("Steps[").removesuffix("]")
    call.__signature__ = signature.replace(return_annotation=returned)
    call.__annotations__ = method.__annotations__ | {"return": returned}

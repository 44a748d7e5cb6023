"""Three stages side by side: one thread reads, the caller's thread decides, one thread writes.

    produce ──▶ channel ──▶ decide ──▶ channel ──▶ consume

The core, Arrow, the compressors and the system release the GIL, so that two cores are busy. Channels hold a
few items, so that memory is bounded. The caller's thread is the one in the middle: signals arrive there.

Whatever stage fails, the others end and the first error is raised; a reader that waits for a pipe is left
behind, as a daemon, and nothing it reads is used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

__all__ = ["run_stages"]

_T = TypeVar("_T")
_U = TypeVar("_U")
_ITEMS = 2  # in a channel


class _ClosedError(Exception):
    """The other side of a channel has ended early."""


_END = object()


class _Channel(Generic[_T]):
    """A queue of a few items, made of two that the interpreter implements in C.

    A signal handler that raises finds no lock of ours held: with a Condition it may come between the moment
    that its lock is acquired and the block that would release it, and the threads wait for ever.
    """

    def __init__(self) -> None:
        self._items: SimpleQueue[Any] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        self._closed = False
        for _ in range(_ITEMS):
            self._room.put(None)

    def put(self, item: _T) -> None:
        self._room.get()
        if self._closed:
            raise _ClosedError
        self._items.put(item)

    def __iter__(self) -> Iterator[_T]:
        while (item := self._items.get()) is not _END:
            if self._closed:
                raise _ClosedError
            self._room.put(None)
            yield item
        if self._closed:
            raise _ClosedError

    def finish(self) -> None:
        """Declare that no item follows."""
        self._items.put(_END)

    def close(self) -> None:
        """Declare that what is in it is of no use, and wake both sides."""
        self._closed = True
        self._items.put(_END)
        self._room.put(None)


def run_stages(produce: Iterator[_T], decide: Callable[[_T], _U], consume: Callable[[_U], None]) -> None:
    """Pass every item of `produce` through `decide` to `consume`, in order."""
    incoming: _Channel[_T] = _Channel()
    outgoing: _Channel[_U] = _Channel()
    errors: list[BaseException] = []

    def stage(work: Callable[[], None]) -> None:
        try:
            work()
        except _ClosedError:
            pass
        except BaseException as error:  # raised again by the caller's thread
            errors.append(error)
            incoming.close()
            outgoing.close()

    def read() -> None:
        for item in produce:
            incoming.put(item)
        incoming.finish()

    def write() -> None:
        for item in outgoing:
            consume(item)

    reader = threading.Thread(target=stage, args=(read,), name="evenbins-reader", daemon=True)
    writer = threading.Thread(target=stage, args=(write,), name="evenbins-writer", daemon=True)
    try:
        reader.start()
        writer.start()
        for item in incoming:
            outgoing.put(decide(item))
        outgoing.finish()
        writer.join()
        reader.join()
    except _ClosedError:
        pass
    finally:
        incoming.close()
        outgoing.close()
        for thread, seconds in ((writer, 60.0), (reader, 1.0)):
            if thread.ident is not None:
                thread.join(seconds)  # a reader may wait for a pipe, a writer for a slow disk
    if errors:
        raise errors[0]

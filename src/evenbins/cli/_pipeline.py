"""Three stages side by side: one thread reads, the caller's thread decides, one thread writes.

    produce ──▶ channel ──▶ decide ──▶ channel ──▶ consume

The core, Arrow, the compressors and the system release the GIL, so that two cores are busy. Channels hold a
few items, so that memory is bounded. The caller's thread is the one in the middle: signals arrive there.

Whatever stage fails, the others end and the first error is raised; a reader that waits for a pipe is left
behind, as a daemon, and nothing it reads is used.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ["run_stages"]

_T = TypeVar("_T")
_U = TypeVar("_U")
_ITEMS = 2  # in a channel


class _ClosedError(Exception):
    """The other side of a channel has ended early."""


class _Channel(Generic[_T]):
    def __init__(self) -> None:
        self._items: deque[_T] = deque()
        self._changed = threading.Condition()
        self._finished = self._closed = False

    def put(self, item: _T) -> None:
        with self._changed:
            while len(self._items) >= _ITEMS and not self._closed:
                self._changed.wait()
            if self._closed:
                raise _ClosedError
            self._items.append(item)
            self._changed.notify_all()

    def __iter__(self) -> Iterator[_T]:
        while True:
            with self._changed:
                while not (self._items or self._finished or self._closed):
                    self._changed.wait()
                if self._closed:
                    raise _ClosedError
                if not self._items:
                    return
                item = self._items.popleft()
                self._changed.notify_all()
            yield item

    def finish(self) -> None:
        """Declare that no item follows."""
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def close(self) -> None:
        """Declare that what is in it is of no use."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


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
    reader.start()
    writer.start()
    try:
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
        writer.join()
        reader.join(timeout=1.0)
    if errors:
        raise errors[0]

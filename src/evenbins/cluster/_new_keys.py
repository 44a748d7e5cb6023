"""Was it new? `add_new` and `add_new_many` of the filters on servers: atomic for all their clients.

Which step that is: `_one_key` and `_many_keys`, and `_leases` where a key's bits lie in several segments.

A request whose reply is lost is not sent again, since the second reply would be "present" for a key that the
first one added. The caller gets the error, with a note that says what is known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from evenbins import _core
from evenbins._bulk import Key
from evenbins.cluster import _many_keys, _one_key
from evenbins.cluster._leases import Lease
from evenbins.cluster._requests import Operation
from evenbins.cluster._segments import Layout
from evenbins.cluster._steps import Steps
from evenbins.cluster.redis_plan import Counts

__all__ = ["AddNew"]

T = TypeVar("T")


class AddNew:
    """The steps of `add_new` and `add_new_many`, for both filters."""

    _servers: Any
    _layout: Layout
    _counts: Counts

    def _ask(self, operation: Operation[T], *, once: bool = False) -> Steps[tuple[T, int]]:
        raise NotImplementedError

    def _chunks(
        self, keys: object, digests: bool, threads: int | None, verb: str
    ) -> tuple[Iterator[npt.NDArray[np.uint64]], tuple[int, ...] | None]:
        raise NotImplementedError

    def _add_new(self, key: Key) -> Steps[bool]:
        """Add one key; return whether it was new.

        Of all clients that add a key this way at the same time, exactly one gets True; none if the filter
        takes it for present, with probability `to_local().stats().fpr`. After an error of the connection the
        answer is not known: the key may have been added, and nothing is sent a second time. If it was, a
        later call returns False.
        """
        digest = _core.digest(key, self._layout.plan.seed)
        lease = self._lease()
        with _note_of_error("whether the key was new is not known; it may have been added"):
            new, used = yield from self._leased(lease, _one_key.add_one(self._layout, digest, lease))
        self._counts.add("added", 1, used)
        return new

    def _add_new_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> Steps[npt.NDArray[np.bool_]]:
        """Add many keys; return for each whether it was new: an array of bool, in the shape of a NumPy array.

        True for the first occurrence of each key that was not in before the call, as `add_new` for one key
        after the other. Takes what `add_many` takes, in its batches and about as many requests. An error
        leaves no answers, not even those of the batches before: pass the keys in parts that you can afford to
        treat as new again. For `threads` see `add_many`.
        """
        chunks, shape = self._chunks(keys, digests, threads, "added")
        answers, added = [np.empty(0, np.bool_)], 0
        for chunk in chunks:
            lease, more = self._lease(), len(chunk)
            with _note_of_error(
                f"the first {added} keys have been added, some of the next {more} may have been too, and "
                "which of them were new is not known"
            ):
                new, used = yield from self._leased(lease, _many_keys.add_many(self._layout, chunk, lease))
            answers.append(new)
            self._counts.add("bulk", more, used)
            added += more
        joined = np.concatenate(answers)
        return joined if shape is None else joined.reshape(shape)

    def _lease(self) -> Lease:
        return Lease(self._layout, own_thread=self._servers.waits_in_thread)

    def _leased(self, lease: Lease, operation: Operation[T]) -> Steps[tuple[T, int]]:
        """Run an operation that may take a lease; after an error, try to end it.

        Steps that are closed can wait for nothing more: a lease of an asyncio call then ends by itself.
        """
        blocks = self._servers.waits_in_thread
        try:
            return (yield from self._ask(operation, once=True))
        except BaseException as error:
            if lease.release and (blocks or not isinstance(error, GeneratorExit)):
                with contextlib.suppress(Exception):
                    ending = self._servers.run(lease.release, once=True)
                    if not blocks:
                        yield ending
            raise
        finally:
            lease.forget()


@contextlib.contextmanager
def _note_of_error(text: str) -> Iterator[None]:
    """Add a note to whatever the block raises."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"evenbins: {text}")
        raise

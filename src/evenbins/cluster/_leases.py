"""Leases: who may test and add a key where that takes several steps on the servers.

    blocked, single, multilevel, fill    a block tests and takes a key in one step: no lease
    standard, two-choice                 the bits of one key lie in several segments
    a key that all its blocks refuse     which of them takes it depends on all of them (spill="least")

Two clients that add one key to a standard filter at once may each set some of its bits, and both would find
that it was new. So `add_new` holds a lease of the key's *stripe* (the first 8 bits of its digest) from the
test to the last bit; a bulk call holds those of all its keys. Nobody else needs one: `add` has no answer, and
queries read whatever is there.

    {name:list}:leases   a hash: stripe (1 byte) ▶ token (16 random bytes), then the end in milliseconds

Invariants
- Stripes are taken in ascending order and kept while waiting for the next: nobody waits in a circle.
- A client that dies leaves leases that end after LEASE_MS; the hash itself expires then.
- A client that was stopped for longer than that finds at the end that its lease was another's meanwhile, and
  raises: of two that ran at the same time, at most one has an answer.
- A call that would wait for another call of its own thread (a signal's handler interrupted it) raises.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from evenbins.cluster import _scripts as scripts
from evenbins.cluster._requests import Operation, Request
from evenbins.cluster._segments import Layout
from evenbins.cluster.redis_errors import RedisFilterError

__all__ = ["LEASE_MS", "Lease", "lease_key"]

T = TypeVar("T")
LEASE_MS: Final = 10_000
"""How long a lease lasts unless it is renewed: how long others wait for a client that died."""
_HOLDERS: dict[bytes, tuple[int, int]] = {}  # token: process and thread


def lease_key(layout: Layout) -> str:
    """Return the key of the leases, which exists while one is held."""
    return f"{{{layout.name}:list}}:leases"


class Lease:
    """The lease of one call: taken around operations of it that need one, which may be none.

    `own_thread`: the call blocks its thread while it waits, so that no other call of the thread can end.
    """

    def __init__(self, layout: Layout, *, own_thread: bool) -> None:
        self._layout, self._own_thread = layout, own_thread
        self._token = os.urandom(16)
        self._stripes = b""
        self._renewed = 0.0

    def around(self, digests: npt.NDArray[np.uint64], operation: Operation[T]) -> Operation[T]:
        """Run an operation that tests and adds these digests while nobody else does."""
        yield from self._take(np.unique(digests >> np.uint64(56)).astype(np.uint8).tobytes())
        try:
            requests = next(operation)
            while True:
                if time.monotonic() - self._renewed > LEASE_MS / 3000:
                    yield from self._change("keep")
                requests = operation.send((yield requests))
        except StopIteration as end:
            result: T = end.value
        yield from self._change("end")
        self.forget()
        return result

    def test(self, digest: int, requests: list[Request], *, either: bool) -> Operation[bool]:
        """Test and add a key in one step, when nobody has a lease of it: True if it was added.

        The requests ask each segment to take the key; all are of one server.
        """
        asked = bytes([digest >> 56, either])
        keys = [lease_key(self._layout), *(each.key for each in requests)]
        arguments = [asked, *(each.command[-1] for each in requests)]
        command = ("EVALSHA", scripts.TEST.sha, len(keys), *keys, *arguments)
        while True:
            (reply,) = yield [Request(requests[0].server, requests[0].key, command, scripts.TEST)]
            if len(reply) == 1:
                return bool(reply == b"1")
            yield from self._wait(reply)

    @property
    def release(self) -> list[Request]:
        """The request that ends the lease of a call that failed; none if it has no lease."""
        return [self._request("end")] if self._stripes else []

    def forget(self) -> None:
        """Forget the lease: it has ended, or will by itself."""
        self._stripes = b""
        _HOLDERS.pop(self._token, None)

    def _take(self, stripes: bytes) -> Operation[None]:
        self._stripes = stripes
        _HOLDERS[self._token] = os.getpid(), threading.get_ident()
        while True:
            self._renewed = time.monotonic()
            (holder,) = yield [self._request("take")]
            if not holder:
                return
            yield from self._wait(holder)

    def _wait(self, holder: bytes) -> Operation[None]:
        if self._own_thread and _HOLDERS.get(holder) == (os.getpid(), threading.get_ident()):
            raise RedisFilterError(
                f"filter {self._layout.name!r}: this add_new, called by a signal's handler, would wait for "
                "the add_new that the handler interrupted; it added nothing. Call it after the handler has "
                'returned, or use a filter of policy "blocked", "multilevel" or "fill"'
            )
        yield []  # a pause

    def _change(self, what: str) -> Operation[None]:
        self._renewed = time.monotonic()
        (reply,) = yield [self._request(what)]
        if reply:
            raise RedisFilterError(
                f"filter {self._layout.name!r}: this call stood still for over {LEASE_MS // 1000} s, or the "
                "server lost its keys that expire, and another client may have tested the same keys: which "
                "of them were new is not known. They may have been added"
            )

    def _request(self, what: str) -> Request:
        key = lease_key(self._layout)
        command = ("EVALSHA", scripts.LEASE.sha, 1, key, self._token, self._stripes, what, LEASE_MS)
        return Request(self._layout.list_server, key, command, scripts.LEASE)

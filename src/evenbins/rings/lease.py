"""One use of a node, counted while it lasts: `with ring.lease(key) as node`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from evenbins._bulk import Key
    from evenbins.rings import HashRing

__all__ = ["LEASE_UNITS", "Lease"]

LEASE_UNITS = 1_000_000
"""What a lease of weight 1 counts in the core."""


class Lease:
    """A place among the requests in flight of one node; made by `HashRing.lease`.

    Entering admits it: the first node of the key's probe order whose leases are below its limit, or with a
    weight whose load is within the bound. Leaving, by an exception or a cancelled task too, gives it back,
    exactly once. `async with` does the same and never waits. A lease may be used again after it ended, not
    twice at once.

    Attributes
    ----------
    node : the node while it lasts, else None
    """

    __slots__ = ("_avoid", "_id", "_key", "_ring", "_units", "node")

    def __init__(self, ring: HashRing, key: Key, avoid: Sequence[str] = (), units: int = 0) -> None:
        self._ring, self._key, self._avoid, self._units = ring, key, tuple(avoid), units
        self._id = -1
        self.node: str | None = None

    def acquire(self) -> str:
        """Admit it and return the node; the caller must call `release`.

        Raises
        ------
        NoNodesError
            No node serves.
        RingFullError
            Every node that serves, and is not to be avoided, is at its limit; a lease with a weight then
            goes to the least loaded one, unless the ring has a `limit`.
        RuntimeError
            It is in use already.
        """
        if self._id >= 0:
            raise RuntimeError("this lease is in use: make another with ring.lease(key)")
        node, self._id = self._ring._lease(self._key, self._avoid, self._units)
        self.node = node
        return node

    def release(self) -> None:
        """Release the place; a second call does nothing."""
        number, self._id, self.node = self._id, -1, None
        if number >= 0:
            self._ring._unlease(number, self._units or LEASE_UNITS)

    def __enter__(self) -> str:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    async def __aenter__(self) -> str:
        return self.acquire()

    async def __aexit__(self, *error: object) -> None:
        self.release()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a lease counts one use of its ring: it cannot be copied or pickled")

    def __repr__(self) -> str:
        return f"Lease(key={self._key!r}, node={self.node!r})"

"""The errors of a ring that cannot place a key: every node is full, or none serves.

A module of its own, without imports, because the ring, its twin in ``reference`` and ``forwarding`` raise the
same errors and none of them imports another.
"""

from __future__ import annotations

from evenbins.errors import EvenbinsError

__all__ = ["NoNodesError", "RingFullError"]


class RingFullError(EvenbinsError, OverflowError):
    """No node that serves has room for one key more. Nothing has changed."""


class NoNodesError(EvenbinsError, LookupError):
    """No node serves: the ring is empty, or all its nodes are down or drained. Nothing has changed."""

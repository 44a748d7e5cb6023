"""Which node was sent which block: a bounded memory that expires as the nodes' own caches do.

A node's cache is taken for one that evicts the least recently used block. The index sees the same blocks in
the same order, and keeps as many per node, so it says what the node's cache says as long as all requests come
through one router. Nodes are small integers, and a set of nodes is an int with one bit for each of them: the
holders of a whole prefix are the AND over its blocks.

Memory: at most `capacity` entries per node, by estimate some 150 bytes each. A router needs no more of an
index than `BlockIndex` says.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

__all__ = ["BlockIndex", "LruIndex"]


class BlockIndex(Protocol):
    """What a router needs of an index."""

    def holders(self, block: int) -> int:
        """Return the nodes that hold a block, as bits."""
        ...

    def note(self, block: int, node: int) -> None:
        """Make a block the most recently used one of a node."""
        ...

    def forget(self, node: int) -> None:
        """Remove all entries of a node."""
        ...

    def __len__(self) -> int: ...


class LruIndex:
    """The least recently used block of each node is evicted when the node has more than `capacity`.

    Examples
    --------
    >>> index = LruIndex(2)
    >>> for block in (7, 8, 9): index.note(block, 0)
    >>> index.note(9, 3)
    >>> index.holders(7), bin(index.holders(9)), len(index)
    (0, '0b1001', 3)
    """

    __slots__ = ("_capacity", "_holders", "_recent")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._holders: dict[int, int] = {}
        self._recent: dict[int, OrderedDict[int, None]] = {}

    def holders(self, block: int) -> int:
        """Return the nodes that hold a block, as bits."""
        return self._holders.get(block, 0)

    def note(self, block: int, node: int) -> None:
        """Make a block the most recently used one of a node."""
        recent = self._recent.setdefault(node, OrderedDict())
        if block in recent:
            recent.move_to_end(block)
            return
        recent[block] = None
        self._holders[block] = self._holders.get(block, 0) | 1 << node
        if len(recent) > self._capacity:
            self._remove_holder(recent.popitem(last=False)[0], node)

    def forget(self, node: int) -> None:
        """Remove all entries of a node."""
        for block in self._recent.pop(node, ()):
            self._remove_holder(block, node)

    def _remove_holder(self, block: int, node: int) -> None:
        left = self._holders.pop(block, 0) & ~(1 << node)
        if left:
            self._holders[block] = left

    def __len__(self) -> int:
        return sum(map(len, self._recent.values()))

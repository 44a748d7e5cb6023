"""The keys of the largest estimates of a sketch: a dictionary beside a heap.

A key's *value* is its estimate when it was last seen, and then its digest, which decides between equal
estimates. Each offer raises the value of one key, so the tracked keys are those of the k largest values of
all keys seen: a stream leaves the same state however it is divided into batches.

    found    digest ──▶ (estimate, key)
    heap     a value for each of them, perhaps an older, smaller one: the least is brought up to date on use

Merging. Counters of two sketches add, conservative ones too: in each row a conservative counter holds at
least the largest count of its keys, and at most what a plain counter holds; so does the sum of two. Keys that
neither side tracks cannot be found again; each was seen at most `untracked_bound` times in either stream.
"""

from __future__ import annotations

import heapq
import operator
from typing import Any

import numpy as np

from evenbins import _core
from evenbins.sketches.countmin import CountMinSketch

__all__ = ["PlainKey", "TrackedKeys", "plain_key"]

PlainKey = str | bytes | int
"""A key as it is kept."""


def plain_key(key: Any) -> PlainKey:
    """Return a key that can be kept and saved: of a built-in type, and nothing that may change."""
    if isinstance(key, np.generic):
        key = key.item()
    if type(key) in (str, int, bytes):
        return key  # type: ignore[no-any-return]
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bytes | bytearray | memoryview):
        return bytes(key)
    if hasattr(key, "__index__"):
        return operator.index(key)
    return bytes(memoryview(key))


class TrackedKeys:
    """A sketch and the keys of its k largest estimates.

    Attributes
    ----------
    k : the most keys tracked
    sketch : the counts of all keys
    found : digest of each tracked key: its estimate when it was last seen, the key
    merged_bound : how often a key that no part of a merge tracked can have been seen, at most; 0 without one
    """

    __slots__ = ("_heap", "found", "k", "merged_bound", "sketch")

    def __init__(
        self,
        k: int,
        sketch: CountMinSketch,
        found: dict[int, tuple[int, PlainKey]] | None = None,
        merged_bound: int = 0,
    ) -> None:
        self.k, self.sketch, self.merged_bound = k, sketch, merged_bound
        self.found = {} if found is None else found
        self.rebuild_heap()

    def rebuild_heap(self) -> None:
        """Make the heap anew from the dictionary."""
        self._heap = [(estimate, digest) for digest, (estimate, _) in self.found.items()]
        heapq.heapify(self._heap)

    @property
    def is_full(self) -> bool:
        """Whether k keys are tracked: a new one must displace another."""
        return len(self.found) == self.k

    def offer(self, digest: int, key: Any, estimate: int) -> None:
        """Track a key that has just been seen, if it is among the k largest."""
        known = self.found.get(digest)
        if known is not None:
            self.found[digest] = (estimate, known[1])
            return
        value = estimate, digest
        if len(self.found) < self.k:
            self.found[digest] = (estimate, plain_key(key))
            heapq.heappush(self._heap, value)
        elif value > (least := self.least()):
            del self.found[least[1]]
            self.found[digest] = (estimate, plain_key(key))
            heapq.heapreplace(self._heap, value)

    def least(self) -> tuple[int, int]:
        """Return the least value that is tracked; (0, -1) if there is none."""
        while self._heap:
            value = self._heap[0]
            digest = value[1]
            now = self.found[digest][0], digest
            if now == value:
                return value
            heapq.heapreplace(self._heap, now)
        return 0, -1

    @property
    def untracked_bound(self) -> int:
        """How often a key that is not tracked can have been seen, at most."""
        return max(self.merged_bound, self.least()[0]) if self.is_full else 0

    def ranked(self) -> list[tuple[PlainKey, int]]:
        """Return the keys and their estimates, the largest first."""
        values = sorted(((estimate, digest) for digest, (estimate, _) in self.found.items()), reverse=True)
        return [(self.found[digest][1], estimate) for estimate, digest in values]

    def copy(self) -> TrackedKeys:
        """Return an independent copy."""
        return TrackedKeys(self.k, self.sketch.copy(), dict(self.found), self.merged_bound)

    def merged(self, other: TrackedKeys) -> TrackedKeys:
        """Return both streams together: counters added, the k largest of the keys that either side tracks."""
        sketch = self.sketch.copy()
        sketch._add_counters(other.sketch)
        keys = {digest: key for digest, (_, key) in self.found.items()}
        for digest, (_, key) in other.found.items():
            if digest not in keys or isinstance(key, str):  # of "a" and b"a" the text, whichever side has it
                keys[digest] = key
        digests = np.fromiter(keys, np.uint64, len(keys))
        estimates = sketch.count_many(digests, digests=True).tolist()
        largest = heapq.nlargest(self.k, zip(estimates, keys, strict=True))
        found = {digest: (estimate, keys[digest]) for estimate, digest in largest}
        return TrackedKeys(self.k, sketch, found, self.untracked_bound + other.untracked_bound)

    def equals(self, other: TrackedKeys) -> bool:
        """Return whether both have the same bytes."""
        return (
            (self.k, self.merged_bound) == (other.k, other.merged_bound)
            and self.found == other.found
            and self.sketch == other.sketch
        )

    def check(self) -> None:
        """Assert every invariant."""
        self.sketch._check()
        found, heap, seed = self.found, self._heap, self.sketch.seed
        assert len(heap) == len(found) <= self.k
        assert {digest for _, digest in heap} == found.keys()
        assert all(estimate <= found[digest][0] for estimate, digest in heap)
        assert all(heap[(i - 1) // 2] <= heap[i] for i in range(1, len(heap)))
        for digest, (estimate, key) in found.items():
            assert type(key) in (str, bytes, int)
            assert _core.digest(key, seed) == digest
            assert 1 <= estimate <= self.sketch.count(key)
        assert self.is_full or not self.merged_bound
        assert self.merged_bound <= self.sketch.total

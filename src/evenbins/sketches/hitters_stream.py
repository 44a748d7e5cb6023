"""Keys on their way into a `HeavyHitters`: each goes into the sketch, and is offered to the tracked keys.

Tried and dropped: a heap filled in bulk from the estimates at the end of each piece of the stream. It keeps
the promise too, but depends on the pieces; the estimate at the moment a key came costs a pass in key order,
and makes bulk and single additions agree.
"""

from __future__ import annotations

import threading
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins import _bulk, _core
from evenbins._bulk import Key
from evenbins.sketches.countmin import MOST, CountMinSketch, checked_weights, plan_of_sketch_core
from evenbins.sketches.heavy_hitters_plan import HittersPlan
from evenbins.sketches.key_pieces import Addition, counted, key_pieces, note_added, unchanging
from evenbins.sketches.tracked_keys import TrackedKeys
from evenbins.structure import Mergeable

__all__ = ["HittersStream", "empty"]

_Words = npt.NDArray[np.uint64]


def empty(plan: HittersPlan) -> TrackedKeys:
    """Return the state of a plan before the first key."""
    return TrackedKeys(plan.k, CountMinSketch.from_plan(plan_of_sketch_core(plan.core, seed=plan.seed)))


class HittersStream(Mergeable[HittersPlan]):
    """The part of `HeavyHitters` that adds keys."""

    __slots__ = ("_lock", "_open", "_tracked")
    _tracked: TrackedKeys
    _open: Addition | None  # the addition under way, or left half done by a signal handler

    def _start(self, tracked: TrackedKeys) -> None:
        self._tracked, self._open, self._lock = tracked, None, threading.RLock()

    def add(self, key: Key, weight: SupportsIndex = 1) -> None:
        """Add `weight` to the count of one key; raises as `CountMinSketch.add` does."""
        key = unchanging(key)
        with self._lock:
            tracked = self._settled()
            digest = _core.digest(key, tracked.sketch.seed)
            before = tracked.sketch.total
            self._open = Addition(before, np.array([digest], dtype=np.uint64), [key], None, 0)
            estimate = tracked.sketch._add_digest(digest, weight)
            if tracked.sketch.total > before:
                tracked.offer(digest, key, estimate)
            self._open = None

    def add_many(self, keys: object, weights: object = None) -> None:
        """Add many keys, as `CountMinSketch.add_many` does; the result is that of single additions.

        If a key is refused, the source of the keys fails or the call is interrupted, the keys before it are
        in, no other, and the error says how many these are.
        """
        words, each = checked_weights(weights, keys)
        start = 0
        for piece in key_pieces(keys):
            if words is not None and start + len(piece) > words.size:
                raise ValueError(
                    f"weights must be as many as the keys; got {words.size} weights and more keys, of which "
                    f"the first {start} have been added"
                )
            of_piece = None if words is None else words[start : start + len(piece)]
            with self._lock:
                self._settle()
                try:
                    self._add_piece(piece, of_piece, each, start)
                except BaseException as error:
                    if self._open is None:
                        raise
                    done = start + self._settle()
                    if isinstance(error, KeyboardInterrupt):
                        raise KeyboardInterrupt(
                            f"stopped after {done} keys; these have been added, the structure is usable"
                        ) from None
                    note_added(error, done)
                    raise
            start += len(piece)
        if words is not None and start != words.size:
            raise ValueError(
                f"weights must be as many as the keys; got {words.size} weights for {start} keys, which have "
                "all been added"
            )

    def update(self, *keys: object) -> None:
        """Add the keys of each argument, each once for each time it comes; a mapping's values are weights.

        As `collections.Counter.update` does, but counts must not be negative; see `add_many`.
        """
        for each in keys:
            self.add_many(*counted(each))

    def _add_piece(self, piece: Any, words: _Words | None, each: int, start: int) -> None:
        tracked, sketch = self._tracked, self._tracked.sketch
        weight = each * len(piece) if words is None else sum(words.tolist())
        try:
            source, _ = _bulk.key_source(piece)
            digests = _core.digest_from(source, sketch.seed)
            refused = sketch.total + weight > MOST
        except (TypeError, ValueError):
            refused = True
        if refused:  # somewhere in it: find the place, and add what is before
            for i in range(len(piece)):
                try:
                    self.add(piece[i], each if words is None else int(words[i]))
                except BaseException as error:
                    added = self._settle()  # by an interrupt, after the key went in
                    note_added(error, start + i + added)
                    raise
            return
        source, _ = _bulk.key_source(digests, digests=True)
        self._open = Addition(sketch.total, digests, piece, words, each)
        estimates = sketch._add_from(source, words, each, True, 1)
        assert estimates is not None
        least, digest = tracked.least() if tracked.is_full else (0, 0)
        wanted = (estimates > least) | ((estimates == least) & (digests > np.uint64(digest)))
        if words is not None or not each:
            wanted &= np.full(len(piece), each > 0) if words is None else words > 0
        chosen = np.flatnonzero(wanted)[::-1]
        _, last = np.unique(digests[chosen], return_index=True)  # where each key came last
        chosen = chosen[last]
        if chosen.size > tracked.k:  # no more than k of them can stay
            chosen = chosen[np.lexsort((digests[chosen], estimates[chosen]))[-tracked.k :]]
        for i in np.sort(chosen).tolist():
            tracked.offer(int(digests[i]), piece[i], int(estimates[i]))
        self._open = None

    def _settle(self) -> int:
        """Complete an addition that a signal handler's exception left half done; return its keys that are in.

        The sketch takes keys one after the other, so its total says how many are in. These are offered to the
        heap with the estimates of now, which are no smaller than those of the moment they came.
        """
        if self._open is None:
            return 0
        tracked = self._tracked
        tracked.rebuild_heap()
        added = self._open.added(tracked.sketch.total)
        digests, piece = self._open.digests, self._open.keys
        for i, estimate in enumerate(tracked.sketch.count_many(digests[:added], digests=True).tolist()):
            if estimate:
                tracked.offer(int(digests[i]), piece[i], estimate)
        self._open = None
        return added

    def _settled(self) -> TrackedKeys:
        """Return the state after all additions; call it with the lock held."""
        self._settle()
        return self._tracked

    def clear(self) -> None:
        """Remove all keys and counts."""
        self._require_writable()
        with self._lock:
            tracked = self._settled()
            sketch = CountMinSketch.from_plan(tracked.sketch.plan)
            self._tracked = TrackedKeys(tracked.k, sketch)

    def _require_writable(self) -> None:
        if self._tracked.sketch._read_only:
            raise ValueError(
                "this sketch is open read-only: use load() or copy() for one that can be changed"
            )

"""The keys of a stream that came most often, by a count-min sketch and a heap.

How keys come in: `hitters_stream`. What is tracked, and what a merge of two does: `tracked_keys`. Files:
`tracked_file`. Plan and stats: `heavy_hitters_plan`.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _files
from evenbins._bulk import Key
from evenbins._files import attributes_of
from evenbins._keywords import explain_keywords
from evenbins.sketches.countmin import CountMinSketch
from evenbins.sketches.counts import CountAccess
from evenbins.sketches.heavy_hitters_plan import (
    HittersPlan,
    HittersStats,
    plan_heavy_hitters,
    plan_with_keys,
)
from evenbins.sketches.hitters_stream import HittersStream, empty
from evenbins.sketches.tracked_file import from_file, keys_bytes, to_file
from evenbins.sketches.tracked_keys import PlainKey
from evenbins.structure import Mergeable

__all__ = ["HeavyHitters"]

_Words = npt.NDArray[np.uint64]


class HeavyHitters(HittersStream, CountAccess):
    """The keys of a stream that came most often: a count-min sketch, and a heap of the k largest estimates.

    Each key is added to the sketch, and its estimate at that moment is compared with the heap's least. So:

    - Always: no key outside `top()` came more often than `stats().untracked_bound`, which is the least
      estimate in `top()`, and 0 if `top()` has fewer than k keys: then it has every key that came.
    - If no estimate is off by more than epsilon * total (each is with a probability of at most delta): every
      key whose count exceeds (1/k + epsilon) * total is in `top()`.
    - Every estimate in `top()` is at least the key's true count, and was taken when the key last came: it is
      no larger than `count` is now.

    A merge (`a | b`, `a + b`, `a |= b`, `a += b`, `a.merge(b)`) adds the counters, and keeps the k largest
    estimates of the keys that either side tracks. The third promise survives it, with estimates taken at the
    merge. So does the second, if the estimates of both parts were that close as well. Of the first only the
    number survives: `untracked_bound` is then at least the sum of the bounds of both parts, and may exceed
    the least estimate, because a key just below the last place of both sides is tracked by neither. A merged
    sketch keeps its promise, but with conservative counters it is not, byte for byte, the sketch of one
    stream; with `conservative=False` it is.

    Keys of equal estimates in the last place are chosen by their digests; a key that came in several forms
    ("a" and b"a") is shown in one of them. The same stream leaves the same bytes, one by one or in bulk, in
    any batches.

    Threads: any number may add, merge and look up. Additions take turns, a bulk call in pieces of 65,536
    keys; `top`, `stats`, copies and files wait for the piece under way; `count` and `total` never wait.

    Parameters
    ----------
    k
        Number of keys, 1 to 2**20.
    epsilon, delta, construction, conservative, seed
        As for `CountMinSketch`. Conservative counters, the default here, give smaller errors.

    Examples
    --------
    >>> h = HeavyHitters(2)
    >>> h.add_many("the cat and the dog and the bird".split())
    >>> h.top()
    [('the', 3), ('and', 2)]
    >>> h["the"], h["cow"], h.most_common(1)
    (3, 0, [('the', 3)])
    >>> other = HeavyHitters(2)
    >>> other.add("cow", 5)
    >>> (h | other).top()
    [('cow', 5), ('the', 3)]
    """

    __slots__ = ("__dict__", "__weakref__")
    _plan_class = HittersPlan

    @explain_keywords
    def __init__(
        self,
        k: int,
        *,
        epsilon: float = 1e-3,
        delta: float = 1e-3,
        construction: str = "classic",
        conservative: bool = True,
        seed: int = 0,
    ) -> None:
        plan = plan_heavy_hitters(
            k, epsilon=epsilon, delta=delta, construction=construction, conservative=conservative, seed=seed
        )
        self._build(plan)

    def _build(self, plan: HittersPlan) -> None:
        self._start(empty(plan))

    # --- answers out -------------------------------------------------------------------------------------

    def top(self) -> list[tuple[PlainKey, int]]:
        """Return the keys with the largest estimates, largest first: at most k pairs (key, estimate)."""
        with self._lock:
            return self._settled().ranked()

    def most_common(self, n: int | None = None) -> list[tuple[PlainKey, int]]:
        """Return the n keys with the largest estimates, as `collections.Counter.most_common` does.

        No more than k keys are tracked: None, or an n above that, returns them all.

        Examples
        --------
        >>> h = HeavyHitters(10)
        >>> h.update(list("abracadabra"))
        >>> h.most_common(1)
        [('a', 5)]
        """
        if n is None:
            return self.top()
        n = arguments.integer("n", n, -(2**63), 2**63, "Leave it out for all", rule="an integer or None")
        return self.top()[: max(n, 0)]

    def count(self, key: Key) -> int:
        """Estimate how often any key came, in `top()` or not."""
        return self._tracked.sketch.count(key)

    def count_many(self, keys: object, *, digests: bool = False) -> _Words:
        """Estimate the counts of many keys, in `top()` or not; as `CountMinSketch.count_many`."""
        return self._tracked.sketch.count_many(keys, digests=digests)

    @property
    def k(self) -> int:
        """The number of keys wanted."""
        return self._tracked.k

    @property
    def sketch(self) -> CountMinSketch:
        """A copy of the sketch behind it."""
        with self._lock:
            return self._tracked.sketch.copy()

    @property
    def total(self) -> int:
        """The sum of all weights added."""
        return self._tracked.sketch.total

    @property
    def nbytes(self) -> int:
        """Bytes of the sketch, and of the tracked keys as a file holds them."""
        with self._lock:
            tracked = self._settled()
            return tracked.sketch.nbytes + keys_bytes(tracked)

    @property
    def plan(self) -> HittersPlan:
        """The design, and what it promises."""
        return plan_with_keys(self._tracked.sketch.plan, self.k)

    def stats(self) -> HittersStats:
        """Measure this very structure: its counters, in one pass over them, and its tracked keys.

        Examples
        --------
        >>> h = HeavyHitters(2)
        >>> h.update(list("abracadabra"))
        >>> stats = h.stats()
        >>> stats.keys, stats.least, stats.untracked_bound, stats.total
        (2, 2, 2, 11)
        """
        with self._lock:
            tracked = self._settled()
            measured = tracked.sketch.stats().to_dict()
            measured["nbytes"] += keys_bytes(tracked)
            return HittersStats(
                **measured,
                keys=len(tracked.found),
                least=tracked.least()[0],
                untracked_bound=tracked.untracked_bound,
            )

    # --- merging -----------------------------------------------------------------------------------------

    def merge(self, other: HeavyHitters) -> None:
        """Add the stream of `other` to this one; the class says which promises survive.

        Raises
        ------
        ValueError
            They differ in k, parameters or seed.
        OverflowError
            The total would exceed 2**64 - 1. Nothing is changed.
        """
        if not isinstance(other, HeavyHitters):
            raise TypeError(f"other must be a HeavyHitters, not {type(other).__name__}")
        self._require_writable()
        mine, theirs = self.plan, other.plan
        if mine != theirs:
            what = "their parameters differ" if mine.core != theirs.core else "their seeds differ"
            if mine.k != theirs.k:
                what = f"they track {mine.k} and {theirs.k} keys"
            raise ValueError(f"cannot merge: {what}. Build both with the same arguments")
        part = other.copy()._tracked  # never two locks at once
        with self._lock:
            while True:
                tracked = self._settled()
                total, merged = tracked.sketch.total, tracked.merged(part)
                if self._tracked is tracked and tracked.sketch.total == total:
                    self._tracked = merged
                    return  # else a signal handler changed it meanwhile

    _merge = merge
    __add__ = Mergeable.__or__
    __iadd__ = Mergeable.__ior__

    # --- bytes and files -----------------------------------------------------------------------------------

    def copy(self) -> Self:
        """Make an independent copy; it can be changed even if this one is open read-only."""
        twin = type(self).__new__(type(self))
        with self._lock:
            twin._start(self._settled().copy())
        attributes_of(twin).update(attributes_of(self))
        return twin

    def _equal(self, other: HeavyHitters, /) -> bool:
        first, second = sorted((self, other), key=id)  # in one order, so that no two comparisons deadlock
        with first._lock, second._lock:
            return self._settled().equals(other._settled())

    def _to_bytes(self) -> bytes:
        with self._lock:
            return to_file(self._settled())

    def _write_to(self, descriptor: int, /) -> None:
        _files.write_all(descriptor, self._to_bytes())

    @classmethod
    def _from_data(cls, data: Any, *, mapped: bool, verify: bool) -> Self:
        hitters = cls.__new__(cls)
        hitters._start(from_file(data, mapped=mapped, verify=verify))
        return hitters

    # --- for people ----------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Assert every invariant of the structure; for tests."""
        with self._lock:
            self._settled().check()

    @property
    def _seed(self) -> int:
        return self._tracked.sketch.seed

    @property
    def _read_only(self) -> bool:
        return self._tracked.sketch._read_only

    def _shown(self) -> list[tuple[str, object]]:
        plan = self._tracked.sketch.plan
        return [("k", self.k), ("epsilon", plan.epsilon), ("delta", plan.delta), ("total", self.total)]

    def _compared(self) -> list[tuple[str, object, object]]:
        plan, stats = self.plan.to_dict(), self.stats().to_dict()
        plan["error_bound"] = self.plan.error_bound(stats["total"])
        names = ("total", "keys", "least", "untracked_bound", "error_bound", "failure", "fill", "nbytes")
        return [(name, plan.get(name), stats[name]) for name in names]

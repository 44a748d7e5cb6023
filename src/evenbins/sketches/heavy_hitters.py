"""The keys of a stream that came most often, by a count-min sketch and a heap.

Tried and dropped: a heap filled in bulk from the estimates at the end of each piece of the stream. It keeps
the promise too, but depends on the pieces; the estimate at the moment a key came costs a pass in key order,
and makes bulk and single additions agree.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sized
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk, _core, _show
from evenbins._bulk import Key
from evenbins._keywords import explain_keywords
from evenbins.sketches.countmin import MOST, CountMinSketch, checked_weights

__all__ = ["HeavyHitters"]

_PIECE = 1 << 16  # keys treated together
_Words = npt.NDArray[np.uint64]


class _Addition(NamedTuple):
    """Keys on their way into `HeavyHitters`: the sketch's total before; their weights, or one for all."""

    before: int
    digests: _Words
    keys: Any
    weights: _Words | None
    each: int

    def added(self, total: int) -> int:
        """Return how many of the keys are in, from the sketch's total now."""
        grown = total - self.before
        if self.weights is not None:
            sums = itertools.accumulate(self.weights.tolist())
            return bisect_right(list(sums), grown) if grown else 0
        return min(grown // self.each if self.each else int(grown > 0), len(self.digests))


class HeavyHitters:
    """The keys of a stream that came most often: a count-min sketch, and a heap of the k largest estimates.

    Each key is added to the sketch, and its estimate at that moment is compared with the heap's least. So:

    - Always: no key outside `top()` came more often than the least estimate in it; and if `top()` has fewer
      than k keys, it has every key that came.
    - If no estimate is off by more than epsilon * total (each is with a probability of at most delta): every
      key whose count exceeds (1/k + epsilon) * total is in `top()`.
    - Every estimate in `top()` is at least the key's true count, and was taken when the key last came: it is
      no larger than `count` is now.

    Keys of equal estimates in the last place are chosen arbitrarily; a key that came in several forms ("a"
    and b"a") is shown in one of them. Threads that add take turns.

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
    """

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
        self._k = arguments.integer("k", k, 1, 2**20, "Pass the number of keys wanted, such as 100")
        self._sketch = CountMinSketch(
            epsilon, delta, construction=construction, conservative=conservative, seed=seed
        )
        self._found: dict[int, tuple[int, Key]] = {}  # digest: estimate, key
        self._heap: list[tuple[int, int]] = []  # for each found one: an estimate, maybe older; digest
        self._open: _Addition | None = None  # the addition under way, or left half done by a signal handler
        self._lock = threading.RLock()

    def add(self, key: Key, weight: SupportsIndex = 1) -> None:
        """Add `weight` to the count of one key; raises as `CountMinSketch.add` does."""
        digest = _core.digest(key, self._sketch.seed)
        with self._lock:
            self._settle()
            before = self._sketch.total
            self._open = _Addition(before, np.array([digest], dtype=np.uint64), [key], None, 0)
            estimate = self._sketch._add_digest(digest, weight)
            if self._sketch.total > before:
                self._offer(digest, key, estimate)
            self._open = None

    def add_many(self, keys: object, weights: object = None) -> None:
        """Add many keys, as `CountMinSketch.add_many` does; the result is that of single additions.

        If a key is refused, the source of the keys fails or the call is interrupted, the keys before it are
        in, no other, and the error says how many these are.
        """
        words, each = checked_weights(weights, keys)
        start = 0
        for piece in _pieces(keys):
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
                    _note_added(error, done)
                    raise
            start += len(piece)
        if words is not None and start != words.size:
            raise ValueError(
                f"weights must be as many as the keys; got {words.size} weights for {start} keys, which have "
                "all been added"
            )

    def _add_piece(self, piece: Any, words: _Words | None, each: int, start: int) -> None:
        sketch = self._sketch
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
                    self.add(_plain(piece[i]), each if words is None else int(words[i]))
                except BaseException as error:
                    added = self._settle()  # by an interrupt, after the key went in
                    _note_added(error, start + i + added)
                    raise
            return
        source, _ = _bulk.key_source(digests, digests=True)
        self._open = _Addition(sketch.total, digests, piece, words, each)
        estimates = sketch._add_from(source, words, each, True)
        assert estimates is not None
        least = self._least() if len(self._found) == self._k else 0
        wanted = estimates > least
        if words is not None or not each:
            wanted &= np.full(len(piece), each > 0) if words is None else words > 0
        chosen = np.flatnonzero(wanted)[::-1]
        _, last = np.unique(digests[chosen], return_index=True)  # where each key came last
        chosen = chosen[last]
        if chosen.size > self._k:  # no more than k of them can stay
            chosen = chosen[np.argpartition(estimates[chosen], -self._k)[-self._k :]]
        for i in np.sort(chosen).tolist():
            self._offer(int(digests[i]), piece[i], int(estimates[i]))
        self._open = None

    def _settle(self) -> int:
        """Complete an addition that a signal handler's exception left half done; return its keys that are in.

        The sketch takes keys one after the other, so its total says how many are in. These are offered to the
        heap with the estimates of now, which are no smaller than those of the moment they came.
        """
        if self._open is None:
            return 0
        self._heap = [(estimate, digest) for digest, (estimate, _) in self._found.items()]
        heapq.heapify(self._heap)
        added = self._open.added(self._sketch.total)
        digests, piece = self._open.digests, self._open.keys
        for i, estimate in enumerate(self._sketch.count_many(digests[:added], digests=True).tolist()):
            if estimate:
                self._offer(int(digests[i]), piece[i], estimate)
        self._open = None
        return added

    def _offer(self, digest: int, key: Any, estimate: int) -> None:
        if digest in self._found:
            self._found[digest] = (estimate, self._found[digest][1])
            return
        if len(self._found) == self._k:
            if estimate <= self._least():
                return
            _, evicted = heapq.heappop(self._heap)
            del self._found[evicted]
        self._found[digest] = (estimate, _plain(key))
        heapq.heappush(self._heap, (estimate, digest))

    def _least(self) -> int:
        """Return the least estimate of the heap, after its first entry is brought up to date."""
        while True:
            estimate, digest = self._heap[0]
            now, _ = self._found[digest]
            if now == estimate:
                return now
            heapq.heapreplace(self._heap, (now, digest))

    def top(self) -> list[tuple[Key, int]]:
        """Return the keys with the largest estimates, largest first: at most k pairs (key, estimate)."""
        with self._lock:
            self._settle()
            found = list(self._found.values())
        return [(key, estimate) for estimate, key in sorted(found, key=lambda pair: -pair[0])]

    def count(self, key: Key) -> int:
        """Estimate how often any key came, in `top()` or not."""
        return self._sketch.count(key)

    def clear(self) -> None:
        """Remove all keys and counts."""
        with self._lock:
            self._open = None
            self._found, self._heap = {}, []
            self._sketch.clear()

    @property
    def k(self) -> int:
        """The number of keys wanted."""
        return self._k

    @property
    def sketch(self) -> CountMinSketch:
        """A copy of the sketch behind it."""
        with self._lock:
            return self._sketch.copy()

    @property
    def total(self) -> int:
        """The sum of all weights added."""
        return self._sketch.total

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            self._settle()
            state = {
                **self.__dict__,
                "_sketch": self._sketch.copy(), "_found": dict(self._found), "_heap": list(self._heap),
            }  # fmt: skip
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._open = None
        self.__dict__.update(state)
        self._lock = threading.RLock()

    def _check(self) -> None:
        """Assert every invariant of the structure; for tests."""
        self._sketch._check()
        with self._lock:
            self._settle()
        assert len(self._heap) == len(self._found) <= self._k
        assert {digest for _, digest in self._heap} == self._found.keys()
        assert all(estimate <= self._found[digest][0] for estimate, digest in self._heap)
        assert all(self._heap[(i - 1) // 2] <= self._heap[i] for i in range(1, len(self._heap)))

    def __repr__(self) -> str:
        plan = self._sketch.plan
        rows = [("k", self._k), ("epsilon", plan.epsilon), ("delta", plan.delta), ("total", self.total)]
        return _show.line(type(self).__name__, rows)


def _plain(key: Any) -> Any:
    """Return a key that can be kept: nothing of NumPy, nothing that may change."""
    if isinstance(key, np.generic):
        return key.item()
    return bytes(key) if isinstance(key, bytearray | memoryview) else key


def _note_added(error: BaseException, number: int) -> None:
    """Replace the core's note, which counts the keys of a piece, by one that counts those of the call."""
    ours = "evenbins: this came from"
    notes = [note for note in getattr(error, "__notes__", ()) if not note.startswith(ours)]
    notes.append(f"{ours} item {number} of the keys; the keys before it have been added")
    error.__notes__ = notes


def _pieces(keys: object) -> Iterator[Any]:
    """Cut keys into arrays or lists, whose elements are keys."""
    if isinstance(keys, str | bytes | bytearray | memoryview):
        _bulk.key_source(keys)  # refuses them
    if isinstance(getattr(keys, "dtype", None), np.dtype) and hasattr(keys, "__array__"):
        _bulk.key_source(keys)  # refuses what is no array of keys, with the reason
        flat = np.asarray(keys).ravel()
        yield from (flat[i : i + _PIECE] for i in range(0, flat.size, _PIECE))
    elif hasattr(keys, "to_pylist") and isinstance(keys, Sized):  # pyarrow
        for i in range(0, len(keys), _PIECE):
            yield keys[i : i + _PIECE].to_pylist()  # type: ignore[index]
    elif isinstance(keys, Iterable):
        rest, done = iter(keys), 0
        while True:
            piece: list[Any] = []
            try:
                piece.extend(itertools.islice(rest, _PIECE))
            except BaseException as error:
                yield piece  # what came before the failure
                _note_added(error, done + len(piece))
                raise
            if piece:
                yield piece
            if len(piece) < _PIECE:
                return
            done += len(piece)
    else:
        _bulk.key_source(keys)  # says what keys are
        raise TypeError("keys must be an array or an iterable of str, bytes or int")

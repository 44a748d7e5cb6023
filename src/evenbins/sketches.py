"""Sketches: how often did this key come, and which keys came most, in memory that does not grow.

    CountMinSketch    counts of all keys of a stream: never too small, seldom much too large
    HeavyHitters      the keys of a stream that came most often, by a count-min sketch and a heap

A key adds its weight to one counter in each row; the least of them is its estimate. Other keys that share a
counter can only have added to it, so no estimate is too small (kirsch, section 3.8).

Bulk calls, single calls and the twin in `reference` leave the same bytes. Threads: look-ups may run at any
time; writers, and calls that read the whole sketch, take turns by themselves.

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
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self, SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk, _core, _files, _show
from evenbins._bulk import Key
from evenbins._core import FormatError
from evenbins.theory import SketchPlan, plan_countmin, plan_of_sketch_core

__all__ = ["CountMinSketch", "HeavyHitters", "SketchStats"]

_MOST = 2**64 - 1
_PIECE = 1 << 16  # keys that HeavyHitters treats together

_Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SketchStats:
    """What a sketch measures on itself; each name means the same as in its plan.

    Attributes
    ----------
    total : sum of all weights added
    updates : additions with a weight above 0
    error_bound : epsilon * total: what an estimate is too large by at most, but for
    failure : the probability that a key which never came is estimated above `error_bound`, from the actual
        counters (rows taken as independent)
    fill : fraction of counters that are not 0
    nbytes : bytes of the sketch
    """

    total: int
    updates: int
    error_bound: float
    failure: float
    fill: float
    nbytes: int

    def to_dict(self) -> dict[str, object]:
        """Give every field by name, as plain values that JSON can hold."""
        return dict(self._rows())

    def __repr__(self) -> str:
        return _show.line("SketchStats", self._rows())

    def __str__(self) -> str:
        return _show.table("SketchStats", self._rows())

    def _repr_html_(self) -> str:
        return _show.html_table("SketchStats", self._rows())

    def _rows(self) -> list[tuple[str, object]]:
        return [(each.name, getattr(self, each.name)) for each in fields(self)]


class CountMinSketch(_core.Sketch, _files.Kept):
    """Counts of the keys of a stream, in fixed memory: never too small, seldom much too large.

    For each key, the estimate is at least the true count, and exceeds it by more than `epsilon` times the
    stream's total with a probability of at most `delta` (over the seed: who knows it can do worse).
    Counters have 64 bits; an addition that would lift the *total* above 2**64 - 1 raises OverflowError and
    changes nothing. No counter exceeds the total, so none can wrap.

    Parameters
    ----------
    epsilon, delta
        The error promised, as a fraction of the total, and the probability of a larger one (ε, δ).
    construction
        "classic": ⌈e/ε⌉ counters in each of ⌈ln 1/δ⌉ rows, a hash for each row. "two-hash": the thesis'
        construction from two hash values, with a prime width of at least 2e/ε. The default is "classic":
        half the memory for the same promise, no slower where the machine has vector instructions, and an
        inner product with a promise of its own.
    conservative
        Raise a counter only as far as the key's new estimate: the same promise, smaller errors, updates of
        two to three times the time; `|`, `|=` and `inner_product` are refused.
    seed
        0 … 2**64-1. With a secret random seed nobody can choose keys that collide.

    Examples
    --------
    >>> s = CountMinSketch(epsilon=1e-3, delta=1e-3)
    >>> s.add("apple", 3)
    >>> s.add_many(["apple", "pear"])
    >>> s.count("apple"), s.count("pear"), s.count("plum")
    (4, 1, 0)
    >>> s.plan
    SketchPlan(epsilon=0.001, delta=0.001, construction='classic', width=2_719, depth=7, copies=1, \
failure=0.0009102, conservative=False, nbytes=152 kB)
    """

    __slots__ = ("_cached_plan",)
    _cached_plan: SketchPlan | None

    def __init__(
        self,
        epsilon: float = 1e-3,
        delta: float = 1e-3,
        *,
        construction: str = "classic",
        conservative: bool = False,
        seed: int = 0,
    ) -> None:
        self._build(
            plan_countmin(epsilon, delta, construction=construction, conservative=conservative, seed=seed)
        )

    def _build(self, plan: SketchPlan) -> None:
        _core.Sketch.__init__(self, plan.seed, list(plan.core))
        self._cached_plan = plan

    @classmethod
    def from_plan(cls, plan: SketchPlan) -> Self:
        """Build the sketch of a plan, as the constructor does after planning."""
        if not isinstance(plan, SketchPlan):
            raise TypeError(f"plan must be a SketchPlan, not {type(plan).__name__}")
        sketch = cls.__new__(cls)
        sketch._build(plan)
        return sketch

    # --- keys in, counts out -----------------------------------------------------------------------

    def add_many(self, keys: object, weights: object = None, *, digests: bool = False) -> None:
        """Add many keys: a NumPy array, an Arrow column or stream, or any iterable.

        The GIL is released where the keys can be read without Python. If a key is refused, or the total would
        overflow at it, the keys before it are in and the error says where it was. Ctrl-C stops the call; the
        sketch stays usable.

        Parameters
        ----------
        keys
            Integers, strings or bytes, as for the filters.
        weights
            What each key adds: None for 1, one integer for all, or as many integers as keys (an array, an
            Arrow column, a list). Integers from 0 to 2**64 - 1; adding 0 changes nothing.
        digests
            The keys are digests already, as `digest_many` makes them with this sketch's seed (uint64).

        Raises
        ------
        OverflowError
            The total would exceed 2**64 - 1.
        TypeError, ValueError
            A key or a weight is none; a weight is negative; there are more or fewer weights than keys.

        Examples
        --------
        >>> import numpy as np
        >>> s = CountMinSketch()
        >>> s.add_many(np.array([1, 2, 2]), weights=np.array([10, 1, 1]))
        >>> s.count_many([1, 2, 3])
        array([10,  2,  0], dtype=uint64)
        """
        words, each = _weights(weights, keys)
        source, _ = _bulk.key_source(keys, digests=digests)
        self._add_from(source, words, each, False)

    def update(self, *keys: object) -> None:
        """Add the keys of each argument, each once for each time it comes; see `add_many`."""
        for each in keys:
            self.add_many(each)

    def count_many(self, keys: object, *, digests: bool = False) -> _Words:
        """Estimate the counts of many keys: an array, in the shape of a NumPy array of keys."""
        source, shape = _bulk.key_source(keys, digests=digests)
        counts = self._count_from(source)
        return counts if shape is None else counts.reshape(shape)

    def inner_product(self, other: CountMinSketch) -> int:
        """Estimate the sum over all keys of the count here times the count there: never too small.

        It is the size of a join of the two streams; of a sketch with itself, the second moment. The classic
        construction exceeds the truth by more than epsilon * self.total * other.total with a probability of
        at most delta (Cormode and Muthukrishnan 2005). The thesis has no such theorem for "two-hash"; one row
        of each copy, by Markov's inequality, leaves (1/(epsilon * width))**copies, at most 0.184**copies.

        Raises
        ------
        ValueError
            The sketches differ in parameters or seed, or are conservative.

        Examples
        --------
        >>> s, t = CountMinSketch(), CountMinSketch()
        >>> s.add("a", 3); t.add("a", 5); t.add("b")
        >>> s.inner_product(t)
        15
        """
        if not isinstance(other, CountMinSketch):
            raise TypeError(f"other must be a CountMinSketch, not {type(other).__name__}")
        high, low = self._inner_product(other)
        return high << 64 | low

    # --- the sketch as a whole -----------------------------------------------------------------------

    @property
    def plan(self) -> SketchPlan:
        """The design, and what it promises."""
        plan = getattr(self, "_cached_plan", None)
        if plan is None:
            plan = plan_of_sketch_core(self._core, seed=self._seed)
            self._cached_plan = plan
        return plan

    def stats(self) -> SketchStats:
        """Measure this very sketch: computed from its counters, in one pass over them.

        Examples
        --------
        >>> s = CountMinSketch(0.01, 0.01)
        >>> s.add_many(range(100))
        >>> s.stats().total, s.stats().error_bound
        (100, 1.0)
        """
        plan = self.plan
        total, updates, filled, above = self._state(plan.epsilon)
        return SketchStats(
            total=total,
            updates=updates,
            error_bound=plan.error_bound(total),
            failure=float(np.prod(np.array(above) / plan.width)),
            fill=sum(filled) / (plan.width * len(filled)),
            nbytes=self.nbytes,
        )

    @property
    def seed(self) -> int:
        """The seed of the digests. Sketches with different seeds cannot be merged."""
        return self._seed

    def clear(self) -> None:
        """Forget the stream: all counters 0."""
        self._clear()

    def copy(self) -> Self:
        """Make an independent copy; it can be changed even if this sketch is open read-only."""
        twin = type(self).__new__(type(self))
        _core.Sketch.__init__(twin, self)
        twin._cached_plan = getattr(self, "_cached_plan", None)
        _files.attributes_of(twin).update(_files.attributes_of(self))
        return twin

    def __ior__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        self._merge(other)
        return self

    def __or__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        merged = self.copy()
        merged |= other
        return merged

    __array_ufunc__ = None  # `sketch | array` is an error, not NumPy's affair

    # --- bytes and files -----------------------------------------------------------------------------

    @classmethod
    def _from_data(cls, data: Any, *, mapped: bool, verify: bool) -> Self:
        sketch = cls.__new__(cls)
        _core.Sketch.__init__(sketch, data, mapped, verify)
        try:
            sketch._cached_plan = plan_of_sketch_core(sketch._core, seed=sketch._seed)
        except ValueError as error:
            raise FormatError(f"the header describes no possible sketch: {error}") from None
        return sketch

    # --- for people ----------------------------------------------------------------------------------

    def _check(self) -> None:
        """Assert every invariant of the structure; for tests."""
        broken = self._invariant()
        assert not broken, broken
        assert self.nbytes == self.plan.nbytes
        assert self.plan.core == tuple(self._core)
        assert self.plan.failure <= self.plan.delta * (1 + 1e-9)
        assert self.stats().updates <= self.total

    def __repr__(self) -> str:
        plan = self.plan
        rows: list[tuple[str, object]] = [
            ("epsilon", plan.epsilon), ("delta", plan.delta), ("construction", plan.construction),
            ("total", self.total), ("nbytes", plan.nbytes),
        ]  # fmt: skip
        if plan.conservative:
            rows.insert(3, ("conservative", True))
        if self._seed:
            rows.append(("seed", "set"))  # a seed may be a secret
        if self._read_only:
            rows.append(("open", "read-only"))
        return _show.line(type(self).__name__, rows)

    def _repr_html_(self) -> str:
        plan, stats = self.plan, self.stats()
        rows: list[tuple[str, object, object]] = [
            ("total", None, stats.total), ("error_bound", plan.error_bound(stats.total), stats.error_bound),
            ("failure", plan.failure, stats.failure), ("fill", None, stats.fill),
            ("nbytes", plan.nbytes, stats.nbytes),
        ]  # fmt: skip
        return _show.html_comparison(type(self).__name__, ("plan", "stats()"), rows)


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
        self._heap: list[
            tuple[int, int]
        ] = []  # for each found one: an estimate, perhaps an older one; digest
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
        words, each = _weights(weights, keys)
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
            refused = sketch.total + weight > _MOST
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
        """Give the least estimate of the heap, after its first entry is brought up to date."""
        while True:
            estimate, digest = self._heap[0]
            now, _ = self._found[digest]
            if now == estimate:
                return now
            heapq.heapreplace(self._heap, (now, digest))

    def top(self) -> list[tuple[Key, int]]:
        """Give the keys with the largest estimates, largest first: at most k pairs (key, estimate)."""
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
        return _show.line(
            type(self).__name__,
            [("k", self._k), ("epsilon", plan.epsilon), ("delta", plan.delta), ("total", self.total)],
        )


def _attributes(sketch: CountMinSketch) -> dict[str, Any]:
    """Give the attributes that a subclass written in Python put on its object; ours has none."""
    found: dict[str, Any] = getattr(sketch, "__dict__", {})
    return found


def _plain(key: Any) -> Any:
    """Give a key that can be kept: nothing of NumPy, nothing that may change."""
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


# --- weights -------------------------------------------------------------------------------------------


def _weights(weights: object, keys: object) -> tuple[_Words | None, int]:
    """Give the argument as uint64, one for each key, or as one number for all."""
    way_out = "Pass None, an integer, or as many integers as keys"
    rule = "integers from 0 to 2**64 - 1"
    if weights is None:
        return None, 1
    if isinstance(weights, SupportsIndex) and not (isinstance(weights, np.ndarray) and weights.ndim):
        return None, arguments.integer("weights", weights, 0, _MOST, way_out, rule=rule)
    if isinstance(weights, str | bytes | bytearray | bool):
        raise TypeError(arguments.problem("weights", rule, weights, way_out))
    if hasattr(weights, "__array__"):
        found = np.asanyarray(weights)
        if isinstance(found, np.ma.MaskedArray):
            raise TypeError(
                "weights must not be a masked array: pass weights.filled(0), or drop what is masked"
            )
        found = np.asarray(found)  # a matrix would keep its two dimensions
    elif isinstance(weights, Iterable):
        found = np.fromiter(weights, object)
    else:
        raise TypeError(arguments.problem("weights", rule, weights, way_out))
    if found.dtype.kind == "O":
        checked = (
            arguments.integer(f"weights[{i}]", each, 0, _MOST, way_out, rule="an integer from 0 to 2**64 - 1")
            for i, each in enumerate(found.ravel().tolist())
        )
        found = np.fromiter(checked, np.uint64, found.size).reshape(found.shape)
    if found.dtype.kind not in "iu":
        raise TypeError(
            f"weights must be {rule}, not an array of {found.dtype} (missing values make integers floats). "
            f"{way_out}"
        )
    if found.dtype.kind == "i" and found.size and found.min() < 0:
        first = int(np.flatnonzero(found.ravel() < 0)[0])
        raise ValueError(
            f"weights must not be negative; weights[{first}] is {found.ravel()[first]}. A count-min sketch "
            "cannot take back: an estimate would be too small"
        )
    if isinstance(keys, np.ndarray) and found.shape != keys.shape:
        raise ValueError(f"weights must have the shape of keys, {keys.shape}; got {found.shape}")
    if isinstance(keys, Sized) and not isinstance(keys, np.ndarray) and found.size != len(keys):
        raise ValueError(
            f"weights must be as many as the keys; got {found.size} weights for {len(keys)} keys"
        )
    return np.ascontiguousarray(found.ravel(), dtype=np.uint64), 1

"""The count-min sketch: how often has this key been seen? Never too small, seldom much too large.

A key adds its weight to one counter in each row; the least of them is its estimate. Other keys that share a
counter can only have added to it, so no estimate is too small; one is more than `epsilon` times the stream's
total too large with a probability of at most `delta`, for each key (kirsch, section 3.8). Two ways to get
there:

    "classic"    w = ⌈e/ε⌉ counters in each of d = ⌈ln 1/δ⌉ rows, a hash for each row:
                     failure ≤ (1/(εw))^d
    "two-hash"   a prime w ≥ 2e/ε of counters in each of d = ⌈ln 1/(ε(1 − 1/(2e²)))⌉ tables, all from two
                 hash values, h1 + j·h2 mod w: that fails with a probability of at most ε, and so
                 ⌈(ln 1/δ)/(ln 1/ε)⌉ copies of it:
                     failure ≤ (2/(εw²) + (2/(εw))^d)^copies

Invariants: a plan that is returned can be built and has failure ≤ delta; two plans are equal exactly when
seed and core are. All keys are told apart by 64-bit digests: two share one with probability 2^-64, which by
Markov's inequality adds about 2^-63/ε to the failure; a `delta` below that is refused.

Bulk calls, single calls and the twin in `reference` leave the same bytes. Threads: look-ups may run at any
time; writers, and calls that read the whole sketch, take turns by themselves.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk, _core
from evenbins._keywords import explain_keywords
from evenbins._show import ReprMixin
from evenbins.sketches.counts import KeylessCounts
from evenbins.sketches.key_pieces import counted
from evenbins.structure import Mergeable, Plan
from evenbins.theory.sketch import classic_failure, is_prime, next_prime, two_hash_failure

__all__ = [
    "MOST", "CountMinSketch", "SketchPlan", "SketchStats", "checked_weights", "plan_countmin",
    "plan_of_sketch_core",
]  # fmt: skip

MOST = 2**64 - 1
CONSTRUCTIONS = ("two-hash", "classic")  # by their number in the core, from 1
MAX_ROWS = 1024
MAX_WIDTH = 2**32
_STATE_WORDS = 2

_Words = npt.NDArray[np.uint64]


class SketchCore(NamedTuple):
    """The integers of a sketch by names; epsilon and delta as the bits of their doubles."""

    construction: int
    width: int
    depth: int
    copies: int
    conservative: int
    epsilon_bits: int
    delta_bits: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class SketchPlan(Plan):
    """A count-min sketch's design and what it promises.

    Equality and hash look at seed and core alone.

    Attributes
    ----------
    epsilon : an estimate is too large by at most this fraction of the stream's total, but for
    delta : the probability, for each key, that it is too large by more
    construction : "classic", a hash for each row, or "two-hash"
    width : counters of a row (w)
    depth : rows (d); of each copy
    copies : independent copies; 1 for "classic"
    hashes : hash values computed for a key
    failure : what the theorem proves in place of `delta`, for these integers
    conservative : whether counters rise only as far as the estimate needs
    nbytes : bytes of the sketch
    seed : seed of the digests
    core : the integers stored, compared and merged by: construction, width, depth, copies, conservative,
        and the bits of epsilon and delta
    """

    _identity: ClassVar[tuple[str, ...]] = ("seed", "core")
    _in_one_line: ClassVar[tuple[str, ...]] = (
        "epsilon", "delta", "construction", "width", "depth", "copies", "failure", "conservative", "nbytes",
    )  # fmt: skip

    epsilon: float
    delta: float
    construction: str
    width: int
    depth: int
    copies: int
    hashes: int
    failure: float
    conservative: bool
    nbytes: int
    seed: int
    core: SketchCore

    def error_bound(self, total: float) -> float:
        """Return what an estimate exceeds the count by at most, but for `failure`, in a stream of this total.

        Examples
        --------
        >>> plan_countmin(1e-3, 1e-3).error_bound(1_000_000)
        1000.0
        """
        return self.epsilon * total


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SketchStats(ReprMixin):
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


class CountMinSketch(_core.Sketch, KeylessCounts, Mergeable[SketchPlan]):
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
        two to three times the time; `|`, `+` and `inner_product` are refused.
    seed
        0 … 2**64-1. With a secret random seed nobody can choose keys that collide.

    Examples
    --------
    >>> s = CountMinSketch(epsilon=1e-3, delta=1e-3)
    >>> s.add("apple", 3)
    >>> s.add_many(["apple", "pear"])
    >>> s.count("apple"), s["pear"], s["plum"]                 # s[key] is s.count(key)
    (4, 1, 0)
    >>> s.plan
    SketchPlan(epsilon=0.001, delta=0.001, construction='classic', width=2_719, depth=7, copies=1, \
failure=0.0009102, conservative=False, nbytes=152 kB)
    """

    __slots__ = ("_cached_plan",)
    _plan_class = SketchPlan
    _noun = "sketch"

    def _core_arguments(self, plan: SketchPlan) -> tuple[Any, ...]:
        return plan.seed, list(plan.core)

    def _plan_of_core(self) -> SketchPlan:
        return plan_of_sketch_core(self._core, seed=self._seed)

    def _shown(self) -> list[tuple[str, object]]:
        plan = self.plan
        conservative: list[tuple[str, object]] = [("conservative", True)] if plan.conservative else []
        return [
            ("epsilon", plan.epsilon), ("delta", plan.delta), ("construction", plan.construction),
            *conservative, ("total", self.total), ("nbytes", plan.nbytes),
        ]  # fmt: skip

    def _compared(self) -> list[tuple[str, object, object]]:
        plan, stats = self.plan, self.stats()
        return [
            ("total", None, stats.total), ("error_bound", plan.error_bound(stats.total), stats.error_bound),
            ("failure", plan.failure, stats.failure), ("fill", None, stats.fill),
            ("nbytes", plan.nbytes, stats.nbytes),
        ]  # fmt: skip

    def _check_core(self) -> None:
        self._cached_plan = self._plan_of_core()

    __add__, __iadd__ = Mergeable.__or__, Mergeable.__ior__  # merging adds the counters

    @explain_keywords
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

    def add_many(
        self,
        keys: object,
        weights: object = None,
        *,
        digests: bool = False,
        return_counts: bool = False,
        threads: int | None = None,
    ) -> _Words | None:
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
        return_counts
            Return each key's estimate just after it was added, as `add` and `count` in turn would: 1 for a
            key that is new, unless others share its counters.
        threads
            At most so many threads add; None: as many as this process has cores. Counters and counts returned
            are those of one thread. A conservative sketch is updated by one thread, since its counters depend
            on the order of the keys; the others hash.

        Raises
        ------
        OverflowError
            The total would exceed 2**64 - 1.
        TypeError, ValueError
            A key or a weight is invalid; a weight is negative; there are more or fewer weights than keys.

        Examples
        --------
        >>> import numpy as np
        >>> s = CountMinSketch()
        >>> s.add_many(np.array([1, 2, 2]), weights=np.array([10, 1, 1]))
        >>> s.count_many([1, 2, 3])
        array([10,  2,  0], dtype=uint64)
        >>> s.add_many([7, 2, 7], return_counts=True)
        array([1, 3, 2], dtype=uint64)
        """
        words, each = checked_weights(weights, keys)
        wanted = arguments.flag("return_counts", return_counts, "Pass True for each key's count")
        source, shape = _bulk.key_source(keys, digests=digests)
        counts = self._add_from(source, words, each, wanted, _bulk.checked_threads(threads))
        return counts if counts is None or shape is None else counts.reshape(shape)

    def update(self, *keys: object) -> None:
        """Add the keys of each argument, each once for each time it comes; a mapping's values are weights.

        As `collections.Counter.update` does, but counts must not be negative; see `add_many`.
        """
        for each in keys:
            self.add_many(*counted(each))

    def count_many(self, keys: object, *, digests: bool = False, threads: int | None = None) -> _Words:
        """Estimate the counts of many keys: an array, in the shape of a NumPy array of keys.

        `digests` and `threads` as in `add_many`.
        """
        source, shape = _bulk.key_source(keys, digests=digests, single="count(key)")
        counts = self._count_from(source, _bulk.checked_threads(threads))
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

    def clear(self) -> None:
        """Forget the stream: all counters 0."""
        self._clear()

    def _check(self) -> None:
        super()._check()
        assert self.plan.failure <= self.plan.delta * (1 + 1e-9)
        assert self.stats().updates <= self.total


# --- planning ------------------------------------------------------------------------------------------


def plan_countmin(
    epsilon: float, delta: float, *, construction: str = "classic", conservative: bool = False, seed: int = 0
) -> SketchPlan:
    """Plan a count-min sketch; parameters as of `CountMinSketch`, epsilon and delta between 0 and 1.

    Examples
    --------
    >>> plan = plan_countmin(1e-3, 1e-3)
    >>> plan.width, plan.depth
    (2719, 7)
    >>> plan = plan_countmin(1e-3, 1e-6, construction="two-hash")
    >>> plan.width, plan.depth, plan.copies, plan.hashes
    (5437, 7, 2, 4)
    """
    epsilon, delta = _fraction("epsilon", epsilon), _fraction("delta", delta)
    least = 2.0**-63 / epsilon
    if delta < least:
        raise ValueError(
            f"delta must be at least 2**-63/epsilon = {least:.3g}, since keys are told apart by 64-bit "
            f"digests; got {arguments.shown(delta)}. Pass a larger delta"
        )
    arguments.one_of("construction", construction, CONSTRUCTIONS, "Leave it out for the smaller one")
    arguments.flag("conservative", conservative, "Pass True for smaller errors without merging")
    seed = arguments.seed(seed)
    per_epsilon = math.e if construction == "classic" else 2 * math.e
    if per_epsilon / epsilon > MAX_WIDTH:
        least = per_epsilon / MAX_WIDTH
        raise arguments.error(
            "epsilon", f"at least {least:.3g}, for a width of 2**32 counters", epsilon, "Pass a larger one"
        )
    width, depth, copies = math.ceil(per_epsilon / epsilon), math.ceil(math.log(1 / delta)), 1
    if construction == "two-hash":
        width = next_prime(width)
        depth = math.ceil(-math.log(epsilon * (1 - 1 / (2 * math.e**2))))
        copies = math.ceil(math.log(delta) / math.log(epsilon))
        while two_hash_failure(epsilon, width, depth, copies) > delta:  # rounding alone: at most once
            copies += 1
    while construction == "classic" and classic_failure(epsilon, width, depth) > delta:
        depth += 1
    depth, copies = max(1, depth), max(1, copies)
    if depth * copies > MAX_ROWS:
        raise ValueError(
            f"the sketch must have at most {MAX_ROWS} rows; epsilon={arguments.shown(epsilon)} and "
            f"delta={arguments.shown(delta)} ask for {depth * copies} ({construction}). "
            'Pass a smaller epsilon, or construction="classic"'
        )
    number, bits = CONSTRUCTIONS.index(construction) + 1, struct.pack("<2d", epsilon, delta)
    core = SketchCore(number, width, depth, copies, int(conservative), *struct.unpack("<2Q", bits))
    return _plan(core, seed)


def plan_of_sketch_core(core: Sequence[int], *, seed: int) -> SketchPlan:
    """Check an integer core and predict anew: the plan of a file that was loaded."""
    rule = f"the integers ({', '.join(SketchCore._fields)}) of a sketch"
    remedy = "Pass a sketch's plan.core"
    numbers = arguments.integers("core", core, rule, remedy)
    if len(numbers) != len(SketchCore._fields):
        raise arguments.error("core", rule, core, remedy)
    given = SketchCore(*numbers)
    limits = ((1, 2), (1, MAX_WIDTH), (1, MAX_ROWS), (1, MAX_ROWS), (0, 1), (0, MOST), (0, MOST))
    for i, (name, (least, most)) in enumerate(zip(SketchCore._fields, limits, strict=True)):
        arguments.integer(f"core[{i}] ({name})", given[i], least, most, remedy)
    construction = CONSTRUCTIONS[given.construction - 1]
    if construction == "two-hash" and not is_prime(given.width):
        raise arguments.error("core[1] (width)", 'prime for "two-hash"', given.width, remedy)
    if construction == "classic" and given.copies != 1:
        raise arguments.error("core[3] (copies)", '1 for "classic"', given.copies, remedy)
    plan = _plan(given, arguments.seed(seed))
    if plan.failure > plan.delta * (1 + 1e-9):  # pow may round otherwise where the file was written
        raise arguments.error("core", "enough rows and counters for its delta", core, remedy)
    return plan


def _plan(core: SketchCore, seed: int) -> SketchPlan:
    epsilon, delta = struct.unpack("<2d", struct.pack("<2Q", core.epsilon_bits, core.delta_bits))
    epsilon, delta = _fraction("epsilon", epsilon), _fraction("delta", delta)
    construction = CONSTRUCTIONS[core.construction - 1]
    if is_classic := construction == "classic":
        failure = classic_failure(epsilon, core.width, core.depth)
    else:
        failure = two_hash_failure(epsilon, core.width, core.depth, core.copies)
    return SketchPlan(
        epsilon=epsilon,
        delta=delta,
        construction=construction,
        width=core.width,
        depth=core.depth,
        copies=core.copies,
        hashes=core.depth if is_classic else 2 * core.copies,
        failure=failure,
        conservative=bool(core.conservative),
        nbytes=8 * (core.width * core.depth * core.copies + _STATE_WORDS),
        seed=seed,
        core=core,
    )


def _fraction(name: str, value: object) -> float:
    return arguments.real(name, value, "", "Pass for example 0.001", above=0.0, below=1.0)


# --- weights -------------------------------------------------------------------------------------------


def checked_weights(weights: object, keys: object) -> tuple[_Words | None, int]:
    """Return the argument as uint64, one for each key, or as one number for all."""
    way_out = "Pass None, an integer, or as many integers as keys"
    rule = "integers from 0 to 2**64 - 1"
    if weights is None:
        return None, 1
    if isinstance(weights, SupportsIndex) and not (isinstance(weights, np.ndarray) and weights.ndim):
        return None, arguments.integer("weights", weights, 0, MOST, way_out, rule=rule)
    if isinstance(weights, str | bytes | bytearray | bool):
        raise arguments.type_error("weights", rule, weights, way_out)
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
        raise arguments.type_error("weights", rule, weights, way_out)
    if found.dtype.kind == "O":
        checked = (
            arguments.integer(f"weights[{i}]", each, 0, MOST, way_out, rule="an integer from 0 to 2**64 - 1")
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

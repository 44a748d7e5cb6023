"""Summaries of a multilevel table: is this key in it, and in which level? (kirsch, chapter 4)

    key ──▶ summary, small, in fast memory ──▶ 0: absent │ j: read the bucket of level j, and no other

    InterpolationSummary     sorted digests with levels (4.6): exact but for equal digests; the largest
    SingleFilterSummary      cells that hold the greatest level (4.7.1)
    MultipleBloomSummary     Bloom filters, one for the keys above each level (4.7.2): the smallest

What holds of each: a key that is in is never answered 0. It may be answered a wrong level, with a
probability that `plan.failure` bounds, and an absent key a level (`plan.false_positives`). A
`MultilevelTable` that keeps a summary (`summary=`) looks at the other levels then: a wrong answer costs
reads, never a key.

`counting=True` makes filters of counters (4.10.2), from which keys can be removed.

Bulk calls, single calls and the twins in `reference` leave the same bytes. Threads: any number of look-ups,
or one writer; other callers block until it finishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, SupportsFloat, SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk, _core
from evenbins._bulk import Key
from evenbins._show import ReprMixin
from evenbins.structure import Structure
from evenbins.tables.summary_plan import SummaryPlan, plan_of_summary_core, plan_summary

__all__ = [
    "InterpolationSummary", "MultipleBloomSummary", "SingleFilterSummary", "Summary", "SummaryPlan",
    "SummaryStats", "plan_of_summary_core", "plan_summary",
]  # fmt: skip

_Digests = npt.NDArray[np.uint64]
_Levels = npt.NDArray[np.uint8]
_PIECE = 1 << 16  # keys of a bulk call between two looks at signals


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SummaryStats(ReprMixin):
    """What a summary measures on itself; each name means the same as in its plan.

    Attributes
    ----------
    keys : keys in it; of filters that do not count, those that changed something when they were added
    kind, levels : the plan's
    false_positives : chance that an absent key is answered a level, from the cells as they are
    fills : fraction of cells in use: of the slots, of each group of a single filter, of each filter
    saturated : counters that are full, and stick
    nbytes : bytes of the summary
    """

    keys: int
    kind: str
    levels: int
    false_positives: float
    fills: tuple[float, ...]
    saturated: int
    nbytes: int


class Summary(_core.Summary, Structure[SummaryPlan]):
    """What all summaries can do; made by one of the classes below. `plan_summary` has more options.

    Parameters
    ----------
    capacity
        Keys to plan for (n).
    levels
        Answers of a present key, 1 to 9: a table's levels and, where it has one, its overflow list. By
        default as many as `shares`, or 5.
    shares
        Fraction of the keys in each level; by default those of the thesis' tables (section 4.8). They do not
        matter to an `InterpolationSummary`.
    false_positives
        Chance, at most, that an absent key is answered a level; by default 0.01.
    failure
        Chance, at most, that any of `capacity` keys is answered a wrong level; by default 1e-3.
    counting
        Filters of counters: keys can be removed and move to lower levels. An `InterpolationSummary` can do
        that in any case.
    seed
        0 … 2**64-1.
    """

    __slots__ = ("_cached_plan",)
    _kind: ClassVar[int]
    _plan_class = SummaryPlan
    _kinds: ClassVar[tuple[str, str]]  # of plans: without and with counters

    def _core_arguments(self, plan: SummaryPlan) -> tuple[Any, ...]:
        return self._kind, plan.seed, plan.keys, list(plan.core)

    def _plan_of_core(self) -> SummaryPlan:
        return plan_of_summary_core(self._core, number=self._kind, keys=self._capacity, seed=self._seed)

    def _shown(self) -> list[tuple[str, object]]:
        return [
            ("keys", self._keys), ("capacity", self._capacity), ("kind", self.plan.kind),
            ("levels", self._core[0]), ("nbytes", self.nbytes),
        ]  # fmt: skip

    def __init__(
        self,
        capacity: SupportsIndex | SupportsFloat,
        *,
        levels: int | None = None,
        shares: Sequence[float] | None = None,
        false_positives: float | None = None,
        failure: float | None = None,
        counting: bool = False,
        seed: int = 0,
    ) -> None:
        self._build(
            plan_summary(
                capacity, kind=self._kinds[bool(counting)], levels=levels, shares=shares,
                false_positives=false_positives, failure=failure, seed=seed,
            )
        )  # fmt: skip

    def _digests(
        self, keys: object, digests: bool, threads: int | None = 1
    ) -> tuple[_Digests, tuple[int, ...] | None]:
        source, shape = _bulk.key_source(keys, digests=digests)
        return _core.digest_from(source, self._seed, _bulk.checked_threads(threads)), shape

    def _one(self, key: Key) -> _Digests:
        return np.array([_core.digest(key, self._seed)], dtype=np.uint64)

    def level(self, key: Key, /) -> int:
        """Return the level that a key is in; 0 if it is in none."""
        return int(self._level_many(self._one(key))[0])

    def level_many(self, keys: object, *, digests: bool = False, threads: int | None = None) -> _Levels:
        """Answer `level(key)` for many keys: an array of uint8, in the shape of a NumPy array of keys.

        Parameters
        ----------
        keys
            A NumPy array, an Arrow column or stream, or any iterable, as for the filters.
        digests
            The keys are digests already, as `digest_many` makes them with this summary's seed (uint64).
        threads
            At most so many threads look up; None: as many as this process has cores.
        """
        source, shape = _bulk.key_source(keys, digests=digests)
        found = self._level_from(source, _bulk.checked_threads(threads))
        return found if shape is None else found.reshape(shape)

    def __contains__(self, key: Key, /) -> bool:
        return self.level(key) > 0

    def add(self, key: Key, level: SupportsIndex, /) -> None:
        """Record that a key is in a level, 1 to `plan.levels`."""
        self._add_many(self._one(key), np.array([self._level(level)], dtype=np.uint8))

    def add_many(
        self, keys: object, levels: object, *, digests: bool = False, threads: int | None = None
    ) -> None:
        """Record the level of many keys: one level for all, or as many as keys.

        Keys and levels are converted first: if one is refused, nothing has changed. Ctrl-C stops the call;
        the summary stays usable. At most `threads` threads hash the keys (None: as many as this process has
        cores); one thread adds them, in order.

        Examples
        --------
        >>> s = MultipleBloomSummary(1000, levels=3)
        >>> s.add_many(["a", "b", "c"], [1, 1, 2])
        >>> s.level_many(["a", "b", "c", "d"])
        array([1, 1, 2, 0], dtype=uint8)
        """
        words, _ = self._digests(keys, digests, threads)
        each = self._levels(levels, len(words))
        for start in range(0, len(words), _PIECE):
            self._add_many(words[start : start + _PIECE], each[start : start + _PIECE])

    def remove(self, key: Key, level: SupportsIndex | None = None, /) -> None:
        """Take a key out of a level, by default the one that it is answered.

        Remove only what was added: of filters of counters, a key that never was in but looks so takes from
        the counters of others.

        Raises
        ------
        KeyError
            It is not there; nothing has changed.
        TypeError
            The summary cannot forget.
        """
        self._need_removal()
        if not self._remove(int(self._one(key)[0]), 0 if level is None else self._level(level)):
            raise KeyError(key)

    def remove_many(
        self, keys: object, levels: object, *, digests: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.bool_]:
        """Take many keys out of their levels, in order; return for each whether it was there.

        `digests` and `threads` as in `add_many`.
        """
        self._need_removal()
        words, shape = self._digests(keys, digests, threads)
        removed = self._remove_many(words, self._levels(levels, len(words)))
        return removed if shape is None else removed.reshape(shape)

    def move(self, key: Key, origin: SupportsIndex, target: SupportsIndex, /) -> None:
        """Record that a key has moved from one level to another.

        Raises
        ------
        TypeError
            The summary cannot forget, and the key moves to a lower level: the old one would stay.
        """
        start, end = self._level(origin), self._level(target)
        if end < start:
            self._need_removal()
        self._move(int(self._one(key)[0]), start, end)

    def clear(self) -> None:
        """Take out everything."""
        self._clear()

    def _need_removal(self) -> None:
        if not self._can_remove:
            raise TypeError(
                f"a {type(self).__name__} of this kind cannot forget a key's level: use counting=True, or an "
                "InterpolationSummary"
            )

    def _level(self, level: SupportsIndex) -> int:
        return arguments.integer("level", level, 1, self._core[0], "Levels are counted from 1")

    def _levels(self, levels: object, count: int) -> _Levels:
        found = np.asarray(levels)
        if found.ndim == 0:
            found = np.full(count, found)
        if found.dtype.kind not in "iu" and found.size:
            raise TypeError(f"levels must be integers, not {found.dtype}")
        if found.size != count:
            raise ValueError(f"levels must be as many as the keys; got {found.size} levels for {count} keys")
        if found.size and (found.min() < 1 or found.max() > self._core[0]):
            raise ValueError(
                f"levels must be 1 to {self._core[0]}; got {int(found.min())} to {int(found.max())}. "
                "Levels are counted from 1"
            )
        return np.ascontiguousarray(found.ravel(), dtype=np.uint8)

    def stats(self) -> SummaryStats:
        """Measure this very summary, in one pass over it."""
        keys, fills, positives, saturated = self._measure()
        return SummaryStats(
            keys=keys, kind=self.plan.kind, levels=self._core[0], false_positives=positives,
            fills=tuple(fills), saturated=saturated, nbytes=self.nbytes,
        )  # fmt: skip


class InterpolationSummary(Summary):
    """Sorted digests with levels (kirsch, section 4.6): nearly exact; it can forget, and follow every move.

    An entry lies where linear interpolation expects it, or a little behind, in an array with gaps: a look-up
    takes one guess and a short walk, an insertion shifts twelve entries in the mean and 2048 at most.
    An entry that would need more is only counted; while there is one, an unknown key is answered 1.

    Examples
    --------
    >>> s = InterpolationSummary(10_000, levels=5, failure=1e-9)
    >>> s.add("apple", 2)
    >>> s.level("apple"), s.level("pear")
    (2, 0)
    >>> s.move("apple", 2, 1); s.level("apple")
    1
    >>> s.remove("apple"); s.level("apple")
    0
    """

    __slots__ = ()
    _kind = 9
    _kinds = ("interpolation", "interpolation")


class SingleFilterSummary(Summary):
    """Cells that hold the greatest level of their keys; the answer is the least of a key's cells (4.7.1).

    With `counting` there is a counter for each level in each cell.

    Examples
    --------
    >>> plan = plan_summary(10_000, kind="single-filter", levels=5, filters=[(120_000, 15)])
    >>> s = SingleFilterSummary.from_plan(plan)
    >>> s.add_many(["a", "b"], [1, 4])
    >>> s.level_many(["a", "b", "c"])
    array([1, 4, 0], dtype=uint8)
    >>> round(s.plan.false_positives, 3), s.nbytes - 64
    (0.006, 40000)
    """

    __slots__ = ()
    _kind = 10
    _kinds = ("single-filter", "counting-single-filter")


class MultipleBloomSummary(Summary):
    """Bloom filters B_0, B_1, …, of the keys above level 0, 1, …: the answer is the first without it (4.7.2).

    Since few keys are above the first level, and fewer above the second, each filter is smaller than the
    one before. The smallest summary for skewed tables.

    Examples
    --------
    >>> s = MultipleBloomSummary(10_000, levels=5, false_positives=0.006, failure=1e-9)
    >>> s.add_many(["a", "b"], [1, 4])
    >>> s.level_many(["a", "b", "c"])
    array([1, 4, 0], dtype=uint8)
    >>> s.remove("a")
    Traceback (most recent call last):
    TypeError: a MultipleBloomSummary of this kind cannot forget a key's level: use counting=True, or an \
InterpolationSummary
    """

    __slots__ = ()
    _kind = 11
    _kinds = ("multiple-bloom", "counting-multiple-bloom")

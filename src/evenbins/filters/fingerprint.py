"""A filter from which keys can be removed, in near-Bloom space and one cache line per operation.

    key ──▶ digest ──▶ fingerprint F, one of M ──▶ a line of 64 bytes, which holds F exactly
                                                   (full lines pass whole runs on to a smaller level)

Remove only keys that were added. A key that was never added but shares the fingerprint of one that was
(probability: the false-positive rate) removes that fingerprint, and the other key is missed from then on.
There is no other way to lose a key.

The filter is the exact multiset of the fingerprints of its keys, so it can count them, and its bytes are a
function of that multiset: the same keys leave the same bytes, whatever the order, the batches, the threads,
and whatever was added and removed in between. `==` compares the fingerprints.

    semantics="multiset"   every add stores a copy; remove, count and `+` (the sum)
    semantics="set"        a fingerprint is stored once, and stays; `|`, `-` and `^`, exact. Removal would
                           lose a key whenever two keys share a fingerprint

Fingerprints stay the same when the lines double and each remainder loses a bit: a filter with `max_capacity`
grows that way as it fills, without its keys (cpp/include/evenbins/fingerprint_growth.hpp).

Copies take room: a filter holds `capacity` of them. Many copies of the same keys fill their lines, and go to
the overflow list, which is short: with every key twice, plan for half as many again, or use a set.

theory/fingerprint.py predicts what the levels hold, and what a look-up reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sized
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk, _core
from evenbins._bulk import Key
from evenbins.filters.base import BaseFilter, planned_by
from evenbins.filters.fingerprint_levels import Rows, level_rows, measured_levels
from evenbins.filters.fingerprint_plan import (
    SEMANTICS,
    FingerprintCore,
    FingerprintPlan,
    FingerprintStats,
    plan_fingerprint,
)
from evenbins.filters.fuse import FuseFilter, FuseKeys
from evenbins.filters.set_algebra import require_same_plan
from evenbins.structure import refuse_damaged
from evenbins.theory import fingerprint as theory
from evenbins.theory import fingerprint_design as design
from evenbins.theory.fuse import MAX_REMAINDER

__all__ = ["FingerprintFilter", "fingerprint_stats", "full_error"]

_BLOCKS_AT_ONCE = 64  # whose fingerprints are in memory when a filter is frozen: half a million


class FingerprintFilter(BaseFilter):
    """The fingerprint filter: keys can be removed and counted, in one memory read and near-Bloom space.

    At a false-positive rate of 1e-3 it takes 14.0 bits per key, at 1e-4 18.3, at 1e-6 27.2 (a standard
    filter, from which nothing can be removed: 14.4, 19.2, 28.8). Look-ups read 1.05 lines of 64 bytes, those
    of absent keys 1.02. Small filters take at least 2.2 kB.

    Remove only keys that were added: `remove` of another one that looks present takes away a fingerprint
    that belongs to a key of the filter, and that key is missed from then on.

    Parameters
    ----------
    capacity
        Number of keys to plan for, copies counted. The filter holds 1 % more, then raises
        `FilterFullError`: it is never overfilled.
    fpr, bits_per_key, seed
        As for `BloomFilter`. Small filters are rounded up to whole blocks, which lowers their rate.
    semantics
        "multiset": every `add` stores a copy, keys can be removed and counted, `+` adds two filters. Keys
        that come many times fill the overflow list long before `capacity` is reached. "set": adding a key
        that is present changes nothing, keys stay, and `|`, `-` and `^` combine two filters.
    max_capacity
        The filter doubles as it fills, up to so many keys, and `fpr` or `bits_per_key` are those that it has
        then. It begins with `capacity` keys or up to twice as many. Nothing is lost or read twice on the way,
        and an `add` moves a few kilobytes at most.

    Examples
    --------
    >>> FingerprintFilter.from_keys(["apple", "pear", "apple"], 1e-3).capacity
    3
    >>> FingerprintFilter.from_keys(["apple", "pear", "apple"], 1e-3, semantics="set").capacity
    2
    >>> f = FingerprintFilter(10_000, fpr=1e-6)
    >>> f.add_many(["apple", "apple", "pear"])
    >>> f.count("apple"), "pear" in f, "plum" in f
    (2, True, False)
    >>> f.remove("apple")
    >>> f.discard("plum"), f.count("apple")
    (False, 1)
    """

    __slots__ = ()
    _kind = 18
    _plan_class = FingerprintPlan
    _planner = staticmethod(plan_fingerprint)

    @planned_by(plan_fingerprint)
    def __init__(self) -> None: ...

    @property
    def _numbers(self) -> FingerprintCore:
        return FingerprintCore(*self._core)

    @property
    def plan(self) -> FingerprintPlan:
        """The design, and what it predicts; of a filter that grows, at its present size."""
        plan: Any = getattr(self, "_cached_plan", None)
        core = self._numbers
        if plan is None or plan.core != core:
            plan = FingerprintPlan.of_core(self._policy, core, self._capacity, self._seed, "lanes")
            self._cached_plan = plan
        return plan  # type: ignore[no-any-return]

    @property
    def max_capacity(self) -> int:
        """The number of keys that the filter can grow to: `capacity` if it does not grow."""
        return self._most_keys

    def _shown(self) -> list[tuple[str, object]]:
        plan = self.plan
        names = ["fpr", "bits_per_key", "semantics", "nbytes"]
        if plan.core.doublings:
            names.insert(0, "max_capacity")
        return [("capacity", plan.keys), *((name, getattr(plan, name)) for name in names)]

    @property
    def semantics(self) -> str:
        """What adding a key again does: "multiset", it stores a copy; "set", nothing."""
        return SEMANTICS[self._numbers.set]

    @classmethod
    def _holds_copies(cls, options: dict[str, Any]) -> bool:
        return bool(options.get("semantics", "multiset") == "multiset")

    # --- keys in and out ---------------------------------------------------------------------------

    def add_many(self, keys: object, *, digests: bool = False, threads: int | None = None) -> None:
        """Add many keys: a NumPy array, an Arrow column or stream, or any iterable.

        As `BloomFilter.add_many`, but if an array or a column does not fit, nothing of it is added. Of an
        iterable, the keys before the one that did not fit are in.

        Raises
        ------
        FilterFullError
            The keys do not fit; its attribute `added` says how many of them are in.

        Examples
        --------
        >>> f = FingerprintFilter(100)
        >>> f.add_many(range(100))
        >>> f.add_many(np.arange(50))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        evenbins.FilterFullError: the filter holds 100 of at most 101 keys: 50 more do not fit, and none ...
        """
        if not hasattr(keys, "__array__") and not hasattr(keys, "__arrow_c_array__"):
            return super().add_many(keys, digests=digests, threads=threads)
        source, shape = _bulk.key_source(keys, digests=digests)
        rows = math.prod(shape) if shape is not None else len(keys) if isinstance(keys, Sized) else 0
        most = _bulk.checked_threads(1 if threads is None and 0 < rows < self._keys_for_threads else threads)
        failure = None
        if not source.is_one_stretch:  # Python objects, or chunks
            words, _, failure = _core.digest_next(source, self._seed, 0, 2**63, "added", most)
            source, rows = _bulk.key_source(words, digests=True)[0], words.size
        limit, copies = self._last_limit, self._state()[0]
        try:
            self._add_all_or_none(source, 2**64 - 1 if self._numbers.set else limit, most)
        except _core.FilterFullError:
            if not self._numbers.set and rows > limit - copies:
                why = f"the filter holds {copies} of at most {limit} keys: {rows} more do not fit, and none "
                why += "was added"
            else:
                why = (
                    f"the filter, which holds {copies} of at most {limit} keys, has no room for these, and "
                    f"none was added: they are too many, or the overflow list ({self._numbers.rest} "
                    "fingerprints) is full, as it is with many copies of the same keys"
                )
            raise full_error(f"{why}. Plan for more keys") from None
        if failure is not None:
            raise failure
        return None

    @property
    def _last_limit(self) -> int:
        """How many copies it holds at most, when it has grown as far as it can."""
        core = self._numbers
        return design.copies_limit(core.last_keys) if core.doublings else core.limit

    def _count_added(self, count: int) -> None:
        """Do nothing: the filter raises FilterFullError before it is overfilled."""

    def remove(self, key: Key, /) -> None:
        """Remove one copy of a key.

        Remove only keys that were added: one that never was, but looks present, takes away the fingerprint
        of another key, which is missed from then on.

        Raises
        ------
        KeyError
            The key is not in the filter; nothing has changed.
        TypeError
            The filter is a set.

        Examples
        --------
        >>> f = FingerprintFilter(100)
        >>> f.add("a")
        >>> f.remove("a")
        >>> f.remove("a")
        Traceback (most recent call last):
        KeyError: 'a'
        """
        if not self.discard(key):
            raise KeyError(key)

    def discard(self, key: Key, /) -> bool:
        """Remove one copy of a key if it is present, and return whether it was; see `remove`.

        Examples
        --------
        >>> f = FingerprintFilter(100)
        >>> f.add("a")
        >>> f.discard("a"), f.discard("a")
        (True, False)
        """
        self._require_multiset(
            "remove", "removing a key could remove another one that shares its fingerprint"
        )
        return self._remove(key)

    def remove_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.bool_]:
        """Remove many keys, in their order, and return for each whether it was there; see `remove`.

        Takes what `add_many` takes. A key that is not there changes nothing and answers False.

        Examples
        --------
        >>> f = FingerprintFilter(100)
        >>> f.add_many(["a", "b"])
        >>> f.remove_many(["a", "a", "b"])
        array([ True, False,  True])
        """
        self._require_multiset(
            "remove", "removing a key could remove another one that shares its fingerprint"
        )
        return self._remove_all(keys, digests, threads)

    def count(self, key: Key, /) -> int:
        """Return how many copies of the key's fingerprint are in.

        That is how often the key was added and not removed, plus the copies of other keys with the same
        fingerprint, which exist with the false-positive rate.
        """
        return self._count(key) if not self._numbers.set else int(key in self)

    def count_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.int64]:
        """Count the copies of many keys, as `count` does; takes what `add_many` takes.

        Examples
        --------
        >>> f = FingerprintFilter(100)
        >>> f.add_many(["a", "b", "a"])
        >>> f.count_many(["a", "c"])
        array([2, 0])
        """
        if self._numbers.set:
            return self.contains_many(keys, digests=digests, threads=threads).astype(np.int64)
        return self._count_all(keys, digests, threads)

    # --- two filters -------------------------------------------------------------------------------

    def __iadd__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        self._require_multiset("+", "it holds a fingerprint once. Use |")
        return self._joined(other, "add")

    def __add__(self, other: Self) -> Self:
        return self.copy().__iadd__(other)

    def __ior__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        if not self._numbers.set:
            raise TypeError(
                "a multiset has no |: a key that both filters hold could be one key or two. Use +, which "
                'adds the copies, or filters with semantics="set"'
            )
        return self._joined(other, "merge")

    def __isub__(self, other: Self) -> Self:
        """Remove the fingerprints that the other set has: exactly those of the keys in one and not the other.

        A key that shares its fingerprint with one of the other filter goes as well.
        """
        return self._less(other, "-", symmetric=False) if isinstance(other, type(self)) else NotImplemented

    def __sub__(self, other: Self) -> Self:
        return self.copy().__isub__(other)

    def __ixor__(self, other: Self) -> Self:
        """Keep the fingerprints that one of the two sets has."""
        return self._less(other, "^", symmetric=True) if isinstance(other, type(self)) else NotImplemented

    def __xor__(self, other: Self) -> Self:
        return self.copy().__ixor__(other)

    def _less(self, other: Self, symbol: str, *, symmetric: bool) -> Self:
        if not self._numbers.set:
            raise TypeError(
                f"a multiset has no {symbol}: copies of different keys could not be told apart. Use +, and "
                'remove_many for keys that are known, or filters with semantics="set"'
            )

        def subtract(target: Self, source: Self) -> bool:
            return _core.subtract_fingerprints(target, source, symmetric)

        return self._combined_with(other, "subtract", subtract)

    def _joined(self, other: Self, verb: str) -> Self:
        """Merge a filter of the same plan; FilterFullError, and nothing has changed, if it does not fit."""

        def merge(target: Self, source: Self) -> bool:
            try:
                target._merge(source)
            except ValueError:
                if target._read_only:
                    raise
                return False
            return True

        return self._combined_with(other, verb, merge)

    def _combined_with(self, other: Self, verb: str, combine: Callable[[Self, Self], bool]) -> Self:
        """Combine with a filter of the same plan, in as many lines as that takes; False: it does not fit.

        A filter that can grow does so in a copy first: an error leaves this one as it was.
        """
        for target in (self.copy(), self) if self._numbers.doublings else (self,):
            while not combine(target, target._sized_as(other, verb)):
                if not _core.grow_fingerprints(target):
                    raise target._does_not_fit()
        return self

    def _sized_as(self, other: Self, verb: str) -> Self:
        """Return the other filter in the larger of the two sizes, and let this one grow to it.

        ValueError if their plans differ in more than how far they have grown.
        """
        other._refuse_damaged()
        mine, theirs = self._numbers, other._numbers
        behind = mine.doublings - theirs.doublings
        for _ in range(behind):
            mine = mine.resized(design.doubled)[1]
        for _ in range(-behind):
            theirs = theirs.resized(design.doubled)[1]
        if mine != theirs or self._seed != other._seed:
            require_same_plan(self, other, verb)
        for _ in range(behind):
            _core.grow_fingerprints(self)
        for _ in range(-behind):
            other = other.doubled()
        return other

    def _require_room_for(self, other: Self) -> None:
        if self._numbers.doublings:
            trial = self.copy()
            trial._merge(trial._as_large(other))

    def _as_large(self, other: Self) -> Self:
        """Return a set to merge with this one, both in a size that certainly holds the keys of both."""
        other = self._sized_as(other, "merge")
        while self._state()[0] + other._state()[0] > self._numbers.limit and _core.grow_fingerprints(self):
            other = self._sized_as(other, "merge")
        return other

    def _does_not_fit(self) -> Exception:
        return full_error(
            "the fingerprints of both filters do not fit in one: it holds at most "
            f"{self._numbers.limit}, and at most {self._numbers.rest} of them on its overflow list. Plan "
            "both for more keys"
        )

    def _items_with(self, other: Self) -> tuple[float, float, float]:
        mine = self.copy()  # settled, and as large as the other one
        theirs = mine._sized_as(other, "compare")
        shape = mine._numbers.shape
        step, union = _BLOCKS_AT_ONCE, 0
        for first in range(0, blocks := shape.lines // (theory.MAX_GROUP * shape.group), step):
            end = min(first + step, blocks)
            found = (_core.different_fingerprints(each, first, end) for each in (mine, theirs))
            union += np.union1d(*found).size
        together = _items_of(union, shape.fingerprints)
        return mine.approx_items(), theirs.approx_items(), together

    def _refuse_damaged(self) -> None:
        refuse_damaged(self)  # other lines are built from its fingerprints

    def _require_multiset(self, what: str, why: str) -> None:
        if self._numbers.set:
            raise TypeError(f'a filter with semantics="set" has no {what}: {why}')

    # --- other sizes, other filters ------------------------------------------------------------------

    def doubled(self, *, threads: int | None = None) -> Self:
        """Return a filter with the same fingerprints in twice the lines, for twice the keys or more.

        Its rate with the keys that are in is the same, and so are its answers. Its bytes are those of a
        filter of its plan to which the keys were added.

        Raises
        ------
        FilterFullError
            The overflow list of the new filter is too short for as many copies of the same keys.
        ValueError
            Remainders have four bits, the fewest there can be: each doubling takes one.

        Examples
        --------
        >>> f = FingerprintFilter(1000, fpr=1e-3)
        >>> f.add_many(range(1000))
        >>> g = f.doubled()
        >>> g.capacity, g.stats().fpr == f.stats().fpr, g.halved() == f
        (2176, True, True)
        """
        return self._resized(design.doubled, threads)

    def halved(self, *, threads: int | None = None) -> Self:
        """Return a filter with the same fingerprints in half the lines; see `doubled`.

        Of a filter that has grown as far as it can, one that does not grow any more.

        Raises
        ------
        FilterFullError
            They do not fit.
        ValueError
            Remainders have 28 bits, the most there can be, or the filter has an odd number of blocks.
        """
        core = self._numbers
        if core.lines % (2 * theory.MAX_GROUP * core.group):
            raise ValueError(
                f"the filter has {core.lines} lines in blocks of {theory.MAX_GROUP * core.group}, an odd "
                "number of blocks, and cannot be halved. Build one for fewer keys"
            )
        return self._resized(design.halved, threads)

    def _resized(self, resize: Any, threads: int | None) -> Self:
        self._refuse_damaged()
        core = self._numbers
        keys, wanted = core.resized(resize)
        if not design.LEAST_REMAINDER <= wanted.remainder <= design.MOST_REMAINDER:
            raise ValueError(
                f"remainders have {core.remainder} bits, and {wanted.remainder} are not possible: they must "
                "have 4 to 28"
            )
        made = self.from_plan(FingerprintPlan.of_core("fingerprint", wanted, keys, self._seed, "lanes"))
        if not _core.refill_fingerprints(made, self, _bulk.checked_threads(threads)):
            raise full_error(
                f"the {self._state()[0]} fingerprints do not fit in a filter for {keys} keys, of which at "
                f"most {wanted.rest} may be on its overflow list. Keep this one"
            )
        made._stage_keys = self._stage_keys
        return made

    def freeze(self, fpr: float | None = None, *, threads: int | None = None) -> FuseFilter:
        """Build a `FuseFilter` of the fingerprints that are in: smaller, and it never changes.

        It answers as this filter does, with more false positives: its rate is the sum of this filter's,
        `stats().fpr`, and its own, at most `fpr` (None: the rate that this filter has when it is full).
        `plan.fpr` of the result is that sum. Copies count once. It takes 8 bytes per key meanwhile.

        Examples
        --------
        >>> f = FingerprintFilter(10_000, fpr=1e-4)
        >>> f.add_many(range(10_000))
        >>> frozen = f.freeze(fpr=1e-4)
        >>> 9_999 in frozen, frozen.plan.fpr < 2e-4, frozen.nbytes / f.nbytes < 0.9
        (True, True, True)
        """
        source = self.copy()
        core = source._numbers
        fingerprints = core.shape.fingerprints
        full = theory.fpr(self.max_capacity, fingerprints)
        rate = max(full, 2.0**-MAX_REMAINDER) if fpr is None else arguments.rate(fpr)
        found = FuseKeys(self._seed, _bulk.checked_threads(threads))
        blocks = core.lines // (theory.MAX_GROUP * core.group)
        for read in (found.count, found.take):
            for first in range(0, blocks, _BLOCKS_AT_ONCE):
                end = min(first + _BLOCKS_AT_ONCE, blocks)
                read(_core.different_fingerprints(source, first, end), digests=True)
        return found.build(FuseFilter, rate, fingerprints=fingerprints)

    # --- the filter as a whole ---------------------------------------------------------------------

    def stats(self) -> FingerprintStats:
        """Measure this very filter: its fingerprints are counted, in two passes over its lines."""
        self._settle()
        return fingerprint_stats(self.plan, level_rows(self), self._set_bits(), self._state()[1])

    def approx_items(self) -> float:
        """Estimate the number of distinct keys, from the number of different fingerprints."""
        return _items_of(self._set_bits(), self._numbers.shape.fingerprints)

    def _check(self) -> None:
        super()._check()
        copies, in_rest = self._state()
        assert in_rest <= self._numbers.rest
        assert copies <= self._numbers.limit


def _items_of(different: int, fingerprints: int) -> float:
    """Estimate how many keys leave so many different fingerprints."""
    return -fingerprints * math.log1p(-different / fingerprints) + 0.0  # no -0.0


def full_error(message: str) -> Exception:
    """Return the error of a call that added nothing."""
    error: Any = _core.FilterFullError(message)
    error.added = 0
    return error  # type: ignore[no-any-return]


def fingerprint_stats(plan: FingerprintPlan, rows: Rows, distinct: int, in_rest: int) -> FingerprintStats:
    """Return the stats of a filter with these lines, different fingerprints and overflow list."""
    copies, levels = measured_levels(rows, in_rest, plan.core.shape)
    return FingerprintStats(
        keys=copies,
        distinct=distinct,
        fpr=distinct / plan.core.shape.fingerprints,
        **plan.sizes(),
        **levels,
    )

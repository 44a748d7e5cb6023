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
    semantics="set"        a fingerprint is stored once, and stays; `|` (the union). Removal would lose a key
                           whenever two keys share a fingerprint

Copies take room: a filter holds `capacity` of them. Many copies of the same keys fill their lines, and go to
the overflow list, which is short: with every key twice, plan for half as many again, or use a set.

theory/fingerprint.py predicts what the levels hold, and what a look-up reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, SupportsFloat, SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk, _core
from evenbins._bulk import Key
from evenbins.filters.base import BaseFilter, planned_by
from evenbins.filters.from_keys import number_of
from evenbins.filters.plan import OF_CORE, FilterPlan, FilterStats
from evenbins.filters.set_algebra import require_same_plan
from evenbins.theory import fingerprint as theory
from evenbins.theory import fingerprint_design as design

__all__ = [
    "FingerprintCore", "FingerprintFilter", "FingerprintPlan", "FingerprintStats", "plan_fingerprint",
]  # fmt: skip

SEMANTICS = ("multiset", "set")


class FingerprintCore(NamedTuple):
    """The integers of a fingerprint filter.

    Attributes
    ----------
    lines : lines of level 1
    remainder : bits of a remainder
    quotients : quotients of a line of level 1
    group : lines of level 1 for each line of level 2
    rest : fingerprints that the overflow list holds
    limit : copies that the filter holds
    set : 1 if each fingerprint is stored once, 0 for a multiset
    doublings : how often the filter may still double
    """

    lines: int
    remainder: int
    quotients: int
    group: int
    rest: int
    limit: int
    set: int
    doublings: int

    @property
    def shape(self) -> design.Shape:
        """The integers that the law needs."""
        return design.Shape(*self[:5])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FingerprintPlan(FilterPlan):
    """The plan of a fingerprint filter.

    Attributes
    ----------
    semantics : "multiset" or "set"
    remainder_bits, quotients, slots : of a line of level 1
    lines, group : lines of level 1, and how many of them share one of level 2
    shares : of the keys that are in level 1, level 2, level 3 and the overflow list
    overflow, overflow_limit : share of the keys on the overflow list, and how many it holds at most
    fill : share of the slots of level 1 in use
    """

    _core_names = FingerprintCore._fields
    _in_one_line = ("policy", "keys", "bits_per_key", "semantics", "fpr", "reads", "miss_reads", "nbytes")

    semantics: str = field(compare=False)
    remainder_bits: int = field(compare=False)
    quotients: int = field(compare=False)
    slots: int = field(compare=False)
    lines: int = field(compare=False)
    group: int = field(compare=False)
    shares: tuple[float, ...] = field(compare=False)
    overflow: float = field(compare=False)
    overflow_limit: int = field(compare=False)
    core: FingerprintCore

    @classmethod
    def of_core(cls, policy: str, core: Sequence[int], keys: int, seed: int, hashing: str) -> FingerprintPlan:
        """Check the integers of a core and predict a filter with them.

        With more keys than the filter holds, only the rate is for all of them.
        """
        checked = _checked_core(core)
        shape = checked.shape
        stored = min(keys, checked.limit)
        if checked.set:
            stored = max(round(shape.fingerprints * theory.fpr(stored, shape.fingerprints)), 1)
        law = theory.law(stored, *shape[:4])
        slots = theory.slots(checked.remainder, checked.quotients)
        return cls(
            keys=keys,
            policy="fingerprint",
            bits_per_key=8 * shape.nbytes / keys,
            semantics=SEMANTICS[checked.set],
            remainder_bits=checked.remainder,
            quotients=checked.quotients,
            slots=slots,
            lines=checked.lines,
            group=checked.group,
            shares=law.shares,
            overflow=law.shares[-1],
            overflow_limit=checked.rest,
            fpr=theory.fpr(keys, shape.fingerprints),
            reads=law.reads,
            miss_reads=law.miss_reads,
            fill=law.shares[0] * stored / (checked.lines * slots),
            nbytes=shape.nbytes,
            hashing="lanes",
            seed=seed,
            core=checked,
        )

    @property
    def load_unit(self) -> str:
        """What the load of a line counts."""
        return "keys"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FingerprintStats(FilterStats):
    """What a fingerprint filter measures on itself; `keys` and `fpr` are exact.

    Attributes
    ----------
    keys, distinct : fingerprints in the filter, copies counted; and different ones
    fpr : different fingerprints over all that there could be
    shares : of the copies that are in level 1, level 2, level 3 and the overflow list
    overflow : share of the copies on the overflow list
    fill : share of the slots of level 1 in use
    loads : for levels 1, 2 and 3, how many lines hold 0, 1, 2, … fingerprints
    """

    distinct: int
    shares: tuple[float, ...]
    overflow: float
    loads: tuple[tuple[int, ...], ...]


def plan_fingerprint(
    capacity: SupportsIndex | SupportsFloat, fpr: float | None = None, *, bits_per_key: float | None = None,
    semantics: str = "multiset", seed: int = 0,
) -> FingerprintPlan:  # fmt: skip
    """Plan a fingerprint filter: the fewest bits for `fpr`, or the lowest rate for `bits_per_key`.

    Parameters and errors are those of `FingerprintFilter`.

    Examples
    --------
    >>> plan = plan_fingerprint(10_000_000, fpr=1e-6)
    >>> f"{plan.bits_per_key:.1f} bits, {plan.reads:.2f} reads, {plan.miss_reads:.2f} of an absent key"
    '27.1 bits, 1.05 reads, 1.01 of an absent key'
    """
    keys = arguments.capacity(capacity)
    rate, per_key = arguments.goal(fpr, bits_per_key)
    remedy = 'Pass "multiset" to remove keys, "set" for keys that come again'
    meaning = arguments.one_of("semantics", semantics, SEMANTICS, remedy)
    seed = arguments.seed(seed)
    if per_key is None:
        shape = design.fewest_bits(keys, rate)
        if shape is None:
            most = 2.0 * keys / design.MAX_FINGERPRINTS
            raise arguments.error("fpr", f"at least {most:.1g} for {keys} keys", fpr, "Pass a higher rate")
    else:
        shape = design.lowest_rate(keys, per_key * keys) or _smallest(keys, per_key)
    arguments.check_total(8 * shape.nbytes, "fpr" if per_key is None else "bits_per_key", per_key or rate)
    core = (*shape, design.copies_limit(keys), SEMANTICS.index(meaning), 0)
    return FingerprintPlan.of_core("fingerprint", core, keys, seed, "lanes")


def _smallest(keys: int, bits_per_key: float) -> design.Shape:
    """Return the smallest shape, for bits that are fewer by less than a block; else raise ArgumentError."""
    shape = design.fewest_bits(keys, 0.5)
    assert shape is not None
    block = 8 * design.LINE_BYTES * (theory.MAX_GROUP * (shape.group + 1) + 1)
    if 8 * shape.nbytes - bits_per_key * keys > block + 64 * shape.rest:
        least = f"at least {8 * shape.nbytes / keys:.3g} for {keys} keys"
        raise arguments.error("bits_per_key", least, bits_per_key, "Pass more bits, or use BloomFilter")
    return shape


def _checked_core(core: Sequence[int]) -> FingerprintCore:
    lines, remainder, quotients, group, rest, limit, is_set, doublings = core
    most = arguments.MAX_CAPACITY
    remainder = arguments.integer("core[1] (remainder)", remainder, 4, 28, OF_CORE)
    quotients = arguments.integer("core[2] (quotients)", quotients, 32, 64, OF_CORE)
    group = arguments.integer("core[3] (group)", group, 1, theory.MAX_GROUP, OF_CORE)
    lines = arguments.integer("core[0] (lines)", lines, 1, most, OF_CORE)
    if lines % (theory.MAX_GROUP * group):
        raise arguments.error("core[0] (lines)", "a multiple of 16 * group", lines, OF_CORE)
    if lines * quotients << remainder > design.MAX_FINGERPRINTS:
        raise arguments.error("core[0] (lines)", "few enough for 2**63 fingerprints", lines, OF_CORE)
    return FingerprintCore(
        lines, remainder, quotients, group,
        arguments.integer("core[4] (rest)", rest, 0, most, OF_CORE),
        arguments.integer("core[5] (limit)", limit, 1, most, OF_CORE),
        arguments.integer("core[6] (set)", is_set, 0, 1, OF_CORE),
        arguments.integer("core[7] (doublings)", doublings, 0, remainder - 4, OF_CORE),
    )  # fmt: skip


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
        that is present changes nothing, keys stay, and `|` unites two filters.

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

    def _shown(self) -> list[tuple[str, object]]:
        plan = self.plan
        names = ("fpr", "bits_per_key", "semantics", "nbytes")
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
        whole = hasattr(keys, "__array__") or hasattr(keys, "__arrow_c_array__")
        limit, copies = self._numbers.limit, self._state()[0]
        if whole and not self._numbers.set and (rows := number_of(keys)) > limit - copies:
            raise _full(
                f"the filter holds {copies} of at most {limit} keys: {rows} more do not fit, and none was "
                "added. Plan for more keys"
            )
        try:
            if whole and self._numbers.set:
                super().add_new_many(keys, digests=digests, threads=threads)
            else:
                super().add_many(keys, digests=digests, threads=threads)
        except _core.FilterFullError as error:
            if not whole:
                raise
            self._take_out(keys, error, digests, threads)
            raise _full(
                f"the filter, which holds {copies} of at most {limit} keys, has no room for these, and none "
                f"was added: they are too many, or the overflow list ({self._numbers.rest} fingerprints) is "
                "full, as it is with many copies of the same keys. Plan for more keys"
            ) from None

    def _take_out(self, keys: object, error: Any, digests: bool, threads: int | None) -> None:
        """Take out again what a call has added: its first keys, of a set those that were new."""
        source, _ = _bulk.key_source(keys, digests=digests)
        words = _core.digest_from(source, self._seed, _bulk.checked_threads(threads))[: error.added]
        added = words[error.answers] if self._numbers.set else words
        self._remove_from(_bulk.key_source(added, digests=True)[0], _bulk.checked_threads(threads))

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
        require_same_plan(self, other, "add")
        return self._joined(other)

    def __add__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        total = self.copy()
        total += other
        return total

    def __ior__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        if not self._numbers.set:
            raise TypeError(
                "a multiset has no |: a key that both filters hold could be one key or two. Use +, which "
                'adds the copies, or filters with semantics="set"'
            )
        require_same_plan(self, other, "merge")
        return self._joined(other)

    def _joined(self, other: Self) -> Self:
        """Merge a filter of the same plan; FilterFullError, and nothing has changed, if it does not fit."""
        try:
            self._merge(other)
        except ValueError:
            if self._read_only:
                raise
            raise _full(
                "the fingerprints of both filters do not fit in one: it holds at most "
                f"{self._numbers.limit}, and {self._numbers.rest} of them on its overflow list. Plan both "
                "for more keys"
            ) from None
        return self

    def _items_with(self, other: Self) -> tuple[float, float, float]:
        require_same_plan(self, other, "compare")
        both = self.copy()._joined(other)
        return self.approx_items(), other.approx_items(), both.approx_items()

    def _require_multiset(self, what: str, why: str) -> None:
        if self._numbers.set:
            raise TypeError(f'a filter with semantics="set" has no {what}: {why}')

    # --- the filter as a whole ---------------------------------------------------------------------

    def stats(self) -> FingerprintStats:
        """Measure this very filter: its fingerprints are counted, in two passes over its lines.

        The share of absent keys that read a third line is derived from the keys on level 3: as many runs per
        key as all that left level 1.
        """
        core = self._numbers
        _, in_rest = self._state()
        distinct = self._set_bits()
        rows = [np.array(self._level_histogram(level), dtype=np.int64).reshape(-1, 3) for level in range(3)]
        held = [int(row[:, 0] @ row[:, 2]) for row in rows]
        copies = sum(held) + in_rest  # counted as well, but others may add between the two counts
        below, last = copies - held[0], copies - held[0] - held[1]
        runs = int(rows[0][:, 1] @ rows[0][:, 2])  # of level 1 that are elsewhere
        keys = max(copies, 1)
        missed = runs * (1.0 + last / max(below, 1)) / (core.lines * core.quotients)
        return FingerprintStats(
            keys=copies,
            distinct=distinct,
            fpr=distinct / core.shape.fingerprints,
            reads=1.0 + (below + last + in_rest) / keys,
            miss_reads=1.0 + missed,
            fill=held[0] / (core.lines * theory.slots(core.remainder, core.quotients)),
            shares=(*(each / keys for each in held), in_rest / keys) if copies else (1.0, 0.0, 0.0, 0.0),
            overflow=in_rest / keys,
            loads=tuple(tuple(np.bincount(row[:, 0], row[:, 2]).astype(int).tolist()) for row in rows),
            nbytes=self.nbytes,
            bits_per_key=8 * self.nbytes / self._capacity,
        )

    def approx_items(self) -> float:
        """Estimate the number of distinct keys, from the number of different fingerprints."""
        fingerprints = self._numbers.shape.fingerprints
        return -fingerprints * math.log1p(-self._set_bits() / fingerprints)

    def _check(self) -> None:
        super()._check()
        copies, in_rest = self._state()
        assert in_rest <= self._numbers.rest
        assert copies <= self._numbers.limit


def _full(message: str) -> Exception:
    error: Any = _core.FilterFullError(message)
    error.added = 0
    return error  # type: ignore[no-any-return]

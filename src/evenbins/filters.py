"""Membership filters: "is this key in the set?", with no false negative and a known rate of false positives.

    BloomFilter           k bits anywhere: the fewest bits per key, up to k memory reads
    BlockedBloomFilter    k bits within one cache line: one memory read, somewhat more bits
    BalancedBloomFilter   the same, with full blocks passing keys on: one or two reads, few bits more

All filters share one set of methods (`protocols.Filter`). Single keys go through the compiled
core's type slots; bulk calls release the GIL. Bulk calls, threads and single calls leave the same bytes.

Threads: look-ups may run at any time, from any number of threads. Writers, and calls that read the
whole filter (save, copy, ==, …), take turns by themselves. docs/concurrency.md has all rules.
"""

from __future__ import annotations

import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Sequence, Sized
from dataclasses import fields
from importlib import import_module
from types import MethodDescriptorType
from typing import Any, ClassVar, Self, SupportsFloat, SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins import _bulk, _core, _files, _show
from evenbins._core import FormatError
from evenbins._files import StrPath
from evenbins.protocols import Filter, FilterStats, OverfilledWarning, side_by_side
from evenbins.theory import FilterPlan, fpr, plan_balanced, plan_blocked, plan_of_core, plan_standard
from evenbins.theory.measured import measure
from evenbins.theory.plan import OVERFILLED, floor_of_scheme

__all__ = [
    "BalancedBloomFilter", "BlockedBloomFilter", "BloomFilter",
    "build", "load", "open",
]  # fmt: skip

_HASHING = {
    "independent": 1, "lanes": 2, "partition": 3, "double": 4, "enhanced-double": 5,
    "enhanced-double-cube": 6, "enhanced-double-tetrahedral": 7, "triple": 8,
}  # fmt: skip
_KEYS_PER_CHECK = 100_000  # at least so many between two checks whether a filter is overfilled
_HASHING_NAMES = {number: name for name, number in _HASHING.items()}
# Kinds of filters whose modules register them when they are imported.
_ELSEWHERE = {4: "evenbins.growing", 5: "evenbins.counting"}
# Kinds of files that hold no filter (sketches.py, tables.py, chained.py).
_NO_FILTERS = {
    6: ("a count-min sketch", "CountMinSketch"),
    7: ("a multilevel table", "MultilevelTable"),
    8: ("a chained table", "ChainedTable"),
    9: ("a summary", "summaries.InterpolationSummary"),
    10: ("a summary", "summaries.SingleFilterSummary"),
    11: ("a summary", "summaries.MultipleBloomSummary"),
    12: ("a summary", "summaries.CounterSummary"),
    14: ("a hash ring", "HashRing"),
}


class _BaseFilter(_core.Filter, _files.Kept):
    """The methods that all filters share; a subclass says its kind, its policy and how it measures itself."""

    # No instance dictionary: Python finds `add` faster on objects that have none.
    __slots__ = ("_cached_plan", "_keys_to_check")

    _kind: ClassVar[int]
    _policies: ClassVar[tuple[str, ...]]
    _cached_plan: FilterPlan | None
    _keys_to_check: (
        float  # keys that bulk calls may still add before the filter is measured; unset: 1.1 * capacity
    )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if isinstance(cls.add, MethodDescriptorType):
            _core.bind_add(cls)  # unless somebody overrides it in Python

    @property
    @abstractmethod
    def _policy(self) -> str:
        """The plan's policy, as the integer core tells it."""

    @classmethod
    def from_plan(cls, plan: FilterPlan) -> Self:
        """Build the filter of a plan, as the constructor does after planning.

        Examples
        --------
        >>> from evenbins.theory import plan_standard
        >>> BloomFilter.from_plan(plan_standard(1000, fpr=1e-3)).plan.hashes
        10
        """
        if not isinstance(plan, FilterPlan):
            raise TypeError(f"plan must be a FilterPlan, not {type(plan).__name__}")
        if plan.policy not in cls._policies:
            raise ValueError(
                f"plan must have one of the policies {', '.join(cls._policies)}; got {plan.policy!r}. "
                f"Use {_class_for(plan).__name__}.from_plan"
            )
        filter_ = cls.__new__(cls)
        filter_._build(plan)
        return filter_

    def _build(self, plan: FilterPlan) -> None:
        _core.Filter.__init__(self, self._kind, _HASHING[plan.hashing], plan.seed, plan.keys, list(plan.core))
        self._cached_plan = plan

    # --- keys in, answers out ----------------------------------------------------------------------

    def update(self, *keys: object) -> None:
        """Add the keys of each argument, as `set.update` does; see `add_many`.

        Examples
        --------
        >>> f = BloomFilter(100)
        >>> f.update(["a", b"b", 3], range(10))
        >>> "a" in f and "b" in f and 9 in f
        True
        """
        for each in keys:
            self.add_many(each)

    def add_many(self, keys: object, *, digests: bool = False, threads: int = 1) -> None:
        """Add many keys: a NumPy array, an Arrow column or stream, or any iterable.

        The GIL is released where the keys can be read without Python. If a key is refused, the keys
        before it are in and the error says where it was. Ctrl-C stops the call; the filter stays usable.

        Parameters
        ----------
        keys
            Integers, strings or bytes. NumPy `S` and `U` arrays hold no trailing NULs: pass keys that
            end in NUL as a list or an Arrow column.
        digests
            The keys are digests already, as `digest_many` makes them with this filter's seed (uint64).
        threads
            Threads that share the work; the result does not depend on it. An iterable is hashed by one.

        Warns
        -----
        OverfilledWarning
            Once per filter: it holds over 1.1 times the keys that it was planned for. Measured when bulk
            calls have added as many, repeats included, and seldom enough to cost little;
            `stats().overfilled` is exact at any time.
        """
        source, shape = _bulk.key_source(keys, digests=digests)
        self._add_from(source, _bulk.checked_threads(threads))
        count = math.prod(shape) if shape is not None else _length(keys)
        left = getattr(self, "_keys_to_check", OVERFILLED * self._capacity) - count
        self._keys_to_check = left
        if left < 0:
            self._warn_if_overfilled()

    def _warn_if_overfilled(self) -> None:
        """Measure the filter, and set the keys that may be added before it is measured again."""
        keys, found = self.approx_items(), self.stats()  # distinct keys, of counting filters too
        if keys <= OVERFILLED * self._capacity or found.fpr <= self.plan.fpr:
            self._keys_to_check = max(self._capacity, _KEYS_PER_CHECK)
            return
        self._keys_to_check = math.inf  # before the warning, which may be an error
        warnings.warn(
            f"{type(self).__name__} planned for {self._capacity} keys holds about {keys:.3g}: "
            f"its fpr is {found.fpr:.2g}, planned {self.plan.fpr:.2g}. "
            "Plan for more keys, or use GrowingFilter",
            OverfilledWarning,
            stacklevel=3,
        )

    def contains_many(
        self, keys: object, *, digests: bool = False, threads: int = 1
    ) -> npt.NDArray[np.bool_]:
        """Answer `key in self` for many keys: an array of bool, in the shape of a NumPy array of keys.

        Takes what `add_many` takes.

        Examples
        --------
        >>> f = BlockedBloomFilter(100, fpr=1e-6)
        >>> f.add_many(["one", "two"])
        >>> f.contains_many(["two", "three"])
        array([ True, False])
        """
        source, shape = _bulk.key_source(keys, digests=digests)
        answers = self._contains_from(source, _bulk.checked_threads(threads))
        return answers if shape is None else answers.reshape(shape)

    # --- the filter as a whole ---------------------------------------------------------------------

    @property
    def plan(self) -> FilterPlan:
        """The design, and the behaviour it predicts with `plan.keys` keys in the filter."""
        plan = getattr(self, "_cached_plan", None)
        if plan is None:
            plan = plan_of_core(
                self._policy,
                tuple(self._core),
                capacity=self._capacity,
                seed=self._seed,
                hashing=_HASHING_NAMES[self._hashing],
            )
            self._cached_plan = plan
        return plan

    @abstractmethod
    def stats(self) -> FilterStats:
        """Measure this very filter: computed from its bits, in one pass over them."""

    def approx_items(self) -> float:
        """Estimate the number of distinct keys added, from the set bits; infinite when all are set."""
        return self.stats().keys

    @property
    def seed(self) -> int:
        """The seed of the digests. Filters with different seeds cannot be merged."""
        return self._seed

    @property
    def capacity(self) -> int:
        """The number of keys the filter was planned for."""
        return self._capacity

    def clear(self) -> None:
        """Remove all keys."""
        self._clear()
        self._keys_to_check = OVERFILLED * self._capacity

    def copy(self) -> Self:
        """Make an independent copy; it can be changed even if this filter is open read-only."""
        twin = type(self).__new__(type(self))
        _core.Filter.__init__(twin, self)
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

    __array_ufunc__ = None  # `filter | array` is an error, not NumPy's affair

    # --- bytes and files ---------------------------------------------------------------------------

    @classmethod
    def _from_data(cls, data: Any, *, mapped: bool, verify: bool) -> Self:
        filter_ = cls.__new__(cls)
        _core.Filter.__init__(filter_, data, cls._kind, mapped, verify)
        return filter_

    # --- for people --------------------------------------------------------------------------------

    def _check(self) -> None:
        """Assert every invariant of the structure; for tests."""
        broken = self._invariant()
        assert not broken, broken
        assert memoryview(self).nbytes == self.nbytes == self.plan.nbytes
        assert self.plan.core == tuple(self._core)
        assert 0 <= self._set_bits() <= 8 * self.nbytes

    def __repr__(self) -> str:
        plan = self.plan
        rows: list[tuple[str, object]] = [
            ("capacity", plan.keys), ("fpr", plan.fpr), ("bits_per_key", plan.bits_per_key),
            ("hashes", plan.hashes), ("nbytes", plan.nbytes),
        ]  # fmt: skip
        if self._seed:
            rows.append(("seed", "set"))  # a seed may be a secret
        if self._read_only:
            rows.append(("open", "read-only"))
        return _show.line(type(self).__name__, rows)

    def _repr_html_(self) -> str:
        return _show.html_comparison(
            type(self).__name__, ("plan", "stats()"), side_by_side(self.plan, self.stats())
        )


class BloomFilter(_BaseFilter):
    """The standard Bloom filter: k bits anywhere in m (kirsch, section 2.1).

    The fewest bits per key of the two, about 1.44·log2(1/fpr); a look-up reads k bits far apart for a
    present key and about two for an absent one.

    Parameters
    ----------
    capacity
        Number of keys planned for (the papers' n). More may be added; the false-positive rate then grows.
    fpr
        False-positive rate at `capacity` keys; 0.01 if neither this nor `bits_per_key` is given.
    bits_per_key
        Memory instead of `fpr`.
    hashes
        Bits set for each key (k); the best number if not given.
    hashing
        "independent" (default); or, computing two or three hashes instead of k (kirsch, chapter 3),
        "partition", "double", "enhanced-double" (with f(i) = i²; "-cube" and "-tetrahedral" appended
        for i³ and (i³-i)/6), "triple". These have a floor below which the rate does not fall; the
        plan knows it, and warns.
    seed
        0 … 2**64-1. With a secret random seed nobody can choose keys that collide.

    Examples
    --------
    >>> f = BloomFilter(1_000, fpr=1e-3)
    >>> f.add("key")
    >>> "key" in f, "other" in f
    (True, False)
    >>> f.plan.hashes, f.nbytes
    (10, 1800)
    """

    __slots__ = ()
    _kind = 1
    _policies = ("standard",)

    @property
    def _policy(self) -> str:
        return "standard"

    def __init__(
        self,
        capacity: SupportsIndex | SupportsFloat,
        *,
        fpr: float | None = None,
        bits_per_key: float | None = None,
        hashes: int | None = None,
        hashing: str = "independent",
        seed: int = 0,
    ) -> None:
        self._build(
            plan_standard(
                capacity, fpr=fpr, bits_per_key=bits_per_key, hashes=hashes, hashing=hashing, seed=seed
            )
        )

    def stats(self) -> FilterStats:
        """Measure this very filter: computed from its bits, in one pass over them.

        `fpr` is the *rate* of this filter, not the probability over all filters of its plan (kirsch,
        section 3.6): fill**hashes, and what the hashing scheme adds for so many keys.
        """
        bits, hashes = self._core
        set_bits = self._set_bits()
        fill = set_bits / bits
        hashing = _HASHING_NAMES[self._hashing]
        parts = hashes if hashing == "partition" else 1
        keys = fpr.keys_from_standard_fill(bits // parts, hashes // parts, round(set_bits / parts))
        rate = fill**hashes
        if hashing != "independent" and math.isfinite(keys):
            rate = min(rate + floor_of_scheme(hashing, bits, hashes, round(keys)), 1.0)
        return FilterStats(
            keys=keys,
            fpr=rate,
            reads=float(hashes),
            miss_reads=fpr.standard_miss_reads(fill, hashes),
            overflow=0.0,
            fill=fill,
            loads=(),
            nbytes=self.nbytes,
            bits_per_key=8 * self.nbytes / self._capacity,
        )


class BlockedBloomFilter(_BaseFilter):
    """The blocked Bloom filter: every key's bits in one block of a cache line, so one memory read.

    Blocks differ in load, which costs bits: at a false-positive rate of 1e-3 8 % more than the
    standard filter, at 1e-6 35 % more.

    Parameters
    ----------
    capacity, fpr, bits_per_key, hashes, seed
        As for `BloomFilter`; at most 32 hashes.
    block_bits
        512 (a cache line) or 256 (half of one: smaller tables of partial lines, a higher rate).

    Examples
    --------
    >>> f = BlockedBloomFilter(1_000_000, fpr=1e-3)
    >>> import numpy as np
    >>> f.add_many(np.arange(1_000_000))
    >>> bool(f.contains_many(np.arange(1_000_000)).all())
    True
    """

    __slots__ = ()
    _kind = 2
    _policies = ("blocked",)

    @property
    def _policy(self) -> str:
        return "blocked"

    def __init__(
        self,
        capacity: SupportsIndex | SupportsFloat,
        *,
        fpr: float | None = None,
        bits_per_key: float | None = None,
        hashes: int | None = None,
        block_bits: int = 512,
        seed: int = 0,
    ) -> None:
        self._build(
            plan_blocked(
                capacity, fpr=fpr, bits_per_key=bits_per_key, hashes=hashes, block_bits=block_bits, seed=seed
            )
        )

    def stats(self) -> FilterStats:
        """Measure this very filter: computed from its bits, in one pass over them."""
        blocks, block_bits, hashes = self._core
        loads = np.array(self._set_bits_histogram(block_bits), dtype=np.float64)
        set_bits = np.arange(block_bits + 1)
        total = int(loads @ set_bits)
        return FilterStats(
            keys=fpr.keys_from_blocked_fill(blocks, block_bits, hashes, total),
            fpr=float(loads @ (set_bits / block_bits) ** hashes / blocks),
            reads=1.0,
            miss_reads=1.0,
            overflow=0.0,
            fill=total / (blocks * block_bits),
            loads=(tuple(int(n) for n in loads),),
            nbytes=self.nbytes,
            bits_per_key=8 * self.nbytes / self._capacity,
        )


class BalancedBloomFilter(_BaseFilter):
    """The balanced Bloom filter: blocks of a cache line, kept in balance (kanizo).

    A key has a few blocks it may go to; a full block sends it on. So no block is crowded, and the
    filter needs little more memory than the standard one, at one or two memory reads a look-up.
    Adding a key that already answers "present" changes nothing: repeats cost no capacity.

    Parameters
    ----------
    capacity, fpr, bits_per_key, hashes, block_bits, seed
        As for `BlockedBloomFilter`. Memory counts everything, the overflow list too.
    policy
        "fill": a block is full when its set bits reach a threshold; the next level takes the key.
        "two-choice": two blocks, the key goes where it harms the rate least; both are read.
        "multilevel", "sequential", "single": the paper's, by counted loads, with an overflow list.
        None: the best of them for this request, with at most two reads of an absent key.
    reads, choices, overflow, miss_reads
        Upper bounds: mean block reads of an insertion or a present key (a), blocks a key may use
        (d), fraction of keys on the overflow list (0: no list; keys then spill), mean block reads
        of an absent key.
    thresholds, coin, shares
        Instead of the best ones: a block of level j is full at `thresholds[j]` keys (set bits
        for "fill"), but at the threshold it accepts with probability `coin`; sizes of the levels.
    spill
        Where a key goes when its blocks are full and the list is, or there is none: "least", its
        block of fewest set bits; "random", any of them, as in the paper.

    Examples
    --------
    >>> f = BalancedBloomFilter(100_000, fpr=1e-6)
    >>> f.update(["a", b"b", 3])
    >>> "a" in f, "c" in f
    (True, False)
    >>> f.plan.miss_reads <= 2
    True
    """

    __slots__ = ()
    _kind = 3
    _policies = ("single", "sequential", "multilevel", "fill", "two-choice")

    def __init__(
        self,
        capacity: SupportsIndex | SupportsFloat,
        *,
        fpr: float | None = None,
        bits_per_key: float | None = None,
        policy: str | None = None,
        reads: float | None = None,
        choices: int | None = None,
        overflow: float | None = None,
        miss_reads: float | None = None,
        block_bits: int = 512,
        hashes: int | None = None,
        thresholds: Sequence[int] | None = None,
        coin: float | None = None,
        shares: Sequence[float] | None = None,
        spill: str = "least",
        seed: int = 0,
    ) -> None:
        self._build(
            plan_balanced(
                capacity, policy=policy, fpr=fpr, bits_per_key=bits_per_key, reads=reads, choices=choices,
                overflow=overflow, miss_reads=miss_reads, block_bits=block_bits, hashes=hashes,
                thresholds=thresholds, coin=coin, shares=shares, spill=spill, seed=seed,
            )
        )  # fmt: skip

    @property
    def _policy(self) -> str:
        return self._policies[self._core[0] - 1]

    def _histograms(self) -> list[npt.NDArray[np.int64]]:
        """Give, for each table, rows of load, set bits, and how many blocks have both."""
        return [
            np.array(self._level_histogram(table), dtype=np.int64).reshape(-1, 3)
            for table in range((len(self._core) - 8) // 2)
        ]

    def stats(self) -> FilterStats:
        """Measure this very filter: computed from its blocks, in one pass over them."""
        measured = measure(self._core, self._histograms(), self._state())
        found = {each.name: getattr(measured, each.name) for each in fields(measured)}
        return FilterStats(**found, nbytes=self.nbytes, bits_per_key=8 * self.nbytes / self._capacity)


def _attributes(filter_: _BaseFilter) -> dict[str, Any]:
    """Give the attributes that a subclass written in Python put on its object; ours has none."""
    found: dict[str, Any] = getattr(filter_, "__dict__", {})
    return found


_CLASSES: tuple[type[_BaseFilter], ...] = (BloomFilter, BlockedBloomFilter, BalancedBloomFilter)
_KINDS: dict[int, type[Filter]] = {cls._kind: cls for cls in _CLASSES}


def _register(kind: int, cls: type[Filter]) -> None:
    """Let `load` and `open` know a class that lives elsewhere."""
    _KINDS[kind] = cls


def _class_for(plan: FilterPlan) -> type[_BaseFilter]:
    known = (cls for cls in _KINDS.values() if issubclass(cls, _BaseFilter))
    return next(cls for cls in known if plan.policy in cls._policies)


def _length(keys: object) -> int:
    """Return len(keys), or 0 for keys that have none: some have the method, and it raises (tqdm's)."""
    try:
        return len(keys) if isinstance(keys, Sized) else 0
    except Exception:  # the keys are in: nothing that a length is asked for may fail the call
        return 0


def build(plan: FilterPlan) -> _BaseFilter:
    """Build the filter of a plan, whatever its policy."""
    return _class_for(plan).from_plan(plan)


def load(path: StrPath) -> Filter:
    """Read a filter of any kind from a file into memory, every byte checked; see `BloomFilter.load`."""
    return _class_of(path).load(path)


def open(path: StrPath, *, verify: bool = False) -> Filter:
    """Map a filter of any kind from a file, read-only; see `BloomFilter.open`."""
    return _class_of(path).open(path, verify=verify)


def _class_of(path: StrPath) -> type[Filter]:
    if os.path.isfile(
        os.path.join(os.fsdecode(path), "manifest.json")
    ):  # the only filter that is a directory
        from evenbins.sharded import ShardedFilter

        return ShardedFilter
    try:
        kind = _core.file_kind(_files.map_file(path))
        if kind in _NO_FILTERS:
            what, cls = _NO_FILTERS[kind]
            raise FormatError(f"the file holds {what}, no filter: use evenbins.{cls}.load")
        if kind in _ELSEWHERE and kind not in _KINDS:
            import_module(_ELSEWHERE[kind])
        return _KINDS[kind]
    except FormatError as error:
        raise FormatError(f"{os.fsdecode(path)}: {error}") from None

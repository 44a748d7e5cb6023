"""A filter for a set that never changes: the fewest bits per key of all, three memory reads.

    from_keys    all keys at once: each gives an equation for three slots, and all of them are solved
    in           the three slots of the key, added bit by bit, are its remainder
    add          TypeError: build another filter

A remainder of b bits makes a rate of 2**-b, exactly, in about 1.13 * b bits per key. Source: Graf and Lemire,
"Binary Fuse Filters: Fast and Smaller Than Xor Filters" (2022); cpp/include/evenbins/fuse.hpp says how it is
built, theory/fuse.py how large it is.

Building reads the keys twice and takes 8 bytes per key, and 13 bytes per slot for the blocks that threads
are solving (`theory.fuse.build_bytes`). Keys that cannot be read twice take 8 bytes per key more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn, Self, SupportsFloat, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk, _core
from evenbins.filters.base import BaseFilter
from evenbins.filters.from_keys import can_be_read_again
from evenbins.filters.plan import OF_CORE, FilterPlan, FilterStats
from evenbins.theory import fuse as theory

__all__ = ["FuseCore", "FuseFilter", "FuseKeys", "FusePlan", "FuseStats", "freeze_fingerprints", "plan_fuse"]

_READS = 3.0
_F = TypeVar("_F", bound="FuseFilter")


class FuseCore(NamedTuple):
    """The integers of a fuse filter; `fingerprints` is 0 if it holds digests as they are."""

    blocks: int
    segment_length: int
    segments: int
    bits: int
    keys: int
    fingerprints: int

    @property
    def shape(self) -> theory.Shape:
        """The slots."""
        return theory.Shape(self.blocks, self.segment_length, self.segments)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FusePlan(FilterPlan):
    """The plan of a fuse filter.

    Attributes
    ----------
    bits : bits of a remainder, and of a slot
    slots : slots of all blocks
    fill : fraction of slots that are not zero
    """

    _core_names = FuseCore._fields
    _in_one_line = ("policy", "keys", "bits_per_key", "bits", "fpr", "reads", "miss_reads", "nbytes")

    bits: int = field(compare=False)
    slots: int = field(compare=False)
    core: FuseCore

    @classmethod
    def of_core(cls, policy: str, core: Sequence[int], keys: int, seed: int, hashing: str) -> FusePlan:
        """Check the integers of a core and predict a filter with them."""
        blocks, length, segments, bits, held, fingerprints = core
        blocks = arguments.integer("core[0] (blocks)", blocks, 1, 2**32, OF_CORE)
        length = arguments.integer(
            "core[1] (segment_length)", length, 64 if blocks > 1 else 4, 2**18, OF_CORE
        )
        if length & (length - 1):
            raise arguments.error("core[1] (segment_length)", "a power of two", length, OF_CORE)
        segments = arguments.integer("core[2] (segments)", segments, 3, 2**32 // length, OF_CORE)
        least, most = theory.MIN_REMAINDER, theory.MAX_REMAINDER
        bits = arguments.integer("core[3] (bits)", bits, least, most, OF_CORE)
        shape = theory.Shape(blocks, length, segments)
        arguments.check_total(shape.slots * bits, "core[0] (blocks)", blocks)
        held = arguments.integer("core[4] (keys)", held, 0, shape.slots, OF_CORE)
        fingerprints = arguments.integer("core[5] (fingerprints)", fingerprints, 0, 2**64 - 1, OF_CORE)
        if max(held, 1) != keys:
            raise arguments.error("core[4] (keys)", f"the capacity, {keys}", held, OF_CORE)
        if 0 < fingerprints < held:
            raise arguments.error(
                "core[5] (fingerprints)", f"0, or at least {held} keys", fingerprints, OF_CORE
            )
        nbytes = theory.nbytes(shape, bits)
        return cls(
            keys=keys,
            policy="fuse",
            bits_per_key=8 * nbytes / keys,
            bits=bits,
            slots=shape.slots,
            fpr=theory.rate(bits, held, fingerprints),
            reads=_READS,
            miss_reads=_READS,
            fill=theory.fill(held, shape.slots, bits),
            nbytes=nbytes,
            hashing="independent",
            seed=seed,
            core=FuseCore(*shape, bits, held, fingerprints),
        )

    def with_keys(self, keys: int) -> FusePlan:
        """Predict the filter of so many keys: not the same one, since a fuse filter never changes."""
        return _plan_of_keys(keys, self.bits, self.seed, self.core.fingerprints)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FuseStats(FilterStats):
    """What a fuse filter measures on itself.

    Attributes
    ----------
    keys : number of different keys, exact
    fpr : 2**-plan.bits, whatever the slots hold: exact, and 0 without keys
    fill : fraction of slots that are not zero
    retried : blocks that were solved at a second attempt or later
    """

    retried: int


def plan_fuse(
    capacity: SupportsIndex | SupportsFloat, fpr: float | None = None, *, bits_per_key: float | None = None,
    seed: int = 0,
) -> FusePlan:  # fmt: skip
    """Plan the fuse filter of `capacity` different keys: the fewest bits for `fpr`, or within `bits_per_key`.

    Rates are powers of two: at most `fpr`, down to 2**-32. With `bits_per_key` the lowest rate that fits.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range, or no fuse filter reaches `fpr` or is as small
        as `bits_per_key`.

    Examples
    --------
    >>> plan_fuse(10_000_000, fpr=2**-8)
    FusePlan(policy='fuse', keys=10_000_000, bits_per_key=9.07, bits=8, fpr=3.91e-03, reads=3, \
miss_reads=3, nbytes=11.3 MB)
    >>> plan_fuse(10_000_000, bits_per_key=16).fpr == 2**-14
    True
    """
    keys, seed = arguments.capacity(capacity), arguments.seed(seed)
    return _plan_of_keys(keys, _remainder_bits(keys, fpr, bits_per_key), seed)


def _remainder_bits(keys: int, fpr: object, bits_per_key: object) -> int:
    goal, memory = arguments.goal(fpr, bits_per_key)
    if memory is None:
        bits = theory.remainder_bits(goal)
        if bits > theory.MAX_REMAINDER:
            rule = f"at least 2**-{theory.MAX_REMAINDER} (2.3e-10) for a fuse filter"
            raise arguments.error("fpr", rule, goal, "Use a MultilevelTable for an exact set")
        return bits
    shape = theory.shape(keys)
    widths = range(theory.MAX_REMAINDER, theory.MIN_REMAINDER - 1, -1)
    fitting = (bits for bits in widths if 8 * theory.nbytes(shape, bits) <= memory * keys)
    if not (bits := next(fitting, 0)):
        least = 8 * theory.nbytes(shape, theory.MIN_REMAINDER) / keys
        raise arguments.error(
            "bits_per_key", f"at least {least:.4g} for a fuse filter of {keys} keys", memory, "Pass more"
        )
    return bits


def _plan_of_keys(keys: int, bits: int, seed: int, fingerprints: int = 0) -> FusePlan:
    core = FuseCore(*theory.shape(keys), bits, keys, fingerprints)
    return FusePlan.of_core("fuse", core, max(keys, 1), seed, "independent")


class FuseFilter(BaseFilter):
    """A filter for a set that never changes: the fewest bits per key, three memory reads per look-up.

    It is built from all its keys by `from_keys`, and nothing is added to it: `add` and the like raise
    TypeError. The same keys give the same bytes, whatever their order, repeats, threads and batches.
    At a rate of 1e-3 it takes 11.3 bits per key, where a standard filter takes 14.4 and a blocked one 15.5.

    Examples
    --------
    >>> import numpy as np
    >>> f = FuseFilter.from_keys(np.arange(1_000_000), fpr=2**-8)
    >>> bool(f.contains_many(np.arange(1_000_000)).all()), 1_000_001 in f
    (True, False)
    >>> round(f.plan.bits_per_key, 2), f.stats().keys
    (9.04, 1000000.0)
    """

    __slots__ = ()
    _kind = 19
    _plan_class = FusePlan
    _planner = staticmethod(plan_fuse)

    def __init__(self, *_arguments: object, **_options: object) -> None:
        raise TypeError(_fixed("is built from its keys", "use FuseFilter.from_keys(keys, fpr)"))

    @classmethod
    def from_plan(cls, plan: FilterPlan) -> NoReturn:
        """Raise TypeError: a plan says nothing about the keys, so use `from_keys`."""
        raise TypeError(_fixed("is built from its keys", "use FuseFilter.from_keys(keys, fpr)"))

    @classmethod
    def from_keys(  # type: ignore[override]
        cls, keys: object, fpr: float | None = None, *, bits_per_key: float | None = None, seed: int = 0,
        digests: bool = False, threads: int | None = None,
    ) -> Self:  # fmt: skip
        """Build the filter of these keys; repeated ones count once.

        Parameters
        ----------
        keys, digests
            As for `add_many` of other filters. Arrays and columns are read twice, and must not change
            meanwhile; of any other iterable 8 bytes per key are kept, and it is read once.
        fpr
            False-positive rate, at most; the filter's is the next power of two, 2**-4 to 2**-32. 0.01 if
            neither this nor `bits_per_key` is given.
        bits_per_key
            Memory instead of `fpr`, per different key.
        seed
            As for `BloomFilter`.
        threads
            The most threads that share the work (None: as many as pay off); the result does not depend on
            it. Each solves a block of one to two million keys at a time.

        Raises
        ------
        TypeError, ValueError
            An argument is of the wrong type or outside its range, a key is no key, or the digests were chosen
            so that no filter holds them.

        Examples
        --------
        >>> f = FuseFilter.from_keys(["apple", "pear", "apple"], fpr=1e-3)
        >>> f.capacity, "pear" in f, "plum" in f
        (2, True, False)
        """
        arguments.goal(fpr, bits_per_key)  # before any key is read
        if bits_per_key is None:
            _remainder_bits(1, fpr, None)
        found = FuseKeys(seed, _bulk.checked_threads(threads))
        if digests:
            keys = _bulk.digest_array(keys)
        elif not can_be_read_again(keys):
            keys, digests = _core.digest_from(_bulk.key_source(keys)[0], found.seed, found.threads), True
        found.count(keys, digests=digests)
        found.take(keys, digests=digests)
        return found.build(cls, fpr, bits_per_key)

    @property
    def _numbers(self) -> FuseCore:
        return FuseCore(*self._core)

    def stats(self) -> FuseStats:
        """Measure this very filter: its slots are counted in one pass; the rate follows from their width."""
        core = self._numbers
        slots, retried = self._state()
        return FuseStats(
            keys=float(core.keys),
            fpr=theory.rate(core.bits, core.keys, core.fingerprints),
            reads=_READS,
            miss_reads=_READS,
            fill=self._set_bits() / slots,
            retried=retried,
            nbytes=self.nbytes,
            bits_per_key=8 * self.nbytes / self._capacity,
        )

    def approx_items(self) -> float:
        """Return the number of different keys, which is exact here."""
        return float(self._numbers.keys)

    def _is_empty(self) -> bool:
        return self._numbers.keys == 0

    def _shown(self) -> list[tuple[str, object]]:
        plan = self.plan
        shown = [(name, getattr(plan, name)) for name in ("fpr", "bits_per_key", "nbytes")]
        return [("keys", self._numbers.keys), *shown]  # those of a plan are one at least

    # --- what it refuses -----------------------------------------------------------------------------------

    def add(self, key: object, /) -> NoReturn:
        """Raise TypeError: the set never changes."""
        raise TypeError(_NO_ADD)

    def add_new(self, key: object, /) -> NoReturn:
        """Raise TypeError: the set never changes."""
        raise TypeError(_NO_ADD)

    def update(self, *keys: object) -> NoReturn:
        """Raise TypeError: the set never changes."""
        raise TypeError(_NO_ADD)

    def add_many(self, keys: object, *, digests: bool = False, threads: int | None = None) -> NoReturn:
        """Raise TypeError: the set never changes."""
        raise TypeError(_NO_ADD)

    def add_new_many(self, keys: object, *, digests: bool = False, threads: int | None = None) -> NoReturn:
        """Raise TypeError: the set never changes."""
        raise TypeError(_NO_ADD)

    def clear(self) -> NoReturn:
        """Raise TypeError: the set never changes."""
        raise TypeError(_fixed("never changes", "use FuseFilter.from_keys([]) for one without keys"))

    def __or__(self, other: object) -> NoReturn:
        raise TypeError(_NO_MERGE)

    def __ior__(self, other: object) -> NoReturn:
        raise TypeError(_NO_MERGE)

    def union(self, *others: Self) -> NoReturn:
        """Raise TypeError: a union needs the keys of both sets."""
        raise TypeError(_NO_MERGE)

    def approx_intersection(self, other: Self) -> NoReturn:
        """Raise TypeError: slots say nothing about the keys of another filter."""
        raise TypeError(
            _fixed("cannot estimate an overlap", "count the keys of one set that the other filter contains")
        )


def _fixed(what: str, remedy: str) -> str:
    return f"a FuseFilter {what}: {remedy}"


_NO_ADD = _fixed(
    "never changes",
    "build another from all keys by FuseFilter.from_keys, or use BlockedBloomFilter, to which keys are added",
)
_NO_MERGE = _fixed(
    "cannot be merged", "build another from the keys of both, or use BloomFilter or BlockedBloomFilter"
)


class FuseKeys:
    """The keys of a fuse filter to be built, read in pieces, twice: all by `count`, then all by `take`."""

    __slots__ = ("_keys", "seed", "threads")

    def __init__(self, seed: int, threads: int) -> None:
        self.seed, self.threads = arguments.seed(seed), threads
        self._keys = _core.FuseKeys(self.seed)

    def count(self, keys: object, *, digests: bool = False) -> None:
        """Read keys for the first time: how many there are."""
        self._keys.count(_bulk.key_source(keys, digests=digests)[0], self.threads)

    def take(self, keys: object, *, digests: bool = False) -> None:
        """Read the same keys again, and store their hashes."""
        self._keys.take(_bulk.key_source(keys, digests=digests)[0], self.threads)

    def build(
        self, cls: type[_F], fpr: float | None, bits_per_key: float | None = None, *, fingerprints: int = 0
    ) -> _F:
        """Build the filter of all keys that were taken."""
        held = self.finish()
        bits = _remainder_bits(max(held, 1), fpr, bits_per_key)
        return self.fill(cls, _plan_of_keys(held, bits, self.seed, fingerprints))

    def finish(self) -> int:
        """Remove repeated keys; return how many are left."""
        return self._keys.finish(self.threads)

    def fill(self, cls: type[_F], plan: FusePlan) -> _F:
        """Build the filter of a plan for as many keys as `finish` returned."""
        made = cls.__new__(cls)
        made._build(plan)
        self._keys.fill(made, self.threads)
        return made


def freeze_fingerprints(
    fingerprints: npt.NDArray[np.uint64], count: int, fpr: float, *, seed: int, threads: int | None = None
) -> FuseFilter:
    """Build a filter of fingerprints F = floor(digest * count / 2**64), from 0 to `count` - 1.

    A look-up asks for the fingerprint of its key, with this seed. `fpr` is what the fuse filter adds to the
    rate of the fingerprints, which is their number / `count`; `plan.fpr` is the sum, exactly.

    Examples
    --------
    >>> from evenbins import digest
    >>> f = freeze_fingerprints(np.array([digest("a") * 1000 >> 64], dtype=np.uint64), 1000, 2**-8, seed=0)
    >>> "a" in f, round(f.plan.fpr, 5)
    (True, 0.0049)
    """
    found = FuseKeys(seed, _bulk.checked_threads(threads))
    found.count(fingerprints, digests=True)
    found.take(fingerprints, digests=True)
    return found.build(FuseFilter, fpr, fingerprints=count)

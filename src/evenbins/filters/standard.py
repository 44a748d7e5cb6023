"""The standard Bloom filter: k bits anywhere; the fewest bits per key, up to k memory reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import NamedTuple, SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins.filters.base import HASHING, BaseFilter, planned_by
from evenbins.filters.plan import OF_CORE, FilterPlan, FilterStats, Request
from evenbins.theory import fpr as theory

__all__ = ["SCHEMES", "BloomFilter", "StandardCore", "StandardPlan", "plan_standard", "standard_stats"]

SCHEMES = tuple(name for name in HASHING if name != "lanes")
"""How positions may follow from the digest; all but "independent" are for study, with their mathematics."""


class StandardCore(NamedTuple):
    """The integers of a standard filter."""

    bits: int
    hashes: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StandardPlan(FilterPlan):
    """The plan of a standard filter.

    Attributes
    ----------
    hashes : bits set for each key (k)
    """

    _core_names = StandardCore._fields

    hashes: int = field(compare=False)
    core: StandardCore

    @classmethod
    def of_core(cls, policy: str, core: Sequence[int], keys: int, seed: int, hashing: str) -> StandardPlan:
        """Check the integers of a core and predict a filter with them."""
        bits, hashes = core
        bits = arguments.integer("core[0] (bits)", bits, 1, theory.MAX_BITS, OF_CORE)
        hashes = arguments.integer("core[1] (hashes)", hashes, 1, theory.MAX_HASHES_STANDARD, OF_CORE)
        arguments.one_of("hashing", hashing, SCHEMES, 'Leave it out for "independent"')
        parts = hashes if hashing == "partition" else 1
        if bits % parts:
            raise arguments.error("core[0] (bits)", "a multiple of hashes", bits, OF_CORE)
        nbytes = -(-bits // 64) * 8
        fill = theory.standard_fill(bits // parts, hashes // parts, keys)
        return cls(
            keys=keys,
            policy="standard",
            bits_per_key=nbytes * 8 / keys,
            hashes=hashes,
            fpr=_rate_and_floor(hashing, bits, hashes, keys)[0],
            reads=float(hashes),
            miss_reads=theory.standard_miss_reads(fill, hashes),
            fill=fill,
            nbytes=nbytes,
            hashing=hashing,
            seed=seed,
            core=StandardCore(bits, hashes),
        )


def plan_standard(
    capacity: SupportsIndex | SupportsFloat, fpr: float | None = None, *, bits_per_key: float | None = None,
    hashes: int | None = None, seed: int = 0,
) -> StandardPlan:  # fmt: skip
    """Plan a standard filter: the fewest bits for `fpr`, or the best use of `bits_per_key`.

    Parameters and errors are those of `BloomFilter`.

    Examples
    --------
    >>> plan = plan_standard(1000, bits_per_key=28.755)
    >>> plan.core
    StandardCore(bits=28755, hashes=20)
    >>> plan_standard(10_000_000, fpr=1e-3)
    StandardPlan(policy='standard', keys=10_000_000, bits_per_key=14.38, hashes=10, fpr=1.00e-03, \
reads=10, miss_reads=2.003, nbytes=18.0 MB)
    """
    asked = Request.of(capacity, fpr, bits_per_key, hashes, seed, most=theory.MAX_HASHES_STANDARD)
    bits = asked.size(1, theory.standard_bits)
    k = asked.hashes or theory.best_hashes_standard(bits, asked.keys)
    return StandardPlan.of_core("standard", (bits, k), asked.keys, asked.seed, "independent")


def _rate_and_floor(hashing: str, bits: int, hashes: int, keys: int) -> tuple[float, float]:
    """Predict the rate, and what the hashing scheme adds to that of independent hashes."""
    if hashing == "independent" or not keys:
        return theory.standard(bits, hashes, keys), 0.0
    law = import_module("evenbins.study.theory.hashing_law").law_of_scheme(hashing, bits, hashes, keys)
    return law.fpr, law.floor


class BloomFilter(BaseFilter):
    """The standard Bloom filter: k bits anywhere in m (kirsch, section 2.1).

    The fewest bits per key of the two, about 1.44·log2(1/fpr); a look-up reads k bits far apart for a
    present key and about two for an absent one.

    Parameters
    ----------
    capacity
        Number of keys planned for (the papers' n), 1 to 2**48. More may be added; the false-positive rate
        then grows.
    fpr
        False-positive rate at `capacity` keys; 0.01 if neither this nor `bits_per_key` is given.
    bits_per_key
        Memory instead of `fpr`, up to 4096.
    hashes
        Bits set for each key (k), 1 to 64; the best number if not given.
    seed
        0 to 2**64 - 1. With a secret random seed nobody can choose keys that collide.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range, or no filter reaches `fpr`.

    Schemes that compute two or three hashes instead of k (kirsch, chapter 3) have a floor below which the
    rate does not fall: `BloomFilter.from_plan(evenbins.study.hashing.plan_scheme("double", …))`.

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
    _plan_class = StandardPlan
    _planner = staticmethod(plan_standard)

    @planned_by(plan_standard)
    def __init__(self) -> None: ...

    def stats(self) -> FilterStats:
        """Measure this very filter: computed from its bits, in one pass over them.

        `fpr` is the *rate* of this filter, not the probability over all filters of its plan (kirsch,
        section 3.6): fill**hashes, and what the hashing scheme adds for so many keys.
        """
        return standard_stats(self.plan, self._set_bits())


def standard_stats(plan: FilterPlan, set_bits: int) -> FilterStats:
    """Return the stats of a filter with so many set bits."""
    bits, hashes = plan.core
    fill = set_bits / bits
    parts = hashes if plan.hashing == "partition" else 1
    keys = theory.keys_from_standard_fill(bits // parts, hashes // parts, round(set_bits / parts))
    rate = fill**hashes
    if plan.hashing != "independent" and math.isfinite(keys):
        rate = min(rate + _rate_and_floor(plan.hashing, bits, hashes, round(keys))[1], 1.0)
    return FilterStats(
        keys=keys,
        fpr=rate,
        reads=float(hashes),
        miss_reads=theory.standard_miss_reads(fill, hashes),
        fill=fill,
        **plan.sizes(),
    )

"""The standard Bloom filter: k bits anywhere; the fewest bits per key, up to k memory reads."""

from __future__ import annotations

import math
from typing import SupportsFloat, SupportsIndex

from evenbins.filters.base import HASHING_NAMES, BaseFilter
from evenbins.filters.protocols import FilterStats
from evenbins.theory import fpr, plan_standard
from evenbins.theory.plan import floor_of_scheme

__all__ = ["BloomFilter"]


class BloomFilter(BaseFilter):
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
    seed
        0 … 2**64-1. With a secret random seed nobody can choose keys that collide.

    Schemes that compute two or three hashes instead of k (kirsch, chapter 3) have a floor below which the
    rate does not fall: `BloomFilter.from_plan(theory.plan_standard(…, hashing="double"))`.

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
        fpr: float | None = None,
        *,
        bits_per_key: float | None = None,
        hashes: int | None = None,
        seed: int = 0,
    ) -> None:
        self._build(plan_standard(capacity, fpr=fpr, bits_per_key=bits_per_key, hashes=hashes, seed=seed))

    def stats(self) -> FilterStats:
        """Measure this very filter: computed from its bits, in one pass over them.

        `fpr` is the *rate* of this filter, not the probability over all filters of its plan (kirsch,
        section 3.6): fill**hashes, and what the hashing scheme adds for so many keys.
        """
        bits, hashes = self._core
        set_bits = self._set_bits()
        fill = set_bits / bits
        hashing = HASHING_NAMES[self._hashing]
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

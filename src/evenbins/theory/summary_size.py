"""From a need to sizes: sub-tables, and the filters or digests that tell their keys apart.

The sub-tables are the thesis' (section 4.8): each half of the one before, the first enlarged, so that few
keys pass it and the summary has few to tell apart, the last as large as the one before it. Of a summary

    interpolation    the least digest bits
    single-filter    for each number of hashes the fewest cells that meet both bounds; the best of these
    multiple-bloom   B_0 by the false positives. The others share the failures in proportion to E|S_i|, which
                     is where a filter's bits b = -E|S_i| ln(q) / ln(2)**2 cost the same for one less failure

Filters are sized by the partitioned formula, which is exact for partitioned filters and an upper bound in all
cases we computed for others: what is promised holds for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory import summary_rates as rates
from evenbins.theory.block import poisson
from evenbins.theory.multilevel_law import MAX_LEVELS, Law, checked_keys, distribution
from evenbins.theory.summary_rates import FilterSize

__all__ = [
    "Places", "checked_chance", "digest_bits", "multiple_filters", "single_filter", "skewed_sizes",
]  # fmt: skip

MAX_HASHES = 64
_NEGLIGIBLE = 1e-60  # keys
_MOST_ENTRIES = 3000  # of a law, while sizes are searched for
_LEAST_PART = 0.02  # of the failures for each filter
_FEW = 1000  # keys above a level whose number is taken to vary


def skewed_sizes(keys: int, levels: int, *, first: float = 4.0, factor: float = 0.5) -> tuple[int, ...]:
    """Size sub-tables as section 4.8: `first` n, n, `factor` n, ..., the last as large as the one before.

    Parameters
    ----------
    keys
        n.
    levels
        Sub-tables, 1 to 16.
    first
        Buckets per key of the first one.
    factor
        Ratio of a sub-table to the one before, between 0 and 1.

    Examples
    --------
    >>> skewed_sizes(10_000, 5)
    (40000, 10000, 5000, 2500, 2500)
    """
    number = checked_keys(keys)
    levels = arguments.integer("levels", levels, 1, MAX_LEVELS, "Pass 5")
    for name, value, most in (("first", first, 1000.0), ("factor", factor, 1.0)):
        arguments.real(name, value, "", "Pass 4 and 0.5, as the thesis", above=0.0, most=most)
    shares = [first] + [factor**i for i in range(levels - 1)]
    if levels >= 4:  # with fewer there is nothing behind it that its twin could relieve
        shares[-1] = shares[-2]
    return tuple(max(1, math.ceil(share * number * (1 - 1e-12))) for share in shares)


class Places:
    """Where the keys are: how many in each level, and how many above it, as a law or in the mean.

    In the mean, the number of keys above a level varies by Poisson's law where it is small.
    """

    def __init__(self, held: list[float], laws: Sequence[Law] | None = None) -> None:
        self.held = held
        self.above = [math.fsum(held[j:]) for j in range(len(held))]  # keys of levels above 0, 1, ...
        self.laws = None if laws is None else [_TrimmedLaw(law) for law in laws]

    @classmethod
    def in_table(cls, keys: int, sizes: Sequence[int], *, with_list: bool = False) -> Places:
        """Place keys in sub-tables of one slot a bucket, by the standard scheme; the list is a level more."""
        laws = distribution(keys, sizes)
        held = [float(law.held.sum()) for law in laws[1:]]
        if with_list:
            held.append(laws[-1].mean)
        return cls(held, laws[1 : len(held)])

    def failures(self, level: int, size: FilterSize) -> float:
        """Expect so many keys of a level, of 1 ..., that a filter of the keys above it covers."""
        if self.laws is not None:
            return self.laws[level - 1].failures(size)
        keys = self.above[level]
        if keys >= _FEW:
            return self.held[level - 1] * _positives(size, keys)
        chances = poisson(np.array([keys]), math.ceil(keys + 12 * math.sqrt(keys) + 29))[0]
        rate = chances @ _cover_chance(size, np.arange(len(chances), dtype=np.float64))
        return self.held[level - 1] * float(rate)


def digest_bits(keys: int, failure: float, positives: float, *, least: int = 1, most: int = 512) -> int:
    """Find the fewest bits of a digest that meet both bounds; `most` if none do."""
    bits = least
    while bits < most and (
        rates.interpolation_failure(keys, bits) > failure
        or rates.interpolation_false_positives(keys, bits) > positives
    ):
        bits += 1
    return bits


def single_filter(keys: int, places: Places, failure: float, positives: float) -> FilterSize:
    """Find the smallest single filter that meets both bounds."""

    def enough(size: FilterSize) -> bool:
        return _positives(size, keys) <= positives and (
            math.fsum(places.failures(j, size) for j in range(1, len(places.held))) <= failure
        )

    return _smallest_filter(12 * keys, round(-math.log2(positives)), enough)


def multiple_filters(keys: int, places: Places, failure: float, positives: float) -> list[FilterSize]:
    """Find the smallest filters B_0, B_1, ... that meet both bounds."""
    found = [
        _smallest_filter(
            10 * keys, round(-math.log2(positives)), lambda size: _positives(size, keys) <= positives
        )
    ]
    above = places.above[1:]
    parts = [max(each / max(sum(above), 1e-9), _LEAST_PART) for each in above]
    for level, part in enumerate(parts, 1):
        found.append(_one_of_multiple(places, level, failure * part / sum(parts)))
    return found


def _one_of_multiple(places: Places, level: int, allowed: float) -> FilterSize:
    best = math.log2(max(places.held[level - 1] / allowed, 2.0))  # hashes, each halving the rate
    guess = 1.5 * best * max(places.above[level], 1.0)
    return _smallest_filter(guess, round(best), lambda size: places.failures(level, size) <= allowed)


class _TrimmedLaw:
    """E[keys in T_i; |S_i| = l] without the entries that no failure of interest depends on."""

    def __init__(self, law: Law) -> None:
        kept = np.flatnonzero(law.held > _NEGLIGIBLE)
        kept = kept if len(kept) else np.arange(1)
        keys, held = law.keys[kept], law.held[kept]
        width = -(-len(kept) // _MOST_ENTRIES)
        if width > 1:  # the rate hardly changes within so few of so many keys
            starts = np.arange(0, len(kept), width)
            weighted = np.add.reduceat(keys * held, starts)
            held = np.add.reduceat(held, starts)
            keys = weighted / held
        self.keys, self.held = keys, held

    def failures(self, size: FilterSize) -> float:
        return float(self.held @ _cover_chance(size, self.keys))


def _positives(size: FilterSize, keys: float) -> float:
    return float(_cover_chance(size, np.array(float(keys))))


def _cover_chance(size: FilterSize, keys: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Compute (1 - (1 - k/m)**keys)**k; all ones from one cell a hash on."""
    if size.hashes >= size.cells:
        return np.where(keys > 0, 1.0, 0.0)
    return np.asarray((-np.expm1(keys * math.log1p(-size.hashes / size.cells))) ** size.hashes)


def _smallest_filter(cells: float, hashes: int, enough: Callable[[FilterSize], bool]) -> FilterSize:
    """Find the fewest cells, over all numbers of hashes, with which the filter is good enough.

    For one number of hashes more cells are always better; over the hashes the fewest cells fall, then rise.
    Begins at a guess of both.
    """
    known: dict[int, int] = {}

    def fewest(k: int) -> int:
        if k not in known:
            near = min(known.values(), default=max(math.ceil(cells), 2 * k))
            low, high = k, max(near, k + 1)
            while not enough(FilterSize(high, k)):
                low, high = high, min(2 * high, rates.MAX_CELLS + 1)
                if high > rates.MAX_CELLS:
                    break
            while high - low > 1:
                middle = (low + high) // 2
                if enough(FilterSize(middle, k)):
                    high = middle
                else:
                    low = middle
            known[k] = high
        return known[k]

    best = min(max(hashes, 1), MAX_HASHES)
    for step in (-1, 1):
        here = best
        while 1 <= here + step <= MAX_HASHES and abs(here - best) < 4:  # a dent of rounding is no valley
            here += step
            if fewest(here) < fewest(best):
                best = here
    if fewest(best) > rates.MAX_CELLS:
        raise ValueError("no filter of at most 2**48 cells is enough: allow more failures or false positives")
    return FilterSize(fewest(best), best)


def checked_chance(name: str, value: object) -> float:
    """Check a probability between 0 and 1."""
    return arguments.real(name, value, "", "Pass a chance such as 1e-9", above=0.0, below=1.0)

"""From a need to sizes: sub-tables and a summary that fail with a chance of at most so much.

    keys, failure, false positives ──▶ sub-tables (skewed, section 4.8) ──▶ filters ──▶ bytes

The sub-tables are the thesis': each half of the one before, the first enlarged, so that few keys pass it and
the summary has few to tell apart, the last as large as the one before it; as many as bring the chance of a
crisis below a tenth of `failure`. What is left of `failure` goes to the summary:

    interpolation    the least digest bits
    single-filter    for each number of hashes the fewest cells that meet both bounds; the best of these
    multiple-bloom   B_0 by the false positives. The others share the failures in proportion to E|S_i|, which
                     is where a filter's bits b = -E|S_i| ln(q) / ln(2)**2 cost the same for one less failure

Filters are sized by the partitioned formula, which is exact for partitioned filters and an upper bound in all
cases we computed for others: what is promised holds for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _show
from evenbins.theory import summary_rates as rates
from evenbins.theory.multilevel_law import MAX_LEVELS, Law, checked_keys, crisis_probability, distribution
from evenbins.theory.summary_rates import FilterSize

__all__ = ["KINDS", "SummarySize", "size_summary", "skewed_sizes"]

KINDS = ("interpolation", "single-filter", "multiple-bloom")
"""The summaries that can be sized; Song et al.'s counters have no formula for their failures."""

MAX_HASHES = 64
_CRISIS_PART = 0.1  # of the failure, at most
_NEGLIGIBLE = 1e-60  # keys
_MOST_ENTRIES = 3000  # of a law, while sizes are searched for
_LEAST_PART = 0.02  # of the failures for each filter


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarySize:
    """A multilevel table of one slot a bucket, and a summary for it.

    Attributes
    ----------
    kind : "interpolation", "single-filter" or "multiple-bloom"
    keys : keys it is made for (n)
    sizes : buckets of the sub-tables
    filters : cells and hashes of each filter; none for "interpolation"
    digest_bits : bits of a digest; 0 for filters
    crisis : chance that a key finds no place in the table
    failure : probability that the summary names a wrong sub-table for any of the keys, at most
    false_positives : probability that an absent key is not recognised as absent
    occupancy_bytes : of the bit table, one bit a bucket
    nbytes : of the summary, the bit table included
    """

    kind: str
    keys: int
    sizes: tuple[int, ...]
    filters: tuple[FilterSize, ...]
    digest_bits: int
    crisis: float
    failure: float
    false_positives: float
    occupancy_bytes: int
    nbytes: int

    @property
    def space(self) -> float:
        """Slots per key."""
        return sum(self.sizes) / max(self.keys, 1)

    @property
    def bits_per_key(self) -> float:
        """Bits of the summary per key, the bit table included."""
        return 8 * self.nbytes / max(self.keys, 1)

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON-serialisable values."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "sizes": list(self.sizes),
            "filters": [list(each) for each in self.filters],
        }

    def __str__(self) -> str:
        rows = [(name, value) for name, value in self.to_dict().items() if name != "kind"]
        return _show.table(f"SummarySize {self.kind}", rows)


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


def size_summary(
    keys: int,
    failure: float,
    false_positives: float,
    kind: str = "multiple-bloom",
    *,
    first: float = 4.0,
    factor: float = 0.5,
) -> SummarySize:
    """Size a table and its summary for a need.

    Parameters
    ----------
    keys
        n, 1 or more.
    failure
        The chance, at most, that a key finds no place in the table or is looked for in a wrong one.
    false_positives
        The chance, at most, that an absent key is not recognised as absent.
    kind
        One of `KINDS`.
    first, factor
        Of the sub-tables, as of `skewed_sizes`.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range, or no sub-tables of this shape are enough.

    Examples
    --------
    >>> small = size_summary(10_000, failure=5e-12, false_positives=0.006)
    >>> small.sizes, small.crisis + small.failure <= 5e-12
    ((40000, 10000, 5000, 2500, 1250, 1250), True)
    >>> small.nbytes, small.filters[0]
    (32270, FilterSize(cells=106580, hashes=7))
    """
    number = arguments.integer("keys", keys, 1, 2**40, "Pass the number of keys")
    worst = checked_chance("failure", failure)
    positives = checked_chance("false_positives", false_positives)
    arguments.one_of("kind", kind, KINDS, f'Pass "{KINDS[-1]}"')
    sizes, crisis = _sub_tables(number, worst, first, factor)
    budget = worst - crisis
    filters: tuple[FilterSize, ...] = ()
    digest_bits = 0
    if kind == "interpolation":
        digest_bits = _digest_bits(number, budget, positives)
        wrong = rates.interpolation_failure(number, digest_bits)
        positive = rates.interpolation_false_positives(number, digest_bits)
        nbytes = rates.interpolation_bytes(number, sizes, digest_bits)
    elif kind == "single-filter":
        filters = (_single(number, sizes, budget, positives),)
        wrong = sum(rates.single_filter_failures(number, sizes, *filters[0]))
        positive = rates.filter_rate(*filters[0], number)
        nbytes = rates.single_filter_bytes(sizes, filters[0].cells)
    else:
        filters = _multiple(number, sizes, budget, positives)
        wrong = sum(rates.multiple_bloom_failures(number, sizes, filters))
        positive = rates.filter_rate(*filters[0], number)
        nbytes = rates.multiple_bloom_bytes(sizes, filters)
    return SummarySize(
        kind=kind, keys=number, sizes=sizes, filters=filters, digest_bits=digest_bits, crisis=crisis,
        failure=wrong, false_positives=positive, occupancy_bytes=rates.occupancy_bytes(sizes), nbytes=nbytes,
    )  # fmt: skip


def _sub_tables(keys: int, failure: float, first: float, factor: float) -> tuple[tuple[int, ...], float]:
    """Find the fewest sub-tables that are enough."""
    best = 1.0
    for levels in range(2, MAX_LEVELS + 1):
        sizes = skewed_sizes(keys, levels, first=first, factor=factor)
        crisis = crisis_probability(keys, sizes)
        best = min(best, crisis)
        if crisis <= _CRISIS_PART * failure:
            return sizes, crisis
    raise arguments.unmet(
        "failure",
        f" must be one that sub-tables of first={first} and factor={factor} can reach, "
        f"{best / _CRISIS_PART:.2g} at least; got {failure}. Enlarge first or factor",
    )


def _digest_bits(keys: int, budget: float, positives: float) -> int:
    bits = 1
    while (
        rates.interpolation_failure(keys, bits) > budget
        or rates.interpolation_false_positives(keys, bits) > positives
    ):
        bits += 1
    return bits


def _single(keys: int, sizes: tuple[int, ...], budget: float, positives: float) -> FilterSize:
    laws = [TrimmedLaw(law) for law in distribution(keys, sizes)[1:-1]]

    def enough(size: FilterSize) -> bool:
        return _positives(size, keys) <= positives and sum(law.failures(size) for law in laws) <= budget

    return smallest_filter(12 * keys, round(-math.log2(positives)), enough)


def _multiple(keys: int, sizes: tuple[int, ...], budget: float, positives: float) -> tuple[FilterSize, ...]:
    laws = distribution(keys, sizes)[1:-1]
    means = [law.mean for law in laws]
    total = sum(means) or 1.0
    parts = [max(mean / total, _LEAST_PART) for mean in means]
    found = [
        smallest_filter(
            10 * keys, round(-math.log2(positives)), lambda size: _positives(size, keys) <= positives
        )
    ]
    for law, mean, part in zip(laws, means, parts, strict=True):
        found.append(_one_of_multiple(TrimmedLaw(law), mean, budget * part / sum(parts)))
    return tuple(found)


def _one_of_multiple(law: TrimmedLaw, mean: float, allowed: float) -> FilterSize:
    best = math.log2(max(law.total / allowed, 2.0))  # hashes that halve the rate each, if bits were many
    return smallest_filter(
        1.5 * best * max(mean, 1.0), round(best), lambda size: law.failures(size) <= allowed
    )


class TrimmedLaw:
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
        self.keys, self.held, self.total = keys, held, float(held.sum())

    def failures(self, size: FilterSize) -> float:
        return float(self.held @ cover_chance(size, self.keys))


def _positives(size: FilterSize, keys: int) -> float:
    return float(cover_chance(size, np.array(float(keys))))


def cover_chance(size: FilterSize, keys: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Compute (1 - (1 - k/m)**keys)**k; all ones from one cell a hash on."""
    if size.hashes >= size.cells:
        return np.where(keys > 0, 1.0, 0.0)
    return np.asarray((-np.expm1(keys * math.log1p(-size.hashes / size.cells))) ** size.hashes)


def smallest_filter(cells: float, hashes: int, enough: Callable[[FilterSize], bool]) -> FilterSize:
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

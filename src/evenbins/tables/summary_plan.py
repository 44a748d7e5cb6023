"""From what a user asks of a summary to the integers that it is built from (kirsch, chapter 4).

    capacity, keys of each level ──▶ digest bits, cells or filters, counter bits ──▶ core, bytes
    false positives, failure                                                           │
                             false positives and failure to expect  ◀──────────────────┘

Rates are those of `summary_rates` (section 4.11.3). If the sub-tables are known, of one slot and the standard
scheme, the keys of each level have their exact law. For other tables expected numbers are given. A level here
is also the table's overflow list, the last.

    interpolation             the least digest bits that meet both bounds; 0.8 keys a slot
    single-filter             the fewest cells that meet both, over all numbers of hashes
    multiple-bloom            `summary_size.multiple_filters`; an exact list of 64-bit digests where that is
                              smaller
    counting-...              the same cells, with counters so wide that one is ever full with a chance
                              of at most SATURATED

Invariants: a plan that is returned can be built; two plans are equal exactly when keys, seed, kind and core
are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins.structure import Plan
from evenbins.theory import counting, summary_size
from evenbins.theory import summary_rates as rates
from evenbins.theory.summary_rates import FilterSize
from evenbins.theory.summary_size import Places, checked_chance

__all__ = [
    "FAILURE", "FALSE_POSITIVES", "KINDS", "NUMBERS", "SATURATED", "SummaryPlan", "plan_of_summary_core",
    "plan_summary",
]  # fmt: skip

KINDS = (
    "interpolation", "single-filter", "multiple-bloom", "counting-single-filter", "counting-multiple-bloom",
)  # fmt: skip
"""The kinds that a table can keep."""
NUMBERS = {
    "interpolation": 9, "single-filter": 10, "counting-single-filter": 10, "multiple-bloom": 11,
    "counting-multiple-bloom": 11, "counters": 12,
}  # fmt: skip
"""The number of each kind in a file."""
FALSE_POSITIVES, FAILURE = 0.01, 1e-3
"""What is asked for where nothing else is."""
SATURATED = 1e-6
"""The chance that a counter is full, at most."""
LOAD = 0.8
"""Keys per slot of an interpolation summary."""
MAX_LEVELS, MAX_HASHES, MAX_WIDTH, MAX_CELLS = 9, 64, 16, 2**48
WIDE, COUNTING = 1, 2  # flags of multiple filters
_REACH = 1024  # slots of an interpolation summary behind the last home


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class SummaryPlan(Plan):
    """A summary's design, and what it predicts; a prediction that is not known is None.

    Equality and hash look at keys, kind, seed and core alone.

    Attributes
    ----------
    keys : number of keys planned for (n)
    kind : "interpolation", "single-filter", "multiple-bloom", "counting-single-filter",
        "counting-multiple-bloom" or "counters"
    levels : answers of a present key: the table's levels, and its overflow list where it has one; of
        "counters" the choices
    keys_per_level : keys expected in each level; None for a summary from a file
    digest_bits : of "interpolation", else 0
    filters : cells and hashes of each filter; hashes 0 is an exact list of so many keys
    counter_bits : bits of the counters, of each filter or level; empty if nothing is counted
    false_positives : chance that an absent key is answered a level
    failure : chance that any of the keys is answered a wrong level, at most
    nbytes, bits_per_key : bytes of the summary, everything counted; the same per key
    seed : seed of the digests
    core : the integers stored and compared by
    """

    _identity = ("keys", "kind", "seed", "core")
    _in_one_line = ("keys", "kind", "levels", "nbytes", "false_positives", "failure")

    keys: int
    kind: str
    levels: int
    keys_per_level: tuple[float, ...] | None
    digest_bits: int
    filters: tuple[FilterSize, ...]
    counter_bits: tuple[int, ...]
    false_positives: float
    failure: float | None
    nbytes: int
    bits_per_key: float
    seed: int
    core: tuple[int, ...]

    @property
    def wrong(self) -> float | None:
        """Fraction of the keys that are answered a wrong level, at most: `failure` of `keys`."""
        return None if self.failure is None else self.failure / self.keys


def plan_summary(
    capacity: SupportsIndex | SupportsFloat, *, kind: str = "multiple-bloom", levels: int | None = None,
    shares: Sequence[float] | None = None, sizes: Sequence[int] | None = None,
    false_positives: float | None = None, failure: float | None = None, digest_bits: int | None = None,
    filters: Sequence[tuple[int, int]] | None = None, counter_bits: int | Sequence[int] | None = None,
    wide: bool = False, lists: bool = True, seed: int = 0,
) -> SummaryPlan:  # fmt: skip
    """Plan a summary, by need or with explicit sizes.

    Parameters
    ----------
    capacity, levels, shares, false_positives, failure, seed
        As for `Summary`.
    kind
        One of `KINDS`.
    sizes
        Instead of `shares`, buckets of the sub-tables, of one slot and the standard scheme: the exact law
        follows. With one level more than sub-tables, the last is their overflow list.
    digest_bits
        Of "interpolation": bits of a digest (b), instead of the least that meet the need.
    filters
        Cells and hashes (m, k) instead: one pair of "single-filter", rounded up to whole groups; as many as
        levels of "multiple-bloom", where 0 hashes mean an exact list of so many keys.
    counter_bits
        Of the counting kinds: bits of the counters, one number or one for each level or filter, instead of
        the least that make a full one unlikely.
    wide
        Of multiple filters: one wide hash reduced modulo each filter's size, instead of hashes for each.
    lists
        Of multiple filters: exact lists of digests in place of filters, where they are smaller.

    Examples
    --------
    >>> plan = plan_summary(10_000, kind="single-filter", levels=5, filters=[(120_000, 15)])
    >>> plan.nbytes - 64, round(plan.false_positives, 3), f"{plan.failure:.1e}"
    (40000, 0.006, '7.6e-10')
    >>> plan_summary(10_000, kind="interpolation", levels=5, false_positives=1e-12, failure=1e-8).digest_bits
    54
    """
    keys = arguments.capacity(capacity)
    arguments.one_of("kind", kind, KINDS, 'Pass "multiple-bloom"')
    seed = arguments.seed(seed)
    places = _places(keys, levels, shares, sizes)
    count = len(places.held)
    positives = checked_chance(
        "false_positives", FALSE_POSITIVES if false_positives is None else false_positives
    )
    allowed = checked_chance("failure", FAILURE if failure is None else failure)
    family, counts = kind.removeprefix("counting-"), kind.startswith("counting-")
    _only("digest_bits", digest_bits, family == "interpolation", kind)
    _only("filters", filters, family != "interpolation", kind)
    _only("counter_bits", counter_bits, counts, kind)
    core: tuple[int, ...]
    if family == "interpolation":
        core = _interpolation_core(keys, count, positives, allowed, digest_bits)
    elif family == "single-filter":
        if filters is None:
            size = summary_size.single_filter(keys, places, allowed, positives)
        else:
            (size,) = _checked_filters(filters, 1)
        cells = -(-size.cells // size.hashes) * size.hashes
        core = (count, cells, size.hashes)
        if counts:
            core += _widths(counter_bits, count, [(cells, size.hashes, each) for each in places.held])
    else:
        if filters is None:
            parts = summary_size.multiple_filters(keys, places, allowed, positives)
            parts[1:] = [
                _listed(each, more, counts) if lists else each
                for each, more in zip(parts[1:], places.above[1:], strict=True)
            ]
        else:
            parts = _checked_filters(filters, count)
        widths: tuple[int, ...] = (1,) * count
        if counts:
            needs = [(size.cells, size.hashes, n) for size, n in zip(parts, places.above, strict=True)]
            widths = _widths(counter_bits, count, needs)
        core = (count, WIDE * bool(wide) + COUNTING * counts)
        for size, width in zip(parts, widths, strict=True):
            core += (size.cells, size.hashes, width if size.hashes else 1)
    return plan_of_summary_core(core, number=NUMBERS[kind], keys=keys, seed=seed, places=places)


def plan_of_summary_core(
    core: Sequence[int], *, number: int, keys: int, seed: int = 0, places: Places | None = None
) -> SummaryPlan:
    """Return the plan of an integer core that is known to be right; `number` is its kind in a file."""
    (levels, *rest), digest_bits = core, 0
    filters: tuple[FilterSize, ...] = ()
    widths: tuple[int, ...] = ()
    failing: list[float] | None = None
    if number == NUMBERS["interpolation"]:
        kind = "interpolation"
        digest_bits, entries, *_ = rest
        body = -(-(entries + _REACH) * (digest_bits + levels.bit_length()) // 64) * 8
        positives = rates.interpolation_false_positives(keys, digest_bits)
        failing = [rates.interpolation_failure(keys, digest_bits)]
    elif number == NUMBERS["single-filter"]:
        cells, hashes, *counters = rest
        filters, widths = (FilterSize(cells, hashes),), tuple(counters)
        kind = "counting-single-filter" if widths else "single-filter"
        body = -(-cells * sum(widths) // 64) * 8 if widths else _cell_bytes(cells, levels)
        positives = rates.filter_rate(cells, hashes, keys)
        if places is not None:
            failing = [places.failures(j, filters[0]) for j in range(1, levels)]
    elif number == NUMBERS["multiple-bloom"]:
        flags, *numbers = rest
        parts = list(zip(numbers[0::3], numbers[1::3], numbers[2::3], strict=True))
        filters = tuple(FilterSize(size, hashes) for size, hashes, _ in parts)
        kind = "multiple-bloom"
        if flags & COUNTING:
            kind, widths = "counting-multiple-bloom", tuple(width for *_, width in parts)
        body = sum(_part_bytes(*part) for part in parts)
        positives = rates.filter_rate(filters[0].cells, filters[0].hashes, keys, partitioned=False)
        if places is not None:
            failing = [places.failures(j, filters[j]) for j in range(1, levels) if filters[j].hashes]
    else:
        cells, width = rest
        kind, filters, widths = "counters", (FilterSize(cells, levels),), (width,)
        body = -(-cells * width // 64) * 8
        positives = rates.filter_rate(cells, levels, keys, partitioned=False)
    return SummaryPlan(
        keys=keys,
        kind=kind,
        levels=levels,
        keys_per_level=None if places is None else tuple(places.held),
        digest_bits=digest_bits,
        filters=filters,
        counter_bits=widths,
        false_positives=positives,
        failure=None if failing is None else min(math.fsum(failing), 1.0),
        nbytes=64 + body,
        bits_per_key=8 * (64 + body) / keys,
        seed=seed,
        core=tuple(core),
    )


# --- sizes ------------------------------------------------------------------------------------------------


def _interpolation_core(
    keys: int, levels: int, positives: float, allowed: float, given: object
) -> tuple[int, ...]:
    most = 64 - levels.bit_length()
    if given is not None:
        bits = arguments.integer("digest_bits", given, 8, most, "Leave it out for the least that is enough")
    else:
        bits = summary_size.digest_bits(keys, allowed, positives, least=max(8, keys.bit_length()), most=most)
        if rates.interpolation_false_positives(keys, bits) > positives:
            raise arguments.unmet(
                "false_positives",
                f"={positives:g} cannot be had for {keys} keys with {most} bits of a digest. Allow more",
            )
    return levels, bits, math.ceil(keys / LOAD)


def _listed(size: FilterSize, keys: float, counts: bool) -> FilterSize:
    """Return an exact list in place of a filter if it is smaller."""
    listed = FilterSize(math.ceil(keys + 8 * math.sqrt(keys)) + 16, 0)
    return listed if _part_bytes(*listed, 1) <= _part_bytes(*size, 4 if counts else 1) else size


def _widths(given: object, levels: int, parts: list[tuple[int, int, float]]) -> tuple[int, ...]:
    """Find the bits of the counters of each part: cells, hashes, keys."""
    if given is not None:
        each = list(given) if isinstance(given, Sequence) else [given] * levels
        if len(each) != levels:
            raise ValueError(f"counter_bits must be one number, or one for each of {levels}; got {len(each)}")
        remedy = "Leave it out for the least that is enough"
        return tuple(arguments.integer("counter_bits", bits, 1, MAX_WIDTH, remedy) for bits in each)

    def saturated(width: int, cells: int, hashes: int, keys: float) -> bool:
        trials, chance = math.ceil(keys + 6 * math.sqrt(keys) + 2), counting.hit_chance(cells, hashes)
        return cells * counting.binomial_tail(trials, chance, 2**width - 1) > SATURATED

    return tuple(
        next((width for width in range(2, 8) if not part[1] or not saturated(width, *part)), 8)
        for part in parts
    )


def _cell_bytes(cells: int, levels: int) -> int:
    if levels in (4, 5):
        return -(-cells // 24) * 8
    return -(-cells * max(levels.bit_length(), 2) // 64) * 8


def _part_bytes(cells: int, hashes: int, width: int) -> int:
    body = -(-cells * width // 64) * 8 if hashes else 64 + 8 * (cells + cells // 3 + 8)
    return -(-body // 64) * 64


# --- arguments ----------------------------------------------------------------------------------------------


def _only(name: str, value: object, fits: bool, kind: str) -> None:
    if value is not None and not fits:
        raise ValueError(f'{name} is not for kind "{kind}"; got {arguments.shown(value)}. Leave it out')


def _places(keys: int, levels: object, shares: Sequence[float] | None, sizes: Sequence[int] | None) -> Places:
    """Find where the keys will be."""
    if shares is not None and sizes is not None:
        raise ValueError("shares and sizes exclude each other; got both. Pass one")
    if shares is None:
        if sizes is None:
            count = 5 if levels is None else arguments.integer("levels", levels, 1, MAX_LEVELS, "Pass 5")
            sizes = summary_size.skewed_sizes(keys, count)
        count = len(sizes) if levels is None else arguments.integer("levels", levels, 1, MAX_LEVELS, "Pass 5")
        if count not in (len(sizes), len(sizes) + 1):
            raise arguments.unmet("levels", f" must be {len(sizes)}, or one more for the list; got {levels}")
        return Places.in_table(keys, sizes, with_list=count > len(sizes))
    if isinstance(shares, str) or not hasattr(shares, "__len__") or not len(shares):
        raise arguments.type_error("shares", "a sequence of numbers", shares, "Pass one for each level")
    if levels is not None and levels != len(shares):
        raise ValueError(f"shares must have one number for each of {levels} levels; got {len(shares)}")
    arguments.integer("levels", len(shares), 1, MAX_LEVELS, "Pass at most 9 shares")
    remedy = "Pass the fraction of the keys in each level"
    each = [arguments.real(f"shares[{i}]", x, "", remedy, least=0.0, most=1.01) for i, x in enumerate(shares)]
    if not 0.99 < math.fsum(each) < 1.01:
        raise arguments.error("shares", "fractions of the keys, 1 in all", list(shares), remedy)
    return Places([keys * x / math.fsum(each) for x in each])


def _checked_filters(filters: Sequence[tuple[int, int]], count: int) -> list[FilterSize]:
    if isinstance(filters, str) or not hasattr(filters, "__len__"):
        raise arguments.type_error("filters", "a sequence of pairs", filters, "Pass [(cells, hashes), ...]")
    if len(filters) != count:
        raise ValueError(f"filters must have {count} pairs of cells and hashes; got {len(filters)}")
    found = []
    for cells, hashes in filters:
        k = arguments.integer("hashes", hashes, 0, MAX_HASHES, "Pass the number of hash functions")
        m = arguments.integer("cells", cells, max(k, 1), MAX_CELLS, "Pass more cells")
        found.append(FilterSize(m, k))
    if not found[0].hashes:
        raise ValueError("filters[0] must have 1 to 64 hashes: all keys are in it; got 0. Pass 7")
    return found

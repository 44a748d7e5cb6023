"""Summaries by requirement: say how often they may err; get tables and summaries that do not more often.

    keys, failure, false_positives ──▶ interpolation, single-filter, multiple-bloom ──▶ the smallest first

Each design is a multilevel table of one slot a bucket, skewed as section 4.8 of the thesis says, with as
many sub-tables as bring the chance of a crisis below a tenth of `failure`; what is left of `failure` goes to
the summary that tells its levels apart (`size_summary`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins import _show
from evenbins._show import ReprMixin
from evenbins.design._designs import Designs, beats, some_of
from evenbins.tables.multilevel import MultilevelTable, plan_multilevel
from evenbins.theory import summary_rates as rates
from evenbins.theory import summary_size
from evenbins.theory.multilevel_law import MAX_LEVELS, crisis_probability
from evenbins.theory.summary_rates import FilterSize
from evenbins.theory.summary_size import Places, checked_chance

__all__ = ["KINDS", "SummaryDesign", "SummaryDesigns", "SummarySize", "size_summary", "summary"]

KINDS = ("interpolation", "single-filter", "multiple-bloom")
"""The summaries that can be sized; Song et al.'s counters have no formula for their failures."""
_CRISIS_PART = 0.1  # of the failure, at most
_RESPECTS = ("nbytes", "false_positives", "failure")  # in what designs are compared
_COLUMNS = (
    ("kind", "kind"), ("levels", "levels"), ("space", "space"), ("bytes_per_key", "bytes/key"),
    ("kibibytes", "KiB"), ("false_positives", "false positives"), ("failure", "failure"),
    ("crisis", "crisis"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SummarySize(ReprMixin):
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


@dataclass(frozen=True, slots=True)
class SummaryDesign:
    """One design: sizes of the table and of its summary, and whether none is smaller and errs less."""

    size: SummarySize
    asked: tuple[float, float]
    pareto: bool

    @property
    def kind(self) -> str:
        """The kind of summary."""
        return self.size.kind

    @property
    def bytes_per_key(self) -> float:
        """Bytes of the summary per key, the table's occupancy bits included."""
        return self.size.nbytes / self.size.keys

    def build(self) -> MultilevelTable:
        """Build the table with its summary.

        Examples
        --------
        >>> t = summary(1000, failure=1e-9, false_positives=0.01)[0].build()
        >>> t[5] = 7
        >>> t[5], t.probe(5)[1]
        (7, 1)
        """
        failure, false_positives = self.asked
        plan = plan_multilevel(
            self.size.keys, scheme="standard", slots=1,
            shares=[each / self.size.keys for each in self.size.sizes], summary=self.kind,
            failure=failure, false_positives=false_positives,
        )  # fmt: skip
        return MultilevelTable.from_plan(plan)

    def to_dict(self) -> dict[str, object]:
        """Return the sizes by name, with the mark, as plain values that JSON can hold."""
        return self.size.to_dict() | {"bytes_per_key": self.bytes_per_key, "pareto": self.pareto}

    def cell(self, name: str) -> str:
        """Return a quantity as text."""
        if name == "levels":
            return str(len(self.size.sizes))
        if name == "kibibytes":
            return f"{self.size.nbytes / 1024:.4g}"
        if name in ("bytes_per_key", "space"):
            return f"{getattr(self, name, self.size.space):.3f}"
        value = getattr(self.size, name)
        return f"{value:.2e}" if isinstance(value, float) else _show.text(name, value)


class SummaryDesigns(Designs[SummaryDesign]):
    """All designs that meet a request, the smallest summary first; prints as a table."""

    _title = "summary designs"
    _columns = _COLUMNS

    def by_kind(self, kind: str) -> SummaryDesign:
        """Return the design of a kind; KeyError if it was not asked for."""
        for each in self:
            if each.kind == kind:
                return each
        raise KeyError(kind)

    def build(self) -> MultilevelTable:
        """Build the best design."""
        return self.best.build()


def summary(
    keys: SupportsIndex | SupportsFloat,
    *,
    failure: float = 1e-9,
    false_positives: float = 0.01,
    kinds: Sequence[str] | None = None,
) -> SummaryDesigns:
    """Find the smallest summary of each kind that errs no more often than asked.

    Parameters
    ----------
    keys
        Number of keys.
    failure
        Chance, at most, that the summary names a wrong level for any of the keys, or that one finds no place.
    false_positives
        Chance, at most, that an absent key is not recognised as absent.
    kinds
        Only these of "interpolation", "single-filter", "multiple-bloom".

    Examples
    --------
    >>> designs = summary(10_000, failure=1e-9, false_positives=0.006)
    >>> designs.best.kind, designs.best.size.failure + designs.best.size.crisis <= 1e-9
    ('multiple-bloom', True)
    """
    wanted, count = some_of("kinds", kinds, KINDS), arguments.capacity(keys)
    sizes = [size_summary(count, failure, false_positives, kind) for kind in wanted]
    designs = [
        SummaryDesign(
            each, (failure, false_positives), not any(beats(other, each, _RESPECTS) for other in sizes)
        )
        for each in sizes
    ]
    request: dict[str, object] = {"keys": keys, "failure": failure, "false_positives": false_positives}
    return SummaryDesigns(sorted(designs, key=lambda each: each.size.nbytes), request)


def size_summary(
    keys: int, failure: float, false_positives: float, kind: str = "multiple-bloom", *, first: float = 4.0,
    factor: float = 0.5,
) -> SummarySize:  # fmt: skip
    """Size a table and its summary for a need.

    Parameters
    ----------
    keys, failure, false_positives
        As of `summary`.
    kind
        One of `KINDS`.
    first, factor
        Of the sub-tables, as of `skewed_sizes`.

    Raises
    ------
    ValueError
        No sub-tables of this shape are enough.

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
    places = Places.in_table(number, sizes)
    filters: tuple[FilterSize, ...] = ()
    bits = 0
    if kind == "interpolation":
        bits = summary_size.digest_bits(number, budget, positives)
        wrong = rates.interpolation_failure(number, bits)
        positive = rates.interpolation_false_positives(number, bits)
        nbytes = rates.interpolation_bytes(number, sizes, bits)
    elif kind == "single-filter":
        filters = (summary_size.single_filter(number, places, budget, positives),)
        wrong = math.fsum(places.failures(j, filters[0]) for j in range(1, len(sizes)))
        positive = rates.filter_rate(*filters[0], number)
        nbytes = rates.single_filter_bytes(sizes, filters[0].cells)
    else:
        filters = tuple(summary_size.multiple_filters(number, places, budget, positives))
        wrong = math.fsum(places.failures(j, filters[j]) for j in range(1, len(sizes)))
        positive = rates.filter_rate(*filters[0], number)
        nbytes = rates.multiple_bloom_bytes(sizes, filters)
    return SummarySize(
        kind=kind, keys=number, sizes=sizes, filters=filters, digest_bits=bits, crisis=crisis,
        failure=wrong, false_positives=positive, occupancy_bytes=rates.occupancy_bytes(sizes), nbytes=nbytes,
    )  # fmt: skip


def _sub_tables(keys: int, failure: float, first: float, factor: float) -> tuple[tuple[int, ...], float]:
    """Find the fewest sub-tables that are enough."""
    best = 1.0
    for levels in range(2, MAX_LEVELS + 1):
        sizes = summary_size.skewed_sizes(keys, levels, first=first, factor=factor)
        crisis = crisis_probability(keys, sizes)
        best = min(best, crisis)
        if crisis <= _CRISIS_PART * failure:
            return sizes, crisis
    raise arguments.unmet(
        "failure",
        f" must be one that sub-tables of first={first} and factor={factor} can reach, "
        f"{best / _CRISIS_PART:.2g} at least; got {failure}. Enlarge first or factor",
    )

"""Summaries by requirement: say how often they may err; get tables and summaries that do not more often.

    keys, failure, false_positives ──▶ interpolation, single-filter, multiple-bloom ──▶ the smallest first

Each design is a multilevel table of one slot a bucket, skewed as section 4.8 of the thesis says, and the
summary that tells its levels apart (`study.theory.multilevel.size_summary`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins import _show
from evenbins.design._designs import Designs, beats
from evenbins.tables.multilevel import MultilevelTable, plan_multilevel
from evenbins.theory.summary_size import KINDS, SummarySize, size_summary

__all__ = ["SummaryDesign", "SummaryDesigns", "summary"]

_RESPECTS = ("nbytes", "false_positives", "failure")  # in what designs are compared
_COLUMNS = (
    ("kind", "kind"), ("levels", "levels"), ("space", "space"), ("bytes_per_key", "bytes/key"),
    ("kibibytes", "KiB"), ("false_positives", "false positives"), ("failure", "failure"),
    ("crisis", "crisis"),
)  # fmt: skip


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
        match name:
            case "levels":
                return str(len(self.size.sizes))
            case "kibibytes":
                return f"{self.size.nbytes / 1024:.4g}"
            case "bytes_per_key":
                return f"{self.bytes_per_key:.3f}"
            case "space":
                return f"{self.size.space:.3f}"
            case "failure" | "crisis" | "false_positives":
                return f"{getattr(self.size, name):.2e}"
        return _show.text(name, getattr(self.size, name))


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
        Chance that the summary tells a wrong level for any of the keys, or that one finds no place.
    false_positives
        Chance that an absent key is not told so.
    kinds
        Only these of "interpolation", "single-filter", "multiple-bloom".

    Raises
    ------
    ValueError
        An argument is out of its range.

    Examples
    --------
    >>> designs = summary(10_000, failure=1e-9, false_positives=0.006)
    >>> designs.best.kind, designs.best.size.failure + designs.best.size.crisis <= 1e-9
    ('multiple-bloom', True)
    """
    if kinds is None:
        kinds = KINDS
    elif isinstance(kinds, str) or not kinds or not set(kinds) <= set(KINDS):
        raise ValueError(
            f"kinds must be a list of some of {', '.join(KINDS)}; got {kinds!r}. Leave it out for all"
        )
    count = arguments.capacity(keys)
    sizes = [size_summary(count, failure, false_positives, kind) for kind in kinds]
    designs = [
        SummaryDesign(
            each, (failure, false_positives), not any(beats(other, each, _RESPECTS) for other in sizes)
        )
        for each in sizes
    ]
    request: dict[str, object] = {"keys": keys, "failure": failure, "false_positives": false_positives}
    return SummaryDesigns(sorted(designs, key=lambda each: each.size.nbytes), request)

"""Which summary serves which table, and how a table with one is planned.

    scheme                               interpolation, counting-…    single-filter, multiple-bloom
    standard                             yes, deletions too           yes; deletions="lazy"
    conservative, second-chance          yes, deletions too           yes, without deletions: keys move up
    extreme-second-chance, least-loaded  yes, deletions too           no: keys move to lower levels too

A filter without counters keeps the greatest level that it was told of a key: it follows a key that moves to
a higher level, not one that moves to a lower one or is deleted. It would still lose no key, but be wrong
about more and more of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from evenbins import _arguments as arguments
from evenbins.theory.summary_plan import KINDS, NUMBERS, SummaryPlan, checked_kind, plan_summary
from evenbins.theory.table_plan import TablePlan

__all__ = ["LAZY", "GuideState", "attachment", "lazy_capacity", "needs", "with_summary"]

LAZY = 0.1
"""Deleted keys that may hold their slots, as a fraction of the capacity (the thesis' α)."""
FORGETFUL = ("interpolation", "counting-single-filter", "counting-multiple-bloom")
RISING = ("standard", "conservative", "second-chance")
"""Schemes in which a key moves to higher levels alone."""


class GuideState(NamedTuple):
    """What a table's guide counts (cpp/include/evenbins/guided.hpp)."""

    hits: int
    hit_reads: int
    wrong: int
    misses: int
    miss_reads: int
    false_positives: int
    reserved: int
    due: int
    steps: int
    rebuilds: int
    rebuild_moves: int
    cursor: int
    nbytes: int
    rebuilding: int


def lazy_capacity(capacity: object) -> int:
    """Return the keys to plan for, when so many deleted ones still hold their slots."""
    keys = arguments.capacity(capacity)
    return keys + max(1, int(LAZY * keys))


def with_summary(
    plan: TablePlan,
    summary: str | SummaryPlan,
    *,
    lazy: bool = False,
    false_positives: float | None = None,
    failure: float | None = None,
) -> TablePlan:
    """Plan a summary for a table, and what the table then predicts; refuse what cannot work."""
    kind = summary.kind if isinstance(summary, SummaryPlan) else summary
    checked_kind(kind, KINDS, "summary")
    _check(plan, kind, lazy)
    levels = plan.levels + (plan.overflow_limit > 0)
    if isinstance(summary, SummaryPlan):
        if summary.levels < levels:
            raise ValueError(
                f"summary must have {levels} levels, those of the table and its list; got {summary.levels}. "
                "Pass its name instead"
            )
        found = summary
    else:
        found = _planned(plan, kind, levels, false_positives, failure)
    wrong = found.wrong
    reads = None if plan.overflow is None or wrong is None else 1 - plan.overflow + wrong
    return replace(
        plan, summary=found, reads=reads, miss_reads=found.false_positives * plan.levels,
        rebuild_threshold=max(1, round(plan.keys * LAZY / (1 + LAZY))) if lazy else 0,
    )  # fmt: skip


def attachment(plan: TablePlan) -> tuple[int, list[int], int]:
    """Return what a core needs to attach a summary: its kind, its core, the slots that begin a rebuild."""
    if plan.summary is None:
        return 0, [], 0
    return NUMBERS[plan.summary.kind], list(plan.summary.core), plan.rebuild_threshold


def needs(summary: SummaryPlan) -> dict[str, float]:
    """Return the bounds that a summary meets, as arguments for another."""
    found = {"false_positives": summary.false_positives, "failure": summary.failure}
    return {name: value for name, value in found.items() if value is not None and 0 < value < 1}


def _check(plan: TablePlan, kind: str, lazy: bool) -> None:
    if lazy and (kind in FORGETFUL or plan.scheme != "standard"):
        raise ValueError(
            "deletions='lazy' is for scheme 'standard' with summary 'single-filter' or 'multiple-bloom'; got "
            f"scheme {plan.scheme!r} and summary {kind!r}, which "
            + ("can forget keys at once. Leave it out" if kind in FORGETFUL else "moves keys as it deletes")
        )
    if kind not in FORGETFUL and plan.scheme not in RISING:
        raise ValueError(
            f"summary={kind!r} cannot serve scheme {plan.scheme!r}, in which keys move to lower levels: it "
            f"would go on naming the higher one. Pass 'interpolation' or 'counting-{kind}', or the scheme "
            "'standard'"
        )


def _planned(
    plan: TablePlan, kind: str, levels: int, false_positives: float | None, failure: float | None
) -> SummaryPlan:
    sizes = shares = None
    if plan.scheme == "standard" and plan.slots == 1 and not plan.deletions:
        sizes = list(plan.buckets)
    elif plan.fills is not None and plan.overflow is not None:
        shares = [
            fill * buckets * plan.slots / plan.keys
            for fill, buckets in zip(plan.fills, plan.buckets, strict=True)
        ]
    else:
        shares = [buckets / sum(plan.buckets) for buckets in plan.buckets]
    if shares is not None:
        shares += [plan.overflow or 0.0] * (levels - plan.levels)
        shares = [each / sum(shares) for each in shares]
    return plan_summary(
        plan.keys, kind=kind, levels=levels, shares=shares, sizes=sizes, false_positives=false_positives,
        failure=failure, seed=plan.seed,
    )  # fmt: skip

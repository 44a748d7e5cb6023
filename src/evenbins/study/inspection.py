"""What a structure is, for people: facts, what was planned beside what is measured, loads as a histogram.

`evenbins inspect` prints it, and the page Inspect of the lab draws it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenbins import _show
from evenbins.filters.plan import FilterPlan, FilterStats
from evenbins.filters.protocols import side_by_side
from evenbins.structure import kind_of_object

__all__ = ["Bin", "Histogram", "compare", "describe", "draw_loads", "name_of"]

_ROWS = 20


class Bin(NamedTuple):
    """A row of a histogram: a text for each column, and what was measured relative to the highest row."""

    texts: tuple[str, str, str]
    share: float


class Histogram(NamedTuple):
    """How full blocks, bins or nodes are: the names of three columns, a title, the rows."""

    columns: tuple[str, str, str]
    title: str
    rows: list[Bin]


def name_of(structure: Any) -> str:
    """Return a filter's policy, or what another structure is called."""
    plan = structure.plan
    if isinstance(plan, FilterPlan):
        return plan.policy
    if getattr(plan, "value_dtype", "") is None:
        return "exact set"
    return kind_of_object(structure).title.split(" ", 1)[1]


def describe(structure: Any, stats: Any) -> list[tuple[str, str]]:
    """Return the facts that have no planned or no measured counterpart, without the seed."""
    plan = structure.plan
    facts = [("kind", name_of(structure))]
    if kind_of_object(structure).name == "sharded":
        facts.append(("shards", f"{structure.shards:_}"))
    if not isinstance(plan, FilterPlan):
        return facts + _about_plan(plan.to_dict(), stats.to_dict())
    if plan.block_bits is not None and stats.loads:
        facts += _about_blocks(plan, stats)
    usual = plan.hashing in ("independent", "lanes")
    if plan.hashes:
        facts.append(("hashes", f"{plan.hashes}" + ("" if usual else f" by {plan.hashing} hashing")))
    if plan.semantics is not None:
        facts += _about_lines(plan, stats)
    if plan.policy == "fuse":
        facts += _about_slots(plan, stats)
    return facts


def compare(plan: Any, stats: Any) -> list[tuple[str, object, object]]:
    """Return rows of (name, planned, measured)."""
    if isinstance(stats, FilterStats):
        rows = side_by_side(plan, stats)
    else:
        ours, theirs = plan.to_dict(), stats.to_dict()
        names = [name for name in theirs if name in ours and name != "loads" and _is_shown(theirs[name])]
        rows = [(name, ours[name], theirs[name]) for name in names]
    return [(name, ours, "full" if theirs == math.inf else theirs) for name, ours, theirs in rows]


def draw_loads(structure: Any, stats: Any) -> list[Histogram]:
    """Return how full blocks, bins or nodes are, where there are some."""
    plan, kind = structure.plan, kind_of_object(structure).name
    if isinstance(plan, FilterPlan):
        return _histograms_of_blocks(plan, stats) if kind != "sharded" and stats.loads else []
    if kind == "chained-table":
        share = np.zeros(max(len(plan.loads), len(stats.loads)))
        share[: len(plan.loads)] = plan.loads
        columns = ("keys", "planned", "measured")
        return [Histogram(columns, "bins with this many keys", list(_bins(stats.loads, share)))]
    if kind == "ring" and 0 < stats.nodes <= _ROWS:
        loads, limits = structure.loads(), structure.limits()
        most = max(1, *loads.values())
        rows = [
            Bin((name[:13], _show.text("limit", limits.get(name)), f"{load:_}"), load / most)
            for name, load in loads.items()
        ]
        return [Histogram(("node", "limit", "keys"), "", rows)]
    return []


def _is_shown(value: object) -> bool:
    values = value if isinstance(value, list | tuple) else [value]
    return len(values) <= 4 and all(isinstance(each, int | float) for each in values)


def _about_plan(plan: dict[str, Any], stats: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the facts of a plan, or of what was measured, that have no counterpart."""
    facts = {name: value for name, value in plan.items() if name not in ("seed", "core", *stats)}
    facts |= {name: value for name, value in stats.items() if name not in plan}
    return [
        (name, _show.text(name, facts[name])) for name in facts if isinstance(facts[name], str | int | float)
    ]


def _about_blocks(plan: FilterPlan, stats: FilterStats) -> list[tuple[str, str]]:
    sizes = [sum(level) for level in stats.loads]
    facts = [("blocks", f"{' + '.join(f'{size:_}' for size in sizes)} of {plan.block_bits} bits")]
    if plan.thresholds:
        shown = [str(each) for each in plan.thresholds[: len(sizes) - (plan.policy == "fill")]]
        unit = "set bits" if plan.policy == "fill" else "keys"
        facts.append(("full at", f"{', '.join(shown)} {unit}" if shown else "never"))
    if plan.overflow_limit:
        used = round(stats.overflow * stats.keys)
        spilled = round(stats.spilled * stats.keys)
        facts.append(("list", f"{used:_} of {plan.overflow_limit:_} keys, {spilled:_} spilled"))
    return facts


def _about_slots(plan: Any, stats: Any) -> list[tuple[str, str]]:
    """Return the facts of a fuse filter."""
    core, again = plan.core, f"{stats.retried:_} solved at a second attempt or later"
    facts = [("slots", f"{plan.slots:_} of {plan.bits} bits"), ("blocks", f"{core.blocks:_}, {again}")]
    if core.fingerprints:
        facts.append(("holds", f"fingerprints, of {core.fingerprints:_} that there could be"))
    return facts


def _about_lines(plan: Any, stats: Any) -> list[tuple[str, str]]:
    """Return the facts of a fingerprint filter's levels."""
    sizes, of = [sum(level) for level in stats.loads], f"remainders of {plan.remainder_bits} bits"
    facts = [
        ("semantics", plan.semantics),
        ("lines", f"{' + '.join(f'{size:_}' for size in sizes)} of 64 bytes, in three levels"),
        ("slots", f"{plan.slots} in a line of level 1, {of}, {plan.quotients} quotients"),
        ("rest", f"{round(stats.overflow * stats.keys):_} of at most {plan.overflow_limit:_} fingerprints"),
    ]
    if plan.policy == "window":
        return [*facts, ("expired", f"{stats.expired:_} fingerprints that have not been swept out yet")]
    return [*facts, ("different", f"{stats.distinct:_} fingerprints")]


def _histograms_of_blocks(plan: FilterPlan, stats: FilterStats) -> list[Histogram]:
    """Return how many blocks of each level have which load, in about twenty rows, beside what was planned."""
    planned, unit = plan.planned_loads(sum(stats.loads[0])), plan.load_unit
    found = []
    for level, (counts, share) in enumerate(zip(stats.loads[: len(planned)], planned, strict=True)):
        where = f", level {level}" if len(planned) > 1 else ""
        title = f"blocks with this many {unit}{where}"
        found.append(Histogram((unit, "planned", "measured"), title, list(_bins(counts, share))))
    return found


def _bins(counts: Sequence[int], share: Any) -> Iterator[Bin]:
    occupied = [load for load, count in enumerate(counts) if count]
    first, last = occupied[0], occupied[-1]
    step = -(-(last - first + 1) // _ROWS)
    bins = [(low, min(low + step, len(counts))) for low in range(first, last + 1, step)]
    sums = [sum(counts[low:high]) for low, high in bins]
    for (low, high), total in zip(bins, sums, strict=True):
        name = str(low) if high - low == 1 else f"{low} - {high - 1}"
        planned = f"{sum(counts) * share[low:high].sum():_.0f}"
        yield Bin((name, planned, f"{total:_}"), total / max(sums))

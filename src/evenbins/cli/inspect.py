"""`evenbins inspect`: what was planned beside what is measured, of every file that evenbins writes."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click
import numpy as np

from evenbins import _show
from evenbins._console import FILE, show, show_json
from evenbins.cli._output import note
from evenbins.cli._structures import open_structure
from evenbins.filters.plan import FilterPlan, FilterStats
from evenbins.filters.protocols import side_by_side
from evenbins.structure import Kind, kind_of_object

__all__ = ["inspect", "report"]

_HISTOGRAM_ROWS = 20
_BAR_WIDTH = 40


@click.command(short_help="Show a file: plan beside stats, and checks.")
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
@click.option(
    "--verify/--no-verify", default=True, show_default=True, help="Check every byte, or the header."
)
@click.option("--show-seed", is_flag=True, help="Print the seed, which may be a secret.")
def inspect(file: str, as_json: bool, verify: bool, show_seed: bool) -> None:
    """Show FILE: what was planned beside what is measured, and how its blocks are filled.

    FILE is whatever evenbins wrote: a filter of any kind, also in shards (a folder), a sketch, a table, a
    summary, a ring.
    """
    kind, structure = open_structure(file, verify=verify)
    file_bytes = _size_of(file)
    if as_json:
        return show_json(
            {"file": file, "file_bytes": file_bytes, "verified": verify}
            | _to_dict(structure, show_seed=show_seed)
        )
    plan, stats = structure.plan, structure.stats()
    facts = [("kind", _name(structure))]
    if kind.name == "sharded":
        facts.append(("shards", f"{structure.shards:_}"))
    if isinstance(plan, FilterPlan):
        if plan.block_bits is not None and stats.loads:
            facts += _about_blocks(plan, stats)
        usual = plan.hashing in ("independent", "lanes")
        if plan.hashes:
            facts.append(("hashes", f"{plan.hashes}" + ("" if usual else f" by {plan.hashing} hashing")))
        if plan.semantics is not None:
            facts += _about_lines(plan, stats)
        if plan.policy == "fuse":
            facts += _about_slots(plan, stats)
    else:
        facts += _about_plan(plan.to_dict(), stats.to_dict())
    seed = structure.seed
    facts += [
        ("seed", f"{seed}" if show_seed or not seed else "set (--show-seed prints it)"),  # may be a secret
        ("file", f"{_show.size(file_bytes)} ({file_bytes:_} bytes)"),
        ("checks", "every byte verified" if verify else "header verified, payload not (--no-verify)"),
    ]
    width = max(13, *(len(name) for name, _ in facts))
    show(
        "\n".join(
            [
                click.style(click.format_filename(file), bold=True),
                *(f"  {name:<{width}} {value}" for name, value in facts),
                "",
                *_comparison_lines(plan, stats),
                *_loads(kind, structure, plan, stats),
            ]
        )
    )


def _loads(kind: Kind, structure: Any, plan: Any, stats: Any) -> list[str]:
    """Draw how full blocks, bins or nodes are, where there are some."""
    if isinstance(plan, FilterPlan):
        return _histogram(plan, stats) if kind.name != "sharded" else []
    if kind.name == "chained-table":
        share = np.zeros(max(len(plan.loads), len(stats.loads)))
        share[: len(plan.loads)] = plan.loads
        head = _show.row("keys", "planned", "measured") + "  bins with this many keys"
        return ["", head, *_rows_of_histogram(stats.loads, share)]
    if kind.name == "ring" and 0 < stats.nodes <= _HISTOGRAM_ROWS:
        loads, limits = structure.loads(), structure.limits()
        most, bar = max(1, *loads.values()), _bar_character()
        rows = [
            _show.row(name[:13], _show.text("limit", limits.get(name)), f"{load:_}")
            + "  "
            + bar * math.ceil(_BAR_WIDTH * load / most)
            for name, load in loads.items()
        ]
        return ["", _show.row("node", "limit", "keys"), *(row.rstrip() for row in rows)]
    return []


def _size_of(path: str) -> int:
    if not os.path.isdir(path):
        return os.stat(path).st_size
    return sum(each.stat().st_size for each in os.scandir(path) if each.is_file())


def _name(structure: Any) -> str:
    """Return a filter's policy, or what another structure is called."""
    plan = structure.plan
    if isinstance(plan, FilterPlan):
        return plan.policy
    if getattr(plan, "value_dtype", "") is None:
        return "exact set"
    return kind_of_object(structure).title.split(" ", 1)[1]


def report(structure: Any, output: str, what: str, as_json: bool, **facts: object) -> None:
    """Print what was written to a file: on standard error, or as JSON with these facts on standard output."""
    if as_json:
        return show_json({"file": output, **facts, **_to_dict(structure)})
    note(
        "\n".join(
            [
                f"{click.format_filename(output)}: {what}",
                *_comparison_lines(structure.plan, structure.stats()),
            ]
        )
    )


def _to_dict(structure: Any, *, show_seed: bool = False) -> dict[str, Any]:
    """Return plan and stats as JSON holds them; a seed is left out (null) unless it is asked for."""
    plan = structure.plan.to_dict()
    if plan.get("seed") and not show_seed:
        plan["seed"] = None
    return {"kind": _name(structure), "plan": plan, "stats": structure.stats().to_dict()}


def _comparison_lines(plan: Any, stats: Any) -> list[str]:
    """Write what was planned beside what is measured, in lines."""
    if isinstance(stats, FilterStats):
        rows = side_by_side(plan, stats)
    else:
        ours, theirs = plan.to_dict(), stats.to_dict()
        names = [name for name in theirs if name in ours and name != "loads" and _is_shown(theirs[name])]
        rows = [(name, ours[name], theirs[name]) for name in names]
    rows = [(name, ours, "full" if theirs == math.inf else theirs) for name, ours, theirs in rows]
    return _show.comparison(("planned", "measured"), rows)


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


def _histogram(plan: FilterPlan, stats: FilterStats) -> list[str]:
    """Draw how many blocks of each level have which load, in about twenty rows, beside what was planned."""
    if not stats.loads:
        return []
    planned, title = plan.planned_loads(sum(stats.loads[0])), plan.load_unit
    lines = []
    for level, (counts, share) in enumerate(zip(stats.loads[: len(planned)], planned, strict=True)):
        where = f", level {level}" if len(planned) > 1 else ""
        lines += ["", _show.row(title, "planned", "measured") + f"  blocks with this many {title}{where}"]
        lines += _rows_of_histogram(counts, share)
    return lines


def _rows_of_histogram(counts: Sequence[int], share: Any) -> Iterator[str]:
    occupied = [load for load, count in enumerate(counts) if count]
    first, last = occupied[0], occupied[-1]
    step = -(-(last - first + 1) // _HISTOGRAM_ROWS)
    bins = [(low, min(low + step, len(counts))) for low in range(first, last + 1, step)]
    sums = [sum(counts[low:high]) for low, high in bins]
    bar = _bar_character()
    for (low, high), total in zip(bins, sums, strict=True):
        name = str(low) if high - low == 1 else f"{low} - {high - 1}"
        planned = f"{sum(counts) * share[low:high].sum():_.0f}"
        drawn = bar * math.ceil(_BAR_WIDTH * total / max(sums))
        yield _show.row(name, planned, f"{total:_}") + f"  {drawn}"


def _bar_character() -> str:
    try:
        "█".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return "#"
    return "█"

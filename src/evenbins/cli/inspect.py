"""`evenbins inspect`."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from evenbins import theory
from evenbins.cli._options import FILE
from evenbins.cli._output import show, show_json
from evenbins.cli.query import open_filter
from evenbins.protocols import Filter, FilterStats, side_by_side
from evenbins.theory import FilterPlan, _show

__all__ = ["inspect"]
_HISTOGRAM_ROWS = 20
_BAR_WIDTH = 40


@click.command(short_help="Show a filter: plan beside stats, and checks.")
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
@click.option(
    "--verify/--no-verify", default=True, show_default=True, help="Check every byte, or the header."
)
def inspect(file: str, as_json: bool, verify: bool) -> None:
    """Show the filter FILE: what was planned beside what is measured, and how its blocks are filled."""
    filter_ = open_filter(file, verify=verify)
    file_bytes = os.stat(file).st_size
    if as_json:
        return show_json({"file": file, "file_bytes": file_bytes, "verified": verify} | measured(filter_))
    plan, stats = filter_.plan, filter_.stats()
    usual = plan.hashing in ("independent", "lanes")
    facts = [
        ("kind", plan.policy),
        ("hashes", f"{plan.hashes}" + ("" if usual else f" by {plan.hashing} hashing")),
        ("seed", "set (--json shows it)" if plan.seed else "0"),  # may be a secret
        ("file", f"{_show.size(file_bytes)} ({file_bytes:_} bytes)"),
        ("checks", "every byte verified" if verify else "header verified, payload not (--no-verify)"),
    ]
    if plan.block_bits is not None:
        facts[1:1] = _about_blocks(plan, stats)
    show(
        "\n".join(
            [
                click.style(click.format_filename(file), bold=True),
                *(f"  {name:<13} {value}" for name, value in facts),
                "",
                *comparison(plan, stats),
                *_histogram(plan, stats),
            ]
        )
    )


def measured(filter_: Filter) -> dict[str, Any]:
    plan = filter_.plan
    return {"kind": plan.policy, "plan": plan.to_dict(), "stats": filter_.stats().to_dict()}


def comparison(plan: FilterPlan, stats: FilterStats) -> list[str]:
    return _show.comparison(("planned", "measured"), side_by_side(plan, stats))


def _about_blocks(plan: FilterPlan, stats: FilterStats) -> list[tuple[str, str]]:
    sizes = [sum(level) for level in stats.loads]
    facts = [("blocks", f"{' + '.join(f'{size:_}' for size in sizes)} of {plan.block_bits} bits")]
    if plan.thresholds:
        shown = [str(each) for each in plan.thresholds[: len(sizes) - (plan.policy == "fill")]]
        unit = "set bits" if plan.policy == "fill" else "keys"
        facts.append(("full at", f"{', '.join(shown)} {unit}" if shown else "never"))
    if plan.overflow_limit:
        used = round(stats.overflow * stats.keys)
        facts.append(
            (
                "list",
                f"{used:_} of {plan.overflow_limit:_} keys, {round(stats.spilled * stats.keys):_} spilled",
            )
        )
    return facts


def _histogram(plan: FilterPlan, stats: FilterStats) -> list[str]:
    """Draw how many blocks of each level have which load, in about twenty rows, beside what was planned."""
    if plan.block_bits is None or not stats.loads or plan.policy == "growing":
        return []
    if plan.policy in ("blocked", "counting"):
        size = plan.block_bits // (plan.counter_bits or 1)
        planned = [theory.fpr.blocked_set_bits(size, plan.hashes, plan.keys / sum(stats.loads[0]))]
    else:
        planned = list(theory.levels.predict(plan.core, plan.keys).loads)
    counted = plan.policy in theory.levels.COUNTED
    lines = []
    for level, (counts, share) in enumerate(zip(stats.loads, planned, strict=True)):
        title = "keys" if counted else "counters" if plan.counter_bits else "set bits"
        where = f", level {level}" if len(planned) > 1 else ""
        lines += ["", _show.row(title, "planned", "measured") + f"  blocks with so many {title}{where}"]
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

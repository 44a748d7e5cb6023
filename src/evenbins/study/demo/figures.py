"""The figures of the demo's report: each takes what was measured, and a matplotlib figure to draw on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from evenbins import Filter, HashRing
from evenbins.filters.plan import FilterPlan
from evenbins.study.demo.report import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["designs", "loads", "overflow", "rates", "servers"]


def designs(plans: Sequence[FilterPlan], figure: Figure) -> None:
    """Draw a bar for each policy, the smallest above."""
    axes = figure.subplots()
    plans = sorted(plans, key=lambda plan: plan.bits_per_key, reverse=True)
    _bars(axes, {plan.policy: plan.bits_per_key for plan in plans},
          [f"{plan.bits_per_key:.1f} bits, {plan.miss_reads:.2f} reads" for plan in plans])  # fmt: skip
    axes.set_xlabel("bits per key")
    axes.set_xlim(0, 1.25 * max(plan.bits_per_key for plan in plans))


def loads(filters: Sequence[Filter], figure: Figure) -> None:
    """Draw the blocks of filters by their load, every level of its own colour."""
    for axes, filter_ in zip(figure.subplots(1, len(filters), sharex=True), filters, strict=True):
        stats, plan = filter_.stats(), filter_.plan
        planned = plan.planned_loads(sum(stats.loads[0]))
        total = sum(sum(level) for level in stats.loads)
        for level, (counts, share) in enumerate(zip(stats.loads, planned, strict=True)):
            where = f", level {level + 1}" if len(planned) > 1 else ""
            colour, counted = COLOURS[level], np.array(counts) / total
            axes.fill_between(
                range(len(counts)),
                counted,
                step="mid",
                linewidth=0,
                alpha=0.35,
                color=colour,
                label="counted" + where,
            )
            axes.plot(share * counted.sum(), color=colour, linewidth=1.4, label="planned" + where)
        axes.set_title(plan.policy)
        axes.set_xlabel(f"{plan.load_unit} of a block")
        axes.set_xlim(150, 400)
        axes.legend(fontsize=8, loc="upper right")
    figure.axes[0].set_ylabel("share of blocks")


def overflow(measured: Sequence[float], planned: float | None, figure: Figure) -> None:
    """Draw what is on the list, from time to time, beside what was planned."""
    axes = figure.subplots()
    axes.plot(np.linspace(0, 0.5, len(measured)), measured, "o-", label="measured")
    if planned is not None:
        axes.axhline(planned, color=COLOURS[1], linestyle="--", label="planned")
    axes.set_xlabel("keys replaced, of all")
    axes.set_ylabel("overflow")
    axes.set_ylim(0, 1.3 * max(*measured, planned or 0.0, 1e-9))
    axes.legend()


def servers(rings: Mapping[str, HashRing], figure: Figure) -> None:
    """Draw the loads of the servers of rings, in falling order, over their mean."""
    axes = figure.subplots()
    for name, made in rings.items():
        found = np.sort(list(made.loads().values()))[::-1]
        axes.plot(found / found.mean(), label=name)
    axes.axhline(1.1, color=COLOURS[4], linestyle=":", label="limit")
    axes.set_ylim(0, 3)
    axes.set_xlabel("servers, fullest first")
    axes.set_ylabel("keys over their mean")
    axes.legend()


def rates(measured: Mapping[str, float], figure: Figure) -> None:
    """Draw a bar for each call, in the order given."""
    axes = figure.subplots()
    _bars(
        axes,
        {name: measured[name] for name in reversed(list(measured))},
        [f"{rate:.0f}" for rate in reversed(list(measured.values()))],
    )
    axes.set_xlabel("million keys a second")


def _bars(axes: Axes, values: dict[str, float], labels: Sequence[str]) -> None:
    bars = axes.barh(list(values), list(values.values()), color=COLOURS[0], height=0.62)
    axes.bar_label(bars, labels=list(labels), padding=4, fontsize=8.5)
    axes.grid(axis="y", visible=False)

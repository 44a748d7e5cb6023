"""What the equations of chapter 5 of Kirsch's thesis say.

A. Kirsch, "Hash-Based Data Structures for Extreme Conditions" (2008).

Tables that move at most one key, six of them: Std, Cons, SC, SCExt with one slot a bucket, Std2 and SC2
with two. All numbers here come from `evenbins.theory.fluid` and `evenbins.theory.optimise`; simulations are
another module.

The thesis' figures are lost in our copy; `paper` has what its text and tables print. Its numbers are
rounded to 0.01 of space; where they are not the optimum a note says so. `space` is slots per key, shares
are buckets per key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from evenbins.study.papers import plots
from evenbins.study.papers.registry import Context, Row, Value, experiment, row
from evenbins.study.theory import tables
from evenbins.theory import fluid, optimise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OVERFLOW = 0.002
"""The overflow that all tables of the chapter are designed for: 20 keys of 10,000."""

SCHEMES = (
    ("standard", 1), ("conservative", 1), ("second-chance", 1), ("extreme-second-chance", 1),
    ("standard", 2), ("second-chance", 2),
)  # fmt: skip
"""Std, Cons, SC, SCExt, Std2, SC2: scheme and slots."""

TABLE_5_1: dict[tuple[str, int, int], tuple[float, float, tuple[float, ...]]] = {
    ("standard", 3, 1): (2.68, 0.0, (1.3880, 0.8309, 0.4586)),
    ("conservative", 3, 1): (1.78, 0.0182, (0.7767, 0.6062, 0.3746)),
    ("second-chance", 3, 1): (1.62, 0.0851, (0.7142, 0.6400, 0.2707)),
    ("extreme-second-chance", 3, 1): (1.51, 0.0990, (0.6554, 0.5500, 0.3064)),
    ("standard", 3, 2): (1.53, 0.0, (0.4311, 0.2284, 0.1042)),
    ("second-chance", 3, 2): (1.22, 0.100, (0.2668, 0.2665, 0.0744)),
    ("standard", 4, 1): (1.80, 0.0, (0.7867, 0.5149, 0.3152, 0.1782)),
    ("conservative", 4, 1): (1.39, 0.0166, (0.5214, 0.4134, 0.2802, 0.1774)),
    ("second-chance", 4, 1): (1.29, 0.129, (0.4694, 0.4562, 0.2512, 0.1082)),
    ("extreme-second-chance", 4, 1): (1.15, 0.178, (0.3774, 0.3624, 0.2857, 0.1276)),
    ("standard", 4, 2): (1.25, 0.0, (0.2970, 0.1735, 0.1059, 0.0493)),
    ("second-chance", 4, 2): (1.05, 0.147, (0.2048, 0.1961, 0.0954, 0.0299)),
    ("standard", 5, 1): (1.46, 0.0, (0.544, 0.383, 0.271, 0.162, 0.098)),
    ("conservative", 5, 1): (1.24, 0.0141, (0.410, 0.329, 0.236, 0.162, 0.105)),
    ("second-chance", 5, 1): (1.16, 0.153, (0.366, 0.367, 0.239, 0.129, 0.058)),
    ("extreme-second-chance", 5, 1): (1.06, 0.251, (0.223, 0.223, 0.221, 0.220, 0.172)),
    ("standard", 5, 2): (1.14, 0.0, (0.239, 0.155, 0.096, 0.054, 0.026)),
    ("second-chance", 5, 2): (1.03, 0.167, (0.171, 0.171, 0.107, 0.048, 0.016)),
}
"""Table 5.1 as printed; by scheme, levels, slots: space, moves, shares."""

TABLE_5_2 = {
    ("standard", 1): (2.00, 1.80, 1.11),
    ("conservative", 1): (1.46, 1.39, 1.05),
    ("second-chance", 1): (1.41, 1.29, 1.09),
    ("extreme-second-chance", 1): (1.20, 1.15, 1.04),
    ("standard", 2): (1.42, 1.25, 1.14),
    ("second-chance", 2): (1.14, 1.05, 1.09),
}
"""Table 5.2 as printed; by scheme, slots: naive space, optimised space, their ratio."""

_RATIOS_AT_1_2 = {  # section 5.8, for space 1.2: naive overflow over optimised
    ("standard", 1): 1.29,
    ("conservative", 1): 1.33,
    ("second-chance", 1): 2.24,
    ("extreme-second-chance", 1): 4.69,
    ("standard", 2): 3.49,
}

_NOTES = {
    ("second-chance", 3, 2): "the thesis' 1.22 is the space of equal levels; 1.137 is reachable",
    (
        "extreme-second-chance",
        3,
        1,
    ): "the thesis' 1.51 is the space of equal levels (1.513); 1.464 is reachable",
    ("extreme-second-chance", 5, 1): "the thesis' shares have an overflow of 0.57 %, not 0.2 %",
    ("conservative", 3, 1): "the thesis' own shares sum to 1.7575: 1.78 should be 1.76",
}
_AT_PRINTED = "at the shares that the thesis prints"
_TINY = 1e-12  # of overflow: figures end there


# --- section 5.8: insertions only ------------------------------------------------------------------------


def _panels(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw space by scheme, a panel for each number of levels."""
    shown = [each for each in rows if each.quantity in ("space", "space_naive")]
    levels = sorted({int(each.where["levels"]) for each in shown})
    grid = figure.subplots(1, len(levels), sharey=True, squeeze=False)[0]
    for axes, d in zip(grid, levels, strict=True):
        for quantity, colour in (("space_naive", "0.8"), ("space", "C0")):
            here = [each for each in shown if each.where["levels"] == d and each.quantity == quantity]
            names = [f"{each.where['scheme']}, {each.where['slots']}" for each in here]
            axes.bar(names, [each.ours for each in here], color=colour, label=quantity)
            printed = [
                (name, each.paper) for name, each in zip(names, here, strict=True) if each.paper is not None
            ]
            axes.plot([name for name, _ in printed], [paper for _, paper in printed], "kx")
        axes.set_title(f"levels {d}")
        axes.tick_params(axis="x", rotation=90)
        axes.grid(alpha=0.3, axis="y")
    grid[0].set_ylabel("space, slots per key (×: the thesis)")
    grid[0].set_ylim(bottom=0.9)


@experiment("kirsch-table5.1", title="The least space for an overflow of 0.2 %", plot=_panels)
def table51(context: Context) -> Iterator[Row]:
    """All eighteen rows.

    `space` and the shares are the optimum; `moves` and `overflow` belong to the thesis' printed shares,
    `moves_optimal` to the optimum. `overdispersion` is the variance over the mean of the overflow list at the
    optimum, which the thesis takes for Poisson (1).
    """
    for scheme, levels, slots in context.track(TABLE_5_1):
        where: dict[str, Value] = {"scheme": scheme, "levels": levels, "slots": slots}
        space, moves, shares = TABLE_5_1[scheme, levels, slots]
        note = _NOTES.get((scheme, levels, slots))
        best = optimise.space(scheme, levels, OVERFLOW, slots)
        printed = fluid.solve(scheme, shares, slots)
        yield Row(where, "space", space, best.space, note=note)
        yield Row(where, "moves", moves, printed.moves, note=_AT_PRINTED)
        yield Row(where, "moves_optimal", None, best.moves)
        yield Row(where, "overflow", OVERFLOW, printed.overflow, note=_AT_PRINTED)
        for i, (share, paper) in enumerate(zip(best.shares, shares, strict=True), 1):
            yield Row(where, f"share{i}", paper, share)
        list_ = optimise.overflow_distribution(scheme, best.shares, 10_000, slots)
        yield Row(where, "overdispersion", None, list_.ratio)


@experiment(
    "kirsch-table5.2",
    title="The least space for an overflow of 0.2 %, equal levels against optimised ones",
    plot=_panels,
)
def table52(context: Context) -> Iterator[Row]:
    """Four levels: `space`, `space_naive` of equal levels, and their `ratio`."""
    for (scheme, slots), (naive, optimised, ratio) in zip(
        TABLE_5_2, context.track(TABLE_5_2.values()), strict=True
    ):
        where: dict[str, Value] = {"scheme": scheme, "levels": 4, "slots": slots}
        best = optimise.space(scheme, 4, OVERFLOW, slots)
        equal = tables.naive_space(scheme, 4, OVERFLOW, slots)
        yield Row(where, "space", optimised, best.space)
        yield Row(where, "space_naive", naive, equal.space)
        yield Row(where, "ratio", ratio, equal.space / best.space)
        yield Row(where, "moves", None, best.moves)
        for i, share in enumerate(best.shares, 1):
            yield Row(where, f"share{i}", None, share)


def _spaces(context: Context, last: float) -> list[float]:
    """Return the spaces of a figure: closer where several slots fall fast."""
    if context.quick:
        return [1.0, 1.2, 1.5, 2.0]
    near = [1.0 + 0.02 * i for i in range(10)]
    return [round(each, 3) for each in [*near, *(1.2 + 0.1 * i for i in range(round(10 * (last - 1.2)) + 1))]]


_Point = tuple[str, int, float, float, float]  # scheme, slots, space, optimised overflow, naive overflow


def _curves(
    context: Context, schemes: Sequence[tuple[str, int]], last: float, *, deletions: bool = False
) -> Iterator[_Point]:
    """Yield the points of curves, while they can be seen."""
    spaces = tuple(_spaces(context, last))
    for scheme, slots in context.track(schemes):
        for space, best, naive in _curve(scheme, slots, spaces, deletions):
            yield scheme, slots, space, best, naive


@lru_cache(maxsize=64)  # two figures show each
def _curve(
    scheme: str, slots: int, spaces: tuple[float, ...], deletions: bool
) -> list[tuple[float, float, float]]:
    solve = fluid.steady_state if deletions else fluid.solve
    found: list[tuple[float, float, float]] = []
    start = None
    for space in spaces:
        best = tables.curve(scheme, 4, [space], slots, deletions=deletions, start=start)[0]
        if best.overflow < _TINY:
            break
        start = best.shares
        naive = solve(scheme, tables.naive_shares(4, space, slots), slots).overflow
        found.append((space, best.overflow, naive))
    return found


_SPACE = "space, slots per key"
_overflow_plot = plots.lines(x="space", y="overflow", quantities=["overflow"], log=True, xlabel=_SPACE)
_gain_plot = plots.lines(
    x="space", y="naive overflow / optimised", quantities=["ratio"], log=True, xlabel=_SPACE
)


def _gains(curves: Iterable[_Point], printed: Callable[[str, int, float], float | None]) -> Iterator[Row]:
    """Return `overflow` optimised, `overflow_naive` of equal levels, `ratio` of naive to optimised."""
    for scheme, slots, space, overflow, naive in curves:
        where: dict[str, Value] = {"scheme": scheme, "slots": slots, "space": space}
        yield Row(where, "overflow", None, overflow)
        yield Row(where, "overflow_naive", None, naive)
        yield Row(where, "ratio", printed(scheme, slots, space), naive / overflow)


@experiment("kirsch-fig5.2", title="Overflow against space, optimised levels", plot=_overflow_plot)
def fig52(context: Context) -> Iterator[Row]:
    """Four levels, six schemes, down to an overflow of 1e-12; SCExt too, whose optimum the thesis missed."""
    for scheme, slots, space, overflow, _ in _curves(context, SCHEMES, 2.0):
        yield row("overflow", overflow, scheme=scheme, slots=slots, space=space)


@experiment("kirsch-fig5.3", title="What optimised levels gain over equal ones", plot=_gain_plot)
def fig53(context: Context) -> Iterator[Row]:
    """Four levels; the thesis prints ratios for a space of 1.2."""

    def printed(scheme: str, slots: int, space: float) -> float | None:
        return _RATIOS_AT_1_2.get((scheme, slots)) if math.isclose(space, 1.2) else None

    return _gains(_curves(context, SCHEMES, 2.0), printed)


# --- section 5.10: insertions and deletions --------------------------------------------------------------

_STEADY = (("standard", 1), ("second-chance", 1), ("standard", 2))
_POINT = "the thesis' design point of Figures 5.8 and 5.9: 0.146 %"


@experiment(
    "kirsch-fig5.6",
    title="Overflow against space under endless deletions and insertions, optimised levels",
    plot=_overflow_plot,
)
def fig56(context: Context) -> Iterator[Row]:
    """Four levels; both deletion models have this limit."""
    for scheme, slots, space, overflow, _ in _curves(context, _STEADY, 3.0, deletions=True):
        point = scheme == "second-chance" and space == 2.0
        yield row(
            "overflow", overflow, paper=0.00146 if point else None, note=_POINT if point else None,
            scheme=scheme, slots=slots, space=space,
        )  # fmt: skip


@experiment(
    "kirsch-fig5.7", title="What optimised levels gain over equal ones under deletions", plot=_gain_plot
)
def fig57(context: Context) -> Iterator[Row]:
    """Four levels; the thesis prints no ratio."""
    return _gains(_curves(context, _STEADY, 3.0, deletions=True), lambda scheme, slots, space: None)


@experiment(
    "kirsch-sec5.10",
    title="The least space for an overflow of 0.2 % under deletions (not feasible for the thesis)",
    plot=_panels,
)
def sec510(context: Context) -> Iterator[Row]:
    """As Table 5.1, in the steady state; `space_naive` has equal levels, `space_filled` no deletions."""
    cases = [(scheme, levels, slots) for levels in (3, 4, 5) for scheme, slots in _STEADY]
    for scheme, levels, slots in context.track(cases):
        where: dict[str, Value] = {"scheme": scheme, "levels": levels, "slots": slots}
        best = optimise.space(scheme, levels, OVERFLOW, slots, deletions=True)
        naive = tables.naive_space(scheme, levels, OVERFLOW, slots, deletions=True)
        yield Row(where, "space", None, best.space)
        yield Row(where, "space_naive", None, naive.space)
        yield Row(where, "space_filled", None, optimise.space(scheme, levels, OVERFLOW, slots).space)
        yield Row(where, "moves", None, best.moves)
        for i, share in enumerate(best.shares, 1):
            yield Row(where, f"share{i}", None, share)

"""J. Chen, B. Coleman, A. Shrivastava, "Revisiting consistent hashing with bounded loads": its cache tables.

Tables 1 and 2: a log of requests replayed through cache servers that fill up and fail (`study.simulate`,
the configurations of Appendix K), misses beyond those of one cache without limits, clockwise (CH-BL) against
jump (RJ-CH).

The AOL and Indiana logs are not available. Without `--trace` the trace is synthetic, of the paper's counts
(`study.traces.SYNTHETIC`), and the paper's numbers belong to another trace: what can be compared is which
policy has more misses and, roughly, how many times more (`ratio`). docs/cache_replay.md says what the ratio
depends on.

    misses            additional misses, the tables' number    ratio   clockwise over jump
    misses_baseline   those of one cache without limits        failures, dropped, searches  as of CacheRun

The paper has one copy of a server on the circle. Seven, its log(1000), narrow the gap: those rows are beside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evenbins.study.papers.registry import Context, Row, experiment, measured, row
from evenbins.study.simulate import CONFIGURATIONS, CacheReport, replay_cache
from evenbins.study.traces import SYNTHETIC, Trace, read_trace, synthetic_trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TABLE_1", "TABLE_2"]

TABLE_1 = {1: (35780, 312), 2: (52403, 4680), 3: (12223, 104), 4: (48571, 9)}
"""Additional misses on the AOL log, clockwise and jump, by configuration."""
TABLE_2 = {1: (72989, 5549), 2: (98712, 9054), 3: (105499, 8641), 4: (49304, 3498)}
"""The same on the Indiana log."""

_POLICIES = ("clockwise", "jump")
_COPIES = (1, 7)
_SYNTHETIC = (
    "the paper's log is not available: ours is a synthetic trace of its counts, so only the order of"
    " magnitude and clockwise over jump can be compared"
)
_GIVEN = "the trace is the one that was given; the paper's is its own log"
_NONE = "jump has no additional misses: this is clockwise's number over 1"
_SEVEN = "the paper's log(1000) = 7 copies, which its cache tables do not have"


def _draw(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw bars: additional misses by configuration, ours and the paper's."""
    axes = figure.subplots()
    bars: dict[str, list[tuple[int, float]]] = {}
    for each in rows:
        if each.quantity != "misses":
            continue
        at = int(each.where["configuration"])
        label = f"{each.where['policy']}, copies {each.where['copies']}"
        bars.setdefault(label, []).append((at, each.ours))
        if each.paper is not None:
            bars.setdefault(f"{each.where['policy']}, paper", []).append((at, each.paper))
    width = 0.8 / max(1, len(bars))
    for position, (label, points) in enumerate(bars.items()):
        places = [at + (position - (len(bars) - 1) / 2) * width for at, _ in points]
        axes.bar(places, [max(number, 0.5) for _, number in points], width, label=label)
    axes.set_yscale("log")
    axes.set_xticks(sorted({at for points in bars.values() for at, _ in points}))
    axes.set_xlabel("configuration")
    axes.set_ylabel("additional misses")
    axes.grid(alpha=0.3, axis="y")
    axes.legend(fontsize=7)


def _trace(context: Context, name: str) -> tuple[Trace, str]:
    """Return the trace, and the note of the rows."""
    given = context.options.get("trace")
    if given is not None:
        trace = given if isinstance(given, Trace) else read_trace(given)
        return (trace.head(50_000) if context.quick else trace), _GIVEN
    trace = replace(
        synthetic_trace(seed=context.stream("trace"), **SYNTHETIC[name]), name=f"synthetic {name}"
    )
    return (trace.head(200_000) if context.quick else trace), _SYNTHETIC


def _rows(context: Context, name: str, paper: dict[int, tuple[int, int]]) -> Iterator[Row]:
    trace, note = _trace(context, name)
    for configuration, copies in context.track([(c, v) for c in paper for v in _COPIES]):
        report = replay_cache(
            trace, **CONFIGURATIONS[f"{name}-{configuration}"].to_dict(), policies=_POLICIES, copies=copies,
            seed=context.stream(configuration), repeat=context.pick(10, 2), threads=context.threads,
        )  # fmt: skip
        yield from _report_rows(report, configuration, copies, paper[configuration], note)


def _report_rows(
    report: CacheReport, configuration: int, copies: int, paper: tuple[int, int], note: str
) -> Iterator[Row]:
    for policy, printed in zip(_POLICIES, paper, strict=True):
        where: dict[str, Any] = {"configuration": configuration, "policy": policy, "copies": copies}
        yield measured(
            "misses", report.values(policy, "additional"), paper=printed if copies == 1 else None,
            note=note if copies == 1 else _SEVEN, **where,
        )  # fmt: skip
        if policy == "clockwise":
            yield row("misses_baseline", report.baseline_misses, **where)
        for quantity in ("failures", "dropped", "searches"):
            yield measured(quantity, report.values(policy, quantity), **where)
        if policy == "clockwise":
            ratio = report.ratio("clockwise", "jump")
            yield row(
                "ratio", ratio if ratio is not None else report.mean("clockwise", "additional"),
                paper=paper[0] / paper[1] if copies == 1 else None, note=_NONE if ratio is None else None,
                **where,
            )  # fmt: skip


@experiment(
    "chen-table1", title="Additional cache misses, AOL: clockwise against jump", plot=_draw, options=["trace"]
)
def table1(context: Context) -> Iterator[Row]:
    """3,826,181 requests, 607,782 urls, 92 days; ten placements of the servers; configurations of Table 3."""
    return _rows(context, "aol", TABLE_1)


@experiment(
    "chen-table2",
    title="Additional cache misses, Indiana University: clockwise against jump",
    plot=_draw,
    options=["trace"],
)
def table2(context: Context) -> Iterator[Row]:
    """1,000,000 requests, 26,062 urls, 24 minutes; ten placements of servers; configurations of Table 4."""
    return _rows(context, "indiana", TABLE_2)

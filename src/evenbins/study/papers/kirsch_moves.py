"""What the simulations of chapter 5 of Kirsch's thesis show.

A. Kirsch, "Hash-Based Data Structures for Extreme Conditions" (2008).

Multilevel tables that move at most one key for an insertion, with 10,000 keys: how far the differential
equations (`evenbins.theory.fluid`) are from the simulated table (`simulation.simulate_table`), and which laws
the numbers of keys in a level and on the overflow list follow. The equations' own tables and curves (5.1,
5.2, Figures 5.2, 5.3, 5.6, 5.7) are another module's.

    insertions   kirsch-fig5.4  a level's keys are normal      kirsch-fig5.5  the list against Poisson(20)
                 kirsch-sec5.8  equations against simulation
    deletions    kirsch-fig5.8  as 5.4, and section 5.10: equations against simulation
                 kirsch-fig5.9  as 5.5

Misprints: P(Poisson(20) > 64) of section 5.8; n = 1000 of section 5.10's second model, which is 10,000. The
thesis calls the list Poisson: its mean is right, but its variance is up to 1.5 times that (`variance_ratio`),
which a list of planned size must allow for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from evenbins.cluster.libraries import library
from evenbins.study.papers import plots
from evenbins.study.papers.kirsch_tables import OVERFLOW, SCHEMES, TABLE_5_1, TABLE_5_2
from evenbins.study.papers.registry import Context, Row, experiment, measured, row
from evenbins.study.papers.simulation import SimulatedTables, simulate_table
from evenbins.study.papers.trials import Run
from evenbins.study.theory import tables
from evenbins.theory import fluid, optimise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["simulated_steady_state"]

_KEYS = 10_000
_TAIL = "the thesis' 3.77e-15 is rounding noise of 1 - CDF; the tail's own sum is 1.319e-15"
_OFF_TARGET = "the thesis' shares have another overflow than its target of 0.2 %"
_FOUR_LEVELS_ONLY = (
    "the thesis' largest error is over all its configurations; ours over the rows of Table 5.1(b), which have"
    " its 100,000 trials"
)
_LARGEST_ALL = "the thesis' largest error is over all spaces of Figures 5.6 and 5.7; ours over the rows here"
_THEIR_MEAN = (
    "the thesis takes ten successive states of 1000 trials, nearly the same ones, so that its mean is good to"
    " 0.12 keys, and its shares are not printed; our samples are one mean lifetime apart"
)
_MODEL_2 = "the thesis' n = 1000 of the second model is a misprint: 10,000"

_Floats = npt.NDArray[np.float64]


# --- insertions only -------------------------------------------------------------------------------------


def _simulate_printed(context: Context, scheme: str, slots: int) -> SimulatedTables:
    """Simulate a row of Table 5.1(b); the second chance scheme with all the trials of the thesis."""
    focus = (scheme, slots) == ("second-chance", 1)
    return simulate_table(
        scheme, keys=_KEYS, shares=TABLE_5_1[scheme, 4, slots][2], slots=slots,
        trials=context.pick(100_000 if focus else 20_000, 1000),
        seed=context.stream(scheme, slots), threads=context.threads,
    )  # fmt: skip


_PROBABILITIES = (0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5,
                  0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999)  # fmt: skip


def _draw_normal(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw a normal probability plot: a normal law is a straight line."""
    special = library("scipy.special", "theory")

    axes = figure.subplots()
    for name, style, label in (("quantile", "o", "simulated"), ("quantile_normal", "-", "normal law")):
        points = [
            (each.ours, float(each.quantity.partition("(")[2][:-1]))
            for each in rows
            if each.quantity.startswith(f"{name}(")
        ]
        axes.plot(
            [at for at, _ in points],
            [special.ndtri(chance) for _, chance in points],
            style,
            ms=4,
            label=label,
        )
    axes.set_yticks(
        [special.ndtri(chance) for chance in _PROBABILITIES], [f"{each:g}" for each in _PROBABILITIES]
    )
    axes.set_xlabel("keys in level 4")
    axes.set_ylabel("probability (normal scale)")
    axes.grid(alpha=0.3)
    axes.legend()


def _quantiles(samples: _Floats, **where: Any) -> Iterator[Row]:
    """Return the quantiles of the samples, and those of the normal law of the same mean and variance."""
    special = library("scipy.special", "theory")

    mean, sd = float(samples.mean()), float(samples.std(ddof=1))
    for chance in _PROBABILITIES:
        yield row(f"quantile({chance:g})", float(np.quantile(samples, chance)), **where)
        yield row(f"quantile_normal({chance:g})", mean + sd * float(special.ndtri(chance)), **where)


def _normality(samples: _Floats, level: int, **where: Any) -> Iterator[Row]:
    """Return how normal the numbers are: moments, and the correlation of the normal probability plot."""
    special = library("scipy.special", "theory")

    sd = samples.std(ddof=1)
    centred = (samples - samples.mean()) / sd
    scores = special.ndtri((np.arange(samples.size) + 0.5) / samples.size)
    yield measured(f"held{level}", samples, **where)
    yield row(f"skewness{level}", float((centred**3).mean()), **where)
    yield row(f"kurtosis{level}", float((centred**4).mean() - 3), **where)
    yield row(f"correlation{level}", float(np.corrcoef(np.sort(samples), scores)[0, 1]), **where)


@experiment(
    "kirsch-fig5.4",
    title="Keys in level 4: normal probability plot, second chance, 10,000 keys",
    plot=_draw_normal,
)
def fig54(context: Context) -> Iterator[Row]:
    """The keys of each level over 100,000 tables, at the shares of Table 5.1(b); other schemes 20,000.

    `held4` is the number of keys in level 4 and `held4_theory` the equations'; `skewness4` and the excess
    `kurtosis4` are 0 for a normal law, and `correlation4`, of the points of the plot, 1. `quantile(p)` are
    the points of the figure, `quantile_normal(p)` its line.
    """
    for scheme, slots in context.track(SCHEMES):
        seen = _simulate_printed(context, scheme, slots)
        theory = fluid.solve(scheme, TABLE_5_1[scheme, 4, slots][2], slots)
        where: dict[str, Any] = {"scheme": scheme, "slots": slots}
        for level in range(4):
            held = seen.held[:, 0, level].astype(float)
            yield from _normality(held, level + 1, **where)
            predicted = _KEYS * theory.fills[level] * theory.shares[level] * slots
            yield row(f"held{level + 1}_theory", predicted, **where)
        if (scheme, slots) == ("second-chance", 1):
            yield from _quantiles(seen.held[:, 0, 3].astype(float), **where)


def _count(each: Row) -> float:
    return float(each.quantity[4:-1])


def _list_law(overflow: npt.NDArray[np.uint64], most: int, paper: float | None, note: str | None = None,
              **where: Any) -> Iterator[Row]:  # fmt: skip
    """Compare the numbers of keys on the list with Poisson's law of their mean."""
    special = library("scipy.special", "theory")

    mean = float(overflow.mean())
    ratio = float(overflow.var(ddof=1)) / mean
    counts = np.bincount(overflow.astype(np.int64), minlength=most + 1)
    reached = counts.cumsum() / overflow.size
    distance = np.abs(reached - special.pdtr(np.arange(reached.size), mean)).max()
    yield row("mean", mean, sd=float(overflow.std(ddof=1)), paper=paper, note=note, **where)
    yield row("variance_ratio", ratio, **where)
    yield row("distance", float(distance), **where)
    yield row("largest", float(overflow.max()), **where)
    yield row("tail_poisson", float(special.pdtrc(64, mean)), **where)
    if ratio > 1.001:  # negative binomial of this mean and variance: P(more than 64)
        tail = float(special.betainc(65, mean / (ratio - 1), 1 - 1 / ratio))
        yield row("tail_dispersed", tail, **where)
    for k in range(most + 1):
        yield row(f"cdf({k})", float(reached[k]), **where)


def _draw_cdf(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw the figure's scheme and Poisson's law; the other schemes are in the rows."""
    shown = [
        each
        for each in rows
        if each.quantity.startswith("cdf(")
        and (each.where["scheme"], each.where["slots"]) in (("poisson", 1), ("second-chance", 1))
    ]
    plots.lines(x=_count, y="cumulative probability", xlabel="keys on the overflow list")(figure, shown)


@experiment(
    "kirsch-fig5.5", title="Keys on the overflow list against Poisson(20), 10,000 keys", plot=_draw_cdf
)
def fig55(context: Context) -> Iterator[Row]:
    """The overflow list over 100,000 tables of the second chance scheme, 20,000 of the others, Table 5.1(b).

    `variance_ratio` is variance by mean, 1 for Poisson's law, and `variance_ratio_theory` that of the
    equations' diffusion limit; `distance` the largest difference of the distribution functions;
    `tail_poisson` the chance of more than 64 keys by Poisson's law of this mean, `tail_dispersed` by the
    negative binomial law of this mean and variance. The scheme "poisson" is Poisson(20) itself.
    """
    special = library("scipy.special", "theory")

    most = 45
    yield row("mean", 20.0, paper=20, scheme="poisson", slots=1)
    yield row(
        "tail_poisson", float(special.pdtrc(64, 20.0)), paper=3.77e-15, note=_TAIL, scheme="poisson", slots=1
    )
    for k in range(most + 1):
        yield row(f"cdf({k})", float(special.pdtr(k, 20.0)), scheme="poisson", slots=1)
    for scheme, slots in context.track(SCHEMES):
        seen = _simulate_printed(context, scheme, slots)
        yield from _list_law(seen.overflow[:, 0], most, 20.0, scheme=scheme, slots=slots)
        theory = optimise.overflow_distribution(scheme, TABLE_5_1[scheme, 4, slots][2], _KEYS, slots)
        yield row("variance_ratio_theory", theory.ratio, scheme=scheme, slots=slots)


def _compare(quantity: str, seen: _Floats, theory: float, **where: Any) -> tuple[float, float, list[Row]]:
    """Set a simulated fraction beside the equations': relative error, its standard error, rows."""
    error = float(seen.mean()) / theory - 1
    spread = float(seen.std(ddof=1)) / math.sqrt(seen.size) / theory
    rows = [
        measured(quantity, seen, **where),
        row(f"{quantity}_theory", theory, **where),
        row(f"{quantity}_error", error, **where),
        row(f"{quantity}_noise", spread, **where),
    ]
    return error, spread, rows


def _draw_errors(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw relative errors against the overflow that the equations give."""
    theory = {tuple(each.where.values()): each.ours for each in rows if each.quantity == "overflow_theory"}
    noise = {tuple(each.where.values()): each.ours for each in rows if each.quantity == "overflow_noise"}
    axes = figure.subplots()
    shown = [  # neither the summaries, nor what is too rare to be seen
        each
        for each in rows
        if each.quantity == "overflow_error" and theory.get(tuple(each.where.values()), 0.0) > 1e-7
    ]
    for i, name in enumerate(dict.fromkeys((each.where["scheme"], each.where["slots"]) for each in shown)):
        for mark, of_size in (("o", False), ("s", True)):
            points = [
                each
                for each in shown
                if (each.where["scheme"], each.where["slots"]) == name
                and (each.where.get("keys", _KEYS) != _KEYS) == of_size
            ]
            if not points:
                continue
            at = [tuple(each.where.values()) for each in points]
            label = None if of_size else f"{name[0]}, slots {name[1]}"
            axes.errorbar([theory[key] for key in at], [100 * each.ours for each in points],
                          [100 * noise[key] for key in at], fmt=mark, ms=3, capsize=2, lw=0.8, color=f"C{i}",
                          label=label)  # fmt: skip
    axes.plot([], [], "ks", ms=3, label="100,000 keys instead of 10,000")
    axes.axhline(0, color="k", lw=0.5)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_xlabel("overflow by the equations")
    axes.set_ylabel("relative error of the simulation, percent (bars: standard error)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="upper right")


@experiment(
    "kirsch-sec5.8",
    title="Equations against simulation: relative errors of overflow and moves",
    plot=_draw_errors,
)
def sec58(context: Context) -> Iterator[Row]:
    """Simulated tables of 10,000 and 100,000 keys at the shares of Table 5.1, 5.2 (equal) and Figure 5.2.

    Table 5.1(b) has the 100,000 trials of the thesis, the rest as many as give about 100,000 keys on the
    list, 5000 at most. `overflow_error` is simulated by predicted - 1, `overflow_noise` its standard error;
    the same for `moves`. Rows of levels "all" have the largest error of the four-level rows of Table 5.1.
    """
    worst: dict[tuple[str, int, int], float] = {}
    for shares, levels, scheme, slots, space, alphas, keys in context.track(_configurations(context)):
        theory = fluid.solve(scheme, alphas, slots)
        focus = shares == "printed" and levels == 4
        if focus:
            trials = 100_000 if keys == _KEYS else 1000
        else:
            trials = min(5000, max(200, round(100_000 / (keys * theory.overflow))))
        seen = simulate_table(
            scheme, keys=keys, shares=alphas, slots=slots,
            trials=context.pick(trials, 60 if keys == _KEYS else 10),
            seed=context.stream(shares, levels, scheme, slots, space, keys), threads=context.threads,
        )  # fmt: skip
        where: dict[str, Any] = {
            "shares": shares, "levels": levels, "scheme": scheme, "slots": slots, "space": space,
            "keys": keys,
        }  # fmt: skip
        # Of the table as it is, its levels rounded down.
        exact = fluid.solve(scheme, [each / keys for each in seen.buckets], slots)
        error, _, rows = _compare("overflow", seen.overflow_share[:, 0], exact.overflow, **where)
        if shares != "best":
            off = not 0.9 < exact.overflow / OVERFLOW < 1.1
            rows[0] = replace(rows[0], paper=OVERFLOW, note=_OFF_TARGET if off else None)
        yield from rows
        if focus:
            worst["overflow", slots, keys] = max(worst.get(("overflow", slots, keys), 0.0), abs(error))
        if scheme != "standard":
            error, _, rows = _compare("moves", seen.moves_share[:, 0], exact.moves, **where)
            if shares == "printed":
                rows[0] = replace(rows[0], paper=TABLE_5_1[scheme, levels, slots][1])
            yield from rows
            if focus:
                worst["moves", slots, keys] = max(worst.get(("moves", slots, keys), 0.0), abs(error))
    paper = {("overflow", 1, 10**4): 0.009, ("overflow", 2, 10**4): 0.048, ("moves", 1, 10**4): 0.0033,
             ("moves", 2, 10**4): 0.0015, ("overflow", 2, 10**5): 0.01,
             ("moves", 2, 10**5): 0.00012}  # fmt: skip
    for (quantity, slots, keys), largest in worst.items():
        yield row(
            f"{quantity}_error", largest, paper=paper.get((quantity, slots, keys)), note=_FOUR_LEVELS_ONLY,
            shares="printed", levels="all", scheme="all", slots=slots, space="all", keys=keys,
        )  # fmt: skip


_Configuration = tuple[str, int, str, int, float, tuple[float, ...], int]


def _configurations(context: Context) -> list[_Configuration]:
    """List what section 5.8 simulates: shares, levels, scheme, slots, space, the shares, keys."""
    out: list[_Configuration] = []
    for (scheme, levels, slots), (space, _, alphas) in TABLE_5_1.items():
        out.append(("printed", levels, scheme, slots, space, alphas, _KEYS))
        if levels == 4:
            out.append(("printed", levels, scheme, slots, space, alphas, 10 * _KEYS))
    for scheme, slots in SCHEMES:
        space = TABLE_5_2[scheme, slots][0]
        alphas = tables.naive_shares(4, space, slots)
        out.append(("equal", 4, scheme, slots, space, alphas, _KEYS))
        for space in context.pick((1.2, 1.6, 2.0), (1.2,)):
            alphas = tuple(optimise.shares(scheme, 4, space, slots))
            out.append(("best", 4, scheme, slots, space, alphas, _KEYS))
    return out


# --- insertions and deletions ----------------------------------------------------------------------------


def simulated_steady_state(
    scheme: str,
    shares: Sequence[float],
    slots: int = 1,
    *,
    model: str = "replace",
    keys: int = _KEYS,
    side: str = "any",
    **run: Unpack[Run],
) -> SimulatedTables:
    """Simulate a table under endless deletions and insertions: ten samples a trial, one lifetime apart.

    Parameters
    ----------
    scheme, shares, slots, keys, side, run
        As for `simulate_table`.
    model
        Its `process`: ``"replace"``, the thesis' first model, or ``"poisson"``, its second.

    Examples
    --------
    >>> seen = simulated_steady_state("second-chance", [0.5] * 4, keys=1000, trials=20)
    >>> round(float(seen.overflow_share.mean()), 3)
    0.003
    """
    interval = keys if model == "replace" else 2 * keys  # a lifetime has n arrivals and n departures
    return simulate_table(
        scheme, keys=keys, shares=shares, slots=slots, process=model, side=side, samples=10,
        interval=interval, **run,
    )  # fmt: skip


def _second_chance_two(context: Context) -> tuple[tuple[float, ...], SimulatedTables]:
    """Simulate the configuration of Figures 5.8 and 5.9."""
    shares = tuple(optimise.shares("second-chance", 4, 2.0, deletions=True))
    seen = simulated_steady_state(
        "second-chance", shares, trials=context.pick(1000, 20), seed=context.stream(), threads=context.threads
    )
    return shares, seen


@experiment(
    "kirsch-fig5.8",
    title="Deletions: keys in level 4, normal probability plot; section 5.10",
    plot=_draw_normal,
)
def fig58(context: Context) -> Iterator[Row]:
    """Second chance under deletions, space 2, model "replace": 10,000 samples of 1000 tables, as Figure 5.4.

    Then section 5.10, both models: `overflow` and its equation's, at the best shares for some spaces;
    `moves`; `variance_ratio` of the list, larger if the number of keys varies ("poisson"); and what has no
    equation: the other schemes, at equal shares, the extreme one with moves to any side and to the right
    only.
    """
    shares, seen = _second_chance_two(context)
    where: dict[str, Any] = {
        "scheme": "second-chance", "slots": 1, "space": 2.0, "shares": "figure", "model": "replace",
        "side": "right",
    }  # fmt: skip
    theory = fluid.steady_state("second-chance", shares)
    yield measured("overflow", seen.overflow_share.mean(axis=1), paper=0.00146, note=_THEIR_MEAN, **where)
    yield row("overflow_theory", theory.overflow, paper=0.00146, **where)
    for level in range(4):
        yield from _normality(seen.held[:, :, level].ravel().astype(float), level + 1, **where)
        yield row(f"held{level + 1}_theory", _KEYS * theory.fills[level] * shares[level], **where)
    yield from _quantiles(seen.held[:, :, 3].ravel().astype(float), **where)
    yield from _section_510(context)


_PRINTED_ERRORS = {  # section 5.10: overflow above 0.001
    ("replace", "standard", 1): 0.0047,
    ("replace", "second-chance", 1): 0.0175,
    ("replace", "standard", 2): 0.0169,
    ("poisson", "standard", 1): 0.0095,
    ("poisson", "second-chance", 1): 0.0155,
    ("poisson", "standard", 2): 0.0092,
}


def _section_510(context: Context) -> Iterator[Row]:
    spaces = context.pick((1.2, 1.6, 2.0), (1.6,))
    solvable = (("standard", 1), ("second-chance", 1), ("standard", 2))
    points = [
        (model, scheme, slots, space)
        for model in ("replace", "poisson")
        for scheme, slots in solvable
        for space in spaces
    ]
    worst = dict.fromkeys(((model, scheme, slots) for model, scheme, slots, _ in points), 0.0)
    fill = dict.fromkeys(("replace", "poisson"), 0.0)
    for model, scheme, slots, space in context.track(points):
        shares = tuple(optimise.shares(scheme, 4, space, slots, deletions=True))
        guess = fluid.steady_state(scheme, shares, slots).overflow
        trials = min(1000, max(200, round(8000 / (_KEYS * guess))))
        seen = simulated_steady_state(
            scheme, shares, slots, model=model, trials=context.pick(trials, 4),
            seed=context.stream(model, scheme, slots, space), threads=context.threads,
        )  # fmt: skip
        theory = fluid.steady_state(scheme, [each / _KEYS for each in seen.buckets], slots)
        side = "right" if scheme == "second-chance" else "none"
        where: dict[str, Any] = {
            "scheme": scheme, "slots": slots, "space": space, "shares": "best", "model": model, "side": side,
        }  # fmt: skip
        error, _, rows = _compare("overflow", seen.overflow_share.mean(axis=1), theory.overflow, **where)
        yield from rows
        yield _dispersion(seen, **where)
        if theory.moves:
            yield from _compare("moves", seen.late_moves, theory.moves, **where)[2]
        if theory.overflow > 1e-3:
            worst[model, scheme, slots] = max(worst[model, scheme, slots], abs(error))
        third = float(seen.fills[:, :, 2].mean()) / theory.fills[2] - 1
        fill[model] = max(fill[model], abs(third))
    for (model, scheme, slots), largest in worst.items():
        if largest:
            yield row(
                "overflow_error", largest, paper=_PRINTED_ERRORS[model, scheme, slots], note=_LARGEST_ALL,
                scheme=scheme, slots=slots, space="above 1e-3", shares="best", model=model, side="all",
            )  # fmt: skip
    for model, largest in fill.items():
        yield row(
            "fill3_error", largest, paper={"replace": 0.0018, "poisson": 0.0025}[model],
            note=_MODEL_2 if model == "poisson" else _LARGEST_ALL,
            scheme="all", slots="all", space="all", shares="best", model=model, side="all",
        )  # fmt: skip
    for scheme, slots, side in (
        ("standard", 1, "none"),
        ("conservative", 1, "right"),
        ("second-chance", 1, "right"),
        ("extreme-second-chance", 1, "right"),
        ("extreme-second-chance", 1, "any"),
        ("standard", 2, "none"),
        ("second-chance", 2, "right"),
    ):
        for space in context.pick((1.2, 1.6, 2.0), (1.6,)):
            seen = simulated_steady_state(
                scheme, tables.naive_shares(4, space, slots), slots, trials=context.pick(100, 4),
                side=side if scheme == "extreme-second-chance" else "any",
                seed=context.stream("equal", scheme, slots, side, space), threads=context.threads,
            )  # fmt: skip
            where = {
                "scheme": scheme, "slots": slots, "space": space, "shares": "equal", "model": "replace",
                "side": side,
            }  # fmt: skip
            yield measured("overflow", seen.overflow_share.mean(axis=1), **where)
            yield measured("moves", seen.late_moves, **where)
            yield _dispersion(seen, **where)


def _dispersion(seen: SimulatedTables, **where: Any) -> Row:
    """Return variance by mean of the list's keys; 1, Poisson's, if there never was one."""
    mean = float(seen.overflow.mean())
    return row("variance_ratio", float(seen.overflow.var()) / mean if mean else 1.0, **where)


@experiment(
    "kirsch-fig5.9", title="Deletions: keys on the overflow list against Poisson's law", plot=_draw_cdf
)
def fig59(context: Context) -> Iterator[Row]:
    """Second chance under deletions, space 2, model "replace": 10,000 samples of 1000 tables, as Figure 5.5.

    The scheme "poisson" is Poisson's law of the simulated mean, as in the thesis.
    """
    special = library("scipy.special", "theory")

    most = 40
    _, seen = _second_chance_two(context)
    mean = float(seen.overflow.mean())
    for k in range(most + 1):
        yield row(f"cdf({k})", float(special.pdtr(k, mean)), scheme="poisson", slots=1)
    yield from _list_law(seen.overflow.ravel(), most, 14.6, _THEIR_MEAN, scheme="second-chance", slots=1)

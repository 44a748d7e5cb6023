"""Experiments of chapters 2 and 3 of Kirsch's thesis.

A. Kirsch, "Hash-Based Data Structures for Extreme Conditions" (2008).

Chapter 2.1 is the counting Bloom filter, chapter 3 Bloom filters and count-min sketches that get along with
two hash functions. As in the thesis, hash functions are fully random: h1, h2, h3 of a key are drawn, in C++
(`simulation.simulate_hashing`), so that what is measured is the scheme and nothing else.

Its figures are lost in our copy; `paper` has what its text prints. `fpr_theory` and its like come from
`evenbins.study.theory.less_hashing`. Misprints: the overflow probability of section 2.1.2 (1.78e-11) is
rounding noise; the curve of Figure 3.2 should be the binomial's, which the normal density misses; Theorem
3.8.1 means d, not delta.

A partition scheme needs k to divide m; where it does not, parts have m/k bits, rounded down.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from evenbins.study.papers import plots
from evenbins.study.papers.registry import Context, Row, experiment, measured, row
from evenbins.study.papers.simulation import simulate, simulate_hashing
from evenbins.study.theory import less_hashing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SCHEMES = {  # name in rows: hashing, offset
    "independent": ("independent", "square"),
    "partition": ("partition", "square"),
    "double": ("double", "square"),
    "enhanced-double, square": ("enhanced-double", "square"),
    "enhanced-double, cube": ("enhanced-double", "cube"),
    "triple": ("triple", "square"),
}
_OF_THESIS = tuple(_SCHEMES)[:5]  # section 3.7
_P_PRINTED = 0.021577  # section 3.7, for c = 8

_NOISE = (
    "the thesis' 1.78e-11 is 80000 * 2**-52: 1 - CDF, of which rounding leaves one bit; the tail's own sum is"
    " 5.658e-12"
)
_NOT_INTEGER = "k = 8 ln 2 is no integer, as the thesis says itself"
_NORMAL = (
    "the thesis draws the normal density; for a mean of 10 it misses the skewness, and the binomial fits"
)
_MISPRINT_D = "the thesis' 'delta >= ln ...' is the depth d >= ln(1/(epsilon (1 - 1/(2 e**2))))"


# --- section 2.1: counting Bloom filters -----------------------------------------------------------------


@experiment(
    "kirsch-sec2.1.2",
    title="The chance that some counter of a counting filter overflows: 10,000 keys, 80,000 counters",
    plot=plots.lines(x="counter_bits", y="probability, or its bound", log=True),
)
def sec212(context: Context) -> Iterator[Row]:
    """The union bound m P(Poisson(ln 2) >= 2**b), summed from its tail.

    `overflow_cancelled` is what 1 - CDF leaves of it in double precision, `overflow_simulated` the part of
    simulated filters with an overflow, where that can be seen, `fpr` the filter's rate 2**-k.
    """
    keys, counters = 10_000, 80_000
    trials = context.pick(20_000, 500)
    throws = round(counters * math.log(2))
    seen = simulate("plain", keys=throws, bins=counters, trials=trials, seed=context.stream(),
                    threads=context.threads)  # fmt: skip
    for counter_bits in context.track(range(2, 7)):
        most = 2**counter_bits
        bound = counters * _poisson_tail(math.log(2), most)
        printed = counter_bits == 4
        yield row(
            "overflow", min(bound, 1.0), counter_bits=counter_bits,
            paper=1.78e-11 if printed else None, note=_NOISE if printed else None,
        )  # fmt: skip
        head = sum(_poisson(math.log(2), i) for i in range(most))
        yield row("overflow_cancelled", min(counters * abs(1.0 - head), 1.0), counter_bits=counter_bits)
        if bound > 1 / trials:
            hit = seen.loads[:, 0, 0, most:].sum(axis=1) > 0
            yield measured("overflow_simulated", hit, counter_bits=counter_bits)
    rate = 0.5 ** (counters / keys * math.log(2))
    yield row("fpr", rate, counter_bits=4, paper=0.0214, note=_NOT_INTEGER)


def _poisson(mean: float, i: int) -> float:
    return math.exp(-mean + i * math.log(mean) - math.lgamma(i + 1))


def _poisson_tail(mean: float, first: int) -> float:
    """Sum P(Poisson(mean) >= first) from its terms, the small ones first."""
    return math.fsum(_poisson(mean, i) for i in range(first + 60, first - 1, -1))


# --- section 3.7: five schemes ---------------------------------------------------------------------------


@experiment(
    "kirsch-fig3.1",
    title="False-positive probability of hashing schemes",
    plot=plots.lines(x="bits_per_key", y="false-positive probability", log=True, panel="keys"),
)
def fig31(context: Context) -> Iterator[Row]:
    """10,000 filters a point, each asked for ceil(10/p) absent keys, p the limit; k is floor or ceil of c
    ln 2.

    `fpr_theory` includes the floor of the scheme, `fpr_limit` is p. The standard deviation is of one trial:
    mostly the binomial's, since p q = 10 false positives are expected in each.
    """
    points = [
        (name, keys, bits_per_key)
        for keys in (1000, 5000, 10_000)
        for bits_per_key in (4, 8, 12, 16)
        for name in _OF_THESIS
    ]
    for name, keys, bits_per_key in context.track(points):
        hashing, offset = _SCHEMES[name]
        hashes, limit = _best_hashes(bits_per_key)
        seen = simulate_hashing(
            hashing, bits=keys * bits_per_key, hashes=hashes, keys=keys, queries=math.ceil(10 / limit),
            offset=offset, trials=context.pick(10_000, 200),
            seed=context.stream(name, keys, bits_per_key), threads=context.threads,
        )  # fmt: skip
        theory = less_hashing.rate(hashing, keys * bits_per_key, hashes, keys, offset=offset)
        yield measured("fpr", seen.fpr, hashing=name, keys=keys, bits_per_key=bits_per_key)
        yield row("fpr_theory", theory, hashing=name, keys=keys, bits_per_key=bits_per_key)
        if name == "independent":
            paper = _P_PRINTED if bits_per_key == 8 else None
            yield row("fpr_limit", limit, paper=paper, hashing=name, keys=keys, bits_per_key=bits_per_key)


def _best_hashes(bits_per_key: int) -> tuple[int, float]:
    """Return k, floor or ceil of c ln 2 (section 3.7 prints ceil twice), whichever has the lower p; and p."""
    below = math.floor(bits_per_key * math.log(2))
    limits = {hashes: less_hashing.limit(hashes**2 / bits_per_key, hashes) for hashes in (below, below + 1)}
    best = min(limits, key=lambda hashes: limits[hashes])
    return best, limits[best]


@experiment(
    "kirsch-fig3.2",
    title="False positives among 464 queries: 5000 keys, 8 bits each",
    plot=plots.lines(
        x=lambda each: float(each.quantity.partition(")")[0][2:]),
        y="probability",
        xlabel="false positives Q",
        quantities=[f"P({q})" for q in range(25)],
    ),
)
def fig32(context: Context) -> Iterator[Row]:
    """The distribution of Q over 10,000 filters, and how well three laws fit: chi-squared per degree of
    freedom.

    `fit` is against Binomial(464, p), p the limit; `fit_theory` against Binomial(464, probability of this
    scheme); `fit_normal` against the thesis' normal density. About 1 is a fit. The scheme "limit" is
    Binomial(464, p) itself.
    """
    keys, bits_per_key = 5000, 8
    hashes, limit = _best_hashes(bits_per_key)
    queries = math.ceil(10 / limit)
    spread = math.sqrt(queries * limit * (1 - limit))
    yield row("p", limit, paper=_P_PRINTED, scheme="limit")
    yield row("queries", queries, paper=464, scheme="limit")
    yield row("mean", queries * limit, scheme="limit")
    yield row("sd", spread, scheme="limit")
    binomial = _binomial(queries, limit)
    for q in range(25):
        yield row(f"P({q})", binomial[q], scheme="limit")
    at = np.arange(queries + 1)
    density = np.exp(-((at - queries * limit) ** 2) / (2 * spread**2)) / (spread * math.sqrt(2 * math.pi))
    trials = context.pick(10_000, 1000)
    for name in context.track(_OF_THESIS):
        hashing, offset = _SCHEMES[name]
        seen = simulate_hashing(
            hashing, bits=keys * bits_per_key, hashes=hashes, keys=keys, queries=queries, offset=offset,
            trials=trials, seed=context.stream(name), threads=context.threads,
        )  # fmt: skip
        theory = less_hashing.rate(hashing, keys * bits_per_key, hashes, keys, offset=offset)
        counts = np.bincount(seen.positives.astype(np.int64), minlength=queries + 1)
        yield row("mean", float(seen.positives.mean()), scheme=name)
        yield row("sd", float(seen.positives.std(ddof=1)), scheme=name)
        yield row("fit", _fit(counts, binomial), scheme=name)
        yield row("fit_theory", _fit(counts, _binomial(queries, theory)), scheme=name)
        yield row("fit_normal", _fit(counts, density), note=_NORMAL, scheme=name)
        for q in range(25):
            yield row(f"P({q})", counts[q] / trials, scheme=name)


def _binomial(trials: int, chance: float) -> npt.NDArray[np.float64]:
    """Return P(0) to P(trials), by ratios from the mode outward."""
    mode = int((trials + 1) * chance)
    out = np.zeros(trials + 1)
    out[mode] = 1.0
    for i in range(mode, trials):
        out[i + 1] = out[i] * (trials - i) / (i + 1) * chance / (1 - chance)
    for i in range(mode, 0, -1):
        out[i - 1] = out[i] * i / (trials - i + 1) * (1 - chance) / chance
    out /= out.sum()
    return out


def _fit(counts: npt.NDArray[np.int64], chances: npt.NDArray[np.float64]) -> float:
    """Return chi-squared per degree of freedom; cells of fewer than 5 expected are joined to neighbours."""
    expected = counts.sum() * chances
    first, last = 0, len(expected) - 1
    while expected[: first + 1].sum() < 5:
        first += 1
    while expected[last:].sum() < 5:
        last -= 1
    cells = [slice(0, first + 1), *(slice(i, i + 1) for i in range(first + 1, last)), slice(last, None)]
    seen = np.array([counts[each].sum() for each in cells], dtype=float)
    wanted = np.array([expected[each].sum() for each in cells])
    return float(((seen - wanted) ** 2 / wanted).sum() / (len(cells) - 1))


# --- section 3.5: rate of convergence --------------------------------------------------------------------


def _draw_gaps(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw measured and predicted gaps; error bars are standard errors, since one trial says nothing."""
    errors = {tuple(each.where.values()): each.ours for each in rows if each.quantity == "gap_error"}
    shown = [
        replace(each, sd=errors[tuple(each.where.values())]) if each.quantity == "gap" else each
        for each in rows
        if each.quantity in ("gap", "gap_theory")
    ]
    plots.lines(x="keys", y="n · |probability - limit|")(figure, shown)


@experiment(
    "kirsch-sec3.5", title="Convergence: n times the distance from the limit, 8 bits a key", plot=_draw_gaps
)
def sec35(context: Context) -> Iterator[Row]:
    """Theorem 3.5.2 says that n times the distance is bounded. `gap` is measured, `gap_theory` predicted.

    `gap_bound` is the theorem with its constants, n if it says nothing; `gap_error` is the standard error
    of `gap`, above which it is noise. Sizes are multiples of 3, so that partitions have no bits left over.
    """
    bits_per_key, hashes = 8, 6
    limit = less_hashing.limit(hashes**2 / bits_per_key, hashes)
    sizes = context.pick((300, 600, 1200, 2400, 4800, 9600), (300, 1200))
    for name, keys in context.track([(name, keys) for name in _SCHEMES for keys in sizes]):
        hashing, offset = _SCHEMES[name]
        trials = context.pick(10_000, 1000)
        seen = simulate_hashing(
            hashing, bits=keys * bits_per_key, hashes=hashes, keys=keys,
            queries=context.pick(20_000, 4000), offset=offset, trials=trials,
            seed=context.stream(name, keys), threads=context.threads,
        )  # fmt: skip
        arguments = (hashing, keys * bits_per_key, hashes, keys)
        theory = less_hashing.rate(*arguments, offset=offset)
        bound = less_hashing.convergence_bound(*arguments, offset=offset)
        spread = float(seen.fpr.std(ddof=1))
        gap = keys * abs(float(seen.fpr.mean()) - limit)
        yield row("gap", gap, sd=keys * spread, scheme=name, keys=keys)
        yield row("gap_error", keys * spread / math.sqrt(trials), scheme=name, keys=keys)
        yield row("gap_theory", keys * abs(theory - limit), scheme=name, keys=keys)
        yield row("gap_bound", keys * bound, scheme=name, keys=keys)


# --- section 3.8: count-min with two hash functions ------------------------------------------------------


@experiment(
    "kirsch-thm3.8.1",
    title="Count-min sketch with two hash functions: estimates above the error bound",
    plot=plots.lines(
        x="epsilon",
        y="fraction of the queries",
        quantities=["failure", "failure_bound", "failure_theory"],
        log=True,
    ),
)
def thm381(context: Context) -> Iterator[Row]:
    """Streams of total weight 1: an absent item's estimate fails if it exceeds epsilon, a present one's by
    it.

    ``zipf`` has 10,000 items, the r-th of weight 1/r; ``heavy`` as many equal items as can exceed epsilon
    each, the worst for an absent item, where a failure is a false positive of the partition scheme
    (`failure_theory`); ``present`` asks ``heavy`` for its own items. `underestimates` must be 0, and
    `failure_classical` is a sketch of the same size with d independent functions.
    """
    for stream, epsilon in context.track(
        [(stream, epsilon) for stream in ("zipf", "heavy", "present") for epsilon in (0.1, 0.03, 0.01)]
    ):
        width = _next_prime(math.ceil(2 * math.e / epsilon))
        depth = math.ceil(math.log(1 / (epsilon * (1 - 1 / (2 * math.e**2)))))
        items = 10_000 if stream == "zipf" else math.ceil(1 / epsilon) - 1
        weights = 1 / np.arange(1.0, items + 1) if stream == "zipf" else np.ones(items)
        weights /= weights.sum()
        rng = context.rng(stream, epsilon)
        trials, queries = context.pick((1000, 20_000), (50, 10_000))
        failure, classical, under = np.zeros(trials), np.zeros(trials), np.zeros(trials)
        for trial in range(trials):
            for two_functions, out in ((True, failure), (False, classical)):
                rows_ = _rows(rng, items, depth, width, two_functions)
                counters = np.stack([np.bincount(each, weights, width) for each in rows_])
                if stream == "present":
                    asked, truth = rows_, weights
                else:
                    asked, truth = _rows(rng, queries, depth, width, two_functions), np.zeros(1)
                estimates = counters[np.arange(depth)[:, None], asked].min(axis=0)
                out[trial] = (estimates > truth + epsilon).mean()
                under[trial] += (estimates < truth * (1 - 1e-12)).sum()
        where: dict[str, Any] = {"stream": stream, "epsilon": epsilon}
        bound = 2 / (epsilon * width**2) + (2 / (epsilon * width)) ** depth
        yield measured("failure", failure, **where)
        yield row("failure_bound", bound, note=_MISPRINT_D, **where)
        yield measured("failure_classical", classical, **where)
        if stream == "heavy":
            theory = less_hashing.rate("partition", width * depth, depth, items)
            yield row("failure_theory", theory, **where)
        yield row("underestimates", float(under.sum()), **where)
        yield row("width", width, **where)
        yield row("depth", depth, **where)


def _rows(
    rng: np.random.Generator, count: int, depth: int, width: int, two_functions: bool
) -> npt.NDArray[np.int64]:
    """Draw the counters of `count` items: [row, item]."""
    if not two_functions:
        return rng.integers(0, width, (depth, count))
    h1, h2 = rng.integers(0, width, (2, count))
    rows_: npt.NDArray[np.int64] = (h1 + np.arange(depth)[:, None] * h2) % width
    return rows_


def _next_prime(number: int) -> int:
    while any(number % d == 0 for d in range(2, math.isqrt(number) + 1)):
        number += 1
    return number

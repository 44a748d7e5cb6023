"""Summaries of tables: chapter 4 of Kirsch's thesis.

A. Kirsch, "Hash-Based Data Structures for Extreme Conditions" (2008).

    the table       kirsch-table4.1, kirsch-table4.2   keys in each sub-table, exact and by means
    summaries       kirsch-table4.3   bytes, false positives, failure + crisis, as its formulas say
                    kirsch-sec4.3     Song et al.'s counters, simulated
                    kirsch-sec4.9     the single filter, simulated
    deletions       kirsch-sec4.10.1  keys that a rebuild moves    kirsch-sec4.10.2  how large counters become

The mathematics is `evenbins.study.theory.multilevel`, the simulations
`evenbins.study.papers.summary_simulation`. `keys` of Tables 4.1 and 4.2 belong to a level; everywhere else
they are those of the whole table.

Misprints: six sub-tables need filters B_0 ... B_5, the thesis prints five, whose sizes make 385,875 bytes and
not 379,000; the crisis probability for 100,000 keys, 7.78e-16, is the rounding error of 1 - P(0), right is
6.64e-24; the largest M of section 4.10.1, 113, is about 143.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from evenbins.study.papers import plots
from evenbins.study.papers.registry import Context, Row, experiment, measured, row
from evenbins.study.papers.summary_simulation import (
    simulate_counters,
    simulate_rebuild,
    simulate_song,
    simulate_summary,
)
from evenbins.study.theory import multilevel

SIZES = {
    10_000: (40_000, 10_000, 5_000, 2_500, 2_500),
    100_000: (400_000, 100_000, 50_000, 25_000, 12_500, 12_500),
}
"""Sub-tables of section 4.8, by keys."""

FILTERS = {
    10_000: ((106_000, 7), (87_500, 49), (5_500, 49), (500, 49), (100, 49)),
    100_000: ((1_060_000, 7), (875_000, 49), (550_000, 49), (1_000, 49), (1_000, 49), (1_000, 49)),
}
"""Its multiple Bloom filters, bits and hashes; the last one of 100,000 keys is ours."""

SINGLE = {10_000: (120_000, 15), 100_000: (1_200_000, 15)}
"""Its single filters, cells and hashes."""

DIGEST_BITS = {10_000: 55, 100_000: 61}

_TABLE_4_1 = (
    (30_000, 15_000, 7_500, 3_750, 1_875),
    (8504.18, 1423.67, 71.80, 0.35, 1.62e-5),
    (8504.18, 1423.70, 71.78, 0.34, -3.00e-5),
)
_TABLE_4_2 = (
    SIZES[10_000],
    (8848.07, 1088.08, 63.45, 0.41, 3.37e-5),
    (8848.07, 1088.11, 63.42, 0.40, -4.80e-5),
)
_TABLE_4_3 = {  # bytes, false positives, failure + crisis
    ("interpolation", 10_000): (80_000, 2.78e-13, 1.39e-9),
    ("single-filter", 10_000): (47_500, 0.006, 7.64e-10),
    ("multiple-bloom", 10_000): (32_450, 0.006, 4.97e-12),
    ("interpolation", 100_000): (875_000, 4.34e-14, 2.17e-9),
    ("single-filter", 100_000): (525_000, 0.006, 7.27e-9),
    ("multiple-bloom", 100_000): (379_000, 0.006, 1.38e-11),
}
_SONG = (10_000, 131_072, 10)  # keys, buckets, hashes

_APPROXIMATE = "(1 - 1/m)**x keys miss a bucket; exp(-x/m) would not give the thesis' digits"
_CANCELLED = "the thesis' 7.78e-16 is the rounding error of 1 - P(0)"
_FIVE_FILTERS = (
    "the five sizes that the thesis prints give 385,875 bytes, not 379,000; six sub-tables need a sixth "
    "filter, here of 1000 bits; B2 may be as small as 55,000 bits"
)
_LARGEST = (
    "the thesis' 113 cannot be: with a mean of 97 and a standard deviation of 9.7, 1e5 trials reach about 143"
)


# --- sections 4.5, 4.8: what the formulas say ------------------------------------------------------------


def _levels(sizes: tuple[int, ...], exact: tuple[float, ...], means: tuple[float, ...]) -> Iterator[Row]:
    found = multilevel.expected_keys(10_000, sizes)
    rough = multilevel.expected_keys(10_000, sizes, approximate=True)
    for level, numbers in enumerate(zip(found, exact, rough, means, strict=True), 1):
        yield row("keys", numbers[0], paper=numbers[1], level=level)
        yield row("keys_approximate", numbers[2], paper=numbers[3], note=_APPROXIMATE, level=level)


_levels_plot = plots.lines(x="level", y="keys", quantities=["keys"], log=True, xlabel="sub-table")


@experiment(
    "kirsch-table4.1", title="Expected keys in the sub-tables of a multilevel table", plot=_levels_plot
)
def table41(context: Context) -> Iterator[Row]:
    """10,000 keys, c1 = 3, c2 = 1/2: exact, and by the thesis' heuristic, which ends below zero."""
    return _levels(*_TABLE_4_1)


@experiment(
    "kirsch-table4.2", title="The same for a table with an enlarged first sub-table", plot=_levels_plot
)
def table42(context: Context) -> Iterator[Row]:
    """10,000 keys in sub-tables of 40,000, 10,000, 5,000, 2,500 and 2,500 buckets."""
    return _levels(*_TABLE_4_2)


@experiment(
    "kirsch-table4.3",
    title="Summaries: bytes, false positives, failures",
    plot=plots.lines(
        x="keys", y="failure + crisis", quantities=["failure"], log=True, xlabel="keys in the table"
    ),
)
def table43(context: Context) -> Iterator[Row]:
    """Three summaries for 10,000 and 100,000 keys, and Song et al.'s counters.

    `failure` is failure + crisis, by the thesis' partitioned formula; `failure_exact` has filters as its
    section 4.8 wants the multiple ones, not partitioned. `bytes` include the bit table.
    """
    for (scheme, keys), (space, positives, failure) in _TABLE_4_3.items():
        where: dict[str, Any] = {"scheme": scheme, "keys": keys}
        sizes = SIZES[keys]
        crisis = multilevel.crisis_probability(keys, sizes)
        note = _FIVE_FILTERS if (scheme, keys) == ("multiple-bloom", 100_000) else None
        told: dict[bool, float] = {}
        for partitioned in (True, False):
            if scheme == "interpolation":
                told[partitioned] = multilevel.interpolation_failure(keys, DIGEST_BITS[keys])
            elif scheme == "single-filter":
                told[partitioned] = sum(
                    multilevel.single_filter_failures(keys, sizes, *SINGLE[keys], partitioned=partitioned)
                )
            else:
                told[partitioned] = sum(
                    multilevel.multiple_bloom_failures(keys, sizes, FILTERS[keys], partitioned=partitioned)
                )
        if scheme == "interpolation":
            nbytes = multilevel.interpolation_bytes(keys, sizes, DIGEST_BITS[keys])
            rate = multilevel.interpolation_false_positives(keys, DIGEST_BITS[keys])
        elif scheme == "single-filter":
            nbytes = multilevel.single_filter_bytes(sizes, SINGLE[keys][0])
            rate = multilevel.filter_rate(*SINGLE[keys], keys)
        else:
            nbytes = multilevel.multiple_bloom_bytes(sizes, FILTERS[keys])
            rate = multilevel.filter_rate(*FILTERS[keys][0], keys)
        yield Row(where, "buckets", 6 * keys, sum(sizes))
        yield Row(where, "bytes", space, nbytes, note=note)
        yield Row(where, "false_positives", positives, rate)
        yield Row(where, "failure", failure, told[True] + crisis, note=note)
        yield Row(where, "failure_exact", None, told[False] + crisis)
        yield Row(
            where, "crisis", {10_000: 1.01e-12, 100_000: 7.78e-16}[keys], crisis,
            note=_CANCELLED if keys == 100_000 else None,
        )  # fmt: skip
    keys, buckets, hashes = _SONG
    yield row("buckets", buckets, paper=131_072, scheme="counters", keys=keys)
    yield row(
        "bytes", multilevel.counters_bytes(buckets), paper=49_152, scheme="counters", keys=keys,
        note="counters of three bits, which also say whether a bucket is empty",
    )  # fmt: skip
    rate = multilevel.counters_false_positives(keys, buckets, hashes)
    yield row("false_positives", rate, paper=0.002, scheme="counters", keys=keys)


# --- sections 4.3, 4.9: by simulation --------------------------------------------------------------------


@experiment(
    "kirsch-sec4.3",
    title="Song et al.'s counters with pruning",
    plot=plots.lines(x="hashes", y="keys beyond the first of a bucket", quantities=["crowded"]),
)
def sec43(context: Context) -> Iterator[Row]:
    """10,000 keys in 131,072 buckets; 10 hashes are the sample configuration of Table 4.3.

    `false_positives`; after pruning the largest load of a bucket in any table (`load`) and on the mean
    (`load_mean`), the keys beyond the first of their bucket (`crowded`), the fraction of tables that have
    such a key (`crisis`); the largest counter (`counter`), and keys whose counters are all 7 or more
    (`stuck`), which three bits could not tell apart.
    """
    keys, buckets, _ = _SONG
    trials = context.pick(30_000, 300)
    choices = context.pick((4, 6, 8, 10, 12), (10,))
    for part, hashes in enumerate(choices):
        here: dict[str, Any] = {"keys": keys, "buckets": buckets, "hashes": hashes}
        seen = simulate_song(
            keys, buckets, hashes, trials=trials if hashes == 10 else -(-trials // 10),
            seed=context.stream(hashes), threads=context.threads, progress=_part(context, part, len(choices)),
        )  # fmt: skip
        paper = 0.002 if hashes == 10 else None
        yield measured("false_positives", seen.false_positives, paper=paper, **here)
        theory = multilevel.counters_false_positives(keys, buckets, hashes)
        yield row("false_positives_theory", theory, paper=paper, **here)
        yield row("load", seen.largest.max(), **here)
        yield measured("load_mean", seen.largest, **here)
        yield measured("crowded", seen.crowded, **here)
        yield measured("crisis", seen.crowded > 0, **here)
        yield row("counter", seen.highest.max(), **here)
        yield row("stuck", seen.stuck.sum(), **here)


_SINGLE_FILTERS = (  # cells, hashes, what the thesis saw in a million trials and computed
    (120_000, 15, 0, 7.63e-10),
    (100_000, 10, 1, 2.1e-6),
)


@experiment(
    "kirsch-sec4.9",
    title="The single filter for 10,000 keys, by simulation",
    plot=plots.lines(x="cells", y="tables with a failure", quantities=["failure", "failure_theory"]),
)
def sec49(context: Context) -> Iterator[Row]:
    """A million tables with each filter: that of Table 4.3, and one of 100,000 cells and 10 hashes.

    `failures`: tables in which a key is told to be where it is not; `failures_theory` what the formula gives
    for so many tables. `failure` is the fraction, `crises` the tables without a place for some key.
    """
    sizes = SIZES[10_000]
    trials = context.pick(1_000_000, 3_000)
    for part, (cells, hashes, paper, bound) in enumerate(_SINGLE_FILTERS):
        here: dict[str, Any] = {"cells": cells, "hashes": hashes}
        seen = simulate_summary(
            10_000, sizes, [(cells, hashes)], trials=trials, seed=context.stream(cells),
            threads=context.threads, progress=_part(context, part, len(_SINGLE_FILTERS)),
        )  # fmt: skip
        failed = int((seen.failures.sum(axis=1) > 0).sum())
        theory = sum(multilevel.single_filter_failures(10_000, sizes, cells, hashes))
        million = None if context.quick else float(paper)
        yield row("trials", trials, paper=None if context.quick else 1e6, **here)
        yield row("failures", failed, paper=million, **here)
        yield row("failures_theory", trials * theory, **here)
        yield row("failure", failed / trials, **here)
        yield row("failure_theory", theory, paper=bound, **here)
        crises = int((seen.passed[:, -1] > 0).sum())
        yield row("crises", crises, paper=None if context.quick else 0.0, **here)
        asked = simulate_summary(
            10_000, sizes, [(cells, hashes)], queries=10_000, trials=context.pick(5_000, 50),
            seed=context.stream("queries", cells), threads=context.threads,
        )  # fmt: skip
        rate = multilevel.filter_rate(cells, hashes, 10_000)
        yield measured("false_positives", asked.positives / asked.queries, **here)
        yield row("false_positives_theory", rate, **here)


# --- section 4.10: deletions -----------------------------------------------------------------------------

_KEPT, _DELETED = 9_090, 909  # n and alpha n, alpha = 0.1
_REBUILDS = {  # E[M'], mean, least, largest
    "random": (100.02, 96.98, 58, 113),
    "first": (118.34, 114.25, 70, 166),
}


@experiment(
    "kirsch-sec4.10.1",
    title="Keys that a rebuild moves after lazy deletions",
    plot=plots.lines(
        x=lambda each: float(each.where["model"] == "first"),
        y="keys moved",
        quantities=["moves", "moves_theory"],
        xlabel="0: any keys are deleted, 1: such as are in the first sub-table",
    ),
)
def sec4101(context: Context) -> Iterator[Row]:
    """9,999 keys, 909 deleted: any of them, or such as are in the first sub-table; 100,000 rebuilds each.

    `moves` and `moves_theory`, the thesis' E[M']; the least and the most; `into_first`, the moves into the
    first sub-table, and what they are exactly.
    """
    sizes, keys = SIZES[10_000], _KEPT + _DELETED
    trials = context.pick(100_000, 2_000)
    for part, (model, (bound, mean, least, most)) in enumerate(_REBUILDS.items()):
        here: dict[str, Any] = {"model": model}
        seen = simulate_rebuild(
            keys, _DELETED, sizes, model=model, trials=trials, seed=context.stream(model),
            threads=context.threads, progress=_part(context, part, len(_REBUILDS)),
        )  # fmt: skip
        yield measured("moves", seen.moves, paper=mean, **here)
        theory = multilevel.rebuild_moves(keys, _DELETED, sizes, model=model)
        yield row("moves_theory", theory, paper=bound, **here)
        yield row("moves_share", float(seen.moves.mean()) / _KEPT, **here)
        full = not context.quick
        yield row("moves_least", seen.moves.min(), paper=least if full else None, **here)
        note = _LARGEST if model == "random" else None
        yield row("moves_largest", seen.moves.max(), paper=most if full else None, note=note, **here)
        yield measured("into_first", seen.into_first, **here)
        if model == "random":
            exact = multilevel.moves_into_first(keys, _DELETED, sizes[0])
            yield row("into_first_theory", exact, **here)


_ONCE = (False, False, False, True, True)
_LARGEST_COUNTERS = (12, 11, 12, 4, 1)
_WIDTHS = {"conservative": (4, 4, 4, 4, 2), "less conservative": (4, 4, 4, 3, 1)}


@experiment(
    "kirsch-sec4.10.2",
    title="Counting filters: the largest counters",
    plot=plots.lines(x="filter", y="largest counter", quantities=["counter", "counter_theory"]),
)
def sec4102(context: Context) -> Iterator[Row]:
    """The multiple filters for 10,000 keys with counters; B_3 and B_4 count a key once. A million tables.

    `counter` is the largest of all trials, `counter_theory` the largest that so many trials reach with a
    chance of a half, by the tails; `counter_mean` is the mean of a table's largest. `overflow` bounds the
    chance that a table has a counter too large for the conservative choice of bits, `overflow_less` for the
    other. filter 5 is all of them: `bytes` of both choices, without the bit table.
    """
    sizes, filters = SIZES[10_000], FILTERS[10_000]
    trials = context.pick(1_000_000, 2_000)
    seen = simulate_counters(
        10_000, sizes, filters, once=_ONCE, trials=trials, seed=context.stream(), threads=context.threads,
        progress=context.progress,
    )  # fmt: skip
    for i, ((cells, hashes), once) in enumerate(zip(filters, _ONCE, strict=True)):

        def tail(
            least: int, i: int = i, cells: int = cells, hashes: int = hashes, once: bool = once
        ) -> float:
            return multilevel.counter_tail(10_000, sizes, i, cells, hashes, least, once=once)

        paper = None if context.quick else float(_LARGEST_COUNTERS[i])
        yield row("counter", seen[:, i].max(), paper=paper, filter=i)
        yield row("counter_theory", _median_of_largest(tail, trials), filter=i)
        yield measured("counter_mean", seen[:, i], filter=i)
        yield row("overflow", tail(2 ** _WIDTHS["conservative"][i]), filter=i)
        yield row("overflow_less", tail(2 ** _WIDTHS["less conservative"][i]), filter=i)
    for quantity, choice, printed in (
        ("bytes", "conservative", 99_775),
        ("bytes_less", "less conservative", 99_700),
    ):
        bits = sum(cells * width for (cells, _), width in zip(filters, _WIDTHS[choice], strict=True))
        yield row(quantity, bits / 8, paper=printed, filter=len(filters))


def _median_of_largest(tail: Callable[[int], float], trials: int) -> int:
    """Return the largest value that one of the trials reaches with a chance of a half at least."""
    value = 0
    while -math.expm1(-trials * tail(value + 1)) >= 0.5:
        value += 1
    return value


def _part(context: Context, part: int, parts: int) -> Callable[[int, int], None]:
    """Report the progress of one of several simulations of about the same length."""
    return lambda done, total: context.progress(part * total + done, parts * total)

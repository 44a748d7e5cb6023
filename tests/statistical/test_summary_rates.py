"""Summaries with real hashing against the laws of `study.theory.multilevel`: two-sided intervals at 1e-6."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from evenbins import MultilevelTable
from evenbins.structure import kind_of_number
from evenbins.study.counter_summary import CounterSummary
from evenbins.study.theory import multilevel
from evenbins.tables.multilevel import plan_multilevel
from evenbins.tables.summaries import (
    SingleFilterSummary,
    Summary,
    plan_summary,
)
from evenbins.tables.summary_plan import NUMBERS

SIZES = [4000, 1000, 500, 250, 250]
KEYS = 1000
ABSENT = 200_000
FILTERS = [(6000, 4), (900, 9), (90, 9)]


def planned(kind: str, keys: int = KEYS, **options: Any) -> Summary:
    """Build a summary with options that only planners have."""
    found = kind_of_number(NUMBERS[kind])
    assert found is not None
    summary: Summary = found.cls.from_plan(plan_summary(keys, kind=kind, **options))
    return summary


def interval(trials: int, chance: float) -> tuple[float, float]:
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], trials, chance)
    return float(low), float(high)


@pytest.mark.parametrize(
    "make",
    [
        lambda: planned("interpolation", levels=3, digest_bits=14),
        lambda: planned("single-filter", levels=3, filters=[(6000, 4)]),
        lambda: planned("counting-single-filter", levels=5, filters=[(6000, 4)]),
        lambda: planned("multiple-bloom", levels=3, filters=FILTERS),
        lambda: planned("multiple-bloom", levels=3, filters=FILTERS, wide=True),
        lambda: planned("counting-multiple-bloom", levels=3, filters=FILTERS),
        lambda: CounterSummary(KEYS, buckets=9000, choices=6),
    ],
    ids=[
        "interpolation",
        "single",
        "single counting",
        "multiple",
        "multiple wide",
        "multiple counting",
        "counters",
    ],
)
def test_false_positives_of_absent_keys(make: Callable[[], Summary]) -> None:
    """200_000 absent keys. Given the cells, answers are independent, with the chance that stats() computes.

    So a binomial interval at 1e-6. The plan is the mean of that chance over all cells, which spread by less
    than 2 % here (1000 keys): 8 % is beyond four times as much.
    """
    summary = make()
    summary.add_many(np.arange(KEYS), 1)
    found = int((summary.level_many(np.arange(10**6, 10**6 + ABSENT)) > 0).sum())
    measured = summary.stats().false_positives
    low, high = interval(ABSENT, measured)
    assert low <= found <= high
    assert measured == pytest.approx(summary.plan.false_positives, rel=0.08)


def agree(samples: list[int], mean: float) -> bool:
    """Tell whether the mean of samples is the one predicted, at 1e-6 by Student's law."""
    error = np.std(samples, ddof=1) / math.sqrt(len(samples))
    return abs(np.mean(samples) - mean) <= stats.t.ppf(1 - 5e-7, len(samples) - 1) * error


def failures(kind: str, filters: list[tuple[int, int]]) -> list[int]:
    """Count the keys that are answered a wrong level, in each of 150 tables of one slot."""
    plan = plan_summary(KEYS, kind=kind, levels=6, sizes=SIZES, filters=filters)
    wrong = []
    for seed in range(150):
        t = MultilevelTable.from_plan(plan_multilevel(
            KEYS, scheme="standard", slots=1, shares=[size / KEYS for size in SIZES], overflow_limit=8,
            summary=plan, seed=seed,
        ))  # fmt: skip
        assert t.plan.buckets == tuple(SIZES)
        keys = np.arange(KEYS)
        t.insert_many(keys, keys, assume_unique=True)
        assert (t.get_many(keys) == keys).all()
        measured = t.stats()
        assert measured.summary_wrong is not None
        wrong.append(measured.summary_wrong)
    return wrong


def test_wrong_levels_of_a_single_filter() -> None:
    """150 tables of 1000 keys whose filter is too small: E[wrong] is exact for groups of cells (4.4)."""
    mean = sum(multilevel.single_filter_failures(KEYS, SIZES, 1200, 4))
    assert mean > 5
    assert agree(failures("single-filter", [(1200, 4)]), mean)


def test_wrong_levels_of_multiple_filters() -> None:
    """150 tables of 1000 keys whose B_1 is too small, unpartitioned: (4.5) with the exact rate."""
    filters = [(10_000, 7), (600, 4), (200, 20), (100, 20), (100, 20), (100, 20)]
    mean = sum(multilevel.multiple_bloom_failures(KEYS, SIZES, filters[:5], partitioned=False))
    assert mean > 5
    wrong = failures("multiple-bloom", filters)
    assert agree(wrong, mean)
    pairs = multilevel.filter_rate(600, 2, 115, partitioned=False) * 885  # power: two hashes in place of four
    assert not agree(wrong, pairs)


def test_equal_digests_of_an_interpolation_summary() -> None:
    """400 summaries of 200 keys with 16 bits: how often two digests are equal, by the birthday paradox."""
    chance = multilevel.interpolation_failure(200, 16)
    unequal = 0
    for seed in range(400):
        s = planned("interpolation", 200, levels=2, digest_bits=16, seed=seed)
        s.add_many(range(200), 1)
        unequal += round(s.stats().false_positives * 2**16) == 200
    low, high = interval(400, chance)
    assert low <= 400 - unequal <= high


@pytest.mark.parametrize("model", ["random", "first"])
def test_moves_of_a_lazy_rebuild(model: str) -> None:
    """The thesis' table, 40 rebuilds: 909 of 9999 keys deleted, 96.98 (114.25) moves in the mean.

    The thesis simulated these numbers (section 4.10.1) with an error of 0.03; E[M'] = 100.02 (118.34) is an
    approximate upper bound.
    """
    sizes = [40_000, 10_000, 5_000, 2_500, 2_500]
    moves = []
    for seed in range(40):
        t = MultilevelTable.from_plan(plan_multilevel(
            9090, scheme="standard", slots=1, shares=[size / 9999 for size in sizes], overflow_limit=8,
            summary="multiple-bloom", deletions="lazy", seed=seed,
        ))  # fmt: skip
        assert (t.plan.keys, t.plan.rebuild_threshold, t.plan.buckets) == (9999, 909, tuple(sizes))
        keys = np.arange(9999)
        t.insert_many(keys, 0, assume_unique=True)
        if model == "first":
            assert t.summary is not None
            keys = keys[t.summary.level_many(keys) == 1]
        t.delete_many(np.random.default_rng(seed).permutation(keys)[:909])  # the last one begins the rebuild
        assert t._guide_state()[-1] == 1
        t.rebuild()
        found = t.stats()
        assert (found.rebuilds, found.reserved, len(t)) == (1, 0, 9090)
        moves.append(found.rebuild_moves or 0)
    assert agree(moves, {"random": 96.98, "first": 114.25}[model])
    assert np.mean(moves) < 1.03 * multilevel.rebuild_moves(9999, 909, sizes, model=model)


def test_counters_are_full_as_seldom_as_planned() -> None:
    """Planned counters: none of 1e6 is full; with two bits so many as the binomial tail says."""
    wide = SingleFilterSummary(20_000, levels=3, counting=True)
    wide.add_many(np.arange(20_000), 1)
    assert wide.stats().saturated == 0
    cells, hashes = 100_000, 5
    narrow = planned("counting-single-filter", 20_000, levels=1, filters=[(cells, hashes)], counter_bits=2)
    narrow.add_many(np.arange(20_000), 1)
    chance = stats.binom.sf(2, 20_000, hashes / cells)
    low, high = interval(cells, chance)  # counters of a group are a little less spread than independent ones
    assert low <= narrow.stats().saturated <= high

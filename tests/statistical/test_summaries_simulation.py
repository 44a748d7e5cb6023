"""Simulated summaries against exact laws and means.

Every count is compared with its binomial interval, every mean with Student's, two-sided at 1e-6; seeds are
fixed.

    the table     |S_i|, the exact law of `study.theory.multilevel.distribution`
    failures      their mean number for each type, exact for partitioned and for other filters: a mean has
                  no union bound
    moves         into the first sub-table: exact
    counters      the union bound is above, and nearly met where few tables have one
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom
from scipy.stats import t as student

from evenbins.study.papers.summary_simulation import (
    simulate_counters,
    simulate_rebuild,
    simulate_song,
    simulate_summary,
)
from evenbins.study.theory import multilevel

LEVEL = 1e-6
KEYS, SIZES = 300, (600, 150, 60, 30)


def surprises(seen: npt.NDArray[np.uint64], law: multilevel.Law) -> list[int]:
    """Give the values whose number is out of the interval that it misses once in a million."""
    strange = []
    for number in range(int(law.first), law.first + len(law.chance)):
        chance = law.probability(number)
        low, high = binom.ppf([LEVEL / 2, 1 - LEVEL / 2], len(seen), chance)
        if not low <= int((seen == number).sum()) <= high:
            strange.append(number)
    return strange


def off(samples: npt.NDArray[np.float64], mean: float) -> bool:
    """Tell whether the mean of the samples is further from `mean` than once in a million."""
    reach = student.ppf(1 - LEVEL / 2, len(samples) - 1) * samples.std(ddof=1) / math.sqrt(len(samples))
    return bool(abs(samples.mean() - mean) > reach)


def test_keys_that_pass_follow_the_exact_law() -> None:
    """100,000 tables of 300 keys; the power: the law of 301 keys is told apart."""
    seen = simulate_summary(KEYS, SIZES, [(10, 1)], trials=100_000, seed=1, threads=2)
    laws, others = (multilevel.distribution(keys, SIZES) for keys in (KEYS, KEYS + 3))
    for i in range(len(SIZES)):
        assert not surprises(seen.passed[:, i], laws[i + 1])
    assert surprises(seen.passed[:, 0], others[1])
    assert surprises(seen.passed[:, 1], others[2])


@pytest.mark.parametrize("partitioned", [True, False])
def test_a_single_filter_fails_as_often_as_predicted(partitioned: bool) -> None:
    """20,000 tables of 300 keys, 600 cells and 2 hashes; power: 3 % fewer cells are told apart."""
    seen = simulate_summary(
        KEYS, SIZES, [(600, 2)], partitioned=partitioned, queries=100, trials=20_000, seed=2, threads=2
    )
    for cells, wrong in ((600, False), (580, True)):
        means = multilevel.single_filter_failures(KEYS, SIZES, cells, 2, partitioned=partitioned)
        for i, mean in enumerate(means[: 1 if wrong else None]):
            assert off(seen.failures[:, i].astype(float), mean) == wrong
        rate = multilevel.filter_rate(cells, 2, KEYS, partitioned=partitioned)
        assert off(seen.positives / 100, rate) == wrong
    assert not seen.failures[:, -1].any()


@pytest.mark.parametrize("partitioned", [True, False])
def test_multiple_filters_fail_as_often_as_predicted(partitioned: bool) -> None:
    """20,000 tables of 300 keys."""
    filters = [(900, 3), (240, 3), (60, 3), (24, 2)]
    seen = simulate_summary(
        KEYS, SIZES, filters, partitioned=partitioned, queries=100, trials=20_000, seed=3, threads=2
    )
    means = multilevel.multiple_bloom_failures(KEYS, SIZES, filters, partitioned=partitioned)
    for i, mean in enumerate(means):
        assert not off(seen.failures[:, i].astype(float), mean)
    assert not off(seen.positives / 100, multilevel.filter_rate(900, 3, KEYS, partitioned=partitioned))


def test_the_two_sorts_of_filters_are_told_apart() -> None:
    """Power: 20 cells, 5 hashes; 20,000 tables. Partitioned filters have more false positives."""
    seen = simulate_summary(5, [20, 5], [(20, 5)], queries=50, trials=20_000, seed=4, threads=2)
    assert not off(seen.positives / 50, multilevel.filter_rate(20, 5, 5))
    assert off(seen.positives / 50, multilevel.filter_rate(20, 5, 5, partitioned=False))


def test_failure_is_rare_enough_that_the_bound_is_the_probability() -> None:
    """200,000 tables: those with a failure, against the mean number, which is about 1e-3."""
    keys, sizes, size = 100, (400, 100, 50), (600, 5)
    (first, *more) = multilevel.single_filter_failures(keys, sizes, *size)
    bound = first + sum(more)
    assert 1e-4 < bound < 1e-2
    seen = simulate_summary(keys, sizes, [size], trials=200_000, seed=5, threads=2)
    failed = int((seen.failures.sum(axis=1) > 0).sum())
    low, high = binom.ppf([LEVEL / 2, 1 - LEVEL / 2], 200_000, bound)
    assert 0.8 * low <= failed <= high


def test_moves_into_the_first_sub_table() -> None:
    """20,000 rebuilds of 300 keys, 60 deleted, in tables where a crisis is rare."""
    exact = multilevel.moves_into_first(KEYS, 60, 400)
    seen = simulate_rebuild(KEYS, 60, (400, 4000, 400), trials=20_000, seed=6, threads=2)
    assert not off(seen.into_first.astype(float), exact)
    assert (seen.moves >= seen.into_first).all()
    assert seen.crisis.mean() < 0.01
    assert off(seen.into_first.astype(float), multilevel.moves_into_first(KEYS, 62, 400))
    more = simulate_rebuild(KEYS, 60, (400, 200, 100, 50), trials=20_000, seed=7, threads=2)
    assert not off(more.into_first.astype(float), exact)
    bound = multilevel.rebuild_moves(KEYS, 60, (400, 200, 100, 50))
    assert 0.85 * bound < more.moves.mean() < bound


def test_the_thesis_rebuilds() -> None:
    """4,000 rebuilds each of 9,999 keys, 909 deleted: 96.98 and 114.3 of 100,000 by other means."""
    sizes = (40_000, 10_000, 5_000, 2_500, 2_500)
    for model, mean in (("random", 96.98), ("first", 114.3)):
        seen = simulate_rebuild(9_999, 909, sizes, model=model, trials=4_000, seed=8, threads=2)
        reach = 5 * seen.moves.std() / math.sqrt(4_000)
        assert abs(seen.moves.mean() - mean) < reach + 0.1


def test_counters_stay_below_their_tails() -> None:
    """20,000 tables of 300 keys: how many have a counter of so much, against the union bound."""
    filters = [(400, 3), (100, 4), (60, 4), (40, 4)]
    once = [False, False, True, True]
    seen = simulate_counters(KEYS, SIZES, filters, once=once, trials=20_000, seed=9, threads=2)
    for i, (counters, hashes) in enumerate(filters):
        for least in range(1, 20):
            bound = multilevel.counter_tail(KEYS, SIZES, i, counters, hashes, least, once=once[i])
            number = int((seen[:, i] >= least).sum())
            assert number <= binom.ppf(1 - LEVEL / 2, 20_000, bound)
            if 1e-3 < bound < 0.02:
                assert number >= binom.ppf(LEVEL / 2, 20_000, 0.9 * bound)


def test_songs_counters() -> None:
    """2,000 tables of 500 keys in 4,000 buckets, 5 hashes."""
    seen = simulate_song(500, 4_000, 5, trials=2_000, seed=10, threads=2)
    assert not off(seen.false_positives, multilevel.counters_false_positives(500, 4_000, 5))
    assert off(seen.false_positives, multilevel.counters_false_positives(504, 4_000, 5))
    assert ((seen.largest == 1) == (seen.crowded == 0)).all()

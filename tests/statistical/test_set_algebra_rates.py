"""Overlaps that are estimated, and the rate of an intersection: measured against what theory predicts.

Every interval is two-sided at 1e-6 and every seed is fixed.

overlap  |A| + |B| - |A or B| of standard filters. With Z_S of m positions without a bit of set S, n(Z) =
         -m/k ln(Z/m), so that to first order an error is the sum over S of -+ (m/k) (Z_S - E Z_S) / E Z_S.
         The positions are alike; if the keys of each of the three classes (only A, only B, both) came as a
         Poisson stream, they would be independent. Given the true number t = k n of throws of each class,
             Var = m (Var f - sum over classes of Cov(f, N)^2 / E N),
         where f is one position's share of that sum and N its number of throws of a class.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from evenbins import BlockedBloomFilter, BloomFilter, CountingBloomFilter, ShardedFilter
from evenbins.filters.from_keys import distinct_keys
from evenbins.theory.distinct import error_of_precision

LEVEL = 1e-6
Z = float(stats.norm.isf(LEVEL / 2))
ONLY_A, ONLY_B, BOTH = 0, 1, 2
SETS = {"A": (ONLY_A, BOTH), "B": (ONLY_B, BOTH), "A or B": (ONLY_A, ONLY_B, BOTH)}


def deviation(bits: int, hashes: int, only: int, both: int) -> float:
    """Return the standard deviation of the estimated overlap of two standard filters."""
    means = [hashes * only / bits, hashes * only / bits, hashes * both / bits]
    signs = {"A": 1.0, "B": 1.0, "A or B": -1.0}
    chance = {name: math.exp(-sum(means[i] for i in classes)) for name, classes in SETS.items()}
    weight = {name: -signs[name] * bits / hashes / (bits * chance[name]) for name in SETS}
    variance = 0.0
    for one, other in itertools.product(SETS, SETS):
        joint = math.exp(-sum(means[i] for i in {*SETS[one], *SETS[other]}))
        variance += weight[one] * weight[other] * (joint - chance[one] * chance[other])
    for number, mean in enumerate(means):
        # Cov(1[no throw of S], N) = -E N P(S is empty) for a class that belongs to S.
        covariance = -mean * sum(weight[s] * chance[s] for s in SETS if number in SETS[s])
        variance -= covariance**2 / mean
    return math.sqrt(bits * variance)


def overlaps(make: Any, only: int, both: int, filters: int) -> list[float]:
    """Return the errors of so many estimates, each with a seed of its own."""
    found = []
    for seed in range(1, filters + 1):
        f, g = make(seed), make(seed)
        f.add_many(np.arange(only + both))
        g.add_many(np.arange(only, 2 * only + both))
        found.append(f.approx_intersection(g) - both)
    return found


@pytest.mark.parametrize("cls", [BloomFilter, CountingBloomFilter])
@pytest.mark.parametrize(("only", "both"), [(9_000, 2_000), (2_000, 16_000), (9_900, 200)])
def test_the_overlap_of_standard_filters_has_the_predicted_error(cls: Any, only: int, both: int) -> None:
    """60 pairs of 20,000 keys in all, planned for as many: mean and variance of the error.

    The bias of a logarithm is below a key here, and is allowed for.
    """
    plan = cls(20_000, 1e-2).plan
    errors = np.array(overlaps(lambda seed: cls(20_000, 1e-2, seed=seed), only, both, 60))
    sd = deviation(plan.core[0], plan.hashes, only, both)
    assert abs(errors.mean()) <= Z * sd / math.sqrt(len(errors)) + 1.0
    low, high = stats.chi2.ppf([LEVEL / 2, 1 - LEVEL / 2], len(errors))
    assert low <= (errors**2).sum() / sd**2 <= high
    assert sd <= 0.3 * math.sqrt(2 * only + both)  # as the docstring says


@pytest.mark.parametrize("cls", [BlockedBloomFilter, ShardedFilter])
@pytest.mark.parametrize(("only", "both"), [(9_000, 2_000), (2_000, 16_000)])
def test_the_overlap_of_blocked_filters_has_no_bias(cls: Any, only: int, both: int) -> None:
    """60 pairs of 20,000 keys in all: the mean error, by Student, and the errors' size."""
    more = {"shards": 4} if cls is ShardedFilter else {}
    errors = np.array(overlaps(lambda seed: cls(20_000, 1e-2, seed=seed, **more), only, both, 60))
    reach = float(stats.t.isf(LEVEL / 2, len(errors) - 1))
    assert abs(errors.mean()) <= reach * errors.std(ddof=1) / math.sqrt(len(errors)) + 1.0
    bound = 0.3 * math.sqrt(2 * only + both)
    assert (errors**2).sum() <= bound**2 * stats.chi2.isf(LEVEL, len(errors))


def test_an_estimate_that_is_five_keys_in_a_hundred_off_would_be_noticed() -> None:
    """The power of the test above: sets whose overlap is 2,100 instead of 2,000."""
    plan = BloomFilter(20_000, 1e-2).plan
    errors = np.array(overlaps(lambda seed: BloomFilter(20_000, 1e-2, seed=seed), 8_900, 2_100, 60)) + 100
    assert abs(errors.mean()) > Z * deviation(plan.core[0], plan.hashes, 9_000, 2_000) / math.sqrt(60) + 1.0


def test_from_keys_plans_for_few_keys_too_many_and_seldom_for_too_few() -> None:
    """400 seeds, 150,000 different keys, each twice: three standard errors around 1.2 % above the truth."""
    keys = np.tile(np.arange(150_000), 2)
    planned = np.array([distinct_keys(keys, seed=seed) for seed in range(400)]) / 150_000
    sd = error_of_precision(16)
    most = stats.binom.isf(LEVEL, 400, stats.norm.sf(3))
    assert (planned < 1.0).sum() <= most
    assert (planned > 1.025).sum() <= most
    assert abs(planned.mean() - (1 + 3 * sd)) <= Z * sd / math.sqrt(400) + 0.1 * sd


@pytest.mark.parametrize("cls", [BloomFilter, BlockedBloomFilter])
def test_the_rate_of_an_intersection_is_what_it_measures(cls: Any) -> None:
    """20,000 keys each, 4,000 in both; 400,000 keys in neither, 16,000 in one alone, 16 seeds.

    In neither: stats().fpr of the result. In one alone: stats().fpr of the other filter. Both are sums of
    binomials. The rate in neither is below that of either filter, and above that of a filter of the common
    keys alone.
    """
    absent = np.arange(10**6, 10**6 + 400_000)
    predicted = np.zeros(2)
    counted = np.zeros(2)
    for seed in range(16):
        f, g, alone = (cls(20_000, 1e-2, seed=seed) for _ in range(3))
        f.add_many(np.arange(20_000))
        g.add_many(np.arange(16_000, 36_000))
        alone.add_many(np.arange(16_000, 20_000))
        both = f & g
        assert both.contains_many(np.arange(16_000, 20_000)).all()
        assert alone.stats().fpr < both.stats().fpr < min(f.stats().fpr, g.stats().fpr)
        predicted += [both.stats().fpr * len(absent), g.stats().fpr * 16_000]
        counted += [both.contains_many(absent).sum(), both.contains_many(np.arange(16_000)).sum()]
    for trials, mean, count in zip((16 * len(absent), 16 * 16_000), predicted, counted, strict=True):
        low, high = stats.binom.ppf([LEVEL / 2, 1 - LEVEL / 2], trials, mean / trials)
        assert low <= count <= high


@pytest.mark.parametrize("cls", [BloomFilter, BlockedBloomFilter])
def test_one_key_passes_for_a_subset_at_the_filter_s_rate(cls: Any) -> None:
    """4,000 filters of one key each against one of 2,000 keys with a rate near 1/20."""
    g = cls(2_000, 0.05)
    g.add_many(np.arange(2_000))
    found = 0
    for key in range(10_000, 14_000):
        f = cls(2_000, 0.05)
        f.add(key)
        assert (f <= g) == (key in g)
        found += f <= g
    low, high = stats.binom.ppf([LEVEL / 2, 1 - LEVEL / 2], 4_000, g.stats().fpr)
    assert low <= found <= high

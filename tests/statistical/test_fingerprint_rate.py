"""Fingerprint filters against their law: the rate, the reads and what is on each level, at a level of 1e-6.

Rate     given the filter, an absent key with an ideal hash is found with probability distinct/M, so the count
         over absent keys is binomial. The number of keys that share a fingerprint with another is Poisson of
         mean n²/2M, but for terms of order n³/M², which are far below one here.
Levels   the shares of one filter depend on one another, so their mean over `FILTERS` independent filters
         (seeds) is compared with the plan, by Student's t with the deviation that was measured. The plan uses
         independent lines and, for the overflow list, a Gaussian copula: `SYSTEMATIC` allows for that.

Seeds are fixed. Each test also shows that it would notice a law that is wrong: another rate, 2 % more keys.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from evenbins import FingerprintFilter
from evenbins.filters.fingerprint_plan import FingerprintStats

LEVEL = 1e-6
ASKED = 3_000_000
KEYS = 100_000
FILTERS = 30
SYSTEMATIC = 0.005  # of a share, in the law itself; the tolerance
RATES = (1e-2, 1e-3, 1e-4)


def is_within(found: int, rate: float) -> bool:
    low, high = stats.binom.ppf([LEVEL / 2, 1 - LEVEL / 2], ASKED, rate)
    return bool(low <= found <= high)


def absent(seed: int) -> npt.NDArray[np.int64]:
    return np.arange(10**9 * (seed + 1), 10**9 * (seed + 1) + ASKED)


@pytest.mark.parametrize("semantics", ["multiset", "set"])
@pytest.mark.parametrize("fpr", RATES)
def test_the_rate_is_the_share_of_the_fingerprints(fpr: float, semantics: str) -> None:
    """3,000,000 absent integers; half of a multiset's keys were removed and others added before."""
    f = FingerprintFilter(KEYS, fpr, semantics=semantics, seed=5)
    f.add_many(np.arange(KEYS))
    if semantics == "multiset":
        assert f.remove_many(np.arange(0, KEYS, 2)).all()
        f.add_many(np.arange(KEYS, KEYS + KEYS // 2))
    fingerprints = f.plan.core.shape.fingerprints
    found, measured = int(f.contains_many(absent(0)).sum()), f.stats()
    assert measured.fpr == measured.distinct / fingerprints
    for rate in (measured.fpr, f.plan.fpr, KEYS / fingerprints):
        assert is_within(found, rate)
        assert not is_within(found, 1.5 * rate) or fpr < 1e-3
        assert not is_within(found, 2 * rate)
        assert not is_within(found, rate / 2)


@pytest.mark.parametrize("fpr", RATES)
def test_as_many_keys_share_a_fingerprint_as_chance_has_it(fpr: float) -> None:
    found = functools.reduce(lambda shared, each: shared + KEYS - each.distinct, measured(fpr), 0)
    keys, fingerprints = KEYS, FingerprintFilter(KEYS, fpr).plan.core.shape.fingerprints
    mean = FILTERS * (keys - fingerprints * -np.expm1(-keys / fingerprints))
    low, high = stats.poisson.ppf([LEVEL / 2, 1 - LEVEL / 2], mean)
    assert low <= found <= high
    low, high = stats.poisson.ppf([LEVEL / 2, 1 - LEVEL / 2], 2 * mean)
    assert not low <= found <= high


@functools.cache
def measured(fpr: float) -> list[FingerprintStats]:
    """Measure `FILTERS` full filters."""
    found = []
    for seed in range(FILTERS):
        f = FingerprintFilter(KEYS, fpr, seed=seed)
        f.add_many(np.arange(KEYS))
        found.append(f.stats())
    return found


def agrees(values: list[float], expected: float) -> bool:
    """Tell whether a mean may be the expected one, by Student's t."""
    error = np.std(values, ddof=1) / len(values) ** 0.5
    most = stats.t.ppf(1 - LEVEL / 2, len(values) - 1) * error + SYSTEMATIC * expected
    return bool(abs(np.mean(values) - expected) <= most)


@pytest.mark.parametrize("fpr", RATES)
def test_levels_and_reads_are_as_planned(fpr: float) -> None:
    plan = FingerprintFilter(KEYS, fpr).plan
    more = plan.with_keys(round(1.02 * KEYS))  # which holds 1 % more at most: the law of a fuller filter
    found = measured(fpr)
    for name in ("reads", "miss_reads"):
        values = [getattr(each, name) - 1 for each in found]
        assert agrees(values, getattr(plan, name) - 1), name
        assert not agrees(values, getattr(more, name) - 1), name
    for level in (1, 2):
        values = [each.shares[level] for each in found]
        assert agrees(values, plan.shares[level]), level
    assert not agrees([each.shares[1] for each in found], more.shares[1])  # type: ignore[attr-defined]
    assert agrees([each.fill for each in found], plan.fill)


def test_the_overflow_list_is_a_few_keys_of_a_million() -> None:
    """Its law is within a tenth of simulations; here it must be within a half, and far below its room."""
    for fpr in RATES:
        plan = FingerprintFilter(KEYS, fpr).plan
        mean = np.mean([each.overflow for each in measured(fpr)]) * KEYS
        low, high = stats.poisson.ppf([LEVEL / 2, 1 - LEVEL / 2], FILTERS * plan.overflow * KEYS)
        assert 0.5 * low <= FILTERS * mean <= 1.5 * high + 20
        assert max(each.overflow for each in measured(fpr)) * KEYS < plan.overflow_limit / 2

"""Predictions of the counting filter against many filters with real hashing: two-sided intervals at 1e-6.

Seeds are fixed. Interval: normal, of the mean over independent filters, with their own variance.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from evenbins import CountingBloomFilter
from evenbins.filters import plan_counting

Z = NormalDist().inv_cdf(1 - 0.5e-6)
FILTERS = 300
ABSENT = np.arange(2**40, 2**40 + 4000)
SHAPES: list[dict[str, Any]] = [
    {"layout": "flat", "counter_bits": 2, "bits_per_key": 20, "hashes": 7},
    {"layout": "flat", "counter_bits": 4, "bits_per_key": 4, "hashes": 8},
    {"layout": "blocked", "counter_bits": 2, "bits_per_key": 20, "hashes": 7},
    {"layout": "blocked", "counter_bits": 4, "bits_per_key": 4, "hashes": 8},
]


def measured(shape: dict[str, Any], keys: int) -> tuple[Any, dict[str, list[float]]]:
    """Fill `FILTERS` filters of different seeds, and measure each; the keys removed for a second look."""
    found: dict[str, list[float]] = {"saturated": [], "fill": [], "fpr": [], "hits": []}
    for seed in range(FILTERS):
        plan = plan_counting(keys, **shape, seed=seed)
        f = CountingBloomFilter.from_plan(plan)
        f.add_many(np.arange(keys))
        stats = f.stats()
        for name in ("saturated", "fill", "fpr"):
            found[name].append(getattr(stats, name))
        found["hits"].append(float(f.contains_many(ABSENT).mean()))
    return plan, found


def agrees(sample: list[float], expected: float) -> bool:
    spread = float(np.std(sample, ddof=1)) / len(sample) ** 0.5
    return abs(float(np.mean(sample)) - expected) <= Z * spread


@pytest.mark.parametrize("shape", SHAPES, ids=lambda each: f"{each['layout']}-{each['counter_bits']}")
def test_full_counters_fill_and_rate_are_as_planned(shape: dict[str, Any]) -> None:
    """300 filters of 2000 keys; 1.2 million absent keys. Four to twenty full counters a filter and more."""
    plan, found = measured(shape, 2000)
    assert plan.saturated > 1  # else nothing is measured
    assert agrees(found["saturated"], plan.saturated)
    assert agrees(found["fill"], plan.fill)
    assert agrees(found["fpr"], plan.fpr)
    assert agrees(found["hits"], plan.fpr)


def test_the_thesis_threshold_would_fail() -> None:
    """Power: P(value >= 2**b), the thesis' overflow, is far outside the interval of what is full here."""
    from evenbins.theory.counting import binomial_tail, hit_chance

    plan, found = measured(SHAPES[0], 2000)
    wrong = plan.core[0] * binomial_tail(2000, hit_chance(plan.core[0], 7), 4)
    assert not agrees(found["saturated"], wrong)


@pytest.mark.parametrize("layout", ["flat", "blocked"])
def test_the_estimate_of_keys_is_unbiased_and_follows_removals(layout: str) -> None:
    """200 filters of 3000 adds, a third of them repeats, and 1000 removals."""
    found = []
    for seed in range(200):
        f = CountingBloomFilter(2000, fpr=1e-2, layout=layout, counter_bits=8, seed=seed)
        f.add_many(np.arange(2000))
        f.add_many(np.arange(1000))
        assert f.remove_many(np.arange(500, 1500)).all()
        assert f.stats().saturated == 0
        found.append(f.stats().keys)
    assert agrees(found, 2000.0)
    assert float(np.std(found)) < 20


def test_after_endless_exchange_the_rate_is_that_of_the_keys_that_are_left() -> None:
    """100 filters, each key exchanged ten times: the counters are exactly those of a fresh filter."""
    for seed in range(100):
        f, fresh = (CountingBloomFilter(500, fpr=1e-2, seed=seed) for _ in range(2))
        f.add_many(np.arange(500))
        for turn in range(10):
            f.add_many(np.arange(500 * (turn + 1), 500 * (turn + 2)))
            assert f.remove_many(np.arange(500 * turn, 500 * (turn + 1))).all()
        fresh.add_many(np.arange(5000, 5500))
        assert f.stats().saturated == 0
        assert f == fresh

"""The expected number of wrongly dropped rows is what happens: Poisson intervals at 1e-6, fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as distributions

from evenbins import Deduplicator


@pytest.mark.parametrize(
    ("fpr", "capacity", "keys"),
    [(1e-2, 100_000, 100_000), (1e-2, 20_000, 100_000), (3e-2, None, 400_000), (1e-3, 50_000, 150_000)],
    ids=["planned", "grown beyond", "growing", "lower rate"],
)
def test_wrongly_dropped_rows(fpr: float, capacity: int | None, keys: int) -> None:
    """20 runs over distinct keys, every fourth row a repeat: the drops of new keys sum to a Poisson number.

    Its mean is the sum of `expected_wrong`, which is itself computed from measured rates.
    """
    wrong = 0
    expected = 0.0
    for seed in range(20):
        d = Deduplicator(fpr=fpr, capacity=capacity, seed=seed)
        fresh = np.arange(seed * keys, (seed + 1) * keys)
        for piece in np.split(fresh, 10):
            kept = d.keep(np.concatenate([piece, piece[::3]]))
            assert not kept[len(piece) :].any()
            wrong += int((~kept[: len(piece)]).sum())
        found = d.stats()
        assert found.fpr <= 1.05 * fpr
        assert found.expected_wrong <= d.expected_wrong(keys)
        assert d.stats().kept == keys - (d.stats().dropped - 10 * len(piece[::3]))
        expected += found.expected_wrong
    spread = 0.03 * expected  # what the interpolation between measurements may be wrong by
    low, high = distributions.poisson.interval(1 - 1e-6, expected)
    assert low - spread <= wrong <= high + spread
    assert expected > 100


def test_power_a_rate_twice_as_high_would_be_noticed() -> None:
    """The same interval around half the expectation excludes it."""
    d = Deduplicator(fpr=1e-2, capacity=100_000, seed=1)
    d.keep(np.arange(100_000))
    mean = 20 * d.stats().expected_wrong
    assert distributions.poisson.interval(1 - 1e-6, mean / 2)[1] + 0.03 * mean < mean

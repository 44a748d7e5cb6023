"""Chained tables against their plans: loads, overflow, reads, and mean and variance of the query time.

40 tables of 40,000 random keys for each policy; the mean of each measured number over the tables must lie
within the two-sided 1e-6 interval of Student's t around the prediction. The longest chain: 60 tables of
100,000 keys.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as distributions

from evenbins import ChainedTable
from evenbins.tables import plan_chains
from evenbins.tables.chained import ChainPlan, plan_of_chain_core

TABLES, KEYS = 40, 40_000
MEASURED = (
    "mean", "variance", "overflow", "insertion_reads", "reads", "miss_reads", "query_mean", "query_variance",
    "miss_mean", "miss_variance",
)  # fmt: skip
SHAPES = {
    "single": {"policy": "single", "load": 8, "overflow": 0.02},
    "plain": {"policy": "single", "load": 2, "overflow": 0},
    "sequential": {"policy": "sequential", "load": 8},
    "multilevel": {"policy": "multilevel", "load": 8},
    "multilevel of load 1": {"policy": "multilevel", "load": 1, "reads": 1.4, "choices": 4},
    "least-loaded": {"policy": "least-loaded", "load": 8},
    "d-left": {"policy": "d-left", "load": 2, "choices": 3},
}


def filled(plan: ChainPlan, seed: int, keys: int) -> ChainedTable:
    table = ChainedTable.from_plan(plan_of_chain_core(plan.core, keys=plan.keys, seed=seed))
    numbers = np.random.default_rng(seed).integers(-(2**63), 2**63, keys)
    table.insert_many(numbers, 0, assume_unique=True)
    return table


def deviations(plan: ChainPlan, measured: np.ndarray) -> dict[str, float]:
    """Give by how many half-widths of the 1e-6 interval each measured mean misses its prediction."""
    width = distributions.t.isf(0.5e-6, len(measured) - 1) / math.sqrt(len(measured))
    half = width * measured.std(axis=0, ddof=1) + 1e-9
    found = measured.mean(axis=0) - np.array([getattr(plan, name) for name in MEASURED])
    return dict(zip(MEASURED, (found / half).tolist(), strict=True))


def measure(plan: ChainPlan, first_seed: int = 0) -> np.ndarray:
    rows = [filled(plan, seed, KEYS).stats() for seed in range(first_seed, first_seed + TABLES)]
    return np.array([[getattr(row, name) for name in MEASURED] for row in rows])


@pytest.mark.parametrize("name", SHAPES)
def test_tables_are_as_planned(name: str) -> None:
    plan = plan_chains(KEYS, **SHAPES[name])  # type: ignore[arg-type]
    found = deviations(plan, measure(plan))
    assert all(abs(each) < 1 for each in found.values()), found


def test_a_coin_that_always_falls_on_one_side_is_found_out() -> None:
    """The power of these tests: the coin of the plan ignored, and nothing else."""
    plan = plan_chains(KEYS, load=8)
    core = (*plan.core[:2], 2**32, *plan.core[3:])
    broken = plan_of_chain_core(core, keys=KEYS, seed=0)
    found = deviations(plan, measure(broken))
    assert abs(found["variance"]) > 3
    assert abs(found["overflow"]) > 3


def test_the_longest_chain_is_as_long_as_predicted() -> None:
    """60 tables of 100,000 keys: how often the longest chain exceeds a length, by binomial 1e-6 intervals."""
    from evenbins.theory import chains

    tables, keys = 60, 100_000
    for arguments in ({"policy": "least-loaded"}, {"policy": "d-left"}, {"policy": "single", "overflow": 0}):
        plan = plan_chains(keys, **arguments)  # type: ignore[arg-type]
        balanced = plan.core[0] <= 3
        layout = chains.Layout(
            policy=plan.policy, choices=plan.choices, bins=plan.core[6::2], coin=plan.core[2],
            thresholds=plan.core[7::2] if balanced else (), overflow_bins=plan.overflow_bins,
        )  # fmt: skip
        seen = chains.predict(layout, keys)
        chances = chains.max_load_chances(layout, seen.tables, seen.overflow_loads)
        longest = []
        for seed in range(tables):
            loads = filled(plan, seed, keys)._measure()[1]
            longest.append(max(len(all_) for all_, _ in loads) - 1)
        for length in range(len(chances)):
            chance = float(chances[: length + 1].sum())
            within = sum(each <= length for each in longest)
            case = (plan.policy, length, chance, within)
            assert distributions.binom.cdf(within, tables, chance) > 0.5e-6, case
            assert distributions.binom.sf(within - 1, tables, chance) > 0.5e-6, case
        assert plan.max_load in longest

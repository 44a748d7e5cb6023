"""Real tables against their plans: overflow, moves, fills, reads; intervals miss once in a million.

Sample sizes: 40 tables of 20,000 keys each scheme. The overflow list's mean has the planned variance (the
diffusion limit's), the other quantities the variance of the sample; both with the quantile of Student's t.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from evenbins import MultilevelTable
from evenbins.tables import plan_multilevel
from evenbins.tables.multilevel import plan_of_table_core
from evenbins.theory import optimise

TABLES, KEYS = 40, 20_000
QUANTILE = stats.t.ppf(1 - 0.5e-6, TABLES - 1)
DESIGNS = [
    ("standard", 1), ("conservative", 1), ("second-chance", 1), ("extreme-second-chance", 1),
    ("standard", 2), ("second-chance", 2), ("standard", 8), ("second-chance", 4),
    ("least-loaded", 8), ("least-loaded", 2),
]  # fmt: skip


def measure(scheme: str, slots: int, *, seeds: int = 0) -> tuple[object, dict[str, np.ndarray]]:
    plan = plan_multilevel(KEYS, scheme=scheme, slots=slots, overflow=0.004)
    seen: dict[str, list[object]] = {name: [] for name in ("overflow", "moves", "reads", "fills")}
    for seed in range(seeds, seeds + TABLES):
        table = MultilevelTable.from_plan(plan_of_table_core(plan.core, keys=KEYS, seed=seed))
        table.insert_many(np.arange(KEYS), 0)
        found = table.stats()
        for name, values in seen.items():
            values.append(getattr(found, name))
    return plan, {name: np.array(values) for name, values in seen.items()}


@pytest.mark.parametrize(("scheme", "slots"), DESIGNS)
def test_tables_do_what_was_planned(scheme: str, slots: int) -> None:
    plan, seen = measure(scheme, slots)
    slack = 0.05 * plan.overflow if scheme == "least-loaded" else 1 / KEYS  # type: ignore[attr-defined]
    for name in ("overflow", "moves", "reads"):
        values, wanted = seen[name], getattr(plan, name)
        allowed = QUANTILE * values.std(ddof=1) / np.sqrt(TABLES) + (
            slack if name == "overflow" else 2e-3 * wanted
        )
        assert abs(values.mean() - wanted) <= allowed, name
    fills = seen["fills"]
    allowed = QUANTILE * fills.std(axis=0, ddof=1) / np.sqrt(TABLES) + 2e-3
    assert (np.abs(fills.mean(axis=0) - plan.fills) <= allowed).all()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("scheme", "slots"), [pytest.param("second-chance", 1, marks=pytest.mark.long), ("standard", 2)]
)
def test_the_list_varies_as_planned(scheme: str, slots: int) -> None:
    """The variance of the list over 400 tables of 5,000 keys is within its chi-square interval at 1e-6."""
    keys, tables = 5_000, 400
    plan = plan_multilevel(keys, scheme=scheme, slots=slots, overflow=0.004)
    listed = []
    for seed in range(tables):
        table = MultilevelTable.from_plan(plan_of_table_core(plan.core, keys=keys, seed=seed))
        table.insert_many(np.arange(keys), 0)
        listed.append(table.stats().overflow_used)
    planned = optimise.overflow_distribution(scheme, plan.shares, keys, slots)
    low, high = stats.chi2.ppf([0.5e-6, 1 - 0.5e-6], tables - 1) / (tables - 1)
    assert 0.9 * low <= np.var(listed, ddof=1) / planned.variance <= 1.1 * high
    assert max(listed) <= plan.overflow_limit


def test_a_plan_that_is_wrong_by_a_fifth_would_fail() -> None:
    """The power of the test above: a fifth of the overflow shows."""
    plan, seen = measure("second-chance", 1)
    values, wanted = seen["overflow"], 1.2 * plan.overflow  # type: ignore[attr-defined]
    assert abs(values.mean() - wanted) > QUANTILE * values.std(ddof=1) / np.sqrt(TABLES) + 1 / KEYS


def test_the_default_under_deletions() -> None:
    """20,000 keys at load 0.95, replaced 12 times one by one: nothing overruns, the list is as planned."""
    plan = plan_multilevel(KEYS, deletions=True, space=1 / 0.95)
    table = MultilevelTable.from_plan(plan)
    live = list(range(KEYS))
    table.insert_many(live, live)
    rng = np.random.default_rng(5)
    listed, fresh = [], KEYS
    for step, one in enumerate(rng.integers(0, KEYS, 12 * KEYS).tolist()):
        del table[live[one]]
        live[one] = fresh
        table[fresh] = fresh
        fresh += 1
        if step > 4 * KEYS and step % 50 == 0:
            listed.append(table.stats().overflow_used)
    table._check()
    assert (table.get_many(live) == live).all()
    assert max(listed) <= plan.overflow_limit
    assert np.mean(listed) / KEYS == pytest.approx(
        plan.overflow, rel=0.6
    )  # few keys: some lists of one or two


@pytest.mark.parametrize(("scheme", "slots"), [("standard", 8), ("second-chance", 1), ("least-loaded", 8)])
def test_a_grown_table_overflows_as_a_new_one_does(scheme: str, slots: int) -> None:
    """Its keys come in an order that has nothing to do with their hashes, though both tables hash alike.

    Three tables of 100,000 keys; the list of the copy is within its interval at 1e-6.
    """
    keys = 100_000
    table = MultilevelTable(keys, scheme=scheme, slots=slots, overflow=0.002)
    table.insert_many(np.arange(keys), 0)
    for larger in (table.grown(keys + 1), MultilevelTable.from_plan(table.plan)):
        larger.update(table)
        planned = keys * larger.plan.overflow  # type: ignore[operator]
        assert abs(larger.stats().overflow_used - planned) <= 4.9 * np.sqrt(1.5 * planned) + 0.05 * planned

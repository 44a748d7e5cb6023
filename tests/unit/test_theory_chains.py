"""Theory of chained tables: identities, limits and the paper's own numbers. Simulation: tests/statistical."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evenbins.study.theory import balance
from evenbins.tables import plan_chains
from evenbins.theory import chains
from evenbins.theory.chains import NEVER_FULL, Layout, predict

PLANS = {
    "single": plan_chains(400_000, policy="single", load=8, overflow=0.01),
    "sequential": plan_chains(400_000, policy="sequential", load=8, reads=1.3),
    "multilevel": plan_chains(400_000, policy="multilevel", load=8),
    "least-loaded": plan_chains(400_000, policy="least-loaded", load=8),
    "d-left": plan_chains(400_000, policy="d-left", load=8, choices=3),
}
each_policy = pytest.mark.parametrize("policy", PLANS)


@each_policy
def test_loads_add_up(policy: str) -> None:
    plan = PLANS[policy]
    assert sum(plan.loads) == pytest.approx(1, abs=1e-9)
    assert plan.mean == pytest.approx(plan.load * (1 - plan.overflow), rel=1e-8)
    assert plan.variance >= plan.variance_bound * (1 - 1e-9)


@pytest.mark.parametrize("policy", ["single", "sequential", "multilevel"])
def test_the_papers_policies_have_the_least_variance(policy: str) -> None:
    """Appendix C: theirs is the lower bound of Theorem 1, at these reads and this overflow."""
    plan = PLANS[policy]
    assert plan.variance == pytest.approx(plan.variance_bound, rel=1e-3)  # bins are whole
    assert plan.variance_bound == balance.chain_variance(plan.insertion_reads, plan.load, plan.overflow)
    assert plan.reads == pytest.approx(plan.insertion_reads, rel=1e-9)


def test_plain_chaining_has_its_textbook_numbers() -> None:
    """Load r: Poisson; an absent key compares r entries of variance r, a present one 1 + r/2."""
    for load in (0.3, 1.0, 7.5):
        plan = plan_chains(10**6, policy="single", overflow=0, load=load)
        r = plan.load
        assert plan.variance == pytest.approx(r, rel=1e-9)
        assert (plan.miss_mean, plan.miss_variance) == pytest.approx((r, r), rel=1e-9)
        assert plan.query_mean == pytest.approx(1 + r / 2, rel=1e-9)
        assert plan.query_variance == pytest.approx(r / 2 + r * r / 12, rel=1e-9)  # Poisson(r u), u uniform


@each_policy
def test_a_query_compares_half_of_its_own_chain_at_least(policy: str) -> None:
    plan = PLANS[policy]
    load = np.arange(len(plan.loads))
    own = float((np.array(plan.loads) * load * (load + 1) / 2).sum()) / plan.load
    assert plan.query_mean >= own * (1 - 1e-9)


def test_the_mean_of_a_query_follows_from_the_bins_alone() -> None:
    """For "single": L(L+1)/2 for the keys of a bin, L for each that passed it, and overflow chains."""
    plan = PLANS["single"]
    assert plan.coin is not None
    h, p, total = plan.thresholds[0], plan.coin, 0.0
    for n in range(200):
        chance = math.exp(n * math.log(plan.load) - plan.load - math.lgamma(n + 1))
        stay = (1 - p) ** max(n - h, 0)
        low, high = min(n, h), h + 1
        total += chance * stay * (low * (low + 1) / 2 + max(n - h, 0) * low)
        total += chance * (1 - stay) * (high * (high + 1) / 2 + max(n - h - 1, 0) * high)
    spread = plan.overflow * plan.keys / plan.overflow_bins  # Poisson
    total += plan.overflow * plan.load * (1 + spread / 2)
    assert plan.query_mean == pytest.approx(total / plan.load, rel=1e-9)


def test_two_choices_follow_mitzenmachers_fixed_numbers() -> None:
    """With n = m: fractions of bins of at least 1, 2, 3 keys; Mitzenmacher's thesis, d = 2 and 3."""
    two = predict(Layout(policy="least-loaded", choices=2, bins=(1000,)), 1000).loads
    three = predict(Layout(policy="least-loaded", choices=3, bins=(1000,)), 1000).loads
    tails = [1 - np.cumsum(each)[:3] for each in (two, three)]
    assert tails[0] == pytest.approx([0.7616, 0.2295, 0.0089], abs=1e-4)
    assert tails[1] == pytest.approx([0.8231, 0.1765, 0.00051], abs=1e-4)
    assert -math.log(two[0]) > 1  # tanh: u_1 = tanh(1) for two choices
    assert 1 - two[0] == pytest.approx(math.tanh(1), rel=1e-8)


def test_a_first_key_goes_to_the_left() -> None:
    """One key in four million bins: one read, one comparison."""
    few = predict(Layout(policy="d-left", choices=4, bins=(10**6,) * 4), 1)
    assert few.reads == pytest.approx(1, abs=1e-5)
    assert few.query_mean == pytest.approx(1, abs=1e-5)


def test_d_left_is_better_than_least_loaded_and_more_choices_than_fewer() -> None:
    for choices in (2, 3, 4):
        left = plan_chains(10**6, policy="d-left", load=4, choices=choices)
        least = plan_chains(10**6, policy="least-loaded", load=4, choices=choices)
        assert left.variance < least.variance
        assert left.max_load <= least.max_load
        assert left.max_load_law is not None
        assert least.max_load_law is not None
        assert left.max_load_law < least.max_load_law
        assert left.query_mean > least.query_mean, "look-ups read the left tables first, and these are fuller"


def test_the_longest_chain() -> None:
    """Plain chaining: the maximum of independent Poisson numbers; with thresholds, one above them."""
    plan = plan_chains(10**6, policy="single", overflow=0, load=1)
    tail = 1.0
    k = 0
    while -math.expm1(10**6 * math.log1p(-tail)) > 0.5 if tail < 1 else True:
        k += 1
        tail = math.fsum(math.exp(-1) / math.factorial(i) for i in range(k + 1, 40))
    assert plan.max_load == k
    assert PLANS["multilevel"].max_load == PLANS["multilevel"].thresholds[0] + 1
    layout = Layout(policy="least-loaded", choices=2, bins=(10**5,))
    seen = predict(layout, 10**5)
    chances = chains.max_load_chances(layout, seen.tables, seen.overflow_loads)
    assert chances.sum() == pytest.approx(1, abs=1e-12)
    assert chances[4] == pytest.approx(-math.expm1(-(10**5) * float(seen.loads[4:].sum())), rel=1e-4)


def test_growth_rates() -> None:
    for d in range(2, 9):
        phi = chains.growth_rate(d)
        assert phi**d == pytest.approx(sum(phi**i for i in range(d)), rel=1e-12)
    n = 10**6
    assert chains.asymptotic_max_load("least-loaded", 2, n) == math.log(math.log(n)) / math.log(2)
    assert chains.asymptotic_max_load("d-left", 2, n) == pytest.approx(
        math.log(math.log(n)) / (2 * math.log((1 + math.sqrt(5)) / 2))
    )
    with pytest.raises(ValueError, match="threshold"):
        chains.asymptotic_max_load("multilevel", 2, n)
    with pytest.raises(ValueError, match="choices"):
        chains.growth_rate(1)
    with pytest.raises(ValueError, match="keys"):
        predict(Layout(policy="single", choices=1, bins=(1,), thresholds=(NEVER_FULL,), overflow_bins=1), 0)


@pytest.mark.parametrize("load", [0.01, 1, 64])
def test_every_load_can_be_planned(load: float) -> None:
    for policy in PLANS:
        for keys in (1, 1000):
            plan = plan_chains(keys, policy=policy, load=load)
            numbers = [value for value in plan.to_dict().values() if isinstance(value, float)]
            assert all(math.isfinite(x) and x >= 0 for x in numbers), (policy, plan)
            assert plan.query_mean >= 1 - 1e-9
            assert plan.reads >= 1 - 1e-9

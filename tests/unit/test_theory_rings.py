"""The mathematics of rings against exact enumeration at small sizes, and its refusals."""

from __future__ import annotations

import doctest
import importlib
import itertools
import json
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import betabinom, binom

from evenbins.rings import plan_ring
from evenbins.study.theory import rings

# --- doctests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["study.theory.rings", "rings.plan", "theory.ring_laws", "theory.ring_first_full",
     "study.papers.chen", "study.papers.chen_tables", "study.papers.ring_simulation"],
)  # fmt: skip
def test_the_examples_of_a_module_work(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"evenbins.{name}"))
    assert failed == 0
    assert tried > 0


# --- limits ----------------------------------------------------------------------------------------------


def test_limits_are_exact() -> None:
    assert 1.1 * 110 > 121
    assert rings.ring_limit(110, 1, 0.1) == 121
    for keys, nodes, epsilon, limit in [
        (10, 1, 0.1, 11), (10_000, 1000, 0.1, 11), (10_000, 1000, 0.3, 13), (3000, 1000, 0.1, 4), (1, 3, 0,
        1), (0, 5, 1, 0), (7, 7, 0, 1), (8, 7, 0, 2), (10**14, 3, 0.2, 4 * 10**13),
    ]:  # fmt: skip
        assert rings.ring_limit(keys, nodes, epsilon) == limit
    for keys in range(200):
        exact = math.ceil(Fraction(5, 4) * keys / 7)
        assert rings.ring_limit(keys, 7, 0.25) == exact
        assert rings.ring_limits(keys, [1] * 7, 0.25) == (exact,) * 7
    assert rings.ring_limits(60, [1, 2, 3], 0.1) == (11, 22, 33)
    assert rings.ring_limits(30, np.array([0.1, 0.2]), 0) == (10, 20)


# --- loads, by enumeration -------------------------------------------------------------------------------


def thrown_exactly(keys: int, limits: list[int], shares: list[float]) -> dict[tuple[int, ...], float]:
    """The law of the loads when each key goes to an open node, by its share: all orders, added up."""
    law = {(0,) * len(limits): 1.0}
    for _ in range(keys):
        following: Counter[tuple[int, ...]] = Counter()
        for loads, chance in law.items():
            room = [i for i, load in enumerate(loads) if load < limits[i]]
            whole = sum(shares[i] for i in room)
            for i in room:
                following[(*loads[:i], loads[i] + 1, *loads[i + 1 :])] += chance * shares[i] / whole
        law = dict(following)
    return law


@pytest.mark.parametrize(("keys", "nodes", "limit"), [(12, 6, 3), (15, 6, 4), (10, 7, 2), (18, 5, 6)])
def test_loads_of_jumps_are_the_model_but_for_one_over_the_nodes(keys: int, nodes: int, limit: int) -> None:
    law = thrown_exactly(keys, [limit] * nodes, [1.0] * nodes)
    full = sum(chance * sum(load == limit for load in loads) for loads, chance in law.items()) / nodes
    square = sum(chance * sum(load**2 for load in loads) for loads, chance in law.items()) / nodes
    found = rings.jump_loads(keys, nodes, limit)
    assert found.mean == pytest.approx(keys / nodes)
    assert found.loads.sum() == pytest.approx(1)
    assert abs(found.full - full) < 0.6 / nodes
    plan = plan_ring(nodes, keys, limit=limit)
    assert plan.variance is not None
    assert abs(plan.variance - (square - (keys / nodes) ** 2)) < 0.35 * found.variance / nodes + 0.01


def test_loads_of_weighted_jumps() -> None:
    limits, shares = [2, 2, 4, 4], [1.0, 1.0, 2.0, 2.0]
    law = thrown_exactly(9, limits, shares)
    light = sum(chance * (loads[0] + loads[1]) for loads, chance in law.items())
    found = rings.jump_loads(9, 4, limits, weights=shares)
    assert found.mean == pytest.approx(9 / 4)
    full = sum(c * sum(x == y for x, y in zip(each, limits, strict=True)) for each, c in law.items()) / 4
    assert abs(found.full - full) < 0.15
    assert 2.5 < light < 4
    same = rings.jump_loads(900, 300, 4, weights=[2.0] * 300)
    assert same.variance == pytest.approx(rings.jump_loads(900, 300, 4).variance)


def test_without_keys_without_room_and_with_just_enough() -> None:
    assert rings.jump_loads(0, 5, 3).searches == 1
    assert rings.jump_loads(15, 5, 3).full == 1
    assert rings.jump_loads(15, 5, 3).searches is None
    with pytest.raises(ValueError, match="limit must leave room for 16 keys; all nodes together hold 15"):
        rings.jump_loads(16, 5, 3)


def test_searches_are_geometric() -> None:
    found = rings.jump_loads(10_000, 1000, 11)
    assert found.searches == pytest.approx(1 / (1 - found.full))
    assert sum(rings.searches_above(found, s) for s in range(500)) == pytest.approx(found.searches)


def test_one_random_point_a_node_has_the_same_loads_clockwise_and_rehashed() -> None:
    """The queue of geometric arrivals and the truncated geometric law: two derivations of one number."""
    for keys, limit in ((10_000, 11), (10_000, 13), (3000, 6), (10**6, 1250)):
        queue, thrown = rings.clockwise_loads(keys, 1000, limit), rings.rehash_loads(keys, 1000, limit)
        assert queue is not None
        assert queue.full == pytest.approx(thrown.full, rel=1e-6)
        assert queue.loads == pytest.approx(thrown.loads, abs=1e-8)


def test_clockwise_searches_only_where_the_ring_is_long() -> None:
    short, long = (rings.clockwise_loads(10 * nodes, nodes, 11) for nodes in (1000, 100_000))
    assert short is not None
    assert long is not None
    assert short.searches is None
    assert long.searches == pytest.approx(66.06, abs=0.01)
    assert rings.clockwise_loads(100, 10, 10) is None


def test_a_moving_limit_is_tighter_than_a_fixed_one() -> None:
    for keys, epsilon in ((10_000, 0.1), (3000, 1.0), (30_000, 0.3)):
        moving = rings.growing_loads(keys, 1000, epsilon)
        fixed = rings.jump_loads(keys, 1000, rings.ring_limit(keys, 1000, epsilon))
        assert moving.mean == pytest.approx(fixed.mean, rel=1e-6)
        assert moving.variance < fixed.variance
        assert moving.full < fixed.full
    weighted = rings.growing_loads(10_000, 1000, 0.1, weights=[3.0] * 1000)
    assert weighted.variance == pytest.approx(rings.growing_loads(10_000, 1000, 0.1).variance)


# --- the plain ring --------------------------------------------------------------------------------------


def test_plain_variance_is_that_of_the_beta_binomial_law() -> None:
    assert rings.plain_variance(50, 7) == pytest.approx(binom(50, 1 / 7).var())
    for copies in (1, 3):
        assert rings.plain_variance(50, 7, copies) == pytest.approx(betabinom(50, copies, 6 * copies).var())
        assert rings.share_variance(7, copies) == pytest.approx(
            (rings.plain_variance(50, 7, copies) - rings.plain_variance(50, 7)) / (50 * 49)
        )
    assert rings.plain_loads(10_000, 1000, 20).loads.sum() == pytest.approx(1)
    assert rings.plain_loads(0, 3, 2).full == 0


# --- the first full node ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "limit"), [(3, 2), (3, 3), (2, 5), (1, 3)])
def test_the_first_full_node_by_enumeration(nodes: int, limit: int) -> None:
    chances = []
    for keys in range(nodes * (limit - 1) + 2):
        fine = sum(
            max(Counter(each).values(), default=0) < limit
            for each in itertools.product(range(nodes), repeat=keys)
        )
        chances.append(fine / nodes**keys)
        assert rings.no_full(nodes, limit, keys) == pytest.approx(chances[-1], abs=1e-12)
    assert rings.first_full(nodes, limit) == pytest.approx(sum(chances), rel=1e-9)
    assert rings.first_full_within(nodes, limit, limit + 1) == pytest.approx(
        sum(chances[: limit + 1]), rel=1e-9
    )


@pytest.mark.parametrize("copies", [1, 3])
def test_the_first_full_node_of_random_arcs_by_enumeration(copies: int) -> None:
    """Loads of a ring of random points are Dirichlet-multinomial: Polya's urn of copies balls a node."""
    nodes, limit, total = 3, 3, 0.0
    for keys in range(nodes * (limit - 1) + 1):
        chance = 0.0
        for order in itertools.product(range(nodes), repeat=keys):
            counts, each = [copies] * nodes, 1.0
            for i, node in enumerate(order):
                each *= counts[node] / (nodes * copies + i)
                counts[node] += 1
            chance += each * (max(counts) - copies < limit)
        assert rings.no_full(nodes, limit, keys, copies=copies) == pytest.approx(chance, abs=1e-12)
        total += chance
    assert rings.first_full(nodes, limit, copies=copies) == pytest.approx(total, rel=1e-8)


def test_the_first_full_node_of_weighted_ones() -> None:
    """Two nodes of shares 1/4 and 3/4, limits 1 and 2: after key 1 with 1/4; else after key 2."""
    assert rings.first_full(2, [1, 2], weights=[1, 3]) == pytest.approx(1 / 4 + 2 * 3 / 4, rel=1e-9)
    assert (
        rings.first_full(1000, 11)
        > rings.first_full(1000, 11, copies=30)
        > rings.first_full(1000, 11, copies=1)
    )


# --- the theorems ----------------------------------------------------------------------------------------


def test_bounds_of_searches() -> None:
    assert rings.searches_bound(0) == math.inf
    assert rings.clockwise_searches_bound(0.1) == pytest.approx(200)
    assert rings.clockwise_searches_bound(3) is None
    for keys, epsilon in itertools.product((1000, 3000, 10_000), (0.1, 0.3, 1.0, 3.0)):
        plan = plan_ring(1000, keys, epsilon=epsilon, limits="fixed")
        assert plan.searches is not None
        assert plan.searches_bound is not None
        assert plan.searches <= plan.searches_bound


def test_the_variance_of_chances_by_enumeration() -> None:
    """Six nodes on equal arcs, all orders in which they fill."""
    k = 6
    for full in range(k):
        squares = 0.0
        orders = list(itertools.permutations(range(k), full))
        for order in orders:
            arcs = dict.fromkeys(range(k), 1 / k)
            for node in order:
                heir = next(i % k for i in range(node + 1, node + k) if i % k in arcs)
                arcs[heir] += arcs.pop(node)
            squares += sum(each**2 for each in arcs.values()) / len(arcs)
        variance = squares / len(orders) - 1 / (k - full) ** 2
        assert rings.assignment_variance(k, full) == pytest.approx(variance, abs=1e-12)
    steps = [rings.assignment_variance(1000, j, start=1e-6) for j in range(998)]
    for j in range(1, 998):
        assert steps[j] / steps[j - 1] > rings.assignment_growth(1000, j) > 1 + 1 / 3000


def test_dominance_is_seen_and_its_opposite_too() -> None:
    spread, even = np.tile([20, 60, 20], (50, 1)), np.tile([0, 100, 0], (50, 1))
    assert rings.dominance(even, spread).holds
    assert not rings.dominance(spread, even).holds
    with pytest.raises(ValueError, match="lower and upper must be counts"):
        rings.dominance([[1, 2]], [[1, 2, 3]])


# --- plans -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("policy", ["plain", "clockwise", "rehash", "jump"])
@pytest.mark.parametrize("bound", [{}, {"epsilon": 0.1}, {"epsilon": 0.1, "limits": "fixed"}, {"limit": 40}])
def test_every_plan_can_be_shown(policy: str, layout: str, bound: dict[str, Any]) -> None:
    for nodes in (20, [1.0, 2.0] * 10):
        for keys in (0, 1, 300):
            plan = plan_ring(nodes, keys, policy=policy, layout=layout, copies=2, **bound)
            assert plan.to_dict() == json.loads(json.dumps(plan.to_dict()))
            assert repr(plan).startswith("RingPlan(nodes=20, ")
            assert "searches" in str(plan)
            assert plan._repr_html_().startswith("<table>")
            assert plan.full is None or 0 <= plan.full <= 1
            assert plan.max_load is None or plan.max_load >= plan.mean
            if plan.variance is not None and keys == 0:
                assert plan.variance == 0


def test_plans_know_what_they_do_not_know() -> None:
    moving = plan_ring(1000, 10_000, policy="clockwise", epsilon=0.1)
    assert (moving.limits, moving.limit, moving.variance, moving.first_full) == ("moving", 11, None, None)
    copies = plan_ring(1000, 10_000, policy="clockwise", layout="sparse", copies=7, limit=11)
    assert copies.variance is None
    assert copies.first_full == pytest.approx(2348, abs=1)
    assert plan_ring(1, 10).variance == 0
    assert plan_ring([2, 2, 2], 9) == plan_ring(3, 9)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: plan_ring(0, 5), ValueError, "nodes must be an integer from 1"),
        (lambda: plan_ring([], 5), TypeError, "weights must be one or more positive numbers"),
        (lambda: plan_ring([1, -1], 5), ValueError, "weights must be one or more positive numbers"),
        (lambda: plan_ring(3, -1), ValueError, "keys must be an integer from 0"),
        (lambda: plan_ring(3, 5, policy="walk"), ValueError, "policy must be one of \"plain\""),
        (lambda: plan_ring(3, 5, layout=1), TypeError, "layout must be"),
        (lambda: plan_ring(3, 5, epsilon=1, limit=2), ValueError, "epsilon and limit exclude each other"),
        (lambda: plan_ring(3, 5, limit=1), ValueError, "limit must leave room for 5 keys; 3 nodes of limit"),
        (lambda: plan_ring(3, 5, limit=9, limits="moving"), ValueError, "limits must be 'fixed'"),
        (lambda: plan_ring(3, 5, epsilon=-1), ValueError, "epsilon must be a number from 0 to 1000000"),
        (lambda: plan_ring(3, 5, copies=0), ValueError, "copies must be an integer from 1"),
        (lambda: rings.first_full(3, 0), ValueError, "limit must be 1 or more"),
        (lambda: rings.first_full(3, 2, copies=1, weights=[1, 2, 3]), ValueError, "exclude each other"),
        (lambda: rings.first_full_within(3, 2, -1), ValueError, "keys must be an integer from 0"),
        (lambda: rings.jump_loads(3, 2, 2, weights=[1]), ValueError, "weights must be one for each of 2"),
        (lambda: rings.jump_loads(3, 2, [2], weights=[1, 1]), ValueError, "limit must be one number, or"),
        (lambda: rings.growing_loads(3, 2, 0.1, weights=[1]), ValueError, "weights must be one for each"),
        (lambda: rings.assignment_variance(3, 3), ValueError, "full must be an integer from 0 to 2"),
    ],
)  # fmt: skip
def test_refusals(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()

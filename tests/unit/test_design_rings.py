"""design.ring: what it plans is what a ring of that size does, and what cannot be is refused."""

from __future__ import annotations

import json
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest

from evenbins import HashRing, design
from evenbins.rings import plan_ring
from evenbins.study.theory.rings import first_full, first_full_within


def test_best_first() -> None:
    designs = design.ring(nodes=1000, keys=100_000)
    cheap = [each for each in designs if each.plan.searches <= 1.2]
    assert list(designs)[: len(cheap)] == cheap
    assert [each.overload for each in cheap] == sorted(each.overload for each in cheap)
    assert {each.policy for each in designs} == {"jump", "plain"}
    assert designs.best.pareto
    assert "ring designs for nodes=1_000, keys=100_000" in str(designs)
    json.dumps(designs.to_dict())


def test_bounds_are_met() -> None:
    for each in design.ring(nodes=100, keys=10_000, overload=1.15, full=0.2):
        assert each.overload <= 1.15
        assert (each.plan.full or 0) <= 0.2
    with pytest.raises(ValueError, match=r"nothing meets the request: overload=1\.001"):
        design.ring(nodes=100, keys=10_000, overload=1.001)


def test_a_built_ring_is_as_designed() -> None:
    """500 nodes, 50,000 keys: load of the fullest, moves of a join, memory of the map."""
    best = design.ring(nodes=500, keys=50_000, overload=1.1, move_rate=1000).best
    ring = best.build()
    ring.assign_many(np.arange(50_000), indices=True)
    assert max(ring.loads().values()) <= best.plan.limit
    assert abs(max(ring.loads().values()) / 100 / best.overload - 1) < 0.05
    assert 0.7 < best.map_bytes / ring.nbytes < 1.5
    before = ring.node_many(np.arange(50_000))
    ring.add_node("another")
    changed = (ring.node_many(np.arange(50_000)) != before).mean()
    assert abs(changed - best.moved) < 5 * (best.moved / 50_000) ** 0.5
    assert best.join_seconds == pytest.approx(50_000 / 501 / 1000)
    assert best.rebuild_seconds == 50.0


def test_searches_are_geometric() -> None:
    tight = next(each for each in design.ring(nodes=100, keys=1050) if each.plan.epsilon == 0.02)
    assert tight.plan.searches > 1.2
    passed = 1 - 1 / tight.plan.searches
    assert passed**tight.searches_p99 <= 0.01 < passed ** (tight.searches_p99 - 1)


def test_no_machine_holds_it() -> None:
    best = design.ring(nodes=1000, keys=1e10, overload=1.1).best
    assert best.plan.keys == 10**10
    assert best.map_bytes > 10**11
    assert best.moved == pytest.approx(1e-3, rel=1e-2)


def test_names_and_options() -> None:
    ring = design.ring(nodes=3, keys=10).build(["x", "y", "z"], seed=5)
    assert isinstance(ring, HashRing)
    assert (ring.names, ring.seed) == (("x", "y", "z"), 5)
    with pytest.raises(ValueError, match="3 names; got 1"):
        design.ring(nodes=3, keys=10).build(["x"])


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"nodes": 0}, ValueError, "nodes must be"),
        ({"keys": -1}, ValueError, "keys must be"),
        ({"overload": 0.5}, ValueError, "overload must be a number from 1 on"),
        ({"searches": "many"}, TypeError, "searches must be"),
        ({"move_rate": 0}, ValueError, "move_rate must be a positive"),
    ],
)
def test_refused(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        design.ring(**{"nodes": 10, "keys": 100, **arguments})


def test_one_node_has_all_keys() -> None:
    plan = design.ring(nodes=1, keys=1e6).best.plan
    assert (plan.max_load, plan.variance, plan.searches) == (10**6, 0.0, 1.0)
    fixed = plan_ring(1, 5, limit=5)
    assert (fixed.full, fixed.searches, fixed.max_load) == (1.0, None, 5)


@pytest.mark.parametrize("more", [{"epsilon": 0.5}, {"limit": 2 * 10**11}, {"policy": "plain"}])
def test_memory_of_a_plan_does_not_grow_with_the_keys(more: dict[str, Any]) -> None:
    """The laws of 10 nodes with 1e12 keys; a Poisson variable of mean 1e11 is normal."""
    tracemalloc.start()
    try:
        plan = plan_ring(10, 10**12, **more)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 150e6
    assert plan.max_load is not None
    assert plan.variance == pytest.approx(0.9e11, rel=1e-4)
    assert plan.max_load == pytest.approx(1e11 + 1.4825 * 10**5.5, abs=3000)  # P(Z > 1.4825) = ln 2 / 10


def test_weights_that_no_ring_takes_are_refused() -> None:
    with pytest.raises(ValueError, match="from 1e-100 to 1e\\+100"):
        plan_ring([1e-300, 1e300], 1000)
    with pytest.raises(ValueError, match="a factor of at most 1e\\+30"):
        design.ring([1e-20, 1e20], 1000)


@pytest.mark.parametrize("policy", ["rehash", "clockwise", "jump"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_one_node_is_full_after_its_limit(policy: str, layout: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plan_ring([1.0], 2, policy=policy, layout=layout, limit=3).first_full == 3.0
    assert first_full(1, 3, copies=1) == 3.0
    assert first_full_within(1, 3, 2, copies=1) == 2.0

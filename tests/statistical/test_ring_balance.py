"""What a ring promises by probability: shares, balance, cost and least moves.

Every test: a fixed seed, a predicted value, an interval that a right ring leaves with probability 1e-6.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sizes import size

from evenbins import HashRing, _core, digest
from evenbins.rings.forwarding import ForwardingMarks
from evenbins.study.marked_nodes import MarkedNode
from evenbins.study.ring import ring as study_ring
from evenbins.study.theory import rings as theory

MILLIONTH = stats.norm.isf(0.5e-6)  # 4.89 standard errors


def names(n: int) -> list[str]:
    return [f"server{i:04}" for i in range(n)]


def chi_square(counts: np.ndarray, shares: np.ndarray) -> float:
    expected = shares / shares.sum() * counts.sum()
    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), counts.size - 1))


@pytest.mark.parametrize("m", [2, 3, 5, 8, 100, 600, 1000, 1025])
def test_slots_are_uniform(m: int) -> None:
    """200,000 words over m slots; chi-square."""
    words = _core_words(200_000, m)
    counts = np.bincount([_core.dense_slot(w, m) for w in words], minlength=m)
    assert 1e-6 < chi_square(counts, np.ones(m)) < 1 - 1e-6


def _core_words(n: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 2**64, n, np.uint64).tolist()  # type: ignore[no-any-return]


def test_a_broken_function_would_show() -> None:
    """Power: low bits modulo m, a usual mistake, at the same sample size."""
    words = np.array(_core_words(200_000, 1), np.uint64)
    counts = np.bincount((words & np.uint64(1023)) % 1000, minlength=1000)
    assert chi_square(counts, np.ones(1000)) < 1e-6


def test_first_probes_follow_weights() -> None:
    """A million keys, 50 nodes of weights from 0.05 to 20, ten of them removed before; chi-square."""
    rng = np.random.default_rng(7)
    weights = {name: float(w) for name, w in zip(names(60), np.exp(rng.uniform(-3, 3, 60)), strict=True)}
    ring = HashRing(weights, weights=weights)
    for name in names(60)[10:20]:
        ring.remove_node(name)
    counts = np.bincount(ring.node_many(np.arange(1_000_000), indices=True), minlength=50)
    shares = np.array([weights[name] for name in ring.names])
    assert 1e-6 < chi_square(counts, shares) < 1 - 1e-6


@pytest.mark.parametrize("epsilon", [0.1, 0.3])
def test_dense_is_as_even_as_sparse(epsilon: float) -> None:
    """1000 nodes, 10,000 keys, some rings each: variance and full fraction agree, and with the plan.

    The paper's limit: of 10,000 keys, from the first on.
    """
    limit = theory.ring_limit(10_000, 1000, epsilon)
    measured = {}
    for layout in ("dense", "sparse"):
        rows = []
        for seed in range(size(20, 40) if layout == "dense" else size(6, 12)):
            ring = study_ring(names(1000), layout=layout, limit=limit, seed=seed)
            ring.assign_many(np.arange(10_000), indices=True)
            stats_ = ring.stats()
            rows.append((stats_.variance, stats_.full))
            if layout == "dense":
                assert stats_.steps <= 10
        measured[layout] = np.array(rows)
    plan = HashRing(names(1000), limit=limit)
    plan.assign_many(np.arange(10_000), indices=True)
    predicted = (plan.plan.variance, plan.plan.full)
    for column in (0, 1):
        dense, sparse = measured["dense"][:, column], measured["sparse"][:, column]
        noise = np.hypot(dense.std(ddof=1) / np.sqrt(dense.size), sparse.std(ddof=1) / np.sqrt(sparse.size))
        assert abs(dense.mean() - sparse.mean()) < stats.t.isf(0.5e-6, sparse.size - 1) * noise
        value = predicted[column]
        assert value is not None
        bound = stats.t.isf(0.5e-6, dense.size - 1) * dense.std(ddof=1) / np.sqrt(dense.size)
        assert abs(dense.mean() - value) < bound + 0.002 * value


@pytest.mark.parametrize(("keys", "epsilon"), [(10_000, 0.1), (100_000, 0.05), (50_000, 0.0)])
def test_growing_ring_is_as_planned(keys: int, epsilon: float) -> None:
    """1000 nodes, 25 rings: full fraction and variance under the moving limit."""
    rows = []
    for seed in range(25):
        ring = HashRing(names(1000), epsilon=epsilon, seed=seed)
        ring.assign_many(np.arange(keys), indices=True)
        rows.append((ring.stats().variance, ring.stats().full))
    plan = ring.plan
    for column, value in enumerate((plan.variance, plan.full)):
        found = np.array(rows)[:, column]
        assert value is not None
        assert (
            abs(found.mean() - value)
            <= stats.t.isf(0.5e-6, 24) * found.std(ddof=1) / 5 + 0.01 * value + 1e-12
        )


def test_least_moves() -> None:
    """A node joins 1000, and one leaves: a million keys; changes at most 1.2 of the optimum, none between
    others."""
    ring = HashRing(names(1000))
    before = ring.node_many(np.arange(1_000_000))
    ring.add_node("new")
    after = ring.node_many(np.arange(1_000_000))
    changed = before != after
    assert set(after[changed]) == {"new"}
    assert changed.mean() <= 1.2 / 1001
    assert abs(changed.mean() - 1 / 1001) < MILLIONTH * np.sqrt(1 / 1001 / 1e6)
    ring.remove_node("server0500")
    last = ring.node_many(np.arange(1_000_000))
    left = last != after
    assert (left == (after == "server0500")).all()
    assert left.mean() <= 1.2 / 1001
    ring.add_node("another")  # in the freed slot
    again = ring.node_many(np.arange(1_000_000))
    assert set(again[again != last]) == {"another"}
    assert ((again == "another") == (after == "server0500")).all()


def test_keys_of_a_node_that_leaves_spread_evenly() -> None:
    """The keys that jump off a full or removed node go everywhere: 2 million keys, 50 nodes; chi-square."""
    ring = HashRing(names(50))
    before = ring.node_many(np.arange(2_000_000), indices=True)
    mine = np.flatnonzero(before == 17)
    ring.mark_down("server0017")
    counts = np.bincount(ring.node_many(mine, indices=True), minlength=50)
    assert counts[17] == 0
    assert 1e-6 < chi_square(np.delete(counts, 17), np.ones(49)) < 1 - 1e-6


def test_steady_loads() -> None:
    """Keys come and go, 10,000 at a time on 1000 nodes at epsilon 0.1: Poisson, given at most the limit."""
    law = theory.steady_loads(10_000, 1000, 11)
    full, spread = [], []
    for seed in range(6):
        ring = HashRing(names(1000), epsilon=0.1, seed=seed)
        ring.assign_many(np.arange(10_000), indices=True)
        rng = np.random.default_rng(seed)
        live = np.arange(10_000)
        for i in range(100_000):
            slot = int(rng.integers(10_000))
            ring.release(int(live[slot]))
            live[slot] = 10_000 + i
            ring.assign(10_000 + i)
        full.append(ring.stats().full)
        spread.append(ring.stats().variance)
    index = np.arange(12)
    assert abs(np.mean(full) - law[11]) < MILLIONTH * np.std(full, ddof=1) / np.sqrt(6) * 2 + 0.01
    assert abs(np.mean(spread) - (law @ index**2 - 100)) < 0.15


def test_live_keys_are_found_without_the_map() -> None:
    """1000 nodes, 10,000 keys, epsilon 0.1, 50,000 replacements: marks find all; the classical rule about
    71 %.

    By `HashRing.place`, `locate` and `forget` alone; the nodes know what they hold, their limit and their
    marks.
    Both rules are asked over the same state: where keys go depends on loads alone.
    """
    ring = HashRing(names(1000))
    servers = {name: MarkedNode(name, 11, marks=ForwardingMarks()) for name in ring.names}

    def place(key: int) -> None:
        mine = digest(key)
        ring.place(key, offer=lambda name: servers[name].offer(mine))

    def forget(key: int) -> None:
        mine = digest(key)
        ring.forget(key, drop=lambda name: servers[name].drop(mine))

    def is_found(key: int, classical: bool) -> bool:
        mine = digest(key)
        return ring.locate(key, holds=lambda name: servers[name].holds(mine, classical=classical)) is not None

    live = list(range(10_000))
    for key in live:
        place(key)
    for i, slot in enumerate(np.random.default_rng(3).integers(0, 10_000, 50_000).tolist()):
        forget(live[slot])
        live[slot] = 10_000 + i
        place(live[slot])
    assert sum(map(len, servers.values())) == 10_000
    found = {rule: sum(is_found(key, rule) for key in live) / 10_000 for rule in (False, True)}
    assert found[False] == 1.0
    assert abs(found[True] - 0.71) < 0.02

"""The draws of a ring: slots are uniform, first visits follow the weights, joins and leaves move the least.

Fixed seeds; every count against its two-sided binomial or chi-square interval at 1e-6. The readable twin is
measured, because it is the specification.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom, chi2

from reference.keys import splitmix
from reference.ring import WHOLE, Ring, dense_slot

LEVEL = 1e-6
WORDS = 20_000
DIGESTS = 12_000


def in_binomial_interval(count: int, trials: int, chance: float) -> bool:
    low, high = binom.ppf([LEVEL / 2, 1 - LEVEL / 2], trials, chance)
    return bool(low <= count <= high)


def chi_square(function: Callable[[int, int], int], m: int) -> float:
    counts = np.bincount([function(splitmix(m, i), m) for i in range(WORDS)], minlength=m)
    assert len(counts) == m
    return float(((counts - WORDS / m) ** 2).sum() * m / WORDS)


@pytest.mark.parametrize("m", [2, 3, 4, 5, 7, 8, 9, 33, 100, 257, 300])
def test_slots_are_uniform(m: int) -> None:
    """20,000 words for each m; chi-square with m - 1 degrees of freedom."""
    low, high = chi2.ppf([LEVEL / 2, 1 - LEVEL / 2], m - 1)
    assert low <= chi_square(dense_slot, m) <= high


def test_slots_that_are_not_drawn_again_are_found_out() -> None:
    """The power of the test above: a draw that misses falls to the lower levels at once."""

    def broken(word: int, m: int) -> int:
        half = 1 << ((m - 1).bit_length() - 1)
        slot = dense_slot(word, 2 * half)
        return slot if slot < m else dense_slot(word, half)

    for m in (3, 33, 150):
        assert chi_square(broken, m) > chi2.ppf(1 - LEVEL / 2, m - 1)


@pytest.mark.parametrize(
    ("policy", "layout"),
    [
        ("jump", "dense"),
        ("jump", "sparse"),
        ("clockwise", "dense"),
        ("rehash-bin", "dense"),
        ("plain", "dense"),
    ],
)
def test_first_visits_follow_the_weights(policy: str, layout: str) -> None:
    """12,000 digests; weights 2.5, 0.3, 1, 1, 0.01 and 2 copies: each node's count is binomial."""
    weights = {"a": 2.5, "b": 0.3, "c": 1.0, "d": 1.0, "e": 0.01}
    quanta = {name: round(weight * WHOLE) for name, weight in weights.items()}
    ring = Ring.of(quanta, policy, layout, copies=2, rate=10**9, seed=9, array_bits=8)
    first = Counter(ring.node(splitmix(17, i)) for i in range(DIGESTS))
    for name, own in quanta.items():
        assert in_binomial_interval(first[name], DIGESTS, own / sum(quanta.values())), (name, first)


def test_weights_that_are_ignored_are_found_out() -> None:
    """The power of the test above: a slot that accepts all draws."""
    ring = Ring.of({"a": WHOLE, "b": WHOLE // 3}, "jump", "dense", rate=10**9)
    ring.fractions = dict.fromkeys(ring.fractions, WHOLE)
    first = Counter(ring.node(splitmix(17, i)) for i in range(DIGESTS))
    assert not in_binomial_interval(first["b"], DIGESTS, 0.25)


@pytest.mark.parametrize("nodes", [4, 31, 32, 100])
def test_a_node_that_joins_or_leaves_moves_its_share_of_first_visits(nodes: int) -> None:
    """12,000 digests: those that change are binomial with chance 1 / nodes, and all come from or go to it."""
    ring = Ring.of([f"node-{i}" for i in range(nodes)], "jump", "dense", rate=10**9)
    digests = [splitmix(nodes, i) for i in range(DIGESTS)]
    before = [ring.node(d) for d in digests]
    ring.add_node("new")
    joined = [ring.node(d) for d in digests]
    changed = [(old, new) for old, new in zip(before, joined, strict=True) if old != new]
    assert {new for _, new in changed} == {"new"}
    assert in_binomial_interval(len(changed), DIGESTS, 1 / (nodes + 1))
    ring.remove_node("node-2")
    left = [ring.node(d) for d in digests]
    changed = [(old, new) for old, new in zip(joined, left, strict=True) if old != new]
    assert {old for old, _ in changed} == {"node-2"}
    assert in_binomial_interval(len(changed), DIGESTS, 1 / (nodes + 1))
    ring.add_node("node-2")  # a name that returns takes its old slot
    assert [ring.node(d) for d in digests] == joined

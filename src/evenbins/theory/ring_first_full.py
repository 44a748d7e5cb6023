"""Keys until the first node of a ring is full (Theorem 4 of Chen, Coleman and Shrivastava), exactly.

Before a node is full every policy puts a key where it is first probed. Let keys come by a Poisson process of
rate k: node i has Poisson(t) of them at time t, if shares are equal, independently of the others. With P_l
the chance that no node is full after l keys, the expected time without a full node is sum_l P_l / k, so that

    E[N1] = sum_l P_l = k * integral of P(Poisson(t) < limit)^k dt

For arcs of v random points a node the shares are Gamma(v) variables over their sum S, which is independent of
them, and E[1/S] = 1/(k v - 1): the factor is k v - 1, and the law in the integral negative binomial.

Tried and dropped: even steps of the clock. With few nodes on random arcs its tail is a power of t, and sums
were wrong by orders; its logarithm takes both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from evenbins import _arguments as arguments
from evenbins.theory import ring_laws as laws
from evenbins.theory.ring_limits import checked, checked_copies

__all__ = ["first_full"]


def first_full(
    nodes: int,
    limit: int | Sequence[int],
    *,
    copies: int | None = None,
    weights: Sequence[float] | None = None,
) -> float:
    """Compute the expected number of keys until a node is full, the one that fills it counted (Theorem 4).

    Exact for every policy: before a node is full all of them place a key where it is first probed.

    `limit` is one for all nodes, or with weights one for each. `copies` are the random points of a node; None
    if shares are equal (jump; the dense layout) or those of the weights.

    >>> round(first_full(1000, 11), 1), round(first_full(1000, 11, copies=1), 1)
    (3299.0, 1064.0)
    """
    (nodes,), copies = checked(nodes=nodes), checked_copies(copies)
    if copies is not None and weights is not None:
        raise ValueError(
            "copies and weights exclude each other: weights are predicted for equal arcs. Pass one"
        )
    groups = laws.groups_of(nodes, limit, weights, copies)
    if min(each.limit for each in groups) < 1:
        raise arguments.error("limit", "1 or more", limit, "A node of limit 0 is always full")
    if nodes == 1:  # whose one arc is the circle: no law of arcs applies
        return float(groups[0].limit)

    def open_for(clock: Any) -> Any:
        chance = np.ones_like(np.asarray(clock, dtype=float))
        for each in groups:
            chance = chance * laws.chance_below(clock * each.weight, each.copies, each.limit) ** each.count
        return chance

    # Simpson's rule on the clock's logarithm, where the chance falls from 1 to 0; before that it is 1
    low, high = 1.0, 1.0
    while open_for(high) * high > 1e-15:
        high *= 1.25
    while open_for(low) < 1.0 - 1e-15 and low > 1e-15:
        low /= 1.25
    clock = np.geomspace(low, max(high, 2.0 * low), 4097)
    weight = np.ones(clock.size)
    weight[1:-1:2], weight[2:-1:2] = 4.0, 2.0
    area = low + float(weight @ (open_for(clock) * clock)) * math.log(clock[1] / clock[0]) / 3.0
    # a throw at a random arc: the clock runs at mean 1 for each node, its arcs sum to nodes on average
    scale = nodes if copies is None else nodes * (1.0 - 1.0 / (nodes * copies))
    return float(area * scale)

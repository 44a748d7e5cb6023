"""Keys until the first node of a ring is full (Theorem 4 of Chen, Coleman and Shrivastava), exactly.

Before a node is full every policy puts a key where it is first probed. Let keys come by a Poisson process of
rate k: node i has Poisson(t) of them at time t, if shares are equal, independently of the others. With P_l
the chance that no node is full after l keys, the expected time without a full node is sum_l P_l / k, so that

    E[N1] = sum_l P_l = k * integral of P(Poisson(t) < limit)^k dt

For arcs of v random points a node the shares are Gamma(v) variables over their sum S, which is independent of
them, and E[1/S] = 1/(k v - 1): the factor is k v - 1, and the law in the integral negative binomial. One
P_l is a coefficient of a power series' k-th power, found on a circle in the complex plane.

Tried and dropped: even steps of the clock. With few nodes on random arcs its tail is a power of t, and sums
were wrong by orders; its logarithm takes both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory import ring_laws as laws
from evenbins.theory.ring_limits import checked_copies, checked_keys, checked_limit, checked_nodes

__all__ = ["first_full", "no_full"]

_Floats = npt.NDArray[np.float64]


def first_full(
    nodes: int,
    limit: int | Sequence[int],
    *,
    copies: int | None = None,
    weights: Sequence[float] | None = None,
    keys: int | None = None,
) -> float:
    """Compute the expected number of keys until a node is full, the one that fills it counted (Theorem 4).

    Exact for every policy: before a node is full all of them place a key where it is first probed.

    Parameters
    ----------
    nodes, limit
        k and C; with weights also one limit for each node.
    copies
        Random points of a node; None if shares are equal (jump; the dense layout) or given by weights.
    weights
        Of the nodes, for equal points: their shares.
    keys
        If given, the mean of min(N1, keys): what a table shows whose experiment ends after so many keys.

    Examples
    --------
    >>> round(first_full(1000, 11), 1), round(first_full(1000, 11, copies=1), 1)
    (3299.0, 1064.0)
    >>> round(first_full(1000, 20), 1), round(first_full(1000, 20, keys=10_000), 1)
    (8606.7, 8600.3)
    """
    nodes = checked_nodes(nodes)
    copies = None if copies is None else checked_copies(copies)
    if copies is not None and weights is not None:
        raise ValueError(
            "copies and weights exclude each other: weights are predicted for equal arcs. Pass one"
        )
    groups = laws.groups_of(nodes, limit, weights, copies)
    if min(each.limit for each in groups) < 1:
        raise arguments.error("limit", "1 or more", limit, "A node of limit 0 is always full")
    if nodes == 1:  # whose one arc is the circle: no law of arcs applies
        return float(groups[0].limit if keys is None else min(groups[0].limit, keys))
    if keys is not None:
        if weights is not None:
            raise arguments.unmet(
                "keys", " must be left out with weights: only the mean of N1 itself is known"
            )
        if no_full(nodes, groups[0].limit, keys, copies=copies) > 1e-12:
            return _first_full_within(nodes, groups[0].limit, keys, copies)

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


def no_full(nodes: int, limit: int, keys: int, *, copies: int | None = None) -> float:
    """Compute the chance that no node is full after so many keys, exactly (Theorem 4).

    Parameters
    ----------
    nodes, limit, copies
        As of `first_full`.
    keys
        Placed so far.

    Examples
    --------
    >>> round(no_full(365, 2, 22), 4), round(no_full(365, 2, 23), 4)  # birthdays
    (0.5243, 0.4927)
    """
    from scipy.optimize import brentq
    from scipy.special import gammaln

    nodes, limit, keys = checked_nodes(nodes), checked_limit(limit), checked_keys(keys)
    copies = None if copies is None else checked_copies(copies)
    if keys < limit:
        return 1.0
    if keys > nodes * (limit - 1):
        return 0.0
    i = np.arange(float(limit))
    if copies is None:
        log = -gammaln(i + 1)
        whole = keys * math.log(nodes) - float(gammaln(keys + 1))
    else:
        log = gammaln(i + copies) - gammaln(copies) - gammaln(i + 1)
        points = nodes * copies
        whole = float(gammaln(points + keys) - gammaln(points) - gammaln(keys + 1))
    if keys == nodes * (limit - 1):
        return math.exp(nodes * float(log[-1]) - whole)

    def tilted(x: float) -> tuple[_Floats, float]:
        terms = log + i * x
        top = float(terms.max())
        chances = np.exp(terms - top)
        total = float(chances.sum())
        return chances / total, top + math.log(total)

    def short(x: float) -> float:
        return float(tilted(x)[0] @ i) - keys / nodes

    low, high = -1.0, 1.0
    while short(low) > 0.0:
        low *= 2.0
    while short(high) < 0.0:
        high *= 2.0
    x = float(brentq(short, low, high, xtol=1e-13))
    chances, log_total = tilted(x)
    deviation = math.sqrt(nodes * float(chances @ (i - keys / nodes) ** 2))
    count = min(nodes * (limit - 1) + 1, 64 + 14 * math.ceil(deviation))  # what is further off is nothing
    count = max(count, limit)
    turned: Any = np.fft.fft(chances, count) ** nodes
    turned *= np.exp(2j * np.pi * (np.arange(count) * (keys % count) % count) / count)
    return float(max(0.0, turned.real.mean()) * math.exp(nodes * log_total - x * keys - whole))


def _first_full_within(nodes: int, limit: int, keys: int, copies: int | None) -> float:
    """Sum P_l over l < keys: P_l is smooth, so that some of them and a spline through them do."""
    from scipy.interpolate import CubicSpline

    last = min(keys - 1, nodes * (limit - 1))
    if last < limit:
        return float(min(keys, limit))
    at = np.unique(np.round(np.linspace(limit - 1, last, 160)).astype(int))
    chances = [no_full(nodes, limit, int(each), copies=copies) for each in at]
    if at.size < 160:  # each of them
        return float(limit - 1 + sum(chances))
    return float(limit - 1 + CubicSpline(at, chances)(np.arange(limit - 1, last + 1)).sum())

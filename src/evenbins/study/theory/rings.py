"""Hash rings with bounded loads: the theorems of Chen, Coleman and Shrivastava as functions.

    Theorems 1, 2   loads under jump are below those under clockwise in the convex order   dominance
    Theorem 3       a new key looks at 1 + 1/epsilon nodes under jump, at most             searches_bound
    (11)            a bound for clockwise that the paper quotes            clockwise_searches_bound
    Theorem 4       keys until the first full node: most for equal shares                  first_full, no_full
    Theorem 5       variance before a node is full: least for equal shares                 share_variance
    Theorem 6       variance of the nodes' chances under clockwise, as nodes fill          assignment_variance

Three laws of loads under jump, all of nodes that are cut off at the limit: placed under the final limit, as
the paper does (`jump_loads`); placed while the limit grows with the keys, as a service does
(`growing_loads`); and after keys have come and gone for long (`steady_loads`).

Loads, limits and the first full node are in `evenbins.theory` (`ring_laws`, `ring_clockwise`, `ring_limits`,
`ring_first_full`), plans in `evenbins.rings.plan`; all names are here too.

What the paper says and is not so
- (11) for epsilon >= 1: 1 + log(1 + epsilon)/(1 + epsilon) is 1.35 at epsilon 1, while the paper's own Table
  7 has 2.19 (and simulation agrees). `clockwise_searches_bound` gives None there.
- (12), that 1 + 1/epsilon is far below (11) for epsilon >= 1: it is above it up to epsilon 2.9 or so.
- Theorem 6's rate 1/(3k) is far below what happens; `assignment_variance` is exact under its assumption, that
  every open node is the next to fill with the same chance. Real nodes of long arcs fill earlier: Figure 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.cluster.libraries import library
from evenbins.rings.plan import RingPlan, plan_ring
from evenbins.theory.ring_clockwise import clockwise_loads
from evenbins.theory.ring_first_full import first_full
from evenbins.theory.ring_laws import (
    RingLoads,
    growing_loads,
    jump_loads,
    plain_loads,
    plain_variance,
    rehash_loads,
)
from evenbins.theory.ring_limits import (
    checked,
    checked_copies,
    checked_epsilon,
    ring_limit,
    ring_limits,
)

__all__ = [
    "Dominance", "RingLoads", "RingPlan", "assignment_growth", "assignment_variance", "clockwise_loads",
    "clockwise_searches_bound", "dominance", "first_full", "first_full_within", "growing_loads",
    "jump_loads", "no_full", "plain_loads", "plain_variance", "plan_ring", "rehash_loads", "ring_limit",
    "ring_limits", "searches_above", "searches_bound", "share_variance", "steady_loads",
]  # fmt: skip


def searches_bound(epsilon: float) -> float:
    """Return Theorem 3's bound of the mean nodes that one more key looks at under jump: 1 + 1/epsilon.

    At most n/C of k nodes can be full. Infinite for epsilon 0.

    >>> searches_bound(0.25)
    5.0
    """
    epsilon = checked_epsilon(epsilon)
    return 1.0 + 1.0 / epsilon if epsilon > 0.0 else math.inf


def clockwise_searches_bound(epsilon: float) -> float | None:
    """Return the paper's (11), a bound of the same for clockwise: 2/epsilon^2 below 1; None from 1 on.

    What (11) says from 1 on, 1 + log(1 + epsilon)/(1 + epsilon), is contradicted by the paper's Table 7. (The
    bound that Mirrokni, Thorup and Zadimoghaddam prove there has a constant.)

    >>> clockwise_searches_bound(0.5), clockwise_searches_bound(1)
    (8.0, None)
    """
    epsilon = checked_epsilon(epsilon)
    if epsilon >= 1.0:
        return None
    return 2.0 / epsilon**2 if epsilon > 0.0 else math.inf


def searches_above(loads: RingLoads, count: int) -> float:
    """Return the chance that one more key looks at more than `count` nodes, if its looks are independent.

    They are for jump and rehash, which draw anew each time; not for clockwise.

    >>> round(searches_above(jump_loads(10_000, 1000, 11), 1), 3)
    0.626
    """
    if loads.searches is None or loads.searches < 1.0:
        return math.nan
    return float((1.0 - 1.0 / loads.searches) ** count)


def share_variance(nodes: int, copies: int | None = None) -> float:
    """Compute the variance of a node's share of first probes: 0 if equal, Beta(v, (k - 1) v)'s for random
    arcs.

    Theorem 5: before a node is full, n(n - 1) times this is what a load's variance has above its least.

    >>> share_variance(1000), round(1000**2 * share_variance(1000, 1), 3)
    (0.0, 0.998)
    """
    (nodes,), copies = checked(nodes=nodes), checked_copies(copies)
    return 0.0 if copies is None else (nodes - 1) / (nodes**2 * (nodes * copies + 1))


def first_full_within(nodes: int, limit: int, keys: int, *, copies: int | None = None) -> float:
    """Compute the mean of min(N1, keys), N1 being `first_full`: for experiments that end after `keys` keys.

    >>> round(first_full(1000, 20), 1), round(first_full_within(1000, 20, 10_000), 1)
    (8606.7, 8600.3)
    """
    nodes, limit, keys = checked(nodes=nodes, limit=limit, keys=keys)
    if nodes == 1:
        return float(min(limit, keys))
    if no_full(nodes, limit, keys, copies=copies) <= 1e-12:
        return first_full(nodes, limit, copies=copies)
    return _sum_of_no_full(nodes, limit, keys, copies)


def no_full(nodes: int, limit: int, keys: int, *, copies: int | None = None) -> float:
    """Compute the chance that no node is full after so many keys, exactly (Theorem 4).

    It is a coefficient of a power series' k-th power, found on a circle in the complex plane.

    Parameters
    ----------
    nodes, limit, copies
        As for `first_full`.
    keys
        Placed so far.

    Examples
    --------
    >>> round(no_full(365, 2, 22), 4), round(no_full(365, 2, 23), 4)  # birthdays
    (0.5243, 0.4927)
    """
    optimize = library("scipy.optimize", "theory")
    special = library("scipy.special", "theory")

    nodes, limit, keys = checked(nodes=nodes, limit=limit, keys=keys)
    copies = checked_copies(copies)
    if keys < limit:
        return 1.0
    if keys > nodes * (limit - 1):
        return 0.0
    i = np.arange(float(limit))
    if copies is None:
        log = -special.gammaln(i + 1)
        whole = keys * math.log(nodes) - float(special.gammaln(keys + 1))
    else:
        log = special.gammaln(i + copies) - special.gammaln(copies) - special.gammaln(i + 1)
        points = nodes * copies
        whole = float(special.gammaln(points + keys) - special.gammaln(points) - special.gammaln(keys + 1))
    if keys == nodes * (limit - 1):
        return math.exp(nodes * float(log[-1]) - whole)

    def tilted(x: float) -> tuple[npt.NDArray[np.float64], float]:
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
    x = float(optimize.brentq(short, low, high, xtol=1e-13))
    chances, log_total = tilted(x)
    deviation = math.sqrt(nodes * float(chances @ (i - keys / nodes) ** 2))
    count = min(nodes * (limit - 1) + 1, 64 + 14 * math.ceil(deviation))  # what is further off is nothing
    count = max(count, limit)
    turned: Any = np.fft.fft(chances, count) ** nodes
    turned *= np.exp(2j * np.pi * (np.arange(count) * (keys % count) % count) / count)
    return float(max(0.0, turned.real.mean()) * math.exp(nodes * log_total - x * keys - whole))


def _sum_of_no_full(nodes: int, limit: int, keys: int, copies: int | None) -> float:
    """Sum P_l over l < keys: P_l is smooth, so that some of them and a spline through them do."""
    interpolate = library("scipy.interpolate", "theory")

    last = min(keys - 1, nodes * (limit - 1))
    if last < limit:
        return float(min(keys, limit))
    at = np.unique(np.round(np.linspace(limit - 1, last, 160)).astype(int))
    chances = [no_full(nodes, limit, int(each), copies=copies) for each in at]
    if at.size < 160:  # each of them
        return float(limit - 1 + sum(chances))
    return float(limit - 1 + interpolate.CubicSpline(at, chances)(np.arange(limit - 1, last + 1)).sum())


def assignment_variance(nodes: int, full: int, *, start: float = 0.0) -> float:
    """Compute the variance of an open node's chance of the next key under clockwise, `full` nodes being full.

    The recursion of Appendix J, with equality: each open node is the next to fill with the same chance, and
    hands its chance to its neighbour. From equal arcs it is j (r - 1) / (k r^2 (r + 1)), r = k - j.

    Parameters
    ----------
    nodes
        k.
    full
        j, below k.
    start
        The variance when no node is full: 0 for equal arcs, ``share_variance(nodes, 1)`` for random ones.

    Examples
    --------
    >>> k, j = 1000, 500
    >>> r = k - j
    >>> math.isclose(assignment_variance(k, j), j * (r - 1) / (k * r**2 * (r + 1)))
    True
    """
    (nodes,) = checked(nodes=nodes)
    full = arguments.integer("full", full, 0, nodes - 1, "Leave one node that is not full")
    variance = start
    for j in range(1, full + 1):
        r = nodes - j
        kept = 1.0 - 1.0 / r**2
        handed = (1.0 - 1.0 / r) / r * (variance + 1.0 / (r + 1) ** 2)
        variance = kept * variance + handed
    return variance


def assignment_growth(nodes: int, full: int) -> float:
    """Return the least factor by which Theorem 6 lets that variance grow at this step: 1 + 1/r - 2/r^2.

    r = k - j nodes are open after it. The theorem's 1 + 1/(3k) is smaller still.

    >>> assignment_growth(1000, 1) > 1 + 1 / 3000
    True
    """
    (nodes,) = checked(nodes=nodes)
    full = arguments.integer("full", full, 1, nodes - 1, "Pass the number of full nodes after the step")
    r = nodes - full
    return 1.0 + 1.0 / r - 2.0 / r**2


@dataclass(frozen=True)
class Dominance:
    """What `dominance` saw.

    Parameters
    ----------
    excess
        ``excess[c]``: the second's mean of max(load - c, 0) above the first's, c = 0 ... limit - 1.
    errors
        Its standard errors.
    holds
        Whether no excess is negative by more than 5 of its standard errors.
    """

    excess: npt.NDArray[np.float64]
    errors: npt.NDArray[np.float64]
    holds: bool


def dominance(lower: npt.ArrayLike, upper: npt.ArrayLike) -> Dominance:
    """Check Theorem 2 on samples: the mean of every convex function of a load is smaller under the first
    policy.

    Every convex function on 0 ... limit is a sum of lines and of max(x - c, 0) with positive factors, and
    means are equal: these functions decide all. f(limit) (the fraction of full nodes, Theorem 1) is c = limit
    - 1, the variance a sum of all c.

    Parameters
    ----------
    lower, upper
        Counts ``[trial, load]``: nodes with that load, of the policy that is said to be better, and the
        other.

    Examples
    --------
    >>> seen = dominance([[0, 2, 0], [0, 2, 0]], [[1, 0, 1], [0, 2, 0]])
    >>> seen.excess.tolist(), seen.holds
    ([0.0, 0.25], True)
    """
    better, worse = np.asarray(lower, dtype=float), np.asarray(upper, dtype=float)
    if better.ndim != 2 or worse.ndim != 2 or better.shape[1] != worse.shape[1] or not better.size:
        raise ValueError(
            f"lower and upper must be counts [trial, load] of the same loads; got shapes {better.shape} and "
            f"{worse.shape}. Pass the loads of two simulations of one limit"
        )
    load = np.arange(better.shape[1])
    beyond = np.maximum(load[:, None] - load[None, :-1], 0)  # [load, c]

    def means(counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        out: npt.NDArray[np.float64] = counts @ beyond / counts.sum(axis=1, keepdims=True)
        return out

    first, second = means(better), means(worse)
    excess = second.mean(axis=0) - first.mean(axis=0)
    errors = np.sqrt(
        sum(each.var(axis=0, ddof=1) / len(each) if len(each) > 1 else 0.0 for each in (first, second))
    )
    return Dominance(excess, errors, bool((excess >= -5.0 * errors - 1e-12).all()))


def steady_loads(keys: int, nodes: int, limit: int) -> npt.NDArray[np.float64]:
    """Compute the law of the loads when keys come and go, jump for jump, at a constant number of them.

    A key leaves its node as every other key does; one that comes takes a node with room, each with the same
    probability. Detailed balance gives P(load = i) proportional to x**i / i!, i up to the limit, with x
    such that the mean is keys / nodes.

    Raises
    ------
    ValueError
        The keys do not fit: nodes * limit is less.

    Examples
    --------
    >>> loads = steady_loads(10_000, 1000, 11)
    >>> round(float(loads[11]), 3), round(float(loads @ range(12)), 6)
    (0.459, 10.0)
    """
    special = library("scipy.special", "theory")

    mean = keys / nodes
    if not 0 <= keys <= nodes * limit:
        raise arguments.unmet("keys", f" must be at most nodes * limit = {nodes * limit}; got {keys}")
    index = np.arange(limit + 1)
    if keys == 0 or keys == nodes * limit:
        return np.asarray(np.eye(limit + 1)[0 if keys == 0 else limit])

    def law(logx: float) -> npt.NDArray[np.float64]:
        logs = index * logx - special.gammaln(index + 1)
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum())

    low, high = -50.0, 50.0
    while high - low > 1e-13 * max(1.0, abs(high)):
        middle = (low + high) / 2
        low, high = (middle, high) if float(law(middle) @ index) < mean else (low, middle)
    return law((low + high) / 2)

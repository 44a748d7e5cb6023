"""Loads of a hash ring's nodes, predicted: what every policy does to n keys and k nodes.

Keys are *thrown* at nodes, each at node i with probability equal to its share; a throw at a full node is
repeated. Give the throws a clock, a Poisson process: then node i has had Poisson(share_i * t) throws at time
t, independently of the others, and its load is

    fixed limit    min(Poisson(share_i * t), limit)              jump; rehash, whose shares are the arcs
    moving limit   the same from one change of the limit to the next, stage by stage

with t such that the expected loads sum to n. That is the whole model. What it leaves out is that the sum of
the loads is exactly n, which costs O(1/k): with 1000 nodes a variance is 0.1 % too large. A limit that
follows the number of keys, ceil((1 + epsilon) m/k) when key m arrives, as a live ring has, is a different law
than the paper's fixed one: at 10 keys a node and epsilon 0.1 the variance is 1.41, not 2.64, and 45 % of the
nodes are full, not 63 %.

Shares are equal (jump; every policy of the dense layout), or the arcs of `copies` random points a node, which
are Gamma(copies) variables up to their sum: a Poisson number of throws at such an arc is negative binomial.

Not done: the exact law at finite k. A state x is met with probability open(x) * integral of P(loads at t are
x) dt, open(x) being its nodes with room; its marginals need a Fourier transform of n points for each of many
t, for a correction of 1/k. A plan multiplies the variance by 1 - 1/k instead, exact if there is no limit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins.theory.ring_growth import grown_loads
from evenbins.theory.ring_limits import (
    RATE_UNIT,
    checked,
    checked_copies,
    checked_epsilon,
    checked_weights,
    rate_units,
)
from evenbins.theory.special import beta_below, log_factorial, poisson, poisson_below, root

__all__ = [
    "LawPart", "RingLoads", "chance_below", "chances", "groups_of", "growing_loads", "jump_loads",
    "mixed_law", "plain_loads", "plain_variance", "rehash_loads",
]  # fmt: skip

_Floats = npt.NDArray[np.float64]

_MOST_GROUPS = 8  # of unlike weights, while the limit moves
_MOST_LOADS = 2**18  # entries of a law of loads


@dataclass(frozen=True)
class RingLoads:
    """Predicted loads.

    Parameters
    ----------
    loads
        ``loads[i]``: fraction of the nodes with i keys; the last entry of a bounded ring is its full nodes.
        If nodes have more than 2**18 keys: with ``first + i * step`` keys up to the next such number.
    mean, variance
        Of a node's load; with weights, over all nodes.
    full
        Fraction of nodes at their limit.
    searches
        Mean nodes that one more key looks at, the one that takes it counted; None if there is no prediction,
        or no node has room.
    """

    loads: _Floats
    mean: float
    variance: float
    full: float
    searches: float | None
    first: int = 0
    step: int = 1


def chances(mean: float, copies: int | None, most: int) -> _Floats:
    """Return P(X = 0 ... most) of the throws at a node: Poisson, or negative binomial for random arcs."""
    i = np.arange(most + 1.0)
    if copies is None or mean <= 0.0:
        return poisson(i, max(mean, 0.0))
    p = copies / (copies + mean)
    log = log_factorial(i + copies - 1) - log_factorial(i) - log_factorial(copies - 1) + copies * math.log(p)
    return np.asarray(np.exp(log + i * math.log1p(-p)))


def chance_below(mean: Any, copies: Any, limit: Any) -> Any:
    """Return P(X < limit); numbers or arrays."""
    if copies is None:
        return poisson_below(limit, mean)
    return np.where(
        np.asarray(limit) >= 1, beta_below(copies, np.maximum(limit, 1), copies / (copies + mean)), 0.0
    )


def _bounded_mean(mean: Any, copies: int | None, limit: Any) -> Any:
    """Return E[min(X, limit)]: i P(X = i) is the mean times a probability of the same family, one lower."""
    if copies is None:
        within = chance_below(mean, None, limit - 1)
    else:  # the same p: of copies + 1 successes the mean is (copies + 1)/copies times as large
        within = chance_below(mean * (copies + 1) / copies, copies + 1, limit - 1)
    return mean * within + limit * (1.0 - chance_below(mean, copies, limit))


@dataclass(frozen=True)
class _Group:
    """Nodes that are alike."""

    count: int
    weight: float  # the mean of all is 1
    limit: int
    copies: int | None = None


def groups_of(nodes: int, limit: object, weights: Sequence[float] | None, copies: int | None) -> list[_Group]:
    """Group nodes of equal weight."""
    if weights is None:
        return [_Group(nodes, 1.0, checked(limit=limit)[0], copies)]
    each_limit = limit if isinstance(limit, Sequence | np.ndarray) else [limit] * nodes
    limits = [checked(limit=each)[0] for each in each_limit]
    if len(limits) != nodes:
        raise ValueError(
            f"limit must be one number, or one for each of {nodes} nodes; got {len(limits)}. Pass as many"
        )
    alike = Counter(zip(_relative_weights(nodes, weights), limits, strict=True))
    return [_Group(count, weight, most, copies) for (weight, most), count in alike.items()]


def _relative_weights(nodes: int, weights: Sequence[float]) -> list[float]:
    """Return the nodes' weights, of which the mean is 1."""
    numbers = checked_weights(weights)
    if len(numbers) != nodes:
        raise ValueError(
            f"weights must be one for each of {nodes} nodes; got {len(numbers)}. Pass as many as nodes"
        )
    mean = math.fsum(numbers) / nodes
    return [each / mean for each in numbers]


def _loads_after_throws(keys: int, nodes: int, groups: Sequence[_Group]) -> RingLoads:
    """Return the loads of thrown keys, the clock stopped when their means sum to `keys`."""
    room = sum(each.count * each.limit for each in groups)
    if room < keys:
        raise ValueError(
            f"limit must leave room for {keys} keys; all nodes together hold {room}. Raise the limit"
        )
    if keys == 0:
        return RingLoads(np.array([1.0]), 0.0, 0.0, 0.0, 1.0 if room else None)
    if room == keys:
        law = [LawPart(each.count / nodes, each.limit, np.ones(1)) for each in groups]
        return mixed_law(law, 1.0, None)

    counts = np.array([float(each.count) for each in groups])
    weights = np.array([each.weight for each in groups])
    limits = np.array([float(each.limit) for each in groups])
    copies = groups[0].copies

    def short(clock: float) -> float:
        return float(counts @ _bounded_mean(clock * weights, copies, limits)) - keys

    high = 2.0 * keys / nodes + 2.0
    while short(high) < 0.0:
        high *= 2.0
        if high > 1e12 * (keys / nodes + 1.0):  # the last keys of a ring with no room to spare
            break
    clock = high if short(high) < 0.0 else root(short, 0.0, high, xtol=1e-12, rtol=1e-13)
    full, open_share = 0.0, 0.0
    laws: list[LawPart] = []
    for each in groups:
        mean = clock * each.weight
        first, chances, step = _window(mean, each.copies, each.limit)
        rest = max(0.0, 1.0 - float(chances.sum()))
        laws.append(LawPart(each.count / nodes, first, chances, step))
        laws.append(LawPart(each.count / nodes, each.limit, np.array([rest])))
        full += rest * each.count / nodes
        # the share of throws that find room: an arc's length given its throws is Gamma(copies + throws)
        if each.copies is None:
            open_share += each.count * each.weight * (1.0 - rest)
        else:
            wider = mean * (each.copies + 1) / each.copies
            open_share += each.count * each.weight * float(chance_below(wider, each.copies + 1, each.limit))
    return mixed_law(laws, full, nodes / open_share if open_share > 0.0 else None)


@dataclass(frozen=True)
class LawPart:
    """Loads of a share of the nodes: ``chances[i]`` of first + i * step keys up to the next."""

    share: float
    first: int
    chances: _Floats
    step: int = 1

    @property
    def end(self) -> int:
        """The first load beyond the part."""
        return self.first + self.step * self.chances.size


def _window(mean: float, copies: int | None, limit: int) -> tuple[int, _Floats, int]:
    """Return where P(X = i), i < limit, is not negligible: its first i, the chances, and their step."""
    deviation = math.sqrt(mean * (1.0 + (mean / copies if copies else 0.0)))
    low = 0 if copies else max(0, math.floor(mean - 10.0 * deviation - 20.0))
    high = min(limit, math.ceil(mean + (10.0 if copies is None else 40.0) * deviation + 20.0))
    if high <= _MOST_LOADS:
        return 0, chances(mean, copies, high - 1), 1
    if low >= high:
        return max(0, limit - 1), np.zeros(1), 1
    step = -(-(high - low) // _MOST_LOADS)
    edges = np.minimum(low + step * np.arange(-(-(high - low) // step) + 1.0), float(high))
    return low, np.diff(chance_below(mean, copies, edges)), step


def mixed_law(laws: Sequence[LawPart], full: float, searches: float | None) -> RingLoads:
    """Combine the laws of several groups of nodes."""
    if max(each.end for each in laws) > _MOST_LOADS:
        laws = [each for each in laws if each.chances.any()]
    last = max(each.end for each in laws) - 1
    first = 0 if last < _MOST_LOADS else min(each.first for each in laws)
    step = max(-(-(last - first + 1) // _MOST_LOADS), *(each.step for each in laws))
    loads = np.zeros((last - first) // step + 1)
    parts: list[tuple[_Floats, _Floats]] = []
    for each in laws:
        at = each.first - first + each.step * np.arange(each.chances.size)
        weight = each.share * each.chances
        loads += np.bincount(at // step, weights=weight, minlength=loads.size)
        parts.append((weight, np.asarray(at + 0.5 * (each.step - 1), np.float64)))
    mean = math.fsum(float(weight @ middle) for weight, middle in parts)
    variance = math.fsum(float(weight @ (middle - mean) ** 2) for weight, middle in parts)
    return RingLoads(loads, first + mean, max(0.0, variance), full, searches, first, step)


def jump_loads(
    keys: int, nodes: int, limit: int | Sequence[int], *, weights: Sequence[float] | None = None
) -> RingLoads:
    """Predict loads under random jumps (RJ-CH) with a fixed limit: min(Poisson, limit).

    The same law holds for `rehash` on the dense layout. Against simulation of 1000 nodes the error is that of
    the model, one part in 1000 (docs/rings_theory.md). The limit is the same while all keys come; with
    weights, which are the nodes' shares of first probes, it may be one for each node.

    >>> seen = jump_loads(10_000, 1000, 11)
    >>> round(seen.full, 4), round(seen.variance, 3), round(seen.searches, 3)
    (0.6263, 2.639, 2.676)
    >>> seen = jump_loads(90, 30, [4] * 20 + [8] * 10, weights=[1] * 20 + [2] * 10)
    >>> round(seen.mean, 6), round(seen.full, 3)
    (3.0, 0.173)
    """
    keys, nodes = checked(keys=keys, nodes=nodes)
    return _loads_after_throws(keys, nodes, groups_of(nodes, limit, weights, None))


def rehash_loads(keys: int, nodes: int, limit: int, *, copies: int = 1) -> RingLoads:
    """Predict loads of Appendix Q's rehashing on a ring of random points, with a fixed limit.

    Every throw goes to the next of a node's `copies` points, so that its share is its arcs': min(negative
    binomial, limit).

    >>> seen = rehash_loads(10_000, 1000, 11)
    >>> round(seen.full, 3), round(seen.variance, 2), round(seen.searches, 1)
    (0.838, 6.78, 66.1)
    """
    keys, nodes = checked(keys=keys, nodes=nodes)
    return _loads_after_throws(keys, nodes, groups_of(nodes, limit, None, checked_copies(copies)))


def growing_loads(
    keys: int, nodes: int, epsilon: float, *, weights: Sequence[float] | None = None
) -> RingLoads:
    """Predict loads under random jumps when the limit follows the number of keys, as that of a live ring.

    Key m is placed by the limit ceil((1 + epsilon) m w/W) of that moment. Keys come one by one and none
    leaves. Between two changes of the limit the law is that of `jump_loads`, from where it stands. `full` is
    by the limit of key n, `searches` by that of key n + 1: in the example it has just risen.

    >>> seen = growing_loads(10_000, 1000, 0.1)
    >>> round(seen.full, 3), round(seen.variance, 2), round(seen.searches, 2)
    (0.446, 1.41, 1.0)
    """
    keys, nodes = checked(keys=keys, nodes=nodes)
    rate = rate_units(checked_epsilon(epsilon))
    alike: dict[float, int] = {1.0: nodes}
    if weights is not None:
        alike = _merge_weights(dict(Counter(_relative_weights(nodes, weights))))
    if keys == 0:
        return RingLoads(np.array([1.0]), 0.0, 0.0, 0.0, 1.0)

    found, _ = grown_loads(keys, list(alike), list(alike.values()), rate / RATE_UNIT)
    laws, full, open_share = [], 0.0, 0.0
    for (weight, count), each in zip(alike.items(), found, strict=True):
        first, chances = each.loads()
        laws.append(LawPart(count / nodes, first, chances, each.step))
        full += each.full * count / nodes
        next_limit = math.ceil(rate * (keys + 1) * weight / (RATE_UNIT * nodes) - 1e-9)
        below = min(chances.size, max(0, -(-(next_limit - first) // each.step)))
        open_share += float(chances[:below].sum()) * count * weight / nodes
    return mixed_law(laws, full, 1.0 / open_share if open_share > 0.0 else None)


def _merge_weights(alike: dict[float, int]) -> dict[float, int]:
    """Put neighbouring weights together until there are few."""
    ordered = sorted(alike)
    if len(ordered) <= _MOST_GROUPS:
        return alike
    out: dict[float, int] = {}
    for part in np.array_split(np.array(ordered), _MOST_GROUPS):
        count = sum(alike[float(each)] for each in part)
        out[math.fsum(alike[float(each)] * float(each) for each in part) / count] = count
    return out


def plain_variance(keys: int, nodes: int, copies: int | None = None) -> float:
    """Return the expected variance of the loads of plain consistent hashing, exactly.

    n/k (1 - 1/k) for equal shares, as in the dense layout; for arcs of v = `copies` random points a node a
    share is a Beta(v, (k - 1) v) variable, and n (n - 1) times its variance is added. (The variance is over
    the nodes of one ring.)

    >>> round(plain_variance(10_000, 1000), 2), round(plain_variance(10_000, 1000, 1), 2)
    (9.99, 109.78)
    >>> round(plain_variance(10_000, 1000, 7), 2)
    24.26
    """
    keys, nodes = checked(keys=keys, nodes=nodes)
    variance = keys / nodes * (1.0 - 1.0 / nodes)
    copies = checked_copies(copies)
    if copies is None:
        return variance
    points = nodes * copies
    return variance + keys * (keys - 1) * (nodes - 1) / (nodes**2 * (points + 1))


def plain_loads(keys: int, nodes: int, limit: int, *, copies: int | None = None) -> RingLoads:
    """Predict loads of plain consistent hashing; `full` is the fraction of nodes with `limit` keys or more.

    >>> round(plain_loads(10_000, 1000, 20).full, 5)
    0.00345
    """
    keys, nodes, limit = checked(keys=keys, nodes=nodes, limit=limit)
    copies = checked_copies(copies)
    mean = keys / nodes
    first, chances, step = _window(mean, copies, max(keys, limit) + 1)
    full = 1.0 - float(chance_below(mean, copies, limit)) if keys else 0.0
    return RingLoads(chances, mean, plain_variance(keys, nodes, copies), full, 1.0, first, step)

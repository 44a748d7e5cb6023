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

clockwise, fixed limit, one point a node: who is where depends on the neighbours, but not on the order of the
keys. Node by node around the ring, W of the previous nodes' keys pass by and A are the node's own:

    W' = max(W + A - limit, 0)        load = min(W + A, limit)

a queue that serves `limit` keys a node. Its stationary law gives loads, and the run of full nodes that a new
key walks over. A is Poisson(n/k) if arcs are equal, geometric if they are random; the arc that a new key
falls into is size-biased, Gamma(2), and holds a negative binomial number of them.

Not done: the exact law at finite k. A state x is met with probability open(x) * integral of P(loads at t are
x) dt, open(x) being its nodes with room; its marginals need a Fourier transform of n points for each of many
t, for a correction of 1/k. A plan multiplies the variance by 1 - 1/k instead, exact if there is no limit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory.ring_growth import grown_loads

__all__ = [
    "RingLoads", "checked_epsilon", "checked_weights", "clockwise_loads", "growing_loads", "jump_loads",
    "plain_loads", "plain_variance", "rehash_loads", "ring_limit", "ring_limits",
]  # fmt: skip

_Floats = npt.NDArray[np.float64]

MAX_KEYS = 2**48
MAX_NODES = 2**24
MAX_COPIES = 2**20
LEAST_WEIGHT, MOST_WEIGHT, MOST_RATIO = 1e-100, 1e100, 1e30  # of two weights in one ring
_RATE_UNIT = 10**9
_LONG_RING = (
    500  # relaxation times of the queue in a ring from which its runs of full nodes are those of a line
)
_MOST_WAITING = 1400  # states of the clockwise queue: a linear system of that size takes some 50 ms
_MOST_GROUPS = 8  # of unlike weights, while the limit moves
_MOST_LOADS = 2**18  # entries of a law of loads
_MOST_CLOCKWISE = 2**22  # keys of a node, for the queue of clockwise


# --- arguments -------------------------------------------------------------------------------------------


def checked_keys(value: object) -> int:
    """Check the number of keys."""
    return arguments.integer("keys", value, 0, MAX_KEYS, "Pass the number of assigned keys")


def checked_nodes(value: object) -> int:
    """Check the number of nodes."""
    return arguments.integer("nodes", value, 1, MAX_NODES, "Pass the number of nodes, or their weights")


def checked_copies(value: object) -> int:
    """Check the number of places of a node."""
    return arguments.integer("copies", value, 1, MAX_COPIES, "Pass 1, or leave it out for equal shares")


def checked_limit(value: object) -> int:
    """Check a node's limit."""
    return arguments.integer("limit", value, 0, MAX_KEYS, "Pass for example ring_limit(keys, nodes, 0.25)")


def checked_epsilon(value: object) -> float:
    """Check epsilon."""
    rule, way_out = "a number from 0 to 1000000", "Pass for example 0.25: a quarter above the mean"
    number = arguments.real("epsilon", value, rule, way_out)
    if not 0.0 <= number <= 1e6:
        raise arguments.error("epsilon", rule, value, way_out)
    return number


def checked_weights(values: object) -> tuple[float, ...]:
    """Check the nodes' weights."""
    rule = f"one or more positive numbers from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
    way_out = "Pass for example [1, 1, 2.5]"
    if isinstance(values, str | bytes) or not isinstance(values, Sequence | np.ndarray) or not len(values):
        raise arguments.type_error("weights", rule, values, way_out)
    numbers = tuple(arguments.real("weights", each, rule, way_out) for each in values)
    if not all(LEAST_WEIGHT <= each <= MOST_WEIGHT for each in numbers):
        raise arguments.error("weights", rule, values, way_out)
    if max(numbers) / min(numbers) > MOST_RATIO:
        raise ValueError(
            f"weights of one ring must differ by a factor of at most {MOST_RATIO:g}; got "
            f"{min(numbers)!r} and {max(numbers)!r}"
        )
    return numbers


# --- limits ----------------------------------------------------------------------------------------------


def ring_limit(keys: int, nodes: int, epsilon: float) -> int:
    """Return the most keys a node may hold (C): ceil((1 + epsilon) * keys / nodes), exactly.

    1 + epsilon is taken in billionths, in integers: 1.1 * 110 is 121, not the 122 that floating point
    makes of its 121.00000000000001.

    Parameters
    ----------
    keys, nodes
        n and k.
    epsilon
        What a node may hold above the mean, as a fraction of it.

    Examples
    --------
    >>> ring_limit(10_000, 1000, 0.1), ring_limit(3000, 1000, 0.3), ring_limit(0, 7, 0.25)
    (11, 4, 0)
    """
    keys, nodes = checked_keys(keys), checked_nodes(nodes)
    return -(-_rate(checked_epsilon(epsilon)) * keys // (_RATE_UNIT * nodes))


def ring_limits(keys: int, weights: Sequence[float], epsilon: float) -> tuple[int, ...]:
    """Return each node's limit: ceil((1 + epsilon) * keys * weight / sum of weights), exactly.

    Weights are read as the decimals they are written as.

    >>> ring_limits(100, [1, 1, 2], 0.1), ring_limits(30, [0.1, 0.2], 0)
    ((28, 28, 55), (10, 20))
    """
    keys, rate = checked_keys(keys), _rate(checked_epsilon(epsilon))
    exact = [Fraction(repr(each)) for each in checked_weights(weights)]
    unit = _RATE_UNIT * sum(exact, Fraction(0))
    known: dict[Fraction, int] = {}
    for each in exact:
        if each not in known:
            known[each] = math.ceil(rate * keys * each / unit)
    return tuple(known[each] for each in exact)


def _rate(epsilon: float) -> int:
    return round((1.0 + epsilon) * _RATE_UNIT)


# --- laws of throws --------------------------------------------------------------------------------------


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

    def searches_above(self, count: int) -> float:
        """Return the chance that one more key looks at more than `count` nodes, if its looks are independent.

        They are for jump and rehash, which draw anew each time; not for clockwise.
        """
        if self.searches is None or self.searches < 1.0:
            return math.nan
        return float((1.0 - 1.0 / self.searches) ** count)


def _chances(mean: float, copies: int | None, most: int) -> _Floats:
    """Return P(X = 0 ... most) of the throws at a node: Poisson, or negative binomial for random arcs."""
    from scipy.special import gammaln

    i = np.arange(most + 1.0)
    if mean <= 0.0:
        return np.where(i == 0, 1.0, 0.0)
    if copies is None:
        return np.asarray(np.exp(i * math.log(mean) - mean - gammaln(i + 1)))
    p = copies / (copies + mean)
    log = gammaln(i + copies) - gammaln(i + 1) - gammaln(copies) + copies * math.log(p)
    return np.asarray(np.exp(log + i * math.log1p(-p)))


def _below(mean: Any, copies: Any, limit: Any) -> Any:
    """Return P(X < limit); numbers or arrays."""
    from scipy.special import betainc, pdtr

    if copies is None:
        return np.where(np.asarray(limit) >= 1, pdtr(np.maximum(limit, 1) - 1.0, mean), 0.0)
    return np.where(
        np.asarray(limit) >= 1, betainc(copies, np.maximum(limit, 1), copies / (copies + mean)), 0.0
    )


def _bounded_mean(mean: Any, copies: int | None, limit: Any) -> Any:
    """Return E[min(X, limit)]: i P(X = i) is the mean times a probability of the same family, one lower."""
    if copies is None:
        within = _below(mean, None, limit - 1)
    else:  # the same p: of copies + 1 successes the mean is (copies + 1)/copies times as large
        within = _below(mean * (copies + 1) / copies, copies + 1, limit - 1)
    return mean * within + limit * (1.0 - _below(mean, copies, limit))


@dataclass(frozen=True)
class _Group:
    """Nodes that are alike."""

    count: int
    weight: float  # the mean of all is 1
    limit: int
    copies: int | None = None


def _groups(nodes: int, limit: object, weights: Sequence[float] | None, copies: int | None) -> list[_Group]:
    if weights is None:
        return [_Group(nodes, 1.0, checked_limit(limit), copies)]
    numbers = checked_weights(weights)
    if len(numbers) != nodes:
        raise ValueError(
            f"weights must be one for each of {nodes} nodes; got {len(numbers)}. Pass as many as nodes"
        )
    if isinstance(limit, Sequence | np.ndarray):
        limits = [checked_limit(each) for each in limit]
    else:
        limits = [checked_limit(limit)] * nodes
    if len(limits) != nodes:
        raise ValueError(
            f"limit must be one number, or one for each of {nodes} nodes; got {len(limits)}. Pass as many"
        )
    mean = math.fsum(numbers) / nodes
    alike = Counter(zip(numbers, limits, strict=True))
    return [_Group(count, weight / mean, most, copies) for (weight, most), count in alike.items()]


def _thrown(keys: int, nodes: int, groups: Sequence[_Group]) -> RingLoads:
    """Return the loads of thrown keys, the clock stopped when their means sum to `keys`."""
    from scipy.optimize import brentq

    room = sum(each.count * each.limit for each in groups)
    if room < keys:
        raise ValueError(
            f"limit must leave room for {keys} keys; all nodes together hold {room}. Raise the limit"
        )
    if keys == 0:
        return RingLoads(np.array([1.0]), 0.0, 0.0, 0.0, 1.0 if room else None)
    if room == keys:
        law = [_Law(each.count / nodes, each.limit, np.ones(1)) for each in groups]
        return _law(law, 1.0, None)

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
    clock = high if short(high) < 0.0 else float(brentq(short, 0.0, high, xtol=1e-12, rtol=1e-13))
    full, open_share = 0.0, 0.0
    laws: list[_Law] = []
    for each in groups:
        mean = clock * each.weight
        first, chances, step = _window(mean, each.copies, each.limit)
        rest = max(0.0, 1.0 - float(chances.sum()))
        laws.append(_Law(each.count / nodes, first, chances, step))
        laws.append(_Law(each.count / nodes, each.limit, np.array([rest])))
        full += rest * each.count / nodes
        # the share of throws that find room: an arc's length given its throws is Gamma(copies + throws)
        if each.copies is None:
            open_share += each.count * each.weight * (1.0 - rest)
        else:
            wider = mean * (each.copies + 1) / each.copies
            open_share += each.count * each.weight * float(_below(wider, each.copies + 1, each.limit))
    return _law(laws, full, nodes / open_share if open_share > 0.0 else None)


@dataclass(frozen=True)
class _Law:
    """Loads of a share of the nodes: ``chances[i]`` of first + i * step keys up to the next."""

    share: float
    first: int
    chances: _Floats
    step: int = 1

    @property
    def end(self) -> int:
        return self.first + self.step * self.chances.size


def _window(mean: float, copies: int | None, limit: int) -> tuple[int, _Floats, int]:
    """Return where P(X = i), i < limit, is not negligible: its first i, the chances, and their step."""
    deviation = math.sqrt(mean * (1.0 + (mean / copies if copies else 0.0)))
    low = 0 if copies else max(0, math.floor(mean - 10.0 * deviation - 20.0))
    high = min(limit, math.ceil(mean + (10.0 if copies is None else 40.0) * deviation + 20.0))
    if high <= _MOST_LOADS:
        return 0, _chances(mean, copies, high - 1), 1
    if low >= high:
        return max(0, limit - 1), np.zeros(1), 1
    step = -(-(high - low) // _MOST_LOADS)
    edges = np.minimum(low + step * np.arange(-(-(high - low) // step) + 1.0), float(high))
    return low, np.diff(_below(mean, copies, edges)), step


def _law(laws: Sequence[_Law], full: float, searches: float | None) -> RingLoads:
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
    the model, one part in 1000 (docs/rings_theory.md).

    Parameters
    ----------
    keys, nodes
        n and k.
    limit
        C, the same while all keys come; with weights also one for each node.
    weights
        Of the nodes: their shares of first probes.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range, or the limits leave no room for the keys.

    Examples
    --------
    >>> seen = jump_loads(10_000, 1000, 11)
    >>> round(seen.full, 4), round(seen.variance, 3), round(seen.searches, 3)
    (0.6263, 2.639, 2.676)
    >>> seen = jump_loads(90, 30, [4] * 20 + [8] * 10, weights=[1] * 20 + [2] * 10)
    >>> round(seen.mean, 6), round(seen.full, 3)
    (3.0, 0.173)
    """
    keys, nodes = checked_keys(keys), checked_nodes(nodes)
    return _thrown(keys, nodes, _groups(nodes, limit, weights, None))


def rehash_loads(keys: int, nodes: int, limit: int, *, copies: int = 1) -> RingLoads:
    """Predict loads of Appendix Q's rehashing on a ring of random points, with a fixed limit.

    Every throw goes to the next point, so that a node's share is its arcs': min(negative binomial, limit).

    Parameters
    ----------
    keys, nodes, limit
        n, k and C.
    copies
        Points of a node, the first counted.

    Examples
    --------
    >>> seen = rehash_loads(10_000, 1000, 11)
    >>> round(seen.full, 3), round(seen.variance, 2), round(seen.searches, 1)
    (0.838, 6.78, 66.1)
    """
    keys, nodes = checked_keys(keys), checked_nodes(nodes)
    return _thrown(keys, nodes, _groups(nodes, limit, None, checked_copies(copies)))


def growing_loads(
    keys: int, nodes: int, epsilon: float, *, weights: Sequence[float] | None = None
) -> RingLoads:
    """Predict loads under random jumps when the limit follows the number of keys, as that of a live ring.

    Key m is placed by the limit ceil((1 + epsilon) m w/W) of that moment. Keys come one by one and none
    leaves. Between two changes of the limit the law is that of `jump_loads`, from where it stands. `full` is
    by the limit of key n, `searches` by that of key n + 1: in the example it has just risen.

    Parameters
    ----------
    keys, nodes
        n and k.
    epsilon
        What a node may hold above its mean, as a fraction of it.
    weights
        Of the nodes.

    Examples
    --------
    >>> seen = growing_loads(10_000, 1000, 0.1)
    >>> round(seen.full, 3), round(seen.variance, 2), round(seen.searches, 2)
    (0.446, 1.41, 1.0)
    """
    keys, nodes = checked_keys(keys), checked_nodes(nodes)
    rate = _rate(checked_epsilon(epsilon))
    alike: dict[float, int] = {1.0: nodes}
    if weights is not None:
        numbers = checked_weights(weights)
        if len(numbers) != nodes:
            raise ValueError(
                f"weights must be one for each of {nodes} nodes; got {len(numbers)}. Pass as many as nodes"
            )
        mean = math.fsum(numbers) / nodes
        alike = _merged(dict(Counter(each / mean for each in numbers)))
    if keys == 0:
        return RingLoads(np.array([1.0]), 0.0, 0.0, 0.0, 1.0)

    found, _ = grown_loads(keys, list(alike), list(alike.values()), rate / _RATE_UNIT)
    laws, full, open_share = [], 0.0, 0.0
    for (weight, count), each in zip(alike.items(), found, strict=True):
        first, chances = each.loads()
        laws.append(_Law(count / nodes, first, chances, each.step))
        full += each.full * count / nodes
        next_limit = math.ceil(rate * (keys + 1) * weight / (_RATE_UNIT * nodes) - 1e-9)
        below = min(chances.size, max(0, -(-(next_limit - first) // each.step)))
        open_share += float(chances[:below].sum()) * count * weight / nodes
    return _law(laws, full, 1.0 / open_share if open_share > 0.0 else None)


def _merged(alike: dict[float, int]) -> dict[float, int]:
    """Put neighbouring weights together until there are few."""
    ordered = sorted(alike)
    if len(ordered) <= _MOST_GROUPS:
        return alike
    out: dict[float, int] = {}
    for part in np.array_split(np.array(ordered), _MOST_GROUPS):
        count = sum(alike[float(each)] for each in part)
        out[math.fsum(alike[float(each)] * float(each) for each in part) / count] = count
    return out


# --- without a bound -------------------------------------------------------------------------------------


def plain_variance(keys: int, nodes: int, copies: int | None = None) -> float:
    """Return the expected variance of the loads of plain consistent hashing, exactly.

    n/k (1 - 1/k) for equal shares; for arcs of `copies` random points a node a share is a Beta(v, (k - 1) v)
    variable, and n (n - 1) times its variance is added. (The variance is over the nodes of one ring.)

    Parameters
    ----------
    keys, nodes
        n and k.
    copies
        Points of a node (v); None if shares are equal, as in the dense layout.

    Examples
    --------
    >>> round(plain_variance(10_000, 1000), 2), round(plain_variance(10_000, 1000, 1), 2)
    (9.99, 109.78)
    >>> round(plain_variance(10_000, 1000, 7), 2)
    24.26
    """
    keys, nodes = checked_keys(keys), checked_nodes(nodes)
    variance = keys / nodes * (1.0 - 1.0 / nodes)
    if copies is None:
        return variance
    points = nodes * checked_copies(copies)
    return variance + keys * (keys - 1) * (nodes - 1) / (nodes**2 * (points + 1))


def plain_loads(keys: int, nodes: int, limit: int, *, copies: int | None = None) -> RingLoads:
    """Predict loads of plain consistent hashing; `full` is the fraction of nodes with `limit` keys or more.

    >>> round(plain_loads(10_000, 1000, 20).full, 5)
    0.00345
    """
    keys, nodes, limit = checked_keys(keys), checked_nodes(nodes), checked_limit(limit)
    if copies is not None:
        copies = checked_copies(copies)
    mean = keys / nodes
    first, chances, step = _window(mean, copies, max(keys, limit) + 1)
    full = 1.0 - float(_below(mean, copies, limit)) if keys else 0.0
    return RingLoads(chances, mean, plain_variance(keys, nodes, copies), full, 1.0, first, step)


# --- clockwise -------------------------------------------------------------------------------------------


def clockwise_loads(keys: int, nodes: int, limit: int, *, random_arcs: bool = True) -> RingLoads | None:
    """Predict loads of CH-BL with a fixed limit and one point a node, or None if the numbers are too large.

    None as well where no prediction is known: with several copies the neighbours of a node's points are
    different nodes, and there is no queue; with a moving limit the order of the keys matters. Simulate those
    (`papers.ring_simulation.simulate_ring`).

    A ring of k nodes with exactly n keys fluctuates less than an endless queue. Loads do not mind, but the
    runs of full nodes are shorter, by about 7 relaxation times / k, a relaxation time being the variance of A
    / (limit - n/k)^2 nodes: 66 searches for 51 at 10 keys a node, epsilon 0.1 and 1000 nodes. `searches` is
    None where that exceeds 1.5 %.

    Parameters
    ----------
    keys, nodes, limit
        n, k and C; `limit` above keys / nodes.
    random_arcs
        Whether the points are random (sparse layout), or the arcs equal (dense).

    Examples
    --------
    >>> seen = clockwise_loads(10_000, 1000, 20)
    >>> round(seen.full, 3), round(seen.variance, 2), round(seen.searches, 1)
    (0.225, 52.09, 2.2)
    >>> round(clockwise_loads(10_000, 1000, 11, random_arcs=False).full, 3)
    0.66
    """
    from scipy.linalg import solve
    from scipy.optimize import brentq

    keys, nodes, limit = checked_keys(keys), checked_nodes(nodes), checked_limit(limit)
    mean = keys / nodes
    if keys == 0:
        return RingLoads(np.array([1.0]), 0.0, 0.0, 0.0, 1.0)
    if limit <= mean or limit > _MOST_CLOCKWISE:
        return None
    copies = 1 if random_arcs else None

    def log_moment(x: float) -> float:  # of log E[exp(x A)] - limit x: negative just above 0, 0 at the decay
        if copies is None:
            return mean * math.expm1(x) - limit * x
        ratio = mean * math.expm1(x)
        return math.inf if ratio >= 1.0 else -math.log1p(-ratio) - limit * x

    high = math.log1p(1.0 / mean) * (1.0 - 1e-12) if copies else 1.0
    while log_moment(high) <= 0.0:
        high *= 2.0
    low = high
    while log_moment(low) >= 0.0:
        low /= 2.0
        if low < 1e-9:
            return None
    decay = float(brentq(log_moment, low, high))
    waiting = math.ceil(21.0 / decay) + 2  # the queue is longer with a chance of 1e-9
    spread = mean * (1.0 + mean) if random_arcs else mean
    long = nodes >= _LONG_RING * spread / (limit - mean) ** 2 and waiting <= _MOST_WAITING
    if random_arcs:
        # an overshoot of geometric steps is geometric, so is the queue: P(W > 0) from its ladder heights
        busy = 1.0 + math.expm1(-decay) * (1.0 + mean)
        tail = -busy * math.expm1(-decay) * np.exp(-decay * np.arange(max(limit, waiting if long else 0)))
        queue = np.append(1.0 - busy, tail)
    elif waiting <= _MOST_WAITING:
        queue = _queue(_passing(_chances(mean, None, limit + waiting), limit, waiting))
    else:
        return None
    own = _chances(mean, copies, limit + (waiting if long else 0))
    loads = np.append(np.convolve(queue[: limit + 1], own[: limit + 1])[:limit], 0.0)
    loads[limit] = max(0.0, 1.0 - float(loads.sum()))
    searches = None
    if long:
        # full nodes after an overflow of y: further(y) = sum over y' of passing(y, y') (1 + further(y'))
        passing = _passing(own, limit, waiting)
        further = solve(np.eye(waiting + 1) - passing, passing.sum(axis=1))
        fallen = _chances(2.0 * mean, 2, limit + waiting) if random_arcs else own
        first = np.convolve(queue[: waiting + 1], fallen)[limit : limit + waiting + 1]
        searches = 1.0 + float(first @ (1.0 + further))
    return _law([_Law(1.0, 0, loads)], float(loads[limit]), searches)


def _passing(own: _Floats, limit: int, waiting: int) -> _Floats:
    """Return ``[w, y]``: P(A = limit + y - w), the chance that a full node lets y keys pass after w came."""
    from scipy.linalg import toeplitz

    lower = np.zeros(waiting + 1)
    count = min(limit, waiting)
    lower[: count + 1] = own[limit - np.arange(count + 1)]
    return np.asarray(toeplitz(lower, own[limit : limit + waiting + 1]))


def _queue(passing: _Floats) -> _Floats:
    """Return the stationary law of the queue: what remains of each row goes to 0."""
    from scipy.linalg import solve

    chain = passing.copy()
    chain[:, 0] = 1.0 - chain[:, 1:].sum(axis=1)
    system = chain.T - np.eye(len(chain))
    system[0, :] = 1.0
    right = np.zeros(len(chain))
    right[0] = 1.0
    queue = np.maximum(solve(system, right), 0.0)
    return np.asarray(queue / queue.sum())

"""Loads of a ring under clockwise (CH-BL), predicted: a queue around the ring.

Clockwise, fixed limit, one point per node: which node has a key depends on the neighbours, but not on the
order of the keys. Node by node around the ring, W of the previous nodes' keys pass by, A are its own:

    W' = max(W + A - limit, 0)        load = min(W + A, limit)

a queue that serves `limit` keys a node. Its stationary law gives loads, and the run of full nodes that a new
key walks over. A is Poisson(n/k) if arcs are equal, geometric if they are random; the arc that a new key
falls into is size-biased, Gamma(2), and holds a negative binomial number of them.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from evenbins.theory.ring_laws import LawPart, RingLoads, chances, mixed_law
from evenbins.theory.ring_limits import checked
from evenbins.theory.special import root

__all__ = ["clockwise_loads"]

_Floats = npt.NDArray[np.float64]

_LONG_RING = 500  # relaxation times of the queue, from which on runs of full nodes are those of a line
_MOST_WAITING = 1400  # states of the clockwise queue: a linear system of that size takes some 50 ms
_MOST_CLOCKWISE = 2**22  # keys of a node, for the queue of clockwise


def clockwise_loads(keys: int, nodes: int, limit: int, *, random_arcs: bool = True) -> RingLoads | None:
    """Predict loads of CH-BL with a fixed limit and one point a node, or None if the numbers are too large.

    None as well where no prediction is known: with several copies the neighbours of a node's points are
    different nodes, and there is no queue; with a moving limit the order of the keys matters. Simulate those
    (`papers.ring_simulation.simulate_ring`).

    A ring of k nodes with exactly n keys fluctuates less than an endless queue. Loads do not mind, but the
    runs of full nodes are shorter, by about 7 relaxation times / k, a relaxation time being the variance of A
    / (limit - n/k)^2 nodes: 66 searches for 51 at 10 keys a node, epsilon 0.1 and 1000 nodes. `searches` is
    None where that exceeds 1.5 %. `random_arcs`: whether the points are random (sparse layout), or the arcs
    equal (dense).

    >>> seen = clockwise_loads(10_000, 1000, 20)
    >>> round(seen.full, 3), round(seen.variance, 2), round(seen.searches, 1)
    (0.225, 52.09, 2.2)
    >>> round(clockwise_loads(10_000, 1000, 11, random_arcs=False).full, 3)
    0.66
    """
    keys, nodes, limit = checked(keys=keys, nodes=nodes, limit=limit)
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
    decay = root(log_moment, low, high, xtol=1e-12)
    waiting = math.ceil(21.0 / decay) + 2  # the queue is longer with a chance of 1e-9
    spread = mean * (1.0 + mean) if random_arcs else mean
    long = nodes >= _LONG_RING * spread / (limit - mean) ** 2 and waiting <= _MOST_WAITING
    if random_arcs:
        # an overshoot of geometric steps is geometric, so is the queue: P(W > 0) from its ladder heights
        busy = 1.0 + math.expm1(-decay) * (1.0 + mean)
        tail = -busy * math.expm1(-decay) * np.exp(-decay * np.arange(max(limit, waiting if long else 0)))
        queue = np.append(1.0 - busy, tail)
    elif waiting <= _MOST_WAITING:
        queue = _queue(_passing_matrix(chances(mean, None, limit + waiting), limit, waiting))
    else:
        return None
    own = chances(mean, copies, limit + (waiting if long else 0))
    loads = np.append(np.convolve(queue[: limit + 1], own[: limit + 1])[:limit], 0.0)
    loads[limit] = max(0.0, 1.0 - float(loads.sum()))
    searches = None
    if long:
        # full nodes after an overflow of y: further(y) = sum over y' of passing(y, y') (1 + further(y'))
        passing = _passing_matrix(own, limit, waiting)
        further = np.linalg.solve(np.eye(waiting + 1) - passing, passing.sum(axis=1))
        fallen = chances(2.0 * mean, 2, limit + waiting) if random_arcs else own
        first = np.convolve(queue[: waiting + 1], fallen)[limit : limit + waiting + 1]
        searches = 1.0 + float(first @ (1.0 + further))
    return mixed_law([LawPart(1.0, 0, loads)], float(loads[limit]), searches)


def _passing_matrix(own: _Floats, limit: int, waiting: int) -> _Floats:
    """Return ``[w, y]``: P(A = limit + y - w), the chance that a full node lets y keys pass after w came."""
    lower = np.zeros(waiting + 1)
    count = min(limit, waiting)
    lower[: count + 1] = own[limit - np.arange(count + 1)]
    diagonals = np.concatenate([lower[:0:-1], own[limit : limit + waiting + 1]])  # from the lower left one
    return np.lib.stride_tricks.sliding_window_view(diagonals, waiting + 1)[::-1]


def _queue(passing: _Floats) -> _Floats:
    """Return the stationary law of the queue: what remains of each row goes to 0."""
    chain = passing.copy()
    chain[:, 0] = 1.0 - chain[:, 1:].sum(axis=1)
    system = chain.T - np.eye(len(chain))
    system[0, :] = 1.0
    right = np.zeros(len(chain))
    right[0] = 1.0
    queue = np.maximum(np.linalg.solve(system, right), 0.0)
    return np.asarray(queue / queue.sum())

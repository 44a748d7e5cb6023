"""Loads of a ring of jumps whose limit grows with its keys: not a Poisson law cut off, but close to it.

    limit ceil((1 + epsilon) * n / k) of the moment: while it is L, a node with load below L gets keys at one
    rate, a full one none. In the right time s every node sees a Poisson process of rate 1 until it is full:

        load after s  =  min(load before + Poisson(s), L)

    and s is what makes the mean load n / k. Then the limit is L + 1, and so on.

The paper (chen) places n keys under the *final* limit, one such step from empty nodes. A service that
starts with few keys never has that limit: its nodes are kept even all the way, so that fewer are full in
the end (0.45 instead of 0.63 at epsilon = 0.1, ten keys a node). Later the limit runs away from the loads,
if epsilon is not 0: when it is nine standard deviations off, what comes is Poisson, in one step. (Each
weight for itself: light nodes may be full when the limits of heavy ones are far away.)

Exact for infinitely many nodes of each weight; s, summed up, over n/k is the mean number of searches. A
node of weight w gets keys at rate w and has its own limit. Limits above 2000 rise by a fortieth of their
root at once, above 10,000 by a tenth: small parts of a standard deviation. What comes in one step is binned,
if its standard deviation exceeds 800 keys: memory does not grow with the number of keys.

Tried and dropped: a hundred steps in all, whatever the number of limits: a statistical test saw it at 100
keys a node, epsilon = 0.05.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evenbins.theory.special import poisson, poisson_below, poisson_up_to

__all__ = ["Grown", "grown_loads"]

Floats = npt.NDArray[np.float64]

_FORGET = 1e-18  # of the nodes may be lost at each step
_CLOSE = 1e-13
_ONE_BY_ONE = 2000  # limits up to this rise by one
_MOST_BINS = 20_000  # of what comes in one step
_FAR = 9.0  # standard deviations below the limit: no node will be full again


@dataclass(frozen=True, slots=True)
class Grown:
    """Loads of one class of nodes: its limit, and gaps[i] = P(load = limit - start - i * step).

    With a step above 1 it is the chance of that load or the step - 1 next ones.
    """

    limit: int
    gaps: Floats
    start: int = 0
    step: int = 1

    @property
    def full(self) -> float:
        """The fraction of nodes at the limit."""
        return 0.0 if self.start else float(self.gaps[0])

    @property
    def mean(self) -> float:
        """The mean load."""
        return self.limit - float(self.gaps @ np.arange(self.gaps.size))

    @property
    def variance(self) -> float:
        """The variance of the load."""
        index = np.arange(self.gaps.size)
        gap = float(self.gaps @ index)
        return float(self.gaps @ (index - gap) ** 2)

    def loads(self) -> tuple[int, Floats]:
        """Return the least load i that is possible, and the chances of i, i + step, …"""
        size = self.gaps.size if self.start else min(self.gaps.size, self.limit + 1)
        return self.limit - self.start - self.step * (size - 1), self.gaps[:size][::-1]


def grown_loads(
    keys: int, weights: Sequence[float], counts: Sequence[int], rate: float
) -> tuple[list[Grown], float]:
    """Follow a ring from no keys to `keys`: the loads of each class of nodes, and the mean searches.

    `weights` and `counts` have for each class the weight of a node and the number of nodes; `rate` is
    1 + epsilon.

    >>> (loads,), searches = grown_loads(10_000, [1.0], [1000], 1.1)
    >>> loads.limit, round(loads.full, 4), round(loads.variance, 3), round(searches, 3)
    (11, 0.4463, 1.413, 1.681)
    """
    total = math.fsum(w * k for w, k in zip(weights, counts, strict=True))
    nodes = sum(counts)
    shares = [w * nodes / total for w in weights]  # 1 for the mean weight
    last = [max(1, math.ceil(rate * keys * a / nodes - 1e-9)) for a in shares]
    near = {
        i: _Class(a, k, 1, np.array([0.0, 1.0])) for i, (a, k) in enumerate(zip(shares, counts, strict=True))
    }
    far: dict[int, tuple[Grown, float]] = {}  # no node is full, nor will be; since when
    time, keys_far, rate_far = 0.0, 0.0, 0.0  # of the far: keys at time 0, keys in a unit of time
    while near:
        ends = {i: each.limit * nodes / (rate * each.share) for i, each in near.items()}
        done = all(each.limit == last[i] for i, each in near.items())
        placed = keys if done else min(keys, *ends.values())
        step = _step(near, placed - keys_far - rate_far * time, rate_far)
        time += step
        if placed >= keys:
            break
        for i, each in list(near.items()):
            loads = Grown(each.limit, each.gaps)
            below = loads.full < 1e-15 and loads.limit - loads.mean > _FAR * math.sqrt(loads.mean)
            if rate > 1.0 and below:
                far[i] = loads, time
                rate_far += each.count * each.share
                keys_far += each.count * (loads.mean - each.share * time)
                del near[i]
            elif ends[i] <= placed:
                root = math.isqrt(each.limit) // (40 if each.limit <= 5 * _ONE_BY_ONE else 10)
                rise = min(last[i] - each.limit, 1 if each.limit <= _ONE_BY_ONE else root)
                each.limit += rise
                each.gaps = _trim(np.concatenate((np.zeros(rise), each.gaps)))
    if not near:
        time = (keys - keys_far) / rate_far
    found = [
        Grown(near[i].limit, near[i].gaps)
        if i in near
        else _final(far[i][0], last[i], a * (time - far[i][1]))
        for i, a in enumerate(shares)
    ]
    return found, float(time) * nodes / keys if keys else 1.0


@dataclass
class _Class:
    """Nodes of one weight, some of which may be full: share of the mean weight, how many, limit, gaps."""

    share: float
    count: int
    limit: int
    gaps: Floats


def _step(near: dict[int, _Class], keys: float, rate_far: float) -> float:
    """Let keys come until the classes have `keys`, less what the far ones get meanwhile; return the time.

    Newton's method, whose derivative is known.
    """
    classes = list(near.values())
    room = sum(each.count * each.limit for each in classes) - keys
    before = sum(each.count * float(each.gaps @ np.arange(each.gaps.size)) for each in classes)
    open_ = rate_far + sum(each.count * each.share * (1.0 - each.gaps[0]) for each in classes)
    if before <= room or open_ <= 0:
        return 0.0
    time = (before - room) / open_
    after = [each.gaps for each in classes]
    for _ in range(60):
        after = [_fill_gaps(each.gaps, each.share * time) for each in classes]
        pairs = list(zip(classes, after, strict=True))
        left = sum(each.count * float(g @ np.arange(g.size)) for each, g in pairs) - room - rate_far * time
        open_ = rate_far + sum(each.count * each.share * (1.0 - g[0]) for each, g in pairs)
        if open_ <= 0:
            break
        time += left / open_
        if abs(left) <= _CLOSE * max(1.0, before):
            break
    for each, g in zip(classes, after, strict=True):
        each.gaps = g
    return float(time)


def _final(before: Grown, last: int, mean: float) -> Grown:
    """Return the loads below the last limit, after Poisson arrivals that fill no node."""
    reach = int(12 * math.sqrt(mean) + 20)
    low = max(0, int(mean) - reach)
    count = int(mean) + reach + 1 - low
    step = -(-count // _MOST_BINS)
    if step == 1:
        arrivals = poisson(np.arange(low, low + count), mean)
        gaps = before.gaps
    else:
        edges = low + step * np.arange(-(-count // step) + 1.0)
        arrivals = np.diff(poisson_below(edges, mean))
        nearest = (np.arange(before.gaps.size) + step // 2) // step
        gaps = np.bincount(nearest, weights=before.gaps).astype(np.float64)
    loads = np.convolve(gaps[::-1], arrivals)  # entry i: load limit - (gaps.size - 1) * step + low + i * step
    first = before.limit - (gaps.size - 1) * step + low
    loads = loads[: (last - first) // step + 1]
    return Grown(last, loads[::-1], last - first - step * (loads.size - 1), step)


def _fill_gaps(gaps: Floats, time: float) -> Floats:
    """Return the gaps after Poisson(time) keys for each node that is not full."""
    most = int(time + 12 * math.sqrt(time) + 20)
    arrivals = poisson_up_to(most, time)
    after = np.convolve(gaps[::-1], arrivals)[: gaps.size][::-1]
    after[0] = max(0.0, 1.0 - float(after[1:].sum()))
    return after


def _trim(gaps: Floats) -> Floats:
    beyond = np.cumsum(gaps[::-1])[::-1]
    size = max(2, int(np.searchsorted(-beyond, -_FORGET)))
    return gaps[:size]

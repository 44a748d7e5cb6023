"""Pages of a file as buckets of skewed levels (kirsch, 4.7.2, 4.8): how many keys each level passes on.

A page of level 1 receives a binomial number X of keys and passes on Y = max(0, X - slots). Over all pages
the number M passed on has the mean pages*E[Y] exactly; its variance takes the fixed total into account,
pages*(Var Y - Cov(X, Y)**2/Var X), which is exact in the limit of many pages. Level 2 then receives M keys,
each at a page of its own choice, and so on; the law of M is taken as normal, as Poisson where it is small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenbins.theory.block import poisson

__all__ = ["PassedOn", "level_loads", "passed_on"]

Vector = npt.NDArray[np.float64]


class PassedOn(NamedTuple):
    """Keys that a level passes on: mean and variance of their number."""

    mean: float
    variance: float


def passed_on(keys: float, pages: int, slots: int, variance: float = 0.0) -> PassedOn:
    """Predict how many keys a level passes on.

    Parameters
    ----------
    keys, variance
        Mean and variance of the number of keys that come to the level, each at a random page.
    pages, slots
        Pages of the level, and keys that each holds.

    Examples
    --------
    >>> passed_on(10_000_000, 43_574, 255)  # doctest: +ELLIPSIS
    PassedOn(mean=13718.51490..., variance=132092.5069...)
    """
    if keys <= 0.0:
        return PassedOn(0.0, 0.0)
    deviation = math.sqrt(max(variance, 0.0))
    if deviation < 1e-6 * keys:
        return _passed_on_exactly(keys, pages, slots)
    if keys < 50.0:  # few: Poisson, widened by nothing; the law's shape does not matter far below the slots
        counts = np.arange(0.0, int(keys + 12 * math.sqrt(keys) + 30))
        weights = poisson(np.array([keys]), len(counts) - 1)[0]
    else:
        counts = np.unique(np.rint(np.linspace(max(0.0, keys - 8 * deviation), keys + 8 * deviation, 65)))
        weights = np.exp(-(((counts - keys) / deviation) ** 2) / 2)
        weights /= weights.sum()
    found = [_passed_on_exactly(float(count), pages, slots) for count in counts]
    means = np.array([each.mean for each in found])
    mean = float(weights @ means)
    spread = float(weights @ (means - mean) ** 2)
    return PassedOn(mean, float(weights @ np.array([each.variance for each in found])) + spread)


def _passed_on_exactly(keys: float, pages: int, slots: int) -> PassedOn:
    """The same for a number of keys that is known."""
    if keys <= slots:
        return PassedOn(0.0, 0.0)
    if pages == 1:
        return PassedOn(max(0.0, keys - slots), 0.0)
    mean, load = keys / pages, keys / pages
    most = int(mean + 40 * math.sqrt(mean) + 60)
    counts = np.arange(0, max(most, slots + 60) + 1, dtype=np.float64)
    chances = _binomial(counts, round(keys), 1.0 / pages)
    over = np.maximum(0.0, counts - slots)
    passed = float(chances @ over)
    second = float(chances @ over**2)
    cross = float(chances @ (over * (counts - load)))
    own = max(second - passed**2, 0.0)
    variance = pages * max(own - cross**2 / max(load * (1.0 - 1.0 / pages), 1e-300), 0.0)
    return PassedOn(pages * passed, variance)


def _binomial(counts: Vector, trials: int, chance: float) -> Vector:
    """P(X = count) for counts 0, 1, ...: products of ratios, in logarithms."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.log(np.maximum(trials - counts[:-1], 0.0) / counts[1:]) + math.log(chance / (1.0 - chance))
    return np.exp(trials * math.log1p(-chance) + np.concatenate([[0.0], np.cumsum(steps)]))


def level_loads(keys: int, pages: Sequence[int], slots: int) -> tuple[list[float], PassedOn]:
    """Compute the expected keys of each level, and what passes all of them."""
    arriving = PassedOn(float(keys), 0.0)
    placed = []
    for count in pages:
        going = passed_on(arriving.mean, count, slots, arriving.variance)
        placed.append(arriving.mean - going.mean)
        arriving = going
    return placed, arriving

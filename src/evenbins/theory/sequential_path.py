"""SEQUENTIAL counted in attempts per bucket: one integral instead of a system of equations.

In attempts u per bucket the scheme is a single one; a key that arrives at u makes G = 1 + c + ... + c**(d-1)
attempts, c(u) the chance of refusal, so dt = du/(load G). `Path` follows a scheme, `totals` gives what it
ends with; both by Gauss-Legendre quadrature on panels that follow the rise of c.

Source: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient balanced Bloom filters", (A.1) to (A.4).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import legendre

from evenbins.theory.bucket import Vector, dot, log_not
from evenbins.theory.special import poisson, poisson_at_least

__all__ = ["Path", "totals"]

_NODES = 16  # of the quadrature, in each panel


def _at_threshold(points: Vector, threshold: int, coin: float) -> Vector:
    """Compute f_h, the fraction of buckets with `threshold` keys, at many attempts per bucket.

    f_h(u) = P(Poisson(u) = h) * S with S = sum of x**n / ((h+1)...(h+n)), x = u (1 - coin): by the series
    where x is well below h; elsewhere S is e**x h! / x**h * P(Poisson(x) >= h).
    """
    if threshold == 0:
        return np.exp(-coin * points)
    h = float(threshold)
    result = np.zeros_like(points)
    x = points * (1.0 - coin)
    small = x <= max(0.75 * h, h - 20.0 * math.sqrt(h))
    with np.errstate(under="ignore", divide="ignore"):
        if not small.all():
            shift = -coin * points[~small] - h * log_not(coin)
            result[~small] = np.exp(shift) * poisson_at_least(h, x[~small])
        if small.any():
            u, ratio = points[small], x[small]
            total = np.ones_like(u)
            term = np.ones_like(u)
            n = h
            while (term > 1e-17 * total).any():
                n += 1.0
                term = term * ratio / n
                total += term
            result[small] = poisson(h, u) * total
    return result


def _refusal(points: Vector, threshold: int, coin: float) -> Vector:
    """Compute the chance that a bucket refuses, c = P(Poisson(u) >= h) - coin * f_h."""
    full = poisson_at_least(threshold, points)
    chance: Vector = np.clip(full - coin * _at_threshold(points, threshold, coin), 0.0, 1.0)
    return chance


def _panels(threshold: int, choices: int, top: float) -> Vector:
    """Cut 0..top, less the part where no bucket is full yet, for the quadrature.

    The refusal rises on the scale of the threshold's root, and by a factor of at most exp(slope) for
    each attempt; its power, the overflow, should not rise by more than exp(12) in a panel. Beyond
    the rise panels grow. Below the first edge the refusal is under 1e-30.
    """
    scale = math.sqrt(threshold + 1.0)
    start = max(0.0, min(float(threshold), top) - 12 * scale)
    end = min(top, threshold + 12 * scale)
    fine = [end]
    while fine[-1] > start:
        slope = max((threshold + 1.0) / fine[-1] - 1.0, 0.0) + 1.0 / scale
        width = max(min(scale / 2, 12 / (choices * slope)), scale / 100)
        fine.append(fine[-1] - width if fine[-1] - 1.5 * width > start else start)
    coarse = []
    width = scale / max(2.0, choices / 8)
    while end < top:
        width *= 1.25
        end = end + width if end + 1.5 * width < top else top
        coarse.append(end)
    return np.array(fine[::-1] + coarse)


_GAUSS_X, _GAUSS_W = legendre.leggauss(_NODES)
_TO_SERIES = (legendre.legvander(_GAUSS_X, _NODES - 1) * _GAUSS_W[:, None]).T * (
    np.arange(_NODES)[:, None] + 0.5
)


class Path:
    """SEQUENTIAL without a budget, from 0 to `top` attempts per bucket.

    At u attempts per bucket, column j is how many keys per bucket were refused j times at least:
    the integral of c**j / G; column 0 counts keys, the last one overflow.
    """

    def __init__(self, threshold: int | None, coin: float, choices: int, top: float) -> None:
        self.coin = coin
        self.choices = choices
        self.threshold = threshold if top > 0.0 else None
        if self.threshold is None:
            return
        self.edges = _panels(self.threshold, choices, top)
        parts, slopes = self._integrals(self.edges[:-1], self.edges[1:])
        self.sums = np.vstack([np.zeros(choices + 1), np.cumsum(parts, axis=0)])
        self.sums[:, 0] += self.edges[0]
        self.slopes = slopes @ _TO_SERIES.T  # of column 0 in each panel, as Legendre series

    def _integrals(self, low: Vector, high: Vector) -> tuple[Vector, Vector]:
        """Integrate all columns from each `low` to its `high`; give 1/G at the nodes as well."""
        assert self.threshold is not None
        half = (high - low)[:, None] / 2
        refusal = _refusal(low[:, None] + half * (1.0 + _GAUSS_X), self.threshold, self.coin)
        powers = refusal[:, :, None] ** np.arange(self.choices + 1)
        powers /= powers[:, :, :-1].sum(axis=2, keepdims=True)
        return np.einsum("pn,pnj->pj", half * _GAUSS_W, powers), powers[:, :, 0]

    def columns(self, points: Vector) -> Vector:
        """Return all columns, a row for each number of attempts per bucket."""
        result = np.zeros((len(points), self.choices + 1))
        result[:, 0] = points
        if self.threshold is not None:
            panel = np.searchsorted(self.edges, points).clip(1, len(self.edges) - 1) - 1
            inside = points > self.edges[0]
            panel = panel[inside]
            result[inside] = self.sums[panel] + self._integrals(self.edges[panel], points[inside])[0]
        return result

    def point(self, keys: float) -> float:
        """Invert column 0: Newton's steps inside the panel, where the slope 1/G is a Legendre series."""
        if self.threshold is None or keys <= self.edges[0]:
            return keys
        panel = min(int(np.searchsorted(self.sums[:, 0], keys)), len(self.slopes)) - 1
        before, after = float(self.sums[panel, 0]), float(self.sums[panel + 1, 0])
        half = float(self.edges[panel + 1] - self.edges[panel]) / 2
        x = 2.0 * (keys - before) / (after - before) - 1.0
        last = math.inf
        while True:
            error = (before - keys) / half + dot(_antiderivatives(x), self.slopes[panel])
            step = error / float(legendre.legval(x, self.slopes[panel]))
            if not abs(step) < last / 2:  # rounding
                return float(self.edges[panel]) + half * (1.0 + x)
            x = min(max(x - step, -1.0), 1.0)
            last = abs(step)


def _antiderivatives(x: float) -> Vector:
    """Return the integrals from -1 to x of the Legendre polynomials."""
    values = legendre.legvander(np.array([x]), _NODES)[0]
    result: Vector = np.empty(_NODES)
    result[0] = x + 1.0
    result[1:] = (values[2:] - values[:-2]) / (2.0 * np.arange(1, _NODES) + 1.0)
    return result


def totals(threshold: int, coin: float, choices: int, top: float) -> tuple[float, float]:
    """Return the attempts after the first ones, and the overflow, in `top` attempts; all per bucket."""
    edges = _panels(threshold, choices, top)
    half = np.diff(edges)[:, None] / 2
    refusal = _refusal(edges[:-1, None] + half * (1.0 + _GAUSS_X), threshold, coin)
    more = np.zeros_like(refusal)  # G - 1
    for _ in range(choices - 1):
        more = refusal * (1.0 + more)
    weights = half * _GAUSS_W / (1.0 + more)
    return float((weights * more).sum()), float((weights * refusal**choices).sum())

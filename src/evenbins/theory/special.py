"""Poisson and binomial probabilities and their tails, and roots of functions, without SciPy.

A tail is an integral of a density without a second hump, an incomplete gamma or beta function:

    P(Poisson(m) >= k)   =  integral from 0 to m of t**(k-1) e**-t / (k-1)!
    P(Bin(n, p) >= k)    =  integral from 0 to p of t**(k-1) (1-t)**(n-k) / B(k, n-k+1)

On the side of the integral's end that has the lesser part, the density falls by a factor of e**40 within a
width that its first two derivatives give: one panel of Gauss-Legendre quadrature there, however large k and n
are. Relative to its value at the end the density is exp(-slope s - curved part), where nothing cancels; that
value is Loader's.

Counts are whole numbers, as floats or integers; all arguments may be arrays. Relative errors are about 1e-13,
also of small tails (tests/unit/test_theory_special.py compares with SciPy and with exact sums), plus what a
rounding of the last digit of `mean` or `x` makes: 1e-11 of a tail of 10**9 keys.

Tried and dropped: series and continued fractions, whose length grows with the root of k.

Sources: C. Loader, "Fast and accurate computation of binomial probabilities", 2000; T. R. Chandrupatla,
Advances in Engineering Software 28, 1997 (`root`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.polynomial import legendre

from evenbins.theory.caching import cached

__all__ = [
    "beta_below",
    "log_factorial",
    "poisson",
    "poisson_at_least",
    "poisson_below",
    "poisson_up_to",
    "root",
]

Vector = npt.NDArray[np.float64]

_NODES, _WEIGHTS = legendre.leggauss(40)
_NODES, _WEIGHTS = (_NODES + 1.0) / 2.0, _WEIGHTS / 2.0  # of the interval 0 ... 1
_DROP = 40.0  # the density is left out where it is e**-40 of what it is at the end
_AT_ONCE = 2048  # integrals: memory and cache
_EXACT = 16  # up to this, factorials are taken as they are


def _small_errors() -> Vector:
    """Return log(n!) less Stirling's formula, n = 0 ... 16; for n = 0 by definition 0."""
    errors = [
        math.log(math.factorial(n)) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2.0 * math.pi)
        for n in range(1, _EXACT)
    ]
    return np.array([0.0, *errors])


_ERRORS = _small_errors()


def _stirling_error(n: Vector) -> Vector:
    """Compute log(n!) - log(sqrt(2 pi n) (n/e)**n): by the asymptotic series, or from a table."""
    m = np.maximum(n, float(_EXACT))
    square = 1.0 / (m * m)
    terms = 1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))
    index = np.where(n < _EXACT, np.maximum(n, 0.0), 0.0).astype(np.intp)  # also of NaN
    return np.where(n < _EXACT, _ERRORS[index], terms / m)


def _curve(v: Vector) -> Vector:
    """Compute v - log(1 + v), without cancellation near 0; infinite at -1."""
    ratio = v / (2.0 + v)
    square = ratio * ratio
    series = np.zeros_like(square)
    for odd in range(21, 1, -2):
        series = square * (1.0 / odd + series)
    with np.errstate(divide="ignore"):
        return np.where(np.abs(v) < 0.4, ratio * (v - 2.0 * series), v - np.log1p(v))


def _deviance(k: Vector, mean: Vector) -> Vector:
    """Compute k log(k/mean) + mean - k."""
    safe = np.where(k > 0.0, k, 1.0)
    near = np.abs(mean - safe) < 0.4 * safe
    with np.errstate(divide="ignore", invalid="ignore"):
        far = mean - k - k * np.log(mean / safe)
    close = k * _curve(np.where(near, (mean - safe) / safe, 0.0))
    return np.where(k <= 0.0, mean, np.where(near, close, far))


def log_factorial(n: Any) -> Vector:
    """Compute log(n!)."""
    n = np.asarray(n, dtype=np.float64)
    safe = np.maximum(n, 1.0)
    found = _stirling_error(safe) + (safe + 0.5) * np.log(safe) - safe + 0.5 * math.log(2.0 * math.pi)
    return np.where(n < 2.0, 0.0, found)


def poisson(count: Any, mean: Any) -> Vector:
    """Compute P(Poisson(mean) = count); 0 for negative counts."""
    k, m = np.broadcast_arrays(np.asarray(count, dtype=np.float64), np.asarray(mean, dtype=np.float64))
    factor = np.where(k > 0.0, 1.0 / np.sqrt(2.0 * math.pi * np.maximum(k, 1.0)), 1.0)
    return np.where(k < 0.0, 0.0, factor * np.exp(-_stirling_error(k) - _deviance(k, m)))


@cached(None)
def _log_factorials(bits: int) -> Vector:
    """Return log(n!), n = 0 ... 2**bits."""
    return log_factorial(np.arange(2.0**bits + 1.0))


def poisson_up_to(most: int, mean: float) -> Vector:
    """Compute P(Poisson(mean) = 0 ... most), quickly; relative errors are 1e-12 at 300, 1e-10 at 20,000.

    >>> poisson_up_to(2, 1.0).round(6)
    array([0.367879, 0.367879, 0.18394 ])
    """
    counts = np.arange(most + 1.0)
    if mean <= 0.0:
        return np.where(counts == 0.0, 1.0, 0.0)
    logs = _log_factorials(most.bit_length())[: most + 1]
    return np.asarray(np.exp(counts * math.log(mean) - mean - logs))


def _density(a: Vector, b: Vector, x: Vector, y: Vector) -> Vector:
    """Compute (a + b + 1) times P(Bin(a + b, x) = a), with y = 1 - x."""
    n = a + b
    inner = (a > 0.0) & (b > 0.0)
    factor = np.sqrt(np.where(inner, n, 1.0) / np.where(inner, 2.0 * math.pi * a * b, 1.0))
    errors = np.where(inner, _stirling_error(n) - _stirling_error(a) - _stirling_error(b), 0.0)
    return np.asarray((n + 1.0) * factor * np.exp(errors - _deviance(a, n * x) - _deviance(b, n * y)))


def _panel(width: Vector, slope: Vector, curved: Sequence[tuple[Vector, Vector]]) -> Vector:
    """Integrate exp(-slope s - sum of a (b s - log(1 + b s))) over s = 0 ... width; `curved` has a, b."""
    found = np.empty_like(width)
    for start in range(0, len(width), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        s = width[part, None] * _NODES
        exponent = slope[part, None] * s
        for a, b in curved:
            exponent += a[part, None] * _curve(b[part, None] * s)
        found[part] = width[part] * (np.exp(-exponent) @ _WEIGHTS)
    return found


def _fall(slope: Vector, bend: Vector) -> Vector:
    """Return where slope s + bend s**2 / 2 reaches `_DROP`; infinite if never."""
    steep = slope + np.sqrt(slope * slope + 2.0 * _DROP * bend)
    return np.where(steep > 0.0, 2.0 * _DROP / steep, np.inf)


def _rise(slope: Vector, a: Vector) -> Vector:
    """Return where slope v + a (v - log(1 + v)) has reached `_DROP`, seldom much too far; infinite if never.

    log(1 + v) <= v (6 + v) / (6 + 4 v) makes a quadratic equation of it.
    """
    half = 3.0 * slope - 2.0 * _DROP
    lead = 4.0 * slope + 3.0 * a
    both = np.sqrt(half * half + 6.0 * _DROP * lead)
    found = np.where(half > 0.0, 6.0 * _DROP / (both + half), (both - half) / lead)
    return np.where(lead > 0.0, found, np.inf)


def poisson_at_least(count: Any, mean: Any) -> Vector:
    """Compute P(Poisson(mean) >= count).

    >>> round(float(poisson_at_least(3, 1.0)), 6)
    0.080301
    """
    found, upper = _poisson_parts(count, mean)
    return np.where(upper, 1.0 - found, found)


def poisson_below(count: Any, mean: Any) -> Vector:
    """Compute P(Poisson(mean) < count)."""
    found, upper = _poisson_parts(count, mean)
    return np.where(upper, found, 1.0 - found)


def _poisson_parts(count: Any, mean: Any) -> tuple[Vector, npt.NDArray[np.bool_]]:
    """Return the lesser of P(Poisson(mean) >= count) and its complement, and whether it is the complement."""
    k, x = np.broadcast_arrays(np.asarray(count, dtype=np.float64), np.asarray(mean, dtype=np.float64))
    inside = (k > 0.0) & (x > 0.0) & (np.maximum(k, x) < np.inf)
    found = np.where(np.isnan(k) | np.isnan(x), np.nan, 0.0)
    upper = np.where(k <= 0.0, True, (x > 0.0) & (x >= k))
    for side in (False, True):
        chosen = inside & (upper == side)
        if not chosen.any():
            continue
        a, end = k[chosen] - 1.0, x[chosen]
        with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
            if side:  # from `end` upwards, in units of it
                slope, sign = end - a, np.ones_like(a)
                width = _rise(slope, a)
            else:
                slope, sign = a - end, -np.ones_like(a)
                width = np.minimum(_fall(slope, a), 1.0)
            part = _panel(width, slope, [(a, sign)])
            found[chosen] = np.minimum(poisson(a, end) * (end * part), 1.0)
    return found, upper


def beta_below(a: Any, b: Any, x: Any) -> Vector:
    """Compute P(Beta(a, b) <= x) for whole a and b, at least 1: it is P(Bin(a + b - 1, x) >= a).

    >>> round(float(beta_below(3, 8, 0.1)), 6)  # three heads or more of ten throws
    0.070191
    """
    a, b, x = np.broadcast_arrays(*(np.asarray(each, dtype=np.float64) for each in (a, b, x)))
    y = 1.0 - x
    inside = (x > 0.0) & (y > 0.0)
    upper = x * (a + b) > a  # the lesser part is above x: turn it around
    found = np.zeros(x.shape)
    for side in (False, True):
        chosen = inside & (upper == side)
        if chosen.any():
            each = (a, b, x, y) if not side else (b, a, y, x)
            found[chosen] = _beta_part(*(values[chosen] for values in each))
    found = np.where(inside, np.where(upper, 1.0 - found, found), np.where(x > 0.0, 1.0, 0.0))
    return np.where(np.isnan(x), np.nan, found)


def _beta_part(a: Vector, b: Vector, x: Vector, y: Vector) -> Vector:
    """Compute P(Beta(a, b) <= x) where x is at most the mean; y = 1 - x."""
    a, b = a - 1.0, b - 1.0
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        slope = a - b * (x / y)  # from x downwards, in units of it
        # Both bounds are needed: one is far too wide where a or y is small, the other where b or x is.
        width = np.fmin(_fall(slope, a + b * x * x), _rise(slope * (y / x), b) * (y / x))
        part = _panel(np.fmin(width, 1.0), slope, [(a, -np.ones_like(a)), (b, x / y)])
        return np.asarray(np.minimum(_density(a, b, x, y) * (x * part), 1.0))


def root(
    f: Callable[[float], float], low: float, high: float, *, xtol: float = 1e-300, rtol: float = 1e-15
) -> float:
    """Return where f, of opposite signs at both ends, is 0, within xtol + rtol times the root.

    Chandrupatla's rule: inverse quadratic interpolation where the last three points are such that it is safe,
    bisection elsewhere.
    """
    a, b = low, high
    fa, fb = f(a), f(b)
    if fa == 0.0 or fb == 0.0:
        return a if fa == 0.0 else b
    if (fa > 0.0) == (fb > 0.0):
        raise ArithmeticError(f"no root between {low!r} and {high!r}: {fa!r}, {fb!r}")
    t = 0.5
    while True:
        x = a + t * (b - a)
        fx = f(x)
        if (fx > 0.0) == (fa > 0.0):
            c, fc, a, fa = a, fa, x, fx
        else:
            c, fc, b, fb, a, fa = b, fb, a, fa, x, fx
        best = a if abs(fa) < abs(fb) else b
        least = (xtol + rtol * abs(best)) / abs(b - a) if a != b else 1.0
        if fx == 0.0 or least >= 0.5:
            return x if fx == 0.0 else best
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        t = 0.5
        if 1.0 - math.sqrt(1.0 - xi) < phi < math.sqrt(xi):
            t = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        t = min(max(t, least), 1.0 - least)

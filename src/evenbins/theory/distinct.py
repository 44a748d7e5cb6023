"""How many different keys a HyperLogLog has seen, from its registers (hyperloglog.hpp says what they hold).

The estimator is Ertl's ("New cardinality estimation algorithms for HyperLogLog sketches", 2017, section 2.4):
one formula from no key to 2**64 digests, with corrections for registers that are still 0 (`_sigma`) and for
those that cannot rise further (`_tau`). It needs no table of measured biases, as HyperLogLog++ does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["SPARSE_PRECISION", "error_of_precision", "estimate_dense", "estimate_sparse", "sparse_error"]

SPARSE_PRECISION = 25
"""Bits of a digest that an entry of a sparse sketch keeps as its index."""
_ALPHA = 0.5 / math.log(2.0)
_ERROR = math.sqrt(3.0 * math.log(2.0) - 1.0)  # 1.039: the papers' 1.04


def error_of_precision(precision: int) -> float:
    """Return the relative standard error of the estimate of a dense sketch.

    Examples
    --------
    >>> round(error_of_precision(14), 5)
    0.00812
    """
    return _ERROR / math.sqrt(2.0**precision)


def estimate_dense(histogram: Sequence[int]) -> float:
    """Estimate the number of different keys from how many registers are 0, 1, … q + 1.

    Examples
    --------
    >>> estimate_dense([16, 0, 0])
    0.0
    """
    registers = sum(histogram)
    z = registers * _tau(1.0 - histogram[-1] / registers)
    for count in reversed(histogram[1:-1]):
        z = 0.5 * (z + count)
    z += registers * _sigma(histogram[0] / registers)
    return _ALPHA * registers * registers / z if z else math.inf


def estimate_sparse(entries: int) -> float:
    """Estimate the number of different keys from the entries of a sparse sketch: linear counting.

    Examples
    --------
    >>> round(estimate_sparse(1000), 2)
    1000.01
    """
    cells = 2.0**SPARSE_PRECISION
    return abs(cells * math.log1p(-entries / cells))


def sparse_error(entries: int) -> float:
    """Return the relative standard error of `estimate_sparse`.

    The entries are too few by the number of pairs that collide, which is about Poisson: n**2/2 pairs, each
    with probability 2**-25; linear counting corrects its mean.
    """
    return math.sqrt(0.5 / 2.0**SPARSE_PRECISION) if entries else 0.0


def _sigma(x: float) -> float:
    if x == 1.0:
        return math.inf
    y, z = 1.0, x
    while True:
        x *= x
        before = z
        z += x * y
        y += y
        if z == before:
            return z


def _tau(x: float) -> float:
    if x in (0.0, 1.0):
        return 0.0
    y, z = 1.0, 1.0 - x
    while True:
        x = math.sqrt(x)
        before = z
        y *= 0.5
        z -= (1.0 - x) ** 2 * y
        if z == before:
            return z / 3.0

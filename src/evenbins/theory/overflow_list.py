"""The length of an overflow list: how many keys it must hold."""

from __future__ import annotations

import math

import numpy as np

from evenbins.theory import block

__all__ = ["overflow_limit"]


def overflow_limit(mean: float, sd: float, overrun: float = 1e-6) -> int:
    """Find the length of a list that is overrun with probability `overrun` at most.

    The number of keys on the list is taken as negative binomial of this mean and standard
    deviation (Poisson where it varies less): over-dispersed as the list is, with the longer tail.

    Parameters
    ----------
    mean, sd
        Of the number of keys on the list.
    overrun
        P(more keys come than the list holds), above 0 and below 1.

    Raises
    ------
    ValueError
        An argument is outside its range.

    Examples
    --------
    >>> overflow_limit(50_000, 300)
    51436
    >>> overflow_limit(0, 0)
    0
    """
    if not (math.isfinite(mean) and math.isfinite(sd) and mean >= 0 and sd >= 0):
        raise ValueError(f"mean and sd must be finite numbers of at least 0; got {mean!r} and {sd!r}")
    if not 0.0 < overrun < 1.0:
        raise ValueError(f"overrun must be a probability between 0 and 1, both excluded; got {overrun!r}")
    if mean <= overrun:
        return 0
    variance = max(sd * sd, mean)
    if mean > 20_000.0:  # normal, with the skewness of the negative binomial
        z = normal_quantile(overrun)
        skew = (2.0 * variance / mean - 1.0) / math.sqrt(variance)
        return math.ceil(mean + math.sqrt(variance) * (z + skew * (z * z - 1.0) / 6.0))
    most = int(mean + 40.0 * math.sqrt(variance) + 60.0 * variance / mean + 60.0)
    n = np.arange(1.0, most + 1.0)
    if variance > mean * (1.0 + 1e-9):
        size = mean * mean / (variance - mean)
        share = 1.0 - mean / variance
        log_first = size * math.log1p(-share)
        logs = np.log((n - 1.0 + size) / n * share)
    else:
        log_first, logs = -mean, np.log(mean / n)
    chance = np.exp(np.concatenate([[log_first], log_first + np.cumsum(logs)]))
    return int(np.argmax(block.more_than(chance) <= overrun))


def normal_quantile(tail: float) -> float:
    """Find z with P(Z > z) = tail, by Newton's steps on the logarithm."""
    z = math.sqrt(max(-2.0 * math.log(tail), 0.0)) if tail < 0.5 else 0.0
    for _ in range(60):
        above = 0.5 * math.erfc(z / math.sqrt(2.0))
        slope = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) / above
        change = math.log(above / tail) / slope
        z += change
        if abs(change) < 1e-13:
            break
    return z

"""The longest chain of a table: its distribution, and how it grows.

The fluid limit ends where few chains are that long: bins times u_i is the expected number of chains of i keys
or more, and the number is near Poisson where it is small. (With d choices the tail falls doubly
exponentially, so that only one height is in doubt.)

Source: A. Kirsch's thesis, section 2.1.3, where d-left's maximum is printed as ln ln n/(d phi_d): Vöcking has
ln ln n/(d ln phi_d).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory.balance_arguments import MAX_CHOICES
from evenbins.theory.chain_walk import Layout

__all__ = ["asymptotic_max_load", "growth_rate", "max_load_chances", "median_of_max"]

Vector = npt.NDArray[np.float64]


def max_load_chances(layout: Layout, tables: Vector, overflow_loads: Vector) -> Vector:
    """Return the distribution of the longest chain's length, overflow chains counted.

    Chains are taken as independent: P(longest < i) is the product of their chances.

    Parameters
    ----------
    layout
        The table.
    tables, overflow_loads
        Fractions of chains by length, as `Chains` has them.

    Examples
    --------
    >>> from evenbins.theory.chains import predict
    >>> layout = Layout(policy="d-left", choices=4, bins=(25_000,) * 4)
    >>> seen = predict(layout, 100_000)
    >>> max_load_chances(layout, seen.tables, seen.overflow_loads)[:5].round(4).tolist()
    [0.0, 0.0, 1.0, 0.0, 0.0]
    """
    groups = [(float(n), each) for n, each in zip(layout.bins, tables, strict=True)]
    if layout.overflow_bins:
        groups.append((float(layout.overflow_bins), overflow_loads))
    longest = max(len(each) for _, each in groups)
    below = np.zeros(longest + 1)  # log P(longest < i)
    for n, each in groups:
        tail = np.zeros(longest + 1)
        tail[: len(each)] = np.cumsum(each[::-1])[::-1]
        with np.errstate(divide="ignore"):
            below += n * np.log1p(-np.minimum(tail, 1.0))
    chances: Vector = np.diff(np.exp(below))
    return chances


def median_of_max(chances: Vector) -> int:
    """Return the median of the longest chain: the first length that at least half of all tables stay within.

    Examples
    --------
    >>> median_of_max(np.array([0.0, 0.1, 0.3, 0.6]))
    3
    """
    return int(np.searchsorted(np.cumsum(chances), 0.5 * (1.0 - 1e-12)))


def growth_rate(choices: int) -> float:
    """Compute phi_d, at which Fibonacci numbers of order d grow: the root of x**d = 1 + x + ... + x**(d-1).

    Examples
    --------
    >>> round(growth_rate(2), 6), round(growth_rate(3), 6)
    (1.618034, 1.839287)
    """
    choices = arguments.integer("choices", choices, 2, MAX_CHOICES, "Pass for example 2")
    x = 2.0
    for _ in range(200):  # x**(d+1) - 2 x**d + 1 = 0: Newton comes down from 2
        step = (x ** (choices + 1) - 2 * x**choices + 1) / (
            (choices + 1) * x**choices - 2 * choices * x ** (choices - 1)
        )
        x -= step
        if step <= 1e-16:
            break
    return x


def asymptotic_max_load(policy: str, choices: int, keys: int) -> float:
    """Compute what the longest chain grows like when there are as many bins as keys, but for a constant.

    One choice: ln n / ln ln n. "least-loaded": ln ln n / ln d (Azar et al.); "d-left": ln ln n / (d ln phi_d)
    (Vöcking). The constants are as large as these numbers: `max_load_chances` has the answer for a finite
    table.

    Raises
    ------
    ValueError
        The policy has no such law: with thresholds the longest chain is threshold + 1, but for overflow
        chains.

    Examples
    --------
    >>> [round(asymptotic_max_load(policy, 2, 10**6), 2) for policy in ("least-loaded", "d-left")]
    [3.79, 2.73]
    """
    log = math.log(max(keys, 3))
    if policy == "single":
        return log / math.log(max(log, 1.0 + 1e-9))
    if policy == "least-loaded":
        return math.log(log) / math.log(choices)
    if policy == "d-left":
        return math.log(log) / (choices * math.log(growth_rate(choices)))
    rule = 'one of "single", "least-loaded" and "d-left"'
    raise arguments.error("policy", rule, policy, "Other policies have a bound: threshold + 1")

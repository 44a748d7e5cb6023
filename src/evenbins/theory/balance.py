"""Balancing keys over buckets with few reads: the best that can be, and the schemes that reach it.

    lower_bound(reads, load, overflow=0.0) -> LowerBound        no scheme is more even (Theorem 1)
    chain_variance(reads, load, overflow=0.0) -> float          its variance (Appendix C)
    optimal_single(load, overflow) -> Balance                   schemes that reach the lower bound
    optimal_sequential(reads, load, choices) -> Balance
    optimal_multilevel(reads, load, choices) -> Balance
    single, sequential, multilevel                              schemes over time (`over_time`)

The idea. Count *attempts*, not keys: a key that is refused and reads another bucket is, for that
bucket, as good as a new key. A bucket then receives N = Poisson(attempts per bucket) of them,
whatever the scheme, and a scheme is what a bucket makes of N (`bucket`). The most even distribution of a
given mean that N allows is of the same form (all excess cut off at one height), so threshold and coin
follow from the mean.

Tried and dropped: solving for sequential's overflow (where loads are almost equal, threshold and coin hang
on its last digits; so they are solved for, and it follows).

Source: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient balanced Bloom filters", sections 3
to 8 and the appendices; Theorem n and (A.n) are theirs. Their letters: a `reads`, r `load`, d
`choices`, gamma `overflow`, h `threshold`, p `coin`, alpha `shares`. Misprints corrected here: k0
is infinite when nothing may be removed (a = 1, gamma = 0); "a = 1.1 needs 1 %" in section 8 is 0.587 %; the
shares of section 10 do not depend on the load.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from evenbins import _arguments as arguments
from evenbins.theory.balance_arguments import (
    MAX_CHOICES,
    MAX_LOAD,
    checked_choices,
    checked_load,
    checked_overflow,
    checked_reads,
)
from evenbins.theory.bucket import Vector, attempts_of, best, dot, hold, mean_of, variance_of
from evenbins.theory.caching import cached, frozen
from evenbins.theory.over_time import Fluid, multilevel, sequential, single
from evenbins.theory.sequential_path import totals

__all__ = [
    "MAX_CHOICES", "MAX_LOAD", "MAX_READS", "Balance", "Fluid", "LowerBound", "chain_variance",
    "least_sequential", "lower_bound", "multilevel", "optimal_multilevel", "optimal_sequential",
    "optimal_single", "refused_fraction", "sequential", "single",
]  # fmt: skip

Cost = Callable[[int], float] | npt.ArrayLike
"""A cost for each number of keys in a bucket: a function of it, or the costs of 0, 1, 2, ... keys."""
MAX_READS = 1000.0
"""Largest mean of bucket reads that `lower_bound` considers."""


# --- results -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound:
    """The most even loads that `reads` bucket reads per key can achieve (Theorem 1).

    Attributes
    ----------
    reads : mean bucket reads of an insertion (a)
    load : keys per bucket (r), those on the overflow list counted
    overflow : fraction of keys on the overflow list (gamma)
    threshold : the height at which excess is cut off (k0); None when nothing is cut off, that is
        when reads + overflow = 1: then the distribution is Poisson(reads * load)
    distribution : entry i is the fraction of buckets with i keys, i = 0 ... threshold + 1
    """

    reads: float
    load: float
    overflow: float
    threshold: int | None
    distribution: Vector = field(compare=False, repr=False)

    @property
    def mean(self) -> float:
        """Mean keys in a bucket: load * (1 - overflow)."""
        return mean_of(self.distribution)

    @property
    def variance(self) -> float:
        """Variance of the keys in a bucket: the least that is possible (Appendix C)."""
        return variance_of(self.distribution)

    @property
    def max_load(self) -> int | None:
        """Most keys in a bucket: threshold + 1; None if it has no bound."""
        return None if self.threshold is None else self.threshold + 1

    def cost(self, phi: Cost) -> float:
        """Compute the mean of phi(keys in a bucket): the least possible if phi is convex.

        Parameters
        ----------
        phi
            A function of one integer, or the costs of 0, 1, 2, ... keys as a sequence.

        Raises
        ------
        TypeError, ValueError
            A sequence of costs is none of numbers or shorter than the distribution.

        Examples
        --------
        >>> bound = lower_bound(1.2, 8, 0.005)
        >>> round(bound.cost(lambda keys: keys * keys), 6) == round(bound.variance + bound.mean**2, 6)
        True
        """
        return _cost(self.distribution, phi)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """A scheme that reaches the lower bound, and how it behaves when all keys are in.

    Attributes
    ----------
    policy : "single", "sequential" or "multilevel"
    reads : mean bucket reads of an insertion, or of a look-up of a present key (a)
    load : keys per bucket (r), those on the overflow list counted
    choices : buckets a key may use, at most (d)
    threshold, coin : a bucket with fewer than `threshold` keys (h) accepts one more; with exactly
        `threshold`, with chance `coin` (p). None and 1.0 if no bucket is ever full
    shares : sizes of the tables as fractions (alpha), first to last; (1.0,) if there is one only
    overflow : fraction of keys on the overflow list (gamma)
    occupancy : entry i is the fraction of buckets with i keys; the same in every table
    miss_reads : mean bucket reads of a look-up of an absent key, E(P), that stops at the first
        bucket with fewer than `threshold` keys
    miss_reads_coin : the same if the coin is a hash of the key, so that the look-up may stop at
        a bucket of `threshold` keys, too, when that key's coin says "accept"
    """

    policy: str
    reads: float
    load: float
    choices: int
    threshold: int | None
    coin: float
    shares: tuple[float, ...]
    overflow: float
    occupancy: Vector = field(compare=False, repr=False)
    miss_reads: float
    miss_reads_coin: float

    @property
    def mean(self) -> float:
        """Mean keys in a bucket: load * (1 - overflow)."""
        return mean_of(self.occupancy)

    @property
    def variance(self) -> float:
        """Variance of the keys in a bucket, the length of a chain (Appendix C)."""
        return variance_of(self.occupancy)

    @property
    def max_load(self) -> int | None:
        """Most keys in a bucket: threshold + 1; None if it has no bound."""
        return None if self.threshold is None else self.threshold + 1

    def cost(self, phi: Cost) -> float:
        """Compute the mean of phi(keys in a bucket), as `LowerBound.cost` does."""
        return _cost(self.occupancy, phi)


def _cost(chance: Vector, phi: Cost) -> float:
    if callable(phi):
        held = np.flatnonzero(chance)  # no cost is asked for loads that do not occur
        return dot(chance[held], np.array([float(phi(int(keys))) for keys in held]))
    rule = f"a function of an integer, or at least {len(chance)} numbers, the costs of 0, 1, 2, ... keys"
    remedy = "Pass for example lambda keys: keys**2"
    costs = arguments.reals("phi", phi, rule, remedy)
    if costs.ndim != 1 or len(costs) < len(chance):
        raise arguments.error("phi", rule, phi, remedy)
    return dot(chance, costs[: len(chance)])


# --- the lower bound -----------------------------------------------------------------------------


def lower_bound(reads: float, load: float, overflow: float = 0.0) -> LowerBound:
    """Find the most even distribution of keys over buckets: a bound for every scheme (Theorem 1).

    No scheme of uniform hash functions with `reads` bucket reads per key on average has a smaller mean
    of phi(keys in a bucket), for any convex phi, however many choices it has.

    Parameters
    ----------
    reads
        Mean bucket reads of an insertion (a), at least 1 - overflow, up to 1000.
    load
        Keys per bucket (r), above 0 and up to 1e6.
    overflow
        Fraction of keys that may go on the overflow list (gamma), 0 <= overflow < 1.

    Raises
    ------
    TypeError, ValueError
        An argument is no number, outside its range, or the keys cannot be placed with so few reads.

    Examples
    --------
    >>> bound = lower_bound(1.2, 8)
    >>> bound.threshold, bound.max_load, round(bound.variance, 3)
    (8, 9, 2.147)
    >>> lower_bound(1, 8).threshold is None  # plain Poisson: variance = load
    True
    """
    load = checked_load(load)
    overflow = checked_overflow(overflow)
    remedy = "Pass the mean bucket reads of a key, such as 1.2"
    reads = arguments.real("reads", reads, "", remedy, above=0.0, most=MAX_READS)
    if reads - 1.0 + overflow < -(2.0**-52):
        raise arguments.error(
            "reads",
            f"at least 1 - overflow = {1.0 - overflow:.6g}, since a key is placed by a read",
            reads,
            f"Pass reads={1.0 - overflow:.6g} or more, or overflow={1.0 - reads:.6g}",
        )
    threshold, _, distribution = best(reads, load, overflow)
    return LowerBound(
        reads=reads, load=load, overflow=overflow, threshold=threshold, distribution=distribution
    )


def chain_variance(reads: float, load: float, overflow: float = 0.0) -> float:
    """Compute the least variance of the keys in a bucket, the length of a chain (Appendix C).

    Parameters and errors as for `lower_bound`.

    Examples
    --------
    >>> round(chain_variance(1, 8), 9), round(chain_variance(1.2, 8, 0.005), 3)
    (8.0, 2.106)
    """
    return lower_bound(reads, load, overflow).variance


# --- schemes that reach the bound ----------------------------------------------------------------


def optimal_single(load: float, overflow: float) -> Balance:
    """Choose threshold and coin of SINGLE so that it reaches the lower bound (Theorem 3).

    Parameters
    ----------
    load
        Keys per bucket (r), above 0 and up to 1e6.
    overflow
        Fraction of keys on the overflow list (gamma), 0 <= overflow < 1; with 0 no bucket is ever full.

    Examples
    --------
    >>> best = optimal_single(8, 0.005)
    >>> best.threshold, round(best.coin, 4), round(best.variance, 3)
    (13, 0.6156, 7.444)
    """
    load = checked_load(load)
    overflow = checked_overflow(overflow)
    return _balance("single", 1.0, load, overflow, 1, (1.0,), *best(1.0, load, overflow))


def optimal_sequential(reads: float, load: float, choices: int) -> Balance:
    """Choose SEQUENTIAL with the least overflow at which it reaches the lower bound (Theorem 4).

    Its budget of `reads` is then spent exactly when the last key has come.

    Parameters
    ----------
    reads
        Mean bucket reads of an insertion (a), between 1 and `choices`, both excluded.
    load
        Keys per bucket (r), above 0 and up to 1e6.
    choices
        Buckets a key may use, at most (d), 2 to 64.

    Examples
    --------
    >>> best = optimal_sequential(1.2, 8, 3)
    >>> best.threshold, f"{best.overflow:.3%}"
    (8, '2.621%')
    """
    load = checked_load(load)
    choices = checked_choices(choices, 2)
    reads = checked_reads(reads, choices)
    threshold, coin, overflow = least_sequential(reads, load, choices)
    occupancy = frozen(hold(reads * load, threshold, coin)[0])
    return _balance("sequential", reads, load, overflow, choices, (1.0,), threshold, coin, occupancy)


def optimal_multilevel(reads: float, load: float, choices: int) -> Balance:
    """Choose MHT with the least overflow at which it reaches the lower bound (Theorem 5).

    With q the fraction that each table refuses, reads = 1 + q + ... + q**(d-1), overflow = q**d and
    shares proportional to q**(j-1): none of it depends on the load.

    Parameters
    ----------
    reads, load, choices
        As for `optimal_sequential`; `choices` is the number of tables.

    Examples
    --------
    >>> best = optimal_multilevel(1.2, 8, 3)
    >>> best.threshold, f"{best.overflow:.3%}", [round(share, 4) for share in best.shares]
    (8, '0.498%', [0.8333, 0.1424, 0.0243])
    """
    load = checked_load(load)
    choices = checked_choices(choices, 2)
    reads = checked_reads(reads, choices)
    refused = refused_fraction(reads, choices)
    sizes = [refused**j for j in range(choices)]
    shares = tuple(size / math.fsum(sizes) for size in sizes)
    overflow = refused**choices
    return _balance("multilevel", reads, load, overflow, choices, shares, *best(reads, load, overflow))


def refused_fraction(reads: float, choices: int) -> float:
    """Solve reads - 1 = q + ... + q**(choices - 1) for q: convex, so Newton comes down to the root."""
    excess = reads - 1.0
    q = min(excess, 1.0)
    for _ in range(200):
        value, slope = 0.0, 0.0
        for _ in range(choices - 1):  # Horner: value = q (1 + q (1 + ...))
            value, slope = q * (1.0 + value), 1.0 + value + q * slope
        step = (value - excess) / slope
        q -= step
        if step <= 1e-16 * q:  # a step back is rounding
            break
    return q


@cached(4096)
def least_sequential(reads: float, load: float, choices: int) -> tuple[int, float, float]:
    """Return threshold, coin and overflow of the SEQUENTIAL that spends `reads` exactly at time 1.

    Attempts after the first fall as threshold + coin rises, continuously, since coin 1 is coin 0 one
    higher. Where to look: refusals vary over time, so by convexity the overflow is at least
    multilevel's q**d, where they do not, and at most (reads-1)/(d-1), where a key is refused never or
    always; Theorem 1 turns both into thresholds.
    """
    top, goal = reads * load, (reads - 1.0) * load

    def surplus(threshold: int, coin: float) -> float:
        return totals(threshold, coin, choices, top)[0] / goal - 1.0

    low = best(reads, load, (reads - 1.0) / (choices - 1.0))[0] or 0
    high = (best(reads, load, refused_fraction(reads, choices) ** choices)[0] or 0) + 1
    while low > 0 and surplus(low, 0.0) <= 0.0:  # rounding
        low -= 1
    while surplus(high, 0.0) > 0.0:
        high += 1
    while high - low > 1:
        middle = (low + high) // 2
        if surplus(middle, 0.0) > 0.0:
            low = middle
        else:
            high = middle
    coin = 1.0
    if surplus(low, 1.0) < 0.0:
        coin = float(brentq(lambda p: surplus(low, p), 0.0, 1.0, xtol=1e-300, rtol=1e-15))
    return low, coin, totals(low, coin, choices, top)[1] / load


def _balance(
    policy: str,
    reads: float,
    load: float,
    overflow: float,
    choices: int,
    shares: tuple[float, ...],
    threshold: int | None,
    coin: float,
    occupancy: Vector,
) -> Balance:
    full, refused = 0.0, 0.0
    if threshold is not None:
        full = attempts_of(reads * load).at_least(threshold)
        refused = (1.0 - coin) * float(occupancy[threshold]) + float(occupancy[threshold + 1])
    return Balance(
        policy=policy,
        reads=reads,
        load=load,
        choices=choices,
        threshold=threshold,
        coin=coin,
        shares=shares,
        overflow=overflow,
        occupancy=occupancy,
        miss_reads=math.fsum(full**j for j in range(choices)),
        miss_reads_coin=math.fsum(refused**j for j in range(choices)),
    )

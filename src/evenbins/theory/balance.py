"""Balancing keys over buckets with few reads: the best that can be, and the schemes that reach it.

    lower_bound(reads, load, overflow=0.0) -> LowerBound        no scheme is more even (Theorem 1)
    chain_variance(reads, load, overflow=0.0) -> float          its variance (Appendix C)
    uniform_overall(fractions, distributions, *, tolerance=1e-9) -> bool            (Theorem 2)
    uniform_deviation(fractions, distributions) -> float
    single(load, threshold, coin, time=1.0) -> Fluid            schemes over time (fluid limits)
    sequential(load, threshold, coin, choices, times=1.0, *, reads=None, method="exact") -> Fluid
    multilevel(load, thresholds, coin, shares, times=1.0, *, method="exact") -> Fluid
    optimal_single(load, overflow) -> Balance                   schemes that reach the lower bound
    optimal_sequential(reads, load, choices) -> Balance
    optimal_multilevel(reads, load, choices) -> Balance
    optimality_region(policy, choices, *, reads, load) -> array the least overflow that allows it

The idea. Count *attempts*, not keys: a key that is refused and reads another bucket is, for that
bucket, as good as a new key. A bucket then receives N = Poisson(attempts per bucket) of them,
whatever the scheme, and a scheme is what a bucket makes of N: with fewer than `threshold` keys (h)
it accepts, with exactly `threshold` it accepts by a coin of chance `coin` (p), with one more never.

    N <= h         holds N
    N = h + n      holds h with chance (1-p)**n, else h+1; refused n - 1 + (1-p)**n of them

Everything here is a sum of these positive terms over the Poisson tail. The most even distribution
of a given mean that N allows is of this form too (all excess cut off at one height), so h and p
follow from the mean, and each scheme differs only in how keys turn into attempts:

    single       attempts = keys
    multilevel   each table is a single one; its refused keys are the next table's arrivals
    sequential   in attempts u per bucket it is a single one; a key that arrives at u makes
                 G = 1 + c + ... + c**(d-1) attempts, c(u) the chance of refusal, so dt = du/(load G)

Invariants:

- Small numbers (overflow, the chance of the top load) are sums of positive terms, never 1 minus
  something; near coin = 1 the coin is found from 1 - coin, near 0 from itself.
- Arrays that are returned cannot be written to; results are cached and shared.
- `method="ode"` integrates the paper's equations instead; the two agree to about 1e-11 (absolute).
- Fluid limits answer for many buckets. A large load makes multilevel sensitive: a table that gets 1 %
  too many keys hands on c/q times 1 % too many (c its refusal at the end, q on average).

Tried and dropped: (7) of the paper as printed (loses all digits near p = 1); brentq for the coin
(Newton on the cumulant generating function, which is convex, needs five steps and no bracket);
solving for sequential's overflow (where loads are almost equal, threshold and coin hang on its last
digits; so they are solved for, and it follows).

Source: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient balanced Bloom filters", sections 3
to 8 and the appendices; Theorem n and (A.n) are theirs. Their letters: a `reads`, r `load`, d
`choices`, gamma `overflow`, h `threshold`, p `coin`, alpha `shares`. Misprints put right here: k0
is infinite when nothing may be removed (a = 1, gamma = 0); in (5), (6) bucket h + 1 gains p*F_h;
"a = 1.1 needs 1 %" in section 8 is 0.587 %; the shares of section 10 do not depend on the load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.polynomial import legendre
from scipy.integrate import solve_ivp
from scipy.optimize import brentq
from scipy.special import gammainc

from evenbins import _arguments as arguments
from evenbins.theory._caching import cached, frozen

__all__ = [
    "MAX_CHOICES",
    "MAX_LOAD",
    "MAX_READS",
    "Balance",
    "Fluid",
    "LowerBound",
    "chain_variance",
    "lower_bound",
    "multilevel",
    "optimal_multilevel",
    "optimal_sequential",
    "optimal_single",
    "optimality_region",
    "sequential",
    "single",
    "uniform_deviation",
    "uniform_overall",
]

Vector = npt.NDArray[np.float64]
Cost = Callable[[int], float] | npt.ArrayLike
"""A cost for each number of keys in a bucket: a function of it, or the costs of 0, 1, 2, ... keys."""

MAX_LOAD = 1e6
"""Largest keys per bucket, and largest threshold."""
MAX_READS = 1000.0
"""Largest mean of bucket reads that `lower_bound` considers."""
MAX_CHOICES = 64
"""Most buckets a key may use."""

_MOST = MAX_LOAD * MAX_READS  # attempts per bucket
_FAR = 1e-40  # a distribution without end is cut where less than this is left
_NODES = 16  # of the quadrature, in each panel


# --- results -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound:
    """The most even loads that `reads` bucket reads a key can achieve (Theorem 1).

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
        return _mean(self.distribution)

    @property
    def variance(self) -> float:
        """Variance of the keys in a bucket: the least that is possible (Appendix C)."""
        return _variance(self.distribution)

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
        return _mean(self.occupancy)

    @property
    def variance(self) -> float:
        """Variance of the keys in a bucket, the length of a chain (Appendix C)."""
        return _variance(self.occupancy)

    @property
    def max_load(self) -> int | None:
        """Most keys in a bucket: threshold + 1; None if it has no bound."""
        return None if self.threshold is None else self.threshold + 1

    def cost(self, phi: Cost) -> float:
        """Compute the mean of phi(keys in a bucket), as `LowerBound.cost` does."""
        return _cost(self.occupancy, phi)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fluid:
    """A scheme while keys arrive, in the limit of many buckets.

    Time t is the number of keys that arrived, as a fraction of the planned number: t = 1 is the
    end. Counts of keys are fractions of the planned number, too, so the overflow of the keys so far
    is overflow / times.

    Attributes
    ----------
    times : the moments, in the order asked for
    occupancy : [time, i], for several tables [time, table, i]: fraction of buckets with i keys
    attempts : [time, j]: keys that read their bucket number j + 1 until then
    overflow : [time]: keys on the overflow list until then
    """

    times: Vector = field(repr=False)
    occupancy: Vector = field(repr=False)
    attempts: Vector = field(repr=False)
    overflow: Vector

    @property
    def accesses(self) -> Vector:
        """Bucket reads until each moment, per planned key: the sum of `attempts`."""
        total: Vector = self.attempts.sum(axis=1)
        return total


def _dot(a: Vector, b: npt.NDArray[Any]) -> float:
    """Sum in pairs: more exact than BLAS, whose threads wait for each other on a busy machine."""
    return float((a * b).sum())


def _mean(chance: Vector) -> float:
    return _dot(chance, np.arange(len(chance)))


def _variance(chance: Vector) -> float:
    return _dot(chance, (np.arange(len(chance)) - _mean(chance)) ** 2)


def _cost(chance: Vector, phi: Cost) -> float:
    if callable(phi):
        held = np.flatnonzero(chance)  # no cost is asked for loads that do not occur
        return _dot(chance[held], np.array([float(phi(int(keys))) for keys in held]))
    rule = f"a function of an integer, or at least {len(chance)} numbers, the costs of 0, 1, 2, ... keys"
    way_out = "Pass for example lambda keys: keys**2"
    costs = _floats("phi", phi, rule, way_out)
    if costs.ndim != 1 or len(costs) < len(chance):
        raise arguments.error("phi", rule, phi, way_out)
    return _dot(chance, costs[: len(chance)])


# --- what a bucket makes of Poisson attempts -----------------------------------------------------


class _Attempts:
    """Poisson(mean) on the window where it is not negligible, both tails summed from their far end.

    Ratios outward from the mode, then normalised: no logarithm of a large factorial loses digits.
    """

    __slots__ = ("_excess", "_lack", "_tail", "chance", "first", "mean")

    def __init__(self, mean: float) -> None:
        mode = int(mean)
        reach = int(40 * math.sqrt(mean)) + 200
        least = max(mode - reach, 0)
        with np.errstate(under="ignore"):
            up = np.cumprod(mean / np.arange(mode + 1.0, mode + reach + 1.0))
            down = np.cumprod(np.arange(float(mode), float(least), -1.0) / mean) if mode else np.empty(0)
        chance = np.concatenate([down[::-1], [1.0], up])
        chance /= chance.sum()
        held = np.flatnonzero(chance > 1e-300)
        self.mean = mean
        self.first = least + int(held[0])
        self.chance: Vector = chance[held[0] : held[-1] + 1]
        self._tail = np.minimum(np.cumsum(self.chance[::-1])[::-1], 1.0)
        self._excess = np.append(np.cumsum(self._tail[:0:-1])[::-1], 0.0)
        self._lack = np.concatenate([[0.0], np.cumsum(np.cumsum(self.chance))[:-1]])
        frozen((self.chance, self._tail, self._excess, self._lack))

    def at_least(self, k: int) -> float:
        """P(N >= k)."""
        i = k - self.first
        return 1.0 if i <= 0 else float(self._tail[i]) if i < len(self._tail) else 0.0

    def excess(self, k: int) -> float:
        """E[max(N - k, 0)]."""
        i = k - self.first
        if i < 0:
            return self.mean - k
        return float(self._excess[i]) if i < len(self._excess) else 0.0

    def lack(self, k: int) -> float:
        """E[max(k - N, 0)]."""
        i = k - self.first
        if i < 0:
            return 0.0
        return float(self._lack[i]) if i < len(self._lack) else k - self.mean

    def beyond(self, k: int) -> tuple[Vector, Vector]:
        """Give n and P(N = k + n) for all n >= 1 in the window."""
        skip = max(k + 1 - self.first, 0)
        part = self.chance[skip:]
        return np.arange(self.first + skip - k, self.first + skip - k + len(part), dtype=np.float64), part

    def dense(self, length: int) -> Vector:
        """Give P(N = i) for i = 0 ... length - 1."""
        values = np.zeros(length)
        part = self.chance[: max(length - self.first, 0)]
        values[self.first : self.first + len(part)] = part
        return values

    def unbounded(self) -> Vector:
        """Give P(N = i) for all i but a tail of 1e-40."""
        return self.dense(self.first + int(np.count_nonzero(self._tail > _FAR)))


@cached(64)
def _attempts(mean: float) -> _Attempts:
    return _Attempts(mean)


def _log_not(chance: float) -> float:
    return math.log1p(-chance) if chance < 1.0 else -math.inf


def _hold(mean: float, threshold: int | None, coin: float) -> tuple[Vector, float]:
    """Give a bucket's distribution after Poisson(mean) attempts, and the mean number it refused.

    f_h = sum over n >= 0 of Poisson(mean; h + n) (1 - coin)**n, and its two siblings.
    """
    attempts = _attempts(mean)
    if threshold is None:
        return attempts.unbounded(), 0.0
    occupancy = attempts.dense(threshold + 2)
    n, chance = attempts.beyond(threshold)
    with np.errstate(under="ignore"):
        power = n * _log_not(coin)
        stay = np.exp(power)
        occupancy[threshold] += _dot(chance, stay)
        occupancy[threshold + 1] = _dot(chance, -np.expm1(power))
        return occupancy, _dot(chance, n - 1.0 + stay)


def _coin(attempts: _Attempts, threshold: int, above: float, deficit: float) -> float:
    """Find the coin that lifts the fraction `above` of buckets to threshold + 1 keys.

    With W_n = P(N = h + n | N > h) and coin = 1 - exp(u), the fraction of those that stay is
    H(u) = sum W_n exp(n u) = deficit / (above + deficit). ln H is convex and rises: Newton's steps from
    u = 0 come down to the root without passing it.
    """
    if deficit <= 0.0:
        return 1.0
    n, chance = attempts.beyond(threshold)
    tail = float(chance.sum())
    weights = chance / tail
    goal = math.log(deficit / tail) if deficit < tail / 2 else math.log1p(-above / tail)
    u = 0.0
    with np.errstate(under="ignore"):
        for _ in range(200):
            moved = weights * np.exp(n * u)
            total = float(moved.sum())
            value = math.log1p(_dot(weights, np.expm1(n * u))) if total > 0.5 else math.log(total)
            step = (value - goal) * total / _dot(n, moved)
            u = min(u - step, 0.0)
            if step <= 1e-15 * abs(u):  # a step back is rounding
                break
    return -math.expm1(u)


@cached(512)
def _best(reads: float, load: float, overflow: float) -> tuple[int | None, float, Vector]:
    """Give Theorem 1's threshold and distribution, and the coin that leads to it.

    Of reads * load attempts per bucket, `removed` must go. The margin of a height k is what is left
    to remove, if negative, after all above k has gone; two ways to write it, each safe on its side.
    """
    removed = (reads - 1.0) + overflow
    if reads < 1.0 and abs(removed) <= 2.0**-52:  # 0.9 and 0.1 are meant to be 1
        removed = 0.0
    removed *= load
    attempts = _attempts(reads * load)
    if removed == 0.0:
        return None, 1.0, frozen(attempts.unbounded())
    kept = load * (1.0 - overflow)

    def margin(k: int) -> float:
        if k <= attempts.mean:
            return (kept - k) + attempts.lack(k)
        return attempts.excess(k) - removed

    low, high = 0, attempts.first + len(attempts.chance)  # margin(low) > 0 >= margin(high)
    while high - low > 1:
        middle = (low + high) // 2
        if margin(middle) > 0.0:
            low = middle
        else:
            high = middle
    threshold = low
    deficit = max(-margin(threshold + 1), 0.0)
    above = min(margin(threshold), attempts.at_least(threshold + 1))
    distribution = attempts.dense(threshold + 2)
    distribution[threshold] += deficit
    distribution[threshold + 1] = above
    return threshold, _coin(attempts, threshold, above, deficit), frozen(distribution)


# --- the lower bound -----------------------------------------------------------------------------


def lower_bound(reads: float, load: float, overflow: float = 0.0) -> LowerBound:
    """Find the most even distribution of keys over buckets: a bound for every scheme (Theorem 1).

    No scheme of uniform hash functions with `reads` bucket reads a key on average has a smaller mean
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
    load = _load(load)
    overflow = _overflow(overflow)
    reads = _number(
        "reads",
        reads,
        lambda x: 0.0 < x <= MAX_READS,
        f"a number above 0 and at most {MAX_READS:g}",
        "Pass the mean bucket reads of a key, such as 1.2",
    )
    if reads - 1.0 + overflow < -(2.0**-52):
        raise arguments.error(
            "reads",
            f"at least 1 - overflow = {1.0 - overflow:.6g}, since a key is placed by a read",
            reads,
            f"Pass reads={1.0 - overflow:.6g} or more, or overflow={1.0 - reads:.6g}",
        )
    threshold, _, distribution = _best(reads, load, overflow)
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


def uniform_deviation(fractions: npt.ArrayLike, distributions: npt.ArrayLike) -> float:
    """Measure how far a mixture of hash functions is from uniform, relative to 1/buckets.

    Parameters
    ----------
    fractions
        Fraction of all bucket reads that use each distribution (k_p); their sum is 1.
    distributions
        One row for each: the chance of every bucket (f_p); the sum of a row is 1.

    Raises
    ------
    TypeError, ValueError
        The arguments are no numbers, negative, of shapes that do not fit, or their sums are not 1.

    Examples
    --------
    >>> uniform_deviation([0.5, 0.5], [[0.75, 0.25], [0.5, 0.5]])
    0.25
    """
    rule = "numbers of at least 0, as many as there are distributions, of sum 1"
    way_out = "Divide the reads of each distribution by all reads"
    weights = _floats("fractions", fractions, rule, way_out)
    row_rule = "rows of chances of at least 0, one for each fraction, each of sum 1"
    row_way_out = "Give every bucket a chance in every row, 0 where a hash function never goes"
    rows = _floats("distributions", distributions, row_rule, row_way_out)
    if rows.ndim != 2 or rows.size == 0 or not _chances(rows):
        raise arguments.error("distributions", row_rule, distributions, row_way_out)
    if weights.shape != rows.shape[:1] or not _chances(weights):
        raise arguments.error("fractions", rule, fractions, way_out)
    return float(np.abs((weights[:, None] * rows).sum(axis=0) * rows.shape[1] - 1.0).max())


def uniform_overall(
    fractions: npt.ArrayLike, distributions: npt.ArrayLike, *, tolerance: float = 1e-9
) -> bool:
    """Tell if `lower_bound` holds for hash functions that are not uniform (Theorem 2).

    It does if they are uniform overall: sum over p of k_p f_p(i) = 1/buckets for every bucket i.

    Parameters
    ----------
    fractions, distributions
        As for `uniform_deviation`, which gives the largest deviation itself.
    tolerance
        Largest deviation, relative to 1/buckets, that counts as none.

    Raises
    ------
    TypeError, ValueError
        As for `uniform_deviation`; or the tolerance is negative.

    Examples
    --------
    Two tables of 2 and 1 buckets, which receive reads as 2 to 1:

    >>> uniform_overall([2 / 3, 1 / 3], [[0.5, 0.5, 0], [0, 0, 1]])
    True
    """
    tolerance = _number(
        "tolerance", tolerance, lambda x: x >= 0.0, "a number of at least 0", "Pass for example 1e-9"
    )
    return uniform_deviation(fractions, distributions) <= tolerance


# --- schemes over time ---------------------------------------------------------------------------


def single(load: float, threshold: int | None, coin: float, time: npt.ArrayLike = 1.0) -> Fluid:
    """Follow SINGLE over time: one bucket for a key, refused keys go on the overflow list.

    Parameters
    ----------
    load
        Keys per bucket (r) at time 1, above 0 and up to 1e6.
    threshold
        Keys from which a bucket does not simply accept (h), 0 to 1e6; None for no bound.
    coin
        Chance (p) that a bucket of exactly `threshold` keys accepts one more, 0 to 1.
    time
        One moment or several, as fractions of the planned keys; load * time up to 1e9.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range.

    Examples
    --------
    >>> end = single(2.5, 2, 0.5)  # Figure 3 at t = 1
    >>> [f"{f:.4f}" for f in end.occupancy[0]], f"{end.overflow[0]:.4f}"
    (['0.0821', '0.2052', '0.4073', '0.3054'], '0.2256')
    """
    load = _load(load)
    height = _threshold("threshold", threshold)
    coin = _coin_argument(coin)
    times = _times("time", time, load)
    states = [_hold(load * float(t), height, coin) for t in times]
    return Fluid(
        times=frozen(times),
        occupancy=frozen(_stacked([state[0] for state in states])),
        attempts=frozen(times[:, None].copy()),
        overflow=frozen(np.array([state[1] / load for state in states])),
    )


def sequential(
    load: float,
    threshold: int | None,
    coin: float,
    choices: int,
    times: npt.ArrayLike = 1.0,
    *,
    reads: float | None = None,
    method: str = "exact",
) -> Fluid:
    """Follow SEQUENTIAL over time: a key tries `choices` buckets of one table in turn (A.1 to A.4).

    Parameters
    ----------
    load, threshold, coin, times
        As for `single`.
    choices
        Buckets a key tries, at most (d), 1 to 64.
    reads
        Budget of bucket reads per planned key (a): once it is spent, keys go on the overflow list
        unread. None for no such budget.
    method
        "exact" by quadrature in attempts; "ode" integrates the equations, slow for large loads.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range.

    Examples
    --------
    >>> best = optimal_sequential(1.1, 8, 3)
    >>> end = sequential(8, best.threshold, best.coin, 3)
    >>> f"{end.accesses[0]:.9f} {end.overflow[0]:.5%}"
    '1.100000000 0.58740%'
    """
    load = _load(load)
    height = _threshold("threshold", threshold)
    coin = _coin_argument(coin)
    choices = _choices(choices, 1)
    moments = _times("times", times, load * choices)
    budget = math.inf if reads is None else _budget(reads)
    if _method(method) == "ode" and height is not None:
        return _sequential_ode(load, height, coin, choices, moments, budget)
    # In attempts per bucket: where the process stands at each moment, and when the budget is spent.
    most, limit = load * choices * float(moments.max()), load * budget
    path = _Path(height, coin, choices, min(most, limit))
    spent = float(path.columns(np.array([limit]))[0, 0]) / load if limit < most else math.inf
    points = [path.point(load * float(t)) if t < spent else limit for t in moments]
    columns = path.columns(np.array(points)) / load
    return Fluid(
        times=frozen(moments),
        occupancy=frozen(_stacked([_hold(u, height, coin)[0] for u in points])),
        attempts=frozen(columns[:, :choices].copy()),
        overflow=frozen(columns[:, choices] + np.maximum(moments - spent, 0.0)),
    )


def multilevel(
    load: float,
    thresholds: int | Sequence[int],
    coin: float,
    shares: Sequence[float],
    times: npt.ArrayLike = 1.0,
    *,
    method: str = "exact",
) -> Fluid:
    """Follow MHT over time: a key tries one bucket in each table in turn (A.5 to A.7, Theorem 6).

    Parameters
    ----------
    load, coin, times
        As for `single`; `load` counts the buckets of all tables together.
    thresholds
        Keys from which a bucket does not simply accept (h): one number for all tables, or one for
        each; 0 to 1e6.
    shares
        Sizes of the tables as fractions of all buckets (alpha), first to last; their sum is 1.
    method
        "exact" by Theorem 6, table after table; "ode" integrates the equations, slow for large loads.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range.

    Examples
    --------
    >>> best = optimal_multilevel(1.2, 8, 3)
    >>> end = multilevel(8, best.threshold, best.coin, best.shares)
    >>> f"{end.accesses[0]:.9f} {end.overflow[0]:.5%}"
    '1.200000000 0.49845%'
    """
    load = _load(load)
    sizes = _shares(shares)
    heights = _heights(thresholds, len(sizes))
    coin = _coin_argument(coin)
    moments = _times("times", times, load)
    if _method(method) == "ode":
        return _multilevel_ode(load, heights, coin, sizes, moments)
    longest = max(heights) + 2
    occupancy = np.zeros((len(moments), len(sizes), longest))
    refused = np.empty((len(moments), len(sizes) + 1))
    refused[:, 0] = moments
    for row, t in enumerate(moments):
        arrive = float(t)
        for table, (share, height) in enumerate(zip(sizes, heights, strict=True)):
            mean = load * arrive / share
            if mean > _MOST:
                rule = f"such that no table receives more than {_MOST:g} keys per bucket"
                way_out = (
                    f"Table {table + 1} would receive {mean:.3g}: enlarge it, or the thresholds before it"
                )
                raise arguments.error("shares", rule, shares, way_out)
            held, lost = _hold(mean, height, coin)
            occupancy[row, table, : len(held)] = held
            arrive = lost * share / load
            refused[row, table + 1] = arrive
    return Fluid(
        times=frozen(moments),
        occupancy=frozen(occupancy),
        attempts=frozen(refused[:, :-1].copy()),
        overflow=frozen(refused[:, -1].copy()),
    )


def _stacked(rows: Sequence[Vector]) -> Vector:
    """Put rows under each other; short ones end in zeros."""
    table = np.zeros((len(rows), max(len(row) for row in rows)))
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return table


# --- SEQUENTIAL in attempts ----------------------------------------------------------------------


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
            shift = -coin * points[~small] - h * _log_not(coin)
            result[~small] = np.exp(shift) * gammainc(h, x[~small])
        if small.any():
            u, ratio = points[small], x[small]
            total = np.ones_like(u)
            term = np.ones_like(u)
            n = h
            while (term > 1e-17 * total).any():
                n += 1.0
                term = term * ratio / n
                total += term
            gap = (u - h) / h
            result[small] = np.exp(h * (np.log1p(gap) - gap)) * _at_mean(threshold) * total
    return result


def _at_mean(k: int) -> float:
    """P(Poisson(k) = k), by Stirling's series where the factorial would lose digits."""
    if k < 20:
        return math.exp(-k) * float(k**k) / math.factorial(k)
    square = 1.0 / (k * k)
    series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / k
    return math.exp(-series) / math.sqrt(2 * math.pi * k)


def _refusal(points: Vector, threshold: int, coin: float) -> Vector:
    """Compute the chance that a bucket refuses, c = P(Poisson(u) >= h) - coin * f_h."""
    full = gammainc(float(threshold), points) if threshold else np.ones_like(points)
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


class _Path:
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
        """Give all columns, a row for each number of attempts per bucket."""
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
            error = (before - keys) / half + _dot(_antiderivatives(x), self.slopes[panel])
            step = error / float(legendre.legval(x, self.slopes[panel]))
            if not abs(step) < last / 2:  # rounding
                return float(self.edges[panel]) + half * (1.0 + x)
            x = min(max(x - step, -1.0), 1.0)
            last = abs(step)


def _antiderivatives(x: float) -> Vector:
    """Give the integrals from -1 to x of the Legendre polynomials."""
    values = legendre.legvander(np.array([x]), _NODES)[0]
    result: Vector = np.empty(_NODES)
    result[0] = x + 1.0
    result[1:] = (values[2:] - values[:-2]) / (2.0 * np.arange(1, _NODES) + 1.0)
    return result


def _sequential_totals(threshold: int, coin: float, choices: int, top: float) -> tuple[float, float]:
    """Give the attempts after the first ones, and the overflow, in `top` attempts; all per bucket."""
    edges = _panels(threshold, choices, top)
    half = np.diff(edges)[:, None] / 2
    refusal = _refusal(edges[:-1, None] + half * (1.0 + _GAUSS_X), threshold, coin)
    more = np.zeros_like(refusal)  # G - 1
    for _ in range(choices - 1):
        more = refusal * (1.0 + more)
    weights = half * _GAUSS_W / (1.0 + more)
    return float((weights * more).sum()), float((weights * refusal**choices).sum())


# --- the equations themselves --------------------------------------------------------------------


def _flow(held: Vector, height: int, coin: float) -> Vector:
    """Compute the change of a bucket's distribution for one attempt per bucket: (6) put right."""
    leave = held[: height + 1].copy()
    leave[height] *= coin
    change = np.zeros_like(held)
    change[: height + 1] -= leave
    change[1 : height + 2] += leave
    return change


def _sequential_ode(
    load: float, height: int, coin: float, choices: int, times: Vector, budget: float
) -> Fluid:
    """Integrate (A.1) to (A.4); states: occupancy, then keys refused 1 ... choices times."""
    size = height + 2

    def slope(_: float, state: Vector) -> Vector:
        refusal = (1.0 - coin) * state[height] + state[height + 1]
        powers = refusal ** np.arange(choices + 1)
        return np.concatenate([_flow(state[:size], height, coin) * load * powers[:-1].sum(), powers[1:]])

    def left(t: float, state: Vector) -> float:
        return budget - t - float(state[size:-1].sum())

    left.terminal = True  # type: ignore[attr-defined]
    start = np.zeros(size + choices)
    start[0] = 1.0
    states, spent = _integrated(slope, start, times, left if math.isfinite(budget) else None)
    return Fluid(
        times=frozen(times),
        occupancy=frozen(states[:, :size].copy()),
        attempts=frozen(np.column_stack([np.minimum(times, spent), states[:, size:-1]])),
        overflow=frozen(states[:, -1] + np.maximum(times - spent, 0.0)),
    )


def _multilevel_ode(load: float, heights: Sequence[int], coin: float, sizes: Vector, times: Vector) -> Fluid:
    """Integrate (A.5) to (A.7); states: occupancy of each table, then keys each table refused."""
    tables = len(sizes)
    ends = np.cumsum([height + 2 for height in heights])
    starts = ends - np.array(heights) - 2

    def slope(_: float, state: Vector) -> Vector:
        change = np.empty_like(state)
        arrive = 1.0
        for j in range(tables):
            held = state[starts[j] : ends[j]]
            change[starts[j] : ends[j]] = _flow(held, heights[j], coin) * (load * arrive / sizes[j])
            arrive *= (1.0 - coin) * held[heights[j]] + held[heights[j] + 1]
            change[ends[-1] + j] = arrive
        return change

    start = np.zeros(int(ends[-1]) + tables)
    start[starts] = 1.0
    states, _ = _integrated(slope, start, times, None)
    occupancy = np.zeros((len(times), tables, max(heights) + 2))
    for j in range(tables):
        occupancy[:, j, : heights[j] + 2] = states[:, starts[j] : ends[j]]
    return Fluid(
        times=frozen(times),
        occupancy=frozen(occupancy),
        attempts=frozen(np.column_stack([times, states[:, ends[-1] : -1]])),
        overflow=frozen(states[:, -1].copy()),
    )


def _integrated(
    slope: Callable[[float, Vector], Vector],
    start: Vector,
    times: Vector,
    event: Callable[[float, Vector], float] | None,
) -> tuple[Vector, float]:
    """Give the states at `times`, frozen from the event on, and the moment of the event or inf."""
    moments, where = np.unique(times, return_inverse=True)
    if moments[-1] == 0.0:
        return np.tile(start, (len(times), 1)), math.inf
    solved = solve_ivp(
        slope,
        (0.0, float(moments[-1])),
        start,
        method="DOP853",
        t_eval=moments,
        events=event,
        rtol=1e-11,
        atol=1e-16,
    )
    states = np.asarray(solved.y, dtype=np.float64).T
    spent = math.inf
    if solved.t_events and solved.y_events and len(solved.t_events[0]):
        spent = float(solved.t_events[0][0])
        last = np.asarray(solved.y_events[0][0], dtype=np.float64)
        missing = len(moments) - len(states)
        states = np.vstack([states.reshape(-1, len(start)), np.tile(last, (missing, 1))])
    return states[where], spent


# --- schemes that reach the bound ----------------------------------------------------------------


def optimal_single(load: float, overflow: float) -> Balance:
    """Choose threshold and coin of SINGLE so that it reaches the lower bound (Theorem 3).

    Parameters
    ----------
    load
        Keys per bucket (r), above 0 and up to 1e6.
    overflow
        Fraction of keys on the overflow list (gamma), 0 <= overflow < 1; with 0 no bucket is ever full.

    Raises
    ------
    TypeError, ValueError
        An argument is no number or outside its range.

    Examples
    --------
    >>> best = optimal_single(8, 0.005)
    >>> best.threshold, round(best.coin, 4), round(best.variance, 3)
    (13, 0.6156, 7.444)
    """
    load = _load(load)
    overflow = _overflow(overflow)
    return _balance("single", 1.0, load, overflow, 1, (1.0,), *_best(1.0, load, overflow))


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

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range.

    Examples
    --------
    >>> best = optimal_sequential(1.2, 8, 3)
    >>> best.threshold, f"{best.overflow:.3%}"
    (8, '2.621%')
    """
    load = _load(load)
    choices = _choices(choices, 2)
    reads = _reads(reads, choices)
    threshold, coin, overflow = _least_sequential(reads, load, choices)
    occupancy = frozen(_hold(reads * load, threshold, coin)[0])
    return _balance("sequential", reads, load, overflow, choices, (1.0,), threshold, coin, occupancy)


def optimal_multilevel(reads: float, load: float, choices: int) -> Balance:
    """Choose MHT with the least overflow at which it reaches the lower bound (Theorem 5).

    With q the fraction that each table refuses, reads = 1 + q + ... + q**(d-1), overflow = q**d and
    shares proportional to q**(j-1): none of it depends on the load.

    Parameters
    ----------
    reads, load, choices
        As for `optimal_sequential`; `choices` is the number of tables.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range.

    Examples
    --------
    >>> best = optimal_multilevel(1.2, 8, 3)
    >>> best.threshold, f"{best.overflow:.3%}", [round(share, 4) for share in best.shares]
    (8, '0.498%', [0.8333, 0.1424, 0.0243])
    """
    load = _load(load)
    choices = _choices(choices, 2)
    reads = _reads(reads, choices)
    refused = _refused(reads, choices)
    sizes = [refused**j for j in range(choices)]
    shares = tuple(size / math.fsum(sizes) for size in sizes)
    overflow = refused**choices
    return _balance("multilevel", reads, load, overflow, choices, shares, *_best(reads, load, overflow))


def optimality_region(policy: str, choices: int, *, reads: npt.ArrayLike, load: npt.ArrayLike) -> Vector:
    """Find the least overflow with which a policy reaches the lower bound (Figure 4).

    It does with any larger overflow, too: its budget of reads is then spent before the last key.

    Parameters
    ----------
    policy
        "single", "sequential" or "multilevel".
    choices
        Buckets a key may use, at most (d): 1 for "single", 2 to 64 for the others.
    reads, load
        Mean bucket reads and keys per bucket, numbers or arrays, as for `optimal_sequential`;
        NumPy's broadcasting pairs them. "single" reads exactly 1.

    Returns
    -------
    numpy.ndarray
        The least overflow, of the shape of `reads` and `load` together.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type, unknown, outside its range, or shapes do not fit.

    Examples
    --------
    >>> optimality_region("sequential", 3, reads=[1.1, 1.2], load=8).round(5).tolist()
    [0.00587, 0.02621]
    >>> optimality_region("multilevel", 3, reads=1.2, load=[1, 8, 64]).round(5).tolist()
    [0.00498, 0.00498, 0.00498]
    """
    rule = 'one of "single", "sequential" and "multilevel"'
    if not isinstance(policy, str):
        raise arguments.type_error("policy", rule, policy, "Pass it as a string")
    if policy not in ("single", "sequential", "multilevel"):
        raise arguments.error("policy", rule, policy, "The other policies have no lower bound to reach")
    number_rule = "a number or an array of numbers"
    all_reads = _floats("reads", reads, number_rule, "Pass for example 1.2")
    all_loads = _floats("load", load, number_rule, "Pass for example 8")
    try:
        pairs = np.broadcast(all_reads, all_loads)
    except ValueError:
        raise arguments.unmet(
            "reads",
            f" and load must have shapes that broadcast; got {all_reads.shape} and "
            f"{all_loads.shape}. Pass one of them as a number",
        ) from None
    values = [_least_overflow(policy, choices, float(a), float(r)) for a, r in pairs]
    return np.array(values, dtype=np.float64).reshape(pairs.shape)


def _least_overflow(policy: str, choices: int, reads: float, load: float) -> float:
    load = _load(load)
    if policy == "single":
        if _choices(choices, 1) != 1:
            raise arguments.error("choices", '1 for "single"', choices, 'Pass 1, or policy="multilevel"')
        if reads != 1.0:
            raise arguments.error("reads", '1 for "single"', reads, 'Pass 1, or policy="multilevel"')
        return 0.0
    choices = _choices(choices, 2)
    reads = _reads(reads, choices)
    if policy == "multilevel":
        return float(_refused(reads, choices) ** choices)
    return _least_sequential(reads, load, choices)[2]


def _refused(reads: float, choices: int) -> float:
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
def _least_sequential(reads: float, load: float, choices: int) -> tuple[int, float, float]:
    """Give threshold, coin and overflow of the SEQUENTIAL that spends `reads` exactly at time 1.

    Attempts after the first fall as threshold + coin rises, continuously, since coin 1 is coin 0 one
    higher. Where to look: refusals vary over time, so by convexity the overflow is at least
    multilevel's q**d, where they do not, and at most (reads-1)/(d-1), where a key is refused never or
    always; Theorem 1 turns both into thresholds.
    """
    top, goal = reads * load, (reads - 1.0) * load

    def surplus(threshold: int, coin: float) -> float:
        return _sequential_totals(threshold, coin, choices, top)[0] / goal - 1.0

    low = _best(reads, load, (reads - 1.0) / (choices - 1.0))[0] or 0
    high = (_best(reads, load, _refused(reads, choices) ** choices)[0] or 0) + 1
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
    return low, coin, _sequential_totals(low, coin, choices, top)[1] / load


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
        full = _attempts(reads * load).at_least(threshold)
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


# --- arguments -----------------------------------------------------------------------------------


def _load(value: object) -> float:
    return _number(
        "load",
        value,
        lambda x: 0.0 < x <= MAX_LOAD,
        f"a number of keys per bucket above 0 and at most {MAX_LOAD:g}",
        "Pass keys / buckets, such as 8",
    )


def _overflow(value: object) -> float:
    return _number(
        "overflow",
        value,
        lambda x: 0.0 <= x < 1.0,
        "a fraction of the keys, at least 0 and below 1",
        "Pass for example 0.005, or 0 for no overflow list",
    )


def _coin_argument(value: object) -> float:
    return _number(
        "coin",
        value,
        lambda x: 0.0 <= x <= 1.0,
        "a chance from 0 to 1",
        "Pass 0 if a bucket of threshold keys is full, 1 if it takes one more",
    )


def _reads(value: object, choices: int) -> float:
    reads = _number(
        "reads", value, math.isfinite, f"a number between 1 and choices={choices}", "Pass for example 1.2"
    )
    rule = f"above 1 and below choices={choices}, both excluded"
    if reads <= 1.0:
        way_out = "Pass for example 1.0001, the nearest useful, or call optimal_single: it reads 1 bucket"
        raise arguments.error("reads", rule, value, way_out)
    if reads >= choices:
        way_out = f"Pass reads={min(choices - 0.1, 1.2):g}, or choices={int(min(reads, 1e15)) + 1} or more"
        if reads >= MAX_CHOICES:
            way_out = f"Pass at most {choices - 0.1:g}"
        raise arguments.error("reads", rule, value, way_out)
    return reads


def _budget(value: object) -> float:
    return _number(
        "reads",
        value,
        lambda x: 0.0 < x < math.inf,
        "a number of bucket reads per key above 0, or None",
        "Pass for example 1.2, or None for no budget",
    )


def _choices(value: object, least: int) -> int:
    way_out = "Pass for example 3" if least == 1 else "Pass for example 3; with 1 choice it is optimal_single"
    return arguments.integer("choices", value, least, MAX_CHOICES, way_out)


def _threshold(name: str, value: object) -> int | None:
    return None if value is None else _height(name, value, ", or None for no bound")


def _height(name: str, value: object, more: str = "") -> int:
    return arguments.integer(name, value, 0, int(MAX_LOAD), f"Pass a number of keys{more}")


def _heights(value: object, tables: int) -> tuple[int, ...]:
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = list(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if len(value) != tables:
            rule = f"an integer, or one for each of the {tables} shares"
            raise arguments.error("thresholds", rule, value, "Pass one integer for all tables")
        return tuple(_height(f"thresholds[{j}]", height) for j, height in enumerate(value))
    return (_height("thresholds", value),) * tables


def _shares(value: object) -> Vector:
    rule = f"1 to {MAX_CHOICES} fractions above 0 of sum 1"
    way_out = "Divide the buckets of each table by all buckets"
    shares = _floats("shares", value, rule, way_out)
    if shares.ndim != 1 or not 1 <= len(shares) <= MAX_CHOICES or not (shares > 0.0).all():
        raise arguments.error("shares", rule, value, way_out)
    total = float(shares.sum())
    if abs(total - 1.0) > 1e-9:
        nearest = [float(f"{share:.6g}") for share in shares / total] if math.isfinite(total) else None
        raise arguments.error("shares", rule, value, f"{way_out}: the nearest is {nearest}")
    return shares


def _times(name: str, value: object, scale: float) -> Vector:
    rule = "one moment or several, each a finite number of at least 0"
    way_out = "Pass for example 1.0, when all planned keys have come"
    times = np.array(np.atleast_1d(_floats(name, value, rule, way_out)))
    if times.ndim != 1 or times.size == 0 or not (np.isfinite(times) & (times >= 0.0)).all():
        raise arguments.error(name, rule, value, way_out)
    if float(times.max()) * scale > _MOST:
        rule = f"at most {_MOST / scale:.4g} here ({_MOST:g} attempts per bucket)"
        raise arguments.error(name, rule, value, way_out)
    return times


def _method(value: object) -> str:
    return arguments.one_of("method", value, ("exact", "ode"), 'Leave it out for "exact"')


def _chances(values: Vector) -> bool:
    return bool((values >= 0.0).all() and (np.abs(values.sum(axis=-1) - 1.0) <= 1e-9).all())


def _floats(name: str, value: object, rule: str, way_out: str) -> Vector:
    try:
        given = np.asarray(value)
    except ValueError:  # rows of different length
        raise arguments.error(name, rule, value, way_out) from None
    if given.dtype.kind not in "iuf":
        raise arguments.type_error(name, rule, value, way_out)
    return given.astype(np.float64)


def _number(name: str, value: object, allowed: Callable[[float], bool], rule: str, way_out: str) -> float:
    number = arguments.real(name, value, rule, way_out)
    if not allowed(number):  # nan is in no range
        raise arguments.error(name, rule, value, way_out)
    return number

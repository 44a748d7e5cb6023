"""Balancing keys over buckets with few reads: the best that can be, and the schemes that reach it.

    lower_bound(reads, load, overflow=0.0) -> LowerBound        no scheme is more even (Theorem 1)
    chain_variance(reads, load, overflow=0.0) -> float          its variance (Appendix C)
    optimal_single(load, overflow) -> Balance                   schemes that reach the lower bound
    optimal_sequential(reads, load, choices) -> Balance
    optimal_multilevel(reads, load, choices) -> Balance
    single, sequential, multilevel                              schemes over time (`theory.over_time`)
    uniform_overall(fractions, distributions, *, tolerance=1e-9) -> bool            Theorem 2
    uniform_deviation(fractions, distributions) -> float
    optimality_region(policy, choices, *, reads, load) -> array                     Figure 4
    sequential_equations, multilevel_equations                                      (A.1) to (A.7), integrated

`evenbins.theory.balance` has the idea, and what the planners use.

Source: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient balanced Bloom filters"; Theorem n and (A.n) are
theirs. Misprints corrected here: k0 is infinite when nothing may be removed (a = 1, gamma = 0); "a = 1.1
needs 1 %" in section 8 is 0.587 %; the shares of section 10 do not depend on the load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.cluster.libraries import library
from evenbins.theory.balance import (
    Scheme,
    best_multilevel,
    best_sequential,
    best_single,
    least_sequential,
    refused_fraction,
)
from evenbins.theory.balance_arguments import (
    checked_choices,
    checked_coin,
    checked_load,
    checked_overflow,
    checked_reads,
)
from evenbins.theory.bucket import Vector, attempts_of, best, dot, mean_of, variance_of
from evenbins.theory.caching import frozen
from evenbins.theory.over_time import (
    Fluid,
    checked_budget,
    checked_heights,
    checked_shares,
    checked_times,
    multilevel,
    sequential,
    single,
)

__all__ = [
    "Balance", "Fluid", "LowerBound", "chain_variance", "lower_bound", "multilevel", "multilevel_equations",
    "optimal_multilevel", "optimal_sequential", "optimal_single", "optimality_region", "sequential",
    "sequential_equations", "single", "uniform_deviation", "uniform_overall",
]  # fmt: skip

Cost = Callable[[int], float] | npt.ArrayLike
"""A cost for each number of keys in a bucket: a function of it, or the costs of 0, 1, 2, ... keys."""
MAX_READS = 1000.0
"""Largest mean of bucket reads that `lower_bound` considers."""
_POLICIES = ("single", "sequential", "multilevel")


class _Loads:
    """What follows from a distribution of keys over buckets."""

    __slots__ = ()
    threshold: int | None

    @property
    def _chances(self) -> Vector:
        raise NotImplementedError

    @property
    def mean(self) -> float:
        """Mean keys in a bucket: load * (1 - overflow)."""
        return mean_of(self._chances)

    @property
    def variance(self) -> float:
        """Variance of the keys in a bucket, the length of a chain (Appendix C)."""
        return variance_of(self._chances)

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
        chance = self._chances
        if callable(phi):
            held = np.flatnonzero(chance)  # no cost is asked for loads that do not occur
            return dot(chance[held], np.array([float(phi(int(keys))) for keys in held]))
        rule = f"a function of an integer, or at least {len(chance)} numbers, the costs of 0, 1, 2, ... keys"
        remedy = "Pass for example lambda keys: keys**2"
        costs = arguments.reals("phi", phi, rule, remedy)
        if costs.ndim != 1 or len(costs) < len(chance):
            raise arguments.error("phi", rule, phi, remedy)
        return dot(chance, costs[: len(chance)])


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound(_Loads):
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
    def _chances(self) -> Vector:
        return self.distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance(_Loads):
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
    def _chances(self) -> Vector:
        return self.occupancy


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
    return _balance("single", 1.0, load, 1, best_single(load, overflow))


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
    return _balance("sequential", reads, load, choices, best_sequential(reads, load, choices))


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
    return _balance("multilevel", reads, load, choices, best_multilevel(reads, load, choices))


def _balance(policy: str, reads: float, load: float, choices: int, scheme: Scheme) -> Balance:
    threshold, coin, shares, overflow, occupancy = scheme
    full, refused = 0.0, 0.0
    if threshold is not None:
        full = attempts_of(reads * load).at_least(threshold)
        refused = (1.0 - coin) * float(occupancy[threshold]) + float(occupancy[threshold + 1])
    return Balance(
        policy=policy,
        reads=float(reads),
        load=float(load),
        choices=choices,
        threshold=threshold,
        coin=coin,
        shares=shares,
        overflow=overflow,
        occupancy=occupancy,
        miss_reads=math.fsum(full**j for j in range(choices)),
        miss_reads_coin=math.fsum(refused**j for j in range(choices)),
    )


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
    remedy = "Divide the reads of each distribution by all reads"
    weights = arguments.reals("fractions", fractions, rule, remedy)
    row_rule = "rows of chances of at least 0, one for each fraction, each of sum 1"
    row_remedy = "Give every bucket a chance in every row, 0 where a hash function never goes"
    rows = arguments.reals("distributions", distributions, row_rule, row_remedy)
    if rows.ndim != 2 or rows.size == 0 or not _chances(rows):
        raise arguments.error("distributions", row_rule, distributions, row_remedy)
    if weights.shape != rows.shape[:1] or not _chances(weights):
        raise arguments.error("fractions", rule, fractions, remedy)
    return float(np.abs((weights[:, None] * rows).sum(axis=0) * rows.shape[1] - 1.0).max())


def uniform_overall(
    fractions: npt.ArrayLike, distributions: npt.ArrayLike, *, tolerance: float = 1e-9
) -> bool:
    """Return whether `lower_bound` holds for hash functions that are not uniform (Theorem 2).

    It does if they are uniform overall: sum over p of k_p f_p(i) = 1/buckets for every bucket i.

    Parameters
    ----------
    fractions, distributions
        As for `uniform_deviation`, which computes the largest deviation itself.
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
    tolerance = arguments.real("tolerance", tolerance, "", "Pass for example 1e-9", least=0.0)
    return uniform_deviation(fractions, distributions) <= tolerance


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
    arguments.one_of("policy", policy, _POLICIES, "The other policies have no lower bound to reach")
    number_rule = "a number or an array of numbers"
    all_reads = arguments.reals("reads", reads, number_rule, "Pass for example 1.2")
    all_loads = arguments.reals("load", load, number_rule, "Pass for example 8")
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
    load = checked_load(load)
    if policy == "single":
        if checked_choices(choices, 1) != 1:
            raise arguments.error("choices", '1 for "single"', choices, 'Pass 1, or policy="multilevel"')
        if reads != 1.0:
            raise arguments.error("reads", '1 for "single"', reads, 'Pass 1, or policy="multilevel"')
        return 0.0
    choices = checked_choices(choices, 2)
    reads = checked_reads(reads, choices)
    if policy == "multilevel":
        return float(refused_fraction(reads, choices) ** choices)
    return least_sequential(reads, load, choices)[2]


def _chances(values: Vector) -> bool:
    return bool((values >= 0.0).all() and (np.abs(values.sum(axis=-1) - 1.0) <= 1e-9).all())


def _flow(held: Vector, height: int, coin: float) -> Vector:
    """Compute the change of a bucket's distribution for one attempt per bucket: (6) put right."""
    leave = held[: height + 1].copy()
    leave[height] *= coin
    change = np.zeros_like(held)
    change[: height + 1] -= leave
    change[1 : height + 2] += leave
    return change


def sequential_equations(
    load: float,
    threshold: int,
    coin: float,
    choices: int,
    times: npt.ArrayLike = 1.0,
    *,
    reads: float | None = None,
) -> Fluid:
    """Integrate (A.1) to (A.4): what `over_time.sequential` computes by quadrature, slow for large loads.

    Parameters and errors as for `evenbins.theory.over_time.sequential`.

    Examples
    --------
    >>> from evenbins.theory.over_time import sequential
    >>> end = sequential_equations(2.5, 2, 0.5, 3)
    >>> bool(abs(end.overflow[0] - sequential(2.5, 2, 0.5, 3).overflow[0]) < 1e-9)
    True
    """
    load, coin, choices = checked_load(load), checked_coin(coin), checked_choices(choices, 1)
    height = checked_heights(threshold, 1)[0]
    times = checked_times("times", times, load * choices)
    budget = math.inf if reads is None else checked_budget(reads)
    # States: occupancy, then keys refused 1 ... choices times.
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
    states, spent = _integrate(slope, start, times, left if math.isfinite(budget) else None)
    return Fluid(
        times=frozen(times),
        occupancy=frozen(states[:, :size].copy()),
        attempts=frozen(np.column_stack([np.minimum(times, spent), states[:, size:-1]])),
        overflow=frozen(states[:, -1] + np.maximum(times - spent, 0.0)),
    )


def multilevel_equations(
    load: float,
    thresholds: int | Sequence[int],
    coin: float,
    shares: Sequence[float],
    times: npt.ArrayLike = 1.0,
) -> Fluid:
    """Integrate (A.5) to (A.7): what `over_time.multilevel` computes by Theorem 6, slow for large loads.

    Parameters and errors as for `evenbins.theory.over_time.multilevel`.

    Examples
    --------
    >>> from evenbins.theory.over_time import multilevel
    >>> end = multilevel_equations(2.5, 2, 0.5, [0.8, 0.2])
    >>> bool(abs(end.overflow[0] - multilevel(2.5, 2, 0.5, [0.8, 0.2]).overflow[0]) < 1e-9)
    True
    """
    load, coin, sizes = checked_load(load), checked_coin(coin), checked_shares(shares)
    heights = checked_heights(thresholds, len(sizes))
    times = checked_times("times", times, load)
    # States: occupancy of each table, then keys each table refused.
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
    states, _ = _integrate(slope, start, times, None)
    occupancy = np.zeros((len(times), tables, max(heights) + 2))
    for j in range(tables):
        occupancy[:, j, : heights[j] + 2] = states[:, starts[j] : ends[j]]
    return Fluid(
        times=frozen(times),
        occupancy=frozen(occupancy),
        attempts=frozen(np.column_stack([times, states[:, ends[-1] : -1]])),
        overflow=frozen(states[:, -1].copy()),
    )


def _integrate(
    slope: Callable[[float, Vector], Vector],
    start: Vector,
    times: Vector,
    event: Callable[[float, Vector], float] | None,
) -> tuple[Vector, float]:
    """Return the states at `times`, frozen from the event on, and the moment of the event or inf."""
    moments, where = np.unique(times, return_inverse=True)
    if moments[-1] == 0.0:
        return np.tile(start, (len(times), 1)), math.inf
    solved = library("scipy.integrate", "theory").solve_ivp(
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

"""Balancing keys over buckets: what the paper has beyond `evenbins.theory.balance`.

    uniform_overall(fractions, distributions, *, tolerance=1e-9) -> bool            Theorem 2
    uniform_deviation(fractions, distributions) -> float
    optimality_region(policy, choices, *, reads, load) -> array                     Figure 4
    sequential_equations, multilevel_equations                                      (A.1) to (A.7), integrated

Source: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient balanced Bloom filters".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.integrate import solve_ivp

from evenbins import _arguments as arguments
from evenbins.theory.balance import least_sequential, refused_fraction
from evenbins.theory.balance_arguments import checked_choices, checked_coin, checked_load, checked_reads
from evenbins.theory.caching import frozen
from evenbins.theory.over_time import (
    Fluid,
    checked_budget,
    checked_heights,
    checked_shares,
    checked_times,
)

__all__ = [
    "multilevel_equations", "optimality_region", "sequential_equations", "uniform_deviation",
    "uniform_overall",
]  # fmt: skip

Vector = npt.NDArray[np.float64]
_POLICIES = ("single", "sequential", "multilevel")


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

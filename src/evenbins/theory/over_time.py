"""Schemes that balance keys over buckets, while the keys arrive: fluid limits.

    single(load, threshold, coin, time=1.0) -> Fluid
    sequential(load, threshold, coin, choices, times=1.0, *, reads=None) -> Fluid
    multilevel(load, thresholds, coin, shares, times=1.0) -> Fluid

Each scheme differs only in how keys turn into attempts, and `bucket` says what a bucket makes of them:

    single       attempts = keys
    multilevel   each table is a single one; its refused keys are the next table's arrivals
    sequential   in attempts per bucket it is a single one (`sequential_path`)

Fluid limits hold for many buckets. A large load makes multilevel sensitive: a table that gets 1 % too many
keys passes on c/q times 1 % too many (c its refusal at the end, q on average).
`evenbins.study.theory.balance` integrates the paper's equations instead; the two agree to about 1e-11
(absolute).

Source: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient balanced Bloom filters", sections 5 to 7 and the
appendices. In their (5), (6) bucket h + 1 gains p*F_h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory.balance_arguments import (
    MAX_CHOICES,
    MAX_LOAD,
    checked_choices,
    checked_coin,
    checked_load,
)
from evenbins.theory.bucket import Vector, hold
from evenbins.theory.caching import frozen
from evenbins.theory.sequential_path import Path

__all__ = [
    "Fluid", "checked_budget", "checked_heights", "checked_shares", "checked_threshold", "checked_times",
    "multilevel", "sequential", "single",
]  # fmt: skip

MOST_ATTEMPTS = MAX_LOAD * 1000  # attempts per bucket


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

    Examples
    --------
    >>> end = single(2.5, 2, 0.5)  # Figure 3 at t = 1
    >>> [f"{f:.4f}" for f in end.occupancy[0]], f"{end.overflow[0]:.4f}"
    (['0.0821', '0.2052', '0.4073', '0.3054'], '0.2256')
    """
    load = checked_load(load)
    height = checked_threshold("threshold", threshold)
    coin = checked_coin(coin)
    times = checked_times("time", time, load)
    states = [hold(load * float(t), height, coin) for t in times]
    return Fluid(
        times=frozen(times),
        occupancy=frozen(_stack([state[0] for state in states])),
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

    Examples
    --------
    >>> from evenbins.study.theory.balance import optimal_sequential
    >>> best = optimal_sequential(1.1, 8, 3)
    >>> end = sequential(8, best.threshold, best.coin, 3)
    >>> f"{end.accesses[0]:.9f} {end.overflow[0]:.5%}"
    '1.100000000 0.58740%'
    """
    load = checked_load(load)
    height = checked_threshold("threshold", threshold)
    coin = checked_coin(coin)
    choices = checked_choices(choices, 1)
    moments = checked_times("times", times, load * choices)
    budget = math.inf if reads is None else checked_budget(reads)
    # In attempts per bucket: where the process stands at each moment, and when the budget is spent.
    most, limit = load * choices * float(moments.max()), load * budget
    path = Path(height, coin, choices, min(most, limit))
    spent = float(path.columns(np.array([limit]))[0, 0]) / load if limit < most else math.inf
    points = [path.point(load * float(t)) if t < spent else limit for t in moments]
    columns = path.columns(np.array(points)) / load
    return Fluid(
        times=frozen(moments),
        occupancy=frozen(_stack([hold(u, height, coin)[0] for u in points])),
        attempts=frozen(columns[:, :choices].copy()),
        overflow=frozen(columns[:, choices] + np.maximum(moments - spent, 0.0)),
    )


def multilevel(
    load: float,
    thresholds: int | Sequence[int],
    coin: float,
    shares: Sequence[float],
    times: npt.ArrayLike = 1.0,
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

    Examples
    --------
    >>> from evenbins.study.theory.balance import optimal_multilevel
    >>> best = optimal_multilevel(1.2, 8, 3)
    >>> end = multilevel(8, best.threshold, best.coin, best.shares)
    >>> f"{end.accesses[0]:.9f} {end.overflow[0]:.5%}"
    '1.200000000 0.49845%'
    """
    load = checked_load(load)
    sizes = checked_shares(shares)
    heights = checked_heights(thresholds, len(sizes))
    coin = checked_coin(coin)
    moments = checked_times("times", times, load)
    longest = max(heights) + 2
    occupancy = np.zeros((len(moments), len(sizes), longest))
    refused = np.empty((len(moments), len(sizes) + 1))
    refused[:, 0] = moments
    for row, t in enumerate(moments):
        arrive = float(t)
        for table, (share, height) in enumerate(zip(sizes, heights, strict=True)):
            mean = load * arrive / share
            if mean > MOST_ATTEMPTS:
                rule = f"such that no table receives more than {MOST_ATTEMPTS:g} keys per bucket"
                remedy = (
                    f"Table {table + 1} would receive {mean:.3g}: enlarge it, or the thresholds before it"
                )
                raise arguments.error("shares", rule, shares, remedy)
            held, lost = hold(mean, height, coin)
            occupancy[row, table, : len(held)] = held
            arrive = lost * share / load
            refused[row, table + 1] = arrive
    return Fluid(
        times=frozen(moments),
        occupancy=frozen(occupancy),
        attempts=frozen(refused[:, :-1].copy()),
        overflow=frozen(refused[:, -1].copy()),
    )


def _stack(rows: Sequence[Vector]) -> Vector:
    """Put rows under each other; short ones end in zeros."""
    table = np.zeros((len(rows), max(len(row) for row in rows)))
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return table


# --- arguments -----------------------------------------------------------------------------------


def checked_threshold(name: str, value: object) -> int | None:
    """Check a threshold; None is no bound."""
    return None if value is None else _height(name, value, ", or None for no bound")


def _height(name: str, value: object, more: str = "") -> int:
    return arguments.integer(name, value, 0, int(MAX_LOAD), f"Pass a number of keys{more}")


def checked_heights(value: object, tables: int) -> tuple[int, ...]:
    """Check the thresholds of the tables: one for all, or one for each."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = list(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if len(value) != tables:
            rule = f"an integer, or one for each of the {tables} shares"
            raise arguments.error("thresholds", rule, value, "Pass one integer for all tables")
        return tuple(_height(f"thresholds[{j}]", height) for j, height in enumerate(value))
    return (_height("thresholds", value),) * tables


def checked_budget(value: object) -> float:
    """Check the bucket reads per key that may be spent."""
    rule = "a number of bucket reads per key above 0, or None"
    remedy = "Pass for example 1.2, or None for no budget"
    return arguments.real("reads", value, rule, remedy, above=0.0, below=math.inf)


def checked_shares(value: object) -> Vector:
    """Check the sizes of the tables."""
    rule = f"1 to {MAX_CHOICES} fractions above 0 of sum 1"
    remedy = "Divide the buckets of each table by all buckets"
    shares = arguments.reals("shares", value, rule, remedy)
    if shares.ndim != 1 or not 1 <= len(shares) <= MAX_CHOICES or not (shares > 0.0).all():
        raise arguments.error("shares", rule, value, remedy)
    total = float(shares.sum())
    if abs(total - 1.0) > 1e-9:
        nearest = [float(f"{share:.6g}") for share in shares / total] if math.isfinite(total) else None
        raise arguments.error("shares", rule, value, f"{remedy}: the nearest is {nearest}")
    return shares


def checked_times(name: str, value: object, scale: float) -> Vector:
    """Check the moments, of which `scale` times the last is the attempts per bucket."""
    rule = "one moment or several, each a finite number of at least 0"
    remedy = "Pass for example 1.0, when all planned keys have come"
    times = np.array(np.atleast_1d(arguments.reals(name, value, rule, remedy)))
    if times.ndim != 1 or times.size == 0 or not (np.isfinite(times) & (times >= 0.0)).all():
        raise arguments.error(name, rule, value, remedy)
    if float(times.max()) * scale > MOST_ATTEMPTS:
        rule = f"at most {MOST_ATTEMPTS / scale:.4g} here ({MOST_ATTEMPTS:g} attempts per bucket)"
        raise arguments.error(name, rule, value, remedy)
    return times

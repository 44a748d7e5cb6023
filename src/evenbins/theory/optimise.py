"""Multilevel tables: the best sizes of their levels, the least space for an overflow, the overflow list.

The idea. `fluid` gives the overflow w with its exact gradient in the shares, so a few dozen solutions are
enough (the thesis: "a week or two" by a minimiser that saw no gradients):

    shares   min log w with log(sum shares) given
    space    min log(sum shares) with log w = log overflow, from levels that have the overflow already; at
             last all levels are scaled to meet it exactly

both by Newton's method on Lagrange's function, in the logarithms of the shares; second derivatives are
differences of gradients, whose columns go in parallel.

log w, since it falls exponentially, with several slots even faster. Both agree: `shares` at the space that
`space` gives has its overflow (tests). Steps of the integrator stay fixed during a search and are renewed
after it.

The optimum is flat: shares and moves may vary by some percent within 0.001 of the least space.

Invariants
- Every number returned was computed by `fluid.solve` or `fluid.steady_state` at the shares returned with it.

Source: A. Kirsch's thesis, chapter 5.8; `fluid_noise` for the overflow list.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory import fluid
from evenbins.theory import fluid_noise as noise
from evenbins.theory import fluid_steady as steady
from evenbins.theory.caching import cached
from evenbins.theory.fluid_schemes import system

__all__ = ["OverflowDistribution", "overflow_distribution", "overflow_limit", "shares", "space"]

Vector = npt.NDArray[np.float64]

MIN_OVERFLOW = 1e-12
MAX_SPACE = 1000.0
_LEAST_MEAN = 1e-300  # keys on the overflow list, where none is expected: a share underflows
_GRID = 1e-5  # tolerance of the steps during a search
_ROUNDS = 3  # searches, each with new steps
_NEAR = 1e-5  # differences of gradients
_MOST_STEPS, _LONGEST, _CLOSE = 60, 0.5, 3e-3  # what is left after a step is of the order of its square
_FAILED = math.log(1e3)  # of a search that went too far
_STARTS = {  # how shares fall to the last level: log(share) = -drop * x**power, x from 0 to 1
    "standard": (1.7, 1.2), "conservative": (1.2, 1.3), "second-chance": (1.9, 2.0),
    "extreme-second-chance": (1.3, 3.5),
}  # fmt: skip


def shares(
    scheme: str, levels: int, space: float, slots: int = 1, *, deletions: bool = False
) -> tuple[float, ...]:
    """Compute the shares of least overflow for a space.

    Parameters
    ----------
    scheme
        "standard", "conservative", "second-chance" or "extreme-second-chance".
    levels
        Number of levels (d), 1 to 16.
    space
        Slots per key (c); the shares sum to space / slots.
    slots
        Slots of a bucket.
    deletions
        Whether the overflow of the steady state counts, under endless deletions and insertions.

    Examples
    --------
    >>> best = shares("second-chance", 4, 1.3)
    >>> equal = (1.3 / 4,) * 4
    >>> fluid.solve("second-chance", best).overflow < 0.3 * fluid.solve("second-chance", equal).overflow
    True
    """
    slots, levels = fluid.check_scheme(scheme, slots, deletions=deletions), checked_levels(levels)
    return _shares(scheme, levels, checked_space(space), slots, bool(deletions))


def space(
    scheme: str, levels: int, overflow: float, slots: int = 1, *, deletions: bool = False
) -> fluid.FluidLimit:
    """Compute the least space for an overflow, with its shares.

    Parameters
    ----------
    overflow
        Fraction of keys on the overflow list (w), from 1e-12 to 0.5.
    scheme, levels, slots, deletions
        As of `shares`.

    Examples
    --------
    >>> table = space("second-chance", 4, 0.002)
    >>> f"{table.space:.4f}"
    '1.2852'
    """
    slots, levels = fluid.check_scheme(scheme, slots, deletions=deletions), checked_levels(levels)
    return _least(scheme, levels, checked_overflow(overflow), slots, bool(deletions))


# --- the overflow list -----------------------------------------------------------------------------------


class OverflowDistribution(NamedTuple):
    """The number of keys on the overflow list of one table, at one moment.

    A negative binomial distribution of this mean and variance; Poisson where the variance is not above the
    mean.

    Attributes
    ----------
    mean, variance : moments of the length of the list
    """

    mean: float
    variance: float

    @property
    def ratio(self) -> float:
        """Variance over mean: 1 for Poisson, up to 1.5 near 0.2 % of overflow."""
        return self.variance / self.mean

    def overrun(self, limit: int) -> float:
        """Compute the probability of more than `limit` keys.

        >>> f"{OverflowDistribution(20.0, 20.0).overrun(64):.3e}"
        '1.319e-15'
        """
        if limit < 0:
            return 1.0
        over = self.ratio - 1.0
        poisson = over < 1e-6
        size, chance = (math.inf, 0.0) if poisson else (self.mean / over, over / (1.0 + over))
        k = limit + 1  # the tail from here on, a sum of probabilities: nothing cancels
        if poisson:
            first = k * math.log(self.mean) - self.mean - math.lgamma(k + 1)
        else:
            first = (
                math.lgamma(k + size) - math.lgamma(size) - math.lgamma(k + 1)
                + k * math.log(chance) - size * math.log1p(over)
            )  # fmt: skip
        term = total = math.exp(first) if first > -700 else 0.0
        while term > 1e-17 * total or k < self.mean:
            term *= self.mean / (k + 1) if poisson else chance * (k + size) / (k + 1)
            total, k = total + term, k + 1
            if first <= -700 and k < self.mean:  # far below the mean: all of it lies above
                return 1.0
        return min(1.0, total)

    def limit(self, overrun: float = 1e-9) -> int:
        """Return the least limit that is exceeded with at most this probability."""
        low, high = -1, 1
        while self.overrun(high) > overrun:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.overrun(middle) > overrun else (low, middle)
        return high


def overflow_distribution(
    scheme: str, shares: Iterable[float], keys: float, slots: int = 1, *, deletions: bool = False
) -> OverflowDistribution:
    """Return the distribution of the overflow list's size for a table of so many keys.

    Without deletions mean and variance are those of the diffusion limit (`fluid_noise`): the list is
    over-dispersed against Poisson. Under deletions the variance is taken as 1.25 times the mean, above what
    simulations show; the distribution is that of one moment, so that a table of long life sees many draws.

    Parameters
    ----------
    keys
        Keys that the table is planned for (n), all of them inserted; from 1 to 2**48. If sizes have been
        rounded down, pass the shares of the table as it is: at 10,000 keys that counts.
    scheme, shares, slots, deletions
        As of `fluid.solve`, `fluid.steady_state`.

    Examples
    --------
    >>> list_ = overflow_distribution("second-chance", [0.4694, 0.4562, 0.2512, 0.1082], 10_000)
    >>> f"{list_.mean:.1f} {list_.ratio:.2f}"
    '20.1 1.15'
    """
    scheme, given, slots, _ = fluid.checked_arguments(scheme, shares, slots, 1.0, deletions=bool(deletions))
    n = arguments.capacity(keys)
    if deletions:
        mean = max(n * fluid.steady_state(scheme, given, slots).overflow, _LEAST_MEAN)
        return OverflowDistribution(mean, noise.STEADY * mean)
    mean, variance = (n * each for each in noise.variance(scheme, given, slots))
    mean = max(mean, _LEAST_MEAN)
    return OverflowDistribution(mean, max(mean, variance))


def overflow_limit(
    scheme: str,
    shares: Iterable[float],
    keys: float,
    slots: int = 1,
    *,
    overrun: float = 1e-9,
    deletions: bool = False,
) -> int:
    """Compute the size of an overflow list that a table exceeds with at most the probability `overrun`.

    Parameters
    ----------
    overrun
        From 1e-100 to 0.5.
    scheme, shares, keys, slots, deletions
        As of `overflow_distribution`.

    Examples
    --------
    >>> overflow_limit("second-chance", [0.4694, 0.4562, 0.2512, 0.1082], 10_000)
    56
    """
    bound = arguments.real("overrun", overrun, "", "Pass a probability such as 1e-9", least=1e-100, most=0.5)
    return overflow_distribution(scheme, shares, keys, slots, deletions=deletions).limit(bound)


# --- the search ------------------------------------------------------------------------------------------


class Target:
    """log w of the shares with its gradient in log(shares), along fixed steps."""

    def __init__(self, scheme: str, slots: int, deletions: bool) -> None:
        self.scheme, self.slots, self.deletions = scheme, slots, deletions
        self.grid = np.zeros(0)
        self._last: tuple[bytes, float, Vector] | None = None
        self._grid_for = b""

    def renew(self, alphas: Vector) -> None:
        """Choose the steps for these shares."""
        name = alphas.tobytes()
        if name == self._grid_for:
            return
        self._grid_for = name
        if not self.deletions:
            model = system(self.scheme, len(alphas), self.slots)
            self.grid, _ = fluid.integrate(model, alphas, rtol=_GRID)
        self._last = None

    def with_second(self, logs: Vector) -> tuple[float, Vector, Vector]:
        """Compute log w, its gradient and second derivatives: differences of gradients."""
        d = len(logs)
        points = logs + np.vstack([np.zeros(d), _NEAR * np.eye(d)])
        if self.deletions:
            found = [self(each) for each in points]
            values, slopes = np.array([each[0] for each in found]), np.array([each[1] for each in found])
        else:
            alphas = np.exp(np.clip(points, math.log(fluid.MIN_SHARE), math.log(1e6)))
            values, slopes = fluid.derivatives_of_many(self.scheme, alphas, self.slots, self.grid)
            if not (np.isfinite(values).all() and (values > 0.0).all() and np.isfinite(slopes).all()):
                return _FAILED, np.zeros(d), np.zeros((d, d))
            slopes = slopes * alphas / values[:, None]
            values = np.log(values)
        bend = (slopes[1:] - slopes[0]) / _NEAR
        return float(values[0]), slopes[0], 0.5 * (bend + bend.T)

    def __call__(self, logs: Vector) -> tuple[float, Vector]:
        """Compute log w and its gradient."""
        name = logs.tobytes()
        if self._last is None or self._last[0] != name:
            alphas = np.exp(np.clip(logs, math.log(fluid.MIN_SHARE), math.log(1e6)))
            if self.deletions:
                columns = alphas[:, None] + 1j * steady.STEP * np.eye(len(alphas))
                found = steady.solve(self.scheme, columns, self.slots).overflow
                value, slope = float(found[0].real), found.imag / steady.STEP
            else:
                value, slope = fluid.derivatives(self.scheme, alphas, self.slots, self.grid)
            if not (math.isfinite(value) and value > 0.0):  # steps of a search that went too far
                value, slope = math.exp(_FAILED), np.zeros_like(slope)
            self._last = name, math.log(value), slope * alphas / value
        return self._last[1:]


@cached(1024)
def _shares(scheme: str, levels: int, given: float, slots: int, deletions: bool) -> tuple[float, ...]:
    alphas = search(scheme, starting_logs(scheme, levels), given, slots, deletions)
    return tuple(float(each) for each in alphas)


def search(scheme: str, logs: Vector, given: float, slots: int, deletions: bool) -> Vector:
    """Compute the shares of least overflow, from proportions to begin with."""
    total = given / slots
    logs = np.log(total * _softmax(logs))
    target = Target(scheme, slots, deletions)
    for _ in range(_ROUNDS if len(logs) > 1 else 0):
        target.renew(np.exp(logs))
        moved = _stationary(target, logs, math.log(total), by_space=True)
        close = np.abs(moved - logs).max() < 1e-3  # the new steps agree
        logs = moved
        if close:
            break
    return np.asarray(total * _softmax(logs))


@cached(1024)
def _least(scheme: str, levels: int, overflow: float, slots: int, deletions: bool) -> fluid.FluidLimit:
    target = Target(scheme, slots, deletions)
    goal = math.log(overflow)
    alphas = scale_near(scheme, _softmax(starting_logs(scheme, levels)), slots, deletions, overflow)
    for _ in range(_ROUNDS):
        target.renew(alphas)
        logs = _stationary(target, np.log(alphas), goal, by_space=False)
        alphas = np.exp(logs)
        target.renew(alphas)
        if abs(target(logs)[0] - goal) < 1e-3:  # the new steps agree; what is missing is a matter of scale
            break
    return limit_of(scheme, scale_to(target, alphas, overflow), slots, deletions)


def _stationary(target: Target, logs: Vector, limit: float, *, by_space: bool) -> Vector:
    """Find the least overflow with log(space) = limit, or the least space with log(overflow) = limit.

    Newton's method; where Lagrange's function bends down along the constraint, it is taken to bend up, so
    that no step leads uphill.
    """
    d = len(logs)
    longest = _LONGEST
    before = logs
    for _ in range(_MOST_STEPS):
        parts = _softmax(logs)
        whole = math.log(np.exp(logs).sum()), parts, np.diag(parts) - np.outer(parts, parts)
        left = target.with_second(logs)
        if left[0] >= _FAILED:  # steps of the grid that are too long for these shares
            longest *= 0.25
            logs = before + 0.25 * (logs - before)
            continue
        (_, slope, bend), (value, normal, curved) = (left, whole) if by_space else (whole, left)
        weight = float(slope @ normal) / float(normal @ normal)
        bend = bend - weight * curved
        if not bend.any():  # the overflow is too small to be computed: nothing to gain
            break
        stiff = np.outer(normal, normal) * (10.0 * np.abs(bend).max() / float(normal @ normal))
        values, vectors = np.linalg.eigh(bend + stiff)
        values = np.maximum(np.abs(values), 1e-4 * np.abs(values).max())
        system_ = np.zeros((d + 1, d + 1))
        system_[:d, :d] = (vectors * values) @ vectors.T - stiff
        system_[:d, d] = system_[d, :d] = normal
        step = np.linalg.solve(system_, np.append(-slope, limit - value))[:d]
        far = float(np.abs(step).max())
        before, logs = logs, logs + step * min(1.0, longest / max(far, 1e-300))
        if far < _CLOSE:
            break
    return logs


def scale_near(scheme: str, parts: Vector, slots: int, deletions: bool, overflow: float) -> Vector:
    """Scale the shares so that they have the overflow, about."""
    goal = math.log(overflow)

    def logs_at(scales: Vector) -> Vector:
        alphas = np.exp(scales) * parts[:, None]
        if deletions:
            each = (_log_overflow(scheme, column, slots, True, _GRID) for column in alphas.T)
            return np.array(list(each))
        found = fluid.overflows(system(scheme, len(parts), slots), alphas, rtol=_GRID)
        return np.log(np.maximum(found, 1e-300))

    middle = math.log(1.0 / (slots * parts.sum()))  # one slot a key
    low, high = middle - 0.75, middle + 0.75
    while True:
        scales = np.linspace(low, high, 24)
        found = logs_at(scales)
        if found[-1] > goal:
            low, high = high, high + 2.0 * (high - low)
        elif found[0] < goal:
            low, high = low - 2.0 * (high - low), low
        else:
            break
    return np.asarray(math.exp(float(np.interp(-goal, -found, scales))) * parts)


def scale_to(target: Target, alphas: Vector, overflow: float) -> Vector:
    """Scale shares that have about the overflow so that they have it exactly: Newton, then secants."""
    goal = math.log(overflow)
    target.renew(alphas)
    slope = float(target(np.log(alphas))[1].sum())
    scale, step, excess = 0.0, 0.0, math.inf
    for _ in range(50):
        before, scaled = excess, math.exp(scale) * alphas
        excess = _log_overflow(target.scheme, scaled, target.slots, target.deletions, fluid.RTOL) - goal
        if abs(step) > 1e-7:
            slope = (excess - before) / step
        step = -excess / slope
        if abs(step) < 1e-10:
            break
        scale += step
    return np.asarray(math.exp(scale) * alphas)


def _log_overflow(scheme: str, alphas: Vector, slots: int, deletions: bool, rtol: float) -> float:
    if deletions:
        found = float(steady.solve(scheme, alphas, slots).overflow)
    elif rtol == fluid.RTOL:
        found = fluid.solve(scheme, alphas.tolist(), slots).overflow  # which is kept
    else:
        found = float(fluid.integrate(system(scheme, len(alphas), slots), alphas, rtol=rtol)[1][-2, -1])
    return math.log(max(found, 1e-300))


def limit_of(scheme: str, alphas: Vector, slots: int, deletions: bool) -> fluid.FluidLimit:
    """Return what the equations say of these shares."""
    return (fluid.steady_state if deletions else fluid.solve)(scheme, alphas.tolist(), slots)


def starting_logs(scheme: str, levels: int) -> Vector:
    """Return logarithms of proportions to begin with, close to the optimum for 0.2 % of overflow."""
    drop, power = _STARTS[scheme]
    return -drop * np.linspace(0.0, 1.0, levels) ** power


def _softmax(logs: Vector) -> Vector:
    parts = np.exp(logs - logs.max())
    return np.asarray(parts / parts.sum())


# --- arguments -------------------------------------------------------------------------------------------


def checked_levels(value: int) -> int:
    """Check the number of levels."""
    return arguments.integer("levels", value, 1, fluid.MAX_LEVELS, "Pass the number of levels, such as 4")


def checked_space(value: float) -> float:
    """Check the slots per key."""
    return arguments.real("space", value, "", "Pass slots per key, such as 1.3", least=0.01, most=MAX_SPACE)


def checked_overflow(value: float) -> float:
    """Check the fraction of keys on the overflow list."""
    remedy = "Pass a fraction of the keys, such as 0.002"
    return arguments.real("overflow", value, "", remedy, least=MIN_OVERFLOW, most=0.5)

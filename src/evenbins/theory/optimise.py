"""The best sizes of a multilevel table's levels, the least space for an overflow, and the overflow list's size.

    shares(scheme, levels, space, slots=1, *, deletions=False) -> tuple             least overflow
    space(scheme, levels, overflow, slots=1, *, deletions=False) -> Optimum         least space
    naive_shares(levels, space, slots=1) -> tuple                                   equal levels
    naive_space(scheme, levels, overflow, slots=1, *, deletions=False) -> Optimum
    overflow_distribution(scheme, shares, keys, slots=1, *, deletions=False) -> OverflowDistribution
    overflow_limit(scheme, shares, keys, slots=1, *, overrun=1e-9, deletions=False) -> int

The idea. `fluid` gives the overflow w with its exact gradient in the shares, so a few dozen solutions are enough
(the thesis: "a week or two" by a minimiser that saw no gradients):

    shares   min log w over the softmax of unconstrained numbers, by BFGS; its sum is the space
    space    min log(sum shares) with log w = log overflow, by sequential quadratic programming in log(shares),
             from levels that have the overflow already; at last all levels are scaled to meet it exactly

log w, since it falls exponentially, with several slots even faster. Both agree: `shares` at the space that
`space` gives has its overflow (tests). Steps of the integrator stay fixed during a search and are renewed after it.

The optimum is flat: shares and moves may vary by some percent within 0.001 of the least space.

Invariants
- Every number returned was computed by `fluid.solve` or `fluid.steady_state` at the shares returned with it.

Source: A. Kirsch's thesis, chapter 5.8; `_fluid_noise` for the overflow list.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins.theory import _arguments as arguments
from evenbins.theory import _fluid_steady as steady
from evenbins.theory import _show, fluid
from evenbins.theory._fluid_schemes import system

__all__ = ["Optimum", "naive_shares", "naive_space", "shares", "space"]

Vector = npt.NDArray[np.float64]

MIN_OVERFLOW = 1e-12
MAX_SPACE = 1000.0
_GRID = 1e-6  # tolerance of the steps during a search
_ROUNDS = 3  # searches, each with new steps


@dataclass(frozen=True, repr=False)
class Optimum:
    """Levels for a table, with what the equations say of it.

    Attributes
    ----------
    scheme, levels, slots, deletions : as given; deletions: in the steady state
    space : slots per key (c)
    shares : buckets of each level per key (alpha_i)
    overflow, moves : fractions (w, m)
    fills : fraction of slots occupied, per level
    """

    scheme: str
    levels: int
    slots: int
    deletions: bool
    space: float
    shares: tuple[float, ...]
    overflow: float
    moves: float
    fills: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Give the fields as JSON's types."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()
        }

    def __repr__(self) -> str:
        return _show.line("Optimum", vars(self).items())

    def __str__(self) -> str:
        return _show.table("Optimum", vars(self).items())

    def _repr_html_(self) -> str:
        return _show.html_table("Optimum", vars(self).items())


def shares(
    scheme: str, levels: int, space: float, slots: int = 1, *, deletions: bool = False
) -> tuple[float, ...]:
    """Give the shares of least overflow for a space.

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

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong type, out of range, or the scheme has no equations.

    Examples
    --------
    >>> best = shares("second-chance", 4, 1.3)
    >>> fluid.solve("second-chance", best).overflow < fluid.solve("second-chance", naive_shares(4, 1.3)).overflow
    True
    """
    slots, levels = fluid.check_scheme(scheme, slots, deletions=deletions), _levels(levels)
    return _shares(scheme, levels, _space(space), slots, bool(deletions))


def space(scheme: str, levels: int, overflow: float, slots: int = 1, *, deletions: bool = False) -> Optimum:
    """Give the least space for an overflow, with its shares.

    Parameters
    ----------
    overflow
        Fraction of keys on the overflow list (w), from 1e-12 to 0.5.
    scheme, levels, slots, deletions
        As of `shares`.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong type, out of range, or the scheme has no equations.

    Examples
    --------
    >>> table = space("second-chance", 4, 0.002)
    >>> f"{table.space:.4f}"
    '1.2851'
    """
    slots, levels = fluid.check_scheme(scheme, slots, deletions=deletions), _levels(levels)
    return _least(scheme, levels, _overflow(overflow), slots, bool(deletions))


def naive_shares(levels: int, space: float, slots: int = 1) -> tuple[float, ...]:
    """Give equal shares, for comparison.

    >>> naive_shares(4, 1.2)
    (0.3, 0.3, 0.3, 0.3)
    """
    levels, given = _levels(levels), _space(space)
    slots = arguments.integer(
        "slots", slots, 1, fluid.MAX_SLOTS, "Pass the slots of a bucket, such as 1 or 2"
    )
    return (given / slots / levels,) * levels


def naive_space(
    scheme: str, levels: int, overflow: float, slots: int = 1, *, deletions: bool = False
) -> Optimum:
    """Give the least space of equal levels for an overflow; parameters as of `space`.

    >>> f"{naive_space('standard', 4, 0.002).space:.3f}"
    '1.996'
    """
    slots, levels = fluid.check_scheme(scheme, slots, deletions=deletions), _levels(levels)
    target = _overflow(overflow)
    found = _scaled(scheme, np.full(levels, 1.0 / levels), slots, bool(deletions), target)
    return _optimum(scheme, found, slots, bool(deletions))


# --- the search ------------------------------------------------------------------------------------------


class _Target:
    """log w of the shares with its gradient in log(shares), along fixed steps."""

    def __init__(self, scheme: str, slots: int, deletions: bool) -> None:
        self.scheme, self.slots, self.deletions = scheme, slots, deletions
        self.grid = np.zeros(0)
        self._last: tuple[bytes, float, Vector] | None = None

    def renew(self, alphas: Vector) -> None:
        """Choose the steps for these shares."""
        if not self.deletions:
            model = system(self.scheme, len(alphas), self.slots)
            self.grid, _ = fluid.integrate(model, alphas, rtol=_GRID)
        self._last = None

    def __call__(self, logs: Vector) -> tuple[float, Vector]:
        """Give log w and its gradient."""
        name = logs.tobytes()
        if self._last is None or self._last[0] != name:  # SLSQP asks for value and gradient apart
            alphas = np.exp(np.clip(logs, math.log(fluid.MIN_SHARE), math.log(1e6)))
            if self.deletions:
                columns = alphas[:, None] + 1j * steady.STEP * np.eye(len(alphas))
                found = steady.solve(self.scheme, columns, self.slots).overflow
                value, slope = float(found[0].real), found.imag / steady.STEP
            else:
                value, slope = fluid.derivatives(self.scheme, alphas, self.slots, self.grid)
            if not (math.isfinite(value) and value > 0.0):  # steps of a search that went too far
                value, slope = 1e3, np.zeros_like(slope)
            self._last = name, math.log(value), slope * alphas / value
        return self._last[1:]


@lru_cache(maxsize=1024)
def _shares(scheme: str, levels: int, given: float, slots: int, deletions: bool) -> tuple[float, ...]:
    from scipy.optimize import minimize  # here: its import takes longer than all other imports

    total = given / slots
    target = _Target(scheme, slots, deletions)
    logs = _start(scheme, levels)

    def softmax(free: Vector) -> tuple[float, Vector]:
        parts = _softmax(free)
        value, slope = target(np.log(total * parts))
        return value, slope - parts * slope.sum()

    previous = math.inf
    for _ in range(_ROUNDS):
        target.renew(total * _softmax(logs))
        found = minimize(softmax, logs, jac=True, method="BFGS", options={"gtol": 1e-6})
        logs = found.x
        if abs(found.fun - previous) < 1e-7:
            break
        previous = float(found.fun)
    return tuple(float(each) for each in total * _softmax(logs))


@lru_cache(maxsize=1024)
def _least(scheme: str, levels: int, overflow: float, slots: int, deletions: bool) -> Optimum:
    from scipy.optimize import minimize  # here: its import takes longer than all other imports

    target = _Target(scheme, slots, deletions)
    goal = math.log(overflow)
    alphas = _scaled(scheme, _softmax(_start(scheme, levels)), slots, deletions, overflow)
    previous = math.inf
    for _ in range(_ROUNDS):
        target.renew(alphas)
        found = minimize(
            lambda logs: (math.log(np.exp(logs).sum()), _softmax(logs)), np.log(alphas), jac=True, method="SLSQP",
            constraints={"type": "eq", "fun": lambda logs: target(logs)[0] - goal, "jac": lambda logs: target(logs)[1]},
            options={"ftol": 1e-8, "maxiter": 60},
        )  # fmt: skip
        alphas = np.exp(found.x)
        if abs(found.fun - previous) < 1e-6:
            break
        previous = float(found.fun)
    return _optimum(scheme, _scaled(scheme, alphas, slots, deletions, overflow), slots, deletions)


def _scaled(scheme: str, parts: Vector, slots: int, deletions: bool, overflow: float) -> Vector:
    """Scale the shares so that they have the overflow."""
    from scipy.optimize import brentq  # here: its import takes longer than all other imports

    def excess(log_scale: float) -> float:
        return (
            math.log(
                max(_solution(scheme, tuple(math.exp(log_scale) * parts), slots, deletions).overflow, 1e-300)
            )
            - goal
        )

    goal = math.log(overflow)
    low = math.log(1.0 / (slots * parts.sum()))  # one slot a key
    step = 0.05
    high = low
    if excess(low) > 0.0:
        while excess(high := high + step) > 0.0:
            low, step = high, 1.5 * step
    else:
        while excess(low := low - step) < 0.0:
            high, step = low, 1.5 * step
    return np.asarray(math.exp(brentq(excess, low, high, xtol=1e-10, rtol=1e-10)) * parts)


def _solution(
    scheme: str, alphas: tuple[float, ...], slots: int, deletions: bool
) -> fluid.FluidLimit | fluid.SteadyState:
    how: Callable[..., Any] = fluid.steady_state if deletions else fluid.solve
    found: fluid.FluidLimit | fluid.SteadyState = how(scheme, alphas, slots)
    return found


def _optimum(scheme: str, alphas: Vector, slots: int, deletions: bool) -> Optimum:
    found = _solution(scheme, tuple(float(each) for each in alphas), slots, deletions)
    return Optimum(
        scheme,
        len(alphas),
        slots,
        deletions,
        found.space,
        found.shares,
        found.overflow,
        found.moves,
        found.fills,
    )


def _start(scheme: str, levels: int) -> Vector:
    """Give logarithms of proportions to begin with: levels shrink, the faster the fewer keys pass them."""
    return -0.5 * np.arange(levels, dtype=float)


def _softmax(logs: Vector) -> Vector:
    parts = np.exp(logs - logs.max())
    return np.asarray(parts / parts.sum())


# --- arguments -------------------------------------------------------------------------------------------


def _levels(value: int) -> int:
    return arguments.integer("levels", value, 1, fluid.MAX_LEVELS, "Pass the number of levels, such as 4")


def _space(value: float) -> float:
    rule, way_out = f"a number from 0.01 to {MAX_SPACE:g}", "Pass slots per key, such as 1.3"
    number = arguments.real("space", value, rule, way_out)
    if not 0.01 <= number <= MAX_SPACE:
        raise ValueError(arguments.problem("space", rule, value, way_out))
    return number


def _overflow(value: float) -> float:
    rule, way_out = f"a number from {MIN_OVERFLOW:g} to 0.5", "Pass a fraction of the keys, such as 0.002"
    number = arguments.real("overflow", value, rule, way_out)
    if not MIN_OVERFLOW <= number <= 0.5:
        raise ValueError(arguments.problem("overflow", rule, value, way_out))
    return number

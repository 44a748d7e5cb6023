"""Multilevel tables in the limit of many keys: overflow, moves and fills, with and without deletions.

The idea. A key looks at one random bucket of each level; so the chance of what happens to it depends only
on which fraction of buckets is in which state, and with many keys the fractions follow the differential
equations of their mean changes (Kurtz; the thesis' chapter 5). `fluid_schemes` has the equations, this
module solves them:

    shares ──▶ Runge-Kutta of order 8 (`runge_kutta`) ──▶ fractions at time 1 ──▶ overflow, moves, fills
          └──▶ the same steps in complex numbers: shares + 1e-30 i e_k ──▶ imaginary part = exact gradient

Deletions: `fluid_steady` solves for the fixed point.

Definitions. A table for n keys has shares[i] * n buckets in level i (alpha_i), each with `slots` slots, so
that `space` = slots * sum(shares) is slots per key, as in Table 5.1 of the thesis (its shares are buckets
per key for Std2 and SC2 too). `moves` is the fraction of insertions that move a key. Everything is per
planned key: `keys` inserts more or fewer of them.

Invariants
- Overflow is integrated as such (1 - sum(alpha f) would lose it) and good to 1e-6 of itself down to 1e-10.
- A gradient is taken along fixed steps: what an optimiser sees is a smooth function with its exact gradient.

Tried and dropped: equal steps (up to ten times as many with 4 or 8 slots, where levels fill suddenly);
adaptive steps for gradients too (they jump as the shares move).

Source: A. Kirsch, "Hash-Based Data Structures for Extreme Conditions" (thesis, 2008), chapter 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory import fluid_steady as steady
from evenbins.theory import runge_kutta
from evenbins.theory.caching import cached
from evenbins.theory.fluid_schemes import AVAILABLE, SCHEMES, System, system

__all__ = ["SCHEMES", "FluidLimit", "solve", "steady_state"]

Vector = npt.NDArray[np.float64]

MAX_LEVELS = 16
MAX_SLOTS = 64
MIN_SHARE = 1e-6
_STEP = 1e-30  # of the complex numbers that carry derivatives
RTOL, _ATOL = 1e-8, 1e-6  # tolerance of a step, and the part of it that is absolute


@dataclass(frozen=True, slots=True)
class FluidLimit:
    """A table of many keys: after `keys` insertions or, with `deletions`, after many of both.

    Attributes
    ----------
    scheme, shares, slots, keys : as given
    deletions : whether it is the steady state under deletions and insertions
    overflow : keys on the overflow list, per planned key (w, w*)
    moves : insertions that moved a key, per planned key (m); with deletions per insertion
    fills : fraction of slots occupied, per level
    """

    scheme: str
    shares: tuple[float, ...]
    slots: int
    keys: float
    deletions: bool
    overflow: float
    moves: float
    fills: tuple[float, ...]

    @property
    def levels(self) -> int:
        """Number of levels (d)."""
        return len(self.shares)

    @property
    def space(self) -> float:
        """Slots per planned key (c)."""
        return self.slots * math.fsum(self.shares)


def solve(scheme: str, shares: Iterable[float], slots: int = 1, *, keys: float = 1.0) -> FluidLimit:
    """Compute overflow, moves and fills after the planned keys have been inserted into an empty table.

    Parameters
    ----------
    scheme
        "standard", "conservative", "second-chance" or "extreme-second-chance".
    shares
        Buckets of each level per planned key (alpha_i); space = slots * sum(shares).
    slots
        Slots of a bucket. More than 1 for "standard" and "second-chance".
    keys
        Keys inserted, per planned key.

    Raises
    ------
    ValueError
        The scheme has no equations for these slots.

    Examples
    --------
    >>> table = solve("second-chance", [0.4694, 0.4562, 0.2512, 0.1082])
    >>> f"{table.overflow:.5f} {table.moves:.4f} {table.space:.3f}"
    '0.00201 0.1286 1.285'
    """
    return _solved(*checked_arguments(scheme, shares, slots, keys))


def steady_state(scheme: str, shares: Iterable[float], slots: int = 1, *, keys: float = 1.0) -> FluidLimit:
    """Compute overflow, moves and fills of a table under endless deletions and insertions (section 5.9).

    Both models of the thesis have this limit: n keys, a new one inserted and a random old one deleted in
    turn; or arrivals at rate n, each key staying for an exponential time of mean 1. A key that leaves the
    overflow list is one that was deleted: nothing is brought back into the table.

    Parameters
    ----------
    scheme, shares, slots, keys
        As of `solve`; only "standard" (any slots) and "second-chance" (1 slot) have equations.

    Examples
    --------
    >>> table = steady_state("second-chance", [0.8, 0.6, 0.4, 0.2])
    >>> f"{table.overflow:.3e}"
    '1.765e-03'
    """
    return _steady(*checked_arguments(scheme, shares, slots, keys, deletions=True))


# Tables of one plan that differ in their seeds, and every load of a file, ask for the same solution.


@cached(1024)
def _solved(scheme: str, shares: tuple[float, ...], slots: int, keys: float) -> FluidLimit:
    model = system(scheme, len(shares), slots)
    y = integrate(model, np.array(shares), keys=keys)[1][:, -1]
    fills = tuple(model.fills(y).tolist())
    return FluidLimit(scheme, shares, slots, keys, False, float(y[-2]), float(y[-1]), fills)


@cached(1024)
def _steady(scheme: str, shares: tuple[float, ...], slots: int, keys: float) -> FluidLimit:
    y = steady.solve(scheme, np.array(shares) / keys, slots)
    fills = tuple(y.fills.tolist())
    return FluidLimit(scheme, shares, slots, keys, True, keys * float(y.overflow), float(y.moves), fills)


# --- for the other modules of this package ---------------------------------------------------------------


def checked_arguments(
    scheme: str, shares: Iterable[float], slots: int, keys: float, *, deletions: bool = False
) -> tuple[str, tuple[float, ...], int, float]:
    """Check the arguments of `solve`, or of `steady_state`."""
    slots = check_scheme(scheme, slots, deletions=deletions)
    remedy = "Pass buckets per key, level by level, such as [0.47, 0.46, 0.25, 0.11]"
    rule = f"1 to {MAX_LEVELS} numbers from {MIN_SHARE:g} to 1e6"
    if isinstance(shares, str | bytes) or not isinstance(shares, Iterable):
        raise arguments.type_error("shares", rule, shares, remedy)
    given = tuple(arguments.real("shares", each, rule, remedy, least=MIN_SHARE, most=1e6) for each in shares)
    if not 1 <= len(given) <= MAX_LEVELS:
        raise arguments.error("shares", rule, given, remedy)
    number = arguments.real("keys", keys, "", "Leave it out for the planned keys", above=0.0, most=1000.0)
    return scheme, given, slots, number


def check_scheme(scheme: str, slots: int, *, deletions: bool = False) -> int:
    """Check that a scheme has equations; return the slots."""
    arguments.one_of(
        "scheme", scheme, tuple(SCHEMES), "Use one of these; least-loaded has no fluid limit here"
    )
    slots = arguments.integer("slots", slots, 1, MAX_SLOTS, "Pass the slots of a bucket, such as 1 or 2")
    if deletions and (
        scheme not in ("standard", "second-chance") or (scheme == "second-chance" and slots > 1)
    ):
        raise ValueError(
            f"scheme must be one with equations under deletions; got {scheme!r} with slots={slots}. "
            f"There are {steady.AVAILABLE}; simulate the others"
        )
    if slots > 1 and scheme not in ("standard", "second-chance"):
        raise ValueError(
            f"slots must be 1 for scheme {scheme!r}; got {slots}. "
            f"Equations exist for {AVAILABLE}; simulate the others"
        )
    return slots


def derivatives(scheme: str, shares: Vector, slots: int, grid: Vector) -> tuple[float, Vector]:
    """Return the overflow, and its gradient in the shares (one column of numbers for each, exact)."""
    d = len(shares)
    columns = shares[:, None] + 1j * _STEP * np.eye(d)
    y = along(system(scheme, d, slots), columns, grid)
    return float(y[-2, 0].real), y[-2].imag / _STEP


def derivatives_of_many(
    scheme: str, shares: Vector, slots: int, grid: Vector
) -> tuple[Vector, npt.NDArray[np.float64]]:
    """Return the overflow and its gradient at several points, one row for each, all along the same steps."""
    count, d = shares.shape
    columns = np.repeat(shares, d, axis=0).T + 1j * _STEP * np.tile(np.eye(d), count)
    y = along(system(scheme, d, slots), columns, grid)[-2].reshape(count, d)
    return y[:, 0].real, y.imag / _STEP


def integrate(
    model: System, shares: Vector, *, keys: float = 1.0, rtol: float = RTOL, times: Vector | None = None
) -> tuple[Vector, Vector]:
    """Return the times of the steps (or those asked for), and the states there as columns."""
    columns = shares[:, None]
    steps, path = runge_kutta.path(
        lambda y: model.rates(y, shares), model.start(()), keys, rtol=rtol, atol=rtol * _ATOL
    )
    if times is None:
        return steps, path
    return times, runge_kutta.between(lambda y: model.rates(y, columns), steps, path, times)


def overflows(model: System, shares: Vector, *, rtol: float) -> Vector:
    """Return the overflow of many tables at once: columns of shares."""
    start = model.start(shares.shape[1:])
    steps = runge_kutta.path(lambda y: model.rates(y, shares), start, 1.0, rtol=rtol, atol=rtol * _ATOL)
    return np.asarray(steps[1][-2, :, -1])


def along(model: System, shares: npt.NDArray[Any], grid: Vector) -> npt.NDArray[Any]:
    """Return the state at the end of a grid of steps; columns of shares (maybe complex) go in parallel."""
    weights, final = runge_kutta.WEIGHTS, runge_kutta.FINAL
    if shares.dtype.kind == "c":
        weights, final = weights.astype(complex), final.astype(complex)
    y = model.start(shares.shape[1:], shares.dtype.type)
    slopes = np.empty((len(weights), *y.shape), dtype=y.dtype)

    # Not by `@`: for so little work BLAS starts all its threads.
    def step(h: float, row: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.asarray(h * np.einsum("s,s...->...", row, slopes[: len(row)]))

    with np.errstate(over="ignore", invalid="ignore"):  # a grid that was made for other shares may fail here
        for h in np.diff(grid):
            slopes[0] = model.rates(y, shares)
            for s in range(1, len(weights)):
                slopes[s] = model.rates(y + step(h, weights[s, :s]), shares)
            y = y + step(h, final)
    return y

"""Multilevel tables under endless deletions and insertions: the fixed points of the equations of section 5.9.

The idea. Levels feed only to the right, so the fixed point is found level by level, each a small problem.

"standard", any slots. Keys pass level i at a rate of a = passed/alpha_i a bucket and stay a time of mean 1:
a bucket is a telephone exchange with `slots` lines (Erlang), full with probability B(slots, a), and
passed_{i+1} = passed_i B.

"second-chance", 1 slot. A key of level i-1 whose bucket in level i has been looked at is a *pointer* to
that bucket, which deletions may have emptied since. Level i is described by x_j, y_j: its empty and its
taken buckets with j pointers. With F the fraction taken in level i, f and g those taken and those with a
pointer in level i-1, o the pointers to taken buckets (o = alpha_i/alpha_{i-1} sum j y_j, g - o the same of
x), z = passed_{i-2}:

    dg/dt       = -g + z/alpha_{i-1} (f-g) F
    dF/dt       = -F + z/alpha_i [ f (1-F) + F (g-o + (f-g)(1-F)) ]
    dx_{>=j}/dt = -j x_j + y_{>=j}
                  - z [ (f + F (f-g)) x_{>=j}/alpha_i + F sum_{k>=j} k x_k/alpha_{i-1} ]
    dy_{>=j}/dt = -y_{>=j} - j y_j + z [ f x_{>=j}/alpha_i + F sum_{k>=j+1} k x_k/alpha_{i-1}
                                    + (g-o) y_{j-1}/alpha_i + (f-g)(y_{j-1} + F x_{>=j})/alpha_i ]

The last differs from the thesis (its bracket loses a pointer that is used and adds none for the new key): a
used pointer leaves k-1 behind; a new key that takes the place of a moved one has been refused by its own
bucket of level i, and points there. passed_{i-1} = passed_{i-2} (o + (f-g) F); the overflow is passed_{d-1}
f_d.

Newton's method finds x, y and F of one level, from the solution of a coarser guess: the equations are
solved by steps of implicit Euler that grow as the residual falls, so that it is Newton in the end and
cannot run away in the beginning. Derivatives: one more Newton step with complex shares.

Pointers are cut off at `_MOST`; the numbers fall faster than a Poisson distribution's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["AVAILABLE", "Fixed", "solve"]

Array = npt.NDArray[Any]

AVAILABLE = '"standard" with any number of slots and "second-chance" with 1 slot'
_MOST = 24  # pointers to one bucket
STEP = 1e-30


class Fixed(NamedTuple):
    """A fixed point: overflow, moves, fills; columns as of the shares."""

    overflow: Array
    moves: Array
    fills: Array


def solve(scheme: str, shares: Array, slots: int) -> Fixed:
    """Compute the fixed point; shares of one axis, or with one column more for each imaginary direction."""
    return _standard(shares, slots) if scheme == "standard" else _second_chance(shares)


@np.errstate(over="ignore", divide="ignore")  # levels that nothing reaches: 1/B is infinite there
def _standard(shares: Array, slots: int) -> Fixed:
    passed = 1.0 + 0.0 * shares[0]
    fills = []
    for share in shares:
        attempts = passed / share
        inverse = 1.0 + 0.0 * attempts  # 1/B, by Erlang's recursion
        for j in range(1, slots + 1):
            inverse = 1.0 + inverse * j / attempts
        fills.append(attempts * (1.0 - 1.0 / inverse) / slots if slots > 1 else attempts / (1.0 + attempts))
        passed = passed / inverse
    return Fixed(passed, 0.0 * passed, np.array(fills))


def _second_chance(shares: Array) -> Fixed:
    first = 1.0 / (1.0 + shares[0])
    fills, moves = [first], 0.0 * first
    passed = 1.0 + 0.0 * first
    for i in range(1, len(shares)):
        level = _Level(passed, fills[-1], shares[i - 1], shares[i])
        state = _fixed_point(level)
        full, open_, empty, taken = level.parts(state)
        moves = moves + passed * full * (empty + open_ * (1.0 - full))
        passed = passed * (taken + open_ * full)
        fills.append(full)
    return Fixed(passed * fills[-1], moves, np.array(fills))


class _Level:
    """Level i given what arrives at it; state: x_{>=1} ..., y_{>=1} ..., F, as rows."""

    def __init__(self, passed: Array, before: Array, share_before: Array, share: Array) -> None:
        self.given = (passed, before, share_before, share)
        self.size = 2 * _MOST + 1

    def real(self) -> _Level:
        """Return the same without derivatives."""
        return _Level(*(np.asarray(each).real.reshape(-1)[:1] for each in self.given))

    def parts(self, state: Array) -> tuple[Array, Array, Array, Array]:
        """Return F, f - g, g - o and o."""
        passed, before, share_before, share = self.given
        full = state[-1]
        known = passed / share_before * before * full / (1.0 + passed / share_before * full)
        ratio = share / share_before  # sum_j j x_j = sum_{j>=1} x_{>=j}
        return full, before - known, ratio * state[:_MOST].sum(axis=0), ratio * state[_MOST:-1].sum(axis=0)

    def rates(self, state: Array) -> Array:
        """Return the right-hand sides."""
        passed, before, share_before, share = self.given
        full, open_, empty, _taken = self.parts(state)
        j = np.arange(1, _MOST + 1).reshape(-1, *(1 for _ in state.shape[1:]))
        zero = 0.0 * state[:1]
        x, y = state[:_MOST], state[_MOST:-1]
        x_exact, y_exact = x - np.concatenate([x[1:], zero]), y - np.concatenate([y[1:], zero])
        y_below = np.concatenate([full[None] - y[:1], y_exact[:-1]])  # y_{j-1}
        weighted = np.cumsum((j * x_exact)[::-1], axis=0)[::-1]  # sum_{k>=j} k x_k
        weighted_next = np.concatenate([weighted[1:], zero])
        dx = (
            -j * x_exact
            + y
            - passed * (before * x + full * open_ * x) / share
            - passed * full * weighted / share_before
        )
        dy = (
            -y - j * y_exact
            + passed * (before * x + empty * y_below + open_ * (y_below + full * x)) / share
            + passed * full * weighted_next / share_before
        )  # fmt: skip
        df = -full + passed / share * (before * (1.0 - full) + full * (empty + open_ * (1.0 - full)))
        return np.concatenate([dx, dy, df[None]])


def _fixed_point(level: _Level) -> Array:
    plain = level.real()
    passed, before, _, share = (each[0] for each in plain.given)
    state = np.zeros((level.size, 1))
    arriving = passed * before / share
    state[-1] = arriving / (1.0 + arriving)
    step = 1.0
    previous = float(np.abs(plain.rates(state)).max())
    for _ in range(200):
        jacobian = _jacobian(plain, state)
        change = np.linalg.solve(np.eye(level.size) / step - jacobian, plain.rates(state))
        trial = state + change
        residual = float(np.abs(plain.rates(trial)).max())
        if not np.isfinite(residual) or residual > 10.0 * previous or not 0.0 <= trial[-1, 0] <= 1.0:
            step /= 8.0
            continue
        state, step = trial, min(step * max(2.0, previous / max(residual, 1e-300)), 1e30)
        previous = residual
        if step > 1e12 and float(np.abs(change).max()) < 1e-15:
            break
    if np.ndim(level.given[-1]) == 0 or not np.iscomplexobj(level.given[-1]):
        return state[:, 0] if np.ndim(level.given[-1]) == 0 else state
    columns = np.broadcast_to(state, (level.size, len(level.given[-1]))).astype(complex)
    return columns - np.linalg.solve(_jacobian(plain, state), level.rates(columns))


def _jacobian(level: _Level, state: Array) -> Array:
    """Return the exact derivatives of the right-hand sides."""
    columns = state + 1j * STEP * np.eye(level.size)
    return level.rates(columns).imag / STEP

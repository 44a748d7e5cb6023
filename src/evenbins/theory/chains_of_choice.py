"""Chains of least-loaded and d-left tables, predicted: the shortest of a key's chains takes it.

With u_i the fraction of bins of at least i keys and t in keys per bin,

    least-loaded   du_i/dt = u_(i-1)**d - u_i**d
    d-left         du_(j,i)/dt = (u_(j,i-1) - u_(j,i)) · bins/bins_j
                                 · prod_(q<j) u_(q,i) · prod_(q>j) u_(q,i-1)

and the final load of a bin that has l keys at t follows from the same rates, backwards in time.

Sources: M. Mitzenmacher's equations for both; see `chains`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numpy.polynomial import chebyshev

from evenbins.theory import runge_kutta
from evenbins.theory.chain_walk import Chains, Layout, assemble, quadrature, then

__all__ = ["predict_least"]

Vector = npt.NDArray[np.float64]

_POINTS = 8  # of a polynomial that stands for a step


class _Choice:
    """The equations of the shortest of d chains; u[j, i]: fraction of table j's bins with i keys or more.

    A last axis of u is for several times; a state is u without the columns that never change, as a vector, or
    such vectors as columns.
    """

    def __init__(self, layout: Layout, keys: int) -> None:
        bins = sum(layout.bins)
        self.load = keys / bins
        self.choices = layout.choices
        self.shared = layout.policy == "least-loaded"
        self.weight = np.array([[[bins / each]] for each in layout.bins])
        self.tables = len(layout.bins)
        self.top = math.ceil(self.load) + 26  # above this no bin has grown: the tail is doubly exponential

    def rates(self, u: Vector) -> Vector:
        """Return the rate at which a bin of table j with l keys gets one more; u has columns 0 to top + 1."""
        low, high = u[:, :-1], u[:, 1:]  # at least l, more than l
        if self.shared:
            return np.asarray(
                sum(low**s * high ** (self.choices - 1 - s) for s in range(self.choices)), dtype=np.float64
            )
        left, right = np.ones_like(low), np.ones_like(low)  # products over the tables before and after
        np.cumprod(high[:-1], axis=0, out=left[1:])
        right[:-1] = np.cumprod(low[:0:-1], axis=0)[::-1]
        rates: Vector = left * right * self.weight
        return rates

    def grow(self, state: Vector) -> Vector:
        """Return the rates of a state's entries."""
        u = self.full(state)
        change: Vector = (self.rates(u) * (u[:, :-1] - u[:, 1:]))[:, :-1]  # into 1 ... top
        return change.reshape(state.shape)

    def full(self, state: Vector) -> Vector:
        """Add the columns u_0 = 1 and u_(top+1) = 0."""
        inner = np.clip(state.reshape(self.tables, self.top, -1), 0.0, 1.0)
        u = np.zeros((self.tables, self.top + 2, inner.shape[2]))
        u[:, 0] = 1.0
        u[:, 1:-1] = inner
        return u


class _Path:
    """The states of an equation at every time from 0 to `end`: in each step a polynomial through eight."""

    def __init__(self, rates: runge_kutta.Rates, start: Vector, end: float) -> None:
        self.times, states = runge_kutta.path(rates, start, end, rtol=1e-9, atol=1e-13)
        self.last = states[:, -1]
        self.widths = np.diff(self.times)
        points = chebyshev.chebpts1(_POINTS)
        wanted = self.times[:-1, None] + self.widths[:, None] * (points + 1.0) / 2.0
        found = runge_kutta.between(rates, self.times, states, wanted.ravel())
        values = found.reshape(len(start), len(self.widths), _POINTS)
        to_series = np.linalg.inv(chebyshev.chebvander(points, _POINTS - 1)).T
        self.series = values @ to_series  # [entry, step, term]

    def __call__(self, wanted: Vector) -> Vector:
        """Return the states at some times, as columns."""
        step = np.clip(np.searchsorted(self.times, wanted, side="right") - 1, 0, len(self.widths) - 1)
        inside = 2.0 * (wanted - self.times[step]) / self.widths[step] - 1.0
        terms = chebyshev.chebvander(inside, _POINTS - 1)
        return np.asarray(np.einsum("etn,tn->et", self.series[:, step], terms))


def predict_least(layout: Layout, keys: int) -> Chains:
    """Predict a table whose keys go to the shortest of their chains."""
    rule = _Choice(layout, keys)
    moments, weights = quadrature()
    times = moments * rule.load
    path = _Path(rule.grow, np.zeros(rule.tables * rule.top), rule.load)
    end = rule.full(path.last)[:, :, 0]
    # Backwards: mean and mean square of the final load of a bin that has l keys now, l = 0 ... top. The first
    # entry of a state is the time since the end.
    final = np.broadcast_to(np.arange(rule.top + 1.0), (rule.tables, rule.top + 1))
    last = np.concatenate([[0.0], final.ravel(), (final**2).ravel()])

    def back(state: Vector) -> Vector:
        columns = state.reshape(len(state), -1)
        rates = rule.rates(rule.full(path(rule.load - columns[0])))[:, :-1]
        value = columns[1:].reshape(2, rule.tables, rule.top + 1, -1)
        change = np.zeros_like(value)
        change[:, :, :-1] = rates * np.diff(value, axis=2)
        return np.concatenate([np.ones((1, columns.shape[1])), change.reshape(len(state) - 1, -1)]).reshape(
            state.shape
        )

    steps, states = runge_kutta.path(back, last, rule.load, rtol=1e-9, atol=1e-8)
    backward = runge_kutta.between(back, steps, states, rule.load - times)
    values = backward[1:].T.reshape(len(times), 2, rule.tables, rule.top + 1)
    found = np.zeros(3)
    reads = 0.0
    fractions = np.moveaxis(rule.full(path(times)), 2, 0)
    for u, weight, value in zip(fractions, weights.tolist(), values, strict=True):
        time, read = _choose(rule, u, value)
        found = found + weight * time
        reads += weight * read
    tables = -np.diff(end, axis=1)
    return assemble(
        layout, tables, tables, found, reads=reads / float(found[0]), insertion_reads=float(rule.choices)
    )


def _choose(rule: _Choice, u: Vector, value: Vector) -> tuple[Vector, float]:
    """Return the time of the key that comes now, and the mean place of its bin among its choices.

    u as in `_Choice`; value[0], value[1]: mean and mean square of a bin's final load.
    """
    exact = (u[:, :-1] - u[:, 1:])[:, : rule.top + 1]  # l = 0 ... top
    weighted = np.stack([exact, exact * value[0], exact * value[1]], axis=-1)
    at_least = np.flip(np.cumsum(np.flip(weighted, 1), axis=1), 1)
    more = np.concatenate([at_least[:, 1:], np.zeros((rule.tables, 1, 3))], axis=1)
    i = np.arange(rule.top)
    mean, square = value[0][:, 1:], value[1][:, 1:]  # of a bin that has l + 1 now
    placed = exact[:, :-1, None] * np.stack(
        [np.ones_like(mean), mean - i, square - 2.0 * i * mean + i * i], axis=-1
    )
    time, reads = np.zeros(3), 0.0
    for k in range(rule.choices):
        mine = k if not rule.shared else 0
        part = placed[mine]
        for j in range(rule.choices):
            other = j if not rule.shared else 0
            if j < k:
                part = then(more[other, :-1], part)
            elif j > k:
                part = part * at_least[other, :-1, :1]
        time = time + part.sum(axis=0)
        reads += (k + 1) * float(part[:, 0].sum())
    return time, reads

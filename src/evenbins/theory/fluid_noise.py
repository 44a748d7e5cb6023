"""How far the overflow of one table strays from the fluid limit: its variance, to leading order in the keys.

The idea. Each insertion changes the state by a random v/n whose mean the fluid limit follows. What is left,
v less its mean, is noise that the rest of the way damps or amplifies: by p(t) = d overflow(1) / d state(t).
So

    variance of the overflow list / n  ->  integral over t of Var(p(t).v)        (Kurtz' diffusion limit)

p solves the adjoint equation dp/dt = -J' p, p(1) = (0, ..., 1, 0), with J the derivatives of the rates
(exact, by complex steps), integrated backwards by the trapezoid rule, which is stable however fast a level
is. For Var(p.v) nobody has to list what an insertion may do: an outcome is a product of independent things
at the buckets of different levels, each with its probability and the first two moments of its effect, and
they combine.

The overflow list is *over-dispersed*: a table that got too full early stays too full, and then every later
key is more likely to overflow. The ratio of variance to mean is 1 to 1.5 where the overflow is 0.2 % and
tends to 1 as it falls: then the list is a Poisson variable, as section 5.8 of the thesis assumes.

Tried and dropped: the bias of the mean (keys come one by one, and noise has a mean effect where rates are
curved). It was derived and computed, and is a quarter of a key at most, whatever n. Sizes that are rounded
down matter far more: pass the shares of the table as it is. At n = 10,000 that adds up to 0.9 % of overflow
with one slot and up to 4.3 % with two (0.3 % at 100,000): the errors of section 5.8, which the thesis puts
down to slow convergence.

Under deletions the variance is not derived: simulations (n = 2000, SC, Std, Std2, space 2) show ratios of
0.87 to 1.07, and `STEADY` is above them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from evenbins.theory import fluid
from evenbins.theory.caching import cached
from evenbins.theory.fluid_schemes import Outcome, system

__all__ = ["STEADY", "moments", "variance"]

Array = npt.NDArray[np.float64]

STEADY = 1.25
"""Ratio of variance to mean that covers what simulations under deletions show."""
_PARTS, _POINTS = 6, 250  # of each step of the integrator, and in all, at least
_STEP = 1e-30
_ENTRIES = 1 << 21


@cached(256)
def variance(scheme: str, shares: tuple[float, ...], slots: int) -> tuple[float, float]:
    """Compute mean and variance of the overflow list's size, both per key."""
    model = system(scheme, len(shares), slots)
    alphas = np.array(shares)
    steps, _ = fluid.integrate(model, alphas, rtol=1e-6)
    parts = max(_PARTS, _POINTS // len(steps))
    fractions = np.arange(parts) / parts
    times = np.append((steps[:-1, None] + np.diff(steps)[:, None] * fractions).ravel(), steps[-1])
    _, path = fluid.integrate(model, alphas, times=times)
    unit = np.eye(model.size)
    p = np.zeros_like(path)
    p[-2, -1] = 1.0
    chunk = max(1, _ENTRIES // model.size**2)  # moments whose derivatives are computed at a time
    for last in range(len(times) - 1, 0, -chunk):
        begin = max(0, last - chunk)
        columns = path[:, begin : last + 1, None] + 1j * _STEP * unit[:, None, :]
        slopes = model.rates(columns, alphas[:, None, None]).imag / _STEP
        jacobians = np.moveaxis(slopes, 1, 0)  # time, rate, entry
        half = 0.5 * np.diff(times[begin : last + 1])[:, None, None]
        forward, implicit = unit + half * jacobians[:-1], np.linalg.inv(unit - half * jacobians[1:])
        for k in range(last, begin, -1):
            p[:, k - 1] = forward[k - 1 - begin].T @ (implicit[k - 1 - begin].T @ p[:, k])
    first, second = moments(model.outcomes(path, alphas[:, None], p))
    rest = second - first**2 - model.rates(path, alphas[:, None])[-2]  # the Poisson part is known
    mean = float(path[-2, -1])
    return mean, mean + float(0.5 * (np.diff(times) * (rest[1:] + rest[:-1])).sum())


def moments(outcomes: list[Outcome]) -> tuple[Array, Array]:
    """Compute E[p.v] and E[(p.v)**2] of one insertion."""
    first = second = np.zeros(())
    for outcome in outcomes:
        chance, mean, square = outcome[0]
        for a, b, c in outcome[1:]:
            chance, mean, square = chance * a, mean * a + chance * b, square * a + 2.0 * mean * b + chance * c
        first, second = first + mean, second + square
    return first, second

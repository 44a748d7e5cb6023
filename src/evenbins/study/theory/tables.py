"""Multilevel tables of many sizes, and with equal levels, to compare with the optimum.

    curve(scheme, levels, spaces, slots=1, *, deletions=False) -> tuple            a FluidLimit for each space
    naive_shares(levels, space, slots=1) -> tuple                                   equal levels
    trajectory(limit) -> Trajectory                                                 a table as it fills
    naive_space(scheme, levels, overflow, slots=1, *, deletions=False) -> FluidLimit

Source: A. Kirsch, "Hash-Based Data Structures for Extreme Conditions", chapter 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory import fluid
from evenbins.theory.fluid import FluidLimit
from evenbins.theory.fluid_schemes import system
from evenbins.theory.optimise import (
    Target,
    checked_levels,
    checked_overflow,
    checked_space,
    limit_of,
    scale_near,
    scale_to,
    search,
    starting_logs,
)

__all__ = ["Trajectory", "curve", "naive_shares", "naive_space", "trajectory"]

Vector = npt.NDArray[np.float64]
_POINTS = 128  # of a trajectory


@dataclass(frozen=True)
class Trajectory:
    """A table as it fills.

    Attributes
    ----------
    times : keys inserted so far, per planned key: 0 ... keys
    fills : fraction of slots occupied, one row a time, one column a level
    overflow, moves : keys on the overflow list, and insertions that moved a key, so far, per planned key
    """

    times: Vector
    fills: Vector
    overflow: Vector
    moves: Vector


def trajectory(limit: FluidLimit) -> Trajectory:
    """Compute the way to a limit without deletions, at 129 times.

    Examples
    --------
    >>> table = fluid.solve("second-chance", [0.4694, 0.4562, 0.2512, 0.1082])
    >>> f"{trajectory(table).overflow[112]:.1e}"  # when 112/128 of the keys are in
    '5.8e-05'
    """
    model = system(limit.scheme, limit.levels, limit.slots)
    times = np.linspace(0.0, limit.keys, _POINTS + 1)
    _, path = fluid.integrate(model, np.array(limit.shares), keys=limit.keys, times=times)
    return Trajectory(times, model.fills(path).T.copy(), path[-2].copy(), path[-1].copy())


def curve(
    scheme: str,
    levels: int,
    spaces: Iterable[float],
    slots: int = 1,
    *,
    deletions: bool = False,
    start: Iterable[float] | None = None,
) -> tuple[FluidLimit, ...]:
    """Return the table of least overflow for each of several spaces; faster than one by one if they ascend.

    Parameters
    ----------
    spaces
        Slots per key, each as for `shares`.
    start
        Shares of a similar table to begin with; only their proportions count.
    scheme, levels, slots, deletions
        As for `shares`.

    Examples
    --------
    >>> [f"{table.overflow:.4f}" for table in curve("standard", 4, [1.0, 1.5, 2.0])]
    ['0.1113', '0.0096', '0.0007']
    """
    slots, levels = fluid.check_scheme(scheme, slots, deletions=deletions), checked_levels(levels)
    found: list[FluidLimit] = []
    logs = starting_logs(scheme, levels)
    if start is not None:
        _, given, _, _ = fluid.checked_arguments(scheme, start, slots, 1.0, deletions=bool(deletions))
        if len(given) != levels:
            remedy = "Leave it out, or pass one share a level"
            raise arguments.error("start", f"{levels} shares", given, remedy)
        logs = np.log(given)
    for total in [checked_space(each) for each in spaces]:
        alphas = search(scheme, logs, total, slots, bool(deletions))
        logs = np.log(alphas)
        found.append(limit_of(scheme, alphas, slots, bool(deletions)))
    return tuple(found)


def naive_shares(levels: int, space: float, slots: int = 1) -> tuple[float, ...]:
    """Return equal shares, for comparison.

    >>> naive_shares(4, 1.2)
    (0.3, 0.3, 0.3, 0.3)
    """
    levels, given = checked_levels(levels), checked_space(space)
    slots = arguments.integer(
        "slots", slots, 1, fluid.MAX_SLOTS, "Pass the slots of a bucket, such as 1 or 2"
    )
    return (given / slots / levels,) * levels


def naive_space(
    scheme: str, levels: int, overflow: float, slots: int = 1, *, deletions: bool = False
) -> FluidLimit:
    """Return the least space of equal levels for an overflow; parameters as for `space`.

    >>> f"{naive_space('standard', 4, 0.002).space:.3f}"
    '1.996'
    """
    slots, levels = fluid.check_scheme(scheme, slots, deletions=deletions), checked_levels(levels)
    target = checked_overflow(overflow)
    similar = scale_near(scheme, np.full(levels, 1.0 / levels), slots, bool(deletions), target)
    found = scale_to(Target(scheme, slots, bool(deletions)), similar, target)
    return limit_of(scheme, found, slots, bool(deletions))

"""The scheme "least-loaded" as measured: overflow, moves and fills at each load.

The scheme has no equations here: a resident that must move was once placed where it was least loaded, so its
other buckets are not random ones, and a closed system would have to follow all pairs of loads. Instead tables
of the library itself were measured, in the limit of many keys (a million slots), and `least_loaded.json`
keeps the numbers with the digits that they have; tools/make_least_loaded.py made it and makes it again.

Between two measured loads log(overflow) is taken as a straight line, the rest likewise. Below the least load
with a measured overflow the line goes on; the truth falls faster, so that is an upper bound. All levels are
of the same size.

Invariants: overflow rises with the load; `load_for` and `behaviour` are inverse to each other.
"""

from __future__ import annotations

import json
import math
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evenbins.theory.caching import cached

__all__ = ["DESIGNS", "Behaviour", "behaviour", "dispersion", "load_for"]

Vector = npt.NDArray[np.float64]

DESIGNS = tuple((levels, slots) for levels in (2, 3, 4) for slots in (1, 2, 4, 8))
"""Levels and slots that were measured."""
STEADY_DISPERSION = 1.5
"""Variance over mean of the list under deletions, above all that was measured with a fixed number of keys."""


class Behaviour(NamedTuple):
    """A table of one load.

    Attributes
    ----------
    overflow : fraction of keys on the list
    moves : fraction of insertions that move a key
    fills : fraction of slots occupied, per level
    """

    overflow: float
    moves: float
    fills: tuple[float, ...]


class _Curve(NamedTuple):
    load: Vector
    log_overflow: Vector
    moves: Vector
    fills: Vector
    dispersion: float


@cached(None)
def _data() -> dict[str, Any]:
    text = resources.files("evenbins.theory").joinpath("least_loaded.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


@cached(None)
def _curve(levels: int, slots: int, deletions: bool) -> _Curve:
    given = _data()[f"{levels}x{slots}"]["churned" if deletions else "filled"]
    overflow = np.maximum.accumulate(np.array(given["overflow"]))
    dispersion = STEADY_DISPERSION if deletions else max(1.0, given["dispersion"] or 1.0)
    moves, fills = np.array(given["moves"]), np.array(given["fills"]).T
    return _Curve(np.array(given["load"]), np.log(overflow), moves, fills, dispersion)


def behaviour(levels: int, slots: int, load: float, deletions: bool = False) -> Behaviour:
    """Predict what a table does at a load.

    Parameters
    ----------
    levels, slots
        One of `DESIGNS`.
    load
        Keys per slot, above 0.
    deletions
        In the steady state, after endless deletions and insertions of keys; else just filled.

    Raises
    ------
    KeyError
        No such design was measured.

    Examples
    --------
    >>> 2e-5 < behaviour(2, 8, 0.95).overflow < 1e-4
    True
    >>> behaviour(2, 8, 0.5).overflow < 1e-12
    True
    """
    curve = _curve(levels, slots, deletions)
    overflow = math.exp(_line(load, curve.load, curve.log_overflow))
    overflow = min(max(overflow, 1.0 - 1.0 / load), 1.0)
    fills = [_at(load, curve.load, row) for row in curve.fills]
    scale = load * levels * (1.0 - overflow) / sum(fills)  # all that is not on the list is in a level
    return Behaviour(overflow, _at(load, curve.load, curve.moves), tuple(min(1.0, scale * f) for f in fills))


def load_for(levels: int, slots: int, overflow: float, deletions: bool = False) -> float:
    """Return the largest load at which the overflow is not exceeded; arguments as of `behaviour`.

    Examples
    --------
    >>> 0.94 < load_for(2, 8, 1e-4) < 0.96
    True
    """
    curve = _curve(levels, slots, deletions)
    return max(0.01, _line(math.log(overflow), curve.log_overflow, curve.load))


def dispersion(levels: int, slots: int, deletions: bool = False) -> float:
    """Return the ratio of variance to mean of the list's size; at least 1, Poisson's."""
    return _curve(levels, slots, deletions).dispersion


def _line(x: float, xs: Vector, ys: Vector) -> float:
    """Interpolate; beyond the ends the first and the last piece go on."""
    i = min(max(int(np.searchsorted(xs, x)), 1), len(xs) - 1)
    width = xs[i] - xs[i - 1]
    return float(ys[i - 1] + (x - xs[i - 1]) * (ys[i] - ys[i - 1]) / width) if width else float(ys[i])


def _at(x: float, xs: Vector, ys: Vector) -> float:
    """Interpolate from 0 at 0 on; beyond the last the last."""
    return float(np.interp(x, [0.0, *xs], [0.0, *ys]))

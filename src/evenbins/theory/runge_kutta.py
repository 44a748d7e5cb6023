"""Differential equations without SciPy: Dormand and Prince's method of order 8.

One state, or columns of states that go in parallel along common steps:

    start ──step, two estimates of its error──▶ accepted or shorter ──▶ … ──▶ end

Invariants: the coefficients and the choice of steps are those of the authors' DOP853, as in `scipy.integrate`
(a test compares), so the results are the same to rounding.

Source: E. Hairer, S. Norsett, G. Wanner, "Solving Ordinary Differential Equations I", sections II.4, II.5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FINAL", "WEIGHTS", "between", "path"]

Vector = npt.NDArray[np.float64]
Rates = Callable[[Vector], Vector]

_ROWS: tuple[tuple[float, ...], ...] = (
    (
        0.05260015195876773,
    ),
    (
        0.0197250569845379, 0.0591751709536137,
    ),
    (
        0.02958758547680685, 0.0, 0.08876275643042054,
    ),
    (
        0.2413651341592667, 0.0, -0.8845494793282861, 0.924834003261792,
    ),
    (
        0.037037037037037035, 0.0, 0.0, 0.17082860872947386, 0.12546768756682242,
    ),
    (
        0.037109375, 0.0, 0.0, 0.17025221101954405, 0.06021653898045596, -0.017578125,
    ),
    (
        0.03709200011850479, 0.0, 0.0, 0.17038392571223998, 0.10726203044637328, -0.015319437748624402,
        0.008273789163814023,
    ),
    (
        0.6241109587160757, 0.0, 0.0, -3.3608926294469414, -0.868219346841726, 27.59209969944671,
        20.154067550477894, -43.48988418106996,
    ),
    (
        0.47766253643826434, 0.0, 0.0, -2.4881146199716677, -0.590290826836843, 21.230051448181193,
        15.279233632882423, -33.28821096898486, -0.020331201708508627,
    ),
    (
        -0.9371424300859873, 0.0, 0.0, 5.186372428844064, 1.0914373489967295, -8.149787010746927,
        -18.52006565999696, 22.739487099350505, 2.4936055526796523, -3.0467644718982196,
    ),
    (
        2.273310147516538, 0.0, 0.0, -10.53449546673725, -2.0008720582248625, -17.9589318631188,
        27.94888452941996, -2.8589982771350235, -8.87285693353063, 12.360567175794303, 0.6433927460157636,
    ),
)  # fmt: skip
"""Of stages 2, 3, …: what each earlier slope counts."""
_FINAL = (
    0.054293734116568765, 0.0, 0.0, 0.0, 0.0, 4.450312892752409, 1.8915178993145003, -5.801203960010585,
    0.3111643669578199, -0.1521609496625161, 0.20136540080403034, 0.04471061572777259,
)  # fmt: skip
_THIRD = (
    -0.18980075407240762, 0.0, 0.0, 0.0, 0.0, 4.450312892752409, 1.8915178993145003, -5.801203960010585,
    -0.4226823213237919, -0.1521609496625161, 0.20136540080403034, 0.02265179219836082, 0.0,
)  # fmt: skip
_FIFTH = (
    0.01312004499419488, 0.0, 0.0, 0.0, 0.0, -1.2251564463762044, -0.4957589496572502, 1.6643771824549864,
    -0.35032884874997366, 0.3341791187130175, 0.08192320648511571, -0.022355307863886294, 0.0,
)  # fmt: skip
"""Estimates of the error, of orders 3 and 5; the last entry is that of the slope at the end."""

_STAGES = len(_ROWS) + 1


def _square(rows: tuple[tuple[float, ...], ...]) -> Vector:
    weights = np.zeros((_STAGES, _STAGES))
    for stage, row in enumerate(rows, 1):
        weights[stage, :stage] = row
    weights.flags.writeable = False
    return weights


def _fixed(numbers: tuple[float, ...]) -> Vector:
    made = np.array(numbers)
    made.flags.writeable = False
    return made


WEIGHTS = _square(_ROWS)
FINAL = _fixed(_FINAL)
_ERRORS = np.array([_THIRD, _FIFTH])
_ERRORS.flags.writeable = False
_SAFETY, _SHORTEST, _LONGEST = 0.9, 0.2, 10.0


def _step(rates: Rates, y: Vector, slopes: npt.NDArray[Any], step: float | Vector) -> Vector:
    """Take a step whose first slope is known; the other slopes are written behind it."""
    flat = slopes.reshape(len(slopes), -1)
    shape = y.shape
    for stage in range(1, _STAGES):
        slopes[stage] = rates(y + step * (WEIGHTS[stage, :stage] @ flat[:stage]).reshape(shape))
    return np.asarray(y + step * (FINAL @ flat[:_STAGES]).reshape(shape))


def path(rates: Rates, start: Vector, end: float, *, rtol: float, atol: float) -> tuple[Vector, Vector]:
    """Integrate from 0 to `end`: times of the steps, and the states there, [entry, …, time].

    With columns, [entry, column], a step is right for each of them.
    """
    y, time = start, 0.0
    slopes = np.empty((_STAGES + 1, *start.shape))
    flat = slopes.reshape(_STAGES + 1, -1)
    slopes[0] = rates(y)
    step = _first_step(rates, y, slopes[0], end, rtol, atol)
    times, states = [0.0], [y]
    while time < end:
        shortened = False
        while True:
            if not step > 10.0 * math.ulp(time):
                raise ArithmeticError(f"the equation cannot be integrated beyond {time!r}")
            step = min(step, end - time)
            moved = _step(rates, y, slopes, step)
            slopes[-1] = rates(moved)
            scale = atol + np.maximum(np.abs(y), np.abs(moved)) * rtol
            third, fifth = (_ERRORS @ flat).reshape(2, *y.shape) / scale
            error = _error_norm(third, fifth, step)
            if error < 1.0:
                break
            step *= max(_SHORTEST, _SAFETY * error**-0.125) if math.isfinite(error) else _SHORTEST
            shortened = True
        time = end if step == end - time else time + step
        y = moved
        slopes[0] = slopes[-1]
        times.append(time)
        states.append(y)
        factor = min(_LONGEST, _SAFETY * error**-0.125) if error > 0.0 else _LONGEST
        step *= min(factor, 1.0) if shortened else factor
    return np.array(times), np.stack(states, axis=-1)


def _error_norm(third: Vector, fifth: Vector, step: float) -> float:
    high, low = (fifth * fifth).sum(axis=0), (third * third).sum(axis=0)
    whole = np.sqrt((high + 0.01 * low) * len(third))
    return float(np.max(step * high / np.where(whole > 0.0, whole, 1.0)))


def _first_step(rates: Rates, y: Vector, slope: Vector, end: float, rtol: float, atol: float) -> float:
    scale = atol + np.abs(y) * rtol
    size = math.sqrt(y.size)

    def norm(values: Vector) -> float:
        return float(np.linalg.norm(values)) / size

    d0, d1 = norm(y / scale), norm(slope / scale)
    first = min(1e-6 if d0 < 1e-5 or d1 < 1e-5 else 0.01 * d0 / d1, end)
    d2 = norm((rates(y + first * slope) - slope) / scale) / first
    still = max(d1, d2) <= 1e-15
    second = max(1e-6, first * 1e-3) if still else float((0.01 / max(d1, d2)) ** (1.0 / 8.0))
    return min(100.0 * first, second, end)


def between(rates: Rates, times: Vector, states: Vector, wanted: Vector) -> Vector:
    """Return the states at other times, [entry, time]: each by a step of its own from the last one before it.

    `rates` must take columns of states.
    """
    place = np.clip(np.searchsorted(times, wanted, side="right") - 1, 0, len(times) - 1)
    y = states[:, place]
    slopes = np.empty((_STAGES, *y.shape))
    slopes[0] = rates(y)
    return _step(rates, y, slopes, wanted - times[place])

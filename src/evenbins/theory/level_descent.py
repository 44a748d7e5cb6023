"""The best thresholds near some that are nearly right, each with its best loads (`level_loads`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from evenbins.theory.level_loads import Curves, best_loads
from evenbins.theory.shape_search import Bounds, Given, Goal

__all__ = ["Descent"]

Vector = npt.NDArray[np.float64]
_Levels = list[tuple[float, int]]  # arrivals per block, threshold
_Marks = tuple[int, ...]

_SLACK = 1.0 + 1e-7
_INSIDE = 1.0 - 2e-4  # where a bound is held: scaling to the goal moves it a little
_GAIN = 1e-6  # what other thresholds must gain: less may be rounding
_MOST_ROUNDS = 8
_TOGETHER = 3  # thresholds that are moved together
_FILL_STEPS = (4, 2, 1)  # set bits, of 512


class Problem(Protocol):
    """What is searched for, as `shapes_by_level.Stepped` has it."""

    goal: Goal
    bounds: Bounds
    given: Given
    block_bits: int
    list_price: float
    is_fill: bool

    def columns(self, hashes: int, coin: float, thresholds: Sequence[int]) -> Vector:
        """Return F and C after n arrivals, [n, threshold] of each, one after the other."""


class Descent:
    """The search around given levels, for a number of hashes and a coin.

    `free` is whether the best thresholds found keep the bounds by themselves.
    """

    def __init__(self, problem: Problem, hashes: int, coin: float) -> None:
        self.problem, self.hashes, self.coin = problem, hashes, coin
        bounds = problem.bounds
        self.limits = {
            name: limit
            for name in ("overflow", "reads", "miss_reads")
            if math.isfinite(limit := getattr(bounds, name))
        }
        self.seen: set[_Marks] = set()
        self.within: dict[_Marks, tuple[float, _Levels]] = {}  # value and levels, bounds kept
        self.anyhow: dict[_Marks, tuple[float, _Levels]] = {}  # and as if there were none
        self.broken: dict[_Marks, tuple[str, ...]] = {}  # bounds that are broken if nothing holds them
        self.free = True

    def best(self, starts: Sequence[_Levels]) -> _Levels | None:
        """Return the best levels within the bounds, near some of these; None if there are none.

        Steps lead on from the best thresholds within the bounds, and from the best that may break them.
        """
        problem = self.problem
        self._solve(starts)
        steps: Sequence[int] = (1,)
        if problem.is_fill:
            steps = sorted({max(each * problem.block_bits // 512, 1) for each in _FILL_STEPS}, reverse=True)
        for step in steps if problem.given.thresholds is None else ():
            centres: set[_Marks] = set()
            for _ in range(_MOST_ROUNDS):
                leaders = [each for each in self._leaders() if each[1] not in centres]
                if not leaders:
                    break
                for _, marks, levels in leaders:
                    centres.add(marks)
                    self._solve(self._near(levels, step))
        leaders = self._leaders()
        within = min((each for each in self.within.values()), key=lambda each: each[0], default=None)
        self.free = within is not None and within[0] <= leaders[-1][0] * (1.0 + _GAIN)
        return None if within is None else within[1]

    def _leaders(self) -> list[tuple[float, _Marks, _Levels]]:
        """Return the best levels within the bounds, if any, and the best without them."""
        found = []
        for table in (self.within, self.anyhow):
            if table:
                marks = min(table, key=lambda each: (_rounded(table[each][0]), each))
                found.append((table[marks][0], marks, table[marks][1]))
        return found

    def _near(self, levels: _Levels, step: int) -> list[_Levels]:
        """Return the levels with each threshold a step lower, as it is, or a step higher.

        Of more than three thresholds one at a time.
        """
        fill = self.problem.is_fill
        marked = len(levels) - fill
        top = self.problem.block_bits if fill else 65534
        choices: Iterable[tuple[int, ...]] = itertools.product((-step, 0, step), repeat=marked)
        if marked > _TOGETHER:
            choices = [
                tuple(move * (each == level) for each in range(marked))
                for level in range(marked)
                for move in (-step, step)
            ]
        found = []
        for moves in choices:
            other = [
                (load * max(1.0 + 0.5 * move / max(mark, 1), 0.5), mark + move)
                for (load, mark), move in zip(levels[:marked], moves, strict=True)
            ]
            if all(fill <= mark <= top for _, mark in other):
                found.append(other + levels[marked:])
        return found

    def _solve(self, candidates: Sequence[_Levels]) -> None:
        """Find the best loads of candidates that are new."""
        marks = [tuple(mark for _, mark in each) for each in candidates]
        new = {mark: each for mark, each in zip(marks, candidates, strict=True) if mark not in self.seen}
        if not new:
            return
        self.seen |= new.keys()
        self._newton(list(new.values()), ())
        groups: dict[tuple[str, ...], list[_Levels]] = {}
        for mark, each in new.items():
            if mark not in self.within:
                held = self.broken.get(mark, ())
                groups.setdefault(held, []).append(self.anyhow[mark][1] if mark in self.anyhow else each)
        unknown = groups.pop((), [])  # no loads were found; with bounds held there may be some
        if unknown and not self.within and self.limits:
            held = max(groups, key=len, default=tuple(self.limits)[:1])
            groups[held] = groups.get(held, []) + unknown
        for held, candidates in groups.items():
            least = min((each[0] for each in self.within.values()), default=math.inf)
            left = [
                each
                for each in candidates
                if self.anyhow.get(tuple(mark for _, mark in each), (0.0,))[0] < least
            ]
            if left:
                self._newton(left, held)

    def _newton(self, candidates: list[_Levels], held: tuple[str, ...]) -> None:
        """Find the best loads with some bounds held, and keep those within all of them."""
        problem = self.problem
        marks = sorted({mark for each in candidates for _, mark in each})
        place = {mark: number for number, mark in enumerate(marks)}
        columns = problem.columns(self.hashes, self.coin, marks)
        price = 0.0 if problem.is_fill else problem.list_price / problem.block_bits
        blocks = None if problem.goal.bits is None else problem.goal.bits / problem.block_bits
        found = best_loads(
            Curves(columns[:, ::2], columns[:, 1::2]),
            np.array([[place[mark] for _, mark in each] for each in candidates]),
            np.array([[load for load, _ in each] for each in candidates]),
            price, fpr=problem.goal.fpr, blocks=blocks,
            held={name: self.limits[name] * _INSIDE for name in held},
        )  # fmt: skip
        values = found.blocks if problem.goal.fpr is not None else found.rate
        within = found.converged.copy()
        kept: dict[str, npt.NDArray[np.bool_]] = {}
        for name, limit in self.limits.items():
            kept[name] = found.bounded[name] <= limit * _SLACK
            within &= kept[name]
        for number, each in enumerate(candidates):
            marks_of = tuple(mark for _, mark in each)
            loads = found.loads[number].tolist()
            entry = float(values[number]), list(zip(loads, marks_of, strict=True))
            if not held and found.converged[number]:
                self.anyhow[marks_of] = entry
                self.broken[marks_of] = tuple(name for name in self.limits if not kept[name][number])
            if within[number] and entry[0] < self.within.get(marks_of, (math.inf,))[0]:
                self.within[marks_of] = entry


def _rounded(value: float) -> int:
    """Return a number by which values that differ by rounding alone are equal, nearly always."""
    return round(math.log(max(value, 1e-300)) / _GAIN)

"""The best levels of a filter for a goal: a dynamic programme over what is left of it, level by level.

What is asked of a filter nests: with F, C and w of a level (`shapes`),

    rate = F + C * (rate below)         blocks per key = 1/load + w * (blocks per key below)

So the least rate for a memory, or the least memory for a rate, is a recursion in one number, `left`, the part
of the goal that is left for an arriving key:

    least(left) = min over levels of  value + value_factor * least_below((left - cost) / cost_factor)

with (cost, value) = (1/load, F) for a memory that is given, and (F, 1/load) for a rate. That is exact, for
whole thresholds too; a price on the rate instead would find the convex envelope alone, and thresholds of a
dozen keys leave a third between it and the optimum. Below the last level lies the list, at a price; the last
level of "fill" is never full.

Cells, a grid of (load, threshold), are coarse at first; then each level is looked at more closely around its
choice, twice. Invariants: the best cell is that of the lowest index among equals, whatever the platform adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Cells", "Fronts", "Prices"]

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_LOG_NEVER = 200.0
_NEVER = math.exp(_LOG_NEVER)  # what is out of reach costs
_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class Cells:
    """Levels on a grid, [load, threshold]."""

    loads: Vector
    thresholds: Sequence[int]
    positive: Vector  # F
    passes: Vector  # C
    passed: Vector  # w


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a read and of a key turned away, in blocks; of a miss's read, in parts of the rate."""

    read: float = 0.0
    turned: float = 0.0
    miss: float = 0.0


Front = Callable[[Vector], Vector]


class Fronts:
    """The programme for levels of given cells, first to last.

    `list_blocks` is the price of a key on the list, in blocks. `grids` are points of what may be left for
    each level but the first.
    """

    def __init__(
        self, cells: Sequence[Cells], *, by_rate: bool, prices: Prices, list_blocks: float,
        grids: Sequence[Vector],
    ) -> None:  # fmt: skip
        self.cells, self.by_rate, self.prices = cells, by_rate, prices
        self.list_blocks = list_blocks + prices.turned
        self.below: dict[int, Front] = {}
        for level in range(len(cells) - 1, 0, -1):
            grid = grids[level]
            values = self.values(level, grid)
            self.below[level - 1] = self._between(grid, values.reshape(len(grid), -1).min(axis=1))

    def _between(self, grid: Vector, values: Vector) -> Front:
        """Return a function between points: memory is about linear in the logarithm of the rate."""
        values = np.minimum(values, _NEVER)
        if self.by_rate:
            logs = np.log(grid)
            return lambda left: np.interp(np.log(np.maximum(left, 1e-300)), logs, values, left=_NEVER)
        log_rates = np.log(np.maximum(values, 1e-300))
        return lambda left: np.asarray(np.exp(np.interp(left, grid, log_rates, left=_LOG_NEVER)))

    def _last_curves(self) -> list[tuple[Vector, Vector, Vector]]:
        """Return, for each threshold of the last level, the logarithms of loads, the blocks and the rates.

        Loads run up to that of least memory: with more arrivals than that the list grows faster than the
        blocks become fewer.
        """
        cells, prices = self.cells[-1], self.prices
        blocks = (1.0 / cells.loads + prices.read)[:, None] + cells.passed * self.list_blocks
        rates = cells.positive + prices.miss
        logs = np.log(cells.loads)
        ends = blocks.argmin(axis=0) + 1
        return [(logs[:end], blocks[:end, mark], rates[:end, mark]) for mark, end in enumerate(ends.tolist())]

    def _last_values(self, left: Vector) -> Vector:
        """Return the value of the last level, [left, threshold]; between its loads as between all points."""
        found = np.empty((len(left), len(self.cells[-1].thresholds)))
        for mark, (_, blocks, rates) in enumerate(self._last_curves()):
            if self.by_rate:
                logs = np.log(np.maximum(left, 1e-300))
                found[:, mark] = np.interp(logs, np.log(rates), blocks, left=_NEVER)
            else:
                by_blocks = np.interp(left, blocks[::-1], np.log(rates[::-1]), left=_LOG_NEVER)
                found[:, mark] = np.exp(by_blocks)
        return found

    def values(self, level: int, left: Vector) -> Vector:
        """Return the value of each cell of a level with the best levels below it, [left, load, threshold].

        Of the last level the loads follow from what is left: [left, threshold].
        """
        if level == len(self.cells) - 1:
            return self._last_values(left)
        cells, prices = self.cells[level], self.prices
        blocks = (1.0 / cells.loads + prices.read)[:, None]
        rates = cells.positive + prices.miss
        below = self.below[level]
        if self.by_rate:
            return blocks + cells.passed * below((left[:, None, None] - rates) / cells.passes)
        return rates + cells.passes * below((left[:, None, None] - blocks) / cells.passed)

    def _rest(self, level: int, row: int, mark: int, left: float) -> float:
        """Return what a cell leaves for the levels below."""
        cells, prices = self.cells[level], self.prices
        if self.by_rate:
            return float((left - cells.positive[row, mark] - prices.miss) / cells.passes[row, mark])
        return float((left - 1.0 / cells.loads[row] - prices.read) / cells.passed[row, mark])

    def trace(
        self, left: float, first: int = 0, mark: int | None = None
    ) -> tuple[list[tuple[float, int]], list[float]]:
        """Return (load, threshold) of all levels for the goal, and what was left for each.

        Levels before `first` are left out. `mark` is the place of that one's threshold; the best if None.
        """
        chosen: list[tuple[float, int]] = []
        lefts: list[float] = []
        for level in range(first, len(self.cells)):
            lefts.append(left)
            cells = self.cells[level]
            values = self.values(level, np.array([left]))[0]
            if level == len(self.cells) - 1:
                mark = _least(values) if mark is None else mark
                logs, blocks, rates = self._last_curves()[mark]
                if self.by_rate:
                    log = np.interp(math.log(max(left, 1e-300)), np.log(rates), logs)
                else:
                    log = np.interp(left, blocks[::-1], logs[::-1])
                chosen.append((math.exp(float(log)), cells.thresholds[mark]))
                break
            mark = _least(values.min(axis=0)) if mark is None else mark
            row = _least(values[:, mark])
            chosen.append((float(cells.loads[row]), cells.thresholds[mark]))
            left, mark = self._rest(level, row, mark, left), None
        return chosen, lefts


def _least(values: Vector) -> int:
    """Return the place of the least value: the first of those that differ from it by rounding alone."""
    return int(np.argmax(values <= values.min() * (1.0 + _TIE)))

"""What is searched for the best shape of a balanced filter, and what all searches share (see `shapes`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evenbins.theory import block
from evenbins.theory import fpr as theory

__all__ = ["LIST_BITS", "Bounds", "Given", "Goal", "Search", "Shape", "distinct"]

Integers = npt.NDArray[np.int64]

LIST_BITS = 64 * 4 / 3
"""Bits of the list for each key on it: 8 bytes, three quarters full."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Either a rate to reach with the least memory, or a memory to use for the least rate."""

    fpr: float | None
    bits: float | None  # for each key, the list included

    def missed(self, shape: Shape) -> float:
        """Return by how much a shape misses the goal; 0 when it meets it."""
        if self.fpr is not None:
            return max(shape.fpr / self.fpr - 1.0 - 1e-9, 0.0)
        assert self.bits is not None
        return max(shape.bits / self.bits - 1.0 - 1e-9, 0.0)

    def better(self, one: Shape, other: Shape) -> bool:
        """Return whether the first shape serves the goal better."""
        return one.bits < other.bits if self.fpr is not None else one.fpr < other.fpr


@dataclass(frozen=True, slots=True)
class Bounds:
    """Upper bounds; infinity is none."""

    reads: float = math.inf
    miss_reads: float = math.inf
    overflow: float = math.inf

    def hold(self, shape: Shape) -> bool:
        """Return whether the shape keeps them."""
        return not self.broken(shape)

    def broken(self, shape: Shape) -> list[str]:
        """Name the bounds that the shape breaks."""
        slack = 1.0 + 1e-9
        return [
            name
            for name in ("overflow", "reads", "miss_reads")
            if getattr(shape, name) > getattr(self, name) * slack
        ]


@dataclass(frozen=True, slots=True)
class Given:
    """What is not to be chosen; None is free. `choices` is the most that may be used."""

    hashes: int | None = None
    thresholds: tuple[int, ...] | None = None
    coin: float | None = None
    shares: tuple[float, ...] | None = None
    choices: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A filter of infinitely many blocks: its numbers, and its behaviour."""

    policy: str
    hashes: int
    choices: int
    thresholds: tuple[int, ...]
    coin: float
    blocks: tuple[float, ...]  # for each key
    bits: float  # for each key, the list included
    fpr: float
    reads: float
    miss_reads: float
    overflow: float


def distinct(numbers: npt.NDArray[np.generic]) -> Integers:
    """Sort whole numbers, each once (numpy.unique would import numpy.ma: 20 ms)."""
    return np.array(sorted({int(each) for each in numbers.tolist()}), dtype=np.int64)


class Search:
    """What the searches share: the scale of the problem, and the walk over hashes."""

    def __init__(
        self, policy: str, block_bits: int, goal: Goal, bounds: Bounds, given: Given, list_price: float
    ) -> None:
        self.policy, self.block_bits, self.goal = policy, block_bits, goal
        self.bounds, self.given, self.list_price = bounds, given, list_price
        self._scale()

    def _scale(self) -> None:
        """Set the scale, keys per block and hashes: that of a blocked filter for the same goal."""
        block_bits, goal, given = self.block_bits, self.goal, self.given
        many = 10**6
        if goal.bits is not None:
            blocks = max(math.ceil(many * goal.bits / block_bits), 1)
        else:
            assert goal.fpr is not None
            floor = 2.0 * theory.digest_floor(many)
            blocks = theory.blocked_blocks(many, max(goal.fpr, floor), block_bits, given.hashes)
        self.load = min(many / blocks, float(block.KEYS_PER_BIT * block_bits))
        self.hashes = given.hashes or theory.best_hashes_blocked(blocks, block_bits, many)
        self.fpr = goal.fpr or theory.blocked(blocks, block_bits, self.hashes, many) / 3.0
        if given.hashes is None:
            full = math.log(2.0) * block_bits / self.load
            self.hashes = round(0.5 * (self.hashes + full))
            self.hashes = max(1, min(theory.MAX_HASHES_BLOCKED, self.hashes))

    def walk_hashes(self, value: Callable[[int], float]) -> int:
        """Find the number of hashes of least value, downhill from the guess."""
        if self.given.hashes is not None:
            return self.given.hashes
        seen: dict[int, float] = {}

        def known(k: int) -> float:
            if k not in seen:
                seen[k] = value(k) if 1 <= k <= theory.MAX_HASHES_BLOCKED else math.inf
            return seen[k]

        best = self.hashes
        step = -1 if known(best - 1) < known(best) else 1
        while known(best + step) < known(best):
            best += step
        return best

    def best(self) -> Shape:
        """Find the best shape."""
        raise NotImplementedError

    def at_goal(self, shape_at: Callable[[float], Shape], start: float, widest: float = 1e6) -> Shape:
        """Change the scale of the loads, up to `widest` times, until the goal is just met.

        The rate and 1/memory grow with the scale, until a table with a threshold is full. Returned
        is the best shape seen that meets the goal, or, if none did, the last one seen.
        """
        by_rate = self.goal.fpr is not None
        best: Shape | None = None
        low, high = 0.0, math.inf  # logarithms' exponentials: scales too small, too large
        scale, slope = start, 0.7 * self.hashes if by_rate else 1.0
        before: tuple[float, float] | None = None
        for _ in range(30):
            shape = shape_at(scale)
            value = self._excess(shape)
            meets = value <= 0.0 if by_rate else value >= 0.0
            if meets and (best is None or self.goal.better(shape, best)):
                best = shape
            if value <= 0.0:
                low = max(low, scale)
            if value >= 0.0:
                high = min(high, scale)
            if (meets and abs(value) < 2e-5) or high <= low * (1.0 + 1e-9):
                break
            if before is not None and scale != before[0]:
                found = (value - before[1]) / math.log(scale / before[0])
                slope = max(found, 0.05 * slope)
            before = (scale, value)
            if value <= 0.0 and scale >= widest * start * 0.999:
                break
            aim = value + 1e-5 if by_rate else value - 1e-5
            scale *= math.exp(max(min(-aim / slope, 0.7), -0.7))
            scale = min(scale, widest * start)
            if not low < scale < high:
                scale = math.sqrt(low * high) if low and high < math.inf else (1.5 * low or high / 1.5)
        return best if best is not None else shape

    def _excess(self, shape: Shape) -> float:
        """Compare rate with goal, or goal with memory: positive when loads are too large for it."""
        if self.goal.fpr is not None:
            return math.log(max(shape.fpr, 1e-300) / self.goal.fpr)
        assert self.goal.bits is not None
        return math.log(self.goal.bits / shape.bits)

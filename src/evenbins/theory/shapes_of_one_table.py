"""The best shape of a filter of one table: single, sequential, two-choice (see `shapes`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from evenbins.theory import block, levels, two_choices
from evenbins.theory.caching import cached
from evenbins.theory.cores import COIN_UNIT, BalancedCore, counter_bits
from evenbins.theory.fpr import MAX_HASHES_BLOCKED
from evenbins.theory.shape_search import Bounds, Search, Shape, distinct
from evenbins.theory.two_choice_hashes import best_hashes_at_load, best_hashes_for_rate, load_for_rate

__all__ = ["OneTable", "Paired"]

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class OneTable(Search):
    """Single and sequential: the whole grid of attempts and thresholds."""

    def best(self) -> Shape:
        """Find the best shape: hashes, then the coin."""
        coin = self.given.coin or 0.0
        choices = 1 if self.policy == "single" else self.given.choices
        found: dict[tuple[int, float, int], Shape | None] = {}

        def at(hashes: int, coin: float, count: int) -> Shape | None:
            key = (hashes, coin, count)
            if key not in found:
                found[key] = self._scan(hashes, coin, count)
            return found[key]

        def value(shape: Shape | None) -> float:
            if shape is None:
                return math.inf
            return shape.bits if self.goal.fpr is not None else math.log(max(shape.fpr, 1e-300))

        best: Shape | None = None
        for count in range(1 if self.policy == "single" else min(2, choices), choices + 1):
            hashes = self.walk_hashes(lambda k, count=count: value(at(k, coin, count)))  # type: ignore[misc]
            self.hashes = hashes
            one = at(hashes, coin, count)
            if one is not None and value(one) < value(best):
                best = one
        if best is None:
            return self._nearest(choices, coin)
        if self.given.coin is None:
            best = self._with_coin(best, at, value)
        return self._refine(best)

    def _with_coin(
        self, best: Shape, at: Callable[..., Shape | None], value: Callable[[Shape | None], float]
    ) -> Shape:
        """Try coins, and with each one hash more or fewer: a coin is as good as a part of a threshold."""
        for coins in ((0.25, 0.5, 0.75), (-0.12, 0.12), (-0.05, 0.05)):
            centre = best.coin if coins[0] < 0.0 else 0.0
            for coin in (round(centre + each, 2) for each in coins):
                if not 0.0 <= coin < 1.0:
                    continue
                for hashes in (best.hashes, best.hashes - 1, best.hashes + 1):
                    if (self.given.hashes or hashes) != hashes or not 1 <= hashes <= MAX_HASHES_BLOCKED:
                        continue
                    one = at(hashes, coin, best.choices)
                    if one is not None and value(one) < value(best) - self._worth(best):
                        best = one
        return best

    def _worth(self, shape: Shape) -> float:
        """Return what a coin must gain."""
        return 0.001 * shape.bits if self.goal.fpr is not None else 0.001

    def _scan(self, hashes: int, coin: float, choices: int) -> Shape | None:
        load = self.load
        if self.given.thresholds is not None:
            thresholds = np.array([self.given.thresholds[0]])
        else:
            top = 1.15 * load + 6.0 * math.sqrt(load) + 3.0
            marks = np.linspace(max(load - 2.0 * math.sqrt(load), 0.0), top, 56)
            thresholds = distinct(np.floor(marks))
        end = 1.6 * load * min(choices, 1.5) + 2.0
        points = 200
        attempts = np.linspace(0.0, end, points)
        most = block.reach(end)
        chance = _even_arrivals(end, points, most)
        width = np.array([counter_bits(each) for each in thresholds.tolist()])
        best: Shape | None = None
        for each in distinct(width):
            marks = thresholds[width == each]
            f, c, _, _ = block.counted_level(self.block_bits - int(each), hashes, marks, coin, most)
            one = self._read_off(hashes, coin, choices, marks, attempts, chance @ f, chance @ c)
            if one is not None and (best is None or self.goal.better(one, best)):
                best = one
        return best

    def _read_off(
        self, hashes: int, coin: float, choices: int, marks: Integers, attempts: Vector, f: Vector, c: Vector
    ) -> Shape | None:
        """Take the best point of the grid that meets goal and bounds."""
        step = float(attempts[1] - attempts[0])
        walks = block.geometric(c, choices)
        pace = 1.0 / walks
        spent, changed, listed = block.per_key(f, c, choices)
        keys = np.maximum(block.running_integral(pace, step), 1e-12)
        changed = np.maximum(block.running_integral(changed * pace, step), 1e-12)
        listed = np.maximum(block.running_integral(listed * pace, step), 0.0)
        reads = block.running_integral(spent * pace, step) / changed
        overflow = listed / changed
        bits = self.block_bits / keys + self.list_price * listed / keys
        rate = f * walks
        places = [self._place(bits, rate, reads, walks, overflow, mark) for mark in range(len(marks))]

        def read(values: Vector, mark: int) -> float:
            """Read values off between two points of the grid."""
            place = places[mark]
            row = min(int(place), len(values) - 2)
            part = place - row
            return float(values[row, mark] * (1.0 - part) + values[row + 1, mark] * part)

        logs = np.log(np.maximum(rate, 1e-300))
        score = bits if self.goal.fpr is not None else logs
        found = [(read(score, mark), mark) for mark, place in enumerate(places) if place > 0.0]
        if not found:
            return None
        mark = min(found)[1]
        return Shape(
            policy=self.policy,
            hashes=hashes,
            choices=choices,
            thresholds=(int(marks[mark]),),
            coin=coin,
            blocks=(1.0 / read(keys, mark),),
            bits=read(bits, mark),
            fpr=math.exp(read(logs, mark)),
            reads=read(reads, mark),
            miss_reads=read(walks, mark),
            overflow=read(overflow, mark),
        )

    def _place(
        self, bits: Vector, rate: Vector, reads: Vector, walks: Vector, overflow: Vector, mark: int
    ) -> float:
        """Return where on the grid the goal is met best within the bounds, in points; 0 for nowhere.

        With the attempts the rate grows, and so does what is bounded; memory falls, until the list is what
        grows. For a memory that is where it is small enough, for a rate where nothing may grow any more.
        """
        limits = [
            (reads[1:, mark], self.bounds.reads), (walks[1:, mark], self.bounds.miss_reads),
            (overflow[1:, mark], self.bounds.overflow),
        ]  # fmt: skip
        memory, end = bits[1:, mark], len(bits) - 2.0
        if self.goal.fpr is not None:
            limits.append((rate[1:, mark], self.goal.fpr))
            end = min(end, float(np.argmin(memory)))
        for values, limit in limits:
            over = np.flatnonzero(values > limit * (1.0 + 1e-12))
            if len(over):
                end = min(end, _crossing(values, int(over[0]), limit, values is rate[1:, mark]))
        if self.goal.fpr is not None:
            return end + 1.0 if end >= 0.0 else 0.0
        assert self.goal.bits is not None
        under = np.flatnonzero(memory <= self.goal.bits)
        if not len(under):
            return 0.0
        start = _crossing(memory, int(under[0]), self.goal.bits, False)
        return start + 1.0 if 0.0 <= start <= end else 0.0

    def at_load(self, like: Shape, load: float) -> Shape:
        """Evaluate the same numbers at another load, exactly."""
        unit = 10**12
        core = BalancedCore.of(
            self.policy, self.block_bits, like.hashes, like.choices, round(like.coin * COIN_UNIT), 2**40,
            "least", 0, (max(round(unit / load), 1),), like.thresholds,
        )  # fmt: skip
        found = levels.steady(core, unit)
        keyed = found.overflow * found.changed
        return replace(
            like,
            blocks=(1.0 / load,),
            bits=self.block_bits / load + self.list_price * keyed,
            fpr=found.fpr,
            reads=found.reads,
            miss_reads=found.miss_reads,
            overflow=found.overflow,
        )

    def _refine(self, shape: Shape) -> Shape:
        """Move from the grid to the goal itself, unless a bound stands in the way."""
        other = self.at_goal(lambda scale: self.at_load(shape, scale), 1.0 / shape.blocks[0])
        if self.bounds.hold(other) and not self.goal.better(shape, other):
            return other
        exact = self.at_load(shape, 1.0 / shape.blocks[0])
        return exact if self.bounds.hold(exact) else shape

    def _nearest(self, choices: int, coin: float) -> Shape:
        """Return a shape at the goal that breaks the bounds, to say by how much."""
        bounds, self.bounds = self.bounds, Bounds()
        shape = self._scan(self.hashes, coin, choices)
        self.bounds = bounds
        if shape is not None:
            return shape
        return Shape(
            policy=self.policy, hashes=self.hashes, choices=choices, thresholds=self.given.thresholds or (0,),
            coin=coin, blocks=(1.0 / self.load,), bits=math.inf, fpr=1.0, reads=math.inf, miss_reads=math.inf,
            overflow=1.0,
        )  # fmt: skip


def _crossing(values: Vector, place: int, limit: float, by_logarithm: bool) -> float:
    """Return where values cross a limit between the point before `place` and this one; -1 if before all."""
    if place == 0:
        return -1.0
    one, two = float(values[place - 1]), float(values[place])
    if by_logarithm:
        one, two, limit = (math.log(max(each, 1e-300)) for each in (one, two, limit))
    return place - 1.0 + (limit - one) / (two - one)


@cached(8)
def _even_arrivals(end: float, points: int, most: int) -> Vector:
    return block.poisson(np.linspace(0.0, end, points), most)


class Paired(Search):
    """Two-choice: hashes from a table, and the load."""

    def _scale(self) -> None:
        """Set load and hashes, from the table."""
        bits, goal = self.block_bits, self.goal
        if goal.bits is not None:
            self.load = min(bits / goal.bits, float(block.KEYS_PER_BIT * bits))
            best = best_hashes_at_load(bits, self.load)
        else:
            assert goal.fpr is not None
            self.load = load_for_rate(bits, goal.fpr)
            best = best_hashes_for_rate(bits, goal.fpr)
        self.hashes = self.given.hashes or best

    def best(self) -> Shape:
        """Find the load at which the goal is met."""
        return self.at_goal(lambda load: self._at(self.hashes, load), self.load)

    def _at(self, hashes: int, load: float) -> Shape:
        load = min(load, float(block.KEYS_PER_BIT * self.block_bits))
        positive = two_choices.pair(self.block_bits, hashes).positive(load)
        return Shape(
            policy=self.policy,
            hashes=hashes,
            choices=2,
            thresholds=(),
            coin=0.0,
            blocks=(1.0 / load,),
            bits=self.block_bits / load,
            fpr=positive * (2.0 - positive),
            reads=2.0,
            miss_reads=2.0,
            overflow=0.0,
        )

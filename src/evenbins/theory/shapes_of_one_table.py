"""The best shape of a filter of one table: single, sequential, two-choice (see `shapes`)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from evenbins.theory import block, levels, two_choices
from evenbins.theory.caching import cached
from evenbins.theory.cores import COIN_UNIT, BalancedCore, counter_bits
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
            for other in (0.3, 0.6):
                one = at(best.hashes, other, best.choices)
                if one is not None and value(one) < value(best) - (
                    0.001 * best.bits if self.goal.fpr else 0.001
                ):
                    best = one
        return self._refine(best)

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
        allowed = (reads <= self.bounds.reads) & (walks <= self.bounds.miss_reads)
        allowed &= overflow <= self.bounds.overflow
        allowed[0] = False
        if self.goal.fpr is not None:
            allowed &= rate <= self.goal.fpr
            score = np.where(allowed, bits, np.inf)
        else:
            assert self.goal.bits is not None
            allowed &= bits <= self.goal.bits
            score = np.where(allowed, rate, np.inf)
        place = np.unravel_index(int(np.argmin(score)), score.shape)
        if not math.isfinite(float(score[place])):
            return None
        return Shape(
            policy=self.policy,
            hashes=hashes,
            choices=choices,
            thresholds=(int(marks[place[1]]),),
            coin=coin,
            blocks=(1.0 / float(keys[place]),),
            bits=float(bits[place]),
            fpr=float(rate[place]),
            reads=float(reads[place]),
            miss_reads=float(walks[place]),
            overflow=float(overflow[place]),
        )

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

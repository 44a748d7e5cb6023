"""The best shape of a filter of several levels: a dynamic programme over the price of a false positive.

With F the false positives of a level, C the chance that an absent key goes on and w that an arriving key
does, a filter nests twice, once for memory and once for its rate (`shapes` has the derivation):

    blocks = 1/load_0 + w_0*(1/load_1 + w_1*(…))       rate = F_0 + C_0*(F_1 + C_1*(…))
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evenbins.theory import block
from evenbins.theory.caching import cached
from evenbins.theory.cores import counter_bits
from evenbins.theory.shape_search import Bounds, Given, Goal, Search, Shape, distinct

__all__ = ["Stepped"]

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
_Levels = list[tuple[float, int]]  # arrivals per block, threshold

_LOADS = 72
_THRESHOLDS = 36
_PRICES = 40
_WORTH = (0.002, 0.03)  # what one more level must gain: of the memory, of the rate


@cached(4)
def _arrivals(low: float, high: float, count: int, most: int) -> tuple[Vector, Vector, Vector]:
    """Return loads on a geometric grid, P(N = n) and P(N > n) for each."""
    loads = np.geomspace(low, high, count)
    chance = block.poisson(loads, most)
    return loads, chance, block.more_than(chance)


@dataclass(frozen=True, slots=True)
class Cells:
    """Levels on a grid: one entry for each (load, threshold)."""

    load: Vector
    threshold: Integers
    positive: Vector  # F
    passes: Vector  # C
    passed: Vector  # w

    def only(self, mask: npt.NDArray[np.bool_]) -> Cells:
        """Keep some of them."""
        return Cells(
            self.load[mask], self.threshold[mask], self.positive[mask], self.passes[mask], self.passed[mask]
        )


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in blocks: of a read, a key turned away, and a miss's read relative to the rate."""

    read: float = 0.0
    turned: float = 0.0
    miss: float = 0.0


class Stepped(Search):
    """Multilevel and fill."""

    def __init__(
        self, policy: str, block_bits: int, goal: Goal, bounds: Bounds, given: Given, list_price: float
    ) -> None:
        super().__init__(policy, block_bits, goal, bounds, given, list_price)
        self.is_fill = policy == "fill"
        self.levels = given.choices
        if given.thresholds is not None:
            self.levels = len(given.thresholds) + (1 if self.is_fill else 0)
        elif given.shares is not None:
            self.levels = len(given.shares)
        load = self.load
        self.low, self.high = 0.3 * load, 1.7 * load + 3.0 * math.sqrt(load) + 1.0
        if given.thresholds and not self.is_fill:
            self.low = min(self.low, 0.3 * (min(given.thresholds) + 1.0))
        self.most = block.reach(self.high)
        self.coin = given.coin or 0.0
        self.prices = np.geomspace(1e-4, 1e6, _PRICES) / (0.48 * block_bits * self.fpr)
        self.counts: tuple[int, ...] | None = None  # levels to consider, all when None
        self.after: dict[tuple[int, float, int], Vector] = {}
        self.cells_of: dict[tuple[int, float, tuple[int, ...]], Cells] = {}

    # the grid

    def _thresholds(self, hashes: int) -> Integers:
        load = self.load
        reach = np.linspace(
            max(load - 3.0 * math.sqrt(load), 0.3), 1.15 * load + 4.0 * math.sqrt(load) + 1.0, _THRESHOLDS
        )
        if self.is_fill:
            bits = self.block_bits
            marks = np.rint(-bits * np.expm1(reach * block.hashes_log(bits, hashes)))
            return distinct(np.clip(marks, 1, bits))
        return distinct(np.clip(np.floor(reach), 0, 65534))

    def cells(self, hashes: int, coin: float, thresholds: Integers) -> Cells:
        """Compute F, C and w on the grid."""
        key = (hashes, coin, tuple(thresholds.tolist()))
        if key in self.cells_of:
            return self.cells_of[key]
        loads, chance, tail = _arrivals(self.low, self.high, _LOADS, self.most)
        positive, passes, passed = (np.empty((_LOADS, len(thresholds))) for _ in range(3))
        if self.is_fill:
            groups = [(self.block_bits, np.ones(len(thresholds), dtype=bool))]
        else:
            width = np.array([counter_bits(each) for each in thresholds.tolist()])
            groups = [(self.block_bits - int(each), width == each) for each in distinct(width)]
        for bits, mask in groups:
            if self.is_fill:
                f, c = block.fill_level(bits, hashes, thresholds[mask], self.most)
            else:
                f, c, _, _ = block.counted_level(bits, hashes, thresholds[mask], coin, self.most)
            positive[:, mask], passes[:, mask] = chance @ f, chance @ c
            passed[:, mask] = (tail @ c) / loads[:, None]
        grid = np.broadcast_to(loads[:, None], positive.shape)
        marks = np.broadcast_to(thresholds, positive.shape)
        found = Cells(
            grid.ravel(),
            marks.ravel(),
            positive.ravel(),
            np.maximum(passes, 1e-30).ravel(),
            np.maximum(passed, 1e-30).ravel(),
        )
        self.cells_of[key] = found
        return found

    def _level_cells(self, hashes: int, coin: float, level: int) -> Cells:
        if self.given.thresholds is not None:
            return self.cells(hashes, coin, np.array([self.given.thresholds[level]]))
        return self.cells(hashes, coin, self._thresholds(hashes))

    def _last_cells(self, hashes: int) -> Cells:
        """A level that is never full."""
        return self.cells(hashes, 0.0, np.array([self.block_bits + 1]))

    # the programme

    def _backup(self, cells: Cells, prices: Prices, below: Vector | float) -> Vector:
        """Return least(s) on the grid of prices, from the levels below."""
        fixed = 1.0 / cells.load + prices.read
        rate = cells.positive + prices.miss
        ratio = np.log(cells.passes / cells.passed)
        logs = np.log(self.prices)
        found = np.empty(_PRICES)
        for place in range(_PRICES):
            cost = fixed + self.prices[place] * rate
            if isinstance(below, float):
                cost = cost + cells.passed * below
            else:
                cost = cost + cells.passed * np.interp(logs[place] + ratio, logs, below)
            found[place] = cost.min()
        return found

    def fronts(self, hashes: int, coin: float, prices: Prices) -> list[Vector | float]:
        """Return least(s) with 0, 1, 2, … levels; with given thresholds only the last counts."""
        free = self.given.thresholds is None
        if self.is_fill:
            last = self._last_cells(hashes)
            start = 1.0 / last.load + prices.read
            rate = last.positive + prices.miss
            first: Vector = (start + self.prices[:, None] * rate).min(axis=1)
            result: list[Vector | float] = [math.inf, first]
        else:
            result = [self.list_price / self.block_bits + prices.turned]
        for count in range(len(result), self.levels + 1):
            level = 0 if free else self.levels - count
            result.append(self._backup(self._level_cells(hashes, coin, level), prices, result[-1]))
        return result

    def _dual(self, front: Vector, prices: Prices) -> tuple[float, int]:
        """Return the value of the goal by the envelope, and the place of its price."""
        bounds = self.bounds
        fixed = (prices.read * bounds.reads if prices.read else 0.0) + (
            prices.turned * bounds.overflow if prices.turned else 0.0
        )
        miss = prices.miss * bounds.miss_reads if prices.miss else 0.0
        if self.goal.fpr is not None:
            values = front - fixed - self.prices * (self.goal.fpr + miss)
        else:
            assert self.goal.bits is not None
            values = (front - fixed - self.goal.bits / self.block_bits) / self.prices - miss
        place = int(np.argmax(values))
        return float(values[place]), place

    def value(self, hashes: int, coin: float, prices: Prices) -> tuple[float, int, int]:
        """Return the goal's value, the number of levels, and the place of the price."""
        fronts = self.fronts(hashes, coin, prices)
        counts = self.counts or tuple(range(1, len(fronts)))
        if self.given.thresholds is not None:
            counts = (len(fronts) - 1,)
        best: tuple[float, int, int] | None = None
        for count in counts:
            front = fronts[count]
            assert isinstance(front, np.ndarray)
            value, place = self._dual(front, prices)
            if best is None or value < best[0] * (1.0 - _WORTH[self.goal.fpr is None]):
                best = value, count, place
        assert best is not None
        return best

    def _extract(self, hashes: int, coin: float, prices: Prices, count: int, price: float) -> _Levels:
        """Read the levels (load, threshold) off the programme."""
        fronts = self.fronts(hashes, coin, prices)
        logs = np.log(self.prices)
        chosen: _Levels = []
        free = self.given.thresholds is None
        for left in range(count, 0, -1):
            if self.is_fill and left == 1:
                cells = self._last_cells(hashes)
                cost = 1.0 / cells.load + price * (cells.positive + prices.miss)
            else:
                cells = self._level_cells(hashes, coin, 0 if free else self.levels - left)
                below = fronts[left - 1]
                ratio = np.log(cells.passes / cells.passed)
                rest = below if isinstance(below, float) else np.interp(math.log(price) + ratio, logs, below)
                cost = (
                    1.0 / cells.load
                    + prices.read
                    + price * (cells.positive + prices.miss)
                    + cells.passed * rest
                )
            place = int(np.argmin(cost))
            chosen.append((float(cells.load[place]), int(cells.threshold[place])))
            price *= float(cells.passes[place] / cells.passed[place])
        return chosen

    # one shape, exactly

    def shape(self, hashes: int, coin: float, chosen: _Levels) -> Shape:
        """Evaluate levels of given arrivals per block and thresholds."""
        bits, keys, stored, reads, blocks = 0.0, 1.0, 0.0, 0.0, []
        rate, walk, misses = 0.0, 1.0, 0.0
        for level, (load, threshold) in enumerate(chosen):
            f, c, thinned, passed = self.exact(hashes, coin, load, threshold)
            blocks.append(keys / load)
            bits += blocks[-1] * self.block_bits
            rate += walk * f
            misses += walk
            walk *= c
            accepted = keys * max(1.0 - thinned - passed, 0.0)
            stored += accepted
            reads += (level + 1) * accepted
            keys *= passed
        stored += keys
        reads += len(chosen) * keys
        return Shape(
            policy=self.policy,
            hashes=hashes,
            choices=len(chosen),
            thresholds=tuple(threshold for _, threshold in chosen),
            coin=coin,
            blocks=tuple(blocks),
            bits=bits + keys * self.list_price,
            fpr=min(rate, 1.0),
            reads=reads / stored,
            miss_reads=misses,
            overflow=keys / stored,
        )

    def exact(
        self, hashes: int, coin: float, load: float, threshold: int
    ) -> tuple[float, float, float, float]:
        """Return F and C at the end, and their means over the arrivals."""
        beyond = max(load / self.high, 1.0)
        load, most = min(load, self.high), self.most
        key = (hashes, coin, threshold)
        if key not in self.after:
            if self.is_fill:
                f, c = block.fill_level(self.block_bits, hashes, np.array([threshold]), most)
            else:
                key_bits = self.block_bits - counter_bits(threshold)
                f, c, _, _ = block.counted_level(key_bits, hashes, np.array([threshold]), coin, most)
            self.after[key] = np.concatenate([f, c], axis=1)
        chance = block.poisson(np.array([load]), most)[0]
        ends = chance @ self.after[key]
        means = block.more_than(chance) @ self.after[key] / load
        positive, passed = float(means[0]), float(means[1])
        if beyond > 1.0:  # a table as full as it gets: what it takes stays the same
            positive = float(ends[0])
            passed = max(1.0 - positive - (1.0 - float(means[0]) - passed) / beyond, passed)
        return float(ends[0]), float(ends[1]), positive, passed

    # the search

    def solve(self, hashes: int, coin: float, prices: Prices) -> tuple[Shape, _Levels]:
        """Find the best shape for given prices of the bounds, at the goal."""
        _, count, place = self.value(hashes, coin, prices)
        chosen = self._extract(hashes, coin, prices, count, float(self.prices[place]))
        return self.scale_to_goal(hashes, coin, chosen), chosen

    def scale_to_goal(self, hashes: int, coin: float, chosen: _Levels) -> Shape:
        """Scale all loads together until the goal is met."""
        return self.at_goal(
            lambda scale: self.shape(hashes, coin, [(scale * load, mark) for load, mark in chosen]), 1.0, 1.3
        )

    def best(self) -> Shape:
        """Find the best shape: hashes, then the prices of broken bounds, then its neighbours."""
        if self.given.shares is not None:
            return self._with_shares()
        prices = Prices()
        hashes = self.walk_hashes(lambda k: self.value(k, self.coin, prices)[0])
        shape, chosen = self.solve(hashes, self.coin, prices)
        if self.bounds.hold(shape):
            return self._polish(shape, chosen)
        best: Shape | None = None
        for count in range(max(len(chosen) - 1, 1), len(chosen) + 1):
            self.counts = (count,) if self.given.thresholds is None else None
            one, levels_of_one = self.solve(hashes, self.coin, prices)
            one = self._polish(*self._raise_prices(hashes, one, levels_of_one))
            if best is None or self.badness(one) < self.badness(best):
                best = one
        assert best is not None
        return best

    def _raise_prices(self, hashes: int, shape: Shape, chosen: _Levels) -> tuple[Shape, _Levels]:
        """Raise the prices of the bounds that are broken, one after the other, until all hold."""
        scale = 1.0 / self.load
        units = {"reads": scale, "overflow": 10.0 * scale, "miss_reads": self.fpr}
        names = {"reads": "read", "overflow": "turned", "miss_reads": "miss"}
        prices = {"read": 0.0, "turned": 0.0, "miss": 0.0}
        for _ in range(4):
            broken = self.bounds.broken(shape)
            if not broken:
                break
            bound = broken[0]
            name, limit = names[bound], getattr(self.bounds, bound)
            low, high = prices[name], max(2.0 * prices[name], units[bound] * 0.02)
            for _ in range(16):  # a price that is high enough
                trial = self.solve(hashes, self.coin, Prices(**(prices | {name: high})))
                if getattr(trial[0], bound) <= limit:
                    break
                low, high = high, 5.0 * high
            for _ in range(5):  # and not much higher
                middle = math.sqrt(low * high) if low else 0.25 * high
                one = self.solve(hashes, self.coin, Prices(**(prices | {name: middle})))
                if getattr(one[0], bound) <= limit:
                    high, trial = middle, one
                else:
                    low = middle
            prices[name] = high
            shape, chosen = trial
        return shape, chosen

    def _polish(self, shape: Shape, chosen: _Levels) -> Shape:
        """Leave the grid: try neighbours, one number at a time, each scaled to the goal."""
        best, value = shape, self.badness(shape)
        hashes, coin = shape.hashes, shape.coin
        free = self.given.thresholds is None
        marked = len(chosen) - (1 if self.is_fill else 0)
        for size in (4, 2, 1):
            mark_step = (3 * size - 2) * self.block_bits // 512 or 1 if self.is_fill else (size + 1) // 2
            moves: list[tuple[int, float, int, float]] = []
            for level in range(len(chosen)):
                moves += [(level, 1.0 + 0.02 * size, 0, 0.0), (level, 1.0 / (1.0 + 0.02 * size), 0, 0.0)]
                if free and level < marked:
                    along = mark_step / max(chosen[level][1], 1.0)  # load and threshold together
                    moves += [(level, 1.0, mark_step, 0.0), (level, 1.0, -mark_step, 0.0)]
                    moves += [(level, 1.0 + along, mark_step, 0.0), (level, 1.0 - along, -mark_step, 0.0)]
            if not self.is_fill and self.given.coin is None:
                moves += [(0, 1.0, 0, 0.1 * size), (0, 1.0, 0, -0.1 * size)]
            improved = True
            rounds = 0
            while improved and rounds < 4:
                improved, rounds = False, rounds + 1
                for level, factor, marks, flip in moves:
                    other = list(chosen)
                    load, mark = other[level]
                    other[level] = (load * factor, mark + marks)
                    top = self.block_bits if self.is_fill else 65534
                    if factor <= 0.0 or not (
                        0 <= coin + flip <= 1 and (marks == 0 or self.is_fill <= mark + marks <= top)
                    ):
                        continue
                    trial = self.scale_to_goal(hashes, coin + flip, other)
                    if self.badness(trial) < value - (1e-3 if flip > 0.0 else 1e-5):
                        best, value = trial, self.badness(trial)
                        chosen, coin, improved = other, coin + flip, True
        return best

    def badness(self, shape: Shape) -> float:
        """Weigh a shape at the goal: less is better, and broken bounds are worse than all else."""
        value = math.log(max(shape.bits if self.goal.fpr is not None else shape.fpr, 1e-300))
        value += 1e6 * self.goal.missed(shape)
        return value + 1e3 * math.fsum(
            getattr(shape, name) / getattr(self.bounds, name) for name in self.bounds.broken(shape)
        )

    def _with_shares(self) -> Shape:
        """Search with given sizes of the tables: one threshold for all of them, or those given."""
        shares = self.given.shares
        assert shares is not None
        given = self.given.thresholds

        def at(hashes: int, threshold: int) -> Shape:
            marks = given if given is not None else (threshold,) * (len(shares) - (1 if self.is_fill else 0))
            marks = (*marks, self.block_bits + 1) if self.is_fill else marks

            def shape_at(load: float) -> Shape:
                keys, chosen = 1.0, []
                for share, mark in zip(shares, marks, strict=True):
                    chosen.append((max(keys * load / share, 1e-9), mark))
                    keys *= self.exact(hashes, self.coin, *chosen[-1])[3]
                return self.shape(hashes, self.coin, chosen)

            return self.at_goal(shape_at, self.load)

        def best_at(hashes: int) -> Shape:
            marks = self._thresholds(hashes) if given is None else np.array([0])
            seen: dict[int, Shape] = {}

            def known(place: int) -> float:
                if place not in seen:
                    seen[place] = at(hashes, int(marks[place]))
                return self.badness(seen[place])

            low, high = 0, len(marks) - 1
            while high - low > 2:
                third = (high - low) // 3
                one, two = low + third, high - third
                if known(one) <= known(two):
                    high = two
                else:
                    low = one
            return seen[min(range(low, high + 1), key=known)]

        hashes = self.walk_hashes(lambda k: self.badness(best_at(k)))
        return best_at(hashes)

"""The best shape of a filter of several levels, multilevel or fill: hashes, thresholds, loads, coin.

For a number of hashes, `level_fronts` finds thresholds and loads on a coarse grid of both, and then closer
and closer around the best choices. Bounds that the result breaks are given a price, which is raised until
they hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from evenbins.theory import block
from evenbins.theory.cores import counter_bits
from evenbins.theory.fpr import MAX_HASHES_BLOCKED
from evenbins.theory.level_descent import Descent
from evenbins.theory.level_fronts import Cells, Fronts, Prices
from evenbins.theory.shape_search import Bounds, Given, Goal, Search, Shape, distinct
from evenbins.theory.two_choice_hashes import best_hashes_at_load, load_for_rate, rate_at_load

__all__ = ["Stepped"]

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
_Levels = list[tuple[float, int]]  # arrivals per block, threshold

_LOADS = 48
_THRESHOLDS = 36
_POINTS = (40, 320)  # of what is left for the levels below: for several, and for the last
_STARTS = 3  # thresholds of the first level to begin with
_CLOSEST = 4  # choices of thresholds near which the bounds begin to hold
_WORTH = (0.002, 0.03)  # what one more level must gain: of the memory, of the rate
_FEW_KEYS = 16.0  # per block
_COINS, _COIN_GAIN = (0.25, 0.5, 0.75), (0.0005, 0.01)  # what a coin must gain, relatively: memory, rate


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
        self.by_rate = goal.fpr is not None
        self.after: dict[tuple[int, float, int], Vector] = {}
        self.cells_of: dict[tuple[int, float, tuple[int, ...]], Cells] = {}
        self.programmes: dict[tuple[int, float, Prices], Fronts] = {}
        self.bounded: dict[int, list[_Levels]] = {}  # by number of levels, near the best within the bounds
        loads = np.geomspace(self.low, self.high, _LOADS)
        self.grid = (loads, *self._averages(loads))

    def _scale(self) -> None:
        """Set load, hashes and rate: about those of a two-choice filter for the same goal."""
        bits, goal = self.block_bits, self.goal
        if goal.bits is not None:
            self.load = min(bits / goal.bits, float(block.KEYS_PER_BIT * bits))
        else:
            assert goal.fpr is not None
            self.load = min(load_for_rate(bits, goal.fpr), float(block.KEYS_PER_BIT * bits))
        self.hashes = self.given.hashes or max(best_hashes_at_load(bits, self.load) - 1, 1)
        self.fpr = goal.fpr or rate_at_load(bits, self.load)

    # the grid

    def _averages(self, loads: Vector) -> tuple[Vector, Vector]:
        """Return rows that average over the arrivals: at the end, and over all of them."""
        chance = block.poisson(loads, self.most)
        return chance, block.more_than(chance) / loads[:, None]

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

    def columns(self, hashes: int, coin: float, thresholds: Sequence[int]) -> Vector:
        """Return F and C after n arrivals, [n, threshold] of each, one after the other."""
        new = [each for each in thresholds if (hashes, coin, each) not in self.after]
        widths = {each: 0 if self.is_fill else counter_bits(each) for each in new}
        for width in sorted(set(widths.values())):
            marks = [each for each in new if widths[each] == width]
            if self.is_fill:
                f, c = block.fill_level(self.block_bits, hashes, np.array(marks), self.most)
            else:
                bits = self.block_bits - width
                f, c, _, _ = block.counted_level(bits, hashes, np.array(marks), coin, self.most)
            for place, each in enumerate(marks):
                self.after[hashes, coin, each] = np.stack([f[:, place], c[:, place]], axis=1)
        return np.concatenate([self.after[hashes, coin, each] for each in thresholds], axis=1)

    def cells(self, hashes: int, coin: float, thresholds: Sequence[int]) -> Cells:
        """Compute F, C and w on the grid."""
        key = (hashes, coin, tuple(thresholds))
        if key in self.cells_of:
            return self.cells_of[key]
        loads, ends, means = self.grid
        columns = self.columns(hashes, coin, thresholds)
        last = ends @ columns
        passed = means @ np.ascontiguousarray(columns[:, 1::2])
        self.cells_of[key] = found = Cells(
            loads,
            thresholds,
            np.maximum(last[:, ::2], 1e-250),
            np.maximum(last[:, 1::2], 1e-30),
            np.maximum(passed, 1e-30),
        )
        return found

    # the programme

    def _goal(self, prices: Prices) -> float:
        """Return what is left for the first level: the goal, with what the bounds allow at these prices."""
        bounds = self.bounds
        if self.by_rate:
            assert self.goal.fpr is not None
            return self.goal.fpr + (prices.miss * bounds.miss_reads if prices.miss else 0.0)
        assert self.goal.bits is not None
        left = self.goal.bits / self.block_bits
        left += prices.read * bounds.reads if prices.read else 0.0
        return left + (prices.turned * bounds.overflow if prices.turned else 0.0)

    def programme(self, hashes: int, coin: float, prices: Prices) -> Fronts:
        """Return the programme on the grid, with as many levels as there may be."""
        key = (hashes, coin, prices)
        if key in self.programmes:
            return self.programmes[key]
        given, depth = self.given.thresholds, self.levels
        free = self._thresholds(hashes).tolist() if given is None else []
        cells = [
            self.cells(hashes, coin, free if given is None else [given[level]])
            for level in range(depth - self.is_fill)
        ]
        if self.is_fill:  # the last one is never full
            cells.append(self.cells(hashes, 0.0, [self.block_bits + 1]))
        if self.by_rate:
            assert self.goal.fpr is not None
            ends = math.log(0.2 * self.goal.fpr), math.log1p(prices.miss * depth)
            grids = [np.exp(np.linspace(*ends, points)) for points in _POINTS]
        else:
            grids = [np.linspace(0.8 / self.high, 3.0 / self.load, points) for points in _POINTS]
        price = 0.0 if self.is_fill else self.list_price / self.block_bits
        lefts = [grids[0]] * (depth - 1) + [grids[1]]
        self.programmes[key] = found = Fronts(
            cells, by_rate=self.by_rate, prices=prices, list_blocks=price, grids=lefts
        )
        return found

    def value(self, hashes: int, coin: float, prices: Prices) -> tuple[float, int]:
        """Return the goal's value on the coarse grid, and the number of levels."""
        fronts, left = self.programme(hashes, coin, prices), np.array([self._goal(prices)])
        best: tuple[float, int] | None = None
        for count in self._counts():
            value = float(fronts.values(self.levels - count, left).min())
            if best is None or value < best[0] * (1.0 - _WORTH[not self.by_rate]):
                best = value, count
        assert best is not None
        return best

    def _counts(self) -> Sequence[int]:
        """Return how many levels there may be."""
        return range(1, self.levels + 1) if self.given.thresholds is None else (self.levels,)

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
        after = self.columns(hashes, coin, [threshold])
        chance = block.poisson(np.array([load]), most)[0]
        ends = chance @ after
        means = block.more_than(chance) @ after / load
        positive, passed = float(means[0]), float(means[1])
        if beyond > 1.0:  # a table as full as it gets: what it takes stays the same
            positive = float(ends[0])
            passed = max(1.0 - positive - (1.0 - float(means[0]) - passed) / beyond, passed)
        return float(ends[0]), float(ends[1]), positive, passed

    # the search

    def scale_to_goal(self, hashes: int, coin: float, chosen: _Levels) -> Shape:
        """Scale all loads together until the goal is met."""
        return self.at_goal(
            lambda scale: self.shape(hashes, coin, [(scale * load, mark) for load, mark in chosen]), 1.0, 1.3
        )

    def best(self) -> Shape:
        """Find the best shape: hashes on the grid, then all the rest around them."""
        if self.given.shares is not None:
            return self._with_shares()
        hashes = self.walk_hashes(lambda k: self.value(k, self.coin, Prices())[0])
        count = self.value(hashes, self.coin, Prices())[1]
        shapes: dict[tuple[int, int], Shape] = {}

        def refined(k: int, count: int) -> float:
            if (k, count) not in shapes:
                shapes[k, count] = self.refine(k, self.coin, count)
            return self.badness(shapes[k, count])

        if self.given.thresholds is None and count < self.levels and self._may_gain(hashes, count):
            worth = math.log1p(-_WORTH[not self.by_rate])
            free = self.given.hashes is None and hashes < MAX_HASHES_BLOCKED
            more = min((hashes, hashes + 1) if free else (hashes,), key=lambda k: refined(k, count + 1))
            if refined(more, count + 1) < refined(hashes, count) + worth:
                hashes, count = more, count + 1
        self.hashes = hashes
        hashes = self.walk_hashes(lambda k: refined(k, count))
        refined(hashes, count)
        return self._with_coin(shapes[hashes, count])

    def _with_coin(self, best: Shape) -> Shape:
        """Try coins where blocks hold few keys: there a threshold is a coarse thing."""
        if self.is_fill or self.given.coin is not None or self.load > _FEW_KEYS:
            return best
        others = [self.refine(best.hashes, coin, best.choices) for coin in _COINS]
        other = min(others, key=self.badness)
        return other if self.badness(other) < self.badness(best) - _COIN_GAIN[not self.by_rate] else best

    def _may_gain(self, hashes: int, count: int) -> bool:
        """Return whether one more level is somewhat better on the grid."""
        fronts, left = self.programme(hashes, self.coin, Prices()), np.array([self._goal(Prices())])
        one, more = (float(fronts.values(self.levels - each, left).min()) for each in (count, count + 1))
        return more < one * (1.0 - 0.3 * _WORTH[not self.by_rate])

    def refine(self, hashes: int, coin: float, count: int) -> Shape:
        """Find the best shape of so many levels."""
        fronts, left = self.programme(hashes, coin, Prices()), self._goal(Prices())
        first = self.levels - count
        values = fronts.values(first, np.array([left])).reshape(-1, len(fronts.cells[first].thresholds))
        order = np.argsort(values.min(axis=0), kind="stable")
        starts = [fronts.trace(left, first, mark)[0] for mark in order[:_STARTS].tolist()]
        descent = Descent(self, hashes, coin)
        found = descent.best(starts)
        shape = self.scale_to_goal(hashes, coin, starts[0] if found is None else found)
        if descent.free and self.bounds.hold(shape):
            return shape
        tried: dict[tuple[int, ...], _Levels] = {}

        def rough(prices: Prices) -> Shape:
            chosen, _ = self.programme(hashes, coin, prices).trace(self._goal(prices), first)
            marks = tuple(mark for _, mark in chosen)
            tried.pop(marks, None)
            tried[marks] = chosen
            return self.scale_to_goal(hashes, coin, chosen)

        shapes = [shape]
        if count not in self.bounded:  # for other hashes these are near enough to begin with
            shapes.append(self._raise_prices(rough))
            self.bounded[count] = list(tried.values())[-_CLOSEST:]
        found = descent.best(self.bounded[count])
        if found is not None:
            shapes.append(self.scale_to_goal(hashes, coin, found))
            self.bounded[count] = [found]
        return min(shapes, key=self.badness)

    def _raise_prices(self, solve: Callable[[Prices], Shape]) -> Shape:
        """Raise the prices of the bounds that are broken, one after the other, until all hold."""
        scale = 1.0 / self.load
        units = {"reads": scale, "overflow": 10.0 * scale, "miss_reads": self.fpr}
        names = {"reads": "read", "overflow": "turned", "miss_reads": "miss"}
        prices = Prices()
        shape = solve(prices)
        for _ in range(4):
            broken = self.bounds.broken(shape)
            if not broken:
                break
            bound = broken[0]
            name, limit = names[bound], getattr(self.bounds, bound)
            low = getattr(prices, name)
            high = max(2.0 * low, 0.02 * units[bound])
            for _ in range(12):  # a price that is high enough
                shape = solve(replace(prices, **{name: high}))
                if getattr(shape, bound) <= limit:
                    break
                low, high = high, 5.0 * high
            for _ in range(5):  # and not much higher
                middle = math.sqrt(low * high) if low else 0.25 * high
                one = solve(replace(prices, **{name: middle}))
                if getattr(one, bound) <= limit:
                    high, shape = middle, one
                else:
                    low = middle
            prices = replace(prices, **{name: high})
        return shape

    def weight(self, shape: Shape) -> float:
        """Weigh a shape at the goal: less is better, and a missed goal is worse than all else."""
        value = math.log(max(shape.bits if self.goal.fpr is not None else shape.fpr, 1e-300))
        return value + 1e6 * self.goal.missed(shape)

    def badness(self, shape: Shape) -> float:
        """Weigh a shape, where broken bounds are bad too."""
        return self.weight(shape) + 1e3 * math.fsum(
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

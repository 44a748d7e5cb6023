"""The best shape of a balanced filter: thresholds, shares and hashes, before there are keys.

The idea. A filter's behaviour depends on keys per block, not on keys: so search in the limit of
many blocks, with real numbers, and make integers at the end (`plan_balanced`). For one level with
`load` arrivals per block and a threshold, `levels` gives three numbers:

    F  false positives here     C  an absent key goes on     w  a key that arrives goes on

and a filter of several levels nests twice, once for memory and once for its rate:

    blocks = 1/load_0 + w_0*(1/load_1 + w_1*(…))       rate = F_0 + C_0*(F_1 + C_1*(…))

With a price s on the rate, least(s) = min of 1/load + s*F + w*least'(s*C/w), where least' is the
same for the levels below: a dynamic programme over one variable, global in every threshold and
share at once, on a grid of (load, threshold). Its concave envelope gives the front: the least
memory for a rate is the maximum of least(s) - s*rate, the least rate for a memory that of
(least(s) - memory)/s. Bounds on reads, overflow and reads of absent keys are three more prices
(a read, a key on the list, a read of an absent key), raised until the bounds hold.

"single" and "sequential" have one table: their whole grid is looked at, bounds and all.
"two-choice" has only its load.

Invariants: every shape returned was evaluated by the exact functions of `levels`, off the grid,
at the load that meets the goal; the grid only chooses. No result depends on time or chance.

Tried and dropped: simplex search over (thresholds, shares, hashes): a hundred times slower, and
it stops in valleys of the integer thresholds; equal occupancy at all levels (kanizo, Theorem 5),
which minimises the reads of insertions, not the rate: it costs 1 to 2 bits per key.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evenbins.theory import block, levels
from evenbins.theory import fpr as theory
from evenbins.theory.caching import cached

__all__ = ["Bounds", "Given", "Goal", "Shape", "best_shape"]

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
_Levels = list[tuple[float, int]]  # arrivals per block, threshold

LIST_BITS = 64 * 4 / 3
"""Bits of the list for each key on it: 8 bytes, three quarters full."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Either a rate to reach with the least memory, or a memory to use for the least rate."""

    fpr: float | None
    bits: float | None  # for each key, the list included

    def missed(self, shape: Shape) -> float:
        """Say by how much a shape misses the goal; 0 when it meets it."""
        if self.fpr is not None:
            return max(shape.fpr / self.fpr - 1.0 - 1e-9, 0.0)
        assert self.bits is not None
        return max(shape.bits / self.bits - 1.0 - 1e-9, 0.0)

    def better(self, one: Shape, other: Shape) -> bool:
        """Tell whether the first shape serves the goal better."""
        return one.bits < other.bits if self.fpr is not None else one.fpr < other.fpr


@dataclass(frozen=True, slots=True)
class Bounds:
    """Upper bounds; infinity is none."""

    reads: float = math.inf
    miss_reads: float = math.inf
    overflow: float = math.inf

    def hold(self, shape: Shape) -> bool:
        """Tell whether the shape keeps them."""
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


def _distinct(numbers: npt.NDArray[np.generic]) -> Integers:
    """Sort whole numbers, each once (numpy.unique would import numpy.ma: 20 ms)."""
    return np.array(sorted({int(each) for each in numbers.tolist()}), dtype=np.int64)


@cached(512)
def best_shape(
    policy: str, block_bits: int, goal: Goal, bounds: Bounds, given: Given, list_price: float
) -> Shape:
    """Find the shape that serves the goal best within the bounds.

    `list_price` is the memory, in bits, that a key turned away by all its blocks is taken to cost.
    """
    search = {"fill": _Stepped, "multilevel": _Stepped, "two-choice": _Paired}.get(policy, _OneTable)
    found = search(policy, block_bits, goal, bounds, given, list_price)
    if found.load > block_bits and given.thresholds is None and given.shares is None:
        return _crowded(policy, block_bits, goal)
    return found.best()


def _crowded(policy: str, block_bits: int, goal: Goal) -> Shape:
    """Give the shape for less than a bit per key, where nothing is to be balanced: one bit a key."""
    counted = policy in levels.COUNTED
    threshold = block_bits if counted else block_bits + 1  # effective keys are never more than bits
    key_bits = block_bits - (levels.counter_bits(threshold) if counted else 0)
    looks = 2.0 if policy == "two-choice" else 1.0
    if goal.fpr is not None:
        load = -key_bits * math.log1p(-goal.fpr) / looks
    else:
        assert goal.bits is not None
        load = block_bits / goal.bits
    return Shape(
        policy=policy, hashes=1, choices=int(looks), coin=0.0,
        thresholds=() if policy == "two-choice" else (threshold,),
        blocks=(1.0 / load,), bits=block_bits / load, fpr=-math.expm1(-load * looks / key_bits),
        reads=looks, miss_reads=looks, overflow=0.0,
    )  # fmt: skip


class _Search:
    """What the searches share: the scale of the problem, and the walk over hashes."""

    def __init__(
        self, policy: str, block_bits: int, goal: Goal, bounds: Bounds, given: Given, list_price: float
    ) -> None:
        self.policy, self.block_bits, self.goal = policy, block_bits, goal
        self.bounds, self.given, self.list_price = bounds, given, list_price
        # A blocked filter for the same goal sets the scale: keys per block, hashes.
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


# --- several levels: a dynamic programme ---------------------------------------------------------

_LOADS = 72
_THRESHOLDS = 36
_PRICES = 40
_WORTH = (0.002, 0.03)  # what one more level must gain: of the memory, of the rate


@cached(4)
def _arrivals(low: float, high: float, count: int, most: int) -> tuple[Vector, Vector, Vector]:
    """Give loads on a geometric grid, P(N = n) and P(N > n) for each."""
    loads = np.geomspace(low, high, count)
    chance = block.poisson(loads, most)
    return loads, chance, block.more_than(chance)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Levels on a grid: one entry for each (load, threshold)."""

    load: Vector
    threshold: Integers
    positive: Vector  # F
    passes: Vector  # C
    passed: Vector  # w

    def only(self, mask: npt.NDArray[np.bool_]) -> _Cells:
        """Keep some of them."""
        return _Cells(
            self.load[mask], self.threshold[mask], self.positive[mask], self.passes[mask], self.passed[mask]
        )


@dataclass(frozen=True, slots=True)
class _Prices:
    """Prices in blocks: of a read, a key turned away, and a miss's read relative to the rate."""

    read: float = 0.0
    turned: float = 0.0
    miss: float = 0.0


class _Stepped(_Search):
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
        self.cells_of: dict[tuple[int, float, tuple[int, ...]], _Cells] = {}

    # the grid

    def _thresholds(self, hashes: int) -> Integers:
        load = self.load
        reach = np.linspace(
            max(load - 3.0 * math.sqrt(load), 0.3), 1.15 * load + 4.0 * math.sqrt(load) + 1.0, _THRESHOLDS
        )
        if self.is_fill:
            bits = self.block_bits
            marks = np.rint(-bits * np.expm1(reach * block.hashes_log(bits, hashes)))
            return _distinct(np.clip(marks, 1, bits))
        return _distinct(np.clip(np.floor(reach), 0, 65534))

    def cells(self, hashes: int, coin: float, thresholds: Integers) -> _Cells:
        """Compute F, C and w on the grid."""
        key = (hashes, coin, tuple(thresholds.tolist()))
        if key in self.cells_of:
            return self.cells_of[key]
        loads, chance, tail = _arrivals(self.low, self.high, _LOADS, self.most)
        positive, passes, passed = (np.empty((_LOADS, len(thresholds))) for _ in range(3))
        if self.is_fill:
            groups = [(self.block_bits, np.ones(len(thresholds), dtype=bool))]
        else:
            width = np.array([levels.counter_bits(each) for each in thresholds.tolist()])
            groups = [(self.block_bits - int(each), width == each) for each in _distinct(width)]
        for bits, mask in groups:
            if self.is_fill:
                f, c = block.fill_level(bits, hashes, thresholds[mask], self.most)
            else:
                f, c, _, _ = block.counted_level(bits, hashes, thresholds[mask], coin, self.most)
            positive[:, mask], passes[:, mask] = chance @ f, chance @ c
            passed[:, mask] = (tail @ c) / loads[:, None]
        grid = np.broadcast_to(loads[:, None], positive.shape)
        marks = np.broadcast_to(thresholds, positive.shape)
        found = _Cells(
            grid.ravel(),
            marks.ravel(),
            positive.ravel(),
            np.maximum(passes, 1e-30).ravel(),
            np.maximum(passed, 1e-30).ravel(),
        )
        self.cells_of[key] = found
        return found

    def _level_cells(self, hashes: int, coin: float, level: int) -> _Cells:
        if self.given.thresholds is not None:
            return self.cells(hashes, coin, np.array([self.given.thresholds[level]]))
        return self.cells(hashes, coin, self._thresholds(hashes))

    def _last_cells(self, hashes: int) -> _Cells:
        """A level that is never full."""
        return self.cells(hashes, 0.0, np.array([self.block_bits + 1]))

    # the programme

    def _backup(self, cells: _Cells, prices: _Prices, below: Vector | float) -> Vector:
        """Give least(s) on the grid of prices, from the levels below."""
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

    def fronts(self, hashes: int, coin: float, prices: _Prices) -> list[Vector | float]:
        """Give least(s) with 0, 1, 2, … levels; with given thresholds only the last counts."""
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

    def _dual(self, front: Vector, prices: _Prices) -> tuple[float, int]:
        """Give the value of the goal by the envelope, and the place of its price."""
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

    def value(self, hashes: int, coin: float, prices: _Prices) -> tuple[float, int, int]:
        """Give the goal's value, the number of levels, and the place of the price."""
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

    def _extract(self, hashes: int, coin: float, prices: _Prices, count: int, price: float) -> _Levels:
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
        """Give F and C at the end, and their means over the arrivals."""
        beyond = max(load / self.high, 1.0)
        load, most = min(load, self.high), self.most
        key = (hashes, coin, threshold)
        if key not in self.after:
            if self.is_fill:
                f, c = block.fill_level(self.block_bits, hashes, np.array([threshold]), most)
            else:
                key_bits = self.block_bits - levels.counter_bits(threshold)
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

    def solve(self, hashes: int, coin: float, prices: _Prices) -> tuple[Shape, _Levels]:
        """Find the best shape for given prices of the bounds, at the goal."""
        _, count, place = self.value(hashes, coin, prices)
        chosen = self._extract(hashes, coin, prices, count, float(self.prices[place]))
        return self.scaled(hashes, coin, chosen), chosen

    def scaled(self, hashes: int, coin: float, chosen: _Levels) -> Shape:
        """Scale all loads together until the goal is met."""
        return self.at_goal(
            lambda scale: self.shape(hashes, coin, [(scale * load, mark) for load, mark in chosen]), 1.0, 1.3
        )

    def best(self) -> Shape:
        """Find the best shape: hashes, then the prices of broken bounds, then its neighbours."""
        if self.given.shares is not None:
            return self._with_shares()
        prices = _Prices()
        hashes = self.walk_hashes(lambda k: self.value(k, self.coin, prices)[0])
        shape, chosen = self.solve(hashes, self.coin, prices)
        if self.bounds.hold(shape):
            return self._polished(shape, chosen)
        best: Shape | None = None
        for count in range(max(len(chosen) - 1, 1), len(chosen) + 1):
            self.counts = (count,) if self.given.thresholds is None else None
            one, levels_of_one = self.solve(hashes, self.coin, prices)
            one = self._polished(*self._priced(hashes, one, levels_of_one))
            if best is None or self.badness(one) < self.badness(best):
                best = one
        assert best is not None
        return best

    def _priced(self, hashes: int, shape: Shape, chosen: _Levels) -> tuple[Shape, _Levels]:
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
                trial = self.solve(hashes, self.coin, _Prices(**(prices | {name: high})))
                if getattr(trial[0], bound) <= limit:
                    break
                low, high = high, 5.0 * high
            for _ in range(5):  # and not much higher
                middle = math.sqrt(low * high) if low else 0.25 * high
                one = self.solve(hashes, self.coin, _Prices(**(prices | {name: middle})))
                if getattr(one[0], bound) <= limit:
                    high, trial = middle, one
                else:
                    low = middle
            prices[name] = high
            shape, chosen = trial
        return shape, chosen

    def _polished(self, shape: Shape, chosen: _Levels) -> Shape:
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
                    trial = self.scaled(hashes, coin + flip, other)
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


# --- one table -----------------------------------------------------------------------------------


class _OneTable(_Search):
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
        return self._refined(best)

    def _scan(self, hashes: int, coin: float, choices: int) -> Shape | None:
        load = self.load
        if self.given.thresholds is not None:
            thresholds = np.array([self.given.thresholds[0]])
        else:
            top = 1.15 * load + 6.0 * math.sqrt(load) + 3.0
            marks = np.linspace(max(load - 2.0 * math.sqrt(load), 0.0), top, 56)
            thresholds = _distinct(np.floor(marks))
        end = 1.6 * load * min(choices, 1.5) + 2.0
        points = 200
        attempts = np.linspace(0.0, end, points)
        most = block.reach(end)
        chance = _even_arrivals(end, points, most)
        width = np.array([levels.counter_bits(each) for each in thresholds.tolist()])
        best: Shape | None = None
        for each in _distinct(width):
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
        accepted = np.maximum(1.0 - f - c, 0.0)
        listed = c**choices
        spent, changed = choices * listed, listed.copy()
        for j in range(choices):
            changed += c**j * accepted
            spent += (j + 1) * c**j * accepted
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
        core = (
            levels.POLICIES.index(self.policy) + 1, self.block_bits, like.hashes, like.choices,
            round(like.coin * levels.COIN_UNIT), 2**40, 0, 0, max(round(unit / load), 1), like.thresholds[0],
        )  # fmt: skip
        found = levels.steady(core, unit)
        keyed = found.overflow * found.changed
        return Shape(
            policy=self.policy,
            hashes=like.hashes,
            choices=like.choices,
            thresholds=like.thresholds,
            coin=like.coin,
            blocks=(1.0 / load,),
            bits=self.block_bits / load + self.list_price * keyed,
            fpr=found.fpr,
            reads=found.reads,
            miss_reads=found.miss_reads,
            overflow=found.overflow,
        )

    def _refined(self, shape: Shape) -> Shape:
        """Move from the grid to the goal itself, unless a bound stands in the way."""
        other = self.at_goal(lambda scale: self.at_load(shape, scale), 1.0 / shape.blocks[0])
        if self.bounds.hold(other) and not self.goal.better(shape, other):
            return other
        exact = self.at_load(shape, 1.0 / shape.blocks[0])
        return exact if self.bounds.hold(exact) else shape

    def _nearest(self, choices: int, coin: float) -> Shape:
        """Give a shape at the goal that breaks the bounds, to say by how much."""
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


# --- two choices ---------------------------------------------------------------------------------


class _Paired(_Search):
    """Two-choice: hashes and load."""

    start = 1.0  # load where the search for the next number of hashes begins

    def best(self) -> Shape:
        """Find the best hashes, each at the goal."""
        if self.given.hashes is None:
            self.hashes = self._guess()
        found: dict[int, Shape] = {}

        def value(hashes: int) -> float:
            if hashes not in found:
                found[hashes] = self.at_goal(lambda load: self._at(hashes, load), self.start)
                self.start = 1.0 / found[hashes].blocks[0]
            shape = found[hashes]
            return shape.bits if self.goal.fpr is not None else math.log(max(shape.fpr, 1e-300))

        self.start = self.load if self.goal.bits is not None else 1.15 * self.load
        hashes = self.walk_hashes(value)
        value(hashes)
        return found[hashes]

    def _guess(self) -> int:
        """Guess the hashes as if every block had the mean load."""
        load = self.load if self.goal.bits is not None else 1.15 * self.load
        low = int(load)
        part = load - low

        def rate(hashes: int) -> float:
            one, two = theory.rate_by_load(self.block_bits, hashes, low + 1)[low:]
            return float(one * (1.0 - part) + two * part)

        return min(range(1, theory.MAX_HASHES_BLOCKED + 1), key=rate)

    def _at(self, hashes: int, load: float) -> Shape:
        load = min(load, float(block.KEYS_PER_BIT * self.block_bits))
        positive = block.pair(self.block_bits, hashes).positive(load)
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

"""Balanced filters designed: from goals and bounds, or from what is given, to an integer core.

    goal: fpr or bits_per_key ─┐
    bounds: reads, choices,    ├─▶ shape (real numbers, ──▶ integers, list, ──▶ BalancedCore
      overflow, miss_reads     │    infinitely many blocks)   predicted anew
    given: thresholds, coin, … ┘

`shapes` finds the best shape, which does not depend on the number of keys; here it becomes whole
blocks and a list, is predicted as it will be built, and corrected until goal and bounds hold.

Invariants:

- `reads`, `choices`, `overflow`, `miss_reads` are upper bounds: the predictions of the plan keep
  them. What cannot be kept is refused with the nearest value that can.
- The list holds what comes with probability 1 - 1e-6 at `capacity` keys (`levels.overflow_limit`).

`balanced_request` has the arguments, checked; `balanced_core` the integers.

Tried and dropped: a table of designs computed beforehand, since the search takes a tenth of a second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from evenbins import _arguments as arguments
from evenbins.theory import fpr as theory
from evenbins.theory import levels, shapes
from evenbins.theory.balanced_core import (
    MAX_LIST,
    MAX_THRESHOLD,
    bytes_of_core,
    checked_core,
    slots_of_limit,
)
from evenbins.theory.balanced_request import DEFAULT_OVERFLOW, Request
from evenbins.theory.cores import COIN_UNIT, COUNTED, SPILLS, BalancedCore
from evenbins.theory.shape_search import LIST_BITS

__all__ = ["check_reachable", "core_for"]

FEW_KEYS = 200_000
MOST_SPILLED = 0.002
"""Fraction of keys that a plan without a list lets spill, about: more would be no balance."""


def core_for(request: Request, keys: int) -> BalancedCore:
    """Find the integers that serve a request for one policy best.

    Raises
    ------
    ValueError
        The policy cannot keep the bounds; the message names the bound and the nearest value that it can.
    """
    assert request.policy is not None
    request = request.for_policy(request.policy)
    builder = _Builder(request, keys)
    core = builder.core()
    # Of few keys, a list is mostly room for chance.
    if builder.has_list and keys <= FEW_KEYS and request.thresholds is None:
        other = builder.without_need_of_list()
        if other is not None and builder.better(other, core):
            core = other
    return checked_core(str(request.policy), core, named=False)


def check_reachable(request: Request, keys: int) -> None:
    """Refuse a rate that no filter reaches: the digests' own."""
    if request.fpr is None:
        return
    floor = theory.digest_floor(keys)
    if request.fpr < 2.0 * floor:
        raise arguments.unmet(
            "fpr",
            f" must be at least {2.001 * floor:.3e} for {keys} keys (64-bit digests); got {request.fpr!r}. "
            f"Ask for a larger fpr, or split the keys over several filters",
        )
    if request.hashes is not None:  # or say what can be reached
        theory.blocked_blocks(keys, request.fpr, request.block_bits, request.hashes)


_MOST_PASSED_ON = 1e-4
"""Fraction of keys that may find every level full at capacity."""
_LEAST_SHARE = 0.016
"""Of the blocks, for the third level and those below it: a smaller one saves less than 1 % of the memory, and
every absent key would read it once there are more keys than planned, when all levels are full."""
_LEAST_BLOCKS = 3.5
"""Of the third level and those below it. What reaches it varies by chance, which the prediction neglects:
with a third level of one block the rate was 1.24 times the planned one on average, 43 times for an unlucky
filter."""


_LEAST_SLACK, _MOST_SLACK = 0.002, 0.04
"""Part of a bound that is left free at first, and at most, for what rounding to whole lines changes."""


class _Builder:
    """From a request to the integers."""

    def __init__(self, request: Request, keys: int) -> None:
        assert request.policy is not None
        self.request, self.keys, self.policy = request, keys, request.policy
        self.counted = self.policy in COUNTED
        self.has_list = self.counted and request.overflow != 0.0
        self.choices = 1 if self.policy == "single" else request.choices
        if self.policy != "two-choice" and min(request.reads, request.miss_reads) < 1.0005:
            self.choices = 1
        overflow = DEFAULT_OVERFLOW if request.overflow is None else request.overflow
        self.overflow = overflow if self.has_list else math.inf
        self.state = 512 if self.counted else 0
        self.slack = _LEAST_SLACK if keys > FEW_KEYS else 5.0 * _LEAST_SLACK

    # shapes

    def shape(self, choices: int) -> shapes.Shape:
        """Ask for the best shape with up to so many choices."""
        request, keys = self.request, self.keys
        reads = request.reads
        if self.policy == "sequential" and self.has_list and reads < math.inf:
            reads = max(reads - 3.0 * self._reads_sd(reads), 1.0)
        bits = None
        if request.bits_per_key is not None:
            bits = max(self._budget() - self.state, request.block_bits) / keys
        given = shapes.Given(request.hashes, request.thresholds, request.coin, request.shares, choices)
        rate = None if request.fpr is None else request.fpr - theory.digest_floor(keys)
        goal = shapes.Goal(rate, bits)
        overflow = MOST_SPILLED if self.counted and not self.has_list else self.overflow
        bounds = shapes.Bounds(reads, request.miss_reads, overflow)
        if self.policy in ("multilevel", "fill"):  # what rounding to whole lines may change
            part = 1.0 - self.slack
            misses = 1.0 + (request.miss_reads - 1.0) * part
            bounds = shapes.Bounds(1.0 + (reads - 1.0) * part, misses, overflow * part)
        return shapes.best_shape(self.policy, request.block_bits, goal, bounds, given, self._price())

    def _blocks(self) -> float:
        """Estimate the number of blocks."""
        if self.request.bits_per_key is not None:
            return self._budget() / self.request.block_bits
        assert self.request.fpr is not None
        return -1.44 * math.log2(self.request.fpr) * 1.1 * self.keys / self.request.block_bits

    def _reads_sd(self, reads: float) -> float:
        """Bound the standard deviation of the mean reads of this many keys, generously."""
        return math.sqrt(5.0 * max(reads - 1.0, 1e-6) / self.keys)

    def _price(self) -> float:
        """Return what a key that no block takes costs, in bits."""
        if self.has_list:  # the list's room for chance included
            mean = max(0.5 * self.overflow * self.keys, 1.0)
            return LIST_BITS * min(1.0 + 6.0 / math.sqrt(mean), 4.0)
        request = self.request
        per_key = request.bits_per_key
        if per_key is None:
            assert request.fpr is not None
            per_key = -1.44 * math.log2(request.fpr) * 1.1
        return per_key * (_LEAST_PRICE if request.spill == "least" else _RANDOM_PRICE)

    def _budget(self) -> int:
        """Count the bits that bits_per_key allows, in whole 64-byte lines."""
        assert self.request.bits_per_key is not None
        lines = theory.round_up(self.keys, self.request.bits_per_key, 512)
        arguments.check_total(lines * 512, "bits_per_key", self.request.bits_per_key)
        return 512 * max(lines, 1)

    # integers

    def core(self) -> BalancedCore:
        """Find the core: fewer levels where blocks are too few for the shape's."""
        explicit = self.request.thresholds is not None or self.request.shares is not None
        choices = self.choices
        if not explicit and self.policy in ("multilevel", "fill"):  # levels below the first are small
            choices = min(choices, 1 if self._blocks() < 6.0 else 2 if self._blocks() < 40.0 else choices)
        while True:
            shape = self.shape(choices)
            self._refuse_broken(shape)
            fewest = min(shape.blocks) * self.keys
            enough = _LEAST_BLOCKS if shape.choices > 2 and self.policy in ("multilevel", "fill") else 0.5
            if fewest >= enough or shape.choices == 1 or self.policy == "two-choice" or explicit:
                break
            if self.policy == "sequential" and fewest * self.choices >= 0.5:
                break
            choices = shape.choices - 1
        while not explicit and self._has_tiny_level(shape):
            smaller = self.shape(shape.choices - 1)
            try:
                self._refuse_broken(smaller)
            except ValueError:
                break
            shape = smaller
        core = self._with_goal(shape)
        if self.policy == "fill" and shape.choices > 1:
            shape = replace(shape, thresholds=(*shape.thresholds[:-1], self._last_threshold(core)))
            core = self._with_goal(shape)  # which needs fewer blocks now
        if not explicit and self.slack < _MOST_SLACK and self._broken(levels.predict(core, self.keys), 1e-9):
            self.slack = _MOST_SLACK
            return self.core()
        return self._raise_thresholds(core)

    def _with_goal(self, shape: shapes.Shape) -> BalancedCore:
        return self._by_memory(shape) if self.request.fpr is None else self._by_rate(shape)

    def _has_tiny_level(self, shape: shapes.Shape) -> bool:
        if self.policy not in ("multilevel", "fill") or shape.choices <= 2:
            return False
        return min(shape.blocks[2:]) < _LEAST_SHARE * sum(shape.blocks)

    def _last_threshold(self, core: BalancedCore) -> int:
        """Find a threshold for the last level, so that it does not take all that comes.

        Few keys find every level full at capacity, and when there are more the last level's blocks are no
        fuller than those above it. The core's own last threshold turns away (next to) no key.
        """
        if self.request.last_threshold is not None:
            return self.request.last_threshold
        *above, high = core.thresholds
        low = max(above)
        while low < high:
            middle = (low + high) // 2
            trial = core.with_tables(thresholds=(*above, middle))
            if levels.passed_on(trial, self.keys) <= _MOST_PASSED_ON:
                high = middle
            else:
                low = middle + 1
        return high

    def without_need_of_list(self) -> BalancedCore | None:
        """Find a core whose blocks practically never turn a key away."""
        bound, self.overflow = self.overflow, min(self.overflow, 1e-7 / self.keys)
        try:
            core = self.core()
        except ValueError:
            return None
        finally:
            self.overflow = bound
        if self.policy == "multilevel" and core.choices > 1 and core.overflow_limit == 0:
            core = core.with_tables(thresholds=(*core.thresholds[:-1], self._last_threshold(core)))
        return core

    def better(self, one: BalancedCore, other: BalancedCore) -> bool:
        """Return whether the first core serves the goal better."""
        rates = [levels.predict(core, self.keys).fpr for core in (one, other)]
        sizes = [bytes_of_core(core) for core in (one, other)]
        if self.request.fpr is not None:
            return (sizes[0], rates[0]) < (sizes[1], rates[1])
        budget = max(self._budget() // 8, 64 + self.state // 8)
        return (max(sizes[0], budget), rates[0]) < (max(sizes[1], budget), rates[1])

    def _core(self, shape: shapes.Shape, blocks: Sequence[int], limit: int) -> BalancedCore:
        thresholds = (0,) if self.policy == "two-choice" else shape.thresholds
        budget = 0
        if self.policy == "sequential" and limit and self.request.reads < math.inf:
            budget = max(math.floor(Fraction(self.request.reads) * self.keys), 1)
        return BalancedCore.of(
            self.policy, self.request.block_bits, shape.hashes, shape.choices, round(shape.coin * COIN_UNIT),
            limit, self.request.spill if self.counted else SPILLS[0], budget, blocks, thresholds,
        )  # fmt: skip

    def _limit(self, core: BalancedCore) -> int:
        """Find the list's length for a core."""
        if not self.has_list:
            return 0
        found = levels.predict(core.with_list(MAX_LIST, budget=0), self.keys)
        mean = found.overflow * found.changed * self.keys
        return min(levels.overflow_limit(mean, found.overflow_sd), MAX_LIST, self.keys)

    def _with_limit(self, shape: shapes.Shape, blocks: Sequence[int]) -> BalancedCore:
        return self._core(shape, blocks, self._limit(self._core(shape, blocks, 0)))

    def _whole(self, wanted: Sequence[float]) -> list[int]:
        """Round numbers of blocks so that tables are whole lines."""
        unit = 512 // self.request.block_bits
        return [max(round(each / unit), 1) * unit for each in wanted]

    def _by_rate(self, shape: shapes.Shape) -> BalancedCore:
        """Find the fewest blocks whose rate is low enough, all tables growing together."""
        goal = self.request.fpr
        assert goal is not None

        def trial(scale: float) -> tuple[BalancedCore, float]:
            wanted = [max(each * self.keys * scale, 1e-9) for each in shape.blocks]
            if sum(wanted) * self.request.block_bits > theory.MAX_BITS:
                raise arguments.unmet(
                    "fpr",
                    f"={goal!r} needs more than 2**56 bits for {self.keys} keys, policy={self.policy!r}. "
                    f"Ask for a larger fpr, or split the keys over several filters",
                )
            core = self._with_limit(shape, self._whole(wanted))
            return core, levels.predict(core, self.keys).fpr

        slope = 0.48 * shape.bits
        low, high = 0.0, math.inf
        scale, best = 1.0, None
        for _ in range(24):
            core, rate = trial(scale)
            if rate <= goal:
                high = min(high, scale)
                if best is None or bytes_of_core(core) <= bytes_of_core(best):
                    best = core
            else:
                low = max(low, scale)
            step = math.log(rate / goal) / slope if rate > 0.0 else -0.5
            blocks = sum(core.blocks)
            least = 0.5 / blocks  # a block more or less
            step = max(step, least) if rate > goal else min(step, -least)
            if -2e-4 < step <= 0.0 or (low and high / low < 1.0 + max(2e-5, 0.3 / blocks)):
                break
            scale *= math.exp(max(min(step + 2e-5, 0.5), -0.5))
            if not low < scale < high:
                scale = math.sqrt(low * high) if low and high < math.inf else (1.01 * low or 0.7 * high)
        if best is None:
            least = levels.predict(core, self.keys).fpr
            raise arguments.unmet(
                "fpr",
                f" must be at least {1.001 * least:.3e} for policy={self.policy!r} with what is given; "
                f"got {goal!r}. Ask for a larger fpr, or leave hashes, thresholds and shares out",
            )
        return best

    def _by_memory(self, shape: shapes.Shape) -> BalancedCore:
        """Share out the budget: the list and the state first, then the tables.

        Fewer blocks make a longer list, so both are found together; where the list would eat up the
        tables (few keys, whose chances need much room), thresholds rise instead.
        """
        budget = self._budget() - self.state
        total = sum(shape.blocks)
        parts = [each / total for each in shape.blocks]
        mean = shape.overflow * self.keys if self.has_list else 0.0
        limit = levels.overflow_limit(mean, 1.4 * math.sqrt(mean))
        while True:
            for _ in range(12):
                lines = max((budget - 64 * slots_of_limit(limit)) // 512, len(parts))
                core = self._core(shape, self._divide_lines(lines, parts), limit)
                needed = self._limit(core)
                if 0.98 * limit - 1 <= needed <= limit or 256 * needed > budget:
                    break
                limit = needed + max(needed - limit, 0) * 2 // 5
            if needed <= limit or self.request.thresholds is not None or not shape.thresholds:
                return core
            shape = replace(shape, thresholds=tuple(each + 1 + each // 8 for each in shape.thresholds))
            limit = 0

    def _divide_lines(self, lines: int, parts: Sequence[float]) -> list[int]:
        """Divide lines by the shares, at least one each, the first table taking the rounding."""
        rest = [max(round(lines * part), 1) for part in parts[1:]]
        while sum(rest) > lines - 1 and max(rest, default=1) > 1:
            rest[rest.index(max(rest))] -= 1
        unit = 512 // self.request.block_bits
        return [max(lines - sum(rest), 1) * unit, *(each * unit for each in rest)]

    # bounds

    def _broken(self, found: shapes.Shape | levels.Behaviour, slack: float) -> list[tuple[str, float, float]]:
        """Return the bounds that are broken: name, bound, value."""
        limits = (
            ("overflow", self.overflow), ("reads", self.request.reads),
            ("miss_reads", self.request.miss_reads),
        )  # fmt: skip
        values = [(name, limit, float(getattr(found, name))) for name, limit in limits]
        return [bound for bound in values if bound[2] > bound[1] * (1.0 + slack)]

    def _refuse_broken(self, shape: shapes.Shape) -> None:
        """Refuse a goal that the bounds exclude."""
        if self.request.bits_per_key is not None and shape.bits * self.keys > 1.0001 * self._budget() > 512.0:
            self._refuse_memory(shape)
        for bound in self._broken(shape, 1e-6):
            self._refuse(*bound)
        if self.request.fpr is not None and shape.fpr > self.request.fpr * (1.0 + 1e-9):
            raise arguments.unmet(
                "fpr",
                f" must be at least {1.01 * shape.fpr:.3e} for policy={self.policy!r} with the hashes, "
                f"thresholds and bounds given; got {self.request.fpr!r}. Raise it, or leave them out",
            )

    def _refuse_memory(self, shape: shapes.Shape) -> None:
        """Return how many bits per key what is given would need."""
        wanted = self.request.bits_per_key
        assert wanted is not None
        low, high = wanted, wanted
        best: float | None = None
        for _ in range(12):
            other = _Builder(replace(self.request, bits_per_key=min(high, 4096.0)), self.keys)
            trial = other.shape(self.choices)
            bounds = shapes.Bounds(self.request.reads, self.request.miss_reads, self.overflow)
            if trial.bits * self.keys <= 1.0001 * other._budget() and bounds.hold(trial):
                best = high
            else:
                low = high
            if best is None:
                high *= 1.5
            elif best / low < 1.02:
                break
            else:
                high = math.sqrt(low * best)
        shown = f"at least {best * 1.005:.4g}" if best is not None else "much larger"
        raise arguments.unmet(
            "bits_per_key",
            f" must be {shown} for policy={self.policy!r} with the thresholds, shares and "
            f"bounds given; got {arguments.shown(wanted)}. Raise it, or leave them out",
        )

    def _refuse(self, name: str, limit: float, found: float) -> None:
        asked = "bits_per_key" if self.request.fpr is None else "fpr"
        goal = f"{asked}={getattr(self.request, asked)!r}"
        raise ValueError(
            f"{name} must be at least {math.ceil(found * 1.0001e6) / 1e6:.6g} for policy={self.policy!r} at "
            f"{goal} with what else is given; got {limit!r}. Raise it, or leave out thresholds, coin, shares "
            f"and other bounds"
        )

    def _raise_thresholds(self, core: BalancedCore) -> BalancedCore:
        """Correct what rounding broke: thresholds rise until the bounds hold for the integers too."""
        request = self.request
        for attempt in range(40):
            found = levels.predict(core, self.keys)
            broken = self._broken(found, 1e-9)
            if not broken or (request.fpr is not None and attempt and found.fpr > request.fpr):
                break
            if request.thresholds is not None:
                self._refuse(*broken[0])
            kept = core.thresholds[-1:] if self.policy == "fill" else ()
            top = request.block_bits if self.policy == "fill" else MAX_THRESHOLD
            free = core.thresholds[: len(core.thresholds) - len(kept)]
            raised = (min(each + 1 + attempt // 4, top) for each in free)
            core = core.with_tables(thresholds=(*raised, *kept))
            if self.has_list:
                core = core.with_list(max(self._limit(core), 0))
        if request.fpr is not None and levels.predict(core, self.keys).fpr > request.fpr:
            return self._add_blocks(core)
        return core

    def _add_blocks(self, core: BalancedCore) -> BalancedCore:
        """Add blocks until the rate is low enough again."""
        assert self.request.fpr is not None
        for attempt in range(200):
            if levels.predict(core, self.keys).fpr <= self.request.fpr:
                break
            unit = 512 // self.request.block_bits
            more = [max(round(each * 1e-3 * (1 + attempt) / unit), 1) * unit for each in core.blocks]
            core = core.with_tables(blocks=[a + b for a, b in zip(core.blocks, more, strict=True)])
        return core


_LEAST_PRICE = 20.0
_RANDOM_PRICE = 60.0

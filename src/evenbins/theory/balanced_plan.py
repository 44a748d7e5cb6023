"""Plans of balanced filters: from bounds and goals, or from explicit numbers, to an integer core.

    goal: fpr or bits_per_key ─┐
    bounds: reads, choices,    ├─▶ shape (real numbers, ──▶ integers, list, ──▶ FilterPlan
      overflow, miss_reads     │    infinitely many blocks)   predicted anew
    given: thresholds, coin, … ┘

`shapes` finds the best shape, which does not depend on the number of keys; here it becomes whole
blocks and a list, is predicted as it will be built, and corrected until goal and bounds hold.

Invariants:

- `reads`, `choices`, `overflow`, `miss_reads` are upper bounds: the predictions of the plan keep
  them. What cannot be kept is refused with the nearest value that can.
- Memory counts everything: blocks padded to 64-byte lines, the list's slots, the state.
- The list holds what comes with probability 1 - 1e-6 at `capacity` keys (`levels.overflow_limit`).

Source: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient Balanced Bloom Filters" (2013), whose designs
`plan_levels` takes as they are; thresholds, shares and hashes for the least rate are ours.
Tried and dropped: a table of designs computed beforehand, since the search takes a tenth of a second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import SupportsFloat, SupportsIndex

import numpy as np

from evenbins import _arguments as arguments
from evenbins.errors import ArgumentError
from evenbins.theory import fpr as theory
from evenbins.theory import levels, shapes
from evenbins.theory.filter_plan import Family, FilterPlan, rate_of_core, register
from evenbins.theory.levels import COIN_UNIT, COUNTED, POLICIES, SPILLS
from evenbins.theory.plan import round_up

__all__ = ["check_bounds", "plan_balanced", "plan_levels"]

MAX_BLOCKS = 2**47
MAX_THRESHOLD = 65534
MAX_CHOICES = 8
MAX_LIST = 2**40

# --- explicit integers ---------------------------------------------------------------------------


def plan_levels(
    capacity: SupportsIndex | SupportsFloat,
    *,
    policy: str,
    blocks: Sequence[int],
    thresholds: Sequence[int] = (),
    hashes: int,
    block_bits: int = 512,
    coin: float = 0.0,
    choices: int | None = None,
    overflow_limit: int = 0,
    spill: str = "least",
    budget: int = 0,
    seed: int = 0,
) -> FilterPlan:
    """Plan a balanced filter from explicit numbers, and predict it: no choice is made here.

    Parameters
    ----------
    capacity
        Number of keys (n), 1 to 2**48.
    policy
        "single", "sequential", "multilevel", "fill" or "two-choice".
    blocks
        Number of blocks of each table: one table, or for "multilevel" and "fill" up to eight.
    thresholds
        Keys from which on a block of each table is full (h), 0 to 65534; for "fill" set bits, 1 to
        block_bits, and the last table's may be left out or block_bits + 1: then it is never full; for
        "two-choice" none.
    hashes
        Bits set for each key (k), 1 to 32.
    block_bits
        Bits of a block (B), 256 or 512.
    coin
        Probability (p) with which a block of exactly `thresholds` keys accepts one more.
    choices
        Blocks of one table that a key of "sequential" may try (d), 1 to 8, 3 when None; otherwise it
        follows from the policy and the number of tables.
    overflow_limit
        Keys the overflow list can hold; 0 is no list.
    spill
        "least" or "random": which of its full blocks takes a key when the list cannot.
    budget
        For "sequential" with a list: block reads that all insertions together may spend; 0 is no end.
    seed
        Seed of the digests, 0 to 2**64 - 1.

    Examples
    --------
    >>> plan = plan_levels(100_000, policy="multilevel", hashes=10, blocks=(4000, 600, 100), \
thresholds=(24, 24, 24), coin=0.25, overflow_limit=1000)
    >>> plan.core
    (3, 512, 10, 3, 1073741824, 1000, 0, 0, 4000, 24, 600, 24, 100, 24)
    """
    keys = arguments.capacity(capacity)
    name = _policy(policy)
    tables = _tuple("blocks", blocks)
    limits = _tuple("thresholds", thresholds)
    block_bits = arguments.block_bits(block_bits)
    most = MAX_CHOICES if name in ("multilevel", "fill") else 1
    if not 1 <= len(tables) <= most:
        rule = f"the numbers of blocks of {'1 to 8 tables' if most > 1 else 'one table'}"
        raise arguments.error("blocks", f"{rule} for policy={name!r}", blocks, "Pass a number a table")
    if name == "fill" and len(limits) == len(tables) - 1:
        limits = (*limits, block_bits + 1)
    elif name == "two-choice" and not limits:
        limits = (0,)
    if len(limits) != len(tables):
        raise arguments.error(
            "thresholds", f"{len(tables)} numbers, one for each table", thresholds, "Pass as many"
        )
    if choices is None:
        choices = {"sequential": 3, "two-choice": 2}.get(name, len(tables))
    core = (
        POLICIES.index(name) + 1,
        block_bits,
        hashes,
        choices,
        _coin(coin),
        overflow_limit,
        SPILLS.index(_spill(spill)),
        budget,
        *(number for pair in zip(tables, limits, strict=True) for number in pair),
    )
    return _plan(_checked_core(name, core, named=False), keys, arguments.seed(seed))


def _of_balanced_core(policy: str, core: Sequence[int], keys: int, seed: int, _: str) -> FilterPlan:
    """Check the core of a balanced filter and predict anew."""
    return _plan(_checked_core(policy, core, named=True), keys, seed)


def _checked_core(policy: str, core: Sequence[int], *, named: bool) -> tuple[int, ...]:
    """Check every integer of a core by the rules of its policy, named as a core's or an argument."""
    way_out = "Pass a filter's plan.core" if named else "See plan_levels for what each number means"

    def one(place: int, name: str, least: int, most: int) -> int:
        shown = f"core[{place}] ({name})" if named else name
        rule = f"an integer from {least} to {most}" if least < most else f"{least} for policy={policy!r}"
        return arguments.integer(shown, core[place], least, most, way_out, rule=rule)

    number = POLICIES.index(policy) + 1
    counted, stepped = policy in COUNTED, policy in ("multilevel", "fill")
    tables = (len(core) - 8) // 2
    if tables < 1 or len(core) % 2 or tables > (MAX_CHOICES if stepped else 1):
        rule = f"8 integers and a pair for each of {'1 to 8 tables' if stepped else 'one table'}"
        raise arguments.error("core", f"{rule} of a {policy} filter", tuple(core), way_out)
    one(0, "policy", number, number)
    block_bits = arguments.block_bits(core[1], "core[1] (block_bits)" if named else "block_bits")
    hashes = one(2, "hashes", 1, theory.MAX_HASHES_BLOCKED)
    fixed = {"single": 1, "two-choice": 2, "sequential": None}.get(policy, tables)
    choices = one(3, "choices", fixed or 1, fixed or MAX_CHOICES)
    coin = one(4, "coin", 0, COIN_UNIT if counted else 0)
    limit = one(5, "overflow_limit", 0, MAX_LIST if counted else 0)
    spill = one(6, "spill", 0, len(SPILLS) - 1 if counted else 0)
    budget = one(7, "budget", 0, 2**63 - 1 if policy == "sequential" and limit else 0)
    checked = [number, block_bits, hashes, choices, coin, limit, spill, budget]
    bits = 0
    for table in range(tables):
        place = 8 + 2 * table
        blocks = one(place, f"blocks_{table}" if named else f"blocks[{table}]", 1, MAX_BLOCKS)
        least, most = 0, 0
        if counted:
            least, most = 0, MAX_THRESHOLD
        elif policy == "fill":
            least, most = 1, block_bits + (table == tables - 1)  # block_bits + 1: never full
        name = f"threshold_{table}" if named else f"thresholds[{table}]"
        checked += [blocks, one(place + 1, name, least, most)]
        bits += blocks * block_bits
    arguments.check_total(bits, "core[8] (blocks_0)" if named else "blocks", core[8])
    return tuple(checked)


def slots_of_limit(limit: int) -> int:
    """Count the slots of a list for `limit` keys: three quarters full at most; none without a list."""
    return (limit + limit // 3 + 15) // 8 * 8 if limit else 0


def bytes_of_core(core: Sequence[int]) -> int:
    """Count the bytes of a filter: tables in whole 64-byte lines, the list, eight words of state."""
    lines = sum(-(-blocks * core[1] // 512) for blocks in core[8::2])
    counted = POLICIES[core[0] - 1] in COUNTED
    return 64 * lines + (8 * slots_of_limit(core[5]) + 64 if counted else 0)


def _plan(core: tuple[int, ...], keys: int, seed: int) -> FilterPlan:
    design = levels.Design.of_core(core)
    found = levels.predict(core, keys)
    nbytes = bytes_of_core(core)
    total = sum(design.blocks)
    return FilterPlan(
        keys=keys,
        policy=design.policy,
        bits_per_key=nbytes * 8 / keys,
        block_bits=design.block_bits,
        hashes=design.hashes,
        choices=design.choices,
        thresholds=() if design.policy == "two-choice" else design.thresholds,
        coin=design.coin if design.counted else None,
        shares=tuple(each / total for each in design.blocks),
        fpr=found.fpr,
        reads=found.reads,
        miss_reads=found.miss_reads,
        list_reads=found.list_reads,
        spilled=found.spilled,
        fill=found.fill,
        overflow=found.overflow,
        overflow_limit=design.overflow_limit,
        spill=design.spill if design.counted else None,
        nbytes=nbytes,
        hashing="lanes",
        seed=seed,
        core=core,
    )


# --- goals and bounds ----------------------------------------------------------------------------

DEFAULT_OVERFLOW = 0.005
DEFAULT_CHOICES = 3
FEW_KEYS = 200_000
MOST_SPILLED = 0.002
"""Fraction of keys that a plan without a list lets spill, about: more would be no balance."""
DEFAULT_MISS_READS = 2.0
"""Bound on reads of absent keys when the policy is to be chosen."""


def plan_balanced(
    capacity: SupportsIndex | SupportsFloat,
    *,
    policy: str | None = None,
    fpr: float | None = None,
    bits_per_key: float | None = None,
    reads: float | None = None,
    choices: int | None = None,
    overflow: float | None = None,
    miss_reads: float | None = None,
    block_bits: int = 512,
    hashes: int | None = None,
    thresholds: Sequence[int] | None = None,
    coin: float | None = None,
    shares: Sequence[float] | None = None,
    spill: str = "least",
    seed: int = 0,
) -> FilterPlan:
    """Plan a balanced filter: the least memory for `fpr`, or the least rate for `bits_per_key`.

    Parameters
    ----------
    capacity
        Number of keys (n), 1 to 2**48.
    policy
        "single", "sequential", "multilevel", "fill" or "two-choice"; None takes the best of them
        whose absent keys read at most `miss_reads` blocks, 2 when that is None too.
    fpr
        False-positive rate not to be exceeded at `capacity` keys; 0.01 when `bits_per_key` is not
        given either.
    bits_per_key
        Bits for each key (beta), everything counted, instead of `fpr`; rounded up to a whole block. (A
        filter is at least a block and, where keys are counted, 64 bytes of state.)
    reads
        Upper bound on the mean block reads of an insertion and of a look-up of a present key (a). For
        "sequential" with a list also its budget, reads * capacity in all, of which the plan leaves
        three standard deviations free.
    choices
        Upper bound on the blocks a key may use (d), 1 to 8; 3 when None.
    overflow
        Upper bound on the fraction of keys on the overflow list (gamma); 0 is no list; 0.005 when
        None. "fill" and "two-choice" have none.
    miss_reads
        Upper bound on the mean block reads of a look-up of an absent key (E(P)).
    block_bits
        Bits of a block (B), 256 or 512.
    hashes, thresholds, coin, shares
        Bits set for each key (k); what makes the blocks of each table full (h, p); the sizes of the
        tables relative to each other (alpha). Used as given, chosen for the lowest rate when None.
    spill
        "least" or "random": which of its full blocks takes a key when the list cannot.
    seed
        Seed of the digests, 0 to 2**64 - 1.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range, or the bounds cannot be kept; the message
        names the bound and the nearest value that can.

    Examples
    --------
    >>> plan = plan_balanced(10_000_000, bits_per_key=16, policy="fill")
    >>> plan.fpr < 7.4e-4 and plan.miss_reads < 1.45
    True
    """
    wish = _Wish.of(
        policy, fpr, bits_per_key, reads, choices, overflow, miss_reads, block_bits, hashes, thresholds,
        coin, shares, spill,
    )  # fmt: skip
    keys = arguments.capacity(capacity)
    seed = arguments.seed(seed)
    if wish.fpr is not None:
        _reachable(wish, keys)
    if wish.policy is not None:
        return _plan_policy(wish, keys, seed)
    return _plan_best(wish, keys, seed)


def check_bounds(
    *, reads: object = None, miss_reads: object = None, overflow: object = None, choices: object = None
) -> None:
    """Check each bound by itself, as `plan_balanced` does, whether or not a policy can keep it."""
    _Wish.of(None, None, None, reads, choices, overflow, miss_reads, 512, None, None, None, None, "least")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """Checked arguments of `plan_balanced`."""

    policy: str | None
    fpr: float | None
    bits_per_key: float | None
    reads: float
    choices: int
    overflow: float | None
    miss_reads: float
    block_bits: int
    hashes: int | None
    thresholds: tuple[int, ...] | None
    coin: float | None
    shares: tuple[float, ...] | None
    spill: str
    last_threshold: int | None = None  # "fill": of the last table, if given

    @classmethod
    def of(
        cls, policy: object, fpr: object, bits_per_key: object, reads: object, choices: object,
        overflow: object, miss_reads: object, block_bits: int, hashes: object, thresholds: object,
        coin: object, shares: object, spill: object,
    ) -> _Wish:  # fmt: skip
        """Check each argument by itself."""
        rate, per_key = arguments.goal(fpr, bits_per_key)
        name = None if policy is None else _policy(policy)
        most = DEFAULT_CHOICES
        if choices is not None:
            most = arguments.integer("choices", choices, 1, MAX_CHOICES, "Leave it out for up to 3")
        return cls(
            policy=name,
            fpr=rate if per_key is None else None,
            bits_per_key=per_key,
            reads=_bound("reads", reads, 1.0, "every insertion reads a block"),
            choices=most,
            overflow=_overflow(overflow),
            miss_reads=_bound("miss_reads", miss_reads, 1.0, "every look-up reads a block"),
            block_bits=arguments.block_bits(block_bits),
            hashes=arguments.hashes(hashes, theory.MAX_HASHES_BLOCKED),
            thresholds=None if thresholds is None else _tuple("thresholds", thresholds),
            coin=None if coin is None else _coin(coin) / COIN_UNIT,
            shares=None if shares is None else _shares(shares),
            spill=_spill(spill),
        )

    def for_policy(self, policy: str) -> _Wish:
        """Check what the policy makes of the arguments."""
        wish = replace(self, policy=policy)
        tables = 1 if policy in ("single", "sequential") else None
        if policy == "two-choice":
            for name, value in (
                ("reads", self.reads),
                ("miss_reads", self.miss_reads),
                ("choices", self.choices),
            ):
                if value < 2:
                    way_out = "Raise it, or take another policy"
                    raise arguments.error(name, 'at least 2 for policy="two-choice"', value, way_out)
            for name in ("thresholds", "coin", "shares"):
                if getattr(self, name) is not None:
                    raise _no_such(name, policy, getattr(self, name))
        if policy == "fill" and self.coin:
            raise _no_such("coin", policy, self.coin)
        if self.thresholds is not None:
            given = self.thresholds
            last = None
            if policy == "fill" and given:
                of_all = self.shares is not None and len(self.shares) == len(given)
                if of_all or given[-1] == self.block_bits + 1:
                    *above, last = given
                    given = tuple(above)
                    way_out = "Leave it out for the best"
                    arguments.integer(f"thresholds[{len(given)}]", last, 1, self.block_bits + 1, way_out)
            most = self.block_bits if policy == "fill" else MAX_THRESHOLD
            least = 1 if policy == "fill" else 0
            for place, each in enumerate(given):
                arguments.integer(
                    f"thresholds[{place}]", each, least, most, "Leave thresholds out for the best"
                )
            if (tables is not None and len(given) != tables) or not (policy == "fill" or given):
                rule = "one number" if tables else "a number for each table"
                raise arguments.error("thresholds", f"{rule} for policy={policy!r}", given, "Pass as many")
            wish = replace(wish, thresholds=given, last_threshold=last)
        count = self._tables(wish)
        if tables is not None and self.shares is not None and len(self.shares) != 1:
            raise arguments.error(
                "shares", f"one number for policy={policy!r}", self.shares, "Leave them out"
            )
        if self.shares is not None and count is not None and count != len(self.shares):
            raise arguments.error(
                "shares", f"{count} numbers, as thresholds has", self.shares, "Pass as many"
            )
        if count is None and self.shares is not None:
            count = len(self.shares)
        if count is not None and count > self.choices and policy in ("multilevel", "fill"):
            rule = f"at least {count}, the number of tables given"
            raise arguments.error("choices", rule, self.choices, "Raise it or give fewer thresholds")
        return wish

    @staticmethod
    def _tables(wish: _Wish) -> int | None:
        if wish.thresholds is None:
            return None
        return len(wish.thresholds) + (1 if wish.policy == "fill" else 0)


def _no_such(name: str, policy: str, value: object) -> ArgumentError:
    got = arguments.shown(value)
    return arguments.unmet(name, f" has no meaning for policy={policy!r}; got {got}. Leave it out")


def _reachable(wish: _Wish, keys: int) -> None:
    """Refuse a rate that no filter reaches: the digests' own."""
    floor = theory.digest_floor(keys)
    assert wish.fpr is not None
    if wish.fpr < 2.0 * floor:
        raise arguments.unmet(
            "fpr",
            f" must be at least {2.001 * floor:.3e} for {keys} keys (64-bit digests); got {wish.fpr!r}. "
            f"Ask for a larger fpr, or split the keys over several filters",
        )
    if wish.hashes is not None:
        theory.blocked_blocks(keys, wish.fpr, wish.block_bits, wish.hashes)  # or say what can be reached


def _plan_best(wish: _Wish, keys: int, seed: int) -> FilterPlan:
    """Plan with every policy and take the best: least memory, or least rate."""
    if math.isinf(wish.miss_reads):
        wish = replace(wish, miss_reads=DEFAULT_MISS_READS)
    plans: list[FilterPlan] = []
    problems: list[ValueError] = []
    for policy in POLICIES:
        try:
            plans.append(_plan_policy(replace(wish, policy=policy), keys, seed))
        except ValueError as problem:
            problems.append(problem)
    if not plans:
        raise problems[-1]
    name = "fpr" if wish.fpr is None else "nbytes"
    least = min(getattr(plan, name) for plan in plans)
    equals = [plan for plan in plans if getattr(plan, name) <= 1.0005 * least]
    return min(equals, key=lambda plan: (plan.miss_reads, plan.reads, getattr(plan, name)))


def _plan_policy(wish: _Wish, keys: int, seed: int) -> FilterPlan:
    assert wish.policy is not None
    wish = wish.for_policy(wish.policy)
    builder = _Builder(wish, keys)
    core = builder.core()
    if (
        builder.has_list and keys <= FEW_KEYS and wish.thresholds is None
    ):  # a short list is mostly room for chance
        other = builder.without_need_of_list()
        if other is not None and builder.better(other, core):
            core = other
    return _plan(_checked_core(str(wish.policy), core, named=False), keys, seed)


_MOST_PASSED_ON = 1e-4
"""Fraction of keys that may find every level full at capacity."""
_LEAST_SHARE = 0.016
"""Of the blocks, for the third level and those below it: a smaller one saves less than 1 % of the memory, and
every absent key would read it once there are more keys than planned, when all levels are full."""
_LEAST_BLOCKS = 3.5
"""Of the third level and those below it. What reaches it varies by chance, which the prediction neglects:
with a third level of one block the rate was 1.24 times the planned one on average, 43 times for an unlucky
filter."""


class _Builder:
    """From a wish to the integers."""

    def __init__(self, wish: _Wish, keys: int) -> None:
        assert wish.policy is not None
        self.wish, self.keys, self.policy = wish, keys, wish.policy
        self.counted = self.policy in COUNTED
        self.has_list = self.counted and wish.overflow != 0.0
        self.choices = 1 if self.policy == "single" else wish.choices
        if self.policy != "two-choice" and min(wish.reads, wish.miss_reads) < 1.0005:
            self.choices = 1
        overflow = DEFAULT_OVERFLOW if wish.overflow is None else wish.overflow
        self.overflow = overflow if self.has_list else math.inf
        self.state = 512 if self.counted else 0

    # shapes

    def shape(self, choices: int) -> shapes.Shape:
        """Ask for the best shape with up to so many choices."""
        wish, keys = self.wish, self.keys
        reads = wish.reads
        if self.policy == "sequential" and self.has_list and reads < math.inf:
            reads = max(reads - 3.0 * self._reads_sd(reads), 1.0)
        bits = None
        if wish.bits_per_key is not None:
            bits = max(self._budget() - self.state, wish.block_bits) / keys
        given = shapes.Given(wish.hashes, wish.thresholds, wish.coin, wish.shares, choices)
        rate = None if wish.fpr is None else wish.fpr - theory.digest_floor(keys)
        goal = shapes.Goal(rate, bits)
        bounds = shapes.Bounds(reads, wish.miss_reads, self.overflow)
        if self.counted and not self.has_list:
            bounds = shapes.Bounds(reads, wish.miss_reads, MOST_SPILLED)
        return shapes.best_shape(self.policy, wish.block_bits, goal, bounds, given, self._price())

    def _blocks(self) -> float:
        """Estimate the number of blocks."""
        if self.wish.bits_per_key is not None:
            return self._budget() / self.wish.block_bits
        assert self.wish.fpr is not None
        return -1.44 * math.log2(self.wish.fpr) * 1.1 * self.keys / self.wish.block_bits

    def _reads_sd(self, reads: float) -> float:
        """Bound the standard deviation of the mean reads of this many keys, generously."""
        return math.sqrt(5.0 * max(reads - 1.0, 1e-6) / self.keys)

    def _price(self) -> float:
        """Say what a key that no block takes costs, in bits."""
        if self.has_list:  # the list's room for chance included
            mean = max(0.5 * self.overflow * self.keys, 1.0)
            return shapes.LIST_BITS * min(1.0 + 6.0 / math.sqrt(mean), 4.0)
        wish = self.wish
        per_key = wish.bits_per_key
        if per_key is None:
            assert wish.fpr is not None
            per_key = -1.44 * math.log2(wish.fpr) * 1.1
        return per_key * (_LEAST_PRICE if wish.spill == "least" else _RANDOM_PRICE)

    def _budget(self) -> int:
        """Count the bits that bits_per_key allows, in whole 64-byte lines."""
        assert self.wish.bits_per_key is not None
        lines = round_up(self.keys, self.wish.bits_per_key, 512)
        arguments.check_total(lines * 512, "bits_per_key", self.wish.bits_per_key)
        return 512 * max(lines, 1)

    # integers

    def core(self) -> tuple[int, ...]:
        """Find the core: fewer levels where blocks are too few for the shape's."""
        explicit = self.wish.thresholds is not None or self.wish.shares is not None
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
            if not self._keeps_bounds(smaller):
                break
            shape = smaller
        core = self._with_goal(shape)
        if self.policy == "fill" and shape.choices > 1:
            shape = replace(shape, thresholds=(*shape.thresholds[:-1], self._last_threshold(core)))
            core = self._with_goal(shape)  # which needs fewer blocks now
        return self._kept(core)

    def _with_goal(self, shape: shapes.Shape) -> tuple[int, ...]:
        return self._by_memory(shape) if self.wish.fpr is None else self._by_rate(shape)

    def _has_tiny_level(self, shape: shapes.Shape) -> bool:
        if self.policy not in ("multilevel", "fill") or shape.choices <= 2:
            return False
        return min(shape.blocks[2:]) < _LEAST_SHARE * sum(shape.blocks)

    def _keeps_bounds(self, shape: shapes.Shape) -> bool:
        try:
            self._refuse_broken(shape)
        except ValueError:
            return False
        return True

    def _last_threshold(self, core: tuple[int, ...]) -> int:
        """Find a threshold for the last level, so that it does not take all that comes.

        Few keys find every level full at capacity, and when there are more the last level's blocks are no
        fuller than those above it. The core's own last threshold turns away (next to) no key.
        """
        if self.wish.last_threshold is not None:
            return self.wish.last_threshold
        low, high = max(core[9:-2:2]), core[-1]
        while low < high:
            middle = (low + high) // 2
            if levels.passed_on((*core[:-1], middle), self.keys) <= _MOST_PASSED_ON:
                high = middle
            else:
                low = middle + 1
        return high

    def without_need_of_list(self) -> tuple[int, ...] | None:
        """Find a core whose blocks practically never turn a key away."""
        bound, self.overflow = self.overflow, min(self.overflow, 1e-7 / self.keys)
        try:
            core = self.core()
        except ValueError:
            return None
        finally:
            self.overflow = bound
        if self.policy == "multilevel" and core[3] > 1 and core[5] == 0:
            core = (*core[:-1], self._last_threshold(core))
        return core

    def better(self, one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        """Tell whether the first core serves the goal better."""
        rates = [levels.predict(core, self.keys).fpr for core in (one, other)]
        sizes = [bytes_of_core(core) for core in (one, other)]
        if self.wish.fpr is not None:
            return (sizes[0], rates[0]) < (sizes[1], rates[1])
        budget = max(self._budget() // 8, 64 + self.state // 8)
        return (max(sizes[0], budget), rates[0]) < (max(sizes[1], budget), rates[1])

    def _core(self, shape: shapes.Shape, blocks: Sequence[int], limit: int) -> tuple[int, ...]:
        thresholds = (0,) if self.policy == "two-choice" else shape.thresholds
        budget = 0
        if self.policy == "sequential" and limit and self.wish.reads < math.inf:
            budget = max(math.floor(Fraction(self.wish.reads) * self.keys), 1)
        return (
            POLICIES.index(self.policy) + 1,
            self.wish.block_bits,
            shape.hashes,
            shape.choices,
            round(shape.coin * COIN_UNIT),
            limit,
            SPILLS.index(self.wish.spill) if self.counted else 0,
            budget,
            *(number for pair in zip(blocks, thresholds, strict=True) for number in pair),
        )

    def _limit(self, core: tuple[int, ...]) -> int:
        """Find the list's length for a core."""
        if not self.has_list:
            return 0
        endless = (*core[:5], MAX_LIST, core[6], 0, *core[8:])
        found = levels.predict(endless, self.keys)
        mean = found.overflow * found.changed * self.keys
        return min(levels.overflow_limit(mean, found.overflow_sd), MAX_LIST, self.keys)

    def _with_limit(self, shape: shapes.Shape, blocks: Sequence[int]) -> tuple[int, ...]:
        return self._core(shape, blocks, self._limit(self._core(shape, blocks, 0)))

    def _whole(self, wanted: Sequence[float]) -> list[int]:
        """Round numbers of blocks so that tables are whole lines."""
        unit = 512 // self.wish.block_bits
        return [max(round(each / unit), 1) * unit for each in wanted]

    def _by_rate(self, shape: shapes.Shape) -> tuple[int, ...]:
        """Find the fewest blocks whose rate is low enough, all tables growing together."""
        goal = self.wish.fpr
        assert goal is not None

        def trial(scale: float) -> tuple[tuple[int, ...], float]:
            wanted = [max(each * self.keys * scale, 1e-9) for each in shape.blocks]
            if sum(wanted) * self.wish.block_bits > theory.MAX_BITS:
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
            least = 0.5 / sum(core[8::2])  # a block more or less
            step = max(step, least) if rate > goal else min(step, -least)
            if -2e-4 < step <= 0.0 or (low and high / low < 1.0 + max(2e-5, 0.3 / (sum(core[8::2])))):
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

    def _by_memory(self, shape: shapes.Shape) -> tuple[int, ...]:
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
                core = self._core(shape, self._shared_out(lines, parts), limit)
                needed = self._limit(core)
                if 0.98 * limit - 1 <= needed <= limit or 256 * needed > budget:
                    break
                limit = needed + max(needed - limit, 0) * 2 // 5
            if needed <= limit or self.wish.thresholds is not None or not shape.thresholds:
                return core
            shape = replace(shape, thresholds=tuple(each + 1 + each // 8 for each in shape.thresholds))
            limit = 0

    def _shared_out(self, lines: int, parts: Sequence[float]) -> list[int]:
        """Divide lines by the shares, at least one each, the first table taking the rounding."""
        rest = [max(round(lines * part), 1) for part in parts[1:]]
        while sum(rest) > lines - 1 and max(rest, default=1) > 1:
            rest[rest.index(max(rest))] -= 1
        unit = 512 // self.wish.block_bits
        return [max(lines - sum(rest), 1) * unit, *(each * unit for each in rest)]

    # bounds

    def _refuse_broken(self, shape: shapes.Shape) -> None:
        """Refuse a goal that the bounds exclude."""
        if self.wish.bits_per_key is not None and shape.bits * self.keys > 1.0001 * self._budget() > 512.0:
            self._refuse_memory(shape)
        found = {"overflow": shape.overflow, "reads": shape.reads, "miss_reads": shape.miss_reads}
        limits = {"overflow": self.overflow, "reads": self.wish.reads, "miss_reads": self.wish.miss_reads}
        for name, limit in limits.items():
            if found[name] > limit * (1.0 + 1e-6):
                self._refuse(name, limit, found[name])
        if self.wish.fpr is not None and shape.fpr > self.wish.fpr * (1.0 + 1e-9):
            raise arguments.unmet(
                "fpr",
                f" must be at least {1.01 * shape.fpr:.3e} for policy={self.policy!r} with the hashes, "
                f"thresholds and bounds given; got {self.wish.fpr!r}. Raise it, or leave them out",
            )

    def _refuse_memory(self, shape: shapes.Shape) -> None:
        """Say how many bits per key what is given would need."""
        wanted = self.wish.bits_per_key
        assert wanted is not None
        low, high = wanted, wanted
        best: float | None = None
        for _ in range(12):
            other = _Builder(replace(self.wish, bits_per_key=min(high, 4096.0)), self.keys)
            trial = other.shape(self.choices)
            bounds = shapes.Bounds(self.wish.reads, self.wish.miss_reads, self.overflow)
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
        goal = (
            f"fpr={self.wish.fpr!r}"
            if self.wish.fpr is not None
            else f"bits_per_key={self.wish.bits_per_key!r}"
        )
        raise ValueError(
            f"{name} must be at least {math.ceil(found * 1.0001e6) / 1e6:.6g} for policy={self.policy!r} at "
            f"{goal} with what else is given; got {limit!r}. Raise it, or leave out thresholds, coin, shares "
            f"and other bounds"
        )

    def _kept(self, core: tuple[int, ...]) -> tuple[int, ...]:
        """Correct what rounding broke: thresholds rise until the bounds hold for the integers too."""
        wish = self.wish
        for attempt in range(40):
            found = levels.predict(core, self.keys)
            broken = [
                (name, limit, value)
                for name, limit, value in (
                    ("overflow", self.overflow, found.overflow),
                    ("reads", wish.reads, found.reads),
                    ("miss_reads", wish.miss_reads, found.miss_reads),
                )
                if value > limit * (1.0 + 1e-9)
            ]
            if not broken or (wish.fpr is not None and attempt and found.fpr > wish.fpr):
                break
            if wish.thresholds is not None:
                self._refuse(*broken[0])
            raised = list(core)
            tables = range(9, len(core) - (2 if self.policy == "fill" else 0), 2)
            top = wish.block_bits if self.policy == "fill" else MAX_THRESHOLD
            for place in tables:
                raised[place] = min(raised[place] + 1 + attempt // 4, top)
            core = tuple(raised)
            if self.has_list:
                core = (*core[:5], max(self._limit(core), 0), *core[6:])
        if wish.fpr is not None and levels.predict(core, self.keys).fpr > wish.fpr:
            return self._grown(core)
        return core

    def _grown(self, core: tuple[int, ...]) -> tuple[int, ...]:
        """Add blocks until the rate is low enough again."""
        assert self.wish.fpr is not None
        for attempt in range(200):
            if levels.predict(core, self.keys).fpr <= self.wish.fpr:
                break
            unit = 512 // self.wish.block_bits
            grown = list(core)
            for place in range(8, len(core), 2):
                grown[place] += max(round(grown[place] * 1e-3 * (1 + attempt) / unit), 1) * unit
            core = tuple(grown)
        return core


_LEAST_PRICE = 20.0
_RANDOM_PRICE = 60.0

# --- arguments -----------------------------------------------------------------------------------

_NAMES = "one of " + ", ".join(f'"{name}"' for name in POLICIES)


def _policy(value: object) -> str:
    if not isinstance(value, str):
        raise arguments.type_error("policy", _NAMES, value, "Leave it out of plan_balanced for the best")
    if value not in POLICIES:
        raise arguments.error("policy", _NAMES, value, "Leave it out of plan_balanced for the best")
    return value


def _spill(value: object) -> str:
    rule, way_out = '"least" or "random"', 'Leave it out for "least", the better one'
    if not isinstance(value, str):
        raise arguments.type_error("spill", rule, value, way_out)
    if value not in SPILLS:
        raise arguments.error("spill", rule, value, way_out)
    return value


def _coin(value: object) -> int:
    rule, way_out = "a probability from 0 to 1", "Pass 0 for no coin"
    number = arguments.real("coin", value, rule, way_out)
    if not 0.0 <= number <= 1.0:
        raise arguments.error("coin", rule, value, way_out)
    return round(number * COIN_UNIT)


def _tuple(name: str, value: object) -> tuple[int, ...]:
    way_out = "Pass for example (1000, 100)"
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray):
        raise arguments.type_error(name, "a sequence of integers", value, way_out)
    return tuple(arguments.integer(f"{name}[{i}]", each, 0, None, way_out) for i, each in enumerate(value))


def _bound(name: str, value: object, least: float, reason: str) -> float:
    if value is None:
        return math.inf
    rule, way_out = f"a number of at least {least:g}, since {reason}", "Leave it out for no bound"
    number = arguments.real(name, value, rule, way_out)
    if not number >= least:
        raise arguments.error(name, rule, value, way_out)
    return number


def _overflow(value: object) -> float | None:
    if value is None:
        return None
    rule, way_out = "a fraction from 0 to 1", "Pass 0 for no list, or leave it out for up to 0.005"
    number = arguments.real("overflow", value, rule, way_out)
    if not 0.0 <= number <= 1.0:
        raise arguments.error("overflow", rule, value, way_out)
    return number


def _shares(value: object) -> tuple[float, ...]:
    rule, way_out = "positive numbers, one for each table", "Pass for example (0.9, 0.1)"
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray):
        raise arguments.type_error("shares", rule, value, way_out)
    parts = [
        arguments.real(f"shares[{place}]", each, "a positive number", way_out)
        for place, each in enumerate(value)
    ]
    if not 1 <= len(parts) <= MAX_CHOICES or not all(0.0 < each < math.inf for each in parts):
        raise arguments.error("shares", rule, value, way_out)
    return tuple(each / math.fsum(parts) for each in parts)


register(
    *POLICIES,
    family=Family(
        rate_of_core,
        _of_balanced_core,
        (
            "policy", "block_bits", "hashes", "choices", "coin", "overflow_limit", "spill", "budget",
            "blocks_0", "threshold_0",
        ),
        more_tables=True,
    ),
)  # fmt: skip

"""The balanced Bloom filter: blocks of a cache line that pass keys on when they are full.

`theory.balanced_design` finds the integers of a plan, `theory.levels` predicts it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import SupportsFloat, SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins._keywords import explain_keywords
from evenbins.filters.base import BaseFilter
from evenbins.filters.plan import FilterPlan, FilterStats
from evenbins.theory import levels
from evenbins.theory.balanced_contenders import contenders
from evenbins.theory.balanced_core import bytes_of_core, checked_core
from evenbins.theory.balanced_design import check_reachable, core_for
from evenbins.theory.balanced_request import Request
from evenbins.theory.cores import COUNTED, BalancedCore
from evenbins.theory.measured import measure

__all__ = [
    "BalancedBloomFilter", "BalancedCore", "BalancedPlan", "BalancedStats", "balanced_stats", "plan_balanced",
]  # fmt: skip

_PREDICTED = ("fpr", "reads", "miss_reads", "list_reads", "spilled", "fill", "overflow")
DEFAULT_MISS_READS = 2.0
"""Bound on reads of absent keys when the policy is to be chosen."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BalancedPlan(FilterPlan):
    """The plan of a balanced filter.

    Attributes
    ----------
    block_bits : bits of a block (B)
    hashes : bits set for each key (k)
    choices : blocks a key may use, at most (d)
    thresholds, coin, shares : of the levels (h, p, alpha): a block of level j with thresholds[j] keys accepts
        one more with probability coin; "fill" counts set bits instead
    list_reads : fraction of absent keys that consult the overflow list
    overflow : fraction of keys on the overflow list, of which `overflow_limit` fit
    spilled : fraction of keys that find neither a block with room nor a list with room
    spill : where such a key goes: into the block of "least" set bits, or a "random" one of its blocks; None
        without thresholds on keys
    """

    _core_names = (*BalancedCore.NAMES, "blocks_0", "threshold_0")

    block_bits: int | None = field(compare=False)
    hashes: int = field(compare=False)
    choices: int = field(compare=False)
    thresholds: tuple[int, ...] = field(compare=False)
    coin: float | None = field(compare=False)
    shares: tuple[float, ...] = field(compare=False)
    list_reads: float = field(compare=False)
    spilled: float = field(compare=False)
    overflow: float = field(compare=False)
    overflow_limit: int = field(compare=False)
    spill: str | None = field(compare=False)

    @classmethod
    def _fits(cls, length: int) -> bool:
        return length >= len(cls._core_names) and length % 2 == 0

    @classmethod
    def of_core(cls, policy: str, core: Sequence[int], keys: int, seed: int, hashing: str) -> BalancedPlan:
        """Check the integers of a core and predict a filter with them."""
        return cls.predict(checked_core(policy, core, named=True), keys, seed)

    @classmethod
    def predict(cls, core: BalancedCore, keys: int, seed: int) -> BalancedPlan:
        """Predict a filter from a core that was checked."""
        found = levels.predict(core, keys)
        nbytes = bytes_of_core(core)
        total = sum(core.blocks)
        return cls(
            keys=keys,
            policy=core.policy,
            bits_per_key=nbytes * 8 / keys,
            block_bits=core.block_bits,
            hashes=core.hashes,
            choices=core.choices,
            thresholds=() if core.policy == "two-choice" else core.thresholds,
            coin=core.coin if core.counted else None,
            shares=tuple(each / total for each in core.blocks),
            **{name: getattr(found, name) for name in _PREDICTED},
            overflow_limit=core.overflow_limit,
            spill=core.spill if core.counted else None,
            nbytes=nbytes,
            hashing="lanes",
            seed=seed,
            core=core,
        )

    @property
    def load_unit(self) -> str:
        """What a block's load counts."""
        return "keys" if self.policy in COUNTED else "set bits"

    def planned_loads(self, blocks: int) -> Sequence[npt.NDArray[np.float64]]:
        """Return, for each level, the planned shares of blocks with load 0, 1, 2, …."""
        return levels.predict(self.core, self.keys).loads

    def _merged(self, parts: int) -> BalancedPlan:
        from evenbins.theory.merging import merge

        return replace(self, **merge(self.core, self.keys, parts)._asdict())


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BalancedStats(FilterStats):
    """What a balanced filter measures on itself.

    Attributes
    ----------
    list_reads : probability that a look-up of an absent key asks the overflow list
    overflow : fraction of keys on the overflow list
    spilled : fraction of keys that found neither a block with room nor a list with room
    loads : for each level, how many blocks have a load of 0, 1, 2, …: keys where blocks count them, else
        set bits
    """

    list_reads: float
    overflow: float
    spilled: float
    loads: tuple[tuple[int, ...], ...]


def plan_balanced(
    capacity: SupportsIndex | SupportsFloat, fpr: float | None = None, *, bits_per_key: float | None = None,
    hashes: int | None = None, policy: str | None = None, reads: float | None = None,
    miss_reads: float | None = None, choices: int | None = None, thresholds: Sequence[int] | None = None,
    coin: float | None = None, shares: Sequence[float] | None = None, overflow: float | None = None,
    spill: str = "least", block_bits: int = 512, seed: int = 0,
) -> BalancedPlan:  # fmt: skip
    """Plan a balanced filter: the least memory for `fpr`, or the least rate for `bits_per_key`.

    Bits are rounded up to a whole block; a filter is at least a block and, where keys are counted, 64 bytes
    of state.

    Parameters
    ----------
    capacity, fpr, bits_per_key, policy, choices, block_bits, seed
        As for `BalancedBloomFilter`: 1 to 8 choices, 3 when None.
    reads
        As for `BalancedBloomFilter`. For "sequential" with a list also its budget, reads * capacity in all,
        of which the plan leaves three standard deviations free.
    overflow
        As for `BalancedBloomFilter`; 0.005 when None.
    miss_reads
        Upper bound on the mean block reads of an absent key; 2 when None and the policy is to be chosen.
    hashes, thresholds, coin, shares, spill
        What is not to be chosen; see `BalancedPlan`.

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
    request = Request.of(
        policy=policy, fpr=fpr, bits_per_key=bits_per_key, reads=reads, choices=choices, overflow=overflow,
        miss_reads=miss_reads, block_bits=block_bits, hashes=hashes, thresholds=thresholds, coin=coin,
        shares=shares, spill=spill,
    )  # fmt: skip
    keys = arguments.capacity(capacity)
    seed = arguments.seed(seed)
    check_reachable(request, keys)
    if request.policy is not None:
        return BalancedPlan.predict(core_for(request, keys), keys, seed)
    return _best_plan(request, keys, seed)


def _best_plan(request: Request, keys: int, seed: int) -> BalancedPlan:
    """Plan with every policy that may be best, and take the best: least memory, or least rate."""
    if math.isinf(request.miss_reads):
        request = replace(request, miss_reads=DEFAULT_MISS_READS)
    plans: list[BalancedPlan] = []
    problems: list[ValueError] = []
    for policy in contenders(request, keys):
        try:
            core = core_for(replace(request, policy=policy), keys)
            plans.append(BalancedPlan.predict(core, keys, seed))
        except ValueError as problem:
            problems.append(problem)
    if not plans:
        raise problems[-1]
    name = "fpr" if request.fpr is None else "nbytes"
    least = min(getattr(plan, name) for plan in plans)
    equals = [plan for plan in plans if getattr(plan, name) <= 1.0005 * least]
    return min(equals, key=lambda plan: (plan.miss_reads, plan.reads, getattr(plan, name)))


class BalancedBloomFilter(BaseFilter):
    """The balanced Bloom filter: blocks of a cache line, kept in balance (kanizo).

    A key has a few blocks it may go to; a full block sends it on. So no block is crowded, and the
    filter needs little more memory than the standard one, at one or two memory reads a look-up.
    Adding a key that already answers "present" changes nothing: repeats cost no capacity.

    Parameters
    ----------
    capacity, fpr, bits_per_key, block_bits, seed
        As for `BlockedBloomFilter`. Memory counts everything, the overflow list too.
    policy
        "fill": a block is full when its set bits reach a threshold; the next level takes the key.
        "two-choice": two blocks, the key goes where it harms the rate least; both are read.
        "multilevel", "sequential", "single": the paper's, by counted loads, with an overflow list.
        None: the best of them for this request, with at most two reads of an absent key.
    reads, choices, overflow
        Upper bounds: mean block reads of an insertion or a present key (a), blocks a key may use
        (d), fraction of keys on the overflow list (0: no list; keys then spill).

    `filters.plan_balanced` takes more: hashes, thresholds, coin, shares of the levels, reads of an absent
    key, where keys spill; `from_plan` builds what it plans.

    Examples
    --------
    >>> f = BalancedBloomFilter(100_000, fpr=1e-6)
    >>> f.update(["a", b"b", 3])
    >>> "a" in f, "c" in f
    (True, False)
    >>> f.plan.miss_reads <= 2
    True
    """

    __slots__ = ()
    _kind = 3
    _keys_for_threads = 1 << 21  # of fewer keys, two threads add up to 1.4 times as long as one
    _plan_class = BalancedPlan
    _planner = staticmethod(plan_balanced)

    @explain_keywords
    def __init__(
        self, capacity: SupportsIndex | SupportsFloat, fpr: float | None = None, *,
        bits_per_key: float | None = None, policy: str | None = None, reads: float | None = None,
        choices: int | None = None, overflow: float | None = None, block_bits: int = 512, seed: int = 0,
    ) -> None:  # fmt: skip
        plan = plan_balanced(
            capacity, fpr, bits_per_key=bits_per_key, policy=policy, reads=reads, choices=choices,
            overflow=overflow, block_bits=block_bits, seed=seed,
        )  # fmt: skip
        self._build(plan)

    @property
    def _policy(self) -> str:
        return BalancedCore(self._core).policy

    def _histograms(self) -> list[npt.NDArray[np.int64]]:
        """Return, for each table, rows of load, set bits, and how many blocks have both, ascending."""
        tables = [
            np.array(self._level_histogram(table), dtype=np.int64).reshape(-1, 3)
            for table in range(len(BalancedCore(self._core).blocks))
        ]
        return [rows[np.lexsort(rows.T[::-1])] for rows in tables]

    def stats(self) -> BalancedStats:
        """Measure this very filter: computed from its blocks, in one pass over them."""
        return balanced_stats(self.plan, self._histograms(), self._state())


def balanced_stats(
    plan: FilterPlan, histograms: list[npt.NDArray[np.int64]], state: list[int]
) -> BalancedStats:
    """Return the stats of a filter with these histograms of its tables (`_histograms`) and this state."""
    measured = measure(list(plan.core), histograms, state)._asdict()
    return BalancedStats(**measured, **plan.sizes())

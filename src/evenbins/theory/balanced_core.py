"""Balanced filters from explicit integers: the core checked, its bytes, its predictions.

    plan_levels(capacity, *, policy, blocks, thresholds, hashes, …) -> FilterPlan     no choice is made here
    checked_core(policy, core, *, named) -> core          bytes_of_core(core), slots_of_limit(limit)

Memory counts everything: blocks padded to 64-byte lines, the list's slots, the state.

Source: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient Balanced Bloom Filters" (2013), whose designs
`plan_levels` takes as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsFloat, SupportsIndex

import numpy as np

from evenbins import _arguments as arguments
from evenbins.theory import fpr as theory
from evenbins.theory import levels
from evenbins.theory.cores import COIN_UNIT, COUNTED, POLICIES, SPILLS
from evenbins.theory.filter_plan import Family, FilterPlan, rate_of_core, register

__all__ = [
    "MAX_CHOICES", "MAX_LIST", "MAX_THRESHOLD", "bytes_of_core", "checked_coin", "checked_core",
    "checked_integers", "checked_policy", "checked_spill", "plan_levels", "plan_with", "slots_of_limit",
]  # fmt: skip

CORE_NAMES = (
    "policy", "block_bits", "hashes", "choices", "coin", "overflow_limit", "spill", "budget",
    "blocks_0", "threshold_0",
)  # fmt: skip
MAX_BLOCKS = 2**47
MAX_THRESHOLD = 65534
MAX_CHOICES = 8
MAX_LIST = 2**40


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
    name = checked_policy(policy)
    tables = checked_integers("blocks", blocks)
    limits = checked_integers("thresholds", thresholds)
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
        checked_coin(coin),
        overflow_limit,
        SPILLS.index(checked_spill(spill)),
        budget,
        *(number for pair in zip(tables, limits, strict=True) for number in pair),
    )
    return plan_with(checked_core(name, core, named=False), keys, arguments.seed(seed))


def _of_balanced_core(policy: str, core: Sequence[int], keys: int, seed: int, _: str) -> FilterPlan:
    """Check the core of a balanced filter and predict anew."""
    return plan_with(checked_core(policy, core, named=True), keys, seed)


def checked_core(policy: str, core: Sequence[int], *, named: bool) -> tuple[int, ...]:
    """Check every integer of a core by the rules of its policy, named as a core's or an argument."""
    remedy = "Pass a filter's plan.core" if named else "See plan_levels for what each number means"

    def one(place: int, name: str, least: int, most: int) -> int:
        shown = f"core[{place}] ({name})" if named else name
        rule = f"an integer from {least} to {most}" if least < most else f"{least} for policy={policy!r}"
        return arguments.integer(shown, core[place], least, most, remedy, rule=rule)

    number = POLICIES.index(policy) + 1
    counted, stepped = policy in COUNTED, policy in ("multilevel", "fill")
    tables = (len(core) - 8) // 2
    if tables < 1 or len(core) % 2 or tables > (MAX_CHOICES if stepped else 1):
        rule = f"8 integers and a pair for each of {'1 to 8 tables' if stepped else 'one table'}"
        raise arguments.error("core", f"{rule} of a {policy} filter", tuple(core), remedy)
    one(0, "policy", number, number)
    _, block_bits, *_ = core
    block_bits = arguments.block_bits(block_bits, "core[1] (block_bits)" if named else "block_bits")
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
    first = core[len(CORE_NAMES) - 2]
    arguments.check_total(bits, "core[8] (blocks_0)" if named else "blocks", first)
    return tuple(checked)


def slots_of_limit(limit: int) -> int:
    """Count the slots of a list for `limit` keys: three quarters full at most; none without a list."""
    return (limit + limit // 3 + 15) // 8 * 8 if limit else 0


def bytes_of_core(core: Sequence[int]) -> int:
    """Count the bytes of a filter: tables in whole 64-byte lines, the list, eight words of state."""
    design = levels.Design.of_core(core)
    lines = sum(-(-blocks * design.block_bits // 512) for blocks in design.blocks)
    return 64 * lines + (8 * slots_of_limit(design.overflow_limit) + 64 if design.counted else 0)


def plan_with(core: tuple[int, ...], keys: int, seed: int) -> FilterPlan:
    """Predict a filter from a core that was checked."""
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


def checked_policy(value: object) -> str:
    """Check the name of a policy."""
    return arguments.one_of("policy", value, POLICIES, "Leave it out of plan_balanced for the best")


def checked_spill(value: object) -> str:
    """Check where a key goes that finds its blocks and the list full."""
    return arguments.one_of("spill", value, SPILLS, 'Leave it out for "least", the better one')


def checked_coin(value: object) -> int:
    """Check a probability; return it in units of `COIN_UNIT`."""
    rule = "a probability from 0 to 1"
    return round(arguments.real("coin", value, rule, "Pass 0 for no coin", least=0.0, most=1.0) * COIN_UNIT)


def checked_integers(name: str, value: object) -> tuple[int, ...]:
    """Check a sequence of integers from 0."""
    remedy = "Pass for example (1000, 100)"
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray):
        raise arguments.type_error(name, "a sequence of integers", value, remedy)
    return tuple(arguments.integer(f"{name}[{i}]", each, 0, None, remedy) for i, each in enumerate(value))


register(*POLICIES, family=Family(rate_of_core, _of_balanced_core, CORE_NAMES, more_tables=True))

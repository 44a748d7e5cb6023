"""Balanced filters from explicit numbers: a paper's designs as they are.

Source: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient Balanced Bloom Filters" (2013).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins.filters.balanced import BalancedPlan
from evenbins.theory.balanced_core import (
    MAX_CHOICES,
    checked_coin,
    checked_core,
    checked_integers,
    checked_policy,
    checked_spill,
)
from evenbins.theory.cores import POLICIES, SPILLS

__all__ = ["plan_levels"]


def plan_levels(
    capacity: SupportsIndex | SupportsFloat, *, policy: str, blocks: Sequence[int],
    thresholds: Sequence[int] = (), hashes: int, block_bits: int = 512, coin: float = 0.0,
    choices: int | None = None, overflow_limit: int = 0, spill: str = "least", budget: int = 0,
    seed: int = 0,
) -> BalancedPlan:  # fmt: skip
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
    numbers = (
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
    return BalancedPlan.predict(checked_core(name, numbers, named=False), keys, arguments.seed(seed))

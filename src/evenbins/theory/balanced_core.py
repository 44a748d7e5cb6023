"""Balanced filters from explicit integers: the core checked, and its bytes.

Memory counts everything: blocks padded to 64-byte lines, the list's slots, the state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenbins import _arguments as arguments
from evenbins.theory import fpr as theory
from evenbins.theory.cores import COIN_UNIT, COUNTED, POLICIES, SPILLS, BalancedCore

__all__ = [
    "MAX_CHOICES", "MAX_LIST", "MAX_THRESHOLD", "bytes_of_core", "checked_coin", "checked_core",
    "checked_integers", "checked_policy", "checked_spill", "slots_of_limit",
]  # fmt: skip

MAX_BLOCKS = 2**47
MAX_THRESHOLD = 65534
MAX_CHOICES = 8
MAX_LIST = 2**40


def checked_core(policy: str, core: Sequence[int], *, named: bool) -> BalancedCore:
    """Check every integer of a core by the rules of its policy, named as a core's or an argument."""
    remedy = "Pass a filter's plan.core" if named else "See evenbins.study.levels for what each number means"

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
    found = BalancedCore(checked)
    arguments.check_total(bits, "core[8] (blocks_0)" if named else "blocks", found.blocks[0])
    return found


def slots_of_limit(limit: int) -> int:
    """Count the slots of a list for `limit` keys: three quarters full at most; none without a list."""
    return (limit + limit // 3 + 15) // 8 * 8 if limit else 0


def bytes_of_core(core: BalancedCore) -> int:
    """Count the bytes of a filter: tables in whole 64-byte lines, the list, eight words of state."""
    lines = sum(-(-blocks * core.block_bits // 512) for blocks in core.blocks)
    return 64 * lines + (8 * slots_of_limit(core.overflow_limit) + 64 if core.counted else 0)


def checked_policy(value: object) -> str:
    """Check the name of a policy."""
    return arguments.one_of("policy", value, POLICIES, "Leave policy out for the best")


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

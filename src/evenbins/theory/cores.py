"""A balanced filter's integer core, by names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["COIN_UNIT", "COUNTED", "POLICIES", "SPILLS", "Design", "counter_bits", "with_list"]

POLICIES = ("single", "sequential", "multilevel", "fill", "two-choice")
"""The policies in the order of their numbers in a core, from 1."""
COUNTED = frozenset(POLICIES[:3])
"""Those whose blocks count their keys."""
SPILLS = ("least", "random")
COIN_UNIT = 2**32
"""A core's coin is a probability in these units."""


def counter_bits(threshold: int) -> int:
    """Count the bits of a block's counter, which runs to threshold + 1."""
    return (threshold + 1).bit_length()


@dataclass(frozen=True, slots=True)
class Design:
    """A core by names: what `predict` reads."""

    policy: str
    block_bits: int
    hashes: int
    choices: int
    coin: float
    overflow_limit: int
    spill: str
    budget: int
    blocks: tuple[int, ...]
    thresholds: tuple[int, ...]

    @classmethod
    def of_core(cls, core: Sequence[int]) -> Design:
        """Read a core that is known to be right; `plan_of_core` checks."""
        if len(core) < 10 or len(core) % 2:
            raise ValueError(f"core must be the integers of a balanced filter; got {tuple(core)!r}")
        number, block_bits, hashes, choices, coin, limit, spill, budget, *tables = core
        if not 1 <= number <= len(POLICIES):
            raise ValueError(f"core must be the integers of a balanced filter; got {tuple(core)!r}")
        return cls(
            policy=POLICIES[number - 1],
            block_bits=block_bits,
            hashes=hashes,
            choices=choices,
            coin=coin / COIN_UNIT,
            overflow_limit=limit,
            spill=SPILLS[spill],
            budget=budget,
            blocks=tuple(tables[0::2]),
            thresholds=tuple(tables[1::2]),
        )

    @property
    def counted(self) -> bool:
        """Whether blocks count their keys."""
        return self.policy in COUNTED

    @property
    def key_bits(self) -> tuple[int, ...]:
        """Bits of a block that keys can set, for each table."""
        if not self.counted:
            return (self.block_bits,) * len(self.blocks)
        return tuple(self.block_bits - counter_bits(each) for each in self.thresholds)


def with_list(
    core: Sequence[int], limit: int, *, spill: int | None = None, budget: int | None = None
) -> tuple[int, ...]:
    """Return the core with a list of another length, and another spill and budget where given."""
    number, block_bits, hashes, choices, coin, _, old_spill, old_budget, *tables = core
    spill = old_spill if spill is None else spill
    budget = old_budget if budget is None else budget
    return (number, block_bits, hashes, choices, coin, limit, spill, budget, *tables)

"""The integers of a balanced filter, by name: what a file stores, and what filters are merged by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

__all__ = ["COIN_UNIT", "COUNTED", "POLICIES", "SPILLS", "BalancedCore", "counter_bits"]

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


class BalancedCore(tuple[int, ...]):
    """The core of a balanced filter: eight integers, then blocks and threshold of each table.

    A tuple, since it has as many integers as its tables ask for; `checked_core` checks each of them.
    """

    __slots__ = ()
    NAMES = ("policy", "block_bits", "hashes", "choices", "coin", "overflow_limit", "spill", "budget")
    """Names of the first eight; `blocks_0`, `threshold_0`, `blocks_1`, … follow."""

    def __new__(cls, numbers: Iterable[int]) -> Self:
        """Make a core of integers; their number and the first of them must be possible."""
        made = super().__new__(cls, numbers)
        if len(made) < 10 or len(made) % 2 or not 1 <= made[0] <= len(POLICIES):
            raise ValueError(f"core must be the integers of a balanced filter; got {tuple(made)!r}")
        return made

    @classmethod
    def of(
        cls, policy: str, block_bits: int, hashes: int, choices: int, coin: int, overflow_limit: int,
        spill: str, budget: int, blocks: Sequence[int], thresholds: Sequence[int],
    ) -> Self:  # fmt: skip
        """Put a core together; `coin` in units of `COIN_UNIT`."""
        tables = (number for pair in zip(blocks, thresholds, strict=True) for number in pair)
        number, way = POLICIES.index(policy) + 1, SPILLS.index(spill)
        return cls((number, block_bits, hashes, choices, coin, overflow_limit, way, budget, *tables))

    @property
    def policy(self) -> str:
        """How keys find a block."""
        return POLICIES[self[0] - 1]

    @property
    def block_bits(self) -> int:
        """Bits of a block."""
        return self[1]

    @property
    def hashes(self) -> int:
        """Bits set for each key."""
        return self[2]

    @property
    def choices(self) -> int:
        """Blocks a key may use, at most."""
        return self[3]

    @property
    def coin(self) -> float:
        """Probability with which a block at its threshold accepts one more key."""
        return self[4] / COIN_UNIT

    @property
    def overflow_limit(self) -> int:
        """Keys that the overflow list can hold."""
        return self[5]

    @property
    def spill(self) -> str:
        """Which full block takes a key when the list cannot."""
        return SPILLS[self[6]]

    @property
    def budget(self) -> int:
        """Block reads that all insertions together may spend; 0 is no end."""
        return self[7]

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks of each table."""
        return self[8::2]

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Keys, or set bits, from which on a block of each table is full."""
        return self[9::2]

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

    def with_tables(
        self, *, blocks: Sequence[int] | None = None, thresholds: Sequence[int] | None = None
    ) -> BalancedCore:
        """Return the core with other numbers of blocks or other thresholds."""
        pairs = zip(blocks or self.blocks, thresholds or self.thresholds, strict=True)
        return BalancedCore((*self[:8], *(number for pair in pairs for number in pair)))

    def with_list(self, limit: int, *, spill: int | None = None, budget: int | None = None) -> BalancedCore:
        """Return the core with a list of another length, and another spill and budget where given."""
        spill = self[6] if spill is None else spill
        budget = self.budget if budget is None else budget
        return BalancedCore((*self[:5], limit, spill, budget, *self[8:]))

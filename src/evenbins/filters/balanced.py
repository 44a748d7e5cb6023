"""The balanced Bloom filter: blocks of a cache line that pass keys on when they are full."""

from __future__ import annotations

from dataclasses import fields
from typing import SupportsFloat, SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins.filters.base import BaseFilter
from evenbins.filters.protocols import FilterStats
from evenbins.theory import plan_balanced
from evenbins.theory.measured import measure

__all__ = ["BalancedBloomFilter"]


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

    `theory.plan_balanced` takes more: hashes, thresholds, coin, shares of the levels, reads of an absent
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
    _policies = ("single", "sequential", "multilevel", "fill", "two-choice")

    def __init__(
        self,
        capacity: SupportsIndex | SupportsFloat,
        fpr: float | None = None,
        *,
        bits_per_key: float | None = None,
        policy: str | None = None,
        reads: float | None = None,
        choices: int | None = None,
        overflow: float | None = None,
        block_bits: int = 512,
        seed: int = 0,
    ) -> None:
        self._build(
            plan_balanced(
                capacity, policy=policy, fpr=fpr, bits_per_key=bits_per_key, reads=reads, choices=choices,
                overflow=overflow, block_bits=block_bits, seed=seed,
            )
        )  # fmt: skip

    @property
    def _policy(self) -> str:
        return self._policies[self._core[0] - 1]

    def _histograms(self) -> list[npt.NDArray[np.int64]]:
        """Give, for each table, rows of load, set bits, and how many blocks have both."""
        return [
            np.array(self._level_histogram(table), dtype=np.int64).reshape(-1, 3)
            for table in range((len(self._core) - 8) // 2)
        ]

    def stats(self) -> FilterStats:
        """Measure this very filter: computed from its blocks, in one pass over them."""
        measured = measure(self._core, self._histograms(), self._state())
        found = {each.name: getattr(measured, each.name) for each in fields(measured)}
        return FilterStats(**found, nbytes=self.nbytes, bits_per_key=8 * self.nbytes / self._capacity)

"""The blocked Bloom filter: k bits within one cache line; one memory read, somewhat more bits."""

from __future__ import annotations

from typing import SupportsFloat, SupportsIndex

import numpy as np

from evenbins.filters.base import BaseFilter
from evenbins.filters.protocols import FilterStats
from evenbins.theory import fpr, plan_blocked

__all__ = ["BlockedBloomFilter"]


class BlockedBloomFilter(BaseFilter):
    """The blocked Bloom filter: every key's bits in one block of a cache line, so one memory read.

    Blocks differ in load, which costs bits: at a false-positive rate of 1e-3 8 % more than the
    standard filter, at 1e-6 35 % more.

    Parameters
    ----------
    capacity, fpr, bits_per_key, hashes, seed
        As for `BloomFilter`; at most 32 hashes.
    block_bits
        512 (a cache line) or 256 (half of one: smaller tables of partial lines, a higher rate).

    Examples
    --------
    >>> f = BlockedBloomFilter(1_000_000, fpr=1e-3)
    >>> import numpy as np
    >>> f.add_many(np.arange(1_000_000))
    >>> bool(f.contains_many(np.arange(1_000_000)).all())
    True
    """

    __slots__ = ()
    _kind = 2
    _policies = ("blocked",)

    @property
    def _policy(self) -> str:
        return "blocked"

    def __init__(
        self,
        capacity: SupportsIndex | SupportsFloat,
        fpr: float | None = None,
        *,
        bits_per_key: float | None = None,
        hashes: int | None = None,
        block_bits: int = 512,
        seed: int = 0,
    ) -> None:
        self._build(
            plan_blocked(
                capacity, fpr=fpr, bits_per_key=bits_per_key, hashes=hashes, block_bits=block_bits, seed=seed
            )
        )

    def stats(self) -> FilterStats:
        """Measure this very filter: computed from its bits, in one pass over them."""
        blocks, block_bits, hashes = self._core
        loads = np.array(self._set_bits_histogram(block_bits), dtype=np.float64)
        set_bits = np.arange(block_bits + 1)
        total = int(loads @ set_bits)
        return FilterStats(
            keys=fpr.keys_from_blocked_fill(blocks, block_bits, hashes, total),
            fpr=float(loads @ (set_bits / block_bits) ** hashes / blocks),
            reads=1.0,
            miss_reads=1.0,
            overflow=0.0,
            fill=total / (blocks * block_bits),
            loads=(tuple(int(n) for n in loads),),
            nbytes=self.nbytes,
            bits_per_key=8 * self.nbytes / self._capacity,
        )

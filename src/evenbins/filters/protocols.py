"""What filters have in common, whatever they are made of: their methods, and what they say of themselves.

A function that takes "any filter" takes a `Filter`; every filter of this library satisfies it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from evenbins._bulk import Key
from evenbins._files import StrPath
from evenbins._show import ReprMixin
from evenbins.theory import FilterPlan

__all__ = ["Filter", "FilterStats", "OverfilledWarning", "side_by_side"]


class OverfilledWarning(UserWarning):
    """A filter holds more keys than it was planned for, so its false-positive rate is above the plan's."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FilterStats(ReprMixin):
    """What a filter measures on itself; each name means the same as in its plan.

    Attributes
    ----------
    keys : number of distinct keys, estimated from the set bits
    fpr : probability that a random absent key is reported present, computed from the actual bits
    reads, miss_reads : memory reads of a look-up of a present and of an absent key
    list_reads : probability that a look-up of an absent key asks the overflow list
    overflow : fraction of keys on the overflow list
    spilled : fraction of keys that found neither a block with room nor a list with room
    fill : fraction of set bits, or of counters above zero
    saturated : number of full counters
    loads : for each level, how many blocks have a load of 0, 1, 2, …: keys where blocks count them, else
        set bits; empty without blocks
    nbytes, bits_per_key : memory; per planned key
    overfilled : by what fraction the keys exceed the number planned for; 0 if they do not
    """

    _not_shown = ("loads",)

    keys: float
    fpr: float
    reads: float
    miss_reads: float
    overflow: float
    fill: float
    loads: tuple[tuple[int, ...], ...]
    nbytes: int
    bits_per_key: float
    list_reads: float = 0.0
    spilled: float = 0.0
    saturated: int = 0

    @property
    def overfilled(self) -> float:
        """By what fraction the keys exceed the number planned for; 0 if they do not."""
        planned = 8 * self.nbytes / self.bits_per_key
        return max(self.keys / planned - 1.0, 0.0)

    def _rows(self) -> list[tuple[str, object]]:
        return [*ReprMixin._rows(self), ("overfilled", self.overfilled)]


def side_by_side(plan: FilterPlan, stats: FilterStats) -> list[tuple[str, object, object]]:
    """Pair what was planned with what is measured: rows of (name, planned, measured)."""
    names = ["keys", "fpr", "fill", "reads", "miss_reads", "overflow", "bits_per_key", "nbytes"]
    if plan.overflow or stats.spilled:
        names[5:6] = ["list_reads", "overflow", "spilled"]
    if plan.counter_bits:
        names[5:6] = ["saturated"]
    return [(name, getattr(plan, name), getattr(stats, name)) for name in names]


@runtime_checkable
class Filter(Protocol):
    """What every filter of this library can do."""

    def add(self, key: Key, /) -> None: ...
    def __contains__(self, key: Key, /) -> bool: ...
    def update(self, *keys: object) -> None: ...
    def add_many(self, keys: object, *, digests: bool = False, threads: int = 1) -> None: ...
    def add_new(self, key: Key, /) -> bool: ...
    def add_new_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.bool_]: ...
    def contains_many(
        self, keys: object, *, digests: bool = False, threads: int = 1
    ) -> npt.NDArray[np.bool_]: ...
    def __or__(self, other: Self) -> Self: ...
    def __ior__(self, other: Self) -> Self: ...
    def copy(self) -> Self: ...
    def clear(self) -> None: ...
    def approx_items(self) -> float: ...
    def stats(self) -> FilterStats: ...
    def to_bytes(self) -> bytes: ...
    @classmethod
    def from_bytes(cls, data: bytes) -> Self: ...
    def save(self, path: StrPath) -> None: ...
    @classmethod
    def load(cls, path: StrPath) -> Self: ...
    @classmethod
    def open(cls, path: StrPath, *, verify: bool = False) -> Self: ...
    @property
    def plan(self) -> FilterPlan: ...
    @property
    def nbytes(self) -> int: ...

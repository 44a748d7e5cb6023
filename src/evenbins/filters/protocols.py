"""What filters have in common, whatever they are made of: their methods, and what they say of themselves.

A function that takes "any filter" takes a `Filter`; every filter of this library satisfies it.
"""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from evenbins._bulk import Key
from evenbins._files import StrPath
from evenbins.filters.plan import FilterPlan, FilterStats

__all__ = ["Filter", "OverfilledWarning", "side_by_side"]


LEVELS = (
    "in level 1",
    "in level 2",
    "in level 3",
    "in the rest",
)  # where the keys of a fingerprint filter are


class OverfilledWarning(UserWarning):
    """A filter holds more keys than it was planned for, so its false-positive rate is above the plan's."""


def side_by_side(plan: FilterPlan, stats: FilterStats) -> list[tuple[str, object, object]]:
    """Pair what was planned with what is measured: rows of (name, planned, measured)."""
    names = ["keys", "fpr", "fill", "reads", "miss_reads", "overflow", "bits_per_key", "nbytes"]
    if hasattr(stats, "shares"):  # of the keys, in the levels of a fingerprint or window filter
        del names[5]
    elif plan.overflow or stats.spilled:
        names[5:6] = ["list_reads", "overflow", "spilled"]
    if plan.counter_bits:
        names[5:6] = ["saturated"]
    rows = [(name, getattr(plan, name), getattr(stats, name)) for name in names]
    if isinstance(shares := getattr(stats, "shares", None), tuple):
        rows[5:5] = zip(LEVELS, plan.shares, shares, strict=True)
    return rows


@runtime_checkable
class Filter(Protocol):
    """What every filter of this library can do."""

    def add(self, key: Key, /) -> None: ...
    def __contains__(self, key: Key, /) -> bool: ...
    def update(self, *keys: object) -> None: ...
    def add_many(self, keys: object, *, digests: bool = False, threads: int | None = None) -> None: ...
    def add_new(self, key: Key, /) -> bool: ...
    def add_new_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.bool_]: ...
    def contains_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
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
    def open(cls, path: StrPath, *, verify: bool = False, preload: bool = False) -> Self: ...
    @property
    def plan(self) -> FilterPlan: ...
    @property
    def nbytes(self) -> int: ...

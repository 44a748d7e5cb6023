"""Keys and filters that the CPU and the GPU must treat alike, made from formulas: both machines make the same ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["CORES", "integers", "strings"]

# name: (kind, hashing, seed, capacity, core)
CORES: dict[str, tuple[int, int, int, int, list[int]]] = {
    "blocked-10": (2, 2, 7, 100_000, [4001, 512, 10]),
    "blocked-20": (2, 2, 0, 100_000, [2500, 512, 20]),
    "blocked-256": (2, 2, 1, 100_000, [7001, 256, 8]),
    "blocked-one": (2, 2, 1, 100, [1, 512, 3]),
    "standard": (1, 1, 3, 100_000, [1_600_007, 10]),
    "fill": (3, 2, 5, 100_000, [4, 512, 10, 2, 0, 0, 0, 0, 3000, 267, 1700, 267]),
    "multilevel": (3, 2, 5, 100_000, [3, 512, 10, 2, 1 << 31, 4000, 0, 0, 2900, 36, 400, 33]),
    "single": (3, 2, 5, 100_000, [1, 256, 6, 1, 0, 9000, 0, 0, 6000, 17]),
    "two-choice": (3, 2, 5, 100_000, [5, 512, 10, 2, 0, 0, 0, 0, 3000, 0]),
    "sequential": (3, 2, 5, 100_000, [2, 512, 10, 3, 1 << 30, 3000, 0, 130_000, 3300, 33]),
}  # fmt: skip


def integers(n: int, dtype: str, *, repeats: bool = False) -> npt.NDArray[np.generic]:
    """Return n integers, spread over the whole type; with `repeats`, of about n / 3 different values."""
    numbers = np.arange(n, dtype=np.uint64)
    if repeats:
        numbers = (numbers * np.uint64(7919)) % np.uint64(max(n // 3, 1))
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return mixed.astype(dtype)


def strings(n: int, longest: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes and offsets of n strings of 0 to `longest` bytes."""
    lengths = (np.arange(n, dtype=np.uint64) * np.uint64(40503) % np.uint64(longest + 1)).astype(np.int64)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = (np.arange(int(offsets[-1]), dtype=np.uint64) * np.uint64(2654435761) >> np.uint64(13)).astype(np.uint8)
    return data, offsets

"""Where a key's bits go, for one digest (Python's integers) and for an array of them (NumPy).

The formulas are those of docs/format.md, "Which bits a key has", and the one-digest functions are those of
the readable twins themselves (`reference.keys`, `reference.blocked`). Tests compare the two forms.

Invariant: 64-bit arithmetic wraps, as `uint64` does; `mulhi` is the high word of the full 128-bit product.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from evenbins.reference.blocked import LANES, ODD
from evenbins.reference.keys import PHI

__all__ = ["coins", "lane_positions_many", "mulhi_many", "splitmix_many", "words_many"]

Words = npt.NDArray[np.uint64]

_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)
_ODD: Final = np.array(ODD, dtype=np.uint64)
_SECOND: Final = 0xD1342543DE82EF95


def splitmix_many(seeds: Words, i: int) -> Words:
    """Give output number `i` of SplitMix64 for each seed."""
    z = seeds + np.uint64((i + 1) * PHI & (2**64 - 1))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def mulhi_many(x: Words, m: int) -> npt.NDArray[np.int64]:
    """Map each word onto 0 … m-1: the high word of the product with `m`."""
    high, low = x >> _HALF, x & _LOW
    m_high, m_low = np.uint64(m >> 32), np.uint64(m & 0xFFFFFFFF)
    middle = high * m_low + ((low * m_low) >> _HALF)
    other = low * m_high + (middle & _LOW)
    found: npt.NDArray[np.int64] = (high * m_high + (middle >> _HALF) + (other >> _HALF)).astype(np.int64)
    return found


def words_many(digests: Words, level: int) -> Words:
    """Give the word of each key at a level: block, positions and coin come from it."""
    return splitmix_many(digests, level) if level else digests


def lane_positions_many(words: Words, hashes: int, span: int) -> npt.NDArray[np.uint16]:
    """Give `hashes` positions in 0 … span-1 for each word: one row a word."""
    first = words * np.uint64(PHI)
    first ^= first >> _HALF
    second = first * np.uint64(_SECOND)
    second ^= second >> _HALF
    found = np.empty((len(words), hashes), np.uint16)
    for i in range(hashes):
        remixed = first if i < LANES else second
        half = remixed >> _HALF if i % 2 else remixed & _LOW
        product = (half * _ODD[i % LANES]) & _LOW
        found[:, i] = ((product >> np.uint64(9)) * np.uint64(span)) >> np.uint64(23)
    return found


def coins(words: Words, coin: int) -> npt.NDArray[np.bool_]:
    """Say for each word whether its coin lets it into a block at the threshold; `coin` of 2**32."""
    return splitmix_many(words, 0) >> _HALF < np.uint64(coin)

"""Digests, and the arithmetic that turns a digest into bins and positions.

The core does all of this for the structures in memory. Python code that places keys elsewhere (Redis) calls
these functions: one digest as a Python integer, or an array of them. docs/format.md, "Which bits a key has",
has the formulas; tests compare them with the twins and with the core.

Invariant: 64-bit arithmetic wraps, as `uint64` does; `mulhi` is the high word of the full 128-bit product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _bulk, _core
from evenbins._bulk import Key

__all__ = [
    "LANES", "MASK", "PHI", "coins", "digest", "digest_many", "lane_positions", "lane_positions_many", "mix",
    "mulhi", "mulhi_many", "splitmix", "splitmix_many", "words_many",
]  # fmt: skip

Words = npt.NDArray[np.uint64]

MASK: Final = 2**64 - 1
PHI: Final = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio, odd: the step of SplitMix64
LANES: Final = 16  # positions drawn from one word
_SECOND: Final = 0xD1342543DE82EF95  # the factor of the word for positions 16 to 31
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


def digest(key: Key, seed: int = 0) -> int:
    """Return the 64-bit digest of one key: the number from which every structure derives its bins.

    Examples
    --------
    >>> digest("a") == digest(b"a"), digest(-1) == digest(2**64 - 1)
    (True, False)
    """
    return _core.digest(key, arguments.seed(seed))


def digest_many(keys: object, seed: int = 0) -> Words:
    """Return the digests of many keys, for calls with `digests=True`; takes what `add_many` takes."""
    source, shape = _bulk.key_source(keys, single="digest(key)")
    digests = _core.digest_from(source, arguments.seed(seed))
    return digests if shape is None else digests.reshape(shape)


# --- one digest: Python's integers, faster than NumPy for one ---------------------------------------------


def mix(z: int) -> int:
    """Return SplitMix64's finaliser of a word: a bijection whose output bits look independent."""
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return z ^ z >> 31


def splitmix(seed: int, i: int) -> int:
    """Return output number `i` (from 0) of SplitMix64 started at `seed`."""
    return mix((seed + (i + 1) * PHI) & MASK)


def mulhi(x: int, m: int) -> int:
    """Map the 64-bit word `x` onto 0 … m-1: the high word of the product with `m`."""
    return (x * m) >> 64


_ODD: Final = tuple(splitmix(0, lane) >> 32 | 1 for lane in range(LANES))


def _remix(word: int, factor: int) -> int:
    product = word * factor & MASK
    return product ^ product >> 32


def lane_positions(word: int, hashes: int, span: int) -> Iterator[int]:
    """Yield `hashes` positions in 0 … span-1, drawn from a word; for any `span` up to 512."""
    first = _remix(word, PHI)
    second = _remix(first, _SECOND)
    for i in range(hashes):
        remixed = first if i < LANES else second
        half = remixed >> 32 if i % 2 else remixed & 0xFFFFFFFF
        product = half * _ODD[i % LANES] & 0xFFFFFFFF
        yield (product >> 9) * span >> 23


# --- arrays of digests -------------------------------------------------------------------------------------


def splitmix_many(seeds: Words, i: int) -> Words:
    """Return output number `i` of SplitMix64 for each seed."""
    z = seeds + np.uint64((i + 1) * PHI & MASK)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def mulhi_many(x: Words, m: int) -> npt.NDArray[np.int64]:
    """Map each word onto 0 … m-1: the high word of the product with `m`."""
    high, low = x >> _HALF, x & _LOW
    m_high, m_low = np.uint64(m >> 32), np.uint64(m & 0xFFFFFFFF)
    middle = high * m_low + ((low * m_low) >> _HALF)
    other = low * m_high + (middle & _LOW)
    bins: npt.NDArray[np.int64] = (high * m_high + (middle >> _HALF) + (other >> _HALF)).astype(np.int64)
    return bins


def words_many(digests: Words, level: int) -> Words:
    """Return the word of each key at a level: block, positions and coin come from it."""
    return splitmix_many(digests, level) if level else digests


def lane_positions_many(words: Words, hashes: int, span: int) -> npt.NDArray[np.uint16]:
    """Return `hashes` positions in 0 … span-1 for each word, one row per word."""
    first = words * np.uint64(PHI)
    first ^= first >> _HALF
    second = first * np.uint64(_SECOND)
    second ^= second >> _HALF
    positions = np.empty((len(words), hashes), np.uint16)
    for i in range(hashes):
        remixed = first if i < LANES else second
        half = remixed >> _HALF if i % 2 else remixed & _LOW
        product = (half * np.uint64(_ODD[i % LANES])) & _LOW
        positions[:, i] = ((product >> np.uint64(9)) * np.uint64(span)) >> np.uint64(23)
    return positions


def coins(words: Words, coin: int) -> npt.NDArray[np.bool_]:
    """Return for each word whether its coin admits it to a block at the threshold; `coin` of 2**32."""
    return splitmix_many(words, 0) >> _HALF < np.uint64(coin)

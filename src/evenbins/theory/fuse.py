"""The fuse filter: how many slots its keys need, and what that makes per key.

    keys ──▶ blocks of one to two million keys ──▶ segments of 2**i slots ──▶ slots of 4 to 32 bits

A block is solved by peeling, which runs from both of its ends to the middle. It succeeds while the inner
segments have more slots per key than

    1.0894 * (1 + 1.5 / sqrt(segment_length))

The first factor is the limit for long chains of segments: 1 / 0.9179, above which random equations of three
unknowns have a solution at all. The second is for the segments that have more keys than others by chance;
1.5 was measured, for segments of 2**12 to 2**14 slots. Plans use 1.9 (`SPREAD`): then no block of up to
2,000,000 keys failed for want of slots (tools/fuse_attempts.py). Two more segments are needed at the ends.
So short segments cost by chance, long ones at the ends, and `shape` takes the length with the fewest slots.

What still fails is a block with two keys that have all three slots in common, about
keys / (2.25 * segment_length**2) of them: 0.7 % of blocks of a million keys, a tenth of those of a thousand.
These are tried again, with other slots.
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = [
    "BLOCK_KEYS", "FEW", "MAX_REMAINDER", "MIN_REMAINDER", "Shape", "build_bytes", "fill", "nbytes", "rate",
    "remainder_bits", "shape",
]  # fmt: skip

FACTOR = 1.0894
SPREAD = 1.9
BLOCK_KEYS = 2**20
"""A block has so many keys at least, unless it is the only one; twice as many if there are still `FEW`."""
FEW = 8
"""Blocks that threads can share; larger ones take fewer slots."""
MIN_REMAINDER, MAX_REMAINDER = 4, 32
"""Bits of a remainder."""
_DEVIATIONS = 3  # of the number of keys in a block: it has slots for as many more
_LENGTHS = tuple(2**i for i in range(2, 19))
_SHARED_LENGTH = 64  # at least, where there are several blocks: they begin at whole words


class Shape(NamedTuple):
    """The slots of a fuse filter.

    Attributes
    ----------
    blocks : parts that are solved each by itself
    segment_length : slots of a segment
    segments : segments of a block
    """

    blocks: int
    segment_length: int
    segments: int

    @property
    def slots(self) -> int:
        """Slots of all blocks."""
        return self.blocks * self.segment_length * self.segments


def shape(keys: int) -> Shape:
    """Return the slots for so many different keys.

    Examples
    --------
    >>> shape(10_000_000)
    Shape(blocks=8, segment_length=8192, segments=173)
    >>> round(shape(10_000_000).slots / 10_000_000, 3), round(shape(1000).slots / 1000, 3)
    (1.134, 1.536)
    """
    blocks = max(min(keys // BLOCK_KEYS, FEW), keys // (2 * BLOCK_KEYS), 1)
    most = keys / blocks
    if blocks > 1:
        most += _DEVIATIONS * math.sqrt(most)
    lengths = _LENGTHS if blocks == 1 else [each for each in _LENGTHS if each >= _SHARED_LENGTH]
    length = min(lengths, key=lambda each: _inner(each) * most + 2 * each)
    segments = math.ceil(_inner(length) * most / length) + 2
    return Shape(blocks, length, max(segments, 3))


def _inner(length: int) -> float:
    """Return the slots per key of the inner segments."""
    return FACTOR * (1.0 + SPREAD / math.sqrt(length))


def remainder_bits(fpr: float) -> int:
    """Return the bits of a remainder for a rate: at least 4, and more than 32 if no filter reaches it.

    Examples
    --------
    >>> [remainder_bits(rate) for rate in (0.5, 2**-8, 1e-3, 1e-6)]
    [4, 8, 10, 20]
    """
    return max(math.ceil(-math.log2(fpr) - 1e-9), MIN_REMAINDER)


def rate(bits: int, keys: int, fingerprints: int = 0) -> float:
    """Return the false-positive rate, which is exact: 2**-bits, and 0 without keys.

    With `fingerprints` (M), of which `keys` are in the set, also an absent key whose fingerprint is in the
    set is found.

    Examples
    --------
    >>> rate(8, 1000), rate(8, 0)
    (0.00390625, 0.0)
    >>> round(rate(8, 1000, fingerprints=1_000_000), 6)
    0.004902
    """
    if not keys:
        return 0.0
    share = keys / fingerprints if fingerprints else 0.0
    return share + (1.0 - share) * 2.0**-bits


def fill(keys: int, slots: int, bits: int) -> float:
    """Return the expected fraction of slots that are not zero: those of keys, unless zero by chance.

    Examples
    --------
    >>> round(fill(10_000_000, shape(10_000_000).slots, 8), 3)
    0.879
    """
    return keys / slots * (1.0 - 2.0**-bits)


def nbytes(found: Shape, bits: int) -> int:
    """Return the bytes of a filter: its slots, and a byte per block, each in whole words.

    Examples
    --------
    >>> round(8 * nbytes(shape(10_000_000), 8) / 10_000_000, 3)
    9.07
    """
    return -(-found.slots * bits // 64) * 8 + -(-found.blocks // 8) * 8


def build_bytes(keys: int, bits: int, threads: int = 1) -> int:
    """Return the memory that building takes, the filter included: 8 bytes per key, and some for each thread.

    `keys` are those that are read, repeats included. A thread solves one block at a time, with 13 bytes per
    slot of it.

    Examples
    --------
    >>> round(build_bytes(10_000_000, 8, threads=2) / 10_000_000, 1), round(build_bytes(10**9, 8) / 10**9, 1)
    (12.8, 9.2)
    """
    found = shape(keys)
    block = found.segment_length * found.segments
    return 8 * keys + nbytes(found, bits) + min(threads, found.blocks) * 13 * block

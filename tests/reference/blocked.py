"""The blocked Bloom filter: all bits of a key lie in one block, so a query reads one cache line.

    digest ──mulhi──▶ block
       └── * PHI, fold ──▶ r1 ──▶ positions  0 .. 15      r1 ──▶ r2 ──▶ positions 16 .. 31

                   r = │ high 32 bits │ low 32 bits │
       lane i takes the low half if i is even, the high half if it is odd, times its own odd
       constant; the position in the block is the 32-bit product's share of B: its top log2(B) bits.

Putze, Sanders, Singler, "Cache-, hash- and space-efficient Bloom filters" (WEA 2007). The lanes
are shaped for SIMD: sixteen 32-bit multiplications and one shift give sixteen positions at once.

Invariants: as in `bloom`; all positions of a key lie in one block. They are drawn with
replacement, so some may coincide.
Tried and dropped: positions h1 + i*h2 of a pair of 9-bit numbers. Different keys then share all
their positions too often: the false-positive rate has a floor of 1e-4 in a block of 512 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reference.bloom import BitFilter
from reference.keys import MASK, PHI, mulhi, splitmix

LANES: Final = 16
ODD: Final = tuple(splitmix(0, lane) >> 32 | 1 for lane in range(LANES))


def remix(word: int, factor: int) -> int:
    """Multiply, then fold the high half, the better one, onto the low."""
    product = word * factor & MASK
    return product ^ product >> 32


def lane_positions(word: int, hashes: int, span: int) -> Iterator[int]:
    """Yield ``hashes`` positions in 0 .. span-1, drawn from a word; for any ``span`` up to 512."""
    r1 = remix(word, PHI)
    r2 = remix(r1, 0xD1342543DE82EF95)
    for i in range(hashes):
        r = r1 if i < LANES else r2
        lane = i % LANES
        half = r >> 32 if lane % 2 else r & 0xFFFFFFFF
        product = half * ODD[lane] & 0xFFFFFFFF
        yield (product >> 9) * span >> 23  # 23 bits times 9 stay below 2**32; a power of two is a shift


class ReferenceBlocked(BitFilter):
    """A filter of ``blocks`` blocks of ``block_bits`` bits (B), ``hashes`` throws a key (k).

    Examples
    --------
    >>> f = ReferenceBlocked(4, 512, 8)
    >>> f.add("key")
    >>> "key" in f, "another" in f
    (True, False)
    """

    kind = 2
    hashing = 2

    def __init__(self, blocks: int, block_bits: int, hashes: int, seed: int = 0) -> None:
        if not 1 <= blocks < 2**64:
            raise ValueError(f"blocks must be in 1 .. 2**64 - 1, got {blocks}")
        if block_bits not in (256, 512):
            raise ValueError(f"block_bits must be 256 or 512, got {block_bits}")
        if not 1 <= hashes <= 2 * LANES:
            raise ValueError(f"hashes must be in 1 .. 32, got {hashes}")
        self.blocks = blocks
        self.block_bits = block_bits
        self.hashes = hashes
        core = (blocks, block_bits, hashes)
        super().__init__(core, seed, payload_bytes=blocks * block_bits // 8)

    def positions(self, digest: int) -> Iterator[int]:
        """Yield ``hashes`` positions, all in the block of the digest."""
        start = mulhi(digest, self.blocks) * self.block_bits
        for p in lane_positions(digest, self.hashes, self.block_bits):
            yield start + p

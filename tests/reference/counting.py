"""The counting Bloom filter: counters in place of bits, so that a key can be removed.

    flat       k positions anywhere among m counters                      (as `bloom`)
    blocked    k positions in one block of 512 bits, 512/b counters       (as `blocked`)

A key is the *set* of its positions: where two coincide the counter moves once. A counter that has
reached 2**b - 1 is full and never moves again, neither up nor down: it may stand for more keys
than it can say. A removal that finds a zero among its counters changes nothing.

Invariants: a counter that is not full is the number of keys in the filter that have it, repeats
counted; adding a key and removing it leaves the counters as they were, unless one became full;
counter p is the b bits from bit p*b of the payload on, and the spare bits are zero.
"""

from __future__ import annotations

from typing import Final, Self

from reference.blocked import LANES, lane_positions
from reference.bloom import ReferenceFilter
from reference.keys import digest as digest_of
from reference.keys import mulhi, splitmix

BLOCK_BITS: Final = 512


def payload_bytes(core: tuple[int, ...]) -> int:
    """Return the size of the payload; ValueError if it is no valid core."""
    try:
        counters, counter_bits, hashes, block_bits = core
    except ValueError:
        raise ValueError(f"a counting filter has four numbers in its core, got {len(core)}") from None
    if counter_bits not in (2, 4, 8, 16):
        raise ValueError(f"counter_bits must be 2, 4, 8 or 16, got {counter_bits}")
    if not 1 <= counters <= 2**56 // counter_bits:
        raise ValueError(f"counters must be in 1 .. 2**56 // counter_bits, got {counters}")
    if block_bits not in (0, BLOCK_BITS):
        raise ValueError(f"block_bits must be 0 or 512, got {block_bits}")
    if block_bits and counters * counter_bits % BLOCK_BITS:
        raise ValueError(f"counters must fill whole blocks of {BLOCK_BITS // counter_bits}, got {counters}")
    if not 1 <= hashes <= (2 * LANES if block_bits else 64):
        raise ValueError(f"hashes must be in 1 .. 64, blocked 1 .. 32, got {hashes}")
    return -(-counters * counter_bits // 64) * 8


class ReferenceCounting(ReferenceFilter):
    """A filter of ``counters`` counters (m) of ``counter_bits`` bits (b), ``hashes`` positions a key (k).

    ``block_bits`` is 512 if the positions of a key lie in one block, 0 if they lie anywhere.

    Examples
    --------
    >>> f = ReferenceCounting(1000, 4, 7)
    >>> f.add("key")
    >>> f.remove("key"), f.remove("key")
    (True, False)
    """

    kind = 5

    def __init__(
        self, counters: int, counter_bits: int, hashes: int, block_bits: int = 0, seed: int = 0
    ) -> None:
        core = (counters, counter_bits, hashes, block_bits)
        self._payload_bytes = payload_bytes(core)
        super().__init__(core, seed)
        self.counters = counters
        self.counter_bits = counter_bits
        self.hashes = hashes
        self.block_bits = block_bits
        self.most = 2**counter_bits - 1
        self.values: dict[int, int] = {}  # of the counters above zero

    @property
    def hashing(self) -> int:  # type: ignore[override]
        """The number of the scheme in a file: 1 independent, 2 lanes."""
        return 2 if self.block_bits else 1

    def positions(self, digest: int) -> set[int]:
        """Return the distinct positions of a key."""
        if not self.block_bits:
            return {mulhi(splitmix(digest, i), self.counters) for i in range(self.hashes)}
        span = self.block_bits // self.counter_bits
        start = mulhi(digest, self.counters // span) * span
        return {start + p for p in lane_positions(digest, self.hashes, span)}

    def add_digest(self, digest: int) -> None:
        """Raise each counter of the key by one, but no full one."""
        for p in self.positions(digest):
            self.values[p] = min(self.values.get(p, 0) + 1, self.most)

    def contains_digest(self, digest: int) -> bool:
        """Tell whether every counter of the key is above zero."""
        return self.positions(digest) <= self.values.keys()

    def remove(self, key: object) -> bool:
        """Take ``key`` out once; False, and nothing changes, if it is not in."""
        return self.remove_digest(digest_of(key, self.seed))

    def remove_digest(self, digest: int) -> bool:
        """Lower each counter of the key by one, but no full one."""
        if not self.contains_digest(digest):
            return False
        for p in self.positions(digest):
            if self.values[p] < self.most:
                self.values[p] -= 1
                if not self.values[p]:
                    del self.values[p]
        return True

    def count(self, key: object) -> int:
        """Return the least of the key's counters."""
        return min(self.values.get(p, 0) for p in self.positions(digest_of(key, self.seed)))

    def _unite(self, other: Self) -> None:
        for p, value in list(other.values.items()):
            self.values[p] = min(self.values.get(p, 0) + value, self.most)

    def set_bits(self) -> int:
        """Count the counters above zero."""
        return len(self.values)

    def payload(self) -> bytes:
        """Return the counters, as they stand in a file."""
        packed = sum(value << p * self.counter_bits for p, value in self.values.items())
        return packed.to_bytes(self._payload_bytes, "little")

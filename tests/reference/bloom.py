"""The standard Bloom filter, and what every filter shares.

    digest ──SplitMix64──▶ k words ──mulhi──▶ k positions in 0 .. m-1 ──▶ k bits set

A key counts as present when all its k bits are set (Bloom, "Space/time trade-offs in hash coding
with allowable errors", CACM 1970). Each position has a word of its own, so two keys share as many
positions as chance has it, and no more.

Invariants: bits are only ever set, so an added key is always found; the payload is a whole number
of 64-bit words and its spare bits are zero; the order of the adds leaves no trace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Final, Self, cast

from reference import keys
from reference.keys import mulhi, splitmix


class ReferenceFilter(ABC):
    """What a key goes into and a query asks, whatever lies inside.

    Attributes
    ----------
    core
        The integers which, with the kind and the seed, fix every position: what is stored,
        compared and merged by.
    """

    kind: ClassVar[int]
    hashing: int

    def __init__(self, core: tuple[int, ...], seed: int) -> None:
        self.core = core
        self.seed = keys.checked_seed(seed)

    def add(self, key: object) -> None:
        """Put ``key`` in."""
        self.add_digest(keys.digest(key, self.seed))

    def contains(self, key: object) -> bool:
        """Tell whether ``key`` may be in: never False for an added key."""
        return self.contains_digest(keys.digest(key, self.seed))

    __contains__ = contains

    def merge(self, other: ReferenceFilter) -> None:
        """Take in every key of ``other``.

        Raises
        ------
        ValueError
            The two differ in kind, core or seed: a bit means different keys in each.
        """
        mine, theirs = ((f.kind, f.hashing, f.core, f.seed) for f in (self, other))
        if mine != theirs:
            raise ValueError(f"other must have kind, hashing, core and seed {mine}, got {theirs}")
        self._unite(cast(Self, other))

    @abstractmethod
    def add_digest(self, digest: int) -> None:
        """Put in the key of a digest."""

    @abstractmethod
    def contains_digest(self, digest: int) -> bool:
        """Tell whether the key of a digest may be in."""

    @abstractmethod
    def _unite(self, other: Self) -> None:
        """Merge a filter of the same structure."""

    @abstractmethod
    def set_bits(self) -> int:
        """Count the bits that keys have set."""

    @abstractmethod
    def payload(self) -> bytes:
        """Return the filter's bytes, as they stand in a file."""


class BitFilter(ReferenceFilter):
    """Bits which a key sets and a query tests; a subclass says which (``positions``)."""

    def __init__(self, core: tuple[int, ...], seed: int, *, payload_bytes: int) -> None:
        super().__init__(core, seed)
        self._payload = bytearray(payload_bytes)

    @abstractmethod
    def positions(self, digest: int) -> Iterator[int]:
        """Yield the positions in the payload, one a hash; they may repeat."""

    def add_digest(self, digest: int) -> None:
        """Set the bits of a digest. Bit p of the payload is bit p % 8 of byte p // 8."""
        for p in self.positions(digest):
            self._payload[p // 8] |= 1 << p % 8

    def contains_digest(self, digest: int) -> bool:
        """Test the bits of a digest."""
        return all(self._payload[p // 8] >> p % 8 & 1 for p in self.positions(digest))

    def _unite(self, other: Self) -> None:
        self._payload[:] = (a | b for a, b in zip(self._payload, other._payload, strict=True))

    def set_bits(self) -> int:
        """Count the bits that are set."""
        return int.from_bytes(self._payload, "little").bit_count()

    def payload(self) -> bytes:
        """Return the bits, as they stand in a file."""
        return bytes(self._payload)


HASHING: Final = {
    "independent": 1, "partition": 3, "double": 4, "enhanced-double": 5,
    "enhanced-double-cube": 6, "enhanced-double-tetrahedral": 7, "triple": 8,
}  # fmt: skip


class ReferenceBloom(BitFilter):
    """A standard filter of ``bits`` bits (m) in which a key has ``hashes`` positions (k).

    ``hashing`` names the scheme (kirsch, section 3.4): every position from a word of its own
    ("independent"), or all of them from two or three, h1, h2, h3.

    Examples
    --------
    >>> f = ReferenceBloom(1000, 7)
    >>> f.add("key")
    >>> "key" in f, "another" in f
    (True, False)
    >>> list(ReferenceBloom(100, 5, hashing="double").positions(7))
    [38, 39, 40, 41, 42]
    """

    kind = 1
    hashing = 1

    def __init__(self, bits: int, hashes: int, seed: int = 0, *, hashing: str = "independent") -> None:
        if not 1 <= bits < 2**64:
            raise ValueError(f"bits must be in 1 .. 2**64 - 1, got {bits}")
        if not 1 <= hashes <= 64:
            raise ValueError(f"hashes must be in 1 .. 64, got {hashes}")
        if hashing not in HASHING:
            raise ValueError(f"hashing must be one of {', '.join(HASHING)}, got {hashing!r}")
        if hashing == "partition" and bits % hashes:
            raise ValueError(f"hashes must divide bits, got {bits} bits and {hashes} hashes")
        self.bits = bits
        self.hashes = hashes
        self.scheme = hashing
        self.hashing = HASHING[hashing]
        super().__init__((bits, hashes), seed, payload_bytes=-(-bits // 64) * 8)

    def positions(self, digest: int) -> Iterator[int]:
        """Yield ``hashes`` positions."""
        if self.scheme == "independent":
            for i in range(self.hashes):
                yield mulhi(splitmix(digest, i), self.bits)
            return
        span = self.bits // self.hashes if self.scheme == "partition" else self.bits
        h1, h2, h3 = (mulhi(splitmix(digest, word), span) for word in range(3))
        for i in range(self.hashes):
            match self.scheme:
                case "double":
                    yield (h1 + i * h2) % span
                case "enhanced-double":
                    yield (h1 + i * h2 + i**2) % span
                case "enhanced-double-cube":
                    yield (h1 + i * h2 + i**3) % span
                case "enhanced-double-tetrahedral":
                    yield (h1 + i * h2 + (i**3 - i) // 6) % span
                case "triple":
                    yield (h1 + i * h2 + i * (i - 1) // 2 * h3) % span
                case "partition":
                    yield i * span + (h1 + i * h2) % span

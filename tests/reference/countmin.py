"""The count-min sketch, in two constructions.

    row 0   │ . 3 . . 9 . . │     a key has one counter in each row; an addition adds its weight to
    row 1   │ 7 . . 3 . 2 . │     all of them, and the least of them is the estimate (Cormode, Muthukrishnan,
    row 2   │ . . 3 . . . 9 │     "An improved data stream summary", 2005; kirsch, section 3.8)

Core: [construction (1 two-hash, 2 classic), width, depth, copies, conservative (0, 1), epsilon, delta], the
last two as the bits of IEEE doubles; depth * copies rows. Payload: the counters row by row, then the total of
all weights and the number of additions with a weight above 0; 64-bit words.

Invariants: an estimate is never below the true count; the counters of a row sum to the total, in a
conservative sketch to at most the total; the total is at most 2**64 - 1, and what would lift it above changes
nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar, Self

from reference import keys
from reference.keys import MASK, splitmix

MAX_ROWS = 1024
MAX_WIDTH = 2**32
STATE_WORDS = 2


def payload_bytes(core: Sequence[int]) -> int:
    """Return the size of the payload of a core; ValueError, naming the broken rule, if it is none."""
    if len(core) != 7:
        raise ValueError("a core has seven numbers")
    construction, width, depth, copies, conservative, *fractions = core
    if construction not in (1, 2):
        raise ValueError("construction must be 1 or 2")
    if not 1 <= width <= MAX_WIDTH:
        raise ValueError("width must be in 1 .. 2**32")
    if depth < 1 or copies < 1 or depth * copies > MAX_ROWS:
        raise ValueError("depth * copies must be in 1 .. 1024")
    if construction == 2 and copies != 1:
        raise ValueError("a classic sketch has one copy")
    if conservative not in (0, 1):
        raise ValueError("conservative must be 0 or 1")
    if not all(0 < x < 1 for x in struct.unpack("<2d", struct.pack("<2Q", *fractions))):
        raise ValueError("epsilon and delta must be between 0 and 1")
    return 8 * (width * depth * copies + STATE_WORDS)


class ReferenceCountMin:
    """A count-min sketch of a core.

    Examples
    --------
    >>> epsilon, delta = struct.unpack("<2Q", struct.pack("<2d", 0.1, 0.1))
    >>> s = ReferenceCountMin([2, 28, 3, 1, 0, epsilon, delta])
    >>> s.add("key", 3)
    >>> s.count("key"), s.total, s.updates
    (3, 3, 1)
    """

    kind: ClassVar[int] = 6
    hashing: ClassVar[int] = 1

    def __init__(self, core: Sequence[int], seed: int = 0) -> None:
        payload_bytes(core)
        self.core = tuple(core)
        self.seed = keys.checked_seed(seed)
        self.construction, self.width, self.depth, self.copies, self.conservative, *_ = self.core
        self.rows = [[0] * self.width for _ in range(self.depth * self.copies)]
        self.total = 0
        self.updates = 0

    def positions(self, digest: int) -> list[int]:
        """Return the digest's position in each row."""
        if self.construction == 2:
            return [self.halves(digest, row // 2)[row % 2] for row in range(self.depth)]
        found = []
        for copy in range(self.copies):
            h1, h2 = self.halves(digest, copy)
            found += [(h1 + j * h2) % self.width for j in range(self.depth)]
        return found

    def halves(self, digest: int, i: int) -> tuple[int, int]:
        """Return both halves of the digest's word ``i``, the high one first, scaled to the width."""
        word = splitmix(digest, i)
        return (word >> 32) * self.width >> 32, (word & 0xFFFFFFFF) * self.width >> 32

    def add(self, key: object, weight: int = 1) -> None:
        """Add ``weight`` to the count of ``key``."""
        self.add_digest(keys.digest(key, self.seed), weight)

    def add_digest(self, digest: int, weight: int = 1) -> int:
        """Add ``weight`` to the count of a digest's key, and return its estimate then.

        Raises
        ------
        ValueError
            The weight is negative.
        OverflowError
            The total would exceed 2**64 - 1; nothing has changed.
        """
        if weight < 0:
            raise ValueError(f"weight must not be negative, got {weight}")
        if self.total + weight > MASK:
            raise OverflowError(f"the total {self.total} + {weight} exceeds 2**64 - 1")
        estimate = self.count_digest(digest) + weight
        for row, position in zip(self.rows, self.positions(digest), strict=True):
            row[position] = max(row[position], estimate) if self.conservative else row[position] + weight
        self.total += weight
        self.updates += weight > 0
        return estimate

    def count(self, key: object) -> int:
        """Estimate the count of ``key``: never too small."""
        return self.count_digest(keys.digest(key, self.seed))

    def count_digest(self, digest: int) -> int:
        """Estimate the count of a digest's key."""
        return min(row[p] for row, p in zip(self.rows, self.positions(digest), strict=True))

    def merge(self, other: Self) -> None:
        """Take in the stream of ``other``.

        Raises
        ------
        ValueError
            The two differ in core or seed, or are conservative.
        OverflowError
            The total would exceed 2**64 - 1; nothing has changed.
        """
        self._require_fitting(other)
        if self.total + other.total > MASK:
            raise OverflowError("the total exceeds 2**64 - 1")
        self.rows = [
            [a + b for a, b in zip(mine, theirs, strict=True)]
            for mine, theirs in zip(self.rows, other.rows, strict=True)
        ]
        self.total += other.total
        self.updates += other.updates

    def inner_product(self, other: Self) -> int:
        """Estimate the sum over all keys of count here times count there: never too small."""
        self._require_fitting(other)
        return min(
            sum(a * b for a, b in zip(mine, theirs, strict=True))
            for mine, theirs in zip(self.rows, other.rows, strict=True)
        )

    def _require_fitting(self, other: Self) -> None:
        if (self.core, self.seed) != (other.core, other.seed):
            raise ValueError("other must have the same core and seed")
        if self.conservative:
            raise ValueError("conservative sketches do not add up")

    def payload(self) -> bytes:
        """Return the sketch's bytes, as they stand in a file."""
        words = [counter for row in self.rows for counter in row] + [self.total, self.updates]
        return struct.pack(f"<{len(words)}Q", *words)

    @classmethod
    def from_payload(cls, core: Sequence[int], seed: int, payload: bytes) -> Self:
        """Return the sketch of a payload; ValueError, naming the defect, if no stream leaves it."""
        sketch = cls(core, seed)
        *counters, sketch.total, sketch.updates = struct.unpack(f"<{len(payload) // 8}Q", payload)
        width = sketch.width
        sketch.rows = [counters[i : i + width] for i in range(0, len(counters), width)]
        if sketch.updates > sketch.total:
            raise ValueError("there are more additions than their weights allow")
        if (sketch.updates == 0) != (sketch.total == 0):
            raise ValueError("weights without an addition")
        for number, row in enumerate(sketch.rows):
            found = sum(row)
            if sketch.conservative:
                sound = found <= sketch.total and (found == 0) == (sketch.total == 0)
            else:
                sound = found == sketch.total
            if not sound:
                raise ValueError(f"the counters of row {number} do not fit the total")
        return sketch

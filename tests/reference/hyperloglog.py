"""HyperLogLog: how many different keys were there?

Of each digest the first 25 bits are an index, and the run of zeros behind them, plus one, is its rank. Few
keys are kept so. When 2**precision / 16 indices (4 at least) are not enough, what is left are registers: of
each index of `precision` bits the greatest rank, the run of zeros counted from there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from reference import keys

SPARSE: Final = 25
RANK_BITS: Final = 6


def entries_of(precision: int) -> int:
    """Return how many indices a sparse sketch holds."""
    return max(4, (1 << precision) // 16)


def payload_bytes(core: Sequence[int]) -> int:
    """Return the size of the payload; ValueError if it is no valid core."""
    precision, dense = core
    if not 4 <= precision <= 18 or dense not in (0, 1):
        raise ValueError("precision must be 4 .. 18, the form 0 or 1")
    return 1 << precision if dense else 8 + 4 * entries_of(precision)


def rank(value: int, bits: int, start: int) -> int:
    """Return the zeros of a number of so many bits from bit `start` on, plus one."""
    rest = value & ((1 << (bits - start)) - 1)
    return bits - start - rest.bit_length() + 1


class ReferenceHyperLogLog:
    """A HyperLogLog of a precision.

    >>> h = ReferenceHyperLogLog(4)
    >>> for key in range(3):
    ...     h.add(key)
    >>> len(h.entries), h.registers
    (3, None)
    """

    def __init__(self, precision: int, seed: int = 0) -> None:
        payload_bytes((precision, 0))
        self.precision, self.seed = precision, seed
        self.entries: dict[int, int] = {}
        self.registers: list[int] | None = None

    @property
    def core(self) -> tuple[int, int]:
        """The integers of a file."""
        return self.precision, int(self.registers is not None)

    def add(self, key: str | bytes | int) -> None:
        """Add one key."""
        self.add_digest(keys.digest(key, self.seed))

    def add_digest(self, word: int) -> None:
        """Add one digest."""
        if self.registers is None:
            index, found = word >> (64 - SPARSE), rank(word, 64, SPARSE)
            if index not in self.entries and len(self.entries) == entries_of(self.precision):
                self._become_dense()
            else:
                self.entries[index] = max(self.entries.get(index, 0), found)
        if self.registers is not None:
            self._raise(word >> (64 - self.precision), rank(word, 64, self.precision))

    def _raise(self, register: int, found: int) -> None:
        assert self.registers is not None
        self.registers[register] = max(self.registers[register], found)

    def _become_dense(self) -> None:
        self.registers = [0] * 2**self.precision
        more = SPARSE - self.precision
        for index, found in self.entries.items():
            low = index & ((1 << more) - 1)
            self._raise(index >> more, more - low.bit_length() + 1 if low else more + found)
        self.entries = {}

    def merge(self, other: ReferenceHyperLogLog) -> None:
        """Take in the keys of another."""
        for index, found in sorted(other.entries.items()):
            if self.registers is None and (
                index in self.entries or len(self.entries) < entries_of(self.precision)
            ):
                self.entries[index] = max(self.entries.get(index, 0), found)
                continue
            if self.registers is None:
                self._become_dense()
            more = SPARSE - self.precision
            low = index & ((1 << more) - 1)
            self._raise(index >> more, more - low.bit_length() + 1 if low else more + found)
        if other.registers is not None:
            if self.registers is None:
                self._become_dense()
            for register, found in enumerate(other.registers):
                self._raise(register, found)

    def payload(self) -> bytes:
        """Return the bytes of the sketch."""
        if self.registers is not None:
            return bytes(self.registers)
        words = [index << RANK_BITS | found for index, found in sorted(self.entries.items())]
        words += [0] * (entries_of(self.precision) - len(words))
        return struct.pack(f"<Q{len(words)}I", len(self.entries), *words)

    @classmethod
    def from_payload(cls, core: Sequence[int], seed: int, payload: bytes) -> ReferenceHyperLogLog:
        """Read a payload; ValueError if no keys leave it."""
        made = cls(core[0], seed)
        if core[1]:
            made.registers = list(payload)
            if max(made.registers) > 65 - made.precision:
                raise ValueError("a register is greater than a digest can make it")
            return made
        count, *words = struct.unpack(f"<Q{entries_of(made.precision)}I", payload)
        if count > len(words) or any(words[count:]):
            raise ValueError("there is something behind the last entry")
        for word in words[:count]:
            index, found = word >> RANK_BITS, word & (1 << RANK_BITS) - 1
            if index >= 1 << SPARSE or not 1 <= found <= 65 - SPARSE:
                raise ValueError("no digest can make an entry like one of these")
            if made.entries and index <= max(made.entries):
                raise ValueError("the entries are not in order")
            made.entries[index] = found
        return made

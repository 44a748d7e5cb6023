"""The fuse filter: a fixed set, three slots for each key, whose exclusive or is the key's remainder.

    digest ──mix──▶ hash ──▶ block, first slot │ second and third slot, in the next two segments │ remainder

Each block is solved by itself: whoever is alone in a slot is set aside, which leaves others alone, until
nobody is left. Then slots are filled in the reverse order: when a key's turn comes, the slot in which it was
alone is used by no key before it, so it can make the sum right. If some keys are never alone, the block is
tried again, with other second and third slots.

Invariants: the three slots of a key in the set sum up to its remainder; slots in which nobody was alone are
zero; which slots those are depends on the set, not on the order in which its keys came.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from reference.keys import checked_seed, mulhi, splitmix
from reference.keys import digest as digest_of

ATTEMPTS: Final = 256
_MASK: Final = 2**64 - 1


def payload_bytes(core: tuple[int, ...]) -> int:
    """Return the size of the payload; ValueError if it is no valid core."""
    try:
        blocks, length, segments, bits, keys, fingerprints = core
    except ValueError:
        raise ValueError(f"a fuse filter has six numbers in its core, got {len(core)}") from None
    if not 1 <= blocks <= 2**32:
        raise ValueError(f"blocks must be in 1 .. 2**32, got {blocks}")
    if not (64 if blocks > 1 else 4) <= length <= 2**18 or length & (length - 1):
        raise ValueError(f"segment_length must be a power of two in 4 .. 2**18, got {length}")
    if not 3 <= segments <= 2**32 // length:
        raise ValueError(f"segments must be in 3 .. 2**32 // segment_length, got {segments}")
    slots = blocks * segments * length
    if slots > 2**51 or not 4 <= bits <= 32:
        raise ValueError(f"bits must be in 4 .. 32, and slots at most 2**51, got {bits} and {slots}")
    if not 0 <= keys <= slots or 0 < fingerprints < keys:
        raise ValueError(f"keys must be at most the slots and the fingerprints, got {keys}")
    return -(-slots * bits // 64) * 8 + -(-blocks // 8) * 8


class ReferenceFuse:
    """The filter of some digests, or of the fingerprints of some, with the integers of its core.

    Examples
    --------
    >>> f = ReferenceFuse((1, 4, 4, 8, 2, 0), [digest_of("a", 0), digest_of("b", 0)])
    >>> "a" in f, "b" in f, "c" in f
    (True, True, False)
    """

    kind = 19
    hashing = 1

    def __init__(self, core: tuple[int, ...], numbers: Iterable[int], seed: int = 0) -> None:
        payload_bytes(core)
        self.core, self.seed = core, checked_seed(seed)
        self.blocks, self.length, segments, self.bits, self.keys, self.fingerprints = core
        self.block_slots = self.length * segments
        self.slots = [0] * (self.blocks * self.block_slots)
        self.attempts = [0] * self.blocks
        hashes = {splitmix(number, 0) for number in numbers}
        assert len(hashes) == self.keys
        for block in range(self.blocks):
            self._solve(block, [each for each in hashes if mulhi(each, self.blocks) == block])

    def contains(self, key: object) -> bool:
        """Tell whether ``key`` may be in: never False for one of the set."""
        return self.contains_digest(digest_of(key, self.seed))

    __contains__ = contains

    def contains_digest(self, digest: int) -> bool:
        """Tell whether the key of a digest may be in."""
        if not self.keys:
            return False
        number = mulhi(digest, self.fingerprints) if self.fingerprints else digest
        hashed = splitmix(number, 0)
        block = mulhi(hashed, self.blocks)
        a, b, c = self._places(hashed, block, self.attempts[block])
        return self.slots[a] ^ self.slots[b] ^ self.slots[c] == self._remainder(hashed)

    def payload(self) -> bytes:
        """Return the slots, packed from the lowest bit on, then the attempts; each in whole words."""
        packed = sum(value << (i * self.bits) for i, value in enumerate(self.slots))
        size = -(-len(self.slots) * self.bits // 64) * 8
        return packed.to_bytes(size, "little") + bytes(self.attempts) + bytes(-self.blocks % 8)

    def _places(self, hashed: int, block: int, attempt: int) -> tuple[int, int, int]:
        length, width = self.length, self.length.bit_length() - 1
        first = mulhi(hashed * self.blocks & _MASK, self.block_slots - 2 * length)
        scattered = hashed * (splitmix(0, attempt) | 1) & _MASK
        second = (first + length) ^ (scattered >> (64 - width))
        third = (first + 2 * length) ^ (scattered >> (64 - 2 * width) & (length - 1))
        base = block * self.block_slots
        return base + first, base + second, base + third

    def _remainder(self, hashed: int) -> int:
        return ((hashed ^ hashed >> 32) * 0xA0761D6478BD642F & _MASK) >> (64 - self.bits)

    def _solve(self, block: int, hashes: list[int]) -> None:
        for attempt in range(ATTEMPTS):
            places = {each: self._places(each, block, attempt) for each in hashes}
            order = self._peel(block, places)
            if len(order) == len(hashes):
                break
        else:
            raise ValueError("no fuse filter holds these keys")
        self.attempts[block] = attempt
        for slot, hashed in reversed(order):
            a, b, c = places[hashed]
            self.slots[slot] = self._remainder(hashed) ^ self.slots[a] ^ self.slots[b] ^ self.slots[c]

    def _peel(self, block: int, places: dict[int, tuple[int, int, int]]) -> list[tuple[int, int]]:
        """Return (slot, hash) of keys in the order in which they became alone; not all, if some never are."""
        left: dict[int, set[int]] = {}
        for hashed, mine in places.items():
            for slot in mine:
                left.setdefault(slot, set()).add(hashed)
        order = []
        first = block * self.block_slots
        for start in range(first, first + self.block_slots):
            waiting = [start]
            while waiting:
                slot = waiting.pop()
                if len(left.get(slot, ())) != 1:
                    continue
                (hashed,) = left[slot]
                order.append((slot, hashed))
                which = places[hashed].index(slot)
                for j in (which, (which + 1) % 3, (which + 2) % 3):
                    other = places[hashed][j]
                    left[other].remove(hashed)
                    if other != slot and len(left[other]) == 1:
                        waiting.append(other)
        return order

"""The fingerprint filter: an exact multiset (or set) of fingerprints, in lines of 64 bytes.

    digest ──▶ F = digest * M >> 64, one of M = lines * quotients * 2**w: (line i, quotient q, remainder r)

    level 1   line i: its fingerprints in order of (q, r), as long as whole runs (those of one q) fit
    level 2   the other runs, cut anew: i = group*j + m  ──▶  line 16*(j//16) + (j+q) % 16,
              quotient 4m + q%4, remainder (q//4, r), which is w+4 bits; the same rule
    level 3   what does not fit in 16 lines of level 2: the largest in one line, as whole numbers
    the rest  everything else, in ascending order

A line of 512 bits, bit 0 first, has s = (512 - quotients) // (w+1) slots (level 2: 64 quotients, w+4 bits):

    | occupied: a bit for each q | run ends: a bit for each slot | 0 … | low bits of slots | bytes of slots |

A quotient is marked as occupied wherever its run is. The upper w//8 bytes of the remainders lie in planes of
s bytes at the end of the line, the highest first; the other w%8 bits of each slot lie packed before them.

Invariants: the payload is a function of the multiset of fingerprints, so the order of adds and removals
leaves no trace; unused bits are zero. The twin keeps the multiset alone and lays it out when asked.

A filter that may double does so when it is to hold more than 95 % of the keys of its size: twice the lines,
remainders one bit shorter, the same fingerprints.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from reference.bloom import ReferenceFilter
from reference.keys import digest as digest_of

LINE: Final = 64
STATE: Final = LINE
Element = tuple[int, int]  # quotient and remainder


class Core(NamedTuple):
    """The integers of a filter; `set` is 1 if it holds each fingerprint once."""

    lines: int
    remainder: int
    quotients: int
    group: int
    rest: int
    limit: int
    set: int
    doublings: int

    @property
    def block(self) -> int:
        """Lines of level 1 in a block."""
        return 16 * self.group

    @property
    def fingerprints(self) -> int:
        """The number of fingerprints, M."""
        return self.lines * self.quotients << self.remainder

    @property
    def keys(self) -> int:
        """The keys that a filter of this size is for: `limit` is 1 % more."""
        return -(-100 * self.limit // 101)

    def doubled(self) -> Core:
        """Return the next size: it holds as many keys per slot."""
        before, after = (slots(self.quotients, self.remainder - i) for i in (0, 1))
        keys = 2 * self.keys * after // before
        limit = keys + keys // 100
        rest = max(self.rest, -(-min(limit, 64 + -(-keys // 5000)) // 8) * 8)
        return self._replace(
            lines=2 * self.lines, remainder=self.remainder - 1, rest=rest, limit=limit,
            doublings=max(self.doublings - 1, 0),
        )  # fmt: skip


def payload_bytes(core: Iterable[int]) -> int:
    """Return the size of the payload; ValueError if it is no valid core."""
    integers = tuple(core)
    if len(integers) != len(Core._fields):
        raise ValueError(f"a fingerprint filter has eight numbers in its core, got {len(integers)}")
    c = Core(*integers)
    if not 4 <= c.remainder <= 28:
        raise ValueError(f"remainder must be in 4 .. 28, got {c.remainder}")
    if not 32 <= c.quotients <= 64:
        raise ValueError(f"quotients must be in 32 .. 64, got {c.quotients}")
    if not 1 <= c.group <= 16:
        raise ValueError(f"group must be in 1 .. 16, got {c.group}")
    if c.lines < 1 or c.lines % c.block:
        raise ValueError(f"lines must be a multiple of 16 * group, got {c.lines}")
    if c.fingerprints > 2**63:
        raise ValueError(f"there must be at most 2**63 fingerprints, got {c.fingerprints}")
    if c.set not in (0, 1):
        raise ValueError(f"set must be 0 or 1, got {c.set}")
    if c.limit < 1:
        raise ValueError(f"limit must be 1 or more, got {c.limit}")
    if c.doublings + 4 > c.remainder:
        raise ValueError(f"doublings must leave four bits of a remainder, got {c.doublings}")
    return STATE + LINE * (c.lines + c.lines // c.group + c.lines // c.block) + 8 * c.rest


class ReferenceFingerprint(ReferenceFilter):
    """A filter with the integers of `Core`.

    Examples
    --------
    >>> f = ReferenceFingerprint(16, 8, 64, 1, 8, 100, 0, 0)
    >>> f.add("key")
    >>> f.add("key")
    >>> f.count("key"), f.remove("key"), f.remove("key"), f.remove("key")
    (2, True, True, False)
    >>> any(f.payload())
    False
    """

    kind = 18
    hashing = 2

    def __init__(
        self,
        lines: int,
        remainder: int,
        quotients: int,
        group: int,
        rest: int,
        limit: int,
        set: int = 0,
        doublings: int = 0,
        seed: int = 0,
    ) -> None:
        self.shape = Core(lines, remainder, quotients, group, rest, limit, set, doublings)
        super().__init__(tuple(self.shape), seed)
        self.lines: list[list[Element]] = []  # what each line of level 1 gets, in order
        self.resize(self.shape)

    def resize(self, shape: Core) -> None:
        """Lay the same fingerprints out in more or fewer lines."""
        payload_bytes(shape)
        found = [self.number(i, element) for i, elements in enumerate(self.lines) for element in elements]
        self.shape, self.core = shape, tuple(shape)
        self.room = slots(shape.quotients, shape.remainder)
        self.entries = 16 if shape.remainder <= 17 else 8  # of 32 bits, or of 64 where keys are wider
        self.lines = [[] for _ in range(shape.lines)]
        for each in found:
            run, remainder = divmod(each, 1 << shape.remainder)
            line, quotient = divmod(run, shape.quotients)
            bisect.insort(self.lines[line], (quotient, remainder))

    def number(self, line: int, element: Element) -> int:
        """Return the fingerprint of an element of a line of level 1."""
        quotient, remainder = element
        return ((line * self.shape.quotients + quotient) << self.shape.remainder) + remainder

    @classmethod
    def from_payload(cls, core: Iterable[int], seed: int, payload: bytes) -> Self:
        """Read a payload: the fingerprints that it holds; ValueError unless they leave these very bytes."""
        made = cls(*core, seed=seed)  # type: ignore[misc]
        c, at = made.shape, STATE
        for elements in made.lines:
            elements += line_elements(payload[at : at + LINE], c.quotients, c.remainder)
            at += LINE
        keys: list[tuple[int, int]] = []  # block, and place in level 2 as a number
        for i in range(c.lines // c.group):
            block, a = divmod(i, 16)
            for q, r in line_elements(payload[at : at + LINE], 64, c.remainder + 4):
                keys.append((block, (a << 6 | q) << c.remainder + 4 | r))
            at += LINE
        for block in range(c.lines // c.block):
            entries = struct.unpack("<16I" if made.entries == 16 else "<8Q", payload[at : at + LINE])
            keys += [(block, entry - 1) for entry in entries if entry]
            at += LINE
        found = [made.fingerprint(*key) for key in keys]
        found += struct.unpack_from(f"<{min(struct.unpack_from('<Q', payload, 16)[0], c.rest)}Q", payload, at)
        for each in found:
            run, remainder = divmod(each, 1 << c.remainder)
            line, quotient = divmod(run, c.quotients)
            if line >= c.lines:
                raise ValueError("a fingerprint is too large")
            bisect.insort(made.lines[line], (quotient, remainder))
        if c.set and any(len(set(elements)) < len(elements) for elements in made.lines):
            raise ValueError("a set holds a fingerprint twice")
        if made.copies > c.limit or len(made.rest()) > c.rest or made.payload() != payload:
            raise ValueError("it is not what its fingerprints leave")
        return made

    # --- keys --------------------------------------------------------------------------------

    def place(self, digest: int) -> tuple[list[Element], Element]:
        """Return the line of a digest, and its quotient and remainder."""
        run, remainder = divmod(digest * self.shape.fingerprints >> 64, 1 << self.shape.remainder)
        line, quotient = divmod(run, self.shape.quotients)
        return self.lines[line], (quotient, remainder)

    def add_digest(self, digest: int) -> None:
        """Add a copy of a fingerprint; OverflowError if there is no room, and nothing has changed."""
        line, element = self.place(digest)
        if self.shape.set and element in line:
            return
        if self.shape.doublings and self.copies >= self.shape.keys - self.shape.keys // 20:
            self.resize(self.shape.doubled())
            line, element = self.place(digest)
        bisect.insort(line, element)
        passes_on = len(line) > self.room  # otherwise the rest is what it was
        if self.copies > self.shape.limit or (passes_on and len(self.rest()) > self.shape.rest):
            line.remove(element)
            raise OverflowError("the filter is full")

    def contains_digest(self, digest: int) -> bool:
        """Tell whether a fingerprint is in."""
        line, element = self.place(digest)
        return element in line

    def count(self, key: object) -> int:
        """Count the copies of the fingerprint of ``key``."""
        line, element = self.place(digest_of(key, self.seed))
        return line.count(element)

    def remove(self, key: object) -> bool:
        """Take a copy out; False, and nothing changes, if there is none."""
        return self.remove_digest(digest_of(key, self.seed))

    def remove_digest(self, digest: int) -> bool:
        """Take out a copy of the fingerprint of a digest."""
        line, element = self.place(digest)
        if element not in line:
            return False
        line.remove(element)
        return True

    def _unite(self, other: Self) -> None:
        """Add the copies of a multiset; of a set, what is not in yet. OverflowError if they do not fit."""
        before = self.lines
        both = [sorted(a + b) for a, b in zip(self.lines, other.lines, strict=True)]
        self.lines = [sorted(set(line)) for line in both] if self.shape.set else both
        if self.copies > self.shape.limit or len(self.rest()) > self.shape.rest:
            self.lines = before
            raise OverflowError("the filter is full")

    @property
    def copies(self) -> int:
        """How many fingerprints are in, copies counted."""
        return sum(map(len, self.lines))

    def set_bits(self) -> int:
        """Count the different fingerprints."""
        return sum(len(set(line)) for line in self.lines)

    # --- what each level gets: a function of the lines of level 1 ----------------------------

    def level2(self) -> list[list[Element]]:
        """Return what each line of level 2 gets, in order."""
        c = self.shape
        lines: list[list[Element]] = [[] for _ in range(c.lines // c.group)]
        for i, elements in enumerate(self.lines):
            j, m = divmod(i, c.group)
            for q, r in split(elements, self.room)[1]:
                lines[j // 16 * 16 + (j + q) % 16].append((4 * m + q % 4, (q // 4 << c.remainder) + r))
        return [sorted(elements) for elements in lines]

    def level3(self) -> list[list[int]]:
        """Return what each line of level 3 gets, descending: places in level 2, as numbers."""
        bits = self.shape.remainder + 4
        lines: list[list[int]] = [[] for _ in range(self.shape.lines // self.shape.block)]
        for i, elements in enumerate(self.level2()):
            block, a = divmod(i, 16)
            lines[block] += [(a << 6 | q) << bits | r for q, r in split(elements, slots(64, bits))[1]]
        return [sorted(keys, reverse=True) for keys in lines]

    def rest(self) -> list[int]:
        """Return the fingerprints that no level has room for, in order."""
        lines = enumerate(self.level3())
        return sorted(self.fingerprint(block, key) for block, keys in lines for key in keys[self.entries :])

    def fingerprint(self, block: int, key: int) -> int:
        """Return the fingerprint of a number in level 3: the way to level 2, backwards."""
        c = self.shape
        place, remainder = divmod(key, 1 << c.remainder + 4)
        a, quotient = divmod(place, 64)
        m, q_low = divmod(quotient, 4)
        q_high, r = divmod(remainder, 1 << c.remainder)
        q = 4 * q_high + q_low
        return self.number(block * c.block + (a - q) % 16 * c.group + m, (q, r))

    def payload(self) -> bytes:
        """Return state, levels and rest, as they stand in a file."""
        c, rest = self.shape, self.rest()
        parts = [struct.pack("<8Q", self.copies, 0, len(rest), 0, 0, 0, 0, 0)]
        parts += [line_bytes(elements, c.quotients, c.remainder) for elements in self.lines]
        parts += [line_bytes(elements, 64, c.remainder + 4) for elements in self.level2()]
        for keys in self.level3():
            entries = [*(1 + key for key in keys), *[0] * self.entries][: self.entries]
            parts.append(struct.pack("<16I" if self.entries == 16 else "<8Q", *entries))
        parts.append(struct.pack(f"<{c.rest}Q", *rest, *[0] * (c.rest - len(rest))))
        return b"".join(parts)


def slots(quotients: int, remainder: int) -> int:
    """Return the slots of a line."""
    return (8 * LINE - quotients) // (remainder + 1)


def split(elements: list[Element], room: int) -> tuple[list[Element], list[Element]]:
    """Return what a line holds of its elements, whole runs, and what it passes on."""
    if len(elements) <= room:
        return elements, []
    too_long, _ = elements[room]  # the run of the first element that has no slot
    held = [element for element in elements if element[0] < too_long]
    return held, elements[len(held) :]


def line_bytes(elements: list[Element], quotients: int, remainder: int) -> bytes:
    """Return the 64 bytes of a line that gets some elements and holds the first of them."""
    room, (planes, low_bits) = slots(quotients, remainder), divmod(remainder, 8)
    held, _ = split(elements, room)
    planes_at = 8 * (LINE - planes * room)
    low_at = planes_at - low_bits * room
    line = 0
    for q, _ in elements:
        line |= 1 << q
    for slot, (q, r) in enumerate(held):
        if slot + 1 == len(held) or held[slot + 1][0] != q:
            line |= 1 << quotients + slot
        upper, low = divmod(r, 1 << low_bits)
        line |= low << low_at + low_bits * slot
        for plane, byte in enumerate(upper.to_bytes(planes, "big")):
            line |= byte << planes_at + 8 * (plane * room + slot)
    return line.to_bytes(LINE, "little")


def line_elements(line: bytes, quotients: int, remainder: int) -> list[Element]:
    """Return the elements that a line of 64 bytes holds."""
    room, (planes, low_bits) = slots(quotients, remainder), divmod(remainder, 8)
    planes_at = 8 * (LINE - planes * room)
    low_at = planes_at - low_bits * room
    word = int.from_bytes(line, "little")
    occupied = [q for q in range(quotients) if word >> q & 1]
    ends = word >> quotients & (1 << room) - 1
    held: list[Element] = []
    for slot in range(ends.bit_length()):
        before = (ends & (1 << slot) - 1).bit_count()  # runs that end before this slot
        if before >= len(occupied):
            raise ValueError("a line has more runs than occupied quotients")
        r = word >> low_at + low_bits * slot & (1 << low_bits) - 1
        for plane in range(planes):
            r += (word >> planes_at + 8 * (plane * room + slot) & 0xFF) << low_bits + 8 * (planes - 1 - plane)
        held.append((occupied[before], r))
    return held

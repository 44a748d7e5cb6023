"""Summaries of a multilevel table (kirsch, chapter 4): from a digest to the level of its key, or 0.

    9   interpolation    core [levels, b, slots]: sorted b-bit digests with levels, in slots with gaps
    10  single filter    core [levels, cells, hashes] and, counting, the bits of each level's counters
    11  multiple Bloom   core [levels, flags (1 wide, 2 counting), then size, hashes, counter bits of each]
    12  counters         core [choices, buckets, counter bits] (Song et al.)

A summary's words follow from word 31 of SplitMix64 from the digest. Every payload begins with eight words of
state, the first of which counts keys.

Invariants: no key that is in is answered 0. Without counters an answer is never below a key's level. A full
counter sticks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import ClassVar, Final

from reference import keys
from reference.keys import PHI, mulhi, splitmix

INTERPOLATION, SINGLE_FILTER, MULTIPLE_BLOOM, COUNTERS = range(9, 13)
MAX_LEVELS: Final = 9
REACH: Final = 1024  # slots behind the last home
STRETCH: Final = 2048  # entries without a gap, at most
WIDE, COUNTING = 1, 2


def word_of(digest: int) -> int:
    """Return the word from which a summary's words follow."""
    return splitmix(digest, 31)


def packed(numbers: Iterable[int], width: int) -> bytes:
    """Pack numbers of `width` bits, the first in the lowest bits, into whole words of 64 bits."""
    total = count = 0
    for number in numbers:
        total |= number << count * width
        count += 1
    return total.to_bytes(-(-count * width // 64) * 8, "little")


def padded(data: bytes) -> bytes:
    """Pad to whole lines of 64 bytes."""
    return data.ljust(-(-len(data) // 64) * 64, b"\0")


def cell_width(levels: int) -> int:
    """Return the bits of a cell of a single filter; 0: three cells a byte."""
    return 2 if levels <= 3 else 0 if levels <= 5 else 3 if levels <= 7 else 4


def list_slots(size: int) -> int:
    """Return the slots of an exact list of so many keys."""
    return size + size // 3 + 8


def payload_bytes(kind: int, core: Sequence[int]) -> int:
    """Return the size of a payload; ValueError, naming the broken rule, if the core is none."""
    if not core or not 1 <= core[0] <= (64 if kind == COUNTERS else MAX_LEVELS):
        raise ValueError("levels must be 1 .. 9, choices 1 .. 64")
    levels, *rest = core
    match kind, *rest:
        case 9, bits, slots if 8 <= bits <= 64 - levels.bit_length() and 1 <= slots <= 2**40:
            return 64 + -(-(slots + REACH) * (bits + levels.bit_length()) // 64) * 8
        case 10, cells, hashes, *widths if 1 <= hashes <= 64 and cells >= 1 and cells % hashes == 0:
            if widths and len(widths) == levels and all(1 <= w <= 16 for w in widths) and sum(widths) <= 64:
                return 64 + -(-cells * sum(widths) // 64) * 8
            if not widths:
                width = cell_width(levels)
                return 64 + (-(-cells * width // 64) * 8 if width else -(-cells // 24) * 8)
        case 11, flags, *parts if flags <= 3 and len(parts) == 3 * levels and parts[1] > 0:
            return 64 + sum(part_bytes(flags, *parts[i : i + 3]) for i in range(0, len(parts), 3))
        case 12, buckets, width if buckets >= 1 and 1 <= width <= 16:
            return 64 + -(-buckets * width // 64) * 8
    raise ValueError(f"no summary of kind {kind} has this core")


def part_bytes(flags: int, size: int, hashes: int, width: int) -> int:
    """Return the bytes of one of multiple filters."""
    counts = bool(flags & COUNTING) and hashes > 0
    if size < 1 or hashes > 64 or not (1 <= width <= 16 if counts else width == 1):
        raise ValueError("a filter has 1 .. 2**48 bits, 0 .. 64 hashes and 1 .. 16 bits a counter")
    data = 64 + 8 * list_slots(size) if hashes == 0 else -(-size * width // 64) * 8
    return -(-data // 64) * 64


class ReferenceSummary:
    """What all twins can do; keys come as digests, or are hashed with the seed."""

    kind: ClassVar[int]
    hashing: ClassVar[int] = 1

    def __init__(self, core: Sequence[int], seed: int = 0) -> None:
        payload_bytes(self.kind, core)
        self.core = tuple(core)
        self.levels = core[0]
        self.seed = seed
        self.keys = 0

    def level(self, key: object) -> int:
        """Return the level of a key, or 0."""
        return self.level_of(keys.digest(key, self.seed))

    def add(self, key: object, level: int) -> None:
        """Say that a key is in a level."""
        self.add_digest(keys.digest(key, self.seed), level)

    def remove(self, key: object, level: int) -> bool:
        """Take a key out of a level; tell whether it was there."""
        return self.remove_digest(keys.digest(key, self.seed), level)

    def move(self, key: object, origin: int, target: int) -> None:
        """Say that a key has moved."""
        self.move_digest(keys.digest(key, self.seed), origin, target)

    def level_of(self, digest: int) -> int:
        """Answer for a digest."""
        raise NotImplementedError

    def add_digest(self, digest: int, level: int) -> None:
        """Say that the key of a digest is in a level."""
        raise NotImplementedError

    def remove_digest(self, digest: int, level: int) -> bool:
        """Take the key of a digest out of a level."""
        return False

    def move_digest(self, digest: int, origin: int, target: int) -> None:
        """Say that the key of a digest has moved."""
        self.add_digest(digest, target)
        self.remove_digest(digest, origin)

    def payload(self) -> bytes:
        """Return the bytes of the payload."""
        raise NotImplementedError

    def state(self, *more: int) -> bytes:
        """Return the words of the state."""
        return struct.pack("<8Q", self.keys, *more, *[0] * (7 - len(more)))


class ReferenceInterpolation(ReferenceSummary):
    """Sorted digests (section 4.6).

    Examples
    --------
    >>> s = ReferenceInterpolation([3, 40, 10])
    >>> s.add("a", 2)
    >>> s.level("a"), s.level("b")
    (2, 0)
    """

    kind = INTERPOLATION

    def __init__(self, core: Sequence[int], seed: int = 0) -> None:
        super().__init__(core, seed)
        _, self.bits, self.slots = core
        self.level_bits = self.levels.bit_length()
        self.entries: list[int] = []  # sorted: digest, then level
        self.spilled = 0

    def short(self, digest: int) -> int:
        """Return the b bits that are kept of a digest."""
        return word_of(digest) >> 64 - self.bits

    def places(self, entries: Sequence[int]) -> list[int]:
        """Return where sorted entries lie: each at its home, or behind the one before it."""
        found: list[int] = []
        for entry in entries:
            home = mulhi((entry >> self.level_bits) << 64 - self.bits, self.slots)
            found.append(max(home, found[-1] + 1) if found else home)
        return found

    def level_of(self, digest: int) -> int:
        """Answer the least level of an equal digest; while some are spilled, 1 if there is none."""
        wanted = self.short(digest)
        equal = [entry for entry in self.entries if entry >> self.level_bits == wanted]
        return equal[0] & (1 << self.level_bits) - 1 if equal else min(self.spilled, 1)

    def add_digest(self, digest: int, level: int) -> None:
        """Put an entry in its place, or count it as spilled."""
        self.keys += 1
        entry = self.short(digest) << self.level_bits | level
        entries = sorted([*self.entries, entry])
        places = self.places(entries)
        at = places[entries.index(entry)]
        if places[-1] >= self.slots + REACH or self.stretch(places, at) > STRETCH:
            self.spilled += 1
        else:
            self.entries = entries

    @staticmethod
    def stretch(places: Sequence[int], at: int) -> int:
        """Return how many entries lie without a gap around a place."""
        first = last = places.index(at)
        while first and places[first - 1] == places[first] - 1:
            first -= 1
        while last + 1 < len(places) and places[last + 1] == places[last] + 1:
            last += 1
        return last - first + 1

    def remove_digest(self, digest: int, level: int) -> bool:
        """Take out one entry of that digest and level, or one of the spilled."""
        entry = self.short(digest) << self.level_bits | level
        if entry in self.entries:
            self.entries.remove(entry)
        elif self.spilled:
            self.spilled -= 1
        else:
            return False
        self.keys -= 1
        return True

    def payload(self) -> bytes:
        """Return state and entries."""
        slots = [0] * (self.slots + REACH)
        for place, entry in zip(self.places(self.entries), self.entries, strict=True):
            slots[place] = entry
        assert all(a <= b for a, b in pairwise(self.entries))
        return self.state(self.spilled) + packed(slots, self.bits + self.level_bits)


class ReferenceSingleFilter(ReferenceSummary):
    """Cells of the greatest level (4.7.1), or of a counter for each level (4.10.2)."""

    kind = SINGLE_FILTER

    def __init__(self, core: Sequence[int], seed: int = 0) -> None:
        super().__init__(core, seed)
        _, self.cells, self.hashes, *self.widths = core
        self.counters = [[0] * (self.levels + 1) for _ in range(self.cells)]  # not counting: 0 or 1

    def positions(self, digest: int) -> list[int]:
        """Return the cells of a digest, one in each group."""
        group, word = self.cells // self.hashes, word_of(digest)
        return [i * group + mulhi(splitmix(word, i), group) for i in range(self.hashes)]

    def value(self, position: int) -> int:
        """Return the greatest level that a cell knows of."""
        return max(level for level, count in enumerate(self.counters[position]) if count or not level)

    def level_of(self, digest: int) -> int:
        """Answer the least of a key's cells."""
        return min(self.value(position) for position in self.positions(digest))

    def most(self, level: int) -> int:
        """Return the value at which a counter is full."""
        return 2 ** self.widths[level - 1] - 1 if self.widths else 1

    def add_digest(self, digest: int, level: int) -> None:
        """Raise the counters of a key."""
        self.keys += bool(self.widths) or self.level_of(digest) == 0
        for position in self.positions(digest):
            cell = self.counters[position]
            cell[level] = min(cell[level] + 1, self.most(level))

    def remove_digest(self, digest: int, level: int) -> bool:
        """Lower the counters of a key, if none is 0; full ones stick."""
        cells = [self.counters[position] for position in self.positions(digest)]
        if not self.widths or not all(cell[level] for cell in cells):
            return False
        for cell in cells:
            cell[level] -= cell[level] < self.most(level)
        self.keys -= self.keys > 0
        return True

    def payload(self) -> bytes:
        """Return state and cells."""
        if self.widths:
            numbers = []
            for cell in self.counters:
                shift = number = 0
                for level, width in enumerate(self.widths, 1):
                    number |= cell[level] << shift
                    shift += width
                numbers.append(number)
            return self.state() + packed(numbers, sum(self.widths))
        values = [self.value(position) for position in range(self.cells)]
        if width := cell_width(self.levels):
            return self.state() + packed(values, width)
        values += [0] * (-len(values) % 24)
        threes = zip(values[0::3], values[1::3], values[2::3], strict=True)
        return self.state() + bytes(a + 6 * b + 36 * c for a, b, c in threes)


class Part:
    """One of multiple filters: counters by position, or a list of digests where they lie."""

    def __init__(self, size: int, hashes: int, width: int) -> None:
        self.size, self.hashes, self.width = size, hashes, width
        self.counters = [0] * (size if hashes else list_slots(size))
        self.used = self.lost = 0  # of a list


class ReferenceMultipleBloom(ReferenceSummary):
    """Filters of the keys above each level (4.7.2), of bits or of counters."""

    kind = MULTIPLE_BLOOM

    def __init__(self, core: Sequence[int], seed: int = 0) -> None:
        super().__init__(core, seed)
        self.flags = core[1]
        self.parts = [Part(*core[i : i + 3]) for i in range(2, len(core), 3)]

    def positions(self, j: int, word: int) -> set[int]:
        """Return a key's positions in filter j."""
        part = self.parts[j]
        if self.flags & WIDE:
            return {splitmix(word, i) % part.size for i in range(part.hashes)}
        return {mulhi(splitmix(word, 64 * j + i), part.size) for i in range(part.hashes)}

    def knows(self, j: int, word: int) -> bool:
        """Tell whether filter j has a key."""
        part = self.parts[j]
        if not part.hashes:
            return part.lost > 0 or (word or PHI) in part.counters
        return all(part.counters[position] for position in self.positions(j, word))

    def level_of(self, digest: int) -> int:
        """Answer the number of the first filter that does not have the key."""
        word = word_of(digest)
        return next((j for j in range(self.levels) if not self.knows(j, word)), self.levels)

    def add_digest(self, digest: int, level: int) -> None:
        """Add a key to the filters below its level."""
        self.keys += bool(self.flags & COUNTING) or not self.knows(0, word_of(digest))
        for j in range(level):
            self.add_to(j, word_of(digest))

    def add_to(self, j: int, word: int) -> None:
        """Add a key to filter j."""
        part = self.parts[j]
        for position in self.positions(j, word):
            part.counters[position] = min(part.counters[position] + 1, 2**part.width - 1)
        if part.hashes or (not self.flags & COUNTING and self.knows(j, word)):
            return
        if part.used == part.size:
            part.lost += 1
            return
        slot = mulhi(word or PHI, len(part.counters))
        while part.counters[slot]:
            slot = (slot + 1) % len(part.counters)
        part.counters[slot] = word or PHI
        part.used += 1

    def remove_digest(self, digest: int, level: int) -> bool:
        """Remove a key from the filters below its level, if it is in all of them."""
        word = word_of(digest)
        if not self.flags & COUNTING or not all(self.knows(j, word) for j in range(level)):
            return False
        for j in range(level):
            self.remove_from(j, word)
        self.keys -= self.keys > 0
        return True

    def remove_from(self, j: int, word: int) -> None:
        """Remove a key from filter j, if it is in."""
        part = self.parts[j]
        if part.hashes:
            positions = self.positions(j, word)
            if all(part.counters[position] for position in positions):
                for position in positions:
                    part.counters[position] -= part.counters[position] < 2**part.width - 1
            return
        slots, count = part.counters, len(part.counters)
        wanted = word or PHI
        hole = mulhi(wanted, count)
        while slots[hole] and slots[hole] != wanted:
            hole = (hole + 1) % count
        if not slots[hole]:
            part.lost -= part.lost > 0
            return
        slot = hole
        while slots[slot := (slot + 1) % count]:
            home = mulhi(slots[slot], count)
            if (slot - home) % count >= (slot - hole) % count:
                slots[hole], hole = slots[slot], slot
        slots[hole] = 0
        part.used -= 1

    def move_digest(self, digest: int, origin: int, target: int) -> None:
        """Change the filters between the two levels alone."""
        for j in range(origin, target):
            self.add_to(j, word_of(digest))
        if self.flags & COUNTING:
            for j in range(target, origin):
                self.remove_from(j, word_of(digest))

    def payload(self) -> bytes:
        """Return state and filters."""
        data = self.state()
        for part in self.parts:
            if part.hashes:
                data += padded(packed(part.counters, part.width))
            else:
                words = [part.used, part.lost, *[0] * 6, *part.counters]
                data += padded(struct.pack(f"<{len(words)}Q", *words))
        return data


class ReferenceCounters(ReferenceSummary):
    """Song et al.'s counters, one for each bucket (4.3)."""

    kind = COUNTERS

    def __init__(self, core: Sequence[int], seed: int = 0) -> None:
        super().__init__(core, seed)
        _, self.buckets, self.width = core
        self.counters = [0] * self.buckets

    def positions(self, digest: int) -> list[int]:
        """Return the buckets of a digest, by choice."""
        return [mulhi(splitmix(word_of(digest), i), self.buckets) for i in range(self.levels)]

    def level_of(self, digest: int) -> int:
        """Answer the choice of the least counter, of equal ones the first bucket; 0 if one is 0."""
        ranked = [(self.counters[p], p, i) for i, p in enumerate(self.positions(digest), 1)]
        return min(ranked)[2] if all(count for count, *_ in ranked) else 0

    def add_digest(self, digest: int, level: int) -> None:
        """Count a key, once for each of its choices."""
        self.keys += 1
        for position in self.positions(digest):
            self.counters[position] = min(self.counters[position] + 1, 2**self.width - 1)

    def payload(self) -> bytes:
        """Return state and counters."""
        return self.state() + packed(self.counters, self.width)

"""Multilevel tables that move at most one key, simulated: the twin of cpp/study/simulate_tables.cpp.

The schemes are those of Kirsch's thesis, sections 5.2 to 5.7, the processes those of section 5.9. A key is
the list of its buckets, one for each level, drawn when it arrives; a bucket is a list of `slots` cells; a
trial makes the same draws as the fast simulator and must give the same counts.

    standard                the leftmost level with room
    conservative            else bump the leftmost y that is not marked, and mark it
    second-chance           at each level, a y may step one level aside for x
    extreme-second-chance   whoever, x or a y in its way, finds room furthest to the left
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from reference.keys import MASK, splitmix

__all__ = ["Key", "Sample", "TableTwin", "Xoshiro", "simulate_trial"]


class Xoshiro:
    """xoshiro256++, from the definition of Blackman and Vigna; its state from SplitMix64."""

    def __init__(self, seed: int) -> None:
        """Start the generator of this seed."""
        self.state = [splitmix(seed, i) for i in range(4)]

    def word(self) -> int:
        """Draw 64 bits."""
        s = self.state
        total = (s[0] + s[3]) & MASK
        out = ((total << 23 | total >> 41) + s[0]) & MASK
        shifted = s[1] << 17 & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= shifted
        s[3] = (s[3] << 45 | s[3] >> 19) & MASK
        return out

    def below(self, most: int) -> int:
        """Draw one of 0 ... most - 1."""
        return self.word() * most >> 64


@dataclass(eq=False)
class Key:
    """A key: its bucket in each level, and where it is (`level` None: on the list)."""

    buckets: list[int]
    level: int | None = None
    slot: int = 0


@dataclass(frozen=True)
class Sample:
    """What is counted: insertions and moves so far, keys on the list and in each level now."""

    arrivals: int
    moves: int
    overflow: int
    held: tuple[int, ...]


@dataclass
class TableTwin:
    """A table under one of the schemes; `side` is for the extreme one."""

    scheme: str
    buckets: Sequence[int]
    slots: int = 1
    side: str = "any"
    arrivals: int = 0
    moves: int = 0
    overflow: int = 0
    cells: list[list[list[Key | None]]] = field(init=False)
    marks: set[tuple[int, int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Make all cells empty."""
        self.cells = [[[None] * self.slots for _ in range(each)] for each in self.buckets]

    # --- cells ---

    def bucket(self, key: Key, level: int) -> list[Key | None]:
        """Give the key's bucket in a level."""
        return self.cells[level][key.buckets[level]]

    def has_room(self, key: Key, level: int) -> bool:
        """Say whether the key's bucket in a level has an empty cell."""
        return None in self.bucket(key, level)

    def room(self, key: Key, levels: range) -> int | None:
        """Give the leftmost of the levels with room for the key."""
        return next((level for level in levels if self.has_room(key, level)), None)

    def put(self, key: Key, level: int) -> None:
        """Put a key into the first empty cell of its bucket."""
        bucket = self.bucket(key, level)
        key.level, key.slot = level, bucket.index(None)
        bucket[key.slot] = key

    def displace(self, y: Key, level: int, x: Key) -> None:
        """Move y to a level with room; x takes its cell."""
        assert y.level is not None
        x.level, x.slot = y.level, y.slot
        self.bucket(y, y.level)[y.slot] = x
        self.put(y, level)
        self.moves += 1

    # --- insertion and deletion ---

    def insert(self, x: Key) -> None:
        """Insert a key by the scheme, or put it on the list."""
        self.arrivals += 1
        place = {
            "standard": self.leftmost,
            "conservative": self.conservative,
            "second-chance": self.second_chance,
            "extreme-second-chance": self.extreme,
        }[self.scheme]
        if not place(x):
            self.overflow += 1

    def delete(self, key: Key) -> None:
        """Take a key out of its cell, or off the list."""
        if key.level is None:
            self.overflow -= 1
            return
        self.bucket(key, key.level)[key.slot] = None
        self.marks.discard((key.level, key.buckets[key.level], key.slot))

    def leftmost(self, x: Key) -> bool:
        """Section 5.2."""
        level = self.room(x, range(len(self.buckets)))
        if level is None:
            return False
        self.put(x, level)
        return True

    def conservative(self, x: Key) -> bool:
        """Section 5.4."""
        if self.leftmost(x):
            return True
        for level in range(len(self.buckets) - 1):
            for slot, y in enumerate(self.bucket(x, level)):
                assert y is not None
                if (level, x.buckets[level], slot) not in self.marks:
                    self.marks.add((level, x.buckets[level], slot))
                    to = self.room(y, range(level + 1, len(self.buckets)))
                    if to is not None:
                        self.displace(y, to, x)
                    return to is not None
        return False

    def second_chance(self, x: Key) -> bool:
        """Figure 5.1; section 5.7 for several slots."""
        last = len(self.buckets) - 1
        for level in range(last):
            if self.has_room(x, level):
                self.put(x, level)
                return True
            if not self.has_room(x, level + 1):
                for y in self.bucket(x, level):
                    assert y is not None
                    if self.has_room(y, level + 1):
                        self.displace(y, level + 1, x)
                        return True
        if self.has_room(x, last):
            self.put(x, last)
            return True
        return False

    def extreme(self, x: Key) -> bool:
        """Section 5.6."""
        levels = len(self.buckets)
        best, target = x, self.room(x, range(levels))
        for level in range(levels):
            if self.has_room(x, level):
                continue
            for y in self.bucket(x, level):
                assert y is not None
                z = self.room(y, range(level + 1 if self.side == "right" else 0, levels))
                if z is not None and (target is None or z < target):
                    best, target = y, z
        if target is None:
            return False
        if best is x:
            self.put(x, target)
        else:
            self.displace(best, target, x)
        return True

    def sample(self) -> Sample:
        """Count."""
        held = tuple(sum(cell is not None for bucket in level for cell in bucket) for level in self.cells)
        return Sample(self.arrivals, self.moves, self.overflow, held)


def simulate_trial(
    table: TableTwin,
    *,
    keys: int,
    seed: int,
    trial: int,
    process: str = "insert",
    burn_in: float = 30.0,
    samples: int = 1,
    interval: int = 1,
) -> list[Sample]:
    """Run one trial on an empty table; arguments as of `papers.simulation.simulate_table`.

    >>> simulate_trial(TableTwin("standard", [3, 2]), keys=4, seed=1, trial=0)
    [Sample(arrivals=4, moves=0, overflow=1, held=(2, 1))]
    """
    random = Xoshiro(splitmix(seed, trial))
    live: list[Key] = []
    out: list[Sample] = []

    def arrive() -> None:
        key = Key([random.below(each) for each in table.buckets])
        table.insert(key)
        live.append(key)

    def depart(position: int) -> None:
        table.delete(live[position])
        live[position] = live[-1]
        live.pop()

    if process != "poisson":
        for _ in range(keys):
            arrive()
    if process == "insert":
        return [table.sample()]
    time, seen = 0.0, 0
    while len(out) < samples:
        if process == "replace":
            time += 1
            arrive()
            depart(random.below(len(live) - 1))
            settled = time > math.floor(burn_in * keys + 0.5)
        else:
            uniform = ((random.word() >> 11) + 1) * 2.0**-53
            time += -math.log(uniform) / (keys + len(live))
            event = random.below(keys + len(live))
            if event < keys:
                arrive()
            else:
                depart(event - keys)
            settled = time > burn_in
        if settled:
            if seen % interval == 0:
                out.append(table.sample())
            seen += 1
    return out

"""A hash table of chains, in five policies.

    bins   │ 3 │ . │ 5 1 4 │ 2 │       a chain of entries, the newest first; a bin knows how many stored keys
    were
                                       refused by it on their way to where they are (`passed`)

Policies: 1 single, 2 sequential, 3 multilevel take the first bin with fewer than `threshold` keys, or with
exactly so many if the key's coin accepts, else an overflow chain (kanizo, Appendix C); 6 least-loaded, 7
d-left the bin of least load, the first of several (kirsch, section 2.1.3).

Core: [policy, choices, coin, key type, value type, overflow_bins, then bins and threshold of each table]. The
bin of level j follows from w_0 = digest, w_j = splitmix(digest, j); its coin accepts iff splitmix(w_j, 0) >>
32 < coin; the overflow chain from splitmix(digest, choices).

Invariants: a look-up goes on from a bin exactly while a stored key has passed it, so none is lost; a key that
could stand in a bin by several levels counts as one of the first of them. Entries are numbered from 1; a
freed one is used again, the last freed first. Payload, each part in whole 64-byte lines: eight words of
state, bins, links and keys of the entries, values.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar

from reference import keys
from reference.keys import MASK, mulhi, splitmix
from reference.xxh3 import xxh3_128

INT64, UINT64, DIGEST = 1, 2, 3
FREE = 1 << 31
NEVER_FULL = 1 << 31


def payload_bytes(core: Sequence[int], capacity: int) -> int:
    """Return the size of the payload of a core; ValueError, naming the broken rule, if it is none."""
    if not 1 <= capacity <= 2**31 - 2:
        raise ValueError("a chained table holds 1 .. 2**31 - 2 keys")
    if len(core) < 8 or len(core) % 2:
        raise ValueError("a core has six numbers and two for each table")
    policy, choices, coin, key_type, value_type, overflow_bins, *tables = core
    if policy not in (1, 2, 3, 6, 7):
        raise ValueError("policy must be 1, 2, 3, 6 or 7")
    balanced = policy <= 3
    if choices not in ([1] if policy == 1 else range(2, 9)):
        raise ValueError("choices must be 2 .. 8, and 1 for policy 1")
    if len(tables) // 2 != (choices if policy in (3, 7) else 1):
        raise ValueError("there must be as many tables as choices for policies 3 and 7, else one")
    if not 0 <= coin <= (2**32 if balanced else 0):
        raise ValueError("coin must be 0 .. 2**32")
    if key_type not in (1, 2, 3) or value_type not in (1, 2, 3):
        raise ValueError("types must be 1 .. 3")
    if not (1 <= overflow_bins <= 2**40 if balanced else overflow_bins == 0):
        raise ValueError("overflow_bins must be 1 .. 2**40, and 0 for policies 6 and 7")
    for bins, threshold in zip(tables[::2], tables[1::2], strict=True):
        if not 1 <= bins <= 2**40:
            raise ValueError("bins must be 1 .. 2**40")
        if not 0 <= threshold <= (10**6 if balanced else 0) and (policy, threshold) != (1, NEVER_FULL):
            raise ValueError("threshold must be 0 .. 10**6")
    bins = sum(tables[::2]) + overflow_bins
    entry_words = 5 if key_type == DIGEST else 3
    sizes = (4 * (3 if balanced else 2) * bins, 4 * entry_words * capacity, 8 * capacity)
    return 64 + sum(-(-size // 64) * 64 for size in sizes)


class ReferenceChained:
    """A table of a core, for `capacity` keys; values are 64-bit words.

    Examples
    --------
    >>> t = ReferenceChained([7, 2, 0, 1, 1, 0, 4, 0, 4, 0], capacity=10)
    >>> t.put(5, 50), t.put(5, 51), t.get(5), t.erase(5), t.get(5)
    (True, True, 51, True, None)
    """

    kind: ClassVar[int] = 8
    hashing: ClassVar[int] = 1

    def __init__(self, core: Sequence[int], capacity: int, seed: int = 0) -> None:
        payload_bytes(core, capacity)
        self.core = tuple(core)
        self.capacity = capacity
        self.seed = keys.checked_seed(seed)
        self.policy, self.choices, self.coin, self.key_type, _, self.overflow_bins, *tables = self.core
        self.sizes, self.thresholds = tables[::2], tables[1::2]
        self.balanced = self.policy <= 3
        count = sum(self.sizes) + self.overflow_bins
        self.chains: list[list[int]] = [[] for _ in range(count)]  # numbers of entries, the newest first
        self.passed = [0] * count
        self.keys: list[int | None] = []  # of entries 1, 2, ...; None: free
        self.values: list[int] = []
        self.free: list[int] = []  # the last is used first
        self.overflowing = self.insertions = self.reads = 0

    def stored(self, key: object) -> int:
        """Return what is stored of a key: an integer as a 64-bit word, or a 128-bit digest of any key."""
        value = keys.canonical(key)
        if isinstance(value, bytes):
            if self.key_type != DIGEST:
                raise TypeError("a key of this table must be an int")
            return xxh3_128(value, self.seed)
        if self.key_type == DIGEST:
            return keys.digest_of_int(value, self.seed) | (value & MASK) << 64
        if not (-(2**63) <= value < 2**63 if self.key_type == INT64 else 0 <= value < 2**64):
            raise ValueError("a key does not fit the table")
        return value & MASK

    def digest(self, stored: int) -> int:
        """Return the 64-bit digest of a stored key."""
        if self.key_type == DIGEST:
            return stored & MASK
        signed = stored - (stored >> 63 << 64) if self.key_type == INT64 else stored
        return keys.digest_of_int(signed, self.seed)

    def walk(self, digest: int) -> list[int]:
        """Return the bins of a key by level, counted through all tables, and at last its overflow chain."""
        bins, shared = [], len(self.sizes) == 1
        for level in range(self.choices):
            table = 0 if shared else level
            bins.append(sum(self.sizes[:table]) + mulhi(self.word(digest, level), self.sizes[table]))
        if self.balanced:
            bins.append(sum(self.sizes) + mulhi(splitmix(digest, self.choices), self.overflow_bins))
        return bins

    def word(self, digest: int, level: int) -> int:
        """Return w_j of level j."""
        return splitmix(digest, level) if level else digest

    def accepts(self, digest: int, level: int, index: int) -> bool:
        """Tell whether a bin takes this key."""
        load, threshold = len(self.chains[index]), self.thresholds[0 if len(self.sizes) == 1 else level]
        if load == threshold:
            return splitmix(self.word(digest, level), 0) >> 32 < self.coin
        return load < threshold

    def find(self, stored: int) -> tuple[int, int] | None:
        """Return the level and the entry of a stored key."""
        for level, index in enumerate(self.walk(self.digest(stored))):
            for entry in self.chains[index]:
                if self.keys[entry - 1] == stored:
                    return level, entry
            if self.balanced and not self.passed[index]:
                return None
        return None

    def get(self, key: object) -> int | None:
        """Return the value of a key, or None."""
        found = self.find(self.stored(key))
        return None if found is None else self.values[found[1] - 1]

    def put(self, key: object, value: int, *, new: bool = False) -> bool:
        """Store a key; False if there is no room, and then nothing has changed."""
        stored = self.stored(key)
        found = None if new else self.find(stored)
        if found is not None:
            self.values[found[1] - 1] = value
            return True
        if len(self) == self.capacity:
            return False
        digest = self.digest(stored)
        bins = self.walk(digest)
        if self.balanced:
            accepting = (j for j in range(self.choices) if self.accepts(digest, j, bins[j]))
            level = next(accepting, self.choices)
            self.reads += min(level + 1, self.choices)
            level = bins.index(bins[level])  # the first by which it could stand there
            for index in bins[:level]:
                self.passed[index] += 1
            self.overflowing += level == self.choices
        else:
            level = min(range(self.choices), key=lambda j: len(self.chains[bins[j]]))
            self.reads += self.choices
        if self.free:
            entry = self.free.pop()
        else:
            self.keys.append(None)
            self.values.append(0)
            entry = len(self.keys)
        self.keys[entry - 1], self.values[entry - 1] = stored, value
        self.chains[bins[level]].insert(0, entry)
        self.insertions += 1
        return True

    def erase(self, key: object) -> bool:
        """Delete a key; False if it is not there."""
        stored = self.stored(key)
        found = self.find(stored)
        if found is None:
            return False
        level, entry = found
        bins = self.walk(self.digest(stored))
        self.chains[bins[level]].remove(entry)
        if self.balanced:
            for index in bins[:level]:
                self.passed[index] -= 1
            self.overflowing -= level == self.choices
        self.keys[entry - 1], self.values[entry - 1] = None, 0
        self.free.append(entry)
        return True

    def __len__(self) -> int:
        return len(self.keys) - len(self.free)

    def query(self, key: object) -> tuple[int, int]:
        """Return the bins read and the entries compared by a look-up."""
        stored = self.stored(key)
        compared = 0
        for level, index in enumerate(self.walk(self.digest(stored))):
            for entry in self.chains[index]:
                compared += 1
                if self.keys[entry - 1] == stored:
                    return min(level + 1, self.choices), compared
            if self.balanced and not self.passed[index]:
                return min(level + 1, self.choices), compared
        return self.choices, compared

    def payload(self) -> bytes:
        """Return the bytes of the table."""
        links = [0] * len(self.keys)
        bins = []
        for chain, passed in zip(self.chains, self.passed, strict=True):
            for entry, after in zip(chain, [*chain[1:], 0], strict=False):
                links[entry - 1] = after
            bins += [chain[0] if chain else 0, len(chain), *([passed] if self.balanced else [])]
        for entry, after in zip(self.free, [0, *self.free], strict=False):
            links[entry - 1] = FREE | after
        size = 16 if self.key_type == DIGEST else 8
        entries = b"".join(
            struct.pack("<I", link) + (key or 0).to_bytes(size, "little")
            for link, key in zip(links, self.keys, strict=True)
        )
        state = (
            len(self), len(self.keys), self.free[-1] if self.free else 0, self.overflowing, self.insertions,
            self.reads, 0, 0,
        )  # fmt: skip
        values = struct.pack(f"<{len(self.values)}Q", *self.values)
        return b"".join(
            part.ljust(-(-room // 64) * 64, b"\0")
            for part, room in (
                (struct.pack("<8Q", *state), 64),
                (struct.pack(f"<{len(bins)}I", *bins), 4 * len(bins)),
                (entries, (4 + size) * self.capacity),
                (values, 8 * self.capacity),
            )
        )

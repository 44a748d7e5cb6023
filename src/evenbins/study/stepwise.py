"""The multilevel hash table in readable Python, step by step, in its five schemes (kirsch, chapter 5).

The lab shows its steps; the tests demand that the core leaves the same bytes.

    level 1   │ x x x │ x x . │ x x x │ …     a key has one bucket in each level, of `slots` keys
    level 2   │ x x . │ x . . │ …             an insertion moves one resident at most
    list      x x                             or puts the key on the overflow list

Core: [scheme 1 .. 5, slots, key type (1 int64, 2 uint64, 3 digest), value type (0 none, 1 int64, 2
uint64, 3 float64), flags (1 occupancy bits, 2 next hashes), overflow limit, buckets of each level].

Payload, each part padded to whole lines of 64 bytes: the state (24 words: the counters in the order of
`COUNTERS`, zeros to word 16, the keys of each level); one bit a slot for occupancy; the same for marks
(conservative alone); the buckets, each its keys (of digests the low words, then the high words) and then its
values; the next hashes (32 bits each); and of the list: keys, values, links (next, previous, chain, 0; 32
bits each) and the index (32 bits each).

A key's bucket in level j: word j of its digest (the digest itself, then SplitMix64's words), scaled to the
level. The digest of an integer is `hashing.digest`; of a 128-bit digest, its low word. A set has no values.

Invariants: at most `levels` bucket reads for a look-up; at most one move for an insertion; what raises
`Full` has changed nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Final, Self

from evenbins import _arguments as arguments
from evenbins._core import xxh3_128
from evenbins.hashing import MASK, digest, mulhi, splitmix

STANDARD, CONSERVATIVE, SECOND_CHANCE, EXTREME, LEAST_LOADED = range(1, 6)
INT64, UINT64, DIGEST = range(1, 4)
OCCUPANCY_BITS, NEXT_HASHES = 1, 2
MAX_LEVELS: Final = 8
MAX_LIMIT: Final = 2**30
HEAD: Final = 6  # numbers of a core before the buckets
RETRY_EVERY: Final = 8  # deletions that free a slot, for each try of the list's oldest key
COUNTERS: Final = (
    "insertions", "moves", "insertion_reads", "deletions", "returns", "return_moves", "listed", "oldest",
    "youngest", "freed", "used",
)  # fmt: skip
PLACED: Final = 16  # where the keys of each level are counted
STATE_WORDS: Final = PLACED + MAX_LEVELS
LINE: Final = 64


class Full(RuntimeError):  # noqa: N818
    """No room: the key's buckets are full, nobody can move, and the list has reached its limit."""


def _sizes(core: Sequence[int]) -> list[int]:
    """Return the size of each part of the payload, in bytes and without padding."""
    scheme, slots, key_type, value_type, flags, limit, *buckets = core
    total = sum(buckets) * slots
    words, values, bits = 2 if key_type == DIGEST else 1, min(1, value_type), -(-total // 8)
    return [
        8 * STATE_WORDS, bits, bits if scheme == CONSERVATIVE else 0, 8 * total * (words + values),
        4 * total * next_words(scheme, flags, len(buckets)),
        8 * limit * words, 8 * limit * values, 16 * limit, 4 * index_size(limit),
    ]  # fmt: skip


def index_size(limit: int) -> int:
    """Return the number of places of the list's index: a power of two, at least twice the limit."""
    return 1 << (2 * limit - 1).bit_length() if limit else 0


def next_words(scheme: int, flags: int, levels: int) -> int:
    """Return how many bucket numbers are kept for each slot."""
    if not flags & NEXT_HASHES or scheme == STANDARD:
        return 0
    return 1 if scheme == SECOND_CHANCE else levels - 1


def payload_bytes(core: Sequence[int]) -> int:
    """Return the size of the payload of a core; ValueError, naming the broken rule, if it is none."""
    if not HEAD < len(core) <= HEAD + MAX_LEVELS:
        raise ValueError("a core has six numbers and the buckets of 1 .. 8 levels")
    scheme, slots, key_type, value_type, flags, limit, *buckets = core
    if scheme not in range(1, 6):
        raise ValueError("scheme must be 1 .. 5")
    if slots not in (1, 2, 4, 8):
        raise ValueError("slots must be 1, 2, 4 or 8")
    if key_type not in range(1, 4) or value_type not in range(4):
        raise ValueError("the type of keys must be 1 .. 3, that of values 0 .. 3")
    if flags not in range(4) or not 0 <= limit <= MAX_LIMIT:
        raise ValueError("flags must be 0 .. 3, the overflow limit 0 .. 2**30")
    if not all(1 <= each <= 2**32 for each in buckets):
        raise ValueError("a level must have 1 .. 2**32 buckets")
    if scheme == LEAST_LOADED and len(buckets) < 2:
        raise ValueError("least-loaded needs two levels or more")
    return sum(-(-size // LINE) * LINE for size in _sizes(core))


@dataclass
class Choice:
    """Where a key goes: to `slot` (None: the list), whose resident moves to the bucket `to`, if one does."""

    slot: int | None = None
    to: int | None = None
    mark: int | None = None  # the slot that is marked


@dataclass
class Insertion:
    """What one insertion looks at: x's own buckets, and which of them it has read already."""

    own: list[int]
    seen: set[int] = field(default_factory=set)
    reads: int = 0


class ReferenceMultilevel:
    """A multilevel table of a core. Keys and values are words here; `stored` makes words of keys.

    Examples
    --------
    >>> t = ReferenceMultilevel([5, 8, 1, 1, 1, 4, 2, 2])
    >>> t.insert(t.stored(-3), 7)
    >>> t.get(t.stored(-3)), t.get(t.stored(4)), len(t)
    (7, None, 1)
    """

    kind: ClassVar[int] = 7
    hashing: ClassVar[int] = 1

    def __init__(self, core: Sequence[int], seed: int = 0) -> None:
        payload_bytes(core)
        self.core = tuple(core)
        self.seed = arguments.seed(seed)
        self.scheme, self.slots, self.key_type, self.value_type, self.flags, self.limit = self.core[:HEAD]
        self.buckets = self.core[HEAD:]
        self.levels = len(self.buckets)
        self.first = [sum(self.buckets[:j]) for j in range(self.levels)]  # number of a level's first bucket
        self.next_words = next_words(self.scheme, self.flags, self.levels)
        self.clear()

    def clear(self) -> None:
        """Take out everything."""
        self.table: list[tuple[int, int] | None] = [None] * (sum(self.buckets) * self.slots)
        self.marks: set[int] = set()
        self.entries: dict[int, tuple[int, int]] = {}  # of the list, by their numbers, from 1
        self.order: list[int] = []  # from the oldest to the youngest
        self.free: list[int] = []  # entries used before; the last one is taken first
        self.used = 0
        self.chains: dict[int, list[int]] = {}  # by place in the index; the newest first
        self.insertions = self.moves = self.insertion_reads = 0
        self.deletions = self.returns = self.return_moves = 0

    # --- keys ------------------------------------------------------------------------------------------

    def stored(self, key: object) -> int:
        """Return what is stored of a key: 64 bits of an integer, or 128 of any key."""
        if self.key_type == DIGEST:
            data = key.encode() if isinstance(key, str) else key
            if isinstance(data, int):
                return digest(data, self.seed) | (data & MASK) << 64
            if not isinstance(data, bytes):
                raise TypeError("a key must be str, bytes or int")
            return xxh3_128(data, self.seed)
        if not isinstance(key, int):
            raise TypeError("a key must be an int")
        low, high = (-(2**63), 2**63) if self.key_type == INT64 else (0, 2**64)
        if not low <= key < high:
            raise ValueError("the key is out of range")
        return key & MASK

    def digest(self, key: int) -> int:
        """Return the 64-bit digest of a stored key."""
        if self.key_type == DIGEST:
            return key & MASK
        return digest(key - 2**64 if self.key_type == INT64 and key >= 2**63 else key, self.seed)

    def bucket(self, key: int, level: int) -> int:
        """Return the number of a stored key's bucket in a level, counted through all levels."""
        digest = self.digest(key)
        word = splitmix(digest, level) if level else digest
        return self.first[level] + mulhi(word, self.buckets[level])

    def place(self, key: int) -> int:
        """Return a stored key's place in the list's index."""
        return mulhi(splitmix(self.digest(key), MAX_LEVELS), index_size(self.limit))

    def level_of(self, bucket: int) -> int:
        """Return the level of a bucket."""
        return max(j for j in range(self.levels) if self.first[j] <= bucket)

    # --- look-ups ---------------------------------------------------------------------------------------

    def slots_of(self, bucket: int) -> range:
        """Return the numbers of a bucket's slots."""
        return range(bucket * self.slots, (bucket + 1) * self.slots)

    def load(self, bucket: int) -> int:
        """Return how many keys a bucket has."""
        return sum(self.table[slot] is not None for slot in self.slots_of(bucket))

    def find(self, key: int) -> tuple[str, int] | None:
        """Return ("slot", number) or ("entry", number) of a stored key; None if it is absent."""
        for level in range(self.levels):
            for slot in self.slots_of(self.bucket(key, level)):
                resident = self.table[slot]
                if resident is not None and resident[0] == key:
                    return "slot", slot
        for entry in self.chains.get(self.place(key), ()) if self.limit else ():
            if self.entries[entry][0] == key:
                return "entry", entry
        return None

    def get(self, key: int) -> int | None:
        """Return the value's word of a stored key."""
        match self.find(key):
            case "slot", slot:
                resident = self.table[slot]
                assert resident is not None
                return resident[1]
            case "entry", entry:
                return self.entries[entry][1]
        return None

    def items(self) -> Iterator[tuple[int, int]]:
        """Return the pairs of stored keys and values: by slots, then by age on the list."""
        yield from (each for each in self.table if each is not None)
        yield from (self.entries[entry] for entry in self.order)

    def __len__(self) -> int:
        return sum(1 for _ in self.items())

    # --- insertions -------------------------------------------------------------------------------------

    def insert(self, key: int, value: int, *, new: bool = False) -> None:
        """Store a key with its value; Full, and nothing has changed, when there is no room."""
        found = None if new else self.find(key)
        if found is not None:
            where, number = found
            if where == "slot":
                self.table[number] = key, value
            else:
                self.entries[number] = key, value
            return
        own = [self.bucket(key, level) for level in range(self.levels)]
        insertion = Insertion(own) if new else Insertion(own, set(range(self.levels)), self.levels)
        choice = self.choose(insertion)
        if choice.slot is None and len(self.order) == self.limit:
            raise Full
        if choice.mark is not None:
            self.marks.add(choice.mark)
        if choice.slot is None:
            self.list_add(key, value)
        else:
            self.moves += choice.to is not None
            self.put(choice, key, value)
        self.insertions += 1
        self.insertion_reads += insertion.reads

    def put(self, choice: Choice, key: int, value: int) -> None:
        """Store a key in the slot of a choice, whose resident moves first if it must."""
        assert choice.slot is not None
        if choice.to is not None:
            self.table[self.first_free(choice.to)] = self.table[choice.slot]
        self.table[choice.slot] = key, value

    def first_free(self, bucket: int) -> int:
        """Return the first free slot of a bucket."""
        return next(slot for slot in self.slots_of(bucket) if self.table[slot] is None)

    # What is counted as a read of a bucket:

    def look_own(self, insertion: Insertion, level: int) -> int:
        """Look at the load of x's own bucket."""
        if not self.flags & OCCUPANCY_BITS:
            self.read_own(insertion, level)
        return self.load(insertion.own[level])

    def read_residents(self, insertion: Insertion, level: int) -> None:
        """Learn where the residents of x's own bucket may go."""
        if not self.next_words:
            self.read_own(insertion, level)

    def read_own(self, insertion: Insertion, level: int) -> None:
        """Read x's own bucket, unless this insertion has done so."""
        if level not in insertion.seen:
            insertion.seen.add(level)
            insertion.reads += 1

    def look_there(self, insertion: Insertion, bucket: int) -> int:
        """Look at the load of a bucket where a resident may go."""
        if not self.flags & OCCUPANCY_BITS:
            insertion.reads += 1
        return self.load(bucket)

    def has_room(self, insertion: Insertion, bucket: int) -> bool:
        """Look whether a bucket, where a resident may go, has room."""
        return self.look_there(insertion, bucket) < self.slots

    # The schemes:

    def choose(self, insertion: Insertion) -> Choice:
        """Choose where the key of an insertion goes."""
        match self.scheme:
            case 1:
                return self.leftmost(insertion)
            case 2:
                return self.conservative(insertion)
            case 3:
                return self.second_chance(insertion)
            case 4:
                return self.extreme(insertion)
        return self.least_loaded(insertion)

    def direct(self, insertion: Insertion, level: int) -> Choice:
        """Choose the first free slot of x's own bucket."""
        return Choice(self.first_free(insertion.own[level]))

    def resident_bucket(self, slot: int, level: int) -> int:
        """Return the bucket of a slot's resident in a level."""
        resident = self.table[slot]
        assert resident is not None
        return self.bucket(resident[0], level)

    def leftmost(self, insertion: Insertion) -> Choice:
        """Section 5.2: the leftmost bucket with room."""
        for level in range(self.levels):
            if self.look_own(insertion, level) < self.slots:
                return self.direct(insertion, level)
        return Choice()

    def conservative(self, insertion: Insertion) -> Choice:
        """Section 5.4: and if there is none, the first unmarked resident from the left moves right."""
        choice = self.leftmost(insertion)
        if choice.slot is not None:
            return choice
        for level in range(self.levels - 1):
            for slot in self.slots_of(insertion.own[level]):
                if slot in self.marks:
                    continue
                self.read_residents(insertion, level)
                for k in range(level + 1, self.levels):
                    there = self.resident_bucket(slot, k)
                    if self.has_room(insertion, there):
                        return Choice(slot, there, mark=slot)
                return Choice(mark=slot)
        return Choice()

    def second_chance(self, insertion: Insertion) -> Choice:
        """Section 5.5, Figure 5.1; for more slots, section 5.7."""
        for i in range(self.levels - 1):
            if self.look_own(insertion, i) < self.slots:
                return self.direct(insertion, i)
            if self.look_own(insertion, i + 1) == self.slots:
                self.read_residents(insertion, i)
                for slot in self.slots_of(insertion.own[i]):
                    there = self.resident_bucket(slot, i + 1)
                    if self.has_room(insertion, there):
                        return Choice(slot, there)
        if self.look_own(insertion, self.levels - 1) < self.slots:
            return self.direct(insertion, self.levels - 1)
        return Choice()

    def extreme(self, insertion: Insertion) -> Choice:
        """Section 5.6: x or a resident of one of its full buckets, whichever has room furthest left."""
        if self.look_own(insertion, 0) < self.slots:
            return self.direct(insertion, 0)
        loads = [self.look_own(insertion, level) for level in range(self.levels)]
        best = next((level for level in range(self.levels) if loads[level] < self.slots), self.levels)
        choice = self.direct(insertion, best) if best < self.levels else Choice()
        for level in range(self.levels):
            if best == 0:
                break
            if loads[level] < self.slots:
                continue
            self.read_residents(insertion, level)
            for slot in self.slots_of(insertion.own[level]):
                for k in range(best):
                    if k == level:
                        continue
                    there = self.resident_bucket(slot, k)
                    if self.has_room(insertion, there):
                        choice, best = Choice(slot, there), k
                        break
        return choice

    def least_loaded(self, insertion: Insertion) -> Choice:
        """Choose the least loaded bucket; if all are full, who has a least loaded one elsewhere moves."""
        loads = [self.look_own(insertion, level) for level in range(self.levels)]
        if min(loads) < self.slots:
            return self.direct(insertion, loads.index(min(loads)))
        choice, least = Choice(), self.slots
        for level in range(self.levels):
            self.read_residents(insertion, level)
            for slot in self.slots_of(insertion.own[level]):
                for k in range(self.levels):
                    if k == level:
                        continue
                    there = self.resident_bucket(slot, k)
                    load = self.look_there(insertion, there)
                    if load < least:
                        choice, least = Choice(slot, there), load
        return choice

    # --- deletions, and the list ------------------------------------------------------------------------

    def delete(self, key: int) -> bool:
        """Delete a stored key; tell whether it was there."""
        match self.find(key):
            case "entry", entry:
                self.list_remove(entry)
                return True
            case "slot", slot:
                self.table[slot] = None
                self.marks.discard(slot)
                self.deletions += 1
                if self.scheme == LEAST_LOADED and self.order and self.deletions % RETRY_EVERY == 0:
                    self.retry_oldest()
                return True
        return False

    def retry_oldest(self) -> None:
        """Try the oldest key of the list again; if it finds no room it becomes the youngest."""
        entry = self.order[0]
        key, value = self.entries[entry]
        choice = self.choose(Insertion([self.bucket(key, level) for level in range(self.levels)]))
        if choice.slot is None:
            self.order.append(self.order.pop(0))
            return
        self.list_remove(entry)
        self.put(choice, key, value)
        self.returns += 1
        self.return_moves += choice.to is not None

    def list_add(self, key: int, value: int) -> None:
        """Put a key on the list, as its youngest."""
        if self.free:
            entry = self.free.pop()
        else:
            self.used += 1
            entry = self.used
        self.entries[entry] = key, value
        self.order.append(entry)
        self.chains.setdefault(self.place(key), []).insert(0, entry)

    def list_remove(self, entry: int) -> None:
        """Take an entry off the list."""
        key, _ = self.entries.pop(entry)
        self.order.remove(entry)
        self.chains[self.place(key)].remove(entry)
        self.free.append(entry)

    # --- bytes ------------------------------------------------------------------------------------------

    def counters(self) -> list[int]:
        """Return the counters, in the order of `COUNTERS`."""
        return [
            self.insertions, self.moves, self.insertion_reads, self.deletions, self.returns,
            self.return_moves, len(self.order), self.order[0] if self.order else 0, self.order[-1] if
            self.order else 0, self.free[-1] if self.free else 0, self.used,
        ]  # fmt: skip

    def placed(self) -> list[int]:
        """Return the number of keys of each level."""
        return [
            sum(self.load(self.first[j] + bucket) for bucket in range(self.buckets[j]))
            for j in range(self.levels)
        ]

    def next_hashes(self, slot: int) -> list[int]:
        """Return what is kept of a slot's resident: the numbers, within their level, of its other buckets."""
        if self.table[slot] is None or not self.next_words:
            return [0] * self.next_words
        level = self.level_of(slot // self.slots)
        if self.scheme == SECOND_CHANCE:
            others = [level + 1] if level + 1 < self.levels else []
        else:
            others = [k for k in range(self.levels) if k != level]
        return [self.resident_bucket(slot, k) - self.first[k] for k in others] or [0]

    def _words(self, key: int) -> tuple[int, ...]:
        return (key & MASK, key >> 64) if self.key_type == DIGEST else (key,)

    def payload(self) -> bytes:
        """Return the payload of the table's file."""
        state = self.counters() + [0] * (PLACED - len(COUNTERS)) + self.placed()
        state += [0] * (STATE_WORDS - len(state))
        residents = [each or (0, 0) for each in self.table]
        occupied = sum(1 << slot for slot, each in enumerate(self.table) if each is not None)
        marked = sum(1 << slot for slot in self.marks)
        records: list[int] = []
        for start in range(0, len(residents), self.slots):
            bucket = residents[start : start + self.slots]
            records += [key & MASK for key, _ in bucket]
            records += [key >> 64 for key, _ in bucket] if self.key_type == DIGEST else []
            records += [value for _, value in bucket] if self.value_type else []
        listed = [self.entries.get(entry, (0, 0)) for entry in range(1, self.limit + 1)]
        list_words = [word for key, _ in listed for word in self._words(key)]
        sizes = _sizes(self.core)
        nexts = [each for slot in range(len(self.table)) for each in self.next_hashes(slot)]
        parts = [
            struct.pack(f"<{STATE_WORDS}Q", *state), occupied.to_bytes(sizes[1], "little"),
            marked.to_bytes(sizes[2], "little"), struct.pack(f"<{len(records)}Q", *records),
            struct.pack(f"<{len(nexts)}I", *nexts), struct.pack(f"<{len(list_words)}Q", *list_words),
            struct.pack(f"<{sizes[6] // 8}Q", *[value for _, value in listed if self.value_type]),
            self._links(), self._index(),
        ]  # fmt: skip
        assert [len(part) for part in parts] == sizes
        return b"".join(part + bytes(-len(part) % LINE) for part in parts)

    def _links(self) -> bytes:
        links = [[0, 0, 0, 0] for _ in range(self.limit)]
        for older, younger in pairwise(self.order):
            links[older - 1][0], links[younger - 1][1] = younger, older
        for below, entry in zip([0, *self.free], self.free, strict=False):
            links[entry - 1][0] = below
        for chain in self.chains.values():
            for entry, following in pairwise(chain):
                links[entry - 1][2] = following
        return struct.pack(f"<{4 * self.limit}I", *(each for link in links for each in link))

    def _index(self) -> bytes:
        heads = [0] * index_size(self.limit)
        for place, chain in self.chains.items():
            heads[place] = chain[0] if chain else 0
        return struct.pack(f"<{len(heads)}I", *heads)

    @classmethod
    def from_payload(cls, core: Sequence[int], seed: int, payload: bytes) -> Self:
        """Rebuild a table; ValueError if the payload is none that `payload` gives."""
        table = cls(core, seed)
        sizes = _sizes(core)
        if len(payload) != payload_bytes(core):
            raise ValueError("the payload has a wrong size")
        parts, at = [], 0
        for size in sizes:
            parts.append(payload[at : at + size])
            at += -(-size // LINE) * LINE
        state = struct.unpack(f"<{STATE_WORDS}Q", parts[0])
        words, values = 2 if table.key_type == DIGEST else 1, min(1, table.value_type)
        records = struct.unpack(f"<{sizes[3] // 8}Q", parts[3])
        for slot in range(len(table.table)):
            at = slot // table.slots * table.slots * (words + values) + slot % table.slots
            low, *rest = records[at : at + (words + values) * table.slots : table.slots]
            if parts[1][slot // 8] >> slot % 8 & 1:
                table.table[slot] = low | sum(rest[: words - 1]) << 64, sum(rest[words - 1 :])
            if sizes[2] and parts[2][slot // 8] >> slot % 8 & 1:
                table.marks.add(slot)
        (
            table.insertions, table.moves, table.insertion_reads, table.deletions, table.returns,
            table.return_moves, listed, oldest, _, freed, table.used,
        ) = state[: len(COUNTERS)]  # fmt: skip
        list_words = struct.unpack(f"<{sizes[5] // 8}Q", parts[5])
        list_values = struct.unpack(f"<{sizes[6] // 8}Q", parts[6]) or [0] * table.limit
        links = struct.unpack(f"<{4 * table.limit}I", parts[7])
        if table.used > table.limit or listed > table.limit:
            raise ValueError("the list has more entries than its limit")
        table._read_list(list_words, list_values, links, oldest, freed)
        for place, entry in enumerate(struct.unpack(f"<{sizes[8] // 4}I", parts[8])):
            chain = table.chains.setdefault(place, []) if entry else []
            while entry:
                if not 1 <= entry <= table.limit or len(chain) > table.limit:
                    raise ValueError("the list's index is broken")
                chain.append(entry)
                entry = links[4 * (entry - 1) + 2]
        for slot, resident in enumerate(table.table):
            bucket = slot // table.slots
            if resident is not None and table.bucket(resident[0], table.level_of(bucket)) != bucket:
                raise ValueError("a key lies in a bucket that is not its own")
        if any(table.table[slot] is None or slot // table.slots >= table.first[-1] for slot in table.marks):
            raise ValueError("a slot is marked that cannot be")
        if any(entry not in table.entries for chain in table.chains.values() for entry in chain):
            raise ValueError("the list's index is broken")
        if table.payload() != payload:
            raise ValueError("the parts of the payload contradict each other")
        return table

    def _read_list(
        self, words: Sequence[int], values: Sequence[int], links: Sequence[int], oldest: int, freed: int
    ) -> None:
        """Follow the links of the list and of its free entries."""
        entry = oldest
        while entry:
            if not 1 <= entry <= self.used or entry in self.entries:
                raise ValueError("the list's links are broken")
            i = entry - 1
            key = words[2 * i] | words[2 * i + 1] << 64 if self.key_type == DIGEST else words[i]
            self.entries[entry] = key, values[i]
            self.order.append(entry)
            entry = links[4 * i]
        entry = freed
        while entry:
            if not 1 <= entry <= self.used or entry in self.entries or entry in self.free:
                raise ValueError("the list's free entries are broken")
            self.free.insert(0, entry)
            entry = links[4 * (entry - 1)]
        if len(self.order) + len(self.free) != self.used:
            raise ValueError("the list has lost an entry")

"""The balanced Bloom filter: a block that is full sends its keys on to their next block.

A blocked filter (`blocked`) reads one block a key and pays for it: chance crowds some blocks, and the
crowded ones answer "present" too often. Here a key has several blocks, its path, in an order of its own.
It goes into the first that accepts it; refused by all, onto a short list. A query walks the same path.

          T1 ┌───┬───┬───┬───┐
    y ──────▶│   │   │ 3 │   │   load 3 = threshold: full, on to the next
             └───┴───┴───┴───┘
          T2 ┌───┬───┐           load 2 < threshold: y goes in here,
      ──────▶│   │ 2 │           and here a query for y ends
             └───┴───┘
          T3 ┌───┐               not read for y
             └───┘
        list  x                  x found its blocks full in all three tables

    a block  │ key bits: positions 0 .. R-1 │ load: the top b bits │    b = bit_length(threshold + 1)

Kanizo, Hay, Keslassy, "Access-efficient balanced Bloom filters" (Computer Communications 2013); the picture
follows its Figure 1. Its h is ``threshold``, p the ``coin``, d ``choices``, k ``hashes``, a·n ``budget``.

    1 single      one table, one choice; a block accepts a key while load < threshold, and at
                  load = threshold if the key's coin says so (§5)
    2 sequential  one table, d choices; when the budget of reads is spent, keys go on the list unread,
                  while it has room (§6)
    3 multilevel  d tables, a choice in each (§2, §7)
    4 fill        d tables; a block accepts while its set bits are below the threshold: no counter, no list; a
                  last threshold above all bits (older files) never refuses a key
    5 two-choice  one table; of two blocks, the one where the new bits do the least harm; queries read both

4 and 5 are not the paper's. With the list full, or without one, a refused key is spilled into one of its
blocks all the same: that of the fewest set bits, or, as in §9.2, a random one.

Invariants
- No added key is lost. A query may end at a block only where an add of the same key would have ended: the
  coin is a hash of the key, so both see the same; a block that once refused a key refuses it for ever, for
  bits and loads only grow, in a merge too. "Ends at load = threshold, whatever the coin" loses keys.
- A key on the list was refused by its whole path, unless the budget was spent; from then on every miss asks
  the list. A key without a place there is read again, and spilled only if its whole path refuses it:
  spilled unread, it could lie behind a block that accepts it, where a query ends.
- A key that answers "present" changes nothing when it is added. The order of the keys does leave a trace.
- A load counts to threshold + 1 and stays there. Bits outside the blocks, and the last state words, are 0.
"""

from __future__ import annotations

import operator
import struct
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Self

from reference.blocked import lane_positions
from reference.bloom import ReferenceFilter
from reference.keys import mulhi, splitmix

LINE: Final = 64  # bytes


class Policy(IntEnum):
    """How a key finds its block."""

    SINGLE = 1
    SEQUENTIAL = 2
    MULTILEVEL = 3
    FILL = 4
    TWO_CHOICE = 5

    @property
    def counted(self) -> bool:
        """Blocks have counters, and there are a list and a state: the paper's policies."""
        return self <= Policy.MULTILEVEL


class Spill(IntEnum):
    """Where a key goes that no block accepts, when the list has no room."""

    LEAST = 0
    RANDOM = 1


class State(NamedTuple):
    """The state words of a payload; three zeros follow them."""

    keys: int  # that changed the filter
    listed: int  # entries of the list, digest 0 included
    spent: int  # block reads of those keys' insertions
    flags: int  # ZERO_LISTED, EXHAUSTED
    spilled: int  # keys


ZERO_LISTED: Final = 1
EXHAUSTED: Final = 2  # the budget; some key was not read on its way in


# The integer core.


class Shape(NamedTuple):
    """The integer core by name, valid: see `shape_of`."""

    policy: Policy
    block_bits: int
    hashes: int
    choices: int
    coin: int
    overflow_limit: int
    spill: Spill
    budget: int
    tables: tuple[tuple[int, int], ...]  # blocks and threshold of each


def shape_of(core: Sequence[int]) -> Shape:
    """Name the words of a core; ValueError, saying which and why, if no filter has it."""
    if len(core) < 10 or len(core) % 2:
        raise ValueError(f"core must be 8 words and 2 for each of 1 .. 8 tables, got {len(core)} words")
    policy, block_bits, hashes, choices, coin, limit, spill, budget, *rest = map(operator.index, core)
    tables = tuple(zip(rest[::2], rest[1::2], strict=True))
    require("policy", policy, between(1, 5))
    require("block_bits", block_bits, (256, 512))
    require("hashes", hashes, between(1, 32))

    counted = Policy(policy).counted
    levelled = policy in (Policy.MULTILEVEL, Policy.FILL)
    spendable = policy == Policy.SEQUENTIAL and limit > 0
    fixed = {Policy.SINGLE: 1, Policy.TWO_CHOICE: 2}.get(Policy(policy))
    require("choices", choices, between(fixed or 1, fixed or 8))
    require("number of tables", len(tables), (choices if levelled else 1,))
    require("coin", coin, between(0, 2**32 if counted else 0))
    require("overflow_limit", limit, between(0, 2**40 if counted else 0))
    require("spill", spill, between(0, 1 if counted else 0))
    require("budget", budget, between(0, 2**64 - 1 if spendable else 0))

    last = len(tables) - 1
    for j, (blocks, threshold) in enumerate(tables):
        require(f"blocks of table {j}", blocks, between(1, 2**47))
        allowed = {
            Policy.FILL: between(1, block_bits + (j == last)),  # block_bits + 1: never full
            Policy.TWO_CHOICE: (0,),
        }.get(Policy(policy), between(0, 65534))
        require(f"threshold of table {j}", threshold, allowed)
    require("total bits", block_bits * sum(blocks for blocks, _ in tables), between(1, 2**56))
    return Shape(
        Policy(policy), block_bits, hashes, choices, coin, limit, Spill(spill), budget, tables
    )  # fmt: skip


def between(low: int, high: int) -> range:
    """Return low .. high, both ends included."""
    return range(low, high + 1)


def require(name: str, value: int, allowed: Container[int]) -> None:
    """Refuse a value that is not allowed."""
    if value not in allowed:
        text = f"in {allowed[0]} .. {allowed[-1]}" if isinstance(allowed, range) else f"one of {allowed}"
        raise ValueError(f"{name} must be {text}, got {value}")


def payload_bytes(core: Sequence[int]) -> int:
    """Return the size of the payload of a core: tables in whole lines, then list slots and state words."""
    shape = shape_of(core)
    tables = sum(whole_lines(blocks * shape.block_bits // 8) for blocks, _ in shape.tables)
    return tables + 8 * (list_slots(shape.overflow_limit) + 8 if shape.policy.counted else 0)


def whole_lines(size: int) -> int:
    """Round up to cache lines."""
    return -(-size // LINE) * LINE


def list_slots(limit: int) -> int:
    """Return the slots of a list of ``limit`` entries: a third more, whole lines, never all in use."""
    return (limit + limit // 3 + 15) // 8 * 8 if limit else 0


# The parts: a table of blocks, a key at one of them, the list.


class Table:
    """Blocks, each with the bits of its keys and, where the policy counts, their number: the load."""

    def __init__(self, blocks: int, threshold: int, block_bits: int, *, counted: bool) -> None:
        self.blocks = blocks
        self.threshold = threshold
        self.block_bits = block_bits
        self.counted = counted
        self.span = block_bits - (threshold + 1).bit_length() if counted else block_bits  # R
        self.bits: Counter[int] = Counter()  # by block; what is absent is 0
        self.loads: Counter[int] = Counter()

    def grow(self, block: int, bits: int, load: int) -> None:
        """Take in the bits of so many keys; the load saturates."""
        self.bits[block] |= bits
        if self.counted:
            self.loads[block] = min(self.loads[block] + load, self.threshold + 1)

    def payload(self) -> bytes:
        """Return the blocks, the load on top of the bits, in whole lines."""
        whole = (self.loads[i] << self.span | self.bits[i] for i in range(self.blocks))
        data = b"".join(block.to_bytes(self.block_bits // 8, "little") for block in whole)
        return data.ljust(whole_lines(len(data)), b"\0")


@dataclass(frozen=True)
class Choice:
    """A key at one block of its path."""

    table: Table
    block: int
    bits: int  # the key's own, as a mask
    coin: bool

    def present(self) -> bool:
        """All bits of the key are there."""
        return self.bits & ~self.table.bits[self.block] == 0

    def popcount(self) -> int:
        """Count the set bits of the block."""
        return self.table.bits[self.block].bit_count()

    def accepts(self) -> bool:
        """The block is not full for this key: here its add, and a query for it, may end."""
        if not self.table.counted:
            return self.popcount() < self.table.threshold  # two-choice: 0, a query never ends
        load = self.table.loads[self.block]
        return load < self.table.threshold or (load == self.table.threshold and self.coin)

    def insert(self) -> None:
        """Set the key's bits and count it."""
        self.table.grow(self.block, self.bits, load=1)

    def harm(self, hashes: int) -> int:
        """Say by how much the key's bits would raise the block's false-positive rate, times 2**62."""
        old = self.popcount()
        new = (self.table.bits[self.block] | self.bits).bit_count()
        return phi(new, self.table.block_bits, hashes) - phi(old, self.table.block_bits, hashes)


def phi(set_bits: int, block_bits: int, hashes: int) -> int:
    """Return (set_bits / block_bits) ** hashes in units of 2**-62, rounded down at each step."""
    t = 2**62
    for _ in range(hashes):
        t = t * set_bits // block_bits
    return t


class OverflowList:
    """At most ``limit`` digests, by linear probing from the start of a cache line.

    An empty slot is 0, so digest 0 is a flag of its own.
    """

    def __init__(self, limit: int, home_word: int) -> None:
        self.limit = limit
        self.home_word = home_word
        self.slots = list_slots(limit)
        self.used: dict[int, int] = {}  # the digest, by slot
        self.zero = False

    def __len__(self) -> int:
        return len(self.used) + self.zero

    def __iter__(self) -> Iterator[int]:
        yield from [0] * self.zero
        yield from self.used.values()

    def __contains__(self, digest: int) -> bool:
        return self.slot(digest) in self.used if digest else self.zero

    def slot(self, digest: int) -> int:
        """Walk from the digest's line to the slot that holds it, or else to the first empty one."""
        slot = mulhi(splitmix(digest, self.home_word), self.slots // 8) * 8
        while self.used.get(slot, digest) != digest:
            slot = (slot + 1) % self.slots
        return slot

    def has_room(self) -> bool:
        """One more entry would still keep the limit."""
        return len(self) < self.limit

    def add(self, digest: int) -> None:
        """Put in a digest that is not there; there must be room."""
        if digest:
            self.used[self.slot(digest)] = digest
        else:
            self.zero = True

    def payload(self) -> bytes:
        """Return the slots."""
        return struct.pack(f"<{self.slots}Q", *(self.used.get(i, 0) for i in range(self.slots)))


# The filter.


class ReferenceBalanced(ReferenceFilter):
    """A balanced filter of the integer core.

    Parameters
    ----------
    core
        ``[policy, block_bits, hashes, choices, coin, overflow_limit, spill, budget]``, then ``blocks,
        threshold`` of each table: see `shape_of`. ``coin`` is a probability times 2**32.

    Examples
    --------
    >>> f = ReferenceBalanced([3, 256, 8, 2, 0, 10, 0, 0, 3, 4, 1, 4])  # multilevel, tables of 3 and 1
    >>> f.add("key")
    >>> "key" in f, "another" in f
    (True, False)
    >>> f.state()
    State(keys=1, listed=0, spent=1, flags=0, spilled=0)
    """

    kind = 3
    hashing = 2

    def __init__(self, core: Sequence[int], seed: int = 0) -> None:
        self.shape = shape = shape_of(core)
        super().__init__(tuple(map(operator.index, core)), seed)
        counted = shape.policy.counted
        self.tables = [Table(n, h, shape.block_bits, counted=counted) for n, h in shape.tables]
        self.levels = self.tables if len(self.tables) > 1 else self.tables * shape.choices
        self.list = self.empty_list()
        self.keys = self.spent = self.spilled = 0
        self.exhausted = False

    def empty_list(self) -> OverflowList:
        """Return a fresh list; the first word that no level uses gives the homes."""
        return OverflowList(self.shape.overflow_limit, home_word=self.shape.choices)

    def path(self, digest: int) -> Iterator[Choice]:
        """Yield the key's blocks in their order. All that happens at a level comes from the level's word."""
        for level, table in enumerate(self.levels):
            word = splitmix(digest, level) if level else digest
            positions = set(lane_positions(word, self.shape.hashes, table.span))
            coin = splitmix(word, 0) >> 32 < self.shape.coin
            yield Choice(table, mulhi(word, table.blocks), sum(1 << p for p in positions), coin)

    def end(self, digest: int) -> tuple[int, Choice | None]:
        """Walk to the first block that holds or accepts the key; None if there is none. Count the reads."""
        for reads, choice in enumerate(self.path(digest), start=1):
            if choice.present() or choice.accepts():
                return reads, choice
        return self.shape.choices, None

    # Queries and adds.

    def contains_digest(self, digest: int) -> bool:
        """Look where the path ends, and on the list if it has no end or keys came unread."""
        _, end = self.end(digest)
        if end and end.present():
            return True
        return (end is None or self.exhausted) and digest in self.list

    def add_digest(self, digest: int) -> None:
        """Put in a key; one that answers "present" changes nothing."""
        if self.contains_digest(digest):
            return
        self.keys += 1
        if self.shape.policy == Policy.TWO_CHOICE:
            min(self.path(digest), key=lambda choice: choice.harm(self.shape.hashes)).insert()
        elif self.shape.budget and self.spent >= self.shape.budget and self.list.has_room():
            self.exhausted = True
            self.list.add(digest)
        else:
            self.spent += self.place(digest)

    def place(self, digest: int) -> int:
        """Put the key into the first block that accepts it, else onto the list, else spill; count reads."""
        reads, end = self.end(digest)
        if end:
            end.insert()
        elif self.list.has_room():
            self.list.add(digest)
        else:
            self.spilled += 1
            self.spill_choice(digest).insert()
        return reads

    def spill_choice(self, digest: int) -> Choice:
        """Choose one of the blocks, all full: at random, or the fewest set bits, the earlier if equal."""
        path = list(self.path(digest))
        if self.shape.spill == Spill.RANDOM:
            return path[mulhi(splitmix(digest, len(path) + 1), len(path))]
        return min(path, key=Choice.popcount)

    # Merging.

    def _unite(self, other: Self) -> None:
        """OR the bits, add the loads and the state; unite the lists, in the order of the digests.

        What the list cannot hold takes its path anew, so a merge does not depend on which filter is which.
        """
        listed = sorted({*self.list, *other.list})
        for mine, theirs in zip(self.tables, other.tables, strict=True):
            for block, bits in theirs.bits.items():
                mine.grow(block, bits, theirs.loads[block])
        self.keys += other.keys
        self.spent += other.spent
        self.spilled += other.spilled
        self.exhausted |= other.exhausted

        self.list = self.empty_list()
        for digest in listed[: self.list.limit]:
            self.list.add(digest)
        for digest in listed[self.list.limit :]:
            if not self.contains_digest(digest):
                self.place(digest)

    # What it looks like inside.

    def set_bits(self) -> int:
        """Count the bits that keys have set: no counters, no list."""
        return sum(bits.bit_count() for table in self.tables for bits in table.bits.values())

    def load(self, level: int, block: int) -> int:
        """Return the counter of a block; 0 where there is none."""
        return self.levels[level].loads[block]

    def set_bits_histogram(self, level: int) -> Counter[tuple[int, int]]:
        """Count the blocks of a level's table by their load and their number of set bits."""
        table = self.levels[level]
        return Counter((table.loads[i], table.bits[i].bit_count()) for i in range(table.blocks))

    def state(self) -> State:
        """Return the state words; zeros for the policies that keep none."""
        if not self.shape.policy.counted:
            return State(0, 0, 0, 0, 0)
        flags = ZERO_LISTED * self.list.zero | EXHAUSTED * self.exhausted
        return State(self.keys, len(self.list), self.spent, flags, self.spilled)

    def payload(self) -> bytes:
        """Return the tables, then the list and the state words."""
        tables = b"".join(table.payload() for table in self.tables)
        if not self.shape.policy.counted:
            return tables
        return tables + self.list.payload() + struct.pack("<8Q", *self.state(), 0, 0, 0)

    @classmethod
    def from_payload(cls, core: Sequence[int], seed: int, payload: bytes) -> Self:
        """Make the filter that has this payload; ValueError if none has."""
        f = cls(core, seed)
        if len(payload) != (wanted := payload_bytes(core)):
            raise ValueError(f"payload must have {wanted} bytes, got {len(payload)}")
        start = 0
        for table in f.tables:
            size = table.block_bits // 8
            for i in range(table.blocks):
                block = int.from_bytes(payload[start + i * size :][:size], "little")
                table.bits[i], table.loads[i] = block & (1 << table.span) - 1, block >> table.span
            if max(table.loads.values()) > table.threshold + 1:
                raise ValueError("payload has a load above its threshold + 1")
            start += whole_lines(table.blocks * size)
        if f.shape.policy.counted:
            *slots, f.keys, _, f.spent, flags, f.spilled, _, _, _ = struct.unpack(
                f"<{f.list.slots + 8}Q", payload[start:]
            )
            f.list.used = {slot: digest for slot, digest in enumerate(slots) if digest}
            f.list.zero = bool(flags & ZERO_LISTED)
            f.exhausted = bool(flags & EXHAUSTED and f.shape.budget)
            if len(f.list) > f.list.limit or any(f.list.slot(d) != i for i, d in f.list.used.items()):
                raise ValueError("payload has a list that no adds leave")
        if f.payload() != payload:
            raise ValueError("payload has spare bits that are set, or a state that contradicts its list")
        return f

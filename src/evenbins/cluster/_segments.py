"""How a filter lies on servers: its tables cut into segments, one string value each, and what describes them.

    {name}:meta          plan, epoch and number of servers, as JSON with a checksum; on every server
    {name:7}:segment     segment 7:  │ head, 64 bytes │ blocks, as in the local filter's payload │
    {name:list}:list     the overflow list: a hash from a digest's 8 bytes to its turn, and the field "epoch"

    head   0 "EVENBSEG"   8 format, segment (u32)   16 epoch (16 bytes)   32 placed, spilled (u64)
           48 turn (16 bytes)

The braces are a Redis Cluster's hash tags: segments differ in theirs, so they spread over the nodes; a value
beside a segment (the mask of a merge) has the segment's own, so that one script may touch both.

The first 32 bytes of a head are the segment's *mark*. Every script compares it, so a segment that is gone,
or belongs to a filter of the same name made later, or lies under the wrong number, is an error and never
"absent". `placed` and `spilled` count the keys that changed the segment. The *turn* is random, sent by the
client that made the last change: a whole segment is replaced only if it still has the turn it was read
with. (Counts alone would not do: a server that came back from an old snapshot may reach the same count with
other keys.)

A standard filter has no blocks: it is cut into lines of 512 bits, and each of a key's bits is a key of its
own with one position.

Invariants: the blocks of all segments, put together, are the payload of the local filter byte for byte; the
list's turns are 0, 1, 2, … in the order of insertion, from which the local list's slots follow.

Sizes: 65,408 bytes of blocks (1022 lines) and the head fit the allocator's class of 64 KiB; one line more
would take 80 KiB. Measured for 100,000 keys into a filter of a million: 16 KiB to 1 MiB take the same time
for one client (0.11 to 0.14 s); two that add at once take 0.70 s at 16 KiB, 0.75 s at 64 KiB and 1.13 s at
1 MiB, since more work is lost when another client comes between. For ten millions 16 KiB take three times as
long as 64 KiB.
"""

from __future__ import annotations

import json
import re
import secrets
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins._core import digest as checksum
from evenbins.cluster.redis_errors import FilterDamagedError, FilterMissingError, RedisFilterError
from evenbins.filters import FilterPlan, plan_of_core
from evenbins.filters.base import BaseFilter, class_for, file_header
from evenbins.hashing import mulhi, splitmix
from evenbins.rings import HashRing
from evenbins.theory.cores import COIN_UNIT, COUNTED, BalancedCore, counter_bits

__all__ = ["HEAD", "SEGMENT_BYTES", "Base", "Layout", "Table", "in_rounds", "place"]

HEAD: Final = 64
MARK: Final = 32
SEGMENT_BYTES: Final = 1022 * 64
FORMAT: Final = 1
POLICIES: Final = ("standard", "blocked", "single", "multilevel", "fill", "two-choice")
LINE_BITS: Final = 512
TRAVERSERS: Final = ("client", "server")
_HEAD: Final = struct.Struct("<8sII16sQQ16s")
_NAME: Final = re.compile(r"[^{}\s\x00-\x1f]{1,200}")
_MAGIC: Final = b"EVENBSEG"


ROUND: Final = 32
"""Segments that one step holds in memory."""


def in_rounds(items: Any, size: int = ROUND) -> Iterator[Any]:
    """Yield the items, `size` at a time: slices of a list, a range or an array."""
    return (items[start : start + size] for start in range(0, len(items), size))


def place(segment: int, servers: int) -> int:
    """Return which of several independent servers has a segment; the list is the segment after the last.

    By a hash ring: with one server more, one segment of servers + 1 would move, and all of these to the new
    one. This is the one place that knows where a segment lies.
    """
    return int(_ring(servers).node(segment))


@lru_cache(maxsize=16)
def _ring(servers: int) -> HashRing:
    return HashRing(f"{i:08}" for i in range(servers))


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a filter: its blocks, when one of them is full, and its segments."""

    blocks: int
    block_bytes: int
    threshold: int  # keys if counted, else set bits; above all bits: never full
    counter_bits: int  # 0: not counted
    first_segment: int
    blocks_per_segment: int

    @property
    def span(self) -> int:
        """Bits of a block that keys can set."""
        return 8 * self.block_bytes - self.counter_bits

    @property
    def segments(self) -> int:
        """Number of segments."""
        return -(-self.blocks // self.blocks_per_segment)

    def blocks_of(self, segment: int) -> int:
        """Count the blocks of one segment: the table's last may have fewer."""
        before = (segment - self.first_segment) * self.blocks_per_segment
        return min(self.blocks_per_segment, self.blocks - before)

    def find(self, block: int) -> tuple[int, int]:
        """Return a block's segment, and where in its value the block begins."""
        segment, within = divmod(block, self.blocks_per_segment)
        return self.first_segment + segment, HEAD + within * self.block_bytes

    def shares(self) -> npt.NDArray[np.float64]:
        """Return the fraction of the blocks that each segment has."""
        sizes = np.full(self.segments, float(self.blocks_per_segment))
        sizes[-1] = self.blocks_of(self.first_segment + self.segments - 1)
        return sizes / self.blocks


@dataclass(frozen=True, slots=True)
class Base:
    """What an imported filter had counted before, beyond its list: its state words minus those of its
    list."""

    keys: int = 0
    spent: int = 0
    spilled: int = 0


@dataclass(frozen=True)
class Layout:
    """A plan cut into segments under a name: everything that a client must know but the connection."""

    name: str
    plan: FilterPlan
    segment_bytes: int = SEGMENT_BYTES
    servers: int = 1
    epoch: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    base: Base = Base()
    traverse_on: str = field(default="client", compare=False)  # the client's own choice, not stored

    def __post_init__(self) -> None:
        check_name(self.name)
        check_plan(self.plan)
        if self.traverse_on not in TRAVERSERS:
            raise arguments.error(
                "traverse_on", 'one of "client", "server"', self.traverse_on, "Leave it out"
            )
        way_out = "Leave it out for 65_408"
        size = arguments.integer("segment_bytes", self.segment_bytes, 64, 2**26, way_out)
        if size % 64:
            raise arguments.error("segment_bytes", "a multiple of 64", size, way_out)

    @cached_property
    def _parts(self) -> dict[int, tuple[str, bytes]]:
        return {}

    def part(self, segment: int) -> tuple[str, bytes]:
        """Return a segment's key and mark, kept from the first time on."""
        found = self._parts.get(segment)
        if found is None:
            found = self._parts[segment] = self.segment_key(segment), self.mark(segment)
        return found

    @cached_property
    def counted(self) -> bool:
        """Whether blocks count their keys, and there may be a list."""
        return self.plan.policy in COUNTED

    @cached_property
    def traverses(self) -> bool:
        """Whether a key goes from block to block until one accepts it."""
        return self.plan.policy in ("single", "multilevel", "fill")

    @cached_property
    def limit(self) -> int:
        """Entries that the overflow list may have; 0: no list."""
        return self._design.overflow_limit if self.counted else 0

    @cached_property
    def coin(self) -> int:
        """Chance of a key at the threshold, of 2**32."""
        return int(self._design.coin * COIN_UNIT) if self.counted else 0

    @cached_property
    def spill(self) -> str:
        """Which of its full blocks takes a key that the list cannot."""
        return self._design.spill

    @cached_property
    def _design(self) -> BalancedCore:
        """A balanced filter's core."""
        return BalancedCore(self.plan.core)

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The tables, in the order of the payload."""
        if self.plan.policy == "standard":
            bits, _ = self.plan.core
            sizes, block_bits = [(-(-bits // LINE_BITS), LINE_BITS + 1)], LINE_BITS
        elif self.plan.policy == "blocked":
            blocks, block_bits, _ = self.plan.core
            sizes = [(blocks, block_bits + 1)]
        else:
            design = self._design
            block_bits = design.block_bits
            sizes = list(zip(design.blocks, design.thresholds, strict=True))
            if self.plan.policy == "two-choice":
                sizes = [(design.blocks[0], block_bits + 1)]
        tables, first = [], 0
        for blocks, threshold in sizes:
            table = Table(
                blocks=blocks,
                block_bytes=block_bits // 8,
                threshold=threshold,
                counter_bits=counter_bits(threshold) if self.counted else 0,
                first_segment=first,
                blocks_per_segment=self.segment_bytes * 8 // block_bits,
            )
            tables.append(table)
            first += table.segments
        return tuple(tables)

    @cached_property
    def segments(self) -> int:
        """Number of segments."""
        return sum(table.segments for table in self.tables)

    def level(self, level: int) -> Table:
        """Return the table of a level: two choices share one."""
        return self.tables[level if len(self.tables) > 1 else 0]

    def table_of(self, segment: int) -> Table:
        """Return the table that a segment belongs to."""
        return next(table for table in reversed(self.tables) if segment >= table.first_segment)

    @property
    def meta_key(self) -> str:
        """Where the plan lies."""
        return meta_key(self.name)

    @property
    def list_key(self) -> str:
        """Where the overflow list lies."""
        return f"{{{self.name}:list}}:list"

    def segment_key(self, segment: int) -> str:
        """Return the key of a segment."""
        return f"{{{self.name}:{segment}}}:segment"

    def mask_key(self, segment: int) -> str:
        """Return the key of the mask of a merge, which exists while a script runs, beside its segment."""
        return f"{{{self.name}:{segment}}}:mask"

    def server_of(self, segment: int) -> int:
        """Return the number of the server that has a segment."""
        return place(segment, self.servers)

    @property
    def list_server(self) -> int:
        """The number of the server that has the list."""
        return place(self.segments, self.servers)

    def head(self, segment: int, placed: int = 0, spilled: int = 0, turn: bytes = b"") -> bytes:
        """Write a segment's head."""
        return _HEAD.pack(_MAGIC, FORMAT, segment, self.epoch, placed, spilled, turn)

    def mark(self, segment: int) -> bytes:
        """Return the part of a head that never changes."""
        return self.head(segment)[:MARK]

    def value_bytes(self, segment: int) -> int:
        """Count the bytes of a segment's value, the head included."""
        table = self.table_of(segment)
        return HEAD + table.blocks_of(segment) * table.block_bytes

    def read_segment(self, segment: int, value: bytes | None) -> tuple[int, int, memoryview]:
        """Check a segment's whole value: keys placed and spilled, and the blocks."""
        if value is None:
            raise FilterMissingError(self.missing_message(self.segment_key(segment)))
        if value[:MARK] != self.mark(segment) or len(value) != self.value_bytes(segment):
            raise FilterDamagedError(self.damaged_message(self.segment_key(segment)))
        placed, spilled = _HEAD.unpack_from(value)[4:6]
        return placed, spilled, memoryview(value)[HEAD:]

    def missing_message(self, key: str) -> str:
        """Return the message for a key that is missing."""
        return missing_message(self.name, key)

    def damaged_message(self, key: str) -> str:
        """Return the message for a key that holds something else."""
        return damaged_message(self.name, key)

    def local_filter(self, payload: bytes) -> BaseFilter:
        """Make the local filter that has this payload, checked as any file is."""
        return class_for(self.plan).from_bytes(file_header(self.plan, payload) + payload)

    def payload(self, blocks: list[memoryview], counts: list[tuple[int, int]], listed: list[int]) -> bytes:
        """Put a filter's payload together: segments' blocks, what they counted, the list in its order."""
        parts: list[bytes | memoryview] = []
        for table in self.tables:
            own = blocks[table.first_segment : table.first_segment + table.segments]
            parts += own
            parts.append(bytes(-sum(len(each) for each in own) % 64))
        data = b"".join(parts)
        if not self.counted:
            return data[: self.plan.nbytes]  # a standard filter ends within a line
        keys, spent, spilled = self.base.keys, self.base.spent, self.base.spilled
        for level, table in enumerate(self.tables):
            for placed, moved in counts[table.first_segment : table.first_segment + table.segments]:
                keys += placed + moved
                spent += placed * (level + 1) + moved * self.plan.choices
                spilled += moved
        keys += len(listed)
        spent += len(listed) * self.plan.choices
        slots = list_slots(listed, self.limit, self.plan.choices)
        state = (keys, len(listed), spent, int(0 in listed), spilled, 0, 0, 0)
        return data + np.array(slots, np.uint64).tobytes() + struct.pack("<8Q", *state)

    def take_apart(self, payload: memoryview) -> tuple[list[memoryview], list[int], Base]:
        """Cut a payload into the blocks of each segment, the list in an order that rebuilds it, and the
        rest."""
        blocks, start = [], 0
        for table in self.tables:
            end = start + table.blocks * table.block_bytes
            step = table.blocks_per_segment * table.block_bytes
            blocks += [payload[at : min(at + step, end)] for at in range(start, end, step)]
            start = end + -(end - start) % 64
        if self.plan.policy == "standard":  # ends within a line
            last = bytes(blocks[-1])
            blocks[-1] = memoryview(last.ljust(self.value_bytes(self.segments - 1) - HEAD, b"\0"))
        if not self.counted:
            return blocks, [], Base()
        words = np.frombuffer(payload[start:], np.uint64).tolist()
        keys, entries, spent, flags, spilled, *_ = words[-8:]
        listed = [0] * (flags & 1) + in_rebuilding_order(words[:-8])
        return blocks, listed, Base(keys - entries, spent - entries * self.plan.choices, spilled)

    def meta(self, server: int, *, ready: bool) -> bytes:
        """Write what lies under the meta key of a server."""
        plan = self.plan
        text = json.dumps(
            {
                "evenbins": FORMAT,
                "ready": ready,
                "epoch": self.epoch.hex(),
                "policy": plan.policy,
                "hashing": plan.hashing,
                "seed": plan.seed,
                "capacity": plan.keys,
                "core": list(plan.core),
                "segment_bytes": self.segment_bytes,
                "server": server,
                "servers": self.servers,
                "base": [self.base.keys, self.base.spent, self.base.spilled],
            }
        ).encode()
        return text + f"\n{checksum(text, 0):016x}\n".encode()

    @classmethod
    def from_meta(cls, name: str, data: bytes | None) -> tuple[Layout, int, bool]:
        """Read a meta key's value: the layout, the server's number, and whether creation was completed."""
        key = meta_key(check_name(name))
        if data is None:
            raise FilterMissingError(
                f"there is no filter {name!r} on the server ({key!r} does not exist): create it, or check "
                "the name and the database number; a server that lost its data has no filter either"
            )
        text, _, rest = data.partition(b"\n")
        if rest != f"{checksum(text, 0):016x}\n".encode():
            raise FilterDamagedError(
                f"{key!r} does not describe a filter, or was changed: its checksum is wrong"
            )
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError:
            raise FilterDamagedError(f"{key!r} does not describe a filter") from None
        if found.get("evenbins") != FORMAT:
            raise RedisFilterError(
                f"filter {name!r} has format {found.get('evenbins')!r}; this evenbins reads {FORMAT}: "
                "use a newer one"
            )
        plan = plan_of_core(
            found["policy"],
            tuple(found["core"]),
            capacity=found["capacity"],
            seed=found["seed"],
            **({} if found["hashing"] == "lanes" else {"hashing": found["hashing"]}),
        )
        epoch, base = bytes.fromhex(found["epoch"]), Base(*found["base"])
        layout = cls(name, plan, found["segment_bytes"], found["servers"], epoch, base)
        return layout, found["server"], found["ready"]


def meta_key(name: str) -> str:
    """Return the key under which the description of a filter lies."""
    return f"{{{name}}}:meta"


def missing_message(name: str, key: str) -> str:
    """Return the message for a key of a filter that is missing."""
    return (
        f"filter {name!r}: its key {key!r} is missing (deleted, evicted, or an empty server). "
        "Keys that were added are lost with it: delete the filter and build it again"
    )


def damaged_message(name: str, key: str) -> str:
    """Return the message for a key of a filter that holds something else."""
    return (
        f"filter {name!r}: its key {key!r} does not hold a part of this filter (another was made under the "
        "same name, or something else was written there). Open the filter again, or delete it and build it "
        "again"
    )


def check_name(name: object) -> str:
    """Check a filter's name."""
    rule = "1 to 200 characters without braces, spaces and control characters"
    way_out = "Braces would be hash tags: pass a name such as 'seen-urls'"
    if not isinstance(name, str):
        raise arguments.type_error("name", f"a str of {rule}", name, way_out)
    if not _NAME.fullmatch(name):
        raise arguments.error("name", rule, name, way_out)
    return name


def check_plan(plan: object) -> FilterPlan:
    """Check that a plan can live on servers."""
    if not isinstance(plan, FilterPlan):
        raise TypeError(f"plan must be a FilterPlan, as a filter's .plan, not {type(plan).__name__}")
    if plan.policy not in POLICIES:
        raise ValueError(
            f"plan must have one of the policies {', '.join(POLICIES)}; got {plan.policy!r}. "
            "Plan one of these: the others keep a state that all clients would have to share"
        )
    if plan.policy == "standard" and plan.hashing != "independent":
        raise ValueError(
            f'plan must have hashing "independent"; got {plan.hashing!r}. Leave hashing out when planning'
        )
    return plan


def list_slots(listed: list[int], limit: int, home_word: int) -> list[int]:
    """Put the list's digests into the local filter's slots: linear probing from each digest's home line."""
    slots = [0] * ((limit + limit // 3 + 15) // 8 * 8 if limit else 0)
    for digest in listed:
        if digest:
            slot = mulhi(splitmix(digest, home_word), len(slots) // 8) * 8
            while slots[slot]:
                slot = (slot + 1) % len(slots)
            slots[slot] = digest
    return slots


def in_rebuilding_order(slots: list[int]) -> list[int]:
    """Order a list's digests so that inserting them gives the same slots.

    From the slot after an empty one, once around: every slot between a digest's home and its own comes before
    it, and so is taken when it is inserted.
    """
    if not any(slots):
        return []
    empty = slots.index(0)  # there is one: a list is never full to the last slot
    return [digest for digest in slots[empty:] + slots[:empty] if digest]

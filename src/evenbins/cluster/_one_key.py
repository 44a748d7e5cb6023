"""One key: a block is one request, and the next is asked only if this one sends the key on.

Blocks that are known beforehand (two choices, the bits of a standard filter) are asked together, one
request for each segment. What a block does with a key, the core decides; words and positions are computed
with Python's integers, since NumPy takes longer for one key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

import numpy as np

from evenbins import _core
from evenbins.cluster import _scripts as scripts
from evenbins.cluster._leases import Lease
from evenbins.cluster._requests import Operation, Request, add_call, call_list, join_calls, read_call
from evenbins.cluster._segments import HEAD, LINE_BITS, Layout
from evenbins.cluster.redis_errors import FilterDamagedError
from evenbins.hashing import lane_positions, mulhi, splitmix

_OFFSET: Final = struct.Struct("<I")
_KEY: Final = struct.Struct("<IB")
_PAIRS: Final = [bytes((p >> 3, 1 << (p & 7))) for p in range(512)]

__all__ = ["Place", "add_one", "choose_block", "contains_one", "spill"]


class Place:
    """A key at one block of its path. Its positions are drawn when they are needed: a query may need few."""

    __slots__ = ("chance", "hashes", "offset", "segment", "table", "word")

    def __init__(self, layout: Layout, digest: int, level: int) -> None:
        self.table = table = layout.level(level)
        self.word = word = splitmix(digest, level) if level else digest
        self.segment, self.offset = table.find(mulhi(word, table.blocks))
        self.hashes, self.chance = layout.plan.hashes, layout.coin

    @property
    def positions(self) -> Iterator[int]:
        """The key's bits in the block."""
        return lane_positions(self.word, self.hashes, self.table.span)

    @property
    def coin(self) -> bool:
        """Whether the key is let in at the threshold."""
        return bool(self.chance) and splitmix(self.word, 0) >> 32 < self.chance

    def read(self, layout: Layout) -> Request:
        """Ask for the block."""
        return read_call(layout, self.segment, self.table.block_bytes, _OFFSET.pack(self.offset))

    def add(self, layout: Layout, *, forced: int = 0) -> Request:
        """Ask the block to take the key."""
        keys = _KEY.pack(self.offset, self.coin) + b"".join(_PAIRS[p] for p in self.positions)
        return add_call(layout, self.table, self.segment, keys, self.hashes, forced)

    def block(self, layout: Layout, reply: bytes) -> bytes:
        """Return a reply that is the block."""
        if len(reply) != self.table.block_bytes:
            raise FilterDamagedError(layout.damaged_message(layout.segment_key(self.segment)))
        return reply

    def outcome(self, block: bytes) -> int:
        """Return what the block does with the key: PASSED, PLACED or PRESENT."""
        table = self.table
        return _core.look_at_block(
            block, self.word, self.hashes, table.threshold, table.counter_bits, self.chance
        )

    def set_bits(self, block: bytes) -> int:
        """Count the bits that keys have set."""
        return (int.from_bytes(block, "little") & (1 << self.table.span) - 1).bit_count()


def choose_block(blocks: Sequence[bytes], digest: int, hashes: int) -> int:
    """Return which of a key's two blocks takes it; PRESENT if one of them has it."""
    rows = np.frombuffer(b"".join(blocks), np.uint8).reshape(2, -1).copy()
    first, second = np.zeros(1, np.int64), np.ones(1, np.int64)
    return int(_core.choose_blocks(rows, first, second, np.array([digest], np.uint64), hashes)[0])


def contains_one(layout: Layout, digest: int) -> Operation[bool]:
    """Look one key up."""
    if layout.plan.policy == "standard":
        found = yield from _read_standard(layout, digest)
        return found
    if layout.plan.policy == "two-choice":
        places = [Place(layout, digest, level) for level in range(2)]
        blocks = yield from _read_places(layout, places)
        return any(each.outcome(block) == scripts.PRESENT for each, block in zip(places, blocks, strict=True))
    if layout.traverse_on == "server" and layout.plan.choices > 1:
        places = [Place(layout, digest, level) for level in range(layout.plan.choices)]
        sizes = [each.table.block_bytes for each in places]
        replies = yield from _replies(layout, [each.read(layout) for each in places], sizes)
        for place, reply in zip(places, replies, strict=True):
            outcome = place.outcome(place.block(layout, reply))
            if outcome != scripts.PASSED:
                return outcome == scripts.PRESENT
    else:
        for level in range(layout.plan.choices):
            place = Place(layout, digest, level)
            (reply,) = yield [place.read(layout)]
            outcome = place.outcome(place.block(layout, reply))
            if outcome != scripts.PASSED:
                return outcome == scripts.PRESENT
    if not layout.limit:
        return False
    (reply,) = yield [call_list(layout, scripts.LISTED, digest.to_bytes(8, "little"))]
    if reply not in (b"0", b"1"):
        raise FilterDamagedError(layout.damaged_message(layout.list_key))
    return bool(reply == b"1")


def add_one(layout: Layout, digest: int, lease: Lease | None = None) -> Operation[bool]:
    """Add one key; return whether it was new: for certain, while others may add it too, with a lease."""
    if layout.plan.policy in ("standard", "two-choice"):
        add = _add_standard if layout.plan.policy == "standard" else _add_two_choice
        if lease is not None and layout.traverse_on == "client":
            return (yield from lease.around(np.array([digest], np.uint64), add(layout, digest, None)))
        return (yield from add(layout, digest, lease))
    path = (Place(layout, digest, level).add(layout) for level in range(layout.plan.choices))
    for request in (join_calls(list(path)),) if layout.traverse_on == "server" else path:
        (reply,) = yield [request]
        if reply != b"0":
            return bool(reply == b"1")
    if layout.limit:
        digests = digest.to_bytes(8, "little")
        (reply,) = yield [call_list(layout, scripts.LIST, digests, layout.limit)]
        if reply != b"0":
            return bool(reply == b"1")
    return (yield from spill(layout, digest, lease))


def _add_two_choice(layout: Layout, digest: int, lease: Lease | None) -> Operation[bool]:
    places = [Place(layout, digest, level) for level in range(2)]
    blocks = yield from _read_places(layout, places)
    chosen = choose_block(blocks, digest, layout.plan.hashes)
    if chosen == scripts.PRESENT:
        return False
    if lease is not None:
        requests = [places[each].add(layout) for each in (chosen, 1 - chosen)]
        return (yield from lease.test(digest, requests, either=True))
    (reply,) = yield [places[chosen].add(layout)]
    return bool(reply == b"1")


def spill(layout: Layout, digest: int, lease: Lease | None = None) -> Operation[bool]:
    """Put a key that all its blocks refuse into one of them all the same, unless another client just did."""
    if lease is not None and layout.spill != "random":
        return (yield from lease.around(np.array([digest], np.uint64), spill(layout, digest)))
    places = [Place(layout, digest, level) for level in range(layout.plan.choices)]
    if layout.spill == "random":
        chosen = places[mulhi(splitmix(digest, len(places) + 1), len(places))]
    else:
        blocks = yield from _read_places(layout, places)
        if any(each.outcome(block) == scripts.PRESENT for each, block in zip(places, blocks, strict=True)):
            return False
        fills = [each.set_bits(block) for each, block in zip(places, blocks, strict=True)]
        chosen = places[fills.index(min(fills))]
    (reply,) = yield [chosen.add(layout, forced=1)]
    return bool(reply == b"1")


def _read_places(layout: Layout, places: Sequence[Place]) -> Operation[list[bytes]]:
    """Read several blocks at once: one request for each segment."""
    by_segment: dict[int, list[Place]] = {}
    for each in places:
        by_segment.setdefault(each.segment, []).append(each)
    replies = yield from _replies(
        layout,
        [
            read_call(
                layout, segment, own[0].table.block_bytes,
                struct.pack(f"<{len(own)}I", *(each.offset for each in own)),
            )
            for segment, own in by_segment.items()
        ],
        [len(own) * own[0].table.block_bytes for own in by_segment.values()],
    )  # fmt: skip
    found = {}
    for own, reply in zip(by_segment.values(), replies, strict=True):
        size = own[0].table.block_bytes
        for i, each in enumerate(own):
            found[id(each)] = each.block(layout, reply[i * size : (i + 1) * size])
    return [found[id(each)] for each in places]


def _replies(layout: Layout, requests: list[Request], sizes: Sequence[int]) -> Operation[list[bytes]]:
    """Send reads of several segments, in one request if the server traverses; return the reply of each."""
    if layout.traverse_on == "client" or len(requests) == 1:
        return (yield requests)
    (whole,) = yield [join_calls(requests)]
    ends = list(accumulate(sizes))
    return [whole[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _standard_bits(layout: Layout, digest: int) -> dict[int, list[int]]:
    """Return the positions of a key of a standard filter, by segment, within its value."""
    bits, hashes = layout.plan.core
    per_segment = 8 * layout.segment_bytes
    found: dict[int, list[int]] = {}
    for position in {mulhi(splitmix(digest, i), bits) for i in range(hashes)}:
        segment, within = divmod(position, per_segment)
        found.setdefault(segment, []).append(8 * HEAD + within)
    return found


def _read_standard(layout: Layout, digest: int) -> Operation[bool]:
    by_segment = _standard_bits(layout, digest)
    replies = yield from _replies(
        layout,
        [
            read_call(layout, segment, 1, struct.pack(f"<{len(own)}I", *(p >> 3 for p in own)))
            for segment, own in by_segment.items()
        ],
        [len(own) for own in by_segment.values()],
    )
    found = True
    for (segment, own), reply in zip(by_segment.items(), replies, strict=True):
        if len(reply) != len(own):
            raise FilterDamagedError(layout.damaged_message(layout.segment_key(segment)))
        found &= all(octet >> (p & 7) & 1 for p, octet in zip(own, reply, strict=True))
    return found


def _add_standard(layout: Layout, digest: int, lease: Lease | None) -> Operation[bool]:
    table, requests = layout.tables[0], []
    for segment, own in _standard_bits(layout, digest).items():
        keys = b"".join(
            struct.pack("<IBBB", HEAD + (p - 8 * HEAD) // LINE_BITS * 64, 0, p % LINE_BITS >> 3, 1 << (p & 7))
            for p in own
        )
        requests.append(add_call(layout, table, segment, keys, 1))
    if lease is not None:
        return (yield from lease.test(digest, requests, either=False))
    replies = yield requests
    return any(b"1" in reply for reply in replies)

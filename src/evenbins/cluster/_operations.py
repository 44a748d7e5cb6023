"""What a filter on servers does, without a connection: generators that ask for requests and are sent replies.

    requests = next(operation)  ──▶  a client sends them, in one pipeline for each server
    operation.send(replies)     ──▶  the next requests, until it returns

So the blocking and the asyncio client are two short loops around the same operations.

    one key     a block is one request; the next block is asked only if this one sends the key on
    many keys   level by level, one request for each segment: either the blocks that are needed, one after
                the other in one reply, or the whole segment where many are
    adding      few keys of a segment: the script `add` decides, key by key; many: the segment is fetched, the keys
                are placed here, and it is swapped if nobody came between; if somebody did, `add` after all

Standard, blocked and two-choice filters only ever OR bits; many keys of a segment are one mask.

Invariants. What a script acknowledged is in. A walk ends only at a block that holds or accepts the key, decided by
the server in one step with the insertion; a key that passed all its blocks is on the list, or spilled into one
of them, before its `add` returns. So a client that dies leaves bits and list entries, and nothing half done.
One client's keys in their order leave the local filter's bytes; in bulk as long as the list has room.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from evenbins import filters
from evenbins.cluster import _scripts as scripts
from evenbins.cluster._blocks import PASSED, inspect, place_keys, records
from evenbins.cluster._positions import coins, lane_positions_many, mulhi_many, splitmix_many, words_many
from evenbins.cluster._segments import HEAD, LINE_BITS, Layout, Table, meta_key
from evenbins.cluster.redis_errors import FilterDamaged, FilterMissing, PlanMismatch, RedisFilterError
from evenbins.reference.balanced import phi
from evenbins.reference.blocked import lane_positions
from evenbins.reference.keys import mulhi, splitmix

__all__ = ["Operation", "Request", "add_many", "add_one", "contains_many", "contains_one", "create", "delete",
           "export", "open_", "verify"]  # fmt: skip

SWAP_FROM: Final = 96
"""Keys of one segment from which on fetching and swapping it beats the script `add`; see docs/redis.md."""
WHOLE_FROM: Final = 256
"""A segment is read whole if that is at most so many bytes for each block wanted."""
ROUND: Final = 32
"""Segments that one step of a bulk call holds in memory."""
SCRIPT_KEYS: Final = 256
"""Keys of one `add`: a script keeps all other clients waiting."""
LIST_KEYS: Final = 4096
BATCH: Final = 1 << 17
"""Keys that a bulk call takes at a time."""

T = TypeVar("T")
Words = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]


@dataclass(slots=True)
class Request:
    """One command for the server that has a key."""

    server: int
    key: str
    command: tuple[Any, ...]
    script: scripts.Script | None = None


Operation = Generator[list[Request], list[Any], T]


def _call(layout: Layout, segment: int, script: scripts.Script, *arguments: Any) -> Request:
    key = layout.segment_key(segment)
    keys = (key,) if script.keys == 1 else (key, layout.mask_key(segment))
    command = ("EVALSHA", script.sha, script.keys, *keys, layout.mark(segment), *arguments)
    return Request(layout.server_of(segment), key, command, script)


def _call_list(layout: Layout, script: scripts.Script, *arguments: Any) -> Request:
    key = layout.list_key
    command = ("EVALSHA", script.sha, 1, key, layout.epoch, *arguments)
    return Request(layout.list_server, key, command, script)


def _get(layout: Layout, segment: int) -> Request:
    key = layout.segment_key(segment)
    return Request(layout.server_of(segment), key, ("GET", key))


def _add_call(layout: Layout, table: Table, segment: int, keys: bytes, hashes: int, forced: int = 0) -> Request:
    return _call(
        layout, segment, scripts.ADD,
        keys, hashes, table.block_bytes, table.threshold, table.counter_bits, forced, os.urandom(16),
    )  # fmt: skip


# --- one key ---------------------------------------------------------------------------------------------


class Place:
    """A key at one block of its path."""

    __slots__ = ("block", "coin", "mask", "offset", "positions", "segment", "table")

    def __init__(self, layout: Layout, digest: int, level: int) -> None:
        table = layout.level(level)
        word = splitmix(digest, level) if level else digest
        self.table = table
        self.segment, self.offset = table.find(mulhi(word, table.blocks))
        self.positions = list(lane_positions(word, layout.plan.hashes, table.span))
        self.coin = bool(layout.coin) and splitmix(word, 0) >> 32 < layout.coin

    def read(self, layout: Layout) -> Request:
        """Ask for the block."""
        offset = struct.pack("<I", self.offset)
        return _call(layout, self.segment, scripts.READ, offset, self.table.block_bytes)

    def add(self, layout: Layout, *, forced: int = 0) -> Request:
        """Ask the block to take the key."""
        pairs = bytes(octet for p in self.positions for octet in (p >> 3, 1 << (p & 7)))
        keys = struct.pack("<IB", self.offset, self.coin) + pairs
        return _add_call(layout, self.table, self.segment, keys, len(self.positions), forced)

    def bits(self, layout: Layout, reply: bytes) -> int:
        """Read the block from a reply."""
        if len(reply) != self.table.block_bytes:
            raise FilterDamaged(layout.strange(layout.segment_key(self.segment)))
        return int.from_bytes(reply, "little")

    def present(self, bits: int) -> bool:
        """Say whether all bits of the key are there."""
        return all(bits >> p & 1 for p in self.positions)

    def accepts(self, bits: int) -> bool:
        """Say whether the block would take the key."""
        table = self.table
        if not table.counter_bits:
            return bits.bit_count() < table.threshold
        load = bits >> table.span
        return load < table.threshold or (load == table.threshold and self.coin)

    def fill(self, bits: int) -> int:
        """Count the bits that keys have set."""
        return (bits & (1 << self.table.span) - 1).bit_count()


def contains_one(layout: Layout, digest: int) -> Operation[bool]:
    """Ask for one key."""
    if layout.policy == "standard":
        found = yield from _read_standard(layout, digest)
        return found
    if not layout.walks:
        places = [Place(layout, digest, level) for level in range(layout.choices)]
        blocks = yield from _read_places(layout, places)
        return any(each.present(bits) for each, bits in zip(places, blocks, strict=True))
    for level in range(layout.choices):
        place = Place(layout, digest, level)
        (reply,) = yield [place.read(layout)]
        bits = place.bits(layout, reply)
        if place.present(bits):
            return True
        if place.accepts(bits):
            return False
    if not layout.limit:
        return False
    (reply,) = yield [_call_list(layout, scripts.LISTED, digest.to_bytes(8, "little"))]
    return bool(reply == b"1")


def add_one(layout: Layout, digest: int) -> Operation[None]:
    """Add one key."""
    if layout.policy == "standard":
        yield _add_standard(layout, digest)
    elif layout.policy == "two-choice":
        places = [Place(layout, digest, level) for level in range(2)]
        blocks = yield from _read_places(layout, places)
        if not any(each.present(bits) for each, bits in zip(places, blocks, strict=True)):
            yield [least_harm(layout, places, blocks).add(layout)]
    elif layout.policy == "blocked":
        yield [Place(layout, digest, 0).add(layout)]
    else:
        for level in range(layout.choices):
            (reply,) = yield [Place(layout, digest, level).add(layout)]
            if reply != b"0":
                return
        if layout.limit:
            digests = digest.to_bytes(8, "little")
            (reply,) = yield [_call_list(layout, scripts.LIST, digests, layout.limit)]
            if reply != b"0":
                return
        yield from _spill(layout, digest)


def _spill(layout: Layout, digest: int) -> Operation[None]:
    """Put a key that all its blocks refuse into one of them all the same."""
    places = [Place(layout, digest, level) for level in range(layout.choices)]
    if layout.spill == "random":
        chosen = places[mulhi(splitmix(digest, len(places) + 1), len(places))]
    else:
        blocks = yield from _read_places(layout, places)
        fills = [each.fill(bits) for each, bits in zip(places, blocks, strict=True)]
        chosen = places[fills.index(min(fills))]
    yield [chosen.add(layout, forced=1)]


def _read_places(layout: Layout, places: Sequence[Place]) -> Operation[list[int]]:
    """Read several blocks at once: one request for each segment."""
    by_segment: dict[int, list[Place]] = {}
    for each in places:
        by_segment.setdefault(each.segment, []).append(each)
    replies = yield [
        _call(
            layout, segment, scripts.READ,
            struct.pack(f"<{len(own)}I", *(each.offset for each in own)), own[0].table.block_bytes,
        )
        for segment, own in by_segment.items()
    ]  # fmt: skip
    found = {}
    for own, reply in zip(by_segment.values(), replies, strict=True):
        size = own[0].table.block_bytes
        for i, each in enumerate(own):
            found[id(each)] = each.bits(layout, reply[i * size : (i + 1) * size])
    return [found[id(each)] for each in places]


def least_harm(layout: Layout, places: Sequence[Place], blocks: Sequence[int]) -> Place:
    """Choose the block whose false-positive rate the key raises least; the earlier if equal."""
    table = _harm_table(layout)

    def harm(place: Place, bits: int) -> int:
        after = bits
        for p in place.positions:
            after |= 1 << p
        return table[after.bit_count()] - table[bits.bit_count()]

    harms = [harm(*each) for each in zip(places, blocks, strict=True)]
    return places[harms.index(min(harms))]


_harms: dict[tuple[int, int], list[int]] = {}


def _harm_table(layout: Layout) -> list[int]:
    block_bits, hashes = 8 * layout.tables[0].block_bytes, layout.plan.hashes
    if (block_bits, hashes) not in _harms:
        _harms[block_bits, hashes] = [phi(x, block_bits, hashes) for x in range(block_bits + 1)]
    return _harms[block_bits, hashes]


def _standard_bits(layout: Layout, digest: int) -> dict[int, list[int]]:
    """Give the positions of a key of a standard filter, by segment, within its value."""
    bits, hashes = layout.plan.core
    per_segment = 8 * layout.segment_bytes
    found: dict[int, list[int]] = {}
    for position in {mulhi(splitmix(digest, i), bits) for i in range(hashes)}:
        segment, within = divmod(position, per_segment)
        found.setdefault(segment, []).append(8 * HEAD + within)
    return found


def _read_standard(layout: Layout, digest: int) -> Operation[bool]:
    by_segment = _standard_bits(layout, digest)
    replies = yield [
        _call(layout, segment, scripts.READ, struct.pack(f"<{len(own)}I", *(p >> 3 for p in own)), 1)
        for segment, own in by_segment.items()
    ]
    found = True
    for (segment, own), reply in zip(by_segment.items(), replies, strict=True):
        if len(reply) != len(own):
            raise FilterDamaged(layout.strange(layout.segment_key(segment)))
        found &= all(octet >> (p & 7) & 1 for p, octet in zip(own, reply, strict=True))
    return found


def _add_standard(layout: Layout, digest: int) -> list[Request]:
    table, requests = layout.tables[0], []
    for segment, own in _standard_bits(layout, digest).items():
        keys = b"".join(
            struct.pack("<IBBB", HEAD + (p - 8 * HEAD) // LINE_BITS * 64, 0, p % LINE_BITS >> 3, 1 << (p & 7))
            for p in own
        )
        requests.append(_add_call(layout, table, segment, keys, 1))
    return requests


# --- many keys: reading ------------------------------------------------------------------------------------


def _by_segment(table: Table, blocks: Indices) -> list[tuple[int, Indices]]:
    """Group the indices of `blocks` by segment, each group in its order."""
    segments = blocks // table.blocks_per_segment
    order = np.argsort(segments, kind="stable")
    numbers, starts = np.unique(segments[order], return_index=True)
    groups = np.split(order, starts[1:])
    return [(table.first_segment + int(number), own) for number, own in zip(numbers, groups, strict=True)]


def _read_rows(layout: Layout, table: Table, places: Indices, unit: int) -> Operation[npt.NDArray[np.uint8]]:
    """Read the units (blocks, or bytes of a standard filter) of these numbers within the table: one a row."""
    per_segment = table.blocks_per_segment * table.block_bytes // unit
    rows = np.empty((len(places), unit), np.uint8)
    groups = _by_segment(table, places * unit // table.block_bytes)
    for start in range(0, len(groups), ROUND):
        requests = []
        for segment, own in groups[start : start + ROUND]:
            if len(own) * WHOLE_FROM >= layout.value_bytes(segment):
                requests.append(_get(layout, segment))
            else:
                offsets = (HEAD + places[own] % per_segment * unit).astype("<u4").tobytes()
                requests.append(_call(layout, segment, scripts.READ, offsets, unit))
        replies = yield requests
        for (segment, own), request, reply in zip(
            groups[start : start + ROUND], requests, replies, strict=True
        ):
            if request.script is None:
                blocks = np.frombuffer(layout.read_segment(segment, reply)[2], np.uint8)
                rows[own] = blocks.reshape(-1, unit)[places[own] % per_segment]
            elif len(reply) != len(own) * unit:
                raise FilterDamaged(layout.strange(layout.segment_key(segment)))
            else:
                rows[own] = np.frombuffer(reply, np.uint8).reshape(-1, unit)
    return rows


def contains_many(layout: Layout, digests: Words) -> Operation[npt.NDArray[np.bool_]]:
    """Ask for many keys."""
    answers = np.empty(len(digests), np.bool_)
    for start in range(0, len(digests), BATCH):
        batch = digests[start : start + BATCH]
        if layout.policy == "standard":
            answers[start : start + BATCH] = yield from _contains_standard(layout, batch)
        else:
            answers[start : start + BATCH] = yield from _contains_blocks(layout, batch)
    return answers


def _contains_blocks(layout: Layout, digests: Words) -> Operation[npt.NDArray[np.bool_]]:
    answers = np.zeros(len(digests), np.bool_)
    left = np.arange(len(digests))
    for level in range(layout.choices):
        table = layout.level(level)
        words = words_many(digests[left], level)
        blocks = yield from _read_rows(layout, table, mulhi_many(words, table.blocks), table.block_bytes)
        positions = lane_positions_many(words, layout.plan.hashes, table.span)
        coin = coins(words, layout.coin) if layout.coin else None
        present, accepts = inspect(table, blocks, positions, coin)
        answers[left[present]] = True
        left = left[~present & ~accepts] if layout.walks else left[~present]
        if not left.size:
            return answers
    if layout.limit:
        for start in range(0, len(left), LIST_KEYS):
            own = left[start : start + LIST_KEYS]
            asked = digests[own].astype("<u8").tobytes()
            (reply,) = yield [_call_list(layout, scripts.LISTED, asked)]
            answers[own] = np.frombuffer(reply, np.uint8) == ord("1")
    return answers


def _standard_positions(layout: Layout, digests: Words) -> Indices:
    bits, hashes = layout.plan.core
    return np.stack([mulhi_many(splitmix_many(digests, i), bits) for i in range(hashes)], axis=1)


def _contains_standard(layout: Layout, digests: Words) -> Operation[npt.NDArray[np.bool_]]:
    positions = _standard_positions(layout, digests)
    octets = yield from _read_rows(layout, layout.tables[0], positions.ravel() >> 3, 1)
    bits = octets.reshape(positions.shape) >> (positions & 7).astype(np.uint8) & 1
    return bits.all(axis=1)


# --- many keys: adding -------------------------------------------------------------------------------------


def add_many(layout: Layout, digests: Words) -> Operation[None]:
    """Add many keys."""
    for start in range(0, len(digests), BATCH):
        batch = digests[start : start + BATCH]
        if layout.policy != "standard":  # a repeated key changes nothing
            batch = batch[np.sort(np.unique(batch, return_index=True)[1])]
        if layout.policy == "standard":
            positions = _standard_positions(layout, batch).reshape(-1, 1)
            lines, within = positions[:, 0] // LINE_BITS, (positions % LINE_BITS).astype(np.uint16)
            yield from _or_keys(layout, layout.tables[0], lines, within)
        elif layout.policy == "blocked":
            table = layout.tables[0]
            within = lane_positions_many(batch, layout.plan.hashes, table.span)
            yield from _or_keys(layout, table, mulhi_many(batch, table.blocks), within)
        elif layout.policy == "two-choice":
            yield from _add_two_choice(layout, batch)
        else:
            yield from _add_by_level(layout, batch)


def _or_keys(layout: Layout, table: Table, blocks: Indices, positions: npt.NDArray[np.uint16]) -> Operation[None]:
    """Set bits, in any order: a mask for a segment that gets many, records for one that gets few."""
    groups = _by_segment(table, blocks)
    within = blocks % table.blocks_per_segment
    for start in range(0, len(groups), ROUND):
        requests = []
        for segment, own in groups[start : start + ROUND]:
            if len(own) >= SWAP_FROM:
                flags = np.zeros(8 * layout.value_bytes(segment), np.bool_)
                first = 8 * (HEAD + within[own] * table.block_bytes)
                flags[first[:, None] + positions[own]] = True
                mask = np.packbits(flags, bitorder="little").tobytes()
                requests.append(_call(layout, segment, scripts.MERGE, mask))
            else:
                keys = records(HEAD + within[own] * table.block_bytes, positions[own], None)
                requests.append(_add_call(layout, table, segment, keys, positions.shape[1]))
        yield requests


def _add_two_choice(layout: Layout, digests: Words) -> Operation[None]:
    """Choose blocks here, key by key, and set the bits: of a filter that is small beside the batch, all of it."""
    if len(digests) >= 32 * layout.segments and layout.plan.nbytes <= 1 << 28:
        local = yield from export(layout)
        local.add_many(digests, digests=True)
        blocks, _, _ = layout.take_apart(memoryview(local))
        for start in range(0, layout.segments, ROUND):
            yield [
                _call(layout, segment, scripts.MERGE, bytes(HEAD) + bytes(blocks[segment]))
                for segment in range(start, min(start + ROUND, layout.segments))
            ]
        return
    table, hashes = layout.tables[0], layout.plan.hashes
    words = [words_many(digests, level) for level in range(2)]
    blocks_of = np.stack([mulhi_many(each, table.blocks) for each in words], axis=1)
    positions = np.stack([lane_positions_many(each, hashes, table.span) for each in words], axis=1)
    wanted = np.unique(blocks_of)
    rows = yield from _read_rows(layout, table, wanted, table.block_bytes)
    now = {int(n): int.from_bytes(row.tobytes(), "little") for n, row in zip(wanted, rows, strict=True)}
    harms = _harm_table(layout)
    chosen = np.full(len(digests), -1)
    for i, (own, masks) in enumerate(zip(blocks_of.tolist(), _masks(positions), strict=True)):
        old = [now[block] for block in own]
        new = [bits | mask for bits, mask in zip(old, masks, strict=True)]
        if old[0] == new[0] or old[1] == new[1]:
            continue  # present
        harm = [harms[b.bit_count()] - harms[a.bit_count()] for a, b in zip(old, new, strict=True)]
        choice = int(harm[1] < harm[0])
        now[own[choice]] = new[choice]
        chosen[i] = choice
    placed = np.flatnonzero(chosen >= 0)
    if placed.size:
        at = blocks_of[placed, chosen[placed]]
        yield from _or_keys(layout, table, at, positions[placed, chosen[placed]])


def _masks(positions: npt.NDArray[np.uint16]) -> Iterable[list[int]]:
    for key in positions.tolist():
        masks = []
        for own in key:
            mask = 0
            for p in own:
                mask |= 1 << p
            masks.append(mask)
        yield masks


def _add_by_level(layout: Layout, digests: Words) -> Operation[None]:
    """Take the levels one after the other: what one does depends on it alone."""
    left = digests
    for level in range(layout.choices):
        passed = yield from _add_level(layout, layout.level(level), words_many(left, level))
        left = left[passed]
        if not left.size:
            return
    full = left
    if layout.limit:
        rest = []
        for start in range(0, len(left), LIST_KEYS):
            own = left[start : start + LIST_KEYS]
            listed = own.astype("<u8").tobytes()
            (reply,) = yield [_call_list(layout, scripts.LIST, listed, layout.limit)]
            rest.append(own[np.frombuffer(reply, np.uint8) == ord("0")])
        full = np.concatenate(rest)
    for digest in full.tolist():
        yield from _spill_late(layout, digest)


def _spill_late(layout: Layout, digest: int) -> Operation[None]:
    """Spill a key of a batch, unless keys spilled before it made it present."""
    present = yield from contains_one(layout, digest)
    if not present:
        yield from _spill(layout, digest)


def _add_level(layout: Layout, table: Table, words: Words) -> Operation[npt.NDArray[np.bool_]]:
    """Add keys to one table, in their order: which of them passed."""
    blocks = mulhi_many(words, table.blocks)
    within = blocks % table.blocks_per_segment
    positions = lane_positions_many(words, layout.plan.hashes, table.span)
    coin = coins(words, layout.coin)
    outcomes = np.empty(len(words), np.uint8)

    def few(segment: int, own: Indices) -> Request:
        keys = records(HEAD + within[own] * table.block_bytes, positions[own], coin[own])
        return _add_call(layout, table, segment, keys, positions.shape[1])

    groups = _by_segment(table, blocks)
    for start in range(0, len(groups), ROUND):
        group = groups[start : start + ROUND]
        replies = yield [
            few(segment, own) if len(own) < SWAP_FROM else _get(layout, segment) for segment, own in group
        ]
        swapped, requests = [], []
        for (segment, own), reply in zip(group, replies, strict=True):
            if len(own) < SWAP_FROM:
                outcomes[own] = np.frombuffer(reply, np.uint8) - ord("0")
                continue
            placed, spilled, data = layout.read_segment(segment, reply)
            before = np.frombuffer(data, np.uint8).reshape(-1, table.block_bytes)
            after, found = place_keys(table, before, within[own], positions[own], coin[own])
            outcomes[own] = found
            news = int(np.count_nonzero(found == 1))
            if news:
                head = layout.head(segment, placed + news, spilled, os.urandom(16))
                value = head + after.tobytes()
                requests.append(_call(layout, segment, scripts.SWAP, reply[HEAD - 16 : HEAD], value))
                swapped.append((segment, own))
        if not requests:
            continue
        replies = yield requests
        late = [each for each, reply in zip(swapped, replies, strict=True) if reply != 1]
        for segment, own in late:  # somebody came between
            for first in range(0, len(own), SCRIPT_KEYS):
                part = own[first : first + SCRIPT_KEYS]
                (reply,) = yield [few(segment, part)]
                outcomes[part] = np.frombuffer(reply, np.uint8) - ord("0")
    return outcomes == PASSED


# --- the filter as a whole -----------------------------------------------------------------------------------


def create(
    layout: Layout, blocks: Sequence[memoryview] | None = None, listed: Sequence[int] = ()
) -> Operation[None]:
    """Make a filter: say that it is being made, write its segments and its list, say that it is there."""
    servers, key = range(layout.servers), layout.meta_key
    claims = [("SET", key, layout.meta(server, ready=False), "NX") for server in servers]
    replies = yield [Request(server, key, claim) for server, claim in zip(servers, claims, strict=True)]
    if not all(replies):
        ours = [server for server, reply in zip(servers, replies, strict=True) if reply]
        if ours:
            yield [Request(server, key, ("DEL", key)) for server in ours]
        raise RedisFilterError(
            f"there is a filter {layout.name!r} already: open it, choose another name, or delete it first "
            "(RedisFilter.delete; one whose creation was cut short too)"
        )
    for start in range(0, layout.segments, ROUND):
        requests = []
        for segment in range(start, min(start + ROUND, layout.segments)):
            key, server, head = layout.segment_key(segment), layout.server_of(segment), layout.head(segment)
            if blocks is not None:
                requests.append(Request(server, key, ("SET", key, head + bytes(blocks[segment]))))
                continue
            size = layout.value_bytes(segment) - HEAD
            command = ("EVALSHA", scripts.MAKE.sha, 1, key, head, size)
            requests.append(Request(server, key, command, scripts.MAKE))
        yield requests
    if layout.limit:
        key, server = layout.list_key, layout.list_server
        yield [Request(server, key, ("DEL", key))]
        yield [Request(server, key, ("HSET", key, "epoch", layout.epoch))]
        for start in range(0, len(listed), LIST_KEYS):
            own = b"".join(digest.to_bytes(8, "little") for digest in listed[start : start + LIST_KEYS])
            yield [_call_list(layout, scripts.LIST, own, layout.limit)]
    key = layout.meta_key
    yield [Request(server, key, ("SET", key, layout.meta(server, ready=True))) for server in servers]


def open_(name: str, servers: int) -> Operation[Layout]:
    """Find a filter by its name, and look at all its parts."""
    key = meta_key(name)
    replies = yield [Request(server, key, ("GET", key)) for server in range(servers)]
    if len(set(map(type, replies))) > 1:
        gone = [server for server, reply in enumerate(replies) if reply is None]
        raise FilterMissing(f"filter {name!r} is not on servers number {gone}: they lost it, or are others")
    found = [Layout.from_meta(name, reply) for reply in replies]
    layout = found[0][0]
    if layout.servers != servers:
        raise PlanMismatch(
            f"filter {name!r} lies on {layout.servers} servers; got {servers}. Pass the clients of all, in the "
            "order of its creation"
        )
    for number, (other, server, ready) in enumerate(found):
        if not ready:
            raise FilterMissing(
                f"filter {name!r} is being created, or its creation was cut short: wait, or delete and create it"
            )
        if (other.plan, other.epoch) != (layout.plan, layout.epoch):
            raise PlanMismatch(f"servers 0 and {number} have different filters under the name {name!r}")
        if server != number:
            raise PlanMismatch(
                f"server {number} is the number {server} of filter {name!r}: pass the clients in the order "
                "of its creation"
            )
    yield from verify(layout)
    return layout


def verify(layout: Layout) -> Operation[None]:
    """Look at every part: its mark and its size."""
    for start in range(0, layout.segments, 16 * ROUND):
        segments = range(start, min(start + 16 * ROUND, layout.segments))
        requests = []
        for segment in segments:
            key, server = layout.segment_key(segment), layout.server_of(segment)
            requests.append(Request(server, key, ("GETRANGE", key, 0, 31)))
            requests.append(Request(server, key, ("STRLEN", key)))
        replies = yield requests
        for segment, mark, size in zip(segments, replies[::2], replies[1::2], strict=True):
            if not size:
                raise FilterMissing(layout.lost(layout.segment_key(segment)))
            if mark != layout.mark(segment) or size != layout.value_bytes(segment):
                raise FilterDamaged(layout.strange(layout.segment_key(segment)))
    if layout.limit:
        yield [_call_list(layout, scripts.LISTED, b"")]


def export(layout: Layout) -> Operation[filters._BaseFilter]:
    """Fetch all of a filter as a local one."""
    blocks, counts, listed = [], [], []
    for start in range(0, layout.segments, ROUND):
        segments = range(start, min(start + ROUND, layout.segments))
        replies = yield [_get(layout, segment) for segment in segments]
        for segment, reply in zip(segments, replies, strict=True):
            placed, spilled, data = layout.read_segment(segment, reply)
            counts.append((placed, spilled))
            blocks.append(data)
    if layout.limit:
        key = layout.list_key
        (reply,) = yield [Request(layout.list_server, key, ("HGETALL", key))]
        pairs = dict(reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True))
        epoch = pairs.pop(b"epoch", None)
        if epoch is None:
            raise FilterMissing(layout.lost(key))
        if epoch != layout.epoch:
            raise FilterDamaged(layout.strange(key))
        turns = sorted((int(turn), int.from_bytes(digest, "little")) for digest, turn in pairs.items())
        listed = [digest for _, digest in turns]
    return layout.local_filter(layout.payload(blocks, counts, listed))


def delete(name: str, servers: int) -> Operation[bool]:
    """Remove a filter, whatever is left of it: its description last. False if there is none."""
    key = meta_key(name)
    replies = yield [Request(server, key, ("GET", key)) for server in range(servers)]
    known = [each for each in replies if each is not None]
    if not known:
        return False
    layout, _, _ = Layout.from_meta(name, known[0])
    if layout.servers != servers:
        raise PlanMismatch(
            f"filter {name!r} lies on {layout.servers} servers; got {servers}. Pass the clients of all"
        )
    for start in range(0, layout.segments, 16 * ROUND):
        yield [
            Request(layout.server_of(each), layout.segment_key(each), ("UNLINK", layout.segment_key(each)))
            for each in range(start, min(start + 16 * ROUND, layout.segments))
        ]
    yield [Request(layout.list_server, layout.list_key, ("UNLINK", layout.list_key))]
    yield [Request(server, key, ("DEL", key)) for server in range(servers)]
    return True

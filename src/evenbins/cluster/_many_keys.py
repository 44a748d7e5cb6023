"""Many keys: level by level, one request for each segment.

    asking   the blocks that are needed, one after the other in one reply; or the whole segment where many are
    adding   few keys of a segment: the script `add` decides, key by key
             many: the segment is fetched, the keys are placed here, and it is swapped unless another client
             changed it meanwhile; then `add` after all

Standard, blocked and two-choice filters only ever OR bits: many keys of a segment are one mask, and nobody
can come between. For two choices the blocks are chosen here, in the order of the keys; another client's
keys may make a choice stale, which costs a little balance and loses nothing, since a query reads both.

Which keys were new: what `add` and the placing here answer; of a mask, what the segment held before.
"""

from __future__ import annotations

import os
from typing import Final

import numpy as np
import numpy.typing as npt

from evenbins import _core
from evenbins.cluster import _scripts as scripts
from evenbins.cluster._leases import Lease
from evenbins.cluster._one_key import contains_one, spill
from evenbins.cluster._requests import Operation, Request, add_call, call, call_list, get_segment, read_call
from evenbins.cluster._segments import HEAD, LINE_BITS, Layout, Table, in_rounds
from evenbins.cluster._whole_filter import export
from evenbins.cluster.redis_errors import FilterDamagedError
from evenbins.hashing import coins, lane_positions_many, mulhi_many, splitmix_many, words_many

__all__ = ["BATCH", "add_many", "contains_many", "place_keys"]

SWAP_FROM: Final = 96
"""Keys of one segment from which on it is fetched and swapped: the script takes about 10 µs a key of the
server's time, fetching and swapping 64 KiB less than 1 ms of everybody's (measured on loopback)."""
WHOLE_FROM: Final = 256
"""A segment is read whole if that is at most this number of bytes for each block wanted."""
SCRIPT_KEYS: Final = 256
"""Keys of one `add`: a script keeps all other clients waiting."""
LIST_KEYS: Final = 4096
"""Digests of one look at the list."""
BATCH: Final = 1 << 17
"""Keys that a bulk call adds or asks for at a time."""

Words = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.uint16]
Flags = npt.NDArray[np.bool_]


def _by_segment(table: Table, blocks: Indices) -> list[tuple[int, Indices]]:
    """Group the indices of `blocks` by segment, each group in its order."""
    segments = blocks // table.blocks_per_segment
    order = np.argsort(segments, kind="stable")
    numbers, starts = np.unique(segments[order], return_index=True)
    groups = np.split(order, starts[1:])
    return [(table.first_segment + int(number), own) for number, own in zip(numbers, groups, strict=True)]


def _read_rows(layout: Layout, table: Table, places: Indices, unit: int) -> Operation[Octets]:
    """Read the units (blocks, or bytes of a standard filter) of these numbers within the table: one a row."""
    per_segment = table.blocks_per_segment * table.block_bytes // unit
    rows = np.empty((len(places), unit), np.uint8)
    groups = _by_segment(table, places * unit // table.block_bytes)
    for part in in_rounds(groups):
        requests = []
        for segment, own in part:
            if len(own) * WHOLE_FROM >= layout.value_bytes(segment):
                requests.append(get_segment(layout, segment))
            else:
                offsets = (HEAD + places[own] % per_segment * unit).astype("<u4").tobytes()
                requests.append(read_call(layout, segment, unit, offsets))
        replies = yield requests
        for (segment, own), request, reply in zip(part, requests, replies, strict=True):
            if request.script is None:
                blocks = np.frombuffer(layout.read_segment(segment, reply)[2], np.uint8)
                rows[own] = blocks.reshape(-1, unit)[places[own] % per_segment]
            elif len(reply) != len(own) * unit:
                raise FilterDamagedError(layout.damaged_message(layout.segment_key(segment)))
            else:
                rows[own] = np.frombuffer(reply, np.uint8).reshape(-1, unit)
    return rows


def place_keys(layout: Layout, table: Table, blocks: Octets, rows: Indices, words: Words) -> Octets:
    """Add keys to blocks, one a row; return for each key whether it passed, was placed or was present.

    `rows` and `words` have for each key its row of `blocks` and its word at this level.
    """
    return _core.place_in_blocks(
        blocks, rows, words, layout.plan.hashes, table.threshold, table.counter_bits, layout.coin
    )


def contains_many(layout: Layout, digests: Words) -> Operation[npt.NDArray[np.bool_]]:
    """Ask for up to BATCH keys."""
    operation = _contains_standard if layout.plan.policy == "standard" else _contains_blocks
    return (yield from operation(layout, digests))


def _contains_blocks(layout: Layout, digests: Words) -> Operation[npt.NDArray[np.bool_]]:
    answers = np.zeros(len(digests), np.bool_)
    left = np.arange(len(digests))
    for level in range(layout.plan.choices):
        table = layout.level(level)
        words = words_many(digests[left], level)
        blocks = yield from _read_rows(layout, table, mulhi_many(words, table.blocks), table.block_bytes)
        outcomes = place_keys(layout, table, blocks, np.arange(len(words)), words)
        answers[left[outcomes == scripts.PRESENT]] = True
        left = left[outcomes == scripts.PASSED] if layout.traverses else left[outcomes != scripts.PRESENT]
        if not left.size:
            return answers
    if layout.limit:
        for own in in_rounds(left, LIST_KEYS):
            asked = digests[own].astype("<u8").tobytes()
            (reply,) = yield [call_list(layout, scripts.LISTED, asked)]
            answers[own] = np.frombuffer(reply, np.uint8) == ord("1")
    return answers


def _standard_positions(layout: Layout, digests: Words) -> Indices:
    bits, hashes = layout.plan.core
    return np.stack([mulhi_many(splitmix_many(digests, i), bits) for i in range(hashes)], axis=1)


def _contains_standard(layout: Layout, digests: Words) -> Operation[npt.NDArray[np.bool_]]:
    positions = _standard_positions(layout, digests)
    octets = yield from _read_rows(layout, layout.tables[0], positions.ravel() >> 3, 1)
    bits = octets.reshape(positions.shape) >> (positions & 7).astype(np.uint8) & 1
    found: npt.NDArray[np.bool_] = np.all(bits, axis=1)
    return found


def records(offsets: Indices, positions: Positions, coins: npt.NDArray[np.bool_] | None) -> bytes:
    """Write keys as the script `add` reads them: u32 offset of the block, u8 coin, pairs of byte and mask."""
    count, hashes = positions.shape
    written = np.zeros((count, 5 + 2 * hashes), np.uint8)
    written[:, :4] = offsets.astype("<u4").view(np.uint8).reshape(count, 4)
    if coins is not None:
        written[:, 4] = coins
    written[:, 5::2] = positions >> 3
    written[:, 6::2] = np.left_shift(1, positions & 7)
    return written.tobytes()


def add_many(layout: Layout, digests: Words, lease: Lease | None = None) -> Operation[Flags]:
    """Add up to BATCH keys; with a lease, return which of them were new, the first of equal ones."""
    if layout.plan.policy == "standard":
        adding = _add_standard(layout, digests, lease is not None)
        return (yield from adding if lease is None else lease.around(digests, adding))
    first = np.sort(np.unique(digests, return_index=True)[1])  # a repeated key changes nothing
    new, digests = np.zeros(len(digests), np.bool_), digests[first]
    if layout.plan.policy == "blocked":
        table = layout.tables[0]
        within = lane_positions_many(digests, layout.plan.hashes, table.span)
        blocks = mulhi_many(digests, table.blocks)
        new[first] = yield from _or_keys(layout, table, blocks, within, lease is not None)
    elif layout.plan.policy == "two-choice":
        adding = _add_two_choice(layout, digests)
        new[first] = yield from adding if lease is None else lease.around(digests, adding)
    else:
        new[first] = yield from _add_by_level(layout, digests, lease)
    return new


def _add_standard(layout: Layout, digests: Words, answer: bool) -> Operation[Flags]:
    positions = _standard_positions(layout, digests).reshape(-1, 1)
    lines, within = positions[:, 0] // LINE_BITS, (positions % LINE_BITS).astype(np.uint16)
    set_now = yield from _or_keys(layout, layout.tables[0], lines, within, answer)
    new: Flags = np.any(set_now.reshape(-1, layout.plan.hashes), axis=1)
    return new


def _or_keys(
    layout: Layout, table: Table, blocks: Indices, positions: Positions, answer: bool = False
) -> Operation[Flags]:
    """Set bits, in any order: a mask for a segment that gets many, records for one that gets few.

    Return which rows of positions set a bit that neither the filter nor a row before had, if that is asked.
    """
    groups = _by_segment(table, blocks)
    within = blocks % table.blocks_per_segment
    new = np.zeros(len(blocks), np.bool_)

    def bits(own: Indices) -> Indices:
        return 8 * (HEAD + within[own] * table.block_bytes)[:, None] + positions[own]

    for part in in_rounds(groups):
        requests = []
        for segment, own in part:
            if len(own) >= SWAP_FROM:
                flags = np.zeros(8 * layout.value_bytes(segment), np.bool_)
                flags[bits(own)] = True
                mask = np.packbits(flags, bitorder="little").tobytes()
                requests.append(call(layout, segment, scripts.MERGE, mask, *([b"before"] if answer else [])))
            else:
                keys = records(HEAD + within[own] * table.block_bytes, positions[own], None)
                requests.append(add_call(layout, table, segment, keys, positions.shape[1]))
        replies = yield requests
        for (_, own), reply in zip(part, replies, strict=True) if answer else ():
            if len(own) >= SWAP_FROM:
                new[own] = _sets_a_bit(reply, bits(own))
            else:
                new[own] = np.frombuffer(reply, np.uint8) == ord("1")
    return new


def _sets_a_bit(value: bytes, rows: Indices) -> Flags:
    """Return which rows of bits have one that is set neither in the value nor by a row before."""
    bits = rows.ravel()
    turns = np.arange(len(bits), dtype=np.int32)
    first = np.empty(8 * len(value), np.int32)
    first[bits[::-1]] = turns[::-1]  # of repeated indices the last value stays: the first turn
    octets = np.frombuffer(value, np.uint8)[bits >> 3]
    unset = octets >> (bits & 7).astype(np.uint8) & 1 == 0
    found: Flags = np.any((unset & (first[bits] == turns)).reshape(rows.shape), axis=1)
    return found


def _add_two_choice(layout: Layout, digests: Words) -> Operation[Flags]:
    """Choose blocks here, key by key, and set the bits: of a filter that is small beside the batch, all of
    it."""
    if len(digests) >= 32 * layout.segments and layout.plan.nbytes <= 1 << 28:
        local = yield from export(layout)
        new: Flags = local.add_new_many(digests, digests=True)
        blocks, _, _ = layout.take_apart(memoryview(local))
        for segments in in_rounds(range(layout.segments)):
            yield [
                call(layout, segment, scripts.MERGE, bytes(HEAD) + bytes(blocks[segment]))
                for segment in segments
            ]
        return new
    table, hashes = layout.tables[0], layout.plan.hashes
    words = [words_many(digests, level) for level in range(2)]
    blocks_of = [mulhi_many(each, table.blocks) for each in words]
    wanted = np.unique(np.concatenate(blocks_of))
    rows = yield from _read_rows(layout, table, wanted, table.block_bytes)
    first, second = (np.searchsorted(wanted, each) for each in blocks_of)
    chosen = _core.choose_blocks(rows, first, second, digests, hashes)
    placed = np.flatnonzero(chosen != scripts.PRESENT)
    if placed.size:
        at = np.where(chosen == 0, *blocks_of)[placed]
        positions = lane_positions_many(np.where(chosen == 0, *words)[placed], hashes, table.span)
        yield from _or_keys(layout, table, at, positions)
    new = chosen != scripts.PRESENT
    return new


def _add_by_level(layout: Layout, digests: Words, lease: Lease | None) -> Operation[Flags]:
    """Take the levels one after the other: what one does depends on it alone."""
    new, left = np.zeros(len(digests), np.bool_), np.arange(len(digests))
    for level in range(layout.plan.choices):
        outcomes = yield from _add_level(layout, layout.level(level), words_many(digests[left], level))
        new[left[outcomes == scripts.PLACED]] = True
        left = left[outcomes == scripts.PASSED]
        if not left.size:
            return new
    if layout.limit:
        rest = []
        for own in in_rounds(left, LIST_KEYS):
            listed = digests[own].astype("<u8").tobytes()
            (reply,) = yield [call_list(layout, scripts.LIST, listed, layout.limit)]
            outcomes = np.frombuffer(reply, np.uint8) - ord("0")
            new[own[outcomes == scripts.PLACED]] = True
            rest.append(own[outcomes == scripts.PASSED])
        left = np.concatenate(rest)
    spilling = _spill_keys(layout, digests[left])
    if lease is not None and left.size and layout.spill != "random":
        spilling = lease.around(digests[left], spilling)
    new[left] = yield from spilling
    return new


def _spill_keys(layout: Layout, digests: Words) -> Operation[Flags]:
    """Put keys that all their blocks refuse into one of them, one key after the other."""
    new = np.zeros(len(digests), np.bool_)
    for i, digest in enumerate(digests.tolist()):
        present = yield from contains_one(layout, digest)  # keys spilled before it may have made it so
        if not present:
            new[i] = yield from spill(layout, digest)
    return new


def _add_level(layout: Layout, table: Table, words: Words) -> Operation[Octets]:
    """Add keys to one table, in their order: which of them passed, were placed or were present."""
    blocks = mulhi_many(words, table.blocks)
    within = blocks % table.blocks_per_segment
    outcomes = np.empty(len(words), np.uint8)

    def few(segment: int, own: Indices) -> Request:
        positions = lane_positions_many(words[own], layout.plan.hashes, table.span)
        keys = records(HEAD + within[own] * table.block_bytes, positions, coins(words[own], layout.coin))
        return add_call(layout, table, segment, keys, layout.plan.hashes)

    for group in in_rounds(_by_segment(table, blocks)):
        replies = yield [
            few(segment, own) if len(own) < SWAP_FROM else get_segment(layout, segment)
            for segment, own in group
        ]
        swapped, requests = [], []
        for (segment, own), reply in zip(group, replies, strict=True):
            if len(own) < SWAP_FROM:
                outcomes[own] = np.frombuffer(reply, np.uint8) - ord("0")
                continue
            placed, spilled, data = layout.read_segment(segment, reply)
            blocks_now = np.frombuffer(data, np.uint8).reshape(-1, table.block_bytes).copy()
            outcomes[own] = place_keys(layout, table, blocks_now, within[own], words[own])
            news = int(np.count_nonzero(outcomes[own] == scripts.PLACED))
            if news:
                head = layout.head(segment, placed + news, spilled, os.urandom(16))
                value = head + blocks_now.tobytes()
                requests.append(call(layout, segment, scripts.SWAP, reply[HEAD - 16 : HEAD], value))
                swapped.append((segment, own))
        if not requests:
            continue
        replies = yield requests
        late = [each for each, reply in zip(swapped, replies, strict=True) if reply != 1]
        for segment, own in late:  # another client changed the segment meanwhile
            for part in in_rounds(own, SCRIPT_KEYS):
                (reply,) = yield [few(segment, part)]
                outcomes[part] = np.frombuffer(reply, np.uint8) - ord("0")
    return outcomes

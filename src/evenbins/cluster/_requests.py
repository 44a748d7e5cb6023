"""What is asked of servers, and operations: generators that ask for requests and are sent replies.

    requests = next(operation)  ──▶  a client sends them, in one pipeline for each server
    operation.send(replies)     ──▶  the next requests, until it returns

So the blocking and the asyncio client are two short loops around the same operations: of one key
(`_one_key`), of many (`_many_keys`), of the whole filter (`_whole_filter`).

Invariants. What a script acknowledged is in. A walk ends only at a block that holds or accepts the key,
decided by the server in one step with the insertion; a key that passed all its blocks is on the list, or
spilled into one of them, before its `add` returns. So a client that dies leaves bits and list entries, and
nothing half done. One client's keys in their order leave the local filter's bytes; in bulk as long as the
list has room.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from evenbins.cluster import _scripts as scripts
from evenbins.cluster._segments import Layout, Table

__all__ = ["Operation", "Request", "add_call", "call", "call_list", "get_segment", "join_calls", "read_call"]

T = TypeVar("T")
_OCTETS: Final = [bytes([number]) for number in range(256)]
_ADD: Final = struct.Struct("<BBIBB")


@dataclass(slots=True)
class Request:
    """One command for the server that has a key."""

    server: int
    key: str
    command: tuple[Any, ...]
    script: scripts.Script | None = None


Operation = Generator[list[Request], list[Any], T]


def call(layout: Layout, segment: int, script: scripts.Script, *arguments: Any) -> Request:
    """Ask for a script on a segment."""
    key, mark = layout.part(segment)
    keys = (key,) if script.keys == 1 else (key, layout.mask_key(segment))
    command = ("EVALSHA", script.sha, script.keys, *keys, mark, *arguments)
    return Request(layout.server_of(segment), key, command, script)


def read_call(layout: Layout, segment: int, block_bytes: int, offsets: bytes) -> Request:
    """Ask for blocks of a segment; offsets are u32."""
    key, mark = layout.part(segment)
    command = ("EVALSHA", scripts.READ.sha, 1, key, mark + _OCTETS[block_bytes] + offsets)
    return Request(layout.server_of(segment), key, command, scripts.READ)


def add_call(
    layout: Layout, table: Table, segment: int, keys: bytes, hashes: int, forced: int = 0
) -> Request:
    """Ask a segment to take keys, as `records` writes them."""
    key, mark = layout.part(segment)
    numbers = (hashes, table.block_bytes, table.threshold, table.counter_bits, forced)
    asked = mark + os.urandom(16) + _ADD.pack(*numbers) + keys
    return Request(layout.server_of(segment), key, ("EVALSHA", scripts.ADD.sha, 1, key, asked), scripts.ADD)


def join_calls(requests: Sequence[Request]) -> Request:
    """Make one request of several for READ, or for ADD: all their segments must be on one server."""
    first = requests[0]
    assert first.script is not None
    keys = [each.key for each in requests]
    command = ("EVALSHA", first.script.sha, len(keys), *keys, *(each.command[-1] for each in requests))
    return Request(first.server, first.key, command, first.script)


def call_list(layout: Layout, script: scripts.Script, *arguments: Any) -> Request:
    """Ask for a script on the list."""
    key = layout.list_key
    command = ("EVALSHA", script.sha, 1, key, layout.epoch, *arguments)
    return Request(layout.list_server, key, command, script)


def get_segment(layout: Layout, segment: int) -> Request:
    """Ask for the whole of a segment."""
    key = layout.segment_key(segment)
    return Request(layout.server_of(segment), key, ("GET", key))

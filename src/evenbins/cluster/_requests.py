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
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from evenbins.cluster import _scripts as scripts
from evenbins.cluster._segments import Layout, Table

__all__ = ["Operation", "Request", "add_call", "call", "call_list", "get_segment"]

T = TypeVar("T")


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
    key = layout.segment_key(segment)
    keys = (key,) if script.keys == 1 else (key, layout.mask_key(segment))
    command = ("EVALSHA", script.sha, script.keys, *keys, layout.mark(segment), *arguments)
    return Request(layout.server_of(segment), key, command, script)


def call_list(layout: Layout, script: scripts.Script, *arguments: Any) -> Request:
    """Ask for a script on the list."""
    key = layout.list_key
    command = ("EVALSHA", script.sha, 1, key, layout.epoch, *arguments)
    return Request(layout.list_server, key, command, script)


def get_segment(layout: Layout, segment: int) -> Request:
    """Ask for the whole of a segment."""
    key = layout.segment_key(segment)
    return Request(layout.server_of(segment), key, ("GET", key))


def add_call(
    layout: Layout, table: Table, segment: int, keys: bytes, hashes: int, forced: int = 0
) -> Request:
    """Ask a segment to take keys, as `records` writes them."""
    return call(
        layout, segment, scripts.ADD,
        keys, hashes, table.block_bytes, table.threshold, table.counter_bits, forced, os.urandom(16),
    )  # fmt: skip

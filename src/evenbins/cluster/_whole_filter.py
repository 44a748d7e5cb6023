"""The filter as a whole: made, found and checked, fetched, removed.

create   claim the name ──▶ segments ──▶ list ──▶ "ready"     cut short: never ready, not opened
open     the description of every server, then the mark and the size of every segment; verify: the same
delete   segments ──▶ list ──▶ the description                         cut short: parts are missing
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from evenbins.cluster import _scripts as scripts
from evenbins.cluster._requests import Operation, Request, call_list, get_segment
from evenbins.cluster._segments import HEAD, Layout, in_rounds, meta_key
from evenbins.cluster.redis_errors import (
    FilterDamagedError,
    FilterMissingError,
    PlanMismatchError,
    RedisFilterError,
)
from evenbins.filters.base import BaseFilter

__all__ = ["create", "delete", "export", "open_", "verify"]

_LIST_KEYS: Final = 4096
_MANY: Final = 512  # segments of one step that asks for no contents


def create(
    layout: Layout, blocks: Sequence[memoryview] | None = None, listed: Sequence[int] = ()
) -> Operation[None]:
    """Make a filter: say that it is being made, write its segments and its list, say that it is there."""
    servers, key = range(layout.servers), layout.meta_key
    claims = [("EVALSHA", scripts.CLAIM.sha, 1, key, layout.meta(server, ready=False)) for server in servers]
    replies = yield [Request(server, key, claims[server], scripts.CLAIM) for server in servers]
    if not all(replies):
        ours = [server for server, reply in zip(servers, replies, strict=True) if reply]
        if ours:
            yield [Request(server, key, ("DEL", key)) for server in ours]
        raise RedisFilterError(
            f"there is a filter {layout.name!r} already: open it, choose another name, or delete it first "
            "(RedisFilter.delete; also for one whose creation was interrupted)"
        )
    for segments in in_rounds(range(layout.segments)):
        requests = []
        for segment in segments:
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
        for digests in in_rounds(listed, _LIST_KEYS):
            own = b"".join(digest.to_bytes(8, "little") for digest in digests)
            yield [call_list(layout, scripts.LIST, own, layout.limit)]
    key = layout.meta_key
    yield [Request(server, key, ("SET", key, layout.meta(server, ready=True))) for server in servers]


def open_(name: str, servers: int) -> Operation[Layout]:
    """Find a filter by its name, and look at all its parts."""
    key = meta_key(name)
    replies = yield [Request(server, key, ("GET", key)) for server in range(servers)]
    if len(set(map(type, replies))) > 1:
        gone = [server for server, reply in enumerate(replies) if reply is None]
        raise FilterMissingError(
            f"filter {name!r} is not on servers number {gone}: they lost it, or they are other servers"
        )
    found = [Layout.from_meta(name, reply) for reply in replies]
    layout = found[0][0]
    if layout.servers != servers:
        raise PlanMismatchError(
            f"filter {name!r} lies on {layout.servers} servers; got {servers}. Pass the clients of all, "
            "in the order of its creation"
        )
    for number, (other, server, ready) in enumerate(found):
        if not ready:
            raise FilterMissingError(
                f"filter {name!r} is being created, or its creation was interrupted: wait, or delete it"
            )
        if (other.plan, other.epoch) != (layout.plan, layout.epoch):
            raise PlanMismatchError(f"servers 0 and {number} have different filters under the name {name!r}")
        if server != number:
            raise PlanMismatchError(
                f"server {number} is server {server} of filter {name!r}: pass the clients in the order "
                "of its creation"
            )
    yield from _check_parts(layout)
    return layout


def verify(layout: Layout) -> Operation[None]:
    """Check that every server describes this filter, then look at all its parts."""
    key = layout.meta_key
    replies = yield [Request(server, key, ("GET", key)) for server in range(layout.servers)]
    for server, reply in enumerate(replies):
        if reply is None:
            raise FilterMissingError(
                f"filter {layout.name!r}: its key {key!r} is missing on server {server} (deleted, evicted, "
                "or an empty server): it cannot be opened. Fetch it with `to_local`, delete it, and write it "
                "back with `from_local`; if that fails, build it again"
            )
        described, number, ready = Layout.from_meta(layout.name, reply)
        if described.meta(number, ready=ready) != layout.meta(server, ready=True):
            raise FilterDamagedError(layout.damaged_message(key))
    yield from _check_parts(layout)


def _check_parts(layout: Layout) -> Operation[None]:
    """Look at the mark and the size of every segment, and at the mark of the list."""
    for segments in in_rounds(range(layout.segments), _MANY):
        requests = []
        for segment in segments:
            key, server = layout.segment_key(segment), layout.server_of(segment)
            requests.append(Request(server, key, ("GETRANGE", key, 0, 31)))
            requests.append(Request(server, key, ("STRLEN", key)))
        replies = yield requests
        for segment, mark, size in zip(segments, replies[::2], replies[1::2], strict=True):
            if not size:
                raise FilterMissingError(layout.missing_message(layout.segment_key(segment)))
            if mark != layout.mark(segment) or size != layout.value_bytes(segment):
                raise FilterDamagedError(layout.damaged_message(layout.segment_key(segment)))
    if layout.limit:
        yield [call_list(layout, scripts.LISTED, b"")]


def export(layout: Layout) -> Operation[BaseFilter]:
    """Fetch all of a filter as a local one."""
    blocks, counts, listed = [], [], []
    for segments in in_rounds(range(layout.segments)):
        replies = yield [get_segment(layout, segment) for segment in segments]
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
            raise FilterMissingError(layout.missing_message(key))
        if epoch != layout.epoch:
            raise FilterDamagedError(layout.damaged_message(key))
        turns = sorted((int(turn), int.from_bytes(digest, "little")) for digest, turn in pairs.items())
        listed = [digest for _, digest in turns]
    return layout.local_filter(layout.payload(blocks, counts, listed))


def delete(name: str, servers: int) -> Operation[bool]:
    """Remove a filter, whatever is left of it: its description last. False if it does not exist."""
    key = meta_key(name)
    replies = yield [Request(server, key, ("GET", key)) for server in range(servers)]
    known = [each for each in replies if each is not None]
    if not known:
        return False
    layout, _, _ = Layout.from_meta(name, known[0])
    if layout.servers != servers:
        raise PlanMismatchError(
            f"filter {name!r} lies on {layout.servers} servers; got {servers}. Pass the clients of all"
        )
    for segments in in_rounds(range(layout.segments), _MANY):
        yield [
            Request(layout.server_of(each), layout.segment_key(each), ("UNLINK", layout.segment_key(each)))
            for each in segments
        ]
    yield [Request(layout.list_server, layout.list_key, ("UNLINK", layout.list_key))]
    yield [Request(server, key, ("DEL", key)) for server in range(servers)]
    return True

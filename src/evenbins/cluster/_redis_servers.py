"""Connections: one server, several independent ones, or a cluster; blocking and asyncio.

`run` takes requests and gives replies in their order, an error reply as the exception it is; a lost
connection or a timeout is raised. Requests to one server go out in one pipeline. `everywhere` asks each
server the same.

Invariants
- Requests to one server are executed in their order (a cluster of the asyncio client excepted: there
  operations never have two requests for one segment at a time).
- A reply belongs to its request: a connection on which something else happened between sending and reading
  (an error, a timeout, a signal's exception) is closed, never used again.
- When `run` returns or raises, nothing of it is under way.
- A thread keeps one connection to each server; it goes back to the client's pool when the thread ends.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

from evenbins.cluster._requests import Request
from evenbins.cluster._segments import Layout
from evenbins.cluster.redis_errors import FilterDamaged, FilterMissing, RedisFilterError, way_out

__all__ = [
    "AsyncServers", "Servers", "check_eviction", "check_roles", "raise_errors", "redis_module",
    "with_scripts",
]  # fmt: skip

Replies = list[Any]
_AT_ONCE = 16  # requests of one call to a cluster: each takes a connection of the client's pool


def redis_module() -> Any:
    """Import the client library."""
    try:
        import redis
        import redis.asyncio
    except ImportError as error:
        raise ImportError(
            f"a filter on Redis needs the package redis ({error}): pip install 'evenbins[redis]'"
        ) from None
    return redis


def packed(command: tuple[Any, ...]) -> bytes:
    """Write a command of str, bytes and int as the protocol has it.

    Examples
    --------
    >>> packed(("GET", b"a", 12))
    b'*3\\r\\n$3\\r\\nGET\\r\\n$1\\r\\na\\r\\n$2\\r\\n12\\r\\n'
    """
    parts = [b"*%d\r\n" % len(command)]
    for each in command:
        if type(each) is str:
            each = each.encode()
        elif type(each) is int:
            each = b"%d" % each
        parts.append(b"$%d\r\n%b\r\n" % (len(each), each))
    return b"".join(parts)


class _Clients:
    """The clients, checked; a subclass says of which kind they must be."""

    cluster = False

    def __init__(self, client: Any) -> None:
        redis = redis_module()
        single, cluster, names = self._kinds(redis)
        several = isinstance(client, Sequence) and not isinstance(client, str | bytes)
        self.clients: list[Any] = list(client) if several else [client]
        if not self.clients:
            raise ValueError("client must be at least one client; got an empty list")
        each: Any
        for each in self.clients:
            if isinstance(each, cluster) and not several:
                self.cluster = True
            elif not isinstance(each, single):
                raise TypeError(f"client must be {names}, or a list of the first; got {type(each).__name__}")
            client_: Any = each
            if getattr(each, "read_from_replicas", False) or getattr(each, "load_balancing_strategy", None):
                raise ValueError(
                    "client must not read from replicas, which lag behind: a key that was added could be "
                    "missed. Make one without read_from_replicas and load_balancing_strategy"
                )
            encoder = client_.get_encoder()
            if encoder.decode_responses:
                raise ValueError(
                    "client must not decode responses, since a filter's are bytes; got one with "
                    "decode_responses=True. Make one without it"
                )
        self._response_error = redis.exceptions.ResponseError
        self._moved = (redis.exceptions.MovedError, redis.exceptions.AskError, redis.exceptions.TryAgainError)

    @staticmethod
    def _kinds(redis: Any) -> tuple[type, type, str]:
        raise NotImplementedError

    @property
    def count(self) -> int:
        """Number of independent servers."""
        return len(self.clients)

    def check_walk(self, walk: str) -> str:
        """Check the argument `walk`."""
        if walk == "server" and (self.cluster or self.count > 1):
            raise ValueError(
                'walk must be "client" where blocks lie on several servers or a cluster; got "server". '
                "Leave it out"
            )
        return walk

    def _by_server(self, requests: Sequence[Request]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for i, request in enumerate(requests):
            found.setdefault(request.server, []).append(i)
        return found


class _Kept:
    """The connections that a thread keeps: back to their pools when it ends, or nobody has the filter."""

    def __init__(self, clients: Sequence[Any]) -> None:
        self.process, self._clients = os.getpid(), clients
        self.connections: dict[int, Any] = {}

    def release(self) -> None:
        taken, self.connections = self.connections, {}
        if self.process == os.getpid():
            for server, connection in taken.items():
                self._clients[server].connection_pool.release(connection)

    def __del__(self) -> None:
        try:
            self.release()
        except Exception:  # the interpreter ends: so do the connections
            return


class Servers(_Clients):
    """Blocking connections."""

    @staticmethod
    def _kinds(redis: Any) -> tuple[type, type, str]:
        return redis.Redis, redis.RedisCluster, "a redis.Redis or a redis.RedisCluster"

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._kept = threading.local()
        self._timeout = redis_module().exceptions.TimeoutError
        self._connection_error = redis_module().exceptions.ConnectionError
        self._broken = (self._connection_error, self._timeout)

    def run(self, requests: Sequence[Request]) -> Replies:
        """Send requests, and give their replies."""
        if len(requests) == 1:
            request = requests[0]
            if request.script is not None and not self.cluster:
                return [self._at_once(request)]
            return [self._one(self.clients[request.server], request.command)]
        if self.cluster:
            return self._run_cluster(requests)
        replies: Replies = [None] * len(requests)
        for server, own in self._by_server(requests).items():
            self._pipeline(self.clients[server], requests, own, replies)
        return replies

    def _at_once(self, request: Request) -> Any:
        """Send one script over a connection kept for this thread: half the time of `execute_command`.

        A kept connection may be stale, as the pool would have noticed: then the client tries in its way.
        """
        client, command = self.clients[request.server], request.command
        connection = self._connection(request.server)
        try:
            connection.send_packed_command((packed(command),))
            return connection.read_response()
        except self._response_error as error:
            return error
        except self._timeout:
            if not connection.retry.get_retries():
                raise
        except self._connection_error:
            pass
        except BaseException:  # a signal's, between the two: the next call would read this reply
            connection.disconnect()
            raise
        return self._one(client, command)

    def _connection(self, server: int) -> Any:
        kept: _Kept | None = getattr(self._kept, "own", None)
        if kept is None or kept.process != os.getpid():  # a child must not use its parent's
            kept = self._kept.own = _Kept(self.clients)
        found = kept.connections.get(server)
        if found is None:
            found = kept.connections[server] = self.clients[server].connection_pool.get_connection()
        return found

    def close(self) -> None:
        """Give back the connections kept for this thread."""
        kept: _Kept | None = getattr(self._kept, "own", None)
        if kept is not None:
            kept.release()

    def _one(self, client: Any, command: tuple[Any, ...]) -> Any:
        try:
            return client.execute_command(*command)
        except self._response_error as error:
            return error

    def _pipeline(self, client: Any, requests: Sequence[Request], own: list[int], replies: Replies) -> None:
        with client.pipeline(transaction=False) as pipeline:
            for i in own:
                pipeline.execute_command(*requests[i].command)
            for i, reply in zip(own, pipeline.execute(raise_on_error=False), strict=True):
                replies[i] = reply

    def _run_cluster(self, requests: Sequence[Request]) -> Replies:
        cluster = self.clients[0]
        by_node: dict[str, tuple[Any, list[int]]] = {}
        for i, request in enumerate(requests):
            node = cluster.get_node_from_key(request.key)
            by_node.setdefault(node.name, (node, []))[1].append(i)
        replies: Replies = [None] * len(requests)
        for node, own in by_node.values():
            try:
                self._pipeline(cluster.get_redis_connection(node), requests, own, replies)
            except self._broken:  # another took its place? the cluster's own client finds out
                for i in own:
                    replies[i] = self._one(cluster, requests[i].command)
        for i, reply in enumerate(replies):
            if isinstance(reply, self._moved):  # the cluster's own client follows
                replies[i] = self._one(cluster, requests[i].command)
        return replies

    def everywhere(self, *command: Any) -> Replies:
        """Send the same command to every server, every primary of a cluster."""
        if not self.cluster:
            return [self._one(each, command) for each in self.clients]
        nodes = self.clients[0].get_primaries()
        return [self._one(self.clients[0].get_redis_connection(node), command) for node in nodes]


class AsyncServers(_Clients):
    """Asyncio connections."""

    @staticmethod
    def _kinds(redis: Any) -> tuple[type, type, str]:
        names = "a redis.asyncio.Redis or a redis.asyncio.RedisCluster"
        return redis.asyncio.Redis, redis.asyncio.RedisCluster, names

    async def run(self, requests: Sequence[Request]) -> Replies:
        """Send requests, and give their replies."""
        if len(requests) == 1:
            return [await self._one(self.clients[requests[0].server], requests[0].command)]
        if self.cluster:
            turns = asyncio.Semaphore(_AT_ONCE)
            return await _all(self._in_turn(turns, each) for each in requests)
        replies: Replies = [None] * len(requests)
        by_server = self._by_server(requests).items()
        await _all(self._pipeline(self.clients[server], requests, own, replies) for server, own in by_server)
        return replies

    async def _in_turn(self, turns: asyncio.Semaphore, request: Request) -> Any:
        async with turns:
            return await self._one(self.clients[0], request.command)

    async def _one(self, client: Any, command: tuple[Any, ...], **options: Any) -> Any:
        try:
            return await client.execute_command(*command, **options)
        except self._response_error as error:
            return error

    async def _pipeline(
        self, client: Any, requests: Sequence[Request], own: list[int], replies: Replies
    ) -> None:
        async with client.pipeline(transaction=False) as pipeline:
            for i in own:
                pipeline.execute_command(*requests[i].command)
            for i, reply in zip(own, await pipeline.execute(raise_on_error=False), strict=True):
                replies[i] = reply

    async def everywhere(self, *command: Any) -> Replies:
        """Send the same command to every server, every primary of a cluster."""
        if not self.cluster:
            return [await self._one(each, command) for each in self.clients]
        await self.clients[0].initialize()
        nodes = self.clients[0].get_primaries()
        return [await self._one(self.clients[0], command, target_nodes=[node]) for node in nodes]


async def _all(running: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Wait for all of them, also when one fails: whoever hears of the error may close the client."""
    tasks = [asyncio.ensure_future(each) for each in running]
    try:
        return await asyncio.gather(*tasks)
    finally:
        if left := [each for each in tasks if not each.done()]:
            await asyncio.wait(left)


# --- replies that are errors -------------------------------------------------------------------------------


def with_scripts(requests: Sequence[Request], replies: Replies) -> tuple[list[int], list[Request]]:
    """Find the requests whose script the server does not know (it was restarted); and those with its text.

    The text goes with the request to the server that lacks it, in one step: SCRIPT LOAD before the request
    would ask all servers, of which others may be down, and could be followed by another SCRIPT FLUSH.
    """
    no_script = redis_module().exceptions.NoScriptError
    again = [i for i, reply in enumerate(replies) if isinstance(reply, no_script)]
    return again, [_with_text(requests[i]) for i in again]


def _with_text(request: Request) -> Request:
    assert request.script is not None
    return replace(request, command=("EVAL", request.script.text, *request.command[2:]))


def raise_errors(name: str, layout: Layout | None, requests: Sequence[Request], replies: Replies) -> None:
    """Raise what a server complained of."""
    for request, reply in zip(requests, replies, strict=True):
        if not isinstance(reply, Exception):
            continue
        text = str(reply)
        if text.startswith("EVBMISSING") and layout is not None:
            raise FilterMissing(layout.lost(request.key)) from None
        if text.startswith("EVBDAMAGED") and layout is not None:
            raise FilterDamaged(layout.strange(request.key)) from None
        if text.startswith("WRONGTYPE"):
            raise FilterDamaged(
                f"filter {name!r}: its key {request.key!r} holds a value of another type. Delete that, or "
                "choose another name for the filter"
            ) from reply
        error = f"{type(reply).__name__}: {text}"
        raise RedisFilterError(
            f"filter {name!r}: the server refused a command on {request.key!r} ({error}). {way_out(reply)}. "
            "What was acknowledged before is in; the call may be repeated"
        ) from reply


def check_roles(replies: Iterable[Any]) -> None:
    """Refuse a replica: it lags behind, and a key whose `add` has returned could be missed."""
    for number, reply in enumerate(replies):
        if isinstance(reply, list | tuple) and reply and _text(reply[0]) in ("slave", "replica"):
            raise RedisFilterError(
                f"server {number} is a replica of {_text(reply[1])}:{_text(reply[2])}, and replicas lag "
                "behind: a key that was added could be missed. Pass a client of the primary"
            )


def check_eviction(replies: Iterable[Any], *, allow_eviction: bool) -> str | None:
    """Refuse a server that may drop the filter's keys; give a warning if it does not say."""
    for reply in replies:
        if isinstance(reply, Exception):
            return (
                f"the server does not show its eviction policy ({reply}): make sure that it is noeviction, "
                "or that maxmemory is 0. An evicted segment makes every call an error"
            )
        pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
        config = {_text(key): _text(value) for key, value in pairs}
        policy = config.get("maxmemory-policy", "noeviction")
        if config.get("maxmemory", "0") != "0" and policy.startswith("allkeys") and not allow_eviction:
            raise RedisFilterError(
                f"the server evicts any key when its memory is full (maxmemory-policy {policy}), and a "
                "filter that loses a part is lost: set noeviction or a volatile policy (a filter's keys "
                "never expire), or pass allow_eviction=True and be ready for FilterMissing"
            )
    return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)

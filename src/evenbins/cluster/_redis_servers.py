"""Connections: one server, several independent ones, or a cluster; blocking and asyncio.

`run` takes requests and returns replies in their order, an error reply as the exception it is; a lost
connection or a timeout is raised. Requests to one server go out in one pipeline. `everywhere` sends the same
command to each server. `Servers` and `AsyncServers` are the transport, and nothing else is written for one of
them: the blocking one keeps a connection per thread, the asyncio one leaves that to the client's pool.

Invariants
- Requests to one server are executed in their order (a cluster of the asyncio client excepted: there
  operations never have two requests for one segment at a time).
- A reply belongs to its request: a connection on which something else happened between sending and reading
  (an error, a timeout, a signal's exception) is closed before it is used again.
- A call that a signal's handler makes while another call of its thread is under way has its own connection.
- A child process opens connections of its own.
- When `run` returns or raises, nothing of it is under way.
- With `once`, nothing that a server may have executed is sent again, whatever the client's `retry` says: the
  answer of the second execution would not be that of the first.
- A thread keeps one connection to each server; it goes back to the client's pool when the thread ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from evenbins.cluster._requests import Request
from evenbins.cluster._segments import damaged_message, missing_message
from evenbins.cluster.libraries import library
from evenbins.cluster.redis_errors import FilterDamagedError, FilterMissingError, RedisFilterError, way_out

__all__ = [
    "AsyncServers", "Servers", "check_eviction", "check_roles", "raise_errors",
    "refuse_pipeline", "with_scripts",
]  # fmt: skip

Replies = list[Any]
_AT_ONCE = 16  # requests of one call to a cluster: each takes a connection of the client's pool


def pack(command: tuple[Any, ...]) -> bytes:
    """Write a command of str, bytes and int as the protocol has it.

    >>> pack(("GET", b"a", 12))
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


def refuse_pipeline(client: object) -> None:
    """Raise TypeError for a pipeline: it is a client too, and answers every command by itself."""
    if any("Pipeline" in each.__name__ for each in type(client).__mro__):
        raise TypeError(
            f"client must not be a pipeline; got {type(client).__name__}. Pass the client that made it"
        )


class _Clients:
    """The clients, checked: those of the library's module that a subclass names."""

    _library: ClassVar[str]
    waits_in_thread: ClassVar[bool]
    cluster = False

    def __init__(self, client: Any) -> None:
        redis = library(self._library, "redis")
        several = isinstance(client, Sequence) and not isinstance(client, str | bytes)
        self.clients: list[Any] = list(client) if several else [client]
        if not self.clients:
            raise ValueError("client must be a client or a list of at least one; got an empty list")
        each: Any
        for each in self.clients:
            refuse_pipeline(each)
            if isinstance(each, redis.RedisCluster) and not several:
                self.cluster = True
            elif not isinstance(each, redis.Redis):
                kinds = f"a {self._library}.Redis or a {self._library}.RedisCluster"
                raise TypeError(f"client must be {kinds}, or a list of the first; got {type(each).__name__}")
            if getattr(each, "read_from_replicas", False) or getattr(each, "load_balancing_strategy", None):
                raise ValueError(
                    "client must not read from replicas, which lag behind: a key that was added could be "
                    "missed. Make one without read_from_replicas and load_balancing_strategy"
                )
            if each.get_encoder().decode_responses:
                raise ValueError(
                    "client must not decode responses, since a filter's are bytes; got one with "
                    "decode_responses=True. Make one without it"
                )
        errors = library("redis.exceptions", "redis")
        self._response_error = errors.ResponseError
        self._timeout, self._connection_error = errors.TimeoutError, errors.ConnectionError
        self._moved = (errors.MovedError, errors.AskError, errors.TryAgainError, errors.ClusterDownError)

    @property
    def count(self) -> int:
        """Number of independent servers."""
        return len(self.clients)

    def check_traverse_on(self, traverse_on: str) -> None:
        """Check the argument `traverse_on`."""
        if traverse_on == "server" and (self.cluster or self.count > 1):
            raise ValueError(
                'traverse_on must be "client" where blocks lie on several servers or a cluster; '
                'got "server". Leave it out'
            )

    def _by_server(self, requests: Sequence[Request]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for i, request in enumerate(requests):
            found.setdefault(request.server, []).append(i)
        return found


class _Connection:
    """One connection that a thread keeps.

    `busy`: a call is under way on it. `dirty`: a reply may still come that no call waits for any more.
    """

    __slots__ = ("busy", "connection", "dirty", "pool")

    def __init__(self, pool: Any) -> None:
        self.pool, self.connection = pool, pool.get_connection()
        self.busy = self.dirty = False

    def release(self) -> None:
        if self.dirty:
            self.connection.disconnect()
        self.pool.release(self.connection)


class _ThreadConnections:
    """The connections that a thread keeps: released when the thread ends or the filter is dropped."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.by_pool: dict[Any, _Connection] = {}

    def release(self) -> None:
        if self.process != os.getpid():  # they are the parent's
            self.by_pool = {}
            return
        for pool, kept in list(self.by_pool.items()):
            if not kept.busy:  # else this is a signal's handler, and the call goes on after it
                del self.by_pool[pool]
                kept.release()

    def __del__(self) -> None:
        try:
            self.release()
        except Exception:  # the interpreter ends: so do the connections
            return


class Servers(_Clients):
    """Blocking connections."""

    _library = "redis"
    waits_in_thread = True

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._thread = threading.local()

    def run(self, requests: Sequence[Request], *, once: bool = False) -> Replies:
        """Send requests, and return their replies."""
        if self.cluster:
            return self._run_cluster(requests, once)
        if len(requests) == 1:
            request = requests[0]
            return self._exchange(self.clients[request.server].connection_pool, [request.command], once)
        replies: Replies = [None] * len(requests)
        for server, own in self._by_server(requests).items():
            self._exchange_some(self.clients[server].connection_pool, requests, own, replies, once)
        return replies

    def pause(self) -> Replies:
        """Wait a little, and return no replies."""
        time.sleep(_pause())
        return []

    def _exchange_some(
        self, pool: Any, requests: Sequence[Request], own: list[int], replies: Replies, once: bool
    ) -> None:
        commands = [requests[i].command for i in own]
        for i, reply in zip(own, self._exchange(pool, commands, once), strict=True):
            replies[i] = reply

    def _exchange(self, pool: Any, commands: list[tuple[Any, ...]], once: bool = False) -> Replies:
        """Send commands over the connection kept for this thread, and read their replies.

        Half the time of the client's `execute_command`. And that, where a signal's handler raises between
        sending and reading, gives a connection back to the pool on which a reply is still to come.
        """
        kept = self._connection(pool)
        if kept.busy:  # a signal's handler runs while this thread waits for a reply
            return self._exchange_apart(pool, commands, once)
        kept.busy = True
        try:
            if kept.dirty or (once and self._ended(kept.connection)):
                kept.connection.disconnect()
            kept.dirty = True
            replies = self._converse(kept.connection, commands, once)
            kept.dirty = False
            return replies
        finally:
            kept.busy = False

    def _exchange_apart(self, pool: Any, commands: list[tuple[Any, ...]], once: bool) -> Replies:
        connection, replies = pool.get_connection(), None
        try:
            replies = self._converse(connection, commands, once)
            return replies
        finally:
            if replies is None:
                connection.disconnect()
            pool.release(connection)

    def _ended(self, connection: Any) -> bool:
        """Return whether the server closed a kept connection: no reply is due, so nothing else is to read."""
        try:
            return bool(connection.can_read())
        except self._connection_error:
            return True

    def _converse(self, connection: Any, commands: list[tuple[Any, ...]], once: bool) -> Replies:
        """Send and read; on a connection that fails again, as often as the client's `retry` says.

        The first attempt is not counted: the server may have closed a kept connection long ago.
        """
        if once:
            return self._attempt(connection, commands)
        try:
            return self._attempt(connection, commands)
        except self._timeout:
            if not connection.retry.get_retries():
                raise
        except self._connection_error:
            pass
        connection.disconnect()
        replies: Replies = connection.retry.call_with_retry(
            lambda: self._attempt(connection, commands), lambda error: connection.disconnect()
        )
        return replies

    def _attempt(self, connection: Any, commands: list[tuple[Any, ...]]) -> Replies:
        connection.send_packed_command((b"".join([pack(each) for each in commands]),))
        replies: Replies = []
        for _ in commands:
            try:
                replies.append(connection.read_response())
            except self._response_error as error:
                replies.append(error)
        return replies

    def _connection(self, pool: Any) -> _Connection:
        own: _ThreadConnections | None = getattr(self._thread, "own", None)
        if own is None or own.process != os.getpid():  # a child must not use its parent's
            own = self._thread.own = _ThreadConnections()
        kept = own.by_pool.get(pool)
        if kept is None:
            made = _Connection(pool)
            kept = own.by_pool.setdefault(pool, made)
            if kept is not made:  # a signal's handler was here meanwhile
                made.release()
        return kept

    def close(self) -> None:
        """Release the connections kept for this thread."""
        own: _ThreadConnections | None = getattr(self._thread, "own", None)
        if own is not None:
            own.release()

    def _run_cluster(self, requests: Sequence[Request], once: bool) -> Replies:
        cluster = self.clients[0]
        by_pool: dict[Any, list[int]] = {}
        for i, request in enumerate(requests):
            node = cluster.get_node_from_key(request.key)
            by_pool.setdefault(cluster.get_redis_connection(node).connection_pool, []).append(i)
        replies: Replies = [None] * len(requests)
        for pool, own in by_pool.items():
            try:
                self._exchange_some(pool, requests, own, replies, once)
            except (self._connection_error, self._timeout):  # another node may have taken over
                if once:
                    with contextlib.suppress(self._connection_error, self._timeout):
                        self._follow(requests[own[0]], ("EXISTS", requests[own[0]].key))
                    raise
                for i in own:
                    replies[i] = self._follow(requests[i], requests[i].command)
        for i, reply in enumerate(replies):
            if isinstance(reply, self._moved):
                replies[i] = self._follow(requests[i], requests[i].command, once)
        return replies

    def _follow(self, request: Request, command: tuple[Any, ...], once: bool = False) -> Any:
        """Ask the cluster's own client, which follows keys to other nodes.

        With a node to begin at it does not repeat commands whose replies are lost.
        """
        nodes = {"target_nodes": self.clients[0].get_node_from_key(request.key)} if once else {}
        try:
            return self.clients[0].execute_command(*command, **nodes)
        except self._response_error as error:
            return error

    def everywhere(self, *command: Any) -> Replies:
        """Send the same command to every server, every primary of a cluster."""
        clients = self.clients
        if self.cluster:
            clients = [clients[0].get_redis_connection(node) for node in clients[0].get_primaries()]
        return [self._exchange(each.connection_pool, [command])[0] for each in clients]


class AsyncServers(_Clients):
    """Asyncio connections."""

    _library = "redis.asyncio"
    waits_in_thread = False

    async def run(self, requests: Sequence[Request], *, once: bool = False) -> Replies:
        """Send requests, and return their replies."""
        if self.cluster:
            turns = asyncio.Semaphore(_AT_ONCE)

            async def in_turn(request: Request) -> Any:
                async with turns:
                    nodes = {"target_nodes": await self._node(request.key)} if once else {}
                    return await self._execute(self.clients[0], request.command, **nodes)

            return await _gather(map(in_turn, requests))
        if len(requests) == 1 and not once:
            return [await self._execute(self.clients[requests[0].server], requests[0].command)]
        replies: Replies = [None] * len(requests)
        send = self._send_once if once else self._pipeline
        by_server = self._by_server(requests).items()
        await _gather(send(self.clients[server], requests, own, replies) for server, own in by_server)
        return replies

    async def pause(self) -> Replies:
        """Wait a little, and return no replies."""
        await asyncio.sleep(_pause())
        return []

    async def _node(self, key: str) -> Any:
        """Find the node of a cluster that has a key: commands for a node are not repeated by the client."""
        await self.clients[0].initialize()
        return self.clients[0].get_node_from_key(key)

    async def _execute(self, client: Any, command: tuple[Any, ...], **options: Any) -> Any:
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

    async def _send_once(
        self, client: Any, requests: Sequence[Request], own: list[int], replies: Replies
    ) -> None:
        connection, complete = await client.connection_pool.get_connection(), False
        try:
            await connection.send_packed_command(b"".join([pack(requests[i].command) for i in own]))
            for i in own:
                try:
                    replies[i] = await connection.read_response()
                except self._response_error as error:
                    replies[i] = error
            complete = True
        finally:
            if not complete:
                await connection.disconnect(nowait=True)
            await client.connection_pool.release(connection)

    async def everywhere(self, *command: Any) -> Replies:
        """Send the same command to every server, every primary of a cluster."""
        if not self.cluster:
            return [await self._execute(each, command) for each in self.clients]
        await self.clients[0].initialize()
        nodes = self.clients[0].get_primaries()
        return [await self._execute(self.clients[0], command, target_nodes=[node]) for node in nodes]


def _pause() -> float:
    """Return how many seconds to wait for another client: not the same for all who wait for it."""
    return random.uniform(0.001, 0.008)


async def _gather(running: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Wait for all of them, also when one fails: the caller may close the client when it sees the error."""
    tasks = [asyncio.ensure_future(each) for each in running]
    try:
        return await asyncio.gather(*tasks)
    finally:
        if left := [each for each in tasks if not each.done()]:
            await asyncio.wait(left)


def with_scripts(requests: Sequence[Request], replies: Replies) -> tuple[list[int], list[Request]]:
    """Find the requests whose script the server does not know (it was restarted); and those with its text.

    The text goes with the request to the server that lacks it, in one step: SCRIPT LOAD before the request
    would ask all servers, of which others may be down, and could be followed by another SCRIPT FLUSH.
    """
    no_script = library("redis.exceptions", "redis").NoScriptError
    again = [i for i, reply in enumerate(replies) if isinstance(reply, no_script)]
    complete = []
    for request in (requests[i] for i in again):
        assert request.script is not None
        complete.append(replace(request, command=("EVAL", request.script.text, *request.command[2:])))
    return again, complete


def raise_errors(name: str, requests: Sequence[Request], replies: Replies) -> None:
    """Raise what a server complained of."""
    for request, reply in zip(requests, replies, strict=True):
        if not isinstance(reply, Exception):
            continue
        text = str(reply)
        if text.startswith("EVBMISSING"):
            raise FilterMissingError(missing_message(name, request.key)) from None
        if text.startswith("EVBDAMAGED"):
            raise FilterDamagedError(damaged_message(name, request.key)) from None
        if text.startswith("WRONGTYPE"):
            raise FilterDamagedError(
                f"filter {name!r}: its key {request.key!r} holds a value of another type. Delete that, or "
                "choose another name for the filter"
            ) from reply
        error = f"{type(reply).__name__}: {text}"
        raise RedisFilterError(
            f"filter {name!r}: the server refused a command on {request.key!r} ({error}). {way_out(reply)}. "
            "Keys acknowledged before are in the filter; the call may be repeated"
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
    """Refuse a server that may drop the filter's keys; return a warning if it does not say."""
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
                "never expire), or pass allow_eviction=True and be ready for FilterMissingError"
            )
    return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)

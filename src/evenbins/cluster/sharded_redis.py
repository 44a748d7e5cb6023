"""Keys on independent Redis or Valkey servers, chosen by a ring: no cluster mode, no agreement among them.

    ShardedRedis(["10.0.0.1:6379", "10.0.0.2:6379"])      for threads
    AsyncShardedRedis([...])                               the same for asyncio, with `await`

Each key is on one server; requests that find it full wait (a jump for room, as the memcached client has it,
would make copies of things that should exist once). On failure it behaves as that client does: the server is
marked down, its keys jump, each to a server of its own; it is probed with growing delays; then its keys
return.

What that means for data. Nothing is copied between servers. While a server is down its keys look absent, and
what is written to them meanwhile stays behind on other servers when it returns, with its old values (a read
never looks there; `scan_iter` does). That suits caches, sessions, rate limits. Where no write may be lost,
use replication: Redis Sentinel or Cluster. `flush_returning=True` empties a server before it serves again: no
old value then.

Keys are str or bytes. Redis has one key for 5, "5" and b"5": an int is converted to its decimal text before
the ring sees it, as bytearray and memoryview are to bytes.

Repeats. `get`, `mget`, `exists`, plain `set`, `mset`, `delete`, `expire` are repeated: on their server until
it is marked down, then on the next one. `incr`, `set` with nx, xx or get, and pipelines only if nothing was
sent: otherwise ServerDownError. The second of two deletions finds less: after a repeat, what `delete` counts
may be too low. A server's refusals (READONLY, OOM, WRONGTYPE …) are redis-py's ResponseError, with a note
that names the server and a way out; they mark nothing down.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

from evenbins.cluster._steps import AsyncClosing, Closing, Steps, awaitable, blocking, run, run_async
from evenbins.cluster.fleet import (
    AsyncFleet,
    Fleet,
    FleetClient,
    NotSentError,
    address_list,
    entry,
    never_sent,
)
from evenbins.cluster.health import Backoff, ServerDownError
from evenbins.cluster.libraries import library
from evenbins.cluster.redis_errors import way_out
from evenbins.cluster.redis_pipeline import AsyncPipeline, Pipeline, RedisKey, StoredKey, stored_key

__all__ = ["AsyncPipeline", "AsyncShardedRedis", "Pipeline", "ShardedRedis"]

_MANY_CONNECTIONS = 2**20  # the ring's limit holds, not the pool's


def _thread_client(url: str, **options: Any) -> Any:
    """Make a redis-py client that never uses a connection again on which a reply is still to come.

    A signal's handler may raise between sending and reading; redis-py then gives the connection back to its
    pool as it is, and the next request would read the wrong reply.
    """
    redis = library("redis", "redis")
    base: Any = redis.ConnectionPool

    class Pool(base):  # type: ignore[misc]
        def get_connection(self, *arguments: Any, **keywords: Any) -> Any:
            connection = super().get_connection(*arguments, **keywords)
            connection.evenbins_handled = sys.exc_info()[1]  # the caller may be handling one of its own
            return connection

        def release(self, connection: Any) -> None:
            error = sys.exc_info()[1]
            handled = getattr(connection, "evenbins_handled", None)
            connection.evenbins_handled = None
            if error is not handled and not isinstance(error, redis.ResponseError):
                connection.disconnect()
            super().release(connection)

    return redis.Redis.from_pool(Pool.from_url(url, **options))


class _Sharded(FleetClient):
    """The rules, for both clients: steps that yield what the clients of redis-py return (see `_steps`)."""

    _fleet: Any  # Fleet or AsyncFleet
    _library: ClassVar[str]
    _make_fleet: ClassVar[Callable[..., Any]]
    _run: Any  # run or run_async

    def __init__(
        self, servers: Iterable[str], *, limit: int | None = None, epsilon: float | None = None,
        weights: Mapping[str, float] | None = None, seed: int = 0, wait: float = 1.0, timeout: float = 1.0,
        connect_timeout: float = 1.0, failures: int = 2, backoff: Backoff | None = None,
        flush_returning: bool = False, on_change: Callable[[str, str], object] | None = None,
        **client_options: Any,
    ) -> None:  # fmt: skip
        addresses = address_list(servers)
        if client_options.pop("single_connection_client", False):
            raise ValueError("single_connection_client must be left out: a call may need its own connection")
        exceptions = library("redis.exceptions", "redis")
        self._broken = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
        self._refusal: type[Exception] = exceptions.ResponseError
        retry = library(self._library + ".retry", "redis").Retry
        never = retry(library("redis.backoff", "redis").NoBackoff(), 0)  # this client repeats, not that one
        self._options = {
            "max_connections": _MANY_CONNECTIONS, "retry": never, "socket_timeout": timeout,
            "socket_connect_timeout": connect_timeout, **client_options,
        }  # fmt: skip
        clients = [self._client_for(each) for each in addresses]
        self._clients: dict[str, Any] = dict(clients)
        self._flush_returning = flush_returning
        self._fleet = self._make_fleet(
            [name for name, _ in clients], probe=lambda name: self._run(self._probe(name)),
            broken=self._broken, on_change=on_change, epsilon=epsilon, limit=limit, weights=weights,
            seed=seed, when_full="wait", wait=wait, failures=failures, backoff=backoff,
        )  # fmt: skip

    def _make_client(self, url: str) -> Any:
        return library(self._library, "redis").Redis.from_url(url, **self._options)

    def _client_for(self, server: object) -> tuple[str, Any]:
        """Return a server's name, and a new client for it, which has no connection yet."""
        if not isinstance(server, str):
            raise TypeError(f"a server must be 'host:port' or a URL, not {server!r}")
        url = server if "://" in server else "redis://" + server
        name = _without_password(url) if "://" in server else server
        return name, self._make_client(url)

    def server_for(self, key: RedisKey) -> str:
        """Return the server that a key belongs to now."""
        return super().server_for(stored_key(key))

    def client(self, server: str) -> Any:
        """Return the redis-py client of one server, for commands that this class lacks."""
        return self._clients[server]

    def add_server(self, server: str, weight: float = 1.0) -> None:
        """Add a server: it takes its share of keys from all others, whose values stay behind."""
        name, client = self._client_for(server)
        self._fleet.health.add(name, weight, prepared=entry(self._clients, name, client))

    def remove_server(self, server: str) -> None:
        """Remove a server for good."""
        self._fleet.health.remove(server)

    def undrain(self, server: str) -> None:
        """Use a drained server again."""
        self._fleet.health.undrain(server)

    def _drain(self, server: str, timeout: float | None = 10.0) -> Steps[bool]:
        """Send nothing more to a server; wait for what is under way, False if longer than `timeout`."""
        drained: bool = yield self._fleet.drain(server, timeout)
        return drained

    def _servers_to_scan(self, partial: bool) -> list[str]:
        status = self._fleet.health.status()
        down = [name for name, each in status.items() if not each["alive"]]
        if down and not partial:
            raise ServerDownError(
                down[0], f"server {down[0]} is down: a scan would miss its keys; pass partial=True"
            )
        return [name for name in status if name not in down]

    def _probe(self, name: str) -> Steps[None]:
        client = self._clients[name]
        yield client.connection_pool.disconnect(inuse_connections=False)
        yield client.ping()
        if self._flush_returning:
            yield client.flushdb()

    def _get(self, key: RedisKey) -> Steps[Any]:
        """Return a value; None if the key does not exist."""
        return (yield from self._ask(key, lambda client, stored: client.get(stored)))

    def _set(
        self,
        key: RedisKey,
        value: Any,
        ex: int | None = None,
        px: int | None = None,
        nx: bool = False,
        xx: bool = False,
        keepttl: bool = False,
        get: bool = False,
    ) -> Steps[Any]:
        """Store a value; arguments and answers are those of redis-py."""
        options = {"ex": ex, "px": px, "nx": nx, "xx": xx, "keepttl": keepttl, "get": get}
        once = nx or xx or get
        return (
            yield from self._ask(key, lambda client, stored: client.set(stored, value, **options), once=once)
        )

    def _delete(self, *keys: RedisKey) -> Steps[int]:
        """Delete keys; return how many existed."""
        answers = yield from self._ask_all(keys, lambda client, group: client.delete(*group))
        return sum(count for _, count in answers)

    def _exists(self, *keys: RedisKey) -> Steps[int]:
        """Count the keys that exist, repeated ones too."""
        answers = yield from self._ask_all(keys, lambda client, group: client.exists(*group))
        return sum(count for _, count in answers)

    def _expire(self, key: RedisKey, time: int) -> Steps[bool]:
        """Let a key expire after `time` seconds; return whether it exists."""
        return bool((yield from self._ask(key, lambda client, stored: client.expire(stored, time))))

    def _ttl(self, key: RedisKey) -> Steps[int]:
        """Return the seconds that a key has left; -1: no expiry; -2: no key."""
        return int((yield from self._ask(key, lambda client, stored: client.ttl(stored))))

    def _incr(self, key: RedisKey, amount: int = 1) -> Steps[int]:
        """Add to a counter; return the sum."""
        total = yield from self._ask(key, lambda client, stored: client.incrby(stored, amount), once=True)
        return int(total)

    def _mget(self, keys: Iterable[RedisKey]) -> Steps[list[Any]]:
        """Return the values of keys, in their order: one request to each server concerned."""
        wanted = [stored_key(key) for key in keys]
        answers = yield from self._ask_all(dict.fromkeys(wanted), lambda client, group: client.mget(group))
        values = {key: value for group, found in answers for key, value in zip(group, found, strict=True)}
        return [values[key] for key in wanted]

    def _mset(self, mapping: Mapping[RedisKey, Any]) -> Steps[bool]:
        """Store many values: atomic on each server, not over all of them."""
        stored = {stored_key(key): value for key, value in mapping.items()}
        yield from self._ask_all(
            stored, lambda client, group: client.mset({key: stored[key] for key in group})
        )
        return True

    @contextlib.contextmanager
    def _at(self, node: str) -> Iterator[Any]:
        """Yield a server's client; an error reply of the server gets a note with its name."""
        try:
            yield self._clients[node]
        except self._refusal as error:
            self._note_server(node, error)
            raise

    def _note_server(self, node: str, answer: Any) -> Any:
        if isinstance(answer, self._refusal):
            answer.add_note(f"server {node}: {way_out(answer)}")
        return answer

    def _ask(
        self, key: RedisKey, operate: Callable[[Any, StoredKey], Any], *, once: bool = False
    ) -> Steps[Any]:
        """Send a request that may be repeated; `once`: only if the server has not seen it."""
        stored = stored_key(key)

        def ask(node: str) -> Steps[Any]:
            if once:
                yield from self._connect(node)
            with self._at(node) as client:
                return (yield operate(client, stored))

        options = {"again": never_sent} if once else {}
        return (yield self._fleet.call(stored, lambda node: self._run(ask(node)), **options))

    def _ask_all(
        self, keys: Iterable[RedisKey], operate: Callable[[Any, list[StoredKey]], Any]
    ) -> Steps[list[tuple[list[StoredKey], Any]]]:
        """Send one request to each server concerned; return the keys of each and its answer."""
        answers: list[tuple[list[StoredKey], Any]] = []
        stored = [stored_key(key) for key in keys]

        def ask(node: str, group: list[StoredKey]) -> Steps[None]:
            with self._at(node) as client:
                answers.append((group, (yield operate(client, group))))

        yield self._fleet.call_many(stored, lambda node, group: self._run(ask(node, group)))
        return answers

    def _connect(self, node: str) -> Steps[None]:
        """Have a living connection ready: what fails here was not sent."""
        pool = self._clients[node].connection_pool
        try:
            yield pool.release((yield pool.get_connection()))
        except self._broken as error:
            raise NotSentError(str(error)) from error


class ShardedRedis(_Sharded, Closing):
    """A client of many independent Redis servers; safe for threads.

    Parameters
    ----------
    servers
        "host:port", or URLs such as "redis://user:password@host:6379/0", "rediss://…", "unix://…". A server's
        name is its address as given, without the password.
    limit, epsilon, weights, seed
        The bound of requests in flight at each server, and the ring's weights and seed, as for `HashRing`. By
        default 64 a server. A batch or pipeline to one server counts one.
    wait
        Seconds to wait for room, at most.
    timeout, connect_timeout
        Seconds for each answer, and for a connection.
    failures, backoff
        Failures in a row after which a server is down, and attempts of one request at it, at most; the
        delays between its probes.
    flush_returning
        Empty a server (its selected database) before it serves again after a failure.
    on_change
        Called with (server, state): "up", "down", "draining", "removed".
    **client_options
        More for `redis.Redis`: decode_responses, username, ssl …

    Raises
    ------
    ServerDownError
        From requests that are not safe to repeat, if their server died under them.
    evenbins.RingFullError, evenbins.NoNodesError
        No room in time; no server is alive.
    ImportError
        redis is not installed.
    """

    _library = "redis"
    _make_fleet = Fleet
    _run = staticmethod(run)

    def _make_client(self, url: str) -> Any:
        return _thread_client(url, **self._options)

    get = blocking(_Sharded._get)
    set = blocking(_Sharded._set)
    delete = blocking(_Sharded._delete)
    exists = blocking(_Sharded._exists)
    expire = blocking(_Sharded._expire)
    ttl = blocking(_Sharded._ttl)
    incr = blocking(_Sharded._incr)
    mget = blocking(_Sharded._mget)
    mset = blocking(_Sharded._mset)
    drain = blocking(_Sharded._drain)

    def pipeline(self) -> Pipeline:
        """Collect commands and send them at once, one pipeline to each server."""
        return Pipeline(self)

    def scan_iter(
        self, match: str | None = None, count: int | None = None, *, partial: bool = False
    ) -> Iterator[Any]:
        """Yield the keys of all servers, drained ones too; a key left behind by a failure comes twice.

        Parameters
        ----------
        match, count
            As for redis-py.
        partial
            Leave out servers that are down, instead of raising ServerDownError.
        """
        for name in self._servers_to_scan(partial):
            yield from self._clients[name].scan_iter(match=match, count=count)

    def close(self) -> None:
        """Close all connections and end the probes."""
        self._fleet.close()
        for client in self._clients.values():
            client.close()


class AsyncShardedRedis(_Sharded, AsyncClosing):
    """A client of many independent Redis servers for asyncio: `ShardedRedis` in one event loop.

    Parameters are those of `ShardedRedis`. Batches go to all servers at once.
    """

    _library = "redis.asyncio"
    _make_fleet = AsyncFleet
    _run = staticmethod(run_async)

    get = awaitable(_Sharded._get)
    set = awaitable(_Sharded._set)
    delete = awaitable(_Sharded._delete)
    exists = awaitable(_Sharded._exists)
    expire = awaitable(_Sharded._expire)
    ttl = awaitable(_Sharded._ttl)
    incr = awaitable(_Sharded._incr)
    mget = awaitable(_Sharded._mget)
    mset = awaitable(_Sharded._mset)
    drain = awaitable(_Sharded._drain)

    def pipeline(self) -> AsyncPipeline:
        """Collect commands and send them at once, one pipeline to each server."""
        return AsyncPipeline(self)

    async def scan_iter(
        self, match: str | None = None, count: int | None = None, *, partial: bool = False
    ) -> AsyncIterator[Any]:
        """Yield the keys of all servers, as `ShardedRedis.scan_iter` does."""
        for name in self._servers_to_scan(partial):
            async for key in self._clients[name].scan_iter(match=match, count=count):
                yield key

    async def close(self) -> None:
        """Close all connections and end the probes."""
        await self._fleet.close()
        for client in self._clients.values():
            await client.aclose()


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))

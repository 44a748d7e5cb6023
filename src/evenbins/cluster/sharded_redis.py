"""Keys on independent Redis or Valkey servers, chosen by a ring: no cluster mode, no agreement among them.

    ShardedRedis(["10.0.0.1:6379", "10.0.0.2:6379"])      for threads
    AsyncShardedRedis([...])                               the same for asyncio

Each key is on one server; requests that find it full wait (a jump for room, as the memcached client has it,
would make copies of things that should exist once). On failure it behaves as that client does: the server is
marked down, its keys jump, each to a server of its own; it is probed with growing delays; then its keys
return.

What that means for data. Nothing is copied between servers. While a server is down its keys look absent, and
what is written to them meanwhile stays behind on other servers when it returns, with its old values (a read
never looks there; `scan_iter` does). That suits caches, sessions, rate limits. Who must not lose writes needs
replication, and takes Redis Sentinel or Cluster. `flush_returning=True` empties a server before it serves
again: no old value then.

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
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from evenbins.cluster._libraries import library
from evenbins.cluster.fleet import AsyncFleet, Fleet
from evenbins.cluster.health import Backoff, ServerDownError
from evenbins.cluster.redis_errors import way_out
from evenbins.rings import HashRing

__all__ = ["AsyncPipeline", "AsyncShardedRedis", "Pipeline", "ShardedRedis"]

_Key = str | bytes
_MANY_CONNECTIONS = 2**20  # the ring's limit holds, not the pool's


class _NotSentError(ConnectionError):
    """There was no connection: the server has not seen the request."""


def _never_sent(error: BaseException) -> bool:
    return isinstance(error, _NotSentError)


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


class _Sharded:
    """What both clients share: addresses, clients, options."""

    _fleet: Fleet | AsyncFleet

    def __init__(self, servers: Iterable[str], module: str, options: dict[str, Any]) -> None:
        if isinstance(servers, str | bytes) or not isinstance(servers, Iterable):
            raise TypeError(
                f"servers must be several addresses, not one {type(servers).__name__}; use a list"
            )
        if options.pop("single_connection_client", False):
            raise ValueError("single_connection_client must be left out: a call may need its own connection")
        self._make: Callable[..., Any] = library(module, "redis").Redis.from_url
        if not module.endswith("asyncio"):
            self._make = _thread_client
        retry = library(module + ".retry" if module.endswith("asyncio") else "redis.retry", "redis").Retry
        exceptions = library("redis.exceptions", "redis")
        never = retry(library("redis.backoff", "redis").NoBackoff(), 0)  # this client repeats, not that one
        self._options = {"max_connections": _MANY_CONNECTIONS, "retry": never, **options}
        self._broken = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
        self._refusal: type[Exception] = exceptions.ResponseError
        self._clients: dict[str, Any] = {}
        self._names = [self._met(each) for each in servers]

    def _met(self, server: object) -> str:
        if not isinstance(server, str):
            raise TypeError(f"a server must be 'host:port' or a URL, not {server!r}")
        url = server if "://" in server else "redis://" + server
        name = _without_password(url) if "://" in server else server
        self._clients[name] = self._make(url, **self._options)
        return name

    @contextlib.contextmanager
    def _at(self, node: str) -> Iterator[Any]:
        """Give a server's client; what the server refuses gets its name."""
        try:
            yield self._clients[node]
        except self._refusal as error:
            self._noted(node, error)
            raise

    def _noted(self, node: str, answer: Any) -> Any:
        if isinstance(answer, self._refusal):
            answer.add_note(f"server {node}: {way_out(answer)}")
        return answer

    @property
    def ring(self) -> HashRing:
        """The ring, for looking: servers come and go by this client's methods."""
        return self._fleet.ring

    def client(self, server: str) -> Any:
        """Give the redis-py client of one server, for commands that this class lacks."""
        return self._clients[server]

    def server_for(self, key: _Key) -> str:
        """Give the server that a key belongs to now."""
        name: str = self._fleet.ring.node(key)
        return name

    def status(self) -> dict[str, Any]:
        """Give for each server state, requests in flight, failures, error; and jumps and repeats so far."""
        return self._fleet.status()

    def add_server(self, server: str, weight: float = 1.0) -> None:
        """Add a server: it takes its share of keys from all others, whose values stay behind."""
        self._fleet.health.add(self._met(server), weight)

    def remove_server(self, server: str) -> None:
        """Remove a server for good."""
        self._fleet.health.remove(server)

    def undrain(self, server: str) -> None:
        """Use a drained server again."""
        self._fleet.health.undrain(server)

    def _scanned(self, partial: bool) -> list[str]:
        status = self._fleet.health.status()
        down = [name for name, each in status.items() if not each["alive"]]
        if down and not partial:
            raise ServerDownError(
                down[0], f"server {down[0]} is down: a scan would miss its keys; pass partial=True"
            )
        return [name for name in status if name not in down]


class ShardedRedis(_Sharded):
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
        A server is down after so many failures in a row, and one request tries it so often, at most; the
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

    _fleet: Fleet

    def __init__(
        self,
        servers: Iterable[str],
        *,
        limit: int | None = None,
        epsilon: float | None = None,
        weights: Mapping[str, float] | None = None,
        seed: int = 0,
        wait: float = 1.0,
        timeout: float = 1.0,
        connect_timeout: float = 1.0,
        failures: int = 2,
        backoff: Backoff | None = None,
        flush_returning: bool = False,
        on_change: Callable[[str, str], object] | None = None,
        **client_options: Any,
    ) -> None:
        options = {"socket_timeout": timeout, "socket_connect_timeout": connect_timeout, **client_options}
        super().__init__(servers, "redis", options)
        self._flush_returning = flush_returning
        self._fleet = Fleet(
            self._names, probe=self._probe, broken=self._broken, on_change=on_change, epsilon=epsilon,
            limit=limit, weights=weights, seed=seed, when_full="wait", wait=wait, failures=failures,
            backoff=backoff,
        )  # fmt: skip

    def get(self, key: _Key) -> Any:
        """Give a value; None if there is none."""
        return self._safe(key, lambda client: client.get(key))

    def set(
        self,
        key: _Key,
        value: Any,
        ex: int | None = None,
        px: int | None = None,
        nx: bool = False,
        xx: bool = False,
        keepttl: bool = False,
        get: bool = False,
    ) -> Any:
        """Store a value; arguments and answers are those of redis-py."""
        run = self._once if nx or xx or get else self._safe
        return run(
            key, lambda client: client.set(key, value, ex=ex, px=px, nx=nx, xx=xx, keepttl=keepttl, get=get)
        )

    def delete(self, *keys: _Key) -> int:
        """Delete keys; give how many were there."""
        return self._sum(keys, lambda client, group: client.delete(*group))

    def exists(self, *keys: _Key) -> int:
        """Count the keys that are there, repeats too."""
        return self._sum(keys, lambda client, group: client.exists(*group))

    def expire(self, key: _Key, time: int) -> bool:
        """Let a key end after so many seconds; tells whether it is there."""
        return bool(self._safe(key, lambda client: client.expire(key, time)))

    def ttl(self, key: _Key) -> int:
        """Give the seconds that a key has left; -1: no end; -2: no key."""
        return int(self._safe(key, lambda client: client.ttl(key)))

    def incr(self, key: _Key, amount: int = 1) -> int:
        """Add to a counter; give the sum."""
        return int(self._once(key, lambda client: client.incrby(key, amount)))

    def mget(self, keys: Iterable[_Key]) -> list[Any]:
        """Give the values of keys, in their order: one request to each server concerned."""
        wanted = list(keys)
        found: dict[_Key, Any] = {}

        def fetch(node: str, group: list[_Key]) -> None:
            with self._at(node) as client:
                found.update(zip(group, client.mget(group), strict=True))

        self._fleet.call_many(dict.fromkeys(wanted), fetch)
        return [found[key] for key in wanted]

    def mset(self, mapping: Mapping[_Key, Any]) -> bool:
        """Store many values: atomic on each server, not over all of them."""

        def store(node: str, group: list[_Key]) -> None:
            with self._at(node) as client:
                client.mset({key: mapping[key] for key in group})

        self._fleet.call_many(list(mapping), store)
        return True

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
        for name in self._scanned(partial):
            yield from self._clients[name].scan_iter(match=match, count=count)

    def drain(self, server: str, timeout: float | None = 10.0) -> bool:
        """Send nothing more to a server; wait for what is under way, False if longer than `timeout`."""
        return self._fleet.drained(server, timeout)

    def close(self) -> None:
        """Close all connections and end the probes."""
        self._fleet.close()
        for client in self._clients.values():
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _safe(self, key: _Key, operate: Callable[[Any], Any]) -> Any:
        return self._fleet.call(key, lambda node: self._asked(node, operate))

    def _asked(self, node: str, operate: Callable[[Any], Any]) -> Any:
        with self._at(node) as client:
            return operate(client)

    def _once(self, key: _Key, operate: Callable[[Any], Any]) -> Any:
        def connected(node: str) -> Any:
            self._connect(node)
            return self._asked(node, operate)

        return self._fleet.call(key, connected, again=_never_sent)

    def _connect(self, node: str) -> None:
        """Have a living connection ready: what fails here was not sent."""
        pool = self._clients[node].connection_pool
        try:
            pool.release(pool.get_connection())
        except self._broken as error:
            raise _NotSentError(str(error)) from error

    def _sum(self, keys: Iterable[_Key], operate: Callable[[Any, list[_Key]], int]) -> int:
        total: list[int] = []

        def add(node: str, group: list[_Key]) -> None:
            with self._at(node) as client:
                total.append(operate(client, group))

        self._fleet.call_many(keys, add)
        return sum(total)

    def _probe(self, name: str) -> None:
        client = self._clients[name]
        client.connection_pool.disconnect(inuse_connections=False)
        client.ping()
        if self._flush_returning:
            client.flushdb()


class _Commands:
    """Commands with their keys, in order; the methods are those of redis-py that have one key."""

    def __init__(self) -> None:
        self._queued: list[tuple[str, _Key, tuple[Any, ...], dict[str, Any]]] = []

    def command(self, name: str, key: _Key, *arguments: Any, **options: Any) -> Self:
        """Queue any method of redis-py whose first argument is the key."""
        self._queued.append((name, key, arguments, options))
        return self

    def get(self, key: _Key) -> Self:
        """Queue `get`."""
        return self.command("get", key)

    def set(self, key: _Key, value: Any, **options: Any) -> Self:
        """Queue `set`."""
        return self.command("set", key, value, **options)

    def delete(self, key: _Key) -> Self:
        """Queue `delete` of one key."""
        return self.command("delete", key)

    def exists(self, key: _Key) -> Self:
        """Queue `exists` of one key."""
        return self.command("exists", key)

    def expire(self, key: _Key, time: int) -> Self:
        """Queue `expire`."""
        return self.command("expire", key, time)

    def incr(self, key: _Key, amount: int = 1) -> Self:
        """Queue `incr`."""
        return self.command("incrby", key, amount)

    def __len__(self) -> int:
        return len(self._queued)

    def _by_key(self) -> dict[_Key, list[int]]:
        numbers: dict[_Key, list[int]] = {}
        for number, (_, key, _, _) in enumerate(self._queued):
            numbers.setdefault(key, []).append(number)
        return numbers

    def _filled(self, pipe: Any, numbers: list[int]) -> Any:
        for number in numbers:
            name, key, arguments, options = self._queued[number]
            getattr(pipe, name)(key, *arguments, **options)
        return pipe

    @staticmethod
    def _checked(answers: list[Any], raise_on_error: bool) -> list[Any]:
        if raise_on_error:
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
        return answers


class Pipeline(_Commands):
    """Commands of `ShardedRedis.pipeline`: one redis-py pipeline a server, no transaction over servers."""

    def __init__(self, client: ShardedRedis) -> None:
        super().__init__()
        self._client = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Send all commands and return the answers in their order; the pipeline is empty then.

        Parts of several servers are independent: one that fails does not keep the others from being done.

        Parameters
        ----------
        raise_on_error
            Raise the first error among the answers. If False, each error is the answer to its command.

        Raises
        ------
        ServerDownError
            A server died under its part, which may have been done or not; parts of other servers are done.
        """
        numbers = self._by_key()
        answers: list[Any] = [None] * len(self._queued)

        def send(node: str, keys: list[_Key]) -> None:
            self._client._connect(node)
            mine = sorted(number for key in keys for number in numbers[key])
            pipe = self._filled(self._client._clients[node].pipeline(transaction=False), mine)
            for number, answer in zip(mine, pipe.execute(raise_on_error=False), strict=True):
                answers[number] = self._client._noted(node, answer)

        def failed(keys: list[_Key], error: Exception) -> None:
            for key in keys:
                for number in numbers[key]:
                    answers[number] = error

        try:
            self._client._fleet.call_many(list(numbers), send, again=_never_sent, failed=failed)
        finally:
            self._queued = []
        return self._checked(answers, raise_on_error)


class AsyncShardedRedis(_Sharded):
    """A client of many independent Redis servers for asyncio: `ShardedRedis` in one event loop.

    Parameters are those of `ShardedRedis`. Batches go to all servers at once.
    """

    _fleet: AsyncFleet

    def __init__(
        self,
        servers: Iterable[str],
        *,
        limit: int | None = None,
        epsilon: float | None = None,
        weights: Mapping[str, float] | None = None,
        seed: int = 0,
        wait: float = 1.0,
        timeout: float = 1.0,
        connect_timeout: float = 1.0,
        failures: int = 2,
        backoff: Backoff | None = None,
        flush_returning: bool = False,
        on_change: Callable[[str, str], object] | None = None,
        **client_options: Any,
    ) -> None:
        options = {"socket_timeout": timeout, "socket_connect_timeout": connect_timeout, **client_options}
        super().__init__(servers, "redis.asyncio", options)
        self._flush_returning = flush_returning
        self._fleet = AsyncFleet(
            self._names, probe=self._probe, broken=self._broken, on_change=on_change, epsilon=epsilon,
            limit=limit, weights=weights, seed=seed, when_full="wait", wait=wait, failures=failures,
            backoff=backoff,
        )  # fmt: skip

    async def get(self, key: _Key) -> Any:
        """Give a value; None if there is none."""
        return await self._safe(key, lambda client: client.get(key))

    async def set(
        self,
        key: _Key,
        value: Any,
        ex: int | None = None,
        px: int | None = None,
        nx: bool = False,
        xx: bool = False,
        keepttl: bool = False,
        get: bool = False,
    ) -> Any:
        """Store a value; arguments and answers are those of redis-py."""
        run = self._once if nx or xx or get else self._safe
        return await run(
            key, lambda client: client.set(key, value, ex=ex, px=px, nx=nx, xx=xx, keepttl=keepttl, get=get)
        )

    async def delete(self, *keys: _Key) -> int:
        """Delete keys; give how many were there."""
        return await self._sum(keys, lambda client, group: client.delete(*group))

    async def exists(self, *keys: _Key) -> int:
        """Count the keys that are there, repeats too."""
        return await self._sum(keys, lambda client, group: client.exists(*group))

    async def expire(self, key: _Key, time: int) -> bool:
        """Let a key end after so many seconds; tells whether it is there."""
        return bool(await self._safe(key, lambda client: client.expire(key, time)))

    async def ttl(self, key: _Key) -> int:
        """Give the seconds that a key has left; -1: no end; -2: no key."""
        return int(await self._safe(key, lambda client: client.ttl(key)))

    async def incr(self, key: _Key, amount: int = 1) -> int:
        """Add to a counter; give the sum."""
        return int(await self._once(key, lambda client: client.incrby(key, amount)))

    async def mget(self, keys: Iterable[_Key]) -> list[Any]:
        """Give the values of keys, in their order: one request to each server concerned."""
        wanted = list(keys)
        found: dict[_Key, Any] = {}

        async def fetch(node: str, group: list[_Key]) -> None:
            with self._at(node) as client:
                found.update(zip(group, await client.mget(group), strict=True))

        await self._fleet.call_many(dict.fromkeys(wanted), fetch)
        return [found[key] for key in wanted]

    async def mset(self, mapping: Mapping[_Key, Any]) -> bool:
        """Store many values: atomic on each server, not over all of them."""

        async def store(node: str, group: list[_Key]) -> None:
            with self._at(node) as client:
                await client.mset({key: mapping[key] for key in group})

        await self._fleet.call_many(list(mapping), store)
        return True

    def pipeline(self) -> AsyncPipeline:
        """Collect commands and send them at once, one pipeline to each server."""
        return AsyncPipeline(self)

    async def scan_iter(
        self, match: str | None = None, count: int | None = None, *, partial: bool = False
    ) -> AsyncIterator[Any]:
        """Yield the keys of all servers, as `ShardedRedis.scan_iter` does."""
        for name in self._scanned(partial):
            async for key in self._clients[name].scan_iter(match=match, count=count):
                yield key

    async def drain(self, server: str, timeout: float | None = 10.0) -> bool:
        """Send nothing more to a server; wait for what is under way, False if longer than `timeout`."""
        return await self._fleet.drained(server, timeout)

    async def close(self) -> None:
        """Close all connections and end the probes."""
        await self._fleet.close()
        for client in self._clients.values():
            await client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _safe(self, key: _Key, operate: Callable[[Any], Any]) -> Any:
        return await self._fleet.call(key, lambda node: self._asked(node, operate))

    async def _asked(self, node: str, operate: Callable[[Any], Any]) -> Any:
        with self._at(node) as client:
            return await operate(client)

    async def _once(self, key: _Key, operate: Callable[[Any], Any]) -> Any:
        async def connected(node: str) -> Any:
            await self._connect(node)
            return await self._asked(node, operate)

        return await self._fleet.call(key, connected, again=_never_sent)

    async def _connect(self, node: str) -> None:
        """Have a living connection ready: what fails here was not sent."""
        pool = self._clients[node].connection_pool
        try:
            await pool.release(await pool.get_connection())
        except self._broken as error:
            raise _NotSentError(str(error)) from error

    async def _sum(self, keys: Iterable[_Key], operate: Callable[[Any, list[_Key]], Any]) -> int:
        total: list[int] = []

        async def add(node: str, group: list[_Key]) -> None:
            with self._at(node) as client:
                total.append(await operate(client, group))

        await self._fleet.call_many(keys, add)
        return sum(total)

    async def _probe(self, name: str) -> None:
        client = self._clients[name]
        await client.connection_pool.disconnect(inuse_connections=False)
        await client.ping()
        if self._flush_returning:
            await client.flushdb()


class AsyncPipeline(_Commands):
    """Commands of `AsyncShardedRedis.pipeline`."""

    def __init__(self, client: AsyncShardedRedis) -> None:
        super().__init__()
        self._client = client

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Send all commands and give the answers in their order, as `Pipeline.execute` does."""
        numbers = self._by_key()
        answers: list[Any] = [None] * len(self._queued)

        async def send(node: str, keys: list[_Key]) -> None:
            await self._client._connect(node)
            mine = sorted(number for key in keys for number in numbers[key])
            pipe = self._filled(self._client._clients[node].pipeline(transaction=False), mine)
            for number, answer in zip(mine, await pipe.execute(raise_on_error=False), strict=True):
                answers[number] = self._client._noted(node, answer)

        def failed(keys: list[_Key], error: Exception) -> None:
            for key in keys:
                for number in numbers[key]:
                    answers[number] = error

        try:
            await self._client._fleet.call_many(list(numbers), send, again=_never_sent, failed=failed)
        finally:
            self._queued = []
        return self._checked(answers, raise_on_error)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))

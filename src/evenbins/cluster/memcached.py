"""Keys on memcached servers: a hasher for pymemcache's client, and a client that knows limits and failures.

    HashClient(servers, hasher=RingHasher)     pymemcache's client; the ring only chooses servers
    RingMemcache(servers)                      one client for threads: leases, jumps, back-off, probes, drain

A cache may forget, so a dead server is no error: its keys jump, each to a server of its own, and return when
it does. What must never happen is that an old value comes back. Three ways lead there, and what is done about
them:

- A server that was unreachable, but kept its memory, returns with values from before. It is flushed before it
  serves again (`flush_returning`); one that restarted has little to lose by it.
- A request whose connection was cut went to another server, while its own is up with the old value: a request
  stays with its server until that is marked down.
- A server that was full let reads and `set` jump: copies of one key on several servers. `delete` goes to all
  of them. `set` replaces one copy; those elsewhere live until they expire. Where that matters delete first,
  or take `when_full="wait"`, under which a key is on one server only.

Whatever changes what is there (`add`, `incr`, `cas` …) waits for the key's own server and never jumps for
room.

Repeats. Reads, `set`, `delete` and `touch` are repeated. The others only if nothing was sent: a connection is
looked at before it is used, so what fails is what was under way when the server died (ServerDownError). A
server that holds a request back, and executes it after all when the client has gone elsewhere, is beyond any
client: it is flushed when it returns, and what it executes after that stays.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from evenbins.cluster._forks import reset_in_children
from evenbins.cluster._steps import Closing
from evenbins.cluster.fleet import Fleet, FleetClient, NotSentError, address_list, entry, never_sent
from evenbins.cluster.health import Backoff, ServerDownError, notify
from evenbins.cluster.libraries import library
from evenbins.rings import HashRing, NoNodesError

__all__ = ["RingHasher", "RingMemcache"]

_T = TypeVar("_T")
_Key = str | bytes
_Address = str | tuple[str, int]


class RingHasher:
    """Chooses servers for `pymemcache.client.hash.HashClient`: pass the class, or a partial, as `hasher`.

    The client adds its servers one by one; the ring is made when the first key comes, from all of them, so
    that their order makes no difference. The client calls `remove_node` for a server it takes for dead, and
    `add_node` when it tries it again: that is `mark_down` and `mark_up`, so its keys wait for it and no other
    key moves. To remove a server for good, use `forget`.

    Parameters
    ----------
    weights, seed
        As for `HashRing`.

    Examples
    --------
    >>> hasher = RingHasher()
    >>> for server in ("b:11211", "a:11211", "c:11211"):
    ...     hasher.add_node(server)
    >>> home = hasher.get_node("key")
    >>> hasher.remove_node(home)                           # HashClient: it does not answer
    >>> hasher.get_node("key") == home
    False
    >>> hasher.add_node(home); hasher.get_node("key") == home
    True
    """

    def __init__(self, *, weights: Mapping[str, float] | None = None, seed: int = 0) -> None:
        self._weights, self._seed = dict(weights or {}), seed
        self._first: dict[str, bool] = {}  # name: alive; before the ring is made
        self._ring: HashRing | None = None
        self._lock = threading.RLock()  # a signal's handler may come in
        reset_in_children(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.RLock()

    @property
    def ring(self) -> HashRing:
        """The ring; made by the first use."""
        with self._lock:
            if self._ring is None:
                weights = {name: weight for name, weight in self._weights.items() if name in self._first}
                ring = HashRing(self._first, weights=weights, seed=self._seed)
                for name, alive in self._first.items():
                    if not alive:
                        ring.mark_down(name)
                self._ring = ring if self._ring is None else self._ring
            return self._ring

    def add_node(self, node: str) -> None:
        """Add a server; one that is there is marked up."""
        if self._ring is None:
            self._first[node] = True
        elif node in self._ring:
            self._ring.mark_up(node)
        else:
            self._ring.add_node(node, self._weights.get(node, 1.0))

    def remove_node(self, node: str) -> None:
        """Mark a server down; ValueError if it is not there (as in pymemcache's own hasher)."""
        if self._ring is None and node in self._first:
            self._first[node] = False
        elif self._ring is not None and node in self._ring:
            self._ring.mark_down(node)
        else:
            raise ValueError(f"no such server: {node!r}")

    def get_node(self, key: _Key) -> str | None:
        """Return the server of a key; None if none is alive."""
        try:
            name: str = (self._ring or self.ring).node(key)
            return name
        except NoNodesError:
            return None

    def forget(self, node: str) -> None:
        """Remove a server for good: should it return, it is a new one."""
        self.ring.remove_node(node)


class _Pool:
    """Connections to one server; each is used by one call at a time.

    A connection is in the list only while nothing is under way on it, so a call of a signal's handler takes
    another one. The lock lets a handler in; a child process begins with an empty list.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._idle: list[Any] = []
        self._life = 0
        self._lock = threading.RLock()
        reset_in_children(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.RLock()
        self.clear()  # closes the child's descriptors: the parent's connections stay

    def use(self, operate: Callable[[Any], _T]) -> _T:
        with self._lock:
            life = self._life
        client = self._take()
        try:
            answer = operate(client)
        except BaseException:
            client.close()
            raise
        with self._lock:
            if life == self._life:
                self._idle.append(client)
                return answer
        client.close()
        return answer

    def _take(self) -> Any:
        while True:
            try:
                client = self._idle.pop()
            except IndexError:
                return self._connect()
            if _is_alive(client.sock):
                return client
            client.close()

    def _connect(self) -> Any:
        client = self._make()
        try:
            client.version()
        except Exception as error:
            client.close()
            raise NotSentError(f"cannot connect: {type(error).__name__}: {error}") from error
        return client

    def clear(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
            self._life += 1
        for client in idle:
            client.close()


def _is_alive(sock: Any) -> bool:
    """Return whether an idle connection is alive: on a dead one there is an end to be read."""
    if sock is None:
        return False
    poll = select.poll()
    try:
        poll.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
        return not poll.poll(0)
    except (OSError, ValueError):
        return False


class RingMemcache(FleetClient, Closing):
    """A memcached client over many servers, each with a limit of requests in flight; safe for threads.

    Methods are pymemcache's, with the same arguments; `noreply` is off unless asked for, because a request
    without an answer cannot be repeated when its server dies.

    Parameters
    ----------
    servers
        "host:port", (host, port), or the path of a Unix socket.
    limit, epsilon, weights, seed, wait, timeout, connect_timeout, failures, backoff, on_change
        As for `evenbins.cluster.sharded_redis.ShardedRedis`.
    when_full
        "jump": reads and `set` go to the key's next server. "wait": they wait for their own.
    flush_returning
        Empty a server that comes back, after a failure or a drain, so that no old value does.
    **client_options
        More for `pymemcache.client.base.Client`: serde, key_prefix, allow_unicode_keys, tls_context …

    Requests raise what those of `ShardedRedis` do.
    """

    def __init__(
        self, servers: Iterable[_Address], *, limit: int | None = None, epsilon: float | None = None,
        weights: Mapping[str, float] | None = None, seed: int = 0, when_full: str = "jump",
        wait: float = 1.0, timeout: float = 1.0, connect_timeout: float = 1.0, failures: int = 2,
        backoff: Backoff | None = None, flush_returning: bool = True,
        on_change: Callable[[str, str], object] | None = None, **client_options: Any,
    ) -> None:  # fmt: skip
        self._client_class = library("pymemcache.client.base", "memcached").Client
        closed = library("pymemcache.exceptions", "memcached").MemcacheUnexpectedCloseError
        self._options = {
            "timeout": timeout, "connect_timeout": connect_timeout, "no_delay": True,
            "default_noreply": False, **client_options,
        }  # fmt: skip
        addresses = [(_name(each), each) for each in address_list(servers)]
        self._pools = {name: self._pool(address) for name, address in addresses}
        self._flush_returning, self._on_change = flush_returning, on_change
        self._fleet: Fleet = Fleet(
            [name for name, _ in addresses], probe=self._probe, broken=(OSError, closed),
            on_change=self._on_state, epsilon=epsilon, limit=limit, weights=weights, seed=seed,
            when_full=when_full, wait=wait, failures=failures, backoff=backoff,
        )  # fmt: skip

    # --- reads: repeated anywhere -----------------------------------------------------------------------

    def get(self, key: _Key, default: Any = None) -> Any:
        """Return a key's value, or `default`."""
        return self._read(key, lambda client: client.get(key, default))

    def get_many(self, keys: Iterable[_Key]) -> dict[_Key, Any]:
        """Return the values of those keys that exist: one request to each server concerned."""
        found: dict[_Key, Any] = {}
        self._fleet.call_many(
            dict.fromkeys(keys),
            lambda node, group: found.update(self._pools[node].use(lambda client: client.get_many(group))),
        )
        return found

    get_multi = get_many

    def gets(self, key: _Key, default: Any = None, cas_default: Any = None) -> tuple[Any, Any]:
        """Return a key's value and the token for `cas`."""
        return self._read(key, lambda client: client.gets(key, default, cas_default), stay=True)  # type: ignore[no-any-return]

    # --- writes that may be done twice ------------------------------------------------------------------

    def set(
        self, key: _Key, value: Any, expire: int = 0, noreply: bool | None = None, flags: int | None = None
    ) -> bool | None:
        """Store a value."""
        return self._read(key, lambda client: client.set(key, value, expire, noreply, flags))  # type: ignore[no-any-return]

    def set_many(
        self,
        values: Mapping[_Key, Any],
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> list[_Key]:
        """Store many values; return the keys that could not be stored."""
        failed: list[_Key] = []

        def store(node: str, group: list[_Key]) -> None:
            part = {key: values[key] for key in group}
            failed.extend(self._pools[node].use(lambda client: client.set_many(part, expire, noreply, flags)))

        self._fleet.call_many(list(values), store)
        return failed

    set_multi = set_many

    def delete(self, key: _Key, noreply: bool | None = None) -> bool:
        """Delete a key, copies on other servers too; True if its own server had it."""
        found: bool = self._read(key, lambda client: client.delete(key, noreply), stay=True)
        if self._fleet.when_full == "jump":
            self._delete_copies([key])
        return found

    def delete_many(self, keys: Iterable[_Key], noreply: bool | None = None) -> bool:
        """Delete many keys, copies too."""
        wanted = list(dict.fromkeys(keys))
        self._fleet.call_many(
            wanted,
            lambda node, group: self._pools[node].use(lambda client: client.delete_many(group, noreply)),
            stay=True,
        )
        if self._fleet.when_full == "jump":
            self._delete_copies(wanted)
        return True

    delete_multi = delete_many

    def touch(self, key: _Key, expire: int = 0, noreply: bool | None = None) -> bool:
        """Set the time to live of a key."""
        return self._read(key, lambda client: client.touch(key, expire, noreply), stay=True)  # type: ignore[no-any-return]

    def _read(self, key: _Key, operate: Callable[[Any], _T], *, stay: bool = False) -> _T:
        return self._fleet.call(key, lambda node: self._pools[node].use(operate), stay=stay)

    def _delete_copies(self, keys: list[_Key]) -> None:
        """Delete where keys may have jumped to: without waiting; a server that is down is flushed later."""
        for node in self._fleet.ring.names:
            others = [key for key in keys if self._fleet.ring.node(key) != node]
            if others and self._fleet.health.alive(node):
                try:
                    self._fleet.on(node, lambda name, others=others: self._delete_from(name, others))  # type: ignore[misc]
                except ServerDownError:
                    if self._fleet.health.alive(node):  # it will not be flushed: the copy may still be there
                        raise

    def _delete_from(self, node: str, keys: list[_Key]) -> None:
        def forget(client: Any) -> None:
            for key in keys:
                client.delete(key, noreply=True)
            client.version()  # answered after them: whoever reads later does not see the copy

        self._pools[node].use(forget)

    # --- writes that may be done once -------------------------------------------------------------------

    def add(
        self, key: _Key, value: Any, expire: int = 0, noreply: bool | None = None, flags: int | None = None
    ) -> bool:
        """Store a value if the key does not exist; return whether it was stored."""
        return self._change(key, lambda client: client.add(key, value, expire, noreply, flags))  # type: ignore[no-any-return]

    def replace(
        self, key: _Key, value: Any, expire: int = 0, noreply: bool | None = None, flags: int | None = None
    ) -> bool:
        """Store a value if the key exists; return whether it was stored."""
        return self._change(key, lambda client: client.replace(key, value, expire, noreply, flags))  # type: ignore[no-any-return]

    def append(
        self, key: _Key, value: Any, expire: int = 0, noreply: bool | None = None, flags: int | None = None
    ) -> bool:
        """Put bytes behind a value."""
        return self._change(key, lambda client: client.append(key, value, expire, noreply, flags))  # type: ignore[no-any-return]

    def prepend(
        self, key: _Key, value: Any, expire: int = 0, noreply: bool | None = None, flags: int | None = None
    ) -> bool:
        """Put bytes before a value."""
        return self._change(key, lambda client: client.prepend(key, value, expire, noreply, flags))  # type: ignore[no-any-return]

    def cas(
        self,
        key: _Key,
        value: Any,
        cas: Any,
        expire: int = 0,
        noreply: bool = False,
        flags: int | None = None,
    ) -> bool | None:
        """Store a value if it is unchanged since `gets` returned the token; None if the key is absent."""
        return self._change(key, lambda client: client.cas(key, value, cas, expire, noreply, flags))  # type: ignore[no-any-return]

    def incr(self, key: _Key, value: int, noreply: bool | None = False) -> int | None:
        """Add to a counter; None: the key is not there."""
        return self._change(key, lambda client: client.incr(key, value, noreply))  # type: ignore[no-any-return]

    def decr(self, key: _Key, value: int, noreply: bool | None = False) -> int | None:
        """Subtract from a counter, down to 0; None: the key is not there."""
        return self._change(key, lambda client: client.decr(key, value, noreply))  # type: ignore[no-any-return]

    def _change(self, key: _Key, operate: Callable[[Any], _T]) -> _T:
        return self._fleet.call(key, lambda node: self._pools[node].use(operate), again=never_sent, stay=True)

    # --- all servers ------------------------------------------------------------------------------------

    def stats(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """Return memcached's own statistics of each server that is alive."""

        def ask(client: Any) -> dict[str, Any]:
            return {_text(name): _text(value) for name, value in client.stats(*arguments).items()}

        return self._everywhere(ask)

    def version(self) -> dict[str, str]:
        """Return the version of each server that is alive."""
        return {
            name: each.decode() for name, each in self._everywhere(lambda client: client.version()).items()
        }

    def flush_all(self, delay: int = 0, noreply: bool | None = None) -> bool:
        """Empty every server that is alive; see `flush_returning` for the others."""
        self._everywhere(lambda client: client.flush_all(delay, noreply))
        return True

    def _everywhere(self, operate: Callable[[Any], _T]) -> dict[str, _T]:
        answers: dict[str, _T] = {}
        for name, each in self._fleet.health.status().items():
            if each["alive"]:
                answers[name] = self._fleet.on(name, lambda node: self._pools[node].use(operate))
        return answers

    # --- servers ----------------------------------------------------------------------------------------

    def add_server(self, server: _Address, weight: float = 1.0) -> None:
        """Add a server: it takes its share of keys from all others."""
        name = _name(server)
        pool = self._pools.get(name) or self._pool(server)
        self._fleet.health.add(name, weight, prepared=entry(self._pools, name, pool))

    def remove_server(self, server: _Address) -> None:
        """Remove a server for good; requests under way there end as they will."""
        name = _name(server)
        self._fleet.health.remove(name)
        self._pools[name].clear()

    def drain(self, server: _Address, timeout: float | None = 10.0) -> bool:
        """Send nothing more to a server; wait for what is under way, False if longer than `timeout`."""
        return self._fleet.drain(_name(server), timeout)

    def undrain(self, server: _Address) -> None:
        """Use a drained server again; it is flushed first if `flush_returning` is set."""
        name = _name(server)
        if self._flush_returning and self._fleet.health.status()[name]["alive"]:
            self._fleet.on(
                name, lambda node: self._pools[node].use(lambda client: client.flush_all(0, False))
            )
        self._fleet.health.undrain(name)

    def close(self) -> None:
        """Close all connections and end the probes."""
        self._fleet.close()
        for pool in self._pools.values():
            pool.clear()

    def _pool(self, address: _Address) -> _Pool:
        return _Pool(lambda: self._client_class(address, **self._options))

    def _probe(self, name: str) -> None:
        self._pools[name].use(
            lambda client: client.flush_all(0, False) if self._flush_returning else client.version()
        )

    def _on_state(self, name: str, state: str) -> None:
        if state == "down":
            self._pools[name].clear()
        notify(self._on_change, name, state)


def _name(server: object) -> str:
    if isinstance(server, str):
        return server
    if isinstance(server, tuple | list) and len(server) == 2:
        return f"{server[0]}:{server[1]}"
    raise TypeError(f"a server must be 'host:port' or (host, port), not {server!r}")


def _text(value: Any) -> Any:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value

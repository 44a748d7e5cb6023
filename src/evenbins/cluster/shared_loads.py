"""One count of requests in flight for many routers, kept in Redis; leases of a router that dies expire.

A ring counts the leases of its own process. Two routers that each allow a replica 8 requests allow it 16
together. With shared loads they ask Redis:

    candidates of the key, in the ring's order ──▶ a script: the first with room takes the lease ──▶ its node

    name:node      a sorted set: lease ─▶ time at which it ends unless it is renewed

The script is one atomic step: it drops leases that ended, counts, compares with the limit, admits. The limit
is the ring's: ceil((1 + epsilon) * n * w / W), n over all routers with the new one counted, W over the nodes
that serve in this router's eyes; or ceil(limit * w). Times are those of the Redis server. A lease lasts `ttl`
seconds and is renewed every third of that while its request runs, so a router that dies frees its places
within `ttl`.

Invariants
- No admission lifts a node above the limit of that moment, over all routers, as long as Redis keeps what it
  acknowledged and no router hangs longer than `ttl` (its leases end then; they count again when it goes on).
- All routers have the same ring (`ring.fingerprint()`), except for nodes that one of them sees down.

What faults do. A place whose admission was executed and not answered (a cut connection, a timeout) is held
until `ttl`: too few may be admitted, never too many. A Redis that restarts empty knows no leases, until those
under way are renewed, within ttl / 3; for that time the limit may be exceeded, by as many.

What it costs: one round trip for an admission, one for its end; the script looks at every node of the ring.
Limits by epsilon are computed in doubles, reduced by 1e-9: at an exact integer they are that integer.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import secrets
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from evenbins.cluster._libraries import library
from evenbins.cluster.redis_errors import way_out
from evenbins.protocols import Key
from evenbins.rings import HashRing, NoNodesError, RingFullError
from evenbins.theory import _arguments as arguments

__all__ = ["AsyncRedisLoads", "RedisLoads"]

# KEYS: the sets of all nodes. ARGV: lease, ttl in ms, "share" or "cap", then for each candidate its number
# in KEYS and its share of n, or its cap. Gives the number of the node that took it, 0 if none has room. A
# lease that is there was admitted by a run whose reply was lost: a client that repeats takes no second place.
_ADMIT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local counts, total = {}, 0
for i, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  counts[i] = redis.call('ZCARD', key)
  total = total + counts[i]
end
for a = 4, #ARGV, 2 do
  local i, bound = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
  if redis.call('ZSCORE', KEYS[i], ARGV[1]) then return i end
  if ARGV[3] == 'share' then bound = math.ceil(bound * (total + 1) - 1e-9) end
  if counts[i] < bound then
    redis.call('ZADD', KEYS[i], now + ARGV[2], ARGV[1])
    redis.call('PEXPIRE', KEYS[i], 2 * ARGV[2])
    return i
  end
end
return 0
"""

# KEYS: a set for each lease; ARGV: ttl in ms, then the leases.
_RENEW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i, key in ipairs(KEYS) do
  redis.call('ZADD', key, now + ARGV[1], ARGV[i + 1])
  redis.call('PEXPIRE', key, 2 * ARGV[1])
end
return #KEYS
"""

_COUNT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local counts = {}
for i, key in ipairs(KEYS) do counts[i] = redis.call('ZCOUNT', key, '(' .. now, '+inf') end
return counts
"""


class _Loads:
    """What both twins share: names, arguments of the scripts, the leases under way here."""

    def __init__(self, client: Any, name: str, *, ttl: float = 10.0) -> None:
        self._response_error = library("redis.exceptions", "redis").ResponseError
        if not isinstance(name, str) or not name or "{" in name or "}" in name:
            raise ValueError(f"name must be a text without braces; got {name!r}. Pass for example 'replicas'")
        rule = "a number of seconds from 0.1 to 86400"
        self.ttl = arguments.real("ttl", ttl, rule, "Pass for example 10")
        if not 0.1 <= self.ttl <= 86400:
            raise ValueError(arguments.problem("ttl", rule, ttl, "Pass for example 10"))
        self._client, self._name = client, name
        self._admit = client.register_script(_ADMIT)
        self._renew = client.register_script(_RENEW)
        self._count = client.register_script(_COUNT)
        self._me = secrets.token_hex(8)
        self._numbers = itertools.count()
        self._live: dict[str, str] = {}  # lease: key of its node
        self._milliseconds = round(1000 * self.ttl)

    def _key(self, node: str) -> str:
        return f"{{{self._name}}}:{node}"  # the braces keep all of them on one server of a Redis Cluster

    def _asked(
        self, ring: HashRing, key: Key, avoid: Iterable[str]
    ) -> tuple[str, tuple[str, ...], list[str], list[Any]]:
        """Give the lease, the nodes, and the script's keys and arguments."""
        candidates = ring.candidates(key)
        if not candidates:
            raise NoNodesError("no node of the ring serves: use mark_up or add_node")
        names, weights, passed = ring.names, ring.weights, set(avoid)
        numbers = {name: number for number, name in enumerate(names, 1)}
        lease = f"{self._me}:{next(self._numbers)}"
        if ring.limit is not None:
            bounds = {name: float(max(1, math.ceil(ring.limit * weights[name]))) for name in candidates}
        elif ring.epsilon is not None:
            whole = math.fsum(weights[name] for name in candidates)
            bounds = {name: (1 + ring.epsilon) * weights[name] / whole for name in candidates}
        else:
            bounds = dict.fromkeys(candidates, 1e15)
        mode = "share" if ring.epsilon is not None else "cap"
        ways = [(numbers[each], repr(bounds[each])) for each in candidates if each not in passed]
        values = [lease, self._milliseconds, mode, *itertools.chain.from_iterable(ways)]
        return lease, names, [self._key(each) for each in names], values

    def _refused(self, error: Exception) -> Exception:
        """Say what to do about an error reply."""
        error.add_note(f"shared loads {self._name!r}, keys {self._key('*')}: {way_out(error)}")
        return error

    def _taken(self, answer: Any, lease: str, names: tuple[str, ...]) -> str:
        if not answer:
            raise RingFullError(
                "every node is at its limit of requests in flight over all routers: try later"
            )
        node = names[int(answer) - 1]
        self._live[lease] = self._key(node)
        return node

    def _renewal(self) -> tuple[list[str], list[Any]]:
        live = list(self._live.items())
        return [key for _, key in live], [self._milliseconds, *(lease for lease, _ in live)]


class RedisLoads(_Loads):
    """Requests in flight of many routers or clients, counted in Redis; for threads.

    Parameters
    ----------
    client
        A `redis.Redis` with timeouts, and without repeats of its own (`retry=Retry(NoBackoff(), 0)`), which
        by default take seconds when Redis is gone.
    name
        What the routers have in common: those with equal names share their counts.
    ttl
        Seconds after which the leases of a router that died are free.

    Raises
    ------
    redis.exceptions.RedisError
        From `admitted`, if Redis does not answer, or refuses: the note of the error says what to do.
    """

    def __init__(self, client: Any, name: str, *, ttl: float = 10.0) -> None:
        super().__init__(client, name, ttl=ttl)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._end = threading.Event()

    @contextlib.contextmanager
    def admitted(self, ring: HashRing, key: Key, *, avoid: Iterable[str] = ()) -> Iterator[str]:
        """Hold a place on the key's first node that has room, counted over all routers.

        Raises
        ------
        RingFullError, NoNodesError
            No node has room; none serves.
        """
        lease, names, keys, values = self._asked(ring, key, avoid)
        try:
            answer = self._admit(keys=keys, args=values)
        except self._response_error as error:
            raise self._refused(error) from None
        node = self._taken(answer, lease, names)
        self._watch()
        try:
            yield node
        finally:
            home = self._live.pop(lease)
            with contextlib.suppress(Exception):  # it ends by itself, nobody renews it
                self._client.zrem(home, lease)

    def loads(self, ring: HashRing) -> dict[str, int]:
        """Give the leases under way of each node, over all routers."""
        names = ring.names
        return dict(zip(names, map(int, self._count(keys=[self._key(each) for each in names])), strict=True))

    def close(self) -> None:
        """End the renewals."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def _watch(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._renewing, name="evenbins-leases", daemon=True)
                self._thread.start()

    def _renewing(self) -> None:
        while not self._end.wait(self.ttl / 3):
            keys, values = self._renewal()
            if keys:
                with contextlib.suppress(Exception):  # the next turn tries again
                    self._renew(keys=keys, args=values)
                for lease, key in zip(values[1:], keys, strict=True):
                    if lease not in self._live:  # it ended meanwhile, and we may have put it back
                        with contextlib.suppress(Exception):
                            self._client.zrem(key, lease)


class AsyncRedisLoads(_Loads):
    """Requests in flight of many routers, counted in Redis; for asyncio. See `RedisLoads`."""

    def __init__(self, client: Any, name: str, *, ttl: float = 10.0) -> None:
        super().__init__(client, name, ttl=ttl)
        self._task: asyncio.Task[None] | None = None
        self._dropping: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def admitted(self, ring: HashRing, key: Key, *, avoid: Iterable[str] = ()) -> AsyncIterator[str]:
        """Hold a place, as `RedisLoads.admitted` does."""
        lease, names, keys, values = self._asked(ring, key, avoid)
        try:
            answer = await self._admit(keys=keys, args=values)
        except asyncio.CancelledError:
            for each in keys:  # it may have been admitted: it is dropped everywhere, or ends by itself
                self._drop(each, lease)
            raise
        except self._response_error as error:
            raise self._refused(error) from None
        node = self._taken(answer, lease, names)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._renewing())
        try:
            yield node
        finally:
            self._drop(self._live.pop(lease), lease)

    def _drop(self, key: str, lease: str) -> None:
        """Take a lease back without waiting: whoever is being cancelled cannot wait."""
        task = asyncio.get_running_loop().create_task(self._dropped(key, lease))
        self._dropping.add(task)
        task.add_done_callback(self._dropping.discard)

    async def _dropped(self, key: str, lease: str) -> None:
        with contextlib.suppress(Exception):  # it ends by itself, nobody renews it
            await self._client.zrem(key, lease)

    async def loads(self, ring: HashRing) -> dict[str, int]:
        """Give the leases under way of each node, over all routers."""
        names = ring.names
        counts = await self._count(keys=[self._key(each) for each in names])
        return dict(zip(names, map(int, counts), strict=True))

    async def close(self) -> None:
        """Take back what is being taken back, and end the renewals."""
        if self._dropping:
            await asyncio.wait(set(self._dropping), timeout=self.ttl)
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _renewing(self) -> None:
        while True:
            await asyncio.sleep(self.ttl / 3)
            keys, values = self._renewal()
            if keys:
                with contextlib.suppress(Exception):  # the next turn tries again
                    await self._renew(keys=keys, args=values)
                for lease, key in zip(values[1:], keys, strict=True):
                    if lease not in self._live:  # it ended meanwhile, and we may have put it back
                        self._drop(key, lease)

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

Limits are exact, as the ring's are. Weights and epsilon are the decimal numbers that were written. limit * w
is rounded up here. A share of n, which only the script knows, is a fraction that the script multiplies out in
integers: in limbs of 24 bits, since Lua's numbers are doubles.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import math
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

from evenbins import _arguments as arguments
from evenbins._bulk import Key
from evenbins.cluster._forks import reset_in_children
from evenbins.cluster._redis_servers import refuse_pipeline
from evenbins.cluster._steps import Steps, awaitable, blocking, run, run_async
from evenbins.cluster._tasks import end_task
from evenbins.cluster.libraries import library
from evenbins.cluster.redis_errors import way_out
from evenbins.rings import HashRing, NoNodesError, RingFullError
from evenbins.theory.ring_limits import as_written

__all__ = ["AsyncRedisLoads", "RedisLoads"]

# KEYS: the sets of all nodes. ARGV: lease, ttl in ms, a denominator (empty: limits are caps), then for each
# candidate its number in KEYS and its cap, or the numerator of its share of n. Denominator and numerators are
# texts of 24-bit limbs, the lowest first. A node has room if count < ceil(n * share), which is the same as
# count * denominator < n * numerator. Returns the number of the node that took the lease, 0 if none has room.
# A lease that is there was admitted by a run whose reply was lost: a client that repeats takes no second one,
# and has it for a whole ttl from now on.
_EXACT = """
local function limbs(text)
  local found = {}
  for each in string.gmatch(text, '%d+') do found[#found + 1] = tonumber(each) end
  return found
end
local function has_room(count, denominator, n, numerator)
  local carry, rest = 0, 0
  for j = 1, #denominator do
    carry = carry + n * numerator[j] - count * denominator[j]
    local limb = carry % 16777216
    carry, rest = (carry - limb) / 16777216, rest + limb
  end
  return carry > 0 or (carry == 0 and rest > 0)
end
"""
_ADMIT = (
    _EXACT
    + """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local counts, total = {}, 0
for i, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  counts[i] = redis.call('ZCARD', key)
  total = total + counts[i]
end
local denominator = limbs(ARGV[3])
for a = 4, #ARGV, 2 do
  local i = tonumber(ARGV[a])
  local room
  if redis.call('ZSCORE', KEYS[i], ARGV[1]) then
    room = true
  elseif #denominator == 0 then
    room = counts[i] < tonumber(ARGV[a + 1])
  else
    room = has_room(counts[i], denominator, total + 1, limbs(ARGV[a + 1]))
  end
  if room then
    redis.call('ZADD', KEYS[i], now + ARGV[2], ARGV[1])
    redis.call('PEXPIRE', KEYS[i], 2 * ARGV[2])
    return i
  end
end
return 0
"""
)

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


_NO_LIMIT = 10**15


def _limbs(number: int, count: int) -> str:
    return " ".join(str(number >> 24 * j & 0xFFFFFF) for j in range(count))


def integer_bounds(ring: HashRing, serving: Iterable[str]) -> tuple[int, dict[str, int]]:
    """Return a denominator d and of each node a numerator x: it has room if count * d < (total + 1) * x.

    With d = 0 the numerators are caps: a node has room if its count is less.

    >>> integer_bounds(HashRing(["a", "b"], epsilon=0.25), ["a", "b"])
    (8, {'a': 5, 'b': 5})
    """
    serving = list(serving)
    weights = {name: as_written(weight) for name, weight in ring.weights.items()}
    if ring.limit is not None:
        return 0, {name: max(1, math.ceil(ring.limit * weights[name])) for name in serving}
    if ring.epsilon is None:
        return 0, dict.fromkeys(serving, _NO_LIMIT)
    whole = sum(weights[name] for name in serving)
    shares = {name: (1 + as_written(ring.epsilon)) * weights[name] / whole for name in serving}
    denominator = math.lcm(*(each.denominator for each in shares.values()))
    return denominator, {name: int(each * denominator) for name, each in shares.items()}


def exact_bounds(ring: HashRing, serving: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Return what the script needs: the limbs of a denominator, and of each node its numerator, or its cap.

    >>> ring = HashRing(["a", "b"], limit=100, weights={"a": 1.1})
    >>> exact_bounds(ring, ring.names)
    ('', {'a': '110', 'b': '100'})
    >>> exact_bounds(HashRing(["a", "b"], epsilon=0.25), ["a", "b"])
    ('8', {'a': '5', 'b': '5'})
    """
    denominator, numerators = integer_bounds(ring, serving)
    if not denominator:
        return "", {name: str(each) for name, each in numerators.items()}
    count = -(-max(denominator, *numerators.values()).bit_length() // 24)
    return _limbs(denominator, count), {name: _limbs(each, count) for name, each in numerators.items()}


class _Loads:
    """The rules, for both classes: names, the scripts and their arguments, the leases under way here."""

    def __init__(self, client: Any, name: str, *, ttl: float = 10.0) -> None:
        self._response_error = library("redis.exceptions", "redis").ResponseError
        if not isinstance(name, str) or not name or "{" in name or "}" in name:
            raise ValueError(f"name must be a text without braces; got {name!r}. Pass for example 'replicas'")
        rule = "a number of seconds from 0.1 to 86400"
        self.ttl = arguments.real("ttl", ttl, rule, "Pass for example 10", least=0.1, most=86400)
        refuse_pipeline(client)
        self._client, self._name = client, name
        self._admit = client.register_script(_ADMIT)
        self._renew = client.register_script(_RENEW)
        self._count = client.register_script(_COUNT)
        self._milliseconds = round(1000 * self.ttl)
        self._known: tuple[HashRing, int, str, dict[str, str]] | None = None  # a ring, version, bounds
        self._begin()
        reset_in_children(self)

    def _begin(self) -> None:
        """Begin with no lease, under a name of its own: a child must not use its parent's."""
        self._me = secrets.token_hex(8)
        self._numbers = itertools.count()
        self._live: dict[str, str] = {}  # lease: key of its node

    def _reset_after_fork(self) -> None:
        self._begin()

    def _key(self, node: str) -> str:
        return f"{{{self._name}}}:{node}"  # the braces keep all of them on one server of a Redis Cluster

    def _new_lease(self) -> str:
        return f"{self._me}:{next(self._numbers)}"

    def _take(self, lease: str, ring: HashRing, key: Key, avoid: Iterable[str]) -> Steps[str]:
        """Take a place, and return its node."""
        version = ring.version
        candidates = ring.candidates(key)
        if not candidates:
            raise NoNodesError("no node of the ring serves: use mark_up or add_node")
        names, passed = ring.names, set(avoid)
        numbers = {name: number for number, name in enumerate(names, 1)}
        denominator, bounds = self._bounds(ring, version, candidates)
        ways = [(numbers[each], bounds[each]) for each in candidates if each not in passed]
        values = [lease, self._milliseconds, denominator, *itertools.chain.from_iterable(ways)]
        keys = [self._key(each) for each in names]
        try:
            answer = yield self._admit(keys=keys, args=values)
        except asyncio.CancelledError:
            for each in keys:  # it may have been admitted: it is dropped everywhere, or ends by itself
                self._drop(each, lease)
            raise
        except self._response_error as error:
            error.add_note(f"shared loads {self._name!r}, keys {self._key('*')}: {way_out(error)}")
            raise
        if not answer:
            raise RingFullError(
                "every node is at its limit of requests in flight over all routers: try later"
            )
        node = names[int(answer) - 1]
        self._live[lease] = self._key(node)
        return node

    def _release(self, lease: str) -> None:
        key = self._live.pop(lease, None)
        if key is not None:  # else it was never taken, or this is a child of the process that has it
            self._drop(key, lease)

    def _drop(self, key: str, lease: str) -> None:
        """Release a lease; one that cannot be released ends by itself, since it is not renewed."""
        raise NotImplementedError

    def _bounds(self, ring: HashRing, version: int, serving: Sequence[str]) -> tuple[str, dict[str, str]]:
        """Return `exact_bounds`, of which the last is kept: fractions take longer than all else here."""
        known = self._known
        if known is None or known[0] is not ring or known[1] != version or known[3].keys() != set(serving):
            self._known = known = (ring, version, *exact_bounds(ring, serving))
        return known[2], known[3]

    def _renew_leases(self) -> Steps[None]:
        live = list(self._live.items())
        if not live:
            return
        keys, leases = [key for _, key in live], [lease for lease, _ in live]
        with contextlib.suppress(Exception):  # the next turn tries again
            yield self._renew(keys=keys, args=[self._milliseconds, *leases])
        for lease, key in live:
            if lease not in self._live:  # it ended meanwhile, and we may have put it back
                self._drop(key, lease)

    def _loads(self, ring: HashRing) -> Steps[dict[str, int]]:
        """Return the leases under way of each node, over all routers."""
        names = ring.names
        counts = yield self._count(keys=[self._key(each) for each in names])
        return dict(zip(names, map(int, counts), strict=True))


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
        From `admit`, if Redis does not answer, or refuses: the note of the error says what to do.
    """

    def _begin(self) -> None:
        super()._begin()
        self._end = threading.Event()  # its lock may be held by a thread that a child does not have
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()  # a signal's handler may come in

    @contextlib.contextmanager
    def admit(self, ring: HashRing, key: Key, *, avoid: Iterable[str] = ()) -> Iterator[str]:
        """Hold a place on the key's first node that has room, counted over all routers.

        Raises
        ------
        RingFullError, NoNodesError
            No node has room; none serves.
        """
        lease = self._new_lease()
        try:  # from here on: a signal's handler may raise at any point
            node = run(self._take(lease, ring, key, avoid))
            self._watch()
            yield node
        finally:
            self._release(lease)

    def take(self, ring: HashRing, key: Key, *, avoid: Iterable[str] = ()) -> tuple[str, Callable[[], None]]:
        """Take a place until the function that comes with its node is called."""
        lease = self._new_lease()
        try:
            node = run(self._take(lease, ring, key, avoid))
            self._watch()
        except BaseException:
            self._release(lease)
            raise
        return node, functools.partial(self._release, lease)

    loads = blocking(_Loads._loads)

    def close(self) -> None:
        """End the renewals."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def _watch(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._keep_renewing, name="evenbins-leases", daemon=True)
                with contextlib.suppress(RuntimeError):  # no more threads now: the next request tries again
                    thread.start()
                    self._thread = thread

    def _keep_renewing(self) -> None:
        while not self._end.wait(self.ttl / 3):
            run(self._renew_leases())

    def _drop(self, key: str, lease: str) -> None:
        with contextlib.suppress(Exception):
            self._client.zrem(key, lease)


class AsyncRedisLoads(_Loads):
    """Requests in flight of many routers, counted in Redis; for asyncio. See `RedisLoads`."""

    def __init__(self, client: Any, name: str, *, ttl: float = 10.0) -> None:
        super().__init__(client, name, ttl=ttl)
        self._task: asyncio.Task[None] | None = None
        self._dropping: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def admit(self, ring: HashRing, key: Key, *, avoid: Iterable[str] = ()) -> AsyncIterator[str]:
        """Hold a place, as `RedisLoads.admit` does."""
        node, release = await self.take(ring, key, avoid=avoid)
        try:
            yield node
        finally:
            release()

    async def take(
        self, ring: HashRing, key: Key, *, avoid: Iterable[str] = ()
    ) -> tuple[str, Callable[[], None]]:
        """Take a place until the function that comes with its node is called, which does not wait."""
        lease = self._new_lease()
        try:
            node = await run_async(self._take(lease, ring, key, avoid))
        except BaseException:
            self._release(lease)
            raise
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_renewing())
        return node, functools.partial(self._release, lease)

    def _drop(self, key: str, lease: str) -> None:
        """Release a lease without waiting: whoever is being cancelled cannot wait."""
        task = asyncio.get_running_loop().create_task(self._remove(key, lease))
        self._dropping.add(task)
        task.add_done_callback(self._dropping.discard)

    async def _remove(self, key: str, lease: str) -> None:
        with contextlib.suppress(Exception):
            await self._client.zrem(key, lease)

    loads = awaitable(_Loads._loads)

    async def close(self) -> None:
        """Take back what is being taken back, and end the renewals."""
        if self._dropping:
            await asyncio.wait(set(self._dropping), timeout=self.ttl)
        task, self._task = self._task, None
        await end_task(task)

    async def _keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(self.ttl / 3)
            await run_async(self._renew_leases())

"""The replicas of one model: which one gets a request, how many it has, who waits, which are alive.

    admit(key) ── room? ──▶ Place(name, depth, reason) ── answered() ──▶ release()
                  │ none
                  └──▶ queue, first come first served ── `wait` seconds ──▶ RingFullError

Policies: "hash" is a lease on a ring (`HashRing.lease`), bounded by requests in flight. "prefix" and "score"
are those of `evenbins.routing.PrefixRouter`, with a load in bytes of prompts that end at the first byte of
the answer; `limit`, if there is one, bounds requests in flight at each replica, too.

Health is the fleet's (fleet.py, health.py) in all cases: replicas that are down or drained take nothing new.
Those with an open breaker are passed over as long as another one can serve.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from evenbins.cluster.fleet import AsyncFleet
from evenbins.cluster.http_breaker import Breaker
from evenbins.cluster.http_client import Connections, UpstreamError
from evenbins.cluster.http_config import RouterConfig
from evenbins.cluster.http_keys import RequestKey
from evenbins.cluster.http_upstreams import Upstream
from evenbins.rings import HashRing, Lease, NoNodesError, RingFullError
from evenbins.routing.router import PrefixRouter

__all__ = ["Place", "Pool", "QueueFullError", "renewed_pools"]

_IDLE = 1.5  # seconds that a connection is kept for the next request
_NAP = 0.05  # a limit may rise without a place coming back: the first that waits looks again
_PAUSE = 1.0  # seconds without asking Redis after it failed

_BREAKER = ("breaker_failures", "breaker_window", "breaker_pause")
_PLACEMENT = ("policy", "epsilon", "limit", "seed", "cache_blocks", "load", "failures", "backoff")


class QueueFullError(RingFullError):
    """As many requests wait as may."""


class Place:
    """A request's place at a replica.

    Attributes
    ----------
    name : the replica
    depth : blocks of its prompt that the replica should still have
    reason : "hash", "prefix", "new", "load" (the wanted one was full) or "retry" (it failed)
    """

    __slots__ = ("_releases", "_work_done", "depth", "name", "reason")

    def __init__(
        self, name: str, reason: str, depth: int = 0, *, work_done: Callable[[], object] | None = None,
        releases: tuple[Callable[[], object], ...] = (),
    ) -> None:  # fmt: skip
        self.name, self.reason, self.depth = name, reason, depth
        self._work_done, self._releases = work_done, releases

    def answered(self) -> None:
        """Note that the first byte of the answer has come: the prompt is read."""
        if self._work_done is not None:
            self._work_done()

    def release(self) -> None:
        """Give the place back, once."""
        releases, self._releases = self._releases, ()
        for release in releases:
            release()


class Pool:
    """Replicas that serve the same model.

    Attributes
    ----------
    fleet : the ring and its health
    connections : to each replica
    jumps : requests sent elsewhere because their replica was full
    """

    def __init__(self, config: RouterConfig, upstreams: Iterable[str], weights: Mapping[str, float]) -> None:
        self.config = config
        names = tuple(upstreams)
        weights = {name: weights.get(name, 1.0) for name in names}
        epsilon = 0.25 if config.epsilon is None and config.limit is None else config.epsilon
        self.fleet: AsyncFleet = AsyncFleet(
            names, probe=self._probe, broken=(UpstreamError, OSError), epsilon=epsilon, limit=config.limit,
            weights=weights, seed=config.seed, wait=config.wait, failures=config.failures,
            backoff=config.backoff, on_change=self._on_change,
        )  # fmt: skip
        self.prefix: PrefixRouter | None = None
        if config.policy != "hash":
            self.prefix = PrefixRouter(
                names, policy=config.policy, epsilon=0.25 if config.epsilon is None else config.epsilon,
                cache_blocks=config.cache_blocks, load=config.load, weights=weights, seed=config.seed,
            )  # fmt: skip
        self.connections: dict[str, Connections] = {}
        self._urls: dict[str, Upstream] = {}
        self.breakers: dict[str, Breaker] = {}
        for name in names:
            self._prepare(name)
        self.in_flight: Counter[str] = Counter()
        self.jumps = self.shared_errors = 0
        self._bad: Counter[str] = Counter()  # checks in a row that failed
        self._queue: deque[_Waiter] = deque()
        self._ask_again = 0.0

    @property
    def ring(self) -> HashRing:
        """The ring."""
        return self.fleet.ring

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    # --- places -----------------------------------------------------------------------------------------

    async def admit(self, key: RequestKey, failed: tuple[str, ...] = ()) -> Place:
        """Return a place for a request, after those that wait already.

        Raises
        ------
        QueueFullError, RingFullError
            Too many wait; there was no room in time.
        NoNodesError
            No replica serves.
        """
        if not self._queue:
            try:
                place = await self._try_any(key, failed)
            except NoNodesError:
                if failed or not self.config.wait:
                    raise
            else:
                if place is not None:
                    return place
        if not self.config.wait:
            raise RingFullError("all upstreams are at their limit of requests: try again")
        if len(self._queue) >= self.config.queue:
            raise QueueFullError(f"{len(self._queue)} requests wait for an upstream: try again")
        return await self._wait_for_place(key, failed)

    async def _wait_for_place(self, key: RequestKey, failed: tuple[str, ...]) -> Place:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.wait
        waiter = _Waiter()
        self._queue.append(waiter)
        error: Exception = RingFullError("all upstreams are at their limit of requests: try again")
        try:
            while (left := deadline - loop.time()) > 0:
                await waiter.sleep(min(left, _NAP) if self._queue[0] is waiter else left)
                if self._queue[0] is waiter:
                    try:
                        place = await self._try_any(key, failed)
                    except NoNodesError as none:
                        error = none
                        if failed:
                            break
                    else:
                        if place is not None:
                            return place
            raise error
        finally:
            self._queue.remove(waiter)
            self._wake()  # there may be room for the next one, too

    def _wake(self) -> None:
        if self._queue:
            self._queue[0].wake()

    async def _try_any(self, key: RequestKey, failed: tuple[str, ...]) -> Place | None:
        """Return a place by shared loads, if there are any and they can be asked, else by ours."""
        if self.config.loads is None or time.monotonic() < self._ask_again:
            return self._try(key, failed)
        try:
            return await self._shared_place(key, failed)
        except RingFullError:
            return None

    def _try(self, key: RequestKey, failed: tuple[str, ...]) -> Place | None:
        """Return a place; None if there is no room now."""
        now = time.monotonic()
        blocked = self._blocked(now)
        choose = self._try_ring if self.prefix is None else self._try_prefix
        place = None
        if blocked:
            with contextlib.suppress(NoNodesError):
                place = choose(key, failed + blocked, not failed)
        if place is None:
            place = choose(key, failed, not failed)
        if place is not None:
            if failed:
                place.reason = "retry"
            self._begin(place.name, now)
        return place

    def _blocked(self, now: float) -> tuple[str, ...]:
        """Return the replicas whose breakers let nothing through."""
        return tuple(name for name, each in self.breakers.items() if each.blocks(now))

    def _begin(self, name: str, now: float) -> None:
        if name in self.breakers:
            self.breakers[name].begin(now)

    def _try_ring(self, key: RequestKey, avoid: tuple[str, ...], counts: bool) -> Place | None:
        lease: Lease = self.ring.lease(key.key, avoid=avoid)
        try:
            name = lease.acquire()
        except RingFullError:
            if avoid and not set(self.ring.candidates(key.key)) - set(avoid):
                raise NoNodesError("no upstream is left to ask") from None
            return None
        home = not counts or name == self.ring.node(key.key)
        self.jumps += not home
        return self._place(name, "hash" if home else "load", 0, None, lease.release)

    def _try_prefix(self, key: RequestKey, avoid: tuple[str, ...], counts: bool) -> Place | None:
        assert self.prefix is not None
        serving = [name for name, state in self.ring.states.items() if state == "up" and name not in avoid]
        if not serving:
            raise NoNodesError("no upstream is left to ask")
        limit = self.config.limit
        if limit is not None:
            weights = self.ring.weights
            serving = [name for name in serving if self.in_flight[name] < math.ceil(limit * weights[name])]
            if not serving:
                return None
        hidden = set(self.prefix.names).difference(serving)
        choice = self.prefix.route(key.blocks, key.work, avoid=hidden)
        self.jumps += counts and choice.reason == "load"
        done = self.prefix.done
        first_byte = None if self.config.load == "requests" else lambda: done(choice)
        return self._place(choice.node, choice.reason, choice.depth, first_byte, lambda: done(choice))

    def _place(
        self, name: str, reason: str, depth: int, work_done: Callable[[], object] | None,
        *releases: Callable[[], object],
    ) -> Place:  # fmt: skip
        self.in_flight[name] += 1
        last = (lambda: self._leave(name),)
        return Place(name, reason, depth, work_done=work_done, releases=releases + last)

    def _leave(self, name: str) -> None:
        self.in_flight[name] -= 1
        if not self.in_flight[name] and name not in self.connections:  # it was removed
            del self.in_flight[name]
        self._wake()

    async def _shared_place(self, key: RequestKey, failed: tuple[str, ...]) -> Place | None:
        """Return a place by the counts that routers share; by ours if they cannot be asked."""
        assert self.config.loads is not None
        take, now = self.config.loads.take, time.monotonic()
        blocked = self._blocked(now)
        try:
            try:
                name, release = await take(self.ring, key.key, avoid=failed + blocked)
            except (RingFullError, NoNodesError):
                if not blocked:
                    raise
                name, release = await take(self.ring, key.key, avoid=failed)
        except (RingFullError, NoNodesError):
            raise
        except Exception:  # whatever Redis or its client say: requests go on
            self.shared_errors += 1
            self._ask_again = time.monotonic() + _PAUSE
            return self._try(key, failed)
        if name not in self.connections:  # it was removed meanwhile
            release()
            return self._try(key, failed)
        home = bool(failed) or name == self.ring.node(key.key)
        self.jumps += not home
        self._begin(name, now)
        return self._place(name, "retry" if failed else "hash" if home else "load", 0, None, release)

    # --- what requests meet -----------------------------------------------------------------------------

    def answered(self, name: str, status: int) -> None:
        """Note an answer of a replica."""
        self.fleet.health.succeeded(name)
        breaker = self.breakers.get(name)
        if breaker is not None:
            if status < 500:
                breaker.succeeded()
            else:
                self._count_failure(name, breaker)

    def not_connected(self, name: str, error: BaseException, epoch: int) -> None:
        """Note that a replica could not be connected to."""
        self.fleet.health.failed(name, error, epoch=epoch)
        if name in self.breakers:
            self._count_failure(name, self.breakers[name])

    def abandoned(self, name: str) -> None:
        """Note that a request ended without an answer, and without blame."""
        if name in self.breakers:
            self.breakers[name].abandoned()

    def _count_failure(self, name: str, breaker: Breaker) -> None:
        now = time.monotonic()
        if breaker.failed(now):
            others = sum(each.state != "closed" for each in self.breakers.values() if each is not breaker)
            if 2 * (others + 1) <= len(self.breakers):
                breaker.open(now)
            else:
                breaker.succeeded()

    # --- replicas ---------------------------------------------------------------------------------------

    def _prepare(self, name: str) -> None:
        self._urls[name] = upstream = Upstream(name)
        self.connections[name] = Connections(upstream, idle=_IDLE, secure=upstream.tls_context())
        self._add_breaker(name)

    def _add_breaker(self, name: str) -> None:
        config = self.config
        if config.breaker_failures is not None:
            self.breakers[name] = Breaker(
                config.breaker_failures, config.breaker_window, config.breaker_pause
            )

    def url(self, name: str) -> Upstream:
        """Return the parts of a replica's URL."""
        return self._urls[name]

    def add(self, name: str, weight: float = 1.0) -> None:
        """Add a replica; those that are there keep all keys but its share."""
        if self.prefix is not None:
            self.prefix.add_node(name, weight)  # first: there may be no memory for its index
        try:
            self.fleet.health.add(name, weight)
        except ValueError:
            if self.prefix is not None:
                self.prefix.remove_node(name)
            raise
        self._prepare(name)
        self._wake()

    def remove(self, name: str) -> None:
        """Remove a replica; its requests under way go on to their ends."""
        self.fleet.health.remove(name)
        if self.prefix is not None:
            self.prefix.remove_node(name)
        self.connections.pop(name).close()
        self.breakers.pop(name, None)
        del self._urls[name], self._bad[name]
        if not self.in_flight[name]:
            del self.in_flight[name]

    def reconfigure(self, config: RouterConfig, upstreams: Iterable[str]) -> None:
        """Take over options that `is_compatible` with those before, and another set of replicas."""
        before, self.config = self.config, config
        weights = config.weights or {}
        wanted = {name: weights.get(name, 1.0) for name in upstreams}
        for name in wanted.keys() - self.connections.keys():
            self.add(name, wanted[name])
        for name in self.connections.keys() - wanted.keys():
            self.remove(name)
        now = self.ring.weights
        for name, weight in wanted.items():
            if now[name] != weight:
                self.set_weight(name, weight)
        if any(getattr(config, name) != getattr(before, name) for name in _BREAKER):
            self.breakers.clear()
            for name in wanted:
                self._add_breaker(name)
        self._wake()

    def take_over(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Begin with the states that replicas had in another pool: down, drained."""
        for name in self.connections.keys() & states.keys():
            if not states[name]["alive"]:
                self.fleet.health.failed(name, ConnectionError(states[name]["error"]), at_once=True)
            if states[name]["state"] == "draining":
                self.fleet.health.drain(name)

    def is_compatible(self, config: RouterConfig) -> bool:
        """Return whether this pool can go on with these options: they place requests in the same way."""
        return all(getattr(config, name) == getattr(self.config, name) for name in _PLACEMENT)

    def set_weight(self, name: str, weight: float) -> None:
        """Change the weight of a replica."""
        self.ring.set_weight(name, weight)
        if self.prefix is not None:
            self.prefix.set_weight(name, weight)
        self._wake()

    def _on_change(self, name: str, state: str) -> None:
        if state == "down" and self.prefix is not None:  # it will return with an empty cache
            self.prefix.remove_node(name)
            self.prefix.add_node(name, self.ring.weights[name])
        self._wake()

    async def close(self) -> None:
        """End probes, close idle connections."""
        await self.fleet.close()
        for each in self.connections.values():
            each.close()

    # --- health -----------------------------------------------------------------------------------------

    async def _probe(self, name: str) -> None:
        """Ask a replica for its health, or just connect; raises if that fails."""
        config, upstream = self.config, self._urls[name]
        if config.health_path is None:
            async with asyncio.timeout(config.health_timeout):
                _, writer = await asyncio.open_connection(upstream.hostname, upstream.port)
            writer.close()
            return
        headers = [(b"host", upstream.host), (b"user-agent", b"evenbins"), (b"accept", b"*/*")]
        target = upstream.path + config.health_path.encode()
        async with asyncio.timeout(config.health_timeout):
            response = await self.connections[name].send(
                "GET", target, headers, None, connect_timeout=config.health_timeout,
                timeout=config.health_timeout,
            )  # fmt: skip
            try:
                while await response.read():
                    pass
            finally:
                response.close()
        if response.status >= 400:
            raise ConnectionError(f"{config.health_path} answered {response.status}")

    async def check_all(self) -> None:
        """Ask all replicas that are up for their health."""
        status = self.fleet.health.status()
        await asyncio.gather(*(self._check(name) for name, each in status.items() if each["alive"]))

    async def _check(self, name: str) -> None:
        epoch = self.fleet.health.epoch(name)
        try:
            await self._probe(name)
        except Exception as error:  # whatever it meets, it is not healthy
            self._bad[name] += 1
            if self._bad[name] >= self.config.failures:
                self._bad[name] = 0
                self.fleet.health.failed(name, error, epoch=epoch, at_once=True)
        else:
            self._bad[name] = 0

    def status(self) -> dict[str, dict[str, Any]]:
        """Return the state, weight, requests in flight and failures of each replica."""
        weights = self.ring.weights
        loads = self.prefix.loads() if self.prefix is not None else {}
        servers: dict[str, dict[str, Any]] = {}
        for name, each in self.fleet.health.status().items():
            servers[name] = each | {"in_flight": self.in_flight[name], "weight": weights[name]}
            if name in loads:
                servers[name]["load"] = loads[name]
            if name in self.breakers:
                servers[name]["breaker"] = self.breakers[name].state
        return servers


class _Waiter:
    """A request in the queue."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None

    async def sleep(self, seconds: float) -> None:
        """Sleep until `wake`, or so long."""
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        timer = loop.call_later(seconds, self.wake)
        try:
            await self._future
        finally:
            timer.cancel()

    def wake(self) -> None:
        """End the sleep."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


def renewed_pools(
    old: Mapping[str, Pool], config: RouterConfig, wanted: Mapping[str, tuple[str, ...]],
    states: Mapping[str, Mapping[str, Any]],
) -> dict[str, Pool]:  # fmt: skip
    """Return the pools of another configuration: those that can go on, and new ones with the `states` before.

    New ones are made first: there may be no memory for them, and then nothing has changed.
    """
    kept = {name: pool for name, pool in old.items() if name in wanted and pool.is_compatible(config)}
    pools = {
        name: kept[name] if name in kept else Pool(config, upstreams, config.weights or {})
        for name, upstreams in wanted.items()
    }
    for name, pool in list(kept.items()):
        try:
            pool.reconfigure(config, wanted[name])
        except ValueError:  # a ring takes weights within 2**24 of those before
            pools[name] = Pool(config, wanted[name], config.weights or {})
            del kept[name]
    for name in pools.keys() - kept.keys():
        pools[name].take_over(states)
    return pools

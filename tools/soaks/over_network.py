"""Structures that leave the process, each beside an oracle in it; real servers on loopback.

    RedisFilter    which keys were added, by any of three clients: none missed; its export is the local filter
    RingMemcache   which value each key has: what is stored and not evicted comes back, never an old value
    Router         which replica each request went to: every answer is the request's own; no replica has
                   more requests at a time than its limit; no count is left when all is quiet
    Router         random hostile clients and hostile replicas (tools/router_hostile.py): no good request is
                   refused meanwhile, nothing is left afterwards

Servers are started for each soak (redis-server, memcached; replicas in this process) and ended with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from evenbins.cluster import RedisFilter
from evenbins.cluster.http import Router, RouterConfig
from evenbins.cluster.memcached import RingMemcache
from evenbins.filters import plan_balanced, plan_blocked, plan_standard
from soaks.harness import Case, Soak
from soaks.in_memory import universe

_TOOLS = Path(__file__).parents[1]
sys.path[:0] = [str(_TOOLS), str(_TOOLS.parent / "tests" / "cluster")]

__all__ = ["CASES"]

_KEYS = 20_000


class RedisSoak(Soak):
    """A shared filter, and clients that take turns."""

    def __init__(self, rng: np.random.Generator, policy: str) -> None:
        import redis
        from router_servers import redis_server, running

        super().__init__(rng)
        self.stack = contextlib.ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        (server,) = self.stack.enter_context(running(redis_server, 1, Path(folder)))
        self.clients = [
            self.stack.enter_context(redis.Redis("127.0.0.1", server.port, socket_timeout=30))
            for _ in range(3)
        ]
        self.plan = {
            "standard": lambda: plan_standard(_KEYS, bits_per_key=16),
            "blocked": lambda: plan_blocked(_KEYS, bits_per_key=16),
            "multilevel": lambda: plan_balanced(_KEYS, bits_per_key=16, policy="multilevel"),
        }[policy]()
        self.keys = universe(rng, _KEYS)
        self.filters: list[RedisFilter] = []
        self.begin()

    def begin(self) -> None:
        """Make the filter, and open it by the other clients."""
        for each in self.filters:
            each.close()
        RedisFilter.delete(self.clients[0], "soak")
        RedisFilter.create(self.clients[0], "soak", self.plan)
        self.filters = [RedisFilter.open(client, "soak") for client in self.clients]
        self.there = np.zeros(_KEYS, bool)

    def step(self) -> int:
        rng = self.rng
        if self.there.mean() > 0.9:
            self.begin()
            self.done["begun anew"] += 1
        places = rng.integers(0, _KEYS, int(10 ** rng.uniform(0, 3)))
        adding, asking = (self.filters[i] for i in rng.choice(3, 2, replace=False))
        if rng.random() < 0.2:
            places = places[:30]
            for key in self.keys[places].tolist():
                adding.add(key)
                self.lose(not asking.contains(key), "missed singly by another client")
        else:
            adding.add_many(self.keys[places])
        self.there[places] = True
        asked = rng.integers(0, _KEYS, 500)
        found = asking.contains_many(self.keys[asked])
        self.lose((self.there[asked] & ~found).sum(), "keys that are in, missed")
        return len(places) + len(asked)

    def audit(self) -> None:
        local = self.filters[0].to_local()
        self.sound(local)
        self.lose((self.there & ~local.contains_many(self.keys)).sum(), "missed in the exported filter")
        answers = self.filters[1].contains_many(self.keys)
        self.lose((answers != local.contains_many(self.keys)).sum(), "answers that are not the export's")
        n = int(self.there.sum())
        self.holds(abs(local.stats().keys - n) <= 0.05 * n + 20, f"stats().keys {local.stats().keys} of {n}")
        self.filters[0].verify()

    def close(self) -> None:
        self.stack.close()


class MemcacheSoak(Soak):
    """Values on three servers that nothing is evicted from, and whose limits wait."""

    def __init__(self, rng: np.random.Generator) -> None:
        from router_servers import memcached, running

        super().__init__(rng)
        self.stack = contextlib.ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        servers = self.stack.enter_context(running(memcached, 3, Path(folder)))
        self.cache = self.stack.enter_context(
            RingMemcache([("127.0.0.1", each.port) for each in servers], epsilon=0.25, when_full="wait")
        )
        self.names = [f"key{i}" for i in range(5_000)]
        self.truth: dict[str, bytes] = {}

    def step(self) -> int:
        rng, cache = self.rng, self.cache
        some = [self.names[i] for i in rng.integers(0, len(self.names), int(rng.integers(1, 60)))]
        value = rng.bytes(int(rng.integers(1, 200)))
        match int(rng.integers(6)):
            case 0:
                for name in some:
                    self.lose(not cache.set(name, value), "sets refused")
                    self.truth[name] = value
            case 1:
                self.lose(len(cache.set_many(dict.fromkeys(some, value))), "sets refused")
                self.truth.update(dict.fromkeys(some, value))
            case 2:
                for name in some:
                    self.lose(
                        cache.delete(name) != (self.truth.pop(name, None) is not None), "deletions told"
                    )
            case 3:
                for name in some:
                    self.lose(cache.get(name) != self.truth.get(name), "values got singly")
            case 4:
                for name in some[:5]:
                    added = cache.add(name, value)
                    self.lose(bool(added) == (name in self.truth), "additions told wrongly")
                    self.truth.setdefault(name, value)
            case _:
                self.ask(some)
        return len(some)

    def ask(self, names: list[str]) -> None:
        """Get many values at once."""
        wanted = {name: self.truth[name] for name in names if name in self.truth}
        found = self.cache.get_many(names)
        self.lose(int(found != wanted), "answers of get_many")

    def audit(self) -> None:
        self.ask(self.names)
        stats = self.cache.stats()
        items = sum(int(each["curr_items"]) for each in stats.values())
        self.same(items, len(self.truth), "items on all servers")
        self.same(set(self.cache.ring.lease_loads().values()) <= {0}, True, "leases left")

    def close(self) -> None:
        self.stack.close()


class _Echo:
    """A replica that says what it was asked, and how many it was asked at a time."""

    def __init__(self) -> None:
        self.now = self.most = self.served = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        self.now += 1
        self.most = max(self.most, self.now)
        self.served += 1
        try:
            body, more = b"", True
            while more:
                message = await receive()
                body, more = body + message.get("body", b""), message.get("more_body", False)
            await asyncio.sleep(0)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            self.now -= 1  # before the last piece: the router may send the next one as soon as it has it
            await send({"type": "http.response.body", "body": scope["raw_path"] + b" " + body})
        except BaseException:
            self.now -= 1
            raise


class RouterSoak(Soak):
    """Requests through a router to four replicas, sixteen at a time; its limit is 5."""

    limit = 5

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.loop = asyncio.new_event_loop()
        self.stack = contextlib.AsyncExitStack()
        self.loop.run_until_complete(self._begin())

    async def _begin(self) -> None:
        import httpx
        from route_study import served

        self.replicas = [_Echo() for _ in range(4)]
        urls = [await self.stack.enter_async_context(served(each)) for each in self.replicas]
        self.router = Router(RouterConfig(urls, limit=self.limit, wait=20.0))
        base = await self.stack.enter_async_context(served(self.router))
        limits = httpx.Limits(max_connections=16)
        self.client = await self.stack.enter_async_context(
            httpx.AsyncClient(base_url=base, trust_env=False, timeout=30, limits=limits)
        )

    def step(self) -> int:
        paths = [f"/{i}" for i in self.rng.integers(0, 1000, 16).tolist()]
        return self.loop.run_until_complete(self._ask(paths))

    async def _ask(self, paths: list[str]) -> int:
        async def one(path: str) -> int:
            body = path.encode() * 3
            answer = await self.client.post(path, content=body)
            return answer.status_code != 200 or answer.content != path.encode() + b" " + body

        self.lose(sum(await asyncio.gather(*map(one, paths))), "answers that are not the request's")
        return len(paths)

    def audit(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0.05))
        for each in self.replicas:
            self.holds(each.most <= self.limit, f"{each.most} requests at a time, limit {self.limit}")
            self.same(each.now, 0, "requests left at a replica")
        self.same(set(self.router.ring.lease_loads().values()) <= {0}, True, "leases left")
        self.done["served"] = sum(each.served for each in self.replicas)

    def close(self) -> None:
        self.loop.run_until_complete(self.stack.aclose())
        self.loop.close()


class HostileSoak(Soak):
    """Rounds of random hostile exchanges, each with a router of its own, beside good requests."""

    def step(self) -> int:
        from router_hostile import CLIENTS, REPLICAS, hostile_run

        rng = self.rng
        pairs = [(str(rng.choice([*CLIENTS])), str(rng.choice([*REPLICAS]))) for _ in range(200)]
        outcome = asyncio.run(hostile_run(pairs, limit=1000, at_once=60, idle=60, read_timeout=3.0))
        self.lose(len(outcome.refused), f"good requests refused: {outcome.refused[:1]}")
        self.lose(len(outcome.unsound), f"answers to hostile clients: {outcome.unsound[:1]}")
        self.same(outcome.left + outcome.logged, [], "left or logged by the router")
        self.done.update({"hostile exchanges": outcome.exchanges, "good requests": outcome.good})
        return outcome.exchanges + outcome.good

    def audit(self) -> None:
        """Each step has checked all there is."""


CASES = [
    Case("Redis, multilevel", lambda rng: RedisSoak(rng, "multilevel"), 4),
    Case("Redis, blocked", lambda rng: RedisSoak(rng, "blocked"), 2),
    Case("Redis, standard", lambda rng: RedisSoak(rng, "standard"), 1.2),
    Case("memcached", MemcacheSoak, 2.7),
    Case("HTTP router", RouterSoak, 0.1),
    Case("HTTP router, hostile", HostileSoak, 0.05),
]

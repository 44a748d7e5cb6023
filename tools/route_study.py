"""How often replicas find a request's prefix in their cache, by the way requests are spread over them.

    clients ──▶ Router (uvicorn) ──▶ replicas (uvicorn), each with an LRU cache of prefixes, streaming

    jump            evenbins' Router: the key's replica, the key's next one if it is full
    clockwise       the same by the ring's policy of that name (a full replica's keys all go to its neighbour)
    hash            the key's replica, however full it is
    round-robin     one after the other
    least-loaded    the replica with the fewest requests in flight

Prefixes are drawn by Zipf's law. A replica that has the prefix answers at once, one that has not computes
first. All runs have the same requests, in the same order, so many at a time. `over` counts admissions that
lifted a replica above ceil((1 + epsilon) * in flight / replicas). Real sockets on loopback, one process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import math
import socket
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import uvicorn

from evenbins.cluster.http import Router, RouterConfig
from evenbins.cluster.http_keys import RequestKey
from evenbins.cluster.http_pool import Place, Pool
from evenbins.study.ring import ring as study_ring

POLICIES = ("jump", "clockwise", "hash", "round-robin", "least-loaded")
PREFIX = 64


class _Quiet(uvicorn.Server):
    """A server that leaves the process' signals alone, and ends at once."""

    def capture_signals(self) -> Any:
        return contextlib.nullcontext()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close everything, wait for nothing."""
        for each in self.servers:
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self.lifespan.shutdown()


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """Serve an application on a free port of loopback; gives its URL."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        listener.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )  # asyncio sets it on sockets of its own only
        server = _Quiet(
            uvicorn.Config(
                app, log_level="critical", access_log=False, ws="none", lifespan="on", proxy_headers=False
            )
        )
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.005)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


class Replica:
    """A server with a cache of prefixes, which streams its answers."""

    def __init__(self, cache_size: int, pieces: int, piece_seconds: float, miss_seconds: float) -> None:
        self._size, self._pieces = cache_size, pieces
        self._piece_seconds, self._miss_seconds = piece_seconds, miss_seconds
        self._cache: OrderedDict[str, None] = OrderedDict()
        self.hits = self.requests = self.now = self.most = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        prefix = json.loads(body)["prompt"][:PREFIX]
        self.requests += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            hit = prefix in self._cache
            self.hits += hit
            if not hit:
                await asyncio.sleep(self._miss_seconds)
            self._cache[prefix] = None
            self._cache.move_to_end(prefix)
            if len(self._cache) > self._size:
                self._cache.popitem(last=False)
            await send({"type": "http.response.start", "status": 200, "headers": [(b"x-hit", b"%d" % hit)]})
            for _ in range(self._pieces):
                await asyncio.sleep(self._piece_seconds)
                await send({"type": "http.response.body", "body": b"token ", "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.now -= 1


class Counting(Router):
    """A router that checks each admission, by counts of its own, against the bound."""

    bound = 0.25

    def __init__(self, upstreams: list[str], **options: Any) -> None:
        super().__init__(RouterConfig(upstreams, **options))
        self.loads_now = dict.fromkeys(upstreams, 0)
        self.most = self.admissions = self.over = 0

    async def admit(self, pool: Pool, key: RequestKey, failed: tuple[str, ...]) -> Place:
        """Count an admission."""
        place = await self.choose(pool, key, failed)
        name = place.name
        self.loads_now[name] += 1
        self.admissions += 1
        in_flight = sum(self.loads_now.values())
        self.over += self.loads_now[name] > math.ceil((1 + self.bound) * in_flight / len(self.loads_now))
        self.most = max(self.most, self.loads_now[name])

        def leave() -> None:
            self.loads_now[name] -= 1
            place.release()

        return Place(name, place.reason, releases=(leave,))

    async def choose(self, pool: Pool, key: RequestKey, failed: tuple[str, ...]) -> Place:
        """Choose a replica."""
        return await pool.admit(key, failed)


class RoundRobin(Counting):
    """One replica after the other."""

    def __init__(self, upstreams: list[str], **options: Any) -> None:
        super().__init__(upstreams, **options)
        self._turn = itertools.cycle(upstreams)

    async def choose(self, pool: Pool, key: RequestKey, failed: tuple[str, ...]) -> Place:
        """Choose the next one."""
        return Place(next(self._turn), "turn")


class LeastLoaded(Counting):
    """The replica with the fewest requests in flight, the first of equals in turn."""

    def __init__(self, upstreams: list[str], **options: Any) -> None:
        super().__init__(upstreams, **options)
        self._turn = itertools.count()

    async def choose(self, pool: Pool, key: RequestKey, failed: tuple[str, ...]) -> Place:
        """Choose the least loaded one."""
        names = list(self.loads_now)
        first = next(self._turn) % len(names)
        return Place(min(names[first:] + names[:first], key=self.loads_now.__getitem__), "load")


@dataclass
class Outcome:
    """What one run measured."""

    policy: str
    hit_rate: float
    over: int
    most: int  # in flight at one replica, as the router counts
    replica_most: int  # as the replicas count
    busiest: float  # requests of the busiest replica, over the mean
    seconds: float
    p50: float
    p99: float
    failed: int
    status: dict[str, Any] = field(repr=False, default_factory=dict)


def make(policy: str, urls: list[str], epsilon: float) -> Counting:
    """Make the router of a policy."""
    options: dict[str, Any] = {"key": f"json:prompt:{PREFIX}"}
    if policy == "round-robin":
        router: Counting = RoundRobin(urls, **options)
    elif policy == "least-loaded":
        router = LeastLoaded(urls, **options)
    elif policy == "hash":
        router = Counting(urls, limit=2**30, **options)
    else:
        router = Counting(urls, epsilon=epsilon, **options)
        if policy == "clockwise":
            ring = study_ring(urls, policy="clockwise", layout="sparse", copies=7, epsilon=epsilon)
            fleet = router.pools["default"].fleet
            fleet.ring = fleet.health._ring = ring
    router.bound = epsilon
    return router


async def run(
    policy: str,
    *,
    requests: int = 2000,
    concurrency: int = 200,
    replicas: int = 8,
    prefixes: int = 2000,
    exponent: float = 1.0,
    cache_size: int = 100,
    epsilon: float = 0.25,
    pieces: int = 4,
    piece_seconds: float = 0.01,
    miss_seconds: float = 0.05,
    seed: int = 1,
) -> Outcome:
    """Send requests through a router to replicas, so many at a time; count."""
    weights = np.arange(1, prefixes + 1) ** -exponent
    drawn = np.random.default_rng(seed).choice(prefixes, requests, p=weights / weights.sum())
    waiting = iter(enumerate(drawn.tolist()))
    times: list[float] = []
    failed = 0
    async with contextlib.AsyncExitStack() as stack:
        servers = [Replica(cache_size, pieces, piece_seconds, miss_seconds) for _ in range(replicas)]
        urls = [await stack.enter_async_context(served(each)) for each in servers]
        router = make(policy, urls, epsilon)
        base = await stack.enter_async_context(served(router))

        async def one_client() -> None:
            async with httpx.AsyncHTTPTransport(verify=False, trust_env=False) as transport:
                await send_all(transport)

        async def send_all(transport: httpx.AsyncHTTPTransport) -> None:
            nonlocal failed
            for number, prefix in waiting:
                prompt = f"prefix {prefix}".ljust(PREFIX, ".") + f" question {number}"
                begun = time.perf_counter()
                request = httpx.Request("POST", base + "/complete", json={"prompt": prompt})
                response = await transport.handle_async_request(request)
                text = b"".join([piece async for piece in response.aiter_raw()])
                failed += response.status_code != 200 or text != b"token " * pieces
                times.append(time.perf_counter() - begun)

        begun = time.perf_counter()
        await asyncio.gather(*(one_client() for _ in range(concurrency)))
        seconds = time.perf_counter() - begun
        status = router.status()
    served_by = [each.requests for each in servers]
    return Outcome(
        policy=policy,
        hit_rate=sum(each.hits for each in servers) / sum(served_by),
        over=router.over,
        most=router.most,
        replica_most=max(each.most for each in servers),
        busiest=max(served_by) / (sum(served_by) / replicas),
        seconds=seconds,
        p50=float(np.quantile(times, 0.5)),
        p99=float(np.quantile(times, 0.99)),
        failed=failed,
        status=status,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--concurrency", type=int, default=200)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--prefixes", type=int, default=2000)
    parser.add_argument("--exponent", type=float, default=1.0)
    parser.add_argument("--cache-size", type=int, default=100)
    parser.add_argument("--epsilon", type=float, default=0.25)
    parser.add_argument("--policies", default=",".join(POLICIES))
    options = vars(parser.parse_args())
    policies = options.pop("policies").split(",")
    shown = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in options.items())
    print(
        f"{shown}\n\npolicy         hit rate   over   most in flight   busiest/mean   p50 s   p99 s   failed"
    )
    for policy in policies:
        out = asyncio.run(run(policy, **options))
        print(
            f"{policy:14} {out.hit_rate:8.3f} {out.over:6} {out.most:16} {out.busiest:14.2f} "
            f"{out.p50:7.3f} {out.p99:7.3f} {out.failed:8}"
        )


if __name__ == "__main__":
    main()

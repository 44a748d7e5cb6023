"""A reverse proxy in front of replicas that are better at what they have seen before: caches, LLM servers.

    client ──▶ Router ── key of the request ──▶ lease on the ring ──▶ replica ──▶ answer, streamed back
               http_headers.py  http_keys.py    http_pool.py           failed? the key's next one
               http_bodies.py                   fleet.py               http_pages.py: the router's own pages
               http_exchange.py: all of it, for one request            http_client.py: connections to replicas

Equal keys go to the same replica while its requests in flight allow it, then to the key's next replica,
always in the same order: a hot key warms two or three caches, not all of them. By the policies "prefix" and
"score" a request goes to a replica that has much of its prompt. `Router` is an ASGI application; the command
`evenbins route` serves it by uvicorn.

What it keeps
- No admission lifts a replica above ceil((1 + epsilon) * in flight * w / W), or above its absolute limit.
- A place begins when the body has arrived, or its first `body_buffer` bytes; what is longer is received with
  a deadline. It ends when the answer has been sent, when the client has gone (the request to the replica is
  then cancelled), or when anything fails; once. An idle client holds none.
- Nothing else is read ahead: longer bodies and answers pass in the pieces in which they come. Rules for
  bodies parse up to `max_body` bytes; a longer body has the key of another rule.
- A replica that cannot be connected to is marked down, never removed; it is probed and gets its keys back.
  Only connects and health checks count: what a request makes a replica do with its connection does not.

Answers of its own are one line of text: 400 a malformed head, 404 an unknown model, 408 the client is too
slow, 429 too many wait, 502 the replica failed, 503 all are full or down, 504 too slow; 429 and 503 with
Retry-After. Paths under /-/ are its own too: see http_pages.py.

Loads are those of this process, unless `loads` shares them (shared_loads.py). Not passed on: WebSockets,
trailers, informational answers.

Tried and dropped: httpx and httpcore as the client; they took more than half of the time of a request. A task
that waits for the client to leave, for every request: most end before one is needed. Keeping idle connections
for long: a replica that closes one may do so under a request which cannot be repeated. Counting broken
connections as failures of the replica: two requests that crash a worker took every replica down.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from evenbins import _arguments as arguments
from evenbins.cluster._tasks import end_task
from evenbins.cluster.http_bodies import Answer, ClientGoneError, Receive, RequestBody, Send, SlowClientError
from evenbins.cluster.http_config import PoolConfig, RouterConfig
from evenbins.cluster.http_exchange import Exchange, unless_left
from evenbins.cluster.http_headers import Scope, TrustedProxies, request_error
from evenbins.cluster.http_keys import KeyRules, RequestKey
from evenbins.cluster.http_metrics import Metrics
from evenbins.cluster.http_pool import Place, Pool, renewed_pools
from evenbins.rings import HashRing

__all__ = ["PoolConfig", "Router", "RouterConfig"]

DEFAULT_POOL = "default"


class Router:
    """An ASGI application that passes requests on to replicas, by key.

    Parameters
    ----------
    config
        What it does: see `RouterConfig`.

    Attributes
    ----------
    config
        As passed, or as `reconfigure` changed it.
    metrics
        Counts, see `http_metrics.Metrics`.
    pools
        The replicas of `upstreams` ("default") and of each pool of the configuration.
    on_change
        Called with (change, parameters) after a request changed replicas, see `http_admin`.
    merge_metrics
        Adds the metrics of other workers to a text, see `http_workers`.

    Examples
    --------
    >>> router = Router(RouterConfig(["http://127.0.0.1:8001", "http://127.0.0.1:8002"], limit=16))
    >>> router.ring.names
    ('http://127.0.0.1:8001', 'http://127.0.0.1:8002')
    """

    def __init__(self, config: RouterConfig) -> None:
        if not isinstance(config, RouterConfig):
            raise arguments.type_error("config", "a RouterConfig", config, "Pass RouterConfig(upstreams, …)")
        self.config, self.metrics = config, Metrics()
        self.repeats = 0
        self.on_change: Callable[[str, Mapping[str, str]], object] | None = None
        self.merge_metrics: Callable[[str], str] | None = None
        self.pools: dict[str, Pool] = {}
        self._checking: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Future[None]] = set()  # pools that were replaced
        self._started = False
        self._use(config)
        for name, upstreams in _upstreams(config):
            self.pools[name] = Pool(config, upstreams, config.weights or {})

    def _use(self, config: RouterConfig) -> None:
        self.config = config
        self.rules = KeyRules(
            config.key, block_bytes=config.block_bytes, hash_blocks=config.hash_blocks, seed=config.seed
        )
        self.trusted = TrustedProxies(config.trusted_proxies)
        self._pool_names = {model: name for name, each in config.pools.items() for model in each.models}

    @property
    def ring(self) -> HashRing:
        """The ring of the first pool, to look at."""
        return next(iter(self.pools.values())).ring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of ASGI."""
        if scope["type"] == "http":
            if not self._started:
                self.start()
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1003, "reason": "only HTTP is passed on"})

    def start(self) -> None:
        """Begin the checks; the first request does it too."""
        self._started = True
        if self.config.health_path is not None and self._checking is None:
            self._checking = asyncio.get_running_loop().create_task(self._check_all())

    async def close(self) -> None:
        """End checks and probes, close connections."""
        self._started = False
        task, self._checking = self._checking, None
        await end_task(task)
        for pool in self.pools.values():
            await pool.close()
        if self.config.loads is not None:
            await self.config.loads.close()

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or stop as soon as its client has left."""
        answer = Answer(send, self.config.read_timeout)
        if problem := request_error(scope):
            self.metrics.rejected["bad_request"] += 1
            with contextlib.suppress(ClientGoneError, SlowClientError):
                await answer.write(400, problem + "\n", close=True)
                await answer.end()
            return
        body = RequestBody(scope, receive, self.config.read_timeout)
        exchange = Exchange(self, scope, body, answer)
        gone = ""
        try:
            await unless_left(body, exchange)
        except ClientGoneError:
            if not answer.delivered:
                gone = "client"
        except SlowClientError:  # it does not read: the server closes an answer that is not complete
            gone = "slow_client"
        if gone:
            self.metrics.aborted[gone] += 1
        exchange.log(gone)

    async def admit(self, pool: Pool, key: RequestKey, failed: tuple[str, ...]) -> Place:
        """Return a place for a request at a replica of a pool."""
        return await pool.admit(key, failed)

    async def _check_all(self) -> None:
        while self.config.health_path is not None:
            await asyncio.gather(*(pool.check_all() for pool in self.pools.values()))
            await asyncio.sleep(self.config.health_interval)
        self._checking = None

    # --- replicas ---------------------------------------------------------------------------------------

    def pool_of(self, model: str | None) -> Pool | None:
        """Return the pool that serves a model, the first one for None; None if there is none."""
        if model is None or not self._pool_names:
            return next(iter(self.pools.values()))
        return self.pools.get(self._pool_names.get(model, DEFAULT_POOL))

    def pool_with(self, upstream: str) -> Pool:
        """Return the pool of a replica; KeyError if there is none."""
        for pool in self.pools.values():
            if upstream in pool.connections:
                return pool
        raise KeyError(upstream)

    def reconfigure(self, config: RouterConfig) -> None:
        """Use another configuration for new requests; those under way end as they began.

        Replicas that stay keep their states and loads. If an option changes by which requests are placed
        (policy, epsilon, limit, seed, …), loads are counted anew: requests under way do not count in them.
        """
        wanted = dict(_upstreams(config))
        pools = renewed_pools(self.pools, config, wanted, self.status()["upstreams"])
        for name in (name for name, pool in self.pools.items() if pools.get(name) is not pool):
            closing = asyncio.ensure_future(self.pools[name].close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        self.pools = pools
        self._use(config)
        if self._started:
            self.start()

    def drain(self, upstream: str) -> None:
        """Send nothing new to a replica; what is under way goes on."""
        self.pool_with(upstream).fleet.health.drain(upstream)

    def undrain(self, upstream: str) -> None:
        """Use a drained replica again."""
        self.pool_with(upstream).fleet.health.undrain(upstream)

    def retry_after(self) -> int:
        """Return the seconds after which a replica that is down is asked again, rounded up."""
        times = [pool.fleet.health.next_probe() for pool in self.pools.values()]
        return min(60, max(1, round(0.5 + min((each for each in times if each is not None), default=0.0))))

    def metrics_text(self) -> str:
        """Return all metrics as Prometheus reads them; with `merge_metrics` those of other workers, too."""
        text = self.metrics.text(self.status())
        return text if self.merge_metrics is None else self.merge_metrics(text)

    def status(self) -> dict[str, Any]:
        """Return the state, requests in flight and failures of each upstream, and the router's counts."""
        servers = {
            name: each | {"pool": pool_name, "broken": self.metrics.broken[name]}
            for pool_name, pool in self.pools.items()
            for name, each in pool.status().items()
        }
        return {
            "process": os.getpid(),
            "upstreams": servers,
            "in_flight": sum(each["in_flight"] for each in servers.values()),
            "waiting": sum(pool.waiting for pool in self.pools.values()),
            "policy": self.config.policy,
            "epsilon": self.ring.epsilon,
            "limit": self.ring.limit,
            "shared": self.config.loads is not None,
            "fingerprint": self.ring.fingerprint(),
            "jumps": sum(pool.jumps for pool in self.pools.values()),
            "repeats": self.repeats,
            "shared_errors": sum(pool.shared_errors for pool in self.pools.values()),
            "answers": sum(self.metrics.requests.values()),
            "rejected": dict(self.metrics.rejected),
            "aborted": dict(self.metrics.aborted),
        }


def _upstreams(config: RouterConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the pools that a configuration names, with their replicas."""
    if config.upstreams:
        yield DEFAULT_POOL, tuple(config.upstreams)
    for name, each in config.pools.items():
        yield name, tuple(each.upstreams)

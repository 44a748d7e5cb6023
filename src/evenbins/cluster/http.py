"""A reverse proxy in front of replicas that are better at what they have seen before: caches, LLM servers.

    client ──▶ Router ── key of the request ──▶ lease on the ring ──▶ replica ──▶ answer, streamed back
               http_headers.py  http_keys.py    fleet.py               failed? the key's next one
               http_bodies.py                   http_upstreams.py      http_pages.py: the router's own pages

Equal keys go to the same replica while its requests in flight allow it, then to the key's next replica,
always in the same order: a hot key warms two or three caches, not all of them. `Router` is an ASGI
application; the command `evenbins route` serves it by uvicorn.

What it keeps
- No admission lifts a replica above ceil((1 + epsilon) * in flight * w / W), or above its absolute limit.
- A lease begins when the body has arrived, or its first `body_buffer` bytes; what is longer is received with
  a deadline. It ends when the answer has been sent, when the client has gone (the request to the replica is
  then cancelled), or when anything fails; once. An idle client holds none.
- Nothing else is read ahead: longer bodies and answers pass in the pieces in which they come. A rule for JSON
  keys reads the whole body, up to `max_body` bytes (413 beyond).
- Repeated at another replica: any request of which nothing was sent (no connection), up to `retries` times;
  and once a safe one (GET, HEAD, OPTIONS without a body) whose connection broke before a head came. All else
  is an error 502.
- A replica that cannot be connected to is marked down, never removed; it is probed and gets its keys back.
  Only connects and health checks count: what a request makes a replica do with its connection does not.

Answers of its own are one line of text: 400 no key or a malformed head, 408 the client is too slow, 413 too
large, 502 the replica failed, 503 all are full or down (with Retry-After), 504 too slow. Paths under /-/ are
its own too: metrics, status, drain, undrain, healthy.

Loads are those of this process, unless `loads` shares them (shared_loads.py). Not passed on: WebSockets,
trailers, informational answers.

Tried and dropped: httpx.AsyncClient, which keeps the cookies of all users in one jar and reads proxies from
the environment; its transport does neither. One pool of connections for all replicas: it looks at each of
them for each request, 20 ms at 200 in flight. (httpcore imports sniffio at every step; where it is missing,
that is a vain search of all paths, 2 ms a request. So the extra brings it.) Keeping idle connections for
long: a replica that closes one (uvicorn after 5 s, gunicorn after 2) may do so under a request which cannot
be repeated. Counting broken connections as failures of the replica: two requests that crash a worker took
every replica down.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from evenbins import _arguments as arguments
from evenbins._bulk import Key
from evenbins.cluster.fleet import AsyncFleet, FleetClient
from evenbins.cluster.http_bodies import (
    Answer,
    ClientGoneError,
    Receive,
    RequestBody,
    Send,
    SlowClientError,
    TooLargeError,
)
from evenbins.cluster.http_config import RouterConfig
from evenbins.cluster.http_headers import (
    Scope,
    TrustedProxies,
    answer_error,
    raw_path,
    request_error,
    upstream_headers,
)
from evenbins.cluster.http_keys import KeyMissingError, KeyRule
from evenbins.cluster.http_metrics import Metrics
from evenbins.cluster.http_pages import answer_page
from evenbins.cluster.http_upstreams import Upstream, close_if_more_comes, is_exhausted
from evenbins.cluster.libraries import library
from evenbins.rings import NoNodesError, RingFullError

__all__ = ["Router", "RouterConfig"]

_IDLE = 1.5  # seconds that a connection is kept for the next request
_PAUSE = 1.0  # seconds without asking Redis after it failed
_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))


class _AnswerError(Exception):
    """What to answer instead of a replica's answer: status and a line."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status, self.line = status, line


class Router(FleetClient):
    """An ASGI application that passes requests on to replicas, by key.

    Parameters
    ----------
    config
        What it does: see `RouterConfig`.

    Attributes
    ----------
    config
        As passed.
    metrics
        Counts, see `http_metrics.Metrics`.

    Raises
    ------
    ImportError
        httpx is not installed.

    Examples
    --------
    >>> router = Router(RouterConfig(["http://127.0.0.1:8001", "http://127.0.0.1:8002"], limit=16))
    >>> router.ring.names
    ('http://127.0.0.1:8001', 'http://127.0.0.1:8002')
    """

    def __init__(self, config: RouterConfig) -> None:
        if not isinstance(config, RouterConfig):
            raise arguments.type_error("config", "a RouterConfig", config, "Pass RouterConfig(upstreams, …)")
        self._httpx = library("httpx", "route")
        self.config, self.metrics = config, Metrics()
        self._rule, self._trusted = KeyRule.parse(config.key), TrustedProxies(config.trusted_proxies)
        read = config.read_timeout
        self._timeout = {"connect": config.connect_timeout, "read": read, "write": read, "pool": None}
        unbounded = config.epsilon is None and config.limit is None
        self._fleet: AsyncFleet = AsyncFleet(
            config.upstreams, probe=self._probe, broken=(self._httpx.TransportError, OSError),
            epsilon=0.25 if unbounded else config.epsilon, limit=config.limit, weights=config.weights,
            seed=config.seed, wait=config.wait, failures=config.failures, backoff=config.backoff,
        )  # fmt: skip
        self._urls = {name: Upstream(name) for name in config.upstreams}
        self._bad: Counter[str] = Counter()  # checks in a row that failed
        self._shared: Counter[str] = Counter()  # in flight here by shared leases
        self._ask_again = 0.0
        self._transports: dict[str, Any] = {}
        self._checking: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of ASGI."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http":
            self.start()
            await self._serve(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1003, "reason": "only HTTP is passed on"})

    def start(self) -> None:
        """Begin the checks; the first request does it too."""
        if not self._transports:
            limits = self._httpx.Limits(
                max_connections=None, max_keepalive_connections=None, keepalive_expiry=_IDLE
            )
            https = any(name.startswith("https:") for name in self._urls)  # certificates take time to load
            secure = self._httpx.create_ssl_context(trust_env=False) if https else False
            options = {"verify": secure, "limits": limits, "trust_env": False}
            self._transports = {name: self._httpx.AsyncHTTPTransport(**options) for name in self._urls}
            if self.config.health_path is not None:
                self._checking = asyncio.get_running_loop().create_task(self._check_all())

    async def close(self) -> None:
        """End checks and probes, close connections."""
        task, self._checking = self._checking, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._fleet.close()
        if self.config.loads is not None:
            await self.config.loads.close()
        transports, self._transports = self._transports, {}
        for transport in transports.values():
            await transport.aclose()

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
        exchange = asyncio.ensure_future(self._answer(scope, body, answer))
        leaving = asyncio.ensure_future(body.client_left())
        try:
            await asyncio.wait({exchange, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not exchange.done():
                exchange.cancel()
            await asyncio.wait({exchange, leaving})
        try:
            if exchange.cancelled():
                raise ClientGoneError
            exchange.result()
        except ClientGoneError:
            if not answer.delivered:
                self.metrics.aborted["client"] += 1
        except SlowClientError:  # it does not read: the server closes an answer that is not complete
            self.metrics.aborted["slow_client"] += 1

    async def _answer(self, scope: Scope, body: RequestBody, answer: Answer) -> None:
        try:
            if scope["path"].startswith("/-/"):
                await answer_page(self, scope, body, answer)
            else:
                await self._in_time(scope, body, answer)
        except _AnswerError as error:
            if error.status in (502, 504):
                self.metrics.aborted["timeout" if error.status == 504 else "upstream"] += 1
            if answer.begun:  # too late for another status: the answer ends early for the client too
                return
            close = error.status == 408 or not body.complete
            await answer.write(error.status, error.line + "\n", close=close)
            if error.status == 408:
                await answer.end()
                return
        body.release()
        await body.linger()
        await answer.end()

    async def _in_time(self, scope: Scope, body: RequestBody, answer: Answer) -> None:
        try:
            async with asyncio.timeout(self.config.total_timeout):
                await self._exchange(scope, body, answer, await self._key(scope, body))
        except TimeoutError:
            raise _AnswerError(504, f"no complete answer within {self.config.total_timeout:g} s") from None
        except SlowClientError:
            if answer.begun:
                raise
            self.metrics.aborted["slow_client"] += 1
            raise _AnswerError(408, "the request did not arrive in time") from None
        except KeyMissingError as error:
            self.metrics.rejected["bad_request"] += 1
            raise _AnswerError(400, str(error)) from None
        except TooLargeError:
            self.metrics.rejected["too_large"] += 1
            raise _AnswerError(413, f"the body has more than {self.config.max_body} bytes") from None
        except RingFullError:
            self.metrics.rejected["full"] += 1
            raise _AnswerError(503, "all upstreams are at their limit of requests: try again") from None
        except NoNodesError:
            self.metrics.rejected["down"] += 1
            raise _AnswerError(503, "no upstream is up: try again") from None

    async def _key(self, scope: Scope, body: RequestBody) -> Key:
        """Return the key of a request, whose body has arrived by then as far as it is kept."""
        if self._rule.needs_body and body.exists:
            return self._rule.of_body(await body.whole(self.config.max_body))
        key = self._rule.of_head(raw_path(scope), scope["query_string"], scope["headers"])
        await body.buffer(self.config.body_buffer)
        return key

    async def _exchange(self, scope: Scope, body: RequestBody, answer: Answer, key: Key) -> None:
        """Ask a replica, and others where that is safe, until one answers."""
        failed: tuple[str, ...] = ()
        sent = False  # some replica may have seen the request
        failure: _AnswerError | None = None
        while True:
            try:
                async with self._admit(key, failed) as name:
                    if self.config.on_admission is not None:
                        self.config.on_admission(key, name)
                    try:
                        await self._attempt(name, scope, body, answer)
                    except self._httpx.TransportError as error:
                        failure = self._failure(error)
                        again = not answer.begun and self._repeatable(error, scope, body, sent)
                        if not again or len(failed) >= self.config.retries:
                            raise failure from error
                        sent = sent or not self._no_connection(error)
                    else:
                        return
            except NoNodesError:
                if failure is None:
                    raise
                raise failure from None
            except RingFullError:
                if failure is None:
                    raise
                self.metrics.rejected["full"] += 1
                line = f"{failure.line}, and all others are at their limit of requests: try again"
                raise _AnswerError(503, line) from None
            failed += (name,)
            self._fleet.repeats += 1

    async def _attempt(self, name: str, scope: Scope, body: RequestBody, answer: Answer) -> None:
        """Send the request to one replica and its answer to the client."""
        epoch = self._fleet.health.epoch(name)
        begun = time.monotonic()
        try:
            response = await self._transports[name].handle_async_request(self._request(name, scope, body))
            try:
                status = response.status_code
                if problem := answer_error(status, response.headers.raw):
                    raise self._httpx.RemoteProtocolError(problem)
                self._fleet.health.succeeded(name)
                self.metrics.answered(name, status, time.monotonic() - begun)
                close = not body.complete
                body.release()
                await answer.relay(response, close=close)
                await close_if_more_comes(response, scope["method"])
            finally:
                await response.aclose()
        except self._httpx.TransportError as error:
            if self._no_connection(error):
                if not is_exhausted(error):
                    self._fleet.health.failed(name, error, epoch=epoch)
            elif not isinstance(error, self._httpx.TimeoutException):
                self.metrics.broken[name] += 1
            raise

    @contextlib.asynccontextmanager
    async def _admit(self, key: Key, failed: tuple[str, ...]) -> AsyncIterator[str]:
        """Hold a place at an upstream: by shared counts if there are any and Redis answers, else by ours."""
        async with contextlib.AsyncExitStack() as stack:
            ask = self.config.loads is not None and time.monotonic() >= self._ask_again
            name = await self._shared_place(stack, key, failed) if ask else None
            if name is None:
                name = await stack.enter_async_context(self._fleet.admit(key, failed))
            yield name

    async def _shared_place(
        self, stack: contextlib.AsyncExitStack, key: Key, failed: tuple[str, ...]
    ) -> str | None:
        assert self.config.loads is not None
        try:
            lease = self.config.loads.admit(self.ring, key, avoid=failed)
            name = await stack.enter_async_context(lease)
        except (RingFullError, NoNodesError):
            raise
        except Exception:  # whatever Redis or its client say: requests go on
            self.metrics.shared_errors += 1
            self._ask_again = time.monotonic() + _PAUSE
            return None
        if not failed and name != self.ring.node(key):
            self._fleet.jumps += 1
        self._shared[name] += 1
        stack.callback(self._shared.subtract, [name])
        return name

    def _request(self, name: str, scope: Scope, body: RequestBody) -> Any:
        upstream = self._urls[name]
        target = (
            upstream.path + raw_path(scope) + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        )
        return self._httpx.Request(
            scope["method"],
            name,
            headers=upstream_headers(scope, None if self.config.keep_host else upstream.host, self._trusted),
            content=body.to_send(),
            extensions={"timeout": self._timeout, "target": target},
        )

    def _no_connection(self, error: BaseException) -> bool:
        return isinstance(error, self._httpx.ConnectError | self._httpx.ConnectTimeout)

    def _repeatable(self, error: BaseException, scope: Scope, body: RequestBody, sent: bool) -> bool:
        if not body.resendable:
            return False
        if self._no_connection(error):
            return True
        if isinstance(error, self._httpx.TimeoutException):
            return False  # another replica would be asked for the same long work
        return scope["method"] in _SAFE and not body.exists and not sent

    def _failure(self, error: BaseException) -> _AnswerError:
        if isinstance(error, self._httpx.TimeoutException):
            return _AnswerError(504, f"upstream did not answer in time ({type(error).__name__})")
        return _AnswerError(502, f"upstream failed ({type(error).__name__})")

    async def _probe(self, name: str) -> None:
        """Ask a replica for its health, or just connect; raises if that fails."""
        upstream = self._urls[name]
        if self.config.health_path is None:
            opened = asyncio.open_connection(upstream.hostname, upstream.port)
            _, writer = await asyncio.wait_for(opened, self.config.health_timeout)
            writer.close()
            return
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), self.config.health_timeout)
        request = self._httpx.Request(
            "GET", name, headers={"user-agent": "evenbins", "accept": "*/*"},
            extensions={"timeout": timeout, "target": upstream.path + self.config.health_path.encode()},
        )  # fmt: skip
        async with asyncio.timeout(self.config.health_timeout):
            response = await self._transports[name].handle_async_request(request)
            try:
                async for _ in response.stream:
                    pass
                await close_if_more_comes(response, "GET")
            finally:
                await response.aclose()
        if not 200 <= response.status_code < 400:
            raise ConnectionError(f"{self.config.health_path} answered {response.status_code}")

    async def _check_all(self) -> None:
        while True:
            status = self._fleet.health.status()
            await asyncio.gather(*(self._check(name) for name, each in status.items() if each["alive"]))
            await asyncio.sleep(self.config.health_interval)

    async def _check(self, name: str) -> None:
        epoch = self._fleet.health.epoch(name)
        try:
            await self._probe(name)
        except Exception as error:  # whatever it meets, it is not healthy
            self._bad[name] += 1
            if self._bad[name] >= self.config.failures:
                self._bad[name] = 0
                self._fleet.health.failed(name, error, epoch=epoch, at_once=True)
        else:
            self._bad[name] = 0

    def drain(self, upstream: str) -> None:
        """Send nothing new to a replica; what is under way goes on."""
        self._fleet.health.drain(upstream)

    def undrain(self, upstream: str) -> None:
        """Use a drained replica again."""
        self._fleet.health.undrain(upstream)

    def status(self) -> dict[str, Any]:
        """Return the state, requests in flight and failures of each upstream, and the router's counts."""
        fleet = self._fleet.status()
        servers: dict[str, dict[str, Any]] = fleet["servers"]
        weights = self.ring.weights
        for name, each in servers.items():
            each["in_flight"] += self._shared[name]
            each["broken"] = self.metrics.broken[name]
            each["weight"] = weights[name]
        return {
            "upstreams": servers,
            "in_flight": sum(each["in_flight"] for each in servers.values()),
            "epsilon": self.ring.epsilon,
            "limit": self.ring.limit,
            "shared": self.config.loads is not None,
            "fingerprint": self.ring.fingerprint(),
            "jumps": fleet["jumps"],
            "repeats": fleet["repeats"],
            "answers": sum(self.metrics.requests.values()),
            "rejected": dict(self.metrics.rejected),
            "aborted": dict(self.metrics.aborted),
        }

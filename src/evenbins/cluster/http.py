"""A reverse proxy in front of replicas that are better at what they have seen before: caches, LLM servers.

    client ──▶ Router ── key of the request ──▶ lease on the ring ──▶ replica ──▶ answer, streamed back
                         http_keys.py           fleet.py               failed? the key's next one

Equal keys go to the same replica while its requests in flight allow it, then to the key's next replica,
always in the same order: a hot key warms two or three caches, not all of them. `Router` is an ASGI
application; the command `evenbins route` serves it by uvicorn.

What it keeps
- No admission lifts a replica above ceil((1 + epsilon) * in flight * w / W), or above its absolute limit.
- A lease ends when the answer has been sent, when the client has gone (the request to the replica is then
  cancelled), or when anything fails; once.
- Nothing is read ahead: bodies pass in the pieces in which they come, both ways. Only a rule for JSON keys
  reads the body first, up to `max_body` bytes (413 beyond).
- Repeated at another replica: any request of which nothing was sent (no connection), and safe ones (GET,
  HEAD, OPTIONS without a body) as long as no head has come. All else is an error 502.
- A replica that cannot be reached is marked down, never removed; it is probed and gets its keys back.

Answers of its own are one line of text: 400 no key, 413 too large, 502 the replica failed, 503 all are full
or down (with Retry-After), 504 too slow. Paths under /-/ are its own too: metrics, status, drain, undrain,
healthy.

Loads are those of this process, unless `loads` shares them (shared_loads.py). Not passed on: WebSockets,
trailers, informational answers.

Tried and dropped: httpx.AsyncClient, which keeps the cookies of all users in one jar and reads proxies from
the environment; its transport does neither. One pool of connections for all replicas: it looks at each of
them for each request, 20 ms at 200 in flight. (httpcore imports sniffio at every step; where it is missing,
that is a vain search of all paths, 2 ms a request. So the extra brings it.) Keeping idle connections for
long: a replica that closes one (uvicorn after 5 s, gunicorn after 2) may do so under a request which cannot
be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from evenbins.cluster._libraries import library
from evenbins.cluster.fleet import AsyncFleet
from evenbins.cluster.health import Backoff
from evenbins.cluster.http_keys import KeyMissingError, KeyRule
from evenbins.cluster.http_metrics import Metrics
from evenbins.protocols import Key
from evenbins.rings import HashRing, NoNodesError, RingFullError
from evenbins.theory import _arguments as arguments

if TYPE_CHECKING:
    from evenbins.cluster.shared_loads import AsyncRedisLoads

__all__ = ["Router"]

_Scope = MutableMapping[str, Any]
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]

_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer trailers "
    b"transfer-encoding upgrade expect".split()
)
_FORWARDED = frozenset((b"host", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"))
_IDLE = 1.5  # seconds that a connection is kept for the next request
_PAUSE = 1.0  # seconds without asking Redis after it failed
_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))


class _ClientGoneError(Exception):
    """The client left before its request was complete."""


class _TooLargeError(Exception):
    """The body is longer than may be kept."""


class _AnswerError(Exception):
    """What to answer instead of a replica's answer: status and a line."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status, self.line = status, line


class _Body:
    """A request's body: read once, in pieces, or kept whole."""

    def __init__(self, scope: _Scope, receive: _Receive) -> None:
        self._receive = receive
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        self.length = int(length) if length.isdigit() else 0
        self.exists = b"transfer-encoding" in headers or self.length > 0 or scope["http_version"] == "2"
        self.started = False
        self.kept: bytes | None = None
        self._finished = asyncio.Event()
        if not self.exists:
            self._finished.set()

    async def pieces(self) -> AsyncIterator[bytes]:
        self.started = True
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _ClientGoneError
            more = message.get("more_body", False)
            if not more:
                self._finished.set()
            if piece := message.get("body", b""):
                yield piece
            if not more:
                return

    async def keep(self, most: int) -> bytes:
        """Read all of it, to be sent later, several times if need be."""
        if self.length > most:
            raise _TooLargeError
        pieces, size = [], 0
        async for piece in self.pieces():
            size += len(piece)
            if size > most:
                raise _TooLargeError
            pieces.append(piece)
        self.kept = b"".join(pieces)
        return self.kept

    def to_send(self) -> bytes | AsyncIterator[bytes] | None:
        if self.kept is not None:
            return self.kept
        return self.pieces() if self.exists else None

    @property
    def untouched(self) -> bool:
        """Whether it can still be sent from its first byte."""
        return self.kept is not None or not self.started

    async def gone(self) -> None:
        """Wait until the client has left, after the body."""
        await self._finished.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


class Router:
    """An ASGI application that passes requests on to replicas, by key.

    Parameters
    ----------
    upstreams
        URLs of replicas, such as "http://127.0.0.1:8001"; a path in them is put before the request's.
    key
        What of a request is its key: "path", "url", "header:NAME" or "json:FIELD[:CHARS]" (see `http_keys`).
    epsilon, limit, weights, seed
        The bound of requests in flight at each replica, as for `HashRing`; epsilon 0.25 if neither is given.
    wait
        Seconds that a request may wait for room before it is refused with 503.
    health_path
        Asked by GET every `health_interval` seconds; an answer of 400 or above is a failure. None: only
        requests tell that a replica is down, and a connection that it is back.
    health_interval, health_timeout
        Seconds.
    failures
        A replica is down after so many failures in a row: of requests to connect, or of checks.
    backoff
        Delays between probes of a replica that is down.
    retries
        How often one request is repeated at other replicas, at most.
    connect_timeout, read_timeout, total_timeout
        Seconds for a connection, between two pieces of an answer, and for the whole exchange (None: any).
    max_body
        A body that must be read for its key may have so many bytes.
    keep_host
        Send the client's Host header on, instead of the replica's name.
    loads
        Counts shared by several routers: an `AsyncRedisLoads`. While Redis does not answer, this router
        counts its own.
    on_admission
        Called with (key, upstream) after each admission, before the request is sent.

    Raises
    ------
    ValueError, TypeError
        An argument is wrong.
    ImportError
        httpx is not installed.

    Examples
    --------
    >>> router = Router(["http://127.0.0.1:8001", "http://127.0.0.1:8002"], key="json:prompt:256")
    >>> router.ring.names
    ('http://127.0.0.1:8001', 'http://127.0.0.1:8002')
    """

    def __init__(
        self,
        upstreams: Iterable[str],
        *,
        key: str = "path",
        epsilon: float | None = None,
        limit: int | None = None,
        weights: Mapping[str, float] | None = None,
        seed: int = 0,
        wait: float = 0.0,
        health_path: str | None = None,
        health_interval: float = 5.0,
        health_timeout: float = 2.0,
        failures: int = 2,
        backoff: Backoff | None = None,
        retries: int = 2,
        connect_timeout: float = 2.0,
        read_timeout: float = 60.0,
        total_timeout: float | None = None,
        max_body: int = 2**20,
        keep_host: bool = False,
        loads: AsyncRedisLoads | None = None,
        on_admission: Callable[[Key, str], object] | None = None,
    ) -> None:
        self._httpx = library("httpx", "route")
        library("starlette.responses", "route")
        if isinstance(upstreams, str):
            raise TypeError(f"upstreams must be several URLs, not one str; pass [{upstreams!r}]")
        names = [_checked_url(each) for each in upstreams]
        self._rule = KeyRule.parse(key)
        if epsilon is None and limit is None:
            epsilon = 0.25
        if health_path is not None and not health_path.startswith("/"):
            raise ValueError(f"health_path must begin with '/'; got {health_path!r}")
        for name, value in (
            ("health_interval", health_interval), ("health_timeout", health_timeout),
            ("connect_timeout", connect_timeout), ("read_timeout", read_timeout),
            ("total_timeout", 1.0 if total_timeout is None else total_timeout),
        ):  # fmt: skip
            rule = "a number of seconds above 0"
            if not 0 < arguments.real(name, value, rule, "Leave it out") < 1e9:
                raise ValueError(arguments.problem(name, rule, value, "Leave it out"))
        self._retries = arguments.integer("retries", retries, 0, 100, "Leave it out for 2")
        self._max_body = arguments.integer("max_body", max_body, 0, 2**40, "Pass bytes, such as 2**20")
        self._health_path, self._health_interval = health_path, health_interval
        self._health_timeout, self._failures = health_timeout, failures
        self._timeout = {
            "connect": connect_timeout, "read": read_timeout, "write": read_timeout, "pool": None,
        }  # fmt: skip
        self._total, self._keep_host = total_timeout, keep_host
        self._loads, self._on_admission = loads, on_admission
        self._fleet = AsyncFleet(
            names, probe=self._probe, broken=(self._httpx.TransportError, OSError), epsilon=epsilon,
            limit=limit, weights=weights, seed=seed, wait=wait, failures=failures, backoff=backoff,
        )  # fmt: skip
        self._urls = {name: _Upstream(name) for name in names}
        self._bad = dict.fromkeys(names, 0)  # checks in a row that failed
        self._shared: dict[str, int] = dict.fromkeys(names, 0)  # in flight here by shared leases
        self._ask_again = 0.0
        self.metrics = Metrics()
        self._transports: dict[str, Any] = {}
        self._checking: asyncio.Task[None] | None = None

    # --- the application --------------------------------------------------------------------------------

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Serve one connection of ASGI."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            self.start()
            if scope["path"].startswith("/-/"):
                await self._own(scope, receive, send)
            else:
                await self._pass_on(scope, receive, send)
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
            for name in self._urls:
                self._transports[name] = self._httpx.AsyncHTTPTransport(
                    verify=secure, limits=limits, trust_env=False
                )
            if self._health_path is not None:
                self._checking = asyncio.get_running_loop().create_task(self._check_all())

    async def close(self) -> None:
        """End checks and probes, close connections."""
        task, self._checking = self._checking, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._fleet.close()
        if self._loads is not None:
            await self._loads.close()
        transports, self._transports = self._transports, {}
        for transport in transports.values():
            await transport.aclose()

    async def _live(self, receive: _Receive, send: _Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # --- one request ------------------------------------------------------------------------------------

    async def _pass_on(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        body = _Body(scope, receive)
        answer = _Answer(send)
        try:
            exchange = asyncio.ensure_future(self._in_time(scope, body, answer))
            leaving = asyncio.ensure_future(body.gone())
            try:
                await asyncio.wait({exchange, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                leaving.cancel()
                if not exchange.done():
                    exchange.cancel()
                await asyncio.wait({exchange, leaving})
            if exchange.cancelled():
                raise _ClientGoneError
            exchange.result()
        except _ClientGoneError:
            self.metrics.aborted["client"] += 1
        except _AnswerError as error:
            if answer.begun:  # too late to tell: an answer that ends early is all that is left
                self.metrics.aborted["timeout" if error.status == 504 else "upstream"] += 1
                return
            await _say(scope, receive, send, error.status, error.line)

    async def _in_time(self, scope: _Scope, body: _Body, answer: _Answer) -> None:
        try:
            async with asyncio.timeout(self._total):
                await self._exchange(scope, body, answer, await self._key(scope, body))
        except TimeoutError:
            raise _AnswerError(504, f"no complete answer within {self._total:g} s") from None
        except KeyMissingError as error:
            self.metrics.rejected["bad_request"] += 1
            raise _AnswerError(400, str(error)) from None
        except _TooLargeError:
            self.metrics.rejected["too_large"] += 1
            raise _AnswerError(413, f"the body has more than {self._max_body} bytes") from None
        except RingFullError:
            self.metrics.rejected["full"] += 1
            raise _AnswerError(503, "all upstreams are at their limit of requests: try again") from None
        except NoNodesError:
            self.metrics.rejected["down"] += 1
            raise _AnswerError(503, "no upstream is up: try again") from None

    async def _key(self, scope: _Scope, body: _Body) -> Key:
        if not _target(scope).startswith(b"/"):
            raise KeyMissingError("the target of a request must be a path: this is no forward proxy")
        if self._rule.needs_body and body.exists:
            return self._rule.of_body(await body.keep(self._max_body))
        return self._rule.of_head(_target(scope), scope["query_string"], scope["headers"])

    async def _exchange(self, scope: _Scope, body: _Body, answer: _Answer, key: Key) -> None:
        failed: tuple[str, ...] = ()
        while True:
            async with self._admitted(key, failed) as name:
                if self._on_admission is not None:
                    self._on_admission(key, name)
                epoch = self._fleet.health.epoch(name)
                begun = time.monotonic()
                try:
                    response = await self._transports[name].handle_async_request(
                        self._request(name, scope, body)
                    )
                except self._httpx.TransportError as error:
                    self._note(name, error, epoch)
                    if len(failed) >= self._retries or not self._repeatable(error, scope, body):
                        raise self._failure(name, error) from error
                else:
                    self._fleet.health.succeeded(name)
                    self.metrics.answered(name, response.status_code, time.monotonic() - begun)
                    try:
                        await answer.relay(response)
                    except self._httpx.TransportError as error:
                        self._note(name, error, epoch)
                        raise self._failure(name, error) from error
                    finally:
                        await response.aclose()
                    return
            failed += (name,)
            self._fleet.repeats += 1

    @contextlib.asynccontextmanager
    async def _admitted(self, key: Key, failed: tuple[str, ...]) -> AsyncIterator[str]:
        """Hold a place at an upstream: by shared counts if there are any and Redis answers, else by ours."""
        async with contextlib.AsyncExitStack() as stack:
            ask = self._loads is not None and time.monotonic() >= self._ask_again
            name = await self._shared_place(stack, key, failed) if ask else None
            if name is None:
                name = await stack.enter_async_context(self._fleet.admitted(key, failed))
            yield name

    async def _shared_place(
        self, stack: contextlib.AsyncExitStack, key: Key, failed: tuple[str, ...]
    ) -> str | None:
        assert self._loads is not None
        try:
            lease = self._loads.admitted(self.ring, key, avoid=failed)
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
        stack.callback(self._left, name)
        return name

    def _left(self, name: str) -> None:
        self._shared[name] -= 1

    def _request(self, name: str, scope: _Scope, body: _Body) -> Any:
        upstream = self._urls[name]
        target = (
            upstream.path + _target(scope) + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        )
        return self._httpx.Request(
            scope["method"],
            name,
            headers=_sent_on(scope, None if self._keep_host else upstream.host),
            content=body.to_send(),
            extensions={"timeout": self._timeout, "target": target},
        )

    def _repeatable(self, error: BaseException, scope: _Scope, body: _Body) -> bool:
        if not body.untouched:
            return False
        if isinstance(error, self._httpx.ConnectError | self._httpx.ConnectTimeout):
            return True
        if isinstance(error, self._httpx.TimeoutException):
            return False  # another replica would be asked for the same long work
        return scope["method"] in _SAFE and not body.exists

    def _note(self, name: str, error: BaseException, epoch: int) -> None:
        """Slow is not dead; all else that ends a connection counts."""
        if not isinstance(
            error, self._httpx.ReadTimeout | self._httpx.WriteTimeout | self._httpx.PoolTimeout
        ):
            self._fleet.health.failed(name, error, epoch=epoch)

    def _failure(self, name: str, error: BaseException) -> _AnswerError:
        if isinstance(error, self._httpx.TimeoutException):
            return _AnswerError(504, f"upstream did not answer in time ({type(error).__name__})")
        return _AnswerError(502, f"upstream failed ({type(error).__name__})")

    # --- health -----------------------------------------------------------------------------------------

    async def _probe(self, name: str) -> None:
        """Ask a replica for its health, or just connect; raises if that fails."""
        upstream = self._urls[name]
        if self._health_path is None:
            opened = asyncio.open_connection(upstream.hostname, upstream.port)
            _, writer = await asyncio.wait_for(opened, self._health_timeout)
            writer.close()
            return
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), self._health_timeout)
        request = self._httpx.Request(
            "GET", name, headers={"user-agent": "evenbins", "accept": "*/*"},
            extensions={"timeout": timeout, "target": upstream.path + self._health_path.encode()},
        )  # fmt: skip
        async with asyncio.timeout(self._health_timeout):
            response = await self._transports[name].handle_async_request(request)
            try:
                async for _ in response.stream:
                    pass
            finally:
                await response.aclose()
        if response.status_code >= 400:
            raise ConnectionError(f"{self._health_path} answered {response.status_code}")

    async def _check_all(self) -> None:
        while True:
            status = self._fleet.health.status()
            await asyncio.gather(*(self._check(name) for name, each in status.items() if each["alive"]))
            await asyncio.sleep(self._health_interval)

    async def _check(self, name: str) -> None:
        epoch = self._fleet.health.epoch(name)
        try:
            await self._probe(name)
        except Exception as error:  # whatever it meets, it is not healthy
            self._bad[name] += 1
            if self._bad[name] >= self._failures:
                self._bad[name] = 0
                self._fleet.health.failed(name, error, epoch=epoch, at_once=True)
        else:
            self._bad[name] = 0

    # --- what operators see -----------------------------------------------------------------------------

    @property
    def ring(self) -> HashRing:
        """The ring, for looking."""
        return self._fleet.ring

    def drain(self, upstream: str) -> None:
        """Send nothing new to a replica; what is under way goes on."""
        self._fleet.health.drain(upstream)

    def undrain(self, upstream: str) -> None:
        """Use a drained replica again."""
        self._fleet.health.undrain(upstream)

    def status(self) -> dict[str, Any]:
        """Give the state, requests in flight and failures of each upstream, and what was counted so far."""
        fleet = self._fleet.status()
        servers: dict[str, dict[str, Any]] = fleet["servers"]
        weights = self.ring.weights
        for name, each in servers.items():
            each["in_flight"] += self._shared[name]
            each["weight"] = weights[name]
        return {
            "upstreams": servers,
            "in_flight": sum(each["in_flight"] for each in servers.values()),
            "epsilon": self.ring.epsilon,
            "limit": self.ring.limit,
            "shared": self._loads is not None,
            "fingerprint": self.ring.fingerprint(),
            "jumps": fleet["jumps"],
            "repeats": fleet["repeats"],
            "answers": sum(self.metrics.requests.values()),
            "rejected": dict(self.metrics.rejected),
            "aborted": dict(self.metrics.aborted),
        }

    async def _own(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        from starlette.responses import JSONResponse, PlainTextResponse

        page, method = scope["path"], scope["method"]
        if page == "/-/metrics" and method in ("GET", "HEAD"):
            text = self.metrics.text(self.status())
            answer = PlainTextResponse(text, headers={"content-type": "text/plain; version=0.0.4"})
            await answer(scope, receive, send)
        elif page == "/-/status" and method in ("GET", "HEAD"):
            await JSONResponse(self.status())(scope, receive, send)
        elif page == "/-/healthy" and method in ("GET", "HEAD"):
            up = any(each["state"] == "up" for each in self.status()["upstreams"].values())
            await _say(scope, receive, send, 200 if up else 503, "ok" if up else "no upstream is up")
        elif page in ("/-/drain", "/-/undrain"):
            await _say(scope, receive, send, *self._ordered(page, method, scope))
        else:
            await _say(scope, receive, send, 404, "pages are /-/metrics, /-/status, /-/healthy, /-/drain")

    def _ordered(self, page: str, method: str, scope: _Scope) -> tuple[int, str]:
        """Drain or undrain, if whoever asks may: a program on this machine, no web page, no other proxy."""
        if method != "POST":
            return 405, "use POST"
        names = {name.lower() for name, _ in scope["headers"]}
        if not _local(scope) or names & {b"origin", b"x-forwarded-for"}:
            return 403, "only programs on this machine may do that"
        given = parse_qs(scope["query_string"].decode("ascii", "replace")).get("upstream", [])
        if len(given) != 1 or given[0] not in self._urls:
            return 400, "name one upstream, as /-/status writes it: /-/drain?upstream=URL"
        (self.drain if page == "/-/drain" else self.undrain)(given[0])
        return 200, json.dumps({given[0]: self._fleet.health.state(given[0])})


class _Answer:
    """A replica's answer on its way to the client."""

    def __init__(self, send: _Send) -> None:
        self._send = send
        self.begun = False

    async def relay(self, response: Any) -> None:
        dropped = _HOP_BY_HOP | _named(response.headers.raw)
        headers = [
            (name.lower(), value) for name, value in response.headers.raw if name.lower() not in dropped
        ]
        self.begun = True
        await self._told({"type": "http.response.start", "status": response.status_code, "headers": headers})
        async for piece in response.stream:
            await self._told({"type": "http.response.body", "body": piece, "more_body": True})
        await self._told({"type": "http.response.body", "body": b"", "more_body": False})

    async def _told(self, message: _Message) -> None:
        try:
            await self._send(message)
        except OSError:
            raise _ClientGoneError from None


class _Upstream:
    """The parts of a replica's URL."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.hostname = parts.hostname or ""
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.host = parts.netloc.rpartition("@")[2].encode("idna" if not parts.netloc.isascii() else "ascii")
        self.path = parts.path.rstrip("/").encode()


def _checked_url(url: object) -> str:
    rule = "a URL such as http://127.0.0.1:8001"
    if not isinstance(url, str):
        raise TypeError(arguments.problem("an upstream", rule, url, "Pass a str"))
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if (
        not good
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
        or not url.isprintable()
        or " " in url
    ):
        raise ValueError(arguments.problem("an upstream", rule, url, "Leave out user, query and fragment"))
    return url


def _named(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Give the headers that Connection names: they end here too."""
    values = (value for name, value in headers if name.lower() == b"connection")
    return frozenset(each.strip().lower() for value in values for each in value.split(b","))


def _sent_on(scope: _Scope, host: bytes | None) -> list[tuple[bytes, bytes]]:
    """Give the headers for a replica: without those of this connection, with some about the client."""
    given: list[tuple[bytes, bytes]] = scope["headers"]
    values: dict[bytes, bytes] = {}
    for name, value in given:
        values.setdefault(name.lower(), value)
    dropped = _HOP_BY_HOP | _FORWARDED | _named(given)
    original = values.get(b"host", b"")
    sent = [(b"host", original if host is None else host)]
    sent += [(name, value) for name, value in given if name.lower() not in dropped]
    client = (scope.get("client") or ("",))[0].encode()
    chain = [each for each in (values.get(b"x-forwarded-for"), client) if each]
    sent += [(b"x-forwarded-for", b", ".join(chain))] if chain else []
    sent += [(b"x-forwarded-proto", scope["scheme"].encode())]
    sent += [(b"x-forwarded-host", original)] if original else []
    return sent


def _target(scope: _Scope) -> bytes:
    """Give the path as the client wrote it."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path


def _local(scope: _Scope) -> bool:
    client = scope.get("client")
    if not client:
        return True  # a Unix socket
    try:
        return ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False


async def _say(scope: _Scope, receive: _Receive, send: _Send, status: int, line: str) -> None:
    from starlette.responses import PlainTextResponse

    headers = {"retry-after": "1"} if status == 503 else {}
    await PlainTextResponse(line + "\n", status, headers=headers)(scope, receive, send)

"""The HTTP router between hostile clients and hostile replicas; good requests are sent through it meanwhile.

    python tools/router_hostile.py                            a minute of random pairs
    python tools/router_hostile.py --seconds 600 --seed 7

    hostile clients (CLIENTS) ──▶ Router ──▶ three replicas that do what the path says (REPLICAS), one that
    good clients (the checker) ─▶            closes every connection, one port where nobody listens

Promises
- No good request is refused: a GET of any key, and a POST of a key of the three, is answered with 200 and the
  answer is its own.
- A hostile exchange ends in one of the answers that CLIENTS and REPLICAS allow.
- Afterwards nothing is in flight, no connection of a client is open, the three replicas are up (none was ever
  down), and the log has no traceback.

The same table is run once, every client against every replica, by tests/cluster/test_router_hostile.py. The
exit status is 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import logging
import os
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from evenbins.cluster.health import Backoff
from evenbins.cluster.http import Router, RouterConfig
from evenbins.cluster.http_protocol import protocol

__all__ = [
    "CLIENTS", "PARSED", "REPLICAS", "SLOTLESS", "Outcome", "all_pairs", "hostile_run", "random_pairs",
]  # fmt: skip

BUFFER = 2**16  # bytes of a body before a place is taken
LARGE = 5 * BUFFER
_CLOSED = 0  # instead of a status: the connection was closed without an answer

_Reader = asyncio.StreamReader
_Writer = asyncio.StreamWriter


# --- replicas -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HostileReplica:
    """A way to answer.

    Attributes
    ----------
    answer : what is sent after the request; may close the connection
    statuses : what a client may get for it
    """

    answer: Callable[[_Reader, _Writer], Awaitable[None]]
    statuses: frozenset[int]


REPLICAS: dict[str, HostileReplica] = {}
_OK = b"HTTP/1.1 200 OK\r\n"


def _replica(*statuses: int) -> Callable[[Callable[[_Reader, _Writer], Awaitable[None]]], None]:
    def add(answer: Callable[[_Reader, _Writer], Awaitable[None]]) -> None:
        REPLICAS[answer.__name__.strip("_")] = HostileReplica(answer, frozenset(statuses))

    return add


def _replica_bytes(name: str, data: bytes, *statuses: int, close: bool = False) -> None:
    async def answer(reader: _Reader, writer: _Writer) -> None:
        writer.write(data)
        await writer.drain()
        if close:
            writer.close()

    REPLICAS[name] = HostileReplica(answer, frozenset(statuses))


_replica_bytes("half", _OK + b"Content-Length: 100\r\n\r\nhalf", 200, close=True)
_replica_bytes("half_chunk", _OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nhalf", 200, close=True)
_replica_bytes("bad_chunk", _OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhalf\r\n", 200)
_replica_bytes("half_head", _OK + b"Content-Len", 502, close=True)
_replica_bytes("garbage", b"this is not http\r\n\r\n", 502)
_replica_bytes("huge_head", _OK + b"X: " + b"a" * 200_000 + b"\r\n\r\n", 502)
_replica_bytes("status_999", b"HTTP/1.1 999 X\r\nContent-Length: 2\r\n\r\nok", 502)
_replica_bytes("status_101", b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 502)
_replica_bytes("two_lengths", _OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok", 502)
_replica_bytes(
    "length_and_chunks",
    _OK + b"Content-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    502,
)
_replica_bytes("too_long", _OK + b"Content-Length: 2\r\n\r\nok and more", 200)
_replica_bytes("two_answers", (_OK + b"Content-Length: 4\r\n\r\nevil") * 2, 200)
_replica_bytes("no_content_with_body", b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nhello", 204)
_replica_bytes("hints", b"HTTP/1.1 103 E\r\nLink: </a>\r\n\r\n" + _OK + b"Content-Length: 2\r\n\r\nok", 200)
_replica_bytes("latin", _OK + b"X-L: \xe4\r\nContent-Length: 2\r\n\r\nok", 200)
_replica_bytes("until_close", b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 5000, 200, close=True)
_replica_bytes("early", b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno\n", 413, 502, close=True)


@_replica(502)
async def _cut(reader: _Reader, writer: _Writer) -> None:
    writer.transport.abort()


@_replica(504)
async def _never(reader: _Reader, writer: _Writer) -> None:
    await reader.read()  # until the router gives up


@_replica(200)
async def _slow(reader: _Reader, writer: _Writer) -> None:
    for piece in (b"HTTP/1.1 200 O", b"K\r\nContent-Len", b"gth: 2\r\n\r\n", b"o", b"k"):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.05)


@_replica(200)
async def _endless(reader: _Reader, writer: _Writer) -> None:
    """A stream of events that ends when its client does; some clients stay, so after a while."""
    writer.write(_OK + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(30):
        writer.write(b"6\r\ndata:\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)
    writer.write(b"0\r\n\r\n")


@_replica(200)
async def _big(reader: _Reader, writer: _Writer) -> None:
    """More than the buffers of both sockets hold."""
    writer.write(_OK + b"Content-Length: 16000000\r\n\r\n")
    for _ in range(250):
        writer.write(bytes(64_000))
        await writer.drain()


async def _serve_replica(reader: _Reader, writer: _Writer) -> None:
    """Answer as the path says: /good/... with the request's own data, /NAME/... as REPLICAS has it."""
    try:
        while not writer.is_closing():
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, _ = head.split(b" ", 2)
            name = target.split(b"/")[1].decode()
            fields = head.lower()
            if name in ("early", "cut"):
                await REPLICAS[name].answer(reader, writer)
                return
            body = b""
            if b"transfer-encoding: chunked" in fields:
                while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
                    body += (await reader.readexactly(size + 2))[:-2]
                await reader.readexactly(2)
            elif b"content-length: " in fields:
                body = await reader.readexactly(int(fields.split(b"content-length: ")[1].split(b"\r\n")[0]))
            if name == "good":
                data = b"%s %s %d %s" % (method, target, len(body), body[:100])
                writer.write(_OK + b"Content-Length: %d\r\n\r\n" % len(data) + data)
                await writer.drain()
            else:
                await REPLICAS[name].answer(reader, writer)
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def _close_at_once(reader: _Reader, writer: _Writer) -> None:
    writer.close()


# --- clients --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HostileClient:
    """A way to ask.

    Attributes
    ----------
    act : sends on a connection; returns what it got
    statuses : what it may get whatever the replica does; None: what the replica's answer allows
    """

    act: Callable[[_Reader, _Writer, bytes], Awaitable[bytes]]
    statuses: frozenset[int] | None


CLIENTS: dict[str, HostileClient] = {}
SLOTLESS = []  # clients whose request never arrives: they never have a place at a replica


def _client(*statuses: int, slotless: bool = False) -> Callable[[Callable[..., Awaitable[bytes]]], None]:
    def add(act: Callable[[_Reader, _Writer, bytes], Awaitable[bytes]]) -> None:
        name = act.__name__.strip("_")
        CLIENTS[name] = HostileClient(act, frozenset(statuses) or None)
        if slotless:
            SLOTLESS.append(name)

    return add


def _client_bytes(name: str, data: bytes, *statuses: int, slotless: bool = False) -> None:
    """A client that sends this, PATH replaced, and reads until the connection is closed."""

    async def act(reader: _Reader, writer: _Writer, path: bytes) -> bytes:
        writer.write(data.replace(b"PATH", path))
        return await reader.read()

    CLIENTS[name] = HostileClient(act, frozenset(statuses) or None)
    if slotless:
        SLOTLESS.append(name)


_HEAD = b" PATH HTTP/1.1\r\nHost: x\r\n"
_CLOSE = b"Connection: close\r\n"
_LENGTH = b"Content-Length: %d\r\n\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
_client_bytes("get", b"GET" + _HEAD + _CLOSE + b"\r\n")
_client_bytes("head", b"HEAD" + _HEAD + _CLOSE + b"\r\n")
_client_bytes("post", b"POST" + _HEAD + _CLOSE + _LENGTH % 5 + b"hello")
_client_bytes("post_chunks", b"POST" + _HEAD + _CLOSE + _CHUNKED + b"5\r\nhello\r\n0\r\n\r\n")
_client_bytes("post_large", b"POST" + _HEAD + _CLOSE + _LENGTH % LARGE + bytes(LARGE))
_client_bytes("http_1_0", b"GET PATH HTTP/1.0\r\n\r\n")
_client_bytes("upgrade", b"GET" + _HEAD + b"Connection: upgrade, close\r\nUpgrade: websocket\r\n\r\n")
_client_bytes("no_head", b"", _CLOSED, slotless=True)
_client_bytes("half_head", b"GET" + _HEAD + b"X-Half", 408, slotless=True)
_client_bytes("no_body", b"POST" + _HEAD + _LENGTH % 1000, 408, slotless=True)
_client_bytes("half_body", b"POST" + _HEAD + _LENGTH % 10**6 + b"x", 408, slotless=True)
_client_bytes("half_chunk", b"POST" + _HEAD + _CHUNKED + b"5\r\nhe", 408, slotless=True)
_client_bytes("continue", b"POST" + _HEAD + b"Expect: 100-continue\r\n" + _LENGTH % 9, 408, slotless=True)
_client_bytes("connect", b"CONNECT PATH HTTP/1.1\r\nHost: x\r\n\r\n", 400, slotless=True)
_client_bytes("garbage", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, slotless=True)
_client_bytes("bad_chunk", b"POST" + _HEAD + _CHUNKED + b"zz\r\nhello\r\n", 400, slotless=True)
_client_bytes("bad_length", b"POST" + _HEAD + b"Content-Length: +5\r\n\r\nhello", 400, slotless=True)
for _name, _lines, _statuses in (
    ("two_lengths", b"POST" + _HEAD + b"Content-Length: 1\r\n" + _LENGTH % 2 + b"ab", [400]),
    ("length_and_chunks", b"POST" + _HEAD + b"Content-Length: 1\r\n" + _CHUNKED + b"0\r\n\r\n", [400]),
    ("old_chunks", b"POST PATH HTTP/1.0\r\n" + _CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", [400]),
    ("huge_head", b"GET" + _HEAD + b"X: " + b"a" * 200_000 + b"\r\n\r\n", [400, _CLOSED]),
    ("page_bad_chunk", b"POST /-/status HTTP/1.1\r\nHost: x\r\n" + _CHUNKED + b"zz\r\n", [400, 404]),
    ("page_no_body", b"POST /-/drain HTTP/1.1\r\nHost: x\r\n" + _LENGTH % 9, [400]),
):
    _client_bytes(_name, _lines, *_statuses, slotless=True)
_client_bytes("large_silence", b"POST" + _HEAD + _LENGTH % (2 * LARGE) + bytes(LARGE), 408, 413, 502)
_LATE = b"%x\r\n" % LARGE + bytes(LARGE) + b"\r\nzz\r\n"
_client_bytes("large_bad_chunk", b"POST" + _HEAD + _CHUNKED + _LATE, 400, 413, 502)


PARSED = []  # clients whose bodies are parsed for their keys; all but the last have the key of their path
for _name, _body in (
    ("json_cut", b'{"messages": [{"role": "user"'),
    ("json_deep", b"[" * 60_000),
    ("json_deep_objects", b'{"messages":' * 5_000),
    ("json_deep_message", b'{"messages": [' + b"[" * 900 + b"]" * 900 + b"]}"),
    ("json_huge", b'{"prompt": "' + b"x" * LARGE + b'"}'),
    ("json_long_integer", b'{"prompt": ' + b"9" * 50_000 + b"}"),
    ("json_latin", b'{"prompt": "\xe4\xff"}'),
    ("json_types", b'{"messages": {"role": 1}, "prompt": [true, null], "model": ["m"]}'),
    ("json_no_chat", b'{"messages": [1, "x", null], "prompt": {"a": NaN}}'),
    ("json_parts", b'{"messages": [{"content": [{"text": "a"}, 7], "content": [[]]}], "model": "\\ud800"}'),
):
    PARSED.append(_name)
    _client_bytes(_name, b"POST" + _HEAD + _CLOSE + _LENGTH % len(_body) + _body)
CLIENTS["json_parts"] = HostileClient(
    CLIENTS["json_parts"].act, frozenset({502}.union(*(each.statuses for each in REPLICAS.values())))
)


@_client()
async def _send_pipelined(reader: _Reader, writer: _Writer, path: bytes) -> bytes:
    """Two requests at once, then bytes that are not a request."""
    writer.write((b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n") * 2 + b"\x00\x01garbage\r\n\r\n")
    return await reader.read()


@_client(408, _CLOSED, slotless=True)
async def _trickle(reader: _Reader, writer: _Writer, path: bytes) -> bytes:
    """A byte of the body at a time, each well before the deadline."""
    writer.write(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\n" + _LENGTH % 1000)
    reading = asyncio.ensure_future(reader.read())
    while not reading.done():
        writer.write(b"x")
        await asyncio.wait({reading}, timeout=0.1)
    return await reading


@_client(_CLOSED)
async def _leave_at_once(reader: _Reader, writer: _Writer, path: bytes) -> bytes:
    writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    await writer.drain()
    writer.transport.abort()
    return b""


@_client(_CLOSED, slotless=True)
async def _leave_in_body(reader: _Reader, writer: _Writer, path: bytes) -> bytes:
    writer.write(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\n" + _LENGTH % 1000 + b"half")
    await writer.drain()
    await asyncio.sleep(0.02)
    writer.transport.abort()
    return b""


@_client(_CLOSED, slotless=True)
async def _half_close_in_body(reader: _Reader, writer: _Writer, path: bytes) -> bytes:
    writer.write(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\n" + _LENGTH % 1000 + b"half")
    writer.write_eof()
    return await reader.read()


@_client()
async def _leave_in_answer(reader: _Reader, writer: _Writer, path: bytes) -> bytes:
    writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    got = await reader.read(200)
    writer.transport.abort()
    return got


@_client(_CLOSED)
async def _never_read(reader: _Reader, writer: _Writer, path: bytes) -> bytes:
    """Ask, and read nothing until the router has given up."""
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.sleep(2.0)
    writer.transport.abort()
    return b""


# --- the run --------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What came of a run; every list must be empty."""

    exchanges: int = 0
    good: int = 0
    refused: list[str] = field(default_factory=list)
    unsound: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def problems(self) -> list[str]:
        """All broken promises."""
        return self.refused + self.unsound + self.logged + self.left


class _Tracebacks(logging.Handler):
    def __init__(self, logged: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._logged = logged

    def emit(self, record: logging.LogRecord) -> None:
        """Keep records with a traceback; a broken answer has a line without one."""
        if record.exc_info or "Traceback" in record.getMessage():
            self._logged.append(self.format(record))


class _Server(uvicorn.Server):
    def capture_signals(self) -> Any:
        return contextlib.nullcontext()


@contextlib.asynccontextmanager
async def _serve(router: Router) -> AsyncIterator[tuple[int, _Server]]:
    """Serve a router as `evenbins route` does."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        config = uvicorn.Config(
            router, log_config=None, access_log=False, lifespan="on", ws="none", proxy_headers=False,
            timeout_keep_alive=75, timeout_graceful_shutdown=1, http=protocol(router.config.read_timeout),
        )  # fmt: skip
        server = _Server(config)
        task = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.005)
        try:
            yield listener.getsockname()[1], server
        finally:
            server.should_exit = True
            await task


def _status(answer: bytes) -> int:
    """Return the status of the first final answer."""
    while answer.startswith(b"HTTP/1.1 100 "):
        answer = answer.partition(b"\r\n\r\n")[2]
    if not answer:
        return _CLOSED
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.") and answer[9:12].isdigit() else -1


async def _connect(port: int) -> tuple[_Reader, _Writer]:
    return await asyncio.open_connection("127.0.0.1", port, limit=2**20)


async def _exchange(port: int, client: HostileClient, path: bytes) -> bytes:
    reader, writer = await _connect(port)
    try:
        return await client.act(reader, writer, path)
    except OSError:
        return b""
    finally:
        writer.close()


class _Checker:
    """Sends good requests, one after the other, and notes those that are not answered as they should."""

    def __init__(self, router: Router, good: list[str], port: int, outcome: Outcome) -> None:
        self._port, self._outcome = port, outcome
        keys = [f"/good/{number}" for number in range(200)]
        self._get = itertools.cycle(keys)
        self._post = itertools.cycle([key for key in keys if router.ring.node(key) in good])
        chats = [b'{"messages": [{"role": "user", "content": "%d"}]}' % number for number in range(200)]
        placed = {body: router.ring.node(router.rules.key(b"/", b"", [], "", body).key) for body in chats}
        self._chat = itertools.cycle([body for body in chats if placed[body] in good])

    async def check(self) -> None:
        """Send a GET, a POST and a chat."""
        await self._ask("GET", next(self._get), b"")
        await self._ask("POST", next(self._post), b"body %d" % self._outcome.good)
        await self._ask("POST", "/good/chat", next(self._chat))

    async def _ask(self, method: str, path: str, body: bytes) -> None:
        reader, writer = await _connect(self._port)
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode()
        try:
            writer.write(head + _LENGTH % len(body) + body)
            answer = await asyncio.wait_for(reader.read(), 120)
        except (OSError, TimeoutError) as error:
            answer = repr(error).encode()
        finally:
            writer.close()
        self._outcome.good += 1
        expected = f"{method} {path} {len(body)} ".encode() + body
        if not answer.startswith(b"HTTP/1.1 200 ") or not answer.endswith(b"\r\n\r\n" + expected):
            self._outcome.refused.append(f"{method} {path}: {answer[:200]!r}")


def all_pairs() -> list[tuple[str, str]]:
    """Return every client with every replica; those of SLOTLESS and PARSED with three of them; mixed."""
    pairs = [
        (client, replica)
        for client in CLIENTS
        for number, replica in enumerate(REPLICAS)
        if client not in (*SLOTLESS, *PARSED) or number < 3
    ]
    random.Random(1).shuffle(pairs)
    return pairs


def random_pairs(seconds: float, seed: int) -> Iterator[tuple[str, str]]:
    """Yield random pairs until the time is up."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    clients, replicas = list(CLIENTS), list(REPLICAS)
    while time.monotonic() < end:
        yield rng.choice(clients), rng.choice(replicas)


async def hostile_run(
    pairs: Iterable[tuple[str, str]],
    *,
    limit: int,
    at_once: int,
    idle: int,
    read_timeout: float,
    good: int = 4,
) -> Outcome:
    """Run hostile exchanges beside good ones.

    Parameters
    ----------
    pairs
        Names of clients and replicas, see CLIENTS and REPLICAS.
    limit
        Of the router: requests at a replica.
    at_once
        So many exchanges at a time.
    idle
        So many connections that send nothing, opened before.
    read_timeout
        Of the router.
    good
        So many good requests at a time.
    """
    outcome = Outcome()
    log = _Tracebacks(outcome.logged)
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    for each in loggers:
        each.addHandler(log)
        each.propagate = False
    async with contextlib.AsyncExitStack() as stack:
        for each in loggers:
            stack.callback(each.removeHandler, log)
            stack.callback(setattr, each, "propagate", True)
        sound = [await _listening(stack, _serve_replica) for _ in range(3)]
        closing = await _listening(stack, _close_at_once)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
        router = Router(RouterConfig(
            [*sound, closing, dead], limit=limit, read_timeout=read_timeout, body_buffer=BUFFER,
            backoff=Backoff(first=0.05, most=1.0), key=["messages", "prompt", "path"], max_body=BUFFER,
        ))  # fmt: skip
        paths = {
            name: next(
                path for n in range(100) if router.ring.node(path := f"/{name}/{n}") in sound
            ).encode()
            for name in REPLICAS
        }  # fmt: skip
        port, server = await stack.enter_async_context(_serve(router))
        descriptors = len(os.listdir("/proc/self/fd"))
        idlers = [await _connect(port) for _ in range(idle)]
        checker = _Checker(router, sound, port, outcome)
        await _exchanges(checker, good, port, pairs, paths, at_once, outcome)
        for _, writer in idlers:
            writer.close()
        deadline = time.monotonic() + 60
        while router.status()["in_flight"] or server.server_state.connections:
            if time.monotonic() > deadline:
                open_ones = len(server.server_state.connections)
                outcome.left.append(f"{router.status()['in_flight']} in flight, {open_ones} connections left")
                break
            await asyncio.sleep(0.02)
        for name, each in router.status()["upstreams"].items():
            if name in sound and (each["state"] != "up" or each["failures"]):
                outcome.left.append(f"a good replica is {each['state']} after {each['error']}")
        await checker.check()  # a request ends idle connections to replicas that have expired
        if (more := len(os.listdir("/proc/self/fd")) - descriptors) > 3 * at_once:
            outcome.left.append(f"{more} descriptors more than before")
    return outcome


async def _exchanges(
    checker: _Checker, good: int, port: int, pairs: Iterable[tuple[str, str]],
    paths: dict[str, bytes], at_once: int, outcome: Outcome,
) -> None:  # fmt: skip
    """Run the pairs, at most so many at a time, and the checker until they have ended."""
    source = iter(pairs)

    async def one(client: str, replica: str) -> None:
        begun = time.monotonic()
        answer = await asyncio.wait_for(_exchange(port, CLIENTS[client], paths[replica]), 120)
        status = _status(answer)
        outcome.exchanges += 1
        outcome.statuses[status] += 1
        allowed = CLIENTS[client].statuses
        if status not in (REPLICAS[replica].statuses if allowed is None else allowed):
            seconds = time.monotonic() - begun
            outcome.unsound.append(f"{client} with {replica}: {answer[:100]!r} after {seconds:.2f} s")

    async def work() -> None:
        for client, replica in source:
            await one(client, replica)
            await asyncio.sleep(0)

    workers = asyncio.gather(*(work() for _ in range(at_once)))

    async def check() -> None:
        while not workers.done():
            await checker.check()

    await asyncio.gather(workers, *(check() for _ in range(good)))
    await checker.check()


async def _listening(
    stack: contextlib.AsyncExitStack, serve: Callable[[_Reader, _Writer], Awaitable[None]]
) -> str:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**22)
    stack.callback(server.close)
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def main() -> None:
    """Run random pairs, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=60, help="hostile exchanges at a time")
    parser.add_argument("--read-timeout", type=float, default=3.0)
    options = parser.parse_args()
    outcome = asyncio.run(
        hostile_run(
            random_pairs(options.seconds, options.seed),
            limit=1000,
            at_once=options.at_once,
            idle=200,
            read_timeout=options.read_timeout,
        )
    )
    statuses = ", ".join(f"{status or 'closed'}: {n}" for status, n in sorted(outcome.statuses.items()))
    print(f"{outcome.exchanges} hostile exchanges")
    print(f"{outcome.good} good requests, {len(outcome.refused)} refused")
    print(f"answers to hostile clients: {statuses}")
    for each in outcome.problems[:20]:
        print(each)
    sys.exit(1 if outcome.problems else 0)


if __name__ == "__main__":
    main()

"""The router's defences, one by one: broken connections, slow clients, framing, forwarded headers.

test_router_hostile.py has all of it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections import Counter

import httpx
import pytest
import uvicorn
from http_replicas import fleet, go, raw, served, soon
from uvicorn.server import ServerState

from evenbins.cluster.http import Router, RouterConfig
from evenbins.cluster.http_admin import answer_change
from evenbins.cluster.http_headers import request_error
from evenbins.cluster.http_protocol import protocol

# --- what hostile clients and replicas must not bring about ---------------------------------------------


async def exchange(url: str, request: bytes) -> bytes:
    """Send bytes, return what comes until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


class Scripted:
    """A raw replica: closes the connection on /cut, answers others with `answer`; counts requests by path."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") -> None:
        self.answer = answer
        self.asked: Counter[str] = Counter()
        self.heads: list[bytes] = []

    async def __call__(self, reader, writer):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            path = head.split()[1].decode()
            self.asked[path] += 1
            if path == "/cut":
                return
            writer.write(self.answer)
            await writer.drain()


@contextlib.asynccontextmanager
async def before(*replicas, **options):
    """Serve raw replicas and a router in front of them; yield the router, its URL and a client."""
    async with contextlib.AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(raw(each)) for each in replicas]
        router = Router(RouterConfig(urls, **options))
        url = await stack.enter_async_context(served(router))
        client = httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=60)
        yield router, url, await stack.enter_async_context(client)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_requests_that_break_connections_take_no_replica_down(number):
    """Each is sent twice at most and answered with 502, truthfully; others are served."""

    async def test():
        replicas = [Scripted() for _ in range(number)]
        async with before(*replicas, failures=1) as (router, _, client):
            for turn in range(1, 6):
                answer = await client.get("/cut")
                assert (answer.status_code, answer.text) == (502, "upstream failed (RemoteProtocolError)\n")
                assert sum(each.asked["/cut"] for each in replicas) == turn * min(number, 2)
                assert (await client.get(f"/{turn}")).status_code == 200
            assert (await client.post("/cut", content=b"x")).status_code == 502
            assert sum(each.asked["/cut"] for each in replicas) == 5 * min(number, 2) + 1
            assert set(router.ring.states.values()) == {"up"}
            upstreams = router.status()["upstreams"].values()
            assert sum(each["failures"] for each in upstreams) == 0
            assert sum(each["broken"] for each in upstreams) == 5 * min(number, 2) + 1
            assert router.status()["aborted"] == {"upstream": 6}

    go(test())


def test_replicas_that_are_gone_and_not_yet_marked_down_are_a_502():
    """503 "no upstream is up" is the answer only when none is."""

    async def test():
        async with raw(Scripted()) as one, raw(Scripted()) as two:
            pass
        router = Router(RouterConfig([one, two], failures=3))
        async with (
            served(router) as url,
            httpx.AsyncClient(trust_env=False, verify=False, timeout=60) as client,
        ):
            for status in (502, 502, 502, 503):
                assert (await client.get(url)).status_code == status
            assert set(router.ring.states.values()) == {"down"}

    go(test())


def test_a_router_without_descriptors_blames_no_replica(monkeypatch):
    async def test():
        async with before(Scripted(), failures=1) as (router, _, _):
            (name,) = router.ring.names
            loop = asyncio.get_running_loop()

            async def exhausted(*arguments, **options):
                cause = OSError("All connection attempts failed")
                cause.__cause__ = OSError(errno.EMFILE, "Too many open files")
                raise cause

            monkeypatch.setattr(loop, "create_connection", exhausted)
            router.pools["default"].connections[name].close()
            client = httpx.AsyncClient(transport=httpx.ASGITransport(router), base_url="http://router")
            assert (await client.get("/")).status_code == 502
            assert router.ring.states == {name: "up"}

    go(test())


# --- places and slow clients ----------------------------------------------------------------------------


def test_an_idle_upload_takes_no_place_and_ends_in_408():
    async def test():
        async with before(Scripted(), limit=1, read_timeout=1.0) as (router, url, client):
            idle = [
                asyncio.create_task(
                    exchange(url, b"POST /u HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx")
                )
                for _ in range(4)
            ]
            await asyncio.sleep(0.05)
            assert router.status()["in_flight"] == 0
            assert (await client.get("/")).status_code == 200
            for each in idle:
                answer = await each
                assert answer.startswith(b"HTTP/1.1 408 ")
                assert b"connection: close" in answer.lower()
            assert router.status()["aborted"] == {"slow_client": 4}

    go(test())


def test_a_body_longer_than_the_buffer_has_a_deadline_while_it_holds_a_place():
    """Silence, and single bytes each of which comes in time."""

    async def swallow(reader, writer):
        await reader.read()

    async def test():
        async with before(swallow, limit=1, read_timeout=1.0, body_buffer=1000) as (router, url, _):
            head = b"POST /u HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
            silent = asyncio.create_task(exchange(url, head + bytes(2000)))
            await soon(lambda: router.status()["in_flight"] == 1)
            assert (await silent).startswith(b"HTTP/1.1 408 ")
            assert router.status()["in_flight"] == 0
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(head + bytes(2000))
            async with asyncio.timeout(60):
                while not reader.at_eof() and router.status()["aborted"].get("slow_client") != 2:
                    writer.write(b"x")
                    await asyncio.sleep(0.02)
            assert router.status()["in_flight"] == 0
            writer.close()
            assert set(router.ring.states.values()) == {"up"}

    go(test())


def test_a_client_that_does_not_read_loses_its_place():
    async def test():
        size = 30_000_000
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)
        async with before(Scripted(answer), limit=1, read_timeout=1.0) as (router, url, _):
            _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.transport.pause_reading()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await soon(lambda: router.status()["in_flight"] == 1)
            await soon(lambda: router.status()["in_flight"] == 0)
            await soon(lambda: router.status()["aborted"] == {"slow_client": 1})
            writer.transport.abort()

    go(test())


def test_a_body_that_was_passed_on_in_part_is_not_sent_again():
    """A long body: repeated from its first byte where nobody could be connected to, and else never."""

    async def half(reader, writer):
        took.append(await reader.readuntil(b"\r\n\r\n"))
        took.append(await reader.readexactly(50_000))

    async def test():
        async with fleet(1) as (inner, _, _), raw(half) as rude:
            async with raw(half) as dead:
                pass
            good = inner.ring.names[0]
            data = random.Random(7).randbytes(3_000_000)
            for first, status in ((rude, 502), (dead, 200)):
                router = Router(RouterConfig([good, first], body_buffer=1000, failures=100))
                path = next(f"/{n}" for n in range(99) if router.ring.node(f"/{n}") == first)
                async with (
                    served(router) as url,
                    httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=60) as client,
                ):
                    answer = await client.put(path, content=data)
                    assert answer.status_code == status
                    if status == 200:
                        assert answer.json()["body"] == data.decode("latin-1")
                    assert router.status()["repeats"] == (status == 200)
            assert len(took) == 2

    took = []
    go(test())


# --- framing and forwarded headers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("Content-Length: 1\r\nTransfer-Encoding: chunked", "both Content-Length and Transfer-Encoding"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", "both Content-Length and Transfer-Encoding"),
        ("Content-Length: 5\r\nContent-Length: 6", ""),
        ("Content-Length: 5, 6", ""),
        ("Content-Length: +5", ""),
        ("Content-Length: 0x5", ""),
    ],
)
def test_a_body_of_two_lengths_is_400_and_the_connection_closed(lines, words):
    async def test():
        replica = Scripted()
        async with before(replica) as (router, url, _):
            request = f"POST /a HTTP/1.1\r\nHost: x\r\n{lines}\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
            answer = await exchange(url, request.encode())
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert words in answer.decode()
            assert answer.count(b"HTTP/1.1 ") == 1
            assert replica.heads == []
            assert router.status()["in_flight"] == 0

    go(test())


def test_other_servers_heads_are_checked_too():
    """An ASGI server may let through what h11 refuses."""
    scope = {"method": "POST", "path": "/", "raw_path": b"/", "http_version": "1.1"}
    length, chunked = (b"Content-Length", b"5"), (b"transfer-encoding", b"chunked")
    for headers, good in (
        ([], True), ([length], True), ([chunked], True), ([length, length], True),
        ([(b"content-length", b"5, 5")], True),
        ([length, chunked], False), ([length, (b"content-length", b"6")], False),
        ([(b"content-length", b"5, 6")], False), ([(b"content-length", b"")], False),
        ([(b"content-length", b"-1")], False), ([(b"content-length", b"9" * 30)], False),
    ):  # fmt: skip
        assert (request_error(scope | {"headers": headers}) is None) == good
    assert request_error(scope | {"headers": [chunked], "http_version": "1.0"})
    assert request_error(scope | {"headers": [], "method": "CONNECT"})


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("600 X\r\nContent-Length: 2", 502),
        ("999 X\r\nContent-Length: 2", 502),
        ("101 X\r\nContent-Length: 2", 502),
        ("099 X\r\nContent-Length: 2", 502),
        ("200 X\r\nContent-Length: 2\r\nTransfer-Encoding: chunked", 502),
        ("200 X\r\nContent-Length: 2\r\nContent-Length: 3", 502),
        ("599 X\r\nContent-Length: 2", 599),
        ("299 X\r\nContent-Length: 2", 299),
        ("204 X\r\nContent-Length: 2", 204),
    ],
)
def test_an_impossible_answer_is_502(head, status):
    async def test():
        replica = Scripted(f"HTTP/1.1 {head}\r\n\r\nok".encode())
        async with before(replica) as (router, _, client):
            for method in ("GET", "POST"):
                answer = await client.request(method, "/")
                assert answer.status_code == status
                assert status != 204 or "content-length" not in answer.headers
            assert router.status()["in_flight"] == 0
            assert set(router.ring.states.values()) == {"up"}

    go(test())


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_what_comes_after_an_answer_is_not_the_next_ones(method):
    async def test():
        evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        replica = Scripted(evil + evil)
        async with before(replica) as (_, _, client):
            assert (await client.request(method, "/")).status_code == 200
            replica.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
            for _ in range(3):
                assert (await client.post("/", content=b"")).content == b"good"

    go(test())


@pytest.mark.parametrize(
    ("trusted", "sent", "expected"),
    [
        (
            ["127.0.0.1"],
            ["6.6.6.6", "203.0.113.9"],
            ("6.6.6.6, 203.0.113.9, 127.0.0.1", "https", "a.test"),
        ),
        (["10.0.0.0/8"], ["6.6.6.6", "203.0.113.9"], ("127.0.0.1", "http", "x.test")),
        (["127.0.0.0/8", "::1"], [], ("127.0.0.1", "https", "a.test")),
        ([], ["6.6.6.6, 7.7.7.7"], ("127.0.0.1", "http", "x.test")),
    ],
)
def test_forwarded_headers_are_kept_of_trusted_proxies_only(trusted, sent, expected):
    async def test():
        replica = Scripted()
        async with before(replica, trusted_proxies=trusted) as (_, _, client):
            lines = [("X-Forwarded-For", each) for each in sent]
            lines += [
                ("X-Forwarded-Proto", "https"),
                ("X-Forwarded-Host", "a.test"),
                ("Host", "x.test"),
            ]
            lines += [("Forwarded", "for=6.6.6.6"), ("X-Real-IP", "6.6.6.6"), ("X-Forwarded-Port", "1")]
            lines += [("X_Forwarded_For", "6.6.6.6"), ("X_Forwarded-Host", "b.test")]  # WSGI: the same names
            assert (await client.get("/", headers=lines)).status_code == 200
        got = [line.split(": ", 1) for line in replica.heads[0].decode().split("\r\n")[1:] if line]
        assert tuple(
            ", ".join(value for name, value in got if name == f"x-forwarded-{each}")
            for each in ("for", "proto", "host")
        ) == expected  # fmt: skip
        others = {name for name, _ in got} & {"forwarded", "x-real-ip", "x-forwarded-port"}
        assert len(others) == (3 if expected[1] == "https" else 0)
        assert not any("_" in name for name, _ in got)

    go(test())


@pytest.mark.parametrize(
    ("peer", "status"),
    [("127.0.0.1", 200), ("::1", 200), ("::ffff:127.0.0.1", 200), ("::ffff:10.0.0.1", 403)],
)
def test_this_machine_may_drain_by_any_of_its_loopback_addresses(peer, status):
    """A socket that listens on [::] shows clients of IPv4 by mapped addresses."""
    router = Router(RouterConfig(["http://127.0.0.1:1"]))
    scope = {"headers": [], "client": (peer, 1), "query_string": b"upstream=http://127.0.0.1:1"}
    assert answer_change(router, "drain", "POST", scope)[0] == status
    assert answer_change(router, "drain", "POST", scope | {"headers": [(b"x_forwarded_for", b"")]})[0] == 403


def test_a_connection_whose_answer_was_read_to_its_end_is_used_again():
    async def count(reader, writer):
        connections.append(1)
        await Scripted()(reader, writer)

    async def test():
        async with before(count) as (_, _, client):
            for method in ("GET", "POST", "GET"):
                assert (await client.request(method, "/")).content == b"ok"
        assert len(connections) < 3  # one, unless this machine paused for longer than connections are kept

    connections = []
    go(test())


class Unsent(asyncio.Transport):
    """A transport whose peer reads nothing, or everything."""

    def __init__(self, reads: bool) -> None:
        super().__init__()
        self.reads, self.unread, self.closing, self.aborted, self.paused = reads, 0, False, False, False

    def write(self, data):
        self.unread += 0 if self.reads else len(data)

    def get_write_buffer_size(self):
        return self.unread

    def close(self):
        self.closing = True

    def is_closing(self):
        return self.closing

    def abort(self):
        self.aborted = True

    def pause_reading(self):
        self.paused = True

    def resume_reading(self):
        self.paused = False


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize(
    "request_", [b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"no\r\n\r\n"]
)
def test_a_short_answer_that_nobody_reads_holds_no_connection(reads, request_):
    """Too little for pause_writing, which asyncio calls above 64 KiB."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def test():
        config = uvicorn.Config(app, log_level="critical", lifespan="off")
        config.load()
        transport = Unsent(reads)
        made = protocol(0.05)(config, ServerState(), {})
        made.connection_made(transport)
        made.data_received(request_)
        await soon(lambda: transport.closing)
        if reads:
            await asyncio.sleep(0.1)
        else:
            await soon(lambda: transport.aborted)
        assert transport.aborted is not reads
        made.connection_lost(None)

    go(test())


def test_a_client_that_sends_more_during_its_answer_is_seen_to_leave():
    """uvicorn stops reading at the first byte of a later request, and then no end of the connection comes."""

    async def app(scope, receive, send):
        await receive()
        left.append((await receive())["type"])

    async def test():
        config = uvicorn.Config(app, log_level="critical", lifespan="off")
        config.load()
        transport = Unsent(reads=True)
        made = protocol(5.0)(config, ServerState(), {})
        made.connection_made(transport)
        made.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0.01)
        made.data_received(b"GET /")
        assert not transport.paused
        made.data_received(b"x" * 2**16)
        assert transport.paused  # no more than that is kept
        made.connection_lost(None)
        await soon(lambda: left)
        assert left == ["http.disconnect"]

    left = []
    go(test())


def test_a_body_that_nobody_receives_is_not_read_on():
    async def app(scope, receive, send):
        await asyncio.sleep(5)

    async def test():
        config = uvicorn.Config(app, log_level="critical", lifespan="off")
        config.load()
        transport = Unsent(reads=True)
        made = protocol(5.0)(config, ServerState(), {})
        made.connection_made(transport)
        made.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        made.data_received(b"x" * 70_000)
        assert transport.paused
        made.connection_lost(None)

    go(test())

"""The router's HTTP client against h11: it takes no answer that h11 refuses, and reads the others alike."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import ssl
import subprocess

import h11
import httpx
import pytest
from http_replicas import go, served
from hypothesis import example, given
from hypothesis import strategies as st

from evenbins.cluster import http_upstreams
from evenbins.cluster.http import Router, RouterConfig
from evenbins.cluster.http_client import Connections, RemoteProtocolError, UpstreamError, _Connection
from evenbins.cluster.http_headers import answer_error
from evenbins.cluster.http_upstreams import Upstream

OK = b"HTTP/1.1 200 OK\r\n"
ANSWERS = [
    OK + b"Content-Length: 5\r\n\r\nhello",
    OK + b"content-length:0\r\nX-A:  b \t\r\n\r\n",
    OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;a=b\r\nabc\r\n0\r\n\r\n",
    OK + b"Transfer-Encoding: Chunked\r\n\r\n00a\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
    OK + b"Connection: close\r\n\r\nuntil the end",
    b"HTTP/1.0 200 OK\r\n\r\nold",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
    b"HTTP/1.1 103 Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
    b"HTTP/1.1 500\r\nContent-Length: 1\r\n\r\nx",
    b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok",
]


class Pipe(asyncio.Transport):
    """A transport on which an answer comes in pieces, and then the end."""

    def __init__(self, pieces):
        super().__init__()
        self.pieces, self.closed = pieces, False

    def begin(self, protocol):
        protocol.connection_made(self)
        for piece in self.pieces:
            protocol.data_received(piece)
        protocol.eof_received()
        protocol.connection_lost(None)

    def write(self, data):
        pass

    def abort(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass


class Piped(Connections):
    def __init__(self, pieces):
        super().__init__(Upstream("http://a:1"), idle=1.0)
        self.pipe = Pipe(pieces)

    async def _connect(self, seconds):
        connection = _Connection(asyncio.get_running_loop())
        self.pipe.begin(connection)
        return connection


async def read(pieces, method="GET"):
    """Return status, headers and body, by the router's client; None if it refuses the answer."""
    try:
        response = await Piped(pieces).send(method, b"/", [], None, connect_timeout=1.0, timeout=1.0)
        body = b""
        while piece := await response.read():
            body += piece
        response.close()
    except UpstreamError:
        return None
    return response.status, [(name.lower(), value) for name, value in response.headers], body


def read_by_h11(data, method="GET"):
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=2**16)
    connection.send(h11.Request(method=method, target="/", headers=[("host", "a")]))
    connection.send(h11.EndOfMessage())
    found, body = None, b""
    try:
        connection.receive_data(data)
        connection.receive_data(b"")
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                found = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            elif event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                return None
    except h11.RemoteProtocolError:
        return None
    if found is None or answer_error(found.status_code, found.headers.raw_items()):
        return None
    return found.status_code, list(found.headers), body


@pytest.mark.parametrize("number", range(len(ANSWERS)))
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_answers_are_read_as_h11_reads_them_however_they_are_cut(number, method):
    data = ANSWERS[number]
    expected = read_by_h11(data, method)
    rng = random.Random(number)

    async def test():
        for _ in range(8):
            cuts = sorted(rng.sample(range(len(data)), min(6, len(data))))
            ends = [*cuts, len(data)]
            pieces = [data[start:end] for start, end in zip([0, *cuts], ends, strict=True)]
            found = await read(pieces, method)
            assert found is not None
            assert (found[0], found[2]) == (expected[0], expected[2])
            assert [name for name, _ in found[1]] == [name for name, _ in expected[1]] or number == 11
        assert await read([data[i : i + 1] for i in range(len(data))], method) == found

    asyncio.run(test())


PIECES = [b"", b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b"\0", b"0", b"-", b"x", b"\xe4", b";", b","]
PIECES += [b"Content-Length: 3\r\n", b"chunked"]


@st.composite
def damaged(draw):
    data = bytearray(draw(st.sampled_from(ANSWERS)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        kind = draw(st.integers(0, 2))
        piece = draw(st.sampled_from(PIECES))
        if kind == 0:
            data[place:place] = piece
        elif kind == 1:
            del data[place : place + draw(st.integers(1, 4))]
        else:
            data[place : place + 1] = piece
    return bytes(data)


@given(damaged())
@example(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloxx\r\n0\r\n\r\n")
@example(OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")
@example(OK + b"Content-Length: 2\r\n folded\r\n\r\nok")
def test_a_damaged_answer_is_refused_or_read_as_h11_reads_it(data):
    found = asyncio.run(read([data]))
    if found is not None:
        expected = read_by_h11(data)
        assert expected is not None
        assert (found[0], found[2]) == (expected[0], expected[2])


def test_a_head_or_a_line_without_end_is_refused():
    async def test():
        for data in (OK + b"X: " + b"a" * 70_000, b"x" * 70_000, OK + b"X: " + b"a" * 70_000 + b"\r\n\r\n",
                     OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000,
                     b"HTTP/1.1 100 C\r\n\r\n" * 30):  # fmt: skip
            assert await read([data[start : start + 5000] for start in range(0, len(data), 5000)]) is None

    asyncio.run(test())


def test_only_whole_answers_leave_a_connection_for_the_next_request():
    async def test():
        for data, kept in (
            (ANSWERS[0], True), (ANSWERS[2], True), (ANSWERS[4], False), (ANSWERS[5], False),
            (ANSWERS[6], True), (ANSWERS[7], False), (ANSWERS[0] + b"x", False),
        ):  # fmt: skip
            connections = Piped([data])
            connections.pipe.begin = lambda protocol, pipe=connections.pipe: (
                protocol.connection_made(pipe), [protocol.data_received(each) for each in pipe.pieces]
            )  # fmt: skip
            response = await connections.send("GET", b"/", [], None, connect_timeout=1.0, timeout=0.05)
            with contextlib.suppress(UpstreamError):
                while await response.read():
                    pass
            response.close()
            assert (not connections.pipe.closed) == kept, data
            if kept:  # what comes while nobody asked closes it
                connections._idle[0].data_received(b"HTTP/1.1 200 OK\r\n\r\n")
                assert connections.pipe.closed
            connections.close()

    asyncio.run(test())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="it makes the certificate")
def test_replicas_behind_tls(tmp_path, monkeypatch):
    """One whose certificate is good for its name, and one that is not trusted."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip

    async def answer(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(ANSWERS[0])

    async def test():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        for trusted, status in ((True, 200), (False, 502)):
            made = ssl.create_default_context(cafile=str(certificate) if trusted else None)
            monkeypatch.setattr(http_upstreams, "_tls_context", lambda made=made: made)
            router = Router(RouterConfig([f"https://localhost:{port}"]))
            async with (
                served(router) as url,
                httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=60) as client,
            ):
                for _ in range(2):
                    answer_ = await client.get("/")
                    assert answer_.status_code == status
                    assert not trusted or answer_.content == b"hello"
                assert trusted or "Connect" in answer_.text
        server.close()

    go(test())


def test_errors_name_what_is_wrong():
    async def test():
        with pytest.raises(RemoteProtocolError, match="no status line"):
            await Piped([b"no\r\n\r\n"]).send("GET", b"/", [], None, connect_timeout=1.0, timeout=1.0)

    asyncio.run(test())

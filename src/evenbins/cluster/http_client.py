"""Requests to replicas over HTTP/1.1: connections that are kept for a while, answers in pieces.

    Connections(upstream).send(head, body, …) ──▶ Response: status, headers, read() … read() == b"", close()

One write for the head and a body in memory, no task for a request, no layer between the event loop and the
parser: that is what makes the router fast (docs/routing.md). httpx did the same in five times the time.

Rules
- An answer's head is at most 64 KiB; its lines are what RFC 9112 allows, without continuation lines. Whatever
  is malformed is a `RemoteProtocolError`; nothing is guessed.
- A connection is used again only if its answer was complete and announced no bytes beyond it, the request was
  sent whole, and nothing came since. Bytes that come while it is idle close it.
- Idle connections are closed after `idle` seconds: a replica that closes one (uvicorn after 5 s, gunicorn
  after 2) may do so under a request which cannot be repeated.
- A replica that reads slowly or sends slowly has `timeout` seconds for each step.
- Informational answers (1xx) are skipped, trailers are dropped.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any

from evenbins.cluster.http_headers import answer_error
from evenbins.cluster.http_upstreams import Upstream
from evenbins.errors import EvenbinsError

__all__ = [
    "ConnectError",
    "ConnectTimeoutError",
    "Connections",
    "ReadError",
    "ReadTimeoutError",
    "RemoteProtocolError",
    "Response",
    "UpstreamError",
    "UpstreamTimeoutError",
    "WriteTimeoutError",
]

_MOST_HEAD = 2**16
_MOST_AHEAD = 2**18  # bytes of an answer that are read before the client takes them
_MOST_HINTS = 20  # informational answers

_HEAD_END = re.compile(rb"\n\r?\n")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([0-9]{3})(?: [^\x00\r\n]*)?")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00\r\n]*)")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\x00\r\n]*)?")


class UpstreamError(EvenbinsError, ConnectionError):
    """A request to a replica failed."""


class UpstreamTimeoutError(UpstreamError):
    """A replica was too slow."""


class ConnectError(UpstreamError):
    """There is no connection to the replica."""


class ConnectTimeoutError(UpstreamTimeoutError):
    """There was no connection to the replica in time."""


class ReadTimeoutError(UpstreamTimeoutError):
    """Nothing came in time."""


class WriteTimeoutError(UpstreamTimeoutError):
    """The replica did not read in time."""


class ReadError(UpstreamError):
    """The connection broke."""


class RemoteProtocolError(UpstreamError):
    """What came is not an answer of HTTP/1.1."""


class _Connection(asyncio.Protocol):
    """The bytes of one connection: those that came, and whether more can be written."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.transport: Any = None
        self.buffer = bytearray()
        self.ended = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[bool] | None = None
        self._full, self._paused = False, False
        self.idle_since = -1.0  # not idle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; asyncio has set TCP_NODELAY."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Keep bytes for the one who reads."""
        if self.idle_since >= 0:  # an answer that nobody asked for
            self.transport.abort()
            return
        self.buffer += data
        if len(self.buffer) > _MOST_AHEAD and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """End, and close."""
        self.ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.ended, self._error = True, exc
        self._wake()

    def pause_writing(self) -> None:
        """Wait in `drain`."""
        self._full = True

    def resume_writing(self) -> None:
        """Go on in `drain`."""
        self._full = False
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            _settle(self._waiter, True)

    async def _wait(self, seconds: float) -> bool:
        """Wait until something happens; False if nothing did in time."""
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        timer = self._loop.call_later(seconds, _settle, waiter, False)
        try:
            return await waiter
        finally:
            timer.cancel()
            self._waiter = None

    async def more(self, seconds: float) -> bool:
        """Wait for bytes beyond those in the buffer; False if the connection ended instead."""
        before = len(self.buffer)
        while len(self.buffer) == before:
            if self.ended:
                if self._error is not None:
                    raise ReadError(f"the connection broke: {self._error}") from self._error
                return False
            if self._paused:
                self._paused = False
                self.transport.resume_reading()
            if not await self._wait(seconds):
                raise ReadTimeoutError(f"nothing came for {seconds:g} s")
        return True

    async def drain(self, seconds: float) -> None:
        """Wait until what was written has mostly been sent, or the connection has ended."""
        while self._full and not self.ended:
            if not await self._wait(seconds):
                raise WriteTimeoutError(f"the replica read nothing for {seconds:g} s")


def _settle(waiter: asyncio.Future[bool], outcome: bool) -> None:
    if not waiter.done():
        waiter.set_result(outcome)


class Response:
    """An answer whose head has come.

    Attributes
    ----------
    status : from 200 to 599
    headers : as they came
    """

    __slots__ = ("_connection", "_left", "_mode", "_owner", "_reusable", "_timeout", "headers", "status")

    def __init__(
        self, owner: Connections, connection: _Connection, method: str, status: int, version: bytes,
        headers: list[tuple[bytes, bytes]], sent_whole: bool, timeout: float,
    ) -> None:  # fmt: skip
        self.status, self.headers = status, headers
        self._owner, self._connection, self._timeout = owner, connection, timeout
        fields = {name.lower(): value.lower() for name, value in headers}
        length, coding = fields.get(b"content-length"), fields.get(b"transfer-encoding")
        if coding is not None and (coding != b"chunked" or version == b"0"):
            raise RemoteProtocolError(f"transfer-encoding {coding.decode('latin-1')}")
        tokens = [each.strip() for each in fields.get(b"connection", b"").split(b",")]
        self._reusable = sent_whole and version == b"1" and b"close" not in tokens
        self._left = 0
        if method == "HEAD" or status in (204, 304):
            self._mode = "end"
            self._reusable = self._reusable and coding is None and length in (None, b"0")
        elif coding is not None:
            self._mode = "size"
        elif length is not None:
            self._left = int(length.partition(b",")[0])
            self._mode = "length" if self._left else "end"
        else:
            self._mode, self._reusable = "close", False

    async def read(self) -> bytes:
        """Return the next piece of the body, as it came; b"" at its end."""
        connection = self._connection
        while self._mode != "end":
            piece = self._take()
            if piece:
                return piece
            if self._mode == "end":
                break
            if not await connection.more(self._timeout):
                if self._mode != "close":
                    raise RemoteProtocolError("the answer broke off")
                self._mode = "end"
        return b""

    def _take(self) -> bytes:
        """Return what can be taken from the buffer."""
        buffer = self._connection.buffer
        if self._mode == "close":
            piece = bytes(buffer)
            buffer.clear()
            return piece
        if self._mode != "length":
            return self._take_chunks(buffer)
        piece = bytes(buffer[: self._left])
        del buffer[: self._left]
        self._left -= len(piece)
        if not self._left:
            self._mode = "end"
        return piece

    def _take_chunks(self, buffer: bytearray) -> bytes:
        pieces = []
        start = 0
        while self._mode != "end":
            if self._mode == "data":
                piece = buffer[start : start + self._left]
                pieces.append(piece)
                start += len(piece)
                self._left -= len(piece)
                if self._left:
                    break
                self._mode = "data end"
            end = buffer.find(b"\n", start)
            if end < 0:
                if len(buffer) - start > _MOST_HEAD:
                    raise RemoteProtocolError("a line of a chunk is too long")
                break
            line = bytes(buffer[start:end])
            start = end + 1
            if self._mode != "trailers" and not line.endswith(b"\r"):
                raise RemoteProtocolError("a line of a chunk does not end in CR LF")
            line = line.removesuffix(b"\r")
            if self._mode == "size":
                found = _CHUNK.fullmatch(line)
                if found is None:
                    raise RemoteProtocolError("the size of a chunk is no number")
                self._left = int(found[1], 16)
                self._mode = "data" if self._left else "trailers"
            elif self._mode == "data end":
                if line:
                    raise RemoteProtocolError("a chunk is longer than its size")
                self._mode = "size"
            elif not line:
                self._mode = "end"
            else:  # a trailer, which is dropped
                self._left += len(line)
                if self._left > _MOST_HEAD or _FIELD.fullmatch(line) is None:
                    raise RemoteProtocolError("a trailer is malformed or too long")
        del buffer[:start]
        return b"".join(pieces)

    def close(self) -> None:
        """Give the connection back, or close it if the answer was not read to its end."""
        connection, self._connection = self._connection, None  # type: ignore[assignment]
        if connection is not None:
            whole = self._mode == "end" and self._reusable and not connection.buffer
            self._owner.give_back(connection, reusable=whole)


class Connections:
    """The connections to one replica. Use it inside one event loop."""

    def __init__(self, upstream: Upstream, *, idle: float, secure: ssl.SSLContext | None = None) -> None:
        self._upstream, self._secure = upstream, secure
        self._idle_seconds = idle
        self._idle: deque[_Connection] = deque()  # the last one used at the right
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def send(
        self, method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]],
        body: bytes | AsyncIterator[bytes] | None, *, connect_timeout: float, timeout: float,
    ) -> Response:  # fmt: skip
        """Send a request; return its answer, whose head has come. `Response.close` must follow.

        Raises
        ------
        UpstreamError
            It failed; a `ConnectError` or `ConnectTimeoutError` before anything was sent.
        """
        connection = self._take_idle() or await self._connect(connect_timeout)
        reusable = False
        try:
            whole = await self._write(connection, method, target, headers, body, timeout)
            for _ in range(_MOST_HINTS):
                version, status, fields = await self._head(connection, timeout)
                if not (100 <= status < 200) or status == 101:
                    break
            if problem := answer_error(status, fields):
                raise RemoteProtocolError(problem)
            response = Response(self, connection, method, status, version, fields, whole, timeout)
            reusable = True
            return response
        finally:
            if not reusable:
                self.give_back(connection, reusable=False)

    async def _connect(self, seconds: float) -> _Connection:
        loop = asyncio.get_running_loop()
        upstream = self._upstream
        options: dict[str, Any] = {}
        if self._secure is not None:
            options = {"ssl": self._secure, "server_hostname": upstream.hostname}
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop), upstream.hostname, upstream.port, **options
                )
        except TimeoutError:
            raise ConnectTimeoutError(f"no connection within {seconds:g} s") from None
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that IDNA does not know
            raise ConnectError(f"no connection: {error}") from error
        return connection

    @staticmethod
    async def _write(
        connection: _Connection, method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]],
        body: bytes | AsyncIterator[bytes] | None, timeout: float,
    ) -> bool:  # fmt: skip
        """Send a request; return whether it was sent whole."""
        lines = [b"%s %s HTTP/1.1\r\n" % (method.encode(), target)]
        streamed = body is not None and not isinstance(body, bytes)
        length = None
        for name, value in headers:
            if name == b"content-length":
                length = value
            else:
                lines.append(b"%s: %s\r\n" % (name, value))
        if isinstance(body, bytes):
            length = b"%d" % len(body)
        elif body is None:
            length = b"0" if length is not None or method in ("POST", "PUT", "PATCH") else None
        chunked = streamed and length is None
        if length is not None:
            lines.append(b"content-length: %s\r\n" % length)
        elif chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        if isinstance(body, bytes):
            lines.append(body)
        connection.transport.write(b"".join(lines))
        if body is not None and not isinstance(body, bytes):
            async for piece in body:
                if connection.ended:  # it may have answered before
                    return False
                connection.transport.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
                await connection.drain(timeout)
            if chunked and not connection.ended:
                connection.transport.write(b"0\r\n\r\n")
        await connection.drain(timeout)
        return not connection.ended

    @staticmethod
    async def _head(connection: _Connection, timeout: float) -> tuple[bytes, int, list[tuple[bytes, bytes]]]:
        """Receive the head of an answer: the minor version, the status, the headers."""
        buffer = connection.buffer
        start = 0
        while (end := _HEAD_END.search(buffer, start)) is None:
            start = max(0, len(buffer) - 2)
            if len(buffer) > _MOST_HEAD:
                raise RemoteProtocolError(f"the head has more than {_MOST_HEAD} bytes")
            if not await connection.more(timeout):
                raise RemoteProtocolError("the connection ended without an answer")
        if end.start() > _MOST_HEAD:
            raise RemoteProtocolError(f"the head has more than {_MOST_HEAD} bytes")
        first, *rest = bytes(buffer[: end.start()]).split(b"\n")
        del buffer[: end.end()]
        found = _STATUS.fullmatch(first.removesuffix(b"\r"))
        if found is None:
            raise RemoteProtocolError("the first line is no status line")
        fields = []
        for line in rest:
            field = _FIELD.fullmatch(line.removesuffix(b"\r"))
            if field is None:
                raise RemoteProtocolError("a header is malformed")
            fields.append((field[1], field[2].rstrip(b" \t")))
        return found[1], int(found[2]), fields

    def _take_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            fresh = connection.idle_since + self._idle_seconds > connection._loop.time()
            if fresh and not connection.ended and not connection.transport.is_closing():
                connection.idle_since = -1.0
                return connection
            connection.transport.abort()
        return None

    def give_back(self, connection: _Connection, *, reusable: bool) -> None:
        """Keep a connection for the next request, or close it."""
        if not reusable or self._closed or connection.ended or connection.transport.is_closing():
            connection.transport.abort()
            return
        loop = connection._loop
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = loop.call_later(self._idle_seconds, self._close_expired)

    def _close_expired(self) -> None:
        self._timer = None
        while self._idle:
            connection = self._idle[0]
            left = connection.idle_since + self._idle_seconds - connection._loop.time()
            if left > 0:
                self._timer = connection._loop.call_later(left, self._close_expired)
                return
            self._idle.popleft().transport.abort()

    def close(self) -> None:
        """Close the idle connections; those in use are closed when their answers end."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._idle:
            self._idle.pop().transport.abort()

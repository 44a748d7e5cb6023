"""The two bodies of an exchange: the request's, received with a deadline, and the answer's, sent with one.

    client ──▶ RequestBody: the first bytes in memory ──▶ place at a replica ──▶ these, then the rest
    client ◀── Answer ◀── pieces of the replica

Rules
- Nothing of a body is received after its place was taken, unless it is longer than the buffer.
- While bytes are missing, every `_PROGRESS` of them must come within `timeout` seconds of waiting. Time in
  which the replica is slow does not count. So neither silence nor single bytes keep a place for long.
- A client that does not read its answer is given up after `timeout` seconds, too.
- One task at a time calls `receive`: the one that reads the body, then `client_left`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from evenbins.cluster.http_headers import Scope, answer_headers

if TYPE_CHECKING:
    from evenbins.cluster.http_client import Response
    from evenbins.cluster.http_pool import Place

__all__ = ["Answer", "ClientGoneError", "Receive", "RequestBody", "Send", "SlowClientError"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_PROGRESS = 2**14  # bytes
_LINGER = 1.0  # seconds in which a client that was answered early may finish its body and read the answer


class ClientGoneError(Exception):
    """The client left before its exchange was complete."""


class SlowClientError(Exception):
    """The client did not send its request, or did not read its answer, in time."""


class RequestBody:
    """A request's body: its beginning in memory, the rest received when it is sent.

    `scope` has passed `http_headers.request_error`; `timeout` is for `_PROGRESS` bytes.
    """

    def __init__(self, scope: Scope, receive: Receive, timeout: float) -> None:
        self._receive, self._timeout = receive, timeout
        headers = {name.lower(): value for name, value in scope["headers"]}
        self._length = int(headers.get(b"content-length", b"0").partition(b",")[0])
        self.exists = b"transfer-encoding" in headers or self._length > 0 or scope["http_version"] == "2"
        self._pieces: list[bytes] = []
        self._size = 0
        self._streaming = False  # bytes have been passed on that are not in memory
        self._waited, self._progress = 0.0, 0
        self._complete = asyncio.Event()
        self._released = asyncio.Event()  # only client_left calls receive now
        if not self.exists:
            self._complete.set()
            self._released.set()

    @property
    def complete(self) -> bool:
        """Whether all of it has been received."""
        return self._complete.is_set()

    @property
    def resendable(self) -> bool:
        """Whether it can still be sent from its first byte."""
        return not self._streaming

    async def buffer(self, most: int) -> None:
        """Receive the body, or more than `most` bytes of it; the client may leave or be too slow."""
        while not self.complete and self._size <= most:
            piece = await self._next()
            self._pieces.append(piece)
            self._size += len(piece)
        if self.complete:
            self._pieces = [b"".join(self._pieces)]
            self.exists = self._size > 0

    def whole(self, most: int) -> bytes | None:
        """Return the body, if all of it was received and has at most `most` bytes."""
        return self._pieces[0] if self.exists and self.complete and self._size <= most else None

    def to_send(self) -> bytes | AsyncIterator[bytes] | None:
        """Return the body for a request to a replica; None if there is none."""
        if not self.exists:
            return None
        return self._pieces[0] if self.complete else self._stream()

    async def _stream(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        self._streaming = True
        self._pieces.clear()
        while not self.complete:
            if piece := await self._next():
                yield piece

    async def _next(self) -> bytes:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout - self._waited):
                message = await self._receive()
        except TimeoutError:
            raise SlowClientError from None
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        if not message.get("more_body", False):
            self._complete.set()
            self._released.set()
        piece: bytes = message.get("body", b"")
        self._waited += time.monotonic() - begun
        self._progress += len(piece)
        if self._progress >= _PROGRESS:
            self._waited, self._progress = 0.0, 0
        return piece

    def release(self) -> None:
        """Leave what is still to come to `client_left`: the exchange needs no more of it."""
        self._released.set()

    async def client_left(self) -> None:
        """Return when the client has left; discard the rest of the body until then."""
        await self._released.wait()
        while (message := await self._receive())["type"] != "http.disconnect":
            if not message.get("more_body", False):
                self._complete.set()

    async def linger(self) -> None:
        """Wait for the end of a released body, for a while: closing at once may destroy the answer."""
        if not self.complete:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LINGER):
                    await self._complete.wait()


class Answer:
    """An answer on its way to the client, which has `timeout` seconds to make space for each piece."""

    def __init__(self, send: Send, timeout: float) -> None:
        self._send_message, self._timeout = send, timeout
        self.begun = False
        self.status, self.sent = 0, 0  # the status; bytes of the body so far
        self.delivered = False  # all but the end of it

    async def relay(self, response: Response, place: Place, *, close: bool, told: bool = False) -> None:
        """Send a replica's answer in the pieces in which it comes; `end` is left to do."""
        status = response.status
        headers = answer_headers(status, response.headers)
        if told:
            headers += [
                (b"x-evenbins-upstream", place.name.encode()),
                (b"x-evenbins-depth", b"%d" % place.depth),
                (b"x-evenbins-reason", place.reason.encode()),
            ]
        await self._start(status, headers, close)
        place_waits = True
        while piece := await response.read():
            if place_waits:
                place.answered()
                place_waits = False
            await self._piece(piece)
        self.delivered = True

    async def write(
        self, status: int, text: str, *, close: bool, headers: list[tuple[bytes, bytes]] | None = None,
        retry_after: int = 1,
    ) -> None:  # fmt: skip
        """Send an answer of the router's own; `end` is left to do."""
        data = text.encode()
        lines = [(b"content-length", b"%d" % len(data))]
        lines += headers or [(b"content-type", b"text/plain; charset=utf-8")]
        lines += [(b"retry-after", b"%d" % retry_after)] if status in (429, 503) else []
        await self._start(status, lines, close)
        await self._piece(data)
        self.delivered = True

    async def end(self) -> None:
        """Send the end."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]], close: bool) -> None:
        self.begun, self.status = True, status
        headers = [*headers, (b"connection", b"close")] if close else headers
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _piece(self, data: bytes) -> None:
        self.sent += len(data)
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _send(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._send_message(message)
        except TimeoutError:
            raise SlowClientError from None
        except OSError:
            raise ClientGoneError from None

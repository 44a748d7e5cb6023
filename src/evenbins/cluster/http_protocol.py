"""uvicorn's HTTP/1.1 protocol with deadlines for clients that hold a connection and send or read nothing.

    connection made ──▶ head of a request within `timeout` seconds ──▶ else 408, and the connection is closed
    answer written  ──▶ read by the client within `timeout` seconds ──▶ else the connection is aborted

The router's own deadlines (http_bodies.py) free a place at a replica; these free the connection. Between two
requests uvicorn's keep-alive timeout applies.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["protocol"]

_AHEAD = 2**16  # bytes of later requests that are read during an answer
_SLOW = b"the request did not arrive in time\n"


def protocol(timeout: float) -> type[H11Protocol]:
    """Return the protocol class, for `uvicorn.Config(http=)`."""

    class Protocol(H11Protocol):
        _head_timer: asyncio.TimerHandle | None = None
        _write_timer: asyncio.TimerHandle | None = None
        _unread_timer: asyncio.TimerHandle | None = None
        _bytes_came = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._head_timer = self.loop.call_later(timeout, self._head_is_late)

        def data_received(self, data: bytes) -> None:
            self._bytes_came = True
            super().data_received(data)
            if not self._expects_head():
                self._stop("_head_timer")
                if self.conn.their_state is h11.DONE and len(self.conn.trailing_data[0]) < _AHEAD:
                    self.flow.resume_reading()  # only a reader notices that a client has left
            elif self._head_timer is None and not self.transport.is_closing():
                self._head_timer = self.loop.call_later(timeout, self._head_is_late)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop("_head_timer", "_write_timer", "_unread_timer")
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch_unread()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stop("_write_timer")
            self._write_timer = self.loop.call_later(timeout, self.transport.abort)

        def resume_writing(self) -> None:
            self._stop("_write_timer")
            super().resume_writing()

        def send_400_response(self, msg: str) -> None:
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                super().send_400_response(msg)
                self._watch_unread()
                if self.cycle is not None:  # nothing more is sent for a request that proved malformed
                    self.cycle.disconnected = True
                    self.cycle.message_event.set()
            else:  # an answer has begun: there is no place for another one
                self.transport.close()
                self._watch_unread()

        def _stop(self, *timers: str) -> None:
            for name in timers:
                if (timer := getattr(self, name)) is not None:
                    timer.cancel()
                    setattr(self, name, None)

        def _expects_head(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _head_is_late(self) -> None:
            self._head_timer = None
            if not self._expects_head() or self.transport.is_closing():
                return
            if self._bytes_came and self.conn.our_state is h11.IDLE:
                headers = [(b"content-length", b"%d" % len(_SLOW)), (b"connection", b"close")]
                head = h11.Response(status_code=408, headers=headers, reason=b"Request Timeout")
                for event in (head, h11.Data(data=_SLOW), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event) or b"")
            self.transport.close()
            self._watch_unread()

        def _watch_unread(self) -> None:
            """Abort the connection unless the client reads: what is too little for pause_writing, too."""
            if self._unread_timer is None and (unread := self.transport.get_write_buffer_size()):
                self._unread_timer = self.loop.call_later(timeout, self._still_unread, unread)

        def _still_unread(self, before: int) -> None:
            self._unread_timer = None
            idle = self.transport.is_closing() or self._expects_head()
            if idle and self.transport.get_write_buffer_size() >= before:
                self.transport.abort()
            else:
                self._watch_unread()

    return Protocol

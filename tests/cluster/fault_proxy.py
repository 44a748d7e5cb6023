"""A TCP proxy that fails on demand: between a client and a real server, at a byte of one's choice.

    client ──▶ FaultProxy.port ══ up ══▶ the server's port          bytes of both ways are counted
           ◀══════════════════ down ═══

    with FaultProxy(port) as proxy:
        proxy.cut(down=7)                  the 8th byte of what the server answers from now on never arrives
        proxy.cut(up=100, how="reset")     the request is cut after 100 bytes, by RST
        proxy.cut(up=0, how="hang")        swallowed: no byte, no end; a timeout is all there is
        proxy.delay = 0.2                  each piece of an answer comes so much later
        proxy.freeze(); proxy.thaw()       nothing passes, new connections included; then all of it does

Invariants. Bytes are never changed, repeated or reordered: what arrives is a prefix of what was sent. A cut
concerns the connection whose byte it is, once; the next connection is whole. "hang" keeps both ends open
until `close` or `thaw`, as a network that drops packets does. A cut `up` at byte n means that the server
got exactly n bytes of what was sent from then on; whether it executes what it got is the server's affair.

A socket is closed by the last thread that uses it, never under another one: the number of a closed descriptor
belongs to the next connection, whose bytes the other thread would then read.

`FaultProxy.slowest` is the longest that any server, or its proxy, took for a reply, in seconds: a test that
depends on timeouts can tell a busy machine from a broken promise.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import ClassVar, Self

__all__ = ["FaultProxy"]

HOST = "127.0.0.1"
_RST = struct.pack("ii", 1, 0)


class _Pair:
    """The two ends of one connection, and the two threads that pass bytes between them."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near, self.far = near, far
        self.over = False  # cut: what still comes of either way is neither passed on nor counted
        self.hung = False  # and both ends stay open
        self.asked = 0.0  # since when a reply is awaited; 0: none is
        self._threads = 2
        self._lock = threading.Lock()

    def end(self, how: str = "close") -> None:
        """End both ways: wakes the threads, of which the last closes the sockets."""
        with self._lock:
            self.over, self.hung = True, False
            for each in (self.near, self.far):
                with contextlib.suppress(OSError):
                    if how == "reset":
                        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
                        each.shutdown(socket.SHUT_RD)
                    else:
                        each.shutdown(socket.SHUT_RDWR)
            self._close_unused()

    def leave(self) -> None:
        """A thread is done with the sockets."""
        with self._lock:
            self._threads -= 1
            self._close_unused()

    def _close_unused(self) -> None:
        if not self._threads and not self.hung:
            self.near.close()
            self.far.close()


class FaultProxy:
    """Passes bytes between clients and one server, until told not to. See the head of the file."""

    slowest: ClassVar[float] = 0.0

    def __init__(self, target: int) -> None:
        self.target, self.delay, self.cuts = target, 0.0, 0
        self._left: dict[str, int] = {}  # direction: bytes until the cut
        self._how = "close"
        self._lock = threading.Lock()
        self._passing = threading.Event()
        self._passing.set()
        self._pairs: set[_Pair] = set()
        self._listener = socket.create_server((HOST, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.name = f"{HOST}:{self.port}"
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    # --- faults -------------------------------------------------------------------------------------------

    def cut(self, *, up: int | None = None, down: int | None = None, how: str = "close") -> None:
        """Cut a connection after so many more bytes; `how` is "close", "reset" or "hang"."""
        assert how in ("close", "reset", "hang")
        with self._lock:
            given = (("up", up), ("down", down))
            self._left = {name: number for name, number in given if number is not None}
            self._how = how

    def heal(self) -> None:
        """Forget a cut that has not come, and every delay."""
        with self._lock:
            self._left = {}
        self.delay = 0.0

    @property
    def pending(self) -> bool:
        """Whether a cut has been ordered and has not come."""
        return bool(self._left)

    def drop_all(self, how: str = "close") -> None:
        """Cut all connections now."""
        for each in self._taken():
            each.end(how)

    def freeze(self) -> None:
        """Let nothing pass."""
        self._passing.clear()

    def thaw(self) -> None:
        """Let what was held back pass; connections that hang are ended."""
        for each in [each for each in self._taken() if each.hung]:
            each.end()
        self._passing.set()

    def close(self) -> None:
        """End everything."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._passing.set()
        self.drop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- passing on ---------------------------------------------------------------------------------------

    def _taken(self) -> list[_Pair]:
        with self._lock:
            return list(self._pairs)

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection((HOST, self.target))
            except OSError:  # nobody there: the client learns it as the end of its connection
                near.close()
                continue
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = _Pair(near, far)
            with self._lock:
                self._pairs.add(pair)
            for ends in ((near, far, "up"), (far, near, "down")):
                threading.Thread(target=self._pass, args=(pair, *ends), daemon=True).start()

    def _pass(self, pair: _Pair, source: socket.socket, target: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := source.recv(65536):
                if way == "down" and pair.asked:
                    FaultProxy.slowest = max(FaultProxy.slowest, time.monotonic() - pair.asked)
                    pair.asked = 0.0
                self._passing.wait()
                if way == "down" and self.delay:
                    time.sleep(self.delay)
                whole, how = self._allowed(pair, way, len(data))
                if way == "up" and whole == len(data):
                    pair.asked = time.monotonic()
                try:
                    target.sendall(data[:whole])
                finally:
                    if how is not None and how != "hang":
                        pair.end(how)
        if not pair.hung or self._closed:
            with self._lock:
                self._pairs.discard(pair)
            if not pair.over:  # else whoever cut it ends it
                pair.end()
        pair.leave()

    def _allowed(self, pair: _Pair, way: str, size: int) -> tuple[int, str | None]:
        """Say how much of a piece may pass, and how the connection ends then, if it does.

        A connection that is over must not use up a cut that was ordered for a later one.
        """
        with self._lock:
            if pair.over:
                return 0, None
            left = self._left.get(way)
            if left is None:
                return size, None
            if size <= left:
                self._left[way] = left - size
                return size, None
            self._left = {}
            self.cuts += 1
            pair.over, pair.hung = True, self._how == "hang"
            return left, self._how

"""The router's HTTP input: raw bytes over a socket to uvicorn and `Router`, two replicas behind it.

Whatever comes: no answer 500, no error in the server's log, no lease that stays, and the next
well-formed request is answered.
The router, its replicas and the fuzzer share a process, so that coverage of the router guides the inputs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
import threading
import time
from typing import Any

import uvicorn

from evenbins.cluster.http import Router, RouterConfig
from evenbins.cluster.http_protocol import protocol

_GOOD = b"GET /good HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
CONNECTIONS = 12  # for each input
_EVERY = 50  # inputs between two checks of the whole
_HANG = 5.0  # seconds


class _Errors(logging.Handler):
    """What the server or asyncio complain of."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.found.append(self.format(record))


async def _replica(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    size = 0
    while True:
        message = await receive()
        size += len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Servers:
    """The replicas and the routers, one for each rule of keys, in a thread of their own."""

    rules = ("path", "messages", "header:X-Key", "json:prompt:8")

    def __init__(self) -> None:
        self.errors = _Errors()
        for name in ("uvicorn.error", "asyncio"):
            logging.getLogger(name).addHandler(self.errors)
        logging.getLogger("uvicorn.error").propagate = False
        self.routers: list[Router] = []
        self.ports: list[int] = []
        ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True).start()
        assert ready.wait(30)

    async def _serve(self, ready: threading.Event) -> None:
        replicas = [await self._start(_replica) for _ in range(2)]
        for rule in self.rules:
            router = Router(
                RouterConfig(
                    [f"http://127.0.0.1:{port}" for port in replicas], key=rule, max_body=512, limit=100
                )
            )
            self.routers.append(router)
            self.ports.append(await self._start(router))
        ready.set()
        await asyncio.Event().wait()

    @staticmethod
    async def _start(app: Any) -> int:
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=2, http=protocol(_HANG)
        )
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        _KEPT.append(serving)
        return int(listener.getsockname()[1])


_KEPT: list[Any] = []
_servers: list[Servers] = []
_count = [0]


def one(data: bytes) -> None:
    """Send one input to all routers: whole, in two pieces, and by a client that leaves at once."""
    if not _servers:
        _servers.append(Servers())
    servers = _servers[0]
    cut = len(data) // 2
    open_ones = []
    for port in servers.ports:
        for pieces, leave in (([data], False), ([data[:cut], data[cut:]], False), ([data], True)):
            if (found := _send(port, pieces, leave=leave)) is not None:
                open_ones.append(found)
    for answer in _answers(open_ones, 0.02):
        for line in answer.split(b"\r\n"):
            assert not line.startswith((b"HTTP/1.1 500", b"HTTP/1.0 500")), answer
    assert not servers.errors.found, servers.errors.found[0]
    _count[0] += 1
    if _count[0] % _EVERY == 0:
        check()


def check() -> None:
    """Require that every router answers, and that no lease has stayed."""
    for rule, (port, router) in enumerate(zip(_servers[0].ports, _servers[0].routers, strict=True)):
        good = _GOOD.replace(b"Host:", b"X-Key: k\r\nHost:") if rule != 3 else (
            b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"p\"}"
        )  # fmt: skip
        sock = _send(port, [good])
        assert sock is not None
        (answer,) = _answers([sock], _HANG, whole=True)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        deadline = time.monotonic() + _HANG
        while router.ring.stats().leases:
            assert time.monotonic() < deadline, "a lease has stayed"
            time.sleep(0.01)


def _send(port: int, pieces: list[bytes], *, leave: bool = False) -> socket.socket | None:
    """Send on a connection of its own; give it, unless the client has left or nothing will be answered."""
    sock = socket.create_connection(("127.0.0.1", port), _HANG)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            sock.sendall(piece)
        if leave:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            sock.close()
            return None
        if not any(end in b"".join(pieces) for end in (b"\r\n\r\n", b"\n\n")):
            sock.shutdown(socket.SHUT_WR)  # no whole request
    except OSError:  # refused before all was sent
        sock.close()
        return None
    return sock


def _answers(socks: list[socket.socket], seconds: float, whole: bool = False) -> list[bytes]:
    """Give what came back on each until its answer, its end, or the time is up."""
    answers = dict.fromkeys(socks, b"")
    left, deadline = set(socks), time.monotonic() + seconds
    while left and (wait := deadline - time.monotonic()) > 0:
        for sock in select.select(left, [], [], wait)[0]:
            try:
                piece = sock.recv(65536)
            except OSError:
                piece = b""
            answers[sock] += piece
            if not piece or (not whole and b"\r\n\r\n" in answers[sock]):
                left.discard(sock)
    for sock in socks:
        sock.close()
    return list(answers.values())

"""Replicas for the tests of the HTTP router: applications on loopback, and raw sockets that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from route_study import served

from evenbins.cluster.http import Router, RouterConfig

__all__ = ["Replica", "fleet", "go", "raw", "served", "soon"]


class Replica:
    """Tells what it was asked; `hold` keeps its answers back, `status` is the answer of /health."""

    def __init__(self) -> None:
        self.hold = asyncio.Event()
        self.hold.set()
        self.health = 200
        self.seen: list[dict[str, Any]] = []
        self.pieces: list[bytes] = []
        self.began = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.url = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        if scope["path"] == "/health":
            await send({"type": "http.response.start", "status": self.health, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        more = True
        body = b""
        while more:
            message = await receive()
            self.pieces.append(message.get("body", b""))
            body, more = body + message.get("body", b""), message.get("more_body", False)
            self.began.set()
        seen = {
            "replica": self.url,
            "method": scope["method"],
            "target": scope["raw_path"].decode() + "?" + scope["query_string"].decode(),
            "headers": [[name.decode(), value.decode("latin-1")] for name, value in scope["headers"]],
            "body": body.decode("latin-1"),
        }
        self.seen.append(seen)
        headers = [(b"x-own", b"1"), (b"x-own", b"2"), (b"keep-alive", b"timeout=5"), (b"set-cookie", b"a=b")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b" ", "more_body": True})
        if not self.hold.is_set():
            waiting = asyncio.ensure_future(self.hold.wait())
            leaving = asyncio.ensure_future(receive())
            await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                self.cancelled.set()
            waiting.cancel()
            leaving.cancel()
        await send({"type": "http.response.body", "body": json.dumps(seen).encode()})


@contextlib.asynccontextmanager
async def fleet(
    number: int, **options: Any
) -> AsyncIterator[tuple[Router, httpx.AsyncClient, dict[str, Replica]]]:
    """Serve replicas and a router before them; gives the router, a client of it, and replicas by URL."""
    async with contextlib.AsyncExitStack() as stack:
        replicas = [Replica() for _ in range(number)]
        for each in replicas:
            each.url = await stack.enter_async_context(served(each))
        router = Router(RouterConfig([each.url for each in replicas], **options))
        base = await stack.enter_async_context(served(router))
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=base, trust_env=False, verify=False, timeout=60)
        )
        try:
            yield router, client, {each.url: each for each in replicas}
        finally:
            for each in replicas:
                each.hold.set()


@contextlib.asynccontextmanager
async def raw(answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]) -> AsyncIterator[str]:
    """Serve by a function of a connection; gives the URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def go(test: Coroutine[Any, Any, None]) -> None:
    """Run a test; hang no longer than a while."""
    asyncio.run(asyncio.wait_for(test, 200))


async def soon(true: Callable[[], object]) -> None:
    """Wait for something that happens soon."""
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)

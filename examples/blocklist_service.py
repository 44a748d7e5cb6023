"""A blocklist in a web service: a filter mapped from a file, and mapped anew when the file is replaced.

    python examples/blocklist_service.py blocked.evb [--port 8000] [--workers 2]

    GET  /check?url=…    {"url": "…", "blocked": true}
    POST /check          lines in; the blocked ones out, as they came
    GET  /status         plan beside stats, when it was loaded, what went wrong last

The file is mapped read-only, so that a start takes no time and all processes share the same memory. Every
second a look at the name's inode tells whether somebody put a new file there (`save` and `evenbins build`
do it in one step). Then the new one is verified to the last byte, in a thread, and takes over.

Invariants
- A request is answered by one filter, the old one or the new one; none waits for a reload.
- What is damaged, missing or no filter never takes over: the old one goes on, and /status tells.
- Nothing here writes to the file, and it is never truncated in place: the writer replaces it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import evenbins

MAX_BODY = 16 * 2**20
_SHOWN = ("keys", "fpr", "reads", "miss_reads")


class Blocklist:
    """A filter in a file that may be replaced at any time.

    Parameters
    ----------
    path
        What `evenbins build` or `save` wrote, a filter of any kind.

    Raises
    ------
    OSError, FormatError
        The file is not there, or damaged, at the start; later that is only remembered, in `error`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.loads = 0
        self.error: str | None = None
        self._seen = self._identity()
        self._take(self._open())

    def _open(self) -> evenbins.Filter:
        found = evenbins.open(self.path, verify=True)
        if not isinstance(found, evenbins.Filter):
            raise evenbins.FormatError(f"{self.path}: it holds a {type(found).__name__}, not a filter")
        return found

    def blocks(self, key: str | bytes) -> bool:
        """Return whether a key is blocked; of the others a few are too, at the filter's rate."""
        return key in self._filter

    def blocked(self, keys: list[bytes]) -> list[bytes]:
        """Return those of many keys that are blocked."""
        return [key for key, hit in zip(keys, self._filter.contains_many(keys), strict=True) if hit]

    def refresh(self) -> bool:
        """Look at the file; if it is another one, verify it and take it. Tells whether it was taken."""
        try:
            identity = self._identity()
            if identity == self._seen:
                return False
            self._seen = identity  # a damaged file is read once, not every second
            self._take(self._open())
        except (OSError, evenbins.FormatError) as error:
            self.error = str(error)
            return False
        self.error = None
        return True

    def status(self) -> dict[str, Any]:
        """Return what an operator wants to see."""
        return {"file": str(self.path), "loads": self.loads, "error": self.error} | self._numbers

    def _identity(self) -> tuple[int, int, int, int]:
        found = os.stat(self.path)
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size

    def _take(self, new: evenbins.Filter) -> None:
        plan, stats = new.plan, new.stats()  # reads all of the filter once: here, not for each /status
        self._numbers = {
            "plan": {name: getattr(plan, name) for name in _SHOWN},
            "stats": {name: getattr(stats, name) for name in _SHOWN},
        }
        self._filter = new  # one assignment: requests see the old one or this
        self.loads += 1


def make_app(path: str | os.PathLike[str], *, every: float = 1.0) -> Starlette:
    """Make the service for a file, which is looked at so often (seconds)."""
    blocklist = Blocklist(path)

    async def check_one(request: Request) -> Response:
        url = request.query_params.get("url")
        if url is None:
            return JSONResponse({"error": "say which: /check?url=https://example.org/"}, status_code=400)
        return JSONResponse({"url": url, "blocked": blocklist.blocks(url)})

    async def check_many(request: Request) -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                return PlainTextResponse(f"at most {MAX_BODY} bytes at a time\n", status_code=413)
        blocked = blocklist.blocked(bytes(body).splitlines())
        return Response(b"".join(line + b"\n" for line in blocked), media_type="text/plain")

    async def status(request: Request) -> Response:
        return JSONResponse(blocklist.status())

    async def watch() -> None:
        while True:
            await asyncio.sleep(every)
            await asyncio.to_thread(blocklist.refresh)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching

    app = Starlette(
        routes=[
            Route("/check", check_one, methods=["GET"]),
            Route("/check", check_many, methods=["POST"]),
            Route("/status", status),
        ],
        lifespan=lifespan,
    )
    app.state.blocklist = blocklist
    return app


def serve(path: str, port: int) -> None:
    """Serve on this machine's loopback address, beside other processes that do."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", port), reuse_port=True)
    # Connections inherit it. Of a socket that it is given asyncio does not know that it is TCP, and leaves
    # Nagle's algorithm on: an answer in two parts then waits 40 ms for an acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    uvicorn.Server(uvicorn.Config(make_app(path), log_level="warning")).run(sockets=[listener])


def serve_with_parent(path: str, port: int) -> None:
    """Serve as long as the process that started this one."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end, daemon=True).start()
    serve(path, port)


def main() -> None:
    """Read the command line, and serve by so many processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    for _ in range(options.workers - 1):
        multiprocessing.Process(target=serve_with_parent, args=(options.file, options.port)).start()
    serve(options.file, options.port)


if __name__ == "__main__":
    main()

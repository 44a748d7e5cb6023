"""Requests per second of `evenbins route`, and its processor time per request, beside another one.

    python tools/route_speed.py                                      this tree
    python tools/route_speed.py --against /path/to/other/python      beside a tree installed there, in turns
    python tools/route_speed.py --workers 2                          beside itself with two workers

    clients, so many connections ──▶ router (a process of its own) ──▶ four replicas
    (one process with the replicas)

The clients and replicas do next to nothing, and keep their connections. The contenders' rounds take turns;
the best of each counts. On a busy machine look at the processor time: it is what bounds one process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ANSWER = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n{"text": "abc"}'
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class _Messages(asyncio.Protocol):
    """Messages with a Content-Length, or in chunks, one after the other."""

    def __init__(self) -> None:
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._buffer, 0, end)
            whole = end + 4 + int(length[1]) if length else end + 4
            if len(self._buffer) < whole:
                return
            head, self._buffer = self._buffer[:end], self._buffer[whole:]
            self.message(head)

    def message(self, head: bytes) -> None:
        """Do something with a message whose body has come."""
        raise NotImplementedError


class _Replica(_Messages):
    def message(self, head: bytes) -> None:
        self.transport.write(_ANSWER)


class _Client(_Messages):
    def __init__(self, requests: Iterator[bytes], done: asyncio.Future[None]) -> None:
        super().__init__()
        self._requests, self._done = requests, done

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._next()

    def message(self, head: bytes) -> None:
        assert head.startswith(b"HTTP/1.1 200 "), head
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is not None:
            self.transport.write(request)
        else:
            self.transport.close()
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("the router closed a connection"))


class _Router:
    """A router as a process."""

    def __init__(self, name: str, python: str, upstreams: list[str], options: list[str]) -> None:
        self.name = name
        words = [word for each in upstreams for word in ("--upstream", each)]
        program = "from evenbins import cli; cli.main()"
        self.process = subprocess.Popen(
            [python, "-c", program, "route", *words, "--port", "0", "--limit", "1000", *options],
            stderr=subprocess.PIPE, text=True, cwd="/",
        )  # fmt: skip
        assert self.process.stderr is not None
        self.port = int(self.process.stderr.readline().rpartition(":")[2])
        self.rounds: list[tuple[float, float]] = []  # requests per second, processor seconds per request

    def processor_seconds(self) -> float:
        """Return the processor time so far, of its workers too."""
        processes, ticks = [self.process.pid], 0
        for tasks in Path(f"/proc/{self.process.pid}/task").iterdir():
            processes += map(int, (tasks / "children").read_text().split())
        for each in processes:
            fields = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


def _requests(count: int) -> Iterator[bytes]:
    body = json.dumps({"model": "m", "prompt": "x" * 200}).encode()
    for number in range(count):
        yield (
            b"POST /v1/completions/%d HTTP/1.1\r\nHost: x\r\nAccept: */*\r\nAuthorization: Bearer k\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (number % 97, len(body), body)
        )


async def _round(router: _Router, requests: int, connections: int) -> None:
    loop = asyncio.get_running_loop()
    waiting, ends = _requests(requests), []
    before, begun = router.processor_seconds(), time.perf_counter()
    for _ in range(connections):
        end = loop.create_future()
        ends.append(end)
        await loop.create_connection(lambda end=end: _Client(waiting, end), "127.0.0.1", router.port)
    await asyncio.gather(*ends)
    seconds = time.perf_counter() - begun
    router.rounds.append((requests / seconds, (router.processor_seconds() - before) / requests))


async def measure(options: argparse.Namespace) -> list[_Router]:
    """Run the rounds; the first of each contender warms it up and does not count."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(_Replica, "127.0.0.1", 0) for _ in range(4)]
    upstreams = [f"http://127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in servers]
    routers = [_Router("this tree", sys.executable, upstreams, [])]
    try:
        if options.against:
            routers.append(_Router("the other", options.against, upstreams, []))
        if options.workers > 1:
            words = ["--workers", str(options.workers)]
            routers.append(_Router(f"{options.workers} workers", sys.executable, upstreams, words))
        for _ in range(options.rounds + 1):
            for each in routers:
                await _round(each, options.requests, options.connections)
    finally:
        for each in routers:
            each.process.terminate()
        for each in routers:
            each.process.wait()
            if each.process.stderr is not None:
                each.process.stderr.close()
        for server in servers:
            server.close()
    return routers


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=3000, help="in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--against", help="the Python in whose environment another evenbins is installed")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    routers = asyncio.run(measure(options))
    best = [
        (max(rate for rate, _ in each.rounds[1:]), min(cpu for _, cpu in each.rounds[1:])) for each in routers
    ]
    print("router       requests/s  us/request   requests/s: this / it   us/request: it / this")
    for each, (rate, cpu) in zip(routers, best, strict=True):
        ratios = f"{best[0][0] / rate:23.2f} {cpu / max(best[0][1], 1e-9):23.2f}"
        print(f"{each.name:12} {rate:10.0f} {1e6 * cpu:11.0f} {ratios}")


if __name__ == "__main__":
    main()

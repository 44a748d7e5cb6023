"""Real servers for the tests of routers: memcached, redis-server, on loopback, killed and started again."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filter_servers import free_port


def until(true: Callable[[], object], seconds: float = 60.0, what: str = "it") -> None:
    """Wait for something that happens soon; fail if it does not."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        time.sleep(0.01)


class Server:
    """One server process, with the same port in all its lives."""

    def __init__(self, command: Callable[[int], list[str]], folder: Path) -> None:
        self.port = free_port()
        self.name = f"127.0.0.1:{self.port}"
        self._command, self._folder = command, folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / f"{self.port}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(self.port), cwd=self._folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        until(self.answers, what=f"an answer of {self.name}")

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        assert self._process is not None
        assert self._process.poll() is None, "the server ended by itself"
        return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Let it hang: connections stay open, nobody answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        status = Path(f"/proc/{self._process.pid}/stat")
        until(lambda: status.read_text().rsplit(")", 1)[1].split()[0] == "T")  # a busy machine takes its time

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


def memcached(port: int) -> list[str]:
    user = ["-u", "nobody"]  # memcached asks root for a name
    return ["memcached", "-l", "127.0.0.1", "-p", str(port), "-m", "16", "-t", "1", *user]


def redis_server(port: int) -> list[str]:
    return ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]


@contextlib.contextmanager
def running(command: Callable[[int], list[str]], number: int, folder: Path) -> Iterator[list[Server]]:
    servers = [Server(command, folder) for _ in range(number)]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            if server._process is not None:
                server._process.kill()
                server._process.wait()

"""Real Redis servers for tests: started on loopback, on free ports, in a folder of their own."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

HOST = "127.0.0.1"


def free_port() -> int:
    """Find a port whose bus port (10,000 above) is free too.

    Both lie below the ports that the kernel gives to outgoing connections: one of those could take the port
    while its server is down.
    """
    chosen = random.Random(os.getpid() ^ time.time_ns())
    while True:
        port = chosen.randrange(10_100, 22_500)
        try:
            with socket.socket() as one, socket.socket() as other:
                one.bind((HOST, port))
                other.bind((HOST, port + 10_000))
            return port
        except OSError:
            continue


@dataclass
class Server:
    """A server that can be stopped, killed and started again, empty, on its port."""

    options: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    folder: Any = field(default_factory=tempfile.TemporaryDirectory)
    process: subprocess.Popen[bytes] | None = None

    started: bool = False

    def start(self) -> Server:
        """Start it; the first time on another port if somebody took this one since it was found free."""
        for _ in range(1 if self.started else 5):
            if self._answers():
                self.started = True
                return self
            self.port = free_port()
        raise AssertionError("redis-server ended at once")

    def _answers(self) -> bool:
        """Start the process, and wait for an answer; False if it ends instead."""
        command = [
            "redis-server", "--bind", HOST, "--port", str(self.port), "--save", "", "--appendonly", "no",
            "--dir", self.folder.name, *self.options,
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                return False
            with contextlib.suppress(redis.ConnectionError), self.client() as client:
                if client.info("server")["process_id"] == self.process.pid:  # else it is another's
                    return True
            time.sleep(0.01)
        raise AssertionError("redis-server does not answer")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def client(self, port: int | None = None, **options: Any) -> redis.Redis:
        """Make a client that does not repeat commands by itself, so that tests see every error."""
        options = {"socket_timeout": 20, "retry": Retry(NoBackoff(), 0), **options}
        return redis.Redis(host=HOST, port=port or self.port, **options)


@contextlib.contextmanager
def running(*options: str) -> Iterator[Server]:
    server = Server(options)
    try:
        yield server.start()
    finally:
        server.stop()
        server.folder.cleanup()


@contextlib.contextmanager
def cluster_of(nodes: int) -> Iterator[list[Server]]:
    """Start a Redis Cluster without replicas: slots given by hand, which is quicker than redis-cli."""
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(running("--cluster-enabled", "yes", "--cluster-node-timeout", "10000"))
            for _ in range(nodes)
        ]
        clients = [stack.enter_context(each.client()) for each in servers]
        bounds = [16384 * i // nodes for i in range(nodes + 1)]
        for i, client in enumerate(clients):
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[i], bounds[i + 1] - 1)
            if i:
                client.execute_command("CLUSTER", "MEET", HOST, servers[0].port)
        deadline = time.monotonic() + 60
        while not all(_in_order(each, nodes) for each in clients):
            assert time.monotonic() < deadline, "the cluster does not come up"
            time.sleep(0.05)
        yield servers


def _in_order(client: redis.Redis, nodes: int) -> bool:
    found: Any = client.execute_command("CLUSTER INFO")
    return (found["cluster_state"], found["cluster_known_nodes"]) == ("ok", str(nodes))

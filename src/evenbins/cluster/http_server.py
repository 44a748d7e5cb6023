"""A router as a process, or as several: uvicorn, signals, reloads.

SIGTERM, SIGINT     accept nothing new, finish what is under way (at most `grace` seconds), end
SIGHUP              read the configuration file again; if it is wrong, say why and go on as before
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from evenbins.cluster.http import Router
from evenbins.cluster.http_admin import apply_change
from evenbins.cluster.http_settings import ServerSettings, Settings
from evenbins.cluster.http_workers import SIGNALS, Journal, WorkerLoads, WorkerMetrics, run_workers
from evenbins.cluster.libraries import library

__all__ = ["bind", "make_router", "serve", "serve_by_workers", "write_line"]


def write_line(text: str) -> None:
    """Write a line to standard error, at once."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def make_router(settings: Settings, loads: WorkerLoads | None = None) -> Router:
    """Return the router of a configuration, with what its process adds to it: its log, shared loads."""
    return Router(_completed(settings, _redis_loads(settings.server) or loads))


def _completed(settings: Settings, loads: Any) -> Any:
    log = write_line if settings.server.access_log else None
    return dataclasses.replace(settings.config, access_log=log, loads=loads)


def _redis_loads(server: ServerSettings) -> Any:
    if server.shared_loads is None:
        return None
    from evenbins.cluster.shared_loads import AsyncRedisLoads

    never = library("redis.asyncio.retry", "redis").Retry(library("redis.backoff", "redis").NoBackoff(), 0)
    client = library("redis.asyncio", "redis").Redis.from_url(
        server.shared_loads,
        socket_timeout=1.0,
        socket_connect_timeout=1.0,
        retry=never,
        max_connections=2**20,
    )
    return AsyncRedisLoads(client, server.shared_name)


def bind(server: ServerSettings, *, listening: bool = True) -> socket.socket:
    """Return a socket at the server's address; OSError or OverflowError if that cannot be used.

    Workers share the address: the parent's socket takes it without listening, theirs listen.
    """
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as socket.create_server does
        if server.workers > 1:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((server.host, server.port))
        if listening:
            listener.listen(2048)
    except BaseException:
        listener.close()
        raise
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio sets it on its own sockets only
    return listener


def serve(
    router: Router, settings: Settings, listener: socket.socket, read: Callable[[], Settings] | None = None,
    journal: Journal | None = None, publish: Callable[[str], object] | None = None,
    early: Sequence[int] = (),
) -> None:  # fmt: skip
    """Serve a router until SIGTERM or SIGINT; then finish what is under way.

    Parameters
    ----------
    router
        The application.
    settings
        What it was made from.
    listener
        A socket that listens.
    read
        Returns the configuration as it is now, for SIGHUP; OSError, TypeError or ValueError if it is wrong.
    journal, publish
        Of a worker: its changes, and what takes its metrics every second.
    early
        Not empty if SIGHUP has come before this call.
    """
    uvicorn = library("uvicorn", "route")
    from evenbins.cluster.http_protocol import protocol

    config = uvicorn.Config(
        router, lifespan="on", log_level="warning", access_log=False,
        server_header=False, date_header=False, timeout_keep_alive=75, proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(settings.server.grace)),
        log_config=uvicorn.config.LOGGING_CONFIG | {"disable_existing_loggers": False}, ws="none",
        http=protocol(router.config.read_timeout),
    )  # fmt: skip
    current = settings

    def reload() -> None:
        nonlocal current
        if read is None:
            write_line("evenbins: there is no file to reload: start with --config")
            return
        try:
            new = read()
        except (OSError, TypeError, ValueError) as error:
            write_line(f"evenbins: not reloaded, the old configuration stays: {error}")
            return
        late = [
            field.name
            for field in dataclasses.fields(ServerSettings)
            if getattr(new.server, field.name) != getattr(current.server, field.name)
            and field.name not in ("access_log", "admin_token_file")
        ]
        try:
            router.reconfigure(_completed(new, router.config.loads))
        except (MemoryError, TypeError, ValueError) as error:
            write_line(f"evenbins: not reloaded: {error}")
            return
        current = Settings(new.config, dataclasses.replace(
            new.server, **{name: getattr(current.server, name) for name in late}
        ))  # fmt: skip
        needs = f"; a restart is needed for {', '.join(late)}" if late else ""
        write_line(f"evenbins: reloaded: routing to {len(router.status()['upstreams'])}{needs}")

    def follow() -> None:
        for change, parameters in journal.new() if journal is not None else ():
            apply_change(router, change, parameters)

    def pass_on(change: str, parameters: Mapping[str, str]) -> None:
        assert journal is not None
        journal.write(change, parameters)
        os.kill(os.getppid(), signal.SIGUSR1)  # which tells all workers

    def publish_metrics() -> None:
        if publish is not None:
            publish(router.metrics.text(router.status()))
            asyncio.get_running_loop().call_later(1.0, publish_metrics)

    class Server(uvicorn.Server):  # type: ignore[misc, name-defined]
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """End in peace by the first signal, at once by the second; exit code 0, not the signal's."""
            before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGTERM, signal.SIGINT)}
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, reload)
            if early:
                loop.call_soon(reload)
            if journal is not None:
                loop.add_signal_handler(signal.SIGUSR1, follow)
                router.on_change = pass_on
                follow()
            publish_metrics()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            try:
                yield
            finally:
                for each, handler in before.items():
                    signal.signal(each, handler)

    _raise_descriptor_limit()
    Server(config).run(sockets=[listener])


def serve_by_workers(
    settings: Settings, address: socket.socket, read: Callable[[], Settings] | None = None
) -> None:
    """Serve by several processes until SIGTERM or SIGINT.

    Parameters
    ----------
    settings
        With `workers`.
    address
        A socket that has the address and does not listen.
    read
        As for `serve`.
    """
    port = address.getsockname()[1]
    server = dataclasses.replace(settings.server, port=port)
    loads, journal, metrics = WorkerLoads(server.workers), Journal(), WorkerMetrics(server.workers)
    parent = os.getpid()

    def work(number: int) -> None:
        loads.use_row(number)
        now = settings
        with contextlib.suppress(OSError, TypeError, ValueError):  # a wrong file: as the others began
            now = read() if read is not None else settings
        router = make_router(now, loads)

        def publish(text: str) -> None:
            metrics.publish(number, text)
            if os.getppid() != parent:  # it was killed: nobody reloads, ends or replaces this worker
                os.kill(os.getpid(), signal.SIGTERM)

        def merge(text: str) -> str:
            publish(text)
            return metrics.merged()

        router.merge_metrics = merge
        with bind(server) as listener:
            serve(router, now, listener, read, journal, publish)

    run_workers(server.workers, work, journal, write_line)


def _raise_descriptor_limit() -> None:
    """Allow as many open connections as the system does: idle clients must not use them up."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

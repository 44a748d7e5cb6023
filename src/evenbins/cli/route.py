"""The command `evenbins route`: a reverse proxy that sends equal keys to the same replica.

    evenbins route --upstream http://a:8001 --upstream http://b:8001=2.5 --key messages --policy score

SIGTERM and SIGINT drain it: no new connection is accepted, requests under way are finished (at most --grace
seconds), exit code 0. Manners and errors are those of the package, which registers the command.
"""

from __future__ import annotations

import contextlib
import re
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from evenbins._console import COUNT, RATE, SIZE

if TYPE_CHECKING:
    from evenbins.cluster.http import Router
    from evenbins.cluster.shared_loads import AsyncRedisLoads

__all__ = ["route", "serve"]


@click.command(short_help="Pass HTTP requests on to replicas, by key.")
@click.option(
    "--upstream", "upstreams", multiple=True, metavar="URL[=WEIGHT]", help="A replica; several times."
)
@click.option(
    "--key", multiple=True, metavar="RULE",
    help="messages, prompt, json:FIELD[:CHARS], header:NAME, client, url or path; several times: the first "
    "that applies.  [default: path]",
)  # fmt: skip
@click.option(
    "--policy", type=click.Choice(("hash", "prefix", "score")), default="hash", show_default=True,
    help="hash: the key's replica; prefix, score: one that has the prompt's beginning.",
)  # fmt: skip
@click.option("--block-bytes", type=SIZE, default=1024, show_default=True, help="Of a prompt, in a block.")
@click.option("--hash-blocks", type=COUNT, default=2, show_default=True, help="First blocks that are a key.")
@click.option("--cache-blocks", type=COUNT, default=16_384, show_default=True, help="Of a replica's cache.")
@click.option(
    "--load", type=click.Choice(("work", "requests")), default="work", show_default=True,
    help="Of prefix and score: bytes of prompts until the answer begins, or requests until it ends.",
)  # fmt: skip
@click.option("--epsilon", type=RATE, help="Excess in flight over a replica's share.  [default: 0.25]")
@click.option("--limit", type=COUNT, help="Instead: requests in flight per replica, times its weight.")
@click.option("--wait", type=float, default=0.0, help="Seconds to wait for room before an answer of 503.")
@click.option("--seed", type=int, default=0, help="Of the ring: 0 to 2**64-1, equal for all routers.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0: everywhere.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0: a free one.")
@click.option("--health-path", help="Asked by GET; without it only requests tell who is down.")
@click.option("--health-interval", type=float, default=5.0, show_default=True, help="Seconds.")
@click.option("--failures", type=int, default=2, show_default=True, help="In a row, until a replica is down.")
@click.option("--retries", type=int, default=2, show_default=True, help="At other replicas, where safe.")
@click.option("--connect-timeout", type=float, default=2.0, show_default=True, help="Seconds.")
@click.option(
    "--read-timeout", type=float, default=60.0, show_default=True,
    help="Seconds between pieces of an answer, for a request's head, for 16 KiB of its body.",
)  # fmt: skip
@click.option("--total-timeout", type=float, help="Seconds for a whole exchange.  [default: any]")
@click.option(
    "--max-body",
    type=SIZE,
    default=2**20,
    show_default=True,
    help="Bytes of a body that are parsed for its key.",
)
@click.option(
    "--body-buffer", type=SIZE, default=2**20, show_default=True,
    help="Bytes of a body that are received before its request takes a place at a replica.",
)  # fmt: skip
@click.option(
    "--trusted-proxy", "trusted_proxies", multiple=True, metavar="CIDR",
    help="Keep X-Forwarded-* of these; several times; none: of nobody.  [default: 127.0.0.0/8, ::1]",
)  # fmt: skip
@click.option("--keep-host", is_flag=True, help="Send the client's Host on.")
@click.option("--shared-loads", metavar="URL", help="Share counts with other routers: redis://host:port/0.")
@click.option("--shared-name", default="route", show_default=True, help="Routers with this name share.")
@click.option("--grace", type=float, default=60.0, show_default=True, help="Seconds for requests at the end.")
@click.option("--access-log", is_flag=True, help="Write a line for each request to standard error.")
def route(
    upstreams: tuple[str, ...], host: str, port: int, shared_loads: str | None, shared_name: str,
    grace: float, access_log: bool, trusted_proxies: tuple[str, ...], **options: Any,
) -> None:  # fmt: skip
    """Serve a reverse proxy: equal keys go to the same replica while its requests in flight allow it.

    A replica that is full passes a key on to the key's next one, always in the same order; one that fails is
    passed over until it answers again. Counts are those of this process; --shared-loads shares them.
    Pages: /-/status, /-/metrics, /-/healthy; POST /-/drain?upstream=URL, /-/undrain. See docs/routing.md.
    """
    if not upstreams:
        raise click.ClickException("--upstream is missing: name a replica, such as http://127.0.0.1:8001")
    weights: dict[str, float] = {}
    for text in upstreams:
        url, weight = _weighted(text)
        if url in weights:
            raise click.ClickException(f"--upstream {url} is given twice: give it a weight, such as {url}=2")
        weights[url] = weight
    options["key"] = options["key"] or "path"
    if trusted_proxies:
        options["trusted_proxies"] = () if trusted_proxies == ("none",) else trusted_proxies
    from evenbins.cluster.http import Router, RouterConfig

    try:
        loads = _loads(shared_loads, shared_name)
        router = Router(RouterConfig(weights, weights=weights, loads=loads, **options))
        serve(router, host=host, port=port, grace=grace, access_log=access_log)
    except (ImportError, TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from None


def _weighted(text: str) -> tuple[str, float]:
    """Split URL=WEIGHT."""
    found = re.fullmatch(r"(.+)=([0-9.eE+]+)", text)
    if found is None:
        return text, 1.0
    try:
        return found[1], float(found[2])
    except ValueError:
        raise click.ClickException(f"--upstream {text}: {found[2]} is no weight such as 2.5") from None


def _loads(url: str | None, name: str) -> AsyncRedisLoads | None:
    if url is None:
        return None
    from evenbins.cluster.libraries import library
    from evenbins.cluster.shared_loads import AsyncRedisLoads

    never = library("redis.asyncio.retry", "redis").Retry(library("redis.backoff", "redis").NoBackoff(), 0)
    client = library("redis.asyncio", "redis").Redis.from_url(
        url, socket_timeout=1.0, socket_connect_timeout=1.0, retry=never, max_connections=2**20
    )
    return AsyncRedisLoads(client, name)


def serve(
    router: Router, *, host: str = "127.0.0.1", port: int = 8080, grace: float = 60.0,
    access_log: bool = False,
) -> None:  # fmt: skip
    """Serve a router by uvicorn until SIGTERM or SIGINT; then finish what is under way.

    Parameters
    ----------
    router
        The application.
    host, port
        Where to listen: this machine only, by default.
    grace
        Seconds for requests under way at the end; those that take longer are cut off.
    access_log
        A line for each request on standard error.

    Raises
    ------
    click.ClickException
        The address cannot be used.
    """
    import socket

    from evenbins.cluster.libraries import library

    uvicorn = library("uvicorn", "route")
    from evenbins.cluster.http_protocol import protocol

    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=2048)
        listener.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )  # asyncio sets it on its own sockets only
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise click.ClickException(f"cannot listen on {host}:{port}: {reason}; choose another") from None
    config = uvicorn.Config(
        router, lifespan="on", log_level="warning" if not access_log else "info", access_log=access_log,
        server_header=False, date_header=False, timeout_keep_alive=75, proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(grace)), log_config=uvicorn.config.LOGGING_CONFIG |
        {"disable_existing_loggers": False}, ws="none", http=protocol(router.config.read_timeout),
    )  # fmt: skip

    class Server(uvicorn.Server):  # type: ignore[misc, name-defined]
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """End in peace by the first signal, at once by the second; exit code 0, not the signal's."""
            before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGTERM, signal.SIGINT)}
            try:
                yield
            finally:
                for each, handler in before.items():
                    signal.signal(each, handler)

    _raise_descriptor_limit()
    with listener:
        where = listener.getsockname()
        shown = f"[{where[0]}]" if family == socket.AF_INET6 else where[0]
        click.echo(f"evenbins: routing to {len(router.ring.names)} on http://{shown}:{where[1]}", err=True)
        sys.stderr.flush()
        Server(config).run(sockets=[listener])


def _raise_descriptor_limit() -> None:
    """Allow as many open connections as the system does: idle clients must not use them up."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

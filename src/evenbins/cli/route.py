"""The command `evenbins route`: a reverse proxy that sends equal keys to the same replica.

    evenbins route --upstream http://a:8001 --upstream http://b:8001=2.5 --key messages --policy score

The process is http_server.py's: SIGTERM and SIGINT drain it, SIGHUP reads --config again. Manners and errors
are those of the package, which registers the command.
"""

from __future__ import annotations

import signal
from typing import Any

import click

from evenbins._console import COUNT, FILE, RATE, SIZE

__all__ = ["route"]


@click.command(short_help="Pass HTTP requests on to replicas, by key.")
@click.option("--config", type=FILE, help="A TOML file with these options; SIGHUP reads it again.")
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
@click.option(
    "--epsilon",
    type=RATE,
    help="How far a replica may exceed its fair share of requests in flight (0.25 = 25 %).  [default: 0.25]",
)
@click.option(
    "--limit",
    type=COUNT,
    help="Maximum requests in flight per replica (times its weight); replaces --epsilon.",
)
@click.option("--wait", type=float, default=0.0, help="Seconds to wait for room before an answer of 503.")
@click.option("--queue", type=COUNT, default=1000, show_default=True, help="May wait; others get 429.")
@click.option("--seed", type=int, default=0, help="Of the ring: 0 to 2**64-1, equal for all routers.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0: everywhere.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0: a free one.")
@click.option("--health-path", help="Asked by GET; without it only requests tell who is down.")
@click.option("--health-interval", type=float, default=5.0, show_default=True, help="Seconds.")
@click.option("--failures", type=int, default=2, show_default=True, help="In a row, until a replica is down.")
@click.option("--retries", type=int, default=2, show_default=True, help="At other replicas, where safe.")
@click.option("--retry-unanswered", is_flag=True, help="Repeat all that broke before an answer began, once.")
@click.option("--breaker-failures", type=COUNT, help="Errors in a window that open it.  [default: none]")
@click.option("--breaker-window", type=float, default=10.0, show_default=True, help="Seconds.")
@click.option("--breaker-pause", type=float, default=5.0, show_default=True, help="Seconds, until a trial.")
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
@click.option("--workers", type=COUNT, default=1, show_default=True, help="Processes that share loads.")
@click.option("--grace", type=float, default=60.0, show_default=True, help="Seconds for requests at the end.")
@click.option("--response-headers", is_flag=True, help="Tell clients the replica: X-Evenbins-Upstream, ….")
@click.option("--admin-token-file", type=FILE, help="Its content allows to change replicas by requests.")
@click.option("--access-log", is_flag=True, help="Write a line for each request to standard error.")
def route(config: str | None, **options: Any) -> None:
    """Serve a reverse proxy: equal keys go to the same replica while its requests in flight allow it.

    A replica that is full passes a key on to the key's next one, always in the same order; one that fails is
    passed over until it answers again. Counts are those of this process; --shared-loads shares them.
    --config reads these options from a TOML file, which SIGHUP reads again.
    Pages: /-/status, /-/metrics, /-/healthy; POST /-/drain?upstream=URL and others. See docs/routing.md.
    """
    from evenbins.cluster.http_server import bind, make_router, serve, serve_by_workers
    from evenbins.cluster.http_settings import Settings, read_settings, settings_from
    from evenbins.cluster.libraries import library

    given = {
        name: value
        for name, value in options.items()
        if click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    if given.get("trusted_proxies") == ("none",):
        given["trusted_proxies"] = ()
    if config is None and not options["upstreams"]:
        raise click.ClickException("--upstream is missing: name a replica, such as http://127.0.0.1:8001")

    def read() -> Settings:
        return settings_from(given) if config is None else read_settings(config, given)

    try:
        library("uvicorn", "route")  # before anything is announced
        settings = read()
        router = make_router(settings)
        several = settings.server.workers > 1
        listener = bind(settings.server, listening=not several)
    except (ImportError, TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, OSError) and error.filename is not None:
            raise click.ClickException(f"cannot read {error.filename}: {reason}") from None
        where = f"{settings.server.host}:{settings.server.port}"
        raise click.ClickException(f"cannot listen on {where}: {reason}; choose another") from None
    with listener:
        # Signals to reload before there is an event loop; NumPy's threads would take blocked ones.
        early: list[int] = []
        signal.signal(signal.SIGHUP, lambda number, _: early.append(number))
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        replicas = len(router.status()["upstreams"])
        click.echo(f"evenbins: routing to {replicas} on http://{shown}:{port}", err=True)
        again = read if config is not None else None
        if several:
            serve_by_workers(settings, listener, again)
        else:
            serve(router, settings, listener, again, early=early)

"""The command `evenbins lab`: serves the lab to this machine's browser until Ctrl-C.

    evenbins lab                       http://127.0.0.1:8765/filters, opened in the browser
    evenbins lab --port 0 --no-browser   any free port; the first line of standard output is the URL

It listens to loopback addresses alone. To look at it from another machine, forward the port:
`ssh -L 8765:127.0.0.1:8765 machine`. Errors and exit codes are those of `evenbins.cli`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import webbrowser
from collections.abc import Callable

import click

__all__ = ["lab", "serve"]

_HOSTS = {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "::1": "::1", "[::1]": "::1"}


@click.command(short_help="Open the lab: pages to understand and to decide.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0: any free one."
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="127.0.0.1, localhost or ::1: this machine alone."
)
@click.option("--no-browser", is_flag=True, help="Print the URL only.")
def lab(port: int, host: str, no_browser: bool) -> None:
    """Serve the lab's pages to this machine: filters, fingerprints, tables, rings, routing and experiments.

    Prints the URL and opens it in the browser; Ctrl-C ends it. Needs evenbins[lab].
    """
    if host.lower() not in _HOSTS:
        raise click.ClickException(
            f"--host must be 127.0.0.1, localhost or ::1, not {host}: the lab serves this machine alone. "
            f"From another one use ssh -L {port or 8765}:127.0.0.1:{port or 8765} and this machine's name"
        )
    try:
        serve(host=_HOSTS[host.lower()], port=port, ready=_announce(not no_browser))
    except ImportError as error:
        raise click.ClickException(
            f"the lab needs starlette and uvicorn: pip install 'evenbins[lab]' ({error})"
        ) from None


def _announce(browser: bool) -> Callable[[str], None]:
    def announce(url: str) -> None:
        click.echo(f"{url}  (Ctrl-C ends it)" if browser else url)
        if browser:
            threading.Thread(target=_open, args=(url,), daemon=True).start()

    return announce


def _open(url: str) -> None:
    with contextlib.suppress(Exception):  # no browser here: the URL is printed
        webbrowser.open(url)


def serve(*, host: str = "127.0.0.1", port: int = 8765, ready: Callable[[str], None] | None = None) -> None:
    """Serve the lab until it is interrupted.

    Parameters
    ----------
    host, port
        Where to listen; port 0 takes any free one.
    ready
        Called with the URL as soon as connections are accepted.

    Raises
    ------
    ImportError
        If starlette or uvicorn is not installed.
    click.ClickException
        If the port is taken.
    """
    import uvicorn

    from evenbins.study.lab.app import create_app

    listening = listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}/filters"
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(), log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=1
        )
    )
    if ready is not None:
        ready(url)  # the socket listens already: a connection waits for the server
    with contextlib.closing(listening), contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket; ClickException if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise click.ClickException(
            f"cannot listen on {host} port {port} ({error.strerror}): choose another by --port, "
            "or --port 0 for any free one"
        ) from None
    return listening

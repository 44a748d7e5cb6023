"""Pages of a router's own, under /-/: metrics, status, healthy, drain, undrain."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from evenbins.cluster.http_bodies import Answer, RequestBody
from evenbins.cluster.http_headers import THIS_MACHINE, Scope, TrustedProxies, is_forwarding

if TYPE_CHECKING:
    from evenbins.cluster.http import Router

__all__ = ["answer_page", "drain_or_undrain"]

_LOOPBACK = TrustedProxies(THIS_MACHINE)


async def answer_page(router: Router, scope: Scope, body: RequestBody, answer: Answer) -> None:
    """Answer a page of the router's own."""
    page, method = scope["path"], scope["method"]
    reading = method in ("GET", "HEAD")
    headers = None
    if page == "/-/metrics" and reading:
        status, text = 200, router.metrics.text(router.status())
        headers = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
    elif page == "/-/status" and reading:
        status, text = 200, json.dumps(router.status())
        headers = [(b"content-type", b"application/json")]
    elif page == "/-/healthy" and reading:
        up = any(each["state"] == "up" for each in router.status()["upstreams"].values())
        status, text = (200, "ok\n") if up else (503, "no upstream is up\n")
    elif page in ("/-/drain", "/-/undrain"):
        status, text = drain_or_undrain(router, page, method, scope)
    else:
        status, text = 404, "pages are /-/metrics, /-/status, /-/healthy, /-/drain\n"
    await answer.write(status, text, close=not body.complete, headers=headers)


def drain_or_undrain(router: Router, page: str, method: str, scope: Scope) -> tuple[int, str]:
    """Drain or undrain, if whoever asks may: a program on this machine, no web page, no other proxy."""
    if method != "POST":
        return 405, "use POST\n"
    names = [name.lower() for name, _ in scope["headers"]]
    client = scope.get("client")  # none: a Unix socket
    local = not client or client[0] in _LOOPBACK
    if not local or b"origin" in names or any(map(is_forwarding, names)):
        return 403, "only programs on this machine may do that\n"
    given = parse_qs(scope["query_string"].decode("ascii", "replace")).get("upstream", [])
    if len(given) != 1 or given[0] not in router.status()["upstreams"]:
        return 400, "name one upstream, as /-/status writes it: /-/drain?upstream=URL\n"
    (router.drain if page == "/-/drain" else router.undrain)(given[0])
    return 200, json.dumps({given[0]: router.status()["upstreams"][given[0]]["state"]}) + "\n"

"""Pages of a router's own, under /-/: metrics, status, healthy, and the changes of http_admin.py."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from evenbins.cluster.http_admin import CHANGES, answer_change
from evenbins.cluster.http_bodies import Answer, RequestBody
from evenbins.cluster.http_headers import Scope

if TYPE_CHECKING:
    from evenbins.cluster.http import Router

__all__ = ["answer_page"]


async def answer_page(router: Router, scope: Scope, body: RequestBody, answer: Answer) -> None:
    """Answer a page of the router's own."""
    page, method = scope["path"], scope["method"]
    reading = method in ("GET", "HEAD")
    headers = None
    if page == "/-/metrics" and reading:
        status, text = 200, router.metrics_text()
        headers = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
    elif page == "/-/status" and reading:
        status, text = 200, json.dumps(router.status())
        headers = [(b"content-type", b"application/json")]
    elif page == "/-/healthy" and reading:
        up = any(each["state"] == "up" for each in router.status()["upstreams"].values())
        status, text = (200, "ok\n") if up else (503, "no upstream is up\n")
    elif page.removeprefix("/-/") in CHANGES:
        status, text = answer_change(router, page.removeprefix("/-/"), method, scope)
        if status == 401:
            headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain; charset=utf-8")]
    else:
        status, text = (
            404,
            "pages are /-/metrics, /-/status, /-/healthy, /-/drain and others: see docs/routing.md\n",
        )
    await answer.write(status, text, close=not body.complete, headers=headers)

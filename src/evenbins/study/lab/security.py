"""Who may ask, and how answers are fenced: an ASGI middleware around the whole application.

The lab can make this machine work and has no password. What protects it from other pages open in the same
browser:

    Host          must be this server by a loopback name: a name that an attacker points to 127.0.0.1 (DNS
                  rebinding) is another Host                                                   ──▶ 403
    Origin        of anything but GET must be absent or our own, and X-Evenbins-Lab: 1 must be there, which a
                  foreign page can send only after a preflight that is never granted           ──▶ 403
    Sec-Fetch-Site  of /api must not be cross-site: an <img> elsewhere may not start work       ──▶ 403
    lengths       of the path with its query, and of a body, are bounded; of a file that is inspected
                  by what its endpoint takes                                                   ──▶ 414, 413
    failures      of ours are answered in words, without the inside of the program              ──▶ 500
    answers       carry a Content-Security-Policy under which nothing but our own files runs, and may not be
                  framed, sniffed or read by other origins; pages that Sphinx built on this machine have
                  styles and scripts in their text, and may run them

The port is the one the server listens on (`scope["server"]`), not a claim of the request.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterable, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["BUILT_POLICY", "HEADERS", "LOOPBACK", "Fence", "too_large"]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
LONGEST_TARGET = 4096
LONGEST_BODY = 65536

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""What every answer carries."""

BUILT = "/docs/built/"
BUILT_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of the built documentation; its search is a form."""


class Fence:
    """The middleware; `uploads` are the paths that take larger bodies, and how large."""

    def __init__(self, app: ASGIApp, uploads: Mapping[str, int] | None = None) -> None:
        self._app, self._uploads = app, uploads or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse what may not be asked; add the headers to whatever is answered."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        begun = False

        async def send_fenced(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if str(scope["path"]).startswith(BUILT):
                    headers["Content-Security-Policy"] = BUILT_POLICY
                headers.setdefault("Cache-Control", "no-store" if _is_api(scope) else "no-cache")
            await send(message)

        refusal = _refusal(scope, self._uploads.get(scope["path"]))
        if refusal is None:
            try:
                await self._app(scope, receive, send_fenced)
                return
            except Exception as error:  # ours: said in the terminal, and in words to the page
                traceback.print_exception(error, file=sys.stderr)
                if begun:
                    raise
                refusal = 500, f"the lab failed ({type(error).__name__}): its terminal says where"
        status, text = refusal
        body = json.dumps({"error": text}).encode()
        await send_fenced(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    (b"content-type", b"application/json"),
                    (b"content-length", str(len(body)).encode()),
                    (b"connection", b"close"),
                ],
            }
        )
        await send_fenced({"type": "http.response.body", "body": body})


def _is_api(scope: Scope) -> bool:
    return str(scope["path"]).startswith("/api/")


def _refusal(scope: Scope, upload: int | None) -> tuple[int, str] | None:
    """Return the status and the message of a request that may not be asked."""
    headers = Headers(scope=scope)
    port = (scope.get("server") or (None, None))[1]
    own = _own_hosts(port)
    host = headers.getlist("host")
    if len(host) != 1 or host[0].lower() not in own:
        return 403, f"the Host of this request is not the lab's: open http://127.0.0.1:{port}/ instead"
    if scope["method"] not in ("GET", "HEAD"):
        origins = headers.getlist("origin")
        if any(each.lower() not in {f"http://{name}" for name in own} for each in origins):
            return 403, "this request comes from another page: use the lab's own pages"
        if headers.get("x-evenbins-lab") != "1":
            return 403, "the header X-Evenbins-Lab: 1 is missing: send it with everything but GET"
    if _is_api(scope) and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return 403, "this request comes from another page: use the lab's own pages"
    if len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"]) > LONGEST_TARGET:
        return 414, f"the address must have at most {LONGEST_TARGET} bytes: leave parameters out"
    length = headers.get("content-length", "0")
    if upload is not None and length.isdecimal():
        return (413, too_large(upload)) if int(length) > upload else None
    if not length.isdecimal() or int(length) > LONGEST_BODY:
        return 413, f"the body must have at most {LONGEST_BODY} bytes: parameters stand in the address"
    return None


def too_large(most: int) -> str:
    """Return the message for a file that is larger than allowed."""
    return f"the file must have at most {most >> 20} MiB: run 'evenbins inspect FILE', which takes any size"


def _own_hosts(port: int | None) -> set[str]:
    names: Iterable[str] = (f"{name}:{port}" for name in LOOPBACK)
    return {*names, *(LOOPBACK if port in (80, None) else ())}

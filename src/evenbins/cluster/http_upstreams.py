"""Replicas of a router: their URLs, and why a connection to one failed."""

from __future__ import annotations

import errno
import functools
import ssl
from urllib.parse import urlsplit

from evenbins import _arguments as arguments

__all__ = ["Upstream", "check_url", "is_exhausted"]

_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))


class Upstream:
    """The parts of a replica's URL."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.hostname = parts.hostname or ""
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.host = parts.netloc.rpartition("@")[2].encode("idna" if not parts.netloc.isascii() else "ascii")
        self.path = parts.path.rstrip("/").encode()
        self.secure = parts.scheme == "https"

    def tls_context(self) -> ssl.SSLContext | None:
        """Return what a connection needs for TLS; None for plain HTTP."""
        return _tls_context() if self.secure else None


@functools.cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()  # it takes time to load certificates


def check_url(url: object) -> str:
    """Return a replica's URL, which has no user, query or fragment."""
    rule = "a URL such as http://127.0.0.1:8001"
    if not isinstance(url, str):
        raise arguments.type_error("an upstream", rule, url, "Pass a str")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
        good = good and not (parts.query or parts.fragment or "@" in parts.netloc)
        Upstream(url)
    except ValueError:  # UnicodeError too: a name that DNS cannot have
        good = False
    if not good or not url.isprintable() or " " in url:
        raise arguments.error("an upstream", rule, url, "Leave out user, query and fragment")
    return url


def is_exhausted(error: BaseException) -> bool:
    """Return whether a connect failed for lack of descriptors, ports or memory here, not at the replica."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _EXHAUSTED:
            return True
        if isinstance(cause, BaseExceptionGroup):  # one error for each address of the replica
            return any(map(is_exhausted, cause.exceptions))
        cause = cause.__cause__ or cause.__context__
    return False

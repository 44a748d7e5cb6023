"""Headers of requests and answers that pass a proxy: framing, hop-by-hop headers, X-Forwarded-*.

    client ── headers ──▶ request_error: 400?  ──▶ upstream_headers ──▶ replica
    client ◀── answer_headers ◀── answer_error: 502? ◀── headers ── replica

Rules
- A body has one length. Content-Length together with Transfer-Encoding, or two different lengths, is how a
  request is smuggled past a proxy (RFC 9112, 6.3): such requests and answers are refused, never repaired.
- Hop-by-hop headers, and those that Connection names, end here.
- X-Forwarded-For: the lines of a trusted peer, joined in order, and the peer's address. Of a peer that is not
  trusted nothing is kept: anybody can write such a header.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, MutableMapping
from typing import Any

from evenbins import _arguments as arguments

__all__ = [
    "THIS_MACHINE",
    "Scope",
    "TrustedProxies",
    "answer_error",
    "answer_headers",
    "client_address",
    "is_forwarding",
    "raw_path",
    "request_error",
    "upstream_headers",
]

_Headers = Iterable[tuple[bytes, bytes]]
Scope = MutableMapping[str, Any]
"""Of an ASGI request."""
THIS_MACHINE = ("127.0.0.0/8", "::1")

_MOST_KNOWN = 4096

_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer trailers "
    b"transfer-encoding upgrade expect".split()
)


class TrustedProxies:
    """The peers whose X-Forwarded-* headers are believed: addresses and networks.

    >>> trusted = TrustedProxies(["10.0.0.0/8", "::1"])
    >>> [address in trusted for address in ("10.9.9.9", "::1", "::ffff:10.1.1.1", "192.0.2.1")]
    [True, True, True, False]
    """

    def __init__(self, networks: Iterable[str]) -> None:
        if isinstance(networks, str) or not isinstance(networks, Iterable):
            rule = "several networks, not one"
            raise arguments.type_error("trusted_proxies", rule, networks, f"Pass [{networks!r}]")
        self.names = tuple(networks)
        self._known: dict[str, bool] = {}  # addresses that were asked for; reading one takes time
        rule = "addresses or networks such as 10.0.0.7 or 10.0.0.0/8"
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for each in self.names:
            if not isinstance(each, str):
                raise arguments.type_error("trusted_proxies", rule, each, "Pass a str")
            try:
                self._networks.append(ipaddress.ip_network(each, strict=False))
            except ValueError:
                raise arguments.error("trusted_proxies", rule, each, "Names are not looked up") from None

    def __contains__(self, address: str) -> bool:
        known = self._known.get(address)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[address] = self._contains(address)
        return known

    def _contains(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)


def request_error(scope: Scope) -> str | None:
    """Return what is wrong with a request's head, if it cannot be passed on.

    >>> head = {"method": "POST", "raw_path": b"/", "path": "/", "http_version": "1.1"}
    >>> request_error(head | {"headers": [(b"content-length", b"5")]})
    >>> request_error(head | {"headers": [(b"content-length", b"5"), (b"transfer-encoding", b"chunked")]})
    'a request must not have both Content-Length and Transfer-Encoding'
    """
    if scope["method"] == "CONNECT" or not raw_path(scope).startswith(b"/"):
        return "the target of a request must be a path: this is no forward proxy"
    if _has(scope["headers"], b"transfer-encoding") and scope["http_version"] == "1.0":
        return "a request of HTTP/1.0 must not have Transfer-Encoding"
    return _framing_error(scope["headers"], "a request")


def answer_error(status: int, headers: _Headers) -> str | None:
    """Return what is wrong with an answer's head, if it cannot be passed on.

    >>> answer_error(200, [])
    >>> answer_error(999, [])
    'status 999'
    """
    if not 200 <= status <= 599:
        return f"status {status}"
    return _framing_error(headers, "an answer")


def _framing_error(headers: _Headers, what: str) -> str | None:
    headers = list(headers)
    lengths = {
        length.strip()
        for name, value in headers
        if name.lower() == b"content-length"
        for length in value.split(b",")
    }
    if not lengths:
        return None
    if _has(headers, b"transfer-encoding"):
        return f"{what} must not have both Content-Length and Transfer-Encoding"
    if len(lengths) > 1:
        return f"{what} must not have two values of Content-Length"
    (length,) = lengths
    if not length.isdigit() or len(length) > 20:
        return "Content-Length must be a number"
    return None


def upstream_headers(scope: Scope, host: bytes | None, trusted: TrustedProxies) -> list[tuple[bytes, bytes]]:
    """Return the headers for a replica: without those of the client's connection, with X-Forwarded-*.

    `host` is the replica's; None passes the client's on. If the peer is trusted, the X-Forwarded-* that it
    sent are kept; one without an address (a Unix socket) counts as 127.0.0.1.
    """
    received: list[tuple[bytes, bytes]] = scope["headers"]
    peer: str = (scope.get("client") or ("",))[0]
    believed = (peer or "127.0.0.1") in trusted
    client_host = _joined(received, b"host")
    dropped = _HOP_BY_HOP | _named_by_connection(received) | _SET_HERE
    sent = [(b"host", client_host if host is None else host)]
    sent += [
        (name, value)
        for name, value in received
        if name.lower() not in dropped
        and name.lower().replace(b"_", b"-") not in _SET_HERE
        and (believed or not is_forwarding(name))
    ]

    def forwarded_value(name: bytes) -> bytes:
        return _joined(received, name) if believed else b""

    chain = b", ".join(each for each in (forwarded_value(b"x-forwarded-for"), peer.encode()) if each)
    sent += [(b"x-forwarded-for", chain)] if chain else []
    sent += [(b"x-forwarded-proto", forwarded_value(b"x-forwarded-proto") or scope["scheme"].encode())]
    forwarded_host = forwarded_value(b"x-forwarded-host") or client_host
    sent += [(b"x-forwarded-host", forwarded_host)] if forwarded_host else []
    return sent


_SET_HERE = frozenset((b"host", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"))


def is_forwarding(name: bytes) -> bool:
    """Return whether a header is one by which a proxy describes its client.

    Servers of CGI and WSGI write X_Forwarded_For and X-Forwarded-For alike, so "_" counts as "-".

    >>> [is_forwarding(name) for name in (b"X-Forwarded-For", b"x_real_ip", b"Via")]
    [True, True, False]
    """
    name = name.lower().replace(b"_", b"-")
    return name.startswith(b"x-forwarded-") or name in (b"forwarded", b"x-real-ip")


def answer_headers(status: int, headers: _Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers of a replica's answer that the client gets."""
    headers = list(headers)
    dropped = _HOP_BY_HOP | _named_by_connection(headers)
    if status == 204:
        dropped |= {b"content-length"}  # RFC 9110, 8.6; a client may wait for that many bytes
    return [(name.lower(), value) for name, value in headers if name.lower() not in dropped]


def client_address(scope: Scope, trusted: TrustedProxies) -> str:
    """Return the address of a request's client: the last one that no trusted proxy has."""
    peer: str = (scope.get("client") or ("",))[0]
    if (peer or "127.0.0.1") not in trusted:
        return peer
    chain = [
        each.strip() for each in _joined(scope["headers"], b"x-forwarded-for").decode("latin-1").split(",")
    ]
    return next((each for each in reversed(chain) if each and each not in trusted), chain[0] or peer)


def raw_path(scope: Scope) -> bytes:
    """Return the path as the client wrote it."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path


def _has(headers: _Headers, name: bytes) -> bool:
    return any(each.lower() == name for each, _ in headers)


def _joined(headers: _Headers, name: bytes) -> bytes:
    values = (value.strip() for each, value in headers if each.lower() == name)
    return b", ".join(value for value in values if value)


def _named_by_connection(headers: _Headers) -> frozenset[bytes]:
    values = (value for name, value in headers if name.lower() == b"connection")
    return frozenset(each.strip().lower() for value in values for each in value.split(b","))

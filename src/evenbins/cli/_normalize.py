"""What --normalize does to keys, and never to rows: rules that are applied in the order they are given.

    nfc      Unicode normalisation form C: an accent as part of its letter (é of two code points becomes one)
    lower    lower case, as str.lower
    strip    no white space at either end
    url      of "scheme://…" alone: scheme and host in lower case; no default port (http 80, https 443,
             ftp 21); no fragment; %7e and %7E as ~, other escapes in capitals; an empty path is /

`url` follows RFC 3986, section 6.2.2 and 6.2.3. It keeps what may mean another page: the order and the names
of the query's parameters, a slash at the end, "www.", user names, the case of the path, and segments of dots.
A text that is no URL stays as it is. Bytes that are no UTF-8 stay as they are, whatever the rule.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

import click

__all__ = ["NORMALIZATIONS", "normalizer"]

_Rule = Callable[[str], str]

# What most URLs are already: lower-case scheme and host without a port, a path, no escape, no fragment.
_NORMAL_URL = re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9.-]+/[^%#]*")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?", re.DOTALL)
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PORTS = {"http": "80", "https": "443", "ftp": "21", "ws": "80", "wss": "443"}


def _unescape(match: re.Match[str]) -> str:
    character = chr(int(match[1], 16))
    return character if character in _UNRESERVED else match[0].upper()


def _normal_url(text: str) -> str:
    if _NORMAL_URL.fullmatch(text):
        return text
    parts = _URL.fullmatch(text)
    if parts is None:
        return text
    scheme, authority, path, query = parts[1].lower(), parts[2], parts[3], parts[4] or ""
    user, at, place = authority.rpartition("@")
    host, colon, port = place.rpartition(":")
    if not colon or (port and not port.isdecimal()):  # no port: a name, or an address such as [::1]
        host, port = place, ""
    if port == _PORTS.get(scheme):
        port = ""
    name = _ESCAPE.sub(_unescape, _ESCAPE.sub(_unescape, host).lower())  # again: escapes are capitals
    place = name + (f":{port}" if port else "")
    rest = _ESCAPE.sub(_unescape, (path or "/") + query)
    return f"{scheme}://{user}{at}{place}{rest}"


def _nfc(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


NORMALIZATIONS: dict[str, _Rule] = {"nfc": _nfc, "lower": str.lower, "strip": str.strip, "url": _normal_url}


def normalizer(names: Sequence[str]) -> Callable[[bytes], bytes] | None:
    """Return the function that applies the rules to a key's bytes; None without a rule."""
    for name in names:
        if name not in NORMALIZATIONS:
            raise click.ClickException(
                f"--normalize {name}: the rules are {', '.join(NORMALIZATIONS)}: name some of them, "
                "separated by commas"
            )
    rules = [NORMALIZATIONS[name] for name in names]
    if not rules:
        return None

    def normalize(key: bytes) -> bytes:
        try:
            text = key.decode()
        except UnicodeDecodeError:
            return key
        for rule in rules:
            text = rule(text)
        return text.encode()

    return normalize

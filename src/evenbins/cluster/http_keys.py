"""What of a request is its key: `path`, `url`, `header:NAME`, `json:FIELD[:CHARS]`.

    path                      /images/7.png                       the path, without the query
    url                       /search?q=even+bins                 path and query
    header:X-User             17                                  one header
    json:prompt:256           the first 256 characters of body["prompt"]: replicas with prefix caches
    json:messages.0.content   body["messages"][0]["content"]      names and numbers, joined by points

A request without a body has the key `path` under a rule for bodies: `GET /models` beside `POST /completions`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from evenbins import _arguments as arguments
from evenbins.errors import EvenbinsError

__all__ = ["KeyMissingError", "KeyRule"]

_KINDS = "path, url, header:NAME or json:FIELD[:CHARS]"


class KeyMissingError(EvenbinsError, ValueError):
    """The request has no key: the answer is status 400."""


@dataclass(frozen=True, slots=True)
class KeyRule:
    """Where a request's key is; made by `KeyRule.parse`.

    >>> KeyRule.parse("json:messages.0.content:256")
    KeyRule(kind='json', field='messages.0.content', chars=256)
    >>> rule = KeyRule.parse("json:prompt:5")
    >>> rule.of_body(b'{"prompt": "Once upon a time"}')
    'Once '
    """

    kind: str  # "path", "url", "header" or "json"
    field: str = ""  # name of the header, or way to the value in the body
    chars: int = 0  # leading characters of the value that count; 0: all

    @classmethod
    def parse(cls, text: str) -> KeyRule:
        """Read a rule."""
        if not isinstance(text, str):
            raise arguments.type_error("key", f"a str: {_KINDS}", text, "Leave it out for path")
        kind, _, rest = text.partition(":")
        if kind in ("path", "url") and not rest and ":" not in text:
            return cls(kind)
        if kind == "header" and rest and rest.isascii() and not set(rest) & set(" \t:"):
            return cls(kind, rest.lower())
        if kind == "json" and rest:
            field, colon, chars = rest.rpartition(":")
            if not colon:
                field, chars = rest, "0"
            if all(field.split(".")) and chars.isascii() and chars.isdecimal() and (int(chars) or not colon):
                return cls(kind, field, int(chars))
        raise arguments.error("key", _KINDS, text, "Leave it out for path")

    @property
    def needs_body(self) -> bool:
        """Whether the body must be read before a server is chosen."""
        return self.kind == "json"

    def of_head(self, path: bytes, query: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the key of a request, from its head; KeyMissingError if it lacks the header."""
        if self.kind == "url":
            return path + b"?" + query if query else path
        if self.kind == "header":
            name = self.field.encode()
            for each, value in headers:
                if each.lower() == name:
                    return value
            raise KeyMissingError(f"the header {self.field} is missing: it is the key of requests")
        return path

    def of_body(self, body: bytes) -> str:
        """Return the key of a request, from its body; KeyMissingError if that lacks the field."""
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            raise KeyMissingError(
                f"the body is not JSON: its field {self.field} is the key of requests"
            ) from None
        for step in self.field.split("."):
            number = isinstance(value, list) and step.isascii() and step.isdecimal()
            try:
                value = value[int(step) if number else step]
            except (KeyError, IndexError, TypeError):
                text = f"the body has no field {self.field}: it is the key of requests"
                raise KeyMissingError(text) from None
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
        text = text[: self.chars] if self.chars else text
        return text.encode("utf-8", "replace").decode()  # half a surrogate pair is no key

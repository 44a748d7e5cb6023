"""What of a request is its key: rules in order, the first that applies.

    messages                  a chat body: {"messages": [...]}    a chain of blocks that grows with the chat
    prompt                    body["prompt"]: text or token ids   a chain of blocks
    json:prompt:256           the first 256 characters of body["prompt"]
    json:messages.-1.content  names and numbers, joined by points; -1 is the last element
    header:X-User             one header
    client                    the client's address
    path, url                 the path; path and query

A rule that does not apply (no such field or header, no JSON, wrong types, a body that is too long to be
parsed) is passed over; `path` follows the last rule, so every request has a key. What `json.loads` does not
accept is no JSON here: invalid UTF-8, nesting beyond Python's recursion limit, integers of thousands of
digits. Of equal names in an object the last one counts.

Chains. Messages are written one after the other, each for itself, so the text of a conversation is a prefix
of its continuation. `system` and `tools` come first, as they do in the prompts that servers build.

The model in a body is part of every key that comes from the body: models do not share caches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenbins import _arguments as arguments
from evenbins import _core
from evenbins._bulk import Key
from evenbins.routing.blocks import blocks_of

__all__ = ["KeyRule", "KeyRules", "RequestKey"]

_KINDS = "path, url, client, messages, prompt, header:NAME or json:FIELD[:CHARS]"
_BARE = ("path", "url", "client", "messages", "prompt")
_TOKEN_BYTES = 4  # of text, about


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The key of a request.

    Attributes
    ----------
    key : what a ring places
    blocks : the chain of the prompt's blocks; of other keys a chain of one block
    work : the length of the prompt in bytes, 1 where there is none
    model : of the body, if it was read and names one
    rule : the kind of the rule that applied
    """

    key: Key
    blocks: Sequence[int]
    work: float = 1.0
    model: str | None = None
    rule: str = "path"


@dataclass(frozen=True, slots=True)
class KeyRule:
    """Where a request's key is; made by `KeyRule.parse`.

    >>> KeyRule.parse("json:messages.0.content:256")
    KeyRule(kind='json', field='messages.0.content', chars=256)
    >>> rule = KeyRule.parse("json:prompt:5")
    >>> rule.of_body({"prompt": "Once upon a time"})
    'Once '
    """

    kind: str  # one of _BARE, "header" or "json"
    field: str = ""  # name of the header, or way to the value in the body
    chars: int = 0  # leading characters of the value that count; 0: all

    @classmethod
    def parse(cls, text: str) -> KeyRule:
        """Read a rule."""
        if not isinstance(text, str):
            raise arguments.type_error("key", f"a str: {_KINDS}", text, "Leave it out for path")
        kind, _, rest = text.partition(":")
        if text in _BARE:
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
        return self.kind in ("json", "messages", "prompt")

    def of_head(
        self, path: bytes, query: bytes, headers: Iterable[tuple[bytes, bytes]], client: str
    ) -> bytes | None:
        """Return the key of a request, from its head; None if it has none."""
        if self.kind == "url":
            return path + b"?" + query if query else path
        if self.kind == "client":
            return client.encode() or None
        if self.kind == "header":
            name = self.field.encode()
            return next((value for each, value in headers if each.lower() == name), None)
        return path

    def of_body(self, body: object) -> str | None:
        """Return the key of a request by a rule `json:FIELD`, from its parsed body; None if it has none."""
        value: Any = body
        for step in self.field.split("."):
            if isinstance(value, list):
                digits = step.removeprefix("-")
                if not (digits.isascii() and digits.isdecimal()) or len(digits) > 9:
                    return None
                number = int(step)
                if not -len(value) <= number < len(value):
                    return None
                value = value[number]
            elif isinstance(value, dict) and step in value:
                value = value[step]
            else:
                return None
        if value is None:
            return None
        text = value if isinstance(value, str) else _dump(value)
        text = text[: self.chars] if self.chars else text
        return text.encode("utf-8", "replace").decode()  # half a surrogate pair is no key


class KeyRules:
    """Rules in order, and how prompts become blocks.

    >>> rules = KeyRules(["messages", "header:X-User"], block_bytes=16)
    >>> body = b'{"model": "m", "messages": [{"role": "user", "content": "What are bins, and why so even?"}]}'
    >>> found = rules.key(b"/chat", b"", [], "10.0.0.7", body)
    >>> found.rule, found.model, len(found.blocks), found.work
    ('messages', 'm', 3, 37.0)
    >>> rules.key(b"/models", b"", [(b"x-user", b"17")], "10.0.0.7", None).key
    b'17'
    """

    def __init__(
        self, rules: Iterable[str], *, block_bytes: int = 1024, hash_blocks: int = 2, seed: int = 0,
    ) -> None:  # fmt: skip
        self.rules = tuple(map(KeyRule.parse, rules))
        self._block_bytes, self._hash_blocks, self._seed = block_bytes, hash_blocks, arguments.seed(seed)
        self.needs_body = any(rule.needs_body for rule in self.rules)
        self.needs_client = any(rule.kind == "client" for rule in self.rules)

    def key(
        self, path: bytes, query: bytes, headers: Sequence[tuple[bytes, bytes]], client: str,
        body: bytes | None,
    ) -> RequestKey:  # fmt: skip
        """Return the key of a request; `body` is None if there is none, or it is too long to be parsed."""
        parsed = _parse(body) if body else None
        model = parsed.get("model") if parsed is not None else None
        model = model.encode("utf-8", "replace").decode() if isinstance(model, str) else None
        for rule in self.rules:
            if not rule.needs_body:
                key: Key | None = rule.of_head(path, query, headers, client)
                if key is not None:
                    return self._single(key, None, rule.kind, model)
            elif parsed is not None and (found := self._of_body(rule, parsed, model)) is not None:
                return found
        return self._single(path, None, "path", model)

    def _of_body(self, rule: KeyRule, body: Mapping[str, Any], model: str | None) -> RequestKey | None:
        try:
            if rule.kind != "json":
                return self._chain(rule.kind, body, model)
            text = rule.of_body(body)
        except RecursionError:  # it was parsed, and is too deep to be written
            return None
        return None if text is None else self._single(text, model, rule.kind, model)

    def _single(self, key: Key, prefix: str | None, rule: str, model: str | None) -> RequestKey:
        key = f"{prefix}\0{key!s}" if prefix is not None else key
        return RequestKey(key, (_core.digest(key, self._seed),), 1.0, model, rule)

    def _chain(self, kind: str, body: Mapping[str, Any], model: str | None) -> RequestKey | None:
        seed = self._seed if model is None else _core.digest(model, self._seed)
        if kind == "messages":
            data: Any = _chat_text(body)
        else:
            data = body.get("prompt")
            if isinstance(data, list) and data and isinstance(data[0], str | list):
                data = data[0]  # a batch
            data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        if not data or not isinstance(data, bytes | list):
            return None
        scale = 1 if isinstance(data, bytes) else _TOKEN_BYTES
        try:
            blocks = blocks_of(data, max(1, self._block_bytes // scale), seed=seed)
        except (TypeError, ValueError):  # no token ids
            return None
        return RequestKey(blocks[: self._hash_blocks][-1], blocks, float(len(data) * scale), model, kind)


def _parse(body: bytes) -> dict[str, Any] | None:
    """Return a body that is a JSON object; None if it is anything else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _chat_text(body: Mapping[str, Any]) -> bytes | None:
    """Return a chat as text of which every continuation's begins with it; None if it is no chat."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return None
    pieces = [_dump(body[name]) for name in ("tools", "system") if body.get(name)]
    for message in messages:
        if not isinstance(message, dict):
            return None
        role, content = message.get("role"), message.get("content")
        if len(message) == 2 and isinstance(role, str) and isinstance(content, str):
            pieces.append(f"{role}\n{content}\0")
        else:
            pieces.append(_dump(message))
    return "".join(pieces).encode("utf-8", "surrogatepass")


def _dump(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))

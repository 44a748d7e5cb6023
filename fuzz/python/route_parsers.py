"""What `evenbins route` reads: key rules, heads and bodies of requests, its file, changes by requests.

Nothing is sent here (router.py does that), so inputs are many. Whatever comes: a value or an error that the
program catches, and what a good request may expect:

    rules      every request has a key that a ring and an index of prefixes take; a longer chat begins with
               the blocks of the shorter one
    heads      a head that is passed on has one length, and no X-Forwarded-* of a stranger
    bodies     what is sent on is what came, whatever the pieces and limits
    settings   a configuration with which a router can be made, or a ValueError that names the file
    changes    a status and a text; none without the token, and a router that is whole afterwards
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import os
import tempfile
from collections.abc import Callable
from typing import Any

from provider import Provider

from evenbins.cluster.http import Router, RouterConfig
from evenbins.cluster.http_admin import CHANGES, answer_change
from evenbins.cluster.http_bodies import ClientGoneError, RequestBody
from evenbins.cluster.http_headers import (
    THIS_MACHINE,
    TrustedProxies,
    client_address,
    request_error,
    upstream_headers,
)
from evenbins.cluster.http_keys import KeyRule, KeyRules, RequestKey
from evenbins.cluster.http_settings import ServerSettings, read_settings
from evenbins.errors import EvenbinsError
from evenbins.rings import HashRing
from evenbins.routing import PrefixRouter

_RULES = (
    "messages", "prompt", "json:prompt:8", "json:messages.-1.content", "json:a.0.b", "json:model:1",
    "header:X-Key", "client", "url", "path",
)  # fmt: skip
_NAMES = (b"x-key", b"X-KEY", b"host", b"content-length", b"transfer-encoding", b"connection",
          b"x-forwarded-for", b"x_forwarded_for", b"forwarded", b"authorization", b"origin")  # fmt: skip
_VALUES = (b"", b"5", b"5, 5", b"1e3", b"+1", b"chunked", b"127.0.0.1", b"::1, 10.0.0.7", b"Bearer secret",
           b"Bearer Secret", b"bearer  secret ", b"close, x-key", b"\xff", b"9" * 23)  # fmt: skip
_CLIENTS = (None, ("127.0.0.1", 1), ("10.0.0.7", 1), ("::1", 1), ("::ffff:127.0.0.1", 1), ("", 0), ("x", 1))
_UPSTREAMS = (
    "http://a:1", "http://b:1", "http://b:1=2", "http://a:1=nan", "http://a:1=1e400", "http://b:99999",
    "https://[::1]:2", "http://[", "http://é" + "x" * 70 + ":1", "http://..:1", "ftp://a", "", "http://a:1?x",
)  # fmt: skip
_WEIGHTS = ("2", "0", "-1", "nan", "inf", "1e400", "1e-320", "x", "1_0", "٣", "")
_SCALARS = ("1", "-1", "0", "1.5", "nan", "inf", "true", '"x"', '"5 MiB"', '"messages"', '"/"', "[]", "{}",
            "[1]", '["/\\n"]', '"/\\n"',
            '["messages", "client"]', "[[]]", '[["a"]]', "1979-05-27", "9" * 30, '"hash"', '"score"',
            '{first = "x"}', "{first = 1}", '{models = ["m"], upstreams = ["http://c:1"]}',
            '{p = {upstreams = ["http://c:1"]}}', '{p = {upstreams = [5]}}', '{p = {upstreams = [[]]}}',
            '{p = {models = [[]], upstreams = []}}', '["10.0.0.0/8"]', '["10.0.0.0/80"]', '["http://a:1"]',
            '["http://a:1", "http://a:1"]')  # fmt: skip
_OPTIONS = [field.name for owner in (RouterConfig, ServerSettings) for field in dataclasses.fields(owner)]
_OPTIONS.append("no_such_option")
_FOLDER = tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
_RING = HashRing(["a", "b", "c"])
_LOOP: list[asyncio.AbstractEventLoop] = []


def one(data: bytes) -> None:
    """Read one input, in the way that its first byte says."""
    given = Provider(data)
    _KINDS[given.below(len(_KINDS))](given)


# --- keys -------------------------------------------------------------------------------------------------


def _rules(given: Provider) -> None:
    """Parse a rule, and use it if it is one."""
    text = given.rest().decode("utf-8", "surrogateescape")
    try:
        rule = KeyRule.parse(text)
    except EvenbinsError as error:
        assert "key" in str(error)
        return
    body = b'{"prompt": ["a"], "a": {"b": 1}}'
    found = KeyRules([text]).key(b"/p", b"q", [(b"x-key", b"v")], "10.0.0.7", body)
    _check_key(found)
    assert rule.needs_body or rule.kind not in ("json", "messages", "prompt")


def _keys(given: Provider) -> None:
    """Ask for the key of a request with any head and body."""
    names = [_RULES[given.below(len(_RULES))] for _ in range(1 + given.below(3))]
    rules = KeyRules(names, block_bytes=1 + given.below(16))
    path, headers = b"/" + given.bytes(given.below(8)), _headers(given)
    body = _value(given, 4) if given.below(2) else given.rest()
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    client = (_CLIENTS[given.below(len(_CLIENTS))] or ("",))[0]
    found = rules.key(path, given.bytes(4), headers, client, data)
    _check_key(found)
    assert found == rules.key(path, b"", headers, client, data) or found.rule == "url"


def _chats(given: Provider) -> None:
    """A chat that goes on begins with the blocks that it had."""
    size = 1 + given.below(24)
    rules = KeyRules(["messages"], block_bytes=size)
    body: dict[str, Any] = {"messages": []}
    if given.below(3) == 0:
        body[("model", "system", "tools")[given.below(3)]] = _value(given, 2)
    before: RequestKey | None = None
    for _ in range(2 + given.below(3)):
        role = ("user", "assistant", "")[given.below(3)]
        content = given.text() if given.below(3) else _value(given, 2)
        more = {"name": "x"} if given.below(8) == 7 else {}
        body["messages"].append({"role": role, "content": content, **more})
        found = rules.key(b"/", b"", [], "", json.dumps(body).encode())
        _check_key(found)
        assert found.rule == "messages"
        if before is not None:
            whole = int(before.work) // size  # a block that was cut off is another one now
            assert found.blocks[:whole] == before.blocks[:whole], "a chat lost its beginning"
            assert found.work > before.work
        before = found


def _check_key(found: RequestKey) -> None:
    assert _RING.node(found.key) in ("a", "b", "c")
    assert len(found.blocks) > 0
    assert all(0 <= block < 2**64 for block in found.blocks)
    assert 0 < found.work < math.inf
    assert found.model is None or found.model.encode() is not None
    router = PrefixRouter(["a", "b"], policy="score")
    router.done(router.route(found.blocks, found.work))


def _value(given: Provider, depth: int) -> Any:
    """Return a value of JSON; of equal names the last one counts."""
    kind = given.below(9 if depth else 6)
    if kind == 0:
        return given.text()
    if kind == 1:
        return given.signed(given.below(9))
    if kind < 6:
        return (None, True, 1.5, "\ud800", "a\0b" * 9)[given.below(5)]
    if kind == 6:
        return [_value(given, depth - 1) for _ in range(given.below(4))]
    names = ("messages", "prompt", "model", "role", "content", "system", "tools", "a", "b", "")
    return {names[given.below(len(names))]: _value(given, depth - 1) for _ in range(given.below(5))}


# --- heads and bodies -------------------------------------------------------------------------------------


def _headers(given: Provider) -> list[tuple[bytes, bytes]]:
    found = []
    for _ in range(given.below(6)):
        name = _NAMES[given.below(len(_NAMES))] if given.below(4) else given.bytes(given.below(12))
        value = _VALUES[given.below(len(_VALUES))] if given.below(4) else given.bytes(given.below(12))
        found.append((name, value))
    return found


def _scope(given: Provider) -> dict[str, Any]:
    return {
        "type": "http", "method": ("POST", "GET", "CONNECT")[given.below(3)], "scheme": "http", "path": "/a",
        "raw_path": (b"/a", b"*", b"")[given.below(3)], "query_string": b"", "headers": _headers(given),
        "http_version": ("1.1", "1.0", "2")[given.below(3)], "client": _CLIENTS[given.below(len(_CLIENTS))],
    }  # fmt: skip


def _heads(given: Provider) -> None:
    """Pass a head on, if it may be."""
    scope, trusted = _scope(given), TrustedProxies(THIS_MACHINE)
    address = client_address(scope, trusted)
    peer = (scope["client"] or ("",))[0]
    assert (peer or "127.0.0.1") in trusted or address == peer
    if request_error(scope) is not None:
        return
    sent = upstream_headers(scope, b"replica", trusted)
    names = [name.lower() for name, _ in sent]
    assert names.count(b"host") == 1
    assert b"transfer-encoding" not in names
    assert b"connection" not in names
    assert names.count(b"x-forwarded-for") <= 1
    assert len({value.strip() for name, value in sent if name.lower() == b"content-length"}) <= 1
    if (peer or "127.0.0.1") not in trusted:
        chain = {value for name, value in sent if name.lower().replace(b"_", b"-") == b"x-forwarded-for"}
        assert chain <= {peer.encode()}, "a stranger's X-Forwarded-For was passed on"


def _bodies(given: Provider) -> None:
    """Receive a body in pieces, with limits, and send it on."""
    scope, most, parsed = _scope(given), given.below(40), given.below(40)
    if request_error(scope) is not None:
        return
    pieces = [given.bytes(given.below(16)) for _ in range(given.below(6))]
    leaves = given.below(6) == 0
    if not _LOOP:
        _LOOP.append(asyncio.new_event_loop())
    _LOOP[0].run_until_complete(_pass_on(scope, pieces, most, parsed, leaves))


async def _pass_on(scope: dict[str, Any], pieces: list[bytes], most: int, parsed: int, leaves: bool) -> None:
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages.append({"type": "http.disconnect"} if leaves else {"type": "http.request", "body": b""})

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    body = RequestBody(scope, receive, 5.0)
    whole = b"".join(pieces)
    exists = body.exists
    try:
        await body.buffer(most)
        known = body.whole(parsed)
        to_send = body.to_send()
        sent = to_send if isinstance(to_send, bytes) else b""
        if to_send is not None and not isinstance(to_send, bytes):
            async for piece in to_send:
                sent += piece
    except ClientGoneError:
        assert leaves
        return
    assert not (leaves and exists), "a body that was cut off was taken for whole"
    assert sent == (whole if exists else b"")
    assert known is None or (known == whole and len(known) <= parsed)
    assert known is not None or not exists or len(whole) > min(most, parsed) or not whole


# --- settings ---------------------------------------------------------------------------------------------


def _settings(given: Provider) -> None:
    """Read a configuration file; the most common upstream is a good one."""
    if given.below(8) == 0:
        text = given.rest()
    else:
        lines = []
        if given.below(4):
            lines.append('upstreams = ["http://a:1"]')
        elif given.below(2):
            names = [_UPSTREAMS[given.below(len(_UPSTREAMS))] for _ in range(1 + given.below(2))]
            lines.append(f"upstreams = {json.dumps(names, ensure_ascii=False)}")
        else:
            lines.append(f"upstreams = {_SCALARS[given.below(len(_SCALARS))]}")
        for _ in range(given.below(4)):
            value = _SCALARS[given.below(len(_SCALARS))] if given.below(8) else given.text()
            lines.append(f"{_OPTIONS[given.below(len(_OPTIONS))]} = {value}")
        if given.below(8) == 0:
            lines.append("x = " + "[" * (2 ** given.below(13)))
        text = "\n".join(lines).encode("utf-8", "replace")
    path = os.path.join(_FOLDER.name, "route.toml")
    with open(path, "wb") as file:
        file.write(text)
    try:
        settings = read_settings(path)
    except ValueError as error:
        assert "route.toml" in str(error), error
        return
    if settings.config.cache_blocks <= 10**6:
        Router(settings.config).status()


# --- changes by requests ----------------------------------------------------------------------------------


def _changes(given: Provider) -> None:
    """Change a router by some requests; it stays whole, and nothing changes without the token."""
    with_token = bool(given.below(4))
    config = RouterConfig(
        ["http://a:1"], policy=("hash", "score")[given.below(2)], admin_token="secret" if with_token else None
    )
    router = Router(config)
    for _ in range(1 + given.below(4)):
        scope = _scope(given)
        if given.below(3):
            scope["headers"] = [(b"authorization", b"Bearer secret")]
        scope["query_string"] = _query(given)
        change, method = CHANGES[given.below(len(CHANGES))], ("POST", "POST", "GET")[given.below(3)]
        before = router.status()["upstreams"]
        status, text = answer_change(router, change, method, scope)
        assert status in (200, 400, 401, 403, 405, 409), status
        assert text.endswith("\n")
        sent = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        trusted = len(sent) == 1 and sent[0].lower().startswith(b"bearer") and b"secret" in sent[0]
        if status == 200:
            assert method == "POST"
            assert trusted or (not with_token and change in ("drain", "undrain"))
            json.loads(text)
        else:
            assert router.status()["upstreams"] == before, "a change that was refused changed something"
        for pool in router.pools.values():  # whole: what serves can be connected to
            assert set(pool.connections) == set(pool.ring.names)
            assert pool.prefix is None or set(pool.prefix.names) == set(pool.ring.names)


def _query(given: Provider) -> bytes:
    parts = []
    for _ in range(given.below(4)):
        name = ("upstream", "upstream", "weight", "pool", "x")[given.below(5)]
        values = _WEIGHTS if name == "weight" else ("default", "x", "") if name == "pool" else _UPSTREAMS
        value = values[given.below(len(values))] if given.below(6) else given.text()
        parts.append(f"{name}={value}")
    return "&".join(parts).encode("utf-8", "replace")


_KINDS: tuple[Callable[[Provider], None], ...] = (
    _rules, _keys, _chats, _heads, _bodies, _settings, _changes,
)  # fmt: skip

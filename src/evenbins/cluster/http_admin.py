"""Replicas changed at run time, by requests to a router.

    POST /-/add?upstream=URL[&weight=2][&pool=NAME]     POST /-/drain?upstream=URL
    POST /-/remove?upstream=URL                         POST /-/undrain?upstream=URL
    POST /-/weight?upstream=URL&weight=2

With `admin_token` each needs the header `Authorization: Bearer TOKEN`. Without one only drain and undrain are
possible, for programs on this machine: not for web pages, and not through a proxy. Requests under way are
never touched. Changes last until the process ends or reads its configuration file again; drains, until they
are ended.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from evenbins.cluster.http_headers import THIS_MACHINE, Scope, TrustedProxies, is_forwarding
from evenbins.cluster.http_upstreams import check_url

if TYPE_CHECKING:
    from evenbins.cluster.http import Router

__all__ = ["CHANGES", "answer_change", "apply_change"]

CHANGES = ("add", "remove", "weight", "drain", "undrain")
_LOCAL = ("drain", "undrain")  # without a token, too
_LOOPBACK = TrustedProxies(THIS_MACHINE)


def answer_change(router: Router, change: str, method: str, scope: Scope) -> tuple[int, str]:
    """Make a change, if whoever asks may; return the status and text of the answer."""
    if method != "POST":
        return 405, "use POST\n"
    refused = _refusal(router.config.admin_token, change, scope)
    if refused is not None:
        return refused
    query = parse_qs(scope["query_string"].decode("ascii", "replace"))
    parameters = {name: values[0] for name, values in query.items() if len(values) == 1}
    if len(parameters) != len(query) or "upstream" not in parameters:
        return 400, f"name one upstream, as /-/status writes it: /-/{change}?upstream=URL\n"
    status, text = apply_change(router, change, parameters)
    if status == 200 and router.on_change is not None:
        router.on_change(change, parameters)
    return status, text


def _refusal(token: str | None, change: str, scope: Scope) -> tuple[int, str] | None:
    if token is not None:
        sent = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        scheme, _, credentials = (sent[0] if len(sent) == 1 else b"").partition(b" ")
        equal = hmac.compare_digest(credentials.strip(), token.encode())  # in constant time
        if not equal or scheme.lower() != b"bearer":
            return 401, "send the header Authorization: Bearer TOKEN\n"
        return None
    names = [name.lower() for name, _ in scope["headers"]]
    client = scope.get("client")  # none: a Unix socket
    local = not client or client[0] in _LOOPBACK
    if not local or b"origin" in names or any(map(is_forwarding, names)):
        return 403, "only programs on this machine may do that\n"
    if change not in _LOCAL:
        return 403, "that needs a token: start the router with --admin-token-file\n"
    return None


def apply_change(router: Router, change: str, parameters: Mapping[str, str]) -> tuple[int, str]:
    """Make a change; return the status and text of the answer.

    >>> from evenbins.cluster.http import Router, RouterConfig
    >>> router = Router(RouterConfig(["http://a:1"]))
    >>> apply_change(router, "add", {"upstream": "http://b:1", "weight": "2"})
    (200, '{"http://b:1": {"state": "up", "weight": 2.0, "in_flight": 0}}\\n')
    >>> apply_change(router, "remove", {"upstream": "http://c:1"})[0]
    400
    """
    name = parameters["upstream"]
    known = router.status()["upstreams"]
    if change == "add":
        status, text = _add(router, name, parameters, known)
    elif name not in known:
        status, text = 400, "there is no such upstream: name one as /-/status writes it\n"
    elif change == "remove":
        pool = router.pool_with(name)
        if len(pool.connections) == 1:
            return 409, "this is the last upstream of its pool: add another one first, or drain it\n"
        pool.remove(name)
        return 200, json.dumps({name: {"state": "removed", "in_flight": pool.in_flight[name]}}) + "\n"
    elif change == "weight":
        status, text = _set_weight(router, name, parameters)
    else:
        (router.drain if change == "drain" else router.undrain)(name)
        status, text = 200, ""
    if status != 200:
        return status, text
    each = router.status()["upstreams"][name]
    return 200, json.dumps({name: {part: each[part] for part in ("state", "weight", "in_flight")}}) + "\n"


def _add(
    router: Router, name: str, parameters: Mapping[str, str], known: Mapping[str, object]
) -> tuple[int, str]:
    pool = router.pools.get(parameters["pool"]) if "pool" in parameters else next(iter(router.pools.values()))
    if pool is None:
        return 400, f"there is no such pool: there are {', '.join(router.pools)}\n"
    if name in known:
        return 409, "this upstream is there: use /-/weight or /-/undrain\n"
    try:
        pool.add(check_url(name), float(parameters.get("weight", "1")))
    except ValueError as error:
        return 400, f"{error}\n"
    except MemoryError as error:
        return 503, f"{error}\n"
    return 200, ""


def _set_weight(router: Router, name: str, parameters: Mapping[str, str]) -> tuple[int, str]:
    try:
        weight = float(parameters["weight"])
    except (KeyError, ValueError):
        return 400, "the weight must be a positive number: /-/weight?upstream=URL&weight=2\n"
    try:
        router.pool_with(name).set_weight(name, weight)
    except ValueError as error:
        return 400, f"{error}\n"
    return 200, ""

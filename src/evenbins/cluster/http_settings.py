"""The configuration file of `evenbins route`: TOML, with the names of the command line's options.

    host = "0.0.0.0"                             # port, grace, workers, access_log, …
    upstreams = ["http://10.0.0.1:8000", "http://10.0.0.2:8000=2.5"]
    key = ["messages", "prompt", "header:X-User", "client"]
    policy = "score"

    [pools.large]                                # replicas for some models
    models = ["llama-3-70b"]
    upstreams = ["http://10.0.1.1:8000"]

    [backoff]                                    # of probes: first, factor, most, jitter
    most = 5.0

Options of the command line count more than those of the file. Every error names the file and the line of the
key, where there is one.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenbins import _arguments as arguments
from evenbins._numbers import parse_size
from evenbins.cluster.health import Backoff
from evenbins.cluster.http_config import PoolConfig, RouterConfig
from evenbins.errors import ArgumentError, ArgumentTypeError

__all__ = ["TOKEN_VARIABLE", "ServerSettings", "Settings", "read_settings", "settings_from"]

TOKEN_VARIABLE = "EVENBINS_ADMIN_TOKEN"

_SIZES = ("max_body", "body_buffer", "block_bytes")
_NOT_IN_FILES = ("loads", "on_admission", "weights", "access_log", "admin_token")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What the process does, beside its router; a change needs a restart.

    Parameters
    ----------
    host, port
        Where to listen: this machine only, by default.
    grace
        Seconds for requests under way at the end; those that take longer are cut off.
    workers
        Processes that share the port and their loads.
    access_log
        Write a line for each request to standard error.
    shared_loads, shared_name
        The URL of a Redis server by which routers of that name share their loads.
    admin_token_file
        A file whose content programs must send to change replicas; the environment variable
        EVENBINS_ADMIN_TOKEN does the same.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    grace: float = 60.0
    workers: int = 1
    access_log: bool = False
    shared_loads: str | None = None
    shared_name: str = "route"
    admin_token_file: str | None = None

    def __post_init__(self) -> None:
        for name in ("host", "shared_loads", "shared_name", "admin_token_file"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise arguments.type_error(name, "a str", value, "Leave it out")
        arguments.integer("port", self.port, 0, 65535, "Leave it out for 8080")
        arguments.integer("workers", self.workers, 1, 256, "Leave it out for 1")
        rule = "a number of seconds, 0 or more"
        arguments.real("grace", self.grace, rule, "Leave it out for 60", least=0.0, below=1e9)
        arguments.flag("access_log", self.access_log)


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """A whole configuration."""

    config: RouterConfig
    server: ServerSettings


_SERVER = {field.name for field in dataclasses.fields(ServerSettings)}
_ROUTER = {field.name for field in dataclasses.fields(RouterConfig)} - set(_NOT_IN_FILES)


def read_settings(path: str | Path, given: Mapping[str, Any] | None = None) -> Settings:
    """Read a file; `given` are options that count more than those in it.

    Raises
    ------
    ValueError
        It is not TOML, or an option is wrong.
    OSError
        It cannot be read.
    """
    data = Path(path).read_bytes()
    try:
        text = data.decode()
        options = tomllib.loads(text)
    except ValueError as error:  # UnicodeDecodeError and TOMLDecodeError, which names the line
        raise ValueError(f"{path}: {error}") from None
    except RecursionError:
        raise ValueError(f"{path}: its values nest too deep: no option has more than two levels") from None
    unknown = next((name for name in options if name not in _SERVER | _ROUTER), None)
    if unknown is not None:
        near = difflib.get_close_matches(unknown, _SERVER | _ROUTER, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{_place(path, text, unknown)}: there is no option {unknown}{hint}")
    try:
        return settings_from(options | dict(given or {}))
    except (ArgumentError, ArgumentTypeError) as error:
        raise ValueError(f"{_place(path, text, error.name)}: {error}") from None


def settings_from(options: Mapping[str, Any]) -> Settings:
    """Return the configuration of options by name; upstreams are texts URL[=WEIGHT].

    >>> settings = settings_from({"upstreams": ["http://a:1", "http://b:1=2.5"], "port": 80})
    >>> settings.config.weights, settings.server.port
    ({'http://a:1': 1.0, 'http://b:1': 2.5}, 80)
    """
    server = ServerSettings(**{name: value for name, value in options.items() if name in _SERVER})
    router = {name: value for name, value in options.items() if name in _ROUTER}
    weights: dict[str, float] = {}
    router["upstreams"] = _split(router.get("upstreams", ()), weights)
    router["pools"] = _pools(router.get("pools", {}), weights)
    if (backoff := router.get("backoff")) is not None:
        if not isinstance(backoff, dict):
            raise arguments.type_error("backoff", "a table", backoff, "Write [backoff]")
        unknown = set(backoff) - {field.name for field in dataclasses.fields(Backoff)}
        if unknown:
            raise arguments.unmet("backoff", f" has first, factor, most and jitter; got {min(unknown)!r}")
        router["backoff"] = Backoff(**backoff)
    for name in _SIZES:
        if isinstance(router.get(name), str):
            try:
                router[name] = parse_size(router[name])
            except ValueError as error:
                raise arguments.unmet(name, f": {error}") from None
    config = RouterConfig(weights=weights, admin_token=_token(server.admin_token_file), **router)
    if server.workers > 1 and config.policy != "hash":
        rule = f" must be 1 with policy {config.policy!r}; got {server.workers}"
        raise arguments.unmet("workers", f"{rule}: each worker would know only its own prefixes; use 'hash'")
    return Settings(config, server)


def _split(upstreams: object, weights: dict[str, float]) -> list[str]:
    """Return the URLs of texts URL[=WEIGHT]; the weights are added to `weights`."""
    if isinstance(upstreams, str) or not isinstance(upstreams, list | tuple):
        raise arguments.type_error("upstreams", "several URLs", upstreams, "Pass a list of them")
    names = []
    for text in upstreams:
        if not isinstance(text, str):
            raise arguments.type_error("upstreams", "URLs", text, "Pass a list of str")
        name, _, weight = text.rpartition("=") if "=" in text else (text, "", "1")
        try:
            number = float(weight)
        except ValueError:
            number = math.nan
        if not 0 < number < math.inf:
            raise arguments.unmet("upstreams", f": {weight} is no positive weight such as 2.5, in {text}")
        if name.rstrip("/") in (each.rstrip("/") for each in weights):
            raise arguments.unmet("upstreams", f": {name} is given twice: give it a weight, as in {name}=2")
        weights[name] = number
        names.append(name)
    return names


def _pools(pools: object, weights: dict[str, float]) -> dict[str, PoolConfig]:
    if not isinstance(pools, dict):
        raise arguments.type_error("pools", "a table of tables", pools, "Write [pools.NAME]")
    found = {}
    for name, each in pools.items():
        if not isinstance(each, dict) or set(each) - {"models", "upstreams"} or "upstreams" not in each:
            raise arguments.error("pools", "tables with models and upstreams", each, f"Look at pools.{name}")
        try:
            found[name] = PoolConfig(each.get("models", [name]), _split(each["upstreams"], weights))
        except (ArgumentError, ArgumentTypeError) as error:
            raise arguments.unmet("pools", f".{name}: {error}") from None
    if "default" in found:
        raise arguments.unmet("pools", ".default is the pool of `upstreams`: choose another name")
    return found


def _token(path: str | None) -> str | None:
    if path is None:
        return os.environ.get(TOKEN_VARIABLE)
    try:
        return Path(path).read_text().strip()
    except (OSError, ValueError) as error:
        raise arguments.unmet("admin_token_file", f" cannot be read: {error}") from None


def _place(path: str | Path, text: str, name: str) -> str:
    """Return where a key stands in a file: "FILE, line N", or the file."""
    pattern = re.compile(rf"\s*(\[+\s*)?[\"']?{re.escape(name)}[\"']?\s*[=.\]]")
    lines = (number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line))
    number = next(lines, None)
    return f"{path}, line {number}" if number is not None else str(path)

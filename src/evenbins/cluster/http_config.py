"""What a router does, by the names of its options: checked when it is made, never changed after that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from evenbins import _arguments as arguments
from evenbins._bulk import Key
from evenbins.cluster.health import Backoff
from evenbins.cluster.http_headers import THIS_MACHINE, TrustedProxies
from evenbins.cluster.http_keys import KeyRule
from evenbins.cluster.http_upstreams import check_url
from evenbins.rings.config import checked_names, checked_weights, ring_config

if TYPE_CHECKING:
    from evenbins.cluster.shared_loads import AsyncRedisLoads

__all__ = ["RouterConfig"]


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """What a `Router` does: `Router(RouterConfig(upstreams, key=…))`.

    Parameters
    ----------
    upstreams
        URLs of replicas, such as "http://127.0.0.1:8001"; a path in them is put before the request's.
    key
        What of a request is its key: "path", "url", "header:NAME" or "json:FIELD[:CHARS]" (see `http_keys`).
    epsilon, limit, weights, seed
        The bound of requests in flight at each replica, as for `HashRing`; epsilon 0.25 if neither is given.
    wait
        Seconds that a request may wait for room before it is refused with 503.
    health_path
        Asked by GET every `health_interval` seconds; an answer of 400 or above is a failure. None: only
        failed requests mark a replica down, and a connection marks it up.
    health_interval, health_timeout
        Seconds.
    failures
        Failures in a row, of connects or of checks, after which a replica is down. A connection that
        breaks later is not counted.
    backoff
        Delays between probes of a replica that is down.
    retries
        How often one request is repeated at other replicas, at most; once, if it was sent.
    connect_timeout
        Seconds for a connection to a replica.
    read_timeout
        Seconds between two pieces of an answer, for a client to send 16 KiB of its body (or the rest of it),
        and for a client to read what it was sent.
    total_timeout
        Seconds for the whole exchange (None: any).
    max_body
        The most bytes of a body that must be read for its key.
    body_buffer
        So many bytes of a body are received before its request takes a place at a replica; a longer body is
        then passed on in pieces. A connection needs so much memory at most. 0: as soon as a byte has come.
    trusted_proxies
        Addresses and networks of proxies whose X-Forwarded-* headers are kept; from others they are replaced.
        By default this machine.
    keep_host
        Send the client's Host header on, instead of the replica's name.
    loads
        Counts shared by several routers: an `AsyncRedisLoads`. While Redis does not answer, this router
        counts its own.
    on_admission
        Called with (key, upstream) after each admission, before the request is sent.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        An option is outside its range or of the wrong type.

    Examples
    --------
    >>> config = RouterConfig(["http://127.0.0.1:8001"], key="json:prompt:256")
    >>> config.upstreams, config.retries
    (('http://127.0.0.1:8001',), 2)
    >>> RouterConfig(["http://127.0.0.1:8001"], retries=-1)
    Traceback (most recent call last):
        ...
    evenbins.errors.ArgumentError: retries must be an integer from 0 to 100; got -1 (int). Leave it out for 2
    """

    upstreams: Iterable[str]
    _: KW_ONLY
    key: str = "path"
    epsilon: float | None = None
    limit: int | None = None
    weights: Mapping[str, float] | None = None
    seed: int = field(default=0, repr=False)  # it may be a secret
    wait: float = 0.0
    health_path: str | None = None
    health_interval: float = 5.0
    health_timeout: float = 2.0
    failures: int = 2
    backoff: Backoff | None = None
    retries: int = 2
    connect_timeout: float = 2.0
    read_timeout: float = 60.0
    total_timeout: float | None = None
    max_body: int = 2**20
    body_buffer: int = 2**20
    trusted_proxies: Iterable[str] = THIS_MACHINE
    keep_host: bool = False
    loads: AsyncRedisLoads | None = None
    on_admission: Callable[[Key, str], object] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.upstreams, str) or not isinstance(self.upstreams, Iterable):
            raise arguments.type_error("upstreams", "several URLs", self.upstreams, "Pass a list of them")
        names = checked_names([check_url(each) for each in self.upstreams])
        if not names:
            raise arguments.unmet("upstreams", " must name at least one replica; got none")
        object.__setattr__(self, "upstreams", tuple(names))
        weights = checked_weights(self.weights, names).values()
        ring_config(weights, "jump", self.epsilon, self.limit, 1, self.seed)
        KeyRule.parse(self.key)
        object.__setattr__(self, "trusted_proxies", tuple(TrustedProxies(self.trusted_proxies).names))
        if self.health_path is not None and not self.health_path.startswith("/"):
            raise arguments.unmet("health_path", f" must begin with '/'; got {self.health_path!r}")
        for name in ("health_interval", "health_timeout", "connect_timeout", "read_timeout", "total_timeout"):
            if getattr(self, name) is not None or name != "total_timeout":
                rule = "a number of seconds above 0"
                arguments.real(name, getattr(self, name), rule, "Leave it out", above=0.0, below=1e9)
        rule = "a number of seconds, 0 or more"
        arguments.real("wait", self.wait, rule, "Leave it out", least=0.0, below=1e9)
        arguments.integer("failures", self.failures, 1, 1000, "Leave it out for 2")
        arguments.integer("retries", self.retries, 0, 100, "Leave it out for 2")
        for name in ("max_body", "body_buffer"):
            arguments.integer(name, getattr(self, name), 0, 2**40, "Pass bytes, such as 2**20")

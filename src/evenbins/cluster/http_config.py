"""What a router does, by the names of its options: checked when it is made, never changed after that."""

from __future__ import annotations

import re
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
    from evenbins.cluster.http_workers import WorkerLoads
    from evenbins.cluster.shared_loads import AsyncRedisLoads

__all__ = ["PoolConfig", "RouterConfig"]


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """The replicas of some models.

    Parameters
    ----------
    models
        Their names, as they come in the field "model" of bodies.
    upstreams
        URLs of the replicas.
    """

    models: Iterable[str]
    upstreams: Iterable[str]

    def __post_init__(self) -> None:
        for name in ("models", "upstreams"):
            values = getattr(self, name)
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise arguments.type_error(name, "several of them", values, "Pass a list")
            values = tuple(values)
            if not values or not all(isinstance(each, str) for each in values):
                raise arguments.error(name, "a list of at least one str", values, "Name one")
            object.__setattr__(self, name, values)


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """What a `Router` does: `Router(RouterConfig(upstreams, key=…))`.

    Parameters
    ----------
    upstreams
        URLs of replicas, such as "http://127.0.0.1:8001"; a path in them is put before the request's.
    key
        What of a request is its key: "path", "messages", "header:NAME", … (see `http_keys`), or several rules
        of which the first that applies is used.
    policy
        "hash": a key's replica on a ring. "prefix", "score": those of `evenbins.routing.PrefixRouter`.
    block_bytes, hash_blocks, cache_blocks, load
        Bytes of a prompt in a block (for token ids a quarter of it); first blocks that make a ring's key;
        blocks that a replica's cache holds; "work" or "requests", as for `PrefixRouter`.
    pools
        Replicas for models: {name: PoolConfig(models, upstreams)}. Other models go to `upstreams`.
    epsilon, limit, weights, seed
        The bound of requests in flight at each replica, as for `HashRing`; epsilon 0.25 if neither is given.
    wait, queue
        Seconds that a request may wait for room before it is refused with 503, and how many may wait (429).
    breaker_failures, breaker_window, breaker_pause
        Failures within a window of seconds that open a replica's breaker, for a pause (see `http_breaker`).
    retry_unanswered
        Repeat any request whose connection broke before an answer began, if its body is still in memory.
    response_headers
        Add the replica, depth and reason to answers: X-Evenbins-Upstream, -Depth, -Reason.
    access_log
        Called with a line for each request.
    admin_token
        What programs must send to change replicas at run time (see `http_pages`).
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
        The most bytes of a body that are parsed for its key: a longer one has the key of another rule.
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
    key: str | Iterable[str] = "path"
    policy: str = "hash"
    block_bytes: int = 1024
    hash_blocks: int = 2
    cache_blocks: int = 16_384
    load: str = "work"
    pools: Mapping[str, PoolConfig] = field(default_factory=dict)
    epsilon: float | None = None
    limit: int | None = None
    weights: Mapping[str, float] | None = None
    seed: int = field(default=0, repr=False)  # it may be a secret
    wait: float = 0.0
    queue: int = 1000
    breaker_failures: int | None = None
    breaker_window: float = 10.0
    breaker_pause: float = 5.0
    retry_unanswered: bool = False
    response_headers: bool = False
    access_log: Callable[[str], object] | None = None
    admin_token: str | None = field(default=None, repr=False)
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
    loads: AsyncRedisLoads | WorkerLoads | None = None
    on_admission: Callable[[Key, str], object] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.upstreams, str) or not isinstance(self.upstreams, Iterable):
            raise arguments.type_error("upstreams", "several URLs", self.upstreams, "Pass a list of them")
        object.__setattr__(self, "upstreams", tuple(self.upstreams))
        pools = {} if self.pools is None else dict(self.pools)
        names = list(self.upstreams)
        for each in pools.values():
            names += each.upstreams
        names = checked_names([check_url(each) for each in names])
        if not names:
            raise arguments.unmet("upstreams", " must name at least one replica; got none")
        object.__setattr__(self, "pools", pools)
        weights = checked_weights(self.weights, names).values()
        ring_config(weights, "jump", self.epsilon, self.limit, 1, self.seed)
        if not isinstance(self.key, Iterable):
            raise arguments.type_error("key", "one rule or several", self.key, "Leave it out for path")
        object.__setattr__(self, "key", (self.key,) if isinstance(self.key, str) else tuple(self.key))
        for rule in self.key:
            KeyRule.parse(rule)
        object.__setattr__(self, "trusted_proxies", tuple(TrustedProxies(self.trusted_proxies).names))
        if self.health_path is not None and not re.fullmatch("/[!-~]*", str(self.health_path)):
            raise arguments.unmet("health_path", f" must begin with '/', no spaces; got {self.health_path!r}")
        self._check_choices()
        self._check_numbers()

    def _check_choices(self) -> None:
        arguments.one_of("policy", self.policy, ("hash", "prefix", "score"), "Leave it out for 'hash'")
        arguments.one_of("load", self.load, ("work", "requests"), "Leave it out for 'work'")
        if self.policy != "hash" and self.loads is not None:
            raise arguments.unmet("loads", f" can be shared with policy 'hash' only; got {self.policy!r}")
        served: set[str] = set()
        for name, pool in self.pools.items():
            for model in pool.models:
                if model in served:
                    raise arguments.unmet(
                        "pools", f" must name each model once; {model!r} is in {name!r} too"
                    )
                served.add(model)
        if self.admin_token is not None and not self.admin_token.strip():
            raise arguments.unmet("admin_token", " must not be empty")
        for name in ("keep_host", "retry_unanswered", "response_headers"):
            arguments.flag(name, getattr(self, name))

    def _check_numbers(self) -> None:
        rule = "a number of seconds above 0"
        for name in ("health_interval", "health_timeout", "connect_timeout", "read_timeout", "total_timeout",
                     "breaker_window", "breaker_pause"):  # fmt: skip
            if getattr(self, name) is not None or name != "total_timeout":
                arguments.real(name, getattr(self, name), rule, "Leave it out", above=0.0, below=1e9)
        rule = "a number of seconds, 0 or more"
        arguments.real("wait", self.wait, rule, "Leave it out", least=0.0, below=1e9)
        arguments.integer("failures", self.failures, 1, 1000, "Leave it out for 2")
        arguments.integer("retries", self.retries, 0, 100, "Leave it out for 2")
        arguments.integer("queue", self.queue, 0, 2**40, "Leave it out for 1000")
        if self.breaker_failures is not None:
            arguments.integer("breaker_failures", self.breaker_failures, 1, 10**6, "Leave it out for none")
        for name in ("block_bytes", "hash_blocks", "cache_blocks"):
            arguments.integer(name, getattr(self, name), 1, 2**40, "Leave it out")
        for name in ("max_body", "body_buffer"):
            arguments.integer(name, getattr(self, name), 0, 2**40, "Pass bytes, such as 2**20")

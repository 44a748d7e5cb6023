"""A filter that many processes share through Redis or Valkey: the same bits as the local one, on servers.

    RedisFilter.create(client, name, plan)      plan: any filter's .plan
    RedisFilter.open(client, name)              from any process; errors if anything of it is missing
    f.add(key); key in f; f.add_many(keys); f.contains_many(keys)
    f.add_new(key); f.add_new_many(keys)        was it new? True for exactly one of all clients
    f.to_local(); RedisFilter.from_local(client, name, filter)      byte for byte

The kanizo paper's second reading (section 1): a block is a network access. A standard filter of 24 bits per
key has 17 bits to ask for, a balanced one about 1.2 blocks for a present key.

How it lies on the servers: `_segments`. What a server does in one step: `_scripts`. What is asked in which
order: `_one_key`, `_many_keys`, `_new_keys`, `_whole_filter`. Connections: `_redis_servers`. Here: the two
classes around them, made of the same steps (see `_steps`), and their counts of requests.

`client` is a redis.Redis, a redis.RedisCluster, or a list of redis.Redis for several independent servers;
AsyncRedisFilter takes those of redis.asyncio. Timeouts and retries are the client's: set socket_timeout.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from evenbins import _bulk, _core, _show
from evenbins._bulk import Key
from evenbins.cluster import _many_keys, _one_key, _whole_filter
from evenbins.cluster._new_keys import AddNew
from evenbins.cluster._redis_servers import (
    AsyncServers,
    Servers,
    check_eviction,
    check_roles,
    raise_errors,
    with_scripts,
)
from evenbins.cluster._requests import Operation
from evenbins.cluster._segments import SEGMENT_BYTES, Layout, check_name, check_plan
from evenbins.cluster._steps import (
    Closing,
    Steps,
    awaitable,
    awaitable_maker,
    blocking,
    blocking_maker,
    run,
    run_async,
)
from evenbins.cluster.redis_errors import PlanMismatchError
from evenbins.cluster.redis_plan import Counts, RedisPlan, RedisStats, plan_of_layout
from evenbins.filters import FilterPlan
from evenbins.filters.base import BaseFilter

__all__ = ["AsyncRedisFilter", "RedisFilter"]

T = TypeVar("T")
_EVICTION = ("CONFIG", "GET", "maxmemory*")


class _Shared(AddNew):
    """The rules, for both filters: steps that yield what the connections return."""

    _connections: ClassVar[type[Servers | AsyncServers]]

    def __init__(self, servers: Any, layout: Layout, counts: Counts) -> None:
        self._servers = servers
        self._layout = layout
        self._counts = counts
        self._plan: RedisPlan | None = None

    @property
    def name(self) -> str:
        """The name on the servers."""
        return self._layout.name

    @property
    def plan(self) -> RedisPlan:
        """How the filter lies on the servers, and the round trips to expect; `plan.filter` is its own."""
        if self._plan is None:
            self._plan = plan_of_layout(self._layout)
        return self._plan

    @property
    def seed(self) -> int:
        """The seed of the digests."""
        return self._layout.plan.seed

    @property
    def nbytes(self) -> int:
        """Bytes of the segments on the servers."""
        return self.plan.nbytes

    def stats(self) -> RedisStats:
        """Return the round trips that this client counted. What the filter holds: `to_local().stats()`."""
        return self._counts.stats()

    def __repr__(self) -> str:
        plan = self._layout.plan
        rows: list[tuple[str, object]] = [
            ("name", self.name), ("policy", plan.policy), ("capacity", plan.keys), ("fpr", plan.fpr),
            ("segments", self._layout.segments), ("servers", self._layout.servers),
        ]  # fmt: skip
        return _show.line(type(self).__name__, rows)

    @classmethod
    def _create(
        cls,
        client: Any,
        name: str,
        plan: FilterPlan,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        allow_eviction: bool = False,
        traverse_on: str = "client",
    ) -> Steps[Self]:
        """Create an empty filter.

        Parameters
        ----------
        client
            A redis.Redis, a redis.RedisCluster, or a list of redis.Redis: independent servers, whose order
            matters.
        name
            Its name on the servers: no braces, no spaces.
        plan
            What to build: `f.plan` of a local filter, or `plan_balanced(…)` and its like. Policies
            "standard", "blocked", "single", "multilevel", "fill", "two-choice".
        segment_bytes
            Bytes of blocks in one string value; a multiple of 64.
        allow_eviction
            Accept a server that evicts keys without an expiry when its memory is full.
        traverse_on
            Which side follows a key from block to block: "client", one request per block, on any number of
            servers; "server", one request for all of a key's blocks, on a single server. Each client chooses
            for itself.

        Raises
        ------
        RedisFilterError
            There is a filter of this name already, or the server may evict it, is a replica, or refused a
            command.
        """
        servers = cls._connect(client, traverse_on)
        layout = Layout(name, plan, segment_bytes, servers.count, traverse_on=traverse_on)
        yield from _check_servers(servers, allow_eviction)
        return (yield from cls._write(servers, layout, _whole_filter.create(layout)))

    @classmethod
    def _from_local(
        cls,
        client: Any,
        name: str,
        filter: BaseFilter,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        allow_eviction: bool = False,
        traverse_on: str = "client",
    ) -> Steps[Self]:
        """Create a filter with the contents of a local one; parameters and errors as for `create`."""
        servers = cls._connect(client, traverse_on)
        layout, blocks, listed = _local_layout(name, filter, segment_bytes, servers.count, traverse_on)
        yield from _check_servers(servers, allow_eviction)
        return (yield from cls._write(servers, layout, _whole_filter.create(layout, blocks, listed)))

    @classmethod
    def _open(
        cls,
        client: Any,
        name: str,
        *,
        plan: FilterPlan | None = None,
        allow_eviction: bool = False,
        traverse_on: str = "client",
    ) -> Steps[Self]:
        """Open a filter that exists, and check all its parts.

        Parameters
        ----------
        client, name, allow_eviction, traverse_on
            As for `create`.
        plan
            The plan it must have; by default any plan is accepted.

        Raises
        ------
        FilterMissingError
            The filter does not exist, or a part of it is missing.
        FilterDamagedError
            Something else lies under one of its keys.
        PlanMismatchError
            It has another plan, or lies on other servers.
        RedisFilterError
            The server may evict it, or is a replica, which lags behind.
        """
        servers, counts = cls._connections(client), Counts()
        yield from _check_servers(servers, allow_eviction)
        opening = _whole_filter.open_(check_name(name), servers.count)
        servers.check_traverse_on(traverse_on)
        layout, _ = yield from _exchange(servers, name, opening, counts)
        opened = cls(servers, replace(layout, traverse_on=traverse_on), counts)
        opened._check_plan(plan)
        return opened

    @classmethod
    def _delete(cls, client: Any, name: str) -> Steps[bool]:
        servers = cls._connections(client)
        deleting = _whole_filter.delete(check_name(name), servers.count)
        deleted, _ = yield from _exchange(servers, name, deleting, Counts())
        return deleted

    @classmethod
    def _connect(cls, client: Any, traverse_on: str) -> Servers | AsyncServers:
        servers = cls._connections(client)
        servers.check_traverse_on(traverse_on)
        return servers

    @classmethod
    def _write(cls, servers: Servers | AsyncServers, layout: Layout, making: Operation[None]) -> Steps[Self]:
        made = cls(servers, layout, Counts())
        yield from made._ask(making)
        return made

    def _add(self, key: Key) -> Steps[None]:
        """Add one key. When this returns, the server has acknowledged it."""
        _, used = yield from self._ask(_one_key.add_one(self._layout, _core.digest(key, self.seed)))
        self._counts.add("added", 1, used)

    def _contains(self, key: Key) -> Steps[bool]:
        """Return whether a key may be in the filter: never False for one that was added."""
        asking = _one_key.contains_one(self._layout, _core.digest(key, self.seed))
        found, used = yield from self._ask(asking)
        self._counts.add("found" if found else "absent", 1, used)
        return found

    def _update(self, *keys: object) -> Steps[None]:
        """Add the keys of each argument, as `set.update` does; see `add_many`."""
        for each in keys:
            yield from self._add_many(each)

    def _add_many(self, keys: object, *, digests: bool = False, threads: int | None = None) -> Steps[None]:
        """Add many keys: what a local filter's `add_many` takes; one request per segment, not per key.

        Keys are read and added in batches of 131,072, so `keys` may be an endless iterator. After an error of
        a key or of the iterator, the keys before it have been added. After an error of a server a note of the
        error says how many have; of the batch that failed some may have been, too: it may be repeated.
        `threads` is the most threads that hash the keys (None: as many as pay off).
        """
        chunks, _ = self._chunks(keys, digests, threads, "added")
        added = 0
        for chunk in chunks:
            with _progress(added, len(chunk)):
                _, used = yield from self._ask(_many_keys.add_many(self._layout, chunk))
            self._counts.add("bulk", len(chunk), used)
            added += len(chunk)

    def _contains_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> Steps[npt.NDArray[np.bool_]]:
        """Answer `key in self` for many keys: an array of bool, in the shape of a NumPy array of keys."""
        chunks, shape = self._chunks(keys, digests, threads, "looked up")
        answers = [np.empty(0, np.bool_)]
        for chunk in chunks:
            found, used = yield from self._ask(_many_keys.contains_many(self._layout, chunk))
            answers.append(found)
            self._counts.add("bulk", len(chunk), used)
        joined = np.concatenate(answers)
        return joined if shape is None else joined.reshape(shape)

    def _chunks(
        self, keys: object, digests: bool, threads: int | None, verb: str
    ) -> tuple[Iterator[npt.NDArray[np.uint64]], tuple[int, ...] | None]:
        """Return the digests, batch by batch, and the shape that answers should have."""
        limit = _bulk.checked_threads(threads)
        source, shape = _bulk.key_source(keys, digests=digests)
        size = _many_keys.BATCH
        return _bulk.digest_chunks(source, self.seed, verb=verb, chunk=size, threads=limit), shape

    def _to_local(self) -> Steps[BaseFilter]:
        """Fetch the filter as a local one: equal to what the same adds would have made here.

        While others add, it holds all keys acknowledged before the call, and some of the others.
        """
        local, _ = yield from self._ask(_whole_filter.export(self._layout))
        return local

    def _verify(self) -> Steps[None]:
        """Check the description and every part, as `open` does.

        Raises the same errors, and FilterDamagedError if the name has another filter's description by now.
        """
        check_roles((yield self._servers.everywhere("ROLE")))
        yield from self._ask(_whole_filter.verify(self._layout))

    def _ask(self, operation: Operation[T], *, once: bool = False) -> Steps[tuple[T, int]]:
        return _exchange(self._servers, self.name, operation, self._counts, once)

    def _check_plan(self, plan: FilterPlan | None) -> None:
        if plan is not None and check_plan(plan) != self._layout.plan:
            ours = self._layout.plan
            raise PlanMismatchError(
                f"filter {self.name!r} has policy {ours.policy!r}, core {ours.core}; got a plan of policy "
                f"{plan.policy!r}, core {plan.core}{'' if plan.seed == ours.seed else ', and another seed'}. "
                "Leave the plan out to take the filter as it is"
            )


def _local_layout(
    name: str, filter_: object, segment_bytes: int, servers: int, traverse_on: str
) -> tuple[Layout, list[memoryview], list[int]]:
    """Take a local filter apart."""
    if not isinstance(filter_, BaseFilter):
        raise TypeError(
            "filter must be a BloomFilter, BlockedBloomFilter or BalancedBloomFilter, "
            f"not {type(filter_).__name__}"
        )
    layout = Layout(name, check_plan(filter_.plan), segment_bytes, servers)
    blocks, listed, base = layout.take_apart(memoryview(filter_))
    layout = Layout(name, filter_.plan, segment_bytes, servers, layout.epoch, base, traverse_on)
    return layout, blocks, listed


def _exchange(
    servers: Servers | AsyncServers,
    name: str,
    operation: Operation[T],
    counts: Counts,
    once: bool = False,
) -> Steps[tuple[T, int]]:
    """Run an operation: send what it asks for until it returns; its result, and the requests it took.

    An operation that asks for nothing waits for another client. `once`: nothing is sent a second time.
    """
    used, send = 0, partial(servers.run, once=True) if once else servers.run
    try:
        requests = next(operation)
        while True:
            replies = yield send(requests) if requests else servers.pause()
            used += len(requests)
            if len(replies) == 1 and type(replies[0]) is bytes:  # most of all
                requests = operation.send(replies)
                continue
            again, complete = with_scripts(requests, replies)
            if again:
                for i, reply in zip(again, (yield send(complete)), strict=True):
                    replies[i] = reply
                used += len(again)
            raise_errors(name, requests, replies)
            requests = operation.send(replies)
    except StopIteration as end:
        return end.value, used
    finally:
        counts.requests += used  # calls may overlap: each counts for itself


def _check_servers(servers: Servers | AsyncServers, allow_eviction: bool) -> Steps[None]:
    """Refuse servers that may lose keys; warn, at the caller of `create` and its like, if they do not say."""
    check_roles((yield servers.everywhere("ROLE")))
    warning = check_eviction((yield servers.everywhere(*_EVICTION)), allow_eviction=allow_eviction)
    if warning:
        warnings.warn(warning, UserWarning, stacklevel=5)


@contextlib.contextmanager
def _progress(added: int, batch: int) -> Iterator[None]:
    """Note on whatever the block raises how many keys have been added before its batch."""
    try:
        yield
    except BaseException as error:
        error.add_note(
            f"evenbins: the first {added} keys have been added; some of the next {batch} may have been too"
        )
        raise


class RedisFilter(_Shared, Closing):
    """A filter on Redis or Valkey: made by `create`, `open` or `from_local`, never by its constructor.

    Methods that take keys are those of the local filters; `key in f` and `f.add(key)` are one request for
    each block. Any number of processes and threads may add at the same time: a key whose `add` has returned
    is found by every later query, as long as the server keeps what it acknowledged (docs/redis.md says what
    that means). Errors of the connection are the client library's; the call may then be repeated.

    Examples
    --------
    With a server at hand::

        plan = plan_balanced(1_000_000, fpr=1e-6, policy="multilevel")
        f = RedisFilter.create(redis.Redis(socket_timeout=5), "seen", plan)
        f.add("key")
        assert "key" in f
    """

    _connections = Servers

    create = blocking_maker(_Shared._create)
    from_local = blocking_maker(_Shared._from_local)
    open = blocking_maker(_Shared._open)

    @classmethod
    def delete(cls, client: Any, name: str) -> bool:
        """Remove a filter from the servers, even an incomplete one; return False if it does not exist."""
        return run(cls._delete(client, name))

    add = blocking(_Shared._add)
    add_new = blocking(_Shared._add_new)
    contains = __contains__ = blocking(_Shared._contains)
    update = blocking(_Shared._update)
    add_many = blocking(_Shared._add_many)
    add_new_many = blocking(_Shared._add_new_many)
    contains_many = blocking(_Shared._contains_many)
    to_local = blocking(_Shared._to_local)
    verify = blocking(_Shared._verify)

    def close(self) -> None:
        """Return the connection that this thread keeps to the client's pool.

        The filter stays usable; it takes one again when it needs it. The client is not closed. The end of a
        thread does the same for it.
        """
        self._servers.close()


class AsyncRedisFilter(_Shared):
    """The asyncio twin of `RedisFilter`: the same filters, with `await`; `await f.contains(key)` asks.

    Clients are those of redis.asyncio. Requests to several servers run at the same time.
    """

    _connections = AsyncServers

    create = awaitable_maker(_Shared._create)
    from_local = awaitable_maker(_Shared._from_local)
    open = awaitable_maker(_Shared._open)

    @classmethod
    async def delete(cls, client: Any, name: str) -> bool:
        """Remove a filter, as `RedisFilter.delete` does."""
        return await run_async(cls._delete(client, name))

    add = awaitable(_Shared._add)
    add_new = awaitable(_Shared._add_new)
    contains = awaitable(_Shared._contains)
    update = awaitable(_Shared._update)
    add_many = awaitable(_Shared._add_many)
    add_new_many = awaitable(_Shared._add_new_many)
    contains_many = awaitable(_Shared._contains_many)
    to_local = awaitable(_Shared._to_local)
    verify = awaitable(_Shared._verify)

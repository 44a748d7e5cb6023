"""Servers behind a ring as one: admission by leases, repeats where they are safe, probes in the background.

    call(key, operate) ─▶ lease on the ring ─▶ operate(server) ── it fails ─▶ health: down ─▶ the next server
                          │ the server is full        ▲            (repeated only if that is safe)
                          ├ when_full="jump":         └── not down yet, after fewer than `failures` in a row
                          │ the key's next server
                          └ when_full="wait": wait for this one

`Fleet` is for threads, `AsyncFleet` for asyncio. The rules are written once, in `_fleet_rules`, as steps (see
`_steps`); the two classes add how to wait, and what probes. The clients of memcached and Redis use them.

Repeats. `again(error)` returns whether the request may be sent to another server after that error. It must
return False if the dead server may have executed it already, and twice differs from once.

Where a repeat goes. To the server that the ring names: the same one, until it is marked down. A request that
went elsewhere after one cut connection would leave its value where no later request looks (a server that is
up is asked first), and the old one in its place. So a call may wait `failures` timeouts for one server.

Waiting. Calls that wait for room are woken together, and are in no order: where a limit is about 1, a thread
that repeats its requests can keep another one waiting until its time is up. An order (who waited for 0.05 s
goes first) was tried: it ended that, and took a third of the throughput of saturated servers that jump.

Batches: keys are grouped by their first server; a group is one request, one lease, and jumps for room as one.
A group whose server goes down is grouped anew, since its keys part then. A group that fails for good does not
keep the others from their servers: its error is raised after them.

Invariants
- No admission lifts a server above its limit of requests in flight; the ring counts them (`HashRing.lease`).
- A lease is released exactly once, whatever the request raises, a cancelled task included.
- The probing thread (or task) exists only while a server is down.
- A child process (`Fleet`, after fork) has its own probing thread, and none of the leases of other threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

from evenbins._bulk import Key
from evenbins.cluster._fleet_rules import FleetRules
from evenbins.cluster._forks import reset_in_children
from evenbins.cluster._steps import Steps, awaitable, blocking, run, run_async
from evenbins.cluster._tasks import end_task
from evenbins.cluster.health import notify
from evenbins.errors import EvenbinsError
from evenbins.rings import HashRing, Lease

__all__ = ["AsyncFleet", "Fleet"]

_T = TypeVar("_T")


class Fleet(FleetRules):
    """Servers behind a ring, for threads.

    Parameters
    ----------
    servers
        Names; `operate` gets one of them.
    probe
        Asks a server that is down whether it is back; raises if not. It also does what must be done before
        requests return to it.
    broken
        Exceptions of `operate` that mean the server failed.
    epsilon, limit, weights, seed
        As for `HashRing`: the bound of requests in flight. A limit of 64 if neither is given.
    when_full
        "jump": a request that finds its server full goes to the key's next one. "wait": it waits.
    wait
        Seconds to wait for room, at most; then RingFullError.
    failures, backoff
        See `evenbins.cluster.health`.
    on_change
        Called with (server, state).

    Examples
    --------
    >>> fleet = Fleet(["a", "b"], probe=print, broken=(OSError,))
    >>> fleet.call("key", lambda server: server.upper()) == fleet.ring.node("key").upper()
    True
    """

    def _begin(self) -> None:
        self._room = threading.Condition()  # with an RLock: a signal's handler may come in
        self._waiting = 0
        self._thread: threading.Thread | None = None
        self._unwatched = False  # a server may be down without a thread that probes it
        self._leases: dict[Lease, int] = {}  # under way: thread
        reset_in_children(self)

    def _reset_after_fork(self) -> None:
        self._room = threading.Condition()
        self._waiting, self._thread, self._unwatched = 0, None, True
        mine = threading.get_ident()
        for lease, thread in list(self._leases.items()):
            if thread != mine:  # the child does not have that thread
                del self._leases[lease]
                lease.release()

    call = blocking(FleetRules._call)
    call_many = blocking(FleetRules._call_many)
    on = blocking(FleetRules._on)
    drain = blocking(FleetRules._drain)

    @contextlib.contextmanager
    def admit(self, key: Key, failed: tuple[str, ...] = (), *, stay: bool = False) -> Iterator[str]:
        """Hold a place on a server while the block runs; yields the server."""
        lease = run(self._admit(key, failed, stay))
        try:
            yield lease.node or ""
        finally:
            self._release(lease)

    def _try(self, key: Key, failed: tuple[str, ...], stay: bool) -> Lease | None:
        if self._unwatched:
            self._watch_servers()
        lease = super()._try(key, failed, stay)
        if lease is not None:
            self._leases[lease] = threading.get_ident()
        return lease

    def _release(self, lease: Lease) -> None:
        lease.release()
        self._leases.pop(lease, None)
        if self._waiting:
            with self._room:
                self._room.notify_all()

    @contextlib.contextmanager
    def _waiting_room(self) -> Iterator[None]:
        with self._room:
            self._waiting += 1
            try:
                yield
            finally:
                self._waiting -= 1

    def _nap(self, seconds: float) -> None:
        self._room.wait(seconds)

    def _run_all(self, parts: Sequence[Steps[_T]]) -> list[_T | Exception]:
        outcomes: list[_T | Exception] = []
        for each in parts:
            try:
                outcomes.append(run(each))
            except Exception as error:
                outcomes.append(error)
        return outcomes

    def close(self) -> None:
        """End the probes."""
        with self._room:
            self._closed = True
            self._room.notify_all()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)

    def _on_state(self, name: str, state: str) -> None:
        if state == "down":
            self._watch_servers()
        notify(self._on_change, name, state)

    def _watch_servers(self) -> None:
        """Start a thread that probes the servers that are down, if there is none."""
        with self._room:
            self._unwatched = False
            needed = self.health.next_probe() is not None and not self._closed
            if needed and self._thread is None:
                thread = threading.Thread(target=self._watch, name="evenbins-probes", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no more threads now: the next request tries again
                    self._unwatched = True
                else:
                    self._thread = thread
            self._room.notify_all()

    def _watch(self) -> None:
        try:
            while True:
                for name in () if self._closed else self.health.due():
                    run(self._ask(name))
                with self._room:
                    delay = self.health.next_probe()
                    if delay is None or self._closed:
                        self._thread = None
                        return
                    self._room.wait(delay)
        except BaseException:  # SystemExit of a callback, say
            self.health.abandon_probes()
            with self._room:
                self._thread, self._unwatched = None, True
            raise


class AsyncFleet(FleetRules):
    """Servers behind a ring, for asyncio: as `Fleet`, with coroutines. Use it inside one event loop."""

    def _begin(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}  # in their order
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    async def call(
        self,
        key: Key,
        operate: Callable[[str], Awaitable[_T]],
        *,
        again: Callable[[BaseException], bool] = lambda error: True,
        stay: bool = False,
    ) -> _T:
        """Run `operate(server)` as `Fleet.call` does."""
        answer: Any = await run_async(self._call(key, operate, again=again, stay=stay))
        return cast("_T", answer)

    async def on(self, node: str, operate: Callable[[str], Awaitable[_T]]) -> _T:
        """Run `operate` on one named server, as `Fleet.on` does."""
        answer: Any = await run_async(self._on(node, operate))
        return cast("_T", answer)

    call_many = awaitable(FleetRules._call_many)
    drain = awaitable(FleetRules._drain)

    @contextlib.asynccontextmanager
    async def admit(
        self, key: Key, failed: tuple[str, ...] = (), *, stay: bool = False
    ) -> AsyncIterator[str]:
        """Hold a place on a server while the block runs; yields the server."""
        lease = await run_async(self._admit(key, failed, stay))
        try:
            yield lease.node or ""
        finally:
            self._release(lease)

    def _release(self, lease: Lease) -> None:
        lease.release()
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _nap(self, seconds: float) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await waiter
        finally:
            self._waiters.pop(waiter, None)

    def _run_all(self, parts: Sequence[Steps[_T]]) -> Awaitable[list[_T | BaseException]]:
        return asyncio.gather(*map(run_async, parts), return_exceptions=True)

    async def close(self) -> None:
        """End the probes."""
        self._closed = True
        task, self._task = self._task, None
        await end_task(task)

    def _on_state(self, name: str, state: str) -> None:
        if state == "down" and not self._closed:
            self._wake.set()
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._watch())
        notify(self._on_change, name, state)

    async def _watch(self) -> None:
        while (delay := self.health.next_probe()) is not None:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            await asyncio.gather(*(run_async(self._ask(name)) for name in self.health.due()))
        self._task = None


class NotSentError(EvenbinsError, ConnectionError):
    """There was no connection: the server has not seen the request."""


def never_sent(error: BaseException) -> bool:
    """Return whether the server has not seen the request, which may then be repeated whatever it does."""
    return isinstance(error, NotSentError)


class FleetClient:
    """What clients of a fleet show of it."""

    _fleet: FleetRules

    @property
    def ring(self) -> HashRing:
        """The ring, to look at: use this client's methods to add and remove servers."""
        return self._fleet.ring

    def status(self) -> dict[str, Any]:
        """Return for each server state, requests in flight, failures, error; and jumps and repeats so far."""
        return self._fleet.status()

    def server_for(self, key: str | bytes) -> str:
        """Return the server that a key belongs to now."""
        return self._fleet.ring.node(key)


@contextlib.contextmanager
def entry(clients: dict[str, _T], name: str, client: _T) -> Iterator[None]:
    """Set a server's client before the block; if the block raises, restore what was there."""
    before = {name: clients[name]} if name in clients else {}
    clients[name] = client
    try:
        yield
    except BaseException:
        del clients[name]
        clients.update(before)
        raise


def address_list(servers: object) -> list[Any]:
    """Return a list of addresses; TypeError if it is one address, or no iterable."""
    if isinstance(servers, str | bytes) or not isinstance(servers, Iterable):
        raise TypeError(f"servers must be several addresses, not one {type(servers).__name__}; use a list")
    return list(servers)

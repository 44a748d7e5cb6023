"""Servers behind a ring as one: admission by leases, repeats where they are safe, probes in the background.

    call(key, operate) ─▶ lease on the ring ─▶ operate(server) ── it fails ─▶ health: down ─▶ the next server
                          │ the server is full        ▲            (repeated only if that is safe)
                          ├ when_full="jump":         └── not down yet, after fewer than `failures` in a row
                          │ the key's next server
                          └ when_full="wait": wait for this one

`Fleet` is for threads, `AsyncFleet` for asyncio; both do the same, and the clients of memcached and Redis are
made of them. Who may repeat: `again(error)` says whether the request can be sent to another server after that
error. It must say no, if the dead server may have done it already and doing it twice differs from once.

Where a repeat goes. To the server that the ring names: the same one, until it is marked down. A request that
went elsewhere after a single cut connection would leave its value where nobody looks (a server that is up is
asked first), and the old one in its place. So a call may wait `failures` timeouts for one server.

Batches: keys are grouped by their first server; a group is one request, one lease, and jumps for room as one.
A group whose server goes down is grouped anew, since its keys part then. A group that fails for good does not
keep the others from their servers: its error is raised after them.

Invariants
- No admission lifts a server above its limit of requests in flight; the ring counts them (`HashRing.lease`).
- A lease is given back exactly once, whatever the request raises, a cancelled task included.
- The probing thread (or task) exists only while a server is down.
- A child process (`Fleet`, after fork) has its own probing thread, and none of the leases of other threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from evenbins import _arguments as arguments
from evenbins._bulk import Key
from evenbins.cluster._forks import reset_in_children
from evenbins.cluster.health import Backoff, Health, ServerDownError, notify
from evenbins.rings import HashRing, NoNodesError, RingFullError
from evenbins.rings.lease import Lease

__all__ = ["AsyncFleet", "Fleet"]

_T = TypeVar("_T")
_K = TypeVar("_K", bound=Key)
DEFAULT_LIMIT = 64
_NAP = 0.05  # a limit may rise without a lease coming back: those who wait look again


class _Fleet:
    """What both fleets share: the ring, its health, the rules of admission."""

    def __init__(
        self,
        servers: Iterable[str],
        *,
        broken: tuple[type[BaseException], ...],
        epsilon: float | None = None,
        limit: int | None = None,
        weights: Mapping[str, float] | None = None,
        when_full: str = "jump",
        wait: float = 1.0,
        failures: int = 1,
        backoff: Backoff | None = None,
        seed: int = 0,
    ) -> None:
        if when_full not in ("jump", "wait"):
            raise arguments.error("when_full", "'jump' or 'wait'", when_full, "Leave it out")
        rule = "a number of seconds, 0 or more"
        self._wait = arguments.real("wait", wait, rule, "Pass for example 1.0")
        if not 0 <= self._wait < 1e9:
            raise arguments.error("wait", rule, wait, "Pass for example 1.0")
        if epsilon is None and limit is None:
            limit = DEFAULT_LIMIT
        self.ring = HashRing(servers, epsilon=epsilon, limit=limit, weights=weights, seed=seed)
        if not self.ring.names:
            raise ValueError("servers must name at least one server; got none")
        self.when_full = when_full
        self.health = Health(self.ring, failures=failures, backoff=backoff, on_change=self._changed)
        self._failures = failures
        self._broken = broken
        self._others: tuple[int, dict[str, tuple[str, ...]]] = (-1, {})
        self.jumps = 0  # admissions elsewhere than at the key's first server, because it was full
        self.repeats = 0

    def _changed(self, name: str, state: str) -> None:
        raise NotImplementedError

    def _passed_over(self, key: Key, failed: tuple[str, ...], stay: bool) -> tuple[str, ...]:
        """Give the servers that an admission passes over: to stay, all but the first that has not failed."""
        if not stay:
            return failed
        home = self.ring.node(key)
        if home in failed:
            home = next((each for each in self.ring.candidates(key) if each not in failed), home)
        version = self.ring.version
        if self._others[0] != version:
            self._others = (version, {})
        known = self._others[1]
        others = known.get(home)
        if others is None:
            others = known[home] = tuple(each for each in self.ring.names if each != home)
        return others + failed

    def _try(self, key: Key, failed: tuple[str, ...], stay: bool) -> Lease | None:
        """Admit one request; None if there is no room for it now."""
        stay = stay or self.when_full == "wait"
        try:
            lease = self.ring.lease(key, avoid=self._passed_over(key, failed, stay))
            node = lease.acquire()
        except NoNodesError:
            raise self._nobody() from None
        except RingFullError:
            if failed and not set(self.ring.candidates(key)) - set(failed):
                raise self._nobody() from None
            return None
        if not (stay or failed) and node != self.ring.node(key):
            self.jumps += 1
        return lease

    def _no_room(self, key: Key, stay: bool) -> RingFullError:
        jumps = self.when_full == "jump" and not stay
        which = "every server is" if jumps else f"server {self.ring.node(key)} is"
        return RingFullError(
            f"{which} at its limit of requests in flight, for {self._wait:g} s now: raise limit or wait"
        )

    def _nobody(self) -> NoNodesError:
        """Say why no server serves: the last error of some."""
        status = self.health.status()
        reasons = [
            f"{name} {'is drained' if each['state'] == 'draining' else 'failed: ' + (each['error'] or '?')}"
            for name, each in status.items()
            if each["state"] != "up" or each["error"]
        ]
        more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
        return NoNodesError("no server is left to ask: " + "; ".join(reasons[:3]) + more)

    def _groups(self, keys: Sequence[_K]) -> list[tuple[str, list[_K]]]:
        groups: dict[str, list[_K]] = {}
        try:
            for key in keys:
                groups.setdefault(self.ring.node(key), []).append(key)
        except NoNodesError:
            raise self._nobody() from None
        return list(groups.items())

    def _lost(self, node: str, error: BaseException) -> ServerDownError:
        return ServerDownError(
            node,
            f"server {node} failed under a request that cannot be repeated safely: "
            f"{type(error).__name__}: {' '.join(str(error).split())}",
        )

    def _gone(self, node: str, error: BaseException) -> ServerDownError:
        return ServerDownError(
            node, f"server {node} failed: {type(error).__name__}: {' '.join(str(error).split())}; try again"
        )

    @staticmethod
    def _report(
        errors: list[tuple[list[_K], Exception]], failed: Callable[[list[_K], Exception], object] | None
    ) -> None:
        """Pass the errors of groups on; or raise the first, with a note for each of the others."""
        if failed is not None:
            for group, error in errors:
                failed(group, error)
        elif errors:
            first = errors[0][1]
            for _, other in errors[1:]:
                first.add_note(f"another part failed too: {type(other).__name__}: {other}")
            raise first

    def _attempts(self) -> int:
        """Count the failures that one call may meet: enough to see all servers go down, and one return."""
        return self._failures * (len(self.ring.names) + 1)

    def _parted(self, home: str, node: str, group: Sequence[_K]) -> bool:
        """Tell whether a group's server went down since it was grouped: then each key has one of its own."""
        return node != home and self.ring.node(group[0]) != home

    def status(self) -> dict[str, Any]:
        """Give for each server its state, load and limit; and the counts of jumps and repeats."""
        loads = self.ring.lease_loads()
        servers = {
            name: each | {"in_flight": loads.get(name, 0)} for name, each in self.health.status().items()
        }
        return {"servers": servers, "jumps": self.jumps, "repeats": self.repeats}


class Fleet(_Fleet):
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

    def __init__(
        self,
        servers: Iterable[str],
        *,
        probe: Callable[[str], object],
        broken: tuple[type[BaseException], ...],
        on_change: Callable[[str, str], object] | None = None,
        **options: Any,
    ) -> None:
        self._probe, self._on_change = probe, on_change
        self._room = threading.Condition()  # with an RLock: a signal's handler may come in
        self._waiting = 0
        self._thread: threading.Thread | None = None
        self._unwatched = False  # a server may be down without a thread that probes it
        self._closed = False
        self._leases: dict[Lease, int] = {}  # under way: thread
        super().__init__(servers, broken=broken, **options)
        reset_in_children(self)

    def _reset_after_fork(self) -> None:
        self._room = threading.Condition()
        self._waiting, self._thread, self._unwatched = 0, None, True
        mine = threading.get_ident()
        for lease, thread in list(self._leases.items()):
            if thread != mine:  # the child does not have that thread
                del self._leases[lease]
                lease.release()

    def call(
        self,
        key: Key,
        operate: Callable[[str], _T],
        *,
        again: Callable[[BaseException], bool] = lambda error: True,
        stay: bool = False,
    ) -> _T:
        """Run `operate(server)` on the key's server; if that fails and `again` allows it, once more.

        On the same server, until it is down; then on the key's next one.

        With `stay` it waits for a full server, whatever `when_full` says: for requests that change what is
        there.

        Raises
        ------
        ServerDownError
            The server failed and `again` forbade a repeat.
        RingFullError, NoNodesError
            There was no room in time; no server serves.
        """
        failures = 0
        while True:
            with self.admitted(key, stay=stay) as node:
                epoch = self.health.epoch(node)
                try:
                    answer = operate(node)
                except self._broken as error:
                    self.health.failed(node, error, epoch=epoch)
                    failures += 1
                    if not again(error) or failures >= self._attempts():
                        raise self._lost(node, error) from error
                else:
                    self.health.succeeded(node)
                    return answer
            self.repeats += 1

    def call_many(
        self,
        keys: Iterable[_K],
        operate: Callable[[str, list[_K]], object],
        *,
        again: Callable[[BaseException], bool] = lambda error: True,
        failed: Callable[[list[_K], Exception], object] | None = None,
    ) -> None:
        """Run `operate(server, keys)` for the keys of each server, one server after the other.

        A group that fails for good does not keep the others from their servers. Afterwards
        `failed(keys, error)` is called for each such group; without it the first error is raised.
        """
        pending: list[_K] = list(keys)
        failures = 0
        errors: list[tuple[list[_K], Exception]] = []
        while pending:
            try:
                groups, pending = self._groups(pending), []
            except NoNodesError as error:
                errors.append((pending, error))
                break
            for home, group in groups:
                try:
                    lost, left = self._one_group(home, group, failures, operate, again)
                except Exception as error:
                    errors.append((group, error))
                    continue
                pending += left
                failures += lost
                self.repeats += lost
        self._report(errors, failed)

    def _one_group(
        self,
        home: str,
        group: list[_K],
        failures: int,
        operate: Callable[[str, list[_K]], object],
        again: Callable[[BaseException], bool],
    ) -> tuple[bool, list[_K]]:
        """Ask one server for its keys: whether it failed, and the keys that are still to be asked for."""
        with self.admitted(group[0]) as node:
            if self._parted(home, node, group):
                return False, group
            epoch = self.health.epoch(node)
            try:
                operate(node, group)
            except self._broken as error:
                self.health.failed(node, error, epoch=epoch)
                if not again(error) or failures + 1 >= self._attempts():
                    raise self._lost(node, error) from error
                return True, group
            self.health.succeeded(node)
            return False, []

    @contextlib.contextmanager
    def admitted(self, key: Key, failed: tuple[str, ...] = (), *, stay: bool = False) -> Iterator[str]:
        """Hold a place on a server while the block runs; gives the server."""
        if self._unwatched:
            self._watch_servers()
        lease = self._try(key, failed, stay) or self._queue(key, failed, stay)
        self._leases[lease] = threading.get_ident()
        try:
            yield lease.node or ""
        finally:
            lease.release()
            self._leases.pop(lease, None)
            if self._waiting:
                with self._room:
                    self._room.notify_all()

    def _queue(self, key: Key, failed: tuple[str, ...], stay: bool) -> Lease:
        deadline = time.monotonic() + self._wait
        with self._room:
            self._waiting += 1
            try:
                while (lease := self._try(key, failed, stay)) is None:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise self._no_room(key, stay)
                    self._room.wait(min(left, _NAP))
                return lease
            finally:
                self._waiting -= 1

    def on(self, node: str, operate: Callable[[str], _T]) -> _T:
        """Run `operate` on one named server, without a lease: for administration and copies.

        It is repeated until the server is down, so it must be something that may be done twice.
        """
        failures = 0
        while True:
            epoch = self.health.epoch(node)
            try:
                answer = operate(node)
            except self._broken as error:
                self.health.failed(node, error, epoch=epoch)
                failures += 1
                if failures >= self._failures or not self.health.alive(node):
                    raise self._gone(node, error) from error
            else:
                self.health.succeeded(node)
                return answer

    def drained(self, name: str, timeout: float | None = None) -> bool:
        """Drain a server, wait until nothing is under way there; False if that took too long."""
        self.health.drain(name)
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._room:
            self._waiting += 1
            try:
                while self.ring.lease_loads().get(name):
                    left = _NAP if deadline is None else deadline - time.monotonic()
                    if left <= 0:
                        return False
                    self._room.wait(min(left, _NAP))
                return True
            finally:
                self._waiting -= 1

    def close(self) -> None:
        """End the probes."""
        with self._room:
            self._closed = True
            self._room.notify_all()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)

    def _changed(self, name: str, state: str) -> None:
        if state == "down":
            self._watch_servers()
        notify(self._on_change, name, state)

    def _watch_servers(self) -> None:
        """Have a thread that probes the servers that are down."""
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
                    try:
                        self._probe(name)
                    except Exception as error:  # whatever a probe meets: the server is not back
                        self.health.probe_failed(name, error)
                    else:
                        self.health.recovered(name)
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


class AsyncFleet(_Fleet):
    """Servers behind a ring, for asyncio: as `Fleet`, with coroutines. Use it inside one event loop."""

    def __init__(
        self,
        servers: Iterable[str],
        *,
        probe: Callable[[str], Awaitable[object]],
        broken: tuple[type[BaseException], ...],
        on_change: Callable[[str, str], object] | None = None,
        **options: Any,
    ) -> None:
        self._probe, self._on_change = probe, on_change
        self._waiters: dict[asyncio.Future[None], None] = {}  # in their order
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._closed = False
        super().__init__(servers, broken=broken, **options)

    async def call(
        self,
        key: Key,
        operate: Callable[[str], Awaitable[_T]],
        *,
        again: Callable[[BaseException], bool] = lambda error: True,
        stay: bool = False,
    ) -> _T:
        """Run `operate(server)` as `Fleet.call` does."""
        failures = 0
        while True:
            async with self.admitted(key, stay=stay) as node:
                epoch = self.health.epoch(node)
                try:
                    answer = await operate(node)
                except self._broken as error:
                    self.health.failed(node, error, epoch=epoch)
                    failures += 1
                    if not again(error) or failures >= self._attempts():
                        raise self._lost(node, error) from error
                else:
                    self.health.succeeded(node)
                    return answer
            self.repeats += 1

    async def call_many(
        self,
        keys: Iterable[_K],
        operate: Callable[[str, list[_K]], Awaitable[object]],
        *,
        again: Callable[[BaseException], bool] = lambda error: True,
        failed: Callable[[list[_K], Exception], object] | None = None,
    ) -> None:
        """Run `operate(server, keys)` as `Fleet.call_many` does, for all servers at once."""
        pending: list[_K] = list(keys)
        failures = 0
        errors: list[tuple[list[_K], Exception]] = []
        while pending:
            try:
                groups, pending = self._groups(pending), []
            except NoNodesError as error:
                errors.append((pending, error))
                break
            rounds = [self._one_group(home, group, failures, operate, again) for home, group in groups]
            outcomes = await asyncio.gather(*rounds, return_exceptions=True)
            for (_, group), outcome in zip(groups, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    errors.append((group, outcome))
                elif isinstance(outcome, BaseException):
                    raise outcome
                else:
                    lost, left = outcome
                    pending += left
                    failures += lost
                    self.repeats += lost
        self._report(errors, failed)

    async def _one_group(
        self,
        home: str,
        group: list[_K],
        failures: int,
        operate: Callable[[str, list[_K]], Awaitable[object]],
        again: Callable[[BaseException], bool],
    ) -> tuple[bool, list[_K]]:
        """Ask one server for its keys: whether it failed, and the keys that are still to be asked for."""
        async with self.admitted(group[0]) as node:
            if self._parted(home, node, group):
                return False, group
            epoch = self.health.epoch(node)
            try:
                await operate(node, group)
            except self._broken as error:
                self.health.failed(node, error, epoch=epoch)
                if not again(error) or failures + 1 >= self._attempts():
                    raise self._lost(node, error) from error
                return True, group
            self.health.succeeded(node)
            return False, []

    @contextlib.asynccontextmanager
    async def admitted(
        self, key: Key, failed: tuple[str, ...] = (), *, stay: bool = False
    ) -> AsyncIterator[str]:
        """Hold a place on a server while the block runs; gives the server."""
        lease = self._try(key, failed, stay) or await self._queue(key, failed, stay)
        try:
            yield lease.node or ""
        finally:
            lease.release()
            self._notify()

    async def _queue(self, key: Key, failed: tuple[str, ...], stay: bool) -> Lease:
        deadline = time.monotonic() + self._wait
        while (lease := self._try(key, failed, stay)) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._no_room(key, stay)
            await self._nap(left)
        return lease

    async def _nap(self, left: float) -> None:
        """Sleep until a lease comes back, and no longer than a short time."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(waiter, min(left, _NAP))
        finally:
            self._waiters.pop(waiter, None)

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def on(self, node: str, operate: Callable[[str], Awaitable[_T]]) -> _T:
        """Run `operate` on one named server, without a lease: for administration and copies.

        It is repeated until the server is down, so it must be something that may be done twice.
        """
        failures = 0
        while True:
            epoch = self.health.epoch(node)
            try:
                answer = await operate(node)
            except self._broken as error:
                self.health.failed(node, error, epoch=epoch)
                failures += 1
                if failures >= self._failures or not self.health.alive(node):
                    raise self._gone(node, error) from error
            else:
                self.health.succeeded(node)
                return answer

    async def drained(self, name: str, timeout: float | None = None) -> bool:
        """Drain a server, wait until nothing is under way there; False if that took too long."""
        self.health.drain(name)
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.ring.lease_loads().get(name):
            left = _NAP if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            await self._nap(left)
        return True

    async def close(self) -> None:
        """End the probes."""
        self._closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _changed(self, name: str, state: str) -> None:
        if state == "down" and not self._closed:
            self._wake.set()
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._watch())
        notify(self._on_change, name, state)

    async def _watch(self) -> None:
        while (delay := self.health.next_probe()) is not None:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), delay)
            await asyncio.gather(*map(self._ask, self.health.due()))
        self._task = None

    async def _ask(self, name: str) -> None:
        try:
            await self._probe(name)
        except Exception as error:  # whatever a probe meets: the server is not back
            self.health.probe_failed(name, error)
        else:
            self.health.recovered(name)

"""The rules of a fleet, without input or output: whom a request may ask, how often, and what it raises then.

`fleet` describes them, and its two classes add what differs between threads and asyncio: how to wait for a
lease, what probes. Methods that wait are steps (see `_steps`).
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from evenbins import _arguments as arguments
from evenbins._bulk import Key
from evenbins.cluster._steps import Steps
from evenbins.cluster.health import Backoff, Health, ServerDownError
from evenbins.rings import HashRing, Lease, NoNodesError, RingFullError

__all__ = ["FleetRules"]

_T = TypeVar("_T")
_K = TypeVar("_K", bound=Key)
DEFAULT_LIMIT = 64
_NAP = 0.05  # a limit may rise without a lease coming back: waiting calls look again


class FleetRules:
    """The ring, its health, admission and repeats."""

    def __init__(
        self, servers: Iterable[str], *, probe: Callable[[str], object],
        broken: tuple[type[BaseException], ...], on_change: Callable[[str, str], object] | None = None,
        epsilon: float | None = None, limit: int | None = None, weights: Mapping[str, float] | None = None,
        when_full: str = "jump", wait: float = 1.0, failures: int = 1, backoff: Backoff | None = None,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self.when_full = arguments.one_of("when_full", when_full, ("jump", "wait"), "Leave it out")
        rule = "a number of seconds, 0 or more"
        self._wait = arguments.real("wait", wait, rule, "Pass for example 1.0", least=0.0, below=1e9)
        if epsilon is None and limit is None:
            limit = DEFAULT_LIMIT
        self.ring = HashRing(servers, epsilon=epsilon, limit=limit, weights=weights, seed=seed)
        if not self.ring.names:
            raise ValueError("servers must name at least one server; got none")
        self.health = Health(self.ring, failures=failures, backoff=backoff, on_change=self._on_state)
        self._failures = failures
        self._probe, self._broken, self._on_change = probe, broken, on_change
        self._closed = False
        self._begin()
        self._others: tuple[int, dict[str, tuple[str, ...]]] = (-1, {})
        self.jumps = 0  # admissions elsewhere than at the key's first server, because it was full
        self.repeats = 0

    def _begin(self) -> None:
        """Prepare what waiting and probing need."""
        raise NotImplementedError

    def _on_state(self, name: str, state: str) -> None:
        raise NotImplementedError

    def _servers_to_avoid(self, key: Key, failed: tuple[str, ...], stay: bool) -> tuple[str, ...]:
        """Return the servers that an admission passes over: to stay, all but the first that did not fail."""
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
            lease = self.ring.lease(key, avoid=self._servers_to_avoid(key, failed, stay))
            node = lease.acquire()
        except NoNodesError:
            raise self._no_server_error() from None
        except RingFullError:
            if failed and not set(self.ring.candidates(key)) - set(failed):
                raise self._no_server_error() from None
            return None
        if not (stay or failed) and node != self.ring.node(key):
            self.jumps += 1
        return lease

    def _full_error(self, key: Key, stay: bool) -> RingFullError:
        jumps = self.when_full == "jump" and not stay
        which = "every server is" if jumps else f"server {self.ring.node(key)} is"
        return RingFullError(
            f"{which} at its limit of requests in flight: no place for this one within {self._wait:g} s; "
            "raise limit or wait"
        )

    def _no_server_error(self) -> NoNodesError:
        """Return the error that says why no server serves: the last error of some."""
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
            raise self._no_server_error() from None
        return list(groups.items())

    @staticmethod
    def _down_error(node: str, error: BaseException, what: str, advice: str = "") -> ServerDownError:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return ServerDownError(node, f"server {node} failed{what}: {reason}{advice}")

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

    def status(self) -> dict[str, Any]:
        """Return the state, load and limit of each server; and the counts of jumps and repeats."""
        loads = self.ring.lease_loads()
        servers = {
            name: each | {"in_flight": loads.get(name, 0)} for name, each in self.health.status().items()
        }
        return {"servers": servers, "jumps": self.jumps, "repeats": self.repeats}

    def _waiting_room(self) -> contextlib.AbstractContextManager[object]:
        """Return what a call holds while it waits for a lease to come back."""
        return contextlib.nullcontext()

    def _nap(self, seconds: float) -> Any:
        """Wait until a lease comes back, at most so long."""
        raise NotImplementedError

    def _run_all(self, parts: Sequence[Steps[_T]]) -> Any:
        """Return the results of several steps, or the exceptions that they raised."""
        raise NotImplementedError

    def _release(self, lease: Lease) -> None:
        """Release a lease, and wake the calls that wait for one."""
        raise NotImplementedError

    def _admit(self, key: Key, failed: tuple[str, ...] = (), stay: bool = False) -> Steps[Lease]:
        """Take a lease, and wait for room if there is none."""
        lease = self._try(key, failed, stay)
        if lease is not None:
            return lease
        deadline = time.monotonic() + self._wait
        with self._waiting_room():
            while (lease := self._try(key, failed, stay)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._full_error(key, stay)
                yield self._nap(min(left, _NAP))
            return lease

    def _call(
        self,
        key: Key,
        operate: Callable[[str], _T],
        *,
        again: Callable[[BaseException], bool] = lambda error: True,
        stay: bool = False,
    ) -> Steps[_T]:
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
        failures = itertools.count(1)
        while True:
            lease = yield from self._admit(key, stay=stay)
            try:
                done, answer = yield from self._attempt(lease.node or "", operate, again, failures)
            finally:
                self._release(lease)
            if done:
                return cast("_T", answer)
            self.repeats += 1

    def _attempt(
        self,
        node: str,
        operate: Callable[[str], Any],
        again: Callable[[BaseException], bool],
        failures: Iterator[int],
    ) -> Steps[tuple[bool, Any]]:
        """Ask a server once: (True, its answer), or (False, None) if it failed and may be asked again."""
        epoch = self.health.epoch(node)
        try:
            answer = yield operate(node)
        except self._broken as error:
            self.health.failed(node, error, epoch=epoch)
            if not again(error) or next(failures) >= self._attempts():
                what = " under a request that cannot be repeated safely"
                raise self._down_error(node, error, what) from error
            return False, None
        self.health.succeeded(node)
        return True, answer

    def _attempts(self) -> int:
        """Count the failures that one call may meet: enough to see all servers go down, and one return."""
        return self._failures * (len(self.ring.names) + 1)

    def _call_many(
        self,
        keys: Iterable[_K],
        operate: Callable[[str, list[_K]], object],
        *,
        again: Callable[[BaseException], bool] = lambda error: True,
        failed: Callable[[list[_K], Exception], object] | None = None,
        stay: bool = False,
    ) -> Steps[None]:
        """Run `operate(server, keys)` for the keys of each server: in asyncio for all servers at once.

        With `stay` it waits for full servers, as `call` does.

        A group that fails for good does not keep the others from their servers. Afterwards
        `failed(keys, error)` is called for each such group; without it the first error is raised.
        """
        pending: list[_K] = list(keys)
        failures = itertools.count(1)
        errors: list[tuple[list[_K], Exception]] = []
        while pending:
            try:
                groups = self._groups(pending)
            except NoNodesError as error:
                errors.append((pending, error))
                break
            parts = [self._call_group(home, group, operate, again, failures, stay) for home, group in groups]
            outcomes = yield self._run_all(parts)
            pending = []
            for (_, group), outcome in zip(groups, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    errors.append((group, outcome))
                elif isinstance(outcome, BaseException):
                    raise outcome
                elif not outcome:
                    pending += group
        self._report(errors, failed)

    def _call_group(
        self,
        home: str,
        group: list[_K],
        operate: Callable[[str, list[_K]], object],
        again: Callable[[BaseException], bool],
        failures: Iterator[int],
        stay: bool,
    ) -> Steps[bool]:
        """Ask one server for its keys; False if they are still to be asked for."""
        stay = stay or self.when_full == "wait"
        lease = yield from self._admit(group[0], stay=stay)
        try:
            node = lease.node or ""
            if node != home and (stay or self.ring.node(group[0]) != home):
                return False  # the server went down since: each key has a server of its own now
            done, _ = yield from self._attempt(node, lambda name: operate(name, group), again, failures)
        finally:
            self._release(lease)
        self.repeats += not done
        return done

    def _on(self, node: str, operate: Callable[[str], _T]) -> Steps[_T]:
        """Run `operate` on one named server, without a lease: for administration and copies.

        It is repeated until the server is down, so it must be something that may be done twice.
        """
        failures = 0
        while True:
            epoch = self.health.epoch(node)
            try:
                answer: _T = yield operate(node)
            except self._broken as error:
                self.health.failed(node, error, epoch=epoch)
                failures += 1
                if failures >= self._failures or not self.health.alive(node):
                    raise self._down_error(node, error, "", "; try again") from error
            else:
                self.health.succeeded(node)
                return answer

    def _drain(self, name: str, timeout: float | None = None) -> Steps[bool]:
        """Drain a server, wait until no request is under way there; False if that took too long."""
        self.health.drain(name)
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._waiting_room():
            while self.ring.lease_loads().get(name):
                left = _NAP if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return False
                yield self._nap(min(left, _NAP))
            return True

    def _ask(self, name: str) -> Steps[None]:
        """Probe a server that is down, and report what that met."""
        try:
            yield self._probe(name)
        except Exception as error:  # whatever a probe meets: the server is not back
            self.health.probe_failed(name, error)
        else:
            self.health.recovered(name)

"""Which servers of a ring are alive: failures, back-off, probes, recovery, drain. No input or output here.

             failed() `failures` times in a row               recovered(), after a probe
    up ─────────────────────────────────────▶ down ──────────────────────────────────▶ up
     │                                         │  ▲
     └── drain() ──▶ draining ── undrain() ──▶ └──┘ probe_failed(): wait longer, probe again

One place for the routers of this package (memcached, Redis, HTTP): they report what their requests met,
ask which servers are due for a probe, send the probe themselves, and report its outcome. Time and chance are
arguments (`clock`, `rng`), so every rule is tested without a server and without waiting.

Invariants
- A server that fails is marked down on the ring, never removed: its slots and its keys wait for it.
- While it is down it gets no request, only probes: one at a time, after delays that double up to a limit,
  each shortened by a random part, so that many clients do not all knock at once.
- A report about an earlier life of a server changes nothing: a request that began before it came back, and
  timed out afterwards, says nothing of the new one (`epoch`).
- Draining is the operator's word and survives failures: a drained server that fails and returns is still
  drained.
- A callback that raises changes nothing here, and no request fails because of it: it is logged.

Tried and dropped: letting an occasional real request through to a dead server, instead of probes. It is
simpler, and each such request fails or waits for a timeout.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evenbins import _arguments as arguments
from evenbins.cluster._forks import reset_in_children
from evenbins.errors import EvenbinsError
from evenbins.rings import HashRing

__all__ = ["Backoff", "Health", "ServerDownError"]

_log = logging.getLogger(__name__)


class ServerDownError(EvenbinsError, ConnectionError):
    """A request failed because its server did, and repeating it elsewhere was not safe.

    Attributes
    ----------
    server : its name
    """

    def __init__(self, server: str, message: str) -> None:
        super().__init__(message)
        self.server = server

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.server, str(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before the next probe of a server that is down.

    Parameters
    ----------
    first
        Seconds before the first probe.
    factor
        Ratio of each delay to the one before; at least 1.
    most
        No delay is longer.
    jitter
        A random part of each delay, from 0 to this fraction of it, is left out; 0 to 1.

    Examples
    --------
    >>> backoff = Backoff(first=0.1, factor=2, most=1, jitter=0)
    >>> [backoff.delay(failures) for failures in range(1, 6)]
    [0.1, 0.2, 0.4, 0.8, 1.0]
    """

    first: float = 0.1
    factor: float = 2.0
    most: float = 10.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        day = 86400.0
        ranges = {"first": (1e-3, day), "factor": (1.0, 1e3), "most": (1e-3, day), "jitter": (0.0, 1.0)}
        for name, (least, most) in ranges.items():
            arguments.real(name, getattr(self, name), "", "Leave it out", least=least, most=most)

    def delay(self, failures: int, rng: random.Random | None = None) -> float:
        """Return the seconds to wait after this number of failed probes, the failure itself counted."""
        steps = min(failures - 1, 1000)
        try:
            whole = min(self.most, self.first * self.factor**steps)
        except OverflowError:
            whole = self.most
        return whole * (1.0 - (self.jitter * rng.random() if rng is not None else 0.0))


def notify(callback: Callable[[str, str], object] | None, name: str, state: str) -> None:
    """Call an `on_change` callback, if there is one; an exception that it raises is logged, not raised."""
    if callback is None:
        return
    try:
        callback(name, state)
    except Exception:
        _log.exception("on_change raised an exception for server %r, state %r", name, state)


@dataclass(slots=True)
class _Server:
    down: bool = False
    drained: bool = False
    failures: int = 0  # in a row, while up; failed probes, while down
    total: int = 0
    epoch: int = 0
    since: float = 0.0  # down since
    probe_at: float = 0.0
    probing: bool = False
    error: str = ""


class Health:
    """The states of a ring's servers, and when to probe those that are down. Safe to use from many threads.

    Parameters
    ----------
    ring
        The ring whose nodes are the servers; failures are marked on it.
    failures
        Failures in a row after which a server is down.
    backoff
        The delays between probes.
    on_change
        Called with (server, state) after a change, in the thread that made it. What it raises is logged by
        the logger `evenbins.cluster.health`.
    clock, rng
        Time in seconds, and the chance behind jitter.

    Examples
    --------
    >>> from evenbins import HashRing
    >>> now = [0.0]
    >>> ring = HashRing(["a:1", "b:1"])
    >>> health = Health(ring, backoff=Backoff(first=0.5, jitter=0), clock=lambda: now[0])
    >>> health.failed("a:1", OSError("refused")), ring.states["a:1"]
    (True, 'down')
    >>> health.due()
    []
    >>> now[0] = 0.5
    >>> health.due()
    ['a:1']
    >>> health.recovered("a:1"); ring.states["a:1"]
    'up'
    """

    def __init__(
        self,
        ring: HashRing,
        *,
        failures: int = 1,
        backoff: Backoff | None = None,
        on_change: Callable[[str, str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._needed = arguments.integer("failures", failures, 1, 1000, "Leave it out for 1")
        self._ring, self._clock, self._on_change = ring, clock, on_change
        self._backoff = backoff or Backoff()
        self._rng = rng or random.Random()
        self._lock = threading.RLock()
        self._servers = {name: _Server() for name in ring.names}
        reset_in_children(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.RLock()
        self.abandon_probes()  # their senders are in the parent

    def epoch(self, name: str) -> int:
        """Return the number of a server's present life; a request takes it along for `failed`."""
        server = self._servers.get(name)
        return server.epoch if server is not None else 0

    def failed(
        self, name: str, error: BaseException, *, epoch: int | None = None, at_once: bool = False
    ) -> bool:
        """Report that a request met no living server; return whether that took it down now.

        `epoch` is the server's life in which the request began: a report of another one is ignored. With
        `at_once` it is down, whatever came before: for checks that count by themselves.
        """
        with self._lock:
            server = self._servers.get(name)
            if server is None or (epoch is not None and epoch != server.epoch):
                return False
            server.total += 1
            server.error = _one_line(error)
            if server.down:
                return False
            server.failures += 1
            if server.failures < self._needed and not at_once:
                return False
            server.down, server.failures = True, 1
            server.epoch += 1
            server.since = self._clock()
            server.probe_at = server.since + self._backoff.delay(1, self._rng)
            if not server.drained:
                self._ring.mark_down(name)
        notify(self._on_change, name, "down")
        return True

    def succeeded(self, name: str) -> None:
        """Report that a request was served: failures in a row begin anew."""
        server = self._servers.get(name)
        if server is not None and server.failures and not server.down:  # looked at without the lock: cheap
            with self._lock:
                if not server.down:
                    server.failures = 0

    def due(self) -> list[str]:
        """Return the servers to probe now; the caller reports `recovered` or `probe_failed` for each."""
        now = self._clock()
        with self._lock:
            names = [
                name
                for name, server in self._servers.items()
                if server.down and not server.probing and server.probe_at <= now
            ]
            for name in names:
                self._servers[name].probing = True
        return names

    def abandon_probes(self) -> None:
        """Forget the probes under way, whose outcome will not be reported: they are due again."""
        with self._lock:
            for server in self._servers.values():
                server.probing = False

    def next_probe(self) -> float | None:
        """Return the seconds until a probe is due; None if no server waits for one."""
        with self._lock:
            times = [each.probe_at for each in self._servers.values() if each.down and not each.probing]
        return max(0.0, min(times) - self._clock()) if times else None

    def recovered(self, name: str) -> None:
        """Report that a probe was answered: the server serves again, and its keys return to it."""
        with self._lock:
            server = self._servers.get(name)
            if server is None or not server.down:
                return
            server.down = server.probing = False
            server.failures = 0
            server.epoch += 1
            if not server.drained:
                self._ring.mark_up(name)
            state = self.state(name)
        notify(self._on_change, name, state)

    def probe_failed(self, name: str, error: BaseException) -> None:
        """Report that a probe failed: the next one comes later."""
        with self._lock:
            server = self._servers.get(name)
            if server is None or not server.down:
                return
            server.probing = False
            server.failures += 1
            server.error = _one_line(error)
            server.probe_at = self._clock() + self._backoff.delay(server.failures, self._rng)

    def add(
        self,
        name: str,
        weight: float = 1.0,
        *,
        prepared: contextlib.AbstractContextManager[object] | None = None,
    ) -> None:
        """Add a server to the ring; those that are there keep all keys but its share.

        `prepared` is entered before requests can come to the new server; if the ring refuses it, that error
        passes through. It is not entered if there is a server of this name.
        """
        with self._lock:
            with contextlib.nullcontext() if prepared is None or name in self._servers else prepared:
                self._ring.add_node(name, weight)
            self._servers[name] = _Server()
        notify(self._on_change, name, "up")

    def remove(self, name: str) -> None:
        """Take a server off the ring for good."""
        with self._lock:
            self._ring.remove_node(name)
            del self._servers[name]
        notify(self._on_change, name, "removed")

    def drain(self, name: str) -> None:
        """Let a server take nothing new; requests under way go on."""
        with self._lock:
            self._server(name).drained = True
            self._ring.drain(name)
        notify(self._on_change, name, "draining")

    def undrain(self, name: str) -> None:
        """Let a drained server serve again, as soon as it is alive."""
        with self._lock:
            server = self._server(name)
            if not server.drained:
                return
            server.drained = False
            if server.down:
                self._ring.mark_down(name)
            else:
                self._ring.mark_up(name)
            state = self.state(name)
        notify(self._on_change, name, state)

    def state(self, name: str) -> str:
        """Return "up", "down" or "draining"."""
        with self._lock:
            server = self._server(name)
            return "draining" if server.drained else "down" if server.down else "up"

    def alive(self, name: str) -> bool:
        """Return whether a server is not down; drained or not."""
        server = self._servers.get(name)
        return server is not None and not server.down

    def status(self) -> dict[str, dict[str, Any]]:
        """Return for each server its state, failures, last error, and seconds down and to the next probe."""
        now = self._clock()
        with self._lock:
            return {
                name: {
                    "state": self.state(name),
                    "alive": not server.down,
                    "failures": server.total,
                    "error": server.error or None,
                    "down_seconds": now - server.since if server.down else 0.0,
                    "next_probe_seconds": max(0.0, server.probe_at - now) if server.down else None,
                }
                for name, server in self._servers.items()
            }

    def _server(self, name: str) -> _Server:
        server = self._servers.get(name)
        if server is None:
            known = ", ".join(repr(each) for each in sorted(self._servers)[:5]) or "none"
            raise KeyError(f"there is no server {name!r}; there are {known}")
        return server


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: " + " ".join(str(error).split())[:200]

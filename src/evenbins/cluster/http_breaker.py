"""A circuit breaker: a replica that keeps answering with errors gets no requests for a while.

    closed ── `failures` within `window` seconds ──▶ open ── after `pause` ──▶ half-open: one request
      ▲                                               ▲                              │
      └────────────── it succeeds ────────────────────┼──────────────────────────────┤
                                                      └── it fails: twice the pause ─┘

Failures are connects that failed and answers of 500 to 599, whoever asked for them. So that a client which
provokes errors cannot close all replicas, a pool opens the breakers of at most half of its replicas.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Breaker"]

_LONGEST = 16  # times the pause


class Breaker:
    """The breaker of one replica; time is an argument.

    >>> breaker = Breaker(failures=2, window=10.0, pause=5.0)
    >>> breaker.failed(0.0), breaker.failed(1.0)
    (False, True)
    >>> breaker.open(1.0)
    >>> [breaker.blocks(now) for now in (1.0, 5.9, 6.0)]
    [True, True, False]
    >>> breaker.begin(6.0); breaker.blocks(6.0)
    True
    >>> breaker.succeeded(); breaker.blocks(6.0), breaker.state
    (False, 'closed')
    """

    __slots__ = ("_failures", "_limit", "_pause", "_pauses", "_until", "_window", "state")

    def __init__(self, failures: int, window: float, pause: float) -> None:
        self._limit, self._window, self._pause = failures, window, pause
        self._failures: deque[float] = deque(maxlen=failures)
        self._until, self._pauses = 0.0, 1
        self.state = "closed"

    def blocks(self, now: float) -> bool:
        """Return whether no request may go to the replica now."""
        return self.state == "half-open" or (self.state == "open" and now < self._until)

    def begin(self, now: float) -> None:
        """Note that a request goes to the replica: the first after a pause decides."""
        if self.state == "open" and now >= self._until:
            self.state = "half-open"

    def failed(self, now: float) -> bool:
        """Note a failure; return whether the breaker should open."""
        self._failures.append(now)
        if self.state == "half-open":
            return True
        full = len(self._failures) == self._limit
        return self.state == "closed" and full and now - self._failures[0] <= self._window

    def open(self, now: float) -> None:
        """Open it: after a failed trial for twice as long as before."""
        self._pauses = min(2 * self._pauses, _LONGEST) if self.state == "half-open" else 1
        self.state, self._until = "open", now + self._pause * self._pauses

    def succeeded(self) -> None:
        """Note an answer that is no error."""
        if self.state == "half-open":
            self.state, self._pauses = "closed", 1
            self._failures.clear()

    def abandoned(self) -> None:
        """Note that a request ended without an answer: the next one decides."""
        if self.state == "half-open":
            self.state = "open"

"""What a cluster would do with your log: a trace replayed through cache servers that fill up and fail.

    trace ──▶ policy ──▶ server: holds it (hit) │ has room (miss, stored) │ full (the policy's next server)

The model is that of the chen paper (sections 5.2, 5.3, Appendix K), written out in
cpp/study/simulate_cache.hpp; docs/cache_replay.md explains it and says what it found. The number
to compare is `additional`: misses beyond those of one cache without limits that never fails and evicts urls
after the same time, `baseline_misses`. Nobody can have fewer.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

from evenbins import _show, _study
from evenbins._arguments import error, integer, real, type_error
from evenbins._arguments import seed as checked_seed
from evenbins._bulk import checked_threads
from evenbins.study.traces import Trace

__all__ = ["CONFIGURATIONS", "POLICIES", "CacheConfiguration", "CacheReport", "CacheRun", "replay_cache"]

POLICIES = ("plain", "clockwise", "rehash", "jump")
_MOST_MINUTES = 1e9
_MOST_SLOTS = 2**18


@dataclass(frozen=True)
class CacheConfiguration:
    """Servers and their limits; parameters as for `replay_cache`."""

    servers: int
    cache_size: int | None
    limit: int | None
    stale_minutes: float
    served_minutes: float
    recovery_minutes: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON's types."""
        return asdict(self)


def _table(name: str, *columns: tuple[int, int, float, float, float, int]) -> dict[str, CacheConfiguration]:
    """Read a table of Appendix K: servers, cache size, stale, served, recovery, limit."""
    return {
        f"{name}-{number}": CacheConfiguration(servers, size, limit, stale, served, recovery)
        for number, (servers, size, stale, served, recovery, limit) in enumerate(columns, 1)
    }


CONFIGURATIONS: dict[str, CacheConfiguration] = {
    **_table("aol", (150, 100, 300, 10, 20, 50), (1000, 15, 300, 10, 10, 15),
             (100, 100, 120, 5, 10, 50), (20, 300, 120, 3, 10, 500)),
    **_table("indiana", (500, 500, 30, 5, 10, 2000), (1000, 300, 120, 5, 10, 1000),
             (800, 300, 15, 5, 7, 1000), (200, 3000, 30, 3, 15, 5000)),
}  # fmt: skip
"""Tables 3 and 4 of the chen paper: aol-1 … aol-4, indiana-1 … indiana-4."""


@dataclass(frozen=True)
class CacheRun:
    """One replay: one policy, one placement of the servers.

    Parameters
    ----------
    policy, seed
        Which; runs of one seed have their servers in the same places.
    misses
        Requests not answered from a cache.
    additional
        Those beyond `CacheReport.baseline_misses`.
    dropped
        Of the misses, those that were stored nowhere: no server that was up had room.
    failures
        How often a server failed.
    searches, longest
        Servers a request asked until one took it, that one included: mean, and the most.
    max_load
        Urls in a cache, at most.
    max_requests
        Requests that a server worked on at once, at most; one above the limit is a failure.
    """

    policy: str
    seed: int
    misses: int
    additional: int
    dropped: int
    failures: int
    searches: float
    longest: int
    max_load: int
    max_requests: int


@dataclass(frozen=True, repr=False)
class CacheReport:
    """What a trace did to the servers, under each policy.

    Parameters
    ----------
    trace
        The trace's name.
    requests, distinct, minutes
        What it holds.
    configuration, copies
        The servers.
    baseline_misses
        Misses of one cache without limits.
    runs
        One for each policy and seed, by policy.
    """

    trace: str
    requests: int
    distinct: int
    minutes: float
    configuration: CacheConfiguration
    copies: int
    baseline_misses: int
    runs: tuple[CacheRun, ...]

    @property
    def policies(self) -> tuple[str, ...]:
        """Which were replayed."""
        return tuple(dict.fromkeys(run.policy for run in self.runs))

    def values(self, policy: str, quantity: str) -> list[float]:
        """Return a quantity of `CacheRun` for all seeds of a policy.

        Raises
        ------
        ValueError
            If the policy was not replayed, or there is no such quantity.
        """
        if policy not in self.policies:
            remedy = "Name one of these, or replay it"
            raise error("policy", f"one of {', '.join(self.policies)}", policy, remedy)
        if quantity not in _QUANTITIES:
            rule = f"one of {', '.join(_QUANTITIES)}"
            raise error("quantity", rule, quantity, "See CacheRun")
        return [float(getattr(run, quantity)) for run in self.runs if run.policy == policy]

    def mean(self, policy: str, quantity: str) -> float:
        """Return its mean over the seeds; raises as `values`."""
        return statistics.fmean(self.values(policy, quantity))

    def sd(self, policy: str, quantity: str) -> float | None:
        """Return its standard deviation over the seeds, None if there is one only; raises as `values`."""
        numbers = self.values(policy, quantity)
        return statistics.stdev(numbers) if len(numbers) > 1 else None

    def ratio(self, policy: str, other: str) -> float | None:
        """Return the additional misses of a policy over those of another; None if the other has none."""
        below = self.mean(other, "additional")
        return self.mean(policy, "additional") / below if below else None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON's types."""
        return asdict(self) | {"runs": [asdict(run) for run in self.runs]}

    def __repr__(self) -> str:
        rows: list[tuple[str, object]] = [("trace", self.trace), ("requests", self.requests)]
        rows += [("baseline_misses", self.baseline_misses)]
        rows += [(f"additional_{policy}", self.mean(policy, "additional")) for policy in self.policies]
        return _show.line("CacheReport", rows)

    def __str__(self) -> str:
        c = self.configuration
        lines = [
            f"{self.trace}: {self.requests:_} requests, {self.distinct:_} distinct, "
            f"{self.minutes:_.0f} minutes",
            f"{c.servers:_} servers, {self.copies} {'copy' if self.copies == 1 else 'copies'} each; "
            f"cache {_bound(c.cache_size)}, stale after {c.stale_minutes:g} minutes; served in "
            f"{c.served_minutes:g}, fails above {_bound(c.limit)} at once, back after {c.recovery_minutes:g}",
            f"misses without limits and failures: {self.baseline_misses:_}",
            "",
        ]
        cells = [["policy", *_QUANTITIES]]
        for policy in self.policies:
            cells.append([policy])
            for quantity in _QUANTITIES:
                sd = self.sd(policy, quantity)
                cells[-1].append(
                    _show.text("", _whole(self.mean(policy, quantity)))
                    + ("" if sd is None else f" ± {_show.text('', _whole(float(f'{sd:.2g}')))}")
                )
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for each in cells:
            row = [cell.rjust(width) for cell, width in zip(each, widths, strict=True)]
            lines.append("  ".join([each[0].ljust(widths[0]), *row[1:]]))
        return "\n".join(lines)


_QUANTITIES = tuple(each.name for each in fields(CacheRun) if each.name not in ("policy", "seed"))


def _whole(number: float) -> float:
    return int(number) if float(number).is_integer() else number


def _bound(number: int | None) -> str:
    return "unlimited" if number is None else f"{number:_}"


def replay_cache(
    trace: Trace,
    *,
    servers: int,
    cache_size: int | None,
    limit: int | None,
    stale_minutes: float,
    served_minutes: float,
    recovery_minutes: float,
    policies: Iterable[str] = ("clockwise", "jump"),
    copies: int = 1,
    seed: int = 0,
    repeat: int = 1,
    threads: int = 1,
    progress: Callable[[int, int], object] | None = None,
) -> CacheReport:
    """Replay a trace through cache servers, once for each policy.

    Parameters
    ----------
    trace
        As `traces.read_trace` or `traces.synthetic_trace` gives it.
    servers
        How many there are; times `copies` at most 2**18.
    cache_size
        Urls that a server's cache holds, at most; None: no bound.
    limit
        Requests that a server works on at once; with one more it fails. None: it never fails.
    stale_minutes
        A url that a server was not asked for in this time is evicted.
    served_minutes
        How long a server works on a request.
    recovery_minutes
        How long a failed server is gone; it comes back with an empty cache.
    policies
        Of "plain", "clockwise" (CH-BL), "rehash", "jump" (RJ-CH).
    copies
        Places of a server on the circle.
    seed
        Of the places of servers and urls, 0 to 2**64 - 1.
    repeat
        Replays of each policy, with seed, seed + 1, …
    threads
        Threads that share the replays; no number depends on it.
    progress
        Called some times a second with (requests done, requests of all replays).

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it must be.

    Examples
    --------
    >>> from evenbins.study.traces import synthetic_trace
    >>> trace = synthetic_trace(requests=20_000, urls=4000, minutes=600, seed=1)
    >>> report = replay_cache(trace, servers=20, cache_size=70, limit=None, stale_minutes=60,
    ...                       served_minutes=5, recovery_minutes=10)
    >>> report.ratio("clockwise", "jump") > 5
    True
    """
    if not isinstance(trace, Trace):
        remedy = "Pass what evenbins.study.traces.read_trace returns"
        raise type_error("trace", "a Trace", trace, remedy)
    if not len(trace):
        raise ValueError(f"trace must have requests; got none in {trace.name}. Pass one that is not empty")
    chosen = _checked_policies(policies)
    servers = integer("servers", servers, 1, _MOST_SLOTS, "Pass the number of servers")
    copies = integer("copies", copies, 1, _MOST_SLOTS // servers, "Pass 1, or a few virtual copies")
    size, most = cache_size, limit
    if size is not None:
        size = integer("cache_size", size, 0, 2**63, "Pass None for no bound")
    if most is not None:
        most = integer("limit", most, 0, 2**63, "Pass None for servers that never fail")
    stale = _milliseconds("stale_minutes", stale_minutes)
    served = _milliseconds("served_minutes", served_minutes)
    recovery = _milliseconds("recovery_minutes", recovery_minutes)
    first = checked_seed(seed)
    repeat = integer("repeat", repeat, 1, 10_000, "Pass how many replays to make of each policy")
    wanted = [(policy, (first + r) % 2**64) for policy in chosen for r in range(repeat)]
    baseline, distinct, counts = _study.simulate_cache(
        trace.times, trace.digests, servers, copies, size, most, stale, served, recovery, wanted,
        checked_threads(threads), progress,
    )  # fmt: skip
    runs = []
    for (policy, own), numbers in zip(wanted, counts, strict=True):
        misses, dropped, failures, routed, searches, *most_of = numbers
        mean = searches / routed if routed else 0.0
        runs.append(CacheRun(policy, own, misses, misses - baseline, dropped, failures, mean, *most_of))
    configuration = CacheConfiguration(
        servers, size, most, float(stale_minutes), float(served_minutes), float(recovery_minutes)
    )
    return CacheReport(
        trace.name, len(trace), distinct, trace.minutes, configuration, copies, baseline, tuple(runs)
    )


def _checked_policies(policies: Iterable[str]) -> list[str]:
    remedy = "Pass a list such as ['clockwise', 'jump']"
    if isinstance(policies, str):
        raise type_error("policies", "a list of names", policies, remedy)
    chosen = list(dict.fromkeys(policies))
    for each in chosen:
        if each not in POLICIES:
            raise error("policies", f"of {', '.join(POLICIES)}", each, remedy)
    if not chosen:
        raise error("policies", "at least one name", chosen, remedy)
    return chosen


def _milliseconds(name: str, minutes: float) -> int:
    rule = f"a number from 0 to {_MOST_MINUTES:g}"
    number = real(name, minutes, rule, "Pass minutes")
    if not 0 <= number <= _MOST_MINUTES:
        raise error(name, rule, minutes, "Pass minutes")
    return round(number * 60_000)

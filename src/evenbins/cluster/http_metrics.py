"""Counts of a router, and their text in Prometheus' exposition format."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["FIRST_BYTE", "FIRST_BYTE_HELP", "PREFIX", "Family", "Metrics"]

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_BOUND_NAMES = (*map(str, _BOUNDS), "+Inf")
_Labels = tuple[tuple[str, str], ...]
Family = tuple[str, str, str, Sequence[tuple[_Labels, float]]]
"""Name without PREFIX, kind, description, values by labels."""
PREFIX = "evenbins_route_"
FIRST_BYTE = "first_byte_seconds"
FIRST_BYTE_HELP = "Time until an upstream's head came."


class Metrics:
    """What a router has done so far.

    Attributes
    ----------
    requests : answers by (upstream, status)
    broken : requests by upstream whose connection broke, or whose answer was malformed
    rejected : requests that met no upstream, by reason: full, queue, down, bad_request
    placed : places by reason: hash, prefix, new, load, retry
    blocks, held : blocks of prompts, and those of them that their replica should have had
    aborted : requests that ended early or in an error, by reason: client, slow_client, upstream, timeout
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.broken: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.aborted: Counter[str] = Counter()
        self.placed: Counter[str] = Counter()
        self.blocks = self.held = 0
        self._first_byte: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def answered(self, upstream: str, status: int, seconds: float) -> None:
        """Count an answer, and the time until its head came."""
        self.requests[upstream, status] += 1
        counts = self._first_byte.setdefault(upstream, [0] * (len(_BOUNDS) + 1))
        counts[bisect.bisect_left(_BOUNDS, seconds)] += 1
        self._seconds[upstream] += seconds  # type: ignore[assignment]  # a Counter of floats adds as well

    def place(self, reason: str, blocks: int, held: int) -> None:
        """Count a place at a replica."""
        self.placed[reason] += 1
        self.blocks += blocks
        self.held += held

    def families(self, status: Mapping[str, Any]) -> list[Family]:
        """Return all counts but the histogram, with the router's status of this moment."""
        servers: Mapping[str, Mapping[str, Any]] = status["upstreams"]

        def by_upstream(part: str) -> list[tuple[_Labels, float]]:
            return [((("upstream", name),), each[part]) for name, each in servers.items() if part in each]

        def by_reason(counts: Mapping[str, int]) -> list[tuple[_Labels, float]]:
            return [((("reason", name),), n) for name, n in sorted(counts.items())]

        answers: list[tuple[_Labels, float]] = [
            ((("upstream", name), ("code", str(code))), n)
            for (name, code), n in sorted(self.requests.items())
        ]
        up = [((("upstream", name),), int(each["state"] == "up")) for name, each in servers.items()]
        opened = [
            ((("upstream", name),), int(each["breaker"] != "closed"))
            for name, each in servers.items()
            if "breaker" in each
        ]
        return [
            ("requests_total", "counter", "Answers of upstreams, by status.", answers),
            ("in_flight", "gauge", "Requests under way.", by_upstream("in_flight")),
            ("load", "gauge", "Work that was sent and is not done.", by_upstream("load")),
            ("up", "gauge", "1 if the upstream takes new requests.", up),
            ("breaker_open", "gauge", "1 if the upstream's breaker is not closed.", opened),
            ("failures_total", "counter", "Connects and health checks that failed.", by_upstream("failures")),
            ("broken_total", "counter", "Requests whose connection or answer broke.", by_upstream("broken")),
            ("placed_total", "counter", "Places given, by reason.", by_reason(self.placed)),
            ("blocks_total", "counter", "Blocks of the prompts of requests.", [((), self.blocks)]),
            ("held_blocks_total", "counter", "Those that their replica should have.", [((), self.held)]),
            ("waiting", "gauge", "Requests that wait for a place.", [((), status["waiting"])]),
            ("jumps_total", "counter", "Requests sent elsewhere because their upstream was full.",
             [((), status["jumps"])]),
            ("repeats_total", "counter", "Requests repeated at another upstream.",
             [((), status["repeats"])]),
            ("rejected_total", "counter", "Requests that met no upstream.", by_reason(self.rejected)),
            ("aborted_total", "counter", "Requests that ended early or in errors.", by_reason(self.aborted)),
            ("shared_errors_total", "counter", "Shared loads that could not be read.",
             [((), status["shared_errors"])]),
        ]  # fmt: skip

    def first_byte_buckets(self) -> dict[str, tuple[list[tuple[str, int]], float]]:
        """Return by upstream the counts up to each bound, and the sum of the seconds."""
        found: dict[str, tuple[list[tuple[str, int]], float]] = {}
        for upstream, counts in sorted(self._first_byte.items()):
            sums = itertools.accumulate(counts)
            found[upstream] = list(zip(_BOUND_NAMES, sums, strict=True)), self._seconds[upstream]
        return found

    def text(self, status: Mapping[str, Any]) -> str:
        """Write all counts, with the router's status of this moment."""
        return "".join(map(_write_family, self.families(status))) + self._histogram()

    def _histogram(self) -> str:
        name = PREFIX + FIRST_BYTE
        lines = [f"# HELP {name} {FIRST_BYTE_HELP}", f"# TYPE {name} histogram"]
        for upstream, (buckets, seconds) in self.first_byte_buckets().items():
            label = _format_labels((("upstream", upstream),))[1:-1]
            lines += [f'{name}_bucket{{{label},le="{bound}"}} {count}' for bound, count in buckets]
            lines.append(f"{name}_sum{{{label}}} {seconds}")
            lines.append(f"{name}_count{{{label}}} {buckets[-1][1]}")
        return "\n".join(lines) + "\n"


def _write_family(family: Family) -> str:
    name, kind, about, values = family
    name = PREFIX + name
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_format_labels(labels)} {value}" for labels, value in values]
    return "\n".join(lines) + "\n"


def _format_labels(labels: _Labels) -> str:
    if not labels:
        return ""
    escapes = {ord("\\"): r"\\", ord('"'): r"\"", ord("\n"): r"\n"}
    return "{" + ",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels) + "}"

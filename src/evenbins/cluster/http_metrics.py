"""Counts of a router, and their text in Prometheus' exposition format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Metrics"]

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_Labels = tuple[tuple[str, str], ...]


class Metrics:
    """What a router has done so far.

    Attributes
    ----------
    requests : answers by (upstream, status)
    broken : requests by upstream whose connection broke, or whose answer was malformed
    rejected : requests that met no upstream, by reason: full, queue, down, bad_request
    aborted : requests that ended early or in an error, by reason: client, slow_client, upstream, timeout
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.broken: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.aborted: Counter[str] = Counter()
        self._first_byte: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def answered(self, upstream: str, status: int, seconds: float) -> None:
        """Count an answer, and the time until its head came."""
        self.requests[upstream, status] += 1
        counts = self._first_byte.setdefault(upstream, [0] * (len(_BOUNDS) + 1))
        counts[sum(seconds > bound for bound in _BOUNDS)] += 1
        self._seconds[upstream] += seconds  # type: ignore[assignment]  # a Counter of floats adds as well

    def text(self, status: Mapping[str, Any]) -> str:
        """Write all counts, with the router's status of this moment."""
        servers: Mapping[str, Mapping[str, Any]] = status["upstreams"]
        rows = [
            _family("requests_total", "counter", "Answers of upstreams, by status.",
                    (((("upstream", name), ("code", str(code))), n)
                     for (name, code), n in sorted(self.requests.items()))),
            _family("in_flight", "gauge", "Requests under way.",
                    (((("upstream", name),), each["in_flight"]) for name, each in servers.items())),
            _family("up", "gauge", "1 if the upstream takes new requests.",
                    (((("upstream", name),), int(each["state"] == "up")) for name, each in servers.items())),
            _family("failures_total", "counter", "Connects and health checks that failed.",
                    (((("upstream", name),), each["failures"]) for name, each in servers.items())),
            _family("broken_total", "counter", "Requests whose connection or answer broke.",
                    (((("upstream", name),), each["broken"]) for name, each in servers.items())),
            _family("jumps_total", "counter", "Requests sent elsewhere because their upstream was full.",
                    [((), status["jumps"])]),
            _family("repeats_total", "counter", "Requests repeated at another upstream.",
                    [((), status["repeats"])]),
            _family("rejected_total", "counter", "Requests that met no upstream.",
                    (((("reason", name),), n) for name, n in sorted(self.rejected.items()))),
            _family("aborted_total", "counter", "Requests that ended early or in an error.",
                    (((("reason", name),), n) for name, n in sorted(self.aborted.items()))),
            _family("shared_errors_total", "counter", "Shared loads that could not be read.",
                    [((), status["shared_errors"])]),
            self._histogram(),
        ]  # fmt: skip
        return "".join(rows)

    def _histogram(self) -> str:
        name = "evenbins_route_first_byte_seconds"
        lines = [f"# HELP {name} Time until an upstream's head came.", f"# TYPE {name} histogram"]
        for upstream, counts in sorted(self._first_byte.items()):
            label = _format_labels((("upstream", upstream),))[1:-1]
            total = 0
            for bound, count in zip((*map(str, _BOUNDS), "+Inf"), counts, strict=True):
                total += count
                lines.append(f'{name}_bucket{{{label},le="{bound}"}} {total}')
            lines.append(f"{name}_sum{{{label}}} {self._seconds[upstream]:.6f}")
            lines.append(f"{name}_count{{{label}}} {total}")
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, about: str, values: Iterable[tuple[_Labels, float]]) -> str:
    name = "evenbins_route_" + name
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_format_labels(labels)} {value}" for labels, value in values]
    return "\n".join(lines) + "\n"


def _format_labels(labels: _Labels) -> str:
    if not labels:
        return ""
    escapes = {ord("\\"): r"\\", ord('"'): r"\"", ord("\n"): r"\n"}
    return "{" + ",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels) + "}"

"""A soak: random operations on one structure beside an oracle that is exact, and audits at each tenth.

    step ──▶ operations, answers compared with the oracle     (Soak.step; failures are counted)
    audit ─▶ stats() against a recount, invariants, bounds            (Soak.audit; after each tenth)
    memory ▶ resident bytes after each tenth, and open descriptors    (flat: `Outcome.grew`)

An operation is a key: added, removed, asked, changed, singly or in a bulk call. Each soak runs in a process
of its own, so that its memory is its own. What goes wrong is counted and described, not raised: a soak
goes on to its end, and the report says with which seed to see it again.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Case", "Outcome", "Soak", "memory", "run"]

_TENTHS = 10
_SLACK = 24 << 20  # of the allocator, and of caches that Python fills once


@dataclass
class Outcome:
    """What came of a soak."""

    name: str
    setting: str
    seed: int
    operations: int = 0
    seconds: float = 0.0
    lost: int = 0  # keys, values or answers that are not the oracle's
    broken: int = 0  # bounds
    drift: int = 0  # of stats() against a recount, invariants
    audits: int = 0
    said: list[str] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    rss: list[int] = field(default_factory=list)  # bytes, after each tenth
    descriptors: list[int] = field(default_factory=list)

    @property
    def grew(self) -> int:
        """Bytes that the process has more at its end than after the third tenth; 0 within the slack."""
        more = self.rss[-1] - max(self.rss[:3])
        return more if more > _SLACK + max(self.rss[:3]) // 20 else 0

    @property
    def fine(self) -> bool:
        """Return whether nothing was lost, and nothing grew."""
        leaks = max(self.descriptors[3:], default=0) > max(self.descriptors[:3]) + 2
        return not (self.lost or self.broken or self.drift or self.grew or leaks)

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self) | {"grew": self.grew, "fine": self.fine}


class Soak:
    """One structure and its oracle; subclasses say what a step and an audit are."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.lost = self.broken = self.drift = 0
        self.said: list[str] = []
        self.done: Counter[str] = Counter()

    def step(self) -> int:
        """Make one step; return its number of operations."""
        raise NotImplementedError

    def audit(self) -> None:
        """Compare all there is with the oracle."""
        raise NotImplementedError

    def close(self) -> None:
        """End what was begun."""

    # --- what steps say ---------------------------------------------------------------------------------

    def lose(self, count: int, what: str) -> None:
        """Note keys, values or answers that are wrong."""
        if count:
            self.lost += int(count)
            self._say(f"{count} × {what}")

    def holds(self, true: object, what: str) -> None:
        """Note a bound that is broken unless it holds."""
        if not true:
            self.broken += 1
            self._say(f"bound broken: {what}")

    def same(self, found: object, recount: object, what: str) -> None:
        """Note statistics that differ from a recount."""
        if found != recount:
            self.drift += 1
            self._say(f"{what}: {found!r}, recounted {recount!r}")

    def sound(self, structure: Any) -> None:
        """Note invariants that are broken."""
        try:
            structure._check()
        except AssertionError as error:
            self.drift += 1
            self._say(f"invariant: {error}")

    def _say(self, text: str) -> None:
        if len(self.said) < 10:
            self.said.append(text)


@dataclass(frozen=True)
class Case:
    """A soak by name, and its share of all operations of its setting."""

    name: str
    make: Callable[[np.random.Generator], Soak]
    share: float = 1.0


def memory() -> int:
    """Return the resident bytes of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def run(case: Case, setting: str, operations: int, seed: int, number: int) -> Outcome:
    """Run one soak; the same arguments give the same one."""
    out = Outcome(case.name, setting, seed)
    soak = case.make(np.random.default_rng([seed, number]))
    begun = time.perf_counter()
    try:
        for tenth in range(1, _TENTHS + 1):
            while out.operations < operations * tenth // _TENTHS:
                out.operations += soak.step()
            soak.audit()
            out.audits += 1
            out.rss.append(memory())
            out.descriptors.append(len(os.listdir("/proc/self/fd")))
    except Exception as error:  # what no step expects: counted as a loss, and the other soaks go on
        soak.lose(1, f"{type(error).__name__}: {error}")
        out.rss.append(memory())
        out.descriptors.append(len(os.listdir("/proc/self/fd")))
    finally:
        out.seconds = time.perf_counter() - begun
        soak.close()
    out.lost, out.broken, out.drift, out.said = soak.lost, soak.broken, soak.drift, soak.said
    out.done = dict(soak.done)
    return out

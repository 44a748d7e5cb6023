"""Growing and sharded filters, one key at a time: against a plain filter, and the slowest `add`.

A growing filter of one stage and a sharded filter do what a plain one does, and a little more: they should
cost at most twice as much. With more stages a look-up of an absent key asks all of them. While the filter
grows, some key begins the next stage: the time of the slowest `add` is shown beside the median.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import Case, Contender, Limit, Within
from benchmarks.peers import Blocked, Subject
from benchmarks.shared import SEED, Sizes, all_found, comparison, count_text, int_keys, measured_facts
from evenbins import GrowingFilter, ShardedFilter

__all__ = ["composite_cases", "worst_add"]

_FPR = 0.01
_MOST_MS = 5.0


class _Growing(Blocked):
    """A growing filter of blocked stages."""

    label = "growing, one stage"
    stages = 1

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        first = 2 * capacity if self.stages == 1 else max(capacity // (2**self.stages - 2), 1)
        self.filter: Any = GrowingFilter(fpr, first=first, policy="blocked")


class _GrowingStages(_Growing):
    label = "growing, four stages"
    stages = 4


class _GrowingFill(_Growing):
    label = "growing, one stage, fill"

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self.filter = GrowingFilter(fpr, first=2 * capacity)


class _Sharded(Blocked):
    label = "sharded, 8 shards"

    def __init__(self, capacity: int, fpr: float, kind: str) -> None:
        self.filter: Any = ShardedFilter(capacity, fpr=fpr, shards=8)


_COMPOSITES = (_Growing, _Sharded, _GrowingFill, _GrowingStages)


def composite_cases(sizes: Sizes) -> Iterator[Case]:
    """Return the cases of this module, one at a time."""
    count = sizes.scalar_keys
    present, absent = int_keys(count, count)
    subjects: list[Subject] = [each(count, _FPR, "int") for each in (Blocked, *_COMPOSITES)]
    for subject in subjects:
        subject.fill(present)
    compare = partial(
        comparison,
        subjects=subjects,
        operations=count,
        facts={each.label: measured_facts(each, each.ask(absent), count) for each in subjects},
        targets=[
            Within(
                text=f"{each.label}: ≤ 2 × a plain filter", of=each.label, against=Blocked.label, at_most=2.0
            )
            for each in (_Growing, _Sharded)
        ],
        notes=f"capacity {count_text(count)}, fpr {_FPR:g}; blocked parts unless it says fill; "
        "the Python loop is part of every time.",
    )

    def check(subject: Subject, _: object) -> bool:
        return all_found(subject.ask(present))

    yield compare("composites: in, hit, int", work=lambda subject: subject.look_up_each(present), check=check)
    yield compare("composites: in, miss, int", work=lambda subject: subject.look_up_each(absent), check=check)
    yield compare(
        "composites: add, int",
        work=lambda subject: subject.add_each(present),
        prepare=lambda subject: subject.clear(),
        check=check,
    )
    many = 10 * count
    facts: dict[str, dict[str, float]] = {"fill": {}, "blocked": {}}
    yield Case(
        name=f"composites: slowest add of {count_text(many)}",
        contenders={
            f"growing, {policy}": Contender(run=partial(_slowest, policy, many, found), facts=found)
            for policy, found in facts.items()
        },
        unit="ms",
        targets=[Limit(text=f"≤ {_MOST_MS:g} ms", at_most=_MOST_MS)],
        once=True,
        notes="One by one, from the first key on; the system may interrupt any of them.",
    )


def _slowest(policy: str, count: int, facts: dict[str, float]) -> float:
    times = worst_add(policy, count)
    facts["median ns"] = float(np.median(times))
    facts["99.999 % µs"] = float(np.quantile(times, 0.99999)) / 1e3
    return float(times.max()) / 1e6


def worst_add(policy: str, count: int, fpr: float = 1e-3) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Time each `add` of so many different keys to a new growing filter: nanoseconds, in order."""
    filter_ = GrowingFilter(fpr, policy=policy)
    times = np.empty(count, dtype=np.int64)
    step = 1 << 16
    add, clock = filter_.add, time.perf_counter_ns
    for start in range(0, count, step):
        keys: Sequence[int] = np.random.default_rng([SEED, start]).integers(0, 2**63, step).tolist()
        found = []
        for key in keys[: count - start]:
            before = clock()
            add(key)
            found.append(clock() - before)
        times[start : start + len(found)] = found
    return times

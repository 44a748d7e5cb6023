"""The count-min sketch against that of `datasketches`, on the same stream with the same rows and counters.

    update     a Zipf stream of uint64, once from the beginning; target: ten times as fast
    estimate   all keys of the stream, in its order

datasketches takes one key a call, so the fastest way through it is a map of its bound method over a list,
which is made off the clock; ours takes the array. Its weights are doubles, ours 64-bit integers that cannot
wrap. Sketches are new for each round, made off the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.harness import Case, Contender, Target, import_peer
from benchmarks.shared import FULL, SEED, Sizes, count_text, main_of
from evenbins.sketches import CountMinSketch, plan_countmin

__all__ = ["main_sketches", "sketch_cases"]

_EPSILON = _DELTA = 1e-3
_OURS: dict[str, dict[str, Any]] = {
    "evenbins classic": {},
    "evenbins two-hash": {"construction": "two-hash"},
    "evenbins conservative": {"conservative": True},
}
_PEER = "datasketches"


def sketch_cases(sizes: Sizes = FULL, *, peer: bool = True) -> Iterator[Case]:
    """Return the cases of this module, one at a time."""
    count = sizes.bulk_keys
    keys = np.random.default_rng(SEED).zipf(1.1, count).astype(np.uint64)
    key = int(keys[0])
    truth = int(np.count_nonzero(keys == key))
    plan = plan_countmin(_EPSILON, _DELTA)
    current: dict[str, Any] = {}
    add: dict[str, Contender] = {}
    ask: dict[str, Contender] = {}

    def renew(label: str, make: Callable[[], Any]) -> Callable[[], None]:
        def prepare() -> None:
            current[label] = make()

        return prepare

    for label, arguments in _OURS.items():
        add[label] = Contender(
            run=lambda label=label: current[label].add_many(keys),  # type: ignore[misc]
            prepare=renew(label, lambda given=arguments: CountMinSketch(_EPSILON, _DELTA, **given)),  # type: ignore[misc]
            check=lambda _, label=label: current[label].count(key) >= truth,  # type: ignore[misc]
            facts={"MiB": CountMinSketch(_EPSILON, _DELTA, **arguments).nbytes / 2**20},
        )
        ask[label] = Contender(
            run=lambda label=label: current[label].count_many(keys),  # type: ignore[misc]
            check=lambda counts: len(counts) == count and int(counts[0]) >= truth,
        )
    if peer:
        count_min = import_peer("datasketches", _PEER).count_min_sketch
        items = keys.tolist()
        add[_PEER] = Contender(
            run=lambda: deque(map(current[_PEER].update, items), maxlen=0),
            prepare=renew(_PEER, lambda: count_min(plan.depth, plan.width)),
            check=lambda _: current[_PEER].get_estimate(key) >= truth,
            facts={"MiB": 8 * plan.depth * plan.width / 2**20},
        )
        ask[_PEER] = Contender(
            run=lambda: list(map(current[_PEER].get_estimate, items)),
            check=lambda counts: len(counts) == count and counts[0] >= truth,
        )
    goal = Target(text="≥ 10 × faster than datasketches", against=[_PEER], at_least=10.0)
    notes = (
        f"A Zipf stream (exponent 1.1) of {count_text(count)} uint64, epsilon = delta = 1e-3: {plan.depth} "
        f"rows of {plan.width} counters (two-hash: wider); one thread."
    )
    yield Case(
        name=f"count-min, update, {count_text(count)} uint64", contenders=add, operations=count,
        targets=[goal], notes=notes,
    )  # fmt: skip
    yield Case(
        name=f"count-min, estimate, {count_text(count)} uint64", contenders=ask, operations=count, notes=notes
    )


def main_sketches(
    quick: bool = False, rounds: int | None = None, json_path: str | None = None, markdown: bool = False
) -> int:
    """Run the cases, print the tables, write the JSON; the exit status: 0, or 2 if it cannot run."""
    return main_of("sketches", sketch_cases, {"datasketches": _PEER}, quick, rounds, json_path, markdown)

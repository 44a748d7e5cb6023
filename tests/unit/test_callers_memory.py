"""Bulk calls while another thread writes to the arrays they were given: no answer is wrong enough to matter.

Bulk calls read arrays in place and without the GIL. Whoever changes an array meanwhile gets any answer for
its keys, but the structure must stay sound: what is derived from a key (its digest, bucket, page, load) and
the key itself have to come from one read of it.

A row of STRUCTURES names a structure and its bulk calls. Each is called again and again while a thread
permutes the arrays; then every invariant is checked, and that the structure still works.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from kinds import KINDS, Kind

from evenbins import (
    ChainedTable,
    CountMinSketch,
    GrowingFilter,
    HashRing,
    HeavyHitters,
    MultilevelTable,
    ShardedFilter,
)
from evenbins.tables.chained import POLICIES
from evenbins.tables.multilevel_plan import SCHEMES
from evenbins.tables.summaries import InterpolationSummary, MultipleBloomSummary, SingleFilterSummary

N = 8000  # keys of an array; they are permuted, so that no more than these ever come
ROUNDS = 4
KEYS = np.arange(10**6, 10**6 + N) * 7919

Call = Callable[[Any, npt.NDArray[Any], npt.NDArray[Any]], object]


@dataclass(frozen=True)
class Structure:
    """How to make one for N keys, and its bulk calls on an array of keys and one of small numbers."""

    name: str
    make: Callable[[Path], Any]
    calls: tuple[Call, ...]
    keys: npt.NDArray[Any] = field(default_factory=lambda: KEYS)


TABLE_CALLS: tuple[Call, ...] = (
    lambda t, keys, numbers: t.insert_many(keys, numbers),
    lambda t, keys, numbers: t.get_many(keys, default=0),
    lambda t, keys, numbers: t.contains_many(keys[::2]),
    lambda t, keys, numbers: t.delete_many(keys[: N // 2]) if _can_delete(t) else None,
    lambda t, keys, numbers: t.insert_many(keys[::-1], 5),
)
FILTER_CALLS: tuple[Call, ...] = (
    lambda f, keys, numbers: f.add_many(keys),
    lambda f, keys, numbers: f.contains_many(keys, threads=2),
    lambda f, keys, numbers: f.add_many(keys.view(np.uint64), digests=True, threads=2),
    lambda f, keys, numbers: f.contains_many(keys.view(np.uint64), digests=True),
    lambda f, keys, numbers: f.add_new_many(keys, threads=2),
)
COUNTING_CALLS: tuple[Call, ...] = (
    *FILTER_CALLS,
    lambda f, keys, numbers: f.remove_many(keys),
    lambda f, keys, numbers: f.count_many(keys, threads=2),
)
SKETCH_CALLS: tuple[Call, ...] = (
    lambda s, keys, numbers: s.add_many(keys, numbers),
    lambda s, keys, numbers: s.add_many(keys),
)
SUMMARY_CALLS: tuple[Call, ...] = (
    lambda s, keys, numbers: s.add_many(keys.view(np.uint64), numbers.astype(np.uint8), digests=True),
    lambda s, keys, numbers: s.add_many(keys, numbers),
    lambda s, keys, numbers: s.level_many(keys.view(np.uint64), digests=True),
    lambda s, keys, numbers: s.remove_many(keys, numbers) if s._can_remove else None,
)
RING_CALLS: tuple[Call, ...] = (
    lambda r, keys, numbers: r.assign_many(keys, indices=True),
    lambda r, keys, numbers: r.locate_many(keys, indices=True),
    lambda r, keys, numbers: r.node_many(keys, indices=True),
    lambda r, keys, numbers: r.release_many(keys[::3]),
)


def _can_delete(table: Any) -> bool:
    plan = table.plan
    kind = None if getattr(plan, "summary", None) is None else plan.summary.kind
    return kind not in ("single-filter", "multiple-bloom") or plan.rebuild_threshold > 0


def _table(name: str, keys: npt.NDArray[Any] = KEYS, **arguments: Any) -> Structure:
    return Structure(name, lambda _: MultilevelTable(2 * N, **arguments), TABLE_CALLS, keys)


def _filter(kind: Kind) -> Structure:
    """Make the row of a filter; it is for 1000 keys, as in other tests, so 500 keys come repeatedly."""
    calls = COUNTING_CALLS if kind.repeats else FILTER_CALLS
    return Structure(f"filter-{kind.name}", lambda _: kind(1000), calls, np.tile(KEYS[:500], N // 500))


STRUCTURES = [
    *(_table(scheme, scheme=scheme) for scheme in SCHEMES),
    *(_table(f"{scheme}-interpolation", scheme=scheme, summary="interpolation") for scheme in SCHEMES),
    *(
        _table(f"{scheme}-{summary}", scheme=scheme, summary=summary)
        for scheme in ("standard", "conservative", "second-chance")
        for summary in (
            "single-filter",
            "multiple-bloom",
            "counting-single-filter",
            "counting-multiple-bloom",
        )
    ),
    *(
        _table(f"lazy-{summary}", scheme="standard", summary=summary, deletions="lazy")
        for summary in ("single-filter", "multiple-bloom")
    ),
    _table("digests", KEYS.astype("S12"), key_dtype="digest"),
    _table("unsigned", KEYS.astype(np.uint64), key_dtype="uint64", value_dtype="float64"),
    *(
        Structure(f"chained-{policy}", lambda _, policy=policy: ChainedTable(N, policy=policy), TABLE_CALLS)  # type: ignore[misc]
        for policy in POLICIES
    ),
    *map(_filter, KINDS),
    Structure("growing", lambda _: GrowingFilter(1e-3, first=1000, policy="blocked"), FILTER_CALLS),
    Structure("sharded", lambda _: ShardedFilter(N, shards=3), FILTER_CALLS),
    Structure("count-min", lambda _: CountMinSketch(0.01, 0.01), SKETCH_CALLS),
    Structure(
        "count-min-conservative", lambda _: CountMinSketch(0.01, 0.01, conservative=True), SKETCH_CALLS
    ),
    Structure("heavy-hitters", lambda _: HeavyHitters(50, epsilon=0.01, delta=0.01), SKETCH_CALLS),
    Structure("interpolation-summary", lambda _: InterpolationSummary(4 * N, levels=3), SUMMARY_CALLS),
    Structure("single-filter-summary", lambda _: SingleFilterSummary(N, levels=3), SUMMARY_CALLS),
    Structure("bloom-summary", lambda _: MultipleBloomSummary(N, levels=3, counting=True), SUMMARY_CALLS),
    *(
        Structure(
            f"ring-{policy}",
            lambda _, policy=policy: HashRing(list("abcdefg"), policy=policy, epsilon=0.2),
            RING_CALLS,
        )  # type: ignore[misc]
        for policy in ("jump", "clockwise", "rehash")
    ),
]


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda each: each.name)
def test_an_array_that_changes_meanwhile_leaves_a_sound_structure(
    structure: Structure, tmp_path: Path
) -> None:
    made = structure.make(tmp_path)
    keys, numbers = structure.keys.copy(), np.arange(N) % 3 + 1
    others = [np.roll(structure.keys, 1000), structure.keys[::-1].copy(), np.roll(structure.keys, 3)]
    done = threading.Event()

    def scribble() -> None:
        while not done.is_set():
            for other in others:
                keys[:] = other
                numbers[:] = numbers[::-1].copy()

    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        for _ in range(ROUNDS):
            for call in structure.calls:
                call(made, keys, numbers)
    finally:
        done.set()
        thread.join()
    made._check()
    for call in structure.calls:
        call(made, keys, numbers)
    made._check()

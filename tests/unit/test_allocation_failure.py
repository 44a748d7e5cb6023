"""No memory for one of its allocations: every structure raises MemoryError and stays as it promises to be.

Each row of CASES is one operation of one structure. It runs with its first allocation failing, with its
second, and so on (tests/allocations.py); after each failure the structure's own `_check` passes, no key that
was there before is gone, and the same call with memory succeeds.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from allocations import Case, Injector
from kinds import KINDS

import evenbins
from evenbins import (
    GrowingFilter,
    ShardedFilter,
)

OLD = np.arange(600)  # keys that are there before
NEW = np.arange(10_000, 10_600)
LISTED = [f"key {i}" for i in range(600)]  # an iterable, which goes through other buffers than an array
LATER = {int(key): int(key) + 1 for key in OLD}  # values after an update; before it a value is its key


@dataclass
class State:
    """A structure, a second one of its kind for merges, and what it must hold whatever failed."""

    it: Any
    folder: Path
    other: Any = None
    gone: set[int] = field(default_factory=set)  # old keys that the operation may have deleted
    data: bytes = b""


CASES: dict[str, Case] = {}


def add_cases(
    name: str,
    make: Callable[[Path], State],
    check: Callable[[State], object],
    **operations: Callable[[State], object],
) -> None:
    """Add a row for each operation, under the name "structure: operation"."""
    for operation, operate in operations.items():
        CASES[f"{name}: {operation}"] = Case(make, operate, check)


def loaded(state: State, load: Callable[[], Any]) -> None:
    """Load a structure from what was stored in advance, and compare."""
    assert load() == state.it


def save_and_stay_whole(state: State) -> None:
    """Save over the file that is there."""
    state.it.save(state.folder / "file")


COMMON: dict[str, Callable[[State], object]] = {
    "copy": lambda s: s.it.copy(),
    "to_bytes": lambda s: s.it.to_bytes(),
    "from_bytes": lambda s: loaded(s, lambda: type(s.it).from_bytes(s.data)),
    "save": save_and_stay_whole,
    "load": lambda s: loaded(s, lambda: evenbins.load(s.folder / "file")),
    "open": lambda s: loaded(s, lambda: type(s.it).open(s.folder / "file")),
    "pickle": lambda s: loaded(s, lambda: pickle.loads(pickle.dumps(s.it))),
    "deepcopy": lambda s: loaded(s, lambda: copy.deepcopy(s.it)),
    "stats": lambda s: s.it.stats(),
    "clear_copy": lambda s: s.it.copy().clear(),
}


def stored(state: State) -> State:
    """Write the structure to a file and to bytes, for the operations that read them."""
    state.data = state.it.to_bytes()
    (state.folder / "file").write_bytes(state.data)
    return state


# --- filters ---------------------------------------------------------------------------------------------


def filter_state(make: Callable[[], Any]) -> Callable[[Path], State]:
    def state(folder: Path) -> State:
        it, other = make(), make()
        it.add_many(OLD)
        other.add_many(NEW)
        return stored(State(it, folder, other))

    return state


def check_filter(state: State) -> None:
    state.it._check()
    assert state.it.contains_many(OLD).all()
    assert type(state.it).load(state.folder / "file").contains_many(OLD).all()


def merge(state: State) -> None:
    state.it |= state.other


BULK: dict[str, Callable[[State], object]] = {
    "add_many": lambda s: s.it.add_many(NEW),
    "add_many_threads": lambda s: s.it.add_many(np.arange(20_000), threads=3),
    "merge": merge,
    "copy": lambda s: s.it.copy(),
}
FILTERS: dict[str, Callable[[State], object]] = {
    **BULK,
    "add_many_listed": lambda s: s.it.add_many(LISTED),
    "contains_many": lambda s: s.it.contains_many(OLD, threads=2),
    "contains_many_listed": lambda s: s.it.contains_many(LISTED),
    "union": lambda s: s.it | s.other,
    **COMMON,
}
COUNTING: dict[str, Callable[[State], object]] = {
    "remove_many": lambda s: s.it.remove_many(s.gone),
    "count_many": lambda s: s.it.count_many(OLD),
}
WHOLE = {
    "standard",
    "blocked-512",
    "balanced",
    "multilevel",
    "fill-256",
    "two-choice",
    "counting",
    "counting-blocked",
}
for kind in KINDS:
    add_cases(kind.name, filter_state(kind), check_filter, **(FILTERS if kind.name in WHOLE else BULK))
add_cases("growing", filter_state(lambda: GrowingFilter(1e-3)), check_filter, **FILTERS)
add_cases(
    "sharded",
    filter_state(lambda: ShardedFilter(2000, policy="blocked", shards=3, fpr=1e-3)),
    check_filter,
    **FILTERS,
)


@pytest.fixture(scope="session")
def injector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injector]:
    """The server process, shared by all rows that this worker runs."""
    with Injector(tmp_path_factory.mktemp("allocations")) as server:
        yield server


@pytest.mark.parametrize("name", CASES)
def test_an_allocation_that_fails_leaves_the_structure_whole(injector: Injector, name: str) -> None:
    injector.run("test_allocation_failure", name)

"""No memory for one of its allocations: every structure raises MemoryError and stays as it promises to be.

Each row of CASES is one operation of one structure. It runs with its first allocation failing, with its
second, and so on (tests/allocations.py); after each failure the structure's own `_check` passes, no key that
was there before is gone, and the same call with memory succeeds.
"""

from __future__ import annotations

import functools
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from allocations import Case, Injector
from kinds import KINDS, Kind

from evenbins import (
    ChainedTable,
    CountMinSketch,
    FingerprintFilter,
    GrowingFilter,
    HashRing,
    HeavyHitters,
    MultilevelTable,
    PagedTable,
    ShardedFilter,
)
from evenbins.filters import plan_of_core
from evenbins.tables.summary_plan import KINDS as SUMMARIES

OLD = np.arange(600)  # keys that are there before
NEW = np.arange(10_000, 10_600)
TEXTS = [f"key {i}" for i in range(600)]  # from an iterable: other buffers than an array's
Operations = dict[str, Callable[[Any], object]]

CASES: dict[str, Case] = {}


@dataclass
class State:
    """A structure `it`, another one to merge with, and its file."""

    it: Any
    folder: Path
    other: Any = None
    data: bytes = b""

    @property
    def file(self) -> Path:
        """The file that `stored` wrote."""
        return self.folder / "file"


def add_cases(
    name: str, make: Callable[[Path], Any], check: Callable[[Any], object], operations: Operations
) -> None:
    """Add a row for each operation, under the name "structure: operation"."""

    def stored(folder: Path) -> State:
        """Write the structure to bytes and to a file, for the operations that read them."""
        state: State = make(folder)
        state.data = state.it.to_bytes()
        if isinstance(state.it, ShardedFilter):
            state.it.save(state.file)
        else:
            state.file.write_bytes(state.data)
        return state

    def check_stored(state: State) -> None:
        """Assert that the file holds what it held: `save` replaces it whole or not at all."""
        check(state)
        check(State(type(state.it).load(state.file), state.folder))

    for operation, operate in operations.items():
        in_file = FILES.get(operation) is operate
        case = Case(stored, operate, check_stored) if in_file else Case(make, operate, check)
        CASES[f"{name}: {operation}"] = case


def same(state: State, load: Callable[[], Any]) -> None:
    """Load the structure from what was stored, and compare."""
    assert load() == state.it


def merge(state: State) -> None:
    state.it |= state.other


FILES: Operations = {
    "to_bytes": lambda s: s.it.to_bytes(),
    "from_bytes": lambda s: same(s, lambda: type(s.it).from_bytes(s.data)),
    "save": lambda s: s.it.save(s.file),
    "load": lambda s: same(s, lambda: type(s.it).load(s.file)),
    "open": lambda s: same(s, lambda: type(s.it).open(s.file)),
    "pickle": lambda s: same(s, lambda: pickle.loads(pickle.dumps(s.it))),
}
COPIES: Operations = {"copy": lambda s: s.it.copy(), "stats": lambda s: s.it.stats()}

# --- filters ---------------------------------------------------------------------------------------------


def filter_state(make: Callable[[], Any]) -> Callable[[Path], State]:
    """Return what makes a filter of the OLD keys, and one of the NEW ones."""

    @functools.cache
    def original() -> tuple[Any, Any]:
        it, other = make(), make()
        it.add_many(OLD)
        other.add_many(NEW)
        return it, other

    return lambda folder: State(original()[0].copy(), folder, original()[1])


def from_plan(kind: Kind) -> Callable[[], Any]:
    """Return what makes a filter from its plan: planning one may take a second."""
    plan = functools.cache(lambda: kind().plan)
    return lambda: kind.cls.from_plan(plan())


def check_filter(state: State) -> None:
    state.it._check()
    assert state.it.contains_many(OLD).all()


BULK: Operations = {
    "add_many": lambda s: s.it.add_many(NEW),
    "add_many in threads": lambda s: s.it.add_many(np.arange(4096), threads=2),
    "add_new_many in threads": lambda s: s.it.add_new_many(np.arange(4096), threads=2),
    "copy": lambda s: s.it.copy(),
}
FILTERS: Operations = {
    **BULK,
    "add_many of texts": lambda s: s.it.add_many(TEXTS),
    "contains_many": lambda s: s.it.contains_many(np.arange(4096), threads=2),
    "contains_many of texts": lambda s: s.it.contains_many(TEXTS),
    "union": lambda s: s.it | s.other,
    **COPIES,
    **FILES,
}
COUNTING: Operations = {
    "remove_many": lambda s: s.it.remove_many(OLD[:200]),
    "count_many": lambda s: s.it.count_many(np.arange(4096), threads=2),
}
# Each implementation with all its operations; the other shapes of it with those that depend on the shape. To
# count the set bits of a standard filter the core allocates nothing.
WHOLE = {"standard", "blocked-512", "multilevel", "fill-256", "two-choice", "counting", "counting-blocked"}
for kind in KINDS:
    whole = {name: call for name, call in FILTERS.items() if (kind.name, name) != ("standard", "stats")}
    add_cases(kind.name, filter_state(from_plan(kind)), check_filter, whole if kind.name in WHOLE else BULK)
    if kind.repeats:  # without a check of keys: what is removed twice takes others with it
        add_cases(kind.name, filter_state(from_plan(kind)), lambda s: s.it._check(), COUNTING)
add_cases(
    "growing",
    filter_state(lambda: GrowingFilter(1e-3)),
    check_filter,
    {**FILTERS, "merge": merge, "clear": lambda s: s.it.copy().clear()},
)
add_cases(
    "sharded",
    filter_state(lambda: ShardedFilter(2000, policy="blocked", shards=3, fpr=1e-3)),
    check_filter,
    {**FILTERS, "merge": merge},
)


def growing_fingerprints(folder: Path) -> State:
    """Make a fingerprint filter in the middle of its growth: two of four blocks have moved."""
    core = (64, 23, 64, 1, 100, 626, 1, 12)
    plan: Any = plan_of_core("fingerprint", core, capacity=620, seed=0, hashing="lanes")
    it, other = FingerprintFilter.from_plan(plan), FingerprintFilter.from_plan(plan)
    for key in OLD.tolist():
        it.add(key)
    other.add_many(NEW)
    return State(it, folder, other)


add_cases(
    "fingerprint, growing",
    growing_fingerprints,
    check_filter,
    {
        "add": lambda s: [s.it.add(key) for key in NEW.tolist()],
        "add_many in threads": lambda s: s.it.add_many(np.arange(20_000), threads=2),
        "copy": lambda s: s.it.copy(),
        "to_bytes": FILES["to_bytes"],
        "merge": merge,
        "difference": lambda s: s.it - s.other,
        "doubled": lambda s: s.it.doubled(threads=2),
        "freeze": lambda s: s.it.freeze(),
    },
)


def add_merges(name: str, make: Callable[[], Any]) -> None:
    """Add the merge of a filter whose parts have overflow lists: afterwards all are merged, or none."""
    state = filter_state(make)

    @functools.cache
    def whole() -> tuple[Any, Any]:
        before = state(Path()).it
        return before, before | state(Path()).other

    def check(merged: State) -> None:
        check_filter(merged)
        assert merged.it in whole()

    add_cases(name, state, check, {"merge": merge})


add_merges("growing, lists", lambda: GrowingFilter(1e-3, first=300, policy="multilevel"))
add_merges("sharded, lists", lambda: ShardedFilter(2000, policy="multilevel", shards=3, fpr=1e-3))

# --- sketches --------------------------------------------------------------------------------------------


def sketch_state(**arguments: Any) -> Callable[[Path], State]:
    """Return what makes a sketch that has counted the OLD keys, and one of the NEW ones."""

    def state(folder: Path) -> State:
        it, other = (CountMinSketch(0.01, 0.01, **arguments) for _ in range(2))
        it.add_many(OLD)
        other.add_many(NEW)
        return State(it, folder, other)

    return state


def check_sketch(state: State) -> None:
    state.it._check()
    assert (state.it.count_many(OLD) >= 1).all()


SKETCHES: Operations = {
    "add_many": lambda s: s.it.add_many(NEW, weights=3),
    "add_many of texts": lambda s: s.it.add_many(TEXTS),
    "count_many": lambda s: s.it.count_many(NEW),
    "union": lambda s: s.it | s.other,
    **COPIES,
    **FILES,
}
add_cases("count-min", sketch_state(), check_sketch, SKETCHES)
del SKETCHES["union"]  # which conservative counters do not have
add_cases("count-min conservative", sketch_state(conservative=True), check_sketch, SKETCHES)


def hitters_state(folder: Path) -> State:
    """Return heavy hitters that have counted the OLD keys, and others of the NEW ones."""
    it, other = (HeavyHitters(20, epsilon=0.01, delta=0.01) for _ in range(2))
    it.add_many(OLD % 100)
    other.add_many(NEW % 100)
    return State(it, folder, other)


def check_hitters(state: State) -> None:
    state.it._check()
    assert all(state.it.count(int(key)) >= 6 for key in range(100))


add_cases(
    "heavy hitters",
    hitters_state,
    check_hitters,
    {
        "add_many": lambda s: s.it.add_many(NEW % 100),
        "add_many of texts": lambda s: s.it.add_many(TEXTS),
        "count_many": lambda s: s.it.count_many(NEW),
        "union": lambda s: s.it | s.other,
        "merge": merge,
        "clear": lambda s: s.it.copy().clear(),
        **COPIES,
        **FILES,
    },
)

# --- tables in memory ------------------------------------------------------------------------------------

GONE = OLD[:200]  # what operations delete
KEPT = OLD[200:]  # what they do not


def table_state(make: Callable[[], Any]) -> Callable[[Path], State]:
    """Return what makes a table of the OLD keys, each with itself as value, and one of the NEW ones."""

    @functools.cache
    def original() -> tuple[Any, Any]:
        it, other = make(), make()
        it.insert_many(OLD, OLD)
        other.insert_many(NEW, NEW)
        return it, other

    return lambda folder: State(original()[0].copy(), folder, original()[1])


def check_table(state: State) -> None:
    it = state.it
    it._check()
    values = it.get_many(KEPT)
    assert ((values == KEPT) | (values == KEPT + 1)).all()
    found = it.get_many(OLD, default=-1)
    assert ((found == OLD) | (found == OLD + 1) | (found == -1)).all()
    assert sum(1 for _ in it) == len(it)


MAPPINGS: Operations = {
    "insert_many": lambda s: s.it.insert_many(NEW, NEW),
    "insert_many over old keys": lambda s: s.it.insert_many(OLD, OLD + 1),
    "insert_many of a list": lambda s: s.it.insert_many(NEW.tolist(), NEW.tolist()),
    "delete_many": lambda s: s.it.delete_many(GONE),
    "get_many": lambda s: s.it.get_many(OLD, default=0, threads=2),
    "contains_many": lambda s: s.it.contains_many(NEW),
    "update": lambda s: s.it.update(s.other),
    "update from a dict": lambda s: s.it.update({5: 6}),
    "items": lambda s: list(s.it.items()),
    "grown": lambda s: s.it.grown(4000),
    **COPIES,
    **FILES,
}
SAVED_AS_PAGES: Operations = {"save as pages": lambda s: s.it.save(s.folder / "pages", layout="pages")}
GUIDED: Operations = {
    "insert_many": MAPPINGS["insert_many"],
    "delete_many": MAPPINGS["delete_many"],
    "summary": lambda s: s.it.summary,
    "copy": lambda s: s.it.copy(),
    "stats": lambda s: s.it.stats(),
}
add_cases(
    "multilevel table",
    table_state(lambda: MultilevelTable(2000)),
    check_table,
    {**MAPPINGS, **SAVED_AS_PAGES, "attach_summary": lambda s: s.it.attach_summary("interpolation")},
)
for summary in SUMMARIES:
    lazy = summary in ("single-filter", "multiple-bloom")
    make = functools.partial(
        MultilevelTable, 2000, scheme="standard", summary=summary, deletions="lazy" if lazy else False
    )
    operations = {**GUIDED, "rebuild": lambda s: s.it.rebuild()} if lazy else GUIDED
    add_cases(f"table with {summary}", table_state(make), check_table, operations)
add_cases("chained table", table_state(lambda: ChainedTable(2000)), check_table, MAPPINGS)

# --- the one-read table ----------------------------------------------------------------------------------


@functools.cache
def paged_files(capacity: int, keys: int) -> dict[str, bytes]:
    """Return the files of a table of the keys 0, 1, ...; `keys` 0: until its summary's list is about to grow.

    The list holds what lies above level 1: it has 571 slots here, and grows when three quarters are taken.
    """
    with tempfile.TemporaryDirectory() as folder:
        with PagedTable.create(Path(folder) / "table", capacity, durable=False) as it:
            it.insert_many(np.arange(keys), np.arange(keys))
            while not keys and sum(it.stats().level_keys[1:]) < 415:
                more = np.arange(len(it), len(it) + 10)
                it.insert_many(more, more)
        return {each.name: each.read_bytes() for each in Path(folder).iterdir()}


def paged_state(capacity: int, keys: int, *, changed: bool = False) -> Callable[[Path], PagedTable]:
    """Return what makes such a table, open for writing; `changed`: with changes in the journal."""

    def state(folder: Path) -> PagedTable:
        for name, data in paged_files(capacity, keys).items():
            (folder / name).write_bytes(data)
        it = PagedTable.open(folder / "table", writable=True, durable=False)
        if changed:
            it.delete_many(np.arange(100))
        return it

    return state


def items_of(it: PagedTable) -> tuple[Any, Any]:
    """Return its keys, ascending, and their values."""
    keys, values, *_ = it._page(0, 0, 1 << 20)
    order = np.argsort(keys)
    return keys[order], values[order]


def check_paged(it: PagedTable) -> None:
    """Assert that what is on disk, after a crash now, is what is in memory."""
    it._check()
    kept = np.arange(1000, 1500)
    assert (it.get_many(kept) == kept).all()
    crashed = Path(it.path + "-crashed")
    for suffix in "", ".journal":
        shutil.copyfile(it.path + suffix, f"{crashed}{suffix}")
    with PagedTable.open(crashed, writable=True, durable=False, verify=True) as found:
        found._check()
        keys, values = items_of(it)
        assert (keys == items_of(found)[0]).all()
        assert (values == items_of(found)[1]).all()
    crashed.unlink()


FEW = np.arange(20_000, 20_012)  # in pages that are no neighbours: several reads, in threads
PAGED: Operations = {
    "set": lambda t: t.__setitem__(5000, 1),
    "set an old key": lambda t: t.__setitem__(700, 1),
    "delete": lambda t: t.pop(300, None),
    "insert_many": lambda t: t.insert_many(np.arange(20_000, 20_400), 1),
    "insert_many of few": lambda t: t.insert_many(FEW, 1),
    "insert_many over old keys": lambda t: t.insert_many(np.arange(600, 1000), 1),
    "delete_many": lambda t: t.delete_many(np.arange(100, 600)),
    "delete_many of few": lambda t: t.delete_many(np.arange(100, 112)),
    "checkpoint": lambda t: t.checkpoint(),
}
add_cases(
    "paged",
    paged_state(4000, 2000),
    check_paged,
    {
        **{name: call for name, call in PAGED.items() if name != "checkpoint"},  # there is nothing to do
        "get_many": lambda t: t.get_many(FEW - 19_000),
        "contains_many": lambda t: t.contains_many(np.arange(0, 2000, 150)),
        "items": lambda t: list(t.items()),
        "stats": lambda t: t.stats(),
    },
)
add_cases("paged with a journal", paged_state(4000, 2000, changed=True), check_paged, PAGED)
add_cases(
    "paged, nearly full",
    paged_state(2000, 0),
    check_paged,
    {name: PAGED[name] for name in ("delete_many", "insert_many over old keys")}
    | {
        "insert_many": lambda t: t.insert_many(np.arange(20_000, 20_040), 1),
        "set": lambda t: [t.__setitem__(20_000 + i, 1) for i in range(20)],
    },
)


@dataclass
class Closed:
    """A table in a file, closed or left behind by a crash."""

    path: Path


def closed(folder: Path) -> Closed:
    paged_state(4000, 2000, changed=True)(folder).close()
    return Closed(folder / "table")


def crashed(folder: Path) -> Closed:
    paged_state(4000, 2000, changed=True)(folder)._close()  # the changes are in the journal
    return Closed(folder / "table")


def check_closed(it: Closed) -> None:
    """Assert that nobody has it open, and that it is whole."""
    with PagedTable.open(it.path, writable=True, durable=False) as found:
        found._check()
        assert (found.get_many(np.arange(100, 1500)) == np.arange(100, 1500)).all()


OPENING: Operations = {
    "open": lambda it: PagedTable.open(it.path).close(),
    "open for writing": lambda it: PagedTable.open(it.path, writable=True).close(),
    "open and verify": lambda it: PagedTable.open(it.path, verify=True).close(),
}
add_cases("paged, closed", closed, check_closed, OPENING)
add_cases("paged, after a crash", crashed, check_closed, OPENING)


def create(folder: Path) -> None:
    (folder / "new").unlink(missing_ok=True)
    PagedTable.create(folder / "new", 500, durable=False).close()


def no_leftovers(folder: Path) -> None:
    assert not list(folder.glob(".evenbins-*"))


add_cases("paged, new", lambda folder: folder, no_leftovers, {"create": create})

# --- rings -----------------------------------------------------------------------------------------------

NODES = [f"a node with a long name, number {i}" for i in range(6)]


def ring_state(**arguments: Any) -> Callable[[Path], State]:
    """Return what makes a ring to which the OLD keys have been assigned."""

    def state(folder: Path) -> State:
        it = HashRing(NODES, **arguments)
        it.assign_many(OLD)
        return State(it, folder)

    return state


def check_ring(state: State) -> None:
    it = state.it
    it._check()
    assert sum(it.loads().values()) == sum(it.keys_of(name).size for name in it.names)
    assert all(it.locate(int(key)) in it.names for key in KEPT)


RINGS: Operations = {
    "assign_many": lambda s: s.it.assign_many(NEW),
    "assign_many of texts": lambda s: s.it.assign_many(TEXTS),
    "assign": lambda s: [s.it.assign(i) for i in range(700, 2100)],
    "node_many": lambda s: s.it.node_many(NEW),
    "locate_many": lambda s: s.it.locate_many(OLD),
    "release_many": lambda s: s.it.release_many(GONE),
    "keys_of": lambda s: s.it.keys_of(NODES[0]),
    "add_node": lambda s: s.it.add_node("another node with a long name") if len(s.it.names) == 6 else None,
    "remove_node": lambda s: s.it.remove_node(NODES[0]) if NODES[0] in s.it.names else None,
    "mark_down": lambda s: s.it.mark_down(NODES[1]),
    "set_weight": lambda s: s.it.set_weight(NODES[2], 3.0),
    "fingerprint": lambda s: s.it.fingerprint(assigned=True),
    **COPIES,
    **FILES,
}
add_cases("ring", ring_state(), check_ring, RINGS)
add_cases("bounded ring", ring_state(epsilon=0.25), check_ring, RINGS)


@pytest.fixture(scope="session")
def injector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injector]:
    """The server process, shared by all rows that this worker runs."""
    with Injector(tmp_path_factory.mktemp("allocations")) as server:
        yield server


@pytest.mark.parametrize("name", CASES)
def test_an_allocation_that_fails_leaves_the_structure_whole(injector: Injector, name: str) -> None:
    injector.run("test_allocation_failure", name)

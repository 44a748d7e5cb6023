"""Every structure of the library, with its public calls: for the suites of threads, forks and signals.

    STRUCTURES    how to make one, write to it in bulk, and look its keys up
    FIXED         the same for structures that are built from all their keys, and never change
    calls(made)   every public call of a structure as a function of no arguments but the structure's `Scene`;
                  tests/unit/test_calls_together.py fails when a public name of a class is missing here

A new structure is added here once; test_concurrency.py and test_calls_together.py then run over it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evenbins import (
    BalancedBloomFilter,
    BlockedBloomFilter,
    BloomFilter,
    ChainedTable,
    CountingBloomFilter,
    CountMinSketch,
    Deduplicator,
    FingerprintFilter,
    FuseFilter,
    GrowingFilter,
    HashRing,
    HeavyHitters,
    HyperLogLog,
    MultilevelTable,
    PagedTable,
    ShardedFilter,
    WindowFilter,
)
from evenbins.filters import plan_of_core
from evenbins.study.counter_summary import CounterSummary
from evenbins.tables.summaries import InterpolationSummary, MultipleBloomSummary, SingleFilterSummary

KEYS = np.random.default_rng(21).integers(0, 2**62, 12_000)
WRITERS = [KEYS[:5000], KEYS[3000:8000], KEYS[6000:11_000]]  # neighbours share two thousand keys
CAPACITY = len(KEYS)


@dataclass(frozen=True)
class Structure:
    """How to make one, write to it in bulk, and ask it.

    whole   a bulk call on an array is one step for others; else it is several, in order
    """

    name: str
    make: Callable[[Path], Any]
    write: Callable[[Any, Any, int], object]
    holds: Callable[[Any, Any], Any]
    state: Callable[[Any], Any] = operator.methodcaller("to_bytes")
    erase: Callable[[Any, Any], object] | None = None
    whole: bool = True

    def new(self, folder: Path) -> Any:
        """Make an empty one; planning is done once."""
        if self.name == "PagedTable":
            return self.make(folder)
        return _first(self.name).copy()

    def filled(self, folder: Path, keys: Any) -> Any:
        made = self.new(folder)
        self.write(made, keys, 0)
        return made


@dataclass(frozen=True)
class Fixed(Structure):
    """One that is built from its keys: `write` is refused."""

    def new(self, folder: Path) -> Any:
        return self.filled(folder, KEYS[:0])

    def filled(self, folder: Path, keys: Any) -> Any:
        del folder
        return FuseFilter.from_keys(keys, threads=2)


@functools.cache
def _first(name: str) -> Any:
    return BY_NAME[name].make(Path())


def _filter(name: str, make: Callable[[], Any], *, whole: bool = True, threads: int = 1) -> Structure:
    return Structure(
        name,
        lambda _: make(),
        lambda f, keys, _: f.add_many(keys, threads=threads),
        lambda f, keys: f.contains_many(keys, threads=threads),
        whole=whole,
    )


def _table(name: str, make: Callable[[Path], Any], **more: Any) -> Structure:
    return Structure(
        name,
        make,
        lambda t, keys, writer: t.insert_many(keys, writer),
        lambda t, keys: t.contains_many(keys),
        erase=lambda t, keys: t.delete_many(keys),
        **more,
    )


def _summary(cls: Any, **arguments: Any) -> Structure:
    return Structure(
        cls.__name__,
        lambda _: cls(3 * CAPACITY, **arguments),
        lambda s, keys, _: s.add_many(keys, 1),
        lambda s, keys: s.level_many(keys) > 0,
    )


def _sketch(name: str, **arguments: Any) -> Structure:
    return Structure(
        name,
        lambda _: CountMinSketch(0.01, 0.01, **arguments),
        lambda s, keys, writer: s.add_many(keys, writer + 1),
        lambda s, keys: s.count_many(keys) > 0,
    )


def _deduplicator(name: str, **arguments: Any) -> Structure:
    return Structure(
        name,
        lambda _: Deduplicator(**arguments),
        lambda d, keys, _: d.keep(keys, threads=2),
        lambda d, keys: d.contains_many(keys),
    )


def _fingerprints(is_set: int, *, grows: bool = False) -> FingerprintFilter:
    """Make a filter with room for many copies: suites add the same keys again and again."""
    core = (1600, 16, 64, 10, 100_000, 10**6, is_set, 0)
    if grows:  # through sizes for 600, 1300, 2700, … keys, four blocks and more
        core = (64, 23, 64, 1, 100_000, 606, is_set, 12)
    plan: Any = plan_of_core("fingerprint", core, capacity=CAPACITY, seed=0, hashing="lanes")
    return FingerprintFilter.from_plan(plan)


def _window() -> WindowFilter:
    """Make one in which no key expires while a suite runs."""
    core = (1600, 12, 64, 10, 100_000, 10**6, 8, 10**15, 0)
    plan: Any = plan_of_core("window", core, capacity=CAPACITY, seed=0, hashing="lanes")
    made = WindowFilter.from_plan(plan)
    made.clock = functools.partial(float, 1e9)  # so that bytes are the same
    return made


_paths = itertools.count()


def _pages(folder: Path) -> PagedTable:
    return PagedTable.create(str(folder / f"pages{next(_paths)}"), CAPACITY, durable=False)


def _guided(_: Path) -> MultilevelTable:
    return MultilevelTable(
        CAPACITY, levels=4, slots=1, scheme="standard", summary="multiple-bloom", deletions="lazy"
    )


STRUCTURES = [
    _filter("BloomFilter", lambda: BloomFilter(CAPACITY)),
    _filter("BlockedBloomFilter", lambda: BlockedBloomFilter(CAPACITY)),
    _filter("BalancedBloomFilter", lambda: BalancedBloomFilter(CAPACITY, bits_per_key=16, policy="fill")),
    _filter("BalancedBloomFilter-sequential", lambda: BalancedBloomFilter(CAPACITY, policy="sequential")),
    _filter("CountingBloomFilter", lambda: CountingBloomFilter(CAPACITY)),
    _filter("FingerprintFilter", lambda: _fingerprints(0)),
    _filter("FingerprintFilter-set", lambda: _fingerprints(1), threads=2),
    _filter("WindowFilter", _window, threads=2),
    _filter("FingerprintFilter-growing", lambda: _fingerprints(1, grows=True), threads=2),
    _filter("BloomFilter-threads", lambda: BloomFilter(CAPACITY), threads=2),
    _filter("CountingBloomFilter-threads", lambda: CountingBloomFilter(CAPACITY), threads=2),
    _filter("GrowingFilter", lambda: GrowingFilter(1e-3, first=1000, policy="blocked")),
    _filter(
        "GrowingFilter-fingerprint", lambda: GrowingFilter(1e-3, first=1000, policy="fingerprint"), threads=2
    ),
    _filter("ShardedFilter", lambda: ShardedFilter(CAPACITY, shards=4), whole=False),
    _filter("ShardedFilter-threads", lambda: ShardedFilter(CAPACITY, shards=4), whole=False, threads=2),
    _sketch("CountMinSketch"),
    _sketch("CountMinSketch-conservative", conservative=True, construction="classic"),
    Structure(
        "HeavyHitters",
        lambda _: HeavyHitters(50, epsilon=0.01, delta=0.01),
        lambda h, keys, writer: h.add_many(keys, writer + 1),
        lambda h, keys: h.count_many(keys) > 0,
        state=lambda h: h.sketch.to_bytes(),  # which of several writers came last decides what is tracked
        whole=False,
    ),
    Structure(
        "HyperLogLog",
        lambda _: HyperLogLog(10),
        lambda h, keys, _: h.add_many(keys, threads=2),
        lambda h, keys: np.array([h.count() >= 0.5 * len(keys)]),
    ),
    _deduplicator("Deduplicator"),
    _deduplicator("Deduplicator-growing", fpr=1e-3, capacity=3000),
    _deduplicator("Deduplicator-exact", exact=True),
    _table("MultilevelTable", lambda _: MultilevelTable(CAPACITY)),
    _table("MultilevelTable-with-summary", _guided),
    Structure(
        "MultilevelTable-set",
        lambda _: MultilevelTable(CAPACITY, value_dtype=None),
        lambda s, keys, _: s.add_many(keys),
        lambda s, keys: s.contains_many(keys),
        erase=lambda s, keys: s.discard_many(keys),
    ),
    _table("ChainedTable", lambda _: ChainedTable(CAPACITY)),
    _table("PagedTable", _pages, state=lambda t: dict(t.items())),
    _summary(InterpolationSummary, levels=3),
    _summary(SingleFilterSummary, levels=3),
    _summary(MultipleBloomSummary, levels=3),
    _summary(CounterSummary),
    Structure(
        "HashRing",
        lambda _: HashRing([f"server{i}" for i in range(9)], epsilon=0.1),
        lambda r, keys, _: r.assign_many(keys, indices=True),
        lambda r, keys: r.locate_many(keys, indices=True) >= 0,
        erase=lambda r, keys: r.release_many(keys),
    ),
]
FIXED = [
    Fixed(
        "FuseFilter",
        lambda _: FuseFilter.from_keys(KEYS[:0]),
        lambda f, keys, _: f.add_many(keys),
        lambda f, keys: f.contains_many(keys, threads=2),
    )
]
BY_NAME = {each.name: each for each in STRUCTURES}


# --- every public call ------------------------------------------------------------------------------------

STABLE, EXTRA = KEYS[:1000], KEYS[1000:1400]  # in all the time; added and removed by the calls


@dataclass
class Scene:
    """A structure that holds the STABLE keys, a second one of its kind, and a folder for files."""

    structure: Structure
    folder: Path
    made: Any = field(init=False)
    other: Any = field(init=False)

    def __post_init__(self) -> None:
        self.made = self.structure.filled(self.folder, STABLE)
        self.other = self.structure.filled(self.folder, EXTRA[:50])

    def path(self) -> str:
        """Return a path that no other call uses."""
        return str(self.folder / f"file{next(_paths)}")

    def check(self, *, stable: bool = True) -> None:
        """Assert the invariants, and that the STABLE keys are found."""
        if hasattr(self.made, "_check"):
            self.made._check()
        if not stable:
            self.structure.write(self.made, STABLE, 0)
        assert np.asarray(self.structure.holds(self.made, STABLE)).all(), "a key that was in is not found"

    def close(self) -> None:
        """Close what has files."""
        for each in (self.made, self.other):
            if hasattr(each, "close"):
                each.close()


Run = Callable[[Scene], object]


@dataclass(frozen=True)
class Call:
    """A public call; `clears`: the STABLE keys need not be in afterwards."""

    name: str
    run: Run
    clears: bool = False


def _with(name: str, *arguments: Any, **options: Any) -> Run:
    return lambda scene: getattr(scene.made, name)(*arguments, **options)


def _read(name: str) -> Run:
    return lambda scene: getattr(scene.made, name)


def _saved(scene: Scene) -> None:
    path = scene.path()
    scene.made.save(path)
    scene.made.__class__.load(path)
    opened = scene.made.__class__.open(path)
    assert np.asarray(scene.structure.holds(opened, STABLE[:0])).all()


def _bytes(scene: Scene) -> None:
    scene.made.__class__.from_bytes(scene.made.to_bytes())


def _merge_in(scene: Scene) -> None:
    scene.made.__ior__(scene.other)


def _united(scene: Scene) -> None:
    assert scene.made.union(scene.other)
    options = {"shards": 2} if isinstance(scene.made, ShardedFilter) else {}
    assert type(scene.made).from_keys(EXTRA, **options).contains_many(EXTRA).all()


def _compared(scene: Scene) -> None:
    """Compare with a second filter; the kinds that cannot raise a TypeError."""
    for name in ("intersection", "issubset", "issuperset", "approx_intersection"):
        with contextlib.suppress(TypeError):
            getattr(scene.made, name)(scene.other)


def _equal(scene: Scene) -> None:
    assert (scene.made == scene.other) in (True, False)
    assert scene.made == scene.made


WHOLE: dict[str, Run] = {
    "copy": lambda scene: scene.made.copy(),
    "save load open": _saved,
    "to_bytes from_bytes": _bytes,
    "pickle": lambda scene: pickle.loads(pickle.dumps(scene.made)),
    "==": _equal,
    "repr": lambda scene: repr(scene.made),
    "_repr_html_": lambda scene: getattr(scene.made, "_repr_html_", str)(),
    "stats": lambda scene: scene.made.stats().to_dict(),
    "plan from_plan": lambda scene: getattr(type(scene.made), "from_plan", bool)(scene.made.plan),
    "nbytes": _read("nbytes"),
    "seed": _read("seed"),
}
FILTER: dict[str, Run] = WHOLE | {
    "add": lambda scene: [scene.made.add(key) for key in EXTRA[:20].tolist()],
    "add_many": _with("add_many", EXTRA),
    "add_many list": _with("add_many", EXTRA.tolist(), threads=2),
    "add_new": lambda scene: [scene.made.add_new(key) for key in EXTRA[:20].tolist()],
    "add_new_many": _with("add_new_many", EXTRA, threads=2),
    "update": _with("update", EXTRA[:200].tolist()),
    "in": lambda scene: [key in scene.made for key in EXTRA[:20].tolist()],
    "contains_many": _with("contains_many", EXTRA),
    "approx_items": _with("approx_items"),
    "capacity": _read("capacity"),
    "|=": _merge_in,
    "|": lambda scene: scene.made | scene.other,
    "union from_keys bool": _united,
    "intersection issubset issuperset approx_intersection": _compared,
}
UNCHANGING: dict[str, Run] = {name: run for name, run in WHOLE.items() if name != "plan from_plan"} | {
    "plan": _read("plan"),
    "in": FILTER["in"],
    "contains_many": FILTER["contains_many"],
    "approx_items": FILTER["approx_items"],
    "capacity": FILTER["capacity"],
    "from_keys bool": lambda scene: bool(type(scene.made).from_keys(EXTRA, threads=2)),
    "intersection issubset issuperset approx_intersection": _compared,
    "add add_new add_many add_new_many update union clear": lambda scene: _refuse_changes(scene),
}
BITWISE: dict[str, Run] = FILTER | {"&=": lambda scene: scene.made.__iand__(scene.made.copy())}
COUNTING: dict[str, Run] = FILTER | {
    "+ +=": lambda scene: (scene.made + scene.other, scene.made.__iadd__(scene.other)),
    "add remove": lambda scene: (scene.made.add(-5), scene.made.remove(-5)),
    "remove_many": lambda scene: (scene.made.add_many(EXTRA), scene.made.remove_many(EXTRA)),
    "count": _with("count", 7),
    "count_many": _with("count_many", EXTRA),
    "counter_bits": _read("counter_bits"),
    "layout": _read("layout"),
}
MULTISET: dict[str, Run] = {
    name: run for name, run in FILTER.items() if name not in ("|", "|=", "union from_keys bool")
} | {
    "| |= union": lambda scene: _refuse_union(scene),
    "from_keys bool": lambda scene: bool(type(scene.made).from_keys(EXTRA)),
    "+ +=": COUNTING["+ +="],
    "add remove": COUNTING["add remove"],
    "discard": lambda scene: (scene.made.add(-5), scene.made.discard(-5)),
    "remove_many": COUNTING["remove_many"],
    "count": COUNTING["count"],
    "count_many": COUNTING["count_many"],
    "semantics max_capacity": lambda scene: (scene.made.semantics, scene.made.max_capacity),
    "doubled halved": lambda scene: scene.made.doubled(threads=2).halved(),
    "freeze": _with("freeze", 2**-8),
}
FINGERPRINT_SET: dict[str, Run] = FILTER | {
    "count": COUNTING["count"],
    "count_many": COUNTING["count_many"],
    "semantics max_capacity": MULTISET["semantics max_capacity"],
    "doubled halved": MULTISET["doubled halved"],
    "freeze": MULTISET["freeze"],
    "- ^": lambda scene: (scene.made - scene.other, scene.made ^ scene.other),
    "-= ^=": lambda scene: (scene.made.__isub__(scene.other), scene.made.__ixor__(scene.other)),
    "remove discard remove_many": lambda scene: _refuse_removal(scene),
}
WINDOW: dict[str, Run] = {
    name: run for name, run in FILTER.items() if name not in ("|", "|=", "union from_keys bool")
} | {
    "| |= union": lambda scene: _refuse_union(scene),
    "from_keys bool": lambda scene: bool(type(scene.made).from_keys(EXTRA, window=1000)),
    "clock": lambda scene: setattr(scene.made, "clock", scene.made.clock),
    "window": _read("window"),
    "steps": _read("steps"),
}
SHARDED: dict[str, Run] = FILTER | {
    "save load open": lambda scene: (scene.made.save(path := scene.path()), ShardedFilter.load(path)),
    "parts from_shards": lambda scene: ShardedFilter.from_shards(
        [each.copy() for each in scene.made.parts], CAPACITY
    ),
    "shard_of": _with("shard_of", 7),
    "plan from_plan": lambda scene: (scene.made.plan, ShardedFilter.from_plan(scene.made.sharding)),
    "shards sharding": lambda scene: (scene.made.shards, scene.made.sharding),
}


SKETCH: dict[str, Run] = WHOLE | {
    "add": lambda scene: [scene.made.add(key, 2) for key in EXTRA[:20].tolist()],
    "add_many": _with("add_many", EXTRA, 3),
    "update": _with("update", EXTRA[:200].tolist()),
    "count []": lambda scene: (scene.made.count(7), scene.made[7]),
    "count_many": _with("count_many", EXTRA),
    "inner_product": lambda scene: scene.made.inner_product(scene.other),
    "total": _read("total"),
    "|=": _merge_in,
    "|": lambda scene: scene.made | scene.other,
    "+": lambda scene: scene.made + scene.other,
}
CONSERVATIVE = {name: run for name, run in SKETCH.items() if name not in ("inner_product", "|=", "|", "+")}
HITTERS: dict[str, Run] = WHOLE | {
    "add": lambda scene: [scene.made.add(key) for key in EXTRA[:20].tolist()],
    "add_many": _with("add_many", EXTRA),
    "update": _with("update", EXTRA[:200].tolist()),
    "count []": lambda scene: (scene.made.count(7), scene.made[7]),
    "count_many": _with("count_many", EXTRA),
    "top": _with("top"),
    "most_common": _with("most_common", 3),
    "total k sketch": lambda scene: (scene.made.total, scene.made.k, scene.made.sketch.to_bytes()),
    "merge": lambda scene: scene.made.merge(scene.other),
    "|= +=": lambda scene: (scene.made.__ior__(scene.other), scene.made.__iadd__(scene.other)),
    "| +": lambda scene: (scene.made | scene.other, scene.made + scene.other),
}


DISTINCT: dict[str, Run] = WHOLE | {
    "add": lambda scene: [scene.made.add(key) for key in EXTRA[:20].tolist()],
    "add_many": _with("add_many", EXTRA, threads=2),
    "update": _with("update", EXTRA[:200].tolist()),
    "count": _with("count"),
    "|=": _merge_in,
    "|": lambda scene: scene.made | scene.other,
}


DEDUPLICATOR: dict[str, Run] = {name: run for name, run in WHOLE.items() if name != "plan from_plan"} | {
    "plan": _read("plan"),
    "keep": _with("keep", EXTRA),
    "keep list": _with("keep", EXTRA.tolist(), threads=2),
    "in": lambda scene: [key in scene.made for key in EXTRA[:20].tolist()],
    "contains_many": _with("contains_many", EXTRA),
    "expected_wrong": _with("expected_wrong", 1000),
    "merge": lambda scene: scene.made.merge(scene.other),
    "|=": _merge_in,
    "|": lambda scene: scene.made | scene.other,
    "exact fpr capacity max_keys": lambda scene: (
        scene.made.exact, scene.made.fpr, scene.made.capacity, scene.made.max_keys,
    ),
}  # fmt: skip


def _iterate(scene: Scene) -> None:
    with contextlib.suppress(RuntimeError):  # as a dict's: it changed meanwhile
        list(scene.made.items())
    with contextlib.suppress(RuntimeError):
        list(scene.made.values())
    with contextlib.suppress(RuntimeError):
        list(scene.made.keys())
    with contextlib.suppress(RuntimeError):
        repr((scene.made.keys(), scene.made.values(), scene.made.items()))


def _pop(scene: Scene) -> None:
    for key in EXTRA[:20].tolist():
        scene.made.pop(key, None)


def _pop_item(scene: Scene) -> None:
    with contextlib.suppress(KeyError):  # it is empty
        scene.made.popitem()


def _from_keys(scene: Scene) -> None:
    if isinstance(scene.made, MultilevelTable):
        assert len(MultilevelTable.from_keys(EXTRA)) == len(EXTRA)


def _iterate_keys(scene: Scene) -> None:
    with contextlib.suppress(RuntimeError):
        list(scene.made)
    with contextlib.suppress(RuntimeError):
        repr(scene.made.keys())


def _refuse(names: str, *arguments: Any) -> dict[str, Run]:
    """Return calls that a set refuses because it has no values, or a table because it is not a set."""

    def run(scene: Scene) -> None:
        for name in names.split():
            try:
                getattr(scene.made, name)(*arguments[: 1 + (name in ("insert_many", "setdefault"))])
            except TypeError:
                continue
            raise AssertionError(f"{name} was not refused")

    return {names: run}


def _refuse_changes(scene: Scene) -> None:
    for name in ("add", "add_new", "add_many", "add_new_many", "update", "union", "clear"):
        with contextlib.suppress(TypeError):
            getattr(scene.made, name)(*([] if name == "clear" else [[1]]))
            raise AssertionError(f"{name} was not refused")


def _refuse_union(scene: Scene) -> None:
    for call in (scene.made.__or__, scene.made.__ior__, scene.made.union):
        with contextlib.suppress(TypeError):
            raise AssertionError(f"it was not refused: {call(scene.other)}")


def _refuse_removal(scene: Scene) -> None:
    for name in ("remove", "discard", "remove_many"):
        with contextlib.suppress(TypeError):
            getattr(scene.made, name)([1] if name == "remove_many" else 1)
            raise AssertionError(f"{name} was not refused")


def _refuse_popitem(scene: Scene) -> None:
    with contextlib.suppress(TypeError):
        raise AssertionError(f"it was not refused: {scene.made.popitem()}")


def _remove(scene: Scene) -> None:
    for key in EXTRA[:20].tolist():
        with contextlib.suppress(KeyError):
            scene.made.remove(key)


def _delete(scene: Scene) -> None:
    for key in EXTRA[:20].tolist():
        with contextlib.suppress(KeyError):
            del scene.made[key]


def _set(scene: Scene) -> None:
    for key in EXTRA[:20].tolist():
        scene.made[key] = 5


TABLE: dict[str, Run] = WHOLE | {
    "[]=": _set,
    "del": _delete,
    "[]": lambda scene: [scene.made[key] for key in STABLE[:20].tolist()],
    "in": lambda scene: [key in scene.made for key in EXTRA[:20].tolist()],
    "get": _with("get", 7, None),
    "pop": _pop,
    "setdefault": lambda scene: [scene.made.setdefault(key, 1) for key in EXTRA[:20].tolist()],
    "insert_many": _with("insert_many", EXTRA, 7),
    "delete_many": _with("delete_many", EXTRA),
    "get_many": lambda scene: scene.made.get_many(STABLE),
    "get_many default": _with("get_many", EXTRA, -1),
    "contains_many": _with("contains_many", EXTRA),
    "update": lambda scene: scene.made.update(scene.other),
    "update dict": _with("update", {1: 2}),
    "iteration": _iterate,
    "len": lambda scene: len(scene.made),
    "probe": _with("probe", 7),
    "key_dtype value_dtype": lambda scene: (scene.made.key_dtype, scene.made.value_dtype),
    "popitem": _pop_item,
    "== dict": lambda scene: scene.made == {1: 2},
    "|": lambda scene: scene.made | scene.other,
    "| dict": lambda scene: ({1: 2} | scene.made, scene.made | {1: 2}),
    "|=": _merge_in,
    "same_bytes": lambda scene: scene.made.same_bytes(scene.other),
    "from_items": lambda scene: type(scene.made).from_items({1: 2}),
    "from_keys": _from_keys,
    "capacity": _read("capacity"),
}
SET: dict[str, Run] = (
    {
        name: run
        for name, run in TABLE.items()
        if name
        in (
            *WHOLE,
            "in",
            "contains_many",
            "delete_many",
            "len",
            "probe",
            "key_dtype value_dtype",
            "|",
            "|=",
            "same_bytes",
            "from_keys",
            "capacity",
        )
    }
    | {
        "add": lambda scene: [scene.made.add(key) for key in EXTRA[:20].tolist()],
        "add_new": lambda scene: [scene.made.add_new(key) for key in EXTRA[:20].tolist()],
        "add_many": _with("add_many", EXTRA),
        "add_new_many": _with("add_new_many", EXTRA, threads=2),
        "discard": lambda scene: [scene.made.discard(key) for key in EXTRA[:20].tolist()],
        "remove": _remove,
        "discard_many": _with("discard_many", EXTRA),
        "update": lambda scene: scene.made.update(scene.other, EXTRA[:50].tolist()),
        "union": lambda scene: scene.made.union(EXTRA[:50].tolist()),
        "== set": lambda scene: scene.made == {1, 2},
        "iteration": _iterate_keys,
        "summary": _read("summary"),
        "grown": lambda scene: scene.made.grown(3 * CAPACITY),
        "from_items": lambda scene: MultilevelTable.from_items({1: 2}),
    }
    | _refuse("get pop setdefault get_many insert_many", [1], [1])
    | {
        "popitem": lambda scene: _refuse_popitem(scene),
    }
)
MULTILEVEL: dict[str, Run] = (
    TABLE
    | _refuse("add add_new discard remove add_many add_new_many discard_many union", [1])
    | {
        "grown": lambda scene: scene.made.grown(3 * CAPACITY),
        "save pages": lambda scene: scene.made.save(scene.path(), layout="pages"),
    }
)
GUIDED: dict[str, Run] = MULTILEVEL | {
    "summary": _read("summary"),
    "rebuild": _with("rebuild"),
    "attach_summary": _with("attach_summary", "multiple-bloom", deletions="lazy"),
}
CHAINED: dict[str, Run] = {name: run for name, run in TABLE.items() if name != "from_keys"} | {
    "grown": lambda scene: scene.made.grown(3 * CAPACITY),
}
PAGED: dict[str, Run] = {
    name: run
    for name, run in TABLE.items()
    if name
    not in (
        "copy",
        "save load open",
        "to_bytes from_bytes",
        "pickle",
        "plan from_plan",
        "|",
        "| dict",
        "same_bytes",
        "from_items",
        "from_keys",
    )
} | {
    "plan": _read("plan"),
    "checkpoint": _with("checkpoint"),
    "summary_bytes": _read("summary_bytes"),
    "closed path writable": lambda scene: (scene.made.closed, scene.made.path, scene.made.writable),
}
SUMMARY: dict[str, Run] = {name: run for name, run in WHOLE.items() if name != "_repr_html_"} | {
    "add": lambda scene: [scene.made.add(key, 1) for key in EXTRA[:20].tolist()],
    "add_many": _with("add_many", EXTRA, 1),
    "level": _with("level", 7),
    "level_many": _with("level_many", EXTRA),
    "in": lambda scene: [key in scene.made for key in EXTRA[:20].tolist()],
}


def _node_comes_and_goes(scene: Scene) -> None:
    name = f"new{next(_paths)}"
    scene.made.add_node(name)
    scene.made.remove_node(name)


def _node_fails(scene: Scene) -> None:
    scene.made.mark_down("server0")
    scene.made.mark_up("server0")


def _lease(scene: Scene) -> None:
    with scene.made.lease(7):
        scene.made.lease_loads()
        with scene.made.lease(7, weight=2.5):
            scene.made.lease_weights()


def _listen(scene: Scene) -> None:
    end = scene.made.on_move(lambda moves: None)
    end()


RING: dict[str, Run] = {name: run for name, run in WHOLE.items() if name != "plan from_plan"} | {
    "plan": _read("plan"),
    "assign": lambda scene: [scene.made.assign(key) for key in EXTRA[:20].tolist()],
    "assign_many": _with("assign_many", EXTRA),
    "assign_many indices": _with("assign_many", EXTRA, indices=True),
    "locate": lambda scene: [scene.made.locate(key) for key in STABLE[:20].tolist()],
    "locate_many": _with("locate_many", EXTRA),
    "node node_many": lambda scene: (scene.made.node(7), scene.made.node_many(EXTRA, indices=True)),
    "get_node []": lambda scene: (scene.made.get_node(7), scene.made[7]),
    "nodes candidates": lambda scene: (scene.made.nodes(7, 3), scene.made.candidates(7)),
    "release": lambda scene: [scene.made.release(key) for key in EXTRA[:20].tolist()],
    "release_many": _with("release_many", EXTRA),
    "lease lease_loads lease_weights": _lease,
    "add_node remove_node": _node_comes_and_goes,
    "mark_down mark_up": _node_fails,
    "drain": lambda scene: (scene.made.drain("server1"), scene.made.mark_up("server1")),
    "set_weight": lambda scene: (scene.made.set_weight("server2", 2), scene.made.set_weight("server2", 1)),
    "rebalance compact": lambda scene: (scene.made.rebalance(max_moves=10), scene.made.compact()),
    "on_move": _listen,
    "keys_of": _with("keys_of", "server3"),
    "loads limits": lambda scene: (scene.made.loads(), scene.made.limits()),
    "names states weights version": lambda scene: (
        scene.made.names,
        scene.made.states,
        scene.made.weights,
        scene.made.version,
    ),
    "copies epsilon layout limit policy": lambda scene: [
        getattr(scene.made, name) for name in ("copies", "epsilon", "layout", "limit", "policy")
    ],
    "fingerprint": lambda scene: scene.made.fingerprint(assigned=True),
    "in len iteration": lambda scene: ("server1" in scene.made, len(scene.made), list(scene.made)),
    "key_count": _read("key_count"),
}


def _family(made: Any) -> dict[str, Run]:
    if isinstance(made, MultilevelTable):
        return SET if made.value_dtype is None else GUIDED if made.plan.summary else MULTILEVEL
    if isinstance(made, CountMinSketch):
        return CONSERVATIVE if made.plan.conservative else SKETCH
    if isinstance(made, FingerprintFilter):
        return MULTISET if made.semantics == "multiset" else FINGERPRINT_SET
    by_class: Iterable[tuple[Any, dict[str, Run]]] = (
        (CountingBloomFilter, COUNTING),
        (FuseFilter, UNCHANGING),
        (WindowFilter, WINDOW),
        (ShardedFilter, SHARDED),
        ((BloomFilter, BlockedBloomFilter), BITWISE),
        ((BalancedBloomFilter, GrowingFilter), FILTER),
        (HeavyHitters, HITTERS),
        (HyperLogLog, DISTINCT),
        (Deduplicator, DEDUPLICATOR),
        (ChainedTable, CHAINED),
        (PagedTable, PAGED),
        (HashRing, RING),
    )
    return next((family for cls, family in by_class if isinstance(made, cls)), SUMMARY)


def calls(made: Any) -> list[Call]:
    """Return every public call of a structure, `clear` last."""
    found = [Call(name, run, clears=name == "popitem") for name, run in _family(made).items()]
    if isinstance(made, FuseFilter):
        return found
    return [*found, Call("clear", _with("clear"), clears=True)]

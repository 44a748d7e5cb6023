"""Growing and sharded filters, one key at a time, by several threads, and merged: all of it or nothing.

Which key goes where, and what the bytes are, is tested by test_growing.py and test_sharded.py; here it is
about the core's calls for single keys, the plans of stages that are made in advance, and merges that fail.
"""

from __future__ import annotations

import gc
import operator
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbins import BlockedBloomFilter, GrowingFilter, ShardedFilter, _core
from evenbins.filters import build, plan_blocked, stage_plans
from evenbins.filters.plan import planner_of
from evenbins.filters.stage_plans import StageRequest

THREADS = (1, 2, 3, 7, 16)
KEYS = st.one_of(
    st.integers(0, 60), st.text(max_size=4), st.binary(max_size=4), st.integers(-(2**63), 2**64 - 1)
)


def growing(policy: str = "blocked", first: int = 100, **options: Any) -> GrowingFilter:
    return GrowingFilter(1e-2, first=first, policy=policy, **options)


def sharded(policy: str = "blocked", shards: int = 4, keys: int = 2000) -> ShardedFilter:
    return ShardedFilter(keys, fpr=1e-2, shards=shards, policy=policy)


# --- single keys ---------------------------------------------------------------------------------------


class TwinOfGrowing:
    """A growing filter in a few lines, of plain filters."""

    def __init__(self, like: GrowingFilter) -> None:
        self.like, self.stages, self.counts = like, [build(like._stage_plan(0))], [0]

    def __contains__(self, key: Any) -> bool:
        return any(key in stage for stage in self.stages)

    def add_new(self, key: Any) -> bool:
        if key in self:
            return False
        self.stages[-1].add(key)
        self.counts[-1] += 1
        if self.counts[-1] == self.stages[-1].capacity:
            self.stages.append(build(self.like._stage_plan(len(self.stages))))
            self.counts.append(0)
        return True


@pytest.mark.parametrize("policy", ["blocked", "standard", "fill"])
@settings(max_examples=10)
@given(data=st.data(), seed=st.sampled_from([0, 7]))
def test_a_growing_filter_does_what_its_twin_does(policy: str, data: Any, seed: int) -> None:
    f = growing(policy, first=5, seed=seed)
    twin = TwinOfGrowing(f)
    for _ in range(data.draw(st.integers(1, 5))):
        keys = data.draw(st.lists(KEYS, max_size=25))
        how = data.draw(st.sampled_from(["add", "add_new", "add_many", "add_new_many"]))
        if how == "add":
            for key in keys:
                f.add(key)
                twin.add_new(key)
        elif how == "add_new":
            assert [f.add_new(key) for key in keys] == [twin.add_new(key) for key in keys]
        elif how == "add_many":
            f.add_many(keys)
            for key in keys:
                twin.add_new(key)
        else:
            assert f.add_new_many(keys).tolist() == [twin.add_new(key) for key in keys]
        asked = [*keys, *data.draw(st.lists(KEYS, max_size=20))]
        assert [key in f for key in asked] == [key in twin for key in asked]
        assert f.contains_many(asked).tolist() == [key in twin for key in asked]
    assert list(f._stages) == twin.stages
    assert list(f._counts) == twin.counts
    f._check()


@settings(max_examples=20)
@given(keys=st.lists(KEYS, max_size=60), others=st.lists(KEYS, max_size=30), shards=st.integers(1, 9))
def test_a_sharded_filter_asks_the_shard_of_a_key(keys: list[Any], others: list[Any], shards: int) -> None:
    f, twin = sharded(shards=shards), sharded(shards=shards)
    for key in keys:
        part = twin.parts[twin.shard_of(key)]
        assert f.add_new(key) is (key not in part)
        part.add(key)
    assert f == twin
    for key in [*keys, *others]:
        assert (key in f) is (key in twin.parts[twin.shard_of(key)])
        f.add(key)
        twin.parts[twin.shard_of(key)].add(key)
    assert f.to_bytes() == twin.to_bytes()


@pytest.mark.parametrize("cls", [GrowingFilter, ShardedFilter])
def test_an_object_without_init_raises(cls: Any) -> None:
    f = cls.__new__(cls)
    for call in (lambda: 1 in f, lambda: f.add(1), lambda: f.add_new(1)):
        with pytest.raises(RuntimeError, match=rf"^{cls.__name__}\.__init__\(\) has not been called$"):
            call()


def test_a_growing_filter_without_a_stage_raises() -> None:
    f = GrowingFilter.__new__(GrowingFilter)
    _core.Stages.__init__(f, 0)
    assert 1 not in f
    for call in (lambda: f.add(1), lambda: f.add_new(1), lambda: f._add_from(_core.item_keys([1]), 1)):
        with pytest.raises(RuntimeError, match="no stage"):
            call()
    with pytest.raises(ValueError, match="one shard at least"):
        _core.Shards(())


@pytest.mark.parametrize("make", [growing, sharded])
def test_bad_keys_of_single_calls_change_nothing(make: Callable[[], Any]) -> None:
    f = make()
    f.add_many(range(50))
    before = f.to_bytes()
    for key, error in (
        (None, TypeError),
        (1.5, TypeError),
        ([1], TypeError),
        (2**64, ValueError),
        ("\ud800", ValueError),
    ):
        for call in (f.add, f.add_new, f.__contains__):
            with pytest.raises(error):
                call(key)
    assert f.to_bytes() == before


@pytest.mark.parametrize(
    ("base", "make"),
    [(GrowingFilter, lambda cls: cls(1e-2, first=10)), (ShardedFilter, lambda cls: cls(100, shards=2))],
)
def test_a_subclass_may_override_single_calls(base: Any, make: Callable[[Any], Any]) -> None:
    class Lowered(base):
        def add(self, key: Any, /) -> None:
            super().add(key.lower())

        def __contains__(self, key: Any, /) -> bool:
            return super().__contains__(key.lower())

    class Plain(Lowered):
        pass

    for cls in (Lowered, Plain):
        f = make(cls)
        f.add("ABC")
        assert "abc" in f
        assert "AbC" in f
        assert f.add_new("abc") is False
        assert f.contains_many(["abc", "ABC"]).tolist() == [True, False]


def test_the_filter_is_garbage_with_its_parts() -> None:
    """A part that refers to the filter is a cycle, which the collector must see."""

    class Part(BlockedBloomFilter):
        owner: Any = None

    parts = [Part(100), Part(100)]
    f = ShardedFilter.from_shards(parts, 200)
    parts[0].owner = f
    gone = weakref.ref(f)
    del f, parts
    gc.collect()
    assert gone() is None


# --- threads -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["blocked", "standard", "fill"])
def test_bytes_and_answers_of_growing_filters_do_not_depend_on_threads(policy: str) -> None:
    """150,000 keys, a third of them repeats: stages end within pieces, and begin within them."""
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 100_000, 150_000)
    asked = rng.integers(0, 200_000, 60_000)
    make = lambda: GrowingFilter(1e-2, first=9_000, growth=3, policy=policy)  # noqa: E731
    expected = make()
    answers = expected.add_new_many(keys)
    found = expected.contains_many(asked)
    for threads in THREADS:
        f, g = make(), make()
        f.add_many(keys, threads=threads)
        assert (g.add_new_many(keys, threads=threads) == answers).all()
        assert f == g == expected
        assert f.to_bytes() == expected.to_bytes()
        assert (f.contains_many(asked, threads=threads) == found).all()
        f._check()


@pytest.mark.parametrize("policy", ["blocked", "multilevel"])
def test_bytes_and_answers_of_sharded_filters_do_not_depend_on_threads(policy: str) -> None:
    keys = np.random.default_rng(2).integers(0, 30_000, 60_000)
    expected = sharded(policy, keys=30_000)
    answers = expected.add_new_many(keys)
    for threads in THREADS:
        f, g = sharded(policy, keys=30_000), sharded(policy, keys=30_000)
        f.add_many(keys, threads=threads)
        assert (g.add_new_many(keys, threads=threads) == answers).all()
        assert f.to_bytes() == g.to_bytes() == expected.to_bytes()
        assert f.contains_many(keys, threads=threads).all()


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("make", [lambda: growing(first=30_000), lambda: sharded(keys=100_000)])
def test_a_bad_key_ends_a_call_by_threads_where_it_stands(make: Callable[[], Any], threads: int) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    f, bad = make(), 70_001
    column = pyarrow.array([*range(bad), None, *range(bad, bad + 500)], pyarrow.int64())
    with pytest.raises(ValueError, match=rf"^keys\[{bad}\]: .*null.*before it have been added"):
        f.add_many(column, threads=threads)
    assert f.contains_many(np.arange(bad)).all()
    expected = make()
    expected.add_many(np.arange(bad))
    assert f == expected


# --- plans in advance ----------------------------------------------------------------------------------


@pytest.fixture
def no_plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No plan is kept and none is under way."""
    monkeypatch.setattr(stage_plans, "_plans", {})
    monkeypatch.setattr(stage_plans, "_under_way", {})
    yield
    for planning in list(stage_plans._under_way.values()):
        planning.finish()


REQUEST = StageRequest("fill", 3000, 1.25e-3, 512)


def test_a_plan_made_in_slices_is_the_planners(no_plans: None) -> None:
    expected = planner_of("fill")(3000, fpr=1.25e-3, block_bits=512, seed=9)
    stops, stop = [], 0
    while not REQUEST.is_ready():
        stop = REQUEST.plan_some(stop, 10**6)
        stops.append(stop)
    plan = REQUEST.plan(9)
    assert plan == expected
    assert plan.to_dict() == expected.to_dict()
    assert stops == sorted(stops)
    assert REQUEST.plan_some(stop, 10**6) == 10**6 - 1
    assert not stage_plans._under_way


def test_whoever_needs_a_plan_under_way_waits_for_it(no_plans: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_plans, "_SLICE", 1e-6)
    monkeypatch.setattr(stage_plans, "_PAUSE", 1000.0)
    assert REQUEST.plan_some(1500, 3000) == 1502
    assert REQUEST in stage_plans._under_way
    assert REQUEST.plan(3).seed == 3
    assert REQUEST.is_ready()


def test_single_keys_have_the_next_stage_planned_by_a_thread(
    no_plans: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    makers: list[str] = []
    make = StageRequest.make

    def watched(self: StageRequest) -> Any:
        makers.append(threading.current_thread().name)
        return make(self)

    monkeypatch.setattr(StageRequest, "make", watched)
    f = growing("standard", first=1000)
    for key in range(8000):
        f.add(key)
    assert f.stages == 4
    assert makers[0] == "MainThread"
    assert set(makers[1:]) == {"evenbins-stage-plan"}
    bulk = growing("standard", first=1000)
    bulk.add_many(range(8000))
    assert bulk == f


@pytest.mark.parametrize("failure", ["no thread", "in the thread"])
def test_without_a_thread_the_plan_is_made_when_it_is_needed(
    failure: str, no_plans: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = StageRequest.make
    if failure == "no thread":

        def start(self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", start)
    else:

        def failing(self: StageRequest) -> Any:
            if threading.current_thread() is not threading.main_thread():
                raise MemoryError("no memory")
            return make(self)

        monkeypatch.setattr(StageRequest, "make", failing)
    f = growing("standard")
    for key in range(1000):
        f.add(key)
    expected = growing("standard")
    expected.add_many(range(1000))
    assert f == expected
    assert not stage_plans._under_way


def test_an_exception_while_the_next_stage_is_planned_leaves_the_key_out(
    no_plans: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = growing("standard")
    plan_ahead, pending = GrowingFilter._plan_ahead, [KeyboardInterrupt(), MemoryError("no memory")]

    def interrupted(self: GrowingFilter, keys: int, more: int) -> int:
        if keys >= 99 and pending:
            raise pending.pop()
        return plan_ahead(self, keys, more)

    monkeypatch.setattr(GrowingFilter, "_plan_ahead", interrupted)
    for key in range(99):
        f.add(key)
    for error in (MemoryError, KeyboardInterrupt):
        with pytest.raises(error):
            f.add(10**6)
        assert 10**6 not in f
        f._check()
    f.add(10**6)
    assert 10**6 in f
    assert f.stages == 2


def test_old_plans_make_room_for_new_ones(no_plans: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_plans, "_MOST_PLANS", 3)
    for keys in range(1, 8):
        assert StageRequest("standard", keys, 0.1, 512).plan(0).keys == keys
    assert [each.keys for each in stage_plans._plans] == [5, 6, 7]


def test_a_profiler_of_all_threads_stays_in_place(no_plans: None) -> None:
    seen: set[str] = set()
    threading.setprofile(lambda *_: seen.add(threading.current_thread().name))
    try:
        f = growing("standard", first=500)
        for key in range(800):
            f.add(key)
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    assert "evenbins-stage-plan" in seen
    assert sys.getprofile() is None


FORK = """
import os, sys
from evenbins import GrowingFilter
from evenbins.filters import stage_plans
stage_plans._SLICE, stage_plans._PAUSE = 1e-6, 1000.0
f = GrowingFilter(1e-3, first=1000)
for key in range(501):
    f.add(key)
assert stage_plans._under_way, "the plan is ready too early"
child = os.fork()
for key in range(501, 3000):
    f.add(key)
g = GrowingFilter(1e-3, first=1000)
g.add_many(range(3000))
assert f == g
if child:
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status))
else:
    os._exit(0)
"""


def test_a_child_of_fork_plans_for_itself(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """The thread that works on the plan is in the parent alone."""
    done = run_python(FORK)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0"]


# --- merges: all or nothing ----------------------------------------------------------------------------


def test_a_shard_that_does_not_fit_leaves_all_shards_as_they_were() -> None:
    f, g = sharded(), sharded()
    f.add_many(range(500))
    g.add_many(range(1000, 1500))
    strange = build(plan_blocked(700, bits_per_key=9))
    broken = ShardedFilter.__new__(ShardedFilter)
    broken._assemble([*g.parts[:2], strange, g.parts[3]], g.capacity)
    before = f.to_bytes()
    with pytest.raises(ValueError, match=r"cannot merge: their sizes differ"):
        operator.ior(f, broken)
    assert f.to_bytes() == before
    f |= g
    assert f.contains_many([*range(500), *range(1000, 1500)]).all()


@pytest.mark.parametrize("make", [growing, sharded])
def test_a_handler_that_merges_into_what_its_thread_changes_is_refused_whole(make: Callable[[], Any]) -> None:
    """It runs in the middle of a bulk call on the last part: none of the parts before is merged."""
    f, other = make(), make()
    f.add_many(range(300))
    other.add_many(range(5000, 5300))
    *parts, last = f._filters
    before, errors = [part.to_bytes() for part in parts], []

    def handler(*_: object) -> None:
        try:
            operator.ior(f, other)
        except RuntimeError as error:
            errors.append(str(error))

    old = signal.signal(signal.SIGALRM, handler)
    try:
        while not errors:  # the handler may come before the call, or after it: then it merges, and once more
            before = [part.to_bytes() for part in f._filters[: len(parts)]]
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            last.add_many(np.broadcast_to(np.int64(7), 20_000_000))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert "in the middle of a bulk call" in errors[0]
    assert [part.to_bytes() for part in parts] == before
    f |= other
    assert f.contains_many([*range(300), *range(5000, 5300)]).all()
    f._check()


@pytest.mark.parametrize("policy", ["multilevel", "single"])
def test_merges_with_overflow_lists_are_those_of_the_parts(policy: str) -> None:
    """The space for the lists comes first; what is merged is what the parts alone would merge."""
    f, g = sharded(policy, keys=3000), sharded(policy, keys=3000)
    f.add_many(range(2500))
    g.add_many(range(10_000, 12_500))
    expected = []
    for mine, theirs in zip(f.parts, g.parts, strict=True):
        both = mine.copy()
        both |= theirs
        expected.append(both.to_bytes())
    f |= g
    assert [part.to_bytes() for part in f.parts] == expected
    before = f.to_bytes()
    f |= f
    assert f.to_bytes() == before

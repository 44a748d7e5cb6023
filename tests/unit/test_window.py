"""Window filters: arguments, plans, clocks, files, threads, kernels; what they hold: test_window_twin.py."""

from __future__ import annotations

import gc
import itertools
import math
import pickle
import runpy
import threading
import time
import weakref
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenbins
from evenbins import FilterFullError, WindowFilter, _core
from evenbins.filters import WindowPlan, plan_of_core, plan_window
from evenbins.theory import window as theory
from reference import ReferenceWindow
from reference.format import unpack

GOLDEN = Path(__file__).parents[1] / "golden"
MAKER = runpy.run_path(str(GOLDEN / "make_golden.py"))
HOUR = timedelta(hours=1)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make(window: Any = HOUR, capacity: int = 5000, fpr: float = 1e-4, **options: Any) -> tuple[Any, Clock]:
    clock = Clock()
    return WindowFilter(window, capacity, fpr, clock=clock, **options), clock


# --- planning ------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3, 8, 30])
@pytest.mark.parametrize("window", [HOUR, 100_000])
@pytest.mark.parametrize("fpr", [1e-2, 1e-6])
def test_a_plan_keeps_its_rate_and_its_reads(window: Any, fpr: float, steps: int) -> None:
    plan = plan_window(window, 100_000, fpr, steps=steps)
    assert plan.fpr <= fpr
    assert plan.reads <= 1.05
    assert plan.miss_reads <= 1.02
    assert plan.window == window
    assert 2 ** theory.age_bits(steps) >= 2 * steps + 3
    assert (
        plan.core.slots_limit
        >= theory.held(100_000, steps, counted=window != HOUR)
        >= 100_000 * (1 + 1 / steps)
    )
    assert plan == plan_of_core("window", plan.core, capacity=100_000, seed=0, hashing="lanes")
    assert WindowFilter.from_plan(plan).nbytes == plan.nbytes
    within = plan_window(window, 100_000, bits_per_key=plan.bits_per_key, steps=steps)
    assert within.bits_per_key <= plan.bits_per_key
    assert within.fpr <= 2 * plan.fpr  # the search stops at the first shape that keeps to the reads


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 100), "window must be a timedelta, or a number of additions"),
        ((7, 100), "at least 8"),
        ((1.5, 100), "window must be"),
        (("1h", 100), "window must be"),
        ((timedelta(0), 100), "window must be a time"),
        ((timedelta(seconds=-1), 100), "window must be a time"),
        ((timedelta(microseconds=7), 100), "at least 8 microseconds"),
        ((HOUR, 0), "capacity must be"),
        ((HOUR, 100, 2.0), "fpr must be"),
        ((HOUR, 10**9, 1e-9), "fpr must be higher"),
    ],
)
def test_arguments_are_checked(arguments: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        WindowFilter(*arguments)


def test_options_are_checked() -> None:
    for options, words in (
        ({"steps": 0}, "steps must be"),
        ({"steps": 1001}, "steps must be"),
        ({"clock": 3}, "clock must be a function"),
        ({"bits_per_key": 3}, "bits_per_key must be at least"),
        ({"fpr": 0.1, "bits_per_key": 16}, "exclude each other"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            WindowFilter(HOUR, 1000, **options)
    core = plan_window(HOUR, 1000).core
    for name, wrong in (
        ("lines", 8), ("remainder", 3), ("remainder", 24), ("quotients", 31), ("group", 17),
        ("slots_limit", 0), ("steps", 0), ("steps", 1001), ("window", 7), ("counted", 2),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"core\[\d\]"):
            plan_of_core("window", core._replace(**{name: wrong}), capacity=1000, seed=0)
        with pytest.raises(ValueError, match=r"must|may"):
            _core.Filter(20, 2, 0, 1000, list(core._replace(**{name: wrong})))


def test_a_plan_shows_its_window() -> None:
    plan = plan_window(HOUR, 1000)
    assert "window=1:00:00" in repr(plan)
    assert plan.to_dict()["window"] == 3600.0
    assert "window=5_000" in repr(WindowFilter(5000, 1000))


# --- time ----------------------------------------------------------------------------------------


def test_the_system_clock_is_the_default() -> None:
    f = WindowFilter(timedelta(milliseconds=400), 1000)
    assert f.clock is time.time
    f.add("key")
    assert "key" in f
    time.sleep(0.46)
    assert "key" not in f
    assert f.add_new("key")
    other = WindowFilter(timedelta(days=1), 1000, clock=time.time)
    other.add("key")
    assert abs(other._state()[3] - time.time() / 3600 / 3) <= 1  # steps of three hours


def test_a_clock_that_jumps_back_expires_nothing() -> None:
    f, clock = make()
    f.add("a")
    clock.now += 3600
    f.add("b")
    clock.now -= 3000
    assert "a" in f
    assert "b" in f
    f.add("c")
    clock.now += 3000 + 3599
    assert "b" in f
    assert "c" in f
    clock.now += 2 * 450
    assert "b" not in f
    clock.now = -5.0
    assert "b" in f  # not swept: nothing was added since
    f.clear()
    f.add("d")
    clock.now = 3594.9
    assert "d" in f
    clock.now = 4100.0
    assert "d" not in f


def test_clocks_that_fail() -> None:
    f, clock = make()
    f.add("a")
    state = f.to_bytes()
    for now, error in ((math.nan, ValueError), (math.inf, ValueError), (1e300, ValueError), ("x", TypeError)):
        clock.now = now  # type: ignore[assignment]
        for call in (f.add, f.add_new, f.__contains__, f.add_many, f.add_new_many, f.contains_many):
            with pytest.raises(error):
                call("b" if call.__name__[-4:] != "many" else ["b"])
        with pytest.raises(error):
            f.stats()

    def fail() -> float:
        raise KeyError("no time")

    f.clock = fail
    with pytest.raises(KeyError, match="no time"):
        f.add("b")
    with pytest.raises(KeyError, match="no time"):
        "a" in f  # noqa: B015
    with pytest.raises(TypeError, match="clock must be"):
        f.clock = 3.0
    assert f.to_bytes() == state


def test_a_clock_may_refer_to_the_filter() -> None:
    """By way of its owner: the cycle is collected."""

    class Owner:
        def __init__(self) -> None:
            self.seen = WindowFilter(HOUR, 100, clock=self.now)

        def now(self) -> float:
            return 5.0

    owner = Owner()
    owner.seen.add("a")
    assert owner.seen.copy().clock == owner.now
    found = weakref.ref(owner)
    del owner
    gc.collect()
    assert found() is None


def test_files_age_by_what_the_clock_says(tmp_path: Path) -> None:
    f, clock = make()
    f.add("key")
    f.save(tmp_path / "file")
    for read in (WindowFilter.load, WindowFilter.open, evenbins.load, evenbins.open):
        g = read(tmp_path / "file")
        assert g.clock is time.time
        assert "key" not in g  # the file is from 1970
        g.clock = clock
        for later, found in ((0, True), (-9000, True), (3600, True), (4050, False), (10**9, False)):
            g.clock = lambda later=later: clock.now + later
            assert ("key" in g) is found
            assert g.contains_many(["key"]).tolist() == [found]
            assert g.stats().keys == found
            assert bool(g) is found
        assert g == f
    opened = WindowFilter.open(tmp_path / "file")
    with pytest.raises(ValueError, match="read-only"):
        opened.add("key")


def test_windows_of_additions_need_no_clock() -> None:
    f = WindowFilter(1000, 1000, 1e-6, steps=4, clock=lambda: 1 / 0)
    for start in range(0, 10_000, 500):
        f.add_many(range(start, start + 500))
        assert f.contains_many(range(max(start - 500, 0), start + 500)).all()
        assert not f.contains_many(range(start - 750)).any()
    f = pickle.loads(pickle.dumps(f))
    for key in range(10_000, 12_000):
        f.add(key)
    assert f.contains_many(range(11_000, 12_000)).all()
    assert not f.contains_many(range(10_750)).any()


@pytest.mark.parametrize("gap", [0.3, 1, 2.6, 7, 8, 9, 40, 1000])
def test_few_additions_and_long_gaps(gap: float) -> None:
    """One key every `gap` steps for many turns of the ages: found when young, gone when old."""
    f, clock = make(timedelta(seconds=8), 40_000, 1e-8)
    for number in range(300):
        clock.now = 1000 + number * gap
        f.add(number)
        first = max(0, number - math.floor(8 / gap))
        assert f.contains_many(range(first, number + 1)).all()
        assert not f.contains_many(range(math.floor(number - 9 / gap) + 1)).any()
        if number % 50 == 0:
            f._check()


# --- room ----------------------------------------------------------------------------------------


def test_as_many_keys_as_planned_fit_for_ever() -> None:
    """Twenty windows of different keys: all that come in a window are held, and the slots suffice."""
    f, clock = make(timedelta(seconds=80), 20_000, 1e-3)
    most = 0
    for number in range(20 * 80):
        clock.now = 1000.0 + number
        f.add_many(np.arange(250 * number, 250 * (number + 1)))
        if number % 40 == 39:
            most = max(most, f._state()[0])
            first = max(0, 250 * (number - 79))
            assert f.contains_many(np.arange(first, 250 * (number + 1))).all()
    assert 20_000 <= most <= f.plan.core.slots_limit
    stats = f.stats()
    assert stats.reads <= 1.1
    assert sum(stats.ages) == stats.keys
    assert stats.ages[1:-1] == pytest.approx([2500] * 7, rel=0.01)
    counted, _ = make(20_000, 20_000, 1e-3)
    for number in range(100):
        counted.add_many(np.arange(4000 * number, 4000 * (number + 1)))
        assert counted._state()[0] <= counted.plan.core.slots_limit
    assert counted.stats().keys + counted.stats().expired >= 20_000


def test_plans_predict_keys_ages_and_what_is_not_swept() -> None:
    """60 moments of five windows of 50,000 additions: means within 2 % and 10 % of the predicted ones."""
    f, _ = make(50_000, 50_000, 1e-3)
    measured = []
    for number in range(96):
        f.add_many(np.arange(4001 * number, 4001 * (number + 1)))
        if number >= 36:
            measured.append(f.stats())
    mean = {
        name: np.mean([getattr(each, name) for each in measured], axis=0)
        for name in ("keys", "expired", "ages")
    }
    assert mean["keys"] == pytest.approx(sum(f.plan.ages), rel=0.02)
    assert mean["ages"][1:] == pytest.approx(f.plan.ages[1:], rel=0.02)
    assert mean["expired"] == pytest.approx(f.plan.expired, rel=0.1)
    assert max(each.fpr for each in measured) <= f.plan.fpr * 1.001
    assert max(each.reads for each in measured) <= 1.1


def test_a_full_filter_says_so_and_goes_on() -> None:
    f, clock = make(capacity=1000)
    with pytest.raises(FilterFullError) as error:
        f.add_many(np.arange(50_000))
    added = error.value.added
    assert 1250 <= added == f.stats().keys + 0 <= f.plan.core.slots_limit
    assert f.contains_many(np.arange(added)).all()
    with pytest.raises(FilterFullError):
        f.add(-1)
    f.add(0)  # which is in
    assert not f.add_new(1)
    f._check()
    clock.now += 4050
    f.add_many(np.arange(100_000, 101_000))  # everything has expired
    assert f.stats().expired == 0
    assert not f.contains_many(np.arange(added)).any()


def test_room_is_made_before_a_filter_is_full() -> None:
    """Keys that have expired are swept at once when their room is needed."""
    f, clock = make(capacity=1000, fpr=1e-8)
    with pytest.raises(FilterFullError):
        f.add_many(np.arange(50_000))
    clock.now += 3000
    for key in range(20):
        f.add(key)
    clock.now += 1051
    f.add_many(np.arange(100_000, 101_000))
    assert f.contains_many(np.arange(100_000, 101_000)).all()
    assert f.contains_many(np.arange(20)).all()


# --- bytes ---------------------------------------------------------------------------------------


def churned(kernel: str, threads: int, batch: int, *, counted: bool) -> bytes:
    before = _core.kernel()
    _core.use_kernel(kernel)
    try:
        window = 40_000 if counted else timedelta(microseconds=1000)
        f, clock = make(window, 30_000, 1e-3)
        rng = np.random.default_rng(3)
        for number in range(6):
            some = rng.integers(0, 30_000, 25_000)
            clock.now = (300 * number + 0.5) / 1e6
            for start in range(0, len(some), batch):
                f.add_many(some[start : start + batch], threads=threads)
        f._check()
        return bytes(f.to_bytes())
    finally:
        _core.use_kernel(before)


@pytest.mark.parametrize("counted", [False, True])
def test_kernels_threads_and_batches_leave_the_same_bytes(counted: bool) -> None:
    wanted = churned(_core.kernels()[0], 1, 25_000, counted=counted)
    ways = [*itertools.product(_core.kernels()[1:], [1], [7000]), (_core.kernel(), 3, 25_000)]
    for kernel, threads, batch in ways:
        assert churned(kernel, threads, batch, counted=counted) == wanted, (kernel, threads, batch)


@pytest.mark.parametrize("name", MAKER["WINDOWS"])
def test_golden_files(name: str, tmp_path: Path) -> None:
    path = GOLDEN / f"{name}.evenbins"
    data = path.read_bytes()
    core, times, seed = MAKER["WINDOWS"][name]
    assert MAKER["golden_window"](name).to_bytes() == data
    parsed = unpack(data)
    assert (parsed.core, parsed.seed) == (core, seed)
    twin = ReferenceWindow.from_payload(core, seed, parsed.payload)
    for f in (evenbins.load(path), evenbins.open(path, verify=True)):
        assert f.plan.core == core
        twin.clock = times[-1] if times else 0
        f.clock = lambda: (twin.clock + 0.5) / 1e6
        f._check()
        assert f.contains_many(MAKER["KEYS"]).all() or not times
        for later in (0, 100, 400, 10_000):
            twin.clock += later
            keys = [*MAKER["KEYS"], *range(2000, 2900)]
            assert f.contains_many(keys).tolist() == [key in twin for key in keys]
            assert f.stats().keys == twin.set_bits()
        f.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == data


def test_what_it_refuses() -> None:
    f, _ = make()
    calls: list[Any] = [
        lambda: f | f, lambda: f.__ior__(f), lambda: f.union(f), lambda: f.approx_intersection(f),
        lambda: f & f, lambda: f <= f, lambda: f._merge(f.copy()),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(
            (TypeError, ValueError), match=r"cannot be merged|overlap|window filter|WindowFilter"
        ):
            call()
    assert isinstance(f.plan, WindowPlan)


def test_the_rate_is_that_of_the_keys_that_are_found() -> None:
    """200,000 absent keys: an interval of six standard deviations around live/M, before and after expiry."""
    f, clock = make(capacity=50_000, fpr=1e-2)
    absent = np.arange(10**9, 10**9 + 200_000)
    for hour in range(3):
        f.add_many(np.arange(50_000 * hour, 50_000 * (hour + 1)))
        stats = f.stats()
        assert stats.keys <= 50_000
        expected = 200_000 * stats.fpr
        assert abs(f.contains_many(absent).sum() - expected) <= 6 * math.sqrt(expected) + 6
        assert f.approx_items() == pytest.approx(50_000, rel=0.01)
        clock.now += 3600 + 451
    assert f.approx_items() == 0


@pytest.mark.parametrize("fpr", [0.9, 0.99, 1 - 2**-53])
@pytest.mark.parametrize("steps", [1, 8, 1000])
def test_rates_near_one(fpr, steps):
    assert plan_window(timedelta(hours=1), 1, fpr, steps=steps).fpr < fpr


def test_windows_that_are_too_long():
    for window, most in ((timedelta.max, "2283 years"), (2**60, r"2\*\*48")):
        with pytest.raises(ValueError, match=f"at most {most}"):
            plan_window(window, 10, 1e-3)


def test_a_slow_clock_of_one_thread_makes_no_key_of_another_older():
    """The second thread waits for a look-up while the first, which read the clock long ago, sets its time."""
    now, first = [100.0], threading.local()
    asked, go = threading.Event(), threading.Event()

    def clock() -> float:
        seconds = now[0]
        if hasattr(first, "waits"):
            asked.set()
            go.wait()
        return seconds

    f = WindowFilter(timedelta(seconds=10), 1_000_000, 1e-3, steps=10, clock=clock)
    f.add_many(np.arange(1000))
    many = np.arange(8_000_000)

    def look_up_slowly() -> None:
        first.waits = True
        f.contains_many([1])

    threads = [threading.Thread(target=look_up_slowly)]
    threads[0].start()
    asked.wait()
    for call in (lambda: f.contains_many(many, threads=1), lambda: f.add("fresh")):
        threads.append(threading.Thread(target=call))
        threads[-1].start()
        time.sleep(0.02)
        now[0] = 109.5
    go.set()
    for thread in threads:
        thread.join()
    now[0] = 112.0
    assert "fresh" in f

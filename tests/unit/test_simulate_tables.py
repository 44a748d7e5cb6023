"""The simulator of tables that move at most one key: its twin, its promises, its refusals.

The twin is `reference.multilevel_simulation`; both make the same draws, so all counts must be equal,
trial by trial and sample by sample. Distributions are checked in statistical/test_table_schemes.py.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from evenbins import _study
from evenbins.study.papers.simulation import SimulatedTables, simulate_table
from reference.multilevel_simulation import TableTwin, simulate_trial

SCHEMES = ["standard", "conservative", "second-chance", "extreme-second-chance"]
SHAPES = [([40, 25, 14, 6], 1), ([20, 13, 7, 3], 2), ([9, 6], 4), ([11, 7, 3], 3), ([30], 1), ([4, 4, 4], 8),
          ([9, 9, 9, 9, 9, 9, 9], 1)]  # fmt: skip


def assert_twins(scheme: str, buckets: list[int], slots: int, *, side: str = "any", **given: Any) -> None:
    seen = simulate_table(
        scheme, buckets=buckets, slots=slots, side=side, trials=3, seed=9, threads=2, **given
    )
    for trial in range(3):
        twin = TableTwin(scheme, buckets, slots, side)
        for look, sample in enumerate(simulate_trial(twin, seed=9, trial=trial, **given)):
            assert seen.arrivals[trial, look] == sample.arrivals
            assert seen.moves[trial, look] == sample.moves
            assert seen.overflow[trial, look] == sample.overflow
            assert tuple(seen.held[trial, look]) == sample.held
        assert seen.arrivals.shape[1] == look + 1


@pytest.mark.parametrize(("buckets", "slots"), SHAPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_insertions_are_those_of_the_twin(scheme: str, buckets: list[int], slots: int) -> None:
    for load in (0.3, 0.9, 1.3):
        assert_twins(scheme, buckets, slots, keys=int(load * sum(buckets) * slots))


@pytest.mark.parametrize("process", ["replace", "poisson"])
@pytest.mark.parametrize(("buckets", "slots"), SHAPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_deletions_are_those_of_the_twin(scheme: str, buckets: list[int], slots: int, process: str) -> None:
    given: dict[str, Any] = {"process": process, "burn_in": 2.3, "samples": 4, "interval": 3}
    for load in (0.6, 1.1):
        assert_twins(scheme, buckets, slots, keys=int(load * sum(buckets) * slots), **given)


@pytest.mark.parametrize("process", ["insert", "replace", "poisson"])
@pytest.mark.parametrize(("buckets", "slots"), SHAPES)
def test_moves_to_the_right_only_are_those_of_the_twin(buckets: list[int], slots: int, process: str) -> None:
    given: dict[str, Any] = {} if process == "insert" else {"burn_in": 3.0, "samples": 2}
    assert_twins("extreme-second-chance", buckets, slots, side="right", process=process,
                 keys=int(0.9 * sum(buckets) * slots), **given)  # fmt: skip


def numbers(seen: SimulatedTables) -> list[Any]:
    return [each.tolist() for each in (seen.arrivals, seen.moves, seen.overflow, seen.held)]


def test_threads_change_nothing() -> None:
    def with_threads(threads: int) -> list[Any]:
        return numbers(simulate_table("second-chance", keys=500, shares=[0.5, 0.4, 0.3], process="poisson",
                                      burn_in=3, trials=17, seed=7, threads=threads))  # fmt: skip

    assert with_threads(1) == with_threads(2) == with_threads(64)


def test_a_trial_depends_on_the_seed_and_its_position_alone() -> None:
    def held(**changes: Any) -> Any:
        given: dict[str, Any] = {"keys": 900, "shares": [0.5, 0.3], "trials": 5, "seed": 1}
        return simulate_table("conservative", **given | changes).held

    assert (held(trials=9)[:5] == held()).all()
    assert not (held(seed=2) == held()).all()
    assert not (held()[0] == held()[1]).all()


@pytest.mark.parametrize("process", ["insert", "replace", "poisson"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_key_is_lost(scheme: str, process: str) -> None:
    seen = simulate_table(scheme, keys=2000, shares=[0.4, 0.3, 0.2], process=process, trials=6, seed=3)
    population = seen.held.sum(axis=2) + seen.overflow
    if process == "poisson":
        assert (np.abs(population - 2000.0) < 6 * np.sqrt(2000)).all()
    else:
        assert (population == 2000).all()
    if process == "replace":
        assert seen.arrivals[0].tolist() == [2000 + 60_000 + step for step in range(1, 11)]
    assert (seen.held <= np.array(seen.buckets, dtype=np.uint64)).all()
    assert (seen.moves <= seen.arrivals).all()
    assert (seen.moves.max() == 0) == (scheme == "standard")


def test_the_two_sides_are_the_same_without_deletions_alone() -> None:
    def run(side: str, process: str) -> list[Any]:
        return numbers(simulate_table("extreme-second-chance", keys=2000, shares=[0.4, 0.3, 0.2, 0.1],
                                      side=side, process=process, burn_in=5, trials=4, seed=3))  # fmt: skip

    assert run("any", "insert") == run("right", "insert")
    assert run("any", "replace") != run("right", "replace")


def test_fractions() -> None:
    seen = simulate_table("second-chance", keys=1000, shares=np.array([0.3, 0.15]), slots=2, samples=2,
                          process="replace", interval=500, burn_in=1, trials=3, seed=1)  # fmt: skip
    assert seen.buckets == (300, 150)
    assert (seen.overflow_share == seen.overflow / 1000).all()
    assert (seen.fills == seen.held / np.array([600, 300])).all()
    assert (seen.moves_share == seen.moves / seen.arrivals).all()
    assert seen.late_moves.tolist() == ((seen.moves[:, 1] - seen.moves[:, 0]) / 500).tolist()
    empty = simulate_table("standard", keys=0, buckets=[5])
    assert empty.overflow_share.tolist() == empty.moves_share.tolist() == [[0.0]]
    assert empty.late_moves.tolist() == [0.0]


def test_levels_are_rounded_down_but_not_by_rounding_errors() -> None:
    assert simulate_table("standard", keys=10_000, shares=[0.46949, 0.29, 0.0001]).buckets == (4694, 2900, 1)
    assert 0.29 * 100 < 29
    assert simulate_table("standard", keys=100, shares=[0.29]).buckets == (29,)


def test_progress_is_told_and_its_error_stops_the_work() -> None:
    told: list[tuple[int, int]] = []
    given: dict[str, Any] = {
        "keys": 20_000,
        "shares": [1.0],
        "process": "replace",
        "burn_in": 1,
        "threads": 2,
    }
    simulate_table("standard", trials=200, progress=lambda done, all_: told.append((done, all_)), **given)
    assert told
    assert told == sorted(told)
    assert all(0 <= done <= all_ == 200 for done, all_ in told)

    def fail(done: int, all_: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        simulate_table("standard", trials=10**5, progress=fail, **given)


@pytest.mark.parametrize("process", ["insert", "replace", "poisson"])
def test_ctrl_c_stops_it(process: str) -> None:
    def press() -> None:
        ready.wait()
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    ready = threading.Event()
    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        ready.set()
        simulate_table("second-chance", keys=10**6, buckets=[1000, 1000], process=process, burn_in=1e6,
                       samples=1, trials=10**5, threads=2)  # it would take hours  # fmt: skip
    thread.join()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": "cuckoo"}, "scheme must be one of standard, .*, not 'cuckoo'"),
        ({"process": "delete"}, "process must be one of insert, replace, poisson, not 'delete'"),
        ({"side": "left"}, "side must be 'any' or 'right', not 'left'"),
        ({"side": "right"}, "side must be left out for scheme 'standard'"),
        ({"keys": -1}, "keys must be 0 to .*, not -1"),
        ({"keys": 0, "process": "replace", "shares": None, "buckets": [1]}, "keys must be 1 to .*, not 0"),
        ({"shares": None}, "shares or buckets must be given"),
        ({"buckets": [3]}, "shares or buckets must be given, not both"),
        ({"shares": []}, "shares must be of 1 to 16 levels, not 0"),
        ({"shares": [0.1] * 17}, "shares must be of 1 to 16 levels, not 17"),
        ({"shares": None, "buckets": []}, "buckets must be of 1 to 16 levels, not 0"),
        (
            {"shares": [0.5, 0.009]},
            "shares must give each level at least one bucket .* 0.009 of 100 keys is 0.9",
        ),
        ({"shares": [-1.0]}, "shares must give each level at least one bucket"),
        ({"shares": [float("nan")]}, "shares must give each level at least one bucket"),
        ({"shares": None, "buckets": [0]}, "buckets must be 1 to .*, not 0"),
        ({"shares": None, "buckets": [2**29], "slots": 4}, r"at most 2\*\*30 slots in all"),
        ({"slots": 0}, "slots must be 1 to 8, not 0"),
        ({"slots": 9}, "slots must be 1 to 8, not 9"),
        ({"burn_in": -1.0}, "burn_in must be 0 to 1000000 mean lifetimes, not -1"),
        ({"burn_in": float("nan")}, "burn_in must be 0 to"),
        ({"samples": 2}, "samples must be 1 or left out for process 'insert', not 2"),
        ({"samples": 0, "process": "replace"}, "samples must be 1 to .*, not 0"),
        ({"interval": 0}, "interval must be 1 to .*, not 0"),
        ({"trials": 0}, "trials must be 1 to .*, not 0"),
        ({"seed": -1}, "seed must be 0 to .*, not -1"),
        ({"threads": 0}, "threads must be 1 to 1024, not 0"),
    ],
)
def test_misuse_is_refused(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"scheme": "standard", "keys": 100, "shares": [0.5, 0.25]}
    with pytest.raises(ValueError, match=message):
        simulate_table(**given | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": "cuckoo"}, "unknown scheme: cuckoo"),
        ({"process": "delete"}, "unknown process: delete"),
        ({"buckets": []}, "buckets must be of 1 to 16 levels, not 0"),
        ({"buckets": [0]}, r"buckets must be 1 to 2\*\*30 in each level, not 0"),
        ({"buckets": [2**30], "slots": 2}, "at most .* slots in all"),
        ({"slots": 0}, "slots must be 1 to 8, not 0"),
        ({"slots": 9}, "slots must be 1 to 8, not 9"),
        ({"keys": 2**28 + 1}, "keys must be 0 to"),
        ({"keys": 0, "process": "poisson"}, "keys must be 1 or more"),
        ({"burn_in": float("nan")}, "burn_in must be 0 to 1000000"),
        ({"samples": 0}, "samples must be 1 to"),
        ({"samples": 2}, "samples must be 1 without deletions"),
        ({"interval": 0}, "interval must be 1 to"),
        ({"trials": 0}, "trials must be 1 to"),
        ({"threads": 0}, "threads must be 1 or more, not 0"),
    ],
)
def test_the_core_checks_by_itself(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "scheme": "standard", "buckets": [10], "slots": 1, "process": "insert", "keys": 5, "burn_in": 1.0,
        "samples": 1, "interval": 1, "trials": 1, "seed": 0, "threads": 1, "progress": None,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        _study.simulate_table(**given | changes)

"""The simulators of summaries: their twins, their promises, their refusals.

The twins are `reference.summary_simulation`; both make the same draws, so all counts must be equal,
trial by trial. Distributions are checked in statistical/test_summaries_simulation.py.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from evenbins.study.papers.summary_simulation import (
    simulate_counters,
    simulate_rebuild,
    simulate_song,
    simulate_summary,
)
from reference import summary_simulation as twin

TABLES = [(60, (50, 20, 10, 5)), (40, (160, 40, 20, 10, 10)), (30, (9,)), (0, (4, 4)), (25, (3, 3, 3))]


@pytest.mark.parametrize("queries", [0, 40])
@pytest.mark.parametrize("partitioned", [True, False])
@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize(("keys", "sizes"), TABLES)
def test_summaries_are_those_of_the_twin(
    keys: int, sizes: tuple[int, ...], separate: bool, partitioned: bool, queries: int
) -> None:
    filters = [(90 - 15 * i, 3) for i in range(len(sizes))] if separate else [(70, 4)]
    given: dict[str, Any] = {"partitioned": partitioned, "queries": queries, "seed": 5}
    seen = simulate_summary(keys, sizes, filters, trials=4, threads=2, **given)
    for t in range(4):
        passed, failures, positives = twin.summary_trial(keys, sizes, filters, trial=t, **given)
        assert seen.passed[t].tolist() == passed
        assert seen.failures[t].tolist() == failures
        assert seen.positives[t] == positives


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize(("keys", "sizes"), TABLES)
def test_counters_are_those_of_the_twin(keys: int, sizes: tuple[int, ...], once: bool) -> None:
    filters = [(20, 3)] * len(sizes)
    seen = simulate_counters(keys, sizes, filters, once=[once] * len(sizes), trials=4, seed=5, threads=2)
    for t in range(4):
        largest = twin.counters_trial(keys, sizes, filters, [once] * len(sizes), seed=5, trial=t)
        assert seen[t].tolist() == largest


@pytest.mark.parametrize("model", ["random", "first"])
@pytest.mark.parametrize(("keys", "sizes"), TABLES)
def test_rebuilds_are_those_of_the_twin(keys: int, sizes: tuple[int, ...], model: str) -> None:
    for deleted in (0, keys // 3, keys):
        seen = simulate_rebuild(keys, deleted, sizes, model=model, trials=4, seed=5, threads=2)
        for t in range(4):
            moves = twin.rebuild_trial(keys, deleted, sizes, first_only=model == "first", seed=5, trial=t)
            assert (seen.moves[t], seen.into_first[t], seen.crisis[t]) == moves


@pytest.mark.parametrize(("keys", "buckets", "hashes"), [(50, 100, 3), (40, 7, 2), (0, 3, 1), (30, 1000, 10)])
def test_songs_are_those_of_the_twin(keys: int, buckets: int, hashes: int) -> None:
    seen = simulate_song(keys, buckets, hashes, counter_bits=2, trials=4, seed=5, threads=2)
    for t in range(4):
        numbers = twin.song_trial(keys, buckets, hashes, full=3, seed=5, trial=t)
        assert (
            seen.largest[t], seen.crowded[t], seen.counted[t], seen.highest[t], seen.stuck[t]
        ) == numbers  # fmt: skip


RUNS: dict[str, Callable[..., Any]] = {
    "summary": lambda **given: simulate_summary(300, [1200, 300, 100], [(900, 2)], **given).failures,
    "counters": lambda **given: simulate_counters(300, [900, 200], [(500, 3), (90, 3)], **given),
    "rebuild": lambda **given: simulate_rebuild(300, 60, [600, 200, 100], **given).moves,
    "song": lambda **given: simulate_song(300, 900, 4, **given).crowded,
}


@pytest.mark.parametrize("which", RUNS)
def test_a_trial_depends_on_the_seed_and_its_position_alone(which: str) -> None:
    first = RUNS[which](trials=40, seed=1)
    assert (RUNS[which](trials=40, seed=1, threads=7) == first).all()
    assert (RUNS[which](trials=90, seed=1, threads=2)[:40] == first).all()
    assert not (RUNS[which](trials=40, seed=2) == first).all()


@pytest.mark.parametrize("which", RUNS)
def test_progress_is_told_and_its_error_stops_the_work(which: str) -> None:
    told: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        told.append((done, total))
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        RUNS[which](trials=10**7, seed=1, threads=2, progress=progress)
    assert len(told) == 1
    assert told[0][1] == 10**7


def test_a_signal_stops_the_work() -> None:
    def interrupt() -> None:
        ready.wait()
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    ready = threading.Event()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        ready.set()
        RUNS["summary"](trials=10**7)
    thread.join()


def test_no_key_is_lost() -> None:
    seen = simulate_summary(2000, [1500, 700, 300], [(5000, 3)], trials=20, seed=3)
    left = np.concatenate([np.full((20, 1), 2000, dtype=np.uint64), seen.passed], axis=1)
    assert (np.diff(left.astype(int), axis=1) <= 0).all()
    assert (seen.failures[:, -1] <= left[:, -2] - left[:, -1]).all()


def test_wrong_arguments_are_refused() -> None:
    for call, name in (
        (lambda: simulate_summary(-1, [3], [(5, 1)]), "keys"),
        (lambda: simulate_summary(1, [0], [(5, 1)]), "sizes"),
        (lambda: simulate_summary(1, [], [(5, 1)]), "sizes"),
        (lambda: simulate_summary(1, [3, 3, 3], [(5, 1), (5, 1)]), "filters"),
        (lambda: simulate_summary(1, [3], [(2, 3)]), "cells"),
        (lambda: simulate_summary(1, [3], [(5, 0)]), "hashes"),
        (lambda: simulate_summary(1, [3], [(5, 1)], trials=0), "trials"),
        (lambda: simulate_counters(1, [3, 3], [(5, 1)]), "filters and once"),
        (lambda: simulate_rebuild(5, 6, [3]), "deleted"),
        (lambda: simulate_rebuild(5, 1, [3], model="last"), "model"),
        (lambda: simulate_song(5, 0, 1), "buckets"),
        (lambda: simulate_song(5, 1, 1, threads=0), "threads"),
    ):
        with pytest.raises(ValueError, match=f"{name} must be"):
            call()

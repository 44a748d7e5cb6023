"""The cache replay: small cases by hand, promises, refusals. Its twin: property/test_cache_twin.py."""

from __future__ import annotations

import doctest
import json
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from evenbins.study import simulate
from evenbins.study.simulate import CONFIGURATIONS, POLICIES, CacheReport, CacheRun, replay_cache
from evenbins.study.traces import Trace, synthetic_trace

MINUTE = 60_000
FREE: dict[str, Any] = {
    "servers": 1, "cache_size": None, "limit": None, "stale_minutes": 10, "served_minutes": 1,
    "recovery_minutes": 5,
}  # fmt: skip
BUSY: dict[str, Any] = {
    "servers": 20, "cache_size": 40, "limit": 25, "stale_minutes": 60, "served_minutes": 3,
    "recovery_minutes": 10,
}  # fmt: skip


def one(minutes: list[float], urls: list[int], **options: Any) -> CacheRun:
    """Replay requests at these minutes through one server, or what the options say."""
    trace = Trace(np.array([round(each * MINUTE) for each in minutes]), np.array(urls))
    (run,) = replay_cache(trace, policies=["jump"], **(FREE | options)).runs
    return run


@pytest.fixture(scope="module")
def trace() -> Trace:
    return synthetic_trace(requests=30_000, urls=6000, minutes=900, seed=1)


def test_a_url_is_evicted_when_nobody_asked_for_it_in_time() -> None:
    assert one([0, 9, 18, 27.99], [1, 1, 1, 1]).misses == 1  # each request renews it
    assert one([0, 10], [1, 1]).misses == 2
    assert one([0, 9.99], [1, 1]).misses == 1


def test_a_full_cache_answers_what_it_holds_and_drops_the_rest() -> None:
    run = one([0, 1, 2, 3], [1, 2, 1, 2], cache_size=1)
    assert (run.misses, run.dropped, run.additional, run.max_load) == (3, 2, 1, 1)
    run = one([0, 1, 11], [1, 2, 2], cache_size=1)  # room again once the first is stale
    assert (run.misses, run.dropped) == (3, 1)


def test_a_server_fails_above_its_limit_and_comes_back_empty() -> None:
    run = one([0, 0.5, 0.9, 1.0, 5.8, 5.9], [1, 1, 1, 1, 1, 1], limit=2)
    # the third is one too many (a hit); until minute 5.9 nobody is there
    assert (run.failures, run.misses, run.dropped, run.max_requests) == (1, 4, 2, 3)
    assert one([0, 0.5, 1.0, 1.5, 2.0], [1] * 5, limit=2).failures == 0  # served for one minute: two at once
    run = one([0, 0.1, 0.2, 5.2, 5.3], [1] * 5, limit=2)  # its requests went with it
    assert (run.failures, run.misses) == (1, 2)


def test_the_next_server_takes_what_a_full_one_passes_on() -> None:
    minutes, urls = [0.0, 1, 2, 3, 4, 5], [1, 2, 3, 1, 2, 3]
    report = replay_cache(
        Trace(np.array(minutes, int) * MINUTE, np.array(urls)),
        policies=POLICIES, **(FREE | {"servers": 3, "cache_size": 1}),
    )  # fmt: skip
    for policy in ("clockwise", "rehash", "jump"):
        assert report.values(policy, "misses") == [3.0]  # every server holds one
        assert report.values(policy, "max_load") == [1.0]
    assert report.baseline_misses == 3


def test_room_in_front_of_a_copy_costs_a_miss() -> None:
    """A url that overflowed is stored again when its first server has room: Table 1's additional misses."""
    for seed in range(40):
        trace = Trace(np.array([0, 1, 9, 10, 11]) * MINUTE, np.array([1, 2, 2, 2, 2]))
        report = replay_cache(
            trace, policies=["clockwise"], seed=seed, **(FREE | {"servers": 2, "cache_size": 1})
        )
        (run,) = report.runs
        if run.longest == 2:  # 2 met 1; at minute 10 its first server is empty
            assert (run.additional, run.misses, run.searches) == (1, 3, 7 / 5)
            return
    raise AssertionError("no seed in which the two urls have one first server")


def test_without_limits_nobody_misses_more_than_the_baseline(trace: Trace) -> None:
    report = replay_cache(trace, policies=POLICIES, **(BUSY | {"cache_size": None, "limit": None}))
    for run in report.runs:
        assert (run.additional, run.dropped, run.failures, run.searches, run.longest) == (0, 0, 0, 1.0, 1)
        assert run.misses == report.baseline_misses


@pytest.mark.parametrize("policy", POLICIES)
def test_the_numbers_hang_together(trace: Trace, policy: str) -> None:
    report = replay_cache(trace, policies=[policy], repeat=3, **BUSY)
    assert (report.requests, report.distinct) == (30_000, 6000)
    for run in report.runs:
        assert run.additional == run.misses - report.baseline_misses > 0
        assert run.dropped <= run.misses <= report.requests
        assert run.max_load <= 40
        assert run.max_requests <= 26
        assert (run.failures > 0) == (run.max_requests == 26)
        assert 1 <= run.searches <= run.longest
    assert [run.seed for run in report.runs] == [0, 1, 2]
    assert len({run.misses for run in report.runs}) > 1


def test_no_number_depends_on_threads_or_on_other_runs(trace: Trace) -> None:
    together = replay_cache(trace, policies=POLICIES, repeat=2, seed=2**64 - 1, threads=3, **BUSY)
    assert together == replay_cache(trace, policies=POLICIES, repeat=2, seed=2**64 - 1, **BUSY)
    alone = replay_cache(trace, policies=["jump"], seed=0, **BUSY).runs[0]
    assert together.runs[-1] == alone


def test_the_report_reads_well(trace: Trace) -> None:
    report = replay_cache(trace, repeat=2, **BUSY)
    assert report.policies == ("clockwise", "jump")
    assert report.ratio("clockwise", "jump") == pytest.approx(
        report.mean("clockwise", "additional") / report.mean("jump", "additional")
    )
    text = str(report)
    assert "30_000 requests, 6_000 distinct" in text
    assert "±" in text
    assert text.splitlines()[-1].startswith("jump")
    assert "±" not in str(replay_cache(trace, **BUSY))
    assert repr(report).startswith("CacheReport(trace='synthetic', requests=30_000")
    again = json.loads(json.dumps(report.to_dict()))
    assert again["configuration"]["cache_size"] == 40
    assert [run["policy"] for run in again["runs"]] == ["clockwise"] * 2 + ["jump"] * 2
    with pytest.raises(ValueError, match="policy must be one of clockwise, jump"):
        report.values("plain", "misses")
    with pytest.raises(ValueError, match="quantity must be one of misses"):
        report.values("jump", "policy")


def test_nobody_divides_by_no_misses(trace: Trace) -> None:
    report = replay_cache(trace, **FREE)
    assert report.ratio("clockwise", "jump") is None
    assert report.sd("jump", "misses") is None


def test_the_configurations_are_those_of_the_paper() -> None:
    assert list(CONFIGURATIONS) == [f"{name}-{i}" for name in ("aol", "indiana") for i in range(1, 5)]
    c = CONFIGURATIONS["aol-2"]
    assert (c.servers, c.cache_size, c.limit) == (1000, 15, 15)
    assert (c.stale_minutes, c.served_minutes, c.recovery_minutes) == (300, 10, 10)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"servers": 0}, ValueError, "servers must be"),
        ({"servers": 2**18, "copies": 2}, ValueError, "copies must be"),
        ({"cache_size": -1}, ValueError, "cache_size must be"),
        ({"cache_size": 1.5}, TypeError, "cache_size must be"),
        ({"limit": -1}, ValueError, "limit must be .* Pass None"),
        ({"stale_minutes": -1}, ValueError, "stale_minutes must be"),
        ({"served_minutes": float("nan")}, ValueError, "served_minutes must be"),
        ({"recovery_minutes": "x"}, TypeError, "recovery_minutes must be"),
        ({"policies": "jump"}, TypeError, "policies must be a list"),
        ({"policies": []}, ValueError, "policies must be at least one"),
        ({"policies": ["hop"]}, ValueError, "policies must be of plain, .* got 'hop'"),
        ({"seed": -1}, ValueError, "seed must be"),
        ({"repeat": 0}, ValueError, "repeat must be"),
        ({"threads": 0}, ValueError, "threads must be"),
        ({"trace": [1, 2]}, TypeError, "trace must be a Trace"),
        ({"trace": Trace([], [])}, ValueError, "trace must have requests"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(options: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"trace": Trace([0], [1])} | FREE | options
    with pytest.raises(error, match=message):
        replay_cache(**arguments)


def test_progress_is_told_and_its_error_stops_the_work(trace: Trace) -> None:
    told: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        told.append((done, total))
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        replay_cache(trace, repeat=10_000, progress=progress, **BUSY)
    assert len(told) == 1
    assert told[0][1] == 20_000 * 30_000


def test_a_signal_stops_the_work(trace: Trace) -> None:
    def interrupt() -> None:
        ready.wait()
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    ready = threading.Event()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        ready.set()
        replay_cache(trace, repeat=10_000, **BUSY)
    thread.join()


def test_a_report_is_a_value(trace: Trace) -> None:
    assert isinstance(replay_cache(trace, **FREE), CacheReport)
    assert replay_cache(trace, **FREE) == replay_cache(trace, **FREE)


def test_the_examples_in_the_docstrings_run() -> None:
    results = doctest.testmod(simulate)
    assert results.failed == 0
    assert results.attempted >= 3

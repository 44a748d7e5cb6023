"""Connections cut at random bytes, against exact oracles: tools/fault_study.py in small. See its head."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import fault_study
from fault_proxy import FaultProxy
from fault_study import Outcome, Run


def kept(run: Run, *, cuts: int) -> None:
    """Every promise was kept, no call took longer than its attempts may, and there were cuts at all."""
    outcome = fault_study.at_the_machines_pace(run)
    assert outcome.good, str(outcome)
    assert outcome.cuts >= cuts, str(outcome)


@pytest.mark.parametrize("quick", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize("policy", fault_study.POLICIES)
def test_a_filter_on_one_server(policy: str, quick: bool) -> None:
    kept(partial(fault_study.run_filter, "one", policy, calls=20, seed=2, quick=quick), cuts=4)


@pytest.mark.parametrize("quick", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize("kind", ["several", "cluster"])
def test_a_filter_on_three_servers(kind: str, quick: bool) -> None:
    kept(partial(fault_study.run_filter, kind, "multilevel", calls=16, seed=2, quick=quick), cuts=3)


@pytest.mark.parametrize("kind", ["redis", "async", "memcached"])
def test_values_on_three_servers(kind: str) -> None:
    kept(partial(fault_study.run_values, kind, calls=80, seed=2), cuts=20)


def test_the_router() -> None:
    kept(partial(fault_study.run_router, calls=60, seed=2), cuts=10)


def test_shared_loads() -> None:
    kept(partial(fault_study.run_loads, calls=240, seed=2), cuts=5)


# --- the excuse of a busy machine ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "slow", "runs"),
    [
        ("values-redis", False, 1),
        ("values-redis", True, 3),
        ("filter-one", True, 1),
        ("filter-one", False, 1),
    ],
)
def test_only_a_machine_that_is_slow_is_an_excuse_and_never_for_wrong_answers_of_filters(
    kind: str, slow: bool, runs: int
) -> None:
    """A run that is wrong each time: how often it is tried."""
    timeouts = []

    async def run(*, timeout: float) -> Outcome:
        timeouts.append(timeout)
        FaultProxy.slowest = timeout if slow else 0.0
        return Outcome(kind, wrong=1, timeout=timeout)

    outcome = fault_study.at_the_machines_pace(run)
    assert not outcome.good
    assert tuple(timeouts) == fault_study.TIMEOUTS[:runs] or not slow  # this machine may be slow by itself


def test_a_run_that_raises_is_repeated_only_on_a_slow_machine() -> None:
    timeouts = []

    async def run(*, timeout: float) -> Outcome:
        timeouts.append(timeout)
        FaultProxy.slowest = timeout
        if len(timeouts) < 3:
            raise ConnectionError
        return Outcome("values-redis", timeout=timeout)

    assert fault_study.at_the_machines_pace(run).good
    assert tuple(timeouts) == fault_study.TIMEOUTS

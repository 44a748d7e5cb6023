"""Connections cut at random bytes, against exact oracles: tools/fault_study.py in small. See its head."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import fault_study
from fault_study import Outcome


def kept(outcome: Outcome, *, cuts: int) -> None:
    """Every promise was kept, no call took longer than its attempts may, and there were cuts at all."""
    assert outcome.good, str(outcome)
    assert outcome.cuts >= cuts, str(outcome)
    assert outcome.longest < 4 * fault_study.TIMEOUT + 2.0, str(
        outcome
    )  # far below a hang, on a slow machine


@pytest.mark.parametrize("quick", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize("policy", fault_study.POLICIES)
def test_a_filter_on_one_server(policy: str, quick: bool) -> None:
    kept(asyncio.run(fault_study.run_filter("one", policy, calls=20, seed=2, quick=quick)), cuts=4)


@pytest.mark.parametrize("quick", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize("kind", ["several", "cluster"])
def test_a_filter_on_three_servers(kind: str, quick: bool) -> None:
    kept(asyncio.run(fault_study.run_filter(kind, "multilevel", calls=16, seed=2, quick=quick)), cuts=3)


@pytest.mark.parametrize("kind", ["redis", "async", "memcached"])
def test_values_on_three_servers(kind: str) -> None:
    for _ in range(3):
        outcome = asyncio.run(fault_study.run_values(kind, calls=80, seed=2))
        # A machine so busy that answers come after the timeout takes a server down, as it should; then keys
        # are elsewhere, which is not what this counts.
        if not any("ServerDownError" in each for each in outcome.failed):
            break
    kept(outcome, cuts=20)


def test_the_router() -> None:
    kept(asyncio.run(fault_study.run_router(calls=60, seed=2)), cuts=10)


def test_shared_loads() -> None:
    kept(asyncio.run(fault_study.run_loads(calls=240, seed=2)), cuts=5)

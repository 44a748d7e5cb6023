"""Optimal shares and least space: against random neighbours, both ways, the thesis' numbers, the overflow
list.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from scipy.stats import nbinom, poisson

from evenbins.study.theory import tables
from evenbins.theory import fluid, optimise

CASES = [
    ("standard", 1), ("conservative", 1), ("second-chance", 1), ("extreme-second-chance", 1), ("standard", 2),
    ("standard", 8),
]  # fmt: skip
STEADY = [("standard", 1), ("second-chance", 1), ("standard", 2)]


@pytest.mark.parametrize(("scheme", "slots"), CASES)
def test_no_neighbour_is_better(scheme: str, slots: int) -> None:
    best = np.array(optimise.shares(scheme, 3, 1.3, slots))
    assert best.sum() * slots == pytest.approx(1.3)
    least = fluid.solve(scheme, best, slots).overflow
    rng = np.random.default_rng(2)
    for size in (0.02, 0.1, 0.5):
        for _ in range(4):
            other = best * np.exp(rng.normal(0, size, 3))
            other *= best.sum() / other.sum()
            assert fluid.solve(scheme, other, slots).overflow > least * (1 - 1e-7)


@pytest.mark.parametrize(("scheme", "slots"), STEADY)
def test_no_neighbour_is_better_under_deletions(scheme: str, slots: int) -> None:
    best = np.array(optimise.shares(scheme, 4, 2.0, slots, deletions=True))
    least = fluid.steady_state(scheme, best, slots).overflow
    rng = np.random.default_rng(2)
    for size in (0.02, 0.1, 0.5):
        for _ in range(4):
            other = best * np.exp(rng.normal(0, size, 4))
            other *= best.sum() / other.sum()
            assert fluid.steady_state(scheme, other, slots).overflow > least * (1 - 1e-7)


@pytest.mark.parametrize(("scheme", "slots"), CASES)
@pytest.mark.parametrize("overflow", [0.02, 1e-6])
def test_space_and_shares_are_each_others_inverse(scheme: str, slots: int, overflow: float) -> None:
    """The one minimises space, the other overflow, by different methods."""
    found = optimise.space(scheme, 3, overflow, slots)
    assert found.overflow == pytest.approx(overflow, rel=1e-6)
    again = optimise.shares(scheme, 3, found.space, slots)
    assert fluid.solve(scheme, again, slots).overflow == pytest.approx(overflow, rel=2e-3)
    assert found.space == pytest.approx(slots * sum(found.shares))
    assert found.space < tables.naive_space(scheme, 3, overflow, slots).space


@pytest.mark.parametrize(("scheme", "slots"), STEADY)
def test_space_under_deletions(scheme: str, slots: int) -> None:
    found = optimise.space(scheme, 4, 0.002, slots, deletions=True)
    assert found.overflow == pytest.approx(0.002, rel=1e-6)
    again = optimise.shares(scheme, 4, found.space, slots, deletions=True)
    assert fluid.steady_state(scheme, again, slots).overflow == pytest.approx(0.002, rel=2e-3)
    assert found.space > optimise.space(scheme, 4, 0.002, slots).space


def test_more_levels_more_slots_and_more_overflow_need_less_space() -> None:
    assert optimise.space("standard", 4, 0.002).space > optimise.space("standard", 5, 0.002).space
    assert optimise.space("standard", 4, 0.002).space > optimise.space("standard", 4, 0.01).space
    spaces = [optimise.space("standard", 3, 0.002, slots).space for slots in (1, 2, 4, 8)]
    assert spaces == sorted(spaces, reverse=True)


def test_another_start_finds_the_same_optimum() -> None:
    """The true curve of SCExt, where the thesis' minimiser failed."""
    for start in ([1, 2, 4, 8], [8, 1, 4, 1]):
        found = tables.curve("extreme-second-chance", 4, [1.2], start=start)[0]
        assert found.overflow == pytest.approx(4.71481e-4, rel=1e-5)


def test_a_curve_is_its_points() -> None:
    spaces = [1.2, 1.4]
    for found, space in zip(tables.curve("second-chance", 4, spaces), spaces, strict=True):
        alone = fluid.solve("second-chance", optimise.shares("second-chance", 4, space))
        assert found.overflow == pytest.approx(alone.overflow, rel=1e-6)


def test_equal_levels() -> None:
    assert tables.naive_shares(4, 2.0, 2) == (0.25,) * 4
    assert tables.naive_space("conservative", 4, 0.002).space == pytest.approx(1.46, abs=0.005)


def test_an_optimum_can_be_read_and_written() -> None:
    found = optimise.space("standard", 2, 0.05)
    assert json.loads(json.dumps(asdict(found)))["overflow"] == found.overflow == pytest.approx(0.05)
    assert found.levels == 2
    assert not found.deletions
    assert "shares=" in repr(found)


# --- the overflow list -----------------------------------------------------------------------------------


def test_the_distribution_is_that_of_scipy() -> None:
    over = optimise.OverflowDistribution(20.0, 28.0)
    law = nbinom(20 / 0.4, 1 / 1.4)
    assert law.mean() == pytest.approx(20)
    assert law.var() == pytest.approx(28)
    exact = optimise.OverflowDistribution(20.0, 20.0)
    for limit in (0, 10, 20, 64):
        assert over.overrun(limit) == pytest.approx(law.sf(limit), rel=1e-9)
        assert exact.overrun(limit) == pytest.approx(poisson(20).sf(limit), rel=1e-9)
    assert exact.overrun(-1) == 1
    for law_ in (over, exact):
        limit = law_.limit(1e-9)
        assert law_.overrun(limit) <= 1e-9 < law_.overrun(limit - 1)


def test_the_list_is_over_dispersed() -> None:
    shares = (0.2048, 0.1961, 0.0954, 0.0299)
    list_ = optimise.overflow_distribution("second-chance", shares, 10_000, 2)
    assert list_.mean == pytest.approx(1e4 * fluid.solve("second-chance", shares, 2).overflow, rel=1e-5)
    assert 1.4 < list_.ratio < 1.5
    assert optimise.overflow_limit("second-chance", shares, 10_000, 2) == list_.limit()
    assert list_.limit() > optimise.OverflowDistribution(list_.mean, list_.mean).limit()


def test_a_longer_list_is_exceeded_less() -> None:
    shares = optimise.shares("second-chance", 4, 2.0, deletions=True)
    limits = [optimise.overflow_limit("second-chance", shares, 10_000, overrun=overrun, deletions=True)
              for overrun in (1e-3, 1e-6, 1e-9)]  # fmt: skip
    assert limits == sorted(set(limits))
    assert optimise.overflow_limit("standard", [9.0, 9.0, 9.0, 9.0], 1) == 0


def test_a_list_of_a_tiny_overflow_is_poisson() -> None:
    list_ = optimise.overflow_distribution("second-chance", optimise.shares("second-chance", 4, 1.8), 10**6)
    assert list_.ratio == pytest.approx(1, abs=0.001)


# --- arguments -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: optimise.shares("least-loaded", 4, 1.3), "scheme must be one of"),
        (lambda: optimise.shares("standard", 0, 1.3), "levels must be"),
        (lambda: optimise.shares("standard", 17, 1.3), "levels must be"),
        (lambda: optimise.shares("standard", 4, 0.0), "space must be"),
        (lambda: optimise.shares("standard", 4, float("inf")), "space must be"),
        (lambda: optimise.shares("conservative", 4, 1.3, 2), "slots must be 1"),
        (lambda: optimise.shares("conservative", 4, 1.3, deletions=True), "under deletions"),
        (lambda: optimise.space("standard", 4, 0.0), "overflow must be"),
        (lambda: optimise.space("standard", 4, 0.9), "overflow must be"),
        (lambda: tables.naive_shares(4, -1.0), "space must be"),
        (lambda: tables.naive_space("standard", 4, 2.0), "overflow must be"),
        (lambda: tables.curve("standard", 4, [1.2], start=[1.0]), "start must be 4 shares"),
        (lambda: optimise.overflow_limit("standard", [1.0], 0), "capacity must be"),
        (lambda: optimise.overflow_limit("standard", [1.0], 10, overrun=0.0), "overrun must be"),
    ],
)
def test_wrong_values(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def test_wrong_types() -> None:
    with pytest.raises(TypeError, match="levels must be"):
        optimise.shares("standard", 4.0, 1.3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="space must be"):
        optimise.shares("standard", 4, "1.3")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="overflow must be"):
        optimise.space("standard", 4, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("slots", [1, 2, 8])
def test_levels_that_nothing_reaches_raise_no_warning(slots: int) -> None:
    """Far more space than keys: shares underflow."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list_ = optimise.overflow_distribution(
            "standard", [1000.0, 1000.0, 1000.0], 1000, slots, deletions=True
        )
    assert 0 < list_.mean < 1e-6

"""Plans altered by `dataclasses.replace`: `from_plan` names the field that is wrong."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evenbins as eb
from evenbins.filters import plan_balanced
from evenbins.structure import kind_of_policy
from evenbins.tables import summaries

POLICIES = ("single", "sequential", "multilevel", "fill", "two-choice")
RAW = ("incompatible function arguments", "nanobind", "bad_cast", "std::", "_core")


def balanced(policy: str) -> Callable[[], Any]:
    return lambda: eb.BalancedBloomFilter.from_plan(plan_balanced(2000, policy=policy))


FILTERS: dict[str, Callable[[], Any]] = {
    "standard": lambda: eb.BloomFilter(2000),
    "blocked": lambda: eb.BlockedBloomFilter(2000, fpr=1e-3),
    "counting": lambda: eb.CountingBloomFilter(2000),
    "fingerprint": lambda: eb.FingerprintFilter(2000),
    "window": lambda: eb.WindowFilter(100_000, 2000),
    **{policy: balanced(policy) for policy in POLICIES},
}
STRUCTURES: dict[str, Callable[[], Any]] = {
    **FILTERS,
    "CountMinSketch": eb.CountMinSketch,
    "HyperLogLog": eb.HyperLogLog,
    "HeavyHitters": lambda: eb.HeavyHitters(10),
    "MultilevelTable": lambda: eb.MultilevelTable(2000),
    "MultilevelTable, summary": lambda: eb.MultilevelTable(2000, summary="interpolation"),
    "ChainedTable": lambda: eb.ChainedTable(2000),
    "InterpolationSummary": lambda: summaries.InterpolationSummary(2000),
    "SingleFilterSummary": lambda: summaries.SingleFilterSummary(2000),
    "MultipleBloomSummary": lambda: summaries.MultipleBloomSummary(2000),
}
WRONG_FIELDS: dict[str, list[Any]] = {
    "keys": ["x", None, 1.5, 0, -1, 2**48 + 1, 2**64, True],
    "seed": ["x", None, 1.5, -1, 2**64, True],
    "hashing": ["zz", None, 3, []],
    "summary": [0, "zz", []],
    "precision": ["x", None, 0, 3, 19, 2**64],
    "k": ["x", None, 0],
    "core": [None, "x", b"xx", 5, (), (1,), {}],
}


def wrong_cores(core: tuple[int, ...]) -> list[Any]:
    """Return cores of a wrong length, and cores with one integer of a wrong type or far out of range."""
    found: list[Any] = [core[:-1], (*core, 0)]
    for place in range(len(core)):
        found += [(*core[:place], junk, *core[place + 1 :]) for junk in (-1, 2**64, "x", None, 1.5)]
    return found


def alterations(plan: Any) -> list[tuple[str, Any]]:
    names = {each.name for each in dataclasses.fields(plan)}
    chosen = [(name, value) for name in WRONG_FIELDS if name in names for value in WRONG_FIELDS[name]]
    return chosen + [("core", core) for core in (wrong_cores(tuple(plan.core)) if "core" in names else ())]


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_wrong_field_is_named(name: str) -> None:
    made = STRUCTURES[name]()
    for field, value in alterations(made.plan):
        altered = dataclasses.replace(made.plan, **{field: value})
        with pytest.raises((ValueError, TypeError)) as caught:
            type(made).from_plan(altered)
        text = str(caught.value)
        assert isinstance(caught.value, eb.errors.EvenbinsError), (field, value, text)
        assert field in text, (field, value, text)
        assert "got" in text, (field, value, text)
        assert not any(each in text for each in RAW), text


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("policy", ["zz", 3, None, []])
def test_an_unknown_policy_is_named(name: str, policy: Any) -> None:
    made = FILTERS[name]()
    with pytest.raises((ValueError, TypeError), match="policy must be one of"):
        type(made).from_plan(dataclasses.replace(made.plan, policy=policy))


def test_no_kind_has_an_unknown_policy() -> None:
    with pytest.raises(ValueError, match="policy must be one of"):
        kind_of_policy("zz")


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_plan_that_nobody_altered_stays_what_it_is(name: str) -> None:
    made = STRUCTURES[name]()
    again = type(made).from_plan(made.plan)
    assert again.to_bytes() == made.to_bytes()
    if name != "HeavyHitters":  # its plan is made when it is asked for
        assert again.plan is made.plan


@pytest.mark.parametrize("name", FILTERS)
def test_with_keys_checks_its_argument(name: str) -> None:
    plan = FILTERS[name]().plan
    for right in (1, 100, 1e3, np.int64(100), np.float64(100), 2**40):
        assert plan.with_keys(right).keys == right
    assert plan.with_keys(0).keys == 1  # the predictions of an empty shard
    for wrong in (-1, 1.5, math.nan, math.inf, "5", None, True, [], np.arange(2), 2**48 + 1, 2**64):
        with pytest.raises((ValueError, TypeError), match="keys must be a whole number of keys from 1 to"):
            plan.with_keys(wrong)

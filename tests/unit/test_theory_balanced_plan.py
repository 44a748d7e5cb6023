"""Plans of balanced filters: what they reach, the bounds they keep, what they refuse and say."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sizes import size

from evenbins.filters import FilterPlan, plan_balanced, plan_blocked, plan_of_core
from evenbins.study.levels import plan_levels
from evenbins.theory import fpr, levels, shapes
from evenbins.theory.cores import COUNTED, POLICIES

MANY = 10_000_000

# --- what plans reach ----------------------------------------------------------------------------


def test_fill_at_16_bits_per_key() -> None:
    plan = plan_balanced(MANY, policy="fill", bits_per_key=16)
    assert plan.fpr <= 7.4e-4
    assert plan.miss_reads <= 1.45
    assert plan.bits_per_key <= 16


@pytest.mark.parametrize(("bits", "ratio"), [(16, 1.35), (24, 1.6)])
def test_two_choice_is_near_a_standard_filter(bits: int, ratio: float) -> None:
    plan = plan_balanced(MANY, policy="two-choice", bits_per_key=bits)
    best = fpr.best_hashes_standard(bits * MANY, MANY)
    assert plan.fpr <= ratio * fpr.standard(bits * MANY, best, MANY)
    assert plan.miss_reads == 2


def test_a_rate_of_one_in_a_million() -> None:
    plan = plan_balanced(MANY, fpr=1e-6)
    assert plan.bits_per_key <= 31
    assert plan.miss_reads <= 2
    assert plan.fpr <= 1e-6


@pytest.mark.parametrize("bits", [16, 24])
def test_the_best_policy_is_the_best_of_all(bits: int) -> None:
    best = plan_balanced(MANY, bits_per_key=bits)
    assert best.miss_reads <= 2
    for policy in POLICIES:
        assert best.fpr <= 1.0006 * plan_balanced(MANY, policy=policy, bits_per_key=bits, miss_reads=2).fpr


def test_levels_pay() -> None:
    """Where the paper's idea helps, the plans show it: lists, more levels, better rates."""
    rates = {policy: plan_balanced(MANY, policy=policy, bits_per_key=32).fpr for policy in POLICIES}
    assert rates["single"] < plan_blocked(MANY, bits_per_key=32).fpr
    assert rates["two-choice"] < rates["fill"] < rates["multilevel"] < rates["sequential"] < rates["single"]


# --- the integers and the memory -----------------------------------------------------------------

GOALS: list[dict[str, float]] = [{"fpr": 1e-3}, {"bits_per_key": 20}]


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("block_bits", [256, 512])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_plan_is_what_its_core_says(policy: str, block_bits: int, goal: dict[str, float]) -> None:
    plan = plan_balanced(1_000_000, policy=policy, block_bits=block_bits, seed=5, **goal)
    check(plan)
    number, bits, hashes, choices, coin, limit, spill, budget, *tables = plan.core
    assert (number, bits, hashes, choices) == (
        POLICIES.index(policy) + 1,
        block_bits,
        plan.hashes,
        plan.choices,
    )
    assert (plan.policy, plan.block_bits, plan.seed, plan.hashing) == (policy, block_bits, 5, "lanes")
    assert plan.overflow_limit == limit
    assert (spill, budget) == (0, 0)
    assert plan.coin == (coin / 2**32 if policy in COUNTED else None)
    assert plan.spill == ("least" if policy in COUNTED else None)
    assert plan.thresholds == (() if policy == "two-choice" else tuple(tables[1::2]))
    assert plan.shares == tuple(each / sum(tables[0::2]) for each in tables[0::2])
    if "fpr" in goal:
        assert plan.fpr <= goal["fpr"]
        assert plan.fpr > 0.995 * goal["fpr"]  # no memory wasted
    else:
        assert plan.bits_per_key <= 20 + block_bits / 1_000_000
        assert plan.bits_per_key > 19.99


def check(plan: FilterPlan) -> None:
    """What holds for every plan."""
    lines = sum(-(-blocks * plan.core[1] // 512) for blocks in plan.core[8::2])
    limit = plan.overflow_limit
    slots = (limit + limit // 3 + 15) // 8 * 8 if limit else 0
    state = 64 if plan.policy in COUNTED else 0
    assert plan.nbytes == 64 * lines + 8 * slots + state
    assert plan.bits_per_key == plan.nbytes * 8 / plan.keys
    assert all(blocks >= 1 for blocks in plan.core[8::2])
    assert 0 < plan.fpr <= 1
    assert 1 <= plan.reads <= plan.choices
    assert 1 <= plan.miss_reads <= plan.choices
    assert 0 <= plan.overflow <= 1
    again = plan_of_core(plan.policy, plan.core, capacity=plan.keys, seed=plan.seed)
    assert dataclasses.asdict(again) == dataclasses.asdict(plan)
    assert json.loads(json.dumps(plan.to_dict())) == plan.to_dict()
    found = levels.predict(plan.core, plan.keys)
    mean = found.overflow * found.changed * plan.keys
    if limit:
        assert levels.overflow_limit(mean, found.overflow_sd) <= limit
    if plan.policy in COUNTED and limit == 0:
        assert mean < 1e-3 or plan.overflow == 0


def _capacities() -> Iterator[Any]:
    """Every policy with every number of keys; in a short run two numbers with each policy."""
    for (i, policy), (j, capacity) in itertools.product(
        enumerate([*POLICIES, None]), enumerate((1, 10, 3000, 10**12))
    ):
        yield pytest.param(capacity, policy, marks=[pytest.mark.long] if (i + j) % 2 else [])


@pytest.mark.parametrize(("capacity", "policy"), list(_capacities()))
def test_any_number_of_keys(capacity: int, policy: str | None) -> None:
    plan = plan_balanced(capacity, policy=policy, fpr=1e-3)
    check(plan)
    assert plan.fpr <= 1e-3
    plan = plan_balanced(capacity, policy=policy, bits_per_key=16)
    check(plan)
    fixed = 64 * (2 if plan.policy in COUNTED else 1)
    assert plan.nbytes <= max(math.ceil(capacity * 16 / 512) * 64, fixed)


@settings(max_examples=size(5, 20), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    policy=st.sampled_from([*POLICIES, None]),
    capacity=st.sampled_from([50, 3_000, 10**6, 10**9]),
    bits=st.floats(5, 45),
    block_bits=st.sampled_from([256, 512]),
    reads=st.none() | st.floats(1.0, 1.5),
    miss_reads=st.none() | st.floats(1.0, 2.5),
    overflow=st.none() | st.just(0.0) | st.floats(1e-6, 0.05),
    choices=st.none() | st.integers(1, 4),
    by_rate=st.booleans(),
)
def test_bounds_are_kept(
    policy: str | None,
    capacity: int,
    bits: float,
    block_bits: int,
    reads: float | None,
    miss_reads: float | None,
    overflow: float | None,
    choices: int | None,
    by_rate: bool,
) -> None:
    if policy == "two-choice":
        reads, miss_reads, choices = None, None, None
    goal: dict[str, float] = {"fpr": 0.6**bits} if by_rate else {"bits_per_key": bits}
    plan = plan_balanced(
        capacity,
        policy=policy,
        block_bits=block_bits,
        reads=reads,
        miss_reads=miss_reads,
        overflow=overflow,
        choices=choices,
        **goal,  # type: ignore[arg-type]
    )
    check(plan)
    slack = 1 + 1e-6
    assert plan.reads <= (reads or 8) * slack
    assert plan.miss_reads <= (miss_reads or 8) * slack
    assert plan.choices <= (choices or 3)
    assert plan.overflow <= (overflow if overflow is not None else 0.005) * slack
    if by_rate:
        assert plan.fpr <= goal["fpr"]
    elif plan.nbytes > 1000:
        assert plan.nbytes * 8 <= capacity * bits + 512


def test_what_is_given_is_used() -> None:
    plan = plan_balanced(
        10**6, policy="multilevel", bits_per_key=24, thresholds=(23, 20, 18), coin=0.25, hashes=14
    )
    assert (plan.thresholds, plan.coin, plan.hashes, plan.choices) == ((23, 20, 18), 0.25, 14, 3)
    plan = plan_balanced(10**6, policy="fill", fpr=1e-4, thresholds=(270,))
    assert plan.thresholds[0] == 270 <= plan.thresholds[1] <= 512  # the last is chosen
    assert plan.fpr <= 1e-4
    again = plan_balanced(
        10**6, policy="fill", fpr=1e-4, thresholds=plan.thresholds, shares=plan.shares, hashes=plan.hashes
    )
    assert again.thresholds == plan.thresholds
    plan = plan_balanced(10**6, policy="fill", fpr=1e-4, thresholds=(270, 513))
    assert plan.thresholds == (270, 513)  # never full
    plan = plan_balanced(10**6, policy="multilevel", fpr=1e-4, shares=(8, 1, 1))
    assert plan.shares == pytest.approx((0.8, 0.1, 0.1), abs=1e-3)
    assert len(set(plan.thresholds)) == 1
    plan = plan_balanced(10**6, policy="single", bits_per_key=26, thresholds=(30,), hashes=3)
    assert (plan.thresholds, plan.hashes) == ((30,), 3)
    plan = plan_balanced(10**6, policy="multilevel", bits_per_key=24, overflow=0, spill="random")
    assert (plan.spill, plan.overflow_limit, plan.overflow, plan.list_reads) == ("random", 0, 0.0, 0.0)


def test_a_budget_leaves_room_for_chance() -> None:
    plan = plan_balanced(10**5, policy="sequential", bits_per_key=24, reads=1.03)
    assert plan.core[7] == 103_000
    assert not levels.predict(plan.core, plan.keys).exhausted
    assert plan.reads + 3 * math.sqrt(3 * 0.03 / 10**5) <= 1.03
    assert plan_balanced(10**5, policy="sequential", bits_per_key=24).core[7] == 0


def test_more_memory_is_never_worse() -> None:
    for policy in POLICIES:
        rates = [plan_balanced(MANY, policy=policy, bits_per_key=bits).fpr for bits in (12, 18, 32)]
        assert rates == sorted(rates, reverse=True)


def test_the_search_is_near_the_best_neighbours() -> None:
    """No threshold, share or number of hashes nearby is better by more than 1 %."""
    plan = plan_balanced(MANY, policy="fill", bits_per_key=20)
    first, second = plan.core[8], plan.core[10]
    for hashes in (-1, 0, 1):
        for mark in (-6, 0, 6):
            for share in (0.8, 1.0, 1.25):
                blocks = (first + second - round(second * share), round(second * share))
                other = plan_levels(
                    MANY,
                    policy="fill",
                    blocks=blocks,
                    thresholds=(plan.thresholds[0] + mark,),
                    hashes=plan.hashes + hashes,
                )
                assert other.fpr > 0.99 * plan.fpr


def test_shapes_do_not_depend_on_the_number_of_keys() -> None:
    one, two = (plan_balanced(capacity, policy="fill", bits_per_key=20) for capacity in (10**7, 10**9))
    assert one.thresholds == two.thresholds
    assert one.shares == pytest.approx(two.shares, rel=1e-3)
    assert one.fpr == pytest.approx(two.fpr, rel=1e-3)


# --- explicit numbers ----------------------------------------------------------------------------


def test_explicit_levels_are_taken_as_they_are() -> None:
    plan = plan_levels(
        40_960, policy="multilevel", block_bits=256, hashes=7, blocks=(850, 144, 30), thresholds=(7, 7, 7),
        coin=0.5, overflow_limit=300, spill="random", seed=9,
    )  # fmt: skip
    assert plan.core == (3, 256, 7, 3, 2**31, 300, 1, 0, 850, 7, 144, 7, 30, 7)
    assert (plan.coin, plan.spill, plan.seed) == (0.5, "random", 9)
    check_numbers = plan_of_core("multilevel", plan.core, capacity=40_960, seed=9)
    assert check_numbers == plan
    sequential = plan_levels(
        1000, policy="sequential", hashes=7, blocks=(30,), thresholds=(40,), overflow_limit=9, budget=1100
    )
    assert sequential.core == (2, 512, 7, 3, 0, 9, 0, 1100, 30, 40)
    assert plan_levels(1000, policy="two-choice", hashes=7, blocks=np.array([30])).core[-2:] == (30, 0)
    assert plan_levels(1000, policy="fill", hashes=7, blocks=[30], thresholds=[513]).core[-2:] == (30, 513)
    assert plan_levels(10, policy="single", hashes=7, blocks=(30,), thresholds=(4,), coin=1).core[4] == 2**32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "best"}, 'policy must be one of "single", "sequential"'),
        ({"blocks": ()}, "blocks must be the numbers of blocks of 1 to 8 tables"),
        ({"policy": "single"}, "blocks must be the numbers of blocks of one table"),
        ({"thresholds": (1,)}, "thresholds must be 2 numbers, one for each table"),
        ({"thresholds": (1, 65535)}, r"thresholds\[1\] must be an integer from 0 to 65534; got 65535"),
        ({"blocks": (0, 1)}, r"blocks\[0\] must be an integer from 1 to"),
        ({"coin": 1.5}, "coin must be a probability from 0 to 1; got 1.5"),
        ({"hashes": 33}, "hashes must be an integer from 1 to 32; got 33"),
        ({"spill": "most"}, 'spill must be "least" or "random"'),
        ({"block_bits": 128}, "block_bits must be 256 or 512"),
        ({"choices": 3}, "choices must be 2 for policy='multilevel'; got 3"),
        ({"budget": 5}, "budget must be 0 for policy='multilevel'; got 5"),
        (
            {"policy": "fill", "overflow_limit": 5, "thresholds": (3,)},
            "overflow_limit must be 0 for policy='fill'",
        ),
        ({"policy": "fill", "thresholds": (0,)}, r"thresholds\[0\] must be an integer from 1 to 512"),
        ({"blocks": (2**47, 2**47)}, r"at most 2\*\*56 bits"),
        ({"capacity": 0}, "capacity must be"),
    ],
)
def test_wrong_levels_are_refused(change: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {
        "capacity": 100,
        "policy": "multilevel",
        "hashes": 5,
        "blocks": (9, 3),
        "thresholds": (5, 5),
    }
    with pytest.raises(ValueError, match=message):
        plan_levels(**(right | change))


@pytest.mark.parametrize(
    ("policy", "core", "message"),
    [
        ("fill", (4, 512, 9), r"core must be the integers \(policy, block_bits, .*, …\) of a fill filter"),
        ("fill", (4, 512, 9, 1, 0, 0, 0, 0, 5, 513, 7), "core must be the integers"),
        (
            "fill",
            (3, 512, 9, 1, 0, 0, 0, 0, 5, 513),
            r"core\[0\] \(policy\) must be 4 for policy='fill'; got 3",
        ),
        ("fill", (4, 512, 9, 1, 0, 0, 0, 0, 5, 514), r"core\[9\] \(threshold_0\) must be an integer from 1"),
        ("fill", (4, 512, 9, 2, 0, 0, 0, 0, 5, 513), r"core\[3\] \(choices\) must be 1"),
        ("fill", (4, 512, 9, 1, 1, 0, 0, 0, 5, 513), r"core\[4\] \(coin\) must be 0"),
        ("single", (1, 512, 9, 1, 2**32 + 1, 0, 0, 0, 5, 9), r"core\[4\] \(coin\) must be an integer from 0"),
        ("single", (1, 512, 9, 1, 0, 2**40 + 1, 0, 0, 5, 9), r"core\[5\] \(overflow_limit\)"),
        ("single", (1, 512, 9, 1, 0, 0, 2, 0, 5, 9), r"core\[6\] \(spill\) must be an integer from 0 to 1"),
        ("single", (1, 512, 9, 1, 0, 5, 0, 1, 5, 9), r"core\[7\] \(budget\) must be 0"),
        ("single", (1, 512, 9, 1, 0, 0, 0, 0, 5, 9, 5, 9), "8 integers and a pair for each of one table"),
        (
            "sequential",
            (2, 512, 9, 9, 0, 0, 0, 0, 5, 9),
            r"core\[3\] \(choices\) must be an integer from 1 to 8",
        ),
        ("two-choice", (5, 512, 9, 2, 0, 0, 0, 0, 5, 1), r"core\[9\] \(threshold_0\) must be 0"),
        ("multilevel", (3, 512, 9, 1, 0, 0, 0, 0, 2**47 + 1, 9), r"core\[8\] \(blocks_0\)"),
    ],
)
def test_a_wrong_core_is_refused(policy: str, core: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_of_core(policy, core, capacity=10, seed=0)


# --- what cannot be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"reads": 0.9},
            "reads must be a number of at least 1, since every insertion reads a block; got 0.9",
        ),
        ({"miss_reads": math.nan}, "miss_reads must be a number of at least 1"),
        ({"policy": "two-choice", "reads": 1.5}, 'reads must be at least 2 for policy="two-choice"; got 1.5'),
        ({"policy": "two-choice", "miss_reads": 1}, "miss_reads must be at least 2"),
        ({"policy": "two-choice", "choices": 1}, "choices must be at least 2"),
        ({"policy": "two-choice", "thresholds": (3,)}, "thresholds has no meaning for policy='two-choice'"),
        ({"policy": "fill", "coin": 0.5}, "coin has no meaning for policy='fill'"),
        ({"choices": 9}, "choices must be an integer from 1 to 8; got 9"),
        ({"choices": 2, "policy": "multilevel", "thresholds": (9, 9, 9)}, "choices must be at least 3"),
        ({"overflow": -0.1}, "overflow must be a fraction from 0 to 1; got -0.1"),
        ({"fpr": 1e-18}, "fpr must be at least 1.0"),
        ({"fpr": 0.1, "bits_per_key": 3}, "exclude each other"),
        ({"policy": "single", "thresholds": (3, 3)}, "thresholds must be one number for policy='single'"),
        ({"policy": "multilevel", "thresholds": ()}, "thresholds must be a number for each table"),
        ({"shares": (1, 0)}, r"shares\[1\] must be a positive number"),
        ({"policy": "multilevel", "thresholds": (9, 9), "shares": (1,)}, "shares must be 2 numbers"),
        ({"policy": "single", "fpr": 1e-9, "thresholds": (30,), "hashes": 1}, "fpr must be at least"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        plan_balanced(10**6 if "hashes" not in arguments else 2**44, **arguments)
    assert re.search(r"\. [A-Z]\w+", str(caught.value))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [({"policy": 3}, "policy"), ({"reads": "1"}, "reads"), ({"choices": 2.0}, "choices"),
     ({"overflow": "0"}, "overflow"), ({"thresholds": 5}, "thresholds"),
     ({"thresholds": (1.5,)}, "thresholds"), ({"shares": 3}, "shares"),
     ({"shares": ("a",)}, "shares"), ({"spill": 1}, "spill"), ({"capacity": "1"}, "capacity"),
     ({"coin": "1"}, "coin")],
)  # fmt: skip
def test_wrong_types_are_refused_by_name(arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name}.* must be .*; got .*\. \w+"):
        plan_balanced(**({"capacity": 1000} | arguments))


@pytest.mark.parametrize(
    ("policy", "thresholds"), [("single", (30,)), ("multilevel", (10, 10)), ("sequential", (20,))]
)
def test_too_little_memory_names_what_would_do(policy: str, thresholds: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="bits_per_key must be at least") as caught:
        plan_balanced(MANY, policy=policy, bits_per_key=12, thresholds=thresholds)
    found = re.search(r"at least ([\d.e+]+)", str(caught.value))
    assert found is not None
    enough = float(found.group(1))
    assert plan_balanced(MANY, policy=policy, bits_per_key=enough, thresholds=thresholds).overflow <= 0.005
    with pytest.raises(ValueError, match="must be at least"):
        plan_balanced(MANY, policy=policy, bits_per_key=0.93 * enough, thresholds=thresholds)


def test_a_bound_that_is_given_by_the_thresholds_is_named() -> None:
    with pytest.raises(ValueError, match=r"^miss_reads must be at least 2\.\d+ for policy='fill'") as caught:
        plan_balanced(MANY, policy="fill", bits_per_key=16, thresholds=(20,), miss_reads=1.01)
    found = re.search(r"at least ([\d.]+)", str(caught.value))
    assert found is not None
    assert plan_balanced(
        MANY, policy="fill", bits_per_key=16, thresholds=(20,), miss_reads=1.02 * float(found.group(1))
    )


# --- shapes --------------------------------------------------------------------------------------


def test_a_shape_is_the_limit_of_a_plan() -> None:
    goal = shapes.Goal(None, 20.0)
    shape = shapes.best_shape("fill", 512, goal, shapes.Bounds(), shapes.Given(), 0.0)
    plan = plan_levels(
        10**9, policy="fill", hashes=shape.hashes, blocks=[round(each * 10**9) for each in shape.blocks],
        thresholds=shape.thresholds,
    )  # fmt: skip
    assert plan.fpr == pytest.approx(shape.fpr, rel=1e-4)
    assert plan.reads == pytest.approx(shape.reads, rel=1e-5)
    assert plan.miss_reads == pytest.approx(shape.miss_reads, rel=1e-4)
    assert plan.bits_per_key == pytest.approx(shape.bits, rel=1e-5)

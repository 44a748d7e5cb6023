"""Plans of filters: what they choose, what they refuse and say, how they compare and look."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from evenbins import _show
from evenbins.filters import (
    BalancedPlan,
    BlockedPlan,
    CountingPlan,
    FilterPlan,
    StandardPlan,
    plan_balanced,
    plan_blocked,
    plan_counting,
    plan_of_core,
    plan_standard,
)
from evenbins.theory import fpr

PLANNERS = (plan_standard, plan_blocked)

FIRST = ["keys", "policy", "bits_per_key"]
LAST = ["fpr", "reads", "miss_reads", "fill", "nbytes", "hashing", "seed", "core"]
OWN = {
    StandardPlan: ["hashes"],
    BlockedPlan: ["block_bits", "hashes"],
    CountingPlan: ["block_bits", "hashes", "counter_bits", "saturation", "saturated"],
    BalancedPlan: [
        "block_bits", "hashes", "choices", "thresholds", "coin", "shares", "list_reads", "spilled",
        "overflow", "overflow_limit", "spill",
    ],
}  # fmt: skip


def shown(plan: FilterPlan) -> list[str]:
    """Return the names in the order in which a plan shows them."""
    return [*FIRST, *OWN[type(plan)], "fpr", "overfilled_fpr", *LAST[1:]]


# --- what a plan chooses -------------------------------------------------------------------------


@pytest.mark.parametrize("cls", OWN)
def test_a_plan_has_the_documented_fields(cls: type[FilterPlan]) -> None:
    names = {field.name for field in dataclasses.fields(cls)}
    assert names == {*FIRST, *OWN[cls], *LAST}
    assert {field.name for field in dataclasses.fields(FilterPlan)} == {*FIRST, *LAST}


@pytest.mark.parametrize("planner", [plan_standard, plan_blocked, plan_counting, plan_balanced])
def test_any_plan_answers_for_what_other_families_have(planner: Any) -> None:
    """Programs that read plans of any filter read these names."""
    plan = planner(1000)
    answers = {
        "block_bits": None, "counter_bits": None, "choices": 1, "thresholds": (), "coin": None,
        "shares": (1.0,), "list_reads": 0.0, "spilled": 0.0, "saturation": 0.0, "saturated": 0.0,
        "overflow": 0.0, "overflow_limit": 0, "spill": None,
    }  # fmt: skip
    assert plan.hashes > 0
    for name, default in answers.items():
        assert name in OWN[type(plan)] or getattr(plan, name) == default
    assert FilterPlan.hashes == 0  # a family need not have any


def test_a_standard_plan_has_the_least_bits_and_their_predictions() -> None:
    plan = plan_standard(1_000_000, fpr=1e-3, seed=7)
    bits, hashes = plan.core
    assert bits == fpr.standard_bits(1_000_000, 1e-3)
    assert plan.hashes == hashes == 10
    assert plan.fpr == fpr.standard(bits, hashes, 1_000_000) <= 1e-3
    assert plan.fill == fpr.standard_fill(bits, hashes, 1_000_000)
    assert plan.reads == 10
    assert plan.miss_reads == fpr.standard_miss_reads(plan.fill, 10)
    assert plan.nbytes == 8 * math.ceil(bits / 64)
    assert plan.bits_per_key == plan.nbytes * 8 / plan.keys
    assert (plan.policy, plan.hashing, plan.seed) == ("standard", "independent", 7)
    assert (plan.block_bits, plan.choices, plan.thresholds, plan.coin) == (None, 1, (), None)
    assert (plan.shares, plan.overflow, plan.overflow_limit) == ((1.0,), 0.0, 0)


@pytest.mark.parametrize("block_bits", [256, 512])
def test_a_blocked_plan_has_the_least_blocks_and_their_predictions(block_bits: int) -> None:
    plan = plan_blocked(1_000_000, fpr=1e-4, block_bits=block_bits, seed=2**64 - 1)
    blocks, core_block_bits, hashes = plan.core
    assert blocks == fpr.blocked_blocks(1_000_000, 1e-4, block_bits)
    assert plan.block_bits == core_block_bits == block_bits
    assert plan.hashes == hashes == fpr.best_hashes_blocked(blocks, block_bits, 1_000_000)
    assert plan.fpr == fpr.blocked(blocks, block_bits, hashes, 1_000_000) <= 1e-4
    assert plan.fill == fpr.blocked_fill(blocks, block_bits, hashes, 1_000_000)
    assert plan.reads == plan.miss_reads == 1
    assert plan.nbytes == blocks * block_bits // 8
    assert plan.bits_per_key == blocks * block_bits / 1_000_000
    assert (plan.policy, plan.hashing, plan.seed) == ("blocked", "lanes", 2**64 - 1)


@pytest.mark.parametrize("planner", PLANNERS)
def test_one_percent_is_the_default(planner: Any) -> None:
    assert planner(5000).core == planner(5000, fpr=0.01).core


def test_hashes_given_are_kept() -> None:
    for hashes in (1, 5, 32):
        for goal in ({"fpr": 0.02}, {"bits_per_key": 12}):
            assert plan_standard(1000, hashes=hashes, **goal).hashes == hashes
            assert plan_blocked(1000, hashes=hashes, **goal).hashes == hashes
    assert plan_standard(1000, hashes=64).hashes == 64


def test_a_blocked_filter_may_need_more_than_sixteen_hashes() -> None:
    plan = plan_blocked(10_000, fpr=1e-12)
    assert 16 < plan.hashes <= 32
    assert plan.fpr <= 1e-12


@pytest.mark.parametrize(
    ("keys", "bits_per_key", "bits"),
    [
        (1000, 28.755, 28755),
        (10, 10.1, 101),
        (3, 0.1, 1),
        (30, 0.1, 3),
        (10, 10.11, 102),
        (7, 1e-9, 1),
        (3, 64 / 3, 64),
        (10, np.float64(1.1), 11),
        (10, Fraction(11, 10), 11),
        (10**6, 28.755, 28_755_000),
        (10**13, 4096, 4096 * 10**13),
    ],
)
def test_bits_are_rounded_up_but_not_for_float_noise(keys: int, bits_per_key: float, bits: int) -> None:
    assert plan_standard(keys, bits_per_key=bits_per_key, hashes=3).core == (bits, 3)


def test_blocks_are_rounded_up_but_not_for_float_noise() -> None:
    assert plan_blocked(10, bits_per_key=51.2, hashes=3).core[0] == 1
    assert plan_blocked(10, bits_per_key=51.3, hashes=3).core[0] == 2
    assert plan_blocked(10_000_000, bits_per_key=14.4).nbytes == 18_000_000
    for blocks in range(1, 400):
        again = plan_blocked(1001, bits_per_key=blocks * 512 / 1001, hashes=3)
        assert again.core[0] == blocks


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize(
    "capacity",
    [10**6, 1e6, np.int64(10**6), np.uint32(10**6), np.float32(1e6), np.array(10**6)],
)
def test_a_capacity_is_any_whole_number(planner: Any, capacity: Any) -> None:
    plan = planner(capacity)
    assert plan == planner(1_000_000)
    assert plan.keys == 10**6
    assert type(plan.keys) is int


@pytest.mark.parametrize("planner", PLANNERS)
def test_enormous_filters_can_be_planned(planner: Any) -> None:
    for capacity in (10**14, 2**48):
        assert planner(capacity).fpr <= 0.01
        assert planner(capacity, bits_per_key=256).nbytes >= capacity * 32
    assert planner(2**48, bits_per_key=256).nbytes == 2**53


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("goal", [{"fpr": 0.9999}, {"bits_per_key": 1e-12}, {"bits_per_key": 4096}])
def test_a_single_key_can_be_planned_for(planner: Any, goal: dict[str, float]) -> None:
    plan = planner(1, **goal)
    assert 0 < plan.fpr <= 1
    assert plan.nbytes >= 8


# --- from the core to the plan -------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan",
    [
        plan_standard(1234, fpr=1e-5, seed=3),
        plan_standard(10**9, bits_per_key=0.5),
        plan_blocked(1234, fpr=1e-5, seed=3),
        plan_blocked(10**9, bits_per_key=20, block_bits=256),
    ],
)
def test_a_core_gives_its_plan_again(plan: FilterPlan) -> None:
    again = plan_of_core(plan.policy, plan.core, capacity=plan.keys, seed=plan.seed)
    assert dataclasses.asdict(again) == dataclasses.asdict(plan)
    other = plan_of_core(plan.policy, list(plan.core), capacity=10 * plan.keys, seed=plan.seed)
    assert other == plan
    assert other.fpr > plan.fpr


@pytest.mark.parametrize(
    ("policy", "core", "names"),
    [
        ("round", (1, 1), 'policy must be one of .*"standard", "blocked", .*; got \'round\''),
        ("standard", (), r"core must be the integers \(bits, hashes\)"),
        ("standard", (100, 3, 1), r"core must be the integers \(bits, hashes\)"),
        ("standard", (0, 3), r"core\[0\] \(bits\) must be an integer from 1 .*; got 0"),
        ("standard", (2**56 + 1, 3), r"core\[0\] \(bits\) must be"),
        ("standard", (100, 65), r"core\[1\] \(hashes\) must be an integer from 1 to 64; got 65"),
        ("standard", (100, 0), r"core\[1\] \(hashes\)"),
        ("blocked", (5, 3), r"core must be the integers \(blocks, block_bits, hashes\)"),
        ("blocked", (0, 512, 3), r"core\[0\] \(blocks\)"),
        ("blocked", (5, 128, 3), r"core\[1\] \(block_bits\) must be 256 or 512; got 128"),
        ("blocked", (5, 512, 33), r"core\[2\] \(hashes\) must be an integer from 1 to 32; got 33"),
        ("blocked", (2**48, 512, 3), r"at most 2\*\*56 bits \(9\.01 PB\)"),
    ],
)
def test_a_wrong_core_is_refused(policy: str, core: tuple[int, ...], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        plan_of_core(policy, core, capacity=10, seed=0)


@pytest.mark.parametrize(
    ("policy", "core"),
    [(1, (1, 1)), ("standard", 5), ("standard", "ab"), ("standard", b"ab"),
     ("standard", (1.0, 2)), ("standard", (True, 2)), ("blocked", (1, 512, "3"))],
)  # fmt: skip
def test_a_core_of_wrong_types_is_refused(policy: Any, core: Any) -> None:
    with pytest.raises(TypeError, match=r"^(policy|core)"):
        plan_of_core(policy, core, capacity=10, seed=0)


# --- what a plan refuses -------------------------------------------------------------------------

WRONG_TYPES: list[tuple[dict[str, Any], str]] = [
    ({"capacity": True}, "capacity"),
    ({"capacity": np.True_}, "capacity"),
    ({"capacity": "1000"}, "capacity"),
    ({"capacity": None}, "capacity"),
    ({"capacity": [1000]}, "capacity"),
    ({"capacity": np.array([1, 2])}, "capacity"),
    ({"capacity": 1 + 0j}, "capacity"),
    ({"fpr": "0.01"}, "fpr"),
    ({"fpr": False}, "fpr"),
    ({"fpr": 0.1j}, "fpr"),
    ({"fpr": Decimal("0.1")}, "fpr"),
    ({"bits_per_key": "16"}, "bits_per_key"),
    ({"bits_per_key": True}, "bits_per_key"),
    ({"bits_per_key": [16]}, "bits_per_key"),
    ({"hashes": 3.0}, "hashes"),
    ({"hashes": True}, "hashes"),
    ({"hashes": "3"}, "hashes"),
    ({"seed": 1.0}, "seed"),
    ({"seed": None}, "seed"),
    ({"seed": True}, "seed"),
]

WRONG_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"capacity": 0}, "capacity must be a whole number of keys from 1 to 2**48; got 0 (int)"),
    ({"capacity": -5}, "got -5 (int)"),
    ({"capacity": 2**48 + 1}, "capacity must be"),
    ({"capacity": 10.5}, "capacity must be a whole number of keys from 1 to 2**48; got 10.5"),
    ({"capacity": 1e30}, "capacity must be"),
    ({"capacity": math.nan}, "capacity must be"),
    ({"capacity": math.inf}, "capacity must be"),
    ({"capacity": 10**5000}, "capacity must be a whole number of keys from 1 to 2**48; got an int"),
    ({"fpr": 0}, "fpr must be a number between 0 and 1, both excluded; got 0 (int)"),
    ({"fpr": 1.0}, "fpr must be a number between 0 and 1, both excluded; got 1.0 (float)"),
    ({"fpr": -0.1}, "fpr must be"),
    ({"fpr": 10**400}, "fpr must be"),
    ({"fpr": math.nan}, "fpr must be"),
    ({"fpr": 1e-18}, "fpr must be at least 5.426e-17 for 1000 keys"),
    ({"fpr": 1e-300}, "fpr must be at least 5.426e-17 for 1000 keys"),
    ({"fpr": 1e-16, "hashes": 1}, "leave hashes out"),
    ({"bits_per_key": 0}, "bits_per_key must be a number above 0 and at most 4096; got 0 (int)"),
    ({"bits_per_key": -1.0}, "bits_per_key must be"),
    ({"bits_per_key": 4096.5}, "bits_per_key must be"),
    ({"bits_per_key": math.inf}, "bits_per_key must be"),
    ({"bits_per_key": math.nan}, "bits_per_key must be"),
    ({"bits_per_key": 16, "fpr": 0.1}, "fpr and bits_per_key exclude each other; got fpr=0.1"),
    ({"capacity": 2**48, "bits_per_key": 4096}, "at most 2**56 bits (9.01 PB); bits_per_key=4096"),
    ({"hashes": 0}, "hashes must be an integer from 1 to"),
    ({"hashes": -1}, "hashes must be an integer from 1 to"),
    ({"seed": -1}, "seed must be an integer from 0 to 2**64 - 1; got -1 (int)"),
    ({"seed": 2**64}, "seed must be an integer from 0 to 2**64 - 1; got 18446744073709551616"),
]


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize(("arguments", "name"), WRONG_TYPES)
def test_wrong_types_are_refused_by_name(planner: Any, arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name} must be .*; got .*\. \w+"):
        planner(**({"capacity": 1000} | arguments))


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize(("arguments", "message"), WRONG_VALUES)
def test_wrong_values_are_refused_with_the_rule_and_a_way_out(
    planner: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=r"\. [A-Z]\w+") as caught:
        planner(**({"capacity": 1000} | arguments))
    assert message in str(caught.value)


def test_each_policy_has_its_own_limits() -> None:
    with pytest.raises(ValueError, match="hashes must be an integer from 1 to 64; got 65"):
        plan_standard(10, hashes=65)
    with pytest.raises(ValueError, match="hashes must be an integer from 1 to 32; got 33"):
        plan_blocked(10, hashes=33)
    for block_bits in (0, 64, 1024, -512):
        with pytest.raises(ValueError, match=f"block_bits must be .*; got {block_bits} "):
            plan_blocked(10, block_bits=block_bits)
    with pytest.raises(TypeError, match="block_bits must be an integer"):
        plan_blocked(10, block_bits=512.0)  # type: ignore[arg-type]


# --- equality ------------------------------------------------------------------------------------


def test_plans_are_equal_by_policy_hashing_seed_and_core() -> None:
    plan = plan_blocked(1000, bits_per_key=16)
    same = plan_of_core("blocked", plan.core, capacity=999_999, seed=0)
    assert plan == same
    assert hash(plan) == hash(same)
    assert plan.fpr != same.fpr
    assert len({plan, same}) == 1
    for name in (*FIRST, *OWN[BlockedPlan], *LAST):
        change: dict[str, Any] = {name: None}
        is_compared = name in ("policy", "hashing", "seed", "core")
        assert (dataclasses.replace(plan, **change) != plan) is is_compared


def test_a_plan_is_frozen_and_copies_and_pickles() -> None:
    plan = plan_standard(1000)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.keys = 5  # type: ignore[misc]
    for twin in (copy.copy(plan), copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        assert dataclasses.asdict(twin) == dataclasses.asdict(plan)


# --- looks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("planner", PLANNERS)
def test_to_dict_is_json(planner: Any) -> None:
    plan = planner(np.int64(1000), bits_per_key=np.float32(12), hashes=np.uint8(5), seed=np.int8(3))
    written = plan.to_dict()
    assert list(written) == shown(plan)
    assert json.loads(json.dumps(written)) == written
    assert written["core"] == list(plan.core)


def test_repr_is_one_readable_line() -> None:
    assert repr(plan_blocked(10_000_000, bits_per_key=14.4, hashes=8)) == (
        "BlockedPlan(policy='blocked', keys=10_000_000, bits_per_key=14.4, hashes=8, fpr=1.58e-03, "
        "reads=1, miss_reads=1, nbytes=18.0 MB)"
    )


def test_str_is_an_aligned_table_of_every_field() -> None:
    plan = plan_standard(1000, fpr=1e-3)
    title, *lines = str(plan).splitlines()
    assert title == "StandardPlan"
    assert [row.split()[0] for row in lines] == shown(plan)
    assert len({len(row) - len(row.lstrip()) for row in lines}) == 1
    column = len("  overflow_limit  ")
    assert all(row[column - 1] == " " != row[column] for row in lines)


def test_html_is_escaped() -> None:
    plan = dataclasses.replace(plan_standard(1000), policy="<script>alert('&')</script>")
    page = plan._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;" in page
    assert page.count("<tr>") == page.count("</tr>") == len(shown(plan))
    assert "<b>" not in _show.html_table("<b>", [("<b>", "<b>")])


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("fpr", 0.00123456, "1.23e-03"),
        ("overflow", 0.0, "0"),
        ("keys", 10_000_000, "10_000_000"),
        ("keys", 9_999_876.4, "9_999_876"),
        ("keys", math.inf, "inf"),
        ("keys", np.int64(1234), "1_234"),
        ("reads", 1.0, "1"),
        ("reads", 2.00479, "2.005"),
        ("coin", None, "none"),
        ("full", True, "True"),
        ("nbytes", 0, "0 B"),
        ("nbytes", 999, "999 B"),
        ("nbytes", 1000, "1.00 kB"),
        ("nbytes", 999_499, "999 kB"),
        ("nbytes", 999_500, "1.00 MB"),
        ("nbytes", 9_996_000, "10.0 MB"),
        ("nbytes", 10**22, "10000 EB"),
        ("loads", tuple(range(5)), "(0, 1, 2, 3, 4)"),
        ("loads", list(range(20)), "(0, 1, 2, 3, 4, 5, … 20 in all)"),
        ("loads", np.array([[1, 2], [3, 4]]), "((1, 2), (3, 4))"),
        ("other", Fraction(1, 3), "1/3"),
    ],
)
def test_values_are_written_as_people_read_them(name: str, value: object, expected: str) -> None:
    assert _show.text(name, value) == expected


def test_an_empty_table_is_its_title() -> None:
    assert _show.table("Stats", []) == "Stats"
    assert _show.line("Stats", []) == "Stats()"

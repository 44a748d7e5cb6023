"""Plans of tables: what they predict, what their list holds, and the designs made of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from sizes import size

from evenbins import MultilevelTable, design
from evenbins.cli import commands
from evenbins.tables import TablePlan, plan_multilevel
from evenbins.tables.multilevel import plan_of_table_core
from evenbins.tables.multilevel_plan import SCHEMES, predictable, scaled_plan
from evenbins.theory import fluid, least_loaded, optimise

THESIS = [scheme for scheme in SCHEMES if scheme != "least-loaded"]


@pytest.mark.parametrize("scheme", THESIS)
@pytest.mark.parametrize("overflow", [0.02, 0.002, 1e-4])
def test_the_least_space_for_an_overflow_is_planned(scheme: str, overflow: float) -> None:
    plan = plan_multilevel(1_000_000, scheme=scheme, levels=3, overflow=overflow)
    best = optimise.space(scheme, 3, overflow)
    assert best.space <= plan.space <= best.space * 1.0001
    assert overflow * 0.99 <= plan.overflow <= overflow  # type: ignore[operator]


def test_predictions_are_those_of_the_equations_at_the_rounded_sizes() -> None:
    plan = plan_multilevel(1000, scheme="second-chance", space=1.3)
    limit = fluid.solve("second-chance", plan.shares)
    assert (plan.overflow, plan.moves, plan.fills) == (limit.overflow, limit.moves, limit.fills)
    assert plan.shares == tuple(each / 1000 for each in plan.buckets)
    assert plan.miss_reads == 4
    placed = [fill * share for fill, share in zip(plan.fills, plan.shares, strict=True)]  # type: ignore[arg-type]
    assert sum(placed) + plan.overflow == pytest.approx(1, abs=1e-6)  # type: ignore[operator]
    assert plan.reads == pytest.approx(sum(i * p for i, p in enumerate(placed, 1)) + 4 * plan.overflow)  # type: ignore[operator]


def test_deletions_ask_for_more() -> None:
    without = plan_multilevel(100_000, scheme="second-chance", overflow=0.002)
    with_ = plan_multilevel(100_000, scheme="second-chance", overflow=0.002, deletions=True)
    assert with_.space > without.space * 1.3
    assert with_.overflow == fluid.steady_state("second-chance", with_.shares).overflow
    assert with_.overflow_limit > without.overflow_limit  # an overrun must be rarer: there are many moments
    assert with_.deletions
    assert not plan_of_table_core(with_.core, keys=with_.keys).deletions


def _tables() -> Iterator[Any]:
    """Every scheme and bucket, with deletions and without; the plans that take longest in long runs."""
    for scheme, slots, deletions in itertools.product(SCHEMES, (1, 2, 4, 8), (False, True)):
        long = scheme.endswith("second-chance") and slots == 8 and not deletions
        yield pytest.param(scheme, slots, deletions, marks=[pytest.mark.long] if long else [])


@pytest.mark.parametrize(("scheme", "slots", "deletions"), list(_tables()))
def test_every_scheme_and_bucket_can_be_planned(scheme: str, slots: int, deletions: bool) -> None:
    """Where a scheme has no equations nothing is predicted, but there are sizes and a list."""
    plan = plan_multilevel(10_000, scheme=scheme, slots=slots, space=1.6, deletions=deletions)
    assert (plan.overflow is not None) == predictable(scheme, slots, deletions)
    assert plan.space == pytest.approx(1.6, rel=0.01)
    assert plan.overflow_limit >= 32
    table = MultilevelTable.from_plan(plan)
    table.insert_many(np.arange(10_000), 0)
    assert table.stats().overflow <= plan.overflow_limit / 10_000


@pytest.mark.parametrize(("levels", "slots"), least_loaded.DESIGNS)
@pytest.mark.parametrize("deletions", [False, True])
def test_load_and_overflow_of_least_loaded_are_inverse(levels: int, slots: int, deletions: bool) -> None:
    before = 0.0
    for overflow in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.05)[2 if slots == 1 else 0 :]:
        load = least_loaded.load_for(levels, slots, overflow, deletions)
        assert load > before
        before = load
        found = least_loaded.behaviour(levels, slots, load, deletions)
        assert found.overflow == pytest.approx(max(overflow, 1 - 1 / load), rel=1e-9)
        assert len(found.fills) == levels
        assert all(0 <= fill <= 1 for fill in found.fills)
        assert np.mean(found.fills) == pytest.approx(load * (1 - found.overflow), rel=0.01)


def test_the_default_holds_its_list_with_and_without_deletions() -> None:
    plan = plan_multilevel(1_000_000)
    assert 5e-6 < plan.overflow < 1e-4  # type: ignore[operator]
    churned = least_loaded.behaviour(2, 8, 1 / plan.space, True)
    assert churned.overflow < 1e-4
    assert plan.overflow_limit > 1_000_000 * max(plan.overflow, churned.overflow) * 1.3  # type: ignore[type-var]


def test_unequal_levels_of_least_loaded_are_built_and_not_predicted() -> None:
    plan = plan_multilevel(10_000, shares=[0.08, 0.06])
    assert (plan.overflow, plan.reads, plan.fills) == (None, None, None)
    assert "overflow" in str(plan)
    table = MultilevelTable.from_plan(plan)
    table.insert_many(np.arange(10_000), 1)
    assert len(table) == 10_000


@pytest.mark.parametrize("keys", [1, 2, 3, 7, 16, 17, 50, 100, 333, 1000])
def test_small_tables_take_their_keys(keys: int) -> None:
    """Nothing overruns, whatever the seed: the limit of many keys is far, and the list's least size helps."""
    plans = {seed: plan_multilevel(keys, seed=seed) for seed in range(size(80, 300))}
    for plan in plans.values():
        MultilevelTable.from_plan(plan).insert_many(np.arange(keys), 0)
    for scheme in THESIS:
        plan = plan_multilevel(keys, scheme=scheme)
        for seed in range(size(10, 30)):
            again = plan_of_table_core(plan.core, keys=keys, seed=seed)
            MultilevelTable.from_plan(again).insert_many(np.arange(keys), 0)


def test_a_grown_plan_keeps_its_shape() -> None:
    plan = plan_multilevel(1000, scheme="second-chance", overflow=0.01)
    larger = scaled_plan(plan, 50_000)
    assert larger.space == pytest.approx(plan.space, rel=0.01)
    assert larger.overflow == pytest.approx(plan.overflow, rel=0.05)
    assert larger.overflow_limit > plan.overflow_limit


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("keys", [1, 2, 7, 30, 400])
def test_a_small_plan_grows_into_one_planned_afresh(keys: int, scheme: str) -> None:
    """The buckets that rounding up added to a small table are not multiplied."""
    afresh = plan_multilevel(300_000, scheme=scheme)
    grown = scaled_plan(plan_multilevel(keys, scheme=scheme), 300_000)
    assert grown.buckets == afresh.buckets
    assert grown.nbytes <= 1.01 * afresh.nbytes


@pytest.mark.parametrize("space", [1.02, 3.0, 16.0])
def test_a_small_plan_keeps_a_space_of_its_own(space: float) -> None:
    """As far as its few buckets tell it."""
    plan = plan_multilevel(500, space=space)
    assert scaled_plan(plan, 300_000).space == pytest.approx(space, rel=0.04)
    assert scaled_plan(plan, 400).space == pytest.approx(plan.space, rel=0.05)


def test_a_table_of_one_key_grows_to_a_million() -> None:
    large = MultilevelTable(10**6)
    assert MultilevelTable(1).grown(10**6).nbytes <= 1.01 * large.nbytes
    small = MultilevelTable({0: 0})
    large.insert_many(np.arange(1, 10**6), 1)
    both = small | large
    assert len(both) == 10**6
    assert both.nbytes <= 1.5 * large.nbytes


# --- designs -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def designs() -> design.TableDesigns:
    return design.table(1_000_000, overflow=0.002)


def test_every_scheme_is_compared(designs: design.TableDesigns) -> None:
    shown = {(each.scheme, each.plan.slots) for each in designs}
    assert shown == {(s, k) for s in SCHEMES for k in (1, 2, 4, 8) if predictable(s, k)}
    assert all(each.plan.overflow <= 0.002 * (1 + 1e-6) for each in designs)  # type: ignore[operator]
    sizes = [each.nbytes for each in designs]
    assert sizes == sorted(sizes)
    assert designs.best.pareto
    assert designs.by_scheme("least-loaded").pareto  # two buckets for a look-up, where the others read four
    thesis = designs.by_scheme("second-chance", slots=1).plan
    assert thesis.space == pytest.approx(1.2852, abs=0.002)


def test_designs_print_and_build(designs: design.TableDesigns) -> None:
    for word in (
        "table designs for keys=1_000_000, overflow=0.002",
        "bytes/key",
        "moves",
        "least-loaded",
        "list",
    ):
        assert word in str(designs)
    assert "<table>" in designs._repr_html_()
    assert isinstance(designs.build(), MultilevelTable)
    assert isinstance(json.loads(json.dumps(designs.to_dict()))["designs"][0]["bytes_per_key"], float)
    with pytest.raises(KeyError):
        designs.by_scheme("conservative", slots=8)


def test_records_of_another_size_are_counted_but_not_built() -> None:
    small, large = (design.table(1000, schemes=["least-loaded"], value_bytes=size) for size in (0, 100))
    assert large.best.nbytes - small.best.nbytes > 100 * 1000
    with pytest.raises(ValueError, match="value_bytes must be 8 to build"):
        large.build()


def test_with_deletions_only_what_is_known_is_offered() -> None:
    found = design.table(10_000, overflow=0.002, deletions=True)
    assert {each.scheme for each in found} == {"standard", "second-chance", "least-loaded"}
    assert all(each.plan.deletions for each in found)
    with pytest.raises(ValueError, match="nothing is known of conservative"):
        design.table(10_000, deletions=True, schemes=["conservative"])


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"keys": 0}, "capacity must be"),
        ({"keys": 10, "overflow": 2}, "overflow must be a number"),
        ({"keys": 10, "levels": 0}, "levels must be"),
        ({"keys": 10, "schemes": ["cuckoo"]}, "schemes must be a list of some of"),
        ({"keys": 10, "slots": [3]}, "slots must be a list of some of"),
        ({"keys": 10, "value_bytes": -1}, "value_bytes must be"),
    ],
)
def test_a_wrong_request_is_told(request_: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        design.table(**request_)  # type: ignore[arg-type]


def test_the_command_shows_the_same() -> None:
    arguments = ["design", "table", "--keys", "1e5", "--overflow", "0.002", "--levels", "2"]
    done = CliRunner().invoke(commands, arguments)
    assert done.exit_code == 0
    assert "least-loaded" in done.output
    shown = json.loads(CliRunner().invoke(commands, [*arguments, "--json"]).output)
    assert shown["request"]["levels"] == 2
    assert {each["levels"] for each in shown["designs"]} == {2}


# --- summaries -------------------------------------------------------------------------------------------


def test_summaries_are_sized_for_a_need() -> None:
    found = design.summary(10_000, failure=1e-9, false_positives=0.006)
    assert {each.kind for each in found} == {"interpolation", "single-filter", "multiple-bloom"}
    assert [each.size.nbytes for each in found] == sorted(each.size.nbytes for each in found)
    for each in found:
        assert each.size.failure + each.size.crisis <= 1e-9
        assert each.size.false_positives <= 0.006
    assert found.best.size.nbytes < 32_450  # the thesis' filters, by hand
    table = found.by_kind("interpolation").build()
    table.insert_many(np.arange(10_000), 1)
    assert table.stats().summary == "interpolation"
    assert max(table.probe(key)[1] for key in range(1000)) == 1
    assert "summary designs for keys=10_000" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["designs"][0]["kind"] == "multiple-bloom"
    with pytest.raises(KeyError):
        found.by_kind("counters")
    with pytest.raises(ValueError, match="kinds must be a list"):
        design.summary(100, kinds=["counters"])


def test_the_command_sizes_summaries() -> None:
    done = CliRunner().invoke(commands, ["design", "summary", "--keys", "1e4", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.output)["request"]["failure"] == 1e-9


def test_a_plan_is_a_plan() -> None:
    plan = plan_multilevel(1000)
    assert isinstance(plan, TablePlan)
    assert hash(plan) == hash(plan_multilevel(1000))
    assert plan != plan_multilevel(1000, seed=1)


def test_with_many_levels_what_is_not_known_is_left_out_unless_it_is_named() -> None:
    found = design.table(100_000, levels=5, slots=[1], overflow=0.01)
    assert {each.plan.scheme for each in found} == set(SCHEMES) - {"least-loaded"}
    with pytest.raises(ValueError, match="levels"):
        design.table(100_000, levels=5, schemes=["least-loaded"])

"""Design by requirement: what meets the request, in which order, and what an impossible one is told."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

import evenbins
from evenbins import CountingBloomFilter, FingerprintFilter, design
from evenbins.cli import commands
from evenbins.design import FilterDesign, FilterDesigns
from evenbins.design.filters import Request, designs_for

ALL = {"standard", "blocked", "single", "sequential", "multilevel", "fill", "two-choice"}


@pytest.fixture(scope="module")
def for_rate() -> FilterDesigns:
    return design.filter(10_000_000, fpr=1e-6)


@pytest.fixture(scope="module")
def for_memory() -> FilterDesigns:
    return design.filter(10_000_000, bits_per_key=16)


def test_every_policy_answers(for_rate: FilterDesigns, for_memory: FilterDesigns) -> None:
    for designs in (for_rate, for_memory):
        assert {each.policy for each in designs} == ALL
        assert len(designs) == len(ALL)


def test_the_request_is_met(for_rate: FilterDesigns, for_memory: FilterDesigns) -> None:
    assert all(each.plan.fpr <= 1e-6 for each in for_rate)
    assert all(each.plan.bits_per_key <= 16.001 for each in for_memory)


@pytest.mark.parametrize(
    ("sort", "name"), [("memory", "nbytes"), ("fpr", "fpr"), ("reads", "reads"), ("miss_reads", "miss_reads")]
)
def test_sort(sort: str, name: str) -> None:
    values = [getattr(each.plan, name) for each in design.filter(10_000_000, fpr=1e-6, cost=sort)]
    assert values == sorted(values)


def test_the_pareto_front_is_what_its_definition_says(for_rate: FilterDesigns) -> None:
    names = ("nbytes", "reads", "miss_reads", "overflow")

    def values(each: FilterDesign) -> tuple[float, ...]:
        return tuple(getattr(each.plan, name) for name in names)

    for each in for_rate:
        beaten = any(
            values(other) != values(each)
            and all(a <= b for a, b in zip(values(other), values(each), strict=True))
            for other in for_rate
        )
        assert each.pareto is not beaten
    assert for_rate.by_policy("standard").pareto  # least memory
    assert for_rate.by_policy("blocked").pareto  # least reads without a list


def test_the_targets_of_the_project() -> None:
    """Memory at 1e-6; fill and two-choice at 16 and 24 bits per key, against the standard filter."""
    best = design.filter(10_000_000, fpr=1e-6, miss_reads=2, cost="memory").best.plan
    assert best.bits_per_key <= 31
    at16 = design.filter(10_000_000, bits_per_key=16)
    at24 = design.filter(10_000_000, bits_per_key=24)
    fill = at16.by_policy("fill").plan
    assert fill.fpr <= 7.4e-4
    assert fill.miss_reads <= 1.45
    for designs, factor in ((at16, 1.35), (at24, 1.6)):
        assert designs.by_policy("two-choice").plan.fpr <= factor * designs.by_policy("standard").plan.fpr


@pytest.mark.parametrize("policy", sorted(ALL))
def test_build_makes_the_filter_of_the_plan(policy: str) -> None:
    found = design.filter(5_000, fpr=1e-3, policies=[policy])
    built = found.best.build()
    assert built.plan == found.best.plan
    keys = np.arange(5_000)
    built.add_many(keys)
    assert built.contains_many(keys).all()
    assert type(built) is type(found.build())


def test_the_default_of_the_balanced_filter_is_the_smallest_with_two_reads(for_rate: FilterDesigns) -> None:
    balanced = [each for each in for_rate if each.policy not in ("standard", "blocked")]
    few = [each for each in balanced if each.plan.miss_reads <= 2]
    smallest = min(few, key=lambda each: each.plan.nbytes)
    assert evenbins.BalancedBloomFilter(10_000_000, fpr=1e-6).plan == smallest.plan


def test_bounds_hold() -> None:
    for each in design.filter(10_000_000, fpr=1e-5, reads=1.05):
        assert each.plan.reads <= 1.05
    for each in design.filter(10_000_000, fpr=1e-5, miss_reads=1.3):
        assert each.plan.miss_reads <= 1.3
    for each in design.filter(10_000_000, fpr=1e-5, overflow=0.001):
        assert each.plan.overflow <= 0.001
    for each in design.filter(10_000_000, fpr=1e-5, overflow=0):
        assert each.plan.overflow_limit == 0
    for each in designs_for(Request(10_000_000, fpr=1e-5, choices=2)):
        assert each.plan.choices <= 2
    both = design.filter(10_000_000, fpr=1e-5, bits_per_key=27)
    assert both
    for each in both:
        assert each.plan.fpr <= 1e-5
        assert each.plan.bits_per_key <= 27


def test_a_bound_on_reads_takes_hashes_from_the_standard_filter() -> None:
    plan = design.filter(1000, fpr=0.01, reads=3).by_policy("standard").plan
    assert plan.hashes == 3
    assert plan.fpr <= 0.01


def test_deletions_are_a_need() -> None:
    designs = design.filter(10_000, fpr=1e-3, needs=["remove"])
    assert [each.policy for each in designs] == ["fingerprint", "counting"]
    assert isinstance(designs.build(), FingerprintFilter)
    assert isinstance(designs.by_policy("counting").build(), CountingBloomFilter)
    without = {each.policy for each in design.filter(10_000, fpr=1e-3)}
    assert not without & {"counting", "fingerprint"}
    with pytest.raises(ValueError, match="needs must be met by one of the policies"):
        design.filter(10_000, fpr=1e-3, needs=["remove", "redis"])


def test_merge_leaves_what_merges_by_or() -> None:
    assert {each.policy for each in design.filter(1000, needs=["merge"])} == {
        "standard", "blocked", "fill", "two-choice",
    }  # fmt: skip


def test_the_default_rate() -> None:
    assert all(each.plan.fpr <= 0.01 for each in design.filter(1000))


def test_table_text_html_and_json(for_rate: FilterDesigns) -> None:
    text = str(for_rate)
    assert text.splitlines()[0] == "filter designs for keys=10_000_000, fpr=1e-06, block_bits=512"
    assert repr(for_rate) == text
    html = for_rate._repr_html_()
    for policy in ALL:
        assert policy in text
        assert policy in html
    assert html.count("<tr>") == len(for_rate) + 1
    data = json.loads(json.dumps(for_rate.to_dict()))
    assert [each["policy"] for each in data["designs"]] == [each.policy for each in for_rate]
    assert data["request"]["fpr"] == 1e-6
    first = data["designs"][0]
    assert first["pareto"] is True
    assert first["mebibytes"] == pytest.approx(first["nbytes"] / 2**20)


def test_it_is_a_sequence(for_rate: FilterDesigns) -> None:
    assert for_rate[0] is for_rate.best
    assert for_rate[:2] == (for_rate[0], for_rate[1])
    with pytest.raises(KeyError):
        for_rate.by_policy("none")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"fpr": 1e-6, "bits_per_key": 20}, ["bits_per_key=20", "28.7", "fpr=6.7"]),
        ({"fpr": 1e-30}, ["fpr must be at least"]),
        ({"fpr": 2.0}, ["fpr must be"]),
        ({"bits_per_key": -1}, ["bits_per_key must be"]),
        ({"reads": 0.5}, ["reads must be", "0.5"]),
        ({"miss_reads": 0.5}, ["miss_reads must be", "0.5"]),
        ({"overflow": 2}, ["overflow must be"]),
        ({"overflow": -0.1}, ["overflow must be"]),
        ({"needs": ["speed"]}, ["needs must be", "remove"]),
        ({"policies": ["best"]}, ["policies must be", "two-choice"]),
        ({"policies": "fill"}, ["policies must be a list"]),
        ({"cost": "size"}, ["cost must be", "miss_reads"]),
        ({"fpr": 1e-6, "miss_reads": 1.5, "policies": ["two-choice"]}, ["two-choice", "miss_reads", "2"]),
        ({"fpr": 1e-6, "reads": 1, "policies": ["standard"]}, ["standard", "bits"]),
    ],
)
def test_what_cannot_be_is_told(request_: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        design.filter(10_000_000, **request_)
    for word in words:
        assert word in str(caught.value)


def test_wrong_types_are_told() -> None:
    for request_ in ({"fpr": "low"}, {"reads": "few"}, {"overflow": "none"}):
        with pytest.raises(TypeError):
            design.filter(1000, **request_)
    with pytest.raises(TypeError):
        design.filter("many")  # type: ignore[arg-type]


def test_small_and_huge_numbers_of_keys() -> None:
    for keys in (1, 2, 10, 100, 1e12):
        for each in design.filter(keys, fpr=1e-4):
            assert each.plan.fpr <= 1e-4
            assert each.plan.keys == keys


def test_a_design_answers_fast() -> None:
    """CPU time, and twenty times what it takes: the bound guards against minutes."""
    begun = time.process_time()
    design.filter(123_456_789, fpr=3.3e-6)
    assert time.process_time() - begun < 20


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    commands.main(["design", "filter", "--keys", "1e6", "--fpr", "1e-4"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "two-choice" in shown
    assert "Pareto" in shown
    commands.main(
        ["design", "filter", "--keys", "1e6", "--bits-per-key", "12", "--json"], standalone_mode=False
    )
    data = json.loads(capsys.readouterr().out)
    assert {each["policy"] for each in data["designs"]} == ALL

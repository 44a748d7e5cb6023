"""The page Fingerprints: what it draws is what the filter holds, also in a real browser."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest

from evenbins.study.lab.fingerprints import MOST_KEYS, block


def held(runs: list[list[int]]) -> int:
    return sum(run[1] for run in runs)


@pytest.mark.parametrize("keys", [0, 1, 1300, 2050, MOST_KEYS])
def test_every_key_is_in_one_place_and_the_counts_are_those_of_the_stats(keys: int) -> None:
    found = block(keys=keys, turns=0, seed=1)
    first = sum(held(line["here"]) for line in found["lines"])
    away = sum(held(line["away"]) for line in found["lines"])
    second = sum(held(line["here"]) for line in found["second"])
    assert first + away == keys
    assert away == second + found["third"] + found["rest"]
    rows = {name: (planned, counted) for name, planned, counted in found["rows"]}
    assert rows["in level 1"][1] == pytest.approx(first / keys if keys else 1.0)
    assert rows["in level 1"][0] == pytest.approx(rows["in level 1"][1], abs=0.02)
    for line in found["lines"]:
        assert held(line["here"]) <= found["slots"][0]
        quotients = [run[0] for run in (*line["here"], *line["away"])]
        assert quotients == sorted(set(quotients))  # those that are elsewhere are the last
        if line["away"]:  # the first of them does not fit
            assert held(line["here"]) + line["away"][0][1] > found["slots"][0]
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(found["python"], names)
    assert names["f"].stats().shares == tuple(rows[name][1] for name in rows if name.startswith("in "))


def test_nothing_of_the_history_is_left_and_levels_are_first_used_where_it_says() -> None:
    fresh, churned = (block(keys=1900, turns=turns, seed=2) for turns in (0, 3))
    assert churned["same"]
    assert churned["lines"] == fresh["lines"]
    assert churned["checksum"] == fresh["checksum"]
    second, third, rest = fresh["first_uses"]
    assert second < third < rest
    before, after = (block(keys=keys, turns=0, seed=2) for keys in (second - 1, second))
    assert [sum(bool(line["away"]) for line in each["lines"]) for each in (before, after)] == [0, 1]
    assert [block(keys=keys, turns=0, seed=2)["rest"] for keys in (rest - 1, rest)] == [0, 1]
    assert np.sign(block(keys=third, turns=0, seed=2)["third"]) == 1


def test_a_line_overflows_and_restores_in_the_browser(page: Any) -> None:
    page.open("/fingerprints?keys=1000")
    page.locator(".fingerprints .line").first.wait_for()
    assert page.locator(".fingerprints .over").count() == 0
    page.get_by_role("button", name="First overflow").click()
    page.locator(".fingerprints .over").first.wait_for()
    assert page.locator(".fingerprints .over").count() == 1
    assert "went to level 2" in page.locator(".caption").inner_text()
    page.locator(".fingerprints .over").click()
    assert "of level 2" in page.locator("[data-value=line]").inner_text()
    page.get_by_role("button", name="Remove one").click()
    page.wait_for_function("() => document.querySelectorAll('.fingerprints .over').length === 0")
    assert "came back" in page.locator(".caption").inner_text()
    page.get_by_role("button", name="The rest").click()
    page.wait_for_function("() => document.querySelector('.caption').textContent.includes('the rest 1')")
    assert page.locator("[data-value='in the rest']").inner_text() != "0"
    assert "those of a filter" in page.locator("[data-value=same]").inner_text()
    page.wait_for_function("() => Number(new URL(location).searchParams.get('keys')) > 2000")
    assert not page.scrolls_sideways()

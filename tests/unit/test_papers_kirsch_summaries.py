"""Kirsch's chapter 4: what the rows of its experiments must say, with quick=True.

What follows from formulas is compared with the thesis' digits. A simulated mean is compared with its
prediction by its standard error, at 1e-6 two-sided; the number of trials stands in the docstring.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from experiments import run_once
from scipy.stats import t as student

from evenbins.study import papers
from evenbins.study.papers import Result, Row, plots
from evenbins.study.papers.kirsch_summaries import FILTERS, SIZES
from evenbins.study.theory import multilevel

IDS = ["table4.1", "table4.2", "table4.3", "sec4.3", "sec4.9", "sec4.10.1", "sec4.10.2"]


def result(id: str) -> Result:
    return run_once(f"kirsch-{id}")


def at(found: Result, quantity: str, **where: object) -> Row:
    (one,) = [
        each
        for each in found.rows
        if each.quantity == quantity and all(each.where[key] == value for key, value in where.items())
    ]
    return one


def assert_agrees(seen: Row, theory: float, trials: int) -> None:
    reach = student.ppf(1 - 0.5e-6, trials - 1) * (seen.sd or 0) / math.sqrt(trials)
    assert abs(seen.ours - theory) <= reach


@pytest.mark.parametrize("id", ["table4.1", "table4.2"])
def test_expected_keys_are_the_thesis(id: str) -> None:
    """Both rows, to the digits that are printed."""
    for each in result(id).rows:
        assert each.paper is not None
        digits = 0.005 if abs(each.paper) > 1e-2 else 0.005e-5
        assert abs(each.ours - each.paper) <= digits * 1.001
    assert at(result(id), "keys_approximate", level=5).ours < 0


def test_table_43_is_the_thesis() -> None:
    found = result("table4.3")
    targets = {
        ("interpolation", 10_000): (80_000, 1.3886e-9),
        ("single-filter", 10_000): (47_500, 7.6398e-10),
        ("multiple-bloom", 10_000): (32_450, 4.972e-12),
        ("interpolation", 100_000): (875_000, 2.1684e-9),
        ("single-filter", 100_000): (525_000, 7.2677e-9),
        ("multiple-bloom", 100_000): (386_000, 1.38e-11),
    }
    for (scheme, keys), (nbytes, failure) in targets.items():
        where = {"scheme": scheme, "keys": keys}
        assert at(found, "bytes", **where).ours == nbytes
        assert at(found, "failure", **where).ours == pytest.approx(failure, rel=1e-3)
        assert at(found, "failure_exact", **where).ours <= at(found, "failure", **where).ours
        printed = at(found, "false_positives", **where)
        assert printed.ours == pytest.approx(printed.paper, rel=0.06)
    misprint = at(found, "crisis", scheme="multiple-bloom", keys=100_000)
    assert misprint.paper == 7.78e-16
    assert misprint.ours == pytest.approx(6.6414e-24, rel=1e-4)
    assert "1 - P(0)" in (misprint.note or "")
    missing = at(found, "bytes", scheme="multiple-bloom", keys=100_000)
    assert missing.paper == 379_000
    assert "385,875" in (missing.note or "")
    assert sum(bits for bits, _ in FILTERS[100_000][:5]) // 8 + 75_000 == 385_875
    assert at(found, "bytes", scheme="counters", keys=10_000).ours == 49_152


def test_a_smaller_b2_keeps_the_failure() -> None:
    filters = list(FILTERS[100_000])
    filters[2] = (55_000, 49)
    failure = sum(multilevel.multiple_bloom_failures(100_000, SIZES[100_000], filters))
    assert failure == pytest.approx(1.38e-11, rel=3e-3)


def test_section_43_songs_counters() -> None:
    """300 tables; one in sixty has two keys in a bucket."""
    found = result("sec4.3")
    theory = at(found, "false_positives_theory", hashes=10)
    assert theory.ours == pytest.approx(0.001875, rel=1e-3)
    assert_agrees(at(found, "false_positives", hashes=10), theory.ours, 300)
    assert 1 <= at(found, "load", hashes=10).ours <= 3
    assert at(found, "crisis", hashes=10).ours < 0.07
    assert at(found, "stuck", hashes=10).ours == 0


def test_section_49_the_filter_fails_as_seldom_as_computed() -> None:
    """3,000 tables, 50 of them with 10,000 queries."""
    found = result("sec4.9")
    for cells, bound in ((120_000, 7.63e-10), (100_000, 2.108e-6)):
        assert at(found, "failure_theory", cells=cells).ours == pytest.approx(bound, rel=1e-3)
        assert at(found, "failures", cells=cells).ours == 0
        assert at(found, "crises", cells=cells).ours == 0
        rate = at(found, "false_positives_theory", cells=cells).ours
        assert_agrees(at(found, "false_positives", cells=cells), rate, 50)


def test_section_4101_the_moves() -> None:
    """2,000 rebuilds of each model."""
    found = result("sec4.10.1")
    for model, bound, mean in (("random", 100.02, 96.98), ("first", 118.34, 114.3)):
        assert at(found, "moves_theory", model=model).ours == pytest.approx(bound, abs=0.005)
        moves = at(found, "moves", model=model)
        assert abs(moves.ours - mean) < 5 * (moves.sd or 0) / math.sqrt(2000) + 0.1
        assert 9 < (moves.sd or 0) < 12
    exact = at(found, "into_first_theory", model="random").ours
    assert_agrees(at(found, "into_first", model="random"), exact, 2000)
    largest = at(found, "moves_largest", model="random")
    assert largest.ours > 113
    assert "143" in (largest.note or "")


def test_section_4102_the_counters() -> None:
    """2,000 tables: the largest counter is the one of the tails, or one beside it."""
    found = result("sec4.10.2")
    for i in range(5):
        theory = at(found, "counter_theory", filter=i).ours
        assert abs(at(found, "counter", filter=i).ours - theory) <= 2
    assert at(found, "overflow", filter=0).ours == pytest.approx(3.557e-12, rel=1e-3)
    assert at(found, "bytes", filter=5).ours == at(found, "bytes", filter=5).paper == 99_775
    assert at(found, "bytes_less", filter=5).ours == at(found, "bytes_less", filter=5).paper == 99_700


@pytest.mark.parametrize("id", ["sec4.3", "sec4.10.1"])
def test_no_number_depends_on_threads(id: str) -> None:
    assert papers.run(f"kirsch-{id}", quick=True, threads=1).rows == result(id).rows


@pytest.mark.parametrize("id", IDS)
def test_every_figure_is_drawn(id: str, tmp_path: Path) -> None:
    (experiment,) = papers.select([f"kirsch-{id}"])
    plots.save(experiment, result(id).rows, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 2000

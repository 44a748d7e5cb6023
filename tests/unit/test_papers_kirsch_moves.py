"""Kirsch's chapter 5 by simulation: what the rows of its experiments must say, with quick=True.

A simulated mean is compared with the equations' by its standard error, at 1e-6 two-sided, with half a percent
for tables that are not infinitely large; the number of trials stands in the docstring.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from experiments import run_once
from scipy.stats import norm, poisson
from scipy.stats import t as student

from evenbins.study.papers import Result, Row, kirsch_moves
from evenbins.study.papers.kirsch_tables import SCHEMES, TABLE_5_1
from evenbins.study.papers.simulation import simulate_table
from evenbins.theory import fluid


def result(id: str) -> Result:
    return run_once(id)


def at(found: Result, quantity: str, **where: object) -> Row:
    (one,) = [
        each
        for each in found.rows
        if each.quantity == quantity and all(each.where[key] == value for key, value in where.items())
    ]
    return one


def assert_agrees(seen: Row, theory: float, trials: int, slack: float = 0.005) -> None:
    reach = student.ppf(1 - 0.5e-6, trials - 1) * (seen.sd or 0) / math.sqrt(trials)
    assert abs(seen.ours - theory) <= reach + slack * theory


def test_figure_54_levels_are_normal_around_the_equations() -> None:
    """1000 tables a scheme. A sample of 1000 of a normal law has skewness 0.077 sd, kurtosis 0.155 sd."""
    found = result("kirsch-fig5.4")
    for scheme, slots in SCHEMES:
        for level in range(1, 5):
            where = {"scheme": scheme, "slots": slots}
            held, theory = (at(found, f"held{level}{view}", **where) for view in ("", "_theory"))
            assert_agrees(held, theory.ours, 1000)
            assert abs(at(found, f"skewness{level}", **where).ours) < 5 * 0.077
            assert abs(at(found, f"kurtosis{level}", **where).ours) < 7 * 0.155
            assert 0.99 < at(found, f"correlation{level}", **where).ours <= 1
    held = at(found, "held4", scheme="second-chance", slots=1)
    line = at(found, "quantile_normal(0.05)", scheme="second-chance", slots=1)
    assert line.ours == pytest.approx(held.ours + (held.sd or 0) * norm.ppf(0.05))


def test_normality_tells_other_laws_apart() -> None:
    """1000 numbers of an exponential law."""
    rows = {each.quantity: each.ours for each in
            kirsch_moves._normality(np.random.default_rng(1).exponential(size=1000), 1)}  # fmt: skip
    assert rows["skewness1"] > 1
    assert rows["kurtosis1"] > 2
    assert rows["correlation1"] < 0.95


def test_figure_55_sums_the_tail_and_sees_the_dispersion() -> None:
    """1000 tables a scheme; the variance of 1000 numbers has a standard error of 4.5 %."""
    found = result("kirsch-fig5.5")
    misprint = at(found, "tail_poisson", scheme="poisson")
    assert misprint.paper == 3.77e-15
    assert misprint.ours == pytest.approx(float(poisson.sf(64, 20)), rel=1e-6)
    assert misprint.ours == pytest.approx(1.319e-15, rel=1e-3)
    assert "1.319e-15" in (misprint.note or "")
    for scheme, slots in SCHEMES:
        mean = at(found, "mean", scheme=scheme, slots=slots)
        theory = fluid.solve(scheme, TABLE_5_1[scheme, 4, slots][2], slots)
        assert_agrees(mean, 10_000 * theory.overflow, 1000, slack=0.02)
        assert at(found, "cdf(45)", scheme=scheme, slots=slots).ours > 0.998
        ratio, expected = (at(found, f"variance_ratio{view}", scheme=scheme, slots=slots).ours
                           for view in ("", "_theory"))  # fmt: skip
        assert ratio == pytest.approx(expected, rel=5 * 0.045 + 0.03)
    # Independent keys have 1; keys that share full buckets more.
    assert at(found, "variance_ratio", scheme="second-chance", slots=2).ours > 1.2
    assert at(found, "variance_ratio", scheme="conservative", slots=1).ours < 1.25
    assert at(found, "tail_dispersed", scheme="second-chance", slots=2).ours > 1e-11


def test_the_law_of_the_list_is_recognised() -> None:
    """100,000 numbers of Poisson(20)."""
    numbers = np.random.default_rng(2).poisson(20, 100_000).astype(np.uint64)
    rows = {each.quantity: each.ours for each in kirsch_moves._list_law(numbers, 45, None)}
    assert rows["variance_ratio"] == pytest.approx(1, abs=5 * math.sqrt(2 / 1e5))
    assert rows["distance"] < 2.7 / math.sqrt(1e5)  # Kolmogorov, 1e-6
    assert rows["cdf(20)"] == pytest.approx(poisson.cdf(20, 20), abs=5 * 0.5 / math.sqrt(1e5))


def test_section_58_the_equations_are_met() -> None:
    """60 tables of 10,000 keys and 10 of 100,000 at each point."""
    found = result("kirsch-sec5.8")
    points = [each for each in found.rows if each.quantity in ("overflow", "moves")]
    assert len(points) == 18 + 6 + 6 + 6 + (12 + 4 + 4 + 4)
    for each in points:
        theory = at(found, f"{each.quantity}_theory", **each.where).ours
        trials = 60 if each.where["keys"] == 10_000 else 10
        if each.quantity == "moves" or theory > 1e-4:
            assert_agrees(each, theory, trials, slack=0.02)
        error = at(found, f"{each.quantity}_error", **each.where).ours
        assert error == pytest.approx(each.ours / theory - 1)
        noise = at(found, f"{each.quantity}_noise", **each.where).ours
        assert noise == pytest.approx((each.sd or 0) / math.sqrt(trials) / theory)
    largest = at(found, "overflow_error", levels="all", slots=2, keys=10_000)
    assert largest.paper == 0.048
    assert largest.ours == max(
        abs(at(found, "overflow_error", shares="printed", levels=4, scheme=scheme, slots=2, keys=10_000).ours)
        for scheme in ("standard", "second-chance")
    )


@pytest.mark.parametrize(("scheme", "levels", "slots"), TABLE_5_1)
def test_the_moves_of_table_51_are_met_at_its_shares(scheme: str, levels: int, slots: int) -> None:
    """300 tables of 10,000 keys, good to 0.02 points; printed to three digits."""
    _, printed, shares = TABLE_5_1[scheme, levels, slots]
    seen = simulate_table(scheme, keys=10_000, shares=shares, slots=slots, trials=300, seed=4, threads=2)
    reach = student.ppf(1 - 0.5e-6, 299) * seen.moves_share.std(ddof=1) / math.sqrt(300)
    assert abs(seen.moves_share.mean() - printed) <= 0.0005 + reach
    theory = fluid.solve(scheme, shares, slots).moves
    assert abs(seen.moves_share.mean() - theory) <= reach + 0.003 * theory


def test_figures_58_and_59_the_steady_state() -> None:
    """20 tables, ten samples each; 4 at each point of section 5.10."""
    found = result("kirsch-fig5.8")
    theory = at(found, "overflow_theory", shares="figure")
    assert theory.ours == pytest.approx(1.445e-3, rel=0.002)
    assert theory.paper == 0.00146
    assert_agrees(at(found, "overflow", shares="figure"), theory.ours, 20, slack=0.02)
    for level in range(1, 5):
        held, fluid_ = (at(found, f"held{level}{view}", shares="figure") for view in ("", "_theory"))
        assert abs(held.ours - fluid_.ours) < 6 * (held.sd or 0) / math.sqrt(60)  # samples depend somewhat
        assert at(found, f"correlation{level}", shares="figure").ours > 0.97
    for each in found.rows:
        if each.quantity == "overflow" and each.where["shares"] == "best":
            assert_agrees(each, at(found, "overflow_theory", **each.where).ours, 4, slack=0.05)
    extreme = {side: at(found, "overflow", scheme="extreme-second-chance", side=side, shares="equal").ours
               for side in ("any", "right")}  # fmt: skip
    assert extreme["any"] < 0.2 * extreme["right"]
    listed = result("kirsch-fig5.9")
    assert at(listed, "mean", scheme="second-chance").paper == 14.6
    assert at(listed, "mean", scheme="second-chance").ours == pytest.approx(14.45, abs=5 * 4 / math.sqrt(100))
    assert 0.6 < at(listed, "variance_ratio", scheme="second-chance").ours < 1.6

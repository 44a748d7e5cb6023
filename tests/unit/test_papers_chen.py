"""chen's tables, figures and theorems: what the rows of its experiments must say, with quick=True.

Tables 5 to 9 are also run with 100 trials of their own and compared with the printed means: z, beyond half a
printed unit and by both standard errors, at most 5 (2e-5 in all for 144 numbers; 4 is the target with 1000).
"""

from __future__ import annotations

import pytest
from experiments import run_once

from evenbins.study.papers import Context, Result, Row, chen
from evenbins.study.papers.chen_tables import Printed, printed
from evenbins.study.theory import rings


def result(id: str) -> Result:
    return run_once(id)


def at(found: Result, quantity: str, **where: object) -> Row:
    (one,) = [
        each
        for each in found.rows
        if each.quantity == quantity and all(each.where[key] == value for key, value in where.items())
    ]
    return one


@pytest.mark.parametrize(
    ("table", "quantity"), [(6, "variance"), (7, "searches"), (8, "first_full"), (9, "full")]
)
def test_tables_5_to_9_agree_with_the_paper(table: int, quantity: str) -> None:
    """100 trials of each of the 32 configurations; one simulation for all four tables."""
    context = Context("chen-test", threads=2)
    for (keys, epsilon, copies, policy), cell in printed(table).items():
        seen = chen.configuration(context, policy, keys, epsilon, copies, trials=100)
        if cell.sd is not None:
            assert chen.z_score(getattr(seen, quantity), cell) <= 5, (keys, epsilon, copies, policy)


def test_table_5_is_part_of_the_others() -> None:
    assert {
        (row.quantity, *row.where.values(), row.ours, row.paper) for row in result("chen-table5").rows
    } <= {
        (row.quantity, *row.where.values(), row.ours, row.paper)
        for id in ("chen-table6", "chen-table9")
        for row in result(id).rows
    }


def test_notes_say_z_and_where_the_advantage_shrinks() -> None:
    found = result("chen-table6")
    one = at(found, "variance", keys=10_000, epsilon=0.1, copies=7, policy="jump")
    assert one.paper == 2.6
    assert one.note is not None
    assert one.note.startswith("z ")
    assert "advantage" in one.note


def test_nan_of_table_8_is_no_mean() -> None:
    found = result("chen-table8")
    never = at(found, "first_full", keys=10_000, epsilon=3.0, copies=1, policy="jump")
    assert (never.paper, never.ours) == (10_000, 10_000)
    seldom = at(found, "first_full", keys=3000, epsilon=3.0, copies=7, policy="clockwise")
    assert seldom.paper is None
    assert "printed: 3000, nan" in (seldom.note or "")
    assert at(found, "first_full_theory", keys=3000, epsilon=3.0, copies=7, policy="clockwise").ours == (
        pytest.approx(rings.first_full_within(1000, 12, 3000, copies=7))
    )


def test_the_printed_bound_11_is_beside_table_7_and_below_it() -> None:
    found = result("chen-table7")
    formula = at(found, "searches_formula", epsilon=1.0)
    assert formula.ours == pytest.approx(1.3466, abs=1e-4)
    assert "no bound" in (formula.note or "")
    assert formula.ours < printed(7)[10_000, 1.0, 1, "clockwise"].mean
    assert at(found, "searches_bound", epsilon=0.1, policy="jump").ours == pytest.approx(11)


def test_steps_are_given_in_full() -> None:
    one = at(result("chen-table16"), "steps", epsilon=3.0, copies=1, policy="clockwise")
    assert one.paper == 4.4e6
    assert 2e6 < one.ours < 9e6


def test_a_limit_is_simulated_once() -> None:
    context = Context("chen-test", quick=True)
    first = chen.configuration(context, "jump", 3000, 0.1, 1)
    assert chen.configuration(context, "jump", 3000, 0.3, 1) is first  # the same limit, 4
    assert chen.configuration(Context("chen-test", quick=True, seed=2), "jump", 3000, 0.3, 1) is not first


def test_figures_and_theorems() -> None:
    removal = result("chen-fig20")
    clockwise, jump = (at(removal, "searches", keys=10_000, epsilon=0.1, copies=1, policy=each)
                       for each in ("clockwise", "jump"))  # fmt: skip
    assert clockwise.ours > 3 * jump.ours > 3
    biased = result("chen-appN")
    for bias in ("between", "on"):
        assert (
            at(biased, "variance", bias=bias, epsilon=1.0, policy="clockwise").ours
            > 4 * at(biased, "variance", bias=bias, epsilon=1.0, policy="jump").ours
        )
    assert all(row.ours == 1 for row in result("chen-thm1").rows if row.quantity == "holds")
    chances = result("chen-fig7")
    assert (
        at(chances, "variance", arcs="equal", full=500).ours
        > at(chances, "variance_theory", arcs="equal", full=500).ours
        > at(chances, "variance_bound", arcs="equal", full=500).ours
    )
    first = result("chen-thm4")
    order = [at(first, "first_full_theory", limit=11, shares=each).ours
             for each in ("equal", "30 points", "7 points", "2 points", "1 points")]  # fmt: skip
    assert order == sorted(order, reverse=True)


def test_z() -> None:
    assert chen.z_score([2.0, 2.0], Printed(2.04, 0.0, 0.05)) == 0
    assert chen.z_score([2.0, 2.0], Printed(3.0, 0.0, 0.05)) == float("inf")

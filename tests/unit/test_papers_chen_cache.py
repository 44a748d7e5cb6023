"""Tables 1 and 2 of the chen paper: what the rows say, on a synthetic trace and on one that is given.

`--quick` replays 200,000 requests with two placements of the servers; the statements here hold by far.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from experiments import run_once

from evenbins.study import papers
from evenbins.study.papers.chen_cache import TABLE_1, TABLE_2
from evenbins.study.papers.registry import Row
from evenbins.study.traces import TraceError, synthetic_trace, write_trace


def at(rows: tuple[Row, ...], quantity: str, configuration: int, policy: str, copies: int = 1) -> Row:
    where = {"configuration": configuration, "policy": policy, "copies": copies}
    (found,) = [each for each in rows if each.quantity == quantity and each.where == where]
    return found


@pytest.fixture(scope="module")
def table1() -> tuple[Row, ...]:
    return run_once("chen-table1").rows


@pytest.mark.parametrize("configuration", TABLE_1)
def test_clockwise_misses_more_and_seven_copies_narrow_the_gap(
    table1: tuple[Row, ...], configuration: int
) -> None:
    clockwise, jump = (at(table1, "misses", configuration, policy) for policy in ("clockwise", "jump"))
    assert (clockwise.paper, jump.paper) == TABLE_1[configuration]
    assert clockwise.ours > 4 * jump.ours
    assert at(table1, "misses", configuration, "clockwise", 7).ours < clockwise.ours / 2
    assert at(table1, "misses", configuration, "clockwise", 7).paper is None
    ratio = at(table1, "ratio", configuration, "clockwise")
    assert ratio.paper == pytest.approx(clockwise.paper / jump.paper)
    assert ratio.ours == pytest.approx(clockwise.ours / (jump.ours or 1))
    assert "not available" in (clockwise.note or "")


def test_rows_are_the_same_on_any_number_of_threads() -> None:
    first = run_once("chen-table2").rows  # with two threads
    assert first == papers.run("chen-table2", quick=True, threads=1).rows
    assert [at(first, "misses", c, "jump").paper for c in TABLE_2] == [jump for _, jump in TABLE_2.values()]


def test_a_trace_that_is_given_is_replayed(tmp_path: Path) -> None:
    trace = synthetic_trace(requests=3000, urls=900, minutes=60, seed=1)
    path = tmp_path / "trace.csv"
    write_trace(trace, path)
    rows = papers.run("chen-table1", quick=True, options={"trace": str(path)}).rows
    assert at(rows, "misses_baseline", 1, "clockwise").ours == 900  # all within the 300 minutes
    assert "was given" in (at(rows, "misses", 1, "jump").note or "")
    assert rows == papers.run("chen-table1", quick=True, options={"trace": trace}).rows
    path.write_text("")
    with pytest.raises(TraceError, match="empty"):
        papers.run("chen-table1", options={"trace": str(path)})

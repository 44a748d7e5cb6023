"""`evenbins dedup --window`: rows of a window of rows or of time, its state, and what is refused."""

from __future__ import annotations

import json
from datetime import timedelta

import click
import pytest
from test_cli import one_line, run

from evenbins import WindowFilter
from evenbins.cli._window import SeenLately, window_of
from evenbins.structure import kind_of_file

ROWS = b"".join(b"%d\n" % i for i in [*range(10), *range(3), *range(100, 300), *range(3)])


def test_a_row_is_dropped_if_an_equal_one_came_within_the_last_rows(tmp_path):
    (tmp_path / "rows").write_bytes(ROWS)
    done = run("dedup", tmp_path / "rows", "--window", "50", "-o", tmp_path / "out")
    assert done.status == 0, done.err
    lines = (tmp_path / "out").read_bytes().splitlines()
    assert lines == [b"%d" % i for i in [*range(10), *range(100, 300), *range(3)]]
    assert "a window of 50 rows" in done.err
    all_of_them = run("dedup", tmp_path / "rows", "--window", "1K", "--json", "-o", tmp_path / "out")
    report = json.loads(all_of_them.out)
    assert (report["rows"], report["kept"], report["dropped"]) == (216, 210, 6)
    piped = run("dedup", "--window", "50", stdin=ROWS)
    assert piped.out.splitlines() == lines


def test_time_is_that_of_the_clock():
    now = 1e9
    seen = SeenLately(WindowFilter(timedelta(seconds=60), 100, 1e-7, clock=lambda: now))
    assert seen.keep(["a", "b", "a"]).tolist() == [True, True, False]
    now += 50
    assert seen.keep(["a"]).tolist() == [False]  # and renewed
    now += 50
    assert seen.keep(["a", "b"]).tolist() == [False, True]
    now += 100
    assert seen.keep(["a"]).tolist() == [True]
    stats = seen.stats()
    assert (stats.rows, stats.kept, stats.dropped) == (7, 4, 3)
    with pytest.raises(click.ClickException, match="raise --capacity"):
        seen.keep(range(1000))


def test_a_state_goes_on_and_is_checked(tmp_path):
    (tmp_path / "rows").write_bytes(ROWS)
    arguments = ["dedup", tmp_path / "rows", "--window", "1h", "-o", tmp_path / "out"]
    state = ["--state", tmp_path / "state"]
    assert run(*arguments, *state, "--capacity", "1000").status == 0
    assert kind_of_file(tmp_path / "state").name == "window"
    again = run(*arguments, *state)
    assert (tmp_path / "out").read_bytes() == b""
    assert "210 keys of the window" in again.err
    other = ["dedup", tmp_path / "rows", "-o", tmp_path / "out", *state]
    one_line(run(*other, "--window", "2h"), "another --window")
    one_line(run(*other), "made with --window")
    one_line(run(*other, "--window", "1h", "--fpr", "1e-12"), "leave out --fpr")
    one_line(run(*other, "--window", "1h", "--seed", "7"), "another --seed")
    (tmp_path / "state").write_bytes(b"nothing")
    one_line(run(*other, "--window", "1h"), "--state", "start anew")


def test_windows_as_people_write_them(tmp_path):
    seconds = {"90s": 90, "10min": 600, "1.5h": 5400, "7 d": 604800, "250ms": 0.25, "1W": 604800}
    for text, length in seconds.items():
        assert window_of(text) == timedelta(seconds=length)
    assert window_of("1_000") == 1000
    assert window_of("10M") == 10**7
    (tmp_path / "rows").write_bytes(ROWS)
    for text, words in (
        ("10m", "min for minutes"), ("soon", "such as 90s"), ("1e400d", "such as 90s"), ("0", "such as 90s"),
        ("-1h", "such as 90s"),
    ):  # fmt: skip
        one_line(run("dedup", tmp_path / "rows", "--window", text), words)
    one_line(run("dedup", "--window", "1h", stdin=ROWS), "--capacity")
    one_line(run("dedup", "--window", "1h", "--exact", stdin=ROWS), "leave out one")
    one_line(run("dedup", "--window", "1G", "--memory", "64M", stdin=ROWS), "raise --memory")


def test_a_state_has_room_for_a_window_of_rows(tmp_path):
    (tmp_path / "few").write_bytes(b"1\n2\n")
    (tmp_path / "many").write_bytes(b"".join(b"%d\n" % i for i in range(500)))
    common = ["-o", tmp_path / "out", "--window", "1000", "--state", tmp_path / "state"]
    assert run("dedup", tmp_path / "few", *common).status == 0
    assert run("dedup", tmp_path / "many", *common).status == 0
    assert (tmp_path / "out").read_bytes().count(b"\n") == 498
    refused = run("dedup", tmp_path / "many", *common, "--capacity", "5000")
    one_line(refused, "--state", "leave out --capacity")


@pytest.mark.parametrize("window", ["0", "-5", "9" * 20, "0s", "9999999d"])
def test_windows_that_cannot_be(window):
    one_line(run("dedup", "--window", window, "--capacity", "10", stdin=b"1\n"), f"--window {window}: write")


def test_a_window_of_a_row():
    assert run("dedup", "--window", "1", stdin=b"1\n2\n2\n1\n").out == b"1\n2\n1\n"

"""The progress bar: by time, with a rate and the time that is left; on a terminal only."""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path

import pytest

from evenbins.cli._progress import Bar


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard error a terminal: in the test itself, since pytest replaces it before each test."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    return stream


@pytest.fixture
def keys(tmp_path: Path) -> str:
    (tmp_path / "keys").write_bytes(bytes(4_000_000))
    return str(tmp_path / "keys")


def test_a_short_run_shows_nothing(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    terminal = shown(monkeypatch)
    clock = Clock()
    with Bar([keys], clock=clock) as bar:
        bar.begin("adding keys")
        clock.now += 1.9
        bar.advance(4_000_000)
    assert terminal.getvalue() == ""
    assert bar.summary(1000) == ""


def test_a_long_one_shows_rate_and_time_left(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    terminal = shown(monkeypatch)
    clock = Clock()
    with Bar([keys], clock=clock) as bar:
        bar.begin("adding keys")
        clock.now += 10
        bar.advance(1_000_000)
        bar.advance_keys(25_000)
        assert bar.meter.fraction() == 0.25
        assert bar.meter.status() == "1M of 4M bytes, 25k keys, 2.5k a second, 0:00:30 left"
    assert "adding keys" in terminal.getvalue()
    assert "left" in terminal.getvalue()
    assert bar.summary(25_000) == "; 10.0 s, 2.5k lines a second"


def test_the_second_pass_begins_at_zero(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    shown(monkeypatch)
    clock = Clock()
    with Bar([keys], clock=clock) as bar:
        bar.begin("counting lines")
        clock.now += 3
        bar.advance(4_000_000)
        bar.begin("adding keys", keys=100)
        clock.now += 2
        bar.advance_keys(50)  # of Parquet, whose bytes are not seen
        assert bar.meter.fraction() == 0.5
        assert bar.meter.status() == "50 keys, 25 a second, 0:00:02 left"
        assert bar.seconds == 5


def test_of_a_pipe_no_end_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = shown(monkeypatch)
    clock = Clock()
    with Bar(["-"], clock=clock) as bar:
        bar.begin("counting")
        clock.now += 4
        bar.advance(2_000)
        assert bar.meter.fraction() is None
        assert bar.meter.status() == "2k bytes, 500 a second"
    assert "counting" in terminal.getvalue()


def test_an_empty_file_is_no_division_by_zero(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown(monkeypatch)
    (tmp_path / "empty").touch()
    clock = Clock()
    with Bar([str(tmp_path / "empty")], clock=clock) as bar:
        bar.begin("counting")
        clock.now += 4
        bar.advance(0)
        assert bar.meter.status() == ""


def test_a_pipe_for_standard_error_sees_nothing(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    clock = Clock()
    with Bar([keys], clock=clock) as bar:
        clock.now += 100
        bar.advance(1_000_000)
        with bar.waiting("building"):
            pass
    assert stream.getvalue() == ""


def test_lines_on_a_terminal_are_progress_enough(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    terminal = shown(monkeypatch)
    monkeypatch.setattr(sys, "stdout", Terminal())
    clock = Clock()
    with Bar([keys], beside_output=True, clock=clock) as bar:
        clock.now += 100
        bar.advance(1_000_000)
    assert terminal.getvalue() == ""


def test_waiting_shows_what_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, drawn = shown(monkeypatch), threading.Event()
    monkeypatch.setattr(Bar, "AFTER_SECONDS", 0.0)
    draw = Bar._show
    monkeypatch.setattr(Bar, "_show", lambda self: (draw(self), drawn.set()))
    with Bar(()) as bar, bar.waiting("building with Dask"):
        assert drawn.wait(60)
    assert "building with Dask" in terminal.getvalue()

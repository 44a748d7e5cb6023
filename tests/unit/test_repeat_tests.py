"""tools/repeat_tests.py: what it takes for green, what it keeps, where it goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import records
import repeat_tests


def printed(text: str, status: int = 0) -> tuple[str, ...]:
    return ("sh", "-c", f"echo '{text}'; exit {status}")


GREEN = printed("===== 20123 passed, 6 warnings in 550.10s (0:09:10) =====")
RED = printed("FAILED tests/unit/test_a.py::test_b - it\n===== 1 failed, 20122 passed in 5.00s =====", 2)


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(records, "ROOT", tmp_path)
    monkeypatch.setattr(records, "FOLDER", tmp_path / "trust")
    return lambda: json.loads((tmp_path / "trust/repeated-tests.json").read_text())["said"]


def test_runs_are_counted_and_go_on(said) -> None:  # type: ignore[no-untyped-def]
    assert repeat_tests.repeat(2, more=True, command=GREEN)
    assert repeat_tests.repeat(1, more=True, command=GREEN)
    assert [line[:22] for line in said()] == [f"run {n}: 20,123 passed, " for n in (1, 2, 3)]
    assert repeat_tests.repeat(1, more=False, command=GREEN)
    assert len(said()) == 1


def test_a_red_run_ends_it_and_is_named_and_nothing_goes_on_behind_it(said) -> None:  # type: ignore[no-untyped-def]
    assert repeat_tests.repeat(1, more=False, command=GREEN)
    assert not repeat_tests.repeat(3, more=True, command=RED)
    assert len(said()) == 2
    assert said()[1].startswith("run 2: 1 failed, 20,122 passed, status 2, ")
    assert said()[1].endswith(": tests/unit/test_a.py::test_b")
    assert repeat_tests.repeat(1, more=True, command=GREEN)
    assert len(said()) == 1


@pytest.mark.parametrize(
    "command",
    [
        printed("===== 5 passed, 1 skipped in 1.00s ====="), printed("===== 5 passed in 1.00s =====", 1),
        printed("make: *** nothing"), printed("===== 5 passed, 1 error in 1.00s =====", 1),
    ],
    ids=["a skipped test", "a bad end", "no result", "an error"],
)  # fmt: skip
def test_what_is_not_green(said, command: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    assert not repeat_tests.repeat(1, more=False, command=command)
    assert len(said()) == 1
    assert repeat_tests.recorded() == ([], 0)

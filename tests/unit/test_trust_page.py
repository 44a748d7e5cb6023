"""docs/trust.md: every test it names exists, every run it shows was kept by a command, and was fine."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import repeat_tests
import trust_page
from trust_page import ROOT

PAGE = (ROOT / "docs/trust.md").read_text(encoding="utf-8")
RECORDS = sorted((ROOT / "trust").glob("*.json"))
TARGETS = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}


def test_every_test_that_is_named_exists() -> None:
    names = {*re.findall(r"test_\w+\.py", PAGE)}
    assert len(names) > 10
    known = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert not names - known
    folders = {*re.findall(r"tests/(\w+)[ ,;)|`]", PAGE)}
    assert all((ROOT / "tests" / each).is_dir() for each in folders)


def test_every_command_is_a_target() -> None:
    commands = {*re.findall(r"`make ([a-z-]+)", PAGE)}
    commands |= {json.loads(path.read_text(encoding="utf-8"))["command"].split()[1] for path in RECORDS}
    assert {"soak", "fuzz", "sanitize", "coverage", "determinism", "crash", "damage", "faults"} <= commands
    assert not commands - TARGETS


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_says_what_was_run_and_when(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["said"]
    assert found["seconds"] > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"])
    assert all(line in trust_page.runs(ROOT / "trust") for line in found["said"])


def test_no_repeated_run_was_red() -> None:
    path = ROOT / "trust/repeated-tests.json"
    lines = json.loads(path.read_text(encoding="utf-8"))["said"] if path.exists() else []
    assert all(repeat_tests.GREEN.match(line) for line in lines)


def test_the_soak_lost_nothing() -> None:
    found = trust_page.newest(ROOT / "soak")
    totals = dict.fromkeys(("memory", "disk", "network"), 0)
    for each in found["soaks"]:
        assert (each["lost"], each["broken"], each["drift"], each["fine"]) == (0, 0, 0, True), each["name"]
        totals[each["setting"]] += each["operations"]
    assert totals["memory"] >= 10**9
    assert totals["disk"] >= 10**7
    assert totals["network"] >= 10**6
    assert f"{totals['memory']:,}" in trust_page.soak(found)


def test_fuzzing_reached_its_goals_and_left_nothing_open() -> None:
    found = trust_page.newest(ROOT / "fuzz/results")
    assert {each["target"] for each in found["targets"]} == {*trust_page.READS}
    for each in found["targets"]:
        assert not each["exit"], each["target"]
    by = dict.fromkeys(("libFuzzer", "atheris", "schemathesis"), 0)
    for each in found["targets"]:
        by[each["engine"]] += each["executions"]
    assert by["libFuzzer"] >= trust_page.CPP_GOAL
    assert by["atheris"] >= trust_page.PYTHON_GOAL
    assert sum(each.get("connections", 0) for each in found["targets"]) >= trust_page.HTTP_GOAL
    assert f"{by['libFuzzer']:,}" in trust_page.fuzz(found)

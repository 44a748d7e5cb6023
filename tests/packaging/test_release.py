"""Workflows and metadata name what exists: make targets, files, extras, versions."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")
}
TARGETS = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _steps() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{file}/{name}", step)
        for file, content in WORKFLOWS.items()
        for name, job in content["jobs"].items()
        for step in job["steps"]
    ]


def test_workflows_run_targets_and_files_that_exist() -> None:
    for where, step in _steps():
        command = step.get("run", "")
        for target in re.findall(r"\bmake ([a-z-]+)", command):
            assert target in TARGETS, (where, target)
        for path in re.findall(r"\b(?:bash|python) ([\w./-]+)", command):
            assert (ROOT / path).is_file(), (where, path)


def test_actions_have_a_version_and_jobs_that_are_needed_exist() -> None:
    for where, step in _steps():
        assert "run" in step or re.fullmatch(r"[\w-]+/[\w-]+@[\w./]+", step["uses"]), where
    for content in WORKFLOWS.values():
        for job in content["jobs"].values():
            needs = job.get("needs", [])
            assert {*([needs] if isinstance(needs, str) else needs)} <= {*content["jobs"]}


def test_only_the_jobs_that_publish_have_an_identity() -> None:
    """Trusted publishing: no password, no token; two jobs have an identity, and run nothing of ours."""
    for content in WORKFLOWS.values():
        assert content["permissions"] == {"contents": "read"}
    jobs = WORKFLOWS["release.yml"]["jobs"]
    holders = {name for name, job in jobs.items() if "permissions" in job}
    assert holders == {"pypi", "testpypi"}
    for name in holders:
        assert jobs[name]["permissions"] == {"id-token": "write"}
        assert {*jobs[name]["needs"]} == {"sdist", "wheels"}
        assert not [step for step in jobs[name]["steps"] if "run" in step]
        assert jobs[name]["steps"][-1]["with"]["attestations"] is True
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text()
    test = jobs["testpypi"]
    assert test["steps"][-1]["with"]["repository-url"] == "${{ vars.TEST_REPOSITORY_URL }}"
    assert "vars.TEST_REPOSITORY_URL != ''" in test["if"]  # an empty address would be that of the real index
    assert "repository-url" not in jobs["pypi"]["steps"][-1]["with"]


def test_wheels_are_built_and_tested_for_every_python_that_is_declared() -> None:
    settings = PROJECT["tool"]["cibuildwheel"]
    declared = {
        each.rpartition(" ")[2]
        for each in PROJECT["project"]["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", each)
    }
    built = {f"3.{each}" for each in re.findall(r"cp3(\d+)-", " ".join(settings["build"]))}
    assert built == declared
    assert PROJECT["project"]["requires-python"] == ">=3.11"
    assert "3.11" in built
    (path,) = re.findall(r"\{project\}/(\S+)", settings["test-command"])
    assert (ROOT / path).is_file()
    systems = {
        each["os"].partition("-")[0]
        for each in WORKFLOWS["release.yml"]["jobs"]["wheels"]["strategy"]["matrix"]["include"]
    }
    assert systems == {"ubuntu", "macos", "windows"}


def test_dependabot_looks_at_folders_that_exist() -> None:
    for each in yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]:
        assert (ROOT / each["directory"].strip("/")).is_dir()


def test_the_citation_is_that_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = PROJECT["project"]
    assert cited["version"] == project["version"]
    assert cited["license"] == project["license"]
    assert cited.get("repository-code") == project.get("urls", {}).get("Source")
    assert cited["authors"] == project["authors"] == [{"name": "The evenbins developers"}]


def test_versions_that_differ_are_found() -> None:
    check = _tool("check_version")
    version = PROJECT["project"]["version"]
    assert set(check.versions(f"refs/tags/v{version}").values()) == {version}
    assert set(check.versions("refs/tags/v99.0").values()) == {version, "99.0"}


def test_people_find_it_by_the_words_they_search_for() -> None:
    words = {"dedup", "bloom filter", "consistent hashing", "sticky session", "vllm"}
    assert words <= {*PROJECT["project"]["keywords"]}


# --- instruction counts: tools/instructions.py -------------------------------------------------------------


def test_counts_may_differ_by_three_percent() -> None:
    compare = _tool("instructions").compare
    assert compare({"a": 100.0, "b": 100.0}, {"a": 102.9, "b": 97.1}) == []
    assert compare({"a": 100.0, "b": 100.0, "c": 1.0}, {"a": 103.1, "b": 96.9, "d": 1.0}) == [
        "a",
        "b",
        "c",
        "d",
    ]


def test_every_path_is_counted_and_can_be_called_twice() -> None:
    tool = _tool("instructions")
    tool.KEYS = 200
    names = []
    calls = list(tool.paths())
    for name, call in calls + calls:
        call()
        names.append(name)
    committed = json.loads(tool.BASELINE.read_text())
    assert {*names} == {*committed["instructions_per_key"]}
    assert len(calls) >= 12


def test_counts_of_another_compiler_are_not_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = _tool("instructions")
    monkeypatch.setattr(tool, "machine", lambda: {"compiler": "abacus 1", "python": "3.11", "kernel": "avx2"})
    monkeypatch.setattr("sys.argv", ["instructions.py"])
    with pytest.raises(SystemExit) as end:
        tool.main()
    assert end.value.code == tool.OTHER_MACHINE
    assert "compiler 'abacus 1', committed 'GCC" in capsys.readouterr().out

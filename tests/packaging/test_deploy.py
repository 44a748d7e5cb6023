"""deploy/: everything that the Dockerfile and the systemd unit name exists; neither is run."""

from __future__ import annotations

import ast
import json
import re
import shlex
import signal
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from evenbins.cli.route import route
from evenbins.cluster.http import Router
from evenbins.cluster.http_settings import read_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONS = {option for parameter in route.params for option in parameter.opts}
KNOWN = {"FROM", "RUN", "WORKDIR", "COPY", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def joined_lines(path: Path) -> list[str]:
    """Read the lines of a file without comments; those that end in a backslash go on."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return "\n".join(lines).replace("\\\n", " ").splitlines()


def instructions() -> list[tuple[str, str]]:
    found = [line.partition(" ") for line in joined_lines(DEPLOY / "Dockerfile")]
    return [(name, rest.strip()) for name, _, rest in found]


def only(name: str) -> str:
    (found,) = [rest for each, rest in instructions() if each == name]
    return found


def options_of(words: list[str]) -> list[str]:
    return [word for word in words if word.startswith("--")]


def test_stages_and_files() -> None:
    assert {name for name, _ in instructions()} == KNOWN
    stages = [rest for name, rest in instructions() if name == "FROM"]
    (build,) = [re.fullmatch(r"\S+ AS (\w+)", stage)[1] for stage in stages[:-1]]  # type: ignore[index]
    for stage in stages:
        version = re.match(r"python:(\d+\.\d+)-slim\b", stage)
        assert version is not None
        assert version[1] in SpecifierSet(PROJECT["requires-python"])
    commands = "\n".join(rest for name, rest in instructions() if name == "RUN")
    written = re.search(r"pip wheel --no-deps --wheel-dir (\S+) \.", commands)
    assert written is not None
    for name, rest in instructions():
        if name == "COPY":
            *sources, _ = [word for word in rest.split() if not word.startswith("--")]
            if "--from=" in rest:
                assert rest.startswith(f"--from={build} ")
                assert sources == [written[1]]
            else:
                assert all((ROOT / source).exists() for source in sources)
    assert "docker build -f deploy/Dockerfile" in (DEPLOY / "Dockerfile").read_text()


def test_what_is_installed() -> None:
    installs = [rest for name, rest in instructions() if name == "RUN" and "pip install" in rest]
    (found,) = [re.search(r"(\w+)-\*\.whl\)\[([\w,]+)\]", text) for text in installs]
    assert found is not None
    assert found[1] == PROJECT["name"]
    extras = set(found[2].split(","))
    assert extras <= set(PROJECT["optional-dependencies"])
    assert "route" in extras
    assert f"useradd --system --no-create-home {only('USER')}" in installs[0]


def test_the_command_and_its_port() -> None:
    program, command, *words = json.loads(only("ENTRYPOINT"))
    assert program in PROJECT["scripts"]
    assert command == route.name
    arguments = [*words, *json.loads(only("CMD"))]
    assert set(options_of(arguments)) <= OPTIONS
    port = arguments[arguments.index("--port") + 1]
    assert only("EXPOSE") == port
    assert arguments[arguments.index("--host") + 1] == "0.0.0.0"  # the container's, not the machine's
    assert only("STOPSIGNAL") == signal.Signals.SIGTERM.name
    python, flag, code = json.loads(only("HEALTHCHECK").partition(" CMD ")[2])
    assert (python, flag) == ("python", "-c")
    ast.parse(code)
    assert f"http://127.0.0.1:{port}/-/healthy" in code


def test_the_unit() -> None:
    lines = joined_lines(DEPLOY / "evenbins-route.service")
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    program, command, *words = shlex.split(values["ExecStart"])
    assert Path(program).name in PROJECT["scripts"]
    assert command == route.name
    assert set(options_of(words)) <= OPTIONS
    assert values["ExecReload"] == "/bin/kill -HUP $MAINPID"
    grace = float(words[words.index("--grace") + 1])
    assert float(values["TimeoutStopSec"]) > grace  # or systemd kills what may still end by itself
    name, _, _ = values["LoadCredential"].partition(":")
    assert words[words.index("--admin-token-file") + 1].endswith(f"/{name}")
    assert [line for line in lines if line.startswith("[")] == ["[Unit]", "[Service]", "[Install]"]


@pytest.mark.parametrize("with_pools", [False, True])
def test_the_example_of_a_configuration(tmp_path: Path, with_pools: bool) -> None:
    """Its table of a pool is a comment, which is as good as the rest."""
    text = (DEPLOY / "route.toml").read_text()
    if with_pools:
        before, _, after = text.partition("# [pools.large]")
        text = before + "[pools.large]" + after.replace("\n# ", "\n")
    path = tmp_path / "route.toml"
    path.write_text(text)
    settings = read_settings(path)
    assert list(Router(settings.config).pools) == (["default", "large"] if with_pools else ["default"])


def test_the_image_is_built_from_what_the_package_is_built_from() -> None:
    """Not from .venv, build or .git, which a clone has after `make demo`: gigabytes."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert all((ROOT / name).exists() for name in kept)
    named = {PROJECT["readme"], *PROJECT["license-files"]}
    assert {"pyproject.toml", "CMakeLists.txt", "cpp", "src", *named} <= kept

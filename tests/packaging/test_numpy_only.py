"""`pip install evenbins` brings NumPy alone: every structure, its files and its plans must work with that."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src/evenbins"

BARE = """
import sys
sys.modules.update(dict.fromkeys({missing!r}))  # an import of these raises ModuleNotFoundError
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in {missing!r} else find(name, package)
sys.argv[:] = ["evenbins", {command!r}]
import runpy
runpy.run_module("evenbins", run_name="__main__")
"""


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], text=True, capture_output=True, check=False, timeout=240
    )


def _without(*missing: str, command: str) -> subprocess.CompletedProcess[str]:
    return _run("-c", BARE.format(missing=missing, command=command))


def test_every_structure_and_common_plan_needs_numpy_only() -> None:
    done = _run(Path(__file__).with_name("numpy_only.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    *names, loaded = done.stdout.splitlines()
    assert "HashRing" in names
    others = {"evenbins", "numpy", "cython_runtime"}
    assert {name for name in loaded.split()[1:] if not name.startswith("_")} <= others


def test_numpy_is_the_only_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [re.match(r"\w+", each)[0] for each in project["dependencies"]] == ["numpy"]  # type: ignore[index]


def test_the_bare_command_names_its_extra() -> None:
    done = _without("click", "rich", command="build")
    assert done.returncode == 2
    assert done.stderr == "evenbins: the command needs click and rich: pip install 'evenbins[cli]'\n"
    assert "needs rich:" in _without("rich", command="build").stderr


def test_a_command_without_scipy_names_its_extra() -> None:
    script = (
        "import sys; sys.modules['scipy'] = None\n"
        "from evenbins.study.theory.rings import no_full\n"
        "no_full(365, 2, 23)"
    )
    done = _run("-c", script)
    assert (
        done.stderr.splitlines()[-1] == "ImportError: scipy is not installed: pip install 'evenbins[theory]'"
    )


def test_the_documented_users_of_scipy_are_all() -> None:
    """docs/support.md lists the modules; nothing else may import SciPy, and they do so by `library`."""
    users = set()
    for path in SOURCES.rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"^\s*(import|from) scipy", text, re.MULTILINE), path
        if 'library("scipy' in text:
            users.add(".".join(path.relative_to(SOURCES.parent).with_suffix("").parts))
    line = re.search(r"^SciPy is used by (.*)\.$", (ROOT / "docs/support.md").read_text(), re.MULTILINE)
    assert line is not None
    assert set(re.findall(r"`([\w.]+)`", line[1])) == users


def test_extras_that_messages_and_documents_name_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    texts = [*SOURCES.rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    for path in texts:
        for found in re.findall(r"evenbins\[([a-z,]+)\]", path.read_text()):
            assert set(found.split(",")) <= set(extras), (os.fspath(path), found)

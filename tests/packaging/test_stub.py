"""Types: the committed stubs are those of the compiled modules, and everything holds under mypy --strict."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/evenbins"
MODULES = ("_core", "_study")

# What a user's program may do, and what a type checker must tell them not to.
GOOD = """
import numpy as np
import numpy.typing as npt

import evenbins
from evenbins import BlockedBloomFilter, BloomFilter, Filter

f = BloomFilter(100, fpr=1e-3, seed=5)
f.add("key")
f.add(b"key")
f.add(bytearray(b"key"))
f.add(memoryview(b"key"))
f.add(7)
f.add(np.uint8(7))
present: bool = "key" in f and 7 in f
f.update(["a", b"b", 3], range(10))
hits: npt.NDArray[np.bool_] = f.contains_many(np.arange(10), threads=2)
g: BloomFilter = f | f.copy()
size: int = memoryview(f).nbytes + f.nbytes
rate: float = f.plan.fpr + f.stats().fpr
h: BlockedBloomFilter = BlockedBloomFilter.from_bytes(b"")
anything: list[Filter] = [f, g, h, BlockedBloomFilter.open("path", verify=True)]
digest: int = evenbins.digest("key", seed=3)
"""
BAD = """
from evenbins import BlockedBloomFilter, BloomFilter

f = BloomFilter(100)
f.add(1.5)
f.add(None)
f.add("key", "key")
f |= BlockedBloomFilter(100)
BloomFilter(100, 0.01, 8)
f.save(7)
"""


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def test_the_committed_stubs_are_the_generated_ones(tmp_path: Path) -> None:
    done = run("tools/make_stub.py", tmp_path)
    assert done.returncode == 0, done.stdout
    for module in MODULES:
        stub = f"{module}.pyi"
        assert (PACKAGE / stub).read_text() == (tmp_path / stub).read_text(), "run: python tools/make_stub.py"


@pytest.mark.parametrize("module", MODULES)
def test_a_stub_leaves_nothing_out(module: str) -> None:
    """No signature is guessed, and no name of the module is missing."""
    compiled = vars(importlib.import_module(f"evenbins.{module}"))
    text = (PACKAGE / f"{module}.pyi").read_text()
    members = vars(compiled["Filter"]) if module == "_core" else {}
    names = {name for name in (*compiled, *members) if not name.startswith("__")}
    missing = sorted(name for name in names if f"def {name}(" not in text and f"class {name}" not in text)
    assert not missing
    assert "Any" not in text
    assert "..." not in re.sub(r"tuple\[\w+, \.\.\.\]", "", text.replace(": ...", ""))


@pytest.fixture(scope="module")
def mypy() -> list[str]:
    """The command; what `make lint` found out it need not find out again."""
    return ["-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache")]


@pytest.mark.long
def test_the_package_passes_mypy_strict(mypy: list[str]) -> None:
    """Also the tests and the tools. `make check` and `make lint` run the same command."""
    done = run(*mypy)
    assert done.returncode == 0, done.stdout


def test_a_users_program_is_checked_against_the_types(mypy: list[str], tmp_path: Path) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(GOOD)
    bad.write_text(BAD)
    done = run(*mypy, good)
    assert done.returncode == 0, done.stdout
    done = run(*mypy, bad)
    wrong = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert wrong == {5, 6, 7, 8, 9, 10}, done.stdout

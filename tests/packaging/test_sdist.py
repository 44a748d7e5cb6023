"""The source distribution: the same bytes from the same files, and what a build needs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"


def _tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    return [name for name in names if not name.startswith(("fuzz/", "docs/gallery/"))]  # many, and left out


def _built(names: list[str], folder: Path, *, mode: int, time: int) -> Path:
    """Build from a copy of the files: in this order, with these modes and times."""
    for name in names:
        copy = folder / "tree" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy)
        copy.chmod(mode)
        os.utime(copy, (time, time))
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run([sys.executable, "-c", BUILD, folder], cwd=folder / "tree", env=environment, check=True)
    (built,) = folder.glob("evenbins-*.tar.gz")
    return built


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    names = _tracked()
    first = _built(names, tmp_path_factory.mktemp("first"), mode=0o644, time=1_000_000_000)
    second = _built(names[::-1], tmp_path_factory.mktemp("other") / "place", mode=0o600, time=1_600_000_000)
    return first, second


def test_two_builds_have_the_same_bytes(two: tuple[Path, Path]) -> None:
    first, second = (hashlib.sha256(each.read_bytes()).hexdigest() for each in two)
    assert first == second


def test_it_has_what_a_build_needs_and_no_results(two: tuple[Path, Path]) -> None:
    with tarfile.open(two[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for path in ("CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "src/evenbins/py.typed"):
        assert path in names
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "cpp").rglob("*.[ch]pp")}
    assert sources <= names
    assert not [name for name in names if name.startswith((".venv", "build/", "fuzz/", "benchmarks/results"))]
    assert not [name for name in names if name.endswith((".so", ".pyc"))]

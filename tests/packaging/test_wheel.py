"""The built wheel is what users get, so it is tested: in an empty environment, with the README's example.

The wheel is built from this checkout, where the C++ of the editable install is reused (a clean build is what
every fresh clone does), and installed with its dependencies into a fresh virtual environment. What the
package needs comes from the package index.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command as a user's shell would: nothing of this test's Python environment is inherited."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment.pop("EVENBINS_KERNEL", None)
    environment["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    )
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    run(sys.executable, "-m", "pip", "wheel", *options, ROOT, cwd=folder)
    (built,) = folder.glob("evenbins-*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel and its dependencies, and nothing else: NumPy."""
    folder = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    programs = folder / "venv/bin"
    pip = (sys.executable, "-m", "pip", "--python", programs / "python")
    run(*pip, "install", "--quiet", "--no-compile", wheel, cwd=folder)
    listed = run(*pip, "list", "--format", "freeze", cwd=folder)
    assert set(re.findall(r"^([\w-]+)==", listed, re.MULTILINE)) == {"evenbins", "numpy"}
    return programs


def test_the_wheel_has_the_package_its_types_and_its_licence(names: list[str]) -> None:
    for path in (
        "__init__.py",
        "py.typed",
        "_core.pyi",
        "_study.pyi",
        "theory/__init__.py",
        "study/papers/registry.py",
        "study/lab/static/main.js",
    ):
        assert f"evenbins/{path}" in names
    for module in ("_core", "_study"):
        assert len([name for name in names if re.fullmatch(rf"evenbins/{module}\..*so", name)]) == 1
    assert len([name for name in names if re.search(r"\.dist-info/.*LICENSE$", name)]) == 1


def test_the_wheel_has_every_python_file_of_the_package(names: list[str]) -> None:
    for path in (ROOT / "src").rglob("*.py"):
        assert str(path.relative_to(ROOT / "src")) in names


def test_the_wheel_has_nothing_else(names: list[str]) -> None:
    """No tests, no C++ but the text of the GPU's kernels, no libraries or headers of the build."""
    tops = {name.split("/")[0] for name in names}
    assert {re.sub(r"-.*", "", top) for top in tops} == {"evenbins"}
    assert all(top == "evenbins" or top.endswith(".dist-info") for top in tops)
    text = "evenbins/cuda/text/"
    assert {Path(name).suffix for name in names if name.startswith(text)} == {".cuh", ".hpp"}
    ours = [name for name in names if name.startswith("evenbins/") and not name.startswith(text)]
    kinds = {Path(name).suffix for name in ours}
    assert not kinds & {".cpp", ".hpp", ".h", ".a", ".o", ".cmake", ".txt", ".pyc"}
    assert not [name for name in names if "test" in name.lower() or name.endswith("conftest.py")]


def test_the_readmes_example_runs_in_an_empty_environment(installed: Path, tmp_path: Path) -> None:
    """The first block of Python in README.md, as it stands there."""
    found = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, "README.md has no ```python block"
    (tmp_path / "example.py").write_text(found[1])
    run(installed / "python", "example.py", cwd=tmp_path)


def test_the_installed_package_needs_no_checkout(installed: Path, tmp_path: Path) -> None:
    script = "import evenbins, sys; print(evenbins.__file__); print(evenbins.kernel() in evenbins.kernels())"
    file, works = run(installed / "python", "-c", script, cwd=tmp_path).split()
    assert Path(file).is_relative_to(installed.parent)
    assert works == "True"


def test_the_command_runs_with_its_extra(wheel: Path, installed: Path, tmp_path: Path) -> None:
    """The last test of the file: it installs the extra into the environment of the others."""
    bare = subprocess.run([installed / "evenbins", "--version"], capture_output=True, text=True, check=False)
    assert bare.returncode == 2
    assert bare.stderr.endswith("pip install 'evenbins[cli]'\n")
    pip = (sys.executable, "-m", "pip", "--python", installed / "python")
    run(*pip, "install", "--quiet", "--no-compile", f"{wheel}[cli]", cwd=tmp_path)
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert version[1] in run(installed / "evenbins", "--version", cwd=tmp_path)

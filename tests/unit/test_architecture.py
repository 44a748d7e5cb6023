"""The tree keeps its shape: direction of imports, cycles, copies, sizes (tools/architecture.py)."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import architecture

# What may not be exceeded. Zero is what is wanted; the others are today's figures, and may only fall.
BOUNDS = {
    "pairs of files that share six or more lines": 3,
    "the same, lines of one shape included": 67,  # the fields of a new family's dataclasses are of one shape
    "cores indexed by bare numbers outside the families": 0,
    "import cycles": 0,
    "imports against the direction": 0,
    "imports of another module's private names": 2,
    "lines of the longest module": 600,
}


RECORDED = json.loads(Path(__file__).with_name("architecture.json").read_text())


@pytest.mark.parametrize("package", RECORDED)
def test_a_package_grows_by_new_modules(package: str) -> None:
    """The modules that it had when the packages were made may grow by a twentieth in all.

    What is new has modules of its own: a family is one of them.
    """
    names = [name for name in RECORDED[package]["modules"] if (architecture.SOURCE / name).exists()]
    lines = sum(architecture.lines_of(architecture.SOURCE / name) for name in names)
    assert lines <= 1.05 * RECORDED[package]["lines"]


@pytest.fixture(scope="module")
def measures() -> dict[str, architecture.Measure]:
    return {each.name: each for each in architecture.measures()}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_figure_keeps_its_bound(name: str, measures: dict[str, architecture.Measure]) -> None:
    found = measures[name]
    assert found.value <= BOUNDS[name], "\n".join(found.places)


def test_the_contract_names_every_module_and_package() -> None:
    """A new package has a place in the order of imports, which `make lint` enforces."""
    named = {name for layer in architecture.LAYERS[1:] for name in layer}
    there = {name.split(".")[1] for name in architecture.modules() if "." in name}
    assert there - named == set(), "add them to the layers of [tool.importlinter] in pyproject.toml"
    assert named - there == set(), "remove them from the layers of [tool.importlinter] in pyproject.toml"
    assert architecture.CONTRACTS[0]["exhaustive"]


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [program, "--no-cache"], cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )


def test_the_contracts_hold() -> None:
    done = lint_imports(architecture.ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "text", "complaint"),
    [
        ("theory/one", "def late():\n    from sample.cli import main\n", "sample.theory.one -> sample.cli"),
        ("theory/one", "from sample import structure\n", "sample.theory.one -> sample.structure"),
        ("filters/one", "def late():\n    import reference\n", "sample.filters.one -> reference"),
        ("cluster/one", "import benchmarks.cases\n", "sample.cluster.one -> benchmarks"),
        ("unheard/__init__", "", "sample.unheard"),
    ],
    ids=["up, inside a function", "up", "twins", "benchmarks", "a package without a layer"],
)
def test_the_contracts_are_broken_by(module: str, text: str, complaint: str, tmp_path: Path) -> None:
    """The same contracts, for a package of empty modules in which one is wrong."""
    project = tomllib.loads((architecture.ROOT / "pyproject.toml").read_text())
    config = "[tool.importlinter]\n"
    for name, value in project["tool"]["importlinter"].items():
        for each in value if name == "contracts" else [{name: value}]:
            config += "[[tool.importlinter.contracts]]\n" * (name == "contracts")
            config += "".join(f"{key} = {json.dumps(entry)}\n" for key, entry in each.items())
    (tmp_path / "pyproject.toml").write_text(config.replace("evenbins", "sample"))
    for name in (name for layer in architecture.LAYERS[1:] for name in layer):
        (tmp_path / "sample" / name).mkdir(parents=True)
        (tmp_path / "sample" / name / "__init__.py").touch()
    (tmp_path / "sample" / "__init__.py").touch()
    assert lint_imports(tmp_path).returncode == 0
    wrong = tmp_path / "sample" / f"{module}.py"
    wrong.parent.mkdir(exist_ok=True)
    wrong.write_text(text)
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert complaint in done.stdout.replace("\n", " "), done.stdout


def test_theory_is_mathematics() -> None:
    """It imports no service but _arguments, and no structure."""
    allowed = ("evenbins.theory", "evenbins._arguments", "evenbins.errors", "evenbins._core")
    strange = set()
    for path in (architecture.SOURCE / "theory").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("evenbins"):
                continue
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            if not all(name.startswith(allowed) for name in names):
                strange.add(path.stem)
    assert not strange


def test_a_copy_a_cycle_and_a_wrong_import_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measures find what they look for."""
    package = tmp_path / "src" / "evenbins"
    (package / "theory").mkdir(parents=True)
    (package / "cli").mkdir()
    run = "\n".join(f"value_{i} = {i} + {i}" for i in range(6))
    (package / "theory" / "one.py").write_text(
        f"from evenbins.cli import two\n{run}\ncore = [1]\nx = core[0]\n"
    )
    (package / "cli" / "two.py").write_text(f"from evenbins.theory.one import _hidden\n{run}\n")
    monkeypatch.setattr(architecture, "ROOT", tmp_path)
    monkeypatch.setattr(architecture, "SOURCE", package)
    known = architecture.modules(package)
    paths = list(known.values())
    assert len(architecture.shared_runs(paths)) == len(architecture.shared_runs(paths, by_shape=True)) == 1
    assert architecture.cycles(known) == ["evenbins.cli.two <-> evenbins.theory.one"]
    assert len(architecture.upward_imports(known)) == 1
    assert len(architecture.private_imports(known)) == 1
    assert len(architecture.bare_cores(known)) == 1


def test_lines_of_one_shape_are_noticed_and_docstrings_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other names, strings and numbers; docstrings, comments and imports do not count."""
    monkeypatch.setattr(architecture, "ROOT", tmp_path)
    one, other, third = tmp_path / "one.py", tmp_path / "other.py", tmp_path / "third.py"
    one.write_text("".join(f"value_{i} = call({i}, 'a')\n" for i in range(6)))
    other.write_text("import os\n" + "".join(f"# {i}\nother_{i} = make({i}0, 'b')\n" for i in range(6)))
    third.write_text('"""Head.\n\n' + "a b c d e f\n" * 20 + '"""\n')
    paths = [one, other, third]
    assert architecture.shared_runs(paths) == []
    assert architecture.shared_runs(paths, by_shape=True) == ["one.py ~ other.py"]
    other.write_text(other.read_text().replace("other_3 = make", "other_3 += make"))
    assert architecture.shared_runs(paths, by_shape=True) == []


@pytest.mark.parametrize(
    "code",
    [
        "import evenbins",
        "from evenbins import *",
        "from evenbins import BlockedBloomFilter; 7 in BlockedBloomFilter(100)",
    ],
)
def test_an_import_brings_numpy_only(code: str) -> None:
    """No scipy, click, rich, starlette …: what a program does not use it does not load."""
    script = f"""
import sys
before = set(sys.modules)
{code}
tops = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*sorted(tops - set(sys.stdlib_module_names)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=True
    )
    assert set(done.stdout.split()) <= {"evenbins", "numpy"}

"""The tree keeps its shape: direction of imports, cycles, copies, sizes (tools/architecture.py)."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import architecture

# What may not be exceeded. Zero is what is wanted; the others are today's figures, and may only fall.
BOUNDS = {
    "Python lines in the wheel outside study": 33_300,
    "pairs of files that share six or more lines": 29,
    "cores indexed by bare numbers outside the families": 0,
    "import cycles": 0,
    "imports against the direction": 0,
    "imports of another module's private names": 4,
    "lines of the longest module": 891,
}


@pytest.fixture(scope="module")
def measures() -> dict[str, architecture.Measure]:
    return {each.name: each for each in architecture.measures()}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_figure_keeps_its_bound(name: str, measures: dict[str, architecture.Measure]) -> None:
    found = measures[name]
    assert found.value <= BOUNDS[name], "\n".join(found.places)


def test_every_module_has_a_layer() -> None:
    strange = [name for name in architecture.modules() if architecture.layer_of(name) is None]
    assert strange == ["evenbins"]


def test_no_production_code_imports_the_twins_or_the_benchmarks() -> None:
    for path in architecture.SOURCE.rglob("*.py"):
        for line in path.read_text().splitlines():
            assert not line.lstrip().startswith(
                ("from reference", "import reference", "from benchmarks", "import benchmarks")
            ), path


def test_theory_is_mathematics() -> None:
    """It imports no service but _arguments, and no structure; those that still have a plan become fewer."""
    with_a_plan = {"balanced_request", "filter_plan", "ring_plan", "sharding"}
    allowed = ("evenbins.theory", "evenbins._arguments", "evenbins._core")
    strange = set()
    for path in (architecture.SOURCE / "theory").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("evenbins"):
                continue
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            if not all(name.startswith(allowed) for name in names):
                strange.add(path.stem)
    assert strange <= with_a_plan


def test_a_copy_a_cycle_and_a_wrong_import_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measures find what they look for."""
    package = tmp_path / "src" / "evenbins"
    (package / "theory").mkdir(parents=True)
    (package / "cli").mkdir()
    run = "\n".join(f"value_{i} = {i}" for i in range(6))
    (package / "theory" / "one.py").write_text(
        f"from evenbins.cli import two\n{run}\ncore = [1]\nx = core[0]\n"
    )
    (package / "cli" / "two.py").write_text(f"from evenbins.theory.one import _hidden\n{run}\n")
    monkeypatch.setattr(architecture, "ROOT", tmp_path)
    monkeypatch.setattr(architecture, "SOURCE", package)
    known = architecture.modules(package)
    assert len(architecture.shared_runs(list(known.values()))) == 1
    assert architecture.cycles(known) == ["evenbins.cli.two <-> evenbins.theory.one"]
    assert len(architecture.upward_imports(known)) == 1
    assert len(architecture.private_imports(known)) == 1
    assert len(architecture.bare_cores(known)) == 1

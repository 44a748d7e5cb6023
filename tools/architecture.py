"""The architecture in numbers, from syntax trees: size, duplication, direction of imports.

    python tools/architecture.py          the table
    python tools/architecture.py --places the places that were counted
    python tools/architecture.py --json   the same for programs

tests/unit/test_architecture.py holds the tree to its `BOUNDS`. A bound is what must hold now; where
that is not yet what is wanted, it is today's figure, and may only fall.
"""

from __future__ import annotations

import ast
import io
import json
import keyword
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "evenbins"
SHARED_LINES = 6
TOO_COMMON = 8  # a run in more places than this is a habit of the language, not a copy
LEAST_TOKENS = 24  # of a run compared by shape: four per line, or it is punctuation
_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
_SHAPES = {tokenize.STRING: "S", tokenize.NUMBER: "0"}

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

# Who may import whom, as `make lint` enforces it: a module imports what stands to its left, or its own layer.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("_core", "_study"),
    *(tuple(layer.split(" : ")) for layer in reversed(CONTRACTS[0]["layers"])),
)
FAMILIES = ("evenbins.filters", "evenbins.tables", "evenbins.sketches", "evenbins.rings")


class Measure(NamedTuple):
    """One row of the table."""

    name: str
    value: int
    places: list[str]


def modules(root: Path = SOURCE) -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def nodes_of(text: str) -> list[ast.AST]:
    """Return all nodes of a module's syntax tree; each text is parsed once."""
    return list(ast.walk(ast.parse(text)))


def imports(path: Path, known: dict[str, Path], *, at_run_time: bool) -> Iterator[tuple[str, str, int]]:
    """Yield what a module imports of ours: module, name (empty for the module itself), line.

    With `at_run_time` imports for type checkers alone are left out.
    """
    skipped: set[ast.AST] = set()
    if at_run_time:
        for node in nodes_of(path.read_text()):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                skipped |= {inner for statement in node.body for inner in ast.walk(statement)}
    for node in nodes_of(path.read_text()):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "evenbins":
                    yield alias.name, "", node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "evenbins":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                is_module = whole in known or alias.name in LAYERS[0]
                yield (whole, "", node.lineno) if is_module else (node.module, alias.name, node.lineno)


def layer_of(module: str) -> int | None:
    """Return the number of a module's layer; None for the package itself."""
    top = module.split(".")[1] if "." in module else ""
    return next((number for number, names in enumerate(LAYERS) if top in names), None)


def upward_imports(known: dict[str, Path]) -> list[str]:
    """Return the imports that point from a lower layer to a higher one."""
    found = []
    for module, path in known.items():
        own = layer_of(module)
        for target, _, line in imports(path, known, at_run_time=False):
            other = layer_of(target)
            if own is not None and other is not None and other > own:
                found.append(f"{path.relative_to(ROOT)}:{line} imports {target}")
    return found


def cycles(known: dict[str, Path]) -> list[str]:
    """Return the groups of modules that import one another when they run, at any depth of their code."""
    edges = {
        module: {
            target if target in known else target.rpartition(".")[0]
            for target, _, _ in imports(path, known, at_run_time=True)
        }
        - {"evenbins", module}
        for module, path in known.items()
    }
    return [" <-> ".join(sorted(group)) for group in _components(edges) if len(group) > 1]


def _components(edges: dict[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected components (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = set(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            found.append(group)

    sys.setrecursionlimit(10_000)
    for node in edges:
        if node not in index:
            visit(node)
    return found


def private_imports(known: dict[str, Path]) -> list[str]:
    """Return the imports of names, or of modules in other packages, that begin with an underscore.

    The services at the bottom are private to users, not to the package.
    """
    services = {f"evenbins.{name}" for name in (*LAYERS[0], *LAYERS[1])}
    found = []
    for module, path in known.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for target, name, line in imports(path, known, at_run_time=False):
            private_name = name.startswith("_") and not name.startswith("__")
            hidden = [
                part for part in target.split(".") if part.startswith("_") and not part.startswith("__")
            ]
            foreign = bool(hidden) and target not in services and not target.startswith(package + ".")
            if private_name or foreign:
                found.append(f"{path.relative_to(ROOT)}:{line} {target}{'.' + name if name else ''}")
    return found


def bare_cores(known: dict[str, Path]) -> list[str]:
    """Return where a structure's core is indexed by a bare number outside the packages of the families."""
    found = []
    for module, path in known.items():
        if module.startswith(FAMILIES):
            continue
        for node in nodes_of(path.read_text()):
            if not isinstance(node, ast.Subscript):
                continue
            base = node.value
            name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
            if name not in ("core", "_core"):
                continue
            parts = [node.slice]
            if isinstance(node.slice, ast.Slice):
                parts = [part for part in (node.slice.lower, node.slice.upper) if part is not None]
            if any(isinstance(part, ast.Constant) and isinstance(part.value, int) for part in parts):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def text_lines(path: Path) -> list[str]:
    """Return the lines of a file with white space folded, without imports, comments and lone punctuation."""
    return [
        " ".join(line.split())
        for line in path.read_text().splitlines()
        if line.strip(" \t()[]{},:\"'") and not line.lstrip().startswith(("#", "import ", "from "))
    ]


def line_shapes(path: Path) -> list[str]:
    """Return the shapes of the lines of code: names, strings and numbers as N, S and 0; no docstrings."""
    text = path.read_text()
    left_out: set[int] = set()
    for node in nodes_of(text):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or isinstance(node, ast.Import | ast.ImportFrom):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    shapes: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _LAYOUT or token.start[0] in left_out:
            continue
        name = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
        shapes[token.start[0]].append("N" if name else _SHAPES.get(token.type, token.string))
    lines = [" ".join(shapes[number]) for number in sorted(shapes)]
    return [line for line in lines if any(symbol.isalnum() for symbol in line)]


def shared_runs(paths: list[Path], *, by_shape: bool = False) -> list[str]:
    """Return the pairs of files (or one file twice) with places that share runs of six or more lines.

    By shape, lines that differ in names, strings and numbers alone are the same; runs of little but
    punctuation are left out.
    """
    windows: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for path in paths:
        lines = line_shapes(path) if by_shape else text_lines(path)
        for start in range(len(lines) - SHARED_LINES + 1):
            run = tuple(lines[start : start + SHARED_LINES])
            if not by_shape or sum(len(line.split()) for line in run) >= LEAST_TOKENS:
                windows[run].append((path, start))
    pairs = {
        (a, b)
        for places in windows.values() if len(places) <= TOO_COMMON
        for (a, i), (b, j) in combinations(places, 2) if a != b or j - i >= SHARED_LINES
    }  # fmt: skip
    return sorted(f"{a.relative_to(ROOT)} ~ {b.relative_to(ROOT)}" for a, b in pairs)


def lines_of(path: Path) -> int:
    """Count the lines of a file."""
    return len(path.read_text().splitlines())


def packages(known: dict[str, Path]) -> dict[str, int]:
    """Count the lines of each package, the modules at the top as one."""
    found: dict[str, int] = defaultdict(int)
    for path in known.values():
        parts = path.relative_to(SOURCE).parts
        found[parts[0] if len(parts) > 1 else "(top)"] += lines_of(path)
    return dict(sorted(found.items()))


def measures() -> list[Measure]:
    """Measure the tree."""
    known = modules()
    product = {name: path for name, path in known.items() if not name.startswith("evenbins.study")}
    sources = [*known.values(), *sorted(SOURCE.rglob("*.pyi"))]
    same = shared_runs(sources)
    alike = sorted({*same, *shared_runs(sources, by_shape=True)})
    longest = max(known.values(), key=lines_of)
    return [
        Measure("Python lines in the wheel outside study", sum(map(lines_of, product.values())), []),
        Measure("pairs of files that share six or more lines", *_with_count(same)),
        Measure("the same, lines of one shape included", *_with_count(alike)),
        Measure("cores indexed by bare numbers outside the families", *_with_count(bare_cores(product))),
        Measure("import cycles", *_with_count(cycles(known))),
        Measure("imports against the direction", *_with_count(upward_imports(known))),
        Measure("imports of another module's private names", *_with_count(private_imports(known))),
        Measure("lines of the longest module", lines_of(longest), [str(longest.relative_to(ROOT))]),
    ]


def _with_count(places: list[str]) -> tuple[int, list[str]]:
    return len(places), places


def main() -> None:
    """Print the table, and the places with --places."""
    found = measures()
    if "--json" in sys.argv:
        print(
            json.dumps(
                {each.name: each.value for each in found} | {"packages": packages(modules())}, indent=2
            )
        )
        return
    for each in found:
        print(f"{each.name:<52} {each.value:>7,}")
        if "--places" in sys.argv:
            print(*(f"    {place}" for place in each.places), sep="\n")
    print("\nlines per package")
    for name, lines in packages(modules()).items():
        print(f"  {name:<50} {lines:>7,}")


if __name__ == "__main__":
    main()

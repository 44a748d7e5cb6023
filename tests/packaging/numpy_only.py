"""Uses every structure and plans of the common kinds in an interpreter that has NumPy and nothing else.

    python numpy_only.py

test_numpy_only.py starts it, and the release workflow for each wheel. An import of another distribution fails
as if it were not installed.
"""

from __future__ import annotations

import importlib.abc
import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any

ALLOWED = {"evenbins", "numpy", "structures", *sys.stdlib_module_names}


class _Missing(importlib.abc.MetaPathFinder):
    """Find nothing but the standard library, NumPy, this package and the list of its structures."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        del path, target
        top = name.partition(".")[0]
        if top not in ALLOWED and not top.startswith("_evenbins"):  # the finder of an editable install
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)


def _saved_and_loaded(made: Any, path: Path) -> Any:
    if hasattr(made, "checkpoint"):  # on disk already
        made.close()
        return type(made).open(made.path)
    if not hasattr(made, "save"):
        return type(made).from_bytes(made.to_bytes())
    made.save(path)
    return type(made).load(path)


def use_structures(folder: Path) -> None:
    """Build, ask, save and load every structure of tests/structures.py."""
    from structures import FIXED, KEYS, STRUCTURES

    for structure in itertools.chain(STRUCTURES, FIXED):
        made = structure.filled(folder, KEYS[:500])
        assert structure.holds(made, KEYS[:500]).all(), structure.name
        repr((made.plan, made.stats()))
        again = _saved_and_loaded(made, folder / structure.name)
        assert structure.holds(again, KEYS[:500]).all(), structure.name
        print(structure.name)


def make_plans() -> None:
    """Plan every policy and scheme; a table by the equations with few levels, which is quick."""
    from evenbins import design
    from evenbins.filters.balanced import plan_balanced
    from evenbins.rings import plan as rings
    from evenbins.tables import chained, multilevel_plan
    from evenbins.theory import cores, sharding

    for policy in cores.POLICIES:
        plan_balanced(10_000, fpr=1e-3, policy=policy)
    for policy in chained.POLICIES:
        chained.plan_chains(10_000, policy=policy, load=2)
    for policy in rings.POLICIES:
        rings.plan_ring(10, 1000, policy=policy)
    for scheme in multilevel_plan.SCHEMES:
        multilevel_plan.plan_multilevel(10_000, scheme=scheme, levels=2, slots=2, space=2.0)
    sharding.largest_shard(1_000_000, 100)
    repr(design.filter(keys=10_000, fpr=1e-2))
    repr(design.ring(nodes=10, keys=1000))


def main() -> None:
    """Block the imports, then use the package."""
    for name in [name for name in sys.modules if name.partition(".")[0] not in ALLOWED]:
        if not name.startswith(("_evenbins", "__")):
            del sys.modules[name]
    sys.meta_path.insert(0, _Missing())
    sys.path.insert(0, str(Path(__file__).parents[1]))
    with tempfile.TemporaryDirectory() as folder:
        use_structures(Path(folder))
    make_plans()
    tops = {name.partition(".")[0] for name in sys.modules}
    print("loaded:", *sorted(tops - set(sys.stdlib_module_names) - {"structures"}))


if __name__ == "__main__":
    main()

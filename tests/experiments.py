"""The papers' experiments, quick: each runs once in a run of the tests, whichever suite needs it first.

    test_papers.py                every experiment by the command  ─┐
    test_papers_chen.py, ...      what their rows must say         ─┴─▶ run_once ──▶ a folder of this test run

Processes of pytest-xdist share the folder. Results are the same for any number of threads, which tests
compare by calls of `papers.run` itself.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from evenbins.study import papers
from evenbins.study.papers import Result

__all__ = ["run_once", "run_or_reuse", "share_results_in"]

_run = papers.run
_folder: list[Path] = []


def share_results_in(folder: Path) -> None:
    """Set the folder of this test run."""
    folder.mkdir(exist_ok=True)
    _folder[:] = [folder]


@cache
def run_once(id: str) -> Result:
    """Return the result of a quick run with seed 1."""
    kept = _folder[0] / id
    if kept.exists():
        result: Result = pickle.loads(kept.read_bytes())
        return result
    result = _run(id, quick=True, threads=2)
    with tempfile.NamedTemporaryFile(dir=_folder[0], delete=False) as file:
        pickle.dump(result, file)
    os.replace(file.name, kept)
    return result


def run_or_reuse(experiment: Any, **arguments: Any) -> Result:
    """Stand in for `papers.run`: a quick run with seed 1 and no options is reused."""
    plain = arguments.get("quick") and arguments.get("seed", 1) == 1 and not arguments.get("options")
    if not plain:
        return _run(experiment, **arguments)
    return run_once(experiment if isinstance(experiment, str) else experiment.id)

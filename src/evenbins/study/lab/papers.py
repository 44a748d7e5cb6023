"""The page Papers: every experiment of `evenbins.study.papers`, run again beside the paper's numbers.

    list      the experiments, by paper
    run       one of them (a job): rows with the paper's number, ours, and how far they are apart
    figure    the experiment's own figure of such a run, as SVG

A figure belongs to a run: the last runs are remembered, and a figure of another is refused. matplotlib draws
it (`evenbins[plot]`); without it the page says what to install. Dark or light is the page's affair: it turns
the figure's colours by a CSS filter, so that the experiments' plots need not know of it.

Options of experiments (the trace of chen-table1 and chen-table2) are left out: they are files, and a page
that reads files by name would need more fences than it is worth. `evenbins reproduce --help` names them.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from evenbins.study import papers
from evenbins.study.lab.parameters import Endpoint, Flag, Number, RefusedError, Text
from evenbins.study.papers import Experiment, Result, Row, plots, table

__all__ = ["ENDPOINTS", "figure", "listing", "run"]

NEAR, CLOSE = 0.10, 0.02
"""Relative differences from the paper up to which a row is called near, and close."""

_REMEMBERED = 16
_runs: OrderedDict[tuple[str, int, bool], Result] = OrderedDict()
_lock = threading.Lock()
_drawing = threading.Lock()  # matplotlib's settings are the process's

Progress = Callable[[int, int], None]


def listing() -> dict[str, Any]:
    """Return the experiments, by paper, and whether figures can be drawn."""
    known = papers.experiments().values()
    return {
        "papers": [
            {
                "name": name,
                "title": title,
                "experiments": [_about(each) for each in known if each.id.startswith(f"{name}-")],
            }
            for name, title in papers.PAPERS.items()
        ],
        "figures": find_spec("matplotlib") is not None,
        "install": "pip install 'evenbins[plot]'",
    }


def _about(experiment: Experiment) -> dict[str, Any]:
    return {
        "id": experiment.id,
        "title": experiment.title,
        "source": experiment.source.partition(", ")[2] or experiment.source,
        "options": sorted(experiment.options),
    }


def run(*, id: str, seed: int, quick: bool, progress: Progress) -> dict[str, Any]:
    """Run an experiment."""
    experiment = _find(id)
    progress(0, 0)
    threads = max(1, (os.cpu_count() or 1) - 1)
    result = papers.run(experiment, seed=seed, quick=quick, threads=threads, progress=progress)
    with _lock:
        _runs[id, seed, quick] = result
        _runs.move_to_end((id, seed, quick))
        while len(_runs) > _REMEMBERED:
            _runs.popitem(last=False)
    apart = [abs(each) for each in map(_relative, result.rows) if each is not None]
    return {
        "experiment": _about(experiment),
        "seed": seed,
        "quick": quick,
        "seconds": result.seconds,
        "columns": list(dict.fromkeys(name for each in result.rows for name in each.where)),
        "rows": [_row(each) for each in result.rows],
        "compared": sum(each.paper is not None for each in result.rows),
        "close": sum(each <= CLOSE for each in apart),
        "near": sum(each <= NEAR for each in apart),
        "median": median(apart) if apart else None,
        "command": f"evenbins reproduce {id} --seed {seed}" + (" --quick" if quick else ""),
        "python": (
            "from evenbins.study import papers\n\n"
            f'result = papers.run("{id}", seed={seed}, quick={quick})\n'
            "for row in result.rows:\n"
            "    print(row.where, row.quantity, row.paper, row.ours)\n"
        ),
    }


def _row(row: Row) -> dict[str, Any]:
    relative = _relative(row)
    if row.paper is None:
        agreement = None
    elif relative is None:
        agreement = "close" if row.ours == row.paper else "apart"
    else:
        agreement = "close" if abs(relative) <= CLOSE else "near" if abs(relative) <= NEAR else "apart"
    return {
        "where": dict(row.where), "quantity": row.quantity, "paper": row.paper, "ours": row.ours,
        "sd": row.sd, "note": row.note, "difference": table.difference(row), "agreement": agreement,
    }  # fmt: skip


def _relative(row: Row) -> float | None:
    """Return ours over the paper's, less one; None without a number of the paper, or with zero."""
    return row.ours / row.paper - 1 if row.paper else None


def figure(*, id: str, seed: int, quick: bool) -> str:
    """Draw the figure of a run that is remembered."""
    experiment = _find(id)
    with _lock:
        result = _runs.get((id, seed, quick))
    if result is None:
        raise RefusedError(f"{id} has not been run with this seed lately: run it first", status=404)
    try:
        with _drawing, tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "figure.svg"
            plots.save(experiment, result.rows, path)
            return path.read_text(encoding="utf-8")
    except plots.MissingMatplotlibError as error:
        raise RefusedError(str(error), status=404) from None


def _find(id: str) -> Experiment:
    known = papers.experiments()
    if id not in known:
        try:
            papers.select([id])
        except papers.UnknownExperimentError as error:
            text = str(error).replace("--list lists all", "/api/papers/list lists all")
            raise RefusedError(text, status=404) from None
        raise RefusedError(f"id must be one experiment's, not {id!r}: choose one of them", status=404)
    return known[id]


_ID = Text(
    "id", longest=40, pattern=r"[a-zA-Z0-9.-]+", rule="letters, digits, points and hyphens",
    default="kirsch-table4.1", help="An experiment such as kanizo-fig5; /api/papers/list lists all.",
)  # fmt: skip
_SEED = Number("seed", least=0, most=2**32 - 1, default=1, whole=True, help="Of all randomness.")
_QUICK = Flag("quick", default=True, help="Fewer trials: a look, not a result.")

ENDPOINTS = [
    Endpoint("papers/list", listing, (), "The experiments, by paper."),
    Endpoint("papers/run", run, (_ID, _SEED, _QUICK), "Run an experiment.", job=True),
    Endpoint(
        "papers/figure", figure, (_ID, _SEED, _QUICK), "The figure of a run, as SVG.",
        media_type="image/svg+xml",
    ),
]  # fmt: skip

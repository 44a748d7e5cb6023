"""Run the papers' experiments and keep what the documentation's gallery shows (`make gallery`).

    experiment ──run──▶ Result ──rounded──▶ docs/gallery/<id>.json ──gallery_pages.py, at build time──▶ page

The files are committed, so that the documentation is built without running anything; each says with which
seed, when, at which commit and how long it ran. Numbers are rounded to six digits, which is more than any of
them means. An experiment that takes long may stand there from a quick run: the field `quick` says so, and
`full_seconds` what a full run takes of a core, if that is known.

    .venv/bin/python tools/make_gallery.py                     everything, about an hour of one core
    .venv/bin/python tools/make_gallery.py 'chen-table*'       some
    .venv/bin/python tools/make_gallery.py kirsch-fig3.1 --quick

Tried and dropped: `evenbins reproduce --all --json` into one file. A single experiment that changes would
then change a file of megabytes, and an interrupted run would leave nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import evenbins
from evenbins.study.papers import Context, Experiment, Result, Row, run, select
from evenbins.study.papers.registry import PAPERS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "gallery"
DIGITS = 6


def round_number(number: float | None) -> float | None:
    """Round to six significant digits.

    >>> round_number(0.12345678), round_number(None), round_number(3.0)
    (0.123457, None, 3.0)
    """
    return None if number is None else float(f"{number:.{DIGITS}g}")


def listening(experiment: Experiment, heard: list[int]) -> Experiment:
    """Return the experiment with a context that notes which numbers (of trials, queries, probes) it picks."""

    class Listening(Context):
        def pick(self, full: Any, quick: Any) -> Any:
            chosen = super().pick(full, quick)
            if isinstance(chosen, int) and chosen not in heard:
                heard.append(chosen)
            return chosen

    def rows(context: Context) -> Iterable[Row]:
        given = {each.name: getattr(context, each.name) for each in dataclasses.fields(context)}
        return experiment.rows(Listening(**given))

    return dataclasses.replace(experiment, rows=rows)


def entry(result: Result, *, repetitions: Iterable[int], threads: int, commit: str | None) -> dict[str, Any]:
    """Return what is kept of a result: `to_dict` rounded, and where it comes from."""
    kept = result.to_dict()
    for each in kept["rows"]:
        for name in ("paper", "ours", "sd"):
            each[name] = round_number(each[name])
        each["where"] = {
            key: round_number(value) if isinstance(value, float) else value
            for key, value in each["where"].items()
        }
        for name in ("paper", "sd", "note"):
            if each[name] is None:
                del each[name]
    kept["seconds"] = round_number(result.seconds)
    about = {
        "repetitions": sorted(repetitions),
        "threads": threads,
        "version": evenbins.__version__,
        "commit": commit,
        "date": datetime.now(UTC).date().isoformat(),
    }
    rows = kept.pop("rows")
    return kept | about | {"rows": rows}


def text(kept: dict[str, Any]) -> str:
    """Return the file's text: the head indented, a row a line, so that a change can be read in a diff."""
    rows = ",\n".join("  " + json.dumps(each, ensure_ascii=False) for each in kept["rows"])
    head = json.dumps({k: v for k, v in kept.items() if k != "rows"}, indent=1, ensure_ascii=False)
    return f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n'


def head_commit() -> str | None:
    """Return the commit of this checkout, shortened."""
    command = ["git", "--no-optional-locks", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def main() -> None:
    """Run what the command line names, all by default, and write each result as soon as it is there."""
    parser = argparse.ArgumentParser(
        description="Write docs/gallery: the papers' experiments as they came out."
    )
    parser.add_argument("ids", nargs="*", help="ids, papers or patterns; all by default")
    parser.add_argument("--quick", action="store_true", help="fewer trials; the page will say so")
    parser.add_argument("--threads", type=int, default=1, help="no number depends on it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--full-seconds", type=float, help="with --quick: what a full run takes of a core")
    parser.add_argument("--missing", action="store_true", help="only those that have no file from a full run")
    given = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for each in select(given.ids or PAPERS):
        path = FOLDER / f"{each.id}.json"
        before = json.loads(path.read_text()) if path.exists() else None
        if given.missing and before is not None and not before["quick"]:
            continue
        heard: list[int] = []
        result = run(listening(each, heard), seed=given.seed, quick=given.quick, threads=given.threads)
        kept = entry(result, repetitions=heard, threads=given.threads, commit=head_commit())
        if given.quick and given.full_seconds:
            kept = {"full_seconds": given.full_seconds} | kept
        path.write_text(text(kept), encoding="utf-8")
        print(f"{each.id:18} {result.seconds:8.1f} s  {len(result.rows):5} rows", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

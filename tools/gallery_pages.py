"""Pages of the gallery from docs/gallery/*.json: what docs/conf.py calls when the documentation is built.

    docs/gallery/<id>.json ──▶ docs/_generated/gallery/<id>.md, <id>.svg       one page an experiment
                           └─▶ docs/_generated/gallery_overview.md             all of them, by paper

Nothing is run here. A figure is drawn by the experiment's own plot function from the rows that were kept, so
that it shows what the table says. A page is written only if its text changes: Sphinx skips the others.

How a number of a paper and ours are compared: evenbins.study.papers.table.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evenbins.study.papers import PAPERS, Experiment, Row, experiments
from evenbins.study.papers import table as tables

LONG = 60
"""Rows beyond this number are folded away, but for those that the paper has a number for."""


def entries(folder: Path) -> dict[str, dict[str, Any]]:
    """Read what was kept, in the order of the papers."""
    return {
        id: json.loads(path.read_text(encoding="utf-8"))
        for id in experiments()
        if (path := folder / f"{id}.json").exists()
    }


def rows(entry: dict[str, Any]) -> list[Row]:
    """Return the rows of an entry as the experiment gave them, but for their rounding."""
    return [
        Row(
            each["where"], each["quantity"], each.get("paper"), each["ours"], each.get("sd"), each.get("note")
        )
        for each in entry["rows"]
    ]


def _plain(text: str) -> str:
    """Guard what Markdown would read as its own."""
    for letter in "\\`*_{}[]<>$|#~":
        text = text.replace(letter, f"\\{letter}")
    return text


def _cell(value: object) -> str:
    if isinstance(value, bool | str):
        return _plain(str(value))
    return f"{value:g}" if isinstance(value, float) else f"{value:,}"


def table(shown: Sequence[Row], notes: Sequence[str]) -> str:
    """Lay the rows out: a column for each name of `where`, the paper's number, ours, the difference."""
    keys = list(dict.fromkeys(key for each in shown for key in each.where))
    header = [*keys, "quantity", "paper", "ours", "difference", "", ""]
    lines = [
        "| " + " | ".join(_plain(each) for each in header) + " |",
        "|" + "---|" * (len(keys) + 1) + "---:|:---|---:|---|---|",
    ]
    for each in shown:
        mark = tables.verdict(each)
        apart = tables.difference(each)
        ours = f"{each.ours:.4g}" + (f" ± {each.sd:.2g}" if each.sd is not None else "")
        cells = [
            *(_cell(each.where[key]) if key in each.where else "" for key in keys),
            f"`{each.quantity}`",
            "" if each.paper is None else f"{each.paper:g}",
            ours,
            f"**{apart}**" if mark == "≠" else apart,
            mark,
            "" if each.note is None else f"({notes.index(each.note) + 1})",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _duration(seconds: float) -> str:
    if seconds >= 100:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds:.2g} seconds" if seconds >= 1 else "less than a second"


def about(entry: dict[str, Any]) -> str:
    """Describe where the numbers come from."""
    size = ", ".join(f"{each:,}" for each in entry["repetitions"])
    parts = [
        f"seed {entry['seed']}",
        *([f"repetitions {size}"] if size else ["nothing drawn at random, or a fixed number of trials"]),
        f"{_duration(entry['seconds'])} by the clock, one thread on a busy machine",
        f"version {entry['version']}, commit `{entry['commit']}`, {entry['date']}",
    ]
    text = "; ".join(parts) + "."
    if entry["quick"]:
        full = entry.get("full_seconds")
        long = f" A full run takes about {_duration(full)} of a core." if full else ""
        text = f"**A quick run, with fewer trials.**{long} {text}"
    return text


def page(entry: dict[str, Any], experiment: Experiment) -> str:
    """Return the page of an experiment."""
    all_rows = rows(entry)
    notes = list(dict.fromkeys(each.note for each in all_rows if each.note is not None))
    paper, _, place = experiment.source.partition(", ")
    command = f"evenbins reproduce {experiment.id}" + (" --quick" if entry["quick"] else "")
    parts = [
        f"# {place}: {_plain(experiment.title)}",
        f"{PAPERS[paper]}; `{experiment.id}`.",
        f"    {command} --plot {experiment.id}.svg",
        f"![{_plain(experiment.title)}]({experiment.id}.svg)",
        tables.summary(all_rows),
    ]
    printed = [each for each in all_rows if each.paper is not None]
    others = [each for each in all_rows if each.paper is None]
    if len(all_rows) <= LONG:
        parts.append(table(all_rows, notes))
    else:
        if printed:
            parts.append(table(printed, notes))
        title = f"{len(others):,}{' more' if printed else ''} rows, without a number of the paper"
        parts.append(f"<details><summary>{title}</summary>\n\n{table(others, notes)}\n\n</details>")
    parts += [f"({number}) {_plain(note)}" for number, note in enumerate(notes, 1)]
    parts.append(about(entry))
    return "\n\n".join(parts) + "\n"


def overview(kept: dict[str, dict[str, Any]]) -> str:
    """Return the list of all experiments, by paper: what agrees, what does not, how it was run."""
    parts = []
    known = experiments()
    for paper, title in PAPERS.items():
        members = [id for id in kept if id.startswith(f"{paper}-")]
        lines = [
            "| where | what | = | ≈ | ≠ | furthest | run |",
            "|---|---|---:|---:|---:|---:|---|",
        ]
        for id in members:
            compared = [each for each in rows(kept[id]) if each.paper is not None]
            counts = Counter(tables.verdict(each) for each in compared)
            worst = max(
                (each for each in compared if each.paper and tables.verdict(each) != "="),
                key=lambda each: abs(each.ours / (each.paper or 1) - 1),
                default=None,
            )
            place = known[id].source.partition(", ")[2]
            lines.append(
                f"| [{place}](_generated/gallery/{id}.md) | {_plain(known[id].title)} | "
                + " | ".join(str(counts[mark] or "") for mark in tables.VERDICTS)
                + f" | {'' if worst is None else tables.difference(worst)} | "
                + ("quick, " if kept[id]["quick"] else "")
                + f"{_duration(kept[id]['seconds'])} |"
            )
        figures = [
            f"[![{_plain(known[id].source)}](_generated/gallery/{id}.svg)](_generated/gallery/{id}.md)\n"
            f"**{known[id].source.partition(', ')[2]}.** {_plain(known[id].title)}"
            for id in members
        ]
        parts.append(f"## {title}")
        parts += ['<div class="figures">', *figures, "</div>"]
        parts += ['<div class="overview">', "\n".join(lines), "</div>"]
    return "\n\n".join(parts) + "\n"


def _update(path: Path, text: str) -> bool:
    """Write a file if its text is another; say whether it was."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.write_text(text, encoding="utf-8")
    return True


def write(kept_folder: Path, generated: Path) -> None:
    """Write all pages, their figures and the overview."""
    from evenbins.study.papers import plots

    folder = generated / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    kept = entries(kept_folder)
    known = experiments()
    for id, entry in kept.items():
        figure = folder / f"{id}.svg"
        sources = (kept_folder / f"{id}.json", Path(plots.__file__))
        if not figure.exists() or figure.stat().st_mtime < max(each.stat().st_mtime for each in sources):
            plots.save(known[id], rows(entry), figure)
        _update(folder / f"{id}.md", page(entry, known[id]))
    for path in folder.iterdir():
        if path.stem not in kept:
            path.unlink()
    _update(generated / "gallery_overview.md", overview(kept))

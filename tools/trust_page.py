"""The figures of docs/trust.md: what docs/conf.py calls when the documentation is built.

    trust/*.json, the newest of soak/*.json and fuzz/results/*.json ──▶ docs/_generated/trust_runs.md,
                                                                       trust_soak.md, trust_fuzz.md

The texts here have no numbers: these come from the files, which the commands wrote.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CPP_GOAL, PYTHON_GOAL, HTTP_GOAL = 10_000_000, 1_000_000, 100_000
READS = {
    "filters": "files of filters, kinds 1 to 5", "sketches": "files of sketches, kind 6",
    "fingerprint": "files of fingerprint filters, kind 18, and operations on them",
    "fuse": "files of fuse filters, kind 19, and building them",
    "window": "files of window filters, kind 20, and additions at any times against a map",
    "tables": "files of multilevel tables, kind 7", "chained": "files of chained tables, kind 8",
    "summaries": "files of summaries, kinds 9 to 12", "paged": "one-read tables and their journals, kind 13",
    "rings": "files of rings, kind 14", "loaders": "`from_bytes`, `load`, `open` of every class",
    "keys": "keys and arrays of every type", "arrow": "Arrow columns: offsets, lengths, nulls, schemas",
    "inputs": "the command line's readers", "traces": "logs for replays", "router": "the router's HTTP input",
    "route_parsers": "the router's key rules, heads, bodies, configuration file and changes",
    "lab": "the lab's API, from its own description",
}  # fmt: skip


def newest(folder: Path) -> dict[str, Any]:
    """Read the last of a folder's files, which are named by their day."""
    found: dict[str, Any] = json.loads(max(folder.glob("*.json")).read_text(encoding="utf-8"))
    return found


def _table(titles: list[str], rows: list[list[str]]) -> str:
    right = ["---:" if all(row[i][:1].isdigit() for row in rows) else "---" for i in range(len(titles))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [titles, right, *rows]) + "\n"


def runs(folder: Path) -> str:
    """Show every record: the command, when it ran, what it said."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return _table(
        ["command", "run", "what it printed at its end"],
        [
            [f"`{each['command']}`", f"{each['date']}, {each['commit']}, {each['seconds'] / 60:.0f} min",
             "<br>".join(line.replace("|", "\\|") for line in each["said"])]
            for each in records
        ],
    )  # fmt: skip


def soak(found: dict[str, Any]) -> str:
    """Show the soak: a row for each setting."""
    rows = []
    for setting in dict.fromkeys(each["setting"] for each in found["soaks"]):
        those = [each for each in found["soaks"] if each["setting"] == setting]
        grown = max(each["rss"][-1] - each["rss"][0] for each in those) / 2**20
        sums = (
            f"{sum(each[what] for each in those):,}" for what in ("operations", "lost", "broken", "drift")
        )
        rows.append([setting, f"{len(those)}", *sums, f"{grown:.0f} MiB"])
    titles = ["setting", "structures", "operations", "lost", "bounds broken", "drifts", "most memory gained"]
    note = f"\n{found['note'].capitalize()}.\n" if "note" in found else ""
    return _table(titles, rows) + f"\n`make soak`, {found['date'][:10]}, {found['seconds']:.0f} s.\n" + note


def fuzz(found: dict[str, Any]) -> str:
    """Show the fuzzing: a row for each target, the sums and their goals."""
    rows = []
    for each in found["targets"]:
        rows.append([
            each["target"], READS[each["target"]], each["engine"], f"{each['executions']:,}",
            f"{each['edges']:,}" if "edges" in each else "", f"{each.get('peak_rss_mb', '')}",
            "none" if not each["exit"] else f"{len(each['findings'])}",
            each.get("commit", found["commit"]),
        ])  # fmt: skip
    titles = ["target", "what it reads", "engine", "executions", "edges", "MB", "findings", "commit"]
    by = {
        engine: sum(each["executions"] for each in found["targets"] if each["engine"] == engine)
        for engine in ("libFuzzer", "atheris")
    }
    connections = sum(each.get("connections", 0) for each in found["targets"])
    sums = (
        f"In all: C++ {by['libFuzzer']:,} executions (goal {CPP_GOAL:,}), Python {by['atheris']:,} "
        f"(goal {PYTHON_GOAL:,}), HTTP {connections:,} connections to the router (goal {HTTP_GOAL:,})."
    )
    return f"{_table(titles, rows)}\n{sums}\n"


def write(generated: Path) -> None:
    """Write all three into a folder."""
    for name, text in (
        ("runs", runs(ROOT / "trust")),
        ("soak", soak(newest(ROOT / "soak"))),
        ("fuzz", fuzz(newest(ROOT / "fuzz" / "results"))),
    ):
        (generated / f"trust_{name}.md").write_text(text, encoding="utf-8")

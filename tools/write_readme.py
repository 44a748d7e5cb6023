"""Put the newest benchmarks into README.md (`make readme`); nobody types these numbers.

One table, by suite: of the cases with a target those that `HEADLINES` names, and every one that missed its
target. The page of all cases is in the documentation, made by docs/conf.py.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.harness import Report

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"(<!-- benchmark: .*? -->\n).*?(<!-- end of benchmark -->)", re.S)

HEADLINES = {
    "filters": r"^in, (hit|miss), int|^add, int|contains_many, 10M uint64, (present|absent)$|add_many, 10M|"
    r"build from|32 MiB, hits|balanced, 256 MiB, hits|2 threads, query, blocked|memory beyond",
    "counting": r".",
    "sketches": r".",
    "tables": r".",
    "paged": r"reads|one by one|10,000 present|absent",
    "rings": r"1000 nodes$|adding",
    "redis": r".",
    "cli": r".",
    "dedup": r"45 % duplicates$|different lines",
}
"""Of each suite, in this order, the cases that stand for it: a pattern of their names."""


def newest(suite: str) -> Report:
    """Read a suite's newest results."""
    path = max((ROOT / "benchmarks" / "results").glob(f"*-{suite}.json"))
    return Report.from_dict(json.loads(path.read_text()))


def rows(suite: str) -> list[str]:
    """Return the rows of a suite: its headlines, and what it missed."""
    found = []
    for cells in newest(suite).targets():
        what, target, _, measured, against, verdict = cells
        missed = verdict != "met"
        if missed or re.search(HEADLINES[suite], what):
            number = f"**{measured}**, {verdict}" if missed else measured
            found.append(f"| {what} | {target} | {number} | {against} |")
    return found


def table() -> str:
    """Return the whole table, and what it was measured on."""
    lines = ["| what | target | measured | against |", "| --- | --- | ---: | --- |"]
    for suite in HEADLINES:
        lines += [f"| **{suite}** | | | |", *rows(suite)]
    machine = newest("filters").machine
    return "\n".join([*lines, "", f"{machine['cpu']}, {machine['cores']} cores, kernel {machine['kernel']}."])


def readme_with_benchmark() -> str:
    """Return README.md with the tables of the newest results."""
    text = (ROOT / "README.md").read_text()
    return PLACE.sub(lambda place: f"{place[1]}\n{table()}\n\n{place[2]}", text)


if __name__ == "__main__":
    (ROOT / "README.md").write_text(readme_with_benchmark())

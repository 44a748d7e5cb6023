"""The benchmark page from benchmarks/results/*.json: what docs/conf.py calls when the documentation is built.

    benchmarks/results/<date>-<suite>.json ──▶ docs/_generated/benchmarks.md, benchmarks-<suite>.svg

For each suite, of its newest results: where it was measured, what was missed or is better elsewhere, a chart
against the fastest peer of each case, then the targets, then every contender. The texts here have no numbers:
these come from the files.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from pictures.canvas import FAINT, FULL, KEY, MUTED, Picture

from benchmarks.harness import Report, Result

OURS = ("evenbins", "raw limit", "1 thread", "2 threads", "4 threads", "8 threads", "16 threads")
"""Labels that begin like this are no peers."""

TITLES = {
    "filters": "Filters",
    "counting": "Counting filters",
    "fingerprint": "Fingerprint filters",
    "removable": "The fingerprint filter against Bloom filters",
    "sketches": "Sketches",
    "tables": "Tables",
    "paged": "The one-read table",
    "rings": "Rings",
    "redis": "The shared filter on Redis",
    "cli": "The command line",
    "dedup": "Deduplication",
    "cores": "Threads",
}

COMMANDS = {"paged": 'python -c "from benchmarks.paged import main_paged; main_paged()"'}


def newest(folder: Path) -> dict[str, Report]:
    """Return the newest results of each suite, in the order of the titles."""
    found = {path.stem[11:]: path for path in sorted(folder.glob("*.json"))}
    order = [*TITLES, *(suite for suite in found if suite not in TITLES)]
    return {
        suite: Report.from_dict(json.loads(found[suite].read_text())) for suite in order if suite in found
    }


def fastest_peer(result: Result) -> tuple[str, float] | None:
    """Return the best other contender of a case and its ratio to ours; None if there is none."""
    peers = {
        label: ratio
        for label, ratio in result.ratios.items()
        if ratio is not None and not label.startswith(OURS)
    }
    return min(peers.items(), key=lambda each: each[1]) if peers else None


def chart(suite: str, report: Report) -> Picture | None:
    """Draw how many times the first contender's number the best peer's is, case by case."""
    bars = [(result.name, *peer) for result in report.results if (peer := fastest_peer(result))]
    if not bars:
        return None
    high = max(4.0, *(ratio for _, _, ratio in bars))
    low = min(0.8, *(ratio for _, _, ratio in bars))
    left, right, row = 24, 540, 50
    p = Picture(
        f"benchmarks-{suite}", 640, 74 + row * len(bars) + 24, title=f"Against the best peer: {suite}",
        desc="; ".join(f"{name}: {ratio:.3g} times ({label})" for name, label, ratio in bars),
    )  # fmt: skip

    def at(ratio: float) -> float:
        return left + (math.log(ratio) - math.log(low)) / (math.log(high) - math.log(low)) * (right - left)

    p.text(24, 34, "The best peer's number over ours; log scale", size=19, bold=True)
    p.text(24, 58, "right of the line: ours is better", size=16, fill=MUTED)
    for i, (name, label, ratio) in enumerate(bars):
        y = 74 + i * row
        p.text(24, y + 18, f"{name}: {label}", size=16, fill=MUTED)
        begin, end = sorted((at(1), at(ratio)))
        p.rect(left, y + 26, right - left, 12, fill=FAINT, corner=3)
        colour = MUTED if 0.995 < ratio < 1.005 else KEY if ratio > 1 else FULL
        p.rect(begin, y + 26, max(end - begin, 2), 12, fill=colour, corner=3)
        p.line(at(1), y + 23, at(1), y + 41, stroke=MUTED, line=2)
        p.text(right + 12, y + 38, f"× {ratio:.3g}", size=17, bold=True, fill=colour)
    return p


def worse(report: Report) -> list[str]:
    """List what was missed, and where a peer did better or as well."""
    said = []
    for result in report.results:
        for target, verdict in zip(result.targets, result.verdicts, strict=True):
            if verdict is not None and not verdict.met:
                word = "missed" if verdict.met is False else "too noisy to tell"
                against = f" against {verdict.against}" if verdict.against else ""
                said.append(f"{result.name}: {target.text}: {word}, {verdict.number:.3g}{against}.")
        unit = "time" if result.unit == "ns" else result.unit
        first = next(iter(result.best))
        alike: dict[str, list[str]] = {}
        for label, ratio in result.ratios.items():
            if ratio is not None and not label.startswith(OURS) and ratio < 1.05:
                word = "less" if ratio < 0.995 else "as much" if ratio < 1.005 else "hardly more"
                alike.setdefault(f"{word} ({ratio:.2f} of the {unit} of {first})", []).append(label)
        for words, labels in alike.items():
            said.append(
                f"{result.name}: {', '.join(labels)} {'needs' if len(labels) == 1 else 'need'} {words}."
            )
    return said


def steadiness(report: Report) -> str:
    """Return how much the rounds of a suite differ."""
    spreads = [
        spread for result in report.results for spread in result.spreads.values() if spread is not None
    ]
    middle = statistics.median(spreads)
    before, after = report.machine["load_average"], report.machine["load_average_after"]
    busy = max(before, after) > 1.5 * report.machine["cores"]
    return (
        f"The median round is within {middle:.2f} times the best for half of the contenders, "
        f"at worst {max(spreads):.2f} times; the load of the machine ({report.machine['cores']} cores) was "
        f"{before:.1f} before and {after:.1f} after"
        + (
            ": others were at work, so that times are too long, and ratios less sure than the digits say."
            if busy
            else "."
        )
    )


def section(suite: str, report: Report, *, image: bool) -> str:
    """Return a suite's part of the page."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    machine = report.machine
    memory = f", {machine['memory_bytes'] / 2**30:.0f} GiB" if machine.get("memory_bytes") else ""
    commit = f"`{report.commit[:12]}`" if report.commit else "unknown"
    if report.commit and report.commit.endswith("+"):
        commit += " with changes"
    command = COMMANDS.get(suite, f"python -m benchmarks {suite}")
    facts = [
        ("machine", f"{machine['cpu']}, {machine['cores']} cores{memory}, {machine.get('system', '')}"),
        ("kernel, huge pages", f"{machine['kernel']}, {machine.get('huge_pages') or 'unknown'}"),
        ("date, commit", f"{report.date}, {commit}"),
        ("versions", versions),
        ("rounds", f"best of at least {report.rounds}" + (", quick: small sizes" if report.quick else "")),
    ]
    parts = [f"## {TITLES.get(suite, suite.capitalize())}", f"    {command}"]
    parts.append("| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in facts))
    said = worse(report)
    parts.append(
        "**What is missed, or not better than elsewhere.** "
        + ("\n\n" + "\n".join(f"- {each}" for each in said) if said else "Nothing in this suite.")
    )
    if image:
        parts.append(f"![Against the best peer, {suite}](_generated/benchmarks-{suite}.svg)")
    parts.append(steadiness(report))
    targets, *rest = report.to_markdown().split("**Contenders**")
    if "**Targets**" in targets:
        parts.append(targets.strip())
    if rest:
        body = rest[0].strip().rsplit("\n\n", 1)[0]  # without the caption, which stands above
        parts.append(f"<details><summary>All contenders</summary>\n\n{body}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def write(results: Path, generated: Path) -> None:
    """Write the page's body and its charts."""
    parts = []
    for suite, report in newest(results).items():
        drawn = chart(suite, report)
        if drawn is not None:
            (generated / f"{drawn.name}.svg").write_text(drawn.svg(), encoding="utf-8")
        parts.append(section(suite, report, image=drawn is not None))
    (generated / "benchmarks.md").write_text("\n".join(parts) or "No results yet: run `make bench`.\n")

"""Put six numbers of the newest benchmarks into README.md (`make readme`); nobody types them.

Five come from benchmarks/results, one from the table of docs/gpu.md. All cases, with targets and contenders,
are on the page *Benchmarks* of the documentation (tools/benchmark_page.py).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.harness import Report, Result

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"(<!-- benchmark: .*? -->\n).*?(<!-- end of benchmark -->)", re.S)
SUITES = ("dedup", "cli", "removable")


def newest(suite: str) -> Report:
    """Read a suite's newest results."""
    path = max((ROOT / "benchmarks" / "results").glob(f"*-{suite}.json"))
    return Report.from_dict(json.loads(path.read_text()))


def case(report: Report, pattern: str) -> Result:
    """Return the one case of a report whose name matches."""
    (found,) = [each for each in report.results if re.search(pattern, each.name)]
    return found


def times(result: Result, unit: str, ours: str, *peers: str) -> str:
    """Return two cells: our number, and those of others with their ratios to ours."""
    others = (f"`{peer}` {result.best[peer]:,.3g} {unit} (× {result.ratios[peer]:.2g})" for peer in peers)
    return f"**{result.best[ours]:.3g} {unit}** | {', '.join(others)}"


def ratios(result: Result, *peers: str) -> str:
    """Return two cells, of ratios alone: on a busy machine the times themselves are too long."""
    return "**1** | " + ", ".join(f"`{peer}` {result.ratios[peer]:.2g} ×" for peer in peers)


def table() -> str:
    """Return the table, and where its numbers come from."""
    dedup, cli, removable = (newest(suite) for suite in SUITES)
    name, *peers = case(removable, "^look-up, present").best
    bits = {label: facts["bits/key"] for label, facts in case(removable, "^add").facts.items()}
    gpu = re.search(
        r"\| query, blocked, 4 GiB: hits, misses \|[^|]*\| ([\d.]+),", (ROOT / "docs/gpu.md").read_text()
    )
    assert gpu is not None, "docs/gpu.md has no row for queries of 4 GiB"
    lines = [
        "| | evenbins | others |",
        "| --- | --- | --- |",
        "| dedup of 20M lines | "
        + times(case(dedup, "duplicates$"), "s", "evenbins dedup", "sort -u")
        + " |",
        "| 10M lines in a list of 1M | "
        + times(case(cli, "half in a list"), "s", "evenbins query", "grep -F -x -f")
        + " |",
        f"| bits per key at 1e-3, `FingerprintFilter` | **{bits[name]:.1f}** | "
        + ", ".join(f"`{peer}` {bits[peer]:.1f}" for peer in peers)
        + ", which cannot remove keys |",
        f"| time of 10M look-ups in it | {ratios(case(removable, '^look-up, pre'), *peers)} |",
        f"| of 10M additions | {ratios(case(removable, '^add'), *peers)} |",
        f"| look-ups in 4 GiB on an H200 GPU | **{float(gpu[1]):.0f} billion per second** | "
        "[as fast as its memory](docs/gpu.md#measured) |",
    ]
    machine = newest("dedup").machine
    commands = ", ".join(f"`python -m benchmarks {each}` ({_when(newest(each))})" for each in SUITES)
    return "\n".join(
        [*lines, "", f"{machine['cpu']}, {machine['cores']} cores: {commands}; `make bench-gpu`."]
    )


def _when(report: Report) -> str:
    """Return the date, and whether others were at work on the machine."""
    busy = report.machine["load_average"] > 1.5 * report.machine["cores"]
    return report.date[:10] + (", busy" if busy else "")


def readme_with_benchmark() -> str:
    """Return README.md with the numbers of the newest results."""
    text = (ROOT / "README.md").read_text()
    return PLACE.sub(lambda place: f"{place[1]}\n{table()}\n\n{place[2]}", text)


if __name__ == "__main__":
    (ROOT / "README.md").write_text(readme_with_benchmark())

"""Put the newest benchmarks' tables into README.md (`make readme`); nobody types these numbers.

For each suite the targets, then what has none.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from evenbins.bench.harness import Report

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"(<!-- benchmark (\w+): .*? -->\n).*?(<!-- end of benchmark -->)", re.S)


def tables(suite: str) -> str:
    """Give the tables of a suite's newest results."""
    newest = max((ROOT / "benchmarks" / "results").glob(f"*-{suite}.json"))
    return Report.from_dict(json.loads(newest.read_text())).to_markdown(details=False)


def readme_with_benchmark() -> str:
    """Give README.md with the tables of the newest results."""
    text = (ROOT / "README.md").read_text()
    return PLACE.sub(lambda place: f"{place[1]}\n{tables(place[2])}\n{place[3]}", text)


if __name__ == "__main__":
    (ROOT / "README.md").write_text(readme_with_benchmark())

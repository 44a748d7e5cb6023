"""Which assumptions of the synthetic trace matter to chen's cache tables: the table of docs/cache_replay.md.

    python tools/cache_assumptions.py [--repeat 4] [--threads 2]        about four minutes

One assumption is changed at a time. A cell has the additional misses of clockwise and of jump, means over the
placements of the servers.
"""

from __future__ import annotations

import argparse
from typing import Any

from evenbins.study.simulate import CONFIGURATIONS, replay_cache
from evenbins.study.traces import SYNTHETIC, synthetic_trace

AOL: list[dict[str, Any]] = [
    {}, {"copies": 7}, {"exponent": 0.6}, {"exponent": 1.0}, {"exponent": 1.2}, {"swing": 0.0},
    {"swing": 0.3}, {"swing": 0.9}, {"bursts": 0.3}, {"bursts": 0.6},
]  # fmt: skip
INDIANA: list[dict[str, Any]] = [
    {}, {"copies": 7}, {"exponent": 0.6}, {"exponent": 1.0}, {"exponent": 1.2}, {"bursts": 0.6},
    {"minutes": 12}, {"minutes": 48}, {"minutes": 1440},
]  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    for name, changes in (("aol", AOL), ("indiana", INDIANA)):
        print(f"\n| {name} | 1 | 2 | 3 | 4 |\n|---|---|---|---|---|")
        for change in changes:
            arguments = dict(change)
            copies = arguments.pop("copies", 1)
            trace = synthetic_trace(**(SYNTHETIC[name] | arguments), seed=1)
            cells = []
            for number in range(1, 5):
                report = replay_cache(
                    trace, **CONFIGURATIONS[f"{name}-{number}"].to_dict(), copies=copies, seed=1,
                    repeat=given.repeat, threads=given.threads,
                )  # fmt: skip
                clockwise, jump = (report.mean(policy, "additional") for policy in ("clockwise", "jump"))
                cells.append(f"{clockwise:.0f} : {jump:.0f}")
            label = ", ".join(f"{key} {value}" for key, value in change.items()) or "as it is"
            print(f"| {label} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

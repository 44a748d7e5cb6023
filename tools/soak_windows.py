"""Window filters against an exact oracle: 10**9 operations with restarts and jumps of the clock.

    python tools/soak_windows.py                             10^9 operations
    python tools/soak_windows.py --operations 1e7 --seed 7   fewer, and others

Filters of a few thousand to a million keys, windows of time and of additions, 1 to 100 steps, one after the
other. Every answer is compared (soaks/windows.py). The last line is JSON: operations, what was lost, broken
or drifted, restarts and jumps, the most reads, seconds. The exit status is 1 if anything was.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter

import click
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from soaks.windows import WindowSoak

CASES = [
    (100_000, 1e-3, 8, False, 20_000), (100_000, 1e-3, 8, True, 20_000), (1_000_000, 1e-4, 8, False, 20_000),
    (3_000, 1e-6, 8, False, 20_000), (50_000, 1e-2, 1, False, 20_000), (50_000, 1e-6, 3, True, 20_000),
    (200_000, 1e-3, 30, False, 20_000), (100_000, 1e-2, 100, True, 20_000), (200_000, 1e-3, 8, False, 20),
]  # fmt: skip
"""Keys of a window, rate, steps, whether the window counts additions, and keys added at once, at most.

In the last one so few keys come that steps sweep, not additions.
"""
_AUDITS = 10


@click.command()
@click.option("--operations", default=1e9, help="Keys added or asked, all filters together.")
@click.option("--seed", default=1, help="The same seed, the same operations.")
def soak(operations: float, seed: int) -> None:
    """Run all cases."""
    begun = time.perf_counter()
    total = {"operations": 0, "lost": 0, "broken": 0, "drift": 0}
    done: Counter[str] = Counter()
    said: list[str] = []
    reads = 1.0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("", total=int(operations))
        for number, (keys, fpr, steps, counted, batch) in enumerate(CASES):
            what = "additions" if counted else "time"
            progress.update(task, description=f"{keys} keys, {fpr:g}, {steps} steps of {what}")
            rng = np.random.default_rng([seed, number])
            made = WindowSoak(rng, keys, fpr, steps, counted=counted, batch=batch)
            ours = 0
            for audit in range(1, _AUDITS + 1):
                while ours < operations / len(CASES) * audit / _AUDITS:
                    count = made.step()
                    ours += count
                    progress.advance(task, count)
                made.audit()
            total["operations"] += ours
            for name in ("lost", "broken", "drift"):
                total[name] += getattr(made, name)
            done += made.done
            said += made.said
            reads = max(reads, made.reads)
    failed = bool(total["lost"] or total["broken"] or total["drift"])
    report = {
        **total, **done, "reads": round(reads, 4), "seed": seed, "said": said, "fine": not failed,
        "seconds": round(time.perf_counter() - begun, 1),
    }  # fmt: skip
    print(json.dumps(report))
    sys.exit(int(failed))


if __name__ == "__main__":
    soak()

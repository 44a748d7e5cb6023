"""Look for a lost key in a table: endless deletions and insertions, beside a dict that knows the truth.

    python tools/soak_tables.py                    20 million replacements among a million keys, load 0.95
    python tools/soak_tables.py --keys 1e5 --replacements 1e6 --scheme second-chance

A replacement deletes a random key and inserts a new one, singly. After each thousand the table's counters say
how many insertions moved a key; sampled look-ups must read `levels` buckets at most. At the end all keys
and values are compared with the dict's, and every invariant of the table is checked.
"""

from __future__ import annotations

import sys
import time

import click
import numpy as np
from rich.console import Console
from rich.progress import track

from evenbins import MultilevelTable
from evenbins.tables.multilevel_plan import SCHEMES

_BATCH = 1000


@click.command()
@click.option("--keys", type=float, default=1e6, show_default=True)
@click.option("--replacements", type=float, default=20e6, show_default=True)
@click.option("--scheme", type=click.Choice(SCHEMES), default="least-loaded", show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def main(keys: float, replacements: float, scheme: str, seed: int) -> None:
    """Replace keys, and look for one that is lost."""
    size, steps = int(keys), int(replacements)
    table = MultilevelTable(size, scheme=scheme, deletions=scheme != "least-loaded", seed=seed)
    levels = table.plan.levels
    rng = np.random.default_rng(seed)
    truth = {key: key ^ 0x5555 for key in range(size)}
    live = list(truth)
    table.insert_many(live, list(truth.values()))
    fresh, listed, worst_list, most_reads, most_moves = size, 0, 0, 0, 0.0
    begun = time.perf_counter()
    console = Console(stderr=True)
    for step in track(range(steps // _BATCH), "replacing", console=console, disable=not sys.stderr.isatty()):
        before = table._state()
        for one in rng.integers(0, size, _BATCH).tolist():
            old = live[one]
            del table[old]
            del truth[old]
            live[one] = fresh
            table[fresh] = truth[fresh] = fresh ^ 0x5555
            fresh += 1
        after = table._state()
        most_moves = max(most_moves, (after[1] - before[1]) / _BATCH)
        listed += after[6]
        worst_list = max(worst_list, after[6])
        if step % 100 == 0:
            most_reads = max(most_reads, *(table.probe(key)[1] for key in live[:100]))
    seconds = time.perf_counter() - begun
    table._check()
    lost = sum(1 for key, value in truth.items() if table.get(key) != value)
    extra = len(table) - len(truth)
    overflow = listed / (steps // _BATCH) / size
    print(
        f"{scheme}: {size:_} keys, load {1 / table.plan.space:.3f}, {steps:_} replacements in {seconds:.0f} s"
    )
    print(f"  lost keys or values          {lost} (and {extra} too many)")
    print(f"  overflow, mean               {overflow:.2e}")
    print(f"  list, longest; its limit     {worst_list}; {table.plan.overflow_limit}")
    print(f"  buckets read, most           {most_reads} of {levels} allowed")
    print(f"  moves of an insertion, mean  {most_moves:.3f} at most in a thousand; 1 allowed")
    sys.exit(bool(lost or extra or most_reads > levels or most_moves > 1))


if __name__ == "__main__":
    main()

"""Measure the scheme "least-loaded" and write what `theory.least_loaded` predicts by.

    python tools/make_least_loaded.py    writes src/evenbins/theory/least_loaded.json (minutes)

For each number of levels and slots, with equal levels:

    filled    tables of 2**20 slots, filled from empty; what they are like at each load on the way
    churned   tables of 2**15 buckets at each load, after 16 replacements of every key
              and during 8 more:
              a random key is deleted, a new one inserted, and so on (the thesis' first model)

A number is kept where at least 30 keys overflowed in all tables together; the first of `churned` may be an
upper bound. The tables are real ones, built by this library: the scheme has no equations of its own
(`theory.fluid` has those of the thesis' schemes).
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from evenbins import _core
from evenbins.tables import MultilevelTable

PLACE = Path(__file__).parents[1] / "src" / "evenbins" / "theory" / "least_loaded.json"
DESIGNS = [(levels, slots) for levels in (2, 3, 4) for slots in (1, 2, 4, 8)]
LOADS = np.round(np.arange(0.10, 1.205, 0.01), 2)
RUNS, FILLED, CHURNED = 64, 2**20, 2**14  # the last times 2 * slots
SETTLE, WATCH = 16, 8
ENOUGH = 30


def table(levels: int, slots: int, total: int, seed: int) -> MultilevelTable:
    """Make a table of equal levels with a list that never overruns."""
    core = [5, slots, 2, 1, 1, 2 * total, *[total // (levels * slots)] * levels]
    made = MultilevelTable.__new__(MultilevelTable)
    _core.Table.__init__(made, total, seed, core)  # without a plan, which would need what is made here
    return made


def measure(made: MultilevelTable) -> list[float]:
    """Return the keys on the list, the insertions that moved one, and the fill of each level."""
    stats, state = made.stats(), made._state()
    return [stats.overflow_used, state[1], *stats.fills]


def fill(levels: int, slots: int) -> dict[str, Any]:
    """Fill tables from empty."""
    seen = np.zeros((RUNS, len(LOADS), 2 + levels))
    for run in range(RUNS):
        made = table(levels, slots, FILLED, seed=run + 1)
        size, last = sum(made._core[6:]) * slots, 0
        for i, load in enumerate(LOADS):
            keys = round(load * size)
            made.insert_many(np.arange(last, keys, dtype=np.uint64), 0, assume_unique=True)
            seen[run, i], last = measure(made), keys
    keys = np.round(LOADS * size)
    listed = seen[:, :, 0]
    kept = np.flatnonzero(listed.sum(axis=0) >= ENOUGH)
    small = [i for i in kept if listed[:, i].mean() < 0.05 * keys[i]]
    ratios = listed[:, small].var(axis=0, ddof=1) / listed[:, small].mean(axis=0)
    mean = seen.mean(axis=0)
    return {
        "load": LOADS[kept].tolist(),
        "overflow": round_all(mean[kept, 0] / keys[kept]),
        "moves": round_all(mean[kept, 1] / keys[kept]),
        "fills": [round_all(row) for row in mean[kept, 2:]],
        "dispersion": float(f"{np.mean(ratios):.3f}") if small else None,
    }


def churn(levels: int, slots: int, most: float) -> dict[str, Any]:
    """Replace keys for ever, at loads up to `most` and down to where nothing overflows."""
    rows = []
    for load in LOADS[most >= LOADS][:: {1: -4, 2: -4, 4: -2, 8: -1}[slots]]:
        rng = np.random.default_rng(7)
        made = table(levels, slots, 2 * slots * CHURNED, seed=99)
        keys = round(load * sum(made._core[6:]) * slots)
        live = list(range(keys))
        made.insert_many(live, 0)
        seen, fresh = [], keys
        for replacement in range(SETTLE + WATCH):
            if replacement == SETTLE:
                moved = made._state()[1]
            for step, one in enumerate(rng.integers(0, keys, keys).tolist()):
                del made[live[one]]
                live[one] = fresh
                made[fresh] = 0
                fresh += 1
                if replacement >= SETTLE and step % 64 == 0:
                    seen.append(measure(made))
        mean = np.mean(seen, axis=0)
        least = ENOUGH / 4 / WATCH  # lists of a replacement apart are independent
        if mean[0] < least and rows and least / keys >= rows[-1][1]:
            break
        moves = (made._state()[1] - moved) / (WATCH * keys)
        rows.append((float(load), max(mean[0], least) / keys, moves, round_all(mean[2:])))
        if mean[0] < least:  # too few to measure: this last number is a bound
            break
    load, overflow, moves, fills = zip(*rows[::-1], strict=True)
    return {"load": load, "overflow": round_all(overflow), "moves": round_all(moves), "fills": fills}


def round_all(values: Any) -> list[float]:
    """Keep four digits."""
    return [float(f"{each:.4g}") for each in values]


def design(which: tuple[int, int]) -> tuple[str, dict[str, Any]]:
    """Measure one design."""
    full = fill(*which)
    most = max(load for load, w in zip(full["load"], full["overflow"], strict=True) if w < 0.1)
    return "{}x{}".format(*which), {"filled": full, "churned": churn(*which, min(most, 1.0))}


if __name__ == "__main__":
    found = {}
    with ProcessPoolExecutor() as pool:
        for name, data in pool.map(design, DESIGNS):
            found[name] = data
            print(name, file=sys.stderr)
    lines = [f'"{name}": {json.dumps(data)}' for name, data in found.items()]
    PLACE.write_text("{\n" + ",\n".join(lines) + "\n}\n")

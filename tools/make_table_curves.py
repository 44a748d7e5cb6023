"""Write src/evenbins/study/lab/table_curves.json: the least space of every scheme for each overflow.

    python tools/make_table_curves.py            all of them (some minutes); keeps what the file has
    python tools/make_table_curves.py --anew     from nothing

The lab's page Tables shows all schemes together and at once. Each point is `theory.optimise.space`, from some
hundredths of a second (standard, one slot) to minutes (second chance, eight slots, six levels). So 73 curves
of eight points are computed here, once, and kept with six digits; two are left out. Least-loaded has curves
of its own (theory/least_loaded.json). tests/lab/test_lab_tables.py computes some points anew.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from evenbins.tables.multilevel_plan import predictable
from evenbins.theory import optimise

PATH = Path(__file__).parents[1] / "src" / "evenbins" / "lab" / "table_curves.json"
OVERFLOWS = (0.1, 0.03, 0.01, 0.003, 0.001, 1e-4, 1e-5, 1e-6)
TYPICAL = 0.01  # the overflow whose shares are kept, for the small tables of the page
SCHEMES = ("standard", "conservative", "second-chance", "extreme-second-chance")
SLOW = {("second-chance", 5, 8), ("second-chance", 6, 8)}  # a quarter of an hour each
COST = {"standard": 1, "conservative": 1, "second-chance": 3, "extreme-second-chance": 6}


def main() -> None:
    """Compute what is missing, the quick ones first; the file is written after each curve."""
    found: dict[str, dict[str, Any]] = {}
    if PATH.exists() and "--anew" not in sys.argv:
        found = json.loads(PATH.read_text())["curves"]
    wanted = [
        (scheme, levels, slots, deletions)
        for scheme in SCHEMES
        for levels in range(2, 7)
        for slots in (1, 2, 4, 8)
        for deletions in (False, True)
        if predictable(scheme, slots, deletions) and (scheme, levels, slots) not in SLOW
    ]
    for scheme, levels, slots, deletions in sorted(wanted, key=lambda w: COST[w[0]] * w[1] ** 2 * w[2]):
        name = f"{scheme} {levels}x{slots}" + (" deletions" if deletions else "")
        if name in found:
            continue
        start = time.monotonic()
        points = [_point(scheme, levels, slots, deletions, overflow) for overflow in OVERFLOWS]
        found[name] = {
            "space": [None if p is None else p[0] for p in points],
            "moves": [None if p is None else p[1] for p in points],
            "shares": next(p[2] for o, p in zip(OVERFLOWS, points, strict=True) if o <= TYPICAL and p),
        }
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(found[key])}" for key in sorted(found))
        PATH.write_text(f'{{"overflow": {json.dumps(OVERFLOWS)}, "curves": {{\n{lines}\n}}}}\n')
        print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)


def _point(
    scheme: str, levels: int, slots: int, deletions: bool, overflow: float
) -> tuple[float, float, list[float]] | None:
    try:
        best = optimise.space(scheme, levels, overflow, slots, deletions=deletions)
    except ValueError as error:
        print(f"{scheme} {levels}x{slots} {overflow}: {error}", flush=True)
        return None
    return float(f"{best.space:.6g}"), float(f"{best.moves:.4g}"), [float(f"{s:.4g}") for s in best.shares]


if __name__ == "__main__":
    main()

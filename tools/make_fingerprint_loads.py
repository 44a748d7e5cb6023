"""Compute theory/fingerprint_loads.json: the largest load of each shape of a fingerprint filter.

    python tools/make_fingerprint_loads.py

A row is remainder, quotients, and the load (keys per line of level 1) for groups of 1 to 16 lines, in the
limit of many keys; theory/fingerprint_design.py says which limits it keeps.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from evenbins.theory import fingerprint
from evenbins.theory.fingerprint_design import HEADROOM, MISS_READS, READS, REST_SHARE, shapes

MANY = 1 << 32  # lines
STEP = 1e-3  # of a load
TARGET = Path(__file__).parents[1] / "src" / "evenbins" / "theory" / "fingerprint_loads.json"


def fits(load: float, remainder: int, quotients: int, group: int) -> bool:
    """Return whether a filter of many keys keeps the limits at this load."""
    lines = MANY // (16 * group) * 16 * group
    s = fingerprint.slots(remainder, quotients)
    first = fingerprint.level_one(load * lines, lines, s, quotients)
    if 1.0 + first.keys > READS or 1.0 + first.misses > MISS_READS:
        return False
    found = fingerprint.law(load * lines, lines, remainder, quotients, group)
    if found.reads > READS or found.miss_reads > MISS_READS:
        return False
    full = fingerprint.law(HEADROOM * load * lines, lines, remainder, quotients, group)
    return full.rest <= REST_SHARE * load * lines


def largest_load(remainder: int, quotients: int, group: int, most: float) -> float:
    """Return the largest load up to `most`, rounded down to a thousandth."""
    low, high = 0.5 * fingerprint.slots(remainder, quotients), most
    if fits(high, remainder, quotients, group):
        return high
    while high - low > STEP / 2:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle, remainder, quotients, group) else (low, middle)
    return math.floor(low / STEP) * STEP


def rows() -> list[str]:
    """Return the lines of the file."""
    found = []
    for remainder, quotients in shapes():
        most = 1.2 * fingerprint.slots(remainder, quotients)
        loads = []
        for group in range(1, 17):  # a larger group never allows a larger load
            most = largest_load(remainder, quotients, group, most)
            loads.append(round(most, 3))
        found.append(json.dumps([remainder, quotients, *loads]))
    return found


if __name__ == "__main__":
    TARGET.write_text("[\n" + ",\n".join(rows()) + "\n]\n")

"""What the levels of a filter of fingerprints hold, and what a look-up reads: measured, for `stats()`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins import _core
from evenbins.theory.fingerprint import slots
from evenbins.theory.fingerprint_design import Shape

__all__ = ["Rows", "level_rows", "measured_levels"]


Rows = list[
    npt.NDArray[np.int64]
]  # of each level: fingerprints in a line, runs that are not, lines with both


def level_rows(filter_: _core.Filter) -> Rows:
    """Count the lines of each level by what they hold."""
    return [np.array(filter_._level_histogram(level), dtype=np.int64).reshape(-1, 3) for level in range(3)]


def measured_levels(rows: Rows, in_rest: int, shape: Shape) -> tuple[int, dict[str, Any]]:
    """Return the number of fingerprints, and `reads`, `miss_reads`, `fill`, `shares`, `overflow`, `loads`.

    The share of absent keys that read a third line is derived from the keys on level 3: as many runs per key
    as all that left level 1.
    """
    held = [int(row[:, 0] @ row[:, 2]) for row in rows]
    total = sum(held) + in_rest  # counted as well, but others may add between the two counts
    below, last = total - held[0], total - held[0] - held[1]
    runs = int(rows[0][:, 1] @ rows[0][:, 2])  # of level 1 that are elsewhere
    keys = max(total, 1)
    missed = runs * (1.0 + last / max(below, 1)) / (shape.lines * shape.quotients)
    return total, {
        "reads": 1.0 + (below + last + in_rest) / keys,
        "miss_reads": 1.0 + missed,
        "fill": held[0] / (shape.lines * slots(shape.remainder, shape.quotients)),
        "shares": (*(each / keys for each in held), in_rest / keys) if total else (1.0, 0.0, 0.0, 0.0),
        "overflow": in_rest / keys,
        "loads": tuple(tuple(np.bincount(row[:, 0], row[:, 2]).astype(int).tolist()) for row in rows),
    }

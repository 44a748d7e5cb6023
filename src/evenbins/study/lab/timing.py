"""Nanoseconds of look-ups on this machine, which stand beside the predicted reads."""

from __future__ import annotations

import math
import time
from typing import Any

__all__ = ["lookup_ns"]

_ROUNDS = 7


def lookup_ns(structure: Any, keys: Any) -> float:
    """Return the nanoseconds per key of a bulk look-up by one thread, the best of seven."""
    best = math.inf
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        structure.contains_many(keys, threads=1)
        best = min(best, time.perf_counter() - began)
    return 1e9 * best / len(keys)

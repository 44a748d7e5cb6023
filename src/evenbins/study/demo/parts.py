"""Parts of the demo's steps: tables, intervals, speeds."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from rich.table import Table

from evenbins.cluster.libraries import library

__all__ = ["binomial_interval", "million_keys_a_second", "plain_table"]

_MISSES_OF_INTERVAL = 1e-6


def plain_table(*names: str) -> Table:
    """Return an empty table: the first column to the left, the others to the right."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for position, name in enumerate(names):
        table.add_column(name, justify="right" if position else "left", no_wrap=True)
    return table


def binomial_interval(hits: int, trials: int) -> tuple[float, float]:
    """Return the exact interval of a probability from `hits` of `trials`."""
    special = library("scipy.special", "theory")

    tail = _MISSES_OF_INTERVAL / 2
    low = float(special.betaincinv(hits, trials - hits + 1, tail)) if hits else 0.0
    high = float(special.betaincinv(hits + 1, trials - hits, 1 - tail)) if hits < trials else 1.0
    return low, high


def million_keys_a_second(call: Callable[..., object], keys: npt.NDArray[np.uint64], threads: int) -> float:
    """Time one bulk call."""
    begun = time.perf_counter()
    call(keys, threads=threads)
    return len(keys) / (time.perf_counter() - begun) / 1e6

"""The page Dedup: what a deduplication takes, for so many keys, an error rate and the memory there is.

    dedup/sizes    each way to remember keys: bytes, new rows that are expected to be dropped, whether it fits
    dedup/curves   bytes over keys of each
    dedup/time     real rows through a real `Deduplicator` (a job): nanoseconds per row on this machine

Sizes and errors are the predictions of `deduplication.stages` and `digests`; this module only asks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from evenbins import Deduplicator
from evenbins._show import size
from evenbins.deduplication.digests import predicted_sets
from evenbins.deduplication.stages import predicted_stages
from evenbins.study.lab.parameters import Choice, Endpoint, Number

__all__ = ["ENDPOINTS", "curves", "measure", "sizes"]

DESIGNS = {
    "filter": "a filter for a known number of keys",
    "growing": "filters that grow, for a pipe",
    "exact": "128 bits of every key, exact",
    "disk": "parts on disk, exact",
}
IN_MEMORY = ("filter", "growing", "exact")
DISK_BYTES = 17
"""Per row on disk: a digest and a byte, as `evenbins dedup` writes them."""

_OWN_BYTES = 48 << 20  # of --memory, for rows
_POWERS = {"filter": (4, 6, 8, 9, 10, 12), "growing": tuple(range(4, 11)), "exact": (4, 8, 12)}
_MOST_BYTES = 1 << 28  # of a Deduplicator that is timed
_ROWS = 1 << 19  # that are timed
_BATCH = 1 << 16

Progress = Callable[[int, int], None]


@lru_cache(maxsize=512)
def _predicted(design: str, keys: int, fpr: float) -> tuple[int, float] | str:
    """Return bytes and expected errors, or why there is no such design."""
    try:
        if design == "exact":
            return predicted_sets(keys)
        return predicted_stages(fpr, keys if design == "filter" else None, keys)
    except ValueError as error:
        return str(error)


def sizes(*, keys: int, rows: int | None, fpr: float, memory: int, design: str) -> dict[str, Any]:
    """Return every design with its memory and expected errors, the chosen one, and how to run it."""
    rows = 2 * keys if rows is None else rows
    if rows < keys:
        raise ValueError(f"rows must be at least as many as keys ({keys}), not {rows}: every key has a row")
    found = []
    for name, title in DESIGNS.items():
        entry: dict[str, Any] = {"name": name, "title": title, "problem": None}
        if name == "disk":
            wrong = predicted_sets(keys)[1]
            entry |= {"nbytes": memory, "disk": DISK_BYTES * rows, "wrong": wrong, "fits": True}
            entry |= {"bytes_per_key": None, "most_keys": None}
        elif isinstance(predicted := _predicted(name, keys, fpr), str):
            entry |= {"problem": predicted, "fits": False}
        else:
            nbytes, wrong = predicted
            room = max(0, memory - _OWN_BYTES)
            entry |= {
                "nbytes": nbytes, "disk": 0, "wrong": wrong, "fits": nbytes <= room,
                "bytes_per_key": nbytes / keys, "most_keys": math.floor(room * keys / nbytes),
            }  # fmt: skip
        found.append(entry)
    fitting = [each["name"] for each in found if each["fits"]]
    chosen = fitting[0] if design == "best" else design
    return {
        "designs": found,
        "chosen": chosen,
        "rows": rows,
        "at_most": fpr * keys,
        "own_bytes": _OWN_BYTES,
        "python": as_python(chosen, keys, fpr),
        "command": as_command(chosen, keys, fpr, memory),
    }


def as_python(design: str, keys: int, fpr: float) -> str:
    """Write the program that deduplicates batches in memory; empty for what only the command does."""
    if design == "disk":
        return ""
    options = [] if design == "growing" else [f"capacity={keys:_}"]
    options.append("exact=True" if design == "exact" else f"fpr={fpr!r}")
    return (
        "from evenbins import Deduplicator\n\n"
        f"seen = Deduplicator({', '.join(options)})\n"
        'for batch in [["a", "b", "a"], ["b", "c"]]:  # lists, NumPy arrays, Arrow columns\n'
        "    print(seen.keep(batch))\n"
        "print(seen.stats())\n"
    )


def as_command(design: str, keys: int, fpr: float, memory: int) -> str:
    """Write the command that deduplicates a file."""
    options = {
        "filter": f"--capacity {keys} --fpr {fpr!r}", "growing": f"--fpr {fpr!r}",
        "exact": f"--exact --capacity {keys}", "disk": f"--memory {memory >> 20}M",
    }[design]  # fmt: skip
    if design == "growing":
        return f"cat rows.jsonl | evenbins dedup --format jsonl {options} > first.jsonl"
    return f"evenbins dedup rows.jsonl -o first.jsonl {options}"


def curves(*, fpr: float) -> dict[str, Any]:
    """Return the bytes of each design in memory over the number of keys."""
    points: dict[str, list[tuple[int, int]]] = {name: [] for name in IN_MEMORY}
    for name, found in points.items():
        for power in _POWERS[name]:  # on log scales the others lie on straight lines
            predicted = _predicted(name, 10**power, fpr)
            if not isinstance(predicted, str):
                found.append((10**power, predicted[0]))
    return {"curves": points}


def measure(*, keys: int, fpr: float, design: str, progress: Progress) -> dict[str, Any]:
    """Time new and repeated rows in a real Deduplicator.

    It is as large as asked for, up to 256 MiB, and has some rows already; one thread, integer keys.
    """
    predicted = _predicted(design, keys, fpr)
    if isinstance(predicted, str):
        raise ValueError(predicted)
    planned = max(1, min(keys, math.floor(keys * _MOST_BYTES / predicted[0])))
    rows = max(1, min(_ROWS, planned // 2))
    seen = Deduplicator(
        exact=design == "exact", fpr=fpr, capacity=None if design == "growing" else planned
    )  # fmt: skip
    batches = [np.arange(start, min(start + _BATCH, 2 * rows)) for start in range(0, 2 * rows, _BATCH)]
    half = len(batches) // 2
    timed = sum(map(len, batches[half:]))
    runs = [batches[:half], batches[half:], batches[half:]]  # memory that was never used costs more at first
    seconds, done, total = [], 0, sum(map(len, runs))
    for run in runs:
        spent = 0.0
        for batch in run:
            progress(done, total)
            began = time.perf_counter()
            seen.keep(batch, threads=1)
            spent += time.perf_counter() - began
            done += 1
        seconds.append(spent)
    progress(total, total)
    return {
        "design": design, "keys": planned, "rows": timed, "memory": size(seen.nbytes),
        "new_ns": 1e9 * seconds[1] / timed, "repeated_ns": 1e9 * seconds[2] / timed,
    }  # fmt: skip


_KEYS = Number("keys", least=1, most=1e12, default=1e7, whole=True, help="Number of different keys.")
_FPR = Number(
    "fpr", least=1e-15, most=0.5, default=1e-9, help="Rate of new rows dropped by mistake, at most."
)

ENDPOINTS = [
    Endpoint(
        "dedup/sizes", sizes,
        (
            _KEYS,
            Number("rows", least=1, most=1e14, whole=True, help="Number of rows; by default twice the keys."),
            _FPR,
            Number("memory", least=2**26, most=2**50, default=2**32, whole=True, help="Bytes to be used."),
            Choice("design", choices=("best", *DESIGNS), default="best", help="The design to look at."),
        ),
        "What each way of remembering keys takes, and how to run it.",
    ),
    Endpoint("dedup/curves", curves, (_FPR,), "Bytes over keys of each design in memory."),
    Endpoint(
        "dedup/time", measure,
        (_KEYS, _FPR, Choice("design", choices=IN_MEMORY, default="filter", help="What is timed.")),
        "Nanoseconds per row on this machine.", job=True,
    ),
]  # fmt: skip

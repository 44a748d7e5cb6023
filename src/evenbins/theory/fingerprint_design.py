"""The shape of a fingerprint filter: the fewest bits for a rate, or the lowest rate for bits.

    keys, fpr ──▶ remainder, quotients, group, lines    lines >= keys / load                      (reads)
                                                        lines >= M / (quotients * 2**remainder)   (the rate)

How full a line may be follows from its shape alone, as long as there are many keys: the largest load at which
a look-up reads at most `READS` lines (of an absent key `MISS_READS`), and the rest takes at most `REST_SHARE`
of the keys although `HEADROOM` times as many are in. `fingerprint_loads.json` has these loads for every shape
that can be best; tools/make_fingerprint_loads.py computes them from the law, in minutes. Of two shapes with
as many slots, the one with fewer quotients is never better: its rate is higher, and nothing else gains.

What is found is checked by the law for its own number of keys: the rest must have room for six standard
deviations more than its mean, so that about one filter in a billion is full before it holds the keys that it
was planned for. Filters consist of blocks (16*group lines of level 1, 16 of level 2, one of level 3: at least
33 lines, 2112 bytes), and what a small filter has left over lowers its rate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from importlib import resources
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenbins.theory.caching import cached
from evenbins.theory.fingerprint import MAX_GROUP, law, slots

__all__ = [
    "HEADROOM", "MAX_FINGERPRINTS", "MISS_READS", "READS", "Shape", "copies_limit", "fewest_bits",
    "least_bits", "lowest_rate", "rest_limit", "shapes",
]  # fmt: skip

READS, MISS_READS = 1.0495, 1.0197
"""What plans keep to; filters are promised to stay below 1.05 and 1.02."""
HEADROOM = 1.01
"""Copies that a filter takes at most, times the keys planned for."""
REST_SHARE = 2e-4
REST_LEAST = 64
REMAINDERS = range(6, 29)
QUOTIENTS = range(32, 65)
LEAST_BITS = 4
"""Bits of a remainder beside its payload, at least."""
MAX_SLOTS = 64
MAX_FINGERPRINTS = 2**63
LINE_BYTES = 64
_DEVIATIONS = 6.0
_DERATING = 0.995  # of the loads, when a small filter does not keep to the limits


class Shape(NamedTuple):
    """The integers that the search finds; `rest` is how many fingerprints the rest holds."""

    lines: int
    remainder: int
    quotients: int
    group: int
    rest: int

    @property
    def fingerprints(self) -> int:
        """The number of fingerprints, M."""
        return self.lines * self.quotients << self.remainder

    @property
    def nbytes(self) -> int:
        """Bytes of the filter: a line of state, the three levels and the rest."""
        below = self.lines // self.group + self.lines // (MAX_GROUP * self.group)
        return LINE_BYTES * (1 + self.lines + below) + 8 * self.rest


def copies_limit(keys: int) -> int:
    """Return how many copies a filter takes that is planned for so many keys: 1 % more, 2**48 at most.

    Examples
    --------
    >>> copies_limit(1000), copies_limit(99)
    (1010, 99)
    """
    return min(keys + keys // 100, 2**48)


def rest_limit(keys: int) -> int:
    """Return how many fingerprints the rest of a filter for so many keys holds: whole lines of 8.

    Examples
    --------
    >>> rest_limit(1), rest_limit(1_000_000)
    (8, 264)
    """
    wanted = min(copies_limit(keys), REST_LEAST + math.ceil(REST_SHARE * keys))
    return -(-wanted // 8) * 8


def shapes() -> Iterator[tuple[int, int]]:
    """Yield remainder and quotients of the lines that can be best: the most quotients for their slots."""
    for remainder in REMAINDERS:
        for quotients in QUOTIENTS:
            s = slots(remainder, quotients)
            if s <= MAX_SLOTS and (quotients + 1 not in QUOTIENTS or slots(remainder, quotients + 1) < s):
                yield remainder, quotients


class _Table(NamedTuple):
    """Every shape that can be best, and its largest load for groups of 1, 2, … 16 lines."""

    remainders: npt.NDArray[np.int64]
    quotients: npt.NDArray[np.int64]
    loads: npt.NDArray[np.float64]


@cached(maxsize=None)
def _table() -> _Table:
    text = resources.files("evenbins.theory").joinpath("fingerprint_loads.json").read_text()
    rows = np.array(json.loads(text))
    return _Table(rows[:, :1].astype(np.int64), rows[:, 1:2].astype(np.int64), rows[:, 2:])


def fewest_bits(keys: int, fpr: float, payload: int = 0) -> Shape | None:
    """Find the shape of the fewest bytes for so many keys and a rate; None if none is small enough.

    Of shapes that are equally large, the one with the lowest rate. With `payload`, so many bits of a
    remainder are no part of the fingerprint.

    Examples
    --------
    >>> shape = fewest_bits(100_000_000, 1e-3)
    >>> f"{8 * shape.nbytes / 100_000_000:.2f} bits"
    '13.94 bits'
    """
    return _search(keys, fpr, None, payload)


def lowest_rate(keys: int, bits: float, payload: int = 0) -> Shape | None:
    """Find the shape of the lowest rate within so many bits; None if none is small enough.

    Examples
    --------
    >>> shape = lowest_rate(100_000_000, 18.24 * 100_000_000)
    >>> f"{100_000_000 / shape.fingerprints:.2e}"
    '7.47e-05'
    """
    return _search(keys, None, bits, payload)


def least_bits(keys: int) -> int:
    """Return the bits of the smallest filter for so many keys, whatever its rate."""
    shape = _search(keys, 0.5, None, 0)
    assert shape is not None
    return 8 * shape.nbytes


@cached(maxsize=1024)
def _search(keys: int, fpr: float | None, bits: float | None, payload: int) -> Shape | None:
    scale = 1.0
    while (shape := _best(keys, fpr, bits, scale, payload)) is not None:
        found = law(keys, *shape[:4])
        within = found.reads <= READS and found.miss_reads <= MISS_READS
        if within and found.rest + _DEVIATIONS * found.deviation <= shape.rest:
            return shape
        scale *= _DERATING
    return None


def _best(keys: int, fpr: float | None, bits: float | None, scale: float, payload: int) -> Shape | None:
    """Return the best shape with `scale` times the loads of the table."""
    table, rest = _table(), rest_limit(keys)
    per_line = np.ldexp(table.quotients, table.remainders)  # fingerprints, with every payload
    group = np.arange(1, MAX_GROUP + 1)
    block = MAX_GROUP * group
    fewest = 1.0 if fpr is None else np.ldexp(keys / (-math.log1p(-fpr) * per_line), payload)
    blocks = np.ceil(np.maximum(fewest, keys / (scale * table.loads)) / block)
    possible = (blocks * block * per_line <= MAX_FINGERPRINTS) & (
        (table.remainders >= payload + LEAST_BITS) | (payload == 0)
    )
    if bits is not None:
        room = (bits / 8 - LINE_BYTES - 8 * rest) // (LINE_BYTES * (block + MAX_GROUP + 1))
        most = np.minimum(room, MAX_FINGERPRINTS // (block * per_line))
        possible &= most >= blocks
        blocks = np.maximum(most, blocks)
    if not possible.any():
        return None
    fingerprints = np.where(possible, blocks * block * per_line, 0.0)
    lines = blocks * (block + MAX_GROUP + 1) if bits is None else np.zeros_like(fingerprints)
    fewest_lines = lines == np.min(lines[possible])
    row, column = np.unravel_index(np.argmax(np.where(fewest_lines, fingerprints, -1.0)), blocks.shape)
    c = int(group[column])
    return Shape(
        int(blocks[row, column]) * MAX_GROUP * c,
        int(table.remainders[row, 0]),
        int(table.quotients[row, 0]),
        c,
        rest,
    )

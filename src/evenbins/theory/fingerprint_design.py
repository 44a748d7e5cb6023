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

A filter that grows goes through sizes: each has twice the lines of the one before and remainders that are one
bit shorter, so that M stays what it is, and more slots in each line:

    first size                                          last size
    keys, lines, remainder  ──▶  2*keys*s'/s, 2*lines, remainder - 1  ──▶  …      `doubled`

The keys of a size are as many per slot as those of the first, whose lines have the fewest slots and may be
the least full. How often it doubles: as often as it can without getting past the keys to come; then the first
size is made as much larger as it takes to hold all of them in the last. It begins with at least `FIRST_KEYS`:
fewer lines than two hundred cannot share those of level 2 well, in no size.
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
    "HEADROOM", "MAX_FINGERPRINTS", "MISS_READS", "READS", "Growth", "Shape", "copies_limit", "doubled",
    "fewest_bits", "growth", "halved", "least_bits", "lowest_rate", "most_keys", "planned_keys", "rest_limit",
    "shapes",
]  # fmt: skip

READS, MISS_READS = 1.0495, 1.0197
"""What plans keep to; filters are promised to stay below 1.05 and 1.02."""
HEADROOM = 1.01
"""Copies that a filter takes at most, times the keys planned for."""
FIRST_KEYS = 4000
REST_KEYS = 5000
REST_SHARE = 1 / REST_KEYS
REST_LEAST = 64
LEAST_REMAINDER, MOST_REMAINDER = 4, 28
REMAINDERS = range(6, MOST_REMAINDER + 1)
QUOTIENTS = range(32, 65)
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


def planned_keys(limit: int) -> int:
    """Return the keys that a filter of so many copies was planned for: `copies_limit` backwards.

    Examples
    --------
    >>> planned_keys(1010), planned_keys(99)
    (1000, 99)
    """
    return -(-100 * limit // 101)


def rest_limit(keys: int) -> int:
    """Return how many fingerprints the rest of a filter for so many keys holds: whole lines of 8.

    Examples
    --------
    >>> rest_limit(1), rest_limit(1_000_000)
    (8, 264)
    """
    wanted = min(copies_limit(keys), REST_LEAST - -keys // REST_KEYS)
    return -(-wanted // 8) * 8


def doubled(keys: int, shape: Shape) -> tuple[int, Shape]:
    """Return the keys and the shape of a filter with twice the lines and the same fingerprints.

    Examples
    --------
    >>> doubled(1000, Shape(32, 16, 64, 2, 72))
    (2153, Shape(lines=64, remainder=15, quotients=64, group=2, rest=72))
    """
    w, q = shape.remainder, shape.quotients
    more = min(2 * keys * slots(w - 1, q) // slots(w, q), 2**48 // 101 * 100)
    rest = max(shape.rest, rest_limit(more))
    return more, shape._replace(lines=2 * shape.lines, remainder=w - 1, rest=rest)


def halved(keys: int, shape: Shape) -> tuple[int, Shape]:
    """Return the keys and the shape of a filter with half the lines: `doubled` backwards.

    Examples
    --------
    >>> halved(2153, Shape(64, 15, 64, 2, 72))
    (1000, Shape(lines=32, remainder=16, quotients=64, group=2, rest=72))
    """
    w, q = shape.remainder, shape.quotients
    fewer = -(-keys * slots(w + 1, q) // (2 * slots(w, q)))
    rest = rest_limit(fewer) if shape.rest == rest_limit(keys) else shape.rest
    return fewer, shape._replace(lines=shape.lines // 2, remainder=w + 1, rest=rest)


class Growth(NamedTuple):
    """The sizes of a filter: keys and shape of the first, and how often it may double."""

    keys: int
    shape: Shape
    doublings: int

    def sizes(self) -> Iterator[tuple[int, Shape]]:
        """Yield keys and shape of each size, the first one first."""
        keys, shape = self.keys, self.shape
        yield keys, shape
        for _ in range(self.doublings):
            keys, shape = doubled(keys, shape)
            yield keys, shape

    @property
    def last(self) -> tuple[int, Shape]:
        """Keys and shape of the last size."""
        *_, last = self.sizes()
        return last


def shapes() -> Iterator[tuple[int, int]]:
    """Yield remainder and quotients of the lines that can be best: the most quotients for their slots."""
    for remainder in REMAINDERS:
        for quotients in QUOTIENTS:
            s = slots(remainder, quotients)
            if s <= MAX_SLOTS and (quotients + 1 not in QUOTIENTS or slots(remainder, quotients + 1) < s):
                yield remainder, quotients


class _Table(NamedTuple):
    """Every shape that can be best, and its largest load for groups of 1, 2, … 16 lines.

    `filled` says for a remainder and a number of slots how full lines may be: the loads over the slots.
    """

    remainders: npt.NDArray[np.int64]
    quotients: npt.NDArray[np.int64]
    loads: npt.NDArray[np.float64]
    filled: npt.NDArray[np.float64]


@cached(maxsize=None)
def _table() -> _Table:
    text = resources.files("evenbins.theory").joinpath("fingerprint_loads.json").read_text()
    rows = np.array(json.loads(text))
    remainders, quotients = rows[:, :1].astype(np.int64), rows[:, 1:2].astype(np.int64)
    filled = np.zeros((REMAINDERS.stop, MAX_SLOTS + 1, MAX_GROUP))
    s = (512 - quotients) // (remainders + 1)
    filled[remainders[:, 0], s[:, 0]] = rows[:, 2:] / s
    return _Table(remainders, quotients, rows[:, 2:], filled)


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
    found = growth(keys, keys, fpr=fpr, payload=payload)
    return None if found is None else found.shape


def lowest_rate(keys: int, bits: float, payload: int = 0) -> Shape | None:
    """Find the shape of the lowest rate within so many bits; None if none is small enough.

    Examples
    --------
    >>> shape = lowest_rate(100_000_000, 18.24 * 100_000_000)
    >>> f"{100_000_000 / shape.fingerprints:.2e}"
    '7.47e-05'
    """
    found = growth(keys, keys, bits=bits, payload=payload)
    return None if found is None else found.shape


def least_bits(keys: int) -> int:
    """Return the bits of the smallest filter for so many keys, whatever its rate."""
    shape = fewest_bits(keys, 0.5)
    assert shape is not None
    return 8 * shape.nbytes


def most_keys(first: int, fpr: float) -> int:
    """Return how many keys a filter can grow to that begins with `first`, to two digits or so."""
    low, high = first, 2**48
    while high - low > low // 100:
        middle = math.isqrt(low * high)
        low, high = (low, middle) if _best(first, middle, fpr, None, 1.0, 0) is None else (middle, high)
    return low


@cached(maxsize=1024)
def growth(
    first: int, keys: int, *, fpr: float | None = None, bits: float | None = None, payload: int = 0
) -> Growth | None:
    """Find the sizes of a filter that begins with `first` keys or more and grows to `keys`.

    For a rate, the fewest bytes of the last size; within so many bits of the last size, the lowest rate;
    None if no remainder is long enough. With `first` equal to `keys` there is one size. With `payload`, so
    many bits of a remainder are no part of the fingerprint.

    Examples
    --------
    >>> found = growth(1_000_000, 256_000_000, fpr=1e-3)
    >>> found.keys, found.doublings, found.shape.remainder, found.last[1].remainder
    (1209303, 7, 17, 10)
    """
    scale = 1.0
    while (found := _best(first, keys, fpr, bits, scale, payload)) is not None:
        if all(_is_within(*size) for size in found.sizes()):
            return found
        scale *= _DERATING
    return None


def _is_within(keys: int, shape: Shape) -> bool:
    """Return whether a filter keeps to the limits, by the law for its own number of keys."""
    found = law(keys, *shape[:4])
    if found.reads > READS or found.miss_reads > MISS_READS:
        return False
    return found.rest + _DEVIATIONS * found.deviation <= shape.rest


def _best(
    first: int, keys: int, fpr: float | None, bits: float | None, scale: float, payload: int
) -> Growth | None:
    """Return the best sizes with `scale` times the loads of the table."""
    table, rest = _table(), rest_limit(keys)
    first = min(max(first, FIRST_KEYS), keys)
    last = table.remainders
    s = (512 - table.quotients) // (last + 1)
    doublings, filled = np.zeros_like(last), np.broadcast_to(table.loads / s, table.loads.shape)
    for d in range(1, REMAINDERS.stop):
        slots_of_first = (512 - table.quotients) // (last + d + 1)
        useful = (first * 2.0**d * s <= keys * slots_of_first) & (slots_of_first > 0)
        doublings = np.where(useful, d, doublings)
    earlier = np.minimum(last + doublings, REMAINDERS.stop - 1)
    s_first = (512 - table.quotients) // (earlier + 1)
    filled = np.minimum(filled, table.filled[earlier[:, 0], s_first[:, 0]])
    per_line = np.ldexp(table.quotients, last)  # fingerprints, with every payload
    group = np.arange(1, MAX_GROUP + 1)
    block, step = MAX_GROUP * group, 2**doublings
    with np.errstate(divide="ignore", over="ignore"):  # infinitely many are too many
        fewest = 1.0 if fpr is None else np.ldexp(keys / (-math.log1p(-fpr) * per_line), payload)
        blocks = np.ceil(np.maximum(fewest, keys / (scale * filled * s)) / (block * step)) * step
        possible = (last + doublings < REMAINDERS.stop) & (blocks * block * per_line <= MAX_FINGERPRINTS)
    possible &= (last >= payload + LEAST_REMAINDER) | (payload == 0)
    if bits is not None:
        room = (bits / 8 - LINE_BYTES - 8 * rest) // (LINE_BYTES * (block + MAX_GROUP + 1))
        most = np.minimum(room, MAX_FINGERPRINTS // (block * per_line)) // step * step
        possible &= most >= blocks
        blocks = np.maximum(most, blocks)
    if not possible.any():
        return None
    fingerprints = np.where(possible, blocks * block * per_line, 0.0)
    lines = blocks * (block + MAX_GROUP + 1) if bits is None else np.zeros_like(fingerprints)
    fewest_lines = lines == np.min(lines[possible])
    row, column = np.unravel_index(np.argmax(np.where(fewest_lines, fingerprints, -1.0)), blocks.shape)
    c, d = int(group[column]), int(doublings[row, 0])
    shape = Shape(
        int(blocks[row, column]) * MAX_GROUP * c >> d,
        int(last[row, 0]) + d,
        int(table.quotients[row, 0]),
        c,
        rest,
    )
    return _begun(keys, shape, d)


def _begun(keys: int, shape: Shape, doublings: int) -> Growth:
    """Return the sizes from a first shape on, with as few keys as lead to `keys` in the last."""
    low, high = 1, keys
    while low < high:
        middle = (low + high) // 2
        found = Growth(middle, shape, doublings)
        low, high = (low, middle) if found.last[0] >= keys else (middle + 1, high)
    return Growth(low, shape._replace(rest=rest_limit(low)), doublings)

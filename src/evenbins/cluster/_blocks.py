"""Many keys at many blocks, in NumPy: what the script `add` does to a block, for whole segments at once.

Keys of different blocks do not meet, and those of one block come in their order: so round r takes the r-th
key of every block, and each round is a few array operations. A block that is full stays as it is, so all
keys still to come to it are decided at once; with thresholds of twenty keys that ends after twenty rounds,
however many come.

Invariant: state and outcomes are those of `reference.balanced.Choice` key by key; tests compare them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from evenbins.cluster._segments import Table

__all__ = ["PASSED", "PLACED", "PRESENT", "inspect", "keys_of_records", "place_keys", "records"]

PASSED, PLACED, PRESENT = range(3)

Octets = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.uint16]
Bools = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

_POPCOUNT: Final = np.array([i.bit_count() for i in range(256)], np.uint16)


def loads_of(blocks: Octets, counter_bits: int) -> Indices:
    """Read the counters: the top bits of each block (a row)."""
    top = blocks[:, -3:].astype(np.int64)
    return (top[:, 2] << 16 | top[:, 1] << 8 | top[:, 0]) >> 24 - counter_bits


def inspect(table: Table, blocks: Octets, positions: Positions, coins: Bools | None) -> tuple[Bools, Bools]:
    """Say for each key and the block it is at (rows): are its bits there; would the block accept it?"""
    octets = np.take_along_axis(blocks, (positions >> 3).astype(np.intp), axis=1)
    present: Bools = np.all((octets >> (positions & 7).astype(np.uint8)) & 1, axis=1)
    if table.counter_bits:
        loads = loads_of(blocks, table.counter_bits)
        accepts = loads < table.threshold
        if coins is not None:
            accepts |= (loads == table.threshold) & coins
    elif table.never_full:
        accepts = np.ones(len(blocks), np.bool_)
    else:
        accepts = _POPCOUNT[blocks].sum(axis=1) < table.threshold
    return present, accepts


def place_keys(
    table: Table, blocks: Octets, at: Indices, positions: Positions, coins: Bools
) -> tuple[Octets, npt.NDArray[np.uint8]]:
    """Add keys in their order: the blocks after it, and for each key whether it passed, was placed or
    present.

    Parameters
    ----------
    table
        Says when a block is full.
    blocks
        One a row.
    at, positions, coins
        For each key its row of `blocks`, its bits there, and whether its coin lets it in at the threshold.
    """
    flags = np.unpackbits(blocks, axis=1, bitorder="little").astype(np.bool_)
    # What the threshold is for: keys, or set bits.
    counted = table.counter_bits > 0
    loads = loads_of(blocks, table.counter_bits) if counted else flags.sum(axis=1, dtype=np.int64)
    outcomes = np.empty(len(at), np.uint8)
    last = table.threshold if table.counter_bits else table.threshold - 1  # the highest load that may accept

    left = np.argsort(at, kind="stable")
    while left.size:
        frozen = loads[at[left]] > last
        if frozen.any():
            done = left[frozen]
            present = flags[at[done][:, None], positions[done]].all(axis=1)
            outcomes[done] = np.where(present, PRESENT, PASSED)
            left = left[~frozen]
            if not left.size:
                break
        rows = at[left]
        first = np.empty(len(left), np.bool_)
        first[0] = True
        np.not_equal(rows[1:], rows[:-1], out=first[1:])
        now, left = left[first], left[~first]
        rows = at[now]
        where = positions[now]
        present = flags[rows[:, None], where].all(axis=1)
        accepts = loads[rows] < table.threshold
        if table.counter_bits:
            accepts |= (loads[rows] == table.threshold) & coins[now]
        placed = accepts & ~present
        rows, where = rows[placed], where[placed]
        flags[rows[:, None], where] = True
        loads[rows] = loads[rows] + 1 if table.counter_bits else flags[rows].sum(axis=1)
        outcomes[now] = np.where(present, PRESENT, np.where(placed, PLACED, PASSED))

    if table.counter_bits:
        counter = np.arange(table.counter_bits)
        flags[:, table.span :] = loads[:, None] >> counter & 1
    return np.packbits(flags, axis=1, bitorder="little"), outcomes


def records(offsets: Indices, positions: Positions, coins: Bools | None) -> bytes:
    """Write keys as the script `add` reads them: u32 offset of the block, u8 coin, pairs of byte and mask."""
    count, hashes = positions.shape
    found = np.zeros((count, 5 + 2 * hashes), np.uint8)
    found[:, :4] = offsets.astype("<u4").view(np.uint8).reshape(count, 4)
    if coins is not None:
        found[:, 4] = coins
    found[:, 5::2] = positions >> 3
    found[:, 6::2] = np.left_shift(1, positions & 7)
    return found.tobytes()


def keys_of_records(data: bytes, hashes: int) -> int:
    """Count the keys of `records`."""
    return len(data) // (5 + 2 * hashes)

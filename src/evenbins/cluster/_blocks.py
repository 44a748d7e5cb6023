"""Keys at blocks that were fetched from servers: placed by the core, and written for the script `add`.

The core decides what a block does with a key (`_core.place_in_blocks`, `look_at_block`, `choose_blocks`); on
the server the script does. Tests compare both with the twin.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from evenbins import _core
from evenbins.cluster._segments import Layout, Table

__all__ = ["PASSED", "PLACED", "PRESENT", "choose_block", "place_keys", "records"]

PASSED, PLACED, PRESENT = range(3)

Octets = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.uint16]
Indices = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


def place_keys(layout: Layout, table: Table, blocks: Octets, rows: Indices, words: Words) -> Octets:
    """Add keys to blocks in their order; return for each whether it passed, was placed or was present.

    Parameters
    ----------
    layout, table
        When a block is full.
    blocks
        One a row; they are changed.
    rows, words
        For each key its row of `blocks`, and its word at this level.
    """
    return _core.place_in_blocks(
        blocks, rows, words, layout.hashes, table.threshold, table.counter_bits, layout.coin
    )


def choose_block(blocks: Sequence[bytes], digest: int, hashes: int) -> int:
    """Return which of a key's two blocks takes it; PRESENT if one of them has it."""
    rows = np.frombuffer(b"".join(blocks), np.uint8).reshape(2, -1).copy()
    first, second = np.zeros(1, np.int64), np.ones(1, np.int64)
    return int(_core.choose_blocks(rows, first, second, np.array([digest], np.uint64), hashes)[0])


def records(offsets: Indices, positions: Positions, coins: npt.NDArray[np.bool_] | None) -> bytes:
    """Write keys as the script `add` reads them: u32 offset of the block, u8 coin, pairs of byte and mask."""
    count, hashes = positions.shape
    written = np.zeros((count, 5 + 2 * hashes), np.uint8)
    written[:, :4] = offsets.astype("<u4").view(np.uint8).reshape(count, 4)
    if coins is not None:
        written[:, 4] = coins
    written[:, 5::2] = positions >> 3
    written[:, 6::2] = np.left_shift(1, positions & 7)
    return written.tobytes()

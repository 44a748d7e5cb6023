"""What the blocks of a balanced filter say of it: rates, reads and loads, from counts instead of predictions.

An absent key walks the levels as an insertion does. In a block with x of R bits set it finds all its bits
with chance (x/R)**k; if not, it goes on when the block is full for it. With F_j and C_j the means of the
two over the blocks of level j,

    fpr = F_0 + C_0 (F_1 + C_1 (F_2 + …))        miss_reads = 1 + C_0 (1 + C_1 (1 + …))

The same walk predicts (`levels`), with distributions in place of counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory import levels
from evenbins.theory.behaviour import Walk
from evenbins.theory.cores import BalancedCore

__all__ = ["Measured", "measure"]

Counts = npt.NDArray[np.int64]
_BUDGET_SPENT = 2


class Measured(NamedTuple):
    """What `measure` finds; each name means the same as in a plan."""

    keys: float
    fpr: float
    reads: float
    miss_reads: float
    fill: float
    loads: tuple[tuple[int, ...], ...]
    list_reads: float = 0.0
    overflow: float = 0.0
    spilled: float = 0.0


def measure(
    core: Sequence[int], tables: Sequence[Counts], state: Sequence[int], *, stop: str = "coin"
) -> Measured:
    """Measure a balanced filter.

    Parameters
    ----------
    core
        Its integer core.
    tables
        For each table, rows of load, set bits, and how many blocks have both; a load of 0 where loads
        are not counted.
    state
        Its words of state; empty where loads are not counted.
    stop
        Where a look-up may stop: "coin", where the key would have been accepted, as the filter does;
        "threshold", only at a load below the threshold, as in the paper.
    """
    arguments.one_of("stop", stop, ("coin", "threshold"), 'Leave it out for "coin"')
    design = BalancedCore(core)
    hits, passes, set_bits, loads = [], [], [], []
    for table, size, threshold, key_bits in zip(
        tables, design.blocks, design.thresholds, design.key_bits, strict=True
    ):
        load, x, found = table.T
        hit = np.minimum(x / key_bits, 1.0) ** design.hashes
        if design.counted:
            at = 1.0 - design.coin if stop == "coin" else 1.0
            on = np.where(load < threshold, 0.0, np.where(load == threshold, at, 1.0))
        else:
            on = (x >= threshold).astype(float)
        hits.append(float(found @ hit) / size)
        passes.append(float(found @ (on * (1.0 - hit))) / size)
        set_bits.append(np.bincount(x, found, design.block_bits + 1).astype(np.int64))
        loads.append(tuple(map(int, np.bincount(load, found) if design.counted else set_bits[-1])))
    bits = sum(size * each for size, each in zip(design.blocks, design.key_bits, strict=True))
    fill = sum(float(each @ np.arange(len(each))) for each in set_bits) / bits

    if design.policy == "two-choice":
        keys = levels.keys_from_fill_bits(core, set_bits)
        rate = hits[0] * (2.0 - hits[0])
        return Measured(keys, rate, 2.0, 2.0, fill, tuple(loads))
    if design.policy == "sequential":
        hits, passes = hits * design.choices, passes * design.choices
    rate, miss_reads, passed = Walk.of(hits, passes)
    if design.policy == "fill":
        by_level = [_keys_of_level(core, set_bits, level) for level in range(design.choices)]
        keys, reads = math.fsum(by_level), _mean_reads(by_level)
        return Measured(keys, rate, reads, miss_reads, fill, tuple(loads))
    added, listed, read, flags, spilled = state[:5]
    asks = 1.0 - rate if flags & _BUDGET_SPENT else passed
    return Measured(
        keys=float(added),
        fpr=rate,
        reads=read / added if added else 1.0,
        miss_reads=miss_reads,
        fill=fill,
        loads=tuple(loads),
        list_reads=asks if design.overflow_limit else 0.0,
        overflow=listed / added if added else 0.0,
        spilled=spilled / added if added else 0.0,
    )


def _keys_of_level(core: Sequence[int], set_bits: Sequence[npt.NDArray[np.int64]], level: int) -> float:
    """Estimate the keys in one level of a "fill" filter."""
    alone = [each if table == level else np.zeros_like(each) for table, each in enumerate(set_bits)]
    return levels.keys_from_fill_bits(core, alone)


def _mean_reads(keys: Sequence[float]) -> float:
    total = math.fsum(keys)
    if not 0.0 < total < math.inf:
        return 1.0
    return math.fsum(n * (level + 1) for level, n in enumerate(keys)) / total

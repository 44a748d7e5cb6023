"""What a balanced filter does with a number of keys in it: the result of all predictions of `levels`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenbins.theory import block
from evenbins.theory import fpr as theory
from evenbins.theory.cores import BalancedCore

__all__ = ["Behaviour", "Walk", "counted_loads", "with_digest_floor", "without_keys"]

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Behaviour:
    """What a balanced filter is expected to do after some number of keys were added.

    Attributes
    ----------
    fpr : false-positive rate, digest floor included
    reads : block reads of the insertion of a key (a), and of a look-up of it
    miss_reads : block reads of a look-up of an absent key (E(P))
    list_reads : fraction of absent keys that consult the overflow list
    overflow : keys on the list, as a fraction of those that changed the filter
    overflow_sd : standard deviation of the number of keys on the list
    spilled : keys put into a full block by the spill rule, as a fraction of the same
    changed : fraction of the keys added that changed the filter; the others answered "present"
        by accident
    fill : fraction of set bits among the bits that keys can set
    loads : a table's distribution of loads, 0 to threshold + 1, as its counter shows them; for
        "fill" and "two-choice" the distribution of set bits, 0 to block_bits
    exhausted : whether the budget of a sequential filter runs out
    """

    fpr: float
    reads: float
    miss_reads: float
    list_reads: float = 0.0
    overflow: float = 0.0
    overflow_sd: float = 0.0
    spilled: float = 0.0
    changed: float = 1.0
    fill: float
    loads: tuple[Vector, ...]
    exhausted: bool = False


def without_keys(design: BalancedCore) -> Behaviour:
    """Predict a filter without keys."""
    width = [design.block_bits + 1] * len(design.blocks)
    if design.counted:
        width = [each + 2 for each in design.thresholds]
    loads = tuple(np.eye(1, each)[0] for each in width)
    reads = 2.0 if design.policy == "two-choice" else 1.0
    return Behaviour(fpr=0.0, reads=reads, miss_reads=reads, fill=0.0, loads=loads)


class Walk(NamedTuple):
    """What an absent key meets on its way through the levels.

    Attributes
    ----------
    fpr : the chance that a level finds all its bits set, F_0 + C_0 (F_1 + C_1 (…))
    reads : the levels that it reads, 1 + C_0 (1 + C_1 (…))
    passed : the chance that all levels turn it away
    """

    fpr: float
    reads: float
    passed: float

    @classmethod
    def of(cls, positive: Sequence[float], passes: Sequence[float]) -> Walk:
        """Walk through levels of which each has F, all bits set, and C, turned away."""
        rate, reads, walk = 0.0, 0.0, 1.0
        for f, c in zip(positive, passes, strict=True):
            rate += walk * f
            reads += walk
            walk *= c
        return cls(rate, reads, walk)


def with_digest_floor(rate: float, keys: int) -> float:
    """Add the rate of digests that two keys share."""
    return min(rate + (1.0 - rate) * theory.digest_floor(keys), 1.0)


def counted_loads(
    design: BalancedCore, table: int, chance: Vector, at: Vector, over: Vector, most: int
) -> Vector:
    """Return the loads of a table whose blocks count keys; `at` and `over` are at the threshold and above."""
    threshold = design.thresholds[table]
    width = block.loads_to_follow(most, threshold)
    chain, _ = block.chain(design.key_bits[table], design.hashes, most, width)
    loads = np.zeros(threshold + 2)
    top = min(threshold, width + 1)
    loads[:top] = chance @ chain[:, :top]
    if threshold <= most:
        loads[threshold], loads[threshold + 1] = chance @ at, chance @ over
    return loads

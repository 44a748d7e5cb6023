"""What becomes of balanced filters when they are merged.

A part that holds a few of the keys has hardly any full block, so nearly all of its keys lie in the first
level: merged, the blocks of that level are as uneven as those of a blocked filter, and the levels below stay
almost empty.

    blocks of a part ──▶ the union of `parts` independent blocks ──▶ F, C of each level ──▶ rate, reads

- "fill", "two-choice": a block with a of B bits set has each set of a bits with the same chance. So the union
  with one that has b gains j bits with the hypergeometric chance C(B-a, j) C(a, b-j) / C(B, b).
- The policies that count: loads add up, and the bits are those of as many keys. The lists together hold less
  than one filter's would, so they are taken to fit.

Invariants: `merge` never looks at bits or keys; merging 1 part changes nothing. Accuracy: rates within 4 % of
merged filters of 200,000 keys (tests/statistical/test_overfill.py). Standard, blocked and counting filters
need no prediction: merged, they are what one filter of all keys would be.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenbins.theory import block, levels
from evenbins.theory.behaviour import Walk, with_digest_floor
from evenbins.theory.caching import cached
from evenbins.theory.cores import BalancedCore

__all__ = ["Merged", "merge"]

Vector = npt.NDArray[np.float64]

_TRACE = 1e-13


class Merged(NamedTuple):
    """Predictions for a merged filter; each name means the same as in a plan."""

    fpr: float
    reads: float
    miss_reads: float
    list_reads: float
    fill: float


@cached(256)
def merge(core: tuple[int, ...], keys: int, parts: int) -> Merged:
    """Predict a balanced filter merged from `parts` filters of this core, which share `keys` keys equally.

    Examples
    --------
    >>> core = (5, 512, 10, 2, 0, 0, 0, 0, 29_000, 0)  # two-choice
    >>> [round(merge(core, 10**6, parts).fpr, 5) for parts in (1, 2, 4)]
    [0.00102, 0.00139, 0.00158]
    """
    design = BalancedCore(core)
    part = levels.predict(core, max(round(keys / parts), 1))
    positive, passes, filled = [], [], 0.0
    for table, loads in enumerate(part.loads):
        f, c, mean = (
            _counted_level(design, table, loads, parts)
            if design.counted
            else _set(design, table, loads, parts)
        )
        positive.append(f)
        passes.append(c)
        filled += design.blocks[table] * mean
    if len(positive) == 1:  # of "sequential" and "two-choice" all choices are in one table
        positive, passes = positive * design.choices, passes * design.choices
    walk = Walk.of(positive, passes)
    bits = sum(b * each for b, each in zip(design.blocks, design.key_bits, strict=True))
    return Merged(
        fpr=with_digest_floor(walk.fpr, keys),
        reads=part.reads,  # a key is found where its part put it
        miss_reads=2.0 if design.policy == "two-choice" else walk.reads,
        list_reads=walk.passed if design.overflow_limit else 0.0,
        fill=filled / bits,
    )


def _set(design: BalancedCore, table: int, chance: Vector, parts: int) -> tuple[float, float, float]:
    """Return F, C and the mean of the set bits of a level whose blocks are known by their set bits."""
    merged = _union_of(np.asarray(chance), parts)
    x = np.arange(design.block_bits + 1)
    rate = (x / design.block_bits) ** design.hashes
    full = x >= (0 if design.policy == "two-choice" else design.thresholds[table])
    return float(merged @ rate), float(merged[full] @ (1.0 - rate[full])), float(merged @ x)


def _counted_level(
    design: BalancedCore, table: int, chance: Vector, parts: int
) -> tuple[float, float, float]:
    """Return F, C and the mean of the set bits of a level whose blocks are known by their loads."""
    last = int(np.flatnonzero(chance > _TRACE)[-1])
    merged = one = np.asarray(chance)[: last + 1]
    for _ in range(parts - 1):
        merged = np.convolve(merged, one)
        merged = merged[: int(np.flatnonzero(merged > _TRACE)[-1]) + 1]
    bits, threshold = design.key_bits[table], design.thresholds[table]
    rates, thrown = block.effective_rates(bits, design.hashes, len(merged) - 1)
    on = (np.arange(len(merged)) > threshold).astype(np.float64)
    on[threshold : threshold + 1] = 1.0 - design.coin
    mean_set = -bits * np.expm1(block.hashes_log(bits, design.hashes) * thrown)
    return float(merged @ rates), float(merged @ (on * (1.0 - rates))), float(merged @ mean_set)


def _union_of(chance: Vector, parts: int) -> Vector:
    """Return the chances of set bits in the union of `parts` independent blocks, by repeated squaring."""
    result: Vector | None = None
    while True:
        if parts % 2:
            result = chance if result is None else _union(result, chance)
        parts //= 2
        if not parts:
            assert result is not None
            return result
        chance = _union(chance, chance)


def _union(one: Vector, other: Vector) -> Vector:
    """Return the chances of set bits in the union of two independent blocks."""
    bits = len(one) - 1
    logs = _log_factorials(bits)  # entry i: ln i!, infinite below 0, which makes such a chance 0
    b = np.flatnonzero(other > _TRACE)
    gained = np.arange(int(b[-1]) + 1)
    common = b[:, None] - gained
    fixed = (logs[b] + logs[bits - b] - logs[bits])[:, None] - logs[gained] - logs[common]
    union = np.zeros(2 * bits + 1)
    for a in np.flatnonzero(one > _TRACE).tolist():
        chance = np.exp(fixed + (logs[a] + logs[bits - a] - logs[bits - a - gained]) - logs[a - common])
        union[a : a + len(gained)] += one[a] * (other[b] @ chance)
    return union[: bits + 1]


@cached(4)
def _log_factorials(most: int) -> Vector:
    """Return ln i! for i = 0 .. most, then infinity for i = -most .. -1 (as negative indices find it)."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, most + 1.0))), np.full(most, np.inf)])

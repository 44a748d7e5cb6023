"""Balancing keys over buckets with few reads: the thresholds and coins that reach the most even loads.

The idea. Count *attempts*, not keys: a key that is refused and reads another bucket is, for that
bucket, as good as a new key. A bucket then receives N = Poisson(attempts per bucket) of them,
whatever the scheme, and a scheme is what a bucket makes of N (`bucket`). The most even distribution of a
given mean that N allows is of the same form (all excess cut off at one height), so threshold and coin
follow from the mean. `over_time` follows schemes while keys arrive; `evenbins.study.theory.balance` has the
theorems.

Tried and dropped: solving for sequential's overflow (where loads are almost equal, threshold and coin hang
on its last digits; so they are solved for, and it follows).

Source: Y. Kanizo, D. Hay, I. Keslassy, "Access-efficient balanced Bloom filters", sections 3
to 8 and the appendices; Theorem n is theirs. Their letters: a `reads`, r `load`, d `choices`, gamma
`overflow`, h `threshold`, p `coin`, alpha `shares`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from evenbins.theory.balance_arguments import checked_choices, checked_load, checked_overflow, checked_reads
from evenbins.theory.bucket import Vector, best, hold
from evenbins.theory.caching import cached, frozen
from evenbins.theory.sequential_path import totals
from evenbins.theory.special import root

__all__ = [
    "Scheme", "best_multilevel", "best_sequential", "best_single", "least_sequential", "refused_fraction",
]  # fmt: skip


class Scheme(NamedTuple):
    """A scheme that reaches the most even loads; see `evenbins.study.theory.balance.Balance`."""

    threshold: int | None
    coin: float
    shares: tuple[float, ...]
    overflow: float
    occupancy: Vector


def best_single(load: float, overflow: float) -> Scheme:
    """Choose threshold and coin of SINGLE (Theorem 3)."""
    load, overflow = checked_load(load), checked_overflow(overflow)
    threshold, coin, occupancy = best(1.0, load, overflow)
    return Scheme(threshold, coin, (1.0,), overflow, occupancy)


def best_sequential(reads: float, load: float, choices: int) -> Scheme:
    """Choose SEQUENTIAL with the least overflow (Theorem 4)."""
    load, choices = checked_load(load), checked_choices(choices, 2)
    reads = checked_reads(reads, choices)
    threshold, coin, overflow = least_sequential(reads, load, choices)
    return Scheme(threshold, coin, (1.0,), overflow, frozen(hold(reads * load, threshold, coin)[0]))


def best_multilevel(reads: float, load: float, choices: int) -> Scheme:
    """Choose MHT with the least overflow (Theorem 5).

    With q the fraction that each table refuses, reads = 1 + q + ... + q**(d-1), overflow = q**d and
    shares proportional to q**(j-1): none of it depends on the load.
    """
    load, choices = checked_load(load), checked_choices(choices, 2)
    reads = checked_reads(reads, choices)
    refused = refused_fraction(reads, choices)
    sizes = [refused**j for j in range(choices)]
    overflow = refused**choices
    threshold, coin, occupancy = best(reads, load, overflow)
    return Scheme(threshold, coin, tuple(size / math.fsum(sizes) for size in sizes), overflow, occupancy)


def refused_fraction(reads: float, choices: int) -> float:
    """Solve reads - 1 = q + ... + q**(choices - 1) for q: convex, so Newton comes down to the root."""
    excess = reads - 1.0
    q = min(excess, 1.0)
    for _ in range(200):
        value, slope = 0.0, 0.0
        for _ in range(choices - 1):  # Horner: value = q (1 + q (1 + ...))
            value, slope = q * (1.0 + value), 1.0 + value + q * slope
        step = (value - excess) / slope
        q -= step
        if step <= 1e-16 * q:  # a step back is rounding
            break
    return q


@cached(4096)
def least_sequential(reads: float, load: float, choices: int) -> tuple[int, float, float]:
    """Return threshold, coin and overflow of the SEQUENTIAL that spends `reads` exactly at time 1.

    Attempts after the first fall as threshold + coin rises, continuously, since coin 1 is coin 0 one
    higher. Where to look: refusals vary over time, so by convexity the overflow is at least
    multilevel's q**d, where they do not, and at most (reads-1)/(d-1), where a key is refused never or
    always; Theorem 1 turns both into thresholds.
    """
    top, goal = reads * load, (reads - 1.0) * load

    def surplus(threshold: int, coin: float) -> float:
        return totals(threshold, coin, choices, top)[0] / goal - 1.0

    low = best(reads, load, (reads - 1.0) / (choices - 1.0))[0] or 0
    high = (best(reads, load, refused_fraction(reads, choices) ** choices)[0] or 0) + 1
    while low > 0 and surplus(low, 0.0) <= 0.0:  # rounding
        low -= 1
    while surplus(high, 0.0) > 0.0:
        high += 1
    while high - low > 1:
        middle = (low + high) // 2
        if surplus(middle, 0.0) > 0.0:
            low = middle
        else:
            high = middle
    coin = 1.0
    if surplus(low, 1.0) < 0.0:
        coin = root(lambda p: surplus(low, p), 0.0, 1.0)
    return low, coin, totals(low, coin, choices, top)[1] / load

"""The counting Bloom filter: how many counters, and how many of them will be full.

    counter        0 ──key──▶ 1 ──key──▶ 2 … 2**b - 2 ──key──▶ 2**b - 1: full, and it sticks

Whether a key is found depends on which counters are zero, as for a Bloom filter whose bits the counters
are: rates and fills are those of `fpr`, with 512/b "bits" in a block where the layout is blocked.

What is new is the width b. A key moves each of its distinct positions by one, so a given counter is moved
by a given key with one chance q, and its value is Binomial(keys, q) exactly:

    flat        q = 1 - (1 - 1/m)**k
    blocked     q = (1 - (1 - 1/C)**k) / blocks,    C = 512/b counters in a block

It is full with P(Binomial(keys, q) >= 2**b - 1), and m times that are expected to be, which also bounds the
probability that there is one. (The thesis asks for 2**b, when the value no longer fits. But a filter
that sees 2**b - 1 cannot know whether one more came, so its counter has to stick there already.)

Invariant: tails above the mean are sums of positive terms, never 1 - CDF: that is where the thesis' 1.78e-11
comes from, which is 2**-52 * 80000 (`evenbins.study.theory.counters.overflow_bound` has 5.658e-12).

All of this is for keys that are added once each. A key that is added 2**b - 1 times fills its counters
alone, and where keys come and go for ever, counters that were once full stay so.

Sources: kirsch, section 2.1.2; L. Fan, P. Cao, J. Almeida, A. Broder, "Summary cache" (1998), for counters
of four bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

__all__ = ["binomial_tail", "hit_chance", "keys_from_counters", "saturation", "sum_from"]

_NEGLIGIBLE = 1e-18  # of the sum so far


def binomial_tail(trials: int, chance: float, least: int) -> float:
    """Compute P(Binomial(trials, chance) >= least), to nearly full precision however small.

    Above the mean the terms are added, below it those of the other side are taken from 1.

    Examples
    --------
    >>> f"{binomial_tail(10, 0.5, 10) * 2**10:.12f}"
    '1.000000000000'
    """
    if least <= 0:
        return 1.0
    if least > trials or chance <= 0.0:
        return 0.0
    if chance >= 1.0:
        return 1.0
    odds = chance / (1.0 - chance)
    if least > trials * chance:
        steps = ((trials - i) / (i + 1) * odds for i in range(least, trials))
        return sum_from(_log_binomial(trials, chance, least), steps)
    steps = (i / (trials - i + 1) / odds for i in range(least - 1, 0, -1))
    return 1.0 - sum_from(_log_binomial(trials, chance, least - 1), steps)


def _log_binomial(trials: int, chance: float, i: int) -> float:
    """Compute ln P(Binomial = i), without the difference of two huge logarithms of factorials."""
    falling = float(np.log1p(-np.arange(i) / trials).sum())
    odds = math.log(trials) + math.log(chance)
    return falling + i * odds - math.lgamma(i + 1) + (trials - i) * math.log1p(-chance)


def sum_from(log_first: float, steps: Iterable[float]) -> float:
    """Sum a term and its successors, each given by its ratio to the one before."""
    total = term = 1.0
    for ratio in steps:
        term *= ratio
        total += term
        if term < _NEGLIGIBLE * total:
            break
    return math.exp(min(log_first + math.log(total), 0.0))


def hit_chance(counters: int, hashes: int, block_counters: int | None = None) -> float:
    """Compute the chance that a key moves a given counter.

    Parameters
    ----------
    counters, hashes
        Counters of the filter (m) and positions of a key (k).
    block_counters
        Counters of a block, if a key's lie in one; they must divide `counters`.
    """
    span = counters if block_counters is None else block_counters
    in_span = -math.expm1(hashes * math.log1p(-1 / span)) if span > 1 else 1.0
    return in_span * span / counters


def saturation(keys: int, hit: float, counter_bits: int) -> float:
    """Compute the chance that a counter is full after `keys` keys, each of which moves it with `hit`."""
    return binomial_tail(keys, hit, 2**counter_bits - 1)


def keys_from_counters(counters: int, hashes: int, total: int, block_counters: int | None = None) -> float:
    """Estimate the keys in a filter, repeats counted, from the sum of its counters.

    The sum divided by the mean number of distinct positions of a key. Too low once counters are full.
    """
    return total / (counters * hit_chance(counters, hashes, block_counters))

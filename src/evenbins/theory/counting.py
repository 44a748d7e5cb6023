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
from collections.abc import Iterable, Sequence
from typing import SupportsFloat, SupportsIndex

import numpy as np

from evenbins import _arguments as arguments
from evenbins.theory import fpr as theory
from evenbins.theory.filter_plan import Family, FilterPlan, rate_of_core, register
from evenbins.theory.plan import round_up

__all__ = [
    "COUNTER_BITS", "LAYOUTS", "SATURATION_BOUND", "binomial_tail", "hit_chance", "keys_from_counters",
    "plan_counting", "saturation", "sum_from",
]  # fmt: skip

COUNTER_BITS = (2, 4, 8, 16)
LAYOUTS = ("flat", "blocked")
BLOCK_BITS = 512
SATURATION_BOUND = 1e-3
"""The probability of a full counter above which `CountingBloomFilter` warns."""

_NEGLIGIBLE = 1e-18  # of the sum so far


# --- how large a counter grows -------------------------------------------------------------------


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


# --- planning ------------------------------------------------------------------------------------


def plan_counting(
    capacity: SupportsIndex | SupportsFloat,
    *,
    fpr: float | None = None,
    bits_per_key: float | None = None,
    hashes: int | None = None,
    counter_bits: int = 4,
    layout: str = "flat",
    seed: int = 0,
) -> FilterPlan:
    """Plan a counting filter: the fewest counters for `fpr`, or the best use of `bits_per_key`.

    Parameters
    ----------
    capacity, fpr, bits_per_key, hashes, counter_bits, layout, seed
        As for `CountingBloomFilter`: 1 to 64 hashes, in a block 1 to 32.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range, or no filter reaches `fpr`.

    Examples
    --------
    >>> plan = plan_counting(10_000, fpr=1e-3)
    >>> plan.core
    (143779, 4, 10, 0)
    >>> f"{plan.saturated:.1e}"
    '2.4e-10'
    """
    keys = arguments.capacity(capacity)
    rate, per_key = arguments.goal(fpr, bits_per_key)
    layout = _layout(layout)
    flat = layout == "flat"
    k = arguments.hashes(hashes, theory.MAX_HASHES_STANDARD if flat else theory.MAX_HASHES_BLOCKED)
    width = _counter_bits(counter_bits)
    seed = arguments.seed(seed)
    span = BLOCK_BITS // width
    if per_key is not None:
        size = round_up(keys, per_key, width if flat else BLOCK_BITS)
        arguments.check_total(size * (width if flat else BLOCK_BITS), "bits_per_key", bits_per_key)
    elif flat:
        size = theory.standard_bits(keys, rate, k)
    else:
        size = theory.blocked_blocks(keys, rate, span, k)
    if k is None:
        k = theory.best_hashes_standard(size, keys) if flat else theory.best_hashes_blocked(size, span, keys)
    counters = size if flat else size * span
    arguments.check_total(counters * width, "fpr", fpr)
    return _plan_with(keys, counters, width, k, 0 if flat else BLOCK_BITS, seed)


def _of_counting_core(_: str, core: Sequence[int], keys: int, seed: int, __: str) -> FilterPlan:
    """Check the four integers of a counting filter's core and predict anew; see `plan_of_core`."""
    remedy = "Pass a filter's plan.core"
    counters, width, hashes, block_bits = core
    width = _counter_bits(width, "core[1] (counter_bits)")
    most = theory.MAX_BITS // width
    counters = arguments.integer("core[0] (counters)", counters, 1, most, remedy)
    block_bits = arguments.integer("core[3] (block_bits)", block_bits, 0, BLOCK_BITS, remedy)
    if block_bits not in (0, BLOCK_BITS):
        raise arguments.error("core[3] (block_bits)", "0 or 512", block_bits, remedy)
    most = theory.MAX_HASHES_BLOCKED if block_bits else theory.MAX_HASHES_STANDARD
    k = arguments.integer("core[2] (hashes)", hashes, 1, most, remedy)
    if block_bits and counters * width % BLOCK_BITS:
        rule = f"a multiple of {BLOCK_BITS // width}, the counters of a block"
        raise arguments.error("core[0] (counters)", rule, counters, remedy)
    return _plan_with(keys, counters, width, k, block_bits, seed)


def _plan_with(keys: int, counters: int, width: int, hashes: int, block_bits: int, seed: int) -> FilterPlan:
    nbytes = -(-counters * width // 64) * 8
    if block_bits:
        span = block_bits // width
        blocks = counters // span
        rate = theory.blocked(blocks, span, hashes, keys)
        fill = theory.blocked_fill(blocks, span, hashes, keys)
        reads = miss_reads = 1.0
        chance = hit_chance(counters, hashes, span)
    else:
        rate = theory.standard(counters, hashes, keys)
        fill = theory.standard_fill(counters, hashes, keys)
        reads, miss_reads = float(hashes), theory.standard_miss_reads(fill, hashes)
        chance = hit_chance(counters, hashes)
    full = saturation(keys, chance, width)
    return FilterPlan(
        keys=keys,
        policy="counting",
        bits_per_key=nbytes * 8 / keys,
        block_bits=block_bits or None,
        hashes=hashes,
        counter_bits=width,
        fpr=rate,
        reads=reads,
        miss_reads=miss_reads,
        fill=fill,
        saturation=full,
        saturated=counters * full,
        nbytes=nbytes,
        hashing="lanes" if block_bits else "independent",
        seed=seed,
        core=(counters, width, hashes, block_bits),
    )


def _counter_bits(value: object, name: str = "counter_bits") -> int:
    remedy = "Pass 4, enough for keys that are added once"
    number = arguments.integer(name, value, 0, None, remedy)
    if number not in COUNTER_BITS:
        raise arguments.error(name, "2, 4, 8 or 16", value, remedy)
    return number


def _layout(value: object) -> str:
    remedy = 'Pass "flat" for the fewest bits, "blocked" for one memory read'
    return arguments.one_of("layout", value, LAYOUTS, remedy)


register(
    "counting",
    family=Family(rate_of_core, _of_counting_core, ("counters", "counter_bits", "hashes", "block_bits")),
)

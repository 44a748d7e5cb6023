"""Multilevel tables and their summaries: chapter 4 of Kirsch's thesis as calculators.

    the table        distribution, expected_keys, crisis_probability, crisis_bound, collision_sequence
    a rebuild        rebuild_moves, moves_into_first
    the summaries    single_filter_failures, multiple_bloom_failures, interpolation_failure, filter_rate,
                     counter_tail, counters_false_positives; *_bytes
    a design         size_summary, skewed_sizes

What planners need of it is in `evenbins.theory`: `multilevel_law` has the table, `summary_rates` what
summaries do, `summary_size` how large they must be; their names are here too. All are for tables of one slot
a bucket and insertions into an empty table.

Sources: A. Kirsch, "Hash-Based Data Structures for Extreme Conditions" (thesis, 2008), chapter 4; H. Song, S.
Dharmapurikar, J. Turner, J. Lockwood, "Fast hash table lookup using extended Bloom filter" (2005), for the
counters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from evenbins import _arguments as arguments
from evenbins.design.summaries import KINDS, SummarySize, size_summary
from evenbins.study.theory.summary_failures import multiple_bloom_failures, single_filter_failures
from evenbins.theory import counting
from evenbins.theory.multilevel_law import (
    EXACT_KEYS,
    MAX_LEVELS,
    Law,
    checked_keys,
    checked_table,
    crisis_probability,
    distribution,
)
from evenbins.theory.summary_rates import (
    FilterSize,
    checked_filter,
    filter_rate,
    interpolation_bytes,
    interpolation_failure,
    interpolation_false_positives,
    level_bits,
    multiple_bloom_bytes,
    occupancy_bytes,
    single_filter_bytes,
)
from evenbins.theory.summary_size import skewed_sizes

__all__ = [
    "DELETIONS", "EXACT_KEYS", "KINDS", "MAX_LEVELS", "FilterSize", "Law", "SummarySize",
    "collision_sequence", "counter_tail", "counters_bytes", "counters_false_positives", "crisis_bound",
    "crisis_probability", "distribution", "expected_keys", "filter_rate", "interpolation_bytes",
    "interpolation_failure", "interpolation_false_positives", "level_bits", "moves_into_first",
    "multiple_bloom_bytes", "multiple_bloom_failures", "occupancy_bytes", "rebuild_moves",
    "single_filter_bytes", "single_filter_failures", "size_summary", "skewed_sizes",
]  # fmt: skip

DELETIONS = ("random", "first")
"""Models of section 4.10.1: the deleted keys are any, or all in the first sub-table."""


def expected_keys(keys: int, sizes: Sequence[int], *, approximate: bool = False) -> tuple[float, ...]:
    """Compute the mean number of keys in each sub-table.

    Parameters
    ----------
    keys, sizes
        As for `distribution`.
    approximate
        The thesis' heuristic (4.1): every sub-table gets what passes on the mean, and keeps
        m (1 - (1 - 1/m)**x) of x keys. Good until x is a few keys; then even negative.

    Examples
    --------
    >>> sizes = [30_000, 15_000, 7_500, 3_750, 1_875]        # Table 4.1
    >>> [round(each, 2) for each in expected_keys(10_000, sizes)[:4]]
    [8504.18, 1423.67, 71.8, 0.35]
    >>> f"{expected_keys(10_000, sizes)[4]:.2e} {expected_keys(10_000, sizes, approximate=True)[4]:.2e}"
    '1.62e-05 -3.00e-05'
    """
    number, sizes = checked_table(keys, sizes)
    if not approximate:
        return tuple(math.fsum(law.held) for law in distribution(number, sizes)[1:])
    left, placed = float(number), []
    for size in sizes:
        here = -size * math.expm1(left * math.log1p(-1 / size)) if size > 1 else min(left, 1.0)
        placed.append(here)
        left -= here
    return tuple(placed)


def collision_sequence(keys: int, *, first: float, factor: float, levels: int) -> tuple[float, ...]:
    """Return z_0, ..., z_levels of Lemma 4.11.2: z_0 = n, z_i = z_{i-1}**2 / m_i, in closed form.

    Sub-table i has m_i = c1 c2**(i-1) n buckets; then z_i = (1 / (c1 c2))**(2**i - 1) c2**i n. (The thesis
    prints c1**i.)

    Parameters
    ----------
    keys
        n.
    first, factor
        c1, the first sub-table's buckets per key, and c2, the ratio of a sub-table to the one before.
    levels
        The last i.

    Examples
    --------
    >>> collision_sequence(1000, first=4, factor=0.5, levels=2)
    (1000.0, 250.0, 31.25)
    """
    number = checked_keys(keys)
    levels = arguments.integer("levels", levels, 0, 64, "Pass the number of sub-tables")
    for name, value in (("first", first), ("factor", factor)):
        arguments.real(name, value, "", "Pass 4 and 0.5, as the thesis", above=0.0, below=math.inf)
    if first * factor <= 1:
        raise ValueError(
            f"first * factor must be above 1, or the sequence does not fall; got {first} * {factor}. "
            "Enlarge the first sub-table"
        )
    log_base = math.log(first * factor)
    return tuple(  # the power alone would overflow
        number * factor**i * (math.exp(-(2**i - 1) * log_base) if i > 5 else (first * factor) ** (1 - 2**i))
        for i in range(levels + 1)
    )


def crisis_bound(keys: int, sizes: Sequence[int]) -> float:
    """Bound the probability of a crisis as the proof of Theorem 4.11.1 does, with its best r and w.

    P(crisis) <= sum over j <= r of (e/4)**(z_j / 2), that some ``|S_j|`` exceeds z_j = z_{j-1}**2 / m_j,
    + (e/4)**(w/2), that then ``|S_{r+1}|`` exceeds w >= z_r**2 / m_{r+1},
    + the product over the sub-tables i > r + 1 of w (w-1) / (2 m_i), that two of w keys meet.

    Made for asymptotics: at the thesis' sizes far above `crisis_probability`, which is as fast.

    Examples
    --------
    >>> sizes = [40_000, 10_000, 5_000, 2_500, 2_500]
    >>> crisis_probability(10_000, sizes) < crisis_bound(10_000, sizes) <= 1
    True
    """
    number, sizes = checked_table(keys, sizes)
    shrink = math.log(math.e / 4) / 2
    best, before, z = 1.0, 0.0, float(number)  # before: the first sum, up to j = r
    for r in range(len(sizes)):
        if r:
            z = z * z / sizes[r - 1]
            before += math.exp(shrink * z)
        if before >= best:
            break
        least = math.ceil(z * z / sizes[r])
        for w in range(max(least, 1), least + 400):
            product = 1.0
            for size in sizes[r + 1 :]:
                product *= min(w * (w - 1) / (2 * size), 1.0)
            best = min(best, before + math.exp(shrink * w) + product)
    return best


def rebuild_moves(keys: int, deleted: int, sizes: Sequence[int], *, model: str = "random") -> float:
    """Estimate the keys that a rebuild moves after lazy deletions: the thesis' E[M'].

    M' counts the keys that were not deleted and have passed a bucket whose key was. A little too high, for
    of several keys that wait for one bucket only one moves; a little too low, for a bucket that becomes free
    by a move is not counted. The first matters more.

    Parameters
    ----------
    keys
        (1 + alpha) n: keys in the table, the deleted ones included.
    deleted
        alpha n, at most `keys`.
    sizes
        As for `distribution`.
    model
        ``"random"``: any keys are deleted; ``"first"``: only such as are in the first sub-table.

    Examples
    --------
    >>> sizes = [40_000, 10_000, 5_000, 2_500, 2_500]
    >>> [round(rebuild_moves(9_999, 909, sizes, model=model), 2) for model in ("random", "first")]
    [100.02, 118.34]
    """
    number, sizes = checked_table(keys, sizes)
    gone = arguments.integer("deleted", deleted, 0, number, "Pass at most the number of keys")
    arguments.one_of("model", model, DELETIONS, 'Pass "random"')
    kept = number - gone
    if gone == 0 or number == 0:
        return 0.0
    if model == "first":  # the key at T_1[h_1(x)] is one of N - |S_1|, of which `gone` are deleted
        law = distribution(number, sizes[:1])[1]
        passed = law.keys
        moved = np.where(passed > kept, kept, passed * gone / np.maximum(number - passed, 1))
        return math.fsum(law.chance * moved)
    total, log_stays = 0.0, 0.0
    for level, held in enumerate(expected_keys(number, sizes)):
        if level:  # one bucket more that the key has passed
            others = kept - level
            log_stays += math.log1p(-gone / (others + gone)) if others > 0 else -math.inf
        total += held * (kept / number) * -math.expm1(log_stays)
    return total


def moves_into_first(keys: int, deleted: int, size: int) -> float:
    """Compute exactly how many keys a rebuild moves into the first sub-table, if any keys are deleted.

    Its bucket of c >= 2 keys is refilled if the first of them was deleted and one of the others was not; so
    the number is m times the sum over c of
    P(Binomial(N, 1/m) = c) D/N (1 - (D-1)/(N-1) ... (D-c+1)/(N-c+1)).
    Keys of a crisis, which wait nowhere, would be missing. With two sub-tables these are all moves.

    Parameters
    ----------
    keys, deleted
        As for `rebuild_moves`.
    size
        Buckets of the first sub-table.

    Examples
    --------
    >>> moves_into_first(2, 1, 1)        # one bucket: the first key goes or the second
    0.5
    """
    number, (size,) = checked_table(keys, [size])
    gone = arguments.integer("deleted", deleted, 0, number, "Pass at most the number of keys")
    if gone == 0 or number < 2:
        return 0.0
    if size == 1:
        log_chances = np.full(number + 1, -math.inf)
        log_chances[number] = 0.0
    else:
        counts = np.arange(1, number + 1)
        ratios = np.log((number - counts + 1) / counts) - math.log(size - 1)
        log_chances = np.concatenate([[0.0], np.cumsum(ratios)]) + number * math.log1p(-1 / size)
    others_gone, total = 1.0, 0.0
    for c in range(2, number + 1):
        others_gone *= max(gone - c + 1, 0) / (number - c + 1)
        term = math.exp(log_chances[c]) * (1.0 - others_gone)
        total += term
        if c > number / size and term < 1e-20 * total:
            break
    return size * gone / number * total


def counter_tail(
    keys: int, sizes: Sequence[int], level: int, counters: int, hashes: int, least: int, *, once: bool = False
) -> float:
    """Bound the chance that a counter of a counting filter B_level reaches `least` (section 4.10.2).

    The mean over ``|S_level| = l`` of m P(Binomial(l k, 1/m) >= least), at most 1 each; the thesis has
    Poisson's law instead, which ends where l k / m is small.

    Parameters
    ----------
    keys, sizes
        As for `distribution`.
    level
        Which filter: 0 has all keys, i those of S_i.
    counters, hashes
        m and k.
    least
        The value; for counters of b bits that stick, 2**b - 1.
    once
        A key moves a counter once at most, however many of its hashes fall there:
        Binomial(l, 1 - (1 - 1/m)**k).

    Examples
    --------
    >>> sizes = [40_000, 10_000, 5_000, 2_500, 2_500]
    >>> f"{counter_tail(10_000, sizes, 0, 106_000, 7, 15):.1e}"
    '8.6e-11'
    """
    number, checked = checked_table(keys, sizes)
    level = arguments.integer("level", level, 0, len(checked), "Pass 0 for the filter of all keys")
    m, k = checked_filter(FilterSize(counters, hashes), False)
    least = arguments.integer("least", least, 0, 2**32, "Pass the value of a counter, such as 15")
    law = distribution(number, checked)[level]
    hit = counting.hit_chance(m, k)
    total = 0.0
    for here, chance in zip(law.keys, law.chance, strict=True):
        if chance < 1e-60:
            continue
        tail = (
            counting.binomial_tail(int(here), hit, least)
            if once
            else counting.binomial_tail(int(here) * k, 1 / m, least)
        )
        total += chance * min(m * tail, 1.0)
    return total


def counters_false_positives(keys: int, buckets: int, hashes: int) -> float:
    """Compute the false-positive rate of Song et al.'s counters: none of the key's counters is zero.

    Where the keys are, and whether two of them share a bucket, has no formula once the table is pruned:
    `evenbins.study.papers.summary_simulation.simulate_song` has it by simulation.

    Examples
    --------
    >>> round(counters_false_positives(10_000, 131_072, 10), 5)
    0.00188
    """
    return filter_rate(buckets, hashes, keys, partitioned=False)


def counters_bytes(buckets: int, counter_bits: int = 3) -> int:
    """Count the bytes of Song et al.'s counters; they say themselves which buckets are empty.

    >>> counters_bytes(131_072)
    49152
    """
    width = arguments.integer("counter_bits", counter_bits, 1, 64, "Pass 3, as Song et al.")
    return -(-checked_filter(FilterSize(buckets, 1), True).cells * width // 8)

"""Summaries of a multilevel table: how often they are wrong, and what they take.

    key ──▶ summary, in fast memory ──▶ 0: absent        a false positive: absent, and the answer is not 0
                                    └─▶ i: look at T_i    a failure: present in T_i, and the answer is not i

    interpolation    sorted digests of b bits, each with its level (kirsch, section 4.6)
    single-filter    cells of the largest type that was hashed there (4.7.1)
    multiple-bloom   Bloom filters B_0 ... B_{d-1}; B_i has the keys of S_i (4.7.2)
    counters         Song et al.: a counter for each bucket of the table, the key is where it is least (4.3)

A key of type i fails if all its cells are covered by S_i, the keys of higher types, whose number is random:

    E[failures of type i] = sum over l of  E[keys in T_i; |S_i| = l] q_l      (4.4), (4.5), corrected

which bounds the probability that there is one. q_l is the false-positive rate of a filter of l keys:

    partitioned   (1 - (1 - k/m)**l)**k, the thesis' formula, for all its tables; exact if each hash has
                  a part of its own
    unpartitioned E[(X/m)**k], X the cells that l k throws cover: exact (`fpr.rate_by_load`), and lower

All are for hash values that are fully random. A structure that hashes a key to a 64-bit digest first adds
`interpolation_failure(keys, 64)`: two keys of one digest look the same to every filter.

The thesis' (4.4) and (4.5) lost a factor in print: P_{j,i}[j - l] (j - l) q_l. Its last filter of
Table 4.3(b) is missing too: six sub-tables need B_0 ... B_5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evenbins import _arguments as arguments
from evenbins.theory import fpr
from evenbins.theory.multilevel_law import checked_keys, checked_table

__all__ = [
    "FilterSize", "checked_filter", "checked_filters", "filter_rate",
    "interpolation_bytes", "interpolation_failure", "interpolation_false_positives", "level_bits",
    "multiple_bloom_bytes", "occupancy_bytes", "single_filter_bytes", "unpartitioned_rate",
]  # fmt: skip

MAX_HASHES = 256
MAX_CELLS = 2**48


class FilterSize(NamedTuple):
    """A filter: its cells (bits, counters) and hash functions."""

    cells: int
    hashes: int


# --- filters ---------------------------------------------------------------------------------------------


def filter_rate(cells: int, hashes: int, keys: int, *, partitioned: bool = True) -> float:
    """Compute q_l: the chance that all cells of a key are covered by `keys` others.

    Parameters
    ----------
    cells, hashes
        m and k. Partitioned, k is at most m.
    keys
        l.
    partitioned
        The thesis' formula, exact for partitioned filters; else the exact rate of an unpartitioned one.

    Examples
    --------
    >>> f"{filter_rate(120_000, 15, 10_000):.4f} {filter_rate(120_000, 15, 10_000, partitioned=False):.4f}"
    '0.0063 0.0063'
    """
    (m, k), number = checked_filter(FilterSize(cells, hashes), partitioned), checked_keys(keys)
    if not partitioned:
        return unpartitioned_rate(m, k, number)
    if k == m:
        return float(number > 0)
    return float((-math.expm1(number * math.log1p(-k / m))) ** k)


def unpartitioned_rate(cells: int, hashes: int, keys: int) -> float:
    """Compute E[(X/m)**k], exactly, as `fpr.standard` does, without the floor of its digests."""
    if keys == 0:
        return 0.0
    distinct = fpr._distinct(cells, hashes)
    strict, log_diagonal = fpr._one_throw(cells, len(distinct) - 1)
    return fpr._all_set(distinct, fpr._power(strict, log_diagonal, keys * hashes))


# --- digests ---------------------------------------------------------------------------------------------


def interpolation_failure(keys: int, digest_bits: int) -> float:
    """Compute the chance that two of `keys` digests of `digest_bits` bits are equal: the birthday paradox.

    Examples
    --------
    >>> f"{interpolation_failure(10_000, 55):.4e} {interpolation_failure(100_000, 61):.4e}"
    '1.3876e-09 2.1684e-09'
    """
    number, bits = checked_keys(keys), _digest_bits(digest_bits)
    values = 2.0**bits
    if number > values:
        return 1.0
    if values < 2.0**22 * number and number <= 2**20:
        return -math.expm1(math.fsum(np.log1p(-np.arange(number) / values)))
    # the logarithm's series; its third term is below 1e-13 of the first, or the chance is 1
    pairs = number * (number - 1) / 2 / values
    squares = (number - 1) * number * (2 * number - 1) / 6 / values**2
    return -math.expm1(-pairs - squares / 2)


def interpolation_false_positives(keys: int, digest_bits: int) -> float:
    """Compute the chance that an absent key has the digest of one of `keys`, all different: n / 2**b."""
    return min(checked_keys(keys) / 2.0 ** _digest_bits(digest_bits), 1.0)


# --- bytes, the bit table included -----------------------------------------------------------------------


def occupancy_bytes(sizes: Sequence[int]) -> int:
    """Count the bytes of the bit table, one bit a bucket (section 4.4); Song et al.'s counters need none."""
    return -(-sum(checked_table(0, sizes)[1]) // 8)


def level_bits(sizes: Sequence[int]) -> int:
    """Count the bits that say one of the levels 1 ... d."""
    return max((len(checked_table(0, sizes)[1]) - 1).bit_length(), 1)


def interpolation_bytes(keys: int, sizes: Sequence[int], digest_bits: int) -> int:
    """Count the bytes of an interpolation summary: digests with levels.

    >>> interpolation_bytes(10_000, [40_000, 10_000, 5_000, 2_500, 2_500], 55)
    80000
    """
    entry_bits = _digest_bits(digest_bits) + level_bits(sizes)
    return -(-checked_keys(keys) * entry_bits // 8) + occupancy_bytes(sizes)


def single_filter_bytes(sizes: Sequence[int], cells: int) -> int:
    """Count the bytes of a single filter: three cells a byte for up to 5 levels, else whole bits a cell.

    >>> single_filter_bytes([40_000, 10_000, 5_000, 2_500, 2_500], 120_000)
    47500
    """
    levels, m = len(sizes), checked_filter(FilterSize(cells, 1), True).cells
    packed = -(-m * levels.bit_length() // 8)
    return (min(packed, -(-m // 3)) if levels <= 5 else packed) + occupancy_bytes(sizes)


def multiple_bloom_bytes(sizes: Sequence[int], filters: Sequence[tuple[int, int]]) -> int:
    """Count the bytes of multiple Bloom filters, laid one after the other without a gap.

    >>> filters = [(106_000, 7), (87_500, 49), (5_500, 49), (500, 49), (100, 49)]
    >>> multiple_bloom_bytes([40_000, 10_000, 5_000, 2_500, 2_500], filters)
    32450
    """
    each = checked_filters(filters, len(sizes), False)
    return -(-sum(size.cells for size in each) // 8) + occupancy_bytes(sizes)


# --- arguments -------------------------------------------------------------------------------------------


def _digest_bits(value: object) -> int:
    return arguments.integer(
        "digest_bits", value, 1, 512, "Pass 61: with three bits for the level it fills a word"
    )


def checked_filter(size: FilterSize, partitioned: bool) -> FilterSize:
    """Check cells and hashes of a filter."""
    hashes = arguments.integer("hashes", size.hashes, 1, MAX_HASHES, "Pass the number of hash functions")
    least = hashes if partitioned else 1
    rule = f"an integer from {least} to 2**48" + (", one for each hash" if partitioned else "")
    cells = arguments.integer(
        "cells", size.cells, least, MAX_CELLS, "Pass more cells, or fewer hashes", rule=rule
    )
    return FilterSize(cells, hashes)


def checked_filters(
    filters: Sequence[tuple[int, int]], levels: int, partitioned: bool
) -> tuple[FilterSize, ...]:
    """Check the filters of a table's sub-tables."""
    checked = tuple(checked_filter(FilterSize(*each), partitioned) for each in filters)
    if len(checked) != levels:
        raise ValueError(
            f"filters must be one for each of {levels} sub-tables, B_0 ... B_{levels - 1}; got "
            f"{len(checked)}. A small one is enough for the last"
        )
    return checked

"""Multilevel tables and their summaries: chapter 4 of Kirsch's thesis as calculators.

    the table        distribution, expected_keys, crisis_probability, crisis_bound, collision_sequence
    a rebuild        rebuild_moves, moves_into_first
    the summaries    single_filter_failures, multiple_bloom_failures, interpolation_failure, filter_rate,
                     counter_tail, counters_false_positives; *_bytes
    a design         size_summary, skewed_sizes

This module is the door; `_multilevel_law` has the table, `_summary_rates` what summaries do, `_summary_size`
how large they must be. All are for tables of one slot a bucket and insertions into an empty table.

Sources: A. Kirsch, "Hash structures for extreme conditions" (thesis, 2008), chapter 4; H. Song, S.
Dharmapurikar, J. Turner, J. Lockwood, "Fast hash table lookup using extended Bloom filter" (2005), for the
counters.
"""

from __future__ import annotations

from evenbins.theory._multilevel_law import (
    DELETIONS,
    EXACT_KEYS,
    MAX_LEVELS,
    Law,
    collision_sequence,
    crisis_bound,
    crisis_probability,
    distribution,
    expected_keys,
    moves_into_first,
    rebuild_moves,
)
from evenbins.theory._summary_rates import (
    FilterSize,
    counter_tail,
    counters_bytes,
    counters_false_positives,
    filter_rate,
    interpolation_bytes,
    interpolation_failure,
    interpolation_false_positives,
    level_bits,
    multiple_bloom_bytes,
    multiple_bloom_failures,
    occupancy_bytes,
    single_filter_bytes,
    single_filter_failures,
)
from evenbins.theory._summary_size import KINDS, SummarySize, size_summary, skewed_sizes

__all__ = [
    "DELETIONS", "EXACT_KEYS", "KINDS", "MAX_LEVELS", "FilterSize", "Law", "SummarySize",
    "collision_sequence", "counter_tail", "counters_bytes", "counters_false_positives", "crisis_bound",
    "crisis_probability", "distribution", "expected_keys", "filter_rate", "interpolation_bytes",
    "interpolation_failure", "interpolation_false_positives", "level_bits", "moves_into_first",
    "multiple_bloom_bytes", "multiple_bloom_failures", "occupancy_bytes", "rebuild_moves",
    "single_filter_bytes", "single_filter_failures", "size_summary", "skewed_sizes",
]  # fmt: skip

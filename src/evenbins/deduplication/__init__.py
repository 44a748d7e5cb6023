"""Deduplication: the first occurrences of keys, in anything that has rows.

containers      dedup: lists, NumPy, pandas, Polars and Arrow in, the same type out
deduplicator    Deduplicator: batch by batch, with counts, files and merging
stages          digests seen before, approximately: filters
digests         digests seen before, exactly: sets of 128-bit digests
fields          rows of several fields as keys
"""

from typing import TYPE_CHECKING

from evenbins._lazy import lazy_names

if TYPE_CHECKING:
    from evenbins.deduplication.containers import dedup
    from evenbins.deduplication.deduplicator import Deduplicator, DeduplicatorFullError, DedupPlan, DedupStats
    from evenbins.deduplication.fields import Fields

__all__ = ["DedupPlan", "DedupStats", "Deduplicator", "DeduplicatorFullError", "Fields", "dedup"]

_HOMES = {
    "containers": "dedup",
    "deduplicator": "DedupPlan DedupStats Deduplicator DeduplicatorFullError",
    "fields": "Fields",
}

__getattr__ = lazy_names(globals(), _HOMES)

"""First occurrences over partitions that lie on many machines: digests travel, rows do not.

    partition ──▶ digests of its own first occurrences, by bucket ──┐
    partition ──▶ …                                                 ├─▶ a bucket decides: the first partition
    partition ──▶ …                                               ──┘   that has a digest keeps it
    partition ──▶ its rows by the masks of all buckets

Every function here is pure: a task that is repeated gives the same. The order is that of the partitions, and
of the rows in them, however many workers there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evenbins.deduplication.columns import keys_of_column, null_digest
from evenbins.deduplication.digests import DigestSets
from evenbins.deduplication.fields import keys_of
from evenbins.deduplication.pieces import Mask, Words
from evenbins.hashing import digest_many
from evenbins.tables.exact_sets import digest_words

__all__ = ["LocalRows", "decide", "final_mask", "local_rows"]


class LocalRows(NamedTuple):
    """What one partition knows of itself.

    Attributes
    ----------
    kept : rows that are kept whatever other partitions have (nulls, where all of them are)
    firsts : places of the first occurrences in this partition, in the order of their buckets
    buckets : digests of these, for each bucket
    """

    kept: Mask
    firsts: npt.NDArray[np.intp]
    buckets: list[Words]


def _digests(keys: Any, seed: int, exact: bool) -> Words:
    """Return one row of words for each key: 128 bits if exact, else 64."""
    found = keys_of(keys, seed)
    return digest_words(found, seed) if exact else digest_many(found, seed).reshape(-1, 1)


def _first_occurrences(digests: Words) -> Mask:
    if digests.shape[1] == 2:
        return DigestSets(max(1, len(digests)), 0).add_new(digests, 1)
    mask = np.zeros(len(digests), dtype=np.bool_)
    mask[np.unique(digests[:, 0], return_index=True)[1]] = True
    return mask


def local_rows(
    column: Any, buckets: int, *, seed: int, exact: bool, nulls: str, partition: int = 0
) -> LocalRows:
    """Return the first occurrences in one partition, of a column or of `Fields`."""
    keys, is_null = keys_of_column(column, seed)
    digests = _digests(keys, seed, exact)
    kept = np.zeros(len(digests) if is_null is None else len(is_null), dtype=np.bool_)
    places = np.arange(len(kept)) if is_null is None else np.flatnonzero(~is_null)
    if is_null is not None and is_null.any():
        if nulls == "error":
            row = int(np.argmax(is_null))
            raise ValueError(
                f"row {row} of partition {partition} has a null as its key: drop it before, or pass "
                'nulls="keep" or "one"'
            )
        if nulls == "keep":
            kept |= is_null
        else:
            places = np.append(places, np.flatnonzero(is_null)[0])
            null = null_digest(seed, exact=exact).reshape(1, -1)
            digests = np.concatenate([digests, null])
    firsts = _first_occurrences(digests)
    places, digests = places[firsts], digests[firsts]
    chosen = (digests[:, 0] % np.uint64(buckets)).astype(np.int64)
    order = np.argsort(chosen, kind="stable")
    ends = np.cumsum(np.bincount(chosen, minlength=buckets))[:-1]
    return LocalRows(kept, places[order], np.split(digests[order], ends))


def decide(found: Sequence[Words]) -> list[Mask]:
    """Return, for the digests of one bucket from each partition, which of them come first."""
    mask = _first_occurrences(np.concatenate(found))
    return np.split(mask, np.cumsum([len(each) for each in found])[:-1])


def final_mask(local: LocalRows, decisions: Sequence[Mask]) -> Mask:
    """Return the mask of one partition, from what every bucket decided for it."""
    mask = local.kept.copy()
    mask[local.firsts[np.concatenate(decisions)]] = True
    return mask

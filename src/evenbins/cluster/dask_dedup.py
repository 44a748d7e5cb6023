"""Deduplication of Dask collections: first occurrences over all partitions, by tasks of a lazy graph.

The result has the partitions of the collection. Rows stay where they are: workers exchange digests, 16 bytes
(exact) or 8 for each key of each partition (deduplication/partitions.py). A dataframe is read twice, first
the columns of the key, then all; so it must give the same rows both times, and no partition waits in memory
for the others. Where the key is the whole row, partitions are read once and do wait.
"""

from __future__ import annotations

from typing import Any

from evenbins import _arguments as arguments
from evenbins.cluster.libraries import library
from evenbins.deduplication.columns import checked_nulls
from evenbins.deduplication.containers import item_keys, row_keys
from evenbins.deduplication.partitions import LocalRows, decide, final_mask, local_rows

__all__ = ["dedup"]

_MOST_BUCKETS = 16  # each is a task that has its share of all digests; there are two small ones per partition


def dedup(
    collection: Any, key: Any = None, *, exact: bool = False, nulls: str = "error", seed: int = 0
) -> Any:
    """Return a Dask dataframe, series or bag with the first occurrences of its rows; nothing is computed yet.

    The first is the one in the first partition that has the key, and there in the first row, whatever the
    number of workers.

    Parameters
    ----------
    collection
        A Dask dataframe, series or bag. It is read twice: call `persist()` first on one that does not give
        the same rows each time.
    key
        A column's name or several, or for bags a function of an item or names in it; the whole row if None.
    exact
        Compare 128 bits of each key, not 64. With 64 bits a new key is dropped with a probability of
        n / 2**64 among n keys: 5e-11 among a billion.
    nulls, seed
        As for `evenbins.dedup`.

    Raises
    ------
    ImportError
        Dask is missing.

    Examples
    --------
    >>> import dask.bag
    >>> words = dask.bag.from_sequence(["ant", "bee", "ant", "cat", "bee"], npartitions=3)
    >>> dedup(words).compute(scheduler="synchronous")
    ['ant', 'bee', 'cat']
    """
    delayed = library("dask", "dask").delayed
    if not hasattr(collection, "to_delayed") or not hasattr(collection, "npartitions"):
        raise TypeError(
            "collection must be a Dask dataframe, series or bag, not "
            f"{type(collection).__name__}: use evenbins.dedup for what is in memory"
        )
    options = {
        "exact": arguments.flag("exact", exact), "nulls": checked_nulls(nulls), "seed": arguments.seed(seed),
    }  # fmt: skip
    is_bag = not hasattr(collection, "_meta")
    names = None
    if not is_bag:
        row_keys(collection._meta, key)  # a wrong name raises now
        names = key if key is None else list(key) if isinstance(key, list | tuple) else [key]
    keyed = collection if names is None else collection[names]
    buckets = min(_MOST_BUCKETS, collection.npartitions)
    find = delayed(_local, pure=False)
    locals_ = [
        find(part, names if not is_bag else key, is_bag, buckets, number, options)
        for number, part in enumerate(keyed.to_delayed())
    ]
    decided = [
        delayed(decide, pure=False)([delayed(_bucket, pure=False)(each, number) for each in locals_])
        for number in range(buckets)
    ]
    choose = delayed(_chosen, pure=False)
    results = [
        choose(part, local, [each[number] for each in decided], is_bag)
        for number, (part, local) in enumerate(zip(collection.to_delayed(), locals_, strict=True))
    ]
    if is_bag:
        return library("dask.bag", "dask").from_delayed(results)
    divisions = collection.divisions if collection.known_divisions else None
    make = library("dask.dataframe", "dask").from_delayed
    return make(results, meta=collection._meta, divisions=divisions, verify_meta=False)


def _local(
    part: Any, key: Any, is_bag: bool, buckets: int, number: int, options: dict[str, Any]
) -> LocalRows:
    keys = item_keys(list(part), key) if is_bag else row_keys(part, key)
    return local_rows(keys, buckets, partition=number, **options)


def _bucket(local: LocalRows, number: int) -> Any:
    return local.buckets[number]


def _chosen(part: Any, local: LocalRows, decisions: list[Any], is_bag: bool) -> Any:
    mask = final_mask(local, decisions)
    if not is_bag:
        return part[mask]
    return [item for item, kept in zip(part, mask.tolist(), strict=True) if kept]

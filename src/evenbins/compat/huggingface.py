"""Hugging Face datasets: the rows to keep, decided once, for `Dataset.filter` in any number of processes.

    dataset ──its Arrow columns, in the parent──▶ FirstRows (a bit per row) ──pickled──▶ every process

A filter that remembers keys while it runs would be wrong with num_proc: every process has its own memory, and
keeps a first occurrence of its own. So the mask is computed before, from the key's columns alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins.deduplication.columns import checked_nulls
from evenbins.deduplication.containers import keep_rows, row_keys
from evenbins.deduplication.deduplicator import Deduplicator, DedupStats

__all__ = ["FirstRows", "first_rows"]

_BATCH = 1 << 17


class FirstRows:
    """A function of an example and its index: whether the row is a first occurrence. It can be pickled.

    With `batched=True` it takes lists of both, and returns a list. Equal masks have equal pickles, so that
    the cache of datasets works.

    Attributes
    ----------
    rows : rows of the dataset
    stats : what the Deduplicator counted, `expected_wrong` among it
    """

    def __init__(self, mask: npt.NDArray[np.bool_], stats: DedupStats) -> None:
        self.rows, self.stats, self._bits = len(mask), stats, np.packbits(mask)

    @property
    def indices(self) -> npt.NDArray[np.int64]:
        """The rows to keep, for `dataset.select(indices)`."""
        return np.flatnonzero(np.unpackbits(self._bits, count=self.rows)).astype(np.int64)

    def __call__(self, example: Any, index: Any) -> bool | list[bool]:
        """Return whether the row of an index is kept; for a list of them, a list."""
        places = np.asarray(index)
        if places.size and not 0 <= places.min() <= places.max() < self.rows:
            raise IndexError(f"index must be 0 to {self.rows - 1}: this function is for another dataset")
        found = self._bits[places >> 3] >> (7 - (places & 7)) & 1
        return bool(found) if places.ndim == 0 else found.astype(bool).tolist()


def first_rows(
    dataset: Any, key: Any = None, *, exact: bool = False, fpr: float = 1e-9, capacity: int | None = None,
    nulls: str = "error", seed: int = 0,
) -> FirstRows:  # fmt: skip
    """Return a function for `dataset.filter(…, with_indices=True, num_proc=…)` that keeps first occurrences.

    Parameters
    ----------
    dataset
        A `datasets.Dataset`. For an `IterableDataset` use `evenbins.dedup(dataset, key=…)`.
    key
        A column's name, or several; the whole row if None.
    exact, fpr, capacity, nulls, seed
        As for `evenbins.dedup`.

    Examples
    --------
    >>> from datasets import Dataset
    >>> dataset = Dataset.from_dict({"url": ["x", "y", "x"], "n": [1, 2, 3]})
    >>> keep = first_rows(dataset, "url")
    >>> keep({}, 0), keep({}, 2), keep.indices.tolist()
    (True, False, [0, 1])
    """
    rule = checked_nulls(nulls)
    if not hasattr(dataset, "with_format") or not hasattr(dataset, "select"):
        raise TypeError(
            f"dataset must be a datasets.Dataset, not {type(dataset).__name__}: use evenbins.dedup for others"
        )
    if key is not None:
        names = list(key) if isinstance(key, list | tuple) else [key]
        if missing := [name for name in names if name not in dataset.column_names]:
            raise KeyError(f"key {missing[0]!r}: there is no such column. There are {dataset.column_names}")
        dataset = dataset.select_columns(names)
    seen = Deduplicator(exact=exact, fpr=fpr, capacity=capacity, seed=seed)
    masks, rows = [np.zeros(0, dtype=np.bool_)], 0
    for table in dataset.with_format("arrow").iter(_BATCH):
        masks.append(keep_rows(seen, row_keys(table, key), rule, rows))
        rows += table.num_rows
    return FirstRows(np.concatenate(masks), seen.stats())

"""Song et al.'s counters (kirsch, section 4.3): the summary that the thesis compares with, built once."""

from __future__ import annotations

import math
from typing import SupportsFloat, SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins._bulk import Key
from evenbins.tables.summaries import Summary, SummaryPlan, plan_of_summary_core

__all__ = ["CounterSummary", "plan_counters"]

MAX_HASHES, MAX_WIDTH, MAX_CELLS = 64, 16, 2**48


def plan_counters(
    capacity: SupportsIndex | SupportsFloat,
    *,
    buckets: int | None = None,
    choices: int = 10,
    counter_bits: int = 3,
    seed: int = 0,
) -> SummaryPlan:
    """Plan Song et al.'s counters; by default 13.1 buckets a key, ten choices and three bits, as they have.

    Examples
    --------
    >>> plan = plan_counters(10_000, buckets=131_072)
    >>> plan.nbytes - 64, round(plan.false_positives, 4)
    (49152, 0.0019)
    """
    keys = arguments.capacity(capacity)
    if buckets is None:
        buckets = math.ceil(13.1072 * keys)
    buckets = arguments.integer("buckets", buckets, 1, MAX_CELLS, "Pass 13 for each key")
    choices = arguments.integer("choices", choices, 1, MAX_HASHES, "Pass 10, as Song et al.")
    width = arguments.integer("counter_bits", counter_bits, 1, MAX_WIDTH, "Pass 3, as Song et al.")
    return plan_of_summary_core((choices, buckets, width), number=12, keys=keys, seed=arguments.seed(seed))


class CounterSummary(Summary):
    """Song et al.'s summary: a counter for each bucket of a table, the key lies where it is least (4.3).

    Built once from all keys (`add_many` without levels), for comparison: their table puts every key into all
    its `choices` buckets, then *prunes*: a key stays where the counter is least, of equal ones in the first.
    `level` answers which choice, from 1; `bucket_many` which bucket.

    Parameters
    ----------
    capacity
        Keys to plan for (n).
    buckets
        Of the table (m); by default 13.1 for each key, as they have.
    choices
        Buckets of a key (d).
    counter_bits
        Bits of a counter; a full one sticks.
    seed
        0 … 2**64-1.

    Examples
    --------
    >>> s = CounterSummary(10_000)
    >>> s.add_many(range(10_000))
    >>> s.loads(range(10_000))                      # buckets of 0 and 1 keys after pruning
    [121072, 10000]
    """

    __slots__ = ()
    _kind = 12

    def __init__(
        self,
        capacity: SupportsIndex | SupportsFloat,
        *,
        buckets: int | None = None,
        choices: int = 10,
        counter_bits: int = 3,
        seed: int = 0,
    ) -> None:
        self._build(
            plan_counters(capacity, buckets=buckets, choices=choices, counter_bits=counter_bits, seed=seed)
        )

    def add(self, key: Key, level: SupportsIndex = 1, /) -> None:
        """Count a key; where it lies is known when all keys are counted."""
        super().add(key, level)

    def add_many(
        self, keys: object, levels: object = 1, *, digests: bool = False, threads: int | None = None
    ) -> None:
        """Count many keys."""
        super().add_many(keys, levels, digests=digests, threads=threads)

    def bucket_many(self, keys: object, *, digests: bool = False) -> npt.NDArray[np.int64]:
        """Return the bucket that each key lies in after pruning; -1 for a key that is not in."""
        words, shape = self._digests(keys, digests)
        found = self._buckets(words).view(np.int64)
        return found if shape is None else found.reshape(shape)

    def loads(self, keys: object) -> list[int]:
        """Count the buckets that hold 0, 1, … of these keys after pruning."""
        found = self.bucket_many(keys)
        counts = np.bincount(np.unique(found[found >= 0], return_counts=True)[1], minlength=1)
        counts[0] = self._core[1] - int(counts.sum())
        return [int(each) for each in counts]

    def _need_removal(self) -> None:
        raise TypeError(
            "a CounterSummary is built once and cannot forget a key: use a summary with counting=True"
        )

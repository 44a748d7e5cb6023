"""A filter from which keys can be removed: a counter where a Bloom filter has a bit (kirsch, section 2.1.2).

    add       each of the key's counters goes up by one; a full one stays
    in        all of them are above zero
    remove    all of them are above zero: each goes down by one, but a full one stays. Otherwise KeyError
    count     the least of them

Two positions of a key may coincide; that counter moves once. Filters hold keys as often as they were added
(a multiset): adding twice and removing once leaves the key in.

The promise: no key is missed that was added more often than it was removed, whatever else was added and
removed, full counters or not. Its one exception: a removal of a key that was *never added* but looks
present, which the rate of false positives makes possible. It takes from other keys' counters, and one of
them may be missed afterwards. So remove only what was added.

A full counter (its value is 2**counter_bits - 1) may stand for more keys than it can say, so it sticks: it
is never lowered again. Keys whose counters are all full stay "present" after their removal: false
positives, never false negatives. `plan.saturated` says how many to expect, `stats().saturated` how many
there are.
"""

from __future__ import annotations

import warnings
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins import _bulk
from evenbins._bulk import Key
from evenbins.filters.base import BaseFilter
from evenbins.filters.protocols import FilterStats
from evenbins.theory import FilterPlan, fpr, plan_counting
from evenbins.theory.counting import COUNTER_BITS, SATURATION_BOUND, keys_from_counters

__all__ = ["CountingBloomFilter"]


class CountingBloomFilter(BaseFilter):
    """The counting Bloom filter: like `BloomFilter`, but keys can be removed and counted.

    It takes `counter_bits` times the memory of the filter with bits. Merging (`|`) adds the
    counters: the merged filter holds a key as often as both together.

    Parameters
    ----------
    capacity, fpr, bits_per_key, hashes, seed
        As for `BloomFilter`; `bits_per_key` counts memory, `counter_bits` for each counter.
    counter_bits
        Bits of a counter: 2, 4, 8 or 16. Four are enough for keys that are added once; a key that is
        added 2**counter_bits - 1 times, or more often, cannot be removed again.
    layout
        "flat": a key's counters lie anywhere, the fewest for a rate. "blocked": in one cache line, so
        one memory read; more counters, and at most 32 hashes.

    Warns
    -----
    UserWarning
        Some counter will be full with a probability above 1e-3, though every key is added once.

    Examples
    --------
    >>> c = CountingBloomFilter(10_000, fpr=1e-3)
    >>> c.add_many(["apple", "apple", "pear"])
    >>> c.count("apple"), c.count("plum")
    (2, 0)
    >>> c.remove("pear")
    >>> "pear" in c, "apple" in c
    (False, True)
    """

    __slots__ = ()
    _kind = 5
    _policies = ("counting",)

    @property
    def _policy(self) -> str:
        return "counting"

    def __init__(
        self,
        capacity: SupportsIndex | SupportsFloat,
        fpr: float | None = None,
        *,
        bits_per_key: float | None = None,
        hashes: int | None = None,
        counter_bits: int = 4,
        layout: str = "flat",
        seed: int = 0,
    ) -> None:
        plan = plan_counting(
            capacity, fpr=fpr, bits_per_key=bits_per_key, hashes=hashes, counter_bits=counter_bits,
            layout=layout, seed=seed,
        )  # fmt: skip
        if plan.saturated > SATURATION_BOUND:
            warnings.warn(_full_counters(plan), UserWarning, stacklevel=2)
        self._build(plan)

    @property
    def counter_bits(self) -> int:
        """Bits of a counter."""
        return self._core[1]

    @property
    def layout(self) -> str:
        """Where a key's counters lie: "flat", anywhere, or "blocked", in one cache line."""
        return "blocked" if self._core[3] else "flat"

    # --- keys out, and how often they are in -------------------------------------------------------

    def remove(self, key: Key, /) -> None:
        """Remove one key once.

        Remove only keys that were added: one that never was, but looks present, takes from the
        counters of others, and these may be missed from then on.

        Raises
        ------
        KeyError
            The key is not in the filter; nothing has changed.

        Examples
        --------
        >>> c = CountingBloomFilter(100)
        >>> c.add("a")
        >>> c.remove("a")
        >>> c.remove("a")
        Traceback (most recent call last):
        KeyError: 'a'
        """
        if not self._remove(key):
            raise KeyError(key)

    def remove_many(self, keys: object, *, digests: bool = False, threads: int = 1) -> npt.NDArray[np.bool_]:
        """Remove many keys, in their order, and tell for each whether it was there.

        Takes what `add_many` takes. A key that is not there changes nothing and answers False;
        nothing is raised for it. `threads` has no effect: whether a key can be removed depends on those
        before it.

        Examples
        --------
        >>> c = CountingBloomFilter(100)
        >>> c.add_many(["a", "b"])
        >>> c.remove_many(["a", "a", "b"])
        array([ True, False,  True])
        """
        source, shape = _bulk.key_source(keys, digests=digests)
        _bulk.checked_threads(threads)
        removed = self._remove_from(source)
        return removed if shape is None else removed.reshape(shape)

    def count(self, key: Key, /) -> int:
        """Return how often a key has been added, at most: the least of its counters.

        An answer of 2**counter_bits - 1 means so often *or more*: all its counters are full. Any other
        answer is an upper bound, and the exact number unless other keys share all the key's counters.
        """
        return self._count(key)

    def count_many(self, keys: object, *, digests: bool = False, threads: int = 1) -> npt.NDArray[np.int64]:
        """Answer `count(key)` for many keys; takes what `add_many` takes.

        Examples
        --------
        >>> c = CountingBloomFilter(100, counter_bits=8)
        >>> c.add_many(["a", "b"] * 20)
        >>> c.count_many(["a", "c"])
        array([20,  0])
        """
        source, shape = _bulk.key_source(keys, digests=digests)
        counts = self._count_from(source, _bulk.checked_threads(threads)).view(np.int64)  # by this name
        return counts if shape is None else counts.reshape(shape)

    # --- the filter as a whole ---------------------------------------------------------------------

    @property
    def _block_counters(self) -> int | None:
        return self._core[3] // self._core[1] or None

    def stats(self) -> FilterStats:
        """Measure this very filter: computed from its counters, in two passes over them.

        `keys` are the keys in the filter, repeats counted, estimated from the sum of the counters;
        too few once counters are full. `approx_items` estimates the distinct ones.
        """
        counters, width, hashes, block_bits = self._core
        values = np.array(self._counter_histogram(), dtype=np.float64)
        total = int(values @ np.arange(len(values)))
        used = counters - int(values[0])
        fill = used / counters
        common: dict[str, Any] = {
            "keys": keys_from_counters(counters, hashes, total, self._block_counters),
            "overflow": 0.0,
            "fill": fill,
            "saturated": int(values[-1]),
            "nbytes": self.nbytes,
            "bits_per_key": 8 * self.nbytes / self._capacity,
        }
        if not block_bits:
            return FilterStats(
                fpr=fill**hashes,
                reads=float(hashes),
                miss_reads=fpr.standard_miss_reads(fill, hashes),
                loads=(),
                **common,
            )
        span = block_bits // width
        loads = np.array(self._set_bits_histogram(block_bits), dtype=np.float64)
        rates = (np.arange(span + 1) / span) ** hashes
        return FilterStats(
            fpr=float(loads @ rates / loads.sum()),
            reads=1.0,
            miss_reads=1.0,
            loads=(tuple(int(n) for n in loads),),
            **common,
        )

    def approx_items(self) -> float:
        """Estimate the number of distinct keys, from the counters above zero; infinite when all are."""
        counters, _, hashes, _ = self._core
        span, used = self._block_counters, self._set_bits()
        if span is None:
            return fpr.keys_from_standard_fill(counters, hashes, used)
        return fpr.keys_from_blocked_fill(counters // span, span, hashes, used)

    def _check(self) -> None:
        super()._check()
        values = self._counter_histogram()
        assert sum(values) == self._core[0]
        assert self._core[0] - values[0] == self._set_bits()


def _full_counters(plan: FilterPlan) -> str:
    width, counters = plan.counter_bits, plan.core[0]
    assert width is not None
    wider = next((bits for bits in COUNTER_BITS if bits > width), None)
    way_out = f"Pass counter_bits={wider}" if wider else "Pass a larger capacity"
    return (
        f"counter_bits={width} is narrow for {plan.keys} keys: {plan.saturated:.3g} of {counters} counters "
        f"are expected to be full, where they stick, so that removed keys may still be found; a filter "
        f"without this warning expects at most {SATURATION_BOUND:g}. {way_out}, or give more bits_per_key"
    )

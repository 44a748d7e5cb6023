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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, SupportsFloat, SupportsIndex

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins._bulk import Key
from evenbins.filters.base import BaseFilter, planned_by
from evenbins.filters.plan import OF_CORE, FilterPlan, FilterStats, Request
from evenbins.theory import block
from evenbins.theory import fpr as theory
from evenbins.theory.counting import hit_chance, keys_from_counters, saturation

__all__ = ["CountingBloomFilter", "CountingCore", "CountingPlan", "CountingStats", "plan_counting"]


COUNTER_BITS = (2, 4, 8, 16)
LAYOUTS = ("flat", "blocked")
BLOCK_BITS = 512
SATURATION_BOUND = 1e-3
"""The probability of a full counter above which `CountingBloomFilter` warns."""


class CountingCore(NamedTuple):
    """The integers of a counting filter; `block_bits` is 0 without blocks."""

    counters: int
    counter_bits: int
    hashes: int
    block_bits: int

    @property
    def block_counters(self) -> int | None:
        """Counters of a block, None without blocks."""
        return self.block_bits // self.counter_bits or None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CountingPlan(FilterPlan):
    """The plan of a counting filter.

    Attributes
    ----------
    block_bits : bits of a block, None without blocks
    hashes : counters moved by each key (k)
    counter_bits : bits of a counter
    saturation, saturated : probability that a counter is full, and the number expected to be
    """

    _core_names = CountingCore._fields

    block_bits: int | None = field(compare=False)
    hashes: int = field(compare=False)
    counter_bits: int = field(compare=False)
    saturation: float = field(compare=False)
    saturated: float = field(compare=False)
    core: CountingCore

    @classmethod
    def of_core(cls, policy: str, core: Sequence[int], keys: int, seed: int, hashing: str) -> CountingPlan:
        """Check the integers of a core and predict a filter with them."""
        counters, width, hashes, block_bits = core
        width = _checked_counter_bits(width, "core[1] (counter_bits)")
        counters = arguments.integer("core[0] (counters)", counters, 1, theory.MAX_BITS // width, OF_CORE)
        block_bits = arguments.integer("core[3] (block_bits)", block_bits, 0, BLOCK_BITS, OF_CORE)
        if block_bits not in (0, BLOCK_BITS):
            raise arguments.error("core[3] (block_bits)", "0 or 512", block_bits, OF_CORE)
        most = theory.MAX_HASHES_BLOCKED if block_bits else theory.MAX_HASHES_STANDARD
        hashes = arguments.integer("core[2] (hashes)", hashes, 1, most, OF_CORE)
        if block_bits and counters * width % BLOCK_BITS:
            rule = f"a multiple of {BLOCK_BITS // width}, the counters of a block"
            raise arguments.error("core[0] (counters)", rule, counters, OF_CORE)
        checked = CountingCore(counters, width, hashes, block_bits)
        if span := checked.block_counters:
            rate = theory.blocked(counters // span, span, hashes, keys)
            fill = theory.blocked_fill(counters // span, span, hashes, keys)
            reads = miss_reads = 1.0
        else:
            rate = theory.standard(counters, hashes, keys)
            fill = theory.standard_fill(counters, hashes, keys)
            reads, miss_reads = float(hashes), theory.standard_miss_reads(fill, hashes)
        full = saturation(keys, hit_chance(counters, hashes, span), width)
        nbytes = -(-counters * width // 64) * 8
        return cls(
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
            core=checked,
        )

    @property
    def load_unit(self) -> str:
        """What a block's load counts."""
        return "counters"

    def planned_loads(self, blocks: int) -> Sequence[npt.NDArray[np.float64]]:
        """Return the planned shares of blocks with 0, 1, 2, … counters above zero."""
        span = self.core.block_counters
        return (block.set_bits_at_load(span, self.hashes, self.keys / blocks),) if span else ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CountingStats(FilterStats):
    """What a counting filter measures on itself.

    Attributes
    ----------
    saturated : number of full counters
    loads : for one level, how many blocks have 0, 1, 2, … counters above zero; empty without blocks
    """

    saturated: int
    loads: tuple[tuple[int, ...], ...]


def plan_counting(
    capacity: SupportsIndex | SupportsFloat, fpr: float | None = None, *, bits_per_key: float | None = None,
    hashes: int | None = None, counter_bits: int = 4, layout: str = "flat", seed: int = 0,
) -> CountingPlan:  # fmt: skip
    """Plan a counting filter: the fewest counters for `fpr`, or the best use of `bits_per_key`.

    Parameters and errors are those of `CountingBloomFilter`.

    Examples
    --------
    >>> plan = plan_counting(10_000, fpr=1e-3)
    >>> plan.core
    CountingCore(counters=143779, counter_bits=4, hashes=10, block_bits=0)
    >>> f"{plan.saturated:.1e}"
    '2.4e-10'
    """
    remedy = 'Pass "flat" for the fewest bits, "blocked" for one memory read'
    flat = arguments.one_of("layout", layout, LAYOUTS, remedy) == "flat"
    most = theory.MAX_HASHES_STANDARD if flat else theory.MAX_HASHES_BLOCKED
    asked = Request.of(capacity, fpr, bits_per_key, hashes, seed, most=most)
    width = _checked_counter_bits(counter_bits)
    if flat:
        counters = asked.size(width, theory.standard_bits)
        k = asked.hashes or theory.best_hashes_standard(counters, asked.keys)
    else:
        span = BLOCK_BITS // width
        blocks = asked.size(BLOCK_BITS, lambda keys, rate, k: theory.blocked_blocks(keys, rate, span, k))
        k = asked.hashes or theory.best_hashes_blocked(blocks, span, asked.keys)
        counters = blocks * span
    arguments.check_total(counters * width, "fpr", fpr)
    core = (counters, width, k, 0 if flat else BLOCK_BITS)
    return CountingPlan.of_core("counting", core, asked.keys, asked.seed, "")


def _checked_counter_bits(value: object, name: str = "counter_bits") -> int:
    remedy = "Pass 4, enough for keys that are added once"
    number = arguments.integer(name, value, 0, None, remedy)
    if number not in COUNTER_BITS:
        raise arguments.error(name, "2, 4, 8 or 16", value, remedy)
    return number


class CountingBloomFilter(BaseFilter):
    """The counting Bloom filter: like `BloomFilter`, but keys can be removed and counted.

    It takes `counter_bits` times the memory of the filter with bits. Merging (`|` or `+`) adds the
    counters: the merged filter holds a key as often as both together.

    Parameters
    ----------
    capacity, fpr, bits_per_key, hashes, seed
        As for `BloomFilter`; `bits_per_key` counts memory, `counter_bits` for each counter. At most 64
        hashes, in a block 32.
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
    _plan_class = CountingPlan
    _planner = staticmethod(plan_counting)

    @planned_by(plan_counting)
    def __init__(self) -> None: ...

    __add__, __iadd__ = BaseFilter.__or__, BaseFilter.__ior__  # merging adds the counters

    @staticmethod
    def _warn_of_plan(plan: FilterPlan) -> None:
        if plan.saturated > SATURATION_BOUND:
            warnings.warn(_full_counters(plan), UserWarning, stacklevel=3)

    @property
    def _numbers(self) -> CountingCore:
        return CountingCore(*self._core)

    @property
    def counter_bits(self) -> int:
        """Bits of a counter."""
        return self._numbers.counter_bits

    @property
    def layout(self) -> str:
        """Where a key's counters lie: "flat", anywhere, or "blocked", in one cache line."""
        return "blocked" if self._numbers.block_bits else "flat"

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

    def remove_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.bool_]:
        """Remove many keys, in their order, and tell for each whether it was there.

        Takes what `add_many` takes. A key that is not there changes nothing and answers False;
        nothing is raised for it. `threads` is the most threads that share the work (None: as many as pay
        off); the result does not depend on it. Of a "flat" filter they share the hashing alone, since
        whether a key can be removed depends on those before it.

        Examples
        --------
        >>> c = CountingBloomFilter(100)
        >>> c.add_many(["a", "b"])
        >>> c.remove_many(["a", "a", "b"])
        array([ True, False,  True])
        """
        return self._remove_all(keys, digests, threads)

    def count(self, key: Key, /) -> int:
        """Return how often a key has been added, at most: the least of its counters.

        An answer of 2**counter_bits - 1 means so often *or more*: all its counters are full. Any other
        answer is an upper bound, and the exact number unless other keys share all the key's counters.
        """
        return self._count(key)

    def count_many(
        self, keys: object, *, digests: bool = False, threads: int | None = None
    ) -> npt.NDArray[np.int64]:
        """Answer `count(key)` for many keys; takes what `add_many` takes.

        Examples
        --------
        >>> c = CountingBloomFilter(100, counter_bits=8)
        >>> c.add_many(["a", "b"] * 20)
        >>> c.count_many(["a", "c"])
        array([20,  0])
        """
        return self._count_all(keys, digests, threads)

    # --- the filter as a whole ---------------------------------------------------------------------

    def stats(self) -> CountingStats:
        """Measure this very filter: computed from its counters, in two passes over them.

        `keys` are the keys in the filter, repeats counted, estimated from the sum of the counters;
        too few once counters are full. `approx_items` estimates the distinct ones.
        """
        counters, _, hashes, block_bits = self._core
        span = self._numbers.block_counters
        values = np.array(self._counter_histogram(), dtype=np.float64)
        total = int(values @ np.arange(len(values)))
        fill = (counters - int(values[0])) / counters
        if span is None:
            rate, reads, miss_reads = fill**hashes, float(hashes), theory.standard_miss_reads(fill, hashes)
            loads: tuple[tuple[int, ...], ...] = ()
        else:
            used = np.array(self._set_bits_histogram(block_bits), dtype=np.float64)
            rate = float(used @ (np.arange(span + 1) / span) ** hashes / used.sum())
            reads = miss_reads = 1.0
            loads = (tuple(int(n) for n in used),)
        return CountingStats(
            keys=keys_from_counters(counters, hashes, total, span),
            fpr=rate,
            reads=reads,
            miss_reads=miss_reads,
            fill=fill,
            saturated=int(values[-1]),
            loads=loads,
            nbytes=self.nbytes,
            bits_per_key=8 * self.nbytes / self._capacity,
        )

    def approx_items(self) -> float:
        """Estimate the number of distinct keys, from the counters above zero; infinite when all are."""
        counters, _, hashes, _ = self._core
        span, used = self._numbers.block_counters, self._set_bits()
        if span is None:
            return theory.keys_from_standard_fill(counters, hashes, used)
        return theory.keys_from_blocked_fill(counters // span, span, hashes, used)

    def _check(self) -> None:
        super()._check()
        values = self._counter_histogram()
        assert sum(values) == self._numbers.counters
        assert self._numbers.counters - values[0] == self._set_bits()


def _full_counters(plan: FilterPlan) -> str:
    counters, width, _, _ = plan.core
    wider = next((bits for bits in COUNTER_BITS if bits > width), None)
    way_out = f"Pass counter_bits={wider}" if wider else "Pass a larger capacity"
    return (
        f"counter_bits={width} is narrow for {plan.keys} keys: {plan.saturated:.3g} of {counters} counters "
        f"are expected to be full, where they stick, so that removed keys may still be found; a filter "
        f"without this warning expects at most {SATURATION_BOUND:g}. {way_out}, or give more bits_per_key"
    )

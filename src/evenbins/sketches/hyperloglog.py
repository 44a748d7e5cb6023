"""HyperLogLog: how many different keys were there? In a few kilobytes, to about one percent.

Each key's digest chooses a register, which keeps the longest run of zeros seen; the registers' histogram
tells the number of different keys (theory/distinct.py). Few keys are kept one by one, and counted nearly
exactly. The same keys, in any order, leave the same bytes. Calls from several threads take turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evenbins import _arguments as arguments
from evenbins import _bulk, _core
from evenbins._keywords import explain_keywords
from evenbins._show import ReprMixin
from evenbins.structure import Mergeable, Plan
from evenbins.theory import distinct

__all__ = ["DistinctPlan", "DistinctStats", "HyperLogLog", "plan_hyperloglog"]

_LEAST, _MOST = 4, 18


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class DistinctPlan(Plan):
    """A HyperLogLog's design and its predicted behaviour; equal plans can be merged.

    Attributes
    ----------
    precision : bits of a digest that choose a register: there are 2**precision
    error : relative standard error of `count()`
    nbytes : bytes of the sketch once it is dense
    seed : seed of the digests
    """

    _identity = ("precision", "seed")
    _in_one_line = ("precision", "error", "nbytes")

    precision: int
    error: float
    nbytes: int
    seed: int

    @property
    def registers(self) -> int:
        """How many there are: 2**precision."""
        return self.nbytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DistinctStats(ReprMixin):
    """What a HyperLogLog measures on itself; each name means the same as in its plan.

    Attributes
    ----------
    keys : estimated number of different keys
    error : relative standard error of that estimate; of a sparse sketch two digests collide so rarely that it
        is that of their 25 bits
    sparse : whether keys are still kept one by one
    fill : fraction of registers above 0, or of the entries' room that is used
    nbytes : bytes of the sketch
    """

    keys: float
    error: float
    sparse: bool
    fill: float
    nbytes: int


def plan_hyperloglog(
    precision: int | None = None, *, error: float | None = None, seed: int = 0
) -> DistinctPlan:
    """Plan a HyperLogLog: as for the class."""
    if precision is not None and error is not None:
        raise arguments.error("error", "left out where precision is given", error, "Pass one of the two")
    if error is not None:
        least, most = (distinct.error_of_precision(each) for each in (_MOST, _LEAST))
        rule, remedy = f"a number from {least:.5f} to {most:.2f}", "Pass 0.01 for one percent"
        wanted = arguments.real("error", error, rule, remedy, least=least, most=most)
        precision = next(p for p in range(_LEAST, _MOST + 1) if distinct.error_of_precision(p) <= wanted)
    bits = 14 if precision is None else precision
    bits = arguments.integer("precision", bits, _LEAST, _MOST, "Pass 14 for an error of 0.8 %")
    return DistinctPlan(
        precision=bits, error=distinct.error_of_precision(bits), nbytes=2**bits, seed=arguments.seed(seed)
    )


class HyperLogLog(_core.Distinct, Mergeable[DistinctPlan]):
    """The number of different keys of a stream, in fixed memory: to about 0.8 % in 16 kB.

    Parameters
    ----------
    precision
        4 to 18: there are 2**precision registers of a byte, and the relative standard error of the count is
        1.04 / 2**(precision / 2). 14 if neither this nor `error` is given.
    error
        The relative standard error instead of `precision`: the fewest registers that have it.
    seed
        0 … 2**64-1. With a secret random seed nobody can choose keys that are counted wrong.

    Examples
    --------
    >>> h = HyperLogLog()
    >>> h.add_many(range(1000)); h.add_many(range(500))
    >>> round(h.count())
    1000
    >>> big = HyperLogLog(error=0.01)
    >>> import numpy as np
    >>> big.add_many(np.arange(1_000_000))
    >>> abs(big.count() / 1_000_000 - 1) < 0.04
    True
    """

    __slots__ = ("_cached_plan",)
    _plan_class = DistinctPlan
    _noun = "HyperLogLog"

    @explain_keywords
    def __init__(self, precision: int | None = None, *, error: float | None = None, seed: int = 0) -> None:
        self._build(plan_hyperloglog(precision, error=error, seed=seed))

    def _core_arguments(self, plan: DistinctPlan) -> tuple[Any, ...]:
        return plan.seed, plan.precision

    def _plan_of_core(self) -> DistinctPlan:
        precision, _ = self._core
        return plan_hyperloglog(precision, seed=self._seed)

    def _shown(self) -> list[tuple[str, object]]:
        plan = self.plan
        return [
            ("precision", plan.precision),
            ("error", plan.error),
            ("keys", self.count()),
            ("nbytes", self.nbytes),
        ]

    def _compared(self) -> list[tuple[str, object, object]]:
        plan, stats = self.plan, self.stats()
        return [
            ("keys", None, stats.keys), ("error", plan.error, stats.error), ("fill", None, stats.fill),
            ("nbytes", plan.nbytes, stats.nbytes),
        ]  # fmt: skip

    def add_many(self, keys: object, *, digests: bool = False, threads: int | None = None) -> None:
        """Add many keys: a NumPy array, an Arrow column or stream, or any iterable, as to a filter.

        At most `threads` threads add; None: as many as this process has cores. The bytes do not depend on it.
        """
        source, _ = _bulk.key_source(keys, digests=digests)
        self._add_from(source, _bulk.checked_threads(threads))

    def update(self, *keys: object) -> None:
        """Add the keys of each argument, as `set.update` does; see `add_many`."""
        for each in keys:
            self.add_many(each)

    def count(self) -> float:
        """Estimate the number of different keys added."""
        return self.stats().keys

    def stats(self) -> DistinctStats:
        """Measure this very sketch, from its registers."""
        dense, entries, histogram, nbytes = self._state()
        if dense:
            keys, error = distinct.estimate_dense(histogram), self.plan.error
            fill = 1.0 - histogram[0] / sum(histogram)
        else:
            keys = distinct.estimate_sparse(entries)
            error = distinct.sparse_error(entries)
            fill = entries / ((nbytes - 8) // 4)
        return DistinctStats(keys=keys, error=error, sparse=not dense, fill=fill, nbytes=nbytes)

    def __len__(self) -> int:
        raise TypeError("the number of different keys is an estimate, and no integer: use count()")

    def __bool__(self) -> bool:
        return True  # as every structure is; without it Python would ask for the length

    def clear(self) -> None:
        """Forget all keys."""
        self._clear()

    def _check(self) -> None:
        """Assert every invariant of the structure; for tests."""
        broken = self._invariant()
        assert not broken, broken
        assert self.nbytes <= max(self.plan.nbytes, 24)

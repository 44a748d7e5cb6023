"""A hash table of chains, placed by the policies of the papers, with the cost of its look-ups predicted.

    policy            a key goes to                                              a look-up reads
    "single"          its one bin, unless that is full                           1 bin
    "sequential"      the first of d bins of one table that is not full          1 … d bins, in this order
    "multilevel"      the same, one bin in each of d tables of falling size      1 … d bins, in this order
    "least-loaded"    the shortest chain of d bins: d-way chaining               d bins, until found
    "d-left"          the shortest of d bins, one a table, ties to the left      d bins, until found

The first three are of kanizo (Appendix C): at so many reads of an insertion no scheme has chains whose
lengths vary less. The others are of kirsch, section 2.1.3. `plan` predicts what `stats()` measures: the
lengths of the chains, the longest, and the mean and variance of the entries that a look-up compares.
docs/chained.md tells when which is better.

Threads: any number of readers, or one writer; writers take turns by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, SupportsFloat, SupportsIndex

import numpy as np

from evenbins import _arguments as arguments
from evenbins import _core, _show
from evenbins._bulk import Key
from evenbins._core import FormatError
from evenbins._show import ReprMixin
from evenbins.structure import Structure
from evenbins.tables.mapping import TableMapping
from evenbins.theory import chain_plan
from evenbins.theory.chain_plan import ChainPlan, plan_chains, plan_of_chain_core

__all__ = ["ChainStats", "ChainedTable"]

_SIDE_BY_SIDE = (
    "keys", "load", "overflow", "mean", "variance", "max_load", "insertion_reads", "reads", "miss_reads",
    "query_mean", "query_variance", "miss_mean", "miss_variance", "nbytes",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChainStats(ReprMixin):
    """What a chained table measures on itself; each name means the same as in its plan.

    Attributes
    ----------
    keys : keys in the table
    policy : how keys are placed
    load : keys per bin, those in overflow chains counted
    loads : entry i: number of bins with i keys; overflow chains are not bins
    overflow_loads : entry i: number of overflow chains with i keys
    mean, variance : of the keys in a bin
    overflow : fraction of keys in the overflow chains
    max_load : the longest chain, overflow chains counted
    insertion_reads : mean bins whose load an insertion looked at, since the table was made or cleared
    reads, query_mean, query_variance : bins read and entries compared by a look-up, over all keys in the
        table: exact
    miss_reads, miss_mean, miss_variance : the same for an absent key, over all keys there could be: exact
    moves : 0; an entry stays in its chain
    nbytes : bytes of the table
    """

    keys: int
    policy: str
    load: float
    loads: tuple[int, ...]
    overflow_loads: tuple[int, ...]
    mean: float
    variance: float
    overflow: float
    max_load: int
    insertion_reads: float
    reads: float
    query_mean: float
    query_variance: float
    miss_reads: float
    miss_mean: float
    miss_variance: float
    moves: float
    nbytes: int

    def __repr__(self) -> str:
        return _show.line("ChainStats", [row for row in self._rows() if not isinstance(row[1], tuple)])


class ChainedTable(_core.Chains, TableMapping, Structure[ChainPlan]):
    """A hash table of chains: keys to 64-bit values, in memory of a fixed size.

    Entries lie in an arena for `capacity` keys. One key more raises TableFullError and changes nothing; the
    room of deleted keys is used again. Iterating yields keys in the order of the arena: as inserted, until
    keys are deleted.

    Parameters
    ----------
    capacity
        Keys the table can hold (n), 1 to 2**31 - 2.
    policy
        "multilevel", "sequential", "single", "least-loaded" or "d-left": see the module.
    choices
        Bins a key may use (d), 2 to 8; when None 3, and 2 for "least-loaded" and "d-left".
    reads
        Mean bins that an insertion of "multilevel" or "sequential" looks at (a), above 1 and below `choices`;
        1.2 when None. From it follow thresholds, coin, the sizes of the tables and the fraction in overflow
        chains.
    load
        Keys per bin when the table is full (r), 0.01 to 64. Few keys per bin: short chains, more memory.
    overflow
        For "single": fraction of keys in overflow chains, 0.005 when None; with 0 it is plain chaining.
    key_dtype
        "int64" or "uint64": integers, told apart exactly. "digest": str and bytes, told apart by XXH3-128
        with the seed; two of n keys are taken for one with a probability of n**2/2**129.
    value_dtype
        "int64", "uint64" or "float64".
    seed
        0 … 2**64-1. With a secret random seed nobody can choose keys that collide.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range, or does not belong to the policy.

    Examples
    --------
    >>> t = ChainedTable(1000, load=4)
    >>> t[7] = 49
    >>> t[7], t.get(8, -1), 8 in t
    (49, -1, False)
    >>> t.insert_many(range(500), 1)
    >>> len(t), t[7]
    (500, 1)
    >>> names = ChainedTable(10, policy="d-left", key_dtype="digest", value_dtype="float64")
    >>> names["pi"] = 3.14
    >>> names
    ChainedTable(policy='d-left', keys=1, capacity=10, choices=2, load=1, nbytes=576 B)
    """

    __slots__ = ("_cached_plan",)
    _plan_class = ChainPlan
    _side_by_side = _SIDE_BY_SIDE

    def _core_arguments(self, plan: ChainPlan) -> tuple[Any, ...]:
        return plan.keys, plan.seed, list(plan.core)

    def _plan_of_core(self) -> ChainPlan:
        return plan_of_chain_core(self._core, keys=self._capacity, seed=self._seed)

    def _shown(self) -> list[tuple[str, object]]:
        core = self._core
        return [
            ("policy", chain_plan.policy_of(core)), ("keys", len(self)), ("capacity", self._capacity),
            ("choices", core[1]), ("load", self._capacity / sum(core[6::2])), ("nbytes", self.nbytes),
        ]  # fmt: skip

    @classmethod
    def _from_data(cls, data: Any, *, mapped: bool, verify: bool) -> Self:
        table = super()._from_data(data, mapped=mapped, verify=verify)
        try:
            chain_plan.checked_core(table._core)
        except ValueError as error:
            raise FormatError(f"the header describes no possible table: {error}") from None
        return table

    def __init__(
        self,
        capacity: SupportsIndex | SupportsFloat,
        *,
        policy: str = "multilevel",
        choices: int | None = None,
        reads: float | None = None,
        load: float = 1.0,
        overflow: float | None = None,
        key_dtype: str = "int64",
        value_dtype: str = "int64",
        seed: int = 0,
    ) -> None:
        self._build(
            plan_chains(
                capacity,
                policy=policy,
                choices=choices,
                reads=reads,
                load=load,
                overflow=overflow,
                key_dtype=key_dtype,
                value_dtype=value_dtype,
                seed=seed,
            )
        )

    def grown(self, capacity: SupportsIndex | SupportsFloat) -> Self:
        """Make a table for more keys, with all items of this one: same policy, thresholds and load.

        Raises
        ------
        ValueError
            The capacity is less than the number of keys in this table.

        Examples
        --------
        >>> t = ChainedTable(2)
        >>> t.insert_many([1, 2], [10, 20])
        >>> big = t.grown(100)
        >>> big[1], big.capacity, big.plan.policy
        (10, 100, 'multilevel')
        """
        keys = chain_plan.checked_capacity(capacity)
        if keys < len(self):
            raise arguments.unmet(
                "capacity", f" must be at least the {len(self)} keys in the table; got {keys}"
            )
        core = chain_plan.scaled_core(self._core, self._capacity, keys)
        table = type(self).from_plan(plan_of_chain_core(core, keys=keys, seed=self._seed))
        table._store_all(self, are_new=True)
        return table

    def probe(self, key: Key) -> tuple[int, int, int, bool]:
        """Return how a look-up of this key goes: level, bins read, entries compared, overflow chain read.

        The level is counted from 1, the overflow chains' after the others; it is 0 if the key is absent.
        """
        return self._probe(key)

    @property
    def _key_type(self) -> int:
        return self._core[3]

    @property
    def _value_type(self) -> int:
        return self._core[4]

    @property
    def capacity(self) -> int:
        """The number of keys the table can hold."""
        return self._capacity

    def stats(self) -> ChainStats:
        """Measure this very table: one pass over its bins, and one over its keys.

        Examples
        --------
        >>> t = ChainedTable(100_000, load=8)
        >>> t.insert_many(range(100_000), 0)
        >>> stats = t.stats()
        >>> stats.max_load, t.plan.max_load
        (9, 9)
        >>> abs(stats.variance - t.plan.variance) < 0.1, abs(stats.query_mean - t.plan.query_mean) < 0.1
        (True, True)
        """
        from evenbins.theory.chains import absent_query

        core = self._core
        (keys, _, _, overflowing, insertions, insertion_reads, *_), loads, queries = self._measure()
        reads, compared, squares = queries
        overflow = loads.pop() if core[5] else ([1], [0])
        bins = core[6::2]
        tables = [np.array(all_, np.float64) / n for (all_, _), n in zip(loads, bins, strict=True)]
        passed = [np.array(on, np.float64) / n for (_, on), n in zip(loads, bins, strict=True)]
        listed = np.array(overflow[0], np.float64) / max(core[5], 1)
        miss_reads, miss_mean, miss_variance = absent_query(
            core[1], tables, passed if core[5] else tables, listed
        )
        longest = max(len(all_) for all_, _ in loads)
        counts = [sum(all_[i] for all_, _ in loads if i < len(all_)) for i in range(longest)]
        total = sum(bins)
        held = sum(i * n for i, n in enumerate(counts))
        mean = held / total
        return ChainStats(
            keys=keys,
            policy=chain_plan.policy_of(core),
            load=keys / total,
            loads=tuple(counts),
            overflow_loads=tuple(overflow[0]) if core[5] else (),
            mean=mean,
            variance=sum(n * (i - mean) ** 2 for i, n in enumerate(counts)) / total,
            overflow=overflowing / keys if keys else 0.0,
            max_load=max(longest, len(overflow[0])) - 1,
            insertion_reads=insertion_reads / insertions if insertions else 0.0,
            reads=reads / keys if keys else 0.0,
            query_mean=compared / keys if keys else 0.0,
            query_variance=(squares * keys - compared * compared) / keys**2 if keys else 0.0,
            miss_reads=miss_reads,
            miss_mean=miss_mean,
            miss_variance=miss_variance,
            moves=0.0,
            nbytes=self.nbytes,
        )

    # --- for people ----------------------------------------------------------------------------------

    def _check(self) -> None:
        """Assert every invariant of the structure; for tests."""
        broken = self._invariant()
        assert not broken, broken
        assert self.nbytes == chain_plan.chain_bytes(self._core, self._capacity)
        assert chain_plan.checked_core(self._core) == tuple(self._core)
        assert len(self) <= self._capacity

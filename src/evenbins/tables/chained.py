"""A hash table of chains, placed by the policies of the papers, with the cost of its look-ups predicted.

    policy            a key goes to                                              a look-up reads
    "single"          its one bin, unless that is full                           1 bin
    "sequential"      the first of d bins of one table that is not full          1 … d bins, in this order
    "multilevel"      the same, one bin in each of d tables of falling size      1 … d bins, in this order
    "least-loaded"    the shortest chain of d bins: d-way chaining               d bins, until found
    "d-left"          the shortest of d bins, one a table, ties to the left      d bins, until found

The first three are of kanizo (Appendix C): at so many reads of an insertion no scheme has chains whose
lengths vary less. They take the threshold, coin and shares with which they reach the lower bound of the
variance (`balance.best_*`); the overflow follows from the reads, except for "single", where it is given.
Keys that all their bins refuse are the paper's overflow list (its mean load is (1 - gamma) n/m). Here the
list is a few chains of their own, two for each key expected, so that a look-up in it costs no scan. The
others are of kirsch, section 2.1.3. `plan` predicts what `stats()` measures: the lengths of the chains, the
longest, and the mean and variance of the entries that a look-up compares. docs/chained.md says when which is
better.

    core = (policy, choices, coin, key type, value type, overflow_bins, bins_0, threshold_0, bins_1,
    threshold_1, …)

Invariants: a plan that is returned can be built; two plans are equal exactly when capacity, seed and core
are. The capacity is the number of entries in the arena: no more keys than that can be stored, and predictions
are for it. Threads: any number of readers, or one writer; writers take turns by themselves.

Tried and dropped: no list, a refused key into the shortest of its chains. It is simpler, and in simulations
of "multilevel" at 1.2 reads and loads of 1, 4 and 8 its variance was only 1.0, 1.7 and 2.4 % above the bound
without overflow; but "single" would have no policy left, and the bound would be missed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, SupportsFloat, SupportsIndex

import numpy as np

from evenbins import _arguments as arguments
from evenbins import _core, _show
from evenbins._bulk import Key
from evenbins._keywords import explain_keywords
from evenbins._show import ReprMixin
from evenbins.structure import Plan, Structure
from evenbins.tables._keys import KEY_TYPES, checked_dtypes, dtype_names
from evenbins.tables.inference import FromItems
from evenbins.tables.mapping import TableMapping
from evenbins.theory.chain_walk import BALANCED, Layout

__all__ = ["ChainPlan", "ChainStats", "ChainedTable", "plan_chains", "plan_of_chain_core"]

POLICIES = {"single": 1, "sequential": 2, "multilevel": 3, "least-loaded": 6, "d-left": 7}  # 4, 5: filters
MAX_KEYS = 2**31 - 2
MAX_BINS = 2**40
MAX_CHOICES = 8
MAX_LOAD = 64.0
MIN_LOAD = 0.01
NEVER_FULL = 2**31
DEFAULT_READS = 1.2
DEFAULT_OVERFLOW = 0.005
_COIN_UNIT = 2**32
_STATE_BYTES = 64
_SHOWN_LOADS = 1e-12  # of a plan's loads: the tail below this is left out


class ChainCore(NamedTuple):
    """An integer core by names; of "least-loaded" and "d-left" all thresholds are 0."""

    policy: str
    choices: int
    coin: int
    key_type: int
    value_type: int
    overflow_bins: int
    bins: tuple[int, ...]
    thresholds: tuple[int, ...]

    @classmethod
    def of(cls, core: Sequence[int]) -> ChainCore:
        """Read a core that is known to be right: a table's own, or a file's."""
        number, choices, coin, key_type, value_type, overflow_bins, *tables = core
        policy = next(name for name, each in POLICIES.items() if each == number)
        bins, thresholds = tuple(tables[0::2]), tuple(tables[1::2])
        return cls(policy, choices, coin, key_type, value_type, overflow_bins, bins, thresholds)

    @property
    def integers(self) -> tuple[int, ...]:
        """The core again."""
        tables = [number for pair in zip(self.bins, self.thresholds, strict=True) for number in pair]
        return (POLICIES[self.policy], *self[1:6], *tables)

    @property
    def layout(self) -> Layout:
        """What predictions depend on."""
        thresholds = self.thresholds if self.policy in BALANCED else ()
        return Layout(
            policy=self.policy, choices=self.choices, bins=self.bins, thresholds=thresholds, coin=self.coin,
            overflow_bins=self.overflow_bins,
        )  # fmt: skip

    def nbytes(self, capacity: int) -> int:
        """Count the bytes of a table: state, bins, links with keys, values, each in whole 64-byte lines.

        Examples
        --------
        >>> ChainCore.of((3, 3, 0, 1, 1, 10, 100, 8)).nbytes(1000)
        21440
        """
        bin_words = 3 if self.policy in BALANCED else 2
        entry_words = 5 if self.key_type == KEY_TYPES["digest"] else 3
        bins = sum(self.bins) + self.overflow_bins
        parts = (_STATE_BYTES, 4 * bin_words * bins, 4 * entry_words * capacity, 8 * capacity)
        return sum(-(-part // 64) * 64 for part in parts)

    def scaled(self, capacity: int, keys: int) -> ChainCore:
        """Return the core of the same design for another number of keys: the same load and thresholds.

        Examples
        --------
        >>> ChainCore.of((3, 2, 5, 1, 1, 10, 100, 8, 20, 8)).scaled(1000, 2000).integers
        (3, 2, 5, 1, 1, 20, 200, 8, 40, 8)
        """
        overflow_bins, *bins = (-(-each * keys // capacity) for each in (self.overflow_bins, *self.bins))
        return self._replace(overflow_bins=overflow_bins, bins=tuple(bins))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ChainPlan(Plan):
    """A chained table's design, and what it will be like when it is full.

    Equality and hash look at keys, seed and core alone. A query's time is the number of entries it compares.

    Attributes
    ----------
    keys : keys the table can hold (n)
    policy : "single", "sequential", "multilevel", "least-loaded" or "d-left"
    choices : bins a key may use (d)
    load : keys per bin (r), those in overflow chains counted
    shares : sizes of the tables as fractions (alpha)
    thresholds : keys from which a bin of each table does not simply accept (h); empty without thresholds
    coin : chance (p) that a bin of exactly `threshold` keys accepts one more; None without thresholds
    insertion_reads : mean bins whose load an insertion looks at (a)
    reads, miss_reads : mean bins that a look-up of a present, of an absent key reads; overflow chains not
        counted
    overflow : fraction of keys in the overflow chains (gamma)
    loads : entry i: fraction of bins with i keys, to the last above 1e-12
    mean, variance : of the keys in a bin
    variance_bound : the least variance that any scheme of these insertion reads and this overflow can have
    query_mean, query_variance : of the entries compared for a key in the table, each key as often as any
        other
    miss_mean, miss_variance : of the entries compared for an absent key
    max_load : the longest chain, overflow chains counted: the median over tables
    max_load_law : what its growth is proportional to, but for a constant; None with thresholds, where it is
        bounded
    bins, overflow_bins : bins of all tables together; overflow chains
    nbytes : bytes of the table, everything counted
    key_dtype, value_dtype : how keys and values are stored
    seed : seed of the digests
    core : the integers stored and compared by (see the module)
    """

    _in_one_line = (
        "keys", "policy", "choices", "load", "reads", "overflow", "variance", "query_mean", "max_load",
        "nbytes",
    )  # fmt: skip

    keys: int
    policy: str
    choices: int
    load: float
    shares: tuple[float, ...]
    thresholds: tuple[int, ...]
    coin: float | None
    insertion_reads: float
    reads: float
    miss_reads: float
    overflow: float
    loads: tuple[float, ...]
    mean: float
    variance: float
    variance_bound: float
    query_mean: float
    query_variance: float
    miss_mean: float
    miss_variance: float
    max_load: int
    max_load_law: float | None
    bins: int
    overflow_bins: int
    nbytes: int
    key_dtype: str
    value_dtype: str
    seed: int
    core: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChainStats(ReprMixin):
    """What a chained table measures on itself; each name means the same as in its plan.

    Attributes
    ----------
    keys : keys in the table
    policy, load, mean, variance, overflow, max_load : as in the plan
    loads : entry i: number of bins with i keys; overflow chains are not bins
    overflow_loads : entry i: number of overflow chains with i keys
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


class ChainedTable(_core.Chains, FromItems, TableMapping, Structure[ChainPlan]):
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
    key_dtype, value_dtype, seed
        As for `MultilevelTable`.

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
    _types_at = 3
    _side_by_side = (
        "keys", "load", "overflow", "mean", "variance", "max_load", "insertion_reads", "reads", "miss_reads",
        "query_mean", "query_variance", "miss_mean", "miss_variance", "nbytes",
    )  # fmt: skip

    def _plan_of_core(self) -> ChainPlan:
        return plan_of_chain_core(self._core, keys=self._capacity, seed=self._seed)

    def _shown(self) -> list[tuple[str, object]]:
        core = ChainCore.of(self._core)
        return [
            ("policy", core.policy), ("keys", len(self)), ("capacity", self._capacity),
            ("choices", core.choices), ("load", self._capacity / sum(core.bins)), ("nbytes", self.nbytes),
        ]  # fmt: skip

    def _check_core(self) -> None:
        _checked_core(self._core)

    @explain_keywords
    def __init__(
        self, capacity: SupportsIndex | SupportsFloat, *, policy: str = "multilevel",
        choices: int | None = None, reads: float | None = None, load: float = 1.0,
        overflow: float | None = None, key_dtype: str = "int64", value_dtype: str = "int64", seed: int = 0,
    ) -> None:  # fmt: skip
        self._build(
            plan_chains(
                capacity, policy=policy, choices=choices, reads=reads, load=load, overflow=overflow,
                key_dtype=key_dtype, value_dtype=value_dtype, seed=seed,
            )
        )  # fmt: skip

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
        keys = _checked_capacity(capacity)
        if keys < len(self):
            raise arguments.unmet(
                "capacity", f" must be at least the {len(self)} keys in the table; got {keys}"
            )
        core = ChainCore.of(self._core).scaled(self._capacity, keys)
        table = type(self).from_plan(plan_of_chain_core(core.integers, keys=keys, seed=self._seed))
        table._store_all(self, are_new=True)
        return table

    def probe(self, key: Key) -> tuple[int, int, int, bool]:
        """Return how a look-up of this key goes: level, bins read, entries compared, overflow chain read.

        The level is counted from 1, the overflow chains' after the others; it is 0 if the key is absent.
        """
        return self._probe(key)

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

        core = ChainCore.of(self._core)
        (keys, _, _, overflowing, insertions, insertion_reads, *_), loads, queries = self._measure()
        reads, compared, squares = queries
        overflow = loads.pop() if core.overflow_bins else ([1], [0])
        bins = core.bins
        tables = [np.array(all_, np.float64) / n for (all_, _), n in zip(loads, bins, strict=True)]
        passed = [np.array(on, np.float64) / n for (_, on), n in zip(loads, bins, strict=True)]
        listed = np.array(overflow[0], np.float64) / max(core.overflow_bins, 1)
        miss_reads, miss_mean, miss_variance = absent_query(
            core.choices, tables, passed if core.overflow_bins else tables, listed
        )
        longest = max(len(all_) for all_, _ in loads)
        counts = [sum(all_[i] for all_, _ in loads if i < len(all_)) for i in range(longest)]
        total = sum(bins)
        held = sum(i * n for i, n in enumerate(counts))
        mean = held / total
        return ChainStats(
            keys=keys,
            policy=core.policy,
            load=keys / total,
            loads=tuple(counts),
            overflow_loads=tuple(overflow[0]) if core.overflow_bins else (),
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

    def _check(self) -> None:
        broken, core = self._invariant(), _checked_core(self._core)
        assert not broken, broken
        assert self.nbytes == core.nbytes(self._capacity)
        assert core.integers == tuple(self._core)
        assert len(self) <= self._capacity


# --- planning --------------------------------------------------------------------------------


def plan_chains(
    capacity: SupportsIndex | SupportsFloat, *, policy: str = "multilevel", choices: int | None = None,
    reads: float | None = None, load: float = 1.0, overflow: float | None = None, key_dtype: str = "int64",
    value_dtype: str = "int64", seed: int = 0,
) -> ChainPlan:  # fmt: skip
    """Plan a chained table; parameters as of `ChainedTable`.

    `reads` belongs to "sequential" and "multilevel", the others always read 1 or all `choices`; `overflow` to
    "single", for the others it follows from the reads.

    Examples
    --------
    >>> plan = plan_chains(1_000_000, load=8)
    >>> plan.thresholds, round(plan.overflow, 5), round(plan.variance, 3), plan.max_load
    ((8, 8, 8), 0.00498, 2.106, 9)
    >>> round(plan_chains(1_000_000, policy="d-left", load=8).variance, 3)
    0.83
    """
    from evenbins.theory import balance  # on demand: a table that is loaded needs none of it

    keys = _checked_capacity(capacity)
    name = arguments.one_of("policy", policy, tuple(POLICIES), 'Leave it out for "multilevel"')
    rule = f"a number of keys per bin from {MIN_LOAD:g} to {MAX_LOAD:g}"
    load = arguments.real("load", load, rule, "Pass for example 4", least=MIN_LOAD, most=MAX_LOAD)
    d = _choices(name, choices)
    if reads is not None and name not in ("sequential", "multilevel"):
        raise arguments.unmet(
            "reads",
            f" belongs to sequential and multilevel; policy={name!r} always looks at {d} of its bins. "
            "Leave it out",
        )
    if overflow is not None and name != "single":
        raise arguments.unmet(
            "overflow",
            f" belongs to single; with policy={name!r} it follows from the reads, or is none. Leave it out",
        )
    shares: tuple[float, ...] = (1.0 / d,) * d if name == "d-left" else (1.0,)
    threshold, coin, overflow_bins = 0, 0.0, 0
    if name in BALANCED:
        if name == "single":
            found = balance.best_single(load, DEFAULT_OVERFLOW if overflow is None else overflow)
        else:
            how = balance.best_sequential if name == "sequential" else balance.best_multilevel
            found = how(DEFAULT_READS if reads is None else reads, load, d)
        threshold = NEVER_FULL if found.threshold is None else found.threshold
        coin, shares = found.coin, found.shares
        overflow_bins = max(1, math.ceil(2 * found.overflow * keys))
    total = math.ceil(keys / load)
    rest = [max(1, round(total * share)) for share in shares[1:]]
    bins = (max(1, total - sum(rest)), *rest)
    types = checked_dtypes(key_dtype, value_dtype)
    core = ChainCore(name, d, round(coin * _COIN_UNIT), *types, overflow_bins, bins, (threshold,) * len(bins))
    return plan_of_chain_core(core.integers, keys=keys, seed=arguments.seed(seed))


def plan_of_chain_core(core: Sequence[int], *, keys: int, seed: int) -> ChainPlan:
    """Check an integer core and predict anew: the plan of a table that was loaded."""
    from evenbins.theory import chains
    from evenbins.theory.bucket import best, variance_of

    checked = _checked_core(core)
    keys = _checked_capacity(keys)
    layout = checked.layout
    seen = chains.predict(layout, keys)
    bins = sum(layout.bins)
    last = int((seen.loads > _SHOWN_LOADS).nonzero()[0][-1])
    bounded = layout.balanced and not (layout.policy == "single" and layout.thresholds[0] >= NEVER_FULL)
    key_dtype, value_dtype = dtype_names(checked.key_type, checked.value_type)
    return ChainPlan(
        keys=keys,
        policy=layout.policy,
        choices=layout.choices,
        load=keys / bins,
        shares=tuple(each / bins for each in layout.bins),
        thresholds=layout.thresholds if bounded else (),
        coin=layout.coin / _COIN_UNIT if bounded else None,
        insertion_reads=seen.insertion_reads,
        reads=seen.reads,
        miss_reads=seen.miss_reads,
        overflow=seen.overflow,
        loads=tuple(seen.loads[: last + 1].tolist()),
        mean=seen.mean,
        variance=seen.variance,
        variance_bound=variance_of(best(seen.insertion_reads, keys / bins, seen.overflow)[2]),
        query_mean=seen.query_mean,
        query_variance=seen.query_variance,
        miss_mean=seen.miss_mean,
        miss_variance=seen.miss_variance,
        max_load=chains.median_of_max(chains.max_load_chances(layout, seen.tables, seen.overflow_loads)),
        max_load_law=None if bounded else chains.asymptotic_max_load(layout.policy, layout.choices, keys),
        bins=bins,
        overflow_bins=layout.overflow_bins,
        nbytes=checked.nbytes(keys),
        key_dtype=key_dtype,
        value_dtype=value_dtype,
        seed=arguments.seed(seed),
        core=checked.integers,
    )


def _checked_capacity(value: object) -> int:
    keys = arguments.capacity(value)
    if keys > MAX_KEYS:
        rule = "at most 2**31 - 2 keys, since entries are linked by 32 bits"
        raise arguments.error("capacity", rule, value, "Use a MultilevelTable, or several tables")
    return keys


def _choices(policy: str, value: object) -> int:
    if policy == "single":
        if value is not None and arguments.integer("choices", value, 1, MAX_CHOICES, "Leave it out") != 1:
            raise arguments.error("choices", '1 for policy="single"', value, 'Pass policy="multilevel"')
        return 1
    if value is None:
        return 3 if policy in BALANCED else 2
    remedy = 'Pass for example 3; with 1 choice it is policy="single"'
    return arguments.integer("choices", value, 2, MAX_CHOICES, remedy)


def _checked_core(core: Sequence[int]) -> ChainCore:
    """Check every integer of a core by the rules of its policy."""
    rule = "six integers and a pair for each table of a chained table"
    remedy = "Pass a table's plan.core"
    numbers = arguments.integers("core", core, rule, remedy)
    if len(numbers) < 8 or len(numbers) % 2:
        raise arguments.error("core", rule, core, remedy)
    number, choices, *_ = numbers
    if number not in POLICIES.values():
        raise arguments.error("core[0] (policy)", "1, 2, 3, 6 or 7", number, remedy)
    found = ChainCore.of(numbers)
    single, balanced = found.policy == "single", found.policy in BALANCED
    tables = choices if found.policy in ("multilevel", "d-left") else 1
    threshold = 0 if not balanced else NEVER_FULL if single else 10**6
    limits = (
        ("policy", 1, 7), ("choices", 1 if single else 2, 1 if single else MAX_CHOICES),
        ("coin", 0, _COIN_UNIT if balanced else 0), ("key type", 1, 3), ("value type", 1, 3),
        ("overflow_bins", int(balanced), MAX_BINS if balanced else 0),
        *(("bins", 1, MAX_BINS), ("threshold", 0, threshold)) * len(found.bins),
    )  # fmt: skip
    for place, (name, least, most) in enumerate(limits):
        arguments.integer(f"core[{place}] ({name})", numbers[place], least, most, remedy)
    if len(found.bins) != tables:
        raise arguments.error("core", "a pair for each table of the policy", core, remedy)
    if single and 10**6 < found.thresholds[0] < NEVER_FULL:
        raise arguments.error("core[7] (threshold)", "at most 10**6, or 2**31", found.thresholds[0], remedy)
    return found

"""Plans of chained tables: from what a user asks for to an integer core, with predictions beside it.

    capacity, policy, choices, reads, load, overflow ──▶ bins, thresholds, coin ──▶ ChainPlan

The policies of kanizo take the threshold, coin and shares with which they reach the lower bound of the
variance at so many reads (`balance.best_*`); the overflow follows from the reads, except for "single",
where it is given. Keys that all their bins refuse are the paper's overflow list (Appendix C keeps it: its
mean load is (1 - gamma) n/m). Here the list is a few chains of their own, two for each key expected, so that
a look-up in it costs no scan.

    core = (policy, choices, coin, key type, value type, overflow_bins, bins_0, threshold_0, bins_1,
    threshold_1, …)

Invariants: a plan that is returned can be built; two plans are equal exactly when capacity, seed and core
are. The capacity is the number of entries in the arena: no more keys than that can be stored, and predictions
are for it.

Tried and dropped: no list, a refused key into the shortest of its chains. It is simpler, and in simulations
of "multilevel" at 1.2 reads and loads of 1, 4 and 8 its variance was only 1.0, 1.7 and 2.4 % above the bound
without overflow; but "single" would have no policy left, and the bound would be missed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins._show import ReprMixin

__all__ = [
    "KEY_DTYPES", "VALUE_DTYPES", "ChainPlan", "chain_bytes", "checked_capacity", "checked_core",
    "plan_chains", "plan_of_chain_core", "policy_of", "scaled_core",
]  # fmt: skip

KEY_DTYPES = ("int64", "uint64", "digest")  # by their number in the core, from 1
VALUE_DTYPES = ("int64", "uint64", "float64")
BALANCED = ("single", "sequential", "multilevel")
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
_IN_ONE_LINE = (
    "keys", "policy", "choices", "load", "reads", "overflow", "variance", "query_mean", "max_load", "nbytes",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChainPlan(ReprMixin):
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

    _in_one_line = _IN_ONE_LINE

    keys: int
    policy: str = field(compare=False)
    choices: int = field(compare=False)
    load: float = field(compare=False)
    shares: tuple[float, ...] = field(compare=False)
    thresholds: tuple[int, ...] = field(compare=False)
    coin: float | None = field(compare=False)
    insertion_reads: float = field(compare=False)
    reads: float = field(compare=False)
    miss_reads: float = field(compare=False)
    overflow: float = field(compare=False)
    loads: tuple[float, ...] = field(compare=False)
    mean: float = field(compare=False)
    variance: float = field(compare=False)
    variance_bound: float = field(compare=False)
    query_mean: float = field(compare=False)
    query_variance: float = field(compare=False)
    miss_mean: float = field(compare=False)
    miss_variance: float = field(compare=False)
    max_load: int = field(compare=False)
    max_load_law: float | None = field(compare=False)
    bins: int = field(compare=False)
    overflow_bins: int = field(compare=False)
    nbytes: int = field(compare=False)
    key_dtype: str = field(compare=False)
    value_dtype: str = field(compare=False)
    seed: int
    core: tuple[int, ...]


def plan_chains(
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
) -> ChainPlan:
    """Plan a chained table.

    Parameters
    ----------
    capacity, policy, choices, reads, load, overflow, key_dtype, value_dtype, seed
        As for `ChainedTable`. `reads` belongs to "sequential" and "multilevel", the others always read 1 or
        all `choices`; `overflow` to "single", for the others it follows from the reads.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range, or does not belong to the policy.

    Examples
    --------
    >>> plan = plan_chains(1_000_000, load=8)
    >>> plan.thresholds, round(plan.overflow, 5), round(plan.variance, 3), plan.max_load
    ((8, 8, 8), 0.00498, 2.106, 9)
    >>> round(plan_chains(1_000_000, policy="d-left", load=8).variance, 3)
    0.83
    """
    from evenbins.theory import balance  # on demand: scipy

    keys = checked_capacity(capacity)
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
    shares: tuple[float, ...] = (1.0,)
    threshold, coin, overflowing = 0, 0.0, 0.0
    if name in BALANCED:
        if name == "single":
            found = balance.best_single(load, DEFAULT_OVERFLOW if overflow is None else overflow)
        elif name == "sequential":
            found = balance.best_sequential(DEFAULT_READS if reads is None else reads, load, d)
        else:
            found = balance.best_multilevel(DEFAULT_READS if reads is None else reads, load, d)
        threshold = NEVER_FULL if found.threshold is None else found.threshold
        coin, shares, overflowing = found.coin, found.shares, found.overflow
    elif name == "d-left":
        shares = (1.0 / d,) * d
    bins = _whole_bins(math.ceil(keys / load), shares)
    overflow_bins = max(1, math.ceil(2 * overflowing * keys)) if name in BALANCED else 0
    keys_are = arguments.one_of("key_dtype", key_dtype, KEY_DTYPES, 'Pass "digest" for str and bytes')
    values_are = arguments.one_of("value_dtype", value_dtype, VALUE_DTYPES, 'Pass "float64" for floats')
    core = [
        POLICIES[name],
        d,
        round(coin * _COIN_UNIT),
        KEY_DTYPES.index(keys_are) + 1,
        VALUE_DTYPES.index(values_are) + 1,
        overflow_bins,
    ]
    for each in bins:
        core += [each, threshold]
    return plan_of_chain_core(core, keys=keys, seed=arguments.seed(seed))


def plan_of_chain_core(core: Sequence[int], *, keys: int, seed: int) -> ChainPlan:
    """Check an integer core and predict anew: the plan of a table that was loaded.

    Raises
    ------
    TypeError, ValueError
        The core is none that `plan_chains` could have made.
    """
    from evenbins.theory import chains
    from evenbins.theory.bucket import best, variance_of

    checked = checked_core(core)
    keys = checked_capacity(keys)
    _, d, coin, key_type, value_type, overflow_bins = checked[:6]
    name = policy_of(checked)
    balanced = name in BALANCED
    layout = chains.Layout(
        policy=name,
        choices=d,
        bins=checked[6::2],
        thresholds=checked[7::2] if balanced else (),
        coin=coin,
        overflow_bins=overflow_bins,
    )
    seen = chains.predict(layout, keys)
    bins = sum(layout.bins)
    last = int((seen.loads > _SHOWN_LOADS).nonzero()[0][-1])
    bounded = balanced and not (name == "single" and layout.thresholds[0] >= NEVER_FULL)
    return ChainPlan(
        keys=keys,
        policy=name,
        choices=d,
        load=keys / bins,
        shares=tuple(each / bins for each in layout.bins),
        thresholds=layout.thresholds if bounded else (),
        coin=coin / _COIN_UNIT if bounded else None,
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
        max_load_law=None if bounded else chains.asymptotic_max_load(name, d, keys),
        bins=bins,
        overflow_bins=overflow_bins,
        nbytes=chain_bytes(checked, keys),
        key_dtype=KEY_DTYPES[key_type - 1],
        value_dtype=VALUE_DTYPES[value_type - 1],
        seed=arguments.seed(seed),
        core=checked,
    )


def chain_bytes(core: Sequence[int], capacity: int) -> int:
    """Count the bytes of a table: state, bins, links with keys, values, each in whole 64-byte lines.

    Examples
    --------
    >>> chain_bytes((3, 3, 0, 1, 1, 10, 100, 8), 1000)
    21440
    """
    _, _, _, key_type, _, overflow_bins, *tables = core
    bin_words = 3 if policy_of(core) in BALANCED else 2
    entry_words = 5 if KEY_DTYPES[key_type - 1] == "digest" else 3
    bins = sum(tables[0::2]) + overflow_bins
    return (
        _STATE_BYTES
        + _lines(4 * bin_words * bins)
        + _lines(4 * entry_words * capacity)
        + _lines(8 * capacity)
    )


def policy_of(core: Sequence[int]) -> str:
    """Return the name of a core's policy.

    Examples
    --------
    >>> policy_of((7, 2))
    'd-left'
    """
    number, *_ = core
    return next(policy for policy, each in POLICIES.items() if each == number)


def scaled_core(core: Sequence[int], capacity: int, keys: int) -> tuple[int, ...]:
    """Return the core of the same design for another number of keys: the same load and thresholds.

    Examples
    --------
    >>> scaled_core((3, 2, 5, 1, 1, 10, 100, 8, 20, 8), 1000, 2000)
    (3, 2, 5, 1, 1, 20, 200, 8, 40, 8)
    """
    scaled = list(core)
    for place in (5, *range(6, len(core), 2)):
        scaled[place] = -(-core[place] * keys // capacity)
    return tuple(scaled)


def _lines(nbytes: int) -> int:
    return -(-nbytes // 64) * 64


def _whole_bins(total: int, shares: Sequence[float]) -> tuple[int, ...]:
    """Divide the bins by the shares, at least one for each table."""
    rest = [max(1, round(total * share)) for share in shares[1:]]
    return (max(1, total - sum(rest)), *rest)


# --- arguments -----------------------------------------------------------------------------------


def checked_capacity(value: object) -> int:
    """Check the number of keys."""
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


def checked_core(core: Sequence[int]) -> tuple[int, ...]:
    """Check every integer of a core by the rules of its policy.

    Raises
    ------
    TypeError, ValueError
        The core is none that `plan_chains` could have made.
    """
    rule = "six integers and a pair for each table of a chained table"
    remedy = "Pass a table's plan.core"
    if isinstance(core, str | bytes) or not isinstance(core, Sequence):
        raise arguments.type_error("core", rule, core, remedy)
    if len(core) < 8 or len(core) % 2:
        raise arguments.error("core", rule, core, remedy)

    def one(place: int, name: str, least: int, most: int) -> int:
        return arguments.integer(f"core[{place}] ({name})", core[place], least, most, remedy)

    number = one(0, "policy", 1, 7)
    if number not in POLICIES.values():
        raise arguments.error("core[0] (policy)", "1, 2, 3, 6 or 7", number, remedy)
    balanced, single = number <= 3, number == 1
    d = one(1, "choices", 1 if single else 2, 1 if single else MAX_CHOICES)
    tables = (len(core) - 6) // 2
    if tables != (d if number in (3, 7) else 1):
        raise arguments.error("core", "a pair for each table of the policy", core, remedy)
    checked = [number, d, one(2, "coin", 0, _COIN_UNIT if balanced else 0)]
    checked += [one(3, "key type", 1, 3), one(4, "value type", 1, 3)]
    checked.append(one(5, "overflow_bins", 1 if balanced else 0, MAX_BINS if balanced else 0))
    for place in range(6, len(core), 2):
        checked.append(one(place, "bins", 1, MAX_BINS))
        most = 0 if not balanced else NEVER_FULL if single else 10**6
        checked.append(one(place + 1, "threshold", 0, most))
    if single and 10**6 < checked[7] < NEVER_FULL:
        raise arguments.error("core[7] (threshold)", "at most 10**6, or 2**31", checked[7], remedy)
    return tuple(checked)

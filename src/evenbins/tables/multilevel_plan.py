"""From what a user asks of a multilevel table to the integers that it is built from (kirsch, chapter 5).

    capacity, scheme, levels, slots        best shares for the space (`optimise`),
    overflow or space                 ──▶  or the least space for the overflow      ──▶  buckets, limit, bytes
                                                                                             │
                   overflow, moves, fills, reads to expect (`fluid`, `least_loaded`)    ◀────┘

The integer core is what a table stores and is compared by; predictions stand beside it, computed for the
buckets as they are, after rounding. The overflow list is planned so that a table of `keys` keys overruns it
with a probability of at most `OVERRUN`: from the distribution of its size, which is wider than Poisson's.

Which summary serves which table:

    scheme                               interpolation, counting-…    single-filter, multiple-bloom
    standard                             yes, deletions too           yes; deletions="lazy"
    conservative, second-chance          yes, deletions too           yes, without deletions: keys move up
    extreme-second-chance, least-loaded  yes, deletions too           no: keys move to lower levels too

A filter without counters keeps the greatest level that it was told of a key: it follows a key that moves to
a higher level, not one that moves to a lower one or is deleted. It would still lose no key, but be wrong
about more and more of them.

Invariants: a plan that is returned can be built; two plans are equal exactly when keys, seed and core are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins._show import ReprMixin
from evenbins.structure import Plan
from evenbins.tables._keys import KEY_TYPES, NO_VALUES, checked_dtypes, dtype_names
from evenbins.tables.summary_plan import KINDS, NUMBERS, SummaryPlan, plan_summary
from evenbins.theory import least_loaded

__all__ = [
    "LAZY", "OVERRUN", "SCHEMES", "TableCore", "TablePlan", "attachment", "is_lazy", "plan_multilevel",
    "plan_of_table_core", "predictable", "scaled_plan", "with_summary",
]  # fmt: skip

SCHEMES = ("standard", "conservative", "second-chance", "extreme-second-chance", "least-loaded")
"""The schemes in the order of their numbers in a core, from 1."""
SLOTS = (1, 2, 4, 8)
MAX_LEVELS = 8
MAX_LIMIT = 2**30
MAX_BUCKETS = 2**32
OCCUPANCY_BITS, NEXT_HASHES = 1, 2  # flags
OVERRUN, OVERRUN_EVER = 1e-9, 1e-15
"""Probability that a full table's list overruns; under deletions at one moment, of which there are many."""
LOAD = 0.95
"""Keys per slot of a least-loaded table that is asked for nothing else."""
OVERFLOW = 0.002
"""Overflow of the other schemes when nothing else is asked for: the thesis'."""
LAZY = 0.1
"""Deleted keys that may hold their slots, as a fraction of the capacity (the thesis' α)."""
FORGETFUL = ("interpolation", "counting-single-filter", "counting-multiple-bloom")
RISING = ("standard", "conservative", "second-chance")
"""Schemes in which a key moves to higher levels alone."""
_STATE_WORDS = 24
_EXACT_SHAPE = 1000  # keys from which on rounding up a level changes its share by little
_LEAST_LIMIT = 32  # small tables are not yet as the limit of many keys says


class TableCore(NamedTuple):
    """An integer core by names."""

    scheme: str
    slots: int
    key_type: int
    value_type: int
    flags: int
    overflow_limit: int
    buckets: tuple[int, ...]

    @classmethod
    def of(cls, core: Sequence[int]) -> TableCore:
        """Read a core that is known to be right: a table's own, or a file's."""
        scheme, slots, key_type, value_type, flags, limit, *buckets = core
        return cls(SCHEMES[scheme - 1], slots, key_type, value_type, flags, limit, tuple(buckets))

    @property
    def integers(self) -> tuple[int, ...]:
        """The core again."""
        return (SCHEMES.index(self.scheme) + 1, *self[1:6], *self.buckets)

    @property
    def nbytes(self) -> int:
        """The bytes of a table: every part in whole lines.

        Examples
        --------
        >>> round(TableCore.of((5, 8, 1, 1, 1, 64, 657895, 657895)).nbytes / 10_000_000, 2)
        16.97
        """
        total, limit = sum(self.buckets) * self.slots, self.overflow_limit
        words = 2 if self.key_type == KEY_TYPES["digest"] else 1
        values = 0 if self.value_type == NO_VALUES else 1
        next_words = 0
        if self.flags & NEXT_HASHES and self.scheme != "standard":
            next_words = 1 if self.scheme == "second-chance" else len(self.buckets) - 1
        bits = -(-total // 8)
        index = 1 << (2 * limit - 1).bit_length() if limit else 0
        parts = (
            8 * _STATE_WORDS, bits, bits if self.scheme == "conservative" else 0,
            8 * total * (words + values), 4 * total * next_words, 8 * limit * words, 8 * limit * values,
            16 * limit, 4 * index,
        )  # fmt: skip
        return sum(-(-part // 64) * 64 for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class TablePlan(Plan):
    """A multilevel table's design, and what it predicts; a prediction that is not known is None.

    Equality and hash look at keys, seed and core alone.

    Attributes
    ----------
    keys : number of keys planned for (n)
    scheme : "standard", "conservative", "second-chance", "extreme-second-chance" or "least-loaded"
    levels : sub-tables (d)
    slots : keys that a bucket holds
    space : slots per key (c)
    shares : buckets of each level per key (the thesis' α_i): space = slots * sum(shares)
    fills : fraction of occupied slots, for each level, with `keys` keys in
    overflow : fraction of keys on the overflow list (w), with `keys` keys in; with `deletions` after many
        deletions and insertions
    overflow_limit : most keys that the list holds
    moves : fraction of insertions that move a key (m)
    reads, miss_reads : buckets read by a look-up of a present and of an absent key
    nbytes : bytes of the table, everything counted
    key_dtype, value_dtype : what is stored; of an exact set value_dtype is None
    occupancy_bits, next_hashes : the helpers in fast memory
    deletions : whether the predictions are for a table that sees many deletions
    summary : the plan of the summary that the table keeps, if any; `reads` and `miss_reads` are then with it
    rebuild_threshold : deleted keys that begin a rebuild, if deletions are lazy; else 0
    seed : seed of the digests
    core : the integers stored and compared by: scheme, slots, key type, value type, flags, overflow limit,
        and the buckets of each level
    """

    _in_one_line = (
        "keys", "scheme", "levels", "slots", "space", "overflow", "overflow_limit", "moves", "reads", "nbytes"
    )  # fmt: skip

    keys: int
    scheme: str
    levels: int
    slots: int
    space: float
    shares: tuple[float, ...]
    fills: tuple[float, ...] | None = None
    overflow: float | None = None
    overflow_limit: int
    moves: float | None = None
    reads: float | None = None
    miss_reads: float | None = None
    nbytes: int
    key_dtype: str
    value_dtype: str | None
    occupancy_bits: bool
    next_hashes: bool
    deletions: bool = False
    summary: SummaryPlan | None = None
    rebuild_threshold: int = 0
    seed: int
    core: tuple[int, ...]

    @property
    def buckets(self) -> tuple[int, ...]:
        """The number of buckets of each level."""
        return TableCore.of(self.core).buckets

    def _rows(self) -> list[tuple[str, object]]:
        hidden = ("summary", "rebuild_threshold") if self.summary is None else ()
        return [row for row in ReprMixin._rows(self) if row[0] not in hidden]


def plan_multilevel(
    capacity: SupportsIndex | SupportsFloat, *, scheme: str = "least-loaded", levels: int | None = None,
    slots: int | None = None, overflow: float | None = None, space: float | None = None,
    shares: Sequence[float] | None = None, overflow_limit: int | None = None, deletions: bool | str = False,
    summary: str | SummaryPlan | None = None, false_positives: float | None = None,
    failure: float | None = None, key_dtype: str = "int64", value_dtype: str | None = "int64", seed: int = 0,
    occupancy_bits: bool = True, next_hashes: bool = False,
) -> TablePlan:  # fmt: skip
    """Plan a table with its summary: the least space for an overflow, or the least overflow for a space.

    Parameters
    ----------
    capacity, scheme, levels, slots, overflow, deletions, summary, key_dtype, value_dtype, seed
        As for `MultilevelTable`: by default 2 levels and 8 slots for "least-loaded", 4 and 1 for the others.
    space
        Slots per key (c) instead of `overflow`; with both, both must hold.
    shares
        Buckets of each level per key (α_i), instead of the best ones, which are equal for "least-loaded";
        with `space` only their proportions count.
    overflow_limit
        Most keys that the list holds; planned so that `capacity` keys overrun it with a probability below
        1e-9.
    false_positives, failure
        Of the summary, at most: the chance that an absent key is read at all, by default 0.01; the chance
        that any of `capacity` keys is looked for in a wrong level first, by default 1e-3.
    occupancy_bits, next_hashes
        Helpers in fast memory, as in the thesis: they change what `stats().insertion_reads` counts. Without
        occupancy bits a look at a bucket's occupancy is a read of it. With next hashes, which take four
        bytes a slot and level, an insertion need not read residents to find out where they may move.

    Raises
    ------
    ValueError
        No such table has the overflow.

    Examples
    --------
    >>> plan_multilevel(10_000_000).buckets
    (657895, 657895)
    >>> plan = plan_multilevel(10_000, scheme="second-chance", overflow=0.002)
    >>> round(plan.space, 2), round(plan.moves, 2), plan.overflow <= 0.002
    (1.29, 0.13, True)
    >>> plan_multilevel(10_000, scheme="second-chance", shares=[0.47, 0.46, 0.25, 0.11]).buckets
    (4700, 4600, 2500, 1100)
    """
    lazy = is_lazy(deletions, summary)
    keys = _checked_capacity(capacity, lazy)
    arguments.one_of("scheme", scheme, SCHEMES, f"Pass {SCHEMES[-1]!r}")
    types = checked_dtypes(key_dtype, value_dtype, can_be_set=True)
    seed = arguments.seed(seed)
    churn = not lazy and arguments.flag("deletions", deletions)
    flags = OCCUPANCY_BITS * arguments.flag("occupancy_bits", occupancy_bits)
    flags += NEXT_HASHES * arguments.flag("next_hashes", next_hashes)
    modern = scheme == "least-loaded"
    slots = 8 if slots is None and modern else 1 if slots is None else slots
    remedy = "Pass 8, a cache line of keys"
    if arguments.integer("slots", slots, 1, 8, remedy, rule="1, 2, 4 or 8") not in SLOTS:
        raise arguments.error("slots", "1, 2, 4 or 8", slots, remedy)
    given = None if shares is None else _numbers(shares)
    if levels is None:
        levels = 2 if modern and given is None else 4 if given is None else len(given)
    levels = arguments.integer("levels", levels, 2 if modern else 1, MAX_LEVELS, "Pass 2 to 5")
    if given is not None and len(given) != levels:
        raise ValueError(f"shares must have one number for each of {levels} levels; got {len(given)}")
    total = None if space is None else _positive("space", space, 1000, "Pass slots per key, such as 1.05")
    if overflow is not None:
        remedy = "Pass a fraction of the keys, such as 0.002"
        overflow = arguments.real("overflow", overflow, "", remedy, least=1e-12, most=0.5)
    alphas = _alphas(scheme, levels, slots, total, given, overflow, churn)
    buckets = tuple(max(1, math.ceil(keys * alpha * (1 - 1e-12))) for alpha in alphas)
    if max(buckets) > MAX_BUCKETS:
        raise ValueError(
            f"a level must have at most 2**32 buckets; this one has {max(buckets)}. Use more slots or levels"
        )
    shape = TableCore(scheme, slots, *types, flags, 0, buckets)
    shape = shape._replace(overflow_limit=_limit(shape, keys, churn, overflow_limit))
    plan = plan_of_table_core(shape.integers, keys=keys, seed=seed, deletions=churn)
    if overflow is not None and plan.overflow is not None and plan.overflow > overflow * (1 + 1e-6):
        raise arguments.unmet(
            "overflow",
            f"={overflow:g} cannot be had with space={plan.space:.4g}: this table has "
            f"{plan.overflow:.3g}. Leave out space (and shares) for the least that has it",
        )
    return with_summary(plan, summary, lazy=lazy, false_positives=false_positives, failure=failure)


def plan_of_table_core(
    core: Sequence[int], *, keys: int, seed: int = 0, deletions: bool = False
) -> TablePlan:
    """Return the plan of an integer core that is known to be right: a table's own, or a file's."""
    shape = TableCore.of(core)
    will = _predict(shape, keys, deletions)
    is_set = shape.value_type == NO_VALUES
    key_dtype, value_dtype = dtype_names(shape.key_type, shape.value_type)
    return TablePlan(
        keys=keys,
        scheme=shape.scheme,
        levels=len(shape.buckets),
        slots=shape.slots,
        space=sum(shape.buckets) * shape.slots / keys,
        shares=tuple(each / keys for each in shape.buckets),
        fills=None if will is None else will.fills,
        overflow=None if will is None else will.overflow,
        overflow_limit=shape.overflow_limit,
        moves=None if will is None else will.moves,
        reads=None if will is None else _reads(shape, keys, will),
        miss_reads=float(len(shape.buckets)),
        nbytes=shape.nbytes,
        key_dtype=key_dtype,
        value_dtype=None if is_set else value_dtype,
        occupancy_bits=bool(shape.flags & OCCUPANCY_BITS),
        next_hashes=bool(shape.flags & NEXT_HASHES),
        deletions=deletions,
        seed=seed,
        core=tuple(core),
    )


def scaled_plan(plan: TablePlan, capacity: object) -> TablePlan:
    """Plan the same table for another number of keys: the buckets in proportion, limit and summary anew."""
    lazy = bool(plan.rebuild_threshold)
    keys = _checked_capacity(capacity, lazy)
    shape = TableCore.of(plan.core)
    shape = shape._replace(buckets=_scaled_buckets(plan, shape.buckets, keys))
    limit = max(_limit(shape, keys, plan.deletions, None), min(plan.overflow_limit, MAX_LIMIT))
    core = shape._replace(overflow_limit=limit).integers
    scaled = plan_of_table_core(core, keys=keys, seed=plan.seed, deletions=plan.deletions)
    if plan.summary is None:
        return scaled
    met = {"false_positives": plan.summary.false_positives, "failure": plan.summary.failure}
    needs = {name: value for name, value in met.items() if value is not None and 0 < value < 1}
    return with_summary(scaled, plan.summary.kind, lazy=lazy, **needs)


def _scaled_buckets(plan: TablePlan, buckets: tuple[int, ...], keys: int) -> tuple[int, ...]:
    """Return the buckets for `keys` keys in proportion, of a small table without what rounding up added.

    A level of b buckets was planned for more than b - 1 of them: between these two a table that grows has
    what one planned afresh has.
    """
    scale = keys / plan.keys
    scaled = tuple(math.ceil(each * scale) for each in buckets)
    if plan.keys >= _EXACT_SHAPE or keys <= plan.keys:
        return scaled
    try:
        afresh = _alphas(plan.scheme, plan.levels, plan.slots, None, None, None, plan.deletions)
    except ValueError:  # no default for this design
        return scaled
    return tuple(
        min(most, max(math.ceil((each - 1) * scale), math.ceil(keys * alpha * (1 - 1e-12)), 1))
        for most, each, alpha in zip(scaled, buckets, afresh, strict=True)
    )


# --- what a table will do ------------------------------------------------------------------------------


def _equations(scheme: str, slots: int, deletions: bool) -> tuple[str, bool]:
    """Return the scheme whose equations serve, and whether they are its own.

    Those of another are of one that moves less and so overflows more: good for a list's limit and for shares,
    not for a prediction.
    """
    if deletions:
        own = scheme == "standard" or (scheme == "second-chance" and slots == 1)
        return (scheme, True) if own else ("second-chance" if slots == 1 else "standard", False)
    if slots == 1 or scheme in ("standard", "second-chance"):
        return scheme, True
    return ("standard" if scheme == "conservative" else "second-chance"), False


def predictable(scheme: str, slots: int, deletions: bool = False) -> bool:
    """Return whether the behaviour of a scheme is known: measured, or by equations of its own."""
    return scheme == "least-loaded" or _equations(scheme, slots, deletions)[1]


def _alphas(
    scheme: str,
    levels: int,
    slots: int,
    space: float | None,
    given: list[float] | None,
    overflow: float | None,
    deletions: bool,
) -> list[float]:
    """Find the buckets of each level per key."""
    if given is not None:
        scale = 1.0 if space is None else space / slots / math.fsum(given)
        return [each * scale for each in given]
    if scheme == "least-loaded":
        if space is None:
            space = 1 / LOAD
            if overflow is not None:
                if (levels, slots) not in least_loaded.DESIGNS:
                    raise ValueError(
                        f'overflow={overflow} cannot be planned for "least-loaded" with {levels} levels and '
                        f"{slots} slots: it was measured with 2, 3 and 4 levels. Pass space instead"
                    )
                space = 1 / least_loaded.load_for(levels, slots, overflow, deletions)
        return [space / slots / levels] * levels
    from evenbins.theory import optimise  # on demand

    twin, _ = _equations(scheme, slots, deletions)
    if space is None:
        wanted = OVERFLOW if overflow is None else overflow
        return list(optimise.space(twin, levels, wanted, slots, deletions=deletions).shares)
    return list(optimise.shares(twin, levels, space, slots, deletions=deletions))


def _equal(shape: TableCore) -> bool:
    return len(set(shape.buckets)) == 1 and (len(shape.buckets), shape.slots) in least_loaded.DESIGNS


def _predict(shape: TableCore, keys: int, deletions: bool) -> least_loaded.Behaviour | None:
    """Predict for the buckets as they are; None where nothing is known."""
    if shape.scheme == "least-loaded":
        if not _equal(shape):
            return None
        load = keys / (sum(shape.buckets) * shape.slots)
        return least_loaded.behaviour(len(shape.buckets), shape.slots, load, deletions)
    _, own = _equations(shape.scheme, shape.slots, deletions)
    if not own:
        return None
    from evenbins.theory import fluid  # on demand

    shares = [each / keys for each in shape.buckets]
    found = (fluid.steady_state if deletions else fluid.solve)(shape.scheme, shares, shape.slots)
    return least_loaded.Behaviour(found.overflow, found.moves, found.fills)


def _reads(shape: TableCore, keys: int, will: least_loaded.Behaviour) -> float:
    placed = [
        fill * buckets * shape.slots / keys for fill, buckets in zip(will.fills, shape.buckets, strict=True)
    ]
    return math.fsum(level * part for level, part in enumerate(placed, 1)) + len(placed) * will.overflow


def _limit(shape: TableCore, keys: int, deletions: bool, given: object) -> int:
    """Plan the list's limit, or check the one that is given."""
    if given is not None:
        remedy = "Leave it out for one that fits the overflow"
        return arguments.integer("overflow_limit", given, 0, MAX_LIMIT, remedy)
    from evenbins.theory import optimise

    levels, slots = len(shape.buckets), shape.slots
    if shape.scheme == "least-loaded" and _equal(shape):
        load = keys / (sum(shape.buckets) * slots)
        bound = 0
        for churn in (False, True):  # it is made for deletions: a limit that holds with and without them
            mean = keys * least_loaded.behaviour(levels, slots, load, churn).overflow
            variance = mean * least_loaded.dispersion(levels, slots, churn)
            bound = max(bound, optimise.OverflowDistribution(mean, variance).limit(OVERRUN_EVER))
    else:
        twin = "standard" if shape.scheme == "least-loaded" else _equations(shape.scheme, slots, deletions)[0]
        bound = optimise.overflow_limit(
            twin, [each / keys for each in shape.buckets], keys, slots,
            overrun=OVERRUN_EVER if deletions else OVERRUN, deletions=deletions,
        )  # fmt: skip
    return min(MAX_LIMIT, keys, max(bound, _LEAST_LIMIT))


# --- the summary ---------------------------------------------------------------------------------------


def is_lazy(deletions: object, summary: object) -> bool:
    """Return whether deletions are to be lazy; refuse it without a summary."""
    if deletions != "lazy":
        return False
    if summary is None:
        raise ValueError(
            "deletions='lazy' is for a table with a summary that cannot forget; got summary=None. Pass "
            "summary='multiple-bloom', or leave out deletions"
        )
    return True


def with_summary(
    plan: TablePlan,
    summary: str | SummaryPlan | None,
    *,
    lazy: bool = False,
    false_positives: float | None = None,
    failure: float | None = None,
) -> TablePlan:
    """Plan a summary for a table, and what the table then predicts; refuse what cannot work."""
    if summary is None:
        for name, value in (("false_positives", false_positives), ("failure", failure)):
            if value is not None:
                shown = arguments.shown(value)
                raise ValueError(f"{name} is of a summary; got {shown} and summary=None. Pass a summary too")
        return plan
    kind = summary.kind if isinstance(summary, SummaryPlan) else summary
    arguments.one_of("summary", kind, KINDS, 'Pass "multiple-bloom"')
    _check_summary(plan, kind, lazy)
    levels = plan.levels + (plan.overflow_limit > 0)
    if isinstance(summary, SummaryPlan):
        if summary.levels < levels:
            raise ValueError(
                f"summary must have {levels} levels, those of the table and its list; got {summary.levels}. "
                "Pass its name instead"
            )
        found = summary
    else:
        found = _planned(plan, kind, levels, false_positives, failure)
    wrong = found.wrong
    reads = None if plan.overflow is None or wrong is None else 1 - plan.overflow + wrong
    return replace(
        plan, summary=found, reads=reads, miss_reads=found.false_positives * plan.levels,
        rebuild_threshold=max(1, round(plan.keys * LAZY / (1 + LAZY))) if lazy else 0,
    )  # fmt: skip


def attachment(plan: TablePlan) -> tuple[int, list[int], int]:
    """Return what a core needs to attach a summary: its kind, its core, the slots that begin a rebuild."""
    if plan.summary is None:
        return 0, [], 0
    if not isinstance(plan.summary, SummaryPlan):
        remedy = "Pass a plan as plan_multilevel returns it"
        raise arguments.type_error("plan.summary", "a SummaryPlan or None", plan.summary, remedy)
    return NUMBERS[plan.summary.kind], list(plan.summary.core), plan.rebuild_threshold


def _check_summary(plan: TablePlan, kind: str, lazy: bool) -> None:
    if lazy and (kind in FORGETFUL or plan.scheme != "standard"):
        raise ValueError(
            "deletions='lazy' is for scheme 'standard' with summary 'single-filter' or 'multiple-bloom'; got "
            f"scheme {plan.scheme!r} and summary {kind!r}, which "
            + ("can forget keys at once. Leave it out" if kind in FORGETFUL else "moves keys as it deletes")
        )
    if kind not in FORGETFUL and plan.scheme not in RISING:
        raise ValueError(
            f"summary={kind!r} cannot serve scheme {plan.scheme!r}, in which keys move to lower levels: it "
            f"would go on naming the higher one. Pass 'interpolation' or 'counting-{kind}', or the scheme "
            "'standard'"
        )


def _planned(
    plan: TablePlan, kind: str, levels: int, false_positives: float | None, failure: float | None
) -> SummaryPlan:
    sizes = shares = None
    if plan.scheme == "standard" and plan.slots == 1 and not plan.deletions:
        sizes = list(plan.buckets)
    elif plan.fills is not None and plan.overflow is not None:
        shares = [
            fill * buckets * plan.slots / plan.keys
            for fill, buckets in zip(plan.fills, plan.buckets, strict=True)
        ]
    else:
        shares = [buckets / sum(plan.buckets) for buckets in plan.buckets]
    if shares is not None:
        shares += [plan.overflow or 0.0] * (levels - plan.levels)
        shares = [each / sum(shares) for each in shares]
    return plan_summary(
        plan.keys, kind=kind, levels=levels, shares=shares, sizes=sizes, false_positives=false_positives,
        failure=failure, seed=plan.seed,
    )  # fmt: skip


# --- arguments -----------------------------------------------------------------------------------------


def _checked_capacity(capacity: object, lazy: bool) -> int:
    """Return the keys to plan for; with lazy deletions deleted ones still hold their slots."""
    keys = arguments.capacity(capacity)
    return keys + max(1, int(LAZY * keys)) if lazy else keys


def _positive(name: str, value: object, most: float, remedy: str) -> float:
    return arguments.real(name, value, "", remedy, above=0.0, most=most)


def _numbers(shares: Sequence[float]) -> list[float]:
    if isinstance(shares, str) or not hasattr(shares, "__len__"):
        raise arguments.type_error("shares", "a sequence of numbers", shares, "Pass one for each level")
    if not len(shares):
        raise ValueError("shares must have one number for each level; got none. Leave it out for the best")
    return [_positive(f"shares[{i}]", each, 1e6, "Pass buckets per key") for i, each in enumerate(shares)]

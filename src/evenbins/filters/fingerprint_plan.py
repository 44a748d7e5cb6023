"""The plan of a fingerprint filter: its integers, what they predict, and the search for them.

    capacity, fpr                  ──▶ one size: the fewest bits
    capacity, fpr, max_capacity    ──▶ the first of several sizes, each twice as many lines as the one before

A filter that grows keeps its M fingerprints, so M is planned for `max_capacity`; theory/fingerprint_design.py
has the sizes that it goes through. The core is that of the size that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self, SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins.filters.plan import OF_CORE, FilterPlan, FilterStats
from evenbins.theory import fingerprint as theory
from evenbins.theory import fingerprint_design as design

__all__ = ["SEMANTICS", "FingerprintCore", "FingerprintPlan", "FingerprintStats", "plan_fingerprint"]

SEMANTICS = ("multiset", "set")


class FingerprintCore(NamedTuple):
    """The integers of a fingerprint filter.

    Attributes
    ----------
    lines : lines of level 1
    remainder : bits of a remainder
    quotients : quotients of a line of level 1
    group : lines of level 1 for each line of level 2
    rest : fingerprints that the overflow list holds
    limit : copies that the filter holds
    set : 1 if each fingerprint is stored once, 0 for a multiset
    doublings : how often the filter may still double
    """

    lines: int
    remainder: int
    quotients: int
    group: int
    rest: int
    limit: int
    set: int
    doublings: int

    @property
    def shape(self) -> design.Shape:
        """The integers that the law needs."""
        return design.Shape(*self[:5])

    @property
    def last_keys(self) -> int:
        """The keys that the last size is planned for."""
        return design.Growth(design.planned_keys(self.limit), self.shape, self.doublings).last[0]

    def resized(self, resize: Callable[[int, design.Shape], tuple[int, design.Shape]]) -> tuple[int, Self]:
        """Return keys and core of the next size up or down: `resize` is `design.doubled` or `halved`."""
        keys, shape = resize(design.planned_keys(self.limit), self.shape)
        left = self.doublings + shape.remainder - self.remainder if self.doublings else 0
        return keys, type(self)(*shape, design.copies_limit(keys), self.set, left)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FingerprintPlan(FilterPlan):
    """The plan of a fingerprint filter.

    Attributes
    ----------
    semantics : "multiset" or "set"
    remainder_bits, quotients, slots : of a line of level 1
    lines, group : lines of level 1, and how many of them share one of level 2
    shares : of the keys that are in level 1, level 2, level 3 and the overflow list
    overflow, overflow_limit : share of the keys on the overflow list, and how many it holds at most
    max_capacity : keys that it can grow to; `keys` are those of its present size, and so are the predictions
    fill : share of the slots of level 1 in use
    """

    _core_names: ClassVar[tuple[str, ...]] = FingerprintCore._fields
    _in_one_line = ("policy", "keys", "bits_per_key", "semantics", "fpr", "reads", "miss_reads", "nbytes")

    semantics: str = field(compare=False)
    remainder_bits: int = field(compare=False)
    quotients: int = field(compare=False)
    slots: int = field(compare=False)
    lines: int = field(compare=False)
    group: int = field(compare=False)
    overflow: float = field(compare=False)
    overflow_limit: int = field(compare=False)
    max_capacity: int = field(compare=False)
    shares: tuple[float, ...] = field(compare=False)
    core: FingerprintCore

    @classmethod
    def of_core(cls, policy: str, core: Sequence[int], keys: int, seed: int, hashing: str) -> FingerprintPlan:
        """Check the integers of a core and predict a filter with them.

        With more keys than the filter holds, only the rate is for all of them.
        """
        checked = _checked_core(core)
        shape = checked.shape
        stored = min(keys, checked.limit)
        if checked.set:
            stored = max(round(shape.fingerprints * theory.fpr(stored, shape.fingerprints)), 1)
        law = theory.law(stored, *shape[:4])
        slots = theory.slots(checked.remainder, checked.quotients)
        return cls(
            keys=keys,
            policy="fingerprint",
            bits_per_key=8 * shape.nbytes / keys,
            semantics=SEMANTICS[checked.set],
            remainder_bits=checked.remainder,
            quotients=checked.quotients,
            slots=slots,
            lines=checked.lines,
            group=checked.group,
            shares=law.shares,
            overflow=law.shares[-1],
            overflow_limit=checked.rest,
            max_capacity=checked.last_keys if checked.doublings else keys,
            fpr=theory.fpr(keys, shape.fingerprints),
            reads=law.reads,
            miss_reads=law.miss_reads,
            fill=law.shares[0] * stored / (checked.lines * slots),
            nbytes=shape.nbytes,
            hashing="lanes",
            seed=seed,
            core=checked,
        )

    @property
    def load_unit(self) -> str:
        """What the load of a line counts."""
        return "keys"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FingerprintStats(FilterStats):
    """What a fingerprint filter measures on itself; `keys` and `fpr` are exact.

    Attributes
    ----------
    keys, distinct : fingerprints in the filter, copies counted; and different ones
    fpr : different fingerprints over all that there could be
    shares : of the copies that are in level 1, level 2, level 3 and the overflow list
    overflow : share of the copies on the overflow list
    fill : share of the slots of level 1 in use
    loads : for levels 1, 2 and 3, how many lines hold 0, 1, 2, … fingerprints
    """

    distinct: int
    shares: tuple[float, ...]
    overflow: float
    loads: tuple[tuple[int, ...], ...]


def plan_fingerprint(
    capacity: SupportsIndex | SupportsFloat, fpr: float | None = None, *, bits_per_key: float | None = None,
    semantics: str = "multiset", max_capacity: SupportsIndex | SupportsFloat | None = None, seed: int = 0,
) -> FingerprintPlan:  # fmt: skip
    """Plan a fingerprint filter: the fewest bits for `fpr`, or the lowest rate for `bits_per_key`.

    Parameters and errors are those of `FingerprintFilter`.

    Examples
    --------
    >>> plan = plan_fingerprint(10_000_000, fpr=1e-6)
    >>> f"{plan.bits_per_key:.1f} bits, {plan.reads:.2f} reads, {plan.miss_reads:.2f} of an absent key"
    '27.1 bits, 1.05 reads, 1.01 of an absent key'
    """
    keys = arguments.capacity(capacity)
    rate, per_key = arguments.goal(fpr, bits_per_key)
    remedy = 'Pass "multiset" to remove keys, "set" for keys that come again'
    meaning = arguments.one_of("semantics", semantics, SEMANTICS, remedy)
    seed = arguments.seed(seed)
    most = keys if max_capacity is None else _checked_most(max_capacity, keys)
    if per_key is None:
        growth = design.growth(keys, most, fpr=rate)
        if growth is None:
            raise _unreachable(keys, most, rate)
    else:
        growth = design.growth(keys, most, bits=per_key * most) or _smallest(keys, most, per_key)
    total = 8 * growth.last[1].nbytes
    arguments.check_total(total, "fpr" if per_key is None else "bits_per_key", per_key or rate)
    core = (*growth.shape, design.copies_limit(growth.keys), SEMANTICS.index(meaning), growth.doublings)
    return FingerprintPlan.of_core("fingerprint", core, growth.keys, seed, "lanes")


def _checked_most(max_capacity: object, keys: int) -> int:
    if isinstance(max_capacity, float) and max_capacity.is_integer():
        max_capacity = int(max_capacity)
    remedy = "Pass the number of keys that may come at most, or leave it out"
    return arguments.integer("max_capacity", max_capacity, keys, arguments.MAX_CAPACITY, remedy)


def _unreachable(keys: int, most: int, fpr: float) -> Exception:
    """Return the error for a rate, or a growth, for which no remainder is long enough."""
    if most > keys and design.fewest_bits(keys, fpr) is not None:
        rule = f"at most about {design.most_keys(keys, fpr)} for a filter that begins with {keys} keys"
        remedy = "Begin with a larger capacity, or take GrowingFilter"
        return arguments.error("max_capacity", rule, most, remedy)
    least = 2.0 * most / design.MAX_FINGERPRINTS
    return arguments.error("fpr", f"at least {least:.1g} for {most} keys", fpr, "Pass a higher rate")


def _smallest(keys: int, most: int, bits_per_key: float) -> design.Growth:
    """Return the smallest sizes, for bits that are fewer by less than a block; else raise ArgumentError."""
    growth = design.growth(keys, most, fpr=0.5)
    if growth is None:
        raise _unreachable(keys, most, 0.5)
    shape = growth.last[1]
    block = 8 * design.LINE_BYTES * (theory.MAX_GROUP * (shape.group + 1) + 1) << growth.doublings
    if 8 * shape.nbytes - bits_per_key * most > block + 64 * shape.rest:
        least = f"at least {8 * shape.nbytes / most:.3g} for {most} keys"
        raise arguments.error("bits_per_key", least, bits_per_key, "Pass more bits, or use BloomFilter")
    return growth


def _checked_core(core: Sequence[int]) -> FingerprintCore:
    lines, remainder, quotients, group, rest, limit, is_set, doublings = core
    most = arguments.MAX_CAPACITY
    remainder = arguments.integer(
        "core[1] (remainder)", remainder, design.LEAST_REMAINDER, design.MOST_REMAINDER, OF_CORE
    )
    quotients = arguments.integer("core[2] (quotients)", quotients, 32, 64, OF_CORE)
    group = arguments.integer("core[3] (group)", group, 1, theory.MAX_GROUP, OF_CORE)
    lines = arguments.integer("core[0] (lines)", lines, 1, most, OF_CORE)
    if lines % (theory.MAX_GROUP * group):
        raise arguments.error("core[0] (lines)", "a multiple of 16 * group", lines, OF_CORE)
    doublings = arguments.integer(
        "core[7] (doublings)", doublings, 0, remainder - design.LEAST_REMAINDER, OF_CORE
    )
    if lines << doublings > most:
        raise arguments.error("core[0] (lines)", "2**48 at most, doublings included", lines, OF_CORE)
    if lines * quotients << remainder > design.MAX_FINGERPRINTS:
        raise arguments.error("core[0] (lines)", "few enough for 2**63 fingerprints", lines, OF_CORE)
    return FingerprintCore(
        lines, remainder, quotients, group,
        arguments.integer("core[4] (rest)", rest, 0, most, OF_CORE),
        arguments.integer("core[5] (limit)", limit, 1, most, OF_CORE),
        arguments.integer("core[6] (set)", is_set, 0, 1, OF_CORE),
        doublings,
    )  # fmt: skip

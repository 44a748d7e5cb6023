"""Filters by requirement: say what you need; get every design that meets it, best first, each ready to build.

    keys, fpr or bits_per_key,       standard, blocked, single, sequential,       the plans that meet it,
    bounds on reads, overflow   ──▶  multilevel, fill, two-choice: the best  ──▶  sorted, the Pareto front
                                     hashes, thresholds, shares of each           marked, each with .build()

Which is best depends on what a memory read costs, which only the user knows; so all are shown. By default
the least memory comes first among the designs that read at most two blocks for an absent key, since two
independent reads overlap and more do not pay.

`theory` plans each design; this module compares them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsFloat, SupportsIndex, overload

from evenbins import _arguments as arguments
from evenbins import _show
from evenbins._arguments import MAX_BITS_PER_KEY
from evenbins.design._designs import Designs
from evenbins.design.sharding import ShardedDesigns, sharded_designs
from evenbins.filters.base import BaseFilter, build
from evenbins.theory import FilterPlan, plan_balanced, plan_blocked
from evenbins.theory.balanced_plan import check_bounds
from evenbins.theory.levels import POLICIES
from evenbins.theory.plan import plan_scheme
from evenbins.theory.sharding import ShardedPlan

__all__ = ["FilterDesign", "FilterDesigns", "filter"]

FEW_READS = 2.0
"""Reads of an absent key up to which memory decides, by default."""

_ALL = ("standard", "blocked", *POLICIES)
_BY_OR = ("standard", "blocked", "fill", "two-choice")
_COLUMNS = (
    ("policy", "policy"), ("hashes", "hashes"), ("choices", "choices"), ("thresholds", "thresholds"),
    ("bits_per_key", "bits/key"), ("mebibytes", "MiB"), ("fpr", "fpr"), ("reads", "reads"),
    ("miss_reads", "miss reads"), ("overflow", "overflow"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FilterDesign:
    """One design: its plan, and whether no other design is as good in every respect and better in one."""

    plan: FilterPlan
    pareto: bool

    @property
    def policy(self) -> str:
        """The plan's policy."""
        return self.plan.policy

    @property
    def mebibytes(self) -> float:
        """The memory in MiB, everything counted."""
        return self.plan.nbytes / 2**20

    def build(self) -> BaseFilter:
        """Build the filter.

        Examples
        --------
        >>> f = filter(keys=1000, fpr=1e-3)[0].build()
        >>> f.add("key")
        >>> "key" in f
        True
        """
        return build(self.plan)

    def to_dict(self) -> dict[str, object]:
        """Give the plan by name, with the mark, as plain values that JSON can hold."""
        return self.plan.to_dict() | {"mebibytes": self.mebibytes, "pareto": self.pareto}

    def cell(self, name: str) -> str:
        """Give a quantity as text."""
        if name == "mebibytes":
            return f"{self.mebibytes:.4g}" if self.mebibytes < 1000 else f"{self.mebibytes:,.0f}"
        value = getattr(self.plan, name)
        if name == "thresholds":
            return " ".join(map(str, value)) if value else "-"
        return _show.text(name, value)


class FilterDesigns(Designs[FilterDesign]):
    """All designs that meet a request, best first; prints as a table, in notebooks as HTML."""

    _title = "filter designs"
    _columns = _COLUMNS

    def by_policy(self, policy: str) -> FilterDesign:
        """Give the design of a policy; KeyError if the request rules it out."""
        for each in self:
            if each.policy == policy:
                return each
        raise KeyError(policy)

    def build(self) -> BaseFilter:
        """Build the best design."""
        return self.best.build()


@overload
def filter(
    keys: SupportsIndex | SupportsFloat,
    *,
    fpr: float | None = None,
    bits_per_key: float | None = None,
    reads: float | None = None,
    miss_reads: float | None = None,
    overflow: float | None = None,
    choices: int | None = None,
    merge: bool = False,
    policies: Sequence[str] | None = None,
    block_bits: int = 512,
    hashing: str = "independent",
    sort: str | None = None,
    seed: int = 0,
    shard_bytes: None = None,
    build_rate: None = None,
) -> FilterDesigns: ...
@overload
def filter(
    keys: SupportsIndex | SupportsFloat,
    *,
    fpr: float | None = None,
    bits_per_key: float | None = None,
    reads: float | None = None,
    miss_reads: float | None = None,
    overflow: float | None = None,
    choices: int | None = None,
    merge: bool = False,
    policies: Sequence[str] | None = None,
    block_bits: int = 512,
    hashing: str = "independent",
    sort: str | None = None,
    seed: int = 0,
    shard_bytes: SupportsIndex | SupportsFloat,
    build_rate: float | None = None,
) -> ShardedDesigns: ...
def filter(
    keys: SupportsIndex | SupportsFloat,
    *,
    fpr: float | None = None,
    bits_per_key: float | None = None,
    reads: float | None = None,
    miss_reads: float | None = None,
    overflow: float | None = None,
    choices: int | None = None,
    merge: bool = False,
    policies: Sequence[str] | None = None,
    block_bits: int = 512,
    hashing: str = "independent",
    sort: str | None = None,
    seed: int = 0,
    shard_bytes: SupportsIndex | SupportsFloat | None = None,
    build_rate: float | None = None,
) -> FilterDesigns | ShardedDesigns:
    """Find all filter designs that meet a request, best first.

    Parameters
    ----------
    keys
        Number of keys.
    fpr
        False-positive rate not to be exceeded; 0.01 if neither this nor `bits_per_key` is given.
    bits_per_key
        Memory not to be exceeded, everything counted. Alone: the least rate within it. With `fpr`:
        both must hold.
    reads, miss_reads
        At most so many mean memory reads of a present and of an absent key.
    overflow
        At most this fraction of the keys on an overflow list; 0 for no list.
    choices
        At most so many blocks a key may use.
    merge
        Only designs that merge by a plain OR of their bits.
    policies
        Only these; all seven by default.
    block_bits
        512 or 256.
    hashing
        How a standard filter draws its positions; all schemes but "independent" have a floor, and a
        design whose floor spoils the rate is left out.
    sort
        "memory", "fpr", "reads" or "miss_reads", the least first. By default the least memory (or
        the least rate, if only the memory is given) among those with at most two reads of an absent
        key, then the others.
    shard_bytes
        In shards, each of at most so many bytes, planned for its part of the keys and the tail of the
        imbalance: designs past one machine (`ShardedDesigns`). Needs no memory, whatever the keys.
    build_rate
        With shards: keys a second, in all, from which the times to build follow.

    Raises
    ------
    ValueError
        Nothing meets the request: the message names the bound that breaks and the nearest that works.

    Examples
    --------
    >>> designs = filter(keys=1e9, fpr=1e-6)
    >>> designs.best.plan.miss_reads <= 2
    True
    >>> designs.by_policy("blocked").plan.hashes
    16
    >>> filter(keys=1e12, fpr=1e-3, shard_bytes=2**30, policies=["blocked"]).best.plan.shards
    1811
    """
    if shard_bytes is not None:
        return sharded_designs(
            keys, shard_bytes=shard_bytes, build_rate=build_rate, sort=sort, seed=seed, fpr=fpr,
            bits_per_key=bits_per_key, reads=reads, miss_reads=miss_reads, overflow=overflow, choices=choices,
            merge=merge, policies=policies, block_bits=block_bits, hashing=hashing,
        )  # fmt: skip
    if build_rate is not None:
        raise arguments.unmet(
            "build_rate", " is for designs in shards: pass shard_bytes too, or leave it out"
        )
    if policies is None:
        policies = _ALL
    elif isinstance(policies, str) or not set(policies) <= set(_ALL):
        raise ValueError(
            f"policies must be a list of some of {', '.join(_ALL)}; got {policies!r}. Leave it out for all"
        )
    if sort is not None and sort not in _ORDERS:
        raise ValueError(
            f"sort must be one of {', '.join(_ORDERS)}; got {sort!r}. Leave it out for the default"
        )
    request: dict[str, object] = {
        "keys": keys, "fpr": fpr, "bits_per_key": bits_per_key, "reads": reads, "miss_reads": miss_reads,
        "overflow": overflow, "choices": choices, "merge": merge or None, "block_bits": block_bits,
        "hashing": None if hashing == "independent" else hashing,
    }  # fmt: skip
    check_bounds(reads=reads, miss_reads=miss_reads, overflow=overflow, choices=choices)
    by_rate = fpr is not None or bits_per_key is None
    asked = _Asked(
        keys,
        fpr,
        None if by_rate else bits_per_key,
        reads,
        miss_reads,
        overflow,
        choices,
        block_bits,
        hashing,
        seed,
    )
    wanted = [each for each in policies if not merge or each in _BY_OR]
    found, refused = [], []
    for policy in wanted:
        try:
            found.append(asked.plan(policy))
        except _UnfitError as error:
            refused.append(f"{policy}: {error}")
    if by_rate and bits_per_key is not None:
        most = float(bits_per_key)
        within = [plan for plan in found if plan.bits_per_key <= most * (1 + 1e-12)]
        if found and not within:
            raise ValueError(_too_little_memory(asked, wanted, most, found))
        found = within
    if not found:
        raise ValueError(
            "no design meets the request. " + ("; ".join(refused) or "merge=True leaves none of the policies")
        )
    designs = [
        FilterDesign(plan, pareto=not any(_beats(other, plan, by_rate) for other in found)) for plan in found
    ]
    return FilterDesigns(sorted(designs, key=_ORDERS.get(sort or "", _default_order(by_rate))), request)


class _UnfitError(ValueError):
    """A policy cannot meet the request; the text says why and what is nearest."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request, from which each policy makes its plan."""

    keys: Any
    fpr: float | None
    bits_per_key: float | None
    reads: float | None
    miss_reads: float | None
    overflow: float | None
    choices: int | None
    block_bits: int
    hashing: str
    seed: int

    def plan(self, policy: str) -> FilterPlan:
        """Plan for the request: _UnfitError if this policy breaks a bound, ValueError if all would."""
        goal: dict[str, Any] = {"fpr": self.fpr, "bits_per_key": self.bits_per_key, "seed": self.seed}
        if policy == "standard":
            return self._within(self._standard(goal))
        plan = plan_blocked(
            self.keys, block_bits=self.block_bits, **goal
        )  # checks the goal, for all policies
        if policy == "blocked":
            return self._within(plan)
        try:
            return plan_balanced(
                self.keys, policy=policy, reads=self.reads, miss_reads=self.miss_reads, choices=self.choices,
                overflow=self.overflow, block_bits=self.block_bits, **goal,
            )  # fmt: skip
        except ValueError as error:
            raise _UnfitError(str(error)) from None

    def _standard(self, goal: dict[str, Any]) -> FilterPlan:
        goal |= {"hashing": self.hashing}
        # Not by catching the planner's warning: the filters of `warnings` belong to all threads.
        plan, problem = plan_scheme(self.keys, **goal)
        if problem is None and self.reads is not None and plan.reads > self.reads >= 1:
            plan, problem = plan_scheme(self.keys, hashes=math.floor(self.reads), **goal)
        if problem is not None:  # the scheme cannot reach the rate
            raise _UnfitError(problem)
        if self.fpr is not None and plan.fpr > self.fpr * (1 + 1e-9):
            raise _UnfitError(f"it gives fpr={plan.fpr:.4g}, and {self.fpr:g} is allowed")
        return plan

    def _within(self, plan: FilterPlan) -> FilterPlan:
        for name in ("reads", "miss_reads"):
            bound = getattr(self, name)
            if bound is not None and getattr(plan, name) > bound * (1 + 1e-9):
                raise _UnfitError(f"it takes {name}={getattr(plan, name):.4g}, and {bound:g} are allowed")
        if plan.keys >= 64 and plan.bits_per_key > MAX_BITS_PER_KEY:  # one hash, say, at a low rate
            raise _UnfitError(f"it takes {plan.bits_per_key:.4g} bits per key within these bounds")
        return plan


def _too_little_memory(
    asked: _Asked, policies: Sequence[str], most: float, found: Sequence[FilterPlan]
) -> str:
    """Say which rate fits into the memory, and which memory gives the rate."""
    least = min(found, key=lambda plan: plan.bits_per_key)
    text = (
        f"bits_per_key={most:g} is too little for fpr={asked.fpr:g}: the least is {least.bits_per_key:.4g} "
        f'("{least.policy}")'
    )
    roomy = replace(asked, fpr=None, bits_per_key=most)
    rates = []
    for policy in policies:
        try:
            rates.append(roomy.plan(policy))
        except ValueError:
            continue
    if rates:
        best = min(rates, key=lambda plan: plan.fpr)
        text += f'; or accept fpr={best.fpr * 1.001:.3g} ("{best.policy}")'
    return text


def _beats(other: FilterPlan | ShardedPlan, plan: FilterPlan | ShardedPlan, by_rate: bool) -> bool:
    """Tell whether `other` is as good as `plan` in everything that was asked for, and better in something."""
    names = ("nbytes" if by_rate else "fpr", "reads", "miss_reads", "overflow")
    pairs = [(getattr(other, name), getattr(plan, name)) for name in names]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


_Order = Callable[[FilterDesign], tuple[float, ...]]
_ORDERS: dict[str, _Order] = {
    "memory": lambda each: (each.plan.nbytes, each.plan.miss_reads),
    "fpr": lambda each: (each.plan.fpr, each.plan.nbytes),
    "reads": lambda each: (each.plan.reads, each.plan.nbytes),
    "miss_reads": lambda each: (each.plan.miss_reads, each.plan.nbytes),
}


def _default_order(by_rate: bool) -> _Order:
    def order(each: FilterDesign) -> tuple[float, ...]:
        plan = each.plan
        return (
            plan.miss_reads > FEW_READS * (1 + 1e-9),
            plan.nbytes if by_rate else plan.fpr,
            plan.miss_reads,
        )

    return order

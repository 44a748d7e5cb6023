"""Filters by requirement: say what you need; get every design that meets it, best first, each ready to build.

    keys, fpr or bits_per_key,       standard, blocked, single, sequential,       the plans that meet it,
    bounds on reads, overflow   ──▶  multilevel, fill, two-choice: the best  ──▶  sorted, the Pareto front
                                     hashes, thresholds, shares of each           marked, each with .build()

Which is best depends on what a memory read costs, which only the user knows; so all are shown. By default
the least memory comes first among the designs that read at most two blocks for an absent key, since two
independent reads overlap and more do not pay.

The families plan each design; this module compares them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins._arguments import MAX_BITS_PER_KEY
from evenbins.design._designs import PlanDesign, PolicyDesigns, with_marks
from evenbins.filters.base import BaseFilter, build
from evenbins.filters.blocked import plan_blocked
from evenbins.filters.plan import FilterPlan, keywords_of, planner_of
from evenbins.structure import kind_of_policy, that_can
from evenbins.theory.balanced_request import Request as BalancedRequest

__all__ = [
    "FilterDesign", "FilterDesigns", "Request", "designs_for", "filter", "order_of", "policies_for",
    "respects_of",
]  # fmt: skip

FEW_READS = 2.0
"""Reads of an absent key up to which memory decides, by default."""

_NEEDS = ("merge", "remove", "grow", "shard", "redis", "dask")
_BOUNDS = frozenset({"reads", "miss_reads", "overflow", "choices", "block_bits"})
_BY_OR = ("standard", "blocked", "fill", "two-choice")
_COLUMNS = (
    ("policy", "policy"), ("hashes", "hashes"), ("choices", "choices"), ("thresholds", "thresholds"),
    ("bits_per_key", "bits/key"), ("mebibytes", "MiB"), ("fpr", "fpr"), ("reads", "reads"),
    ("miss_reads", "miss reads"), ("overflow", "overflow"),
)  # fmt: skip


class FilterDesign(PlanDesign[FilterPlan]):
    """One design: its plan, and whether no other design is as good in every respect and better in one."""

    __slots__ = ()

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
        """Return the plan by name, with the mark, as plain values that JSON can hold."""
        return PlanDesign.to_dict(self) | {"mebibytes": self.mebibytes}

    def cell(self, name: str) -> str:
        """Return a quantity as text."""
        if name == "mebibytes":
            return f"{self.mebibytes:.4g}" if self.mebibytes < 1000 else f"{self.mebibytes:,.0f}"
        if name == "thresholds":
            return " ".join(map(str, self.plan.thresholds)) or "-"
        return PlanDesign.cell(self, name)


class FilterDesigns(PolicyDesigns[FilterDesign]):
    """All designs that meet a request, best first; prints as a table, in notebooks as HTML."""

    _title = "filter designs"
    _columns = _COLUMNS

    def build(self) -> BaseFilter:
        """Build the best design."""
        return self.best.build()


def filter(
    keys: SupportsIndex | SupportsFloat, *, fpr: float | None = None, bits_per_key: float | None = None,
    reads: float | None = None, miss_reads: float | None = None, overflow: float | None = None,
    needs: Sequence[str] = (), policies: Sequence[str] | None = None, cost: str | None = None, seed: int = 0,
) -> FilterDesigns:  # fmt: skip
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
        Mean memory reads of a present and of an absent key, at most.
    overflow
        Fraction of the keys on an overflow list, at most; 0 for no list.
    needs
        What the filter must be able to do: "merge" (by a plain OR of bits), "remove", "grow", "shard",
        "redis", "dask". With "remove" counting filters are proposed; without they are not, since they need
        several times the memory.
    policies
        Only these; by default all that can do what is needed.
    cost
        What comes first, the least: "memory", "fpr", "reads" or "miss_reads". By default the memory (or
        the rate, if only the memory is given) among designs with at most two reads of an absent key, then
        the others.

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
    >>> filter(keys=1e6, fpr=1e-3, needs=["remove"]).best.policy
    'counting'
    """
    asked = Request(keys, fpr, bits_per_key, reads, miss_reads, overflow, seed=seed)
    return designs_for(asked, needs=needs, policies=policies, cost=cost)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a filter: the arguments of `filter`, and what only studies ask for.

    Attributes
    ----------
    choices : blocks a key may use, at most
    block_bits : 512 or 256
    """

    keys: Any
    fpr: float | None = None
    bits_per_key: float | None = None
    reads: float | None = None
    miss_reads: float | None = None
    overflow: float | None = None
    choices: int | None = None
    block_bits: int = 512
    seed: int = 0

    @property
    def by_rate(self) -> bool:
        """Whether the rate is given, and the memory is what remains to be found."""
        return self.fpr is not None or self.bits_per_key is None

    def options(self, policy: str) -> dict[str, Any]:
        """Return what the policy's planner takes of this, except the keys."""
        names = ("fpr", "bits_per_key", "seed", *(_BOUNDS & keywords_of(policy)))
        return {name: getattr(self, name) for name in names}

    def shown(self, needs: Sequence[str]) -> dict[str, object]:
        """Return what a table of designs says above itself; None for what was not asked."""
        return {
            "keys": self.keys, "fpr": self.fpr, "bits_per_key": self.bits_per_key, "reads": self.reads,
            "miss_reads": self.miss_reads, "overflow": self.overflow, "choices": self.choices,
            "needs": ", ".join(needs) or None, "block_bits": self.block_bits,
        }  # fmt: skip


def designs_for(
    asked: Request,
    *,
    needs: Sequence[str] = (),
    policies: Sequence[str] | None = None,
    cost: str | None = None,
) -> FilterDesigns:
    """Find all designs that meet a request; see `filter`."""
    wanted = policies_for(needs, policies)
    order = order_of(cost, asked.by_rate)
    BalancedRequest.of(  # checks each bound by itself, whether or not a policy can keep it
        reads=asked.reads, miss_reads=asked.miss_reads, overflow=asked.overflow, choices=asked.choices
    )
    goal = asked if not asked.by_rate else replace(asked, bits_per_key=None)
    found, refused = [], []
    for policy in wanted:
        try:
            found.append(_planned(goal, policy))
        except _UnfitError as error:
            refused.append(f"{policy}: {error}")
    if asked.by_rate and asked.bits_per_key is not None:
        most = float(asked.bits_per_key)
        within = [plan for plan in found if plan.bits_per_key <= most * (1 + 1e-12)]
        if found and not within:
            raise ValueError(_too_little_memory(goal, wanted, most, found))
        found = within
    if not found:
        raise ValueError("no design meets the request. " + "; ".join(refused))
    designs = [FilterDesign(*each) for each in with_marks(found, respects_of(asked.by_rate))]
    return FilterDesigns(sorted(designs, key=order), asked.shown(needs))


def policies_for(needs: Sequence[str], policies: Sequence[str] | None) -> list[str]:
    """Return the policies that can do what is needed, of those that are wanted."""
    if isinstance(needs, str) or not set(needs) <= set(_NEEDS):
        rule = f"a list of some of {', '.join(_NEEDS)}"
        raise arguments.error("needs", rule, needs, "Leave it out if the filter is only filled and asked")
    able = [kind for kind in that_can("design") if kind.policies and set(needs) <= kind.can]
    known = [policy for kind in that_can("design") for policy in kind.policies]
    if policies is None:
        wanted = [policy for kind in able for policy in kind.policies]
        if "remove" not in needs:
            wanted = [policy for policy in wanted if "remove" not in kind_of_policy(policy).can]
    elif isinstance(policies, str) or not set(policies) <= set(known):
        rule = f"a list of some of {', '.join(known)}"
        raise arguments.error("policies", rule, policies, "Leave it out for all")
    else:
        wanted = [policy for policy in policies if kind_of_policy(policy) in able]
    if "merge" in needs:
        wanted = [policy for policy in wanted if policy in _BY_OR or "remove" in needs]
    if not wanted:
        remedy = "Ask for less, or leave policies out"
        raise arguments.error("needs", "met by one of the policies", list(needs), remedy)
    return wanted


class _UnfitError(ValueError):
    """A policy cannot meet the request; the text says why and what is nearest."""


def _planned(asked: Request, policy: str) -> FilterPlan:
    """Plan for the request: _UnfitError if this policy breaks a bound, ValueError if all would."""
    planner, options = planner_of(policy), asked.options(policy)
    if "reads" in options:
        plan_blocked(asked.keys, **asked.options("blocked"))  # checks the goal, for all policies
        try:
            return planner(asked.keys, **options)
        except ValueError as error:
            raise _UnfitError(str(error)) from None
    plan = planner(asked.keys, **options)
    if policy == "standard" and asked.reads is not None and plan.reads > asked.reads >= 1:
        plan = planner(asked.keys, hashes=math.floor(asked.reads), **options)
    return _within(asked, plan)


def _within(asked: Request, plan: FilterPlan) -> FilterPlan:
    for name in ("reads", "miss_reads"):
        bound = getattr(asked, name)
        if bound is not None and getattr(plan, name) > bound * (1 + 1e-9):
            raise _UnfitError(f"it takes {name}={getattr(plan, name):.4g}, and {bound:g} are allowed")
    if plan.keys >= 64 and plan.bits_per_key > MAX_BITS_PER_KEY:  # one hash, say, at a low rate
        raise _UnfitError(f"it takes {plan.bits_per_key:.4g} bits per key within these bounds")
    return plan


def _too_little_memory(
    asked: Request, policies: Sequence[str], most: float, found: Sequence[FilterPlan]
) -> str:
    """Return a message: which rate fits into the memory, and which memory gives the rate."""
    least = min(found, key=lambda plan: plan.bits_per_key)
    text = (
        f"bits_per_key={most:g} is too little for fpr={asked.fpr:g}: the least is {least.bits_per_key:.4g} "
        f'("{least.policy}")'
    )
    roomy = replace(asked, fpr=None, bits_per_key=most)
    rates = []
    for policy in policies:
        try:
            rates.append(_planned(roomy, policy))
        except ValueError:
            continue
    if rates:
        best = min(rates, key=lambda plan: plan.fpr)
        text += f'; or accept fpr={best.fpr * 1.001:.3g} ("{best.policy}")'
    return text


def respects_of(by_rate: bool) -> tuple[str, ...]:
    """Return in what designs are compared."""
    return ("nbytes" if by_rate else "fpr", "reads", "miss_reads", "overflow")


_COSTS = {
    "memory": ("nbytes", "miss_reads"),
    "fpr": ("fpr", "nbytes"),
    "reads": ("reads", "nbytes"),
    "miss_reads": ("miss_reads", "nbytes"),
}


def order_of(cost: str | None, by_rate: bool) -> Callable[[Any], tuple[float, ...]]:
    """Return the key by which designs are sorted."""
    if cost is not None:
        names = _COSTS[arguments.one_of("cost", cost, tuple(_COSTS), "Leave it out for the default")]
        return lambda design: tuple(getattr(design.plan, name) for name in names)

    def order(design: Any) -> tuple[float, ...]:
        plan = design.plan
        return (
            plan.miss_reads > FEW_READS * (1 + 1e-9),
            plan.nbytes if by_rate else plan.fpr,
            plan.miss_reads,
        )

    return order

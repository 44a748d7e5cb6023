"""Filters by requirement: say what you need; get every design that meets it, best first, each ready to build.

    keys, fpr or bits_per_key,       standard, blocked, single, sequential,       the plans that meet it,
    bounds on reads, overflow   ──▶  multilevel, fill, two-choice: the best  ──▶  sorted, the Pareto front
                                     hashes, thresholds, shares of each           marked, each with .build()

Which is best depends on what time and memory are worth, which only the user knows; so all are shown, with
both. By default the least product of the two comes first (`cost`): one percent of time counts as much as one
percent of memory.

The families plan each design; this module compares them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsFloat, SupportsIndex, TypeVar

from evenbins import _arguments as arguments
from evenbins._arguments import MAX_BITS_PER_KEY
from evenbins.design._designs import PlanDesign, PolicyDesigns, with_marks
from evenbins.design.cost import cost_order, lookup_ns
from evenbins.design.needs import capabilities_of, listed, policies_for
from evenbins.filters.base import BaseFilter, build, class_for
from evenbins.filters.blocked import plan_blocked
from evenbins.filters.growing import GrowingFilter
from evenbins.filters.plan import FilterPlan, keywords_of, planner_of
from evenbins.filters.stage_plans import StageRequest, keys_of_stage
from evenbins.structure import kind_of_policy
from evenbins.theory.balanced_request import Request as BalancedRequest

__all__ = [
    "FilterDesign", "FilterDesigns", "GrowingDesign", "Request", "designs_for", "filter", "respects_of",
]  # fmt: skip

_BOUNDS = frozenset({"reads", "miss_reads", "overflow", "choices", "block_bits"})
_COLUMNS = (
    ("policy", "policy"), ("hashes", "hashes"), ("choices", "choices"), ("thresholds", "thresholds"),
    ("bits_per_key", "bits/key"), ("mebibytes", "MiB"), ("ns", "ns"), ("fpr", "fpr"), ("reads", "reads"),
    ("miss_reads", "miss reads"), ("overflow", "overflow"),
)  # fmt: skip


class FilterDesign(PlanDesign[FilterPlan]):
    """One design: its plan, and whether no other design is as good in every respect and better in one."""

    __slots__ = ()

    @property
    def mebibytes(self) -> float:
        """The memory in MiB, everything counted."""
        return self.plan.nbytes / 2**20

    @property
    def ns(self) -> float:
        """The predicted time of a look-up in nanoseconds; see `evenbins.design.cost`."""
        return lookup_ns(self.plan)

    def build(self, keys: object = None) -> BaseFilter | GrowingFilter:
        """Build the filter, with these keys in it; a design for a fixed set is built from its keys alone.

        Examples
        --------
        >>> f = filter(keys=1000, fpr=1e-3)[0].build()
        >>> f.add("key")
        >>> "key" in f
        True
        >>> "key" in filter(keys=2, fpr=1e-3, needs=["fixed set"]).build(["key", "other"])
        True
        """
        if keys is not None and "fixed-set" in kind_of_policy(self.plan.policy).can:
            found: BaseFilter = class_for(self.plan).from_keys(keys, self.plan.fpr, seed=self.plan.seed)
            return found
        return _with_keys(build(self.plan), keys)

    def to_dict(self) -> dict[str, object]:
        """Return the plan by name, with the mark, as plain values that JSON can hold."""
        return PlanDesign.to_dict(self) | {"mebibytes": self.mebibytes, "ns": self.ns}

    def cell(self, name: str) -> str:
        """Return a quantity as text."""
        if name == "mebibytes":
            return f"{self.mebibytes:.4g}" if self.mebibytes < 1000 else f"{self.mebibytes:,.0f}"
        if name == "ns":
            return f"{self.ns:.1f}"
        if name == "thresholds":
            return " ".join(map(str, self.plan.thresholds)) or "-"
        return PlanDesign.cell(self, name)


@dataclass(frozen=True, slots=True)
class GrowingDesign(FilterDesign):
    """A design for a number of keys that is not known: its plan is that of the first stage.

    Attributes
    ----------
    promised : the rate of the filter, however much it grows
    first : the keys that were asked for
    """

    promised: float
    first: int

    def build(self, keys: object = None) -> GrowingFilter:
        """Build the growing filter, whose first stage has as many keys as were asked for."""
        made = GrowingFilter(
            self.promised, first=self.first, policy=self.policy, block_bits=self.plan.block_bits or 512,
            seed=self.plan.seed,
        )  # fmt: skip
        return _with_keys(made, keys)


class FilterDesigns(PolicyDesigns[FilterDesign]):
    """All designs that meet a request, best first; prints as a table, in notebooks as HTML."""

    _title = "filter designs"
    _columns = _COLUMNS

    def build(self, keys: object = None) -> BaseFilter | GrowingFilter:
        """Build the best design, with these keys in it."""
        return self.best.build(keys)


_F = TypeVar("_F", BaseFilter, GrowingFilter)


def _with_keys(made: _F, keys: object) -> _F:
    if keys is not None:
        made.add_many(keys)
    return made


def filter(
    keys: SupportsIndex | SupportsFloat, *, fpr: float | None = None, bits_per_key: float | None = None,
    reads: float | None = None, miss_reads: float | None = None, overflow: float | None = None,
    needs: str | Sequence[str] = (), policies: Sequence[str] | None = None,
    cost: str | Mapping[str, float] | None = None, seed: int = 0,
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
        What the filter must be able to do, one word or a list: "merge" (by a plain OR of bits), "remove" or
        "deletions", "grow" or "unknown size", "shard", "redis" or "shared", "dask", "window", "fixed set",
        "on disk". With "deletions" fingerprint and counting filters are proposed; without they are not: what
        is removed must have been added, or other keys are lost. With "fixed set" fuse filters are, which are
        built from all keys at once: `build(keys)`. With "window" window filters of the last `keys` additions
        are, of which as many may be different; `plan_window` plans for a window of time. With "unknown size"
        `build` returns a `GrowingFilter` whose first stage holds `keys` keys, or up to 256 times as many if
        it is a fingerprint filter, which doubles by itself. A need that no kind of filter meets raises an
        error that names the nearest.
    policies
        Only these; by default all that can do what is needed.
    cost
        Weights, such as the default {"time": 1, "memory": 1}: the design with the least
        ns**time * bytes**memory comes first. Or what alone decides, the least first: "time", "memory",
        "fpr", "reads" or "miss_reads", which may be weighed too. If only the memory is given, its weight
        counts for the rate: bytes / ln(1 / fpr).

    Raises
    ------
    ValueError
        Nothing meets the request: the message names the bound that breaks and the nearest that works.

    Examples
    --------
    >>> designs = filter(keys=1e9, fpr=1e-6)
    >>> designs.best.policy, filter(keys=1e9, fpr=1e-6, cost="memory").best.policy
    ('blocked', 'standard')
    >>> designs.by_policy("blocked").plan.hashes
    16
    >>> filter(keys=1e6, fpr=1e-3, needs=["deletions"]).best.policy
    'fingerprint'
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

    def shown(self, needs: str | Sequence[str]) -> dict[str, object]:
        """Return what a table of designs says above itself; None for what was not asked."""
        return {
            "keys": self.keys, "fpr": self.fpr, "bits_per_key": self.bits_per_key, "reads": self.reads,
            "miss_reads": self.miss_reads, "overflow": self.overflow, "choices": self.choices,
            "needs": ", ".join(listed(needs)) or None, "block_bits": self.block_bits,
        }  # fmt: skip


def designs_for(
    asked: Request,
    *,
    needs: str | Sequence[str] = (),
    policies: Sequence[str] | None = None,
    cost: str | Mapping[str, float] | None = None,
) -> FilterDesigns:
    """Find all designs that meet a request; see `filter`."""
    wanted = policies_for(needs, policies)
    order = cost_order(cost, asked.by_rate)
    grows, shown = "grow" in capabilities_of(needs), asked.shown(needs)
    if grows:
        if not asked.by_rate:
            remedy = "A filter of unknown size has no memory that could be given"
            raise arguments.error("fpr", 'given where "unknown size" is needed', None, remedy)
        promised = arguments.rate(arguments.DEFAULT_FPR if asked.fpr is None else asked.fpr)
        asked = replace(asked, fpr=promised * 6 / math.pi**2)  # of the first stage
    BalancedRequest.of(  # checks each bound by itself, whether or not a policy can keep it
        reads=asked.reads, miss_reads=asked.miss_reads, overflow=asked.overflow, choices=asked.choices
    )
    goal = asked if not asked.by_rate else replace(asked, bits_per_key=None)
    found, refused = [], []
    for policy in wanted:
        try:
            found.append(_first_stage(goal, policy) if grows else _planned(goal, policy))
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
    marked = with_marks(found, respects_of(asked.by_rate))
    first = arguments.capacity(asked.keys)
    designs = [GrowingDesign(*each, promised, first) if grows else FilterDesign(*each) for each in marked]
    return FilterDesigns(sorted(designs, key=order), shown | {"cost": cost})


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


def _first_stage(asked: Request, policy: str) -> FilterPlan:
    """Plan the first stage of a growing filter; a fingerprint filter grows by itself."""
    if policy != "fingerprint":
        return _planned(asked, policy)
    rate = arguments.rate(asked.fpr)
    first = keys_of_stage(policy, arguments.capacity(asked.keys), rate)
    return _within(asked, StageRequest(policy, first, rate, 512).plan(asked.seed))


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

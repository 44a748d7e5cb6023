"""Filters in shards by requirement: the designs of `design.filter`, each cut into shards of a size.

    keys, fpr, shard_bytes ──▶ the designs of one filter ──▶ each in as few shards as fit, planned for
                               that meet the request         the tail of the imbalance; with .build()

Which designs meet a request does not depend on the shards: `design.filter` finds them for the keys of one
shard, and this module cuts them. So 1e12 keys are planned as quickly as 1e9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins import _show
from evenbins.design._designs import Designs
from evenbins.filters.sharded import ShardedFilter
from evenbins.theory.sharding import ShardedPlan, plan_sharded

if TYPE_CHECKING:
    from evenbins.design.filters import FilterDesign

__all__ = ["ShardedDesign", "ShardedDesigns", "sharded_designs"]

_COLUMNS = (
    ("policy", "policy"), ("shards", "shards"), ("shard_bytes", "shard"), ("nbytes", "in all"),
    ("bits_per_key", "bits/key"), ("shard_keys", "keys/shard"), ("capacity", "planned"),
    ("largest_shard", "fullest"), ("fpr", "fpr"), ("reads", "reads"), ("miss_reads", "miss reads"),
    ("round_trips", "trips"), ("moved", "moved by +1"), ("rebuild_seconds", "rebuild"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ShardedDesign:
    """One design in shards: its plan, and whether no other is as good in every respect and better in one."""

    plan: ShardedPlan
    pareto: bool

    @property
    def policy(self) -> str:
        """The policy of the shards."""
        return self.plan.policy

    def build(self) -> ShardedFilter:
        """Build the filter, where it fits; MemoryError says so where it does not.

        Examples
        --------
        >>> from evenbins import design
        >>> f = design.filter(keys=100_000, fpr=1e-3, shard_bytes=50_000).build()
        >>> f.add("key")
        >>> "key" in f, f.shards
        (True, 4)
        """
        return ShardedFilter.from_plan(self.plan)

    def to_dict(self) -> dict[str, object]:
        """Give the plan by name, with the mark, as plain values that JSON can hold."""
        return self.plan.to_dict() | {"pareto": self.pareto}

    def cell(self, name: str) -> str:
        """Give a quantity as text."""
        if name == "capacity":
            return _show.text(name, self.plan.shard.keys)
        value = getattr(self.plan, name)
        if name == "rebuild_seconds":
            return "-" if value is None else _duration(value)
        if name == "moved":
            return f"{value:.2%}" if value >= 1e-3 else f"{value:.2e}"
        return _show.text(name, round(value) if name in ("shard_keys", "largest_shard") else value)


class ShardedDesigns(Designs[ShardedDesign]):
    """All designs in shards that meet a request, best first; prints as a table, in notebooks as HTML."""

    _title = "designs in shards"
    _columns = _COLUMNS

    def by_policy(self, policy: str) -> ShardedDesign:
        """Give the design of a policy; KeyError if the request rules it out."""
        for each in self:
            if each.policy == policy:
                return each
        raise KeyError(policy)

    def build(self) -> ShardedFilter:
        """Build the best design."""
        return self.best.build()


def sharded_designs(
    keys: SupportsIndex | SupportsFloat,
    *,
    shard_bytes: SupportsIndex | SupportsFloat,
    build_rate: float | None,
    seed: int,
    **asked: Any,
) -> ShardedDesigns:
    """Find all designs in shards of at most `shard_bytes` that meet a request of `design.filter`."""
    from evenbins.design.filters import _ORDERS, _beats, _default_order, filter

    total = arguments.capacity(keys)
    fpr, bits_per_key, sort = asked["fpr"], asked["bits_per_key"], asked["sort"]
    by_rate = fpr is not None or bits_per_key is None
    plans = [
        plan_sharded(
            total, shard_bytes=shard_bytes, policy=each.policy, build_rate=build_rate, seed=seed,
            **_goal(fpr, bits_per_key), **_options(each, asked),
        )
        for each in filter(min(total, _guess(shard_bytes)), seed=seed, **asked)
    ]  # fmt: skip
    if by_rate and bits_per_key is not None:
        within = [plan for plan in plans if plan.bits_per_key <= bits_per_key * (1 + 1e-12)]
        if not within:
            least = min(plan.bits_per_key for plan in plans)
            raise arguments.unmet(
                "bits_per_key",
                f"={bits_per_key:g} is too little for fpr={fpr:g} in shards: the least is {least:.4g}",
            )
        plans = within
    found: list[Any] = [
        ShardedDesign(plan, pareto=not any(_beats(other, plan, by_rate) for other in plans)) for plan in plans
    ]
    found.sort(key=_ORDERS.get(sort or "", _default_order(by_rate)))
    request = {name: value for name, value in asked.items() if name not in ("sort", "policies", "hashing")}
    request = {"keys": keys, **request, "shard_bytes": shard_bytes, "build_rate": build_rate}
    request["merge"] = request["merge"] or None
    return ShardedDesigns(found, request)


def _guess(shard_bytes: object) -> int:
    """Give about the keys of a shard, for which policies are compared; the number hardly matters."""
    size = arguments.real("shard_bytes", shard_bytes, "a number of bytes from 64", "Pass for example 2**30")
    return max(1000, math.floor(min(size, 2.0**40) / 2))


def _goal(fpr: float | None, bits_per_key: float | None) -> dict[str, Any]:
    """Give what a plan is made for: the rate if both were asked for, as `design.filter` does."""
    return {"fpr": fpr, "bits_per_key": None if fpr is not None else bits_per_key}


def _options(each: FilterDesign, asked: dict[str, Any]) -> dict[str, Any]:
    """Give what the policy's planner takes of the request."""
    names: Sequence[str] = ()
    if each.policy == "standard":
        plan: dict[str, Any] = {"hashing": asked["hashing"]}
        if asked["reads"] is not None and each.plan.reads <= asked["reads"]:
            plan["hashes"] = each.plan.hashes
        return plan
    if each.policy != "blocked":
        names = ("reads", "miss_reads", "overflow", "choices")
    return {name: asked[name] for name in names} | {"block_bits": asked["block_bits"]}


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"

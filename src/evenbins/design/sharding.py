"""Filters in shards by requirement: the designs of `design.filter`, each cut into shards of a size.

    keys, fpr, shard_bytes ──▶ the designs of one filter ──▶ each in as few shards as fit, planned for
                               that meet the request         the tail of the imbalance; with .build()

Which designs meet a request does not depend on the shards: `design.filter` finds them for the keys of one
shard, and this module cuts them. So 1e12 keys are planned as quickly as 1e9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins import _show
from evenbins.design._designs import PlanDesign, PolicyDesigns, with_marks
from evenbins.design.cost import cost_order
from evenbins.design.filters import FilterDesign, Request, designs_for, respects_of
from evenbins.design.needs import listed
from evenbins.filters.sharded import ShardedFilter
from evenbins.filters.sharded_plan import ShardedPlan, plan_sharded

__all__ = ["ShardedDesign", "ShardedDesigns", "sharded_filter"]

_COLUMNS = (
    ("policy", "policy"), ("shards", "shards"), ("shard_bytes", "shard"), ("nbytes", "in all"),
    ("bits_per_key", "bits/key"), ("shard_keys", "keys/shard"), ("capacity", "planned"),
    ("largest_shard", "fullest"), ("fpr", "fpr"), ("reads", "reads"), ("miss_reads", "miss reads"),
    ("round_trips", "trips"), ("moved", "moved by +1"), ("rebuild_seconds", "rebuild"),
)  # fmt: skip


class ShardedDesign(PlanDesign[ShardedPlan]):
    """One design in shards: its plan, and whether no other is as good in every respect and better in one."""

    __slots__ = ()

    def build(self) -> ShardedFilter:
        """Build the filter, where it fits; MemoryError says so where it does not.

        Examples
        --------
        >>> from evenbins import design
        >>> f = design.sharded_filter(keys=100_000, fpr=1e-3, shard_bytes=50_000).build()
        >>> f.add("key")
        >>> "key" in f, f.shards
        (True, 4)
        """
        return ShardedFilter.from_plan(self.plan)

    def cell(self, name: str) -> str:
        """Return a quantity as text."""
        if name == "capacity":
            return _show.text(name, self.plan.shard.keys)
        value = getattr(self.plan, name)
        if name == "rebuild_seconds":
            return "-" if value is None else _duration(value)
        if name == "moved":
            return f"{value:.2%}" if value >= 1e-3 else f"{value:.2e}"
        return _show.text(name, round(value) if name in ("shard_keys", "largest_shard") else value)


class ShardedDesigns(PolicyDesigns[ShardedDesign]):
    """All designs in shards that meet a request, best first; prints as a table, in notebooks as HTML."""

    _title = "designs in shards"
    _columns = _COLUMNS

    def build(self) -> ShardedFilter:
        """Build the best design."""
        return self.best.build()


def sharded_filter(
    keys: SupportsIndex | SupportsFloat, *, shard_bytes: SupportsIndex | SupportsFloat,
    fpr: float | None = None, bits_per_key: float | None = None, reads: float | None = None,
    miss_reads: float | None = None, overflow: float | None = None, needs: str | Sequence[str] = (),
    policies: Sequence[str] | None = None, cost: str | Mapping[str, float] | None = None,
    build_rate: float | None = None, seed: int = 0,
) -> ShardedDesigns:  # fmt: skip
    """Find all designs in shards that meet a request, past one machine; needs no memory, whatever the keys.

    Parameters
    ----------
    shard_bytes
        A shard has at most so many bytes, and is planned for its part of the keys and the tail of the
        imbalance.
    keys, fpr, bits_per_key, reads, miss_reads, overflow, needs, policies, cost, seed
        As for `filter`.
    build_rate
        Keys per second, in all, from which the times to build follow.

    Examples
    --------
    >>> sharded_filter(keys=1e12, fpr=1e-3, shard_bytes=2**30, policies=["blocked"]).best.plan.shards
    1811
    """
    asked = Request(keys, fpr, bits_per_key, reads, miss_reads, overflow, seed=seed)
    total = arguments.capacity(keys)
    small = replace(asked, keys=min(total, _guess(shard_bytes)))
    plans = [
        plan_sharded(
            total, shard_bytes=shard_bytes, policy=each.policy, build_rate=build_rate,
            **_options(each, asked),
        )
        for each in designs_for(small, needs=["shard", *listed(needs)], policies=policies, cost=cost)
    ]  # fmt: skip
    if asked.by_rate and bits_per_key is not None:
        within = [plan for plan in plans if plan.bits_per_key <= bits_per_key * (1 + 1e-12)]
        if not within:
            least = min(plan.bits_per_key for plan in plans)
            raise arguments.unmet(
                "bits_per_key",
                f"={bits_per_key:g} is too little for fpr={fpr:g} in shards: the least is {least:.4g}",
            )
        plans = within
    designs = [ShardedDesign(*each) for each in with_marks(plans, respects_of(asked.by_rate))]
    shown = asked.shown(needs) | {"shard_bytes": shard_bytes, "build_rate": build_rate}
    return ShardedDesigns(sorted(designs, key=cost_order(cost, asked.by_rate)), shown)


def _guess(shard_bytes: object) -> int:
    """Return about the keys of a shard, for which policies are compared; the number hardly matters."""
    size = arguments.real("shard_bytes", shard_bytes, "a number of bytes from 64", "Pass for example 2**30")
    return max(1000, math.floor(min(size, 2.0**40) / 2))


def _options(each: FilterDesign, asked: Request) -> dict[str, Any]:
    """Return what the policy's planner takes of the request: the rate if memory was asked for too."""
    options = asked.options(each.policy)
    if asked.fpr is not None:
        options["bits_per_key"] = None
    limited = asked.reads is not None and each.plan.reads <= asked.reads
    return options | {"hashes": each.plan.hashes} if each.policy == "standard" and limited else options


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"

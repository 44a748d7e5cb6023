"""Plans of filters in many shards, past one machine.

    keys, rate, shard_bytes ──▶ shards, keys each is planned for ──▶ the plan of one shard (all have the same)
                                (mean + tail of the imbalance)       and what the whole then does

`theory.sharding` has the imbalance. Nothing here allocates: 1e12 keys are as quick to plan as 1e6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, SupportsFloat, SupportsIndex

from evenbins import _arguments as arguments
from evenbins._show import ReprMixin
from evenbins.filters.composite import CompositePlan
from evenbins.filters.plan import FilterPlan, plan_of_core, planner_of
from evenbins.theory.cores import POLICIES
from evenbins.theory.sharding import (
    EXCEED,
    MAX_SHARDS,
    checked_shards,
    largest_shard,
    moved,
    overflow_probability,
    shard_capacity,
    shards_touched,
)

__all__ = ["ShardedPlan", "plan_sharded", "sharded_plan_of"]

_POLICIES = ("standard", "blocked", *POLICIES, "fingerprint")  # their order is in plans' cores


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _WholePlan(CompositePlan):
    """The plan of a sharded filter as one filter."""

    _to_merge = "Take a shard's plan, sharding.shard"

    def with_keys(self, keys: int) -> FilterPlan:
        """Predict the same shards with another number of keys in all."""
        shards, policy, *core = self.core
        one = plan_of_core(
            _POLICIES[policy], core, capacity=max(1, keys // shards), seed=self.seed, hashing=self.hashing
        )
        return replace(self, keys=keys, fpr=_mean_rate(keys, shards, one))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ShardedPlan(ReprMixin):
    """A filter in shards: the plan of each of them, and what all of them do together.

    Attributes
    ----------
    keys, shards : in all
    shard : the plan of every shard, for `shard.keys` keys: the mean and the tail of the imbalance
    shard_keys, shard_keys_sd, largest_shard : keys of a shard: mean, standard deviation, expected maximum
    exceed : probability that some shard gets more than `shard.keys` keys, at most
    fpr : rate of the whole: the mean over the shards, whose keys vary
    reads, miss_reads : memory reads of a look-up of a present and an absent key, in its one shard
    round_trips : requests to other machines for a look-up of one key, if every shard has one of its own
    bits_per_key, nbytes, shard_bytes : memory: of the whole per key, in all, of one shard
    moved, moved_by_range : share of keys whose shard changes when `added` shards are added: by a consistent
        function, and by ranges (as in `ShardedFilter`)
    rebuild_seconds, grow_seconds : time to build everything anew, and to build `added` more shards from
        the keys that move there, at `build_rate` keys per second in all; None without a rate
    """

    _in_one_line = ("policy", "keys", "shards", "shard_bytes", "fpr", "exceed", "nbytes")

    keys: int
    shards: int
    shard: FilterPlan
    shard_keys: float
    shard_keys_sd: float
    largest_shard: float
    exceed: float
    fpr: float
    reads: float
    miss_reads: float
    round_trips: float
    bits_per_key: float
    nbytes: int
    shard_bytes: int
    added: int
    moved: float
    moved_by_range: float
    build_rate: float | None = None
    rebuild_seconds: float | None = None
    grow_seconds: float | None = None

    @property
    def policy(self) -> str:
        """The policy of the shards."""
        return self.shard.policy

    @property
    def overflow(self) -> float:
        """The fraction of keys on the overflow lists."""
        return self.shard.overflow

    @property
    def seed(self) -> int:
        """The seed of the digests."""
        return self.shard.seed

    def shards_touched(self, batch: int) -> float:
        """Compute the expected shards, so round trips, that a call with `batch` keys takes."""
        return shards_touched(self.shards, batch)

    def filter_plan(self) -> CompositePlan:
        """Return the plan of the whole as one filter: what `ShardedFilter.plan` is."""
        one = self.shard
        same = (
            "block_bits", "hashes", "choices", "thresholds", "coin", "shares", "reads", "miss_reads",
            "list_reads", "spilled", "overflow", "spill", "hashing", "seed",
        )  # fmt: skip
        return _WholePlan(
            **{name: getattr(one, name) for name in same},
            keys=self.keys,
            policy="sharded",
            bits_per_key=self.bits_per_key,
            fpr=self.fpr,
            fill=one.with_keys(round(self.shard_keys)).fill,
            overflow_limit=one.overflow_limit * self.shards,
            nbytes=self.nbytes,
            core=(self.shards, _POLICIES.index(one.policy), *one.core),
        )

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON-serialisable values."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"policy": self.policy} | values | {"shard": self.shard.to_dict()}

    def _rows(self) -> list[tuple[str, object]]:
        rows: list[tuple[str, object]] = [("policy", self.policy)]
        for each in fields(self):
            if each.name == "shard":
                rows += [("shard.keys", self.shard.keys), ("shard.hashes", self.shard.hashes)]
            elif getattr(self, each.name) is not None:
                rows.append((each.name, getattr(self, each.name)))
        return rows


def plan_sharded(
    keys: SupportsIndex | SupportsFloat, *, shards: int | None = None,
    shard_bytes: SupportsIndex | SupportsFloat | None = None, policy: str | None = "blocked",
    fpr: float | None = None, bits_per_key: float | None = None, exceed: float = EXCEED, added: int = 1,
    build_rate: float | None = None, seed: int = 0, **rest: Any,
) -> ShardedPlan:  # fmt: skip
    """Plan a filter in shards: so many, or as few as fit into `shard_bytes` each.

    Parameters
    ----------
    keys, shards, shard_bytes, policy, fpr, bits_per_key, seed
        As for `ShardedFilter`, whose `capacity` is `keys`: up to 2**20 shards. No shard that has the keys it
        was planned for exceeds `fpr`.
    exceed
        Probability that some shard gets more keys than it was planned for, at most.
    added, build_rate
        What `moved`, `rebuild_seconds` and `grow_seconds` ask: shards added; keys per second, in all.
    rest
        What the policy's own plan takes: hashes, block_bits, reads, …

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range, or the shards would be too many.

    Examples
    --------
    >>> plan_sharded(1e12, fpr=1e-3, shard_bytes=2**30)
    ShardedPlan(policy='blocked', keys=1_000_000_000_000, shards=1_811, shard_bytes=1.07 GB, fpr=9.98e-04, \
exceed=1.00e-06, nbytes=1.94 TB)
    """
    n = arguments.capacity(keys)
    if (shards is None) == (shard_bytes is None):
        raise ValueError(
            f"give shards or shard_bytes, one of them; got shards={arguments.shown(shards)} and "
            f"shard_bytes={arguments.shown(shard_bytes)}. The other follows from it"
        )
    rate, per_key = arguments.goal(fpr, bits_per_key)
    more = arguments.integer("added", added, 1, MAX_SHARDS, "Pass the number of shards to add")
    speed = _build_rate(build_rate)
    if policy is not None:
        arguments.one_of("policy", policy, _POLICIES, 'Pass "blocked", or None for the best balanced one')
    if rest.get("semantics") is not None and policy != "fingerprint":
        raise arguments.error("semantics", 'for policy="fingerprint"', rest["semantics"], "Leave it out")
    planner = planner_of(policy)
    options = rest | {"seed": seed}

    def at(count: int) -> FilterPlan:
        capacity = shard_capacity(n, count, exceed)
        if per_key is None:
            return planner(capacity, fpr=rate, **options)
        return planner(capacity, bits_per_key=per_key * (n / count) / capacity, **options)

    if shards is not None:
        count = checked_shards(shards)
        if count > n:
            raise ValueError(
                f"shards must be at most the number of keys; got {count} for {n} keys. Pass fewer"
            )
        one = at(count)
    else:
        count, one = _fewest(n, _shard_bytes(shard_bytes), at)
    return _plan_with(n, count, one, more, speed)


def sharded_plan_of(keys: int, shards: int, shard: FilterPlan) -> ShardedPlan:
    """Predict anew from the integers of a directory that was loaded."""
    return _plan_with(keys, shards, shard, 1, None)


def _plan_with(keys: int, shards: int, one: FilterPlan, added: int, speed: float | None) -> ShardedPlan:
    mean = keys / shards
    share = moved(shards, shards + added)
    return ShardedPlan(
        keys=keys,
        shards=shards,
        shard=one,
        shard_keys=mean,
        shard_keys_sd=math.sqrt(mean * (1 - 1 / shards)),
        largest_shard=largest_shard(keys, shards),
        exceed=overflow_probability(keys, shards, one.keys)[1],
        fpr=_mean_rate(keys, shards, one),
        reads=one.reads,
        miss_reads=one.miss_reads,
        round_trips=1.0,
        bits_per_key=8 * one.nbytes * shards / keys,
        nbytes=one.nbytes * shards,
        shard_bytes=one.nbytes,
        added=added,
        moved=share,
        moved_by_range=moved(shards, shards + added, "range"),
        build_rate=speed,
        rebuild_seconds=None if speed is None else keys / speed,
        grow_seconds=None if speed is None else share * keys / speed,
    )


def _fewest(keys: int, most: int, at: Callable[[int], FilterPlan]) -> tuple[int, FilterPlan]:
    """Find the fewest shards of at most `most` bytes."""

    def within(count: int) -> int:
        if count > min(MAX_SHARDS, keys):
            raise arguments.unmet(
                "shard_bytes",
                f" must be large enough for {min(MAX_SHARDS, keys)} shards to hold the keys; got "
                f"{most} bytes for {keys} keys. Pass more bytes a shard",
            )
        return count

    count = 1
    one = at(1)
    while one.nbytes > most:  # the bytes of a shard fall a little slower than 1/count: the tail
        count = within(max(count + 1, count * one.nbytes // most))
        one = at(count)
    for _ in range(4):
        if count == 1 or (fewer := at(count - 1)).nbytes > most:
            break
        count, one = count - 1, fewer
    return count, one


def _mean_rate(keys: int, shards: int, one: FilterPlan) -> float:
    """Average the rate over the keys of a shard, by three points with its first moments (Gauss-Hermite)."""
    mean = keys / shards
    spread = math.sqrt(3 * mean * (1 - 1 / shards))
    points = ((mean, 2 / 3), (mean - spread, 1 / 6), (mean + spread, 1 / 6))
    if shards == 1:
        points = ((mean, 1.0), (mean, 0.0), (mean, 0.0))
    return math.fsum(w * one.with_keys(round(x)).fpr for x, w in points if w and x > 0)


def _shard_bytes(value: object) -> int:
    rule, remedy = "a number of bytes from 64", "Pass for example 2**30"
    return math.floor(arguments.real("shard_bytes", value, rule, remedy, least=64, below=math.inf))


def _build_rate(value: object) -> float | None:
    if value is None:
        return None
    rule, remedy = "a number of keys per second above 0", "Pass what you measured, such as 20e6"
    return arguments.real("build_rate", value, rule, remedy, above=0.0, below=math.inf)

"""Shards: how unevenly hashing spreads keys over them, and plans of filters in many shards, past one machine.

    keys, rate, shard_bytes ──▶ shards, keys each is planned for ──▶ the plan of one shard (all have the same)
                                (mean + tail of the imbalance)       and what the whole then does

The keys of one of S shards are binomial, Bin(keys, 1/S); those of all are multinomial. A shard that gets
more than it was planned for has a higher rate than promised, so each is planned for `capacity` keys: the
least number that no shard exceeds, but for the probability `exceed`. With p = P(one exceeds) the counts'
negative association brackets what is wanted,

    1 - (1 - p)**S  <=  P(some shard exceeds)  <=  S p,

and both ends agree where p is small; plans use the upper end. At a billion keys a shard the tail costs
2e-4 of the memory; at ten thousand 6 %.

Nothing here allocates: 1e12 keys are as quick to plan as 1e6. Checked in tests by simulation at sizes that
fit, and the tail against a sum of its own terms.

Adding shards (`moved`): the share of keys whose shard is another afterwards. By ranges of the word, as
`ShardedFilter` has them, or by the remainder, most keys move; a consistent function (a HashRing's dense
slots) moves the least possible. A filter gives no key back, so a key that moves is one to read again from
its source; with a consistent function only the new shards have to be built, and the old ones keep the bits
of keys that left, which harm no look-up of a present key and leave the rate as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np

from evenbins import _arguments as arguments
from evenbins._show import ReprMixin
from evenbins.theory.balanced_plan import plan_balanced
from evenbins.theory.filter_plan import Family, FilterPlan, plan_of_core, register
from evenbins.theory.levels import POLICIES
from evenbins.theory.plan import plan_blocked, plan_standard

__all__ = [
    "MAX_SHARDS", "ShardedPlan", "checked_shards", "largest_shard", "moved", "overflow_probability",
    "plan_sharded", "shard_capacity", "shards_touched",
]  # fmt: skip

MAX_SHARDS = 2**20
EXCEED = 1e-6
"""Probability that some shard gets more keys than it was planned for, by default."""
_POLICIES = ("standard", "blocked", *POLICIES)
_PLACEMENTS = ("range", "mod", "consistent")


# --- the imbalance -------------------------------------------------------------------------------------


def _tail(keys: int, shards: int, most: float | np.ndarray[Any, Any]) -> Any:
    """Compute P(Bin(keys, 1/shards) > most): the regularised incomplete beta function."""
    from scipy.special import betainc

    most = np.asarray(most, dtype=np.float64)
    inside = np.clip(most, 0, keys - 1)
    found = betainc(inside + 1, keys - inside, 1 / shards)
    return np.where(most >= keys, 0.0, np.where(most < 0, 1.0, found))


def overflow_probability(
    keys: SupportsIndex | SupportsFloat, shards: int, capacity: int
) -> tuple[float, float]:
    """Bracket the probability that some of `shards` shards gets more than `capacity` of `keys` keys.

    Returns the lower and the upper bound of the module's head; they differ by at most half the upper one
    squared.

    Examples
    --------
    >>> low, high = overflow_probability(1_000_000, 100, 10_400)
    >>> print(f"{low:.4e} {high:.4e}")
    3.1536e-03 3.1585e-03
    """
    n, s = arguments.capacity(keys), checked_shards(shards)
    most = arguments.integer("capacity", capacity, 0, None, "Pass the keys that a shard is planned for")
    if s == 1:
        return (1.0, 1.0) if most < n else (0.0, 0.0)
    p = float(_tail(n, s, most))
    return (-math.expm1(s * math.log1p(-p)) if p < 1 else 1.0), min(1.0, s * p)


def shard_capacity(keys: SupportsIndex | SupportsFloat, shards: int, exceed: float = EXCEED) -> int:
    """Return the least keys to plan each shard for, so that P(some shard gets more) is at most `exceed`.

    Examples
    --------
    >>> shard_capacity(1e12, 1000), shard_capacity(1_000_000, 100)
    (1000189578, 10563)
    """
    n, s = arguments.capacity(keys), checked_shards(shards)
    chance = arguments.real("exceed", exceed, "", f"Leave it out for {EXCEED:g}", above=0.0, below=1.0)
    if s == 1:
        return n
    low, high = n // s - 1, n  # too few; enough
    width = 16 + 16 * math.ceil(math.sqrt(n / s))
    if n // s + width < n and s * float(_tail(n, s, n // s + width)) <= chance:
        high = n // s + width
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if s * float(_tail(n, s, middle)) <= chance else (middle, high)
    return high


def largest_shard(keys: SupportsIndex | SupportsFloat, shards: int) -> float:
    """Compute the expected keys of the fullest shard: that of as many independent Poisson numbers.

    Multinomial counts are independent Poisson ones given their sum; in the limit of many keys that takes
    away the same random amount from each, zero in the mean, so the expected maximum stays. (Independent
    binomial counts would have the right variance and too small a maximum: for two shards by 29 % of its
    distance from the mean.)

    Examples
    --------
    >>> round(largest_shard(1_000_000, 100))
    10252
    """
    from scipy.special import gammainc

    n, s = arguments.capacity(keys), checked_shards(shards)
    if s == 1:
        return float(n)
    mean = n / s
    sd = math.sqrt(mean)
    low = max(0, math.floor(mean - 8 * sd) - 1)
    high = math.ceil(mean + 12 * sd + 40)
    step = max(1, int(sd / 256))
    points = np.arange(low, high + step, step, dtype=np.float64)
    with np.errstate(divide="ignore"):
        above = -np.expm1(s * np.log1p(-gammainc(points + 1, mean)))  # P(max > c)
    # E max = sum of P(max > c) over c = 0, 1, …; below `low` it is 1. For steps, the trapezoid rule.
    if step == 1:
        return min(float(n), low + float(above.sum()))
    return low + 0.5 + step * float(above.sum() - (above[0] + above[-1]) / 2)


def shards_touched(shards: int, batch: int) -> float:
    """Compute the expected shards that a batch of `batch` keys asks: S (1 - (1 - 1/S)**batch)."""
    s = checked_shards(shards)
    n = arguments.integer("batch", batch, 0, None, "Pass the keys of one call")
    if s == 1:
        return float(n > 0)
    return -s * math.expm1(n * math.log1p(-1 / s))


def moved(shards: int, new_shards: int, placement: str = "consistent") -> float:
    """Return the share of keys that have another shard after `shards` became `new_shards`.

    Parameters
    ----------
    placement
        "consistent": f(word, shards) of a HashRing's dense slots, 1 - S/T for T > S: the least possible.
        "mod": word mod shards, 1 - min(S, T)/lcm(S, T). "range": mulhi(word, shards), as `ShardedFilter`.

    Examples
    --------
    >>> [round(moved(9, 10, placement), 6) for placement in ("consistent", "range", "mod")]
    [0.1, 0.5, 0.9]
    """
    a, b = sorted((checked_shards(shards), checked_shards(new_shards, "new_shards")))
    arguments.one_of("placement", placement, _PLACEMENTS, 'Pass "consistent"')
    if a == b:
        return 0.0
    if placement == "consistent":
        return 1 - a / b
    if placement == "mod":
        return 1 - a / math.lcm(a, b)
    # A key stays in shard i where [i/a, (i+1)/a) and [i/b, (i+1)/b) meet: (i+1)/b - i/a, while positive.
    meets = min(a, -(-a // (b - a)))
    return 1 - (meets / b - meets * (meets - 1) / 2 * (1 / a - 1 / b))


# --- plans ---------------------------------------------------------------------------------------------


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

    def filter_plan(self) -> FilterPlan:
        """Return the plan of the whole as one filter: what `ShardedFilter.plan` is."""
        one = self.shard
        return FilterPlan(
            keys=self.keys,
            policy="sharded",
            bits_per_key=self.bits_per_key,
            block_bits=one.block_bits,
            hashes=one.hashes,
            choices=one.choices,
            thresholds=one.thresholds,
            coin=one.coin,
            shares=one.shares,
            fpr=self.fpr,
            reads=one.reads,
            miss_reads=one.miss_reads,
            list_reads=one.list_reads,
            spilled=one.spilled,
            fill=_at_load(one, round(self.shard_keys)).fill,
            overflow=one.overflow,
            overflow_limit=one.overflow_limit * self.shards,
            spill=one.spill,
            nbytes=self.nbytes,
            hashing=one.hashing,
            seed=one.seed,
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
    keys: SupportsIndex | SupportsFloat,
    *,
    shards: int | None = None,
    shard_bytes: SupportsIndex | SupportsFloat | None = None,
    policy: str | None = "blocked",
    fpr: float | None = None,
    bits_per_key: float | None = None,
    exceed: float = EXCEED,
    added: int = 1,
    build_rate: float | None = None,
    seed: int = 0,
    **rest: Any,
) -> ShardedPlan:
    """Plan a filter in shards: so many, or as few as fit into `shard_bytes` each.

    Parameters
    ----------
    keys
        In all shards together, 1 to 2**48.
    shards, shard_bytes
        One of them: the number of shards, up to 2**20, or the most bytes of one.
    policy
        "standard", "blocked" or a balanced filter's; None for the best balanced one.
    fpr
        Not to be exceeded by any shard that has the keys it was planned for; 0.01 by default.
    bits_per_key
        Memory of the whole instead of `fpr`.
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
    planner = _planner(policy, rest | {"seed": seed})

    def at(count: int) -> FilterPlan:
        capacity = shard_capacity(n, count, exceed)
        if per_key is None:
            return planner(capacity, fpr=rate)
        return planner(capacity, bits_per_key=per_key * (n / count) / capacity)

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


def _rate_with(plan: FilterPlan, keys: int) -> float:
    """Predict the rate of a sharded filter (the plan of the whole) with another number of keys."""
    shards, policy, *core = plan.core
    hashing = {"hashing": plan.hashing} if _POLICIES[policy] == "standard" else {}
    one = plan_of_core(_POLICIES[policy], core, capacity=max(1, keys // shards), seed=plan.seed, **hashing)
    return _mean_rate(keys, shards, one)


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


def _planner(policy: str | None, rest: dict[str, Any]) -> Callable[..., FilterPlan]:
    if policy is not None:
        arguments.one_of("policy", policy, _POLICIES, 'Pass "blocked", or None for the best balanced one')
    given = {name: value for name, value in rest.items() if value is not None}

    def plan(capacity: int, **goal: float) -> FilterPlan:
        if policy == "standard":
            return plan_standard(capacity, **goal, **given)  # type: ignore[arg-type]
        if policy == "blocked":
            return plan_blocked(capacity, **goal, **given)  # type: ignore[arg-type]
        return plan_balanced(capacity, policy=policy, **goal, **given)  # type: ignore[arg-type]

    return plan


def _at_load(plan: FilterPlan, keys: int) -> FilterPlan:
    """Predict the plan's filter with another number of keys in it."""
    hashing = {"hashing": plan.hashing} if plan.policy == "standard" else {}
    return plan_of_core(plan.policy, plan.core, capacity=max(1, keys), seed=plan.seed, **hashing)


def _mean_rate(keys: int, shards: int, one: FilterPlan) -> float:
    """Average the rate over the keys of a shard, by three points with its first moments (Gauss-Hermite)."""
    mean = keys / shards
    spread = math.sqrt(3 * mean * (1 - 1 / shards))
    points = ((mean, 2 / 3), (mean - spread, 1 / 6), (mean + spread, 1 / 6))
    if shards == 1:
        points = ((mean, 1.0), (mean, 0.0), (mean, 0.0))
    return math.fsum(w * _at_load(one, round(x)).fpr for x, w in points if w and x > 0)


def checked_shards(value: object, name: str = "shards") -> int:
    """Check a number of shards."""
    return arguments.integer(name, value, 1, MAX_SHARDS, "Pass the number of shards")


def _shard_bytes(value: object) -> int:
    rule, remedy = "a number of bytes from 64", "Pass for example 2**30"
    return math.floor(arguments.real("shard_bytes", value, rule, remedy, least=64, below=math.inf))


def _build_rate(value: object) -> float | None:
    if value is None:
        return None
    rule, remedy = "a number of keys per second above 0", "Pass what you measured, such as 20e6"
    return arguments.real("build_rate", value, rule, remedy, above=0.0, below=math.inf)


register("sharded", family=Family(_rate_with))

"""Shards: how unevenly hashing spreads keys over them, and how many keys move when shards are added.

The keys of one of S shards are binomial, Bin(keys, 1/S); those of all are multinomial. A shard that gets
more than it was planned for has a higher rate than promised, so each is planned for `capacity` keys: the
least number that no shard exceeds, but for the probability `exceed`. With p = P(one exceeds) the counts'
negative association brackets what is wanted,

    1 - (1 - p)**S  <=  P(some shard exceeds)  <=  S p,

and both ends agree where p is small; plans use the upper end. At a billion keys a shard the tail costs
2e-4 of the memory; at ten thousand 6 %.

Checked in tests by simulation at sizes that fit, and the tail against a sum of its own terms.

Adding shards (`moved`): the share of keys whose shard is another afterwards. By ranges of the word, as
`ShardedFilter` has them, or by the remainder, most keys move; a consistent function (a HashRing's dense
slots) moves the least possible. A filter gives no key back, so a key that moves is one to read again from
its source; with a consistent function only the new shards have to be built, and the old ones keep the bits
of keys that left, which harm no look-up of a present key and leave the rate as it was.
"""

from __future__ import annotations

import math
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np

from evenbins import _arguments as arguments
from evenbins.theory.special import beta_below, poisson_at_least

__all__ = [
    "EXCEED", "MAX_SHARDS", "checked_shards", "largest_shard", "moved", "overflow_probability",
    "shard_capacity", "shards_touched",
]  # fmt: skip

MAX_SHARDS = 2**20
EXCEED = 1e-6
"""Probability that some shard gets more keys than it was planned for, by default."""
_PLACEMENTS = ("range", "mod", "consistent")


# --- the imbalance -------------------------------------------------------------------------------------


def _tail(keys: int, shards: int, most: float | np.ndarray[Any, Any]) -> Any:
    """Compute P(Bin(keys, 1/shards) > most): the regularised incomplete beta function."""
    most = np.asarray(most, dtype=np.float64)
    inside = np.clip(most, 0, keys - 1)
    found = beta_below(inside + 1, keys - inside, 1 / shards)
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
        above = -np.expm1(s * np.log1p(-poisson_at_least(points + 1, mean)))  # P(max > c)
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


def checked_shards(value: object, name: str = "shards") -> int:
    """Check a number of shards."""
    return arguments.integer(name, value, 1, MAX_SHARDS, "Pass the number of shards")

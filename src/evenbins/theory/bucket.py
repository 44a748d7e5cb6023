"""What a bucket makes of Poisson attempts: the arithmetic that `balance` and `over_time` stand on.

A bucket that receives N = Poisson(mean) attempts accepts below `threshold` keys (h), at exactly `threshold`
by a coin of chance `coin` (p), with one more never:

    N <= h         holds N
    N = h + n      holds h with chance (1-p)**n, else h+1; refused n - 1 + (1-p)**n of them

`hold` sums these terms; `best` inverts them: which threshold and coin give the most even loads of a given
mean.

Invariants: small numbers (overflow, the chance of the top load) are sums of positive terms, never 1 minus
something; near coin = 1 the coin is found from 1 - coin, near 0 from itself. Arrays that are returned are
read-only; results are cached and shared.

Tried and dropped: (7) of the paper as printed (loses all digits near p = 1); brentq for the coin (Newton on
the cumulant generating function, which is convex, needs five steps and no bracket).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from evenbins.theory.caching import cached, frozen

__all__ = ["Attempts", "Vector", "attempts_of", "best", "dot", "hold", "log_not", "mean_of", "variance_of"]

Vector = npt.NDArray[np.float64]

_FAR = 1e-40  # a distribution without end is cut where less than this is left


def dot(a: Vector, b: npt.NDArray[Any]) -> float:
    """Sum in pairs: more exact than BLAS, whose threads wait for each other on a busy machine."""
    return float((a * b).sum())


def mean_of(chance: Vector) -> float:
    """Return the mean of a distribution over 0, 1, 2, ..."""
    return dot(chance, np.arange(len(chance)))


def variance_of(chance: Vector) -> float:
    """Return the variance of a distribution over 0, 1, 2, ..."""
    return dot(chance, (np.arange(len(chance)) - mean_of(chance)) ** 2)


class Attempts:
    """Poisson(mean) on the window where it is not negligible, both tails summed from their far end.

    Ratios outward from the mode, then normalised: no logarithm of a large factorial loses digits.
    """

    __slots__ = ("_excess", "_lack", "_tail", "chance", "first", "mean")

    def __init__(self, mean: float) -> None:
        mode = int(mean)
        reach = int(40 * math.sqrt(mean)) + 200
        least = max(mode - reach, 0)
        with np.errstate(under="ignore"):
            up = np.cumprod(mean / np.arange(mode + 1.0, mode + reach + 1.0))
            down = np.cumprod(np.arange(float(mode), float(least), -1.0) / mean) if mode else np.empty(0)
        chance = np.concatenate([down[::-1], [1.0], up])
        chance /= chance.sum()
        held = np.flatnonzero(chance > 1e-300)
        self.mean = mean
        self.first = least + int(held[0])
        self.chance: Vector = chance[held[0] : held[-1] + 1]
        self._tail = np.minimum(np.cumsum(self.chance[::-1])[::-1], 1.0)
        self._excess = np.append(np.cumsum(self._tail[:0:-1])[::-1], 0.0)
        self._lack = np.concatenate([[0.0], np.cumsum(np.cumsum(self.chance))[:-1]])
        frozen((self.chance, self._tail, self._excess, self._lack))

    def at_least(self, k: int) -> float:
        """P(N >= k)."""
        i = k - self.first
        return 1.0 if i <= 0 else float(self._tail[i]) if i < len(self._tail) else 0.0

    def excess(self, k: int) -> float:
        """E[max(N - k, 0)]."""
        i = k - self.first
        if i < 0:
            return self.mean - k
        return float(self._excess[i]) if i < len(self._excess) else 0.0

    def lack(self, k: int) -> float:
        """E[max(k - N, 0)]."""
        i = k - self.first
        if i < 0:
            return 0.0
        return float(self._lack[i]) if i < len(self._lack) else k - self.mean

    def beyond(self, k: int) -> tuple[Vector, Vector]:
        """Return n and P(N = k + n) for all n >= 1 in the window."""
        skip = max(k + 1 - self.first, 0)
        part = self.chance[skip:]
        return np.arange(self.first + skip - k, self.first + skip - k + len(part), dtype=np.float64), part

    def dense(self, length: int) -> Vector:
        """Compute P(N = i) for i = 0 ... length - 1."""
        values = np.zeros(length)
        part = self.chance[: max(length - self.first, 0)]
        values[self.first : self.first + len(part)] = part
        return values

    def unbounded(self) -> Vector:
        """Compute P(N = i) for all i but a tail of 1e-40."""
        return self.dense(self.first + int(np.count_nonzero(self._tail > _FAR)))


@cached(64)
def attempts_of(mean: float) -> Attempts:
    """Return the attempts of this mean, remembered."""
    return Attempts(mean)


def log_not(chance: float) -> float:
    """Return log(1 - chance)."""
    return math.log1p(-chance) if chance < 1.0 else -math.inf


def hold(mean: float, threshold: int | None, coin: float) -> tuple[Vector, float]:
    """Return a bucket's distribution after Poisson(mean) attempts, and the mean number it refused.

    f_h = sum over n >= 0 of Poisson(mean; h + n) (1 - coin)**n, and its two siblings.
    """
    attempts = attempts_of(mean)
    if threshold is None:
        return attempts.unbounded(), 0.0
    occupancy = attempts.dense(threshold + 2)
    n, chance = attempts.beyond(threshold)
    with np.errstate(under="ignore"):
        power = n * log_not(coin)
        stay = np.exp(power)
        occupancy[threshold] += dot(chance, stay)
        occupancy[threshold + 1] = dot(chance, -np.expm1(power))
        return occupancy, dot(chance, n - 1.0 + stay)


def _coin(attempts: Attempts, threshold: int, above: float, deficit: float) -> float:
    """Find the coin that lifts the fraction `above` of buckets to threshold + 1 keys.

    With W_n = P(N = h + n | N > h) and coin = 1 - exp(u), the fraction of those that stay is
    H(u) = sum W_n exp(n u) = deficit / (above + deficit). ln H is convex and rises: Newton's steps from
    u = 0 come down to the root without passing it.
    """
    if deficit <= 0.0:
        return 1.0
    n, chance = attempts.beyond(threshold)
    tail = float(chance.sum())
    weights = chance / tail
    goal = math.log(deficit / tail) if deficit < tail / 2 else math.log1p(-above / tail)
    u = 0.0
    with np.errstate(under="ignore"):
        for _ in range(200):
            moved = weights * np.exp(n * u)
            total = float(moved.sum())
            value = math.log1p(dot(weights, np.expm1(n * u))) if total > 0.5 else math.log(total)
            step = (value - goal) * total / dot(n, moved)
            u = min(u - step, 0.0)
            if step <= 1e-15 * abs(u):  # a step back is rounding
                break
    return -math.expm1(u)


@cached(512)
def best(reads: float, load: float, overflow: float) -> tuple[int | None, float, Vector]:
    """Return Theorem 1's threshold and distribution, and the coin that leads to it.

    Of reads * load attempts per bucket, `removed` must go. The margin of a height k is what is left
    to remove, if negative, after all above k has gone; two ways to write it, each safe on its side.
    """
    removed = (reads - 1.0) + overflow
    if reads < 1.0 and abs(removed) <= 2.0**-52:  # 0.9 and 0.1 are meant to be 1
        removed = 0.0
    removed *= load
    attempts = attempts_of(reads * load)
    if removed == 0.0:
        return None, 1.0, frozen(attempts.unbounded())
    kept = load * (1.0 - overflow)

    def margin(k: int) -> float:
        if k <= attempts.mean:
            return (kept - k) + attempts.lack(k)
        return attempts.excess(k) - removed

    low, high = 0, attempts.first + len(attempts.chance)  # margin(low) > 0 >= margin(high)
    while high - low > 1:
        middle = (low + high) // 2
        if margin(middle) > 0.0:
            low = middle
        else:
            high = middle
    threshold = low
    deficit = max(-margin(threshold + 1), 0.0)
    above = min(margin(threshold), attempts.at_least(threshold + 1))
    distribution = attempts.dense(threshold + 2)
    distribution[threshold] += deficit
    distribution[threshold + 1] = above
    return threshold, _coin(attempts, threshold, above, deficit), frozen(distribution)

"""Multilevel tables of one slot a bucket: how many keys pass each sub-table, exactly.

    S_0 = all keys ──▶ T_1 ──taken──▶ S_1 ──▶ T_2 ──taken──▶ S_2 … ──▶ T_d ──taken──▶ S_d: a crisis

A key goes to the first sub-table whose bucket for it is free. Given |S_{i-1}| = j, what T_i holds is the
number of non-empty ones of m_i bins after j balls (kirsch, section 4.11.3), so that the laws follow one after
the other. `held` goes with each: E[keys in T_i; |S_i| = l], which is all that the failures of a summary need.

Invariants
- Positive terms only, no 1 - P(0): the tail is summed. Relative error below 1e-12 for all that is above
  `lost` (below 1e-284): checked against exact integers, and against 80-bit arithmetic at the thesis' sizes.
- Up to `EXACT_KEYS` keys at a sub-table. Above, |S_i| is taken as normal, with mean and variance to second
  order: `exact` is False. At 300,000 keys in the thesis' proportions its crisis agrees to 5e-7.

Not covered: several slots a bucket. What a bucket of b slots turns away is no occupancy number, and the law
of T_i would need the number of buckets of each load; `evenbins.theory.fluid` has the limit of many keys.

Source: A. Kirsch's thesis, sections 4.5, 4.10.1 and 4.11; A. Broder, A. Karlin, "Multilevel adaptive hashing"
(1990), for the table. Corrected: Lemma 4.11.2 has c2**i; Table 4.1's approximation is (1 - 1/m)**x.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins import _core
from evenbins.theory.caching import cached

__all__ = [
    "EXACT_KEYS", "MAX_LEVELS", "Law", "checked_keys", "checked_table", "crisis_probability", "distribution",
]  # fmt: skip

Vector = npt.NDArray[np.float64]

EXACT_KEYS = 2**18
"""Keys that come to a sub-table, up to which the law is exact."""
MAX_LEVELS = 16

_TINY = 1e-290  # entries below are dropped: no slow subnormals
_TINY_LARGE = 1e-120  # the same above 2**17 keys, where the band is what the time goes into
_REACH = 12  # standard deviations of a normal law that are kept
_MAX_SIZE = 2**48


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """The law of |S_i|, the number of keys not placed in the first i sub-tables.

    Attributes
    ----------
    first : keys that ``chance[0]`` belongs to
    chance : ``chance[t]`` is P(|S_i| = first + t)
    held : ``held[t]`` is E[keys in T_i; |S_i| = first + t]; zeros for i = 0
    lost : the mass that was dropped, at most: every probability is too small by no more
    exact : whether it is the exact law, not a normal one
    """

    first: int
    chance: Vector = field(repr=False)
    held: Vector = field(repr=False)
    lost: float = 0.0
    exact: bool = True

    @property
    def keys(self) -> Vector:
        """The numbers that `chance` belongs to."""
        return np.arange(self.first, self.first + len(self.chance), dtype=np.float64)

    @property
    def mean(self) -> float:
        """E|S_i|."""
        return math.fsum(self.keys * self.chance)

    @property
    def variance(self) -> float:
        """Variance of |S_i|, by the squares of differences."""
        return math.fsum((self.keys - self.mean) ** 2 * self.chance)

    def probability(self, keys: int) -> float:
        """P(|S_i| = keys)."""
        at = keys - self.first
        return float(self.chance[at]) if 0 <= at < len(self.chance) else 0.0

    def tail(self, least: int) -> float:
        """P(|S_i| >= least), from the smallest term to the largest."""
        return math.fsum(self.chance[max(least - self.first, 0) :])


def distribution(keys: int, sizes: Sequence[int]) -> tuple[Law, ...]:
    """Compute the laws of ``|S_0|``, ``|S_1|``, ..., ``|S_d|``.

    Parameters
    ----------
    keys
        n, inserted into an empty table.
    sizes
        Buckets of the sub-tables, of one slot each; 1 to 16 sub-tables.

    Examples
    --------
    >>> laws = distribution(3, [2, 1])           # 3 keys: two of them always meet
    >>> [float(each) for each in laws[1].chance], laws[1].first
    ([0.75, 0.25], 1)
    >>> laws[2].tail(1)                          # a second key passed T_1
    0.25
    """
    return _laws(*checked_table(keys, sizes))


@cached(128)
def _laws(keys: int, sizes: tuple[int, ...]) -> tuple[Law, ...]:
    """Compute the laws; tables that begin alike share them."""
    if not sizes:
        return (Law(keys, np.ones(1), np.zeros(1)),)
    before = _laws(keys, sizes[:-1])
    return (*before, _next(before[-1], sizes[-1]))


def _next(before: Law, size: int) -> Law:
    most = before.first + len(before.chance) - 1
    if most > EXACT_KEYS:
        return _normal(before, size)
    tiny = _TINY if most <= 2**17 else _TINY_LARGE
    first, chance, held, lost = _core.leftover(before.first, before.chance, size, tiny)
    return Law(first, chance, held, before.lost + lost, before.exact)


def _normal(before: Law, size: int) -> Law:
    """Take |S_i| as normal: what passes has mean g(j) and variance h(j), j near its own mean."""
    mean, variance = before.mean, before.variance
    rate = math.log1p(-1 / size) if size > 1 else -1000.0  # one bucket is empty with no chance at all
    empty = math.exp(mean * rate)
    slope = 1.0 + size * rate * empty  # g' of g(j) = j - m (1 - (1 - 1/m)**j)
    passed = mean + size * math.expm1(mean * rate) + size * rate**2 * empty * variance / 2
    two = math.exp(mean * math.log1p(-2 / size)) if size > 2 else 0.0
    # variance of the empty bins: m p1 - m p2 + m**2 (p2 - p1**2), its last difference by expm1
    apart = mean * (math.log1p(-2 / size) - 2 * rate) if size > 2 else -math.inf
    own = size * (empty - two) + size**2 * empty**2 * math.expm1(apart)
    spread = max(own, 0.0) + slope**2 * variance
    sigma = math.sqrt(spread)
    if sigma < 1e-3:
        first, numbers = round(passed), np.array([float(round(passed))])
        chance = np.ones(1)
    else:
        first = max(math.floor(passed - _REACH * sigma), 0)
        numbers = np.arange(first, math.ceil(passed + _REACH * sigma) + 1, dtype=np.float64)
        chance = np.exp(-(((numbers - passed) / sigma) ** 2) / 2)
        chance /= chance.sum()
    came = mean + (slope * variance / spread if spread else 0.0) * (numbers - passed)
    return Law(first, chance, chance * np.maximum(came - numbers, 0.0), before.lost, exact=False)


def crisis_probability(keys: int, sizes: Sequence[int]) -> float:
    """Compute the probability that some key finds no place: ``P(|S_d| >= 1)``.

    Examples
    --------
    >>> f"{crisis_probability(10_000, [40_000, 10_000, 5_000, 2_500, 2_500]):.5e}"
    '1.00702e-12'
    """
    return distribution(keys, sizes)[-1].tail(1)


# --- arguments -------------------------------------------------------------------------------------------


def checked_keys(keys: object) -> int:
    """Check the number of keys."""
    return arguments.integer("keys", keys, 0, 2**48, "Pass the number of keys in the table")


def checked_table(keys: object, sizes: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Check the arguments that all calculators share."""
    number = checked_keys(keys)
    rule = f"the buckets of 1 to {MAX_LEVELS} sub-tables"
    remedy = "Pass numbers such as [40_000, 10_000, 5_000]"
    if isinstance(sizes, str | bytes) or not hasattr(sizes, "__iter__"):
        raise arguments.type_error("sizes", rule, sizes, remedy)
    checked = tuple(arguments.integer("sizes", each, 1, _MAX_SIZE, remedy) for each in sizes)
    if not 1 <= len(checked) <= MAX_LEVELS:
        raise arguments.error("sizes", rule, sizes, remedy)
    return number, checked

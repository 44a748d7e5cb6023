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
from evenbins.theory._caching import cached

__all__ = [
    "DELETIONS", "EXACT_KEYS", "MAX_LEVELS", "Law", "collision_sequence", "crisis_bound",
    "crisis_probability", "distribution", "expected_keys", "moves_into_first", "rebuild_moves",
]  # fmt: skip

Vector = npt.NDArray[np.float64]

EXACT_KEYS = 2**18
"""Keys that come to a sub-table, up to which the law is exact."""
MAX_LEVELS = 16
DELETIONS = ("random", "first")
"""Models of section 4.10.1: the deleted keys are any, or all in the first sub-table."""

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

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or outside its range.

    Examples
    --------
    >>> laws = distribution(3, [2, 1])           # 3 keys: two of them always meet
    >>> [float(each) for each in laws[1].chance], laws[1].first
    ([0.75, 0.25], 1)
    >>> laws[2].tail(1)                          # a second key passed T_1
    0.25
    """
    return _laws(*_table(keys, sizes))


@cached(128)
def _laws(keys: int, sizes: tuple[int, ...]) -> tuple[Law, ...]:
    """Give the laws; tables that begin alike share them."""
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


def expected_keys(keys: int, sizes: Sequence[int], *, approximate: bool = False) -> tuple[float, ...]:
    """Compute the mean number of keys in each sub-table.

    Parameters
    ----------
    keys, sizes
        As of `distribution`.
    approximate
        The thesis' heuristic (4.1): every sub-table gets what passes on the mean, and keeps
        m (1 - (1 - 1/m)**x) of x keys. Good until x is a few keys; then even negative.

    Examples
    --------
    >>> sizes = [30_000, 15_000, 7_500, 3_750, 1_875]        # Table 4.1
    >>> [round(each, 2) for each in expected_keys(10_000, sizes)[:4]]
    [8504.18, 1423.67, 71.8, 0.35]
    >>> f"{expected_keys(10_000, sizes)[4]:.2e} {expected_keys(10_000, sizes, approximate=True)[4]:.2e}"
    '1.62e-05 -3.00e-05'
    """
    number, sizes = _table(keys, sizes)
    if not approximate:
        return tuple(math.fsum(law.held) for law in _laws(number, sizes)[1:])
    left, placed = float(number), []
    for size in sizes:
        here = -size * math.expm1(left * math.log1p(-1 / size)) if size > 1 else min(left, 1.0)
        placed.append(here)
        left -= here
    return tuple(placed)


def crisis_probability(keys: int, sizes: Sequence[int]) -> float:
    """Compute the probability that some key finds no place: ``P(|S_d| >= 1)``.

    Examples
    --------
    >>> f"{crisis_probability(10_000, [40_000, 10_000, 5_000, 2_500, 2_500]):.5e}"
    '1.00702e-12'
    """
    return distribution(keys, sizes)[-1].tail(1)


# --- Theorem 4.11.1 --------------------------------------------------------------------------------------


def collision_sequence(keys: int, *, first: float, factor: float, levels: int) -> tuple[float, ...]:
    """Give z_0, ..., z_levels of Lemma 4.11.2: z_0 = n, z_i = z_{i-1}**2 / m_i, in closed form.

    Sub-table i has m_i = c1 c2**(i-1) n buckets; then z_i = (1 / (c1 c2))**(2**i - 1) c2**i n. (The thesis
    prints c1**i.)

    Parameters
    ----------
    keys
        n.
    first, factor
        c1, the first sub-table's buckets per key, and c2, the ratio of a sub-table to the one before.
    levels
        The last i.

    Examples
    --------
    >>> collision_sequence(1000, first=4, factor=0.5, levels=2)
    (1000.0, 250.0, 31.25)
    """
    number = _keys(keys)
    levels = arguments.integer("levels", levels, 0, 64, "Pass the number of sub-tables")
    for name, value in (("first", first), ("factor", factor)):
        rule, way_out = "a number above 0", "Pass 4 and 0.5, as the thesis"
        if not 0 < arguments.real(name, value, rule, way_out) < math.inf:
            raise arguments.error(name, rule, value, way_out)
    if first * factor <= 1:
        raise ValueError(
            f"first * factor must be above 1, or the sequence does not fall; got {first} * {factor}. "
            "Enlarge the first sub-table"
        )
    log_base = math.log(first * factor)
    return tuple(  # the power alone would overflow
        number * factor**i * (math.exp(-(2**i - 1) * log_base) if i > 5 else (first * factor) ** (1 - 2**i))
        for i in range(levels + 1)
    )


def crisis_bound(keys: int, sizes: Sequence[int]) -> float:
    """Bound the probability of a crisis as the proof of Theorem 4.11.1 does, with its best r and w.

    P(crisis) <= sum over j <= r of (e/4)**(z_j / 2), that some ``|S_j|`` exceeds z_j = z_{j-1}**2 / m_j,
    + (e/4)**(w/2), that then ``|S_{r+1}|`` exceeds w >= z_r**2 / m_{r+1},
    + the product over the sub-tables i > r + 1 of w (w-1) / (2 m_i), that two of w keys meet.

    Made for asymptotics: at the thesis' sizes far above `crisis_probability`, which is as fast.

    Examples
    --------
    >>> sizes = [40_000, 10_000, 5_000, 2_500, 2_500]
    >>> crisis_probability(10_000, sizes) < crisis_bound(10_000, sizes) <= 1
    True
    """
    number, sizes = _table(keys, sizes)
    shrink = math.log(math.e / 4) / 2
    best, before, z = 1.0, 0.0, float(number)  # before: the first sum, up to j = r
    for r in range(len(sizes)):
        if r:
            z = z * z / sizes[r - 1]
            before += math.exp(shrink * z)
        if before >= best:
            break
        least = math.ceil(z * z / sizes[r])
        for w in range(max(least, 1), least + 400):
            product = 1.0
            for size in sizes[r + 1 :]:
                product *= min(w * (w - 1) / (2 * size), 1.0)
            best = min(best, before + math.exp(shrink * w) + product)
    return best


# --- section 4.10.1: what a rebuild moves ----------------------------------------------------------------


def rebuild_moves(keys: int, deleted: int, sizes: Sequence[int], *, model: str = "random") -> float:
    """Estimate the keys that a rebuild moves after lazy deletions: the thesis' E[M'].

    M' counts the keys that were not deleted and have passed a bucket whose key was. A little too high, for
    of several keys that wait for one bucket only one moves; a little too low, for a bucket that becomes free
    by a move is not counted. The first matters more.

    Parameters
    ----------
    keys
        (1 + alpha) n: keys in the table, the deleted ones included.
    deleted
        alpha n, at most `keys`.
    sizes
        As of `distribution`.
    model
        ``"random"``: any keys are deleted; ``"first"``: only such as are in the first sub-table.

    Examples
    --------
    >>> sizes = [40_000, 10_000, 5_000, 2_500, 2_500]
    >>> [round(rebuild_moves(9_999, 909, sizes, model=model), 2) for model in ("random", "first")]
    [100.02, 118.34]
    """
    number, sizes = _table(keys, sizes)
    gone = arguments.integer("deleted", deleted, 0, number, "Pass at most the number of keys")
    if model not in DELETIONS:
        raise arguments.error("model", "'random' or 'first'", model, "Pass 'random'")
    kept = number - gone
    if gone == 0 or number == 0:
        return 0.0
    if model == "first":  # the key at T_1[h_1(x)] is one of N - |S_1|, of which `gone` are deleted
        law = _laws(number, sizes[:1])[1]
        passed = law.keys
        moved = np.where(passed > kept, kept, passed * gone / np.maximum(number - passed, 1))
        return math.fsum(law.chance * moved)
    total, log_stays = 0.0, 0.0
    for level, held in enumerate(expected_keys(number, sizes)):
        if level:  # one bucket more that the key has passed
            others = kept - level
            log_stays += math.log1p(-gone / (others + gone)) if others > 0 else -math.inf
        total += held * (kept / number) * -math.expm1(log_stays)
    return total


def moves_into_first(keys: int, deleted: int, size: int) -> float:
    """Compute exactly how many keys a rebuild moves into the first sub-table, if any keys are deleted.

    Its bucket of c >= 2 keys is refilled if the first of them was deleted and one of the others was not; so
    the number is m times the sum over c of
    P(Binomial(N, 1/m) = c) D/N (1 - (D-1)/(N-1) ... (D-c+1)/(N-c+1)).
    Keys of a crisis, which wait nowhere, would be missing. With two sub-tables these are all moves.

    Parameters
    ----------
    keys, deleted
        As of `rebuild_moves`.
    size
        Buckets of the first sub-table.

    Examples
    --------
    >>> moves_into_first(2, 1, 1)        # one bucket: the first key goes or the second
    0.5
    """
    number, (size,) = _table(keys, [size])
    gone = arguments.integer("deleted", deleted, 0, number, "Pass at most the number of keys")
    if gone == 0 or number < 2:
        return 0.0
    if size == 1:
        log_chances = np.full(number + 1, -math.inf)
        log_chances[number] = 0.0
    else:
        counts = np.arange(1, number + 1)
        ratios = np.log((number - counts + 1) / counts) - math.log(size - 1)
        log_chances = np.concatenate([[0.0], np.cumsum(ratios)]) + number * math.log1p(-1 / size)
    others_gone, total = 1.0, 0.0
    for c in range(2, number + 1):
        others_gone *= max(gone - c + 1, 0) / (number - c + 1)
        term = math.exp(log_chances[c]) * (1.0 - others_gone)
        total += term
        if c > number / size and term < 1e-20 * total:
            break
    return size * gone / number * total


# --- arguments -------------------------------------------------------------------------------------------


def _keys(keys: object) -> int:
    return arguments.integer("keys", keys, 0, 2**48, "Pass the number of keys in the table")


def _table(keys: object, sizes: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Check the arguments that all calculators share."""
    number = _keys(keys)
    rule = f"the buckets of 1 to {MAX_LEVELS} sub-tables"
    way_out = "Pass numbers such as [40_000, 10_000, 5_000]"
    if isinstance(sizes, str | bytes) or not hasattr(sizes, "__iter__"):
        raise arguments.type_error("sizes", rule, sizes, way_out)
    checked = tuple(arguments.integer("sizes", each, 1, _MAX_SIZE, way_out) for each in sizes)
    if not 1 <= len(checked) <= MAX_LEVELS:
        raise arguments.error("sizes", rule, sizes, way_out)
    return number, checked

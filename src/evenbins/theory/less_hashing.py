"""Bloom filters with two or three hash functions: what they cost, at every size.

    limit(collisions, hashes) -> float                          many keys: as if fully random (Theorem 3.3.1)
    rate(hashing, bits, hashes, keys, *, offset) -> float       the false-positive probability, floor included
    law(...) -> Law                                             the same, with its causes
    floor(...) -> float                                         what is above independent hashing
    convergence_bound(...) -> float                             Theorem 3.5.1 with its constants
    concentration(epsilon, ...) -> float                        Theorem 3.6.1: a filter's own rate
    check_scheme(scheme, keys, *, rng) -> SchemeCheck           section 3.3 for a scheme of your own

A key's k positions in m bits, from h1, h2, h3 that are independent and uniform:

    independent       k hash functions
    partition         part i of k: h1 + i h2        mod m' = m/k (rounded down)
    double                         h1 + i h2        mod m
    enhanced-double                h1 + i h2 + f(i) mod m, f(i) = i^2, i^3 or (i^3 - i)/6 (`offset`)
    triple                         h1 + i h2 + i(i-1)/2 h3 mod m

The idea. Fix the absent key z and follow its positions, as `fpr` does: u of them are not yet set. A key of
the filter covers s of z's d distinct positions with some chance q_s, so that

    u ──(hypergeometric: t of the u among s of d)──▶ u - t,    once for each key;    rate = P(u reaches 0)

Independent hashing has almost only s = 0 and s = 1, each key one position at a time. Less hashing differs in
two ways, and the law is these two: the distribution of d, and q_s for s >= 2.

d: z meets itself. h2 = 0 (chance 1/m) leaves one position; h2 of order o < k modulo m leaves o. With i^2, and
with triple hashing, a sequence that is symmetric (h2 = -sigma for i^2) folds onto its half. All h2 for which
any two positions meet are enumerated, so that d is exact for every m, prime or not.

q_s: one key meets z often. (Delta i) h2(z) = (Delta j) h2(x) puts both on a common progression of steps
(P, Q) in (i, j). A chain of s such steps lies N_s = (k - (s-1)P)(k - (s-1)Q) times in the square k x k, so
N_s - 2 N_{s+1} + N_{s+2} chains are of length s exactly. Each has chance phi(g)/m^2, g = gcd(P, Q), if g
divides m, else 0: these are the solutions of Q h2(x) - P h2(z) = tau, tau of order g. So double hashing has

    q_s = 2/m^2 sum over P, Q >= 1, g | m, of phi(g) (N_s - 2 N_{s+1} + N_{s+2}),        s >= 2,

which contains the same (h1, h2), its shifts by j (s = k - j), the reversals (h2 -> -h2), and ratios such as
2:1. i^2 keeps shifts and reversals, (h1 + t h2 + t^2, h2 + 2t), and has pairs otherwise; i^3 and the
tetrahedral numbers keep the same (h1, h2) alone; triple hashing keeps shifts and reversals, at 1/m^3. In a
partition scheme x and z meet at i if A + i B = 0 mod m': all k at once with chance 1/m'^2, or every o-th if B
has order o.

Invariants
- q_s is the mean over z. Which s positions a key covers is taken to be uniform: exact while z owes its fate
  to one such key, wrong in second order only. docs/less_hashing.md has it beside simulations.
- A rate is a probability for all arguments; below some hundred bits it is a guess.
- Rates include `fpr.digest_floor`, as all rates of the library do. Nothing here needs scipy.

Tried and dropped: first-order sums over collisions alone (`Law.terms` keeps them, to explain; some per cent
off where collisions are many); enumerating all pairs of positions for q_s (k^4/2 of them; a test does, for
small k, and finds the closed forms).

Source: A. Kirsch, "Hash structures for extreme conditions", chapter 3; P. Dillinger, P. Manolios, "Bloom
filters in probabilistic verification" (2004), for enhanced double and triple hashing. Their letters:
n `keys`, m `bits`, k `hashes`, lambda `collisions` (k^2 n/m). Misprint put right: in Theorem 3.6.1 xi is
nk Delta (2 lambda + nk Delta), as its own proof requires (d = lambda/n + k Delta, and n d^2 is squared out).
By Remark 3.6.2 it is 0 for all schemes here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from evenbins import _arguments as arguments
from evenbins.theory import fpr
from evenbins.theory._caching import cached

__all__ = [
    "HASHINGS",
    "OFFSETS",
    "Law",
    "SchemeAtSize",
    "SchemeCheck",
    "check_scheme",
    "concentration",
    "convergence_bound",
    "floor",
    "law",
    "limit",
    "rate",
]

HASHINGS = ("independent", "partition", "double", "enhanced-double", "triple")
OFFSETS = ("square", "cube", "tetrahedral")

_Floats = npt.NDArray[np.float64]
_CLASSES = 12  # of h3 by its divisors, in triple hashing: the rest of the weight is a per cent or less


# --- limit and law ---------------------------------------------------------------------------------------


def limit(collisions: float, hashes: int) -> float:
    """Give (1 - exp(-collisions/hashes))**hashes: the rate when keys are many (Theorem 3.3.1).

    Parameters
    ----------
    collisions
        lambda: keys of the filter that meet an absent key, on average. ``hashes**2 * keys / bits`` for
        every scheme of this module.
    hashes
        k, positions of a key.

    Examples
    --------
    >>> round(limit(6**2 / 8, 6), 6)                            # 8 bits a key, 6 hashes
    0.021577
    """
    rule = "a number of keys, 0 or more"
    number = arguments.real("collisions", collisions, rule, "Pass hashes**2 * keys / bits")
    if not (math.isfinite(number) and number >= 0):
        raise arguments.error("collisions", rule, collisions, "Pass hashes**2 * keys / bits")
    hashes = _hashes(hashes)
    return float((-math.expm1(-number / hashes)) ** hashes)


@dataclass(frozen=True)
class Law:
    """A false-positive probability and its causes.

    Parameters
    ----------
    fpr
        The probability, everything included.
    independent
        That of k independent hash functions.
    floor
        The difference, 0 at least: what less hashing costs.
    terms
        The floor by cause, each to first order, so that they add up to it roughly: ``same`` (a key of the
        same hash values), ``shift`` and ``reversal`` (the same progression, shifted or reversed), ``ratio``
        (several positions shared otherwise), ``degenerate`` (the absent key's own positions coincide).
    """

    fpr: float
    independent: float
    floor: float
    terms: dict[str, float]


def rate(hashing: str, bits: int, hashes: int, keys: int, *, offset: str = "square") -> float:
    """Predict the false-positive probability of a Bloom filter, its floor included.

    Parameters
    ----------
    hashing
        One of `HASHINGS`.
    bits
        m, of the filter; any number.
    hashes
        k, 1 to 64.
    keys
        n, in the filter.
    offset
        f(i) of ``"enhanced-double"``: ``"square"``, ``"cube"`` or ``"tetrahedral"``.

    Raises
    ------
    ValueError
        If an argument is out of its range, or a partition has fewer bits than hashes.

    Examples
    --------
    Small rates are where less hashing shows: 28.755 bits a key would give a millionth.

    >>> for hashing in HASHINGS:
    ...     print(f"{hashing:16} {rate(hashing, 28_755, 20, 1000):.3g}")
    independent      1e-06
    partition        0.000485
    double           3.95e-05
    enhanced-double  8.39e-06
    triple           1.22e-06
    """
    return law(hashing, bits, hashes, keys, offset=offset).fpr


def floor(hashing: str, bits: int, hashes: int, keys: int, *, offset: str = "square") -> float:
    """Give what a scheme adds to the false-positive probability of independent hashing; as `rate`.

    Examples
    --------
    >>> floor("independent", 28_755, 20, 1000)
    0.0
    >>> f"{floor('double', 28_755, 20, 1000):.2e}"
    '3.85e-05'
    """
    return law(hashing, bits, hashes, keys, offset=offset).floor


def law(hashing: str, bits: int, hashes: int, keys: int, *, offset: str = "square") -> Law:
    """Predict the false-positive probability, and tell its causes; parameters as of `rate`.

    Examples
    --------
    Three is a divisor of 28,755, and so is five: h2 of order 1, 3 and 5 is the worst of double hashing here.

    >>> for cause, part in law("double", 28_755, 20, 1000).terms.items():
    ...     print(f"{cause:10} {part:.1e}")
    same       1.2e-06
    shift      2.4e-06
    reversal   3.6e-06
    ratio      1.7e-07
    degenerate 3.1e-05
    """
    hashing, bits, hashes, keys, offset = _scheme(hashing, bits, hashes, keys, offset)
    found = _law(hashing, bits, hashes, keys, offset)
    return replace(found, terms=dict(found.terms))  # the caller's own: the rest cannot be changed


@cached(1024)
def _law(hashing: str, bits: int, hashes: int, keys: int, offset: str) -> Law:
    independent = fpr.standard(bits, hashes, keys)
    if hashing == "independent" or keys == 0 or hashes == 1:
        return Law(independent, independent, 0.0, {})
    shape = _shape(hashing, bits, hashes, offset)
    total = 0.0
    for distinct in range(1, hashes + 1):
        weight = float(shape.distinct[distinct])
        if weight > 0:
            total += weight * _covered(distinct, shape.shared_of(distinct), keys)
    total = min(total, 1.0)
    total = min(total + (1.0 - total) * fpr.digest_floor(keys), 1.0)
    fill = -math.expm1(keys * math.log1p(-min(shape.hit, 1.0 - 1e-16)))
    return Law(total, independent, max(total - independent, 0.0), shape.terms(keys, fill))


@dataclass(frozen=True)
class _Shape:
    """What distinguishes a scheme: how z meets itself, how one key meets z. Arrays by number, 0 to k."""

    hit: float  # chance that a key covers one given position
    distinct: _Floats  # [d]: chance that z has d distinct positions
    shared: _Floats  # [s]: chance that a key covers s of z's k, s >= 2
    pairs: float  # E[s choose 2], of all k
    named: dict[str, _Floats]  # parts of `shared`, by cause

    def shared_of(self, distinct: int) -> _Floats:
        """Give the chances of 0 to d positions covered, of a z that has only d."""
        most = len(self.shared) - 1
        chance = np.zeros(distinct + 1)
        if distinct == most:
            chance[2:] = self.shared[2:]
        elif distinct >= 2:
            chance[2] = self.pairs * math.comb(distinct, 2) / math.comb(most, 2)
        sizes = np.arange(distinct + 1)
        met = distinct * self.hit  # E[s]
        several = float(chance @ sizes)
        if several > met:  # a filter of a few bits: no pretence of accuracy
            chance *= met / several
            several = met
        chance[1] += met - several
        chance /= max(float(chance.sum()), 1.0)
        chance[0] = 1.0 - float(chance.sum())
        return chance

    def terms(self, keys: int, fill: float) -> dict[str, float]:
        most = len(self.shared) - 1
        sizes = np.arange(most + 1)
        gain = fill ** (most - sizes) - fill**most
        terms = {name: keys * float(part @ gain) for name, part in self.named.items()}
        usual = most * (most - 1) / 2 * (self.hit / most) ** 2 * most * (most - 1)  # pairs by chance
        rest = self.shared - sum(self.named.values())
        terms["ratio"] = max(keys * (float(rest @ gain) - usual * float(gain[2])), 0.0)
        chance_of_one_less = math.comb(most, 2) * self.hit / most
        degenerate = float(self.distinct[:-1] @ (fill ** sizes[:-1] - fill**most))
        if self.distinct[most] < 1.0:
            degenerate -= chance_of_one_less * (fill ** (most - 1) - fill**most)
        terms["degenerate"] = max(degenerate, 0.0)
        return terms


def _covered(distinct: int, chance: _Floats, keys: int) -> float:
    """Give P(all positions are covered) after `keys` keys, each of which covers s with chance[s]."""
    strict = np.zeros((distinct + 1, distinct + 1))
    stays = np.zeros(distinct + 1)  # log of the chance that none of the unset is covered
    sizes = [s for s in range(1, distinct + 1) if chance[s] > 0]
    for unset in range(1, distinct + 1):
        gone = 0.0
        for s in sizes:
            ways = math.comb(distinct, s)
            gone += chance[s] * (1 - math.comb(distinct - unset, s) / ways)
            for covered in range(1, min(s, unset) + 1):
                here = math.comb(unset, covered) * math.comb(distinct - unset, s - covered)
                strict[unset, unset - covered] += chance[s] * (here / ways)
        stays[unset] = math.log1p(-gone) if gone < 1 else -math.inf
    return min(float(fpr._power(strict, stays, keys)[distinct, 0]), 1.0)


# --- the shapes of the schemes ---------------------------------------------------------------------------


@cached(1024)
def _shape(hashing: str, bits: int, hashes: int, offset: str) -> _Shape:
    if hashing == "partition":
        return _partition_shape(bits // hashes, hashes)
    if hashing == "triple":
        distinct = _triple_distinct(bits, hashes)
    else:
        distinct = _distinct(
            bits, [_offset(offset, i) if hashing == "enhanced-double" else 0 for i in range(hashes)]
        )
    pairs = _pairs(hashing, bits, hashes, offset) / bits**2
    one = 1.0 / bits**3 if hashing == "triple" else 1.0 / bits**2
    named = {name: np.zeros(hashes + 1) for name in ("same", "shift", "reversal")}
    named["same"][hashes] = one
    if hashing != "enhanced-double" or offset == "square":  # shifts stay within the scheme
        named["shift"][2:hashes] = 2 * one
        named["reversal"][2:hashes] = 2 * one
        named["reversal"][hashes] = one
    if hashing == "double":
        shared = _progressions(bits, hashes) / bits**2
    else:
        shared = named["same"] + named["shift"] + named["reversal"]
        shared[2] = 0.0
        counted = sum(math.comb(s, 2) * shared[s] for s in range(3, hashes + 1))
        shared[2] = max(pairs - counted, 0.0)
    if hashes >= 3:  # three by chance, as with independent hashing
        shared[3] += math.comb(hashes, 3) * hashes * (hashes - 1) * (hashes - 2) / bits**3
    hit = min(float(distinct @ np.arange(hashes + 1)) / bits, 1.0)
    return _Shape(hit, distinct, shared, pairs, named)


def _partition_shape(size: int, hashes: int) -> _Shape:
    """Two keys meet in part i iff A + i B = 0 mod size; A, B uniform."""
    shared, same = np.zeros(hashes + 1), np.zeros(hashes + 1)
    for order in range(1, hashes):
        if size % order == 0:  # B of this order: every order-th part, from each of the first ones
            for first in range(order):
                shared[len(range(first, hashes, order))] += _totient(order) / size**2
    same[hashes] = 1.0 / size**2
    shared[:2] = 0.0
    distinct = np.zeros(hashes + 1)
    distinct[hashes] = 1.0
    pairs = sum(math.comb(s, 2) * float(shared[s]) for s in range(2, hashes + 1))
    return _Shape(1.0 / size, distinct, shared, pairs, {"same": same})


def _progressions(bits: int, hashes: int) -> _Floats:
    """Count, by length, the common progressions of two keys: bits**2 q_s of the module's head."""
    steps = np.arange(1, hashes)
    weight = np.array([_totient(g) if g and bits % g == 0 else 0 for g in range(hashes)], dtype=float)
    weights = weight[np.gcd.outer(steps, steps)]
    sizes = np.arange(2, hashes + 3)
    room = np.maximum(hashes - np.multiply.outer(sizes - 1, steps), 0).astype(float)  # [s, P]
    chains = np.einsum("sp,pq,sq->s", room, weights, room)
    out = np.zeros(hashes + 1)
    out[2:] = 2 * (chains[:-2] - 2 * chains[1:-1] + chains[2:])
    return out


@cached(1024)
def _pairs(hashing: str, bits: int, hashes: int, offset: str) -> float:
    """Count pairs of positions of z and of x that may meet: bits**2 E[s choose 2], the mean over z.

    Two positions of each, dI and dJ apart, meet if dJ h2(x) - dI h2(z) = c: g = gcd(dI, dJ, bits) chances in
    `bits` if g divides c, else none.
    """
    if hashing == "triple":  # three unknowns and four coefficients: d and d(i + j - 1)/2 of either key
        steps: dict[int, int] = {}
        for j in range(hashes):
            for i in range(j):
                step = math.gcd(j - i, (j - i) * (i + j - 1) // 2, bits)
                steps[step] = steps.get(step, 0) + 1
        return float(sum(2 * a * b * math.gcd(p, q) for p, a in steps.items() for q, b in steps.items()))
    total = 0.0
    offsets = [_offset(offset, i) if hashing == "enhanced-double" else 0 for i in range(hashes)]
    rises = [np.array([offsets[i + d] - offsets[i] for i in range(hashes - d)]) for d in range(hashes)]
    for p in range(1, hashes):
        for q in range(1, hashes):
            g = math.gcd(p, q, bits)
            if g == 1:
                total += 2.0 * (hashes - p) * (hashes - q)
                continue
            of_z, of_x = np.bincount(rises[p] % g, minlength=g), np.bincount(rises[q] % g, minlength=g)
            reversed_x = np.bincount(-rises[q] % g, minlength=g)
            total += g * float(of_z @ of_x + of_z @ reversed_x)
    return total


def _distinct(bits: int, offsets: Sequence[int]) -> _Floats:
    """Distribute the number of distinct positions i h2 + offsets[i] mod bits, h2 uniform; exact.

    Every h2 for which two positions meet solves (j - i) h2 = offsets[i] - offsets[j] for some i < j.
    """
    hashes = len(offsets)
    steps: set[int] = set()
    for j in range(1, hashes):
        for i in range(j):
            right = offsets[i] - offsets[j]
            g = math.gcd(j - i, bits)
            if right % g == 0:
                period = bits // g
                first = right // g * pow((j - i) // g, -1, period) % period if period > 1 else 0
                steps.update(range(first, bits, period))
    chance = np.zeros(hashes + 1)
    if steps:
        index, offset = np.arange(hashes), np.array([each % bits for each in offsets])
        positions = (np.array(sorted(steps), dtype=np.int64)[:, None] * index + offset) % bits
        positions.sort(axis=1)
        distinct = 1 + (np.diff(positions, axis=1) != 0).sum(axis=1)
        chance += np.bincount(distinct, minlength=hashes + 1) / bits
    chance[hashes] += (bits - len(steps)) / bits
    return chance


def _triple_distinct(bits: int, hashes: int) -> _Floats:
    """Distribute the distinct positions of triple hashing: given h3, it is double hashing with offsets.

    A unit of the ring scales all positions alike, so that h3 matters only by its divisors shared with `bits`,
    and if it has itself a small order.
    """

    def given(h3: int) -> _Floats:
        return _distinct(bits, [i * (i - 1) // 2 * h3 % bits for i in range(hashes)])

    small = math.gcd(bits, math.lcm(*range(1, 2 * hashes)) ** 2)  # the part of small primes
    weights = {g: _totient(small // g) / small for g in _divisors(small)}
    kept = sorted(weights, key=lambda g: -weights[g])[:_CLASSES]
    orders = [order for order in range(1, hashes + 1) if bits % order == 0]
    special = sum(_totient(order) for order in orders) / bits
    usual = max(1.0 - special, 0.0) / sum(weights[g] for g in kept)
    chance = np.zeros(hashes + 1)
    for g in kept:
        chance += usual * weights[g] * given(g)
    for order in orders:
        chance += _totient(order) / bits * given(bits // order % bits)
    chance /= chance.sum()
    return chance


def _offset(name: str, i: int) -> int:
    return i * i if name == "square" else i**3 if name == "cube" else (i**3 - i) // 6


def _totient(number: int) -> int:
    """Count the residues that have no divisor in common with `number`, which has small ones only."""
    result, rest, prime = number, number, 2
    while rest > 1:
        if rest % prime == 0:
            result -= result // prime
            while rest % prime == 0:
                rest //= prime
        prime += 1
    return result


def _divisors(number: int) -> list[int]:
    """List the divisors of a number that has small prime factors only."""
    out, rest, prime = [1], number, 2
    while rest > 1:
        power, found = 1, list(out)
        while rest % prime == 0:
            rest //= prime
            power *= prime
            out += [each * power for each in found]
        prime += 1
    return out


# --- how fast, how surely --------------------------------------------------------------------------------


def convergence_bound(hashing: str, bits: int, hashes: int, keys: int, *, offset: str = "square") -> float:
    """Bound abs(probability - limit): Theorem 3.5.1, every constant of its proof kept.

    n E[Z1] + lambda E[Z2] + lambda**2/n, and the chance that z has fewer than k positions. A key meets two
    given positions with chance g/m**2 for each of two of its own, g = gcd(their distance, m); B2 is the sum
    over all pairs. Then E[Z1] <= 2 B2 (plus what z's positions lack of lambda/kn), and
    E[Z2] <= 2 B2/(lambda/n - 2 B2).
    O(1/n) for fixed bits a key. It is a bound and no estimate: `rate` is mostly a hundred times closer.

    Parameters as of `rate`. At most 1, which says nothing.

    Examples
    --------
    >>> for keys in (10**4, 10**6, 10**8):
    ...     print(f"{convergence_bound('double', 8 * keys, 6, keys) * keys:.1f}")
    94.6
    94.6
    94.6
    """
    hashing, bits, hashes, keys, offset = _scheme(hashing, bits, hashes, keys, offset)
    if keys == 0:
        return 0.0
    size = bits // hashes if hashing == "partition" else bits
    collisions = hashes * keys / size if hashing == "partition" else hashes**2 * keys / bits
    differences = [(j - i, i + j) for j in range(hashes) for i in range(j)]
    if hashing == "independent":
        steps = [1] * len(differences)
    elif hashing == "triple":
        steps = [math.gcd(d, d * (total - 1) // 2, size) for d, total in differences]
    else:
        steps = [math.gcd(d, size) for d, _ in differences]
    if hashing == "partition":
        pairs, fewer, lacking = sum(steps) / size**2, 0.0, 0.0
    else:
        pairs = len(differences) * 2 * sum(steps) / size**2
        fewer = sum(steps) / size
        lacking = hashes * hashes * fewer / size  # k positions, each hit with chance (k - coincidences)/m
    several = 2 * pairs
    single = collisions / keys - lacking - several
    if single <= 0:
        return 1.0
    bound = fewer + keys * (several + lacking) + collisions * several / single + collisions**2 / keys
    return min(bound, 1.0)


def concentration(
    epsilon: float,
    hashing: str,
    bits: int,
    hashes: int,
    keys: int,
    *,
    offset: str = "square",
    around: str = "limit",
) -> float:
    """Bound P(abs(R - p) > epsilon), R a filter's own rate (Theorem 3.6.1, misprint corrected).

    The false-positive *probability* is of a filter yet to be filled; once it is, the false positives among
    other keys come at its own *rate* R, a random number of that mean. One key changes R by lambda/n at most:
    P(abs(R - E[R]) > delta) <= 2 exp(-2 n delta**2/lambda**2); around the limit p, delta is epsilon less
    abs(E[R] - p). xi of the theorem is 0 for all schemes here. Far from sharp: R's standard deviation is much
    below what it allows (`evenbins reproduce kirsch-fig3.1` shows it).

    Parameters
    ----------
    epsilon
        The distance, above 0.
    hashing, bits, hashes, keys, offset
        As of `rate`.
    around
        p: ``"limit"``, as in the theorem, or ``"probability"``, E[R] itself.

    Examples
    --------
    >>> concentration(0.001, "double", 8_000_000, 6, 1_000_000)
    1.0
    >>> f"{concentration(0.01, 'double', 8_000_000, 6, 1_000_000):.1e}"
    '1.0e-04'
    """
    rule = "a number above 0"
    distance = arguments.real("epsilon", epsilon, rule, "Pass a distance such as 0.001")
    if not distance > 0:
        raise arguments.error("epsilon", rule, epsilon, "Pass a distance such as 0.001")
    if around not in ("limit", "probability"):
        raise arguments.error("around", "'limit' or 'probability'", around, "Pass 'limit', as in the theorem")
    hashing, bits, hashes, keys, offset = _scheme(hashing, bits, hashes, keys, offset)
    if keys == 0:
        return 0.0
    size = bits // hashes if hashing == "partition" else bits
    collisions = hashes * keys / size if hashing == "partition" else hashes**2 * keys / bits
    if around == "limit":
        distance -= abs(_law(hashing, bits, hashes, keys, offset).fpr - limit(collisions, hashes))
        if distance <= 0:
            return 1.0
    return min(2 * math.exp(-2 * keys * distance**2 / collisions**2), 1.0)


# --- the general framework: a scheme of your own ---------------------------------------------------------


@dataclass(frozen=True)
class SchemeAtSize:
    """What was measured at one number of keys; the errors are half-widths of 99.9 % intervals.

    Parameters
    ----------
    keys, hashes
        n and k.
    locations
        Distinct locations that occurred.
    collisions, collisions_error
        n E[C]: keys of n that meet an absent one, counted by positions. Tends to lambda.
    several, several_error
        n P(C >= 2): those that meet it more than once. Must vanish.
    location_excess, location_noise
        The largest abs(p_i/mean - 1) of the chances p_i of all locations; what it may be by chance (1e-6).
    index_excess, index_noise
        The same of the k positions of the absent key, among keys that meet it once.
    """

    keys: int
    hashes: int
    locations: int
    collisions: float
    collisions_error: float
    several: float
    several_error: float
    location_excess: float
    location_noise: float
    index_excess: float
    index_noise: float


@dataclass(frozen=True)
class SchemeCheck:
    """Whether a scheme keeps the conditions of Lemma 3.3.1, as far as samples tell, and its limit then.

    Parameters
    ----------
    sizes
        What was measured, by number of keys.
    conditions
        By name: True (the samples agree), False (they contradict), None (they do not tell). ``even``: 3.,
        every location equally likely; ``apart``: 4., two given locations come together with chance o(1/n);
        ``index``: 4. of the theorem, which follows from both; ``linear``: 5., O(n) locations. 1. is
        assumed: calls, and the rows of an array, are independent and alike. 2. is required: `check_scheme`
        raises otherwise.
    collisions
        lambda, at the largest number of keys.
    limit, limit_low, limit_high
        (1 - exp(-lambda/k))**k, and the same for the ends of lambda's interval.
    """

    sizes: tuple[SchemeAtSize, ...]
    conditions: dict[str, bool | None]
    collisions: float
    limit: float
    limit_low: float
    limit_high: float

    @property
    def holds(self) -> bool | None:
        """True if all conditions hold, False if one fails, None if the samples do not tell."""
        found = set(self.conditions.values())
        return False if False in found else None if None in found else True


Scheme = Callable[[np.random.Generator, int], npt.ArrayLike]
_BATCHES = 16
_DOUBT = 1e-6


def check_scheme(
    scheme: Scheme,
    keys: Sequence[int] = (500, 1000, 2000, 4000),
    *,
    rng: np.random.Generator | int = 0,
    samples: int = 96_000,
) -> SchemeCheck:
    """Check a hashing scheme of your own against Lemma 3.3.1, by sampling, and predict its limit.

    The lemma says: if locations are equally likely, and two of them rarely come together, a filter with
    this scheme has the false-positive probability of a fully random one when keys are many. Samples can
    refute that and support it, not prove it.

    Parameters
    ----------
    scheme
        ``scheme(rng, n)`` gives the k locations of one new key in a filter planned for n keys, as integers;
        or those of many keys, one in each row. k must not depend on anything.
    keys
        Numbers n, ascending, two at least; a factor 8 between the ends tells growth from noise.
    rng
        Generator, or its seed.
    samples
        Keys drawn at each n, half as members and half as absent keys: each of sixteen batches compares all
        members with all absent keys.

    Raises
    ------
    ValueError
        If the scheme returns something else, or an argument is out of its range.

    Examples
    --------
    Double hashing with 8 bits a key, and a scheme that knows only n different sets of positions:

    >>> def double(rng, n, k=6):
    ...     h1, h2 = rng.integers(0, 8 * n, (2, 1000, 1))
    ...     return (h1 + h2 * np.arange(k)) % (8 * n)
    >>> found = check_scheme(double)
    >>> found.holds, found.limit_low < limit(36 / 8, 6) < found.limit_high
    (True, True)
    >>> def one_word(rng, n, k=6):
    ...     return (rng.integers(0, 8 * n, (1000, 1)) + np.arange(k)) % (8 * n)
    >>> check_scheme(one_word).conditions["apart"]
    False
    """
    if not callable(scheme):
        raise arguments.type_error("scheme", "a function of (rng, n)", scheme, "Pass a function")
    sizes_asked = [arguments.integer("keys", n, 2, 2**40, "Pass numbers such as 500, 4000") for n in keys]
    if len(sizes_asked) < 2 or sizes_asked != sorted(set(sizes_asked)):
        raise arguments.error("keys", "two or more numbers, ascending", keys, "Pass (500, 1000, 2000, 4000)")
    samples = arguments.integer("samples", samples, 64, 2**24, "Pass a number such as 96000")
    rng = np.random.default_rng(rng)
    sizes = tuple(_measure_scheme(scheme, n, rng, samples) for n in sizes_asked)
    if len({each.hashes for each in sizes}) > 1:
        found = [each.hashes for each in sizes]
        raise arguments.error("scheme", "one of as many locations for every n", found, "Keep k constant")
    last = sizes[-1]
    ends = [max(last.collisions + sign * last.collisions_error, 0.0) for sign in (-1, 0, 1)]
    low, middle, high = (limit(each, last.hashes) for each in ends)
    conditions = {
        "even": _is_even(sizes),
        "apart": _vanishes(sizes),
        "index": last.index_excess <= last.index_noise,
        "linear": _growth([each.locations for each in sizes], sizes_asked) < 1.2,
    }
    return SchemeCheck(sizes, conditions, last.collisions, middle, low, high)


def _measure_scheme(scheme: Scheme, n: int, rng: np.random.Generator, samples: int) -> SchemeAtSize:
    each = samples // (2 * _BATCHES)
    met, several = np.zeros(_BATCHES), np.zeros(_BATCHES)
    singles: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    seen: list[npt.NDArray[np.int64]] = []
    hashes = 0
    for batch in range(_BATCHES):
        drawn = _draw(scheme, n, rng, 2 * each, hashes)
        hashes = drawn.shape[1]
        members, absent = drawn[:each], drawn[each:]
        seen.append(drawn)
        owner = np.repeat(np.arange(each), hashes)
        held = np.unique(np.stack([members.ravel(), owner]), axis=1)  # each location once a key, sorted
        first = np.searchsorted(held[0], absent.ravel(), "left")
        count = np.searchsorted(held[0], absent.ravel(), "right") - first
        asked = np.repeat(np.arange(absent.size), count)  # (absent key, its index), for each meeting
        within = np.arange(len(asked)) - np.repeat(np.cumsum(count) - count, count)
        who = held[1][np.repeat(first, count) + within]
        _, index, times = np.unique(asked // hashes * each + who, return_index=True, return_counts=True)
        met[batch] = n * times.sum() / each**2
        several[batch] = n * (times >= 2).sum() / each**2
        once = np.bincount(asked[index[times == 1]] % hashes, minlength=hashes)
        singles = once if batch == 0 else singles + once
    everything = np.sort(np.concatenate(seen), axis=1)
    fresh = np.ones(everything.shape, dtype=bool)
    fresh[:, 1:] = np.diff(everything, axis=1) != 0
    _, hits = np.unique(everything[fresh], return_counts=True)
    return SchemeAtSize(
        n, hashes, len(hits),
        float(met.mean()), _half_width(met), float(several.mean()), _half_width(several),
        *_excess(hits), *_excess(singles),
    )  # fmt: skip


def _draw(
    scheme: Scheme, n: int, rng: np.random.Generator, wanted: int, hashes: int
) -> npt.NDArray[np.int64]:
    """Collect the locations of `wanted` keys, a row each; `hashes` is how many there must be, 0 if any."""
    rows: list[npt.NDArray[np.int64]] = []
    got = 0
    while got < wanted:
        given = np.asarray(scheme(rng, n))
        if given.ndim == 1:
            given = given[None, :]
        rule = "a function that gives integers: k locations, or k in each row"
        if given.ndim != 2 or given.size == 0 or given.dtype.kind not in "iu":
            found = f"an array of {given.dtype}, shape {given.shape}"
            raise arguments.error("scheme", rule, found, "Number the locations")
        if hashes and given.shape[1] != hashes:
            found = f"{hashes} and then {given.shape[1]}"
            raise arguments.error("scheme", "one of as many locations each time", found, "Keep k constant")
        hashes = given.shape[1]
        rows.append(given.astype(np.int64))
        got += len(given)
    return np.concatenate(rows)[:wanted]


def _half_width(means: _Floats) -> float:
    """Give half of a 99.9 % interval for the mean of sixteen batches: 4.07 is Student's."""
    return 4.07 * float(means.std(ddof=1)) / math.sqrt(len(means))


def _excess(hits: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Give the largest relative deviation from evenness, and Bernstein's bound for it at 1e-6."""
    mean = float(hits.mean()) if len(hits) else 0.0
    if mean == 0:
        return 0.0, math.inf
    strength = math.log(2 * len(hits) / _DOUBT)
    noise = math.sqrt(2 * strength / mean) + 2 * strength / (3 * mean)
    return float(np.abs(hits / mean - 1).max()), noise


def _is_even(sizes: Sequence[SchemeAtSize]) -> bool:
    """Tell whether all locations are equally likely: no single one stands out, nor all of them together.

    With L locations of chances p_i, E[C] is the sum of p_i^2, which is k^2/L if they are equal, and above it
    by their relative variance if not.
    """
    if any(each.location_excess > each.location_noise for each in sizes):
        return False
    last = sizes[-1]
    least = last.collisions - last.collisions_error
    return least * last.locations / (last.keys * last.hashes**2) < 1.02


def _vanishes(sizes: Sequence[SchemeAtSize]) -> bool | None:
    """Tell whether n P(C >= 2) falls with n: from the slope of its logarithm between the ends."""
    first, last = sizes[0], sizes[-1]
    if last.several + last.several_error < 1e-3:
        return True
    if first.several <= 0 or last.several <= 0:
        return None
    span = math.log(last.keys / first.keys)
    slope = math.log(last.several / first.several) / span
    error = math.hypot(first.several_error / first.several, last.several_error / last.several) / span
    if slope + error < 0:
        return True
    return False if error < 0.5 and last.several > 0.01 else None


def _growth(numbers: Sequence[float], keys: Sequence[int]) -> float:
    return math.log(numbers[-1] / numbers[0]) / math.log(keys[-1] / keys[0])


def _scheme(
    hashing: object, bits: object, hashes: object, keys: object, offset: object
) -> tuple[str, int, int, int, str]:
    """Check the arguments that every function here takes."""
    if not isinstance(hashing, str) or hashing not in HASHINGS:
        raise arguments.error("hashing", f"one of {', '.join(HASHINGS)}", hashing, "Pass 'independent'")
    if not isinstance(offset, str) or offset not in OFFSETS:
        raise arguments.error("offset", f"one of {', '.join(OFFSETS)}", offset, "Pass 'cube'")
    m = arguments.integer("bits", bits, 1, fpr.MAX_BITS, "Pass the bits of the filter")
    k = _hashes(hashes)
    n = arguments.integer("keys", keys, 0, arguments.MAX_CAPACITY, "Pass the keys in the filter")
    if hashing == "partition" and m < k:
        raise arguments.error("bits", f"at least hashes={k}, one for each part", m, "Pass more bits")
    return hashing, m, k, n, offset


def _hashes(value: object) -> int:
    return arguments.integer("hashes", value, 1, fpr.MAX_HASHES_STANDARD, "Pass a number such as 7")
